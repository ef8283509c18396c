"""Attacks on an affine classifier, whose nearest adversarials are known in closed form (spec 001b, O-A6 and O-B7)."""

import numpy as np
import pytest
import torch
from torch import nn

from polariscope.robustness.attacks.fast_gradient import FastGradient
from polariscope.robustness.attacks.pgd import PGD

PIXELS = 20


class Affine(nn.Module):
    """Two classes with a known plane between them, in double precision."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.layer = nn.Linear(PIXELS, 2).double()
        with torch.no_grad():
            self.layer.weight.copy_(torch.randn(2, PIXELS, generator=generator))
            self.layer.bias.copy_(-self.layer.weight.sum(1) / 2)  # the plane goes through the middle of the box

    def forward(self, x):
        return self.layer(x)

    @property
    def weight(self):
        return (self.layer.weight[1] - self.layer.weight[0]).detach().numpy()

    def gap(self, x):
        scores = self.layer(x).detach().numpy()
        return np.abs(scores[:, 1] - scores[:, 0])


def images(count: int = 30):
    """Images in the middle of the box, so that it does not get in the way."""
    return 0.4 + 0.2 * torch.rand(count, PIXELS, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


@pytest.fixture
def affine():
    model, x = Affine(), images()
    exact = {
        "l2": model.gap(x) / np.linalg.norm(model.weight),
        "linf": model.gap(x) / np.abs(model.weight).sum(),
    }
    return model, x, model(x).argmax(1), exact


EXACT = [(FastGradient(), norm, 1e-6) for norm in ("l2", "linf")]
NEAR = [(PGD(), "l2", 0.02), (PGD(), "linf", 0.01), (PGD(random_start=False), "l2", 0.02)]


@pytest.mark.spec("001b/B-22")
@pytest.mark.spec("001b/B-23")
@pytest.mark.parametrize(("attack", "norm", "tolerance"), EXACT + NEAR, ids=str)
def test_distances_are_those_of_the_closed_form(affine, attack, norm, tolerance):
    model, x, y, exact = affine
    ratio = attack(model, x, y, norm=norm).distances / exact[norm]
    assert (ratio >= 1 - 1e-9).all()
    assert (ratio <= 1 + tolerance).all()
