"""CKA of more activations than fit in memory, batch by batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polariscope.measures.hsic import (
    alignment,
    check_counts,
    constant_sentence,
    estimate,
    few_samples,
    inner_products,
    look,
)
from polariscope.measures.neighbours import Array, as_samples
from polariscope.measures.similarity import SimilarityMatrix

Route = Literal["auto", "moments", "minibatch"]

_MOMENT_FEATURES = 4096  # features of both sides together up to which all second moments are kept


class StreamingCKA:
    """Linear CKA of all layer pairs, batch by batch, in memory that does not grow with the number of samples.

    ``route="moments"`` accumulates the second moments of all features and gives the same value as ``cka`` of all
    samples (memory: the square of the features of both sides together). ``route="minibatch"`` averages the unbiased
    HSIC of the batches, weighted by their size, over all layer pairs (Nguyen, Raghu and Kornblith, 2021; memory: the
    number of layer pairs) and is always debiased; its ratio is consistent, and close to the value on all samples for
    batches of a few hundred. ``"auto"`` takes the moments up to 4 096 features in all. Formula, range and meaning are
    those of ``cka``.

    >>> from polariscope.measures.similarity import cka
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(2, 300, 4))
    >>> stream = StreamingCKA(debiased=False)
    >>> for start in range(0, 300, 64):
    ...     stream.update(x[start : start + 64], y[start : start + 64])
    >>> bool(np.isclose(stream.result().values[0, 0], cka(x, y)))
    True
    """

    def __init__(self, route: Route = "auto", debiased: bool = True) -> None:
        if route not in ("auto", "moments", "minibatch"):
            raise ValueError(f"route is 'auto', 'moments' or 'minibatch'; got {route!r}")
        if route == "minibatch" and not debiased:
            raise ValueError("the minibatch route averages unbiased estimates only: pass debiased=True")
        self.route = route
        self.debiased = debiased
        self.samples = 0
        self.skipped = 0
        self._rows: tuple[str, ...] = ()
        self._columns: tuple[str, ...] = ()
        self._widths: tuple[int, ...] = ()
        self._first = torch.empty(0)
        self._sums = torch.empty(0)

    @property
    def numbers_held(self) -> int:
        """How many numbers the accumulator keeps between batches."""
        return self._first.numel() + self._sums.numel()

    def update(self, batch_a: Array | Mapping[str, Array], batch_b: Array | Mapping[str, Array]) -> None:
        """Add the activations of one batch: an array for each side, or a mapping of layer names to arrays."""
        batch_a = batch_a if isinstance(batch_a, Mapping) else {"x": batch_a}
        batch_b = batch_b if isinstance(batch_b, Mapping) else {"y": batch_b}
        batch = [(name, as_samples(x, name, least=1)) for name, x in (*batch_a.items(), *batch_b.items())]
        check_counts(batch)
        widths = tuple(x.shape[1] for _, x in batch)
        if not self._widths:
            self._begin(tuple(batch_a), tuple(batch_b), [x for _, x in batch])
        if (tuple(batch_a), tuple(batch_b), widths) != (self._rows, self._columns, self._widths):
            raise ValueError("every batch needs the same layers, in the same order and of the same widths as the first")
        count = len(batch[0][1])
        if self.route == "moments":
            features = torch.cat([x.to(torch.float64) for _, x in batch], dim=1) - self._first
            squares = features.square() @ self._member()
            augmented = torch.cat([features, squares, torch.ones_like(squares[:, :1])], dim=1)
            self._sums.addmm_(augmented.T, augmented)
        elif count < 4:
            self.skipped += count
            return
        else:
            self._sums += count * _batch_hsic(torch.stack([_batch_gram(x, name) for name, x in batch]))
        self.samples += count

    def result(self) -> SimilarityMatrix:
        """The similarities of all samples so far."""
        needed = 4 if self.debiased else 2
        if self.samples < needed:
            raise ValueError(f"CKA needs at least {needed} samples; the stream has had {self.samples}")
        table = self._from_moments() if self.route == "moments" else self._sums.numpy()
        names = (*self._rows, *self._columns)
        values = alignment(table, names, np.zeros(len(names)))
        notes = [
            note
            for name, width in zip(names, self._widths, strict=True)
            for note in few_samples(name, self.samples, width, self.debiased)
        ]
        if self.skipped:
            notes.append(f"{self.skipped} samples came in batches of fewer than four and were left out")
        split = len(self._rows)
        return SimilarityMatrix(values[:split, split:], self._rows, self._columns, tuple(dict.fromkeys(notes)))

    def _begin(self, rows: tuple[str, ...], columns: tuple[str, ...], batch: Sequence[Tensor]) -> None:
        if not rows or not columns:
            raise ValueError("both sides need at least one layer")
        widths = tuple(x.shape[1] for x in batch)
        if self.route == "auto":
            self.route = "moments" if sum(widths) <= _MOMENT_FEATURES else "minibatch"
            if self.route == "minibatch" and not self.debiased:
                raise ValueError(
                    f"{sum(widths)} features are too many for exact moments: pass debiased=True, or route='moments' "
                    "if their square fits in memory"
                )
        self._rows, self._columns, self._widths = rows, columns, widths
        device = batch[0].device
        if self.route == "moments":
            # Moments about the first sample: features that never change then have moments of exactly zero.
            self._first = torch.cat([x[0].to(torch.float64) for x in batch])
            size = sum(widths) + len(widths) + 1
            self._sums = torch.zeros(size, size, dtype=torch.float64, device=device)
        else:
            self._sums = torch.zeros(len(widths), len(widths), dtype=torch.float64)

    def _member(self) -> Tensor:
        """Which feature belongs to which layer, ``(features, layers)``."""
        layers = torch.eye(len(self._widths), dtype=torch.float64, device=self._first.device)
        return layers.repeat_interleave(torch.tensor(self._widths, device=layers.device), dim=0)

    def _from_moments(self) -> NDArray[np.float64]:
        """HSIC of all pairs. Every sample's squared distance from the mean is linear in the augmented features
        (z, |z|², 1), so the sums of their products, which debiasing needs, are in the moments too."""
        features = len(self._first)
        mean = self._sums[:features, -1] / self.samples
        covariance = self._sums[:features, :features] - self.samples * torch.outer(mean, mean)
        member = self._member()
        sizes = member.T @ covariance.diagonal()
        for name, size in zip((*self._rows, *self._columns), sizes.tolist(), strict=True):
            if size <= 0:
                raise ValueError(constant_sentence(name, self.samples))
        full = member.T @ covariance.square() @ member
        squares = torch.eye(len(self._widths), dtype=torch.float64, device=mean.device)
        distance = torch.cat([-2 * mean[:, None] * member, squares, (member.T @ mean.square())[None]])
        diagonal = distance.T @ self._sums @ distance
        scale = torch.outer(sizes, sizes)
        full, diagonal = full / scale, diagonal / scale
        return estimate((full - diagonal).cpu().numpy(), diagonal.cpu().numpy(), self.samples, self.debiased)


def _batch_gram(x: Tensor, name: str) -> Tensor:
    """The centred Gram matrix of one batch, in as few passes over the activations as possible."""
    samples = x.to(torch.float32) if x.dtype == torch.uint8 else x
    mean = samples.mean(0)
    centred = samples - mean
    gram = centred @ centred.T
    size = float(gram.diagonal().sum())
    if not np.isfinite(size):
        raise ValueError(f"the squares of {name} do not fit into {samples.dtype}: rescale it, or pass float64")
    if size <= 1e-10 * len(samples) * float(mean.square().sum()):  # perhaps rounding of the mean is all that is left
        layer = look(samples, name)
        return layer.gram(0, len(samples)) * layer.size
    return gram


def _batch_hsic(grams: Tensor) -> Tensor:
    """Unbiased HSIC of all pairs of the centred Gram matrices ``(layers, n, n)`` of one batch."""
    sizes = grams.diagonal(dim1=1, dim2=2).sum(1)
    scaled = grams / torch.where(sizes > 0, sizes, 1)[:, None, None]
    shares = scaled.diagonal(dim1=1, dim2=2).to(torch.float64)
    diagonal = (shares @ shares.T).cpu().numpy()
    scaled.diagonal(dim1=1, dim2=2).zero_()
    products = inner_products(scaled).cpu().numpy()
    sizes = sizes.to(torch.float64).cpu()
    return torch.from_numpy(estimate(products, diagonal, grams.shape[1], True)) * torch.outer(sizes, sizes)
