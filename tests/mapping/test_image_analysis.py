"""The image analysis that is fitted to each image, and how sure maps are."""

import numpy as np
import pytest
import torch

from polariscope.mapping.image_analysis import ImageAnalysis, analysed, segments
from polariscope.mapping.uncertainty import diversity, dropout_draws, energy_distance
from polariscope.nets.unet import UNet
from polariscope.worlds.renderers.aerial import BACKGROUND, Aerial


@pytest.mark.spec("000/F042")
def test_the_analysis_is_conservative_object_shaped_and_beats_chance() -> None:
    """On each of five valleys by which no setting was chosen, fitted to each of them; compare the bolder forest."""
    for seed in range(20, 25):
        world = Aerial(valleys=1, tiles=24, years=(2016,), seed=seed)
        scene = world.scene(world.grid.to_factors(np.arange(24)))
        maps = analysed(scene.image / 255.0, scene.mask, BACKGROUND)
        mine, truth = maps != BACKGROUND, scene.mask != BACKGROUND
        precision, recall = (mine & truth).sum() / mine.sum(), (mine & truth).sum() / truth.sum()
        assert recall < precision
        assert precision > 3 * truth.mean(), "random pixels have the precision of the true share"
        numbers = segments(scene.image[0, :3] / 255.0)
        whole = [len(np.unique(maps[0][numbers == n])) for n in range(numbers.max() + 1)]
        assert max(whole) == 1, "a segment has one class"
    bold = analysed(scene.image / 255.0, scene.mask, BACKGROUND, ImageAnalysis(sure=0.3)) != BACKGROUND
    assert bold.sum() > mine.sum()


def test_segments_follow_edges() -> None:
    image = np.zeros((3, 30, 40))
    image[:, 8:19, 11:27] = 1
    numbers = segments(image)
    inside = set(numbers[8:19, 11:27].ravel())
    assert not inside & set(numbers[image[0] == 0].ravel())
    assert 20 < len(np.unique(numbers)) < 70
    with pytest.raises(ValueError, match="at least 3 bands"):
        analysed(np.zeros((1, 2, 8, 8)), np.zeros((1, 8, 8)), 1)


def test_energy_distance_is_zero_for_the_same_distribution_only() -> None:
    rng = np.random.default_rng(0)
    experts = rng.integers(0, 3, (4, 12, 12))
    assert energy_distance(experts, experts, 3, 2) == pytest.approx(0)
    assert energy_distance(experts[[0, 1, 2, 3, 0, 1, 2, 3]], experts, 3, 2) == pytest.approx(0)
    one = energy_distance(experts[:1], experts, 3, 2)
    assert one > energy_distance(experts[:2], experts, 3, 2) > 0
    assert diversity(experts[:1], 3, 2) == 0
    empty = np.full((2, 5, 5), 2)
    assert energy_distance(empty, empty, 3, 2) == 0


@pytest.mark.spec("000/F121")
def test_dropout_draws_differ_and_sum_up() -> None:
    torch.manual_seed(0)
    network = UNet(2, 3, 2, 4, dropout=0.3, attention=True)
    x = torch.rand(1, 2, 16, 16)
    result = dropout_draws(network, x, 8, seed=1)
    again = dropout_draws(network, x, 8, seed=1)
    assert (result.entropy == again.entropy).all()
    np.testing.assert_allclose(result.probabilities.sum(1), 1)
    assert (result.disagreement <= result.entropy + 1e-12).all()
    assert result.disagreement.max() > 1e-4
    assert result.entropy.max() <= np.log(3) + 1e-9
    with pytest.raises(ValueError, match="needs a network with dropout"):
        dropout_draws(UNet(2, 3, 2, 4), x)
