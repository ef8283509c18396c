"""The robustness of a classifier to corruptions: its accuracy under every kind and severity of a suite.

:func:`withstand` measures the accuracy of any subject that predicts classes on the same images, clean and corrupted;
with a reference subject it also computes errors relative to those of the reference (Spec 001b, sections A9.1 to A9.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from polariscope.examination.run_subjects import classifier_run, run_subject, shown_data
from polariscope.findings import Chart, Column, Findings, Part, Records, Value, Values
from polariscope.grammar import counted
from polariscope.lab.holding import hold
from polariscope.lab.store import Run, Store
from polariscope.measures.corruption_error import corruption_error, group_means, mean_without, top_accuracy
from polariscope.measures.measure import Undefined
from polariscope.report import corruption_figures
from polariscope.representation import BATCH
from polariscope.subjects import Subject
from polariscope.subjects.checks import unsteady_predictions
from polariscope.subjects.doors import subjects_and_world
from polariscope.subjects.labelled import ONE_PROBABILITY, RETURN_LOGIT, is_one_probability
from polariscope.tabular import Row, Tabular
from polariscope.training.progress import TellShare
from polariscope.worlds.given import Data
from polariscope.worlds.targets import Target, target_values, targets_of
from polariscope.worlds.views.corruptions import corrupt
from polariscope.worlds.views.corruptions.corruption import HELD_OUT
from polariscope.worlds.views.corruptions.suites import suite_named
from polariscope.worlds.world import World, sample_numbers, to_tensor

Floats = NDArray[np.float64]
TOP = 5
"""Top-k accuracy is computed for this k, if there are more classes."""
QUANTILE = 1.959964
"""Quantile of the standard normal for a 95 % interval."""
SCORES = ", and let it return a score for each class, not the number of the predicted one"
"""Advice for a classifier with one output, which is read as the score of the second of two classes."""
HINTS = {
    "scores": "The interval assumes one independent prediction per example, although each example is used under all "
    "corruptions: it is too wide rather than too narrow.",
    "kinds": "Accuracy at each severity, and over all severities.",
    "errors": " CE: errors in percent of the errors of the reference.",
    "groups": "Mean accuracy over the corruptions of a group.",
    "severity": "Severity 0 is the clean image.",
    "bars": "The dotted line is the accuracy on clean images.",
    "gallery": "One clean example and the same under every corruption, with the accuracy at that severity.",
}


@dataclass(frozen=True, eq=False)
class Accuracies:
    """Accuracies: on clean images, and ``(kinds, severities)`` on corrupted ones."""

    clean: float
    corrupted: Floats

    @property
    def over_severity(self) -> Floats:
        """``(kinds, 1 + severities)``: no corruption is severity 0."""
        return np.column_stack([np.full(len(self.corrupted), self.clean), self.corrupted])


@dataclass(frozen=True, eq=False, repr=False)
class Withstood(Tabular):
    """The accuracy of a classifier under corruptions, relative to a reference if given."""

    name: str
    suite: str
    groups: Mapping[str, str]
    """The corruptions in their order, with the group of each."""
    severities: tuple[int, ...]
    examples: int
    top1: Accuracies
    top5: Accuracies | None = None
    """None if there are at most 5 classes."""
    reference: str = ""
    reference_top1: Accuracies | None = None
    gallery: NDArray[Any] | None = field(default=None, repr=False)
    """One example as it is, and under each corruption at the severity ``shown``."""
    notes: tuple[str, ...] = ()
    chance: float | None = None
    """Share of the most frequent class among the examples: the accuracy of always predicting it."""

    @property
    def learned(self) -> bool:
        """Whether the accuracy on clean images exceeds chance by more than two standard errors."""
        return beats_chance(self.clean, self.chance, self.examples)

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(self.groups)

    @property
    def shown(self) -> int:
        """The severity of the gallery: the middle one."""
        return self.severities[len(self.severities) // 2]

    @property
    def clean(self) -> float:
        """Accuracy on clean images."""
        return self.top1.clean

    @cached_property
    def by_kind(self) -> dict[str, float]:
        """Accuracy under each corruption, over its severities."""
        return dict(zip(self.kinds, self.top1.corrupted.mean(1).tolist(), strict=True))

    @property
    def mean(self) -> float:
        """Accuracy over all corruptions and severities."""
        return float(self.top1.corrupted.mean())

    @property
    def without_noise(self) -> float | None:
        """Accuracy over the corruptions of the benchmark other than noise; None if there are none."""
        judged = {kind: accuracy for kind, accuracy in self.by_kind.items() if self.groups[kind] != HELD_OUT}
        try:
            return mean_without(judged, self.groups)
        except Undefined:
            return None

    @property
    def by_group(self) -> dict[str, float]:
        """Accuracy over each group of corruptions."""
        return group_means(self.by_kind, self.groups)

    @property
    def worst(self) -> str:
        """The corruption with the lowest accuracy."""
        return min(self.by_kind, key=lambda kind: self.by_kind[kind])

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the mean accuracy, with one prediction per example.

        Predictions for one example under several corruptions depend on each other. Their mean varies most if all are
        right or all are wrong, which is assumed here.
        """
        n, z2 = self.examples, QUANTILE**2
        centre = (self.mean + z2 / (2 * n)) / (1 + z2 / n)
        half = np.sqrt(z2 * (self.mean * (1 - self.mean) / n + z2 / (4 * n * n))) / (1 + z2 / n)
        return float(centre - half), float(centre + half)

    @cached_property
    def errors(self) -> dict[str, float]:
        """Corruption error of each corruption, in percent of the reference's; none if the reference makes no error."""
        if self.reference_top1 is None:
            return {}
        own, other = 1 - self.top1.corrupted, 1 - self.reference_top1.corrupted
        defined = other.sum(1) > 0
        if not defined.any():
            return {}
        names = [kind for kind, there in zip(self.kinds, defined, strict=True) if there]
        return dict(zip(names, corruption_error(own[defined], other[defined]).tolist(), strict=True))

    @property
    def mce(self) -> float | None:
        """Mean corruption error, relative to the reference."""
        return float(np.mean(list(self.errors.values()))) if self.errors else None

    @property
    def headline(self) -> str:
        beside = f"; its mCE is {self.mce:.1f} relative to {self.reference}" if self.mce is not None else ""
        least = f", worst under {self.worst} ({100 * self.by_kind[self.worst]:.1f} %)" if len(self.kinds) > 1 else ""
        text = (
            f"{self.name}: accuracy {100 * self.mean:.1f} % under {counted(len(self.kinds), 'corruption')} of "
            f"{self.suite}, {100 * self.clean:.1f} % without"
        )
        if not self.learned:
            chance = self.chance or 0.0
            why = (
                f"{counted(self.examples, 'example')} do not show that it has learned its task"
                if self.clean > chance
                else "this classifier has not learned its task"
            )
            return (
                f"{text}; always predicting the most frequent class has {100 * chance:.1f} %: {why}, so its "
                "robustness cannot be judged"
            )
        return f"{text}{least}{beside}"

    def records(self) -> list[Row]:
        """A row for each corruption."""
        rows: list[Row] = []
        for number, (kind, group) in enumerate(self.groups.items()):
            row: Row = {"kind": kind, "group": group}
            at = zip(self.severities, self.top1.corrupted[number].tolist(), strict=True)
            row |= {f"severity {severity}": accuracy for severity, accuracy in at}
            row["accuracy"] = self.by_kind[kind]
            if self.top5 is not None:
                row["top5"] = float(self.top5.corrupted[number].mean())
            if self.reference_top1 is not None:
                row["reference"] = float(self.reference_top1.corrupted[number].mean())
                row["ce"] = self.errors.get(kind)
            rows.append(row)
        return rows

    def findings(self, title: str = "", settings: Mapping[str, Any] | None = None) -> Findings:
        """The document."""
        parts: list[Part] = [
            Values(name="scores", title="Scores", hint=HINTS["scores"], entries=self._values()),
            Records(
                name="kinds",
                title="Corruptions",
                hint=HINTS["kinds"] + HINTS["errors"] * bool(self.errors),
                rows=self.records(),
                columns=self._columns(),
            ),
            Records(
                name="groups",
                title="Groups",
                hint=HINTS["groups"],
                rows=[{"group": group, "accuracy": accuracy} for group, accuracy in self.by_group.items()],
                columns=(Column("group", "Group"), Column("accuracy", "Accuracy", "percent")),
            ),
            self._chart(),
        ]
        if self.gallery is not None:
            parts.append(self._gallery(self.gallery))
        arrays = {"accuracy": self.top1.corrupted, "severities": np.asarray(self.severities)}
        if self.top5 is not None:
            arrays["top5"] = self.top5.corrupted
        if self.reference_top1 is not None:
            arrays["reference"] = self.reference_top1.corrupted
        facts = {"suite": self.suite, "examples": self.examples, "interval": self.interval, "worst": self.worst}
        return Findings(
            title or f"{self.name} under corruptions",
            f"{self.headline}.",
            parts,
            self._notes(),
            facts,
            arrays,
            settings=settings or {},
        )

    def _values(self) -> list[Value]:
        low, high = self.interval
        sentence = f"95 % interval {low:.3f} to {high:.3f}, of {self.examples} examples."
        entries = [
            Value("clean", "Accuracy, clean", self.clean, True, chance=self.chance, within_chance=not self.learned)
        ]
        entries += [Value("mean", "Accuracy, corrupted", self.mean, True, meaning=sentence)]
        if self.without_noise is not None:
            entries.append(
                Value("without_noise", "Accuracy, corrupted by anything but noise", self.without_noise, True)
            )
        if self.top5 is not None:
            entries.append(Value("clean_top5", f"Top-{TOP} accuracy, clean", self.top5.clean, True))
            mean = float(self.top5.corrupted.mean())
            entries.append(Value("mean_top5", f"Top-{TOP} accuracy, corrupted", mean, True))
        if self.reference_top1 is not None:
            problem = "" if self.errors else f"{self.reference} makes no errors under any corruption"
            sentence = f"Errors in percent of those of {self.reference}, which has 100."
            entries.append(Value("mce", "Mean corruption error (mCE)", self.mce, False, problem, sentence))
        return entries

    def _columns(self) -> list[Column]:
        several = [Column(f"severity {s}", f"Severity {s}", "percent", f"s{s}") for s in self.severities]
        return [
            Column("kind", "Corruption"),
            Column("group", "Group"),
            *(several if len(several) > 1 else []),
            Column("accuracy", "All" if len(several) > 1 else "Accuracy", "percent"),
            Column("top5", f"Top-{TOP}", "percent", aside=True),
            Column("reference", "Reference", "percent", aside=True),
            Column("ce", "CE", "%.1f"),
        ]

    def _chart(self) -> Chart:
        other = self.reference_top1
        beside = f" The reference is {self.reference}." if other is not None else ""
        if len(self.severities) == 1:
            dots = None if other is None else other.corrupted[:, 0]
            return Chart(
                name="accuracies",
                title="Accuracy under each corruption",
                hint=HINTS["bars"] + beside,
                draw=lambda: corruption_figures.corruption_bars(
                    self.top1.corrupted[:, 0], self.groups, self.clean, dots
                ),
            )
        own, others = self.top1.over_severity, None if other is None else other.over_severity
        return Chart(
            name="accuracies",
            title="Accuracy over severity",
            hint=HINTS["severity"] + beside,
            draw=lambda: corruption_figures.severity_panels(own, (0, *self.severities), self.groups, others),
        )

    def _gallery(self, images: NDArray[Any]) -> Chart:
        there = self.top1.corrupted[:, self.severities.index(self.shown)]
        names = [f"clean {self.clean:.0%}"] + [f"{k} {a:.0%}" for k, a in zip(self.kinds, there, strict=True)]
        return Chart(
            name="gallery",
            title=f"Corrupted images, severity {self.shown}" if len(self.severities) > 1 else "Corrupted images",
            hint=HINTS["gallery"],
            draw=lambda: corruption_figures.corruption_gallery(images, names),
        )

    def _notes(self) -> list[str]:
        notes = list(self.notes)
        free = [kind for kind in self.kinds if kind not in self.errors] if self.reference_top1 is not None else []
        if free and self.errors:
            notes.append(f"{self.reference} makes no error under {', '.join(free)}: no CE there, nor in the mCE.")
        return notes


def withstand(
    subject: Any,
    data: Data,
    suite: str = "imagenet-c",
    kinds: Sequence[str] = (),
    severities: Sequence[int] = (),
    count: int = 1000,
    seed: int = 0,
    reference: Any = None,
    tell: TellShare = lambda name, share: None,
) -> Withstood:
    """Measure the accuracy of a classifier under corruptions.

    ``subject`` is a subject, or anything that can be wrapped into one. It returns scores ``(n, classes)``, or for two
    classes one score, which is positive for the second class. ``data`` has images and one class to predict, as defined
    by ``Task``. ``kinds`` and ``severities`` default to those of the suite's benchmark. The ``seed`` draws ``count``
    examples and the corruptions; a ``reference`` sees the same images. ``tell`` is called with the finished share of
    the work.
    """
    groups, levels = _asked(suite, kinds, severities)
    subjects, world = subjects_and_world([one for one in (subject, reference) if one is not None], data)
    factor = class_target(world)
    if count < 1:
        raise ValueError(f"count is {count}: at least 1 example is needed")
    guesses = (1, TOP) if factor.size > TOP else (1,)
    cells = [(kind, severity) for kind in groups for severity in levels]
    index = sample_numbers(world, count, seed)
    right = np.zeros((len(subjects), len(guesses), 1 + len(cells)))
    notes: dict[str, None] = {}
    classes = np.zeros(factor.size, dtype=np.int64)
    single = [True] * len(subjects)

    def changed(images: NDArray[Any], kind: str, severity: int, numbers: NDArray[np.int64]) -> NDArray[Any]:
        return np.asarray(corrupt(images, kind, severity, suite=suite, seed=seed, index=numbers))

    with ExitStack() as rest:
        for one in subjects:
            rest.enter_context(one.at_rest())
        for start in range(0, len(index), BATCH):
            numbers = index[start : start + BATCH]
            images, positions = world.observe(numbers), target_values(world, numbers)[:, 0].astype(np.int64)
            classes += np.bincount(positions, minlength=factor.size)
            for one in subjects if not start else ():
                notes |= dict.fromkeys(unsteady_predictions(one, to_tensor(images)))
            for place in range(1 + len(cells)):
                shown = changed(images, *cells[place - 1], numbers) if place else images
                for who, one in enumerate(subjects):
                    scores = _scores(one, shown)
                    meant, note = outputs_of(factor, scores.shape[1], one.name)
                    notes |= {note: None} if note else {}
                    single[who] &= bool(place) or is_one_probability(torch.from_numpy(scores))
                    right[who, :, place] += [len(numbers) * top_accuracy(scores, meant[positions], k) for k in guesses]
                tell("corruptions", (start + len(numbers) * (place + 1) / (1 + len(cells))) / len(index))
        example = index[len(index) // 2 :][:1]
        picture, middle = world.observe(example), levels[len(levels) // 2]
        gallery = np.concatenate([picture, *(changed(picture, kind, middle, example) for kind in groups)])
    several = len(subjects) > 1
    notes |= {
        f"{f'{one.name}: ' if several else ''}{ONE_PROBABILITY} {RETURN_LOGIT}": None
        for one, only in zip(subjects, single, strict=True)
        if only
    }
    shares = np.rint(right) / len(index)
    accuracies = [[Accuracies(float(s[0]), s[1:].reshape(len(groups), len(levels))) for s in one] for one in shares]
    return Withstood(
        subjects[0].name,
        suite,
        groups,
        levels,
        len(index),
        accuracies[0][0],
        accuracies[0][1] if len(guesses) > 1 else None,
        subjects[1].name if reference is not None else "",
        accuracies[1][0] if reference is not None else None,
        gallery,
        (*subjects[0].notes, *notes, *getattr(world, "assumed", ())),
        float(classes.max() / len(index)),
    )


def withstand_run(
    run: Run | Path | str, data: Data | None = None, *, store: Store | Path | str = "runs", **asked: Any
) -> Withstood:
    """:func:`withstand` for the classifier of a run, on its held-out images or on other ``data``. The run records its
    accuracy on its own images."""
    run = classifier_run(run, store)
    result = withstand(run_subject(run), shown_data(run, data), **asked)
    if data is None:
        with hold(run.path):
            run.update(result={"accuracy": result.clean, "accuracy_corrupted": result.mean})
    return result


def _asked(suite: str, kinds: Sequence[str], severities: Sequence[int]) -> tuple[dict[str, str], tuple[int, ...]]:
    """The chosen corruptions with their groups, and the chosen severities; unknown ones are refused."""
    known = suite_named(suite)
    chosen = [known.at(kind, 1)[0] for kind in dict.fromkeys(kinds or known.benchmark)]
    levels = tuple(sorted(set(severities))) or tuple(range(1, min(kind.severities for kind in chosen) + 1))
    for level in levels:
        known.at(chosen[0].name, level)
    return {kind.name: kind.group for kind in chosen}, levels


def beats_chance(accuracy: float, chance: float | None, examples: int) -> bool:
    """Whether an accuracy exceeds that of always predicting the most frequent class by more than two standard errors.
    Examples of a single class, for which the latter is 1, cannot show that: they raise no doubt.

    >>> beats_chance(0.9, 0.5, 20), beats_chance(0.6, 0.5, 20), beats_chance(0.9, 1.0, 20)
    (True, False, True)
    """
    if chance is None or chance == 1:
        return True
    return accuracy > chance + 2 * float(np.sqrt(chance * (1 - chance) / examples))


def class_target(world: World) -> Target:
    if len(world.shape) != 3:
        raise ValueError(
            f"corruptions need images, but the observations have shape {tuple(world.shape)}: use a world of images"
        )
    targets = targets_of(world)
    if len(targets) != 1 or targets[0].kind != "class":
        raise ValueError(
            "corruptions need a world with one class to predict, and this world has "
            f"{', '.join(t.name if t.kind == 'class' else f'the {t.kind} {t.name}' for t in targets)}: use "
            "Task(world, factor) with one discrete factor"
        )
    return targets[0]


def _scores(subject: Subject, images: NDArray[Any]) -> Floats:
    """The scores of a classifier for images, ``(n, outputs)``."""
    return np.asarray(subject.scores(to_tensor(images)).detach().cpu().double())


def outputs_of(factor: Target, outputs: int, name: str) -> tuple[NDArray[np.int64], str]:
    """The network's output for each class of the data, and a note on it if there are two ways to match them."""
    meant = np.asarray(factor.values or range(factor.size))
    if outputs == factor.size:
        order = np.arange(outputs)
        if (meant != meant.round()).any() or (meant == order).all():
            return order, ""
        return order, (
            f"The classes {meant[0]:g} to {meant[-1]:g} of the data are matched to the {outputs} outputs of {name} in "
            "this order."
        )
    if outputs < factor.size or (meant != meant.round()).any() or meant.min() < 0 or meant.max() >= outputs:
        raise ValueError(
            f"{name} has {outputs} classes, and the data has {factor.size} ({factor.name}): use data with the "
            f"classes that it was trained on{SCORES if outputs == 2 < factor.size else ''}"
        )
    those = f"the {factor.size} classes of the data are" if factor.size > 1 else "the only class of the data is"
    note = f"{name} has {outputs} classes; {those} matched to its outputs by number."
    return meant.astype(np.int64), note
