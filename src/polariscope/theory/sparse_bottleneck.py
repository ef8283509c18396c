"""The sparse mutual-information term, and the exact optima of linear bottlenecks: water-filling over components.

The sparse bottleneck fixes the noise of every latent variable at 1 and penalises ½ Σ log(m_j + o_j) of the second
moments m_j of the means (Spec 000, sections 4.4, 4.5 and 6.2; Rey, Roth and Fuchs, Sparse meta-Gaussian information
bottleneck, 2014). A linear encoder and decoder under the loss I + λ w err² then do PCA with reverse water-filling: a
component of variance v becomes active at λ = 1/(2wv), and is *selected* (its signal exceeds the noise) at λ = 1/(wv).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.theory.gaussian_bottleneck import log_det

FloatArray = NDArray[np.float64]


def sparse_information(second_moments: ArrayLike, offsets: ArrayLike = 1.0) -> float:
    """½ Σ_j log(m_j + o_j) in nats, of the second moments m_j of the means of a code with noise 1.

    ``offsets`` are the o_j: 1, or more for a variable that should cost less (10 for the last one in the synthetic
    experiments). With o = 1 the term is 0 for an unused code. It is concave in m and therefore makes codes sparse.

    >>> round(sparse_information([3.0, 0.0]), 6)  # log 2
    0.693147
    """
    moments = np.asarray(second_moments, dtype=np.float64)
    if not np.all(moments >= 0):
        raise ValueError(f"second moments are at least 0; got {moments.min():g} (give squares, not means)")
    summed = moments + np.asarray(offsets, dtype=np.float64)
    if not np.all(summed > 0):
        raise ValueError("the offsets of the sparse term need to be positive")
    return 0.5 * float(np.log(summed).sum())


@dataclass(frozen=True)
class InformationBounds:
    """Three rates of one code, in increasing order: the Gaussian information, the sparse term, the divergence."""

    gaussian: float
    """½ log det(M + I), M the second-moment matrix of the means: the information of a Gaussian code."""
    sparse: float
    """½ Σ log(m_j + 1): exact if the means are uncorrelated (Hadamard's inequality)."""
    divergence: float
    """½ Σ m_j, the divergence from N(0, I) at noise 1 (log(1 + m) ≤ m)."""


def information_bounds(means: ArrayLike) -> InformationBounds:
    """The rates of a code with noise 1 from its means ``(n, d)``: gaussian ≤ sparse ≤ divergence.

    >>> bounds = information_bounds([[1.0, 1.0], [-1.0, -1.0]])
    >>> [round(value, 6) for value in (bounds.gaussian, bounds.sparse, bounds.divergence)]  # ½log 3, log 2, 1
    [0.549306, 0.693147, 1.0]
    """
    code = np.asarray(means, dtype=np.float64)
    if code.ndim != 2 or not len(code):
        raise ValueError(f"the means of a code are a table (n, d); got shape {code.shape}")
    moments = code.T @ code / len(code)
    diagonal = np.diag(moments)
    return InformationBounds(
        log_det(moments + np.eye(len(moments))) / 2, sparse_information(diagonal), float(diagonal.sum()) / 2
    )


def signal_variance(lam: float, weight: float, variance: ArrayLike, offset: float = 1.0) -> FloatArray:
    """The best signal variance s of a component at noise 1: max(0, 2λwv − 1), the optimum of
    ½ log(s + o) + λ w v / (1 + s).

    With an offset o > 1 the component becomes active at λ = 1/(2owv), earlier by the factor o, and
    s = (c − 1) + √((c − 1)² − 1 + 2oc) with c = λwv.

    >>> signal_variance(3, 1, 0.5).tolist(), signal_variance(10, 0.5, 1 / 3).round(4).tolist()
    (2.0, 2.3333)
    """
    if not offset >= 1:
        raise ValueError(f"the offset of the sparse term is {offset}: the closed form needs at least 1")
    c = _level(lam, weight, variance)
    root = np.sqrt(np.maximum((c - 1) ** 2 - 1 + 2 * offset * c, 0))
    return np.where(2 * offset * c > 1, c - 1 + root, 0.0)


def free_noise_variance(lam: float, weight: float, variance: ArrayLike) -> FloatArray:
    """The best noise variance σ² = min(1, 1/(2λwv)) of a component of the β-VAE, whose signal variance is 1 − σ².

    >>> free_noise_variance(3, 1, 0.5).round(6).tolist(), free_noise_variance(1, 1, 0.4).tolist()
    (0.333333, 1.0)
    """
    c = _level(lam, weight, variance)
    return np.minimum(1.0, 1 / np.where(c > 0, 2 * c, 1.0))


def component_rate(lam: float, weight: float, variance: ArrayLike) -> FloatArray:
    """Nats spent on a component by either optimum: ½ log(2λwv), 0 where that is negative."""
    c = _level(lam, weight, variance)
    return 0.5 * np.log(np.maximum(2 * c, 1.0))


def residual_error(lam: float, weight: float, variance: ArrayLike) -> FloatArray:
    """Squared error that either optimum leaves of a component: min(v, 1/(2λw)).

    >>> residual_error(3, 1, [0.5, 0.1]).round(6).tolist()
    [0.166667, 0.1]
    """
    _level(lam, weight, variance)
    return np.minimum(np.asarray(variance, dtype=np.float64), 1 / (2 * lam * weight))


def activation_value(weight: float, variance: ArrayLike, offset: float = 1.0) -> FloatArray:
    """The λ = 1/(2owv) at which a component becomes active.

    A coordinate uniform on [-1, 1] becomes active at 3 under half the squared error; the property of the ellipse at
    15.7.

    >>> activation_value(0.5, 1 / 3).round(6).tolist(), activation_value(1.0, 0.0319444).round(1).tolist()
    (3.0, 15.7)
    """
    return 1 / (2 * offset * _level(1.0, weight, variance, positive=True))


def selection_value(weight: float, variance: ArrayLike) -> FloatArray:
    """The λ = 1/(wv) above which the signal of a component exceeds its noise, by either optimum.

    >>> selection_value(0.5, 1 / 3).round(6).tolist()
    6.0
    """
    return 1 / _level(1.0, weight, variance, positive=True)


def active_components(lam: float, weight: float, spectrum: ArrayLike) -> int:
    """How many principal components a linear sparse bottleneck uses: #{i : 2λw v_i > 1}.

    >>> active_components(4, 0.5, [1.0, 0.3, 0.2])
    2
    """
    return int(np.count_nonzero(2 * _level(lam, weight, spectrum) > 1))


def minimum_loss(lam: float, weight: float, spectrum: ArrayLike) -> float:
    """The least I + λ w err² of a linear bottleneck on data of this spectrum: Σ rate_i + λ w residual_i."""
    rates = component_rate(lam, weight, spectrum)
    return float((rates + lam * weight * residual_error(lam, weight, spectrum)).sum())


def _level(lam: float, weight: float, variance: ArrayLike, positive: bool = False) -> FloatArray:
    """λ w v, each of them checked."""
    values = np.asarray(variance, dtype=np.float64)
    if not (lam > 0 and weight > 0):
        raise ValueError(f"lambda and the weight of the error need to be positive; got {lam:g} and {weight:g}")
    if not (np.all(values > 0) if positive else np.all(values >= 0)):
        raise ValueError(f"variances of components need to be {'positive' if positive else 'at least 0'}; got {values}")
    return np.asarray(lam * weight * values)
