"""Principal components: the coordinate system that VAEs are compared with (Spec 003, section 1.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PCA:
    """Directions of largest variance, as columns, with these variances (divided by n − 1), largest first.

    >>> x = np.array([[2.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> fit = pca(x, 1)
    >>> fit.variances.round(4).tolist(), fit.dropped.round(4).tolist()
    ([2.6667], [0.6667])
    """

    mean: FloatArray
    directions: FloatArray
    variances: FloatArray
    dropped: FloatArray
    """Variances of the directions left out; their sum is the mean squared error of a reconstruction."""

    def encode(self, x: ArrayLike) -> FloatArray:
        return np.asarray((np.asarray(x, dtype=np.float64) - self.mean) @ self.directions)

    def decode(self, y: ArrayLike) -> FloatArray:
        return np.asarray(np.asarray(y, dtype=np.float64) @ self.directions.T + self.mean)


def pca(x: ArrayLike, components: int | None = None) -> PCA:
    """The first ``components`` (or all) principal components of data ``(n, m)``, by a singular value decomposition.

    The sign of a direction, and the choice among directions of equal variance, are arbitrary.
    """
    data = np.asarray(x, dtype=np.float64)
    if data.ndim != 2 or len(data) < 2:
        raise ValueError(f"principal components need data of shape (n, m) with n of at least 2; got {data.shape}")
    kept = data.shape[1] if components is None else components
    if not 1 <= kept <= data.shape[1]:
        raise ValueError(f"data of {data.shape[1]} columns have 1 to {data.shape[1]} components; got {components}")
    mean = data.mean(axis=0)
    _, sizes, rows = np.linalg.svd(data - mean, full_matrices=data.shape[0] < data.shape[1])
    variances = np.zeros(data.shape[1])
    variances[: len(sizes)] = sizes**2 / (len(data) - 1)
    return PCA(mean, rows[:kept].T, variances[:kept], variances[kept:])


def principal_directions(covariance: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues and eigenvectors (as columns) of a covariance, largest first."""
    ascending, vectors = np.linalg.eigh(np.asarray(covariance, dtype=np.float64))
    return ascending[::-1], vectors[:, ::-1]


def projected_variance(covariance: ArrayLike, directions: ArrayLike) -> FloatArray:
    """Variance of data of this covariance along each unit direction (a column).

    PCA maximises it. In the plane of two equal variances it is the same in every direction, so PCA has no preferred
    axes there and may rotate a square by any angle (Spec 003, experiment E3.4).

    >>> projected_variance(np.eye(2) / 12, [[1.0, 0.6], [0.0, 0.8]]).round(4).tolist()
    [0.0833, 0.0833]
    """
    along = np.asarray(directions, dtype=np.float64)
    return np.asarray((along * (np.asarray(covariance, dtype=np.float64) @ along)).sum(axis=0))
