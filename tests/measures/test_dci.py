"""DCI: the formulas on tables by hand, the published probe written out, and the default one beside it."""

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import entropy
from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor

from polariscope.measures.boosting import boosted, boosted_together
from polariscope.measures.dci import DCI, PROBES, completeness_of, dci, disentanglement_of
from polariscope.measures.score import split
from polariscope.representation import Representation

PARTS = ("disentanglement", "completeness", "informativeness")
TRAINED = ("autoencoder", "vae", "beta-vae, hardly trained", "beta-vae", "beta-tc-vae", "dip-vae")


@pytest.fixture(scope="module")
def stored():
    """Codes of trained models, and what scikit-learn's gradient boosting says about them: see data/README.md."""
    with np.load(Path(__file__).parent / "data" / "dci.npz") as file:
        return dict(file)


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


@pytest.mark.spec("001a/MT-07", "003/F3-043")
@pytest.mark.parametrize("model", TRAINED)
def test_on_trained_models_the_default_probe_scores_as_scikit_learns_boosting_does(stored, model):
    scores = dci(stored[model], stored["factors"].astype(np.int64), train=1_500, test=3_500)
    result = [scores.part(part).value for part in PARTS]
    assert result == pytest.approx(stored["scikit"][TRAINED.index(model)], abs=0.01)
    assert scores.disentanglement.settings["probe"] == "boosting"


def test_a_single_tree_is_another_probe(stored):
    """Why it may not be shown as DCI without its name."""
    scores = dci(stored["beta-tc-vae"], stored["factors"].astype(np.int64), "tree", train=1_500, test=3_500)
    apart = [scores.part(part).value for part in PARTS] - stored["scikit"][TRAINED.index("beta-tc-vae")]
    assert np.abs(apart).max() > 0.05


def test_the_stored_scores_are_scikit_learns(stored):
    """One factor of one model again; the scores follow from such importances and accuracies of all factors."""
    codes, factors = stored["beta-vae"].astype(np.float64), stored["factors"].astype(np.int64)
    rows, held = split(len(codes), 0, 1_500, 3_500)
    model = GradientBoostingClassifier(random_state=0).fit(codes[rows], factors[rows, 0])
    assert model.score(codes[held], factors[held, 0]) == pytest.approx(stored["accuracy"][3, 0], abs=1e-3)
    assert model.feature_importances_ == pytest.approx(stored["importance"][3, :, 0], abs=1e-3)
    assert stored["scikit"][3, 0] == pytest.approx(disentanglement_of(stored["importance"][3])[0], abs=1e-6)
    assert stored["scikit"][3, 2] == pytest.approx(stored["accuracy"][3].mean())


@pytest.mark.parametrize("values", [2, 3])
def test_the_first_tree_of_each_class_splits_as_scikit_learns(values, monkeypatch):
    """With fewer values than bins the search is exact, and without the ties of later rounds so is the agreement."""
    monkeypatch.setattr("polariscope.measures.boosting.ROUNDS", 3)
    codes, factors = entangled(220)
    target = factors[:, values - 2]
    model = GradientBoostingClassifier(n_estimators=3, random_state=0).fit(codes[:150], target[:150])
    importance, prediction = boosted(codes[:150], target[:150], codes[150:])
    assert importance == pytest.approx(model.feature_importances_, abs=1e-5)
    assert np.mean(prediction == model.predict(codes[150:])) > 0.95


def test_regression_follows_scikit_learns():
    rng = np.random.default_rng(3)
    codes = rng.normal(size=(700, 4))
    target = 20 + 3 * codes[:, 0] + np.sin(3 * codes[:, 1])
    model = GradientBoostingRegressor(random_state=0).fit(codes[:500], target[:500])
    importance, prediction = boosted(codes[:500], target[:500], codes[500:], continuous=True)
    assert importance == pytest.approx(model.feature_importances_, abs=0.005)
    assert np.std(prediction - target[500:]) == pytest.approx(
        np.std(model.predict(codes[500:]) - target[500:]), rel=0.1
    )


def test_only_the_order_of_a_latents_values_counts():
    codes, factors = entangled(400, seed=8)
    stretched = np.column_stack([1e-9 * codes[:, 0], 1e9 * codes[:, 1], np.exp(codes[:, 2]), codes[:, 3:]])
    first, second = (dci(z, factors) for z in (codes, stretched))
    assert first.disentanglement.value == second.disentanglement.value
    assert first.informativeness.value == second.informativeness.value


def test_trees_that_grow_together_are_those_that_grow_alone(monkeypatch):
    """Whatever the number of trees and targets at a time."""
    codes, factors = entangled(300, seed=5)
    monkeypatch.setattr("polariscope.measures.boosting.ROUNDS", 10)
    targets, continuous = [*factors[:200].T, codes[:200, 3] ** 2], [False] * 3 + [True]
    together = boosted_together(codes[:200], targets, codes[200:], continuous)
    monkeypatch.setattr("polariscope.measures.boosting.BLOCK", 1)
    alone = [boosted(codes[:200], target, codes[200:], c) for target, c in zip(targets, continuous, strict=True)]
    for (importance, prediction), (same, so) in zip(together, alone, strict=True):
        assert importance == pytest.approx(same, abs=1e-6)
        assert np.mean(np.isclose(prediction, so, rtol=1e-4)) > 0.98


def test_a_class_that_is_never_seen_alone_is_no_trouble():
    """A value so rare that the training rows have only the other one."""
    codes = np.random.default_rng(9).normal(size=(60, 3))
    importance, prediction = boosted(codes[:40], np.zeros(40, dtype=np.int64), codes[40:])
    assert importance.tolist() == [0, 0, 0]
    assert prediction.tolist() == [0] * 20


@pytest.mark.spec("001a/MT-07")
@pytest.mark.parametrize("probe", [p for p in PROBES if p != "gbt"])
def test_a_perfect_code_scores_one_whatever_the_probe(probe):
    rng = np.random.default_rng(4)
    factors = rng.integers(0, (3, 4, 5), size=(900, 3))
    codes = np.column_stack([factors[:, ::-1] * [1, -1, 1e-9], rng.normal(size=900)])
    if probe not in ("boosting", "tree"):  # scikit-learn's trees call values 1e-7 apart equal; ours see ranks
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


def test_the_measure_offers_each_part_under_the_name_of_its_probe():
    codes, factors = entangled(300)
    rep = Representation(mean=codes.astype(np.float32), factors=factors)
    measure = DCI("informativeness", "tree")
    assert measure.value(rep) == pytest.approx(dci(rep.mean, factors, "tree").informativeness.value)
    assert measure.title == "DCI informativeness (tree)"
    assert DCI().title == DCI.title == "DCI disentanglement (boosting)"


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
