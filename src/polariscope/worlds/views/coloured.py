"""Grey images in two colours of their own: one for white, another for black."""

from __future__ import annotations

import colorsys
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.registry import Settings
from polariscope.worlds.numbered_draws import uniform
from polariscope.worlds.view import View
from polariscope.worlds.world import World, worlds

DARKEST = 0.3
"""Least value of a colour, in the sense of hue, saturation and value."""
APART = 0.25
"""Least difference of the two hues, of a whole circle."""


@worlds.register("coloured")
@dataclass(frozen=True)
class Coloured(View):
    """A world of grey images, each in two colours: white and black become two hues, and grey their mixture.

    The hues of an image differ by at least a quarter of the circle; which of the two colours is brighter is left to
    chance. The colours depend only on the number of the image: both images of a pair have the same ones.

    >>> from polariscope.worlds.renderers.digits import Digits
    >>> Coloured(Digits(count=100)).shape
    (3, 28, 28)
    """

    examples: ClassVar[tuple[Settings, ...]] = ({"of": {"name": "digits", "count": 200}},)

    of: World
    seed: int = 0
    """Seed of the colours."""

    @property
    def shape(self) -> tuple[int, ...]:
        inner = self.of.shape
        if len(inner) != 3 or inner[0] != 1:
            raise ValueError(f"colours are given to grey images, and this world has observations of shape {inner}")
        return (3, *inner[1:])

    def shown_target(self, target: NDArray[Any], index: ArrayLike) -> NDArray[Any]:
        return target

    def shown(self, observations: NDArray[Any], index: ArrayLike) -> NDArray[Any]:
        ink, paper = (colour[:, :, None, None].astype(np.float32) for colour in self.colours(index))
        full = 255 if observations.dtype == np.uint8 else 1
        share = observations.astype(np.float32) / full
        painted = full * (share * ink + (1 - share) * paper)
        return np.rint(painted).astype(np.uint8) if full == 255 else painted.astype(observations.dtype)

    def colours(self, index: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The colours ``(n, 3)`` of white and of black, by the number of an image."""
        u = uniform(int(np.random.SeedSequence(self.seed).generate_state(1, np.uint64)[0]), self.there(index), 6)
        hue = u[:, 0]
        other = (hue + APART + (1 - 2 * APART) * u[:, 1]) % 1
        strengths, values = 0.5 + 0.5 * u[:, 2:4], DARKEST + (1 - DARKEST) * u[:, 4:6]
        ink, paper = (
            np.array([colorsys.hsv_to_rgb(*one) for one in zip(hues, strengths[:, side], values[:, side], strict=True)])
            for side, hues in enumerate((hue, other))
        )
        return ink.reshape(-1, 3), paper.reshape(-1, 3)
