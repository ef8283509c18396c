"""Cars and toys: their grids, types that differ and stay what they are, and categories that pairs leave alone."""

import numpy as np
import pytest
from scipy.spatial.distance import pdist

from polariscope.worlds.numbered_draws import uniform
from polariscope.worlds.renderers.turntable import CAR_COLOURS, DRAWS, REACH, TOY_GREYS, Cars, Toys
from polariscope.worlds.views.pairs import Pairs

WORLDS = [Cars(size=32), Toys(size=32)]


def beside(world, images):
    """Pixels that show the background alone."""
    background = CAR_COLOURS[0] if isinstance(world, Cars) else TOY_GREYS[0]
    return (images == np.array(background, np.uint8)[:, None, None]).all(1)


@pytest.mark.spec("002/X07")
@pytest.mark.parametrize(
    ("name", "count", "names", "sizes", "categories"),
    [
        ("cars", 17_568, ("elevation", "azimuth", "object_type"), (4, 24, 183), {"object_type"}),
        (
            "toys",
            48_600,
            ("category", "instance", "elevation", "azimuth", "lighting"),
            (5, 10, 9, 18, 6),
            {"category", "instance"},
        ),
    ],
    ids=["cars", "toys"],
)
def test_the_grids_are_those_of_the_originals(name, count, names, sizes, categories):
    world = {"cars": Cars, "toys": Toys}[name]()
    assert len(world) == count
    assert world.grid.names == names
    assert world.grid.sizes == sizes
    assert {factor.name for factor in world.factors if factor.kind == "categorical"} == categories


@pytest.mark.spec("001a/DS-06")
@pytest.mark.parametrize(
    ("world", "shares"),
    [(Cars(), (0.5015, 0.8161, 0)), (Toys(), (0, 0, 0.7031, 0.7917, 0.6202))],
    ids=["cars", "toys"],
)
def test_categories_are_frozen_in_pairs_and_all_else_moves_as_often_as_published(world, shares):
    frozen = [k for k, factor in enumerate(world.factors) if factor.kind == "categorical"]
    pairs = Pairs(world, "lap-nc")
    index = np.arange(0, len(world), 3)
    moved = pairs.factors_of(index) != pairs.other_factors_of(index)
    assert not moved[:, frozen].any()
    np.testing.assert_allclose(moved.mean(0), shares, atol=0.02)
    forced = Pairs(world, "lap")
    moved = forced.factors_of(index) != forced.other_factors_of(index)
    assert not moved[:, frozen].any()
    assert moved.any(1).all()
    few = index[:8]
    assert (forced.observe(few) != forced.others_of(few)[0]).any((1, 2, 3)).all()
    free = Pairs(world, "uni")
    assert (free.factors_of(index) != free.other_factors_of(index))[:, frozen].any(0).all()


@pytest.mark.parametrize("world", WORLDS, ids=["cars", "toys"])
def test_types_look_different_and_stay_what_they_are(world):
    frozen = [factor.kind == "categorical" for factor in world.factors]
    every = np.indices([size if category else 1 for size, category in zip(world.grid.sizes, frozen, strict=True)])
    factors = every.reshape(len(frozen), -1).T
    factors[:, [factor.name == "azimuth" for factor in world.factors]] = 2
    images = world.render(factors).reshape(len(factors), -1).astype(float)
    assert pdist(images, "cityblock").min() > 500  # several pixels of full contrast
    fewer = type(world)(32, 4)
    some = [row for row in factors if (row < fewer.grid.sizes).all()]
    np.testing.assert_array_equal(fewer.render(some), world.render(some))
    assert (type(world)(32, seed=1).render(factors) != world.render(factors)).any((1, 2, 3)).all()


@pytest.mark.parametrize("world", WORLDS, ids=["cars", "toys"])
def test_every_step_of_every_factor_changes_the_picture_and_nothing_is_cut_off(world):
    rng = np.random.default_rng(0)
    before = world.grid.sample(160, rng)
    column = np.arange(160) % len(world.factors)
    after = before.copy()
    after[np.arange(160), column] += 1  # beyond the last value comes the first
    after %= world.grid.sizes
    one, other = world.render(before), world.render(after)
    changed = (one != other).any((1, 2, 3))
    assert changed.all(), (before[~changed], column[~changed])
    edge = np.ones((32, 32), bool)
    edge[1:-1, 1:-1] = False
    assert beside(world, one)[:, edge].all()
    assert not beside(world, one).all((1, 2)).any()


def test_a_car_is_as_long_as_its_type_says():
    world = Cars()
    types = np.arange(40)
    images = world.render(np.stack([0 * types, 0 * types, types], 1))
    columns = ~beside(world, images).all(1)
    length = 2 * (0.75 + 0.25 * uniform(0, types, DRAWS)[:, 0] + 0.04)  # lamps stand out a little
    np.testing.assert_allclose(columns.sum(1), length * 32 / REACH, atol=2)


def test_a_car_is_as_wide_to_the_left_as_to_the_right():
    world = Cars()
    factors = world.grid.sample(60, 1)
    mirrored = factors.copy()
    mirrored[:, 1] = (12 - factors[:, 1]) % 24  # half a turn less the azimuth: the other side, seen from behind
    one, other = (beside(world, world.render(some)) for some in (factors, mirrored))
    assert (one != other[:, :, ::-1]).mean() < 0.002
    assert (one != other).mean() > 0.02


def test_the_light_of_toys_comes_from_the_left_first_and_from_the_right_last():
    world = Toys(size=32)
    factors = world.grid.sample(60, 2)
    balance = []
    for lighting in range(6):
        factors[:, 4] = lighting
        images = world.render(factors).astype(float)
        toy = ~beside(world, images)
        left, right = (
            (images[:, 0] * half * toy).sum((1, 2)) / (half * toy).sum((1, 2))
            for half in (np.arange(32) < 16, np.arange(32) >= 16)
        )
        balance.append((left - right).mean())
    assert (np.diff(balance) < 0).all()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Cars(size=8), "got 8"),
        (lambda: Cars(types=0), "at least one of types, got 0"),
        (lambda: Toys(size=300), "got 300"),
        (lambda: Toys(instances=0), "at least one of instances, got 0"),
    ],
)
def test_what_cannot_be_drawn_is_refused(make, says):
    with pytest.raises(ValueError, match=says):
        make()
