"""Linear analysis by synthesis: probabilistic PCA for each class, where inference has a closed form.

With G_c(z) = W_c z + b_c the best code is z* = (WᵀW + w v I)⁻¹ Wᵀ(x - b) for pixel variance v and divergence weight w,
and the score with w = 1 is -(x-b)ᵀ(vI + WWᵀ)⁻¹(x-b)/2. Results of the search can be compared with it, and bounds on it
are certificates. (Tipping and Bishop, Probabilistic principal component analysis; Spec 001b, oracles O-B1 and O-B2.)
"""

from __future__ import annotations

import torch
from torch import Tensor

from polariscope.nets.model import Shape
from polariscope.robustness.synthesis.classifier import ABSClassifier
from polariscope.robustness.synthesis.inference import Inference, Search
from polariscope.robustness.synthesis.likelihoods import GaussianLikelihood
from polariscope.theory.certificates import LinearGenerators


class LinearABS(ABSClassifier):
    """Exact class scores of linear decoders. Without latent variables it is a classifier of prototypes.

    >>> toy = LinearABS(torch.zeros(2, 4, 0), torch.tensor([[0.0, 0, 0, 0], [4.0, 0, 0, 0]]), (4,))
    >>> toy(torch.tensor([[0.5, 0.0, 0.0, 0.0]]))
    tensor([[ -0.2500, -12.2500]])
    """

    weights: Tensor
    means: Tensor

    def __init__(
        self,
        weights: Tensor,
        means: Tensor,
        shape: Shape,
        variance: float = 0.5,
        offsets: Tensor | None = None,
        binary: bool = False,
    ) -> None:
        """``weights`` ``(K, pixels, L)`` and ``means`` ``(K, pixels)``; ``offsets`` ``(K,)`` are added to the scores,
        such as logarithms of class probabilities."""
        pixels = torch.Size(shape).numel()
        if weights.ndim != 3 or weights.shape[1] != pixels or means.shape != weights.shape[:2]:
            raise ValueError(
                f"linear decoders of images of shape {tuple(shape)} need weights (classes, {pixels}, latents) and "
                f"means (classes, {pixels}); got {tuple(weights.shape)} and {tuple(means.shape)}"
            )
        super().__init__(len(weights), shape, weights.shape[2], GaussianLikelihood(variance), Search(0, 0), binary)
        self.variance = variance
        self.register_buffer("weights", weights)
        self.register_buffer("means", means)
        self.to(weights)
        if offsets is not None:
            self.offsets.copy_(offsets)

    @classmethod
    def fit(
        cls, x: Tensor, y: Tensor, latents: int = 8, variance: float = 0.5, *, prior: bool = False, exact: bool = False
    ) -> LinearABS:
        """The decoders of the highest likelihood for a known pixel variance: of each class the principal axes, of
        length sqrt(eigenvalue - variance); an axis whose eigenvalue is below the variance gets length 0.

        With ``prior`` the scores contain the logarithm of the class frequencies. With ``exact`` they also contain
        -log det(vI + WWᵀ)/2, by which they become the exact log-likelihoods log p(x, y) up to one constant; with both
        the classifier is that of Bayes for these densities.
        """
        labels, count = torch.as_tensor(y).long(), len(x)
        if labels.shape != (count,) or not count or not x.is_floating_point():
            raise ValueError(
                f"fit needs images as floats and a class for each; got {x.dtype} of shape {tuple(x.shape)} and "
                f"{tuple(labels.shape)}"
            )
        sizes = labels.bincount()
        if len(sizes) < 2 or sizes.min() < 2:
            raise ValueError(f"fit needs at least 2 images of every class from 0; got {sizes.tolist()}")
        flat, pixels = x.flatten(1), x[0].numel()
        if not 0 <= latents <= pixels:
            raise ValueError(f"the latent size is {latents}: of {pixels} pixels it lies between 0 and {pixels}")
        weights, means, determinants = [], [], []
        for images in flat[labels.argsort(stable=True)].split(sizes.tolist()):
            mean = images.mean(0)
            _, singular, axes = torch.linalg.svd(images - mean, full_matrices=False)
            eigenvalues = torch.zeros(latents).to(flat)
            rank = min(latents, len(singular))
            eigenvalues[:rank] = singular[:rank].square() / len(images)
            directions = torch.zeros(pixels, latents).to(flat)
            directions[:, :rank] = axes[:rank].T
            weights.append(directions * (eigenvalues - variance).clamp(min=0).sqrt())
            means.append(mean)
            determinants.append(eigenvalues.clamp(min=variance).div(variance).log().sum())
        offsets = (sizes / count).log().to(flat) if prior else torch.zeros(len(sizes)).to(flat)
        if exact:
            offsets = offsets - 0.5 * torch.stack(determinants)
        return cls(torch.stack(weights), torch.stack(means), tuple(x.shape[1:]), variance, offsets)

    def outputs(self, codes: Tensor) -> Tensor:
        flat = torch.einsum("kpl,nkl->nkp", self.weights, codes) + self.means
        return flat.reshape(len(codes), self.classes, *self.shape)

    def decode(self, codes: Tensor) -> Tensor:
        return self.outputs(codes)

    def linear_generators(self) -> LinearGenerators:
        """The decoders with the factors and offsets of the classes, as certificates take them: in double precision, and
        with losses that are those of :meth:`forward` times twice the variance of a pixel."""
        weights, means, gamma, offsets = (
            part.detach().double().cpu().numpy() for part in (self.weights, self.means, self.gamma, self.offsets)
        )
        return LinearGenerators(weights, means, self.variance, gamma, -2 * self.variance * offsets)

    def search_codes(self, x: Tensor, start: Tensor | None, search: Search) -> Inference:
        """The exact codes. Only the weight of the divergence is used from the settings of the search."""
        gaps = x.flatten(1)[:, None] - self.means
        ridge = search.divergence * self.variance * torch.eye(self.latents).to(self.weights)
        gram = self.weights.mT @ self.weights + ridge
        # The pseudo-inverse: without a divergence, axes of length 0 leave their codes open, and 0 is taken.
        codes = torch.einsum("klm,kpm,nkp->nkl", torch.linalg.pinv(gram, hermitian=True), self.weights, gaps)
        reconstructions = self.outputs(codes)
        energies = self.likelihood.energy(reconstructions.flatten(2), x.flatten(1)[:, None])
        losses = energies + 0.5 * search.divergence * codes.square().sum(2)
        return Inference(codes, reconstructions, losses, torch.zeros_like(losses, dtype=torch.int64))
