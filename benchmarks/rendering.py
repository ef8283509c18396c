"""How fast the sprites world renders on one core: random images of every variant, the whole grid, and the cache."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import numpy as np
from rich.console import Console
from rich.table import Table

from polariscope.worlds.renderers.sprites import Sprites, Variant


def seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """The best of some runs: other processes only ever make it slower."""

    def once() -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    return min(once() for _ in range(repeats))


def main(count: int = 8192, seed: int = 0) -> None:
    """Print a table of images a second; ``count`` random images a timing."""
    index = np.random.default_rng(seed).integers(0, len(Sprites()), count)
    table = Table("what", "images", "seconds", "images/s", title="Sprites, NumPy on one core")

    def row(what: str, images: int, taken: float) -> None:
        table.add_row(what, f"{images:,}", f"{taken:.2f}", f"{images / taken:,.0f}")

    for size in (64, 32, 16):
        world = Sprites(size=size)
        row(f"random, plain, {size} x {size}", count, seconds(lambda world=world: world.observe(index)))
    for variant in get_args(Variant)[1:]:
        world = Sprites(variant=variant)
        row(f"random, {variant}, 64 x 64", count, seconds(lambda world=world: world.observe(index)))

    world = Sprites()
    parts = np.arange(len(world)).reshape(-1, 4096)
    row("whole grid, in order", len(world), seconds(lambda: [world.observe(part) for part in parts], repeats=1))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sprites.npy"
        row("whole grid, into a cache file", len(world), seconds(lambda: world.cache(path), repeats=1))
        cached = world.cache(path)
        row("random, from the cache file", count, seconds(lambda: cached.observe(index)))
        row("whole grid, distinct images", len(world), seconds(cached.distinct, repeats=1))
    Console().print(table)


if __name__ == "__main__":
    main()
