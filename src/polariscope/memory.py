"""How much memory there is, and how to keep what is freed for the next batch.

A pass through a network frees its activations and the next one asks for the same again. The C library gives such blocks
back to the system in between, and every page of them is then mapped and cleared anew: on a CPU about a tenth of a
training step of a small convolutional network, and a third of a pass without gradients.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Names of two settings of glibc's ``mallopt``."""


@functools.cache
def keep_freed_memory() -> bool:
    """Tell glibc, for this process, to keep what is freed. The peak stays what it was; elsewhere nothing is done."""
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(_MMAP_THRESHOLD, 2**30) and mallopt(_TRIM_THRESHOLD, 2**31 - 1))


def available_memory(root: Path = Path("/")) -> int:
    """Bytes that could still be taken here: what the system has free, or what is left of a container's allowance."""
    meminfo = root / "proc/meminfo"
    if not meminfo.exists():
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else sys.maxsize
    return min(1024 * _entry(meminfo, "MemAvailable:"), *_allowances(root))


def _allowances(root: Path) -> Iterator[int]:
    """What is left of the limits of this process's control groups, from its own up to the root's."""
    yield sys.maxsize
    mine = root / "proc/self/cgroup"
    lines = mine.read_text().split() if mine.exists() else []
    groups = root / "sys/fs/cgroup"
    own = groups / next((line.removeprefix("0::/") for line in lines if line.startswith("0::")), "")
    for group in (own, *own.parents):
        limit = group / "memory.max"
        if group.is_relative_to(groups) and limit.exists() and limit.read_text().strip() != "max":
            # What the group's files keep in the cache counts as used, but gives way.
            used = int((group / "memory.current").read_text()) - _entry(group / "memory.stat", "file")
            yield int(limit.read_text()) - used


def _entry(table: Path, name: str) -> int:
    return next(int(line.split()[1]) for line in table.read_text().splitlines() if line.split()[0] == name)
