"""Points whose property is a quadratic form: its level sets are ellipses or ellipsoids, hidden in five dimensions.

The synthetic experiment of the conditional-invariance work (Spec 000, section 6.6): a model that separates the
property from the rest finds the level sets, which are known here in closed form, and with them the true property of
any point that it generates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.registry import Settings
from polariscope.worlds.factors import Factor, numbered
from polariscope.worlds.points.synthetic import POINTS, PointWorld
from polariscope.worlds.targets import Target
from polariscope.worlds.world import worlds

Floats = NDArray[np.float64]
AMBIENT, PROPERTIES = 5, 3
"""Coordinates of an observation and of its property, most of which are noise."""
HALF = 1 / math.sqrt(2)
ROTATION_X = np.array(
    [
        [-0.227074, 0.125690, 0.954519, 0.044526, -0.139820],
        [0.573651, -0.697128, 0.256248, -0.334891, 0.084387],
        [0.690085, 0.547842, 0.025996, -0.056579, -0.468802],
        [0.150593, 0.442593, 0.111069, -0.379112, 0.790804],
        [-0.347082, 0.046846, -0.101083, -0.859615, -0.358026],
    ]
)
"""The rotation of observations with which the published numbers were made, rounded to six places."""
ROTATION_Y = np.array(
    [[-0.245309, 0.437234, -0.865246], [-0.619718, 0.615619, 0.486789], [0.745502, 0.655622, 0.119945]]
)
"""That of properties."""


@worlds.register("level-sets")
@dataclass(frozen=True)
class LevelSets(PointWorld):
    """Points of a square (or cube) with the property y = u²/4 + v²/2 (+ x₃²), u and v its diagonals, plus noise.

    Points are padded to 5 and properties to 3 dimensions with a little noise, and rotated by fixed matrices; x is the
    row vector. The last ``tested`` points are held out. The factors are the coordinates in the square.

    >>> world = LevelSets(count=5000)
    >>> world.observe([0]).shape, world.target_of([0]).shape, len(world.held_out)
    ((1, 5), (1, 3), 2000)
    >>> [round(float(floor), 5) for floor in (world.y_floor, world.x_floor, LevelSets(dimension=3).x_floor)]
    [0.24817, 0.02851, 0.02219]
    """

    examples: ClassVar[tuple[Settings, ...]] = tuple(
        {"count": 500, "tested": 50, "dimension": dimension} for dimension in (2, 3)
    )

    dimension: int = 2
    """2 for ellipses, 3 for ellipsoids."""
    count: int = 502_000
    """Points; of more than a training takes steps times its batch size, each is seen once."""
    tested: int = 2000
    """How many of them are held out, the last ones."""
    noise: float = 0.2
    """Standard deviation of the noise on the property."""
    padding: float = 0.01
    """Standard deviation of the padding."""
    half_width: float = 1.0
    """Coordinates lie between -half_width and half_width; larger ones test how a model extrapolates."""
    rotated: bool = True
    """Whether observations and properties are turned by the published rotations."""
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dimension not in (2, 3):
            raise ValueError(f"level sets are ellipses (2) or ellipsoids (3); dimension is {self.dimension}")
        if not 0 <= self.tested < self.count:
            raise ValueError(f"the held-out points are {self.tested} of {self.count}: leave some to train on")
        for name in ("noise", "padding"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"the {name} of level sets is {getattr(self, name)}: it needs to be at least 0")
        if not 0 < self.half_width < math.inf:
            raise ValueError(f"the half_width of level sets is {self.half_width}: it needs to be positive")

    @property
    def shape(self) -> tuple[int, ...]:
        return (AMBIENT,)

    @property
    def factors(self) -> tuple[Factor, ...]:
        return tuple(Factor(f"x_{j + 1}", 0) for j in range(self.dimension))

    @property
    def targets(self) -> tuple[Target, ...]:
        return tuple(Target(f"y_{j + 1}", "number") for j in range(PROPERTIES))

    @property
    def held_out(self) -> NDArray[np.int64]:
        """Numbers of the test points."""
        return np.arange(self.count - self.tested, self.count)

    def target_of(self, index: ArrayLike) -> NDArray[np.float32]:
        return self._properties[numbered(index, self.count)]

    def draw(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        square, padding, _ = self._draws
        x = np.concatenate([square, padding], axis=1) @ self.rotations[0]
        return x.astype(np.float32), square.astype(np.float32)

    @cached_property
    def _properties(self) -> NDArray[np.float32]:
        square, _, noise = self._draws
        y = noise.copy()
        y[:, 0] += self.level_of(square)
        properties = (y @ self.rotations[1]).astype(np.float32)
        properties.flags.writeable = False
        return properties

    @property
    def _draws(self) -> tuple[Floats, Floats, Floats]:
        """Points of the square, their padding, and the noise of their properties."""
        streams = [np.random.default_rng((self.seed, POINTS, stream)) for stream in range(3)]
        square = self.half_width * (2 * streams[0].random((self.count, self.dimension)) - 1)
        padding = self.padding * streams[1].standard_normal((self.count, AMBIENT - self.dimension))
        noise = streams[2].standard_normal((self.count, PROPERTIES)) * [self.noise, self.padding, self.padding]
        return square, padding, noise

    @cached_property
    def rotations(self) -> tuple[Floats, Floats]:
        """R_X and R_Y, which row vectors are multiplied with."""
        return (ROTATION_X, ROTATION_Y) if self.rotated else (np.eye(AMBIENT), np.eye(PROPERTIES))

    # The property, and the ways in and out of the five dimensions

    def level_of(self, square: ArrayLike) -> Floats:
        """The property y ``(n,)`` of coordinates ``(n, dimension)``, without noise.

        >>> LevelSets().level_of([[1.0, 1.0], [1.0, -1.0]]).round(9).tolist()  # u = √2, v = √2
        [0.5, 1.0]
        """
        x = np.asarray(square, dtype=np.float64)
        level = ((x[:, 0] + x[:, 1]) * HALF) ** 2 / 4 + ((x[:, 0] - x[:, 1]) * HALF) ** 2 / 2
        return np.asarray(level + (x[:, 2] ** 2 if self.dimension == 3 else 0))

    def embed(self, square: ArrayLike) -> Floats:
        """Observations ``(n, 5)`` of coordinates, without padding noise."""
        return np.asarray(square, dtype=np.float64) @ self.rotations[0][: self.dimension]

    def unembed(self, observations: ArrayLike) -> Floats:
        """Coordinates ``(n, dimension)`` of observations; other coordinates are ignored."""
        return (np.asarray(observations, dtype=np.float64) @ self.rotations[0].T)[:, : self.dimension]

    def embed_level(self, level: ArrayLike) -> Floats:
        """Properties ``(n, 3)`` of levels ``(n,)``, without noise."""
        return np.multiply.outer(np.asarray(level, dtype=np.float64), self.rotations[1][0])

    def unembed_level(self, properties: ArrayLike) -> Floats:
        """Levels ``(n,)`` of properties ``(n, 3)``."""
        return np.asarray(properties, dtype=np.float64) @ self.rotations[1][0]

    @property
    def property_names(self) -> tuple[str, ...]:
        return ("level",)

    def shown_property(self, targets: ArrayLike) -> Floats:
        """Levels ``(n, 1)``, the one property, of the three numbers in which it is hidden."""
        return self.unembed_level(targets)[:, None]

    def property_target(self, values: ArrayLike) -> Floats:
        """Targets ``(n, 3)`` of levels ``(n, 1)``."""
        return self.embed_level(np.asarray(values, dtype=np.float64)[:, 0])

    def property_of(self, observations: NDArray[np.float32]) -> NDArray[np.float32]:
        """The true property ``(n, 3)`` of any observations, generated ones among them."""
        return self.embed_level(self.level_of(self.unembed(observations))).astype(np.float32)

    def level_set(self, level: float, azimuth: ArrayLike, polar: ArrayLike = np.pi / 2) -> Floats:
        """Coordinates of points of a level: semi-axes 2√y along (1, 1), √(2y) along (1, -1) and √y along x₃.

        ``azimuth`` runs around the ellipse, ``polar`` from one pole of an ellipsoid (0) to the other (π).

        >>> world = LevelSets()
        >>> world.level_of(world.level_set(0.3, np.linspace(0, 6, 4))).round(9).tolist()
        [0.3, 0.3, 0.3, 0.3]
        """
        if not level >= 0:
            raise ValueError(f"a level of this property is at least 0; got {level}")
        around, down = np.broadcast_arrays(np.asarray(azimuth, dtype=np.float64), np.asarray(polar, dtype=np.float64))
        if self.dimension == 2 and not np.all(down == np.pi / 2):
            raise ValueError("an ellipse has no polar angle: use dimension 3")
        u = 2 * math.sqrt(level) * np.cos(around) * np.sin(down)
        v = math.sqrt(2 * level) * np.sin(around) * np.sin(down)
        columns = [(u + v) * HALF, (u - v) * HALF]
        return np.stack([*columns, math.sqrt(level) * np.cos(down)] if self.dimension == 3 else columns, axis=-1)

    def angles_of(self, square: ArrayLike) -> Floats:
        """Azimuth (and polar angle, in three dimensions) of points on their level sets, ``(n, dimension - 1)``."""
        x = np.asarray(square, dtype=np.float64)
        u, v = (x[:, 0] + x[:, 1]) * HALF, (x[:, 0] - x[:, 1]) * HALF
        azimuth = np.arctan2(v / math.sqrt(2), u / 2)
        if self.dimension == 2:
            return azimuth[:, None]
        radius = np.hypot(u / 2, v / math.sqrt(2))
        return np.column_stack([azimuth, np.arctan2(radius, x[:, 2])])

    # Errors that no model can go below, in the sum convention

    @property
    def y_floor(self) -> float:
        """Mean absolute error, summed over the three numbers, of a predictor of the property without its noise."""
        return _absolute_noise([self.noise, self.padding, self.padding], self.rotations[1])

    @property
    def x_floor(self) -> float:
        """Mean absolute error, summed over the five numbers, of a predictor of the point without its padding."""
        return _absolute_noise([0.0] * self.dimension + [self.padding] * (AMBIENT - self.dimension), self.rotations[0])


def _absolute_noise(deviations: list[float], rotation: Floats) -> float:
    """Σ_j √(2/π) sd_j of independent Gaussian noise after a rotation."""
    return float(math.sqrt(2 / math.pi) * np.linalg.norm(np.array(deviations)[:, None] * rotation, axis=0).sum())
