"""CKA of all layer pairs of two convolutional VAEs, against torch-cka on the same models, images and batches.

torch-cka averages the unbiased HSIC over batches, as :class:`StreamingCKA` does by its minibatch route, so the two must
agree. CKA on all images together is more work (all pairs of images, not only those within a batch) and no estimate; it
is timed too. The peer gets the networks in torch's ordinary layers, ours are as the training loop makes them (channels
last, and its own last layer) with the same weights; the ratio is given with the forward passes and without.
"""

from __future__ import annotations

import importlib
import os
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from polariscope.measures.similarity import similarity_matrix
from polariscope.measures.streaming_cka import StreamingCKA
from polariscope.nets.architecture import LastDeconvolution


class ConvVAE(nn.Module):
    """A convolutional VAE for 64 x 64 images, untrained: what matters here is only how many layers of which width.

    The layers that are compared are its children, 16 with the input, as in spec 002, section 10.4.
    """

    def __init__(self, seed: int, latents: int = 10, ours: bool = True) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.input = nn.Identity()
        self.encoder = nn.Sequential()
        for channels, filters in [(1, 32), (32, 32), (32, 64), (64, 64)]:
            self.encoder.append(nn.Sequential(nn.Conv2d(channels, filters, 4, 2, 1), nn.ReLU()))
        self.encoder.append(nn.Flatten())
        self.encoder.append(nn.Sequential(nn.Linear(1024, 256), nn.ReLU()))
        self.mean = nn.Linear(256, latents)
        self.logvar = nn.Linear(256, latents)
        self.sampled = nn.Identity()
        self.decoder = nn.Sequential(nn.Sequential(nn.Linear(latents, 256), nn.ReLU()))
        self.decoder.append(nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Unflatten(1, (64, 4, 4))))
        for channels, filters in [(64, 64), (64, 32), (32, 32)]:
            self.decoder.append(nn.Sequential(nn.ConvTranspose2d(channels, filters, 4, 2, 1), nn.ReLU()))
        self.decoder.append(LastDeconvolution(32, 1) if ours else nn.ConvTranspose2d(32, 1, 4, 2, 1))
        # Weights that keep the signal's size: with torch's default ones it fades until the last layers hardly differ
        # between images, and torch-cka, which does not centre, then loses all digits and stops with NaN.
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.kaiming_normal_(parameter)
            else:
                nn.init.zeros_(parameter)
        self.layout = torch.channels_last if ours else torch.contiguous_format
        if ours:
            self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.seed = seed
        self.noise = torch.Generator()
        self.seconds = 0.0

    def forward(self, images: Tensor) -> Tensor:
        start = time.perf_counter()
        hidden = self.encoder(self.input(images.to(memory_format=self.layout)))
        mean, logvar = self.mean(hidden), self.logvar(hidden).clamp(-4, 0)
        noise = torch.randn(mean.shape, generator=self.noise)
        output = self.decoder(self.sampled(mean + (logvar / 2).exp() * noise))
        self.seconds += time.perf_counter() - start
        return output

    def rewind(self) -> None:
        """Draw the same noise again, so that every run sees the same samples, and time forward passes from zero."""
        self.noise.manual_seed(self.seed)
        self.seconds = 0.0

    def layers(self) -> dict[str, nn.Module]:
        whole = dict(self.named_modules())
        names = ["input", *(f"encoder.{i}" for i in range(6)), "mean", "logvar", "sampled"]
        return {name: whole[name] for name in [*names, *(f"decoder.{i}" for i in range(6))]}


def blobs(count: int, seed: int) -> Tensor:
    """64 x 64 images of one soft blob each: smooth inputs with a few causes, so that layers have something to share."""
    rng = np.random.default_rng(seed)
    axis = np.arange(64, dtype=np.float32)
    x, y = rng.uniform(16, 48, (2, count, 1)).astype(np.float32)
    width = rng.uniform(4, 10, (count, 1)).astype(np.float32)
    across, down = (np.exp(-((axis - centre) ** 2) / (2 * width**2)) for centre in (x, y))
    return torch.from_numpy(down[:, None, :, None] * across[:, None, None, :])


def as_stored(output: Tensor) -> Tensor:
    """Features in the order they lie in memory: CKA does not mind, and nothing is copied."""
    return output.permute(0, 2, 3, 1) if output.ndim == 4 else output


Models = tuple[ConvVAE, ConvVAE]


@torch.no_grad()
def activations(model: ConvVAE, images: Tensor) -> dict[str, Tensor]:
    out: dict[str, Tensor] = {}
    hooks = [
        layer.register_forward_hook(lambda _, __, output, name=name: out.__setitem__(name, as_stored(output)))
        for name, layer in model.layers().items()
    ]
    model(images)
    for hook in hooks:
        hook.remove()
    return out


def by_minibatches(models: Models, images: Tensor, batch: int) -> NDArray[np.float64]:
    stream = StreamingCKA("minibatch")
    for part in images.split(batch):
        stream.update(activations(models[0], part), activations(models[1], part))
    return stream.result().values


def on_all_images(models: Models, images: Tensor, batch: int) -> NDArray[np.float64]:
    def whole(model: ConvVAE) -> dict[str, Tensor]:
        parts = [activations(model, part) for part in images.split(batch)]
        return {name: torch.cat([part.pop(name) for part in parts]) for name in model.layers()}

    return similarity_matrix(whole(models[0]), whole(models[1]), debiased=True).values


def by_torch_cka(models: Models, images: Tensor, batch: int) -> NDArray[np.float64] | None:
    """The peer's matrix, or None if it is not installed."""
    try:
        peer = importlib.import_module("torch_cka")
    except ImportError:
        return None
    names = list(models[0].layers())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns that both sides see the same images, which is the point
        cka = peer.CKA(models[0], models[1], "first", "second", names, names, device="cpu")
        cka.compare(DataLoader(TensorDataset(images), batch_size=batch))
    matrix: NDArray[np.float64] = cka.export()["CKA"].numpy().astype(np.float64)
    return matrix


def main(samples: int = 5000, batch: int = 250, seed: int = 0) -> None:
    """Print the seconds of each way, how many times faster than torch-cka it is, and how far its values lie apart."""
    images = blobs(samples, seed)
    models = (ConvVAE(seed), ConvVAE(seed + 1))
    plain = (ConvVAE(seed, ours=False), ConvVAE(seed + 1, ours=False))
    for own, twin in zip(models, plain, strict=True):
        twin.load_state_dict(own.state_dict())
    layers = len(models[0].layers())

    def timed(way: Callable[[Models, Tensor, int], Any], models: Models = models) -> tuple[float, float, Any]:
        """Seconds in all, seconds without the forward passes, and the result."""
        for model in models:
            model.rewind()
        start = time.perf_counter()
        result = way(models, images, batch)
        taken = time.perf_counter() - start
        return taken, taken - sum(model.seconds for model in models), result

    # The peer goes first: ours tells the process to keep freed memory, which would help the peer as well.
    theirs, theirs_without, expected = timed(by_torch_cka, plain)
    by_minibatches(models, images[:batch], batch)  # the first call loads code: not what is measured
    ours = [
        ("polariscope, minibatch", *timed(by_minibatches)),
        ("polariscope, all images at once", *timed(on_all_images)),
    ]

    table = Table(
        "CKA of all pairs of layers",
        "seconds",
        "without the forward passes",
        "speed-up",
        "speed-up without",
        "largest difference",
        title=f"{layers} x {layers} layers of two conv VAEs, {samples:,} images in batches of {batch}, "
        f"{torch.get_num_threads()} of {os.cpu_count()} cores",
    )
    for what, taken, without, values in ours:
        against = ["-"] * 3
        if expected is not None:
            apart = np.abs(values - expected).max()
            against = [f"{theirs / taken:.1f}", f"{theirs_without / without:.1f}", f"{apart:.0e}"]
        table.add_row(what, f"{taken:.1f}", f"{without:.1f}", *against)
    if expected is not None:
        table.add_row("torch-cka, minibatch", f"{theirs:.1f}", f"{theirs_without:.1f}", "1.0", "1.0", "0")
    console = Console()
    console.print(table)
    if expected is None:
        console.print("torch-cka is not installed, so there is no ratio: pip install 'polariscope\\[bench]'.")


if __name__ == "__main__":
    main()
