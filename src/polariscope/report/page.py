"""The one-file HTML report: everything inside, nothing fetched, so that it can be mailed, archived and printed.

This module turns cases into what the template lays out: tables of :class:`Cell` and inline figures. Numbers are
shown rounded, and kept in full in ``<data value>``, so that a report can be read back by a machine.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from matplotlib.figure import Figure
from numpy.typing import NDArray

from polariscope.atomic import atomic
from polariscope.examination.examine import TRAVERSAL_REACH, Examination, Variable
from polariscope.lab.store import Row, Run
from polariscope.measures.measure import measures
from polariscope.report import figures
from polariscope.worlds.pictures import Limits

TRAVERSAL_ROWS = 16
MATRIX_ROWS = 32
KNOWS = 0.05
"""Share of a factor's entropy from which a variable is said to tell about it."""
TILE = 64
"""Width in pixels that pictures are shown at, at least."""


@dataclass(frozen=True, eq=False)
class Case:
    """One model in a report: what it is called, how it was made, how training went, what was found."""

    name: str
    settings: Mapping[str, Any]
    """The run's configuration, as ``RunConfig.describe`` gives it; anything else for models made elsewhere."""
    metrics: Sequence[Row]
    examination: Examination
    environment: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_run(cls, run: Run, examination: Examination) -> Case:
        """The case of a run folder, called after its objective."""
        record = run.record
        made = {"run": run.id, "created": str(record["created"]), **record.get("environment", {})}
        return cls(_called(run.config.get("objective")) or run.id, run.config, run.metrics(), examination, made)

    @property
    def held_out(self) -> dict[str, float]:
        """Terms of the last evaluation on held-out data."""
        last = max((step for step, split, _, _ in self.metrics if split == "held_out"), default=None)
        return {term: value for step, split, term, value in self.metrics if split == "held_out" and step == last}

    @property
    def sentence(self) -> str:
        """What was trained on what, and what it was examined on."""
        rep = self.examination.representation
        world, training = _section(self.settings, "world"), _section(self.settings, "training")
        sentence = f"{self.name}: {_plural(rep.latents, 'latent variable')}"
        if world and not _section(self.settings, "objective"):  # made elsewhere: the world is what it is looked at with
            return f"{sentence}; examined on {_plural(rep.count, 'example')} of {_world(world)}."
        if world:
            sentence += f", trained on {_world(world)}"
        if "steps" in training:
            sentence += f" for {_plural(training['steps'], 'step')}"
            sentence += f" of {training['batch_size']} examples" if "batch_size" in training else ""
        return f"{sentence}; examined on {_plural(rep.count, 'example')}."

    @property
    def toml(self) -> str | None:
        """The configuration file that makes this run again, if it was a run of ours."""
        ours = _section(self.settings, "world") and _section(self.settings, "objective")
        return as_toml(self.settings) if ours else None


@dataclass(frozen=True)
class Cell:
    """One place in a table: a number, or words where there is none."""

    value: float | None = None
    text: str = ""
    best: bool = False


@dataclass(frozen=True)
class Line:
    """One row of a table that has a column per model."""

    label: str
    cells: Sequence[Cell]
    note: str = ""
    wanted: str = ""
    """Which direction is better, if one is."""
    differs: bool = False


def write_report(
    path: Path | str, found: Examination | Case | Sequence[Examination | Case], title: str = "Examination"
) -> None:
    """Write one self-contained HTML file about one examination, or several side by side."""
    several = [found] if isinstance(found, Examination | Case) else list(found)
    if not several:
        raise ValueError("a report needs at least one examination; got none")
    cases = [one if isinstance(one, Case) else Case("model", {}, [], one) for one in several]
    page = render(cases, title)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic(path) as draft:
        draft.write_text(page, encoding="utf-8")


def render(cases: Sequence[Case], title: str) -> str:
    """The report as HTML text."""
    environment = Environment(
        loader=PackageLoader("polariscope", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "data": data, "percent": lambda share: f"{share:.0%}"}
    names = distinct([case.name for case in cases])
    settings = [dict(_flat(s.settings)) for s in cases]
    return environment.get_template("page.html.jinja").render(
        title=title,
        names=names,
        cases=cases,
        palette=figures.PALETTE,
        colours=[figures.SUBJECTS[i % len(figures.SUBJECTS)] for i in range(len(cases))],
        types=figures.TYPES,
        headline=_headline(cases),
        curves=_curves(dict(zip(names, cases, strict=True))),
        measures=_measures(cases),
        settings=_side_by_side(settings),
        environment=_side_by_side([dict(s.environment) for s in cases]),
        views=[_View(name, case, f"s{i}") for i, (name, case) in enumerate(zip(names, cases, strict=True))],
        reach=TRAVERSAL_REACH,
        knows=KNOWS,
        matrix_rows=MATRIX_ROWS,
    )


@dataclass(frozen=True)
class Picture:
    """A PNG inside the page, with the size to show it at."""

    source: str
    width: int
    height: int


@dataclass(frozen=True, eq=False)
class _View:
    """What the template shows of one case: figures and pictures, made when they are asked for."""

    name: str
    case: Case
    key: str
    """Begins the ids of everything in this view, which must differ over the page."""

    @property
    def examination(self) -> Examination:
        return self.case.examination

    @cached_property
    def pairs(self) -> list[Picture]:
        """Each original over its reconstruction."""
        before, after = self.examination.originals, self.examination.reconstructions
        if before is None or after is None:
            return []
        limits = self.examination.limits
        return [_picture(np.stack(pair)[:, None], limits) for pair in zip(before, after, strict=True)]

    @cached_property
    def traversals(self) -> list[tuple[Variable, Picture]]:
        """The most used latents, each with the strip of pictures that moving it gives."""
        strips = self.examination.traversals
        if strips is None:
            return []
        shown = list(zip(self.examination.variables, strips, strict=True))[:TRAVERSAL_ROWS]
        return [(variable, _picture(strip[None], self.examination.limits)) for variable, strip in shown]

    @cached_property
    def factor_matrix(self) -> Markup | None:
        table, factors = self.examination.factor_information, self.examination.representation.factor_info
        if table is None or not factors:
            return None
        figure = figures.factor_matrix(table, self.examination.variables[:MATRIX_ROWS], [f.name for f in factors])
        return inline(
            figure, f"How much of each factor each latent variable of {self.name} knows", f"{self.key}-factors"
        )

    @cached_property
    def histograms(self) -> Markup:
        """The most used variable of each type."""
        first = {variable.type: variable for variable in reversed(self.examination.variables)}
        chosen = [first[kind] for kind in figures.TYPES if kind in first]
        figure = figures.variable_histograms(self.examination.representation, chosen)
        shown = ", ".join(figures.variable_label(v) for v in chosen)
        return inline(figure, f"Histograms for {shown} of {self.name}", f"{self.key}-histograms")


def _headline(cases: Sequence[Case]) -> list[Line]:
    """Held-out terms, then the measures that have a better direction."""
    held_out = [s.held_out for s in cases]
    rows = []
    # Losses of different objectives weigh their parts differently, and some hold constants: their sum in plain is what
    # can be read side by side.
    one = len({_called(case.settings.get("objective")) for case in cases}) == 1
    bound = "reconstruction + KL, the negative ELBO"
    for terms in held_out:
        if "reconstruction" in terms and "kl" in terms:
            terms[bound] = terms["reconstruction"] + terms["kl"]
    for term, label in ((bound, bound), *([("loss", "loss")] if one else []), ("reconstruction",) * 2, ("kl", "KL")):
        values = [terms.get(term) for terms in held_out]
        if any(value is not None for value in values):
            better = False if term in ("reconstruction", bound) else None
            rows.append(_line(f"Held-out {label} (nats)", values, ["not measured"] * len(cases), better))
    return rows + [line for line in _measures(cases) if line.wanted and any(c.value is not None for c in line.cells)]


def _measures(cases: Sequence[Case]) -> list[Line]:
    """Every measure of any case, with what it means."""
    titles = {value.name: value for s in cases for value in s.examination.values}
    rows = []
    for name, known in titles.items():
        found = [next((v for v in s.examination.values if v.name == name), None) for s in cases]
        values = [None if v is None else v.value for v in found]
        reasons = ["not measured" if v is None else f"undefined: {v.problem or 'no reason given'}" for v in found]
        rows.append(_line(known.title, values, reasons, known.higher_is_better, meaning(name)))
    return rows


def _line(
    label: str, values: Sequence[float | None], reasons: Sequence[str], higher: bool | None, note: str = ""
) -> Line:
    wanted = "" if higher is None else "higher is better" if higher else "lower is better"
    defined = [value for value in values if value is not None]
    best = None
    if higher is not None and len(set(defined)) > 1:
        best = max(defined) if higher else min(defined)
    cells = [
        Cell(value, "" if value is not None else reason, value is not None and value == best)
        for value, reason in zip(values, reasons, strict=True)
    ]
    return Line(label, cells, note, wanted)


def meaning(name: str) -> str:
    """What a registered measure means: the first line of its docstring, without the markup of code."""
    if name not in measures.names():
        return ""
    measure = measures.get(name)
    text = (measure.__doc__ or "").strip().split("\n\n")[0]
    if text.startswith(f"{measure.__name__}("):  # what dataclasses write where nobody has
        return ""
    return re.sub(r"(:\w+:)?`+([^`]*)`+", r"\2", " ".join(text.split()))


def _curves(cases: Mapping[str, Case]) -> list[Markup]:
    runs = {name: case.metrics for name, case in cases.items()}
    return [
        inline(
            figures.learning_curves(runs, [term], legend=False), f"Learning curve of the {term}", f"curve-{position}"
        )
        for position, term in enumerate(figures.terms_of(runs.values()))
    ]


def _side_by_side(tables: Sequence[Mapping[str, Any]]) -> list[Line]:
    """Settings of several cases, those that differ marked."""
    rows = []
    for key in dict.fromkeys(key for table in tables for key in table):
        texts = [_text(table[key]) if key in table else "–" for table in tables]
        rows.append(Line(key, [Cell(text=text) for text in texts], differs=len(set(texts)) > 1))
    return rows


def _picture(images: NDArray[Any], limits: Limits | None = None) -> Picture:
    """Pictures ``(rows, columns, c, h, w)`` in one PNG.

    Small ones are enlarged by whole pixels. The file has twice the pixels it is shown with: sharp on dense screens, and
    a browser that must shrink a strip to a phone's width averages neighbours instead of dropping lines.
    """
    shown = max(1, math.ceil(TILE / images.shape[-1]))
    dense = 2 if images.shape[2] < 3 else 1  # photographs gain nothing from it, and weigh four times as much
    image = figures.image_grid(images, limits=limits, enlarge=shown * dense)
    return Picture(figures.as_data_uri(image), image.width // dense, image.height // dense)


def inline(figure: Figure, label: str, key: str) -> Markup:
    """A figure as SVG for the middle of a page: sized by the page, ids of its own, the page's colours, a label."""
    svg = figures.as_svg(figure)
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'(\sid="|url\(#|href="#)', rf"\1{key}-", svg)
    for name, (light, _) in figures.PALETTE.items():
        svg = svg.replace(light, f"var(--{name})")
    width, height = figure.get_size_inches() * 96
    head, body = svg.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', head)
    assert box is not None
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" {box[0]} role="img" '
        f'aria-label="{escape(label)}" style="--natural: {width:.0f}px; aspect-ratio: {width:.0f} / {height:.0f}">'
    )
    return Markup(opening + body)


def number(value: float) -> str:
    """Three significant digits, no exponent where people would not write one.

    >>> number(0.12345), number(12345.6), number(-2.0), number(0.0000123)
    ('0.123', '12,346', '-2', '1.23e-05')
    """
    if abs(value) >= 100:
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}"
    return f"{value:.3g}"


def data(value: float, form: str = "") -> Markup:
    """A number as shown (in a printf form, if one is given), with all its digits for machines."""
    return Markup('<data value="{}">{}</data>').format(repr(float(value)), form % value if form else number(value))


def distinct(names: Sequence[str]) -> list[str]:
    """The names, those that come again with a number after them.

    >>> distinct(["vae", "beta-vae", "vae"])
    ['vae', 'beta-vae', 'vae 2']
    """
    return [f"{n} {names[: i + 1].count(n)}" if n in names[:i] else n for i, n in enumerate(names)]


def as_toml(settings: Mapping[str, Any]) -> str:
    """A configuration as TOML. Entries that are None are left out: TOML has no word for nothing.

    >>> print(as_toml({"world": {"name": "sprites", "size": 64}, "model": {"architecture": {"name": "conv"}}}))
    [world]
    name = "sprites"
    size = 64
    <BLANKLINE>
    [model.architecture]
    name = "conv"
    """
    return "\n\n".join(_toml_tables(settings, ()))


def _toml_tables(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    entries = [f"{_toml_key(k)} = {_toml_value(v)}" for k, v in table.items() if _is_entry(v)]
    header = [f"[{'.'.join(map(_toml_key, path))}]"] if path else []
    inner = [(k, v) for k, v in table.items() if isinstance(v, Mapping)]
    if entries or (path and not inner):
        yield "\n".join(header + entries)
    for key, value in inner:
        yield from _toml_tables(value, (*path, key))


def _is_entry(value: Any) -> bool:
    return value is not None and not isinstance(value, Mapping)


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)


def _toml_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_toml_key(k)} = {_toml_value(v)}" for k, v in value.items() if v is not None) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False)  # strings, integers and booleans are written alike in both


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _section(settings: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = settings.get(name)
    return section if isinstance(section, Mapping) else {}


def _called(objective: Any) -> str:
    """An objective by its name and its first number, which is its strength: ``beta-vae (beta 4)``."""
    if not isinstance(objective, Mapping):
        return ""
    numbers = [(k, v) for k, v in objective.items() if isinstance(v, (int, float)) and not isinstance(v, bool)]
    strength = f" ({numbers[0][0]} {numbers[0][1]:g})" if numbers else ""
    return f"{objective.get('name', '')}{strength}"


def _world(world: Mapping[str, Any]) -> str:
    return f"the file {world['path']}" if "path" in world else f"the world “{world.get('name', '?')}”"


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
