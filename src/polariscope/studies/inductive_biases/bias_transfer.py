"""Does what helps against one kind of shift help against others? Digits classified by networks with several biases,
alone and together, under attacks and corruptions; noises that transfer to other noises; and the memory of generators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure

from polariscope.examination.corruptions import withstand
from polariscope.examination.transfer import TransferMatrix
from polariscope.nets.binarised import BinarisedConfig
from polariscope.nets.model import Model
from polariscope.nets.predictors import DigitNet
from polariscope.objectives.objective import Objective
from polariscope.objectives.predict import Classify
from polariscope.report.figures import heatmap
from polariscope.robustness.adversarial_noise_training import AdversarialNoiseTraining
from polariscope.robustness.adversarial_training import AdversarialTraining
from polariscope.robustness.attacks import Attack, Norm, accuracy_at
from polariscope.robustness.attacks.binarised import Binarised
from polariscope.robustness.attacks.ddn import DDN
from polariscope.robustness.attacks.pgd import PGD
from polariscope.robustness.attacks.pointwise import Pointwise
from polariscope.robustness.noise_training import NoiseTraining
from polariscope.robustness.synthesis import LinearABS
from polariscope.studies.criteria import All, AtLeast, AtMost, Beats, Correlates
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
    of_each_noise,
)
from polariscope.studies.kit import Restarts
from polariscope.studies.rows import groups, leads, means, rank_correlations
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.subjects import Subject, as_subject
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.run import load_model
from polariscope.worlds.renderers.digits import Digits
from polariscope.worlds.splits import RandomSplit
from polariscope.worlds.splits import SplitPart as Part
from polariscope.worlds.targets import Task, target_values
from polariscope.worlds.views.augmented import Augmented
from polariscope.worlds.views.corrupted import Corrupted
from polariscope.worlds.world import World, sample_numbers, to_tensor

SPLIT = RandomSplit(0.2)
PLAIN = "plain"
SCENARIOS = ("clean", "L2", "L∞", "L0", "noises", "other corruptions")
OWN = {
    "gaussian noise": "noises",
    "adversarial noise": "noises",
    "pgd": "L∞",
    "ddn": "L2",
    "binary input": "L∞",
    "linear abs": "L2",
}
"""What each bias was made for."""
MADE_OF = {
    "gaussian noise + pgd": ("gaussian noise", "pgd"),
    "binary input + adversarial noise": ("binary input", "adversarial noise"),
    "linear abs on noisy images": ("linear abs", "gaussian noise"),
}
BIASES = (PLAIN, *OWN, *MADE_OF)
TOLERANCE = 5.0
"""Differences of accuracy up to it, in points, are none."""
NORMS: dict[str, Norm] = {"L2": "l2", "L∞": "linf", "L0": "l0"}
THRESHOLDS = {"L2": 1.07, "L∞": 0.15, "L0": 6.0}
"""Of images with 20 pixels a side: 1.5 and 12 of the published ones as shares of side and area, and half of the
published 0.3."""
NOISE_NORM = 3.5
"""Norm of adversarial noise on 20 x 20 pixels, as 5 on 28 x 28: above 0.6 of the norm of an image, noise erases it."""


@dataclass(frozen=True)
class Setting:
    seeds: int
    plain_seeds: int
    """Seeds of the network without a bias, over which scenarios are correlated."""
    digits: int
    steps: int
    images: int
    """Held-out digits that are attacked."""
    shown: int
    """Held-out digits that are corrupted."""
    net: DigitNet
    batch: int = 100
    ascent: int = 5
    size: int = 20
    rounds: int = 12
    """Generators of adversarial noise, one after the other."""


SETTINGS: dict[Scale, Setting] = {
    "smoke": Setting(1, 1, 60, 4, 4, 5, DigitNet((2, 4), 8), batch=20, ascent=1, rounds=2),
    "laptop": Setting(5, 10, 3000, 300, 50, 100, DigitNet((8, 16), 64)),
    "paper": Setting(5, 50, 75_000, 60_000, 1000, 10_000, DigitNet(), ascent=40, size=28, rounds=300),
}


@studies.register("bias-transfer")
@dataclass(frozen=True)
class BiasTransfer(Study):
    """Accuracy of digits under attacks in three norms, noises and other corruptions, by the bias of the classifier."""

    title = "Biases and the scenarios they help in"
    source = "Schott, thesis (2022), chapter 3, figures 3.1 and 3.2; Rusak, Schott et al. (2020), tables 1, 6 and 7"
    question = "Does a bias that makes a classifier robust in one scenario help in others, and do biases add up?"
    cost = {"smoke": "3 s", "laptop": "20 minutes", "paper": "days"}
    # With adversarial noise, of which half the steps train the generators.
    training_lengths = {scale: 2 * setting.steps for scale, setting in SETTINGS.items()}

    def jobs(self, scale: Scale) -> Sequence[Job]:
        setting = SETTINGS[scale]
        names = (PLAIN, "linear abs on noisy images", "binary input") if scale == "smoke" else BIASES
        return [
            {"bias": bias, "seed": seed, "scale": scale}
            for bias in names
            for seed in range(setting.plain_seeds if bias == PLAIN else setting.seeds)
        ]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        setting, seed = SETTINGS[job["scale"]], job["seed"]
        subject = classifier_of(job["bias"], setting, seed, bench)
        part = Part(digits_of(setting), SPLIT)
        numbers = sample_numbers(part, setting.images, seed)
        x, y = to_tensor(part.observe(numbers)), torch.from_numpy(target_values(part, numbers)[:, 0].astype(np.int64))
        row: Row = {"bias": job["bias"], "seed": seed}
        for norm, attack in attacks_on(job["bias"]).items():
            done = attack(subject, x, y, norm=NORMS[norm], epsilons=[THRESHOLDS[norm]], seed=seed, numbers=numbers)
            row[norm] = 100 * float(accuracy_at(done.distances, [THRESHOLDS[norm]])[0])
        corrupted = withstand(subject, part, "mnist-c", count=setting.shown, seed=seed)
        row |= {"clean": 100 * corrupted.clean, "noises": 100 * corrupted.by_group["noise"]}
        return [row | {"other corruptions": 100 * (corrupted.without_noise or 0)}]

    def claims(self, scale: Scale) -> list[Claim]:
        def beats(norm: str, bias: str, by: float) -> Beats:
            called = f"accuracy within {norm} {THRESHOLDS[norm]:g} (%)"
            return Beats(norm, {"bias": bias}, {"bias": PLAIN}, by, called=called, digits=1)

        def gain(
            bias: str, scenario: str, bound: float = TOLERANCE, kind: type[AtLeast] | type[AtMost] = AtLeast
        ) -> AtLeast | AtMost:
            called = f"gain in {scenario} (points)"
            return kind(f"gain {scenario}", bound, where={"bias": bias}, digits=1, called=called)

        others, noisy = "least of the others", "adversarial noise"
        more = "spread of accuracy over seeds under attacks and corruptions, as a multiple of that on clean images"
        return [
            Claim(
                "Training against L∞ attacks helps against them",
                "Schott et al. (2019), table 1: 88 % within 0.3 against 0 %",
                beats("L∞", "pgd", 30),
            ),
            Claim(
                "Training against L2 attacks helps against them",
                "Rusak, Schott et al. (2020), appendix E: networks trained by DDN are the baseline in L2",
                beats("L2", "ddn", 20),
            ),
            Claim(
                "Training against L∞ attacks is overfitting: it gains there and loses elsewhere",
                "section 3.1: L0 falls from 9.0 to 4.0 pixels, MNIST-C from 86.9 to 75.6 %",
                All(gain("pgd", "L∞"), gain("pgd", others, -TOLERANCE, AtMost)),
            ),
            Claim(
                "Adversarial noise helps under corruptions and loses nowhere",
                "section 3.1: specific, slight gains in L2 and L∞; MNIST-C from 86.9 to 92.4 %",
                All(gain(noisy, "noises"), gain(noisy, others, -TOLERANCE)),
            ),
            Claim(
                "Gaussian noise also helps a little against L2 attacks",
                "Rusak, Schott et al. (2020), table 7: 73.2 to 89.2 % within 1.5",
                beats("L2", "gaussian noise", 5),
            ),
            Claim(
                "Analysis by synthesis helps in all three norms",
                "section 3.1: a strong gain in L0, L2 and L∞",
                All(*(gain("linear abs", norm) for norm in NORMS)),
                weaker="with linear decoders and exact inference, in place of autoencoders",
            ),
            *(
                Claim(
                    f"{name[0].upper()}{name[1:]}: each part keeps its gain",
                    "section 3.2: the biases of the thesis are orthogonal and modular",
                    gain(name, "least change against the parts", -TOLERANCE),
                )
                for name in MADE_OF
            ),
            Claim(
                "Networks that are equally good on clean images differ on corrupted and attacked images",
                "section 1.1, underspecification: the same accuracy from other seeds, and other answers elsewhere",
                AtLeast("spread_ratio", 2, called=more),
            ),
        ]

    def readings(self, table: Table) -> Table:
        """Gains over the plain network of the same seed; and spreads over the seeds of the plain network."""
        rows: list[Row] = []
        plain, runs = table.where(bias=PLAIN), {(row["bias"], row["seed"]): row for row in table.rows}
        for row in table.rows:
            bias, seed = row["bias"], row["seed"]
            base, made_of = runs.get((PLAIN, seed), {}), MADE_OF.get(bias, ())
            gains = {scenario: row[scenario] - base[scenario] for scenario in SCENARIOS if base}
            reading: Row = {f"gain {scenario}": value for scenario, value in gains.items()}
            if gains and bias in OWN:
                reading["gain least of the others"] = min(v for s, v in gains.items() if s != OWN[bias])
            parts = [runs[part, seed] for part in made_of if (part, seed) in runs]
            if parts and len(parts) == len(made_of):
                changes = [row[s] - max(part[s] for part in parts) for s in (OWN[part] for part in made_of)]
                reading["gain least change against the parts"] = min(changes)
            rows.append(row | reading)
        if len(plain) > 2 and plain.std("clean") > 0:
            elsewhere = float(np.mean([plain.std(scenario) for scenario in SCENARIOS if scenario != "clean"]))
            rows.append({"spread_ratio": elsewhere / plain.std("clean"), "of_seeds": len(plain)})
        return Table(rows)

    def beside(self, table: Table) -> list[Row]:
        matrix = matrix_of(table)
        published = {"pgd": "overfitting", "linear abs": "specific (autoencoders)"}
        published |= dict.fromkeys(("adversarial noise", "gaussian noise"), "specific")
        labels: dict[str, str] = {**matrix.transfer, **matrix.combinations}
        return [
            {"bias": bias, "label, published": published.get(bias, "-"), "label here": labels.get(bias, "-")}
            | means(own, {f"{scenario}, %": scenario for scenario in SCENARIOS}, 1)
            for bias, own in groups(table, "bias", matrix.models)
        ]

    def figures(self, table: Table) -> dict[str, Figure]:
        shown = {"gains": matrix_of(table).figure()}
        if len(table.where(bias=PLAIN)) > 2:
            shown["seeds"] = heatmap(seed_correlations(table), SCENARIOS, SCENARIOS, low=-1, high=1, signed=True)
        return shown


def matrix_of(table: Table) -> TransferMatrix:
    """Mean scores of the biases that a table has, with the label of each."""
    models = tuple(bias for bias in BIASES if table.where(bias=bias).rows)
    scores = np.array([[table.where(bias=bias).mean(scenario) for scenario in SCENARIOS] for bias in models])
    made_of = {name: parts for name, parts in MADE_OF.items() if {name, *parts} <= set(models)}
    own = {bias: scenario for bias, scenario in OWN.items() if bias in models}
    return TransferMatrix(models, SCENARIOS, scores, PLAIN, own, TOLERANCE, made_of)


def seed_correlations(table: Table) -> np.ndarray:
    """Rank correlations of scenarios over the seeds of the plain network."""
    return rank_correlations(table.where(bias=PLAIN), SCENARIOS, SCENARIOS)


def digits_of(setting: Setting) -> World:
    return Task(Digits(setting.digits, setting.size), "digit")


def classifier_of(bias: str, setting: Setting, seed: int, bench: Bench) -> Subject:
    """A classifier with a bias, trained."""
    world = digits_of(setting)
    if bias.startswith("linear abs"):
        part = Part(world, SPLIT, "train")
        numbers = np.arange(len(part))
        x, y = to_tensor(part.observe(numbers)), torch.from_numpy(target_values(part, numbers)[:, 0].astype(np.int64))
        if bias.endswith("noisy images"):
            draws = torch.Generator().manual_seed(seed)
            x = (x + 0.5 * torch.randn(x.shape, generator=draws)).clamp(0, 1)
        chosen = torch.from_numpy(np.random.default_rng(seed).permutation(len(x))[: max(100, 3 * len(x) // 4)])
        return as_subject(LinearABS.fit(x[chosen], y[chosen], min(8, len(x) // 40 + 1)), name=bias)
    objective, steps = objective_of(bias, setting)
    network: Model = BinarisedConfig(setting.net) if bias.startswith("binary input") else setting.net
    seen = Augmented(world, noise=0.3) if bias == "gaussian noise + pgd" else world
    return as_subject(load_model(bench.train(_config(seen, objective, network, steps, setting, seed))), name=bias)


def objective_of(bias: str, setting: Setting) -> tuple[Objective, int]:
    """The objective of a bias, and its steps: those in which a generator learns alone come on top."""
    noise, lengthened = adversarial_noise(setting, replay=True)
    ascent = AdversarialTraining(steps=setting.ascent, step=0.5 / setting.ascent, ramp=setting.steps // 2)
    descent = AdversarialTraining("l2", THRESHOLDS["L2"], attack=DDN(max(2, 2 * setting.ascent), radius=0.5))
    several: dict[str, tuple[Objective, int]] = {
        "gaussian noise": (NoiseTraining(sd=(0.5,)), setting.steps),
        "adversarial noise": (noise, lengthened),
        "binary input + adversarial noise": (noise, lengthened),
        "pgd": (ascent, setting.steps),
        "gaussian noise + pgd": (ascent, setting.steps),
        "ddn": (descent, setting.steps),
    }
    return several.get(bias, (Classify(), setting.steps))


def adversarial_noise(setting: Setting, replay: bool) -> tuple[AdversarialNoiseTraining, int]:
    """Training with adversarial noise, and its steps."""
    refresh = max(1, setting.steps // setting.rounds)
    objective = AdversarialNoiseTraining(
        NOISE_NORM, refresh=refresh, alone=refresh, replay=replay, generator_learning_rate=3e-3
    )
    return objective, 2 * refresh * setting.rounds


def attacks_on(bias: str) -> dict[str, Attack]:
    """One attack in each norm; those on binary input end at its threshold."""
    several: dict[str, Attack] = {"L2": DDN(40), "L∞": PGD(20, 0.15, random_start=False), "L0": Pointwise(1)}
    return {norm: Binarised(one) if bias.startswith("binary") else one for norm, one in several.items()}


def _config(
    world: World, objective: Objective, network: Model, steps: int, setting: Setting, seed: int
) -> RunConfig:  # fmt: skip
    training = TrainingConfig(steps, setting.batch, 2e-3, schedule="cosine", seed=seed, evaluate_every=0)
    return RunConfig(world, objective, network, training, SPLIT)


SEVERITY = 4
HELD_OUT = ("speckle", "gaussian-blur", "spatter")
"""Kinds outside of the benchmark; the fourth, saturate, changes colours, and digits have none."""


@studies.register("noise-transfer")
@dataclass(frozen=True)
class NoiseTransfer(Study):
    """Accuracy under each noise after training with each, and what the benchmark says about corruptions outside it."""

    title = "Noises that help against other noises"
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
        world = digits_of(setting)
        seen = world if noise == "nothing" else Corrupted(world, noise, SEVERITY, SUITE)
        config = _config(seen, Classify(), setting.net, setting.steps, setting, seed)
        network = load_model(bench.train(config))
        kinds = (*BENCHMARK, *HELD_OUT)
        found = withstand(network, Part(world, SPLIT), SUITE, kinds, (SEVERITY,), setting.shown, seed)
        accuracy = {kind: 100 * value for kind, value in found.by_kind.items()}
        return [{"trained": noise, "seed": seed, "clean": 100 * found.clean, **accuracy}]

    def claims(self, scale: Scale) -> list[Claim]:
        lead = "accuracy under the own noise minus that under the others (points)"
        return [
            helps_against_others(),
            Claim(
                "No noise helps against another as much as against itself",
                "section 2.3.3: networks can differ widely on noises that people cannot tell apart",
                of_each_noise("lead_of_own", 0, lead),
            ),
            Claim(
                "What a benchmark says holds for corruptions outside of it",
                UNPREDICTED,
                Correlates("benchmark", "held_out", 0.5, called="accuracy on the 15 kinds"),
                note="the held-out kinds are speckle, blur and spatter; saturate needs colours",
            ),
        ]

    def readings(self, table: Table) -> Table:
        return noise_readings(table, HELD_OUT)

    def beside(self, table: Table) -> list[Row]:
        return accuracies_by_noise(table, ("clean", *NOISES))

    def figures(self, table: Table) -> dict[str, Figure]:
        return {"noises": noise_figure(table)}


@studies.register("noise-replay")
@dataclass(frozen=True)
class NoiseReplay(Study):
    """Accuracy under corruptions after training with adversarial noise of many generators, with and without the noise
    of earlier ones."""

    title = "The memory of noise generators"
    source = "Rusak, Schott et al., A simple way to make neural networks robust (2020), table 3"
    question = "Does a classifier forget the noise of earlier generators unless it sees it again?"
    cost = {"smoke": "1 s", "laptop": "5 minutes", "paper": "days"}
    # With adversarial noise, of which half the steps train the generators.
    training_lengths = {scale: 2 * setting.steps for scale, setting in SETTINGS.items()}
    drawn = {"accuracies": Restarts("corrupted", "replay", called="accuracy under corruptions (%)")}

    def jobs(self, scale: Scale) -> Sequence[Job]:
        return [
            {"replay": replay, "seed": seed, "scale": scale}
            for seed in range(SETTINGS[scale].seeds)
            for replay in (True, False)
        ]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        setting, seed = SETTINGS[job["scale"]], job["seed"]
        world = digits_of(setting)
        objective, steps = adversarial_noise(setting, job["replay"])
        network = load_model(bench.train(_config(world, objective, setting.net, steps, setting, seed)))
        found = withstand(network, Part(world, SPLIT), "mnist-c", count=3 * setting.shown, seed=seed)
        return [
            {
                "replay": "with" if job["replay"] else "without", "seed": seed, "rounds": setting.rounds,
                "norm": NOISE_NORM, "clean": 100 * found.clean, "corrupted": 100 * found.mean,
                "no_noise": 100 * (found.without_noise or 0),
            }
        ]  # fmt: skip

    def claims(self, scale: Scale) -> list[Claim]:
        under = "accuracy under corruptions (%)"
        return [
            Claim(
                "Noise of earlier generators helps",
                "table 3, ImageNet-C: 51.1 % with, 48.9 % without",
                Beats("corrupted", {"replay": "with"}, {"replay": "without"}, 2.2, called=under, digits=1),
            ),
            Claim(
                "Noise of earlier generators does no harm",
                "table 3, ImageNet-C: 51.1 % with, 48.9 % without; on rendered digits a point less is within tolerance",
                AtLeast("gain", -1, called="gain by replay (points)", digits=1),
                weaker="no loss of more than a point, in place of a gain of 2.2",
            ),
        ]

    def readings(self, table: Table) -> Table:
        replayed, forgotten = (table.where(replay=replay) for replay in ("with", "without"))
        return Table(table.rows + leads(replayed, forgotten, "corrupted", "gain"))
