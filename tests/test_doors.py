"""One door: every public function takes the same kinds of models and the same kinds of data."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import polariscope
from polariscope import AutoencoderConfig, RunConfig, TrainingConfig
from polariscope.examination.agreement import rank_by_agreement
from polariscope.examination.compare import layer_activations
from polariscope.examination.generalise import generalise
from polariscope.examination.transitions import examine_transitions
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.worlds.given import as_world
from polariscope.worlds.renderers.mini_sprites import MiniSprites
from polariscope.worlds.splits import RandomSplit


class Net(nn.Module):
    def encode(self, x):
        return x.flatten(1)[:, 100:160:20], torch.full((len(x), 3), -4.0)


def codes(x):
    return x.flatten(1)[:, 100:160:20]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with a run in it, as a user has one after a training."""
    folder = tmp_path_factory.mktemp("doors")
    config = RunConfig(
        MiniSprites(), BetaVAE(beta=2.0), AutoencoderConfig(latents=3), TrainingConfig(steps=2, batch_size=8)
    )
    run = polariscope.train(config, folder / "runs")
    (folder / "mine.py").write_text(
        "from torch import nn\n\n\nclass Net(nn.Module):\n"
        "    def encode(self, x):\n        return x.flatten(1)[:, 100:160:20]\n"
    )
    return folder, run


@pytest.fixture
def models(runs, monkeypatch):
    folder, run = runs
    monkeypatch.chdir(folder)
    return {
        "run": run,
        "id": run.id,
        "ending": run.id[-4:],
        "latest": "latest",
        "folder": run.path,
        "module": Net(),
        "function": codes,
        "subject": polariscope.as_subject(Net()),
        "source": "mine.py:Net",
    }


DATA = ("world", "name", "array", "tensor", "dataset", "loader", "path", "path as a string")
KINDS = ("run", "id", "ending", "latest", "folder", "module", "function", "subject", "source")


def data(folder):
    images = MiniSprites().observe(np.arange(0, len(MiniSprites()), 40))
    np.save(folder / "images.npy", images)
    tensor = torch.from_numpy(images)
    return {
        "world": MiniSprites(),
        "name": "mini-sprites",
        "array": images,
        "tensor": tensor,
        "dataset": TensorDataset(tensor),
        "loader": DataLoader(TensorDataset(tensor), batch_size=16),
        "path": folder / "images.npy",
        "path as a string": str(folder / "images.npy"),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_goes_through_every_function(models, kind) -> None:
    model, images = models[kind], MiniSprites().observe(np.arange(0, len(MiniSprites()), 40))
    count = len(images)
    assert polariscope.represent(model, images).mean.shape == (count, 3)
    assert polariscope.examine(model, images, measured=[]).representation.mean.shape == (count, 3)
    assert polariscope.compare(model, Net(), images).values.shape[0] >= 2
    assert layer_activations(model, images)["mean"].shape == (count, 3)
    assert len(rank_by_agreement([model, Net()], images).values) == 2


@pytest.mark.parametrize("kind", DATA)
def test_every_kind_of_data_goes_through_every_function(runs, kind) -> None:
    given = data(runs[0])[kind]
    count = len(as_world(given))
    assert polariscope.represent(Net(), given).count == count
    assert polariscope.examine(Net(), given, measured=[]).representation.count == count
    result = polariscope.compare(Net(), codes, given)
    assert result.latent["mean"] == pytest.approx(1)
    assert len(layer_activations(Net(), given)["mean"]) == min(count, 2000)
    assert len(rank_by_agreement([Net(), Net()], given).values) == 2


def test_a_run_brings_its_data_and_the_weight_of_its_divergence(models, runs) -> None:
    run = runs[1]
    result = polariscope.examine("latest", measured=[])
    assert result.representation.count == len(MiniSprites())
    assert result.variables[0].predicted_var is not None  # the audit, which needs the objective's beta
    assert any(run.id in note and "both training and held-out" in note for note in result.notes)
    given = polariscope.examine(run, MiniSprites(), measured=[])
    assert np.array_equal(result.representation.mean, given.representation.mean)
    assert polariscope.represent("latest").count == len(MiniSprites())
    assert polariscope.compare("latest", run).latent["mean"] == pytest.approx(1)


def test_data_that_nobody_gave_is_asked_for(runs) -> None:
    with pytest.raises(ValueError, match="no data to examine Net on: give a world or its name, an array"):
        polariscope.examine(Net())
    with pytest.raises(ValueError, match="give the data too"):
        polariscope.examine(runs[1], factors=[1, 2])


def test_a_run_that_is_not_there_is_refused_in_a_sentence(models) -> None:
    with pytest.raises(ValueError, match="there is no run 'latset' in runs"):
        polariscope.examine("latset")
    with pytest.raises(TypeError, match="a model is an nn.Module, .* or a run .* got an object of type int"):
        polariscope.examine(3, np.zeros((4, 2)))


def test_splits_and_transitions_take_a_name_as_well() -> None:
    def exact(x):
        return torch.zeros(len(x), len(MiniSprites().factors))

    scores = [generalise(exact, of, RandomSplit(), count=50).score for of in ("mini-sprites", MiniSprites())]
    assert scores[0] == scores[1]
    assert examine_transitions("masks").sparse == ["y", "x", "area"]


def test_a_configuration_takes_the_same_kinds_of_data(runs) -> None:
    worlds = {kind: RunConfig(given).world for kind, given in data(runs[0]).items()}
    assert all(world.shape == MiniSprites().shape for world in worlds.values())
    assert worlds["name"] == worlds["world"] == MiniSprites()


def test_a_world_that_is_misspelt_is_offered() -> None:
    with pytest.raises(ValueError, match="there is no world 'mini-spirtes': did you mean 'mini-sprites'"):
        polariscope.examine(Net(), "mini-spirtes")
    with pytest.raises(ValueError, match="there is no file gone.npz and no world of that name"):
        polariscope.examine(Net(), "gone.npz")
