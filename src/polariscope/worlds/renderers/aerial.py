"""Alpine scenes from the air: soil erosion of known extent, over valleys and years (Spec 000, sections 5.1 and 9.1).

A tile has a terrain of its own, which stays while the years go by. Sites of erosion appear where their class appears in
the Alps: landslides on steep ground, livestock trails along the contour lines, sheet erosion anywhere, effects of
management in the low part of the valley. Rocks high up look like bare soil but are not. Sites come and stay, so that
the eroded area grows by a known share from the first year to the last. Every year has its own light, tint and season.

``labels`` may be those of an image analysis that is made anew for every year, as in the work: it overlooks sites at a
known rate and draws them too small, differently every year.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage
from scipy.special import ndtri

from polariscope.worlds.factors import Factor, FactorGrid
from polariscope.worlds.numbered_draws import uniform
from polariscope.worlds.targets import Target
from polariscope.worlds.world import GridWorld, worlds

CLASSES = ("landslide", "trail", "sheet", "management", "background")
LANDSLIDE, TRAIL, SHEET, MANAGEMENT, BACKGROUND = range(5)
CHANNELS = ("red", "green", "blue", "slope", "aspect", "curvature")
YEARS = (2000, 2004, 2010, 2013, 2016)
METRES = 0.5
"""Size of a pixel in which the sizes of sites are given below."""
MEAN_SLOPE = 27.0
"""Degrees; that of the work's valley."""
SITES = {LANDSLIDE: 5, TRAIL: 2, SHEET: 2, MANAGEMENT: 1}
"""Sites of a class that a tile of 48 pixels of half a metre has at most."""
ROCKS = 3
CANDIDATES = 6
"""Places of which the best is taken where a class has a preference."""
STEPS = (12, 40)
"""Pixels of a trail."""
GRASS, SOIL, ROCK = (0.30, 0.45, 0.20), (0.55, 0.45, 0.33), (0.52, 0.51, 0.50)
LOW, HIGH = 0.4, 0.6
"""Elevations, from 0 at the floor of the valley to 1, below which land is managed and above which there are rocks."""
Floats = NDArray[np.float64]


@worlds.register("aerial")
@dataclass(frozen=True)
class Aerial(GridWorld):
    """Tiles of alpine valleys from the air: colours and terrain, with a mask of four classes of soil erosion.

    >>> world = Aerial(tiles=4, size=32)
    >>> world.shape, world.target_of([0]).shape, world.targets[0].labels
    ((6, 32, 32), (1, 32, 32), ('landslide', 'trail', 'sheet', 'management', 'background'))
    """

    valleys: int = 2
    """Valleys, each with an orientation, a density of sites and a ground colour of its own."""
    tiles: int = 64
    """Tiles of a valley."""
    years: tuple[int, ...] = YEARS
    size: int = 48
    """Pixels a side."""
    pixel: float = METRES
    """Metres a side of a pixel."""
    growth: float = 1.33
    """How much larger the number of sites is in the last year than in the first: 1.33 is an increase by 133 %."""
    density: float = 1.0
    """Share of the usual sites that there are: with few of them many tiles have none."""
    labels: Literal["true", "analysed"] = "true"
    """The true masks, or those of an image analysis that misses sites, differently in every year."""
    missed: float = 0.25
    """Share of the sites that the analysis misses."""
    misses: Literal["sites", "classes"] = "sites"
    """What it misses: single sites, or all sites of a class in a tile, whose rules were too strict for that image."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.valleys < 1 or self.tiles < 1 or self.size < 16:
            raise ValueError(
                f"aerial needs at least 1 valley, 1 tile and 16 pixels a side; got {self.valleys}, {self.tiles} and "
                f"{self.size}"
            )
        if not self.years or list(self.years) != sorted(set(self.years)):
            raise ValueError(f"the years must increase; got {list(self.years)}")
        if not (self.pixel > 0 and self.growth >= 0 and 0 <= self.missed <= 1 and 0 < self.density <= 1):
            raise ValueError(
                f"pixel is {self.pixel}, growth {self.growth}, missed {self.missed} and density {self.density}: they "
                "are above 0, at least 0, from 0 to 1, and above 0 to 1"
            )

    @property
    def grid(self) -> FactorGrid:
        return FactorGrid(
            (
                Factor("valley", self.valleys, "categorical"),
                Factor("year", len(self.years), values=tuple(map(float, self.years))),
                Factor("tile", self.tiles, "categorical"),
            )
        )

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(CHANNELS), self.size, self.size)

    @property
    def targets(self) -> tuple[Target, ...]:
        return (Target("erosion", "mask", len(CLASSES), CLASSES),)

    def target_of(self, index: ArrayLike) -> NDArray[np.int64]:
        scene = self.scene(self.grid.to_factors(index))
        return scene.mask.astype(np.int64) if self.labels == "true" else scene.analysed.astype(np.int64)

    def render(self, factors: ArrayLike) -> NDArray[np.uint8]:
        return self.scene(np.asarray(factors, np.int64)).image

    def present(self, year: NDArray[np.int64]) -> Floats:
        """Share of all sites that are there in years by their place."""
        years = np.asarray(self.years, float)
        since = (years - years[0]) / max(1.0, np.ptp(years))
        return np.asarray((1 + self.growth * since)[year] / (1 + self.growth))

    @property
    def side(self) -> tuple[str, ...]:
        """Facts about an image besides its pixels: the position of the sun, the season, and for each class whether
        the rules of the analysis were too strict for it."""
        return ("sun_north", "sun_east", "season", *(f"strict_{name}" for name in CLASSES[:BACKGROUND]))

    def side_of(self, index: ArrayLike) -> NDArray[np.float32]:
        """Side information ``(n, 7)`` of tiles by number, from 0 to 1."""
        valley, year, tile = self.grid.to_factors(index).T
        place = valley * self.tiles + tile
        azimuth = 2 * np.pi * self.draw("light", year, 5)[:, 0]
        season = self.draw("season", year, 1)
        strict = np.column_stack([self.strict(kind, place, year) for kind in range(BACKGROUND)])
        sun = 0.5 + 0.5 * np.column_stack([-np.cos(azimuth), np.sin(azimuth)])
        return np.concatenate([sun, season, strict], axis=1).astype(np.float32)

    def strict(self, kind: int, place: NDArray[Any], year: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether the analysis misses all sites of a class in tiles of a year."""
        if self.misses != "classes":
            return np.zeros(len(place), bool)
        return np.asarray(self.draw(f"strict {kind}", place * len(self.years) + year, 1)[:, 0] < self.missed)

    def draw(self, what: str, numbers: NDArray[Any], count: int) -> Floats:
        """Uniform numbers of one purpose, a function of the seed and of each number."""
        key = np.random.SeedSequence((self.seed, *what.encode())).generate_state(1, np.uint64)[0]
        return uniform(int(key), np.asarray(numbers, np.int64), count)

    def scene(self, factors: NDArray[np.int64]) -> Scene:
        """Images and masks of valley, year and tile ``(n, 3)``."""
        valley, year, tile = factors.T
        return Scene(self, valley, year, valley * self.tiles + tile)


class Scene:
    """Tiles while they are drawn: all at once, one kind of site after the other."""

    def __init__(self, world: Aerial, valley: NDArray[Any], year: NDArray[Any], place: NDArray[Any]) -> None:
        self.world, self.year, self.place = world, year, place
        self.count, self.size = len(place), world.size
        self.scale = METRES / world.pixel
        self.elevation = self._draw("elevation", place, 1)[:, 0]
        heading = 2 * np.pi * self._draw("heading", valley, 1)[:, 0]
        self.heights = self._terrain(heading)
        self.rise = np.asarray(np.gradient(self.heights, world.pixel, axis=(1, 2)))  # down the rows, along the columns
        self.steepness = np.hypot(*self.rise)
        self.density = world.density * (0.5 + 0.5 * self._draw("density", valley, len(CLASSES)))
        self.mask = np.full((self.count, self.size, self.size), BACKGROUND, np.uint8)
        self.analysed = self.mask.copy()
        self.colour = self._ground(valley)
        self.patchy = np.clip(1 + 0.4 * self._smooth("patches", self.place, 0.5), 0, 2)
        self._draw_sites()

    def _draw(self, what: str, numbers: NDArray[Any], count: int) -> Floats:
        return self.world.draw(what, numbers, count)

    def _smooth(self, what: str, numbers: NDArray[Any], power: float) -> Floats:
        """Noise ``(n, size, size)`` whose amplitude falls with a power of the frequency; mean 0, deviation 1."""
        n = self.size
        white = ndtri(np.maximum(self._draw(what, numbers, n * n), 2.0**-54)).reshape(-1, n, n)
        k = np.hypot(np.fft.fftfreq(n)[:, None], np.fft.rfftfreq(n)[None])
        k[0, 0] = np.inf
        noise = np.fft.irfft2(np.fft.rfft2(white) * k**-power, s=(n, n))
        return np.asarray(noise / noise.std(axis=(1, 2), keepdims=True))

    def _terrain(self, heading: Floats) -> Floats:
        """Heights in metres: one side of a valley with hills on it, of the mean slope of the work's valley."""
        extent = self.size * self.world.pixel
        along = (np.arange(self.size) + 0.5) / self.size - 0.5
        tilt = np.cos(heading)[:, None, None] * along[:, None] + np.sin(heading)[:, None, None] * along
        rough = self._smooth("terrain", self.place, 2.2)
        heights = tilt + 0.18 * rough
        slope = np.hypot(*np.gradient(heights, 1 / self.size, axis=(1, 2))).mean(axis=(1, 2), keepdims=True)
        return np.asarray(heights * extent * np.tan(np.radians(MEAN_SLOPE)) / slope)

    def _ground(self, valley: NDArray[Any]) -> Floats:
        tint = 1 + 0.2 * (self._draw("ground", valley, 3) - 0.5)
        meadow = 1 + 0.08 * self._smooth("meadow", self.place, 1.0)
        return np.asarray((np.asarray(GRASS) * tint)[:, :, None, None] * meadow[:, None])

    def _draw_sites(self) -> None:
        share = self.world.present(self.year)
        more = max(1, round((self.size / self.scale / 48) ** 2))
        for kind in (SHEET, MANAGEMENT, TRAIL, LANDSLIDE):
            for number in range(SITES[kind] * more):
                u = self._draw(f"site {kind} {number}", self.place, 8 + 2 * CANDIDATES)
                there = (u[:, 0] < share) & (u[:, 1] < self.density[:, kind])
                if kind == MANAGEMENT:
                    there &= self.elevation < LOW
                site, alpha = self._shape(kind, u)
                site &= there[:, None, None]
                self._paint(site, alpha, SOIL)
                self.mask[site] = kind
                self._analyse(site, kind, number)
        for number in range(ROCKS * more):
            u = self._draw(f"rock {number}", self.place, 8 + 2 * CANDIDATES)
            site, alpha = self._shape(LANDSLIDE, u)
            there = u[:, 0] < np.where(self.elevation > HIGH, 0.8, 0.1)
            site &= there[:, None, None] & (self.mask == BACKGROUND)
            self._paint(site, alpha, ROCK)

    def _analyse(self, site: NDArray[np.bool_], kind: int, number: int) -> None:
        """The label of a site by the image analysis of one year: none, or the site without its rim."""
        if self.world.misses == "classes":
            seen = ~self.world.strict(kind, self.place, self.year)
        else:
            moment = self.place * len(self.world.years) + self.year
            seen = self._draw(f"analysed {kind} {number}", moment, 1)[:, 0] >= self.world.missed
        smaller = ndimage.binary_erosion(site, np.ones((1, 2, 2), bool)) if kind in (LANDSLIDE, SHEET) else site
        self.analysed[smaller & seen[:, None, None]] = kind

    def _shape(self, kind: int, u: Floats) -> tuple[NDArray[np.bool_], Floats]:
        """Pixels of a site in each tile, and how much of the soil is bare there."""
        if kind == TRAIL:
            trail = self._trail(u)
            return trail, np.full(trail.shape, 0.8)
        row, column = self._spot(kind, u)
        rows = np.arange(self.size)[None, :, None] - row[:, None, None]
        columns = np.arange(self.size)[None, None, :] - column[:, None, None]
        if kind == MANAGEMENT:
            half = self.scale * (4 + 4 * u[:, 3:5])
            inside = (np.abs(rows) <= half[:, 0, None, None]) & (np.abs(columns) <= half[:, 1, None, None])
            stripes = np.floor(columns / (2 * self.scale)) % 2 == 0
            season = 0.25 + 0.5 * self._draw("season", self.year, 1)[:, 0]
            return inside, season[:, None, None] * (0.5 + 0.5 * stripes)
        small, large = (1.5, 4.0) if kind == LANDSLIDE else (4.0, 8.0)
        radii = self.scale * (small + (large - small) * u[:, 3:5])
        angle = np.pi * u[:, 5, None, None]
        along = rows * np.cos(angle) + columns * np.sin(angle)
        across = columns * np.cos(angle) - rows * np.sin(angle)
        distance = np.hypot(along / radii[:, 0, None, None], across / radii[:, 1, None, None])
        if kind == LANDSLIDE:
            return distance <= 1, np.full(distance.shape, 0.9)
        alpha = 0.45 * np.clip(1.2 - distance, 0, 1) * self.patchy
        return (distance <= 1) & (alpha > 0.08), alpha

    def _spot(self, kind: int, u: Floats) -> tuple[Floats, Floats]:
        """The middle of a site: of landslides the steepest of a few places, of others the first."""
        places = u[:, 8:].reshape(self.count, CANDIDATES, 2) * self.size
        best = np.zeros(self.count, np.int64)
        if kind == LANDSLIDE:
            at = np.minimum(places.astype(np.int64), self.size - 1)
            best = self.steepness[np.arange(self.count)[:, None], at[..., 0], at[..., 1]].argmax(1)
        chosen = places[np.arange(self.count), best]
        return chosen[:, 0], chosen[:, 1]

    def _trail(self, u: Floats) -> NDArray[np.bool_]:
        """Pixels of a walk along the contour line, one pixel of half a metre wide."""
        everyone = np.arange(self.count)
        row, column = u[:, 8] * self.size, u[:, 9] * self.size
        length = np.rint(self.scale * (STEPS[0] + (STEPS[1] - STEPS[0]) * u[:, 3])).astype(np.int64)
        trail = np.zeros((self.count, self.size, self.size), bool)
        for step in range(int(length.max(initial=0))):
            inside = (row >= 0) & (row < self.size) & (column >= 0) & (column < self.size) & (step < length)
            r, c = (np.clip(x, 0, self.size - 1).astype(np.int64) for x in (row, column))
            trail[everyone[inside], r[inside], c[inside]] = True
            down, right = self.rise[0, everyone, r, c], self.rise[1, everyone, r, c]
            norm = np.maximum(np.hypot(down, right), 1e-9)
            row, column = row - right / norm, column + down / norm
        width = round(self.scale)
        return ndimage.binary_dilation(trail, np.ones((1, width, width), bool)) if width > 1 else trail

    def _paint(self, site: NDArray[np.bool_], alpha: Floats, colour: tuple[float, float, float]) -> None:
        weight = (alpha * site)[:, None]
        self.colour = (1 - weight) * self.colour + weight * np.asarray(colour)[:, None, None]

    @cached_property
    def image(self) -> NDArray[np.uint8]:
        """Colours in the light of the year, with the sensor's noise, and three layers of terrain."""
        light = self._draw("light", self.year, 5)
        azimuth, tint = 2 * np.pi * light[:, 0], 0.9 + 0.2 * light[:, 1:4]
        down, right = self.rise
        facing = (np.cos(azimuth)[:, None, None] * down - np.sin(azimuth)[:, None, None] * right) + 1.6
        shade = np.clip(facing / np.sqrt(1 + self.steepness**2) / 1.6, 0.3, 1.6)
        moment = self.place * len(self.world.years) + self.year
        noise = ndtri(np.maximum(self._draw("noise", moment, 3 * self.size**2), 2.0**-54)).reshape(self.colour.shape)
        colour = self.colour * shade[:, None] * tint[:, :, None, None] + 0.03 * noise
        slope = np.degrees(np.arctan(self.steepness)) / 90
        aspect = (np.arctan2(-right, down) / (2 * np.pi)) % 1
        curvature = np.clip(0.5 + ndimage.laplace(self.heights, axes=(1, 2)) / self.world.pixel**2, 0, 1)
        layers = np.concatenate([colour, np.stack([slope, aspect, curvature], 1)], 1)
        return np.asarray(np.rint(np.clip(layers, 0, 1) * 255), np.uint8)
