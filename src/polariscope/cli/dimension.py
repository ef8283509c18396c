"""``polariscope dimension``: how many latent variables does this model need on this data?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from polariscope.cli import commands
from polariscope.cli.configuration import parse_run
from polariscope.cli.parsing import check_place, flag
from polariscope.cli.progress import bars
from polariscope.console import Terminal
from polariscope.dimension import (
    DimensionProbe,
    DimensionSearch,
    Reading,
    StableDimension,
    data_dimension,
    dimension_findings,
    doubling,
    search_dimension,
    stable_dimension,
    type_count_dimension,
)
from polariscope.grammar import counted
from polariscope.lab.run_documents import keep_findings
from polariscope.lab.store import Store
from polariscope.report.terminal import answer
from polariscope.training.config import RunConfig, called
from polariscope.training.loop import Listeners
from polariscope.training.run import paced

EXTRA = [
    (
        "statistic",
        flag(
            Literal["trace", "trace-sampled", "ib", "ide", "types"],
            "Statistic that decides: the trace gap (FONDUE), the trace gap from samples as published, "
            "information (FONDUE_IB), intrinsic dimensions (FONDUE_IDE), or the types of variables of one large model.",
        ),
        "trace",
    ),
    ("first", flag(int | None, "Latents of the first model; by default the data's intrinsic dimension."), None),
    ("threshold", flag(float | None, "Largest statistic that passes; by default the published one."), None),
    ("cap", flag(int, "Largest number of latents to try."), 200),
    ("budget", flag(int, "Steps of the first, shortest trainings; doubled until the answer is stable."), 500),
    ("once", flag(bool, "Search once, at the budget, without waiting for a stable answer."), False),
    ("seeds", flag(int, "Repeat with this many seeds."), 1),
    ("examples", flag(int, "Examples on which the statistic of each model is computed."), 10_000),
    ("runs", flag(Path, "Folder of the runs, which receives the figure and the readings."), Path("runs")),
    ("json", flag(bool, "Print JSON for machines."), False),
]


@commands.register("dimension", "find how many latent variables a model needs", group="training")
def main(arguments: list[str]) -> int:
    config, options = parse_run(arguments, "dimension", EXTRA)
    check_place(options.runs, "--runs")
    if options.seeds < 1:
        raise ValueError(f"--seeds is {options.seeds}: at least 1 is needed")
    if options.statistic == "types" and options.threshold is not None:
        raise ValueError("counting types has no threshold: leave --threshold out")
    console = Terminal(quiet=options.json, markup=False, emoji=False, highlight=False)
    start = options.first
    if start is None:
        estimate = data_dimension(config.world, options.examples)
        start = min(max(1, round(estimate.value)), options.cap)
        console.print(
            f"intrinsic dimension of the data {estimate.value:.1f} ({estimate.samples} distinct examples): "
            f"the search starts at {start}",
            highlight=False,
            soft_wrap=True,
        )
    if start < 1:
        raise ValueError(f"--first is {start}: a search starts with at least 1 latent")
    statistics = () if options.statistic == "types" else (options.statistic,)
    probe = DimensionProbe(config, options.examples, statistics)
    most = min(options.budget, config.training.steps) if options.once else config.training.steps
    found = []
    for seed in range(config.training.seed, config.training.seed + options.seeds):
        work = _Work(probe, options, start, seed, console)
        found.append(stable_dimension(work.attempt, doubling(options.budget, most)))
        _verdict(found[-1], seed, options.once, console)
    return _report(config, options, start, found, console)


@dataclass(frozen=True)
class _Work:
    """The searches of one seed: a progress bar for each training, a line for each reading."""

    probe: DimensionProbe
    options: Any
    start: int
    seed: int
    console: Terminal

    def attempt(self, steps: int) -> DimensionSearch:
        self.console.print(f"seed {self.seed}, {steps} steps per model:", highlight=False)
        read = partial(self.read, steps)
        options = self.options
        if options.statistic == "types":
            return type_count_dimension(read, self.start, options.cap, self.tell("passive variables", "enlarge"))
        tell = self.tell(f"{options.statistic} gap", "pass")
        return search_dimension(read, self.start, options.statistic, options.threshold, options.cap, tell=tell)

    def read(self, steps: int, latents: int) -> Reading:
        with bars([f"{latents} latents"], steps, quiet=self.options.json) as (tell,):
            listeners = Listeners(step=paced(tell, steps))
            return self.probe(latents, steps=steps, seed=self.seed, listeners=listeners)

    def tell(self, name: str, passing: str) -> Callable[[Reading, float, bool], None]:
        def line(reading: Reading, value: float, passed: bool) -> None:
            verdict = passing if passed else "too many" if passing == "pass" else "enough"
            notes = ", still collapsed" if reading.collapsed else ""
            if reading.bottleneck is not None and reading.bottleneck.saturated:
                notes += ", information saturated"
            self.console.print(
                f"  n = {reading.latents:<4} {name} {value:8.3f}  {verdict:<8}  "
                f"reconstruction {reading.reconstruction:.2f} ({reading.explained:.0%} explained{notes})",
                highlight=False,
                soft_wrap=True,
            )

        return line


def _verdict(found: StableDimension, seed: int, once: bool, console: Terminal) -> None:
    """The verdict of the guard and the limits on one seed's answer."""
    last = found.last
    if not last.trusted:
        console.print("guard: NOT trusted.")
    elif found.stable:
        console.print(f"guard: passed, and the answer no longer changes with more steps ({last.steps} per model).")
    elif not once:
        console.print("guard: passed, but the answer still changes with more steps: raise --training.steps.")
    else:
        console.print("guard: passed; stability over steps was not tested (--once).")
    number = counted(found.answer, "latent variable")
    answer = number if last.trusted else f"none that can be trusted (the search ended at {number})"
    console.print(f"answer for seed {seed}: {answer}")


def _report(config: RunConfig, options: Any, start: int, found: list[StableDimension], console: Terminal) -> int:
    """Keep the document in a run folder, and print it."""
    settings = {"statistic": options.statistic, "start": start, "cap": options.cap, "budget": options.budget}
    about = config.describe() | {"dimension": settings}
    run = Store(options.runs).create(about, f"dimension {config.label}", "dimension")
    findings = dimension_findings(found, called(config.world), start, about)
    answers = [one.answer for one in found if one.last.trusted]
    dimension = sum(answers) / len(answers) if answers else None
    run.update(status="done", result={"dimension": dimension, "models": sum(one.models for one in found)})
    saved = keep_findings(findings, "dimension", run)
    console.print()
    return answer(findings, saved, options.json, run=run.id)
