"""Augmentation does what a loop over images would, and draws by seed, time and number alone."""

import numpy as np
import pytest
import torch
from scipy import ndimage, stats

from polariscope.nets.architecture import MLP
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.objectives.slow_vae import SlowVAE
from polariscope.testing import check_world
from polariscope.training import RunConfig, TrainingConfig
from polariscope.training.loop import build_state, fit
from polariscope.training.run import build_model
from polariscope.worlds import ArrayWorld
from polariscope.worlds.mask_sequences import centre_and_area
from polariscope.worlds.points.synthetic import Plane
from polariscope.worlds.renderers.masks import Walkers
from polariscope.worlds.renderers.mini_sprites import MiniSprites
from polariscope.worlds.targets import Task, target_values
from polariscope.worlds.view import drawn, others_of
from polariscope.worlds.views.augmented import Augmented, Changes, changed
from polariscope.worlds.views.sequences import FramePairs

BYTES = np.random.default_rng(0).integers(0, 256, (60, 3, 9, 12), dtype=np.uint8)
WORLDS = {
    "bytes": ArrayWorld(BYTES, np.arange(60) % 5),
    "floats": ArrayWorld(np.random.default_rng(1).normal(0, 50, (60, 7, 9, 12)), floats=True),
}
EVERYTHING = {"flip": "both", "shift": 3, "crop": 7, "brightness": 0.4, "offset": 0.2}
EVERYTHING |= {"blur": 1.5, "noise": 0.1, "erase": 0.3}
SETTINGS = {
    "horizontal": {"flip": "horizontal"},
    "vertical": {"flip": "vertical"},
    "shift": {"shift": 4},
    "shift beyond the image": {"shift": 20, "fill": "edge"},
    "shift with edges": {"shift": 4, "fill": "edge"},
    "turn": {"turn": 40.0},
    "turn with edges": {"turn": 180.0, "fill": "edge"},
    "crop": {"crop": 7},
    "brightness": {"brightness": 0.5},
    "offset": {"offset": 0.3},
    "shear": {"shear": 30.0},
    "shear and turn with edges": {"shear": 60.0, "turn": 60.0, "fill": "edge"},
    "blur": {"blur": 1.5},
    "blur with edges": {"blur": 8.0, "fill": "edge"},
    "noise": {"noise": 0.2},
    "erase": {"erase": 0.5},
    "everything": EVERYTHING,
}


def turned(image: np.ndarray, angle: float, slant: float, edges: bool) -> np.ndarray:
    """One pixel at a time, as complex numbers around the middle, upwards imaginary."""
    out, (_, height, width) = np.zeros_like(image), image.shape
    for row, column in np.ndindex(height, width):
        here = complex(column - (width - 1) / 2, (height - 1) / 2 - row)
        there = (here - slant * here.imag) * np.exp(-1j * angle)
        at = np.rint([(height - 1) / 2 - there.imag, there.real + (width - 1) / 2]).astype(int)
        nearest = at.clip(0, (height - 1, width - 1))
        if edges or (at == nearest).all():
            out[:, row, column] = image[:, nearest[0], nearest[1]]
    return out


def slowly(world: Augmented, index: np.ndarray) -> np.ndarray:
    """One image and one change at a time."""
    done = world.changes(index)
    out = []
    for i, image in enumerate(world.of.observe(index)):
        if done.upside_down[i]:
            image = image[:, ::-1]
        if done.mirrored[i]:
            image = image[:, :, ::-1]
        if world.turn or world.shear:
            image = turned(image, done.turns[i], done.slants[i], world.fill == "edge")
        if world.shift:
            s = world.shift
            mode = {"mode": "edge"} if world.fill == "edge" else {}
            padded = np.pad(image, ((0, 0), (s, s), (s, s)), **mode)
            down, right = done.moves[i]
            image = padded[:, s - down : s - down + image.shape[1], s - right : s - right + image.shape[2]]
        top, left = done.corners[i]
        image = image[:, top : top + world.shape[1], left : left + world.shape[2]]
        if world.brightness or world.offset or world.blur or world.noise:
            white = 255 if image.dtype == np.uint8 else 1
            if world.blur:
                mode, radius = "nearest" if world.fill == "edge" else "constant", int(np.ceil(3 * done.blurs[i]))
                blurred = image.astype(np.float64)
                image = ndimage.gaussian_filter(blurred, done.blurs[i], mode=mode, radius=radius, axes=(1, 2))
            bright = np.float32(image) * np.float32(done.factors[i]) + np.float32(white) * np.float32(done.offsets[i])
            bright += np.float32(white) * done.noise[i]
            image = np.rint(bright).clip(0, 255).astype(np.uint8) if white == 255 else bright
        if world.erase:
            image, (top, left, high, wide) = image.copy(), done.holes[i]
            image[:, top : top + high, left : left + wide] = 0
        out.append(image)
    return np.stack(out)


@pytest.mark.parametrize("kind", WORLDS)
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
def test_all_images_at_once_are_what_a_loop_makes_of_each(kind, settings) -> None:
    world = Augmented(WORLDS[kind], **settings).drawn(3, 8)
    index = np.random.default_rng(2).permutation(60)
    result = world.observe(index)
    assert result.dtype == world.of.observe([0]).dtype
    if world.blur:  # summed in another order
        nearly = {"atol": 1} if kind == "bytes" else {"rtol": 1e-4, "atol": 1e-3}
        np.testing.assert_allclose(result.astype(float), slowly(world, index).astype(float), **nearly)
    else:
        np.testing.assert_array_equal(result, slowly(world, index))
    assert not np.array_equal(result, Augmented(WORLDS[kind], **settings).observe(index)), "something happens"
    check_world(Augmented(WORLDS[kind], **settings))


def test_draws_are_those_of_seed_time_and_number() -> None:
    view = Augmented(WORLDS["bytes"], **EVERYTHING)
    index = np.arange(60)
    seen = view.drawn(0, 5).observe(index)
    np.testing.assert_array_equal(drawn(view, 0, 5).observe(index[::-3]), seen[::-3])
    others = [view.drawn(1, 5), view.drawn(0, 6), Augmented(view.of, **EVERYTHING, seed=1).drawn(0, 5)]
    for other in others:
        assert not np.array_equal(other.observe(index), seen)
    np.testing.assert_array_equal(view.drawn(0, 6).drawn(0, 5).observe(index), seen)


def test_without_a_time_images_are_cut_out_of_the_middle() -> None:
    view = Augmented(WORLDS["bytes"], **EVERYTHING)
    assert view.shape == (3, 7, 7)
    np.testing.assert_array_equal(view.observe(np.arange(60)), BYTES[:, :, 1:8, 2:9])
    assert view.draws
    assert not Augmented(WORLDS["bytes"]).draws
    np.testing.assert_array_equal(Augmented(WORLDS["bytes"]).drawn(0, 0).observe([7]), BYTES[[7]])


def test_draws_are_spread_over_all_that_is_allowed() -> None:
    zeros = ArrayWorld(np.zeros((20_000, 4, 6), np.uint8))
    many = Augmented(zeros, "both", 2, turn=90, crop=3, brightness=0.5, offset=0.1, blur=2, noise=0.3, erase=0.5)
    done = many.drawn(0, 0).changes(np.arange(20_000))
    for flips in (done.upside_down, done.mirrored):
        assert flips.mean() == pytest.approx(0.5, abs=0.02)
    for numbers, size in zip((*done.moves.T, *done.corners.T), (5, 5, 2, 4), strict=True):
        counts = np.unique(numbers, return_counts=True)[1] / 20_000
        assert counts == pytest.approx(np.full(size, 1 / size), abs=0.02)
    for numbers, middle, reach in ((done.factors, 1, 0.5), (done.offsets, 0, 0.1), (done.turns, 0, np.pi / 2)):
        assert numbers.mean() == pytest.approx(middle, abs=0.02 * reach)
        assert np.abs(numbers - middle).max() == pytest.approx(reach, rel=0.01)
    assert abs(np.corrcoef(done.upside_down, done.mirrored)[0, 1]) < 0.03
    assert (done.blurs.min(), done.blurs.mean(), done.blurs.max()) == pytest.approx((0, 1, 2), abs=0.02)
    slants = Augmented(zeros, shear=45.0).drawn(0, 0).changes(np.arange(20_000)).slants
    assert np.degrees(np.arctan([slants.min(), slants.mean(), slants.max()])) == pytest.approx([-45, 0, 45], abs=1)
    # Noise is normal, and each pixel has its own.
    assert done.noise.shape == (20_000, 1, 3, 3)
    assert stats.kstest(done.noise.ravel() / 0.3, "norm").statistic < 0.01
    assert np.abs(np.corrcoef(done.noise.reshape(-1, 9), rowvar=False) - np.eye(9)).max() < 0.03
    # Holes lie within the image, and are as large as they may be.
    wide = Augmented(ArrayWorld(np.zeros((20_000, 40, 60), np.uint8)), erase=0.5).drawn(0, 0)
    top, left, high, across = wide.changes(np.arange(20_000)).holes.T
    assert (top.min(), left.min()) == (0, 0)
    assert ((top + high).max(), (left + across).max()) == (40, 60)
    shares = high * across / 2400
    assert (shares.mean(), shares.max()) == pytest.approx((0.25, 0.5), abs=0.02)
    assert (np.quantile(across / np.maximum(high, 1), [0.05, 0.95])[1]) > 2


@pytest.mark.parametrize(
    ("world", "settings", "sentence"),
    [
        (WORLDS["bytes"], {"crop": 10}, "crop is 10, which does not fit into images of 9x12"),
        (WORLDS["bytes"], {"crop": 0}, "pixels are at least 0 and 1"),
        (WORLDS["bytes"], {"shift": -1}, "pixels are at least 0 and 1"),
        (WORLDS["bytes"], {"brightness": 1.5}, "brightness is 1.5"),
        (WORLDS["bytes"], {"turn": 200}, "turn is 200: images can be rotated by 0 to 180 degrees"),
        (WORLDS["bytes"], {"offset": float("nan")}, "offset nan"),
        (WORLDS["bytes"], {"shear": 70}, "shear is 70: images can be sheared by 0 to 60 degrees"),
        (WORLDS["bytes"], {"blur": -1}, "blur is -1"),
        (WORLDS["bytes"], {"noise": float("nan")}, "noise nan"),
        (WORLDS["bytes"], {"erase": 1.5}, "erase is 1.5: it is a share of the image from 0 to 1"),
        (Plane(count=10), {"flip": "both"}, r"augmentation needs images, but this world has points of shape \(4,\)"),
    ],
)
def test_what_makes_no_sense_is_refused(world, settings, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        Augmented(world, **settings).drawn(0, 0).observe([0])


def test_a_quarter_turn_is_one() -> None:
    square = np.random.default_rng(0).integers(0, 256, (2, 3, 8, 8), dtype=np.uint8)
    none, same = np.zeros(2, bool), np.zeros(2)
    still, whole, nowhere = np.zeros((2, 1, 1, 1), np.float32), np.zeros((2, 4), int), np.zeros((2, 2), int)
    quarter = Changes(none, none, nowhere, nowhere, same + np.pi / 2, same + 1, same, same, same, still, whole)
    np.testing.assert_array_equal(changed(square, quarter, (3, 8, 8), "zero"), np.rot90(square, axes=(2, 3)))


@pytest.mark.spec("001a/IG-25")
@pytest.mark.parametrize("how", [{"erase": 0.3}, {"noise": 0.1}, {"shear": 20.0}, {"blur": 1.0}], ids=str)
def test_erasing_noise_shear_and_blur_change_neither_the_label_nor_the_place(how) -> None:
    plain = Task(MiniSprites(), "all", "values")
    index = np.arange(0, len(plain), 7)
    for view in (
        Augmented(plain, **how).drawn(0, 4),
        Task(Augmented(MiniSprites(), **how), "all", "values").drawn(0, 4),
    ):
        assert (view.observe(index) != plain.observe(index)).any((1, 2, 3)).mean() > 0.3
        np.testing.assert_array_equal(target_values(view, index), plain.target_of(index))
    # A symmetric spot in the middle stays there, whatever is done to it.
    spot = np.zeros((500, 1, 15, 15), np.float32)
    spot[:, :, 6:9, 6:9] = 1
    spot[:, :, 7, 7] = 2
    world = Augmented(ArrayWorld(spot, floats=True), **how).drawn(0, 1)
    result = world.observe(np.arange(500))
    assert not world.changes(np.arange(500)).moves.any()
    if "erase" in how:
        assert ((result == spot) | (result == 0)).all(), "what is left is where it was"
    elif "noise" in how:
        assert np.abs(result.mean(0) - spot[0]).max() < 0.03
    else:
        for axis in (2, 3):
            weights = result.sum(5 - axis)
            assert np.allclose((weights * np.arange(15)).sum(2) / weights.sum(2), 7, atol=1e-4)
        assert (result[:, 0, 7, 7] == result.max((1, 2, 3))).all()


@pytest.mark.spec("001a/DS-17")
def test_both_images_of_a_pair_are_changed_alike() -> None:
    walkers = FramePairs(Walkers(sequences=30), 5)
    index = np.linspace(0, len(walkers) - 1, 90).astype(int)
    view = Augmented(walkers, shift=5, turn=2.0).drawn(0, 3)
    done = view.changes(index)
    assert np.abs(done.moves).max() == 5
    assert np.degrees(np.abs(done.turns)).max() == pytest.approx(2, abs=0.2)
    (other,) = others_of(view, index)
    (plain,) = others_of(view.of, index)
    np.testing.assert_array_equal(other, changed(plain, done, view.shape, "zero"))
    assert (other != plain).any((1, 2, 3)).mean() > 0.9
    assert (view.observe(index) != view.of.observe(index)).any((1, 2, 3)).mean() > 0.9
    # Masks stay masks, and moved ones make the steps that they made before.
    assert set(np.unique(other)) == {0, 255}
    moved = Augmented(walkers, shift=5).drawn(0, 3)
    before, after = ((world.observe(index), others_of(world, index)[0]) for world in (moved.of, moved))
    whole = np.all([a.sum((1, 2, 3)) == b.sum((1, 2, 3)) for a, b in zip(before, after, strict=True)], axis=0)
    assert whole.sum() > 30
    was, now = (centre_and_area(b[whole, 0]) - centre_and_area(a[whole, 0]) for a, b in (before, after))
    np.testing.assert_allclose(was, now, atol=1e-9)
    assert (before[0][whole] != after[0][whole]).any((1, 2, 3)).mean() > 0.9


class Twins(ArrayWorld):
    """Pairs of an image with itself."""

    def others_of(self, index):
        return (self.observe(index),)


@pytest.mark.spec("001a/DS-17")
def test_training_sees_pairs_that_are_changed_alike() -> None:
    seen = []

    class Watching(SlowVAE):
        def __call__(self, model, batch, step):
            seen.append((batch.x, batch.other))
            return super().__call__(model, batch, step)

    twins = Twins(BYTES)
    world, training = Augmented(twins, "both", 3, turn=20, brightness=0.3), TrainingConfig(4, 8, evaluate_every=0)
    model = build_model(RunConfig(world, Watching(), AutoencoderConfig(2, MLP((4,), (4,))), training))
    fit(build_state(model, Watching(), training), Watching(), world, training)
    assert len(seen) == 4
    assert all(torch.equal(x, other) for x, other in seen)
    known = {image.tobytes() for image in BYTES}
    assert not any(np.rint(image.numpy() * 255).astype(np.uint8).tobytes() in known for x, _ in seen for image in x)
