"""Embed once: what a model said is read back when the same is asked again, and asked anew when anything differs."""

import gzip
import json
import os
import struct
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from polariscope.cli import main
from polariscope.examination import embedding
from polariscope.examination.embedding import Shelf, cache_folder, weights_hash
from polariscope.examination.examine import examine
from polariscope.lab import Store
from polariscope.nets.architecture import MLP
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.representation import Representation
from polariscope.subjects import Subject
from polariscope.training import RunConfig, TrainingConfig, train
from polariscope.worlds.renderers.mini_sprites import MiniSprites

ASKED = {"count": 60, "measured": ["mig"]}


@pytest.fixture
def calls(monkeypatch):
    """A list that grows by one with every batch that any model encodes."""
    seen: list[int] = []
    encode = Subject.encode

    def counted(self, x, *rest):
        seen.append(len(x))
        return encode(self, x, *rest)

    monkeypatch.setattr(Subject, "encode", counted)
    return seen


class Rows(nn.Module):
    """Codes of images, with a weight that matters."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([1.0, 2.0]))
        self.register_buffer("shift", torch.zeros(2), persistent=False)

    def encode(self, x):
        mean = x.flatten(1)[:, :2] * self.scale + self.shift
        return mean, torch.full_like(mean, -4.0)


@pytest.fixture
def asked(calls, tmp_path):
    """``asked(model, world, ...)``: whether the model had to encode."""

    def ask(model=None, world=None, code="one", **changes) -> bool:
        calls.clear()
        shelf = Shelf(tmp_path / "shelf", code)
        examine(model or Rows(), world or MiniSprites(), shelf=shelf, **{**ASKED, **changes})
        return bool(calls)

    return ask


def test_the_second_look_asks_nothing_and_finds_the_same(calls, tmp_path) -> None:
    shelf = Shelf(tmp_path / "shelf", "code")
    first = examine(Rows(), MiniSprites(), shelf=shelf, **ASKED)
    assert sum(calls) == 60
    calls.clear()
    second = examine(Rows(), MiniSprites(), shelf=shelf, **ASKED)
    assert calls == []
    assert second.records() == first.records()
    assert second.measures == first.measures
    assert second.notes == first.notes
    assert np.array_equal(second.representation.sample, first.representation.sample)
    assert second.representation.factor_info == first.representation.factor_info


def test_whatever_decides_what_a_model_says_asks_again(asked, monkeypatch) -> None:
    assert asked()
    assert not asked()
    assert not asked(measured=[]), "what is measured is no question to the model"
    other, shifted = Rows(), Rows()
    with torch.no_grad():
        other.scale[0] += 1e-6
        shifted.shift += 1
    assert asked(other), "weights"
    assert asked(shifted), "a buffer that is not saved"
    assert asked(code="two")
    assert asked(count=61)
    assert asked(seed=1)
    assert asked(world=MiniSprites(size=14)), "another world"
    monkeypatch.setattr(embedding, "version", lambda name: "99")
    assert asked(), "another version of this program"
    monkeypatch.setattr("polariscope.plugins.record", lambda: [{"file": "mine.py", "sha256": "0"}])
    assert asked(), "another plug-in"
    assert not asked()


@pytest.mark.parametrize("damage", [b"", b"nonsense", None])
def test_a_damaged_file_is_made_again(asked, tmp_path, damage) -> None:
    asked()
    (file,) = (tmp_path / "shelf").iterdir()
    whole = Representation.load(file)
    file.write_bytes(file.read_bytes()[:-100] if damage is None else damage)
    assert asked()
    assert np.array_equal(Representation.load(file).sample, whole.sample)
    assert not asked()


def test_what_is_too_large_is_not_kept(asked, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(embedding, "LARGEST", 100)
    assert asked()
    assert asked()
    assert not (tmp_path / "shelf").exists()


def test_where_nothing_can_be_written_nothing_is_kept(asked, tmp_path) -> None:
    (tmp_path / "shelf").write_text("a file in the way")
    assert asked()
    assert asked()


def test_without_a_shelf_or_a_module_the_model_is_asked(calls, tmp_path) -> None:
    def encoder(x):
        return x.flatten(1)[:, :2]

    for _ in range(2):
        calls.clear()
        examine(Rows(), MiniSprites(), **ASKED)
        assert calls
        calls.clear()
        examine(encoder, MiniSprites(), shelf=Shelf(tmp_path / "shelf", "code"), **ASKED)
        assert calls, "nobody knows what decides the codes of a function"


def test_state_that_is_no_tensor_counts() -> None:
    class Learned(Rows):
        vocabulary = ("a", "b")

        def get_extra_state(self):
            return {"vocabulary": self.vocabulary}

        def set_extra_state(self, state):
            self.vocabulary = state["vocabulary"]

    first, second = Learned(), Learned()
    assert weights_hash(first) == weights_hash(second)
    second.vocabulary = ("a", "c")
    assert weights_hash(first) != weights_hash(second)


def test_the_cache_is_where_it_is_said_to_be(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("POLARISCOPE_CACHE", str(tmp_path / "mine"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "usual"))
    assert cache_folder() == tmp_path / "mine"
    monkeypatch.delenv("POLARISCOPE_CACHE")
    assert cache_folder() == tmp_path / "usual" / "polariscope"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "polariscope"


@pytest.fixture
def typed(calls, tmp_path, monkeypatch, capsys):
    """``typed("examine", ...)`` in an empty folder with a cache of its own: whether the model had to encode."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POLARISCOPE_CACHE", str(tmp_path / "cache"))
    # The page is most of the time that a small examination takes, and is not looked at here.
    monkeypatch.setattr("polariscope.cli.examine.keep_findings", lambda *_, **__: Path("report.html"))

    def words(*arguments: str) -> bool:
        calls.clear()
        code = main([*arguments, "--measures", "", "--json"])
        out, err = capsys.readouterr()
        assert code == 0, err
        assert json.loads(out)["headline"]
        return bool(calls)

    return words


def test_a_run_is_asked_once(typed, tmp_path) -> None:
    small = AutoencoderConfig(latents=3, architecture=MLP((8,), (8,)))
    config = RunConfig(MiniSprites(), BetaVAE(), small, TrainingConfig(steps=2, batch_size=8))
    run = train(config, Store(tmp_path / "runs"), run_id="mine")
    words = ("examine", "mine", "--count", "50")
    assert typed(*words)
    assert not typed(*words)
    (kept,) = (run.path / "representations").iterdir()
    assert Representation.load(kept).count == 50
    assert typed(*words, "--fresh")
    assert typed(*words, "--part", "training")
    assert not typed(*words)
    assert typed(*words, "--out", "elsewhere.html"), "then nothing is written to the run"
    assert not (tmp_path / "cache").exists()


MINE = """
    from torch import nn
    from beside import codes

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)
            nn.init.ones_(self.layer.weight)
            nn.init.zeros_(self.layer.bias)

        def encode(self, x):
            return self.layer(codes(x))
"""


def test_a_model_from_a_file_is_asked_once(typed, tmp_path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))  # and its entry is gone when the test ends
    Path("mine.py").write_text(textwrap.dedent(MINE))
    Path("beside.py").write_text("def codes(x): return x.flatten(1)[:, :2]\n")
    np.savez("images.npz", images=np.random.default_rng(0).integers(0, 256, (40, 8, 8), np.uint8))
    words = ("examine", "mine.py:Model", "--data", "images.npz")
    assert typed(*words)
    assert not typed(*words)
    assert typed(*words, "--fresh")
    assert typed(*words, "--count", "20")
    assert typed(*words, "--seed", "1")
    assert typed(*words, "--encode", "encode"), "what was said about the model"
    with Path("mine.py").open("a") as file:
        file.write("# changed\n")
    assert typed(*words), "the file"
    assert not typed(*words)
    with Path("beside.py").open("a") as file:
        file.write("# changed\n")
    assert typed(*words), "a file that it imports"
    assert not typed(*words)
    np.savez("images.npz", images=np.random.default_rng(1).integers(0, 256, (40, 8, 8), np.uint8))
    os.utime("images.npz", ns=(1, 1))  # a clock may be too coarse to tell two writes apart
    assert typed(*words), "the data"
    assert not typed(*words)


def test_labels_beside_the_images_count_as_data(typed, tmp_path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("plain.py").write_text(
        textwrap.dedent(MINE).replace("from beside import codes", "def codes(x): return x.flatten(1)[:, :2]")
    )
    with gzip.open("train-images-idx3-ubyte.gz", "wb") as file:
        file.write(struct.pack(">4B3I", 0, 0, 8, 3, 30, 6, 6) + bytes(range(1, 31)) * 36)

    def label(classes: int) -> None:
        labels = bytes(n % classes for n in range(30))
        Path("train-labels-idx1-ubyte").write_bytes(struct.pack(">4BI", 0, 0, 8, 1, 30) + labels)

    words = ("examine", "plain.py:Model", "--data", "train-images-idx3-ubyte.gz")
    label(3)
    assert typed(*words)
    assert not typed(*words)
    label(5)
    assert typed(*words)


def test_a_file_that_is_not_there_is_one_sentence(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["examine", "none.py:Model", "--data", "mini-sprites"]) == 2
    assert capsys.readouterr().err == "error: there is no file none.py\n"
