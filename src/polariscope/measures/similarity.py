"""How alike two representations of the same samples are: CKA, Procrustes, SVCCA, for one pair or all pairs of layers.

Spec 002, section 10. For activations that do not fit in memory there is
:class:`~polariscope.measures.streaming_cka.StreamingCKA`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polariscope.measures.hsic import Layer, alignment, check_counts, constant_sentence, hsic, look, rbf_products
from polariscope.measures.neighbours import Array
from polariscope.tabular import Tabular

Similarity = Literal["cka", "rbf_cka", "procrustes", "svcca", "smaller"]


@dataclass(frozen=True, eq=False, repr=False)
class SimilarityMatrix(Tabular):
    """Similarities ``values[i, j]`` of layer ``rows[i]`` to layer ``columns[j]``, with warnings about them."""

    values: NDArray[np.float64]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def headline(self) -> str:
        defined = self.values[~np.isnan(self.values)]
        most = f"at most {defined.max():.2f}" if defined.size else "all undefined"
        return f"similarity of {len(self.rows)} layers to {len(self.columns)}, {most}"

    def records(self) -> list[dict[str, Any]]:
        """A row for each layer of the first model, a column for each of the second."""
        named = (dict(zip(self.columns, map(float, values), strict=True)) for values in self.values)
        return [{"layer": name} | similarities for name, similarities in zip(self.rows, named, strict=True)]


def cka(x: Array, y: Array, debiased: bool = False) -> float:
    """Linear centred kernel alignment of two representations of the same samples (also known as the RV coefficient).

    With column-centred X and Y: CKA = |XᵀY|_F² / (|XᵀX|_F |YᵀY|_F) = ⟨K, L⟩ / (|K| |L|) with K = XXᵀ, L = YYᵀ; the
    cheaper form is chosen. Source: Kornblith, Norouzi, Lee and Hinton, 2019; spec 002, section 10.1. Everything after
    the first axis is flattened.

    Range: [0, 1]. 1: the same up to rotation, scale and shift; 0: no feature of one correlates with any of the other.
    Known bias: independent isotropic representations of p and q features score √(pq / ((n + p)(n + q))) on n samples,
    not 0. ``debiased=True`` takes the unbiased HSIC (Song et al., 2012) instead, is 0 on average there, may be
    slightly negative, and needs four samples. Both depend mostly on directions of large variance: differences
    outside the first few principal components hardly count, and constant columns do not count.

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
    gives linear CKA; a small one depends only on near neighbours. Known bias: as for :func:`cka`, and stronger for
    smaller bandwidths, since every kernel tends to the identity. Two kernels of samples × samples are kept in memory.

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

    Range: [0, 1]. 1: the same up to rotation, scale and shift; 0: uncorrelated. Known bias: too high, and more so with
    more features than for CKA: independent representations of p features score about 0.85 √(p / n) for
    n ≫ p samples; with n < p the value is not meaningful. If it disagrees with CKA, use the
    :func:`smaller` of the two.

    >>> x = np.random.default_rng(0).normal(size=(500, 3))
    >>> round(procrustes(x, 5 * x[:, ::-1] + 1), 6)
    1.0
    """
    return float(_values(_paired(x, y), [0], [1], "procrustes")[0, 0])


def svcca(x: Array, y: Array, variance: float = 0.99) -> float:
    """Mean canonical correlation of the principal components that hold ``variance`` of each representation.

    With U and V the orthonormal sample coordinates of those components: mean of the singular values of UᵀV, over the
    smaller of the two numbers of components. Source: Raghu, Gilmer, Yosinski and Sohl-Dickstein, 2017.

    Range: [0, 1]. 1: one side's components are linear functions of the other's; 0: uncorrelated. Unlike CKA it
    ignores how much variance a component has. Known bias: strongly upward. It is always 1 if the two sides
    together have at least as many components as samples, so use many more samples than features.

    >>> x = np.random.default_rng(0).normal(size=(500, 3))
    >>> round(svcca(x, x @ [[2.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.5, 3.0]], variance=1.0), 6)
    1.0
    """
    first, second = _paired(x, y)
    return _canonical(_components(first, variance), _components(second, variance))


def smaller(x: Array, y: Array) -> float:
    """The smaller of :func:`cka` and :func:`procrustes`, which is the safer one if they disagree.

    min(CKA, P). Source: spec 002, section 10.3 (Bonheme, 2023, section 7.2.2). Range [0, 1]; 1: the same up to
    rotation, scale and shift; 0: uncorrelated. Both overestimate with few samples, and so does their minimum.

    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(2, 500, 50))
    >>> smaller(x, y) == cka(x, y) < procrustes(x, y)
    True
    """
    return float(_values(_paired(x, y), [0], [1], "smaller")[0, 0])


def check_comparison(x: Array, y: Array) -> list[str]:
    """Warnings about the similarity of ``x`` and ``y``; empty if nothing is suspicious.

    It checks for fewer samples than features, constant columns, and columns that look like the same draw of
    standard-normal noise, as if two models were sampled with the same epsilon (spec 002, section 10.6).

    >>> check_comparison(np.eye(3, 7), np.eye(3))
    ['x: 3 samples for 7 features; similarities are too high, use more samples or debiased CKA',
     'x: 4 of 7 columns are constant and have no effect']
    """
    first, second = _paired(x, y)
    return [*first.notes(), *second.notes(), *_shared_noise(first, second)]


def similarity_matrix(
    activations_a: Mapping[str, Array],
    activations_b: Mapping[str, Array],
    measure: Similarity = "cka",
    debiased: bool = False,
    bandwidth: float = 1.0,
) -> SimilarityMatrix:
    """Similarities of all layers of one model to all layers of another, on the same samples.

    ``measure`` names one of the functions of this module, where formula, source, range and biases are given; work on
    a layer is done once for all its pairs. ``debiased`` is for the two CKAs, ``bandwidth`` for the
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
    measure: Similarity = "cka",
    debiased: bool = False,
    bandwidth: float = 1.0,
) -> SimilarityMatrix:
    """:func:`similarity_matrix` averaged over all pairs of a run of one model and a run of another.

    Cell (j, k) = mean over i, l of s(layer j of run A_i, layer k of run B_l): five seeds on each side make 25 pairs.
    Source: Bonheme, 2023, equation 7.9; spec 002, section 10.4. Range and meaning are those of the measure. Known
    bias: with the same runs on both sides each run is also compared with itself, which raises the mean; see notes.

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


def _paired(x: Array, y: Array) -> list[Layer]:
    layers, _, _ = _all_layers([{"x": x}], [{"y": y}], shared=False)
    return layers


def _all_layers(
    runs_a: Sequence[Mapping[str, Array]], runs_b: Sequence[Mapping[str, Array]], shared: bool = True
) -> tuple[list[Layer], list[int], list[int]]:
    """All layers (once, even if a layer is on both sides), and the numbers of the layers of each side."""
    numbers: dict[object, int] = {}
    layers: list[Layer] = []

    def number(name: str, x: Array) -> int:
        key = id(x) if shared else name
        if key not in numbers:
            numbers[key] = len(layers)
            layers.append(look(x, name))
        return numbers[key]

    rows = [number(name, x) for run in runs_a for name, x in run.items()]
    columns = [number(name, x) for run in runs_b for name, x in run.items()]
    if not rows or not columns:
        raise ValueError("both sides need at least one layer")
    check_counts([(layer.name, layer.x) for layer in layers])
    for layer in layers:
        if layer.size == 0:
            raise ValueError(constant_sentence(layer.name, len(layer.x)))
    return layers, rows, columns


def _shared_noise(first: Layer, second: Layer) -> list[str]:
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


def _notes(layers: Sequence[Layer], rows: Sequence[int], columns: Sequence[int], debiased: bool) -> tuple[str, ...]:
    notes = [note for layer in layers for note in layer.notes(debiased)]
    pairs = {(i, j) for i in rows for j in columns if i != j and len(layers[i].normal) and len(layers[j].normal)}
    notes += [note for i, j in sorted(pairs) for note in _shared_noise(layers[i], layers[j])]
    return tuple(dict.fromkeys(notes))


def _values(
    layers: Sequence[Layer],
    rows: Sequence[int],
    columns: Sequence[int],
    measure: Similarity,
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
        table = hsic(layers, debiased, wanted | wanted.T)
        squared_shares = np.array([float(layer.shares @ layer.shares) for layer in layers])
        floor = rounding * squared_shares / (samples * (samples - 3)) if debiased else np.zeros(len(layers))
        return alignment(table, names, floor)[cells]
    if measure == "rbf_cka":
        return alignment(rbf_products(layers, bandwidth, debiased), names, (samples * rounding) ** 2)[cells]
    if measure == "procrustes":
        return _every_pair([_triangle(layer) for layer in layers], _nuclear, rows, columns)
    if measure == "svcca":
        return _every_pair([_components(layer, 0.99) for layer in layers], _canonical, rows, columns)
    if measure == "smaller":
        return np.minimum(*(_values(layers, rows, columns, each) for each in ("cka", "procrustes")))
    raise ValueError(f"measure is cka, rbf_cka, procrustes, svcca or smaller; got {measure!r}")


def _triangle(layer: Layer) -> Tensor:
    """A matrix R with as few rows as possible such that the nuclear norm of XᵀY is that of R_x R_yᵀ."""
    transposed = layer.centred().T / layer.size**0.5
    if transposed.shape[0] <= transposed.shape[1]:
        return transposed
    return torch.linalg.qr(transposed, mode="r").R


def _nuclear(first: Tensor, second: Tensor) -> float:
    dtype = torch.promote_types(first.dtype, second.dtype)
    return min(float(torch.linalg.svdvals(first.to(dtype) @ second.to(dtype).T).sum()), 1.0)


def _components(layer: Layer, variance: float) -> Tensor:
    """Orthonormal sample coordinates of the leading principal components that hold ``variance`` of the total."""
    if not 0 < variance <= 1:
        raise ValueError(f"variance is a fraction in (0, 1]; got {variance}")
    left, singular, _ = torch.linalg.svd(layer.centred(), full_matrices=False)
    held = singular.double().square().cumsum(0)
    kept = int((held < variance * held[-1]).sum()) + 1
    # Even with variance=1, rounding noise in directions without variance must not count as a component.
    real = int((singular > singular[0] * max(layer.x.shape) * torch.finfo(singular.dtype).eps).sum())
    return left[:, : min(kept, real)]


def _canonical(first: Tensor, second: Tensor) -> float:
    dtype = torch.promote_types(first.dtype, second.dtype)
    return min(float(torch.linalg.svdvals(first.to(dtype).T @ second.to(dtype)).mean()), 1.0)


def _every_pair(
    parts: Sequence[Tensor], compare: Callable[[Tensor, Tensor], float], rows: Sequence[int], columns: Sequence[int]
) -> NDArray[np.float64]:
    """``compare`` of all pairs; a pair that occurs twice is computed once, since all measures are symmetric."""
    known: dict[tuple[int, int], float] = {}
    for pair in {(min(i, j), max(i, j)) for i in rows for j in columns}:
        known[pair] = compare(parts[pair[0]], parts[pair[1]])
    return np.array([[known[min(i, j), max(i, j)] for j in columns] for i in rows])
