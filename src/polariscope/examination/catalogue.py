"""Examinations and commands by name, with what each of them needs of a run.

A registered examination is a function ``(subject, world, *, ...)`` whose result has a method ``findings()``, or that
returns :class:`~polariscope.findings.Findings`. Its keyword arguments are the options of the command
``polariscope NAME RUN``, or ``polariscope NAME FILE.py:NAME DATA``; a run keeps its document. A registered command is a
function of the words behind its name (:mod:`polariscope.cli`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polariscope.registry import Catalogue

ABILITIES = {
    "codes": "its model encodes observations",
    "property": "part of its code encodes a property, and another part the rest",
    "class": "it was trained to predict one class",
    "values": "it was trained to predict the values of factors",
    "images": "its observations are images",
    "run": "it is a trained run",
}
"""What a run can have that an examination or a command needs; :mod:`polariscope.examination.next_steps` finds out."""
Command = Callable[[list[str]], int]
"""Words behind the name of the command to an exit code."""

examinations: Catalogue[Callable[..., Any]] = Catalogue("examination", abilities=ABILITIES)
"""An examination that declares no ``needs`` takes every run."""
commands: Catalogue[Command] = Catalogue("command", abilities=ABILITIES)
"""A command that declares what it ``needs`` can be given the id of a run and nothing else."""
