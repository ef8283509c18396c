"""The robustness card of a classifier and its document.

Attacks give an upper bound on the distance of the nearest adversarial, certificates a lower bound; the card shows both
for every norm, image by image (Schott, Rauber, Bethge and Brendel 2019; Spec 001b, sections B6 and B7).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polariscope.examination.corruptions import Withstood, beats_chance
from polariscope.findings import Chart, Column, Findings, Part, Pictures, Records, Strip, Value, Values
from polariscope.grammar import counted
from polariscope.report import robustness_figures
from polariscope.robustness.attacks import Attacked, Norm, accuracy_at, least
from polariscope.robustness.attacks.attacked import median_distance
from polariscope.robustness.attacks.distal import Distal
from polariscope.robustness.attacks.geometry import NORM_NAMES
from polariscope.robustness.bounds import Bounds, Confrontation, NoBound
from polariscope.robustness.distances import QUARTERS, distribution, quarters
from polariscope.robustness.noise_distance import NoiseDistances
from polariscope.robustness.rejection import Rejection
from polariscope.robustness.suites import Budget
from polariscope.robustness.synthesis.explain import Explanation
from polariscope.robustness.trust import Warning

RESAMPLES = 1000
GALLERY = 6
"""Adversarials shown for each quarter."""
SIGMAS = (0.1, 0.2, 0.3, 0.5, 0.8)
"""Standard deviations of the Gaussian noise in the gallery of noise."""
FEWEST = 6
"""Images from which on the interval from the smallest to the largest distance has the median with 95 %."""
SHOWN = 4
"""Images in the gallery of noise."""


@dataclass(frozen=True, eq=False)
class NormCard:
    """The results for one norm."""

    norm: Norm
    thresholds: tuple[float, ...]
    results: Mapping[str, Attacked]
    """Results by the attack's name with its settings."""
    not_run: Mapping[str, str]
    """Attacks that could not be run, with the reason."""
    bounds: Bounds | NoBound | None = None
    """Lower bounds, or the reason why none is known; None if bounds were not computed."""
    needs: Mapping[str, str] = field(default_factory=dict)
    """What each attack uses of the classifier: gradient, score or decision."""
    confrontation: Confrontation | None = None
    """Bounds and nearest adversarials, computed again at ten times the budget if an adversarial is below its bound."""

    @property
    def lower(self) -> NDArray[np.float64] | None:
        """The lower bound of each image, if one is known."""
        return self.bounds.lower if isinstance(self.bounds, Bounds) else None

    @property
    def best(self) -> Attacked | None:
        """The nearest adversarials over all attacks."""
        return least(list(self.results.values())) if self.results else None

    @property
    def violations(self) -> int:
        """Images with an adversarial nearer than their lower bound; there are none if the bound is a certificate."""
        if self.confrontation is not None:
            return len(self.confrontation.violated)
        if not isinstance(self.bounds, Bounds) or self.best is None:
            return 0
        return len(Confrontation(self.bounds, self.best.distances).violated)


@dataclass(frozen=True, eq=False)
class LearnedDistances:
    """ε* by noise that new generators learned against the classifier: one number for each generator."""

    seeds: tuple[int, ...]
    norms: tuple[float, ...]
    """The norm at which each generator was trained: the most harmful of the tried norms."""
    medians: NDArray[np.float64]

    @property
    def mean(self) -> float:
        return float(self.medians.mean())

    @property
    def sd(self) -> float:
        return float(self.medians.std(ddof=1)) if np.isfinite(self.mean) else float("inf")


@dataclass(frozen=True, eq=False, repr=False)
class RobustnessCard:
    """How robust a classifier is, with the images it was measured on."""

    name: str
    examples: int
    clean: float
    budget: Budget
    norms: tuple[NormCard, ...]
    noise: tuple[NoiseDistances, ...] = ()
    learned: LearnedDistances | None = None
    corruptions: Withstood | None = None
    distal: Distal | None = None
    rejection: Rejection | None = None
    warnings: tuple[Warning, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Questions that were not answered, with the reason."""
    images: Tensor | None = None
    labels: NDArray[np.int64] | None = None
    predicted: Mapping[Norm, NDArray[np.int64]] = field(default_factory=dict)
    """The predicted class of the nearest adversarial of each image."""
    seed: int = 0
    notes: tuple[str, ...] = ()
    explanation: Explanation | None = None
    """Some of the images with their syntheses by each class, of a classifier by synthesis."""

    def of(self, norm: Norm) -> NormCard:
        """The part of one norm."""
        for card in self.norms:
            if card.norm == norm:
                return card
        raise ValueError(f"the norm {norm} was not measured: {', '.join(card.norm for card in self.norms)} were")

    @property
    def chance(self) -> float | None:
        """Share of the most frequent class among the images: the accuracy of always predicting it."""
        return None if self.labels is None else float(np.bincount(self.labels).max() / len(self.labels))

    @property
    def above_chance(self) -> bool:
        """Whether the accuracy without an attack exceeds chance by more than two standard errors."""
        return beats_chance(self.clean, self.chance, self.examples)

    @property
    def headline(self) -> str:
        after = []
        for card in self.norms:
            if card.best is not None:
                at = accuracy_at(card.best.distances, [card.thresholds[0]])[0]
                after.append(f"{at:.0%} within {NORM_NAMES[card.norm]} {card.thresholds[0]:g}")
        parts = [f"{self.name} classifies {self.clean:.0%} of {counted(self.examples, 'image')} correctly"]
        if after:
            parts.append(f"after attacks {', '.join(after)}")
        if self.corruptions is not None:
            parts.append(f"{self.corruptions.mean:.0%} under corruptions")
        doubt = f" {counted(len(self.warnings), 'warning')}: do not trust the attacks alone." if self.warnings else ""
        if not self.above_chance:
            doubt = f" This is not clearly above chance, so robustness cannot be judged.{doubt}"
        return f"{'; '.join(parts)}.{doubt}"

    def records(self, norm: Norm | None = None) -> list[dict[str, Any]]:
        """A row for each attack, and one for all attacks of a norm together; for one norm, or for all."""
        rows = []
        for card in self.norms:
            if norm is not None and card.norm != norm:
                continue
            several = {**card.results, **({"all attacks": card.best} if card.best is not None else {})}
            rows += [_row(card, name, result, self.seed) for name, result in several.items()]
            rows += [{"norm": NORM_NAMES[card.norm], "attack": name, "note": f"not run: {why}"}
                     for name, why in card.not_run.items()]  # fmt: skip
            rows += _bound_rows(card)
        return rows

    def findings(self, title: str = "", settings: Mapping[str, Any] | None = None) -> Findings:
        """The document."""
        parts: list[Part] = [Values(name="summary", title="Robustness", entries=self._values(), hint=SUMMARY)]
        if self.warnings:
            rows = [{"name": w.name, "evidence": w.evidence, "advice": w.advice} for w in self.warnings]
            columns = [Column("name", "Warning"), Column("evidence", "Evidence"), Column("advice", "What to do")]
            parts.append(Records(name="warnings", title="Can it be trusted?", rows=rows, columns=columns, hint=TRUST))
        if self.explanation is not None:
            parts += [replace(part, name=f"explanation_{part.name}") for part in self.explanation.findings().parts]
        parts += self._attack_parts()
        if self.distal is not None:
            parts.append(_distal_part(self.distal))
        parts += self._noise_parts()
        if self.rejection is not None:
            parts += [replace(part, name=f"rejection_{part.name}") for part in self.rejection.findings().parts]
        if self.corruptions is not None:
            about = self.corruptions.findings()
            parts += [_renamed(part) for part in about.parts]
        rows = [{"question": name, "reason": why} for name, why in self.skipped.items()]
        for card in self.norms:
            rows += [{"question": f"{NORM_NAMES[card.norm]}: {name}", "reason": why}
                     for name, why in card.not_run.items()]  # fmt: skip
        if rows:
            columns = [Column("question", "Question"), Column("reason", "Reason")]
            parts.append(Records(name="not_run", title="Not run", rows=rows, columns=columns))
        facts = {"examples": self.examples, "budget": self.budget, "clean": self.clean}
        notes = [*self.notes, *self._doubts()]
        for card in self.norms:
            notes += card.best.notes if card.best is not None else ()
            if card.confrontation is not None and len(card.confrontation.violated):
                notes.append(card.confrontation.headline)
        return Findings(
            title or f"Robustness of {self.name}", self.headline, parts, list(dict.fromkeys(notes)), facts,
            self._arrays(), settings=settings or {},
        )  # fmt: skip

    def _doubts(self) -> list[str]:
        """Notes on an accuracy or a noise distance that says little."""
        doubts = []
        if not self.above_chance:
            doubts.append(
                f"Accuracy without attack is {self.clean:.0%} of {counted(self.examples, 'image')}, and always "
                f"predicting the most frequent class has {self.chance:.0%}: take more images (--count), check that the "
                "classes of the data have the order of the classifier's outputs, or train it further."
            )
        gaussian = next((one.median for one in self.noise if one.noise == "gaussian"), np.nan)
        if self.learned is not None and self.learned.mean > gaussian:
            doubts.append(
                "Noise that was learned against the classifier misleads it less than Gaussian noise does: its "
                "generators were trained too little for ε* of learned noise to count (--budget full trains them "
                "longer)."
            )
        return doubts

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """Images, adversarials and distances for further use."""
        arrays: dict[str, NDArray[Any]] = {}
        if self.images is not None:
            arrays["images"] = self.images.numpy()
        if self.labels is not None:
            arrays["labels"] = self.labels
        for card in self.norms:
            if card.best is not None:
                arrays[f"{card.norm}_adversarials"] = card.best.adversarials.numpy()
                arrays[f"{card.norm}_distances"] = card.best.distances
            if card.lower is not None:
                arrays[f"{card.norm}_bounds"] = card.lower
        for one in self.noise:
            arrays[f"{one.noise}_noise_distances"] = one.distances
        if self.distal is not None:
            arrays["distal_images"] = self.distal.images.numpy()
        return arrays

    def _values(self) -> list[Value]:
        meaning = f"Of {counted(self.examples, 'image')}."
        entries = [
            Value("clean", "Accuracy without attack", self.clean, True, meaning=meaning, chance=self.chance,
                  within_chance=not self.above_chance)
        ]  # fmt: skip
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
            for number, threshold in enumerate(card.thresholds):
                key = f"{card.norm}_accuracy" + (f"_at_{threshold:g}" if number else "")
                at = float(accuracy_at(distances, [threshold])[0])
                if card.norm == "l0":
                    fewer = float((distances >= threshold).mean())
                    entries.append(Value(key, f"Accuracy with up to {threshold:g} pixels changed", at, True))
                    title = f"Accuracy with fewer than {threshold:g} pixels changed"
                    entries.append(Value(f"{key}_fewer", title, fewer, True))
                else:
                    entries.append(Value(key, f"Accuracy within {name} {threshold:g}", at, True))
        return entries

    def _attack_parts(self) -> list[Part]:
        parts: list[Part] = []
        measured = [card for card in self.norms if card.best is not None or card.lower is not None]
        curves = [(NORM_NAMES[card.norm], self._upper(card), card.lower, _kind(card), card.thresholds)
                  for card in measured]  # fmt: skip
        attacked = [card.best is not None for card in measured]
        if curves:
            parts.append(
                Chart(
                    name="sandwich",
                    title="Accuracy over the size of the perturbation",
                    hint=SANDWICH,
                    draw=lambda: robustness_figures.sandwich(curves, attacked),
                )
            )
        for card in self.norms:
            if rows := [row for row in self.records(card.norm) if "queries" in row]:
                name = NORM_NAMES[card.norm]
                columns = _columns(card.thresholds)
                parts.append(
                    Records(name=f"attacks_{card.norm}", title=f"Attacks, {name}", rows=rows, columns=columns,
                            hint=ATTACKS)
                )  # fmt: skip
        if bounds := [row for card in self.norms for row in _bound_rows(card)]:
            parts.append(Records(name="bounds", title="Lower bounds", rows=bounds, columns=BOUND_COLUMNS, hint=BOUNDS))
        shown = [card for card in self.norms if card.best is not None]
        if shown:
            bars = []
            for card in shown:
                assert card.best is not None
                d = distribution(card.best.distances)
                bars.append((NORM_NAMES[card.norm], d.edges, d.counts, d.zero, d.infinite))
            parts.append(
                Chart(
                    name="distances",
                    title="Distances of the nearest adversarials",
                    hint=DISTANCES,
                    draw=lambda: robustness_figures.distance_bars(bars),
                )
            )
        if self.images is not None and self.images.ndim == 4:
            for card in shown:
                parts += [part for part in (quantile_gallery(self, card.norm),) if part is not None]
            parts += [part for part in (minimal_adversarials([self], card.norm) for card in shown[:1]) if part]
        return parts

    def _upper(self, card: NormCard) -> NDArray[np.float64]:
        """Distances of the nearest adversarials; without attacks, infinity for correctly classified images."""
        if card.best is not None:
            return card.best.distances
        assert card.lower is not None
        wrong = np.arange(len(card.lower)) >= round(self.clean * len(card.lower))
        return np.where(wrong, 0.0, np.inf)

    def _noise_parts(self) -> list[Part]:
        if not self.noise:
            return []
        entries = [
            Value(
                f"{one.noise}_median",
                f"Median L2 norm of misleading {one.noise} noise (ε*)",
                one.median if np.isfinite(one.median) else None,
                True,
                "" if np.isfinite(one.median) else "more than half of the images are classified correctly at any norm",
                interval=interval if np.isfinite(interval := median_interval(one.distances, self.seed)).all() else None,
            )
            for one in self.noise
            if one.noise != "learned"
        ]
        if self.learned is not None:
            finite = np.isfinite(self.learned.mean)
            spread = f"mean of {len(self.learned.seeds)} new generators, sd {self.learned.sd:.2g}"
            entries.append(
                Value(
                    "learned_median",
                    "Median L2 norm of noise learned against the classifier (ε*)",
                    self.learned.mean if finite else None,
                    True,
                    "" if finite else "a generator's noise reaches less than half of the images",
                    spread.capitalize() + "." if finite else "",
                )
            )
        parts: list[Part] = [Values(name="noise", title="Noise", entries=entries, hint=NOISE)]
        if self.images is not None and self.images.ndim == 4:
            parts.append(noise_gallery(self.images, self.noise, seed=self.seed))
        return parts


def _renamed(part: Part) -> Part:
    """A part of the document of corruptions, renamed so that it does not clash with the attacked images."""
    part = replace(part, name=f"corruptions_{part.name}")
    if isinstance(part, Values):
        part = replace(
            part,
            title="Accuracy under corruptions",
            entries=[replace(entry, name=f"corruptions_{entry.name}") for entry in part.entries],
        )
    return part


def _distal_part(made: Distal) -> Pictures:
    """Distal images side by side."""
    note = ", ".join(f"{label}: {p:.0%}" for label, p in zip(made.labels, made.confidences, strict=True))
    strip = Strip(_bytes(made.images[None]), "class: confidence", note=note, says="an image of each class from noise")
    return Pictures(name="distal_images", title="Images that began as noise", hint=DISTAL, strips=[strip])


def quantile_gallery(card: RobustnessCard, norm: Norm, seed: int | None = None) -> Pictures | None:
    """Images, their nearest adversarials and the changes, a strip for each quarter of the distances. Images of a
    quarter are drawn by the seed."""
    best = card.of(norm).best
    assert best is not None
    assert card.images is not None
    group = quarters(best.distances)
    rng = np.random.default_rng(card.seed if seed is None else seed)
    strips = []
    for quarter, name in enumerate(QUARTERS):
        members = np.flatnonzero(group == quarter)
        if not len(members):
            continue
        picked = rng.choice(members, min(GALLERY, len(members)), replace=False)
        picked = picked[np.argsort(best.distances[picked], kind="stable")]
        images, adversarials = card.images[picked].cpu(), best.adversarials[picked].cpu().to(card.images.dtype)
        change = 0.5 + (adversarials - images) / 2
        d = best.distances[picked]
        strips.append(
            Strip(
                _bytes(torch.stack([images, adversarials, change])),
                name,
                note=f"distances {d.min():.3g} to {d.max():.3g}",
                says=f"images of the quarter {name}, their nearest adversarials, and the changes",
            )
        )
    if not strips:
        return None
    return Pictures(
        name=f"adversarials_{norm}",
        title=f"Nearest adversarials, {NORM_NAMES[norm]}",
        hint="A strip for each quarter of the distances, the nearest first. From above: images, their nearest "
        "adversarials, and the changes (grey: none).",
        strips=strips,
    )


def minimal_adversarials(cards: Sequence[RobustnessCard], norm: Norm, seed: int | None = None) -> Pictures | None:
    """One image of each class, drawn by the seed, above its nearest adversarial for each classifier. All classifiers
    must have been attacked on the same images."""
    first = cards[0]
    if first.images is None or first.labels is None:
        raise ValueError("the card has no images to show")
    for card in cards[1:]:
        if card.images is None or not torch.equal(card.images, first.images):
            raise ValueError(f"{card.name} and {first.name} were attacked on different images: give both the same seed")
    bests = [card.of(norm).best for card in cards]
    if any(best is None for best in bests):
        return None
    rng = np.random.default_rng(first.seed if seed is None else seed)
    known = np.all([np.isfinite(best.distances) & (best.distances > 0) for best in bests if best is not None], axis=0)
    picked = []
    for label in np.unique(first.labels):
        members = np.flatnonzero((first.labels == label) & known)
        picked += [int(rng.choice(members))] if len(members) else []
    if not picked:
        return None
    strips = [Strip(_bytes(first.images[picked].cpu()[None]), "image", note=_classes(first.labels[picked]),
                    says="one image of each class")]  # fmt: skip
    for card, best in zip(cards, bests, strict=True):
        assert best is not None
        decided = card.predicted.get(norm)
        words = [] if decided is None else [_classes(decided[picked])]
        words.append("distances " + ", ".join(f"{d:.3g}" for d in best.distances[picked]))
        strips.append(
            Strip(
                _bytes(best.adversarials[picked].cpu()[None]),
                card.name,
                note="; ".join(words),
                says=f"the nearest adversarial of each of these images for {card.name}",
            )
        )
    return Pictures(
        name="minimal_adversarials",
        title=f"One image of each class and its nearest adversarial, {NORM_NAMES[norm]}",
        hint="The numbers below are classes: of the images, and those that the classifier predicts.",
        strips=strips,
    )


def noise_gallery(
    images: Tensor, noise: Sequence[NoiseDistances], sigmas: Sequence[float] = SIGMAS, seed: int = 0
) -> Pictures:
    """Images under Gaussian noise of rising strength, and with the smallest noise of each kind that misleads the
    classifier, with the L2 norms of the noise after clipping."""
    shown = images[:SHOWN].cpu()
    generator = torch.Generator().manual_seed(seed)
    direction = torch.randn(shown.shape, generator=generator, dtype=torch.float32).to(shown.dtype)
    strips = [Strip(_bytes(shown[None]), "clean", says="images without noise")]
    for sigma in sigmas:
        noisy = (shown + sigma * direction).clamp(0, 1)
        strips.append(_noisy_strip(f"Gaussian, σ {sigma:g}", shown, noisy))
    for one in noise:
        if one.noisy is not None:
            strips.append(_noisy_strip(f"{one.noise}, at ε*", shown, one.noisy[:SHOWN].to(shown.dtype)))
    return Pictures(
        name="noise_gallery",
        title="Images with noise",
        hint="Gaussian noise of rising standard deviation, then the smallest noise of each kind that misleads the "
        "classifier, with L2 norms after clipping.",
        strips=strips,
    )


def _noisy_strip(label: str, clean: Tensor, noisy: Tensor) -> Strip:
    norms = (noisy - clean).flatten(1).double().norm(dim=1)
    note = "norms " + ", ".join(f"{float(norm):.3g}" for norm in norms)
    return Strip(_bytes(noisy[None]), label, note=note, says=f"the same images, {label}")


def median_interval(distances: NDArray[np.float64], seed: int = 0) -> tuple[float, float]:
    """A 95 % bootstrap interval of the median distance. Fewer than 6 images have none: even the smallest and the
    largest of their distances enclose the median too rarely, so the interval is from 0 to infinity.

    >>> median_interval(np.full(9, 2.0)), median_interval(np.full(5, 2.0))
    ((2.0, 2.0), (0.0, inf))
    """
    if len(distances) < FEWEST:
        return 0.0, float("inf")
    rng = np.random.default_rng(seed)
    medians = np.median(rng.choice(distances, (RESAMPLES, len(distances))), axis=1)
    low, high = np.quantile(medians, [0.025, 0.975], method="nearest")
    return float(low), float(high)


def _bytes(images: Tensor) -> NDArray[np.uint8]:
    return (images.clamp(0, 1) * 255).round().to(torch.uint8).numpy()


def _classes(labels: NDArray[np.int64]) -> str:
    return " ".join(str(int(label)) for label in labels)


def _kind(card: NormCard) -> str:
    return card.bounds.kind if isinstance(card.bounds, Bounds) else ""


def _columns(thresholds: Sequence[float]) -> list[Column]:
    return [
        Column("attack", "Attack"),
        Column("needs", "Needs", aside=True),
        Column("median", "Median distance", "%.4g", "median"),
        Column("interval", "95 % interval", aside=True),
        *(Column(f"accuracy {one:g}", f"Accuracy at {one:g}", "percent", f"at {one:g}") for one in thresholds),
        Column("success", "Found", "percent", "found", aside=True),
        Column("queries", "Queries per image", "%.0f", "queries"),
        Column("note", "Note"),
    ]


def _row(card: NormCard, name: str, result: Attacked, seed: int) -> dict[str, Any]:
    median = median_distance(result.distances)
    low, high = median_interval(result.distances, seed)
    at = accuracy_at(result.distances, card.thresholds)
    return {
        "norm": NORM_NAMES[card.norm],
        "attack": name,
        "needs": card.needs.get(name, ""),
        "median": median if np.isfinite(median) else None,
        "interval": f"{_short(low)}–{_short(high)}",
        **{f"accuracy {one:g}": float(share) for one, share in zip(card.thresholds, at, strict=True)},
        "success": float(np.isfinite(result.distances).mean()),
        "queries": float(result.queries.mean()),
        "gradients": float(result.gradients.mean()),
        "note": "" if np.isfinite(median) else "infinite: none for half of the images",
    }


def _short(value: float) -> str:
    return f"{value:.3g}" if np.isfinite(value) else "∞"


def _bound_rows(card: NormCard) -> list[dict[str, Any]]:
    """The lower bound, that of binarised space if there is one, or the reason why no bound is known."""
    norm = {"norm": NORM_NAMES[card.norm]}
    if isinstance(card.bounds, NoBound):
        return [norm | {"bound": "no bound is known", "note": card.bounds.reason}]
    if not isinstance(card.bounds, Bounds):
        return []
    rows = []
    for bound in (card.bounds, card.bounds.binarised):
        if bound is None:
            continue
        inner = bound.space == "binarised"
        sd = bound.sd_over_seeds()
        notes = [] if sd is None else [f"mean {bound.mean:.4g}, sd over {len(bound.seeds)} seeds {sd:.2g}"]
        violations = None if inner or card.best is None else card.violations
        again = card.confrontation
        if violations and again is not None and again.again is not None:
            notes.append(f"at ten times the budget {counted(len(again.violated_again), 'violation')}")
        rows.append(
            {
                **norm,
                "bound": f"{bound.title}{' in binarised space' if inner else ''}",
                "method": bound.method,
                "median": bound.median if np.isfinite(bound.median) else None,
                "accuracy": ", ".join(f"{bound.accuracy(one):.0%} at {one:g}" for one in card.thresholds),
                "violations": violations,
                "note": "; ".join(notes),
            }
        )
    return rows


BOUND_COLUMNS = (
    Column("norm", "Norm"),
    Column("bound", "Bound"),
    Column("method", "Method", aside=True),
    Column("median", "Median", "%.4g"),
    Column("accuracy", "Guaranteed accuracy"),
    Column("violations", "Attacks below it", "%d", "below it"),
    Column("note", "Note"),
)
BOUNDS = (
    "No perturbation of an image below its bound misleads the classifier: for a certificate this is proven; for an "
    "estimated bound it holds if the search for codes found the best ones. An attack below a certificate is a bug."
)
SUMMARY = "Distances are between images with pixels from 0 to 1; misclassified images have distance 0."
TRUST = (
    "Signs that attacks fail although the classifier is not robust. With any of them, low accuracy after attacks is "
    "reliable, high accuracy is not."
)
ATTACKS = (
    "Each row is an attack with its settings; the last row has the nearest adversarials of all attacks. Queries are "
    "per image, with or without a gradient. Accuracy is the share of images without an adversarial up to that size."
)
SANDWICH = (
    "Upper line: accuracy after all attacks, or without attack if none ran; lower line: accuracy that a lower bound "
    "guarantees. The true accuracy lies in the shaded gap; without a bound the gap reaches down to 0. Dotted: the "
    "thresholds of the tables."
)
DISTANCES = "Grey bars: images that are misclassified without an attack, and images for which no adversarial was found."
DISTAL = "Noise that was changed until the classifier is confident of a class, with its confidence."
NOISE = "The smallest norm along one random direction of noise for each image; larger is more robust."
