"""Progress bars on standard error: rate, time left and loss of each run, also of runs in other processes, and how far
other long work is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from polariscope.training.run import Progress as Point
from polariscope.training.run import Tell


@contextmanager
def bars(names: Sequence[str], steps: int, quiet: bool = False) -> Iterator[list[Tell]]:
    """One bar per run; yields what to tell each of them. Without a terminal, a line every half a minute instead."""
    console = Console(stderr=True, markup=False, emoji=False)
    if quiet:
        yield [lambda point: None for _ in names]
        return
    if not console.is_terminal:
        yield [_lines(console, name) for name in names]
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TaskProgressColumn(show_speed=True),
        TextColumn("{task.fields[rate]:>5.1f} steps/s"),
        TimeRemainingColumn(),
        TextColumn("loss {task.fields[loss]:.1f}"),
    )
    with Progress(*columns, console=console, refresh_per_second=4) as progress:
        tasks = [progress.add_task(name, total=steps, loss=float("nan"), rate=0.0) for name in names]

        def teller(task: int) -> Tell:
            started = time.monotonic()

            def tell(point: Point) -> None:
                rate = point.step / max(time.monotonic() - started, 1e-9)
                progress.update(progress.task_ids[task], completed=point.step, loss=point.loss, rate=rate)

            return tell

        yield [teller(number) for number, _ in enumerate(tasks)]


@contextmanager
def shares(quiet: bool = False, every: float = 30.0) -> Iterator[Callable[[str, float], None]]:
    """Yields what to tell the share of each named part of a work that is done. A bar each, or a line every half a
    minute."""
    console = Console(stderr=True, markup=False, emoji=False)
    if quiet:
        yield lambda name, share: None
        return
    if not console.is_terminal:
        due = time.monotonic() + every

        def line(name: str, share: float) -> None:
            nonlocal due
            if time.monotonic() >= due:
                due = time.monotonic() + every
                console.print(f"{name}: {share:.0%}", highlight=False)

        yield line
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, refresh_per_second=4, transient=True) as progress:
        tasks: dict[str, TaskID] = {}

        def bar(name: str, share: float) -> None:
            if name not in tasks:
                tasks[name] = progress.add_task(name, total=1.0)
            progress.update(tasks[name], completed=share)

        yield bar


def _lines(console: Console, name: str, every: float = 30.0) -> Tell:
    started = time.monotonic()
    due = started + every

    def tell(point: Point) -> None:
        nonlocal due
        now = time.monotonic()
        if now >= due or point.step == point.steps:
            due = now + every
            rate = point.step / (now - started)
            left = (point.steps - point.step) / rate
            done = f"step {point.step} of {point.steps}, {rate:.1f} steps/s, {left:.0f} s left"
            console.print(f"{name}: {done}, loss {point.loss:.1f}", highlight=False)

    return tell
