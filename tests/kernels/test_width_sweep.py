"""Width sweeps on small digits: paired twins, spectra that improve with width, a baseline beside them."""

from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from polariscope.kernels import Descent, descend, width_sweep
from polariscope.kernels.linearised import accuracy
from polariscope.kernels.machine import one_hot
from polariscope.kernels.width_sweep import best_descent, fingerprint, kernel_sweep, pixel_ridge
from polariscope.nets.classifiers import lenet
from polariscope.worlds.renderers.digit_tasks import DigitTask, standardise


def task(name: str, count: int, labels: str = "digit") -> tuple[torch.Tensor, torch.Tensor]:
    world = DigitTask(name, labels, count=count, size=14, shift=3)
    numbers = np.arange(count)
    labels_ = torch.from_numpy(world.factors_of(numbers)[:, 0]).long()
    return torch.from_numpy(standardise(world.observe(numbers))), labels_


def split(data, at):
    return (data[0][:at], data[1][:at]), (data[0][at:], data[1][at:])


def build(width: int, seed: int):
    return lenet(width, (1, 14, 14), pooling="average", seed=seed)


HOW = Descent(rate=0.05, batch=20, epochs=4)


@pytest.mark.spec("000/F084")
def test_twins_share_their_start_and_rerun_to_the_same_row():
    train, test = split(task("centred", 160), 120)
    rows = list(width_sweep(build, train, test, [1, 2], [0, 1], ("standard", "linearised", "last_layer"), HOW))
    assert [(r.width, r.seed, r.twin) for r in rows[:4]] == [
        (1, 0, "standard"), (1, 0, "linearised"), (1, 0, "last_layer"), (1, 1, "standard")
    ]  # fmt: skip
    by_start = {(r.width, r.seed): r.fingerprint for r in rows}
    assert len(set(by_start.values())) == 4
    assert all(r.fingerprint == by_start[r.width, r.seed] for r in rows)
    assert by_start[2, 1] == fingerprint(build(2, 1))
    size = {(r.width, r.twin): r.parameters for r in rows}
    assert size[2, "standard"] == size[2, "linearised"] > size[2, "last_layer"] == 1690
    alone = build(2, 1)  # trained by hand, on the batches of its own seed
    descend(alone, train[0], one_hot(train[1], 10).float(), replace(HOW, seed=1))
    standard = next(r for r in rows if (r.width, r.seed, r.twin) == (2, 1, "standard"))
    assert (standard.train_accuracy, standard.test_accuracy) == (accuracy(alone, *train), accuracy(alone, *test))
    again = list(width_sweep(build, train, test, [1], [1], ("linearised",), HOW))
    assert asdict(again[0]) == asdict(next(r for r in rows if (r.width, r.seed, r.twin) == (1, 1, "linearised")))


@pytest.mark.spec("000/F111")
def test_pixel_baseline_reads_centred_digits_only():
    centred, shifted = (pixel_ridge(*split(task(name, 900), 600)) for name in ("centred", "shifted"))
    assert centred[1] > 0.85
    assert shifted[1] < 0.45
    assert centred[0] > centred[1]


def test_solved_linearisation_fits_its_training_data():
    train, test = split(task("centred", 90), 60)
    (row,) = width_sweep(build, train, test, [1], twins=("solved",), ridge=1e-4)
    assert row.train_accuracy == 1.0
    assert row.test_accuracy > 0.4
    binary = split(task("centred", 90, "zero"), 60)
    (row,) = width_sweep(
        lambda k, s: lenet(k, (1, 14, 14), 1, "average", seed=s), *binary, [1], twins=("solved",), ridge=1e-4
    )
    assert row.train_accuracy == 1.0


@pytest.mark.spec("000/F089")
def test_spectra_improve_with_width():
    x, _ = task("centred", 40)
    rows = list(kernel_sweep(build, x, [1, 4], seeds=[0, 1]))
    rank = {width: np.mean([r.effective_rank for r in rows if r.width == width]) for width in (1, 4)}
    condition = {width: np.mean([r.condition for r in rows if r.width == width]) for width in (1, 4)}
    assert 1 < rank[1] < rank[4] < 400
    assert condition[4] < condition[1]
    assert all(r.spectrum.singular_values.shape == (400,) for r in rows)


@pytest.mark.spec("000/F085")
def test_best_descent_of_a_grid():
    train, validation = split(task("centred", 160), 120)
    grid = [Descent(rate=rate, batch=20, epochs=6) for rate in (1e-5, 0.05, 1e4)]
    chosen, score = best_descent(lambda: build(1, 0), train, validation, grid)
    assert chosen.rate == 0.05
    assert score > 0.3
    with pytest.raises(ValueError, match="every descent"):
        best_descent(lambda: build(1, 0), train, validation, grid[2:])


def test_unknown_twins_are_refused():
    train, test = split(task("centred", 20), 10)
    with pytest.raises(ValueError, match="did you mean 'standard'"):
        list(width_sweep(build, train, test, [1], twins=("standart",)))
