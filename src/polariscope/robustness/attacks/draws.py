"""Random numbers that belong to one sample: a function of the seed, the sample's number and the place in the attack.

So a sample meets the same random numbers whichever others are in its batch, and in whichever order they are attacked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polariscope.worlds.numbered_draws import counters, mix

Key = Sequence[int | Tensor]
"""The key of a draw, such as (restart, step); a tensor has a number for each row."""
HALF = np.uint64(32)


class Draws:
    """Random numbers of samples that have numbers, in single precision."""

    def __init__(self, seed: int, numbers: Tensor) -> None:
        self.seed, self.numbers = seed, numbers.cpu()

    def at(self, rows: Tensor) -> Draws:
        return Draws(self.seed, self.numbers[rows.cpu()])

    def uniform(self, rows: Tensor, count: int, key: Key) -> Tensor:
        """``count`` numbers from (0, 1) for each row.

        >>> alone, among_others = Draws(3, torch.tensor([5])), Draws(3, torch.arange(9))
        >>> a, b = alone.uniform(torch.tensor([0]), 4, [1]), among_others.uniform(torch.tensor([2, 5]), 4, [1])
        >>> torch.equal(a[0], b[1])
        True
        """
        words = self._words(rows, (count + 1) // 2, key)
        halves = np.stack([words >> HALF, words & np.uint64(2**32 - 1)], axis=-1).reshape(len(words), -1)[:, :count]
        # 24 bits and a half: never 0 nor 1, and every value is exact in single precision.
        numbers = ((halves >> np.uint64(9)).astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-23)
        return torch.from_numpy(numbers).to(rows.device)

    def normal(self, rows: Tensor, count: int, key: Key) -> Tensor:
        """``count`` standard normal numbers for each row (Box and Muller 1958)."""
        even = count + count % 2
        radius, angle = self.uniform(rows, even, key).chunk(2, dim=1)
        radius = (-2 * radius.log()).sqrt()
        angle = 2 * math.pi * angle
        return torch.cat([radius * angle.cos(), radius * angle.sin()], dim=1)[:, :count]

    def order(self, rows: Tensor, count: int, key: Key) -> Tensor:
        """A random order of ``count`` things for each row."""
        return torch.from_numpy(self._words(rows, count, key).argsort(axis=1)).to(rows.device)

    def _words(self, rows: Tensor, count: int, key: Key) -> NDArray[np.uint64]:
        state = np.full(len(rows), self.seed % 2**64, np.uint64)
        for part in (*key, self.numbers[rows.cpu()]):
            words = part.cpu().numpy().astype(np.uint64) if isinstance(part, Tensor) else np.uint64(part)
            state = mix(counters(state ^ words, 1))[:, 0]
        return mix(counters(state, count))
