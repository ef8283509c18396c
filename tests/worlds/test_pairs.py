"""Pairs change as many factors as published, by seed, time and number alone, and stay inside of their world."""

from dataclasses import dataclass, replace
from itertools import product
from math import comb

import numpy as np
import pytest
import torch
from scipy import stats

from polariscope.nets.architecture import MLP
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.objectives.slow_vae import SlowVAE
from polariscope.objectives.vae import VAE
from polariscope.testing import check_world
from polariscope.training import RunConfig, TrainingConfig, checkpoint, loop
from polariscope.training.loop import Listeners, build_state, fit
from polariscope.training.run import build_model
from polariscope.worlds import ArrayWorld
from polariscope.worlds.factors import Factor, FactorGrid
from polariscope.worlds.points.synthetic import Plane
from polariscope.worlds.renderers.mini_sprites import MiniSprites
from polariscope.worlds.splits import Chosen, Composition, Extrapolation, RandomSplit, SplitPart
from polariscope.worlds.targets import Task
from polariscope.worlds.views import pairs
from polariscope.worlds.views.pairs import Pairs, change_shares, step_probabilities
from polariscope.worlds.world import GridWorld


@dataclass(frozen=True)
class Grid(GridWorld):
    """Sizes of factors; a negative one is that of categories."""

    sizes: tuple[int, ...]

    @property
    def grid(self):
        return FactorGrid(
            tuple(Factor(f"f{i}", abs(s), "categorical" if s < 0 else "ordinal") for i, s in enumerate(self.sizes))
        )

    @property
    def shape(self):
        return (1, 1, 1)

    def render(self, factors):
        return (self.grid.to_index(factors) % 256).astype(np.uint8).reshape(-1, 1, 1, 1)


# Spec 001a, table of section 4.3: sizes, P(a factor changes), P(0, 1, 2, ... changes), the mean number where at least
# one has to change, and P(no change) at the rate 10.
PUBLISHED = {
    "dSprites": (
        (-3, 6, 40, 32, 32),
        (0, 0.6202, 0.8484, 0.8357, 0.8357),
        (0.0016, 0.0270, 0.1687, 0.4352, 0.3675),
        3.1416,
        0.7032,
    ),
    "Cars3D": ((4, 24, -183), (0.5015, 0.8161, 0), (0.0917, 0.4991, 0.4092), 1.4092, 0.9200),
    "SmallNORB": (
        (-5, -10, 9, 18, 6),
        (0, 0, 0.7031, 0.7917, 0.6202),
        (0.0235, 0.1833, 0.4480, 0.3452),
        2.1385,
        0.9191,
    ),
    "Shapes3D": (
        (10, 10, 10, 8, -4, 15),
        (0.7202, 0.7202, 0.7202, 0.6820, 0, 0.7732),
        (0.0016, 0.0210, 0.1107, 0.2906, 0.3792, 0.1970),
        3.6172,
        0.8774,
    ),
    "MPI3D": (
        (6, -6, 2, 3, 3, 40, 40),
        (0.6202, 0, 0.1911, 0.3892, 0.3892, 0.8484, 0.8484),
        (0.0026, 0.0378, 0.1836, 0.3562, 0.2991, 0.1078, 0.0129),
        3.2891,
        0.7666,
    ),
}
COUNT = 20_000


def changes(world, count=COUNT):
    """Factors of different firsts, and of their seconds; of small worlds all of them, at many times."""
    if len(world) >= count:
        index = np.random.default_rng(0).choice(len(world), size=count, replace=False)
        return world.factors_of(index), world.other_factors_of(index)
    index = np.arange(len(world))
    seconds = [world.drawn(0, time).other_factors_of(index) for time in range(count // len(world))]
    return np.tile(world.factors_of(index), (len(seconds), 1)), np.concatenate(seconds)


def fits(counts, probabilities):
    """A χ² test that chance fails once in 10,000 times, and that whatever was never to happen has not."""
    counts, expected = np.rint(counts), np.asarray(probabilities, float)
    expected = expected / expected.sum() * counts.sum()
    assert not counts[expected == 0].any()
    counts, expected = counts[expected > 0], expected[expected > 0]
    return len(counts) == 1 or stats.chisquare(counts, expected).pvalue > 1e-4


@pytest.mark.spec("001a/DS-09", "001a/DS-10")
@pytest.mark.parametrize("name", PUBLISHED)
def test_laplace_pairs_change_as_many_factors_as_published(name) -> None:
    sizes, each, shares, mean, still = PUBLISHED[name]
    frozen = np.array(sizes) < 0
    first, second = changes(Pairs(Grid(sizes), "lap-nc"))
    padded = np.pad(shares, (0, len(sizes) + 1 - len(shares)))
    assert fits(len(first) * change_shares(first, second), padded)
    np.testing.assert_allclose((first != second).mean(0), each, atol=4 * 0.5 / np.sqrt(COUNT))
    assert (first == second)[:, frozen].all(), "categories stay"
    # Where something has to change, pairs without a change become pairs with one.
    first, second = changes(Pairs(Grid(sizes), "lap"))
    forced = np.array([0, padded[0] + padded[1], *padded[2:]])
    assert fits(len(first) * change_shares(first, second), forced)
    moves = [0 if size < 0 else 1 - step_probabilities(size).diagonal().mean() for size in sizes]
    np.testing.assert_allclose(moves, each, atol=6e-5)
    assert sum(moves) + np.prod([1 - p for p in moves]) == pytest.approx(mean, abs=6e-5)
    assert (first == second)[:, frozen].all()
    first, second = changes(Pairs(Grid(sizes), "lap-nc", rate=10))
    assert change_shares(first, second)[0] == pytest.approx(still, abs=4 * 0.5 / np.sqrt(COUNT))


@pytest.mark.spec("001a/DS-09")
@pytest.mark.parametrize(("kind", "scale", "width"), [("lap-nc", "log-size", np.log(6)), ("lap", "one", 1.0)])
def test_steps_are_laplace_within_the_range_and_nowhere_else(kind, scale, width) -> None:
    """Cut off and renormalised, not clipped to the border nor wrapped around it."""
    first, second = changes(Pairs(Grid((6,)), kind, rate=0.7, scale=scale), 4000)
    for start in range(6):
        weights = np.exp(-0.7 / width * np.abs(np.arange(6) - start))
        law = weights / weights.sum()
        np.testing.assert_allclose(step_probabilities(6, 0.7, scale)[start], law, rtol=1e-12)
        if kind == "lap":  # the rest is drawn again without the old value
            others = np.where(np.arange(6) == start, 0, law)
            law = others + law[start] * others / others.sum()
        assert fits(np.bincount(second[first[:, 0] == start, 0], minlength=6), law)


def test_a_forced_step_goes_to_a_neighbour_at_any_rate() -> None:
    """The weights of all other values vanish in floating point."""
    first, second = changes(Pairs(Grid((5, 9)), "lap", rate=1e5), 500)
    assert (np.abs(first - second).sum(1) == 1).all()


@pytest.mark.spec("001a/DS-07")
@pytest.mark.parametrize("sizes", [(-3, 6, 40, 32, 32), (2, 2, 2), (4, 1, 3, 5), (7,)], ids=str)
def test_uni_pairs_change_exactly_k_factors(sizes) -> None:
    count = COUNT if len(Grid(sizes)) > 50 else 4000
    first, second = changes(Pairs(Grid(sizes), "uni"), count)
    movable = sum(abs(size) > 1 for size in sizes)
    law = [1 <= k <= max(1, movable - 1) for k in range(len(sizes) + 1)]
    assert fits(len(first) * change_shares(first, second), law)
    if movable > 1:
        assert (first != second).sum(1).mean() == pytest.approx(movable / 2, abs=5 * movable / np.sqrt(len(first)) / 3)
    moved = first != second
    for i, size in enumerate(map(abs, sizes)):
        if size > 1:
            assert fits(np.bincount((second - first)[moved[:, i], i] % size, minlength=size), [0] + [1] * (size - 1))
            assert moved[:, i].mean() == pytest.approx(max(0.5, 1 / movable), abs=4 * 0.5 / np.sqrt(len(first)))


@pytest.mark.spec("001a/IG-22")
@pytest.mark.parametrize("sizes", [(2, 4, 5, 3), (-3, 1, 6), (7,)], ids=str)
def test_pairs_of_one_change_have_exactly_one_in_any_factor(sizes) -> None:
    first, second = changes(Pairs(Grid(sizes), "one"), 4000)
    moved = first != second
    assert (moved.sum(1) == 1).all()
    movable = [abs(size) > 1 for size in sizes]
    assert fits(moved.sum(0), movable), "every factor that can change does so equally often"
    for i, size in enumerate(map(abs, sizes)):
        if size > 1:
            assert fits(np.bincount((second - first)[moved[:, i], i] % size, minlength=size), [0] + [1] * (size - 1))


@pytest.mark.spec("001a/DS-08")
def test_loc_pairs_mostly_touch_one_factor_which_may_keep_its_value() -> None:
    sizes = (2, 4, 5, 3)
    first, second = changes(Pairs(Grid(sizes), "loc"))
    chosen = np.array([0, 1 / 2 + 1 / 6, 1 / 6, 1 / 6, 0])
    assert chosen[1] >= 1 / 2
    law = np.zeros(5)
    for k in range(1, 4):
        for subset in product([False, True], repeat=4):
            if sum(subset) == k:
                touched = [size for size, is_in in zip(sizes, subset, strict=True) if is_in]
                for moves in product([False, True], repeat=k):
                    p = np.prod([1 - 1 / n if m else 1 / n for n, m in zip(touched, moves, strict=True)])
                    law[sum(moves)] += chosen[k] / comb(4, k) * p
    assert fits(len(first) * change_shares(first, second), law)
    assert change_shares(first, second)[:2].sum() >= 1 / 2


def test_draws_are_those_of_seed_time_and_number() -> None:
    view, index = Pairs(MiniSprites()), np.arange(500)
    seen = view.drawn(0, 5).partners(index)
    np.testing.assert_array_equal(view.drawn(0, 5).partners(index[::-3]), seen[::-3])
    np.testing.assert_array_equal(view.drawn(0, 6).drawn(0, 5).partners(index), seen)
    others = [view, view.drawn(0, 0), view.drawn(1, 5), view.drawn(0, 6), Pairs(MiniSprites(), seed=1).drawn(0, 5)]
    draws = [other.partners(index) for other in others]
    for i, one in enumerate(draws):
        assert all((one != other).mean() > 0.8 for other in [seen, *draws[:i]])
    np.testing.assert_array_equal(view.partners(index), draws[0])
    np.testing.assert_array_equal(view.observe(index), view.of.observe(index))
    np.testing.assert_array_equal(view.others_of(index)[0], view.of.observe(draws[0]))
    np.testing.assert_array_equal(view.other_factors_of(index), view.of.factors_of(draws[0]))


def test_pairs_of_a_part_stay_in_it() -> None:
    whole = MiniSprites()
    for split in (Composition(), Extrapolation()):
        allowed = split.parts(whole).train
        for kind in ("uni", "one", "loc", "lap", "lap-nc"):
            view = Pairs(SplitPart(whole, split, "train"), kind).drawn(0, 1)
            second = whole.grid.to_index(view.other_factors_of(np.arange(len(view))))
            assert np.isin(second, allowed).all()
            changed = whole.factors_of(second) != view.factors_of(np.arange(len(view)))
            assert changed[:, 0].any() == (kind in ("uni", "one", "loc")), "within a part the shape stays as well"
            assert changed.any(1).all() == (kind in ("uni", "one", "lap"))
            assert kind != "one" or (changed.sum(1) == 1).all()
            np.testing.assert_array_equal(view.others_of([3, 4])[0], whole.observe(second[[3, 4]]))
    check_world(view)


def test_within_a_part_the_law_is_the_same_but_for_what_is_outside() -> None:
    """Drawn again until it is inside: probabilities within keep their proportions."""
    world = Grid((3, 4))
    part = Chosen(world, np.array([5, 0, 2, 7, 11]))
    view = Pairs(part, "lap-nc")
    seconds = [int(view.drawn(0, time).partners([0])[0]) for time in range(1200)]
    inside = world.factors_of(part.index)
    law = np.prod([step_probabilities(n)[inside[0, i], inside[:, i]] for i, n in enumerate((3, 4))], axis=0)
    assert fits(np.bincount(seconds, minlength=5), law)


def test_what_cannot_be_paired_is_said(monkeypatch) -> None:
    with pytest.raises(ValueError, match="grid of factors, but this one has no factors"):
        Pairs(ArrayWorld(np.zeros((5, 8, 8), np.uint8)))
    with pytest.raises(ValueError, match="grid of factors, but .* of this one is continuous"):
        Pairs(Plane(count=50))
    with pytest.raises(ValueError, match="rate of the steps is 0"):
        Pairs(MiniSprites(), rate=0)
    with pytest.raises(ValueError, match="lap changes ordered factors only"):
        Pairs(Grid((-3, 1)))
    with pytest.raises(ValueError, match="several observations of this world have the same factors"):
        Pairs(ArrayWorld(np.zeros((5, 8, 8), np.uint8), np.arange(5) % 2), "uni").partners([0])
    monkeypatch.setattr(pairs, "TRIES", 50)
    alone = Pairs(Chosen(MiniSprites(), np.array([7])))
    with pytest.raises(ValueError, match="observation 0 has no second one within its part"):
        alone.partners([0])
    assert replace(alone, kind="lap-nc").partners([0]).tolist() == [0]


class Killed(BaseException):
    """Nothing catches it."""


class OfTheOther(VAE):
    """Sees the second observation alone."""

    needs = ("other",)

    def __call__(self, model, batch, step):
        assert not torch.equal(batch.x, batch.other)
        return super().__call__(model, replace(batch, x=batch.other), step)


def test_a_resumed_run_sees_the_same_pairs(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(loop, "BLOCK", 4)
    training = TrainingConfig(steps=12, batch_size=16, checkpoint_every=6, evaluate_every=6, log_every=6)
    model = AutoencoderConfig(latents=4, architecture=MLP((16,), (16,)))
    config = RunConfig(Pairs(MiniSprites()), OfTheOther(), model, training)

    def state():
        return build_state(build_model(config), config.objective, config.training)

    def trained(state, **listeners):
        return fit(state, config.objective, config.world, config.training, Listeners(**listeners), config.split)

    def kill(step, loss):
        if step == 7:
            raise Killed

    whole = trained(state()).model.state_dict()
    path = tmp_path / "checkpoint.safetensors"
    with pytest.raises(Killed):
        trained(state(), checkpoint=lambda state: checkpoint.save(state, path), step=kill)
    again = state()
    checkpoint.load(again, path)
    assert again.step == 6, "in the middle of a block"
    for name, value in trained(again).model.state_dict().items():
        assert torch.equal(value, whole[name]), name


@pytest.mark.parametrize("split", [RandomSplit(0.3), Extrapolation({"x": (4, 5)})], ids=str)
@pytest.mark.parametrize("wrapped", [lambda pairs: pairs, lambda pairs: Task(pairs, "x")], ids=["pairs", "task"])
def test_training_on_pairs_never_sees_what_is_kept(split, wrapped, monkeypatch) -> None:
    """Neither as the first observation of a pair nor as the second."""
    world = MiniSprites()
    looked_at: set[int] = set()
    plain = MiniSprites.observe

    def observe(self, index):
        looked_at.update(np.asarray(index).ravel().tolist())
        return plain(self, index)

    monkeypatch.setattr(MiniSprites, "observe", observe)
    training = TrainingConfig(60, 32, evaluate_every=0)
    model = AutoencoderConfig(2, MLP((4,), (4,)))
    config = RunConfig(wrapped(Pairs(world)), SlowVAE(), model, training, split)
    state = build_state(build_model(config), config.objective, training)
    fit(state, config.objective, config.world, training, split=split)
    kept = split.parts(world).held_out
    assert len(looked_at) > 0.5 * (len(world) - len(kept))
    assert not looked_at & set(kept.tolist())
