"""What training with a noise gains under others, and what a benchmark says about corruptions outside of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from matplotlib.figure import Figure

from polariscope.report.figures import heatmap
from polariscope.studies.criteria import All, AtLeast
from polariscope.studies.rows import groups, means
from polariscope.studies.study import Claim, Row, Table
from polariscope.worlds.views.corruptions import SUITES

SUITE: Literal["imagenet-c"] = "imagenet-c"
BENCHMARK: tuple[str, ...] = tuple(SUITES[SUITE].benchmark)
NOISES = ("gaussian", "shot", "impulse", "speckle")
TRAINED_ON = ("nothing", *NOISES)
UNPREDICTED = "section 3.1.4: an open question; scores on ImageNet-C may not predict other corruptions"


def of_each_noise(column: str, bound: float, called: str) -> All:
    """The same bound for the networks trained with each noise."""
    return All(*(AtLeast(column, bound, where={"trained": noise}, digits=1, called=called) for noise in NOISES))


def helps_against_others() -> Claim:
    return Claim(
        "Training with a noise helps against every other noise",
        "section 2.3.2: Gaussian noise helps against shot and impulse noise, on ImageNet-C by 30 points",
        of_each_noise("least_gain", 5, "least gain under another noise (points)"),
    )


def noise_readings(table: Table, held_out: Sequence[str]) -> Table:
    """Of each network the means over the benchmark and over kinds outside of it, and what its noise gains."""
    rows: list[Row] = []
    plain = {row["seed"]: row for row in table.where(trained="nothing").rows}
    for row in table.rows:
        own, base = row["trained"], plain.get(row["seed"])
        reading: Row = {f"outside {kind}": row[kind] for kind in held_out}
        for name, kinds in {"benchmark": BENCHMARK, "held_out": held_out}.items():
            reading[name] = float(np.mean([row[kind] for kind in kinds]))
        if own in NOISES and base is not None:
            others = [noise for noise in NOISES if noise != own]
            reading["least_gain"] = min(row[noise] - base[noise] for noise in others)
            reading["lead_of_own"] = row[own] - float(np.mean([row[noise] for noise in others]))
        rows.append(row | reading)
    return Table(rows)


def accuracies_by_noise(table: Table, kinds: Sequence[str]) -> list[Row]:
    columns = {f"{kind}, %": kind for kind in kinds}
    return [{"trained with": noise} | means(own, columns, 1) for noise, own in groups(table, "trained", TRAINED_ON)]


def noise_figure(table: Table) -> Figure:
    trained = dict(groups(table, "trained", TRAINED_ON))
    return heatmap([[own.mean(kind) for kind in NOISES] for own in trained.values()], list(trained), NOISES)
