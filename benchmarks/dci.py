"""DCI by our gradient boosting and by scikit-learn's, on models trained here: values, seconds and memory.

``python -m benchmarks dci`` compares at the published sample sizes, ten minutes and more. ``python -m benchmarks.dci
FILE`` writes what ``tests/measures/test_dci.py`` reads: fewer codes of the same models, and scikit-learn's scores of
them.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.disentanglement import agree, plain_dci, scikit_probe
from polariscope.measures.dci import dci
from polariscope.nets.architecture import MLP
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.objectives.autoencoder import AE
from polariscope.objectives.beta_tc_vae import BetaTCVAE
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.objectives.dip_vae import DIPVAE
from polariscope.objectives.objective import Objective
from polariscope.representation import represent
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.run import train_in_memory
from polariscope.worlds.renderers.mini_sprites import MiniSprites

WORLD = MiniSprites(size=16, scales=4, orientations=6, positions=16)
MODELS: dict[str, tuple[Objective, int]] = {
    "autoencoder": (AE(), 1500),
    "vae": (BetaVAE(beta=1.0), 2000),
    "beta-vae, hardly trained": (BetaVAE(beta=4.0), 400),
    "beta-vae": (BetaVAE(beta=4.0), 4000),
    "beta-tc-vae": (BetaTCVAE(beta=6.0), 4000),
    "dip-vae": (DIPVAE(), 3000),
}
"""Objective and training steps."""
PARTS = ("disentanglement", "completeness", "informativeness")
SAMPLES = 15_000
"""Of the published protocol: 10,000 to train a probe on, 5,000 to test it."""
STORED = (1_500, 3_500)
"""The same of stored codes: few to train on, so that a test takes seconds; many to test on, so that chance moves
informativeness by thousandths."""
COARSE = (1, 2, 3, 4, 8)
"""Neighbouring values of each factor that stored factors take as one, for fewer trees."""


def codes_of(objective: Objective, steps: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Codes of a freshly trained model and the factors behind them, of the same observations for every model."""
    model = AutoencoderConfig(architecture=MLP((256, 128), (128, 256), decoder_activation="relu"))
    trained = train_in_memory(RunConfig(WORLD, objective, model, TrainingConfig(steps=steps)))
    rep = represent(trained, WORLD, count=SAMPLES)
    assert rep.factors is not None
    order = np.random.default_rng(0).permutation(SAMPLES)  # they come in the order of the world
    return rep.mean[order], np.asarray(rep.factors, dtype=np.int64)[order]


def save(path: Path) -> None:
    """Half-precision codes of each model, the factors, and scikit-learn's importances, accuracies and scores."""
    arrays: dict[str, NDArray[Any]] = {}
    found: dict[str, list[Any]] = {"importance": [], "accuracy": [], "scikit": []}
    for name, (objective, steps) in MODELS.items():
        codes, factors = (array[: sum(STORED)] for array in codes_of(objective, steps))
        arrays[name], arrays["factors"] = codes.astype(np.float16), (factors // COARSE).astype(np.uint8)
        probe = scikit_probe(arrays[name].astype(np.float64), arrays["factors"].astype(np.int64), 0, *STORED)
        scores = list(plain_dci(*probe).values())
        for key, value in zip(found, (*probe, scores), strict=True):
            found[key].append(value)
        print(name, np.round(scores, 4), flush=True)
    np.savez_compressed(path, **arrays, **{key: np.array(value) for key, value in found.items()})


def main() -> None:
    """Print both probes' scores model by model. A single tree stands beside them, to show that it is another probe."""
    columns = ("model", "part", "scikit-learn", "ours", "difference", "CPU s", "ours", "times faster", "single tree")
    table = Table(*columns, title=f"DCI of {SAMPLES:,} codes of 10 latents, {len(WORLD.factors)} factors")
    for name, (objective, steps) in MODELS.items():
        codes, factors = codes_of(objective, steps)
        times = [time.process_time()]
        theirs = list(plain_dci(*scikit_probe(codes.astype(np.float64), factors, 0)).values())
        times.append(time.process_time())
        scores = dci(codes, factors)
        times.append(time.process_time())
        tree = dci(codes, factors, "tree")
        ours = [scores.part(part).value for part in PARTS]
        seconds = np.diff(times)
        ratio = f"{seconds[0] / seconds[1]:.0f}" if agree(ours, theirs) else "differ"
        for i, part in enumerate(PARTS):
            facts = [f"{seconds[0]:.0f}", f"{seconds[1]:.1f}", ratio] if i == 0 else ["", "", ""]
            values = [f"{theirs[i]:.3f}", f"{ours[i]:.3f}", f"{ours[i] - theirs[i]:+.4f}"]
            table.add_row(name if i == 0 else "", part, *values, *facts, f"{tree.part(part).value:.3f}")
    tracemalloc.start()
    dci(codes, factors)
    console = Console()
    console.print(table)
    console.print(f"memory at most, ours: {tracemalloc.get_traced_memory()[1] / 1e6:.0f} MB beside the codes")
    tracemalloc.stop()


if __name__ == "__main__":
    save(Path(sys.argv[1])) if len(sys.argv) > 1 else main()
