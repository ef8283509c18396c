"""Training to be verified: the schedule, and the loss of the worst scores."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from polariscope.objectives.objective import Batch
from polariscope.robustness.bounds.propagation import verified
from polariscope.robustness.ibp_training import IBPTraining


def linear() -> nn.Sequential:
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    torch.manual_seed(0)
    network[1].weight.data.normal_()
    return network


def batch(evaluating: bool = False) -> Batch:
    x = torch.rand(8, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    return Batch(x, 8, target=torch.arange(8)[:, None] % 3, classes=(3,), evaluating=evaluating)


@pytest.mark.spec("001b/B-46")
def test_the_loss_is_that_of_the_worst_image_of_a_linear_classifier() -> None:
    """For one layer each difference of scores is worst at a corner; their sum bounds the cross-entropy from above."""
    network, given = linear(), batch()
    objective = IBPTraining(epsilon=0.05, kappa=0.25, warmup=0, ramp=0)
    terms = objective(network, given, 0)
    weight, labels = network[1].weight, given.target[:, 0]
    apart = weight[labels][:, None] - weight
    low, high = (given.x.flatten(1) - 0.05).clamp(min=0), (given.x.flatten(1) + 0.05).clamp(max=1)
    corner = torch.where(apart > 0, low[:, None], high[:, None])
    bias = network[1].bias
    least = (apart * corner).sum(2) + bias[labels][:, None] - bias
    worst = functional.cross_entropy(-least, labels)
    clean = functional.cross_entropy(network(given.x), labels)
    torch.testing.assert_close(terms.parts["worst"], worst)
    torch.testing.assert_close(terms.loss, 0.25 * clean + 0.75 * worst)
    scattered = torch.stack([low + (high - low) * torch.rand_like(low) for _ in range(200)])
    seen = torch.stack([functional.cross_entropy(network(one), labels) for one in scattered])
    assert (seen <= worst).all()
    share = 1 - verified(network, given.x, labels, torch.full((8,), 0.05)).float().mean()
    torch.testing.assert_close(terms.parts["unverified"], share)


def test_the_schedule_begins_clean_and_ends_at_its_settings() -> None:
    objective = IBPTraining(epsilon=0.4, kappa=0.5, warmup=10, ramp=20)
    assert objective.at(0) == objective.at(10) == (0.0, 1.0)
    assert objective.at(20) == (pytest.approx(0.2), pytest.approx(0.75))
    assert objective.at(30) == objective.at(10**6) == (pytest.approx(0.4), 0.5)
    network = linear()
    begun = objective(network, batch(), 0)
    torch.testing.assert_close(begun.loss, begun.parts["cross_entropy"])
    torch.testing.assert_close(begun.parts["worst"], begun.parts["cross_entropy"])
    judged = objective(network, batch(evaluating=True), 0)
    assert judged.parts["worst"] > judged.parts["cross_entropy"], "held-out data is judged by the last settings"


def test_batch_norm_learns_from_clean_images_and_stays_fixed_for_intervals() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 3, 2), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(3, 3)).train()
    terms = IBPTraining(warmup=0, ramp=0, epsilon=0.1)(network, batch(), 0)
    assert network[1].num_batches_tracked == 1
    assert network.training
    terms.loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


def test_a_few_steps_verify_more_images() -> None:
    """Gradient descent on the loss of the worst scores, by hand: it is that loss that verifies."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    x = torch.eye(4)[:3].repeat(4, 1).reshape(12, 1, 2, 2)
    given = Batch(x, 12, target=torch.arange(12)[:, None] % 3, classes=(3,))
    objective = IBPTraining(epsilon=0.1, warmup=0, ramp=0)
    before = objective(network, given, 0).parts["unverified"]
    for _ in range(60):
        gradients = torch.autograd.grad(objective(network, given, 0).loss, list(network.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(network.parameters(), gradients, strict=True):
                parameter -= 0.5 * gradient
    assert objective(network, given, 0).parts["unverified"] == 0
    assert before > 0.5


class Unknown(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return functional.gelu(x.flatten(1)[:, :3])


def test_networks_and_settings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="no interval rule for gelu"):
        IBPTraining()(Unknown(), batch(), 0)
    with pytest.raises(ValueError, match="weight from 0 to 1"):
        IBPTraining(kappa=1.5)
    with pytest.raises(ValueError, match="epsilon is -1"):
        IBPTraining(epsilon=-1.0)
    with pytest.raises(ValueError, match="bring it to"):
        IBPTraining()(linear(), Batch(torch.randn(4, 1, 2, 2), 4, target=torch.zeros(4, 1), classes=(3,)), 0)
