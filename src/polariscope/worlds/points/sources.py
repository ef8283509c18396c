"""Independent sources over time behind a nonlinear mixing: the task of nonlinear ICA (Spec 001a, 2.1 and 4.7).

Every observation comes with the next one (or several) of the same process, so that all objectives of pairs learn from
it, and the true sources are its factors. No moment is in two sequences, so held-out moments are never seen in training.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.signal import lfilter

from polariscope.theory.transitions import sample as sample_steps
from polariscope.worlds.factors import Factor, numbered
from polariscope.worlds.points.synthetic import POINTS, WORLD, PointWorld
from polariscope.worlds.world import worlds

Floats = NDArray[np.float64]
FORGOTTEN = 1e-9
"""Weight that the beginning of a process has left when it counts as stationary."""
BLOCK = 4096
"""Sequences that are mixed at a time, so that the observations are never all copied to double precision."""


@worlds.register("sources")
@dataclass(frozen=True)
class Sources(PointWorld):
    """Independent sources s' = a s + u with generalised Laplace steps u, seen through layers of mixing.

    The default is the published AR(1) process with Laplace steps, of variance 2/(1 - a²) = 3.92. ``start="normal"``
    with ``coefficient=1`` is the process of temporal sparse coding, z ~ N(0, I) and a step from there. All sequences
    are drawn at once; 2000 coordinates of 10,000 pairs take 160 MB.

    >>> world = Sources(count=100, dimension=3, layers=2)
    >>> world.observe([0]).shape, world.others_of([0])[0].shape, world.factors_of([0]).shape
    ((1, 3), (1, 3), (1, 3))
    >>> x = world.observe(range(100))
    >>> bool(np.allclose(world.unmix(x), world.factors_of(range(100)), atol=1e-4))
    True
    """

    count: int = 2**15
    """Sequences."""
    dimension: int = 20
    """Sources."""
    layers: int = 1
    """Layers of the mixing, each a random orthogonal matrix, with smooth leaky ReLUs between them: 1 is linear, 0 is no
    mixing."""
    ambient: int = 0
    """Number of coordinates of an observation; by default the number of sources."""
    coefficient: float = 0.7
    """Share of a source that remains one step later."""
    alpha: float = 1.0
    """Shape of the steps: 1 is Laplace, 2 normal, natural videos have 0.5."""
    rate: float = 1.0
    """Rate of the steps, exp(-rate |u|^alpha): a larger rate makes smaller steps."""
    start: Literal["stationary", "normal"] = "stationary"
    """Start sequences in the stationary distribution, or at N(0, I)."""
    length: int = 2
    """Moments of a sequence: 2 make a pair."""
    scales: tuple[float, ...] = ()
    """Factor of each source before it is mixed; 1 for all if not given."""
    slope: float = 0.1
    """Slope of the smooth leaky ReLU far below 0."""
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, low in {"dimension": 1, "layers": 0, "length": 2}.items():
            if getattr(self, name) < low:
                raise ValueError(f"the {name} of sources is {getattr(self, name)}: it needs to be at least {low}")
        for name in ("alpha", "rate"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"the {name} of sources is {getattr(self, name)}: it needs to be above 0 and finite")
        if not 0 < self.slope <= 1:
            raise ValueError(f"the slope of the mixing is {self.slope}: it needs to be above 0 and at most 1")
        if self.ambient and self.ambient < self.dimension:
            raise ValueError(f"{self.dimension} sources need at least as many coordinates; ambient is {self.ambient}")
        if self.ambient > self.dimension and not self.layers:
            raise ValueError(f"sources that are not mixed have {self.dimension} coordinates: use at least 1 layer")
        nonzero = all(0 < abs(scale) < math.inf for scale in self.scales)
        if self.scales and (len(self.scales) != self.dimension or not nonzero):
            raise ValueError(f"{self.dimension} sources need as many scales, none of them 0; got {self.scales}")
        if not math.isfinite(self.coefficient):
            raise ValueError(f"the coefficient of sources is {self.coefficient}: it needs to be finite")
        if self.start == "stationary" and not abs(self.coefficient) <= 0.999:
            raise ValueError(
                f"a stationary process has a coefficient from -0.999 to 0.999; got {self.coefficient}: use another, "
                "or let sequences begin at N(0, I) with start normal"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.ambient or self.dimension,)

    @property
    def factors(self) -> tuple[Factor, ...]:
        return tuple(Factor(f"s_{j}", 0) for j in range(self.dimension))

    def draw(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        sources, observations = self.sequences
        return observations[:, 0], sources[:, 0]

    def others_of(self, index: ArrayLike) -> tuple[NDArray[np.float32], ...]:
        """The observations that follow."""
        numbers, (_, observations) = numbered(index, self.count), self.sequences
        return tuple(observations[numbers, moment] for moment in range(1, self.length))

    def other_factors_of(self, index: ArrayLike) -> NDArray[np.float32]:
        """The sources of the second observation of each sequence."""
        return self.sequences[0][numbered(index, self.count), 1]

    @cached_property
    def sequences(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """All sources ``(count, length, dimension)`` and observations ``(count, length, ambient)``."""
        sources = self._process()
        observations = np.empty((self.count, self.length, *self.shape), np.float32)
        for at in range(0, self.count, BLOCK):
            observations[at : at + BLOCK] = self.mix(sources[at : at + BLOCK])
        return sources.astype(np.float32), observations

    def _process(self) -> Floats:
        rng = np.random.default_rng((self.seed, POINTS))
        if self.start == "normal":
            first = rng.standard_normal((self.count, 1, self.dimension))
            steps = sample_steps(self.alpha, self.rate, (self.count, self.length - 1, self.dimension), rng)
            return _autoregressive(np.concatenate([first, steps], axis=1), self.coefficient)
        a, moments = abs(self.coefficient), self.count * self.length
        before = math.ceil(math.log(FORGOTTEN) / math.log(a)) if a else 0
        steps = sample_steps(self.alpha, self.rate, (1, before + moments, self.dimension), rng)
        process = _autoregressive(steps, self.coefficient)[:, before:]
        return process.reshape(self.count, self.length, self.dimension)

    @cached_property
    def matrices(self) -> tuple[Floats, ...]:
        """One for each layer, rows to coordinates; their columns are orthogonal, so that no direction is lost."""
        rng = np.random.default_rng((self.seed, WORLD))
        sizes = [self.dimension] * self.layers + list(self.shape)
        matrices = []
        for inputs, outputs in pairwise(sizes):
            # The signs make the QR factor uniform over orthogonal matrices, the root keeps the size of coordinates.
            q, r = np.linalg.qr(rng.standard_normal((outputs, inputs)))
            matrices.append(q * np.sign(np.diag(r)) * math.sqrt(outputs / inputs))
        return tuple(matrices)

    def mix(self, sources: ArrayLike) -> Floats:
        """Observations ``(..., ambient)`` of sources ``(..., dimension)``."""
        x = np.asarray(sources, dtype=np.float64) * (self.scales or 1.0)
        for number, matrix in enumerate(self.matrices):
            x = (smooth_leaky_relu(x, self.slope) if number else x) @ matrix.T
        return x

    def unmix(self, observations: ArrayLike) -> Floats:
        """Sources of observations: the codes of a perfect model."""
        x = np.asarray(observations, dtype=np.float64)
        for number, matrix in reversed(list(enumerate(self.matrices))):
            x = x @ matrix * (matrix.shape[1] / matrix.shape[0])
            x = inverse_smooth_leaky_relu(x, self.slope) if number else x
        return np.asarray(x / (self.scales or 1.0))


def smooth_leaky_relu(x: ArrayLike, slope: float = 0.1) -> Floats:
    """s(x) = a x + (1 - a) ln(1 + e^x), whose derivative goes from a to 1 (Spec 001a, section 4.7).

    >>> round(float(smooth_leaky_relu(0.0)), 6)  # 0.9 ln 2
    0.623832
    """
    x = np.asarray(x, dtype=np.float64)
    return np.asarray(slope * x + (1 - slope) * np.logaddexp(0, x))


def inverse_smooth_leaky_relu(y: ArrayLike, slope: float = 0.1) -> Floats:
    """The x with s(x) = y, by Newton's method.

    >>> round(float(inverse_smooth_leaky_relu(smooth_leaky_relu(-3.0))), 9)
    -3.0
    """
    y = np.asarray(y, dtype=np.float64)
    x = y
    for _ in range(
        50
    ):  # from above it comes down on a convex function, so that it cannot leave; a few steps are enough
        x = x - (smooth_leaky_relu(x, slope) - y) / (slope + (1 - slope) / (1 + np.exp(-np.clip(x, -500, 500))))
    return x


def _autoregressive(inputs: Floats, coefficient: float) -> Floats:
    """s_t = a s_(t-1) + u_t along the second axis, from s_0 = u_0."""
    return np.asarray(lfilter([1.0], [1.0, -coefficient], inputs, axis=1))
