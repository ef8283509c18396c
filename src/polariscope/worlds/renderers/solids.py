"""Symmetric solids in all distinguishable orientations: a rendered stand-in for SYMSOL (Murphy et al. 2021).

A symmetric solid looks the same after some rotations, so what can be seen of a rotation is a class of them. Each solid
knows its symmetries: labels are canonical members of the classes, and no two observations of a solid are closer than
:data:`APART` modulo its symmetries, so that measures of near neighbours meet no duplicates (Spec 002, section 15).

The view is orthographic along -z, with x to the right and y up. What is seen of a convex body is then simple: over
each point of the view the lowest of the surfaces that face the viewer, where it lies above all that do not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import KDTree
from scipy.spatial.transform import Rotation

from polariscope.worlds.factors import Factor, numbered
from polariscope.worlds.world import worlds

Floats = NDArray[np.floating[Any]]

APART = np.radians(0.25)
"""Smallest angle between two orientations of a solid: at 64 pixels the outline moves by up to an eighth of a pixel."""
SMALLEST, LARGEST = 32, 1024  # side of the view in pixels; on fewer, orientations APART can give the same image
MOST = 50_000  # orientations a solid: the cylinder, which has the fewest, has room for twice as many
SAMPLES = 3  # rays a pixel along each axis
REACH = 1.1  # half the side of the view; the solids are inscribed in the unit sphere
LIGHT = (-0.48, 0.6, 0.64)
DARKEST = 0.1  # of a surface that is turned away from the light; beside the solid it is 0
FAR = 1e6
_RAYS = 1 << 16  # cast at a time: what they need stays in the processor's cache


@worlds.register("solids")
@dataclass(frozen=True)
class Solids:
    """Tetrahedron, cube, icosahedron, cone and cylinder, each in random orientations, grey on black.

    Orientations are uniform over the rotations, less those that come closer than :data:`APART` to an earlier one of
    the same solid. Number ``i`` shows solid ``i % 5``; it depends on ``seed`` and ``i`` alone, so that a longer world
    starts with the shorter one. Factors are the shape and the canonical rotation vector in radians: the smallest of
    the rotations from the upright solid to one that looks the same.

    >>> world = Solids(count=100)
    >>> len(world), world.observe([0, 7]).shape
    (500, (2, 1, 64, 64))
    >>> bool(np.allclose(world.canonical([1], [[0, 0, np.pi / 2]]), 0))  # a quarter turn of a cube cannot be seen
    True
    """

    count: int = 20_000
    """Orientations of each solid."""
    size: int = 64
    """Side of the images in pixels."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MOST:
            raise ValueError(f"solids have 1 to {MOST} distinguishable orientations each; got {self.count}")
        if not SMALLEST <= self.size <= LARGEST:
            raise ValueError(f"solids have a size of {SMALLEST} to {LARGEST} pixels a side; got {self.size}")
        if self.seed < 0:
            raise ValueError(f"the seed of the solids is {self.seed}: it needs to be at least 0")

    @property
    def shape(self) -> tuple[int, int, int]:
        return (1, self.size, self.size)

    @property
    def factors(self) -> tuple[Factor, ...]:
        return (Factor("shape", len(SOLIDS), "categorical"), *(Factor(f"rotation_{axis}", 0) for axis in "xyz"))

    def __len__(self) -> int:
        return len(SOLIDS) * self.count

    def observe(self, index: ArrayLike) -> NDArray[np.uint8]:
        factors = self.factors_of(index)
        return self.render(factors[:, 0].astype(np.int64), factors[:, 1:])

    def factors_of(self, index: ArrayLike) -> NDArray[np.float64]:
        return self._factors[numbered(index, len(self))]

    @cached_property
    def _factors(self) -> NDArray[np.float64]:
        vectors = [orientations(solid, self.count, (self.seed, kind)) for kind, solid in enumerate(SOLIDS.values())]
        kinds = np.tile(np.arange(len(SOLIDS)), self.count)[:, None]
        return np.hstack([kinds, np.stack(vectors, axis=1).reshape(-1, 3)])

    def render(self, shape: ArrayLike, rotation: ArrayLike) -> NDArray[np.uint8]:
        """Images of solids numbered ``shape`` ``(n,)`` after any rotations, as vectors ``(n, 3)`` in radians."""
        shape, rotation = _checked(shape, rotation)
        turn = Rotation.from_rotvec(rotation).as_matrix()
        fine = SAMPLES * self.size
        line = (((2 * np.arange(fine) + 1) / fine - 1) * REACH).astype(np.float32)
        images = np.empty((len(shape), *self.shape), np.uint8)
        at_a_time = max(1, _RAYS // fine**2)
        for kind, solid in enumerate(SOLIDS.values()):
            numbers = np.flatnonzero(shape == kind)
            for begin in range(0, len(numbers), at_a_time):
                part = numbers[begin : begin + at_a_time]
                light = solid.light(turn[part], line)
                strips = light.reshape(-1, self.size, SAMPLES, fine).sum(axis=2)
                pixels = sum(strips[:, :, column::SAMPLES] for column in range(SAMPLES))
                images[part, 0] = np.rint(pixels * np.float32(255 / SAMPLES**2))
        return images

    def canonical(self, shape: ArrayLike, rotation: ArrayLike) -> NDArray[np.float64]:
        """The rotation vectors ``(n, 3)`` by which rotations of solids ``shape`` ``(n,)`` are labelled."""
        shape, rotation = _checked(shape, rotation)
        labels = np.empty_like(rotation)
        for kind, solid in enumerate(SOLIDS.values()):
            if (shape == kind).any():
                labels[shape == kind] = solid.canonical(Rotation.from_rotvec(rotation[shape == kind])).as_rotvec()
        return labels


def orientations(solid: Solid, count: int, seed: int | tuple[int, ...]) -> NDArray[np.float64]:
    """Canonical rotation vectors ``(count, 3)``: uniform draws without those that look like an earlier draw.

    Whether a draw stays depends on those before it, never on how many follow.
    """
    for draws in (count + count // 8 + 8) * 2 ** np.arange(4):
        quaternions = np.random.default_rng(seed).standard_normal((draws, 4))
        rotation = solid.canonical(Rotation.from_quat(quaternions))
        points, source = solid.places(rotation)
        alike = source[KDTree(points).query_pairs(APART, output_type="ndarray")]
        kept = np.delete(np.arange(draws), alike.max(axis=1))
        if len(kept) >= count:
            return np.asarray(rotation[kept[:count]].as_rotvec())
    raise ValueError(f"of {draws} orientations only {len(kept)} can be distinguished: ask for fewer than {count}")


class Solid(Protocol):
    """A convex body inscribed in the unit sphere."""

    def canonical(self, rotation: Rotation) -> Rotation:
        """The smallest of the rotations after which the solid looks the same."""

    def places(self, rotation: Rotation) -> tuple[Floats, NDArray[np.intp]]:
        """Points at a distance of the angle between looks, for small angles, and the number of each one's rotation.

        Rotations are canonical. One of them has several points where symmetries bring it near other canonical ones.
        """

    def light(self, turn: Floats, line: Floats) -> Floats:
        """Brightness ``(n, m, m)`` after rotation matrices ``turn``, seen by rays at x and -y in ``line`` ``(m,)``."""


@dataclass(frozen=True)
class Polyhedron:
    """A Platonic solid whose faces, ``inradius`` from its centre, are ``fold``-gons.

    A face is turned into itself about its normal, and into all others by the group: the normals are the orbit of any
    one ``fold``-fold axis.
    """

    group: str
    fold: int
    inradius: float

    @cached_property
    def symmetries(self) -> Rotation:
        return Rotation.create_group(self.group)

    @cached_property
    def normals(self) -> Floats:
        turns = self.symmetries.as_rotvec()
        angle = 2 * np.pi / self.fold
        axis = turns[np.isclose(np.linalg.norm(turns, axis=1), angle)][0] / angle
        orbit = self.symmetries.apply(axis)
        return np.asarray(orbit[np.unique(orbit.round(9), axis=0, return_index=True)[1]])

    def canonical(self, rotation: Rotation) -> Rotation:
        return rotation * self.symmetries[self._angles(rotation).argmin(axis=1)]

    def places(self, rotation: Rotation) -> tuple[Floats, NDArray[np.intp]]:
        # A copy within APART of a canonical rotation is at most 2 APART larger than its own canonical one: of the
        # copies by all symmetries only those few have to be searched.
        source, symmetry = np.nonzero(self._angles(rotation) <= rotation.magnitude()[:, None] + 2 * APART)
        return 2 * (rotation[source] * self.symmetries[symmetry]).as_quat(canonical=True), source

    def _angles(self, rotation: Rotation) -> Floats:
        """Of each rotation after each symmetry ``(n, symmetries)``: the real part of a product of quaternions."""
        cosine = np.abs(rotation.as_quat() @ self.symmetries.inv().as_quat().T)
        return np.asarray(2 * np.arccos(np.minimum(cosine, 1)))

    def light(self, turn: Floats, line: Floats) -> Floats:
        normal = turn @ self.normals.T
        bright = brightness(normal.swapaxes(1, 2) @ LIGHT)
        inradius = np.full((len(turn), len(self.normals)), self.inradius)
        top, bottom, seen = faces(normal, inradius, bright, line, line)
        return seen * (top > bottom)


@dataclass(frozen=True)
class Cylinder:
    """A cylinder about z: it looks the same after any turn about its axis, and after half a turn across it."""

    radius: float

    def canonical(self, rotation: Rotation) -> Rotation:
        x, y, z, w = rotation.as_quat().T
        over = x**2 + y**2 > z**2 + w**2  # tilted by more than 90°: half a turn about x first
        return _without_twist(np.where(over, [w, z, -y, -x], [x, y, z, w]).T)

    def places(self, rotation: Rotation) -> tuple[Floats, NDArray[np.intp]]:
        axis = rotation.apply([0, 0, 1])
        return np.concatenate([axis, -axis]), np.tile(np.arange(len(axis)), 2)

    def light(self, turn: Floats, line: Floats) -> Floats:
        view = _AxisView(turn[:, :, 2], line)
        half = math.sqrt(1 - self.radius**2)
        depth = np.sqrt(np.maximum(self.radius**2 - view.across**2, 0))
        lean = _nonzero(view.lean)
        middle, reach = view.along * (view.rise / lean), depth / lean
        cap_bottom, cap_top = view.between(-half, half)
        side_top = middle + reach
        covered = np.minimum(side_top, cap_top) > np.maximum(middle - reach, cap_bottom)
        side = view.across * (view.light_across / self.radius) + depth * (view.light_out / self.radius)
        return covered * brightness(np.where(side_top < cap_top, side, np.sign(view.rise) * view.light_along))


@dataclass(frozen=True)
class Cone:
    """A cone about z with its tip up: it looks the same after any turn about its axis. It turns about its centroid."""

    def canonical(self, rotation: Rotation) -> Rotation:
        return _without_twist(rotation.as_quat())

    def places(self, rotation: Rotation) -> tuple[Floats, NDArray[np.intp]]:
        axis = rotation.apply([0, 0, 1])
        return axis, np.arange(len(axis))

    def light(self, turn: Floats, line: Floats) -> Floats:
        view = _AxisView(turn[:, :, 2], line)
        tip, base = 1.0, -1 / 3  # heights on the axis: the centroid is at 0, tip and rim are on the unit sphere
        slope = math.sqrt(1 - base**2) / (tip - base)
        # A point of the side has hypot(across, out) = slope * (tip - up): a quadratic equation in z.
        room = tip - view.along * view.lean
        square = _nonzero(view.lean**2 - (slope * view.rise) ** 2)
        middle = view.rise * (tip - (1 + slope**2) * room)
        inside = (slope * (tip * view.lean - view.along)) ** 2 - square * view.across**2
        root = np.sqrt(np.maximum(inside, 0))
        # The two roots in the form that does not cancel: one of them goes to infinity where the side runs along z.
        both = middle + np.copysign(root, middle)
        product = (view.along * view.rise) ** 2 + view.across**2 - (slope * room) ** 2
        one, other = both / square, product / _nonzero(both)
        low, high = np.minimum(one, other), np.maximum(one, other)
        # Seen steeply, a ray is in the cone on one side of the roots, and in its mirror image beyond the other.
        flat, up = square > 0, view.rise > 0
        side_top, side_bottom = (
            np.where(flat, high, np.where(up, low, FAR)),
            np.where(flat, low, np.where(up, -FAR, high)),
        )
        end_bottom, end_top = view.between(base, tip)
        top = np.minimum(side_top, end_top)
        covered = (top > np.maximum(side_bottom, end_bottom)) & (inside > 0)
        radius = np.maximum(slope * (room - top * view.rise), 1 / FAR)
        out = top * view.lean - view.along * view.rise
        side = (view.across * view.light_across + out * view.light_out) / radius + slope * view.light_along
        side = np.clip(side / math.hypot(1, slope), -1, 1)
        return covered * brightness(np.where(side_top < end_top, side, -view.light_along))


SOLIDS: dict[str, Solid] = {
    "tetrahedron": Polyhedron("T", 3, 1 / 3),
    "cube": Polyhedron("O", 4, 1 / np.sqrt(3)),
    "icosahedron": Polyhedron("I", 3, np.sqrt((5 + 2 * np.sqrt(5)) / 15)),
    "cone": Cone(),
    "cylinder": Cylinder(0.6),
}


class _AxisView:
    """The view of a body of revolution, in directions that its axis gives; arrays broadcast to ``(n, m, m)``.

    ``rise`` and ``lean`` are the sine and cosine of the angle between the axis and the view. The point at height z is
    ``along * lean + z * rise`` up the axis and, at right angles to it, at (``across``, ``z * lean - along * rise``).
    """

    def __init__(self, axis: Floats, line: Floats) -> None:
        axis = axis[:, :, None, None].astype(line.dtype)
        self.rise = axis[:, 2]
        self.lean = np.hypot(axis[:, 0], axis[:, 1])
        angle = np.arctan2(axis[:, 1], axis[:, 0])
        x, y = np.cos(angle), np.sin(angle)
        self.along = x * line - y * line[:, None]
        self.across = -y * line - x * line[:, None]
        self.light_along = x * self.lean * LIGHT[0] + y * self.lean * LIGHT[1] + self.rise * LIGHT[2]
        self.light_across = x * LIGHT[1] - y * LIGHT[0]
        self.light_out = self.lean * LIGHT[2] - self.rise * (x * LIGHT[0] + y * LIGHT[1])

    def between(self, low: float, high: float) -> tuple[Floats, Floats]:
        """Where rays enter and leave the space between two heights on the axis, lower one first."""
        one, other = ((end - self.along * self.lean) / _nonzero(self.rise) for end in (low, high))
        return np.minimum(one, other), np.maximum(one, other)


def faces(
    normal: Floats, offset: Floats, bright: Floats, across: Floats, down: Floats
) -> tuple[Floats, Floats, Floats]:
    """Where rays meet the faces of convex bodies: heights of the upper and the lower side, and the upper one's light.

    Faces have outward normals ``(n, 3, faces)``, an ``offset`` from the origin and a brightness ``(n, faces)`` each.
    Rays are at x in ``across`` and -y in ``down``, the same for all bodies or ``(n, 1, m)``. A ray passes by where the
    upper side is not above the lower one.
    """
    order = np.argsort(-normal[:, 2], axis=1)  # faces towards the viewer first
    normal = np.take_along_axis(normal, order[:, None], axis=2)
    offset, bright = (np.take_along_axis(of_face, order, axis=1)[..., None] for of_face in (offset, bright))
    x, y, z = normal[:, 0, :, None], normal[:, 1, :, None], _nonzero(normal[:, 2, :, None])
    # The height of a face is a sum of one term per column and one per row.
    columns, rows = (-x / z * across).astype(across.dtype), ((offset + y * down) / z).astype(down.dtype)
    front = z > 0
    bright = bright.astype(across.dtype)
    shape = (len(normal), rows.shape[-1], columns.shape[-1])
    top, bottom, height = (np.full(shape, start, across.dtype) for start in (FAR, -FAR, 0))
    seen, nearer = np.zeros(shape, across.dtype), np.empty(shape, bool)
    fronts = front.sum(axis=(1, 2))
    # Bodies differ in how many faces they show; those that do not count are infinitely far away.
    ahead, behind = np.where(front, rows, np.inf), np.where(front, -np.inf, rows)
    for face in range(fronts.max()):
        np.add(ahead[:, face, :, None], columns[:, face, None, :], out=height)
        np.less(height, top, out=nearer)
        np.minimum(height, top, out=top)
        np.copyto(seen, bright[:, face, None], where=nearer)
    for face in range(fronts.min(), normal.shape[2]):
        np.add(behind[:, face, :, None], columns[:, face, None, :], out=height)
        np.maximum(height, bottom, out=bottom)
    return top, bottom, seen


def brightness(cosine: Floats) -> Floats:
    """Of a surface by its angle to the light. It falls all the way round: faces in shadow can be told apart as well."""
    return DARKEST + (1 - DARKEST) * (1 + cosine) / 2


def _without_twist(quaternions: Floats) -> Rotation:
    """What is left of rotations after a turn about z in the body is taken back: the smallest that tilt z as they do."""
    x, y, z, w = quaternions.T
    real = np.hypot(z, w)
    upside_down = real == 0  # all tilts by 180° look alike: take the one about x
    safe = np.where(upside_down, 1, real)
    tilt_x, tilt_y = np.where(upside_down, [[1.0], [0.0]], [(x * w - y * z) / safe, (y * w + x * z) / safe])
    return Rotation.from_quat(np.stack([tilt_x, tilt_y, np.zeros_like(real), real], axis=1))


def _nonzero(value: Floats) -> Floats:
    """Numbers one may divide by: a surface along a ray is met a long way off."""
    return np.where(np.abs(value) < 1 / FAR, np.copysign(1 / FAR, value), value)


def _checked(shape: ArrayLike, rotation: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    shape, rotation = np.asarray(shape), np.asarray(rotation, dtype=np.float64)
    if shape.ndim != 1 or shape.dtype.kind not in "iu" or not np.isin(shape, range(len(SOLIDS))).all():
        names = ", ".join(f"{number} {name}" for number, name in enumerate(SOLIDS))
        raise ValueError(f"shape needs one integer per solid ({names}); got {shape.dtype} of shape {shape.shape}")
    if rotation.shape != (len(shape), 3) or not np.isfinite(rotation).all():
        raise ValueError(f"rotation needs finite vectors of shape ({len(shape)}, 3); got {rotation.shape}")
    return shape.astype(np.int64), rotation
