"""Why sparse transitions identify the latents: the likelihood that a rotation costs, and the steps of the proof.

A model that rotates latents whose transitions have the density of :mod:`polariscope.theory.transitions` loses
likelihood below α = 2, and none at α = 2. Klindt, Schott, Sharma and others, Towards nonlinear disentanglement in
natural data with temporal sparse coding (2021); Spec 001a, section 2.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln

from polariscope.theory.transitions import FloatArray, Map, finite, positive


def rotation_excess_nll(theta: ArrayLike, alpha: ArrayLike = 1.0) -> FloatArray:
    """The cost per transition, in nats, of two latents rotated by θ (radians): λE‖R(θ)u‖_α^α − λE‖u‖_α^α.

    It is a KL divergence, so 0 or above, the same for every rate, and 0 at multiples of a right angle. At α = 1 it is
    2(1 + sc)/(s + c) − 2 with s = |sin θ|, c = |cos θ|, at most 0.1213 (45°); at α = 2 it is 0 for every angle, and so
    Gaussian transitions identify nothing. For any other shape it is one integral over the direction of u, accurate to
    about 1e-12 for shapes from 0.2. Klindt et al. 2021, section 3.2 and appendix F.3; Spec 001a, section 2.2.

    >>> rotation_excess_nll(np.radians([0, 15, 45])).round(6).tolist()
    [0.0, 0.041241, 0.12132]
    >>> round(float(rotation_excess_nll(np.pi / 4, alpha=0.5)), 2)
    0.52
    """
    theta, alpha = np.broadcast_arrays(finite("angles", theta), positive("a shape", alpha))
    past = np.mod(theta, np.pi / 2)
    angle = np.minimum(past, np.pi / 2 - past)
    sine, cosine = np.sin(angle), np.cos(angle)
    laplace = 4 * (1 - sine) * np.sin(angle / 2) ** 2 / (sine + cosine)  # 2(1−s)(1−c)/(s+c), no cancellation near 0
    return np.where(alpha == 1, laplace, 2 * (_rotated_moment(angle, alpha) - 1 / alpha))


def empirical_excess_nll(deltas: ArrayLike, matrix: ArrayLike, alpha: float = 1.0, rate: float = 1.0) -> FloatArray:
    """For each transition (a row) the NLL in nats of ``matrix @ u`` less that of u, under exp(−λ‖u‖_α^α).

    Its mean over transitions of the model estimates :func:`rotation_excess_nll` in any number of dimensions; single
    values may be below 0. The matrix must preserve volumes, as orthogonal ones do: there is no log-determinant. Klindt
    et al. 2021, section 3.2; Spec 001a, section 2.2.

    >>> swap = [[0, -1], [1, 0]]
    >>> empirical_excess_nll([[1.0, 2.0]], swap).tolist()
    [0.0]
    """
    u, q = finite("transitions", deltas), _square(matrix)
    if u.ndim != 2 or u.shape[1] != len(q):
        raise ValueError(f"transitions need rows of {len(q)} latents, as many as the matrix has; got shape {u.shape}")
    alpha, rate = float(positive("a shape", alpha)), float(positive("a rate", rate))
    return np.asarray(rate * ((np.abs(u @ q.T) ** alpha).sum(axis=1) - (np.abs(u) ** alpha).sum(axis=1)))


def column_lengths(matrix: ArrayLike, alpha: float = 1.0) -> FloatArray:
    """‖v_k‖_α = (Σ_i |v_ik|^α)^(1/α) of each column: for orthogonal matrices and α < 2 at least 1, and 1 only for ±e_j.

    Klindt et al. 2021, appendix A.1; Spec 001a, section 2.2, step 5.

    >>> half = np.sqrt(0.5)
    >>> column_lengths([[half, -half], [half, half]]).round(6).tolist()
    [1.414214, 1.414214]
    """
    alpha = float(positive("a shape", alpha))
    return np.asarray((np.abs(_square(matrix)) ** alpha).sum(axis=0) ** (1 / alpha))


def is_signed_permutation(matrix: ArrayLike, alpha: float = 1.0, tolerance: float = 1e-6) -> bool:
    """Whether a matrix is orthogonal with columns of ℓ_α length 1: for α < 2, only signed permutations are.

    A model whose pairs are distributed as the true ones recovers the latents up to a signed permutation. Entries up to
    ``tolerance`` count as 0, since small shapes magnify rounding. Klindt et al. 2021, appendix A.1; Spec 001a,
    section 2.2, step 5 and remark (b).

    >>> is_signed_permutation([[0, -1], [1, 0]]), is_signed_permutation([[0.8, -0.6], [0.6, 0.8]])
    (True, False)
    """
    if not 0 < alpha < 2:
        raise ValueError(f"the test needs a shape between 0 and 2, at 2 every orthogonal matrix passes; got {alpha}")
    if not 0 < tolerance < 0.1:
        raise ValueError(f"a tolerance for entries that should be 0 lies between 0 and 0.1; got {tolerance}")
    q = _square(matrix)
    if np.abs(q.T @ q - np.eye(len(q))).max() > 2 * tolerance:
        return False
    clean = np.where(np.abs(q) <= tolerance, 0, q)
    clean /= np.sqrt((clean**2).sum(axis=0))
    least = tolerance**alpha - alpha / 2 * tolerance**2  # what one entry just above the tolerance adds to the sum
    return bool((column_lengths(clean, alpha) ** alpha - 1).max() < least / 2)


@dataclass(frozen=True)
class ProofSteps:
    """How far a map of latents violates each property that the proof shows for h; 0 for a signed permutation."""

    two_norm: float
    """The largest change of ‖z‖²."""
    alpha_distance: float
    """The largest change of ‖z − z'‖_α^α."""
    log_volume: float
    """The largest |ln |det J||, with J by central differences: up to 1e-8 is rounding."""


def proof_steps(h: Map, before: ArrayLike, after: ArrayLike, alpha: float = 1.0) -> ProofSteps:
    """The steps of the identifiability proof on pairs of latents (n, dims): h preserves ‖z‖, ‖z − z'‖_α^α and volumes.

    Rotations preserve the first and the last, and change the second unless α = 2. Klindt et al. 2021, appendix A.1;
    Spec 001a, section 2.2, steps 3 and 4. Each number is 0 or above.

    >>> quarter = np.array([[0.0, -1.0], [1.0, 0.0]])
    >>> proof_steps(lambda z: z @ quarter.T, [[1.0, 2.0]], [[0.0, 5.0]]).alpha_distance
    0.0
    """
    z, w = finite("latents", before), finite("latents", after)
    if z.ndim != 2 or z.shape != w.shape or not z.size:
        raise ValueError(f"latents come in two arrays of the same shape (n, dims); got {z.shape} and {w.shape}")
    alpha = float(positive("a shape", alpha))
    hz, hw = h(z), h(w)
    if hz.shape != z.shape:
        raise ValueError(f"h must return latents of the same shape, {z.shape}; got {hz.shape}")

    def distance(a: FloatArray, b: FloatArray) -> FloatArray:
        return np.asarray((np.abs(a - b) ** alpha).sum(axis=1))

    step = 1e-5
    columns = [(h(z + step * e) - h(z - step * e)) / (2 * step) for e in np.eye(z.shape[1])]
    log_volume = np.linalg.slogdet(np.stack(columns, axis=-1)).logabsdet
    return ProofSteps(
        float(np.abs((hz**2).sum(axis=1) - (z**2).sum(axis=1)).max()),
        float(np.abs(distance(hw, hz) - distance(w, z)).max()),
        float(np.abs(log_volume).max()),
    )


class Identifies(NamedTuple):
    """Which theory covers a shape."""

    contrastive: bool
    """Permutation-contrastive learning, up to a function of each latent: (ln p)'' < 0, so α > 1."""
    sparse: bool
    """Temporal sparse coding, up to order and signs: α < 2."""


def log_density_curvature(u: ArrayLike, alpha: ArrayLike, rate: ArrayLike) -> FloatArray:
    """(ln p)''(u) = −λα(α − 1)|u|^(α−2) for u ≠ 0: below 0 for α > 1, 0 for Laplace, above 0 for α < 1.

    Klindt et al. 2021, appendix F.1.1; Spec 001a, section 2.2.

    >>> float(log_density_curvature(3.0, 2.0, 0.5))
    -1.0
    """
    u = finite("transitions", u)
    if not u.all():
        raise ValueError("the log density has a cusp at 0 for shapes below 2: compute its curvature elsewhere")
    alpha, rate = positive("a shape", alpha), positive("a rate", rate)
    return np.asarray(-rate * alpha * (alpha - 1) * np.abs(u) ** (alpha - 2))


def identifies(alpha: float) -> Identifies:
    """Which of the two identifiability theorems covers a shape: contrastive α > 1, sparse α < 2.

    Klindt et al. 2021, appendix F.1.1 (which writes the density's second derivative but means the log density's);
    Spec 001a, section 2.2.

    >>> identifies(0.5)
    Identifies(contrastive=False, sparse=True)
    """
    alpha = float(positive("a shape", alpha))
    return Identifies(alpha > 1, alpha < 2)


def _rotated_moment(angle: FloatArray, alpha: FloatArray) -> FloatArray:
    """E|X cos θ + Y sin θ|^α for X and Y of unit scale and θ from 0 to 45°.

    The radius integrates to Γ(1 + 2/α)/α · (|cos φ|^α + |sin φ|^α)^−(1+2/α). The direction φ remains, on half a circle
    in three pieces between the zeros of cos φ, sin φ and cos(φ − θ), where the integrand may have cusps. The tanh-sinh
    nodes crowd there, and each sine is computed from the distance to its zero, for precision.
    """
    grid = np.arange(-56, 57) / 16
    left, right = 1 / (1 + np.exp(-np.pi * np.sinh(grid))), 1 / (1 + np.exp(np.pi * np.sinh(grid)))
    weight = np.pi * np.cosh(grid) * left * right / 16
    t, a = angle[..., None], alpha[..., None]
    rest = np.pi / 2 - t

    def piece(width: FloatArray | float, sine: FloatArray, cosine: FloatArray, seen: FloatArray) -> FloatArray:
        across = (sine**a + cosine**a) ** -(1 + 2 / a)
        return np.asarray((width * weight * seen**a * across).sum(axis=-1))

    first, second = np.sin(np.pi / 2 * left), np.sin(np.pi / 2 * right)
    total = (
        piece(np.pi / 2, first, second, np.cos(np.pi / 2 * left - t))
        + piece(t, np.cos(t * left), np.sin(t * left), np.sin(t * right))
        + piece(rest, np.sin(rest * right), np.cos(rest * right), np.sin(rest * left))
    )
    constant = np.exp(gammaln(1 + 2 / alpha) - 2 * gammaln(1 / alpha)) * alpha / 2
    return np.asarray(constant * total)


def _square(matrix: ArrayLike) -> FloatArray:
    array = finite("a matrix", matrix)
    if array.ndim != 2 or array.shape[0] != array.shape[1] or not array.size:
        raise ValueError(f"expected a square matrix of latents by latents; got shape {array.shape}")
    return array
