"""Modularity from tables by hand, explicitness against scikit-learn's logistic regression and ROC areas."""

import tracemalloc

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import mutual_info_score, roc_auc_score
from sklearn.preprocessing import label_binarize

from polariscope.measures.modularity import explicitness, modularity, modularity_of
from polariscope.measures.score import split


@pytest.mark.spec("001a/MT-06")
def test_block_tables_by_hand():
    blocks = [[2, 0, 0, 0], [0, 3, 0, 0], [0, 0, 1, 1], [0, 0, 0, 0], [4, 2, 1, 0]]
    assert modularity_of(blocks) == pytest.approx([1, 1, 1 - 1 / 3, 0, 1 - (0.25 + 0.0625) / 3])
    assert modularity_of(np.ones((3, 5))) == pytest.approx([0, 0, 0])


@pytest.mark.spec("001a/MT-06")
def test_constant_latents_contribute_nothing():
    factors = np.stack(np.unravel_index(np.arange(1200) % 12, (3, 4)), axis=1)
    assert modularity(np.column_stack([factors, np.ones((1200, 2))]), factors).value == pytest.approx(0.5)
    assert modularity(np.ones((1200, 2)), factors).value == 0


def test_modularity_agrees_with_a_straightforward_implementation():
    rng = np.random.default_rng(0)
    factors = rng.integers(0, (2, 4, 7), size=(800, 3))
    codes = factors @ rng.normal(size=(3, 4)) + rng.normal(size=(800, 4))
    expected = []
    for z in codes.T:
        binned = np.digitize(z, np.histogram(z, 20)[1][:-1])
        m = np.array([mutual_info_score(v, binned) for v in factors.T])
        expected.append(1 - (np.sum(m**2) - m.max() ** 2) / (m.max() ** 2 * 2))
    score = modularity(codes, factors)
    assert score.settings["per_latent"] == pytest.approx(expected, abs=1e-12)
    assert score.value == pytest.approx(np.mean(expected))


@pytest.mark.spec("001a/MT-06")
def test_dsprites_ceiling_and_the_rotated_pair():
    rng = np.random.default_rng(1)
    factors = rng.integers(0, (3, 6, 40, 32, 32), size=(20_000, 5))
    assert modularity(factors, factors).value == pytest.approx(1, abs=0.001)
    turned = factors.astype(float)
    turned[:, 3:] = turned[:, 3:] @ [[1, 1], [-1, 1]]
    assert modularity(turned, factors).value == pytest.approx(0.90, abs=0.01)


def noisy(seed=2, samples=3000):
    rng = np.random.default_rng(seed)
    factors = rng.integers(0, (2, 3, 6), size=(samples, 3))
    return factors @ rng.normal(size=(3, 5)) + 0.8 * rng.normal(size=(samples, 5)), factors


def test_explicitness_agrees_with_scikit_learn():
    codes, factors = noisy()
    rows, held = split(len(codes), 0)
    expected = []
    for v in factors.T:
        odds = LogisticRegression(max_iter=5000).fit(codes[rows], v[rows]).predict_proba(codes[held])
        truth = label_binarize(v[held], classes=np.arange(odds.shape[1]))
        if odds.shape[1] == 2:
            truth = np.column_stack([1 - truth, truth])
        expected.append(roc_auc_score(truth, odds, average="macro"))
    assert explicitness(codes, factors, "logistic").per_factor == pytest.approx(expected, abs=1e-4)
    assert explicitness(codes, factors).per_factor == pytest.approx(expected, abs=0.01)


def test_explicitness_knows_presence_not_alignment():
    codes, factors = noisy()
    rotation = np.linalg.qr(np.random.default_rng(3).normal(size=(5, 5)))[0]
    assert explicitness(codes @ rotation, factors).value == pytest.approx(explicitness(codes, factors).value, abs=2e-3)
    assert explicitness(np.random.default_rng(4).normal(size=codes.shape), factors).value == pytest.approx(
        0.5, abs=0.03
    )
    assert explicitness(np.ones_like(codes), factors).value == pytest.approx(0.5, abs=1e-12)


def test_a_factor_value_seen_only_in_training_or_only_in_testing_does_not_count():
    codes, factors = noisy(samples=300)
    factors[0, 2] = 17
    assert 0.5 < explicitness(codes, factors).value < 1


def test_explicitness_table_is_the_share_of_variance_between_values():
    factors = np.stack(np.unravel_index(np.arange(1200) % 12, (3, 4)), axis=1)
    assert explicitness(factors, factors).table == pytest.approx(np.eye(2), abs=1e-12)


def test_bad_input_is_refused_in_a_sentence():
    codes, factors = noisy(samples=50)
    with pytest.raises(ValueError, match="needs 2; got 1"):
        modularity(codes, factors[:, :1])
    with pytest.raises(ValueError, match="non-negative"):
        modularity_of([[1.0, -0.1]])
    with pytest.raises(ValueError, match="readout is"):
        explicitness(codes, factors, "svm")


def test_a_factor_of_many_values_takes_memory_for_those_that_were_seen():
    """40,000 values and 90,000 samples once asked for 27 GiB; what is taken follows the samples of the read-out."""
    generator = np.random.default_rng(0)
    factors = generator.integers(0, 40_000, size=(90_000, 1))
    codes = factors / 40_000 + 0.001 * generator.standard_normal((90_000, 2))
    tracemalloc.start()
    score = explicitness(codes, factors, train=1000, test=500)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2e8
    assert score.value > 0.99
    assert score.table == pytest.approx(1, abs=0.01)
