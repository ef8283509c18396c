"""Digits classified under corruptions, after training with noise of several kinds (table 6 and figure 2 of the
appendix)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from polariscope.examination.corruptions import withstand
from polariscope.nets.predictors import DigitNet
from polariscope.objectives.objective import Objective
from polariscope.objectives.predict import Classify
from polariscope.robustness.adversarial_noise_training import AdversarialNoiseTraining
from polariscope.robustness.noise_distance import noise_distances
from polariscope.robustness.noise_training import SEVERITIES, NoiseTraining
from polariscope.studies.criteria import Alike, All, AtLeast, AtMost, Beats, Near, Peaks
from polariscope.studies.kit import Panels, Restarts, in_order
from polariscope.studies.published import published
from polariscope.studies.rows import means
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.run import load_model
from polariscope.training.start import warm
from polariscope.worlds.renderers.digits import Digits
from polariscope.worlds.splits import RandomSplit
from polariscope.worlds.splits import SplitPart as Part
from polariscope.worlds.targets import Task, target_values
from polariscope.worlds.views.corruptions import SUITES

SUITE = "mnist-c"
KEPT = 0.2
"""Share of the digits that is never trained on."""
MOST_HELPED, NOT_HELPED = ("fog", "brightness", "stripe"), "translate"
PRINTED = {"plain": "Vanilla (Madry arch.)", "gaussian 0.5": "GNT σ0.5", "adversarial": "ANT^1x1"}
REPLAYED, FORGETFUL = {"scheme": "adversarial"}, {"scheme": "adversarial, no replay"}
PLAIN, USUAL = {"scheme": "plain"}, {"scheme": "gaussian 0.5"}
UNDER = {"corrupted": "accuracy under corruptions (%)", "no_noise": "accuracy without noise corruptions (%)"}
FIRST = in_order(["plain"])


@dataclass(frozen=True)
class Setting:
    seeds: Sequence[int]
    digits: int
    shown: int
    """Held-out digits that are corrupted."""
    sds: tuple[float, ...]
    first: int
    """Steps of the plain training that all schemes begin with."""
    steps: int
    """Steps of each scheme after it, the plain one as well."""
    net: DigitNet
    batch: int = 100
    rounds: int = 3
    """Generators that adversarial noise is made by, one after the other."""


SETTINGS: dict[Scale, Setting] = {
    "smoke": Setting(range(1), 100, 10, (0.1, 0.5), 3, 6, DigitNet((4, 8), 16), batch=20),
    "laptop": Setting(range(5, 10), 5000, 1000, (0.1, 0.3, 0.5, 0.8), 400, 600, DigitNet((16, 32), 128)),
    "paper": Setting(
        range(5), 75_000, 10_000, (0.08, 0.12, 0.18, 0.26, 0.38, 0.5, 0.6, 0.7, 0.8), 20_000, 99_000, DigitNet(),
        batch=300, rounds=1500,
    ),
}  # fmt: skip
"""The laptop setting was chosen on seeds 0 to 4."""


@studies.register("noise-training")
@dataclass(frozen=True)
class NoiseTrainingStudy(Study):
    """Accuracy under the corruptions of MNIST-C, and norms of misleading noise, by the noise of the training."""

    title = "Training with noise against corruptions"
    source = (
        "Rusak, Schott et al., A simple way to make neural networks robust against diverse image corruptions (2020), "
        "table 3, appendix E, table 6 and figure 2"
    )
    question = "Does training with noise help against corruptions other than noise, and which noise is best?"
    cost = {"smoke": "3 s", "laptop": "half an hour", "paper": "weeks"}
    training_lengths = {scale: setting.steps for scale, setting in SETTINGS.items()}
    drawn = {
        "deviations": Panels(
            tuple(Restarts(column, "scheme", called=words, tilt=35, names=FIRST) for column, words in UNDER.items()),
            width=4.2,
            height=3.6,
        )
    }

    def jobs(self, scale: Scale) -> Sequence[Job]:
        return [
            {"scheme": scheme, "seed": seed, "scale": scale}
            for seed in SETTINGS[scale].seeds
            for scheme in schemes(SETTINGS[scale])
        ]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        setting = SETTINGS[job["scale"]]
        world, split = Task(Digits(setting.digits), "digit"), RandomSplit(KEPT)
        objective, steps = schemes(setting)[job["scheme"]]

        def training(steps: int) -> TrainingConfig:
            return TrainingConfig(steps, setting.batch, 1e-3, seed=job["seed"], evaluate_every=0)

        first = bench.train(RunConfig(world, Classify(), setting.net, training(setting.first), split))
        run = bench.train(RunConfig(world, objective, setting.net, training(steps), split, warm(first)))
        network, held_out = load_model(run), Part(world, split)
        under = withstand(network, held_out, SUITE, count=setting.shown)
        numbers = range(min(setting.shown, len(held_out), 500))
        x, y = held_out.observe(numbers), target_values(held_out, numbers)
        distances = {
            f"distance_{noise}": noise_distances(network, x, y, noise, seed=job["seed"]).median
            for noise in ("gaussian", "uniform")
        }
        row: Row = {"scheme": job["scheme"], "seed": job["seed"], "sd": sd_of(objective), **distances}
        row |= {"clean": 100 * under.clean, "corrupted": 100 * under.mean, "no_noise": 100 * (under.without_noise or 0)}
        return [row | {kind: 100 * accuracy for kind, accuracy in under.by_kind.items()}]

    def claims(self, scale: Scale) -> list[Claim]:
        under = UNDER["corrupted"]
        small = {"scheme": f"gaussian {min(SETTINGS[scale].sds):g}"}
        return [
            Claim(
                "Gaussian noise helps against corruptions, also against those other than noise",
                "table 6: 86.9 % of MNIST-C plain, 92.4 % with noise of 0.5",
                All(*(Beats(column, USUAL, PLAIN, by=5, called=words, digits=1) for column, words in UNDER.items())),
            ),
            Claim(
                "Too little noise does not help",
                "section 3.1: with too small a deviation, images hardly differ from clean ones",
                Beats("corrupted", USUAL, small, by=5, called=under, digits=1),
            ),
            Claim(
                "The best deviation is neither the smallest nor the largest",
                "figure 2 of the appendix: near 0.5",
                Peaks("corrupted", "sd", where={"single": True}, called=under, digits=1),
            ),
            Claim(
                "The best deviation is near 0.5",
                "figure 2 of the appendix: near 0.5",
                Near("best_sd", 0.5, by=0.25, called="deviation at which a seed is best"),
            ),
            Claim(
                "Fog, brightness and stripes gain most; geometric corruptions gain nothing",
                "table 6: fog 50 to 91, brightness 88 to 98, translate 57 to 56 (stripe 88 to 91)",
                All(
                    *(AtLeast(f"gain_{kind}", 10, where=USUAL, digits=1) for kind in MOST_HELPED),
                    AtMost(f"gain_{NOT_HELPED}", 5, where=USUAL, digits=1),
                ),
            ),
            Claim(
                "Clean images are classified as well as before",
                "table 6: 99.1 and 99.3 %",
                Alike("clean", USUAL, PLAIN, by=1, called="accuracy on clean images (%)", digits=1),
            ),
            Claim(
                "Networks trained with noise are more robust to noise",
                "table 2, ImageNet: 39.0 plain, 74.8 with noise of 0.5",
                Beats("distance_gaussian", USUAL, PLAIN, by=0.2, relative=True, called="norm of noise"),
            ),
            Claim(
                "Uniform noise takes the same norm as Gaussian noise",
                "table 2: 39.0 and 39.1, 74.8 and 74.9, 136.7 and 137.0",
                AtMost("noises_apart", 0.05, called="relative difference of the two norms", digits=3),
            ),
            Claim(
                "Adversarial noise does as well as the best Gaussian noise",
                "table 6: 92.4 % both",
                Alike("corrupted", REPLAYED, USUAL, by=2, called=under, digits=1),
            ),
            Claim(
                "Noise of earlier generators helps",
                "table 3, ImageNet-C: 51.1 % with, 48.9 % without",
                Beats("corrupted", REPLAYED, FORGETFUL, by=2.2, called=under, digits=1),
            ),
        ]

    def readings(self, table: Table) -> Table:
        """What each restart gains over the plain one of its seed, and how far the two norms of noise are apart."""
        plain = {row["seed"]: row for row in table.where(**PLAIN).rows}
        rows: list[Row] = []
        for row in table.rows:
            base = plain.get(row["seed"], {})
            gains = {f"gain_{kind}": row[kind] - base[kind] for kind in (*MOST_HELPED, NOT_HELPED) if base}
            apart = abs(row["distance_uniform"] / row["distance_gaussian"] - 1) if row["distance_gaussian"] else None
            rows.append(row | gains | {"noises_apart": apart, "single": row["sd"] is not None})
        for seed, own in Table(rows).where(single=True).by("seed"):
            rows.append({"seed": seed, "best_sd": max(own.rows, key=lambda row: float(row["corrupted"]))["sd"]})
        return Table(rows)

    def beside(self, table: Table) -> list[Row]:
        printed = published("inductive_biases/corruptions-mnist-kinds").rows
        columns = {"clean": "clean", "corrupted": "mean"} | {kind: kind for kind in SUITES[SUITE].benchmark}
        rows: list[Row] = []
        for name, title in columns.items():
            row: Row = {"corruption": title}
            for scheme, known in PRINTED.items():
                row[f"{scheme}, published %"] = printed[known][title].mean
                row |= means(table.where(scheme=scheme), {f"{scheme}, here %": name}, 1)
            rows.append(row)
        return rows


def schemes(setting: Setting) -> dict[str, tuple[Objective, int]]:
    """The objective of each scheme, and how many steps it takes.

    Steps in which a new generator learns alone are not steps of the classifier, which has as many as in every scheme.
    """
    refresh = max(1, setting.steps // setting.rounds)
    alone = refresh // 2
    lengthened = setting.rounds * (alone + refresh)

    def adversarial(norm: float, kernel: int = 1, replay: bool = True) -> AdversarialNoiseTraining:
        return AdversarialNoiseTraining(
            norm,
            kernel,  # type: ignore[arg-type]
            refresh=refresh,
            alone=alone,
            replay=replay,
            generator_learning_rate=1e-3,
        )

    return {
        "plain": (Classify(), setting.steps),
        **{f"gaussian {sd:g}": (NoiseTraining(sd=(sd,)), setting.steps) for sd in setting.sds},
        "gaussian, several": (NoiseTraining(sd=SEVERITIES), setting.steps),
        "speckle": (NoiseTraining("speckle"), setting.steps),
        "adversarial": (adversarial(10.0), lengthened),
        "adversarial, no replay": (adversarial(10.0, replay=False), lengthened),
        "adversarial 3x3": (adversarial(5.0, kernel=3), lengthened),
    }


def sd_of(objective: Objective) -> float | None:
    """The one standard deviation of Gaussian noise that a network was trained with; 0 without any."""
    if isinstance(objective, Classify):
        return 0.0
    single = isinstance(objective, NoiseTraining) and objective.noise == "gaussian" and len(objective.sd) == 1
    return objective.sd[0] if single else None  # type: ignore[attr-defined]
