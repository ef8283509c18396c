"""Splits by place and time: train on some places and times, test on other places, later times, or both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from polariscope.registry import Settings, nearest
from polariscope.worlds.factors import Factor
from polariscope.worlds.splits import Parts, splits
from polariscope.worlds.world import World

Kind = Literal["spatial", "temporal", "spatio-temporal"]
PLACES, TIMES = ("tile", "place", "site", "region"), ("year", "date", "time")


@splits.register("transfer")
@dataclass(frozen=True)
class Transfer:
    """Train on some places at early times; test on other places (spatial), later times (temporal), or both (Samarin
    2022, section 4.3.3). The training part is the same for all tests."""

    examples: ClassVar[tuple[Settings, ...]] = ({"kind": "temporal", "place": "x", "time": "y"},)

    kind: Kind = "spatio-temporal"
    place: str = ""
    """Factor whose values are places; tile, place, site or region if not given."""
    time: str = ""
    """Ordered factor of the time; year, date or time if not given."""
    share: float = 0.5
    """Share of the places that is held out."""
    late: int = 1
    """Number of the last times that are held out."""

    def __post_init__(self) -> None:
        if not 0 < self.share < 1 or self.late < 1:
            raise ValueError(f"share is {self.share} and late {self.late}: between 0 and 1, and at least 1")

    def parts(self, world: World) -> Parts:
        factors = world.factors_of(np.arange(len(world)))
        place = factors[:, _named(world.factors, self.place, PLACES, "places")]
        time = factors[:, _named(world.factors, self.time, TIMES, "times")]
        places, times = np.unique(place), np.unique(time)
        if len(places) < 2 or len(times) <= self.late:
            raise ValueError(
                f"transfer needs at least 2 places and {self.late + 1} times; the world has {len(places)} and "
                f"{len(times)}"
            )
        kept = min(max(1, round(self.share * len(places))), len(places) - 1)
        elsewhere = np.isin(place, np.random.default_rng(len(places)).permutation(places)[:kept])
        later = np.isin(time, times[-self.late :])
        tested = {
            "spatial": elsewhere & ~later,
            "temporal": ~elsewhere & later,
            "spatio-temporal": elsewhere & later,
        }[self.kind]
        train, held_out = np.flatnonzero(~elsewhere & ~later), np.flatnonzero(tested)
        if not len(train) or not len(held_out):
            raise ValueError(f"transfer leaves {len(train)} observations to train on and {len(held_out)} to test on")
        return Parts(train, np.random.default_rng(len(world)).permutation(held_out))


def _named(factors: tuple[Factor, ...], name: str, usual: tuple[str, ...], what: str) -> int:
    known = [factor.name for factor in factors]
    if name and name not in known:
        raise ValueError(f"the world has no factor {name!r}: {nearest(name, known)}")
    chosen = name or next((word for word in usual if word in known), "")
    if not chosen:
        raise ValueError(f"transfer needs a factor of {what} ({', '.join(usual)}), and the world has none: name it")
    return known.index(chosen)
