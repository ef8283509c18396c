"""What training for maps needs of worlds: transfer over place and time, balanced draws, side information."""

import numpy as np
import pytest

from polariscope.training.config import TrainingConfig
from polariscope.training.loop import Feed, rate_factor
from polariscope.worlds.renderers.aerial import Aerial
from polariscope.worlds.renderers.mini_sprites import MiniSprites
from polariscope.worlds.targets import MaskedImages, target_values
from polariscope.worlds.transfer_split import Transfer
from polariscope.worlds.views.balanced import Balanced
from polariscope.worlds.views.side_information import SideInformation
from polariscope.worlds.world import ArrayWorld


@pytest.mark.spec("000/F052")
def test_transfer_keeps_places_and_times_apart() -> None:
    world = Aerial(valleys=1, tiles=12)
    year, tile = world.factors_of(np.arange(len(world)))[:, 1:].T
    parts = {kind: Transfer(kind).parts(world) for kind in ("spatial", "temporal", "spatio-temporal")}
    train = parts["spatial"].train
    for kind, result in parts.items():
        assert (result.train == train).all(), "whatever is tested, the training is the same"
        assert not set(result.train) & set(result.held_out)
        elsewhere = not set(tile[train]) & set(tile[result.held_out])
        later = not set(year[train]) & set(year[result.held_out])
        assert (elsewhere, later) == {
            "spatial": (True, False), "temporal": (False, True), "spatio-temporal": (True, True),
        }[kind]  # fmt: skip
    assert set(year[train]) == {0, 1, 2, 3}, "2016 is never trained on"
    assert set(tile[parts["temporal"].held_out]) == set(tile[train]), "the training region in 2016"
    assert sorted(np.concatenate([train, *(p.held_out for p in parts.values())])) == list(range(len(world)))
    with pytest.raises(ValueError, match="needs a factor of times"):
        Transfer(place="x").parts(MiniSprites())


@pytest.mark.spec("000/F055")
def test_the_learning_rate_is_divided_by_ten_every_so_many_epochs() -> None:
    """Multi-valley: 9263 patches in batches of 8 for 300 epochs, lr 1e-3 divided by 10 every 200."""
    epoch = 9263 // 8
    config = TrainingConfig(steps=300 * epoch, batch_size=8, schedule="drop", drop_every=200 * epoch)
    assert (config.optimiser, config.learning_rate) == ("adam", 1e-3)
    rates = [config.learning_rate * rate_factor(step, config) for step in
             (0, 200 * epoch - 1, 200 * epoch, 300 * epoch - 1)]  # fmt: skip
    assert rates == pytest.approx([1e-3, 1e-3, 1e-4, 1e-4])


def test_balanced_draws_show_rare_classes_as_often_in_training_and_not_in_scores() -> None:
    labels = np.array(["common"] * 90 + ["rare"] * 10)
    world = Balanced(ArrayWorld(np.zeros((100, 8, 8), np.uint8), labels))
    config = TrainingConfig(batch_size=20)
    feed = Feed(world, np.arange(100), config, ("target",))
    drawn = np.concatenate([feed.batch(n).target.numpy().ravel() for n in range(100)])
    assert (drawn == 1).mean() == pytest.approx(0.5, abs=0.04)
    assert (Feed(world, np.arange(100), config).order[7] == Feed(world, np.arange(100), config).order[7]).all()
    evaluated = Feed(world, np.arange(100), config, ("target",), evaluating=True)
    assert sum(len(batch.x) for batch in evaluated.once()) == 100
    masks = np.zeros((4, 8, 8), int)
    masks[3] = 1
    masks[2] = -1
    weights = Balanced(MaskedImages(np.zeros((4, 1, 8, 8), np.uint8), masks, ("a", "b"))).draw_weights(np.arange(4))
    assert weights.tolist() == pytest.approx([0.25, 0.25, 0.0, 0.5]), "unlabelled tiles are not drawn"
    with pytest.raises(ValueError, match="power is -1"):
        Balanced(world.of, -1)


@pytest.mark.spec("000/F100")
def test_side_information_is_a_plane_for_each_fact_and_leaves_masks_alone() -> None:
    world = Aerial(valleys=1, tiles=3, labels="analysed", misses="classes", missed=0.5)
    view = SideInformation(world, "sun_north,strict_sheet,year")
    numbers = np.arange(len(world))
    x = view.observe(numbers)
    assert x.shape[1] == 9
    assert (x[:, :6] == world.observe(numbers)).all()
    planes = x[:, 6:].reshape(len(x), 3, -1)
    assert (planes == planes[:, :, :1]).all()
    strict = planes[:, 1, 0]
    assert set(strict) == {0, 255}
    masks = target_values(view, numbers)
    assert (masks == world.target_of(numbers)).all()
    shown = (masks == 2).any((1, 2))
    assert not shown[strict == 255].any(), "the analysis misses the class where it says so"
    assert shown[strict == 0].any()
    assert planes[:, 2, 0].tolist() == np.rint(255 * world.factors_of(numbers)[:, 1] / 4).tolist()
    with pytest.raises(ValueError, match="no fact 'rain'"):
        SideInformation(world, "rain")
