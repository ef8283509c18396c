"""At paper scale the studies of works 2 and 3 are the published experiments: data, network, rate, batch and length."""

import gzip
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from polariscope.dimension.trained import DimensionProbe
from polariscope.lab.store import Store
from polariscope.nets.architecture import MLP, Conv, Linear
from polariscope.objectives.vae import VAE
from polariscope.studies import studies
from polariscope.studies.inner_workings import changed_data, manipulated_data, manipulated_rooms
from polariscope.studies.inner_workings.alignment_tasks import task
from polariscope.studies.inner_workings.eigenfaces import BETA, LATENTS, STEPS, _config
from polariscope.studies.polarised import fondue
from polariscope.studies.polarised.polarised_regime import PROBES
from polariscope.studies.polarised.settings import toy_run
from polariscope.studies.study import Bench
from polariscope.worlds.renderers.shapes3d import Shapes3D
from polariscope.worlds.renderers.sprites import Sprites
from polariscope.worlds.splits import RandomSplit


@pytest.mark.parametrize(
    ("name", "count", "epochs", "optimiser", "rate", "beta", "architecture"),
    [
        ("square-linear", 50_000, 600, "adam", 1e-3, 1e-4, Linear()),
        ("square-nonlinear", 50_000, 600, "adam", 1e-3, 1e-3, MLP((60, 40, 20), (60, 40, 20), "tanh", "tanh")),
        ("dsprites", 737_280, 50, "adagrad", 1e-2, 4.0, MLP((1200, 1200), (1200, 1200, 1200), "relu", "tanh")),
        ("mnist", 70_000, 400, "adagrad", 1e-2, 1.0, MLP((400,), (500, 500), "relu", "tanh")),
    ],
)
def test_tasks_of_alignment_are_trained_as_table_31_says(
    monkeypatch, name, count, epochs, optimiser, rate, beta, architecture
) -> None:
    monkeypatch.delenv("POLARISCOPE_DATA", raising=False)
    chosen = task(name, "paper")
    training = chosen.training
    assert len(chosen.world) == count
    assert (training.optimiser, training.learning_rate, training.schedule) == (optimiser, rate, "constant")
    assert (chosen.beta, chosen.architecture) == (beta, architecture)
    assert math.isclose(training.steps * training.batch_size / (0.8 * count), epochs, rel_tol=1e-3)
    assert chosen.config("beta-vae", 0).split == RandomSplit(0.2)


def test_digits_of_the_published_alignment_are_those_of_the_files(monkeypatch, tmp_path) -> None:
    """Two images of 28 pixels a side stand for MNIST's 70,000."""
    pixels = np.arange(2 * 784, dtype=np.uint32).astype(np.uint8)
    folder = tmp_path / "mnist"
    folder.mkdir()
    files = {
        "images-idx3": np.array([0x803, 2, 28, 28], ">i4").tobytes() + pixels.tobytes(),
        "labels-idx1": np.array([0x801, 2], ">i4").tobytes() + bytes([3, 7]),
    }
    for name, content in files.items():
        (folder / f"train-{name}-ubyte.gz").write_bytes(gzip.compress(content))
    monkeypatch.setenv("POLARISCOPE_DATA", str(tmp_path))
    world = task("mnist", "paper").world
    assert world.observe(np.arange(2)).ravel().tolist() == pixels.tolist()
    assert len(task("mnist", "laptop").world) == 20_000, "drawn"


@pytest.mark.parametrize(
    "job", [{"part": "sprites"}, {"part": "toy"}, {"part": "start", "start": 2}, {"part": "beta", "beta": 4.0},
            {"part": "lambda", "lambda": 2.0}],
    ids=lambda job: job["part"],
)  # fmt: skip
def test_every_search_of_fondue_is_on_64x64_sprites_for_two_epochs(job) -> None:
    config = fondue._config(job | {"seed": 3}, "paper")
    assert config.world == Sprites()
    assert config.world.shape == (1, 64, 64)
    assert config.model.architecture == Conv(dense_decoder=True)
    training = config.training
    assert (training.steps, training.batch_size, training.learning_rate) == (2 * 11_520, 64, 1e-4)
    assert (training.optimiser, training.schedule, training.seed) == ("adam", "constant", 3)
    if job["part"] == "sprites":
        assert fondue._config(job | {"seed": 3}, "overnight") == config, "of which overnight is one seed"
        assert studies.get("fondue")().jobs("overnight") == [{"scale": "overnight", "part": "sprites", "seed": 0}]


def test_a_search_of_hours_continues_after_the_models_that_it_has_trained(tmp_path) -> None:
    """Its models are runs of the bench; they answer as those of the search of minutes, which are not kept."""
    config = replace(toy_run(VAE(), 0, 8), split=RandomSplit(0.5))
    bench = Bench(Store(tmp_path), lambda progress: None)
    stored, plain = fondue.StoredProbe(config, 50, bench=bench), DimensionProbe(config, 50)
    first, again = stored(3), stored(3)
    (run,) = Store(tmp_path).runs()
    assert (run.status, run.config["model"]["latents"]) == ("done", 3)
    assert replace(first, seconds=0) == replace(again, seconds=0) == replace(plain(3), seconds=0)


def test_what_subsets_of_variables_tell_is_read_from_10_000_examples_and_tested_on_5_000() -> None:
    assert PROBES["paper"] == {"train": 10_000, "test": 5000, "strengths": 10, "folds": 5}


def test_eigenfaces_are_those_of_32_latents_after_50_epochs_of_celeba(monkeypatch) -> None:
    monkeypatch.delenv("POLARISCOPE_DATA", raising=False)
    (job, *others) = studies.get("eigenfaces")().jobs("paper")
    assert {other["part"] for other in others} == {"faces", "linear"}
    config = _config(job)
    assert (config.model.latents, config.objective.beta) == (LATENTS, BETA) == (32, 4.0)
    assert config.training.learning_rate == 1e-4
    assert config.split == RandomSplit(0.2)
    assert STEPS["paper"] * config.training.batch_size / (0.8 * 202_599) == pytest.approx(50, rel=1e-3)


@pytest.mark.parametrize(
    ("module", "world", "latents", "beta", "epsilon", "settings"),
    [
        (manipulated_data, Sprites(), 5, 8.0, 0.1, manipulated_data._sprite_config),
        (manipulated_rooms, Shapes3D(64), 6, 32.0, 0.175, manipulated_rooms._config),
    ],
    ids=["dsprites", "shapes3d"],
)
def test_data_are_manipulated_on_both_published_sets(module, world, latents, beta, epsilon, settings) -> None:
    objective = module._objective("beta-vae", "paper")
    config = settings(world, objective, 0, "paper")
    assert (module.EPSILON, objective.beta) == (epsilon, beta)
    assert config.model.latents == latents == len(world.factors)
    assert config.model.architecture == Conv(dense_decoder=True)
    assert config.split == changed_data.HELD_OUT == RandomSplit(0.2)
    training = config.training
    assert (training.steps, training.batch_size, training.learning_rate) == (300_000, 64, 1e-4)
    jobs = studies.get(module.__name__.rpartition(".")[2].replace("_", "-"))().jobs("paper")
    part = "sprites" if module is manipulated_data else "rooms"
    trained = Counter((job["model"], job["data"]) for job in jobs if job["part"] == part)
    assert trained == {(model, kind): 10 for model in changed_data.MODELS for kind in changed_data.KINDS}
