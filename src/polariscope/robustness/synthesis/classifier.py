"""A classifier that explains an image by each class in turn, and answers with the class that explains it best.

The score of class c is l_c(x) = -min over z of { E(G_c(z), x) + |z|²/2 }: the evidence lower bound at the best code,
without the constant of the likelihood. The gradient of a score needs no gradient through the search: at the optimum the
code may be held fixed (the envelope theorem), so that for a Gaussian likelihood it is (G_c(z*) - x) / variance.
(Schott et al. 2019, section 3; Spec 001b, sections B1, B2 and B3.)
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Self

import torch
from torch import Tensor, nn

from polariscope.nets.model import Shape
from polariscope.robustness.synthesis.graded_softmax import GradedSoftmax
from polariscope.robustness.synthesis.inference import Inference, Search
from polariscope.robustness.synthesis.likelihoods import Likelihood
from polariscope.subjects import Subject

AT_ONCE = 256
"""Images whose codes are searched for together."""
NO_ETA = -1e30
"""The logarithm of an eta without effect; checkpoints need finite numbers."""


class ABSClassifier(nn.Module, ABC):
    """Class scores by analysis by synthesis. A kind of it defines how codes are decoded and inferred."""

    gamma: Tensor
    offsets: Tensor
    alpha: Tensor
    log_eta: Tensor

    def __init__(
        self, classes: int, shape: Shape, latents: int, likelihood: Likelihood, search: Search, binary: bool = False
    ) -> None:
        super().__init__()
        if classes < 2:
            raise ValueError(f"a classifier needs at least 2 classes; got {classes}")
        self.classes, self.shape, self.latents = classes, tuple(shape), latents
        self.likelihood, self.search, self.binary = likelihood, search, binary
        self.register_buffer("gamma", torch.ones(classes))
        self.register_buffer("offsets", torch.zeros(classes))
        self.register_buffer("alpha", torch.ones(()))
        self.register_buffer("log_eta", torch.tensor(NO_ETA))

    @abstractmethod
    def decode(self, codes: Tensor) -> Tensor:
        """Images ``(n, K, *shape)`` of codes ``(n, K, L)``, each by the decoder of its class."""

    @abstractmethod
    def search_codes(self, x: Tensor, start: Tensor | None, search: Search) -> Inference:
        """The codes of images that have been checked and, for a binary classifier, binarised."""

    def infer(self, x: Tensor, start: Tensor | None = None, *, search: Search | None = None) -> Inference:
        """Codes, reconstructions and losses of images ``(n, *shape)`` by every class; nothing here has a gradient.

        ``start`` ``(n, K, L)`` are initial codes in place of the candidates, such as those of a nearby image;
        ``search`` replaces the classifier's own settings. A binary classifier infers from the binarised image.
        """
        self._check(x, start)
        search = search or self.search
        # Out of whatever the caller is in: codes are optimised with gradients of their own.
        with torch.inference_mode(False), torch.no_grad():
            given = self.binarised(x.detach().clone())
            begin = start.detach().clone() if start is not None else None
            parts = [
                self.search_codes(part, None if begin is None else begin[at : at + AT_ONCE], search)
                for at, part in zip(range(0, len(x), AT_ONCE), given.split(AT_ONCE), strict=True)
            ]
        return Inference(*(torch.cat([getattr(part, name) for part in parts]) for name in Inference.__annotations__))

    def forward(self, x: Tensor) -> Tensor:
        """Class scores ``(n, K)``: -gamma l_c + offset of the class. Gradients reach ``x`` by the envelope theorem."""
        return torch.cat([self._scores(part) for part in x.split(AT_ONCE)])

    def _scores(self, x: Tensor) -> Tensor:
        inference = self.infer(x)
        if not (torch.is_grad_enabled() and x.requires_grad):
            return self.scores_of(inference.losses)
        return self.scores_of(self.losses_at(x, inference.codes))

    def scores_of(self, losses: Tensor) -> Tensor:
        """Class scores of losses ``(n, K)``."""
        return self.offsets - self.gamma * losses

    def losses_at(self, x: Tensor, codes: Tensor) -> Tensor:
        """Losses ``(n, K)`` of images with codes held fixed; differentiable in ``x`` (a binary classifier passes the
        gradient straight through its threshold)."""
        with torch.no_grad():
            outputs = self.outputs(codes).flatten(2)
            divergences = 0.5 * codes.square().sum(2)
        return self.likelihood.energy(outputs, self.binarised(x).flatten(1)[:, None]) + divergences

    @abstractmethod
    def outputs(self, codes: Tensor) -> Tensor:
        """Parameters of the likelihood ``(n, K, *shape)`` at codes ``(n, K, L)``."""

    def input_gradient(self, x: Tensor) -> Tensor:
        """Gradients of all class scores with respect to the image, ``(n, K, *shape)``, by the envelope theorem."""
        codes = self.infer(x).codes
        with torch.enable_grad():
            # Every class gets an image of its own, so that one pass gives the gradients of all of them.
            images = x.detach()[:, None].expand(-1, self.classes, *self.shape).clone().requires_grad_()
            outputs = self.outputs(codes).flatten(2).detach()
            energies = self.likelihood.energy(outputs, self.binarised(images).flatten(2))
            return torch.autograd.grad((-self.gamma * energies).sum(), images)[0]

    def binarised(self, x: Tensor) -> Tensor:
        """The image that is explained: for a binary classifier 1 where a pixel is at least 1/2 and 0 elsewhere, with a
        gradient as if the threshold were not there."""
        if not self.binary:
            return x
        return x + ((x >= 0.5).to(x) - x).detach()

    @property
    def softmax(self) -> GradedSoftmax:
        """The calibrated graded softmax; its scores are those of :meth:`forward` divided by the number of pixels.
        Before the calibration it is the plain softmax of the scores."""
        alpha, log_eta = float(self.alpha), float(self.log_eta)
        uncalibrated = alpha == 1 and log_eta < NO_ETA / 2
        return GradedSoftmax(self.pixels if uncalibrated else alpha, log_eta)

    def log_probabilities(self, scores: Tensor) -> Tensor:
        """Logarithms of class probabilities for scores of :meth:`forward`, by the graded softmax."""
        return self.softmax.log_probabilities(scores / self.pixels)

    def probabilities(self, x: Tensor) -> Tensor:
        """Class probabilities ``(n, K)`` of images, by the graded softmax; uniform for an image that no class
        explains."""
        return self.log_probabilities(self.forward(x)).exp()

    @property
    def pixels(self) -> int:
        """Numbers in one image."""
        return torch.Size(self.shape).numel()

    def searching(self, search: Search) -> Self:
        """The same classifier with another search: weights are shared, nothing is trained."""
        other = copy.copy(self)
        other.search = search
        return other

    def _check(self, x: Tensor, start: Tensor | None) -> None:
        if not x.is_floating_point() or tuple(x.shape[1:]) != self.shape or not len(x):
            raise ValueError(
                f"this classifier explains images of shape {self.shape} as floats; got {tuple(x.shape[1:])} of "
                f"{x.dtype} for {len(x)} images"
            )
        if not x.isfinite().all():
            raise ValueError("an image has NaN or infinity in it: no code explains it")
        if start is not None and start.shape != (len(x), self.classes, self.latents):
            raise ValueError(
                f"codes to start from need shape {(len(x), self.classes, self.latents)}, one for each image and class; "
                f"got {tuple(start.shape)}"
            )


def classifier_of(subject: Subject, what: str) -> ABSClassifier:
    """The classifier by synthesis inside a subject; any other subject is refused in a sentence that names ``what``."""
    if not isinstance(subject.module, ABSClassifier):
        raise ValueError(
            f"{what} needs a classifier that explains images by codes (analysis by synthesis), and {subject.name} is "
            "none: train one with --objective abs"
        )
    return subject.module
