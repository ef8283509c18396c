"""The one-file HTML page of any findings: everything inside, nothing fetched, so that it can be mailed and archived.

Several findings stand side by side: values in one table with a column each, curves over each other, everything else in
columns. Numbers are shown rounded, and kept in full in ``<data value>``, so that a page can be read back by a machine.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup, escape
from matplotlib.figure import Figure

from polariscope import plugins
from polariscope.findings import Chart, Curves, Findings, Part, Pictures, Records, Strip, Text, Value, Values
from polariscope.report import figures
from polariscope.worlds.pictures import Limits

TILE = 64
"""Width in pixels that pictures are shown at, at least."""
HALF = 470
"""Pixels up to which a part fits into half of the page."""
RUN_SECTIONS = {"world", "objective", "model", "training", "split", "start"}
"""What the configuration of a training has."""
KINDS = {Values: "values", Records: "records", Chart: "chart", Curves: "curves", Pictures: "pictures", Text: "text"}


@dataclass(frozen=True)
class Cell:
    """One place in a table: a number, words where there is none, or counts by kind."""

    value: float | None = None
    text: str = ""
    best: bool = False
    shares: Mapping[str, int] | None = None
    context: str = ""
    """What stands below the number: its interval and chance level."""
    within_chance: bool = False


@dataclass(frozen=True)
class Line:
    """One row of a table that has a column for each of the findings."""

    label: str
    cells: Sequence[Cell]
    note: str = ""
    wanted: str = ""
    """Which direction is better, if one is."""
    differs: bool = False


@dataclass(frozen=True)
class Picture:
    """A PNG inside the page, with the size to show it at."""

    source: str
    width: int
    height: int
    strip: Any


@dataclass(frozen=True)
class Section:
    """Parts of one name: ``blocks`` has one for each of the findings, None where it lacks the part."""

    name: str
    title: str
    hint: str
    kind: str
    blocks: Sequence[Any]
    width: float = math.inf
    """Pixels that its one block fills; endless where it takes what it gets."""
    half: bool = False
    """Whether it shares its row with the section before or behind it."""

    @property
    def narrow(self) -> bool:
        return self.width <= HALF


def page(several: Sequence[Findings], title: str = "") -> str:
    """One self-contained HTML file about one thing, or several side by side."""
    if not several:
        raise ValueError("a page needs at least one document of findings; got none")
    names = distinct([findings.title for findings in several])
    settings = [dict(_flat(findings.settings)) for findings in several]
    return _template().render(
        title=title or names[0],
        names=names,
        several=several,
        palette=figures.PALETTE,
        colours=[figures.SUBJECTS[i % len(figures.SUBJECTS)] for i in range(len(several))],
        sections=_paired([_section(name, several, names) for name in _order(several)]),
        notes=[(name, note) for name, findings in zip(names, several, strict=True) for note in findings.notes],
        commands=list(dict.fromkeys(findings.command for findings in several if findings.command)),
        again=[
            (name, as_toml(findings.settings))
            for name, findings in zip(names, several, strict=True)
            if _is_run(findings.settings)
        ],
        train=shlex.join(["polariscope", "train", "--config", "again.toml", *plugins.flags()]),
        settings=_side_by_side(settings),
        environment=_side_by_side([dict(findings.environment) for findings in several]),
    )


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("polariscope", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "data": data}
    return environment.get_template("page.html.jinja")


def _order(several: Sequence[Findings]) -> list[str]:
    """Names of all parts: those of the first, and behind what they followed elsewhere those it lacks."""
    order: list[str] = []
    for findings in several:
        place = 0
        for part in findings.parts:
            if part.name in order:
                place = order.index(part.name) + 1
            else:
                order.insert(place, part.name)
                place += 1
    return order


def _section(name: str, several: Sequence[Findings], names: Sequence[str]) -> Section:
    parts: list[Part | None] = [next((p for p in f.parts if p.name == name), None) for f in several]
    first = next(part for part in parts if part is not None)
    kind = KINDS[type(first)]
    if isinstance(first, Values):
        blocks: list[Any] = _lines([p.entries if isinstance(p, Values) else () for p in parts])
    elif isinstance(first, Curves):
        # Who has no curves keeps its place, and with it the others their colours.
        blocks = _curves({n: getattr(p, "metrics", ()) for n, p in zip(names, parts, strict=True)}, name)
    else:
        blocks = [_block(part, f"s{i}-{name}", names[i]) for i, part in enumerate(parts)]
    return Section(
        name, first.title, first.hint, kind, blocks, _width(first, blocks) if len(several) == 1 else math.inf
    )


def _width(part: Part, blocks: Sequence[Any]) -> float:
    """About how many pixels a part fills when nothing stands beside it."""
    if isinstance(part, Chart):
        natural = re.search(r"--natural: (\d+)px", blocks[0])
        return float(natural[1]) if natural else math.inf
    if isinstance(part, Records) and not part.wordy and part.rows:
        letters = [max(len(c.title) / 2, *(len(c.text(row)) for row in part.rows)) for c in part.shown]
        return sum(8.5 * count + 22 + 94 * bool(c.bar) for count, c in zip(letters, part.shown, strict=True))
    if isinstance(part, Values) and not any(entry.meaning or entry.problem for entry in part.entries):
        return 120 + 8.5 * max((len(entry.title) for entry in part.entries), default=0)
    return math.inf


def _paired(sections: Sequence[Section]) -> list[Section]:
    """The sections, those that follow each other and need half the page at most side by side."""
    placed: list[Section] = []
    for section in sections:
        before = placed[-1] if placed else None
        if before is not None and before.narrow and section.narrow and not before.half:
            placed[-1] = replace(before, half=True)
            section = replace(section, half=True)
        placed.append(section)
    return placed


def _block(part: Part | None, key: str, name: str) -> Any:
    if isinstance(part, Chart):
        return inline(part.draw(), f"{part.title} of {name}", key)
    if isinstance(part, Pictures):
        return [_picture(strip, part.limits) for strip in part.strips]
    return part


def _lines(several: Sequence[Sequence[Value]]) -> list[Line]:
    """A line for each value of any, the best marked where one direction is better."""
    known = {entry.name: entry for entries in several for entry in reversed(entries)}
    order = [entry.name for entries in several for entry in entries]
    return [
        _line(known[name], [next((e for e in entries if e.name == name), None) for entries in several])
        for name in dict.fromkeys(order)
    ]


def _line(about: Value, found: Sequence[Value | None]) -> Line:
    higher = about.higher_is_better
    wanted = "" if higher is None else "higher is better" if higher else "lower is better"
    defined = [e.value for e in found if e is not None and e.value is not None and not e.within_chance]
    best = None
    if higher is not None and len(set(defined)) > 1:
        best = max(defined) if higher else min(defined)
    cells = [
        Cell(text="not measured")
        if entry is None
        else Cell(shares=entry.shares)
        if entry.shares
        else Cell(
            entry.value,
            f"undefined: {entry.problem or 'no reason given'}",
            entry.value == best is not None,
            context=entry.context,
            within_chance=entry.within_chance,
        )
        for entry in found
    ]
    return Line(about.title, cells, about.meaning, wanted)


def _curves(runs: Mapping[str, Any], key: str) -> list[Markup]:
    return [
        inline(
            figures.learning_curves(runs, [term], legend=False), f"Learning curve of the {term}", f"{key}-{position}"
        )
        for position, term in enumerate(figures.terms_of(runs.values()))
    ]


def _is_run(settings: Mapping[str, Any]) -> bool:
    """Whether these are the settings of a training and of nothing else: what ``train --config`` takes."""
    known = all(isinstance(settings.get(name), Mapping) for name in ("world", "objective", "training"))
    return known and settings.keys() <= RUN_SECTIONS


def _side_by_side(tables: Sequence[Mapping[str, Any]]) -> list[Line]:
    """Settings of several findings, those that differ marked."""
    rows = []
    for key in dict.fromkeys(key for table in tables for key in table):
        texts = [_text(table[key]) if key in table else "–" for table in tables]
        rows.append(Line(key, [Cell(text=text) for text in texts], differs=len(set(texts)) > 1))
    return rows


def _picture(strip: Strip, limits: Limits | None = None) -> Picture:
    """The images of a strip in one PNG.

    Small ones are enlarged by whole pixels. The file has twice the pixels it is shown with: sharp on dense screens, and
    a browser that must shrink a strip to a phone's width averages neighbours instead of dropping lines.
    """
    images = strip.images
    shown = max(1, math.ceil(TILE / images.shape[-1]))
    dense = 2 if images.shape[2] < 3 else 1  # photographs gain nothing from it, and weigh four times as much
    image = figures.image_grid(images, limits=limits, enlarge=shown * dense)
    return Picture(figures.as_data_uri(image), image.width // dense, image.height // dense, strip)


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
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else json.dumps(value, default=str)
