"""Augmentation does what a loop over images would, and draws by seed, time and number alone."""

import numpy as np
import pytest

from polariscope.testing import check_world
from polariscope.worlds import ArrayWorld
from polariscope.worlds.augmented import Augmented
from polariscope.worlds.mini_sprites import MiniSprites
from polariscope.worlds.pairs import Pairs
from polariscope.worlds.points import Plane
from polariscope.worlds.view import drawn

BYTES = np.random.default_rng(0).integers(0, 256, (60, 3, 9, 12), dtype=np.uint8)
WORLDS = {
    "bytes": ArrayWorld(BYTES, np.arange(60) % 5),
    "floats": ArrayWorld(np.random.default_rng(1).normal(0, 50, (60, 7, 9, 12)), floats=True),
}
EVERYTHING = {"flip": "both", "shift": 3, "turn": 30.0, "crop": 7, "brightness": 0.4, "offset": 0.2}
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
    "everything": EVERYTHING,
}


def slowly(world: Augmented, index: np.ndarray) -> np.ndarray:
    """One image and one change at a time."""
    done = world.changes(index)
    out = []
    for i, image in enumerate(world.of.observe(index)):
        if done.upside_down[i]:
            image = image[:, ::-1]
        if done.mirrored[i]:
            image = image[:, :, ::-1]
        if world.shift:
            s = world.shift
            mode = {"mode": "edge"} if world.fill == "edge" else {}
            padded = np.pad(image, ((0, 0), (s, s), (s, s)), **mode)
            down, right = done.moves[i]
            image = padded[:, s - down : s - down + image.shape[1], s - right : s - right + image.shape[2]]
        top, left = done.corners[i]
        image = image[:, top : top + world.shape[1], left : left + world.shape[2]]
        if world.brightness or world.offset:
            white = 255 if image.dtype == np.uint8 else 1
            bright = image * np.float32(done.factors[i]) + np.float32(white) * np.float32(done.offsets[i])
            image = np.rint(bright).clip(0, 255).astype(np.uint8) if white == 255 else bright
        out.append(image)
    return np.stack(out)


@pytest.mark.parametrize("kind", WORLDS)
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
def test_all_images_at_once_are_what_a_loop_makes_of_each(kind, settings) -> None:
    world = Augmented(WORLDS[kind], **settings).drawn(3, 8)
    index = np.random.default_rng(2).permutation(60)
    found = world.observe(index)
    assert found.dtype == world.of.observe([0]).dtype
    np.testing.assert_array_equal(found, slowly(world, index))
    assert not np.array_equal(found, Augmented(WORLDS[kind], **settings).observe(index)), "something happens"
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
    many = Augmented(ArrayWorld(np.zeros((20_000, 4, 6), np.uint8)), "both", 2, crop=3, brightness=0.5, offset=0.1)
    done = many.drawn(0, 0).changes(np.arange(20_000))
    for flips in (done.upside_down, done.mirrored):
        assert flips.mean() == pytest.approx(0.5, abs=0.02)
    for numbers, size in zip((*done.moves.T, *done.corners.T), (5, 5, 2, 4), strict=True):
        counts = np.unique(numbers, return_counts=True)[1] / 20_000
        assert counts == pytest.approx(np.full(size, 1 / size), abs=0.02)
    for numbers, middle, reach in ((done.factors, 1, 0.5), (done.offsets, 0, 0.1)):
        assert numbers.mean() == pytest.approx(middle, abs=0.02 * reach)
        assert np.abs(numbers - middle).max() == pytest.approx(reach, rel=0.01)
    assert abs(np.corrcoef(done.upside_down, done.mirrored)[0, 1]) < 0.03


@pytest.mark.parametrize(
    ("world", "settings", "sentence"),
    [
        (WORLDS["bytes"], {"crop": 10}, "crop is 10, which does not fit into images of 9x12"),
        (WORLDS["bytes"], {"crop": 0}, "pixels are at least 0 and 1"),
        (WORLDS["bytes"], {"shift": -1}, "pixels are at least 0 and 1"),
        (WORLDS["bytes"], {"brightness": 1.5}, "brightness is 1.5"),
        (WORLDS["bytes"], {"turn": 200}, "turn is 200: images are turned by up to 0 to 180 degrees"),
        (WORLDS["bytes"], {"offset": float("nan")}, "offset nan"),
        (Plane(count=10), {"flip": "both"}, r"augmentation is of images, and this world has points of shape \(4,\)"),
    ],
)
def test_what_makes_no_sense_is_refused(world, settings, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        Augmented(world, **settings).drawn(0, 0).observe([0])
