"""Unsupervised disentanglement ranking: models that agree on their latents, up to order and sign, are disentangled.

Duan et al. 2020; Spec 001a, section 5.9. It compares several models on the same examples and needs no factors, so it
can select hyper-parameters without labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata
from sklearn.linear_model import Lasso

from polariscope.measures.information import FloatArray, observations

Likeness = Literal["spearman", "lasso"]


@dataclass(frozen=True, eq=False)
class UDR:
    """``values``: the score of each model, the median over the other models; ``pairs``: the score of each pair (NaN on
    the diagonal, and if neither model uses a latent)."""

    values: FloatArray
    pairs: FloatArray
    informative: tuple[NDArray[np.bool_], ...]
    likeness: Likeness
    samples: int

    @property
    def best(self) -> int:
        """The model that agrees best with the others."""
        return int(np.nanargmax(self.values))


def udr(
    codes: Sequence[ArrayLike],
    kl: Sequence[ArrayLike] | None = None,
    likeness: Likeness = "spearman",
    threshold: float = 0.01,
    penalty: float = 0.1,
) -> UDR:
    """Agreement of the latents of two models, for all pairs: the mean of (max S)²/ΣS over the informative latents of
    both.

    S_ab = |Spearman correlation| of latent a of one model with latent b of the other, or the |weight| of a in a Lasso
    (``penalty`` α) that predicts b, on standardised codes. A latent is informative if its mean divergence from the
    prior exceeds ``threshold``; ``kl`` has these divergences, one array per model (see ``per_variable_kl``). Without it
    every latent that varies is informative. Duan et al. 2020; Spec 001a, section 5.9.

    Range [0, 1]: 1 if latents correspond one to one and are uncorrelated, 1/latents if each is equally similar to all.
    Bias: chance correlations add to the sums, so codes of n samples with d latents score below 1/(1 + 0.8 (d−1)/√n).

    >>> x = np.stack(np.unravel_index(np.arange(60), (3, 4, 5)), axis=1)
    >>> udr([x, -x[:, [2, 0, 1]], x**3]).values.round(6).tolist()
    [1.0, 1.0, 1.0]
    """
    models = [observations(c, f"codes of model {i}") for i, c in enumerate(codes)]
    if len(models) < 2:
        raise ValueError(f"UDR compares models with each other and needs at least 2; got {len(models)}")
    if len({len(m) for m in models}) > 1:
        raise ValueError(f"UDR needs all models on the same examples; got {[len(m) for m in models]}")
    if likeness not in ("spearman", "lasso"):
        raise ValueError(f"likeness is 'spearman' or 'lasso'; got {likeness!r}")
    used = _informative(models, kl, threshold)
    widths = [m.shape[1] for m in models]
    starts = np.cumsum([0, *widths[:-1]])
    stacked = np.hstack(models)
    s = _spearman(stacked) if likeness == "spearman" else _lasso(stacked, starts, widths, penalty)
    # Rows of s belong to the model that explains, columns to the one explained; blocks to pairs of models.
    forward = _peakedness(s, starts) @ _membership(used)
    backward = (_peakedness(s.T, starts) @ _membership(used)).T
    informative = np.array([u.sum() for u in used])
    number = np.add.outer(informative, informative)
    pairs = np.where(number > 0, (forward + backward) / np.maximum(number, 1), np.nan)
    np.fill_diagonal(pairs, np.nan)
    values = np.array([np.median(row[~np.isnan(row)]) if not np.isnan(row).all() else np.nan for row in pairs])
    return UDR(values, pairs, used, likeness, len(stacked))


def _informative(
    models: list[FloatArray], kl: Sequence[ArrayLike] | None, threshold: float
) -> tuple[NDArray[np.bool_], ...]:
    if kl is None:
        return tuple(np.ptp(m, axis=0) > 0 for m in models)
    divergences = [np.asarray(k, dtype=np.float64) for k in kl]
    if [k.shape for k in divergences] != [(m.shape[1],) for m in models]:
        raise ValueError("kl needs one array per model with one mean divergence per latent")
    return tuple(k > threshold for k in divergences)


def _standardised(x: FloatArray) -> FloatArray:
    spread = x.std(axis=0)
    return np.asarray((x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0))


def _spearman(stacked: FloatArray) -> FloatArray:
    unit = _standardised(rankdata(stacked, axis=0))
    return np.abs(unit.T @ unit) / len(unit)


def _lasso(stacked: FloatArray, starts: NDArray[np.int64], widths: Sequence[int], penalty: float) -> FloatArray:
    unit = _standardised(stacked)
    rows = [
        np.abs(np.atleast_2d(Lasso(alpha=penalty, fit_intercept=False).fit(unit[:, a : a + w], unit).coef_)).T
        for a, w in zip(starts, widths, strict=True)
    ]
    return np.vstack(rows)


def _peakedness(s: FloatArray, starts: NDArray[np.int64]) -> FloatArray:
    """(models, latents): (max S)²/ΣS of each column within the rows of each model, 0 if all S are 0."""
    total = np.add.reduceat(s, starts, axis=0)
    return np.asarray(np.maximum.reduceat(s, starts, axis=0) ** 2 / np.where(total > 0, total, 1.0))


def _membership(used: Sequence[NDArray[np.bool_]]) -> FloatArray:
    """(latents, models): 1 where an informative latent belongs to a model."""
    owner = np.repeat(np.arange(len(used)), [len(u) for u in used])
    return (np.arange(len(used)) == owner[:, None]) * np.concatenate(used)[:, None].astype(np.float64)
