"""How a page is set: plain numbers on its axes, words for truth values, its width used, its size bounded."""

import re

import numpy as np
import pytest
from matplotlib.figure import Figure

from polariscope.findings import Chart, Column, Records, Value, Values
from polariscope.grammar import counted, listed
from polariscope.report import Findings
from polariscope.report.figures import as_svg, styled
from polariscope.report.markdown import markdown
from polariscope.report.page import page


@styled
def drawn(kind="log", width=4.0):
    figure = Figure(figsize=(width, 2))
    axes = figure.subplots()
    axes.plot([1e-5, 1.0, 1e4], [0.1, 10, 1000])
    axes.set(xscale=kind, yscale=kind)
    return figure


def table(rows, name="r"):
    return Records(name=name, title="R", rows=rows, columns=[Column(key, key) for key in rows[0]])


@pytest.mark.parametrize("kind", ["log", "symlog"])
def test_logarithmic_axes_have_plain_numbers(kind):
    text = as_svg(drawn(kind))
    assert "mathdefault" not in text
    assert "$" not in text
    shown = re.findall(r">([\d.]+(?:e[+-]?\d+)?)</text>", text)
    assert {"0.1", "10", "1000"} <= set(shown) or {"1", "10", "100", "1000"} <= set(shown), shown


def test_a_picture_file_has_plain_numbers_too(tmp_path):
    result = Findings("m", "One.", [Chart(name="a", title="A", draw=drawn)])
    path = result.save(tmp_path / "a.svg")
    assert "mathdefault" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("value", [True, np.True_])
def test_truth_values_are_words_everywhere(value, capsys):
    from polariscope.report.terminal import show

    result = Findings("m", "One.", [table([{"collapsed": value}, {"collapsed": not value}])], settings={"once": True})
    for text in (page([result]), markdown(result), (show(result), capsys.readouterr().out)[1]):
        assert re.search(r"\byes\b", text)
        assert re.search(r"\bno\b", text)
        assert not re.search(r"\b(True|False)\b", text)


def test_narrow_neighbours_share_a_row():
    few, many = [{"a": "x", "b": "y"}], [{f"column {n}": "a few letters" for n in range(12)}]
    chart = Chart(name="c", title="C", draw=lambda: drawn(width=3.5))
    values = Values(name="v", title="V", entries=[Value("x", "X", 1.0)])
    result = Findings("m", "", [table(few, "one"), chart, table(many, "wide"), values])
    classes = dict(re.findall(r'<section id="(\w+)"(?: class="(\w+)")?>', page([result])))
    assert classes == {"one": "half", "c": "half", "wide": "", "v": "narrow", "again": ""}
    three = Findings("m", "", [table(few, name) for name in ("a", "b", "c")])
    classes = dict(re.findall(r'<section id="(\w+)"(?: class="(\w+)")?>', page([three])))
    assert classes == {"a": "half", "b": "half", "c": "narrow", "again": ""}
    beside = page([result, result])
    assert 'class="half"' not in beside, "of several findings each has its column"


def test_counts_have_the_grammar_of_their_number():
    assert [counted(n, "seed") for n in (0, 1, 2)] == ["0 seeds", "1 seed", "2 seeds"]
    assert counted(1, "study", "studies") == "1 study"
    assert listed(["a"]) == "a"
