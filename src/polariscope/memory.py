"""Free memory, and how to keep freed memory for the next batch.

A pass through a network frees its activations, and the next pass allocates the same amount. By default the C library
returns such blocks to the system, and every page is mapped and cleared again: on a CPU about a tenth of a training step
of a small convolutional network, and a third of a pass without gradients.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Names of two settings of glibc's ``mallopt``."""
_USUAL = (2**25, 2**26)
"""Where glibc's own adjustment of both settings ends, in a process that has freed large blocks before."""
_LOCK = threading.Lock()
_HOLDERS = 0


@functools.cache
def keep_freed_memory() -> bool:
    """Tell glibc to keep freed memory in this process. The peak does not change; other C libraries are not affected."""
    return _keep(2**30, 2**31 - 1)


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Keep freed memory during a block, in the user's own process: it runs as fast as on the command line. Afterwards
    the memory is returned to the system, and glibc maps and returns large blocks as usual."""
    global _HOLDERS
    with _LOCK:
        _HOLDERS += 1
        if _HOLDERS == 1 and not keep_freed_memory.cache_info().currsize:
            _keep(2**30, 2**31 - 1)
    try:
        yield
    finally:
        with _LOCK:
            _HOLDERS -= 1
            if _HOLDERS == 0 and not keep_freed_memory.cache_info().currsize and _keep(*_USUAL):
                ctypes.CDLL(None).malloc_trim(0)


def _keep(mapped: int, trimmed: int) -> bool:
    """Set from which size on a block is mapped on its own, and how much free memory is kept; False outside glibc."""
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(_MMAP_THRESHOLD, mapped) and mallopt(_TRIM_THRESHOLD, trimmed))


def available_memory(root: Path = Path("/")) -> int:
    """Bytes that can still be allocated: free memory of the system, or the rest of a container's limit."""
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
