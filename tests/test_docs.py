"""What the documentation says exists, exists."""

import importlib
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import polariscope
from polariscope.cli import commands as registered
from polariscope.objectives import objectives
from polariscope.report.terminal import show
from polariscope.studies import studies
from polariscope.worlds import worlds

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_every_command_has_its_line_in_the_reference() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    for name in registered.names():
        assert re.search(rf"^\| `{name}[` ]", text, re.MULTILINE), name


def commands(page: Path) -> list[list[str]]:
    """The words of every ``polariscope ...`` line in a page's code blocks."""
    blocks = page.read_text().split("```")[1::2]
    lines = [line.split("#")[0].split() for block in blocks for line in block.splitlines()]
    return [words[1:] for words in lines if words[:1] == ["polariscope"]]


def test_commands_in_the_pages_exist() -> None:
    shown = [words for page in PAGES for words in commands(page)]
    assert len(shown) > 10
    for command, *rest in shown:
        assert command in registered.names(), command
        if "--plugin" in rest:  # what it names is the reader's own
            continue
        if command in ("train", "dimension") and not rest[0].startswith("-"):
            worlds.get(rest[0])
        if command == "reproduce":
            studies.get(rest[0])
        if "--objective" in rest:
            objectives.get(rest[rest.index("--objective") + 1])


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_specification_is_here() -> None:
    assert len(list((ROOT / "docs" / "spec").glob("*.md"))) == 6


def blocks(page: Path, language: str = "python") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def test_the_examination_that_contributors_are_shown_works(tmp_path, capsys) -> None:
    (code,) = (block for block in blocks(ROOT / "CONTRIBUTING.md") if "def findings(" in block)
    names: dict = {"__name__": __name__}
    exec(code, names)  # as a newcomer would paste it

    class Halves(torch.nn.Module):
        def encode(self, x):
            return torch.stack([x[:, 0], torch.where(x[:, 1] > 0, x[:, 1], 0.0)], 1)

    points = np.random.default_rng(0).normal(size=(400, 2))
    findings = names["sparsity"](Halves(), points).findings()
    assert findings.json()["sparsity"][1]["share"] > 0.5 > findings.json()["sparsity"][0]["share"]
    show(findings, findings.save(tmp_path / "report.html"))
    assert findings.headline in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert findings.headline in capsys.readouterr().out


def test_the_study_that_contributors_are_shown_works(tmp_path) -> None:
    (code,) = (block for block in blocks(ROOT / "CONTRIBUTING.md") if "studies.register" in block)
    (tmp_path / "coin.py").write_text(f'"""A study."""\n\n{code}', encoding="utf-8")
    script = "import sys, pathlib; from polariscope.plugins import load_plugin; load_plugin(sys.argv[1]); "
    script += "from polariscope.testing import check_study; check_study('coin', pathlib.Path(sys.argv[2]))"
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "coin.py", tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_reference_is_what_the_docstrings_say() -> None:
    namespace = runpy.run_path(str(ROOT / "docs" / "make_reference.py"))
    hint = "'python docs/make_reference.py' makes the page again"
    assert namespace["reference"]() == (ROOT / "docs" / "reference.md").read_text(encoding="utf-8"), hint


def test_what_nothing_calls_is_shown_to_users_or_is_an_oracle_of_a_test() -> None:
    """The names with a † in the reference: those of theory are what tests compare with, the others stand in a guide."""
    guides = {word for page in PAGES if page.name != "reference.md" for word in re.findall(r"\w+", page.read_text())}
    tests = {word for file in (ROOT / "tests").rglob("*.py") for word in re.findall(r"\w+", file.read_text())}
    scripts = {word for file in (ROOT / "scripts").glob("*.py") for word in re.findall(r"\w+", file.read_text())}
    rooms = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8").split("\n## ")[1:]
    marked = {(room.split()[0], name) for room in rooms for name in re.findall(r"^- `(\w+)` †", room, re.M)}
    assert len(marked) > 100
    assert sorted(name for room, name in marked if room == "theory" and name not in tests | guides) == []
    assert sorted(name for room, name in marked if room != "theory" and name not in guides | scripts) == []


def test_places_in_the_guide_to_python_exist() -> None:
    guide = (ROOT / "docs" / "in-python.md").read_text(encoding="utf-8")
    places = re.findall(r"`([a-z_]+(?:\.\w+){2,})`", guide)
    assert len(places) > 60
    for place in places:
        module, _, name = place.rpartition(".")
        assert hasattr(importlib.import_module(f"polariscope.{module}"), name), place


def test_names_of_the_package_in_the_pages_exist() -> None:
    functions = {name for page in PAGES for name in re.findall(r"\bpolariscope\.([a-z_]+)\(", page.read_text())}
    assert {"examine", "save"} <= functions
    for name in functions:
        assert hasattr(polariscope, name), name
    places = {
        place for page in PAGES for place in re.findall(r"^from (polariscope[\w.]*) import", page.read_text(), re.M)
    }
    for place in places:
        importlib.import_module(place)


def test_the_steps_of_the_guide_to_the_result_document_work(tmp_path, monkeypatch) -> None:
    """The block as it stands, with a result and another in place of the reader's."""
    monkeypatch.chdir(tmp_path)
    (code,) = (block for block in blocks(ROOT / "docs" / "your-own.md") if "document.save" in block)
    points = np.random.default_rng(0).normal(size=(50, 2))
    result = polariscope.examine(lambda x: x, points, (points[:, 0] > 0).astype(int), measured=["mig"])
    names = {"result": result, "other": result, "polariscope": polariscope}
    exec(code, names)
    assert set(names["figures"]) == {"factors", "histograms"}
    assert {"report.html", "both.html", "out"} == {path.name for path in tmp_path.iterdir()}
    files = {
        "report.html",
        "findings.json",
        "document.json",
        *(f"{n}.{e}" for n in names["figures"] for e in ("png", "svg")),
    }
    assert {path.name for path in (tmp_path / "out").iterdir()} == files


def test_python_in_the_readme_runs_as_printed(tmp_path, monkeypatch) -> None:
    """In a fresh installation, which has no pandas."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "pandas", None)
    printed = blocks(ROOT / "README.md")
    assert printed
    for code in printed:
        names: dict = {"__name__": "__main__"}
        exec(code, names)
        assert (tmp_path / "report.html").stat().st_size > 10_000
        assert sum(names["result"].counts.values()) == len(names["result"].records()) == 10


@pytest.mark.parametrize("name", ["how-to.md", "in-python.md", "paper-to-claim.md"])
def test_python_of_the_guides_runs_as_printed(name, tmp_path, monkeypatch) -> None:
    """The blocks of a page one after another, as a reader would paste them."""
    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": "__main__"}
    printed = blocks(ROOT / "docs" / name)
    assert printed
    for code in printed:
        exec(code, names)


OWN = """
import functools, inspect, math, dataclasses
from dataclasses import dataclass
from typing import ClassVar
import numpy as np, torch
from torch import nn
import polariscope
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.nets.model import Brief, models
from polariscope.nets.predictors import LeNet, predicts
from polariscope.objectives.predict import Classify
from polariscope.subjects import Subject
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.run import train
from polariscope.worlds.factors import Factor, FactorGrid
from polariscope.worlds.renderers.mini_sprites import MiniSprites
from polariscope.worlds.targets import Task
from polariscope.worlds.view import View
from polariscope.worlds.world import GridWorld, World, worlds
from polariscope.examination.catalogue import examinations
images = MiniSprites().observe(np.arange(0, len(MiniSprites()), 13))
labels = MiniSprites().factors_of(np.arange(0, len(MiniSprites()), 13))[:, 0]
"""
"""Names that the blocks of CONTRIBUTING.md leave out, and images with labels."""
CLASSIFIER = """
network = plain = model = nn.Sequential(nn.Flatten(), nn.Linear(images[0].size, 3))
x, y = torch.from_numpy(images[:40] / 255.0).float(), labels[:40]
"""
ENCODER = """
class Mine(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(images[0].size, 6)
    def encode(self, x):
        mean, logvar = self.layer(x.flatten(1)).chunk(2, 1)
        return {"mean": mean, "logvar": logvar}
    def forward(self, x):
        code = self.encode(x)
        return x, code["mean"], code["logvar"]
model, second = Mine(), Mine()
"""
RUN = """
train(RunConfig(Task(MiniSprites()), Classify(), LeNet(), TrainingConfig(2, 8)), "runs", quiet=True)
import polariscope.examination.corruptions, polariscope.examination.robustness
for module, name, less in (("corruptions", "withstand_run", {"count": 20}),
                           ("robustness", "robustness_run", {"count": 4, "norms": ("linf",)})):
    place = getattr(polariscope.examination, module)
    setattr(place, name, functools.partial(getattr(place, name), **less))
"""
LESS_NOISE = """
import polariscope.robustness.adversarial_noise as place
place.NoiseAttack = functools.partial(place.NoiseAttack, steps=2)
"""
PLACED = """
from polariscope.training.sweep import train_all as ours
configs = store = None
def train_all(*given):  # there is no cluster here, so the call is checked and not made
    inspect.signature(ours).bind(*given)
    assert (given[2].executor, given[2].address, given[2].gpus) == ("ray", "auto", 1)
"""
BARS = """
bars = worlds.get("bars")(size=4)
assert bars.grid.sizes == (4,) and bars.shape == (1, 4, 4)
"""
NEGATIVE = """
world = worlds.get("negative")(of=MiniSprites())
assert (world.observe([3]) == 255 - MiniSprites().observe([3])).all()
"""
RIDGE = """
import polariscope.training.run as runs
network = runs.build_model(RunConfig(Task(MiniSprites()), Classify(), models.get("ridge")()))
assert network(torch.zeros(2, *MiniSprites().shape)).shape == (2, 3)
"""
GREY = """
from polariscope.robustness.attacks import attacks
assert attacks.get("to-grey")().needs == "decision"
"""
SURROUNDED = {  # the page and a piece of the block, with what stands before it, behind it, and shorter settings
    ("CONTRIBUTING.md", "class Bars"): ("", BARS, {}),
    ("CONTRIBUTING.md", "class Negative"): ("", NEGATIVE, {}),
    ("CONTRIBUTING.md", "class Ridge"): ("", RIDGE, {}),
    ("CONTRIBUTING.md", "@examinations.register"): (
        "Sparsity = object",
        "assert 'sparsity' in examinations.names()",
        {},
    ),
    ("docs/cli.md", "generator_distances"): (
        CLASSIFIER + LESS_NOISE,
        "assert distances.mean >= 0 and distances.findings().headline",
        {},
    ),
    ("docs/cluster.md", "train_all"): (PLACED, "", {}),
    ("docs/robustness.md", "class ToGrey"): ("", GREY, {}),
    ("docs/your-own.md", "import withstand\n"): (CLASSIFIER, "assert set(result.by_kind) == {'gaussian', 'fog'}", {}),
    ("docs/your-own.md", "result.to_frame"): (
        ENCODER,
        "assert result.representation.latents == 3",
        {"result.to_frame()": "result.to_arrow()"},  # pandas is not part of the test extra
    ),
    ("docs/your-own.md", "withstand_run"): (RUN, "", {}),
    ("docs/your-own.md", "ArrayWorld(images"): ("", "assert model.latents == 10", {"steps=5000": "steps=2"}),
}
ELSEWHERE = [
    ("CONTRIBUTING.md", "def findings("),
    ("CONTRIBUTING.md", "studies.register"),
    ("docs/your-own.md", "document.save"),
    *((name, "") for name in ("README.md", "docs/how-to.md", "docs/in-python.md", "docs/paper-to-claim.md")),
]
"""Blocks that other tests execute."""


def test_python_that_leaves_names_to_the_reader_runs_with_them(tmp_path) -> None:
    """Each block as printed, with the reader's model and data before it; in one process of its own, as blocks register
    what they define."""
    lines = [OWN]
    for page in PAGES:
        name = str(page.relative_to(ROOT))
        for code in blocks(page):
            if any(name == other and piece in code for other, piece in ELSEWHERE):
                continue
            (surrounding,) = [value for (other, piece), value in SURROUNDED.items() if name == other and piece in code]
            before, behind, shorter = surrounding
            for printed, less in shorter.items():
                assert printed in code
                code = code.replace(printed, less)
            lines += [before, code, behind]
    script = tmp_path / "blocks.py"
    script.write_text("\n".join(lines), encoding="utf-8")
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(lines) == 1 + 3 * len(SURROUNDED)


@pytest.mark.deep
def test_the_site_is_built_without_a_warning(tmp_path) -> None:
    pytest.importorskip("mkdocs", reason="the extra [docs] is not installed: the site is not built")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "examine" in (tmp_path / "site" / "api" / "examination" / "index.html").read_text(encoding="utf-8")
