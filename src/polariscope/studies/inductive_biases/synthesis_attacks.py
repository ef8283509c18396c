"""Classifiers of digits under attack in three norms: analysis by synthesis beside networks and neighbours (table 1).

Claims are judged on several trainings with drawn digits. At overnight scale one training on MNIST is attacked: its
figures are shown beside the published ones, with intervals over images. The environment variable POLARISCOPE_DATA names
the folder that has ``mnist/``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from polariscope.examination.robustness import median_interval
from polariscope.lab.store import Run
from polariscope.nets.binarised import BinarisedConfig
from polariscope.nets.elu_cnn import EluCNN
from polariscope.nets.model import Model
from polariscope.nets.nearest_neighbour import NearestNeighbourConfig
from polariscope.nets.predictors import DigitNet
from polariscope.objectives.memorise import Memorise
from polariscope.objectives.objective import Objective
from polariscope.objectives.predict import Classify
from polariscope.robustness.adversarial_training import AdversarialTraining
from polariscope.robustness.attacks import Attack, Attacked, Norm, accuracy_at, least
from polariscope.robustness.attacks.binarised import Binarised
from polariscope.robustness.attacks.boundary import Boundary
from polariscope.robustness.attacks.deepfool import DeepFool
from polariscope.robustness.attacks.estimated import Estimated
from polariscope.robustness.attacks.fast_gradient import FastGradient
from polariscope.robustness.attacks.gaussian_noise import GaussianNoise
from polariscope.robustness.attacks.latent_descent import LatentDescent
from polariscope.robustness.attacks.mim import MIM
from polariscope.robustness.attacks.pgd import PGD
from polariscope.robustness.attacks.pointwise import Pointwise
from polariscope.robustness.attacks.salt_and_pepper import SaltAndPepper
from polariscope.robustness.attacks.transfer import Transfer
from polariscope.robustness.attacks.verified import Verified
from polariscope.robustness.bounds import Bounds, BoundSettings
from polariscope.robustness.bounds import bounds as lower_bounds
from polariscope.robustness.kept import KeptAttacks, weights_hash
from polariscope.robustness.synthesis import (
    ABSClassifier,
    ABSConfig,
    GradedSoftmax,
    LinearABS,
    Search,
    calibrate,
    settle,
)
from polariscope.robustness.synthesis.trained import abs_config, trained_binary_abs
from polariscope.studies.criteria import All, AtLeast, AtMost, Beats
from polariscope.studies.kit import Curve, Panels, Restarts, in_order
from polariscope.studies.published import Published, published
from polariscope.studies.real_digits import mnist_folder
from polariscope.studies.rows import plus_minus
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.subjects import Subject, as_subject
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.run import load_model
from polariscope.worlds.given import as_world
from polariscope.worlds.renderers.digits import Digits
from polariscope.worlds.splits import RandomSplit, Split, usual_split
from polariscope.worlds.splits import SplitPart as Part
from polariscope.worlds.targets import Task, target_values
from polariscope.worlds.views.corruptions import SUITES, corrupt
from polariscope.worlds.world import World, sample_numbers, to_tensor

PRINTED = {
    "cnn": "CNN",
    "binary cnn": "Binary CNN",
    "nearest neighbour": "NN",
    "pgd-trained": "Madry",
    "binary abs": "Binary ABS",
    "abs": "ABS",
}
"""Classifiers, with their names in the published table."""
CLASSIFIERS = (*PRINTED, "linear abs")
LATENTS = {f"abs, {size} latents": size for size in (2, 8, 32)}
"""Sizes of the code that are compared."""
BY_SYNTHESIS = ("abs", "binary abs", "linear abs", *LATENTS)
NORMS: dict[str, Norm] = {"L2": "l2", "L∞": "linf", "L0": "l0"}
SUITE = "mnist-c"
SHOWN_CORRUPTED = ("cnn", "binary abs", "abs", "linear abs")
"""Classifiers that are shown corrupted images, with how sure they are."""
UNSURE = 0.2
"""A confidence up to which a classifier as good as abstains."""
HELD_BACK = 500
"""Training images by which confidences are calibrated, at most."""
IMAGE_SIDE = 28


@dataclass(frozen=True)
class Source:
    """Digits, and how long classifiers of them are trained and attacked."""

    images: int
    """Held-out images that are attacked."""
    estimated: int
    """Of these, images of which gradients are estimated."""
    steps: int
    """Training steps of networks."""
    batch: int
    channels: tuple[int, int, int]
    madry: DigitNet
    ascent: tuple[int, float]
    """Steps of the attack in adversarial training, and their length."""
    memory: int
    """Examples of the nearest neighbour."""
    epochs: float
    anneal: float
    abs_batch: int
    search: Search
    boundary: int
    boundary_synthesis: int
    """Steps of the boundary attack on classifiers by synthesis; 0 leaves it out."""
    restarts: int
    """Of the pointwise attack."""
    iterations: int
    """Of attacks by gradient on classifiers by synthesis."""
    size: int = IMAGE_SIDE
    digits: int = 0
    """Drawn digits; 0 takes MNIST."""
    left_out: tuple[str, ...] = ()
    """Attacks that classifiers by synthesis are spared, as each of them takes minutes of inference."""
    descents: int = 300
    """Most steps of Latent Descent."""
    network_iterations: int = 40
    """Of attacks by gradient on all other classifiers."""


POINTWISE_L2 = ("L2 Pointwise",)
ITERATED = tuple(f"{norm} {name}" for norm in ("L2", "L∞") for name in ("DeepFool w/ GE", "BIM w/ GE", "MIM w/ GE"))
SLOW = (
    "L2 Boundary",
    "L2 Gaussian noise",
    "L2 FGM w/ GE",
    "L∞ FGSM w/ GE",
    "L2 BIM",
    "L∞ BIM",
    "L2 Transfer",
    "L∞ Transfer",
)
"""What takes most inferences: left out where several trainings are compared."""
DRAWN: dict[Scale, Source] = {
    "smoke": Source(
        images=2, estimated=1, steps=3, batch=20, channels=(2, 3, 4), madry=DigitNet((2, 4), 8), ascent=(2, 0.15),
        memory=60, epochs=1, anneal=0.5, abs_batch=20, search=Search(10, 2), boundary=5, boundary_synthesis=2,
        restarts=1, iterations=2, size=16, digits=100, left_out=(*POINTWISE_L2, *ITERATED, *SLOW), descents=3,
        network_iterations=2,
    ),
    "laptop": Source(
        images=10, estimated=5, steps=300, batch=100, channels=(12, 32, 64), madry=DigitNet((16, 32), 128),
        ascent=(7, 0.1), memory=2400, epochs=16, anneal=8, abs_batch=100, search=Search(1000, 30), boundary=300,
        boundary_synthesis=0, restarts=2, iterations=6, size=20, digits=3000,
        left_out=(*POINTWISE_L2, *ITERATED, *SLOW), descents=150,
    ),
    "paper": Source(
        images=100, estimated=100, steps=10_000, batch=100, channels=(20, 70, 256), madry=DigitNet(), ascent=(40, 0.01),
        memory=60_000, epochs=80, anneal=50, abs_batch=240, search=Search(), boundary=5000, boundary_synthesis=5000,
        restarts=10, iterations=40, digits=75_000,
    ),
}  # fmt: skip
MNIST: dict[Scale, Source | None] = {
    "smoke": None,
    "laptop": None,
    "overnight": Source(
        images=100, estimated=10, steps=3000, batch=100, channels=(20, 70, 256), madry=DigitNet((16, 32), 128),
        ascent=(40, 0.01), memory=60_000, epochs=50, anneal=40, abs_batch=240, search=Search(), boundary=2000,
        boundary_synthesis=100, restarts=10, iterations=10, left_out=(*POINTWISE_L2, *ITERATED),
    ),
    "paper": Source(
        images=100, estimated=10, steps=12_000, batch=100, channels=(20, 70, 256), madry=DigitNet(), ascent=(40, 0.01),
        memory=60_000, epochs=80, anneal=50, abs_batch=240, search=Search(), boundary=5000, boundary_synthesis=1000,
        restarts=10, iterations=40, left_out=ITERATED,
    ),
}  # fmt: skip
SEEDS: dict[Scale, int] = {"smoke": 1, "laptop": 5, "overnight": 0, "paper": 5}
"""Trainings on drawn digits."""
TOO_DEAR = "it takes too many inferences at this scale"
TABLE = "inductive_biases/attacks-synthesis"
SHOWN = in_order(CLASSIFIERS) | {"drawn": "rendered digits", "mnist": "MNIST, one training"}
"""In the figure, in order."""


def published_median(row: Row) -> float | None:
    """Of the classifier and norm of a row, under all attacks."""
    cell = published(TABLE).rows[f"All {row['norm']}"].get(f"{PRINTED.get(row['classifier'])} median")
    return None if cell is None else cell.mean


def medians_within(norm: str) -> Restarts:
    """Distances of every training, with published ones as short lines."""
    return Restarts(
        "median", "classifier", where={"norm": norm, "part": "all"}, called="distance (lines: published)",
        within="data", line=published_median, names=SHOWN, title=f"median {norm} distance", tilt=60, from_zero=True,
    )  # fmt: skip


@studies.register("synthesis-attacks")
@dataclass(frozen=True)
class SynthesisAttacks(Study):
    """Distances of the nearest adversarials of digits in L2, L∞ and L0, by classifier and attack."""

    title = "Classifiers by synthesis under attack"
    source = (
        "Schott, Rauber, Bethge and Brendel, Towards the first adversarially robust neural network model on MNIST "
        "(2019), table 1, sections 4 to 7; Schott, thesis (2022), sections 2.4 and 3.1.1"
    )
    question = "Does explaining an image by each class make a classifier robust in every norm?"
    cost = {"smoke": "6 s", "laptop": "45 minutes", "overnight": "about 6 core hours", "paper": "days"}
    scales = ("smoke", "laptop", "overnight", "paper")
    drawn = {"medians": Panels(tuple(map(medians_within, NORMS)), width=2.6, height=3.2)}

    def jobs(self, scale: Scale) -> Sequence[Job]:
        several: list[Job] = []
        real = (
            [("mnist", 0)] if MNIST[scale] is not None and (scale == "overnight" or mnist_folder() is not None) else []
        )
        for data, seed in [*(("drawn", seed) for seed in range(SEEDS[scale])), *real]:
            named = {"data": data, "seed": seed, "scale": scale}
            pairs = [(classifier, norm) for classifier in CLASSIFIERS for norm in NORMS]
            pairs += [(classifier, "corruptions") for classifier in SHOWN_CORRUPTED]
            if scale == "smoke":
                pairs = [("binary cnn", "L∞"), ("linear abs", "L2"), ("binary abs", "L0"), ("abs", "corruptions")]
            several += [{"classifier": classifier, "norm": norm, **named} for classifier, norm in pairs]
        return several

    def run(self, job: Job, bench: Bench) -> list[Row]:
        stand = Stand(job["data"], job["scale"], job["seed"], bench)
        row: Row = {key: job[key] for key in ("classifier", "data", "seed")}
        classifier = stand.classifier(job["classifier"])
        if job["norm"] == "corruptions":
            return [row | about for about in stand.under_corruptions(classifier)]
        return [
            row | {"norm": job["norm"], **about} for about in stand.attacked(job["classifier"], classifier, job["norm"])
        ]

    def claims(self, scale: Scale) -> list[Claim]:
        def under_all(classifier: str, norm: str) -> Row:
            return {"classifier": classifier, "norm": norm, "part": "all"}

        def shown(classifier: str, part: str) -> Row:
            return {"classifier": classifier, "part": part}

        def further(first: str, second: str, norm: str, by: float = 0.2) -> Beats:
            sides = under_all(first, norm), under_all(second, norm)
            return Beats("median", *sides, by, relative=True, called=f"median {norm} distance")

        def leads(leader: str, norm: str) -> AtLeast:
            called = f"median {norm} distance less the largest of the others"
            return AtLeast("lead", 0, where={"leader": leader}, called=called)

        within, under = "accuracy within 0.3 (%)", "accuracy under corruptions (%)"
        best = "L2 median of the best attack minus that of all"
        bound = {"norm": "L2", "part": "bound"}
        if scale == "overnight":
            return []  # one training
        return [
            Claim(
                "Analysis by synthesis classifies digits as well as networks do",
                "table 1: 99.0 % and 99.1 %; in the experiment on rendered digits at least 97 %",
                AtLeast("clean", 97, where=under_all("abs", "L2"), called="accuracy (%)", digits=1),
            ),
            Claim(
                "Misleading it takes larger L2 perturbations than misleading a network",
                "table 1: medians of 2.3 and 1.1; in the experiment on rendered digits by a third",
                further("abs", "cnn", "L2", 0.3),
            ),
            Claim(
                "Analysis by synthesis has the largest median L2 distance of the six classifiers",
                "table 1: 2.3; nearest neighbour 1.5, PGD-trained 1.4, Binary ABS 1.3, CNN 1.1, Binary CNN 0.9",
                leads("abs", "L2"),
            ),
            Claim(
                "Binary analysis by synthesis has the largest median L∞ distance",
                "table 1: 0.44; PGD-trained and Binary CNN 0.34, ABS 0.23, nearest neighbour 0.19, CNN 0.08",
                leads("binary abs", "L∞"),
            ),
            Claim(
                "Binary input alone makes a network robust in L∞",
                "table 1: 0.08 without, 0.34 with",
                further("binary cnn", "cnn", "L∞", 1),
            ),
            Claim(
                "Misleading classifiers by synthesis takes more changed pixels",
                "table 1: ABS 16.5 and Binary ABS 21.5 against 9.0 for the CNN",
                All(further("abs", "cnn", "L0"), further("binary abs", "cnn", "L0")),
            ),
            Claim(
                "Training against L∞ attacks makes a network less robust in L0",
                "table 1: 4.0 pixels against 9.0 for the CNN",
                further("cnn", "pgd-trained", "L0"),
                note="the two networks have the published architectures, which differ",
            ),
            Claim(
                "Training against L∞ attacks helps against them",
                "table 1: 88 % against 0 % within 0.3",
                Beats("accuracy", under_all("pgd-trained", "L∞"), under_all("cnn", "L∞"), 30, called=within, digits=1),
            ),
            Claim(
                "No single attack is enough",
                "table 1: the least of all attacks is below each of them, such as 2.3 against 2.4 for ABS",
                AtLeast("lead_of_all", 0, where={"classifier": "abs"}, called=best, digits=3),
            ),
            Claim(
                "Bounds are below every adversarial, and far from 0",
                "section 7: a mean L2 bound of 0.690; in the experiment on rendered digits above 0.3",
                All(
                    AtMost("violations", 0, where=bound, called="adversarials below a bound"),
                    AtLeast("mean", 0.3, where=shown("abs", "bound"), called="mean L2 bound"),
                ),
            ),
            Claim(
                "Analysis by synthesis is unsure of corrupted images",
                "thesis, section 3.1.1: a confidence of at most 0.2 on almost all of them, and 0.9 on clean ones",
                Beats("confidence", shown("abs", "clean"), shown("abs", "corrupted"), 0.3, called="median confidence"),
            ),
            Claim(
                "It classifies corrupted digits better than a network",
                "thesis, section 3.1.1: by about 10 points, in a comparison of its own; others found the opposite",
                Beats("accuracy", shown("abs", "corrupted"), shown("cnn", "corrupted"), 10, called=under, digits=1),
            ),
        ]

    def readings(self, table: Table) -> Table:
        """What the drawn digits say; of each classifier also how far all attacks together are below the best one, and
        how far the two classifiers by synthesis are ahead of the best of the others."""
        drawn = table.where(data="drawn")
        rows = [*drawn.rows, *_leads(drawn, "abs", "L2"), *_leads(drawn, "binary abs", "L∞")]
        attacks = drawn.where(norm="L2", part="attack", whole=True)
        for row in drawn.where(norm="L2", part="all").rows:
            named = {key: row[key] for key in ("classifier", "seed")}
            medians = attacks.where(**named).column("median")
            if len(medians) and row["median"] is not None:
                rows.append(named | {"lead_of_all": float(medians.min()) - row["median"]})
        return Table(rows)

    def beside(self, table: Table) -> list[Row]:
        here = {"mnist": "MNIST here, one training", "drawn": "rendered digits here"}
        rows: list[Row] = []
        for attack, cells in published(TABLE).rows.items():
            known = {name: _published(cells, title) for name, title in PRINTED.items()}
            rows.append({"attack": attack, "digits": "MNIST, published", **known, "linear abs": "-"})
            for data, title in here.items():
                own = table.where(data=data, attack=attack)
                if own.rows:
                    measured = {name: _measured(own.where(classifier=name)) for name in CLASSIFIERS}
                    rows.append({"attack": attack, "digits": title, **measured})
        return rows


def _leads(table: Table, leader: str, norm: str) -> Iterator[Row]:
    """How far the median distance of one classifier is above the largest of the others, for each seed that has all."""
    for seed, own in table.where(norm=norm, part="all").by("seed"):
        known = [row for row in own.rows if row["classifier"] in PRINTED and row["median"] is not None]
        medians = {row["classifier"]: row["median"] for row in known}
        if medians.keys() == PRINTED.keys():
            yield {"leader": leader, "seed": seed, "lead": medians.pop(leader) - max(medians.values())}


@studies.register("code-sizes")
@dataclass(frozen=True)
class CodeSizes(Study):
    """L2 distances of adversarials of classifiers by synthesis, by the number of latent variables of each class."""

    title = "Classifiers by synthesis with codes of other sizes"
    source = "Schott, thesis (2022), section 2.4.4; Schott et al. (2019), appendix A.7"
    question = "How many latent variables of each class make a classifier by synthesis robust?"
    cost = {"smoke": "1 s", "laptop": "25 minutes", "paper": "days"}
    drawn = {
        "distances": Curve(
            "median", "latents", where={"part": "all"}, called="median L2 distance",
            along="latent variables of each class", from_zero=True,
        )
    }  # fmt: skip

    def jobs(self, scale: Scale) -> Sequence[Job]:
        names = [name for name in LATENTS if scale != "smoke" or LATENTS[name] == 2]
        return [{"classifier": name, "seed": seed, "scale": scale} for seed in range(SEEDS[scale]) for name in names]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        stand, name = Stand("drawn", job["scale"], job["seed"], bench), job["classifier"]
        row: Row = {"classifier": name, "latents": LATENTS[name], "seed": job["seed"]}
        return [row | about for about in stand.attacked(name, stand.classifier(name), "L2")]

    def claims(self, scale: Scale) -> list[Claim]:
        two, eight, many = ({"latents": size, "part": "all"} for size in LATENTS.values())
        return [
            Claim(
                "32 latent variables are less robust than 8",
                "section 2.4.4: less robust, without figures",
                Beats("median", eight, many, 0, called="median L2 distance"),
            ),
            Claim(
                "2 latent variables are too few to classify well",
                "appendix A.7: 8 were taken to reach an accuracy of 99 %",
                Beats("clean", eight, two, 1, called="accuracy (%)"),
            ),
        ]


@dataclass(frozen=True)
class Stand:
    """Digits with the classifiers that are trained on them, and the attacks that these have to bear."""

    data: str
    scale: Scale
    seed: int
    bench: Bench

    @property
    def source(self) -> Source:
        chosen = DRAWN[self.scale] if self.data == "drawn" else MNIST[self.scale]
        assert chosen is not None
        return chosen

    def world(self) -> tuple[World, Split]:
        if self.data == "drawn":
            return Task(Digits(self.source.digits, self.source.size), "digit"), RandomSplit(0.2)
        folder = mnist_folder()
        if folder is None:
            raise FileNotFoundError(
                "this study attacks classifiers of MNIST: set POLARISCOPE_DATA to the folder of mnist/"
            )
        world = as_world(str(folder))
        return world, usual_split(world)

    def examples(self, side: str, count: int) -> tuple[NDArray[np.int64], torch.Tensor, torch.Tensor]:
        """Images of a side of the split with their numbers and classes; the same ones for all classifiers."""
        part = Part(*self.world(), side)  # type: ignore[arg-type]
        numbers = sample_numbers(part, count, self.seed)
        labels = torch.from_numpy(target_values(part, numbers)[:, 0].astype(np.int64))
        return numbers, to_tensor(part.observe(numbers)), labels

    def run_of(self, name: str) -> Run:
        """The trained run of a classifier."""
        source, (world, split) = self.source, self.world()
        if name in ("abs", *LATENTS):
            model = ABSConfig(LATENTS.get(name, 8), search=source.search)
            config = abs_config(
                world, epochs=source.epochs, anneal=source.anneal, model=model, batch_size=source.abs_batch,
                seed=self.seed,
            )  # fmt: skip
            if isinstance(split, RandomSplit):
                config = replace(config, split=split)
            training = replace(config.training, evaluate_every=0, checkpoint_every=100)
            return self.bench.train(replace(config, training=training))
        if name == "binary abs":
            return trained_binary_abs(self.run_of("abs"), self.bench.store, self.bench.tell)
        steps, rate, batch = source.steps, 2e-3, source.batch
        network, objective = EluCNN(source.channels), Classify()
        settings: dict[str, tuple[Model, Objective]] = {
            "cnn": (network, objective),
            "binary cnn": (BinarisedConfig(network), objective),
            "nearest neighbour": (NearestNeighbourConfig(source.memory), Memorise()),
            "pgd-trained": (
                source.madry,
                AdversarialTraining(steps=source.ascent[0], step=source.ascent[1], ramp=steps),
            ),
        }
        if name == "nearest neighbour":
            steps = source.memory // batch
        if name == "pgd-trained":
            steps, batch = 2 * steps, batch // 2
        training = TrainingConfig(
            steps, batch, rate, schedule="cosine", seed=self.seed, evaluate_every=0, checkpoint_every=100
        )
        model_, objective_ = settings[name]
        return self.bench.train(RunConfig(world, objective_, model_, training, split))

    def classifier(self, name: str) -> Subject:
        """A trained classifier."""
        if name == "linear abs":
            _, x, y = self.examples("train", 10_000)
            held_back = min(HELD_BACK, len(x) // 10)
            network = LinearABS.fit(x[held_back:], y[held_back:])
            settle(network, x[:held_back], y[:held_back])
            return as_subject(network, name=name)
        return as_subject(load_model(self.run_of(name)), name=name)

    def attacked(self, name: str, subject: Subject, norm: str) -> list[Row]:
        """A row for each attack, one for all of them together, and one for the lower bound."""
        source = self.source
        numbers, x, y = self.examples("held-out", source.images)
        clean = self.clean(subject, 10 * source.images if name in BY_SYNTHESIS else 1000) if norm == "L2" else None
        kept = KeptAttacks(
            self.bench.store.root.parent / "attacks",
            {"data": self.data, "classifier": name, "weights": weights_hash(subject)},
        )
        rows: list[Row] = []
        results: list[Attacked] = []
        for title, attack in self.attacks(name, norm).items():
            if isinstance(attack, str):
                rows.append({"attack": title, "part": "attack", "note": f"not run: {attack}"})
                continue
            count = min(source.estimated if "GE" in title else source.images, len(x))
            done = kept.attacked(
                attack, subject, x[:count], y[:count], numbers[:count], norm=NORMS[norm], seed=self.seed
            )
            rows.append({"attack": title, "part": "attack", **self.row(done, norm)})
            results.append(done)
        everything = _nearest(results, len(x))
        rows.append({"attack": f"All {norm}", "part": "all", "clean": clean, **self.row(everything, norm)})
        if norm == "L2" and name not in LATENTS:
            rows += self.bound(subject, x, y, everything.distances)
        return rows

    def clean(self, subject: Subject, count: int) -> float:
        """Accuracy on held-out images, in percent."""
        _, x, y = self.examples("held-out", count)
        with subject.at_rest():
            return 100 * float((subject.scores(x).argmax(1) == y).double().mean())

    def row(self, result: Attacked, norm: str) -> Row:
        """A cell of the published table, with what it was measured on."""
        median = result.median
        low, high = median_interval(result.distances, self.seed)
        return {
            "median": median if math.isfinite(median) else None,
            "low": low if math.isfinite(low) else None,
            "high": high if math.isfinite(high) else None,
            "accuracy": 100 * float(accuracy_at(result.distances, [self.threshold(norm)])[0]),
            "threshold": self.threshold(norm),
            "images": len(result),
            "whole": len(result) == self.source.images,
            "queries": float(result.queries.mean()),
            "note": "" if math.isfinite(median) else "no adversarial for half of the images",
        }

    def threshold(self, norm: str) -> float:
        """The published one, for images of other sizes as a share of their side (L2) or of their pixels (L0)."""
        scale = self.source.size / IMAGE_SIDE
        return {"L2": round(1.5 * scale, 2), "L∞": 0.3, "L0": float(round(12 * scale**2))}[norm]

    def bound(self, subject: Subject, x: torch.Tensor, y: torch.Tensor, distances: NDArray[np.float64]) -> list[Row]:
        """The mean L2 bound of a classifier that has one, and how many adversarials are below it."""
        small = BoundSettings(seeds=1, candidates=min(1000, self.source.search.candidates), rounds=3, steps=20)
        known = lower_bounds(subject, x, y, "l2", small)
        if not isinstance(known, Bounds):
            return []
        below = int((distances < known.lower * (1 - 1e-6)).sum())
        return [
            {
                "attack": "L2 bound", "part": "bound", "mean": float(known.lower.mean()), "median": known.median,
                "violations": below, "images": len(x), "note": f"{known.kind}: {known.method}",
            }
        ]  # fmt: skip

    def under_corruptions(self, subject: Subject) -> list[Row]:
        """Accuracy and confidence on clean images, under each corruption, and over all of them."""
        _, some, labels = self.examples("train", min(HELD_BACK, 5 * self.source.images))
        numbers, x, y = self.examples("held-out", self.source.images)
        pixels = (x * 255).round().byte().numpy()
        with subject.at_rest():
            confident = self.confidences(subject, some, labels)
            shown = {"clean": pixels} | {
                kind: np.asarray(corrupt(pixels, kind, 1, suite=SUITE, seed=self.seed, index=numbers))
                for kind in SUITES[SUITE].benchmark
            }
            rows, sure, right = [], [], []
            for kind, images in shown.items():
                scores = subject.scores(to_tensor(images))
                most = confident.probabilities(scores / self.scale_of(subject)).amax(1)
                correct = (scores.argmax(1) == y).double()
                rows.append(
                    {"attack": kind, "part": "clean" if kind == "clean" else "corruption"} | _sure(correct, most)
                )
                if kind != "clean":
                    sure.append(most)
                    right.append(correct)
        return [*rows, {"attack": "all corruptions", "part": "corrupted"} | _sure(torch.cat(right), torch.cat(sure))]

    def confidences(self, subject: Subject, x: torch.Tensor, y: torch.Tensor) -> GradedSoftmax:
        """How scores become probabilities: a median confidence of 0.9 on clean images, for every classifier."""
        if isinstance(subject.module, ABSClassifier) and self.data == "mnist":
            return subject.module.softmax  # calibrated on images that were held back from training
        return calibrate(subject.scores(x) / self.scale_of(subject), y).softmax

    @staticmethod
    def scale_of(subject: Subject) -> float:
        return subject.module.pixels if isinstance(subject.module, ABSClassifier) else 1.0

    def attacks(self, name: str, norm: str) -> dict[str, Attack | str]:
        """The attacks of the published table on a classifier, or why one is not run."""
        source, searched = self.source, name in ("abs", "binary abs", *LATENTS)
        few = source.iterations if searched else source.network_iterations
        bim = PGD(few, 2.5 / few, random_start=False)
        mim = MIM(few, 2.5 / few)
        deepfool = DeepFool(min(few, 30)) if searched else DeepFool()
        estimated = partial(Estimated, method="nes", samples=20, sizes=(0.1,)) if searched else Estimated
        gradient_steps = PGD(10, 0.25, random_start=False)
        transfer: Attack | str = "it is the substitute"
        if name != "cnn":
            transfer = Transfer(str(self.run_of("cnn").path), gradient_steps)
        boundary_steps = source.boundary_synthesis if searched else source.boundary
        one_norm: dict[str, dict[str, Attack | str]] = {
            "L2": {
                "L2 Transfer": transfer,
                "L2 Gaussian noise": GaussianNoise(2 if searched else 10),
                "L2 Boundary": Boundary(boundary_steps),
                "L2 Pointwise": Pointwise(1),
                "L2 FGM": FastGradient(),
                "L2 FGM w/ GE": estimated(FastGradient()),
                "L2 DeepFool": deepfool,
                "L2 DeepFool w/ GE": Estimated(DeepFool(8)),
                "L2 BIM": bim,
                "L2 BIM w/ GE": Estimated(gradient_steps, sizes=(0.1,)),
                "L2 Latent Descent": LatentDescent(step=0.02, steps=source.descents),
            },
            "L∞": {
                "L∞ Transfer": transfer,
                "L∞ FGSM": FastGradient(),
                "L∞ FGSM w/ GE": estimated(FastGradient()),
                "L∞ DeepFool": deepfool,
                "L∞ DeepFool w/ GE": Estimated(DeepFool(8)),
                "L∞ BIM": bim,
                "L∞ BIM w/ GE": Estimated(gradient_steps, sizes=(0.1,)),
                "L∞ MIM": mim,
                "L∞ MIM w/ GE": Estimated(MIM(10, 0.25), sizes=(0.1,)),
            },
            "L0": {
                "L0 Salt&Pepper": SaltAndPepper(),
                "L0 Pointwise 10x": Pointwise(1 if searched else source.restarts),
            },
        }
        asked = dict(one_norm[norm])
        if name not in BY_SYNTHESIS:
            asked.pop("L2 Latent Descent", None)
        if name in LATENTS:
            return {title: self.fitted(asked[title], name) for title in FEW}
        if searched:
            asked |= {title: TOO_DEAR for title in source.left_out if title in asked}
        elif name != "linear abs":
            asked |= {title: TOO_DEAR for title in ITERATED if title in asked}
        return {title: self.fitted(attack, name) for title, attack in asked.items()}

    @staticmethod
    def fitted(attack: Attack | str, name: str) -> Attack | str:
        """An attack as a classifier needs it: verified by full inference, and brought to the threshold of a binary
        one."""
        if isinstance(attack, str):
            return attack
        if name in ("abs", "binary abs", *LATENTS) and not isinstance(attack, LatentDescent):
            attack = Verified(attack)
        return Binarised(attack) if name.startswith("binary") else attack


FEW = ("L2 DeepFool", "L2 Latent Descent")
"""The attacks by which sizes of the code are compared."""


def _nearest(results: Sequence[Attacked], count: int) -> Attacked:
    """The nearest adversarials of all attacks, of which some saw only the first images."""
    whole = [one for one in results if len(one) == count]
    nearest = least(whole)
    distances = nearest.distances.copy()
    queries = nearest.queries.copy()
    for one in results:
        if len(one) < count:
            distances[: len(one)] = np.minimum(distances[: len(one)], one.distances)
            queries[: len(one)] += one.queries
    return replace(nearest, distances=distances, queries=queries)


def _sure(correct: torch.Tensor, confidence: torch.Tensor) -> Row:
    return {
        "accuracy": 100 * float(correct.mean()),
        "confidence": float(confidence.median()),
        "unsure": 100 * float((confidence <= UNSURE).double().mean()),
        "images": len(correct),
    }


def _published(cells: dict[str, Published], title: str) -> str:
    if f"{title} median" not in cells:
        return "-"
    median, accuracy = (cells[f"{title} {what}"].mean for what in ("median", "accuracy"))
    return f"{'∞' if math.isinf(median) else f'{median:g}'} / {accuracy:.0f} %"


def _measured(own: Table) -> str:
    """Median and accuracy: of one training with the interval over images, of several with the spread over them."""
    if not own.rows:
        return "-"
    if all(row["note"].startswith("not run") for row in own.rows):
        return "not run"
    accuracy = f"{own.mean('accuracy'):.0f} %"
    fewer = "" if all(row["whole"] for row in own.rows) else f", {own.rows[0]['images']} images"
    if len(own.rows) > 1:
        medians = own.column("median")
        shown = plus_minus(medians, 2) if len(medians) == len(own.rows) else "∞ for some"
        return f"{shown} / {accuracy}{fewer}"
    (row,) = own.rows
    low, high = ("∞" if row[key] is None else f"{row[key]:.3g}" for key in ("low", "high"))
    shown = "∞" if row["median"] is None else f"{row['median']:.3g}"
    return f"{shown} [{low}, {high}] / {accuracy}{fewer}"
