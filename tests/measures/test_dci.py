"""DCI: the formulas on tables by hand, the published probe written out, and how far the quick probe lies from it."""

import numpy as np
import pytest
from scipy.stats import entropy
from sklearn.ensemble import GradientBoostingClassifier

from polariscope.measures.dci import DCI, PROBES, completeness_of, dci, disentanglement_of
from polariscope.measures.score import split
from polariscope.representation import Representation


@pytest.mark.spec("001a/MT-07", "003/F3-043")
def test_identity_importances_score_one_and_uniform_ones_nothing():
    assert disentanglement_of(np.eye(4)[:, ::-1] * 3)[0] == pytest.approx(1)
    assert completeness_of(np.eye(4))[0] == pytest.approx(1)
    assert disentanglement_of(np.full((6, 3), 0.2))[0] == pytest.approx(0, abs=1e-12)
    assert completeness_of(np.full((6, 3), 0.2))[0] == pytest.approx(0, abs=1e-12)
    assert disentanglement_of(np.zeros((2, 2)))[0] == 0


def test_tables_by_hand():
    table = np.array([[3.0, 1.0], [0.0, 2.0], [0.0, 0.0]])
    quarter = 1 + 0.75 * np.log2(0.75) + 0.25 * np.log2(0.25)
    value, per_latent = disentanglement_of(table)
    assert per_latent == pytest.approx([quarter, 1, 0])
    assert value == pytest.approx((4 * quarter + 2) / 6)
    value, per_factor = completeness_of(table)
    third = 1 - entropy([1 / 3, 2 / 3], base=3)
    assert per_factor == pytest.approx([1, third])
    assert value == pytest.approx((3 + 3 * third) / 6)


def entangled(samples, seed=0, mixing=0.4):
    rng = np.random.default_rng(seed)
    factors = rng.integers(0, (2, 3, 4), size=(samples, 3))
    standard = (factors - factors.mean(0)) / factors.std(0)
    mixed = standard @ (np.eye(3) + mixing * rng.normal(size=(3, 3)))
    return np.hstack([mixed + 0.2 * rng.normal(size=(samples, 3)), rng.normal(size=(samples, 2))]), factors


@pytest.mark.spec("001a/MT-07", "003/F3-043")
def test_the_published_probe_agrees_with_the_protocol_written_out():
    codes, factors = entangled(240)
    rows, held = split(240, 3)
    importance, accuracy = [], []
    for v in factors.T:
        model = GradientBoostingClassifier(random_state=3).fit(codes[rows], v[rows])
        importance.append(model.feature_importances_)
        accuracy.append(model.score(codes[held], v[held]))
    r = np.array(importance).T
    per_latent = 1 - entropy(r.T + 1e-11, base=3)
    per_factor = 1 - entropy(r + 1e-11, base=5)
    scores = dci(codes, factors, "gbt", seed=3)
    assert scores.disentanglement.value == pytest.approx(np.sum(per_latent * r.sum(1) / r.sum()), abs=1e-6)
    assert scores.completeness.value == pytest.approx(np.sum(per_factor * r.sum(0) / r.sum()), abs=1e-6)
    assert scores.informativeness.value == pytest.approx(np.mean(accuracy))
    assert scores.disentanglement.settings["probe"] == "gbt"


def test_the_quick_probe_lies_near_the_published_one():
    codes, factors = entangled(900, seed=1, mixing=0.15)
    quick, published = dci(codes, factors), dci(codes, factors, "gbt")
    assert quick.disentanglement.value == pytest.approx(published.disentanglement.value, abs=0.1)
    assert quick.completeness.value == pytest.approx(published.completeness.value, abs=0.1)
    assert 0.1 < quick.disentanglement.value < 0.9


@pytest.mark.spec("001a/MT-07")
@pytest.mark.parametrize("probe", [p for p in PROBES if p != "gbt"])
def test_a_perfect_code_scores_one_whatever_the_probe(probe):
    rng = np.random.default_rng(4)
    factors = rng.integers(0, (3, 4, 5), size=(900, 3))
    codes = np.column_stack([factors[:, ::-1] * [1, -1, 1e-9], rng.normal(size=900)])
    if probe != "tree":  # scikit-learn's trees call values 1e-7 apart equal; ours see ranks
        codes[:, 2] *= 1e9
    scores = dci(codes, factors, probe)
    for part in ("disentanglement", "completeness", "informativeness"):
        assert scores.part(part).value == pytest.approx(1, abs=0.02)
    assert scores.disentanglement.settings["probe"] == probe


def test_parts_by_factor_average_to_the_scores():
    codes, factors = entangled(900, seed=2)
    scores = dci(codes, factors)
    for part in ("disentanglement", "completeness", "informativeness"):
        assert scores.part(part).value == pytest.approx(scores.part(part).per_factor.mean())


def test_continuous_factors_are_regressed():
    rng = np.random.default_rng(5)
    factors = np.column_stack([rng.uniform(size=900), rng.integers(0, 3, 900)])
    scores = dci(factors, factors)
    assert scores.informativeness.settings["regressed_factors"] == [0]
    assert scores.informativeness.value == pytest.approx(1, abs=0.01)
    assert scores.disentanglement.value == pytest.approx(1, abs=0.01)


def test_constant_codes_score_nothing():
    factors = np.random.default_rng(6).integers(0, (3, 4), size=(300, 2))
    scores = dci(np.ones((300, 3)), factors)
    assert scores.disentanglement.value == 0
    assert scores.completeness.value == pytest.approx(0, abs=1e-12)


def test_the_measure_offers_each_part():
    codes, factors = entangled(600)
    rep = Representation(mean=codes.astype(np.float32), factors=factors)
    assert DCI("informativeness").value(rep) == pytest.approx(dci(rep.mean, factors).informativeness.value)


def test_bad_input_is_refused_in_a_sentence():
    codes, factors = entangled(60)
    with pytest.raises(ValueError, match="no probe 'trees': did you mean"):
        dci(codes, factors, "trees")
    with pytest.raises(ValueError, match="at least 2; got 1"):
        dci(codes[:, :1], factors)
    with pytest.raises(ValueError, match="needs 2; got 1"):
        dci(codes, factors[:, 0])
    with pytest.raises(ValueError, match="no part 'complete'"):
        dci(codes, factors).part("complete")
    with pytest.raises(ValueError, match="non-negative"):
        disentanglement_of([[-1.0, 1.0]])
