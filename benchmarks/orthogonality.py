"""Distance to orthogonality of a convolutional decoder: the assignment route against the published integer program.

The published definition asks for the nearest signed permutation by a mixed-integer program. Both routes get the same
Jacobians; the program is run on some of the matrices only and its time is given per matrix. Random orientations, on
which no shortcut applies, are timed as the hard case beside those of the decoder.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from polariscope.examination.jacobians import decoder_grams
from polariscope.measures.orthogonality import (
    nearest_signed_permutation,
    nearest_signed_permutation_milp,
    orthogonality_of_grams,
    random_orientations,
)
from polariscope.nets.autoencoder import Autoencoder, AutoencoderConfig


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def compare(name: str, matrices: NDArray[np.float64], programs: int, table: Table) -> None:
    """Add a row with milliseconds per matrix of both routes, their ratio, and how many matchings agree."""
    nearest_signed_permutation(matrices[:2])  # the first calls load code: not what is measured
    nearest_signed_permutation_milp(matrices[0])
    ours, nearest = timed(lambda: nearest_signed_permutation(matrices))
    theirs, expected = timed(lambda: [nearest_signed_permutation_milp(v) for v in matrices[:programs]])
    each, theirs_each = ours / len(matrices), theirs / programs
    agree = sum(np.array_equal(a, b) for a, b in zip(nearest, expected, strict=False))
    table.add_row(
        name,
        f"{1e3 * each:.4f}",
        f"{1e3 * theirs_each:.1f}",
        f"{theirs_each / each:,.0f}",
        f"{agree} of {programs}",
    )


def main(count: int = 1000, latents: int = 10, side: int = 64, programs: int = 20, seed: int = 0) -> None:
    """Print the seconds for all distances of a decoder, and both routes to the matching side by side."""
    torch.manual_seed(seed)
    model = Autoencoder(AutoencoderConfig(latents=latents), (1, side, side), "diagonal")
    codes = torch.randn(count, latents)
    decoder_grams(model.decode, codes[:2])
    slopes, grams = timed(lambda: decoder_grams(model.decode, codes))
    rest, found = timed(lambda: orthogonality_of_grams(grams))
    cores = f"{torch.get_num_threads()} of {os.cpu_count()} cores"
    console = Console()
    console.print(
        f"{count:,} Jacobians ({side * side:,} x {latents}) of an untrained conv decoder: {slopes:.2f} s, their "
        f"distances to orthogonality: {rest:.3f} s, mean {found.value:.3f}; {cores}"
    )
    table = Table(
        "nearest signed permutation",
        "assignment, ms a matrix",
        "integer program, ms a matrix",
        "speed-up",
        "same matching",
        title=f"{count:,} matrices by assignment, {programs} by the program",
    )
    vectors = np.linalg.eigh(found.grams)[1]
    aligned = np.linalg.qr(np.eye(latents) + 0.1 * np.random.default_rng(seed).normal(size=vectors.shape))[0]
    for name, matrices in (
        ("nearly aligned orientations", aligned),
        ("those of the decoder", vectors),
        ("random orientations", random_orientations(count, latents, seed)),
    ):
        compare(name, matrices, programs, table)
    console.print(table)


if __name__ == "__main__":
    main()
