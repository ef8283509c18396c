"""Two models, layer by layer."""

import json

import numpy as np
import pytest
import torch

from polariscope.cli import main
from polariscope.examination.compare import Chance, Comparison, compare, encoder_layers, layer_activations
from polariscope.lab import Store
from polariscope.nets.architecture import MLP
from polariscope.nets.autoencoder import Autoencoder, AutoencoderConfig
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.subjects import as_subject
from polariscope.training import RunConfig, TrainingConfig, train
from polariscope.worlds.renderers.mini_sprites import MiniSprites


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
    result = compare(model(0), model(0), world, count=200)
    same = {name: result.values[i, i] for i, name in enumerate(result.rows)}
    for name in ("input", "encoder.dense1", "encoder.dense2", "mean", "variance"):
        assert same[name] == pytest.approx(1, abs=1e-6)
    assert same["sampled"] < 0.9, "the two draws have noise of their own"
    assert encoder_layers(result.rows) == 3
    np.testing.assert_allclose(
        compare(model(0), model(1), world).values, compare(model(1), model(0), world).values.T, atol=0.05
    )


def paired(value: float, layer: float = 1.0, chance: float = 0.05, untrained: float | None = None) -> Comparison:
    values = np.array([[layer, 0.1], [0.1, value]])
    names = ("encoder.dense1", "mean")
    levels = {"mean": Chance(chance - 0.02, chance)}
    return Comparison(values, names, names, models=("a", "b"), chance=levels, untrained=untrained)


@pytest.mark.parametrize(
    ("found", "verdict", "words"),
    [
        (
            paired(0.97, 0.95),
            "nearly the same",
            "a and b are nearly the same inside: CKA of their mean representations",
        ),
        (paired(0.97, 0.4), "nearly the same code", "not the same throughout: "),
        (
            paired(0.6),
            "partly alike",
            "a and b are partly similar: CKA of their mean representations is 0.60 (chance 0.03)",
        ),
        (paired(0.6, untrained=0.7), "no more alike than untrained", "(chance 0.03, untrained 0.70)"),
        (paired(0.04), "not alike", "which does not exceed chance"),
        (Comparison(np.ones((1, 1)), ("x",), ("x",)), None, "cannot be decided"),
    ],
)
def test_the_headline_answers_whether_they_are_the_same_inside(found, verdict, words) -> None:
    assert found.verdict == verdict
    assert words in found.headline
    assert found.findings().json()["verdict"] == verdict


def test_chance_is_what_shuffled_examples_give() -> None:
    world = MiniSprites()
    same = compare(model(0), model(0), world, count=200, untrained=model(1))
    assert same.verdict == "nearly the same"
    assert same.chance["mean"].mean < 0.1 < same.untrained < 1
    torch.manual_seed(0)
    codes = torch.randn(len(world), 4)

    def unrelated(x):
        place = x.flatten(1).double() @ torch.linspace(1, 2, x[0].numel(), dtype=torch.float64)
        return codes[(place * 1e4).long() % len(codes)]  # a code of its own for each image, of no meaning

    assert compare(model(0), unrelated, world, count=150).verdict == "not alike"


def test_samples_that_are_less_alike_than_means_are_explained() -> None:
    def vae(x):
        mean = x.flatten(1)[:, :200].reshape(len(x), 4, -1).mean(2)
        mean = torch.cat([10 * mean[:, :2], torch.zeros(len(x), 6)], 1)
        return mean, torch.cat([torch.full((len(x), 2), -6.0), torch.zeros(len(x), 6)], 1)

    subjects = [as_subject(vae, name=name, returns="mean,logvar") for name in ("a", "b")]
    result = compare(*subjects, MiniSprites(), count=200)
    assert result.latent["mean"] == pytest.approx(1)
    assert result.latent["sampled"] < 0.8
    note = result.findings().notes[0]
    assert note.startswith(f"Samples are less similar ({result.latent['sampled']:.2f}) than means (1.00)")
    assert "6 of 8 and 6 of 8 variables are passive" in note

    def noisy(x):
        mean = 10 * x.flatten(1)[:, :200].reshape(len(x), 4, -1).mean(2)
        return mean, torch.full_like(mean, -0.7)

    subjects = [as_subject(noisy, name=name, returns="mean,logvar") for name in ("a", "b")]
    (note, *_) = compare(*subjects, MiniSprites(), count=200).findings().notes
    assert note.startswith("Samples are less similar")
    assert "passive" not in note, "none is"


def test_the_command_writes_a_page_or_a_heatmap(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store(tmp_path / "runs")
    small = AutoencoderConfig(latents=3, architecture=MLP((8,), (8,)))
    for seed in (0, 1):
        training = TrainingConfig(steps=6, batch_size=8, seed=seed, snapshot_every=3)
        train(RunConfig(MiniSprites(), BetaVAE(), small, training), store, run_id=f"run-{seed}")
    assert main(["compare", "run-0", "run-1", "--count", "100", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert np.shape(result["values"]) == (len(result["rows"]), len(result["columns"]))
    assert result["latent"]["mean"] == result["values"][result["rows"].index("mean")][result["columns"].index("mean")]
    assert result["report"] == "runs/run-0/findings/compare/report.html"
    text = (tmp_path / result["report"]).read_text()
    assert "Layer by layer" in text
    assert "<h1>beta-vae (beta 4) on mini-sprites, seed 0 and beta-vae (beta 4) on mini-sprites, seed 1</h1>" in text
    assert 0 < result["latent"]["untrained"] <= 1
    words = ["compare", "run-0", "run-0", "--steps", "3", "6", "--count", "100", "--out", "heat.png"]
    assert main(words) == 0
    assert "CKA of the mean" in capsys.readouterr().out
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
