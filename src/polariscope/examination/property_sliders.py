"""A model that generates with a property, opened once so that a slider can ask it again and again.

Each row is a training example whose Z1 (everything but the property) is kept while the property moves. For each
generated observation there is the property that the model reads from it, and the true one if the world can compute it.
:func:`~polariscope.examination.generation.generate_with_property` is the examination with judge and intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from polariscope.examination.generation import decoded_with
from polariscope.examination.invariance import SplitCode, audited_numbers, encoded, split_code
from polariscope.subjects import Subject
from polariscope.subjects.doors import subject_and_world
from polariscope.worlds.given import Data
from polariscope.worlds.property_scale import PropertyScale, property_scale
from polariscope.worlds.targets import target_values
from polariscope.worlds.true_property import true_property
from polariscope.worlds.world import World, to_tensor

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Moved:
    """Observations with a wanted property."""

    observations: NDArray[Any]
    """``(rows, *shape)``: bytes if the data are bytes, else floats."""
    read: Floats
    """The property that the model reads from each, ``(rows, k)``."""
    true: Floats | None
    """The true property, if the world can compute it."""


@dataclass(frozen=True, eq=False, repr=False)
class PropertySliders:
    """A model whose code has a part for the property, with codes of training examples."""

    subject: Subject
    world: World
    scale: PropertyScale
    parts: SplitCode
    numbers: NDArray[np.int64]
    """Numbers of the training examples."""
    codes: Tensor
    readings: Floats
    """The property that the model reads from each example, ``(examples, k)``."""
    bytes_of_images: bool

    @property
    def limits(self) -> tuple[Floats, Floats]:
        """Lowest and highest property that the model reads from training examples; beyond lies the unreachable."""
        return self.readings.min(axis=0), self.readings.max(axis=0)

    @torch.no_grad()
    def moved(self, wanted: ArrayLike, rows: Sequence[int]) -> Moved:
        """Observations with the ``wanted`` property (one value for each, in its own unit) and the Z1 of ``rows``."""
        values = np.asarray(wanted, dtype=np.float64)
        if values.shape != (len(self.scale.names),) or not np.isfinite(values).all():
            raise ValueError(f"expected a number for each of {', '.join(self.scale.titles)}")
        if not rows or any(not 0 <= row < len(self.numbers) for row in rows):
            raise ValueError(f"the rows of examples are numbered 0 to {len(self.numbers) - 1}")
        with self.subject.at_rest():
            observations, _ = decoded_with(
                self.subject,
                self.parts,
                self.scale,
                np.repeat(values[None], len(rows), axis=0),
                self.codes[list(rows), self.parts.latents :],
                self.codes,
                self.readings,
                tuple(self.world.shape),
            )
            again = encoded(self.subject, observations)["mean"][:, : self.parts.latents]
            read = self.scale.shown(_array(self.parts.tells(again)))
        truth = true_property(self.world, observations.numpy())
        if self.bytes_of_images:
            observations = (observations.clamp(0, 1) * 255).round().to(torch.uint8)
        return Moved(observations.numpy(), read, None if truth is None else self.scale.shown(truth))


@torch.no_grad()
def property_sliders(model: Any, data: Data | None = None, *, count: int = 500, seed: int = 0) -> PropertySliders:
    """Open a model that was trained with a property (conditional-invariance, property-beta-vae or stib)."""
    subject, world = subject_and_world(model, data)
    scale = property_scale(world)
    numbers, _ = audited_numbers(subject, world, None, count, 8, seed)
    first = world.observe(numbers)
    known = to_tensor(first)
    subject = subject.understood(known[:64])
    if subject.decodes is None:
        raise TypeError(f"{subject.name} does not decode, so it cannot generate")
    with subject.at_rest():
        code = encoded(subject, known)["mean"]
        parts = split_code(subject, code, target_values(world, numbers), None, None, seed)
        readings = scale.shown(_array(parts.tells(code[:, : parts.latents])))
    return PropertySliders(subject, world, scale, parts, numbers, code, readings, first.dtype == np.uint8)


def _array(values: Any) -> Floats:
    return np.asarray(values.detach().double().cpu().numpy() if isinstance(values, Tensor) else values, np.float64)
