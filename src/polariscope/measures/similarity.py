"""How alike two representations of the same samples are: CKA, Procrustes, SVCCA, for one pair or all pairs of layers.

Linear CKA compares the samples' centred Gram matrices K = XXᵀ. Their inner product can be had from the features
instead, ⟨K, L⟩ = |XᵀY|², which is cheaper when there are fewer features than samples. :func:`similarity_matrix` weighs
the two for all layers at once: wide layers get a Gram matrix each, made strip by strip and shared by all their pairs;
narrow ones are multiplied feature by feature. Neither the Gram matrices nor centred copies are ever held whole.
Spec 002, section 10.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polariscope.measures.neighbours import Array, as_samples, blocks
from polariscope.memory import keep_freed_memory

Measure = Literal["cka", "rbf_cka", "procrustes", "svcca", "smaller"]
Route = Literal["auto", "moments", "minibatch"]

_BLOCK_NUMBERS = 1 << 22  # numbers in one block of centred features
_STRIP_NUMBERS = 1 << 25  # numbers in one strip of all Gram matrices together (128 MB in single precision)
_MOMENT_FEATURES = 4096  # features of both sides together up to which StreamingCKA keeps all second moments


@dataclass(frozen=True, eq=False)
class SimilarityMatrix:
    """Similarities ``values[i, j]`` of layer ``rows[i]`` to layer ``columns[j]``, with what one should know of them."""

    values: NDArray[np.float64]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    notes: tuple[str, ...] = ()


def cka(x: Array, y: Array, debiased: bool = False) -> float:
    """Linear centred kernel alignment of two representations of the same samples (also known as the RV coefficient).

    With column-centred X and Y: CKA = |XᵀY|_F² / (|XᵀX|_F |YᵀY|_F) = ⟨K, L⟩ / (|K| |L|) with K = XXᵀ, L = YYᵀ; the
    cheaper form is chosen. Source: Kornblith, Norouzi, Lee and Hinton, 2019; spec 002, section 10.1. Everything after
    the first axis is flattened.

    Range: [0, 1]. 1: the same up to rotation, scale and shift; 0: no feature of one correlates with any of the other.
    Known bias: independent isotropic representations of p and q features score √(pq / ((n + p)(n + q))) on n samples,
    not 0. ``debiased=True`` takes the unbiased HSIC (Song et al., 2012) instead, is 0 on average there, may be
    slightly negative, and needs four samples. Either way directions of large variance decide: what happens outside
    the first few principal components is not seen, nor is what happens in constant columns.

    >>> x = np.random.default_rng(0).normal(size=(500, 3))
    >>> round(cka(x, 5 * x[:, ::-1] + 1), 6)
    1.0
    >>> noise = np.random.default_rng(1).normal(size=(500, 300))
    >>> round(cka(noise[:, :150], noise[:, 150:]), 1), round(abs(cka(noise[:, :150], noise[:, 150:], debiased=True)), 1)
    (0.2, 0.0)
    """
    return float(_values(_paired(x, y), [0], [1], "cka", debiased)[0, 0])


def rbf_cka(x: Array, y: Array, bandwidth: float = 1.0, debiased: bool = False) -> float:
    """CKA with the Gaussian kernel exp(-|a - b|² / 2σ²), σ = ``bandwidth`` × the median distance between samples.

    The kernels are centred and compared as in :func:`cka`. Source: Kornblith, Norouzi, Lee and Hinton, 2019. Range
    [0, 1] (``debiased`` may be slightly negative); 1: equal distances up to scale; 0: independent. A large bandwidth
    gives linear CKA; a small one sees only near neighbours. Known bias: as for :func:`cka`, and stronger the smaller
    the bandwidth, since every kernel tends to the identity. Holds two kernels of samples × samples.

    >>> x = np.random.default_rng(0).normal(size=(200, 3))
    >>> round(rbf_cka(x, 2 * x), 6), rbf_cka(x, np.abs(x)) > 2 * cka(x, np.abs(x))
    (1.0, True)
    """
    return float(_values(_paired(x, y), [0], [1], "rbf_cka", debiased, bandwidth)[0, 0])


def procrustes(x: Array, y: Array) -> float:
    """Procrustes similarity: how well a rotation brings one representation onto the other.

    With X and Y column-centred and divided by their Frobenius norms: P = |YᵀX|_* (sum of singular values)
    = 1 - min_Q |X - YQ|² / 2 over orthogonal Q. Representations of different width are compared as if the narrower
    were padded with zeros. Source: spec 002, section 10.2 (Bonheme, 2023; the metric is Schönemann's, 1966).

    Range: [0, 1]. 1: the same up to rotation, scale and shift; 0: uncorrelated. Known bias: grows faster with the
    number of features than that of CKA: independent representations of p features score about 0.85 √(p / n) for
    n ≫ p samples, and with n < p the value must not be read at face value. Where it disagrees with CKA take the
    :func:`smaller`.

    >>> x = np.random.default_rng(0).normal(size=(500, 3))
    >>> round(procrustes(x, 5 * x[:, ::-1] + 1), 6)
    1.0
    """
    return float(_values(_paired(x, y), [0], [1], "procrustes")[0, 0])


def svcca(x: Array, y: Array, variance: float = 0.99) -> float:
    """Mean canonical correlation of the principal components that hold ``variance`` of each representation.

    With U and V the orthonormal sample coordinates of those components: mean of the singular values of UᵀV, over the
    smaller of the two numbers of components. Source: Raghu, Gilmer, Yosinski and Sohl-Dickstein, 2017.

    Range: [0, 1]. 1: one side's components are linear functions of the other's; 0: uncorrelated. Unlike CKA it does
    not see how much variance a component has. Known bias: strongly upward; it is 1 whenever the components together
    number at least the samples, whatever the data, so have many more samples than features.

    >>> x = np.random.default_rng(0).normal(size=(500, 3))
    >>> round(svcca(x, x @ [[2.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.5, 3.0]], variance=1.0), 6)
    1.0
    """
    first, second = _paired(x, y)
    return _canonical(_components(first, variance), _components(second, variance))


def smaller(x: Array, y: Array) -> float:
    """The smaller of :func:`cka` and :func:`procrustes`: the one to believe where they disagree.

    min(CKA, P). Source: spec 002, section 10.3 (Bonheme, 2023, section 7.2.2). Range [0, 1]; 1: the same up to
    rotation, scale and shift; 0: uncorrelated. Both overestimate with few samples, and so does their minimum.

    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(2, 500, 50))
    >>> smaller(x, y) == cka(x, y) < procrustes(x, y)
    True
    """
    return float(_values(_paired(x, y), [0], [1], "smaller")[0, 0])


def check_comparison(x: Array, y: Array) -> list[str]:
    """What one should know before believing a similarity of ``x`` and ``y``; empty if nothing is suspicious.

    Looks for fewer samples than features, constant columns, and columns that look like the same draw of
    standard-normal noise, as when two models were sampled with one epsilon (spec 002, section 10.6).

    >>> check_comparison(np.eye(3, 7), np.eye(3))
    ['x: 3 samples for 7 features; similarities come out too high, take more samples or debiased CKA',
     'x: 4 of 7 columns are constant and count for nothing']
    """
    first, second = _paired(x, y)
    return [*first.notes(), *second.notes(), *_shared_noise(first, second)]


def similarity_matrix(
    activations_a: Mapping[str, Array],
    activations_b: Mapping[str, Array],
    measure: Measure = "cka",
    debiased: bool = False,
    bandwidth: float = 1.0,
) -> SimilarityMatrix:
    """Similarities of all layers of one model to all layers of another, on the same samples.

    ``measure`` names one of the functions of this module, where formula, source, range and biases are given; work that
    belongs to a layer is done once for all its pairs. ``debiased`` is for the two CKAs, ``bandwidth`` for the
    Gaussian one. ``notes`` of the result are those of :func:`check_comparison`.

    >>> rng = np.random.default_rng(0)
    >>> image, code = rng.normal(size=(100, 8, 8)), rng.normal(size=(100, 5))
    >>> result = similarity_matrix({"image": image, "code": code}, {"code": code}, debiased=True)
    >>> result.values.shape, round(float(result.values[1, 0]), 6)
    ((2, 1), 1.0)
    """
    layers, rows, columns = _all_layers([activations_a], [activations_b])
    values = _values(layers, rows, columns, measure, debiased, bandwidth)
    return SimilarityMatrix(values, tuple(activations_a), tuple(activations_b), _notes(layers, rows, columns, debiased))


def average_over_pairs(
    runs_a: Sequence[Mapping[str, Array]],
    runs_b: Sequence[Mapping[str, Array]],
    measure: Measure = "cka",
    debiased: bool = False,
    bandwidth: float = 1.0,
) -> SimilarityMatrix:
    """:func:`similarity_matrix` averaged over all pairs of a run of one model and a run of another.

    Cell (j, k) = mean over i, l of s(layer j of run A_i, layer k of run B_l): five seeds a side make 25 pairs, not
    five. Source: Bonheme, 2023, equation 7.9; spec 002, section 10.4. Range and meaning are those of the measure.
    Known bias: with the same runs on both sides every run also meets itself, which raises the average; a note says so.

    >>> rng = np.random.default_rng(0)
    >>> runs = [{"code": rng.normal(size=(100, 2))} for _ in range(3)]
    >>> result = average_over_pairs(runs, runs)
    >>> bool(1 / 3 < result.values[0, 0] < 0.5), result.notes
    (True, ('3 of 9 pairs compare a run with itself',))
    """
    if not runs_a or not runs_b:
        raise ValueError("both sides need at least one run")
    for runs in (runs_a, runs_b):
        for run in runs:
            if tuple(run) != tuple(runs[0]):
                raise ValueError(
                    f"all runs of one model need the same layers in the same order; got {', '.join(run)} beside "
                    f"{', '.join(runs[0])}"
                )
    layers, rows, columns = _all_layers(runs_a, runs_b)
    values = _values(layers, rows, columns, measure, debiased, bandwidth)
    shape = (len(runs_a), len(runs_a[0]), len(runs_b), len(runs_b[0]))
    notes = list(_notes(layers, rows, columns, debiased))
    selves = sum(a is b for a in runs_a for b in runs_b)
    if selves:
        notes.append(f"{selves} of {len(runs_a) * len(runs_b)} pairs compare a run with itself")
    return SimilarityMatrix(
        values.reshape(shape).mean(axis=(0, 2)), tuple(runs_a[0]), tuple(runs_b[0]), tuple(dict.fromkeys(notes))
    )


class StreamingCKA:
    """Linear CKA of all layer pairs, batch by batch, in memory that does not grow with the number of samples.

    ``route="moments"`` accumulates the second moments of all features and gives what :func:`cka` gives on all samples
    at once (memory: the square of the features of both sides together). ``route="minibatch"`` averages the unbiased
    HSIC of the batches, weighted by their size, over all layer pairs (Nguyen, Raghu and Kornblith, 2021; memory: the
    number of layer pairs) and is always debiased; its ratio is consistent, and close to the value on all samples for
    batches of a few hundred. ``"auto"`` takes the moments up to 4 096 features in all. Formula, range and meaning are
    those of :func:`cka`.

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
        keep_freed_memory()  # every batch brings activations of the same sizes
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
        """Take in the activations of one batch: an array a side, or a mapping of layer names to arrays."""
        batch_a = batch_a if isinstance(batch_a, Mapping) else {"x": batch_a}
        batch_b = batch_b if isinstance(batch_b, Mapping) else {"y": batch_b}
        batch = [(name, as_samples(x, name, least=1)) for name, x in (*batch_a.items(), *batch_b.items())]
        _check_counts(batch)
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
        values = _alignment(table, names, np.zeros(len(names)))
        notes = [
            note
            for name, width in zip(names, self._widths, strict=True)
            for note in _few_samples(name, self.samples, width, self.debiased)
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
                raise ValueError(_constant_sentence(name, self.samples))
        full = member.T @ covariance.square() @ member
        squares = torch.eye(len(self._widths), dtype=torch.float64, device=mean.device)
        distance = torch.cat([-2 * mean[:, None] * member, squares, (member.T @ mean.square())[None]])
        diagonal = distance.T @ self._sums @ distance
        scale = torch.outer(sizes, sizes)
        full, diagonal = full / scale, diagonal / scale
        return _estimate((full - diagonal).cpu().numpy(), diagonal.cpu().numpy(), self.samples, self.debiased)


def _batch_gram(x: Tensor, name: str) -> Tensor:
    """The centred Gram matrix of one batch, in as few passes over the activations as there can be."""
    samples = x.to(torch.float32) if x.dtype == torch.uint8 else x
    mean = samples.mean(0)
    centred = samples - mean
    gram = centred @ centred.T
    size = float(gram.diagonal().sum())
    if not np.isfinite(size):
        raise ValueError(f"the squares of {name} do not fit into {samples.dtype}: rescale it, or pass float64")
    if size <= 1e-10 * len(samples) * float(mean.square().sum()):  # perhaps rounding of the mean is all that is left
        layer = _look(samples, name)
        return layer.gram(0, len(samples)) * layer.size
    return gram


def _batch_hsic(grams: Tensor) -> Tensor:
    """Unbiased HSIC of all pairs of the centred Gram matrices ``(layers, n, n)`` of one batch."""
    sizes = grams.diagonal(dim1=1, dim2=2).sum(1)
    scaled = grams / torch.where(sizes > 0, sizes, 1)[:, None, None]
    shares = scaled.diagonal(dim1=1, dim2=2).to(torch.float64)
    diagonal = (shares @ shares.T).cpu().numpy()
    scaled.diagonal(dim1=1, dim2=2).zero_()
    products = _inner_products(scaled).cpu().numpy()
    sizes = sizes.to(torch.float64).cpu()
    return torch.from_numpy(_estimate(products, diagonal, grams.shape[1], True)) * torch.outer(sizes, sizes)


@dataclass(frozen=True, eq=False)
class _Layer:
    """One representation, looked at once: what all routes need to know of it."""

    name: str
    x: Tensor
    mean: Tensor
    size: float  # sum of the samples' squared distances from the mean
    shares: Tensor  # each sample's share of it
    constant: int
    normal: Tensor  # numbers of the columns with mean 0 and variance 1, as standard-normal noise has

    def centred(self, rows: slice = slice(None), columns: slice | Tensor = slice(None)) -> Tensor:
        return self.x[rows, columns] - self.mean[columns]

    def gram(self, start: int, stop: int) -> Tensor:
        """Rows ``start:stop`` of the centred Gram matrix from column ``start`` on, divided by its trace."""
        out = torch.zeros(stop - start, len(self.x) - start, dtype=self.x.dtype, device=self.x.device)
        for columns in blocks(self.x.shape[1], len(self.x) - start, _BLOCK_NUMBERS):
            part = self.centred(slice(start, None), columns)
            out.addmm_(part[: stop - start], part.T)
        return out.div_(self.size or 1.0)

    def notes(self, debiased: bool = False) -> list[str]:
        notes = _few_samples(self.name, len(self.x), self.x.shape[1], debiased)
        if self.constant:
            notes.append(
                f"{self.name}: {self.constant} of {self.x.shape[1]} columns are constant and count for nothing"
            )
        return notes


def _look(x: Array, name: str) -> _Layer:
    samples = as_samples(x, name)
    if samples.dtype == torch.uint8:
        samples = samples.to(torch.float32)
    mean = samples.mean(0)
    by_sample, by_column = _squares(samples, mean)
    constant = by_column == 0
    suspect = ~constant & (by_column <= len(samples) * (1e-3 * mean).square())
    if suspect.any():  # the mean of equal numbers may differ from them by a rounding, which is then all that is left
        columns = samples[:, suspect]
        constant[suspect] = (columns == columns[0]).all(0)
        mean = torch.where(constant, samples[0], mean)
        by_sample, by_column = _squares(samples, mean)
    size = float(by_sample.sum())
    if not np.isfinite(size) or (size == 0 and not bool((samples == samples[0]).all())):
        raise ValueError(f"the squares of {name} do not fit into {samples.dtype}: rescale it, or pass float64")
    normal = torch.nonzero((mean.abs() < 0.1) & ((by_column / len(samples) - 1).abs() < 0.1)).squeeze(1)
    return _Layer(name, samples, mean, size, by_sample / (size or 1.0), int(constant.sum()), normal)


def _squares(samples: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """Sums of squares about the mean: of every sample, in double precision, and of every column."""
    by_sample = torch.empty(len(samples), dtype=torch.float64, device=samples.device)
    by_column = torch.zeros_like(mean)
    for rows in blocks(len(samples), samples.shape[1], _BLOCK_NUMBERS // 4):
        centred = samples[rows] - mean
        by_sample[rows] = torch.linalg.vector_norm(centred, dim=1).to(torch.float64).square()
        by_column += centred.square_().sum(0)
    return by_sample, by_column


def _paired(x: Array, y: Array) -> list[_Layer]:
    layers, _, _ = _all_layers([{"x": x}], [{"y": y}], shared=False)
    return layers


def _all_layers(
    runs_a: Sequence[Mapping[str, Array]], runs_b: Sequence[Mapping[str, Array]], shared: bool = True
) -> tuple[list[_Layer], list[int], list[int]]:
    """Every layer looked at (once, even if it is on both sides), and the numbers of those of either side."""
    numbers: dict[object, int] = {}
    layers: list[_Layer] = []

    def number(name: str, x: Array) -> int:
        key = id(x) if shared else name
        if key not in numbers:
            numbers[key] = len(layers)
            layers.append(_look(x, name))
        return numbers[key]

    rows = [number(name, x) for run in runs_a for name, x in run.items()]
    columns = [number(name, x) for run in runs_b for name, x in run.items()]
    if not rows or not columns:
        raise ValueError("both sides need at least one layer")
    _check_counts([(layer.name, layer.x) for layer in layers])
    for layer in layers:
        if layer.size == 0:
            raise ValueError(_constant_sentence(layer.name, len(layer.x)))
    return layers, rows, columns


def _check_counts(batch: Sequence[tuple[str, Tensor]]) -> None:
    name, x = batch[0]
    for other, y in batch:
        if len(y) != len(x):
            raise ValueError(
                f"{name} has {len(x)} samples and {other} has {len(y)}: pass representations of the same samples"
            )


def _constant_sentence(name: str, samples: int) -> str:
    return f"{name} is constant over its {samples} samples, so its similarity to anything is undefined: leave it out"


def _few_samples(name: str, samples: int, features: int, debiased: bool) -> list[str]:
    if debiased or samples >= features:
        return []
    return [
        f"{name}: {samples} samples for {features} features; similarities come out too high, take more samples or "
        "debiased CKA"
    ]


def _shared_noise(first: _Layer, second: _Layer) -> list[str]:
    """A note if same-numbered columns are the same standard-normal draw although the rest differs."""
    if first.x.shape != second.x.shape or torch.equal(first.x, second.x):
        return []
    columns = first.normal[torch.isin(first.normal, second.normal)]
    a, b = first.centred(columns=columns).double(), second.centred(columns=columns).double()
    correlation = (a * b).mean(0) / (a.square().mean(0) * b.square().mean(0)).sqrt()
    gaussian = (a.pow(4).mean(0) / a.square().mean(0).square() - 3).abs() < 0.5
    suspects = columns[(correlation > 0.99) & gaussian].tolist()
    if not suspects:
        return []
    return [
        f"{first.name} / {second.name}: columns {', '.join(map(str, suspects))} look like the same noise on both "
        "sides; if these are sampled codes, sample each model with its own epsilon"
    ]


def _notes(layers: Sequence[_Layer], rows: Sequence[int], columns: Sequence[int], debiased: bool) -> tuple[str, ...]:
    notes = [note for layer in layers for note in layer.notes(debiased)]
    pairs = {(i, j) for i in rows for j in columns if i != j and len(layers[i].normal) and len(layers[j].normal)}
    notes += [note for i, j in sorted(pairs) for note in _shared_noise(layers[i], layers[j])]
    return tuple(dict.fromkeys(notes))


def _values(
    layers: Sequence[_Layer],
    rows: Sequence[int],
    columns: Sequence[int],
    measure: Measure,
    debiased: bool = False,
    bandwidth: float = 1.0,
) -> NDArray[np.float64]:
    """Similarities of the layers numbered ``rows`` to those numbered ``columns``."""
    if debiased and measure not in ("cka", "rbf_cka"):
        raise ValueError(f"only the two CKAs can be debiased, {measure} cannot")
    samples = len(layers[0].x)
    if debiased and samples < 4:
        raise ValueError(f"debiased CKA needs at least four samples; got {samples}")
    cells = np.ix_(rows, columns)
    names = [layer.name for layer in layers]
    rounding = np.array([16 * torch.finfo(layer.x.dtype).eps for layer in layers])
    if measure == "cka":
        wanted = np.eye(len(layers), dtype=bool)
        wanted[cells] = True
        table = _hsic(layers, debiased, wanted | wanted.T)
        squared_shares = np.array([float(layer.shares @ layer.shares) for layer in layers])
        floor = rounding * squared_shares / (samples * (samples - 3)) if debiased else np.zeros(len(layers))
        return _alignment(table, names, floor)[cells]
    if measure == "rbf_cka":
        return _alignment(_rbf_products(layers, bandwidth, debiased), names, (samples * rounding) ** 2)[cells]
    if measure == "procrustes":
        return _every_pair([_triangle(layer) for layer in layers], _nuclear, rows, columns)
    if measure == "svcca":
        return _every_pair([_components(layer, 0.99) for layer in layers], _canonical, rows, columns)
    if measure == "smaller":
        alignment = _values(layers, rows, columns, "cka")
        return np.minimum(alignment, _values(layers, rows, columns, "procrustes"))
    raise ValueError(f"measure is cka, rbf_cka, procrustes, svcca or smaller; got {measure!r}")


def _alignment(table: NDArray[np.float64], names: Sequence[str], floor: NDArray[np.float64]) -> NDArray[np.float64]:
    """HSIC to CKA. A self-similarity at or below the ``floor`` of rounding has no information: no CKA then."""
    selves = table.diagonal()
    for name, value, least in zip(names, selves, floor, strict=True):
        if not value > least:
            raise ValueError(
                f"CKA of {name} is undefined: its samples are all equally far from each other, so that nothing but the "
                "estimate's own noise is left"
            )
    values: NDArray[np.float64] = np.minimum(table / np.sqrt(np.outer(selves, selves)), 1.0)
    return values


def _estimate(
    off_diagonal: NDArray[np.float64], diagonal: NDArray[np.float64], samples: int, debiased: bool
) -> NDArray[np.float64]:
    """HSIC from ⟨K, L⟩ split into what lies off and on the diagonal, for centred K and L of trace one.

    Centring makes the rows of K sum to zero; without its diagonal they sum to minus the diagonal, which turns the
    three terms of the unbiased estimate (Song et al., 2012) into these.
    """
    if not debiased:
        return off_diagonal + diagonal
    unbiased = off_diagonal - 2 / (samples - 2) * diagonal + 1 / ((samples - 1) * (samples - 2))
    return unbiased / (samples * (samples - 3))


def _hsic(layers: Sequence[_Layer], debiased: bool, wanted: NDArray[np.bool_]) -> NDArray[np.float64]:
    """HSIC of the ``wanted`` pairs of layers, each layer divided by its size; NaN or right elsewhere."""
    shares = torch.stack([layer.shares for layer in layers])
    diagonal = (shares @ shares.T).cpu().numpy()
    products = np.full(wanted.shape, np.nan)
    wide = _worth_a_gram([layer.x.shape[1] for layer in layers], len(layers[0].x), wanted)
    numbers = np.flatnonzero(wide).tolist()
    if numbers:
        products[np.ix_(numbers, numbers)] = _gram_products([layers[i] for i in numbers])
    for i, j in np.argwhere(np.triu(wanted) & ~np.outer(wide, wide)).tolist():
        products[i, j] = products[j, i] = _feature_product(layers[i], layers[j]) - diagonal[i, j]
    return _estimate(products, diagonal, len(layers[0].x), debiased)


def _worth_a_gram(widths: Sequence[int], samples: int, wanted: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which layers to compare by Gram matrices: those wider than the limit that makes the multiplications fewest."""
    features = np.array(widths, dtype=np.float64)
    by_features = np.triu(wanted) * np.outer(features, features) * samples

    def multiplications(wide: NDArray[np.bool_]) -> float:
        grams = samples**2 * (features[wide].sum() + wide.sum() ** 2)
        return float(grams + by_features[~np.outer(wide, wide)].sum())

    return min((features > limit for limit in [0, *sorted(set(widths))]), key=multiplications)


def _gram_products(layers: Sequence[_Layer]) -> NDArray[np.float64]:
    """Inner products of the layers' Gram matrices without diagonals, from strips of their upper triangles."""
    samples = len(layers[0].x)
    dtype = max((layer.x.dtype for layer in layers), key=lambda kind: kind.itemsize)
    height = max(256, min(_STRIP_NUMBERS // (len(layers) * samples), samples // 8))
    total = torch.zeros(len(layers), len(layers), dtype=torch.float64, device=layers[0].x.device)
    for start in range(0, samples, height):
        stop = min(start + height, samples)
        strip = torch.empty(len(layers), stop - start, samples - start, dtype=dtype, device=total.device)
        for number, layer in enumerate(layers):
            strip[number] = layer.gram(start, stop)
        strip[:, :, : stop - start].diagonal(dim1=1, dim2=2).zero_()
        strip[:, :, stop - start :] *= 2**0.5  # this part stands for its mirror image too
        total += _inner_products(strip)
    return total.cpu().numpy()


def _inner_products(matrices: Tensor) -> Tensor:
    """Inner products of ``(count, rows, columns)`` matrices, row by row: a single long sum would round too much."""
    return torch.matmul(matrices.permute(1, 0, 2), matrices.permute(1, 2, 0)).sum(0, dtype=torch.float64)


def _feature_product(first: _Layer, second: _Layer) -> float:
    """⟨K, L⟩ = |XᵀY|² of two layers divided by their sizes."""
    samples = len(first.x)
    dtype = torch.promote_types(first.x.dtype, second.x.dtype)
    scale = (first.size or 1.0) ** 0.5 * (second.size or 1.0) ** 0.5
    total = 0.0
    for left in blocks(first.x.shape[1], samples, _BLOCK_NUMBERS):
        x = first.centred(columns=left).to(dtype)
        for right in blocks(second.x.shape[1], max(samples, x.shape[1]), _BLOCK_NUMBERS):
            y = second.centred(columns=right).to(dtype)
            total += float((x.T @ y).div_(scale).square_().sum(dtype=torch.float64))
    return total


def _rbf_products(layers: Sequence[_Layer], bandwidth: float, debiased: bool) -> NDArray[np.float64]:
    """Inner products of the layers' centred Gaussian kernels."""
    if not bandwidth > 0:
        raise ValueError(f"bandwidth is a positive fraction of the median distance; got {bandwidth}")
    samples = len(layers[0].x)
    dtype = max((layer.x.dtype for layer in layers), key=lambda kind: kind.itemsize)
    kernels = torch.empty(len(layers), samples, samples, dtype=dtype, device=layers[0].x.device)
    pairs = torch.ones(samples, samples, dtype=torch.bool, device=kernels.device).triu_(1)
    for kernel, layer in zip(kernels, layers, strict=True):
        shares = layer.shares.to(layer.x.dtype)
        squares = (shares[:, None] + shares - 2 * layer.gram(0, samples)).clamp_(min=0)
        middle = squares[pairs].median()
        if middle == 0:
            raise ValueError(f"the median distance between samples of {layer.name} is zero: remove repeated samples")
        kernel.copy_(squares.div_(-2 * bandwidth**2 * middle).exp_())
        if debiased:  # the centring whose inner products are the unbiased estimate
            kernel.fill_diagonal_(0)
            means = kernel.sum(1) / (samples - 2)
            kernel += means.sum() / (samples - 1) - means[:, None] - means
            kernel.fill_diagonal_(0)
        else:
            means = kernel.mean(1)
            kernel += means.mean() - means[:, None] - means
    return _inner_products(kernels).cpu().numpy()


def _triangle(layer: _Layer) -> Tensor:
    """A matrix R with as few rows as possible such that the nuclear norm of XᵀY is that of R_x R_yᵀ."""
    transposed = layer.centred().T / layer.size**0.5
    if transposed.shape[0] <= transposed.shape[1]:
        return transposed
    return torch.linalg.qr(transposed, mode="r").R


def _nuclear(first: Tensor, second: Tensor) -> float:
    dtype = torch.promote_types(first.dtype, second.dtype)
    return min(float(torch.linalg.svdvals(first.to(dtype) @ second.to(dtype).T).sum()), 1.0)


def _components(layer: _Layer, variance: float) -> Tensor:
    """Orthonormal sample coordinates of the leading principal components that hold ``variance`` of the total."""
    if not 0 < variance <= 1:
        raise ValueError(f"variance is a fraction in (0, 1]; got {variance}")
    left, singular, _ = torch.linalg.svd(layer.centred(), full_matrices=False)
    held = singular.double().square().cumsum(0)
    kept = int((held < variance * held[-1]).sum()) + 1
    # Asked for everything, rounding noise in directions without variance must not pass for a component.
    real = int((singular > singular[0] * max(layer.x.shape) * torch.finfo(singular.dtype).eps).sum())
    return left[:, : min(kept, real)]


def _canonical(first: Tensor, second: Tensor) -> float:
    dtype = torch.promote_types(first.dtype, second.dtype)
    return min(float(torch.linalg.svdvals(first.to(dtype).T @ second.to(dtype)).mean()), 1.0)


def _every_pair(
    parts: Sequence[Tensor], compare: Callable[[Tensor, Tensor], float], rows: Sequence[int], columns: Sequence[int]
) -> NDArray[np.float64]:
    """``compare`` for all pairs, once for those that occur twice: every measure here is symmetric."""
    known: dict[tuple[int, int], float] = {}
    for pair in {(min(i, j), max(i, j)) for i in rows for j in columns}:
        known[pair] = compare(parts[pair[0]], parts[pair[1]])
    return np.array([[known[min(i, j), max(i, j)] for j in columns] for i in rows])
