"""Measures beside the loss during training: an improving loss says nothing about the factors (Spec 001a, section 3.7).

The model is measured after training, at the snapshots of its run (``--training.snapshot-every``), so that measuring
does not change a training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polariscope.measures.measure import Undefined, measures
from polariscope.representation import Representation, represent
from polariscope.tabular import Row, Tabular
from polariscope.training.run import Run, as_store, config_of, load_model
from polariscope.worlds.splits import SplitPart


@dataclass(frozen=True, eq=False, repr=False)
class OverTraining(Tabular):
    """A row for each snapshot of a run: its step, the loss at that step, and each measure."""

    rows: tuple[Row, ...]

    @property
    def headline(self) -> str:
        first, last = self.rows[0], self.rows[-1]
        changes = [f"{name} from {_text(first[name])} to {_text(last[name])}" for name in first if name != "step"]
        return f"{len(self.rows)} snapshots from step {first['step']} to {last['step']}: {', '.join(changes)}"

    def records(self) -> list[Row]:
        return [dict(row) for row in self.rows]


def over_training(
    run: Run | Path | str,
    measured: Sequence[str] = ("mcc",),
    *,
    count: int = 10_000,
    seed: int = 0,
    store: Path | str = "runs",
) -> OverTraining:
    """The loss and some measures at every snapshot of a run, on held-out data if there is any.

    The loss is that of the evaluation at the same step, or of training if nothing is held out, or None if neither was
    computed then. An undefined measure is None.
    """
    run = run if isinstance(run, Run) else as_store(store).open(run)
    steps = sorted(run.snapshots())
    if not steps:
        raise ValueError(f"run {run.id} has no snapshots to measure: train it with --training.snapshot-every")
    config = config_of(run)
    held_out = len(config.split.parts(config.world).held_out) > 0
    world = SplitPart(config.world, config.split) if held_out else config.world
    losses = dict(zip(*run.curve("loss", "held_out" if held_out else "train"), strict=True))
    rows = []
    for step in steps:
        representation = represent(load_model(run, step), world, count=count, seed=seed)
        rows.append(
            {"step": step, "loss": losses.get(step), **{name: _value(name, representation) for name in measured}}
        )
    return OverTraining(tuple(rows))


def _value(name: str, representation: Representation) -> float | None:
    try:
        return measures.get(name)().value(representation)
    except Undefined:
        return None


def _text(value: Any) -> str:
    return "nothing" if value is None else f"{value:.3g}"
