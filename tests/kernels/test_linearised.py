"""Linearised networks: linear in their parameters, twins of their originals, and exactly solvable."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from polariscope.kernels import (
    Descent,
    GradientFlow,
    as_matrix,
    critical_rate,
    descend,
    linearise,
    solve_exactly,
    tangent_kernel,
)
from polariscope.kernels.linearised import accuracy
from polariscope.nets.classifiers import Weights, freeze_all_but_last, lenet, mlp


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def direction(model: nn.Module, seed: int) -> dict[str, torch.Tensor]:
    return {name: normal(*p.shape, seed=seed + i) for i, (name, p) in enumerate(model.named_parameters())}


@pytest.mark.spec("000/F018")
def test_adjoint_affine_and_finite_differences():
    model = lenet(shape=(1, 12, 12), outputs=3).double()
    network = linearise(model)
    x, g = normal(4, 1, 12, 12), normal(4, 3, seed=1)
    u, v = direction(model, 2), direction(model, 50)
    pushed, pulled = network.jvp(x, u), network.vjp(x, g)
    inner = sum((u[name] * pulled[name]).sum() for name in u)
    assert (pushed * g).sum().item() == pytest.approx(inner.item(), rel=1e-12)
    step = 1e-6
    moved = {name: p.detach() + step * u[name] for name, p in model.named_parameters()}
    difference = (torch.func.functional_call(model, moved, (x,)) - model(x)) / step
    torch.testing.assert_close(pushed, difference, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(network(x), model(x))  # u = 0
    network.displace({name: 0.3 * u[name] - 2 * v[name] for name in u})
    torch.testing.assert_close(network(x), model(x) + 0.3 * network.jvp(x, u) - 2 * network.jvp(x, v))


@pytest.mark.spec("000/F018")
def test_both_twins_have_the_same_gradient_at_the_start():
    model = lenet(shape=(1, 12, 12), outputs=3).double()
    network = linearise(model)
    x, y = normal(5, 1, 12, 12), normal(5, 3, seed=1)
    for twin in (model, network):
        (twin(x) - y).square().sum(-1).mean().backward()
    for (name, p), u in zip(model.named_parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(u.grad, p.grad, msg=name)


def test_the_original_is_a_copy_that_does_not_move():
    model = mlp(3, (8,), 2).double()
    network = linearise(model)
    x = normal(4, 3)
    before = model(x).detach()
    descend(network, x, normal(4, 2, seed=1), Descent(rate=0.05, epochs=3))
    torch.testing.assert_close(network.initial(x), before)
    with torch.no_grad():
        model[1].weight.add_(1)
    torch.testing.assert_close(network.initial(x), before)
    assert sum(p.numel() for p in network.parameters()) == sum(p.numel() for p in model.parameters())
    assert network.float().initial(x.float()).dtype == torch.float32


@pytest.mark.parametrize(("samples", "ridge"), [(6, 0.0), (6, 0.1), (40, 0.1)])
def test_kernel_and_parameter_space_agree(samples, ridge):
    model = mlp(3, (7,), 2, activation=nn.Tanh).double()  # 44 parameters: 12 outputs, then 80
    x, y, other = normal(samples, 3), normal(samples, 2, seed=1), normal(5, 3, seed=2)
    twins = [linearise(model), linearise(model)]
    solutions = [
        solve_exactly(twin, x, y, ridge, space) for twin, space in zip(twins, ("kernel", "parameter"), strict=True)
    ]
    for first, second in zip(*(twin.parameters() for twin in twins), strict=True):
        torch.testing.assert_close(first, second, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(twins[0](other), twins[1](other), rtol=1e-6, atol=1e-8)
    if ridge:
        residual = y - twins[0](x)
        torch.testing.assert_close(residual, ridge * solutions[0].dual, rtol=1e-6, atol=1e-8)
    else:
        torch.testing.assert_close(twins[0](x), y, rtol=1e-6, atol=1e-8)


def test_more_outputs_than_parameters_is_least_squares():
    model = mlp(3, (4,), 2, activation=nn.Tanh).double()
    x, y = normal(40, 3), normal(40, 2, seed=1)
    network = linearise(model)
    solution = solve_exactly(network, x, y)  # chooses parameter space
    assert solution.rank <= sum(p.numel() for p in model.parameters())
    gradient = network.vjp(x, network(x).detach() - y)
    assert max(g.abs().max().item() for g in gradient.values()) < 1e-9


@pytest.mark.spec("000/F019")
def test_full_batch_descent_follows_the_flow():
    model = mlp(4, (30,), 2, Weights("ntk")).double()
    x, y = normal(5, 4), normal(5, 2, seed=1)
    network = linearise(model)
    kernel = as_matrix(tangent_kernel(model, x))
    rate, epochs = 2e-3, 200
    descend(network, x, y, Descent(rate=rate, momentum=0.0, batch=0, epochs=epochs))
    # the loss is a mean over 5 inputs without the ½, so the flow's rate is 2/5 of the descent's
    flow = GradientFlow(kernel, y.flatten(), network.initial(x).flatten(), rate=2 * rate / 5)
    assert (network(x).flatten() - flow.train(epochs)).abs().max() < 5e-3
    assert (network(x).flatten() - flow.train(0)).abs().max() > 0.1


@pytest.mark.spec("000/F021")
def test_wide_networks_are_lazy():
    """Distances to the linearisation and of the kernel fall at least as width^-0.4, that of the parameters as -0.5."""
    x, y, other = normal(8, 5), normal(8, 1, seed=1), normal(5, 5, seed=2)
    widths, result = (32, 96, 288), []
    for width in widths:
        rows = []
        for seed in range(6):
            model = mlp(5, (width, width), 1, Weights("ntk"), seed=seed).double()
            network = linearise(model)
            start = [p.detach().clone() for p in model.parameters()]
            kernel = tangent_kernel(model, x, kind="trace")
            how = Descent(rate=critical_rate(kernel) * 8 / 4, momentum=0.0, batch=0, epochs=50)
            paths = [descend(twin, x, y, how, probe=other, every=10).trajectory for twin in (model, network)]
            moved = sum((p - q).square().sum().item() for p, q in zip(model.parameters(), start, strict=True)) ** 0.5
            drift = (tangent_kernel(model, x, kind="trace") - kernel).norm() / kernel.norm()
            rows.append([(paths[0] - paths[1]).abs().max().item(), drift.item(), moved / math.sqrt(width)])
        result.append(np.mean(rows, axis=0))
    slopes = np.polyfit(np.log(widths), np.log(result), 1)[0]
    assert slopes[0] <= -0.4
    assert slopes[1] <= -0.4
    assert slopes[2] == pytest.approx(-0.5, abs=0.1)


@pytest.mark.spec("000/F096")
def test_trajectories_of_the_twins_come_closer_with_width():
    x, y, probe = (
        normal(30, 6, dtype=torch.float32),
        normal(30, 2, seed=1, dtype=torch.float32),
        normal(3, 6, seed=2).float(),
    )

    def distance(width: int) -> float:
        model = mlp(6, (width,), 2, Weights("ntk"), seed=3)
        how = Descent(rate=0.05, momentum=0.0, batch=10, epochs=10)
        twins = [descend(twin, x, y, how, probe, every=5).trajectory for twin in (linearise(model), model)]
        assert twins[0].shape == (6 + 1, 3, 2)
        assert torch.equal(twins[0][0], twins[1][0])  # the same function at first
        return float((twins[0] - twins[1]).abs().mean())

    assert distance(1024) < 0.5 * distance(16)


@pytest.mark.spec("000/F082")
def test_last_layer_alone_is_ridge_on_fixed_features():
    model = freeze_all_but_last(lenet(shape=(1, 12, 12), outputs=3)).double()
    x, y = normal(20, 1, 12, 12), normal(20, 3, seed=1)
    with torch.no_grad():
        features = torch.cat([model[:-1](x), torch.ones(20, 1, dtype=torch.float64)], 1)
        start = torch.cat([model.output.weight, model.output.bias[:, None]], 1)
    network = linearise(model)
    solve_exactly(network, x, y, ridge=0.2)
    gram = features.T @ features + 0.2 * torch.eye(features.shape[1])
    expected = torch.linalg.solve(gram, features.T @ (y - features @ start.T)).T
    result = torch.cat([network.displacements[0], network.displacements[1][:, None]], 1)
    torch.testing.assert_close(result.detach(), expected)


def test_batches_depend_on_the_seed_alone_and_cover_the_data():
    how = Descent(batch=4, epochs=2, seed=7)
    first, second, other = how.batches(12), how.batches(12), Descent(batch=4, seed=8).batches(12)
    assert how.training(12).steps == 2 * 3
    for epoch in (0, 1):
        seen = [first[3 * epoch + i] for i in range(3)]
        assert sorted(np.concatenate(seen)) == list(range(12))
        assert all(np.array_equal(second[3 * epoch + i], batch) for i, batch in enumerate(seen))
    assert not np.array_equal(second[0], other[0])


def test_rate_drops_decay_and_divergence():
    x, y = normal(6, 3), normal(6, 2, seed=1)

    def end(**settings: float) -> torch.Tensor:
        model = mlp(3, (5,), 2).double()
        history = descend(model, x, y, Descent(batch=0, momentum=0.0, **settings))
        assert len(history.losses) == settings["epochs"]
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    two = end(rate=0.1, epochs=2)
    torch.testing.assert_close(end(rate=0.1, epochs=4, drop_every=2, drop=0.0), two)
    assert not torch.equal(end(rate=0.1, epochs=4), two)
    assert end(rate=0.1, epochs=9, weight_decay=0.5).norm() < end(rate=0.1, epochs=9).norm()
    history = descend(linearise(mlp(3, (5,), 2).double()), x, y, Descent(rate=1e6, epochs=500))
    assert history.diverged
    assert len(history.losses) < 500


def test_accuracy_of_many_outputs_and_of_one():
    x = torch.tensor([[0.9, 0.1], [0.2, 0.7], [0.6, 0.4]])
    assert accuracy(lambda z: z, x, torch.tensor([0, 1, 1])) == pytest.approx(2 / 3)
    assert accuracy(lambda z: z[:, :1], x, torch.tensor([1, 0, 0])) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda: linearise(nn.Linear(2, 1).requires_grad_(False)), "cannot be linearised"),
        (lambda: solve_exactly(linearise(nn.Linear(2, 1)), torch.ones(3, 2), torch.ones(3)), "shape of the outputs"),
        (lambda: solve_exactly(linearise(nn.Linear(2, 1)), torch.ones(3, 2), torch.ones(3, 1), space="dual"), "space"),
        (
            lambda: solve_exactly(
                linearise(nn.Linear(2, 1)), torch.ones(3, 2), torch.ones(3, 1), space="parameter", memory=8
            ),
            "space='kernel'",
        ),
        (lambda: Descent(rate=0), "positive rate"),
        (lambda: descend(nn.Linear(2, 1), torch.ones(3, 2), torch.ones(2, 1), Descent()), "same length"),
    ],
)
def test_wrong_input_is_refused_in_a_sentence(wrong, sentence):
    with pytest.raises(ValueError, match=sentence):
        wrong()


def test_a_network_without_fixed_features_is_not_linearised() -> None:
    """Its linearisation kept dropping units at random, whatever mode it was in itself."""
    model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 1))
    with pytest.raises(ValueError, match=r"training mode; call model.eval\(\) first"):
        linearise(model)
    linear, x = linearise(model.eval()), torch.randn(5, 3)
    torch.testing.assert_close(linear.train()(x), model(x))
