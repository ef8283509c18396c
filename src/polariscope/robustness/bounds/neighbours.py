"""Certificates of nearest-neighbour classifiers. (Spec 001b, oracle O-B2; Wang, Jha and Chaudhuri 2018, Analyzing the
robustness of nearest neighbors to adversarial examples.)

An image changes its class only if it comes nearer to some example of another class than to every example of its own.
For one example of its own and one of another class that is a half-space, whose distance is known in every norm. The
smallest over all others is a bound for any example of the own class, and the largest of these bounds counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polariscope.robustness.bounds.result import Bounds, combined
from polariscope.robustness.bounds.settings import BoundSettings
from polariscope.theory.certificates import neighbour_distances
from polariscope.theory.halfspaces import DUAL, Norm, nearest_in_halfspace

CLOSE = 64
"""Examples of other classes for which the box is taken into account; for the others the bound without it counts."""
SAME = 1e-6
"""Distance of two examples, relative to their length, up to which they are equal."""
AT_ONCE = 2**23
Placed = tuple[NDArray[np.int64], NDArray[Any]]
"""Values of some images, behind the numbers of these images."""


def neighbour_bounds(model: Any, x: Tensor, y: Tensor, norm: Norm, settings: BoundSettings) -> Bounds:
    """Certificates of a model with ``examples()``: images ``(m, ...)`` and the classes of each, ``(m, classes)``."""
    examples, classes = model.examples()
    rows = examples.flatten(1).double()
    flat = x.flatten(1).double().to(rows.device)
    channels = x.shape[1] if x.ndim == 4 else 1
    separate: list[Placed] = []
    shared: list[Placed] = []
    right: list[Placed] = []
    for label in y.unique():
        own = classes[:, int(label)]
        if not own.any() or own.all():
            raise ValueError(f"a bound needs examples of class {int(label)} and of another class in memory")
        mine, theirs = rows[own], rows[~own]
        which = (y == label).nonzero()[:, 0].to(rows.device)
        for some in which.split(max(1, AT_ONCE // (len(rows) + len(flat[0])))):
            parts = _of_class(flat[some], mine, theirs, norm, settings, channels)
            for part, kept in zip(parts, (separate, shared, right), strict=True):
                kept.append((some.cpu().numpy(), part))
    methods = {"separate": _placed(separate, len(x)), "shared": _placed(shared, len(x))}
    return combined(norm, "certificate", methods, _placed(right, len(x)).astype(bool))


def _of_class(
    flat: Tensor, mine: Tensor, theirs: Tensor, norm: Norm, settings: BoundSettings, channels: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """The separate and the shared bound of images of one class, and whether they are nearest to that class."""
    near = torch.cdist(flat, mine).topk(min(settings.neighbours, len(mine)), largest=False)
    far = torch.cdist(flat, theirs)
    least = far.amin(1)
    room = torch.maximum(flat, 1 - flat).cpu().numpy()
    separate = neighbour_distances(near.values[:, 0].cpu().numpy(), least.cpu().numpy(), norm, room, channels)
    shared = np.zeros(len(flat))
    for rank in range(near.indices.shape[1]):  # a few examples of the own class
        own = mine[near.indices[:, rank]]
        margin = far.square() - near.values[:, rank, None].square()
        bounds = _least_over_others(flat, own, theirs, margin, norm, settings.box, channels)
        shared = np.maximum(shared, bounds)
    right = (near.values[:, 0] < least).cpu().numpy()
    return separate, np.maximum(shared, separate), right


def _least_over_others(
    flat: Tensor, own: Tensor, theirs: Tensor, margin: Tensor, norm: Norm, box: bool, channels: int
) -> NDArray[np.float64]:
    """The smallest distance of each image to the half-space of an example of another class, over all of them.

    The distance without a box is quickly computed for every example. With the box it is larger: it is computed for the
    closest examples, and the others count without it.
    """
    apart = torch.cdist(own, theirs, p=torch.inf if norm == "l0" else float(DUAL[norm]))
    # Two examples that are equal have no half-space between them: an image is never nearer to its own.
    margin = torch.where(apart > SAME * (1 + own.norm(dim=1, keepdim=True)), margin, 0.0)
    # k pixels change by an L1 norm of at most k times their channels.
    ratio = torch.where(margin > 0, margin / (2 * apart * (channels if norm == "l0" else 1)), 0.0)
    if not box and norm != "l0":
        return ratio.amin(1).cpu().numpy()
    close = ratio.topk(min(CLOSE + 1, ratio.shape[1]), largest=False)
    rest = np.full(len(flat), np.inf)
    indices = close.indices
    if ratio.shape[1] > CLOSE:
        rest, indices = close.values[:, -1].cpu().numpy(), indices[:, :-1]
        rest = np.ceil(rest) if norm == "l0" else rest
    slope = 2 * (theirs[indices] - own[:, None]).cpu().numpy()
    start = flat.cpu().numpy()[:, None]
    gaps = margin.gather(1, indices).cpu().numpy()
    inside = nearest_in_halfspace(slope, gaps, norm, -start, 1 - start, channels).distance
    return np.asarray(np.minimum(inside.min(1), rest))


def _placed(parts: list[Placed], count: int) -> NDArray[np.float64]:
    out = np.zeros(count)
    for rows, values in parts:
        out[rows] = values
    return out
