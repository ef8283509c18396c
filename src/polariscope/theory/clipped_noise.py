"""The norm of Gaussian noise that is clipped to pixel values, as a function of its standard deviation.

Noise on pixels in [0, 1] is cut off at the bounds, so that its expected norm depends on the image and does not grow
without end. Norms are root mean squares, √E‖clip(x + σn) − x‖²; with many pixels every draw has this norm (Spec 001b,
oracle O-A2; Rusak et al. 2020, section 3.2).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.stats import norm as normal

FloatArray = NDArray[np.float64]


def clipped_moment(pixels: ArrayLike, sd: float) -> FloatArray:
    """E[(clip(x + sd n) − x)²] of each pixel x in [0, 1], for a standard normal n.

    >>> clipped_moment([0, 0.25, 0.5, 1], 0.5).round(6).tolist()
    [0.115067, 0.120449, 0.129015, 0.115067]
    """
    x = np.asarray(pixels, dtype=np.float64)
    if not np.all((x >= 0) & (x <= 1)):
        raise ValueError(f"pixels need to be from 0 to 1; got {x.min():.4g} to {x.max():.4g}: divide bytes by 255")
    low, high = -x / _positive(sd), (1 - x) / sd
    inner = _second_moment_below(high) - _second_moment_below(low)
    return np.asarray(sd**2 * inner + x**2 * normal.cdf(low) + (1 - x) ** 2 * normal.sf(high))


def even_clipped_moment(sd: float) -> float:
    """The mean of :func:`clipped_moment` over pixels whose values are spread evenly over [0, 1].

    The distance s of a pixel to the bound that the noise drives it to is then uniform, and E min(u, s)² is u² − 2u³/3
    up to u = 1, and a third beyond.

    >>> round(even_clipped_moment(0.5), 6)
    0.120811
    """
    end = 1 / _positive(sd)
    second = normal.cdf(end) - 0.5 - end * normal.pdf(end)
    third = 2 * normal.pdf(0) - (end**2 + 2) * normal.pdf(end)
    return float(2 * sd**2 * second - 4 / 3 * sd**3 * third + 2 / 3 * normal.sf(end))


def clipped_norm(pixels: ArrayLike, sd: float) -> float:
    """Norm of clipped noise on an image.

    >>> round(clipped_norm(np.zeros(784), 0.5), 3)
    9.498
    """
    return float(np.sqrt(clipped_moment(pixels, sd).sum()))


def even_clipped_norm(count: int, sd: float) -> float:
    """Norm of clipped noise on ``count`` pixels whose values are spread evenly over [0, 1].

    >>> round(even_clipped_norm(3 * 224 * 224, 0.5), 2)
    134.85
    """
    return float(np.sqrt(count * even_clipped_moment(sd)))


def sd_of_norm(norm: float, pixels: ArrayLike) -> float:
    """The standard deviation whose clipped noise has this norm on an image.

    >>> round(sd_of_norm(10, np.zeros(784)), 3)
    0.534
    """
    x = np.asarray(pixels, dtype=np.float64)
    return _inverse(norm, lambda sd: clipped_norm(x, sd), np.sqrt(((x**2 + (1 - x) ** 2) / 2).sum()))


def even_sd_of_norm(norm: float, count: int) -> float:
    """The standard deviation whose clipped noise has this norm on ``count`` evenly spread pixels.

    >>> round(even_sd_of_norm(39, 3 * 224 * 224), 3)
    0.107
    """
    return _inverse(norm, lambda sd: even_clipped_norm(count, sd), np.sqrt(count / 3))


def _inverse(norm: float, norm_of: Callable[[float], float], limit: float) -> float:
    """Norms rise with the standard deviation, to the limit at which every pixel is at one of its bounds."""
    if not 0 < norm < limit:
        raise ValueError(f"clipped Gaussian noise has norms between 0 and {limit:.6g} on this image; got {norm:g}")
    high = 1.0
    while norm_of(high) < norm:
        high *= 2
    return float(brentq(lambda sd: norm_of(sd) - norm, 1e-12, high, xtol=1e-12))


def _second_moment_below(u: FloatArray) -> FloatArray:
    """∫ n² φ(n) dn up to u."""
    return np.asarray(normal.cdf(u) - u * normal.pdf(u))


def _positive(sd: float) -> float:
    if not sd > 0:
        raise ValueError(f"the standard deviation of the noise is {sd}: it needs to be positive")
    return sd
