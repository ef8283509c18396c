"""What is exported computes what the model computes, without this package."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from polariscope.cli import main
from polariscope.lab.store import Store
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.nets.predictors import LeNet
from polariscope.objectives.predict import Classify
from polariscope.objectives.vae import VAE
from polariscope.subjects import as_subject
from polariscope.subjects.exporting import NotExportable, export_model
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.run import train
from polariscope.worlds.renderers.mini_sprites import MiniSprites
from polariscope.worlds.renderers.sprites import Sprites
from polariscope.worlds.targets import Task
from polariscope.worlds.world import to_tensor

USE = """
import importlib.abc, sys, numpy as np, torch
class Nothing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        assert name.partition(".")[0] != "polariscope", "it needs polariscope"
sys.meta_path.insert(0, Nothing())
sys.path.insert(0, sys.argv[1])
from safetensors.torch import load_file
from model import Model
model = Model()
model.load_state_dict(load_file(sys.argv[1] + "/weights.safetensors"))
model.eval()
x = torch.from_numpy(np.load(sys.argv[2]))
with torch.no_grad():
    if hasattr(model, "encode"):
        code = model.encode(x)
        mean, var = code if isinstance(code, tuple) else (code, code)
        out = {"mean": mean, "var": var, "image": model.decode(mean)}
    else:
        out = {"scores": model.predict(x)}
np.savez(sys.argv[3], **{k: v.numpy() for k, v in out.items()})
"""


def alone(folder, x, tmp_path):
    """What the exported files compute in a process that may not import this package."""
    np.save(tmp_path / "x.npy", x.contiguous().numpy())
    words = [sys.executable, "-c", USE, str(folder), str(tmp_path / "x.npy"), str(tmp_path / "out.npz")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return np.load(tmp_path / "out.npz")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("exported") / "runs")
    training = TrainingConfig(steps=3, batch_size=8, evaluate_every=0)
    train(RunConfig(Sprites(), VAE(), AutoencoderConfig(latents=4), training), store, run_id="vae", quiet=True)
    train(RunConfig(Task(MiniSprites()), Classify(), LeNet(), training), store, run_id="lenet", quiet=True)
    return store


def test_an_autoencoder_is_written_for_torch_alone(store, tmp_path, capsys):
    assert main(["export", "vae", "--runs", str(store.root), "--out", str(tmp_path / "out"), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["methods"] == ["encode", "decode"]
    about = json.loads((tmp_path / "out" / "about.json").read_text())
    assert (about["run"], about["observation"]) == ("vae", [1, 64, 64])
    assert about["config"]["objective"]["name"] == "vae"
    x = to_tensor(Sprites().observe(np.arange(0, 700_000, 100_000)))  # seven: another number than it was recorded with
    out = alone(tmp_path / "out", x, tmp_path)
    subject = as_subject(store.open("vae")).understood(x)
    with subject.at_rest():
        code = subject.encode(x)
        np.testing.assert_allclose(out["mean"], code["mean"], atol=1e-5)
        np.testing.assert_allclose(out["var"], code["var"], rtol=1e-4)
        np.testing.assert_allclose(out["image"], subject.generate(code["mean"], (1, 64, 64)), atol=1e-5)


def test_a_classifier_is_written_for_torch_alone(store, tmp_path, capsys):
    assert main(["export", "lenet", "--runs", str(store.root), "--out", str(tmp_path / "out")]) == 0
    assert "predict" in capsys.readouterr().out
    x = to_tensor(MiniSprites().observe(np.arange(5)))
    subject = as_subject(store.open("lenet"))
    with subject.at_rest():
        np.testing.assert_allclose(alone(tmp_path / "out", x, tmp_path)["scores"], subject.predict(x), atol=1e-5)


def test_onnx_computes_the_same(store, tmp_path):
    pytest.importorskip("onnxscript", reason="ONNX files need the extra [onnx]")
    runtime = pytest.importorskip("onnxruntime", reason="to run ONNX files needs onnxruntime")
    subject = as_subject(store.open("vae"))
    x = to_tensor(Sprites().observe(np.arange(0, 700_000, 100_000))).contiguous()
    result = export_model(subject, x, tmp_path)
    assert set(result.onnx) == {"encode.onnx", "decode.onnx"}, result.notes
    session = runtime.InferenceSession(str(tmp_path / "encode.onnx"))
    mean = session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]
    with subject.at_rest():
        np.testing.assert_allclose(mean, subject.encode(x)["mean"], atol=1e-4)


def test_what_cannot_be_exported_is_said(tmp_path):
    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def encode(self, x):
            return x * self.weight if float(x.sum()) > 0 else -x

    with pytest.raises(NotExportable, match="encode cannot be exported"):
        export_model(as_subject(Branching()), torch.rand(5, 3), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(TypeError, match="not a torch module"):
        export_model(as_subject(lambda x: x), torch.rand(5, 3), tmp_path / "out")


class Pictures(nn.Module):
    """Tied weights, and pictures with their channels last, beside other outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.again, self.back = nn.Linear(192, 4), nn.Linear(192, 4), nn.Linear(4, 192)
        self.again.weight = self.first.weight

    def encode(self, x):
        return self.first(x.flatten(1))

    def decode(self, z):
        picture = (z @ self.again.weight + self.back(z)).view(-1, 8, 8, 3)
        return {"features": 2 * z, "reconstruction": picture}


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features, self.head = nn.Linear(192, 6), nn.Linear(6, 4)

    def forward(self, x):
        features = self.features(x.flatten(1))
        return {"features": features, "logits": self.head(features)}


def test_exported_methods_give_what_the_subject_gives(tmp_path) -> None:
    """Of several outputs the exported one was the first, and pictures with channels last were scrambled."""
    torch.manual_seed(0)
    x = torch.rand(16, 3, 8, 8)
    for module in (Pictures(), Named()):
        folder, subject = tmp_path / type(module).__name__, as_subject(module)
        export_model(subject, x, folder)
        out = alone(folder, x[:5], tmp_path)
        if isinstance(module, Pictures):
            subject = subject.understood(x)
            expected = subject.generate(torch.from_numpy(out["mean"]), (3, 8, 8)).detach()
            np.testing.assert_allclose(out["image"], expected, atol=1e-6)
        else:
            np.testing.assert_allclose(out["scores"], subject.predict(x[:5]).detach(), atol=1e-6)
