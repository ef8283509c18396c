"""How fast the shapes3d world renders on one core: the first images, which cast the geometries, and later ones."""

from __future__ import annotations

import time

import numpy as np
from rich.console import Console
from rich.table import Table

from polariscope.worlds.renderers.shapes3d import Shapes3D


def main(count: int = 20_000, seed: int = 0) -> None:
    """Print a table of images a second for ``count`` random images, first with an empty cache of layers, then full."""
    table = Table("size", "cache", "images", "seconds", "images/s", title="Shapes3D, NumPy on one core")
    for size in (64, 32, 16):
        world = Shapes3D(size=size)
        index = np.random.default_rng(seed).integers(0, len(world), count)
        for cache in ("empty", "full"):
            start = time.perf_counter()
            world.observe(index)
            taken = time.perf_counter() - start
            table.add_row(f"{size} x {size}", cache, f"{count:,}", f"{taken:.2f}", f"{count / taken:,.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
