"""Being told to stop by a scheduler, and what is said about going on."""

import os
import shlex
import signal
from contextlib import contextmanager

import pytest

from polariscope.cli import main
from polariscope.interrupts import as_if_interrupted, once
from polariscope.lab import Store


def stop(*arguments, **options) -> None:
    raise KeyboardInterrupt


def test_sigterm_saves_the_state_and_says_how_to_go_on(run, small, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("polariscope.training.run.TELL_EVERY", -1.0)  # every step is told

    @contextmanager
    def impatient(names, steps, quiet):
        yield [lambda point: os.kill(os.getpid(), signal.SIGTERM) if point.step == 3 else None]

    monkeypatch.setattr("polariscope.cli.train.bars", impatient)
    code, out, err = run("train", "sprites", *small)
    assert (code, out) == (143, "")
    (result,) = Store(tmp_path / "runs").runs()
    assert (result.status, result.result["step"]) == ("interrupted", 4)
    assert err.splitlines()[-1] == f"interrupted; continue with: polariscope train --resume {result.id}"
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, "a program that called us has its own again"
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(err.splitlines()[-1].partition(": ")[2])[1:]) == 0
    result.reload()
    assert (result.status, result.result["step"]) == ("done", 6)


def test_a_second_signal_does_not_cut_the_saving_short() -> None:
    came = []
    handler = once(lambda number, frame: came.append(number))
    handler(15, None)
    handler(15, None)
    assert came == [15]


def test_sigterm_reaches_who_ignores_ctrl_c() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(KeyboardInterrupt):
            as_if_interrupted(15, None)
    finally:
        signal.signal(signal.SIGINT, before)


STARTED_AGAIN = {
    "dimension": ("polariscope.cli.dimension.parse_run", ["dimension", "sprites", "--world.size", "16"]),
    "kernel": ("polariscope.cli.kernel.parse_world", ["kernel", "mlp", "my digits"]),
    "manipulate": ("polariscope.cli.manipulate.apply", ["manipulate", "plane", "--epsilon", "0.1"]),
}


@pytest.mark.parametrize("name", STARTED_AGAIN)
def test_what_keeps_nothing_says_the_command_that_starts_again(run, monkeypatch, name) -> None:
    place, words = STARTED_AGAIN[name]
    monkeypatch.setattr(place, stop)
    code, _, err = run(*words)
    assert code == 130
    # A manipulation goes on in a folder of another name, for its own must be new.
    again = err.splitlines()[-1].removesuffix(" --out manipulated-again")
    assert again == f"interrupted; start again with: polariscope {shlex.join(words)}"


@pytest.mark.usefixtures("undrawn")
def test_a_generalisation_goes_on_with_what_it_has_trained(run, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("polariscope.training.run.TELL_EVERY", -1.0)  # every step is told
    words = ["generalise", "mlp", "--world", "mini-sprites", "--splits", "random", "interpolation"]
    words += ["--steps", "4", "--batch-size", "4", "--count", "20"]
    trainings: list[str] = []

    @contextmanager
    def impatient(names, steps, quiet):
        def tell(point) -> None:
            trainings.append(f"{names[0]} {point.step}")
            if trainings[-1] == "mlp, interpolation 2" and len(trainings) < 8:
                os.kill(os.getpid(), signal.SIGINT)

        yield [tell]

    monkeypatch.setattr("polariscope.cli.generalise.bars", impatient)
    code, _, err = run(*words)
    assert code == 130
    assert err.splitlines()[-1] == f"interrupted; continue with: polariscope {shlex.join(words)}"
    assert trainings[-1] == "mlp, interpolation 2"
    trainings.clear()
    code, out, err = run(*words)
    assert code == 0, err
    assert trainings == ["mlp, interpolation 4"], "what was trained is not trained again"
    assert "report: " in out
    trained = [each for each in Store(tmp_path / "runs").runs() if each.record["kind"] == "train"]
    assert [each.status for each in trained] == ["done", "done"]


def test_a_full_disk_is_said_with_the_command_that_goes_on(run, small, tmp_path, faults) -> None:
    with faults.full_disk(14):
        code, _, err = run("train", "sprites", *small)
    (result,) = Store(tmp_path / "runs").runs()
    assert code == 2
    assert "the disk is full" in err
    assert err.splitlines()[-1].endswith(f"continue with: polariscope train --resume {result.id}")
    assert run("train", "--resume", result.id)[0] == 0
