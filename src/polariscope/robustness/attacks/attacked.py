"""Results of attacks: the nearest adversarial of each image, its distance, and the queries that found it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polariscope.grammar import counted
from polariscope.robustness.attacks.geometry import NORM_NAMES, ROUNDING, Norm, within


@dataclass(frozen=True, eq=False)
class Attacked:
    """The result of an attack, or of several: a row for each image."""

    attacks: tuple[str, ...]
    norm: Norm
    adversarials: Tensor
    """The nearest adversarial; if none was found, the image whose scores are closest to one."""
    distances: NDArray[np.float64]
    """0: misclassified without an attack (or, if there are targets, classified as the target); infinite: no adversarial
    was found."""
    queries: NDArray[np.int64]
    """Queries per image, with or without a gradient."""
    gradients: NDArray[np.int64]
    zero_gradients: NDArray[np.int64]
    """How many gradients were zero, NaN or infinite: they point nowhere."""
    by: NDArray[np.int64]
    """Which of the attacks found the nearest adversarial."""
    epsilons: tuple[float, ...] = ()
    """The distances at which success is reported."""

    def __len__(self) -> int:
        return len(self.distances)

    @property
    def success(self) -> NDArray[np.bool_]:
        """Whether there is an adversarial within each epsilon, ``(n, epsilons)``."""
        limits = torch.tensor(self.epsilons, dtype=torch.float64)
        return within(torch.from_numpy(self.distances)[:, None], limits).numpy()

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the distances."""
        count = len(self)
        if not self.distances.any():
            if count == 1:
                return ("The only image is misclassified without an attack, so its distance is 0.",)
            return (f"All {count} images are misclassified without an attack, so every distance is 0.",)
        missed = int(np.isinf(self.distances).sum())
        if not missed:
            return ()
        norm = NORM_NAMES[self.norm]
        if self.epsilons:
            within = f"within {norm} {max(self.epsilons):g}"
            return (f"No adversarial was found {within} for {missed} of {counted(count, 'image')}.",)
        alone = len(self.attacks) == 1 and not self.gradients.any()
        hint = "; an attack by decisions needs an adversarial to start from (starts=)" if alone else ""
        return (
            f"No adversarial was found in {norm} for {missed} of {counted(count, 'image')}: "
            f"{'their' if missed > 1 else 'its'} distance is infinite{hint}.",
        )

    @property
    def median(self) -> float:
        """The distance at which half of the images are misclassified; infinite if the attack never gets that far."""
        return median_distance(self.distances)

    def accuracy(self, epsilon: float) -> float:
        """The share of images without an adversarial within epsilon."""
        return float(accuracy_at(self.distances, [epsilon])[0])


def median_distance(distances: NDArray[np.float64]) -> float:
    """The distance within which half of the images have an adversarial.

    >>> median_distance(np.array([0, 1.0, 2.0, np.inf])), median_distance(np.array([1.0, np.inf, np.inf]))
    (1.5, inf)
    """
    return float(np.median(distances))


def accuracy_at(distances: NDArray[np.float64], epsilons: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
    """Accuracy under perturbations of at most epsilon, for each epsilon: the share of distances above it.

    At epsilon 0 this is the accuracy without an attack, as a misclassified image has the distance 0. Between its steps
    the curve is flat, and its area is the mean distance. What rounding carries beyond epsilon is within it, as it is
    for attacks that look for an adversarial within epsilon.

    >>> accuracy_at(np.array([0, 0.5, 0.5, np.inf]), [0, 0.4, 0.5, 1]).tolist()
    [0.75, 0.75, 0.25, 0.25]
    """
    limits = np.asarray(epsilons, float)
    limits = np.where(limits > 0, limits * (1 + ROUNDING) + ROUNDING, 0.0)
    return (np.asarray(distances)[:, None] > limits).mean(0)


def accuracy_curve(distances: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The accuracy-distortion curve as its steps: epsilons (0 and every finite distance) and the accuracy from each one
    on."""
    epsilons = np.unique(np.append(distances[np.isfinite(distances)], 0.0))
    return epsilons, accuracy_at(distances, epsilons)


def least(results: Sequence[Attacked]) -> Attacked:
    """The nearest adversarial of each image over several attacks in one norm, and all that they spent together."""
    first = _alike(results, lambda one: (one.norm, len(one), one.epsilons), "the same images, norm and epsilons")
    distances = np.stack([one.distances for one in results])
    winner = distances.argmin(0)
    each = np.arange(len(first))
    names = [name for one in results for name in one.attacks]
    offsets = np.cumsum([0, *(len(one.attacks) for one in results)])
    return Attacked(
        tuple(names),
        first.norm,
        torch.stack([one.adversarials for one in results])[torch.from_numpy(winner), torch.from_numpy(each)],
        distances[winner, each],
        np.sum([one.queries for one in results], axis=0),
        np.sum([one.gradients for one in results], axis=0),
        np.sum([one.zero_gradients for one in results], axis=0),
        np.stack([one.by for one in results])[winner, each] + offsets[winner],
        first.epsilons,
    )


def joined(results: Sequence[Attacked]) -> Attacked:
    """Results of the same attacks on several blocks of images, one after another."""
    first = _alike(results, lambda one: (one.attacks, one.norm, one.epsilons), "the same attacks, norm and epsilons")

    def rows(field: str) -> Any:
        return np.concatenate([getattr(one, field) for one in results])

    return Attacked(
        first.attacks,
        first.norm,
        torch.cat([one.adversarials for one in results]),
        rows("distances"),
        rows("queries"),
        rows("gradients"),
        rows("zero_gradients"),
        rows("by"),
        first.epsilons,
    )


def _alike(results: Sequence[Attacked], key: Any, what: str) -> Attacked:
    if not results:
        raise ValueError("no results of attacks to combine")
    if len({key(one) for one in results}) > 1:
        raise ValueError(f"results of attacks are put together if they have {what}; these differ")
    return results[0]
