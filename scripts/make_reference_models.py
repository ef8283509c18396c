"""Train the reference models that come with the package, examine them, and write them into it.

    python scripts/make_reference_models.py [--steps 10000] [--only NAME] [--runs DIR] [--out DIR]

On one core, a step of the 64x64 convolutional autoencoder takes about 0.14 s, and twice that for FactorVAE: 10,000
steps of all four take about two hours, the classifier and its robustness card five minutes. If it is stopped, the
same command continues. Everything it writes comes from the runs in --runs.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

from polariscope.examination.examine import examine_run
from polariscope.examination.robustness import robustness_run
from polariscope.lab.labels import label
from polariscope.lab.run_documents import keep_findings
from polariscope.lab.store import Store
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.nets.predictors import LeNet
from polariscope.nets.sprite_conv import SpriteConv
from polariscope.objectives.beta_tc_vae import BetaTCVAE
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.objectives.factor_vae import FactorVAE
from polariscope.objectives.objective import Objective
from polariscope.objectives.predict import Classify
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.reference import SHIPPED, ship
from polariscope.training.run import resume, train
from polariscope.worlds.renderers.sprites import Sprites
from polariscope.worlds.targets import Task

CLASSIFIER = "shape-classifier"


@dataclass(frozen=True)
class Reference:
    """One of the models."""

    objective: Objective
    note: str


MODELS = {
    "beta-vae": Reference(BetaVAE(beta=12.0), "beta 12 on the whole divergence."),
    "beta-tc-vae": Reference(BetaTCVAE(beta=6.0), "beta 6 on the total correlation alone."),
    "factor-vae": Reference(FactorVAE(gamma=10.0), "gamma 10: a discriminator estimates the total correlation."),
    "over-regularised": Reference(
        BetaVAE(beta=60.0), "beta 60: strongly compressed, so that many variables are passive."
    ),
    CLASSIFIER: Reference(Classify(), "a LeNet that classifies the shape in images of 32x32 pixels."),
}


def config_of(name: str, steps: int) -> RunConfig:
    """The configuration of a reference model. Seed 100: no table of a study uses it."""
    reference = MODELS[name]
    if name == CLASSIFIER:
        training = TrainingConfig(
            steps=25_000, seed=100, learning_rate=2e-3, schedule="linear", evaluate_every=1000, checkpoint_every=500
        )
        return RunConfig(Task(Sprites(size=32), "shape"), reference.objective, LeNet(), training)
    model = AutoencoderConfig(latents=10, architecture=SpriteConv())
    training = TrainingConfig(
        steps=steps, seed=100, learning_rate=5e-4, evaluate_every=1000, checkpoint_every=500, log_every=100
    )
    return RunConfig(Sprites(), reference.objective, model, training)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10_000, help="training steps of each autoencoder")
    parser.add_argument("--only", choices=list(MODELS), help="one model alone")
    parser.add_argument("--runs", type=Path, default=Path("runs/reference"), help="folder of the runs")
    parser.add_argument("--out", type=Path, default=SHIPPED, help="folder of the reference models")
    options = parser.parse_args()
    store = Store(options.runs)
    for name in [options.only] if options.only else MODELS:
        config = config_of(name, options.steps)
        if not store.path_of(name).exists():
            train(config, store, run_id=name)
        run = store.open(name)
        if run.status != "done":
            run = resume(run)
        label(store, run, note=MODELS[name].note)
        if name == CLASSIFIER:
            card = robustness_run(run, budget="quick", count=100, corrupted=500).findings()
            # The package has to stay small: of the arrays, distances are shipped, and images are not.
            small = {name: values for name, values in card.arrays.items() if values.ndim == 1}
            keep_findings(replace(card, arrays=small), "robustness", run)
        else:
            keep_findings(examine_run(run, count=10_000).findings(), "examine", run)
        place = ship(run, name, options.out)
        print(f"{place}: {sum(file.stat().st_size for file in place.rglob('*')) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
