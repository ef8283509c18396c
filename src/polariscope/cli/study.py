"""``polariscope study``: a study of your own, from a TOML file."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from polariscope import plugins
from polariscope.cli import commands
from polariscope.cli.parsing import parse, take_first
from polariscope.cli.place import PlaceOptions, place_of
from polariscope.cli.study_progress import watched
from polariscope.report.terminal import answer
from polariscope.studies.engine import run_study
from polariscope.studies.estimate import estimate
from polariscope.studies.own import OwnStudy
from polariscope.studies.study import Scale

FULL: Scale = "own"  # type: ignore[assignment]  # the file as it stands, which is nobody else's scale


@dataclass(frozen=True)
class Options(PlaceOptions):
    """polariscope study FILE.toml [options]

    Run a study of your own, or continue it where it stopped. FILE.toml has a base configuration, a grid, measures and
    claims (docs/your-own.md shows an example). The command writes a table, a page and verdicts, as for a published
    study.
    """

    out: Path = Path("results")
    """Folder of the results."""
    smoke: bool = False
    """Run one seed and 20 steps of each cell: shows that the study runs, and judges nothing."""
    estimate: bool = False
    """Run only the first job, and print what all jobs would cost."""
    strict: bool = False
    """Exit with 1 if a claim did not hold."""
    json: bool = False
    """Print JSON for machines."""


@commands.register("study", "run a study of your own from a TOML file", group="publications")
def main(arguments: list[str]) -> int:
    command = shlex.join(["polariscope", "study", *arguments, *plugins.flags()])
    arguments = list(arguments)
    file = take_first(arguments)
    options = parse(Options, arguments, "study")
    if file is None:
        raise ValueError("which study? 'polariscope study FILE.toml'; docs/your-own.md shows such a file")
    study, name = read_study(Path(file))
    place = place_of(options)
    if options.strict and options.smoke:
        raise ValueError("--strict needs verdicts, and --smoke judges nothing: leave out one of them")
    scale: Scale = "smoke" if options.smoke else FULL
    path = options.out / (f"{name}-smoke" if options.smoke else name)
    if options.estimate:
        findings = estimate(study, name, scale, path, place).findings()
        answer(findings, None, options.json)
        return 0
    try:
        with watched(name, study, scale, options.json) as report:
            outcome = run_study(study, name, scale, path, place, report)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted; continue with: {command}") from None
    answer(outcome.findings(figures=False), outcome.path / "report.html", options.json)
    return int(options.strict and not outcome.held)


def read_study(file: Path) -> tuple[OwnStudy, str]:
    """The study of a file and its name, checked."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", file.stem).strip("-.") or "study"
    study = OwnStudy.read(file)
    try:
        study.check()
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error
    return study, name
