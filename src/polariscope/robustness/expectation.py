"""Attacks on the mean of a classifier with random outputs (expectation over transformation; Athalye, Engstrom, Ilyas
and Kwok 2018, Synthesizing robust adversarial examples).

A single output of such a classifier shows little: an attack that follows one draw is misled by it, and an image that
misleads one draw need not mislead the next. The mean over many draws has a gradient, the mean of their gradients, and
predicts the class that is most probable over draws.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from polariscope.robustness.attacks import Attacked
from polariscope.robustness.attacks.geometry import length
from polariscope.robustness.attacks.line_search import FURTHER
from polariscope.subjects import Subject

TINY = 1e-30
"""Probabilities below this count as this: the scores are their logarithms."""
PRIME = 2_147_483_647


def averaged(subject: Subject, draws: int, seed: int = 0) -> Subject:
    """The classifier whose scores are the logarithms of class probabilities averaged over ``draws`` answers. The draws
    are fixed by the seed, so that the same batch gets the same scores.

    >>> from polariscope.subjects import as_subject
    >>> noisy = as_subject(lambda x: torch.stack([x[:, 0] + torch.randn(len(x)), torch.zeros(len(x))], 1))
    >>> mean = averaged(noisy, 64)
    >>> x = torch.tensor([[2.0], [-2.0]])
    >>> torch.equal(mean.scores(x), mean.scores(x)), mean.scores(x).argmax(1).tolist()
    (True, [0, 1])
    """
    if draws < 2:
        raise ValueError(f"a random classifier is averaged over at least 2 draws; got {draws}")

    def scores(x: Tensor) -> Tensor:
        total: Tensor | None = None
        with torch.random.fork_rng(range(torch.cuda.device_count())):
            for number in range(draws):
                torch.manual_seed((seed * draws + number) % PRIME)
                one = subject.scores(x).softmax(1)
                total = one if total is None else total + one
        assert total is not None
        return (total / draws).clamp(min=TINY).log()

    return replace(subject, predicts=scores)


def confirmed(result: Attacked, x: Tensor, fresh: Subject, y: Tensor) -> Attacked:
    """A result with only those adversarials that also mislead the mean over new draws, which the attack did not see.

    An adversarial that does not is moved further along its line from the image. Images that were misclassified without
    an attack keep their distance of 0.
    """
    x, y = x.cpu(), y.cpu()
    channels = x.shape[1] if x.ndim == 4 else 1
    change = result.adversarials - x
    distances = np.where(result.distances == 0, 0.0, np.inf)
    adversarials, queries = result.adversarials.clone(), result.queries.copy()
    rows = np.flatnonzero((result.distances > 0) & np.isfinite(result.distances))
    with fresh.at_rest():
        for factor in FURTHER:
            if not len(rows):
                break
            points = (x[rows] + factor * change[rows]).clamp(0, 1) if factor > 1 else result.adversarials[rows]
            misled = (fresh.scores(points).argmax(1).cpu() != y[rows]).numpy()
            queries[rows] += 1
            found = rows[misled]
            adversarials[found] = points[misled]
            distances[found] = length((points[misled] - x[found]).flatten(1), result.norm, channels).numpy()
            rows = rows[~misled]
    return replace(result, adversarials=adversarials, distances=distances, queries=queries)
