"""Areas of classes, from a map or from probabilities without a threshold (Spec 000, sections 5.6 and 5.8)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.mapping.harden import as_probabilities, harden

HECTARE = 10_000.0
"""Square metres."""


DIGITS, MOST_DECIMALS = 4, 6


def decimals(values: Iterable[float | None]) -> str:
    """The printf form of a column of areas: four digits of the largest, so that all have the same decimals.

    >>> decimals([0.0312, 0.4461]), decimals([12.3, 180.0]), decimals([52_000.0]), decimals([])
    ('%.4f', '%.1f', '%.0f', '%.3f')
    """
    largest = max((abs(value) for value in values if value is not None and math.isfinite(value)), default=0.0)
    if not largest:
        return "%.3f"
    return f"%.{min(max(DIGITS - 1 - math.floor(math.log10(largest)), 0), MOST_DECIMALS)}f"


def map_areas(classes: ArrayLike, count: int, pixel_area: float, nodata: int | None = None) -> NDArray[np.float64]:
    """Square metres of each of ``count`` classes in a map; pixels of ``nodata`` belong to none.

    >>> map_areas([[0, 1], [1, 255]], 2, 0.25, nodata=255).tolist()
    [0.25, 0.5]
    """
    values = np.asarray(classes).ravel()
    if nodata is not None:
        values = values[values != nodata]
    if len(values) and not (values.min() >= 0 and values.max() < count):
        raise ValueError(f"the map has classes {values.min()} to {values.max()}, and {count} are known")
    return np.asarray(np.bincount(values.astype(np.int64), minlength=count) * float(pixel_area), np.float64)


def probability_areas(
    probabilities: ArrayLike, pixel_area: float, valid: ArrayLike | None = None
) -> NDArray[np.float64]:
    """Square metres of each class by the full probabilities, Σ p_c · pixel area: no threshold is taken. Over all
    classes they add up to the area of the ``valid`` pixels.

    >>> probability_areas(np.array([[[0.25, 1.0]], [[0.75, 0.0]]]), 4.0).tolist()
    [5.0, 3.0]
    """
    p = as_probabilities(probabilities).astype(np.float64)
    if valid is not None:
        p = p * np.asarray(valid, bool)
    return np.asarray(p.reshape(len(p), -1).sum(1) * float(pixel_area))


@dataclass(frozen=True)
class ThresholdSweep:
    """Square metres of each class ``(thresholds, classes)`` over one threshold for all of them."""

    thresholds: NDArray[np.float64]
    areas: NDArray[np.float64]

    def matching(self, area: float) -> float:
        """The threshold at which the total area besides the background is nearest to ``area``; the publication chose
        0.3 in this way, to match the total of its labels."""
        return float(self.thresholds[np.argmin(np.abs(self.areas.sum(1) - area))])


def threshold_sweep(
    probabilities: NDArray[Any] | Iterable[NDArray[Any]],
    thresholds: Sequence[float],
    background: int,
    pixel_area: float,
) -> ThresholdSweep:
    """Areas of the classes besides the background over thresholds; ``probabilities`` are of one image, or of several,
    whose areas are summed. The total never grows with the threshold."""
    images = [probabilities] if isinstance(probabilities, np.ndarray) else list(probabilities)
    total = np.zeros((len(thresholds), 0))
    for image in images:
        p = as_probabilities(image)
        areas = np.stack([map_areas(harden(p, level, background), len(p), pixel_area) for level in thresholds])
        total = areas if not total.size else total + areas
    return ThresholdSweep(np.asarray(thresholds, float), np.delete(total, background, axis=1))
