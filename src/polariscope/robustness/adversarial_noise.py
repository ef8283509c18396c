"""Noise that is learned against a classifier: the worst noise with the same distribution for every image and pixel.

A generator is trained to raise the cross-entropy of a fixed network, at a fixed norm after clipping. The robustness to
its noise is then measured as for any other noise (:mod:`.noise_distance`), always with generators that are new to the
network. (Rusak et al. 2020, sections 3.2 and 3.3; Spec 001b, sections A5 and A8.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polariscope.findings import Chart, Column, Findings, Pictures, Records, Strip
from polariscope.nets.noise_generator import Kernel, NoiseGenerator
from polariscope.objectives.objective import Batch, Need, Objective, Terms
from polariscope.objectives.predict import classification, target_of
from polariscope.robustness.noise_distance import NoiseDistances, images_with_classes, noise_distances
from polariscope.robustness.rescale import rescaled
from polariscope.subjects import Subject, as_subject
from polariscope.training.config import TrainingConfig
from polariscope.training.loop import WEIGHTS_STEP, Listeners, build_state, fit, seed_step
from polariscope.worlds.pictures import limits_of
from polariscope.worlds.splits import RandomSplit
from polariscope.worlds.targets import Examples

SHOWN = 8
"""Draws of a noise on its page."""


@dataclass(frozen=True)
class NoiseAttack:
    """How noise is learned against a network.

    A generator learns best near the norm at which the network fails: far above it, any noise gives the maximal loss;
    far below it, the loss hardly depends on the noise. With several ``norms`` a generator is trained at each, and the
    most harmful one counts.
    """

    norms: tuple[float, ...]
    kernel: Kernel = 1
    """Size of the generator's convolutions: 1 makes noise that is independent between pixels."""
    depth: int = 4
    width: int = 20
    steps: int = 300
    batch_size: int = 100
    learning_rate: float = 5e-3

    def __post_init__(self) -> None:
        if not self.norms or not min(self.norms) > 0:
            raise ValueError(f"noise is learned at one or more positive norms; got {self.norms}")


@dataclass(frozen=True, eq=False)
class LearnedNoise:
    """Noise that was learned against a network at a norm."""

    generator: NoiseGenerator
    norm: float
    seed: int
    losses: tuple[float, ...]
    """Cross-entropy of the network, averaged over each tenth of the training."""

    def findings(self, size: int = 28) -> Findings:
        """The learned noise in figures: densities of its channels, and a few draws of ``size`` pixels."""
        from polariscope.report.noise_figures import density_curves

        density = noise_density(self.generator, seed=self.seed)
        with torch.no_grad(), torch.random.fork_rng(range(torch.cuda.device_count())):
            seed_step(self.seed, 1)
            like = next(self.generator.parameters()).new_zeros(SHOWN, self.generator.channels, size, size)
            draws = self.generator.noise_for(like).cpu().numpy()[None]
        spread = ", ".join(f"{mean:.3g} ± {sd:.3g}" for mean, sd in zip(density.mean, density.sd, strict=True))
        named = [f"channel {i}" for i in range(self.generator.channels)] if self.generator.channels > 1 else ["noise"]
        curves = dict(zip(named, density.density, strict=True))
        return Findings(
            "learned noise",
            f"Noise learned at norm {self.norm:g} raised the cross-entropy from {self.losses[0]:.4g} to "
            f"{self.losses[-1]:.4g}; before it is scaled, its pixels are {spread}.",
            [
                Chart(name="density", title="Density of a pixel", draw=lambda: density_curves(density.edges, curves)),
                Pictures(
                    name="draws",
                    title="Draws",
                    strips=[Strip(draws, says="draws of the learned noise, side by side")],
                    limits=limits_of([draws]),
                ),
            ],
            arrays={"edges": density.edges, "density": density.density},
            settings={"norm": self.norm, "seed": self.seed},
        )


def learn_noise(model: Any, x: Any, y: Any, norm: float, attack: NoiseAttack, seed: int = 0) -> LearnedNoise:
    """Train a new generator against a classifier, which is left as it is."""
    subject = as_subject(model)
    x, y = images_with_classes(subject, x, y)
    with subject.at_rest(gradients=True):
        seed_step(seed, WEIGHTS_STEP)
        channels = x.shape[1] if x.ndim == 4 else 1
        generator = NoiseGenerator(channels, attack.kernel, attack.depth, attack.width).to(x.dtype)
        with torch.no_grad():
            classes = subject.scores(x[:1]).shape[1]
        device: Literal["cpu", "cuda"] = "cuda" if x.is_cuda else "cpu"
        config = TrainingConfig(
            attack.steps,
            attack.batch_size,
            attack.learning_rate,
            seed=seed,
            evaluate_every=0,
            log_every=max(1, attack.steps // 10),
            device=device,
        )
        losses: list[float] = []
        heard = Listeners(metrics=lambda event: losses.append(event.terms["cross_entropy"]))
        objective, world = Mislead(subject, norm), Examples(x.cpu(), y.cpu(), (classes,))
        fit(build_state(generator, objective, config), objective, world, config, heard, RandomSplit(0.0))
    return LearnedNoise(generator.eval(), norm, seed, tuple(losses))


@dataclass(frozen=True, eq=False)
class Mislead(Objective):
    """Raise the cross-entropy of a network by noise of a norm: the generator is the model, the network stays."""

    subject: Subject
    norm: float

    needs: ClassVar[tuple[Need, ...]] = ("target",)

    def __call__(self, model: NoiseGenerator, batch: Batch, step: int) -> Terms:
        noisy = rescaled(batch.x, model.noise_for(batch.x), self.norm)
        loss, wrong = classification(self.subject.scores(noisy), target_of(batch), batch.classes)
        return Terms(-loss, {"cross_entropy": loss, "error": wrong})


@dataclass(frozen=True, eq=False)
class GeneratorDistances:
    """ε* of learned noise: the most harmful generator of each seed, and the network's robustness to its noise."""

    noises: tuple[LearnedNoise, ...]
    distances: tuple[NoiseDistances, ...]

    @property
    def medians(self) -> NDArray[np.float64]:
        return np.array([one.median for one in self.distances])

    @property
    def mean(self) -> float:
        return float(self.medians.mean())

    @property
    def sd(self) -> float:
        """Standard deviation over seeds (ddof 1); ∞ if noise of a seed changes fewer than half of the predictions."""
        return float(self.medians.std(ddof=1)) if math.isfinite(self.mean) else math.inf

    def findings(self) -> Findings:
        rows = [
            {"seed": noise.seed, "norm": noise.norm, "epsilon_star": _told(one.median), "unreachable": one.unreachable}
            for noise, one in zip(self.noises, self.distances, strict=True)
        ]
        columns = [
            Column("seed", "seed"),
            Column("norm", "trained at norm", "%.4g"),
            Column("epsilon_star", "ε*", "%.4g"),
            Column("unreachable", "out of reach", "percent"),
        ]
        norm = (
            f"with a norm of {self.mean:.4g} ± {self.sd:.2g} misleads"
            if math.isfinite(self.mean)
            else "of at least one seed at no norm misleads"
        )
        return Findings(
            "learned noise",
            f"Learned noise {norm} the classifier on half of the observations ({len(rows)} new generators).",
            [Records(name="generators", title="Generators", rows=rows, columns=columns)],
            facts={"epsilon_star": _told(self.mean), "sd": _told(self.sd)},
        )


def _told(value: float) -> float | None:
    """JSON-ready: infinite numbers become None."""
    return value if math.isfinite(value) else None


def generator_distances(
    model: Any,
    x: Any,
    y: Any,
    attack: NoiseAttack,
    seeds: Sequence[int] = (0, 1, 2, 3),
    on: Examples | None = None,
    tell: Callable[[float], None] = lambda share: None,
) -> GeneratorDistances:
    """Train new generators of several seeds on ``(x, y)``, and measure how robust the network is to their noise, on
    other examples if they are given. For each seed, the norm of the attack with the smallest ε* counts. ``tell`` is
    called with the finished share of the work."""
    if len(set(seeds)) != len(seeds) or len(seeds) < 2:
        raise ValueError(f"the spread over generators needs at least 2 different seeds; got {tuple(seeds)}")
    subject, shown = as_subject(model), (x, y) if on is None else (on.x, on.y)
    kept: list[tuple[LearnedNoise, NoiseDistances]] = []
    for seed in seeds:
        tried = []
        for norm in attack.norms:
            noise = learn_noise(subject, x, y, norm, attack, seed)
            tried.append((noise, noise_distances(subject, *shown, noise.generator, seed)))
            tell((len(kept) + len(tried) / len(attack.norms)) / len(seeds))
        kept.append(min(tried, key=lambda one: one[1].median))
    noises, distances = zip(*kept, strict=True)
    return GeneratorDistances(noises, distances)


@dataclass(frozen=True, eq=False)
class NoiseDensity:
    """The marginal density of a noise, by channel."""

    edges: NDArray[np.float64]
    density: NDArray[np.float64]
    """``(channels, bins)``; each channel's integrates to 1."""
    mean: NDArray[np.float64]
    sd: NDArray[np.float64]


@torch.no_grad()
def noise_density(generator: NoiseGenerator, draws: int = 100_000, bins: int = 100, seed: int = 0) -> NoiseDensity:
    """A histogram of the noise of a generator at a pixel, before it is scaled to a norm.

    >>> found = noise_density(NoiseGenerator(1), draws=1000)
    >>> round(float((found.density * np.diff(found.edges)).sum()), 12)
    1.0
    """
    with torch.random.fork_rng(range(torch.cuda.device_count())):
        seed_step(seed, 0)
        pixel: Tensor = next(generator.parameters()).new_zeros(draws, generator.channels, 1, 1)
        values = generator.noise_for(pixel)[:, :, 0, 0].double().cpu().numpy().T
    edges = np.histogram_bin_edges(values, bins)
    density = np.stack([np.histogram(channel, edges, density=True)[0] for channel in values])
    return NoiseDensity(edges, density, values.mean(1), values.std(1))
