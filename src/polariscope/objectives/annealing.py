"""Compression that is relaxed during training: λ is multiplied by a factor at regular intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Annealing:
    """λ(t) = start · growth^n, where n counts the whole intervals of ``every`` steps from ``after`` to t.

    The reference implementation starts at 1.9 and multiplies by 1.03 every 1000 of 300,000 steps, from step 3000 on:

    >>> round(Annealing(1.9, 1.03, 1000, after=3000, until=300_000).at(300_000))
    12343
    """

    start: float = 1.0
    """λ of the first steps: larger values keep more information."""
    growth: float = 1.0
    """What λ is multiplied by each time; 1 keeps it."""
    every: int = 1000
    """Steps between two multiplications; an epoch of them follows the text."""
    after: int = 0
    """Steps before the first interval begins."""
    until: int = 300_000
    """Step from which λ stays as it is."""

    def __post_init__(self) -> None:
        if not 0 < self.start < math.inf:
            raise ValueError(f"lambda starts at {self.start}: it needs to be positive and finite")
        if not 0 < self.growth < math.inf:
            raise ValueError(f"the growth of lambda is {self.growth}: it needs to be positive and finite")
        for name, low in {"every": 1, "after": 0, "until": 0}.items():
            if getattr(self, name) < low:
                raise ValueError(f"{name} of lambda is {getattr(self, name)}: it needs to be at least {low}")
        if not math.isfinite(self._exponent(self.until) * math.log(self.growth)) or self.last > 1e30:
            raise ValueError(
                f"lambda grows to {self.last:.3g} by step {self.until:,}, too large to train with: lower growth "
                "or until"
            )

    @classmethod
    def between(cls, start: float, end: float, steps: int, stages: int = 100) -> Annealing:
        """λ from ``start`` to ``end`` in equal ratios over a training of ``steps``.

        >>> schedule = Annealing.between(2, 1000, 15_000)
        >>> [round(schedule.at(step)) for step in (0, 15_000)]
        [2, 1000]
        """
        every = max(1, steps // stages)
        return cls(start, (end / start) ** (1 / max(1, steps // every)), every, until=steps)

    def at(self, step: int) -> float:
        """λ at a step."""
        return self.start * self.growth ** self._exponent(step)

    @property
    def last(self) -> float:
        """λ after the whole schedule."""
        try:
            return self.at(self.until)
        except OverflowError:
            return math.inf

    def cut_short(self, steps: int) -> str:
        """A note about a training whose ``steps`` end before λ has grown to half of its last value; otherwise empty.

        >>> Annealing(1.9, 1.03, 1000, after=3000).cut_short(15_000).partition(";")[0]
        'lambda ends at 2.71 after these 15,000 steps'
        >>> Annealing.between(2, 1000, 15_000).cut_short(15_000)
        ''
        """
        if 2 * self.at(steps) >= self.last:
            return ""
        return (
            f"lambda ends at {self.at(steps):.3g} after these {steps:,} steps; its schedule ends at {self.last:.3g} "
            f"after {self.until:,}. A small lambda compresses: the code may not encode the property. Let it grow "
            "faster (every, after and until of lam)"
        )

    def _exponent(self, step: int) -> int:
        return max(0, (min(step, self.until) - self.after) // self.every)
