"""What a command says, and how it ends, when a Ray cluster gives its jobs no place: on a Ray that follows a script."""

from __future__ import annotations

from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from polariscope.lab import ray_executor
from polariscope.lab.executors import Died, Done, Place
from polariscope.lab.ray_executor import FAILED_STARTS, HOPELESS, RayCluster, Ready

SILENCE = None


class GoneError(Exception):
    """What Ray raises of an actor that it does not reach, dead or not."""


class ScriptedRay:
    """A cluster of one machine with one core. Each wait takes the next line of a script: events of the first actor, an
    exception about it, or silence. The end of the script is the user's Ctrl-C."""

    exceptions = SimpleNamespace(RayError=GoneError)

    def __init__(self, *script: list[Any] | Exception | None) -> None:
        self.script = list(script)
        self.hired: list[Any] = []
        self.killed: list[Any] = []

    def remote(self, kind: type) -> Any:
        return SimpleNamespace(options=lambda **settings: SimpleNamespace(remote=self.hire))

    def hire(self) -> Any:
        calls = {name: SimpleNamespace(remote=lambda *arguments: object()) for name in ("listen", "work", "stop")}
        self.hired.append(SimpleNamespace(**calls))
        return self.hired[-1]

    def wait(self, refs: list[Any], num_returns: int, timeout: float | None) -> tuple[list[Any], list[Any]]:
        assert refs, "Ray refuses to wait for nothing"
        assert timeout is not None, "nobody waits for ever"
        if not self.script:
            raise KeyboardInterrupt
        if self.script[0] is SILENCE:
            self.script.pop(0)
            return [], refs
        return refs[:1], refs[1:]

    def get(self, ref: Any) -> Any:
        answer = self.script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def kill(self, actor: Any) -> None:
        self.killed.append(actor)

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": {"CPU": 1.0}}, {"Alive": False, "Resources": {"CPU": 64.0}}]

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 1.0}

    def available_resources(self) -> dict[str, float]:
        return {}


def job(number: int, tell: object) -> None:
    raise NotImplementedError("it is never run")


def events(monkeypatch, ray: ScriptedRay, tries: int = 1, **place: Any) -> list[Any]:
    """What a cluster reports of one job, which is tried again after a death, until it is interrupted."""
    monkeypatch.setattr(ray_executor, "_connected", lambda place, closing: ray)
    heard: list[Any] = []
    with closing(RayCluster(Place("ray", **place))) as cluster:
        cluster.submit(0, job, 0)
        try:
            for event in cluster.events():
                heard.append(event)
                if isinstance(event, Died) and tries > len(heard):
                    cluster.submit(0, job, 0)
        except KeyboardInterrupt:
            ray.script = [SILENCE] * 1000
    return heard


def test_a_command_says_once_that_it_waits_for_room(monkeypatch, capsys) -> None:
    assert events(monkeypatch, ScriptedRay(SILENCE, SILENCE), address="there") == []
    sentence = "waiting for room on the Ray cluster: a job takes 1 core; free: 0 of 1 core\n"
    assert capsys.readouterr().err == sentence


def test_a_job_at_work_may_be_silent(monkeypatch, capsys) -> None:
    monkeypatch.setattr(ray_executor, "GRACE", 0.0)
    assert events(monkeypatch, ScriptedRay([Ready()], SILENCE, SILENCE), address="there") == []
    assert capsys.readouterr().err == ""


def test_a_job_that_no_machine_has_room_for_waits_for_one_to_join_but_not_for_ever(monkeypatch, capsys) -> None:
    lack = r"no machine .* has room for a job: a job takes 2 cores and 1 GPU; the most on one: 1 core and 0"
    with pytest.raises(ValueError, match=lack):
        events(monkeypatch, ScriptedRay(SILENCE), cpus=2, gpus=1)  # on this machine, where none can join
    assert events(monkeypatch, ScriptedRay(SILENCE, SILENCE), cpus=2, gpus=1, address="there") == []
    assert capsys.readouterr().err.endswith("the most on one: 1 core and 0 GPUs. Waiting for a machine to join\n")
    clock = iter([0.0, HOPELESS + 1, *[2 * HOPELESS] * 9])
    monkeypatch.setattr(ray_executor.time, "monotonic", lambda: next(clock))
    with pytest.raises(ValueError, match="Give smaller --cpus or --gpus, or add a machine"):
        events(monkeypatch, ScriptedRay(SILENCE), cpus=2, gpus=1, address="there")


def test_workers_that_never_start_end_the_command(monkeypatch) -> None:
    ray = ScriptedRay(*[GoneError("The actor died:\nModuleNotFoundError: polariscope") for _ in range(100)])
    with pytest.raises(ChildProcessError, match=r"no worker starts .* 10 times in a row \(ModuleNotFoundError: polar"):
        events(monkeypatch, ray, address="there")
    assert len(ray.hired) == FAILED_STARTS


def test_starts_that_fail_now_and_then_end_nothing(monkeypatch) -> None:
    failed = [GoneError("killed")] * (FAILED_STARTS - 1)
    ray = ScriptedRay(*failed, [Ready()], GoneError("killed"), *failed, [Ready()], [Done(0, "result")])
    heard = events(monkeypatch, ray, tries=2, address="there")
    assert heard == [Died(0, "killed"), Done(0, "result")]


def test_an_actor_that_is_out_of_reach_is_ended_before_its_job_is_tried_elsewhere(monkeypatch) -> None:
    ray = ScriptedRay([Ready()], GoneError("The actor is temporarily unavailable"))
    assert events(monkeypatch, ray, address="there") == [Died(0, "The actor is temporarily unavailable")]
    assert ray.killed == ray.hired[:1]
