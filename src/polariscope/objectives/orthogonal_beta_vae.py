"""The beta-VAE with a penalty on the cosines between the columns of the decoder's Jacobian (Spec 003, F3-108).

A diagonal posterior penalises them, too, but only in proportion to beta (Spec 003, section 2.5); this penalty does not
depend on beta.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import jvp
from torch.nn import functional

from polariscope.nets.autoencoder import Autoencoder
from polariscope.objectives.autoencoding import forward
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.objectives.objective import Batch, Terms, at_least, objectives

PASSIVE = 0.8
"""Mean posterior variance from which on a latent is not in use (Spec 003, section 2.1)."""


@objectives.register("orthogonal-beta-vae")
@dataclass(frozen=True)
class OrthogonalBetaVAE(BetaVAE):
    """R + βK + λ Σ_{i<j} cos²(c_i, c_j) for the columns c of the decoder's Jacobian at the posterior mean.

    Only latents in use have columns that count, and only the decoder learns from the cosines. The Jacobian is that of
    the expected observation, by one forward-mode pass with a copy of the batch for each latent.
    """

    control: float = 1.0
    """λ, the weight of the squared cosines; 0 is the beta-VAE."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self.control, 0, "control")

    @property
    def divergence_weight(self) -> float | None:
        return None if self.control else super().divergence_weight

    def __call__(self, model: Autoencoder, batch: Batch, step: int) -> Terms:
        p = forward(model, batch)
        used = p.posterior.var.detach().mean(0) < PASSIVE
        columns = jacobians(lambda z: model.likelihood.expectation(model.decode(z)), p.posterior.mean.detach(), used)
        cosines = squared_cosines(columns).mean()
        loss = p.reconstruction + self.beta * p.kl + self.control * cosines
        return Terms(loss, {"reconstruction": p.reconstruction, "kl": p.kl, "squared_cosines": cosines})


def jacobians(decode: Callable[[Tensor], Tensor], z: Tensor, used: Tensor) -> Tensor:
    """Exact derivatives ``(n, m, k)`` of the flattened output at codes ``z`` ``(n, d)`` by the k latents in use.

    ``decode`` must treat the examples of a batch independently. Gradients reach its weights.

    >>> jacobians(lambda z: z.square(), torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([True, False, True])).tolist()
    [[[2.0, 0.0], [0.0, 0.0], [0.0, 6.0]]]
    """
    directions = torch.eye(z.shape[1], dtype=z.dtype, device=z.device)[used]
    k, n = len(directions), len(z)
    if not k:
        return z.new_zeros(n, 1, 0)
    slopes: Tensor = jvp(decode, (z.repeat(k, 1),), (directions.repeat_interleave(n, 0),))[1]
    return slopes.reshape(k, n, -1).permute(1, 2, 0)


def squared_cosines(columns: Tensor) -> Tensor:
    """Squared cosines between the columns of matrices ``(n, m, k)``, summed over pairs: 0 iff they are orthogonal.

    >>> cosine = squared_cosines(torch.tensor([[[4.0, 1.0], [-3.0, 1.0], [5.0, -1.0]]]))  # (-4)² / (50 · 3)
    >>> round(cosine.item() * 150, 3)
    16.0
    """
    unit = functional.normalize(columns, dim=1)
    return (unit.mT @ unit).square().triu(1).sum((1, 2))
