"""Drawn digits as a task, by the settings of both; any other digits: :mod:`polariscope.worlds.views.digit_tasks`."""

from __future__ import annotations

from polariscope.worlds.renderers.digits import Digits
from polariscope.worlds.views import digit_tasks
from polariscope.worlds.views.digit_tasks import paint as paint
from polariscope.worlds.views.digit_tasks import resize as resize
from polariscope.worlds.views.digit_tasks import standardise as standardise
from polariscope.worlds.views.digit_tasks import translate as translate


def DigitTask(
    task: digit_tasks.Variant = "shifted",
    labels: digit_tasks.Labels = "digit",
    count: int = 10_000,
    size: int = 28,
    shift: int = 7,
    seed: int = 0,
) -> digit_tasks.DigitTask:
    """A digit task of rendered digits, whose images and shifts come from one seed.

    >>> DigitTask("colour", count=100).observe([0, 1]).shape
    (2, 3, 28, 28)
    """
    return digit_tasks.DigitTask(Digits(count, size, seed), task, labels, shift, seed)
