"""How robust is this classifier? One card: corruptions, noise, attacks in three norms, lower bounds, and warnings where
the evaluation cannot be trusted.

Attacks bound the distance of the nearest adversarial from above, certificates from below; the card shows both for every
norm, image by image (Schott, Rauber, Bethge and Brendel 2019; Spec 001b, sections B6 and B7).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polariscope.examination.corruptions import Withstood, class_target, outputs_of, withstand
from polariscope.findings import Chart, Column, Findings, Part, Pictures, Records, Strip, Value, Values
from polariscope.grammar import counted
from polariscope.report import robustness_figures
from polariscope.robustness.attacks import Attack, Attacked, NoGradient, Norm, accuracy_at, joined, least
from polariscope.robustness.attacks.attacked import median_distance
from polariscope.robustness.bounds import Bounds, BoundSettings, Confrontation, NoBound
from polariscope.robustness.bounds import bounds as lower_bounds
from polariscope.robustness.kept import KeptAttacks
from polariscope.robustness.noise_distance import NoiseDistances, noise_distances
from polariscope.robustness.suites import Budget, attack_suite, attack_title
from polariscope.robustness.trust import Warning, compare_attacks, probe, zero_gradient_warnings
from polariscope.subjects import Subject
from polariscope.subjects.doors import subject_and_world
from polariscope.subjects.labelled import labelled_examples
from polariscope.worlds.given import Data
from polariscope.worlds.targets import target_values
from polariscope.worlds.world import World, sample_numbers, to_tensor

Question = Literal["corruptions", "noise", "attacks", "bounds"]
QUESTIONS: tuple[Question, ...] = ("corruptions", "noise", "attacks", "bounds")
THRESHOLDS: dict[Norm, float] = {"l2": 1.5, "linf": 0.3, "l0": 12.0}
"""Distances at which accuracy is told if none are given: those of the work, for digits of 28 x 28 pixels."""
NORM_NAMES: dict[Norm, str] = {"l2": "L2", "linf": "L∞", "l0": "L0"}
BLOCK = 50
"""Images that are attacked and kept together."""
RESAMPLES = 1000
GALLERY = 10
"""Adversarials that are shown, over the quantiles of their distance."""
Tell = Callable[[str, float], None]


@dataclass(frozen=True, eq=False)
class NormCard:
    """What is known about one norm."""

    norm: Norm
    threshold: float
    results: Mapping[str, Attacked]
    """By the attack's name with its settings."""
    not_run: Mapping[str, str]
    """Attacks that could not be run, with the reason."""
    bounds: Bounds | NoBound | None = None
    """Lower bounds, or why none is known; None if they were not asked for."""

    @property
    def lower(self) -> NDArray[np.float64] | None:
        """The lower bound of each image, where one is known."""
        return self.bounds.lower if isinstance(self.bounds, Bounds) else None

    @property
    def best(self) -> Attacked | None:
        """The nearest adversarials over all attacks."""
        return least(list(self.results.values())) if self.results else None

    @property
    def violations(self) -> int:
        """Images with an adversarial nearer than their lower bound: none, if the bound is a certificate."""
        if not isinstance(self.bounds, Bounds) or self.best is None:
            return 0
        return len(Confrontation(self.bounds, self.best.distances).violated)


@dataclass(frozen=True, eq=False, repr=False)
class RobustnessCard:
    """How robust a classifier is, with what it was measured on."""

    name: str
    examples: int
    clean: float
    budget: Budget
    norms: tuple[NormCard, ...]
    noise: tuple[NoiseDistances, ...] = ()
    corruptions: Withstood | None = None
    warnings: tuple[Warning, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Questions that were not asked or could not be answered, with the reason."""
    images: Tensor | None = None
    labels: NDArray[np.int64] | None = None
    seed: int = 0
    notes: tuple[str, ...] = ()

    def of(self, norm: Norm) -> NormCard:
        """The part of one norm."""
        for card in self.norms:
            if card.norm == norm:
                return card
        raise ValueError(f"the norm {norm} was not asked for: {', '.join(card.norm for card in self.norms)} were")

    @property
    def headline(self) -> str:
        told = []
        for card in self.norms:
            if card.best is not None:
                at = accuracy_at(card.best.distances, [card.threshold])[0]
                told.append(f"{at:.0%} within {NORM_NAMES[card.norm]} {card.threshold:g}")
        parts = [f"{self.name} classifies {self.clean:.0%} of {counted(self.examples, 'image')} right"]
        if told:
            parts.append(f"after attacks {', '.join(told)}")
        if self.corruptions is not None:
            parts.append(f"{self.corruptions.mean:.0%} under corruptions")
        doubt = f" {counted(len(self.warnings), 'warning')}: do not trust the attacks alone." if self.warnings else ""
        return f"{'; '.join(parts)}.{doubt}"

    def records(self) -> list[dict[str, Any]]:
        """A row for each attack, and one for all of a norm together."""
        rows = []
        for card in self.norms:
            several = {**card.results, **({"all attacks": card.best} if card.best is not None else {})}
            rows += [_row(card, name, result, self.seed) for name, result in several.items() if result is not None]
            rows += [{"norm": NORM_NAMES[card.norm], "attack": name, "note": f"not run: {why}"}
                     for name, why in card.not_run.items()]  # fmt: skip
            if isinstance(card.bounds, Bounds):
                rows.append(
                    {
                        "norm": NORM_NAMES[card.norm],
                        "attack": f"{card.bounds.title}: {card.bounds.method}",
                        "median": card.bounds.median,
                        "accuracy": card.bounds.accuracy(card.threshold),
                        "note": f"lower bound; {counted(card.violations, 'violation')} by attacks",
                    }
                )
            elif isinstance(card.bounds, NoBound):
                row = {"norm": NORM_NAMES[card.norm], "attack": "lower bound"}
                rows.append(row | {"note": f"no bound is known: {card.bounds.reason}"})
        return rows

    def findings(self, title: str = "", settings: Mapping[str, Any] | None = None) -> Findings:
        """The document."""
        parts: list[Part] = [Values(name="summary", title="Robustness", entries=self._values(), hint=SUMMARY)]
        if self.warnings:
            rows = [{"name": w.name, "evidence": w.evidence, "advice": w.advice} for w in self.warnings]
            columns = [Column("name", "Warning"), Column("evidence", "Evidence"), Column("advice", "What to do")]
            parts.append(Records(name="warnings", title="Can it be trusted?", rows=rows, columns=columns, hint=TRUST))
        parts += self._attack_parts()
        if self.noise:
            parts.append(self._noise_part())
        if self.corruptions is not None:
            about = self.corruptions.findings()
            parts += [replace(part, name=f"corruptions_{part.name}") for part in about.parts]
        if self.skipped:
            rows = [{"question": name, "reason": why} for name, why in self.skipped.items()]
            columns = [Column("question", "Question"), Column("reason", "Reason")]
            parts.append(Records(name="not_run", title="Not run", rows=rows, columns=columns))
        arrays = {}
        for card in self.norms:
            if card.best is not None:
                arrays[f"{card.norm}_adversarials"] = card.best.adversarials.numpy()
                arrays[f"{card.norm}_distances"] = card.best.distances
            if card.lower is not None:
                arrays[f"{card.norm}_bounds"] = card.lower
        facts = {"examples": self.examples, "budget": self.budget, "clean": self.clean}
        notes = list(self.notes) + [note for card in self.norms if card.best for note in card.best.notes]
        return Findings(
            title or f"Robustness of {self.name}", self.headline, parts, list(dict.fromkeys(notes)), facts, arrays,
            settings=settings or {},
        )  # fmt: skip

    def _values(self) -> list[Value]:
        entries = [Value("clean", "Accuracy without attack", self.clean, True, meaning=f"Of {self.examples} images.")]
        for card in self.norms:
            if card.best is None:
                continue
            name, distances = NORM_NAMES[card.norm], card.best.distances
            median, interval = median_distance(distances), median_interval(distances, self.seed)
            finite = np.isfinite(median)
            entries.append(
                Value(
                    f"{card.norm}_median",
                    f"Median {name} distance of the nearest adversarial",
                    median if finite else None,
                    True,
                    "" if finite else "attacks find no adversarial for half of the images",
                    "Half of the images are misclassified within it; an upper bound, as attacks may miss nearer ones.",
                    interval=interval if np.isfinite(interval).all() else None,
                )
            )
            at = float(accuracy_at(distances, [card.threshold])[0])
            entries.append(Value(f"{card.norm}_accuracy", f"Accuracy within {name} {card.threshold:g}", at, True))
        return entries

    def _attack_parts(self) -> list[Part]:
        rows = self.records()
        if not rows:
            return []
        columns = (
            Column("norm", "Norm"),
            Column("attack", "Attack"),
            Column("needs", "Needs", aside=True),
            Column("median", "Median distance", "%.4g", "median"),
            Column("interval", "95 % interval", aside=True),
            Column("accuracy", "Accuracy at the threshold", "percent", "accuracy"),
            Column("success", "Adversarials found", "percent", "found", aside=True),
            Column("queries", "Queries per image", "%.0f", "queries"),
            Column("note", "Note"),
        )
        parts: list[Part] = [Records(name="attacks", title="Attacks", rows=rows, columns=columns, hint=ATTACKS)]
        shown = [card for card in self.norms if card.best is not None]
        if shown:
            curves = [
                (
                    NORM_NAMES[card.norm],
                    card.best.distances if card.best is not None else np.zeros(0),
                    card.lower,
                    card.threshold,
                )
                for card in shown
            ]
            parts.append(
                Chart(
                    name="sandwich",
                    title="Accuracy over the size of the perturbation",
                    hint=SANDWICH,
                    draw=lambda: robustness_figures.sandwich(curves),
                )
            )
        if self.images is not None and self.images.ndim == 4:
            parts += [part for card in shown if (part := self._gallery(card)) is not None]
        return parts

    def _gallery(self, card: NormCard) -> Pictures | None:
        """Images above their nearest adversarials, from the nearest to the farthest."""
        assert self.images is not None
        assert card.best is not None
        reached = np.flatnonzero(np.isfinite(card.best.distances) & (card.best.distances > 0))
        if not len(reached):
            return None
        order = reached[np.argsort(card.best.distances[reached], kind="stable")]
        picked = order[np.linspace(0, len(order) - 1, min(GALLERY, len(order))).astype(int)]
        pair = torch.stack([self.images[picked].cpu(), card.best.adversarials[picked].cpu()])
        pixels = (pair.clamp(0, 1) * 255).round().to(torch.uint8).numpy()
        distances = ", ".join(f"{d:.3g}" for d in card.best.distances[picked])
        strip = Strip(
            pixels, NORM_NAMES[card.norm], note=f"distances {distances}", says="images and their adversarials"
        )
        return Pictures(
            name=f"adversarials_{card.norm}",
            title=f"Nearest adversarials, {NORM_NAMES[card.norm]}",
            hint="Images above, their nearest adversarials below, over the quantiles of the distance.",
            strips=[strip],
        )

    def _noise_part(self) -> Values:
        entries = [
            Value(
                f"{one.noise}_median",
                f"Median L2 norm of misleading {one.noise} noise (ε*)",
                one.median if np.isfinite(one.median) else None,
                True,
                "" if np.isfinite(one.median) else "more than half of the images are classified right at any norm",
            )
            for one in self.noise
        ]
        return Values(name="noise", title="Noise", entries=entries, hint=NOISE)


SUMMARY = "Distances are between images with pixels from 0 to 1; misclassified images have distance 0."
TRUST = (
    "Signs that attacks fail although the classifier is not robust. With any of them, low accuracy after attacks can "
    "be believed, high accuracy cannot."
)
ATTACKS = (
    "A row is an attack at its own settings, and the nearest of all of them. Queries are per image, with or without a "
    "gradient."
)
SANDWICH = (
    "Upper line: accuracy after all attacks; lower line: accuracy that a lower bound guarantees. What is true lies in "
    "the shaded gap. Without a bound the gap reaches down to 0."
)
NOISE = "The least norm along one random direction of noise for each image; larger is more robust."


def robustness(
    model: Any,
    data: Data | None = None,
    *,
    only: Sequence[Question] = QUESTIONS,
    norms: Sequence[Norm] = ("l2", "linf", "l0"),
    budget: Budget = "standard",
    thresholds: Mapping[Norm, float] | None = None,
    suite: str = "imagenet-c",
    count: int = 100,
    corrupted: int = 1000,
    seed: int = 0,
    folder: Path | None = None,
    identity: Mapping[str, Any] | None = None,
    tell: Tell = lambda name, share: None,
) -> RobustnessCard:
    """Measure how robust a classifier is.

    ``data`` has images with pixels from 0 to 1 and one class to predict. ``count`` images are attacked in each of the
    ``norms``, ``corrupted`` ones are shown under the corruptions of a ``suite``. Results of attacks are kept in
    ``folder``, under the ``identity`` of weights and data, so that an evaluation that was stopped goes on and a further
    norm does not repeat another. ``tell`` hears what is done, and what share of it.
    """
    unknown = [one for one in only if one not in QUESTIONS]
    if unknown:
        raise ValueError(f"there is no question {unknown[0]!r}: {', '.join(QUESTIONS)}")
    if count < 1:
        raise ValueError(f"count is {count}: at least 1 image is needed")
    subject, world = subject_and_world(model, data)
    index, x, y = _examples(subject, world, count, seed)
    skipped: dict[str, str] = {one: "not asked for" for one in QUESTIONS if one not in only}
    with subject.at_rest():
        clean = float((subject.scores(x).argmax(1) == y).double().mean())
    warnings: list[Warning] = []
    cards: list[NormCard] = []
    if "attacks" in only:
        warnings += probe(subject, x, y, seed=seed)
        with TemporaryDirectory() as spare:
            kept = KeptAttacks(folder or Path(spare), {"model": subject.name, **(identity or {})})
            for norm in norms:
                cards.append(_attacked(subject, x, y, index, norm, budget, seed, kept, thresholds, tell))
                warnings += compare_attacks(cards[-1].results)
                warnings += zero_gradient_warnings(cards[-1].results)
    if "bounds" in only:
        cards = cards or [NormCard(norm, _threshold(norm, thresholds), {}, {}) for norm in norms]
        for number, card in enumerate(cards):
            settings = BoundSettings(seeds=3 if budget == "quick" else 10)
            cards[number] = replace(card, bounds=lower_bounds(subject, x, y, card.norm, settings))
            tell("bounds", (number + 1) / len(cards))
    noise: list[NoiseDistances] = []
    if "noise" in only:
        for kind in ("gaussian", "uniform"):
            noise.append(noise_distances(subject, x, y, kind, seed))
            tell("noise", 0.5 * len(noise))
    corruptions = None
    if "corruptions" in only:
        try:
            corruptions = withstand(subject, world, suite, count=corrupted, seed=seed, tell=tell)
        except ValueError as error:
            skipped["corruptions"] = str(error)
    return RobustnessCard(
        subject.name, len(x), clean, budget, tuple(cards), tuple(noise), corruptions,
        tuple({warning.name: warning for warning in warnings}.values()), skipped, x.cpu(), y.cpu().numpy(), seed,
        subject.notes,
    )  # fmt: skip


def median_interval(distances: NDArray[np.float64], seed: int = 0) -> tuple[float, float]:
    """A 95 % bootstrap interval of the median distance.

    >>> median_interval(np.full(9, 2.0))
    (2.0, 2.0)
    """
    rng = np.random.default_rng(seed)
    medians = np.median(rng.choice(distances, (RESAMPLES, len(distances))), axis=1)
    low, high = np.quantile(medians, [0.025, 0.975], method="nearest")
    return float(low), float(high)


def _examples(subject: Subject, world: World, count: int, seed: int) -> tuple[NDArray[np.int64], Tensor, Tensor]:
    """Images and the numbers of the classifier's outputs that are right for them."""
    target = class_target(world)
    index = sample_numbers(world, count, seed)
    x = to_tensor(world.observe(index))
    with subject.at_rest():
        outputs = subject.scores(x[:1]).shape[1]
    meant, _ = outputs_of(target, outputs, subject.name)
    y = torch.from_numpy(meant[target_values(world, index)[:, 0].astype(np.int64)])
    x, y = labelled_examples(subject, x, y)
    return index, x, y


def _attacked(
    subject: Subject,
    x: Tensor,
    y: Tensor,
    index: NDArray[np.int64],
    norm: Norm,
    budget: Budget,
    seed: int,
    kept: KeptAttacks,
    thresholds: Mapping[Norm, float] | None,
    tell: Tell,
) -> NormCard:
    suite = attack_suite(norm, budget)
    results: dict[str, Attacked] = {}
    not_run: dict[str, str] = {}
    blocks = torch.arange(len(x)).split(BLOCK)
    for number, attack in enumerate(suite):
        name = attack_title(attack)
        try:
            share = partial(_share, tell, f"{norm} attacks", number, len(suite))
            results[name] = _blocks(attack, subject, x, y, index, norm, seed, kept, blocks, share)
        except NoGradient as error:
            not_run[name] = str(error)
        except ValueError as error:
            if not attack.refuses(subject_classes(subject, x)):
                raise
            not_run[name] = str(error)
    return NormCard(norm, _threshold(norm, thresholds), results, not_run)


def _share(tell: Tell, name: str, at: int, count: int, share: float) -> None:
    tell(name, (at + share) / count)


def _blocks(
    attack: Attack,
    subject: Subject,
    x: Tensor,
    y: Tensor,
    index: NDArray[np.int64],
    norm: Norm,
    seed: int,
    kept: KeptAttacks,
    blocks: Sequence[Tensor],
    tell: Callable[[float], None],
) -> Attacked:
    parts = []
    for done, rows in enumerate(blocks, 1):
        parts.append(kept.attacked(attack, subject, x[rows], y[rows], index[rows.numpy()], norm=norm, seed=seed))
        tell(done / len(blocks))
    return joined(parts)


def subject_classes(subject: Subject, x: Tensor) -> int:
    """How many classes a classifier scores."""
    with subject.at_rest():
        return int(subject.scores(x[:1]).shape[1])


def _threshold(norm: Norm, thresholds: Mapping[Norm, float] | None) -> float:
    return (thresholds or {}).get(norm, THRESHOLDS[norm])


def _row(card: NormCard, name: str, result: Attacked, seed: int) -> dict[str, Any]:
    median = median_distance(result.distances)
    low, high = median_interval(result.distances, seed)
    return {
        "norm": NORM_NAMES[card.norm],
        "attack": name,
        "median": median if np.isfinite(median) else None,
        "interval": f"{low:.3g} to {high:.3g}",
        "accuracy": float(accuracy_at(result.distances, [card.threshold])[0]),
        "success": float(np.isfinite(result.distances).mean()),
        "queries": float(result.queries.mean()),
        "note": "" if np.isfinite(median) else "no adversarial for half of the images: the median is infinite",
    }
