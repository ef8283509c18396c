"""Parts render themselves: those of a plug-in are shown wherever ours are, whatever they define."""

from dataclasses import dataclass
from io import StringIO

import numpy as np
import pytest
from rich.console import Console

from polariscope.findings import Chart, Curves, Findings, Part, Pictures, Records, Strip, Text, Values
from polariscope.report.markdown import markdown
from polariscope.report.page import page
from polariscope.report.terminal import show


@dataclass(frozen=True, kw_only=True)
class Bare(Part):
    """Defines nothing."""


@dataclass(frozen=True, kw_only=True)
class Drawn(Part):
    """Defines its HTML."""

    def html(self, place):
        return f'<p class="drawn" id="{place.key}-p">of {place.subject}</p>'


@dataclass(frozen=True, kw_only=True)
class Worded(Part):
    """Defines its text."""

    words: str = "one <b>bold</b> line\nand | another"

    def text(self):
        return self.words


@dataclass(frozen=True, kw_only=True)
class Counted(Part):
    """Defines what machines read."""

    def plain(self):
        return {"count": np.int64(3)}


def shown_everywhere(part: Part) -> tuple[str, str, str, dict]:
    findings = Findings("mine", "One part.", [part])
    console = Console(file=StringIO(), width=100, markup=False, emoji=False, highlight=False)
    show(findings, console=console)
    return page([findings]), console.file.getvalue(), markdown(findings), findings.json()


def test_a_part_that_defines_nothing_is_shown_by_its_title_and_hint(parsed) -> None:
    html, printed, text, answer = shown_everywhere(Bare(name="bare", title="A bare part", hint="Nothing to see."))
    assert "A bare part" in parsed(html).text["bare"]
    assert "Nothing to see." in parsed(html).text["bare"]
    assert "Not available" not in html
    assert printed.splitlines()[:2] == ["A bare part", "  Nothing to see."]
    assert "## A bare part\n\nNothing to see.\n" in text
    assert "bare" not in answer


def test_a_part_that_defines_html_alone_is_on_the_page(parsed) -> None:
    html, printed, text, answer = shown_everywhere(Drawn(name="drawn", title="Drawn"))
    (own,) = [attributes for attributes in parsed(html).of("p") if attributes.get("class") == "drawn"]
    assert own["id"] == "s0-drawn-p"
    assert "of mine" in parsed(html).text["drawn"]
    assert printed.startswith("Drawn\n")
    assert "## Drawn" in text
    assert "drawn" not in answer


def test_a_part_that_defines_text_alone_is_everywhere_and_escaped(parsed) -> None:
    part = Worded(name="words", title="Words", hint="Two lines.")
    html, printed, text, answer = shown_everywhere(part)
    assert part.words in parsed(html).text["words"]
    assert not parsed(html).of("b")
    assert printed.splitlines()[:3] == ["Words", "  one <b>bold</b> line", "  and | another"]
    assert "Two lines.\n\n    one <b>bold</b> line\n    and | another\n" in text, "a block of code runs nothing"
    assert answer["words"] == part.words.splitlines()


def test_a_part_that_defines_what_machines_read_alone_is_everywhere(parsed) -> None:
    html, printed, text, answer = shown_everywhere(Counted(name="count", title="Count"))
    assert '"count": 3' in parsed(html).text["count"]
    assert '   "count": 3' in printed
    assert '     "count": 3' in text
    assert answer["count"] == {"count": 3}


def test_parts_of_a_plug_in_stand_side_by_side_and_a_missing_one_is_said(parsed) -> None:
    one = Findings("one", "", [Worded(name="w", title="W"), Bare(name="b", title="B", hint="h")])
    shown = parsed(page([one, Findings("two", "", [Worded(name="w", title="W", words="other")])]))
    assert "other" in shown.text["w"]
    assert "and | another" in shown.text["w"]
    assert shown.text["b"].count("Not available here.") == 1


def test_two_kinds_under_one_name_are_each_shown_in_their_own_way(parsed) -> None:
    first = Findings("one", "", [Text(name="x", title="X", lines=["a sentence"])])
    second = Findings("two", "", [Drawn(name="x", title="X")])
    shown = parsed(page([first, second]))
    assert "a sentence" in shown.text["x"]
    assert "of two" in shown.text["x"]


EMPTY = [
    Values(name="x", title="An empty part", entries=[]),
    Records(name="x", title="An empty part", rows=[], columns=[]),
    Text(name="x", title="An empty part", lines=[]),
    Curves(name="x", title="An empty part", metrics=[]),
    Pictures(name="x", title="An empty part", strips=[]),
]


@pytest.mark.parametrize("part", EMPTY, ids=lambda part: type(part).__name__)
def test_an_empty_part_of_any_kind_is_shown_without_a_fault(part, parsed) -> None:
    html, _, text, _ = shown_everywhere(part)
    assert "An empty part" in parsed(html).text["x"]
    assert "An empty part" not in text


def test_a_figure_is_drawn_once_for_all_pages() -> None:
    from matplotlib.figure import Figure

    drawn = []

    def draw():
        drawn.append(1)
        return Figure(figsize=(1, 1))

    findings = Findings("m", "", [Chart(name="c", title="C", draw=draw)])
    assert page([findings]) == page([findings])
    assert drawn == [1]


def test_a_strip_of_any_kind_of_part_is_pictured_by_the_same_block() -> None:
    """What our parts are shown with is there for others."""
    from polariscope.report.blocks import strips

    images = np.zeros((1, 2, 1, 4, 4), np.uint8)
    assert strips(Pictures(name="s", title="S", strips=[Strip(images, "z0")])).count("<img ") == 1
