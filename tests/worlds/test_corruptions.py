"""Corruptions do what their constants say, picture by picture, and get worse with severity."""

import io

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from polariscope.worlds.renderers.digits import Digits
from polariscope.worlds.renderers.faces import Faces
from polariscope.worlds.views.corruptions import SUITES, Corruption, blur, corrupt, digital, noise, weather
from polariscope.worlds.views.corruptions.corruption import HELD_OUT, Draws
from polariscope.worlds.views.corruptions.resampling import blurred, gaussian_kernel, sampled, soft_noise

IMAGENET, MNIST = SUITES["imagenet-c"], SUITES["mnist-c"]
FACES = Faces(size=64).observe(np.random.default_rng(0).integers(len(Faces()), size=24))
DIGITS = Digits(count=40).observe(np.arange(40))
EVERY = [(suite, kind) for suite in SUITES.values() for kind in suite.kinds.values()]
NOT_WORSE = {"elastic": 2, "snow": 2, "saturate": 2}
"""Kinds with a severity after which pictures are nearer to the clean ones again, by their published constants."""


def draws(count: int = 1, kind: str = "some") -> Draws:
    return Draws(0, kind, np.arange(count))


def grey(value: float, side: int = 64, count: int = 8, channels: int = 3) -> np.ndarray:
    return np.full((count, channels, side, side), value, np.float32)


def named(case: object) -> str:
    return case.name if hasattr(case, "name") else str(case)


@pytest.mark.spec("001b/A-21", "001b/A-22")
def test_suites_are_the_published_ones() -> None:
    groups = {"noise": 3, "blur": 4, "weather": 4, "digital": 4, HELD_OUT: 4}
    assert [kind.group for kind in IMAGENET.kinds.values()] == [g for g, count in groups.items() for _ in range(count)]
    assert len(IMAGENET.benchmark) == len(MNIST.benchmark) == len(MNIST.kinds) == 15
    assert set(IMAGENET.kinds) - set(IMAGENET.benchmark) == {"speckle", "gaussian-blur", "spatter", "saturate"}
    assert {kind.severities for kind in IMAGENET.kinds.values()} == {5}
    assert {kind.severities for kind in MNIST.kinds.values()} == {1}
    assert {kind.group for kind in MNIST.kinds.values()} == {"noise", "blur", "geometry", "light", "drawn over"}
    for suite, kind in EVERY:
        assert suite.kinds[kind.name] is kind


@pytest.mark.spec("001b/A-21")
@pytest.mark.parametrize("kind", IMAGENET.kinds.values(), ids=named)
def test_pictures_are_further_from_the_clean_ones_with_every_severity(kind: Corruption) -> None:
    for images in (FACES, DIGITS):
        if kind.coloured and images.shape[1] != 3:
            continue
        clean = images.astype(np.float32) / 255
        worse = [corrupt(clean, kind.name, severity) for severity in range(1, 6)]
        distances = np.array([np.sqrt(((one - clean) ** 2).sum((1, 2, 3))).mean() for one in worse])
        steps = np.diff(distances) > 0
        if kind.name in NOT_WORSE:  # whatever happens there, on both sides of it they get worse
            steps = np.delete(steps, NOT_WORSE[kind.name] - 1)
        assert distances[0] > 0.01 * np.sqrt((clean**2).sum((1, 2, 3))).mean()
        assert steps.all(), distances


@pytest.mark.spec("001b/A-21", "001b/A-22")
@pytest.mark.parametrize(("suite", "kind"), EVERY, ids=named)
def test_a_picture_depends_on_its_number_and_on_no_other_picture(suite, kind) -> None:
    images = np.random.default_rng(3).integers(0, 256, (5, 3, 20, 30), dtype=np.uint8)
    options = {"severity": kind.severities, "suite": suite.name}
    result = corrupt(images, kind.name, **options, seed=4)
    assert (result.shape, result.dtype) == (images.shape, np.uint8)
    assert not np.array_equal(result, images)
    np.testing.assert_array_equal(corrupt(images[[3, 1]], kind.name, **options, seed=4, index=[3, 1]), result[[3, 1]])
    floats = corrupt(images / 255, kind.name, **options, seed=4)
    assert floats.dtype == np.float64
    assert 0 <= floats.min() <= floats.max() <= 1
    assert np.abs(floats - result / 255).max() <= 0.5 / 255 + 1e-6
    # Whatever has draws has others for other numbers and other seeds.
    same = np.repeat(images[:1], 4, 0)
    drawn = (corrupt(same, kind.name, **options) != corrupt(same, kind.name, **options, seed=1)).any()
    still = {"defocus", "zoom", "brightness", "contrast", "pixelate", "jpeg", "gaussian-blur", "saturate"}
    assert drawn == (kind.name not in still | {"scale", "stripe", "canny"})
    assert drawn == (np.ptp(corrupt(same, kind.name, **options), axis=0) > 0).any()


@pytest.mark.spec("001b/A-21")
@pytest.mark.parametrize(("suite", "kind"), EVERY, ids=named)
@pytest.mark.parametrize("shape", [(2, 8, 9), (1, 40, 12), (3, 12, 40)], ids=str)
def test_any_size_and_number_of_channels_will_do(suite, kind, shape) -> None:
    images = np.random.default_rng(3).random((2, *shape)).astype(np.float32)
    if kind.coloured and shape[0] != 3:
        with pytest.raises(ValueError, match=rf"'{kind.name}' changes colours, and pictures of {shape[0]} channel"):
            corrupt(images, kind.name, 1)
        return
    for settings in kind.settings:
        result = kind.change(images, draws(2), min(shape[1:]) / suite.size, *settings)
        assert result.shape == images.shape
        assert result.dtype == np.float32, "no corruption works in double precision"
        assert np.isfinite(result).all()
    assert corrupt(images[:0], kind.name, 1, suite=suite.name).shape == (0, *shape)


def test_blocks_make_no_difference(monkeypatch) -> None:
    images = FACES[:6]
    at_once = corrupt(images, "snow", 2)
    monkeypatch.setattr("polariscope.worlds.views.corruptions.suites._TOGETHER", 2 * images[0].size)
    np.testing.assert_array_equal(corrupt(images, "snow", 2), at_once)


# Noise


@pytest.mark.spec("001b/A-21")
@pytest.mark.parametrize("severity", [1, 2, 3, 4, 5])
def test_gaussian_noise_has_its_deviation_before_it_is_cut_off(severity) -> None:
    sd = (0.08, 0.12, 0.18, 0.26, 0.38)[severity - 1]
    assert IMAGENET.at("gaussian", severity)[1] == (sd,)
    result = noise.gaussian(grey(0.5), draws(8), 1.0, sd) - 0.5
    assert result.std() == pytest.approx(sd, rel=0.01)
    assert result.mean() == pytest.approx(0, abs=0.01 * sd)
    assert (np.abs(result) < sd).mean() == pytest.approx(0.6827, abs=0.006)


@pytest.mark.spec("001b/A-21")
def test_a_share_of_the_numbers_turns_white_or_black() -> None:
    for severity, amount in enumerate((0.03, 0.06, 0.09, 0.17, 0.27), 1):
        result = corrupt(grey(0.5), "impulse", severity)
        assert (result == 1).mean() == pytest.approx(amount / 2, rel=0.05)
        assert (result == 0).mean() == pytest.approx(amount / 2, rel=0.05)
        assert (result == 0.5).mean() == pytest.approx(1 - amount, rel=0.01)


@pytest.mark.spec("001b/A-21")
@pytest.mark.parametrize("photons", [60, 25, 12, 5, 3])
def test_shot_noise_counts_photons(photons) -> None:
    for byte in (0, 26, 102, 255):
        value = byte / 255
        counts = noise.shot(grey(value), draws(8), 1.0, photons) * photons
        assert np.allclose(counts, np.rint(counts), atol=1e-4)
        # A hundred thousand pixels: four standard errors of the mean; and the variance of a Poisson number is its mean.
        assert counts.mean() == pytest.approx(value * photons, abs=4 * np.sqrt(value * photons / counts.size))
        assert counts.var() == pytest.approx(value * photons, rel=0.03)
        assert (counts < 0.5).mean() == pytest.approx(np.exp(-value * photons), abs=0.006)


@pytest.mark.spec("001b/A-04")
@pytest.mark.parametrize("sd", [constant for (constant,) in IMAGENET.kinds["speckle"].settings])
def test_speckle_is_in_proportion_to_the_light(sd) -> None:
    assert not noise.speckle(grey(0), draws(8), 1.0, sd).any(), "black stays black"
    assert not corrupt(np.zeros((1, 3, 16, 16), np.uint8), "speckle", 5).any()
    for value in (0.2, 0.9):
        squares = (noise.speckle(grey(value), draws(8), 1.0, sd) - np.float32(value)) ** 2
        assert squares.mean() == pytest.approx(sd**2 * value**2, rel=0.02)


# Blur


@pytest.mark.spec("001b/A-21")
@pytest.mark.parametrize("kind", ["defocus", "glass", "motion", "zoom", "gaussian-blur", "elastic", "pixelate"])
def test_what_is_even_stays_even(kind) -> None:
    for side in (28, 64):
        for severity in range(1, 6):
            result = corrupt(grey(0.4, side, 2), kind, severity)
            np.testing.assert_allclose(result, 0.4, atol=1e-5)


@pytest.mark.spec("001b/A-21")
def test_a_point_out_of_focus_is_a_disk() -> None:
    point = np.zeros((1, 1, 224, 224), np.float32)
    point[0, 0, 100, 100] = 1
    rows, columns = np.indices((224, 224)) - 100
    for severity, (radius, _) in enumerate(IMAGENET.kinds["defocus"].settings, 1):
        seen = corrupt(point, "defocus", severity)[0, 0]
        distance = np.hypot(rows, columns)
        assert seen.sum() == pytest.approx(1, abs=1e-4)
        assert seen[distance <= radius - 2] == pytest.approx(1 / (np.pi * radius**2), rel=0.12)
        assert not seen[distance > radius + 3].any()
    # At a quarter of the size it is a quarter as large: to its second moment come those of the rim and of the sharing.
    kernel = blur.disk(8, 0.5, 0.25)
    steps = np.arange(len(kernel)) - len(kernel) // 2
    assert kernel.sum() == pytest.approx(1)
    assert kernel.sum(0) @ steps**2 == pytest.approx(2**2 / 4 + 0.125**2 + 0.15625, rel=0.03)


@pytest.mark.spec("001b/A-21")
def test_corruptions_are_the_same_picture_seen_smaller() -> None:
    def smaller(images: np.ndarray) -> np.ndarray:
        return images.reshape(len(images), 3, 56, 4, 56, 4).mean((3, 5))

    large = Faces(size=224).observe(np.arange(0, 200_000, 30_000)).astype(np.float32) / 255
    for kind in ("defocus", "gaussian-blur", "zoom", "brightness", "contrast", "motion", "fog"):
        small, shrunk = corrupt(smaller(large), kind, 5), smaller(corrupt(large, kind, 5))
        if kind == "fog":  # of other draws
            assert small.mean() == pytest.approx(shrunk.mean(), rel=0.2)
            continue
        changed = np.abs(shrunk - smaller(large)).mean()
        assert np.abs(small - shrunk).mean() < 0.15 * changed, kind


@pytest.mark.spec("001b/A-21")
def test_motion_smears_a_point_along_half_a_gaussian() -> None:
    point = np.zeros((64, 1, 64, 64), np.float32)
    point[:, 0, 32, 40] = 1
    seen = blur.motion(point, draws(64), 1.0, 10, 3)
    np.testing.assert_allclose(seen.sum((1, 2, 3)), 1, atol=1e-5)
    columns = seen.sum((1, 2))  # the point is seen from the left of it
    assert not columns[:, 41:].any()
    assert (np.argmax(columns, 1) == 40).all()
    angles = np.pi / 4 * (2 * draws(64).uniform("angle", 1)[:, 0] - 1)
    assert (angles.min(), angles.max()) == pytest.approx((-np.pi / 4, np.pi / 4), abs=0.1)
    taps = np.exp(-0.5 * (np.arange(21) / 3) ** 2)
    far = (np.arange(21) @ taps) / taps.sum()
    steps = np.arange(64)
    left = 40 - columns @ steps
    up = 32 - seen.sum((1, 3)) @ steps
    np.testing.assert_allclose(left, far * np.cos(angles), atol=0.02)
    np.testing.assert_allclose(up, far * np.sin(angles), atol=0.03)


@pytest.mark.spec("001b/A-21")
def test_a_zoom_is_the_mean_of_enlarged_copies() -> None:
    """A ramp about the middle is divided by each factor, and so multiplied by their mean inverse."""
    ramp = np.broadcast_to(np.linspace(0, 1, 65, dtype=np.float32), (1, 1, 65, 65))
    for severity, (most, step) in enumerate(IMAGENET.kinds["zoom"].settings, 1):
        factors = [1, *np.arange(1, most, step)]
        wanted = 0.5 + (ramp - 0.5) * np.mean(1 / np.array(factors))
        np.testing.assert_allclose(corrupt(ramp, "zoom", severity), wanted, atol=1e-5)


@pytest.mark.spec("001b/A-21")
def test_glass_moves_pixels_no_further_than_it_may() -> None:
    point = np.zeros((200, 1, 21, 21), np.float32)
    point[:, 0, 10, 10] = 1
    furthest = 2
    seen = blur.glass(point, draws(200), 1.0, 1e-3, furthest, 1) > 0.5  # so little blur is none
    rows, columns = np.nonzero(seen)[2:]
    assert set(np.unique(rows)) == set(np.unique(columns)) == set(range(8, 13))
    # A pixel is found by 25 others, each of which takes it once in 25 times.
    assert len(rows) == pytest.approx(200, abs=60)
    np.testing.assert_array_equal(blur.glass(point, draws(200), 1.0, 1e-3, furthest, 2, share=0.0), point)


def test_a_gaussian_at_the_published_size_is_scipys() -> None:
    image = np.random.default_rng(0).random((1, 1, 40, 30))
    for sd in (0.7, 2.0):
        wanted = ndimage.gaussian_filter(image[0, 0], sd, mode="nearest")
        np.testing.assert_allclose(blurred(image.astype(np.float32), sd, 1.0)[0, 0], wanted, atol=1e-5)
    # Smaller, it has the variance of the smaller Gaussian and of the sharing between two pixels, which is at most 1/4.
    for scale in (0.125, 0.3, 1.0, 2.5):
        kernel = gaussian_kernel(3.0, scale)
        steps = np.arange(len(kernel)) - len(kernel) // 2
        assert kernel @ steps**2 - (3 * scale) ** 2 == pytest.approx(0.125, abs=0.14)


def test_soft_noise_is_as_strong_at_every_size() -> None:
    for scale in (0.25, 0.5, 1.0):
        result = soft_noise(draws(20).normal("a", 1, 128, 128), 4, scale)
        assert result.std() == pytest.approx(1 / (2 * np.sqrt(np.pi) * 4), rel=0.1)


# Weather and light


@pytest.mark.spec("001b/A-21", "001b/A-22")
def test_brightness_is_added_to_the_value() -> None:
    for suite, severity in (("imagenet-c", 5), ("mnist-c", 1)):
        for channels in (1, 3):
            result = corrupt(grey(0.3, 28, 1, channels), "brightness", severity, suite=suite)
            np.testing.assert_allclose(result, 0.8, atol=1e-6)
        assert (corrupt(np.zeros((1, 3, 8, 8), np.uint8), "brightness", severity, suite=suite) == 128).all()
    colour = np.broadcast_to(np.array([0.4, 0.2, 0.1])[:, None, None], (1, 3, 8, 8))
    result = corrupt(colour, "brightness", 2)[0, :, 0, 0]  # value 0.4 becomes 0.6; hue and saturation stay
    np.testing.assert_allclose(result, [0.6, 0.3, 0.15], atol=1e-6)


def test_saturation_is_multiplied() -> None:
    colour = np.broadcast_to(np.array([0.8, 0.6, 0.4])[:, None, None], (1, 3, 8, 8))
    assert corrupt(colour, "saturate", 2)[0, :, 0, 0] == pytest.approx([0.8, 0.78, 0.76])  # a tenth of it
    assert corrupt(colour, "saturate", 3)[0, :, 0, 0] == pytest.approx([0.8, 0.4, 0], abs=1e-6)  # twice as much
    assert corrupt(grey(0.5, 8, 1), "saturate", 1)[0, :, 0, 0] == pytest.approx([0.5] * 3)
    assert corrupt(grey(0.5, 8, 1), "saturate", 4)[0, :, 0, 0] == pytest.approx([0.5, 0.45, 0.45])  # grey is a pale red
    assert not corrupt(grey(0, 8, 1), "saturate", 5).any()


@pytest.mark.spec("001b/A-21", "001b/A-22")
def test_fog_is_a_cloud_that_dims() -> None:
    images = grey(0.0, 64, 20, 1)
    images[:, :, 20:40, 20:40] = 0.8
    for severity, (strength, decay) in enumerate(IMAGENET.kinds["fog"].settings, 1):
        clouds = weather.plasma(images, Draws(0, "fog", np.arange(20)), decay)
        np.testing.assert_allclose((clouds.min((1, 2, 3)), clouds.max((1, 2, 3))), ([0] * 20, [1] * 20), atol=1e-6)
        wanted = (images + strength * clouds) * 0.8 / (0.8 + strength)
        np.testing.assert_allclose(corrupt(images, "fog", severity), wanted, atol=1e-5)
    assert not corrupt(np.zeros((1, 1, 16, 16)), "fog", 5).any(), "what has no light has none in fog"


def test_clouds_are_midpoints_of_clouds() -> None:
    """Without draws at the finest levels, points are the means of their neighbours; with them clouds are rougher."""
    clouds = [weather.plasma(np.zeros((50, 1, 64, 64)), draws(50), decay)[:, 0] for decay in (1000.0, 2.0, 1.4)]
    smooth = clouds[0]
    corners = smooth[:, ::2, ::2]
    middles = (corners + np.roll(corners, -1, 1) + np.roll(corners, -1, 2) + np.roll(corners, (-1, -1), (1, 2))) / 4
    np.testing.assert_allclose(smooth[:, 1::2, 1::2], middles, atol=1e-4)
    beside = smooth[:, ::2, 1::2]  # between two corners in its row, and two middles in its column
    means = (corners + np.roll(corners, -1, 2) + smooth[:, 1::2, 1::2] + np.roll(smooth[:, 1::2, 1::2], 1, 1)) / 4
    np.testing.assert_allclose(beside, means, atol=1e-4)
    rough = [np.abs(np.diff(cloud, axis=1)).mean() for cloud in clouds]
    assert rough[0] < rough[1] < rough[2] / 1.5


def test_snow_whitens_and_frost_covers() -> None:
    black = np.zeros((20, 3, 64, 64), np.float32)
    for severity, settings in enumerate(IMAGENET.kinds["snow"].settings, 1):
        result = corrupt(black, "snow", severity)
        assert result.min() == pytest.approx((1 - settings[-1]) / 2, abs=1e-6)  # half of white is mixed in
        assert np.ptp(result, axis=1).max() == 0, "snow has no colour"
    ice = [corrupt(black, "frost", severity) for severity in range(1, 6)]
    assert (ice[0] == 0).mean() > 0.05, "there are holes in the ice"
    np.testing.assert_allclose(ice[4] * 0.4, ice[0] * 0.75, atol=1e-5)
    assert np.allclose(corrupt(grey(0.1, count=20), "frost", 2), ice[1] + 0.08, atol=1e-5)


@pytest.mark.spec("001b/A-21")
def test_snow_falls_once_as_drawn_and_once_upside_down() -> None:
    """The layer of snow is its own half turn, and no mirror image of itself."""
    black = np.zeros((6, 1, 64, 64), np.float32)
    for settings in IMAGENET.kinds["snow"].settings:
        layer = weather.snow(black, draws(6), 64 / 224, *settings)
        np.testing.assert_allclose(layer, layer[:, :, ::-1, ::-1], atol=1e-6)
        for mirrored in (layer[:, :, ::-1], layer[..., ::-1]):
            assert np.abs(layer - mirrored).mean() > 0.1 * layer.std()


@pytest.mark.spec("001b/A-22")
def test_mud_covers_what_is_behind_it() -> None:
    for value in (0.0, 1.0):
        result = corrupt(grey(value, 28, 50, 1), "spatter", 1, suite="mnist-c")
        changed = np.abs(result - value)
        covered = changed > 1e-6
        assert 0.05 < covered.mean() < 0.5
        full = abs(63 / 255 - value)
        assert changed.max() <= full + 1e-6
        assert changed[covered].min() >= 0.8 * full - 1e-6, "a spot is nowhere paler than four fifths"
    mud, water = (corrupt(grey(0.2, count=4), "spatter", severity) for severity in (4, 1))
    assert (water >= np.float32(0.2)).all()
    thickest = mud[:, 2].min() - 20 / 255
    assert thickest == pytest.approx(0, abs=0.03)


# Digital


@pytest.mark.spec("001b/A-21")
def test_contrast_moves_towards_the_mean() -> None:
    clean = FACES / 255
    mean = clean.mean((2, 3), keepdims=True)
    for severity, factor in enumerate((0.4, 0.3, 0.2, 0.1, 0.05), 1):
        np.testing.assert_allclose(corrupt(clean, "contrast", severity), mean + factor * (clean - mean), atol=1e-5)


@pytest.mark.spec("001b/A-21")
@pytest.mark.parametrize(("severity", "factor"), [*enumerate((0.6, 0.5, 0.4, 0.3, 0.25), 1)])
def test_pixels_are_the_means_of_boxes(severity, factor) -> None:
    box = Image.Resampling.BOX
    for image, seen in zip(FACES[:3], corrupt(FACES[:3], "pixelate", severity), strict=True):
        picture = Image.fromarray(image.transpose(1, 2, 0))
        coarse = np.asarray(picture.resize((int(64 * factor),) * 2, box).resize((64, 64), box)).transpose(2, 0, 1)
        assert np.abs(coarse.astype(int) - seen).max() <= 1  # Pillow rounds twice


@pytest.mark.spec("001b/A-21")
@pytest.mark.parametrize("severity", [1, 5])
def test_compression_is_pillows(severity) -> None:
    quality = (25, 18, 15, 10, 7)[severity - 1]

    def compressed(picture: np.ndarray) -> np.ndarray:
        written = io.BytesIO()
        Image.fromarray(picture).save(written, "jpeg", quality=quality)
        return np.asarray(Image.open(written))

    np.testing.assert_array_equal(
        corrupt(FACES[:2], "jpeg", severity),
        [compressed(face.transpose(1, 2, 0)).transpose(2, 0, 1) for face in FACES[:2]],
    )
    np.testing.assert_array_equal(corrupt(DIGITS[:2], "jpeg", severity)[:, 0], [compressed(d[0]) for d in DIGITS[:2]])


@pytest.mark.spec("001b/A-21")
def test_elastic_moves_pixels_as_far_as_published() -> None:
    """Where a ramp is looked up says how far: the middle by the mean of two corners, all by waves of soft noise."""
    side, count = 57, 400
    ramp = np.broadcast_to(np.arange(side, dtype=np.float32), (count, 1, side, side))
    for strength, softness, jitter in IMAGENET.kinds["elastic"].settings[2::2]:
        unit = 244 * side / 224
        bent, waved = (
            (digital.elastic(ramp, draws(count), side / 224, *settings) - ramp)[:, 0, 14:43, 14:43]
            for settings in ((0, softness, jitter), (strength, softness, 0))
        )
        assert bent[:, 14, 14].var() == pytest.approx((unit * jitter) ** 2 / 3 / 2, rel=0.2)
        assert waved.var() == pytest.approx((unit * strength / (2 * np.sqrt(np.pi) * 244 * softness)) ** 2 / 3, rel=0.1)
    # Bent pictures stay straight: a ramp is a ramp.
    assert np.abs(np.diff(bent, n=2, axis=2)).max() < 1e-4


@pytest.mark.spec("001b/A-21")
def test_elastic_moves_three_corners_of_a_square_each_by_itself() -> None:
    """Up to the jitter and evenly, down and to the right; the fourth corner follows, by three moves together."""
    side, count, near, far = 57, 300, 28 - 19, 28 + 19  # a third of the side from the middle
    jitter = 0.05
    most = jitter * 244 * side / 224
    ramp = np.broadcast_to(np.arange(side, dtype=np.float32), (count, 1, side, side))
    for turned in (False, True):
        picture = ramp.swapaxes(2, 3) if turned else ramp
        moved = (digital.elastic(picture, draws(count), side / 224, 0, 0.01, jitter) - picture)[:, 0]
        corners = np.stack([moved[:, far, far], moved[:, far, near], moved[:, near, near]])
        assert 0.98 * most < np.abs(corners).max() < most + 1e-3
        assert corners.var(1) == pytest.approx(most**2 / 3, rel=0.15)
        assert np.abs(np.corrcoef(corners) - np.eye(3)).max() < 0.2
        assert moved[:, near, far] == pytest.approx(corners[0] - corners[1] + corners[2], abs=1e-3)


# Drawings


@pytest.mark.spec("001b/A-22")
def test_stripes_twice_are_none() -> None:
    once = corrupt(DIGITS, "stripe", 1, suite="mnist-c")
    np.testing.assert_array_equal(corrupt(once, "stripe", 1, suite="mnist-c"), DIGITS)
    np.testing.assert_array_equal(once[..., 7:21], DIGITS[..., 7:21])
    np.testing.assert_array_equal(
        once[..., [*range(7), *range(21, 28)]], 255 - DIGITS[..., [*range(7), *range(21, 28)]]
    )


@pytest.mark.spec("001b/A-22")
def test_digits_are_moved_by_three_pixels() -> None:
    padded = np.pad(DIGITS, ((0, 0), (0, 0), (3, 3), (3, 3)))
    ways = {(d, r): padded[:, :, 3 - d : 31 - d, 3 - r : 31 - r] for d in (-3, 3) for r in (-3, 3)}
    result = corrupt(DIGITS, "translate", 1, suite="mnist-c")
    fits = np.array([(result == moved).all((1, 2, 3)) for moved in ways.values()])
    assert (fits.sum(0) == 1).all()
    assert fits.any(1).all(), "each way is taken by some"
    # At twice the size it is six pixels.
    twice = np.kron(DIGITS, np.ones((1, 1, 2, 2), np.uint8))
    np.testing.assert_array_equal(corrupt(twice, "translate", 1, suite="mnist-c")[..., ::2, ::2], result)


@pytest.mark.spec("001b/A-22")
def test_dots_are_where_turning_slanting_and_shrinking_put_them() -> None:
    def centres(kind: str, row: int, column: int) -> np.ndarray:
        dots = np.zeros((40, 1, 29, 29), np.float32)
        dots[:, :, row - 1 : row + 2, column - 1 : column + 2] = 1
        seen = corrupt(dots, kind, 1, suite="mnist-c")[:, 0]
        steps = np.arange(29) - 14
        mass = seen.sum((1, 2))
        return np.stack([(seen.sum(2) @ steps) / mass, (seen.sum(1) @ steps) / mass], 1)

    for kind in ("rotate", "shear", "scale"):
        np.testing.assert_allclose(centres(kind, 14, 14), 0, atol=1e-4)  # the middle stays
    right = centres("rotate", 14, 22)  # eight to the right of it
    np.testing.assert_allclose(np.abs(right), np.tile([8 * np.sin(0.4), 8 * np.cos(0.4)], (40, 1)), atol=0.1)
    assert (right[:, 0] > 0).any()
    assert (right[:, 0] < 0).any()
    np.testing.assert_allclose(centres("scale", 14, 24), np.tile([0, 7.0], (40, 1)), atol=0.1)
    np.testing.assert_allclose(centres("shear", 14, 22), np.tile([0, 8.0], (40, 1)), atol=0.1)
    below = centres("shear", 20, 14)
    np.testing.assert_allclose(below[:, 0], 6 / np.cos(0.4), atol=0.1)
    np.testing.assert_allclose(np.abs(below[:, 1]), 6 * np.tan(0.4), atol=0.1)


@pytest.mark.spec("001b/A-22")
def test_lines_are_drawn_over_digits() -> None:
    black = np.zeros((200, 1, 28, 28), np.float32)
    dotted = corrupt(black, "dotted-line", 1, suite="mnist-c")[:, 0]
    inked = dotted.any(1)
    assert (inked == (np.arange(28) // 2 % 2 == 1)).all(), "two columns off, two on"
    starts = draws(200, "dotted-line").uniform("rows", 2, 1)
    rows = np.floor(starts[:, :, 0] * 27)
    assert (rows.min(), rows.max()) == (0, 26)
    at = rows[:, :1] + (rows[:, 1:] - rows[:, :1]) * np.arange(28) / 27
    distance = np.abs(np.arange(28)[:, None] - at[:, None])
    ink = np.clip(np.log(np.maximum(1 - distance / 2.3, 1e-9)) + 1, 0, 1)
    np.testing.assert_allclose(dotted[:, :, inked[0]], ink[:, :, inked[0]], atol=1e-4)
    zigzag = corrupt(black, "zigzag", 1, suite="mnist-c")[:, 0]
    assert not zigzag[:, :, [0, 1, 26, 27]].any()
    whole = zigzag.any(1)[:, 2:26].all(1) & (np.argmax(zigzag.max(2) > 0, 1) > 0)
    assert whole.sum() > 50
    middle = (zigzag[whole] * np.arange(28)[:, None]).sum(1)[:, 2:26] / zigzag[whole].sum(1)[:, 2:26]
    line = np.arange(24)
    for one in middle[(zigzag[whole][:, -1] == 0).all(1)]:
        teeth = one - np.polyval(np.polyfit(line, one, 1), line)
        turns = (np.diff(np.sign(np.diff(one - np.linspace(0, 1, 24) * (one[-1] - one[0])))) != 0).sum()
        assert 4 <= turns <= 10
        assert 1 < np.abs(teeth).max() < 3
    for kind in ("dotted-line", "zigzag"):
        assert (corrupt(DIGITS, kind, 1, suite="mnist-c") >= DIGITS).all()


@pytest.mark.spec("001b/A-22")
def test_outlines_are_closed_and_thin() -> None:
    square = np.zeros((3, 1, 28, 28), np.float32)
    square[0, :, 8:20, 8:20] = 1
    square[2, :, 8:20, 8:20] = 0.02  # too pale to have one
    seen = corrupt(square, "canny", 1, suite="mnist-c")
    assert set(np.unique(seen)) == {0, 1}
    assert not seen[1:].any(), "the outline of a picture is not seen in the next one"
    result = seen[0, 0] == 1
    assert not result[11:17, 11:17].any()
    assert not result[:5].any()
    assert (result.sum(0)[10:18] <= 4).all()
    assert (result.sum(0)[10:18] >= 2).all()
    assert ndimage.label(~result)[1] >= 2, "inside and outside are apart"
    # A pale line that is joined to a strong one is kept, and one that stands alone is not.
    ramp = np.zeros((2, 1, 28, 28), np.float32)
    ramp[0, 0, :, 14:] = np.linspace(0.02, 0.12, 28)[:, None]
    ramp[1, 0, :, 14:] = 0.045
    first, second = corrupt(ramp, "canny", 1, suite="mnist-c")[:, 0]
    slope = 4 * ramp[0, 0, :, 14] * 0.3989 * 2  # the steepest of a blurred edge, as Sobel counts it
    assert first[(slope > 0.12) & (slope < 0.19)].any()
    assert not second.any()


def test_places_between_pixels_are_looked_up() -> None:
    image = np.arange(20, dtype=np.float32).reshape(1, 1, 4, 5)
    rows, columns = np.array([[[1.5, -1.0, 5.0]]]), np.array([[[2.25, 0.0, 4.0]]])
    assert sampled(image, rows, columns, "nearest")[0, 0, 0] == pytest.approx([9.75, 0, 19])
    assert sampled(image, rows, columns, "mirror")[0, 0, 0] == pytest.approx([9.75, 5, 9])
    assert sampled(image, rows, columns, "zero")[0, 0, 0] == pytest.approx([9.75, 0, 0])
    assert sampled(image, np.array([[[-7.0, 14.0]]]), np.array([[[0.0]]]), "mirror")[0, 0, 0] == pytest.approx([5, 10])
    half = np.array([[[3.5]]])
    assert sampled(image, half, np.array([[[1.0]]]), "zero")[0, 0, 0] == pytest.approx([8])  # halfway out


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda: corrupt(DIGITS, "fogg"), ValueError, "imagenet-c has no corruption 'fogg': did you mean 'fog'"),
        (lambda: corrupt(DIGITS, "fog", 6), ValueError, "severity is 6: that of 'fog' in imagenet-c is from 1 to 5"),
        (lambda: corrupt(DIGITS, "fog", 0), ValueError, "severity is 0"),
        (lambda: corrupt(DIGITS, "fog", 1.5), ValueError, "severity is 1.5"),
        (
            lambda: corrupt(DIGITS, "fog", suite="mnist-c"),
            ValueError,
            "severity is 3: that of 'fog' in mnist-c is 1, the only one there is",
        ),
        (lambda: corrupt(DIGITS, "fog", suite="mnistc"), ValueError, "no suite 'mnistc' of corruptions: did you mean"),
        (
            lambda: corrupt(DIGITS, "saturate"),
            ValueError,
            r"'saturate' changes colours, .* of 1 channel\(s\) have none",
        ),
        (lambda: corrupt(DIGITS[:, 0], "fog"), ValueError, r"at least 8x8 pixels, and these are \(40, 28, 28\)"),
        (lambda: corrupt(DIGITS[..., :7], "fog"), ValueError, r"at least 8x8 pixels, and these are \(40, 1, 28, 7\)"),
        (lambda: corrupt(DIGITS.astype(int), "fog"), TypeError, "bytes or floats from 0 to 1, and these are int64"),
        (
            lambda: corrupt(DIGITS * 1.0, "fog"),
            ValueError,
            "floats are brightnesses from 0 to 1, and these go from 0 to 255",
        ),
        (lambda: corrupt(DIGITS * np.nan, "fog"), ValueError, "these go from nan to nan"),
        (lambda: corrupt(DIGITS, "fog", index=[1, 2]), ValueError, "a whole number for each of the 40 pictures"),
        (
            lambda: corrupt(DIGITS, "fog", index=np.arange(40.0)),
            ValueError,
            "a whole number for each of the 40 pictures",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(call, error, sentence) -> None:
    with pytest.raises(error, match=sentence):
        call()
