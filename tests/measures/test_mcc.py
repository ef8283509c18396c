"""MCC: closed forms for rotations, optimal matching against brute force, invariances, categories."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr

from polariscope.measures.mcc import MCC, absolute_correlations, best_latents, matched_order, mcc
from polariscope.representation import Representation
from polariscope.worlds.factors import Factor


@pytest.mark.spec("001a/MT-01")
@pytest.mark.parametrize(
    ("degrees", "pearson", "spearman"),
    [(45, 0.70711, 0.69016), (30, 0.86603, 0.85530), (10, 0.98481, 0.98329)],
)
def test_rotated_gaussians_have_the_closed_form(degrees, pearson, spearman):
    t = np.deg2rad(degrees)
    rotation = np.array([[np.cos(t), np.sin(t)], [-np.sin(t), np.cos(t)]])
    sources = np.random.default_rng(0).normal(size=(200_000, 2))
    assert mcc(sources @ rotation, sources, "pearson").value == pytest.approx(pearson, abs=2e-3)
    assert mcc(sources @ rotation, sources, "spearman").value == pytest.approx(spearman, abs=2e-3)


@given(seed=st.integers(0, 2**16))
@settings(max_examples=settings.default.max_examples // 4)
@pytest.mark.spec("001a/MT-01")
def test_order_sign_and_monotone_maps_of_latents_do_not_matter(seed):
    rng = np.random.default_rng(seed)
    factors = rng.normal(size=(200, 3))
    codes = factors @ rng.normal(size=(3, 4)) + rng.normal(size=(200, 4))
    order = rng.permutation(4)
    changed = np.arctan(codes[:, order] ** 3) * rng.choice([-2.0, 5.0], 4)
    before, after = mcc(codes, factors), mcc(changed, factors)
    assert after.per_factor == pytest.approx(before.per_factor, abs=1e-12)
    assert [order[i] for i in after.settings["latents"]] == before.settings["latents"]
    affine = mcc(codes[:, order] * 3 - 1, factors, "pearson").value
    assert affine == pytest.approx(mcc(codes, factors, "pearson").value, abs=1e-12)


@pytest.mark.spec("001a/MT-01")
def test_the_matching_is_the_best_of_all_and_not_the_greedy_one():
    rng = np.random.default_rng(1)
    factors = rng.normal(size=(300, 3))
    codes = factors @ rng.normal(size=(3, 5)) + rng.normal(size=(300, 5))
    table = np.abs([[spearmanr(z, v).statistic for v in factors.T] for z in codes.T])
    assert absolute_correlations(codes, factors) == pytest.approx(table, abs=1e-12)
    best = max(table[list(rows), range(3)].mean() for rows in permutations(range(5), 3))
    assert mcc(codes, factors).value == pytest.approx(best)
    # Greedy would give latent 0 to factor 0 and leave nothing for factor 1.
    a, b = rng.normal(size=(2, 5000))
    assert mcc(np.column_stack([a + 0.5 * b, a]), np.column_stack([a + 0.4 * b, a + 2 * b])).value > 0.75


@pytest.mark.spec("001a/MT-01")
def test_padding_with_noise_changes_next_to_nothing_and_is_seeded():
    rng = np.random.default_rng(2)
    factors = rng.normal(size=(5000, 3))
    codes = np.hstack([factors[:, ::-1] + 0.3 * rng.normal(size=(5000, 3)), rng.normal(size=(5000, 4))])
    plain, padded = mcc(codes, factors), mcc(codes, factors, padding="noise", seed=7)
    assert padded.value == pytest.approx(plain.value, abs=1e-9)
    assert padded.settings["latents"] == [2, 1, 0]
    assert mcc(codes, factors, padding="noise", seed=7).value == padded.value


def test_factors_without_a_latent_count_zero():
    factors = np.random.default_rng(3).normal(size=(500, 3))
    score = mcc(factors[:, [1]], factors)
    assert score.per_factor == pytest.approx([0, 1, 0])
    assert score.settings["latents"] == [-1, 0, -1]


def test_constant_latents_correlate_with_nothing():
    factors = np.random.default_rng(4).normal(size=(500, 2))
    codes = np.column_stack([np.full(500, 0.1), factors[:, 1]])
    assert mcc(codes, factors).per_factor == pytest.approx([0, 1])
    assert mcc(np.ones((500, 2)), factors, "pearson").value == 0


@pytest.mark.spec("001a/MT-02")
def test_a_renumbered_category_scores_one_once_it_is_called_categorical():
    rng = np.random.default_rng(5)
    shape = np.repeat([0, 1, 2], 200)
    codes = np.column_stack([rng.normal(size=600), np.array([5.0, -3.0, 0.0])[shape]])
    assert mcc(codes, shape).value < 0.9
    assert mcc(codes, shape, categorical=[0]).value == pytest.approx(1)
    assert mcc(codes, shape, "pearson", categorical=[0]).value > 0.98


@given(seed=st.integers(0, 2**16), kind=st.sampled_from(["spearman", "pearson"]))
@settings(max_examples=settings.default.max_examples // 5)
@pytest.mark.spec("001a/MT-02")
def test_the_numbering_of_equally_frequent_categories_is_the_best_of_all(seed, kind):
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(4), 25)
    codes = rng.normal(size=(100, 3)) + rng.normal(size=(4, 3))[labels]
    every = [absolute_correlations(codes, np.array(p)[labels], kind)[:, 0] for p in permutations(range(4))]
    ours = absolute_correlations(codes, labels, kind, categorical=[0])[:, 0]
    assert ours == pytest.approx(np.max(every, axis=0), abs=1e-12)


def test_the_measure_knows_which_factors_are_categorical():
    shape = np.repeat([0, 1, 2], 100)
    codes = np.array([5.0, -3.0, 0.0])[shape][:, None].astype(np.float32)
    for kind, expected in (("categorical", 1.0), ("ordinal", 0.5)):
        info = (Factor("fixed", 1), Factor("shape", 3, kind))
        factors = np.column_stack([np.zeros(300, int), shape])
        value = MCC().value(Representation(mean=codes, factors=factors, factor_info=info))
        assert value == pytest.approx(expected)


@pytest.mark.spec("001a/VZ-01")
def test_the_sorted_correlation_matrix_has_the_matches_on_its_diagonal():
    rng = np.random.default_rng(6)
    factors = rng.normal(size=(800, 3))
    codes = np.column_stack([rng.normal(size=800), factors[:, [2, 0, 1]], 0.5 * factors[:, 0] + rng.normal(size=800)])
    table = absolute_correlations(codes, factors)
    order = matched_order(table)
    assert order.tolist() == [2, 3, 1, 4, 0]
    assert np.diag(table[order]) == pytest.approx([1, 1, 1])
    assert matched_order(np.eye(3)).tolist() == [0, 1, 2]


@pytest.mark.spec("001a/VZ-02")
def test_the_two_best_latents_of_a_periodic_factor_are_its_circle():
    rng = np.random.default_rng(7)
    angle, other = rng.uniform(0, np.pi, 3000), rng.normal(size=3000)
    codes = np.column_stack([other, np.cos(angle), np.sin(angle + 0.5), 0.1 * rng.normal(size=3000)])
    pair = best_latents(absolute_correlations(codes, np.column_stack([angle, other])))
    assert pair[0].tolist() == [1, 2]
    assert pair[1, 0] == 0


def test_bad_input_is_refused_in_a_sentence():
    x = np.random.default_rng(8).normal(size=(20, 2))
    with pytest.raises(ValueError, match="kind is 'spearman' or 'pearson'; got 'kendall'"):
        mcc(x, x, "kendall")
    with pytest.raises(ValueError, match="factor 2, but there are 2"):
        mcc(x, x, categorical=[2])
    with pytest.raises(ValueError, match="padding is"):
        mcc(x, x, padding="zeros")
    with pytest.raises(ValueError, match="between 1 and the 2 latents; got 3"):
        best_latents(np.eye(2), 3)
