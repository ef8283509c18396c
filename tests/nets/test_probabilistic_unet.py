"""The probabilistic U-Net: possible maps, an exact divergence, and a loss whose gradient reaches every weight."""

import pytest
import torch

from polariscope.nets.posterior import Diagonal
from polariscope.nets.probabilistic_unet import ProbabilisticUNet
from polariscope.objectives.objective import Batch
from polariscope.objectives.probabilistic_segment import ProbabilisticSegment, divergence_of


def test_draws_differ_are_seeded_and_the_call_is_their_middle() -> None:
    torch.manual_seed(0)
    network = ProbabilisticUNet(3, 4, 2, 4, latents=2).eval()
    x = torch.rand(2, 3, 16, 16)
    with torch.no_grad():
        first, again = (network.drawn(x, 5, torch.Generator().manual_seed(1)) for _ in range(2))
        assert first.shape == (5, 2, 4, 16, 16)
        assert torch.equal(first, again)
        assert (first[0] - first[1]).abs().max() > 1e-4
        assert network(x).shape == (2, 4, 16, 16)
        assert torch.allclose(network(x), network.scores(network.unet.features(x), network.prior(x).mean))
    unlabelled = torch.full((2, 16, 16), -1)
    assert network.informed(x, unlabelled).mean.shape == (2, 2)
    with pytest.raises(ValueError, match="at least 1 latent"):
        ProbabilisticUNet(3, 4, latents=0)


def test_the_divergence_is_that_of_torch() -> None:
    torch.manual_seed(0)
    a, b = (Diagonal(torch.randn(3, 2), torch.randn(3, 2)) for _ in range(2))
    p, q = (torch.distributions.Normal(d.mean, d.var.sqrt()) for d in (a, b))
    expected = torch.distributions.kl_divergence(p, q).sum(1)
    assert torch.allclose(divergence_of(a, b), expected, atol=1e-5)


def test_the_loss_is_misfit_plus_divergence_and_reaches_every_weight() -> None:
    torch.manual_seed(0)
    network = ProbabilisticUNet(3, 4, 2, 4, latents=2)
    target = torch.randint(-1, 4, (2, 16, 16))
    batch = Batch(torch.rand(2, 3, 16, 16), 2, target=target, classes=(4,))
    terms = ProbabilisticSegment(beta=2.0)(network, batch, 0)
    assert float(terms.loss.detach()) == pytest.approx(
        float(terms.parts["cross_entropy"] + 2 * terms.parts["divergence"])
    )
    assert int(terms.counts["confusion"].sum()) == int((target >= 0).sum())
    terms.loss.backward()
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in network.parameters())
    with pytest.raises(ValueError, match="learned by the cross-entropy"):
        ProbabilisticSegment(loss="dice")
