"""The control of every manipulation: a change of the same size without structure.

A score that falls on manipulated data proves something only if it does not fall on data with noise of the same size
(Spec 003, section 4.6). The noise is drawn once and belongs to the data: new noise in each epoch would act as a
regulariser.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polariscope.manipulation.manipulation import ChangeSize, Fitted, changeable, manipulations
from polariscope.registry import plain
from polariscope.training.progress import TellNamed
from polariscope.worlds.world import World


@manipulations.register("noise")
@dataclass(frozen=True)
class Noise:
    """Independent noise, uniform in [−epsilon, epsilon], of variance epsilon²/3 in every changed coordinate.

    Images change in all pixels; points change in their idle coordinates if they have at least two, otherwise in all.
    The noise of an observation is a function of the seed and of the observation's number.
    """

    epsilon: float = 0.1
    """Bound of the change; the publication uses 0.1 for dSprites and 0.175 for Shapes3D."""

    @classmethod
    def of_size(cls, size: ChangeSize) -> Noise:
        """Noise with the mean squared change of another manipulation (over the same number of coordinates)."""
        return cls(math.sqrt(3 * size.mean_square / size.coordinates))

    def fit(self, world: World, seed: int, tell: TellNamed) -> Fitted:
        places = changeable(world)
        coordinates = int(places.sum())

        def change(factors: NDArray[Any], start: int) -> NDArray[np.floating]:
            # One 64-bit draw per number: after the jump, row i has the same noise whichever rows came before.
            bits = np.random.PCG64(seed).advance(start * coordinates)
            drawn = np.random.Generator(bits).random((len(factors), coordinates))
            out = np.zeros((len(factors), *world.shape), np.float32)
            out[:, places] = self.epsilon * (2 * drawn - 1)
            return out

        return Fitted(change)

    def describe(self) -> dict[str, Any]:
        return plain(self)
