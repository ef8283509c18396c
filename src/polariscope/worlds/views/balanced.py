"""Balance: observations of rare classes are drawn more often in training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.registry import Settings
from polariscope.worlds.factors import numbered
from polariscope.worlds.targets import UNLABELLED, target_values, targets_of
from polariscope.worlds.view import View
from polariscope.worlds.world import World, worlds

AT_ONCE = 256


@worlds.register("balanced")
@dataclass(frozen=True)
class Balanced(View):
    """A world whose training draws observations of rare classes more often, so that classes come about equally often.

    An observation is drawn in proportion to the mean, over its labelled pixels (or its one class), of 1 / frequency of
    the class to the ``power``. Observations that have no label are not drawn. Held-out scores use the unchanged world.

    >>> from polariscope.worlds.world import ArrayWorld
    >>> world = Balanced(ArrayWorld(np.zeros((4, 8, 8), np.uint8), ["a", "a", "a", "b"]))
    >>> world.draw_weights(np.arange(4)).round(3).tolist()
    [0.167, 0.167, 0.167, 0.5]
    """

    examples: ClassVar[tuple[Settings, ...]] = ({"of": "mini-sprites"},)

    of: World
    power: float = 1.0
    """1 draws all classes equally often, as far as they lie in different observations; 0 draws as the world is."""

    def __post_init__(self) -> None:
        if not 0 <= self.power <= 4:
            raise ValueError(f"power is {self.power}: it is from 0 to 4")
        targets = targets_of(self.of)
        if len(targets) != 1 or targets[0].kind == "number":
            raise ValueError("balancing needs classes: use a world with one class per observation, or with masks")

    def draw_weights(self, index: ArrayLike) -> NDArray[np.float64]:
        """How likely each of the observations is drawn, as shares of 1."""
        numbers = numbered(index, len(self))
        classes = targets_of(self.of)[0].size
        counts = np.zeros((len(numbers), classes))
        for start in range(0, len(numbers), AT_ONCE):
            rows = slice(start, start + AT_ONCE)
            target = np.asarray(target_values(self.of, self.there(numbers[rows])))
            flat = target.reshape(len(target), -1)
            for value in range(classes):
                counts[rows, value] = (flat == value).sum(1)
            if flat.max(initial=0) >= classes or flat.min(initial=0) < UNLABELLED:
                raise ValueError(f"the world has a class {flat.max()} and names {classes}")
        total = counts.sum(0)
        if not total.sum():
            raise ValueError("no observation has a label to balance")
        rarity = np.where(total > 0, (total.sum() / np.maximum(total, 1)) ** self.power, 0.0)
        labelled = counts.sum(1)
        weights = np.where(labelled > 0, counts @ rarity / np.maximum(labelled, 1), 0.0)
        return np.asarray(weights / weights.sum(), np.float64)
