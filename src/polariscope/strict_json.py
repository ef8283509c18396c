"""JSON that every reader accepts: Python writes infinity and NaN as words that are not JSON."""

from __future__ import annotations

import json
import math
from typing import Any


def json_text(value: Any, indent: int | None = None) -> str:
    """A value as JSON. Infinity and NaN are the texts ``"Infinity"``, ``"-Infinity"`` and ``"NaN"``, numbers of numpy
    are numbers, and any other value that JSON cannot hold becomes text.

    >>> json_text({"loss": float("inf"), "terms": [float("nan"), 1.5]})
    '{"loss": "Infinity", "terms": ["NaN", 1.5]}'
    """
    return json.dumps(_plain(value), indent=indent, default=str, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):  # of numpy or torch
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
