"""Analysis by synthesis with one variational autoencoder for each class, as a registered model.

The encoders serve in training only: a classifier that used them could be attacked through them. (Schott et al. 2019;
Spec 001b, sections B1, B2 and B4.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from polariscope.nets.model import Brief, Shape, images, models, predicts
from polariscope.nets.posterior import Diagonal
from polariscope.registry import Settings
from polariscope.robustness.synthesis.classifier import ABSClassifier
from polariscope.robustness.synthesis.inference import Candidates, Inference, Search, candidate_codes, fits, infer_one
from polariscope.robustness.synthesis.likelihoods import BernoulliLikelihood, GaussianLikelihood
from polariscope.robustness.synthesis.networks import SMALLEST, ClassDecoder, class_encoder


@models.register("abs")
@dataclass(frozen=True)
class ABSConfig:
    """Analysis by synthesis: an autoencoder for each class; the class whose autoencoder explains an image best is
    predicted."""

    examples: ClassVar[tuple[Settings, ...]] = ({"latents": 2, "search": {"candidates": 20, "steps": 3}},)

    latents: int = 8
    """Latent variables of each class."""
    likelihood: Literal["gaussian", "bernoulli"] = "gaussian"
    """Meaning of the decoders' output: means of pixels, or logits (an ablation, less robust)."""
    variance: float = 0.5
    """Variance of the Gaussian likelihood; at 1/2 a loss is the squared error."""
    binary: bool = False
    """Binarise images before they are explained (Binary ABS)."""
    prior: Literal["uniform", "frequencies"] = "uniform"
    """Prior probability of the classes: all equal, as published, or as frequent as in training."""
    search: Search = field(default_factory=Search)
    """How codes are searched for."""

    def __post_init__(self) -> None:
        if self.latents < 1:
            raise ValueError(f"the latent size is {self.latents}: it needs to be at least 1")
        GaussianLikelihood(self.variance)  # says what is wrong with the variance

    def build(self, brief: Brief) -> VariationalABS:
        outputs = predicts(brief, "abs")
        if brief.classes and (len(brief.classes) > 1 or brief.classes[0] < 2):
            raise ValueError(
                "abs has an autoencoder for each class of one target, and this world has targets with "
                f"{', '.join(map(str, brief.classes))} classes (0: a number): choose a factor with the view task"
            )
        return VariationalABS(self, images(brief, "abs", SMALLEST), outputs)


class VariationalABS(ABSClassifier):
    """An autoencoder for each class; ``forward`` returns class scores by inference, ``evidence`` the terms of training.

    >>> network = VariationalABS(ABSConfig(), (1, 28, 28), classes=10)
    >>> sum(p.numel() for p in network.encoders[0].parameters()) - 2 * 128  # without batch norm
    61360
    >>> sum(p.numel() for p in network.decoders[0].parameters()) - 2 * 64
    23505
    """

    counts: Tensor

    def __init__(self, config: ABSConfig, shape: Shape, classes: int) -> None:
        gaussian = config.likelihood == "gaussian"
        likelihood = GaussianLikelihood(config.variance) if gaussian else BernoulliLikelihood()
        super().__init__(classes, shape, config.latents, likelihood, config.search, config.binary)
        self.prior = config.prior
        self.encoders = nn.ModuleList(class_encoder(shape, config.latents) for _ in range(classes))
        self.decoders = nn.ModuleList(ClassDecoder(shape, config.latents) for _ in range(classes))
        self.register_buffer("counts", torch.zeros(classes, dtype=torch.float64))
        self._decoded = Decoded()

    def evidence(self, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Energies and divergences of images, each by the autoencoder of its own class and no other, sorted by class.

        In training, a class with a single image in the batch is skipped: one image has no batch statistics.
        """
        order = labels.argsort(stable=True)
        sizes = labels.bincount(minlength=self.classes)
        if self.training:
            self.counts += sizes
        energies, divergences = [], []
        for number, own in enumerate(x[order].split(sizes.tolist())):
            if len(own) > self.training:
                posterior = self.posterior(number, own)
                outputs = self.likelihood.outputs(self.decoders[number](posterior.sample()))
                energies.append(self.likelihood.energy(outputs.flatten(1), own.flatten(1)))
                divergences.append(posterior.kl())
        if not energies:
            raise ValueError(
                f"a batch of {len(x)} images has no class with two of them, which batch norm needs: take larger batches"
            )
        return torch.cat(energies), torch.cat(divergences)

    def posterior(self, number: int, x: Tensor) -> Diagonal:
        """The posterior of images by the encoder of a class; used in training only."""
        mean, logvar = self.encoders[number](x).chunk(2, dim=1)
        return Diagonal(mean, logvar)

    @torch.no_grad()
    def encoder_scores(self, x: Tensor) -> Tensor:
        """Class scores ``(n, K)`` with codes from the encoders in place of the search: fast, for learning curves. The
        classifier does not use them."""
        codes = torch.stack([self.posterior(number, x).mean for number in range(self.classes)], 1)
        outputs = [self.decoders[number](codes[:, number]).flatten(1) for number in range(self.classes)]
        energies = self.likelihood.energy(self.likelihood.outputs(torch.stack(outputs, 1)), x.flatten(1)[:, None])
        return self.scores_of(energies + 0.5 * codes.square().sum(2))

    def encode(self, x: Tensor) -> Tensor:
        """Codes of all classes side by side, ``(n, K L)``, by inference."""
        return self.infer(x).codes.flatten(1)

    def outputs(self, codes: Tensor) -> Tensor:
        decoders = self._decoded.decoders(self)
        return torch.stack([decode(codes[:, number]) for number, decode in enumerate(decoders)], 1)

    def decode(self, codes: Tensor) -> Tensor:
        return self.likelihood.pictures(self.outputs(codes))

    def search_codes(self, x: Tensor, start: Tensor | None, search: Search) -> Inference:
        flat = x.flatten(1)
        banks = None if start is not None or not search.candidates else self._decoded.candidates(self, search)
        codes, pictures, losses, steps = [], [], [], []
        for number, decode in enumerate(self._decoded.decoders(self)):
            bank = None if banks is None else banks[number]
            begin = None if start is None else start[:, number]
            descent, outputs = infer_one(decode, bank, flat, self.likelihood, search, self.latents, begin)
            codes.append(descent.codes)
            losses.append(descent.values)
            steps.append(descent.steps)
            pictures.append(self.likelihood.pictures(outputs).reshape(x.shape))
        return Inference(*(torch.stack(parts, 1) for parts in (codes, pictures, losses, steps)))

    def set_prior(self) -> None:
        """Offsets of the scores by the frequencies of the classes in training, if the configuration sets them."""
        if self.prior == "frequencies":
            self.offsets.copy_((self.counts.clamp(min=1) / self.counts.clamp(min=1).sum()).log())


Decoder = Callable[[Tensor], Tensor]


class Decoded:
    """Decoders made ready for inference, and their candidates: made again when the weights have changed.

    No part of the state of the network: it is neither saved nor copied with it.
    """

    def __init__(self) -> None:
        self._weights: Tensor | None = None
        self._decoders: list[Decoder] = []
        self._candidates: dict[tuple[int, int], list[Candidates]] = {}

    def __deepcopy__(self, memo: object) -> Decoded:
        return Decoded()

    def __reduce__(self) -> tuple[type[Decoded], tuple[()]]:
        return Decoded, ()

    def decoders(self, network: VariationalABS) -> list[Decoder]:
        """For each class a function from codes to the likelihood's parameters."""
        with torch.inference_mode(False), torch.no_grad():
            weights = torch.cat([value.flatten() for value in network.decoders.state_dict().values()])
            known = self._weights
            if known is None or known.device != weights.device or not torch.equal(known, weights):
                self._weights, self._candidates = weights, {}
                self._decoders = [_ready(decoder, network) for decoder in network.decoders]
        return self._decoders

    def candidates(self, network: VariationalABS, search: Search) -> list[Candidates]:
        """The decoded candidates of each class; those of the last search are stored if they fit in memory."""
        decoders = self.decoders(network)
        key = (search.candidates, search.seed)
        if key not in self._candidates:
            like = next(network.decoders.parameters())
            codes = candidate_codes(search.candidates, network.latents, search.seed).to(like)
            keep = fits(search.candidates, network.pixels, network.classes, like.dtype)
            made = [Candidates(decode, codes, network.likelihood, keep) for decode in decoders]
            self._candidates = {key: made}
        return self._candidates[key]


def _ready(decoder: nn.Module, network: VariationalABS) -> Decoder:
    assert isinstance(decoder, ClassDecoder)
    logits = decoder.folded()
    return lambda codes: network.likelihood.outputs(logits(codes))
