"""Corruptions, suites of them, and the random numbers that they use."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from polariscope.registry import nearest
from polariscope.worlds.numbered_draws import random_words

Images = NDArray[np.floating[Any]]
"""``float32 (n, channels, height, width)``, from 0 to 1."""

HELD_OUT = "held out"
"""The group of corruptions that are no part of the benchmark, so that one may train on them."""


@dataclass(frozen=True)
class Draws:
    """Random numbers of images: functions of the seed, the kind of corruption and the number of each image alone.

    Every severity of a kind has the same ones, so that severities differ by nothing but their settings.
    """

    seed: int
    kind: str
    numbers: NDArray[np.int64]

    def uniform(self, what: str, *shape: int) -> NDArray[np.float32]:
        """``(n, *shape)`` numbers between 0 and 1, neither of them included; others for other words."""
        entropy = (self.seed % 2**64, zlib.crc32(self.kind.encode()), zlib.crc32(what.encode()))
        key = int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0])
        count = int(np.prod(shape))
        halves = random_words(key, self.numbers, (count + 1) // 2).view(np.uint32)[:, :count]
        # 23 bits and a half step: the largest one is still below 1 as a 32-bit float.
        drawn = (halves >> np.uint32(9)).astype(np.float32)
        drawn += np.float32(0.5)
        drawn *= np.float32(2.0**-23)
        return drawn.reshape(-1, *shape)

    def normal(self, what: str, *shape: int) -> NDArray[np.float32]:
        """``(n, *shape)`` standard normal numbers."""
        return np.asarray(ndtri(self.uniform(what, *shape)), np.float32)


@dataclass(frozen=True)
class Corruption:
    """One kind of corruption, in one or several severities."""

    name: str
    group: str
    change: Callable[..., Images]
    """A function of images, their :class:`Draws`, the length of a published pixel in pixels of these images, and the
    settings of a severity. Its results are then clipped to the range from 0 to 1."""
    settings: tuple[tuple[Any, ...], ...] = ((),)
    """The published constants of each severity. Lengths are in pixels of the published size."""
    coloured: bool = False
    """Whether it is about colours, so that pictures need three channels."""

    @property
    def severities(self) -> int:
        return len(self.settings)


@dataclass(frozen=True)
class Suite:
    """Corruptions that belong together, with constants for pictures of one size."""

    name: str
    size: int
    """Pixels a side that the constants are meant for; for other pictures lengths are rescaled."""
    kinds: Mapping[str, Corruption]

    @property
    def benchmark(self) -> tuple[str, ...]:
        """Names of the corruptions that a model is judged by."""
        return tuple(kind.name for kind in self.kinds.values() if kind.group != HELD_OUT)

    def at(self, kind: str, severity: int) -> tuple[Corruption, tuple[Any, ...]]:
        """A corruption and its settings at a severity."""
        if kind not in self.kinds:
            raise ValueError(f"{self.name} has no corruption {kind!r}: {nearest(kind, self.kinds)}")
        corruption = self.kinds[kind]
        if severity != int(severity) or not 1 <= severity <= corruption.severities:
            known = f"from 1 to {corruption.severities}" if corruption.severities > 1 else "1, the only one there is"
            raise ValueError(f"severity is {severity}: that of {kind!r} in {self.name} is {known}")
        return corruption, corruption.settings[int(severity) - 1]
