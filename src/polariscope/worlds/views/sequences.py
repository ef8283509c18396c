"""Sequences: worlds whose observations are frames in order of time, and pairs of nearby frames."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.registry import Settings
from polariscope.worlds.factors import numbered
from polariscope.worlds.numbered_draws import uniform
from polariscope.worlds.splits import Parts, parted, splits
from polariscope.worlds.view import View, drawn, inside
from polariscope.worlds.world import World, worlds

Numbers = NDArray[np.int64]


@runtime_checkable
class Sequenced(Protocol):
    """A world whose frames are numbered sequence after sequence."""

    def last_of(self, index: ArrayLike) -> Numbers:
        """The number of the last frame of the sequence that each frame belongs to."""


@worlds.register("frame-pairs")
@dataclass(frozen=True)
class FramePairs(View):
    """Pairs of frames of a world of sequences: each frame but the last with one that is a few steps later.

    The step is uniform from 1 to ``furthest``, and ends with the sequence. Training draws it anew for every block of
    steps; otherwise the pairs are fixed. Klindt and others 2021, appendix D.5; Spec 001a, section 4.6.

    >>> from polariscope.worlds.renderers.masks import Walkers
    >>> world = FramePairs(Walkers(sequences=3), furthest=5)
    >>> steps = world.partners(np.arange(len(world))) - world.there(np.arange(len(world)))
    >>> int(steps.min()), int(steps.max())
    (1, 5)
    """

    examples: ClassVar[tuple[Settings, ...]] = ({"of": {"name": "masks", "sequences": 8}, "furthest": 5},)

    of: World
    furthest: int = 1
    """Frames that a pair is at most apart."""
    seed: int = 0
    """Makes the draws of one view differ from those of another."""
    moment: tuple[int, int] | None = field(default=None, init=False, repr=False)
    """Seed and time of the draws that are shown."""

    def __post_init__(self) -> None:
        if self.furthest < 1:
            raise ValueError(f"the frames of a pair must be at least 1 apart; got furthest={self.furthest}")
        if not isinstance(self.of, Sequenced):
            raise ValueError(
                f"pairs of frames need a world of sequences, but {type(self.of).__name__} has none: use masks, or a "
                "video of yours"
            )

    @cached_property
    def _last(self) -> Numbers:
        """For every frame of the world the last one of its sequence."""
        return self.of.last_of(np.arange(len(self.of)))  # type: ignore[attr-defined]

    @cached_property
    def _firsts(self) -> Numbers:
        """Frames that another one follows."""
        return np.flatnonzero(self._last > np.arange(len(self.of)))

    @cached_property
    def _next(self) -> Numbers:
        """For each frame, the next frame that training may use: itself, unless it is held out."""
        return np.arange(len(self.of))

    def __len__(self) -> int:
        return len(self._firsts)

    def there(self, index: ArrayLike) -> Numbers:
        return self._firsts[numbered(index, len(self))]

    @property
    def draws(self) -> bool:
        return True

    def drawn(self, seed: int, time: int) -> FramePairs:
        later = copy(self)
        vars(later).update(of=drawn(self.of, seed, time), moment=(seed, time))
        return later

    def confined(self, index: Numbers) -> FramePairs:
        """Some of the pairs, without any frame that is the first of another pair.

        A second frame that must not be seen gives way to the next that may: at the latest, the last of its sequence.
        """
        few = copy(self)
        seen = np.ones(len(self.of), dtype=bool)
        seen[self._firsts] = False
        seen[self.there(index)] = True
        frames = np.where(seen, np.arange(len(seen)), len(seen))
        vars(few).update(_firsts=self.there(index), _next=np.minimum.accumulate(frames[::-1])[::-1])
        return few

    def partners(self, index: ArrayLike) -> Numbers:
        """The number that the second frame of each pair has in the world of frames."""
        first = self.there(index)
        # With a moment or without: numpy takes zeros at the end of a seed for nothing, so the mark goes before it.
        entropy = (self.seed, *((1, *self.moment) if self.moment else (2,)))
        key = int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0])
        step = 1 + np.floor(self.furthest * uniform(key, first, 1)[:, 0]).astype(np.int64)
        return self._next[np.minimum(first + step, self._last[first])]

    def others_of(self, index: ArrayLike) -> tuple[NDArray[Any], ...]:
        return (self.of.observe(self.partners(index)),)

    def other_factors_of(self, index: ArrayLike) -> NDArray[Any]:
        """The factors of the second frame of each pair."""
        return self.of.factors_of(self.partners(index))


@splits.register("sequence")
@dataclass(frozen=True)
class SequenceSplit:
    """Hold out whole sequences: neighbouring frames are too similar to train on one and test on the other."""

    share: float = 0.1
    """Share of the sequences that is held out, at least one."""

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise ValueError(f"the share of sequences is {self.share}: it needs to lie between 0 and 1")

    def parts(self, world: World) -> Parts:
        sequenced = inside(world, Sequenced, np.arange(len(world)))
        if sequenced is None:
            raise ValueError("this split needs sequences, but the world has none: use masks, or your own video")
        last = sequenced[0].last_of(sequenced[1])
        sequences = np.unique(last)
        if len(sequences) < 2:
            raise ValueError("a split by sequences needs at least 2, and the world has 1")
        order = np.random.default_rng(len(sequences)).permutation(sequences)
        return parted(np.isin(last, order[: max(1, round(self.share * len(sequences)))]))


def transitions(world: World, furthest: int = 1, nearest: int | None = None) -> NDArray[np.float64]:
    """Changes of the factors ``(n, k)`` between frames of one sequence that are ``nearest`` to ``furthest`` apart.

    Without ``nearest`` they are from 1 apart; equal ones give the changes at one distance. Frames in between count too,
    so that a sequence of n frames has n − 1 changes at distance 1. Klindt and others 2021, appendix D.3.

    >>> from polariscope.worlds.renderers.masks import Walkers
    >>> transitions(Walkers(sequences=3)).shape[1]
    3
    """
    nearest = 1 if nearest is None else nearest
    if not 1 <= nearest <= furthest:
        raise ValueError(f"frames are from 1 apart, the nearest first; got {nearest} to {furthest}")
    if not isinstance(world, Sequenced):
        raise ValueError(f"transitions need a world of sequences, but {type(world).__name__} has none")
    values = world.factors_of(np.arange(len(world))).astype(np.float64)
    last = world.last_of(np.arange(len(world)))
    parts = []
    for gap in range(nearest, furthest + 1):
        first = np.flatnonzero(last >= np.arange(len(world)) + gap)
        parts.append(values[first + gap] - values[first])
    changes = np.concatenate(parts)
    if not len(changes):
        raise ValueError(f"no sequence has frames that are {nearest} to {furthest} apart: use nearer ones")
    return changes
