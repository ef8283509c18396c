"""A network that generates observations from factors: an autoencoder's decoder with factors in place of a code."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.nets.likelihood import Bernoulli, Gaussian
from polariscope.nets.model import Shape


class FactorGenerator(nn.Module):
    """``decode`` returns the likelihood's parameters for factors, and ``generate`` the expected observation.

    Factors are positions on the grid of a world, which become numbers from -1 to 1, or values if a factor is continuous
    (its size is 0), which stay unchanged. A categorical factor is one number, too: the network has as many inputs as
    the world has factors.

    >>> generator = FactorGenerator(AutoencoderConfig(), (1, 16, 16), (3, 0))
    >>> generator.scaled(torch.tensor([[0.0, 0.7], [2.0, -4.0]])).tolist()
    [[-1.0, 0.699999988079071], [1.0, -4.0]]
    >>> generator.generate(torch.tensor([[0, 1], [2, 4]])).shape
    torch.Size([2, 1, 16, 16])
    """

    reach: Tensor
    centre: Tensor

    def __init__(self, config: AutoencoderConfig, shape: Shape, factor_sizes: tuple[int, ...]) -> None:
        if not factor_sizes:
            raise ValueError("a generator from factors needs factors: use a world whose factors are known")
        super().__init__()
        self.decoder = config.architecture.decoder(len(factor_sizes), shape)
        gaussian = config.likelihood == "gaussian"
        self.likelihood = Gaussian(config.variance, config.learn_variance) if gaussian else Bernoulli()
        self.register_buffer("centre", torch.tensor([max(size - 1, 0) / 2 for size in factor_sizes]))
        self.register_buffer("reach", torch.tensor([(size - 1) / 2 if size > 1 else 1.0 for size in factor_sizes]))

    def scaled(self, factors: Tensor) -> Tensor:
        """The network's inputs for factors ``(n, k)`` of any real type."""
        if factors.ndim != 2 or factors.shape[1] != len(self.reach):
            raise ValueError(
                f"this generator takes factors of shape (n, {len(self.reach)}); got {tuple(factors.shape)}"
            )
        return (factors.to(self.reach) - self.centre) / self.reach

    def decode(self, factors: Tensor) -> Tensor:
        """The likelihood's parameters: logits for Bernoulli, means for Gaussian."""
        parameters: Tensor = self.decoder(self.scaled(factors))
        return parameters

    def generate(self, factors: Tensor) -> Tensor:
        """The expected observation of factors, in the data's units."""
        return self.likelihood.expectation(self.decode(factors))
