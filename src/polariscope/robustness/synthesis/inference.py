"""Inference by optimisation: the code of an image is searched for among candidates and then refined by gradient.

For a decoder G, the loss of an image x is min over z of E(G(z), x) + w |z|²/2, where E is the energy of the likelihood.
The search starts at the best of some thousand fixed candidates, decoded once and stored, and takes a number of Adam
steps from there. Every row (an image with a decoder) is computed on its own: results do not depend on the rest of the
batch. (Schott et al. 2019, section 3; Spec 001b, section B2.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from polariscope.robustness.synthesis.likelihoods import Likelihood

Decode = Callable[[Tensor], Tensor]
"""Codes ``(m, latents)`` to the likelihood's parameters, ``(m, pixels)`` or ``(m, *shape)``."""
KEPT_BYTES = 320 * 2**20
"""Memory up to which the decoded candidates of all classes are stored; above it, they are decoded for every search."""
CHUNK_BYTES = 24 * 2**20
"""Decoded candidates that are made at a time. The decoder's own activations take several times as much."""
SPARE = 0.1
"""Share of the drawn candidates that is dropped: those with the lowest prior density."""
BETAS, TINY = (0.9, 0.999), 1e-8
PATIENCE = 5
"""Steps without enough of an improvement after which a row stops, if a tolerance is given."""


@dataclass(frozen=True)
class Search:
    """How the code of an image is searched for. The defaults are the published ones; the rate was chosen here."""

    candidates: int = 8000
    """Codes drawn from the prior, the same for every image; the best of them is the start. 0 starts at the origin."""
    steps: int = 50
    """Adam steps from the start."""
    rate: float = 0.05
    """Learning rate of Adam."""
    starts: int = 1
    """Best candidates to start from; the best end counts."""
    tolerance: float = 0.0
    """A row stops when its loss has fallen by less than this over 5 steps; 0 takes every step."""
    divergence: float = 1.0
    """Weight of |z|²/2, the divergence of the code from the prior. 0 searches for the nearest image alone."""
    seed: int = 0
    """Seed of the candidates."""

    def __post_init__(self) -> None:
        for name, low in (("candidates", 0), ("steps", 0), ("starts", 1), ("tolerance", 0), ("divergence", 0)):
            if not getattr(self, name) >= low:
                raise ValueError(f"search {name} is {getattr(self, name)}: it needs to be at least {low}")
        if not self.rate > 0:
            raise ValueError(f"the search rate is {self.rate}: it needs to be positive")
        if self.candidates and self.starts > self.candidates:
            raise ValueError(f"{self.starts} starts need as many candidates, and there are {self.candidates}")


@dataclass(frozen=True, eq=False)
class Inference:
    """The inference for ``n`` images by ``K`` decoders with ``L`` latent variables each."""

    codes: Tensor
    """``(n, K, L)``."""
    reconstructions: Tensor
    """Images of the codes, ``(n, K, *shape)``."""
    losses: Tensor
    """E(G(z), x) + w |z|²/2 at the codes, ``(n, K)``."""
    steps: Tensor
    """Gradient steps that each code took, ``(n, K)``."""


@dataclass(frozen=True, eq=False)
class Descent:
    """The result of a descent: the best point of each row, its value, and the number of steps."""

    codes: Tensor
    values: Tensor
    steps: Tensor


def descend(
    energy: Callable[[Tensor, Any], Tensor], start: Tensor, steps: int, rate: float, tolerance: float = 0.0
) -> Descent:
    """Adam on each row of ``start`` ``(m, L)``; the best point on the way is kept, so more steps are never worse.

    ``energy(codes, rows)`` returns a value for each row; ``rows`` are the numbers of the rows that still move (or
    ``slice(None)`` for all of them), which index the data of the rows.
    """
    count = len(start)
    best, values = start.clone(), start.new_full((count,), math.inf)
    taken = torch.full((count,), steps, device=start.device)
    codes, first, second = start.clone(), torch.zeros_like(start), torch.zeros_like(start)
    rows: Any = slice(None)
    history: list[Tensor] = []
    for step in range(steps + 1):
        last = step == steps
        with torch.set_grad_enabled(not last):
            point = codes.clone().requires_grad_(not last)
            value = energy(point, rows)
            gradient = None if last else torch.autograd.grad(value.sum(), point)[0]
        value = value.detach()
        better = value < values[rows]
        best[rows] = torch.where(better[:, None], point.detach(), best[rows])
        values[rows] = torch.where(better, value, values[rows])
        if gradient is None:
            break
        if tolerance:
            history.append(values[rows].clone())
            if len(history) > PATIENCE:
                moving = history.pop(0) - history[-1] >= tolerance
                if not moving.all():
                    numbers = torch.arange(count, device=start.device)[rows]
                    taken[numbers[~moving]] = step
                    rows = numbers[moving]
                    codes, gradient = codes[moving], gradient[moving]
                    first, second = first[moving], second[moving]
                    history = [kept[moving] for kept in history]
                if not len(codes):
                    break
        first = BETAS[0] * first + (1 - BETAS[0]) * gradient
        second = BETAS[1] * second + (1 - BETAS[1]) * gradient.square()
        scale = math.sqrt(1 - BETAS[1] ** (step + 1)) / (1 - BETAS[0] ** (step + 1))
        codes = codes - rate * scale * first / (second.sqrt() + TINY)
    if not values.isfinite().all():
        raise ValueError("the decoder returns NaN or infinity on codes of the search: its weights are not usable")
    return Descent(best, values, taken)


def candidate_codes(count: int, latents: int, seed: int = 0) -> Tensor:
    """Codes from the standard normal prior without the tenth of lowest density, ``(count, latents)``.

    >>> codes = candidate_codes(8000, 8)
    >>> codes.shape, bool(codes.norm(dim=1).max() < 3.7)  # the 90 % quantile of the norm of 8 normal numbers is 3.66
    (torch.Size([8000, 8]), True)
    """
    drawn = torch.randn(math.ceil(count / (1 - SPARE)), latents, generator=torch.Generator().manual_seed(seed))
    return drawn[drawn.square().sum(1).argsort(stable=True)[:count].sort().values]


class Candidates:
    """The decoded candidates of one decoder, from which the search starts.

    They are decoded in chunks. With ``keep`` they are stored; otherwise they are decoded for every search, so that
    memory stays small for images of any size.
    """

    def __init__(self, decode: Decode, codes: Tensor, likelihood: Likelihood, keep: bool) -> None:
        self.decode, self.codes, self.likelihood, self.keep = decode, codes, likelihood, keep
        self._chunks: list[tuple[Tensor, Tensor]] = []

    def nearest(self, x: Tensor, divergence: float, starts: int = 1) -> Tensor:
        """Codes ``(n, starts, L)`` of the candidates with the least losses for images ``x`` ``(n, pixels)``, best
        first."""
        penalties = 0.5 * divergence * self.codes.square().sum(1)
        losses, numbers = x.new_empty(len(x), 0), torch.empty(len(x), 0, dtype=torch.int64, device=x.device)
        begin = 0
        for features, constants in self.chunks(x.shape[1]):
            end = begin + len(features)
            # The squares are expanded; the constant of the image changes no ranking.
            chunk = torch.addmm((constants + penalties[begin:end]).expand(len(x), -1), x, features.T, alpha=-1)
            chunk, places = chunk.topk(min(starts, end - begin), largest=False)
            losses, order = torch.cat([losses, chunk], 1).sort(dim=1, stable=True)
            numbers = torch.cat([numbers, places + begin], 1).gather(1, order)[:, :starts]
            losses, begin = losses[:, :starts], end
        return self.codes[numbers]

    @torch.no_grad()
    def chunks(self, pixels: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Features ``(m, pixels)`` and constants ``(m,)`` of the energies, a chunk at a time."""
        if self._chunks:
            yield from self._chunks
            return
        size = max(1, CHUNK_BYTES // (self.codes.element_size() * pixels))
        made = []
        for codes in self.codes.split(size):
            outputs = self.decode(codes).flatten(1)
            chunk = self.likelihood.features(outputs), self.likelihood.constants(outputs)
            if self.keep:
                made.append(chunk)
            yield chunk
        self._chunks = made


def fits(candidates: int, pixels: int, decoders: int, dtype: torch.dtype = torch.float32) -> bool:
    """Whether the decoded candidates of all decoders fit in memory.

    >>> fits(8000, 784, 10), fits(8000, 3 * 64 * 64, 10)
    (True, False)
    """
    return candidates * pixels * decoders * dtype.itemsize <= KEPT_BYTES


def infer_one(
    decode: Decode,
    candidates: Candidates | None,
    x: Tensor,
    likelihood: Likelihood,
    search: Search,
    latents: int,
    start: Tensor | None = None,
) -> tuple[Descent, Tensor]:
    """The descent for images ``(n, pixels)`` with one decoder, and the decoder's outputs ``(n, pixels)`` at its end.

    ``start`` ``(n, L)`` takes the place of the candidates.
    """
    if start is not None:
        starts = start[:, None].to(x)
    elif candidates is not None:
        starts = candidates.nearest(x, search.divergence, search.starts)
    else:
        starts = x.new_zeros(len(x), 1, latents)
    images = x.repeat_interleave(starts.shape[1], 0) if starts.shape[1] > 1 else x

    def energy(codes: Tensor, rows: Any) -> Tensor:
        distance = likelihood.energy(decode(codes).flatten(1), images[rows])
        return distance + 0.5 * search.divergence * codes.square().sum(1)

    descent = descend(energy, starts.flatten(0, 1), search.steps, search.rate, search.tolerance)
    if starts.shape[1] > 1:
        values, best = descent.values.reshape(starts.shape[:2]).min(1)
        rows = best + starts.shape[1] * torch.arange(len(x), device=x.device)
        descent = Descent(descent.codes[rows], values, descent.steps[rows])
    with torch.no_grad():
        outputs = decode(descent.codes).flatten(1)
    return descent, outputs
