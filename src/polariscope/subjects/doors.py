"""How every public function accepts a model and data.

A model may also be named: a :class:`~polariscope.lab.store.Run`, its id, its name, its folder or ``"latest"``, or
``FILE.py:NAME``. For a run, the default data is the data it was trained on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import ArrayLike
from torch import Tensor

from polariscope.subjects.subject import Subject, as_subject
from polariscope.worlds.given import Data, as_world
from polariscope.worlds.world import World

OWN_DATA = "The examples are drawn from all data of the run {run}, both training and held-out."


def subject_and_world(
    model: Any, data: Data | None = None, factors: ArrayLike | Tensor | None = None
) -> tuple[Subject, World]:
    """A model and data of any kind as a subject and a world. The default data is that of the run."""
    (subject,), world = subjects_and_world([model], data, factors)
    return subject, world


def subjects_and_world(
    models: Sequence[Any], data: Data | None = None, factors: ArrayLike | Tensor | None = None
) -> tuple[list[Subject], World]:
    """The same for several models on one world; the default data is that of the first run among them."""
    subjects = [as_subject(model) for model in models]
    if data is not None:
        return subjects, as_world(data, factors)
    run = next((subject.run for subject in subjects if subject.run is not None), None)
    if run is None:
        names = " and ".join(subject.name for subject in subjects)
        raise ValueError(
            f"no data to examine {names} on: give a world or its name, an array, a tensor, a data set or a path (only "
            "a run has its own data)"
        )
    if factors is not None:
        raise ValueError("factors need one row per observation of the data: give the data too")
    from polariscope.training.run import config_of  # here, as training takes a second to import

    note = OWN_DATA.format(run=run.id)
    return [replace(subject, notes=(*subject.notes, note)) for subject in subjects], config_of(run).world
