"""Trackers send the curves of a training to Weights & Biases or MLflow while it runs.

Nothing is sent unless the user gives ``--track wandb`` or sets the variable ``POLARISCOPE_TRACK``, and has the library
installed. A tracker of your own is a class in a plug-in, with the decorator ``trackers.register("mine")``::

    class Mine:
        def __init__(self, run): ...
        def metrics(self, event): ...  # event.step, event.split, event.terms
        def end(self, run): ...

To view runs afterwards, no tracker is needed: ``polariscope runs export`` writes TensorBoard files and CSV.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from polariscope.lab.store import Run
from polariscope.printable import one_line, say
from polariscope.registry import Catalogue
from polariscope.training.loop import Event

ASKED = "POLARISCOPE_TRACK"
"""The environment variable with the names of trackers, separated by commas; child processes inherit it."""
TAG = "polariscope.run"
"""The MLflow tag with the id of a run, which identifies a resumed run."""


class Tracker(Protocol):
    """The tracker of one run."""

    def metrics(self, event: Event) -> None:
        """Mean terms of the last steps, or of held-out data."""

    def end(self, run: Run) -> None:
        """The run is done or was stopped; its status is written."""


trackers: Catalogue[Callable[[Run], Tracker]] = Catalogue("tracker")


def check(names: str) -> None:
    """Refuse unknown trackers before anything is trained."""
    for name in _split(names):
        trackers.get(name)


@contextmanager
def tracked(run: Run) -> Iterator[Callable[[Event], None]]:
    """The trackers of a run: those that the user chose, by default none.

    If a tracker fails, the training continues: a warning names the tracker, and it is not used again.
    """
    active: dict[str, Tracker] = {}

    def attempt(name: str, act: Callable[[], Any]) -> Any:
        try:
            return act()
        except Exception as error:  # noqa: BLE001 - a tracker may fail in any way, and hours of training are worth more
            active.pop(name, None)
            say(f"warning: the tracker {name} failed and is not used any more: {one_line(error)}", file=sys.stderr)

    def metrics(event: Event) -> None:
        for name, tracker in list(active.items()):
            attempt(name, lambda tracker=tracker: tracker.metrics(event))  # type: ignore[misc]

    for name in _split(os.environ.get(ASKED, "")):
        made = attempt(name, lambda name=name: trackers.get(name)(run))  # type: ignore[misc]
        if made is not None:
            active[name] = made
    try:
        yield metrics
    finally:
        for name, tracker in list(active.items()):
            attempt(name, lambda tracker=tracker: tracker.end(run))  # type: ignore[misc]


def _split(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


@trackers.register("wandb")
class WeightsAndBiases:
    """A run of Weights & Biases with the name and the configuration of the run."""

    def __init__(self, run: Run) -> None:
        import wandb

        self._run = wandb.init(project="polariscope", id=run.id, name=run.id, config=run.config, resume="allow")

    def metrics(self, event: Event) -> None:
        self._run.log({f"{event.split}/{term}": value for term, value in event.terms.items()}, step=event.step)

    def end(self, run: Run) -> None:
        self._run.finish(exit_code=0 if run.status == "done" else 1)


@trackers.register("mlflow")
class MLflow:
    """A run of MLflow with the settings of the run as parameters."""

    def __init__(self, run: Run) -> None:
        import mlflow

        self._client = mlflow.MlflowClient()
        experiment = mlflow.set_experiment("polariscope").experiment_id
        begun = self._client.search_runs([experiment], f"tags.`{TAG}` = '{run.id}'", max_results=1)
        if begun:  # the run is resumed, and its settings are there
            self._id = begun[0].info.run_id
            self._client.update_run(self._id, "RUNNING")
            return
        self._id = self._client.create_run(experiment, tags={TAG: run.id}, run_name=run.id).info.run_id
        for section, settings in run.config.items():
            for name, value in settings.items() if isinstance(settings, dict) else [("", settings)]:
                self._client.log_param(self._id, f"{section}.{name}".rstrip("."), value)

    def metrics(self, event: Event) -> None:
        for term, value in event.terms.items():
            self._client.log_metric(self._id, f"{event.split}/{term}", value, step=event.step)

    def end(self, run: Run) -> None:
        self._client.set_terminated(self._id, "FINISHED" if run.status == "done" else "KILLED")
