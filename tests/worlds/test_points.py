import numpy as np
import pytest
from scipy.stats import norm
from sklearn.neighbors import NearestNeighbors

from polariscope.worlds import World, worlds
from polariscope.worlds.points.synthetic import Gaussian, RandomDecoder, SquareLinear, SquareNonlinear, TwoGaussians

SPECTRUM = (5.0, 3.0, 1.5, 0.8, 0.3, 0.1)
NAMES = ["gaussian", "random-decoder", "square-linear", "square-nonlinear", "two-gaussians"]


def everything(world: World) -> tuple[np.ndarray, np.ndarray]:
    index = np.arange(len(world))
    return world.observe(index), world.factors_of(index)


def neighbour_distances(x: np.ndarray, count: int) -> np.ndarray:
    result = NearestNeighbors(n_neighbors=count + 1, algorithm="brute").fit(x).kneighbors(x)[0]
    return result[:, 1:].astype(np.float64)


def maximum_likelihood_dimension(x: np.ndarray, k: int = 20) -> float:
    distance = neighbour_distances(x, k)
    return float(1 / (np.log(distance[:, -1:] / distance[:, :-1]).sum(1) / (k - 1)).mean())


def two_neighbour_dimension(x: np.ndarray) -> float:
    distance = neighbour_distances(x, 2)
    ratio = np.sort(np.log(distance[:, 1] / distance[:, 0]))
    kept = int(0.9 * len(ratio))
    height = -np.log(1 - np.arange(kept) / len(ratio))
    return float(height @ ratio[:kept] / (ratio[:kept] @ ratio[:kept]))


@pytest.mark.parametrize("name", NAMES)
def test_world_is_built_by_name_and_repeats(name: str) -> None:
    world, again = (worlds.build({"name": name, "count": 60, "seed": 4}) for _ in range(2))
    assert isinstance(world, World)
    x, factors = everything(world)
    assert x.shape == (60, *world.shape)
    assert x.dtype == np.float32
    assert factors.shape == (60, len(world.factors))
    np.testing.assert_array_equal(x, again.observe(np.arange(60)))
    np.testing.assert_array_equal(x[[5, 1]], world.observe([5, 1]))
    other = worlds.build({"name": name, "count": 60, "seed": 5}).observe(np.arange(60))
    assert (other != x).any(axis=1).all()


@pytest.mark.parametrize("name", NAMES)
def test_longer_world_starts_with_the_shorter(name: str) -> None:
    x, factors = everything(worlds.build({"name": name, "count": 50}))
    longer_x, longer_factors = everything(worlds.build({"name": name, "count": 200}))
    np.testing.assert_allclose(longer_x[:50], x, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(longer_factors[:50], factors)


def test_drawn_points_cannot_be_overwritten() -> None:
    world = Gaussian(count=10)
    world.observe(np.arange(10))[:] = 0
    assert (world.observe(np.arange(10)) != 0).all()
    with pytest.raises(ValueError, match="read-only"):
        world._drawn[0][:] = 0


@pytest.mark.spec("002/X04")
def test_exact_gaussian_has_the_spectrum_to_rounding() -> None:
    world = Gaussian(count=200, spectrum=SPECTRUM, exact=True, seed=2)
    x, z = everything(world)
    covariance = np.cov(x.T.astype(np.float64), bias=True)
    np.testing.assert_allclose(np.linalg.eigvalsh(covariance)[::-1], SPECTRUM, rtol=2e-6)
    np.testing.assert_allclose(x.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(covariance, world.directions * SPECTRUM @ world.directions.T, atol=1e-5)
    np.testing.assert_allclose(np.cov(z.T, bias=True), np.eye(6), atol=1e-6)


@pytest.mark.spec("002/X04")
def test_drawn_gaussian_has_the_spectrum_within_sampling_error() -> None:
    x, _ = everything(Gaussian(count=100_000, spectrum=SPECTRUM))
    result = np.linalg.eigvalsh(np.cov(x.T.astype(np.float64)))[::-1]
    np.testing.assert_allclose(result, SPECTRUM, rtol=5 * np.sqrt(2 / 100_000))
    assert (result != SPECTRUM).all()


def test_gaussian_is_the_rotated_scaled_factors() -> None:
    world = Gaussian(count=30, spectrum=(4.0, 1.0, 0.0), seed=1)
    x, z = everything(world)
    np.testing.assert_allclose(world.directions.T @ world.directions, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(x @ world.directions, z * np.array([2, 1, 0]), atol=1e-5)
    straight, z = everything(Gaussian(count=30, spectrum=(4.0, 1.0, 0.0), rotate=False, seed=1))
    np.testing.assert_allclose(straight, z * np.array([2, 1, 0]), atol=1e-6)


@pytest.mark.spec("003/F3-048")
def test_linear_square_has_the_written_matrix() -> None:
    written = np.array([[1.60947571, -0.50587936], [0.62123444, 0.80473785], [1.01175873, 0.31061722]])
    world = SquareLinear(count=20)
    np.testing.assert_allclose(world.matrix, written, atol=1e-8)
    np.testing.assert_allclose(world.matrix.T @ world.matrix, np.diag([4, 1]), atol=1e-12)
    x, w = everything(world)
    np.testing.assert_allclose(x, w @ written.T, atol=1e-6)


def test_centred_square_has_the_same_points_around_zero() -> None:
    x, w = everything(SquareLinear(count=500))
    centred, same = everything(SquareLinear(count=500, centred=True))
    np.testing.assert_array_equal(w, same)
    np.testing.assert_allclose(centred.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(centred, x - x.mean(axis=0), atol=1e-6)


@pytest.mark.spec("003/F3-048")
@pytest.mark.parametrize("stretch", [1.0, 1.5, 2.0])
def test_linear_square_has_the_written_covariance(stretch: float) -> None:
    x, w = everything(SquareLinear(stretch=stretch))
    assert len(x) == 50_000
    assert 0 <= w.min() < w.max() <= 1
    result = np.linalg.eigvalsh(np.cov(x.T.astype(np.float64)))[::-1]
    np.testing.assert_allclose(result, [stretch**2 / 12, 1 / 12, 0], rtol=0.02, atol=1e-9)


@pytest.mark.spec("003/F3-049")
def test_nonlinear_square_is_normalised_and_bent() -> None:
    world = SquareNonlinear(seed=3)
    x, w = everything(world)
    assert x.shape == (50_000, 6)
    np.testing.assert_allclose(x[:100], world.decode(w[:100]), atol=1e-5)
    assert x.var(0).sum() == pytest.approx(1, abs=0.02)
    np.testing.assert_allclose(x.mean(0), 0, atol=0.02)
    inner, bias, *_ = world.layers
    assert (w @ inner + bias).std() == pytest.approx(2, rel=0.02)
    design = np.column_stack([w, np.ones(len(w))])
    residual = x - design @ np.linalg.lstsq(design, x, rcond=None)[0]
    assert residual.var(0).sum() > 0.02  # no linear map of the square explains the points
    assert two_neighbour_dimension(x[:3000]) == pytest.approx(2, rel=0.1)


@pytest.mark.spec("002/X03")
@pytest.mark.parametrize("dimension", [1, 2, 5, 10])
def test_random_decoder_has_the_intrinsic_dimension(dimension: int) -> None:
    x, _ = everything(RandomDecoder(count=5000, dimension=dimension))
    assert maximum_likelihood_dimension(x) == pytest.approx(dimension, rel=0.2)
    assert two_neighbour_dimension(x) == pytest.approx(dimension, rel=0.2)


@pytest.mark.spec("002/X03")
@pytest.mark.parametrize("dimension", [3, 10])
def test_random_images_have_the_intrinsic_dimension(dimension: int) -> None:
    images, _ = everything(RandomDecoder(count=5000, dimension=dimension, size=16))
    assert images.shape == (5000, 1, 16, 16)
    assert images.dtype == np.uint8
    assert 50 < images.std() < 90
    x = images.reshape(5000, -1).astype(np.float32)
    assert maximum_likelihood_dimension(x) == pytest.approx(dimension, rel=0.2)
    assert two_neighbour_dimension(x) == pytest.approx(dimension, rel=0.2)


def test_random_decoder_bends_more_than_a_linear_map() -> None:
    unexplained = []
    for length in (0.5, 1.0, 4.0):
        x, factors = everything(RandomDecoder(count=2000, dimension=4, length=length))
        design = np.column_stack([factors[:, :4], np.ones(2000)])
        residual = x - design @ np.linalg.lstsq(design, x, rcond=None)[0]
        unexplained.append(residual.var() / x.var())
    assert unexplained[0] > unexplained[1] > 0.1 > unexplained[2]


def test_random_images_are_smooth_over_the_pixels() -> None:
    images, _ = everything(RandomDecoder(count=100, dimension=5, size=32))
    steps = np.diff(images.astype(float), axis=-1)
    assert steps.std() < 0.25 * images.std()


def test_random_decoder_labels_are_signs_of_projections() -> None:
    world = RandomDecoder(count=4000, dimension=6, labels=3)
    _, factors = everything(world)
    assert [factor.size for factor in world.factors] == [0] * 6 + [2] * 3
    np.testing.assert_array_equal(factors[:, 6:], factors[:, :6].astype(float) @ world.projections > 0)
    np.testing.assert_allclose(factors[:, 6:].mean(0), 0.5, atol=0.05)


def test_blocks_of_the_decoder_join_without_a_seam() -> None:
    world = RandomDecoder(count=5000, dimension=3)
    x, factors = everything(world)
    np.testing.assert_allclose(x, world.decode(factors[:, :3]), atol=1e-4)


def test_two_gaussians_have_the_error_of_the_best_classifier() -> None:
    world = TwoGaussians(count=100_000, dimension=3, distance=3.0, var=2.25)
    x, label = everything(world)
    label = label[:, 0]
    means = np.stack([x[label == 0].mean(0), x[label == 1].mean(0)])
    np.testing.assert_allclose(means, [[-1.5, 0, 0], [1.5, 0, 0]], atol=0.03)
    np.testing.assert_allclose(x[label == 1].var(0), 2.25, rtol=0.03)
    error = ((x[:, 0] > 0) != label).mean()
    assert error == pytest.approx(norm.cdf(-1), abs=0.005)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: Gaussian(count=0), "at least 1 point"),
        (lambda: Gaussian(spectrum=()), "spectrum"),
        (lambda: Gaussian(spectrum=(1.0, -0.1)), ">= 0"),
        (lambda: Gaussian(spectrum=(1.0, float("nan"))), "spectrum"),
        (lambda: Gaussian(count=2, spectrum=(1.0, 1.0), exact=True), "needs more points"),
        (lambda: SquareLinear(stretch=0.0), "positive"),
        (lambda: SquareNonlinear(count=0), "at least 1 point"),
        (lambda: RandomDecoder(dimension=0), "dimension >= 1"),
        (lambda: RandomDecoder(length=0.0), "length > 0"),
        (lambda: RandomDecoder(dimension=20, ambient=40), "at least 41"),
        (lambda: RandomDecoder(dimension=20, size=6), "got 36"),
        (lambda: TwoGaussians(var=0.0), "var > 0"),
    ],
)
def test_impossible_worlds_are_refused(call, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()
