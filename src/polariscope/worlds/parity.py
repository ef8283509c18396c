"""Is the digit even or odd? Images as a task of two labels, cut into parts for a net, for its kernel, and for a test.

A kernel taken from a trained net must learn from examples that did not train the net, so the parts are disjoint, and
all hold the ten digits in equal numbers. The source may be any world whose first factor is the digit: drawn ones, or
the real files of MNIST. (Spec 004, section 2.6; Paccolat, Petrini, Geiger, Tyloo and Wyart 2021, section 5.2.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polariscope.worlds.readers.files import read
from polariscope.worlds.targets import Examples
from polariscope.worlds.views.digit_tasks import resize
from polariscope.worlds.world import ArrayWorld, World


@dataclass(frozen=True, eq=False)
class ParityTask:
    """Examples to train a net on, as many others for learning with its kernel, and those to test both on: images
    ``float32 (n, c, h, w)`` of norm √(c h w) with the labels +1 (even) and −1 (odd)."""

    net: Examples
    kernel: Examples
    test: Examples


def parity_task(source: World, train: int, test: int, seed: int = 0, size: int | None = None) -> ParityTask:
    """Draw ``train`` images for the net, as many for the kernel, and ``test`` others, with the parity of their digit.

    The digits alternate 0, 1, ..., 9 throughout, so that every part is balanced, exactly so if its size is a multiple
    of ten. ``size`` resizes the images to ``size`` x ``size``. The mean training image is subtracted from all
    images before they are scaled.

    >>> from polariscope.worlds.renderers.digits import Digits
    >>> task = parity_task(Digits(count=500, size=14), train=100, test=50)
    >>> task.net.x.shape, int(task.net.y.sum()), round(float((task.test.x[0] ** 2).sum()))
    ((100, 1, 14, 14), 0, 196)
    """
    if train < 1 or test < 1:
        raise ValueError(f"a parity task needs examples to train on and to test on; got {train} and {test}")
    if len(source.shape) != 3 or not source.factors:
        raise ValueError(
            f"a parity task needs images whose first factor is the digit; the source has shape {source.shape} "
            f"and {len(source.factors)} factors"
        )
    if size is not None and size < 1:
        raise ValueError(f"the size of the images is {size}; they need at least 1 pixel")
    digits = np.asarray(source.factors_of(np.arange(len(source))))[:, 0].astype(np.int64)
    index = _alternating(digits, 2 * train + test, np.random.default_rng(seed))
    images = source.observe(index)
    if size is not None and images.shape[2:] != (size, size):
        images = resize(images, (size, size))
    values = images.astype(np.float32)
    values -= values[:train].mean(0)
    norms = np.sqrt(np.square(values).sum((1, 2, 3), keepdims=True))
    if not (norms > 0).all():
        raise ValueError("an image equals the mean image, so it cannot be scaled; give a source that varies")
    values *= np.float32(math.sqrt(math.prod(values.shape[1:]))) / norms

    def part(start: int, count: int) -> Examples:
        rows = slice(start, start + count)
        return Examples(values[rows], np.where(digits[index[rows]] % 2, -1.0, 1.0), index=index[rows])

    return ParityTask(part(0, train), part(train, train), part(2 * train, test))


def digit_files(folder: str | Path) -> ArrayWorld:
    """All images of digits in a folder of IDX files, training and test files together, with the labels beside them.

    The four files of MNIST (or of a set in its format), plain or gzip, make one world of 70,000 images.
    """
    folder = Path(folder).expanduser()
    files = sorted(folder.glob("*images*idx3*"))
    if not files:
        raise FileNotFoundError(f"{folder} holds no IDX images (such as train-images-idx3-ubyte.gz); give their folder")
    parts = [read(file) for file in files]
    bare = [part.source for part in parts if not part.factors]
    if bare:
        raise ValueError(f"{bare[0]} has no labels beside it; a parity task needs the digits")
    observations = np.concatenate([part.observe(np.arange(len(part))) for part in parts])
    positions = np.concatenate([part.factors_of(np.arange(len(part))) for part in parts])
    return ArrayWorld(observations, positions, parts[0].factors, source=str(folder))


def _alternating(digits: NDArray[np.int64], count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Numbers of ``count`` random images whose digits are 0, 1, ..., 9, 0, 1, and so on."""
    strange = np.setdiff1d(digits, np.arange(10))
    if len(strange):
        raise ValueError(f"the first factor of a parity task is a digit from 0 to 9; the source has {strange[0]}")
    held = np.bincount(digits, minlength=10)
    wanted = (count + 9 - np.arange(10)) // 10
    if (held < wanted).any():
        short = int(np.argmax(held < wanted))
        raise ValueError(
            f"{count} images with equal numbers of each digit need {wanted[short]} of digit {short}; the source has "
            f"{held[short]}"
        )
    shuffled = rng.permutation(len(digits))
    grouped = shuffled[np.argsort(digits[shuffled], kind="stable")]
    starts = np.cumsum(held) - held
    turn, digit = np.divmod(np.arange(count), 10)
    return grouped[starts[digit] + turn]
