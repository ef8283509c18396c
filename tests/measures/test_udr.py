"""UDR: models equal up to order and sign agree perfectly; the formula against loops; uninformative latents."""

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.linear_model import Lasso

from polariscope.measures.udr import udr

GRID = np.stack(np.unravel_index(np.arange(3 * 4 * 5 * 6), (3, 4, 5, 6)), axis=1).astype(float)


@pytest.mark.spec("003/F3-046")
def test_models_equal_up_to_order_and_sign_score_one():
    result = udr([GRID, -GRID[:, ::-1], GRID[:, [1, 0, 3, 2]] ** 3])
    assert result.values == pytest.approx([1, 1, 1])
    assert np.isnan(np.diag(result.pairs)).all()
    assert result.pairs == pytest.approx(result.pairs.T, nan_ok=True)


def test_the_model_that_disagrees_comes_last():
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0]
    result = udr([GRID, -GRID, GRID[:, ::-1], (GRID - GRID.mean(0)) / GRID.std(0) @ rotation])
    assert result.values[3] < 0.6 < 0.9 < result.values[:3].min()
    assert result.best in (0, 1, 2)


@pytest.mark.parametrize("likeness", ["spearman", "lasso"])
def test_agrees_with_the_formula_in_loops(likeness):
    rng = np.random.default_rng(1)
    codes = [GRID @ rng.normal(size=(4, d)) + rng.normal(size=(360, d)) for d in (3, 4, 2)]
    kl = [rng.choice([0.0, 1.0], c.shape[1], p=[0.3, 0.7]) for c in codes]
    kl[0][0] = kl[1][0] = 1.0
    result = udr(codes, kl, likeness)

    def likeness_of(a, b):
        if likeness == "spearman":
            return np.abs([[spearmanr(x, y).statistic for y in b.T] for x in a.T])
        a, b = (a - a.mean(0)) / a.std(0), (b - b.mean(0)) / b.std(0)
        return np.abs([Lasso(alpha=0.1).fit(a, y).coef_ for y in b.T]).T

    for i in range(3):
        for j in range(3):
            if i == j:
                continue
            forward, backward = likeness_of(codes[i], codes[j]), likeness_of(codes[j], codes[i])
            if likeness == "spearman":
                assert forward == pytest.approx(backward.T)
            total = 0.0
            for b in range(codes[j].shape[1]):
                if kl[j][b] > 0.01 and forward[:, b].sum() > 0:
                    total += forward[:, b].max() ** 2 / forward[:, b].sum()
            for a in range(codes[i].shape[1]):
                row = forward[a]
                if kl[i][a] > 0.01 and row.sum() > 0:
                    total += row.max() ** 2 / row.sum()
            assert result.pairs[i, j] == pytest.approx(total / (sum(kl[i] > 0.01) + sum(kl[j] > 0.01)), abs=1e-6)


def test_latents_near_the_prior_and_constant_ones_do_not_count():
    noise = np.random.default_rng(2).normal(size=(360, 2))
    with_noise = [np.column_stack([GRID, noise[:, 0]]), np.column_stack([noise[:, 1], GRID])]
    kl = [[1, 1, 1, 1, 0.001], [0.001, 1, 1, 1, 1]]
    assert udr(with_noise, kl).values.min() > 0.85
    assert udr(with_noise).values.max() < 0.85
    constant = np.column_stack([GRID, np.ones(360)])
    assert udr([constant, GRID]).values == pytest.approx([1, 1])
    assert udr([constant, GRID]).informative[0].tolist() == [True] * 4 + [False]
    assert np.isnan(udr([GRID, GRID], [np.zeros(4), np.zeros(4)]).values).all()


def test_bad_input_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match="at least 2; got 1"):
        udr([GRID])
    with pytest.raises(ValueError, match="same examples; got \\[360, 100\\]"):
        udr([GRID, GRID[:100]])
    with pytest.raises(ValueError, match="likeness is"):
        udr([GRID, GRID], likeness="cka")
    with pytest.raises(ValueError, match="one mean divergence per latent"):
        udr([GRID, GRID], [np.zeros(4), np.zeros(3)])
