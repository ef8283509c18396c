"""Noise that is learned against a network: the worst of all kinds where it is known, and what is measured of it."""

import json
import math

import numpy as np
import pytest
import torch
from torch import nn

from polariscope.findings import Chart, Pictures
from polariscope.nets.noise_generator import NoiseGenerator
from polariscope.report.page import page
from polariscope.robustness import adversarial_noise
from polariscope.robustness.adversarial_noise import NoiseAttack, generator_distances, learn_noise, noise_density
from polariscope.robustness.noise_distance import noise_distances
from polariscope.robustness.rescale import rescaled
from polariscope.worlds.targets import Examples

GREY, DARK = torch.full((16, 1, 28, 28), 0.4), torch.zeros(16, dtype=torch.int64)


def bright(x: torch.Tensor) -> torch.Tensor:
    """Is the mean brightness above .55? From .4 a shift of all 784 pixels by .15 is the least noise: 0.15 · 28."""
    return 20 * (x.mean((1, 2, 3)) - 0.55)


def loss_under(noise: torch.Tensor, norm: float) -> float:
    return nn.functional.softplus(bright(rescaled(GREY, noise, norm))).mean().item()


@pytest.mark.spec("001b/A-10")
def test_the_worst_noise_on_a_brightness_is_a_shift() -> None:
    assert noise_distances(bright, GREY, DARK).median == math.inf, "Gaussian noise never does it"
    noise = learn_noise(bright, GREY, DARK, 4.0, NoiseAttack((4.0,), steps=100, batch_size=8, learning_rate=1e-2))
    with torch.no_grad():
        draw = noise.generator.noise_for(GREY)
    assert draw.mean() > 40 * draw.std()
    assert noise_distances(bright, GREY, DARK, noise.generator).median == pytest.approx(4.2, rel=1e-3)
    assert loss_under(draw, 4.0) > 2 * loss_under(torch.randn_like(GREY), 4.0)
    assert noise.losses[-1] > noise.losses[0]


@pytest.mark.spec("001b/A-10", "001b/A-19")
def test_every_seed_has_a_new_generator_and_keeps_its_most_harmful_norm() -> None:
    """So small a norm teaches nothing in so few steps; the ladder's other rung does."""
    attack = NoiseAttack((1e-4, 4.0), steps=60, batch_size=8, learning_rate=1e-2, depth=2)
    result = generator_distances(bright, GREY, DARK, attack, seeds=(0, 1, 2), on=Examples(GREY[:8], DARK[:8]))
    assert [noise.norm for noise in result.noises] == [4.0] * 3
    assert result.mean == pytest.approx(4.2, rel=0.02)
    assert result.sd == pytest.approx(np.std([one.median for one in result.distances], ddof=1))
    first, second, third = (n.generator.in_a_row() for n in result.noises)
    assert not torch.equal(first, second)
    assert not torch.equal(second, third)
    assert all(len(one.distances) == 8 for one in result.distances)
    assert "norm of 4.2" in result.findings().headline
    assert "out of reach" in page([result.findings()])
    with pytest.raises(ValueError, match="at least 2 different seeds"):
        generator_distances(bright, GREY, DARK, attack, seeds=(1, 1))


@pytest.mark.spec("001b/A-19")
def test_without_seeds_there_are_four_new_generators_and_their_mean_and_spread_count(monkeypatch) -> None:
    """As published: four generators, each built and trained from the start after the classifier is done; each is
    measured with noise of its own seed. On the known boundary all four need a norm of 4.2."""
    built: list[NoiseGenerator] = []
    starts: list[torch.Tensor] = []

    class Watched(NoiseGenerator):
        def __init__(self, *settings: int) -> None:
            super().__init__(*settings)
            built.append(self)
            starts.append(self.in_a_row().clone())

    monkeypatch.setattr(adversarial_noise, "NoiseGenerator", Watched)
    attack = NoiseAttack((4.0,), steps=60, batch_size=8, learning_rate=1e-2, depth=2)
    result = generator_distances(bright, GREY[:8], DARK[:8], attack)
    assert len(built) == 4
    assert [noise.generator for noise in result.noises] == built, "none is taken from elsewhere"
    assert len({tuple(start.tolist()) for start in starts}) == 4, "each starts from weights of its own"
    for generator, start in zip(built, starts, strict=True):
        assert start.abs().max() < 0.1, "as Gaussian noise, before it has learned"
        assert (generator.in_a_row() - start).abs().max() > 0.1, "and has learned"
    assert [noise.seed for noise in result.noises] == [0, 1, 2, 3]
    assert [one.seed for one in result.distances] == [0, 1, 2, 3]
    medians = [np.median(one.distances) for one in result.distances]
    assert medians == pytest.approx([4.2] * 4, rel=0.02)
    assert result.mean == pytest.approx(sum(medians) / 4)
    assert result.sd == pytest.approx(math.sqrt(sum((m - sum(medians) / 4) ** 2 for m in medians) / 3))
    assert [row["seed"] for row in result.findings().json()["generators"]] == [0, 1, 2, 3]
    assert "4 new generators" in result.findings().headline


def test_generators_that_reach_nobody_are_told_as_such() -> None:
    """A network of one answer: nothing misleads it, and JSON has no infinity."""
    attack = NoiseAttack((1.0,), steps=1, batch_size=4, depth=1)
    result = generator_distances(lambda x: x.mean((1, 2, 3)) - 2, GREY[:4], DARK[:4], attack, seeds=(0, 1))
    assert (result.mean, result.sd) == (math.inf, math.inf)
    document = json.dumps(result.findings().json(), allow_nan=False)
    assert "at no norm" in document


def test_the_network_stays_as_it_is_and_the_seed_decides() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(72, 3)).train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    x, y = torch.rand(12, 1, 8, 8), torch.arange(12) % 3
    attack = NoiseAttack((2.0,), kernel=3, steps=5, batch_size=6)
    noises = [learn_noise(network, x, y, 2.0, attack, seed) for seed in (0, 0, 1)]
    same, again, other = (noise.generator.in_a_row() for noise in noises)
    assert torch.equal(same, again)
    assert not torch.equal(same, other)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert network[1].training
    assert all(weight.grad is None for weight in network.parameters())


@pytest.mark.spec("001b/A-20", "001b/A-14")
def test_what_was_learned_can_be_looked_at() -> None:
    torch.manual_seed(0)
    generator = NoiseGenerator(3, kernel=3)
    generator.layers[-1].bias.data = torch.tensor([5.0, 0.0, 0.0])
    result = noise_density(generator, draws=20_000)
    assert (result.density * np.diff(result.edges)).sum(1) == pytest.approx([1, 1, 1], abs=1e-9)
    middles = (result.edges[1:] + result.edges[:-1]) / 2
    assert (result.density * np.diff(result.edges)) @ middles == pytest.approx([5, 0, 0], abs=0.1)
    assert result.sd == pytest.approx(np.ones(3), abs=0.05)
    noise = learn_noise(lambda x: x.mean((2, 3)), torch.rand(8, 3, 6, 6), torch.arange(8) % 3, 1.0,
                        NoiseAttack((1.0,), kernel=3, steps=2, batch_size=4))  # fmt: skip
    document = noise.findings(size=9)
    (chart,) = document.of(Chart)
    assert len(chart.draw().axes[0].patches) == 3
    assert "Density of a pixel" in page([document])
    assert document.of(Pictures)[0].strips[0].images.shape == (1, 8, 3, 9, 9)
