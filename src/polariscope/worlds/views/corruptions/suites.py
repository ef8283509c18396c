"""The two suites as tables of published constants, and the one function that applies them.

ImageNet-C: Hendrycks and Dietterich (2019), 224 pixels a side; MNIST-C: Mu and Gilmer (2019), 28 pixels a side. For
other pictures lengths are rescaled, so that a corruption is the published one seen smaller (Spec 001b, section A9).

Pictures are further from the clean ones with every severity, but for one step of three kinds, where the published
constants change their way: from 2 to 3 ``elastic`` becomes finer, the flakes of ``snow`` fewer, and ``saturate`` turns
from draining colours to deepening them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.registry import nearest
from polariscope.worlds.views.corruptions import blur, digital, noise, strokes, weather
from polariscope.worlds.views.corruptions.corruption import HELD_OUT, Corruption, Draws, Suite

_TOGETHER = 1 << 18  # numbers worked on at a time: what they need stays in the processor's cache
SMALLEST = 8

WATER, MUD, GREY = ((175 / 255, 238 / 255, 238 / 255), (63 / 255, 42 / 255, 20 / 255), (63 / 255,) * 3)


def _each(*constants: Any) -> tuple[tuple[Any, ...], ...]:
    """Settings of corruptions that have one number a severity."""
    return tuple((constant,) for constant in constants)


def _suite(name: str, size: int, *kinds: Corruption) -> Suite:
    return Suite(name, size, MappingProxyType({kind.name: kind for kind in kinds}))


IMAGENET_C = _suite(
    "imagenet-c",
    224,
    Corruption("gaussian", "noise", noise.gaussian, _each(0.08, 0.12, 0.18, 0.26, 0.38)),
    Corruption("shot", "noise", noise.shot, _each(60, 25, 12, 5, 3)),
    Corruption("impulse", "noise", noise.impulse, _each(0.03, 0.06, 0.09, 0.17, 0.27)),
    Corruption("defocus", "blur", blur.defocus, ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5))),
    Corruption("glass", "blur", blur.glass, ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2))),
    Corruption("motion", "blur", blur.motion, ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15))),
    Corruption("zoom", "blur", blur.zoom, ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03))),
    Corruption(
        "snow",
        "weather",
        weather.snow,
        (
            (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
            (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
            (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
            (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
            (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
        ),
    ),
    Corruption("frost", "weather", weather.frost, ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75))),
    Corruption("fog", "weather", weather.fog, ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4))),
    Corruption("brightness", "weather", weather.brightness, _each(0.1, 0.2, 0.3, 0.4, 0.5)),
    Corruption("contrast", "digital", digital.contrast, _each(0.4, 0.3, 0.2, 0.1, 0.05)),
    Corruption(
        "elastic",
        "digital",
        digital.elastic,
        ((2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02)),
    ),
    Corruption("pixelate", "digital", digital.pixelate, _each(0.6, 0.5, 0.4, 0.3, 0.25)),
    Corruption("jpeg", "digital", digital.jpeg, _each(25, 18, 15, 10, 7)),
    Corruption("speckle", HELD_OUT, noise.speckle, _each(0.15, 0.2, 0.35, 0.45, 0.6)),
    Corruption("gaussian-blur", HELD_OUT, blur.gaussian_blur, _each(1, 2, 3, 4, 6)),
    Corruption(
        "spatter",
        HELD_OUT,
        weather.spatter,
        (
            (True, 0.65, 0.3, 4, 0.69, 0.6, WATER),
            (True, 0.65, 0.3, 3, 0.68, 0.6, WATER),
            (True, 0.65, 0.3, 2, 0.68, 0.5, WATER),
            (False, 0.65, 0.3, 1, 0.65, 1.5, MUD),
            (False, 0.67, 0.4, 1, 0.65, 1.5, MUD),
        ),
    ),
    Corruption(
        "saturate", HELD_OUT, weather.saturate, ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)), coloured=True
    ),
)

MNIST_C = _suite(
    "mnist-c",
    28,
    Corruption("shot", "noise", noise.shot, _each(3)),
    Corruption("impulse", "noise", noise.impulse, _each(0.17)),
    Corruption("glass", "blur", blur.glass, ((0.7, 1, 2, 0.5),)),
    Corruption("motion", "blur", blur.motion, ((10, 3),)),
    Corruption("shear", "geometry", strokes.shear, _each(0.4)),
    Corruption("scale", "geometry", strokes.resize, _each(0.7)),
    Corruption("rotate", "geometry", strokes.rotate, _each(0.4)),
    Corruption("brightness", "light", weather.brightness, _each(0.5)),
    Corruption("translate", "geometry", strokes.translate, _each(3)),
    Corruption("stripe", "drawn over", strokes.stripe),
    Corruption("fog", "light", weather.fog, ((3, 1.4),)),
    Corruption("spatter", "drawn over", weather.spatter, ((False, 0.65, 0.3, 1, 0.65, 1.5, GREY),)),
    Corruption("dotted-line", "drawn over", strokes.dotted_line, _each(2)),
    Corruption("zigzag", "drawn over", strokes.zigzag, ((2, 2, 5),)),
    Corruption("canny", "drawn over", strokes.canny, ((1, 0.1, 0.2),)),
)

SUITES: Mapping[str, Suite] = MappingProxyType({suite.name: suite for suite in (IMAGENET_C, MNIST_C)})


def suite_named(name: str) -> Suite:
    """A suite by its name."""
    if name not in SUITES:
        raise ValueError(f"there is no suite {name!r} of corruptions: {nearest(name, SUITES)}")
    return SUITES[name]


def corrupt(
    images: ArrayLike,
    kind: str,
    severity: int = 3,
    *,
    suite: str = "imagenet-c",
    seed: int = 0,
    index: ArrayLike | None = None,
) -> NDArray[Any]:
    """Pictures under one corruption: bytes, or floats from 0 to 1, ``(n, channels, height, width)``, as they came.

    What is drawn for a picture is a function of ``seed``, ``kind`` and its number in ``index`` (0, 1, ... if there is
    none), whichever other pictures are there. All pictures of a block are worked on at once.

    >>> grey = np.full((2, 3, 32, 32), 128, np.uint8)
    >>> worse = corrupt(grey, "gaussian", 2)
    >>> worse.shape, worse.dtype, bool((corrupt(grey[1:], "gaussian", 2, index=[1])[0] == worse[1]).all())
    ((2, 3, 32, 32), dtype('uint8'), True)
    """
    chosen = suite_named(suite)
    corruption, settings = chosen.at(kind, severity)
    given = _pictures(np.asarray(images), corruption)
    numbers = np.arange(len(given)) if index is None else np.asarray(index)
    if numbers.shape != given.shape[:1] or not (numbers.dtype.kind in "iu" or not numbers.size):
        raise ValueError(f"index has a whole number for each of the {len(given)} pictures, and has {numbers.shape}")
    scale = min(given.shape[2:]) / chosen.size
    white = np.float32(255 if given.dtype == np.uint8 else 1)
    worse = np.empty_like(given)
    block = max(1, _TOGETHER // max(1, given[0].size if len(given) else 1))
    for start in range(0, len(given), block):
        part = slice(start, start + block)
        draws = Draws(seed, kind, numbers[part].astype(np.int64))
        corrupted = corruption.change(given[part].astype(np.float32) / white, draws, scale, *settings).clip(0, 1)
        worse[part] = np.rint(corrupted * white) if given.dtype == np.uint8 else corrupted
    return worse


def _pictures(images: NDArray[Any], corruption: Corruption) -> NDArray[Any]:
    """The pictures, if a corruption can be applied to them."""
    if images.ndim != 4 or images.shape[1] < 1 or min(images.shape[2:]) < SMALLEST:
        raise ValueError(
            f"corruptions need pictures (n, channels, height, width) of at least {SMALLEST}x{SMALLEST} pixels, and "
            f"these are {images.shape}"
        )
    if images.dtype != np.uint8 and images.dtype.kind != "f":
        raise TypeError(f"pictures are bytes or floats from 0 to 1, and these are {images.dtype}: convert them first")
    if images.dtype != np.uint8 and images.size and not (images.min() >= 0 and images.max() <= 1):
        raise ValueError(
            f"floats are brightnesses from 0 to 1, and these go from {images.min():g} to {images.max():g}: rescale them"
        )
    if corruption.coloured and images.shape[1] != 3:
        raise ValueError(
            f"{corruption.name!r} changes colours, and pictures of {images.shape[1]} channel(s) have none: "
            "give pictures of 3 channels, or take another corruption"
        )
    return images
