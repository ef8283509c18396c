"""Painted faces: their grid, and that each factor does to the pixels of every person what its name says."""

import numpy as np
import pytest
from scipy.spatial.distance import pdist

from polariscope.worlds.numbered_draws import uniform
from polariscope.worlds.renderers import faces
from polariscope.worlds.renderers.faces import FEATURES, Faces, Person
from polariscope.worlds.splits import Composition, Extrapolation, Interpolation
from polariscope.worlds.views.pairs import Pairs

SMILE, BLOND, AGE = 1, 2, 3
PERSONS = 60


@pytest.fixture(scope="module")
def world():
    return Faces()


def steps(world, factor, seed=0):
    """Images ``(persons, levels, 3, 64, 64)`` of persons in every level of one factor; the others are random."""
    factors = world.grid.sample(PERSONS, seed)
    factors[:, 0] = np.arange(PERSONS)
    factors = np.repeat(factors, world.levels, axis=0)
    factors[:, factor] = np.tile(np.arange(world.levels), PERSONS)
    return world.render(factors).reshape(PERSONS, world.levels, *world.shape).astype(float)


def at(length):
    """The pixel at a length from the middle of the picture, in halves of it."""
    return int((length + 1) * 32)


def crown(images):
    """Colour of the hair on the top of the head, ``(persons, levels, 3)``."""
    return images[..., at(-0.62) : at(-0.54), at(-0.08) : at(0.08)].mean((-2, -1))


def test_the_grid_is_all_levels_of_every_person(world):
    assert len(world) == 6**3 * 1000 == 216_000
    assert world.grid.names == ("person", "smile", "blond", "age")
    assert [factor.kind for factor in world.factors] == ["categorical", "ordinal", "ordinal", "ordinal"]
    assert len(Faces(persons=7)) == 6**3 * 7
    assert len(Faces(persons=7, levels=4)) == 4**3 * 7


@pytest.mark.spec("001a/DS-05")
def test_hair_becomes_brighter_the_blonder_it_is(world):
    brightness = crown(steps(world, BLOND)).mean(-1)
    assert (np.diff(brightness, axis=1) > 4).all()


@pytest.mark.spec("001a/DS-05")
def test_the_corners_of_the_mouth_rise_by_what_a_smile_says(world):
    images = steps(world, SMILE)[..., at(0.05) : at(0.55), [at(-0.14), 31, 32, at(0.14)]]
    # Lips have less green for their red than skin has, however dark a wrinkle makes both.
    share = images[:, :, 1] / np.maximum(images[:, :, 0], 1)
    skin = np.median(share, axis=(2, 3), keepdims=True)
    lips = np.clip(1 - share / skin - 0.08, 0, None)
    rows = np.arange(lips.shape[2])[:, None]
    height = -(lips * rows).sum(2) / lips.sum(2)  # of the lips in every column
    corner, middle = height[..., [0, 3]].mean(-1), height[..., [1, 2]].mean(-1)
    assert (np.diff(corner - middle, axis=1) > 0.25).all()
    assert (np.diff(corner, axis=1) > 0).all()
    mouth = Person.of(uniform(0, np.arange(PERSONS), FEATURES)).mouth[:, 0]
    rise = np.linspace(faces.FROWN, faces.SMILE, 6)
    expected = 32 * rise * (0.140625**2 - 0.015625**2) / mouth**2  # middles of the columns
    np.testing.assert_allclose(corner - middle, expected, atol=0.5)


@pytest.mark.spec("001a/DS-05")
def test_wrinkles_darken_and_hair_turns_grey_with_age(world):
    images = steps(world, AGE)
    cheeks = images[..., at(0.05) : at(0.25), at(0.1) : at(0.35)].mean((2, 3, 4))
    assert (np.diff(cheeks, axis=1) < 0).all()
    assert (cheeks[:, 0] / cheeks[:, -1] > 1.03).all()
    from_grey = np.abs(crown(images) - faces.GREY).sum(-1)
    assert (np.diff(from_grey, axis=1) < 0).all()
    np.testing.assert_allclose(from_grey[:, -1] / from_grey[:, 0], 1 - faces.GREYING, atol=0.05)


@pytest.mark.spec("001a/DS-05")
def test_a_smile_and_blond_hair_are_in_different_places(world):
    changed = [(np.ptp(steps(world, factor, seed=1), axis=1) > 0).any(1) for factor in (SMILE, BLOND)]
    assert not (changed[0] & changed[1]).any()
    assert all((places.sum((1, 2)) > 20).all() for places in changed)


@pytest.mark.parametrize("size", [32, 64])
def test_every_step_of_every_factor_changes_the_picture(size):
    world = Faces(size=size)
    for factor in (SMILE, BLOND, AGE):
        factors = np.repeat(world.grid.sample(40, factor), 2, axis=0)
        factors[::2, factor] = np.arange(40) % 5
        factors[1::2, factor] = factors[::2, factor] + 1
        images = world.render(factors)
        assert (images[::2] != images[1::2]).any((1, 2, 3)).all()


def test_persons_look_different_and_stay_who_they_are(world):
    factors = np.zeros((200, 4), int)
    factors[:, 0] = np.arange(200)
    images = world.render(factors)
    assert pdist(images.reshape(200, -1).astype(float), "cityblock").min() > 10_000
    np.testing.assert_array_equal(Faces(persons=5).render(factors[:5]), images[:5])
    assert (Faces(seed=1).render(factors[:5]) != images[:5]).any((1, 2, 3)).all()


@pytest.mark.spec("001a/DS-05")
@pytest.mark.parametrize(
    ("split", "train"), [(Interpolation(), 64_000), (Extrapolation(), 64_000), (Composition(), 91_000)], ids=str
)
def test_splits_have_the_published_sizes(world, split, train):
    assert len(split.parts(world).train) == train  # of compositions: all but (5/6)³


def test_a_person_stays_the_same_in_pairs():
    pairs = Pairs(Faces(size=32, persons=20))
    index = np.arange(len(pairs))
    moved = (pairs.factors_of(index) != pairs.other_factors_of(index)).mean(0)
    assert moved[0] == 0
    assert (moved[1:] > 0.5).all()


@pytest.mark.parametrize(
    ("wrong", "says"), [({"size": 8}, "got 8"), ({"persons": 0}, "got 0"), ({"levels": 1}, "got 1")], ids=str
)
def test_what_cannot_be_painted_is_refused(wrong, says):
    with pytest.raises(ValueError, match=says):
        Faces(**wrong)
