"""Squares: pixels hold exactly the area that a square covers, and every step of a factor shows."""

import numpy as np
import pytest

from polariscope.worlds.renderers.squares import Squares


def test_an_image_is_as_bright_as_its_square_is_large() -> None:
    world = Squares()
    images = world.observe(np.arange(len(world)))
    assert images.shape == (4608, 1, 16, 16)
    area = images.sum((1, 2, 3)) / 255
    scale = world.factors_of(np.arange(len(world)))[:, 0]
    sides = np.array([2.4, 3.0857, 3.7714, 4.4571, 5.1429, 5.8286, 6.5143, 7.2])  # 0.15 to 0.45 of 16 pixels
    np.testing.assert_allclose(area, sides[scale] ** 2, atol=0.1)  # at most 32 borders rounded to 1/255


def test_a_square_lies_where_its_factors_say() -> None:
    """The centre of brightness is that of the square, up to what a pixel hides of where its light is."""
    world = Squares()
    index = np.arange(len(world))
    light = world.observe(index)[:, 0].astype(float)
    _, x, y = world.factors_of(index).T
    middle = np.arange(16) + 0.5
    total = light.sum((1, 2))
    places = np.linspace(3.6, 12.4, 24)
    np.testing.assert_allclose((light.sum(1) @ middle) / total, places[x], atol=0.06)
    np.testing.assert_allclose((light.sum(2) @ middle) / total, places[y], atol=0.06)


def test_no_two_images_are_alike_and_neighbours_differ_visibly() -> None:
    world = Squares()
    images = world.observe(np.arange(len(world)))
    assert len(np.unique(images.reshape(len(world), -1), axis=0)) == len(world) == 4608
    grid = images.reshape(8, 24, 24, -1).astype(int)
    for axis in range(3):
        change = np.abs(np.diff(grid, axis=axis)).sum(-1) / 255
        assert change.min() > 1, "a step moves more than a pixel's worth of light"


def test_borders_are_shares_of_pixels() -> None:
    """The smallest square at the first place: from 2.4 to 4.8 pixels."""
    (image,) = Squares().observe([0])[:, 0]
    covered = np.zeros(16)
    covered[2:5] = (0.6, 1, 0.8)
    np.testing.assert_allclose(image / 255, np.outer(covered, covered), atol=0.5 / 255 + 1e-9)


def test_other_sizes_keep_the_shape_of_the_world() -> None:
    world = Squares(size=32, scales=2, positions=3)
    assert len(world) == 18
    assert world.observe(np.arange(18)).sum((1, 2, 3)).max() / 255 == pytest.approx(14.4**2, abs=0.3)
    for settings, words in (({"size": 7}, "size of at least 8; got 7"), ({"scales": 0}, "scales of at least 1; got 0")):
        with pytest.raises(ValueError, match=words):
            Squares(**settings)
