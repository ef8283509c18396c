"""What a page says about how to make it again is typed again, and gives the same page."""

import html
import json
import os
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

from polariscope import plugins
from polariscope.cli import main
from polariscope.report import Findings
from polariscope.report.page import page
from polariscope.worlds.world import worlds

pytestmark = pytest.mark.usefixtures("undrawn")
PLUGIN = """
from dataclasses import dataclass

from polariscope.worlds.renderers.squares import Squares
from polariscope.worlds.world import worlds


@worlds.register("our-squares")
@dataclass(frozen=True)
class OurSquares(Squares):
    \"\"\"Squares of a plug-in.\"\"\"
"""
SOURCE = """
import torch
from torch import nn


def encoder():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(256, 2))


def three():
    return nn.Sequential(nn.Flatten(), nn.Linear(256, 3))
"""
MLP = ["--model.architecture", "mlp", "--model.architecture.encoder-widths", "8"]
MLP += ["--model.architecture.decoder-widths", "8", "--model.latents", "2"]
SHORT = ["--training.steps", "2", "--training.batch-size", "8"]
SMALL = ["--world", "squares", "--world.positions", "6", "--count", "60"]
ENCODER = ["my models.py:encoder", "--encode", "forward"]
COMMANDS = {
    "examine the latest run": ["examine", "latest", "--count", "120", "--measures", "mig", "--plugin", "a plug in.py"],
    "examine a module": ["examine", *ENCODER, "--data", "squares", "--world.positions", "9",
                         "--count", "100", "--measures", ""],
    "examine a file": ["examine", *ENCODER, "--data", "my data.npz", "--count", "50", "--measures", "",
                       "--out", "a page.html"],
    "compare": ["compare", "VAE", "my models.py:encoder", "--count", "60", "--plugin", "a plug in.py"],
    "kernel of a run": ["kernel", "CLASSIFIER", "--count", "200", "--test", "30", "--modes", "2"],
    "kernel": ["kernel", "mlp", "digits", "--train", "2", "--count", "200", "--test", "30", "--modes", "2",
               "--out", "the kernels"],
    "dimension": ["dimension", "gaussian", "--model.architecture", "linear", "--model.likelihood", "gaussian",
                  "--model.posterior", "constant", "--first", "2", "--cap", "2", "--budget", "2", "--once",
                  "--world.count", "200", "--examples", "100", *SHORT],
    "generalise": ["generalise", "my models.py:three", *SMALL, "--steps", "2", "--splits", "random", "composition"],
    "corruptions": ["corruptions", "CLASSIFIER", "--suite", "mnist-c", "--kinds", "shot", "--count", "20"],
    "manipulate": ["manipulate", "my data.npz", "--kind", "noise", "--count", "100", "--out", "changed data"],
    "transitions": ["transitions", "pairs", "--world.of", "squares", "--world.of.scales", "1", "--count", "99",
                    "--out", "moves here"],
}  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a plug-in, modules, data and two runs, and blanks in every name."""
    folder = tmp_path_factory.mktemp("a folder")
    worlds.names()  # find those of the house first
    with pytest.MonkeyPatch.context() as patch:  # what the plug-in registers is gone with the last of these tests
        patch.setattr(worlds, "_entries", dict(worlds._entries))
        patch.setattr(plugins, "_FILES", {})
        start = os.getcwd()
        os.chdir(folder)
        Path("a plug in.py").write_text(PLUGIN, encoding="utf-8")
        Path("my models.py").write_text(SOURCE, encoding="utf-8")
        rng = np.random.default_rng(0)
        np.savez("my data.npz", images=rng.integers(0, 255, (60, 1, 16, 16), np.uint8), factors=np.arange(60)[:, None])
        words = ["train", "our-squares", "--world.positions", "6", *MLP, *SHORT, "--plugin", "a plug in.py"]
        assert main(["train", "digits", "--objective", "classify", "--model", "mlp", *SHORT]) == 0
        assert main(words) == 0
        os.chdir(start)
        yield folder
    for name in [name for name in sys.modules if name.startswith("plugin_")]:
        del sys.modules[name]


def pages(folder):
    """Documents, besides the pages of runs, which list them."""
    documents = (path for path in folder.rglob("*.html") if not (path.parent / "run.json").exists())
    return {path: path.stat().st_mtime_ns for path in documents}


def told(made):
    """Title, headline and section names of a page: all that does not depend on time."""
    text = made.read_text(encoding="utf-8")
    parts = re.findall(r"<h1>(.*?)</h1>|<p class=\"lead\">(.*?)</p>|<h2>(.*?)</h2>", text, re.DOTALL)
    return [part for result in parts for part in result if part]


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_the_command_on_a_page_makes_the_page_again(words, place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    before = pages(place)
    runs = {path.name.split("-")[2]: path.name for path in sorted(place.glob("runs/[!.]*"), reverse=True)}
    words = [{"VAE": runs["our"], "CLASSIFIER": runs["digits"]}.get(word, word) for word in words]
    assert main(words) == 0, capsys.readouterr().err
    (made,) = (path for path, time in pages(place).items() if before.get(path) != time)
    first, text = told(made), made.read_text(encoding="utf-8")
    commands = [html.unescape(result) for result in re.findall(r'<pre class="command"[^>]*><code>(.*?)</code>', text)]
    again = shlex.split(commands[0])
    assert again[0] == "polariscope"
    assert "latest" not in again, "tomorrow that is another run"
    before = pages(place)
    assert main(again[1:]) == 0, capsys.readouterr().err
    (second,) = (path for path, time in pages(place).items() if before.get(path) != time)
    assert told(second) == first


def test_the_configuration_on_a_page_trains_the_model_again(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    (run,) = (path.name for path in place.glob("runs/[!.]*-our-squares-*"))
    assert main([word.replace("latest", run) for word in COMMANDS["examine the latest run"]]) == 0
    record = json.loads((place / "runs" / run / "run.json").read_text(encoding="utf-8"))
    text = (place / "runs" / run / "findings" / "examine" / "report.html").read_text(encoding="utf-8")
    (toml,) = re.findall(r'<pre class="toml"[^>]*><code>(.*?)</code>', text, re.DOTALL)
    Path("again.toml").write_text(html.unescape(toml), encoding="utf-8")
    _, train = re.findall(r'<pre class="command"[^>]*><code>(.*?)</code>', text)
    before = set(place.glob("runs/[!.]*"))
    assert main([*shlex.split(html.unescape(train))[1:], "--runs", "runs"]) == 0, capsys.readouterr().err
    (new,) = set(place.glob("runs/[!.]*")) - before
    made = json.loads((new / "run.json").read_text(encoding="utf-8"))
    assert made["config"] == record["config"]


def test_a_page_made_in_python_claims_no_command():
    text = page([Findings("m", "Made in Python.", settings={"count": 3})])
    assert 'class="command"' not in text
    assert "how to run it again" not in text
