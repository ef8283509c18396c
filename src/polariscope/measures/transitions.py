"""The density of changes of a factor from one frame to the next: mostly small, sometimes large."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.theory.transitions import Fit, density, fit


@dataclass(frozen=True)
class TransitionFit:
    """A generalised Laplace density exp(−|u/s|^α)·α/(2sΓ(1/α)) fitted to transitions, beside its two special cases."""

    families: dict[str, Fit]
    """generalised, laplace and normal."""
    kurtosis: float
    """Kurtosis of the data; 3 for a normal density."""

    @property
    def alpha(self) -> float:
        """The fitted shape: 1 is the Laplace and 2 the normal density; natural videos have about 0.5."""
        return self.families["generalised"].alpha

    @property
    def scale(self) -> float:
        return self.families["generalised"].scale

    @property
    def log_likelihood(self) -> dict[str, float]:
        """Log-likelihood of all transitions in nats, by family."""
        return {name: density.log_likelihood for name, density in self.families.items()}

    def density(self, u: ArrayLike, family: str = "generalised") -> NDArray[np.float64]:
        """The fitted density of a family."""
        fitted = self.families[family]
        return density(np.asarray(u, dtype=float) - fitted.location, fitted.alpha, fitted.rate)


def fit_transitions(deltas: ArrayLike, location: float | None = 0.0) -> TransitionFit:
    """The most likely generalised Laplace, Laplace and normal density around 0 for changes of one factor.

    With ``location`` None the location of each density is fitted. See
    :func:`polariscope.theory.transitions.fit`. Klindt and others, Towards nonlinear disentanglement in natural data
    with temporal sparse coding (2021), figure 1; Spec 001a, section 4.4.

    >>> fitted = fit_transitions(np.random.default_rng(0).laplace(size=20_000))
    >>> round(fitted.alpha, 1), round(fitted.scale, 1)
    (1.0, 1.0)
    """
    u = np.asarray(deltas, dtype=float).ravel()
    if len(u) < 2 or not np.isfinite(u).all():
        raise ValueError("transitions need at least two finite changes")
    if not u.any():
        raise ValueError("nothing changes in these transitions: there is no density to fit")
    families = {
        name: fit(u, alpha, location) for name, alpha in (("generalised", None), ("laplace", 1.0), ("normal", 2.0))
    }
    centred = u - u.mean()
    return TransitionFit(families, float(np.mean(centred**4) / np.mean(centred**2) ** 2))
