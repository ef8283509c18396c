"""The studies of pairs and of generalisation: what their committed tables show, as it is and changed.

A claim that does not come out here is asserted so too, without the mark of a row.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from polariscope.studies import Table, studies
from polariscope.studies.criteria import Values, effect_of, interval_of, seeds_of
from polariscope.studies.engine import Outcome
from polariscope.studies.inductive_biases.collapsing_axis import CollapsingAxis
from polariscope.studies.study import Judgement, Row


def judged(found: Outcome, words: str, change: Callable[[Row], Row]) -> Judgement:
    """A claim on the table with every row changed."""
    rows = [change(row) for row in found.table.rows]
    return replace(found, claims=studies.get(found.name)().judge(Table(rows), found.scale)).claim(words)


def put(where: Row, **values: object) -> Callable[[Row], Row]:
    """A change: values in the rows where other columns have given values."""
    return lambda row: row | values if where.items() <= row.items() else row


def effect(found: Outcome, first: Row, second: Row, column: str = "mcc") -> Values:
    """By how much the rows of one kind are above those of another, seed by seed."""
    return effect_of(*(seeds_of(found.table.where(**which), column) for which in (first, second)))


# --- sparse pairs ----------------------------------------------------------------------------------------------------

SLOW = {"model": "slow-vae", "pairs": "lap"}


def test_slow_vae_finds_the_factors_of_squares_but_for_one_restart(committed) -> None:
    """Spec 001a, E3 asks for 0.95 and 0.1 more than any other: 0.95 it is, with four restarts near 0.98."""
    found = committed("sparse-pairs")
    values = np.sort(found.table.where(**SLOW).column("mcc"))
    assert values.mean() > 0.95
    assert values[0] < 0.85 < 0.98 < values[1]
    assert found.claim("SlowVAE finds the factors").held
    for rival in ("beta-vae (1)", "beta-vae (4)", "pm-vae (1)", "pm-vae (2)", "pm-vae (4)", "slow-vae (gamma 1)"):
        ahead = effect(found, SLOW, {"model": rival, "pairs": "lap"})
        assert ahead.mean() > 0.1, rival
        assert interval_of(ahead)[0] > 0, rival


def test_the_order_of_models_is_not_the_published_one_everywhere(committed) -> None:
    found = committed("sparse-pairs")
    for rival in ("ada-gvae", "pcl", "pm-vae (8)", "pm-vae (10)", "pm-vae (16)"):
        ahead = effect(found, SLOW, {"model": rival, "pairs": "lap"})
        assert ahead.mean() < 0.1, rival
        assert interval_of(ahead)[0] < 0, rival
    for words in ("ahead of models", "whatever its weight", "also disentangles"):
        assert found.claim(words).verdict == "not held", words
    matched = [found.table.where(model=f"pm-vae ({gamma})").mean("mcc") for gamma in (1, 2, 4, 8, 10, 16)]
    assert max(matched) < found.table.where(**SLOW).mean("mcc"), "no weight of PM-VAE is above it"
    assert np.all(np.diff(matched) > 0), "larger weights help"


def test_pairs_that_change_anywhere_are_no_harder_here(committed) -> None:
    """Published on dSprites: 69.8 percent on LAP, 58.8 on UNI."""
    found = committed("sparse-pairs")
    assert found.claim("change anywhere").verdict == "not held"
    assert found.table.where(model="slow-vae", pairs="uni").column("mcc").min() > 0.98
    assert found.table.where(model="pcl", pairs="uni").column("mcc").max() < 0.8


@pytest.mark.spec("001a/EX-04")
def test_pairs_in_which_nothing_changes_do_no_harm(committed) -> None:
    found = committed("sparse-pairs")
    claim = found.claim("nothing changes")
    assert claim.held
    difference = effect(found, SLOW, SLOW | {"pairs": "lap-nc"})
    low, high = interval_of(difference)
    assert len(difference) >= 5
    assert low < 0 < high, "no seed tells them apart"
    assert abs(difference.mean()) < 0.03


@pytest.mark.parametrize(
    ("words", "held", "change"),
    [
        ("SlowVAE finds the factors", False, put(SLOW | {"seed": 0}, mcc=0.97)),
        ("whatever its weight", True, put(SLOW | {"seed": 1}, mcc=0.984)),  # without the restart that was stuck
        ("ahead of models", False, put(SLOW | {"seed": 1}, mcc=0.984)),  # PCL is as good
        ("change anywhere", True, put({"model": "slow-vae", "pairs": "uni"}, mcc=0.8)),
        ("nothing changes", False, put({"pairs": "lap-nc"}, mcc=0.9)),
        ("nothing changes", None, put({"pairs": "lap-nc"}, mcc=None)),
        ("also disentangles", True, put(SLOW, dci=0.9)),
    ],
)
def test_verdicts_on_sparse_pairs_follow_the_table(committed, words, held, change) -> None:
    assert judged(committed("sparse-pairs"), words, change).held is held


# --- an axis that is too short ---------------------------------------------------------------------------------------


@pytest.mark.spec("001a/EX-01")
def test_a_slow_vae_gives_up_an_axis_below_the_threshold_of_theory_and_a_flow_does_not(committed) -> None:
    found = committed("collapsing-axis")
    claim = found.claim("below a length that theory knows")
    assert claim.held
    readings = CollapsingAxis().readings(found.table)
    assert readings.mean("threshold") == pytest.approx(0.39537, abs=0.03)  # oracle O11
    assert len(readings.column("threshold")) >= 5
    slow, flow = (found.table.where(part="axis", model=model) for model in ("slow-vae", "slow-flow"))
    for length, runs in slow.by("length"):
        kept = runs.column("gain")
        assert (kept < 0.01).all() if length < 0.395 else (kept > 0.05).all(), length
        assert (runs.column("mcc").max() < 0.75) == (length < 0.395)
    assert flow.where(length=0.3).column("mcc").min() > 0.995


def test_what_comes_back_of_a_kept_axis_is_what_theory_says(committed) -> None:
    """Spec 001a, section 3.7: 0.218 of an axis of half, 0.527 of one of eight tenths."""
    slow = committed("collapsing-axis").table.where(part="axis", model="slow-vae")
    for length, share in {0.5: 0.218, 0.8: 0.527}.items():
        assert slow.where(length=length).mean("gain") == pytest.approx(share, abs=0.02)


def test_some_findings_about_axes_do_not_come_out(committed) -> None:
    """Kept axes may stay turned into each other, the shortest axis is hard for the flow too, and observations of more
    coordinates help by less than the seeds differ."""
    found = committed("collapsing-axis")
    for words in ("keeps both axes", "A SlowFlow finds both", "In more dimensions"):
        assert found.claim(words).verdict == "not held", words
    flow = found.table.where(part="axis", model="slow-flow")
    short = flow.where(length=0.2).column("mcc")
    assert short.min() < 0.9
    assert min(row["mcc"] for row in flow.rows if row["length"] > 0.2) > 0.995
    more = effect(found, {"ambient": 2000}, {"ambient": 20})
    assert 0 < more.mean() < 0.05
    assert interval_of(more)[0] < 0


AXIS = {"part": "axis", "model": "slow-vae"}


def farther(factor: float) -> Callable[[Row], Row]:
    """A change: all axes are longer by a factor."""
    return lambda row: row | {"length": factor * row["length"]} if AXIS.items() <= row.items() else row


@pytest.mark.parametrize(
    ("words", "held", "change"),
    [
        ("below a length", True, farther(1.02)),
        ("below a length", False, farther(1.1)),
        ("below a length", False, farther(0.85)),
        ("below a length", None, put(AXIS, length=0.2)),
        ("that was given up is", False, put(AXIS, std=0.26)),
        ("that was given up is", None, put(AXIS, gain=0.5)),
        ("keeps both axes", True, lambda row: put(AXIS, mcc=0.96 if (row.get("gain") or 0) > 0.02 else 0.5)(row)),
        ("A SlowFlow finds both", True, put({"model": "slow-flow", "length": 0.2}, mcc=0.996)),
        ("In more dimensions", True, lambda row: row | {"mcc": row["ambient"] / 2000} if row.get("ambient") else row),
    ],
)
def test_verdicts_on_axes_follow_the_table(committed, words, held, change) -> None:
    assert judged(committed("collapsing-axis"), words, change).held is held
