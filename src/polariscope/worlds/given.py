"""Data of any kind as a world."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from polariscope.worlds.labels import Kinds
from polariscope.worlds.observations import Arranged, Stored, as_array, as_observations, shaped
from polariscope.worlds.readers.datasets import dataset_world
from polariscope.worlds.readers.files import File, Order, read
from polariscope.worlds.world import ArrayWorld, World, worlds

Data = World | Stored | ArrayLike | Tensor | Dataset[Any] | DataLoader[Any] | str | Path
"""A world or its name, an array or tensor, a torch data set or loader, the path of a file or of a folder of images."""


def as_world(
    data: Data,
    factors: ArrayLike | Tensor | None = None,
    *,
    kinds: Kinds | None = None,
    white: float | None = None,
    floats: bool = False,
    shape: Sequence[int] = (),
    order: Order | None = None,
) -> World:
    """Data as a world; a world as it is. ``factors`` have a row per observation.

    ``kinds`` declares kinds of factors by name and ``white`` the number of a white pixel, if they cannot be inferred
    from the data. Images of ``floats`` keep their numbers, in any number of channels. ``shape`` makes images of rows of
    numbers, ``(height, width)`` or ``(channels, height, width)``; ``order`` is the order of the numbers: along the rows
    of an image or down its columns.

    >>> as_world([[1, 2, 3], [4, 5, 6]]).shape
    (3,)
    >>> as_world([[0] * 256, [1] * 256], shape=(16, 16)).shape
    (1, 16, 16)
    """
    table = None if factors is None else as_array(factors)
    if isinstance(data, str | Path):
        if table is not None:  # a file of observations, with factors from elsewhere
            return read(data, white=white, floats=floats, kinds=kinds, shape=shape, order=order, table=table)
        if isinstance(data, str):
            worlds.spelled(data)  # says which world was meant, if it is neither one nor a file
        if str(data) not in worlds.names():
            declared = dict(kinds or {})
            return File(str(data), kinds=declared, white=white, floats=floats, image_shape=tuple(shape), order=order)
        data = worlds.build({"name": str(data)})
    if isinstance(data, Dataset | DataLoader):
        if shape:
            raise ValueError(
                f"{type(data).__name__}: shape= is for arrays and files; reshape the items of the data set"
            )
        return dataset_world(data, table, kinds=kinds, white=white, floats=floats)
    if isinstance(data, World):
        if table is not None or kinds or white is not None or floats or shape:
            raise ValueError(
                f"{type(data).__name__} is a world: its factors, kinds, white, shape and floats cannot be given again"
            )
        return data
    rows = data if isinstance(data, Stored) else as_array(data)
    if rows.dtype.kind == "O":
        raise TypeError(
            f"expected a world, an array, a tensor, a data set, a loader or a path; got a {type(data).__name__}"
        )
    if not shape:
        return ArrayWorld(rows, table, kinds=kinds, white=white, floats=floats)
    images = shaped(rows, shape, "array", order == "columns")
    observations, assumed = as_observations(images, white=white, floats=floats, channels_first=len(shape) > 1)
    return ArrayWorld(Arranged(observations), table, kinds=kinds, assumed=tuple(assumed))
