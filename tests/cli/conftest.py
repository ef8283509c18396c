"""Shared by the tests of the command line."""

import json

import pytest

from polariscope.cli import main
from polariscope.lab import Run, Store

QUICK = ["--model.architecture", "mlp"]
QUICK += ["--model.architecture.encoder-widths", "16", "--model.architecture.decoder-widths", "16"]
SMALL = ["--world.size", "16", "--model.latents", "3", "--training.steps", "6", "--training.batch-size", "8", *QUICK]


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """``run("worlds", "--json")`` in an empty folder: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> tuple[int, str, str]:
        code = main(list(words))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def small() -> list[str]:
    """Words after ``train sprites`` that make it take a moment."""
    return list(SMALL)


@pytest.fixture
def trained(run, tmp_path):
    """``trained()``: a small run in ``runs``, trained through the command line."""

    def train(*more: str) -> Run:
        code, out, err = run("train", "sprites", *SMALL, *more, "--json")
        assert code == 0, err
        return Store(tmp_path / "runs").open(json.loads(out)["id"])

    return train


@pytest.fixture
def one_process(monkeypatch) -> None:
    """Several jobs, one after the other and here: a process more takes seconds to start."""
    monkeypatch.setattr("os.cpu_count", lambda: 1)
