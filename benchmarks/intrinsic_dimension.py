"""The whole dimension profile (MLE at four k, TwoNN) against the same five estimates by scikit-dimension.

scikit-dimension searches the neighbours anew for each estimate; the profile searches once. Both get the same
single-precision points: a curved sheet of known dimension, embedded by a rotation, in noise-free high dimension.
"""

from __future__ import annotations

import importlib
import os
import time

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from polariscope.measures.intrinsic_dimension import KS, dimension_profile


def curved_sheet(samples: int, features: int, dimension: int, seed: int) -> NDArray[np.float32]:
    """Points of a ``dimension``-fold product of arcs, rotated into ``features`` coordinates."""
    rng = np.random.default_rng(seed)
    angles = rng.uniform(0, np.pi, (samples, dimension))
    arcs = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    basis, _ = np.linalg.qr(rng.normal(size=(features, 2 * dimension)))
    return (arcs @ basis.T).astype(np.float32)


def by_scikit_dimension(points: NDArray[np.float32]) -> list[float] | None:
    """MLE at every k, then TwoNN; None if the peer is not installed."""
    try:
        peer = importlib.import_module("skdim")
    except ImportError:
        return None
    estimates = [float(peer.id.MLE().fit(points, n_neighbors=k, comb="mle").dimension_) for k in KS]
    return [*estimates, float(peer.id.TwoNN(discard_fraction=0.1).fit(points).dimension_)]


def main(samples: int = 10_000, features: int = 4_096, dimension: int = 5, seed: int = 0) -> None:
    """Print the estimates side by side and how many times faster the profile is."""
    points = curved_sheet(samples, features, dimension, seed)
    # The first call of either loads code (the peer compiles some): not what is measured.
    dimension_profile(points[:200, :50])
    by_scikit_dimension(points[:200, :50])

    start = time.perf_counter()
    profile = dimension_profile(points)
    ours = time.perf_counter() - start
    start = time.perf_counter()
    estimates = by_scikit_dimension(points)
    theirs = time.perf_counter() - start

    table = Table(
        "estimate",
        "polariscope",
        "scikit-dimension",
        title=f"{samples:,} points of a {dimension}-dimensional sheet in {features:,} coordinates, "
        f"{torch.get_num_threads()} of {os.cpu_count()} cores",
    )
    names = [*(f"MLE, k = {k}" for k in KS), "TwoNN"]
    values = [*(estimate.value for estimate in profile.mle), profile.twonn.value]
    for number, (name, value) in enumerate(zip(names, values, strict=True)):
        table.add_row(name, f"{value:.3f}", "-" if estimates is None else f"{estimates[number]:.3f}")
    table.add_row("seconds for all five", f"{ours:.1f}", "-" if estimates is None else f"{theirs:.1f}")
    table.add_row("times the peer's speed", "-" if estimates is None else f"{theirs / ours:.1f}", "1.0")
    console = Console()
    console.print(table)
    if estimates is None:
        console.print("scikit-dimension is not installed, so there is no ratio: pip install 'polariscope\\[bench]'.")


if __name__ == "__main__":
    main()
