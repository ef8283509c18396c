"""Flows: what is encoded comes back, and the log-determinant is that of the derivative."""

import pytest
import torch

from polariscope.nets.flows import CouplingFlowConfig, LinearFlowConfig
from polariscope.nets.model import Brief, models
from polariscope.objectives.slow_flow import SlowFlow
from polariscope.subjects import as_subject
from polariscope.training import RunConfig
from polariscope.training.run import build_model
from polariscope.worlds.points.sources import Sources

KINDS = ("additive", "volume-preserving", "affine")


def built(config, shape=(5,), seed=0):
    torch.manual_seed(seed)
    flow = config.build(Brief(shape))
    for weight in flow.parameters():  # away from where training begins, where a flow is tamer than later
        torch.nn.init.normal_(weight, std=weight.shape[-1] ** -0.5)
    return flow


def jacobian_log_dets(flow, x):
    """By autograd, one observation at a time."""
    derivatives = [
        torch.autograd.functional.jacobian(lambda v: flow.encode(v[None]).mean[0], v).reshape(flow.latents, -1)
        for v in x
    ]
    return torch.stack([torch.linalg.slogdet(one).logabsdet for one in derivatives])


@pytest.mark.spec("001a/SF-02")
def test_the_default_is_the_published_volume_preserving_flow() -> None:
    config = models.build({"name": "coupling-flow"})
    flow = config.build(Brief((20,)))
    nets = [[(type(layer).__name__, getattr(layer, "out_features", 0)) for layer in b.net] for b in flow.blocks]
    assert nets == 6 * [[("Linear", 500), ("ReLU", 0), ("Linear", 500), ("ReLU", 0), ("Linear", 20)]]
    x = torch.randn(200, 20, generator=torch.Generator().manual_seed(0))
    assert (flow.invert(flow.encode(x).mean) - x).abs().max() < 1e-5
    assert torch.equal(flow.log_det(x), torch.zeros(200))


@pytest.mark.spec("001a/SF-02", "001a/SF-03")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(2,), (5,), (2, 2, 3)], ids=str)
def test_codes_come_back_and_the_log_determinant_is_that_of_the_derivative(kind, shape) -> None:
    flow = built(CouplingFlowConfig(4, (16,), kind), shape).double()
    x = 2 * torch.randn(6, *shape, dtype=torch.double, generator=torch.Generator().manual_seed(1))
    z = flow.encode(x).mean
    assert z.shape == (6, flow.latents)
    torch.testing.assert_close(flow.invert(z), x, atol=1e-9, rtol=0)
    torch.testing.assert_close(flow.log_det(x), jacobian_log_dets(flow, x), atol=1e-9, rtol=0)
    if kind == "affine":
        assert flow.log_det(x).std() > 0.01, "an affine flow stretches here more than there"
    else:
        assert torch.equal(flow.log_det(x), torch.zeros(6, dtype=torch.double))


def test_every_code_depends_on_every_coordinate() -> None:
    """Each block leaves half of the coordinates alone; the reordering between them lets all take part."""
    flow = built(CouplingFlowConfig(hidden=(32,)), (6,)).double()
    slope = torch.autograd.functional.jacobian(lambda x: flow.encode(x).mean.sum(0), torch.randn(1, 6).double())
    assert (slope.abs() > 1e-6).all()


@pytest.mark.parametrize("size", [2, 3, 5, 6])
@pytest.mark.parametrize("seed", range(5))
def test_every_two_blocks_change_and_every_four_listen_to_every_coordinate(size: int, seed: int) -> None:
    """Left to chance, a flow of six blocks may never listen to some coordinate: it then finds some sources only."""
    flow = built(CouplingFlowConfig(6, (8,)), (size,), seed)
    place, listened, changed = torch.arange(size), [], []
    for block in flow.blocks:
        place = place[block.order]
        listened.append(set(place[: block.kept].tolist()))
        changed.append(set(place[block.kept :].tolist()))
    for at in (0, 2, 4):
        assert changed[at] | changed[at + 1] == set(range(size))
    for at in (0, 2):
        assert set.union(*listened[at : at + 4]) == set(range(size))


@pytest.mark.parametrize("kind", ["volume-preserving", "affine"])
def test_blocks_scale_as_well_as_shift(kind) -> None:
    """What an additive flow cannot do: the derivative by a changed coordinate, in the last block, is not 1."""
    flow = built(CouplingFlowConfig(1, (16,), kind), (6,)).double()
    x = torch.randn(1, 6, dtype=torch.double)
    slope = torch.autograd.functional.jacobian(lambda v: flow.encode(v).mean[0], x)[:, 0]
    scales = slope[:, flow.blocks[0].order].diagonal()[3:]
    assert ((scales - 1).abs() > 1e-3).all()
    assert (scales.log().sum().abs() < 1e-12) == (kind == "volume-preserving")


@pytest.mark.parametrize("shape", [(1,), (7,), (1, 3, 4)], ids=str)
def test_a_linear_flow_is_a_matrix_and_its_inverse(shape) -> None:
    flow = built(LinearFlowConfig(), shape).double()
    x = torch.randn(4, *shape, dtype=torch.double)
    torch.testing.assert_close(flow.invert(flow.encode(x).mean), x, atol=1e-8, rtol=0)
    torch.testing.assert_close(flow.log_det(x), jacobian_log_dets(flow, x), atol=1e-9, rtol=0)


def test_a_subject_generates_by_the_inverse() -> None:
    flow = LinearFlowConfig().build(Brief((1, 2, 2)))
    subject, x = as_subject(flow), torch.rand(3, 1, 2, 2)
    torch.testing.assert_close(subject.generate(subject.encode(x)["mean"], (1, 2, 2)), x)


def test_bad_input_is_a_sentence() -> None:
    with pytest.raises(ValueError, match="at least 2 numbers; got 1: use linear-flow"):
        CouplingFlowConfig().build(Brief((1,)))
    with pytest.raises(ValueError, match="at least 1 block; got 0"):
        CouplingFlowConfig(blocks=0)
    other = models.build({"name": "code-encoder", "architecture": "mlp"})
    with pytest.raises(ValueError, match="needs a model that can encode and invert .* cannot invert: use linear-flow"):
        build_model(RunConfig(Sources(count=10), SlowFlow(), other))
