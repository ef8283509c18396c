"""How sure a map is: Monte-Carlo dropout, and how well possible maps cover what experts draw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """Probabilities ``(n, classes, h, w)`` averaged over draws, and how uncertain each pixel is ``(n, h, w)``."""

    probabilities: NDArray[np.float64]
    entropy: NDArray[np.float64]
    """Of the averaged probabilities, in nats: all of the uncertainty."""
    disagreement: NDArray[np.float64]
    """Entropy minus the mean entropy of the draws: the disagreement of the draws, which is the uncertainty of the
    model."""


def dropout_draws(network: nn.Module, x: Tensor, draws: int = 20, seed: int = 0) -> Uncertainty:
    """Monte-Carlo dropout (Gal and Ghahramani 2016): probabilities of several networks with randomly dropped units. A
    network without dropout is refused."""
    dropouts = [m for m in network.modules() if isinstance(m, nn.Dropout | nn.Dropout2d) and m.p > 0]
    if not dropouts:
        raise ValueError("Monte-Carlo dropout needs a network with dropout, and this one has none: train one with it")
    if draws < 2:
        raise ValueError(f"draws is {draws}: to disagree takes at least 2")
    training = network.training
    network.eval()
    try:
        for module in dropouts:
            module.train()
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(seed)
            shares = np.stack([network(x).double().softmax(1).numpy() for _ in range(draws)])
    finally:
        network.train(training)
    return summed_up(shares)


def summed_up(shares: NDArray[Any]) -> Uncertainty:
    """Statistics of draws of probabilities ``(draws, n, classes, h, w)``."""
    mean = shares.mean(0)
    entropy, own = _entropy(mean, 1), _entropy(shares, 2).mean(0)
    return Uncertainty(mean, entropy, np.maximum(entropy - own, 0))


def energy_distance(maps: ArrayLike, experts: ArrayLike, classes: int, background: int) -> float:
    """Generalised energy distance of possible maps ``(s, h, w)`` from those of experts ``(e, h, w)``:
    2 E d(S, Y) − E d(S, S') − E d(Y, Y'), with d = 1 − IoU, averaged over the classes that either has (Kohl et al.
    2018). 0 if both are distributed alike.

    >>> experts = np.array([[[0, 1]], [[1, 1]]])
    >>> energy_distance(experts, experts, 2, background=1), energy_distance(experts[:1], experts, 2, background=1)
    (0.0, 0.5)
    """
    first, second = np.asarray(maps), np.asarray(experts)
    between = _distances(first, second, classes, background).mean()
    return float(2 * between - diversity(first, classes, background) - diversity(second, classes, background))


def diversity(maps: ArrayLike, classes: int, background: int) -> float:
    """The mean distance 1 − IoU of two of the maps, drawn with replacement: 0 if all are the same."""
    several = np.asarray(maps)
    return float(_distances(several, several, classes, background).mean())


def _distances(first: NDArray[Any], second: NDArray[Any], classes: int, background: int) -> NDArray[np.float64]:
    total, seen = np.zeros((2, len(first), len(second)))
    for value in (c for c in range(classes) if c != background):
        a, b = ((one == value).reshape(len(one), -1).astype(np.float32) for one in (first, second))
        both = a @ b.T
        either = a.sum(1)[:, None] + b.sum(1) - both
        total += np.where(either > 0, 1 - both / np.maximum(either, 1), 0)
        seen += either > 0
    return np.where(seen > 0, total / np.maximum(seen, 1), 0.0)


def _entropy(shares: NDArray[Any], axis: int) -> NDArray[np.float64]:
    return np.asarray(-(shares * np.log(np.maximum(shares, 1e-300))).sum(axis), np.float64)
