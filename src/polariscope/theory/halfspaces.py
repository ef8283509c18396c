"""The distance of an image to a half-space, in any norm, with pixels that stay inside a box.

The score of an affine classifier changes by w·δ. The smallest change that raises it by a margin m is a water-filling
problem: all pixels change together, each until it reaches its bound. For fixed codes, the losses of two generative
classifiers differ by an affine function of the image, so the same distance bounds their changes. (Spec 001b, O-A6 and
B5.3.)
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
Norm = Literal["l0", "l1", "l2", "linf"]
DUAL: dict[str, float] = {"l1": np.inf, "l2": 2.0, "linf": 1.0}
"""The order of the dual norm."""


class Nearest(NamedTuple):
    """The smallest changes into half-spaces."""

    distance: FloatArray
    """``(...)``; infinity where the box holds no point of the half-space."""
    change: FloatArray
    """``(..., N)``; the largest that the box allows where the distance is infinite."""


def nearest_in_halfspace(
    slope: ArrayLike,
    margin: ArrayLike,
    norm: Norm,
    low: ArrayLike | None = None,
    high: ArrayLike | None = None,
    channels: int = 1,
) -> Nearest:
    """The smallest δ with slope·δ >= margin and low <= δ <= high; slopes are ``(..., N)``, margins ``(...)``.

    Without bounds the distance is margin / ‖slope‖ in the dual norm. With bounds (low <= 0 <= high) pixels reach their
    bounds one after another. L0 counts pixels; the ``channels`` of a pixel lie N / channels apart and count once. L0
    needs bounds: without any, one pixel reaches every half-space.

    >>> nearest_in_halfspace([3.0, -4.0], 5.0, "l2").distance.tolist()
    1.0
    >>> nearest_in_halfspace([3.0, -4.0], 5.0, "linf", low=[0, 0], high=[2, 2])
    Nearest(distance=array(1.66666667), change=array([1.66666667, 0.        ]))
    """
    slope, margin = np.asarray(slope, np.float64), np.asarray(margin, np.float64)
    margin = np.broadcast_to(margin, slope.shape[:-1])
    size, sign = np.abs(slope), np.sign(slope)
    if low is None or high is None:
        return _free(size, sign, margin, norm)
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    if (low > 0).any() or (high < 0).any():
        raise ValueError("the box of changes needs to hold the change 0: low is at most 0 and high at least 0")
    room = np.broadcast_to(np.where(slope > 0, high, -low), slope.shape)
    if norm == "l0":
        return _fewest(size, sign, room, margin, channels)
    if norm == "l1":
        return _greedy(size, sign, room, margin)
    return _level(size, sign, room, margin, norm)


def _free(size: FloatArray, sign: FloatArray, margin: FloatArray, norm: Norm) -> Nearest:
    if norm == "l0":
        raise ValueError("a count of pixels needs bounds: without any, one pixel reaches every half-space")
    steep = np.linalg.norm(size, DUAL[norm], axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = np.where(margin <= 0, 0.0, margin / steep)
        way = {
            "l1": sign * (size == size.max(-1, keepdims=True)),
            "l2": sign * size / steep[..., None],
            "linf": sign,
        }[norm]
        if norm == "l1":
            way = way / np.abs(way).sum(-1, keepdims=True)
        change = np.where(np.isfinite(distance)[..., None], distance[..., None] * way, 0.0)
    return Nearest(np.asarray(distance), np.nan_to_num(change))


def _level(size: FloatArray, sign: FloatArray, room: FloatArray, margin: FloatArray, norm: Norm) -> Nearest:
    """L2 and L∞: |δ_i| = min(t v_i, room_i) with v = |slope| or 1, and the level t at which the margin is met."""
    pace = size if norm == "l2" else np.ones_like(size)
    with np.errstate(divide="ignore", invalid="ignore"):
        full = np.where(size > 0, room / pace, 0.0)
    order = np.argsort(full, axis=-1)
    ends = np.take_along_axis(full, order, -1)
    gain = np.take_along_axis(size * pace, order, -1)
    slopes = np.flip(np.cumsum(np.flip(gain, -1), -1), -1)
    reached = np.cumsum(slopes * np.diff(ends, axis=-1, prepend=0.0), -1)
    place = (reached < margin[..., None]).sum(-1, keepdims=True)
    inside = np.minimum(place, size.shape[-1] - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        back = (np.take_along_axis(reached, inside, -1) - margin[..., None]) / np.take_along_axis(slopes, inside, -1)
    level = np.take_along_axis(ends, inside, -1) - np.nan_to_num(back)
    beyond = place == size.shape[-1]
    level = np.where(margin[..., None] <= 0, 0.0, np.where(beyond, np.inf, level))
    with np.errstate(invalid="ignore"):
        change = sign * np.minimum(np.nan_to_num(level * pace, posinf=np.inf), room)
    order_of_norm = 2 if norm == "l2" else np.inf
    distance = np.where(beyond[..., 0] & (margin > 0), np.inf, np.linalg.norm(change, order_of_norm, axis=-1))
    return Nearest(np.asarray(distance), change)


def _greedy(size: FloatArray, sign: FloatArray, room: FloatArray, margin: FloatArray) -> Nearest:
    """L1: the steepest pixel first, each up to its bound."""
    order = np.argsort(-size, axis=-1)
    steep, space = np.take_along_axis(size, order, -1), np.take_along_axis(room, order, -1)
    before = np.cumsum(steep * space, -1) - steep * space
    with np.errstate(divide="ignore", invalid="ignore"):
        wanted = np.where(steep > 0, (margin[..., None] - before) / steep, 0.0)
    used = np.clip(wanted, 0.0, space)
    change = np.zeros_like(used)
    np.put_along_axis(change, order, used, -1)
    met = _met((steep * space).sum(-1), margin)
    return Nearest(np.where(met, used.sum(-1), np.inf), sign * change)


def _fewest(size: FloatArray, sign: FloatArray, room: FloatArray, margin: FloatArray, channels: int) -> Nearest:
    """L0: the pixels with the largest possible contribution first."""
    gain = by_pixel(size * room, channels)
    order = np.argsort(-gain, axis=-1)
    total = np.cumsum(np.take_along_axis(gain, order, -1), -1)
    count = np.where(margin <= 0, 0, (~_met(total, margin[..., None])).sum(-1) + 1)
    chosen = np.zeros(gain.shape, bool)
    np.put_along_axis(chosen, order, np.arange(gain.shape[-1]) < count[..., None], -1)
    met = _met(total[..., -1], margin)
    whole = np.concatenate([chosen] * channels, axis=-1)
    return Nearest(np.where(met, count, np.inf).astype(np.float64), sign * room * whole)


def by_pixel(values: FloatArray, channels: int) -> FloatArray:
    """Sums over the channels of each pixel, ``(..., N)`` to ``(..., N / channels)``."""
    if channels == 1:
        return values
    return np.asarray(values.reshape(*values.shape[:-1], channels, -1).sum(-2))


def _met(total: FloatArray, margin: FloatArray) -> NDArray[np.bool_]:
    """Whether a sum reaches a margin, up to rounding."""
    return np.asarray(total >= margin * (1 - 1e-12))


def norm_from_l2(distance: ArrayLike, room: ArrayLike, norm: Norm, channels: int = 1) -> FloatArray:
    """The smallest norm of a change with |δ_i| <= room_i whose L2 length is ``distance``.

    ``room`` is the larger of the two distances of each pixel to its bounds, ``(..., N)``. A change of an image that is
    shorter than this in the other norm is shorter than ``distance`` in L2.

    >>> norm_from_l2(1.5, np.ones(784), "l0").tolist(), norm_from_l2(1.4, np.ones(784), "linf").round(3).tolist()
    (3.0, 0.05)
    """
    distance, room = np.asarray(distance, np.float64), np.asarray(room, np.float64)
    if norm == "l2":
        return np.broadcast_to(distance, np.broadcast_shapes(distance.shape, room.shape[:-1])).astype(np.float64)
    distance = np.broadcast_to(distance, np.broadcast_shapes(distance.shape, room.shape[:-1]))
    room = np.broadcast_to(room, (*distance.shape, room.shape[-1]))
    goal = distance**2
    if norm == "l1":  # of all changes of this L2 length, those along one axis are the shortest in L1
        return np.where(goal <= (room**2).sum(-1), distance, np.inf)
    if norm == "l0":
        total = np.cumsum(-np.sort(-by_pixel(room**2, channels), axis=-1), -1)
        count = np.where(goal <= 0, 0, (~_met(total, goal[..., None])).sum(-1) + 1)
        return np.where(_met(total[..., -1], goal), count, np.inf).astype(np.float64)
    ends = np.sort(room, axis=-1) ** 2
    left = np.arange(room.shape[-1], 0, -1)
    reached = np.cumsum(left * np.diff(ends, axis=-1, prepend=0.0), -1)
    place = (reached < goal[..., None]).sum(-1, keepdims=True)
    inside = np.minimum(place, room.shape[-1] - 1)
    square = (
        np.take_along_axis(ends, inside, -1)
        - (np.take_along_axis(reached, inside, -1) - goal[..., None]) / left[inside]
    )
    whole = place[..., 0] < room.shape[-1]
    return np.where(goal <= 0, 0.0, np.where(whole, np.sqrt(np.maximum(square[..., 0], 0.0)), np.inf))
