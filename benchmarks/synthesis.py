"""Analysis by synthesis: inference about a batch of images by all classes, beside a loop over images and classes.

The loop is what one writes first: for each image and class the distances to the decoded candidates, then 50 steps of
torch's Adam on one code through the decoder. It keeps the decoded candidates, or decodes them for every image.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from polariscope.memory import keep_freed_memory
from polariscope.robustness.synthesis import ABSConfig, Inference, Search, VariationalABS
from polariscope.robustness.synthesis.inference import candidate_codes

CLASSES = 10
IMAGES = 100
LOOPED = 2
"""Images that the loop goes through: its rate does not depend on how many there are."""


def cpu_seconds(work: Callable[[], object]) -> float:
    """Time that this process computed, in one thread: other processes do not count."""
    start = time.process_time()
    work()
    return time.process_time() - start


def looped(network: VariationalABS, x: Tensor, banks: list[Tensor] | None) -> Tensor:
    """Losses ``(n, K)`` of images, one image and one class at a time."""
    search = network.search
    codes = candidate_codes(search.candidates, network.latents, search.seed)
    losses = torch.empty(len(x), CLASSES)
    for i, image in enumerate(x):
        for c, decoder in enumerate(network.decoders):
            with torch.no_grad():
                bank = decoder(codes).sigmoid() if banks is None else banks[c]
                distances = (bank - image).square().flatten(1).sum(1) + 0.5 * codes.square().sum(1)
            z = codes[distances.argmin()][None].clone().requires_grad_()
            optimiser = torch.optim.Adam([z], lr=search.rate)
            best = torch.inf
            for _ in range(search.steps):
                optimiser.zero_grad()
                loss = (decoder(z).sigmoid() - image).square().sum() + 0.5 * z.square().sum()
                loss.backward()
                best = min(best, loss.item())
                optimiser.step()
            losses[i, c] = best
    return losses


def main(images: int = IMAGES, seed: int = 0) -> None:
    """Print milliseconds of CPU time for an image and the ratio, for the published search and for its parts."""
    keep_freed_memory()
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    network = VariationalABS(ABSConfig(), (1, 28, 28), CLASSES).eval().to(memory_format=torch.channels_last)
    network.requires_grad_(False)
    x = torch.rand(images, 1, 28, 28)
    codes = candidate_codes(network.search.candidates, network.latents)
    with torch.no_grad():
        banks = [torch.cat([decoder(part).sigmoid() for part in codes.split(500)]) for decoder in network.decoders]
    network.infer(x[:1])  # decodes the candidates, once for all searches

    together: list[Inference] = []
    rows = {
        "candidates and 50 steps": lambda: together.append(network.infer(x)),
        "candidates alone": lambda: network.infer(x, search=Search(steps=0)),
        "candidates and 50 steps, stopped early": lambda: network.infer(x, search=Search(tolerance=0.01)),
    }
    kept = cpu_seconds(lambda: looped(network, x[:LOOPED], banks)) / LOOPED
    anew = cpu_seconds(lambda: looped(network, x[:1], None))
    table = Table("inference", "ms/image", "loop, candidates kept", "loop, candidates decoded anew")
    for name, run in rows.items():
        each = cpu_seconds(run) / images
        table.add_row(name, f"{1000 * each:.1f}", f"{kept / each:.1f}x", f"{anew / each:.1f}x")
    table.title = (
        f"{images} images x {CLASSES} classes; the loop takes {kept:.1f} s and {anew:.1f} s of CPU time an image"
    )
    Console().print(table)
    difference = (looped(network, x[:1], banks) - together[0].losses[:1]).abs().max()
    Console().print(f"largest difference of a loss between the two: {float(difference):.2g}")


if __name__ == "__main__":
    main()
