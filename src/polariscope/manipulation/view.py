"""Manipulated data without a copy: observations are changed on demand."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.manipulation.folding import shifted
from polariscope.manipulation.manipulation import Fitted, Manipulation, check_world
from polariscope.manipulation.noise import Noise
from polariscope.registry import Settings
from polariscope.worlds.view import View
from polariscope.worlds.world import MadeAgain, World, worlds


@worlds.register("manipulated")
@dataclass(frozen=True)
class ManipulatedView(MadeAgain, View):
    """A world with a hand-made manipulation: noise, or local structure that is not aligned with the factors.

    It has the same observations as the world of :func:`~polariscope.manipulation.manipulation.apply`, but stores no
    copy of them.

    >>> from polariscope.worlds.points.synthetic import Plane
    >>> view = ManipulatedView(Plane(count=100))
    >>> bool((abs(view.observe([7]) - view.of.observe([7])) <= 0.1 + 1e-6).all())
    True
    """

    examples: ClassVar[tuple[Settings, ...]] = (
        {"of": "mini-sprites"},
        {"of": {"name": "plane", "count": 500}, "by": {"name": "local", "epsilon": 0.3}},
    )

    of: World
    by: Manipulation = field(default_factory=Noise)
    """The manipulation: noise or local."""
    seed: int = 0
    """Seed of the change, if the change is random."""

    def __post_init__(self) -> None:
        if getattr(self.by, "trains", False):
            raise ValueError(
                "a view needs a hand-made manipulation, and this one is learned: run "
                "'polariscope manipulate --kind learned' and train on the world.npz that it writes"
            )

    @cached_property
    def _fitted(self) -> Fitted:
        """Fitted on first use, so that describing a world does not read its file."""
        check_world(self.of, self.by)
        return self.by.fit(self.of, self.seed, lambda name, progress: None)

    def observe(self, index: ArrayLike) -> NDArray[Any]:
        wanted, places = np.unique(self.there(index), return_inverse=True)
        before, factors = self.of.observe(wanted), self.of.factors_of(wanted)
        # Changes are computed for consecutive observations, so the requested ones are split at gaps.
        rows = np.split(np.arange(len(wanted)), np.flatnonzero(np.diff(wanted) != 1) + 1)
        changes = [self._fitted.change(factors[part], int(wanted[part[0]])) for part in rows if len(part)]
        change = np.concatenate(changes) if changes else np.zeros(before.shape, np.float32)
        return shifted(before, change, self.by.epsilon)[places]

    def shown_target(self, target: NDArray[Any], index: ArrayLike) -> NDArray[Any]:
        """Masks stay the same: the change alters brightness and moves nothing."""
        return target

    def drawn(self, seed: int, time: int) -> ManipulatedView:
        """The change is the same at every step: an observation keeps its factors."""
        later = super().drawn(seed, time)
        later.__dict__["_fitted"] = self._fitted
        return later
