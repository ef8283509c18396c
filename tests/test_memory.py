"""Freed activations stay with the process: a second pass over the same sizes maps next to no new page."""

import inspect
import platform
import subprocess
import sys

import pytest
import torch

from polariscope import memory

resource = pytest.importorskip("resource")
pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the setting exists in glibc only")


def faults(block):
    """Pages mapped by 20 passes over four blocks of 8 MB."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        blocks = [block(2**23) for _ in range(4)]
        del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


# In a process of its own, because the setting cannot be taken back, and without the package, which is slow to import.
PROBE = f"""
import resource, runpy
{inspect.getsource(faults)}
keep_freed_memory = runpy.run_path({memory.__file__!r})["keep_freed_memory"]
before = faults(bytearray)
keep_freed_memory()
faults(bytearray)
print(before, faults(bytearray))
"""


def test_freed_blocks_are_kept() -> None:
    output = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True).stdout
    before, after = map(int, output.split())
    assert before > 10_000, "without the setting each block is mapped anew"
    assert after < before / 50


BORROWED = f"""
import resource, runpy
{inspect.getsource(faults)}
freed_memory_kept = runpy.run_path({memory.__file__!r})["freed_memory_kept"]
def resident():
    return int(open("/proc/self/statm").read().split()[1])
def large(size):
    return bytearray(8 * size)
start = resident()
before = faults(large)
with freed_memory_kept():
    with freed_memory_kept():
        faults(large)
    inside, held = faults(large), resident() - start
print(before, inside, held, resident() - start, faults(large))
"""


def test_a_training_keeps_freed_blocks_and_then_gives_them_back() -> None:
    output = subprocess.run([sys.executable, "-c", BORROWED], capture_output=True, text=True, check=True).stdout
    before, inside, held, left, after = map(int, output.split())
    assert before > 100_000
    assert inside < before / 50, "no page is mapped anew inside, also after an inner use has ended"
    assert held > 50_000
    assert left < held / 10, "what was kept goes back to the system"
    assert after > before / 2, "large blocks are mapped anew again, as in any process"


def test_tensors_are_such_blocks() -> None:
    assert memory.keep_freed_memory()
    passes = [faults(lambda size: torch.ones(size, dtype=torch.uint8)) for _ in range(2)]
    assert passes[-1] < 1000, "of 160,000 pages"
