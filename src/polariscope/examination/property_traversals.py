"""Traversals of a code in two parts: levels of the property in Z0, and for each level along every latent of Z1.

If the property is in Z0 alone, a traversal of Z0 changes the property and nothing else, and a traversal of Z1 changes
everything but the property (Spec 000, sections 6.6 and 6.8, figures 5.5 to 5.9, A.1 and A.2). If the level sets are
known, the traversals are compared with them. If the factors of images are known, the factors of a decoded image are
those of the nearest image of the world.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polariscope.examination.invariance import audited_numbers, decoded, encoded, picture_limits, split_code
from polariscope.findings import Chart, Column, Part, Pictures, Records, Strip, Value, Values, rows_of
from polariscope.report.invariance_figures import traversal_grid
from polariscope.subjects.doors import subject_and_world
from polariscope.worlds.given import Data
from polariscope.worlds.pictures import Limits, picture_note
from polariscope.worlds.points.level_sets import LevelSets
from polariscope.worlds.property_scale import PropertyScale, property_scale
from polariscope.worlds.splits import Split
from polariscope.worlds.targets import target_values
from polariscope.worlds.true_property import true_property
from polariscope.worlds.view import inside
from polariscope.worlds.world import World, to_tensor

Floats = NDArray[np.float64]
COMPARED = 4000
"""Images of a world among which the nearest to a decoded image is searched."""

CHANGE_COLUMNS = (
    Column("factor", "Factor"),
    Column("asked", "Property"),
    Column("z0", "Along Z0", "percent"),
    Column("z1", "Along Z1", "percent"),
)


@dataclass(frozen=True)
class FactorChange:
    """Change of a factor along a traversal, as a share of its range."""

    factor: str
    z0: float
    """From the smallest to the largest property, with Z1 kept."""
    z1: float
    """Between two draws of Z1 at the same level."""
    asked: bool
    """Whether the factor is (part of) the property."""


@dataclass(frozen=True, eq=False)
class PropertyTraversals:
    """Observations ``(levels, latents, steps, *shape)`` along each latent of Z1, and ``(levels, *shape)`` along Z0."""

    scale: PropertyScale
    levels: Floats
    """The properties ``(levels, k)`` that Z0 encodes at each level."""
    along_z1: NDArray[Any]
    along_z0: NDArray[Any]
    selected: NDArray[np.bool_]
    """Which latents of Z1 have more signal than noise."""
    latents: NDArray[np.int64]
    """Their numbers in the whole code."""
    changes: tuple[FactorChange, ...] = ()
    radius_error: float | None = None
    """Mean relative error of the radius of traversed points from that of their level set; None if none is known."""
    level_error: float | None = None
    """Mean distance of the true property from the one that Z0 encodes, over the traversals of selected latents."""
    level_sets: LevelSets | None = None
    limits: Limits = (0.0, 1.0)
    """The numbers that pictures show as black and white."""

    def parts(self) -> list[Part]:
        """Sections of a document: measured numbers and figures."""
        entries = [
            Value("radius_error", "Mean relative error of the radius on level sets", self.radius_error, False),
            Value("level_error", "Mean deviation of the true property along Z1", self.level_error, False),
        ]
        known = [entry for entry in entries if entry.value is not None]
        parts: list[Part] = [Values(name="walks", title="Traversals of Z1", entries=known)] if known else []
        if self.changes:
            parts.append(
                Records(
                    name="factor-changes",
                    title="What a traversal changes",
                    hint="Change of each factor as a share of its range, by the nearest real image: along Z0 with Z1 "
                    "kept, and between draws of Z1 with Z0 kept.",
                    rows=rows_of(self.changes, CHANGE_COLUMNS),
                    columns=CHANGE_COLUMNS,
                )
            )
        world = self.level_sets
        if world is not None:
            points = [[world.unembed(walk) for walk in level] for level in self.along_z1]
            curves = [
                world.level_set(max(float(level[0]), 0.0), np.linspace(0, 2 * np.pi, 120)) for level in self.levels
            ]
            parts.append(
                Chart(
                    name="traversals",
                    title="Traversals of each latent of Z1, at levels of Z0",
                    hint="Grey: the true level sets.",
                    draw=lambda: traversal_grid(points, curves, [f"z{n}" for n in self.latents], self.selected),
                )
            )
        elif self.along_z0.ndim == 4:
            strips = [Strip(self.along_z0[None].astype(np.float32), "Z0", says="a traversal of Z0")]
            middle = self.along_z1[len(self.along_z1) // 2]
            middle = middle[:, :: max(1, middle.shape[1] // 12)]
            strips += [
                Strip(walk[None].astype(np.float32), f"z{number}", says=f"a traversal of latent {number}")
                for number, walk in zip(self.latents, middle, strict=True)
            ]
            parts.append(
                Pictures(
                    name="traversals",
                    title="Traversals of Z0 and of each latent of Z1",
                    hint=picture_note(self.along_z0.shape[1:], None if self.limits == (0.0, 1.0) else self.limits),
                    strips=strips,
                    limits=self.limits,
                )
            )
        return parts


@torch.no_grad()
def traverse_property(
    model: Any,
    data: Data | None = None,
    *,
    property_latents: int | None = None,
    tells: Callable[[Tensor], Tensor] | None = None,
    split: Split | None = None,
    levels: int = 10,
    steps: int = 60,
    stretch: float = 1.8,
    count: int = 2000,
    seed: int = 0,
) -> PropertyTraversals:
    """Traverse each latent of Z1 from ``levels`` equidistant values between the smallest and the largest of Z0.

    A traversal of Z1 goes from ``stretch`` times the smallest mean of a latent to ``stretch`` times its largest, around
    0 as published, with the other latents of Z1 at 0; 1.8 is the published stretch. Levels of Z0 are on the line
    between the codes whose property is smallest and largest.
    """
    if levels < 2 or steps < 2:
        raise ValueError(f"a traversal needs at least 2 levels and 2 steps; got {levels} and {steps}")
    subject, world = subject_and_world(model, data)
    scale = property_scale(world)
    train, held = audited_numbers(subject, world, split, count, count, seed)
    shown = np.asarray(world.observe(held))
    x = to_tensor(shown)
    subject = subject.understood(x[:64])
    if subject.decodes is None:
        raise TypeError(f"{subject.name} does not decode, so it has no traversals")
    with subject.at_rest():
        torch.manual_seed(seed)
        code = encoded(subject, x)
        known = encoded(subject, to_tensor(world.observe(train)))["mean"]
        parts = split_code(subject, known, target_values(world, train), property_latents, tells, seed)
        first, mean = parts.latents, code["mean"]
        walk0 = _walk_z0(mean[:, :first], scale, parts.tells, levels)
        predicted = scale.shown(parts.tells(walk0).double().numpy())
        z1 = mean[:, first:]
        low, high = stretch * z1.min(0).values, stretch * z1.max(0).values
        ways = torch.linspace(0, 1, steps)
        codes = torch.zeros(levels, z1.shape[1], steps, mean.shape[1])
        codes[..., :first] = walk0[:, None, None]
        for latent in range(z1.shape[1]):
            codes[:, latent, :, first + latent] = low[latent] + ways * (high[latent] - low[latent])
        shape = tuple(world.shape)
        along = decoded(subject, codes.flatten(0, 2), shape).reshape(levels, z1.shape[1], steps, *shape).numpy()
        still = torch.cat([walk0, z1.mean(0).expand(levels, -1)], 1)
        along_z0 = decoded(subject, still, shape).numpy()
        changes = _factor_changes(subject, world, scale, walk0, z1, shape, seed)
    noise = code["var"].mean(0).sqrt() if "var" in code else torch.zeros(mean.shape[1])
    selected = (z1.std(0) > noise[first:]).numpy()
    level = inside(world, LevelSets)
    radius = level_error = None
    if selected.any():
        walked = along[:, selected].reshape(-1, *shape)
        wanted = np.repeat(predicted, int(selected.sum()) * steps, axis=0)
        truth = true_property(world, walked)
        if truth is not None:
            level_error = float(np.abs(scale.shown(truth) - wanted).sum(axis=1).mean())
        if level is not None:
            radius = level_radius_error(level[0], level[0].unembed(walked), wanted[:, 0])
    return PropertyTraversals(
        scale, predicted, along, along_z0, selected, np.arange(first, mean.shape[1]), changes, radius, level_error,
        None if level is None else level[0], picture_limits(shown),
    )  # fmt: skip


def level_radius_error(world: LevelSets, points: Floats, levels: Floats) -> float:
    """Mean of |r / r(φ) − 1|: how far points are from the ellipse (or ellipsoid) of their level, along their own
    direction. On a level set every point has f(x) = y, and f is quadratic, so that r / r(φ) = √(f(x) / y).

    >>> world = LevelSets()
    >>> round(level_radius_error(world, 1.1 * world.level_set(0.3, np.linspace(0, 6, 9)), np.full(9, 0.3)), 9)
    0.1
    """
    keep = levels > 0
    if not keep.any():
        raise ValueError("a radius needs levels above 0")
    ratio = np.sqrt(world.level_of(points[keep]) / levels[keep])
    return float(np.abs(ratio - 1).mean())


def _walk_z0(z0: Tensor, scale: PropertyScale, tells: Callable[[Tensor], Tensor], levels: int) -> Tensor:
    """Codes ``(levels, latents)`` on the line from the smallest to the largest (first) property."""
    value = scale.shown(tells(z0).double().numpy())[:, 0]
    order = np.argsort(value)
    tail = max(1, len(order) // 100)
    ends = z0[order[:tail].copy()].mean(0), z0[order[-tail:].copy()].mean(0)
    return ends[0] + torch.linspace(0, 1, levels)[:, None] * (ends[1] - ends[0])


def _factor_changes(
    subject: Any, world: World, scale: PropertyScale, walk0: Tensor, z1: Tensor, shape: tuple[int, ...], seed: int
) -> tuple[FactorChange, ...]:
    """Changes of the factors of images, by their nearest real image; nothing for worlds without images and factors."""
    if len(shape) != 3 or not world.factors or any(factor.size < 1 for factor in world.factors):
        return ()
    generator = np.random.default_rng(seed)
    numbers = np.sort(generator.permutation(len(world))[:COMPARED])
    images, factors = to_tensor(world.observe(numbers)).flatten(1), np.asarray(world.factors_of(numbers), np.float64)
    some = z1[torch.from_numpy(generator.integers(len(z1), size=32))]
    codes = torch.cat([walk0[:, None].expand(-1, 32, -1), some[None].expand(len(walk0), -1, -1)], 2)
    out = decoded(subject, codes.flatten(0, 1), shape).flatten(1)
    nearest = torch.cdist(out.double(), images.double()).argmin(1).numpy()
    table = factors[nearest].reshape(len(walk0), 32, -1)
    ranges = np.maximum([factor.size - 1 for factor in world.factors], 1)
    z0 = np.abs(table[-1] - table[0]).mean(axis=0) / ranges
    z1_change = np.abs(table[:, 1:] - table[:, :-1]).mean(axis=(0, 1)) / ranges
    return tuple(
        FactorChange(factor.name, float(z0[place]), float(z1_change[place]), factor.name in scale.names)
        for place, factor in enumerate(world.factors)
    )
