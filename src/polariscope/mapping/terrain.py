"""Slope, aspect and curvature of a terrain model (Spec 000, row F039).

Derivatives are Horn's (1981): weighted central differences over the eight neighbours. With p = ∂z/∂x (east) and
q = ∂z/∂y (north): slope = atan √(p² + q²); aspect, clockwise from north, is the direction of steepest descent;
curvatures follow Zevenbergen and Thorne (1987).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

HALO = 1
"""Cells around a window that its derivatives need."""


@dataclass(frozen=True, eq=False)
class Terrain:
    """What follows from heights, each of their shape."""

    slope: NDArray[np.float64]
    """Degrees."""
    aspect: NDArray[np.float64]
    """Degrees clockwise from north of the direction downhill; NaN where the ground is level."""
    profile_curvature: NDArray[np.float64]
    """1/m along the slope; positive where the slope gets steeper downhill (convex)."""
    plan_curvature: NDArray[np.float64]
    """1/m across the slope; positive on ridges, where contour lines bend outwards."""


def terrain(heights: ArrayLike, cell: float) -> Terrain:
    """Derivatives of heights in metres on a grid of square cells, the first row in the north. At the edges the
    outermost cells are continued in a straight line, so that a plane has the same slope everywhere.

    >>> tilted = np.add.outer(np.zeros(3), np.arange(4.0))  # rises to the east by 1 m in 1 m
    >>> found = terrain(tilted, 1.0)
    >>> found.slope[1].round(6).tolist(), found.aspect[1].tolist()
    ([45.0, 45.0, 45.0, 45.0], [270.0, 270.0, 270.0, 270.0])
    """
    z = np.asarray(heights, float)
    if z.ndim != 2 or min(z.shape) < 2 or not cell > 0:
        raise ValueError(f"heights need at least 2 x 2 cells of a positive size; got {z.shape} of {cell} m")
    z = np.pad(z, HALO, mode="reflect", reflect_type="odd")
    north, south, west, east = z[:-2, 1:-1], z[2:, 1:-1], z[1:-1, :-2], z[1:-1, 2:]
    northwest, northeast, southwest, southeast = z[:-2, :-2], z[:-2, 2:], z[2:, :-2], z[2:, 2:]
    centre = z[1:-1, 1:-1]
    p = ((northeast + 2 * east + southeast) - (northwest + 2 * west + southwest)) / (8 * cell)
    q = ((northwest + 2 * north + northeast) - (southwest + 2 * south + southeast)) / (8 * cell)
    steepness = p**2 + q**2
    level = steepness == 0
    aspect = np.where(level, np.nan, np.degrees(np.arctan2(-p, -q)) % 360)
    # Second derivatives of the quadratic surface through the nine cells.
    xx = (east - 2 * centre + west) / cell**2
    yy = (north - 2 * centre + south) / cell**2
    xy = (northeast + southwest - northwest - southeast) / (4 * cell**2)
    with np.errstate(invalid="ignore", divide="ignore"):
        profile = -(p**2 * xx + 2 * p * q * xy + q**2 * yy) / (steepness * (1 + steepness) ** 1.5)
        plan = -(q**2 * xx - 2 * p * q * xy + p**2 * yy) / steepness**1.5
    return Terrain(
        np.degrees(np.arctan(np.sqrt(steepness))),
        aspect,
        np.where(level, 0.0, profile),
        np.where(level, 0.0, plan),
    )
