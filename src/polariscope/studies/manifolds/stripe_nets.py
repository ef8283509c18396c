"""Networks of one hidden layer on stripes and cylinders, as several studies train them.

A job says what it is about by ``task`` and ``dimension``, ``points``, ``width`` and ``seed``, and how its network flows
by ``alpha``, ``momentum`` and ``steps``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike

from polariscope.kernels.flow_nets import MeanFieldNet
from polariscope.kernels.gradient_flow import Flow, Training, train_flow
from polariscope.studies.study import Job, Row, Table
from polariscope.theory.stripe import FixedPoint, Layers, attractors, ring
from polariscope.worlds.points.cylinder import Cylinder
from polariscope.worlds.points.stripes import FloatArray, Stripe

SOURCE = "Paccolat, Petrini, Geiger, Tyloo and Wyart, Compressing invariant manifolds in neural nets (2021)"
ALPHA = 1e-6
"""The output scale of networks that learn features."""
PARTS = ("train", "fresh", "test")
INFORMATIVE = {"stripe": 1, "cylinder": 2}
"""Directions that the labels depend on."""


@dataclass(frozen=True)
class Grid:
    """Numbers of points, seeds of each, and steps of the flow, which include those before t*."""

    sizes: tuple[int, ...]
    seeds: int
    steps: int


def named(task: str, dimension: int) -> str:
    return f"{task}, d = {dimension}"


DATA = {dimension: named(task, dimension) for task, dimension in (("stripe", 5), ("stripe", 10), ("cylinder", 3))}
"""What several studies train on, by its dimension."""


def world_of(job: Job) -> Stripe | Cylinder:
    kind = {"stripe": Stripe, "cylinder": Cylinder}[job["task"]]
    return kind(dimension=job["dimension"])


def draw(
    world: Stripe | Cylinder, count: int, seed: int, part: Literal["train", "fresh", "test"]
) -> tuple[FloatArray, FloatArray]:
    """Points and labels that share no random number with those of another part, or with a net of the same seed."""
    # From 1 on: NumPy takes (seed, 0) for seed, which is the net's.
    return world.sample(count, np.random.default_rng((seed, 1 + PARTS.index(part))))


def start_of(job: Job, dtype: torch.dtype = torch.float32) -> MeanFieldNet:
    """The network of a job before training."""
    return MeanFieldNet.draw(job["dimension"], job["width"], job["seed"], dtype)


def flow_of(job: Job) -> Flow:
    return Flow(alpha=job["alpha"], momentum=job["momentum"], steps=job["steps"])


def trained(job: Job) -> Training:
    """A network that has flowed on its ``points``, with Λ followed at every step."""
    world = world_of(job)
    x, y = draw(world, job["points"], job["seed"], "train")
    return train_flow(start_of(job), x, y, flow_of(job), informative=world.source.informative)


def undisturbed(
    net: MeanFieldNet, x: ArrayLike, y: ArrayLike, steps: Sequence[int], length: float = 0.1
) -> Iterator[MeanFieldNet]:
    """The network after so many steps (rising) of a ``length`` in τ, for as long as it fits none of its points.

    Until then the output does not matter, so that each stretch of the flow can start where the last one ended.
    """
    done = 0
    for count in steps:
        if count > done:
            flow = Flow(alpha=1e-20, steps=count - done, longest=length)
            net = MeanFieldNet(train_flow(net, x, y, flow, every=count).end.state)
            done = count
        yield net


def leading(task: str, dimension: int) -> FixedPoint:
    """The attractor that carries the network at the onset."""
    return attractors(Layers(), dimension)[0] if task == "stripe" else ring(dimension)


def quotient(row: Row, first: str, second: str) -> float | None:
    """One column over another; None where the row lacks one of them, or the second is zero."""
    return None if row.get(first) is None or not row.get(second) else float(row[first] / row[second])


def groups(table: Table) -> Iterator[tuple[str, int, Table]]:
    """Tasks and dimensions of a table with their rows, stripes first."""
    for task in reversed(table.distinct("task")):
        for dimension, rows in table.where(task=task).by("dimension"):
            yield task, dimension, rows
