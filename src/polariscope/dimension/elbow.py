"""The elbow method of choosing a dimension: train models of many sizes to the end, and find the size from which more
latents no longer help.

FONDUE avoids this cost and is compared with it: curves of reconstruction, downstream accuracy and similarity
preservation for variational and plain autoencoders (Spec 002, sections 12.6 and 12.7; Bonheme 2023, 8.4).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.dimension.trained import DimensionProbe
from polariscope.measures.renyi import spi
from polariscope.measures.truncation import random_accuracy
from polariscope.objectives.objective import Objective, objectives
from polariscope.representation import Representation
from polariscope.training.config import RunConfig
from polariscope.worlds.world import to_tensor

Classifier = Literal["boosted_trees", "histogram_trees", "logistic"]
SPI_EXAMPLES = 1000  # the score grows with the number of examples, so every model gets the same


def elbow(ns: ArrayLike, losses: ArrayLike) -> int:
    """The elbow of a falling curve: the n at which it is farthest below the chord between its ends.

    Both axes are scaled to [0, 1] first, so that units do not matter (the criterion of Kneedle: Satopää, Albrecht,
    Irwin and Raghavan 2011). Give −accuracy for a rising curve. A curve that does
    not fall or has no point below its chord is refused.

    >>> elbow([1, 2, 3, 4, 8, 16], [30, 20, 11, 10, 9.5, 9])
    3
    """
    x, y = np.asarray(ns, dtype=np.float64), np.asarray(losses, dtype=np.float64)
    if x.shape != y.shape or x.ndim != 1 or len(x) < 3:
        raise ValueError(f"an elbow needs at least 3 points, one loss for each n; got shapes {x.shape} and {y.shape}")
    if not (np.isfinite(y).all() and (np.diff(x) > 0).all()):
        raise ValueError("an elbow needs ascending n and finite losses")
    if not y[-1] < y[0]:
        raise ValueError(f"the curve does not fall (from {y[0]:.4g} to {y[-1]:.4g}), so it has no elbow")
    depth = (y[0] - y) / (y[0] - y[-1]) - (x - x[0]) / (x[-1] - x[0])
    if not depth.max() > 1e-9:
        raise ValueError("no point of the curve lies below its chord, so it has no elbow: try larger n")
    return int(x[depth.argmax()])


@dataclass(frozen=True)
class Downstream:
    """How well classifiers predict labels from the codes: one accuracy per label, beside the accuracy of guessing."""

    accuracy: float
    chance: float
    per_label: dict[str, float]
    train: int
    test: int


def classifier(kind: Classifier, seed: int) -> Any:
    """A new classifier. Gradient-boosted trees are the published choice; histograms make them much faster."""
    # Imported where they are used: loading the trees takes longer than many commands take to run.
    from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if kind == "boosted_trees":
        return GradientBoostingClassifier(random_state=seed)
    if kind == "histogram_trees":
        return HistGradientBoostingClassifier(max_iter=50, early_stopping=False, random_state=seed)
    if kind == "logistic":
        return make_pipeline(StandardScaler(), LogisticRegression(solver="newton-cholesky", max_iter=1000))
    raise ValueError(f"classifier is 'boosted_trees', 'histogram_trees' or 'logistic'; got {kind!r}")


def downstream_accuracy(
    representation: Representation,
    kind: Classifier = "histogram_trees",
    train: int = 10_000,
    test: int = 5_000,
    seed: int = 0,
) -> Downstream:
    """Mean test accuracy of classifiers, one per discrete factor, on the mean representation.

    Uses ``train`` and ``test`` examples, or two thirds and one third of all if there are fewer (Bonheme 2023, section
    8.4.1).
    """
    labels = [j for j, factor in enumerate(representation.factor_info) if factor.size > 1]
    if representation.factors is None or not labels:
        raise ValueError("downstream accuracy needs a world with discrete factors: this one has none")
    order = np.random.default_rng(seed).permutation(representation.count)
    if train + test > len(order):
        train, test = len(order) * 2 // 3, len(order) - len(order) * 2 // 3
    fitted, held = order[:train], order[train : train + test]
    scores: dict[str, float] = {}
    for j in labels:
        y = representation.factors[:, j].astype(np.int64)
        if len(np.unique(y[fitted])) < 2:
            raise ValueError(f"{representation.factor_info[j].name!r} has only one value in the examples: use more")
        model = classifier(kind, seed).fit(representation.mean[fitted], y[fitted])
        scores[representation.factor_info[j].name] = float(model.score(representation.mean[held], y[held]))
    chance = random_accuracy(representation.factors[:, labels])
    return Downstream(float(np.mean(list(scores.values()))), chance, scores, train, test)


@dataclass(frozen=True)
class CurvePoint:
    """One fully trained model on the curves."""

    objective: str
    latents: int
    seed: int
    reconstruction: float
    accuracy: float | None
    """None for a world without discrete factors."""
    chance: float | None
    spi: float
    """Similarity preservation: 0 is perfect."""
    seconds: float


def elbow_curves(
    config: RunConfig,
    ns: Sequence[int],
    seeds: Sequence[int] = (0,),
    kinds: Sequence[Objective] = (),
    kind: Classifier = "histogram_trees",
    examples: int = 10_000,
    tell: Callable[[CurvePoint], None] = lambda point: None,
) -> list[CurvePoint]:
    """Train every number of latents with every seed (and every objective of ``kinds``, such as a VAE and an AE)."""
    points = []
    for objective in kinds or (config.objective,):
        probe = DimensionProbe(replace(config, objective=objective), examples)
        for latents in ns:
            for seed in seeds:
                points.append(_point(probe, latents, seed, kind))
                tell(points[-1])
    return points


def _point(probe: DimensionProbe, latents: int, seed: int, kind: Classifier) -> CurvePoint:
    started = time.perf_counter()
    config = probe.at(latents, seed=seed)
    model = probe.train(config)
    rep = probe.represent(model, config)
    labelled = any(factor.size > 1 for factor in rep.factor_info)
    downstream = downstream_accuracy(rep, kind, seed=seed) if labelled else None
    shown = rep.mean[:SPI_EXAMPLES]
    x = to_tensor(probe.examined.observe(np.arange(len(shown)))).flatten(1).numpy()
    return CurvePoint(
        objective=objectives.name_of(config.objective),
        latents=latents,
        seed=seed,
        reconstruction=probe.evaluate(model, config)["reconstruction"],
        accuracy=downstream.accuracy if downstream else None,
        chance=downstream.chance if downstream else None,
        spi=spi(x, probe.reconstructions(model, shown)),
        seconds=time.perf_counter() - started,
    )


def mean_curve(
    points: Sequence[CurvePoint], objective: str, term: Literal["reconstruction", "accuracy", "spi"]
) -> tuple[list[int], NDArray[np.float64]]:
    """The numbers of latents of one objective's curve, and the mean of a term over seeds at each."""
    values: dict[int, list[float]] = {}
    for point in points:
        value: float | None = getattr(point, term)
        if point.objective == objective and value is not None:
            values.setdefault(point.latents, []).append(value)
    ns = sorted(values)
    return ns, np.array([np.mean(values[n]) for n in ns])
