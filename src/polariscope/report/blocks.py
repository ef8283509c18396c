"""Building blocks of a page: the HTML that the parts of a document are made of.

Each function returns HTML; parts of plug-ins can call them too. Numbers are shown rounded, and stored in full in
``<data value>``, so that a machine can read a page.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from PIL import Image

from polariscope.findings import Drawing, Map, Metric, Part, Pictures, Place, Records, Strip, Value
from polariscope.report import figures

TILE = 64
"""Width in pixels that pictures are shown at, at least."""
LARGEST_MAP = 2048
"""Side in pixels of a map inside a self-contained page; a map file beside a page has all pixels."""


@dataclass(frozen=True)
class Cell:
    """One cell of a table: a number, words if there is no number, or counts by kind."""

    value: float | None = None
    text: str = ""
    best: bool = False
    shares: Mapping[str, int] | None = None
    context: str = ""
    """The text below the number: its interval and chance level."""
    within_chance: bool = False


@dataclass(frozen=True)
class Line:
    """One row of a table that has a column for each of the findings."""

    label: str
    cells: Sequence[Cell]
    note: str = ""
    wanted: str = ""
    """Which direction is better, if one is."""
    protocol: str = ""
    """How the numbers were computed, if all were computed in the same way."""
    differs: bool = False


@dataclass(frozen=True)
class Picture:
    """A PNG inside the page, with the size to show it at."""

    source: str
    width: int
    height: int
    strip: Strip


@cache
def templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("polariscope", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "data": data}
    return environment


@cache
def _macros() -> Any:
    return templates().get_template("parts.html.jinja").module


def columns(parts: Sequence[Part | None], places: Sequence[Place]) -> Markup:
    """A column for each document, with a sentence where one has no such part."""
    blocks = [None if part is None else Markup(part.html(place)) for part, place in zip(parts, places, strict=True)]
    return Markup(_macros().columns(blocks, places))


def values(title: str, several: Sequence[Sequence[Value]], places: Sequence[Place]) -> Markup:
    """One table, with a column of values for each document."""
    return Markup(_macros().values(title, _lines(several), [place.subject for place in places]))


def records(part: Records, place: Place) -> Markup:
    return Markup(_macros().records(part, place.subject))


def strips(part: Pictures) -> Markup:
    return Markup(_macros().strips([_picture(strip, part.limits) for strip in part.strips]))


def map_picture(part: Map, place: Place) -> Markup:
    """A link to the file beside the page, or the picture itself in a self-contained page."""
    if place.file:
        return Markup(_macros().map(part, f"{place.file}.png"))
    image = Image.fromarray(part.image)
    image.thumbnail((LARGEST_MAP, LARGEST_MAP))
    return Markup(_macros().map(part, figures.as_data_uri(image)))


def curves(several: Sequence[Sequence[Metric]], places: Sequence[Place], name: str) -> Markup:
    """A panel for each term, with the curves of all documents in it."""
    runs = {place.subject: metrics for place, metrics in zip(places, several, strict=True)}
    panels = [
        figure(
            figures.drawing(figures.learning_curves(runs, [term], legend=False)),
            f"Learning curve of the {term}",
            f"{name}-{position}",
        )
        for position, term in enumerate(figures.terms_of(runs.values()))
    ]
    return Markup(_macros().curves(panels, places))


def figure(drawing: Drawing, label: str, key: str) -> Markup:
    return Markup('<figure class="scroll">{}</figure>').format(inline(drawing, label, key))


def inline(drawing: Drawing, label: str, key: str) -> Markup:
    """A drawing for the middle of a page: sized by the page, ids of its own, the page's colours, a label."""
    svg = drawing.svg[drawing.svg.index("<svg") :]
    svg = re.sub(r'(\sid="|url\(#|href="#)', rf"\1{key}-", svg)
    for name, (light, _) in figures.PALETTE.items():
        svg = svg.replace(light, f"var(--{name})")
    head, body = svg.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', head)
    assert box is not None
    width, height = f"{drawing.width:.0f}", f"{drawing.height:.0f}"
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" {box[0]} role="img" '
        f'aria-label="{escape(label)}" style="--natural: {width}px; aspect-ratio: {width} / {height}">'
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


def _lines(several: Sequence[Sequence[Value]]) -> list[Line]:
    """A line for each value of any, the best marked where one direction is better."""
    known = {entry.name: entry for entries in several for entry in reversed(entries)}
    order = [entry.name for entries in several for entry in entries]
    return [
        _line(known[name], [next((e for e in entries if e.name == name), None) for entries in several])
        for name in dict.fromkeys(order)
    ]


def _line(about: Value, entries: Sequence[Value | None]) -> Line:
    higher = about.higher_is_better
    wanted = "" if higher is None else "higher is better" if higher else "lower is better"
    defined = [e.value for e in entries if e is not None and e.value is not None and not e.within_chance]
    best = None
    if higher is not None and len(set(defined)) > 1:
        best = max(defined) if higher else min(defined)
    protocols = {entry.protocol for entry in entries if entry is not None and entry.value is not None}
    alike = len(protocols) == 1
    cells = [
        Cell(text="not measured")
        if entry is None
        else Cell(shares=entry.shares)
        if entry.shares
        else Cell(
            entry.value,
            f"undefined: {entry.problem or 'no reason given'}",
            entry.value == best is not None,
            context=entry.context if alike or not entry.protocol else f"{entry.context}; {entry.protocol}",
            within_chance=entry.within_chance,
        )
        for entry in entries
    ]
    return Line(about.title, cells, about.meaning, wanted, protocol=protocols.pop() if alike else "")


def _picture(strip: Strip, limits: tuple[float, float] | None = None) -> Picture:
    """The images of a strip in one PNG.

    Small ones are enlarged by whole pixels. The file has twice the pixels it is shown with: sharp on dense screens, and
    a browser that must shrink a strip to a phone's width averages neighbours instead of dropping lines.
    """
    images = strip.images
    shown = max(1, math.ceil(TILE / images.shape[-1]))
    dense = 2 if images.shape[2] < 3 else 1  # photographs gain nothing from it, and weigh four times as much
    image = figures.image_grid(images, limits=limits, enlarge=shown * dense)
    return Picture(figures.as_data_uri(image), image.width // dense, image.height // dense, strip)
