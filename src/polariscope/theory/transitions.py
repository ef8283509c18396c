"""Temporally sparse transitions: changes that are mostly small and sometimes large.

Latents start at N(0, I) and change by u with the generalised Laplace density C exp(−λ|u|^α): 1 is the Laplace and 2 the
normal density, and natural videos have α ≈ 0.5. This module has the densities, draws from them, the KL of a Gaussian
posterior to them, and their fits to data; :mod:`polariscope.theory.identifiability` shows when they identify latents.
Klindt, Schott, Sharma and others, Towards nonlinear disentanglement in natural data with temporal sparse coding (2021);
Spec 001a, sections 2.1, 3.1, 3.7 and 4.4. ``rate`` is λ = s^(−α) with s the scale (the ``scale`` of SciPy's
``gennorm``). The published constant C = αλ/(2Γ(1/α)) integrates to 1 only for α = 1; here it is αλ^(1/α)/(2Γ(1/α)).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar
from scipy.special import erf, gammainc, gammaln

FloatArray = NDArray[np.float64]
Map = Callable[[FloatArray], FloatArray]

SHAPES = (0.1, 10.0)
"""The range in which the shape is fitted."""
FOLDED = math.sqrt(2 / math.pi)
"""The mean of |ε| for a standard normal ε."""


class Moments(NamedTuple):
    """Moments of a transition; its mean and skewness are 0."""

    mean_abs: FloatArray
    var: FloatArray
    kurtosis: FloatArray
    """3 for a normal density."""


def scale_of_rate(rate: ArrayLike, alpha: ArrayLike) -> FloatArray:
    """The scale s = λ^(−1/α) of exp(−|u/s|^α) = exp(−λ|u|^α), above 0 (Spec 001a, section 2.1).

    >>> float(scale_of_rate(4.0, 0.5))
    0.0625
    """
    return np.asarray(positive("a rate", rate) ** (-1 / positive("a shape", alpha)))


def rate_of_scale(scale: ArrayLike, alpha: ArrayLike) -> FloatArray:
    """The rate λ = s^(−α) of a scale, above 0 (Spec 001a, section 2.1).

    >>> float(rate_of_scale(0.0625, 0.5))
    4.0
    """
    return np.asarray(positive("a scale", scale) ** -positive("a shape", alpha))


def log_density(u: ArrayLike, alpha: ArrayLike, rate: ArrayLike) -> FloatArray:
    """ln p(u) = ln(α λ^(1/α) / (2 Γ(1/α))) − λ|u|^α, any real number.

    Klindt et al. 2021, equation 2 with its constant put right; Spec 001a, section 2.1.

    >>> round(float(log_density(0.0, 1.0, 6.0)), 6)  # ln(λ/2)
    1.098612
    """
    u = finite("transitions", u)
    alpha, rate = positive("a shape", alpha), positive("a rate", rate)
    constant = np.log(alpha / 2) + np.log(rate) / alpha - gammaln(1 / alpha)
    return np.asarray(constant - rate * np.abs(u) ** alpha)


def density(u: ArrayLike, alpha: ArrayLike, rate: ArrayLike) -> FloatArray:
    """p(u) = α λ^(1/α) / (2 Γ(1/α)) · exp(−λ|u|^α), from 0 to its value at u = 0 (see :func:`log_density`).

    >>> density([0.0, 1.0], 1.0, 2.0).round(6).tolist()
    [1.0, 0.135335]
    """
    return np.asarray(np.exp(log_density(u, alpha, rate)))


def distribution(u: ArrayLike, alpha: ArrayLike, rate: ArrayLike) -> FloatArray:
    """P(change ≤ u) = ½ (1 + sign(u) P(1/α, λ|u|^α)) with the regularised incomplete gamma function P, from 0 to 1.

    The integral of Klindt et al. 2021, equation 2; Spec 001a, section 2.1.

    >>> distribution([0.0, 1.0], 1.0, 1.0).round(6).tolist()
    [0.5, 0.81606]
    """
    u = finite("transitions", u)
    alpha, rate = positive("a shape", alpha), positive("a rate", rate)
    return np.asarray(0.5 * (1 + np.sign(u) * gammainc(1 / alpha, rate * np.abs(u) ** alpha)))


def entropy(alpha: ArrayLike, rate: ArrayLike) -> FloatArray:
    """The entropy ln(2sΓ(1/α)/α) + 1/α in nats, any real number; −n times the entropy is the largest log-likelihood of
    n transitions with this best shape and scale.

    Klindt et al. 2021, tables 8 to 13; Spec 001a, section 4.4.

    >>> round(float(entropy(1.0, 1.0)), 6)  # 1 + ln 2
    1.693147
    """
    alpha, rate = positive("a shape", alpha), positive("a rate", rate)
    return np.asarray(np.log(2 / alpha) - np.log(rate) / alpha + gammaln(1 / alpha) + 1 / alpha)


def moments(alpha: ArrayLike, rate: ArrayLike) -> Moments:
    """E|u| = sΓ(2/α)/Γ(1/α), Var = s²Γ(3/α)/Γ(1/α) and kurtosis Γ(5/α)Γ(1/α)/Γ(3/α)², with s = λ^(−1/α).

    All are above 0; the kurtosis falls with α, from 25.2 at ½ over 6 at 1 and 3 at 2 to 1.8. Klindt et al. 2021,
    section 3.1; Spec 001a, section 2.1.

    >>> round(float(moments(0.5, 1.0).kurtosis), 6)
    25.2
    """
    scale = scale_of_rate(rate, alpha)
    one, two, three, five = (gammaln(k / np.asarray(alpha, dtype=float)) for k in (1, 2, 3, 5))
    return Moments(
        scale * np.exp(two - one), scale**2 * np.exp(three - one), np.asarray(np.exp(five + one - 2 * three))
    )


def sample(
    alpha: ArrayLike, rate: ArrayLike, size: int | tuple[int, ...], seed: int | np.random.Generator
) -> FloatArray:
    """Transitions ±s·G^(1/α) with G ~ Gamma(1/α, 1) and a random sign: exact draws, any real number.

    Klindt et al. 2021, equation 2; Spec 001a, section 2.1. Shapes and rates that are arrays must broadcast to ``size``.

    >>> draws = sample(1.0, 6.0, 100_000, seed=0)
    >>> round(float(np.abs(draws).mean()), 2)  # 1/6
    0.17
    """
    scale = scale_of_rate(rate, alpha)
    rng = np.random.default_rng(seed)
    inverse = 1 / np.asarray(alpha, dtype=float)
    size_of_change = scale * rng.standard_gamma(inverse, size) ** inverse
    return np.asarray(size_of_change * rng.choice((-1.0, 1.0), size))


class Sequences(NamedTuple):
    """Latents (n, steps + 1, dims) and their observations."""

    latents: FloatArray
    observations: FloatArray


def sample_sequences(
    n: int,
    dims: int,
    alpha: ArrayLike,
    rate: ArrayLike,
    seed: int | np.random.Generator,
    steps: int = 1,
    generator: Map | None = None,
) -> Sequences:
    """Latents z₀ ~ N(0, I), z_t = z_{t−1} + u_t with generalised Laplace u_t, and x = g(z): pairs if ``steps`` is 1.

    ``generator`` takes all latents, (n, steps + 1, dims), and returns as many observations; without one the
    observations are the latents. Latents are any real number, of variance :func:`latent_var`. Klindt et al. 2021,
    equations 1 and 2; Spec 001a, section 2.1.

    >>> pairs = sample_sequences(5, 2, 1.0, 6.0, seed=0, generator=lambda z: z @ np.ones((2, 3)))
    >>> pairs.latents.shape, pairs.observations.shape
    ((5, 2, 2), (5, 2, 3))
    """
    if min(n, dims, steps) < 1:
        raise ValueError(f"sequences need n, dims and steps of at least 1; got {n}, {dims} and {steps}")
    rng = np.random.default_rng(seed)
    start = rng.standard_normal((n, 1, dims))
    changes = sample(alpha, rate, (n, steps, dims), rng)
    latents = np.cumsum(np.concatenate((start, changes), axis=1), axis=1)
    observations = latents if generator is None else np.asarray(generator(latents))
    if observations.shape[:2] != latents.shape[:2]:
        raise ValueError(
            f"a generator returns one observation per latent, {latents.shape[:2]} of them; got {observations.shape}"
        )
    return Sequences(latents, observations)


def latent_var(alpha: ArrayLike, rate: ArrayLike, steps: int = 1) -> FloatArray:
    """Var(z_t) = 1 + t Γ(3/α) λ^(−2/α) / Γ(1/α) after ``steps`` transitions from N(0, 1), at least 1.

    The first frame has variance 1, the second more, so the two frames of a pair differ in distribution. Klindt et al.
    2021, section 3.1; Spec 001a, row TH-02.

    >>> round(float(latent_var(1.0, 6.0)), 4)
    1.0556
    """
    if steps < 0:
        raise ValueError(f"steps needs to be 0 or more; got {steps}")
    return np.asarray(1 + steps * moments(alpha, rate).var)


def folded_normal_mean(mean: ArrayLike, var: ArrayLike) -> FloatArray:
    """E|N(μ, σ²)| = σ√(2/π) exp(−μ²/2σ²) + μ erf(μ/(σ√2)), at least |μ|.

    Klindt et al. 2021, equation 21; Spec 001a, section 3.1.

    >>> round(float(folded_normal_mean(1.0, 1.0)), 8)
    1.16663094
    """
    mean, std = finite("means", mean), np.sqrt(positive("a variance", var))
    t = _standardised(mean, std)
    return np.asarray(FOLDED * std * np.exp(-(t**2) / 2) + mean * erf(t / math.sqrt(2)))


def laplace_cross_entropy(delta: ArrayLike, var: ArrayLike, rate: ArrayLike) -> FloatArray:
    """−E ln p(z) = −ln(λ/2) + λ E|N(δ, σ²)| in nats per latent, for z from a Gaussian at distance δ from the Laplace
    prior's centre; at least −ln(λ/2).

    With δ = μ_t − μ_{t−1} and σ² = σ_t² this is the published plug-in; with σ² = σ_t² + σ_{t−1}² it is the exact mean
    over the previous posterior, and never less. Klindt et al. 2021, equations 16 to 22; Spec 001a, section 3.1.

    >>> plug_in, exact = laplace_cross_entropy(0.0, [0.04, 0.08], 6.0)
    >>> round(float(plug_in), 6), round(float(exact), 6)
    (-0.141151, 0.255443)
    """
    rate = positive("a rate", rate)
    return np.asarray(rate * folded_normal_mean(delta, var) - np.log(rate / 2))


def gaussian_laplace_kl(delta: ArrayLike, var: ArrayLike, rate: ArrayLike) -> FloatArray:
    """KL(N(δ, σ²) ‖ Laplace(0, 1/λ)) = λ E|N(δ, σ²)| − ln(λ/2) − ½ ln(2πeσ²) in nats per latent.

    At least ½ + ln(2/π) = 0.0484, reached at δ = 0 and σ = √(π/2)/λ whatever the rate: it is never 0 for a Gaussian
    posterior. Precise for any positive variance and rate whose λσ is a float. Klindt et al. 2021, appendix A.2; Spec
    001a, section 3.1 and oracles O3 and O4.

    >>> gaussian_laplace_kl([0.0, 1.0], 1.0, 6.0).round(8).tolist()
    [2.26975654, 4.48223483]
    """
    rate, var = positive("a rate", rate), positive("a variance", var)
    # ln(λσ) as one logarithm: for a tiny σ and a huge λ the two would cancel.
    constant = math.log(2) - 0.5 * math.log(2 * math.pi * math.e)
    return np.asarray(rate * folded_normal_mean(delta, var) - np.log(rate * np.sqrt(var)) + constant)


class Slopes(NamedTuple):
    """Derivatives by the distance δ of the means and by the posterior's standard deviation."""

    delta: FloatArray
    std: FloatArray


def gaussian_laplace_kl_slopes(delta: ArrayLike, var: ArrayLike, rate: ArrayLike) -> Slopes:
    """∂KL/∂δ = λ erf(δ/(σ√2)), from −λ to λ, and ∂KL/∂σ = λ√(2/π) exp(−δ²/2σ²) − 1/σ, any number up to λ√(2/π).

    Klindt et al. 2021, appendix A.2; Spec 001a, section 3.1.

    >>> slopes = gaussian_laplace_kl_slopes(0.0, np.pi / 72, 6.0)  # at the minimum
    >>> float(slopes.delta), abs(float(slopes.std)) < 1e-12
    (0.0, True)
    """
    delta, rate = finite("distances", delta), positive("a rate", rate)
    std = np.sqrt(positive("a variance", var))
    t = _standardised(delta, std)
    return Slopes(np.asarray(rate * erf(t / math.sqrt(2))), np.asarray(rate * FOLDED * np.exp(-(t**2) / 2) - 1 / std))


def collapsed_std(rate: ArrayLike, beta: ArrayLike = 1.0, gamma: ArrayLike = 10.0) -> FloatArray:
    """The standard deviation s₀ of a collapsed latent: the positive root of βs² + γλ√(2/π)s − (β + γ) = 0.

    Between 0 and √(1 + γ/β); 1 without the transition term. Klindt et al. 2021, appendix B; Spec 001a, section 3.7.

    >>> round(float(collapsed_std(6.0)), 5)
    0.22868
    """
    rate, beta = positive("a rate", rate), positive("beta", beta)
    gamma = _weight(gamma)
    pull = gamma * rate * FOLDED
    # The root written with a sum in the denominator: the usual form cancels for large pulls.
    return np.asarray(2 * (beta + gamma) / (pull + np.sqrt(pull**2 + 4 * beta * (beta + gamma))))


def collapse_threshold(
    rate: ArrayLike,
    data_rate: ArrayLike | None = None,
    beta: ArrayLike = 1.0,
    gamma: ArrayLike = 10.0,
    rec_weight: ArrayLike = 1.0,
) -> FloatArray:
    """The size κ of an observed axis x = κz below which a linear SlowVAE prunes its latent z, whose transitions are
    those of :func:`sample_sequences` at α = 1.

    κ_c² = 2s₀²[β/2 + γλ√(2/π)/(s₀λ*²)] / (c(2 + 2/λ*²)²) with s₀ of :func:`collapsed_std`, the model's rate λ, the
    data's λ* (``data_rate``, by default the model's) and the loss c‖x − x̂‖² per image + β KL of the first latent +
    γ KL of the transition. Above 0. Klindt et al. 2021, appendix B and figure 6 (about 0.4); Spec 001a, section 3.7.

    >>> round(float(collapse_threshold(6.0)), 5)
    0.39537
    """
    s0 = collapsed_std(rate, beta, gamma)
    true = positive("a rate", rate if data_rate is None else data_rate)
    weight = positive("rec_weight", rec_weight)
    pull = _weight(gamma) * np.asarray(rate, dtype=float) * FOLDED
    cost = np.asarray(beta, dtype=float) / 2 + pull / (s0 * true**2)
    return np.asarray(np.sqrt(2 * s0**2 * cost / weight) / (2 + 2 / true**2))


@dataclass(frozen=True)
class Fit:
    """The most likely generalised Laplace density of some transitions."""

    alpha: float
    location: float
    scale: float
    log_likelihood: float
    """In nats over all transitions."""
    n: int

    @property
    def rate(self) -> float:
        """λ = s^(−α)."""
        return float(rate_of_scale(self.scale, self.alpha))


def fit(deltas: ArrayLike, alpha: float | None = None, location: float | None = 0.0) -> Fit:
    """The most likely generalised Laplace density, or with ``alpha`` 1 the Laplace and with 2 the normal density.

    The scale is s = (α·mean|u − m|^α)^(1/α), so that the log-likelihood is −n(ln(2sΓ(1/α)/α) + 1/α). The location m is
    0 as in the model; None fits it too: the mean, the median, or below α = 1, where the likelihood has a cusp at each
    transition, the best transition. Many equal transitions (integers) favour ever smaller shapes; jitter them first.
    Shapes are fitted from 0.1 to 10. Klindt et al. 2021, appendix G.1; Spec 001a, section 4.4.

    >>> fitted = fit(sample(0.5, 1.0, 20_000, seed=0))
    >>> round(fitted.alpha, 1), fitted.location
    (0.5, 0.0)
    """
    u = finite("transitions", deltas).ravel()
    if len(u) < 2:
        raise ValueError(f"a fit needs at least two transitions; got {len(u)}")
    if alpha is not None:
        alpha = float(positive("a shape", alpha))
    best = _fit_at(u, alpha, float(np.median(u)) if location is None else float(finite("a location", location)))
    while location is None:  # shape and location in turn: neither step can lower the likelihood
        better = _fit_at(u, alpha, _best_location(u, best))
        if better.log_likelihood <= best.log_likelihood + 1e-7 * abs(best.log_likelihood):
            return max(best, better, key=lambda f: f.log_likelihood)
        best = better
    return best


def ks_distance(deltas: ArrayLike, fitted: Fit) -> float:
    """Kolmogorov and Smirnov's distance sup|F_n − F| of transitions and a fit: from 1/2n, a perfect fit, to 1.

    Spec 001a, section 4.4 and row NS-01. The density was fitted to the data, so the usual p-values would be too large.

    >>> ks_distance([-1.0, 1.0], Fit(alpha=1.0, location=0.0, scale=1e-3, log_likelihood=0.0, n=2))
    0.5
    """
    u = np.sort(finite("transitions", deltas).ravel())
    if not len(u):
        raise ValueError("a distance needs at least one transition; got none")
    expected = distribution((u - fitted.location) / fitted.scale, fitted.alpha, 1.0)
    ranks = np.arange(len(u) + 1) / len(u)
    return float(max((ranks[1:] - expected).max(), (expected - ranks[:-1]).max()))


def _fit_at(u: FloatArray, alpha: float | None, location: float) -> Fit:
    """The best shape, unless it is given, and scale around a location."""
    size = np.abs(u - location)
    largest = size.max()
    if largest == 0:
        raise ValueError(f"a fit needs transitions that differ from their location; got {len(u)} times {location}")
    size /= largest  # powers of numbers up to 1 do not overflow

    def best_scale(a: float) -> float:
        return float(largest * (a * np.mean(size**a)) ** (1 / a))

    def mean_nll(a: float) -> float:
        scale = best_scale(a)
        return math.log(2 * scale / a) + float(gammaln(1 / a)) + 1 / a

    if alpha is None:
        alpha = float(minimize_scalar(mean_nll, bounds=SHAPES, method="bounded", options={"xatol": 1e-6}).x)
    return Fit(alpha, location, best_scale(alpha), -len(u) * mean_nll(alpha), len(u))


def _best_location(u: FloatArray, fitted: Fit) -> float:
    """The m of least Σ|u − m|^α for the shape of a fit."""
    if fitted.alpha == 2:
        return float(u.mean())
    if fitted.alpha == 1:
        return float(np.median(u))

    def cost(m: float) -> float:
        return float(np.mean(np.abs((u - m) / fitted.scale) ** fitted.alpha))

    if fitted.alpha > 1:
        return float(minimize_scalar(cost, bounds=(u.min(), u.max()), method="bounded", options={"xatol": 1e-9}).x)
    # Every local optimum is a transition: zoom in on the best of some evenly ranked ones.
    ordered = np.sort(u)
    low, high, best = 0, len(u) - 1, 0
    while high - low > 1:
        ranks = np.unique(np.linspace(low, high, 17).round().astype(int))
        at = int(np.argmin([cost(ordered[r]) for r in ranks]))
        best, narrower = int(ranks[at]), (int(ranks[max(at - 1, 0)]), int(ranks[min(at + 1, len(ranks) - 1)]))
        if narrower == (low, high):
            break
        low, high = narrower
    return float(min((ordered[best], fitted.location), key=cost))


def _standardised(mean: FloatArray, std: FloatArray) -> FloatArray:
    """μ/σ, cut where the normal distribution is 0 or 1 in double precision so that its square cannot overflow."""
    with np.errstate(over="ignore"):
        return np.asarray(np.clip(mean / std, -50, 50))


def finite(what: str, values: ArrayLike) -> FloatArray:
    """The values as floats; an infinite value or NaN raises an error that names ``what``."""
    array = np.asarray(values, dtype=float)
    if not np.isfinite(array).all():
        raise ValueError(f"{what} must be finite numbers; got {array[~np.isfinite(array)].flat[0]} among them")
    return array


def positive(what: str, values: ArrayLike) -> FloatArray:
    """The values as floats; a value that is not finite and above 0 raises an error that names ``what``."""
    array = np.asarray(values, dtype=float)
    bad = ~((array > 0) & np.isfinite(array))
    if bad.any():
        raise ValueError(f"{what} must be a finite number above 0; got {array[bad].flat[0]}")
    return array


def _weight(gamma: ArrayLike) -> FloatArray:
    weight = finite("gamma", gamma)
    if (weight < 0).any():
        raise ValueError(f"gamma must be 0 or above; got {weight.min()}")
    return weight
