"""The BetaVAE and FactorVAE scores: fix one factor, vary the others, and predict from the codes which factor was fixed.

Higgins et al. 2017, Kim and Mnih 2018; Spec 001a, sections 5.2 and 5.3; Spec 003, section 3.5. Both need codes of
examples that share the value of a factor. A *source* provides them: a given sample, in which they are looked up, or an
encoder of a whole factor grid, as published.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.linear_model import LogisticRegression

from polariscope.measures.information import FloatArray, as_array, observations
from polariscope.measures.measure import FactorMeasure, Invariance, measures
from polariscope.measures.score import (
    TEST,
    TRAIN,
    IntArray,
    Score,
    Seed,
    as_labels,
    codes_and_factors,
    paired,
    split_words,
)
from polariscope.representation import Representation

SMALL = 0.1
"""Differences of codes below which the penalty of the beta-VAE score's regression shrinks its weights."""
BLOCK = 1 << 22
"""Numbers gathered at a time."""


class Source(Protocol):
    """Provides codes of examples that share the value of a factor; ``count`` is the number of factors."""

    @property
    def count(self) -> int: ...

    def sample(self, samples: int, rng: np.random.Generator) -> FloatArray:
        """Codes (samples, latents) of random examples."""

    def pairs(self, factor: int, shape: tuple[int, int], rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Two arrays of codes (*shape, latents). The two examples of a pair have the same value of ``factor``."""

    def groups(self, factor: int, shape: tuple[int, int], rng: np.random.Generator) -> FloatArray:
        """Codes (votes, batch, latents); the examples of a vote have the same value of ``factor``."""


@dataclass(frozen=True, eq=False)
class FromSample:
    """Codes and factors of a sample: examples that share a value are looked up and drawn with replacement.

    Values are drawn as often as they occur in the sample. A value that only one example has is skipped. Continuous
    factors are matched within 20 bins of equal width.
    """

    codes: ArrayLike
    factors: ArrayLike

    @cached_property
    def _arrays(self) -> tuple[FloatArray, IntArray]:
        z, v = paired(self.codes, self.factors, least_factors=2)
        return z, as_labels(v).values

    @property
    def count(self) -> int:
        return int(self._arrays[1].shape[1])

    def sample(self, samples: int, rng: np.random.Generator) -> FloatArray:
        z = self._arrays[0]
        return z if samples >= len(z) else z[rng.choice(len(z), samples, replace=False)]

    def pairs(self, factor: int, shape: tuple[int, int], rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        first = self._anchors(factor, shape, rng)
        return self._arrays[0][first], self._arrays[0][self._partners(factor, first, rng)]

    def groups(self, factor: int, shape: tuple[int, int], rng: np.random.Generator) -> FloatArray:
        anchors = self._anchors(factor, (shape[0], 1), rng)
        return np.asarray(self._arrays[0][self._partners(factor, np.broadcast_to(anchors, shape), rng)])

    @cached_property
    def _members(self) -> list[tuple[IntArray, IntArray, IntArray, IntArray]]:
        """For each factor: rows sorted by its value, where each value starts, its count, and the rows whose value
        another row has, too."""
        out = []
        for k, column in enumerate(self._arrays[1].T):
            counts = np.bincount(column)
            shared = np.flatnonzero(counts[column] > 1)
            if not shared.size:
                raise ValueError(f"no two examples share a value of factor {k}: leave it out, or use more samples")
            out.append((np.argsort(column, kind="stable"), np.cumsum(counts) - counts, counts, shared))
        return out

    def _anchors(self, factor: int, shape: tuple[int, int], rng: np.random.Generator) -> IntArray:
        return np.asarray(rng.choice(self._members[factor][3], shape))

    def _partners(self, factor: int, rows: IntArray, rng: np.random.Generator) -> IntArray:
        """For each row, a random row with the same value."""
        order, start, counts, _ = self._members[factor]
        value = self._arrays[1][rows, factor]
        return np.asarray(order[start[value] + (rng.random(rows.shape) * counts[value]).astype(np.int64)])


@dataclass(frozen=True, eq=False)
class FromEncoder:
    """The published protocol: ``encode`` turns positions (n, factors) on the grid of ``sizes`` into codes (n, latents).

    For a world and a model, ``encode`` is ``lambda positions: model.encode(world.render(positions))``.
    """

    encode: Callable[[IntArray], ArrayLike]
    sizes: Sequence[int]

    def __post_init__(self) -> None:
        if len(self.sizes) < 2 or min(self.sizes) < 2:
            raise ValueError(f"sizes needs at least 2 factors of at least 2 values each; got {list(self.sizes)}")

    @property
    def count(self) -> int:
        return len(self.sizes)

    def sample(self, samples: int, rng: np.random.Generator) -> FloatArray:
        return self._codes(self._positions((samples,), rng))

    def pairs(self, factor: int, shape: tuple[int, int], rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        first, second = self._positions(shape, rng), self._positions(shape, rng)
        second[..., factor] = first[..., factor]
        return self._codes(first), self._codes(second)

    def groups(self, factor: int, shape: tuple[int, int], rng: np.random.Generator) -> FloatArray:
        positions = self._positions(shape, rng)
        positions[..., factor] = positions[:, :1, factor]
        return self._codes(positions)

    def _positions(self, shape: tuple[int, ...], rng: np.random.Generator) -> IntArray:
        return rng.integers(0, self.sizes, size=(*shape, len(self.sizes)))

    def _codes(self, positions: IntArray) -> FloatArray:
        flat = positions.reshape(-1, positions.shape[-1])
        codes = observations(as_array(self.encode(flat)), "what encode returned")
        if len(codes) != len(flat):
            raise ValueError(f"encode returned {len(codes)} codes for {len(flat)} positions: it needs one for each")
        return codes.reshape(*positions.shape[:-1], -1)


def beta_vae_score(
    codes: ArrayLike,
    factors: ArrayLike,
    *,
    batch: int = 64,
    train: int = TRAIN,
    test: int = TEST,
    penalty: float = 1.0,
    seed: Seed = 0,
) -> Score:
    """Accuracy of a linear classifier that predicts, from the mean |z − z'| of ``batch`` pairs, the factor they share.

    Higgins et al. 2017, in the multi-class form of Spec 001a, section 5.2: multinomial logistic regression with L2
    ``penalty`` C = 1, accuracy on ``test`` new points. Pairs are looked up in the sample, see :class:`FromSample`;
    :func:`beta_vae_score_from` takes them from an encoder instead.
    Range [0, 1]: 1/factors is chance; 1 if the shared factor is always predicted. Blind spot: the classifier can invert
    a rotation, so a random rotation of a perfect code still scores about 0.9, and one entangled factor may not lower
    the score. The table has the mean |z − z'| of each latent for each fixed factor.

    >>> factors = np.stack(np.unravel_index(np.arange(600) % 60, (3, 4, 5)), axis=1)
    >>> beta_vae_score(factors, factors, train=300, test=200).value
    1.0
    """
    return beta_vae_score_from(
        FromSample(codes, factors), batch=batch, train=train, test=test, penalty=penalty, seed=seed
    )


def beta_vae_score_from(
    source: Source, *, batch: int = 64, train: int = TRAIN, test: int = TEST, penalty: float = 1.0, seed: Seed = 0
) -> Score:
    """:func:`beta_vae_score` with pairs of any source."""
    rng = np.random.default_rng(seed)

    def feature(factor: int, votes: int) -> FloatArray:
        first, second = source.pairs(factor, (votes, batch), rng)
        return np.asarray(np.abs(first - second).mean(axis=1))

    features, held = _votes(source, feature, batch, train + test, rng)
    model = LogisticRegression(C=penalty, solver="newton-cholesky", max_iter=1000)
    model.fit(features[:train], held[:train])
    right = model.predict(features[train:]) == held[train:]
    table = np.stack([features[held == k].mean(axis=0) for k in range(source.count)], axis=1)
    settings = {"probe": "logistic regression", "batch": batch, "train": train, "test": test, "seed": seed}
    protocol = f"logistic regression, {split_words(train, test, f'means of {batch} pairs')}"
    if features.max() < SMALL:
        protocol += "; the codes vary so little that its penalty decides: rescale them to a variance of about 1"
    per_factor = _per_factor(right, held[train:], source.count)
    return Score(float(right.mean()), per_factor, table, train + test, settings, protocol)


def factor_vae_score(
    codes: ArrayLike,
    factors: ArrayLike,
    *,
    batch: int = 64,
    train: int = TRAIN,
    test: int = TEST,
    threshold: float = 0.05,
    prune: Literal["std", "var"] = "std",
    seed: Seed = 0,
) -> Score:
    """How well the latent that varies least in a batch predicts which factor the batch shares.

    Kim and Mnih 2018; Spec 001a, section 5.3. The vote of a batch of ``batch`` examples is the latent with the least
    variance in it, relative to its variance in all examples. Each latent predicts the factor for which it got most of
    the ``train`` votes; the score is the accuracy on ``test`` new votes. Latents with a standard deviation (or
    variance, ``prune="var"``) below ``threshold`` are left out; if all are, the score is 0. Batches are looked up in
    the sample, see :class:`FromSample`; :func:`factor_vae_score_from` takes them from an encoder instead.
    Range [0, 1]: about 1/factors is chance; 1 if the shared factor is always predicted. Blind spot: with more latents
    than factors several latents may predict one factor, and a randomly rotated code still scores about 0.8.
    The table has the numbers of training votes.

    >>> factors = np.stack(np.unravel_index(np.arange(600) % 60, (3, 4, 5)), axis=1)
    >>> factor_vae_score(factors, factors, train=300, test=200).value
    1.0
    """
    return factor_vae_score_from(
        FromSample(codes, factors),
        batch=batch,
        train=train,
        test=test,
        threshold=threshold,
        prune=prune,
        seed=seed,
    )


def factor_vae_score_from(
    source: Source,
    *,
    batch: int = 64,
    train: int = TRAIN,
    test: int = TEST,
    threshold: float = 0.05,
    prune: Literal["std", "var"] = "std",
    seed: Seed = 0,
) -> Score:
    """:func:`factor_vae_score` with batches of any source."""
    if prune not in ("std", "var"):
        raise ValueError(f"prune is 'std' or 'var'; got {prune!r}")
    if batch < 2:
        raise ValueError(f"a variance needs a batch of at least 2 examples; got {batch}")
    rng = np.random.default_rng(seed)
    spread = source.sample(TRAIN, rng).var(axis=0, ddof=1)
    # A latent that does not vary at all would divide by 0, whatever the threshold.
    active = np.flatnonzero(((np.sqrt(spread) if prune == "std" else spread) >= threshold) & (spread > 0))
    settings = {"batch": batch, "train": train, "test": test, "seed": seed, "threshold": threshold, "prune": prune}
    settings["pruned"] = np.setdiff1d(np.arange(len(spread)), active).tolist()
    protocol = f"majority votes, {split_words(train, test, f'votes of {batch} examples')}"
    if settings["pruned"]:
        kind = "standard deviation" if prune == "std" else "variance"
        protocol += f"; {len(spread) - active.size} of {len(spread)} latents left out, {kind} below {threshold:g}"
    if not active.size:
        empty = np.zeros((len(spread), source.count))
        return Score(0.0, np.zeros(source.count), empty, train + test, settings, protocol)

    def vote(factor: int, votes: int) -> FloatArray:
        return np.asarray(source.groups(factor, (votes, batch), rng).var(axis=1, ddof=1))

    local, held = _votes(source, vote, batch, train + test, rng)
    least = active[np.argmin(local[:, active] / spread[active], axis=1)]
    table = np.zeros((len(spread), source.count))
    np.add.at(table, (least[:train], held[:train]), 1.0)
    right = table.argmax(axis=1)[least[train:]] == held[train:]
    per_factor = _per_factor(right, held[train:], source.count)
    return Score(float(right.mean()), per_factor, table, train + test, settings, protocol)


def _votes(
    source: Source,
    feature: Callable[[int, int], FloatArray],
    batch: int,
    votes: int,
    rng: np.random.Generator,
) -> tuple[FloatArray, IntArray]:
    """One row of ``feature`` (votes, latents) for each vote, and its fixed factor, which is drawn at random."""
    if batch < 1 or votes < 2:
        raise ValueError(f"a score by votes needs a batch and votes to train and test on; got {batch} and {votes}")
    held = rng.integers(source.count, size=votes)
    rows: FloatArray | None = None
    for factor in range(source.count):
        where = np.flatnonzero(held == factor)
        step = max(1, BLOCK // (batch * 16))
        for part in (where[i : i + step] for i in range(0, len(where), step)):
            values = feature(factor, len(part))
            rows = np.empty((votes, values.shape[1])) if rows is None else rows
            rows[part] = values
    assert rows is not None
    return rows, held


def _per_factor(right: NDArray[np.bool_], held: IntArray, count: int) -> FloatArray:
    seen = np.bincount(held, minlength=count)
    return np.asarray(np.bincount(held, right, count) / np.maximum(seen, 1))


@dataclass(frozen=True)
class InterventionScore(FactorMeasure):
    """A score of how well the fixed factor is predicted; a subclass defines ``score``."""

    batch: int = 64
    seed: int = 0
    train: int = 2000
    test: int = 1000

    invariant_to: ClassVar[tuple[Invariance, ...]] = ("permutation", "sign", "translation")
    score: ClassVar[Callable[..., Score]]

    def __call__(self, representation: Representation) -> Score:
        codes, factors = codes_and_factors(representation)
        return type(self).score(codes, factors, batch=self.batch, train=self.train, test=self.test, seed=self.seed)

    def quick(self) -> InterventionScore:
        return type(self)(self.batch, self.seed)

    def published(self) -> InterventionScore:
        return replace(self, train=TRAIN, test=TEST)


@measures.register("beta-vae-score")
@dataclass(frozen=True)
class BetaVAEScore(InterventionScore):
    """Can a linear classifier predict from differences of codes which factor was fixed? From chance to 1."""

    title: ClassVar[str] = "BetaVAE score"
    permutations: ClassVar[int] = 5
    halves: ClassVar[int] = 3
    score: ClassVar[Callable[..., Score]] = staticmethod(beta_vae_score)


@measures.register("factor-vae-score")
@dataclass(frozen=True)
class FactorVAEScore(InterventionScore):
    """Does the least varying latent predict which factor was fixed? From chance to 1."""

    title: ClassVar[str] = "FactorVAE score"
    score: ClassVar[Callable[..., Score]] = staticmethod(factor_vae_score)
