"""Planted defences that hide that they are not robust: each is detected, and honest classifiers raise no alarm."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from polariscope.robustness.attacks import Attacked
from polariscope.robustness.trust import compare_attacks, more_steps_do_worse, probe, zero_gradient_warnings
from polariscope.subjects import as_subject

SIDE = 6


class Plain(nn.Module):
    """A smooth network that is trained by nobody: random, but honest."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            self.layers = nn.Sequential(nn.Flatten(), nn.Linear(SIDE**2, 32), nn.ELU(), nn.Linear(32, 4))

    def forward(self, x: Tensor) -> Tensor:
        return 4 * self.layers(x)


class Stochastic(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + 0.1 * torch.randn_like(x))


class Masked(Plain):
    """Gradients are cut off."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).detach() + 0 * x.sum()


class Quantised(Plain):
    """Pixels are rounded to five levels."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward((4 * x).round() / 4)


class Shattered(Plain):
    """The gradient is that of another network."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.other = Plain(seed + 100)

    def forward(self, x: Tensor) -> Tensor:
        decoy = self.other(x)
        return super().forward(x).detach() + decoy - decoy.detach()


class Saturated(Plain):
    """Logits so large that the softmax of float32 is exactly 0 or 1."""

    def forward(self, x: Tensor) -> Tensor:
        return (1e6 * super().forward(x)).softmax(1)


class Softmax(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).softmax(1)


class Sigmoid(Plain):
    """One probability for two classes."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)[:, :1].sigmoid()


class Optimising(Plain):
    """Moves its input by a gradient step before it answers."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            moved = x.detach().clone().requires_grad_()
            (slope,) = torch.autograd.grad(super().forward(moved).square().sum(), moved)
        return super().forward(x - 1e-3 * slope)


class LeftInTraining(Plain):
    """Batch statistics in evaluation mode, too."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(nn.functional.batch_norm(x, None, None, training=True))


ZOO = {
    Stochastic: "random outputs",
    Masked: "zero gradients",
    Quantised: "steps",
    Shattered: "misleading gradients",
    Saturated: "probabilities",
    Softmax: "probabilities",
    Sigmoid: "probabilities",
    Optimising: "optimisation at inference",
    LeftInTraining: "batch dependence",
}


def probed(network: nn.Module, seed: int = 0) -> list[str]:
    x = torch.rand(16, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(seed))
    subject = as_subject(network)
    y = subject.scores(x).detach().argmax(1)
    return [warning.name for warning in probe(subject, x, y, seed=seed)]


@pytest.mark.parametrize("defence", ZOO, ids=lambda defence: defence.__name__)
def test_every_planted_defence_is_detected(defence: type[Plain]) -> None:
    for seed in range(5):
        assert ZOO[defence] in probed(defence(seed), seed)


def test_honest_classifiers_raise_no_alarm() -> None:
    assert [probed(Plain(seed), seed) for seed in range(40)] == [[]] * 40
    torch.manual_seed(0)
    logit = nn.Sequential(Plain(), nn.Linear(4, 1))
    assert probed(logit) == [], "a single output that is no probability"


def test_a_function_without_gradient_says_so() -> None:
    class Numpy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            flat = x.detach().flatten(1)
            return torch.stack([flat.mean(1), 1 - flat.mean(1)], 1)

    assert "no gradient" in probed(Numpy())


def result(name: str, distances: list[float], epsilons: tuple[float, ...] = (), zero: int = 0) -> Attacked:
    n = len(distances)
    ones = np.ones(n, np.int64)
    return Attacked(
        (name,), "l2", torch.zeros(n, 1), np.array(distances), 10 * ones, 10 * ones, zero * ones, 0 * ones, epsilons
    )


def test_a_dropout_that_stays_on_is_named() -> None:
    (warning,) = probe(as_subject(Stochastic()), torch.rand(4, 1, SIDE, SIDE), torch.zeros(4, dtype=torch.long))
    assert (warning.name, "a dropout may be on in evaluation mode" in warning.advice) == ("random outputs", True)


def test_weaker_attacks_that_win_are_a_warning() -> None:
    white = {"pgd steps=20": result("pgd", [1.0] * 8)}
    names = [w.name for w in compare_attacks(white | {"pointwise": result("pointwise", [0.5] * 3 + [2.0] * 5)})]
    assert names == ["black box beats white box"]
    assert compare_attacks(white | {"pointwise": result("pointwise", [0.5] + [2.0] * 7)}) == []
    names = [w.name for w in compare_attacks(white | {"transfer of=pgd": result("transfer", [0.1] * 8)})]
    assert names == ["transfer beats white box"]
    assert compare_attacks({"ddn": result("ddn", [0.0] * 4), "boundary": result("boundary", [0.0] * 4)}) == []


def test_an_attack_without_a_limit_that_fails_is_a_warning() -> None:
    failing = compare_attacks({"ddn": result("ddn", [1.0, np.inf])})
    assert [w.name for w in failing] == ["unbounded attack fails"]
    assert "50%" in failing[0].evidence
    assert compare_attacks({"ddn": result("ddn", [1.0, np.inf])}, boundless=False) == []


def test_zero_gradients_and_more_steps() -> None:
    assert zero_gradient_warnings({"pgd": result("pgd", [1.0, 1.0], zero=5)})[0].name == "zero gradients"
    assert zero_gradient_warnings({"pgd": result("pgd", [1.0, 1.0], zero=1)}) == []
    assert zero_gradient_warnings({"sigma-zero": result("sigma-zero", [1.0], zero=9)}) == []
    few, many = result("pgd", [0.1, 0.1], (0.3,)), result("pgd", [0.1, np.inf], (0.3,))
    assert more_steps_do_worse(few, many, (10, 100))[0].name == "more steps do worse"
    assert more_steps_do_worse(many, few, (10, 100)) == []
