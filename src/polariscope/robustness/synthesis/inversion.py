"""Encode by inverting a decoder: the code of an observation is the one whose decoding comes nearest to it.

Works for the decoder of any autoencoder. A trained encoder computes a code in one pass, with the errors of its
training; a search uses the decoder alone. (Spec 001b, row C-04.)
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from polariscope.robustness.synthesis.inference import Candidates, Search, candidate_codes, fits, infer_one
from polariscope.robustness.synthesis.likelihoods import BernoulliLikelihood, GaussianLikelihood, Likelihood
from polariscope.subjects import as_subject

AT_ONCE = 256


@dataclass(frozen=True, eq=False)
class Inversion:
    """Codes of ``n`` observations by a search, and how well they explain them."""

    codes: Tensor
    """``(n, L)``."""
    reconstructions: Tensor
    """Expected observations ``(n, *shape)`` of the codes."""
    losses: Tensor
    """Energy plus the weighted divergence ``(n,)``."""
    steps: Tensor
    """Gradient steps ``(n,)``."""


def invert(
    decoder: Callable[[Tensor], Tensor],
    x: Tensor,
    latents: int,
    *,
    likelihood: Likelihood | None = None,
    search: Search | None = None,
    start: Tensor | None = None,
) -> Inversion:
    """Search for the codes of observations ``x`` ``(n, *shape)``: min over z of E(decoder(z), x) + w |z|²/2.

    ``decoder`` maps codes ``(m, latents)`` to the likelihood's parameters: means for a Gaussian (which is assumed, with
    variance 1/2), logits for a :class:`~polariscope.robustness.synthesis.likelihoods.BernoulliLikelihood`. A module is
    used in evaluation mode and left as it was. ``start`` ``(n, latents)`` are initial codes, such as an encoder's, in
    place of random candidates.
    """
    likelihood, search = likelihood or GaussianLikelihood(), search or Search()
    if not x.is_floating_point() or not len(x):
        raise ValueError(f"observations to invert need to be floats, at least one; got {len(x)} of {x.dtype}")
    if not x.isfinite().all():
        raise ValueError("an observation has NaN or infinity in it: no code explains it")
    if start is not None and start.shape != (len(x), latents):
        raise ValueError(f"codes to start from need shape {(len(x), latents)}; got {tuple(start.shape)}")
    with torch.inference_mode(False), torch.no_grad(), _at_rest(decoder):
        flat = x.detach().clone().flatten(1)
        shape = torch.Size(x.shape[1:])
        made = decoder(flat.new_zeros(1, latents))
        if made[0].numel() != shape.numel():
            raise ValueError(
                f"the decoder makes observations of shape {tuple(made.shape[1:])} from {latents} latent variables, and "
                f"the observations have shape {tuple(shape)}"
            )
        bank = None
        if start is None and search.candidates:
            codes = candidate_codes(search.candidates, latents, search.seed).to(flat)
            bank = Candidates(decoder, codes, likelihood, fits(search.candidates, flat.shape[1], 1, flat.dtype))
        begin = None if start is None else start.detach().clone().to(flat)
        parts: list[tuple[Tensor, ...]] = []
        for at in range(0, len(flat), AT_ONCE):
            rows = slice(at, at + AT_ONCE)
            given = None if begin is None else begin[rows]
            descent, outputs = infer_one(decoder, bank, flat[rows], likelihood, search, latents, given)
            pictures = likelihood.pictures(outputs).reshape(-1, *shape)
            parts.append((descent.codes, pictures, descent.values, descent.steps))
    return Inversion(*(torch.cat(column) for column in zip(*parts, strict=True)))


def invert_model(model: Any, x: Tensor, *, search: Search | None = None, from_encoder: bool = False) -> Inversion:
    """Codes of observations by inverting the decoder of a Polariscope autoencoder, under its own likelihood.

    ``from_encoder`` starts at the encoder's means in place of random candidates.
    """
    if not callable(getattr(model, "decode", None)) or not isinstance(getattr(model, "latents", None), int):
        raise TypeError(
            f"a {type(model).__name__} has no decode of a known latent size: give its decoder to invert, with the "
            "number of latent variables"
        )
    variance = getattr(getattr(model, "likelihood", None), "var", None)
    likelihood = BernoulliLikelihood() if variance is None else GaussianLikelihood(float(variance))
    start = None
    if from_encoder:
        with torch.no_grad(), _at_rest(model):
            start = model.encode(x).mean

    def decoder(codes: Tensor) -> Tensor:
        outputs: Tensor = model.decode(codes)
        return outputs

    with _at_rest(model):
        return invert(decoder, x, model.latents, likelihood=likelihood, search=search, start=start)


def _at_rest(thing: object) -> AbstractContextManager[None]:
    """Evaluation mode for a module; a function is left alone."""
    return as_subject(thing).at_rest() if isinstance(thing, nn.Module) else nullcontext()
