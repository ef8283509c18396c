"""The one document of every result: what machines read, what is written where, what a notebook and a terminal show."""

import json
import subprocess
import sys
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image
from rich.console import Console
from safetensors.numpy import load_file

from polariscope.findings import Chart, Column, Curves, Pictures, Records, Strip, Text, Value, Values
from polariscope.report import Findings, save
from polariscope.report.markdown import markdown
from polariscope.report.page import page
from polariscope.report.terminal import ROWS, show, side_by_side

MIG = Value("mig", "Mutual information gap", 0.5, True)
TYPES = Value("types", "Variables", None, shares={"active": 2, "passive": 1})


def bars() -> Figure:
    figure = Figure(figsize=(2, 1))
    figure.subplots().bar([0, 1], [1, 2], color="black")
    return figure


def document(title: str = "mine", mig: float | None = 0.5) -> Findings:
    """One part of each kind."""
    gap = Value("mig", MIG.title, mig, True, "" if mig is not None else "there are no factors")
    columns = [Column("name", "Name"), Column("share", "Share", "percent"), Column("why", "Why", aside=True)]
    rows = [{"name": "a", "share": 0.25, "why": "x|y"}, {"name": "b", "share": None, "why": "z"}]
    return Findings(
        title,
        "Two variables are used.",
        [
            Values(name="measures", title="Measures", entries=[TYPES, gap]),
            Records(name="rows", title="Rows", hint="To be read by row.", rows=rows, columns=columns),
            Chart(name="bars", title="Bars", draw=bars),
            Curves(name="learning", title="Learning", metrics=[(1, "train", "loss", 2.0)]),
            Pictures(name="strips", title="Strips", strips=[Strip(np.zeros((1, 2, 1, 4, 4), np.uint8), "z0")]),
            Text(name="reasons", title="Why", lines=["One reason."]),
        ],
        ["Only 10 examples."],
        {"examples": np.int64(10)},
        {"codes": np.arange(6.0).reshape(2, 3).T},
        {"seed": 3, "file": Path("x.npz")},
        {"python": "3.11"},
    )


def test_a_document_is_made_without_matplotlib() -> None:
    """Rooms that train or measure import the document, and not what draws it."""
    made = "import sys; from polariscope.findings import Chart, Findings; Findings('m', 'One.').json()"
    check = f"{made}; print({{'matplotlib', 'jinja2', 'torch', 'rich'}} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_plugins_find_the_document_under_its_former_name() -> None:
    from polariscope import findings
    from polariscope.report import findings as former

    names = {name for name in vars(findings) if name[0].isupper() and vars(findings)[name] is vars(former).get(name)}
    assert names >= {"Findings", "Part", "Values", "Value", "Records", "Column", "Chart", "Curves", "Pictures", "Strip"}
    assert former.save is findings.save


def test_machines_read_values_rows_and_sentences_but_no_pictures() -> None:
    answer = document(mig=None).json()
    assert answer == {
        "title": "mine",
        "headline": "Two variables are used.",
        "examples": 10,
        "measures": {"types": {"active": 2, "passive": 1}, "mig": None},
        "rows": [{"name": "a", "share": 0.25, "why": "x|y"}, {"name": "b", "share": None, "why": "z"}],
        "reasons": ["One reason."],
        "undefined": {"mig": "there are no factors"},
        "notes": ["Only 10 examples."],
        "settings": {"seed": 3, "file": Path("x.npz")},
    }
    assert document().json()["undefined"] == {}


def test_a_folder_holds_page_numbers_figures_and_arrays(tmp_path) -> None:
    opened = document().save(tmp_path / "deep" / "folder")
    assert opened == tmp_path / "deep" / "folder" / "report.html"
    names = sorted(file.name for file in opened.parent.iterdir())
    arrays = ["arrays.safetensors", "parts.safetensors"]
    assert names == sorted([*arrays, "bars.png", "bars.svg", "document.json", "findings.json", "report.html"])
    written = json.loads((opened.parent / "findings.json").read_text())
    assert written["measures"]["mig"] == 0.5
    assert written["examples"] == 10, "a number of numpy is a number"
    assert written["settings"]["file"] == "x.npz"
    assert (load_file(opened.parent / "arrays.safetensors")["codes"] == [[0, 3], [1, 4], [2, 5]]).all()
    assert (np.asarray(Image.open(opened.parent / "bars.png").convert("L")) < 128).mean() > 0.1
    assert "Two variables are used." in opened.read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "starts"), [("a.html", b"<!DOCTYPE html>"), ("a.png", b"\x89PNG"), ("a.svg", b"<?x")])
def test_a_file_is_the_page_or_the_first_figure_alone(tmp_path, name, starts) -> None:
    opened = document().save(str(tmp_path / "new" / name))
    assert opened == tmp_path / "new" / name
    assert [file.name for file in opened.parent.iterdir()] == [name]
    assert opened.read_bytes().lstrip().startswith(starts)


def test_a_picture_of_findings_without_figures_is_refused(tmp_path) -> None:
    with pytest.raises(ValueError, match="needs a figure, and these findings have none"):
        Findings("mine", "Nothing.").save(tmp_path / "new" / "a.png")
    assert not (tmp_path / "new").exists()


def test_several_findings_in_one_folder_are_numbered(tmp_path) -> None:
    save([document("first"), document("second", 0.25)], tmp_path, "Both")
    answer = json.loads((tmp_path / "findings.json").read_text())
    assert [(each["title"], each["measures"]["mig"]) for each in answer] == [("first", 0.5), ("second", 0.25)]
    assert sorted(load_file(tmp_path / "arrays.safetensors")) == ["1/codes", "2/codes"]
    assert {"1-bars.png", "2-bars.png"} < {file.name for file in tmp_path.iterdir()}
    assert "<title>Both</title>" in (tmp_path / "report.html").read_text(encoding="utf-8")
    save([document()], tmp_path / "plain", figures=False)
    assert not list((tmp_path / "plain").glob("*.png")), "the page has them"


def test_a_folder_can_be_written_again(tmp_path) -> None:
    document(mig=0.5).save(tmp_path)
    document(mig=0.75).save(tmp_path)
    assert json.loads((tmp_path / "findings.json").read_text())["measures"]["mig"] == 0.75


def test_parts_are_found_by_kind() -> None:
    result = document()
    assert [part.name for part in result.of(Chart)] == ["bars"]
    assert [row["name"] for part in result.of(Records) for row in part.rows] == ["a", "b"]
    assert Findings("mine", "Nothing.").of(Values) == []


def test_a_notebook_shows_the_page_in_a_frame(parsed) -> None:
    result = Findings("mine", 'A "quoted" & <b>bold</b> finding.')
    assert repr(result) == '<Findings: A "quoted" & <b>bold</b> finding.>'
    (frame,) = parsed(result._repr_html_()).of("iframe")
    assert frame["srcdoc"] == page([result]), "escapes are undone once"
    inner = parsed(frame["srcdoc"])
    assert result.headline in inner.text[""]
    assert not inner.of("b")


def test_a_column_that_no_row_has_anything_in_is_not_shown() -> None:
    part = Records(
        name="r", title="R", rows=[{"a": 1, "b": None}, {"a": None}], columns=[Column("a", "A"), Column("b", "B")]
    )
    assert [column.key for column in part.shown] == ["a"]
    assert not part.wordy
    assert Records(name="r", title="R", rows=[{"a": "word " * 20}], columns=[Column("a", "A")]).wordy


def told(findings: Findings, width: int = 100) -> str:
    console = Console(file=StringIO(), width=width, markup=False, emoji=False, highlight=False)
    show(findings, "out[1]/report.html", console)
    return console.file.getvalue()


def test_the_terminal_has_headline_values_rows_and_notes_but_no_asides() -> None:
    text = told(document(mig=None))
    for words in ("Variables: 2 active / 1 passive", "undefined: there are no factors", "25.0 %", "One reason."):
        assert words in text
    assert "note: Only 10 examples." in text
    assert text.index("Rows") < text.index("Two variables are used."), "the result is what one sees last"
    assert text.endswith("report: out[1]/report.html\n")
    assert "x|y" not in text


def test_the_terminal_counts_what_it_leaves_out_and_says_nothing_twice() -> None:
    rows = [{"n": n} for n in range(ROWS + 7)]
    again = [Values(name=name, title=name, entries=[Value("mig", MIG.title, 0.5)]) for name in ("summary", "measures")]
    text = told(
        Findings("m", "Many.", [Records(name="r", title="R", rows=rows, columns=[Column("n", "N", "%d")]), *again])
    )
    assert "and 7 more rows, listed in the report and with --json" in text
    assert text.count(MIG.title) == 1


def test_the_terminal_puts_values_side_by_side() -> None:
    console = Console(file=StringIO(), width=100)
    side_by_side([document("first"), document("second", None), Findings("third", "Nothing.")], console)
    lines = [line.split() for line in console.file.getvalue().splitlines()]
    assert lines[0] == ["first", "second", "third"]
    assert lines[1] == ["Variables", "2", "/", "1", "2", "/", "1", "-"]
    assert lines[2] == [*MIG.title.split(), "0.5", "undefined", "-"]


def test_markdown_is_the_same_document() -> None:
    lines = markdown(document(mig=None), level=2, pictures="figures/").splitlines()
    assert lines[:3] == ["## mine", "", "Two variables are used."]
    assert "### Measures" in lines
    assert "- Variables: 2 active / 1 passive" in lines
    assert "- Mutual information gap: undefined: there are no factors" in lines
    start = lines.index("| Name | Share | Why |")
    assert lines[start - 2 : start] == ["To be read by row.", ""]
    assert lines[start + 1 : start + 4] == ["|---|---|---|", "| a | 25.0 % | x\\|y |", "| b |  | z |"]
    assert "![Bars](figures/bars.png)" in lines
    assert lines[-1] == "- Only 10 examples."
    assert "bars.png" not in markdown(document(), pictures=None)


def test_a_document_without_parts_is_whole(tmp_path, parsed) -> None:
    result = Findings("mine", "Nothing was found.")
    assert result.json() == {
        "title": "mine", "headline": "Nothing was found.", "undefined": {}, "notes": [], "settings": {},
    }  # fmt: skip
    shown = parsed(result.save(tmp_path).read_text(encoding="utf-8"))
    assert [section["id"] for section in shown.of("section")] == ["again"]
    assert "Nothing was found." in shown.text[""]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["document.json", "findings.json", "report.html"]
    assert markdown(result) == "# mine\n\nNothing was found.\n"
    assert told(result).startswith("Nothing was found.")


def test_no_findings_make_no_page(tmp_path) -> None:
    with pytest.raises(ValueError, match="at least one document of findings"):
        save([], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()
