"""The beta-VAE with a penalty on non-orthogonal columns: the penalty computed otherwise, and who learns from it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from polariscope.nets.architecture import MLP
from polariscope.nets.autoencoder import Autoencoder, AutoencoderConfig
from polariscope.nets.model import Brief
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.objectives.objective import Batch, Terms
from polariscope.objectives.orthogonal_beta_vae import OrthogonalBetaVAE, jacobians, squared_cosines

CONTROLLED = OrthogonalBetaVAE(beta=0.5, control=3.0)


def network(logvar: float = -4.0) -> Autoencoder:
    torch.manual_seed(0)
    config = AutoencoderConfig(3, MLP((8,), (8,), decoder_activation="tanh"))
    model = CONTROLLED.build(config, Brief((1, 4, 4), posterior=CONTROLLED.posterior))
    with torch.no_grad():  # every latent in use, or none
        model.head.weight[3:] = 0.0
        model.head.bias[3:] = logvar
    return model


def batch() -> Batch:
    return Batch(torch.rand(5, 1, 4, 4, generator=torch.Generator().manual_seed(1)), population=100)


def terms(objective: BetaVAE, model: Autoencoder) -> Terms:
    model.zero_grad()
    torch.manual_seed(2)
    found = objective(model, batch(), 0)
    found.loss.backward()
    return found


def gradients(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None}


def test_the_jacobian_is_that_of_reverse_mode() -> None:
    model = network()
    z = torch.randn(4, 3, generator=torch.Generator().manual_seed(3))
    found = jacobians(model.generate, z, torch.tensor([True, False, True]))
    for code, own in zip(z, found, strict=True):
        whole = torch.autograd.functional.jacobian(lambda one: model.generate(one[None]).flatten(), code)
        torch.testing.assert_close(own, whole[:, [0, 2]], rtol=1e-4, atol=1e-6)


def test_squared_cosines_are_those_of_every_pair_of_columns() -> None:
    columns = np.random.default_rng(4).normal(size=(2, 7, 4))
    found = squared_cosines(torch.from_numpy(columns)).numpy()
    for own, value in zip(columns, found, strict=True):
        pairs = [(own[:, i], own[:, j]) for i in range(4) for j in range(i)]
        assert value == pytest.approx(sum((a @ b) ** 2 / (a @ a) / (b @ b) for a, b in pairs))


def test_the_price_is_paid_by_the_decoder_alone() -> None:
    model = network()
    free = terms(replace(CONTROLLED, control=0.0), model)
    without = gradients(model)
    paid = terms(CONTROLLED, model)
    with_price = gradients(model)
    assert paid.loss.item() == pytest.approx(free.loss.item() + 3.0 * paid.parts["squared_cosines"].item(), rel=1e-5)
    changed = {name for name in without if not torch.allclose(without[name], with_price[name], rtol=1e-4, atol=1e-6)}
    assert changed
    assert all(name.startswith("decoder") for name in changed)


def test_without_control_it_is_the_beta_vae() -> None:
    model = network()
    ours = terms(replace(CONTROLLED, control=0.0), model).loss.item()
    assert ours == pytest.approx(terms(BetaVAE(0.5), model).loss.item(), rel=1e-6)
    assert OrthogonalBetaVAE(2.0, control=0.0).divergence_weight == BetaVAE(2.0).divergence_weight
    assert CONTROLLED.divergence_weight is None, "its loss is no bound with a weight"


def test_columns_of_latents_that_are_not_in_use_cost_nothing() -> None:
    assert terms(CONTROLLED, network(logvar=-0.1)).parts["squared_cosines"].item() == 0
    assert terms(CONTROLLED, network(logvar=-0.3)).parts["squared_cosines"].item() > 0


def test_steps_against_the_price_make_a_decoder_orthogonal() -> None:
    model = network()
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    first = terms(replace(CONTROLLED, control=100.0), model).parts["squared_cosines"].item()
    for _ in range(200):
        last = terms(replace(CONTROLLED, control=100.0), model).parts["squared_cosines"].item()
        optimiser.step()
    assert last < 0.05 * first


def test_a_negative_price_is_refused() -> None:
    with pytest.raises(ValueError, match="control"):
        OrthogonalBetaVAE(control=-1.0)
