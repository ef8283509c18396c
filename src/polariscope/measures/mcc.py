"""Mean correlation coefficient: each factor is matched with its own latent, and the correlations are averaged.

This is the score of identifiability (nonlinear ICA); continuous factors need no bins. Hyvärinen and Morioka 2016;
Spec 001a, section 5.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment
from scipy.stats import rankdata

from polariscope.measures.information import FloatArray, as_array
from polariscope.measures.measure import FactorMeasure, Invariance, measures
from polariscope.measures.score import IntArray, Score, Seed, as_labels, codes_and_factors, paired
from polariscope.representation import Representation

Correlation = Literal["spearman", "pearson"]
Padding = Literal["none", "noise"]


def lack_of_latents(latents: int, factors: int) -> str:
    """A warning if there are fewer latents than factors, otherwise an empty string.

    >>> lack_of_latents(2, 5)
    '2 latents cannot encode 5 factors one each: the MCC is at most 0.40.'
    """
    if latents >= factors:
        return ""
    return f"{latents} latents cannot encode {factors} factors one each: the MCC is at most {latents / factors:.2f}."


def absolute_correlations(
    codes: ArrayLike, factors: ArrayLike, kind: Correlation = "spearman", categorical: Sequence[int] = ()
) -> FloatArray:
    """|correlation| of every latent with every factor, (latents, factors); 0 where either is constant.

    The numbering of categories is arbitrary, so a ``categorical`` factor gets the numbering with the greatest
    correlation: the categories in the order of the latent's mean. With equally frequent categories this order is
    optimal (rearrangement inequality); otherwise the correlation may be slightly below the greatest.

    >>> x = np.arange(5.0)
    >>> absolute_correlations(np.column_stack([x, x**3]), -x[:, None]).round(3).tolist()
    [[1.0], [1.0]]
    """
    z, v = paired(codes, factors)
    if kind not in ("spearman", "pearson"):
        raise ValueError(f"kind is 'spearman' or 'pearson'; got {kind!r}")
    unknown = [k for k in categorical if not 0 <= k < v.shape[1]]
    if unknown:
        raise ValueError(f"categorical names factor {unknown[0]}, but there are {v.shape[1]}, counted from 0")
    z = _standardised(z, kind)
    table = np.abs(z.T @ _standardised(v.astype(np.float64), kind))
    for k in categorical:
        table[:, k] = _best_numbering(z, as_labels(v[:, [k]]).values[:, 0], kind)
    return np.minimum(table, 1.0)


def _standardised(x: FloatArray, kind: str) -> FloatArray:
    """Columns (or their ranks) of mean 0 and length 1; constant ones become 0."""
    x = rankdata(x, axis=0) if kind == "spearman" else x
    varies = np.ptp(x, axis=0) > 1e-13 * np.abs(x).max(axis=0)
    centred = (x - x.mean(axis=0)) * varies
    return np.asarray(centred / np.where(varies, np.linalg.norm(centred, axis=0), 1.0))


def _best_numbering(z: FloatArray, labels: IntArray, kind: str) -> FloatArray:
    indicator = np.zeros((len(z), labels.max() + 1))
    indicator[np.arange(len(z)), labels] = 1.0
    means = indicator.T @ z / indicator.sum(axis=0)[:, None]
    number = np.argsort(np.argsort(means, axis=0), axis=0)
    renumbered = _standardised(number[labels].astype(np.float64), kind)
    return np.asarray(np.abs(np.sum(z * renumbered, axis=0)))


def mcc(
    codes: ArrayLike,
    factors: ArrayLike,
    kind: Correlation = "spearman",
    categorical: Sequence[int] = (),
    padding: Padding = "none",
    seed: Seed = 0,
) -> Score:
    """Mean |correlation| of each factor with its matched latent; the one-to-one matching maximises the sum.

    Spec 001a, section 5.1: Spearman's correlation (Pearson's for linear mixtures), optimal assignment. As published,
    ``padding="noise"`` adds noise factors to the matching until there are as many factors as latents. Without it the
    other latents stay unmatched; the two differ by chance correlations only. If there are fewer latents than factors,
    unmatched factors count 0. For ``categorical`` factors see :func:`absolute_correlations`.

    Range [0, 1]: 0 if no latent follows any factor, 1 if each factor is a monotone (Pearson: linear) function of its
    latent. Two Gaussian latents rotated by θ score cos θ (Pearson) up to 45°. Bias: unrelated pairs correlate by about
    √(2/(π samples)). A periodic factor has no monotone code, so the score of a perfect circle is low.
    The matched latents are ``settings["latents"]`` (−1 for none).

    >>> rng = np.random.default_rng(0)
    >>> sources = rng.laplace(size=(1000, 3))
    >>> score = mcc(-np.exp(sources[:, [2, 0, 1]]), sources)
    >>> round(score.value, 6), score.settings["latents"]
    (1.0, [1, 2, 0])
    """
    if padding not in ("none", "noise"):
        raise ValueError(f"padding is 'none' or 'noise'; got {padding!r}")
    table = absolute_correlations(codes, factors, kind, categorical)
    z = as_array(codes)
    full, (latents, count) = table, table.shape
    if padding == "noise" and latents > count:
        noise = np.random.default_rng(seed).standard_normal((len(z), latents - count))
        full = np.hstack([table, absolute_correlations(z, noise, kind)])
    latent, factor = linear_sum_assignment(full, maximize=True)
    matched = np.full(count, -1)
    matched[factor[factor < count]] = latent[factor < count]
    per_factor = np.where(matched >= 0, table[matched, np.arange(count)], 0.0)
    settings = {"correlation": kind, "categorical": list(categorical), "padding": padding, "latents": matched.tolist()}
    padded = "with factors of noise" if padding == "noise" else "without factors of noise (published: with them)"
    protocol = f"{kind.capitalize()} correlations of {len(z):,} examples, {padded}"
    return Score(float(per_factor.mean()), per_factor, table, len(z), settings, protocol)


def matched_order(table: ArrayLike) -> IntArray:
    """The order of latents that puts the matched pairs of a (latents, factors) table on its diagonal. The other latents
    follow by their largest entry, as in the published correlation pictures (Spec 001a, figure 5).

    >>> matched_order([[0.1, 0.2], [0.2, 0.9], [0.8, 0.1]]).tolist()
    [2, 1, 0]
    """
    table = np.asarray(table, dtype=np.float64)
    latent, factor = linear_sum_assignment(table, maximize=True)
    first = latent[np.argsort(factor)]
    rest = np.setdiff1d(np.arange(len(table)), first)
    return np.concatenate([first, rest[np.argsort(-table[rest].max(axis=1, initial=0.0), kind="stable")]])


def best_latents(table: ArrayLike, count: int = 2) -> IntArray:
    """For each factor, the ``count`` latents with the largest entries in a (latents, factors) table, best first.

    >>> best_latents([[0.1, 0.2], [0.2, 0.9], [0.8, 0.1]]).tolist()
    [[2, 1], [1, 0]]
    """
    table = np.asarray(table, dtype=np.float64)
    if not 1 <= count <= len(table):
        raise ValueError(f"count needs to lie between 1 and the {len(table)} latents; got {count}")
    return np.argsort(-table, axis=0, kind="stable")[:count].T


@measures.register("mcc")
@dataclass(frozen=True)
class MCC(FactorMeasure):
    """Mean correlation of each factor with the latent matched to it, from 0 to 1.

    The values of categorical factors are numbered in the order with the highest correlation.
    """

    kind: Correlation = "spearman"
    padding: Padding = "none"

    title: ClassVar[str] = "MCC"
    invariant_to: ClassVar[tuple[Invariance, ...]] = ("permutation", "sign", "scale", "isotropic_scale", "translation")

    def __call__(self, representation: Representation) -> Score:
        codes, factors = codes_and_factors(representation)
        assert representation.factors is not None
        varying = (representation.factors != representation.factors[0]).any(axis=0)
        kept = [f for f, keep in zip(representation.factor_info, varying, strict=False) if keep]
        categorical = [k for k, f in enumerate(kept) if f.kind == "categorical"]
        return mcc(codes, factors, self.kind, categorical, self.padding)

    def published(self) -> MCC:
        return replace(self, padding="noise")
