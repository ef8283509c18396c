"""The code of a perfect encoder: a world whose observations are its factors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.registry import Settings
from polariscope.worlds.view import View
from polariscope.worlds.world import World, worlds


@worlds.register("factor-codes")
@dataclass(frozen=True)
class FactorCodes(View):
    """A world whose observations are its factors, from 0 to 1, with zeros up to the size of a learned code.

    Predictions from them are an upper bound for any representation (Spec 001a, section 10). ``negative`` flips every
    sign: an equivalent code, but further from the targets.

    >>> from polariscope.worlds.renderers.mini_sprites import MiniSprites
    >>> FactorCodes(MiniSprites(), size=6, negative=True).observe([1295]).tolist()
    [[-1.0, -1.0, -1.0, -1.0, -1.0, 0.0]]
    """

    examples: ClassVar[tuple[Settings, ...]] = ({"of": "mini-sprites"},)

    of: World
    size: int = 10
    """Numbers in a code."""
    negative: bool = False

    def __post_init__(self) -> None:
        factors = self.of.factors
        if not factors or not all(factor.size for factor in factors):
            raise ValueError("factor-codes needs a world with known, discrete factors: use sprites or shapes3d")
        if self.size < len(factors):
            raise ValueError(
                f"the size is {self.size}, and the world has {len(factors)} factors: use at least that many"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size,)

    def observe(self, index: ArrayLike) -> NDArray[Any]:
        ranges = [max(factor.size - 1, 1) for factor in self.of.factors]
        values = self.of.factors_of(self.there(index)) / np.asarray(ranges)
        codes = np.zeros((len(values), self.size), np.float32)
        codes[:, : len(ranges)] = -values if self.negative else values
        return codes
