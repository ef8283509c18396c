"""A run is written by one process at a time, and the others hear who does."""

import os
import platform
import signal
import subprocess
import sys
import threading

import pytest

import polariscope.lab.holding
from polariscope.lab import Store
from polariscope.lab.holding import InUseError, hold, is_held
from polariscope.nets.architecture import MLP
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.objectives.vae import VAE
from polariscope.studies.study import Bench
from polariscope.training import RunConfig, TrainingConfig, train
from polariscope.worlds.renderers.mini_sprites import MiniSprites

HOLDER = """
import runpy, sys, time
from pathlib import Path
hold = runpy.run_path(sys.argv[1])["hold"]  # the module alone starts much faster than the package
with hold(Path(sys.argv[2])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_another_process_is_named_and_its_death_frees_the_run(tmp_path) -> None:
    folder = tmp_path / "runs" / "victim"
    words = [sys.executable, "-c", HOLDER, polariscope.lab.holding.__file__, str(folder)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        expected = rf"run victim is in use by process {process.pid} on {platform.node()} since \d{{4}}-\d\d-\d\d \d\d:"
        for _ in range(2):  # the first to be refused must not take the name away
            with pytest.raises(InUseError, match=expected), hold(folder):
                pass
        process.send_signal(signal.SIGKILL)
    with hold(folder):
        assert (tmp_path / "runs" / ".victim.holder").exists()
    assert not (tmp_path / "runs" / ".victim.holder").exists()


def test_who_holds_a_run_may_hold_it_again(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with hold(tmp_path / "run"):
        with hold(tmp_path / "run"), hold(type(tmp_path)("run"), wait=True):
            pass
        assert refused_elsewhere(tmp_path / "run"), "to let go of the inner one must not let go of the outer"
    assert not refused_elsewhere(tmp_path / "run")
    with hold(tmp_path / "run"), hold(tmp_path / "another"):
        pass


def test_a_link_to_a_run_is_the_run(tmp_path) -> None:
    (tmp_path / "runs" / "run").mkdir(parents=True)
    (tmp_path / "alias").symlink_to(tmp_path / "runs")
    (tmp_path / "short").symlink_to(tmp_path / "runs" / "run")
    for path in (tmp_path / "runs" / "run", tmp_path / "alias" / "run", tmp_path / "short"):
        with hold(path):
            assert is_held(tmp_path / "short")
            assert refused_elsewhere(tmp_path / "runs" / "run")
            assert refused_elsewhere(tmp_path / "alias" / "run")
            assert refused_elsewhere(tmp_path / "short")
            with hold(tmp_path / "short"):
                pass
        assert not is_held(path)
    assert not is_held(tmp_path / "never")


def test_who_waits_comes_in_when_the_other_goes(tmp_path) -> None:
    order = []

    def second() -> None:
        with hold(tmp_path / "run", wait=True):
            order.append("second")

    with hold(tmp_path / "run"):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.3)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_a_place_that_cannot_be_written_is_said(tmp_path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match=r"cannot write to the run folder .*file"), hold(tmp_path / "file" / "run"):
        pass


@pytest.fixture
def config() -> RunConfig:
    return RunConfig(
        MiniSprites(), VAE(), AutoencoderConfig(2, MLP((4,), (4,))), TrainingConfig(steps=3, evaluate_every=0)
    )


def test_a_name_that_another_trains_is_not_trained_twice(tmp_path, config) -> None:
    with hold(tmp_path / "victim"):
        result = elsewhere(lambda: train(config, Store(tmp_path), run_id="victim"))
    assert isinstance(result, InUseError)
    assert not (tmp_path / "victim").exists()
    assert train(config, Store(tmp_path), run_id="victim").status == "done"


def test_two_jobs_that_need_the_same_run_train_it_once(tmp_path, config) -> None:
    """The second waits for the first, wherever that is, and then takes what it made."""
    store = Store(tmp_path)
    done: list = []
    bench = Bench(store, lambda point: None)
    second = threading.Thread(target=lambda: done.append(bench.train(config)))
    run_id = bench.train(config).id
    run = store.open(run_id)
    run.update(status="running")
    with hold(run.path):
        second.start()
        second.join(0.3)
        assert not done, "somebody is at it"
        run.update(status="done", result={"by": "the first"})
    second.join()
    assert done[0].result["by"] == "the first"
    assert done[0].record["updated"] == run.record["updated"], "nothing was left to do"


def refused_elsewhere(folder) -> bool:
    def ask() -> None:
        with hold(folder):
            pass

    result = elsewhere(ask)
    assert result is None or f"process {os.getpid()} on" in str(result)
    return isinstance(result, InUseError)


def elsewhere(work) -> BaseException | None:
    """What came of some work in another thread, which has locks of its own as another process has."""
    result: list[BaseException | None] = []

    def attempt() -> None:
        try:
            work()
            result.append(None)
        except InUseError as error:
            result.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    return result[0]
