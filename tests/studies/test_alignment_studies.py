"""The studies of alignment: orthogonal decoders, squares, raising beta, data that entangles.

What trained models do is read from the committed tables; that a verdict follows its table is seen in test_verdicts.
"""

import re
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import kstest, spearmanr, ttest_1samp

from polariscope.examination.jacobians import decoder_grams
from polariscope.examination.traversals import traverse
from polariscope.measures.orthogonality import haar_distance
from polariscope.nets.architecture import Linear
from polariscope.nets.autoencoder import Autoencoder, AutoencoderConfig
from polariscope.studies import Table, studies
from polariscope.studies.inner_workings.beta_line import _predicted, first_collapse
from polariscope.studies.inner_workings.degenerate_squares import _exact, projections
from polariscope.studies.inner_workings.manipulated_data import _histogram, _violins, modes
from polariscope.theory.pca_vae import optimum
from polariscope.theory.polarised_regime import polarised_share, principal_order

# --- orthogonal decoders ---------------------------------------------------------------------------------------------


@pytest.mark.spec("003/F3-065", "003/F3-003", "003/F3-004")
@pytest.mark.parametrize(("name", "stands_for"), [("square-nonlinear", "Synth. Non-Lin."), ("blobs", "Gaussian blobs")])
def test_the_diagonal_posterior_has_the_most_orthogonal_decoder(committed, name, stands_for) -> None:
    """R4 and R5: the diagonal posterior aligns; autoencoders have random orientations, as far as Haar's rotations
    are."""
    result = committed("orthogonal-decoders")
    most = [claim for claim in result.claims if "most orthogonal" in claim.text and stands_for in claim.text]
    assert [claim.held for claim in most] == [True]
    final = result.table.where(share=1.0, task=name)
    diagonal, plain, full = (final.where(model=model) for model in ("beta-vae", "ae", "full-beta-vae"))
    assert [len(rows) for rows in (diagonal, plain, full)] == [5, 5, 5]
    assert diagonal.mean("distance") < min(plain.mean("distance"), full.mean("distance"))
    haar = haar_distance(2)
    assert abs(plain.mean("distance") - haar.mean) < 2 * haar.std / np.sqrt(5)
    if name == "blobs":
        assert diagonal.mean("score") > 0.87
        assert diagonal.mean("distance") < 0.14


@pytest.mark.xdist_group("orthogonal-decoders")
@pytest.mark.spec("003/F3-101")
def test_every_run_is_scored_at_three_stages_of_training(outcome) -> None:
    result = outcome("orthogonal-decoders")
    for model in ("beta-vae", "ae", "full-beta-vae"):
        rows = result.table.where(model=model)
        assert [(row["seed"], row["share"]) for row in rows.rows] == [(0, 0.2), (0, 0.6), (0, 1.0)]
    rows = [row | {"distance": row["share"], "score": 0.5} for row in result.table.rows]
    figure = studies.get("orthogonal-decoders")().figures(Table(rows))["distance-score"]
    points = [part.get_offsets().tolist() for part in figure.axes[0].collections]
    assert points == [[[0.2, 0.5]], [[0.6, 0.5]], [[1.0, 0.5]]]


@pytest.mark.parametrize(
    ("scores", "held"),
    [
        ([9, 8, 7, 6, 5, 4], True),
        ([4, 5, 6, 7, 8, 9], False),
        ([8, 9, 6, 7, 4, 5], True),  # Spearman -0.83, p = 0.02
        ([7, 9, 5, 8, 4, 6], None),  # Spearman -0.49, p = 0.16
        ([8, 5, 9, 6, 7, 6.5], False),  # Spearman -0.14
    ],
)
def test_distance_and_score_have_to_fall_and_rise_together_beyond_chance(scores, held) -> None:
    rows = [
        {"task": "dsprites", "model": "beta-vae", "share": 0.6, "distance": at / 10, "score": score / 10}
        for at, score in enumerate(scores)
    ]
    result = studies.get("orthogonal-decoders")().judge(Table(rows), "laptop")[-1]
    assert "the more orthogonal" in result.text
    assert result.held is held
    assert bool(result.note) == (held is None)


@pytest.mark.spec("003/F3-033")
@pytest.mark.parametrize(
    ("errors", "share"), [([0.5, 0.02, 0.01, 0.01], 0.75), ([0.01, 0.5], 0.0), ([0.01, 0.029], 1.0), ([0.03], 0.0)]
)
def test_the_share_counts_from_the_last_time_the_error_was_large(errors, share) -> None:
    assert polarised_share(errors) == share


@pytest.mark.spec("003/F3-033")
def test_converged_trainings_are_in_the_polarised_regime_nearly_all_the_time(committed) -> None:
    """R3 and R5: the shares are counted again from the errors that were recorded."""
    result = committed("polarised-training")
    for name, group in result.table.where(latents="dependent").by("task"):
        shares = [100 * polarised_share(row["errors"]) for row in group.rows]
        assert len(shares) >= 5, name
        assert group.column("share") == pytest.approx(shares), name
        assert np.median(shares) > 90, name


@pytest.mark.spec("003/F3-064")
def test_the_median_training_of_every_task_is_in_the_polarised_regime_for_nine_tenths_of_its_time(committed) -> None:
    """Nine seeds that no setting was chosen on: every median is above 90 %. With confidence it is so on three tasks,
    and not on blobs and sprites, so that the claim of the study, 97.8 % on every task, is not held."""
    result = committed("polarised-training")
    table = result.table.where(latents="dependent")
    assert min(table.column("seed")) == 5
    lower = {}
    for name, group in table.by("task"):
        shares = sorted(100 * polarised_share(row["errors"]) for row in group.rows)
        assert len(shares) == 9, name
        assert shares[4] > 90, name
        lower[name] = shares[1]  # the lower end of the interval of the median of nine
    assert {name for name, share in lower.items() if share > 90} == {"square-linear", "square-nonlinear", "mnist"}
    assert (lower["blobs"], lower["dsprites"]) == pytest.approx((90, 56))
    assert result.claim("nearly all the time").verdict == "not held"


def of_effect(differences: np.ndarray, least: float) -> bool | None:
    """Whether an effect over seeds reaches its least size, and lies above zero with 95 % confidence."""
    if differences.mean() < least:
        return False
    return True if ttest_1samp(differences, 0).confidence_interval(0.95).low > 0 else None


def together(verdicts: Iterable[bool | None]) -> bool | None:
    every = list(verdicts)
    return False if False in every else None if None in every else True


@pytest.mark.spec("003/F3-106")
def test_vaes_of_real_images_are_polarised_and_more_orthogonal(committed) -> None:
    """Both data sets with five seeds in every cell; shares are counted again from the errors that were recorded."""
    result = committed("real-alignment")
    files = ("mnist", "fashion_mnist")
    assert result.table.distinct("data") == sorted(files)
    few, many, distance = {}, {}, {}
    for data in files:
        rows = result.table.where(data=data)
        for latents, shares in (("dependent", few), ("ten", many)):
            followed = rows.where(model="vae", latents=latents)
            shares[data] = np.array([100 * polarised_share(row["errors"]) for row in followed.rows])
            assert followed.distinct("seed") == list(range(5))
            assert followed.column("share") == pytest.approx(shares[data])
        for model in ("vae", "ae", "full-beta-vae"):
            own = rows.where(model=model, latents="dependent")
            assert own.distinct("seed") == list(range(5))
            assert min(own.column("active")) > 1, "all have a distance"
            distance[data, model] = own.column("distance")
    claim = result.claim("nearly all the time")
    # The 95 % interval of the median of five reaches from the smallest to the largest.
    inside = [True if min(own) >= 90 else False if max(own) < 90 else None for own in few.values()]
    assert claim.held is together(inside)
    assert result.claim("Pruning more latents").held is together(of_effect(few[d] - many[d], 0.3) for d in files)
    for words, other in (("that of the autoencoder", "ae"), ("with a full covariance", "full-beta-vae")):
        nearer = [distance[data, other] - distance[data, "vae"] for data in files]
        claim = result.claim(f"is more orthogonal than {words}")
        assert claim.held is together(of_effect(own, 0.1) for own in nearer)
        for data in files:
            assert f"{distance[data, 'vae'].mean():.2f} [" in claim.measured or "hold" in claim.measured


# Proves 003/F3-105 once its table is there.
def test_a_small_change_of_rooms_is_judged_by_four_scores_of_two_vaes_and_pcl(committed) -> None:
    """Three models on original, changed and noisy rooms, five seeds each; every verdict is made again from the rows."""
    result = committed("manipulated-rooms")
    rooms = result.table.where(part="rooms")
    level = {}
    for model in ("beta-vae", "beta-tc-vae", "pcl"):
        for kind in ("original", "modified", "noise"):
            cell = rooms.where(model=model, data=kind)
            assert cell.distinct("seed") == list(range(5)), (model, kind)
            for score in ("mig", "dci", "factor-vae-score", "sap"):
                level[model, kind, score] = np.array([row[score] for row in sorted(cell.rows, key=lambda r: r["seed"])])
    known = [
        True if low >= 0.1 else False if high < 0.1 else None
        for model in ("beta-vae", "beta-tc-vae", "pcl")
        for low, high in [ttest_1samp(level[model, "original", "mig"], 0).confidence_interval(0.95)]
    ]
    claims = {
        words: result.claim(words)
        for words in ("lowers the MIG of the VAEs", "keeps its MIG", "scores of the VAEs fall", "scores of PCL fall")
    }
    if together(known) is not True:
        assert {claim.held for claim in claims.values()} == {None}, "nothing can be lost of what was never found"
        return

    def lost(model: str, kind: str, score: str) -> np.ndarray:
        before = level[model, "original", score]
        return (before - level[model, kind, score]) / before.mean()

    vaes, scores = ("beta-vae", "beta-tc-vae"), ("mig", "dci", "factor-vae-score", "sap")
    further = [of_effect(lost(m, "modified", "mig") - lost(m, "noise", "mig"), 0.1) for m in vaes]
    at_least = [ttest_1samp(lost(m, "modified", "mig"), 0).confidence_interval(0.95) for m in vaes]
    enough = [True if low >= 0.2 else False if high < 0.2 else None for low, high in at_least]
    assert claims["lowers the MIG of the VAEs"].held is together([*further, *enough])
    low, high = ttest_1samp(lost("pcl", "modified", "mig"), 0).confidence_interval(0.95)
    assert claims["keeps its MIG"].held is (True if high <= 0.1 else False if low > 0.1 else None)
    falls = {s: np.mean([level[m, "original", s] - level[m, "modified", s] for m in vaes], axis=0) for s in scores}
    bounds = [ttest_1samp(own, 0).confidence_interval(0.95) for own in falls.values()]
    assert claims["scores of the VAEs fall"].held is together(
        True if low >= 0.02 else False if high < 0.02 else None for low, high in bounds
    )
    less = [np.mean([lost(m, "modified", s) for m in vaes], axis=0) - lost("pcl", "modified", s) for s in scores]
    assert claims["scores of PCL fall"].held is together(of_effect(own, 0.1) for own in less)


@pytest.mark.spec("003/F3-066")
def test_over_checkpoints_orthogonal_decoders_go_with_disentangled_codes(committed) -> None:
    """Spearman is below 0 on all four tasks with factors: clearly on squares and blobs, weakly on bent squares and on
    sprites, where the published effect is not held."""
    result = committed("orthogonal-decoders")
    ranks = {}
    for name in ("square-linear", "square-nonlinear", "blobs", "dsprites"):
        rows = result.table.where(task=name, model="beta-vae").rows
        assert sorted({(row["seed"], row["share"]) for row in rows}) == [
            (seed, share) for seed in range(5) for share in (0.2, 0.6, 1.0)
        ]
        ranks[name] = spearmanr([row["distance"] for row in rows], [row["score"] for row in rows]).statistic
    assert max(ranks.values()) < 0
    assert max(ranks["square-linear"], ranks["blobs"]) < -0.8
    claim = result.claim("the more orthogonal the decoder")
    assert claim.verdict == "not held"
    assert f"{ranks['dsprites']:.2f}" in claim.measured


@pytest.mark.spec("003/F3-108")
def test_a_price_of_oblique_columns_keeps_decoders_orthogonal_as_beta_goes_to_0(committed) -> None:
    """Means of both squares are at most .02 at every beta with it, and near those of a random rotation without it on
    bent squares. One of forty restarts has .09 (a cosine of .0006), so that five seeds leave the claim undecided."""
    result = committed("orthogonality-control")
    controlled = result.table.where(model="controlled")
    assert sorted(controlled.distinct("beta")) == [0, 1e-5, 1e-4, 1e-3]
    distances = {
        (task, beta): cell.column("distance") for task, rows in controlled.by("task") for beta, cell in rows.by("beta")
    }
    assert len(distances) == 8
    for place, values in distances.items():
        assert len(values) == 5, place
        assert values.mean() < 0.025, place
    assert sorted(np.concatenate(list(distances.values())))[-2] < 0.03
    assert min(controlled.column("explained")) > 0.95, "the images are still reconstructed"
    plain = result.table.where(model="beta-vae", task="square-nonlinear")
    for beta in (0, 1e-5, 1e-4):
        free = plain.where(beta=beta).column("distance")
        assert (free - distances["square-nonlinear", beta]).min() > 0.4
        assert abs(free.mean() - haar_distance(2).mean) < 0.05
    assert [claim.verdict for claim in result.claims] == ["undecided"] * 3


# --- squares ---------------------------------------------------------------------------------------------------------

R3 = {
    1.0: ((0.55, 0.22), (0.65, 0.31)),
    1.2: ((0.78, 0.21), (0.145, 0.148)),
    1.5: ((0.98, 0.01), (0.005, 0.003)),
    2.0: ((0.98, 0.01), (0.002, 0.001)),
}
"""Spec 003: score and distance (mean and spread of 5 seeds) by the ratio of the sides."""


@pytest.mark.spec("003/F3-067")
def test_stretching_a_square_aligns_it_as_far_as_the_prototype(committed) -> None:
    """R3 is met within two standard errors, and half of the last digit it is printed with, at all four ratios."""
    result = committed("degenerate-squares")
    trained = result.table.where(route="trained")
    scores, distances = ([group.mean(name) for _, group in trained.by("ratio")] for name in ("score", "distance"))
    assert (np.diff(scores) > 0).all()
    assert (np.diff(distances) < 0).all()
    for ratio, printed in R3.items():
        rows = trained.where(ratio=ratio)
        assert len(rows) == 10
        for name, (mean, spread), digit in zip(("score", "distance"), printed, (0.01, 0.001), strict=True):
            error = np.hypot(rows.std(name) / np.sqrt(10), spread / np.sqrt(5))
            assert abs(rows.mean(name) - mean) <= 2 * error + digit / 2, (ratio, name)
    assert result.claim("restores the alignment").verdict == "held"
    assert result.claim("stretched by half").verdict == "held"


@pytest.mark.spec("003/F3-068")
def test_a_square_is_turned_at_random_and_a_rectangle_is_not(committed) -> None:
    result = committed("degenerate-squares")
    assert result.claim("orientation of a square is arbitrary").held
    assert result.claim("one best orientation").held
    angles = result.table.where(route="exact", ratio=1.0).column("angle")
    assert len(angles) == 40
    assert kstest(angles / 90, "uniform").pvalue > 0.05
    codes = studies.get("degenerate-squares")().figures(result.table)["codes"]
    scatters = [axes.collections[0].get_offsets() for axes in codes.axes]
    assert [len(points) for points in scatters] == [400] * 16, "four restarts of four ratios"
    now = {ratio: _exact(ratio, starts=3) for ratio in (1.0, 1.2)}
    assert np.ptp([row["angle"] for row in now[1.0]]) > 10
    assert max(row["distance"] for row in now[1.2]) < 1e-3


@pytest.mark.spec("003/F3-080")
def test_the_most_orthogonal_restart_is_a_good_pick_without_labels(committed) -> None:
    result = committed("degenerate-squares")
    rows = result.table.where(route="trained", ratio=1.2)
    assert len(rows) == 10
    picked = rows.column("score")[rows.column("distance").argmin()]
    assert picked >= np.median(rows.column("score"))
    assert result.claim("works without labels").held is None, "one pick says nothing of picks in general"


@pytest.mark.spec("003/F3-096")
def test_the_picture_of_projections_is_flat_for_a_square() -> None:
    (axes,) = projections().axes
    assert [line.get_label() for line in axes.lines] == ["1", "1.2", "1.5", "2"]
    for line in axes.lines:
        ratio, variance = float(line.get_label()), line.get_ydata()
        assert variance.min() == pytest.approx(1 / 12)
        assert variance.max() == pytest.approx(ratio**2 / 12)
        if ratio > 1:
            assert line.get_xdata()[variance.argmin()] == 90, "along the second side"


# --- beta, manipulated data, pictures --------------------------------------------------------------------------------


@pytest.mark.parametrize(("beta", "active"), [(0.12, 2), (0.13, 1), (0.49, 1), (0.51, 0)])
def test_a_latent_counts_as_in_use_up_to_a_variance_of_three_quarters(beta, active) -> None:
    """β/2 of 1/3 and of 1/12: somewhat below the betas of 2/3 and 1/6 at which they die."""
    assert _predicted(beta) == active


@pytest.mark.spec("003/F3-035")
def test_the_first_latent_dies_between_the_betas_around_a_sixth_as_theory_says(committed) -> None:
    """Posterior variances are β / 2λ until they reach 1, for the variances 1/3 and 1/12 of the linear task."""
    result = committed("beta-line")
    linear = result.table.where(task="square-linear")
    betas = linear.distinct("beta")
    below, above = max(b for b in betas if b < 1 / 6), min(b for b in betas if b > 1 / 6)
    assert (below, above) == (0.14, 0.2)
    for _, group in linear.by("seed"):
        assert first_collapse(group) == above
        for row in group.rows:
            expected = [min(1.0, row["beta"] / 2 / spread) for spread in (1 / 3, 1 / 12)]
            assert row["var"] == pytest.approx(expected, abs=0.03), row["beta"]
    assert len(linear.distinct("seed")) == 5
    claim = result.claim("Raising beta until one latent is dead")
    assert (claim.verdict, claim.measured) == ("held", f"farthest {above:.2f} of 5")


@pytest.mark.spec("003/F3-036")
def test_the_score_falls_in_a_staircase_over_beta(committed) -> None:
    result = committed("beta-line")
    linear = result.table.where(task="square-linear")
    stairs = {0.05: (1, 2), 0.1: (1, 2), 0.2: (0.5, 1), 0.4: (0.5, 1), 0.75: (0, 0), 1.0: (0, 0)}
    for beta, (score, active) in stairs.items():
        rows = linear.where(beta=beta)
        assert len(rows) == 5
        assert rows.column("score") == pytest.approx([score] * 5, abs=0.02), beta
        assert set(rows.column("active")) == {active}, beta
        if active == 2:
            assert rows.column("distance").max() < 0.01
    assert result.claim("The score falls in steps").verdict == "held"
    assert result.claim("Latents become passive in stages").verdict == "held"
    table = result.table.where(task="square-nonlinear")
    assert {"score", "distance", "active", "var"} <= table.rows[0].keys()


def test_no_dead_latent_no_collapse() -> None:
    assert first_collapse(Table([{"beta": 1.0, "var": [0.1, 0.2]}])) == np.inf
    assert first_collapse(Table([{"beta": 1.0, "var": [0.1, 0.97]}, {"beta": 0.5, "var": [0.1, 0.99]}])) == 0.5


@pytest.mark.parametrize(
    ("scores", "held", "measured"),
    [
        ((0.45, 0.89, 0.32, 0.36, 0.40), True, "0.38; 0.89; 0.31; 0.80"),
        ((0.45, 0.79, 0.32, 0.36, 0.40), False, "0.38; 0.79; 0.21; 0.80"),  # none finds the factors
        ((0.62, 0.95, 0.60, 0.61, 0.65), False, "0.62; 0.95; 0.25; 0.80"),  # none is entangled
        ((0.38, 0.86, 0.88, 0.89, 0.90), False, "0.38; 0.88; 0.44; 0.20"),  # most still find the factors
        ((0.2, 0.34, 0.5, 0.65, 0.9), False, "0.42; 0.90; -0.20; 0.80"),  # spread out
        ((0.32, 0.89, 0.36, 0.40), None, "0.36; 0.89; 0.41; 0.75"),  # too few
    ],
)
def test_restarts_have_two_modes_where_a_gap_wider_than_either_parts_the_entangled_from_the_rest(
    scores, held, measured
) -> None:
    plane = {"part": "plane", "model": "beta-vae", "seed": 0}
    rows = [plane | {"data": "modified", "seed": seed, "score": score} for seed, score in enumerate(scores)]
    rows += [plane | {"data": "original", "seed": seed, "score": 0.9} for seed in range(len(scores))]
    (result,) = (
        claim for claim in studies.get("manipulated-data")().judge(Table(rows), "laptop") if "two modes" in claim.text
    )
    assert result.held is held
    assert "; ".join(re.findall(r"-?\d\.\d\d", result.measured)) == measured


def test_both_modes_of_the_restarts_are_listed() -> None:
    assert [mode.tolist() for mode in modes(np.array([0.45, 0.89, 0.32]))] == [[0.32, 0.45], [0.89]]


def test_the_histogram_of_restarts_shows_both_modes() -> None:
    rows = [{"model": "beta-vae", "mig": mig} for mig in (0.02, 0.03, 0.03, 0.01, 0.45)]
    (axes,) = _histogram(Table(rows)).axes
    heights = [bar.get_height() for bar in axes.patches]
    assert heights == [4, *[0] * 12, 1, 0]


@pytest.mark.spec("003/F3-070")
def test_data_changed_a_little_lowers_scores_of_vaes_but_noise_of_its_size_does_so_too(committed) -> None:
    """Six models on original, changed and noisy data, five seeds each. Published: VAEs fall further under the change
    than under noise. Here the noise is as harmful, so that it is not held; principal components and PCL stay."""
    result = committed("manipulated-data")
    sprites = result.table.where(part="sprites")
    level = {}
    for model in ("ae", "beta-vae", "factor-vae", "beta-tc-vae", "slow-vae", "pcl"):
        for kind in ("original", "modified", "noise"):
            cell = sprites.where(model=model, data=kind)
            assert sorted(cell.distinct("seed")) == list(range(20, 25)), (model, kind)
            level[model, kind] = cell.mean("mig")
    lost = {(m, kind): 1 - level[m, kind] / level[m, "original"] for m, kind in level if kind != "original"}
    vaes = ("beta-vae", "factor-vae", "beta-tc-vae", "slow-vae")
    assert min(lost[model, "modified"] for model in vaes) > 0.5
    assert lost["pcl", "modified"] < 0.2
    further = [lost[model, "modified"] - lost[model, "noise"] for model in vaes]
    claim = result.claim("falls further under the change than under noise")
    assert claim.verdict == ("held" if min(further) >= 0.1 else "not held")
    assert min(further) < 0
    assert f"{lost['slow-vae', 'modified']:.2f} [" in claim.measured
    plane = result.table.where(part="plane")
    pca = [plane.where(data=kind).mean("pca") for kind in ("original", "modified", "noise")]
    assert np.ptp(pca) < 0.01
    assert result.claim("principal components are not affected").held


@pytest.mark.spec("003/F3-077")
def test_no_other_beta_brings_the_score_back_among_runs_that_are_not_over_pruned(committed) -> None:
    result = committed("manipulated-data")
    sweep = result.table.where(part="sweep", enough=True)
    assert sweep.distinct("factor") == [0.75, 1.25, 1.5, 1.75, 2.0]
    assert min(row["active"] for row in sweep.rows) >= 2, "as many as there are factors"
    original = result.table.where(part="plane", data="original").mean("score")
    for factor, runs in sweep.by("factor"):
        assert len(runs) == 5
        assert runs.mean("score") < original - 0.05, factor
    assert result.claim("no other beta restores the score").held


@pytest.mark.spec("003/F3-078")
def test_the_report_of_restarts_lists_both_modes_also_where_they_are_not_far_apart(committed) -> None:
    """Four of five restarts on the changed plane entangle, and one finds the factors, as published; but the four spread
    as widely as the gap, so that two modes are not held."""
    result = committed("manipulated-data")
    scores = result.table.where(part="plane", data="modified").column("score")
    low, high = modes(scores)
    assert (len(low), len(high)) == (4, 1)
    assert low.max() < 0.6 < 0.8 < high.min()
    claim = result.claim("two modes")
    assert f"below the widest gap {low.mean():.2f}; mean score of those above it {high.mean():.2f}" in claim.measured
    gap = high.min() - low.max() - np.ptp(low)
    assert f"{gap:.2f}" in claim.measured
    assert claim.verdict == "not held"
    bars = _histogram(result.table.where(part="sprites", data="modified")).axes[0].patches
    assert sum(bar.get_height() for bar in bars) == 5


@pytest.mark.spec("003/F3-104")
def test_the_worst_restarts_have_polar_codes_but_so_have_two_of_the_best(committed) -> None:
    """Published: all of the worst, none of the best. Restarts here have 3,000 steps, and the best a MIG of .2."""
    result = committed("polar-restarts")
    rows = sorted(result.table.rows, key=lambda row: row["mig"])
    assert len({row["seed"] for row in rows}) == 20
    for row in rows:
        assert row["gain"] == pytest.approx(row["polar"] - row["cartesian"], abs=1e-6)
        assert (row["polar_pairs"] > 0) == (row["gain"] > 0.2)
    worst, best = (sum(row["polar_pairs"] > 0 for row in end) for end in (rows[:4], rows[-4:]))
    assert worst == 4
    claim = result.claim("The four worst restarts have a polar code")
    assert claim.verdict == ("held" if best == 0 else "not held")
    assert re.findall(r"MIG (\d)", claim.measured) == [str(worst), str(best)]
    rank = spearmanr([row["mig"] for row in rows], [row["gain"] for row in rows]).statistic
    claim = result.claim("The lower the MIG")
    assert f"Spearman {rank:.2f}" in claim.measured
    assert claim.verdict == ("held" if rank < -0.3 else "not held")


def test_over_pruned_runs_are_hollow_and_no_part_of_the_violins() -> None:
    sweep = [
        {"factor": factor, "seed": seed, "score": score + seed / 100, "enough": enough}
        for factor, score, enough in ((1.0, 0.1, True), (1.5, 0.15, True), (2.0, 0.6, False))
        for seed in range(3)
    ]
    (axes,) = _violins(Table(sweep)).axes
    bodies = [part for part in axes.collections if type(part).__name__ != "PathCollection"]
    dots = [part for part in axes.collections if part not in bodies]
    assert len(bodies) == 2
    full, hollow = dots[::2], dots[1::2]
    assert [len(part.get_offsets()) for part in full] == [3, 3, 0]
    assert [len(part.get_offsets()) for part in hollow] == [0, 0, 3]
    assert not hollow[2].get_facecolor().size


@pytest.mark.spec("003/F3-069")
def test_walks_of_a_solved_linear_vae_are_eigenvectors_in_the_order_of_precision() -> None:
    basis, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((6, 6)))
    spectrum = np.array([4.0, 2.0, 1.0, 0.5, 0.2, 0.1])
    best = optimum(basis * spectrum @ basis.T, latents=3, beta=0.1)
    shuffled = [2, 0, 1]
    model = Autoencoder(AutoencoderConfig(3, Linear(), likelihood="gaussian"), (6,))
    with torch.no_grad():
        model.decoder.output[0].weight.copy_(torch.from_numpy(best.W[:, shuffled]))
    order = principal_order(best.var[None, shuffled])
    walks = traverse(model, np.zeros(3), order.tolist())
    directions = walks[:, -1] - walks[:, 0]
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    np.testing.assert_allclose(np.abs(directions @ basis[:, :3]), np.eye(3), atol=1e-5)
    slopes = decoder_grams(model.generate, torch.zeros(1, 3)).diagonal(dim1=1, dim2=2)[0]
    assert order.tolist() == torch.argsort(-slopes).tolist()


@pytest.mark.xdist_group("illustrations")
@pytest.mark.spec("003/F3-082", "003/F3-030")
def test_pictures_show_what_they_say(outcome, committed) -> None:
    """The flat axes are solved, not trained: they are as good at smoke scale. The bent ones are of trained models."""
    result = outcome("illustrations")
    flat = replace(result, claims=studies.get("illustrations")().judge(result.table, "laptop"))
    for words in ("Axes of a linear VAE", "Axes of a linear autoencoder"):
        made = flat.claim(words)
        assert made.held, made.measured
    pictures = {path.stem for path in result.path.glob("*.png")}
    assert pictures == {"kl-landscape", "flat-axes", "bent-axes", "rotate-scale-rotate", "same-area", "local-change"}
    bent = committed("illustrations").table.where(part="bent")
    assert len(bent) == 10
    assert max(bent.where(model="beta-vae").column("cosine")) < min(bent.where(model="ae").column("cosine"))
