"""Pairs: each observation with a second one, in which some of its factors have changed (Spec 001a, 4.2 and 4.3)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.registry import Settings
from polariscope.worlds.factors import Factor, FactorGrid
from polariscope.worlds.numbered_draws import uniform
from polariscope.worlds.view import View, drawn
from polariscope.worlds.world import World, worlds

Numbers = NDArray[np.int64]
Probabilities = NDArray[np.float64]
Scale = Literal["log-size", "one"]
TRIES = 10_000
"""Largest number of draws of a second observation. Most pairs need one draw; the last ones are few and cheap."""


@worlds.register("pairs")
@dataclass(frozen=True)
class Pairs(View):
    """Pairs of observations of a world, which differ in some of their factors.

    The numbered observations are the first of each pair; ``others_of`` returns the second. Training draws new second
    observations for every block of steps; otherwise they are fixed. In a part of a world, both observations are in that
    part.

    >>> from polariscope.worlds.renderers.mini_sprites import MiniSprites
    >>> world = Pairs(MiniSprites(), "lap")
    >>> first, second = world.factors_of([0, 700]), world.other_factors_of([0, 700])
    >>> (first != second).any(1).tolist(), (first != second)[:, 0].tolist()  # something moves, but never the shape
    ([True, True], [False, False])
    """

    examples: ClassVar[tuple[Settings, ...]] = tuple(
        {"of": "mini-sprites", "kind": kind} for kind in ("uni", "loc", "lap", "lap-nc")
    )

    of: World
    kind: Literal["uni", "one", "loc", "lap", "lap-nc"] = "lap"
    """uni: k factors get other values, k uniform from 1 to all but one; one: exactly one does; loc: as uni, but k is 1
    in every second pair, and the new value may be the old one; lap: ordered factors take Laplace steps, at least one of
    them; lap-nc: the same, but all may stay."""
    rate: float = 1.0
    """Rate of the Laplace steps: a larger rate makes smaller steps."""
    scale: Scale = "log-size"
    """Unit of a step, divided by the rate: the logarithm of a factor's size, as in the published pairs, or one
    position."""
    seed: int = 0
    """Makes the draws of one view differ from those of another."""
    moment: tuple[int, int] | None = field(default=None, init=False, repr=False)
    """Seed and time of the draws that are shown."""

    def __post_init__(self) -> None:
        if not 0 < self.rate < np.inf:
            raise ValueError(f"the rate of the steps is {self.rate}: it needs to be positive and finite")
        factors = self.of.factors
        if not factors or not all(factor.size for factor in factors):
            continuous = [factor.name for factor in factors if not factor.size]
            what = f"{', '.join(continuous)} of this one is continuous" if continuous else "this one has no factors"
            raise ValueError(f"pairs need a world with a grid of factors, but {what}: use sprites, or name factors")
        if not any(self._moves(factor) for factor in factors):
            raise ValueError("no factor of this world has a second value for a pair: lap changes ordered factors only")

    def _moves(self, factor: Factor) -> bool:
        """Categories have no neighbours to step to."""
        return factor.size > 1 and not (self.kind.startswith("lap") and factor.kind == "categorical")

    @property
    def draws(self) -> bool:
        return True

    def drawn(self, seed: int, time: int) -> Pairs:
        later = replace(self, of=drawn(self.of, seed, time))
        object.__setattr__(later, "moment", (seed, time))
        vars(later).update(_order=self._order, _steps=self._steps)  # the same at all times, and not to be found again
        return later

    def others_of(self, index: ArrayLike) -> tuple[NDArray[Any], ...]:
        return (self.of.observe(self.partners(index)),)

    def other_factors_of(self, index: ArrayLike) -> NDArray[Any]:
        """The factors of the second observation of each pair."""
        return self.of.factors_of(self.partners(index))

    def partners(self, index: ArrayLike) -> Numbers:
        """The number that the second observation of each pair has in the world, by the number of the first."""
        numbers = self.there(index)
        first = self.of.factors_of(numbers)
        partners = np.full(len(numbers), -1, dtype=np.int64)
        left = np.arange(len(numbers))
        for attempt in range(TRIES):
            left = left[partners[left] < 0]
            if not len(left):
                return partners
            # With a moment or without: numpy takes zeros at the end of a seed for nothing, so the mark goes before it.
            entropy = (self.seed, attempt, *((1, *self.moment) if self.moment else (2,)))
            key = int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0])
            u = uniform(key, numbers[left], 2 * len(self.factors) + 2)
            partners[left] = self._numbers_of(self._second(first[left], u))
        raise ValueError(
            f"observation {numbers[left[0]]} has no second one within its part of the world in {TRIES:,} draws: use a "
            "larger part, or lap-nc, whose pairs may be equal"
        )

    def _second(self, first: Numbers, u: Probabilities) -> Numbers:
        """Positions of the seconds, wherever on the grid, from uniform numbers ``(n, 2 k + 2)``."""
        if self.kind.startswith("lap"):
            return laplace_steps(first, self._steps, u, static=self.kind == "lap-nc")
        sizes = np.array([factor.size for factor in self.factors])
        return other_values(first, sizes, u, local=self.kind == "loc", most=1 if self.kind == "one" else None)

    @cached_property
    def _steps(self) -> tuple[Steps | None, ...]:
        """Of the factors that take any; the other kinds do not ask for them."""
        steps = self.kind.startswith("lap")
        return tuple(
            Steps.of(factor.size, self.rate, self.scale) if steps and self._moves(factor) else None
            for factor in self.factors
        )

    @cached_property
    def _order(self) -> tuple[Numbers, Numbers]:
        """Where on the whole grid the observations are, sorted, and whose place each is."""
        places = FactorGrid(self.factors).to_index(self.of.factors_of(np.arange(len(self.of))))
        order = np.argsort(places, kind="stable")
        places = places[order]
        if (places[1:] == places[:-1]).any():
            raise ValueError(
                "several observations of this world have the same factors, so pairs of factors do not determine pairs "
                "of observations: use a world with one for each combination"
            )
        return places, order

    def _numbers_of(self, factors: Numbers) -> Numbers:
        """The observations with these positions, -1 where the world has none."""
        places, order = self._order
        wanted = FactorGrid(self.factors).to_index(factors)
        at = np.searchsorted(places, wanted).clip(max=len(places) - 1)
        return np.where(places[at] == wanted, order[at], -1)


@dataclass(frozen=True, eq=False)
class Steps:
    """Transition probabilities of a factor between its positions, cumulated, ``(size, size)``."""

    any: Probabilities
    elsewhere: Probabilities
    """Given that it does not stay."""

    @classmethod
    def of(cls, size: int, rate: float, scale: Scale = "log-size") -> Steps:
        tables = (step_probabilities(size, rate, scale, stays).cumsum(1) for stays in (True, False))
        return cls(*(table / table[:, -1:] for table in tables))


def step_probabilities(size: int, rate: float = 1.0, scale: Scale = "log-size", stays: bool = True) -> Probabilities:
    """Probabilities of every position after every one, ``(size, size)``: Laplace, within the range and nowhere else.

    >>> step_probabilities(2).round(4).tolist(), step_probabilities(2, stays=False).tolist()
    ([[0.8089, 0.1911], [0.1911, 0.8089]], [[0.0, 1.0], [1.0, 0.0]])
    """
    position = np.arange(size)
    far = np.abs(position[:, None] - position)
    # Without the old value a step of 1 is the likeliest: counted from there, no rate makes all weights vanish.
    steps = far if stays else np.maximum(far - 1, 0)
    weights = np.exp(-rate / (np.log(size) if scale == "log-size" else 1.0) * steps)
    weights[(far == 0) & (not stays)] = 0.0
    return np.asarray(weights / weights.sum(1, keepdims=True))


def laplace_steps(first: Numbers, steps: tuple[Steps | None, ...], u: Probabilities, static: bool = False) -> Numbers:
    """A step of each factor that has any; where none has moved, unless that is allowed, one of them has to."""
    count = len(steps)
    moving = [i for i, own in enumerate(steps) if own]
    forced = np.asarray(moving)[np.floor(u[:, -1] * len(moving)).astype(np.int64)]
    second = first.copy()
    for i, own in enumerate(steps):
        if own:
            second[:, i] = _picked(own.any, first[:, i], u[:, i])
    resting = (second == first).all(1) & (not static)
    for i, own in enumerate(steps):
        if own:
            chosen = resting & (forced == i)
            second[chosen, i] = _picked(own.elsewhere, first[chosen, i], u[chosen, count + i])
    return second


def other_values(
    first: Numbers, sizes: Numbers, u: Probabilities, local: bool = False, most: int | None = None
) -> Numbers:
    """New values of k factors, k uniform from 1 to ``most``: all but one of those with several values, if not given.

    They are other values than the old ones. ``local`` pairs may keep them, and k is 1 in every second pair.
    """
    count = len(sizes)
    k = 1 + np.floor(u[:, -1] * (most or max(1, (sizes > 1).sum() - 1))).astype(np.int64)
    if local:
        k = np.where(u[:, -2] < 0.5, 1, k)
    ranks = np.where(sizes > 1, u[:, :count], 2.0).argsort(1).argsort(1)
    values = u[:, count : 2 * count]
    new = np.floor(values * sizes) if local else (first + 1 + np.floor(values * (sizes - 1))) % sizes
    return np.where(ranks < k[:, None], new.astype(np.int64), first)


def change_shares(first: ArrayLike, second: ArrayLike) -> Probabilities:
    """Share of pairs in which 0, 1, 2, ... of the factors ``(n, k)`` have changed.

    >>> change_shares([[0, 1], [0, 1]], [[0, 1], [2, 1]]).tolist()
    [0.5, 0.5, 0.0]
    """
    changed = np.asarray(first) != np.asarray(second)
    return np.bincount(changed.sum(1), minlength=changed.shape[1] + 1) / len(changed)


def _picked(cumulative: Probabilities, row: Numbers, u: Probabilities) -> Numbers:
    """A column of each row by its probability: all rows in one sorted line, a unit apart, need one search."""
    size = len(cumulative)
    line = (cumulative + np.arange(size)[:, None]).ravel()
    return np.minimum(np.searchsorted(line, row + u, side="right") - row * size, size - 1)
