"""Codes that several visitors send at the same moment go through the decoder in one batch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST = 256
"""Codes in one pass."""


class Batcher:
    """It never waits: codes that arrive during a pass form the next batch."""

    def __init__(self, decode: Callable[[NDArray[np.float32]], NDArray[Any]]) -> None:
        self.decode = decode
        self._waiting: list[tuple[NDArray[np.float32], asyncio.Future[NDArray[Any]]]] = []
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, codes: NDArray[np.float32]) -> NDArray[Any]:
        future: asyncio.Future[NDArray[Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append((codes, future))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._drain())
        return await future

    async def _drain(self) -> None:
        while self._waiting:
            batch = [self._waiting.pop(0)]
            while self._waiting and sum(len(codes) for codes, _ in batch) + len(self._waiting[0][0]) <= MOST:
                batch.append(self._waiting.pop(0))
            try:
                images = await asyncio.to_thread(self.decode, np.concatenate([codes for codes, _ in batch]))
            except Exception as error:  # noqa: BLE001 - it is raised again for each who asked
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            at = 0
            for codes, future in batch:
                if not future.done():
                    future.set_result(images[at : at + len(codes)])
                at += len(codes)
