"""Models whose mean representations are alike, and what they then have in common (theorem 7.4.1)."""

from __future__ import annotations

from collections.abc import Sequence

from polariscope.studies.criteria import AtMost
from polariscope.studies.study import Claim, Row

NEAR_ONE = 0.9
"""A similarity from which representations are taken as alike."""


def as_many_active(note: str = "") -> Claim:
    """The claim about pairs of models whose rows :func:`pair_of` makes."""
    called = "difference in active variables of such a pair"
    return Claim(
        "Models whose means agree (CKA above 0.9) have the same number of active variables",
        "theorem 7.4.1, in the form that can be tested (Spec 002, section 10.6)",
        AtMost("apart", 0, of="every", where={"alike": True}, called=called, digits=0),
        note=note,
    )


def pair_of(row: Row, similarity: float, active: Sequence[int]) -> Row:
    """Two models of different seeds: one pair, however many snapshots or objectives it was compared by."""
    seed = f"{row['seed']} and {row['other_seed']}"
    return {"seed": seed, "alike": similarity > NEAR_ONE, "apart": abs(active[0] - active[1])}
