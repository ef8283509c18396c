"""Rows that criteria make up: tables that meet them, and tables that fail them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from polariscope.studies.criteria.cells import SEEDS
from polariscope.studies.rows import Row


def seeded(column: str, level: float, spread: float = 1e-3) -> list[Row]:
    """Rows of a few seeds around a level."""
    return [{"seed": seed, column: level + spread * (seed - SEEDS // 2) / SEEDS} for seed in range(SEEDS)]


def along(column: str, over: str, levels: Sequence[float], spread: float) -> list[Row]:
    """Such rows at each of several levels, numbered along another column."""
    return [row | {over: number} for number, level in enumerate(levels) for row in seeded(column, level, spread)]


def sided(
    column: str, first: Mapping[str, Any], second: Mapping[str, Any], levels: tuple[float, float], spread: float
) -> list[Row]:
    """Such rows of two groups."""
    groups = zip((first, second), levels, strict=True)
    return [row | dict(which) for which, level in groups for row in seeded(column, level, spread)]
