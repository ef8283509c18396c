"""Extraction from any module, saving, selecting; and hooks that do not outlive their block."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from polariscope import memory
from polariscope.nets.autoencoder import Autoencoder, AutoencoderConfig
from polariscope.representation import Representation, represent
from polariscope.subjects.layers import layer_names, recorded
from polariscope.worlds import ArrayWorld
from polariscope.worlds.renderers.sprites import Sprites


@pytest.fixture
def model() -> Autoencoder:
    torch.manual_seed(0)
    return Autoencoder(AutoencoderConfig(latents=5), (1, 16, 16))


@pytest.mark.spec("002/P06")
def test_samples_are_the_mean_plus_standard_noise_of_the_variance(model) -> None:
    rep = represent(model, Sprites(size=16), count=4000)
    noise = (rep.sample - rep.mean) / np.sqrt(rep.var)
    assert stats.kstest(noise.ravel(), "norm").pvalue > 1e-3
    assert abs(noise.mean()) < 4 / np.sqrt(noise.size)
    assert noise.var() == pytest.approx(1, abs=0.03)


def test_the_variance_is_the_exponential_of_what_the_head_says(model) -> None:
    world = Sprites(size=16)
    rep = represent(model, world, count=50)
    x = torch.from_numpy(world.observe(rep.index)).float() / 255
    with torch.no_grad():
        features = model.encoder(x) @ model.head.weight.T + model.head.bias
    np.testing.assert_allclose(rep.mean, features[:, :5], atol=1e-5)
    np.testing.assert_allclose(rep.var, features[:, 5:].exp(), rtol=1e-4)
    np.testing.assert_array_equal(rep.factors, world.factors_of(rep.index))


def test_seeds_draw_examples_and_noise(model) -> None:
    world = Sprites(size=16)
    a, b = (represent(model, world, count=64, noise_seed=n) for n in (1, 2))
    np.testing.assert_array_equal(a.index, b.index)
    np.testing.assert_array_equal(a.mean, b.mean)
    assert not np.array_equal(a.sample, b.sample)
    np.testing.assert_array_equal(represent(model, world, count=64, noise_seed=1).sample, a.sample)
    assert not np.array_equal(represent(model, world, count=64, seed=5).index, a.index)


def test_a_model_without_encode_is_refused() -> None:
    with pytest.raises(TypeError, match="Linear does not encode"):
        represent(nn.Linear(2, 2), ArrayWorld(np.zeros((4, 2))))


def test_layers_of_encoder_and_decoder(model) -> None:
    names = layer_names(model)
    assert names[0] == "encoder.conv1"
    assert names[-1].startswith("decoder.deconv")
    rep = represent(model, Sprites(size=16), count=32, layers=names)
    assert rep.layers["encoder.conv1"].shape == (32, 64 * 8 * 8)
    assert rep.layers[names[-1]].shape == (32, 16 * 16)
    assert not any(module._forward_hooks for module in model.modules()), "no hook is left behind"
    with pytest.raises(ValueError, match="no layer 'encoder.conv9'"), recorded(model, ["encoder.conv9"]):
        pass


def test_reconstructions_are_those_of_the_means(model) -> None:
    rep = represent(model, Sprites(size=16), count=30, reconstructions=True)
    with torch.no_grad():
        expected = model.generate(torch.from_numpy(rep.mean))
    np.testing.assert_allclose(rep.reconstruction, expected, atol=1e-5)
    assert rep.reconstruction.shape == (30, 1, 16, 16)

    class Blind(nn.Module):
        def encode(self, x):
            return x.flatten(1)

    with pytest.raises(TypeError, match="Blind does not decode"):
        represent(Blind(), Sprites(size=16), count=3, reconstructions=True)


def test_selecting_keeps_everything_in_step() -> None:
    rng = np.random.default_rng(0)
    mean, var = rng.normal(size=(6, 4)).astype(np.float32), np.ones((6, 4), np.float32)
    rep = Representation(mean, var, sample=mean + 1, factors=np.arange(6)[:, None])
    chosen = rep.select([3, 1])
    np.testing.assert_array_equal(chosen.mean, mean[:, [3, 1]])
    np.testing.assert_array_equal(chosen.sample, mean[:, [3, 1]] + 1)
    np.testing.assert_array_equal(chosen.factors, rep.factors)


def test_saving_and_loading(model, tmp_path) -> None:
    rep = represent(model, Sprites(size=16), count=20, layers=["encoder.conv1"])
    rep.save(tmp_path / "rep.safetensors")
    back = Representation.load(tmp_path / "rep.safetensors")
    for name in ("mean", "var", "sample", "factors", "index"):
        np.testing.assert_array_equal(getattr(back, name), getattr(rep, name))
    np.testing.assert_array_equal(back.layers["encoder.conv1"], rep.layers["encoder.conv1"])
    assert back.factor_info == rep.factor_info
    (tmp_path / "bad.safetensors").write_bytes(b"no")
    with pytest.raises(ValueError, match="damaged"):
        Representation.load(tmp_path / "bad.safetensors")


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"mean": np.zeros(3)}, r"shape \(n, d\)"),
        ({"mean": np.full((2, 2), np.nan)}, "mean contains NaN"),
        ({"mean": np.zeros((2, 2)), "var": np.zeros((3, 2))}, "var has 3 rows"),
        ({"mean": np.zeros((2, 2)), "var": np.full((2, 2), -1.0)}, "pass variances, not log-variances"),
    ],
)
def test_broken_arrays_are_refused(arrays, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        Representation(**arrays)


def test_freed_memory_is_kept_during_the_passes_and_no_longer() -> None:
    holders = []

    def encode(x: torch.Tensor) -> torch.Tensor:
        holders.append(memory._HOLDERS)
        return x.flatten(1)

    before = memory._HOLDERS
    represent(encode, np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32))
    assert holders[-1] == before + 1
    assert before == memory._HOLDERS
