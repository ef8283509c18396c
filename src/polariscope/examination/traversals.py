"""Latent traversals: along one latent at a time, or over the plane of two.

A plane traversed along its axes shows a cartesian code (one factor per axis); traversed by radius and angle it shows a
polar code, in which a cyclic factor such as a hue is the angle (Spec 003, section E4.4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from polariscope.subjects import as_subject

Coordinates = Literal["cartesian", "polar"]
REACH = 2.5
"""Length of a traversal to each side, as published, in units of the prior."""


@torch.no_grad()
def traverse(
    model: nn.Module, start: ArrayLike, latents: Sequence[int] | None = None, reach: float = REACH, steps: int = 9
) -> NDArray[np.float32]:
    """Observations ``(latents, steps, *shape)`` decoded from ``start`` ± reach along each latent.

    With an odd number of steps the middle one of every row is the decoded start itself.
    """
    origin = _origin(start)
    chosen = list(range(len(origin))) if latents is None else _known(latents, len(origin))
    if steps < 2:
        raise ValueError(f"a traversal needs at least 2 steps; got {steps}")
    offsets = torch.linspace(-reach, reach, steps)
    codes = origin + offsets[None, :, None] * torch.eye(len(origin))[chosen][:, None, :]
    return _decoded(model, codes)


@torch.no_grad()
def traverse_plane(
    model: nn.Module,
    start: ArrayLike,
    latents: tuple[int, int],
    reach: float = REACH,
    steps: tuple[int, int] = (9, 9),
    coordinates: Coordinates = "cartesian",
) -> NDArray[np.float32]:
    """Observations ``(rows, columns, *shape)`` over the plane of two latents around ``start``.

    Cartesian: the first latent grows along the columns, the second along the rows, upwards as in a graph. Polar: the
    radius grows from 0 along the rows, and the angle goes once round along the columns (the last is one step before the
    first).
    """
    origin = _origin(start)
    a, b = _known(latents, len(origin))
    if a == b:
        raise ValueError(f"a plane needs two different latents; got {a} twice")
    rows, columns = steps
    if min(rows, columns) < 2:
        raise ValueError(f"a plane needs at least 2 steps each way; got {rows} and {columns}")
    if coordinates == "cartesian":
        second, first = torch.meshgrid(
            torch.linspace(reach, -reach, rows), torch.linspace(-reach, reach, columns), indexing="ij"
        )
    elif coordinates == "polar":
        radius, angle = torch.meshgrid(
            torch.linspace(0, reach, rows), 2 * torch.pi * torch.arange(columns) / columns, indexing="ij"
        )
        first, second = radius * angle.cos(), radius * angle.sin()
    else:
        raise ValueError(f"coordinates are 'cartesian' or 'polar'; got {coordinates!r}")
    codes = origin.repeat(rows, columns, 1)
    codes[..., a] += first
    codes[..., b] += second
    return _decoded(model, codes)


def _decoded(model: nn.Module, codes: Tensor) -> NDArray[np.float32]:
    subject = as_subject(model)
    if subject.meaning == "auto":  # without data there is nothing to tell logits by
        subject = replace(subject, meaning="values")
    with subject.at_rest():
        parts = [subject.generate(part) for part in codes.flatten(0, 1).split(256)]
    observations = torch.cat([part.cpu() for part in parts])
    return observations.reshape(*codes.shape[:2], *observations.shape[1:]).numpy()


def _origin(start: ArrayLike) -> Tensor:
    origin = torch.as_tensor(np.asarray(start), dtype=torch.float32)
    if origin.ndim != 1:
        raise ValueError(f"a traversal starts at one code of shape (latents,); got {tuple(origin.shape)}")
    return origin


def _known(latents: Sequence[int], count: int) -> list[int]:
    for latent in latents:
        if not 0 <= latent < count:
            raise ValueError(f"latents are numbered 0 to {count - 1}; got {latent}")
    return list(latents)
