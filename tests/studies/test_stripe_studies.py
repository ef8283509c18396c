"""The studies of stripes and cylinders at smoke scale: neurons, amplification, learning curves, the output scale."""

import json
import math

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from polariscope.kernels.learning_curves import LearningCurve, PowerLaw
from polariscope.studies import Table
from polariscope.studies.amplification import curve, draw, exponent_claim, normalised, trained, within, world_of
from polariscope.studies.engine import Outcome
from polariscope.studies.lazy_transition import onset_slope
from polariscope.studies.learning_curves import LearningCurves, predicted_exponents
from polariscope.studies.neuron_dynamics import crossings, fixed_point_figure
from polariscope.studies.study import studies

NAMES = ("neuron-dynamics", "amplification", "learning-curves", "lazy-transition")


def assert_written(outcome: Outcome, pictures: set[str], settings: set[str]) -> None:
    """Pictures with something on them, and beside them the rows they show, each with its seed and settings."""
    assert {path.stem for path in outcome.path.glob("*.png")} == pictures
    for path in outcome.path.glob("*.png"):
        assert (np.asarray(Image.open(path).convert("L")) < 200).mean() > 0.005, path.name
    rows = pq.read_table(outcome.path / "table.parquet").to_pylist()
    assert len(rows) == len(outcome.table) > 0
    assert all(row[key] is not None for row in rows for key in {"seed", "points", "dimension"} | settings)
    for path in (outcome.path / "jobs").glob("*.json"):
        record = json.loads(path.read_text())
        assert all({"seed", "points"} <= row.keys() and record["job"].items() <= row.items() for row in record["rows"])
    verdicts = json.loads((outcome.path / "claims.json").read_text())
    assert all({"text", "published", "measured", "held", "note", "verdict"} == set(made) for made in verdicts)
    assert all(made.held in (True, False, None) and type(made.held) in (bool, type(None)) for made in outcome.claims)
    text = (outcome.path / "README.md").read_text()
    assert all(made.text in text for made in outcome.claims)
    assert "Published and measured" in text


# --- neurons ---------------------------------------------------------------------------------------------------------


@pytest.mark.xdist_group("neuron-dynamics")
@pytest.mark.spec("004/F27", "004/F22", "004/F28", "004/F70")
def test_neurons_gather_at_three_points_along_their_equation(outcome) -> None:
    found = outcome("neuron-dynamics")
    rows = found.table.where(part="compressing")
    (whole,) = rows.where(attractor="all").rows
    assert whole["points"] == 10_000
    assert whole["arrived"] >= 0.75
    assert whole["idle"] > 0
    assert whole["idle_moved"] == 0
    paths = np.array(whole["paths"])
    assert paths.shape[0] == 40
    ends = np.abs(paths[:, -1, None] - [[0.45004, 0], [-1.2262, 0], [0.64664, 0]]).max(2).min(1)
    assert (ends < 0.1).mean() > 0.6
    assert np.abs(np.diff(paths, axis=1)).max(2).max() > 0.1  # they have moved
    for words in ("gather at three points", "equation of motion", "at its own rate", "fastest attractor", "stay put"):
        made = found.claim(words)
        assert made.held, made.measured
    rates = {row["attractor"]: row["rate"] for row in rows.rows if row["attractor"] != "all"}
    assert rates == {k: pytest.approx(v, abs=0.02) for k, v in {"C": 0.42213, "A": 0.2376, "B": 0.07859}.items()}
    pictures = {
        "single-neurons",
        "fixed-points",
        "trajectories",
        "decision",
        "loss",
        "arrows-stripe",
        "arrows-cylinder",
    }
    assert_written(found, pictures, {"part", "task"})


@pytest.mark.xdist_group("neuron-dynamics")
@pytest.mark.spec("004/F29", "004/F30")
def test_the_output_comes_to_change_sign_at_the_interfaces(outcome) -> None:
    found = outcome("neuron-dynamics")
    rows = found.table.where(part="fitting")
    end, onset, course = (rows.where(when=when).rows[0] for when in ("end", "t_star", "course"))
    np.testing.assert_allclose(end["zeros"], [-0.3, 1.1854923], atol=0.05)
    assert len(onset["zeros"]) == 1
    assert onset["time"] < end["time"]
    assert end["clusters"] == onset["clusters"] == 3
    # the histograms hold the neurons: at the onset at the fixed points, later elsewhere
    assert 0.8 * end["width"] < sum(onset["intercepts"]) <= end["width"]
    assert end["intercepts"] != onset["intercepts"]
    at_onset = np.interp(course["onset"], course["times"], course["error"])
    assert at_onset > 0.3
    assert course["error"][-1] < 0.01
    assert course["loss"][0] == 1
    assert course["loss"][-1] < 0.1
    for words in ("changes at the interfaces", "their number stays", "fall after the onset"):
        made = found.claim(words)
        assert made.held, made.measured


@pytest.mark.xdist_group("neuron-dynamics")
@pytest.mark.spec("004/F31")
def test_arrows_turn_into_the_informative_directions_unless_lazy(outcome) -> None:
    found = outcome("neuron-dynamics")
    rows = found.table.where(part="arrows")
    stripe, lazy, cylinder = (
        rows.where(task=task, alpha=alpha) for task, alpha in (("stripe", 1e-6), ("stripe", 1e6), ("cylinder", 1e-6))
    )
    assert stripe.where(stage="start").mean("alignment") == pytest.approx(0.5, abs=0.05)
    assert stripe.where(stage="end").mean("alignment") > 0.99
    assert lazy.where(stage="end").mean("alignment") == pytest.approx(
        lazy.where(stage="start").mean("alignment"), abs=1e-4
    )
    assert cylinder.where(stage="start").mean("alignment") == pytest.approx(2 / 3, abs=0.05)
    assert cylinder.where(stage="end").mean("alignment") > 0.97
    for frames in (stripe, lazy, cylinder):
        times = frames.column("time")
        assert len(times) == 4
        assert (np.diff(times) > 0).all()
        assert times[0] == 0
        assert frames.where(stage="onset").rows
    first, last = (np.array(stripe.where(stage=stage).rows[0]["arrows"]) for stage in ("start", "end"))
    assert np.square(first[:, 1]).sum() > 0.2 * np.square(first).sum()
    assert np.square(last[:, 1]).sum() < 0.02 * np.square(last).sum()
    assert np.linalg.norm(last, axis=1).max() == pytest.approx(1, abs=1e-3)
    solid = np.array(cylinder.where(stage="end").rows[0]["arrows"])
    assert np.square(solid[:, 2]).sum() < 0.1 * np.square(solid).sum()


@pytest.mark.xdist_group("neuron-dynamics")
@pytest.mark.spec("004/F66")
def test_the_noise_of_finite_data_is_gaussian_of_known_variance(outcome) -> None:
    rows = outcome("neuron-dynamics").table.where(part="noise")
    assert rows.distinct("attractor") == ["A", "B", "C"]
    np.testing.assert_allclose(rows.column("second_moment"), rows.column("active"), atol=1e-8)
    assert (rows.column("p_value") > 0.01).all()
    np.testing.assert_allclose(rows.column("spread"), 1, atol=0.1)


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


@pytest.mark.xdist_group("amplification")
@pytest.mark.spec("004/F17", "004/F19", "004/F18")
@pytest.mark.parametrize("dimension", [5, 10])
def test_amplification_grows_with_the_root_of_the_data(outcome, dimension) -> None:
    found = outcome("amplification")
    rows = found.table.where(part="scaling", task="stripe", dimension=dimension)
    assert len(rows.distinct("seed")) >= 8
    assert min(rows.distinct("points")) >= 200
    first, largest = curve(rows, "at_onset"), curve(rows, "largest")
    assert 0.4 < first.power_law().exponent < 0.7
    assert 0.65 < np.median(normalised(rows)) < 1.35
    assert (rows.column("largest") >= rows.column("at_onset")).all()
    assert 0.25 < largest.power_law().exponent < 0.85
    for words in (f"Λ* grows as √p (stripe, d = {dimension})", f"what theory says (stripe, d = {dimension})"):
        made = found.claim(words)
        assert made.held, made.measured
    assert found.claim("known before any training").held


@pytest.mark.xdist_group("amplification")
@pytest.mark.spec("004/F20", "004/F70")
def test_amplification_rises_exponentially_to_a_plateau(outcome) -> None:
    found = outcome("amplification")
    for dimension, rate in ((5, 0.7872), (10, 0.7779)):
        rows = found.table.where(part="rise", dimension=dimension)
        assert rows.column("neurons").min() >= 10
        assert np.median(rows.column("rate")) == pytest.approx(rate, abs=0.1)
        runs = found.table.where(part="scaling", task="stripe", dimension=dimension, points=1000)
        assert abs(np.median(runs.column("late_rate"))) < 0.1
        path = runs.rows[0]
        assert path["factor"][0] == pytest.approx(1, abs=0.3)
        assert np.interp(path["onset"], path["time"], path["factor"]) == pytest.approx(path["at_onset"], rel=0.2)
        made = found.claim(f"flat before the onset (stripe, d = {dimension})")
        assert made.held, made.measured
    assert_written(found, {"scaling", "rise"}, {"task", "width", "steps"})


@pytest.mark.xdist_group("amplification")
@pytest.mark.spec("004/F68")
def test_the_cylinder_is_compressed_less_and_later(outcome) -> None:
    table = outcome("amplification").table
    rows = table.where(part="scaling", task="cylinder")
    assert 0.3 < np.median(normalised(rows)) < 0.6
    stripes = table.where(part="scaling", task="stripe")
    assert np.median(normalised(rows)) < np.median(normalised(stripes))
    assert rows.mean("onset") > 1.5 * stripes.mean("onset")
    assert outcome("amplification").claim("what theory says (cylinder").held


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


@pytest.mark.parametrize(
    ("low", "exponent", "high", "held"),
    [
        (0.45, 0.52, 0.6, True),
        (-0.1, 0.3, 0.6, None),  # cannot tell growth from none
        (0.53, 0.57, 0.6, True),  # near enough
        (0.62, 0.7, 0.8, False),
        (0.1, 0.2, 0.3, False),
    ],
)
def test_an_exponent_is_judged_against_its_rival(low, exponent, high, held) -> None:
    verdict, note = within(PowerLaw(exponent, low, high, 1.0), 0.5, 0.0)
    assert verdict is held
    assert bool(note) == (not low <= 0.5 <= high or held is None)


def test_few_seeds_decide_no_exponent() -> None:
    sizes = np.array([200, 400, 800])
    exact = np.sqrt(sizes)[:, None] * np.ones((3, 6))
    made = exponent_claim("Λ", "1/2", LearningCurve(sizes, exact), 0.5, 0.0)
    assert made.held
    assert "0.50 (95 % interval 0.50 to 0.50) from 200 to 800 points, 6 seeds" in made.measured
    assert exponent_claim("Λ", "1/2", LearningCurve(sizes, exact[:, :3]), 0.5, 0.0).held is None
    assert exponent_claim("Λ", "1/2", LearningCurve(sizes[:1], exact[:1]), 0.5, 0.0).measured == "no exponent"
    small = LearningCurve(np.array([50, *sizes]), np.vstack([np.full((1, 6), 99.0), exact]))
    assert exponent_claim("Λ", "1/2", small, 0.5, 0.0).measured == made.measured  # 50 points do not count


# --- learning curves -------------------------------------------------------------------------------------------------


@pytest.mark.xdist_group("learning-curves")
@pytest.mark.spec("004/F41", "004/F38", "004/F39", "004/F70")
def test_features_and_what_accounts_for_them(outcome) -> None:
    found = outcome("learning-curves")
    rows = found.table.where(part="curve", task="stripe")
    median = {name: curve(rows, name).medians for name in ("feature", "lazy", "start", "compressed", "end")}
    assert (median["feature"] < 0.6 * median["lazy"]).all()
    assert (median["lazy"] < median["start"]).all()  # the honest baseline is the harder one
    large = np.array(rows.distinct("points")) >= 256
    ratio = median["compressed"] / median["feature"]
    assert ((ratio > 0.5) & (ratio < 1.8))[large].all()
    assert (median["end"] <= 0.5 * median["start"])[large].all()
    for words in ("beats the lazy kernel (stripe", "learns like the network", "better than that at its start"):
        made = found.claim(words)
        assert made.held, made.measured
    assert found.claim("Lazy: β = d/(3d − 2) (stripe").held is None  # three seeds
    assert "-0.692" in (found.path / "README.md").read_text()
    assert_written(found, {"learning-curves", "gain"}, {"part", "task", "test"})


@pytest.mark.xdist_group("learning-curves")
@pytest.mark.spec("004/F68")
def test_the_network_beats_the_kernel_on_the_cylinder(outcome) -> None:
    found = outcome("learning-curves")
    rows = found.table.where(part="curve", task="cylinder")
    assert (curve(rows, "feature").medians < curve(rows, "lazy").medians).all()
    assert found.claim("beats the lazy kernel (cylinder").held
    assert predicted_exponents("cylinder", 3) == {
        "feature": -0.5,
        "lazy": pytest.approx(-3 / 7),
        "start": pytest.approx(-3 / 7),
        "compressed": -0.5,
    }


@pytest.mark.xdist_group("learning-curves")
@pytest.mark.spec("004/F43")
def test_compressing_the_data_gains_what_theory_says(outcome) -> None:
    found = outcome("learning-curves")
    gain = {
        task: curve(found.table.where(part="gain", task=task), "error", over="factor").power_law().exponent
        for task in ("stripe", "cylinder")
    }
    assert -0.75 < gain["stripe"] < -0.5
    assert gain["stripe"] < gain["cylinder"] - 0.2
    assert -0.35 < gain["cylinder"] < 0
    assert found.claim("by a power of Λ (stripe").held


@pytest.mark.spec("004/F41", "004/F42")
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

    right = {made.text: made for made in LearningCurves().claims(table("feature", "lazy"), "laptop")}
    assert len(right) == 7
    assert all(made.held for made in right.values())
    assert "-0.69 (95 % interval" in right["Feature: β = (2d − 1)/(3d − 2) (stripe, d = 5)"].measured
    assert right["Lazy: β = d/(3d − 2) (stripe, d = 5)"].published.endswith("-0.385")
    wrong = LearningCurves().claims(table("lazy", "feature"), "laptop")
    assert [made.held for made in wrong if "β" in made.text or "beats" in made.text or "lead" in made.text] == [
        False
    ] * 4


# --- the output scale ------------------------------------------------------------------------------------------------


@pytest.mark.xdist_group("lazy-transition")
@pytest.mark.spec("004/F44", "004/F70")
def test_the_output_scale_takes_a_network_from_features_to_its_kernel(outcome) -> None:
    found = outcome("lazy-transition")
    scan = found.table.where(learner="network")
    for made in found.claims:
        assert made.held, made.measured
    assert onset_slope(scan) == pytest.approx(1.124, abs=0.1)
    products = [alpha * rows.mean("onset") for alpha, rows in scan.by("alpha") if alpha >= 100]
    assert max(products) / min(products) < 1.05
    lazy = Table([row for row in scan.rows if row["alpha"] >= 1e4])
    np.testing.assert_allclose(lazy.column("largest") / lazy.column("at_start"), 1, atol=0.03)
    np.testing.assert_allclose(lazy.column("largest"), 1, atol=3 / math.sqrt(lazy.rows[0]["width"]))
    frozen = found.table.where(learner="frozen kernel").mean("error")
    assert lazy.mean("error") == pytest.approx(frozen, abs=0.01)
    feature = Table([row for row in scan.rows if row["alpha"] <= 1e-6])
    assert feature.mean("error") < frozen / 2
    assert feature.column("at_onset").min() > 2
    assert_written(found, {"alpha-scan"}, {"width", "learner", "test"})


# --- at every scale --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
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
