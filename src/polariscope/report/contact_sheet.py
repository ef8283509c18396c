"""A contact sheet: random observations of a world of images side by side."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from PIL import Image

from polariscope.atomic import atomic
from polariscope.worlds.pictures import limits_of, picture_note, pictured
from polariscope.worlds.world import World

LARGEST = 128
"""Pixels a side beyond which images are shrunk for a contact sheet."""


def save_contact_sheet(path: Path, world: World, rows: int, columns: int, seed: int) -> str:
    """Save a contact sheet as an image file; returns a note if it does not show everything."""
    sheet, note = contact_sheet(world, rows, columns, seed)
    kind = Image.registered_extensions().get(path.suffix.lower())
    if kind is None:
        raise ValueError(f"{path} must be a picture: give it a name that ends in .png")
    with atomic(path) as draft:
        sheet.save(draft, format=kind)
    return note


def contact_sheet(world: World, rows: int, columns: int, seed: int, gap: int = 2) -> tuple[Image.Image, str]:
    """Random images side by side, and a note if not everything of them is shown.

    Small ones are enlarged to whole multiples, large ones shrunk one at a time.
    """
    if rows < 1 or columns < 1:
        raise ValueError(f"a contact sheet needs at least one row and one column; got {rows} and {columns}")
    count = min(rows * columns, len(world))
    columns = min(columns, count)
    rows = math.ceil(count / columns)
    channels, height, width = world.shape
    colour = channels > 2
    shrink = max(1.0, max(height, width) / LARGEST)
    width, height = max(1, round(width / shrink)), max(1, round(height / shrink))
    sheet = Image.new("L", (columns * (width + gap), rows * (height + gap)), 96)
    sheet = sheet.convert("RGB") if colour else sheet
    numbers = np.random.default_rng(seed).choice(len(world), count, replace=False)
    first = world.observe(numbers[:1])[0]
    limits = None
    if first.dtype != np.uint8:
        limits = limits_of(world.observe([number]) for number in numbers)
    for place, number in enumerate(numbers):
        image = pictured(world.observe([number])[0] if place else first, limits)
        tile = Image.fromarray(np.ascontiguousarray(np.moveaxis(image, 0, -1)) if colour else image[0])
        row, column = divmod(place, columns)
        corner = (column * (width + gap) + gap, row * (height + gap) + gap)
        sheet.paste(tile if shrink == 1 else tile.resize((width, height), Image.Resampling.LANCZOS), corner)
    factor = max(1, 64 // height)
    enlarged = sheet.resize((sheet.width * factor, sheet.height * factor), Image.Resampling.NEAREST)
    return enlarged, picture_note(world.shape, limits)
