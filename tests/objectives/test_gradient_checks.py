"""Gradients of the losses against finite differences, in double precision, with the noise held fixed."""

import pytest
import torch
from torch.func import functional_call

from polariscope.nets.architecture import MLP
from polariscope.nets.autoencoder import Autoencoder, AutoencoderConfig
from polariscope.objectives.autoencoder import AE
from polariscope.objectives.beta_vae import BetaVAE, FullBetaVAE
from polariscope.objectives.objective import Batch, Objective


@pytest.mark.spec("003/F3-004", "003/F3-006")
@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli"])
@pytest.mark.parametrize("objective", [AE(), BetaVAE(0.7), FullBetaVAE(0.7)], ids=["ae", "diagonal", "full"])
def test_gradients_match_finite_differences(objective: Objective, likelihood) -> None:
    torch.manual_seed(0)
    config = AutoencoderConfig(2, MLP((4,), (4,), "tanh", "tanh"), likelihood=likelihood, variance=0.5)
    model = Autoencoder(config, (3,), objective.posterior).double()
    names, values = zip(*model.named_parameters(), strict=True)
    batch = Batch(torch.rand(5, 3, dtype=torch.double), 5)

    class Loss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self) -> torch.Tensor:
            torch.manual_seed(1)
            return objective(self.model, batch, 0).loss

    loss = Loss()

    def at(*parameters: torch.Tensor) -> torch.Tensor:
        named = {f"model.{name}": value for name, value in zip(names, parameters, strict=True)}
        return functional_call(loss, named, ())

    inputs = tuple(value.detach().clone().requires_grad_() for value in values)
    assert torch.autograd.gradcheck(at, inputs, eps=1e-6, atol=1e-6)
