"""A kill, or a full disk, at every write: the rerun ends with the bits of the undisturbed work, nothing is doubled, and
nothing is in its way.

``make test`` tries a handful of the acts on the disk, ``make test-deep`` each of them.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure

from polariscope.cli import main
from polariscope.lab import Store
from polariscope.lab.run_documents import kept_findings
from polariscope.nets.architecture import MLP
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.objectives.vae import VAE
from polariscope.studies import Claim, Study, reproduce, studies
from polariscope.studies.criteria import AtLeast
from polariscope.studies.study import Bench
from polariscope.studies.tables import read_table
from polariscope.training import RunConfig, TrainingConfig
from polariscope.training import checkpoint as checkpoints
from polariscope.worlds.renderers.mini_sprites import MiniSprites

TRAINING = {"batch_size": 8, "log_every": 2, "evaluate_every": 3, "checkpoint_every": 3, "snapshot_every": 4}
VOLATILE = ("steps_per_second", "seconds", "earlier", "created", "updated")


def configuration(seed: int, steps: int = 6) -> RunConfig:
    network = AutoencoderConfig(2, MLP((4,), (4,)))
    return RunConfig(MiniSprites(), VAE(), network, TrainingConfig(steps=steps, seed=seed, **TRAINING))


class Losses(Study):
    """Two jobs that train a model each."""

    title = source = question = "Losses"
    cost = {"smoke": "nothing", "laptop": "nothing", "paper": "nothing"}

    def jobs(self, scale):
        return [{"seed": seed} for seed in range(2)]

    def run(self, job, bench):
        return [job | {"loss": bench.train(configuration(job["seed"], steps=3)).result["held_out_loss"]}]

    def claims(self, scale):
        return [Claim("there is a loss", "yes", AtLeast("loss", 0, of="every"))]

    def figures(self, table):
        return {"losses": Figure(figsize=(1, 1))}


@dataclass(frozen=True)
class Scenario:
    """Something that takes long, writes as it goes, and is done again by the same call."""

    prepare: Callable[[Path], Any]
    work: Callable[[Path], Any]
    ends_with: Callable[[Path], Any]
    """What has to be the same in the end, whatever happened on the way."""
    kills: tuple[float, ...]
    """Where the handful lies, from the first act to the last."""
    full: tuple[float, ...]


def train(folder: Path) -> None:
    Bench(Store(folder / "runs"), lambda point: None).train(configuration(0))


def trained(folder: Path) -> Any:
    (run,) = Store(folder / "runs").runs()
    tensors, progress = checkpoints.read(run.checkpoint)
    weights = {name: value.tolist() for name, value in tensors.items()}
    early = {step: checkpoints.read(file)[0] for step, file in run.snapshots().items()}
    assert sorted(early) == [4]
    result = {name: value for name, value in run.result.items() if name not in VOLATILE}
    return [run.state, run.id, weights, progress, run.metrics(), result]


def study(folder: Path) -> None:
    reproduce("losses", "smoke", folder / "results", workers=1)


def studied(folder: Path) -> Any:
    path = folder / "results" / "losses-smoke"
    table, origin = read_table(path / "table.parquet")
    runs = [(run.id, run.state, run.result["held_out_loss"]) for run in Store(path / "runs").runs()]
    assert len(runs) == 2
    answer = json.loads((path / "findings.json").read_text())
    return [table.rows, origin.seeds, sorted(runs), answer["claims"], sorted(file.name for file in path.iterdir())]


def examine(folder: Path) -> None:
    (run,) = Store(folder / "runs").runs()
    words = ["examine", run.id, "--runs", str(folder / "runs"), "--count", "40", "--measures", "mig", "--json"]
    if main(words) != 0:
        raise OSError("the command failed")


def examined(folder: Path) -> Any:
    (run,) = Store(folder / "runs").runs()
    answer = json.loads((run.path / "findings" / "examine" / "findings.json").read_text())
    (listed,) = kept_findings(run)
    assert listed.load()[0].headline == listed.headline == answer["headline"]
    assert "findings/examine/report.html" in (run.path / "report.html").read_text()
    del answer["command"]  # which has the folder's path
    (examination,) = run.record["examinations"]
    noted = {name: value for name, value in examination.items() if name not in VOLATILE}
    return [run.state, answer, noted, len(list((run.path / "representations").iterdir())), run.checkpoint.exists()]


SCENARIOS = {
    "training": Scenario(lambda folder: None, train, trained, (0, 0.1, 0.36, 0.6, 0.85, 1), (0.1, 0.5, 0.8)),
    "study": Scenario(lambda folder: None, study, studied, (0.15, 0.5, 0.8, 0.96), (0.3, 0.9)),
    "examination": Scenario(train, examine, examined, (0.3, 0.85), (0.7,)),
}


@pytest.fixture(autouse=True)
def losses(monkeypatch):
    studies.names()  # find the real ones first
    monkeypatch.setitem(studies._entries, "losses", Losses)


@pytest.fixture(autouse=True)
def one_thread():
    if torch.cuda.is_available():
        pytest.skip("a child of a process that has used the device cannot use it")


@pytest.fixture(scope="module", params=SCENARIOS)
def name(request) -> str:
    return request.param


@pytest.fixture
def scenario(name) -> Scenario:
    return SCENARIOS[name]


@pytest.fixture
def undisturbed(name, scenario, tmp_path, faults):
    """What the work comes to, and what it does on the disk."""
    if name not in COMES_TO:
        scenario.prepare(tmp_path / "undisturbed")
        acts = faults.acts_of(lambda: scenario.work(tmp_path / "undisturbed"))
        COMES_TO[name] = scenario.ends_with(tmp_path / "undisturbed"), acts
    return COMES_TO[name]


COMES_TO: dict[str, tuple[Any, list[str]]] = {}


def some(acts: list[str], shares: tuple[float, ...]) -> list[int]:
    return [round(share * (len(acts) - 1)) for share in shares]


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.name.endswith((".draft", ".holder"))]


def kill_at(numbers, scenario: Scenario, expected: Any, folder: Path, faults) -> None:
    for number in numbers:
        place = folder / f"killed-{number}"
        scenario.prepare(place)
        assert faults.killed_at(number, lambda place=place: scenario.work(place)), f"there is no act {number}"
        assert faults.fork(lambda place=place: scenario.work(place)) == 0, f"the rerun failed after act {number}"
        assert same(scenario.ends_with(place), expected), f"it ends otherwise when it is killed at act {number}"
        assert not leftovers(place), f"killed at act {number}"


def fill_disk_at(numbers, scenario: Scenario, expected: Any, folder: Path, faults, capsys) -> None:
    for number in numbers:
        place = folder / f"full-{number}"
        scenario.prepare(place)
        capsys.readouterr()
        with faults.full_disk(number) as refused:
            problem = problem_of(lambda place=place: scenario.work(place))
        if problem is None:
            assert set(refused) <= {"sync folder"}, f"act {number} was refused, and nobody said so"
        else:
            assert "the disk is full" in f"{problem}{capsys.readouterr().err}", f"act {number}: {problem}"
        assert not leftovers(place), f"full at act {number}"
        scenario.work(place)
        assert same(scenario.ends_with(place), expected), f"it ends otherwise when the disk is full at act {number}"


def problem_of(work: Callable[[], Any]) -> OSError | None:
    try:
        work()
    except OSError as error:
        return error
    return None


def same(one: Any, other: Any) -> bool:
    """To the bit, and undefined numbers are like each other."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return bool(one == other)


def test_a_kill_at_a_handful_of_writes(scenario, undisturbed, tmp_path, faults) -> None:
    expected, acts = undisturbed
    assert len(acts) >= 20
    kill_at(some(acts, scenario.kills), scenario, expected, tmp_path, faults)


def test_a_full_disk_at_a_handful_of_writes(scenario, undisturbed, tmp_path, faults, capsys) -> None:
    expected, acts = undisturbed
    fill_disk_at(some(acts, scenario.full), scenario, expected, tmp_path, faults, capsys)


@pytest.mark.deep
def test_a_kill_at_every_write(scenario, undisturbed, tmp_path, faults) -> None:
    expected, acts = undisturbed
    kill_at(range(len(acts)), scenario, expected, tmp_path, faults)


@pytest.mark.deep
def test_a_full_disk_at_every_write(scenario, undisturbed, tmp_path, faults, capsys) -> None:
    expected, acts = undisturbed
    fill_disk_at(range(len(acts)), scenario, expected, tmp_path, faults, capsys)
