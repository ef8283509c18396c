"""Sources over time and their mixtures: moments of the process, and a way back from what is seen."""

import math

import numpy as np
import pytest

from polariscope.theory.transitions import fit, latent_var
from polariscope.training.config import TrainingConfig
from polariscope.training.loop import Feed
from polariscope.worlds.points.sources import Sources, inverse_smooth_leaky_relu, smooth_leaky_relu
from polariscope.worlds.splits import RandomSplit, SplitPart


def pairs_of(world: Sources) -> tuple[np.ndarray, np.ndarray]:
    everyone = np.arange(len(world))
    return world.factors_of(everyone).astype(np.float64), world.other_factors_of(everyone).astype(np.float64)


@pytest.mark.spec("001a/DS-19")
def test_the_published_process_has_its_variance_and_its_steps() -> None:
    """O16: variance 2/(1 - .49) = 3.9216 at every moment, and Laplace steps of scale 1 after a shrinkage by .7."""
    world = Sources(count=30_000, dimension=5)
    first, second = pairs_of(world)
    draws = first.size / 3  # moments of one source are alike for about 3 of them
    # The variance of s² is (kurtosis - 1) var², with kurtosis 3 + 3 (1 - a²)/(1 + a²) below 4.1.
    tolerance = 4 * 3.9216 * math.sqrt(3.1 / draws)
    assert first.var() == pytest.approx(3.9216, abs=tolerance)
    assert second.var() == pytest.approx(3.9216, abs=tolerance)
    steps = second - 0.7 * first
    result = fit(steps)
    assert (result.alpha, result.scale) == pytest.approx((1, 1), abs=0.02)
    table = np.corrcoef(np.hstack([first, second]).T)
    assert np.diag(table[:5, 5:]) == pytest.approx(0.7, abs=0.03)
    assert np.abs(table - np.diag(np.diag(table)))[:5, :5].max() < 0.04, "sources are independent"
    assert np.abs(np.corrcoef(np.abs(steps).T) - np.eye(5)).max() < 0.04


@pytest.mark.spec("001a/DS-19")
def test_the_smooth_leaky_relu_is_as_defined_and_can_be_undone() -> None:
    """O16: s(0) = (1 - a) ln 2, slopes from a to 1."""
    assert float(smooth_leaky_relu(0.0, 0.3)) == pytest.approx(0.7 * math.log(2), rel=1e-14)
    x = np.linspace(-40, 40, 401)
    for a in (0.1, 0.5, 1.0):
        y = smooth_leaky_relu(x, a)
        slopes = np.diff(y) / np.diff(x)
        assert slopes.min() > a - 1e-9
        assert slopes.max() < 1 + 1e-9
        np.testing.assert_allclose(inverse_smooth_leaky_relu(y, a), x, atol=1e-11)
    np.testing.assert_allclose(inverse_smooth_leaky_relu([-1e3, 1e3]), [-1e4, 1e3], rtol=1e-12)


@pytest.mark.spec("001a/DS-19")
@pytest.mark.parametrize("layers", range(6))
def test_the_mixing_is_undone_layer_by_layer(layers: int) -> None:
    world = Sources(count=300, dimension=6, layers=layers, scales=(1, 2, 0.5, -1, 1, 3), seed=2)
    sources = pairs_of(world)[0]
    np.testing.assert_allclose(world.unmix(world.mix(sources)), sources, atol=1e-9)
    seen = world.observe(np.arange(300)).astype(np.float64)
    np.testing.assert_allclose(seen, world.mix(sources), atol=1e-5)
    coefficients, *_ = np.linalg.lstsq(np.hstack([sources, np.ones((300, 1))]), seen, rcond=None)
    bent = np.abs(np.hstack([sources, np.ones((300, 1))]) @ coefficients - seen).max() > 0.05
    assert bent == (layers > 1), "one layer is linear, two are not"


def test_layers_turn_and_do_not_stretch() -> None:
    world = Sources(count=10, dimension=6, layers=3, seed=1)
    for matrix in world.matrices:
        np.testing.assert_allclose(matrix.T @ matrix, np.eye(6), atol=1e-12)
    assert not np.allclose(world.matrices[0], world.matrices[1])


def test_more_coordinates_carry_more_of_the_sources() -> None:
    """What EX-02 needs: the size of a coordinate stays, so that an observation of 10 times as many says 10 times as
    much against a noise of fixed size."""
    small, large = (Sources(count=2000, dimension=20, layers=2, ambient=m) for m in (20, 200))
    everyone = np.arange(2000)
    assert large.shape == (200,)
    assert large.observe(everyone).std() == pytest.approx(small.observe(everyone).std(), rel=0.05)
    np.testing.assert_allclose(large.unmix(large.observe(everyone)), pairs_of(large)[0], atol=1e-4)


@pytest.mark.parametrize(("alpha", "rate"), [(1.0, 1.0), (1.0, 6.0), (0.5, 3.0), (2.0, 2.0)])
def test_pairs_of_temporal_sparse_coding(alpha: float, rate: float) -> None:
    """N(0, 1), and then the variance 1 + Γ(3/α) λ^(-2/α) / Γ(1/α): 3 at α = λ = 1, 1.0556 at λ = 6."""
    world = Sources(count=20_000, dimension=3, coefficient=1.0, start="normal", alpha=alpha, rate=rate, layers=0)
    first, second = pairs_of(world)
    assert first.var() == pytest.approx(1, abs=4 * math.sqrt(2 / first.size))
    assert second.var() == pytest.approx(float(latent_var(alpha, rate)), rel=0.04)
    result = fit(second - first)
    assert (result.alpha, result.rate) == pytest.approx((alpha, rate), rel=0.05)


def test_two_axes_of_different_size() -> None:
    """What EX-01 needs: x = diag(1, κ) z, unmixed."""
    world = Sources(count=500, dimension=2, coefficient=1.0, start="normal", rate=6.0, layers=0, scales=(1.0, 0.3))
    np.testing.assert_allclose(world.observe(np.arange(500)), pairs_of(world)[0] * [1, 0.3], rtol=1e-6)


def test_no_moment_is_in_two_sequences_and_batches_bring_what_follows() -> None:
    world = Sources(count=200, dimension=2, length=3, layers=2)
    everyone = np.arange(200)
    second, third = world.others_of(everyone)
    rows = np.concatenate([world.observe(everyone), second, third])
    assert len(np.unique(rows, axis=0)) == 600
    # Lag 1 within a sequence, and from its end to the next one's start: it is one process.
    sources = world.sequences[0].reshape(600, 2).astype(np.float64)
    assert np.corrcoef(sources[:-1, 0], sources[1:, 0])[0, 1] == pytest.approx(0.7, abs=0.15)
    batch = Feed(world, np.array([4, 7]), TrainingConfig(batch_size=2), needs=("other",)).batch(0)
    order = [4, 7] if np.array_equal(batch.x[0], world.observe([4])[0]) else [7, 4]
    assert len(batch.others) == 2
    np.testing.assert_array_equal(batch.other, second[order])
    np.testing.assert_array_equal(batch.others[1], third[order])


def test_a_part_of_the_world_has_its_own_pairs() -> None:
    world = Sources(count=100, dimension=2)
    part = SplitPart(world, RandomSplit(0.2))
    feed = Feed(part, np.arange(20), TrainingConfig(batch_size=20), needs=("other", "factors"))
    batch = feed.batch(0)
    kept = RandomSplit(0.2).parts(world).held_out[feed.order[0]]
    np.testing.assert_array_equal(batch.other, world.others_of(kept)[0])
    np.testing.assert_array_equal(batch.factors, world.factors_of(kept))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"dimension": 0}, "dimension of sources is 0"),
        ({"layers": -1}, "layers of sources is -1"),
        ({"length": 1}, "length of sources is 1: it needs to be at least 2"),
        ({"rate": 0.0}, "rate of sources is 0.0: it needs to be above 0"),
        ({"alpha": math.nan}, "alpha of sources is nan"),
        ({"slope": 1.5}, "slope of the mixing is 1.5"),
        ({"ambient": 10}, "20 sources need at least as many coordinates; ambient is 10"),
        ({"ambient": 40, "layers": 0}, "not mixed have 20 coordinates: use at least 1 layer"),
        ({"scales": (1.0, 0.5)}, "20 sources need as many scales"),
        ({"scales": (0.0,), "dimension": 1}, "none of them 0"),
        ({"coefficient": 1.0}, "use another, or let sequences begin at N"),
        ({"coefficient": math.inf, "start": "normal"}, "coefficient of sources is inf"),
        ({"count": 0}, "at least 1 point"),
    ],
)
def test_bad_settings_are_refused_in_a_sentence(settings, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        Sources(**settings)
