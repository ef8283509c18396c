"""Training from Python as people do it: arrays and data sets in memory, stored by their hash; runs by their names."""

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

import polariscope
from polariscope.nets.architecture import MLP
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.objectives.vae import VAE
from polariscope.training import RunConfig, TrainingConfig, checkpoint, load_model, resume, train
from polariscope.worlds import ArrayWorld, as_world


def images(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (60, 8, 8), dtype=np.uint8)


def config(world, **training) -> RunConfig:
    settings = {"steps": 12, "batch_size": 8, "checkpoint_every": 4, "evaluate_every": 6, "log_every": 3}
    return RunConfig(world, VAE(), AutoencoderConfig(3, MLP((16,), (16,))), TrainingConfig(**settings | training))


def test_an_array_is_trained_on_stored_and_resumed_when_it_is_given_again(tmp_path) -> None:
    labels = np.arange(60) % 3
    whole = train(config(ArrayWorld(images(), labels)), tmp_path / "whole")
    assert whole.config["world"]["name"] == "remembered"
    assert whole.config["world"]["count"] == 60

    class Stop(BaseException):
        pass

    def stop(progress) -> None:
        if checkpoint_there():
            raise Stop

    def checkpoint_there() -> bool:
        return any((tmp_path / "cut").glob("*/checkpoint.safetensors"))

    import polariscope.training.run as running

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stop):
        patch.setattr(running, "TELL_EVERY", -1.0)
        train(config(ArrayWorld(images(), labels)), str(tmp_path / "cut"), stop)
    store = tmp_path / "cut"
    with pytest.raises(ValueError, match="60 observations of shape .* give the same data again"):
        resume("latest", store=store)
    with pytest.raises(ValueError, match="other data than the run was made with"):
        resume("latest", store=store, data=ArrayWorld(images(1), labels))
    with pytest.raises(ValueError, match="other data than the run was made with"):
        resume("latest", store=store, data=ArrayWorld(images(), labels[::-1]))
    run = resume("latest", store=store, data=ArrayWorld(images(), labels))
    assert run.status == "done"
    a, b = (checkpoint.read(r.checkpoint)[0] for r in (run, whole))
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_a_torch_data_set_is_data(tmp_path) -> None:
    pictures = torch.from_numpy(images())[:, None].float() / 255
    run = train(config(as_world(TensorDataset(pictures, torch.arange(60) % 3))), tmp_path)
    assert run.status == "done"
    assert run.config["world"]["factor_sizes"] == [3]


def test_models_are_loaded_by_name_without_their_data(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = train(config(ArrayWorld(images())))
    for name in ("latest", run.id, run.id[-4:], run.path):
        model = load_model(name)
        assert model.latents == 3
    result = polariscope.examine(load_model("latest"), images())
    assert result.representation.latents == 3


def test_a_run_with_a_world_of_its_own_takes_no_other_data(tmp_path, small) -> None:
    run = train(small(), tmp_path)
    with pytest.raises(ValueError, match=r"its own world \(sprites\) and takes no other data"):
        RunConfig.build(run.config, images())
