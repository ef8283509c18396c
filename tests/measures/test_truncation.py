"""Scores by subset of variable types: the truncation table, downstream accuracy, correlations over training."""

import numpy as np
import pytest

from polariscope.measures.information import averaged_mutual_information, effective_rank, total_correlation
from polariscope.measures.polarisation import polarised_sample, variable_types
from polariscope.measures.truncation import (
    compare_mean_sampled,
    random_accuracy,
    subset_accuracies,
    track_correlations,
)


@pytest.mark.spec("002/M04")
def test_mean_and_sampled_scores_agree_once_the_passive_variables_are_out():
    s = polarised_sample(active=5, passive=4, correlation=0.9, mixed=[0.5], samples=10_000)
    rows = {row.subset: row for row in compare_mean_sampled(s.mean, s.sample, variable_types(s.var))}
    assert list(rows) == ["all", "non-passive", "active", "passive"]
    whole, used, active = rows["all"], rows["non-passive"], rows["active"]
    assert (whole.variables, used.variables, active.variables) == (tuple(range(10)), tuple(range(6)), tuple(range(5)))
    assert whole.tc_mean - whole.tc_sampled > 3
    assert abs(used.tc_mean - used.tc_sampled) < 0.01
    assert abs(active.tc_mean - active.tc_sampled) < 0.01
    assert whole.mi_mean - whole.mi_sampled > 0.05
    assert abs(active.mi_mean - active.mi_sampled) < 0.005
    assert whole.erank_mean == pytest.approx(6, abs=0.3)  # n − #passive
    assert whole.erank_sampled > 9.4
    assert used.erank_mean is None
    assert not any(row.notes for row in rows.values())


@pytest.mark.spec("002/M04")
def test_every_cell_is_the_measure_of_those_columns():
    s = polarised_sample(active=3, passive=2, correlation=0.5, mixed=[0.4, 0.6], samples=500)
    for row in compare_mean_sampled(s.mean, s.sample, variable_types(s.var), subsets=("all", "mixed+passive"), bins=8):
        columns = list(row.variables)
        assert row.tc_mean == pytest.approx(total_correlation(s.mean[:, columns]), rel=1e-12)
        assert row.tc_sampled == pytest.approx(total_correlation(s.sample[:, columns]), rel=1e-9)
        assert row.mi_mean == averaged_mutual_information(s.mean[:, columns], bins=8)
        assert row.mi_sampled == averaged_mutual_information(s.sample[:, columns], bins=8)
        assert row.samples == 500
        if row.subset == "all":
            assert row.erank_mean == pytest.approx(effective_rank(s.mean), rel=1e-12)
            assert row.erank_sampled == pytest.approx(effective_rank(s.sample), rel=1e-12)


def test_undefined_cells_are_empty_and_explained():
    s = polarised_sample(active=1, passive=2, samples=200)
    mean = s.mean.copy()
    mean[:, 2] = 0.0  # a fully collapsed mean
    rows = {row.subset: row for row in compare_mean_sampled(mean, s.sample, variable_types(s.var))}
    assert rows["all"].tc_mean is None
    assert rows["all"].tc_sampled is not None
    assert "mean: total correlation is undefined for constant columns: drop columns [2]" in rows["all"].notes
    assert rows["active"].tc_mean == 0  # one variable has nothing to correlate with
    assert rows["active"].mi_mean is None
    assert "at least 2 columns" in rows["active"].notes[0]


def test_empty_subsets_have_no_row():
    s = polarised_sample(active=3, passive=0, samples=100)
    rows = compare_mean_sampled(s.mean, s.sample, variable_types(s.var))
    assert [row.subset for row in rows] == ["all", "non-passive", "active"]


@pytest.mark.spec("002/M05")
@pytest.mark.parametrize(
    ("classes", "expected"), [((3, 6, 40, 32, 32), 0.1175), ((4, 24, 183), 0.0990), ((5, 9, 18, 6), 0.1333)]
)
def test_random_accuracies_of_the_published_datasets(classes, expected):
    labels = np.column_stack([np.arange(1000) % k for k in classes])
    assert random_accuracy(labels) == pytest.approx(expected, abs=5e-5)


@pytest.fixture(scope="module")
def predictable():
    """Labels that depend on active and mixed variables; passive means follow the active ones."""
    s = polarised_sample(active=2, passive=2, correlation=0.9, mixed=[0.5], samples=3000, seed=5)
    quartile = np.digitize(s.mean[:, 0], np.quantile(s.mean[:, 0], [0.25, 0.5, 0.75]))
    sign = (s.mean[:, 1] > np.median(s.mean[:, 1])).astype(int)
    switched = (s.mean[:, 2] > 0.5).astype(int)
    return s, np.column_stack([quartile, sign, switched])


SIZES = {"train": 1000, "test": 2000, "folds": 3, "strengths": 3}


@pytest.mark.spec("002/M05")
def test_sampled_passive_variables_predict_as_chance_does(predictable):
    s, labels = predictable
    rows = {row.subset: row for row in subset_accuracies(s.sample, labels, variable_types(s.var), **SIZES)}
    chance = rows["random"]
    assert chance.per_label == (0.25, 0.5, 0.5)
    assert all(row.accuracy == pytest.approx(np.mean(row.per_label)) for row in rows.values())
    for guessed, expected in zip(rows["passive"].per_label, chance.per_label, strict=True):
        assert guessed == pytest.approx(expected, abs=4 * np.sqrt(expected * (1 - expected) / 2000))
    assert rows["mixed"].accuracy > chance.accuracy + 0.05
    assert rows["active+mixed"].accuracy == pytest.approx(rows["all"].accuracy, abs=0.02)
    assert rows["active"].accuracy < rows["active+mixed"].accuracy - 0.05
    assert rows["active+mixed"].per_label[1] > 0.95


@pytest.mark.spec("002/M05")
def test_the_means_of_passive_variables_can_be_informative(predictable):
    s, labels = predictable
    rows = subset_accuracies(s.mean, labels, variable_types(s.var), subsets=("passive",), **SIZES)
    assert [row.subset for row in rows] == ["passive", "random"]
    assert rows[0].accuracy > rows[1].accuracy + 0.1
    assert (rows[0].variables, rows[0].train, rows[0].test) == ((3, 4), 1000, 2000)


@pytest.mark.spec("002/M05")
def test_empty_subsets_are_left_out_not_scored_zero():
    s = polarised_sample(active=2, passive=0, samples=300)
    rows = subset_accuracies(s.mean, s.mean[:, 0] > 0, variable_types(s.var), train=100, test=100, folds=2, strengths=2)
    assert [row.subset for row in rows] == ["all", "active", "active+mixed", "active+passive", "random"]
    assert len({row.accuracy for row in rows[:4]}) == 1  # the same variables, fitted once
    assert rows[0].accuracy > 0.9
    assert rows[4].accuracy == pytest.approx(0.5, abs=0.1)


@pytest.mark.spec("002/M06")
def test_passive_variables_collect_the_most_correlations_over_training():
    snapshots = []
    for step in range(12):
        rho = 0.9 * np.sin(step)  # what a passive mean correlates with drifts, as nothing holds it
        snapshots.append(polarised_sample(active=4, passive=2, correlation=rho, samples=2000, seed=step).mean)
    track = track_correlations(snapshots, threshold=0.2)
    expected = sum(abs(0.9 * np.sin(step)) > 0.2 for step in range(12))
    assert track.counts.tolist() == [expected, expected, 0, 0, expected, expected]
    assert track.pair_counts[0, 4] == track.pair_counts[1, 5] == expected
    assert np.trace(track.pair_counts) == 0
    np.testing.assert_allclose(track.of(0)[:, 4], 0.9 * np.sin(np.arange(12)), atol=0.08)


@pytest.mark.spec("002/M06")
def test_a_passive_variable_that_follows_several_counts_for_each():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 5000, 4))
    x[1:, :, 3] = 1e-3 * x[1:, :, :3].sum(axis=2)  # from the second snapshot on: correlation 1/√3 with three others
    track = track_correlations(x)
    assert track.counts.tolist() == [2, 2, 2, 6]
    assert track.counts.argmax() == 3


S = polarised_sample(active=2, passive=1, samples=50)
TYPES = variable_types(S.var)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: compare_mean_sampled(S.mean, S.sample[:, :2], TYPES), "disagree"),
        (lambda: subset_accuracies(S.mean, np.zeros(49), TYPES), "disagree"),
        (lambda: subset_accuracies(S.mean, np.arange(50) % 2, TYPES), "at most 50 samples together"),
        (lambda: subset_accuracies(S.mean, np.arange(50) % 2, TYPES, train=40, test=20), "at most 50 samples together"),
        (lambda: subset_accuracies(S.mean, np.zeros(50), TYPES, train=25, test=25), r"columns \[0\] have only one"),
        (lambda: random_accuracy(np.zeros((0, 2))), "labels need shape"),
        (lambda: track_correlations([]), "at least one snapshot"),
        (lambda: track_correlations([S.mean, S.mean[:, :2]]), "snapshot 1 has 2 variables, the first had 3"),
        (lambda: track_correlations([S.mean, S.var]), r"snapshot 1 has constant columns \[0, 1, 2\]"),
        (lambda: track_correlations([S.mean], threshold=1.0), r"\[0, 1\)"),
    ],
)
def test_disagreeing_input_is_refused_in_a_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
