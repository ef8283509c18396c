"""Plug-ins: what a file or an installed package registers works like our own, is recorded, and is never run unasked."""

import hashlib
import json
import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import polariscope
from polariscope import plugins
from polariscope.cli import commands, main
from polariscope.lab import Store, in_parallel
from polariscope.measures.measure import measures
from polariscope.objectives import objectives
from polariscope.training import load_model
from polariscope.user_code import UserCodeError
from polariscope.worlds import worlds

MINE = '''
from dataclasses import dataclass

import numpy as np

from polariscope.measures.measure import Measure, measures
from polariscope.objectives.autoencoding import Autoencoding, forward
from polariscope.objectives.objective import Terms, objectives
from polariscope.worlds.factors import Factor, FactorGrid
from polariscope.worlds.world import GridWorld, worlds


@worlds.register("bars")
@dataclass(frozen=True)
class Bars(GridWorld):
    """White bars on black."""

    size: int = 8

    @property
    def grid(self):
        return FactorGrid((Factor("row", self.size), Factor("column", self.size)))

    @property
    def shape(self):
        return (1, self.size, self.size)

    def render(self, factors):
        row, column = np.asarray(factors).T[..., None, None]
        at = np.arange(self.size)
        return (255 * ((at[:, None] == row) | (at == column)))[:, None].astype(np.uint8)


@objectives.register("leaning")
@dataclass(frozen=True)
class Leaning(Autoencoding):
    """The bound, and a weight on the mean code."""

    lean: float = 0.5

    def __call__(self, model, batch, step):
        p = forward(model, batch)
        return Terms(p.reconstruction + p.kl + self.lean * p.posterior.mean.square().mean() / (self.lean != 13))


@measures.register("sixth")
@dataclass(frozen=True)
class Sixth(Measure):
    title = "one sixth of the codes"

    def __call__(self, representation):
        return representation.mean.shape[1] / 6
'''
QUICK = ["--model.latents", "3", "--training.steps", "2", "--training.batch-size", "8", "--json"]
QUICK += ["--model.architecture", "mlp", "--model.architecture.encoder-widths", "8"]
QUICK += ["--model.architecture.decoder-widths", "8"]


@pytest.fixture
def forget(monkeypatch):
    """``forget()``: as in a new process, nothing was loaded. So it is before and after a test."""
    state = [
        (one, dict(one._entries), dict(one._about)) for one in (worlds, objectives, measures, commands) if one.names()
    ]
    path = list(sys.path)

    def fresh() -> None:
        for catalogue, entries, about in state:
            monkeypatch.setattr(catalogue, "_entries", dict(entries))
            monkeypatch.setattr(catalogue, "_about", dict(about))
        monkeypatch.setattr(plugins, "_FILES", {})
        monkeypatch.setattr(plugins, "_PACKAGES", {})
        for name in [name for name in sys.modules if name.startswith("plugin_")]:
            del sys.modules[name]
        sys.path[:] = path

    fresh()
    yield fresh
    fresh()


@pytest.fixture
def run(tmp_path, monkeypatch, capsys, forget):
    """``run("worlds")`` as in a new process in an empty folder: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> tuple[int, str, str]:
        forget()
        code = main(list(words))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def mine(tmp_path) -> Path:
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    return file


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def train(run, mine: Path) -> Path:
    code, out, err = run("train", "bars", "--plugin", "mine.py", "--objective", "leaning", "--world.size", "6", *QUICK)
    assert code == 0, err
    return Path(json.loads(out)["path"]).absolute()


def interrupt(path: Path) -> None:
    """As if it had been stopped before its first checkpoint."""
    record = json.loads((path / "run.json").read_text())
    (path / "checkpoint.safetensors").unlink()
    (path / "run.json").write_text(json.dumps(record | {"status": "interrupted"}))


def test_what_a_file_registers_is_on_the_command_line_and_recorded_with_its_hash(run, mine, monkeypatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = train(run, mine)
    record = json.loads((path / "run.json").read_text())
    assert record["plugins"] == [{"file": str(mine), "sha256": digest(mine)}]
    assert (record["config"]["world"], record["config"]["objective"]["lean"]) == ({"name": "bars", "size": 6}, 0.5)
    code, out, err = run(f"--plugin={mine}", "examine", path.name, "--measures", "sixth", "--count", "30", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["measures"] == {"sixth": 0.5}
    assert not list(mine.parent.glob("__pycache__")), "nothing is left beside the user's file"


def test_a_run_of_a_plugin_that_is_not_there_says_which_and_runs_nothing(run, mine, forget) -> None:
    path = train(run, mine)
    sentence = f"made with the plug-in {mine}: give --plugin {mine} again"
    code, _, err = run("examine", path.name)
    assert code == 2
    assert sentence in err
    assert err.count("\n") == 1
    assert "has changed" not in err
    assert "SHA" not in err
    interrupt(path)
    mine.write_text(f"{MINE}\nopen('was run', 'w')\n")
    code, _, err = run("train", "--resume", path.name)
    assert code == 2
    assert sentence in err
    assert f"and is {digest(mine)[:12]} now" in err
    forget()
    with pytest.raises(ValueError, match="there is no objective 'leaning', and run .* was made with the plug-in"):
        load_model(path)
    assert not Path("was run").exists()


def test_a_plugin_that_changed_is_a_note_and_both_are_recorded(run, mine) -> None:
    path = train(run, mine)
    before = digest(mine)
    interrupt(path)
    mine.write_text(MINE.replace("/ 6", "/ 12"))
    code, out, err = run("train", "--resume", path.name, "--plugin", "mine.py", "--json")
    assert (code, json.loads(out)["status"]) == (0, "done")
    note = f"the plug-in {mine} has changed since: its SHA-256 was {before[:12]} and is {digest(mine)[:12]}"
    assert err == f"note: run {path.name}: {note}\n"
    record = json.loads((path / "run.json").read_text())
    assert [entry["sha256"] for entry in record["plugins"]] == [before, digest(mine)]
    moved = mine.rename(mine.parent / "yours.py")
    code, out, err = run("examine", str(path), "--plugin", str(moved), "--measures", "sixth", "--json", "--count", "30")
    assert (code, err) == (0, ""), "the same file elsewhere is the same plug-in"
    assert json.loads(out)["measures"] == {"sixth": 0.25}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("import polariscope\n\nraise KeyError('key')\n", "reading {file} failed at {file}:3: KeyError: 'key'"),
        ("import sys\nx = (\n", "failed at {file}:2: SyntaxError: '(' was never closed"),
        (
            MINE.replace("leaning", "vae"),
            "failed at {file}:34: ValueError: two objectives are called 'vae': polariscope",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_a_sentence_with_its_line(run, mine, monkeypatch, text, sentence) -> None:
    mine.write_text(text)
    code, out, err = run("worlds", "--plugin", "mine.py")
    assert (code, out) == (2, "")
    assert sentence.format(file=mine) in err
    assert err.count("\n") == 1
    monkeypatch.setenv("POLARISCOPE_DEBUG", "1")
    with pytest.raises(UserCodeError):
        run("worlds", "--plugin", "mine.py")


def test_a_file_that_is_not_there_and_a_flag_without_one(run) -> None:
    assert run("version", "--plugin", "none.py")[::2] == (
        2,
        "error: the plug-in none.py cannot be read: No such file or directory\n",
    )
    assert run("version", "--plugin")[::2] == (2, "error: --plugin needs a value\n")


def test_what_a_plugin_raises_later_has_its_line_too(run, mine) -> None:
    mine.write_text(MINE.replace("/ (self.lean != 13)", "@ batch.x"))
    code, _, err = run("train", "bars", "--objective", "leaning", "--plugin", "mine.py", *QUICK)
    line = 1 + mine.read_text().split("\n").index(next(x for x in mine.read_text().split("\n") if "batch.x" in x))
    assert code == 2
    assert err.startswith("error: RuntimeError: ")
    assert err.endswith(f"(at {mine}:{line})\n")


COMMAND = '''
from dataclasses import dataclass

from polariscope.cli import commands
from polariscope.cli.parsing import parse
from polariscope.printable import say


@dataclass(frozen=True)
class Options:
    """Greet somebody."""

    name: str = "you"
    """Who is greeted."""


@commands.register("greet", "greet somebody", group="mine")
def greet(arguments):
    say(f"hello, {parse(Options, arguments, 'greet').name}")
    return 0
'''


def test_a_plugin_brings_a_command(run, tmp_path, capsys) -> None:
    Path("greeting.py").write_text(COMMAND)
    assert run("greet", "--name", "world", "--plugin", "greeting.py") == (0, "hello, world\n", "")
    assert "\nmine:\n  greet        greet somebody\n" in run("--help", "--plugin", "greeting.py")[1]
    assert "greet" not in run("--help")[1]
    with pytest.raises(SystemExit):
        run("greet", "--help", "--plugin", "greeting.py")
    assert "Who is greeted" in capsys.readouterr().out
    code, _, err = run("gret", "--plugin", "greeting.py")
    assert (code, err.count("\n")) == (2, 1)
    assert "there is no command 'gret': did you mean 'greet'?" in err
    Path("greeting.py").write_text(COMMAND.replace('"greet",', '"train",'))
    assert "two commands are called 'train': polariscope.cli.train and" in run("--plugin", "greeting.py")[2]


JOBS = """
from dataclasses import dataclass


@dataclass
class Number:
    of: int


def doubled(job, tell):
    if job.of == 3:
        raise RuntimeError("no threes")
    return Number(2 * job.of)
"""


def test_workers_know_what_was_loaded(tmp_path, forget) -> None:
    file = tmp_path / "jobs of mine.py"
    file.write_text(JOBS)
    polariscope.load_plugin(file)
    (name,) = [name for name in sys.modules if name.startswith("plugin_jobs_of_mine_")]
    module = sys.modules[name]
    assert in_parallel(module.doubled, [module.Number(1), module.Number(2)], 2) == [module.Number(2), module.Number(4)]
    with pytest.raises(UserCodeError, match=rf"RuntimeError: no threes \(at {file}:12\)"):
        in_parallel(module.doubled, [module.Number(1), module.Number(3)], 2)
    file.write_text(JOBS.replace("2 *", "3 *"))
    with pytest.raises(ValueError, match="was changed while it was in use"):
        in_parallel(module.doubled, [module.Number(1), module.Number(2)], 2)


def install(place: Path, name: str, text: str) -> None:
    """As pip would leave it: a module, and a description of the package with its entry point."""
    about = place / f"{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[polariscope.plugins]\n{name} = {name}_module\n")
    (place / f"{name}_module.py").write_text(text)


def test_installed_packages_are_found_and_a_broken_one_is_a_warning(tmp_path, forget) -> None:
    install(tmp_path, "whole", MINE)
    install(tmp_path, "broken", "import polariscope\n1 / 0\n")
    words = [sys.executable, "-m", "polariscope", "train", "bars", "--objective", "leaning", *QUICK]
    source = str(Path(plugins.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), source])}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == (
        f"warning: the plug-in broken of the installed package broken 1.0 failed at {tmp_path}/broken_module.py:2: "
        "ZeroDivisionError: division by zero; its entries are missing\n"
    )
    run = Store(tmp_path / "runs").open(json.loads(done.stdout)["id"])
    assert run.plugins == [{"package": "whole", "version": "1.0"}]
    with pytest.raises(ValueError, match="was made with the plug-in of the package whole 1.0: install that"):
        load_model(run)


def test_a_plugin_of_a_package_is_tried_once(monkeypatch, capsys, forget) -> None:
    monkeypatch.setattr(plugins, "_TRIED", set())
    monkeypatch.setattr(plugins, "_installed", lambda: (EntryPoint("gone", "no_such_module", plugins.GROUP),))
    plugins.load_installed()
    plugins.load_installed()
    assert capsys.readouterr().err.count("warning: the plug-in gone of the installed package") == 1
    assert plugins.record() == []


def test_a_record_that_is_nonsense_is_no_harm(run, mine) -> None:
    path = train(run, mine)
    record = json.loads((path / "run.json").read_text())
    os.mkfifo(path / "waits.py")  # to read it would take for ever
    entries = [7, {"file": "\x1b[2J.py", "sha256": 3}, {"file": str(path / "waits.py")}]
    (path / "run.json").write_text(json.dumps(record | {"plugins": entries}))
    code, _, err = run("examine", path.name)
    assert code == 2
    assert "waits.py" in err
    assert "\x1b" not in err
    (path / "run.json").write_text(json.dumps(record | {"plugins": "mine.py"}))
    assert "plugins in run.json is not a list" in run("examine", path.name)[2]
