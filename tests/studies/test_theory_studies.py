"""The studies of closed forms, limits and dimensions: the spec's figures, and claims that can fail.

What a training has to find is read from the committed tables; what takes no training is worked out anew.
"""

import numpy as np
import pytest

from polariscope.lab.store import Store
from polariscope.studies import Table, studies
from polariscope.studies.polarised.intrinsic_dimension import FULL, KS
from polariscope.studies.polarised.linear_vae import largest_cosine
from polariscope.studies.study import Bench

NAMES = ("linear-vae", "linear-ivae", "similarity-limits", "intrinsic-dimension")


@pytest.mark.parametrize("name", NAMES)
def test_every_claim_is_held_at_laptop_scale(committed, name):
    result = committed(name)
    assert result.scale == "laptop"
    assert result.origin.seeds >= 5
    assert [claim.text for claim in result.claims if claim.held is not True] == []


def spoilt(table: Table, column: str, change, where: dict) -> Table:
    rows = set(map(id, table.where(**where).rows))
    return Table(
        [row | {column: change(row[column])} if id(row) in rows and column in row else row for row in table.rows]
    )


DOTS = {"cloud": "sprites", "pixels": 64}


@pytest.mark.parametrize(
    ("name", "claim", "column", "change", "where"),
    [
        ("linear-vae", "Posterior variances", "sigma_error", lambda v: v + 0.01, {"beta": 0.1}),
        ("linear-vae", "Exactly the latents", "active", lambda v: v + 1, {"beta": 12}),
        ("linear-vae", "The trace gap", "trace_gap", lambda v: v + 0.031, {"beta": 1}),
        ("linear-vae", "Trained models lie", "distortion", lambda v: v + 0.11, {"beta": 2}),
        ("linear-vae", "Trained models lie", "distortion", lambda v: v - 0.11, {"beta": 2}),
        ("linear-vae", "Along the curve", "rate", lambda v: 3 * v, {}),
        ("linear-vae", "The diagonal posterior", "cosine", lambda v: v + 0.1, {"beta": 4}),
        ("linear-vae", "The diagonal posterior", "rotation_gap", lambda v: v + 0.011, {"beta": 4}),
        ("linear-ivae", "Optimising the objective", "error", lambda v: v + 0.0011, {"part": "triples"}),
        ("linear-ivae", "The prior prunes", "in_use", lambda v: not v, {"energy": 0.1}),
        ("linear-ivae", "The prior prunes", "error", lambda v: v + 0.0011, {"part": "threshold"}),
        ("linear-ivae", "Of codes with the same", "elbo", lambda v: -v, {}),
        ("linear-ivae", "Of codes with the same", "residual", lambda v: v + 1e-11, {}),
        ("linear-ivae", "With mean and variance", "elbo", lambda v: -v, {}),
        ("linear-ivae", "Posterior and prior", "gain_from_fixed_point", lambda v: v + 2e-5, {"seed": 7}),
        ("linear-ivae", "Latents that do not help", "spurious", lambda v: v + 1, {"seed": 7, "start": 0}),
        ("linear-ivae", "Latents that do not help", "passive_mean", lambda v: v + 0.011, {"seed": 7}),
        ("linear-ivae", "Latents that do not help", "passive_prior_var", lambda v: v + 0.011, {"seed": 7}),
        ("linear-ivae", "Latents that do not help", "passive_ratio", lambda v: v + 0.011, {"seed": 7}),
        ("similarity-limits", "CKA of features", "cka", lambda v: v + 0.06, {"samples": 90, "shared": 25}),
        ("similarity-limits", "CKA of features", "cka", lambda v: v - 0.06, {"samples": 90, "shared": 25}),
        ("similarity-limits", "Procrustes of features", "procrustes", lambda v: v - 0.04, {"samples": 490}),
        ("similarity-limits", "Procrustes overestimates", "procrustes", lambda v: v / 4, {"samples": 650}),
        ("similarity-limits", "CKA of unrelated", "cka", lambda v: v + 0.011, {"samples": 970, "shared": 0}),
        ("similarity-limits", "CKA of unrelated", "procrustes", lambda v: v + 0.02, {"samples": 970, "shared": 0}),
        ("similarity-limits", "With the bias removed", "debiased", lambda v: v + 0.023, {"samples": 970, "shared": 0}),
        ("intrinsic-dimension", "The four normalisations", "value", lambda v: 1.06 * v, {"variant": "mg", "k": 3}),
        ("intrinsic-dimension", "The unbiased estimate", "value", lambda v: 1.06 * v, {"variant": "lb-unbiased"}),
        ("intrinsic-dimension", "TwoNN reads", "value", lambda v: 1.15 * v, {"variant": "twonn", "dimension": 20}),
        ("intrinsic-dimension", "The boundary", "value", lambda v: 1.1 * v, {"cloud": "cube", "dimension": 5}),
        ("intrinsic-dimension", "On curved data", "value", lambda v: 0.95 * v, {"dimension": 20}),
        ("intrinsic-dimension", "A small number", "value", lambda v: 3 * v, {"cloud": "mini-sprites", "k": 3}),
        ("intrinsic-dimension", "The estimate for dSprites is 11", "value", lambda v: v + 1.5, DOTS),
        ("intrinsic-dimension", "The estimate for dSprites is 11", "value", lambda v: v - 1.6, DOTS),
        ("intrinsic-dimension", "The estimate no longer changes", "value", lambda v: v - 0.5, DOTS | {"k": 10}),
        ("intrinsic-dimension", "TwoNN agrees", "value", lambda v: v - 0.5, DOTS | {"k": 2}),
        ("intrinsic-dimension", "The estimate is far above", "value", lambda v: 4.9, DOTS | {"k": 5}),
        ("intrinsic-dimension", "The estimate for Symsol", "value", lambda v: v + 1.1, {"cloud": "solids"}),
    ],
)
def test_a_claim_fails_when_the_table_says_otherwise(committed, name, claim, column, change, where):
    result = committed(name)
    claims = studies.get(name)().judge(spoilt(result.table, column, change, where), "laptop")
    assert [each.held for each in claims if each.text.startswith(claim)] == [False]


TRAINED = {
    0.1: (5, (0.0100, 0.0167, 0.0333, 0.0625, 0.1667), 0.2892, 8.3325, 0.35),
    0.5: (5, (0.0500, 0.0833, 0.1667, 0.3125, 0.8333), 1.4458, 4.3089, 1.35),
    1: (4, (0.1000, 0.1667, 0.3333, 0.6250, 1), 2.2250, 2.8315, 2.40),
    2: (3, (0.2000, 0.3333, 0.6667, 1, 1), 3.2000, 1.5568, 4.20),
    4: (2, (0.4000, 0.6667, 1, 1, 1), 4.0667, 0.6609, 6.70),
    12: (0, (1, 1, 1, 1, 1), 5.0000, 0, 10.70),
}
"""Spec 002, table 5.5: latents in use, variances, trace gap, rate and distortion by beta."""


@pytest.mark.spec("002/L07")
@pytest.mark.parametrize("beta", TRAINED)
def test_trained_linear_vaes_have_the_variances_of_the_closed_form(committed, beta):
    active, sigma, trace_gap, _, _ = TRAINED[beta]
    rows = committed("linear-vae").table.where(beta=beta)
    assert len(rows) == 5
    np.testing.assert_allclose(rows.column("sigma"), np.tile(sigma, (5, 1)), atol=1e-2)
    assert rows.distinct("active") == [active]
    np.testing.assert_allclose(rows.column("trace_gap"), trace_gap, atol=0.03)
    assert rows.column("cosine").max() < 0.05


@pytest.mark.spec("002/L09")
def test_trained_linear_vaes_lie_on_the_rate_distortion_curve(committed):
    result = committed("linear-vae")
    table = result.table
    for beta, group in table.by("beta"):
        *_, rate, distortion = TRAINED[beta]
        np.testing.assert_allclose(group.column("rate"), rate, atol=0.03)
        np.testing.assert_allclose(group.column("distortion"), distortion, atol=0.05)
    slopes = [row for row in studies.get("linear-vae")().readings(table).rows if "slope" in row]
    assert len(slopes) == 5 * 5
    for row in slopes:
        low, high = map(float, row["betas"].split(" to "))
        (first, second) = (table.where(beta=beta, seed=row["seed"]).rows[0] for beta in (low, high))
        # The squared error is in nats as it is, for 2γ = 1.
        assert row["slope"] == pytest.approx(
            (second["distortion"] - first["distortion"]) / (second["rate"] - first["rate"])
        )
        assert -high <= row["slope"] <= -low
    assert result.claim("falls by β for each nat").held


def test_cosines_of_columns():
    assert largest_cosine(np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 2.0]])) == pytest.approx(np.sqrt(0.5))
    assert largest_cosine(np.array([[1.0], [2.0]])) == 0
    assert largest_cosine(np.zeros((3, 0))) == 0


@pytest.mark.xdist_group("linear-ivae")
@pytest.mark.spec("002/I02")
def test_optimisation_finds_the_closed_forms_of_the_linear_ivae(outcome):
    table = outcome("linear-ivae").table
    result = [[row[name] for name in ("mean", "var", "prior_var")] for row in table.where(part="triples").rows]
    assert result[0] == pytest.approx([0.45, 0.0225, 0.225], rel=1e-4)
    assert result[1] == pytest.approx([2.8333, 0.47222, 8.5], rel=1e-4)
    assert result[2] == pytest.approx([-2.142857, 1.530612, 6.122449], rel=1e-4)

    threshold = table.where(part="threshold")
    energy = threshold.column("energy")
    assert energy.min() < 1 < energy.max()
    assert threshold.column("prior_var") == pytest.approx(np.maximum(energy - 1, 0) / 1.5**2, abs=1e-4)

    decoders = table.where(part="decoder")
    assert np.abs(decoders.column("gain_from_fixed_point")).max() < 1e-5
    assert (decoders.column("spurious") == 0).all()


@pytest.mark.xdist_group("linear-ivae")
@pytest.mark.spec("002/I02")
def test_each_further_active_variable_costs_for_the_same_reconstruction(outcome):
    copies = outcome("linear-ivae").table.where(part="copies")
    assert copies.column("copies").tolist() == [1, 2, 3, 4]
    assert copies.column("residual") == pytest.approx(0, abs=1e-12)
    assert (np.diff(copies.column("elbo")) < -0.1).all()


@pytest.mark.xdist_group("linear-ivae")
@pytest.mark.spec("002/I03")
def test_the_objective_with_both_prior_moments_learned_rises_without_end(outcome):
    both = outcome("linear-ivae").table.where(part="both")
    assert (np.diff(both.column("var")) < 0).all()
    # Each tenfold cut of the decoder variance is worth half of log 10 for each of the 6 inputs.
    assert np.diff(both.column("elbo")) == pytest.approx(3 * np.log(10))


@pytest.mark.xdist_group("similarity-limits")
@pytest.mark.spec("002/S03")
def test_similarities_of_shared_features(outcome):
    table = outcome("similarity-limits").table
    expected = {
        (50, 40): (0.902, 0.948),
        (50, 0): (0.510, 0.756),
        (250, 25): (0.594, 0.669),
        (970, 40): (0.811, 0.825),
        (970, 25): (0.526, 0.579),
        (970, 0): (0.050, 0.192),
    }
    for (samples, shared), values in expected.items():
        rows = table.where(samples=samples, shared=shared)
        assert len(rows) == 5
        assert (rows.mean("cka"), rows.mean("procrustes")) == pytest.approx(values, abs=0.03)


@pytest.mark.spec("002/D01", "002/D02")
def test_dimensions_of_a_square(tmp_path):
    bench = Bench(Store(tmp_path), lambda progress: None)
    job = {"cloud": "cube", "dimension": 2, "count": FULL.points, "seed": 0}
    square = Table(studies.get("intrinsic-dimension")().run(job, bench))
    for variant, values in {
        "lb": (2.60, 2.23, 2.09),
        "mg": (2.00, 1.99, 1.97),
        "published": (1.50, 1.77, 1.87),
    }.items():
        result = [square.where(variant=variant, k=k).mean("value") for k in KS[1:]]
        assert result == pytest.approx(values, rel=0.04)
    assert square.where(variant="twonn").mean("value") == pytest.approx(2, rel=0.05)


def test_every_image_is_counted_once_and_ties_have_no_levina_bickel_mean(committed):
    table = committed("intrinsic-dimension").table
    assert table.distinct("duplicates") == [0]
    assert table.where(cloud="mini-sprites").distinct("samples") == [1296]
    assert table.where(cloud="sprites").distinct("samples") == [10_000]
    assert len(table.where(cloud="cube", variant="lb", dimension=2)) == 5 * len(KS)
    assert len(table.where(cloud="sprites", pixels=16, variant="lb", k=3)) == 0
    assert len(table.where(cloud="sprites", pixels=16, variant="mg", k=3)) == 5


@pytest.mark.xdist_group("intrinsic-dimension")
def test_the_published_dimensions_are_held_against_a_full_measurement_only(outcome):
    small = outcome("intrinsic-dimension").claims[-5:]
    assert [claim.held for claim in small] == [None] * 5
    assert all("10,000 images of 64 x 64 pixels" in claim.note for claim in small)


def test_laptop_and_paper_scale_do_what_was_published():
    for scale in ("laptop", "paper"):
        images = [job for job in studies.get("intrinsic-dimension")().jobs(scale) if job["cloud"] == "sprites"]
        assert {"cloud": "sprites", "unambiguous": False, "pixels": 64, "count": 10_000, "seed": 0} in images
        assert {job["beta"] for job in studies.get("linear-vae")().jobs(scale)} == {0.1, 0.5, 1, 2, 4, 12}
        for job in studies.get("similarity-limits")().jobs(scale):
            assert job["sizes"] == list(range(50, 1000, 40))
