"""CKA of all layer pairs of two convolutional VAEs, against torch-cka on the same models, images and batches.

torch-cka averages the unbiased HSIC over batches, as :class:`StreamingCKA` does by its minibatch route, so the two must
agree; the exact CKA on all images together is timed too. Every run includes the models' forward passes.
"""

from __future__ import annotations

import importlib
import math
import os
import time
import warnings
from collections import OrderedDict

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from polariscope.measures.similarity import SimilarityMatrix, StreamingCKA, similarity_matrix


def conv_vae(seed: int, latents: int = 10) -> nn.Sequential:
    """The mean path of a convolutional VAE for 64 x 64 images: what matters here is only the width of its layers."""
    torch.manual_seed(seed)
    layers: list[tuple[str, nn.Module]] = []
    for number, (channels, filters) in enumerate([(1, 32), (32, 32), (32, 64), (64, 64)], start=1):
        layers.append((f"encoder{number}", nn.Sequential(nn.Conv2d(channels, filters, 4, 2, 1), nn.ReLU())))
    layers.append(("encoder5", nn.Sequential(nn.Flatten(), nn.Linear(1024, 256), nn.ReLU())))
    layers.append(("mean", nn.Linear(256, latents)))
    layers.append(("decoder1", nn.Sequential(nn.Linear(latents, 256), nn.ReLU())))
    layers.append(("decoder2", nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Unflatten(1, (64, 4, 4)))))
    for number, (channels, filters) in enumerate([(64, 64), (64, 32), (32, 32)], start=3):
        layers.append((f"decoder{number}", nn.Sequential(nn.ConvTranspose2d(channels, filters, 4, 2, 1), nn.ReLU())))
    layers.append(("decoder6", nn.ConvTranspose2d(32, 1, 4, 2, 1)))
    return nn.Sequential(OrderedDict(layers))


def blobs(count: int, seed: int) -> Tensor:
    """64 x 64 images of one soft blob each: smooth inputs with a few causes, so that layers have something to share."""
    rng = np.random.default_rng(seed)
    axis = np.arange(64, dtype=np.float32)
    x, y = rng.uniform(16, 48, (2, count, 1)).astype(np.float32)
    width = rng.uniform(4, 10, (count, 1)).astype(np.float32)
    across, down = (np.exp(-((axis - centre) ** 2) / (2 * width**2)) for centre in (x, y))
    return torch.from_numpy(down[:, None, :, None] * across[:, None, None, :])


@torch.no_grad()
def activations(model: nn.Sequential, images: Tensor) -> dict[str, Tensor]:
    out = {}
    for name, layer in model.named_children():
        images = layer(images)
        out[name] = images
    return out


def by_minibatches(models: tuple[nn.Sequential, nn.Sequential], images: Tensor, batch: int) -> SimilarityMatrix:
    stream = StreamingCKA("minibatch")
    for part in images.split(batch):
        stream.update(activations(models[0], part), activations(models[1], part))
    return stream.result()


def on_all_images(models: tuple[nn.Sequential, nn.Sequential], images: Tensor, batch: int) -> SimilarityMatrix:
    def whole(model: nn.Sequential) -> dict[str, Tensor]:
        parts = [activations(model, part) for part in images.split(batch)]
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    return similarity_matrix(whole(models[0]), whole(models[1]), debiased=True)


def by_torch_cka(models: tuple[nn.Sequential, nn.Sequential], images: Tensor, batch: int) -> np.ndarray | None:
    """The peer's matrix, or None if it is not installed."""
    try:
        peer = importlib.import_module("torch_cka")
    except ImportError:
        return None
    names = [name for name, _ in models[0].named_children()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns that both sides see the same images, which is the point
        cka = peer.CKA(models[0], models[1], "first", "second", names, names, device="cpu")
        cka.compare(DataLoader(TensorDataset(images), batch_size=batch))
    return cka.export()["CKA"].numpy()


def main(samples: int = 5000, batch: int = 250, seed: int = 0) -> None:
    """Print the seconds of each way, how many times faster than torch-cka it is, and how far its values lie apart."""
    images = blobs(samples, seed)
    models = (conv_vae(seed), conv_vae(seed + 1))
    layers = len(models[0])
    table = Table(
        "CKA of all pairs of layers",
        "seconds",
        "times torch-cka's speed",
        "largest difference",
        title=f"{layers} x {layers} layers of two conv VAEs, {samples:,} images in batches of {batch}, "
        f"{torch.get_num_threads()} of {os.cpu_count()} cores",
    )
    ours: list[tuple[str, float, np.ndarray]] = []
    for what, way in (("polariscope, minibatch", by_minibatches), ("polariscope, all images at once", on_all_images)):
        start = time.perf_counter()
        result = way(models, images, batch)
        ours.append((what, time.perf_counter() - start, result.values))
    start = time.perf_counter()
    values = by_torch_cka(models, images, batch)  # last, for it never takes its hooks out of the models again
    theirs = time.perf_counter() - start if values is not None else math.nan
    for what, taken, matrix in ours:
        apart = "-" if values is None else f"{np.abs(matrix - values).max():.1e}"
        table.add_row(what, f"{taken:.1f}", "-" if values is None else f"{theirs / taken:.1f}", apart)
    if values is not None:
        table.add_row("torch-cka, minibatch", f"{theirs:.1f}", "1.0", "0")
    console = Console()
    console.print(table)
    if values is None:
        console.print("torch-cka is not installed, so there is no ratio: pip install 'polariscope\\[bench]'.")


if __name__ == "__main__":
    main()
