"""``polariscope dimension``: how many latent variables does this model need on this data?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from polariscope.cli import commands
from polariscope.cli.configuration import parse_run
from polariscope.cli.parsing import check_place, flag
from polariscope.cli.progress import bars
from polariscope.console import Terminal
from polariscope.dimension.find import Deciding, Watch, find_dimension
from polariscope.dimension.trained import Reading, StableDimension
from polariscope.grammar import counted
from polariscope.lab.store import Store
from polariscope.measures.intrinsic_dimension import DimensionEstimate
from polariscope.report.terminal import answer
from polariscope.training.run import Tell

ABOUT = """Finds how many latent variables a model needs on this data. It trains models with more and with fewer
latents, each for a short time, until it knows the largest number of latents without passive variables."""
EXTRA = [
    (
        "statistic",
        flag(
            Deciding,
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
    config, options = parse_run(arguments, "dimension", EXTRA, about=ABOUT)
    check_place(options.runs, "--runs")
    asked = {name: getattr(options, name) for name, _, _ in EXTRA if name not in ("runs", "json")}
    console = Terminal(quiet=options.json, markup=False, emoji=False, highlight=False)
    search = find_dimension(config, watch=Shown(console, options.statistic, options.once, options.json), **asked)
    run, page = search.keep(Store(options.runs))
    console.print()
    return answer(search.findings(), page, options.json, run=run.id)


@dataclass(frozen=True)
class Shown(Watch):
    """A search on the terminal: a progress bar for each training, a line for each reading."""

    console: Terminal
    statistic: str
    once: bool
    quiet: bool

    def start(self, estimate: DimensionEstimate, latents: int) -> None:
        examples = f"{estimate.samples} distinct examples"
        self._say(f"intrinsic dimension of the data {estimate.value:.1f} ({examples}): the search starts at {latents}")

    def attempt(self, seed: int, steps: int) -> None:
        self._say(f"seed {seed}, {steps} steps per model:")

    @contextmanager
    def training(self, latents: int, steps: int) -> Iterator[Tell | None]:
        with bars([f"{latents} latents"], steps, quiet=self.quiet) as (tell,):
            yield tell

    def reading(self, reading: Reading, value: float, passed: bool) -> None:
        counting = self.statistic == "types"
        name = "passive variables" if counting else f"{self.statistic} gap"
        verdict = ("enlarge" if passed else "enough") if counting else ("pass" if passed else "too many")
        notes = ", still collapsed" if reading.collapsed else ""
        if reading.bottleneck is not None and reading.bottleneck.saturated:
            notes += ", information saturated"
        self._say(
            f"  n = {reading.latents:<4} {name} {value:8.3f}  {verdict:<8}  "
            f"reconstruction {reading.reconstruction:.2f} ({reading.explained:.0%} explained{notes})"
        )

    def answer(self, seed: int, answer: StableDimension) -> None:
        """The verdict of the guard and the limits on one seed's answer."""
        last = answer.last
        if not last.trusted:
            self._say("guard: NOT trusted.")
        elif answer.stable:
            self._say(f"guard: passed, and the answer no longer changes with more steps ({last.steps} per model).")
        elif not self.once:
            self._say("guard: passed, but the answer still changes with more steps: raise --training.steps.")
        else:
            self._say("guard: passed; stability over steps was not tested (--once).")
        number = counted(answer.answer, "latent variable")
        words = number if last.trusted else f"none that can be trusted (the search ended at {number})"
        self._say(f"answer for seed {seed}: {words}")

    def _say(self, line: str) -> None:
        self.console.print(line, highlight=False, soft_wrap=True)
