"""Learning curves: the error against the number of examples, over seeds, and the exponent of its power law.

Errors and amplification factors have heavy tails over data sets. The power law is therefore fitted to the median over
seeds (of data and initialisation), with a bootstrap over the seeds for its interval. (Spec 004, sections 5.2 and 12.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
Experiment = Callable[[int, int], Mapping[str, float]]
"""A function from a number of examples and a seed to one number per learner."""
Run = Callable[[Callable[[tuple[int, int]], Mapping[str, float]], Iterable[tuple[int, int]]], Iterable[Any]]


@dataclass(frozen=True)
class PowerLaw:
    """value ≈ ``prefactor`` · p^``exponent``, with a confidence interval ``low`` to ``high`` of the exponent."""

    exponent: float
    low: float
    high: float
    prefactor: float

    def __call__(self, sizes: ArrayLike) -> FloatArray:
        return np.asarray(self.prefactor * np.asarray(sizes, dtype=np.float64) ** self.exponent)


@dataclass(frozen=True)
class LearningCurve:
    """``values`` ``(sizes, seeds)`` of one learner.

    >>> curve = LearningCurve(np.array([100, 400]), np.array([[0.2, 0.25, 0.15], [0.1, 0.11, 0.09]]))
    >>> curve.medians.tolist(), round(curve.power_law().exponent, 6)
    ([0.2, 0.1], -0.5)
    """

    sizes: NDArray[np.int64]
    values: FloatArray

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or len(self.values) != len(self.sizes) or 0 in self.values.shape:
            raise ValueError(
                f"a learning curve of {len(self.sizes)} sizes needs values (sizes, seeds); got {self.values.shape}"
            )

    @property
    def medians(self) -> FloatArray:
        return np.asarray(np.median(self.values, axis=1))

    def power_law(
        self, smallest: int = 0, level: float = 0.95, resamples: int = 1000, seed: int | np.random.Generator = 0
    ) -> PowerLaw:
        """Least squares of log median against log p from ``smallest`` on; the interval is a bootstrap over seeds."""
        chosen = self.sizes >= smallest
        if chosen.sum() < 2:
            raise ValueError(f"an exponent needs at least 2 sizes; {int(chosen.sum())} are at least {smallest}")
        values = self.values[chosen]
        if not np.isfinite(values).all() or (values <= 0).any():
            raise ValueError("a power law needs positive values: if an error is 0, use a larger test set")
        sizes = np.log(self.sizes[chosen])
        exponent, offset = np.polyfit(sizes, np.log(np.median(values, axis=1)), 1)
        draws = np.random.default_rng(seed).integers(values.shape[1], size=(resamples, *values.shape))
        medians = np.log(np.median(np.take_along_axis(values[None], draws, axis=2), axis=2))
        centred = sizes - sizes.mean()
        slopes = medians @ centred / (centred @ centred)
        low, high = np.quantile(slopes, [(1 - level) / 2, (1 + level) / 2])
        return PowerLaw(float(exponent), float(low), float(high), float(np.exp(offset)))

    def guide(self, exponent: float) -> PowerLaw:
        """A line with a predicted slope through the centre of the medians, to draw beside them."""
        offset = np.log(self.medians).mean() - exponent * np.log(self.sizes).mean()
        return PowerLaw(exponent, exponent, exponent, float(np.exp(offset)))

    def columns(self) -> dict[str, NDArray[np.generic]]:
        """Columns of a table with one row per size and seed."""
        count = self.values.shape[1]
        return {
            "size": np.repeat(self.sizes, count),
            "seed": np.tile(np.arange(count), len(self.sizes)),
            "value": self.values.ravel(),
        }


def learning_curves(
    experiment: Experiment, sizes: Sequence[int], seeds: Sequence[int], run: Run = map
) -> dict[str, LearningCurve]:
    """Run ``experiment(p, seed)`` for every size and seed; one curve for each name it returns.

    ``run`` maps a function over the pairs, in order; the ``map`` of a process pool uses all cores.

    >>> curves = learning_curves(lambda p, seed: {"lazy": 1 / p, "feature": 1 / p**2}, [10, 100], [0, 1])
    >>> {name: round(curve.power_law().exponent, 6) for name, curve in curves.items()}
    {'lazy': -1.0, 'feature': -2.0}
    """
    if not len(sizes) or not len(seeds):
        raise ValueError("a learning curve needs at least one size and one seed")
    rows = list(run(_Pair(experiment), [(size, seed) for size in sizes for seed in seeds]))
    names = list(rows[0])
    if any(list(row) != names for row in rows):
        raise ValueError(f"every run of a learning curve needs the same names; the first has {', '.join(names)}")
    table = np.array([[row[name] for name in names] for row in rows], dtype=np.float64)
    cube = table.reshape(len(sizes), len(seeds), len(names))
    return {name: LearningCurve(np.array(sizes), cube[:, :, i]) for i, name in enumerate(names)}


@dataclass(frozen=True)
class _Pair:
    """An experiment as a function of one argument that can be sent to other processes."""

    experiment: Experiment

    def __call__(self, pair: tuple[int, int]) -> Mapping[str, float]:
        return self.experiment(*pair)
