"""Damaged copies of a file, and a process of limited memory and time to read them in.

Damages of a disk, a network or a stranger: flipped bits, missing ends, blocks of zeros, and wrong length fields. The
same seed gives the same damages.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

HEAD = 512
"""Bytes at both ends of a file, where most formats have their lengths: half of all damages happen there."""
SIZES = (0, 1, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 1)
"""Values that replace a field."""
DIGITS = re.compile(rb"\d+")


@dataclass(frozen=True)
class Damage:
    """A damage, and the content of the file after it."""

    what: str
    content: bytes


def damages(content: bytes, count: int, seed: int = 0) -> Iterator[Damage]:
    """Damaged copies of a file's content, always the same for the same seed.

    >>> [damage.what for damage in damages(b"length = 100", 3, seed=4)]
    ['4 bytes at 10 say 4294967295, big end first', 'the number at 9 says 1', '9 bytes at 3 are 255']
    """
    generator = np.random.default_rng(seed)
    kinds = (_flipped, _cut, _blanked, _field, _number)
    for _ in range(count if content else 0):
        yield kinds[generator.integers(len(kinds))](content, generator)


def _place(content: bytes, generator: np.random.Generator) -> int:
    """Somewhere in a file, at its ends as often as in all of it."""
    end = min(HEAD, len(content))
    where = generator.integers(4)
    if where == 0:
        return int(generator.integers(end))
    return len(content) - 1 - int(generator.integers(end)) if where == 1 else int(generator.integers(len(content)))


def _flipped(content: bytes, generator: np.random.Generator) -> Damage:
    damaged, places = bytearray(content), []
    for _ in range(int(generator.choice([1, 1, 2, 8]))):
        place, bit = _place(content, generator), int(generator.integers(8))
        damaged[place] ^= 1 << bit
        places.append(f"bit {bit} of byte {place}")
    return Damage(f"{', '.join(places)} flipped", bytes(damaged))


def _cut(content: bytes, generator: np.random.Generator) -> Damage:
    end = _place(content, generator)
    return Damage(f"cut to {end} of {len(content)} bytes", content[:end])


def _blanked(content: bytes, generator: np.random.Generator) -> Damage:
    place, length = _place(content, generator), int(2 ** generator.integers(1, 10))
    byte = int(generator.choice([0, 255]))
    blank = bytes([byte]) * len(content[place : place + length])
    return Damage(f"{len(blank)} bytes at {place} are {byte}", content[:place] + blank + content[place + length :])


def _field(content: bytes, generator: np.random.Generator) -> Damage:
    place, width = _place(content, generator), int(generator.choice([1, 2, 4, 8]))
    value = SIZES[generator.integers(len(SIZES))] % 2 ** (8 * width)
    order = ("little", "big")[generator.integers(2)]
    field = value.to_bytes(width, "little" if order == "little" else "big")
    what = f"{width} bytes at {place} say {value}, {order} end first"
    return Damage(what, content[:place] + field + content[place + width :])


def _number(content: bytes, generator: np.random.Generator) -> Damage:
    """A number in text, as headers of npy files and JSON have them; other files lose a bit."""
    numbers = list(DIGITS.finditer(content[: 2**16]))
    if not numbers:
        return _flipped(content, generator)
    number = numbers[generator.integers(len(numbers))]
    value = (*SIZES, 2**70, -1)[generator.integers(len(SIZES) + 2)]
    start, end = number.span()
    return Damage(f"the number at {start} says {value}", content[:start] + str(value).encode() + content[end:])


def run_limited(work: Callable[[], Iterable[str]], memory: int, seconds: int) -> tuple[list[str], str]:
    """Run ``work`` in a child of this warm process; the lines that it gave, and how it ended: "" if as it should.

    The child may take ``memory`` bytes more than this process has, and ``seconds`` from one line to the next. What it,
    or a library in it, writes to its output or errors ends it too: nobody asked for that.
    """
    if not hasattr(os, "fork"):
        raise OSError("damaged files are read in a fork of this process, which needs Linux or macOS")
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryFile() as lines, tempfile.TemporaryFile() as noise:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # about threads of ours, of which a child uses none
            child = os.fork()
        if not child:
            _work(work, memory, seconds, lines.fileno(), noise.fileno())
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        lines.seek(0)
        noise.seek(0)
        came, written = lines.read().decode(errors="replace").splitlines(), noise.read().decode(errors="replace")
    if code == -signal.SIGALRM:
        return came, f"does not end within {seconds} s"
    if code:
        how = f"ends the process with {signal.Signals(-code).name}" if code < 0 else "raises"
        return came, f"{how}: {written[-2000:].strip()}"
    return came, f"writes {written[:200]!r}" if written else ""


def _work(work: Callable[[], Iterable[str]], memory: int, seconds: int, lines: int, noise: int) -> None:
    """The life of the child."""
    import resource

    code = 1
    try:
        faulthandler.disable()  # which would write elsewhere
        for output in (1, 2):
            os.dup2(noise, output)
        pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else None
        if pages is not None:  # elsewhere what a process has mapped is not told, and there is no limit
            limit = pages * os.sysconf("SC_PAGE_SIZE") + memory
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(seconds)
        for line in work():
            os.write(lines, line.encode(errors="replace") + b"\n")
            signal.alarm(seconds)
            if os.fstat(noise).st_size:
                break
        code = 0
    except BaseException:  # noqa: BLE001 - nothing of the child may go on as a second of this process
        os.write(noise, traceback.format_exc().encode(errors="replace"))
    finally:
        os._exit(code)
