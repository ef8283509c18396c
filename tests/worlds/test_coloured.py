"""Grey images in two colours: where the colours are, and that they belong to the number of an image."""

import colorsys

import numpy as np
import pytest

from polariscope.worlds.renderers.digits import Digits
from polariscope.worlds.renderers.shapes3d import Shapes3D
from polariscope.worlds.views.coloured import APART, DARKEST, Coloured


def test_white_and_black_become_the_two_colours_and_grey_their_mixture() -> None:
    grey, world = Digits(20), Coloured(Digits(20))
    numbers = np.arange(20)
    ink, paper = world.colours(numbers)
    share = grey.observe(numbers).astype(float) / 255
    expected = 255 * (share * ink[:, :, None, None] + (1 - share) * paper[:, :, None, None])
    np.testing.assert_allclose(world.observe(numbers), expected, atol=0.6)
    hues = np.array([[colorsys.rgb_to_hsv(*colour)[0] for colour in side] for side in (ink, paper)])
    apart = np.abs(hues[0] - hues[1])
    assert (np.minimum(apart, 1 - apart) >= APART - 1e-9).all()
    assert min(ink.max(1).min(), paper.max(1).min()) >= DARKEST - 1e-9
    assert 0.2 < np.mean(ink.max(1) > paper.max(1)) < 0.8, "neither is always the brighter one"


def test_colours_belong_to_the_number_and_the_seed() -> None:
    world = Coloured(Digits(20))
    np.testing.assert_array_equal(world.observe([7])[0], world.observe([3, 7])[1])
    assert (world.observe([7]) != Coloured(Digits(20), seed=1).observe([7])).any()
    assert len({tuple(colour) for colour in world.colours(np.arange(20))[0]}) == 20


def test_images_that_have_colours_are_refused() -> None:
    with pytest.raises(ValueError, match="given to grey images"):
        _ = Coloured(Shapes3D(size=16)).shape
