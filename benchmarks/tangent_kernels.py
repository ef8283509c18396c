"""Tangent kernels of LeNet, at finite and at infinite width, against neural-tangents on the same weights and images.

neural-tangents needs an old JAX, so it gets a virtual environment of its own, made on the first run (about 1 GB, under
the user's cache folder). Both sides compute the full kernel (every pair of images and of the 10 outputs) of the LeNet
with average pooling, and the infinite-width NNGP and NTK of all pairs of 28 x 28 images; both are compiled or warmed up
first, and the values are compared. Of the peer's implementations the faster one counts, of those that fit into memory
(its vector products ask for 84 GB at 500 images); its structured derivatives do not run with any JAX it can be
installed with.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from polariscope.kernels import Stack, tangent_blocks, tangent_kernel
from polariscope.nets.classifiers import Weights, lenet
from polariscope.worlds.renderers.digit_tasks import DigitTask, standardise

PEER = Path.home() / ".cache" / "polariscope" / "neural-tangents"
PACKAGES = (
    "jax==0.4.30",
    "jaxlib==0.4.30",
    "neural-tangents==0.6.5",
    "tensorflow-cpu==2.16.1",
    "numpy<2",
    "scipy<1.13",
)

# Runs in the peer's environment: reads images and weights, writes seconds and kernels.
PEER_SCRIPT = """
import json, sys, time
import numpy as np
import jax, jaxlib
import jax.numpy as jnp
import neural_tangents as nt
from neural_tangents import stax

folder, empirical, infinite = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
data = np.load(folder + "/input.npz", allow_pickle=False)
images = np.moveaxis(data["images"], 1, -1)
std = 2 ** 0.5
layers = []
for channels in (6, 16):
    layers += [stax.Conv(channels, (3, 3), W_std=std, b_std=None), stax.Relu(), stax.AvgPool((2, 2), (2, 2))]
layers += [stax.Flatten()]
for units in (120, 84):
    layers += [stax.Dense(units, W_std=std, b_std=None), stax.Relu()]
_, apply_fn, kernel_fn = stax.serial(*layers, stax.Dense(10, W_std=std, b_std=None))

convolutions = [np.transpose(data[name], (2, 3, 1, 0)) for name in ("conv1", "conv2")]
dense1 = data["dense1"].reshape(120, 16, 5, 5).transpose(2, 3, 1, 0).reshape(400, 120)
weights = iter([*convolutions, dense1, data["dense2"].T, data["output"].T])
has_weights = [True, False, False, True, False, False, False, True, False, True, False, True]
params = [(jnp.asarray(next(weights)), None) if here else () for here in has_weights]

seconds = {}
ways = (nt.NtkImplementation.JACOBIAN_CONTRACTION, nt.NtkImplementation.NTK_VECTOR_PRODUCTS)
for count in empirical:
    x = jnp.asarray(images[:count])
    taken = []
    for way in ways:
        kernel = nt.empirical_ntk_fn(apply_fn, trace_axes=(), vmap_axes=0, implementation=way)
        compiled = jax.jit(lambda p, x, kernel=kernel: kernel(x, None, p))
        try:
            compiled(params, x).block_until_ready()
        except jaxlib.xla_extension.XlaRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            print(f"{way.name} of {count} images does not fit into memory", file=sys.stderr)
            continue
        start = time.perf_counter()
        result = compiled(params, x).block_until_ready()
        taken.append(time.perf_counter() - start)
    seconds[f"empirical {count}"] = min(taken)
    np.save(f"{folder}/empirical_{count}.npy", np.asarray(result[:20, :20]))

compiled = jax.jit(lambda a, b: kernel_fn(a, b, ("nngp", "ntk")))
x = jnp.asarray(images[:infinite], dtype=jnp.float32)
jax.block_until_ready(compiled(x[:1], x[:2]))
start = time.perf_counter()
pairs = [(i, j) for i in range(infinite) for j in range(0, infinite, 2)]
rows = [jax.block_until_ready(compiled(x[i : i + 1], x[j : j + 2])) for i, j in pairs]
seconds["infinite"] = time.perf_counter() - start
for name in ("nngp", "ntk"):
    blocks = np.concatenate([np.asarray(getattr(row, name))[0] for row in rows]).reshape(infinite, infinite)
    np.save(f"{folder}/{name}.npy", blocks)
print(json.dumps(seconds))
"""


def peer_python(console: Console) -> Path:
    """The interpreter of the peer's environment, which is made if it is not there."""
    python = PEER / "bin" / "python"
    if not (PEER / "ready").exists():
        console.print(f"Making an environment for neural-tangents in {PEER} ...")
        venv.create(PEER, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES], check=True)
        (PEER / "ready").touch()
    return python


def run_peer(
    console: Console, folder: Path, empirical: tuple[int, ...], infinite: int
) -> tuple[dict[str, float], dict[str, Any]]:
    """Seconds and kernels of neural-tangents."""
    command = [peer_python(console), "-c", PEER_SCRIPT, folder, json.dumps(empirical), str(infinite)]
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=quiet)
    kernels = {file.stem: np.load(file, allow_pickle=False) for file in folder.glob("*.npy")}
    return json.loads(done.stdout.splitlines()[-1]), kernels


def timed(work: Callable[[], Any], repeats: int = 3) -> tuple[float, Any]:
    """The least seconds of a few runs, after one to warm up, and the result."""
    work()
    best, result = float("inf"), None
    for _ in range(repeats):
        start = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - start)
    return best, result


def peak_memory() -> float:
    """The most this process has held so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def growth(network: torch.nn.Module, x: torch.Tensor, counts: tuple[int, ...]) -> Table:
    """Seconds and memory of the full kernel of ever more images, taken in blocks and never held whole."""
    parameters = sum(p.numel() for p in network.parameters())
    table = Table(
        "images", "s", "ms / 1,000 pairs", "peak memory, MiB", "Jacobian alone, MiB", title="the full kernel over n"
    )
    before = peak_memory()
    for n in counts:
        start = time.perf_counter()
        pairs = sum(block.shape[0] * block.shape[1] for _, _, block in tangent_blocks(network, x[:n]))
        taken = time.perf_counter() - start
        grown = f"{peak_memory() - before:,.0f}"
        table.add_row(
            f"{n:,}", f"{taken:.2f}", f"{1e6 * taken / pairs:.1f}", grown, f"{n * 10 * parameters / 2**18:,.0f}"
        )
    return table


def main(
    empirical: tuple[int, ...] = (200, 500),
    infinite: int = 24,
    counts: tuple[int, ...] = (250, 500, 1000, 2000),
    seed: int = 0,
    peer: bool = True,
) -> None:
    """Print seconds of both, how many times faster we are, and how far the values lie apart (relative, Frobenius);
    then what the kernel of ``counts`` images costs."""
    console = Console()
    count = max(*empirical, *counts, infinite)
    images = standardise(DigitTask("centred", count=count, seed=seed).observe(np.arange(count)))
    network = lenet(pooling="average", weights=Weights("ntk"), seed=seed)
    x = torch.from_numpy(images)
    parameters = sum(p.numel() for p in network.parameters())
    console.print(growth(network, x, counts))
    ours: dict[str, float] = {}
    kernels: dict[str, Any] = {}
    for n in empirical:
        ours[f"empirical {n}"], kernel = timed(lambda n=n: tangent_kernel(network, x[:n]))
        kernels[f"empirical_{n}"] = kernel[:20, :20].numpy()
    stack = Stack.of(network)
    ours["infinite"], (nngp, ntk) = timed(lambda: stack.kernels(x[:infinite]), repeats=1)
    kernels |= {"nngp": nngp.numpy(), "ntk": ntk.numpy()}

    theirs: dict[str, float] = {}
    expected: dict[str, Any] = {}
    if peer:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            layers = {
                n: getattr(network, n).weight.detach().numpy() for n in ("conv1", "conv2", "dense1", "dense2", "output")
            }
            np.savez(folder / "input.npz", images=images, **layers)
            theirs, expected = run_peer(console, folder, empirical, infinite)

    table = Table(
        "kernel",
        "polariscope, s",
        "neural-tangents, s",
        "speed-up",
        "apart",
        title=f"LeNet, {parameters:,} parameters, {torch.get_num_threads()} of {os.cpu_count()} cores",
    )
    for what, taken in ours.items():
        stems = ("nngp", "ntk") if what == "infinite" else (what.replace(" ", "_"),)
        label = f"infinite width, {infinite} x {infinite} pairs" if what == "infinite" else f"{what} x 10 outputs, full"
        if not theirs:
            table.add_row(label, f"{taken:.2f}", "-", "-", "-")
            continue
        apart = max(float(np.linalg.norm(kernels[s] - expected[s]) / np.linalg.norm(expected[s])) for s in stems)
        table.add_row(label, f"{taken:.2f}", f"{theirs[what]:.2f}", f"{theirs[what] / taken:.1f}", f"{apart:.0e}")
    console.print(table)


if __name__ == "__main__":
    main()
