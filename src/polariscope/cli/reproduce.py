"""``polariscope reproduce``."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from polariscope import plugins
from polariscope.cli import commands
from polariscope.cli.parsing import parse, take_first
from polariscope.console import Terminal
from polariscope.printable import say
from polariscope.report.terminal import show
from polariscope.strict_json import json_text
from polariscope.studies import reproduce, studies
from polariscope.studies.engine import Outcome, write_overview
from polariscope.studies.study import UNJUDGED


@dataclass(frozen=True)
class Options:
    """polariscope reproduce NAME|all [options]

    Run a published experiment, or go on with it where it stopped, and hold it against what was published.
    """

    scale: Literal["smoke", "laptop", "paper"] = "laptop"
    """smoke shows that it runs and judges nothing, laptop takes minutes to an hour, paper what the publication took."""
    out: Path = Path("results")
    """Folder of the results."""
    workers: int = 0
    """Processes, one thread each; 0 takes one per core."""
    strict: bool = False
    """Exit with 1 if a claim did not hold. Refused at smoke scale, which judges nothing."""
    json: bool = False
    """Print JSON for machines."""


@commands.register(
    "reproduce", "run a published experiment and compare it with what was published", group="publications"
)
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
            "leave out --strict, or take --scale laptop"
        )
    names = studies.names() if name == "all" else [name]
    outcomes: list[Outcome] = []
    failures: dict[str, Exception] = {}
    for each in names:
        studies.get(each)
        try:
            outcomes.append(run(each, options))
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"interrupted; go on with: {command}") from None
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


def _sentence(error: BaseException) -> str:
    """An exception in a line; one that was not meant for people has its kind in front."""
    text = " ".join(str(error).split())
    return text if isinstance(error, ValueError | OSError | ArithmeticError) else f"{type(error).__name__}: {text}"


def run(name: str, options: Options) -> Outcome:
    console = Terminal(stderr=True, highlight=False)
    study = studies.get(name)()
    jobs = study.jobs(options.scale)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[now]}"),
    )
    console.print(f"{name}: {study.title} ({len(jobs)} jobs at {options.scale} scale)")
    with Progress(*columns, console=console, disable=options.json or not console.is_terminal) as progress:
        task = progress.add_task(name, total=len(jobs), now="")
        parts: dict[int, float] = {}

        def report(number: int, what: Any) -> None:
            # A job may train several models, one after the other: it counts whole when it is done, and never back.
            share = 1.0 if what is None else 0.9 * what.step / what.steps
            parts[number] = max(parts.get(number, 0.0), share)
            now = "" if what is None else f"job {number + 1}: step {what.step} of {what.steps}, loss {what.loss:.1f}"
            progress.update(task, completed=sum(parts.values()), now=now)

        outcome = reproduce(name, options.scale, options.out, options.workers or None, report)
        progress.update(task, completed=len(jobs), now="")
    if not options.json:
        show(outcome.findings(figures=False), outcome.path / "report.html")
    return outcome


def summary(outcome: Outcome) -> dict[str, Any]:
    return {"study": outcome.name, "scale": outcome.scale, "path": str(outcome.path), "claims": outcome.records()}
