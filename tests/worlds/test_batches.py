"""The order of the data: a fresh shuffle an epoch, and a function of seed and step alone."""

import numpy as np
import pytest

from polariscope.worlds.world import Batches


def epoch(stream: Batches, number: int) -> np.ndarray:
    """The observation numbers of an epoch, in their order."""
    first = number * stream.epoch_steps
    return np.concatenate([stream[step] for step in range(first, first + stream.epoch_steps)])


@pytest.mark.parametrize("other", [1, 2, 7])
def test_every_epoch_has_an_order_of_its_own(other: int) -> None:
    stream = Batches(count=1000, size=50, seed=3)
    first, later = epoch(stream, 0), epoch(stream, other)
    assert sorted(first) == sorted(later) == list(range(1000)), "every observation once an epoch"
    # Two independent orders of 1000 agree in one place on average, and in 10 once in ten million pairs.
    assert (first == later).sum() < 10
    assert (np.sort(first.reshape(-1, 50)) != np.sort(later.reshape(-1, 50))).any(), "batches are mixed anew"


def test_seeds_have_orders_of_their_own() -> None:
    orders = [epoch(Batches(1000, 50, seed), 0) for seed in range(3)]
    assert all((a == b).sum() < 10 for i, a in enumerate(orders) for b in orders[:i])


def test_a_batch_depends_on_seed_and_step_alone() -> None:
    """In whatever order steps are asked for: a run that resumes starts in the middle."""
    stream = Batches(count=100, size=30, seed=1)
    in_order = [stream[step] for step in range(9)]
    for step in (7, 0, 8, 3):
        np.testing.assert_array_equal(Batches(100, 30, 1)[step], in_order[step])
        np.testing.assert_array_equal(stream[step], in_order[step])


def test_whole_batches_only_and_one_for_a_small_world() -> None:
    assert Batches(count=100, size=30, seed=1).epoch_steps == 3
    small = Batches(count=5, size=30, seed=1)
    assert small.epoch_steps == 1
    assert sorted(small[4]) == [0, 1, 2, 3, 4]
