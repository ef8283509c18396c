"""Frozen kernels: the flow and its dual, support vectors, the lazy limit, and kernels of trained nets."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.datasets import load_digits
from sklearn.svm import SVC
from torch import nn

from polariscope.kernels.empirical import tangent_kernel
from polariscope.kernels.flow_nets import MeanFieldNet, ModuleNet
from polariscope.kernels.frozen import (
    INFINITE_WIDTH,
    NetKernel,
    hard_margin,
    hinge_flow,
    laplace,
    learn_frozen,
    logistic_regression,
)
from polariscope.kernels.gradient_flow import Flow, train_flow
from polariscope.kernels.machine import linear, rbf
from polariscope.nets.classifiers import NTKConv2d, NTKLinear
from polariscope.worlds.points.stripes import Stripe, compress

WORLD = Stripe(dimension=5)
TEST = WORLD.sample(20_000, 999)


def sample(count: int, seed: int) -> tuple[torch.Tensor, np.ndarray]:
    x, y = WORLD.sample(count, seed)
    return torch.from_numpy(x), y


@pytest.mark.spec("004/F35")
def test_the_flow_ends_fitted_and_its_dual_says_so():
    x, y = sample(200, 0)
    gram = INFINITE_WIDTH.ntk(x)
    fit = hinge_flow(gram, y)
    assert fit.active == 0
    assert (y * fit.outputs >= 1 - 1e-9).all()
    np.testing.assert_allclose(fit.outputs, gram.numpy() @ fit.dual)
    assert (y * fit.dual >= 0).all()  # no example is ever pushed away from its label
    finer, scaled = hinge_flow(gram, y, change=0.02), hinge_flow(7 * gram, y)
    assert finer.steps > 3 * fit.steps
    np.testing.assert_allclose(scaled.outputs, fit.outputs, rtol=1e-6)
    assert scaled.time == pytest.approx(fit.time / 7, rel=1e-6)
    short = hinge_flow(gram, y, steps=20)
    assert (short.steps, short.active > 0) == (20, True)


@pytest.mark.spec("004/F35")
def test_a_lazy_net_is_its_frozen_kernel():
    x, y = sample(100, 0)
    net = MeanFieldNet.draw(5, 300, seed=0)
    lazy = train_flow(net, x, y, Flow(alpha=1e6, change=0.1, early_change=0.1, steps=8000), every=1000)
    frozen = learn_frozen(NetKernel(net), x, y)
    assert lazy.active == frozen.fit.active == 0
    assert lazy.error(*TEST) == pytest.approx(frozen.error(*TEST), abs=0.01)
    points = TEST[0][:500]
    assert np.corrcoef(lazy.predict(points), frozen.predict(points))[0, 1] > 0.999


@pytest.mark.spec("004/F35", "004/F40")
@pytest.mark.parametrize("part", ["tangent", "last_layer"])
def test_functions_of_a_nets_kernel_are_evaluated_without_the_kernel(part):
    net, (x, _) = MeanFieldNet.draw(5, 200, seed=1), sample(40, 0)
    kernel = NetKernel(net, part)
    dual = torch.from_numpy(np.random.default_rng(0).standard_normal(40))
    other = sample(3000, 1)[0]
    torch.testing.assert_close(kernel.expand(x, dual)(other), kernel(other, x) @ dual, rtol=1e-10, atol=1e-10)


@pytest.mark.spec("004/F36")
def test_the_hard_margin_machine_is_that_of_scikit_learn_and_near_the_flow():
    flow, machine = [], []
    for seed in range(4):
        x, y = sample(256, seed)
        gram = INFINITE_WIDTH.ntk(x)
        flow.append(learn_frozen(INFINITE_WIDTH.ntk, x, y).error(*TEST))
        machine.append(learn_frozen(INFINITE_WIDTH.ntk, x, y, "svc").error(*TEST))
    fit = hard_margin(gram, y)
    peer = SVC(C=1e8, kernel="precomputed").fit(gram, y)
    np.testing.assert_allclose(fit.outputs, peer.decision_function(gram), atol=0.02)
    assert fit.active == 0
    assert np.median(machine) == pytest.approx(np.median(flow), rel=0.2)
    assert np.mean(machine) != np.mean(flow)


def test_the_laplace_kernel_is_its_formula():
    x, other = sample(6, 0)[0], sample(4, 1)[0]
    distance = (x[:, None] - other).square().sum(2).sqrt()
    torch.testing.assert_close(laplace(3.0)(x, other), torch.exp(-distance / 3))
    with pytest.raises(ValueError, match="scale"):
        laplace(0.0)


def test_compression_and_trained_kernels_account_for_the_gain_of_features():
    """One network; over many and at every number of points, the study of learning curves says so."""
    quick = {"change": 0.3, "steps": 2000}
    (x, y), fresh, held_out = sample(256, 0), sample(256, 100), (TEST[0][:5000], TEST[1][:5000])
    net = MeanFieldNet.draw(5, 200, 0, torch.float32)
    done = train_flow(net, x, y, Flow(momentum=0.9, steps=600), informative=1, every=100)
    factor = done.t_star.amplification
    wide = NetKernel(MeanFieldNet.draw(5, 1000, 0))  # as published: the kernel of a finite net at its start
    squeezed = learn_frozen(wide, compress(x.numpy(), 1, factor), y, change=0.3)
    error = {
        name: learn_frozen(kernel, *fresh, **quick).error(*held_out)
        for name, kernel in {
            "end": NetKernel(done.at("end")),
            "last start": NetKernel(net, "last_layer"),
            "last end": NetKernel(done.at("end"), "last_layer"),
        }.items()
    }
    feature, lazy = done.error(*held_out), learn_frozen(INFINITE_WIDTH.ntk, x, y, change=0.3).error(*held_out)
    assert feature < 0.6 * lazy
    assert 0.5 * feature < squeezed.error(compress(held_out[0], 1, factor), held_out[1]) < 1.8 * feature
    assert error["end"] < 0.5 * lazy
    assert error["last end"] < 0.7 * error["last start"]


@pytest.mark.spec("004/F40")
def test_the_last_layer_of_a_trained_convolutional_net_is_far_better_than_at_the_start():
    digits = load_digits()
    x = digits.data - digits.data.mean(0)
    x *= 8 / np.linalg.norm(x, axis=1, keepdims=True)
    order = np.random.default_rng(0).permutation(len(x))
    images = torch.from_numpy(x[order]).float().view(-1, 1, 8, 8)
    parity = np.where(digits.target[order] % 2 == 0, 1, -1)
    torch.manual_seed(0)
    layers = [NTKConv2d(1, 8, 3, 1, 1, 2.0, 0.0), NTKConv2d(8, 8, 3, 2, 1, 2.0, 0.0)]
    module = nn.Sequential(
        layers[0], nn.ReLU(), layers[1], nn.ReLU(), nn.AvgPool2d(4), nn.Flatten(), NTKLinear(8, 1, 1.0, 0.0)
    )
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    flow = Flow(alpha=0.1, momentum=0.8, steps=100, change=0.3, longest=10.0)
    done = train_flow(ModuleNet.of(module), images[:300], parity[:300], flow, every=50)

    def error(when: str) -> float:
        module.load_state_dict(done.at(when).parameters())
        learner = learn_frozen(
            lambda a, b=None: tangent_kernel(module, a, b, kind="last_layer"),
            images[300:600],
            parity[300:600],
            steps=3000,
        )
        return learner.error(images[600:], parity[600:])

    start, end = error("start"), error("end")
    assert start > 0.2
    assert end < start / 2


@pytest.mark.spec("000/F007")
@pytest.mark.parametrize("kernel", [linear, rbf(3.0)], ids=["linear", "rbf"])
def test_representer_theorem_for_the_logistic_loss(kernel):
    """The minimum over functions of more freedom than six examples have lies in the span of those: it is the dual's.

    A linear function has 15 weights here; a combination of radial functions has four centres besides the examples.
    """
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((6, 15)), np.array([1, -1, 1, 1, -1, -1])
    learner = learn_frozen(kernel, x, y, "logistic", ridge=0.1)
    centres = np.eye(15) if kernel is linear else np.concatenate([x, rng.standard_normal((4, 15))])
    gram = kernel(torch.from_numpy(centres), None).numpy()
    root = np.linalg.cholesky(gram)  # of coefficients a the norm is |rootᵀ a|, so that w = rootᵀ a is orthonormal
    features = np.linalg.solve(root, kernel(torch.from_numpy(centres), torch.from_numpy(x)).numpy()).T

    def objective(w):
        margin = y * (features @ w)
        return np.logaddexp(0, -margin).sum() + 0.05 * w @ w, 0.1 * w - (y / (1 + np.exp(margin))) @ features

    def outside(w):
        return np.linalg.norm(w - np.linalg.pinv(features) @ features @ w)

    start = rng.standard_normal(len(centres))
    result = minimize(objective, start, jac=True, method="BFGS", options={"gtol": 1e-10}).x
    assert outside(result) < 1e-8 < outside(start)
    np.testing.assert_allclose(features.T @ learner.fit.dual, result, atol=1e-7)
    other = rng.standard_normal((5, 15))
    values = kernel(torch.from_numpy(other), torch.from_numpy(centres)).numpy() @ np.linalg.solve(root.T, result)
    np.testing.assert_allclose(learner.predict(other), values, atol=1e-7)
    np.testing.assert_allclose(learner.fit.outputs, learner.predict(x), atol=1e-10)


@pytest.mark.parametrize(
    ("gram", "y", "match"),
    [
        (np.eye(3), [1, -1], "square"),
        (np.eye(2), [1, 0], "-1 and [+]1"),
        (np.zeros((2, 2)), [1, -1], "diagonal"),
        (np.full((2, 2), np.nan), [1, -1], "finite"),
    ],
)
def test_bad_kernels_are_refused(gram, y, match):
    for fit in (hinge_flow, hard_margin, logistic_regression):
        with pytest.raises(ValueError, match=match):
            fit(gram, y)


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="change"):
        hinge_flow(np.eye(2), [1, -1], change=0)
    for fit in (hard_margin, logistic_regression):
        with pytest.raises(ValueError, match="both labels"):
            fit(np.eye(2), [1, 1])
    with pytest.raises(ValueError, match="ridge"):
        logistic_regression(np.eye(2), [1, -1], ridge=0)
    with pytest.raises(ValueError, match="'flow', 'svc' or 'logistic'"):
        learn_frozen(laplace(1.0), np.eye(2), [1, -1], "ridge")
    with pytest.raises(ValueError, match="tangent"):
        NetKernel(MeanFieldNet.draw(2, 3, 0), "first")
    assert math.isclose(hinge_flow(np.eye(2), [1, -1], change=0.25).time, 2.0)
