"""``polariscope results``."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from polariscope.cli import commands
from polariscope.cli.parsing import parse, take_first
from polariscope.console import Terminal
from polariscope.printable import say
from polariscope.strict_json import json_text
from polariscope.studies.engine import judge_all
from polariscope.studies.page import VERDICTS, write_results_page
from polariscope.studies.study import UNJUDGED, Outcome


@dataclass(frozen=True)
class Options:
    """polariscope results [FOLDER] [options]

    Judge every table that 'polariscope reproduce' wrote to a folder (default: results) with the current code.
    """

    out: Path | None = None
    """A Markdown page to write: every study with its claims, published and measured."""
    json: bool = False
    """Print JSON for machines."""


@commands.register("results", "judge the tables of studies again and write one page about them", group="publications")
def main(arguments: list[str]) -> int:
    arguments = list(arguments)
    folder = Path(take_first(arguments) or "results")
    options = parse(Options, arguments, "results")
    outcomes, problems = judge_all(folder)
    for problem in problems:
        say(f"skipped: {problem}", file=sys.stderr)
    if not outcomes:
        raise ValueError(f"no table of a study in {folder}; 'polariscope reproduce' writes them")
    if options.out is not None:
        write_results_page(options.out, outcomes, folder)
    if options.json:
        print(json_text([summary(outcome) for outcome in outcomes]))
    else:
        show(outcomes)
    return 0


def show(outcomes: list[Outcome]) -> None:
    table = Table(box=None)
    for column in ("study", "scale", "seeds", *VERDICTS):
        table.add_column(column, justify="left" if column in ("study", "scale") else "right")
    for outcome in outcomes:
        verdicts = [claim.verdict for claim in outcome.claims]
        counts = ("-" if outcome.scale in UNJUDGED else str(verdicts.count(verdict)) for verdict in VERDICTS)
        table.add_row(outcome.name, outcome.scale, str(outcome.origin.seeds), *counts)
    Terminal(highlight=False).print(table)


def summary(outcome: Outcome) -> dict[str, Any]:
    return {**asdict(outcome.origin), "path": str(outcome.path), "claims": outcome.records()}
