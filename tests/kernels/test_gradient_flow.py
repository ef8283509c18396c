"""Gradient flow: gradients and kernels against autograd, the integrator, and the two regimes."""

import hashlib
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from polariscope.kernels.empirical import tangent_kernel
from polariscope.kernels.flow_nets import MeanFieldNet, ModuleNet, split
from polariscope.kernels.frozen import INFINITE_WIDTH
from polariscope.kernels.gradient_flow import (
    Flow,
    load_training,
    misclassified,
    rotation_gap,
    save_training,
    train_flow,
)
from polariscope.nets.classifiers import NTKLinear
from polariscope.theory.amplification import dataset_amplification
from polariscope.worlds.points.cylinder import Cylinder
from polariscope.worlds.points.stripes import Stripe, random_directions


class AsModule(nn.Module):
    """The same net written for autograd."""

    def __init__(self, net: MeanFieldNet) -> None:
        super().__init__()
        self.weights, self.bias = nn.Parameter(net.weights.clone()), nn.Parameter(net.bias.clone())
        self.readout = nn.Parameter(net.readout.clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(x @ self.weights.T / math.sqrt(x.shape[1]) + self.bias)
        return math.sqrt(2) * (hidden @ self.readout)[:, None] / len(self.readout)


def points(count: int, dimension: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((count, dimension)))


@pytest.mark.spec("004/F07")
def test_the_net_is_that_of_the_source_and_of_the_right_size():
    x = points(4, 5)
    net = MeanFieldNet.draw(5, 200, seed=0)
    torch.testing.assert_close(net(x), AsModule(net)(x)[:, 0])
    drawn = torch.stack([MeanFieldNet.draw(5, 50, seed)(x) for seed in range(1500)])
    expected = (x.square().sum(1) / 5 + 1).sqrt()  # √h std f₀ = √q(x, x)
    torch.testing.assert_close(drawn.std(0) * math.sqrt(50), expected, rtol=0.08, atol=0)
    assert (drawn.mean(0).abs() < 4 * drawn.std(0) / math.sqrt(1500)).all()


@pytest.mark.spec("004/F09")
@pytest.mark.parametrize("active", [0.0, 0.3, 1.0])
def test_closed_form_gradients_equal_autograd(active):
    net, x = MeanFieldNet.draw(4, 30, seed=1), points(5000, 4)  # several blocks
    c = torch.from_numpy(np.random.default_rng(2).standard_normal(5000)) * (torch.arange(5000) < active * 5000)
    outputs, gradient = net.pull(net.prepare(x), lambda _, rows: c[rows])
    module = AsModule(net)
    value = module(x)[:, 0]
    (value * c).sum().backward()
    expected = torch.cat([module.weights.grad, module.bias.grad[:, None], module.readout.grad[:, None]], 1)
    torch.testing.assert_close(outputs, value.detach(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.spec("004/F09")
def test_the_flow_descends_the_hinge_loss_over_alpha():
    net, (x, y), alpha = MeanFieldNet.draw(3, 40, seed=0), Stripe(dimension=3).sample(50, 0), 3.0
    done = train_flow(net, x, y, Flow(alpha=alpha, steps=80))
    assert 5 < done.active < 45  # some are fitted, and must push no more
    module = AsModule(net)
    inputs, labels = torch.from_numpy(x), torch.from_numpy(y)
    with torch.no_grad():
        initial = module(inputs)[:, 0]
    for step in done.history.step[1:]:
        module.zero_grad()
        (torch.relu(1 - labels * alpha * (module(inputs)[:, 0] - initial)).mean() / alpha).backward()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter -= step * 40 * math.sqrt(3 / 2) * parameter.grad  # time is in units of τ = h √(d/2)
    final = torch.cat([module.weights, module.bias[:, None], module.readout[:, None]], 1)
    torch.testing.assert_close(done.end.state, final.detach(), rtol=1e-10, atol=1e-10)


@pytest.mark.spec("004/F08")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_predictor_starts_at_exactly_zero(dtype):
    x, y = Stripe(dimension=3).sample(60, 0)
    done = train_flow(MeanFieldNet.draw(3, 50, 0, dtype), x, y, Flow(alpha=10.0, steps=5))
    assert (done.predict(x, "start") == 0).all()
    assert (done.predict(x) != 0).any()
    assert done.history.loss[0] == 1
    assert done.history.active[0] == 60


@pytest.mark.spec("004/F10")
def test_finer_steps_do_not_move_t_star():
    x, y = Stripe(dimension=5).sample(300, 0)
    net, coarse = MeanFieldNet.draw(5, 200, seed=0), Flow(until="t_star")
    fine = replace(coarse, longest=coarse.longest / 2, early_change=coarse.early_change / 2)
    first, second = (train_flow(net, x, y, how) for how in (coarse, fine))
    assert second.steps > 1.5 * first.steps
    assert second.t_star.time == pytest.approx(first.t_star.time, rel=0.02)
    assert first.history.step.max() <= coarse.longest


@pytest.mark.spec("004/F10")
def test_no_accepted_step_exceeds_the_bound_and_steps_grow_and_shrink():
    x, y = Stripe(dimension=2).sample(100, 0)
    done = train_flow(MeanFieldNet.draw(2, 100, 0), x, y, Flow(alpha=1e4, change=0.05, early_change=0.05, steps=60))
    assert done.rejected > 0
    ratio = done.history.step[2:] / done.history.step[1:-1]
    assert ratio.max() == pytest.approx(1.1)
    runs = [train_flow(done.net, x, y, replace(done.flow, steps=n)).predict(x) for n in range(1, 31)]
    changes = np.abs(np.diff([np.zeros(100), *runs], axis=0)).max(1)
    assert 0.03 < changes.max() <= 0.05 * (1 + 1e-9)
    with pytest.raises(ValueError, match="float64"):
        train_flow(MeanFieldNet.draw(2, 100, 0, torch.float32), x, y, Flow(alpha=1e8))


@pytest.mark.spec("004/F11", "004/F13")
def test_momentum_fits_the_same_function_in_far_fewer_steps():
    world = Stripe(dimension=5)
    (x, y), test = world.sample(50, 2), world.sample(10_000, 99)
    net = MeanFieldNet.draw(5, 200, 2, torch.float32)
    plain, heavy = (train_flow(net, x, y, Flow(momentum=m, steps=20_000), every=100) for m in (0.0, 0.9))
    assert plain.active == heavy.active == 0
    assert 5 * heavy.steps < plain.steps
    assert heavy.error(*test) == pytest.approx(plain.error(*test), abs=0.03)
    assert heavy.t_star.time == plain.t_star.time


@pytest.mark.spec("004/F13")
@pytest.mark.parametrize("count", [60, 200])
def test_the_flow_ends_when_all_are_fitted(count):
    x, y = Stripe(dimension=5).sample(count, 1)
    done = train_flow(MeanFieldNet.draw(5, 300, 1, torch.float32), x, y, Flow(momentum=0.97, steps=8000))
    assert done.active == 0
    assert (y * done.predict(x) >= 1 - 1e-6).all()
    assert done.history.loss[-1] == pytest.approx(0, abs=1e-6)
    fitted = count - done.history.active
    first = np.flatnonzero(fitted >= 0.1 * count)[0]
    assert done.t_star.time == done.history.time[first]
    assert np.diff(done.history.time).min() > 0


@pytest.mark.spec("004/F16")
def test_amplification_is_one_at_first_whatever_the_informative_directions():
    for dimension, informative in ((5, 1), (10, 1), (5, 2), (3, 2)):
        net = MeanFieldNet.draw(dimension, 10_000, seed=3)
        assert net.amplification(informative) == pytest.approx(1, abs=3 / math.sqrt(10_000))
    basis = random_directions(5, seed=0)
    turned = MeanFieldNet(torch.cat([net_weights(5) @ torch.from_numpy(basis.T), torch.ones(40, 2)], 1))
    plain = MeanFieldNet(torch.cat([net_weights(5), torch.ones(40, 2)], 1))
    assert turned.amplification(basis[:, :2]) == pytest.approx(plain.amplification(2))
    for wrong in (0, 5, np.ones((5, 2)), np.eye(4)):
        with pytest.raises(ValueError, match="informative"):
            split(plain.weights, wrong)


def net_weights(dimension: int) -> torch.Tensor:
    return points(40, dimension, seed=8)


@pytest.mark.spec("004/F18", "004/F16")
def test_amplification_at_t_star_is_that_of_the_closed_form():
    measured, plain, timed = [], [], []
    for seed in range(8):
        x, y = Stripe(dimension=5).sample(1000, seed)
        net = MeanFieldNet.draw(5, 300, seed, torch.float32)
        done = train_flow(net, x, y, Flow(until="t_star"), informative=1)
        measured.append(math.log(done.t_star.amplification))
        plain.append(math.log(dataset_amplification(x, y)))
        timed.append(math.log(dataset_amplification(x, y, time=done.t_star.time)))
        assert done.t_star.time == done.end.time == done.history.time[-1]
    for oracle in (plain, timed):
        assert np.corrcoef(measured, oracle)[0, 1] > 0.85
        assert np.median(np.abs(np.subtract(measured, oracle))) < 0.2


@pytest.mark.spec("004/F30", "004/F19")
def test_loss_and_test_error_fall_and_amplification_peaks_after_t_star():
    world = Stripe(dimension=2)
    x, y = world.sample(2000, 0)
    net = MeanFieldNet.draw(2, 300, 0, torch.float32)
    flow = Flow(momentum=0.9, steps=600)
    done = train_flow(net, x, y, flow, informative=1, test=world.sample(5000, 1), every=20)
    history = done.history
    early = history.test_error[np.searchsorted(history.time, done.t_star.time)]
    assert early > 0.15
    assert history.test_error[-1] < 0.01
    assert history.test_error[-1] == done.error(*world.sample(5000, 1))
    assert history.loss[-1] < 0.1 < 0.9 < history.loss[1]
    assert done.largest.time > done.t_star.time
    assert done.largest.amplification >= max(done.t_star.amplification, history.amplification.max())
    axis = np.column_stack([np.linspace(-2.5, 2.5, 2001), np.zeros(2001)])
    value = done.predict(axis)
    zeros = axis[1:, 0][value[1:] * value[:-1] < 0]
    np.testing.assert_allclose(zeros, [-0.3, 1.18549], atol=0.05)
    assert set(history.columns()) == {"time", "step", "loss", "active", "amplification", "test_error"}


def test_lazy_weights_stay_and_feature_weights_turn():
    x, y = Stripe(dimension=2).sample(300, 0)
    net = MeanFieldNet.draw(2, 300, 0)
    lazier, lazy, feature = (
        train_flow(net, x, y, Flow(alpha=alpha, until="t_star"), informative=1).t_star for alpha in (1e6, 1e3, 1e-6)
    )
    assert lazier.amplification == pytest.approx(net.amplification(1), abs=1e-4)
    assert feature.amplification > 5
    assert lazier.time * 1e6 == pytest.approx(lazy.time * 1e3, rel=0.05)  # t* ∝ 1/α


def test_the_cylinder_compresses_later_and_in_two_directions():
    x, y = Cylinder(dimension=3).sample(500, 0)
    done = train_flow(
        MeanFieldNet.draw(3, 200, 0, torch.float32), x, y, Flow(until="t_star"), informative=2, every=1000
    )
    assert 25 < done.t_star.time < 60
    assert 0.2 < done.t_star.amplification / math.sqrt(500) < 1.5


# --- kernels of the net ---------------------------------------------------------------------------------------------


@pytest.mark.spec("004/F32")
def test_the_closed_form_tangent_kernel_is_the_generic_one():
    net, x, other = MeanFieldNet.draw(4, 64, seed=0), points(12, 4), points(5, 4, seed=1)
    first, last = NTKLinear(4, 64, 1.0, 1.0).double(), NTKLinear(64, 1, 2.0, 0.0).double()
    with torch.no_grad():
        first.weight.copy_(net.weights)
        first.bias.copy_(net.bias)
        last.weight[0].copy_(net.readout)
    layers = nn.Sequential(first, nn.ReLU(), last)  # √h f, whose kernel is h Θ
    for x2 in (None, other):
        closed = net.tangent_kernel(x, x2)
        torch.testing.assert_close(closed, tangent_kernel(layers, x, x2, kind="trace"), rtol=1e-12, atol=1e-12)
        autograd = net.width * tangent_kernel(AsModule(net), x, x2, kind="trace", route="contraction")
        torch.testing.assert_close(closed, autograd, rtol=1e-12, atol=1e-12)
    kernel = net.tangent_kernel(x)
    assert torch.equal(kernel, kernel.T)
    assert torch.linalg.eigvalsh(kernel)[0] > -1e-12
    readout = net.activations(x) @ net.activations(other).T / 64
    torch.testing.assert_close(net.last_layer_kernel(x, other), readout)


@pytest.mark.spec("004/F33")
def test_the_kernel_converges_to_that_of_infinite_width():
    x = points(6, 5)
    limit = INFINITE_WIDTH.ntk(x)
    torch.testing.assert_close(limit.diagonal(), 2 * (x.square().sum(1) / 5 + 1))
    q = x @ x.T / 5 + 1
    size = (q.diagonal()[:, None] * q.diagonal()).sqrt()
    angle = (q / size).clamp(-1, 1).acos()
    closed = size / math.pi * (angle.sin() + (math.pi - angle) * angle.cos()) + q * (1 - angle / math.pi)
    torch.testing.assert_close(limit, closed, rtol=1e-6, atol=1e-6)

    def gap(width: int) -> float:
        kernels = torch.stack([MeanFieldNet.draw(5, width, seed).tangent_kernel(x) for seed in range(8)])
        return float((kernels - limit).square().mean().sqrt() / limit.square().mean().sqrt())

    gaps = [gap(width) for width in (1000, 16_000)]
    assert gaps[0] / gaps[1] == pytest.approx(4, rel=0.4)  # h^(-1/2)
    assert gaps[1] < 0.03


# --- any module ----------------------------------------------------------------------------------------------------


def test_a_module_flows_like_the_closed_form():
    net, (x, y) = MeanFieldNet.draw(3, 60, seed=0), Stripe(dimension=3).sample(300, 0)
    flow = Flow(alpha=0.5, steps=40, longest=0.3, momentum=0.5)
    closed = train_flow(net, x, y, flow)
    unit = net.time_unit
    module = ModuleNet.of(AsModule(net))
    autograd = train_flow(module, x, y, replace(flow, longest=flow.longest * unit), test=(x, y))
    np.testing.assert_allclose(autograd.history.time, closed.history.time * unit, rtol=1e-9)
    np.testing.assert_allclose(autograd.predict(x), closed.predict(x), rtol=1e-6, atol=1e-9)
    assert set(autograd.at("end").parameters()) == {"weights", "bias", "readout"}
    with pytest.raises(ValueError, match="no snapshot"):
        autograd.at("largest")
    with pytest.raises(ValueError, match="one output"):
        train_flow(ModuleNet.of(nn.Linear(3, 2).double()), x, y)
    with pytest.raises(ValueError, match="amplification"):
        train_flow(module, x, y, informative=1)


# --- reproducibility, checkpoints, rotations ------------------------------------------------------------------------


@pytest.mark.spec("004/F69")
def test_the_same_seed_gives_the_same_bits():
    def digest(seed: int) -> str:
        x, y = Stripe(dimension=5).sample(200, seed)
        flow = Flow(momentum=0.9, steps=250)
        done = train_flow(MeanFieldNet.draw(5, 100, seed, torch.float32), x, y, flow, informative=1)
        arrays = [*done.history.columns().values(), done.end.state.numpy()]
        return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()

    assert digest(0) == digest(0) != digest(1)


@pytest.mark.spec("004/F65")
def test_a_training_survives_a_file(tmp_path):
    x, y = Stripe(dimension=3).sample(100, 0)
    done = train_flow(MeanFieldNet.draw(3, 50, 0), x, y, Flow(steps=300), informative=1)
    save_training(done, tmp_path / "flow.safetensors")
    back = load_training(tmp_path / "flow.safetensors")
    assert set(back.snapshots) == {"start", "t_star", "largest", "end"}
    times = [back.snapshots[name].time for name in ("start", "t_star", "largest", "end")]
    assert times[0] == 0 < times[1] <= times[2] <= times[3]
    for name, snapshot in done.snapshots.items():
        assert torch.equal(back.snapshots[name].state, snapshot.state)
        assert back.snapshots[name].amplification == snapshot.amplification
        assert torch.equal(back.at(name).tangent_kernel(x), done.at(name).tangent_kernel(x))
    np.testing.assert_array_equal(back.predict(x), done.predict(x))
    assert back.flow == done.flow
    assert (back.steps, back.rejected, back.active) == (done.steps, done.rejected, done.active)
    for name, column in done.history.columns().items():
        np.testing.assert_array_equal(getattr(back.history, name), column)
    (tmp_path / "other").write_text("nothing of the kind")
    with pytest.raises(ValueError, match="cannot be read"):
        load_training(tmp_path / "other")


@pytest.mark.spec("004/F45")
def test_gradient_descent_does_not_know_the_axes_but_adam_does():
    x, y = Stripe(dimension=4).sample(80, 0)
    assert rotation_gap(lambda p: torch.optim.SGD(p, lr=20.0), x, y) < 1e-12
    assert rotation_gap(lambda p: torch.optim.SGD(p, lr=5.0, momentum=0.9), x, y) < 1e-12
    assert rotation_gap(lambda p: torch.optim.Adam(p, lr=0.01), x, y) > 1e-3
    assert rotation_gap(lambda p: torch.optim.Rprop(p, lr=0.01), x, y) > 1e-3


@pytest.mark.spec("004/F45")
def test_the_flow_commutes_with_rotations():
    x, y = Stripe(dimension=4).sample(100, 0)
    turn = random_directions(4, seed=1)
    net = MeanFieldNet.draw(4, 80, seed=0)
    wide = torch.block_diag(torch.from_numpy(turn), torch.eye(2, dtype=torch.float64))
    flow = Flow(alpha=1e-3, steps=150)
    straight = train_flow(net, x, y, flow, informative=1)
    turned = train_flow(MeanFieldNet(net.state @ wide), x @ turn, y, flow, informative=turn.T[:, :1])
    expected = straight.end.state @ wide
    assert (turned.end.state - expected).abs().max() / expected.abs().max() < 1e-12
    np.testing.assert_allclose(turned.history.amplification, straight.history.amplification, rtol=1e-9)


@pytest.mark.parametrize(
    ("x", "y", "how", "match"),
    [
        (np.ones((3, 2)), [1, -1, 0], {}, "-1 and [+]1"),
        (np.ones((3, 2)), [1, -1], {}, "as many labels"),
        (np.ones((3, 4)), [1, -1, 1], {}, "shape"),
        (np.full((3, 2), np.nan), [1, -1, 1], {}, "NaN"),
        (np.ones((3, 2)), [1, -1, 1], {"every": 0}, "at least 1"),
    ],
)
def test_bad_data_is_refused(x, y, how, match):
    with pytest.raises(ValueError, match=match):
        train_flow(MeanFieldNet.draw(2, 10, 0), x, y, **how)


@pytest.mark.parametrize("wrong", [{"alpha": 0}, {"momentum": 1.0}, {"fitted": 2}, {"until": "dawn"}, {"steps": 0}])
def test_bad_settings_are_refused(wrong):
    with pytest.raises(ValueError, match="flow"):
        Flow(**wrong)


def test_bad_nets_are_refused():
    with pytest.raises(ValueError, match="state"):
        MeanFieldNet(torch.ones(3, 2))
    with pytest.raises(ValueError, match="positive"):
        MeanFieldNet.draw(0, 5, 0)
    with pytest.raises(ValueError, match="cannot be trained"):
        ModuleNet.of(nn.Identity())
    assert misclassified([1.0, 0.0], [1, 1]) == 0.5
