"""Learning curves: power laws that are known, and that of a kernel on the stripe."""

import math

import numpy as np
import pytest

from polariscope.kernels.frozen import laplace, learn_frozen
from polariscope.kernels.learning_curves import LearningCurve, learning_curves
from polariscope.worlds.points.stripes import Stripe

SIZES = np.array([128, 256, 512, 1024])


def noisy(exponent: float, spread: float, seeds: int, seed: int = 0) -> LearningCurve:
    noise = np.random.default_rng(seed).lognormal(sigma=spread, size=(len(SIZES), seeds))
    return LearningCurve(SIZES, 3.0 * SIZES[:, None] ** exponent * noise)


def test_a_pure_power_law_is_found_exactly():
    law = noisy(-0.385, 0.0, 5).power_law()
    assert (law.exponent, law.prefactor) == (pytest.approx(-0.385), pytest.approx(3.0))
    assert law.high - law.low < 1e-12
    np.testing.assert_allclose(law(SIZES), 3 * SIZES**-0.385)


@pytest.mark.spec("004/F41")
def test_the_interval_covers_the_truth_as_often_as_it_says():
    laws = [noisy(-0.5, 0.3, 15, seed).power_law(level=0.9, resamples=300) for seed in range(120)]
    covered = np.mean([law.low <= -0.5 <= law.high for law in laws])
    assert 0.8 < covered < 0.98
    outer, inner = (noisy(-0.5, 0.3, 40).power_law(level=level) for level in (0.95, 0.5))
    assert (outer.high - outer.low) / (inner.high - inner.low) == pytest.approx(1.96 / 0.674, rel=0.2)
    wide = noisy(-0.5, 0.6, 15).power_law()
    narrow = noisy(-0.5, 0.1, 15).power_law()
    assert wide.high - wide.low > 3 * (narrow.high - narrow.low)


def test_medians_shrug_off_an_outlier():
    curve = noisy(-0.5, 0.0, 15)
    curve.values[2, 3] *= 100
    law = curve.power_law()
    np.testing.assert_allclose([law.exponent, law.low, law.high], -0.5)
    assert curve.power_law(smallest=256).exponent == pytest.approx(-0.5)


def test_a_guide_has_the_given_slope_and_the_curves_middle():
    curve = noisy(-0.5, 0.2, 5)
    line = curve.guide(-5 / 13)
    values = line(SIZES)
    assert math.log(values[-1] / values[0]) / math.log(8) == pytest.approx(-5 / 13)
    assert np.log(values).mean() == pytest.approx(np.log(curve.medians).mean())


def test_runs_are_ordered_by_size_and_seed_whoever_runs_them():
    def experiment(size: int, seed: int) -> dict[str, float]:
        return {"a": size + seed / 10, "b": 1.0}

    curves = learning_curves(experiment, [10, 20], [1, 2, 3], run=lambda f, pairs: [f(pair) for pair in pairs])
    np.testing.assert_allclose(curves["a"].values, [[10.1, 10.2, 10.3], [20.1, 20.2, 20.3]])
    columns = curves["a"].columns()
    assert columns["size"].tolist() == [10, 10, 10, 20, 20, 20]
    np.testing.assert_allclose(columns["value"], curves["a"].values.ravel())


@pytest.mark.spec("004/F37")
def test_machines_with_the_laplace_kernel_learn_at_its_rate():
    world = Stripe(dimension=5)
    test = world.sample(10_000, 999)

    def experiment(size: int, seed: int) -> dict[str, float]:
        x, y = world.sample(size, seed)
        return {"laplace": learn_frozen(laplace(3 * math.sqrt(5)), x, y, "svc").error(*test)}

    law = learning_curves(experiment, [200, 400, 800], range(4))["laplace"].power_law()
    assert -0.55 < law.exponent < -0.35
    assert law.low < law.exponent < law.high


def test_what_cannot_be_fitted_is_refused():
    with pytest.raises(ValueError, match="larger test set"):
        LearningCurve(SIZES, np.zeros((4, 2))).power_law()
    with pytest.raises(ValueError, match="at least 2 sizes"):
        noisy(-0.5, 0.1, 2).power_law(smallest=1000)
    with pytest.raises(ValueError, match=r"\(sizes, seeds\)"):
        LearningCurve(SIZES, np.ones((3, 2)))
    with pytest.raises(ValueError, match="at least one size"):
        learning_curves(lambda size, seed: {}, [], [0])
    with pytest.raises(ValueError, match="same names"):
        learning_curves(lambda size, seed: {str(seed): 1.0}, [10], [0, 1])
