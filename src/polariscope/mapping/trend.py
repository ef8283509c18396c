"""The trend of areas over years: a line, its uncertainty, and the relative increase (Spec 000, section 5.8)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

CONFIDENCE = 0.95
BOOTSTRAPS = 2000


@dataclass(frozen=True)
class Trend:
    """A line through areas over years. Time is counted from the first year, so that the errors of slope and intercept
    both act at the beginning of the period."""

    years: NDArray[np.float64]
    areas: NDArray[np.float64]
    slope: float
    """Area a year."""
    intercept: float
    """Area in the first year, on the line."""
    slope_error: float
    """Standard error; NaN with two years, which do not determine it."""
    intercept_error: float
    interval: tuple[float, float]
    """Of the slope, 95 % by Student's t."""
    bootstrap: tuple[float, float]
    """Of the relative increase, 95 % by resampled residuals."""

    @property
    def relative_increase(self) -> float:
        """Area on the line in the last year over that in the first, less one."""
        return self._increase(self.slope, self.intercept)

    @property
    def extremes(self) -> tuple[float, float]:
        """Relative increases of the two published extreme lines: the flattest (b − σ_b, a + σ_a) and the steepest (b +
        σ_b, a − σ_a)."""
        return (
            self._increase(self.slope - self.slope_error, self.intercept + self.intercept_error),
            self._increase(self.slope + self.slope_error, self.intercept - self.intercept_error),
        )

    def at(self, years: ArrayLike) -> NDArray[np.float64]:
        """Areas on the line."""
        return np.asarray(self.intercept + self.slope * (np.asarray(years, float) - self.years.min()))

    def _increase(self, slope: float, intercept: float) -> float:
        period = float(np.ptp(self.years))
        return slope * period / intercept if intercept > 0 else float("nan")


def trend(years: ArrayLike, areas: ArrayLike, *, seed: int = 0) -> Trend:
    """Fit a line by least squares.

    >>> line = trend([2000, 2004, 2010, 2016], [10, 14, 20, 26])
    >>> round(line.slope, 12), round(line.relative_increase, 12)
    (1.0, 1.6)
    """
    t, a = np.asarray(years, float), np.asarray(areas, float)
    if t.ndim != 1 or t.shape != a.shape or len(np.unique(t)) < 2:
        raise ValueError(
            f"a trend needs an area for each of at least two different years; got {t.tolist()} and areas of shape "
            f"{a.shape}"
        )
    if not (np.isfinite(a).all() and (a >= 0).all()):
        raise ValueError(f"areas are finite and at least 0; got {a.tolist()}")
    since = t - t.min()
    design = np.column_stack([np.ones_like(since), since])
    solution, *_ = np.linalg.lstsq(design, a, rcond=None)
    fitted = design @ solution
    freedom = len(t) - 2
    errors, width = np.full(2, np.nan), float("nan")
    if freedom > 0:
        variance = ((a - fitted) ** 2).sum() / freedom
        errors = np.sqrt(variance * np.diag(np.linalg.inv(design.T @ design)))
        width = float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom) * errors[1])
    intercept, slope = float(solution[0]), float(solution[1])
    return Trend(
        t, a, slope, intercept, float(errors[1]), float(errors[0]), (slope - width, slope + width),
        _bootstrap(design, a, fitted, seed),
    )  # fmt: skip


def _bootstrap(
    design: NDArray[np.float64], areas: NDArray[np.float64], fitted: NDArray[np.float64], seed: int
) -> tuple[float, float]:
    """An interval of the relative increase: lines through the fitted areas with resampled residuals, which are first
    scaled to the variance that a fit of two numbers takes from them."""
    freedom = len(areas) - 2
    if freedom < 1:
        return float("nan"), float("nan")
    rng = np.random.default_rng(seed)
    residuals = (areas - fitted) * np.sqrt(len(areas) / freedom)
    again = fitted + rng.choice(residuals - residuals.mean(), (BOOTSTRAPS, len(areas)))
    lines = again @ np.linalg.pinv(design).T
    with np.errstate(divide="ignore", invalid="ignore"):
        increases = np.where(lines[:, 0] > 0, lines[:, 1] * design[:, 1].max() / lines[:, 0], np.nan)
    if np.isnan(increases).mean() > 0.025:
        return float("nan"), float("nan")
    low, high = np.nanquantile(increases, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)
