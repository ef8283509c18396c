"""Checks of a manipulation: what it must preserve, and what it should change.

Factors must be as recoverable afterwards as before, and no two combinations of factors may give the same observation.
The global structure should stay while the local structure changes: the principal components of the data stay aligned
with the factors, but the directions in which neighbouring observations differ most do not (Spec 003, sections 4.7 and
4.8). Rakowski and Lippert proposed the discrepancy between the two as a predictor of disentanglement.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import KDTree
from sklearn.decomposition import PCA
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from torch import Tensor

from polariscope.examination.jacobians import decoder_grams
from polariscope.manipulation.manipulation import in_units, standardised
from polariscope.measures.neighbour_score import neighbour_score
from polariscope.measures.orthogonality import distance_to_orthogonality
from polariscope.worlds.factors import Factor
from polariscope.worlds.splits import three_parts
from polariscope.worlds.world import World, sample

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Preservation:
    """How well the factors can be predicted from the observations before and after, and whether observations became
    equal."""

    names: tuple[str, ...]
    before: tuple[float, ...]
    """For each factor: R² of a regression or accuracy of a classification by nearest neighbours."""
    after: tuple[float, ...]
    collisions_before: int
    """Number of observations that are identical to an observation with different factors."""
    collisions_after: int
    samples: int

    @property
    def injective(self) -> bool:
        """Whether the manipulation made no observations with different factors equal."""
        return self.collisions_after <= self.collisions_before

    @property
    def largest_loss(self) -> float:
        """The largest loss of any factor; 0 or less if all are as recoverable as before."""
        return max(b - a for b, a in zip(self.before, self.after, strict=True))


def preservation(original: World, altered: World, count: int = 5000, k: int = 5, seed: int = 0) -> Preservation:
    """Compare two worlds with the same factors, on the same ``count`` observations."""
    if len(original) != len(altered) or original.factors != altered.factors:
        raise ValueError("preservation needs a world and its manipulated version: the same observations and factors")
    x, factors, index = sample(original, count, seed)
    y = altered.observe(index)
    before, after = (factor_recovery(z, factors, original.factors, k, seed) for z in (x, y))
    names = tuple(factor.name for factor in original.factors)
    return Preservation(names, before, after, collisions(x, factors), collisions(y, factors), len(x))


def factor_recovery(
    observations: NDArray[Any], factors: NDArray[Any], kinds: tuple[Factor, ...], k: int = 5, seed: int = 0
) -> tuple[float, ...]:
    """For each factor the accuracy (categorical) or R² (others) of the k nearest neighbours, with 80 % for training
    and 20 % for testing."""
    x = observations.reshape(len(observations), -1).astype(np.float32)
    if len(x) < 5 * k:
        raise ValueError(f"predicting factors from {k} neighbours needs at least {5 * k} observations; got {len(x)}")
    trained, _, tested = three_parts(len(x), seed, (0.8, 0.0, 0.2))

    def score(column: NDArray[Any], factor: Factor) -> float:
        model = (KNeighborsClassifier if factor.kind == "categorical" else KNeighborsRegressor)(n_neighbors=k)
        return float(model.fit(x[trained], column[trained]).score(x[tested], column[tested]))

    return tuple(score(factors[:, j], factor) for j, factor in enumerate(kinds))


def collisions(observations: NDArray[Any], factors: NDArray[Any]) -> int:
    """The number of observations that are identical to another observation with different factors.

    >>> collisions(np.array([[1.0], [1.0], [2.0], [2.0]]), np.array([[0], [1], [2], [2]]))
    2
    """
    look, cause = _groups(observations), _groups(factors)
    pairs = np.unique(np.column_stack([look, cause]), axis=0)
    causes_of = np.bincount(pairs[:, 0])
    return int((causes_of[look] > 1).sum())


def _groups(rows: NDArray[Any]) -> NDArray[np.int64]:
    """A number for each row; equal rows have equal numbers."""
    flat = np.ascontiguousarray(rows.reshape(len(rows), -1))
    whole = flat.view(np.dtype((np.void, flat.dtype.itemsize * flat.shape[1]))).ravel()
    return np.unique(whole, return_inverse=True)[1].astype(np.int64)


def pca_score(world: World, count: int = 5000, seed: int = 0) -> float:
    """Disentanglement score of the first principal components, as many as there are factors, between 0 and 1.

    This is the score of a linear method. It should not fall if only local structure was changed.
    """
    x, factors, _ = sample(world, count, seed)
    flat = x.reshape(len(x), -1).astype(np.float64)
    components = min(len(world.factors), flat.shape[1], len(flat) - 1)
    codes = PCA(components, svd_solver="full" if flat.shape[1] <= 500 else "randomized", random_state=seed)
    categorical = [factor.kind == "categorical" for factor in world.factors]
    return float(neighbour_score(codes.fit_transform(flat), factors, categorical=categorical, seed=seed).value)


@dataclass(frozen=True, eq=False)
class LocalGlobal:
    """The directions of factors (or latents) along which observations vary most, locally and globally.

    Directions are columns, the most varying first. Angles are in degrees, from 0 to 90.
    """

    local: Floats
    global_: Floats
    local_variance: Floats
    """Eigenvalues of the mean local metric."""
    global_variance: Floats

    @property
    def local_angle(self) -> float:
        """Angle between the first local direction and the nearest axis."""
        return _to_axis(self.local)

    @property
    def global_angle(self) -> float:
        """Angle between the first global direction and the nearest axis."""
        return _to_axis(self.global_)

    @property
    def between(self) -> float:
        """Angle between the first local and the first global direction."""
        return float(np.degrees(np.arccos(np.clip(abs(self.local[:, 0] @ self.global_[:, 0]), 0, 1))))

    @property
    def local_distance(self) -> float:
        """Distance of the local directions from the axes (0 if every direction is an axis)."""
        return float(distance_to_orthogonality(self.local))

    @property
    def global_distance(self) -> float:
        """Distance of the global directions from the axes."""
        return float(distance_to_orthogonality(self.global_))

    def describe(self) -> dict[str, float]:
        names = ("local_angle", "global_angle", "between", "local_distance", "global_distance")
        return {name: getattr(self, name) for name in names}


def local_global(world: World, centres: int = 300, neighbours: int | None = None, seed: int = 0) -> LocalGlobal:
    """Compare the local with the global structure of a data set, in its (standardised) factors.

    Globally, observations are regressed on all factors. Locally, they are regressed on the factors of the nearest
    ``neighbours`` in factor space (grid steps for discrete factors; by default four per factor), at ``centres``
    observations, and the metric JᵀJ is averaged. Noise in the observations adds the same amount to every direction.
    """
    if not world.factors:
        raise ValueError("comparing local and global structure needs a world with factors, and this world has none")
    everything = world.factors_of(np.arange(len(world))).astype(np.float64)
    mean, spread = standardised(world)
    steps = np.array([1.0 if factor.size else s for factor, s in zip(world.factors, spread, strict=True)])
    near = min(neighbours or 4 * len(steps), len(everything) - 1)
    picked = sample(world, centres, seed)[2]
    index = KDTree(everything / steps).query(everything[picked] / steps, k=near + 1)[1]
    w = ((everything - mean) / spread)[index]
    x = in_units(world.observe(index.ravel())).reshape(*index.shape, -1)
    w, x = w - w.mean(axis=1, keepdims=True), x - x.mean(axis=1, keepdims=True)
    slopes = np.linalg.pinv(w) @ x
    local = (slopes @ slopes.swapaxes(1, 2)).mean(axis=0)
    seen, factors, _ = sample(world, 5000, seed)
    return _compared(local, (factors - mean) / spread, in_units(seen).reshape(len(seen), -1))


def local_global_of_decoder(decode: Callable[[Tensor], Tensor], z: Tensor) -> LocalGlobal:
    """The same comparison for a decoder (``model.generate``), in its latents, at codes ``z`` (posterior means)."""
    with torch.no_grad():
        local = decoder_grams(decode, z).mean(0).numpy()
        x = decode(z).flatten(1).cpu().numpy()
    return _compared(local, z.cpu().numpy(), x)


def _compared(local: Floats, w: ArrayLike, x: ArrayLike) -> LocalGlobal:
    w, x = np.asarray(w, dtype=np.float64), np.asarray(x, dtype=np.float64)
    slopes = np.linalg.pinv(w - w.mean(axis=0)) @ (x - x.mean(axis=0))
    (near, directions), (far, axes) = (np.linalg.eigh(metric) for metric in (local, slopes @ slopes.T))
    return LocalGlobal(directions[:, ::-1], axes[:, ::-1], near[::-1], far[::-1])


def _to_axis(directions: Floats) -> float:
    return float(np.degrees(np.arccos(np.clip(np.abs(directions[:, 0]).max(), 0, 1))))
