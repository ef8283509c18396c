"""Natural Sprites: sprites that move and grow as objects do in natural videos, in pairs of frames.

Klindt, Schott, Sharma and others, Towards nonlinear disentanglement in natural data with temporal sparse coding (2021),
appendix D.4; Spec 001a, section 4.5. There the transitions were measured in YouTube videos; here they are drawn from
the fits to them (:mod:`polariscope.worlds.renderers.natural_increments`), so that nothing needs to be downloaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from polariscope.registry import Settings
from polariscope.worlds.capacity import check_count
from polariscope.worlds.factors import Factor, FactorGrid, numbered
from polariscope.worlds.kept import ROOM, Kept
from polariscope.worlds.numbered_draws import uniform
from polariscope.worlds.renderers.natural_increments import Videos, natural_increments
from polariscope.worlds.renderers.sprite_raster import SUBPIXELS, fill_fans
from polariscope.worlds.world import GridWorld, worlds

Floats = NDArray[np.float64]
Kind = Literal["continuous", "discrete"]

SHAPES = ("square", "triangle", "star", "spoke")
ANGLES = 40
BINS = (32, 32, 6)
"""Of x, y and scale in the discrete world."""
WINDOW = 64.0
"""Pixels a side of the windows in which natural steps were measured."""
EDGE = 10.0
"""Centres stay so many of these pixels inside, so that most of every sprite is seen."""
AREAS = (30.0, 2000.0)
TYPICAL_AREA, AREA_SPREAD = 220.0, 0.7
"""Areas are log-normal, cut off at their limits: the median, and the standard deviation of the logarithm."""
FINER = 5
"""Pixels are the mean of so many times as many in each direction, as in the original."""
_TOGETHER = 1 << 22  # fine pixels worked on at a time


class Frames(NamedTuple):
    """x, y and area ``(n, 3)`` of two frames, in pixels of the window."""

    first: Floats
    second: Floats


@worlds.register("natural-sprites")
@dataclass(frozen=True)
class NaturalSprites:
    """White squares, triangles, stars and spokes in pairs of frames, in which position and size change naturally.

    An observation is the first frame of a pair, ``others_of`` gives the second. Shape and angle are the same in both.
    Positions are shares of the window and ``scale`` is √(area / window area). In the ``discrete`` world x, y and scale
    are the nearest of 32, 32 and 6 evenly spaced values. Pairs with an extreme area are left out.

    >>> world = NaturalSprites(count=1000)
    >>> first, second = world.factors_of([0, 1]), world.other_factors_of([0, 1])
    >>> world.shape, (first == second).tolist()
    ((1, 64, 64), [[False, False, False, True, True], [False, False, False, True, True]])
    """

    examples: ClassVar[tuple[Settings, ...]] = (
        {"count": 500},
        {"count": 500, "kind": "discrete", "size": 16, "videos": "kitti", "permuted": True},
    )

    kind: Kind = "continuous"
    count: int = 40_000
    """Pairs before the extreme ones are left out; the publication had 234,652."""
    size: int = 64
    """Pixels a side."""
    videos: Videos = "youtube"
    """Data set of videos that the steps follow."""
    dependence: float = 0.5
    """Correlation of the sizes of steps, from 0 to below 1."""
    permuted: bool = False
    """Give each pair the x of one, the y of another and the area of a third: the control without dependence."""
    extremes: float = 0.05
    """A pair is left out if one of its areas is among this share of the smallest or of the largest."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.count < 1 or not 8 <= self.size <= 1024:
            raise ValueError(
                f"natural sprites are at least 1 pair of images with 8 to 1024 pixels a side; got {self.count} of "
                f"{self.size}"
            )
        check_count(self.count, "natural sprites")
        if not 0 <= self.extremes < 0.5:
            raise ValueError(f"the share of extreme areas must be at least 0 and below 0.5; got {self.extremes}")

    @cached_property
    def frames(self) -> Frames:
        """x, y and area of every pair that is there."""
        steps = natural_increments(self.videos, self.count, self.seed, self.dependence)
        frames = natural_frames(steps, uniform(self.seed, np.arange(self.count), 10)[:, 7:])  # the steps took seven
        kept = within_quantiles(frames.first[:, 2], frames.second[:, 2], self.extremes)
        if not kept.any():
            raise ValueError(f"none of {self.count} pairs has moderate areas: use more pairs")
        frames = Frames(*(frame[kept] for frame in frames))
        return permuted_transitions(*frames, self.seed) if self.permuted else frames

    @cached_property
    def _values(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """The factors of the first and of the second frames: values, or positions on the grid."""
        u = uniform(self.seed, np.arange(len(self)), 12)[:, 10:]
        angle, shape = np.floor(u * (ANGLES, len(SHAPES))).astype(np.int64).T
        first, second = (
            np.column_stack((_nearest(frame, self._centres) if self.kind == "discrete" else frame, angle, shape))
            for frame in self._shares
        )
        return (first, second) if self.kind == "discrete" else (first.astype(np.float32), second.astype(np.float32))

    @cached_property
    def _shares(self) -> tuple[Floats, Floats]:
        """x, y and scale of both frames, as shares of the window's side."""
        first, second = (np.column_stack((frame[:, :2], np.sqrt(frame[:, 2]))) / WINDOW for frame in self.frames)
        return first, second

    @cached_property
    def _centres(self) -> tuple[Floats, ...]:
        """Middles of bins of equal width over the values of both frames."""
        both = np.concatenate(self._shares)
        edges = [np.linspace(v.min(), v.max(), bins + 1) for v, bins in zip(both.T, BINS, strict=True)]
        return tuple((edge[1:] + edge[:-1]) / 2 for edge in edges)

    @cached_property
    def factors(self) -> tuple[Factor, ...]:
        angles = tuple((2 * np.pi / ANGLES * np.arange(ANGLES)).tolist())
        still = (Factor("orientation", ANGLES, "periodic", angles), Factor("shape", len(SHAPES), "categorical"))
        names = ("x", "y", "scale")
        if self.kind == "continuous":
            return (*(Factor(name, 0) for name in names), *still)
        centres = zip(names, BINS, self._centres, strict=True)
        return (*(Factor(name, bins, "ordinal", tuple(at.tolist())) for name, bins, at in centres), *still)

    @property
    def shape(self) -> tuple[int, int, int]:
        return (1, self.size, self.size)

    def __len__(self) -> int:
        return len(self.frames.first)

    def observe(self, index: ArrayLike) -> NDArray[np.uint8]:
        return self._pictures[0].get(numbered(index, len(self)), lambda new: self.render(self.factors_of(new)))

    def others_of(self, index: ArrayLike) -> tuple[NDArray[np.uint8]]:
        numbers = numbered(index, len(self))
        return (self._pictures[1].get(numbers, lambda new: self.render(self.other_factors_of(new))),)

    @cached_property
    def _pictures(self) -> tuple[Kept, Kept]:
        """Of the first and of the second frames."""
        return Kept(len(self), self.shape, ROOM // 2), Kept(len(self), self.shape, ROOM // 2)

    def factors_of(self, index: ArrayLike) -> NDArray[Any]:
        return self._values[0][numbered(index, len(self))]

    def other_factors_of(self, index: ArrayLike) -> NDArray[Any]:
        """The factors of the second frame of each pair."""
        return self._values[1][numbered(index, len(self))]

    def render(self, factors: ArrayLike) -> NDArray[np.uint8]:
        """Images of factors ``(n, 5)`` as this world gives them, whether they are in a pair or not."""
        factors = np.asarray(factors)
        x, y, scale = (
            np.asarray(factor.values)[column] if factor.size else column.astype(np.float64)
            for factor, column in zip(self.factors[:3], factors.T[:3], strict=True)
        )
        angle, shape = factors.T[3:].astype(np.int64)
        return drawn_sprites(shape, scale, angle * (2 * np.pi / ANGLES), x, y, self.size)

    @property
    def combinations(self) -> GridWorld:
        """The discrete world's every combination, 983,040, for evaluation on factors that are independent."""
        if self.kind != "discrete":
            raise ValueError("a continuous world has no grid of combinations: use the discrete one")
        return Combinations(self)


@dataclass(frozen=True)
class Combinations(GridWorld):
    """The grid of a discrete world of natural sprites."""

    of: NaturalSprites

    @property
    def grid(self) -> FactorGrid:
        return FactorGrid(self.of.factors)

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.of.shape

    def render(self, factors: ArrayLike) -> NDArray[np.uint8]:
        return self.of.render(self.grid.check(factors))


def natural_frames(steps: ArrayLike, u: Floats) -> Frames:
    """Frames that lie the given steps of x, y and area ``(n, 3)`` apart, at places that uniform numbers ``u`` decide.

    A step is centred on a place from which it leads nowhere outside, so that every step can be taken, forward and
    backward are alike, and both frames have the same law. Places are uniform, areas log-normal.
    """
    steps = np.asarray(steps, dtype=np.float64)
    low, high = np.array([EDGE, EDGE, AREAS[0]]), np.array([WINDOW - EDGE, WINDOW - EDGE, AREAS[1]])
    steps = steps.clip(low - high, high - low)
    half = np.abs(steps) / 2
    middle = low + half + u * (high - low - 2 * half)
    least, most = low[2] + half[:, 2], high[2] - half[:, 2]
    begin, end = (ndtr(np.log(area / TYPICAL_AREA) / AREA_SPREAD) for area in (least, most))
    area = TYPICAL_AREA * np.exp(AREA_SPREAD * ndtri(begin + u[:, 2] * (end - begin)))
    middle[:, 2] = area.clip(least, most)  # rounding in the far tail
    return Frames(middle - steps / 2, middle + steps / 2)


def within_quantiles(first: ArrayLike, second: ArrayLike, extremes: float = 0.05) -> NDArray[np.bool_]:
    """Which pairs have both values between the lower and the upper quantile of all values.

    >>> within_quantiles([1, 2, 3, 4, 5], [1, 2, 3, 4, 9], extremes=0.25).tolist()
    [False, True, True, True, False]
    """
    both = np.stack((np.asarray(first, dtype=float), np.asarray(second, dtype=float)))
    low, high = np.quantile(both, (extremes, 1 - extremes))
    return np.asarray(((both >= low) & (both <= high)).all(0))


def permuted_transitions(first: ArrayLike, second: ArrayLike, seed: int) -> Frames:
    """Each factor's transitions in an order of its own: the same transitions, but no dependence between factors.

    >>> mixed = permuted_transitions([[0, 0], [1, 1], [2, 2]], [[5, 5], [6, 6], [7, 7]], seed=0)
    >>> (mixed.second - mixed.first).tolist()
    [[5, 5], [5, 5], [5, 5]]
    """
    before, after = np.asarray(first), np.asarray(second)
    rows = np.broadcast_to(np.arange(len(before))[:, None], before.shape)
    orders = np.random.default_rng(seed).permuted(rows, axis=0)
    return Frames(np.take_along_axis(before, orders, 0), np.take_along_axis(after, orders, 0))


def _nearest(values: Floats, centres: tuple[Floats, ...]) -> NDArray[np.int64]:
    steps = zip(values.T, centres, strict=True)
    return np.stack([np.abs(v[:, None] - at).argmin(1) for v, at in steps], axis=1)


def _outlines() -> tuple[Floats, ...]:
    """Corners ``(k, 2)`` around 0, y up, of area 1, counter-clockwise."""

    def polar(radii: ArrayLike, first: float) -> Floats:
        radii = np.asarray(radii, dtype=float)
        angle = first + 2 * np.pi * np.arange(len(radii)) / len(radii)
        return np.stack((radii * np.cos(angle), radii * np.sin(angle)), axis=1)

    arm = [(3, -1), (3, 1), (1, 1)]  # of a cross whose arms are as wide as its middle; each turn gives the next
    turns = [np.array([[c, -s], [s, c]]) for c, s in ((1, 0), (0, 1), (-1, 0), (0, -1))]
    spoke = np.concatenate([np.array(arm) @ turn.T for turn in turns])
    shapes = (polar([1] * 4, np.pi / 4), polar([1] * 3, np.pi / 2), polar([1, 0.38] * 4, 0.0), spoke.astype(float))
    return tuple(shape / np.sqrt(_area(shape)) for shape in shapes)


def _area(corners: Floats) -> float:
    x, y = corners.T
    return float(np.sum(x * np.roll(y, -1) - y * np.roll(x, -1)) / 2)


OUTLINES = _outlines()


def drawn_sprites(
    shape: NDArray[np.int64], scale: Floats, angle: Floats, x: Floats, y: Floats, size: int
) -> NDArray[np.uint8]:
    """Anti-aliased images ``(n, 1, size, size)``: ``x`` to the right and ``y`` down are shares of the canvas, ``scale``
    is the root of the share of its area that the sprite has, the angle is counter-clockwise in radians."""
    images = np.empty((len(shape), 1, size, size), np.uint8)
    fine = FINER * size
    chunk = max(1, _TOGETHER // fine**2)
    for number, outline in enumerate(OUTLINES):
        rows = np.flatnonzero(shape == number)
        # A fan of triangles around the middle, which sees every corner, covers a star without filling its notches.
        fan = np.concatenate((np.zeros((1, 2)), outline, outline[:1], np.zeros((1, 2))))
        for begin in range(0, len(rows), chunk):
            part = rows[begin : begin + chunk]
            cosine, sine = scale[part, None] * np.cos(angle[part, None]), scale[part, None] * np.sin(angle[part, None])
            across = x[part, None] + cosine * fan[:, 0] - sine * fan[:, 1]
            up = 1 - y[part, None] + sine * fan[:, 0] + cosine * fan[:, 1]
            corners_x, corners_y = (np.rint(side * (fine * SUBPIXELS)) for side in (across, up))
            masks = fill_fans(corners_x, corners_y, fine)
            blocks = masks.reshape(-1, size, FINER, size, FINER)
            images[part, 0] = np.rint(blocks.mean((2, 4), dtype=np.float32)).astype(np.uint8)
    return images
