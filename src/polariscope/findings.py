"""Findings: the one document format of all results.

Typed results are dataclasses to compute with; each has ``findings()``, which makes this document from it: a headline
and parts (values, tables, figures, pictures, curves, text), notes, facts for machines, arrays, and the settings. The
page, the terminal, JSON, Markdown and notebooks all show the same document. :meth:`Findings.save` writes it, and
:meth:`Findings.load` reads the same document from its folder again (:mod:`polariscope.documents`). A new kind of result
needs a function with a typed result, and nothing else.

Parts render themselves. A part of your own derives from :class:`Part` and defines at least one of :meth:`Part.html`,
:meth:`Part.text` and :meth:`Part.plain`; the others are derived from those it defines.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from polariscope.command import again
from polariscope.strict_json import json_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType

Row = Mapping[str, Any]
Metric = tuple[int, str, str, float]
"""A point of a learning curve: step, split, term, value."""
P = TypeVar("P", bound="Part")


@dataclass(frozen=True)
class Place:
    """The place of a part on a page."""

    subject: str
    """The title of the document, for labels."""
    key: str
    """Prefix of the ids inside the part, so that all ids of a page differ."""
    colour: str = ""
    """The name of the document's colour."""
    file: str = ""
    """Name of the part's files beside the page, without the suffix; empty for a self-contained page."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A section of the document. If several findings share a page, parts of the same name are shown side by side.

    A kind of part defines at least one of :meth:`html`, :meth:`text` and :meth:`plain`. One that defines none of them
    is shown by its title and hint.

    >>> class Poem(Part):
    ...     def text(self):
    ...         return "Roses are red,\\nviolets are blue."
    >>> Findings("mine", "A poem.", [Poem(name="poem", title="A poem")]).json()["poem"]
    ['Roses are red,', 'violets are blue.']
    """

    kinds: ClassVar[dict[str, type[Part]]] = {}
    """Every known class of parts by its name, for reading documents."""
    name: str
    """What machines call it: the key in JSON, the anchor on the page, the file of a figure."""
    title: str
    hint: str = ""
    """A hint for the reader."""

    def __init_subclass__(cls) -> None:
        Part.kinds[cls.__name__] = cls

    def kept(self) -> dict[str, Any]:
        """The fields to read the part back from: numbers, text, lists, mappings, arrays and dataclasses of these."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def files(self) -> Mapping[str, Callable[[Path], object]]:
        """Files for people beside the page: what writes each, by its ending."""
        return {}

    def plain(self) -> Any:
        """The part for machines, JSON-ready: by default the lines of its text. None where it is for eyes only."""
        return self.text().splitlines() if type(self).text is not Part.text else None

    def text(self) -> str:
        """The part in plain text of one or more lines: by default what machines read. Empty if it has no words."""
        plain = self.plain() if type(self).plain is not Part.plain else None
        return "" if plain is None else json_text(plain, indent=1)

    def html(self, place: Place) -> str:
        """The part on the page, below its title and hint: by default its text. Words in it have to be escaped."""
        text = self.text()
        return f'<pre tabindex="0">{escape(text)}</pre>' if text else ""

    def markdown(self, pictures: str | None = "") -> list[str] | None:
        """Lines of Markdown below the title and the hint; None leaves all of the part out. Figures are files in
        ``pictures``; with None there are none."""
        return [f"    {line}" for line in self.text().splitlines()]

    def terminal(self, later: Sequence[Part] = ()) -> Iterable[RenderableType]:
        """The terminal output: by default the title with the text, or with the hint if there is no text. ``later`` are
        the parts that follow, whose content need not be repeated."""
        from polariscope.report.terminal import titled

        return titled(self.title, (self.text() or self.hint).splitlines())

    def section(self, parts: Sequence[Part | None], places: Sequence[Place]) -> str:
        """The whole section on the page: this part, and the parts of the same name of the documents beside it (None if
        one has no such part). By default each has a column."""
        from polariscope.report.blocks import columns

        return columns(parts, places)

    def width(self) -> float:
        """Approximate width in pixels if it is alone; infinite if it fills the available width."""
        return math.inf


@dataclass(frozen=True)
class Value:
    """One number with its meaning, or a sentence with the reason why it is undefined."""

    name: str
    title: str
    value: float | None
    higher_is_better: bool | None = None
    problem: str = ""
    meaning: str = ""
    shares: Mapping[str, int] = field(default_factory=dict)
    """Counts by kind, shown in place of the number."""
    interval: tuple[float, float] | None = None
    """Of 95 %."""
    chance: float | None = None
    """Chance level on the same data, for numbers that are not 0 by chance."""
    within_chance: bool = False
    """Whether the number does not exceed chance."""
    protocol: str = ""
    """The variant of a published number, and the data it was computed on."""

    def text(self) -> str:
        """
        >>> Value("mig", "Mutual information gap", 0.123456).text(), Value("mig", "", None, problem="no factors").text()
        ('0.1235', 'undefined: no factors')
        >>> Value("types", "Variables", None, shares={"active": 2, "passive": 1}).text()
        '2 active / 1 passive'
        >>> Value("mig", "MIG", 0.5, interval=(0.4, 0.6), chance=0.01).text()
        '0.5 (0.4 to 0.6; by chance 0.01)'
        >>> Value("mig", "MIG", 0.02, chance=0.03, within_chance=True).text()
        'no more than chance: 0.02 (by chance 0.03)'
        """
        if self.shares:
            return " / ".join(f"{count} {kind}" for kind, count in self.shares.items())
        if self.value is None:
            return f"undefined: {self.problem}"
        context = f" ({self.context})" if self.context else ""
        return f"{'no more than chance: ' if self.within_chance else ''}{self.value:.4g}{context}"

    def line(self) -> str:
        """Title, number and protocol.

        >>> Value("mig", "MIG", 0.5, interval=(0.4, 0.6), protocol="9 examples, 20 bins").line()
        'MIG: 0.5 (0.4 to 0.6). Protocol: 9 examples, 20 bins'
        """
        return f"{self.title}: {self.text()}" + (f". Protocol: {self.protocol}" if self.protocol else "")

    @property
    def context(self) -> str:
        """Interval and chance level, where there are any."""
        words = [] if self.interval is None else [f"{self.interval[0]:.3g} to {self.interval[1]:.3g}"]
        return "; ".join([*words, *([] if self.chance is None else [f"by chance {self.chance:.3g}"])])


@dataclass(frozen=True, kw_only=True)
class Values(Part):
    """Single numbers; of several findings, one column each."""

    entries: Sequence[Value]

    def plain(self) -> dict[str, Any]:
        return {entry.name: dict(entry.shares) or entry.value for entry in self.entries}

    def text(self) -> str:
        return "\n".join(entry.line() for entry in self.entries)

    def html(self, place: Place) -> str:
        return self.section([self], [place])

    def section(self, parts: Sequence[Part | None], places: Sequence[Place]) -> str:
        from polariscope.report.blocks import values

        return values(self.title, [part.entries if isinstance(part, Values) else () for part in parts], places)

    def markdown(self, pictures: str | None = "") -> list[str] | None:
        return [f"- {entry.line()}" for entry in self.entries] or None

    def terminal(self, later: Sequence[Part] = ()) -> Iterable[RenderableType]:
        from polariscope.report.terminal import titled

        entries = [*self.entries, *(entry for part in later if isinstance(part, Values) for entry in part.entries)]
        last = {entry.name: entry for entry in entries}  # a summary repeats some of what follows
        shown = [entry for entry in self.entries if entry is last[entry.name]]
        lines = [[f"{e.title}: {e.text()}", *([f"  {e.protocol}"] if e.protocol else [])] for e in shown]
        return titled(self.title, [line for several in lines for line in several])

    def width(self) -> float:
        if any(entry.meaning or entry.problem for entry in self.entries):
            return math.inf
        return 120 + 8.5 * max((len(entry.title) for entry in self.entries), default=0)


@dataclass(frozen=True)
class Column:
    """How a key of the rows is shown: as it is, or as a number in a printf form; ``percent`` is one of a share."""

    key: str
    title: str
    form: str = ""
    short: str = ""
    """For the terminal; the title if not given."""
    bar: str = ""
    """A key of the row that names the colour of a bar from 0 to 1 beside the number."""
    badge: bool = False
    """Whether the text names a type, which has a colour."""
    aside: bool = False
    """Hidden where there is little room, such as on the terminal."""
    link: str = ""
    """A key of the row that holds the address which the text links to."""

    @property
    def numeric(self) -> bool:
        return bool(self.form)

    def text(self, row: Row) -> str:
        """The cell in plain text.

        >>> Column("share", "Share", "percent").text({"share": 0.123}), Column("dead", "Dead").text({"dead": True})
        ('12.3 %', 'yes')
        """
        value = row.get(self.key)
        if value is None:
            return ""
        if isinstance(value, bool | np.bool_):
            return "yes" if value else "no"
        if not self.form or isinstance(value, str):
            return str(value)
        return f"{100 * value:.1f} %" if self.form == "percent" else self.form % value

    def address(self, row: Row) -> str:
        """Where the cell links to: a file near the page or a page of the web; empty if nowhere."""
        link = str(row.get(self.link) or "")
        return link if link.startswith(("http://", "https://")) or ":" not in link else ""

    def linked(self, row: Row) -> str:
        """The cell in Markdown."""
        return f"[{self.text(row)}]({link})" if (link := self.address(row)) else self.text(row)


@dataclass(frozen=True, kw_only=True)
class Records(Part):
    """Rows of the same columns."""

    rows: Sequence[Row]
    columns: Sequence[Column]

    def plain(self) -> list[dict[str, Any]]:
        return [dict(row) for row in self.rows]

    @property
    def shown(self) -> list[Column]:
        """Columns that any row has something in."""
        return [column for column in self.columns if any(column.text(row) for row in self.rows)]

    @property
    def wordy(self) -> bool:
        """Whether cells hold sentences."""
        return any(len(column.text(row)) > 60 for column in self.shown for row in self.rows)

    def html(self, place: Place) -> str:
        from polariscope.report.blocks import records

        return records(self, place)

    def markdown(self, pictures: str | None = "") -> list[str] | None:
        if not self.rows:
            return None
        return markdown_table([{column.title: column.linked(row) for column in self.shown} for row in self.rows])

    def terminal(self, later: Sequence[Part] = ()) -> Iterable[RenderableType]:
        from polariscope.report.terminal import table

        return table(self) if self.rows else ()

    def width(self) -> float:
        if self.wordy or not self.rows:
            return math.inf
        letters = [max(len(c.title) / 2, *(len(c.text(row)) for row in self.rows)) for c in self.shown]
        return sum(8.5 * count + 22 + 94 * bool(c.bar) for count, c in zip(letters, self.shown, strict=True))


def rows_of(things: Iterable[Any], columns: Sequence[Column]) -> list[dict[str, Any]]:
    """A row for each thing, from its attributes that are called as the columns."""
    return [{column.key: getattr(thing, column.key) for column in columns} for thing in things]


def markdown_table(rows: Sequence[Row]) -> list[str]:
    """Rows of the same columns in Markdown, as they are.

    >>> markdown_table([{"a": 1, "b": "x|y"}])
    ['| a | b |', '|---|---|', '| 1 | x\\\\|y |']
    """
    columns = list(rows[0]) if rows else []
    cells = [[str(row[name]).replace("|", "\\|").replace("\n", " ") for name in columns] for row in rows]
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    return lines + [f"| {' | '.join(row)} |" for row in cells]


class Seen:
    """What parts for eyes only have in common: the terminal and Markdown leave them out."""

    def terminal(self, later: Sequence[Part] = ()) -> Iterable[RenderableType]:
        return ()

    def markdown(self, pictures: str | None = "") -> list[str] | None:
        return None


@dataclass(frozen=True)
class Drawing:
    """A figure as it is shown on pages."""

    svg: str
    width: float
    """Pixels of a screen of usual density."""
    height: float


def _undrawn() -> Figure:
    raise ValueError("a figure that was read from a document is there as SVG only: name an .svg file")


@dataclass(frozen=True, kw_only=True, eq=False)
class Chart(Seen, Part):
    """A figure, drawn when it is needed."""

    draw: Callable[[], Figure] = _undrawn
    drawn: Drawing | None = None
    """The stored figure, if it was read from a file."""

    @cached_property
    def drawing(self) -> Drawing:
        """The figure for pages, drawn once."""
        from polariscope.report.figures import drawing

        return drawing(self.draw()) if self.drawn is None else self.drawn

    def kept(self) -> dict[str, Any]:
        return {"name": self.name, "title": self.title, "hint": self.hint, "drawn": self.drawing}

    def files(self) -> Mapping[str, Callable[[Path], object]]:
        return {".png": partial(self.write, kind="png")} if self.drawn is None else {}

    def write(self, path: Path, kind: str) -> None:
        """Write the figure as a picture, ``png`` or ``svg``."""
        from polariscope.report.figures import plain_axes

        if self.drawn is not None and kind == "svg":
            path.write_text(self.drawn.svg, encoding="utf-8")
        else:
            plain_axes(self.draw()).savefig(path, format=kind, dpi=130, bbox_inches="tight")

    def html(self, place: Place) -> str:
        from polariscope.report.blocks import figure

        return figure(self.drawing, f"{self.title} of {place.subject}", place.key)

    def markdown(self, pictures: str | None = "") -> list[str] | None:
        return None if pictures is None else [f"![{self.title}]({pictures}{self.name}.png)"]

    def width(self) -> float:
        return round(self.drawing.width)


@dataclass(frozen=True, kw_only=True)
class Curves(Seen, Part):
    """Terms over the steps of a training; several findings share the same axes."""

    metrics: Sequence[Metric]

    def html(self, place: Place) -> str:
        return self.section([self], [place])

    def section(self, parts: Sequence[Part | None], places: Sequence[Place]) -> str:
        from polariscope.report.blocks import curves

        # A document without curves keeps its place, and the others with it their colours.
        return curves([part.metrics if isinstance(part, Curves) else () for part in parts], places, self.name)


@dataclass(frozen=True, eq=False)
class Strip:
    """Images ``(rows, columns, c, h, w)`` in one picture, with its name."""

    images: NDArray[Any]
    label: str = ""
    type: str = ""
    note: str = ""
    says: str = ""
    """Description of the picture, for readers who cannot see it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Pictures(Seen, Part):
    """Images of the data's kind."""

    strips: Sequence[Strip]
    limits: tuple[float, float] | None = None
    """The numbers of floats that are shown as black and as white."""

    def html(self, place: Place) -> str:
        from polariscope.report.blocks import strips

        return strips(self)


@dataclass(frozen=True, kw_only=True, eq=False)
class Map(Part):
    """One large picture, such as a map: a PNG beside the page, with a legend. A self-contained page embeds it, reduced
    if it is very large."""

    image: NDArray[np.uint8]
    """``(height, width)``, or with 3 or 4 channels last."""
    legend: Mapping[str, str] = field(default_factory=dict)
    """Meaning of the colours: ``{"forest": "#228b22"}``."""
    extent: tuple[float, float, float, float] | None = None
    """Left, bottom, right and top edge, in the units of ``reference``."""
    reference: str = ""
    """Coordinate system of the extent, such as ``EPSG:25832, metres``."""
    says: str = ""
    """Description of the picture, for readers who cannot see it."""

    def __post_init__(self) -> None:
        image = self.image
        if image.dtype != np.uint8 or image.ndim not in (2, 3) or (image.ndim == 3 and image.shape[2] not in (3, 4)):
            raise ValueError(
                f"a map needs uint8 (height, width) or (height, width, 3 or 4); got {image.dtype} {image.shape}"
            )
        for label, colour in self.legend.items():
            if not re.fullmatch(r"#[0-9a-fA-F]{6}", colour):
                raise ValueError(f"the colour of {label!r} in the legend is {colour!r}: it needs to be like '#228b22'")

    def plain(self) -> dict[str, Any]:
        size = {"height": self.image.shape[0], "width": self.image.shape[1]}
        extent = None if self.extent is None else list(self.extent)
        return {**size, "legend": dict(self.legend), "extent": extent, "reference": self.reference}

    def text(self) -> str:
        height, width = self.image.shape[:2]
        where = [] if self.extent is None else ["from ({:.10g}, {:.10g}) to ({:.10g}, {:.10g}) ".format(*self.extent)]
        where = [f"{''.join(where)}{self.reference}"] if where or self.reference else []
        colours = [f"{colour}: {label}" for label, colour in self.legend.items()]
        return "\n".join([*([self.says] if self.says else []), f"{width} x {height} pixels", *where, *colours])

    def html(self, place: Place) -> str:
        from polariscope.report.blocks import map_picture

        return map_picture(self, place)

    def markdown(self, pictures: str | None = "") -> list[str] | None:
        image = [] if pictures is None else [f"![{self.title}]({pictures}{self.name}.png)", ""]
        return [*image, *(f"- {line}" for line in self.text().splitlines())]

    def files(self) -> Mapping[str, Callable[[Path], object]]:
        from PIL import Image

        return {".png": partial(Image.fromarray(self.image).save, format="PNG")}


@dataclass(frozen=True, kw_only=True)
class Shown(Part):
    """A part that was read back without the code of its kind, such as that of a plug-in: as it was last shown."""

    kind: str
    markup: str
    words: str
    data: Any = None

    def plain(self) -> Any:
        return self.data

    def text(self) -> str:
        return self.words

    def html(self, place: Place) -> str:
        return self.markup


@dataclass(frozen=True, kw_only=True)
class Text(Part):
    """Sentences."""

    lines: Sequence[str]

    def plain(self) -> list[str]:
        return list(self.lines)

    def text(self) -> str:
        return "\n".join(self.lines)

    def html(self, place: Place) -> str:
        return f'<ul class="said">{"".join(f"<li>{escape(line)}</li>" for line in self.lines)}</ul>'

    def markdown(self, pictures: str | None = "") -> list[str] | None:
        return [f"- {line}" for line in self.lines] or None

    def terminal(self, later: Sequence[Part] = ()) -> Iterable[RenderableType]:
        return [f"  {line}" for line in self.lines]


@dataclass(frozen=True, eq=False, repr=False)
class Findings:
    """The document of one result, in the form in which it is shown, stored and sent.

    >>> document = Findings("mine", "Two variables are used.", [Values(name="measures", title="Measures",
    ...     entries=[Value("mig", "Mutual information gap", 0.5, True)])])
    >>> document.json()["measures"], document
    ({'mig': 0.5}, <Findings: Two variables are used.>)
    """

    title: str
    """The subject of the findings."""
    headline: str
    """The result in a sentence."""
    parts: Sequence[Part] = ()
    notes: Sequence[str] = ()
    """Notes and warnings for the reader."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """JSON-ready figures for machines that no table shows."""
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    """How it was made: the configuration of a run, or the options of a command."""
    environment: Mapping[str, Any] = field(default_factory=dict)
    command: str = field(default_factory=again)
    """The command that makes the document again; empty for a document made in Python."""

    def __repr__(self) -> str:
        return f"<Findings: {self.headline}>"

    def _repr_html_(self) -> str:
        from polariscope.report.page import page

        frame = "width: 100%; height: 640px; border: 1px solid #dbe2e9"
        return f'<iframe srcdoc="{escape(page([self]))}" style="{frame}"></iframe>'

    def of(self, kind: type[P]) -> list[P]:
        """The parts of one kind."""
        return [part for part in self.parts if isinstance(part, kind)]

    def json(self) -> dict[str, Any]:
        """The document for machines: without arrays and pictures, which have files of their own."""
        parts = {part.name: plain for part in self.parts if (plain := part.plain()) is not None}
        undefined = {v.name: v.problem for values in self.of(Values) for v in values.entries if v.problem}
        document = {"title": self.title, "headline": self.headline, **self.facts, **parts, "undefined": undefined}
        made = {"command": self.command} if self.command else {}
        return {**document, "notes": list(self.notes), "settings": dict(self.settings), **made}

    def save(self, path: Path | str) -> Path:
        """Write the document, and return the file to open.

        A path that ends in ``.html`` gets the page alone, one in ``.png`` or ``.svg`` the first figure. Any other path
        is a folder: ``report.html``, ``findings.json`` for machines, a picture for each figure and map,
        ``arrays.safetensors``, and ``document.json``, from which :meth:`load` makes the same document.
        """
        return save([self], path)

    @staticmethod
    def load(folder: Path | str) -> Findings:
        """The document that :meth:`save` wrote into a folder; of folders of earlier versions, what machines read."""
        from polariscope.documents import load

        several = load(folder)
        if len(several) != 1:
            raise ValueError(f"{folder} holds {len(several)} documents: polariscope.documents.load reads them all")
        return several[0]


def save(several: Sequence[Findings], path: Path | str, title: str = "", figures: bool = True) -> Path:
    """Write one document of one or several findings; see :meth:`Findings.save`. Without ``figures`` a folder gets no
    picture files of figures: the page has them."""
    from polariscope import documents

    return documents.save(several, path, title, figures)
