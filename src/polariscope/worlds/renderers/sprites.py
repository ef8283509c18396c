"""dSprites without a download: 737,280 white sprites on black, and its coloured, noisy and textured variants.

The plain world at 64 x 64 pixels gives the images of the original (Matthey, Higgins, Hassabis and Lerchner 2017) in
their order. All 46,080 real images of a published sixteenth of it come out in every bit, and the published mean pixel
of the whole to the last digit. The rule was found with the help of both, so neither proves the rest: single pixels of
a handful of images, where a corner lies on a rounding tie, may differ. ``sprite_raster.py`` has it.
The variants follow Locatello et al. 2019 (Spec 002, section 15), with a procedural texture in place of the painting.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.registry import Settings, nearest
from polariscope.worlds.factors import Factor, FactorGrid
from polariscope.worlds.numbered_draws import counters, mix, random_words
from polariscope.worlds.renderers.sprite_raster import silhouettes
from polariscope.worlds.world import GridWorld, worlds

Variant = Literal["plain", "colour", "noisy", "textured"]
SMALLEST, LARGEST = 8, 1024  # side of the canvas in pixels
BIGGEST = 16  # scale: sprites that fill the canvas long since, and arithmetic that is still exact
_DRESSED_PIXELS = 1 << 19  # worked on at a time: what is random stays in the processor's cache
_PACKED_PIXELS = 1 << 24  # worked on at a time where the whole grid passes through


@worlds.register("sprites")
@dataclass(frozen=True)
class Sprites(GridWorld):
    """Squares, ellipses and hearts in 6 sizes, 40 orientations and 32 x 32 positions.

    ``size`` is the side in pixels; other sides than 64 draw the same geometry on a coarser or finer canvas.

    ``variant``: ``plain`` is white on black (one channel). The others have three channels: ``colour`` multiplies the
    sprite with an RGB colour from U[.5, 1]³; ``noisy`` adds U[0, 1] to every pixel and channel and clips at white;
    ``textured`` averages a random crop of a smooth texture with a random colour and inverts it on the sprite. Random
    draws are functions of (observation number, ``seed``), so an observation never changes.

    Orientations are ``linspace(0, 2π, 40)`` as in the original, both ends included: positions 0 and 39 are the same
    angle and the same images, and a quarter turn is not a whole number of steps. ``unambiguous`` keeps the orientations
    in [0°, 90°), which are the first 10 (0° to 83.1°): a square returns to itself after 90°, an ellipse after 180°, so
    that on the full circle the orientation cannot be read from the image (Spec 001a, section 8.5). Orientation is then
    ordinal, not periodic.

    >>> world = Sprites()
    >>> len(world), world.shape, len(Sprites(unambiguous=True))
    (737280, (1, 64, 64), 184320)
    >>> world.factors_of([541563]).tolist(), int((world.observe([541563]) == 255).sum())
    ([[2, 1, 8, 27, 27]], 83)
    """

    examples: ClassVar[tuple[Settings, ...]] = (
        *({"size": 16, "variant": variant} for variant in ("plain", "colour", "noisy", "textured")),
        {"size": 16, "unambiguous": True},
    )

    size: int = 64
    variant: Variant = "plain"
    unambiguous: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if not SMALLEST <= self.size <= LARGEST:
            raise ValueError(
                f"sprites have a size of {SMALLEST} to {LARGEST} pixels a side, got {self.size}: the original has 64"
            )
        if self.variant not in get_args(Variant):
            raise ValueError(
                f"sprites have no variant {self.variant!r}: {nearest(str(self.variant), get_args(Variant))}"
            )

    @cached_property
    def grid(self) -> FactorGrid:
        orientation = np.linspace(0, 2 * np.pi, 40)[: 10 if self.unambiguous else 40]
        return FactorGrid(
            (
                Factor("shape", 3, "categorical", (1.0, 2.0, 3.0)),
                Factor("scale", 6, "ordinal", tuple(np.linspace(0.5, 1, 6).tolist())),
                Factor(
                    "orientation",
                    len(orientation),
                    "ordinal" if self.unambiguous else "periodic",
                    tuple(orientation.tolist()),
                ),
                Factor("x", 32, "ordinal", tuple(np.linspace(0, 1, 32).tolist())),
                Factor("y", 32, "ordinal", tuple(np.linspace(0, 1, 32).tolist())),
            )
        )

    @property
    def shape(self) -> tuple[int, int, int]:
        return (1 if self.variant == "plain" else 3, self.size, self.size)

    def render(self, factors: ArrayLike) -> NDArray[np.uint8]:
        factors = self.grid.check(factors)
        return self._dress(self._masks(factors), self.grid.to_index(factors))

    def render_continuous(
        self,
        shape: ArrayLike,
        scale: ArrayLike,
        orientation: ArrayLike,
        x: ArrayLike,
        y: ArrayLike,
        index: ArrayLike | None = None,
    ) -> NDArray[np.uint8]:
        """Images between the points of the grid, by the same rule; the arguments broadcast against each other.

        ``shape`` is 0 square, 1 ellipse or 2 heart; ``scale`` is positive (the grid has .5 to 1); ``orientation`` is in
        radians, counter-clockwise; ``x`` (to the right) and ``y`` (down) lie in [0, 1]. ``index`` are the numbers from
        which a variant draws what is random: 0, 1, 2, ... unless given.

        >>> Sprites(size=16).render_continuous(0, 1.0, np.linspace(0, 0.7, 5), 0.5, 0.5).shape
        (5, 1, 16, 16)
        """
        columns = np.broadcast_arrays(
            *(np.atleast_1d(np.asarray(value)) for value in (shape, scale, orientation, x, y))
        )
        kind = columns[0].ravel()
        if kind.dtype.kind not in "iu" or not np.isin(kind, range(3)).all():
            raise ValueError("shape needs to be an integer: 0 for a square, 1 for an ellipse, 2 for a heart")
        scale, orientation, x, y = (column.ravel().astype(np.float64) for column in columns[1:])
        for name, value, fits, needs in (
            ("scale", scale, (scale > 0) & (scale <= BIGGEST), f"lie above 0 and up to {BIGGEST}"),
            ("orientation", orientation, np.isfinite(orientation), "be an angle in radians"),
            ("x", x, (x >= 0) & (x <= 1), "lie in [0, 1]"),
            ("y", y, (y >= 0) & (y <= 1), "lie in [0, 1]"),
        ):
            if not fits.all():
                raise ValueError(f"{name} needs to {needs}, got {value[~fits][0]:g}")
        numbers = np.arange(len(kind)) if index is None else np.asarray(index, np.int64).ravel()
        if len(numbers) != len(kind):
            raise ValueError(f"index needs one number per image ({len(kind)}), got {len(numbers)}")
        return self._dress(silhouettes(kind.astype(np.int64), scale, orientation, x, y, self.size), numbers)

    def distinct(self) -> NDArray[np.int64]:
        """Numbers of observations with different silhouettes: the first of each, in order (715,706 of the original).

        Measures that look at nearest neighbours, as intrinsic dimension does, break on duplicates. Renders the whole
        grid; :meth:`cache` has the same method without that. Silhouettes are told apart by a 64-bit hash, which two
        different ones share with a probability below 1e-7 over the whole grid.
        """
        return _first_of_each([_hash_rows(self._pack(part)) for part in self._parts()])

    def cache(self, path: str | os.PathLike[str]) -> CachedSprites:
        """This world with all silhouettes in a file, one bit per pixel (377 MB for the original), written if missing.

        The file appears at ``path`` only when it is complete. It serves every variant and seed of the same grid.
        """
        path = Path(path)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
            try:
                file = np.lib.format.open_memmap(
                    unfinished, mode="w+", dtype=np.uint8, shape=(len(self), _row_bytes(self.size))
                )
                for part in self._parts():
                    file[part] = self._pack(part)
                file.flush()
                os.replace(unfinished, path)
            finally:
                unfinished.unlink(missing_ok=True)
        return CachedSprites(self, path)

    def _masks(self, factors: NDArray[np.int64]) -> NDArray[np.uint8]:
        kind = factors[:, 0]
        scale, orientation, x, y = (np.asarray(self.factors[k].values)[factors[:, k]] for k in range(1, 5))
        return silhouettes(kind, scale, orientation, x, y, self.size)

    def _parts(self) -> list[slice]:
        """The whole grid in parts of a size that memory takes lightly."""
        count = max(1, _PACKED_PIXELS // self.size**2)
        return [slice(begin, min(begin + count, len(self))) for begin in range(0, len(self), count)]

    def _pack(self, part: slice) -> NDArray[np.uint8]:
        """The silhouettes of a part of the grid, a row of bits each."""
        masks = self._masks(self.factors_of(np.arange(part.start, part.stop)))
        return np.packbits(masks.reshape(len(masks), -1), axis=1)

    def _dress(self, masks: NDArray[np.uint8], index: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Images of the variant from masks ``(n, size, size)``."""
        masks = masks[:, None]
        if self.variant == "plain":
            return masks
        dress = {"colour": self._coloured, "noisy": self._noisy, "textured": self._textured}[self.variant]
        images = np.empty((len(masks), *self.shape), np.uint8)
        count = max(1, _DRESSED_PIXELS // self.size**2)
        for begin in range(0, len(masks), count):
            part = slice(begin, begin + count)
            images[part] = dress(masks[part], index[part])
        return images

    # A mask is 0 or 255, so "and" multiplies with it, "or" adds it and clips, "exclusive or" inverts under it.

    def _coloured(self, masks: NDArray[np.uint8], index: NDArray[np.int64]) -> NDArray[np.uint8]:
        return masks & (128 + _random_bytes(self.seed, index, 3)[:, :, None, None] // 2)

    def _noisy(self, masks: NDArray[np.uint8], index: NDArray[np.int64]) -> NDArray[np.uint8]:
        return masks | _random_bytes(self.seed, index, 3 * self.size**2).reshape(-1, *self.shape)

    def _textured(self, masks: NDArray[np.uint8], index: NDArray[np.int64]) -> NDArray[np.uint8]:
        random = _random_bytes(self.seed, index, 8)
        colour = random[:, :3, None, None]
        row, column = random[:, 4:].view("<u2").astype(np.int64).T * (3 * self.size) >> 16
        crop = _crops(self.size, self.seed)[row, column]
        average = (crop & colour) + ((crop ^ colour) >> 1)  # of two bytes, without a wider type
        return masks ^ average


@dataclass(frozen=True)
class CachedSprites:
    """A :class:`Sprites` world whose silhouettes come from a memory-mapped file; made by :meth:`Sprites.cache`."""

    world: Sprites
    path: Path

    def __post_init__(self) -> None:
        probe = np.linspace(0, len(self) - 1, 97).astype(np.int64)
        if not np.array_equal(self._unpack(probe), self.world._masks(self.factors_of(probe))):
            raise self._refusal("it holds other images")

    def __reduce__(self) -> tuple[Any, ...]:
        return CachedSprites, (self.world, self.path)  # another process maps the file again: no copy of it travels

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.world.shape

    @property
    def factors(self) -> tuple[Factor, ...]:
        return self.world.factors

    def __len__(self) -> int:
        return len(self.world)

    def observe(self, index: ArrayLike) -> NDArray[np.uint8]:
        numbers = self.world.grid.to_index(self.factors_of(index))  # refuses what a plain look-up would wrap around
        return self.world._dress(self._unpack(numbers), numbers)

    def factors_of(self, index: ArrayLike) -> NDArray[np.int64]:
        return self.world.factors_of(index)

    def distinct(self) -> NDArray[np.int64]:
        """As :meth:`Sprites.distinct`, from the file."""
        return _first_of_each([_hash_rows(self._bits[part]) for part in self.world._parts()])

    @cached_property
    def _bits(self) -> NDArray[np.uint8]:
        try:
            bits = np.lib.format.open_memmap(self.path, mode="r")
        except (ValueError, OSError) as error:
            raise self._refusal(str(error).rstrip(".")) from error
        expected = (len(self), _row_bytes(self.world.size))
        if bits.shape != expected or bits.dtype != np.uint8:
            raise self._refusal(f"it holds {bits.dtype} {bits.shape}, not uint8 {expected}")
        return bits

    def _unpack(self, index: NDArray[np.int64]) -> NDArray[np.uint8]:
        size = self.world.size
        pixels = np.unpackbits(self._bits[index], axis=1, count=size**2)
        return (pixels * np.uint8(255)).reshape(-1, size, size)

    def _refusal(self, reason: str) -> ValueError:
        return ValueError(
            f"{self.path} is no cache of these sprites ({reason}): delete it, or give cache() another path"
        )


def _row_bytes(size: int) -> int:
    return -(-(size**2) // 8)


def _random_bytes(seed: int, index: NDArray[np.int64], count: int) -> NDArray[np.uint8]:
    """``count`` uniform bytes for each observation number: the same whichever others are asked for beside it."""
    words = random_words(seed, index, -(-count // 8))
    return words.astype("<u8", copy=False).view(np.uint8)[:, :count]


def _hash_rows(bits: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """One 64-bit hash a row of bytes: each word mixed with its place, then summed."""
    padded = np.pad(bits, ((0, 0), (0, -bits.shape[1] % 8)))
    words = padded.view(np.uint64)
    places = mix(counters(np.zeros(1, np.uint64), words.shape[1]))
    return mix(words ^ places).sum(axis=1, dtype=np.uint64)


def _first_of_each(hashes: list[NDArray[np.uint64]]) -> NDArray[np.int64]:
    return np.sort(np.unique(np.concatenate(hashes), return_index=True)[1])


@lru_cache(maxsize=4)
def _crops(size: int, seed: int) -> NDArray[np.uint8]:
    """All crops ``(row, column, 3, size, size)`` of one smooth random picture, the stand-in for a painting.

    The picture, four times as wide as a crop, is white noise whose amplitudes are made to fall with the square of the
    frequency, so that its strokes are about as wide as a sprite; each channel is stretched to the full range.
    """
    side = 4 * size
    noise = np.random.default_rng((seed % 2**64, size)).standard_normal((3, side, side))
    frequency = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)) * side
    picture = np.fft.irfft2(np.fft.rfft2(noise) / (frequency**2 + 16), s=(side, side))
    low, high = (extreme(axis=(1, 2), keepdims=True) for extreme in (picture.min, picture.max))
    picture = np.rint(255 * (picture - low) / (high - low)).astype(np.uint8)
    return np.lib.stride_tricks.sliding_window_view(picture, (size, size), axis=(1, 2)).transpose(1, 2, 0, 3, 4)
