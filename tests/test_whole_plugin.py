"""A plug-in file with one of everything: all of it is used from the command line, and nothing else is edited."""

import json
import sys
from pathlib import Path

import pytest

from polariscope import plugins
from polariscope.cli import commands, main
from polariscope.examination.catalogue import examinations
from polariscope.examination.next_steps import offers
from polariscope.findings import Findings, Part, Shown
from polariscope.lab.run_documents import kept_findings
from polariscope.lab.store import Store
from polariscope.manipulation.manipulation import manipulations
from polariscope.nets.model import models
from polariscope.objectives.objective import objectives
from polariscope.testing import check_view, check_world
from polariscope.user_code import load_source
from polariscope.worlds.world import worlds

PLUGIN = '''
from dataclasses import dataclass, field
from html import escape
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from polariscope.cli import commands
from polariscope.cli.configuration import parse_world
from polariscope.cli.parsing import JSON, OUT, take_data
from polariscope.examination.catalogue import examinations
from polariscope.findings import Findings, Part, Text
from polariscope.lab.run_documents import keep_findings
from polariscope.manipulation.manipulation import Fitted, manipulations
from polariscope.nets.model import models
from polariscope.objectives.objective import Terms, objectives
from polariscope.objectives.predict import Supervised
from polariscope.objectives.segment import mask_of
from polariscope.registry import plain
from polariscope.report.terminal import answer
from polariscope.worlds.factors import Factor, FactorGrid
from polariscope.worlds.targets import Target, target_values
from polariscope.worlds.view import View
from polariscope.worlds.world import GridWorld, World, worlds


@worlds.register("stains")
@dataclass(frozen=True)
class Stains(GridWorld):
    """A bright stain on the left half of a dark image; its mask is the target."""

    size: int = 8

    @property
    def grid(self):
        return FactorGrid((Factor("row", self.size - 1), Factor("column", self.size // 2 - 1)))

    @property
    def shape(self):
        return (1, self.size, self.size)

    @property
    def targets(self):
        return (Target("stain", "mask", 2, ("clean", "stained")),)

    def render(self, factors):
        return (55 + 200 * self._masks(factors))[:, None].astype(np.uint8)

    def target_of(self, index):
        return self._masks(self.factors_of(index))

    def _masks(self, factors):
        row, column = np.asarray(factors).T[..., None, None]
        at = np.arange(self.size)
        inside = (at[:, None] - row) // 2 == 0
        return (inside & ((at - column) // 2 == 0)).astype(np.int64)


@worlds.register("quarter-turn")
@dataclass(frozen=True)
class QuarterTurn(View):
    """Another world turned by 90 degrees, its masks with it."""

    examples: ClassVar = ({"of": "mini-sprites"},)
    of: World

    @property
    def shape(self):
        channels, height, width = self.of.shape
        return (channels, width, height)

    def shown(self, observations, index):
        return np.ascontiguousarray(np.rot90(observations, axes=(-2, -1)))

    def shown_target(self, target, index):
        return np.ascontiguousarray(np.rot90(target, axes=(1, 2))) if target.ndim == 3 else target


@models.register("pixelwise")
@dataclass(frozen=True)
class Pixelwise:
    """The class of a pixel from its brightness alone."""

    hidden: int = 4

    def build(self, brief):
        classes = brief.outputs
        first = nn.Conv2d(brief.observation[0], self.hidden, 1)
        return nn.Sequential(first, nn.Tanh(), nn.Conv2d(self.hidden, classes, 1))


@objectives.register("brier")
@dataclass(frozen=True)
class Brier(Supervised):
    """The squared error of the probabilities of each pixel's class."""

    dense: ClassVar = True

    def default_model(self):
        return Pixelwise()

    def __call__(self, model, batch, step):
        target = mask_of(batch)
        shares = model(batch.x).softmax(1)
        truth = nn.functional.one_hot(target, shares.shape[1]).movedim(-1, 1)
        loss = (shares - truth).square().sum(1).mean()
        right = (shares.argmax(1) == target).sum()
        return Terms(loss, {"brier": loss}, counts={"right": right, "all": torch.tensor(target.numel())})

    def scores(self, counts):
        return {"pixel_accuracy": float(counts["right"] / counts["all"])}


@dataclass(frozen=True)
class Area:
    label: str
    share: float


@dataclass(frozen=True, kw_only=True)
class Areas(Part):
    """A bar for each class, as long as its share of the pixels."""

    areas: list[Area]
    image: Any = field(default=None)

    def plain(self):
        return {area.label: area.share for area in self.areas}

    def html(self, place):
        bars = (f"<p class='area'>{escape(a.label)}: {a.share:.1%}</p>" for a in self.areas)
        return "".join(bars)


@dataclass(frozen=True)
class AreaResult:
    shares: dict
    accuracy: float

    def findings(self):
        areas = [Area(label, share) for label, share in self.shares.items()]
        part = Areas(name="areas", title="Areas", areas=areas, image=np.eye(3))
        headline = f"{self.accuracy:.0%} of the pixels are right."
        return Findings("areas", headline, [part], facts={"accuracy": self.accuracy})


@examinations.register("areas", "how large is each class in the masks that a model predicts")
def areas(subject, world, *, count: int = 20):
    """How large is each class in the masks that a model predicts."""
    numbers = np.arange(min(count, len(world)))
    x = torch.as_tensor(world.observe(numbers)).float() / 255
    with torch.no_grad():
        mask = subject.module(x).argmax(1).numpy()
    right = float((mask == target_values(world, numbers)).mean())
    return AreaResult({"clean": float((mask == 0).mean()), "stained": float((mask == 1).mean())}, right)


@manipulations.register("brighter")
@dataclass(frozen=True)
class Brighter:
    """Every observation a little brighter."""

    epsilon: float = 0.1
    share: float = 0.5
    """How much of epsilon is added."""

    def fit(self, world, seed, tell):
        def change(factors, start):
            return np.full((len(factors), *world.shape), self.epsilon * self.share, np.float32)

        return Fitted(change)

    def describe(self):
        return plain(self)


@commands.register("count-stains", "count the stained pixels of data with masks", group="data")
def main(arguments):
    arguments = list(arguments)
    world, options = parse_world(take_data(arguments) or "stains", arguments, "count-stains", [OUT, JSON])
    stained = int(target_values(world, np.arange(len(world))).sum())
    findings = Findings("stains", f"{stained} pixels are stained.", [Text(name="t", title="T", lines=["Counted."])],
                        facts={"stained": stained})
    return answer(findings, keep_findings(findings, "count-stains", out=options.out), options.json)
'''
MORE = """

@examinations.register("spread", "how far codes spread", needs="codes")
def spread(subject, world):
    raise NotImplementedError


@commands.register("stain-note", "note something about a run", group="examination", needs="run")
def note(arguments):
    raise NotImplementedError
"""
OWN = '''
import torch


def bright():
    """A network that needs no training: a pixel is stained if it is brighter than one half."""
    net = torch.nn.Conv2d(1, 2, 1)
    net.weight.data, net.bias.data = torch.tensor([0.0, 1.0]).reshape(2, 1, 1, 1), torch.tensor([0.5, 0.0])
    return net
'''
CATALOGUES = (worlds, models, objectives, commands, examinations, manipulations)
STAINED = 4 * 7 * 3
"""Pixels of a stain, times its places in 8 x 8 pixels."""


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """``run("train", ...)`` in a folder with the plug-in: what ``--json`` printed. Nothing of it stays registered."""
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(PLUGIN, encoding="utf-8")
    Path("own.py").write_text(OWN, encoding="utf-8")
    monkeypatch.setattr(plugins, "_FILES", {})
    monkeypatch.setattr(Part, "kinds", dict(Part.kinds))
    for catalogue in CATALOGUES:
        catalogue.names()
        for store in ("_entries", "_about"):
            monkeypatch.setattr(catalogue, store, dict(getattr(catalogue, store)))

    def call(*words: str) -> dict:
        code = main([*words, "--plugin", "mine.py", "--json"])
        captured = capsys.readouterr()
        assert code == 0, captured.err
        return json.loads(captured.out)

    yield call
    for name in [name for name in sys.modules if name.startswith("plugin_")]:
        del sys.modules[name]


def test_one_of_everything_is_used_from_the_command_line(run, capsys) -> None:
    assert {"stains", "quarter-turn"} <= {row["name"] for row in run("worlds")}
    assert run("count-stains", "stains")["stained"] == STAINED
    turned = run("count-stains", "quarter-turn", "--world.of", "stains", "--out", "turned.html")
    assert (turned["stained"], turned["report"]) == (STAINED, "turned.html"), "masks turn with the images"
    assert main(["--help", "--plugin", "mine.py"]) == 0
    overview = capsys.readouterr().out
    assert "count the stained pixels of data with masks" in overview
    assert "how large is each class in the masks that a model predicts" in overview

    trained = run(
        *("train", "quarter-turn", "--world.of", "stains", "--objective", "brier", "--model", "pixelwise"),
        *("--model.hidden", "3", "--training.steps", "60", "--training.learning-rate", "0.05", "--name", "mine"),
    )
    assert trained["result"]["held_out_pixel_accuracy"] == 1.0, "brightness tells the class"
    assert trained["result"]["held_out_loss"] < 0.2

    answer = run("areas", "mine", "--count", "5")
    assert answer["areas"]["stained"] == pytest.approx(4 / 64)
    assert answer["accuracy"] == 1.0, "the mask that it is held against was turned too"
    assert (answer["settings"]["run"], answer["settings"]["count"]) == (trained["id"], 5)
    page = Path(answer["report"])
    assert page == Path("runs", trained["id"], "findings", "areas", "report.html")
    assert "<p class='area'>stained: 6.2%</p>" in page.read_text(encoding="utf-8")
    (listed,) = run("runs", "findings", "mine")["findings"]
    assert (listed["kind"], listed["headline"]) == ("areas", "100% of the pixels are right.")

    (document,) = kept_findings(Store(Path("runs")).open("mine"))
    (part,) = document.load()[0].parts
    assert (type(part).__name__, part.areas[1].label, part.image.trace()) == ("Areas", "stained", 3.0)
    Part.kinds.pop("Areas")
    back = Findings.load(page)
    assert isinstance(back.parts[0], Shown)
    assert back.save("again.html").read_text(encoding="utf-8") == page.read_text(encoding="utf-8")

    own = run("areas", "own.py:bright", "stains", "--count", "3")
    assert (own["accuracy"], own["report"]) == (1.0, "areas.html"), "and for a module of the user's"
    changed = run("manipulate", "mini-sprites", "--kind", "brighter", "--share", "0.25", "--count", "30")
    assert changed["max_norm"] == pytest.approx(0.025, abs=0.5 / 255), "a quarter of the bound, in steps of bytes"


def test_what_can_be_done_next_with_a_run_includes_a_plug_ins_examination(run, capsys) -> None:
    Path("mine.py").write_text(PLUGIN + MORE, encoding="utf-8")
    words = [*("--training.steps", "2", "--model.hidden", "2", "--plugin", "mine.py")]
    assert main(["train", "stains", "--objective", "brier", "--model", "pixelwise", *words]) == 0
    mine = Path("mine.py").resolve()
    (made,) = Store(Path("runs")).runs()
    last = capsys.readouterr().out.splitlines()[-1]
    after = f"{made.id} --plugin {mine}"
    assert last == f"next: polariscope areas {after} or polariscope stain-note {after}", "spread needs codes"
    assert [place.name for place in offers() if place.needs == "codes"] == ["examine", "spread"]
    with pytest.raises(ValueError, match="needs 'kodes': did you mean 'codes'"):
        examinations.register("odd", needs="kodes")


def test_a_file_can_be_a_plug_in_and_name_the_model(run, capsys) -> None:
    Path("mine.py").write_text(PLUGIN + OWN + "\n\nmade = bright()\n", encoding="utf-8")
    for name in ("bright", "made"):
        answer = run("areas", f"mine.py:{name}", "stains", "--count", "3", "--out", f"{name}.html")
        assert answer["accuracy"] == 1.0
    module = plugins.module_of("mine.py")
    assert worlds.get("stains") is module.Stains, "the file was run once"
    assert load_source("mine.py:made") is not module.made, "each model has weights of its own"
    assert plugins.module_of("own.py") is None


def test_what_it_brings_keeps_the_contracts(run, capsys) -> None:
    plugins.load_plugin("mine.py")
    check_world(worlds.build("stains"))
    check_view(worlds.build({"name": "quarter-turn", "of": "mini-sprites"}))
    for words, problem in ((["areas"], "which model?"), (["areas", "own.py:bright"], "which data?")):
        assert main(words) == 2
        assert problem in capsys.readouterr().err
