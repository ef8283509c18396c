"""How the factors of a sequence change from one frame to the next: mostly little, sometimes a lot."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar
from scipy.special import gammaln

SHAPES = (0.1, 5.0)
"""Between these the shape is looked for."""


@dataclass(frozen=True)
class TransitionFit:
    """A generalised Laplace density exp(−|u/s|^α)·α/(2sΓ(1/α)) fitted to transitions, beside its two special cases."""

    alpha: float
    """1 is the Laplace and 2 the normal density; natural videos have about 0.5."""
    scale: float
    log_likelihood: dict[str, float]
    """In nats over all transitions, by family: generalised, laplace, normal."""
    kurtosis: float
    """Of the data, 3 for normal ones."""
    shapes_and_scales: dict[str, tuple[float, float]]

    def density(self, u: ArrayLike, family: str = "generalised") -> NDArray[np.float64]:
        """The fitted density of a family."""
        return np.exp(_log_density(np.asarray(u, dtype=float), *self.shapes_and_scales[family]))


def fit_transitions(deltas: ArrayLike) -> TransitionFit:
    """The most likely generalised Laplace, Laplace and normal density around 0 for changes of one factor.

    For a given shape α the best scale is s = (α·mean|u|^α)^(1/α), so only α is searched. Klindt and others, Towards
    nonlinear disentanglement in natural data with temporal sparse coding (2021), figure 1; Spec 001a, section 4.4.

    >>> found = fit_transitions(np.random.default_rng(0).laplace(size=20_000))
    >>> round(found.alpha, 1), round(found.scale, 1)
    (1.0, 1.0)
    """
    u = np.asarray(deltas, dtype=float).ravel()
    if len(u) < 2 or not np.isfinite(u).all():
        raise ValueError("transitions need at least two finite changes")
    size = np.abs(u)
    if not size.any():
        raise ValueError("nothing changes in these transitions: there is no density to fit")

    def best_scale(alpha: float) -> float:
        largest = size.max()  # powers of numbers below 1 do not overflow
        return float(largest * (alpha * np.mean((size / largest) ** alpha)) ** (1 / alpha))

    def total(alpha: float) -> float:
        return float(_log_density(u, alpha, best_scale(alpha)).sum())

    alpha = float(minimize_scalar(lambda a: -total(a), bounds=SHAPES, method="bounded").x)
    families = {name: (a, best_scale(a)) for name, a in (("generalised", alpha), ("laplace", 1.0), ("normal", 2.0))}
    centred = u - u.mean()
    return TransitionFit(
        alpha,
        families["generalised"][1],
        {name: total(a) for name, (a, _) in families.items()},
        float(np.mean(centred**4) / np.mean(centred**2) ** 2),
        families,
    )


def _log_density(u: NDArray[np.float64], alpha: float, scale: float) -> NDArray[np.float64]:
    return np.log(alpha / (2 * scale)) - gammaln(1 / alpha) - np.abs(u / scale) ** alpha
