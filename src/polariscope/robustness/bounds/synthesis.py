"""Estimated bounds of classifiers by synthesis whose inference is a search.

For fixed codes of two classes, the difference of their losses is affine in the image, so the smallest change that makes
another class win is known (*shared*). The bound is its minimum over all codes of all other classes, and a search can
miss it: then the bound is too large. So this is an estimate, not a certificate. It is the smallest result of several
searches, and is compared with attacks (:mod:`~polariscope.robustness.bounds.confrontation`).

A search alternates: the worst change for the current codes, then codes that explain the changed image better. Neither
makes the distance larger. The published bound (*separate*) is estimated in the same way. (Schott et al. 2019, section 4
and appendices A.4 to A.6; Spec 001b, sections B5.1 to B5.4.)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polariscope.robustness.bounds.flips import cheapest_flips, in_binarised_space
from polariscope.robustness.bounds.result import Bounds, NoBound, combined
from polariscope.robustness.bounds.settings import BoundSettings
from polariscope.robustness.synthesis.inference import Inference, Search, descend
from polariscope.robustness.synthesis.likelihoods import Likelihood
from polariscope.theory.certificates import separate_l2
from polariscope.theory.halfspaces import Nearest, Norm, nearest_in_halfspace

FloatArray = NDArray[np.float64]
LEVELS = 12
"""Bisections of the separate L∞ bound, each with a search of its own."""
NOTE = (
    "The bound is estimated: it speaks of the best code of every class, and a search over codes may miss it. An attack "
    "below the bound shows such a miss."
)


class Synthesis(Protocol):
    """The interface of a model: inference, the outputs of its decoders, and how losses become scores."""

    likelihood: Likelihood
    gamma: Tensor
    offsets: Tensor
    search: Search
    binary: bool

    def infer(self, x: Tensor, start: Tensor | None = None, *, search: Search | None = None) -> Inference: ...

    def outputs(self, codes: Tensor) -> Tensor: ...

    def binarised(self, x: Tensor) -> Tensor: ...


def estimated_bounds(
    model: Synthesis, x: Tensor, y: Tensor, norm: Norm, settings: BoundSettings, seeds: tuple[int, ...] = ()
) -> Bounds | NoBound:
    """Estimated bounds of images ``(n, ...)`` of the classes ``y``."""
    seeds = seeds or tuple(range(settings.seeds))
    if not model.binary and not bool((model.gamma == model.gamma[0]).all()):
        return NoBound(norm, "the classes have different factors, and images are not binarised")
    problem = _Problem(model, x, y, norm, settings)
    shared, separate = [], []
    for seed in seeds:
        shared.append(problem.shared(seed))
        if problem.has_separate:
            separate.append(problem.separate(seed))
    methods = {"shared": np.stack(shared)}
    if separate:
        methods["separate"] = np.stack(separate)
    rest: dict[str, Any] = {"seeds": seeds, "notes": (NOTE,)}
    if not model.binary:
        return combined(norm, "estimated bound", methods, problem.right, **rest)
    flips = methods.pop("shared")
    inner = {"shared, by flips": in_binarised_space(flips, norm), **methods}
    prices = np.stack([cheapest_flips(problem.raw, row, norm, channels=problem.channels) for row in flips])
    binarised = combined(norm, "estimated bound", inner, problem.right, space="binarised", seeds=seeds)
    return combined(norm, "estimated bound", {"cheapest flips": prices}, problem.right, binarised=binarised, **rest)


class _Problem:
    """Images with everything about their true class, whose code stays as it was inferred: any code of it will do."""

    def __init__(self, model: Synthesis, x: Tensor, y: Tensor, norm: Norm, settings: BoundSettings) -> None:
        self.model, self.y, self.norm, self.settings = model, y, norm, settings
        self.raw = x.flatten(1).double().cpu().numpy()
        self.channels = x.shape[1] if x.ndim == 4 else 1
        self.x = model.binarised(x).detach()
        self.flat = self.x.flatten(1)
        rows = torch.arange(len(x), device=x.device)
        self.inference = model.infer(x)
        scores = model.offsets - model.gamma * self.inference.losses
        self.right = (scores.argmax(1) == y).cpu().numpy()
        # Any code of the true class gives a bound, and a better one a larger bound.
        codes = self.improved(self.inference.codes, self.flat[:, None], settings.rounds * settings.descent)
        with torch.no_grad():
            own = model.outputs(codes).flatten(2)[rows, y]
        self.own_output, self.own_code = own, codes[rows, y]
        self.own_scale, self.own_offset = model.gamma[y], model.offsets[y]
        energy = model.likelihood.energy(own, self.flat)
        self.own_loss = self.own_scale * (energy + 0.5 * self.own_code.square().sum(1)) - self.own_offset

    @property
    def has_separate(self) -> bool:
        """The published bound is one of squared distances, in L2 and L∞."""
        return hasattr(self.model.likelihood, "variance") and self.norm in ("l2", "linf")

    def shared(self, seed: int) -> FloatArray:
        """The smallest change, or number of flips, over the codes that one search visits; ``(n,)``."""
        codes = self.starts(seed, divergence=1.0)
        best = np.full(codes.shape[:2], np.inf)
        for number in range(self.settings.rounds):
            worst = self.worst(codes)
            best = np.minimum(best, worst.distance)
            if number + 1 < self.settings.rounds:
                images = self.flat[:, None] + torch.from_numpy(worst.change).to(self.flat)
                codes = self.improved(codes, images, self.settings.descent)
        return self.least(best)

    def worst(self, codes: Tensor) -> Nearest:
        """The smallest change after which each class with its codes explains an image better than the true class."""
        with torch.no_grad():
            outputs = self.model.outputs(codes).flatten(2)
            energies = self.model.likelihood.energy(outputs, self.flat[:, None])
            losses = self.model.gamma * (energies + 0.5 * codes.square().sum(2)) - self.model.offsets
            features = self.model.gamma[:, None] * self.model.likelihood.features(outputs)
            own = self.own_scale[:, None] * self.model.likelihood.features(self.own_output)
        slope = (features - own[:, None]).double().cpu().numpy()
        margin = (losses - self.own_loss[:, None]).double().cpu().numpy()
        flat = self.flat.double().cpu().numpy()[:, None]
        if self.model.binary:
            return self.worst_flips(slope, margin, flat)
        low, high = (-flat, 1 - flat) if self.settings.box or self.norm == "l0" else (None, None)
        return nearest_in_halfspace(slope, margin, self.norm, low, high, self.channels)

    def worst_flips(self, slope: FloatArray, margin: FloatArray, flat: FloatArray) -> Nearest:
        """The fewest flips of a binarised image. Where the factors of two classes differ, what both losses gain by a
        pixel alone does not cancel; for a pixel that flips it is one number."""
        ends = self.flat.new_tensor([[0.0], [1.0]])
        constants = self.model.likelihood.image_constants(ends).double().cpu().numpy()
        factors = (self.own_scale[:, None] - self.model.gamma).double().cpu().numpy()
        slope = slope + (factors * (constants[1] - constants[0]))[..., None]
        low, high = -flat, 1 - flat  # a pixel that is off can only be put on, and the other way round
        return nearest_in_halfspace(slope, margin, "l0", low, high, self.channels)

    def separate(self, seed: int) -> FloatArray:
        """The published bound from the codes that one search visits."""
        variance = float(self.model.likelihood.variance)  # type: ignore[attr-defined]  # see has_separate
        near = self.starts(seed, divergence=0.0)
        with torch.no_grad():
            distances = (self.model.outputs(near).flatten(2) - self.flat[:, None]).norm(dim=2)
            own = (self.own_output - self.flat).norm(dim=1)
        code = variance * self.own_code.square().sum(1)
        offsets = 2 * variance * (self.model.offsets - self.own_offset[:, None])  # o_y − o_c, in units of squares
        parts = (own[:, None], code[:, None], distances, self.own_scale[:, None], self.model.gamma[None], offsets)
        numbers = [part.double().cpu().numpy() for part in parts]
        if self.norm == "l2":
            return self.least(separate_l2(*numbers))
        return self.least(self._separate_linf(near, *numbers[:2], *numbers[3:]))

    def _separate_linf(
        self, near: Tensor, own: FloatArray, code: FloatArray, scale: FloatArray, gamma: FloatArray, offset: FloatArray
    ) -> FloatArray:
        """Bisection on ε, with codes improved at every one."""
        apart = (self.own_output - self.flat).double().cpu().numpy()[:, None]
        flat = self.flat.double().cpu().numpy()[:, None]
        low, high = np.zeros(near.shape[:2]), np.ones(near.shape[:2])
        for _ in range(LEVELS):
            at = (low + high) / 2
            down, up = -at[..., None] + 0 * flat, at[..., None] + 0 * flat
            if self.settings.box or self.model.binary:
                down, up = np.maximum(down, -flat), np.minimum(up, 1 - flat)
            worst = np.maximum((apart - down) ** 2, (apart - up) ** 2).sum(-1)
            near, other = self.outside(near, torch.from_numpy(down).to(self.flat), torch.from_numpy(up).to(self.flat))
            holds = scale * (worst + code) + offset < gamma * other
            low, high = np.where(holds, at, low), np.where(holds, high, at)
        return low

    def outside(self, codes: Tensor, down: Tensor, up: Tensor) -> tuple[Tensor, FloatArray]:
        """Codes whose images are nearest to a box of changes, and the squares of their distances."""

        def energy(rows: Tensor, _: Any) -> Tensor:
            gap = self.model.outputs(rows.reshape(codes.shape)).flatten(2) - self.flat[:, None]
            beyond = (gap - up).clamp(min=0) + (down - gap).clamp(min=0)
            return beyond.square().sum(2).flatten()

        descent = descend(energy, codes.flatten(0, 1), self.settings.descent, self.model.search.rate)
        return descent.codes.reshape(codes.shape), descent.values.reshape(codes.shape[:2]).double().cpu().numpy()

    def improved(self, codes: Tensor, images: Tensor, steps: int) -> Tensor:
        """Codes that explain images ``(n, K, pixels)``, one for each class, at least as well as those given."""

        def energy(rows: Tensor, _: Any) -> Tensor:
            shaped = rows.reshape(codes.shape)
            distance = self.model.likelihood.energy(self.model.outputs(shaped).flatten(2), images)
            return (distance + 0.5 * shaped.square().sum(2)).flatten()

        return descend(energy, codes.flatten(0, 1), steps, self.model.search.rate).codes.reshape(codes.shape)

    def starts(self, seed: int, divergence: float) -> Tensor:
        """Codes ``(n, K, L)`` that a search with draws of its own finds for the images as they are."""
        own = self.model.search
        budget = {"candidates": self.settings.candidates, "steps": self.settings.steps} if own.candidates else {}
        search = replace(own, seed=seed, divergence=divergence, starts=1, tolerance=0.0, **budget)
        return self.model.infer(self.x, search=search).codes

    def least(self, values: FloatArray) -> FloatArray:
        """The smallest over the other classes."""
        labels = self.y.cpu().numpy()
        return np.asarray(np.where(np.arange(values.shape[1]) == labels[:, None], np.inf, values).min(1))
