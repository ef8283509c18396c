"""Exact nearest-neighbour distances without storing the distance matrix.

Expanding |a-b|² into |a|² + |b|² - 2ab turns the search into matrix products, which are fast, but subtracts nearly
equal numbers if a and b are close, as neighbours are. Single-precision products therefore only *nominate* neighbours;
the distances of the nominees are then computed directly. The rounding error of a product has a known bound. Samples for
which a neighbour may have been missed within this bound are searched again in double precision.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

T = TypeVar("T")
Array = NDArray[Any] | Tensor
Duplicates = Literal["remove", "reject"]

_SPARE = 5  # nominees beyond k: what separates them from the k-th is the room for rounding
_PRODUCT_NUMBERS = 1 << 22  # size of one block of products
_DIRECT_NUMBERS = 1 << 19  # size of one block of differences: small enough to stay in the processor's cache


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The k nearest neighbours of every sample, nearest first, without the sample itself.

    ``indices`` are row numbers of the input; ``rows`` are the rows that were searched: all except the ``duplicates``
    rows that repeat an earlier one.
    """

    distances: NDArray[np.float64]
    indices: NDArray[np.int64]
    rows: NDArray[np.int64]
    duplicates: int

    @property
    def samples(self) -> int:
        return len(self.distances)

    @property
    def k(self) -> int:
        return int(self.distances.shape[1])


def as_samples(x: Array, name: str = "x", least: int = 2) -> Tensor:
    """``x`` as a finite ``(samples, features)`` tensor that shares its memory where the number type allows.

    Everything after the first axis is flattened. Single precision, double precision and bytes keep their type; other
    numbers of at most two bytes become single precision, larger ones double precision.

    >>> as_samples(np.zeros((5, 8, 8), np.uint8)).shape
    torch.Size([5, 64])
    """
    tensor = x.detach() if isinstance(x, Tensor) else _from_numpy(np.asarray(x), name)
    if tensor.is_complex():
        raise TypeError(f"{name} holds {tensor.dtype} numbers: pass real ones, for instance real and imaginary parts")
    if tensor.ndim == 0 or tensor.shape[0] < least:
        raise ValueError(f"{name} needs at least {least} samples along its first axis; got shape {tuple(tensor.shape)}")
    if tensor.numel() == 0:
        raise ValueError(f"{name} has no features: its shape is {tuple(tensor.shape)}")
    if tensor.dtype not in (torch.float32, torch.float64, torch.uint8):
        tensor = tensor.to(torch.float32 if tensor.dtype.itemsize <= 2 else torch.float64)
    tensor = tensor.reshape(len(tensor), -1)
    # A finite sum has finite terms. Otherwise the extremes show whether a term is not finite or the sum overflowed.
    if not tensor.sum().isfinite() and not torch.stack(torch.aminmax(tensor)).isfinite().all():
        raise ValueError(f"{name} contains NaN or infinity: remove those samples first")
    return tensor


def distinct_rows(x: Tensor) -> Tensor:
    """Numbers of the rows of ``x`` that repeat no earlier row, in order."""
    kind = {1: torch.uint8, 4: torch.int32, 8: torch.int64}[x.dtype.itemsize]
    weights = torch.from_numpy(np.random.default_rng(0).integers(1 << 62, size=x.shape[1])).to(x.device)
    # Integer sums wrap around but never round, so equal rows have equal keys whatever the order of summation.

    def keys_of(rows: slice) -> Tensor:
        # Adding zero turns -0.0 into 0.0, which is equal to it but looks different.
        return ((x[rows] + 0).contiguous().view(kind).to(torch.int64) * weights).sum(1)

    keys = torch.cat(side_by_side(keys_of, blocks(len(x), x.shape[1], _DIRECT_NUMBERS), x.device))
    _, group = torch.unique(keys, return_inverse=True)
    order = torch.arange(len(x), device=x.device)
    first = torch.full_like(order, len(x)).scatter_reduce(0, group, order, "amin")[group]
    repeats = torch.nonzero(first != order).squeeze(1)
    equal = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    for part in blocks(len(repeats), x.shape[1], _DIRECT_NUMBERS):
        equal[repeats[part]] = (x[repeats[part]] == x[first[repeats[part]]]).all(1)
    return order[~equal]


def nearest_neighbours(x: Array, k: int, duplicates: Duplicates = "remove") -> Neighbours:
    """The ``k`` nearest neighbours of every sample by Euclidean distance.

    ``duplicates`` decides whether samples that repeat an earlier one are removed or raise an error: if two samples are
    at distance zero, ratios of distances are undefined.

    >>> neighbours = nearest_neighbours(np.array([[0.0], [1.0], [3.0], [3.0]]), k=1)
    >>> neighbours.distances.ravel().tolist(), neighbours.indices.ravel().tolist(), neighbours.duplicates
    ([1.0, 1.0, 2.0], [1, 0, 1], 1)
    """
    if duplicates not in ("remove", "reject"):
        raise ValueError(f"duplicates is 'remove' or 'reject'; got {duplicates!r}")
    points = as_samples(x)
    rows = distinct_rows(points)
    repeated = len(points) - len(rows)
    if repeated and duplicates == "reject":
        raise ValueError(
            f"{repeated} of {len(points)} samples repeat an earlier one: remove them, or use duplicates='remove'"
        )
    if not 1 <= k < len(rows):
        raise ValueError(
            f"k is {k}: it needs to be between 1 and the number of distinct samples less one; "
            f"there are {len(rows)} distinct samples"
        )
    if repeated:
        points = points[rows]
    distances, indices = _search(points, k)
    if not distances[:, 0].all():
        raise ValueError(f"different samples are at distance zero in {points.dtype}: rescale the data")
    return Neighbours(
        distances.cpu().numpy(), rows[indices].cpu().numpy(), rows.cpu().numpy(), duplicates=int(repeated)
    )


def blocks(count: int, width: int, numbers: int) -> Iterator[slice]:
    """Slices that cover ``range(count)``, each with at most ``numbers`` numbers if a row has ``width`` numbers."""
    step = max(1, numbers // width)
    return (slice(start, min(start + step, count)) for start in range(0, count, step))


def side_by_side(work: Callable[[slice], T], parts: Iterator[slice], device: torch.device) -> list[T]:
    """The results of ``work`` on every part, in order; on a CPU each thread takes the next part when it is free.

    The threads of one torch operation wait for each other: if another process slows one core down, all threads wait.
    Here each operation has one thread, and a free core takes more parts.
    """
    threads = torch.get_num_threads()
    if threads == 1 or device.type != "cpu":
        return [work(part) for part in parts]
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(work, parts))
    finally:
        torch.set_num_threads(threads)  # the number that a worker sets is also that of threads to come


def _search(points: Tensor, k: int) -> tuple[Tensor, Tensor]:
    count, features = points.shape
    # Distances do not see the shift, and products of small numbers have small rounding errors.
    centred = points.to(torch.float64 if points.dtype == torch.float64 else torch.float32)
    centred = centred - centred.mean(0)
    lengths = torch.linalg.vector_norm(centred, dim=1, dtype=torch.float64)
    single = centred.to(torch.float32)
    half_squares = (lengths.square() / 2).to(torch.float32)
    wanted = min(k + _SPARE, count - 1)
    # Rounding errors partly cancel: a product of length m is off by more than 4 sqrt(m) eps |a||b| with probability
    # below 1e-9 (Higham and Mary, A new approach to probabilistic rounding error analysis, 2019).
    error = (4 * features**0.5 + 8) * torch.finfo(torch.float32).eps * lengths.max() * (lengths + lengths.max())

    distances = torch.empty(count, k, dtype=torch.float64, device=points.device)
    indices = torch.empty(count, k, dtype=torch.int64, device=points.device)

    def search(part: slice) -> Tensor:
        """Fill in the rows of a part; returns the rows for which a neighbour may have been missed."""
        rows = torch.arange(part.start, part.stop, device=points.device)
        far, nominees = _nominate(single[part], single, half_squares, rows, wanted)
        distances[part], indices[part] = _nearest_of(points, rows, nominees, k)
        # Either all points are nominated, or the k-th is nearer than any point that was left out can be.
        kth = (distances[part, -1].square() - lengths[part].square()) / 2
        return rows[~(kth <= far.to(torch.float64) - error[part])] if wanted < count - 1 else rows[:0]

    again = torch.cat(side_by_side(search, blocks(count, count, _PRODUCT_NUMBERS), points.device))
    if len(again):
        double = centred.to(torch.float64)
        exact_halves = lengths.square() / 2
        for part in blocks(len(again), count, _PRODUCT_NUMBERS // 2):
            rows = again[part]
            _, nominees = _nominate(double[rows], double, exact_halves, rows, wanted)
            distances[rows], indices[rows] = _nearest_of(points, rows, nominees, k)
    return distances, indices


def _nominate(
    queries: Tensor, points: Tensor, half_squares: Tensor, rows: Tensor, wanted: int
) -> tuple[Tensor, Tensor]:
    """Score and numbers of the points with the smallest |b|²/2 - ab; the score returned is the last nominee's."""
    scores = torch.addmm(half_squares, queries, points.T, alpha=-1)
    scores[torch.arange(len(rows), device=rows.device), rows] = torch.inf  # a sample is not its own neighbour
    nearest = scores.topk(wanted, dim=1, largest=False, sorted=False)
    return nearest.values.amax(1), nearest.indices


def _nearest_of(points: Tensor, rows: Tensor, nominees: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Measured distances and numbers of the ``k`` nearest among the nominees, nearest first."""
    measured = torch.empty(nominees.shape, dtype=torch.float64, device=points.device)
    dtype = torch.float32 if points.dtype == torch.uint8 else points.dtype
    for part in blocks(len(rows), nominees.shape[1] * points.shape[1], _DIRECT_NUMBERS):
        difference = points[nominees[part]].to(dtype).sub_(points[rows[part]].unsqueeze(1))
        measured[part] = torch.linalg.vector_norm(difference, dim=2).to(torch.float64)
    nearest, place = measured.sort(dim=1, stable=True)
    return nearest[:, :k], nominees.gather(1, place[:, :k])


def _from_numpy(x: NDArray[Any], name: str) -> Tensor:
    if x.dtype.kind not in "biufc":
        raise TypeError(f"{name} needs numbers; got an array of {x.dtype}")
    if x.dtype == np.longdouble and x.dtype.itemsize > 8:
        x = x.astype(np.float64)
    x = np.ascontiguousarray(x, dtype=x.dtype.newbyteorder("="))
    with warnings.catch_warnings():  # torch warns of read-only arrays because it could write to them; we do not
        warnings.filterwarnings("ignore", message=".*not writable.*", category=UserWarning)
        return torch.from_numpy(x)
