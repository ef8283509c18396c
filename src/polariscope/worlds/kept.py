"""A cache of rendered pictures: each is drawn when it is first needed, and kept."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

ROOM = 2**29
"""Bytes that a world's pictures may take."""


class Kept:
    """A cache for a number of pictures of one shape. More than ``room`` bytes are not kept, but drawn again every time.

    >>> kept = Kept(10, (1, 2, 2))
    >>> def draw(index):
    ...     print(f"draws {index.tolist()}")
    ...     return np.broadcast_to(index[:, None, None, None], (len(index), 1, 2, 2)).astype(np.uint8)
    >>> kept.get(np.array([3, 1, 3]), draw)[:, 0, 0, 0].tolist()
    draws [1, 3]
    [3, 1, 3]
    >>> kept.get(np.array([3, 2]), draw)[:, 0, 0, 0].tolist()
    draws [2]
    [3, 2]
    """

    def __init__(self, count: int, shape: tuple[int, ...], room: int = ROOM) -> None:
        self._made = count, shape, room
        self._fits = count * int(np.prod(shape)) <= room
        if self._fits:  # pages of memory that nothing was written to are not taken yet
            self._pictures = np.empty((count, *shape), np.uint8)
            self._there = np.zeros(count, bool)

    def __reduce__(self) -> tuple[type[Kept], tuple[int, tuple[int, ...], int]]:
        return Kept, self._made  # another process draws its own: cheaper than to send what may be half a gigabyte

    def get(
        self, index: NDArray[np.int64], draw: Callable[[NDArray[np.int64]], NDArray[np.uint8]]
    ) -> NDArray[np.uint8]:
        if not self._fits:
            return draw(index)
        new = np.unique(index[~self._there[index]])
        if len(new):
            self._pictures[new] = draw(new)
            self._there[new] = True
        return self._pictures[index]
