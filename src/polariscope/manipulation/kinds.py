"""The manipulations by name, and the one call most users need."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from polariscope.manipulation.generator import Learned as Learned
from polariscope.manipulation.local_structure import LocalStructure as LocalStructure
from polariscope.manipulation.manipulation import Manipulation, apply, manipulations
from polariscope.manipulation.noise import Noise as Noise
from polariscope.registry import nearest
from polariscope.training.progress import TellNamed
from polariscope.training.run import Progress
from polariscope.worlds.world import ArrayWorld, World


def build(kind: str, settings: Mapping[str, Any]) -> Manipulation:
    """The manipulation of a kind; an unknown setting is refused with the nearest known one."""
    made: Any = manipulations.get(kind)
    known = [field.name for field in dataclasses.fields(made)]
    for name in settings:
        if name not in known:
            raise ValueError(f"the manipulation {kind!r} has no setting {name!r}: {nearest(name, known)}")
    manipulation: Manipulation = made(**settings)
    return manipulation


def _silent(name: str, progress: Progress) -> None:
    """Ignore the progress."""


def manipulate(
    world: World, kind: str, *, seed: int = 0, count: int | None = None, tell: TellNamed = _silent, **settings: Any
) -> ArrayWorld:
    """The world, with its observations changed by a manipulation: ``noise``, ``local`` or ``learned``.

    ``settings`` are those of :class:`Noise`, :class:`LocalStructure` or :class:`Learned`.
    :func:`polariscope.manipulation.manipulation.apply` also returns the original world and the size of the change.

    >>> from polariscope.worlds.points.synthetic import Plane
    >>> world = manipulate(Plane(count=100), "local", epsilon=0.35, frequency=2.0)
    >>> len(world), world.shape, [factor.name for factor in world.factors]
    (100, (4,), ['w_0', 'w_1'])
    """
    return apply(world, build(kind, settings), kind, seed=seed, count=count, tell=tell).world
