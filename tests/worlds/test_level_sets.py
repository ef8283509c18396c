"""Level sets of ellipses and ellipsoids: the printed rotations, the moments and the floors of Spec 000 (O16)."""

import numpy as np
import pytest

from polariscope.worlds.points.level_sets import ROTATION_X, ROTATION_Y, LevelSets
from polariscope.worlds.renderers.mini_sprites import MiniSprites
from polariscope.worlds.splits import OwnSplit, usual_split
from polariscope.worlds.targets import target_values, targets_of
from polariscope.worlds.true_property import true_property
from polariscope.worlds.views.augmented import Augmented

MANY = LevelSets(count=200_000, tested=1000)
EVERYONE = np.arange(len(MANY))


def summed_mean_error(values) -> float:
    """What the mean model misses, summed over the numbers."""
    return float(np.abs(values - values.mean(0)).sum(1).mean())


@pytest.mark.spec("000/F056")
@pytest.mark.parametrize("rotation", [ROTATION_X, ROTATION_Y], ids=["X", "Y"])
def test_the_printed_matrices_are_rotations(rotation) -> None:
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(len(rotation)), atol=3e-6)
    assert np.linalg.det(rotation) == pytest.approx(1, abs=3e-6)


@pytest.mark.spec("000/F056")
@pytest.mark.parametrize(
    ("dimension", "mean", "variance", "deviation", "highest"),
    [(2, 0.25, 23 / 720, 0.1389, 1.0), (3, 7 / 12, 23 / 720 + 4 / 45, None, 2.0)],
)
def test_the_property_has_the_moments_of_the_spec(dimension, mean, variance, deviation, highest) -> None:
    """Ellipse 0.25 and 0.0319444, ellipsoid 0.583333 and 0.120833: exactly, by Gauss–Legendre quadrature."""
    points, weights = np.polynomial.legendre.leggauss(8)
    grid = np.stack(np.meshgrid(*[points] * dimension, indexing="ij"), axis=-1).reshape(-1, dimension)
    mass = np.stack(np.meshgrid(*[weights / 2] * dimension, indexing="ij"), axis=-1).prod(-1).ravel()
    world = LevelSets(dimension, count=100_000, tested=1000)
    level = world.level_of(grid)
    assert mass @ level == pytest.approx(mean)
    assert mass @ (level - mean) ** 2 == pytest.approx(variance)
    corners = np.array(np.meshgrid(*[[-1.0, 1.0]] * dimension)).reshape(dimension, -1).T
    assert world.level_of(corners).max() == pytest.approx(highest)
    drawn = world.level_of(world.factors_of(np.arange(len(world))))
    assert drawn.mean() == pytest.approx(mean, abs=5e-3)
    assert drawn.var() == pytest.approx(variance, rel=0.03)
    if deviation is not None:
        assert np.abs(drawn - drawn.mean()).mean() == pytest.approx(deviation, abs=2e-3)


@pytest.mark.spec("000/F056")
def test_the_quadratic_form_is_the_printed_one() -> None:
    """y = 0.375 (x1² + x2²) − 0.25 x1 x2 (+ x3²): the ellipse is turned, the square is not."""
    x = np.random.default_rng(0).uniform(-1, 1, (50, 3))
    flat = 0.375 * (x[:, 0] ** 2 + x[:, 1] ** 2) - 0.25 * x[:, 0] * x[:, 1]
    np.testing.assert_allclose(LevelSets().level_of(x[:, :2]), flat)
    np.testing.assert_allclose(LevelSets(3).level_of(x), flat + x[:, 2] ** 2)


@pytest.mark.spec("000/F056", "000/F065")
def test_floors_and_mean_models_have_the_numbers_of_the_spec() -> None:
    assert MANY.y_floor == pytest.approx(0.24817, abs=1e-5)
    assert MANY.x_floor == pytest.approx(0.02851, abs=1e-5)
    solid = LevelSets(3, count=200_000)
    assert solid.x_floor == pytest.approx(0.02219, abs=1e-5)
    properties = MANY.target_of(EVERYONE)
    assert np.abs(properties - MANY.property_of(MANY.observe(EVERYONE))).sum(1).mean() == pytest.approx(
        MANY.y_floor, abs=2e-3
    )
    assert np.abs(MANY.observe(EVERYONE) - MANY.embed(MANY.factors_of(EVERYONE))).sum(1).mean() == pytest.approx(
        MANY.x_floor, rel=0.01
    )
    assert summed_mean_error(properties) == pytest.approx(0.329, abs=2e-3)
    assert summed_mean_error(solid.target_of(EVERYONE)) == pytest.approx(0.504, abs=3e-3)
    assert summed_mean_error(MANY.observe(EVERYONE)) == pytest.approx(1.391, abs=5e-3)
    assert summed_mean_error(solid.observe(EVERYONE)) == pytest.approx(1.763, abs=5e-3)


@pytest.mark.spec("000/F056")
@pytest.mark.parametrize("dimension", [2, 3])
def test_the_way_into_five_dimensions_has_a_way_back(dimension) -> None:
    world = LevelSets(dimension, count=100, tested=10)
    x = world.factors_of(np.arange(100))
    np.testing.assert_allclose(world.unembed(world.embed(x)), x, atol=1e-5)
    level = world.level_of(x)
    np.testing.assert_allclose(world.unembed_level(world.embed_level(level)), level, atol=1e-5)
    truth = true_property(world, world.observe(np.arange(100)))
    np.testing.assert_allclose(world.unembed_level(truth), level, atol=0.05)
    plain = LevelSets(dimension, count=100, tested=10, rotated=False, padding=0.0, noise=0.0)
    np.testing.assert_allclose(plain.observe([3])[0, :dimension], plain.factors_of([3])[0])
    assert plain.target_of([3])[0].tolist() == [pytest.approx(plain.level_of(plain.factors_of([3]))[0]), 0.0, 0.0]


@pytest.mark.spec("000/F070")
def test_level_sets_have_the_printed_semi_axes() -> None:
    """2√y along (1, 1), √(2y) along (1, -1): r(φ) = √(y / (cos²φ/4 + sin²φ/2)) around the diagonals."""
    world, y = LevelSets(), 0.37
    ends = world.level_set(y, [0.0, np.pi / 2])
    np.testing.assert_allclose(ends, [[np.sqrt(2 * y)] * 2, [np.sqrt(y), -np.sqrt(y)]])
    points = world.level_set(y, np.linspace(0, 2 * np.pi, 50))
    u, v = (points @ np.array([[1, 1], [1, -1]]) / np.sqrt(2)).T
    angle = np.arctan2(v, u)
    np.testing.assert_allclose(np.hypot(u, v), np.sqrt(y / (np.cos(angle) ** 2 / 4 + np.sin(angle) ** 2 / 2)))
    solid = LevelSets(3)
    down, around = np.meshgrid(np.linspace(0.1, 3, 9), np.linspace(-3, 3, 11))
    surface = solid.level_set(y, around.ravel(), down.ravel())
    np.testing.assert_allclose(solid.level_of(surface), y)
    np.testing.assert_allclose(solid.angles_of(surface), np.column_stack([around.ravel(), down.ravel()]), atol=1e-9)


def test_the_last_points_are_held_out_and_a_longer_world_begins_with_the_shorter() -> None:
    assert isinstance(usual_split(MANY), OwnSplit)
    parts = usual_split(MANY).parts(MANY)
    assert sorted(parts.held_out) == list(range(199_000, 200_000))
    short = LevelSets(count=300, tested=10)
    np.testing.assert_array_equal(short.observe(np.arange(300)), MANY.observe(np.arange(300)))
    np.testing.assert_array_equal(short.target_of([299]), MANY.target_of([299]))


def test_the_targets_are_three_numbers() -> None:
    assert [target.kind for target in targets_of(MANY)] == ["number"] * 3
    assert target_values(MANY, [0, 1]).dtype == np.float32


def test_a_view_that_changes_observations_hides_the_property() -> None:
    images = Augmented(MiniSprites(), flip="both")
    assert true_property(images, images.observe([0])) is None


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"dimension": 4}, "ellipses .2. or ellipsoids .3."),
        ({"tested": 10, "count": 10}, "leave some to train on"),
        ({"noise": -1.0}, "noise of level sets is -1.0"),
        ({"half_width": 0.0}, "half_width of level sets is 0.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        LevelSets(**settings)
    with pytest.raises(ValueError, match="at least 0; got -1"):
        LevelSets().level_set(-1, 0.0)
    with pytest.raises(ValueError, match="no polar angle"):
        LevelSets().level_set(1, 0.0, 1.0)
