"""How well a decoder's output explains an image: the energy, which is the negative log-likelihood without constants.

Both energies are linear in the image once a constant of the image is taken out: E(o, x) = A(o) + B(x) - f(o)·x. That is
what makes the search over thousands of candidates one matrix product. (Spec 001b, sections B1 and B9.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor
from torch.nn import functional


class Likelihood(Protocol):
    """An energy of outputs ``(..., pixels)`` and images ``(..., pixels)``, which broadcast against each other."""

    def energy(self, outputs: Tensor, x: Tensor) -> Tensor:
        """Negative log-likelihood ``(...)`` without constants."""

    def features(self, outputs: Tensor) -> Tensor:
        """f(o), which is multiplied with the image."""

    def constants(self, outputs: Tensor) -> Tensor:
        """A(o), for each output."""

    def image_constants(self, x: Tensor) -> Tensor:
        """B(x), for each image."""

    def pictures(self, outputs: Tensor) -> Tensor:
        """Expected images of outputs."""

    def outputs(self, logits: Tensor) -> Tensor:
        """The input of the energy from a network that ends in a sigmoid."""


@dataclass(frozen=True)
class GaussianLikelihood:
    """Pixels around the decoder's output with one variance; with 1/2 the energy is the plain squared error.

    >>> import torch
    >>> GaussianLikelihood().energy(torch.tensor([0.25, 1.0]), torch.tensor([0.25, 0.0]))
    tensor(1.)
    """

    variance: float = 0.5

    def __post_init__(self) -> None:
        if not self.variance > 0:
            raise ValueError(f"the variance of the pixels is {self.variance}: it needs to be positive")

    def energy(self, outputs: Tensor, x: Tensor) -> Tensor:
        return (outputs - x).square().sum(-1) / (2 * self.variance)

    def features(self, outputs: Tensor) -> Tensor:
        return outputs / self.variance

    def constants(self, outputs: Tensor) -> Tensor:
        return outputs.square().sum(-1) / (2 * self.variance)

    def image_constants(self, x: Tensor) -> Tensor:
        return x.square().sum(-1) / (2 * self.variance)

    def pictures(self, outputs: Tensor) -> Tensor:
        return outputs

    def outputs(self, logits: Tensor) -> Tensor:
        return logits.sigmoid()


@dataclass(frozen=True)
class BernoulliLikelihood:
    """Bernoulli pixels whose logit the decoder returns: the ablation of the Gaussian.

    A pixel that is on while the decoder is certain that it is off has an unbounded cost; under a Gaussian it costs at
    most 1/(2 variance).
    """

    def energy(self, outputs: Tensor, x: Tensor) -> Tensor:
        return (functional.softplus(outputs) - x * outputs).sum(-1)

    def features(self, outputs: Tensor) -> Tensor:
        return outputs

    def constants(self, outputs: Tensor) -> Tensor:
        return functional.softplus(outputs).sum(-1)

    def image_constants(self, x: Tensor) -> Tensor:
        return x.new_zeros(x.shape[:-1])

    def pictures(self, outputs: Tensor) -> Tensor:
        return outputs.sigmoid()

    def outputs(self, logits: Tensor) -> Tensor:
        return logits
