"""Invariant worlds: moments, what the label depends on, compression and rotation."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from polariscope.testing import check_world
from polariscope.theory.stripe import balanced_stripe
from polariscope.worlds.points.stripes import LinearInvariant, Stripe, compress, random_directions


@pytest.mark.parametrize(
    "settings", [{}, {"dimension": 2, "interfaces": (-1.0, 0.0, 1.0), "compression": 4.0}, {"rotate": True}], ids=str
)
def test_stripes_keep_the_contract(settings) -> None:
    check_world(Stripe(count=500, **settings))


@pytest.mark.spec("004/F01")
def test_points_are_standard_normal_and_the_label_sees_the_informative_ones_only() -> None:
    world = LinearInvariant(6, 2, lambda x: np.sign(x[:, 0] * x[:, 1]))
    x, y = world.sample(100_000, seed=1)
    assert x.dtype == np.float64
    assert set(y.tolist()) == {-1, 1}
    np.testing.assert_allclose(x.mean(0), 0, atol=4 / np.sqrt(1e5))
    np.testing.assert_allclose(np.cov(x.T), np.eye(6), atol=0.02)
    np.testing.assert_allclose((x**4).mean(0), 3, atol=0.15)
    permuted = x.copy()
    permuted[:, 2:] = np.random.default_rng(0).permutation(x[:, 2:])
    np.testing.assert_array_equal(world.labels(permuted), y)
    permuted[:, :2] = np.random.default_rng(0).permutation(x[:, :2])
    assert (world.labels(permuted) != y).mean() == pytest.approx(0.5, abs=0.02)


@pytest.mark.spec("004/F01")
def test_samples_are_a_function_of_the_seed() -> None:
    world = Stripe(dimension=4)
    x, y = world.sample(300, seed=5)
    again, labels = world.sample(400, seed=np.random.default_rng(5))
    np.testing.assert_array_equal(again[:300], x)
    np.testing.assert_array_equal(labels[:300], y)
    assert not np.array_equal(world.sample(300, seed=6)[0], x)
    assert not np.allclose(world.observe(range(300)), world.sample(300, seed=world.seed)[0], atol=1e-3)


@pytest.mark.spec("004/F02")
@pytest.mark.parametrize("x_min", [-0.3, -0.6744897501960817, -1.5])
def test_the_single_stripe_is_balanced(x_min) -> None:
    low, high = balanced_stripe(x_min)
    x, y = Stripe(dimension=3, interfaces=(low, high)).sample(100_000, seed=0)
    np.testing.assert_array_equal(y < 0, (x[:, 0] > low) & (x[:, 0] < high))
    assert y.mean() == pytest.approx(0, abs=4 / np.sqrt(1e5))
    assert norm.cdf(high) - norm.cdf(low) == pytest.approx(0.5)
    assert Stripe().interfaces[1] == pytest.approx(1.1854923, abs=1e-7)


@pytest.mark.spec("004/F03")
@pytest.mark.parametrize("interfaces", [(0.2,), (-1.0, -0.5, 0.3), (-2.0, -1.5, -0.2, 0.0, 0.1, 1.7)])
def test_the_label_flips_at_each_interface(interfaces) -> None:
    world = Stripe(dimension=2, interfaces=interfaces)
    scan = np.column_stack([np.linspace(-3, 3, 6001), np.zeros(6001)])
    y = world.source.labels(scan)
    flips = np.flatnonzero(np.diff(y))
    assert len(flips) == len(interfaces)
    np.testing.assert_allclose(scan[flips, 0], interfaces, atol=1e-3)
    assert y[0] == 1


@pytest.mark.spec("004/F05")
def test_compression_divides_what_the_label_ignores() -> None:
    world = Stripe(dimension=5)
    x, y = world.sample(50_000, seed=2)
    np.testing.assert_array_equal(compress(x, 1, 1.0), x)
    small, labels = replace(world, compression=8.0).sample(50_000, seed=2)
    np.testing.assert_array_equal(labels, y)
    np.testing.assert_array_equal(small[:, 0], x[:, 0])
    np.testing.assert_allclose(small[:, 1:].var(0), 1 / 64, rtol=0.03)
    np.testing.assert_array_equal(small, compress(x, 1, 8.0))
    assert x[:, 1:].var() == pytest.approx(1, rel=0.03)  # the given points are not written over


def trained_weights(x: np.ndarray, y: np.ndarray, start: tuple[np.ndarray, ...], alpha: float = 0.5) -> np.ndarray:
    """First-layer weights after 150 steps of full-batch hinge descent on a small network, from the written gradient."""
    (w, b, beta), (p, d) = start, x.shape
    h = len(b)

    def output(w, b, beta):
        return np.sqrt(2) / h * np.maximum(x @ w.T / np.sqrt(d) + b, 0) @ beta

    before = output(w, b, beta)
    for _ in range(150):
        margin = y * alpha * (output(w, b, beta) - before)
        a = x @ w.T / np.sqrt(d) + b
        pull = np.sqrt(2) * (a > 0).T * (y * (margin < 1) / p)
        change = beta * pull.sum(1), np.sqrt(2) * (y * (margin < 1) / p) @ np.maximum(a, 0)
        w = w + 0.3 * beta[:, None] * (pull @ x) / np.sqrt(d)
        b, beta = b + 0.3 * change[0], beta + 0.3 * change[1]
    return w


@pytest.mark.spec("004/F06")
def test_turned_points_train_to_turned_weights() -> None:
    plain, turned = Stripe(dimension=6, seed=4), Stripe(dimension=6, rotate=True, seed=4)
    q = turned.source.directions
    np.testing.assert_allclose(q.T @ q, np.eye(6), atol=1e-12)
    assert np.abs(q - np.eye(6)).max() > 0.3
    x, y = plain.sample(200, seed=0)
    x_turned, y_turned = turned.sample(200, seed=0)
    np.testing.assert_array_equal(y, y_turned)
    np.testing.assert_allclose(x_turned @ q, x, atol=1e-12)
    generator = np.random.default_rng(1)
    w, b, beta = generator.standard_normal((30, 6)), *generator.standard_normal((2, 30))
    one, other = trained_weights(x, y, (w, b, beta)), trained_weights(x_turned, y, (w @ q.T, b, beta))
    assert np.abs(one - w).max() > 1
    assert np.abs(other - one @ q.T).max() / np.abs(one).max() < 1e-12


@pytest.mark.spec("004/F06")
def test_rotation_belongs_to_the_world_and_not_to_the_sample() -> None:
    world = Stripe(dimension=5, rotate=True, compression=50.0)
    direction = world.source.directions[:, 0]
    for seed in (0, 1):
        x, y = world.sample(2000, seed=seed)
        np.testing.assert_array_equal(world.layers(x @ direction), y)
        assert np.linalg.eigvalsh(np.cov(x.T))[-2:] == pytest.approx([1 / 2500, 1], rel=0.2)
    assert not np.allclose(random_directions(5, 1), random_directions(5, 2))


def test_factors_are_the_coordinates_and_the_label() -> None:
    world = Stripe(count=200, dimension=4, rotate=True, compression=3.0)
    factors = world.factors_of(range(200))
    assert [f.name for f in world.factors] == ["informative_0", "ignored_0", "ignored_1", "ignored_2", "label"]
    np.testing.assert_array_equal(factors[:, -1], world.layers(factors[:, 0]) > 0)
    np.testing.assert_allclose(world.source.observed(factors[:, :-1]), world.observe(range(200)), atol=1e-5)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: Stripe(count=0), "at least 1 point"),
        (lambda: Stripe(dimension=0), "1 to dimension"),
        (lambda: Stripe(interfaces=(1.0, 0.5)), "rising list"),
        (lambda: Stripe(compression=0.0), "positive"),
        (lambda: compress([[1.0, 2.0]], 1, -1.0), "positive"),
        (lambda: LinearInvariant(3, 1, lambda x: x[:, 0]).sample(5, 0), "-1 or \\+1"),
        (lambda: LinearInvariant(3, 4, lambda x: x[:, 0]), "1 to dimension"),
        (lambda: LinearInvariant(2, 1, lambda x: x[:, 0], directions=np.ones((2, 2))), "orthogonal"),
    ],
)
def test_impossible_worlds_are_refused(call, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()
