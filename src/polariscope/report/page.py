"""The one-file HTML page of any findings: self-contained, so that it can be sent by mail and archived.

Several findings are shown side by side: values in one table with a column each, curves in the same axes, everything
else in columns. Each part renders itself (:meth:`polariscope.findings.Part.section`).
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from polariscope import plugins
from polariscope.documents import file_name
from polariscope.findings import Findings, Map, Part, Place
from polariscope.report import figures
from polariscope.report.blocks import Cell, Line, templates

HALF = 470
"""Pixels up to which a part fits into half of the page."""
RUN_SECTIONS = {"world", "objective", "model", "training", "split", "start"}
"""Sections of the configuration of a training."""


@dataclass(frozen=True)
class Section:
    """Parts of one name, of one or several findings."""

    name: str
    title: str
    hint: str
    content: Markup
    width: float = math.inf
    """Width of its one block in pixels; infinite if it fills the available width."""
    half: bool = False
    """Whether it shares its row with the section before or behind it."""

    @property
    def narrow(self) -> bool:
        return self.width <= HALF


def page(several: Sequence[Findings], title: str = "", beside: bool = False) -> str:
    """One HTML file about one document, or several side by side: self-contained, unless ``beside`` is set and files of
    the parts lie beside it."""
    if not several:
        raise ValueError("a page needs at least one document of findings; got none")
    names = distinct([findings.title for findings in several])
    colours = [figures.SUBJECTS[i % len(figures.SUBJECTS)] for i in range(len(several))]
    settings = [dict(_flat(findings.settings)) for findings in several]
    return (
        templates()
        .get_template("page.html.jinja")
        .render(
            title=title or names[0],
            names=names,
            several=several,
            palette=figures.PALETTE,
            sections=_paired([_section(name, several, names, colours, beside) for name in _order(several)]),
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
            whole=not (beside and any(findings.of(Map) for findings in several)),
        )
    )


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


def _section(
    name: str, several: Sequence[Findings], names: Sequence[str], colours: Sequence[str], beside: bool
) -> Section:
    parts: list[Part | None] = [next((p for p in f.parts if p.name == name), None) for f in several]
    places = [
        Place(subject, f"s{i}-{name}", colour, file_name(several, i, name) if beside else "")
        for i, (subject, colour) in enumerate(zip(names, colours, strict=True))
    ]
    first = next(part for part in parts if part is not None)
    content = Markup(first.section(parts, places))
    return Section(name, first.title, first.hint, content, first.width() if len(several) == 1 else math.inf)


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


def _is_run(settings: Mapping[str, Any]) -> bool:
    """Whether these are only the settings of a training, as ``train --config`` accepts them."""
    known = all(isinstance(settings.get(name), Mapping) for name in ("world", "objective", "training"))
    return known and settings.keys() <= RUN_SECTIONS


def _side_by_side(tables: Sequence[Mapping[str, Any]]) -> list[Line]:
    """Settings of several findings, those that differ marked."""
    rows = []
    for key in dict.fromkeys(key for table in tables for key in table):
        texts = [_text(table[key]) if key in table else "–" for table in tables]
        rows.append(Line(key, [Cell(text=text) for text in texts], differs=len(set(texts)) > 1))
    return rows


def distinct(names: Sequence[str]) -> list[str]:
    """The names, with a number appended to repeated ones.

    >>> distinct(["vae", "beta-vae", "vae"])
    ['vae', 'beta-vae', 'vae 2']
    """
    return [f"{n} {names[: i + 1].count(n)}" if n in names[:i] else n for i, n in enumerate(names)]


def as_toml(settings: Mapping[str, Any]) -> str:
    """A configuration as TOML. Entries that are None are skipped: TOML has no null value.

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
