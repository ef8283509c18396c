"""Where studies find real images besides MNIST, if they are at hand: folders under POLARISCOPE_DATA."""

from __future__ import annotations

import os
from pathlib import Path

from polariscope.worlds.readers.files import File

OLIVETTI = "olivetti/olivettifaces.mat"
CELEBA = "celeba"


def real_data(name: str) -> Path | None:
    """A file or folder under POLARISCOPE_DATA, if that is set and has it."""
    root = os.environ.get("POLARISCOPE_DATA")
    place = Path(root) / name if root else None
    return place if place is not None and place.exists() else None


def needed_data(name: str) -> Path:
    """The same for a job that was planned with it."""
    place = real_data(name)
    if place is None:
        raise FileNotFoundError(f"this study was begun on {name}: set POLARISCOPE_DATA to the folder that has it again")
    return place


def olivetti() -> File:
    """The 400 Olivetti faces, 64 pixels a side."""
    return File(str(needed_data(OLIVETTI)), image_shape=(64, 64))
