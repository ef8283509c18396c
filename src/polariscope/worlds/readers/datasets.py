"""Torch data sets as worlds: items are loaded by number on demand.

An item is an observation, a pair of an observation and its label, or a mapping with both. An observation must be the
same in every call, so data sets that draw their items anew (augmentation) or have no numbers (streams) are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, default_collate

from polariscope.worlds import observations
from polariscope.worlds.labels import Kinds
from polariscope.worlds.observations import Stored, as_array
from polariscope.worlds.readers.files import FACTOR_KEYS, OBSERVATION_KEYS
from polariscope.worlds.world import ArrayWorld

PROBED = 8
"""Items that are read several times, to check that they stay the same."""
LOOKS = 4
Labels = dict[int, NDArray[Any] | None]
"""Labels by the number of the item; None where it has none."""


class DatasetRows(Stored):
    """The observations of a data set."""

    def __init__(self, dataset: Any, source: str) -> None:
        self.dataset, self.source = dataset, source
        first, _ = parts(dataset[0], source)
        self.shape, self.dtype = (len(dataset), *first.shape), first.dtype

    def fetch(self, index: NDArray[np.int64]) -> NDArray[Any]:
        rows = np.empty((len(index), *self.shape[1:]), self.dtype)
        for row, number in zip(rows, index.tolist(), strict=True):
            row[...] = self.item(number)[0]
        return rows

    def item(self, number: int) -> tuple[NDArray[Any], NDArray[Any] | None]:
        x, label = parts(self.dataset[number], self.source)
        if x.shape != self.shape[1:]:
            raise ValueError(
                f"{self.source}: expected items of one shape, but item 0 has {self.shape[1:]} and item {number} has "
                f"{x.shape}; resize them"
            )
        floats = x.dtype.kind == self.dtype.kind == "f"
        if not floats and not np.can_cast(x.dtype, self.dtype):
            raise ValueError(
                f"{self.source}: expected items of one type, but item 0 is {self.dtype} and item {number} is "
                f"{x.dtype}; convert them"
            )
        return x, label


def dataset_world(
    data: Dataset[Any] | DataLoader[Any],
    factors: ArrayLike | None = None,
    *,
    kinds: Kinds | None = None,
    white: float | None = None,
    floats: bool = False,
) -> ArrayWorld:
    """The world of a data set, or of the one behind a loader, whose batch size it then suggests.

    All labels are needed at once, to know their values: they are the data set's ``targets`` if it has them; otherwise
    every item is read once. A small data set is kept in memory.

    >>> import torch
    >>> points = torch.utils.data.TensorDataset(torch.zeros(6, 2), torch.arange(6) % 3)
    >>> dataset_world(points).factors[0].size
    3
    """
    loader = data if isinstance(data, DataLoader) else None
    dataset: Any = data if loader is None else loader.dataset
    source = type(dataset).__name__
    if isinstance(dataset, IterableDataset) or not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise TypeError(
            f"{source}: expected a data set with numbered items, but it is a stream; give one with a length"
        )
    if not len(dataset):
        raise ValueError(f"{source}: the data set is empty")
    rows = DatasetRows(dataset, source)
    labels = _labels_of_some(rows)
    x: Stored | NDArray[Any] = rows
    if factors is None and labels[0] is not None:
        factors = _targets(dataset, labels)
        if factors is None:
            x, factors = _read_once(rows)
    own = loader is not None and loader.collate_fn is not default_collate
    assumed = ("Items are taken from the data set itself, without the loader's own collate_fn.",) if own else ()
    batch_size = None if loader is None else loader.batch_size
    return ArrayWorld(x, factors, (), source, kinds, white, assumed, batch_size, floats)


def parts(item: Any, source: str) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Observation and label of an item."""
    if isinstance(item, Mapping):
        keys = {str(key).lower(): key for key in item}
        values = [next((keys[key] for key in known if key in keys), None) for known in (OBSERVATION_KEYS, FACTOR_KEYS)]
        if values[0] is None:
            held = ", ".join(map(str, item)) or "nothing"
            raise ValueError(f"{source}: expected items with {', '.join(OBSERVATION_KEYS)}, but one holds {held}")
        item = [item[key] for key in values if key is not None]
    if not isinstance(item, tuple | list):
        item = [item]
    if len(item) not in (1, 2):
        raise ValueError(f"{source}: expected items that are x, (x, label) or mappings, but one has {len(item)} parts")
    x, *label = item
    if not isinstance(x, Tensor | np.ndarray | Image.Image):
        raise TypeError(
            f"{source}: expected observations that are tensors, arrays or images, but one is {type(x).__name__}"
        )
    return as_array(x), _label(label[0], source) if label else None


def _label(label: Any, source: str) -> NDArray[Any]:
    values = as_array(label)
    if values.ndim > 1 or values.dtype.kind not in "biufU":
        what = f"{values.dtype} of shape {values.shape}" if values.dtype.kind != "O" else type(label).__name__
        raise ValueError(f"{source}: expected labels that are numbers, words or rows of them, but one is {what}")
    return values


def _labels_of_some(rows: DatasetRows) -> Labels:
    """Labels of the first, the last and some items between; those that change from look to look are refused."""
    labels = {}
    for number in np.unique(np.linspace(0, len(rows) - 1, PROBED).astype(int)).tolist():
        first, labels[number] = rows.item(number)
        for _ in range(LOOKS - 1):
            if not np.array_equal(first, rows.item(number)[0], equal_nan=first.dtype.kind == "f"):
                raise ValueError(
                    f"{rows.source}: expected items that stay the same, but item {number} changes from call to call; "
                    "give the data set without its random transforms"
                )
    return labels


def _targets(dataset: Any, labels: Labels) -> NDArray[Any] | None:
    """The labels that a data set keeps as ``targets``, if they are those of its items."""
    if isinstance(dataset, Subset):
        inner = _targets(dataset.dataset, {dataset.indices[number]: label for number, label in labels.items()})
        return None if inner is None else inner[np.asarray(dataset.indices)]
    if not hasattr(dataset, "targets") or getattr(dataset, "target_transform", None) is not None:
        return None
    table = as_array(dataset.targets)
    same = len(table) == len(dataset) and all(np.array_equal(table[i], label) for i, label in labels.items())  # type: ignore[arg-type]
    return table if same else None


def _read_once(rows: DatasetRows) -> tuple[Stored | NDArray[Any], NDArray[Any]]:
    """Observations (held, if they are small) and labels, from one look at every item."""
    held = np.empty(rows.shape, rows.dtype) if rows.nbytes <= observations.HELD else None
    labels: list[NDArray[Any]] = []
    for number in range(len(rows)):
        x, label = rows.item(number)
        if held is not None:
            held[number] = x
        labels.append(np.empty(0) if label is None else label)
    if any(label.shape != labels[0].shape for label in labels):
        raise ValueError(f"{rows.source}: expected as many labels at every item, but their number varies")
    return rows if held is None else held, np.stack(labels)
