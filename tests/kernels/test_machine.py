"""Kernel machines: primal against dual, Gaussian processes, flows against descent, and singular matrices."""

import math

import numpy as np
import pytest
import torch

from polariscope.kernels import (
    Dense,
    GradientFlow,
    IllConditioned,
    KernelMachine,
    Relu,
    Stack,
    as_matrix,
    critical_rate,
    rank_of_spectrum,
    rbf,
    solve,
    spectrum,
    tangent_kernel,
)
from polariscope.kernels.machine import (
    RIDGES,
    is_positive_semidefinite,
    largest_rate,
    leave_one_out_ridge,
    linear,
    one_hot,
)
from polariscope.kernels.regression import ridge_weights
from polariscope.nets.classifiers import Weights, mlp


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.spec("000/F005")
@pytest.mark.parametrize("features", [5, 40])
def test_primal_and_dual_agree(features):
    x, y, other = normal(20, features), normal(20, 3, seed=1), normal(7, features, seed=2)
    fitted = KernelMachine(linear, ridge=0.3, relative=False).fit(x, y)
    weights = ridge_weights(x.numpy(), y.numpy(), 0.3)
    np.testing.assert_allclose(fitted.predict(other), other.numpy() @ weights, atol=1e-10)
    residual = y - linear(x) @ fitted.solution.dual
    torch.testing.assert_close(residual, 0.3 * fitted.solution.dual, rtol=1e-10, atol=1e-10)


@pytest.mark.spec("000/F006")
def test_norms_and_positive_definiteness():
    x, y = normal(12, 3), normal(12, 2, seed=1)
    fitted = KernelMachine(linear, ridge=0.5, relative=False).fit(x, y)
    weights = ridge_weights(x.numpy(), y.numpy(), 0.5)
    np.testing.assert_allclose(fitted.norm, (weights**2).sum(0))
    assert is_positive_semidefinite(linear(x))
    assert not is_positive_semidefinite(linear(x) - 0.1 * torch.eye(12))


@pytest.mark.spec("000/F008")
def test_rbf_values_and_positive_definiteness():
    x = normal(30, 4)
    kernel = rbf(1.5)(x, None)
    expected = math.exp(-float((x[3] - x[8]).square().sum()) / (2 * 1.5**2))
    assert kernel[3, 8].item() == pytest.approx(expected, rel=1e-12)
    assert torch.equal(kernel.diagonal(), torch.ones(30, dtype=torch.float64))
    assert torch.linalg.eigvalsh(kernel)[0] > 0
    torch.testing.assert_close(rbf(1.5)(x[:2], x), kernel[:2])
    with pytest.raises(ValueError, match="bandwidth"):
        rbf(0)


@pytest.mark.spec("000/F009")
def test_gaussian_process_regression():
    x, y, other = normal(10, 2), normal(10, seed=1), normal(4, 2, seed=2)
    kernel = rbf(1.0)
    machine = KernelMachine(kernel, ridge=0.2, relative=False)
    mean, cov = machine.fit(x, y).posterior(other)
    inverse = torch.linalg.inv(kernel(x, None) + 0.2 * torch.eye(10))
    torch.testing.assert_close(mean, kernel(other, x) @ inverse @ y)
    torch.testing.assert_close(cov, kernel(other, None) - kernel(other, x) @ inverse @ kernel(x, other))
    assert torch.linalg.eigvalsh(cov)[0] > 0
    single = KernelMachine(kernel, ridge=0.2, relative=False).fit(x[:1], y[:1]).posterior(x[:1])
    assert single.cov.item() == pytest.approx(0.2 * 1 / (1 + 0.2))
    interpolated = KernelMachine(kernel, ridge=1e-10, relative=False).fit(x, y)
    torch.testing.assert_close(interpolated.predict(x), y, rtol=0, atol=1e-6)


@pytest.mark.spec("000/F023")
def test_classifier_with_absolute_and_relative_ridge():
    centres = 2 * normal(3, 5, seed=4)
    labels = torch.arange(60) % 3
    x = centres[labels] + 0.5 * normal(60, 5)
    stack = Stack((Dense(), Relu(), Dense()))
    machine = KernelMachine(stack.ntk, ridge=1e-6)
    fitted = machine.fit(x[:40], one_hot(labels[:40], 3))
    scores = fitted.predict(x[40:])
    assert torch.equal(fitted.classify(x[40:]), scores.argmax(-1))
    assert (fitted.classify(x[40:]) == labels[40:]).double().mean() >= 0.9
    added = 1e-6 * stack.ntk(x[:40]).diagonal().mean()
    assert fitted.solution.ridge == pytest.approx(added.item())
    absolute = KernelMachine(stack.ntk, ridge=added.item(), relative=False).fit(x[:40], one_hot(labels[:40], 3))
    torch.testing.assert_close(absolute.predict(x[40:]), scores)


def test_full_kernels_and_a_prior_mean_make_the_trained_linearised_network():
    net = mlp(3, (50,), 2, Weights("ntk"), seed=1).double()
    x, y, other = normal(8, 3), normal(8, 2, seed=1), normal(5, 3, seed=2)

    def prior(inputs: torch.Tensor) -> torch.Tensor:
        return net(inputs).detach()

    fitted = KernelMachine(lambda a, b: tangent_kernel(net, a, b), 1e-3, False, prior).fit(x, y)
    kernel = as_matrix(tangent_kernel(net, x)) + 1e-3 * torch.eye(16)
    dual = torch.linalg.solve(kernel, (y - prior(x)).flatten())
    expected = prior(other) + (as_matrix(tangent_kernel(net, other, x)) @ dual).view(5, 2)
    torch.testing.assert_close(fitted.predict(other), expected)
    with pytest.raises(ValueError, match="posterior"):
        fitted.posterior(other)


@pytest.mark.spec("000/F089")
@pytest.mark.parametrize(
    ("values", "rank"), [([1.0] * 7, 7), ([5.0, 0.0], 1), ([2.0, 1.0, 1.0], 2.828427), ([3.0, 1.0], 1.754765)]
)
def test_effective_rank_examples(values, rank):
    assert rank_of_spectrum(torch.tensor(values)) == pytest.approx(rank, abs=1e-6)
    # the singular values of a Jacobian are the roots of the eigenvalues of its kernel
    turn = torch.linalg.qr(normal(len(values), len(values)))[0]
    jacobian = torch.diag(torch.tensor(values, dtype=torch.float64)) @ turn
    result = spectrum(jacobian @ jacobian.T)
    assert result.effective_rank == pytest.approx(rank, abs=1e-6)
    assert result.rank == sum(v > 0 for v in values)
    assert result.condition == pytest.approx(max(values) / min(v for v in values if v > 0))


@pytest.mark.filterwarnings("default")
def test_singular_matrices_are_reported_and_solved_in_their_range():
    basis = normal(8, 3)
    kernel = basis @ basis.T
    y = normal(8, 2, seed=1)
    with pytest.warns(IllConditioned, match=r"in 3 of 8 directions \(effective rank [23]\.\d\)"):
        result = solve(kernel, y)
    assert result.rank == 3
    assert torch.isfinite(result.dual).all()
    torch.testing.assert_close(result.dual, torch.linalg.pinv(kernel, hermitian=True) @ y, rtol=1e-8, atol=1e-8)


@pytest.mark.filterwarnings("default")
def test_nearly_singular_matrices_are_noticed_although_they_factorise():
    kernel = torch.diag(torch.tensor([1.0, 0.5, 1e-17], dtype=torch.float64))
    assert torch.linalg.cholesky_ex(kernel).info == 0
    with pytest.warns(IllConditioned, match="in 2 of 3"):
        assert solve(kernel, torch.ones(3)).dual.tolist() == pytest.approx([1.0, 2.0, 0.0])


def test_condition_is_that_of_the_matrix_solved():
    kernel = torch.diag(torch.tensor([4.0, 1.0, 0.5], dtype=torch.float64))
    result = solve(kernel, torch.ones(3), ridge=0.5)
    assert result.condition == pytest.approx(4.5)
    assert result.rank == 3


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda: solve(torch.full((2, 2), torch.nan), torch.ones(2)), "NaN"),
        (lambda: solve(torch.eye(2), torch.tensor([1.0, torch.inf])), "targets contain"),
        (lambda: solve(torch.eye(2), torch.ones(3)), "as many rows"),
        (lambda: solve(torch.eye(2), torch.ones(2), ridge=-1), "non-negative"),
        (lambda: solve(torch.ones(2, 3), torch.ones(2)), "square"),
        (lambda: solve(-torch.eye(2), torch.ones(2)), "no positive eigenvalue"),
        (lambda: spectrum(torch.zeros(2, 2)), "no positive eigenvalue"),
        (lambda: rank_of_spectrum(torch.tensor([-1.0, 2.0])), "non-negative"),
        (lambda: GradientFlow(torch.eye(2), torch.ones(3)), "as many targets"),
        (lambda: GradientFlow(torch.eye(2), torch.ones(2)).train(-1), "from 0"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(wrong, sentence):
    with pytest.raises(ValueError, match=sentence):
        wrong()


@pytest.mark.spec("000/F019")
def test_flow_agrees_with_gradient_descent():
    jacobian, y, start = normal(6, 30), normal(6, seed=1), normal(6, seed=2)
    other, start_other = normal(4, 30, seed=3), normal(4, seed=4)
    rate, steps = 1e-3, 4000
    u = torch.zeros(30, dtype=torch.float64)
    for _ in range(steps):
        u -= rate * jacobian.T @ (start + jacobian @ u - y)
    for time in (0.0, rate * steps, math.inf):
        flow = GradientFlow(jacobian @ jacobian.T, y, start)
        decay = torch.linalg.matrix_exp(-jacobian @ jacobian.T * min(time, 1e3))
        torch.testing.assert_close(flow.train(time), y + decay @ (start - y), rtol=1e-8, atol=1e-8)
    flow = GradientFlow(jacobian @ jacobian.T, y, start, rate=rate)  # in steps of descent
    for result, exact in (
        (start + jacobian @ u, flow.train(steps)),
        (start_other + other @ u, flow.predict(other @ jacobian.T, steps, start_other)),
        (u, jacobian.T @ flow.dual(steps)),
    ):
        assert 0 < (result - exact).abs().max() < 1e-3
    torch.testing.assert_close(flow.predict(other @ jacobian.T, 0.0, start_other), start_other)


@pytest.mark.spec("000/F024")
def test_flow_ends_in_kernel_regression():
    x, other, y = normal(7, 4), normal(3, 4, seed=1), normal(7, 2, seed=2)
    ntk = Stack((Dense(), Relu(), Dense())).ntk
    flow = GradientFlow(ntk(x), y)
    fitted = KernelMachine(ntk, ridge=0.0).fit(x, y)
    torch.testing.assert_close(flow.predict(ntk(other, x), math.inf), fitted.predict(other))
    torch.testing.assert_close(flow.predict(ntk(other, x), 1e6), fitted.predict(other))


def test_flow_leaves_alone_what_the_kernel_does_not_reach():
    direction = normal(5, 2)
    kernel = direction @ direction.T
    y, start = normal(5, seed=1), normal(5, seed=2)
    inside = direction @ torch.linalg.pinv(direction)
    for time in (3.0, math.inf):
        end = GradientFlow(kernel, y, start).train(time)
        torch.testing.assert_close(end - inside @ end, start - inside @ start)
    torch.testing.assert_close(inside @ end, inside @ y)


@pytest.mark.spec("000/F020")
@pytest.mark.parametrize("time", [0.0, 0.4, math.inf])
def test_law_of_trained_networks_is_that_of_an_ensemble(time):
    """Draw outputs at initialisation from the NNGP, train each draw by the flow, and compare moments."""
    x, other, y = normal(5, 3), normal(4, 3, seed=1), normal(5, seed=2)
    stack = Stack((Dense(), Relu(), Dense(bias_var=0.1)))
    both = torch.cat([x, other])
    nngp, ntk = stack.kernels(both)
    law = GradientFlow(ntk[:5, :5], y[:, None]).law(ntk[5:, :5], nngp[:5, :5], nngp[5:, :5], nngp[5:, 5:], time)
    draws = torch.linalg.cholesky(nngp) @ normal(9, 20_000, seed=3)
    flow = GradientFlow(ntk[:5, :5], y[:, None].expand(-1, 20_000), draws[:5])
    trained = flow.predict(ntk[5:, :5], time, draws[5:])
    scale = trained.std(1)
    assert bool(((trained.mean(1) - law.mean[:, 0]).abs() < 5 * scale / 20_000**0.5).all())
    torch.testing.assert_close(torch.cov(trained), law.cov, rtol=0.1, atol=0.05 * float(law.cov.diagonal().max()))
    if time == 0:
        torch.testing.assert_close(law.cov, nngp[5:, 5:])
    assert is_positive_semidefinite(law.cov)


@pytest.mark.spec("000/F021")
def test_critical_rates():
    jacobian, y = normal(5, 20), normal(5, seed=1)
    kernel = jacobian @ jacobian.T
    values = torch.linalg.eigvalsh(kernel)

    def error(rate: float, steps: int = 300) -> float:
        f = torch.zeros(5, dtype=torch.float64)
        for _ in range(steps):
            f = f - rate * kernel @ (f - y)
        return float((f - y).norm())

    limit, best = largest_rate(kernel), critical_rate(kernel)
    assert best == pytest.approx(float(2 / (values[0] + values[-1])))
    assert error(1.01 * limit) > 10 > 1 > error(0.99 * limit)
    assert error(best, 20) < min(error(0.7 * best, 20), error(1.1 * best, 20))


def test_the_ridge_by_leaving_one_out_is_that_of_brute_force() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(12, 3, dtype=torch.float64), torch.randn(12, dtype=torch.float64)
    kernel = linear(x) + 0.5 * torch.eye(12, dtype=torch.float64)

    def error(ridge: float) -> float:
        total = 0.0
        for out in range(12):
            kept = [row for row in range(12) if row != out]
            own = kernel[kept][:, kept] + ridge * kernel.diagonal().mean() * torch.eye(11, dtype=torch.float64)
            total += float((kernel[out, kept] @ torch.linalg.solve(own, y[kept]) - y[out]) ** 2)
        return total

    expected = min(RIDGES, key=error)
    assert leave_one_out_ridge(kernel, y) == leave_one_out_ridge(kernel, y[:, None]) == expected
