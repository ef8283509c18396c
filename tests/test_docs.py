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


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_in_the_pages_exist(page: Path) -> None:
    text = page.read_text()
    for command, argument in re.findall(r"polariscope (\w+)(?: (\S+))?", text):
        if re.search(rf"^\s*(import|from) polariscope {command}", text, re.MULTILINE):
            continue
        known = command in COMMANDS or command in {"import", "examine"}
        assert known or command not in text.split("```")[1::2], command
        if command == "train" and argument and argument[0].isalpha() and argument != "WORLD":
            worlds.get(argument)
        if command == "reproduce" and argument and argument[0].islower():
            studies.get(argument)
    for name in re.findall(r"--objective ([a-z][\w-]+)", text):
        objectives.get(name)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_specification_is_here() -> None:
    assert len(list((ROOT / "docs" / "spec").glob("*.md"))) == 6
