"""Certificates of randomised smoothing: they hold with a confidence, and abstain if the vote is undecided.

(Cohen, Rosenfeld and Kolter 2019, section 3.2; Spec 001b, row B-45.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polariscope.robustness.bounds.result import Bounds, combined
from polariscope.robustness.bounds.settings import BoundSettings
from polariscope.theory.halfspaces import Norm, norm_from_l2
from polariscope.theory.smoothing import clopper_pearson, smoothed_radius, undecided

FIRST, SECOND = 1, 2
"""Seeds of the votes that choose a class, and of the votes that bound its probability: they must differ."""


def smoothing_bounds(model: Any, x: Tensor, y: Tensor, norm: Norm, settings: BoundSettings) -> Bounds:
    """Certificates of a model with ``votes(x, draws, seed)`` under Gaussian noise of standard deviation ``sd``.

    Some votes choose a class, others bound its probability from below by Clopper and Pearson. An image whose bound is
    not above one half is left undecided, with a bound of 0.
    """
    labels = y.cpu().numpy()
    chosen = model.votes(x, settings.first, FIRST).argmax(1)
    votes = model.votes(x, settings.draws, SECOND).gather(1, chosen[:, None])[:, 0].cpu().numpy()
    radius = smoothed_radius(clopper_pearson(votes, settings.draws, settings.alpha), model.sd)
    right = chosen.cpu().numpy() == labels
    room = torch.maximum(x, 1 - x).flatten(1).double().cpu().numpy()
    channels = x.shape[1] if x.ndim == 4 else 1
    bound = radius if norm == "l2" else norm_from_l2(radius, room, norm, channels)
    bound = np.where(radius > 0, bound, 0.0)
    name = "randomised smoothing" if norm == "l2" else "randomised smoothing, from L2"
    return combined(
        norm,
        "certificate",
        {name: bound},
        right,
        confidence=1 - settings.alpha,
        abstained=radius == 0,
        notes=(
            f"The bound is one of the majority vote over noise of standard deviation {model.sd:g}; for each image it "
            f"is wrong with a probability of at most {settings.alpha:g}. {settings.draws} votes allow at most "
            f"{float(smoothed_radius(clopper_pearson(settings.draws, settings.draws, settings.alpha), model.sd)):.3g} "
            "in L2.",
        ),
    )


def smoothed_predictions(
    model: Any, x: Tensor, draws: int = 1000, alpha: float = 0.001, seed: int = 0
) -> NDArray[np.int64]:
    """The class of the majority vote for each image, or -1 if two classes are too close to decide at a confidence of 1
    − alpha."""
    top = model.votes(x, draws, seed).topk(2, dim=1)
    counts = top.values.cpu().numpy()
    open_ = np.array([undecided(int(first), int(second), alpha) for first, second in counts])
    return np.where(open_, -1, top.indices[:, 0].cpu().numpy())
