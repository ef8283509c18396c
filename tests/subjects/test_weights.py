"""Weights as people have them: every format, every nesting, every prefix; and sentences about those that do not fit."""

import argparse
import json
import os
import zipfile
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from polariscope.cli import main
from polariscope.subjects import weights
from polariscope.subjects.weights import load_weights

FILE = "mine.py"
SOURCE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 2)

    def encode(self, x):
        return self.inner(x)
"""


def net() -> nn.Module:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 2)

    return Model()


def prefixed(state: dict, prefix: str) -> dict:
    return {prefix + name: value for name, value in state.items()}


FORMATS = {
    "safetensors": lambda state, path: save_file(state, path),
    "pt": torch.save,
    "pth": torch.save,
    "bin": torch.save,
    "legacy.pt": lambda state, path: torch.save(state, path, _use_new_zipfile_serialization=False),
    "ckpt": lambda state, path: torch.save(
        {"state_dict": prefixed(state, "model.") | {"loss.weight": torch.ones(3)}, "epoch": 3, "hyper": {"lr": 0.1}},
        path,
    ),
    "nested.pt": lambda state, path: torch.save({"model_state_dict": state, "optimizer": {"state": {}}}, path),
    "model.pt": lambda state, path: torch.save({"model": state, "step": 7}, path),
    "parallel.pth": lambda state, path: torch.save(prefixed(state, "module."), path),
    "compiled.pt": lambda state, path: torch.save(prefixed(state, "_orig_mod."), path),
    "settings.ckpt": lambda state, path: torch.save(
        {
            "state_dict": state,
            "hyper_parameters": argparse.Namespace(lr=1),
            "loss": np.float64(3),
            "epoch": np.int64(2),
        },
        path,
    ),
    "both.pt": lambda state, path: torch.save({"state_dict": prefixed(state, "module._orig_mod.")}, path),
}


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_loads(tmp_path, suffix) -> None:
    torch.manual_seed(0)
    source, target = net(), net()
    FORMATS[suffix](source.state_dict(), tmp_path / f"weights.{suffix}")
    assert not torch.equal(source.inner.weight, target.inner.weight)
    load_weights(target, tmp_path / f"weights.{suffix}")
    assert torch.equal(source.inner.weight, target.inner.weight)
    assert torch.equal(source.inner.bias, target.inner.bias)


@pytest.mark.parametrize("suffix", ["safetensors", "pt", "ckpt"])
def test_weights_from_the_command_line(tmp_path, monkeypatch, capsys, suffix) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / FILE).write_text(SOURCE)
    np.save(tmp_path / "points.npy", np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32))
    model = net()
    with torch.no_grad():
        model.inner.weight.copy_(torch.tensor([[2.0, 0, 0], [0, 0, 0]]))
        model.inner.bias.zero_()
    FORMATS[suffix](model.state_dict(), tmp_path / f"w.{suffix}")
    words = ["examine", f"{FILE}:Model", "--data", "points.npy", "--weights", f"w.{suffix}", "--json", "--measures", ""]
    assert main(words) == 0
    moved = {v["number"]: v["var_of_mean"] for v in json.loads(capsys.readouterr().out)["variables"]}
    assert moved[1] == 0
    assert 2 < moved[0] < 6


class Evil:
    def __reduce__(self):
        return (print, ("ran",))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"inner.weight": torch.zeros(2, 3)}, "missing inner.bias"),
        ({"inner.weight": torch.zeros(2, 3), "inner.bias": torch.zeros(2), "more": torch.ones(1)}, "unexpected more"),
        (
            {"inner.weight": torch.zeros(5, 3), "inner.bias": torch.zeros(2)},
            r"inner.weight has shape \(5, 3\) in the file",
        ),
        ({"epoch": 3}, "holds no weights by name, but epoch"),
        ([torch.zeros(2)], "holds no weights by name, but list"),
        ({"state_dict": {}, "lr": Fraction(1, 3)}, r"holds Python objects \(fractions.Fraction\)"),
        ({"inner.weight": Evil()}, "holds Python objects"),
        (b"neither the one nor the other", "neither safetensors nor a file of torch.save"),
        (b"PK\x03\x04 cut short", "are damaged"),
        (b"\x80\x02", "are damaged"),
        (b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}q\x00(X\x10", "are damaged"),
        (b"", "neither safetensors nor a file of torch.save"),
        ((2**62).to_bytes(8, "little") + b"{}", "neither safetensors nor a file of torch.save"),
        ((2).to_bytes(8, "little") + b"{]", "are damaged"),
        ({"inner.weight": torch.zeros(()), "inner.bias": torch.zeros(2)}, r"inner.weight has shape \(\) in the file"),
        (
            {"inner.weight": torch.zeros(2, 3, dtype=torch.complex64), "inner.bias": torch.zeros(2)},
            "inner.weight is complex in the file",
        ),
    ],
)
def test_what_does_not_fit_is_a_sentence(tmp_path, capsys, content, sentence) -> None:
    path = tmp_path / "weights.pt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(ValueError, match=sentence):
        load_weights(net(), path)
    assert "ran" not in capsys.readouterr().out, "nothing in a file is ever run"


def test_a_file_that_is_not_there_is_a_sentence(tmp_path) -> None:
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        load_weights(net(), tmp_path / "none.pt")


@pytest.mark.parametrize("low", [0x80, 0x50, 0x00])
@pytest.mark.parametrize("second", [2, 3])
def test_a_safetensors_file_is_known_whatever_the_length_of_its_header(tmp_path, low, second) -> None:
    """Its first bytes are that length, and may be those of a pickle."""
    state = net().state_dict()
    wanted = 256 * second + low
    for filling in range(wanted):
        save_file(state, tmp_path / "weights.ckpt", {"filling": "x" * filling})
        length = int.from_bytes((tmp_path / "weights.ckpt").read_bytes()[:8], "little")
        if length >= wanted:
            break
    assert length == wanted
    target = net()
    load_weights(target, tmp_path / "weights.ckpt")
    assert torch.equal(target.inner.weight, state["inner.weight"])


def test_only_regular_files_are_opened(tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe.pt")
    for path in (tmp_path / "pipe.pt", tmp_path, Path("/dev/zero")):
        with pytest.raises(ValueError, match="are not a regular file"):
            load_weights(net(), path)


def test_a_locked_archive_and_one_that_grows_are_refused(tmp_path, monkeypatch) -> None:
    path = tmp_path / "weights.pt"
    torch.save(net().state_dict(), path)
    content = bytearray(path.read_bytes())
    for start in (b"PK\x01\x02", b"PK\x03\x04"):
        at = content.find(start)
        while at >= 0:
            content[at + (8 if start[2] == 1 else 6)] |= 1
            at = content.find(start, at + 4)
    path.write_bytes(content)
    with pytest.raises(ValueError, match="weights.pt are damaged: the archive is encrypted"):
        load_weights(net(), path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(10**6))
    monkeypatch.setattr(weights, "available_memory", lambda: 10**5)
    with pytest.raises(ValueError, match="unpacks to .* more than half of the memory"):
        load_weights(net(), path)


@pytest.mark.parametrize("suffix", ["safetensors", "pt", "legacy.pt"])
def test_a_damaged_file_is_a_sentence_with_its_name(tmp_path, suffix) -> None:
    """Bytes changed and files cut anywhere: the weights, other weights of the same shapes, or one sentence."""
    path = tmp_path / f"weights.{suffix}"
    FORMATS[suffix](net().state_dict(), path)
    whole, generator = path.read_bytes(), np.random.default_rng(0)
    sentences = []
    for _ in range(60):
        damaged = bytearray(whole[: generator.integers(1, len(whole) + 1)])
        for place in generator.integers(len(damaged), size=3):
            damaged[place] = generator.integers(256)
        path.write_bytes(damaged)
        try:
            load_weights(net(), path)
        except ValueError as error:
            sentences.append(str(error))
    assert len(sentences) > 30
    assert all(path.name in sentence and "\n" not in sentence for sentence in sentences)


def test_what_is_no_tensor_in_a_module_stays_as_it_is(tmp_path) -> None:
    class Extra(nn.Linear):
        def get_extra_state(self):
            return {"calls": 3}

        def set_extra_state(self, state):
            raise AssertionError("it was not in the file")

    save_file(nn.Linear(3, 2).state_dict(), tmp_path / "w.safetensors")
    model = Extra(3, 2)
    load_weights(model, tmp_path / "w.safetensors")
    lazy = nn.LazyLinear(2)
    load_weights(lazy, tmp_path / "w.safetensors")
    assert torch.equal(lazy.weight, model.weight)
