"""A hand-made change that turns the local structure of data away from its factors and preserves the global structure.

A wave sin(k Σ w + phase) is added, whose phase differs between coordinates. It moves quickly with the sum of the
factors, so locally the sum becomes a direction of large variance; over the whole data set it averages out, so the
principal components hardly notice (Spec 003, section 4.8). A VAE follows the local structure, PCA the global one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polariscope.manipulation.manipulation import Fitted, changeable, manipulations, standardised
from polariscope.registry import nearest, plain
from polariscope.training.progress import TellNamed
from polariscope.worlds.world import World


@manipulations.register("local")
@dataclass(frozen=True)
class LocalStructure:
    """Add epsilon · sin(frequency · Σ w_i + phase), where w are the factors at mean 0 and variance 1.

    Points change in their idle coordinates if they have at least two (with two, the phases 0 and 90 degrees make sine
    and cosine), otherwise in all coordinates. Images change in all pixels: the wave is a grating of ``stripes`` periods
    that moves as the factors change. Use Gaussian factors (``law="gaussian"`` of the point worlds): with uniform
    factors, the shape of the aggregate posterior keeps a VAE aligned with the axes. A network cannot learn a wave of
    high frequency (4 for small networks), so such a wave has no effect.
    """

    epsilon: float = 0.1
    """Largest change of any coordinate; for images a share of the grey range."""
    frequency: float = 2.0
    """Frequency of the wave in the standardised factors."""
    factors: tuple[str, ...] = ()
    """Names of the factors in the sum; all of them if not given."""
    stripes: int = 4
    """Periods of the wave across an image."""

    def __post_init__(self) -> None:
        if not self.frequency > 0 or self.stripes < 1:
            raise ValueError(
                f"a wave needs frequency > 0 and at least 1 stripe; got {self.frequency} and {self.stripes}"
            )

    def fit(self, world: World, seed: int, tell: TellNamed) -> Fitted:
        names = [factor.name for factor in world.factors]
        for name in self.factors:
            if name not in names:
                raise ValueError(f"this world has no factor {name!r}: {nearest(name, names)}")
        mean, spread = standardised(world)
        weights = np.array([not self.factors or name in self.factors for name in names]) / spread
        places = changeable(world)
        phases = self.phases(world.shape)[places] if len(world.shape) == 3 else even_phases(int(places.sum()))

        def change(factors: NDArray[Any], start: int) -> NDArray[np.floating]:
            # Not a matrix product, whose rounding could depend on how many rows there are.
            angle = self.frequency * ((factors - mean) * weights).sum(axis=1)
            out = np.zeros((len(factors), *world.shape), np.float32)
            out[:, places] = self.epsilon * np.sin(angle[:, None] + phases)
            return out

        return Fitted(change)

    def phases(self, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Phases of a diagonal grating over an image."""
        channels, height, width = shape
        rows, columns = np.meshgrid(np.arange(height) / height, np.arange(width) / width, indexing="ij")
        return np.broadcast_to(2 * math.pi * self.stripes * (rows + columns), (channels, height, width))

    def describe(self) -> dict[str, Any]:
        return plain(self)


def even_phases(count: int) -> NDArray[np.float64]:
    """Phases spread over half a turn, so that the squared slopes of the waves add up to count/2 everywhere."""
    return math.pi * np.arange(count) / count


@dataclass(frozen=True)
class PlaneTheory:
    """What the manipulation does to the plane x = (w_1, a w_2, 0, 0) with Gaussian w, in closed form.

    >>> theory = PlaneTheory(a=0.8, frequency=2.0, epsilon=0.35)
    >>> round(theory.angle, 2), round(theory.gap, 4), round(theory.added_variance, 3)
    (34.91, 0.0769, 0.075)
    """

    a: float
    frequency: float
    epsilon: float

    @property
    def metric(self) -> NDArray[np.float64]:
        """JᵀJ = diag(1, a²) + ε²k² 1 1ᵀ, the same at every w."""
        return np.diag([1, self.a**2]) + (self.epsilon * self.frequency) ** 2

    @property
    def angle(self) -> float:
        """Degrees by which the leading local direction leaves the first factor."""
        coupling = (self.epsilon * self.frequency) ** 2
        return math.degrees(0.5 * math.atan2(2 * coupling, 1 - self.a**2))

    @property
    def added_variance(self) -> float:
        """ε²/(1 + a²)."""
        return self.epsilon**2 / (1 + self.a**2)

    @property
    def covariance(self) -> float:
        """cov(w_1, ε sin k(w_1 + w_2)) = ε k e^(−k²): what global PCA could see of the wave."""
        return self.epsilon * self.frequency * math.exp(-(self.frequency**2))

    @property
    def gap(self) -> float:
        """How many nats worse a code along the factors is than an orthogonal one."""
        metric = self.metric
        return 0.5 * float(np.log(np.prod(np.diag(metric)) / np.linalg.det(metric)))
