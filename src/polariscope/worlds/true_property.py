"""Worlds that can compute the property of any observation, also of generated ones.

A model that judges its own samples may be wrong in its favour. If the property can be computed, no model is needed
(Spec 000, section 6.4 and trap T1).
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from polariscope.worlds.view import View
from polariscope.worlds.world import World


@runtime_checkable
class KnowsProperty(Protocol):
    """A world whose target is a function of the observation that can be computed."""

    def property_of(self, observations: NDArray[Any]) -> NDArray[Any]:
        """Targets ``(n, columns)`` without noise, of any observations ``(n, *shape)``."""


def true_property(world: World, observations: NDArray[Any]) -> NDArray[Any] | None:
    """The property of observations as a world shows them, without noise; None where it cannot be computed.

    >>> from polariscope.worlds.points.level_sets import LevelSets
    >>> world = LevelSets(count=10, tested=2)
    >>> true_property(world, world.observe([0, 1, 2, 3])).shape
    (4, 3)
    """
    while isinstance(world, View) and not isinstance(world, KnowsProperty):
        changes = type(world).shown is not View.shown or type(world).observe is not View.observe
        changes = changes or type(world).shown_target is not View.shown_target
        if changes or hasattr(world, "target_of"):  # what is asked of the observation is another question there
            return None
        world = world.of
    return world.property_of(observations) if isinstance(world, KnowsProperty) else None
