"""Posterior collapse during training: when every latent variable of a model is passive, the user is warned."""

from __future__ import annotations

from collections.abc import Iterable

PASSIVE_NATS = 0.01
"""A model whose whole code costs less than this per example (in nats) uses none of its variables: each of them has a
posterior that is the prior, up to a hundredth of a nat."""
PATIENCE = 3
"""Records in a row below that cost before the warning: the divergence of an untrained model may start at zero."""

WARNING = (
    "all latent variables have been passive since step {step}: the posterior has collapsed onto the prior, and the model "
    "ignores its code; a smaller weight of the divergence (beta) or a longer warm-up often helps"
)


def collapsed_since(rows: Iterable[tuple[int, str, str, float]], split: str = "train") -> int | None:
    """The step since which every recorded divergence of a run is below ``PASSIVE_NATS``; None if its code is used, if it
    has no divergence, or if fewer than ``PATIENCE`` records say so. ``rows`` are a run's metrics, in order.

    >>> collapsed_since([(100, "train", "kl", 4.0), *((step, "train", "kl", 0.001) for step in (200, 300, 400))])
    200
    >>> collapsed_since([(step, "train", "kl", cost) for step, cost in ((100, 0.0), (200, 0.0), (300, 0.0), (400, 2.0))])
    """
    since, records = None, 0
    for step, part, term, value in rows:
        if part == split and term == "kl":
            passive = value < PASSIVE_NATS
            since, records = (since if records and passive else step, records + 1) if passive else (None, 0)
    return since if records >= PATIENCE else None
