"""What it gains to corrupt a batch of pictures at once: images a second of every kind, beside one picture at a time."""

from __future__ import annotations

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.rendering import seconds
from polariscope.worlds.renderers.faces import Faces
from polariscope.worlds.views.corruptions import SUITES, corrupt

SIZE = 64
LOOPED = 32
"""Pictures that the loop goes through: its rate does not depend on how many there are."""


def main(batch: int = 256, seed: int = 0) -> None:
    """Print a table of images a second at the middle severity, and how many times as fast as a loop that is."""
    world = Faces(size=SIZE)
    images = world.observe(np.random.default_rng(seed).integers(0, len(world), batch))
    table = Table("suite", "kind", "images/s", "one by one", "ratio", title=f"{batch} images of 3 x {SIZE} x {SIZE}")
    for suite in SUITES.values():
        for kind in suite.kinds.values():
            settings = {"severity": (kind.severities + 1) // 2, "suite": suite.name}

            def together(kind: str = kind.name, settings: dict = settings) -> None:
                corrupt(images, kind, **settings)

            def looped(kind: str = kind.name, settings: dict = settings) -> None:
                for i in range(LOOPED):
                    corrupt(images[i : i + 1], kind, **settings, index=[i])

            fast, slow = batch / seconds(together), LOOPED / seconds(looped)
            table.add_row(suite.name, kind.name, f"{fast:,.0f}", f"{slow:,.0f}", f"{fast / slow:.1f}x")
    Console().print(table)


if __name__ == "__main__":
    main()
