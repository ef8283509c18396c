import numpy as np
import pytest

from polariscope.testing import check_world
from polariscope.worlds.mini_sprites import MiniSprites
from polariscope.worlds.splits import Part, random_split


@pytest.mark.spec("003/F3-055")
@pytest.mark.parametrize("count", [10, 101, 1296, 50_000])
def test_parts_are_disjoint_complete_and_of_the_shares(count: int) -> None:
    parts = random_split(count, seed=3)
    together = np.concatenate([parts.train, parts.evaluation, parts.test])
    np.testing.assert_array_equal(np.sort(together), np.arange(count))
    assert len(parts.evaluation) == len(parts.test) == round(0.1 * count)
    assert len(parts.train) == count - 2 * round(0.1 * count)


@pytest.mark.spec("003/F3-055")
def test_the_seed_decides_the_split() -> None:
    first, again, other = (random_split(1000, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.test, again.test)
    assert len(np.intersect1d(first.test, other.test)) < 30  # 10 by chance
    assert abs(first.train.mean() - 499.5) < 30
    assert (np.diff(first.train) < 0).any()


def test_other_shares_and_bad_ones() -> None:
    parts = random_split(10, shares=(0.5, 0.0, 0.5))
    assert (len(parts.train), len(parts.evaluation), len(parts.test)) == (5, 0, 5)
    with pytest.raises(ValueError, match="add up to 1"):
        random_split(10, shares=(0.5, 0.1, 0.1))
    with pytest.raises(ValueError, match="too few"):
        random_split(3)


def test_a_part_is_a_world_of_the_chosen_observations() -> None:
    world = MiniSprites()
    index = random_split(len(world)).evaluation
    part = Part(world, index)
    check_world(part)
    assert len(part) == 130
    np.testing.assert_array_equal(part.observe([0, 5]), world.observe(index[[0, 5]]))
    np.testing.assert_array_equal(part.factors_of([2]), world.factors_of(index[[2]]))
    with pytest.raises(ValueError, match="from 0 to 1295"):
        Part(world, np.array([1296]))
