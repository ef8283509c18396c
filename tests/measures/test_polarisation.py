"""Variable types, their KL, the trace gap, and the synthetic polarised regime they are tried on."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from polariscope.measures.information import total_correlation
from polariscope.measures.polarisation import (
    Rate,
    TraceGap,
    decoder_sensitivity,
    example_types,
    per_variable_kl,
    polarised_sample,
    trace_gap,
    variable_types,
)
from polariscope.representation import Representation
from polariscope.theory import linear_vae

seeds = st.integers(0, 2**32 - 1)


def switching(share: float, samples: int = 1000) -> np.ndarray:
    """Variances of one variable that is active (0) on exactly a share of the samples and passive (1) elsewhere."""
    return np.where(np.arange(samples) < round(share * samples), 0.0, 1.0)[:, None]


@pytest.mark.spec("002/V01")
@pytest.mark.parametrize(
    ("share", "label"),
    [
        *((share, "passive") for share in (0, 0.05, 0.1)),
        *((share, "mixed") for share in (0.15, 0.5, 0.85)),
        *((share, "active") for share in (0.9, 0.95, 1)),
    ],
)
def test_the_label_of_a_switching_variable_depends_on_its_share(share, label):
    assert variable_types(switching(share)).labels == (label,)


@pytest.mark.spec("002/V01")
@settings(deadline=None)
@given(seed=seeds, alpha=st.floats(0.01, 0.4))
def test_the_types_partition_the_variables_and_follow_their_definition(seed, alpha):
    rng = np.random.default_rng(seed)
    centre, spread = rng.choice([0.0, 0.05, 0.3, 1.0, 1.3], size=8), rng.choice([0.0, 0.02, 1.0], size=8)
    var = np.abs(centre + spread * rng.normal(size=(50, 8)))
    mean, variation = var.mean(0), var.var(0)
    assume(np.abs(np.stack([mean, np.abs(mean - 1), variation]) - alpha).min() > 1e-9)  # on the border rounding decides
    types = variable_types(var, alpha)
    together = np.concatenate([types.active, types.mixed, types.passive])
    assert sorted(together.tolist()) == list(range(8))
    assert sum(types.counts.values()) == len(types) == 8
    for j, label in enumerate(types.labels):
        steady = variation[j] <= alpha
        assert (label == "active") == (steady and mean[j] <= alpha)
        assert (label == "passive") == (steady and abs(mean[j] - 1) <= alpha)
    order = rng.permutation(8)
    assert variable_types(var[:, order], alpha).labels == tuple(np.array(types.labels)[order])


@pytest.mark.spec("002/V01")
def test_a_variance_above_one_is_mixed():
    assert variable_types(np.full((10, 1), 1.2)).labels == ("mixed",)


@pytest.mark.spec("002/V02")
def test_the_linear_model_has_partial_variables_that_never_switch():
    """λ = (5, 3, 1.5, 0.8, 0.3, 0.1), θ = 0.5: posterior variances 0.1, 0.167, 0.333, 0.625 and 1, all constant."""
    spectrum = np.array([5, 3, 1.5, 0.8, 0.3, 0.1])
    best = linear_vae.solve(spectrum, 5, gamma=0.5)
    types = variable_types(np.tile(best.var, (100, 1)))
    assert types.labels == ("active", "mixed", "mixed", "mixed", "passive")
    assert types.refined == ("active", "partial", "partial", "partial", "passive")
    assert types.partial.tolist() == [1, 2, 3]
    assert types.switching.size == 0
    # the decoder has dropped the passive column, and the KLs add up to the rate of the closed form
    np.testing.assert_allclose(decoder_sensitivity(best.W), [*np.sqrt(spectrum[:4] - 0.5), 0])
    points = np.sqrt(6) * np.diag(np.sqrt(spectrum))
    posterior = linear_vae.optimal_posterior(best.W, points, 0.5, posterior="diagonal")
    kl = per_variable_kl(posterior.mean, np.tile(posterior.var, (6, 1)))
    np.testing.assert_allclose(kl[:4], 0.5 * np.log(spectrum[:4] / 0.5), rtol=1e-9)
    assert kl[4] == pytest.approx(0, abs=1e-12)
    assert kl.sum() == pytest.approx(best.rate, rel=1e-9)


@pytest.mark.spec("002/V02")
def test_switching_and_partial_variables_are_told_apart():
    var = np.hstack([switching(0.5), np.full((1000, 1), 0.5)])
    types = variable_types(var)
    assert types.labels == ("mixed", "mixed")
    assert types.refined == ("mixed_switching", "partial")
    assert types.switching.tolist() == [0]


@pytest.mark.parametrize(
    ("variances", "spread_of_mean", "label", "kind"),
    [
        (np.full(1000, 0.1004), 0.95, "mixed", "partly used"),  # 1.2 nats, the same for all examples
        (np.random.default_rng(0).normal(0.3, 0.05, 1000), 0.8, "mixed", "partly used"),
        (switching(0.37)[:, 0], 0.0, "mixed", "switching"),
        (np.where(switching(0.4)[:, 0] == 0, 0.18, 0.97), 0.0, "mixed", "switching"),  # used, if not quite active
        (np.full(1000, 0.86), 0.1, "mixed", "passive"),  # 0.01 nats
        (np.full(1000, 0.97), 0.1, "passive", "passive"),
        (np.full(1000, 1.0), 1.0, "passive", "partly used"),  # the mean moves: half a nat
        (np.full(1000, 0.05), 1.0, "active", "active"),
        (np.full(1000, 1.3), 0.1, "mixed", "passive"),
    ],
)
def test_mixed_is_told_apart_by_what_its_examples_do(variances, spread_of_mean, label, kind):
    mean = spread_of_mean * np.random.default_rng(1).normal(size=(len(variances), 1))
    types = variable_types(variances[:, None], mean=mean)
    assert (types.labels, types.kinds) == ((label,), (kind,))
    assert types.labels == variable_types(variances[:, None]).labels, "the published rule does not look at the means"


def test_a_switching_variable_has_the_share_of_examples_that_it_is_used_for():
    types = variable_types(np.hstack([switching(0.37), np.full((1000, 1), 0.1004), np.ones((1000, 1))]))
    np.testing.assert_allclose(types.used_share, [0.37, 1, 0])
    assert types.kind_counts == {"active": 0, "partly used": 1, "switching": 1, "passive": 1}
    assert types.counts == {"active": 0, "mixed": 2, "passive": 1}


def test_kinds_go_by_the_ratio_to_a_learned_prior():
    prior_var = np.full((1000, 2), 0.01)
    var = prior_var * np.hstack([switching(0.5), np.full((1000, 1), 0.5)])
    types = variable_types(var, mean=np.ones((1000, 2)), prior_mean=np.ones(2), prior_var=prior_var)
    assert types.kinds == ("switching", "partly used")


def test_subsets_are_named_by_types():
    types = variable_types([[0.0, 1.0, 0.0, 1.0], [0.0, 1.0, 1.0, 1.0]])
    names = ["all", "active", "mixed", "passive", "active+mixed", "non-passive", "mixed+passive"]
    assert [types.subset(name).tolist() for name in names] == [
        [0, 1, 2, 3],
        [0],
        [2],
        [1, 3],
        [0, 2],
        [0, 2],
        [1, 2, 3],
    ]
    with pytest.raises(ValueError, match="no subset 'dead'"):
        types.subset("dead")


def test_a_learned_prior_is_judged_by_the_ratio_and_by_the_distance_of_the_means():
    rng = np.random.default_rng(0)
    prior_var = rng.uniform(1e-3, 5e-2, size=(500, 3))
    ratio = np.array([1.0, 1.0, 0.01])
    mean = np.sqrt(prior_var) * rng.normal(size=(500, 3)) * [0.05, 1.0, 5.0]
    var = prior_var * ratio
    assert variable_types(var).labels == ("active", "active", "active")  # the plain rule is blind here
    types = variable_types(var, mean=mean, prior_var=prior_var)
    # the same variance as the prior, but a mean that moves: not passive
    assert types.labels == ("passive", "mixed", "active")
    shifted = variable_types(var, mean=mean + 3, prior_mean=np.full(3, 3.0), prior_var=prior_var)
    assert shifted.labels == types.labels
    assert variable_types(var, mean=mean, prior_mean=np.full(3, 3.0), prior_var=prior_var).passive.size == 0


@pytest.mark.spec("002/V03")
@settings(deadline=None)
@given(seed=seeds)
def test_the_dataset_types_are_intersections_and_unions_of_those_of_the_examples(seed):
    rng = np.random.default_rng(seed)
    states = rng.integers(0, 3, size=(6, 8))
    states[:, 0], states[:, 1] = 0, 1
    types = example_types(np.array([0.02, 1.0, 0.5])[states])
    active = [set(np.flatnonzero(row == 0)) for row in states]
    passive = [set(np.flatnonzero(row == 1)) for row in states]
    assert set(types.active) == set.intersection(*active)
    assert set(types.passive) == set.intersection(*passive)
    assert set(types.mixed) == set.union(*active) & set.union(*passive)
    assert not set(types.active) & set(types.mixed)
    assert not set(types.passive) & set(types.mixed)
    assert not set(types.active) & set(types.passive)
    np.testing.assert_allclose(types.active_share, (states == 0).mean(axis=0))


@pytest.mark.spec("002/V03")
def test_on_a_switching_dataset_both_definitions_agree():
    s = polarised_sample(active=3, passive=2, mixed=[0.4, 0.6], samples=2000)
    dataset, examples = variable_types(s.var), example_types(s.var, s.mean)
    assert dataset.labels == s.labels
    assert examples.active.tolist() == dataset.active.tolist()
    assert examples.mixed.tolist() == dataset.mixed.tolist()
    assert examples.passive.tolist() == dataset.passive.tolist()
    moving = example_types(np.ones((2, 1)), mean=[[0.0], [1.0]])
    assert moving.passive_at.ravel().tolist() == [True, False]


def test_the_kl_of_each_variable_knows_its_prior():
    mean, var = np.array([[1.0, 0.0], [3.0, 0.0]]), np.array([[0.5, 2.0], [0.5, 2.0]])
    np.testing.assert_allclose(per_variable_kl(mean, var, prior_mean=mean, prior_var=var), 0, atol=1e-15)
    np.testing.assert_allclose(
        per_variable_kl(mean, var), [0.5 * (5 + 0.5 - np.log(0.5) - 1), 0.5 * (2 - np.log(2) - 1)], rtol=1e-12
    )


def test_the_sensitivity_of_a_decoder_is_averaged_over_samples():
    jacobians = np.array([[[3.0, 0.0], [4.0, 0.0]], [[0.0, 0.0], [1.0, 0.0]]])
    assert decoder_sensitivity(jacobians).tolist() == [3.0, 0.0]


@pytest.mark.spec("002/D05")
@pytest.mark.parametrize(
    ("active", "passive", "shares"), [(5, 0, ()), (3, 4, ()), (0, 3, ()), (2, 0, (0.3, 0.8)), (2, 2, (0.5,))]
)
def test_the_trace_gap_counts_what_is_not_active(active, passive, shares):
    s = polarised_sample(active, passive, mixed=shares, samples=20_000, active_var=1e-8, seed=1)
    expected = passive + sum(1 - w for w in shares)
    assert trace_gap(s.mean, sample=s.sample) == pytest.approx(expected, abs=0.1)
    assert trace_gap(var=s.var, estimator="analytic") == pytest.approx(expected, abs=0.02)
    if not shares:
        assert trace_gap(var=s.var, estimator="analytic") == pytest.approx(passive, abs=1e-6)


@pytest.mark.spec("002/D05")
def test_a_mixed_variable_has_the_published_variances():
    """w = 0.3, active part N(2, 0.25): Var M = w(1−w)·4 + w·0.25 = 0.915 and Var Z = 0.915 + 0.7."""
    s = polarised_sample(active=0, passive=0, mixed=[0.3], samples=400_000, active_var=1e-8)
    assert s.mean.var() == pytest.approx(0.915, abs=0.01)
    assert s.sample.var() == pytest.approx(1.615, abs=0.015)
    assert trace_gap(s.mean, sample=s.sample) == pytest.approx(0.7, abs=0.01)


@pytest.mark.spec("002/D05")
def test_the_expected_trace_gap_is_the_sum_of_mean_variances_whatever_they_are():
    rng = np.random.default_rng(0)
    mean, var = rng.normal(size=(300, 4)) * 3, rng.uniform(0, 2, size=(300, 4))
    gaps = [trace_gap(mean, sample=mean + np.sqrt(var) * rng.normal(size=var.shape)) for _ in range(400)]
    analytic = trace_gap(var=var, estimator="analytic")
    assert analytic == pytest.approx(var.mean(axis=0).sum())
    assert np.mean(gaps) == pytest.approx(analytic, abs=4 * np.std(gaps) / 20)


@pytest.mark.spec("002/M09")
def test_correlated_passive_variables_raise_the_total_correlation_of_the_means_only():
    s = polarised_sample(active=6, passive=4, correlation=0.9, samples=10_000)
    assert -2 * np.log(1 - 0.81) == pytest.approx(3.321, abs=1e-3)
    assert total_correlation(s.mean) == pytest.approx(3.321, abs=0.06)
    assert total_correlation(s.sample) < 0.006
    assert total_correlation(s.mean[:, :6]) < 0.006
    tiny = polarised_sample(active=6, passive=4, correlation=0.9, samples=10_000, passive_scale=1e-6)
    assert total_correlation(tiny.mean) == pytest.approx(total_correlation(s.mean), rel=1e-6)


@pytest.mark.spec("002/M09")
def test_the_generator_has_the_types_and_the_trace_gap_it_promises():
    s = polarised_sample(active=4, passive=3, mixed=[0.3, 0.7], samples=20_000, seed=3)
    types = variable_types(s.var)
    assert types.labels == s.labels
    assert types.counts == {"active": 4, "mixed": 2, "passive": 3}
    assert trace_gap(s.mean, sample=s.sample) == pytest.approx(3 + 0.7 + 0.3, abs=0.1)
    noise = (s.sample - s.mean) / np.sqrt(s.var)
    np.testing.assert_allclose(noise.mean(axis=0), 0, atol=0.03)
    np.testing.assert_allclose(noise.var(axis=0), 1, atol=0.05)
    again = polarised_sample(active=4, passive=3, mixed=[0.3, 0.7], samples=20_000, seed=3)
    assert np.array_equal(again.sample, s.sample)


def test_tensors_are_typed_as_arrays_are():
    var = torch.tensor([[0.01, 1.0], [0.02, 1.0]], requires_grad=True)
    assert variable_types(var).labels == ("active", "passive")
    assert trace_gap(var=var, estimator="analytic") == pytest.approx(1.015)


LOGVAR, VAR, MEAN = np.array([[-3.0, 0.0], [-4.0, 0.0]]), np.array([[0.1, 1.0], [0.1, 1.0]]), np.zeros((2, 2))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: variable_types(LOGVAR), "looks like a log-variance: pass its exp"),
        (lambda: per_variable_kl(MEAN, LOGVAR), "looks like a log-variance"),
        (lambda: trace_gap(var=LOGVAR, estimator="analytic"), "looks like a log-variance"),
        (lambda: example_types(LOGVAR), "looks like a log-variance"),
        (lambda: variable_types(VAR, mean=MEAN, prior_var=LOGVAR), "prior_var needs positive variances"),
        (lambda: variable_types(VAR, alpha=0.5), "active and passive overlap"),
        (lambda: example_types(VAR, alpha=0.6), "active and passive overlap"),
        (lambda: variable_types(VAR, prior_var=VAR), "needs the mean"),
        (lambda: variable_types(VAR, mean=MEAN[:, :1], prior_var=VAR), "mean needs shape"),
        (lambda: variable_types(VAR, mean=MEAN * np.nan, prior_var=VAR), "mean has NaN"),
        (lambda: variable_types(VAR[:1]), "at least 2 samples"),
        (lambda: per_variable_kl(MEAN[:, :1], VAR), "same shape"),
        (lambda: trace_gap(MEAN), "needs mean= and sample="),
        (lambda: trace_gap(MEAN, estimator="analytic"), "pass var="),
        (lambda: trace_gap(MEAN, VAR, MEAN, estimator="exact"), "'sampled' or 'analytic'"),
        (lambda: trace_gap(MEAN, sample=MEAN[:, :1]), "same shape"),
        (lambda: decoder_sensitivity([1.0]), "jacobian needs shape"),
        (lambda: polarised_sample(1, 2, correlation=0.5), "needs its own active one; got 2 and 1"),
        (lambda: polarised_sample(0, 0), "at least one variable"),
        (lambda: polarised_sample(1, 1, correlation=1.0), "strictly between"),
        (lambda: polarised_sample(1, 1, mixed=[1.5]), "shares between 0 and 1"),
    ],
)
def test_bad_representations_are_refused_in_a_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_trace_gap_and_rate_of_a_representation_are_those_of_its_posterior():
    s = polarised_sample(active=2, passive=1, mixed=[0.4], samples=500, active_var=0.1)
    rep = Representation(mean=s.mean, var=s.var)
    assert TraceGap().value(rep) == pytest.approx(s.var.mean(axis=0).sum())
    loss = 0.5 * (s.var + s.mean**2 - 1 - np.log(s.var))
    assert Rate().value(rep) == pytest.approx(loss.sum() / 500)
