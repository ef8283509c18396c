"""The sprites world against real images of the original, against check sums of the whole set, and against geometry."""

import hashlib
import math
import pickle
import shutil

import numpy as np
import pytest

from polariscope.measures.summed_error import binary_mean_model_error
from polariscope.worlds.renderers.sprite_raster import OUTLINES, fill_fans, place
from polariscope.worlds.renderers.sprites import CachedSprites, Sprites
from polariscope.worlds.world import World, worlds

SQUARE, ELLIPSE, HEART = range(3)
VARIANTS = ("colour", "noisy", "textured")
# Of all images in order, eight pixels a byte, from a separate rendering by the same rule: the original is not at hand.
SHA256 = "c9029b6b7d9480a6149b4721b937252f2cafe54bace7150805d13af78f571f68"


def some(world, count, seed=0):
    return np.random.default_rng(seed).integers(0, len(world), count)


def test_every_real_image_comes_out_in_every_pixel(real_data):
    with np.load(real_data("dsprites/dsprites_downsampled.npz"), allow_pickle=False) as real:
        images, index, values = real["imgs"], real["original_dataset_indices"], real["latents_values"]
    world = Sprites()
    assert len(images) == 46_080
    for factor, position, value in zip(world.factors, world.factors_of(index).T, values.T, strict=True):
        np.testing.assert_allclose(np.asarray(factor.values)[position], value, rtol=0, atol=1e-12)
    different = [
        number
        for part in np.array_split(np.arange(len(index)), 12)
        for number in index[part][(world.observe(index[part])[:, 0] != images[part] * 255).any(axis=(1, 2))]
    ]
    assert different == []


@pytest.mark.spec("001a/DS-01", "002/X01", "000/F074", "000/F077")
def test_the_whole_set_has_the_known_check_sums_and_715706_distinct_images(monkeypatch):
    """In one pass: what is rendered to find the distinct images is summed up on its way."""
    digest, white, pack = hashlib.sha256(), np.zeros(3, np.int64), Sprites._pack
    pixels = np.zeros((40, 4096), np.int64)  # white pixels of each orientation

    def summed(world, part):
        bits = pack(world, part)
        digest.update(bits)
        white[part.start // 245_760] += np.bitwise_count(bits).sum(dtype=np.int64)
        orientation = part.start // 1024 % 40 + np.arange(len(bits) // 1024)
        pixels[orientation] += np.unpackbits(bits, axis=1).reshape(-1, 1024, 4096).sum(axis=1, dtype=np.uint16)
        return bits

    monkeypatch.setattr(Sprites, "_pack", summed)
    world = Sprites()
    distinct = world.distinct()
    assert white.tolist() == [53_612_877, 42_070_958, 32_645_027]
    assert white.sum() / (737_280 * 4096) == 0.042494423521889584, "the published mean pixel of dSprites"
    assert digest.hexdigest() == SHA256

    quarter = binary_mean_model_error(pixels[:10].sum(0) / 184_320)
    assert binary_mean_model_error(pixels.sum(0) / 737_280) == pytest.approx(308.107, abs=5e-4), "the mean model"
    assert quarter == pytest.approx(308.083, abs=5e-4), "that of the first quarter of the circle"

    assert len(distinct) == 715_706
    assert (np.diff(distinct) > 0).all()
    orientation = world.factors_of(distinct)[:, 2]
    assert (orientation != 39).all(), "orientation 39 repeats orientation 0"
    assert np.count_nonzero(orientation == 0) == 18_432, "the first of each duplicate is kept"


def test_distinct_keeps_one_of_each_group_of_equal_silhouettes():
    world = Sprites(size=16, unambiguous=True, variant="noisy")
    silhouettes = np.concatenate(
        [
            Sprites(size=16, unambiguous=True).observe(part).reshape(len(part), -1)
            for part in np.array_split(np.arange(len(world)), 8)
        ]
    )
    packed = np.packbits(silhouettes, axis=1).view("V32")[:, 0]
    _, first = np.unique(packed, return_index=True)
    np.testing.assert_array_equal(world.distinct(), np.sort(first))
    assert len(first) < len(world)


@pytest.mark.spec("001a/DS-01")
@pytest.mark.parametrize(("unambiguous", "total"), [(False, 737_280), (True, 184_320)])
def test_numbers_and_factors_are_in_one_to_one_correspondence(unambiguous, total):
    world = Sprites(unambiguous=unambiguous)
    assert len(world) == math.prod(world.grid.sizes) == total
    everything = np.arange(total)
    factors = world.factors_of(everything)
    np.testing.assert_array_equal(world.grid.to_index(factors), everything)
    s, c, o, x, y = factors.T
    orientations = 10 if unambiguous else 40
    np.testing.assert_array_equal((((s * 6 + c) * orientations + o) * 32 + x) * 32 + y, everything)


def test_factors_are_those_of_the_original():
    assert [(f.name, f.size, f.kind) for f in Sprites().factors] == [
        ("shape", 3, "categorical"),
        ("scale", 6, "ordinal"),
        ("orientation", 40, "periodic"),
        ("x", 32, "ordinal"),
        ("y", 32, "ordinal"),
    ]
    orientation = Sprites().factors[2].values
    assert (orientation[0], orientation[39]) == (0.0, 2 * math.pi)


@pytest.mark.spec("001a/DS-02")
def test_unambiguous_orientations_are_those_below_a_quarter_turn():
    full, world = Sprites(), Sprites(unambiguous=True)
    below = [angle for angle in full.factors[2].values if angle < math.pi / 2]
    assert list(world.factors[2].values) == below
    assert len(below) == 10
    assert world.factors[2].kind == "ordinal"
    factors = world.factors_of(some(world, 500))
    np.testing.assert_array_equal(world.render(factors), full.render(factors))


@pytest.mark.spec("001a/DS-02")
@pytest.mark.parametrize(("shape", "fold"), [(SQUARE, 4), (ELLIPSE, 2), (HEART, 1)])
def test_a_shape_returns_to_itself_after_its_own_fraction_of_a_turn_only(shape, fold):
    world, generator = Sprites(), np.random.default_rng(7)
    scale, x, y = generator.uniform([[0.8], [0], [0]], [[1], [1], [1]], (3, 400))
    angle = generator.uniform(0.2, 0.6, 400)  # away from where an ellipse lies along the axes
    start = world.render_continuous(shape, scale, angle, x, y)
    for quarter in (1, 2, 3, 4):
        turned = world.render_continuous(shape, scale, angle + quarter * math.pi / 2, x, y)
        changed = np.count_nonzero(turned != start, axis=(1, 2, 3))
        if quarter * fold % 4 == 0:
            # Corners that lie on a rounding tie may snap to the neighbouring 1/256 pixel.
            assert (changed == 0).mean() > 0.98
            assert changed.max() <= 2
        else:
            assert changed.min() > 10


@pytest.mark.spec("001a/DS-02")
def test_sprites_turn_counter_clockwise_move_right_and_down_and_grow():
    world, centre = Sprites(), (0.5, 0.5)

    def moments(*factors):
        mask = world.render_continuous(*factors)[0, 0] > 0
        row, column = np.nonzero(mask)
        return mask.sum(), column.mean() + 0.5, row.mean() + 0.5, np.cov(column, -row)[0, 1]

    area, x, y, _ = moments(SQUARE, 1.0, 0.0, *centre)
    assert area == 20**2, "pixel centres within 9.6 of 32 are 22.5 to 41.5"
    assert (x, y) == (32, 32)
    assert moments(ELLIPSE, 1.0, math.pi / 6, *centre)[3] > 1, "the long axis points up to the right"
    assert moments(ELLIPSE, 1.0, -math.pi / 6, *centre)[3] < -1
    assert moments(SQUARE, 1.0, 0.0, 1.0, 0.25)[1:3] == pytest.approx((48, 24), abs=0.5)
    half = moments(ELLIPSE, 0.5, 0.3, *centre)[0] / moments(ELLIPSE, 1.0, 0.3, *centre)[0]
    assert half == pytest.approx(0.25, abs=0.02)
    mask = world.render_continuous(HEART, 1.0, 0.0, *centre)[0, 0] > 0
    widths = mask.sum(axis=1)[mask.any(axis=1)]
    assert widths[-1] <= 3 < widths[3], "the tip points down"


def test_continuous_factors_on_the_grid_give_the_images_of_the_grid():
    world = Sprites()
    index = some(world, 300)
    values = [np.asarray(f.values)[k] for f, k in zip(world.factors, world.factors_of(index).T, strict=True)]
    images = world.render_continuous(values[0].astype(int) - 1, *values[1:])
    np.testing.assert_array_equal(images, world.observe(index))


def covers(triangles, size):
    """Whether any triangle (corners in subpixels, y up) covers a pixel centre: exact half-plane tests, one by one."""
    centre = np.arange(size) * 256 + 128
    x, y = np.meshgrid(centre, centre[::-1])
    out = np.zeros((size, size), bool)
    for corners in triangles:
        twice_area = np.linalg.det(np.c_[corners, np.ones(3)]).round()
        if twice_area == 0:
            continue
        inside = np.ones((size, size), bool)
        for (x0, y0), (x1, y1) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
            dx, dy = np.sign(twice_area) * (x1 - x0), np.sign(twice_area) * (y1 - y0)
            side = dx * (y - y0) - dy * (x - x0)
            inside &= (side > 0) | ((side == 0) & ((dy < 0) | ((dy == 0) & (dx > 0))))
        out |= inside
    return out


def fan(x, y):
    corners = np.c_[x, y].astype(np.int64)
    return [np.array([corners[0], corners[k], corners[k + 1]]) for k in range(1, len(corners) - 2)]


@pytest.mark.parametrize("corners", [3, 4, 5, 9, 14])
@pytest.mark.parametrize("step", [1, 128], ids=["anywhere", "on pixel centres and borders"])
def test_fans_of_tangled_polygons_cover_the_union_of_their_triangles(corners, step):
    size = 12
    points = np.random.default_rng(corners).integers(-2 * 256, (size + 2) * 256, (30, corners, 2)) // step * step
    points = np.concatenate([points, points[:, :1]], axis=1).astype(np.float64)
    masks = fill_fans(points[..., 0], points[..., 1], size)
    for mask, polygon in zip(masks, points, strict=True):
        np.testing.assert_array_equal(mask == 255, covers(fan(*polygon.T), size))


@pytest.mark.parametrize("index", [541563, 564379, 631336, 636504, 638408])
def test_hearts_whose_fan_folds_over_have_the_pixel_that_parity_would_lose(index):
    world = Sprites()
    shape, *rest = (f.values[k] for f, k in zip(world.factors, world.factors_of([index])[0], strict=True))
    x, y = place(OUTLINES[int(shape) - 1], *(np.array([value]) for value in rest), size=64)
    mask = world.observe([index])[0, 0] == 255
    parity = np.logical_xor.reduce([covers([triangle], 64) for triangle in fan(x[0], y[0])])
    np.testing.assert_array_equal(mask, covers(fan(x[0], y[0]), 64))
    assert np.count_nonzero(mask & ~parity) == 1
    assert np.count_nonzero(parity & ~mask) == 0


@pytest.mark.parametrize("size", [9, 16, 32, 100, 128])
def test_other_sizes_show_the_same_geometry(size):
    index = some(Sprites(), 200)
    images, original = Sprites(size=size).observe(index), Sprites().observe(index)
    assert images.shape == (200, 1, size, size)
    assert set(np.unique(images)) == {0, 255}
    for other_axis in (2, 3):
        centre, expected = (
            m.sum(axis=(1, other_axis)) @ (np.arange(m.shape[2]) + 0.5) / m.sum(axis=(1, 2, 3)) / m.shape[2]
            for m in (images / 255, original / 255)
        )
        off = np.abs(centre - expected) * min(size, 64)  # in pixels of the coarser canvas
        assert off.max() < 1
        assert off.mean() < 0.25
    share = images.mean() / original.mean()
    assert share == pytest.approx(1, abs=0.05 if size >= 16 else 0.1)


@pytest.mark.spec("002/X01")
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_never_changes_an_observation_whatever_stands_beside_it(variant):
    world = Sprites(variant=variant)
    index = some(world, 300)
    images = world.observe(index)
    assert images.shape == (300, 3, 64, 64)
    assert images.dtype == np.uint8
    np.testing.assert_array_equal(world.observe(index[::-1])[::-1], images)
    np.testing.assert_array_equal(world.observe(index[137:138]), images[137:138])
    np.testing.assert_array_equal(world.render(world.factors_of(index)), images)
    other = Sprites(variant=variant, seed=1).observe(index)
    assert (other != images).any(axis=(1, 2, 3)).all(), "another seed draws anew"


@pytest.mark.spec("002/X01")
def test_colours_lie_between_half_and_full_and_differ_from_image_to_image():
    index = some(Sprites(), 2000)
    mask = np.broadcast_to(Sprites().observe(index) == 255, (2000, 3, 64, 64))
    images = Sprites(variant="colour").observe(index)
    assert (images[~mask] == 0).all()
    colour = images.max(axis=(2, 3))
    assert (np.where(mask, images, colour[:, :, None, None]) == colour[:, :, None, None]).all(), "one colour a sprite"
    assert (colour.min(), colour.max()) == (128, 255)
    assert colour.mean(axis=0) == pytest.approx([191.5] * 3, abs=3)
    assert np.abs(np.corrcoef(colour.T) - np.eye(3)).max() < 0.1, "channels are independent"
    assert np.abs(np.corrcoef(colour[1:, 0], colour[:-1, 0])[0, 1]) < 0.1
    neighbours = Sprites(variant="colour").observe(np.arange(1000)).max(axis=(2, 3)).astype(float)
    assert np.abs(np.corrcoef(neighbours[1:, 0], neighbours[:-1, 0])[0, 1]) < 0.1, "and so are neighbouring numbers"


@pytest.mark.spec("002/X01")
def test_noise_is_uniform_and_independent_beside_the_sprite_and_white_on_it():
    index = some(Sprites(), 200)
    mask = np.broadcast_to(Sprites().observe(index) == 255, (200, 3, 64, 64))
    images = Sprites(variant="noisy").observe(index)
    assert (images[mask] == 255).all()
    noise = images[~mask]
    expected = noise.size / 256
    chi_square = ((np.bincount(noise, minlength=256) - expected) ** 2).sum() / expected
    assert chi_square < 255 + 5 * math.sqrt(2 * 255)
    background = np.where(mask, 127.5, images) - 127.5
    for shifted in (
        np.roll(background, 1, 3),
        np.roll(background, 1, 2),
        np.roll(background, 1, 1),
        np.roll(background, 1, 0),
    ):
        assert abs((background * shifted).mean()) / background.var() < 5 / math.sqrt(background.size)


@pytest.mark.spec("002/X01")
def test_textures_are_smooth_coloured_and_inverted_on_the_sprite():
    index = some(Sprites(), 300)
    mask = np.broadcast_to(Sprites().observe(index) == 255, (300, 3, 64, 64))
    images = Sprites(variant="textured").observe(index).astype(int)
    background = np.where(mask, 255 - images, images)  # undo the inversion: the edge of the sprite must vanish
    steps = np.abs(np.diff(background, axis=3))
    assert steps.max() < 40
    assert steps.mean() < 4
    at_the_edge = np.abs(np.diff(images, axis=3))[np.diff(mask, axis=3)]
    assert at_the_edge.mean() > 20
    assert background.std(axis=(2, 3)).mean() > 5, "a texture, no flat colour"
    assert background.mean(axis=(2, 3)).std() > 25, "coloured at random"
    assert background.max() - background.min() > 200


def test_continuous_images_of_a_variant_draw_from_the_numbers_given():
    world = Sprites(variant="noisy", size=16)
    given = world.render_continuous([0, 1], 0.9, 0.1, 0.5, 0.5, index=[5, 9])
    alone = world.render_continuous(1, 0.9, 0.1, 0.5, 0.5, index=9)
    np.testing.assert_array_equal(given[1:], alone)
    assert (world.render_continuous(1, 0.9, 0.1, 0.5, 0.5) != alone).any()


@pytest.mark.parametrize(("size", "variant"), [(9, "plain"), (16, "textured")])
def test_a_cache_shows_the_same_world(tmp_path, size, variant):
    world = Sprites(size=size, variant=variant, unambiguous=True)
    cached = world.cache(tmp_path / "new folder" / "bits.npy")
    assert isinstance(cached, World)
    assert [f.name for f in (tmp_path / "new folder").iterdir()] == ["bits.npy"], "no unfinished file stays"
    assert (len(cached), cached.shape, cached.factors) == (len(world), world.shape, world.factors)
    index = some(world, 400)
    np.testing.assert_array_equal(cached.observe(index), world.observe(index))
    np.testing.assert_array_equal(cached.factors_of(index), world.factors_of(index))
    np.testing.assert_array_equal(cached.distinct(), world.distinct())
    sent = pickle.dumps(cached)
    assert len(sent) < 10_000
    np.testing.assert_array_equal(pickle.loads(sent).observe(index), world.observe(index))
    with pytest.raises(ValueError, match="index out of range"):
        cached.observe([len(world)])
    before = cached.path.stat().st_mtime_ns
    Sprites(size=size, variant="colour", unambiguous=True).cache(cached.path)
    assert cached.path.stat().st_mtime_ns == before, "a file that is there is used, not rendered again"


def test_an_interrupted_cache_leaves_nothing_behind(tmp_path, monkeypatch):
    def interrupt(self, part):
        raise KeyboardInterrupt

    monkeypatch.setattr(Sprites, "_pack", interrupt)
    with pytest.raises(KeyboardInterrupt):
        Sprites(size=8).cache(tmp_path / "bits.npy")
    assert list(tmp_path.iterdir()) == []


def truncated(path):
    path.write_bytes(path.read_bytes()[:-1])


def zeroed(path):
    np.save(path, np.zeros_like(np.load(path, allow_pickle=False)))


def halved(path):
    np.save(path, np.load(path, allow_pickle=False)[::2])


def emptied(path):
    path.write_bytes(b"")


def text(path):
    path.write_text("no array at all")


@pytest.fixture(scope="module")
def small_cache(tmp_path_factory):
    return Sprites(size=8, unambiguous=True).cache(tmp_path_factory.mktemp("small") / "bits.npy")


@pytest.mark.parametrize("spoil", [truncated, zeroed, halved, emptied, text], ids=lambda f: f.__name__)
def test_a_wrong_cache_file_is_refused_in_a_sentence(tmp_path, small_cache, spoil):
    world, path = small_cache.world, tmp_path / "bits.npy"
    shutil.copy(small_cache.path, path)
    assert len(world.cache(path)) == len(world)
    spoil(path)
    with pytest.raises(ValueError, match=r"bits\.npy is no cache of these sprites \(.+\): delete it") as problem:
        world.cache(path)
    assert "\n" not in str(problem.value)
    with pytest.raises(ValueError, match="is no cache of these sprites"):
        CachedSprites(world, tmp_path)


def test_bad_input_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match="8 to 1024 pixels a side, got 4"):
        Sprites(size=4)
    with pytest.raises(ValueError, match="did you mean 'noisy'"):
        Sprites(variant="noise")
    world = Sprites(size=16)
    with pytest.raises(ValueError, match="'scale' has positions 0 to 5"):
        world.render([[0, 6, 0, 0, 0]])
    with pytest.raises(ValueError, match="index out of range"):
        world.observe([737_280])
    good = {"shape": 0, "scale": 1.0, "orientation": 0.0, "x": 0.5, "y": 0.5}
    for name, bad, sentence in [
        ("shape", 3, "shape needs to be an integer: 0 for a square"),
        ("shape", 0.0, "shape needs to be an integer"),
        ("scale", 0.0, "scale needs to lie above 0 and up to 16, got 0"),
        ("scale", math.inf, "scale needs to lie above 0"),
        ("orientation", math.nan, "orientation needs to be an angle in radians, got nan"),
        ("x", 1.01, r"x needs to lie in \[0, 1\], got 1.01"),
        ("y", math.nan, r"y needs to lie in \[0, 1\]"),
        ("index", [1, 2], r"index needs one number per image \(1\), got 2"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            world.render_continuous(**{**good, name: bad})


@pytest.mark.parametrize("variant", ["plain", *VARIANTS])
def test_no_observation_is_an_empty_batch(variant):
    world = Sprites(variant=variant)
    assert world.observe(np.array([], np.int64)).shape == (0, *world.shape)


def test_sprites_are_registered_and_described():
    world = Sprites(size=32, variant="textured", unambiguous=True, seed=3)
    assert worlds.describe(world) == {
        "name": "sprites",
        "size": 32,
        "variant": "textured",
        "unambiguous": True,
        "seed": 3,
    }
    assert worlds.build(worlds.describe(world)) == world
