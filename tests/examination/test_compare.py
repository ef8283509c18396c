"""Two models, layer by layer."""

import json

import numpy as np
import pytest
import torch

from polariscope.cli import main
from polariscope.examination.compare import compare, encoder_layers, layer_activations
from polariscope.lab import Store
from polariscope.nets.architecture import MLP
from polariscope.nets.autoencoder import Autoencoder, AutoencoderConfig
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.training import RunConfig, TrainingConfig, train
from polariscope.worlds.mini_sprites import MiniSprites


def model(seed: int) -> Autoencoder:
    torch.manual_seed(seed)
    return Autoencoder(AutoencoderConfig(latents=4, architecture=MLP((16, 16), (16,))), (1, 12, 12))


@pytest.mark.spec("002/S04")
def test_layers_come_in_order_and_a_model_is_like_itself() -> None:
    world = MiniSprites()
    names = list(layer_activations(model(0), world, 50))
    assert names == [
        "input", "encoder.dense1", "encoder.dense2", "mean", "variance", "sampled", "decoder.dense1", "decoder.output",
    ]  # fmt: skip
    found = compare(model(0), model(0), world, count=200)
    same = {name: found.values[i, i] for i, name in enumerate(found.rows)}
    for name in ("input", "encoder.dense1", "encoder.dense2", "mean", "variance"):
        assert same[name] == pytest.approx(1, abs=1e-6)
    assert same["sampled"] < 0.9, "the two draws have noise of their own"
    assert encoder_layers(found.rows) == 3
    np.testing.assert_allclose(
        compare(model(0), model(1), world).values, compare(model(1), model(0), world).values.T, atol=0.05
    )


def test_the_command_writes_a_page_or_a_heatmap(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store(tmp_path / "runs")
    small = AutoencoderConfig(latents=3, architecture=MLP((8,), (8,)))
    for seed in (0, 1):
        training = TrainingConfig(steps=6, batch_size=8, seed=seed, snapshot_every=3)
        train(RunConfig(MiniSprites(), BetaVAE(), small, training), store, run_id=f"run-{seed}")
    assert main(["compare", "run-0", "run-1", "--count", "100", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert np.shape(found["values"]) == (len(found["rows"]), len(found["columns"]))
    assert found["latent"]["mean"] == found["values"][found["rows"].index("mean")][found["columns"].index("mean")]
    assert found["out"] == "compare.html"
    assert "Layer by layer" in (tmp_path / "compare.html").read_text()
    words = ["compare", "run-0", "run-0", "--steps", "3", "6", "--count", "100", "--out", "heat.png"]
    assert main(words) == 0
    assert "cka of the mean" in capsys.readouterr().out
    assert (tmp_path / "heat.png").read_bytes().startswith(b"\x89PNG"), "the heatmap alone"
    for words, sentence in [
        (["compare", "run-0"], "which models?"),
        (["compare", "run-0", "run-9"], "there is no run 'run-9'"),
        (["compare", "run-0", "run-1", "--count", "1"], "at least 2 examples"),
        (["compare", "run-0", "run-1", "--steps", "4", "4"], "no snapshot at step 4"),
        (["compare", "run-0", "run-1", "--measure", "procrustes", "--debiased"], "for cka only"),
    ]:
        assert main(words) == 2
        assert sentence in capsys.readouterr().err
