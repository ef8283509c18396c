"""A document that was written is read back as the same document, whatever its parts; old ones are read as well."""

import json
from dataclasses import dataclass
from io import StringIO

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image
from rich.console import Console

from polariscope.documents import load
from polariscope.findings import (
    Chart,
    Column,
    Curves,
    Findings,
    Map,
    Part,
    Pictures,
    Records,
    Shown,
    Strip,
    Text,
    Value,
    Values,
    save,
)
from polariscope.report.markdown import markdown
from polariscope.report.page import page
from polariscope.report.terminal import show
from polariscope.strict_json import json_text

VALUES = [
    Value("mig", "MIG", 0.5, True, meaning="A gap.", interval=(0.4, 0.6), chance=0.01),
    Value("dci", "DCI", None, problem="there are no factors"),
    Value("kinds", "Variables", None, shares={"active": 2, "passive": 1}),
]
ROWS = [
    {"name": "a", "share": np.float32(0.25), "kind": "active", "at": "x.html", "all": [1, 2], "few": float("nan")},
    {"name": "b", "share": None, "kind": "passive", "dead": True, "few": float("-inf")},
]
COLUMNS = [Column("name", "Name", link="at"), Column("share", "Share", "percent", bar="kind"), Column("dead", "Dead")]


def figure() -> Figure:
    drawn = Figure(figsize=(2, 1))
    drawn.subplots().plot([1, 3, 2])
    return drawn


def images(dtype) -> np.ndarray:
    numbers = np.random.default_rng(0).integers(0, 255, (1, 2, 3, 4, 5))
    return numbers.astype(dtype) / (1 if dtype == np.uint8 else 255)


PARTS = {
    "values": Values(name="values", title="Values", hint="Read them.", entries=VALUES),
    "records": Records(name="records", title="Records", rows=ROWS, columns=COLUMNS),
    "chart": Chart(name="bars", title="Bars", hint="A line.", draw=figure),
    "curves": Curves(name="curves", title="Curves", metrics=[(1, "train", "loss", 2.5), (2, "held_out", "loss", 1.5)]),
    "pictures": Pictures(
        name="pictures",
        title="Pictures",
        strips=[Strip(images(np.uint8), "z1", "active", "a note", "in words"), Strip(images(np.float32), "z2")],
        limits=(0.0, 1.0),
    ),
    "map": Map(
        name="map",
        title="Map",
        image=np.random.default_rng(0).integers(0, 255, (300, 200, 3), dtype=np.uint8),
        legend={"forest": "#228b22"},
        extent=(565000.0, 5934000.0, 565200.0, 5934300.0),
        reference="EPSG:25832, metres",
    ),
    "text": Text(name="text", title="Text", lines=["One.", "Two < three."]),
}


def terminal(findings: Findings) -> str:
    console = Console(file=StringIO(), width=100, markup=False, emoji=False, highlight=False)
    show(findings, console=console)
    return console.file.getvalue()


def document(*parts: Part, title: str = "mine") -> Findings:
    return Findings(
        title,
        "Two variables are used.",
        parts,
        ["Only 10 examples."],
        {"examples": np.int64(10), "$odd": {1: "one"}, "limits": (0.0, float("inf"))},
        {"codes": np.arange(6.0).reshape(2, 3)},
        {"world": {"name": "sprites"}, "out": None},
        {"torch": "2.0"},
        command="polariscope examine latest",
    )


def assert_same(one: Findings, other: Findings) -> None:
    assert page([one]) == page([other])
    assert page([one], beside=True) == page([other], beside=True)
    assert terminal(one) == terminal(other)
    assert markdown(one) == markdown(other)
    assert json_text(one.json()) == json_text(other.json())
    assert [type(part) for part in one.parts] == [type(part) for part in other.parts]
    assert {name: array.tolist() for name, array in one.arrays.items()} == {
        name: array.tolist() for name, array in other.arrays.items()
    }


@pytest.mark.parametrize("kind", PARTS)
def test_every_kind_of_part_is_read_back_and_written_again(kind, tmp_path) -> None:
    written = document(PARTS[kind])
    back = Findings.load(written.save(tmp_path / "first"))
    assert_same(written, back)
    assert (back.environment, back.command, back.notes) == ({"torch": "2.0"}, written.command, written.notes)
    back.save(tmp_path / "second")
    assert_same(written, Findings.load(tmp_path / "second"))
    for file in ("document.json", "findings.json", "report.html"):
        assert (tmp_path / "first" / file).read_bytes() == (tmp_path / "second" / file).read_bytes()


def test_all_kinds_of_parts_of_the_house_are_tried() -> None:
    ours = {cls for cls in Part.kinds.values() if cls.__module__ == "polariscope.findings"}
    assert {type(part) for part in PARTS.values()} | {Shown} == ours


def test_several_documents_of_one_page_are_read_back(tmp_path) -> None:
    save([document(*PARTS.values()), document(PARTS["chart"], title="other")], tmp_path, "Both")
    first, second = load(tmp_path)
    assert_same(first, document(*PARTS.values()))
    assert second.title == "other"
    assert first.arrays["codes"].tolist() == second.arrays["codes"].tolist()
    with pytest.raises(ValueError, match="holds 2 documents"):
        Findings.load(tmp_path)


@dataclass(frozen=True)
class Line:
    words: str


@dataclass(frozen=True, kw_only=True)
class Poem(Part):
    """A part of a plug-in, with a dataclass and an array of its own."""

    lines: list[Line]
    beats: np.ndarray

    def text(self) -> str:
        return "\n".join(line.words for line in self.lines)

    def html(self, place) -> str:
        return f"<p>{len(self.lines)} lines, {self.beats.sum()} beats</p>"


def test_a_part_of_a_plug_in_is_read_back_with_and_without_its_code(tmp_path, monkeypatch) -> None:
    poem = Poem(name="poem", title="A poem", lines=[Line("Roses"), Line("are red")], beats=np.array([2, 3]))
    written = document(poem)
    written.save(tmp_path)
    back = Findings.load(tmp_path)
    assert_same(written, back)
    assert back.parts[0].lines == poem.lines
    monkeypatch.delitem(Part.kinds, "Poem")
    shown = Findings.load(tmp_path)
    assert isinstance(shown.parts[0], Shown)
    assert page([shown]) == page([written])
    assert shown.json()["poem"] == ["Roses", "are red"]


@dataclass(frozen=True, kw_only=True)
class Living(Part):
    """A part that cannot be kept by its fields."""

    draw: object

    def text(self) -> str:
        return "It lives."


def test_a_part_that_cannot_be_kept_is_kept_as_it_is_shown(tmp_path) -> None:
    written = document(Living(name="living", title="Living", draw=lambda: None))
    written.save(tmp_path)
    (part,) = Findings.load(tmp_path).parts
    assert (type(part), part.text(), part.title) == (Shown, "It lives.", "Living")


@pytest.mark.parametrize(
    "markup",
    ["<script>alert(1)</script>", '<p onclick="alert(1)">x</p>', '<a href="javascript:alert(1)">x</a>',
     '<img src="https://example.org/x.png">', "<style>@import url(https://example.org)</style>", "<iframe></iframe>"],
)  # fmt: skip
def test_markup_from_a_file_that_runs_or_fetches_something_is_refused(markup, tmp_path) -> None:
    document(Living(name="living", title="Living", draw=lambda: None), PARTS["chart"]).save(tmp_path)
    kept = json.loads((tmp_path / "document.json").read_text())
    kept["findings"][0]["parts"][0]["shown"]["markup"] = markup
    (tmp_path / "document.json").write_text(json.dumps(kept))
    with pytest.raises(ValueError, match=r"document\.json.*it holds"):
        Findings.load(tmp_path)


def test_a_figure_from_a_file_is_checked_and_lies_in_the_folder(tmp_path) -> None:
    document(PARTS["chart"]).save(tmp_path / "a")
    svg = tmp_path / "a" / "bars.svg"
    whole = svg.read_text()
    svg.write_text(whole.replace("</svg>", "<script>1</script></svg>"))
    with pytest.raises(ValueError, match="the element 'script'"):
        Findings.load(tmp_path / "a")
    (tmp_path / "bars.svg").write_text(whole)
    text = (tmp_path / "a" / "document.json").read_text()
    (tmp_path / "a" / "document.json").write_text(text.replace('"bars.svg"', '"../bars.svg"'))
    with pytest.raises(ValueError, match="not in the folder of the document"):
        Findings.load(tmp_path / "a")


@pytest.mark.parametrize("text", ["", "[", "{}", '{"format": 99, "findings": []}', '{"format": 1, "findings": [{}]}'])
def test_a_damaged_document_is_refused_in_a_sentence(text, tmp_path) -> None:
    (tmp_path / "document.json").write_text(text)
    with pytest.raises(ValueError, match=r"document\.json: "):
        Findings.load(tmp_path)
    with pytest.raises(ValueError, match="holds no document"):
        Findings.load(tmp_path / "nothing")


def test_a_figure_that_was_read_back_is_saved_as_svg_only(tmp_path) -> None:
    document(PARTS["chart"]).save(tmp_path / "a")
    back = Findings.load(tmp_path / "a")
    assert back.save(tmp_path / "b.svg").read_text() == (tmp_path / "a" / "bars.svg").read_text()
    with pytest.raises(ValueError, match=r"name an \.svg"):
        back.save(tmp_path / "b.png")
    assert not (tmp_path / "b.png").exists()


def test_a_map_is_a_file_beside_the_page_with_legend_and_extent(tmp_path, parsed) -> None:
    opened = document(PARTS["map"]).save(tmp_path / "folder")
    shown = parsed(opened.read_text(encoding="utf-8"))
    (image,) = shown.of("img")
    assert (image["src"], image["width"], image["height"]) == ("map.png", "200", "300")
    assert (np.asarray(Image.open(opened.parent / "map.png")) == PARTS["map"].image).all()
    for words in ("forest", "(565000, 5934000) to (565200, 5934300)", "EPSG:25832, metres"):
        assert words in shown.text["map"]
    assert "background: #228b22" in opened.read_text(encoding="utf-8")
    alone = parsed(document(PARTS["map"]).save(tmp_path / "alone.html").read_text(encoding="utf-8"))
    assert alone.of("img")[0]["src"].startswith("data:image/png;base64,")
    with pytest.raises(ValueError, match="needs to be like '#228b22'"):
        Map(name="m", title="M", image=PARTS["map"].image, legend={"a": "red; background: url(x)"})
    with pytest.raises(ValueError, match="a map needs uint8"):
        Map(name="m", title="M", image=np.zeros((2, 2)))


def test_a_document_of_an_earlier_version_is_read_from_what_machines_read(tmp_path) -> None:
    written = document(PARTS["values"], PARTS["records"], PARTS["text"])
    written.save(tmp_path)
    (tmp_path / "document.json").unlink()
    back = Findings.load(tmp_path)
    answer, now = json.loads((tmp_path / "findings.json").read_text()), json.loads(json_text(back.json()))
    assert now == answer
    assert [type(part) for part in back.parts][-3:] == [Values, Records, Text]
    assert "undefined: there are no factors" in terminal(back)
    assert "One." in page([back])
