"""Documents as files: findings are written to a folder, and the same findings are read from it again.

A folder holds the page for people (``report.html``), what ``--json`` prints for machines (``findings.json``), figures
(SVG) and maps (PNG), the arrays of the findings (``arrays.safetensors``), and the source for reading the document back:
``document.json``, with the arrays of its parts in ``parts.safetensors``. A part is stored by its fields
(:meth:`polariscope.findings.Part.kept`). A part of a plug-in is also stored as it is shown, for readers without the
plug-in.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from polariscope.atomic import atomic
from polariscope.findings import Chart, Column, Drawing, Findings, Part, Place, Records, Shown, Text, Value, Values
from polariscope.foreign_files import check_regular, reading
from polariscope.strict_json import json_text

FORMAT = 1
PAGE, MACHINES, DOCUMENT = "report.html", "findings.json", "document.json"
ARRAYS, PART_ARRAYS = "arrays.safetensors", "parts.safetensors"
LARGEST = 2**28
"""Bytes of a document that is still read."""
Arrays = dict[str, NDArray[Any]]


@dataclass
class _Files:
    """What a document has outside of its JSON."""

    arrays: Arrays = field(default_factory=dict)
    drawings: dict[str, str] = field(default_factory=dict)
    """SVG by the name of its file."""
    folder: Path = Path()
    """Where they are read from."""

    def drawing(self, name: Any) -> str:
        file = self.folder / str(name)
        if Path(str(name)).name != name:
            raise ValueError(f"its figure {name!r} is not in the folder of the document")
        check_regular(file)
        svg = file.read_text(encoding="utf-8")
        check_markup(svg)
        return svg


PICTURES = (".png", ".svg")
"""Endings of a file that gets the first figure alone; ``.html`` is a page, and anything else the name of a folder."""


def save(several: Sequence[Findings], path: Path | str, title: str = "", figures: bool = True) -> Path:
    """Write one document of one or several findings; see :func:`polariscope.findings.save`."""
    from polariscope.report.page import page

    path = Path(path)
    if path.suffix in PICTURES:
        charts = [chart for findings in several for chart in findings.of(Chart)]
        if not charts:
            raise ValueError(f"{path} needs a figure, and these findings have none: give a path that ends in .html")
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic(path) as draft:
            charts[0].write(draft, path.suffix[1:])
        return path
    if path.suffix == ".html":
        html = page(several, title)
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, html)
        return path
    html = page(several, title, beside=True)
    files = _Files()
    kept = [_document(several, number, files) for number in range(len(several))]
    jsons = [findings.json() for findings in several]
    arrays = {f"{_prefix(several, n, '/')}{name}": a for n, f in enumerate(several) for name, a in f.arrays.items()}
    path.mkdir(parents=True, exist_ok=True)
    _write(path / MACHINES, json_text(jsons[0] if len(jsons) == 1 else jsons, indent=1) + "\n")
    for file, tensors in ((ARRAYS, arrays), (PART_ARRAYS, files.arrays)):
        if tensors:
            with atomic(path / file) as draft:
                save_file({name: np.ascontiguousarray(array) for name, array in tensors.items()}, draft)
        else:
            (path / file).unlink(missing_ok=True)  # those of a document that was here before
    for file, svg in files.drawings.items():
        _write(path / file, svg)
    for number, findings in enumerate(several):
        for part in findings.parts:
            for ending, write in part.files().items() if figures or not isinstance(part, Chart) else ():
                with atomic(path / f"{file_name(several, number, part.name)}{ending}") as draft:
                    write(draft)
    _write(path / DOCUMENT, json_text({"format": FORMAT, "title": title, "findings": kept}) + "\n")
    _write(path / PAGE, html)
    return path / PAGE


def file_name(several: Sequence[Findings], number: int, part: str) -> str:
    """What files of a part are called, without the ending."""
    return _prefix(several, number, "-") + re.sub(r"[^\w.-]+", "-", part)


def _prefix(several: Sequence[Findings], number: int, mark: str) -> str:
    """The number of a document, where there are several."""
    return "" if len(several) == 1 else f"{number + 1}{mark}"


def load(folder: Path | str) -> list[Findings]:
    """The findings of a folder, or of the folder that a page is in. They are shown and saved like the original. A
    folder of an earlier version has less; its JSON becomes tables and values.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     opened = Findings("mine", "One reason.", [Text(name="why", title="Why", lines=["Rain."])]).save(place)
    ...     load(opened)[0].json()["why"]
    ['Rain.']
    """
    folder = Path(folder)
    folder = folder.parent if folder.suffix in (".html", ".json") else folder
    file = folder / DOCUMENT
    if not file.exists():
        if not (folder / MACHINES).exists():
            raise ValueError(f"{folder} holds no document: neither {DOCUMENT} nor {MACHINES} is there")
        content = _json(folder / MACHINES)
        with reading(folder / MACHINES, "findings as JSON"):
            several = content if isinstance(content, list) else [content]
            arrays = _tensors(folder / ARRAYS)
            return [_older(one, _own(arrays, n, len(several))) for n, one in enumerate(several)]
    document = _json(file)
    with reading(file, "a document of findings"):
        if document["format"] > FORMAT:
            raise ValueError(f"{file}: format {document['format']} is newer than this version, which reads {FORMAT}")
        arrays, files = _tensors(folder / ARRAYS), _Files(_tensors(folder / PART_ARRAYS), folder=folder)
        count = len(document["findings"])
        return [_findings(one, _own(arrays, n, count), files) for n, one in enumerate(document["findings"])]


def headlines(folder: Path) -> list[tuple[str, str]]:
    """Title and headline of each findings in a folder, without reading the rest."""
    data = _json(folder / MACHINES)
    with reading(folder / MACHINES, "findings as JSON"):
        return [(str(one["title"]), str(one["headline"])) for one in (data if isinstance(data, list) else [data])]


def _write(path: Path, text: str) -> None:
    with atomic(path) as draft:
        draft.write_text(text, encoding="utf-8")


def _json(file: Path) -> Any:
    check_regular(file)
    with reading(file, "JSON of findings"):
        if file.stat().st_size > LARGEST:
            raise ValueError(f"it has more than {LARGEST:,} bytes")
        return json.loads(file.read_text(encoding="utf-8"))


def _tensors(file: Path) -> Arrays:
    if not file.exists():
        return {}
    check_regular(file)
    with reading(file, "arrays in safetensors"):
        return load_file(file)


def _own(arrays: Arrays, number: int, count: int) -> Arrays:
    """The arrays of one of several findings."""
    start = "" if count == 1 else f"{number + 1}/"
    return {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}


class _UnknownError(Exception):
    """A value, or the class of one, that cannot be kept or read back."""


def _document(several: Sequence[Findings], number: int, files: _Files) -> dict[str, Any]:
    findings = several[number]
    about = ("title", "headline", "notes", "facts", "settings", "environment", "command")
    plain = {name: _encoded(getattr(findings, name)) for name in about}
    names = [file_name(several, number, part.name) for part in findings.parts]
    names = [name if name not in names[:n] else f"{name}-{n}" for n, name in enumerate(names)]
    parts = [_part(part, name, findings.title, files) for part, name in zip(findings.parts, names, strict=True)]
    return {**plain, "parts": parts}


def _part(part: Part, name: str, subject: str, files: _Files) -> dict[str, Any]:
    """A part by its fields; one that is none of ours also as it is shown."""
    described: dict[str, Any] = {"kind": type(part).__name__}
    own = _Files()
    with suppress(_UnknownError):
        described["fields"] = {key: _encoded(value, f"{name}/{key}", own) for key, value in part.kept().items()}
        files.arrays |= own.arrays
        files.drawings |= own.drawings
    if not type(part).__module__.startswith("polariscope.") or "fields" not in described:
        shown = {"name": part.name, "title": part.title, "hint": part.hint, "words": part.text(), "data": part.plain()}
        markup = str(part.html(Place(subject, f"s0-{part.name}")))
        described["shown"] = _encoded({**shown, "markup": markup})
    return described


def _findings(kept: Mapping[str, Any], arrays: Arrays, files: _Files) -> Findings:
    parts = [_read_part(part, files) for part in kept["parts"]]
    about = {name: _decoded(value) for name, value in kept.items() if name != "parts"}
    return Findings(parts=parts, arrays=arrays, **about)


def _read_part(described: Mapping[str, Any], files: _Files) -> Part:
    cls = Part.kinds.get(described["kind"])
    if cls is not None and "fields" in described:
        modules = [vars(sys.modules[base.__module__]) for base in cls.__mro__ if base.__module__ in sys.modules]
        with suppress(_UnknownError, TypeError):
            return cls(**{name: _decoded(value, files, modules) for name, value in described["fields"].items()})
    if "shown" not in described:
        raise ValueError(f"its part of the kind {described['kind']!r} is unknown: a newer version may have written it")
    shown = _decoded(described["shown"])
    check_markup(shown["markup"])
    return Shown(kind=described["kind"], **shown)


def _encoded(value: Any, place: str = "", files: _Files | None = None) -> Any:
    """A value as JSON. Arrays and figures go to ``files`` under names that begin with ``place``; without files, arrays
    are lists, and what JSON cannot say is its own text."""
    if files is not None and isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        files.arrays[place] = value
        return {"$array": place}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": repr(value)}
    if isinstance(value, Mapping):
        pairs = [(key, _encoded(item, f"{place}/{key}", files)) for key, item in value.items()]
        plain = all(isinstance(key, str) and not key.startswith("$") for key in value)
        return dict(pairs) if plain else {"$items": pairs}
    if is_dataclass(value) and not isinstance(value, type):
        named = {f.name: _encoded(getattr(value, f.name), f"{place}/{f.name}", files) for f in fields(value)}
        if files is not None and isinstance(value, Drawing):
            file = f"{place.partition('/')[0]}{f'-{len(files.drawings)}' if files.drawings else ''}.svg"
            files.drawings[file] = value.svg
            named["svg"] = {"$svg": file}
        return {"$is": type(value).__name__, **named}
    if isinstance(value, Sequence | set | frozenset):
        items = [_encoded(item, f"{place}/{number}", files) for number, item in enumerate(value)]
        return {"$tuple": items} if files is not None and isinstance(value, tuple) else items
    if files is None or isinstance(value, Path):
        return str(value)
    raise _UnknownError(type(value).__name__)


def _decoded(value: Any, files: _Files | None = None, modules: Sequence[Mapping[str, Any]] = ()) -> Any:
    if isinstance(value, list):
        return [_decoded(item, files, modules) for item in value]
    if not isinstance(value, dict):
        return value
    if files is not None and "$array" in value:
        return files.arrays[value["$array"]]
    if files is not None and "$svg" in value:
        return files.drawing(value["$svg"])
    if "$float" in value:
        return float(value["$float"])
    if "$tuple" in value:
        return tuple(_decoded(item, files, modules) for item in value["$tuple"])
    if "$items" in value:
        return {key: _decoded(item, files, modules) for key, item in value["$items"]}
    items = {key: _decoded(item, files, modules) for key, item in value.items() if key != "$is"}
    if "$is" not in value:
        return items
    cls = next((module[value["$is"]] for module in modules if value["$is"] in module), None)
    if not (isinstance(cls, type) and is_dataclass(cls)):
        raise _UnknownError(value["$is"])
    return cls(**items)


def _older(record: Mapping[str, Any], arrays: Arrays) -> Findings:
    """Findings from what machines read, which is all that earlier versions kept besides the page."""
    about = {"title", "headline", "undefined", "notes", "settings", "command"}
    undefined = record.get("undefined", {})
    parts: list[Part] = []
    facts: dict[str, Any] = {}
    for name, value in record.items():
        title = name.replace("_", " ").capitalize()
        if name in about:
            continue
        if isinstance(value, list) and value and all(isinstance(row, Mapping) for row in value):
            keys = dict.fromkeys(key for row in value for key in row)
            columns = [Column(key, key.replace("_", " "), _form(row.get(key) for row in value)) for key in keys]
            parts.append(Records(name=name, title=title, rows=value, columns=columns))
        elif isinstance(value, list) and value and all(isinstance(line, str) for line in value):
            parts.append(Text(name=name, title=title, lines=value))
        elif isinstance(value, Mapping) and value and all(_is_value(one) for one in value.values()):
            parts.append(Values(name=name, title=title, entries=list(_entries(value, undefined))))
        else:
            facts[name] = value
    named = {key: record[key] for key in ("title", "headline", "notes", "settings") if key in record}
    return Findings(parts=parts, facts=facts, arrays=arrays, command=record.get("command", ""), **named)


def _form(values: Iterator[Any]) -> str:
    return "%.4g" if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values) else ""


def _is_value(value: Any) -> bool:
    number = value is None or (isinstance(value, int | float) and not isinstance(value, bool))
    return number or (isinstance(value, Mapping) and bool(value) and all(type(one) is int for one in value.values()))


def _entries(values: Mapping[str, Any], undefined: Mapping[str, str]) -> Iterator[Value]:
    for name, value in values.items():
        shares = value if isinstance(value, Mapping) else {}
        yield Value(name, name.replace("_", " "), None if shares else value, None, undefined.get(name, ""), "", shares)


SAFE_TAGS = re.compile(
    "a|abbr|b|br|caption|circle|clippath|code|data|dd|defs|desc|details|div|dl|dt|ellipse|em|figcaption|figure|g|h3|h4|"
    "hr|i|image|img|li|line|lineargradient|marker|mask|metadata|ol|p|path|pattern|polygon|polyline|pre|radialgradient|"
    "rect|small|span|stop|strong|style|sub|summary|sup|svg|symbol|table|tbody|td|text|th|thead|time|title|tr|tspan|u|"
    "ul|use|[a-z]+:[a-z]+"
)
"""Elements that a picture or a part from a file may consist of; those of metadata have a colon in their name."""


class _Markup(HTMLParser):
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if not SAFE_TAGS.fullmatch(tag):
            raise ValueError(f"it holds markup with the element {tag!r}, which documents do not have")
        for name, value in attrs:
            address = name in ("href", "xlink:href", "src")
            allowed = ("#", "data:image/png", "data:image/jpeg") + (("http://", "https://") if tag == "a" else ())
            if name.startswith("on") or (address and not (value or "#").startswith(allowed)):
                raise ValueError(f"it holds markup that would run or fetch something: {name} of {tag!r}")

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "style" and re.search(r"@import|url\(\s*[\"']?(?!#)|expression\(", data, re.IGNORECASE):
            raise ValueError("it holds a style sheet that would fetch something")


def check_markup(markup: str) -> None:
    """Refuse markup that runs code or loads anything: it comes from a file, and pages show it unchanged."""
    parser = _Markup()
    parser.feed(markup)
    parser.close()
