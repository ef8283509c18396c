"""Freed activations stay with the process: a second pass over the same sizes maps next to no new page."""

import platform
import subprocess
import sys

import pytest

PROBE = """
import resource, torch
from polariscope.memory import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        blocks = [torch.ones(2**21) for _ in range(4)]
        del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

before = faults()
keep_freed_memory()
faults()
print(before, faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the setting exists in glibc only")
def test_freed_blocks_are_kept() -> None:
    output = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True).stdout
    before, after = map(int, output.split())
    assert before > 10_000, "without the setting each block is mapped anew"
    assert after < before / 50
