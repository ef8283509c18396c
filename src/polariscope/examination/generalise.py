"""Does a model generalise beyond its training data? Predictions of all factors on both sides of a split.

:func:`generalise` takes a model that was trained on the training part and predicts the factors of observations as
values from 0 to 1. It computes the model's R² on the held-out part, which factors cause the error, how far predictions
are pulled to the mean, and what simple predictors reach there (Schott et al. 2022; Spec 001a, sections 8 to 11).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polariscope.findings import Chart, Column, Findings, Part, Records, Value, Values
from polariscope.measures.dci import Probe, dci
from polariscope.measures.generalisation import (
    Attribution,
    attribute,
    mean_ratio,
    prediction_similarity,
    r_squared,
    reference_predictions,
)
from polariscope.measures.measure import Undefined
from polariscope.measures.similarity import SimilarityMatrix
from polariscope.report import figures, generalisation_figures
from polariscope.representation import BATCH, represent
from polariscope.subjects.checks import EXAMPLES, unsteady_predictions
from polariscope.subjects.doors import subject_and_world
from polariscope.subjects.subject import Subject
from polariscope.tabular import Tabular
from polariscope.worlds.given import Data
from polariscope.worlds.splits import Split, SplitPart, one_ood, splits
from polariscope.worlds.targets import Target, Targeted, Task, targets_of
from polariscope.worlds.view import inside
from polariscope.worlds.world import World, to_tensor

Floats = NDArray[np.float64]
LEARNED = 0.5
"""R² on the training part below which a model has hardly learned its task."""
FACTOR_COLUMNS = (
    Column("factor", "Factor"),
    Column("seen", "R², seen", "%.3f", "seen"),
    Column("test", "R², test", "%.3f", "test"),
    Column("new", "R² where it alone is new", "%.3f", "if new"),
    Column("others", "R² of the others there", "%.3f", "others"),
    Column("constant", "Constant", "%.3f", aside=True),
    Column("clip", "Clip", "%.3f"),
    Column("nearest", "Nearest", "%.3f", aside=True),
)
HINTS = {
    "scores": "R² = 1 − squared error / variance of the factor over all data, averaged over the factors.",
    "ranking": "The model beside three simple predictors that are given the true factors: the training mean; the "
    "exact value, clipped to the training range; the nearest training value.",
    "factors": "0 is not the chance level: compare with the constant predictor of the training mean. Negative scores "
    "count.",
    "ranges": "Line and band: median and quartiles of the predictions, for training examples and for held-out "
    "examples in which only this factor is new. Thin line: the truth. Shaded: values in no training example.",
    "ratio": "Held-out examples in which one factor is new. Left of 1: the prediction is nearer to the training mean "
    "than the truth.",
    "attribution": "Held-out examples by the factor that is new. A modular model still predicts the other factors "
    "well. Bars end at 0; the table has the negative scores.",
}


@dataclass(frozen=True, eq=False, repr=False)
class Generalisation(Tabular):
    """Predictions of one model on both parts of a split, and their scores."""

    name: str
    world: World
    split: Split
    factors: tuple[str, ...]
    """The predicted factors, by column."""
    index: NDArray[np.int64]
    """Numbers of the examples in the world."""
    seen: NDArray[np.bool_]
    """Whether each example is in the training part."""
    out: NDArray[np.int64]
    """The column of the one factor that is new in an example; -1 if no factor or several are new."""
    predictions: Floats
    targets: Floats
    variance: Floats
    """Variance of each factor over all data."""
    train_mean: Floats
    new_values: tuple[Floats, ...]
    """Values of each factor that no training example has."""
    steps: tuple[float, ...]
    """Distance between neighbouring values of each factor."""
    references: Mapping[str, Floats]
    """R² of each factor by simple predictors, on the whole held-out part."""
    doubts: tuple[str, ...] = ()
    """Why the predictions may be other ones in the next call."""

    @property
    def split_name(self) -> str:
        return splits.name_of(self.split) if splits.knows(self.split) else type(self.split).__name__

    @cached_property
    def scores(self) -> Floats:
        """R² of each factor on the held-out part."""
        return r_squared(self.predictions[~self.seen], self.targets[~self.seen], self.variance)

    @cached_property
    def seen_scores(self) -> Floats:
        """R² of each factor on the training part."""
        return r_squared(self.predictions[self.seen], self.targets[self.seen], self.variance)

    @property
    def score(self) -> float:
        """Mean R² over the factors on the held-out part: the benchmark's number."""
        return float(self.scores.mean())

    @cached_property
    def attribution(self) -> Attribution:
        """Error by the factor that causes it; undefined if no factor is new alone."""
        return attribute(self.predictions, self.targets, self.out, self.variance)

    @cached_property
    def ratios(self) -> dict[str, Floats]:
        """r of each new factor (see :func:`~polariscope.measures.generalisation.mean_ratio`); undefined for values at
        the mean."""
        records = {}
        for column in np.unique(self.out[self.out >= 0]):
            rows = self.out == column
            try:
                records[self.factors[column]] = mean_ratio(
                    self.predictions[rows], self.targets[rows], self.out[rows], self.train_mean
                )
            except Undefined:  # all of them are at the mean, as the middle one of three values is
                continue
        return records

    @property
    def leaderboard_row(self) -> dict[str, float]:
        """The split and its score in percent, as leaderboards print it."""
        return {self.split_name: 100 * self.score}

    @property
    def headline(self) -> str:
        """The scores and their meaning: a model that has not learned, or is no better than a constant, does not count
        as generalising."""
        clip, constant = (float(self.references[name].mean()) for name in ("clip", "constant"))
        seen = float(self.seen_scores.mean())
        held_out = f"R² {self.score:.3f} on the held-out part ({self.split_name})"
        text = f"{self.name}: {held_out}, {seen:.3f} on the training part; "
        if seen < LEARNED:
            return text + "it has hardly learned the training data, so this says little about generalisation"
        if self.score <= constant:
            return text + f"it does not generalise: always predicting the training mean would give {constant:.3f}"
        return text + f"the exact value clipped to the training range would give {clip:.3f}"

    def records(self) -> list[dict[str, Any]]:
        """A row for each factor."""
        new: dict[int, dict[str, float]] = {}
        if (self.out >= 0).any() and len(self.factors) > 1:
            attribution = self.attribution
            pairs = zip(attribution.new, attribution.out_of_distribution, attribution.in_distribution, strict=True)
            new = {column: {"new": float(own), "others": float(rest)} for column, own, rest in pairs}
        return [
            {"factor": name, "seen": float(self.seen_scores[k]), "test": float(self.scores[k])}
            | new.get(k, {"new": None, "others": None})
            | {reference: float(scores[k]) for reference, scores in self.references.items()}
            for k, name in enumerate(self.factors)
        ]

    def findings(self, settings: Mapping[str, Any] | None = None) -> Findings:
        """The document."""
        rows = [("model", self.name, self.score)]
        rows += [("reference", name, float(scores.mean())) for name, scores in self.references.items()]
        ranking = [{"kind": k, "name": n, "r2": s} for k, n, s in sorted(rows, key=lambda row: -row[2])]
        parts: list[Part] = [
            Values(name="scores", title="Scores", hint=HINTS["scores"], entries=self._values()),
            Records(
                name="ranking",
                title="Beside simple predictors",
                hint=HINTS["ranking"],
                rows=ranking,
                columns=(Column("name", "Predictor"), Column("kind", "Kind"), Column("r2", "Mean R²", "%.3f")),
            ),
            Records(
                name="factors", title="Factors", hint=HINTS["factors"], rows=self.records(), columns=FACTOR_COLUMNS
            ),
            *self._charts(),
        ]
        own = {"split": splits.describe(self.split)} if splits.knows(self.split) else {}
        return Findings(
            f"{self.name}, {self.split_name}",
            f"{self.headline.removeprefix(f'{self.name}: ')}.",  # the title has the name
            parts,
            self._notes(),
            {"examples": int((~self.seen).sum()), "leaderboard": self.leaderboard_row},
            {"predictions": self.predictions, "targets": self.targets, "index": self.index, "seen": self.seen,
             "out": self.out},
            settings=settings if settings is not None else own,
        )  # fmt: skip

    def _values(self) -> list[Value]:
        entries = [
            Value("test", "Mean R², test", self.score, True),
            Value("seen", "Mean R², seen", float(self.seen_scores.mean()), True),
        ]
        try:
            attribution = self.attribution
            pairs = (("new", "Mean R² of the one new factor", attribution.out_of_distribution),
                     ("others", "Mean R² of the others there", attribution.in_distribution))  # fmt: skip
            entries += [Value(name, title, float(scores.mean()), True) for name, title, scores in pairs]
        except Undefined as none:
            entries.append(Value("new", "Mean R² of the one new factor", None, True, problem=str(none)))
        if self.ratios:
            below = float((np.concatenate(list(self.ratios.values())) < 1).mean())
            entries.append(Value("drawn_to_mean", "Share of predictions pulled towards the mean (r < 1)", below, None))
        return entries

    def _charts(self) -> list[Chart]:
        # Where no factor is new alone, all held-out examples are shown.
        new = [self.out == k if (self.out >= 0).any() else ~self.seen for k in range(len(self.factors))]
        shown = np.stack(new, axis=1) | self.seen[:, None]
        charts = [
            Chart(
                name="ranges",
                title="Predictions over the range",
                hint=HINTS["ranges"],
                draw=lambda: generalisation_figures.prediction_ranges(
                    self.targets, self.predictions, shown, self.factors, self.new_values, self.steps
                ),
            )
        ]
        if self.ratios:
            charts.append(
                Chart(
                    name="ratio",
                    title="Regression to the mean",
                    hint=HINTS["ratio"],
                    draw=lambda: generalisation_figures.ratio_histogram(self.ratios),
                )
            )
        if (self.out >= 0).any() and len(self.factors) > 1:
            attribution = self.attribution
            names = [self.factors[column] for column in attribution.new]
            charts.append(
                Chart(
                    name="attribution",
                    title="Which factor causes the error",
                    hint=HINTS["attribution"],
                    draw=lambda: generalisation_figures.attribution_bars(
                        names, attribution.out_of_distribution, attribution.in_distribution
                    ),
                )
            )
        return charts

    def _notes(self) -> list[str]:
        clip = float(self.references["clip"].mean())
        notes = list(self.doubts)
        if self.score < clip:
            notes.append(f"Below the exact predictor clipped to the training range ({clip:.3f}).")
        at_the_mean = [
            self.factors[c] for c in np.unique(self.out[self.out >= 0]) if self.factors[c] not in self.ratios
        ]
        if at_the_mean:
            notes.append(
                f"New values of {', '.join(at_the_mean)} are at the training mean, where a constant is exact and r is "
                "not defined."
            )
        return notes


def generalise(
    model: Any, data: Data, split: Split, *, count: int = 5000, seed: int = 0, name: str = ""
) -> Generalisation:
    """Evaluate a trained model on the training and the held-out part of ``data``, which needs factors.

    The model is a subject or anything that can be wrapped into one, such as a run by its id. It returns ``(n,
    factors)``: every factor's position divided by its last position, the targets of ``Task(world, "all", "values")``,
    or the targets of the world's own task. ``count`` examples of each part are used.
    """
    subject, world = subject_and_world(model, data)
    asked, places = _asked(world)
    parts = split.parts(world)
    if not len(parts.held_out):
        raise ValueError("this split holds nothing out, so there is no data to test on")
    everything = _values_of(world, np.arange(len(world)))
    train, test = everything[parts.train], everything[parts.held_out]
    rng = np.random.default_rng(seed)
    seen, held_out = (np.sort(rng.permutation(part)[:count]) for part in (parts.train, parts.held_out))
    index = np.concatenate([seen, held_out])
    alone = np.full(len(world), -1)
    new = one_ood(world, split)
    alone[new.numbers] = places[new.factor]
    variance = everything.var(0)
    references = reference_predictions(train, test)
    return Generalisation(
        name or subject.name,
        world,
        split,
        tuple(factor.name for factor in asked),
        index,
        np.arange(len(index)) < len(seen),
        alone[index],
        _predictions(subject, world, index, asked, _classes(world, asked)),
        everything[index],
        variance,
        train.mean(0),
        tuple(np.setdiff1d(whole, own) for whole, own in zip(everything.T, train.T, strict=True)),
        tuple(float(np.diff(np.unique(whole)).min(initial=1.0)) for whole in everything.T),
        {reference: r_squared(values, test, variance) for reference, values in references.items()},
        tuple(unsteady_predictions(subject, to_tensor(world.observe(index[:EXAMPLES])))),
    )


@dataclass(frozen=True, eq=False, repr=False)
class Likeness(SimilarityMatrix):
    """How similar the predictions of models are for the new factor, to each other and to the truth."""

    @property
    def headline(self) -> str:
        between, truth = self.values[:-1, :-1], self.values[:-1, -1]
        similarities = [f"at least {np.nanmin(between):.2f} of each other"] if np.isfinite(between).any() else []
        similarities += [f"at most {np.nanmax(truth):.2f} of the truth"] if np.isfinite(truth).any() else []
        return f"similarity of the predictions of {len(self.rows) - 1} models: {', '.join(similarities) or 'undefined'}"

    def findings(self, settings: Mapping[str, Any] | None = None) -> Findings:
        return Findings(
            "Likeness of predictions",
            f"{self.headline}.",
            [
                Chart(
                    name="likeness",
                    title="Do models make similar errors?",
                    hint="Pearson's ρ of predictions of the one new factor, between different runs.",
                    draw=lambda: figures.heatmap(self.values, self.rows, self.columns, low=-1, high=1, signed=True),
                )
            ],
            self.notes,
            {"rows": self.rows, "values": [[None if np.isnan(v) else float(v) for v in row] for row in self.values]},
            settings=settings or {},
        )


def likeness(results: Mapping[str, Sequence[Generalisation]]) -> Likeness:
    """Whether models make similar predictions of the new factor: the runs (seeds) of each model, on the same
    examples."""
    runs = [result for several in results.values() for result in several]
    if not runs or any(not np.array_equal(runs[0].index, run.index) for run in runs):
        raise ValueError("models are compared on the same examples: give all of them the same world, split and seed")
    predictions = {name: [run.predictions for run in several] for name, several in results.items()}
    similarity = prediction_similarity(predictions, runs[0].targets, runs[0].out)
    return Likeness(similarity.values, similarity.rows, similarity.columns, similarity.notes)


def dci_on_training_part(
    models: Mapping[str, Any],
    world: World,
    split: Split,
    *,
    count: int = 10_000,
    seed: int = 0,
    probe: Probe = "boosting",
) -> dict[str, float]:
    """Disentanglement of models on the training part alone, the best first, to choose settings without held-out data
    (Spec 001a, section 9)."""
    part = SplitPart(world, split, "train")
    scores = {}
    for name, model in models.items():
        rep = represent(model, part, count=count, seed=seed)
        assert rep.factors is not None
        varying = (rep.factors != rep.factors[0]).any(0)
        scores[name] = dci(rep.mean, rep.factors[:, varying], probe, seed).disentanglement.value
    return dict(sorted(scores.items(), key=lambda pair: -pair[1]))


def _asked(world: World) -> tuple[tuple[Target, ...], NDArray[np.int64]]:
    """The factors to predict, and the position of each of the world's factors among them (-1 for a factor that is not
    predicted)."""
    asked = targets_of(world if inside(world, Targeted) else Task(world, "all", "values"))
    classes = [factor.name for factor in asked if factor.size]
    if classes:
        raise ValueError(
            f"generalisation needs values from 0 to 1, and the task of this world has classes of "
            f'{", ".join(classes)}: use Task(world, {",".join(classes)!r}, "values")'
        )
    names = [factor.name for factor in asked]
    places = [names.index(factor.name) if factor.name in names else -1 for factor in world.factors]
    return asked, np.array(places, dtype=np.int64)


def _values_of(world: World, index: NDArray[np.int64]) -> Floats:
    targeted = inside(world, Targeted, index)
    values = Task(world, "all", "values").target_of(index) if targeted is None else targeted[0].target_of(targeted[1])
    return np.asarray(values, dtype=np.float64)


def _classes(world: World, asked: tuple[Target, ...]) -> int:
    """Whether there are as many outputs as a model that predicts classes of these factors would have."""
    names = {factor.name for factor in asked}
    return sum(factor.size for factor in world.factors if factor.name in names)


def _predictions(
    subject: Subject, world: World, index: NDArray[np.int64], asked: tuple[Target, ...], classes: int
) -> Floats:
    batches = []
    with subject.at_rest():
        for start in range(0, len(index), BATCH):
            x = to_tensor(world.observe(index[start : start + BATCH]))
            batches.append(subject.predict(x).reshape(len(x), -1).double().cpu().numpy())
    predicted = np.concatenate(batches)
    if predicted.shape != (len(index), len(asked)):
        names = ", ".join(factor.name for factor in asked)
        hint = ": it predicts classes, but values are needed" if predicted.shape[1] == classes else ""
        raise ValueError(
            f"{subject.name} returns {predicted.shape[1]} numbers per observation, but the task has "
            f'{len(asked)} targets ({names}){hint}; train it to regress Task(world, "all", "values")'
        )
    return predicted
