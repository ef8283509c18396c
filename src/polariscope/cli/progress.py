"""Progress on standard error of work other than training; bars of trainings are in
:mod:`polariscope.training.progress`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

from polariscope.console import Terminal
from polariscope.training.progress import Progress as Point
from polariscope.training.progress import Tell, TellShare
from polariscope.training.progress import bars as bars


@contextmanager
def training_then_shares(name: str, steps: int, quiet: bool = False) -> Iterator[tuple[Tell, TellShare]]:
    """Two reporters: for the progress of a training, and for the share of each part of the work after it. Each bar
    appears with its first report, one after the other."""
    with ExitStack() as stack:
        training: list[Tell] = []
        parts: list[TellShare] = []

        def train(point: Point) -> None:
            if not training:
                training.extend(stack.enter_context(bars([name], steps, quiet=quiet)))
            training[0](point)

        def tell(part: str, share: float) -> None:
            if not parts:
                stack.close()
                parts.append(stack.enter_context(shares(quiet)))
            parts[0](part, share)

        yield train, tell


@contextmanager
def shares(quiet: bool = False, every: float = 30.0) -> Iterator[TellShare]:
    """Yields a reporter for the finished share of each named part of the work: a bar each, or a line every half
    minute."""
    console = Terminal(stderr=True, markup=False, emoji=False)
    if quiet:
        yield lambda name, share: None
        return
    if not console.is_terminal:
        due = time.monotonic() + every
        begun: dict[str, tuple[float, float]] = {}

        def line(name: str, share: float) -> None:
            nonlocal due
            now = time.monotonic()
            since, from_share = begun.setdefault(name, (now, share))
            if now >= due:
                due = now + every
                console.print(
                    f"{name}: {share:.0%}{time_left(now - since, share - from_share, 1 - share)}", highlight=False
                )

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


def time_left(seconds: float, done: float, left: float) -> str:
    """The remaining time, if the rest takes as long per share as the ``seconds`` for the finished share did.

    >>> time_left(60, 0.25, 0.5), time_left(600, 0.1, 0.9), time_left(3, 0.0, 1.0)
    (', about 2 min left', ', about 1.5 h left', '')
    """
    if done <= 0 or left <= 0:
        return ""
    rest = seconds * left / done
    if rest < 60:
        return f", about {max(1, round(rest))} s left"
    return f", about {rest / 60:.0f} min left" if rest < 5400 else f", about {rest / 3600:.1f} h left"
