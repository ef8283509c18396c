"""Commands that the explorer starts: each is a ``polariscope`` command in a process of its own, stopped as by Ctrl-C.

They behave as on the command line: a training saves its state when it is stopped, and resumes to the same bits.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from polariscope import plugins
from polariscope.printable import one_line

MOST_AT_ONCE = 4
MOST_KEPT = 50
LINES = 40
GRACE = 10.0
"""Seconds that a command has to save its state."""


@dataclass
class Job:
    """One command."""

    number: int
    words: tuple[str, ...]
    run: str
    process: subprocess.Popen[str]
    started: float = field(default_factory=time.time)
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=LINES))
    stopped: bool = False

    @property
    def state(self) -> str:
        code = self.process.poll()
        if code is None:
            return "stopping" if self.stopped else "running"
        return "done" if code == 0 else "stopped" if code in (130, 143, -signal.SIGINT) else "failed"

    def about(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "command": " ".join(["polariscope", *self.words]),
            "name": self.words[0],
            "run": self.run,
            "state": self.state,
            "started": self.started,
            "lines": [one_line(line) for line in list(self.lines)[-6:]],
        }


class Jobs:
    """The commands of one explorer; all of them are stopped with it."""

    def __init__(self, runs: Path) -> None:
        self.runs = runs
        self._jobs: dict[int, Job] = {}
        self._lock = threading.Lock()
        self._next = 1

    def start(self, words: Sequence[str], run: str = "") -> Job:
        """Start a command on the runs of this explorer; one that is being stopped on the same run ends first."""
        for job in self.of(run):
            if job.state == "stopping":
                with suppress(subprocess.TimeoutExpired):
                    job.process.wait(GRACE)
        with self._lock:
            going = [job for job in self._jobs.values() if job.state in ("running", "stopping")]
            if any(job.run == run and job.words == tuple(words) for job in going):
                raise ValueError(f"'polariscope {' '.join(words)}' is running already")
            if len(going) >= MOST_AT_ONCE:
                raise ValueError(f"{len(going)} commands are running: wait for one of them, or stop it")
            arguments = [*words, "--runs", str(self.runs), *plugins.flags()]
            process = subprocess.Popen(
                [sys.executable, "-m", "polariscope", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                encoding="utf-8",
                errors="replace",
                env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120"},
                start_new_session=True,  # Ctrl-C at the terminal reaches the explorer, which then stops its commands
            )
            job = Job(self._next, tuple(words), run, process)
            self._jobs[self._next] = job
            self._next += 1
            for number in [n for n, old in self._jobs.items() if old.process.poll() is not None][:-MOST_KEPT]:
                del self._jobs[number]
        threading.Thread(target=_read, args=(process.stdout, job.lines), daemon=True).start()
        return job

    def stop(self, number: int) -> Job:
        """Stop a command as Ctrl-C does: it saves its state."""
        job = self._jobs.get(number)
        if job is None:
            raise ValueError(f"this explorer has no command number {number}")
        if job.process.poll() is None:
            job.stopped = True
            job.process.send_signal(signal.SIGINT)
        return job

    def of(self, run: str) -> list[Job]:
        return [job for job in self._jobs.values() if job.run == run]

    def all(self) -> list[Job]:
        return list(self._jobs.values())

    def close(self, grace: float = GRACE) -> None:
        """Stop everything, and wait a while until it has saved itself."""
        for job in self.all():
            if job.process.poll() is None:
                self.stop(job.number)
        until = time.monotonic() + grace
        for job in self.all():
            try:
                job.process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                job.process.kill()
                job.process.wait()


def _read(pipe: IO[str] | None, lines: deque[str]) -> None:
    """Keep the last lines that a command prints: a full pipe would stop it."""
    assert pipe is not None
    with pipe:
        for line in pipe:
            if line.strip():
                lines.append(line.strip()[:500])
