"""Single neurons in a gradient flow: where their hyperplanes lie, which neurons are aligned, and which are dead.

Before t* the neurons of a net do not interact: each converges to one of a few common fixed points and grows
exponentially there. The position z of a neuron is the point of its hyperplane ω·x/√d + b = 0 nearest to the
origin; ζ is where that hyperplane meets the first informative axis. (Spec 004, sections 1, 3.5, 5.8 and 9.3.)
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.cluster import DBSCAN
from torch import Tensor

from polariscope.kernels.flow_nets import FloatArray, Informative, MeanFieldNet, split
from polariscope.kernels.gradient_flow import History, Training


@dataclass(frozen=True)
class Neurons:
    """Observables with one entry per neuron. ``intercept`` is infinite for a hyperplane parallel to the axis.

    ``ratio`` is λ = ‖ω_∥‖ / ‖ω_⊥‖, with the sign of ω₁ if one direction is informative; ``conserved`` is
    β² − ‖ω‖² − b², which gradient flow does not change and Euler steps change in proportion to their length.
    """

    position: FloatArray
    intercept: FloatArray
    ratio: FloatArray
    size: FloatArray
    readout: FloatArray
    conserved: FloatArray

    def columns(self) -> dict[str, FloatArray]:
        """Columns for a table, with one column for each coordinate of the position."""
        positions = {f"position_{i + 1}": column for i, column in enumerate(self.position.T)}
        rest = ("intercept", "ratio", "size", "readout", "conserved")
        return positions | {name: getattr(self, name) for name in rest}


def neurons(net: MeanFieldNet, informative: Informative = 1) -> Neurons:
    """The observables of every neuron; ``size`` is ‖ω‖².

    >>> net = MeanFieldNet(torch.tensor([[3.0, 4.0, -5.0, 2.0]], dtype=torch.float64))
    >>> seen = neurons(net)
    >>> (seen.position / math.sqrt(2)).round(3).tolist(), (seen.intercept / math.sqrt(2)).round(3).tolist()
    ([[0.6, 0.8]], [1.667])
    >>> seen.ratio.tolist(), seen.conserved.tolist()
    ([0.75], [-46.0])
    """
    net = MeanFieldNet(net.state.double())
    parallel, perpendicular = split(net.weights, informative)
    size = net.weights.square().sum(1)
    offset = -math.sqrt(net.dimension) * net.bias
    ratio = parallel.norm(dim=1) / perpendicular.norm(dim=1)
    if parallel.shape[1] == 1:
        ratio = ratio * parallel[:, 0].sign()
    position = offset[:, None] * net.weights / size[:, None]
    conserved = net.readout.square() - size - net.bias.square()
    arrays = (position, offset / parallel[:, 0], ratio, size, net.readout, conserved)
    return Neurons(*(array.numpy().copy() for array in arrays))


def dead(net: MeanFieldNet, x: ArrayLike | Tensor) -> NDArray[np.bool_]:
    """Neurons ``(h,)`` with no example of ``x`` on their active side: no gradient reaches them.

    >>> dead(MeanFieldNet(torch.tensor([[1.0, -9.0, 1.0], [1.0, 0.0, 1.0]])), [[1.0], [2.0]]).tolist()
    [True, False]
    """
    inputs, hidden = net.prepare(x), net.state[:, :-1].T
    alive = torch.zeros(net.width, dtype=torch.bool)
    for rows in net.blocks(len(inputs)):
        alive |= (inputs[rows] @ hidden > 0).any(0)
    return (~alive).numpy()


# --- clusters ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cluster:
    """Neurons in one place: how many, their share of Σ‖ω‖², their mean position and the median of |λ|."""

    members: NDArray[np.int64]
    share: float
    position: FloatArray
    ratio: float

    @property
    def count(self) -> int:
        return len(self.members)


def near(seen: Neurons, points: ArrayLike, signs: ArrayLike, radius: float = 0.1) -> list[Cluster]:
    """The neurons within ``radius``, in every coordinate, of each of the ``points`` ``(k, d)`` (predicted attractors).

    The points may lie close to each other, so ``signs`` ``(k,)`` give the sign of λ at each: the neurons on the two
    sides of a hyperplane have different attractors.
    """
    targets, sides = np.atleast_2d(np.asarray(points, dtype=np.float64)), np.asarray(signs, dtype=np.float64)
    if targets.shape[1] != seen.position.shape[1] or sides.shape != (len(targets),):
        raise ValueError(
            f"attractors are points (k, {seen.position.shape[1]}) with k signs; got {targets.shape} and {sides.shape}"
        )
    close = (np.abs(seen.position[:, None] - targets) < radius).all(2) & (seen.ratio[:, None] * sides > 0)
    return [_cluster(seen, np.flatnonzero(column)) for column in close.T]


def clusters(seen: Neurons, radius: float = 0.1, least: float = 0.02) -> list[Cluster]:
    """Clusters of neurons, found without predicted positions, the largest first.

    Neurons with the same sign of λ are linked if closer than ``radius``; a cluster counts if it has at least the share
    ``least`` of all neurons. (DBSCAN, Ester et al. 1996.)
    """
    minimum = max(2, math.ceil(least * len(seen.size)))
    gathered = []
    for side in (seen.ratio < 0, seen.ratio >= 0):
        rows = np.flatnonzero(side & np.isfinite(seen.position).all(1))
        if len(rows) >= minimum:
            label = DBSCAN(eps=radius, min_samples=minimum).fit_predict(seen.position[rows])
            gathered += [_cluster(seen, rows[label == i]) for i in range(label.max() + 1)]
    return sorted(gathered, key=lambda cluster: -cluster.count)


def _cluster(seen: Neurons, rows: NDArray[np.intp]) -> Cluster:
    if not len(rows):
        return Cluster(rows.astype(np.int64), 0.0, np.full(seen.position.shape[1], np.nan), math.nan)
    share = seen.size[rows].sum() / seen.size.sum()
    ratio = float(np.median(np.abs(seen.ratio[rows])))
    return Cluster(rows.astype(np.int64), float(share), seen.position[rows].mean(0), ratio)


# --- time ----------------------------------------------------------------------------------------------------------


def regimes(training: Training, few: int = 5) -> NDArray[np.str_]:
    """The regime of every row of the history: compressing until t*, then fitting, then over-fitting.

    Over-fitting starts when at most ``few`` examples are active for the first time, and lasts until the end.
    """
    history: History = training.history
    labels = np.full(len(history.time), "compressing", dtype="<U12")
    if training.t_star is not None:
        labels[history.time >= training.t_star.time] = "fitting"
        labels[np.maximum.accumulate((history.active <= few) & (labels == "fitting"))] = "over-fitting"
    return labels


def drift(before: MeanFieldNet, after: MeanFieldNet) -> FloatArray:
    """Change of β² − ‖ω‖² − b² of every neuron, relative to its β² at the end: zero up to the error of the finite
    steps."""
    first, last = neurons(before), neurons(after)
    return np.asarray(np.abs(last.conserved - first.conserved) / np.square(last.readout))


def growth_rates(
    before: MeanFieldNet, after: MeanFieldNet, time: float, members: Iterable[int] | None = None
) -> FloatArray:
    """Rates r (per time unit) of the growth e^{rt} of ‖ω‖ between two states ``time`` apart."""
    if not time > 0:
        raise ValueError(f"a growth rate needs a positive time between the states; got {time}")
    rows = slice(None) if members is None else np.fromiter(members, dtype=np.int64)
    ratio = after.weights.double().norm(dim=1) / before.weights.double().norm(dim=1)
    rates: FloatArray = (ratio.log() / time).numpy()[rows]
    return rates
