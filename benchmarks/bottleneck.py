"""How long generation takes, bags of bonds of all isomers beside a loop over molecules, and what the cycle costs.

Bags are of 6,094 made-up geometries with the formula of the isomers C7H10O2, so that no file is needed. The goal is a
second for all of them, seconds for 10,000 samples, and the cycle's steps per second beside those of a plain autoencoder
with the same encoder and decoder, in the same run.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table

from polariscope.examination.generation import generate_with_property
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.nets.property_autoencoder import REFERENCE, PropertyAutoencoderConfig
from polariscope.objectives.annealing import Annealing
from polariscope.objectives.autoencoder import AE
from polariscope.objectives.conditional_invariance import ConditionalInvariance
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.run import build_model, train_in_memory
from polariscope.worlds.bag_of_bonds import bag_of_bonds
from polariscope.worlds.points.level_sets import LevelSets
from polariscope.worlds.points.toy_molecules import ToyMolecules

ISOMERS = 6094
FORMULA = [6] * 7 + [8] * 2 + [1] * 10


def seconds(act: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Wall-clock and processor time of the quickest round; the latter is what an idle core would take."""
    times = []
    for _ in range(rounds):
        started, before = time.perf_counter(), time.process_time()
        act()
        times.append((time.perf_counter() - started, time.process_time() - before))
    return min(wall for wall, _ in times), min(processor for _, processor in times)


def naive_bags(charges: list[int], positions: np.ndarray) -> np.ndarray:
    """Bags of molecules of one formula, one molecule after the other."""
    pairs = list(itertools.combinations(range(len(charges)), 2))
    kinds = sorted({tuple(sorted((charges[i], charges[j]))) for i, j in pairs})
    rows = []
    for place in positions:
        bags: dict[tuple[int, ...], list[float]] = {kind: [] for kind in kinds}
        apart = np.linalg.norm(place[:, None] - place[None], axis=2)
        for i, j in pairs:
            bags[tuple(sorted((charges[i], charges[j])))].append(charges[i] * charges[j] / apart[i, j])
        own = [0.5 * charge**2.4 for charge in charges]
        rows.append(np.concatenate([*(np.sort(bag)[::-1] for bag in bags.values()), own]))
    return np.array(rows)


def main(rounds: int = 3, steps: int = 60) -> None:
    console = Console()
    positions = np.random.default_rng(0).normal(scale=3, size=(ISOMERS, len(FORMULA), 3))
    charges = np.tile(FORMULA, (ISOMERS, 1))
    ours, loop = (
        seconds(act, rounds)
        for act in (lambda: bag_of_bonds(charges, positions), lambda: naive_bags(FORMULA, positions))
    )
    table = Table("", "seconds", "processor seconds", title=f"Bags of bonds of {ISOMERS:,} molecules of 19 atoms")
    table.add_row("bag_of_bonds", f"{ours[0]:.2f}", f"{ours[1]:.2f}")
    table.add_row("a loop over molecules", f"{loop[0]:.2f}", f"{loop[1]:.2f}")
    console.print(table)
    console.print(f"ratio {loop[1] / ours[1]:.1f} (processor seconds)\n")

    table = Table("", "seconds", "processor seconds", title="generate --n 10000, with judge, intervals and neighbours")
    for name, world, model in (
        ("level-sets", LevelSets(count=12_000), PropertyAutoencoderConfig()),
        ("toy-molecules", ToyMolecules(), PropertyAutoencoderConfig(9, 1)),
    ):
        network = build_model(RunConfig(world, ConditionalInvariance(), model, TrainingConfig(1)))
        act = lambda network=network, world=world: generate_with_property(  # noqa: E731
            network, world, like=0, count=10_000, molecules=0
        )
        table.add_row(name, *(f"{value:.1f}" for value in seconds(act, 1)))
    console.print(table)

    table = Table(
        "", "steps per second", "of the plain autoencoder", title="Steps on level sets, batch 256, one thread"
    )
    world, taken = LevelSets(count=60_000), {}
    partitioned = PropertyAutoencoderConfig()
    contenders = {
        "plain autoencoder": (AE(), AutoencoderConfig(8, REFERENCE, likelihood="gaussian")),
        "bottleneck without the cycle": (ConditionalInvariance(Annealing(100.0), beta=0.0), partitioned),
        "with the cycle, one copy (the text)": (ConditionalInvariance(Annealing(100.0), copies=1), partitioned),
        "with the cycle, six copies (the reference)": (ConditionalInvariance(Annealing(100.0), copies=6), partitioned),
    }
    for _ in range(rounds):
        for name, (objective, model) in contenders.items():
            config = RunConfig(world, objective, model, TrainingConfig(steps, 256, 1e-4, evaluate_every=0))
            taken[name] = min(taken.get(name, np.inf), seconds(lambda config=config: train_in_memory(config), 1)[1])
    plain = next(iter(taken.values()))
    for name, own in taken.items():
        table.add_row(name, f"{steps / own:.0f}", f"{plain / own:.2f}")
    console.print(table)


if __name__ == "__main__":
    main()
