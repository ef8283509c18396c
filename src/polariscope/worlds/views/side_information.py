"""Facts about an image besides its pixels, as further channels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.registry import Settings, nearest
from polariscope.worlds.view import View, inside
from polariscope.worlds.world import World, worlds


@runtime_checkable
class Sided(Protocol):
    """A world with facts about its images: the position of the sun, the season, the rainfall."""

    @property
    def side(self) -> tuple[str, ...]:
        """Names of the facts."""

    def side_of(self, index: ArrayLike) -> NDArray[Any]:
        """Numbers from 0 to 1, ``(n, k)``."""


@worlds.register("side-information")
@dataclass(frozen=True)
class SideInformation(View):
    """A world whose images have further channels, each with one number: a fact about the whole image.

    ``what`` names facts that the world knows besides its images, or its factors; without names it is all such facts,
    or else all discrete factors. A network of any kind takes them, and so do masks (Spec 000, row F100).

    >>> from polariscope.worlds.renderers.mini_sprites import MiniSprites
    >>> SideInformation(MiniSprites(), "scale,x").shape
    (3, 12, 12)
    """

    examples: ClassVar[tuple[Settings, ...]] = ({"of": "mini-sprites", "what": "scale,x"},)

    of: World
    what: str = ""

    def __post_init__(self) -> None:
        if len(self.of.shape) != 3:
            raise ValueError(f"side information is added to images, and this world has points of {self.of.shape}")
        _ = self.names  # refuse what is not known now

    @property
    def names(self) -> list[str]:
        source = inside(self.of, Sided)
        facts = list(source[0].side) if source else []
        factors = [factor.name for factor in self.of.factors if factor.size]
        asked = [name.strip() for name in self.what.split(",") if name.strip()] or facts or factors
        for name in asked:
            if name not in (*facts, *factors):
                raise ValueError(
                    f"the world has no fact {name!r} about its images: {nearest(name, [*facts, *factors])}"
                )
        if not asked:
            raise ValueError("this world has no facts about its images besides their pixels: use another")
        return asked

    @property
    def shape(self) -> tuple[int, ...]:
        channels, height, width = self.of.shape
        return channels + len(self.names), height, width

    def numbers_of(self, index: ArrayLike) -> NDArray[np.float32]:
        """The facts, ``(n, k)``, from 0 to 1."""
        numbers = self.there(index)
        source = inside(self.of, Sided, numbers)
        columns: dict[str, NDArray[Any]] = {}
        if source:
            columns = dict(zip(source[0].side, np.asarray(source[0].side_of(source[1])).T, strict=True))
        positions = self.of.factors_of(numbers)
        for place, factor in enumerate(self.of.factors):
            if factor.size and factor.name not in columns:
                columns[factor.name] = positions[:, place] / max(factor.size - 1, 1)
        return np.column_stack([columns[name] for name in self.names]).astype(np.float32)

    def shown(self, observations: NDArray[Any], index: ArrayLike) -> NDArray[Any]:
        numbers = self.numbers_of(index)
        if observations.dtype == np.uint8:
            numbers = np.rint(255 * numbers)
        planes = np.broadcast_to(numbers[:, :, None, None], (*numbers.shape, *observations.shape[2:]))
        return np.concatenate([observations, planes.astype(observations.dtype)], axis=1)

    def shown_target(self, target: NDArray[Any], index: ArrayLike) -> NDArray[Any]:
        return target  # pixels stay where they are
