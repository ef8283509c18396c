"""``polariscope reproduce``."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polariscope import plugins
from polariscope.cli import commands
from polariscope.cli.parsing import parse, take_first
from polariscope.cli.place import PlaceOptions, place_of
from polariscope.cli.study_progress import watched
from polariscope.printable import say
from polariscope.report.terminal import answer, show
from polariscope.strict_json import json_text
from polariscope.studies import reproduce, studies
from polariscope.studies.engine import Outcome, write_overview
from polariscope.studies.estimate import estimate
from polariscope.studies.study import UNJUDGED, Scale, folder


@dataclass(frozen=True)
class Options(PlaceOptions):
    """polariscope reproduce NAME|all [options]

    Run a published experiment, or continue it where it stopped, and compare it with the publication.
    """

    scale: Scale = "laptop"
    """smoke shows that the study runs and judges nothing, laptop takes minutes to an hour, overnight takes hours on
    published data and judges nothing, paper has the published settings."""
    out: Path = Path("results")
    """Folder of the results."""
    estimate: bool = False
    """Run only the first job, and print what all jobs would cost."""
    finished: bool = False
    """Run no job: show the jobs that are finished, and name the others."""
    strict: bool = False
    """Exit with 1 if a claim did not hold. Refused at smoke scale, which judges nothing."""
    json: bool = False
    """Print JSON for machines."""


@commands.register("reproduce", "run a published experiment and compare it with the publication", group="publications")
def main(arguments: list[str]) -> int:
    command = shlex.join(["polariscope", "reproduce", *arguments, *plugins.flags()])
    arguments = list(arguments)
    name = take_first(arguments)
    options = parse(Options, arguments, "reproduce")
    if name is None:
        raise ValueError(f"which study? 'polariscope reproduce NAME': {', '.join(studies.names())}, or all")
    if options.strict and options.scale in UNJUDGED:
        raise ValueError(
            f"--strict asks for verdicts, and {options.scale} scale {UNJUDGED[options.scale]}: "
            "leave out --strict, or give --scale laptop"
        )
    names = [each for each in studies.names() if options.scale in studies.get(each).scales] if name == "all" else [name]
    place_of(options)
    if options.estimate:
        return _estimated(names, options)
    outcomes: list[Outcome] = []
    failures: dict[str, Exception] = {}
    for each in names:
        studies.get(each)
        try:
            outcomes.append(run(each, options))
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"interrupted; continue with: {command}") from None
        except Exception as error:  # whatever it is, the other studies have nothing to do with it
            if os.environ.get("POLARISCOPE_DEBUG"):
                raise
            failures[each] = error
    if outcomes:
        write_overview(options.out)
    if options.json:
        print(json_text([summary(outcome) for outcome in outcomes]))
    for each, failure in failures.items():
        say(f"error: {each}: {_sentence(plugins.blamed(failure))}", file=sys.stderr)
    if failures:
        return 3 if all(isinstance(failure, ArithmeticError) for failure in failures.values()) else 2
    return int(options.strict and not all(outcome.held for outcome in outcomes))


def _estimated(names: list[str], options: Options) -> int:
    """Print what each study would cost; of several, JSON is one list."""
    documents = []
    for name in names:
        path = folder(options.out, name, options.scale)
        findings = estimate(studies.get(name)(), name, options.scale, path, place_of(options)).findings()
        if options.json and len(names) > 1:
            documents.append({"study": name, **findings.json()})
        else:
            answer(findings, None, options.json)
    if documents:
        print(json_text(documents))
    return 0


def _sentence(error: BaseException) -> str:
    """An exception in one line; an unexpected one is preceded by its type."""
    text = " ".join(str(error).split())
    return text if isinstance(error, ValueError | OSError | ArithmeticError) else f"{type(error).__name__}: {text}"


def run(name: str, options: Options) -> Outcome:
    study = studies.get(name)()
    with watched(name, study, options.scale, options.json) as report:
        outcome = reproduce(name, options.scale, options.out, place_of(options), report, options.finished)
    if not options.json:
        show(outcome.findings(figures=False), outcome.path / "report.html")
    return outcome


def summary(outcome: Outcome) -> dict[str, Any]:
    return {"study": outcome.name, "scale": outcome.scale, "path": str(outcome.path), "claims": outcome.records()}
