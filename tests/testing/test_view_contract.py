"""Every registered view keeps its promises, drawn or not; one that breaks a promise is caught at it."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import pytest

from polariscope.registry import Registry
from polariscope.testing import check_view
from polariscope.testing.views import Marked
from polariscope.worlds import World, worlds
from polariscope.worlds.renderers.mini_sprites import MiniSprites
from polariscope.worlds.targets import target_values
from polariscope.worlds.view import View

VIEWS = [d for name in worlds.names() if issubclass(worlds.get(name), View) for d in worlds.examples(name)]


@pytest.mark.parametrize("description", VIEWS, ids=str)
def test_registered_views_keep_the_contract(description) -> None:
    check_view(worlds.build(description))


SPRITES = MiniSprites()


@dataclass(frozen=True)
class Turned(View):
    """Images upside down at every second time and number: a sound drawn view to break."""

    of: World
    moment: tuple[int, int] = field(default=(0, 0), init=False, repr=False)
    draws: ClassVar[bool] = True

    def drawn(self, seed, time):
        later = replace(self)
        object.__setattr__(later, "moment", (seed, time))
        return later

    def turns(self, index):
        return (self.there(index) + sum(self.moment)) % 2 == 1

    def shown(self, observations, index):
        return np.where(self.turns(index)[:, None, None, None], observations[:, :, ::-1], observations)

    def shown_target(self, target, index):
        return np.where(self.turns(index)[:, None, None], target[:, ::-1], target)


class LeavesTheMask(Turned):
    def shown_target(self, target, index):
        return target


class RefusesTheMask(Turned):
    def shown_target(self, target, index):
        raise ValueError("no masks")


class Cropped(Turned):
    """Cuts images, and not their masks."""

    @property
    def shape(self):
        return (self.of.shape[0], *(size - 2 for size in self.of.shape[1:]))

    def shown(self, observations, index):
        return super().shown(observations, index)[:, :, 2:, 2:]


class Restless(Turned):
    def shown(self, observations, index):
        return observations + np.random.default_rng().integers(0, 5, observations.shape, dtype=np.uint8)


class ByPosition(Turned):
    """Draws by the place in the batch, and not by the number."""

    def turns(self, index):
        return (np.arange(np.size(index)) + sum(self.moment)) % 2 == 1 if sum(self.moment) else super().turns(index)


class Still(Turned):
    def drawn(self, seed, time):
        return self


class SaysItIsStill(Turned):
    draws: ClassVar[bool] = False


class LosesItself(Turned):
    def drawn(self, seed, time):
        return self.of


class Shrinks(Turned):
    def __len__(self):
        return len(self.of) - self.moment[1]


class OtherFactors(Turned):
    def factors_of(self, index):
        return self.of.factors_of((self.there(index) + self.moment[1]) % len(self.of))


@pytest.mark.parametrize(
    ("view", "sentence"),
    [
        (LeavesTheMask, "LeavesTheMask moves pixels but not their masks: .* define shown_target"),
        (Cropped, r"masks of Cropped have shape \(32, 16, 16\): its images need \(32, 14, 14\)"),
        (Restless, "other observations for the same numbers again"),
        (ByPosition, "drawn with seed 0 at time 1 shows other observations when read again"),
        (Still, "declares that it draws, but shows the same at every time"),
        (SaysItIsStill, "declares that it does not draw, but shows other observations at another time"),
        (LosesItself, "is a MiniSprites, no longer a LosesItself"),
        (Shrinks, "has another size or shape"),
        (OtherFactors, "has other factors"),
        (Marked, "is not a view"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_broken_view_is_caught(view, sentence) -> None:
    check_view(Turned(SPRITES))
    with pytest.raises(AssertionError, match=sentence):
        check_view(view() if view is Marked else view(SPRITES))


def test_a_view_may_refuse_masks() -> None:
    check_view(RefusesTheMask(SPRITES))


def test_masks_lie_on_what_they_mark() -> None:
    """The world on which views are tried: bright pixels are exactly those of the mask."""
    world = Marked()
    numbers = np.arange(len(world))
    assert np.array_equal(world.observe(numbers)[:, 0] == 200, target_values(world, numbers) == 1)


def test_a_view_without_example_settings_is_told_how_to_give_some() -> None:
    things: Registry = Registry("thing")
    things.register("turned")(Turned)
    with pytest.raises(ValueError, match="the thing 'turned' has no default for of: give example settings in a class"):
        things.examples("turned")
