"""How much noise it takes to mislead a classifier: ε*, the median norm along random directions of noise.

(Rusak et al. 2020, section 3.3; Spec 001b, section A8.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polariscope.findings import Findings, Value, Values
from polariscope.nets.noise_generator import NoiseGenerator
from polariscope.subjects import Subject, as_subject
from polariscope.subjects.labelled import labelled_examples
from polariscope.training.loop import seed_step
from polariscope.worlds.world import to_tensor

Noise = Literal["gaussian", "uniform"] | NoiseGenerator
STRIDE = 1.8
"""Ratio of two lengths of the coarse search."""
BISECTIONS = 40
ENOUGH = 100
"""Standard deviations of noise at which the coarse search ends: by then all but a few pixels are at their bounds."""


@dataclass(frozen=True, eq=False)
class NoiseDistances:
    """Norms of the smallest noise that misleads: 0 for an observation that is misclassified anyway, ∞ if no length
    misleads."""

    distances: NDArray[np.float64]
    """One for each observation, after clipping."""
    noise: str
    seed: int
    queries: int
    """The observations."""
    noisy: Tensor | None = None
    """Each observation with the least noise that misleads; as it is where none is needed or none does."""

    @property
    def median(self) -> float:
        """ε*: noise of this norm misleads the network on half of the observations. ∞ if no noise misleads more than
        half."""
        return float(np.median(self.distances))

    @property
    def wrong(self) -> float:
        """Share of observations that need no noise."""
        return float((self.distances == 0).mean())

    @property
    def unreachable(self) -> float:
        """Share of observations that no length of their noise misclassifies."""
        return float(np.isinf(self.distances).mean())

    def findings(self) -> Findings:
        finite = math.isfinite(self.median)
        norm = f"with a norm of {self.median:.4g} misleads" if finite else "of no norm misleads"
        entries = [
            Value(
                "epsilon_star",
                "Median norm of the smallest misleading noise",
                self.median if finite else None,
                True,
                "" if finite else "more than half of the observations are classified correctly at any length of it",
            ),
            Value("wrong", "Share misclassified without noise", self.wrong, False),
            Value("unreachable", "Share that no length of the noise misleads", self.unreachable, True),
        ]
        return Findings(
            f"{self.noise} noise",
            f"{self.noise.capitalize()} noise {norm} the classifier on half of {len(self.distances)} observations.",
            [Values(name="noise_distance", title="Distance by noise", entries=entries)],
            arrays={"distances": self.distances},
            settings={"noise": self.noise, "seed": self.seed, "queries": self.queries},
        )


def noise_distances(
    model: Any, x: Any, y: Any, noise: Noise = "gaussian", seed: int = 0, batch_size: int = 512
) -> NoiseDistances:
    """Find the smallest length of one random direction of noise that misleads the classifier, for each observation.

    The model is a classifier: a :class:`~polariscope.subjects.Subject`, or anything that can be wrapped into one.
    Images are floats from 0 to 1, or an array of bytes; a network that needs normalised inputs normalises them itself.
    A direction is scaled to length 1; powers of 1.8 find the first length that misleads, 40 bisections the smallest.
    The image with noise is clipped, and the norm is computed afterwards. ``noise`` may be a generator that was trained
    to mislead (see :mod:`polariscope.robustness.adversarial_noise`).

    >>> bright = lambda x: x.mean(1) - 0.55
    >>> found = noise_distances(bright, np.full((3, 4), 0.6, np.float32), [1, 1, 0])
    >>> round(found.wrong, 2), bool((found.distances[:2] >= 0.05 * 2 - 1e-6).all())
    (0.33, True)
    """
    subject = as_subject(model)
    x, y = images_with_classes(subject, x, y)
    search = _Search(subject, x, y, batch_size)
    with subject.at_rest():
        seed_step(seed, 0)
        search.towards(_draw(noise, x).flatten(1))
    named = noise if isinstance(noise, str) else "learned"
    return NoiseDistances(search.distances.cpu().numpy(), named, seed, search.queries, search.least.cpu())


def images_with_classes(subject: Subject, x: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Checked examples; an array of bytes, as worlds have them, is brought to [0, 1]."""
    return labelled_examples(subject, x if isinstance(x, Tensor) else to_tensor(np.asarray(x)), y)


class _Search:
    """A line search of all observations at once."""

    def __init__(self, subject: Subject, x: Tensor, y: Tensor, batch_size: int) -> None:
        self.subject, self.x, self.y, self.batch_size = subject, x, y, batch_size
        self.distances = torch.full((len(x),), math.inf, dtype=torch.float64, device=x.device)
        self.queries = 0
        self.least = x.clone()

    def towards(self, noise: Tensor) -> None:
        """Fill in the distances along one direction for each observation."""
        self.unit = noise / noise.norm(dim=1, keepdim=True).clamp(min=torch.finfo(noise.dtype).tiny)
        everyone = torch.arange(len(self.x), device=self.x.device)
        low, high = torch.zeros_like(self.distances), torch.zeros_like(self.distances)
        misled = self.misled(everyone, high)
        self.distances[misled] = 0
        left, lengths = everyone[~misled], []
        powers = math.ceil(math.log(ENOUGH * math.sqrt(self.unit.shape[1]), STRIDE))
        for power in range(powers + 1):
            high[left] = STRIDE**power
            misled = self.misled(left, high[left])
            lengths.append(left[misled])
            left = left[~misled]
            low[left] = high[left]
        rows = torch.cat(lengths)
        for _ in range(BISECTIONS):
            middle = (low[rows] + high[rows]) / 2
            misled = self.misled(rows, middle)
            low[rows] = torch.where(misled, low[rows], middle)
            high[rows] = torch.where(misled, middle, high[rows])
        self.least[rows] = self.noisy(rows, high[rows])
        change = self.least[rows] - self.x[rows]
        self.distances[rows] = change.flatten(1).double().norm(dim=1)

    def noisy(self, rows: Tensor, lengths: Tensor) -> Tensor:
        change = lengths.to(self.unit)[:, None] * self.unit[rows]
        return (self.x[rows] + change.reshape(-1, *self.x.shape[1:])).clamp(0, 1)

    def misled(self, rows: Tensor, lengths: Tensor) -> Tensor:
        """Which observations are misclassified at these lengths."""
        self.queries += len(rows)
        scores = [
            self.subject.scores(self.noisy(some, at)).argmax(1) != self.y[some]
            for some, at in zip(rows.split(self.batch_size), lengths.split(self.batch_size), strict=True)
        ]
        return torch.cat(scores) if len(rows) else torch.zeros(0, dtype=torch.bool, device=rows.device)


def _draw(noise: Noise, x: Tensor) -> Tensor:
    if isinstance(noise, NoiseGenerator):
        return noise.noise_for(x)
    if noise == "gaussian":
        return torch.randn_like(x)
    if noise == "uniform":
        return 2 * torch.rand_like(x) - 1
    raise ValueError(f"noise is 'gaussian', 'uniform' or a noise generator; got {noise!r}")
