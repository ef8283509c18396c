"""Training with stylised images: what a texture keeps of an image, and how batches are composed."""

import pytest
import torch
from torch import Tensor, nn

from polariscope.nets.model import Brief
from polariscope.objectives.objective import Batch
from polariscope.robustness import stylised_training
from polariscope.robustness.stylised_training import (
    INK,
    PAPER,
    StylisedNoiseTraining,
    StylisedTraining,
    stylised,
)

HALVES = torch.cat([torch.zeros(1, 16, 8), torch.ones(1, 16, 8)], 2).expand(500, 1, 16, 16)


def test_a_stylised_image_keeps_its_shape_and_loses_its_brightness() -> None:
    styled = stylised(HALVES, torch.Generator().manual_seed(0))
    dark, light = styled[..., :8].mean((1, 2, 3)), styled[..., 8:].mean((1, 2, 3))
    assert dark.mean() == pytest.approx(sum(PAPER) / 2, abs=0.02)
    assert light.mean() == pytest.approx(sum(INK) / 2, abs=0.02)
    assert (light > dark).double().mean() > 0.95
    assert styled.min() >= 0
    assert styled.max() <= 1
    assert styled[0, 0, :, :8].std() > 0.02, "black is no longer one brightness"
    assert not torch.equal(styled[0], styled[1])


def test_the_draws_decide_the_textures() -> None:
    first, again, other = (stylised(HALVES[:3], torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert stylised(HALVES[:0]).shape == (0, 1, 16, 16)
    assert stylised(torch.rand(5, 6)).shape == (5, 6)
    assert stylised(torch.rand(5, 1)).isfinite().all(), "a texture of one point is its mean"
    with pytest.raises(ValueError, match="pixels from 0 to 1"):
        stylised(2 * HALVES[:1])


class Seen(nn.Module):
    """Keeps what it is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.shown = torch.empty(0)

    def forward(self, x: Tensor) -> Tensor:
        self.shown = x.detach()
        return self.weight * x.mean((1, 2, 3))[:, None] * torch.arange(2.0)


def batch_of(count: int) -> Batch:
    return Batch(HALVES[:count].contiguous(), count, target=torch.zeros(count, 1), classes=(2,))


def test_an_exact_share_is_stylised() -> None:
    network = Seen()
    StylisedTraining(0.3)(network, batch_of(70), 0)
    clean = (network.shown == HALVES[:70]).all(1).all(1).all(1)
    assert clean.tolist() == [True] * 49 + [False] * 21
    with pytest.raises(ValueError, match="from 0 to 1"):
        StylisedTraining(1.5)


@pytest.mark.spec("001b/A-15")
def test_batches_are_a_quarter_clean_and_thirty_percent_stylised(monkeypatch) -> None:
    """Of 100 images 25 are clean, 30 stylised, 27 have noise of the current generator and 18 of an earlier one."""
    counted: list[int] = []
    textures = stylised_training.stylised
    monkeypatch.setattr(stylised_training, "stylised", lambda x: (counted.append(len(x)), textures(x))[1])
    objective = StylisedNoiseTraining(1.0, refresh=2, alone=1)
    network = Seen()
    torch.manual_seed(0)
    generator = objective.players(network, Brief((1, 16, 16), 2))["generator"].module
    objective(network, batch_of(100), 0, generator)
    assert counted == [], "a generator that learns alone meets its own noise only"
    norms = (network.shown - HALVES[:100]).flatten(1).norm(dim=1)
    assert norms == pytest.approx(torch.ones(100), abs=1e-4)
    objective(network, batch_of(100), 4, generator)
    norms = (network.shown - HALVES[:100]).flatten(1).norm(dim=1)
    assert (norms[:25] == 0).all()
    assert (norms[25:55] > 1.5).all(), "stylised"
    assert norms[55:] == pytest.approx(torch.ones(45), abs=1e-4)
    assert counted == [30]
    assert objective.composed(100) == (55, 27, 18)
    assert sum(objective.composed(70)) == 70
