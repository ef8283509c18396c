"""The certificate of randomised smoothing: a radius within which a majority vote over Gaussian noise cannot change.

If a classifier predicts class A with a probability of at least p > 1/2 under noise of standard deviation sd, the
majority vote is A for every image within sd Φ⁻¹(p) in L2. A count of votes bounds the probability, at a given
confidence. (Cohen, Rosenfeld and Kolter 2019, theorem 1 and section 3.2.)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta, binomtest
from scipy.stats import norm as normal

FloatArray = NDArray[np.float64]


def clopper_pearson(votes: ArrayLike, draws: int, alpha: float) -> FloatArray:
    """The lower end of a one-sided confidence interval for a probability, at a confidence of 1 − ``alpha``.

    >>> clopper_pearson([0, 99, 100], 100, 0.05).round(4).tolist()
    [0.0, 0.9534, 0.9705]
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is {alpha}: it needs to be between 0 and 1")
    counts = np.asarray(votes, np.float64)
    if (counts < 0).any() or (counts > draws).any():
        raise ValueError(f"votes are counts from 0 to {draws}; got {counts.min():g} to {counts.max():g}")
    return np.where(counts > 0, beta.ppf(alpha, np.maximum(counts, 0.5), draws - counts + 1), 0.0)


def smoothed_radius(probability: ArrayLike, sd: float) -> FloatArray:
    """The certified L2 radius sd Φ⁻¹(p); 0 where p is not above one half: the vote is then undecided.

    >>> smoothed_radius([0.4, 0.841345], 0.5).round(4).tolist()
    [0.0, 0.5]
    """
    p = np.asarray(probability, np.float64)
    return np.where(p > 0.5, sd * normal.ppf(np.clip(p, 0.5, 1.0)), 0.0)


def undecided(first: int, second: int, alpha: float) -> bool:
    """Whether two counts of votes are too close to say which class is ahead, at a confidence of 1 − alpha.

    >>> undecided(60, 40, 0.001), undecided(90, 10, 0.001)
    (True, False)
    """
    return bool(first + second == 0 or binomtest(first, first + second, 0.5).pvalue > alpha)
