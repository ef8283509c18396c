"""Would many small models train faster as one stacked model? The step of one model after the other beside one of all.

Both sides train the same MLP autoencoders on the same observations with Adam; the stacked side is ``torch.func``'s
``vmap`` of the gradient over the models. The third row is what the house's loop takes for a step of such a model, with
drawing the batch, the noise and everything else that a run's exactness needs, which stacking does not make cheaper.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import deepcopy

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap

from polariscope.nets.architecture import MLP
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.objectives.vae import VAE
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.loop import Listeners
from polariscope.training.run import train_in_memory
from polariscope.worlds.renderers.squares import Squares

PIXELS, WIDTH, LATENTS, BATCH = 256, 64, 4, 64


def network() -> nn.Module:
    return nn.Sequential(
        nn.Linear(PIXELS, WIDTH), nn.ReLU(), nn.Linear(WIDTH, LATENTS), nn.Linear(LATENTS, WIDTH), nn.ReLU(),
        nn.Linear(WIDTH, PIXELS),
    )  # fmt: skip


def quickest(act: Callable[[], object], rounds: int = 5) -> float:
    times = []
    for _ in range(rounds):
        started = time.process_time()
        act()
        times.append(time.process_time() - started)
    return min(times)


def measured(models: int, steps: int = 20) -> tuple[float, float, float]:
    """Seconds of a processor for a step of one model: alone, stacked; and how far apart the weights are in the end."""
    torch.manual_seed(0)
    first = [network() for _ in range(models)]
    x = torch.rand(models, BATCH, PIXELS)
    nets = deepcopy(first)
    optimisers = [torch.optim.Adam(net.parameters(), lr=1e-3, fused=True) for net in nets]

    def alone() -> None:
        for _ in range(steps):
            for net, optimiser, batch in zip(nets, optimisers, x, strict=True):
                optimiser.zero_grad()
                nn.functional.mse_loss(net(batch), batch).backward()
                optimiser.step()

    base = deepcopy(first[0]).to("meta")
    stacked, _ = stack_module_state(deepcopy(first))
    parameters = {name: value.detach().requires_grad_() for name, value in stacked.items()}
    optimiser = torch.optim.Adam(parameters.values(), lr=1e-3, fused=True)

    def loss(weights: dict[str, Tensor], batch: Tensor) -> Tensor:
        return nn.functional.mse_loss(functional_call(base, weights, (batch,)), batch)

    gradients = vmap(grad(loss))

    def together() -> None:
        for _ in range(steps):
            found = gradients(dict(parameters), x)
            for name, value in parameters.items():
                value.grad = found[name].detach()
            optimiser.step()

    alone()
    together()
    apart = max(
        float((dict(net.named_parameters())[name] - value[i]).abs().max().detach())
        for name, value in parameters.items()
        for i, net in enumerate(nets)
    )
    return quickest(alone) / steps / models, quickest(together) / steps / models, apart


def of_the_house(steps: int = 300) -> float:
    """Seconds of a processor for a step of such a model in the loop of the house."""
    training = TrainingConfig(steps=steps, batch_size=BATCH, evaluate_every=0)
    config = RunConfig(Squares(16), VAE(), AutoencoderConfig(LATENTS, MLP((WIDTH,), (WIDTH,))), training)
    train_in_memory(RunConfig(config.world, config.objective, config.model, TrainingConfig(steps=5)), Listeners())
    return quickest(lambda: train_in_memory(config, Listeners()), 3) / steps


def main() -> None:
    torch.set_num_threads(1)
    table = Table(
        "models", "alone", "stacked", "ratio", "weights apart", title="Microseconds of a core for a step of a model"
    )
    for models in (4, 16, 64):
        alone, together, apart = measured(models)
        table.add_row(
            f"{models}", f"{1e6 * alone:.0f}", f"{1e6 * together:.0f}", f"{alone / together:.1f}", f"{apart:.1e}"
        )
    Console().print(table)
    Console().print(f"the loop of the house, with drawing the batch: {1e6 * of_the_house():.0f} microseconds a step")


if __name__ == "__main__":
    main()
