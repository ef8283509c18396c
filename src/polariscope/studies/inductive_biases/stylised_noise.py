"""Digits classified after training with adversarial noise, with stylised images, and with both in one batch (table
3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure

from polariscope.examination.corruptions import withstand
from polariscope.examination.transfer import TransferMatrix
from polariscope.nets.predictors import DigitNet
from polariscope.objectives.objective import Objective
from polariscope.objectives.predict import Classify
from polariscope.robustness.adversarial_noise_training import AdversarialNoiseTraining
from polariscope.robustness.attacks import accuracy_at
from polariscope.robustness.attacks.ddn import DDN
from polariscope.robustness.stylised_training import StylisedNoiseTraining, StylisedTraining, stylised
from polariscope.studies.criteria import AtLeast, Beats
from polariscope.studies.rows import groups, means
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.subjects import Subject, as_subject
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.run import load_model
from polariscope.worlds.renderers.digits import Digits
from polariscope.worlds.splits import RandomSplit
from polariscope.worlds.splits import SplitPart as Part
from polariscope.worlds.targets import Task, target_values
from polariscope.worlds.world import World, sample_numbers, to_tensor

SPLIT = RandomSplit(0.2)
PLAIN, NOISE, STYLE, BOTH = "plain", "adversarial noise", "stylised images", "adversarial noise + stylised images"
BIASES = (PLAIN, NOISE, STYLE, BOTH)
SCENARIOS = ("clean", "L2", "noises", "other corruptions", "stylised")
OWN = {NOISE: "noises", STYLE: "stylised"}
"""What each bias was made for."""
TOLERANCE = 5.0
"""Differences of accuracy up to it, in points, are none."""
NORM_SHARE = 3.5 / 20
"""Norm of the noise by the side of an image: half of the norm of a digit, so that noise does not erase it."""
L2_SHARE = 1.5 / 28
"""L2 distance under attack by the side of an image, as published."""
PUBLISHED = {PLAIN: ("39.2", "42.3"), NOISE: ("51.1", "47.7"), STYLE: ("45.2", "46.6"), BOTH: ("52.2", "49.2")}
"""Accuracy on ImageNet-C, and without the noises."""


@dataclass(frozen=True)
class Setting:
    seeds: int
    digits: int
    size: int
    steps: int
    images: int
    """Held-out digits that are attacked."""
    shown: int
    """Held-out digits that are corrupted and stylised."""
    net: DigitNet
    batch: int = 100
    rounds: int = 12
    """Generators of adversarial noise, one after the other."""


SETTINGS: dict[Scale, Setting] = {
    "smoke": Setting(1, 60, 16, 4, 4, 5, DigitNet((2, 4), 8), batch=20, rounds=2),
    "laptop": Setting(5, 3000, 20, 360, 50, 200, DigitNet((8, 16), 64)),
    "paper": Setting(5, 75_000, 28, 60_000, 1000, 10_000, DigitNet(), rounds=300),
}


@studies.register("stylised-noise")
@dataclass(frozen=True)
class StylisedNoise(Study):
    """Accuracy of digits under noises, other corruptions and random textures, after training with adversarial noise,
    with stylised images, and with both."""

    title = "Adversarial noise and stylised images in one batch"
    source = (
        "Rusak, Schott et al., A simple way to make neural networks robust against diverse image corruptions (2020), "
        "section 3.2 and table 3; Schott, thesis (2022), section 3.2 and figure 3.2"
    )
    question = "Do adversarial noise and stylised images add up when a classifier is trained with both?"
    cost = {"smoke": "2 s", "laptop": "6 minutes", "paper": "days"}
    training_lengths = {scale: setting.steps for scale, setting in SETTINGS.items()}

    def jobs(self, scale: Scale) -> Sequence[Job]:
        return [
            {"bias": bias, "seed": seed, "scale": scale} for seed in range(SETTINGS[scale].seeds) for bias in BIASES
        ]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        setting, seed = SETTINGS[job["scale"]], job["seed"]
        objective, steps = objective_of(job["bias"], setting)
        training = TrainingConfig(steps, setting.batch, 2e-3, schedule="cosine", seed=seed, evaluate_every=0)
        config = RunConfig(digits_of(setting), objective, setting.net, training, SPLIT)
        network = as_subject(load_model(bench.train(config)), name=job["bias"])
        return [{"bias": job["bias"], "seed": seed, **scores_of(network, setting, seed)}]

    def claims(self, scale: Scale) -> list[Claim]:
        plain, noise, style = ({"bias": bias} for bias in (PLAIN, NOISE, STYLE))
        kept = "accuracy with both less the best part, in the scenario of a part (points)"
        lead = "accuracy under corruptions with both less the best part (points)"
        return [
            Claim(
                "Stylised images help on other stylised images",
                "not in the work: the scenario that stylised images are made for",
                Beats("stylised", style, plain, TOLERANCE, called="accuracy on stylised digits (%)", digits=1),
            ),
            Claim(
                "Adversarial noise helps under noises",
                "table 3: 39.2 % of ImageNet-C without, 51.1 % with",
                Beats("noises", noise, plain, TOLERANCE, called="accuracy under noises (%)", digits=1),
            ),
            Claim(
                "A network trained with both keeps the gain of each",
                "thesis, section 3.2: the biases are orthogonal and modular",
                AtLeast("least_change", -TOLERANCE, digits=1, called=kept),
            ),
            Claim(
                "Under corruptions both together are better than each alone",
                "table 3: 52.2 % of ImageNet-C with both, 51.1 % with noise, 45.2 % with stylised images",
                AtLeast("lead_of_both", 0, digits=1, called=lead),
            ),
        ]

    def readings(self, table: Table) -> Table:
        """Of each seed, what both together change against the better part."""
        rows: list[Row] = list(table.rows)
        for seed, own in table.by("seed"):
            level = {row["bias"]: row for row in own.rows}
            if level.keys() >= set(BIASES):
                change = {s: level[BOTH][s] - max(level[part][s] for part in OWN) for s in (*OWN.values(), "corrupted")}
                least = min(change[scenario] for scenario in OWN.values())
                rows.append({"seed": seed, "least_change": least, "lead_of_both": change["corrupted"]})
        return Table(rows)

    def beside(self, table: Table) -> list[Row]:
        matrix = matrix_of(table)
        labels: dict[str, str] = {**matrix.transfer, **matrix.combinations}
        printed = ("ImageNet-C, published %", "without noises, published %")
        columns = {f"{name}, %": name for name in (*SCENARIOS, "corrupted")}
        return [
            {"bias": bias, "label here": labels.get(bias, "-")}
            | dict(zip(printed, PUBLISHED[bias], strict=True))
            | means(own, columns, 1)
            for bias, own in groups(table, "bias", BIASES)
        ]

    def figures(self, table: Table) -> dict[str, Figure]:
        return {"gains": matrix_of(table).figure()}


def matrix_of(table: Table) -> TransferMatrix:
    """Mean scores of the networks, with the label of each bias and of their combination."""
    scores = np.array([[table.where(bias=bias).mean(scenario) for scenario in SCENARIOS] for bias in BIASES])
    return TransferMatrix(BIASES, SCENARIOS, scores, PLAIN, OWN, TOLERANCE, {BOTH: (NOISE, STYLE)})


def digits_of(setting: Setting) -> World:
    return Task(Digits(setting.digits, setting.size), "digit")


def objective_of(bias: str, setting: Setting) -> tuple[Objective, int]:
    """The objective of a bias, and its steps: those in which a generator learns alone come on top."""
    if bias == STYLE:
        return StylisedTraining(), setting.steps
    if bias == PLAIN:
        return Classify(), setting.steps
    refresh = max(1, setting.steps // setting.rounds)
    kind = AdversarialNoiseTraining if bias == NOISE else StylisedNoiseTraining
    norm = NORM_SHARE * setting.size
    return kind(norm, refresh=refresh, alone=refresh, generator_learning_rate=3e-3), 2 * refresh * setting.rounds


def scores_of(network: Subject, setting: Setting, seed: int) -> Row:
    """Accuracies in the scenarios, in percent."""
    part = Part(digits_of(setting), SPLIT)
    numbers = sample_numbers(part, setting.shown, seed)
    x, y = to_tensor(part.observe(numbers)), torch.from_numpy(target_values(part, numbers)[:, 0].astype(np.int64))
    textures = stylised(x, torch.Generator().manual_seed(1000 + seed))
    with network.at_rest():
        right = (network.scores(textures).argmax(1) == y).double().mean()
    few, epsilon = slice(setting.images), L2_SHARE * setting.size
    done = DDN(40)(network, x[few], y[few], norm="l2", epsilons=[epsilon], seed=seed, numbers=numbers[few])
    corrupted = withstand(network, part, "mnist-c", count=setting.shown, seed=seed)
    return {
        "clean": 100 * corrupted.clean,
        "L2": 100 * float(accuracy_at(done.distances, [epsilon])[0]),
        "noises": 100 * corrupted.by_group["noise"],
        "other corruptions": 100 * (corrupted.without_noise or 0),
        "corrupted": 100 * corrupted.mean,
        "stylised": 100 * float(right),
    }
