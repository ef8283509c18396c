"""What the documentation says exists, exists."""

import re
from pathlib import Path

import pytest

from polariscope.cli import COMMANDS
from polariscope.objectives import objectives
from polariscope.studies import studies
from polariscope.worlds import worlds

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_every_command_has_its_line_in_the_reference() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    for name in COMMANDS:
        assert re.search(rf"^\| `{name}[` ]", text, re.MULTILINE), name


def commands(page: Path) -> list[list[str]]:
    """The words of every ``polariscope ...`` line in a page's code blocks."""
    blocks = page.read_text().split("```")[1::2]
    lines = [line.split("#")[0].split() for block in blocks for line in block.splitlines()]
    return [words[1:] for words in lines if words[:1] == ["polariscope"]]


def test_commands_in_the_pages_exist() -> None:
    found = [words for page in PAGES for words in commands(page)]
    assert len(found) > 10
    for command, *rest in found:
        assert command in COMMANDS, command
        if "--plugin" in rest:  # what it names is the reader's own
            continue
        if command in ("train", "dimension") and not rest[0].startswith("-"):
            worlds.get(rest[0])
        if command == "reproduce":
            studies.get(rest[0])
        if "--objective" in rest:
            objectives.get(rest[rest.index("--objective") + 1])


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_specification_is_here() -> None:
    assert len(list((ROOT / "docs" / "spec").glob("*.md"))) == 6
