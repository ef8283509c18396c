"""A manipulated view shows what applying the manipulation to all of the data gives."""

import pickle

import numpy as np
import pytest

from polariscope.manipulation import Learned, LocalStructure, Noise, apply, load_bundle, save_bundle
from polariscope.manipulation.view import ManipulatedView
from polariscope.testing import check_world
from polariscope.worlds import ArrayWorld, worlds
from polariscope.worlds.points.synthetic import Plane
from polariscope.worlds.renderers.mini_sprites import MiniSprites
from polariscope.worlds.views.augmented import Augmented

FLOATS = ArrayWorld(np.random.default_rng(0).normal(0, 50, (40, 7, 8, 8)), np.arange(40) % 4, floats=True)
WORLDS = {"points": Plane(count=1500), "images": MiniSprites(), "float images": FLOATS}


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS.keys())
@pytest.mark.parametrize("by", [Noise(0.3), LocalStructure(0.3, 2.0)], ids=["noise", "local"])
def test_the_view_shows_what_applying_it_gives(world, by) -> None:
    whole = apply(world, by, seed=5).world
    view = ManipulatedView(world, by, seed=5)
    some = np.random.default_rng(0).permutation(len(world))[:300]
    some[:4] = some[4], 0, len(world) - 1, some[5]
    np.testing.assert_array_equal(view.observe(some), whole.observe(some))
    np.testing.assert_array_equal(view.observe(np.arange(30)), whole.observe(np.arange(30)))
    np.testing.assert_array_equal(view.factors_of(some), world.factors_of(some))
    assert not np.array_equal(view.observe(some), world.observe(some))
    check_world(view)


def test_it_is_described_built_and_sent_like_any_world() -> None:
    view = ManipulatedView(MiniSprites(), LocalStructure(0.2, factors=("x",)))
    seen = view.observe([3, 9])
    described = worlds.describe(view)
    assert described["by"]["name"] == "local"
    for again in (worlds.build(described), pickle.loads(pickle.dumps(view))):
        assert again == view
        np.testing.assert_array_equal(again.observe([3, 9]), seen)


def test_what_it_looks_at_may_change_with_the_time() -> None:
    inner = Augmented(MiniSprites(), flip="horizontal")
    later = ManipulatedView(inner, Noise(0.2)).drawn(0, 4)
    fixed = ManipulatedView(MiniSprites(), Noise(0.2))
    index = np.arange(50)
    mirrored = inner.drawn(0, 4).changes(index).mirrored
    seen, plain = later.observe(index), fixed.observe(index)
    np.testing.assert_array_equal(seen[~mirrored], plain[~mirrored])
    assert all((seen[i] != plain[i]).any() for i in np.flatnonzero(mirrored))


def test_float_images_go_through_a_bundle(tmp_path) -> None:
    manipulated = apply(FLOATS, Noise(20.0), "noise")
    assert 19 < manipulated.size.max_norm <= 20, "floats are changed in their own units"
    save_bundle(manipulated, tmp_path / "bundle")
    np.testing.assert_array_equal(load_bundle(tmp_path / "bundle").world.observe([7]), manipulated.world.observe([7]))


def test_what_it_cannot_show_is_refused() -> None:
    with pytest.raises(
        ValueError, match="this one is learned: run 'polariscope manipulate --kind learned' and train on"
    ):
        ManipulatedView(MiniSprites(), Learned())
    with pytest.raises(ValueError, match="run 'polariscope manipulate"):
        worlds.build({"name": "manipulated", "of": "mini-sprites", "by": "learned"})
    with pytest.raises(ValueError, match="there is no manipulation 'nose': did you mean 'noise'"):
        worlds.build({"name": "manipulated", "of": "mini-sprites", "by": "nose"})
    with pytest.raises(ValueError, match="epsilon is 2"):
        ManipulatedView(MiniSprites(), Noise(2.0)).observe([0])
    with pytest.raises(ValueError, match="factors are known, and this one has none"):
        ManipulatedView(ArrayWorld(np.eye(4)), Noise(0.1)).observe([0])
