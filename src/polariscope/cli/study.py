"""``polariscope study``: a study of your own, from a TOML file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from polariscope.cli import commands
from polariscope.cli.parsing import parse, take_first
from polariscope.cli.run_studies import StudyOptions, outcome_of
from polariscope.report.terminal import answer
from polariscope.studies.own import read_study
from polariscope.studies.study import Scale

FULL: Scale = "own"  # type: ignore[assignment]  # the file as it stands, which is nobody else's scale


@dataclass(frozen=True)
class Options(StudyOptions):
    """polariscope study FILE.toml [options]

    Run a study of your own, or continue it where it stopped. FILE.toml has a base configuration, a grid, measures and
    claims (docs/your-own.md shows an example). The command writes a table, a page and verdicts, as for a published
    study.
    """

    smoke: bool = False
    """Run one seed and 20 steps of each cell, to show that the study runs; judges nothing."""
    strict: bool = False
    """Exit with 1 if a claim did not hold."""


@commands.register("study", "run a study of your own from a TOML file", group="publications")
def main(arguments: list[str]) -> int:
    arguments = list(arguments)
    file = take_first(arguments)
    options = parse(Options, arguments, "study")
    if file is None:
        raise ValueError("which study? 'polariscope study FILE.toml'; docs/your-own.md shows such a file")
    study, name = read_study(Path(file))
    if options.strict and options.smoke:
        raise ValueError("--strict needs verdicts, and --smoke judges nothing: leave out one of them")
    scale: Scale = "smoke" if options.smoke else FULL
    path = options.out / (f"{name}-smoke" if options.smoke else name)
    outcome = outcome_of(study, name, scale, path, options)
    if outcome is None:
        return 0
    answer(outcome.findings(figures=False), outcome.path / "report.html", options.json)
    return int(options.strict and not outcome.held)
