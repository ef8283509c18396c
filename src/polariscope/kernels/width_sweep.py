"""What width does: networks and their linearisations side by side, and the spectrum of their tangent kernels.

A task is a pair (inputs, labels); ``build(width, seed)`` makes a network. The seed fixes both the initialisation and
the mini-batches, and every row carries a fingerprint of the former, so that twins can be told from strangers. A ridge
regression on the pixels belongs beside every sweep: what it reaches needs no features at all. (Spec 000, sections 7.4
and 7.5.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from polariscope.kernels.empirical import as_matrix, tangent_kernel
from polariscope.kernels.linearised import Descent, accuracy, descend, linearise, solve_exactly
from polariscope.kernels.machine import KernelMachine, Spectrum, linear, one_hot, spectrum
from polariscope.nets.classifiers import freeze_all_but_last
from polariscope.registry import nearest

Task = tuple[Tensor, Tensor]
Build = Callable[[int, int], nn.Module]
Twin = Literal["standard", "linearised", "solved", "last_layer"]
TWINS: tuple[Twin, ...] = ("standard", "linearised", "solved", "last_layer")


@dataclass(frozen=True)
class WidthRow:
    """How one network did. ``fingerprint`` is that of the initialisation; a run that diverged has chance accuracy."""

    width: int
    seed: int
    twin: Twin
    parameters: int
    train_accuracy: float
    test_accuracy: float
    diverged: bool
    fingerprint: str


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
    """16 hexadecimal digits that differ as soon as one parameter does.

    >>> fingerprint(nn.Linear(1, 1)) == fingerprint(nn.Linear(1, 1))
    False
    """
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        digest.update(name.encode())
        digest.update(parameter.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def width_sweep(
    build: Build,
    train: Task,
    test: Task,
    widths: Sequence[int],
    seeds: Iterable[int] = (0,),
    twins: Sequence[Twin] = ("standard", "linearised"),
    how: Descent | Callable[[int, Twin], Descent] | None = None,
    ridge: float = 0.0,
) -> Iterator[WidthRow]:
    """Train every twin of every network and score it, one row at a time.

    "standard" and "linearised" descend, as does "last_layer" (all else frozen); "solved" is the linearisation at its
    exact minimum with the given ridge. ``how`` may depend on the width and the twin, which like different rates; its
    seed is replaced by the network's.
    """
    how = Descent() if how is None else how
    for twin in twins:
        if twin not in TWINS:
            raise ValueError(f"there is no twin {twin!r}: {nearest(twin, TWINS)}")
    for width in widths:
        for seed in seeds:
            for twin in twins:
                model = build(width, seed)
                identity = fingerprint(model)
                y = _targets(model, train)
                chosen = replace(how if isinstance(how, Descent) else how(width, twin), seed=seed)
                diverged = False
                if twin == "last_layer":
                    freeze_all_but_last(model)
                trained = linearise(model) if twin in ("linearised", "solved") else model
                if twin == "solved":
                    solve_exactly(trained, train[0], y, ridge)  # type: ignore[arg-type]
                else:
                    diverged = descend(trained, train[0], y, chosen).diverged
                yield WidthRow(
                    width,
                    seed,
                    twin,
                    sum(p.numel() for p in trained.parameters() if p.requires_grad),
                    accuracy(trained, *train),
                    accuracy(trained, *test),
                    diverged,
                    identity,
                )


def kernel_sweep(build: Build, x: Tensor, widths: Sequence[int], seeds: Iterable[int] = (0,)) -> Iterator[SpectrumRow]:
    """The spectrum of the full tangent kernel of every network on ``x``."""
    for width in widths:
        for seed in seeds:
            yield SpectrumRow(width, seed, spectrum(as_matrix(tangent_kernel(build(width, seed), x))))


def pixel_ridge(train: Task, test: Task, ridge: float = 1e-2) -> tuple[float, float]:
    """Train and test accuracy of ridge regression on the inputs themselves, relative ridge."""
    classes = int(train[1].max()) + 1
    mean = train[0].mean(0)
    fitted = KernelMachine(linear, ridge).fit(train[0] - mean, one_hot(train[1], classes) - 1 / classes)
    return accuracy(lambda x: fitted.predict(x - mean), *train), accuracy(lambda x: fitted.predict(x - mean), *test)


def best_descent(
    build: Callable[[], nn.Module], train: Task, validation: Task, grid: Iterable[Descent]
) -> tuple[Descent, float]:
    """The descent of the grid with the best validation accuracy, and that accuracy; what diverged is out."""
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


def _targets(model: nn.Module, task: Task) -> Tensor:
    """One-hot targets of the network's number of outputs; the label itself if it has one output."""
    with torch.no_grad():
        output = model(task[0][:1])
    targets = one_hot(task[1], output.shape[1]) if output.shape[1] > 1 else task[1][:, None]
    return targets.to(output.dtype)
