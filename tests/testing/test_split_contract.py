"""Every registered split keeps its promises; one that breaks a promise is caught at it."""

from dataclasses import dataclass

import numpy as np
import pytest

from polariscope.testing import check_split
from polariscope.testing.splits import split_worlds
from polariscope.worlds.splits import FileSplit, Parts, splits


@pytest.mark.parametrize("description", [d for name in splits.names() for d in splits.examples(name)], ids=str)
def test_registered_splits_keep_the_contract(description) -> None:
    check_split(splits.build(description))


def test_a_split_by_a_file_keeps_the_contract(tmp_path) -> None:
    np.save(tmp_path / "held out.npy", np.arange(10))
    check_split(FileSplit(str(tmp_path / "held out.npy")))


@dataclass(frozen=True)
class Halves:
    """The first half is trained on: a sound split to break."""

    def parts(self, world):
        numbers = np.arange(len(world))
        return Parts(numbers[: len(world) // 2], numbers[len(world) // 2 :])


class Overlapping(Halves):
    def parts(self, world):
        parts = super().parts(world)
        return Parts(parts.train, np.append(parts.held_out, 0))


class Twice(Halves):
    def parts(self, world):
        parts = super().parts(world)
        return Parts(np.append(parts.train, 0), parts.held_out)


class Outside(Halves):
    def parts(self, world):
        return Parts(super().parts(world).train, np.array([len(world)]))


class Masks(Halves):
    def parts(self, world):
        keep = np.arange(len(world)) % 2 == 0
        return Parts(~keep, keep)


class Restless(Halves):
    def parts(self, world):
        order = np.random.default_rng().permutation(len(world))
        return Parts(order[5:], order[:5])


class Global(Halves):
    def parts(self, world):
        np.random.seed(0)  # noqa: NPY002
        order = np.random.permutation(len(world))  # noqa: NPY002
        return Parts(order[5:], order[:5])


class Greedy(Halves):
    def parts(self, world):
        return Parts(np.arange(0), np.arange(len(world)))


class Refusing(Halves):
    def parts(self, world):
        raise ValueError("not this one")


class Pair(Halves):
    def parts(self, world):
        parts = super().parts(world)
        return parts.train, parts.held_out


@pytest.mark.parametrize(
    ("split", "sentence"),
    [
        (Overlapping(), "Overlapping trains on 1 of the observations that it holds out"),
        (Twice(), "train of Twice has a number twice"),
        (Outside(), "held_out of Outside has numbers outside of a world"),
        (Masks(), r"train of Masks has bool of shape .* expected whole numbers \(n,\)"),
        (Restless(), "the same split .Restless. returns other parts"),
        (Global(), "draws from numpy's global state"),
        (Greedy(), "leaves nothing to train on"),
        (Refusing(), "refuses every world: not this one"),
        (Pair(), r"returns a tuple: expected Parts\(train, held_out\)"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_a_broken_split_is_caught(split, sentence) -> None:
    check_split(Halves())
    with pytest.raises(AssertionError, match=sentence):
        check_split(split)


def test_one_world_is_enough() -> None:
    """A split for sequences refuses all other worlds, and says so of each."""
    sequence = splits.build("sequence")
    check_split(sequence)
    grid, _, _ = split_worlds()
    with pytest.raises(AssertionError, match="refuses every world: this split needs sequences"):
        check_split(sequence, [grid])
