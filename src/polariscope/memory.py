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


def available_memory() -> int:
    """Bytes that could still be taken here: what the system has free, or what is left of a container's allowance."""
    meminfo, group = Path("/proc/meminfo"), Path("/sys/fs/cgroup")
    if not meminfo.exists():
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else sys.maxsize
    free = 1024 * _entry(meminfo, "MemAvailable:")
    limit = group / "memory.max"
    if limit.exists() and limit.read_text().strip() != "max":
        # What the group's files keep in the cache counts as used, but gives way.
        used = int((group / "memory.current").read_text()) - _entry(group / "memory.stat", "file")
        free = min(free, int(limit.read_text()) - used)
    return free


def _entry(table: Path, name: str) -> int:
    return next(int(line.split()[1]) for line in table.read_text().splitlines() if line.split()[0] == name)
