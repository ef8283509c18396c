"""Was the adversary of a training strong enough for its model to be called invariant?

A model that is trained against an adversary (STIB) is a fair rival only if the adversary saw the property in the code
and lost it during training, and if its transform of the property can be inverted. A weak adversary flatters every model
that is compared with it (Spec 000, section 6.5).
"""

from __future__ import annotations

import numpy as np

from polariscope.lab.store import Run

MISSED = 0.1
"""Largest share of the variance of the property that the inverse of the bijection may miss at the end of training."""
TAIL = 0.1
"""Share of the training that counts as its end."""


def adversary_notes(run: Run) -> list[str]:
    """What was weak about the adversary of a run; nothing for a run without one."""
    series: dict[str, list[float]] = {"mi_g": [], "bijection": []}
    for _, split, term, value in run.metrics():
        if split == "train" and term in series:
            series[term].append(value)
    if not series["mi_g"] or not series["bijection"]:
        return []
    information, missed = (float(np.mean(values[-max(1, int(TAIL * len(values))) :])) for values in series.values())
    notes = []
    if missed > MISSED:
        notes.append(
            f"The adversary was weak: the inverse of its transform of the property misses {missed:.0%} of the variance "
            f"at the end of training (a fair rival misses at most {MISSED:.0%})."
        )
    if not information < max(series["mi_g"]):
        notes.append(
            f"The penalty MI_G did not fall during training (it is {information:.3g} at the end), so the adversary did "
            "not make Z1 free of the property."
        )
    return notes
