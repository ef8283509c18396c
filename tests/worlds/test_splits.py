"""Splits: disjoint, complete, and of the published sizes."""

import numpy as np
import pytest

from polariscope.testing import check_world
from polariscope.worlds import ArrayWorld
from polariscope.worlds.mini_sprites import MiniSprites
from polariscope.worlds.shapes3d import Shapes3D
from polariscope.worlds.splits import (
    Chosen,
    Composition,
    Extrapolation,
    FileSplit,
    GroupSplit,
    Interpolation,
    Part,
    RandomSplit,
    splits,
    three_parts,
    usual_values,
)
from polariscope.worlds.sprites import Sprites


@pytest.mark.spec("003/F3-055")
@pytest.mark.parametrize("count", [10, 101, 1296, 50_000])
def test_three_parts_are_disjoint_complete_and_of_the_shares(count: int) -> None:
    train, evaluation, test = three_parts(count, seed=3)
    np.testing.assert_array_equal(np.sort(np.concatenate([train, evaluation, test])), np.arange(count))
    assert len(evaluation) == len(test) == round(0.1 * count)
    assert len(train) == count - 2 * round(0.1 * count)


@pytest.mark.spec("003/F3-055")
def test_the_seed_decides_the_three_parts() -> None:
    first, again, other = (three_parts(1000, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first[2], again[2])
    assert len(np.intersect1d(first[2], other[2])) < 30  # 10 by chance
    assert abs(first[0].mean() - 499.5) < 30
    assert (np.diff(first[0]) < 0).any()


def test_other_shares_and_bad_ones() -> None:
    assert [len(part) for part in three_parts(10, shares=(0.5, 0.0, 0.5))] == [5, 0, 5]
    with pytest.raises(ValueError, match="add up to 1"):
        three_parts(10, shares=(0.5, 0.1, 0.1))
    with pytest.raises(ValueError, match="too few"):
        three_parts(3)


@pytest.mark.spec("001a/IG-01")
@pytest.mark.parametrize(
    ("world", "split", "train"),
    [
        (Sprites(), Interpolation(), 240_000),
        (Sprites(), Extrapolation(), 240_000),
        (Sprites(), Composition(), 192_312),
        (Shapes3D(), Interpolation(), 147_456),
        (Shapes3D(), Extrapolation(), 147_456),
        (Shapes3D(), Composition(), 153_408),
    ],
    ids=str,
)
def test_splits_by_values_are_disjoint_complete_and_of_the_published_sizes(world, split, train) -> None:
    parts = split.parts(world)
    assert len(parts.train) == train
    together = np.concatenate([parts.train, parts.held_out])
    assert np.array_equal(np.sort(together), np.arange(len(world)))


def test_the_usual_values_are_those_published() -> None:
    inside, end, first = (
        usual_values(Sprites().factors, kind) for kind in ("interpolation", "extrapolation", "composition")
    )
    assert inside == {
        "scale": (1, 4),
        "orientation": (2, 7, 12, 17, 22, 27, 32, 37),
        "x": (2, 7, 11, 15, 20, 24, 29),
        "y": (2, 7, 11, 15, 20, 24, 29),
    }
    assert end["x"] == tuple(range(25, 32))
    assert end["orientation"] == tuple(range(32, 40))
    assert first == {"orientation": (0, 1, 2, 3), "x": (0, 1, 2), "y": (0, 1, 2)}


@pytest.mark.spec("001a/IG-03")
@pytest.mark.parametrize("world", [Sprites(size=16), Shapes3D(size=16), MiniSprites()], ids=str)
def test_composition_shows_every_single_value_in_training(world) -> None:
    parts = Composition().parts(world)
    seen = world.factors_of(parts.train)
    for column, factor in zip(seen.T, world.factors, strict=True):
        assert set(column) == set(range(factor.size)), factor.name


def test_values_can_be_named_and_wrong_ones_are_refused() -> None:
    world = MiniSprites()
    parts = Extrapolation({"x": (2, 3)}).parts(world)
    x = [factor.name for factor in world.factors].index("x")
    assert set(world.factors_of(parts.held_out)[:, x]) == {2, 3}
    assert not {2, 3} & set(world.factors_of(parts.train)[:, x])
    with pytest.raises(ValueError, match="no factor 'z'"):
        Extrapolation({"z": (1,)}).parts(world)
    with pytest.raises(ValueError, match="the split has 99"):
        Interpolation({"x": (99,)}).parts(world)
    with pytest.raises(ValueError, match="at least three values"):
        Extrapolation().parts(ArrayWorld(np.eye(4), np.arange(4) % 2))
    with pytest.raises(ValueError, match="0 observations to train on"):
        Extrapolation({"x": tuple(range(world.factors[x].size))}).parts(world)


def test_a_group_stays_together() -> None:
    people = np.repeat(np.arange(20), 5)
    world = ArrayWorld(np.arange(200.0).reshape(100, 2), people, ("person",))
    parts = GroupSplit(share=0.2).parts(world)
    assert len(parts.held_out) == 20
    assert not set(people[parts.train]) & set(people[parts.held_out])


def test_a_file_says_what_is_kept(tmp_path) -> None:
    world = MiniSprites()
    (tmp_path / "kept.txt").write_text("3\n7\n")
    np.save(tmp_path / "kept.npy", np.array([3, 7]))
    for name in ("kept.txt", "kept.npy"):
        assert sorted(FileSplit(str(tmp_path / name)).parts(world).held_out) == [3, 7]
    with pytest.raises(ValueError, match="there is no file"):
        FileSplit(str(tmp_path / "none.txt")).parts(world)
    (tmp_path / "words.txt").write_text("three")
    with pytest.raises(ValueError, match="whole numbers"):
        FileSplit(str(tmp_path / "words.txt")).parts(world)


@pytest.mark.parametrize(
    "split", [RandomSplit(0.3), Extrapolation({"x": (1,)}), GroupSplit("x"), FileSplit("a.npy")], ids=str
)
def test_a_split_comes_back_from_its_description(split) -> None:
    assert splits.build(splits.describe(split)) == split


def test_parts_are_worlds() -> None:
    world = MiniSprites()
    train, held_out = Part(world, side="train"), Part(world)
    check_world(held_out)
    parts = RandomSplit().parts(world)
    np.testing.assert_array_equal(held_out.observe([0, 5]), world.observe(parts.held_out[[0, 5]]))
    np.testing.assert_array_equal(train.factors_of([2]), world.factors_of(parts.train[[2]]))
    check_world(Chosen(world, parts.held_out))
    with pytest.raises(ValueError, match="from 0 to 1295"):
        Chosen(world, np.array([1296]))
    with pytest.raises(ValueError, match="keeps nothing"):
        Part(world, RandomSplit(0.0))
