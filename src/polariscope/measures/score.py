"""A disentanglement score: one number, with the value for each factor and the table behind it.

Every score compares codes ``(samples, latents)`` with the true factors ``(samples, factors)`` of the data. Both are
plain arrays; the grid of factor combinations need not be complete. :func:`as_labels` decides for all scores what the
values of a factor are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.measures.information import FloatArray, as_array, discretise, observations
from polariscope.measures.measure import Undefined
from polariscope.representation import Representation

IntArray = NDArray[np.int64]
Seed = int | np.random.Generator

TRAIN, TEST = 10_000, 5_000
"""Published sample sizes of the scores that train a probe."""


@dataclass(frozen=True, eq=False)
class Score:
    """A score and what it was computed on.

    ``table`` (latents, factors) has the numbers from which the score is computed: mutual information, accuracies,
    importances or correlations. ``per_factor`` has the score of each factor; its mean is ``value`` if the score is a
    mean over factors.
    """

    value: float
    per_factor: FloatArray
    table: FloatArray
    samples: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    protocol: str = ""
    """Which variant of the published score was computed, in words: probe, bins, samples."""

    def __float__(self) -> float:
        return self.value


@dataclass(frozen=True, eq=False)
class Labels:
    """Factors as labels 0, 1, ... (samples, factors), the number of labels of each, and which factors were binned."""

    values: IntArray
    sizes: IntArray
    continuous: NDArray[np.bool_]


def paired(codes: ArrayLike, factors: ArrayLike, least_factors: int = 1) -> tuple[FloatArray, NDArray[Any]]:
    """Codes and factors as (samples, latents) and (samples, factors) with the same samples; other input is refused."""
    z, v = observations(codes, "codes"), as_array(factors)
    v = v[:, None] if v.ndim == 1 else v
    if v.ndim != 2 or v.shape[1] == 0 or v.dtype.kind not in "iubf":
        raise ValueError(f"factors need numbers of shape (samples, factors); got {v.dtype} of shape {v.shape}")
    if len(v) != len(z):
        raise ValueError(f"codes and factors need the same samples; got {len(z)} and {len(v)}")
    if v.dtype.kind == "f" and not np.isfinite(v).all():
        raise ValueError("factors have NaN or infinite values: remove those samples")
    if v.shape[1] < least_factors:
        raise ValueError(f"this score compares factors with each other and needs {least_factors}; got {v.shape[1]}")
    constant = np.flatnonzero((v == v[0]).all(axis=0))
    if constant.size:
        raise ValueError(f"factors {constant.tolist()} have only one value in this sample: leave them out")
    return z, v


def is_continuous(factors: NDArray[Any]) -> NDArray[np.bool_]:
    """Which columns are continuous: floats of which fewer than five examples on average share a value, and whole
    numbers of which fewer than two do.

    >>> is_continuous(np.column_stack([np.linspace(0, 1, 100), np.arange(100) % 4 / 4])).tolist()
    [True, False]
    >>> is_continuous(np.column_stack([7 * np.arange(100), np.arange(100) % 32])).tolist()
    [True, False]
    """
    distinct = 1 + np.count_nonzero(np.diff(np.sort(factors, axis=0), axis=0), axis=0)
    return np.asarray(distinct > len(factors) / (5 if factors.dtype.kind == "f" else 2))


def as_labels(factors: NDArray[Any], bins: int = 20) -> Labels:
    """Each factor's values numbered from 0; continuous ones (see :func:`is_continuous`) in ``bins`` equal widths.

    >>> as_labels(np.array([[0.5, 7], [0.25, 7], [0.5, 9]] * 5)).values[:3].tolist()
    [[1, 0], [0, 0], [1, 1]]
    """
    continuous = is_continuous(factors)
    values, sizes = np.empty(factors.shape, dtype=np.int64), np.empty(factors.shape[1], dtype=np.int64)
    for k, column in enumerate(factors.T):
        seen, values[:, k] = np.unique(
            discretise(column[:, None], bins)[:, 0] if continuous[k] else column, return_inverse=True
        )
        sizes[k] = len(seen)
    return Labels(values, sizes, continuous)


def split(samples: int, seed: Seed, train: int = TRAIN, test: int = TEST) -> tuple[IntArray, IntArray]:
    """Random rows to train and to test a probe: of the given sizes, or fewer in the same proportion.

    >>> [len(part) for part in split(20_000, 0)], [len(part) for part in split(30, 0)]
    ([10000, 5000], [20, 10])
    """
    if train < 1 or test < 1:
        raise ValueError(f"a split needs at least 1 sample on either side; got {train} and {test}")
    share = min(1.0, samples / (train + test))
    rows = np.random.default_rng(seed).permutation(samples)
    first = int(train * share)
    second = min(int(np.ceil(test * share)), samples - first)
    if first < 1 or second < 1:
        raise ValueError(f"{samples} samples are too few to train a probe on one part and score it on another")
    return rows[:first], rows[first : first + second]


def split_words(train: int, test: int, unit: str = "examples") -> str:
    """Words for the sample sizes of a probe, with the published sizes if these differ.

    >>> split_words(10_000, 5_000)
    'trained on 10,000 examples and tested on 5,000'
    >>> split_words(2_000, 1_000, "votes")
    'trained on 2,000 votes and tested on 1,000 (published: 10,000 and 5,000)'
    """
    published = "" if (train, test) == (TRAIN, TEST) else f" (published: {TRAIN:,} and {TEST:,})"
    return f"trained on {train:,} {unit} and tested on {test:,}{published}"


def binned_words(samples: int, bins: int, correction: str, binned: Sequence[int]) -> str:
    """Words for the binning of a score.

    >>> binned_words(10_000, 20, "none", [])
    '10,000 examples, latents in 20 bins of equal width'
    """
    words = f"{samples:,} examples, latents {'and continuous factors ' if binned else ''}in {bins} bins of equal width"
    return words if correction == "none" else f"{words}, corrected by {correction.replace('_', '-')}"


def top_two_gap(table: FloatArray) -> FloatArray:
    """For each column the difference of its greatest and second greatest entry; a single row is compared with 0.

    >>> top_two_gap(np.array([[0.9, 0.2], [0.5, 0.7], [0.1, 0.7]])).round(6).tolist()
    [0.4, 0.0]
    """
    padded = np.vstack([table, np.zeros(table.shape[1])]) if len(table) == 1 else table
    second, first = np.partition(padded, (-2, -1), axis=0)[-2:]
    return np.asarray(first - second)


def codes_and_factors(representation: Representation) -> tuple[FloatArray, NDArray[Any]]:
    """Means and factors of a representation for its registered scores, without factors that do not vary."""
    assert representation.factors is not None
    codes, factors = observations(representation.mean, "mean"), as_array(representation.factors)
    varying = (factors != factors[0]).any(axis=0)
    if not varying.any():
        raise Undefined("no factor varies in this sample: there is nothing to disentangle")
    return codes, factors[:, varying]
