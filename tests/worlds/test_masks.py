"""Walkers have the factors that their masks show, sequences without holes, and steps that stay sparse over time."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.ndimage import center_of_mass
from scipy.stats import chisquare

from polariscope.measures.transitions import fit_transitions
from polariscope.nets.architecture import MLP
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.objectives.slow_vae import SlowVAE
from polariscope.training import RunConfig, TrainingConfig
from polariscope.training.loop import build_state, fit
from polariscope.training.run import build_model
from polariscope.worlds.mask_sequences import Clips, MaskWorld, centre_and_area, visible_runs
from polariscope.worlds.renderers.masks import Walkers, silhouettes
from polariscope.worlds.renderers.mini_sprites import MiniSprites
from polariscope.worlds.renderers.natural_increments import PUBLISHED
from polariscope.worlds.splits import RandomSplit, confined
from polariscope.worlds.views.sequences import FramePairs, SequenceSplit, transitions

WALKERS = Walkers(sequences=120)


def lengths(world) -> np.ndarray:
    return np.unique(world.last_of(np.arange(len(world))), return_counts=True)[1]


@pytest.mark.spec("001a/DS-15")
def test_factors_are_those_of_the_mask_that_is_seen() -> None:
    index = np.random.default_rng(0).choice(len(WALKERS), 200, replace=False)
    images, factors = WALKERS.observe(index)[:, 0], WALKERS.factors_of(index)
    assert set(np.unique(images)) == {0, 255}
    np.testing.assert_allclose(factors[:, :2], [center_of_mass(image) for image in images], atol=1e-4)
    np.testing.assert_array_equal(factors[:, 2], (images > 0).sum((1, 2)))


@pytest.mark.spec("001a/DS-15")
def test_every_frame_shows_enough_and_every_sequence_has_two_frames() -> None:
    for fewest in (30, 150):
        world = replace(WALKERS, fewest=fewest)
        assert (world.observe(np.arange(len(world))) > 0).sum((1, 2, 3)).min() >= fewest
        assert lengths(world).min() >= 2
        last = world.last_of(np.arange(len(world)))
        assert (np.diff(last) >= 0).all()
        assert (last >= np.arange(len(world))).all()
    # What is dropped tears sequences apart, and is not bridged: no frame is far from the one before it.
    assert len(lengths(world)) != len(lengths(WALKERS))
    assert len(lengths(WALKERS)) > 120, "some leave the window and come back"


@pytest.mark.spec("001a/DS-15")
def test_at_half_the_size_the_same_people_walk() -> None:
    """What is dropped for having too few pixels follows the size, so that the sequences stay almost the same."""
    whole, half = Walkers(sequences=20), Walkers(sequences=20, size=32)
    assert half.shape == (1, 32, 32)
    assert len(half) == pytest.approx(len(whole), rel=0.05)
    longest = min(len(whole), len(half), 200)
    y, x, area = (half.factors_of(range(longest)) / whole.factors_of(range(longest))).mean(0)
    assert (y, x) == pytest.approx((0.5, 0.5), abs=0.05)
    assert area == pytest.approx(0.25, abs=0.04)
    with pytest.raises(ValueError, match="at least 8 pixels"):
        Walkers(size=4)


def test_a_hole_starts_a_new_sequence() -> None:
    pixels = np.array([30, 31, 29, 40, 0, 50, 50, 30])
    masks = np.arange(64) < pixels[:, None]
    assert visible_runs(masks.reshape(-1, 8, 8)) == [slice(0, 2), slice(5, 8)]
    assert visible_runs(masks.reshape(-1, 8, 8), fewest=29) == [slice(0, 4), slice(5, 8)]
    assert visible_runs(masks.reshape(-1, 8, 8), fewest=51) == []


@pytest.mark.spec("001a/DS-15")
def test_steps_are_about_those_of_kitti_and_stay_sparse_over_time() -> None:
    shapes = {}
    for gap in (1, 5):
        changes = transitions(WALKERS, gap, gap)
        changes[:, 2] += np.random.default_rng(0).uniform(-0.5, 0.5, len(changes))  # areas are whole numbers
        result = [fit_transitions(column) for column in changes.T]
        shapes[gap] = [one.alpha for one in result]
        if gap == 1:
            for name, one in zip(("y", "x", "area"), result, strict=True):
                published = PUBLISHED["kitti"][name]["laplace"].scale
                assert one.alpha == pytest.approx(PUBLISHED["kitti"][name]["generalised"].alpha, abs=0.2)
                assert one.families["laplace"].scale == pytest.approx(published, rel=0.6)
    assert max(shapes[1] + shapes[5]) < 1


def test_legs_swing_and_the_rest_stays() -> None:
    one = np.ones(5)
    masks = silhouettes(32 * one, 32 * one, 40 * one, np.array([0, 0.25, 0.5, 0.75, 1]) * 2 * np.pi)
    assert (masks[:, :32] == masks[0, :32]).all(), "above the hip nothing moves"
    width = masks.any(1).sum(1)
    assert width[1] > width[0] + 8
    np.testing.assert_array_equal(masks[1], masks[3])  # the other leg is in front, and silhouettes do not tell
    np.testing.assert_array_equal(masks[1], masks[1][:, ::-1][:, np.r_[63, 0:63]])  # symmetric about column 32
    height = masks.any(2).sum(1)
    assert height == pytest.approx(40 * one, abs=1.5)


@pytest.mark.spec("001a/DS-16")
@pytest.mark.parametrize("furthest", [1, 2, 5])
def test_steps_of_pairs_are_uniform_and_end_with_the_sequence(furthest) -> None:
    view = FramePairs(WALKERS, furthest)
    index = np.arange(len(view))
    first, last = view.there(index), WALKERS.last_of(view.there(index))
    assert len(view) == len(WALKERS) - len(lengths(WALKERS)), "every frame but the last of its sequence"
    steps = np.concatenate([view.drawn(0, time).partners(index) - first for time in range(3)])
    away = np.tile(last - first >= furthest, 3)
    assert steps[away].mean() == pytest.approx((1 + furthest) / 2, abs=0.06 if furthest > 1 else 0)
    counts = np.bincount(steps[away], minlength=furthest + 1)
    assert counts[0] == 0
    assert len(counts) == furthest + 1
    assert furthest == 1 or chisquare(counts[1:]).pvalue > 1e-4
    near = np.tile(last - first, 3)
    assert (steps[~away] <= near[~away]).all()
    assert steps.min() >= 1
    if furthest == 5:  # cut off at the end, not drawn again
        one_left = steps[near == 1]
        assert (one_left == 1).all()
        assert (steps[near == 2] == 2).mean() == pytest.approx(4 / 5, abs=0.1)


@pytest.mark.spec("001a/DS-16")
def test_draws_are_those_of_seed_time_and_number() -> None:
    view, index = FramePairs(WALKERS, 20), np.arange(500)
    seen = view.drawn(0, 5).partners(index)
    np.testing.assert_array_equal(view.drawn(0, 5).partners(index[::-3]), seen[::-3])
    np.testing.assert_array_equal(view.drawn(0, 6).drawn(0, 5).partners(index), seen)
    for other in (view, view.drawn(0, 6), view.drawn(1, 5), replace(view, seed=1).drawn(0, 5)):
        assert (other.partners(index) != seen).mean() > 0.5
    np.testing.assert_array_equal(view.observe(index), WALKERS.observe(view.there(index)))
    np.testing.assert_array_equal(view.others_of(index)[0], WALKERS.observe(view.partners(index)))
    np.testing.assert_array_equal(view.other_factors_of(index), WALKERS.factors_of(view.partners(index)))


@pytest.mark.parametrize("split", [RandomSplit(0.3), SequenceSplit(0.3)], ids=str)
def test_a_part_of_the_pairs_sees_no_frame_that_starts_another(split) -> None:
    view = FramePairs(WALKERS, 3)
    parts = split.parts(view)
    assert len(np.unique(np.concatenate((parts.train, parts.held_out)))) == len(view)
    few = confined(view, parts.train)
    index = np.arange(len(few))
    np.testing.assert_array_equal(few.there(index), view.there(parts.train))
    forbidden = view.there(parts.held_out)
    seconds = np.concatenate([few.drawn(0, time).partners(index) for time in range(4)])
    assert not np.isin(seconds, forbidden).any()
    first = np.tile(few.there(index), 4)
    assert (seconds > first).all()
    assert (seconds <= WALKERS.last_of(first)).all()
    if isinstance(split, SequenceSplit):
        sequences = [set(WALKERS.last_of(view.there(part)).tolist()) for part in (parts.train, parts.held_out)]
        assert not sequences[0] & sequences[1]
        assert len(sequences[1]) == round(0.3 * len(lengths(WALKERS)))
        assert (seconds - first).max() <= 3


def test_training_sees_pairs_of_frames() -> None:
    """From the world to the objective: frames of the training part alone, a pair at a time."""
    world, training = FramePairs(Walkers(sequences=12), 5), TrainingConfig(3, 8, evaluate_every=0)
    config = RunConfig(world, SlowVAE(), AutoencoderConfig(2, MLP((4,), (4,))), training, SequenceSplit())
    seen = []

    class Watching(SlowVAE):
        def __call__(self, model, batch, step):
            seen.append((batch.x, batch.other))
            return super().__call__(model, batch, step)

    state = build_state(build_model(config), Watching(), training)
    fit(state, Watching(), world, training, split=config.split)
    assert len(seen) == 3
    assert all(x.shape == other.shape == (8, 1, 64, 64) and not x.equal(other) for x, other in seen)


def test_transitions_are_between_frames_of_one_sequence() -> None:
    class Given(MaskWorld):
        clips = Clips.of([np.eye(8, dtype=bool)[[0, 1, 2, 4], None], np.eye(8, dtype=bool)[[5, 7], None]])

    def changes(*gaps):
        return transitions(Given(), *gaps)[:, 1].tolist()

    assert changes() == [1, 1, 2, 2]
    assert changes(2, 2) == [2, 3]
    assert changes(3) == [1, 1, 2, 2, 2, 3, 4]
    with pytest.raises(ValueError, match="no sequence has frames that are 4 to 4 apart"):
        changes(4, 4)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: Walkers(sequences=0), "at least 1 sequence .* got 0"),
        (lambda: Walkers(length=1), "2 to 710 frames in the mean; got 200 of 1"),
        (lambda: Walkers(fewest=0), "at least 1 pixel; got fewest=0"),
        (lambda: len(Walkers(sequences=2, fewest=4000)), "no sequence of masks"),
        (lambda: FramePairs(WALKERS, 0), "at least 1 apart; got furthest=0"),
        (lambda: FramePairs(MiniSprites()), "world of sequences, but MiniSprites has none"),
        (lambda: SequenceSplit().parts(MiniSprites()), "needs sequences, but the world has none"),
        (lambda: SequenceSplit(1.0), "between 0 and 1"),
        (lambda: transitions(MiniSprites()), "MiniSprites has none"),
        (lambda: transitions(WALKERS, 2, 3), "the nearest first; got 3 to 2"),
        (lambda: centre_and_area(np.zeros((2, 3, 3))), "mask 0 has no pixel"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(call, sentence) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        call()
    assert "\n" not in str(caught.value)
