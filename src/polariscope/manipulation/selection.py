"""Train the same model with several seeds and select the most and the least disentangled ones by any score.

The learned manipulation plays two such models against each other (Spec 003, section 4.7); the pictures of cartesian
and polar codes show them side by side (section E4.4).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from polariscope.measures.measure import measures
from polariscope.nets.autoencoder import Autoencoder
from polariscope.representation import Representation, represent
from polariscope.training.config import RunConfig
from polariscope.training.loop import Listeners
from polariscope.training.progress import TellNamed
from polariscope.training.run import paced, train_in_memory
from polariscope.training.sweep import over_seeds

Score = str | Callable[[Representation], float]
"""The name of a registered measure, or any function for which more is better."""
SCORED = 5000  # examples


@dataclass(frozen=True, eq=False)
class Restart:
    """A trained model with its seed and its disentanglement score."""

    seed: int
    score: float
    """More is better."""
    model: Autoencoder
    mean_var: tuple[float, ...]
    """Mean posterior variance of each latent. An entangled model whose variances are equal can only make factors
    equal."""

    def describe(self) -> dict[str, Any]:
        return {"seed": self.seed, "score": self.score, "mean_var": list(self.mean_var)}


@dataclass(frozen=True)
class Extremes:
    """Indices of the highest scores, best first, and of the lowest, worst first."""

    best: tuple[int, ...]
    worst: tuple[int, ...]


def extremes(scores: ArrayLike, count: int = 1) -> Extremes:
    """The ``count`` highest and the ``count`` lowest scores; ties go to the earlier one, and no score is in both.

    >>> extremes([0.2, 0.9, 0.4, 0.1], count=2)
    Extremes(best=(1, 2), worst=(3, 0))
    """
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1 or not np.isfinite(values).all():
        raise ValueError(f"scores need one finite number per model; got {values.tolist()}")
    if count < 1 or 2 * count > len(values):
        raise ValueError(f"picking {count} best and {count} worst needs at least {2 * count} models; got {len(values)}")
    best = np.argsort(-values, kind="stable")[:count]
    rising = np.argsort(values, kind="stable")
    worst = rising[~np.isin(rising, best)][:count]
    return Extremes(tuple(best.tolist()), tuple(worst.tolist()))


def train_restarts(
    config: RunConfig,
    count: int,
    score: Score = "mig",
    tell: TellNamed = lambda name, progress: None,
) -> list[Restart]:
    """Train ``config`` with ``count`` consecutive seeds, starting with its own seed, and score each model."""
    value = _scorer(score)
    restarts = []
    for number, one in enumerate(over_seeds(config, count), 1):
        step = paced(partial(tell, f"restart {number} of {count}"), one.training.steps)
        model = train_in_memory(one, Listeners(step=step))
        seen = represent(model, one.world, count=SCORED, seed=one.training.seed)
        var = () if seen.var is None else tuple(float(v) for v in seen.var.mean(axis=0))
        restarts.append(Restart(one.training.seed, value(seen), model, var))
    return restarts


def _scorer(score: Score) -> Callable[[Representation], float]:
    if not isinstance(score, str):
        return score
    measure = measures.get(score)()
    sign = -1.0 if measure.higher_is_better is False else 1.0
    return lambda representation: sign * measure.value(representation)
