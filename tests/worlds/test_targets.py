"""What is asked of a world: classes, values, parity, of one factor or several."""

import numpy as np
import pytest

from polariscope.worlds import ArrayWorld, Factor, worlds
from polariscope.worlds.renderers.digits import Digits
from polariscope.worlds.renderers.mini_sprites import MiniSprites
from polariscope.worlds.renderers.sprites import Sprites
from polariscope.worlds.splits import SplitPart
from polariscope.worlds.targets import Examples, Task, target_values, targets_of
from polariscope.worlds.view import drawn, draws


def test_the_usual_target_is_the_category() -> None:
    assert [factor.name for factor in targets_of(Sprites())] == ["shape"]
    assert targets_of(Digits(50))[0].size == 10
    np.testing.assert_array_equal(
        target_values(Sprites(), [0, 700_000])[:, 0], Sprites().factors_of([0, 700_000])[:, 0]
    )


def test_all_factors_as_values_lie_between_0_and_1() -> None:
    world = MiniSprites()
    task = Task(world, "all", "values")
    values = task.target_of(np.arange(len(world)))
    assert values.shape == (len(world), len(world.factors))
    assert values.min(axis=0).tolist() == [0.0] * len(world.factors)
    assert values.max(axis=0).tolist() == [1.0] * len(world.factors)
    assert all(factor.size == 0 for factor in task.targets)


def test_parity_is_that_of_what_a_position_means() -> None:
    world = ArrayWorld(np.eye(4), np.arange(4), (Factor("count", 4, values=(3.0, 4.0, 6.0, 9.0)),))
    assert Task(world, form="parity").target_of(np.arange(4))[:, 0].tolist() == [1, 0, 0, 1]


def test_a_part_keeps_the_task_of_its_world() -> None:
    task = Task(MiniSprites(), "x", "values")
    part = SplitPart(task)
    assert targets_of(part) == task.targets
    expected = task.target_of(task.of.grid.to_index(part.factors_of([3, 8])))
    np.testing.assert_array_equal(target_values(part, [3, 8]), expected)


def test_a_view_without_draws_stays_itself() -> None:
    task = Task(MiniSprites())
    assert not draws(task)
    assert drawn(task, 1, 2) is task


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Task(ArrayWorld(np.eye(3))), "this world has no factors"),
        (lambda: Task(MiniSprites(), "colour"), "no factor 'colour'"),
        (lambda: Task(ArrayWorld(np.eye(3), [0.5, 1.5, 2.5]), ""), "predict values with the view properties"),
        (lambda: Task(ArrayWorld(np.eye(3), [0.5, 1.5, 2.5], ("size",)), "size"), "is continuous"),
        (lambda: Examples(np.eye(3), np.zeros((2, 1))), "same length; got 3 and 2"),
        (lambda: Examples(np.eye(3), [0, -1, 1]), "counted from 0; the least label is -1"),
    ],
)
def test_what_cannot_be_asked_is_said(make, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()


def test_a_file_of_an_earlier_version_calls_the_form_told() -> None:
    earlier = worlds.build({"name": "task", "of": "mini-sprites", "factor": "x", "told": "values"})
    assert earlier == worlds.build({"name": "task", "of": "mini-sprites", "factor": "x", "form": "values"})
    assert worlds.describe(earlier)["form"] == "values"


def test_labelled_examples_are_arrays_or_tensors_and_a_world() -> None:
    listed, arrays = Examples([[0.0], [1.0], [2.0]], [0, 2, 1]), Examples(np.eye(3), np.eye(3))
    assert (listed.classes, listed.shape, listed.index.tolist()) == ((3,), (1,), [0, 1, 2])
    assert [target.kind for target in arrays.targets] == ["number"] * 3
    taken = Examples.of(Task(MiniSprites(), "shape,x"), [5, 900])
    assert taken.y.tolist() == target_values(Task(MiniSprites(), "shape,x"), [5, 900]).tolist()
    assert taken.classes == tuple(target.size for target in targets_of(Task(MiniSprites(), "shape,x")))
    assert taken.index.tolist() == [5, 900]
    np.testing.assert_array_equal(taken.target_of([1]), taken.y[1:].numpy())
    np.testing.assert_array_equal(taken.observe([1]), taken.x[1:].numpy())
    assert listed.tensors().y.tolist() == [0, 2, 1]
