"""STIB, the adversarial alternative: Z1 stays uncorrelated with the property under any transform an adversary learns.

Wieser, Parbhoo, Wieczorek and Roth, Inverse learning of symmetries (2020); Spec 000, section 6.5. Their names of the
two parts of the code are exchanged: here Z0 encodes the property and Z1 should be independent of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn

from polariscope.nets.architecture import MLP, dense
from polariscope.nets.model import Brief, Model, PosteriorKind
from polariscope.nets.property_autoencoder import PropertyAutoencoder, PropertyAutoencoderConfig
from polariscope.objectives.annealing import Annealing
from polariscope.objectives.bottleneck import OfProperty, absolute_errors, as_term, with_property_decoder
from polariscope.objectives.objective import Batch, Player, Terms, Turn, at_least, objectives
from polariscope.objectives.predict import target_of

JITTER = 1e-4
"""Added to the diagonal of correlation matrices: it bounds MI_G, which is infinite for a perfect copy."""
STIB_WIDTHS = (256, 256)


@objectives.register("stib")
@dataclass(frozen=True)
class STIB(OfProperty):
    """K + λ (error of the observation + w · error of the property + v · MI_G), against an adversary that raises MI_G.

    MI_G = log(det C₁ det C₂ / det C₁₂) is twice the Gaussian information between h(Z1) and g(Y), for networks h and g
    of the adversary; g has to be invertible, for which its inverse is learned. ``mi_g`` should fall during training and
    ``bijection`` (the error of the inverse, as a share of the variance of Y) be small: otherwise the adversary learned
    nothing, and the comparison is meaningless.
    """

    lam: Annealing = field(default_factory=lambda: Annealing(0.7, 1.03, 300, until=150_000))
    """λ, the weight of the error terms: it grows during training, which relaxes the compression."""
    property_weight: float = 1.0
    """w: weight of the error of the property."""
    invariance_weight: float = 400.0
    """v: weight of MI_G in the loss of the model; 0 leaves the adversary without effect."""
    adversary_weight: float = 3000.0
    """Weight of MI_G in the loss of the adversary."""
    bijection_weight: float = 0.01
    """Weight of the error of the inverse, relative to MI_G, in the loss of the adversary."""
    adversary_widths: tuple[int, ...] = STIB_WIDTHS
    """Units of the hidden layers of each network of the adversary."""
    adversary_learning_rate: float = 1e-4

    posterior: ClassVar[PosteriorKind] = "constant"

    def __post_init__(self) -> None:
        for name in ("property_weight", "invariance_weight", "adversary_weight", "bijection_weight"):
            at_least(getattr(self, name), 0, name)
        at_least(self.adversary_learning_rate, 1e-12, "adversary_learning_rate")

    def default_model(self) -> Model:
        return PropertyAutoencoderConfig(
            architecture=MLP(STIB_WIDTHS, STIB_WIDTHS, "softplus", "softplus"),
            property_widths=STIB_WIDTHS,
            property_activation="softplus",
            decoder_input="code",
        )

    def build(self, model: Model, brief: Brief) -> nn.Module:
        network = with_property_decoder(model.build(brief), "stib")
        if not getattr(network, "invariant_latents", 0):
            raise ValueError(
                "the objective stib keeps the property out of the second part of a code, and all latents of this "
                "model are in the first: use property-autoencoder with property_latents below latents"
            )
        return network

    def players(self, model: PropertyAutoencoder, brief: Brief) -> dict[str, Player]:
        adversary = Adversary(model.invariant_latents, model.property_decoder.outputs, self.adversary_widths)
        return {"adversary": Player(adversary, {"lr": self.adversary_learning_rate})}

    def turns(self) -> tuple[Turn, ...]:
        return (self, self.adversary_turn)

    def __call__(self, model: PropertyAutoencoder, batch: Batch, step: int, adversary: Adversary) -> Terms:
        posterior = model.encode(batch.x)
        rate = posterior.kl().mean()
        z0, z1 = model.split(posterior.sample())
        outputs = model.property_decoder(z0)
        decoded = model.decoder(model.joined(model.property_decoder.expectation(outputs), z0, z1))
        reconstruction = model.likelihood.distortion(decoded, batch.x).mean()
        error = model.property_decoder.error(outputs, target_of(batch)).mean()
        shared = correlation_information(*adversary.views(z1, model.property_decoder.values(target_of(batch))))
        lam = self.lam.at(step)
        kept = reconstruction + self.property_weight * error + self.invariance_weight * shared
        parts = {
            "kl": rate,
            "reconstruction": reconstruction,
            "property": error,
            "mi_g": shared,
            "lam": as_term(lam, rate),
        }
        counts = absolute_errors(model, batch, posterior) if batch.evaluating else {}
        return Terms(rate + lam * kept, parts, counts=counts)

    def adversary_turn(self, model: PropertyAutoencoder, batch: Batch, step: int, adversary: Adversary) -> Terms:
        """The adversary learns to see the property in Z1, with a batch of its own."""
        with torch.no_grad():
            _, z1 = model.split(model.encode(batch.x).sample())
            y = model.property_decoder.values(target_of(batch))
        seen, turned = adversary.views(z1, y)
        missed = (adversary.inverse(turned) - y).square().sum(1).mean()
        gain = correlation_information(seen, turned) - self.bijection_weight * missed
        share = missed.detach() / y.var(0, correction=0).sum().clamp_min(1e-12)
        return Terms(None, {"bijection": share}, {"adversary": -self.adversary_weight * gain})


class Adversary(nn.Module):
    """h of the invariant code, g of the property, and an inverse of g."""

    def __init__(self, latents: int, outputs: int, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.invariance = _network(latents, widths, outputs)
        self.bijection = _network(outputs, widths, outputs)
        self.inverse = _network(outputs, widths, outputs)

    def views(self, z1: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """h(Z1) and g(Y)."""
        return self.invariance(z1), self.bijection(y)


def correlation_information(first: Tensor, second: Tensor) -> Tensor:
    """MI_G = log(det C₁ det C₂ / det C₁₂) of two groups of columns, from their correlations over a batch.

    >>> x = torch.tensor([[1.0], [-1.0], [1.0], [-1.0]])
    >>> abs(correlation_information(x, torch.tensor([[1.0], [-1.0], [-1.0], [1.0]])).item()) < 1e-6
    True
    """
    joint = torch.cat([first, second], 1)
    centred = joint - joint.mean(0)
    scaled = centred / (centred.square().mean(0) + 1e-12).sqrt()
    matrix = scaled.T @ scaled / len(scaled) + JITTER * torch.eye(scaled.shape[1], dtype=joint.dtype)
    size = first.shape[1]
    one, other, both = (torch.linalg.slogdet(part)[1] for part in (matrix[:size, :size], matrix[size:, size:], matrix))
    return one + other - both


def _network(inputs: int, widths: tuple[int, ...], outputs: int) -> nn.Sequential:
    last = widths[-1] if widths else inputs
    return nn.Sequential(*dense(inputs, widths, "softplus").values(), nn.Linear(last, outputs))
