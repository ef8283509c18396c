"""Attacks of a robustness card in several processes or on a cluster: a job is one attack on one block of images.

A worker makes the classifier and its data itself, and sends back the result of each block, which is stored where the
card looks for it. What no worker could compute, the card computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polariscope.atomic import atomic
from polariscope.examination.corruptions import class_target, outputs_of
from polariscope.examination.run_subjects import run_subject, shown_data
from polariscope.lab.executors import Tell, Workers, in_parallel
from polariscope.lab.store import Run
from polariscope.lab.travel import Luggage, travels
from polariscope.robustness.attacks import Attack, Norm, attacks
from polariscope.robustness.expectation import averaged
from polariscope.robustness.kept import KeptAttacks, attacked_bytes, examples_hash
from polariscope.subjects import Subject
from polariscope.subjects.labelled import labelled_examples
from polariscope.worlds.targets import Examples, target_values
from polariscope.worlds.world import World, to_tensor


class Maker(Protocol):
    """Makes a classifier and its data in any process."""

    def __call__(self) -> tuple[Subject, World]: ...

    def luggage(self) -> Luggage | None:
        """The files that a worker needs, if they may be sent."""


@dataclass(frozen=True)
class RunMaker:
    """The classifier of a run, with its held-out images or other data."""

    run: Path
    data: World | None = None

    def __call__(self) -> tuple[Subject, World]:
        run = Run(self.run)
        return run_subject(run), shown_data(run, self.data)

    def luggage(self) -> Luggage:
        return Luggage(self.run.parent, (self.run / "run.json", Run(self.run).checkpoint))


@dataclass(frozen=True)
class AttackJob:
    """One attack on one block of images, in words that any process understands."""

    make: Maker
    attack: Mapping[str, Any]
    norm: Norm
    numbers: tuple[int, ...]
    examples: str
    """Hash of the images and their classes: a worker that has others computes nothing."""
    seed: int
    draws: int = 0


@dataclass(frozen=True)
class Blocks:
    """The images of a card, and where the results of attacks on them are stored."""

    make: Maker
    on: Examples
    kept: KeptAttacks
    seed: int
    draws: int
    size: int

    def jobs(self, suite: Sequence[Attack], norm: Norm) -> Iterator[tuple[Path, AttackJob]]:
        """Jobs whose results are not stored yet, by the file of the result. An attack that cannot be described in
        words, such as one with a substitute in memory, has none."""
        for attack in suite:
            words = attacks.describe(attack)
            if not _is_described(attack, words):
                continue
            for rows in torch.arange(len(self.on.x)).split(self.size):
                x, y, numbers = self.on.x[rows], self.on.y[rows], self.on.index[rows.numpy()]
                file = self.kept.file(attack, x, y, numbers, norm=norm, seed=self.seed)
                if not file.exists():
                    block = tuple(int(number) for number in numbers)
                    yield file, AttackJob(self.make, words, norm, block, examples_hash(x, y), self.seed, self.draws)


def _is_described(attack: Attack, words: Mapping[str, Any]) -> bool:
    try:
        return attacks.build(words) == attack
    except (TypeError, ValueError):
        return False


def attack_ahead(jobs: Mapping[Path, AttackJob], workers: Workers, tell: Callable[[float], None]) -> None:
    """Do jobs in parallel, and store each result when it comes. ``tell`` is called with the finished share."""
    files = list(jobs)
    stored = 0

    def store(number: int, content: bytes) -> None:
        nonlocal stored
        files[number].parent.mkdir(parents=True, exist_ok=True)
        with atomic(files[number]) as draft:
            draft.write_bytes(content)
        stored += 1
        tell(stored / len(files))

    in_parallel(attack_block, list(jobs.values()), workers, store)


_LAST: dict[bytes, tuple[Subject, World]] = {}
"""The classifier and the data of the last job of this process: the next job most often has the same."""


@travels(lambda job: job.make.luggage())
def attack_block(job: AttackJob, tell: Tell) -> None:
    """Attack one block of images, and send the result. A refused attack sends nothing: the card gives the reason."""
    key = bytes(ForkingPickler.dumps(job.make))
    if key not in _LAST:
        _LAST.clear()
        _LAST[key] = job.make()
    subject, world = _LAST[key]
    if job.draws:
        subject = averaged(subject, job.draws, job.seed)
    numbers = np.array(job.numbers, dtype=np.int64)
    on = examples_of(subject, world, numbers)
    if examples_hash(on.x, on.y) != job.examples:
        return
    try:
        result = attacks.build(job.attack)(subject, on.x, on.y, norm=job.norm, seed=job.seed, numbers=numbers)
    except ValueError:
        return
    tell(attacked_bytes(result))


def examples_of(subject: Subject, world: World, index: NDArray[np.int64]) -> Examples:
    """Images by number, with the numbers of the classifier's outputs that are right for them."""
    x = to_tensor(world.observe(index))
    meant, _ = _meant(subject, world, x[:1])
    y = torch.from_numpy(meant[target_values(world, index)[:, 0].astype(np.int64)])
    return Examples(*labelled_examples(subject, x, y), index=index)


def matched_classes(subject: Subject, world: World) -> tuple[str, ...]:
    """A note on how classes of the data are matched to outputs of the classifier, if there are two ways to do it."""
    _, note = _meant(subject, world, to_tensor(world.observe(np.zeros(1, np.int64))))
    return (note,) if note else ()


def _meant(subject: Subject, world: World, x: Tensor) -> tuple[NDArray[np.int64], str]:
    target = class_target(world)
    with subject.at_rest():
        return outputs_of(target, subject.scores(x).shape[1], subject.name)
