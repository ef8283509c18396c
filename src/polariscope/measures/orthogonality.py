"""Are the columns of the decoder's Jacobian orthogonal? If so, the VAE has preferred axes locally.

With J = UΣVᵀ, the latents are the principal axes of the local decoder exactly if V is a signed permutation. The
distance to orthogonality is the distance of V from the nearest signed permutation (Spec 003, section 3.1; Rolinek,
Zietlow and Martius 2019). The theory assumes the polarised regime, so the error of this assumption is measured here,
too. The functions take arrays or tensors; :mod:`polariscope.examination.jacobians` starts from a decoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, linear_sum_assignment, milp

from polariscope.measures.information import FloatArray, as_array, observations
from polariscope.measures.measure import Measure, Undefined, measures
from polariscope.representation import Representation
from polariscope.theory.orthogonal_noise import gram_gap
from polariscope.theory.polarised_regime import Criterion, active_units, kl_approximation_error

Index = NDArray[np.intp]


def nearest_signed_permutation(v: ArrayLike) -> FloatArray:
    """The signed permutation nearest to each orthogonal matrix (..., d, d), in the entrywise L¹ and L² norms alike.

    Σ|V−P| = Σ|V| + d − 2 Σ_i |V_iπ(i)|, so it is the assignment of rows to columns with the largest Σ_i |V_iπ(i)|.

    >>> nearest_signed_permutation([[0.6, -0.8], [0.8, 0.6]]).tolist()
    [[0.0, -1.0], [1.0, 0.0]]
    """
    matrices, shape = _orthogonal(v)
    columns = _assignment(np.abs(matrices))[..., None]
    signs = np.where(np.take_along_axis(matrices, columns, axis=2) < 0, -1.0, 1.0)
    nearest = np.zeros_like(matrices)
    np.put_along_axis(nearest, columns, signs, axis=2)
    return nearest.reshape(shape)


def nearest_signed_permutation_milp(v: ArrayLike) -> FloatArray:
    """:func:`nearest_signed_permutation` by the mixed-integer program of the publication: a slow reference.

    Minimise ΣD over binary P⁺, P⁻ and real D with |P⁺ − P⁻ − V| ≤ D, one entry of P⁺ + P⁻ in each row and column.
    """
    target = np.asarray(as_array(v), dtype=np.float64)
    if target.ndim != 2 or target.shape[0] != target.shape[1]:
        raise ValueError(f"the program takes one square matrix; got shape {target.shape}")
    d, cells = len(target), target.size
    one, none = sparse.eye_array(cells), sparse.csr_array((d, cells))
    lines = [sparse.kron(sparse.eye_array(d), np.ones((1, d))), sparse.kron(np.ones((1, d)), sparse.eye_array(d))]
    constraints = [
        LinearConstraint(sparse.hstack([one, -one, -one]), -np.inf, target.ravel()),
        LinearConstraint(sparse.hstack([-one, one, -one]), -np.inf, -target.ravel()),
        *(LinearConstraint(sparse.hstack([line, line, none]), 1, 1) for line in lines),
    ]
    result = milp(
        np.repeat([0.0, 0.0, 1.0], cells),
        integrality=np.repeat([1, 1, 0], cells),
        bounds=Bounds(0, np.repeat([1.0, 1.0, np.inf], cells)),
        constraints=constraints,
    )
    if result.x is None:
        raise ValueError(f"the solver found no matching ({result.message}): use nearest_signed_permutation")
    plus, minus = np.rint(result.x[: 2 * cells]).reshape(2, d, d)
    return np.asarray(plus - minus)


def distance_to_orthogonality(v: ArrayLike) -> FloatArray:
    """‖V − P(V)‖_F of orthogonal matrices V (..., d, d), P(V) the nearest signed permutation (Spec 003, section 3.1).

    Range [0, √(2d−2)]: 0 for a signed permutation, about :func:`haar_distance` for a random orientation. Invariant to
    signed permutations of rows and columns. Known bias: it grows with d, so compare it at equal d, or with chance.

    >>> turn = np.array([[np.cos(0.1), -np.sin(0.1)], [np.sin(0.1), np.cos(0.1)]])
    >>> round(float(distance_to_orthogonality(turn)), 6)   # 2√2 sin(0.05)
    0.141362
    """
    matrices, shape = _orthogonal(v)
    return _distance(np.abs(matrices))[0].reshape(shape[:-2])


def _distance(size: FloatArray) -> tuple[FloatArray, Index]:
    """Distances of matrices with entries of these absolute values, and the column matched with each row."""
    columns = _assignment(size)
    # Computed from the entries, because 2d − 2Σ loses half of the digits of a small distance.
    rest = size.copy()
    matched = columns[..., None]
    np.put_along_axis(rest, matched, 1 - np.take_along_axis(size, matched, axis=2), axis=2)
    return np.linalg.norm(rest, axis=(1, 2)), columns


def _assignment(weight: FloatArray) -> Index:
    """The column of each row (n, d) in the heaviest matching of each (n, d, d).

    If the best columns of all rows form a permutation, it is the heaviest matching; likewise for the best rows of all
    columns. This solves nearly aligned matrices at once; the others are solved one by one.
    """
    columns = weight.argmax(axis=2)
    open_ = np.flatnonzero(~_are_permutations(columns))
    rows = weight[open_].argmax(axis=1)
    settled = _are_permutations(rows)
    columns[open_[settled]] = np.argsort(rows[settled], axis=1)
    for i in open_[~settled]:
        columns[i] = linear_sum_assignment(weight[i], maximize=True)[1]
    return columns


def _are_permutations(indices: Index) -> NDArray[np.bool_]:
    return np.asarray((np.sort(indices, axis=1) == np.arange(indices.shape[1])).all(axis=1))


def _orthogonal(v: ArrayLike) -> tuple[FloatArray, tuple[int, ...]]:
    """``v`` as (n, d, d), and its own shape; matrices that are not orthogonal are refused."""
    values = np.asarray(as_array(v), dtype=np.float64)
    if values.ndim < 2 or values.shape[-1] != values.shape[-2] or not values.size:
        raise ValueError(f"v needs orthogonal matrices of shape (..., d, d); got {values.shape}")
    matrices = values.reshape(-1, *values.shape[-2:])
    off = np.abs(np.swapaxes(matrices, 1, 2) @ matrices - np.eye(values.shape[-1])).max()
    if not off < 1e-3:
        raise ValueError(f"v is not orthogonal (VᵀV differs from I by {off:.2g}): pass Jacobians to orthogonality()")
    return matrices, values.shape


@dataclass(frozen=True, eq=False)
class Orthogonality:
    """How orthogonal a decoder's columns are, sample by sample."""

    distance: FloatArray
    """Distance to orthogonality of each sample (n,)."""
    singular_values: FloatArray
    """Singular values of the Jacobians, largest first (n, d)."""
    directions: Index
    """The singular direction nearest to each latent (n, d): 0 is the strongest."""
    degenerate: NDArray[np.bool_]
    """Samples with equal singular values, whose directions, and so the distance, are arbitrary (n,)."""
    grams: FloatArray
    """JᵀJ of the examined latents (n, d, d)."""
    active: Index
    """The examined latents (d,)."""

    @property
    def value(self) -> float:
        """The mean over samples, which is the published number."""
        return float(self.distance.mean())

    @property
    def samples(self) -> int:
        return len(self.distance)

    @property
    def degenerate_share(self) -> float:
        """The share of samples whose distance is arbitrary; if it is large, use :meth:`gap`."""
        return float(self.degenerate.mean())

    def quantiles(self, q: Sequence[float] = (0.05, 0.25, 0.5, 0.75, 0.95)) -> FloatArray:
        return np.quantile(self.distance, q)

    def gap(self, noise_var: float = 0.0) -> FloatArray:
        """The loss of a diagonal posterior at each sample, in nats (``theory.orthogonal_noise.orthogonality_gap``)."""
        if not noise_var >= 0:
            raise ValueError(f"noise_var needs to be at least 0; got {noise_var}")
        return gram_gap(self.grams + noise_var * np.eye(len(self.active)))


def orthogonality(jacobians: ArrayLike, active: ArrayLike | None = None, tolerance: float = 1e-6) -> Orthogonality:
    """Distance to orthogonality of decoder Jacobians (n, m, d), or of one (m, d), with the quantities behind it.

    ``active`` selects the latents to examine, by a mask or by numbers. The columns of passive latents are nearly 0, so
    their directions are arbitrary: leave them out (see ``theory.polarised_regime.active_units``). By default only
    latents that the decoder ignores at every sample are left out. Invariant to rotations of the data, to a common
    scale, and to signed permutations of the latents. A distance of 0 means that the columns are orthogonal, not that
    they correspond to the factors.

    >>> result = orthogonality([[4.0, 1.0], [-3.0, 1.0], [5.0, -1.0]])
    >>> round(result.value, 6), result.singular_values.round(4).tolist(), result.directions.tolist()
    (0.119181, [[7.0949, 1.6316]], [[0, 1]])
    """
    values = np.asarray(as_array(jacobians), dtype=np.float64)
    if values.ndim not in (2, 3):
        raise ValueError(f"jacobians need shape (samples, outputs, latents) or (outputs, latents); got {values.shape}")
    return orthogonality_of_grams(np.swapaxes(values, -1, -2) @ values, active, tolerance)


def orthogonality_of_grams(grams: ArrayLike, active: ArrayLike | None = None, tolerance: float = 1e-6) -> Orthogonality:
    """:func:`orthogonality` from JᵀJ (n, d, d), which is sufficient and much smaller.

    A sample is degenerate if two squared singular values differ by less than ``tolerance`` times the largest: float32
    Jacobians do not determine their directions.
    """
    whole = np.asarray(as_array(grams), dtype=np.float64)
    whole = whole[None] if whole.ndim == 2 else whole
    if whole.ndim != 3 or whole.shape[1] != whole.shape[2] or not whole.size:
        raise ValueError(f"grams need shape (samples, latents, latents); got {whole.shape}")
    if not np.isfinite(whole).all():
        raise ValueError("the Jacobians contain NaN or infinity: check the decoder and the codes")
    keep = _chosen(whole, active)
    chosen = whole[:, keep[:, None], keep]
    ascending, vectors = np.linalg.eigh(chosen)
    squares = np.maximum(ascending[:, ::-1], 0)
    distance, directions = _distance(np.abs(vectors[:, :, ::-1]))
    narrowest = -np.diff(squares, axis=1).max(axis=1, initial=-np.inf)
    return Orthogonality(
        distance=distance,
        singular_values=np.sqrt(squares),
        directions=directions,
        degenerate=narrowest <= tolerance * squares[:, 0],
        grams=chosen,
        active=keep,
    )


def _chosen(grams: FloatArray, active: ArrayLike | None) -> Index:
    """Numbers of the latents to examine: the given ones, or all with a column that is not zero at every sample."""
    if active is None:
        squares = np.diagonal(grams, axis1=1, axis2=2).max(axis=0)
        keep = np.flatnonzero(squares > 1e-12 * squares.max())
    else:
        named = as_array(active)
        keep = np.flatnonzero(named) if named.dtype == bool else named.astype(np.intp)
        latents = grams.shape[1]
        if (named.dtype == bool and named.shape != (latents,)) or not np.isin(keep, np.arange(latents)).all():
            raise ValueError(f"active needs a mask of {latents} latents, or their numbers; got {named.tolist()}")
    if not keep.size:
        raise ValueError("no latent is active, so there is no orientation to measure")
    return keep


@dataclass(frozen=True)
class HaarReference:
    """The distance to orthogonality of random orientations: that of a model without preferred axes."""

    dimension: int
    mean: float
    std: float
    """Standard deviation of the distance of a single matrix."""
    draws: int
    """Number of matrices of the estimate; 0 if it is exact."""


def haar_distance(dimension: int, draws: int = 2000, seed: int | np.random.Generator = 0) -> HaarReference:
    """Mean and standard deviation over orthogonal matrices drawn uniformly; exact up to two dimensions.

    >>> reference = haar_distance(2)
    >>> round(reference.mean, 6), round(reference.std, 6)
    (0.54826, 0.313282)
    """
    if dimension == 1:
        return HaarReference(1, 0.0, 0.0, 0)
    if dimension == 2:  # 2√2 sin(φ/2) for φ uniform between 0 and 45°
        mean = 16 * np.sqrt(2) / np.pi * (1 - np.cos(np.pi / 8))
        return HaarReference(2, float(mean), float(np.sqrt(4 - 8 * np.sqrt(2) / np.pi - mean**2)), 0)
    if draws < 2:
        raise ValueError(f"draws is {draws}: a mean and a standard deviation need at least 2")
    distance = distance_to_orthogonality(random_orientations(draws, dimension, seed))
    return HaarReference(dimension, float(distance.mean()), float(distance.std(ddof=1)), draws)


def random_orientations(count: int, dimension: int, seed: int | np.random.Generator = 0) -> FloatArray:
    """Orthogonal matrices (count, dimension, dimension), drawn uniformly (Haar) up to the signs of their columns."""
    if count < 1 or dimension < 1:
        raise ValueError(f"count and dimension need to be at least 1; got {count} and {dimension}")
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(count, dimension, dimension)))[0]


@measures.register("polarised-kl-error")
@dataclass(frozen=True)
class PolarisedKLError(Measure):
    """Share of the KL that the polarised approximation neglects; if it is small, the theory of orthogonal decoders
    applies."""

    criterion: Criterion = "mean"
    """What counts as a latent in use: means that vary (mean), or posteriors narrower than the prior (variance)."""

    title = "Polarised KL error"
    needs = ("var",)
    higher_is_better = False
    invariant_to = ("permutation", "sign")

    def __call__(self, representation: Representation) -> float:
        rep = representation
        if rep.prior_mean is not None or rep.prior_var is not None:
            raise Undefined("the polarised KL is that of a standard normal prior; this model has a conditional one")
        assert rep.var is not None
        mean, var = observations(rep.mean, "mean"), observations(rep.var, "var")
        return kl_approximation_error(mean, var, active_units(mean, var, self.criterion))
