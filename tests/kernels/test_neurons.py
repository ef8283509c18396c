"""Neurons of a gradient flow: where they go, what they conserve, and which never move."""

import math

import numpy as np
import pytest
import torch

from polariscope.kernels.flow_nets import MeanFieldNet
from polariscope.kernels.gradient_flow import Flow, train_flow
from polariscope.kernels.neurons import Neurons, clusters, dead, drift, growth_rates, near, neurons, regimes
from polariscope.theory.stripe import Layers, attractors
from polariscope.worlds.points.stripes import Stripe, random_directions


def test_a_position_lies_on_the_hyperplane_nearest_to_the_origin():
    net = MeanFieldNet.draw(4, 60, seed=0)
    seen = neurons(net)
    plane = (torch.from_numpy(seen.position) * net.weights).sum(1) / 2 + net.bias
    assert plane.abs().max() < 1e-12
    cross = seen.position / np.linalg.norm(seen.position, axis=1, keepdims=True)
    direction = (net.weights / net.weights.norm(dim=1, keepdim=True)).numpy()
    np.testing.assert_allclose(np.abs((cross * direction).sum(1)), 1)
    on_axis = net.weights[:, 0].numpy() * seen.intercept / 2 + net.bias.numpy()
    assert np.abs(on_axis).max() < 1e-12
    np.testing.assert_array_equal(np.sign(seen.ratio), np.sign(net.weights[:, 0].numpy()))
    assert {"position_4", "intercept", "conserved"} < set(seen.columns())


def test_ratios_follow_a_turned_basis():
    net, turn = MeanFieldNet.draw(5, 30, seed=0), random_directions(5, seed=1)
    state = net.state.clone()
    state[:, :5] = state[:, :5] @ torch.from_numpy(turn.T)
    turned = neurons(MeanFieldNet(state), turn[:, :2])
    np.testing.assert_allclose(turned.ratio, neurons(net, 2).ratio)
    assert (turned.ratio > 0).all()


@pytest.mark.spec("004/F15", "004/F28")
def test_neurons_gather_at_the_three_predicted_points():
    x, y = Stripe(dimension=2).sample(10_000, 0)
    net = MeanFieldNet.draw(2, 400, 0, torch.float32)
    done = train_flow(net, x, y, Flow(until="t_star"), informative=1)
    seen = neurons(done.at("t_star"))
    points = attractors(Layers(), 2)  # the fastest, C, first; then A and B
    assert [round(p.position, 3) for p in points] == [0.45, -1.226, 0.647]
    result = near(seen, [[p.position, 0] for p in points], [p.side for p in points])
    assert sum(cluster.count for cluster in result) >= 0.7 * 400
    assert min(cluster.count for cluster in result) >= 25
    large = np.abs(seen.readout) > 100
    members = np.concatenate([cluster.members for cluster in result])
    assert np.isin(np.flatnonzero(large), members).mean() > 0.95
    assert result[0].share > 0.99
    for cluster, point in zip(result, points, strict=True):
        assert cluster.position[0] == pytest.approx(point.position, abs=0.06)
        assert cluster.ratio > 20
    # the same three places are found without knowing where to look
    free = clusters(seen)[:3]
    for cluster in free:
        assert min(abs(cluster.position[0] - p.position) for p in points) < 0.06
    assert sum(cluster.count for cluster in free) >= 0.7 * 400

    idle = dead(net, x)
    assert 2 <= idle.sum() <= 30
    assert (done.end.state[idle] == net.state[idle]).all()
    assert (done.end.state[~idle] != net.state[~idle]).any(1).all()

    # started afresh from there, so that all examples are active, they grow at the rates of the fixed points
    longer = train_flow(done.at("t_star"), x, y, Flow(alpha=1e-12, steps=20))
    for cluster, point in zip(result, points, strict=True):
        rates = growth_rates(longer.at("start"), longer.at("end"), longer.end.time, cluster.members)
        assert np.median(rates) == pytest.approx(point.growth_rate, abs=0.03)


def test_clusters_of_made_up_neurons():
    generator = np.random.default_rng(0)
    place = np.repeat([[0.0, 1.0], [2.0, 2.0]], [30, 20], axis=0) + 0.01 * generator.standard_normal((50, 2))
    stray = np.array([[9.0, 9.0]])
    position = np.concatenate([place, stray])
    ones = np.ones(51)
    seen = Neurons(position, ones, ones * 3, np.r_[np.ones(30), 4 * np.ones(20), 0], ones, ones)
    first, second = clusters(seen)
    assert (first.count, second.count) == (30, 20)
    assert second.share == pytest.approx(80 / 110)
    np.testing.assert_allclose(second.position, [2, 2], atol=0.02)
    empty, result = near(seen, [[2.0, 2.0], [2.0, 2.0]], [-1, 1])  # λ is positive for all
    assert (empty.count, result.count) == (0, 20)
    with pytest.raises(ValueError, match="attractors"):
        near(seen, [[1.0, 2.0, 3.0]], [1])


@pytest.mark.spec("004/F14")
def test_a_run_falls_into_three_regimes_in_order():
    x, y = Stripe(dimension=3).sample(80, 0)
    done = train_flow(MeanFieldNet.draw(3, 200, 0, torch.float32), x, y, Flow(momentum=0.9, steps=4000))
    labels = regimes(done)
    order = ["compressing", "fitting", "over-fitting"]
    rank = np.array([order.index(label) for label in labels])
    assert (np.diff(rank) >= 0).all()
    assert set(labels) == set(order)
    assert done.history.time[rank == 0].max() < done.t_star.time == done.history.time[rank == 1].min()
    assert (done.history.active[rank == 0] > 0.9 * 80).all()
    assert done.history.active[np.flatnonzero(rank == 2)[0]] <= 5
    early = train_flow(done.net, x, y, Flow(steps=10))
    assert set(regimes(early)) == {"compressing"}


@pytest.mark.spec("004/F47")
def test_the_conserved_quantity_drifts_with_the_length_of_the_steps():
    x, y = Stripe(dimension=2).sample(1000, 0)
    net = MeanFieldNet.draw(2, 200, seed=0)
    coarse, fine = (
        np.median(drift(net, train_flow(net, x, y, Flow(until="t_star", longest=step)).at("t_star")))
        for step in (0.1, 0.05)
    )
    assert coarse < 1e-3
    assert coarse / fine == pytest.approx(2, rel=0.3)
    np.testing.assert_array_equal(drift(net, net), 0)


def test_bad_times_are_refused():
    net = MeanFieldNet.draw(2, 5, 0)
    with pytest.raises(ValueError, match="positive time"):
        growth_rates(net, net, 0.0)
    np.testing.assert_allclose(growth_rates(net, MeanFieldNet(net.state * math.e), 2.0), 0.5)
