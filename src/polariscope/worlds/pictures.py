"""Observations as pictures: images of any number of channels, in bytes or floats, for display."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Limits = tuple[float, float]
"""The numbers that are shown as black and as white."""


def pictured(images: NDArray[np.generic], limits: Limits | None = None) -> NDArray[np.uint8]:
    """Images ``(..., channels, height, width)`` in bytes, of one channel (grey) or three (colours).

    Of more than three channels the first three are shown, of two the first. Bytes stay unchanged; floats are scaled so
    that the limits, by default the least and the greatest number, are black and white.

    >>> heights = np.linspace(-3, 800, 7 * 4).reshape(7, 2, 2)
    >>> pictured(heights).shape, int(pictured(heights).min()), int(pictured(heights).max())
    ((3, 2, 2), 0, 255)
    """
    shown = images[..., : _shown(images), :, :]
    if shown.dtype == np.uint8:
        return shown  # type: ignore[return-value]
    low, high = limits_of([images]) if limits is None else limits
    scaled = (shown.astype(np.float32) - low) * (255 / (high - low or 1.0))
    return np.rint(scaled.clip(0, 255)).astype(np.uint8)


def limits_of(images: Iterable[NDArray[np.generic]]) -> Limits:
    """The least and the greatest number of the channels that are shown; bytes have those of a screen."""
    ends = [(0.0, 255.0) if x.dtype == np.uint8 else _ends(x[..., : _shown(x), :, :]) for x in images]
    return min(low for low, _ in ends), max(high for _, high in ends)


def picture_note(shape: tuple[int, ...], limits: Limits | None = None) -> str:
    """A note about what pictures leave out or rescale, if anything."""
    channels = shape[0]
    which = f"the first {3 if channels > 3 else 'one'} of {channels} channels" if channels not in (1, 3) else ""
    scale = f"numbers from {limits[0]:.4g} (black) to {limits[1]:.4g} (white)" if limits is not None else ""
    return f"Pictures show {', '.join(part for part in (which, scale) if part)}." if which or scale else ""


def _shown(images: NDArray[np.generic]) -> int:
    return 3 if images.shape[-3] >= 3 else 1


def _ends(numbers: NDArray[np.generic]) -> Limits:
    return float(numbers.min()), float(numbers.max())
