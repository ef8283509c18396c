"""The examination of one model: the typed result of :func:`~polariscope.examination.examine.examine`, and its
document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from polariscope.findings import (
    Chart,
    Column,
    Curves,
    Findings,
    Metric,
    Part,
    Pictures,
    Records,
    Strip,
    Value,
    Values,
)
from polariscope.grammar import data_name
from polariscope.lab.store import Run
from polariscope.measures.boosting import ROUNDS
from polariscope.measures.dci import DCI, QUICK_ROUNDS
from polariscope.measures.measure import Measure
from polariscope.measures.polarisation import Kind
from polariscope.report import figures
from polariscope.representation import Representation
from polariscope.tabular import Tabular
from polariscope.worlds.pictures import Limits, limits_of

TRAVERSAL_ROWS = 16
MATRIX_ROWS = 32
NO_MORE = "not above chance"
KNOWS = 0.05
"""Share of a factor's entropy from which a variable counts as encoding it."""
PLAIN_COLUMNS = (
    Column("number", "No.", "z%d", "no."),
    Column("kind", "Type", badge=True),
    Column("var_of_mean", "Variance of mean", "%.3f", "mean var"),
    Column("tells", "Main factor", short="factor"),
    Column("information", "How much", "percent", "share"),
)
VARIABLE_COLUMNS = (
    *PLAIN_COLUMNS[:2],
    Column("mean_var", "Posterior variance", "%.3f", "post. var", bar="kind"),
    Column("detail", "Over the examples", aside=True),
    Column("predicted_var", "Predicted", "%.3f", "pred."),
    PLAIN_COLUMNS[2],
    Column("kl", "KL (nats)", "%.3f", "KL"),
    *PLAIN_COLUMNS[3:],
    Column("type", "By the published rule", aside=True),
)
HINTS = {
    "summary": "Which variables are used, the divergence of each, and the measures.",
    "learning": "Faint line: batches while training. Line with marks: held-out data. Terms are in nats per example.",
    "reconstructions": "Above: the original. Below: its reconstruction.",
    "traversals": "One latent variable is changed at a time, over its range on the data; the most used variable comes "
    "first. A passive variable should change nothing.",
    "variables": "The most used first. A posterior variance near 0 means that the variable is used; near 1, that it "
    "is noise which the decoder ignores. Partly used: in between. Switching: used for some examples and ignored for "
    "others, which is what the publication means by mixed; its rule, in the last column, calls every variable mixed "
    "that is neither active nor passive. Predicted: the variance that follows from the decoder's slope, if known.",
    "factors": "Share of each factor’s entropy that each variable explains beyond chance, its noise included: 0 "
    "means no more than with permuted factors, 1 means all of it. A disentangled model has at most one "
    "dark cell per row.",
    "measures": "Below a value: its 95 % interval, from random halves of the examples, and its chance level, from the "
    f"same codes with permuted factors ({DCI.permutations} to {Measure.permutations} permutations; for DCI by "
    f"{QUICK_ROUNDS} of its {ROUNDS} rounds of boosting, as for its interval). Below a meaning: the protocol, which "
    "says which variant was computed; --protocol published (protocol= in Python) computes the published one.",
    "histograms": "The most used variable of each type, over all examples. Dashed: the prior. Active: the variance "
    "stays near 0. Partly used: it stays in between. Switching: it is near 0 for some examples and near 1 "
    "for others. Passive: it stays near 1 and the mean is constant.",
}


@dataclass(frozen=True)
class Variable:
    """One latent variable: its type, how much it varies, and which factor it encodes."""

    number: int
    type: str
    """Active, mixed or passive by the published rule."""
    mean_var: float
    """Posterior variance, averaged over the examples: near 0 the variable is used, near 1 it is noise."""
    var_of_mean: float
    """Variance of the posterior mean over the examples."""
    kl: float | None
    """Divergence from the prior in nats, averaged over the examples."""
    factor: str | None
    """The factor that this variable encodes most of, if any exceeds chance."""
    information: float | None
    """Share of that factor's entropy that the variable explains beyond chance, from 0 to 1."""
    predicted_var: float | None = None
    """The posterior variance that the decoder's slope predicts at the optimum of a beta-VAE."""
    kind: str = ""
    """Active, partly used, switching or passive (:func:`~polariscope.measures.polarisation.variable_types`); the type
    if not given."""
    detail: str = ""
    """How its variance changes over the examples, if a number does not suffice."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", self.kind or self.type)


@dataclass(frozen=True, eq=False, repr=False)
class Examination(Tabular):
    """The findings about one model."""

    representation: Representation
    variables: list[Variable]
    values: list[Value]
    factor_information: NDArray[np.float64] | None
    """Share of each factor's entropy that each latent explains beyond chance, ``(latents, factors)``."""
    originals: NDArray[Any] | None = None
    """Example images, ``(n, c, h, w)``: bytes, or floats if the data has floats."""
    reconstructions: NDArray[Any] | None = None
    traversals: NDArray[Any] | None = None
    """Traversals: one latent changed at a time from an example, ``(latents, steps, c, h, w)``, in the order of
    ``variables``."""
    notes: list[str] = field(default_factory=list)
    about: Mapping[str, Any] = field(default_factory=dict)
    """Defaults for the arguments of :meth:`findings`; see :func:`about_run`."""

    @cached_property
    def limits(self) -> Limits | None:
        """The numbers that pictures show as black and white: for floats, the range of the originals."""
        floats = self.originals is not None and self.originals.dtype != np.uint8
        return limits_of([self.originals]) if floats else None  # type: ignore[list-item]

    @property
    def counts(self) -> dict[str, int]:
        """Number of variables of each type by the published rule, which calls all variables in between mixed."""
        types = [v.type for v in self.variables]
        return {name: types.count(name) for name in figures.TYPES}

    @property
    def kinds(self) -> dict[str, int]:
        """Number of variables of each kind: active, partly used, switching, passive."""
        kinds = [v.kind for v in self.variables]
        return {kind: kinds.count(kind) for kind in dict.fromkeys((*get_args(Kind), *kinds))}

    @property
    def headline(self) -> str:
        rep = self.representation
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.kinds.items() if count)
        return f"{rep.latents} latent variables on {rep.count:,} examples: {kinds}"

    @property
    def measures(self) -> dict[str, float | None]:
        """Every measure's value by name; None if it is undefined (``values`` has the reason)."""
        return {v.name: v.value for v in self.values}

    def records(self) -> list[dict[str, Any]]:
        """A row for each latent variable, the most used first."""
        return [asdict(v) for v in self.variables]

    def findings(
        self,
        title: str | None = None,
        settings: Mapping[str, Any] | None = None,
        metrics: Sequence[Metric] | None = None,
        environment: Mapping[str, Any] | None = None,
    ) -> Findings:
        """The document. Further facts about the model (a configuration, learning curves) can be given; a run has them
        as defaults."""
        title = self.about.get("title", "model") if title is None else title
        settings = self.about.get("settings", {}) if settings is None else settings
        metrics = self.about.get("metrics", ()) if metrics is None else metrics
        environment = self.about.get("environment", {}) if environment is None else environment
        with_chance = any(value.chance is not None for value in self.values)
        measured = Values(
            name="measures", title="Measures", hint=HINTS["measures"] if with_chance else "", entries=self.values
        )
        parts: list[Part] = [self._headline(metrics)]
        if metrics:
            parts.append(Curves(name="learning", title="Learning curves", hint=HINTS["learning"], metrics=metrics))
        parts += [*self._pictures(title), self._variables(), *self._charts()]
        parts += [measured] if self.values else []
        return Findings(
            title,
            said_of(settings, self.headline),
            parts,
            self.notes,
            {
                "examples": self.representation.count,
                "types": self.counts,
                "kinds": self.kinds,
                "chance": {v.name: v.chance for v in self.values if v.chance is not None},
                "within_chance": [v.name for v in self.values if v.within_chance],
                "intervals": {v.name: list(v.interval) for v in self.values if v.interval is not None},
                "protocols": {v.name: v.protocol for v in self.values if v.protocol},
            },
            settings=settings,
            environment=environment,
        )

    def _headline(self, metrics: Sequence[Metric]) -> Values:
        """Types, held-out terms, and the measures that have a better direction."""
        types = Value("types", f"Variables: {' · '.join(self.kinds)}", None, shares=self.kinds)
        wanted = [v for v in self.values if v.higher_is_better is not None and v.value is not None]
        plain = [replace(value, meaning="", protocol="") for value in wanted]
        return Values(
            name="summary", title="Summary", hint=HINTS["summary"], entries=[types, *held_out_terms(metrics), *plain]
        )

    def _variables(self) -> Records:
        unknown = NO_MORE if self.factor_information is not None and self.representation.factor_info else None
        return Records(
            name="variables",
            title="Latent variables",
            hint=HINTS["variables"],
            rows=[{**row, "tells": row["factor"] or unknown} for row in self.records()],
            columns=VARIABLE_COLUMNS if self.representation.var is not None else PLAIN_COLUMNS,
        )

    def _charts(self) -> list[Part]:
        rep, parts = self.representation, list[Part]()
        table, factors = self.factor_information, [factor.name for factor in rep.factor_info]
        if table is not None and factors:
            rows = self.variables[:MATRIX_ROWS]
            few = f" The {len(rows)} most used of {rep.latents} variables." if len(rows) < rep.latents else ""
            parts.append(
                Chart(
                    name="factors",
                    title="Factors and variables",
                    hint=HINTS["factors"] + few,
                    draw=lambda: figures.factor_matrix(table, rows, factors),
                )
            )
        first = {variable.kind: variable for variable in reversed(self.variables)}
        chosen = [first[kind] for kind in figures.KINDS if kind in first]
        parts.append(
            Chart(
                name="histograms",
                title="Distributions",
                hint=HINTS["histograms"],
                draw=lambda: figures.variable_histograms(rep, chosen),
            )
        )
        return parts

    def _pictures(self, title: str) -> list[Part]:
        if self.originals is None or self.reconstructions is None or self.traversals is None:
            return []
        pairs = [np.stack(pair)[:, None] for pair in zip(self.originals, self.reconstructions, strict=True)]
        words = f"{len(pairs)} originals, each over its reconstruction by {title}"
        strips = [
            Strip(
                strip[None],
                f"z{variable.number}",
                variable.kind,
                f"{variable.factor} {variable.information:.0%}" if (variable.information or 0) >= KNOWS else "",
                f"Traversal of variable {variable.number} of {title}, {variable.kind}",
            )
            for variable, strip in zip(self.variables, self.traversals, strict=True)
        ][:TRAVERSAL_ROWS]
        few = f" The {len(strips)} most used of {len(self.variables)}." if len(strips) < len(self.variables) else ""
        return [
            Pictures(
                name="reconstructions",
                title="Reconstructions",
                hint=HINTS["reconstructions"],
                strips=[Strip(pair, says=words) for pair in pairs],
                limits=self.limits,
            ),
            Pictures(
                name="traversals",
                title="Latent traversals",
                hint=HINTS["traversals"] + few,
                strips=strips,
                limits=self.limits,
            ),
        ]


def about_run(run: Run) -> dict[str, Any]:
    """The part of the findings that comes from the run: name, configuration, learning curves, environment."""
    record = run.record
    made = {"run": run.id, "created": str(record["created"]), **record.get("environment", {})}
    title = called(run.config.get("objective")) or run.id
    return {"title": title, "settings": run.config, "metrics": run.metrics(), "environment": made}


def called(objective: Any) -> str:
    """An objective by its name and its first number, which is its strength: ``beta-vae (beta 4)``."""
    if not isinstance(objective, Mapping):
        return ""
    numbers = [(k, v) for k, v in objective.items() if isinstance(v, (int, float)) and not isinstance(v, bool)]
    strength = f" ({numbers[0][0]} {numbers[0][1]:g})" if numbers else ""
    return f"{objective.get('name', '')}{strength}"


def said_of(settings: Mapping[str, Any], headline: str) -> str:
    """The headline with the objective and the data of the training, if known."""
    world, training = settings.get("world"), settings.get("training")
    if not isinstance(world, Mapping):
        return f"{headline}."
    data = data_called(world)
    if not isinstance(training, Mapping) or "objective" not in settings:
        return f"{headline}; examined on {data}."
    steps = f" for {training['steps']:,} steps" if "steps" in training else ""
    return f"{headline}; trained on {data}{steps}."


def data_called(world: Mapping[str, Any]) -> str:
    """The data of a configuration in a sentence: a file or folder by its name, with the views that change it."""
    if isinstance(world.get("path"), str):
        return f"the data “{data_name(world['path'])}”"
    if isinstance(world.get("of"), Mapping):
        return f"{data_called(world['of'])} as “{world.get('name', '?')}”"
    return f"the world “{world.get('name', '?')}”"


def held_out_terms(metrics: Sequence[Metric]) -> list[Value]:
    """Terms of the last evaluation on held-out data. Losses of different objectives weight their parts differently: if
    both parts of the negative ELBO are known, their plain sum replaces the loss."""
    last = max((step for step, split, _, _ in metrics if split == "held_out"), default=None)
    terms = {term: value for step, split, term, value in metrics if split == "held_out" and step == last}
    if {"reconstruction", "kl"} <= terms.keys():
        both = terms["reconstruction"] + terms["kl"]
        shown: list[tuple[str, str, float, bool | None]] = [
            ("bound", "reconstruction + KL, the negative ELBO", both, False)
        ]
        shown += [("reconstruction", "reconstruction", terms["reconstruction"], False), ("kl", "KL", terms["kl"], None)]
    else:
        shown = [(term, term, value, False if term == "loss" else None) for term, value in terms.items()]
    unit = " (nats)" if len(shown) == 3 else ""
    return [Value(f"held_out_{name}", f"Held-out {title}{unit}", value, better) for name, title, value, better in shown]
