"""Networks that are trained on attacked digits: what they gain within the distance of their training, and what they
lose in L0 (table 1; appendices E and F)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from polariscope.nets.predictors import DigitNet
from polariscope.objectives.objective import Objective
from polariscope.objectives.predict import Classify
from polariscope.robustness.adversarial_training import AdversarialTraining
from polariscope.robustness.attacks import Attack, Norm, accuracy_at, least
from polariscope.robustness.attacks.apgd import APGD
from polariscope.robustness.attacks.ddn import DDN
from polariscope.robustness.attacks.pgd import PGD
from polariscope.robustness.attacks.pointwise import Pointwise
from polariscope.studies.criteria import AtLeast, Beats
from polariscope.studies.kit import Panels, Restarts, in_order
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
PLAIN, PGD_TRAINED, DDN_TRAINED = "plain", "pgd", "ddn"
TRAININGS = (PLAIN, PGD_TRAINED, DDN_TRAINED)
LINF = 0.3
"""Largest change of a pixel, in training and under attack, as published."""
L2 = {28: 1.5, 20: 1.07, 12: 0.64}
"""Largest L2 norm, in training and under attack, by the side of an image: the published one as a share of the side."""
PUBLISHED = {PLAIN: ("0 %", "9.0"), PGD_TRAINED: ("88 %", "4.0"), DDN_TRAINED: ("-", "-")}
"""Accuracy within L∞ 0.3, and the median of L0."""
MEASURED = {"linf": "accuracy within L∞ (%)", "l2": "accuracy within L2 (%)", "l0": "median of changed pixels"}


@dataclass(frozen=True)
class Setting:
    seeds: int
    digits: int
    size: int
    steps: int
    batch: int
    net: DigitNet
    ascent: int
    """Steps of the attack on a batch."""
    images: int
    """Held-out digits that are attacked."""
    restarts: int
    """Of the pointwise attack."""
    strength: int = 100
    """Steps of the attacks on a trained network."""


SETTINGS: dict[Scale, Setting] = {
    "smoke": Setting(1, 60, 12, 3, 20, DigitNet((2, 4), 8), 2, 4, 1, 3),
    "laptop": Setting(5, 3000, 20, 1000, 50, DigitNet((16, 32), 128), 7, 100, 4),
    "paper": Setting(5, 75_000, 28, 100_000, 50, DigitNet(), 40, 1000, 10),
}


@studies.register("attack-training")
@dataclass(frozen=True)
class AttackTraining(Study):
    """Accuracy of digits within the distance that a network was trained for, and the pixels that mislead it, after
    training against L∞ attacks, against L2 attacks, and against none."""

    title = "Training against attacks"
    source = (
        "Schott, Rauber, Bethge and Brendel, Towards the first adversarially robust neural network model on MNIST "
        "(2019), table 1; Rusak, Schott et al., A simple way to make neural networks robust against diverse image "
        "corruptions (2020), appendices E and F"
    )
    question = "Does training against attacks in one norm help there, and does it cost robustness in another?"
    cost = {"smoke": "2 s", "laptop": "12 minutes", "paper": "days"}
    training_lengths = {scale: setting.steps for scale, setting in SETTINGS.items()}
    drawn = {
        "robustness": Panels(
            tuple(
                Restarts(column, "training", called=title, names=in_order(TRAININGS), from_zero=True)
                for column, title in MEASURED.items()
            )
        )
    }

    def jobs(self, scale: Scale) -> Sequence[Job]:
        return [
            {"training": training, "seed": seed, "scale": scale}
            for seed in range(SETTINGS[scale].seeds)
            for training in TRAININGS
        ]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        setting, seed = SETTINGS[job["scale"]], job["seed"]
        training = TrainingConfig(
            setting.steps, setting.batch, 2e-3, schedule="cosine", seed=seed, evaluate_every=0, checkpoint_every=500
        )
        config = RunConfig(digits_of(setting), objective_of(job["training"], setting), setting.net, training, SPLIT)
        network = as_subject(load_model(bench.train(config)), name=job["training"])
        return [{"training": job["training"], "seed": seed, **attacked(network, setting, seed)}]

    def claims(self, scale: Scale) -> list[Claim]:
        plain, pgd, ddn = ({"training": training} for training in TRAININGS)
        l2 = "accuracy within L2 1.5 of 28 x 28 pixels (%)"
        clean = "accuracy on clean digits less that of the plain network (points)"
        return [
            Claim(
                "Training by PGD makes a network robust within the distance of its training",
                "Schott et al. (2019), table 1: 88 % within L∞ 0.3, against 0 % of the network without",
                Beats("linf", pgd, plain, 30, called="accuracy within L∞ 0.3 (%)", digits=1),
            ),
            Claim(
                "Training by DDN makes a network robust within the distance of its training",
                "Rusak, Schott et al. (2020), appendices E and F: the baseline in L2 within 1.5",
                Beats("l2", ddn, plain, 20, called=l2, digits=1),
            ),
            Claim(
                "Both classify clean digits as well as before",
                "Schott et al. (2019), table 1: 98.8 and 99.1 %; Rusak, Schott et al. (2020), table 6: 99.0 and 99.5 %",
                AtLeast("least_clean_gain", -1, called=clean, digits=1),
            ),
            Claim(
                "Training against L∞ attacks makes a network less robust in L0",
                "Schott et al. (2019), table 1: 4.0 pixels against 9.0",
                Beats("l0", plain, pgd, 0.2, relative=True, called="median of changed pixels", digits=1),
                note="a short training on rendered digits; the published network is trained for days on MNIST",
            ),
        ]

    def readings(self, table: Table) -> Table:
        gains = [
            {"seed": seed, "least_clean_gain": min(own.column("clean")) - own.where(training=PLAIN).mean("clean")}
            for seed, own in table.by("seed")
            if len(own) == len(TRAININGS)
        ]
        return Table(table.rows + gains)

    def beside(self, table: Table) -> list[Row]:
        columns = {"clean, %": "clean", "L∞, %": "linf", "L2, %": "l2", "L0": "l0"}
        return [
            {"training": training, "L∞, published": PUBLISHED[training][0], "L0, published": PUBLISHED[training][1]}
            | means(own, columns, 1)
            for training, own in groups(table, "training", TRAININGS)
        ]


def digits_of(setting: Setting) -> World:
    return Task(Digits(setting.digits, setting.size), "digit")


def objective_of(training: str, setting: Setting) -> Objective:
    """Attacks within distances that grow over the first half of the training."""
    if training == PGD_TRAINED:
        return AdversarialTraining(
            "linf", LINF, steps=setting.ascent, step=2.5 * LINF / setting.ascent, ramp=setting.steps // 2
        )
    if training == DDN_TRAINED:
        norm = L2[setting.size]
        return AdversarialTraining("l2", norm, ramp=setting.steps // 2, attack=DDN(setting.ascent, radius=norm / 2))
    return Classify()


def attacked(network: Subject, setting: Setting, seed: int) -> Row:
    """Accuracy without an attack and within the two distances, in percent, and the median of changed pixels.

    Within a distance the nearest adversarial of several attacks counts.
    """
    part = Part(digits_of(setting), SPLIT)
    everything = np.arange(len(part))
    with network.at_rest():
        predicted = network.scores(to_tensor(part.observe(everything))).argmax(1).numpy()
    row: Row = {"clean": 100 * float((predicted == target_values(part, everything)[:, 0]).mean())}
    numbers = sample_numbers(part, setting.images, seed)
    x, y = to_tensor(part.observe(numbers)), torch.from_numpy(target_values(part, numbers)[:, 0].astype(np.int64))

    def nearest(norm: Norm, epsilon: float, attacks: Sequence[Attack]) -> Row:
        done = [one(network, x, y, norm=norm, epsilons=[epsilon], seed=seed, numbers=numbers) for one in attacks]
        return {norm: 100 * float(accuracy_at(least(done).distances, [epsilon])[0])}

    few = setting.strength
    row |= nearest("linf", LINF, [PGD(few, 0.03), APGD(steps=few)])
    row |= nearest("l2", L2[setting.size], [DDN(few), APGD(steps=few)])
    fewest = Pointwise(setting.restarts)(network, x, y, norm="l0", seed=seed, numbers=numbers)
    return row | {"l0": fewest.median, "images": len(numbers)}
