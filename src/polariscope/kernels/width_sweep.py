"""The effect of width: networks beside their linearisations, and the spectrum of their tangent kernels.

A task is a pair (inputs, labels); ``build(width, seed)`` makes a network. The seed determines both the initialisation
and the mini-batches, and every row has a fingerprint of both, so that twins can be identified. Computing a row again
gives the same row; time and memory, which differ between runs, are stored beside it in a :class:`Fit`. Compare every
sweep with a ridge regression on the pixels, which needs no features. (Spec 000, sections 7.4 and 7.5.)
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from polariscope.kernels.empirical import as_matrix, tangent_kernel
from polariscope.kernels.linearised import Descent, accuracy, descend, linearise, solve_exactly
from polariscope.kernels.machine import Solution, Spectrum, one_hot, spectrum
from polariscope.kernels.regression import ridge_weights
from polariscope.nets.classifiers import freeze_all_but_last
from polariscope.registry import nearest

LabelledInputs = tuple[Tensor, Tensor]
Build = Callable[[int, int], nn.Module]
Twin = Literal["standard", "linearised", "solved", "last_layer"]
TWINS: tuple[Twin, ...] = ("standard", "linearised", "solved", "last_layer")


@dataclass(frozen=True)
class WidthRow:
    """The scores of one network; if its training diverged, the accuracies are at chance level.

    ``fingerprint`` identifies the initialisation and ``batches`` the mini-batches; it is empty for a solved network.
    """

    width: int
    seed: int
    twin: Twin
    parameters: int
    train_accuracy: float
    test_accuracy: float
    diverged: bool
    fingerprint: str
    batches: str


@dataclass(frozen=True, eq=False)
class Fit:
    """A trained network with its scores, wall time, and the peak memory of this process.

    ``solution`` is the exact solution of a solved network.
    """

    model: nn.Module
    row: WidthRow
    seconds: float
    peak_bytes: int | None
    solution: Solution | None = None

    @property
    def record(self) -> dict[str, Any]:
        """The row and the cost in one flat dictionary."""
        return asdict(self.row) | {"seconds": self.seconds, "peak_bytes": self.peak_bytes}


@dataclass(frozen=True)
class SpectrumRow:
    """The tangent kernel of one network at initialisation."""

    width: int
    seed: int
    spectrum: Spectrum

    @property
    def effective_rank(self) -> float:
        return self.spectrum.effective_rank

    @property
    def condition(self) -> float:
        return self.spectrum.condition


def fingerprint(model: nn.Module) -> str:
    """16 hexadecimal digits that change with any parameter; single and double precision give the same digits.

    >>> fingerprint(nn.Linear(1, 1)) == fingerprint(nn.Linear(1, 1))
    False
    """
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        digest.update(name.encode())
        digest.update(parameter.detach().double().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def batch_fingerprint(how: Descent, count: int) -> str:
    """16 hexadecimal digits of the mini-batches of the first epoch over ``count`` inputs.

    One generator draws all epochs, so if the first epochs agree, all do.

    >>> batch_fingerprint(Descent(seed=0), 100) == batch_fingerprint(Descent(seed=1), 100)
    False
    """
    digest = hashlib.sha256(f"{count} {how.batch}".encode())
    order = how.batches(count)
    for step in range(order.epoch_steps):
        digest.update(order[step].tobytes())
    return digest.hexdigest()[:16]


def width_sweep(
    build: Build,
    train: LabelledInputs,
    test: LabelledInputs,
    widths: Sequence[int],
    seeds: Iterable[int] = (0,),
    twins: Sequence[Twin] = ("standard", "linearised"),
    how: Descent | Callable[[int, Twin], Descent] | None = None,
    ridge: float = 0.0,
) -> Iterator[WidthRow]:
    """Train every twin of every network and score it, one row at a time.

    "standard", "linearised" and "last_layer" (all else frozen) are trained by gradient descent; "solved" is the
    linearisation at its exact minimum with the given ridge. ``how`` may depend on the width and the twin, which need
    different rates; the network's seed replaces its seed.
    """
    how = Descent() if how is None else how
    for twin in twins:
        _check_twin(twin)
    for width in widths:
        for seed in seeds:
            for twin in twins:
                chosen = how if isinstance(how, Descent) else how(width, twin)
                yield fit_twin(build, train, test, width, seed, twin, chosen, ridge=ridge).row


def fit_twin(
    build: Build,
    train: LabelledInputs,
    test: LabelledInputs,
    width: int,
    seed: int,
    twin: Twin,
    how: Descent,
    **solver: Any,
) -> Fit:
    """One network of a :func:`width_sweep`, with its record; ``solver`` are arguments of :func:`solve_exactly`."""
    _check_twin(twin)
    started = time.perf_counter()
    model = build(width, seed)
    identity = fingerprint(model)
    y = _targets(model, train)
    how = replace(how, seed=seed)
    diverged, batches, solution = False, "", None
    if twin == "last_layer":
        freeze_all_but_last(model)
    trained = linearise(model.eval()) if twin in ("linearised", "solved") else model
    if twin == "solved":
        solution = solve_exactly(trained, train[0], y, **solver)  # type: ignore[arg-type]
    else:
        diverged, batches = descend(trained, train[0], y, how).diverged, batch_fingerprint(how, len(train[0]))
    row = WidthRow(
        width,
        seed,
        twin,
        sum(p.numel() for p in trained.parameters() if p.requires_grad),
        accuracy(trained, *train),
        accuracy(trained, *test),
        diverged,
        identity,
        batches,
    )
    return Fit(trained, row, time.perf_counter() - started, peak_bytes(), solution)


def peak_bytes() -> int | None:
    """The peak memory of this process so far; None on a system that does not report it."""
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak  # Linux counts in kilobytes


def kernel_sweep(build: Build, x: Tensor, widths: Sequence[int], seeds: Iterable[int] = (0,)) -> Iterator[SpectrumRow]:
    """The spectrum of the full tangent kernel of every network on ``x``."""
    for width in widths:
        for seed in seeds:
            yield SpectrumRow(width, seed, spectrum(as_matrix(tangent_kernel(build(width, seed), x))))


def pixel_ridge(train: LabelledInputs, test: LabelledInputs, ridge: float = 1e-2) -> tuple[float, float]:
    """Train and test accuracy of ridge regression on the inputs, with a ridge relative to the mean diagonal."""
    classes = int(train[1].max()) + 1
    mean = train[0].mean(0)
    x = (train[0] - mean).double().flatten(1)
    targets = one_hot(train[1], classes)
    share = targets.mean(0)  # of each class: without it, rare classes would be predicted as often as frequent ones
    # Relative to the mean of the kernel's diagonal; solved over pixels if there are fewer pixels than images.
    weights = torch.from_numpy(ridge_weights(x, targets - share, ridge * x.square().sum(1).mean().item()))

    def predict(images: Tensor) -> Tensor:
        return (images - mean).double().flatten(1) @ weights + share

    return accuracy(predict, *train), accuracy(predict, *test)


def best_descent(
    build: Callable[[], nn.Module], train: LabelledInputs, validation: LabelledInputs, grid: Iterable[Descent]
) -> tuple[Descent, float]:
    """The descent of the grid with the best validation accuracy, and that accuracy; diverged trainings are skipped."""
    best: tuple[Descent, float] | None = None
    for how in grid:
        model = build()
        if descend(model, train[0], _targets(model, train), how).diverged:
            continue
        score = accuracy(model, *validation)
        if best is None or score > best[1]:
            best = (how, score)
    if best is None:
        raise ValueError("every descent of the grid diverged; try smaller rates")
    return best


def _check_twin(twin: str) -> None:
    if twin not in TWINS:
        raise ValueError(f"there is no twin {twin!r}: {nearest(twin, TWINS)}")


def _targets(model: nn.Module, task: LabelledInputs) -> Tensor:
    """One-hot targets of the network's number of outputs; the label itself if it has one output."""
    with torch.no_grad():
        output = model(task[0][:1])
    targets = one_hot(task[1], output.shape[1]) if output.shape[1] > 1 else task[1][:, None]
    return targets.to(output.dtype)
