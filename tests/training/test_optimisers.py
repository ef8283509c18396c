"""The optimisers of the published settings: size of the first step, and the bottom of a bowl."""

import numpy as np
import pytest
import torch

from polariscope.nets.architecture import Linear
from polariscope.nets.autoencoder import Autoencoder, AutoencoderConfig
from polariscope.objectives.autoencoder import AE
from polariscope.theory.pca_vae import fit_linear_vae, minimum_loss, optimum
from polariscope.training import TrainingConfig
from polariscope.training.loop import build_state, rate_factor

ADAM, ADAM_KERAS, ADAGRAD = (
    TrainingConfig(optimiser="adam", learning_rate=1e-3),
    TrainingConfig(optimiser="adam", learning_rate=1e-4, adam_epsilon=1e-7),
    TrainingConfig(optimiser="adagrad", learning_rate=1e-2),
)


def bowl(config: TrainingConfig, steps: int) -> tuple[float, float]:
    """Largest first step, and the distance from the bottom in the end, on ½ Σ (p − 1)² over a model's parameters."""
    model = Autoencoder(AutoencoderConfig(2, Linear()), (3,), "point")
    optimiser = build_state(model, AE(), config).optimisers["model"]
    parameters = list(model.parameters())
    first = 0.0
    for step in range(steps):
        before = [p.detach().clone() for p in parameters]
        optimiser.zero_grad()
        (0.5 * sum((p - 1).square().sum() for p in parameters)).backward()
        optimiser.step()
        if step == 0:
            first = max(float((p.detach() - b).abs().max()) for p, b in zip(parameters, before, strict=True))
    return first, max(float((p.detach() - 1).abs().max()) for p in parameters)


@pytest.mark.spec("003/F3-103")
@pytest.mark.parametrize("config", [ADAM, ADAM_KERAS, ADAGRAD], ids=["adam", "adam-1e-7", "adagrad"])
def test_the_first_step_is_the_learning_rate(config) -> None:
    torch.manual_seed(0)
    assert bowl(config, 1)[0] == pytest.approx(config.learning_rate, rel=1e-3)


@pytest.mark.spec("003/F3-103")
@pytest.mark.parametrize(
    "config",
    [
        TrainingConfig(optimiser="adam", learning_rate=0.05),
        TrainingConfig(optimiser="adagrad", learning_rate=0.5),
        TrainingConfig(optimiser="sgd", learning_rate=0.5),
    ],
    ids=["adam", "adagrad", "sgd"],
)
def test_the_bottom_of_a_bowl_is_found(config) -> None:
    torch.manual_seed(0)
    assert bowl(config, 600)[1] < 1e-3


@pytest.mark.spec("003/F3-103")
def test_the_rate_decays_to_nothing_and_lbfgs_reaches_the_optimum() -> None:
    config = TrainingConfig(steps=100, schedule="linear")
    assert [rate_factor(step, config) for step in (0, 50)] == [1.0, 0.5]
    assert rate_factor(99, config) == pytest.approx(0.01)
    best = optimum([1 / 3, 1 / 12, 0], latents=2, beta=0.01)
    assert fit_linear_vae(np.diag([1 / 3, 1 / 12, 0]), 2, 0.01).loss == pytest.approx(minimum_loss(best), abs=1e-9)


def test_epsilon_reaches_adam() -> None:
    model = Autoencoder(AutoencoderConfig(2, Linear()), (3,), "point")
    assert build_state(model, AE(), ADAM_KERAS).optimisers["model"].defaults["eps"] == 1e-7
    with pytest.raises(ValueError, match="epsilon"):
        TrainingConfig(adam_epsilon=0.0)
