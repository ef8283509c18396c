"""Posterior collapse during training: when every latent variable of a model is passive, the user is warned."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

PASSIVE_NATS = 0.01
"""A model whose whole code costs less than this per example (in nats) uses none of its variables: the posterior of each
differs from the prior by less than a hundredth of a nat."""
PATIENCE = 3
"""Consecutive records below that cost before the warning: the divergence of an untrained model may start at zero."""

COLLAPSED = (
    "all latent variables have been passive since step {step}: the posterior has collapsed onto the prior, and the "
    "model ignores its code; a smaller weight of the divergence (beta) or a longer warm-up often helps"
)


def collapsed_since(rows: Sequence[tuple[int, str, str, float]], split: str = "train") -> int | None:
    """The step since which every recorded divergence of a run is below ``PASSIVE_NATS``.

    None if the model uses its code, has no divergence, or has fewer than ``PATIENCE`` records below that cost. ``rows``
    are a run's metrics in order.

    >>> collapsed_since([(100, "train", "kl", 4.0), *((step, "train", "kl", 0.001) for step in (200, 300, 400))])
    200
    >>> collapsed_since([(step, "train", "kl", float(step == 4)) for step in (1, 2, 3, 4)])
    """
    divergences = ((step, value) for step, part, term, value in reversed(rows) if part == split and term == "kl")
    passive = [step for step, _ in takewhile(lambda record: record[1] < PASSIVE_NATS, divergences)]
    return passive[-1] if len(passive) >= PATIENCE else None
