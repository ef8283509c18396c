"""The polarised regime: latents are in use and precise, or unused and equal to the prior (Spec 003, sections 2.1, 3.8).

The simplified KL of that regime, and measures of how far a model is from it.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.theory.gaussian import kl_diagonal

FloatArray = NDArray[np.float64]
Criterion = Literal["mean", "variance"]


def active_units(mean: ArrayLike, var: ArrayLike, criterion: Criterion = "mean") -> NDArray[np.bool_]:
    """Latents in use: standard deviation of the means above 0.5 (``"mean"``), or mean variance below 0.8.

    At the linear optimum Var μ_j = 1 − σ_j, so the first rule is σ_j < 0.75 and the two nearly agree (section 2.1).

    >>> active_units([[1.0, 0.1], [-1.0, -0.1]], [[0.1, 0.9], [0.1, 0.9]]).tolist()
    [True, False]
    """
    if criterion == "mean":
        return np.asarray(np.std(np.asarray(mean, dtype=np.float64), axis=0) > 0.5)
    if criterion != "variance":
        raise ValueError(f"criterion is 'mean' or 'variance'; got {criterion!r}")
    return np.asarray(np.mean(np.asarray(var, dtype=np.float64), axis=0) < 0.8)


def polarised_kl(mean: ArrayLike, var: ArrayLike, active: ArrayLike) -> FloatArray:
    """The KL of each example as the polarised regime simplifies it, ½ Σ_active (μ_j² − log σ_j − 1), in nats.

    It leaves out the small terms ½σ_j of active latents and the KL of passive ones, so it never exceeds the KL.
    """
    used = np.asarray(active, dtype=bool)
    mean, var = np.asarray(mean, dtype=np.float64)[:, used], np.asarray(var, dtype=np.float64)[:, used]
    return np.asarray(0.5 * np.sum(mean**2 - np.log(var) - 1, axis=1))


def kl_approximation_error(mean: ArrayLike, var: ArrayLike, active: ArrayLike | None = None) -> float:
    """Share of the KL that the polarised regime leaves out, (KL − polarised KL) / KL, from averages over the examples.

    Range [0, ∞): near 0 in the polarised regime, 1 if no latent is in use. Published runs are below 3 % for more than
    nine tenths of the training (section 3.8).

    >>> round(kl_approximation_error([[1.0, 0.0], [-1.0, 0.0]], [[1e-4, 1.0], [1e-4, 1.0]]), 7)
    1.09e-05
    """
    whole = float(kl_diagonal(mean, var).mean())
    if not whole > 0:
        raise ValueError("the posterior is the prior everywhere, so there is no KL to approximate")
    used = active_units(mean, var) if active is None else active
    return (whole - float(polarised_kl(mean, var, used).mean())) / whole


def polarised_share(errors: ArrayLike, threshold: float = 0.03) -> float:
    """Share of a run, counted from its end, in which all errors (at equal intervals) are below ``threshold``.

    >>> polarised_share([0.9, 0.01, 0.2, 0.02, 0.01])
    0.4
    """
    above = np.flatnonzero(~(np.asarray(errors, dtype=np.float64) < threshold))
    count = np.size(errors)
    if not count:
        raise ValueError("the share of a run needs at least one recorded error; got none")
    return float(1 - (above[-1] + 1) / count) if above.size else 1.0


def precision_bits(var: ArrayLike) -> FloatArray:
    """−log₂ of the standard deviation: binary digits the code spends on a latent (section 2.9).

    They sum to the KL (in bits) at the linear optimum, and wherever μ² + σ averages to 1.

    >>> precision_bits([0.25, 1.0]).tolist()
    [1.0, 0.0]
    """
    values = np.asarray(var, dtype=np.float64)
    if not np.all(values > 0):
        raise ValueError(f"precision needs positive variances; got {values.min():.4g} (a log-variance? take its exp)")
    return np.asarray(-0.5 * np.log2(values)) + 0.0


def best_scale(mean: ArrayLike) -> float:
    """The factor √(n / Σμ²) that makes the means of one latent cheapest: their mean square becomes 1 (Lemma 7).

    It minimises Σ (c²μ_i² − log c²σ_i) whatever the variances, when the decoder undoes the scale.

    >>> best_scale([2.0, -2.0])
    0.5
    """
    values = np.asarray(mean, dtype=np.float64)
    if not np.any(values):
        raise ValueError("means that are all zero have no best scale")
    return float(np.sqrt(values.size / np.sum(values**2)))


def principal_order(var: ArrayLike) -> NDArray[np.intp]:
    """Latents from the most to the least precise, by mean variance: the non-linear principal components (section 3.8).

    >>> principal_order([[0.9, 0.1, 0.4]]).tolist()
    [1, 2, 0]
    """
    return np.argsort(np.mean(np.asarray(var, dtype=np.float64), axis=0), kind="stable")
