"""Mask videos of your own: frames in folders, or arrays in an npz file, become sequences to train on and to measure.

They are prepared as in Klindt, Schott, Sharma and others, Towards nonlinear disentanglement in natural data with
temporal sparse coding (2021), appendices D.3 and D.5: down-sampled to the nearest pixels, cut into square windows, and
frames in which an object has too few pixels are skipped (Spec 001a, sections 4.4 and 4.6). Nothing is downloaded, and
nothing unpickled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from polariscope.registry import Settings
from polariscope.worlds.mask_sequences import FEWEST, Clips, Masks, MaskWorld, visible_runs
from polariscope.worlds.readers.image_folder import IMAGE_SUFFIXES, by_number, open_image
from polariscope.worlds.readers.numpy_files import npz
from polariscope.worlds.world import MadeAgain, worlds


@worlds.register("video")
@dataclass(frozen=True)
class Video(MadeAgain, MaskWorld):
    """Mask videos by their path: a folder with a folder of frames for each video, or an npz file. Read when needed.

    Frames are images in the order of their names. An npz file has ``masks`` (n, h, w), and ``sequence`` (n,) where they
    are several videos, or else one array (n, h, w) for each video. Pixels other than 0 belong to the object. Factors
    are the centre of mass and the area in a window; the view ``frame-pairs`` makes pairs of it, and
    :func:`polariscope.worlds.views.sequences.transitions` measures their changes.
    """

    examples: ClassVar[tuple[Settings, ...]] = ()  # it needs a file of yours

    path: str = ""
    size: int = 64
    """Pixels a side of the windows; the shorter side of frames is brought to it."""
    windows: int = 1
    """Number of windows of a frame, evenly spaced along its longer side, each with its own sequences; a single one is
    in the middle."""
    numbered: bool = False
    """Whether different numbers (or colours) in a frame are different objects, each a sequence of its own."""
    fewest: int = FEWEST
    """Smallest number of object pixels in a frame; a frame with fewer is skipped and ends the sequence."""

    def __post_init__(self) -> None:
        for name in ("size", "windows", "fewest"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} of a video is {getattr(self, name)}: it needs to be at least 1")

    @cached_property
    def clips(self) -> Clips:
        sequences = [
            masks[run]
            for name, frames in read_videos(self.path)
            for whole in _objects(frames, self.numbered)
            for masks in windowed(whole, self.size, self.windows, name)
            for run in visible_runs(masks, self.fewest)
        ]
        if not sequences:
            raise ValueError(
                f"{self.path}: expected objects in masks, but no two frames in a row show one of {self.fewest} pixels "
                f"or more at {self.size}x{self.size}; lower 'fewest' or raise 'size' if they are that small"
            )
        return Clips.of(sequences)


def read_videos(path: str | Path) -> Iterator[tuple[str, NDArray[Any]]]:
    """The videos at a path with their names, each ``(frames, height, width)``, at least two frames of one size."""
    if not str(path):
        raise ValueError("mask videos need a folder or an npz file: give its path, for instance with --world.path")
    path = Path(path).expanduser()
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {str(path)!r}; data is never downloaded, give its path")
    for name, frames in _in_folders(path) if path.is_dir() else _in_archive(path):
        if len(frames) < 2:
            raise ValueError(f"{name}: expected a video of at least 2 frames, but it has {len(frames)}")
        yield name, frames


def _in_folders(path: Path) -> Iterator[tuple[str, NDArray[Any]]]:
    files = [file for file in path.rglob("*") if file.suffix.lower() in IMAGE_SUFFIXES]
    files = [file for file in files if not any(part.startswith(".") for part in file.relative_to(path).parts)]
    if not files:
        raise ValueError(f"{path}: expected a folder of frames for each video, but there is no image in it")
    ordered = sorted(files, key=lambda file: (file.parent, by_number(file.name)))
    for folder, frames in groupby(ordered, lambda file: file.parent):
        yield str(folder), _stacked([(file, open_image(file, _colours)) for file in frames])


def _colours(image: Image.Image) -> NDArray[Any]:
    """The pixels of a frame; of an image with a palette, the colours and not their places in it."""
    return np.asarray(image.convert("RGB") if image.mode == "P" else image)


def _stacked(frames: Sequence[tuple[Path, NDArray[Any]]]) -> NDArray[Any]:
    """Frames of one size, one number per pixel."""
    first = frames[0][1].shape[:2]
    for file, frame in frames:
        if frame.shape[:2] != first:
            raise ValueError(
                f"{file}: expected {first[1]}x{first[0]} pixels like {frames[0][0].name}, but it has "
                f"{frame.shape[1]}x{frame.shape[0]}; the frames of a video have one size"
            )
    return np.stack([_numbers(frame) for _, frame in frames])


def _numbers(frame: NDArray[Any]) -> NDArray[Any]:
    """One number for each colour, 0 for black; whether it is transparent does not matter."""
    if frame.ndim == 2:
        return frame
    colours = frame[..., :-1] if frame.shape[2] in (2, 4) else frame
    return np.asarray(colours @ 256 ** np.arange(colours.shape[2]))


def _in_archive(path: Path) -> Iterator[tuple[str, NDArray[Any]]]:
    with npz(path) as archive:
        arrays = {name: archive[name] for name in archive.names}
    sequence = arrays.pop("sequence", None)
    for name, masks in arrays.items():
        if masks.ndim != 3 or masks.dtype.kind not in "biuf" or not masks.size:
            raise ValueError(
                f"{path}: expected masks (frames, height, width), but {name!r} is {masks.dtype} of shape {masks.shape}"
            )
    if "masks" not in arrays or sequence is None:
        if not arrays:
            raise ValueError(f"{path}: expected an array called masks, or one for each video, but the file holds none")
        yield from ((f"{path}: {name}", masks) for name, masks in arrays.items())
        return
    masks = arrays["masks"]
    if sequence.shape != masks.shape[:1]:
        raise ValueError(
            f"{path}: expected in 'sequence' the video of each of {len(masks)} masks, but it is {sequence.shape}"
        )
    for video in np.unique(sequence):
        yield f"{path}: sequence {video}", masks[sequence == video]


def _objects(frames: NDArray[Any], numbered: bool) -> Iterator[Masks]:
    """The masks of each object of a video."""
    if not numbered:
        yield frames != 0
        return
    for number in np.unique(frames):
        if number:
            yield frames == number


def windowed(masks: ArrayLike, size: int, windows: int = 1, source: str = "masks") -> list[Masks]:
    """Masks ``(n, h, w)`` down-sampled to the nearest pixels, so that their shorter side is ``size``, and cut into
    square windows, evenly spaced along the longer side; a single one is in the middle.

    >>> [window.shape for window in windowed(np.ones((2, 36, 64)), size=18, windows=3)]
    [(2, 18, 18), (2, 18, 18), (2, 18, 18)]
    """
    masks = np.asarray(masks).astype(bool)
    shorter = min(masks.shape[1:])
    if shorter < size:
        raise ValueError(
            f"{source}: expected frames of at least {size} pixels a side, but they are "
            f"{masks.shape[2]}x{masks.shape[1]}; give a smaller size"
        )
    sides = [round(side * size / shorter) for side in masks.shape[1:]]
    rows, columns = (
        ((np.arange(few) + 0.5) * many / few).astype(np.int64) for few, many in zip(sides, masks.shape[1:], strict=True)
    )
    small = masks[:, rows[:, None], columns]
    spare = max(sides) - size
    corners = np.rint(np.linspace(0, spare, windows)).astype(int) if windows > 1 else [spare // 2]
    tall = sides[0] > sides[1]
    return [small[:, at : at + size] if tall else small[:, :, at : at + size] for at in corners]
