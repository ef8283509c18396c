"""Augmentation does what a loop over images would, and draws by seed, time and number alone."""

import numpy as np
import pytest
import torch

from polariscope.nets.architecture import MLP
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.objectives.slow_vae import SlowVAE
from polariscope.testing import check_world
from polariscope.training import RunConfig, TrainingConfig
from polariscope.training.loop import build_state, fit
from polariscope.training.run import build_model
from polariscope.worlds import ArrayWorld
from polariscope.worlds.augmented import Augmented, Changes, changed
from polariscope.worlds.mask_sequences import centre_and_area
from polariscope.worlds.masks import Walkers
from polariscope.worlds.points import Plane
from polariscope.worlds.sequences import FramePairs
from polariscope.worlds.view import drawn, others_of

BYTES = np.random.default_rng(0).integers(0, 256, (60, 3, 9, 12), dtype=np.uint8)
WORLDS = {
    "bytes": ArrayWorld(BYTES, np.arange(60) % 5),
    "floats": ArrayWorld(np.random.default_rng(1).normal(0, 50, (60, 7, 9, 12)), floats=True),
}
EVERYTHING = {"flip": "both", "shift": 3, "crop": 7, "brightness": 0.4, "offset": 0.2}
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


def turned(image: np.ndarray, angle: float, edges: bool) -> np.ndarray:
    """One pixel at a time, as complex numbers around the middle, upwards imaginary."""
    out, (_, height, width) = np.zeros_like(image), image.shape
    for row, column in np.ndindex(height, width):
        there = complex(column - (width - 1) / 2, (height - 1) / 2 - row) * np.exp(-1j * angle)
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
        if world.turn:
            image = turned(image, done.turns[i], world.fill == "edge")
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
    zeros = ArrayWorld(np.zeros((20_000, 4, 6), np.uint8))
    many = Augmented(zeros, "both", 2, turn=90, crop=3, brightness=0.5, offset=0.1)
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


def test_a_quarter_turn_is_one() -> None:
    square = np.random.default_rng(0).integers(0, 256, (2, 3, 8, 8), dtype=np.uint8)
    none, same = np.zeros(2, bool), np.zeros(2)
    quarter = Changes(none, none, np.zeros((2, 2), int), np.zeros((2, 2), int), same + np.pi / 2, same + 1, same)
    np.testing.assert_array_equal(changed(square, quarter, (3, 8, 8), "zero"), np.rot90(square, axes=(2, 3)))


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
