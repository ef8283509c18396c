"""Are two models the same inside? Every layer of one held against every layer of the other."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from polariscope.measures.similarity import SimilarityMatrix, similarity_matrix
from polariscope.report import figures
from polariscope.report.findings import Chart, Findings, Value, Values
from polariscope.representation import represent
from polariscope.subjects import Subject
from polariscope.subjects.doors import subject_and_world, subjects_and_world
from polariscope.subjects.layers import layer_names
from polariscope.worlds.given import Data
from polariscope.worlds.world import World

Activations = dict[str, NDArray[np.float32]]


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(SimilarityMatrix):
    """Similarities of the layers of two models, and what was compared how."""

    measure: str = "cka"
    models: tuple[str, str] = ("first", "second")

    @property
    def latent(self) -> dict[str, float]:
        """Similarity of the latent layers that both have."""
        shared = [name for name in ("mean", "sampled") if name in self.rows and name in self.columns]
        return {name: float(self.values[self.rows.index(name), self.columns.index(name)]) for name in shared}

    @property
    def headline(self) -> str:
        told = [f"{value:.3f} of the {name} representations" for name, value in self.latent.items()]
        return f"{self.measure} of {' and '.join(self.models)}: {', '.join(told) or super().headline}"

    def findings(self, settings: Mapping[str, Any] | None = None) -> Findings:
        entries = [Value(name, f"{self.measure} of the {name} representations", v) for name, v in self.latent.items()]
        rows, columns = self.models
        return Findings(
            f"{rows} and {columns}",
            f"{self.headline}.",
            [
                Values(name="latent", title="Latent layers", entries=entries),
                Chart(
                    name="layers",
                    title="Layer by layer",
                    hint=f"Rows: {rows}. Columns: {columns}. 1 is the same up to what {self.measure} does not see, 0 "
                    "nothing in common. Lines: where the encoders end.",
                    draw=self._heatmap,
                ),
            ],
            condensed(self.notes),
            {"measure": self.measure, "rows": self.rows, "columns": self.columns, "values": self.values.tolist()},
            settings=settings or {},
        )

    def _heatmap(self) -> Figure:
        ends = ([encoder_layers(self.rows)], [encoder_layers(self.columns)])
        title = f"{self.measure}\nrows: {self.models[0]}\ncolumns: {self.models[1]}"
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

    ``layers`` are by default those that :func:`~polariscope.subjects.layers.layer_names` finds in the module. Two
    models that are to be compared need the same ``seed`` (examples) and different ``noise_seed``s: shared noise makes
    the sampled layers of unrelated models alike.
    """
    return _looked_through(*subject_and_world(model, data), count, seed, noise_seed, layers)[0]


def _looked_through(
    subject: Subject, world: World, count: int, seed: int, noise_seed: int, layers: Sequence[str] | None = None
) -> tuple[Activations, tuple[str, ...]]:
    """The activations, and what had to be assumed about the model."""
    if subject.encodes is None:  # a plain classifier: what it predicts is its last layer
        subject = replace(subject, encodes=subject.predicts)
    if layers is None and subject.module is not None:
        layers = [name for name in layer_names(subject.module) if not name.endswith("flatten")]
    rep = represent(subject, world, count=count, layers=layers or (), seed=seed, noise_seed=noise_seed)
    assert rep.index is not None
    found: Activations = {"input": world.observe(rep.index).reshape(rep.count, -1).astype(np.float32)}
    # Where forward is what encodes, the decoder runs in the same pass.
    decoder = [name for name in rep.layers if name in rep.decoder_layers or name.startswith("decoder.")]
    found |= {name: values for name, values in rep.layers.items() if name not in decoder}
    found["mean"] = rep.mean
    if rep.var is not None and rep.sample is not None:
        found |= {"variance": rep.var, "sampled": rep.sample}
    return found | {name: rep.layers[name] for name in decoder}, rep.notes


def compare(
    first: Any,
    second: Any,
    data: Data | None = None,
    *,
    measure: Literal["cka", "procrustes"] = "cka",
    debiased: bool = False,
    count: int = 2000,
    seed: int = 0,
) -> Comparison:
    """Layer-by-layer similarity of two models on the same data, with notes on what not to read into it.

    The models are subjects, or whatever :func:`~polariscope.subjects.as_subject` can wrap into one: modules of any
    kind, runs by their id. Data is whatever :func:`~polariscope.worlds.given.as_world` takes; if one of the models is a
    run, it may be left out, and is then what the (first) run was trained on.
    """
    subjects, world = subjects_and_world([first, second], data)
    (first_layers, assumed_a), (second_layers, assumed_b) = (
        _looked_through(subject, world, count, seed, seed + 1 + number) for number, subject in enumerate(subjects)
    )
    a, still_a = _moving(first_layers, "first")
    b, still_b = _moving(second_layers, "second")
    found = similarity_matrix(a, b, measure, debiased)
    names = (subjects[0].name, subjects[1].name)
    both = zip(names, (assumed_a, assumed_b), strict=True)
    assumed = dict.fromkeys(f"{name}: {note}" for name, notes in both for note in notes)
    return Comparison(
        found.values,
        found.rows,
        found.columns,
        (*assumed, *found.notes, *still_a, *still_b),
        measure=measure,
        models=names,
    )


def _moving(layers: Activations, whose: str) -> tuple[Activations, list[str]]:
    """The layers that differ between examples; what is constant is like nothing, and said."""
    still = [name for name, values in layers.items() if (values == values[0]).all()]
    notes = [f"{name} of the {whose} model is constant over the examples, and was left out" for name in still]
    return {name: values for name, values in layers.items() if name not in still}, notes


def encoder_layers(names: tuple[str, ...]) -> int:
    """How many layers come before the latent ones: where a heatmap draws its line."""
    return next((i for i, name in enumerate(names) if name == "mean"), len(names))


def condensed(notes: Sequence[str]) -> list[str]:
    """One note of each kind: the same remark on many layers is said once, with their number."""
    kinds: dict[str, list[str]] = {}
    for note in notes:
        kinds.setdefault(re.sub(r"^\S+: |\d+", "", note), []).append(note)
    return [n[0] if len(n) == 1 else f"{n[0]} (and {len(n) - 1} more layers like it)" for n in kinds.values()]
