"""Disentanglement, completeness and informativeness, from the importance of each latent for predicting each factor.

Eastwood and Williams 2018; Spec 001a, section 5.6; Spec 003, section 3.4. Importances depend on the probe more than on
anything else, so every result names its probe. Published scores use scikit-learn's gradient boosting. The default probe
is a faster implementation of the same boosting. Scores of a single tree or a forest are not comparable with these.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, get_args
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import xlogy
from scipy.stats import rankdata
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.metrics import r2_score
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from polariscope.measures.boosting import ROUNDS, boosted_together
from polariscope.measures.information import FloatArray
from polariscope.measures.measure import FactorMeasure, Invariance, measures
from polariscope.measures.score import (
    TEST,
    TRAIN,
    Score,
    as_labels,
    codes_and_factors,
    paired,
    split,
    split_words,
)
from polariscope.registry import nearest
from polariscope.representation import Representation

Probe = Literal["boosting", "gbt", "tree", "forest", "extra_trees"]
Component = Literal["disentanglement", "completeness", "informativeness"]

PROBES: tuple[str, ...] = get_args(Probe)
QUICK_ROUNDS = 5
"""Rounds of boosting for chance levels and intervals. On codes without information (300 and 3,000 examples),
disentanglement and completeness were 0.03 to 0.04 with 5 rounds and 0.01 with 100; the spread over halves was the
same."""
COMPARABLE = ("boosting", "gbt")
"""Probes whose scores are comparable with published ones."""

FROM_SCIKIT: dict[str, tuple[type[Any], type[Any], dict[str, Any]]] = {
    "gbt": (GradientBoostingClassifier, GradientBoostingRegressor, {}),
    "tree": (DecisionTreeClassifier, DecisionTreeRegressor, {}),
    "forest": (RandomForestClassifier, RandomForestRegressor, {"max_features": None, "min_samples_leaf": 5}),
    "extra_trees": (ExtraTreesClassifier, ExtraTreesRegressor, {"max_features": None, "min_samples_leaf": 5}),
}
"""Classifier, regressor (for continuous factors) and settings. By default a split considers only √latents of the
latents, which makes every latent seem important; hence ``max_features=None``."""


@dataclass(frozen=True, eq=False)
class DCIScores:
    """The three scores of one importance table."""

    disentanglement: Score
    completeness: Score
    informativeness: Score

    def part(self, name: str) -> Score:
        parts = {
            "disentanglement": self.disentanglement,
            "completeness": self.completeness,
            "informativeness": self.informativeness,
        }
        if name not in parts:
            raise ValueError(f"DCI has no part {name!r}: {nearest(name, parts)}")
        return parts[name]


def disentanglement_of(importance: ArrayLike) -> tuple[float, FloatArray]:
    """Σ_i ρ_i D_i and the D_i of a (latents, factors) table of importances.

    D_i = 1 − H(R_i / Σ R_i) with logarithms to the base of the number of factors, ρ_i = Σ_k R_ik / ΣR. Range [0, 1]:
    1 if each latent is important for one factor only, 0 if each is equally important for all factors or if no latent is
    important. Spec 001a, section 5.6.

    >>> disentanglement_of(np.eye(3))[0], round(disentanglement_of(np.ones((4, 3)))[0], 9)
    (1.0, 0.0)
    """
    r = np.asarray(importance, dtype=np.float64)
    if r.ndim != 2 or r.shape[1] < 2 or not np.all(r >= 0):
        raise ValueError(f"importance needs non-negative values (latents, at least 2 factors); got shape {r.shape}")
    total = r.sum(axis=1)
    share = np.where(total[:, None] > 0, r / np.where(total > 0, total, 1.0)[:, None], 1 / r.shape[1])
    per_latent = np.clip(1 + xlogy(share, share).sum(axis=1) / np.log(r.shape[1]), 0.0, 1.0)
    return float(per_latent @ total / total.sum()) if total.sum() > 0 else 0.0, per_latent


def completeness_of(importance: ArrayLike) -> tuple[float, FloatArray]:
    """Σ_k ρ_k C_k and the C_k: the same as :func:`disentanglement_of` with latents and factors exchanged.

    Range [0, 1]: 1 if each factor is predicted from one latent, 0 if equally from all.

    >>> completeness_of([[0.5, 0.0], [0.5, 0.0], [0.0, 1.0]])[1].round(3).tolist()
    [0.369, 1.0]
    """
    return disentanglement_of(np.asarray(importance, dtype=np.float64).T)


def dci(
    codes: ArrayLike,
    factors: ArrayLike,
    probe: Probe = "boosting",
    seed: int = 0,
    train: int = TRAIN,
    test: int = TEST,
    rounds: int | None = None,
) -> DCIScores:
    """Disentanglement, completeness (see the two functions above) and informativeness of a probe's importances.

    Eastwood and Williams 2018; Spec 001a, section 5.6. Published figures use scikit-learn's gradient boosting, here the
    probe ``"gbt"``. ``"boosting"`` is a much faster implementation of the same definition
    (:mod:`~polariscope.measures.boosting`): on 5,000 codes of each of six trained models all three scores differed by
    at most 0.007, and for one model at the published sample size by at most 0.003 (``docs/speed.md``). ``"tree"`` grows
    one tree per factor, best split first, with 64 leaves or twice the number of the factor's values, whichever is
    larger. It is faster still, but its scores differ by 0.1 and more.
    The default number of ``rounds`` is the published 100. Continuous factors are regressed. Informativeness is the
    accuracy on held-out examples; for continuous factors it is R², or 0 if R² is negative.

    Range [0, 1] each. All three are 1 if each factor is a function of its own latent. Known bias: noise latents
    get some importance, so the scores decrease with their number. The bias is larger for larger trees and for fewer
    samples.

    >>> factors = np.stack(np.unravel_index(np.arange(600) % 60, (3, 4, 5)), axis=1)
    >>> scores = dci(factors[:, ::-1], factors)
    >>> [round(scores.part(p).value, 6) for p in ("disentanglement", "completeness", "informativeness")]
    [1.0, 1.0, 1.0]
    """
    z, v = paired(codes, factors, least_factors=2)
    if z.shape[1] < 2:
        raise ValueError("DCI compares latents with each other and needs at least 2; got 1")
    if probe not in PROBES:
        raise ValueError(f"there is no probe {probe!r}: {nearest(probe, PROBES)}")
    labels = as_labels(v)
    rows, held = split(len(z), seed, train, test)
    most = int(max(labels.sizes[~labels.continuous], default=0))
    if min(len(rows), len(held)) < 2 * most:
        raise ValueError(
            f"DCI needs at least 2 examples for each value of a factor in both parts of its split; a factor has {most} "
            f"values, and the parts have {len(rows)} and {len(held)} examples"
        )
    if probe == "tree":  # ranks: a tree sees nothing else, and scikit-learn's trees call values 1e-7 apart equal
        z = rankdata(z, method="dense", axis=0)
    targets = [v[:, k] if labels.continuous[k] else labels.values[:, k] for k in range(v.shape[1])]
    probed = _probed(probe, z[rows], [t[rows] for t in targets], z[held], labels.continuous.tolist(), seed, rounds)
    accuracy = np.array(
        [
            max(r2_score(target[held], guess), 0.0) if continuous else np.mean(guess == target[held])
            for target, continuous, (_, guess) in zip(targets, labels.continuous, probed, strict=True)
        ]
    )
    importance = np.stack([column for column, _ in probed], axis=1)
    settings = {
        "probe": probe,
        "seed": seed,
        "train": len(rows),
        "test": len(held),
        "regressed_factors": np.flatnonzero(labels.continuous).tolist(),
    }
    if rounds is not None:
        settings["rounds"] = rounds
    protocol = f"{_probe_words(probe, rounds)}, {split_words(len(rows), len(held))}"
    return _scores(importance, accuracy, len(rows) + len(held), settings, protocol)


def _probe_words(probe: str, rounds: int | None) -> str:
    several = f"of {ROUNDS if rounds is None else rounds} rounds"
    if probe in COMPARABLE:
        return f"gradient boosting {several}" + (" by scikit-learn" if probe == "gbt" else "")
    trees = {"tree": "one tree for each factor", "forest": "random forests", "extra_trees": "extra trees"}[probe]
    return f"{trees} (published: gradient boosting)"


def _probed(
    probe: str,
    z: FloatArray,
    targets: list[NDArray[Any]],
    held: FloatArray,
    continuous: list[bool],
    seed: int,
    rounds: int | None,
) -> list[tuple[FloatArray, NDArray[Any]]]:
    """Importance of each latent, and the prediction from codes ``held``, for each target."""
    if probe == "boosting":
        return boosted_together(z, targets, held, continuous, rounds)
    classifier, regressor, settings = FROM_SCIKIT[probe]
    importances = []
    for target, regressed in zip(targets, continuous, strict=True):
        leaves = max(64, 0 if regressed else 2 * len(np.unique(target)))
        own = {"max_leaf_nodes": leaves} if probe == "tree" else settings
        own = own | {"n_estimators": rounds} if probe == "gbt" and rounds is not None else own
        model = (regressor if regressed else classifier)(random_state=seed, **own).fit(z, target)
        own_importances = np.maximum(model.feature_importances_, 0)  # by rounding, -5e-17 in older versions
        importances.append((own_importances, model.predict(held)))
    return importances


def _scores(
    importance: FloatArray, accuracy: FloatArray, samples: int, settings: dict[str, Any], protocol: str
) -> DCIScores:
    disentangled, per_latent = disentanglement_of(importance)
    complete, per_factor = completeness_of(importance)
    column = importance.sum(axis=0)
    by_factor = per_latent @ importance / np.where(column > 0, column, 1.0)
    return DCIScores(
        Score(disentangled, by_factor, importance, samples, settings | {"per_latent": per_latent}, protocol),
        Score(complete, per_factor, importance, samples, settings, protocol),
        Score(float(accuracy.mean()), accuracy, importance, samples, settings, protocol),
    )


_KNOWN: WeakKeyDictionary[Representation, dict[tuple[Any, ...], DCIScores]] = WeakKeyDictionary()
"""The scores of each representation in memory: three measures share one table of importances."""


def _scores_of(representation: Representation, probe: Probe, seed: int, rounds: int | None) -> DCIScores:
    known = _KNOWN.setdefault(representation, {})
    if (probe, seed, rounds) not in known:
        known[probe, seed, rounds] = dci(*codes_and_factors(representation), probe, seed, rounds=rounds)
    return known[probe, seed, rounds]


@measures.register("dci")
@dataclass(frozen=True)
class DCI(FactorMeasure):
    """Is each latent important for one factor only? From importances of gradient boosting, 0 to 1."""

    part: Component = "disentanglement"
    probe: Probe = "boosting"
    seed: int = 0
    rounds: int | None = None

    title: ClassVar[str] = "DCI disentanglement (boosting)"
    invariant_to: ClassVar[tuple[Invariance, ...]] = ("scale", "isotropic_scale", "translation")
    permutations: ClassVar[int] = 5

    def __post_init__(self) -> None:
        # Scores of different probes are not comparable: a table must show each with the name of its probe.
        object.__setattr__(self, "title", f"DCI {self.part} ({self.probe})")

    def __call__(self, representation: Representation) -> Score:
        return _scores_of(representation, self.probe, self.seed, self.rounds).part(self.part)

    def quick(self) -> DCI:
        """The same with a few rounds of boosting."""
        rounds = QUICK_ROUNDS if self.rounds is None else min(self.rounds, QUICK_ROUNDS)
        return replace(self, rounds=rounds, probe="boosting" if self.probe in COMPARABLE else self.probe)

    def published(self) -> DCI:
        """By scikit-learn's gradient boosting, which takes minutes."""
        return replace(self, probe="gbt")


@measures.register("dci-completeness")
@dataclass(frozen=True)
class DCICompleteness(DCI):
    """Is each factor predicted from one latent only? From importances of gradient boosting, 0 to 1."""

    part: Component = "completeness"


@measures.register("dci-informativeness")
@dataclass(frozen=True)
class DCIInformativeness(DCI):
    """Accuracy of gradient boosting on all latents on held-out examples; R² for continuous factors."""

    part: Component = "informativeness"
