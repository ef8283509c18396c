"""Do two models learn the same representation? Compare every layer of one with every layer of the other."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from polariscope.examination.run_subjects import run_subject, untrained_model
from polariscope.examination.titles import distinct_titles
from polariscope.findings import Chart, Findings, Value, Values
from polariscope.grammar import counted
from polariscope.lab.store import Run
from polariscope.measures.polarisation import variable_types
from polariscope.measures.similarity import SimilarityMatrix, similarity_matrix
from polariscope.report import figures
from polariscope.representation import represent
from polariscope.subjects import Subject
from polariscope.subjects.doors import subject_and_world, subjects_and_world
from polariscope.subjects.layers import layer_names
from polariscope.training.run import config_of
from polariscope.worlds.given import Data
from polariscope.worlds.world import World

Activations = dict[str, NDArray[np.float32]]
HINT = (
    "Chance level: the examples of one model are shuffled against those of the other. The mean of the posterior is "
    "the code of an example; a sample also contains the noise of the posterior."
)


NAMES = {"cka": "CKA", "procrustes": "Procrustes similarity"}
SAME = 0.9
"""Similarity from which two representations are called nearly the same; 1 is the same up to rotation and scale."""
PERMUTATIONS = 20
"""Times that examples are shuffled for the chance level: a similarity above all of them has p < 0.05."""
LESS = 0.1
"""Difference in similarity between means and samples from which a note explains it."""
Verdict = Literal[
    "nearly the same", "nearly the same code", "partly alike", "no more alike than untrained", "not alike"
]


@dataclass(frozen=True)
class Chance:
    """Similarity of two representations whose examples were shuffled against each other."""

    mean: float
    most: float


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(SimilarityMatrix):
    """Similarities of the layers of two models, with their chance levels and the settings of the comparison."""

    measure: str = "cka"
    models: tuple[str, str] = ("first", "second")
    chance: Mapping[str, Chance] = field(default_factory=dict)
    """Chance level of the latent layers that both models have."""
    untrained: float | None = None
    """Similarity of the means of the first model and of the untrained second model: the similarity that data and
    architecture give without learning."""

    @property
    def latent(self) -> dict[str, float]:
        """Similarity of the latent layers that both have."""
        return self._shared([name for name in ("mean", "sampled") if name in self.rows])

    @property
    def encoders(self) -> dict[str, float]:
        """Similarity of the encoder layers that have the same name in both models."""
        return self._shared([name for name in self.rows[: encoder_layers(self.rows)] if name != "input"])

    def _shared(self, names: Sequence[str]) -> dict[str, float]:
        known = [name for name in names if name in self.columns]
        return {name: float(self.values[self.rows.index(name), self.columns.index(name)]) for name in known}

    @property
    def verdict(self) -> Verdict | None:
        """The verdict from the mean representations; None if one of them is constant."""
        if "mean" not in self.latent:
            return None
        value = self.latent["mean"]
        if "mean" in self.chance and value <= self.chance["mean"].most:
            return "not alike"
        if self.untrained is not None and value <= self.untrained:
            return "no more alike than untrained"
        if value < SAME:
            return "partly alike"
        return "nearly the same" if min(self.encoders.values(), default=1.0) >= SAME else "nearly the same code"

    @property
    def headline(self) -> str:
        """The answer to "do they learn the same representation?", with the figures behind it."""
        both, verdict = " and ".join(self.models), self.verdict
        if verdict is None:
            return f"Whether {both} are the same inside cannot be decided: the mean representation of one is constant"
        number = f"{NAMES[self.measure]} of their mean representations is {self.latent['mean']:.2f}{self._levels}"
        if verdict == "not alike":
            return f"{both} are not similar: {number}, which does not exceed chance"
        if verdict == "no more alike than untrained":
            return f"{both} are no more similar than a trained and an untrained model: {number}"
        if verdict == "partly alike":
            return f"{both} are partly similar: {number}; 1 would be the same"
        if not self.encoders:
            return f"{both} have nearly the same code: {number}; no layers of their encoders have the same name"
        least = min(self.encoders, key=lambda name: self.encoders[name])
        if verdict == "nearly the same code":
            return (
                f"{both} have nearly the same code, but are not the same throughout: {number}, and {least} has only "
                f"{self.encoders[least]:.2f}"
            )
        return f"{both} are nearly the same inside: {number}, and every encoder layer has at least {SAME:g}"

    @property
    def _levels(self) -> str:
        levels = [f"chance {self.chance['mean'].mean:.2f}"] if "mean" in self.chance else []
        levels += [] if self.untrained is None else [f"untrained {self.untrained:.2f}"]
        return f" ({', '.join(levels)})" if levels else ""

    def findings(self, settings: Mapping[str, Any] | None = None) -> Findings:
        rows, columns = self.models
        return Findings(
            f"{rows} and {columns}",
            f"{self.headline}.",
            [
                Values(name="latent", title="Latent layers", hint=HINT, entries=self._entries()),
                Chart(
                    name="layers",
                    title="Layer by layer",
                    hint=(
                        f"Rows: {rows}. Columns: {columns}. 1 means equal up to the invariances of "
                        f"{NAMES[self.measure]}, 0 nothing in common. Lines mark the end of the encoders."
                    ),
                    draw=self._heatmap,
                ),
            ],
            condensed(self.notes),
            {
                "verdict": self.verdict,
                "measure": self.measure,
                "rows": self.rows,
                "columns": self.columns,
                "values": self.values.tolist(),
            },
            settings=settings or {},
        )

    def _entries(self) -> list[Value]:
        entries = []
        for name, value in self.latent.items():
            chance = self.chance.get(name)
            entries.append(
                Value(
                    name,
                    f"{NAMES[self.measure]} of the {name} representations",
                    value,
                    chance=None if chance is None else chance.mean,
                    within_chance=chance is not None and value <= chance.most,
                )
            )
        if self.untrained is not None:
            title = f"{NAMES[self.measure]} of the mean representations, second model untrained"
            entries.append(Value("untrained", title, self.untrained))
        return entries

    def _heatmap(self) -> Figure:
        ends = ([encoder_layers(self.rows)], [encoder_layers(self.columns)])
        title = f"{NAMES[self.measure]}\nrows: {self.models[0]}\ncolumns: {self.models[1]}"
        return figures.heatmap(self.values, self.rows, self.columns, title, low=0, high=1, separators=ends)


def layer_activations(
    model: Any,
    data: Data | None = None,
    count: int = 2000,
    seed: int = 0,
    noise_seed: int = 0,
    layers: Sequence[str] | None = None,
) -> Activations:
    """Input, encoder layers, mean, variance, sample, decoder layers: activations of the same examples, in that order.

    ``layers`` are by default those that :func:`~polariscope.subjects.layers.layer_names` finds in the module. To
    compare two models, use the same ``seed`` (examples) and different ``noise_seed``s: shared noise makes the sampled
    layers of unrelated models similar.
    """
    return _looked_through(*subject_and_world(model, data), count, seed, noise_seed, layers)[0]


def _looked_through(
    subject: Subject, world: World, count: int, seed: int, noise_seed: int, layers: Sequence[str] | None = None
) -> tuple[Activations, tuple[str, ...]]:
    """The activations, and the assumptions about the model."""
    if subject.encodes is None:  # a plain classifier: what it predicts is its last layer
        subject = replace(subject, encodes=subject.predicts)
    if layers is None and subject.module is not None:
        layers = [name for name in layer_names(subject.module) if not name.endswith("flatten")]
    rep = represent(subject, world, count=count, layers=layers or (), seed=seed, noise_seed=noise_seed)
    assert rep.index is not None
    activations: Activations = {"input": world.observe(rep.index).reshape(rep.count, -1).astype(np.float32)}
    # Where forward is what encodes, the decoder runs in the same pass.
    decoder = [name for name in rep.layers if name in rep.decoder_layers or name.startswith("decoder.")]
    activations |= {name: values for name, values in rep.layers.items() if name not in decoder}
    activations["mean"] = rep.mean
    if rep.var is not None and rep.sample is not None:
        activations |= {"variance": rep.var, "sampled": rep.sample}
    return activations | {name: rep.layers[name] for name in decoder}, rep.notes


def compare(
    first: Any,
    second: Any,
    data: Data | None = None,
    *,
    measure: Literal["cka", "procrustes"] = "cka",
    debiased: bool = False,
    count: int = 2000,
    seed: int = 0,
    untrained: Any = None,
) -> Comparison:
    """Layer-by-layer similarity of two models on the same data, with a verdict and notes on its limits.

    The models are subjects, or anything that :func:`~polariscope.subjects.as_subject` can wrap: modules of any kind,
    runs by their id. Data is anything that :func:`~polariscope.worlds.given.as_world` takes; if one of the models is a
    run, the default is the data that the (first) run was trained on. ``untrained`` is the second model before its
    training, which a run knows: the similarity to it shows what data and architecture give without learning.
    """
    if count < 2:
        raise ValueError(f"--count (count= in Python) is {count}: at least 2 examples are needed")
    if debiased and measure != "cka":
        raise ValueError("--debiased (debiased= in Python) is for cka only")
    subjects, world = subjects_and_world([first, second], data)
    runs = [subject.run for subject in subjects]
    if data is None:
        compared_world([run for run in runs if run is not None])
    if untrained is None and runs[1] is not None:
        untrained = untrained_model(runs[1])
    (first_layers, assumed_a), (second_layers, assumed_b) = (
        _looked_through(subject, world, count, seed, seed + 1 + number) for number, subject in enumerate(subjects)
    )
    a, still_a = _moving(first_layers, "first")
    b, still_b = _moving(second_layers, "second")
    matrix = similarity_matrix(a, b, measure, debiased)
    names = (subjects[0].name, subjects[1].name)
    both = zip(names, (assumed_a, assumed_b), strict=True)
    assumed = dict.fromkeys(f"{name}: {note}" for name, notes in both for note in notes)
    latent = [name for name in ("mean", "sampled") if name in a and name in b]
    before = None
    if untrained is not None and "mean" in a:
        (start,), _ = subjects_and_world([untrained], world)
        raw = _looked_through(start, world, count, seed, seed + 3, layers=())[0]["mean"]
        if not (raw == raw[0]).all():
            before = float(similarity_matrix({"mean": a["mean"]}, {"mean": raw}, measure, debiased).values[0, 0])
    comparison = Comparison(
        matrix.values,
        matrix.rows,
        matrix.columns,
        (*assumed, *matrix.notes, *still_a, *still_b),
        measure=measure,
        models=names,
        chance={name: _chance(a[name], b[name], measure, debiased, seed) for name in latent},
        untrained=before,
    )
    return replace(comparison, notes=(*_why_samples_differ(comparison, first_layers, second_layers), *comparison.notes))


def compared_runs(first: Run, second: Run, steps: tuple[int | None, int | None] = (None, None)) -> list[Subject]:
    """The models of two runs, or their snapshots at steps, under titles that differ."""
    runs = [first, second]
    titles = distinct_titles(runs, steps)
    return [run_subject(run, step, title) for run, step, title in zip(runs, steps, titles, strict=True)]


def compared_world(runs: Sequence[Run]) -> World:
    """The data that models of runs are compared on: that of the first run, if the others see data of the same shape."""
    shapes = {run.id: tuple(config_of(run).world.shape) for run in runs}
    if len(set(shapes.values())) > 1:
        (one, a), (other, b) = shapes.items()
        raise ValueError(f"the models see different data: {one} has shape {a}, {other} {b}")
    return config_of(runs[0]).world


def _chance(
    a: NDArray[np.float32], b: NDArray[np.float32], measure: Literal["cka", "procrustes"], debiased: bool, seed: int
) -> Chance:
    rng = np.random.default_rng((seed, 7))
    shuffled = {str(number): b[rng.permutation(len(b))] for number in range(PERMUTATIONS)}
    values = similarity_matrix({"a": a}, shuffled, measure, debiased).values
    return Chance(float(values.mean()), float(values.max()))


def _why_samples_differ(comparison: Comparison, first: Activations, second: Activations) -> list[str]:
    """A note on samples that are less similar than means: their noise, most of it in unused variables."""
    latent = comparison.latent
    if not {"mean", "sampled"} <= latent.keys() or latent["mean"] - latent["sampled"] < LESS:
        return []
    shares, passive, unused = [], [], 0
    for layers in (first, second):
        noise, signal = layers["variance"].mean(0), layers["mean"].var(0)
        shares.append(f"{noise.sum() / (noise + signal).sum():.0%}")
        count = variable_types(layers["variance"]).counts["passive"]
        passive.append(f"{count} of {len(noise)}")
        unused += count
    idle = f", and {' and '.join(passive)} variables are passive, that is, only noise" if unused else ""
    return [
        f"Samples are less similar ({latent['sampled']:.2f}) than means ({latent['mean']:.2f}), because each model "
        f"draws its own noise: {' and '.join(shares)} of the variance of their samples is noise of the "
        f"posterior{idle}. The means show what the models have in common."
    ]


def _moving(layers: Activations, whose: str) -> tuple[Activations, list[str]]:
    """The layers that differ between examples; constant layers have no similarity and are named in a note."""
    still = [name for name, values in layers.items() if (values == values[0]).all()]
    notes = [f"{name} of the {whose} model is constant over the examples and was skipped" for name in still]
    return {name: values for name, values in layers.items() if name not in still}, notes


def encoder_layers(names: tuple[str, ...]) -> int:
    """The number of layers before the latents, where the heatmap has a line."""
    return next((i for i, name in enumerate(names) if name == "mean"), len(names))


def condensed(notes: Sequence[str]) -> list[str]:
    """One note of each kind: the same note about many layers is printed once, with their number."""
    kinds: dict[str, list[str]] = {}
    for note in notes:
        kinds.setdefault(re.sub(r"^\S+: |\d+", "", note), []).append(note)
    return [
        n[0] if len(n) == 1 else f"{n[0]} (and {counted(len(n) - 1, 'more layer')} like it)" for n in kinds.values()
    ]
