"""The arm3d world: where the tip is, by kinematics worked out here; what light and noise may change; its grid."""

import numpy as np
import pytest

from polariscope.worlds.renderers import arm3d as scene
from polariscope.worlds.renderers.arm3d import Arm3D
from polariscope.worlds.splits import Composition, Extrapolation, Interpolation
from polariscope.worlds.views.pairs import Pairs

COLOUR, SHAPE, SIZE, HEIGHT, BACKGROUND, ACROSS, UP = range(7)
BLUE, SPHERE = 3, 5
ELEVATION = np.radians([10, 20, 30])


@pytest.fixture(scope="module")
def toy():
    return Arm3D(style="toy")


def spheres(world, count, seed=0):
    """Random factors of large blue spheres, whose middle can be measured."""
    factors = world.grid.sample(count, seed)
    factors[:, [COLOUR, SHAPE, SIZE]] = BLUE, SPHERE, 1
    return factors


def at_height(factors, height):
    factors = factors.copy()
    factors[:, HEIGHT] = height
    return factors


def middle(images):
    """Column and row ``(n, 2)`` of the middle of what is blue."""
    red, green, blue = images.astype(float).transpose(1, 0, 2, 3)
    weight = (blue > 2 * np.maximum(red, green)).astype(float)
    assert (weight.sum((1, 2)) > 40).all()
    places = np.arange(images.shape[-1]) + 0.5
    return np.stack([(weight.sum(1) * places).sum(1), (weight.sum(2) * places).sum(1)], 1) / weight.sum((1, 2))[:, None]


def tip(world, factors):
    """The tip in the scene: x to the right, y away from the camera, z above the foot."""
    across = np.linspace(-np.radians(80), np.radians(80), world.positions)[factors[:, ACROSS]]
    up = np.linspace(np.radians(-10), np.radians(75), world.positions)[factors[:, UP]]
    out = scene.UPPER_ARM * np.cos(up) + scene.FOREARM * np.cos(up - scene.BEND)
    height = scene.SHOULDER + scene.UPPER_ARM * np.sin(up) + scene.FOREARM * np.sin(up - scene.BEND)
    return out * np.sin(across), -out * np.cos(across), height


def test_the_grid_is_the_one_of_the_original():
    world = Arm3D()
    assert len(world) == 1_036_800
    assert world.grid.sizes == (6, 6, 2, 3, 3, 40, 40)
    assert [factor.name for factor in world.factors if factor.kind == "categorical"] == ["object_shape"]
    assert len(Arm3D(positions=5)) == 6 * 6 * 2 * 3 * 3 * 25
    assert Arm3D(size=32).observe([7]).shape == (1, 3, 32, 32)


@pytest.mark.spec("001a/DS-04")
def test_the_object_is_where_the_joints_and_the_camera_put_it(toy):
    factors = spheres(toy, 150)
    x, y, z = tip(toy, factors)
    elevation, aim = ELEVATION[factors[:, HEIGHT]], np.asarray(scene.AIM)[factors[:, HEIGHT]]
    up = (z - aim) * np.cos(elevation) + y * np.sin(elevation)
    expected = np.stack([32 + 32 * x / scene.REACH, 32 - 32 * up / scene.REACH], 1)
    np.testing.assert_allclose(toy.tip(factors), expected, atol=1e-9)
    away = np.abs(middle(toy.render(factors)) - expected)
    assert away.mean() < 0.2
    assert away.max() < 1.0  # the elbow may hide a bit of the sphere
    half = 32 * scene.SIZES[1] / scene.REACH
    everywhere = toy.tip(spheres(toy, 5000, seed=1))
    assert everywhere.min() > half  # none is cut off at the edge
    assert everywhere.max() < 64 - half


@pytest.mark.spec("001a/DS-04")
def test_a_higher_camera_sees_the_tip_lower_by_what_geometry_says(toy):
    factors = spheres(toy, 60, seed=2)
    seen = np.stack([middle(toy.render(at_height(factors, height))) for height in range(3)])
    shift = np.diff(seen, axis=0)
    assert (shift[..., 1] > 2).all()  # pixels down the picture, wherever the joints are
    assert np.abs(shift[..., 0]).max() < 0.5
    _, y, z = tip(toy, factors)
    up = [(z - aim) * np.cos(a) + y * np.sin(a) for a, aim in zip(ELEVATION, scene.AIM, strict=True)]
    np.testing.assert_allclose(shift[..., 1], -np.diff(up, axis=0) * 32 / scene.REACH, atol=1.0)
    every = np.stack([toy.tip(at_height(spheres(toy, 5000, seed=3), height))[:, 1] for height in range(3)])
    assert (np.diff(every, axis=0) > 2).all()


@pytest.mark.spec("001a/DS-04")
def test_a_real_picture_is_a_toy_one_in_another_light_with_noise(toy):
    real = Arm3D()
    index = np.random.default_rng(4).integers(0, len(real), 100)
    np.testing.assert_array_equal(real.factors_of(index), toy.factors_of(index))
    lit, flat = real.observe(index).astype(float), toy.observe(index).astype(float)
    assert (lit != flat).mean() > 0.9
    noise = scene.NOISE + 1
    assert (lit <= scene.BRIGHTEST * flat + noise).all()
    # Away from edges one number, the light, explains all three channels but for the noise.
    around = [np.roll(flat, (row, column), (2, 3)) == flat for row in (-1, 0, 1) for column in (-1, 0, 1)]
    inside = np.all(around, axis=(0, 2))
    light = (lit * flat).sum(1) / (flat * flat).sum(1)
    left_over = np.abs(lit - light[:, None] * flat).max(1)[inside & (lit < 255).all(1)]
    assert inside.mean() > 0.7
    assert left_over.max() < 2 * noise
    factors = spheres(real, 60, seed=5)
    np.testing.assert_allclose(
        middle(real.render(factors)), middle(toy.render(factors)), atol=2
    )  # its dark side drowns in noise


@pytest.mark.spec("001a/DS-04")
def test_noise_belongs_to_the_image_and_light_comes_from_the_upper_left():
    world, other = Arm3D(size=32), Arm3D(size=32, seed=1)
    index = np.random.default_rng(6).integers(0, len(world), 40)
    images = world.observe(index).astype(float)
    np.testing.assert_array_equal(world.observe(index[::-1])[::-1], images)
    noise = (images - other.observe(index)) / 2  # all but the noise of the two cancels
    assert np.abs(noise).max() <= scene.NOISE + 0.5  # of rounding
    # Two draws from 16 levels a unit apart: half their difference has variance (16² - 1) / 12 / 2.
    assert noise.var() == pytest.approx(255 / 24, rel=0.03)
    wall = images[:, :, :4].mean((0, 1, 2))
    assert (np.diff(wall[::4]) < 0).all()


@pytest.mark.parametrize("size", [32, 64])
def test_every_step_of_every_factor_changes_the_picture(size):
    world = Arm3D(size=size, style="toy")  # of real ones any two differ by their noise
    rng = np.random.default_rng(7)
    before = world.grid.sample(140, rng)
    column = np.arange(140) % 7
    before[np.arange(140), column] = rng.integers(0, np.asarray(world.grid.sizes)[column] - 1)
    after = before.copy()
    after[np.arange(140), column] += 1
    changed = (world.render(before) != world.render(after)).any((1, 2, 3))
    assert changed.all(), (before[~changed], column[~changed])


def test_shapes_and_sizes_look_different(toy):
    factors = np.tile([BLUE, 0, 1, 1, 0, 5, 20], (12, 1))
    factors[:, SHAPE], factors[:, SIZE] = np.arange(12) // 2, np.arange(12) % 2
    images = toy.render(factors).astype(float)
    blue = (images[:, 2] > 2 * images[:, :2].max(1)).sum((1, 2))
    assert (blue[1::2] > 1.5 * blue[::2]).all()  # the larger of the two
    apart = np.abs(images[1::2, None] - images[None, 1::2]).max(2).sum((2, 3))
    assert apart[~np.eye(6, dtype=bool)].min() > 500  # several pixels of full contrast


@pytest.mark.spec("001a/DS-04")
@pytest.mark.parametrize(
    ("split", "train"), [(Interpolation(), 311_040), (Extrapolation(), 311_040), (Composition(), 287_712)], ids=str
)
def test_splits_have_the_published_sizes(toy, split, train):
    assert len(split.parts(toy).train) == train


def test_the_shape_is_frozen_in_pairs():
    pairs = Pairs(Arm3D(size=32, positions=4))
    index = np.arange(0, len(pairs), 7)
    moved = (pairs.factors_of(index) != pairs.other_factors_of(index)).mean(0)
    assert moved[SHAPE] == 0
    assert (np.delete(moved, SHAPE) > 0.1).all()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [({"size": 8}, "got 8"), ({"style": "reel"}, "did you mean 'real'"), ({"positions": 41}, "got 41")],
    ids=str,
)
def test_what_cannot_be_drawn_is_refused(wrong, says):
    with pytest.raises(ValueError, match=says):
        Arm3D(**wrong)
