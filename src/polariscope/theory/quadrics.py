"""Lower bounds on the distance of an image to a region bounded by a quadric, in L2, L∞ and L0, with or without a box.

The region is where f(δ) = δᵀPδ + 2 qᵀδ + c is at least 0, with c < 0. P is a matrix of low rank plus a multiple of the
identity, which makes every step linear in the number of pixels. A bound is the value of a dual problem at some
multipliers and holds for any multipliers; better ones make it larger.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from polariscope.theory.halfspaces import FloatArray, Norm, by_pixel, nearest_in_halfspace

ROUNDS = 40
"""Steps of the ascent on multipliers."""
DAMPING = 0.1
HALVINGS = 60
NEAR = -32.0
"""Logarithm of the least distance of the multiplier from an eigenvalue of P."""
BLENDS = (1.0, 1.1, 1.3, 1.6, 2.0)
"""Factors tried on the amount that makes multipliers dominate P; the best is kept."""
TOUCHES = 15
"""Steps towards a point where a growing ball touches the quadric; the multipliers start from that point."""


class Quadratics(NamedTuple):
    """f(δ) = δᵀPδ + 2 qᵀδ + c of K classes and n images; P = curvature·1 + basis·diag(bends)·basisᵀ with bends >= 0."""

    constant: FloatArray
    """c, ``(K, n)``"""
    slope: FloatArray
    """q, ``(K, n, N)``"""
    curvature: FloatArray
    """``(K, n)``"""
    basis: FloatArray
    """``(K, N, L)``, orthonormal columns."""
    bends: FloatArray
    """``(K, L)``"""

    def half_gradient(self, at: FloatArray) -> FloatArray:
        """Pδ + q."""
        bent = np.matmul(np.matmul(at, self.basis) * self.bends[:, None], self.basis.transpose(0, 2, 1))
        return np.asarray(self.slope + self.curvature[..., None] * at + bent)


def quadric_distance(
    constant: FloatArray, along: FloatArray, rest: FloatArray, bends: FloatArray, flatness: FloatArray
) -> FloatArray:
    """The least ‖δ‖ in L2 with δᵀPδ + 2 qᵀδ + c >= 0: the square root of max over t of (−c − qᵀ(t − P)⁻¹q) / t.

    By the S-lemma there is no duality gap. P has the eigenvalues ``bends`` along axes on which q has the components
    ``along``, and ``flatness`` on all others, on which q has the squared length ``rest``. The function of t rises and
    then falls, so bisection finds its maximum.

    >>> ball = quadric_distance(*(np.array(a) for a in (-9.0, [0.0], 0.0, [1.0], 1.0)))  # |δ|² >= 9
    >>> float(ball.round(6))
    3.0
    """
    floor = np.maximum(np.maximum(bends.max(-1, initial=-np.inf), flatness), 0.0)
    unit = np.where(floor > 0, floor, 1.0)
    squares = along**2
    low, high = np.full(constant.shape, NEAR), np.full(constant.shape, 60.0)
    with np.errstate(divide="ignore", over="ignore"):
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            t = floor + unit * np.exp(middle)
            over, beyond = t[..., None] - bends, t - flatness
            rising = (squares * (over + t[..., None]) / over**2).sum(-1) + rest * (beyond + t) / beyond**2 + constant
            low, high = np.where(rising > 0, middle, low), np.where(rising > 0, high, middle)
        t = floor + unit * np.exp(high)
        value = (-constant - (squares / (t[..., None] - bends)).sum(-1) - rest / (t - flatness)) / t
    endless = (floor == 0) & (high < NEAR + 1) & (value > 0)  # P bends away, and no change reaches the region
    return np.where(constant >= 0, 0.0, np.where(endless, np.inf, np.sqrt(np.maximum(value, 0.0))))


def dual_distance(
    quadratics: Quadratics,
    norm: Norm,
    low: FloatArray | None = None,
    high: FloatArray | None = None,
    rounds: int = ROUNDS,
) -> FloatArray:
    """Lower bounds ``(K, n)`` in L2 or L∞ on changes with f >= 0 and, if given, low <= δ <= high.

    With multipliers a of the norm and b of the box, A + B ≽ P, and t = (A + B − P)⁻¹ (q + B (low + high) / 2), a change
    with f(δ) >= 0 needs Σ a_i δ_i² >= −c + Σ b_i low_i high_i − tᵀ(A + B − P)t. The multipliers start from those of a
    point where a growing ball touches the quadric, are raised until they dominate P, and then grow where t violates
    their constraints and shrink elsewhere. For L∞ without a box this is Shor's relaxation.
    """
    problem = _Dual(quadratics, norm, low, high)
    weight, guard = problem.touched()
    top = problem.dominating
    short, enough = np.zeros_like(quadratics.constant), np.ones_like(quadratics.constant)
    for _ in range(8):
        middle = (short + enough) / 2
        dominates = problem.domination(weight + middle[..., None] * top, guard)[0] < 1
        short, enough = np.where(dominates, short, middle), np.where(dominates, middle, enough)
    best, start = np.zeros_like(quadratics.constant), weight + enough[..., None] * top
    for blend in BLENDS:
        tried = weight + (enough * blend)[..., None] * top
        value, _, _ = problem.value(tried, guard)
        start = np.where((value > best)[..., None], tried, start)
        best = np.maximum(best, value)
    weight = start
    for _ in range(rounds):
        value, point, largest = problem.value(weight, guard)
        best = np.maximum(best, value)
        lost = (largest >= 1)[..., None]  # no bound at these multipliers: raise both
        more = np.where(np.isfinite(largest), np.maximum(largest * 1.001, 1.0), 2.0)[..., None]
        usual = np.sqrt(np.maximum(best, 1e-12))[..., None]
        size = np.abs(point) if norm == "linf" else np.linalg.norm(point, axis=-1, keepdims=True)
        weight = weight * np.where(lost, more, np.clip(size / usual, 0.2, 5.0) ** DAMPING)
        if low is not None:
            outside = np.abs(point - problem.middle) / problem.half
            guard = guard * np.where(lost, more, np.clip(outside, 0.2, 5.0) ** DAMPING)
    return np.where(quadratics.constant < 0, np.sqrt(best), 0.0)


class _Dual:
    """The dual problem of a batch of quadratics in a norm and a box."""

    def __init__(self, quadratics: Quadratics, norm: Norm, low: FloatArray | None, high: FloatArray | None) -> None:
        basis = quadratics.basis
        self.quadratics, self.norm, self.low, self.high = quadratics, norm, low, high
        self.squares = (basis[..., :, None] * basis[..., None, :]).reshape(*basis.shape[:2], -1)
        self.root = np.sqrt(quadratics.bends)[:, None]
        self.middle: FloatArray | float = 0.0
        self.half: FloatArray | float = 1.0
        self.product: FloatArray | float = 0.0
        if low is not None and high is not None:
            self.middle, self.half, self.product = (low + high) / 2, np.maximum((high - low) / 2, 1e-12), low * high

    @property
    def dominating(self) -> FloatArray:
        """A multiple of the identity that dominates P, ``(K, n, 1)``."""
        _, _, curvature, _, bends = self.quadratics
        return bends.max(-1, initial=0.0)[:, None, None] * 1.001 + np.maximum(curvature, 0.0)[..., None] + 1e-9

    def touched(self) -> tuple[FloatArray, FloatArray]:
        """Multipliers of the norm and of the box at a point where a growing ball touches the quadric."""
        constant, slope, _, _, _ = self.quadratics
        at = np.zeros_like(slope)
        for _ in range(TOUCHES):  # the nearest point of the half-space in which the tangent lies
            gradient = self.quadratics.half_gradient(at)
            value = (at * (gradient + slope)).sum(-1) + constant
            margin = 2 * (gradient * at).sum(-1) - value
            nearest = nearest_in_halfspace(2 * gradient, margin, self.norm, self.low, self.high)
            at = nearest.change
        radius = np.clip(np.nan_to_num(nearest.distance, posinf=1.0), 1e-9, None)[..., None]
        pull = self.quadratics.half_gradient(at)
        size = np.abs(pull)
        room = np.full_like(size, np.inf)
        if self.low is not None and self.high is not None:
            room = np.where(pull > 0, self.high, -self.low)
        full = np.abs(at) >= room * (1 - 1e-9)
        if self.norm == "linf":
            full &= room < radius * (1 - 1e-9)
            weight = np.where(full, 0.0, size / radius)
            rest = size
        else:
            free = np.maximum((at**2 * ~full).sum(-1, keepdims=True), 1e-18)
            weight = np.sqrt((size**2 * ~full).sum(-1, keepdims=True) / free) + np.zeros_like(size)
            rest = np.maximum(size - weight * np.abs(at), 0.0)
        guard = np.where(full, rest / self.half, 0.0)
        return weight, guard if self.low is None else guard + 1e-4 * self.dominating

    def domination(self, weight: FloatArray, guard: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Whether multipliers dominate P: they do where the first array is below 1."""
        constant, _, curvature, basis, _ = self.quadratics
        excess = weight + guard - curvature[..., None]
        dominates = (excess > 0).all(-1)
        excess = np.where(excess > 0, excess, 1.0)
        form = np.matmul(1 / excess, self.squares).reshape(*constant.shape, *2 * basis.shape[-1:])
        form = self.root[..., :, None] * form * self.root[..., None, :]
        largest = np.linalg.eigvalsh(form)[..., -1] if basis.shape[-1] else np.zeros_like(constant)
        return np.where(dominates, largest, np.inf), form, excess

    def value(self, weight: FloatArray, guard: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The square of the bound (below 0 where there is none), its point t, and the first of :meth:`domination`."""
        constant, slope, _, basis, _ = self.quadratics
        largest, form, excess = self.domination(weight, guard)
        form = np.where((largest < 1)[..., None, None], form, 0.0)
        pull = slope + guard * self.middle
        inner = self.root * np.matmul(pull / excess, basis)
        solved = np.linalg.solve(np.eye(basis.shape[-1]) - form, inner[..., None])[..., 0]
        point = (pull + np.matmul(self.root * solved, basis.transpose(0, 2, 1))) / excess
        total = weight.sum(-1) if self.norm == "linf" else weight[..., 0]
        value = -constant + (guard * self.product).sum(-1) - (pull * point).sum(-1)
        known = (largest < 1) & (total > 0)
        return np.where(known, value / np.where(known, total, 1.0), -1.0), point, largest


def fewest_pixels(quadratics: Quadratics, low: FloatArray, high: FloatArray, channels: int = 1) -> FloatArray:
    """Lower bounds ``(K, n)`` on the number of pixels in a change with f >= 0 and low <= δ <= high.

    If k numbers change, δᵀPδ <= Σ min(k P_ii, largest bend) δ_i², so each contributes independently, and most at one
    of its bounds or at the top of its parabola: the sum of the largest contributions must reach −c. The ``channels`` of
    a pixel count once.
    """
    constant, slope, curvature, basis, bends = quadratics
    diagonal = (basis**2 * bends[:, None]).sum(-1)[:, None]
    largest = bends.max(-1, initial=0.0)[:, None, None]
    pixels = slope.shape[-1] // channels
    few, many = np.zeros_like(constant), np.full(constant.shape, pixels + 1.0)
    while (many - few > 1).any():
        count = np.floor((few + many) / 2)
        bend = np.minimum(channels * count[..., None] * diagonal, largest) + curvature[..., None]
        inner = np.clip(-slope / np.where(bend < 0, bend, np.inf), low, high)  # where the parabola opens downwards
        gain = np.max([bend * at**2 + 2 * slope * at for at in np.broadcast_arrays(low, high, inner)], axis=0)
        gain = -np.sort(-by_pixel(np.maximum(gain, 0.0), channels), axis=-1)
        total = np.where(np.arange(gain.shape[-1]) < count[..., None], gain, 0.0).sum(-1)
        enough = total >= -constant * (1 - 1e-12)
        few, many = np.where(enough, few, count), np.where(enough, count, many)
    return np.where(constant >= 0, 0.0, np.where(many > pixels, np.inf, many))
