"""How much work goes into a bound."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class BoundSettings:
    """Settings of all bounds; each kind uses some of them."""

    box: bool = True
    """Whether changes are confined to pixels from 0 to 1, which makes bounds larger where a pixel is at its end."""
    seeds: int = 10
    """Number of independent searches; the smallest result counts (estimated bounds)."""
    candidates: int = 2000
    """Codes of each class that a search starts from (estimated bounds)."""
    steps: int = 50
    """Gradient steps of inference at the beginning of a search (estimated bounds)."""
    rounds: int = 6
    """How often the worst change is computed and codes are improved for it (estimated bounds)."""
    descent: int = 15
    """Gradient steps of a round (estimated bounds)."""
    neighbours: int = 4
    """Examples of the true class that are tried; the best bound counts (nearest neighbour)."""
    first: int = 100
    """Votes by which the class is chosen that is then certified (randomised smoothing)."""
    draws: int = 10_000
    """Votes by which its probability is bounded (randomised smoothing)."""
    alpha: float = 0.001
    """Probability that the bound of an image is wrong (randomised smoothing)."""

    def __post_init__(self) -> None:
        for name in ("seeds", "candidates", "rounds", "neighbours", "first", "draws"):
            if getattr(self, name) < 1:
                raise ValueError(f"bounds: {name} is {getattr(self, name)}; it needs to be at least 1")
        if min(self.steps, self.descent) < 0 or not 0 < self.alpha < 1:
            raise ValueError("bounds: steps and descent are at least 0, and alpha is between 0 and 1")

    def times(self, factor: int) -> BoundSettings:
        """The same with a multiple of the budget of each search."""
        return replace(
            self,
            candidates=factor * self.candidates,
            steps=factor * self.steps,
            descent=factor * self.descent,
            neighbours=factor * self.neighbours,
            draws=factor * self.draws,
        )
