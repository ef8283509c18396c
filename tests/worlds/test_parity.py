"""Even against odd: parts that do not overlap, equal numbers of every digit, images of one norm."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from polariscope.worlds import ArrayWorld, Factor
from polariscope.worlds.parity import ParityTask, digit_files, parity_task
from polariscope.worlds.renderers.digits import Digits
from polariscope.worlds.targets import Examples
from polariscope.worlds.views.digit_tasks import resize

SOURCE = Digits(count=900, size=14)


def digits_of(part: Examples) -> np.ndarray:
    return SOURCE.factors_of(part.index)[:, 0]


def parts(task: ParityTask) -> tuple:
    return task.net, task.kernel, task.test


@pytest.mark.spec("004/F60")
def test_parts_are_disjoint_and_of_the_sizes_asked_for() -> None:
    task = parity_task(SOURCE, train=120, test=200, seed=1)
    assert [len(part) for part in parts(task)] == [120, 120, 200]
    index = np.concatenate([part.index for part in parts(task)])
    assert len(np.unique(index)) == 440


@pytest.mark.spec("004/F60")
@pytest.mark.parametrize(("train", "test"), [(120, 200), (33, 47), (7, 1)])
def test_every_part_is_balanced(train: int, test: int) -> None:
    task = parity_task(SOURCE, train, test, seed=2)
    for part in parts(task):
        counts = np.bincount(digits_of(part).astype(int), minlength=10)
        assert counts.max() - counts.min() <= (len(part) % 10 > 0)
        assert abs(part.y.sum()) <= len(part) % 2


@pytest.mark.spec("004/F60")
def test_even_digits_are_plus_one_and_images_have_the_norm_of_their_pixels() -> None:
    task = parity_task(SOURCE, train=60, test=40)
    for part in parts(task):
        np.testing.assert_array_equal(part.y, (-1.0) ** digits_of(part))
        assert part.x.dtype == np.float32
        np.testing.assert_allclose(np.square(part.x).sum((1, 2, 3)), 14 * 14, rtol=1e-5)


def test_the_mean_image_of_the_net_is_taken_off_all_parts() -> None:
    task = parity_task(SOURCE, train=60, test=40)
    mean = SOURCE.observe(task.net.index).astype(np.float64).mean(0)
    for part in parts(task):
        expected = SOURCE.observe(part.index) - mean
        expected *= 14 / np.sqrt(np.square(expected).sum((1, 2, 3), keepdims=True))
        np.testing.assert_allclose(part.x, expected, atol=1e-4)


def test_the_seed_chooses_the_images() -> None:
    first, again, other = (parity_task(SOURCE, 60, 40, seed=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.net.x, again.net.x)
    assert not np.array_equal(first.net.index, other.net.index)


def test_images_are_resized_where_asked() -> None:
    task = parity_task(Digits(count=900, size=28), train=60, test=40, size=14)
    assert task.test.x.shape == (40, 1, 14, 14)
    images = resize(Digits(count=900, size=28).observe(task.net.index), (14, 14)).astype(np.float64)
    expected = images[0] - images.mean(0)
    np.testing.assert_allclose(task.net.x[0], expected * 14 / np.linalg.norm(expected), atol=1e-4)


def idx(values: np.ndarray) -> bytes:
    return struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.astype(np.uint8).tobytes()


def write(folder: Path, name: str, images: np.ndarray, labels: np.ndarray | None) -> None:
    (folder / f"{name}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
    if labels is not None:
        (folder / f"{name}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels)))


@pytest.mark.spec("004/F60")
def test_files_of_training_and_test_are_one_world(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (60, 8, 8), dtype=np.uint8)
    labels = np.arange(60) % 10
    write(tmp_path, "train", images[:40], labels[:40])
    write(tmp_path, "t10k", images[40:], labels[40:])
    world = digit_files(tmp_path)
    assert (len(world), world.shape) == (60, (1, 8, 8))
    np.testing.assert_array_equal(world.observe(np.arange(60))[:, 0], np.concatenate([images[40:], images[:40]]))
    np.testing.assert_array_equal(world.factors_of(np.arange(60))[:, 0], labels)
    task = parity_task(world, train=20, test=20)
    assert len(np.unique(np.concatenate([part.index for part in parts(task)]))) == 60


@pytest.mark.spec("004/F60")
def test_the_real_files(real_data) -> None:
    world = digit_files(real_data("mnist/train-images-idx3-ubyte.gz").parent)
    assert (len(world), world.shape) == (70_000, (1, 28, 28))
    assert np.bincount(world.factors_of(np.arange(70_000))[:, 0])[5] == 6313
    task = parity_task(world, train=100, test=100)
    assert task.net.y.sum() == 0
    np.testing.assert_allclose(np.square(task.test.x).sum((1, 2, 3)), 784, rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: parity_task(SOURCE, 0, 10), "to train on and to test on"),
        (lambda: parity_task(SOURCE, 400, 400), "of digit [0-9]; the source has"),
        (lambda: parity_task(SOURCE, 10, 10, size=0), "at least 1 pixel"),
        (lambda: parity_task(ArrayWorld(np.zeros((40, 8, 8), np.uint8)), 10, 10), "first factor is the digit"),
        (lambda: parity_task(ArrayWorld(np.zeros((40, 3)), np.arange(40) % 10), 10, 10), "needs images"),
        (lambda: parity_task(ArrayWorld(np.zeros((40, 8, 8), np.uint8), np.arange(40) % 10), 10, 10), "mean image"),
        (
            lambda: parity_task(
                ArrayWorld(np.zeros((40, 8, 8), np.uint8), np.arange(40) % 12, (Factor("letter", 12),)), 10, 10
            ),
            "the source has 10",
        ),
    ],
)
def test_what_is_no_parity_task_is_refused(make, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()


def test_folders_without_digits_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="holds no IDX images"):
        digit_files(tmp_path)
    write(tmp_path, "train", np.zeros((3, 8, 8), np.uint8), None)
    with pytest.raises(ValueError, match="no labels beside it"):
        digit_files(tmp_path)
