"""``polariscope board``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from polariscope.cli import commands
from polariscope.cli.parsing import parse, take_first
from polariscope.report.terminal import answer
from polariscope.studies.board import board

USUAL = (Path("docs/results"), Path("results"))


@dataclass(frozen=True)
class Options:
    """polariscope board [FOLDER ...] [options]

    Write one page with every claim of every table in the folders (default: docs/results and results, if they exist),
    judged by the current code, with filters by work and verdict.
    """

    out: Path = Path("board.html")
    """Page to write; a folder also gets the claims as JSON."""
    json: bool = False
    """Print JSON for machines."""


@commands.register("board", "write one page with every claim, published and measured", group="publications")
def main(arguments: list[str]) -> int:
    arguments = list(arguments)
    folders = []
    while (word := take_first(arguments)) is not None:
        folders.append(Path(word))
    options = parse(Options, arguments, "board")
    for folder in folders:
        if not folder.is_dir():
            raise ValueError(f"there is no folder {folder}: 'polariscope reproduce NAME' writes tables to results")
    result = board(folders or [folder for folder in USUAL if folder.is_dir()])
    if not result.outcomes:
        raise ValueError(
            "no table of a study here: 'polariscope reproduce NAME' writes one to results; or name a folder"
        )
    findings = result.findings()
    answer(findings, findings.save(options.out), options.json)
    return 0
