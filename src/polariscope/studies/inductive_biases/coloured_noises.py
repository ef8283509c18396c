"""Noises that help against other noises, and what a benchmark of 15 corruptions says about the four kinds that it holds
out; on digits in colours, as one of the four changes colours alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from polariscope.examination.corruptions import withstand
from polariscope.nets.predictors import DigitNet
from polariscope.objectives.predict import Classify
from polariscope.report import figures as drawing
from polariscope.studies.criteria import All, AtLeast, Correlates
from polariscope.studies.rows import plus_minus
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.run import load_model
from polariscope.worlds.renderers.digits import Digits
from polariscope.worlds.splits import RandomSplit
from polariscope.worlds.splits import SplitPart as Part
from polariscope.worlds.targets import Task
from polariscope.worlds.views.coloured import Coloured
from polariscope.worlds.views.corrupted import Corrupted
from polariscope.worlds.views.corruptions import SUITES
from polariscope.worlds.world import World

SPLIT = RandomSplit(0.2)
SUITE: Literal["imagenet-c"] = "imagenet-c"
SEVERITY = 3
BENCHMARK: tuple[str, ...] = tuple(SUITES[SUITE].benchmark)
NOISES = ("gaussian", "shot", "impulse", "speckle")
HELD_OUT = ("speckle", "gaussian-blur", "spatter", "saturate")
TRAINED_ON = ("nothing", *NOISES)


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
        return [
            Claim(
                "Training with a noise helps against every other noise",
                "section 2.3.2: Gaussian noise helps against shot and impulse noise, on ImageNet-C by 30 points",
                All(
                    *(
                        AtLeast("least_gain", 5, where={"trained": noise, "compared": True}, digits=1,
                                called="least gain under another noise (points)")
                        for noise in NOISES
                    )
                ),
            ),
            Claim(
                "What a benchmark says holds for the four corruptions outside of it",
                "section 3.1.4: an open question; scores on ImageNet-C may not predict other corruptions",
                Correlates("benchmark", "held_out", 0.5, where={"compared": True}, called="accuracy on the 15 kinds"),
            ),
            *(
                Claim(
                    f"What a benchmark says holds for {kind}",
                    "section 3.1.4: an open question; scores on ImageNet-C may not predict other corruptions",
                    Correlates("benchmark", f"outside {kind}", 0.5, where={"compared": True},
                               called="accuracy on the 15 kinds"),
                )
                for kind in HELD_OUT
            ),
        ]  # fmt: skip

    def readings(self, table: Table) -> Table:
        plain = {row["seed"]: row for row in table.where(trained="nothing").rows}
        rows: list[Row] = list(table.rows)
        for row in table.rows:
            own, base = row["trained"], plain.get(row["seed"])
            reading: Row = {"trained": own, "seed": row["seed"], "compared": True}
            reading["benchmark"] = float(np.mean([row[kind] for kind in BENCHMARK]))
            reading["held_out"] = float(np.mean([row[kind] for kind in HELD_OUT]))
            reading |= {f"outside {kind}": row[kind] for kind in HELD_OUT}
            if own in NOISES and base is not None:
                reading["least_gain"] = min(row[noise] - base[noise] for noise in NOISES if noise != own)
            rows.append(reading)
        return Table(rows)

    def beside(self, table: Table) -> list[Row]:
        return [
            {"trained with": noise}
            | {
                f"{kind}, %": plus_minus(table.where(trained=noise).column(kind), 1)
                for kind in ("clean", *NOISES, *(kind for kind in HELD_OUT if kind not in NOISES))
            }
            for noise in TRAINED_ON
            if table.where(trained=noise).rows
        ]

    def figures(self, table: Table) -> dict[str, Figure]:
        trained = [noise for noise in TRAINED_ON if table.where(trained=noise).rows]
        values = np.array([[table.where(trained=noise).mean(kind) for kind in NOISES] for noise in trained])
        return {
            "noises": drawing.heatmap(values, trained, NOISES),
            "kinds": drawing.heatmap(kind_correlations(table), BENCHMARK, HELD_OUT, low=-1, high=1, signed=True),
        }


def kind_correlations(table: Table) -> np.ndarray:
    """Rank correlation over all networks of each kind of the benchmark with each held-out kind; 0 where one of the two
    is the same for all of them."""
    ranks = np.zeros((len(BENCHMARK), len(HELD_OUT)))
    for first, inside in enumerate(BENCHMARK):
        for second, outside in enumerate(HELD_OUT):
            one, other = table.column(inside), table.column(outside)
            if np.ptp(one) > 0 and np.ptp(other) > 0:
                ranks[first, second] = spearmanr(one, other).statistic
    return ranks
