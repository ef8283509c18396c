"""A corrupted world: the corruption of its pictures by number, in pairs, in files and on the command line."""

import numpy as np
import pytest
from PIL import Image

from polariscope.cli import main
from polariscope.cli.configuration import parse_run
from polariscope.testing import check_world
from polariscope.worlds import ArrayWorld, worlds
from polariscope.worlds.points.synthetic import Plane
from polariscope.worlds.renderers.digits import Digits
from polariscope.worlds.renderers.mini_sprites import MiniSprites
from polariscope.worlds.splits import SplitPart
from polariscope.worlds.targets import Task, target_values
from polariscope.worlds.view import others_of
from polariscope.worlds.views.corrupted import Corrupted
from polariscope.worlds.views.corruptions import SUITES, corrupt
from polariscope.worlds.views.pairs import Pairs

DIGITS = Digits(count=60)


@pytest.mark.spec("001b/A-22")
@pytest.mark.parametrize("kind", SUITES["mnist-c"].kinds)
def test_digits_under_every_corruption_keep_the_contract_of_a_world(kind) -> None:
    world = Corrupted(DIGITS, kind, 1, "mnist-c", seed=2)
    check_world(world, count=20)
    numbers = np.array([40, 3, 7])
    wanted = corrupt(DIGITS.observe(numbers), kind, 1, suite="mnist-c", seed=2, index=numbers)
    np.testing.assert_array_equal(world.observe(numbers), wanted)
    np.testing.assert_array_equal(world.factors_of(numbers), DIGITS.factors_of(numbers))


def test_draws_are_always_those_of_the_number() -> None:
    world = Corrupted(DIGITS, "gaussian", 3)
    assert not world.draws
    assert world.drawn(5, 9) is world
    again = Corrupted(DIGITS, "gaussian", 3, seed=1)
    assert not np.array_equal(world.observe([4]), again.observe([4]))
    same = Corrupted(ArrayWorld(np.zeros((9, 16, 16), np.uint8)), "gaussian", 3)
    assert not np.array_equal(same.observe([4]), same.observe([5]))


def test_both_images_of_a_pair_are_corrupted_alike() -> None:
    """The same noise is on both, so that it is gone from their difference where nothing is cut off."""
    pairs = Pairs(MiniSprites())
    index = np.arange(0, 400, 5)
    world = Corrupted(pairs, "impulse", 5)
    (other,), (plain,) = others_of(world, index), others_of(pairs, index)
    np.testing.assert_array_equal(other, corrupt(plain, "impulse", 5, index=index))
    here, there = (after != before for after, before in ((world.observe(index), pairs.observe(index)), (other, plain)))
    still = pairs.observe(index) == plain
    assert here[still].mean() > 0.1
    np.testing.assert_array_equal(here[still], there[still])


def test_views_nest_and_targets_stay() -> None:
    task = Task(Corrupted(SplitPart(MiniSprites(), side="train"), "fog", 2), "x", "values")
    numbers = np.arange(30)
    np.testing.assert_array_equal(target_values(task, numbers), target_values(Task(task.of.of, "x", "values"), numbers))
    check_world(task)


def test_names_files_and_flags_build_the_same(tmp_path) -> None:
    world = Corrupted(Digits(count=60), "zigzag", 1, "mnist-c", seed=7)
    assert worlds.build(worlds.describe(world)) == world
    (tmp_path / "run.toml").write_text(
        '[world]\nname = "corrupted"\nkind = "zigzag"\nseverity = 1\nsuite = "mnist-c"\nseed = 7\n'
        'of = { name = "digits", count = 60 }\n'
    )
    flags = "corrupted --world.of digits --world.of.count 60 --world.kind zigzag --world.severity 1"
    flags += " --world.suite mnist-c --world.seed 7"
    for arguments in (["--config", str(tmp_path / "run.toml")], flags.split()):
        assert parse_run(arguments, "train", [])[0].world == world


def test_the_command_line_draws_a_corrupted_world(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    flags = "--world.of digits --world.suite mnist-c --world.kind brightness --world.severity 1"
    assert main(["worlds", "show", "corrupted", *flags.split()]) == 0, capsys.readouterr().err
    shown = np.asarray(Image.open(tmp_path / "world.png").convert("L"))
    assert (np.abs(shown.astype(int) - 128) <= 1).mean() > 0.4, "black became grey"
    assert main(["worlds", "show", "corrupted", "--world.of", "digits", "--world.kind", "rain"]) == 2
    assert "imagenet-c has no corruption 'rain'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Corrupted(DIGITS, "fogg"), "imagenet-c has no corruption 'fogg': did you mean 'fog'"),
        (lambda: Corrupted(DIGITS, "fog", 7), "severity is 7: that of 'fog' in imagenet-c is from 1 to 5"),
        (lambda: Corrupted(DIGITS, "canny", suite="mnist-c"), "is 1, the only one there is"),
        (lambda: Corrupted(DIGITS, "fog", suite="cifar-c"), "no suite 'cifar-c' of corruptions"),
        (
            lambda: Corrupted(Plane(count=9)).shape,
            r"corruptions need images, but this world has points of shape \(4,\)",
        ),
        (lambda: Corrupted(Plane(count=9)).observe([0]), "corruptions need pictures"),
        (lambda: Corrupted(DIGITS, "saturate").observe([0]), "'saturate' changes colours"),
        (
            lambda: Corrupted(ArrayWorld(np.full((4, 9, 9, 1), 300.0), floats=True)).observe([0]),
            "brightnesses from 0 to 1, and these go from 300 to 300",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(make, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()
