"""Digit tasks: what they do to images, what depends on what, and how hard they are."""

import numpy as np
import pytest

from polariscope.testing import check_world
from polariscope.worlds import ArrayWorld, worlds
from polariscope.worlds.renderers.digit_tasks import DigitTask
from polariscope.worlds.renderers.digits import Digits
from polariscope.worlds.views.digit_tasks import LABELS, TASKS, paint, resize, standardise, translate
from polariscope.worlds.views.digit_tasks import DigitTask as TaskView

EVERY = np.arange(60)


@pytest.mark.parametrize("task", TASKS)
def test_it_is_a_world(task):
    world = worlds.build({"name": "digit-task", "task": task, "count": 60})
    check_world(world)
    assert world.shape == ((3 if task == "colour" else 1), 28, 28)


@pytest.mark.spec("000/F086")
def test_shifts_are_whole_pixels_over_the_whole_range():
    world = DigitTask("shifted", count=6000)
    moves = world.factors_of(np.arange(6000))[:, 1:]
    assert len(np.unique(moves, axis=0)) == 15 * 15
    assert (moves.min(), moves.max()) == (-7, 7)
    images, plain = world.observe(EVERY), Digits(6000).observe(EVERY)
    for image, original, (down, right) in zip(images, plain, moves.astype(int), strict=False):
        padded = np.pad(original[0], 7)
        np.testing.assert_array_equal(image[0], padded[7 - down : 35 - down, 7 - right : 35 - right])


@pytest.mark.spec("000/F086")
def test_shifted_resized_pads_to_48_and_shrinks():
    world = DigitTask("shifted-resized", count=2000)
    moves = world.factors_of(np.arange(2000))[:, 1:]
    assert (moves.min(), moves.max()) == (-10, 10)
    images, plain = world.observe(EVERY), Digits(2000).observe(EVERY)
    ink, before = images.sum((1, 2, 3), dtype=float), plain.sum((1, 2, 3), dtype=float)
    np.testing.assert_allclose(ink / before, (28 / 48) ** 2, rtol=0.03)
    rows = np.arange(28)
    centre = (images[:, 0] * rows[:, None]).sum((1, 2)) / ink
    old = (plain[:, 0] * rows[:, None]).sum((1, 2)) / before
    expected = (old + 10 + moves[:60, 0] + 0.5) * 28 / 48 - 0.5
    np.testing.assert_allclose(centre, expected, atol=0.1)


@pytest.mark.spec("000/F086")
def test_random_labels_are_uniform_and_the_same_in_all_tasks():
    labels = [DigitTask(task, "random", count=3000).factors_of(np.arange(3000))[:, 0] for task in TASKS]
    assert all(np.array_equal(labels[0], other) for other in labels[1:])
    assert np.bincount(labels[0].astype(int)).min() > 230
    digits = DigitTask("centred", count=3000).factors_of(np.arange(3000))[:, 0]
    assert (labels[0] == digits).mean() < 0.15
    zero = DigitTask("shifted", "zero", count=3000).factors_of(np.arange(3000))[:, 0]
    np.testing.assert_array_equal(zero, digits == 0)


@pytest.mark.parametrize("task", TASKS)
def test_an_observation_depends_on_its_seed_and_number_alone(task):
    long, short = DigitTask(task, count=300), DigitTask(task, count=60)
    np.testing.assert_array_equal(long.observe(EVERY), short.observe(EVERY))
    np.testing.assert_array_equal(long.factors_of(EVERY), short.factors_of(EVERY))
    source = Digits(60)
    fresh = TaskView(source, task, seed=1).observe(EVERY)
    assert np.array_equal(fresh, TaskView(source, task, seed=0).observe(EVERY)) == (task == "centred")


def test_any_world_of_grey_digits_will_do():
    images = np.random.default_rng(0).integers(0, 256, (20, 12, 12), dtype=np.uint8)
    source = ArrayWorld(images, np.arange(20) % 10)
    for task in TASKS:
        view = TaskView(source, task, shift=3)
        check_world(view)
        np.testing.assert_array_equal(view.factors_of(np.arange(20))[:, 0], np.arange(20) % 10)
    np.testing.assert_array_equal(TaskView(source, "centred").observe(np.arange(20))[:, 0], images)


def test_colour_leaves_the_digit_readable_but_not_by_brightness():
    world = DigitTask("colour", count=600)
    images = world.observe(np.arange(600)) / 255
    ink = DigitTask("shifted", count=600).observe(np.arange(600))[:, 0] / 255
    full, none = ink == 1, ink == 0
    brightness = images.mean(1)
    inside = np.array([b[m].mean() for b, m in zip(brightness, full, strict=True)])
    outside = np.array([b[m].mean() for b, m in zip(brightness, none, strict=True)])
    assert 0.35 < (inside > outside).mean() < 0.65  # light on dark as often as dark on light
    contrast = [np.abs(i[:, m].mean(1) - i[:, o].mean(1)).max() for i, m, o in zip(images, full, none, strict=True)]
    assert np.min(contrast) > 0.25


def test_translate_resize_paint_and_standardise():
    image = np.zeros((2, 1, 5, 5), np.uint8)
    image[:, 0, 2, 2] = 200
    moved = translate(image, [[1, -2], [0, 0]])
    assert moved[0, 0, 3, 0] == 200
    assert moved[0].sum() == 200
    np.testing.assert_array_equal(moved[1], image[1])
    assert translate(image, [[3, 0], [0, 0]])[0].sum() == 0
    flat = np.full((1, 2, 9, 7), 80, np.uint8)
    assert (resize(flat, (4, 5)) == 80).all()
    np.testing.assert_array_equal(resize(image, (5, 5)), image)
    palette = np.zeros((1, 5, 3), np.float32)
    palette[0, 0] = (1, 0.5, 0)
    palette[0, 4] = 1  # the last corner is white
    mask = np.zeros((1, 1, 3, 3), np.uint8)
    mask[0, 0, 0, 0] = 255
    painted = paint(mask, palette)
    assert painted[0, :, 0, 0].tolist() == [255, 128, 0]
    assert painted[0, :, 2, 2].tolist() == [255, 255, 255]
    assert painted[0, 0, 1, 1] == 64
    data = np.random.default_rng(0).integers(0, 256, (9, 3, 4, 4), dtype=np.uint8)
    scaled = standardise(data)
    np.testing.assert_allclose(scaled.mean((0, 2, 3)), 0, atol=1e-6)
    np.testing.assert_allclose(scaled.std((0, 2, 3)), 1, atol=1e-6)
    np.testing.assert_allclose(standardise(data[:2], like=data), scaled[:2])


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda: DigitTask("shiftd"), "did you mean 'shifted'"),
        (lambda: DigitTask(labels="zeros"), "did you mean 'zero'"),
        (lambda: DigitTask(shift=28), "0..27"),
        (lambda: TaskView(ArrayWorld(np.zeros((4, 8, 8, 3), np.uint8), np.arange(4))), "grey images"),
        (lambda: TaskView(ArrayWorld(np.zeros((4, 8, 8), np.uint8))), "no factors"),
        (lambda: standardise(np.zeros((3, 1, 4, 4), np.uint8)), "constant"),
    ],
)
def test_wrong_settings_are_refused_in_a_sentence(wrong, sentence):
    with pytest.raises(ValueError, match=sentence):
        wrong()


def test_all_labels_are_known():
    assert {label for label in LABELS if DigitTask(labels=label, count=5).factors_of([0]).shape == (1, 3)} == set(
        LABELS
    )
