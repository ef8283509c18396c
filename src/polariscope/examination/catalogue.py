"""Examinations by name: functions of a subject and a world, each of which is a command without further code.

A registered examination is a function ``(subject, world, *, ...)`` whose result has a method ``findings()``, or that
returns :class:`~polariscope.findings.Findings`. Its keyword arguments are the options of the command
``polariscope NAME RUN``, or ``polariscope NAME FILE.py:NAME DATA``; a run keeps its document.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polariscope.registry import Catalogue

examinations: Catalogue[Callable[..., Any]] = Catalogue("examination")
