"""Folders of images: listed at once, decoded on demand."""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from polariscope.foreign_files import check_regular, reading
from polariscope.printable import one_line
from polariscope.worlds.capacity import check_images, check_unpacked
from polariscope.worlds.observations import HELD, Stored

IMAGE_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm"}
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
"""Formats that are decoded, whatever the name of a file: Pillow has others, some of which run programs (Ghostscript for
EPS)."""


class ImageRows(Stored):
    """Images as ``uint8 (n, channels, height, width)``. The first decoded images are cached, up to ``kept`` bytes."""

    dtype = np.dtype(np.uint8)

    def __init__(
        self, files: Sequence[Path], colour: str, size: tuple[int, int], kept: int = HELD, transparent: bool = False
    ) -> None:
        self.files, self.colour, self.size, self.transparent = files, colour, size, transparent
        self.shape = (len(files), len(colour), size[1], size[0])
        self._room = kept // (self.nbytes // len(files))
        self._decoded: dict[int, NDArray[np.uint8]] = {}

    def assumed(self, folder: Path, ordered: bool) -> tuple[str, ...]:
        """What a user may not expect: transparency that does not count, and (where nothing else tells the images apart)
        an order by letters that differs from that by numbers."""
        notes = []
        if self.transparent:
            notes.append(
                "The transparency of images is not used: a transparent pixel has the colour that the file gives."
            )
        names = [file.relative_to(folder).as_posix() for file in self.files] if ordered else []
        swapped = [pair for pair in zip(names, sorted(names, key=by_number), strict=True) if pair[0] != pair[1]]
        if swapped:
            notes.append(
                f"Images are in the order of the letters of their names, in which {one_line(swapped[0][0])} comes "
                f"before {one_line(swapped[0][1])}: labels need the same order."
            )
        return tuple(notes)

    def fetch(self, index: NDArray[np.int64]) -> NDArray[Any]:
        rows = np.empty((len(index), *self.shape[1:]), np.uint8)
        for row, number in zip(rows, index.tolist(), strict=True):
            row[...] = self._image(number)
        return rows

    def _image(self, number: int) -> NDArray[np.uint8]:
        if number in self._decoded:
            return self._decoded[number]
        pixels: NDArray[np.uint8] = open_image(self.files[number], self._pixels)
        if len(self._decoded) < self._room:
            self._decoded[number] = pixels
        return pixels

    def _pixels(self, image: Image.Image) -> NDArray[np.uint8]:
        image = image.convert(self.colour)
        if image.size != self.size:
            image = image.resize(self.size, Image.Resampling.LANCZOS)
        return np.moveaxis(np.asarray(image).reshape(*self.shape[2:], -1), -1, 0)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_decoded": {}}


def read_folder(folder: Path, size: int | None) -> tuple[ImageRows, NDArray[np.str_] | None]:
    """The images in a folder or its sub-folders, in the order of their names; sub-folders, sorted, are the labels."""
    if size is not None and size < 1:
        raise ValueError(f"{folder}: size is {size}; images need at least 1 pixel")
    files = images_in(folder)
    if not files:
        kinds = ", ".join(sorted(suffix[1:] for suffix in IMAGE_SUFFIXES))
        raise ValueError(f"{folder}: expected a folder with images ({kinds}), but it holds none")
    labels = np.array([file.parts[0] if len(file.parts) > 1 else "" for file in files])
    if "" in labels and (labels != "").any():
        raise ValueError(f"{folder}: expected all images in sub-folders or none, but {files[0]} and others are mixed")
    rows = _rows([folder / file for file in files], size)
    check_images(rows.shape[1:], len(rows), str(folder), advice="size={side} (--world.size {side}) would fit")
    return rows, None if labels[0] == "" else labels


def images_in(folder: Path) -> list[Path]:
    """Images in a folder and its sub-folders by their paths within it, in the order of their names."""
    return files_in(folder, lambda file: file.suffix.lower() in IMAGE_SUFFIXES)


def by_number(name: str) -> list[Any]:
    """A key that sorts names by the numbers in them.

    >>> sorted(["10.png", "9.png", "a2.png"], key=by_number)
    ['9.png', '10.png', 'a2.png']
    """
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def files_in(folder: Path, wanted: Callable[[Path], bool]) -> list[Path]:
    """Files in a folder and its sub-folders by their paths within it, in the order of their names; no hidden ones."""
    within = [file.relative_to(folder) for file in folder.rglob("*") if wanted(file)]
    return sorted(file for file in within if not any(part.startswith(".") for part in file.parts))


def _rows(files: Sequence[Path], size: int | None) -> ImageRows:
    """Grey if all images are, else RGB; of one size, or resized."""
    seen = [open_image(file, lambda image: (image.mode, image.size)) for file in files]
    for file, (mode, extent) in zip(files, seen, strict=True):
        if mode[0] in "IF":
            raise ValueError(f"{file}: expected 8-bit pixels, but they are {mode}; convert the image first")
        if size is None and extent != seen[0][1]:
            raise ValueError(
                f"{file}: expected {seen[0][1][0]}x{seen[0][1][1]} pixels like {files[0].name}, but it has "
                f"{extent[0]}x{extent[1]}; give a size (size=, --world.size) to resize them all"
            )
    transparent = any(mode in ("LA", "PA", "RGBA") for mode, _ in seen)
    colour = "L" if all(mode in ("1", "L", "LA") for mode, _ in seen) else "RGB"
    return ImageRows(files, colour, seen[0][1] if size is None else (size, size), transparent=transparent)


def open_image(file: Path, look: Callable[[Image.Image], Any]) -> Any:
    """The result of ``look`` for an image; an unreadable image is refused."""
    check_regular(file)
    _quiet_libtiff()
    # Large images are looked at before they are decoded. Pillow warns about them; whether there is room we say.
    with reading(file, "a whole image"):
        try:
            with Image.open(file, formats=FORMATS) as image:
                check_unpacked(4 * image.width * image.height, str(file))
                return look(image)
        except Image.DecompressionBombError as error:
            raise ValueError(str(error)) from error


@functools.cache
def _quiet_libtiff() -> None:
    """Silence libtiff on damaged files: it would print its own message before our error."""
    library = ctypes.CDLL(Image.core.__file__)  # where names of the libraries that it was linked with are found too
    for name in ("TIFFSetErrorHandler", "TIFFSetWarningHandler"):
        if hasattr(library, name):
            getattr(library, name)(None)
