"""How fast the test error falls with the number of points when most directions of the data do not matter.

The error of a classifier on p points falls as p^(−β). A kernel that does not learn features is slowed by all d
directions; a network that shrinks the uninformative ones by a factor Λ ~ √p is slowed by few. The network gains as much
as a kernel gains on data compressed by the same factor (Spec 004, section 6.1; Paccolat, Petrini, Geiger, Tyloo and
Wyart 2021). The labels depend on ``informative`` of the ``dimension`` directions.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def lazy_exponent(dimension: int, cusp: float = 1.0) -> float:
    """β = (d−1+ξ)/(3d−3+ξ) of a support vector machine on the stripe whose isotropic kernel behaves as −|r|^ξ at 0.

    The default ξ = 1 is the Laplace kernel and the tangent kernel of a ReLU network: d/(3d−2).

    >>> lazy_exponent(2), round(lazy_exponent(5), 4)
    (0.5, 0.3846)
    """
    _check(dimension, 1)
    if not 0 < cusp < 2:
        raise ValueError(f"the cusp exponent of a kernel lies between 0 and 2; got {cusp}")
    return (dimension - 1 + cusp) / (3 * dimension - 3 + cusp)


def compression_exponent(dimension: int, informative: int = 1) -> float:
    """γ in ε ~ Λ^(−γ), the error of a ξ = 1 kernel on data whose uninformative directions are divided by Λ.

    2(d−1)/(3d−2) for parallel planes, (d−d_∥)/(3d−2) for more informative directions: curved interfaces gain less, and
    the first formula is not the second at d_∥ = 1.

    >>> round(compression_exponent(5), 3), round(compression_exponent(3, informative=2), 3)
    (0.615, 0.143)
    """
    _check(dimension, informative)
    irrelevant = dimension - informative
    return (2 * irrelevant if informative == 1 else irrelevant) / (3 * dimension - 2)


def compression_gain(factor: ArrayLike, dimension: int, informative: int = 1) -> NDArray[np.float64]:
    """Λ^(−γ): the ratio of a kernel's errors with and without compression by ``factor``, at a fixed number of points.

    >>> round(float(compression_gain(16, dimension=5)), 3)
    0.182
    """
    factor = np.asarray(factor, dtype=np.float64)
    if not np.all(factor > 0):
        raise ValueError("a compression factor needs to be positive; one is not (or is NaN)")
    return np.asarray(factor ** -compression_exponent(dimension, informative))


def feature_exponent(dimension: int, informative: int = 1) -> float:
    """β of a network that compresses by Λ ~ √p: (2d−1)/(3d−2) for one informative direction, (d+d_⊥/2)/(3d−2) else.

    >>> feature_exponent(2), feature_exponent(7, informative=2)
    (0.75, 0.5)
    """
    return lazy_exponent(dimension) + compression_exponent(dimension, informative) / 2


def _check(dimension: int, informative: int) -> None:
    if not 1 <= informative <= dimension:
        raise ValueError(
            f"the informative directions need to be 1 to dimension; got {informative} of dimension {dimension}"
        )
