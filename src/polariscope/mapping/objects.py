"""Objects of a map: connected regions of one class."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage


def regions(classes: ArrayLike, background: int) -> NDArray[np.int64]:
    """A number from 1 on for every connected region of equal class, 0 for the background. Pixels that touch at a corner
    only are not connected, as in the polygons that GIS programs make.

    >>> regions([[1, 1, 0], [0, 2, 1]], background=0).tolist()
    [[1, 1, 0], [0, 3, 2]]
    """
    values = np.asarray(classes)
    labels, count = np.zeros(values.shape, np.int64), 0
    for value in np.unique(values[values != background]):
        own, more = ndimage.label(values == value)
        labels[own > 0] = own[own > 0] + count
        count += more
    return labels


def without_small(classes: ArrayLike, background: int, pixel_area: float, least: float = 4.0) -> NDArray[np.uint8]:
    """The map without regions smaller than ``least`` square metres, which become background: 16 pixels of half a metre,
    64 of a quarter.

    >>> without_small([[1, 0, 1, 1]], 0, pixel_area=2.0).tolist()
    [[0, 0, 1, 1]]
    """
    values = np.asarray(classes).astype(np.uint8)
    labels = regions(values, background)
    small = np.bincount(labels.ravel()) * pixel_area < least
    return np.where(small[labels], np.uint8(background), values)
