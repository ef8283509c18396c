"""What FONDUE costs beside the training it is to save: models x steps, as a share of one full training.

At a small scale (16 x 16 sprites, a small fully connected pair) the search is run for a few starting points and held
against two ways of doing without it: one full training, and the elbow curve of full trainings at every size tried.
"""

from __future__ import annotations

from functools import partial

from rich.console import Console
from rich.table import Table

from polariscope.dimension import DimensionProbe, search_dimension
from polariscope.nets.architecture import MLP
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.objectives.vae import VAE
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.worlds.renderers.sprites import Sprites


def main(short: int = 500, full: int = 20_000, starts: tuple[int, ...] = (4, 11, 22), elbow_sizes: int = 9) -> None:
    """Trainings of ``short`` steps against ``full`` ones, of which an elbow curve takes ``elbow_sizes``."""
    config = RunConfig(
        Sprites(size=16),
        VAE(),
        AutoencoderConfig(architecture=MLP((128,), (128,))),
        TrainingConfig(steps=full, learning_rate=1e-3),
    )
    probe = DimensionProbe(config, examples=5000)
    table = Table(
        *(
            "start",
            "answer",
            "trusted",
            "models",
            "seconds",
            "steps in all",
            "of one full training",
            "of an elbow curve",
        ),
        title=f"FONDUE at {short} steps per model, sprites 16 x 16, against {full:,} steps of a full training",
    )
    for start in starts:
        found = search_dimension(partial(probe, steps=short), start)
        steps = found.models * short
        shares = (f"{steps / full:.1%}", f"{steps / (full * elbow_sizes):.1%}")
        cells = (start, found.answer, found.trusted, found.models, f"{found.seconds:.1f}", f"{steps:,}", *shares)
        table.add_row(*map(str, cells))
    Console().print(table)


if __name__ == "__main__":
    main()
