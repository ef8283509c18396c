"""The studies of stripes and cylinders: neurons, amplification, learning curves, the output scale.

What they find is read from their committed tables; smoke scale only shows that they leave what they should.
"""

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from scipy.stats import ttest_1samp

from polariscope.studies import Table
from polariscope.studies.engine import Outcome
from polariscope.studies.manifolds.amplification import KNOWN_FROM, Amplification, predicted_median
from polariscope.studies.manifolds.lazy_transition import LazyTransition
from polariscope.studies.manifolds.learning_curves import LearningCurves, predicted_exponents
from polariscope.studies.manifolds.neuron_dynamics import crossings
from polariscope.studies.manifolds.neuron_figures import fixed_point_figure
from polariscope.studies.manifolds.power_laws import ASYMPTOTIC, curve
from polariscope.studies.manifolds.stripe_nets import draw, trained, world_of
from polariscope.studies.study import Judgement, Row, studies

SETTINGS = {
    "neuron-dynamics": {"part", "task"},
    "amplification": {"part", "task", "width", "steps"},
    "learning-curves": {"part", "task", "test"},
    "lazy-transition": {"learner", "width", "test"},
}


@pytest.mark.spec("004/F70")
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in SETTINGS])
def test_beside_its_pictures_a_study_leaves_the_rows_they_show_with_seeds_and_settings(outcome, name) -> None:
    result = outcome(name)
    assert list(result.path.glob("*.png"))
    settings = {"seed", "points", "dimension"} | SETTINGS[name]
    rows = pq.read_table(result.path / "table.parquet").to_pylist()
    assert len(rows) == len(result.table) == csv.read_csv(result.path / "table.csv").num_rows > 0
    assert all(row[key] is not None for row in rows for key in settings)
    for path in (result.path / "jobs").glob("*.json"):
        record = json.loads(path.read_text())
        assert all(record["job"].items() <= row.items() for row in record["rows"])
    claims = json.loads((result.path / "findings.json").read_text())["claims"]
    assert [(made["text"], made["verdict"]) for made in claims] == [(made.text, made.verdict) for made in result.claims]


def judged(found: Outcome, change: Callable[[Row], Row]) -> Outcome:
    """What the study says of the table with every row changed."""
    table = Table([change(row) for row in found.table.rows])
    return replace(found, table=table, claims=studies.get(found.name)().judge(table, found.scale))


def put(column: str, value: object, **where: object) -> Callable[[Row], Row]:
    """A change: a value in a column of some rows."""
    return lambda row: row | {column: value} if column in row and where.items() <= row.items() else row


def times(column: str, factor: float, **where: object) -> Callable[[Row], Row]:
    """A change: a column times a factor in some rows."""

    def change(row: Row) -> Row:
        value = row.get(column)
        return row if value is None else put(column, np.multiply(value, factor).tolist(), **where)(row)

    return change


def as_in(column: str, other: str) -> Callable[[Row], Row]:
    """A change: a column with the values of another."""
    return lambda row: row | {column: row[other]} if column in row else row


def law_of(**exponents: float):
    """A change: errors that are powers of the number of points."""
    return lambda row: row | {name: row["points"] ** power for name, power in exponents.items()}


# --- neurons ---------------------------------------------------------------------------------------------------------


@pytest.mark.spec("004/F27", "004/F28")
def test_neurons_gather_at_three_points(committed) -> None:
    result = committed("neuron-dynamics")
    rows = result.table.where(part="compressing")
    whole = rows.where(attractor="all")
    assert len(whole) == len(whole.distinct("seed")) >= 5
    assert whole.distinct("points") == [10_000]
    assert whole.mean("arrived") >= 0.75
    assert (whole.column("idle") > 0).all()
    assert (whole.column("idle_moved") == 0).all()
    (paths,) = (np.array(row["paths"]) for row in whole.rows if row["paths"])
    assert paths.shape[0] == 40
    ends = np.abs(paths[:, -1, None] - [[0.45004, 0], [-1.2262, 0], [0.64664, 0]]).max(2).min(1)
    assert (ends < 0.1).mean() > 0.6
    assert np.abs(np.diff(paths, axis=1)).max(2).max() > 0.1  # they have moved
    for words in ("gather at three points", "fastest attractor", "do not move"):
        assert result.claim(words).held, words


@pytest.mark.spec("004/F22")
def test_neurons_follow_their_equation_and_grow_at_its_rate(committed) -> None:
    result = committed("neuron-dynamics")
    rates = {"C": 0.42213, "A": 0.2376, "B": 0.07859}
    for name, rate in rates.items():
        rows = result.table.where(part="compressing", attractor=name)
        assert rows.mean("rate") == pytest.approx(rate, abs=0.03)
        assert np.median(rows.column("gap")) <= 0.25
        assert np.median(rows.column("signs")) > 0.95
    assert result.claim("at its own rate").held


@pytest.mark.spec("004/F29", "004/F30")
def test_the_output_comes_to_change_sign_at_the_interfaces(committed) -> None:
    result = committed("neuron-dynamics")
    rows = result.table.where(part="fitting")
    assert len(rows.distinct("seed")) >= 5
    for _, run in rows.by("seed"):
        end, onset, course = (run.where(when=when).rows[0] for when in ("end", "t_star", "course"))
        np.testing.assert_allclose(end["zeros"], [-0.3, 1.1854923], atol=0.05)
        assert len(onset["zeros"]) == 1
        assert onset["time"] < end["time"]
        # the histograms hold the neurons: at the onset at the fixed points, later elsewhere
        assert 0.8 * end["width"] < sum(onset["intercepts"]) <= end["width"]
        assert end["intercepts"] != onset["intercepts"]
        assert np.interp(course["onset"], course["times"], course["error"]) > 0.3
        assert course["error"][-1] < 0.01
        assert course["loss"][0] == 1
        assert course["loss"][-1] < 0.1
    for words in ("changes at the interfaces", "fall after the onset"):
        assert result.claim(words).held, words


@pytest.mark.spec("004/F31")
def test_arrows_turn_into_the_informative_directions_unless_lazy(committed) -> None:
    result = committed("neuron-dynamics")
    rows = result.table.where(part="arrows")
    stripe, lazy, cylinder = (
        rows.where(task=task, alpha=alpha) for task, alpha in (("stripe", 1e-6), ("stripe", 1e6), ("cylinder", 1e-6))
    )
    assert stripe.where(stage="start").mean("alignment") == pytest.approx(0.5, abs=0.05)
    assert (stripe.where(stage="end").column("alignment") > 0.99).all()
    np.testing.assert_allclose(
        lazy.where(stage="end").column("alignment"), lazy.where(stage="start").column("alignment"), atol=1e-4
    )
    assert cylinder.where(stage="start").mean("alignment") == pytest.approx(2 / 3, abs=0.05)
    assert cylinder.where(stage="end").mean("alignment") > 0.97
    for frames in (stripe, lazy, cylinder):
        times = frames.where(seed=0).column("time")
        assert len(times) >= 4
        assert (np.diff(times) > 0).all()
        assert times[0] == 0
        assert frames.where(seed=0, stage="onset").rows
    first, last = (np.array(stripe.where(seed=0, stage=stage).rows[0]["arrows"]) for stage in ("start", "end"))
    assert np.square(first[:, 1]).sum() > 0.2 * np.square(first).sum()
    assert np.square(last[:, 1]).sum() < 0.02 * np.square(last).sum()
    assert np.linalg.norm(last, axis=1).max() == pytest.approx(1, abs=1e-3)
    solid = np.array(cylinder.where(seed=0, stage="end").rows[0]["arrows"])
    assert np.square(solid[:, 2]).sum() < 0.1 * np.square(solid).sum()
    for words in ("informative direction (stripe)", "informative plane (cylinder)", "Lazy training leaves"):
        assert result.claim(words).held, words


@pytest.mark.spec("004/F66")
def test_the_noise_of_finite_data_is_gaussian_of_known_variance(committed) -> None:
    result = committed("neuron-dynamics")
    rows = result.table.where(part="noise")
    assert rows.distinct("attractor") == ["A", "B", "C"]
    np.testing.assert_allclose(rows.column("second_moment"), rows.column("active"), atol=1e-8)
    assert (rows.column("p_value") > 0.01).all()
    np.testing.assert_allclose(rows.column("spread"), 1, atol=0.1)
    assert result.claim("is Gaussian").held


@pytest.mark.spec("004/F26")
def test_the_picture_of_fixed_points_has_its_zeros_and_its_dashes_where_they_belong() -> None:
    (axes,) = fixed_point_figure(2).axes
    above, above_dashed, below, below_dashed = axes.lines[:4]
    zeros = [crossings(line.get_xdata(), line.get_ydata()) for line in (above, below)]
    np.testing.assert_allclose(zeros[0], [-1.2262, 0.64664], atol=1e-3)
    np.testing.assert_allclose(zeros[1], [0.45004], atol=1e-3)
    for solid, dashed in ((above, above_dashed), (below, below_dashed)):
        assert dashed.get_linestyle() == "--"
        assert (np.isnan(solid.get_ydata()) ^ np.isnan(dashed.get_ydata())).all()
    # right of the stripe neurons that look right grow across as fast as along: they do not align
    outside = above.get_xdata() > 1.3
    assert np.isnan(above.get_ydata()[outside]).all()


def test_sign_changes_are_interpolated() -> None:
    at = np.linspace(-2, 2, 41)
    np.testing.assert_allclose(crossings(at, at**2 - 1.1), [-math.sqrt(1.1), math.sqrt(1.1)], atol=2e-3)
    assert crossings(at, np.ones(41)).size == 0


# --- amplification ---------------------------------------------------------------------------------------------------


@pytest.mark.spec("004/F17")
@pytest.mark.parametrize("dimension", [5, 10])
def test_amplification_grows_with_the_root_of_the_data(committed, dimension) -> None:
    result = committed("amplification")
    rows = result.table.where(part="scaling", task="stripe", dimension=dimension)
    assert len(rows.distinct("seed")) >= 8
    assert min(rows.distinct("points")) >= ASYMPTOTIC == 200
    assert 0.4 < curve(rows, "at_onset").power_law().exponent < 0.7
    assert 0.65 < np.median(rows.column("at_onset") / np.sqrt(rows.column("points"))) < 1.35
    assert result.claim(f"the predicted value (stripe, d = {dimension})").held
    grows = result.claim(f"Λ* grows as √p (stripe, d = {dimension})")
    assert grows.held is None, "ten seeds know the exponent to 0.1 or more"
    assert "lies across 0.40 and 0.60" in grows.note


@pytest.mark.spec("004/F18")
def test_the_amplification_of_a_data_set_is_known_before_any_training(committed) -> None:
    result = committed("amplification")
    rows = result.table.where(part="scaling", task="stripe").rows
    large = Table([row for row in rows if row["points"] >= KNOWN_FROM == 464])
    here, known = (np.log(large.column(name)) for name in ("at_onset", "data_set"))
    assert np.median(np.abs(here - known)) < 0.2
    assert np.corrcoef(here, known)[0, 1] > 0.85
    assert result.claim("predicted before training").held, "also among data sets of one size"


@pytest.mark.spec("004/F20")
@pytest.mark.parametrize(("dimension", "rate"), [(5, 0.7872), (10, 0.7779)])
def test_amplification_rises_exponentially_to_a_plateau(committed, dimension, rate) -> None:
    result = committed("amplification")
    rows = result.table.where(part="rise", dimension=dimension)
    assert sorted(rows.distinct("seed")) == list(range(5, 10))
    assert rows.column("neurons").min() >= 10
    assert np.median(rows.column("rate")) == pytest.approx(rate, abs=0.1)
    runs = result.table.where(part="scaling", task="stripe", dimension=dimension, points=1000)
    assert abs(np.median(runs.column("late_rate"))) < 0.1
    for path in runs.rows:
        assert path["factor"][0] == pytest.approx(1, abs=0.3)
        assert np.interp(path["onset"], path["time"], path["factor"]) == pytest.approx(path["at_onset"], rel=0.2)
    assert result.claim(f"flat before the onset (stripe, d = {dimension})").verdict == "held"


@pytest.mark.spec("004/F68")
def test_the_cylinder_is_compressed_less_and_later(committed) -> None:
    result = committed("amplification")
    rows, stripes = (result.table.where(part="scaling", task=task) for task in ("cylinder", "stripe"))
    assert len(rows.distinct("seed")) >= 5
    round_, flat = (np.median(r.column("at_onset") / np.sqrt(r.column("points"))) for r in (rows, stripes))
    assert 0.3 < round_ < 0.6
    assert round_ < flat
    assert rows.mean("onset") > 1.5 * stripes.mean("onset")
    assert result.claim("the predicted value (cylinder").held
    assert result.claim("Λ* grows as √p (cylinder").held is None


def test_parts_of_a_sample_and_the_net_share_no_numbers() -> None:
    job = {"task": "stripe", "dimension": 3, "points": 60, "width": 40, "seed": 1}
    job |= {"alpha": 1e-6, "momentum": 0.0, "steps": 3}
    world = world_of(job)
    parts = [draw(world, 50, 1, part)[0].ravel() for part in ("train", "fresh", "test")]
    parts.append(trained(job).start.state.double().numpy().ravel())
    rounded = [set(part.astype(np.float32).tolist()) for part in parts]
    assert all(not a & b for i, a in enumerate(rounded) for b in rounded[:i])
    again = trained(job)
    np.testing.assert_array_equal(draw(world, 50, 1, "train")[0].ravel(), parts[0])
    assert (again.end.state == trained(job).end.state).all()


def test_amplification_is_read_beside_its_theory_and_its_onset() -> None:
    """Λ* of 2000 points is 1.1 times theory's median; a run without an onset says nothing."""
    run = {"part": "scaling", "task": "stripe", "dimension": 5, "points": 2000, "seed": 0}
    start = 1.1 * predicted_median("stripe", 5, 2000)
    rows = [
        run | {"at_onset": start, "largest": 3 * start, "at_end": 2 * start, "data_set": start / 2},
        run | {"seed": 1, "at_onset": 4 * start, "largest": 4 * start, "at_end": start, "data_set": 4 * start},
        run | {"seed": 2, "at_onset": None},
    ]
    read = Amplification().readings(Table(rows))
    np.testing.assert_allclose(read.column("of_theory"), [1.1, 4.4])
    np.testing.assert_allclose(read.column("peak"), [3, 1])
    np.testing.assert_allclose(read.column("kept"), [2, 0.25])
    np.testing.assert_allclose(read.column("log_gap"), [math.log(2), 0], atol=1e-12)
    np.testing.assert_allclose(read.column("excess"), [-math.log(2), math.log(2)])
    np.testing.assert_allclose(read.column("predicted_excess"), [-math.log(8) / 2, math.log(8) / 2])


# --- learning curves -------------------------------------------------------------------------------------------------


@pytest.mark.spec("004/F41")
@pytest.mark.parametrize(("task", "dimension"), [("stripe", 5), ("stripe", 10), ("cylinder", 3)])
def test_networks_that_learn_features_beat_the_lazy_kernel(committed, task, dimension) -> None:
    result = committed("learning-curves")
    rows = result.table.where(part="curve", task=task, dimension=dimension)
    feature, lazy, start = (curve(rows, name) for name in ("feature", "lazy", "start"))
    assert feature.values.shape[1] >= 5
    assert feature.sizes[0] == 128
    assert (feature.medians < lazy.medians).all()
    assert (lazy.medians < start.medians)[1:].all()  # the honest baseline is the harder one
    claim = result.claim(f"beats the lazy kernel ({task}, d = {dimension})")
    if task == "stripe":
        assert claim.held
    else:  # the lead is there, but at 256 points smaller than the spread of nine seeds
        assert claim.held is None
        assert claim.note == "256: the interval of the effect begins at -0.1"


BANDS = {"lazy": (0.3, 0.6), "feature": (0.5, 0.95), "difference": (0.1, math.inf)}
"""Spec 004, 12.14: where the slopes of the two learners lie, and how far they are apart at least."""


@pytest.mark.spec("004/F41")
@pytest.mark.parametrize(("task", "dimension"), [("stripe", 5), ("stripe", 10), ("cylinder", 3)])
def test_the_slopes_of_learning_curves_beside_their_bands(committed, task, dimension) -> None:
    """Slopes of every seed are fitted here. On stripes of ten dimensions the lazy one is above its band: not held."""
    result = committed("learning-curves")
    rows = result.table.where(part="curve", task=task, dimension=dimension)
    slopes: dict[str, list[float]] = {name: [] for name in BANDS}
    for _, own in rows.by("seed"):
        kept = [row for row in own.rows if row["points"] >= ASYMPTOTIC]
        points = np.log([row["points"] for row in kept])
        lazy, feature = (-np.polyfit(points, np.log([row[name] for row in kept]), 1)[0] for name in ("lazy", "feature"))
        for name, slope in zip(BANDS, (lazy, feature, feature - lazy), strict=True):
            slopes[name].append(float(slope))
    claim = result.claim(f"in its band ({task}, d = {dimension})")
    inside: list[bool | None] = []
    for measured, (name, (lowest, highest)) in zip(claim.measured.split("; "), BANDS.items(), strict=True):
        own = np.array(slopes[name])
        assert len(own) >= 5
        low, high = ttest_1samp(own, 0).confidence_interval(0.95)
        assert measured.endswith(f" {own.mean():.2f} [{low:.2f}, {high:.2f}]"), name
        outside = high < lowest or low > highest
        inside.append(False if outside else True if lowest <= low and high <= highest else None)
    assert claim.held is (False if False in inside else None if None in inside else True)
    assert (inside[0] is False) == ((task, dimension) == ("stripe", 10))


@pytest.mark.spec("004/F41")
def test_learning_curves_have_lines_of_the_predicted_slopes(committed) -> None:
    result = committed("learning-curves")
    found = LearningCurves().figures(result.table)["learning-curves"].axes
    panels = {axes.get_title(loc="left"): axes for axes in found}
    for task, dimension in (("stripe", 5), ("stripe", 10), ("cylinder", 3)):
        axes = panels[f"{task}, d = {dimension}"]
        guides = [line for line in axes.lines if line.get_linestyle() == "--"]
        drawn = sorted(float(np.polyfit(np.log(g.get_xdata()), np.log(g.get_ydata()), 1)[0]) for g in guides)
        assert drawn == pytest.approx(sorted(predicted_exponents(task, dimension).values()))
        rows = result.table.where(part="curve", task=task, dimension=dimension)
        for name in ("feature", "lazy"):
            medians = curve(rows, name).medians
            assert any(np.allclose(line.get_ydata(), medians) for line in axes.lines)


@pytest.mark.spec("004/F38", "004/F39")
@pytest.mark.parametrize("dimension", [5, 10])
def test_compression_and_the_kernel_of_the_end_account_for_features(committed, dimension) -> None:
    result = committed("learning-curves")
    rows = result.table.where(part="curve", task="stripe", dimension=dimension)
    median = {name: curve(rows, name).medians for name in ("feature", "start", "compressed", "end")}
    large = np.array(rows.distinct("points")) >= 256
    ratio = median["compressed"] / median["feature"]
    assert ((ratio > 0.5) & (ratio < 1.8))[large].all()
    assert (median["end"] <= 0.5 * median["start"])[large].all()
    assert result.claim(f"better than that at its start (stripe, d = {dimension})").held
    for words in ("learns like the network", "as good as the network"):
        assert result.claim(f"{words} (stripe, d = {dimension})").held is None, words


@pytest.mark.spec("004/F68")
def test_the_network_beats_the_kernel_on_the_cylinder(committed) -> None:
    rows = committed("learning-curves").table.where(part="curve", task="cylinder")
    feature, lazy = (curve(rows, name).medians for name in ("feature", "lazy"))
    assert (feature < lazy)[np.array(rows.distinct("points")) >= 215].all()
    assert predicted_exponents("cylinder", 3) == {
        "feature": -0.5,
        "lazy": pytest.approx(-3 / 7),
        "start": pytest.approx(-3 / 7),
        "compressed": -0.5,
    }


@pytest.mark.spec("004/F43")
def test_compressing_the_data_gains_what_theory_says(committed) -> None:
    result = committed("learning-curves")
    stripe, cylinder = (
        result.table.where(part="gain", task=task, dimension=d) for task, d in (("stripe", 5), ("cylinder", 3))
    )
    assert stripe.distinct("points") == [512]
    gain = [curve(rows, "error", over="factor").power_law().exponent for rows in (stripe, cylinder)]
    assert -0.75 < gain[0] < -0.5
    assert gain[0] < gain[1] - 0.2
    assert -0.35 < gain[1] < 0
    assert result.claim("by a power of Λ (cylinder").held
    assert result.claim("by a power of Λ (stripe, d = 5)").held is None, "-0.60 [-0.70, -0.49]"


@pytest.mark.spec("004/F42")
def test_claims_of_learning_curves_follow_the_table() -> None:
    """Errors that are exact power laws of the predicted exponents, then with network and kernel swapped."""

    def table(first: str, second: str) -> Table:
        rows = []
        for p in (256, 512, 1024, 2048):
            for seed in range(6):
                spread = 1 + 0.01 * seed
                errors = {first: spread * p ** (-9 / 13), second: 3 * spread * p ** (-5 / 13)}
                errors |= {"start": 1.2 * 3 * spread * p ** (-5 / 13)}
                errors |= {"compressed": 1.1 * errors["feature"], "end": 0.9 * errors["feature"]}
                rows.append({"part": "curve", "task": "stripe", "dimension": 5, "points": p, "seed": seed} | errors)
        return Table(rows)

    def judged(first: str, second: str) -> dict[str, Judgement]:
        made = LearningCurves().judge(table(first, second), "laptop")
        return {claim.text: claim for claim in made if "stripe, d = 5" in claim.text and claim.measured != "-"}

    right = judged("feature", "lazy")
    assert len(right) == 9
    assert all(made.held for made in right.values())
    assert right["Feature: β = (2d − 1)/(3d − 2) (stripe, d = 5)"].measured.startswith("-0.69 [-0.69, -0.69] from 256")
    assert right["Lazy: β = d/(3d − 2) (stripe, d = 5)"].published.endswith("-0.385")
    wrong = [made for made in judged("lazy", "feature").values() if re.search("β|beats|lead", made.text)]
    assert [made.held for made in wrong] == [False] * 4


def test_a_network_without_a_single_error_leaves_its_exponents_open() -> None:
    row = {"part": "curve", "task": "stripe", "dimension": 5, "lazy": 0.2, "start": 0.2, "end": 0.1, "compressed": 0.1}
    rows = [
        row | {"points": p, "seed": seed, "feature": 0.0 if (p, seed) == (1024, 3) else 10 / p}
        for p in (256, 512, 1024)
        for seed in range(6)
    ]
    claims = {claim.text: claim for claim in LearningCurves().judge(Table(rows), "laptop")}
    assert claims["Feature: β = (2d − 1)/(3d − 2) (stripe, d = 5)"].held is None
    assert claims["Lazy: β = d/(3d − 2) (stripe, d = 5)"].held is False
    assert claims["A network that learns features beats the lazy kernel (stripe, d = 5)"].held


# --- the output scale ------------------------------------------------------------------------------------------------


@pytest.mark.spec("004/F44")
def test_the_output_scale_takes_a_network_from_features_to_its_kernel(committed) -> None:
    result = committed("lazy-transition")
    scan = result.table.where(learner="network")
    assert len(scan.distinct("seed")) >= 5
    assert len(scan.distinct("alpha")) == 15
    slopes = LazyTransition().readings(result.table).column("onset_slope")
    assert len(slopes) == len(scan.distinct("seed"))
    assert slopes.mean() == pytest.approx(1.124, abs=0.1)
    products = np.array([alpha * rows.mean("onset") for alpha, rows in scan.by("alpha") if alpha >= 100])
    np.testing.assert_allclose(products / products.mean(), 1, atol=0.05)
    lazy, feature = (
        Table([row for row in scan.rows if low <= row["alpha"] <= high]) for low, high in ((1e4, math.inf), (0, 1e-6))
    )
    np.testing.assert_allclose([rows.mean("largest") for _, rows in lazy.by("alpha")], 1, atol=0.03)
    np.testing.assert_allclose(lazy.column("largest") / lazy.column("at_start"), 1, atol=0.01)
    frozen = result.table.where(learner="frozen kernel").mean("error")
    for plateau, column in ((lazy, "error"), (feature, "error"), (feature, "at_onset"), (feature, "largest")):
        levels = [rows.mean(column) for _, rows in plateau.by("alpha")]
        assert max(levels) < 1.3 * min(levels), column
    assert lazy.mean("error") == pytest.approx(frozen, rel=0.1)
    assert feature.mean("error") < frozen / 2
    unsure = ("nothing is compressed", "Λ* and Λ_max have a plateau")  # the means are as published, five seeds scatter
    for claim in result.claims:
        assert claim.held is (None if claim.text.endswith(unsure) else True), claim.text


# --- claims can fail -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words", "change"),
    [
        ("neuron-dynamics", "gather at three points", times("arrived", 0.9)),
        ("neuron-dynamics", "equation of motion", put("gap", 1.0, attractor="B")),
        ("neuron-dynamics", "equation of motion", times("signs", 0.9)),
        ("neuron-dynamics", "at its own rate", times("rate", 1.3, attractor="C")),
        ("neuron-dynamics", "fastest attractor", times("share", 0.9)),
        ("neuron-dynamics", "do not move", put("idle_moved", 1e-9, seed=1)),
        ("neuron-dynamics", "changes at the interfaces", times("zeros", 1.1, seed=1)),
        ("neuron-dynamics", "changes at the interfaces", put("zeros", [0.3], when="end", seed=1)),
        ("neuron-dynamics", "their number stays", put("clusters", 2, when="end")),
        ("neuron-dynamics", "fall after the onset", times("error", 40, when="course")),
        ("neuron-dynamics", "fall after the onset", times("loss", 10, when="course")),
        ("neuron-dynamics", "informative direction (stripe)", times("alignment", 0.98, task="stripe")),
        ("neuron-dynamics", "informative plane (cylinder)", times("alignment", 0.9, task="cylinder")),
        ("neuron-dynamics", "Lazy training leaves", times("alignment", 1.1, alpha=1e6, stage="end", seed=1)),
        ("neuron-dynamics", "is Gaussian", times("p_value", 0.0, attractor="B")),
        ("neuron-dynamics", "is Gaussian", times("second_moment", 1.01, attractor="B")),
        ("amplification", "Λ* grows as √p (stripe, d = 5)", times("at_onset", 10, points=4640)),
        ("amplification", "Λ_max grows as √p (stripe, d = 5)", put("largest", 30.0)),
        ("amplification", "the predicted value (stripe, d = 10)", times("at_onset", 2, dimension=10)),
        ("amplification", "the predicted value (cylinder", times("at_onset", 0.5, task="cylinder")),
        ("amplification", "predicted before training", times("data_set", 1.5)),
        (
            "amplification",
            "predicted before training",
            lambda row: row | {"data_set": math.sqrt(row["points"]) * (1 + row["seed"] / 99)},
        ),
        ("learning-curves", "beats the lazy kernel (stripe, d = 5)", times("feature", 100, points=1024)),
        ("learning-curves", "beats the lazy kernel (stripe, d = 10)", times("lazy", 0.1, points=256)),
        ("learning-curves", "learns like the network (stripe, d = 5)", times("compressed", 3, points=512)),
        ("learning-curves", "learns like the network (stripe, d = 10)", times("compressed", 0.3, points=512)),
        ("learning-curves", "better than that at its start (stripe, d = 5)", times("end", 5, points=512)),
        ("learning-curves", "by a power of Λ (stripe, d = 5)", put("error", 0.05, part="gain")),
        ("lazy-transition", "error is that of the frozen kernel", times("error", 1.5, learner="frozen kernel")),
        ("lazy-transition", "below that of the frozen kernel", times("error", 2, alpha=1e-12)),
        ("lazy-transition", "below that of the frozen kernel", times("error", 0.1, learner="frozen kernel")),
        ("lazy-transition", "onset t* grows logarithmically", times("onset", 1.2)),
        ("lazy-transition", "onset t* falls as 1/α", times("onset", 1.2, alpha=100.0)),
        ("lazy-transition", "nothing is compressed", times("largest", 1.2, alpha=1e8)),
        ("lazy-transition", "Λ* and Λ_max have a plateau", times("at_onset", 2, alpha=1e-12)),
        ("lazy-transition", "Λ* and Λ_max have a plateau", times("at_onset", 0.1)),
    ],
)
def test_a_claim_fails_when_the_table_says_otherwise(committed, name, words, change) -> None:
    result = committed(name)
    assert result.claim(words).held is not False
    assert judged(result, change).claim(words).held is False


@pytest.mark.parametrize(
    ("name", "words", "change"),
    [
        ("amplification", "stays of order √p (stripe, d = 5)", as_in("at_end", "at_onset")),
        ("amplification", "stays of order √p (stripe, d = 10)", as_in("at_end", "at_onset")),
        ("learning-curves", "each lies in its band (stripe, d = 10)", law_of(lazy=-0.45, feature=-0.7)),
    ],
)
def test_what_was_published_and_did_not_come_out_is_said(committed, name, words, change) -> None:
    """And it would have been found, had it been there."""
    result = committed(name)
    assert result.claim(words).held is False
    assert judged(result, change).claim(words).held is True


# --- at every scale --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SETTINGS)
def test_jobs_are_one_setting_and_seed_each_and_the_scales_rise(name) -> None:
    study = studies.get(name)()
    counts = []
    for scale in ("smoke", "laptop", "paper"):
        jobs = list(study.jobs(scale))
        assert len({json.dumps(job, sort_keys=True) for job in jobs}) == len(jobs)
        assert all(isinstance(job["seed"], int) for job in jobs)
        counts.append(len(jobs))
    assert counts[0] < counts[1] <= counts[2]
    laptop = Table(list(study.jobs("laptop")))
    assert len(laptop.distinct("seed")) >= 5
    published = [job for job in study.jobs("paper") if "width" in job and job.get("part") not in ("rise", "arrows")]
    assert {job["width"] for job in published} == {10_000}
    assert {job["momentum"] for job in published} == {0.0}


@pytest.mark.spec("004/F72")
def test_the_lazy_exponent_does_not_depend_on_the_number_of_relevant_directions(committed) -> None:
    """Slopes of log error over log p of seven seeds, fitted here: both near 3/7, and nearer to each other."""
    result = committed("relevant-directions")
    slopes: dict[str, list[float]] = {"stripe": [], "cylinder": []}
    for task, own in slopes.items():
        for seed in range(7):
            rows = result.table.where(task=task, seed=seed).rows
            assert {row["dimension"] for row in rows} == {3}
            points, errors = ([row[name] for row in rows] for name in ("points", "error"))
            own.append(float(np.polyfit(np.log(points), np.log(errors), 1)[0]))
    means = {task: np.mean(own) for task, own in slopes.items()}
    for task, mean in means.items():
        assert mean == pytest.approx(-3 / 7, rel=0.15), task
    assert means["stripe"] == pytest.approx(means["cylinder"], abs=0.05)
    assert result.claim("same exponent").held
    assert result.claim("(stripe").held
    assert result.claim("(cylinder").verdict == "undecided", "its interval reaches beyond the bound"
