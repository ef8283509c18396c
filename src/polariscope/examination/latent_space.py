"""A latent space to explore: codes of examples, the type of each variable, a projection to the plane, and a decoder.

The explorer shows a model with it. All that stays the same during exploration is computed once; decoding a code is then
one pass through the decoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from polariscope.examination.embedding import Shelf, embed
from polariscope.examination.examination import Variable
from polariscope.examination.variables import describe_variables
from polariscope.measures.factor_information import information_beyond_chance
from polariscope.representation import BATCH, Representation
from polariscope.subjects import Subject
from polariscope.subjects.doors import subject_and_world
from polariscope.worlds.given import Data
from polariscope.worlds.world import World, to_tensor


@dataclass(frozen=True, eq=False, repr=False)
class LatentSpace:
    """The codes of some examples of a world, and the model that encoded them."""

    subject: Subject
    world: World
    representation: Representation
    variables: list[Variable]
    """The most used first."""
    factor_information: NDArray[np.float64] | None
    """Share of each factor's entropy that each latent explains beyond chance, ``(latents, factors)``."""
    plane: NDArray[np.float32]
    """The means on their first two principal components, ``(n, 2)``."""
    explained: tuple[float, float]
    """Shares of the variance of the means that the two components explain."""
    bytes_of_images: bool
    """Whether observations are images in bytes; decoded observations then are, too."""

    @property
    def spread(self) -> NDArray[np.float64]:
        """Spread of each variable over the data: of its mean, and of its noise if it has any."""
        rep = self.representation
        noise = 0 if rep.var is None else rep.var.mean(axis=0)
        return np.sqrt(rep.mean.var(axis=0) + noise).astype(np.float64)

    def decoded(self, codes: ArrayLike) -> NDArray[Any]:
        """Observations of codes ``(n, latents)``, in the form of the data: bytes, or floats."""
        if self.subject.decodes is None:
            raise ValueError(
                self.subject.undecodable or f"{self.subject.name} does not decode, so it cannot show codes"
            )
        given = np.asarray(codes, np.float32)
        latents = self.representation.latents
        if given.ndim != 2 or given.shape[1] != latents or not len(given):
            raise ValueError(f"codes need {latents} numbers each, one row per code; got shape {given.shape}")
        if not np.isfinite(given).all():
            raise ValueError("a code contains NaN or infinity")
        with torch.inference_mode():
            parts = torch.from_numpy(given).split(BATCH)
            images = torch.cat([self.subject.generate(part, self.world.shape).cpu() for part in parts])
        if self.bytes_of_images:
            images = (images.clamp(0, 1) * 255).round().to(torch.uint8)
        return images.contiguous().numpy()

    def walks(
        self, start: ArrayLike, latents: Sequence[int], steps: int = 9, reach: float = 2.5
    ) -> NDArray[np.float32]:
        """Codes ``(latents, steps, d)`` along variables, on both sides of a code by ``reach`` times their spread."""
        origin = np.asarray(start, np.float32)
        if origin.shape != (self.representation.latents,):
            raise ValueError(
                f"a traversal starts at one code of {self.representation.latents} numbers; got {origin.shape}"
            )
        if any(not 0 <= number < len(origin) for number in latents):
            raise ValueError(f"latent variables are numbered 0 to {len(origin) - 1}; got {list(latents)}")
        if not 2 <= steps <= 99:
            raise ValueError(f"a traversal has 2 to 99 steps; got {steps}")
        codes = np.broadcast_to(origin, (len(latents), steps, len(origin))).copy()
        offsets = np.linspace(-reach, reach, steps)
        for row, number in enumerate(latents):
            codes[row, :, number] += offsets * self.spread[number]
        return codes


def latent_space(
    model: Any, data: Data | None = None, *, count: int = 2000, seed: int = 0, shelf: Shelf | None = None
) -> LatentSpace:
    """Encode some examples with a model, and infer the meaning of its decoder's output.

    The model is anything that :func:`~polariscope.subjects.as_subject` takes, the data anything that
    :func:`~polariscope.worlds.given.as_world` takes; the default for a run is its own data.

    >>> class Doubling(torch.nn.Module):
    ...     def encode(self, x):
    ...         return 2 * x, torch.full_like(x, -4.0)
    ...     def decode(self, z):
    ...         return z / 2
    >>> space = latent_space(Doubling(), np.random.default_rng(0).normal(size=(200, 3)))
    >>> space.decoded([[2.0, 4.0, -2.0]]).tolist(), space.walks([0, 0, 0], [1], steps=3).shape
    ([[1.0, 2.0, -1.0]], (1, 3, 3))
    """
    subject, world = subject_and_world(model, data)
    rep = embed(subject, world, shelf, count=count, seed=seed)
    assert rep.index is not None
    first = world.observe(rep.index[:BATCH])
    if subject.decodes is not None:
        factors = None if subject.prior is None or rep.factors is None else torch.from_numpy(rep.factors[:BATCH])
        subject = subject.understood(to_tensor(first), factors)
        if subject.module is not None:
            subject.module.eval()
    table = None
    if rep.factors is not None and rep.factor_info:
        codes = rep.mean if rep.sample is None else rep.sample
        table = information_beyond_chance(codes, rep.factors, seed=seed)
    plane, explained = _plane(rep.mean)
    return LatentSpace(
        subject,
        world,
        rep,
        describe_variables(rep, table),
        None if table is None else table.adjusted,
        plane,
        explained,
        first.dtype == np.uint8,
    )


def _plane(means: NDArray[np.float32]) -> tuple[NDArray[np.float32], tuple[float, float]]:
    """Means on their first two principal components, the sign of each such that its largest weight is positive."""
    centred = means - means.mean(axis=0)
    _, sizes, axes = np.linalg.svd(centred.astype(np.float64), full_matrices=False)
    shares = sizes**2 / max(float((sizes**2).sum()), np.finfo(float).tiny)
    axes = axes * np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)])[:, None]
    if len(axes) < 2:  # one variable only: the second direction is empty
        axes, shares = np.vstack([axes, np.zeros_like(axes)])[:2], np.append(shares, 0.0)
    return (centred @ axes[:2].T).astype(np.float32), (float(shares[0]), float(shares[1]))
