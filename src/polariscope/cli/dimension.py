"""``polariscope dimension``: how many latent variables does this model need on this data?"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from polariscope.atomic import atomic
from polariscope.cli.configuration import parse_run
from polariscope.cli.parsing import flag
from polariscope.cli.progress import bars
from polariscope.dimension import (
    DimensionProbe,
    DimensionSearch,
    Reading,
    StableDimension,
    data_dimension,
    doubling,
    markdown,
    reading_row,
    result_rows,
    search_dimension,
    stable_dimension,
    trace_curves,
    type_count_dimension,
)
from polariscope.lab.store import Store
from polariscope.training.config import RunConfig
from polariscope.training.loop import Listeners
from polariscope.training.run import paced
from polariscope.worlds.world import worlds

EXTRA = [
    (
        "statistic",
        flag(
            Literal["trace", "trace-sampled", "ib", "ide", "types"],
            "What decides: the trace gap (FONDUE), the same from samples as published, information (FONDUE_IB), "
            "intrinsic dimensions (FONDUE_IDE), or counting the types of one generous model.",
        ),
        "trace",
    ),
    ("first", flag(int | None, "Latents of the first model; the data's intrinsic dimension if not given."), None),
    ("threshold", flag(float | None, "Largest statistic that passes; the published one if not given."), None),
    ("cap", flag(int, "Most latents to try."), 200),
    ("budget", flag(int, "Steps of the first, shortest trainings; doubled until the answer is stable."), 500),
    ("once", flag(bool, "Search once, at the budget, without waiting for a stable answer."), False),
    ("seeds", flag(int, "Repeat with this many seeds."), 1),
    ("examples", flag(int, "Examples to read each model on."), 10_000),
    ("runs", flag(Path, "Folder of the runs: the figure and the readings go there."), Path("runs")),
    ("json", flag(bool, "Print JSON for machines."), False),
]


def main(arguments: list[str]) -> int:
    config, options = parse_run(arguments, "dimension", EXTRA)
    if options.seeds < 1:
        raise ValueError(f"--seeds is {options.seeds}: at least 1 is needed")
    if options.statistic == "types" and options.threshold is not None:
        raise ValueError("counting types has no threshold: leave --threshold out")
    console = Console(quiet=options.json)
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
    """One seed's searches: each training under a progress bar, each reading a line of its own."""

    probe: DimensionProbe
    options: Any
    start: int
    seed: int
    console: Console

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


def _verdict(found: StableDimension, seed: int, once: bool, console: Console) -> None:
    """What the guard and the limits say about one seed's answer."""
    last = found.last
    if not last.trusted:
        console.print(
            "guard: NOT trusted. Models that decided the answer reconstruct hardly better than their mean: they have "
            "not learned to use latents yet. Train longer (--budget, --training.steps), or regularise less."
        )
    elif found.stable:
        console.print(f"guard: passed, and the answer no longer changes with more steps ({last.steps} a model).")
    elif not once:
        console.print("guard: passed, but the answer still changes with more steps: raise --training.steps.")
    else:
        console.print("guard: passed; stability over steps was not looked at (--once).")
    if last.search.capped:
        console.print("the search ended at its limit: raise --cap.")
    if last.saturated:
        console.print("I(x; x̂) is saturated: this answer depends on the codes alone; prefer --statistic trace.")
    console.print(f"answer for seed {seed}: {found.answer} latent variables", highlight=False)


def _report(config: RunConfig, options: Any, start: int, found: list[StableDimension], console: Console) -> int:
    """Keep figure and readings in a run folder, and print the table."""
    last = [one.last for one in found]
    rows = result_rows({worlds.name_of(config.world): last})
    settings = {"statistic": options.statistic, "start": start, "cap": options.cap, "budget": options.budget}
    run = Store(options.runs).create(
        config.describe() | {"dimension": settings}, f"dimension {config.label}", "dimension"
    )
    figure = run.path / "dimension.png"
    trace_curves(last).savefig(figure, dpi=150)
    record = {
        "answers": [one.answer for one in found],
        "stable": [one.stable for one in found],
        "trusted": [one.last.trusted for one in found],
        "start": start,
        "table": rows,
        "searches": [
            {
                "algorithm": attempt.algorithm,
                "seed": attempt.readings[0].seed if attempt.readings else None,
                "steps": attempt.steps,
                "answer": attempt.answer,
                "capped": attempt.search.capped,
                "threshold": attempt.search.threshold,
                "visited": attempt.search.visited,
                "trusted": attempt.trusted,
                "readings": [reading_row(reading) for reading in attempt.readings],
            }
            for one in found
            for attempt in one.attempts
        ],
    }
    with atomic(run.path / "dimension.json") as draft:
        Path(draft).write_text(json.dumps(record, indent=1), encoding="utf-8")
    run.update(status="done", result={"dimension": rows[0]["n_mean"], "models": sum(one.models for one in found)})
    if options.json:
        print(json.dumps({"run": run.id, "figure": str(figure), **record}))
        return 0
    console.print()
    console.print(markdown(rows), highlight=False, soft_wrap=True)
    console.print(f"figure: {figure}", highlight=False, soft_wrap=True)
    return 0
