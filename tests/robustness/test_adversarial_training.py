"""Adversarial training: where the images are moved, in which mode, and that runs of it go on after a stop."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from polariscope.lab import Store
from polariscope.nets.model import Brief, models
from polariscope.objectives.objective import Batch, objectives
from polariscope.robustness.adversarial_training import AdversarialTraining
from polariscope.robustness.attacks.fast_gradient import FastGradient
from polariscope.robustness.attacks.pgd import PGD
from polariscope.training import RunConfig, TrainingConfig, resume, train
from polariscope.training import checkpoint as checkpoints
from polariscope.worlds.renderers.mini_sprites import MiniSprites
from polariscope.worlds.targets import Task


class Looking(nn.Module):
    """A linear classifier of two classes that keeps what it saw, and in which mode."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, -2.0, 0.5, 0.0]))
        self.norm = nn.BatchNorm1d(4, affine=False, momentum=1.0)
        self.seen: list[tuple[Tensor, bool]] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append((x.detach().clone(), self.training))
        self.norm(x)  # its statistics tell what it was asked about in training mode
        return torch.stack([torch.zeros(len(x)), 5 * (x @ self.weight)], 1)


def batch(count: int = 6, evaluating: bool = False) -> Batch:
    x = torch.full((count, 4), 0.5)
    return Batch(x, count, target=torch.ones(count, 1), classes=(2,), evaluating=evaluating)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_images_end_where_the_loss_of_a_linear_classifier_is_highest(norm: str) -> None:
    """Against the sign of the weights, or along them, at exactly epsilon."""
    torch.manual_seed(0)
    network = Looking().train()
    objective = AdversarialTraining(norm=norm, epsilon=0.2, steps=60, step=0.02)
    objective(network, batch(), 0)
    moved = network.seen[-1][0] - 0.5
    weight = network.weight.detach()
    expected = -0.2 * (weight.sign() if norm == "linf" else weight / weight.norm())
    used = weight != 0  # a pixel without weight stays where its random start was
    torch.testing.assert_close(moved[:, used], expected[used].expand(6, -1), atol=2e-2, rtol=0)
    length = moved.abs().amax(1) if norm == "linf" else moved.norm(dim=1)
    torch.testing.assert_close(length, torch.full((6,), 0.2), atol=1e-3, rtol=0)


def test_the_attack_asks_in_evaluation_mode_and_the_classifier_learns_in_training_mode() -> None:
    torch.manual_seed(0)
    network = Looking().train()
    terms = AdversarialTraining(steps=5, epsilon=0.1)(network, batch(), 0)
    modes = [mode for _, mode in network.seen]
    assert modes == [False] * 5 + [True]
    torch.testing.assert_close(network.norm.running_mean, network.seen[-1][0].mean(0))
    assert network.norm.num_batches_tracked == 1
    terms.loss.backward()
    assert network.weight.grad.abs().max() > 0
    assert set(terms.parts) == {"cross_entropy", "error"}


def test_evaluation_attacks_with_the_whole_epsilon_and_tells_the_clean_error_too() -> None:
    network = Looking().eval()
    objective = AdversarialTraining(steps=30, epsilon=0.3, step=0.05, ramp=100)
    assert objective.radius_at(0) == pytest.approx(0.003)
    with torch.no_grad():
        terms = objective(network, batch(evaluating=True), 0)
    # 0.5 * (1 - 2 + 0.5) = -0.25 is wrong for class 1 anyway, so look at the other label
    other = replace(batch(evaluating=True), target=torch.zeros(6, 1))
    with torch.no_grad():
        attacked = objective(network, other, 0)
    assert terms.parts["clean_error"] == 1
    assert (attacked.parts["clean_error"], attacked.parts["error"]) == (0, 1)


def test_a_share_stays_clean_and_no_perturbation_leaves_images_as_they_are() -> None:
    network = Looking().train()
    AdversarialTraining(steps=2, share=0.5)(network, batch(6), 0)
    assert ((network.seen[-1][0] == 0.5).all(1)).tolist() == [True] * 3 + [False] * 3
    AdversarialTraining(epsilon=0.0)(network, batch(6), 0)
    assert (network.seen[-1][0] == 0.5).all()


def test_any_attack_can_take_the_place_of_the_ascent() -> None:
    """Its adversarials are moved back to epsilon where they are further away."""
    torch.manual_seed(0)
    network = Looking().train()
    objective = AdversarialTraining(norm="l2", epsilon=0.3, attack=PGD(steps=10))
    objective(network, replace(batch(), target=torch.zeros(6, 1)), 0)
    moved = network.seen[-1][0] - 0.5
    assert (moved.norm(dim=1) <= 0.3 + 1e-5).all()
    assert ((network.seen[-1][0] @ network.weight.detach()) > 0).all(), "adversarial indeed"
    with pytest.raises(ValueError, match="2 targets"):
        objective(network, replace(batch(), target=torch.zeros(6, 2), classes=(2, 2)), 0)
    with pytest.raises(ValueError, match="works in"):
        AdversarialTraining(norm="l2", attack=OnlyLinf())
    described = objectives.describe(objective)
    assert described["attack"]["name"] == "pgd"
    assert objectives.build(described) == objective


class OnlyLinf(FastGradient):
    norms = ("linf",)


def test_bad_settings_are_refused() -> None:
    for settings, words in (
        ({"epsilon": -1.0}, "epsilon is -1"),
        ({"steps": 0}, "steps is 0"),
        ({"share": 0.0}, "above 0"),
    ):
        with pytest.raises(ValueError, match=words):
            AdversarialTraining(**settings)
    points = Batch(torch.randn(4, 4), 4, target=torch.zeros(4, 1), classes=(2,))
    with pytest.raises(ValueError, match="bring it to"):
        AdversarialTraining()(Looking(), points, 0)


RUNS = {
    "pgd": ({"name": "adversarial-training", "steps": 3, "ramp": 4}, "lenet"),
    "binary": ({"name": "classify"}, {"name": "binarised", "of": {"name": "elu-cnn", "channels": [2, 3, 4]}}),
    "ibp": ({"name": "ibp-training", "warmup": 2, "ramp": 3}, "lenet"),
    "smoothed": ({"name": "classify"}, {"name": "smoothed", "of": {"name": "lenet"}}),
    "neighbour": ({"name": "memorise"}, {"name": "nearest-neighbour", "capacity": 60}),
}


@pytest.mark.spec("001b/B-09")
@pytest.mark.parametrize("name", RUNS)
def test_baselines_are_runs_that_go_on_to_the_same_bits(tmp_path, name: str) -> None:
    """Cut off after 5 of 9 steps, as by kill -9 between a checkpoint and the next."""
    objective, model = RUNS[name]
    settings = {"batch_size": 8, "checkpoint_every": 5, "evaluate_every": 4, "log_every": 3, "seed": 2}
    world = Task(MiniSprites(), "shape")
    config = RunConfig(world, objectives.build(objective), models.build(model), TrainingConfig(9, **settings))
    whole = train(config, Store(tmp_path / "whole"), quiet=True)
    store = Store(tmp_path / "cut")
    cut = train(replace(config, training=replace(config.training, steps=5)), store, quiet=True)
    cut.update(config=config.describe(), status="running")  # what a run that was killed says of itself
    resume(cut, quiet=True)
    first, second = (checkpoints.read(one.checkpoint)[0] for one in (whole, cut))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[part], second[part]) for part in first)
    assert np.isfinite([value for *_, value in whole.metrics()]).all()
    assert checkpoints.read(cut.checkpoint)[1]["step"] == 9


@pytest.mark.spec("001b/B-02")
def test_the_comparison_network_has_the_published_size() -> None:
    network = models.build("elu-cnn").build(Brief((1, 28, 28), 10))
    layers = [module for module in network.modules() if isinstance(module, nn.Conv2d)]
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    assert sum(p.numel() for layer in layers for p in layer.parameters()) == 248_536
    assert sum(p.numel() for layer in norms for p in layer.parameters()) == 692
    sides, x = [], torch.zeros(2, 1, 28, 28)
    for block in network:
        x = block[0](x)
        sides.append(x.shape[-1])
    assert sides == [24, 11, 5, 1]
    assert network(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
    assert models.build("elu-cnn").build(Brief((3, 32, 20), 4))(torch.zeros(2, 3, 32, 20)).shape == (2, 4)
    with pytest.raises(ValueError, match="at least 12 x 12"):
        models.build("elu-cnn").build(Brief((1, 8, 8), 10))
    with pytest.raises(ValueError, match="at least 1"):
        models.build({"name": "elu-cnn", "channels": [0, 1, 1]})
