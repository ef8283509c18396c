"""The one call: ceilings, blind spots, intervals, breakdowns, both protocols; and what counts as a factor's value."""

import json
from dataclasses import replace

import numpy as np
import pytest

from polariscope.measures import measures
from polariscope.measures.disentanglement import (
    PROTOCOLS,
    TITLES,
    disentanglement,
    perfect_code,
    random_rotation,
)
from polariscope.measures.intervention import FromEncoder
from polariscope.measures.mig import mig, mig_ceiling
from polariscope.measures.score import as_labels, is_continuous, split, top_two_gap
from polariscope.representation import Representation

DSPRITES = (3, 6, 40, 32, 32)
BARE = {"repeats": 0, "rotations": 0, "of_factors": False}
QUICK = replace(PROTOCOLS["fast"], probe="tree")


@pytest.fixture(scope="module")
def positions():
    return np.random.default_rng(0).integers(0, DSPRITES, size=(20_000, 5))


@pytest.fixture(scope="module")
def small():
    rng = np.random.default_rng(1)
    factors = rng.integers(0, (3, 4, 5), size=(900, 3))
    return perfect_code(factors) @ random_rotation(3, 5) + 0.1 * rng.normal(size=(900, 3)), factors


@pytest.mark.spec("001a/MT-11")
def test_a_random_rotation_is_seen_by_mig_and_hardly_by_the_classifier_scores(positions):
    scores = ("beta-vae-score", "factor-vae-score", "mig", "modularity")
    report = disentanglement(
        perfect_code(positions), positions, scores=scores, repeats=0, rotations=12, of_factors=False, seed=2
    )
    assert report["beta-vae-score"].rotated == pytest.approx(0.92, abs=0.04)
    assert report["factor-vae-score"].rotated > 0.7  # 0.90 for one published rotation; they differ by 0.1
    assert report["modularity"].rotated == pytest.approx(0.89, abs=0.04)
    assert report["mig"].rotated == pytest.approx(0.10, abs=0.08)
    assert report["mig"].value == pytest.approx(0.899, abs=0.002)


@pytest.mark.spec("001a/MT-09")
def test_ceilings_are_those_of_the_factors_themselves(positions):
    codes = np.random.default_rng(3).normal(size=(20_000, 4))
    scores = ("beta-vae-score", "factor-vae-score", "mig", "mcc", "modularity", "sap", "dci")
    report = disentanglement(codes, positions, QUICK, scores=scores, repeats=0, rotations=0)
    assert report["mig"].of_factors == pytest.approx(mig_ceiling(DSPRITES).mean(), abs=0.004)
    assert report["sap"].of_factors == pytest.approx(0.23, abs=0.03)
    for name in ("beta-vae-score", "factor-vae-score", "mcc", "modularity", "dci"):
        assert report[name].of_factors == pytest.approx(1, abs=0.002)
    assert all(report[name].rotated is None and report[name].interval is None for name in scores)
    assert report["mig"].value < 0.01


def test_every_score_comes_with_its_breakdown_and_its_facts(small):
    codes, factors = small
    report = disentanglement(codes, factors, QUICK, repeats=2, rotations=1, factor_names=("shape", "x", "y"), seed=4)
    assert set(report.entries) == set(TITLES)
    assert not report.undefined
    for name, entry in report.entries.items():
        assert 0 <= entry.value <= 1, name
        assert entry.score.table.shape == (3, 3), name
        assert entry.interval[0] <= entry.value <= entry.interval[1], name
    assert report.per_factor()["mig"] == dict(zip(["shape", "x", "y"], mig(codes, factors).per_factor, strict=True))
    assert report["dci"].score.settings["probe"] == "tree"
    assert report["dci"].score.samples == 900
    summary = json.loads(json.dumps(report.summary()))
    assert summary["scores"]["mig"]["settings"]["bins"] == 20
    assert summary["protocol"]["name"] == "fast"
    assert (summary["samples"], summary["latents"], summary["seed"]) == (900, 3, 4)
    text = str(report)
    assert all(title in text for title in TITLES.values())
    assert "900 samples, 3 latents, 3 factors; fast protocol, seed 4" in text


def test_the_same_seed_gives_the_same_report(small):
    first, second = (disentanglement(*small, QUICK, repeats=2, rotations=1, seed=7).summary() for _ in range(2))
    assert first == second


def test_scores_of_a_single_tree_are_shown_under_its_name_only(small):
    """They do not compare with published ones, which are those of boosting."""
    usual, quick = (disentanglement(*small, protocol, scores=("mig", "dci"), **BARE) for protocol in ("fast", QUICK))
    assert list(usual.summary()["scores"]) == list(usual.per_factor()) == ["mig", "dci"]
    assert list(quick.summary()["scores"]) == list(quick.per_factor()) == ["mig", "dci-tree"]
    assert "DCI disentanglement (boosting)" in str(usual)
    assert "DCI disentanglement (tree)" in str(quick)
    assert quick.summary()["scores"]["dci-tree"]["title"] == "DCI disentanglement (tree)"


def test_intervals_have_the_width_of_the_spread_between_fresh_samples():
    """Codes from the same model on fresh data: their spread is what the interval must show."""
    rng = np.random.default_rng(5)
    rotation = random_rotation(3, 8)

    def draw():
        factors = rng.integers(0, (3, 4, 5), size=(600, 3))
        return perfect_code(factors) @ rotation + 0.3 * rng.normal(size=(600, 3)), factors

    fresh = np.std([disentanglement(*draw(), scores=("mig", "mcc"), **BARE)["mig"].value for _ in range(60)], ddof=1)
    reports = [disentanglement(*draw(), scores=("mig",), repeats=20, rotations=0, of_factors=False) for _ in range(6)]
    widths = [np.subtract(*r["mig"].interval[::-1]) / (2 * 1.96) for r in reports]
    assert np.mean(widths) == pytest.approx(fresh, rel=0.4)


def test_the_published_protocol_uses_the_published_probes_and_sizes(small):
    codes, factors = small
    report = disentanglement(
        codes[:200], factors[:200], "published", scores=("dci", "explicitness", "mcc", "factor-vae-score"), **BARE
    )
    assert report["dci"].score.settings["probe"] == "gbt"
    assert report["explicitness"].score.settings["readout"] == "logistic"
    assert report["mcc"].score.settings["padding"] == "noise"
    assert report["factor-vae-score"].score.settings["train"] == 10_000
    assert report["factor-vae-score"].score.settings["test"] == 5_000


@pytest.mark.spec("001a/MT-10")
def test_sample_sizes_can_be_set(positions):
    protocol = replace(QUICK, samples=(600, 300), information_samples=2000, correlation_samples=1000)
    report = disentanglement(positions, positions, protocol, scores=("mig", "mcc", "sap", "dci"), **BARE)
    used = {name: report[name].score.samples for name in report.entries}
    assert used == {"mig": 2000, "mcc": 1000, "sap": 900, "dci": 900}
    assert PROTOCOLS["published"].information_samples == 100_000
    assert PROTOCOLS["published"].samples == (10_000, 5_000)
    few = report["mig"].score.table
    many = mig(positions, positions).table
    unrelated = ~np.eye(5, dtype=bool)
    assert few[unrelated].mean() / many[unrelated].mean() == pytest.approx(10, rel=0.3)


def test_an_encoder_serves_the_interventions(small):
    codes, factors = small
    perfect = FromEncoder(lambda p: p.astype(float), (3, 4, 5))
    report = disentanglement(codes, factors, scores=("factor-vae-score",), source=perfect, **BARE)
    assert report["factor-vae-score"].value == 1
    assert disentanglement(codes, factors, scores=("factor-vae-score",), **BARE)["factor-vae-score"].value < 1


def test_a_single_factor_leaves_the_comparing_scores_without_a_value(small):
    codes, factors = small
    report = disentanglement(codes, factors[:, 0], repeats=2, rotations=1)
    assert set(report.entries) == {"mig", "mcc", "explicitness", "sap", "neighbour-score"}
    assert "needs 2; got 1" in report.undefined["dci"]
    assert "no value" in str(report)
    with pytest.raises(ValueError, match="DCI disentanglement has no value here"):
        report["dci"]


def test_a_value_too_rare_for_every_half_does_not_break_the_intervals(small):
    codes, factors = small
    rare = np.column_stack([factors, np.arange(900) == 7]).astype(int)
    report = disentanglement(codes, rare, scores=("mig",), repeats=6, rotations=0, of_factors=False)
    assert 0 <= report["mig"].value <= 1


@pytest.mark.parametrize("name", [n for n in measures.names() if measures.get(n).needs == ("factors",)])
def test_registered_scores_order_perfect_before_rotated_before_noise(name):
    rng = np.random.default_rng(6)
    factors = rng.integers(0, (3, 4, 5), size=(2000, 3))
    perfect = perfect_code(factors)
    codes = [perfect, perfect @ random_rotation(3, 4), rng.normal(size=(2000, 3))]
    values = [measures.get(name)().value(Representation(mean=c.astype(np.float32), factors=factors)) for c in codes]
    slack = 0.02 if name == "explicitness" else 0.0  # which does not notice a rotation
    if name == "modularity":  # noise that knows nothing equally of all factors is its own matter
        assert values[0] > values[1]
    else:
        assert values[0] + slack >= values[1] > values[2] - 0.05
        assert values[0] > values[2] + 0.1


def test_a_permuted_and_scaled_code_scores_like_the_perfect_one(small):
    _, factors = small
    perfect = perfect_code(factors)
    changed = perfect[:, [2, 0, 1]] * [-1, 1, -1]
    first, second = (disentanglement(c, factors, **BARE) for c in (perfect, changed))
    for name in TITLES:
        assert second[name].value == pytest.approx(first[name].value, abs=0.02), name


# What counts as a value of a factor


def test_floats_of_few_values_are_labels_and_of_many_are_continuous():
    rng = np.random.default_rng(7)
    factors = np.column_stack([rng.integers(0, 40, 1000) * np.pi / 40, rng.normal(size=1000)])
    assert is_continuous(factors).tolist() == [False, True]
    labels = as_labels(factors)
    assert labels.sizes[0] == 40
    assert labels.sizes[1] <= 20
    assert not is_continuous(np.arange(100)[:, None] % 50).any()
    assert is_continuous(np.arange(100)[:, None]).all(), "whole numbers that hardly come again are quantities"


def test_splits_are_disjoint_seeded_and_as_large_as_there_are_samples():
    rows, held = split(100, 3)
    assert len(rows) + len(held) in (99, 100)
    assert not set(rows) & set(held)
    assert np.array_equal(split(100, 3)[0], rows)
    assert [len(x) for x in split(50_000, 0)] == [10_000, 5_000]
    with pytest.raises(ValueError, match="at least 1 sample on either side"):
        split(10, 0, 0, 5)


def test_a_single_latent_is_compared_with_nothing():
    assert top_two_gap(np.array([[0.7, 0.2]])).tolist() == [0.7, 0.2]


def test_random_rotations_are_uniform():
    """The mean of |entry| of a Haar matrix in two dimensions is 2/π."""
    rng = np.random.default_rng(8)
    entries = np.abs([random_rotation(2, rng) for _ in range(2000)])
    assert entries.mean(axis=0) == pytest.approx(np.full((2, 2), 2 / np.pi), abs=0.03)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"protocol": "quick"}, "no protocol 'quick': .*known: fast, published"),
        ({"scores": ("migs",)}, "no score 'migs': did you mean 'mig'"),
        ({"repeats": 1}, "repeats is 0 .* or at least 2"),
        ({"factor_names": ("a",)}, "1 names for 3 factors"),
    ],
)
def test_bad_settings_are_refused_in_a_sentence(small, change, sentence):
    with pytest.raises(ValueError, match=sentence):
        disentanglement(*small, **change)


def test_bad_arrays_are_refused_and_not_reported(small):
    codes, factors = small
    with pytest.raises(ValueError, match="NaN"):
        disentanglement(np.full_like(codes, np.nan), factors)
    with pytest.raises(ValueError, match="the report has no score 'sap'"):
        disentanglement(codes, factors, scores=("mig",), **BARE)["sap"]
