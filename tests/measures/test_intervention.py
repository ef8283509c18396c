"""BetaVAE and FactorVAE scores: published values, both sources against the protocol written out vote by vote."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from polariscope.measures.intervention import (
    FromEncoder,
    FromSample,
    beta_vae_score,
    beta_vae_score_from,
    factor_vae_score,
    factor_vae_score_from,
)

DSPRITES = (3, 6, 40, 32, 32)
FEW = {"train": 1500, "test": 1000}


def standard(positions, sizes=DSPRITES):
    """Factors of a uniform grid as codes of mean 0 and variance 1."""
    sizes = np.asarray(sizes)
    return (positions - (sizes - 1) / 2) / np.sqrt((sizes**2 - 1) / 12)


def rotated_pair(positions):
    codes = standard(positions)
    codes[:, 3:] = codes[:, 3:] @ np.array([[1, 1], [-1, 1]]) / np.sqrt(2)
    return codes


@pytest.fixture(scope="module")
def positions():
    return np.random.default_rng(0).integers(0, DSPRITES, size=(20_000, 5))


@pytest.mark.spec("001a/MT-03", "003/F3-046")
def test_beta_vae_score_of_perfect_and_rotated_dsprites_codes(positions):
    assert beta_vae_score(standard(positions), positions, **FEW).value == 1
    assert beta_vae_score_from(FromEncoder(standard, DSPRITES), **FEW).value == 1
    for source in (FromSample(rotated_pair(positions), positions), FromEncoder(rotated_pair, DSPRITES)):
        assert beta_vae_score_from(source, **FEW).value == pytest.approx(0.79, abs=0.03)


@pytest.mark.spec("001a/MT-04", "003/F3-044")
def test_factor_vae_score_of_perfect_and_rotated_dsprites_codes(positions):
    assert factor_vae_score(standard(positions), positions, **FEW).value == 1
    assert factor_vae_score_from(FromEncoder(standard, DSPRITES), **FEW).value == 1
    for source in (FromSample(rotated_pair(positions), positions), FromEncoder(rotated_pair, DSPRITES)):
        assert factor_vae_score_from(source, **FEW).value == pytest.approx(0.81, abs=0.04)


MIXING = np.array([[1.0, 0.8], [-0.7, 1.0], [0.6, -0.4]])
GRID = (3, 5, 8)


def entangled(positions):
    return standard(positions, GRID) @ MIXING


def written_out(seed=0, votes=1200):
    """Both published protocols on the whole grid, one vote at a time."""
    rng = np.random.default_rng(seed)
    features, least, held = [], [], []
    spread = entangled(rng.integers(0, GRID, size=(10_000, 3))).var(0, ddof=1)
    for _ in range(votes):
        k = rng.integers(3)
        first, second = rng.integers(0, GRID, size=(2, 64, 3))
        second[:, k] = first[:, k]
        features.append(np.abs(entangled(first) - entangled(second)).mean(0))
        first[:, k] = first[0, k]
        least.append(np.argmin(entangled(first).var(0, ddof=1) / spread))
        held.append(k)
    features, least, held = np.array(features), np.array(least), np.array(held)
    half = votes // 2
    regression = LogisticRegression(max_iter=10_000, tol=1e-8).fit(features[:half], held[:half])
    table = np.zeros((2, 3))
    np.add.at(table, (least[:half], held[:half]), 1)
    return (
        regression.score(features[half:], held[half:]),
        np.mean(table.argmax(1)[least[half:]] == held[half:]),
    )


def test_both_sources_agree_with_the_protocol_written_out():
    beta, factor = written_out()
    sample = np.random.default_rng(1).integers(0, GRID, size=(10_000, 3))
    for source in (FromEncoder(entangled, GRID), FromSample(entangled(sample), sample)):
        assert beta_vae_score_from(source, **FEW).value == pytest.approx(beta, abs=0.05)
        assert factor_vae_score_from(source, **FEW).value == pytest.approx(factor, abs=0.06)
    assert 0.4 < factor < 0.95


@pytest.mark.spec("001a/MT-04")
def test_constant_and_tiny_latents_are_ignored(positions):
    codes = standard(positions)
    rng = np.random.default_rng(2)
    idle = np.column_stack([codes, np.ones(len(codes)), 0.01 * rng.normal(size=len(codes))])
    score = factor_vae_score(idle, positions, **FEW)
    assert score.value == 1
    assert score.settings["pruned"] == [5, 6]
    assert not score.table[5:].any()
    assert factor_vae_score(codes * 0.1, positions, prune="var", **FEW).settings["pruned"] == [0, 1, 2, 3, 4]
    assert factor_vae_score(codes * 0.1, positions, prune="std", **FEW).settings["pruned"] == []


def test_votes_do_not_depend_on_the_scales_of_latents(positions):
    codes = rotated_pair(positions)
    scaled = factor_vae_score(codes * [0.01, 1, 5, 100, 0.2], positions, threshold=0, **FEW)
    assert np.array_equal(scaled.table, factor_vae_score(codes, positions, **FEW).table)


def test_collapsed_codes_score_nothing_or_chance(positions):
    assert factor_vae_score(np.ones((20_000, 3)), positions, **FEW).value == 0
    assert beta_vae_score(np.ones((20_000, 3)), positions, **FEW).value == pytest.approx(0.2, abs=0.05)
    noise = np.random.default_rng(3).normal(size=(20_000, 5))
    assert beta_vae_score(noise, positions, **FEW).value == pytest.approx(0.2, abs=0.05)
    assert factor_vae_score(noise, positions, **FEW).value == pytest.approx(0.2, abs=0.05)


def test_examples_looked_up_share_the_factor_and_nothing_else(positions):
    """With the factors as codes the shared value can be read off."""
    source = FromSample(positions, positions)
    rng = np.random.default_rng(4)
    first, second = source.pairs(2, (200, 16), rng)
    assert np.array_equal(first[..., 2], second[..., 2])
    assert np.mean(first[..., 3] == second[..., 3]) == pytest.approx(1 / 32, abs=0.02)
    assert (np.ptp(first[..., 2], axis=1) > 0).all()  # each pair of a batch has a value of its own
    groups = source.groups(2, (300, 16), rng)
    assert (np.ptp(groups[..., 2], axis=1) == 0).all()
    assert len(np.unique(groups[:, 0, 2])) == 40
    encoder = FromEncoder(lambda p: p, DSPRITES)
    first, second = encoder.pairs(2, (50, 16), rng)
    assert np.array_equal(first[..., 2], second[..., 2])
    assert (np.ptp(encoder.groups(4, (50, 16), rng)[..., 4], axis=1) == 0).all()


def test_values_that_one_example_alone_has_are_passed_over():
    factors = np.array([[0, 0], [0, 1], [1, 0], [2, 1], [2, 0]])
    groups = FromSample(factors, factors).groups(0, (100, 4), np.random.default_rng(5))
    assert set(np.unique(groups[..., 0])) == {0, 2}


def test_the_same_seed_gives_the_same_bits(positions):
    codes = rotated_pair(positions)
    assert (
        factor_vae_score(codes, positions, seed=3, **FEW).value
        == factor_vae_score(codes, positions, seed=3, **FEW).value
    )
    first = beta_vae_score(codes, positions, seed=3, **FEW)
    assert np.array_equal(first.table, beta_vae_score(codes, positions, seed=3, **FEW).table)
    assert first.value == pytest.approx(np.mean(first.per_factor), abs=0.05)


def test_tables_show_which_latent_follows_which_factor(positions):
    codes = standard(positions)[:, [4, 3, 2, 1, 0]]
    assert beta_vae_score(codes, positions, **FEW).table.argmin(axis=0).tolist() == [4, 3, 2, 1, 0]
    assert factor_vae_score(codes, positions, **FEW).table.argmax(axis=0).tolist() == [4, 3, 2, 1, 0]


def test_bad_input_is_refused_in_a_sentence(positions):
    with pytest.raises(ValueError, match="needs 2; got 1"):
        beta_vae_score(positions, positions[:, 0])
    with pytest.raises(ValueError, match="no two examples share a value of factor 1"):
        factor_vae_score(np.eye(4), np.array([[0, 0], [0, 1], [1, 2], [1, 3]]))
    with pytest.raises(ValueError, match="at least 2 factors of at least 2 values"):
        FromEncoder(standard, (3, 1))
    with pytest.raises(ValueError, match="encode returned 7 codes"):
        factor_vae_score_from(FromEncoder(lambda p: np.zeros((7, 2)), (3, 3)))
    with pytest.raises(ValueError, match="prune is"):
        factor_vae_score(positions, positions, prune="range")
    with pytest.raises(ValueError, match="batch of at least 2"):
        factor_vae_score(positions, positions, batch=1)
