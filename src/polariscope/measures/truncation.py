"""How the types of latent variables affect measures of a representation.

Scores of the mean and of the sampled representation, downstream accuracy, and correlations during training, each for
subsets of variable types. These experiments show that only passive and mixed variables make the two representations
differ (Spec 002, sections 8.4 and 9.5; Bonheme 2023, sections 6.4 and 6.5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from polariscope.measures.information import (
    Correction,
    FloatArray,
    as_array,
    averaged_mutual_information,
    constant_columns,
    effective_rank,
    observations,
    total_correlation,
)
from polariscope.measures.polarisation import VariableTypes

COMPARED_SUBSETS = ("all", "non-passive", "active", "passive")
PREDICTED_SUBSETS = ("all", "active", "mixed", "passive", "active+mixed", "active+passive", "mixed+passive")


@dataclass(frozen=True)
class Comparison:
    """One subset of variables: total correlation, averaged mutual information and effective rank of M and of Z.

    A score that is undefined on the subset is None, and ``notes`` say why.
    """

    subset: str
    variables: tuple[int, ...]
    samples: int
    tc_mean: float | None
    tc_sampled: float | None
    mi_mean: float | None
    mi_sampled: float | None
    erank_mean: float | None
    erank_sampled: float | None
    notes: tuple[str, ...]


def compare_mean_sampled(
    mean: ArrayLike,
    sample: ArrayLike,
    types: VariableTypes,
    subsets: Sequence[str] = COMPARED_SUBSETS,
    bins: int = 20,
    correction: Correction = "none",
) -> tuple[Comparison, ...]:
    """The truncation table: the three scores for mean and sampled representations, one row per non-empty subset.

    Without the passive variables the total correlations of M and Z should agree; with them, only that of M is high
    (Bonheme 2023, section 6.4.4; Spec 002, section 9.5). Ranges and biases are those of
    :func:`total_correlation`, :func:`averaged_mutual_information` and :func:`effective_rank`; the effective rank is
    given only for all variables, since it is not meaningful for subsets.

    >>> from polariscope.measures.polarisation import polarised_sample, variable_types
    >>> s = polarised_sample(active=3, passive=2, correlation=0.9, samples=2000)
    >>> rows = compare_mean_sampled(s.mean, s.sample, variable_types(s.var))
    >>> [row.subset for row in rows]
    ['all', 'non-passive', 'active', 'passive']
    >>> rows[0].tc_mean > 1 > 0.1 > rows[0].tc_sampled
    True
    """
    mean, sample = observations(mean, "mean"), observations(sample, "sample")
    if mean.shape != sample.shape or mean.shape[1] != len(types):
        raise ValueError(f"mean, sample and types disagree: {mean.shape}, {sample.shape} and {len(types)} variables")

    def row(subset: str, index: NDArray[np.intp]) -> Comparison:
        notes: list[str] = []

        def score(measure: Callable[[FloatArray], float], x: FloatArray, name: str) -> float | None:
            try:
                return measure(x[:, index])
            except ValueError as undefined:
                notes.append(f"{name}: {undefined}")
                return None

        def information(x: FloatArray) -> float:
            return averaged_mutual_information(x, bins, correction)

        whole = subset == "all"
        return Comparison(
            subset=subset,
            variables=tuple(index.tolist()),
            samples=len(mean),
            tc_mean=score(total_correlation, mean, "mean"),
            tc_sampled=score(total_correlation, sample, "sampled"),
            mi_mean=score(information, mean, "mean"),
            mi_sampled=score(information, sample, "sampled"),
            erank_mean=score(effective_rank, mean, "mean") if whole else None,
            erank_sampled=score(effective_rank, sample, "sampled") if whole else None,
            notes=tuple(notes),
        )

    indices = ((subset, types.subset(subset)) for subset in subsets)
    return tuple(row(subset, index) for subset, index in indices if index.size)


@dataclass(frozen=True)
class SubsetAccuracy:
    """Test accuracy of one classifier per label on one subset of variables; ``accuracy`` is the mean over labels."""

    subset: str
    variables: tuple[int, ...]
    accuracy: float
    per_label: tuple[float, ...]
    train: int
    test: int


def random_accuracy(labels: ArrayLike) -> float:
    """Expected accuracy of a uniform random classifier, averaged over label columns: mean_k 1/(number of classes).

    >>> random_accuracy([[0, 0], [1, 1], [0, 2], [1, 3]])
    0.375
    """
    return float(np.mean([1 / len(np.unique(column)) for column in _label_columns(labels).T]))


def _label_columns(labels: ArrayLike) -> NDArray[np.generic]:
    values = as_array(labels)
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or values.size == 0:
        raise ValueError(f"labels need shape (samples, labels); got {values.shape}")
    return values


def subset_accuracies(
    representation: ArrayLike,
    labels: ArrayLike,
    types: VariableTypes,
    subsets: Sequence[str] = PREDICTED_SUBSETS,
    train: int = 10_000,
    test: int = 5_000,
    folds: int = 5,
    strengths: int = 10,
    most_steps: int = 1_000,
    seed: int = 0,
) -> tuple[SubsetAccuracy, ...]:
    """Accuracy of a linear classifier for each label and subset of variables; subset ``"random"`` is a random guess.

    Logistic regression on standardised variables, one per label, its regularisation chosen by ``folds``-fold
    cross-validation over ``strengths`` values between 1e-4 and 1e4, scored on ``test`` held-out samples. Empty subsets
    are left out. Bonheme 2023, section 6.4.1 (figure 6.4); Spec 002, section 8.4.

    Range [0, 1]: the random row is the chance level (for balanced labels), 1 is perfect. On sampled representations
    passive variables should be at chance level. The standard error is about √(a(1−a)/test) per label.

    >>> from polariscope.measures.polarisation import polarised_sample, variable_types
    >>> s = polarised_sample(active=1, passive=1, samples=400)
    >>> rows = subset_accuracies(s.sample, s.mean[:, 0] > 0, variable_types(s.var), train=200, test=200, strengths=2)
    >>> [row.subset for row in rows]
    ['all', 'active', 'passive', 'active+mixed', 'active+passive', 'mixed+passive', 'random']
    >>> rows[1].accuracy > 0.9 > 0.65 > rows[2].accuracy
    True
    """
    x, targets = observations(representation, "representation"), _label_columns(labels)
    if len(targets) != len(x) or x.shape[1] != len(types):
        raise ValueError(
            f"representation, labels and types disagree: {x.shape}, {targets.shape} and {len(types)} variables"
        )
    if train < 2 * folds or test < 1 or train + test > len(x):
        raise ValueError(
            f"train needs 2 samples per fold, train and test at most {len(x)} samples together; got {train} and {test}"
        )
    order = np.random.default_rng(seed).permutation(len(x))
    fit, held = order[:train], order[train : train + test]
    rare = [column for column, y in enumerate(targets[fit].T) if len(np.unique(y)) < 2]
    if rare:
        raise ValueError(f"label columns {rare} have only one class among the {train} training samples: drop them")
    search = GridSearchCV(
        make_pipeline(StandardScaler(), LogisticRegression(solver="newton-cholesky", max_iter=most_steps)),
        {"logisticregression__C": np.logspace(-4, 4, strengths)},
        cv=KFold(folds, shuffle=True, random_state=seed),
        error_score="raise",
    )
    fitted: dict[tuple[int, ...], tuple[float, ...]] = {}  # subsets often coincide when a type is absent

    def row(subset: str, variables: tuple[int, ...]) -> SubsetAccuracy:
        if variables not in fitted:
            chosen = x[:, variables]
            fitted[variables] = tuple(
                float(search.fit(chosen[fit], y[fit]).score(chosen[held], y[held])) for y in targets.T
            )
        scores = fitted[variables]
        return SubsetAccuracy(subset, variables, float(np.mean(scores)), scores, train, test)

    indices = ((subset, tuple(types.subset(subset).tolist())) for subset in subsets)
    guess = tuple(random_accuracy(y) for y in targets.T)
    return (
        *(row(subset, variables) for subset, variables in indices if variables),
        SubsetAccuracy("random", (), float(np.mean(guess)), guess, train, test),
    )


@dataclass(frozen=True)
class CorrelationTrack:
    """Correlations between mean variables at each snapshot, shape (snapshots, variables, variables)."""

    correlations: FloatArray
    threshold: float

    @property
    def pair_counts(self) -> NDArray[np.int64]:
        """For each pair of variables, the number of snapshots in which |corr| exceeds the threshold; diagonal 0."""
        counts: NDArray[np.int64] = np.asarray((np.abs(self.correlations) > self.threshold).sum(axis=0))
        np.fill_diagonal(counts, 0)
        return counts

    @property
    def counts(self) -> NDArray[np.int64]:
        """For each variable, how many correlations above the threshold it had with others, over all snapshots."""
        return np.asarray(self.pair_counts.sum(axis=1))

    def of(self, variable: int) -> FloatArray:
        """Correlation of one variable with all, (snapshots, variables)."""
        return np.asarray(self.correlations[:, variable])


def track_correlations(snapshots: Iterable[ArrayLike], threshold: float = 0.2) -> CorrelationTrack:
    """Correlations of the mean representation over a sequence of training snapshots.

    Counts |corr| > ``threshold`` for each variable: passive variables should have the highest counts, since the loss
    does not constrain their means (Bonheme 2023, section 6.5, figures 6.10-6.11; Spec 002, section 9.5). Range of a
    correlation [-1, 1], 0 for no linear relation; with h samples it fluctuates by about 1/√h around 0.

    >>> x = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    >>> track_correlations([x, x @ [[1.0, 0.6], [0.0, 0.8]]]).counts.tolist()
    [1, 1]
    """
    if not 0 <= threshold < 1:
        raise ValueError(f"threshold needs to lie in [0, 1); got {threshold}")
    matrices: list[FloatArray] = []
    for number, snapshot in enumerate(snapshots):
        x = observations(snapshot, f"snapshot {number}")
        constant = constant_columns(x)
        if constant.size:
            raise ValueError(
                f"snapshot {number} has constant columns {constant.tolist()}: their correlation is undefined"
            )
        if matrices and matrices[0].shape[0] != x.shape[1]:
            raise ValueError(
                f"snapshot {number} has {x.shape[1]} variables, the first had {matrices[0].shape[0]}: they must agree"
            )
        matrices.append(np.atleast_2d(np.corrcoef(x, rowvar=False)))
    if not matrices:
        raise ValueError("tracking correlations needs at least one snapshot; got none")
    return CorrelationTrack(np.stack(matrices), threshold)
