"""A world whose images are corrupted by noise, blur, weather or compression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from numpy.typing import ArrayLike, NDArray

from polariscope.registry import Settings
from polariscope.worlds.view import View
from polariscope.worlds.views.corruptions.suites import corrupt, suite_named
from polariscope.worlds.world import World, worlds

MOVING = ("elastic", "glass", "zoom", "shear", "scale", "rotate", "translate")
"""Corruptions that move pixels."""


@worlds.register("corrupted")
@dataclass(frozen=True)
class Corrupted(View):
    """A world under one common corruption of ImageNet-C or MNIST-C.

    The draws for an image depend only on its number, at every step: a corrupted world is a fixed data set like the
    published ones. Both images of a pair have the same draws.

    >>> from polariscope.worlds.renderers.digits import Digits
    >>> world = Corrupted(Digits(count=100), "fog", 1, "mnist-c")
    >>> world.shape, bool((world.observe([5])[0] == world.observe([4, 5])[1]).all())
    ((1, 28, 28), True)
    """

    examples: ClassVar[tuple[Settings, ...]] = (
        {"of": {"name": "digits", "count": 200}, "kind": "glass", "severity": 1, "suite": "mnist-c"},
        {"of": {"name": "shapes3d", "size": 16}, "kind": "snow", "seed": 3},
    )

    of: World
    kind: str = "gaussian"
    """In imagenet-c: gaussian, shot, impulse, defocus, glass, motion, zoom, snow, frost, fog, brightness, contrast,
    elastic, pixelate, jpeg; speckle, gaussian-blur, spatter, saturate. In mnist-c: shot, impulse, glass, motion, shear,
    scale, rotate, brightness, translate, stripe, fog, spatter, dotted-line, zigzag, canny."""
    severity: int = 3
    """Severity from 1 to 5; mnist-c has only 1."""
    suite: Literal["imagenet-c", "mnist-c"] = "imagenet-c"
    """The benchmark that the corruption is one of."""
    seed: int = 0
    """Seed of the random draws."""

    def __post_init__(self) -> None:
        suite_named(self.suite).at(self.kind, self.severity)

    @property
    def shape(self) -> tuple[int, ...]:
        inner = self.of.shape
        if len(inner) != 3:
            raise ValueError(f"corruptions need images, but this world has points of shape {inner}")
        return inner

    def shown_target(self, target: NDArray[Any], index: ArrayLike) -> NDArray[Any]:
        if self.kind in MOVING and target.ndim > 2:
            raise ValueError(f"the corruption {self.kind} moves pixels, but cannot move a mask with them: use another")
        return target

    def shown(self, observations: NDArray[Any], index: ArrayLike) -> NDArray[Any]:
        return corrupt(
            observations, self.kind, self.severity, suite=self.suite, seed=self.seed, index=self.there(index)
        )
