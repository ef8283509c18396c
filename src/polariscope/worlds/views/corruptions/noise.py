"""Noise that is independent for every pixel. Its strength is a brightness and no length, so that it is alike at every
size."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import pdtr

from polariscope.worlds.views.corruptions.corruption import Draws, Images


def gaussian(images: Images, draws: Draws, scale: float, sd: float) -> Images:
    """Additive Gaussian noise."""
    return images + np.float32(sd) * draws.normal("noise", *images.shape[1:])


def speckle(images: Images, draws: Draws, scale: float, sd: float) -> Images:
    """Normal noise whose deviation is in proportion to the brightness: black stays black."""
    return images + images * (np.float32(sd) * draws.normal("noise", *images.shape[1:]))


def shot(images: Images, draws: Draws, scale: float, photons: float) -> Images:
    """Shot noise: the photons of each pixel are Poisson numbers.

    Brightnesses are taken as bytes, as they were where the corruption was published: a table of 256 distributions then
    does for all pixels. In it each has the whole number of its byte added, so that one search finds byte and count.
    """
    table = _poisson(photons)
    bytes_ = np.rint(images * 255).astype(np.int64)
    places = np.searchsorted(table.ravel(), bytes_ + draws.uniform("light", *images.shape[1:]).astype(np.float64))
    return ((places - bytes_ * table.shape[1]) / photons).astype(np.float32)


@lru_cache(16)
def _poisson(photons: float) -> NDArray[np.float64]:
    """Row ``i`` is ``i`` plus the distribution function of counts at the brightness ``i / 255``."""
    most = int(photons + 10 * np.sqrt(photons)) + 10
    shares = pdtr(np.arange(most), np.arange(256)[:, None] / 255 * photons)
    return np.arange(256)[:, None] + np.minimum(shares, 1 - 2.0**-30)


def impulse(images: Images, draws: Draws, scale: float, amount: float) -> Images:
    """A share of the numbers becomes 0 or 1, as many one as the other; each channel for itself."""
    u = draws.uniform("where", *images.shape[1:])
    return np.where(u < amount / 2, np.float32(1), np.where(u > 1 - amount / 2, np.float32(0), images))
