"""Outside the training square: does a model still predict and generate levels correctly (Spec 000, section 5.6,
F079)?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polariscope.examination.invariance import decoded, encoded, split_code
from polariscope.findings import Column, Findings, Records
from polariscope.measures.summed_error import summed_absolute_error
from polariscope.subjects.doors import subject_and_world
from polariscope.tabular import Tabular
from polariscope.worlds.given import Data
from polariscope.worlds.points.level_sets import LevelSets
from polariscope.worlds.targets import target_values
from polariscope.worlds.view import inside
from polariscope.worlds.world import to_tensor

COUNT = 2000


@dataclass(frozen=True)
class Shell:
    """Points whose largest coordinate lies between two reaches, in half widths of the trained square."""

    inner: float
    outer: float
    x_error: float
    """Squared error of reconstructions, summed over coordinates."""
    level_error: float
    """Mean distance of the predicted level from the true level of real points."""
    generated: float
    """Mean distance of the true level of points decoded with a new Z1 from the predicted level."""


@dataclass(frozen=True, eq=False, repr=False)
class Extrapolation(Tabular):
    """Errors inside the trained square and in shells around it."""

    shells: tuple[Shell, ...]

    @property
    def headline(self) -> str:
        inside_, last = self.shells[0], self.shells[-1]
        return (
            f"The predicted level has an error of {inside_.level_error:.3g} inside the trained square and "
            f"{last.level_error:.3g} between {last.inner:g} and {last.outer:g} times its size"
        )

    def records(self) -> list[dict[str, Any]]:
        return [vars(shell).copy() for shell in self.shells]

    def findings(self, title: str = "Extrapolation") -> Findings:
        columns = (
            Column("inner", "From", "%g"),
            Column("outer", "To", "%g"),
            Column("x_error", "Error of observations", "%.4g"),
            Column("level_error", "Error of the predicted level", "%.4g"),
            Column("generated", "Deviation of generated levels", "%.4g"),
        )
        shells = Records(name="shells", title="Around the trained square", rows=self.records(), columns=columns)
        return Findings(title, f"{self.headline}.", [shells])


@torch.no_grad()
def check_extrapolation(
    model: Any,
    data: Data | None = None,
    *,
    reaches: Sequence[float] = (1.0, 1.5, 2.0),
    property_latents: int | None = None,
    tells: Callable[[Tensor], Tensor] | None = None,
    count: int = COUNT,
    seed: int = 0,
) -> Extrapolation:
    """Errors of a model of level sets on points up to each of the ``reaches`` (in half widths of what was trained).

    Z1 of generated points is drawn from the codes of the points of the trained square.
    """
    subject, world = subject_and_world(model, data)
    level_sets = inside(world, LevelSets)
    if level_sets is None:
        raise ValueError("extrapolation beyond a square needs a model of level-sets, whose levels are known there")
    level: LevelSets = level_sets[0]
    ends = [float(reach) for reach in reaches]
    if len(ends) < 2 or ends[0] <= 0 or any(b <= a for a, b in pairwise(ends)):
        raise ValueError(f"reaches must be positive and increasing; got {ends}")
    usual = replace(level, count=2 * count, tested=count, seed=seed)
    wide = replace(usual, half_width=level.half_width * ends[-1], count=40 * count)
    square = wide.factors_of(np.arange(len(wide)))
    size = np.abs(square).max(axis=1) / level.half_width
    known = to_tensor(usual.observe(np.arange(count)))
    subject = subject.understood(known[:64])
    generator = torch.Generator().manual_seed(seed)
    shells = []
    with subject.at_rest():
        code = encoded(subject, known)["mean"]
        parts = split_code(subject, code, target_values(usual, np.arange(count)), property_latents, tells, seed)
        for inner, outer in zip([0.0, *ends], ends, strict=False):
            chosen = np.flatnonzero((size > inner) & (size <= outer))[:count]
            x = to_tensor(wide.observe(chosen))
            mean = encoded(subject, x)["mean"]
            predicted = level.shown_property(parts.tells(mean[:, : parts.latents]).double().numpy())
            true = level.level_of(np.asarray(square[chosen], dtype=np.float64))[:, None]
            z1 = code[torch.randint(len(code), (len(x),), generator=generator), parts.latents :]
            new = decoded(subject, torch.cat([mean[:, : parts.latents], z1], 1), tuple(world.shape))
            back = level.level_of(level.unembed(new.numpy()))[:, None]
            again = decoded(subject, mean, tuple(world.shape)).numpy()
            shells.append(
                Shell(
                    inner,
                    outer,
                    summed_absolute_error(again, x.numpy()),
                    summed_absolute_error(predicted, true),
                    summed_absolute_error(back, predicted),
                )
            )
    return Extrapolation(tuple(shells))
