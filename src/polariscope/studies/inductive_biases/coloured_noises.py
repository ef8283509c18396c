"""Noises that help against other noises, and what a benchmark of 15 corruptions says about the four kinds that it holds
out; on digits in colours, as one of the four changes colours alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from polariscope.examination.corruptions import withstand
from polariscope.nets.predictors import DigitNet
from polariscope.objectives.predict import Classify
from polariscope.report.figures import heatmap
from polariscope.studies.criteria import Correlates
from polariscope.studies.inductive_biases.noise_gains import (
    BENCHMARK,
    NOISES,
    SUITE,
    TRAINED_ON,
    UNPREDICTED,
    accuracies_by_noise,
    helps_against_others,
    noise_figure,
    noise_readings,
)
from polariscope.studies.rows import rank_correlations
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.run import load_model
from polariscope.worlds.renderers.digits import Digits
from polariscope.worlds.splits import RandomSplit
from polariscope.worlds.splits import SplitPart as Part
from polariscope.worlds.targets import Task
from polariscope.worlds.views.coloured import Coloured
from polariscope.worlds.views.corrupted import Corrupted
from polariscope.worlds.world import World

SPLIT = RandomSplit(0.2)
SEVERITY = 3
HELD_OUT = ("speckle", "gaussian-blur", "spatter", "saturate")


@dataclass(frozen=True)
class Setting:
    seeds: int
    digits: int
    size: int
    steps: int
    shown: int
    """Held-out digits that are corrupted."""
    net: DigitNet
    batch: int = 100


SETTINGS: dict[Scale, Setting] = {
    "smoke": Setting(1, 60, 16, 3, 5, DigitNet((2, 4), 8), batch=20),
    "laptop": Setting(5, 6000, 20, 1000, 200, DigitNet((8, 16), 64)),
    "paper": Setting(5, 75_000, 28, 60_000, 10_000, DigitNet()),
}


@studies.register("coloured-noises")
@dataclass(frozen=True)
class ColouredNoises(Study):
    """Accuracy of coloured digits under each noise after training with each, and the rank correlations of the 15
    corruptions of the benchmark with the four held-out kinds."""

    title = "Noises in colour, and the four held-out corruptions"
    source = "Schott, thesis (2022), sections 2.3.2, 2.3.3 and 3.1.4; Rusak, Schott et al. (2020), appendix D"
    question = "Does training with one noise help against another, and does a benchmark predict what is not in it?"
    cost = {"smoke": "2 s", "laptop": "6 minutes", "paper": "days"}
    training_lengths = {scale: setting.steps for scale, setting in SETTINGS.items()}

    def jobs(self, scale: Scale) -> Sequence[Job]:
        trained = ("nothing", "shot") if scale == "smoke" else TRAINED_ON
        return [
            {"trained": noise, "seed": seed, "scale": scale}
            for seed in range(SETTINGS[scale].seeds)
            for noise in trained
        ]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        setting, seed, noise = SETTINGS[job["scale"]], job["seed"], job["trained"]
        world: World = Task(Coloured(Digits(setting.digits, setting.size)), "digit")
        seen = world if noise == "nothing" else Corrupted(world, noise, SEVERITY, SUITE)
        training = TrainingConfig(setting.steps, setting.batch, 3e-3, schedule="cosine", seed=seed, evaluate_every=0)
        network = load_model(bench.train(RunConfig(seen, Classify(), setting.net, training, SPLIT)))
        kinds = (*BENCHMARK, *HELD_OUT)
        result = withstand(network, Part(world, SPLIT), SUITE, kinds, (SEVERITY,), setting.shown, seed)
        accuracy = {kind: 100 * value for kind, value in result.by_kind.items()}
        return [{"trained": noise, "seed": seed, "clean": 100 * result.clean, **accuracy}]

    def claims(self, scale: Scale) -> list[Claim]:
        outside = {"the four corruptions outside of it": "held_out"} | {kind: f"outside {kind}" for kind in HELD_OUT}
        predicted = [
            Claim(
                f"What a benchmark says holds for {words}",
                UNPREDICTED,
                Correlates("benchmark", column, 0.5, called="accuracy on the 15 kinds"),
            )
            for words, column in outside.items()
        ]
        return [helps_against_others(), *predicted]

    def readings(self, table: Table) -> Table:
        return noise_readings(table, HELD_OUT)

    def beside(self, table: Table) -> list[Row]:
        return accuracies_by_noise(table, tuple(dict.fromkeys(("clean", *NOISES, *HELD_OUT))))

    def figures(self, table: Table) -> dict[str, Figure]:
        kinds = heatmap(kind_correlations(table), BENCHMARK, HELD_OUT, low=-1, high=1, signed=True)
        return {"noises": noise_figure(table), "kinds": kinds}


def kind_correlations(table: Table) -> np.ndarray:
    """Rank correlation over all networks of each kind of the benchmark with each held-out kind."""
    return rank_correlations(table, BENCHMARK, HELD_OUT)
