"""Where jobs run: the flags that commands with many jobs share."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from polariscope.lab.executors import Place, executors


@dataclass(frozen=True)
class PlaceOptions:
    """Options of a command with many jobs."""

    workers: int = 0
    """Jobs at once, one thread each; 0 takes one per core."""
    executor: str = "processes"
    """Where jobs run: processes on this machine, or ray for a cluster (see docs/cluster.md)."""
    address: str = ""
    """Address of the cluster; without one, --executor ray starts Ray on this machine."""
    cpus: float = 1.0
    """Cores for each job on a cluster."""
    gpus: float = 0.0
    """GPUs for each job on a cluster."""


def place_of(options: Any) -> Place:
    """The place that the flags of a command name. An executor that is unknown or not installed is refused: commands
    call this before they write anything."""
    executor = executors.get(options.executor)
    if options.executor == "processes":
        if options.address:
            raise ValueError("--address names a cluster: give --executor ray too")
        return Place(workers=options.workers or None)
    for name in ("cpus", "gpus"):
        if getattr(options, name) < 0:
            raise ValueError(f"--{name} is {getattr(options, name):g}: it must be 0 or more")
    getattr(executor, "check_installed", lambda: None)()
    address = options.address or os.environ.get("RAY_ADDRESS", "")
    return Place(options.executor, options.workers or None, address, options.cpus, options.gpus, deaths=3)
