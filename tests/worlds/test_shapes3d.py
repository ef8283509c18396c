"""The shapes3d world against its factors, against a second renderer that shares only its numbers, and against real
images of the original."""

import dataclasses

import numpy as np
import pytest
from PIL import Image

from polariscope.worlds.renderers import shapes3d as scene
from polariscope.worlds.renderers.shapes3d import FLOOR, OBJECT, SKY, SKYLIGHT, WALL, Shapes3D, hue_colours
from polariscope.worlds.world import World, worlds

CUBE, CYLINDER, SPHERE, CAPSULE = range(4)
GEOMETRIES = np.stack(np.meshgrid(range(8), range(4), range(15), indexing="ij"), -1).reshape(-1, 3)


@pytest.fixture(scope="module")
def world():
    return Shapes3D()


@pytest.fixture(scope="module")
def layers(world):
    """All geometries: ``(scale, shape, orientation, layer, row, column)``."""
    return world.layers(with_hues(0, 0, 0)).reshape(8, 4, 15, 5, 64, 64)


def with_hues(floor, wall, thing):
    """The factors of every geometry in these hues."""
    return np.concatenate([np.tile([floor, wall, thing], (len(GEOMETRIES), 1)), GEOMETRIES], axis=1)


def test_the_grid_is_the_one_of_the_original(world):
    assert isinstance(world, World)
    assert worlds.build({"name": "shapes3d", "size": 32}) == Shapes3D(size=32)
    assert len(world) == 480_000
    assert world.grid.names == ("floor_hue", "wall_hue", "object_hue", "scale", "shape", "orientation")
    assert [factor.kind for factor in world.factors] == 3 * ["periodic"] + ["ordinal", "categorical", "ordinal"]
    floor, wall, thing, scale, shape, orientation = 7, 1, 9, 5, 3, 11
    index = ((((floor * 10 + wall) * 10 + thing) * 8 + scale) * 4 + shape) * 15 + orientation
    assert world.factors_of([index]).tolist() == [[floor, wall, thing, scale, shape, orientation]]
    np.testing.assert_allclose(world.factors[1].values, np.arange(10) / 10)
    np.testing.assert_allclose(world.factors[3].values, np.linspace(0.75, 1.25, 8))
    np.testing.assert_allclose(world.factors[5].values, np.linspace(-30, 30, 15))


@pytest.mark.parametrize("size", [8, 15, 32, 64])
def test_images_are_bytes_of_the_promised_shape(size):
    world = Shapes3D(size=size)
    images = world.observe([0, 123_456, 479_999, 7 * 4 * 15 - 8])
    assert images.dtype == np.uint8
    assert images.shape == (4, *world.shape) == (4, 3, size, size)
    assert images.max() == 255
    assert images.min() == 0
    assert world.render(np.zeros((0, 6), int)).shape == (0, 3, size, size)


def test_an_image_is_a_function_of_its_number():
    world = Shapes3D(size=32)
    index = np.random.default_rng(0).integers(0, len(world), 300)
    images = world.observe(index)
    fresh = Shapes3D(size=32)
    np.testing.assert_array_equal(fresh.observe(index[:1]), images[:1])
    np.testing.assert_array_equal(fresh.observe(index[::-1]), images[::-1])
    np.testing.assert_array_equal(world.observe(np.repeat(index[5], 200)), np.repeat(images[5:6], 200, axis=0))


@pytest.mark.spec("001a/DS-03")
@pytest.mark.parametrize("layer", [FLOOR, WALL, OBJECT])
def test_a_hue_alters_only_the_pixels_of_its_surface(world, layer):
    generator = np.random.default_rng(layer)
    before = world.grid.sample(200, generator)
    after = before.copy()
    after[:, layer] = (after[:, layer] + generator.integers(1, 10, len(after))) % 10
    changed = (world.render(before) != world.render(after)).any(1)
    layers = world.layers(before)[:, : SKYLIGHT + 1]
    weight, others = layers[:, layer], np.delete(layers, layer, axis=1)
    alone = (weight > 0.1) & (others == 0).all(1)
    assert not changed[weight == 0].any()
    assert changed[alone].all()
    assert (weight == 0).any((1, 2)).all()
    assert alone.any((1, 2)).all()


def test_every_hue_can_be_read_at_a_fixed_place(layers):
    """What makes the colours of Shapes3D easy to generalise over (Spec 001a, section 8.7)."""
    coverage = layers.reshape(480, 5, 64, 64)
    for layer, row, column in ((FLOOR, 61, 2), (WALL, 27, 2), (OBJECT, 47, 32)):
        assert coverage[:, layer, row, column].min() > 0.3
        others = [other for other in (FLOOR, WALL, OBJECT, SKYLIGHT) if other != layer]
        assert np.abs(coverage[:, others, row, column]).max() < 1e-5


@pytest.mark.spec("003/F3-051")
def test_hue_is_cyclic(world):
    hues = np.linspace(-1, 2, 61)
    np.testing.assert_allclose(hue_colours(hues + 1), hue_colours(hues), atol=1e-6)
    circle = hue_colours(np.arange(10) / 10)
    np.testing.assert_allclose(np.abs(circle - np.roll(circle, -1, axis=0)).sum(1), 0.6, atol=1e-6)
    factors = np.tile([0, 0, 0, 3, SPHERE, 7], (10, 1))
    factors[:, WALL] = np.arange(10)
    images = world.render(factors).astype(float)
    step = np.abs(images - np.roll(images, -1, axis=0)).mean((1, 2, 3))
    across = np.abs(images - np.roll(images, -5, axis=0)).mean((1, 2, 3))
    assert step[9] <= step[:9].max()  # from hue 9 on to hue 0 is a step like any other
    assert step.max() < 1.3 * step.min()
    assert across.min() > 2 * step.max()


def test_the_object_grows_with_scale(layers):
    area = (layers[:, :, :, OBJECT] > 0.3).sum((-1, -2))
    assert (np.diff(area, axis=0) > 0).all()
    height = (layers[:, :, :, OBJECT] > 0.3).any(-1).sum(-1)
    np.testing.assert_allclose(height[7] / height[0], 5 / 3, rtol=0.1)


def test_shapes_differ_in_their_silhouettes(layers):
    silhouette = layers[:, :, :, OBJECT] > 0.3
    for one in range(4):
        for other in range(one):
            assert ((silhouette[:, one] ^ silhouette[:, other]).sum((-1, -2)) > 10).all()
    # A ball looks the same from everywhere, a cube does not.
    assert (silhouette[:, SPHERE] ^ silhouette[:, SPHERE, :1]).sum((-1, -2)).max() <= 4
    assert (silhouette[:, CUBE, 0] ^ silhouette[:, CUBE, 7]).sum((-1, -2)).min() > 20


def test_opposite_orientations_are_mirror_images_but_for_the_light(layers, world):
    sky = layers[..., SKYLIGHT, :, :]
    np.testing.assert_allclose(sky, sky[:, :, ::-1, :, ::-1], atol=0.02)
    factors = with_hues(2, 4, 8)
    images = world.render(factors).reshape(8, 4, 15, 3, 64, 64).astype(int)
    left, right = images[:, :, :7], images[:, :, :7:-1]
    assert np.abs(left - right).mean((-1, -2, -3)).min() > 1
    # The light comes from the left and stays there: the floor is brighter at the left from everywhere.
    floor = layers[..., FLOOR, -1, :]
    assert (floor[..., 2] > 1.1 * floor[..., -3]).all()


def test_the_shadow_falls_to_the_right_of_the_object(layers):
    """On the real images the shadow has 0.25 to 0.4 of the light around it."""
    floor, thing = layers[..., FLOOR, :, :], layers[..., OBJECT, :, :]
    lit = floor.max((0, 1))  # every place that is ever floor lies in the light in some image
    shadow = (floor > 0) & (thing == 0) & (floor < 0.6 * lit)
    columns = (thing > 0.3).any(-2)
    beyond_left = ~np.maximum.accumulate(columns, -1)
    beyond_right = ~np.maximum.accumulate(columns[..., ::-1], -1)[..., ::-1]
    left, right = ((shadow & beyond[..., None, :]).sum((-1, -2)) for beyond in (beyond_left, beyond_right))
    assert (right[2:] > left[2:]).all()  # small balls hide most of theirs
    assert right.sum() > 100 * left.sum()
    darkest = np.where(shadow, floor / np.maximum(lit, 1e-6), 1).min((-1, -2))
    assert darkest.min() > 0.2
    assert 0.25 < np.median(darkest) < 0.4


def test_the_sky_is_exact_where_there_is_only_sky(world):
    factors = world.grid.sample(300, 1)
    layers, images = world.layers(factors), world.render(factors)
    only = (np.delete(layers, SKYLIGHT, axis=1) == 0).all(1)
    assert only.mean() > 0.15
    np.testing.assert_array_equal(images.transpose(0, 2, 3, 1)[only], np.broadcast_to(SKY, (only.sum(), 3)))
    assert only[:, :3].all()


# A second renderer, for one image: marches along rays by signed distances, takes normals from differences, paints with
# colours at once and lets Pillow shrink the picture. It shares the numbers of the scene, and nothing else.


def box_distance(offset):
    return np.linalg.norm(np.maximum(offset, 0), axis=-1) + np.minimum(offset.max(-1), 0)


def signed_distance(shape, point):
    x, y, z = np.moveaxis(point, -1, 0)
    axis = np.hypot(x, y)
    if shape == CUBE:
        return box_distance(np.stack([abs(x), abs(y), abs(z - scene.CUBE_HALF)], -1) - scene.CUBE_HALF)
    if shape == CYLINDER:
        half = scene.CYLINDER_HEIGHT / 2
        return box_distance(np.stack([axis - scene.CYLINDER_RADIUS, abs(z - half) - half], -1))
    if shape == SPHERE:
        return np.hypot(axis, z - scene.SPHERE_RADIUS) - scene.SPHERE_RADIUS
    low = scene.CAPSULE_RADIUS
    return np.hypot(axis, z - np.clip(z, low, low + scene.CAPSULE_LENGTH)) - low


def march(distance, start, direction):
    """How far rays of unit length go until they touch; infinite if they do not."""
    start = np.broadcast_to(start, direction.shape)
    gone, moving = np.zeros(len(direction)), np.arange(len(direction))
    while len(moving):  # rays along a wall creep: what has arrived or left no longer takes part
        step = distance(start[moving] + gone[moving, None] * direction[moving])
        gone[moving] += step
        moving = moving[(step > 1e-7) & (gone[moving] < 40)]
    return np.where(gone < 40, gone, np.inf)


def unit(vector):
    return vector / np.linalg.norm(vector, axis=-1, keepdims=True)


def draw(factors, size):
    floor, wall, thing, scale, shape, orientation = factors
    scale, angle = 0.75 + scale / 14, np.deg2rad(-30 + orientation * 60 / 14)
    floor, wall, thing = (hue_colours(hue / 10).astype(float) for hue in (floor, wall, thing))
    ahead, right = np.array([-np.sin(angle), np.cos(angle), 0]), np.array([np.cos(angle), np.sin(angle), 0])
    camera = np.array([0, 0, scene.CAMERA_HEIGHT]) - scene.CAMERA_DISTANCE * ahead
    fine = size * scene.SAMPLES
    slope = (np.arange(fine) + 0.5 - fine / 2) / (fine * scene.FOCAL_LENGTH)
    ray = ahead + slope[:, None] * right - slope[:, None, None] * np.array([0, 0, 1])
    ray = unit(ray.reshape(-1, 3))
    light = np.array(scene.LIGHT)

    def distance(point):
        return scale * signed_distance(shape, point / scale)

    def lit(point, normal, colour, gloss=0.0, visible=1.0):
        to_light = unit(light - point)
        beam = visible * (to_light @ [0, 0, 1]).clip(0) ** scene.FOCUS
        facing = (normal * to_light).sum(-1)
        matt = scene.AMBIENT + scene.HEADLIGHT * (-(normal @ ahead)).clip(0) + scene.SPOTLIGHT * beam * facing.clip(0)
        mirrored = (normal * unit(to_light - unit(point - camera))).sum(-1).clip(0) * (facing > 0)
        return matt[:, None] * colour + gloss * (beam * mirrored)[:, None]

    picture = np.tile(np.array(SKY) / 255, (len(ray), 1))
    to_wall = np.minimum(*((np.sign(ray[:, k]) * scene.ROOM - camera[k]) / ray[:, k] for k in (0, 1)))
    at_wall = camera + to_wall[:, None] * ray
    at_floor = camera - camera[2] / ray[:, 2:] * ray
    is_wall = (at_wall[:, 2] > scene.WALL_BOTTOM) & (at_wall[:, 2] < scene.WALL_TOP)
    is_floor = (ray[:, 2] < 0) & ~is_wall
    inward = np.where(np.abs(np.abs(at_wall) - scene.ROOM) < 1e-9, -np.sign(at_wall), 0)
    picture[is_wall] = lit(at_wall[is_wall], inward[is_wall], wall)
    point = at_floor[is_floor]
    free = np.isinf(march(distance, point, unit(light - point)))
    picture[is_floor] = lit(point, np.broadcast_to([0.0, 0, 1], point.shape), floor, visible=free)
    reached = march(distance, camera, ray)
    hit = np.isfinite(reached)
    point = camera + reached[hit, None] * ray[hit]
    steps = 1e-4 * np.eye(3)
    normal = unit(np.stack([distance(point + step) - distance(point - step) for step in steps], -1))
    picture[hit] = lit(point, normal, thing, scene.GLOSS)
    channels = (255 * picture.astype(np.float32)).reshape(fine, fine, 3).transpose(2, 0, 1)
    small = [Image.fromarray(channel).resize((size, size), Image.Resampling.BICUBIC) for channel in channels]
    return np.clip(np.stack([np.asarray(channel) for channel in small]), 0, 255)


@pytest.mark.parametrize("shape", range(4), ids=scene.SHAPES)
def test_layers_give_what_a_direct_rendering_gives(shape):
    world = Shapes3D(size=24)
    factors = world.grid.sample(4, shape + 10)
    factors[:, 4] = shape
    images = world.render(factors)
    direct = np.stack([draw(row, world.size) for row in factors])
    assert np.abs(images - direct).max() <= 1


def test_the_statistics_are_those_of_the_original(world):
    """The whole-set mean, and the mean over the images of their standard deviation, as published with disent."""
    images = world.observe(np.random.default_rng(0).integers(0, len(world), 6_000)) / np.float32(255)
    np.testing.assert_allclose(images.mean((0, 2, 3)), [0.502585, 0.578760, 0.603450], atol=0.005)
    np.testing.assert_allclose(images.std((2, 3)).mean(0), [0.294081, 0.344398, 0.366169], atol=0.005)


def test_real_images_have_siblings(world, real_data):
    """The factors of the real images are not known: colours are read off, the geometry is the one that fits best."""
    with np.load(real_data("shapes3d/shapes3d_50_from_official_notebook.npz"), allow_pickle=False) as file:
        real = file["images"].transpose(0, 3, 1, 2).astype(np.int16)
        assert file["exact_mask"][1:, 1:63].all()

    def hue(pixels):
        colour = pixels.mean((2, 3), dtype=float)
        colour /= colour.max(1, keepdims=True)
        return np.abs(colour[:, None] - hue_colours(np.arange(10) / 10)).sum(-1).argmin(1)

    hues = np.stack([hue(real[:, :, 58:63, 2:6]), hue(real[:, :, 25:30, 1:4]), hue(real[:, :, 45:50, 30:34])], 1)
    assert (hues[25:, 0] == 0).all()  # the notebook shows these for floor hue 0
    error, sibling = np.zeros((50, 480)), np.zeros_like(real)
    for number, image in enumerate(real):
        images = world.render(with_hues(*hues[number]))
        error[number] = np.abs(images - image)[:, :, 1:, 1:63].mean((1, 2, 3))
        sibling[number] = images[error[number].argmin()]
    assert error.min(1).mean() < 2
    assert error.min(1).max() < 3
    assert np.median(error, axis=1).min() > 2 * error.min(1).mean()  # a wrong geometry is told from the right one
    result = GEOMETRIES[error.argmin(1)]
    assert [len(np.unique(column)) for column in result.T] == [8, 4, 15]

    is_sky, was_sky = ((images == np.reshape(SKY, (3, 1, 1))).all(1) for images in (sibling, real))
    assert (is_sky == was_sky)[:, 1:, 1:63].mean() > 0.98
    assert (is_sky & was_sky)[:, 1:5, 1:63].all()
    np.testing.assert_allclose(sibling.mean((2, 3)), real.mean((2, 3)), atol=3)


@pytest.mark.parametrize("size", [0, 7, 257, 64.0, "64"])
def test_a_size_that_makes_no_sense_is_refused(size):
    with pytest.raises(ValueError, match="whole size of 8 to 256 pixels"):
        Shapes3D(size=size)


def test_factors_off_the_grid_are_refused(world):
    with pytest.raises(ValueError, match="'wall_hue' has positions 0 to 9; row 0 has 10"):
        world.render([[0, 10, 0, 0, 0, 0]])
    with pytest.raises(ValueError, match=r"shape \(n, 6\)"):
        world.layers([[0, 0, 0]])
    with pytest.raises(ValueError, match="integer positions"):
        world.render(np.zeros((1, 6)))
    with pytest.raises(ValueError, match="480000 observations"):
        world.observe([480_000])
    with pytest.raises(dataclasses.FrozenInstanceError):
        world.size = 32
