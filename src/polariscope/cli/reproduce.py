"""``polariscope reproduce``."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from polariscope import plugins
from polariscope.cli import commands
from polariscope.cli.parsing import parse, take_first
from polariscope.cli.place import place_of
from polariscope.cli.run_studies import StudyOptions, resumable, watched
from polariscope.findings import Findings
from polariscope.printable import say
from polariscope.report.terminal import answer, show
from polariscope.studies import reproduce, studies
from polariscope.studies.engine import Outcome, write_overview
from polariscope.studies.estimate import estimate
from polariscope.studies.study import UNJUDGED, Scale, folder


@dataclass(frozen=True)
class Options(StudyOptions):
    """polariscope reproduce NAME|all [options]

    Run a published experiment, or continue it where it stopped, and compare it with the publication.
    """

    scale: Scale = "laptop"
    """smoke shows that the study runs and judges nothing, laptop takes minutes to an hour, overnight takes hours on
    published data and judges nothing, paper has the published settings."""
    finished: bool = False
    """Run no job: show the jobs that are finished, and name the others."""
    strict: bool = False
    """Exit with 1 if a claim did not hold. Refused at smoke scale, which judges nothing."""


@commands.register("reproduce", "run a published experiment and compare it with the publication", group="publications")
def main(arguments: list[str]) -> int:
    arguments = list(arguments)
    name = take_first(arguments)
    options = parse(Options, arguments, "reproduce")
    if name is None:
        raise ValueError(f"which study? 'polariscope reproduce NAME': {', '.join(studies.names())}, or all")
    if options.strict and options.scale in UNJUDGED:
        raise ValueError(
            f"--strict asks for verdicts, but {options.scale} scale {UNJUDGED[options.scale]}: "
            "leave out --strict, or give --scale laptop"
        )
    names = [each for each in studies.names() if options.scale in studies.get(each).scales] if name == "all" else [name]
    place = place_of(options)
    if options.estimate:
        paths = {each: folder(options.out, each, options.scale) for each in names}
        costs = [estimate(studies.get(each)(), each, options.scale, paths[each], place).findings() for each in names]
        return answer(costs if name == "all" else costs[0], None, options.json)
    outcomes: list[Outcome] = []
    failures: dict[str, Exception] = {}
    for each in names:
        kind = studies.get(each)
        try:
            with resumable(), watched(each, kind(), options.scale, options.json) as report:
                outcomes.append(reproduce(each, options.scale, options.out, place, report, options.finished))
        except Exception as error:  # whatever it is, the other studies have nothing to do with it
            if os.environ.get("POLARISCOPE_DEBUG"):
                raise
            failures[each] = error
        else:
            if not options.json:
                show(_document(outcomes[-1]), outcomes[-1].path / "report.html")
    if outcomes:
        write_overview(options.out)
    if options.json and name == "all":
        answer([_document(outcome) for outcome in outcomes], options.out / "README.md" if outcomes else None, True)
    elif options.json and outcomes:
        answer(_document(outcomes[0]), outcomes[0].path / "report.html", True)
    for each, failure in failures.items():
        say(f"error: {each}: {_sentence(plugins.blamed(failure))}", file=sys.stderr)
    if failures:
        return 3 if all(isinstance(failure, ArithmeticError) for failure in failures.values()) else 2
    return int(options.strict and not all(outcome.held for outcome in outcomes))


def _document(outcome: Outcome) -> Findings:
    return outcome.findings(figures=False)


def _sentence(error: BaseException) -> str:
    """An exception in one line; an unexpected one is preceded by its type."""
    text = " ".join(str(error).split())
    return text if isinstance(error, ValueError | OSError | ArithmeticError) else f"{type(error).__name__}: {text}"
