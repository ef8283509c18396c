"""Splits: disjoint, complete, and of the published sizes."""

import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from polariscope.testing import check_world
from polariscope.worlds import ArrayWorld, Factor
from polariscope.worlds.readers.files import File
from polariscope.worlds.renderers.arm3d import Arm3D
from polariscope.worlds.renderers.faces import Faces
from polariscope.worlds.renderers.mini_sprites import MiniSprites
from polariscope.worlds.renderers.shapes3d import Shapes3D
from polariscope.worlds.renderers.sprites import Sprites
from polariscope.worlds.splits import (
    Chosen,
    Composition,
    Extrapolation,
    FileSplit,
    GroupSplit,
    Interpolation,
    RandomSplit,
    SplitPart,
    confined,
    one_ood,
    splits,
    three_parts,
    usual_values,
)
from polariscope.worlds.views.pairs import Pairs

SPEC = Path(__file__).resolve().parents[2] / "docs" / "spec" / "001a-slowvae-and-indomain-generalization.md"


@dataclass(frozen=True, eq=False)
class Table:
    """A world of factors alone: splits look at nothing else."""

    table: np.ndarray
    sizes: tuple[int, ...]

    @property
    def factors(self):
        return tuple(Factor(f"f{i}", size) for i, size in enumerate(self.sizes))

    def __len__(self):
        return len(self.table)

    def factors_of(self, index):
        return self.table[index]


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
    ("world", "kind", "train"),
    [
        (Sprites(), "interpolation", 240_000),
        (Sprites(), "extrapolation", 240_000),
        (Sprites(), "composition", 192_312),
        (Shapes3D(), "interpolation", 147_456),
        (Shapes3D(), "extrapolation", 147_456),
        (Shapes3D(), "composition", 153_408),
    ],
    ids=str,
)
def test_splits_are_disjoint_complete_and_of_the_published_sizes(world, kind, train) -> None:
    random = RandomSplit(1 - train / len(world))
    for split in (splits.build(kind), random):
        parts = split.parts(world)
        assert len(parts.train) == train
        together = np.concatenate([parts.train, parts.held_out])
        assert np.array_equal(np.sort(together), np.arange(len(world)))


@pytest.mark.parametrize(
    "split",
    [
        Interpolation({"f0": (3, 5)}),
        Extrapolation({"f0": (8, 9)}),
        Composition({"f0": (0,), "f1": (0,)}),
        GroupSplit("f0", 0.3),
        RandomSplit(0.4),
    ],
    ids=lambda split: type(split).__name__,
)
def test_the_first_of_what_is_kept_are_a_fair_sample_of_it(split) -> None:
    """An evaluation looks at no more than those: in the order of the grid they would all have the first values."""
    world = Table(np.stack(np.unravel_index(np.arange(10_000), (10, 10, 100)), axis=1), (10, 10, 100))
    kept = split.parts(world).held_out
    again = split.parts(world).held_out
    assert np.array_equal(kept, again), "the same for every run"
    few, all_of_it = world.factors_of(kept[:300]), world.factors_of(kept)
    off = np.abs(few.mean(0) - all_of_it.mean(0))
    assert (off <= 4 * all_of_it.std(0) / np.sqrt(300)).all()
    assert np.abs(few.std(0) - all_of_it.std(0)).max() <= 0.15 * all_of_it.std(0).max()


@pytest.mark.parametrize("factors", [1, 2, 3, 4])
@pytest.mark.parametrize("size", [5, 6, 9, 12])
def test_values_to_interpolate_are_spread_evenly_over_the_inside(size: int, factors: int) -> None:
    grid = (size,) * factors
    world = Table(np.stack(np.unravel_index(np.arange(size**factors), grid), axis=1), grid)
    for positions in usual_values(world, "interpolation").values():
        assert 0 < min(positions) <= max(positions) < size - 1, "the ends of the range are trained on"
        gaps = np.diff(positions)
        assert np.ptp(gaps) <= 1 if len(gaps) else True, positions
        assert abs(np.mean(positions) - (size - 1) / 2) <= 0.5, positions
        at_the_ends = positions[0], size - 1 - positions[-1]
        assert max(at_the_ends) <= (size - 2) / len(positions) / 2 + 1.5, positions


NAMES = {
    "dSprites": {},
    "Shapes3D": {
        "floor": "floor_hue",
        "wall": "wall_hue",
        "object colour": "object_hue",
        "size": "scale",
        "azimuth": "orientation",
    },
    "MPI3D": {
        "colour": "object_colour",
        "height": "camera_height",
        "background": "background_colour",
        "x-axis": "horizontal_axis",
        "y-axis": "vertical_axis",
    },
    "CelebGlow": {},
}
"""Ours for the specification's names of factors, where they differ."""


def listed(text: str) -> tuple[int, ...]:
    """``1,4`` and ``32…39`` and ``0..3`` as positions."""
    if between := re.fullmatch(r"(\d+)(?:…|\.\.)(\d+)", text):
        return tuple(range(int(between[1]), int(between[2]) + 1))
    return tuple(int(number) for number in text.split(","))


def printed() -> dict[str, dict[str, dict[str, tuple[int, ...]]]]:
    """Tables 2 and 3 of the specification: kind, data set, factor, positions."""
    text = SPEC.read_text(encoding="utf-8")
    result = {kind: {name: {} for name in NAMES} for kind in ("interpolation", "extrapolation", "composition")}
    rows = re.search(r"Table 2 \(exclusive test values\)\n\n.*\n.*\n((?:\|.*\n)+)", text)[1]
    data = ""
    for row in rows.splitlines():
        named, factors, inside, end = (cell.strip() for cell in row.strip("|").split("|"))
        data = named or data
        for factor in factors.split(", "):
            # "floor, wall, object colour" are three colours.
            name = NAMES[data].get(factor, factor)
            result["interpolation"][data][name], result["extrapolation"][data][name] = listed(inside), listed(end)
    line = re.search(r"Table 3 \(exclusive train values, composition\): (.*)", text)[1]
    for data, part in re.findall(r"(\w+) ((?:[\w -]+ \{[\d.]+\}(?:, )?)+)", line):
        for factor, positions in re.findall(r"([\w -]+?) \{([\d.]+)\}", part):
            factor = factor.strip()
            result["composition"][data][NAMES[data].get(factor, factor)] = listed(positions)
    return result


@pytest.mark.spec("001a/IG-02")
@pytest.mark.parametrize("kind", ["interpolation", "extrapolation", "composition"])
@pytest.mark.parametrize(
    ("data", "world"),
    [("dSprites", Sprites()), ("Shapes3D", Shapes3D()), ("MPI3D", Arm3D()), ("CelebGlow", Faces())],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_usual_values_are_those_printed(data, world, kind) -> None:
    if (data, kind) == ("CelebGlow", "composition"):  # which is not printed
        assert usual_values(world, kind) == {"smile": (0,), "blond": (0,), "age": (0,)}
    else:
        want = printed()[kind][data]
        assert len(want) >= 2
        assert usual_values(world, kind) == want


def test_quarter_turns_scale_the_printed_values() -> None:
    """Spec 001a, section 8.5: {8, 9}, {2, 7} and {0}, at the fractions of the full circle."""
    world = Sprites(unambiguous=True)
    kinds = {"extrapolation": (8, 9), "interpolation": (2, 7), "composition": (0,)}
    for kind, turns in kinds.items():
        values = usual_values(world, kind)
        assert values.pop("orientation") == turns
        assert values == {k: v for k, v in usual_values(Sprites(), kind).items() if k != "orientation"}
    assert Extrapolation().parts(world).share == pytest.approx(0.325521, abs=1e-6)


SPLITS = (Interpolation(), Extrapolation(), Composition())


@pytest.mark.spec("001a/IG-04")
@pytest.mark.parametrize(
    "sizes", [(6, 6), (3, 7, 20), (12, 50), (10, 10, 10), (4, 4, 4, 9, 30), (3, 3, 3, 3, 7, 9), (2, 8, 25)], ids=str
)
@pytest.mark.parametrize("split", SPLITS, ids=lambda split: type(split).__name__)
def test_any_grid_is_split_at_three_tenths(sizes, split) -> None:
    world = Table(np.stack(np.unravel_index(np.arange(math.prod(sizes)), sizes), 1), sizes)
    assert abs(split.parts(world).share - 0.3) <= 0.05
    if isinstance(split, Composition):
        parts = split.parts(world)
        assert all(
            len(np.unique(column)) == size for column, size in zip(world.table[parts.train].T, sizes, strict=True)
        )
    if isinstance(split, Interpolation):
        for name, positions in usual_values(world, "interpolation").items():
            size = sizes[int(name[1:])]
            assert set(positions) <= set(range(1, size - 1)), "the ends are seen"
            assert len(set(positions)) == len(positions)


@pytest.mark.spec("001a/IG-04")
def test_uneven_data_in_a_file_is_split_at_three_tenths_of_what_it_has(tmp_path) -> None:
    """Low values are much more frequent: shares of the grid are not shares of the file."""
    rng = np.random.default_rng(0)
    labels = np.minimum(rng.geometric((0.3, 0.2), size=(6000, 2)), (8, 12)) - 1
    np.savez(tmp_path / "own.npz", x=rng.integers(0, 255, (6000, 4, 4), dtype=np.uint8), labels=labels)
    world = File(str(tmp_path / "own.npz"))
    assert [factor.size for factor in world.factors] == [8, 12]
    for split in (Interpolation(), Extrapolation()):
        assert abs(split.parts(world).share - 0.3) <= 0.05
    # The commonest value alone is 30 % of either column: with one value of both, no composition is below half.
    assert Composition().parts(world).share == pytest.approx(1 - 0.7 * 0.8, abs=0.02)


COUNTS = {
    "dSprites": (Sprites(), {"scale": 120_000, "orientation": 60_000, "x": 67_200, "y": 67_200}),
    "Shapes3D": (
        Shapes3D(),
        {"floor_hue": 36_864, "wall_hue": 36_864, "object_hue": 36_864, "scale": 49_152, "orientation": 36_864},
    ),
    "MPI3D": (
        Arm3D(),
        {
            "object_colour": 62_208,
            "camera_height": 155_520,
            "background_colour": 155_520,
            "horizontal_axis": 34_560,
            "vertical_axis": 34_560,
        },
    ),
    "CelebGlow": (Faces(), {"smile": 32_000, "blond": 32_000, "age": 32_000}),
}
"""Spec 001a, section 8.4."""


@pytest.mark.spec("001a/IG-05")
@pytest.mark.parametrize("data", COUNTS)
def test_one_new_factor_as_often_as_published(data) -> None:
    world, counts = COUNTS[data]
    names = [factor.name for factor in world.factors]
    for split in (Interpolation(), Extrapolation()):
        result = one_ood(world, split)
        assert {names[c]: n for c, n in enumerate(np.bincount(result.factor)) if n} == counts
    few = slice(None, None, 997)  # the numbers are those of observations with that factor's kept values, and no other's
    table = world.factors_of(result.numbers[few])
    for column, name in enumerate(names):
        kept = np.isin(table[:, column], usual_values(world, "extrapolation").get(name, ()))
        np.testing.assert_array_equal(kept, result.factor[few] == column)


@pytest.mark.spec("001a/IG-05")
def test_in_compositions_no_value_is_new() -> None:
    for world in (Sprites(), Faces(persons=20), MiniSprites()):
        assert len(one_ood(world, Composition()).numbers) == 0


@pytest.mark.spec("001a/IG-21")
@pytest.mark.parametrize("kind", ["uni", "one", "loc", "lap", "lap-nc"])
@pytest.mark.parametrize("split", [Composition(), Extrapolation()], ids=lambda split: type(split).__name__)
def test_pairs_of_sprites_never_leave_the_training_part(split, kind) -> None:
    world = Sprites()
    train = split.parts(world).train
    trained = np.isin(np.arange(len(world)), train)
    asked = np.arange(0, len(train), 191)
    few = confined(Pairs(world, kind), train)
    seconds = few.of.there(few.partners(asked))
    assert trained[few.of.there(few.there(asked))].all()
    assert trained[seconds].all()
    # Without the confinement they do leave it: what is proved is not the pairs' own doing.
    assert not trained[Pairs(world, kind).partners(train[asked])].all()


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


def test_splits_that_cannot_be_are_refused_in_a_sentence() -> None:
    world = MiniSprites()
    with pytest.raises(ValueError, match="composition leaves no training observation with 'x' at position 1,"):
        Composition({"x": (0,)}).parts(world)
    without = Chosen(world, np.flatnonzero(world.factors_of(np.arange(len(world)))[:, 3] != 4))
    with pytest.raises(ValueError, match="holds out 'x' at position 4, but there is no such observation"):
        Extrapolation({"x": (4, 5)}).parts(without)
    # x at 2 only with y at 5, which is kept: x at 2 is not trained on although it should be.
    table = world.factors_of(np.arange(len(world)))
    bound = Chosen(world, np.flatnonzero((table[:, 3] != 2) | (table[:, 4] == 5)))
    with pytest.raises(ValueError, match="extrapolation leaves no training observation with 'x' at position 2,"):
        Extrapolation({"x": (5,), "y": (5,)}).parts(bound)
    two = ArrayWorld(np.eye(4), np.array([[0, 0], [0, 1], [1, 2], [1, 3]]), ("flag", "x"))
    for split in (Extrapolation({"flag": (1,)}), Interpolation({"flag": (1,)})):
        with pytest.raises(ValueError, match="at least 3 values, .* and 'flag' has 2"):
            split.parts(two)
    with pytest.raises(ValueError, match="'height' is continuous"):
        Extrapolation({"height": (1,)}).parts(ArrayWorld(np.eye(4), np.linspace(0, 1, 4), ("height",)))


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
    train, held_out = SplitPart(world, side="train"), SplitPart(world)
    check_world(held_out)
    parts = RandomSplit().parts(world)
    np.testing.assert_array_equal(held_out.observe([0, 5]), world.observe(parts.held_out[[0, 5]]))
    np.testing.assert_array_equal(train.factors_of([2]), world.factors_of(parts.train[[2]]))
    check_world(Chosen(world, parts.held_out))
    with pytest.raises(ValueError, match="from 0 to 1295"):
        Chosen(world, np.array([1296]))
    with pytest.raises(ValueError, match="holds nothing out"):
        SplitPart(world, RandomSplit(0.0))
