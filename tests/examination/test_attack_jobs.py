"""Attacks of a card in parallel: jobs are plain data, and the card repeats none of them."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from polariscope.cli import main
from polariscope.examination import attack_jobs
from polariscope.examination.attack_jobs import Blocks, RunMaker, attack_ahead, attack_block, examples_of
from polariscope.examination.robustness import robustness_run
from polariscope.lab.executors import Done, Place, Told, executors
from polariscope.lab.store import Run
from polariscope.lab.travel import luggage_of
from polariscope.nets.predictors import Perceptron
from polariscope.objectives.predict import Classify
from polariscope.robustness.attacks.pgd import PGD
from polariscope.robustness.attacks.transfer import Transfer
from polariscope.robustness.kept import KeptAttacks, read_attacked
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.run import train
from polariscope.worlds.renderers.mini_sprites import MiniSprites
from polariscope.worlds.targets import Task

ASKED = {"only": ("attacks",), "norms": ("linf", "l2"), "budget": "quick", "count": 60}


class Inline:
    """An executor that packs every job, as others do, and does it in this process."""

    def __init__(self, place) -> None:
        self.queue: list[tuple[int, bytes]] = []
        self.made.append(self)

    made: list[Inline] = []

    def submit(self, number, work, job) -> None:
        self.queue.append((number, pickle.dumps((work, job))))

    def events(self):
        for number, packed in self.queue:
            work, job = pickle.loads(packed)
            heard: list[object] = []
            result = work(job, heard.append)
            yield from (Told(number, pickle.loads(pickle.dumps(what))) for what in heard)
            yield Done(number, result)

    def close(self) -> None:
        pass


@pytest.fixture
def inline(monkeypatch):
    monkeypatch.setitem(executors._entries, "inline", Inline)
    monkeypatch.setattr(Inline, "made", [])
    monkeypatch.setattr(attack_jobs, "_LAST", {})
    return Inline


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    training = TrainingConfig(steps=60, batch_size=32, evaluate_every=0)
    config = RunConfig(Task(MiniSprites(), "shape"), Classify(), Perceptron((16,)), training)
    return train(config, tmp_path_factory.mktemp("runs"), quiet=True)


def test_a_card_made_in_parallel_is_the_card_made_alone(run, inline, tmp_path, monkeypatch) -> None:
    alone = robustness_run(run, folder=tmp_path / "alone", **ASKED)
    monkeypatch.setattr(attack_jobs, "attacked_bytes", counted := Counted(attack_jobs.attacked_bytes))
    together = robustness_run(run, folder=tmp_path / "together", workers=Place("inline", 2), **ASKED)
    assert counted.calls == 8, "two attacks in each of two norms, on two blocks of images"
    for norm in ASKED["norms"]:
        assert together.of(norm).results.keys() == alone.of(norm).results.keys()
        for name, result in alone.of(norm).results.items():
            np.testing.assert_array_equal(result.distances, together.of(norm).results[name].distances)
            assert torch.equal(result.adversarials, together.of(norm).results[name].adversarials)
    files = sorted(path.name for path in (tmp_path / "alone").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "together").iterdir())
    assert len(inline.made) == 1
    robustness_run(run, folder=tmp_path / "together", workers=Place("inline", 2), **ASKED)
    assert counted.calls == 8, "what is stored is not attacked again"


class Counted:
    def __init__(self, act) -> None:
        self.act, self.calls = act, 0

    def __call__(self, *about):
        self.calls += 1
        return self.act(*about)


def blocks_of(run: Run, folder: Path) -> Blocks:
    make = RunMaker(run.path)
    on = examples_of(*make(), np.arange(7))
    return Blocks(make, on, KeptAttacks(folder, {"model": "x"}), seed=3, draws=0, size=4)


def test_jobs_are_the_missing_blocks_of_attacks_that_words_describe(run, inline, tmp_path) -> None:
    blocks = blocks_of(run, tmp_path)
    substitute = Transfer(RunMaker(run.path)()[0], PGD(3))
    jobs = dict(blocks.jobs([PGD(3), substitute], "linf"))
    assert [(job.attack["name"], job.numbers) for job in jobs.values()] == [("pgd", (0, 1, 2, 3)), ("pgd", (4, 5, 6))]
    shares: list[float] = []
    attack_ahead(jobs, Place("inline", 1), shares.append)
    assert shares == [0.5, 1.0]
    subject, _ = RunMaker(run.path)()
    for file, rows in zip(jobs, (slice(0, 4), slice(4, 7)), strict=True):
        numbers = np.arange(7)[rows]
        direct = PGD(3)(subject, blocks.on.x[rows], blocks.on.y[rows], norm="linf", seed=3, numbers=numbers)
        np.testing.assert_array_equal(read_attacked(file).distances, direct.distances)
    assert not dict(blocks.jobs([PGD(3)], "linf"))


def test_a_worker_with_other_images_computes_nothing(run, tmp_path) -> None:
    (job, *_) = dict(blocks_of(run, tmp_path).jobs([PGD(3)], "linf")).values()
    heard: list[bytes] = []
    attack_block(replace(job, examples="others"), heard.append)
    assert heard == []
    attack_block(job, heard.append)
    assert len(heard) == 1


def test_an_attack_that_is_refused_is_left_to_the_card(run, tmp_path) -> None:
    (job, *_) = dict(blocks_of(run, tmp_path).jobs([PGD(3)], "l2")).values()
    heard: list[bytes] = []
    attack_block(replace(job, norm="l0"), heard.append)
    assert heard == []


def test_a_worker_gets_the_record_and_the_weights_of_the_run(run, tmp_path) -> None:
    (job, *_) = dict(blocks_of(run, tmp_path).jobs([PGD(3)], "linf")).values()
    luggage = luggage_of(attack_block, job)
    assert luggage.root == run.path.parent
    assert [file.name for file in luggage.brings] == ["run.json", "checkpoint.safetensors"]


def test_the_command_takes_an_executor(inline, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "import torch\n\n\nclass Net(torch.nn.Module):\n    def forward(self, x):\n"
        "        return torch.stack([x.flatten(1)[:, :32].sum(1), x.flatten(1)[:, 32:].sum(1)], 1)\n"
    )
    rng = np.random.default_rng(0)
    np.savez("images.npz", images=rng.integers(0, 256, (20, 8, 8), dtype=np.uint8), labels=np.arange(20) % 2)
    words = ["robustness", "mine.py:Net", "images.npz", "--only", "attacks", "--norms", "l2", "--budget", "quick"]
    assert main([*words, "--count", "10", "--executor", "inline", "--workers", "2", "--json"]) == 0
    (executor,) = inline.made
    assert len(executor.queue) == 2
    assert len(list(Path("robustness/attacks").glob("ddn-l2-*"))) == 1
    assert main([*words, "--address", "auto"]) == 2
    assert "give --executor ray too" in capsys.readouterr().err


@pytest.mark.deep
def test_processes_attack_like_one(run, tmp_path) -> None:
    alone = robustness_run(run, folder=tmp_path / "alone", **ASKED)
    together = robustness_run(run, folder=tmp_path / "together", workers=2, **ASKED)
    for norm in ASKED["norms"]:
        for name, result in alone.of(norm).results.items():
            np.testing.assert_allclose(result.distances, together.of(norm).results[name].distances, rtol=1e-5)
