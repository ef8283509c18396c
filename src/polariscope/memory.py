"""Keep freed memory for the next batch.

A pass through a network frees its activations and the next one asks for the same again. The C library gives such blocks
back to the system in between, and every page of them is then mapped and cleared anew: on a CPU about a tenth of a
training step of a small convolutional network, and a third of a pass without gradients.
"""

from __future__ import annotations

import ctypes
import functools
import platform

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Names of two settings of glibc's ``mallopt``."""


@functools.cache
def keep_freed_memory() -> bool:
    """Tell glibc, for this process, to keep what is freed. The peak stays what it was; elsewhere nothing is done."""
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(_MMAP_THRESHOLD, 2**30) and mallopt(_TRIM_THRESHOLD, 2**31 - 1))
