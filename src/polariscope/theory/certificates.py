"""Certificates: distances below which no change of an image can change the decision of a generative classifier.

A classifier by synthesis has a generator for each class and predicts the class of the smallest loss
γ_c min_z {‖G_c(z) − x‖² + var ‖z‖²} + o_c. For linear generators (probabilistic PCA), prototypes (no latent variables)
and nearest neighbours the minimum is known in closed form, and so are lower bounds on the adversarial distance:

- *separate*: the worst change for the loss of the true class and the worst change for the loss of another class may
  differ (the published bound, Schott et al. 2019, section 4, with the errors of its equations 8, 13 and 14 corrected);
- *shared*: one change for both losses. For fixed codes the difference of two losses is affine in the change, or
  quadratic with a curvature γ_y − γ_c, and its worst change is known;
- *exact*: the true class may find a new code as well. By the S-lemma the L2 distance to a quadric has no duality gap.

Every bound is the value of a dual problem and holds whether or not the optimum was reached: an optimisation that stops
early makes a bound smaller, never wrong. (Spec 001b, section B5 and oracles O-B1 to O-B3.)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.theory.halfspaces import FloatArray, Norm, nearest_in_halfspace, norm_from_l2
from polariscope.theory.quadrics import ROUNDS, Quadratics, dual_distance, fewest_pixels, quadric_distance

LEVELS = 24
"""Bisections of the separate L∞ bound; each searches for the nearest point of a box."""
ROUNDING = 1e-9
PROJECTIONS = 12
"""Steps towards that point; each bisection starts from the point of the previous one."""


def separate_l2(
    own: ArrayLike,
    code: ArrayLike,
    other: ArrayLike,
    own_scale: ArrayLike = 1.0,
    other_scale: ArrayLike = 1.0,
    offset: ArrayLike = 0.0,
) -> FloatArray:
    """The published L2 bound: the smallest ε with γ_y ((r + ε)² + k) + o = γ_c max(0, d − ε)².

    ``own`` is the distance r of an image to its synthesis by the true class, ``code`` the cost k = var ‖z‖² of its
    code, ``other`` the least distance d to any image of another class, ``offset`` the difference of their constants o.
    With equal scales that is (d² − r² − k − o) / (2 (d + r)). (Spec 001b, section B5.1.)

    >>> separate_l2([0.5, np.hypot(0.5, 1)], 0.0, [3.5, np.hypot(3.5, 1)]).round(5).tolist()
    [1.5, 1.26101]
    """
    r, k, d, gy, gc, o = (
        np.asarray(a, np.float64) for a in np.broadcast_arrays(own, code, other, own_scale, other_scale, offset)
    )
    constant = gy * (r**2 + k) + o - gc * d**2
    bend, slope = gy - gc, gy * r + gc * d
    with np.errstate(invalid="ignore", divide="ignore"):
        crossing = -constant / (slope + np.sqrt(slope**2 - bend * constant))
        beyond = np.sqrt(np.maximum(-o / gy - k, 0.0)) - r  # where the loss of the other class is only its constant
    crossing = np.where(np.isnan(crossing) | (crossing > d), np.maximum(d, beyond), crossing)
    return np.where(constant >= 0, 0.0, crossing)


@dataclass(frozen=True, eq=False)
class LinearGenerators:
    """A generator G_c(z) = W_c z + b_c for each class; without latent variables a prototype for each class.

    >>> prototypes = LinearGenerators(np.zeros((2, 3, 0)), np.array([[0.0, 0, 0], [4, 0, 0]]))
    >>> x = np.array([[0.5, 1, 0]])
    >>> [float(bound.round(5)[0]) for bound in (prototypes.separate(x, [0], "l2"), prototypes.shared(x, [0], "l2"))]
    [1.26101, 1.5]
    """

    weights: FloatArray
    """``(K, N, L)``"""
    biases: FloatArray
    """``(K, N)``"""
    var: float = 0.5
    """Variance of a pixel around the generator's image."""
    scales: FloatArray = None  # type: ignore[assignment]  # ones, see __post_init__
    """γ, one for each class."""
    offsets: FloatArray = None  # type: ignore[assignment]  # zeros
    """Constants added to the loss of each class, such as −2 var log p(c)."""

    def __post_init__(self) -> None:
        weights, biases = (np.asarray(a, np.float64) for a in (self.weights, self.biases))
        if weights.ndim != 3 or biases.shape != weights.shape[:2] or len(biases) < 2:
            raise ValueError(
                f"expected weights (classes, pixels, latents) and biases (classes, pixels) of at least two classes; "
                f"got shapes {weights.shape} and {biases.shape}"
            )
        if not self.var > 0:
            raise ValueError(f"the variance of a pixel is {self.var}: it needs to be positive")
        scales = np.ones(len(biases)) if self.scales is None else np.asarray(self.scales, np.float64)
        offsets = np.zeros(len(biases)) if self.offsets is None else np.asarray(self.offsets, np.float64)
        if scales.shape != offsets.shape or scales.shape != (len(biases),) or not (scales > 0).all():
            raise ValueError(
                f"expected a positive scale and an offset for each of {len(biases)} classes; got shapes "
                f"{scales.shape} and {offsets.shape}"
            )
        for name, value in (("weights", weights), ("biases", biases), ("scales", scales), ("offsets", offsets)):
            object.__setattr__(self, name, value)

    @cached_property
    def basis(self) -> FloatArray:
        """Orthonormal directions of the image of each generator, ``(K, N, L)``; zeros where it has fewer than L."""
        return self._decomposed[0]

    @cached_property
    def shrinkage(self) -> FloatArray:
        """Share of its distance from b_c that a synthesis keeps along each direction, s² / (s² + var), ``(K, L)``."""
        return self._decomposed[1]

    @cached_property
    def _decomposed(self) -> tuple[FloatArray, FloatArray]:
        left, singular, _ = np.linalg.svd(self.weights, full_matrices=False)
        count = self.weights.shape[2]
        if left.shape[2] < count:  # more latent variables than pixels
            left = np.pad(left, ((0, 0), (0, 0), (0, count - left.shape[2])))
            singular = np.pad(singular, ((0, 0), (0, count - singular.shape[1])))
        there = singular > 1e-12 * singular.max(1, keepdims=True, initial=0.0)
        return left * there[:, None], np.where(there, singular**2 / (singular**2 + self.var), 0.0)

    def losses(self, x: ArrayLike) -> FloatArray:
        """The loss of each class for each image, ``(n, K)``; the class of the smallest loss is predicted."""
        away, along = self._placed(x)
        least = (away**2).sum(-1) - (self.shrinkage[:, None] * along**2).sum(-1)
        return (self.scales[:, None] * least + self.offsets[:, None]).T

    def syntheses(self, x: ArrayLike) -> FloatArray:
        """The image of the best code of each class, ``(n, K, N)``."""
        _, along = self._placed(x)
        made = self.biases[:, None] + (self.shrinkage[:, None] * along) @ self.basis.transpose(0, 2, 1)
        return made.transpose(1, 0, 2)

    def least_distances(self, x: ArrayLike) -> FloatArray:
        """Distance to the nearest image that the generator of each class can make with any code, ``(n, K)``."""
        away, along = self._placed(x)
        return np.linalg.norm(away - along @ self.basis.transpose(0, 2, 1), axis=-1).T

    def separate(self, x: ArrayLike, y: ArrayLike, norm: Norm, box: bool = False) -> FloatArray:
        """The published bound in L2, or in L∞ with or without the bounds of pixels in [0, 1]."""
        flat, labels = self._examples(x, y)
        own, code = self._own(flat, labels)
        gy, gc = self.scales[labels][:, None], self.scales
        offset = self.offsets[labels][:, None] - self.offsets
        if norm == "l2":
            r = np.linalg.norm(own - flat, axis=1)[:, None]
            distances = separate_l2(r, code[:, None], self.least_distances(flat), gy, gc, offset)
        elif norm == "linf":
            distances = self._separate_linf(flat, own, code, gy, gc, offset, box)
        else:
            raise ValueError(f"the separate bound is known in l2 and linf, not in {norm}: use the shared bound")
        return _nearest_other(distances, labels, self._right(flat, labels))

    def shared(
        self, x: ArrayLike, y: ArrayLike, norm: Norm, box: bool = False, channels: int = 1, rounds: int = ROUNDS
    ) -> FloatArray:
        """The bound with one change for both classes; in L0 pixels are always bounded to [0, 1]."""
        flat, labels = self._examples(x, y)
        own, _ = self._own(flat, labels)
        quadratics = self._fixed_code(flat, labels, own)
        low, high = (-flat, 1 - flat) if box or norm == "l0" else (None, None)
        if norm == "l0":
            distances = fewest_pixels(quadratics, -flat, 1 - flat, channels)
        elif not self.shrinkage.any() and not quadratics.curvature.any():  # prototypes: nothing bends
            distances = nearest_in_halfspace(2 * quadratics.slope, -quadratics.constant, norm, low, high).distance
        else:
            along = np.matmul(quadratics.slope, quadratics.basis)
            rest = np.maximum((quadratics.slope**2).sum(-1) - (along**2).sum(-1), 0.0)
            bends = quadratics.bends[:, None] + quadratics.curvature[..., None]
            length = quadric_distance(quadratics.constant, along, rest, bends, quadratics.curvature)
            if norm == "l2" and low is None:
                distances = length
            else:
                distances = dual_distance(quadratics, norm, low, high, rounds)
                if norm == "l2":
                    distances = np.maximum(distances, length)
        best = _nearest_other(distances.T, labels, self._right(flat, labels))
        if norm in ("l2", "linf"):  # the separate bound is below the shared optimum, which may not be reached
            best = np.maximum(best, self.separate(flat, labels, norm, box))
        return best

    def exact_l2(self, x: ArrayLike, y: ArrayLike) -> FloatArray:
        """The L2 distance to the nearest point of another class, without bounds on pixels."""
        flat, labels = self._examples(x, y)
        losses = self.losses(flat)
        gamma = self.scales
        away, along = self._placed(flat)
        bent = gamma[:, None, None] * (away - (self.shrinkage[:, None] * along) @ self.basis.transpose(0, 2, 1))
        distances = np.zeros((len(flat), len(gamma)))
        for own in np.unique(labels):  # the axes of a quadric depend on two classes and not on the image
            rows = labels == own
            axes, bends = self._axes(int(own))
            slope = bent[own, rows] - bent[:, rows]
            inside = np.matmul(slope, axes)
            rest = np.maximum((slope**2).sum(-1) - (inside**2).sum(-1), 0.0)
            flatness = (gamma[own] - gamma)[:, None] * np.ones((1, rows.sum()))
            constant = (losses[rows, own][:, None] - losses[rows]).T
            distances[rows] = quadric_distance(constant, inside, rest, bends[:, None], flatness).T
        return _nearest_other(distances, labels, self._right(flat, labels))

    def _axes(self, own: int) -> tuple[FloatArray, FloatArray]:
        """Principal axes of the loss of one class minus that of each other one, ``(K, N, 2L)``, and their bends."""
        gamma, shrink = self.scales, self.shrinkage
        both = np.concatenate([np.broadcast_to(self.basis[own], self.basis.shape), self.basis], axis=2)
        bends = np.concatenate([np.broadcast_to(-gamma[own] * shrink[own], shrink.shape), gamma[:, None] * shrink], 1)
        frame, corner = np.linalg.qr(both)
        value, turn = np.linalg.eigh((corner * bends[:, None]) @ corner.transpose(0, 2, 1))
        return frame @ turn, value + (gamma[own] - gamma)[:, None]

    def _fixed_code(self, flat: FloatArray, labels: NDArray[np.int64], own: FloatArray) -> Quadratics:
        """Loss of the true class with its code fixed, minus the least loss of each class."""
        gamma, losses = self.scales, self.losses(flat)
        away, along = self._placed(flat)
        rest = away - (self.shrinkage[:, None] * along) @ self.basis.transpose(0, 2, 1)
        slope = (gamma[labels][:, None] * (flat - own))[None] - gamma[:, None, None] * rest
        constant = (losses[np.arange(len(flat)), labels][:, None] - losses).T
        curvature = gamma[labels][None] - gamma[:, None]
        return Quadratics(constant, slope, curvature, self.basis, gamma[:, None] * self.shrinkage)

    def _separate_linf(
        self,
        flat: FloatArray,
        own: FloatArray,
        code: FloatArray,
        gy: FloatArray,
        gc: FloatArray,
        offset: FloatArray,
        box: bool,
    ) -> FloatArray:
        """Bisection on ε. Every plane between the box around an image and the images of a class bounds their distance
        from below, so no minimum needs to be exact."""
        apart = (own - flat)[None]
        low, high = (
            np.zeros(self.losses(flat).shape),
            np.full(self.losses(flat).shape, 1.0 if box else self._reach(flat)),
        )
        change = np.zeros((len(self.biases), *flat.shape))
        for _ in range(LEVELS):
            at = (low + high) / 2
            down, up = -at.T[..., None] * np.ones_like(flat), at.T[..., None] * np.ones_like(flat)
            if box:
                down, up = np.maximum(down, -flat), np.minimum(up, 1 - flat)
            worst = np.maximum((apart - down) ** 2, (apart - up) ** 2).sum(-1).T
            other, change = self._box_distance(flat, down, up, np.clip(change, down, up))
            holds = gy * (worst + code[:, None]) + offset < gc * other.T**2
            low, high = np.where(holds, at, low), np.where(holds, high, at)
        return low

    def _box_distance(
        self, flat: FloatArray, down: FloatArray, up: FloatArray, change: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """A lower bound on the distance between a box of changes of an image and the images of each class, ``(K, n)``,
        and the change at which it was computed."""
        away = (flat - self.biases[:, None]).astype(np.float64)

        def residual(at: FloatArray) -> FloatArray:
            moved = away + at
            return np.asarray(moved - np.matmul(np.matmul(moved, self.basis), self.basis.transpose(0, 2, 1)))

        before, pace = change, 1.0
        for _ in range(PROJECTIONS):  # accelerated projected gradient: the Lipschitz constant is 1
            after = (1 + np.sqrt(1 + 4 * pace**2)) / 2
            ahead = change + (pace - 1) / after * (change - before)
            before, pace = change, after
            change = np.clip(ahead - residual(ahead), down, up)
        normal = residual(change)
        length = np.linalg.norm(normal, axis=-1)
        reach = (normal * away).sum(-1) + np.minimum(normal * down, normal * up).sum(-1)
        # Where the box meets the images of the class, the normal is rounding error, and so is any plane along it.
        known = length > ROUNDING * (1 + np.linalg.norm(away, axis=-1))
        return np.where(known, np.maximum(reach / np.where(known, length, 1.0), 0.0), 0.0), change

    def _reach(self, flat: FloatArray) -> float:
        """An L∞ distance that reaches every prototype and every synthesis."""
        return float(np.abs(flat[:, None] - self.biases).max() + 1.0)

    def _own(self, flat: FloatArray, labels: NDArray[np.int64]) -> tuple[FloatArray, FloatArray]:
        """Synthesis by the true class, and the cost var ‖z‖² of its code."""
        rows = np.arange(len(flat))
        made = self.syntheses(flat)[rows, labels]
        least = (self.losses(flat) - self.offsets) / self.scales
        return made, np.maximum(least[rows, labels] - ((made - flat) ** 2).sum(1), 0.0)

    def _placed(self, x: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Images relative to each b_c, ``(K, n, N)``, and along the directions of each generator, ``(K, n, L)``."""
        flat = np.asarray(x, np.float64).reshape(len(np.asarray(x)), -1)
        away = flat[None] - self.biases[:, None]
        return away, np.matmul(away, self.basis)

    def _examples(self, x: ArrayLike, y: ArrayLike) -> tuple[FloatArray, NDArray[np.int64]]:
        flat = np.asarray(x, np.float64).reshape(len(np.asarray(x)), -1)
        labels = np.asarray(y).astype(np.int64).reshape(-1)
        if flat.shape[1] != self.biases.shape[1] or labels.shape != flat.shape[:1]:
            raise ValueError(
                f"expected images of {self.biases.shape[1]} pixels with a class each; got {len(flat)} images of "
                f"{flat.shape[1]} pixels and {len(labels)} classes"
            )
        if len(labels) and not (labels.min() >= 0 and labels.max() < len(self.biases)):
            raise ValueError(f"expected classes from 0 to {len(self.biases) - 1}; got {labels.min()} to {labels.max()}")
        return flat, labels

    def _right(self, flat: FloatArray, labels: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.asarray(self.losses(flat).argmin(1) == labels)


def _nearest_other(distances: FloatArray, labels: NDArray[np.int64], right: NDArray[np.bool_]) -> FloatArray:
    """The smallest bound over the other classes; 0 for images that are already misclassified."""
    others = np.where(np.arange(distances.shape[1]) == labels[:, None], np.inf, distances)
    return np.where(right, np.maximum(others.min(1), 0.0), 0.0)


def neighbour_distances(
    own: ArrayLike, others: ArrayLike, norm: Norm = "l2", room: ArrayLike | None = None, channels: int = 1
) -> FloatArray:
    """The certificate of a nearest-neighbour classifier from distances alone: (d_other − d_own) / 2 in L2.

    In other norms it is the size of the smallest change of that L2 length in which no pixel changes by more than its
    ``room``.

    >>> neighbour_distances([1.0], [3.0]).tolist()
    [1.0]
    """
    length = np.maximum((np.asarray(others, np.float64) - np.asarray(own, np.float64)) / 2, 0.0)
    if norm == "l2":
        return length
    if room is None:
        raise ValueError(f"an L2 distance bounds {norm} only if the changes of pixels are bounded: pass room")
    return norm_from_l2(length, room, norm, channels)
