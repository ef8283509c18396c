"""Progress of trainings on standard error: rate, time left and loss of each run, also of runs in other processes."""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from polariscope.console import Terminal


@dataclass(frozen=True)
class Progress:
    """The progress of a run, as a progress bar shows it."""

    step: int
    steps: int
    loss: float
    warning: str = ""


Tell = Callable[[Progress], None]
"""Receives the progress of a training."""
TellNamed = Callable[[str, Progress], None]
"""Receives the name and the progress of one of several trainings."""
TellShare = Callable[[str, float], None]
"""Receives the name of a piece of work and the share of it that is done."""


class Pace:
    """The rate of a run since its first report. Earlier time (a queue, the start of a worker, an earlier part of a
    resumed run) does not count."""

    def __init__(self) -> None:
        self._first: tuple[int, float] | None = None

    def rate(self, step: int, now: float) -> float | None:
        """Steps per second; None until a second report."""
        if self._first is None or step < self._first[0]:
            self._first = (step, now)
        first, begun = self._first
        return (step - first) / (now - begun) if step > first and now > begun else None


def watched(quiet: bool = False) -> bool:
    """Whether a progress bar would be seen: in a terminal or a notebook, but not in a worker process."""
    if quiet or multiprocessing.parent_process() is not None:
        return False
    return Terminal(stderr=True).is_terminal or _notebook() is not None


@contextmanager
def bars(names: Sequence[str], steps: int, quiet: bool = False) -> Iterator[list[Tell]]:
    """One progress bar per run; yields a callback for each of them. Without a terminal, each run prints a line every
    half minute instead."""
    console = Terminal(stderr=True, markup=False, emoji=False)
    if quiet:
        yield [lambda point: None for _ in names]
        return
    if (display := _notebook()) is not None:
        yield [_updated(display, name) for name in names]
        return
    if not console.is_terminal:
        yield [_lines(console, name) for name in names]
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TaskProgressColumn(show_speed=True),
        TextColumn("{task.fields[rate]:>13}"),
        TimeRemainingColumn(),
        TextColumn("loss {task.fields[loss]:.1f}"),
    )
    with Bars(*columns, console=console, refresh_per_second=4) as progress:
        tasks = [progress.add_task(name, total=steps, loss=float("nan"), rate="") for name in names]

        def teller(task: int) -> Tell:
            pace = Pace()

            def tell(point: Progress) -> None:
                if point.warning:
                    progress.console.print(f"{names[task]}: warning: {point.warning}", highlight=False)
                rate = pace.rate(point.step, time.monotonic())
                words = "" if rate is None else f"{rate:.1f} steps/s"
                progress.update(progress.task_ids[task], completed=point.step, loss=point.loss, rate=words)

            return tell

        yield [teller(number) for number, _ in enumerate(tasks)]


def _lines(console: Terminal, name: str, every: float = 30.0) -> Tell:
    """Print a line every half minute, at each warning and at the end."""
    due = time.monotonic() + every
    pace = Pace()

    def tell(point: Progress) -> None:
        nonlocal due
        now = time.monotonic()
        rate = pace.rate(point.step, now)
        if now >= due or point.step == point.steps or point.warning:
            due = now + every
            console.print(_line(name, point, rate), highlight=False)

    return tell


def _updated(display: Callable[..., Any], name: str) -> Tell:
    """One line in a notebook that is overwritten."""
    pace = Pace()
    handle = display({"text/plain": f"{name}: starting"}, raw=True, display_id=True)

    def tell(point: Progress) -> None:
        handle.update({"text/plain": _line(name, point, pace.rate(point.step, time.monotonic()))}, raw=True)

    return tell


def _line(name: str, point: Progress, rate: float | None) -> str:
    left = None if rate is None else (point.steps - point.step) / rate
    speed = "" if left is None else f", {rate:.1f} steps/s, {left:.0f} s left"
    done = f"step {point.step} of {point.steps}{speed}"
    warning = f"; warning: {point.warning}" if point.warning else ""
    return f"{name}: {done}, loss {point.loss:.1f}{warning}"


def _notebook() -> Callable[..., Any] | None:
    """The display function of the notebook that this runs in; None outside notebooks."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if type(shell).__name__ != "ZMQInteractiveShell":
        return None
    return getattr(sys.modules.get("IPython.display"), "display", None)
