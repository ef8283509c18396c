"""Short trainings, the statistics of dimension selection that they give, and when these can be trusted.

A :class:`DimensionProbe` trains one model with n latents and computes the statistics that the searches compare. Short
trainings have a trap: before a model starts to use its latents, it looks like a collapsed model, and its answer is
stable but wrong. Each :class:`Reading` therefore compares its reconstruction with that of a collapsed model, and
:func:`stable_dimension` only trusts readings that are clearly better (Spec 002, sections 12 and 17.2; Bonheme 2023,
chapter 8).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from polariscope.dimension.search import BetaSearch, Search, Step, binary_search, fondue, fondue_over_beta
from polariscope.measures.intrinsic_dimension import DimensionEstimate, mle
from polariscope.measures.polarisation import trace_gap, variable_types
from polariscope.measures.renyi import BottleneckGap, bottleneck_gap
from polariscope.nets.autoencoder import Autoencoder, AutoencoderConfig
from polariscope.nets.likelihood import Gaussian
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.objectives.vae import VAE
from polariscope.representation import Representation, represent
from polariscope.training.config import RunConfig
from polariscope.training.loop import HELD_OUT_EXAMPLES, Listeners, build_state, evaluate
from polariscope.training.run import brief_of, train_in_memory
from polariscope.worlds.observations import Arranged
from polariscope.worlds.splits import Parts
from polariscope.worlds.world import ArrayWorld, World, sample, to_tensor

Statistic = Literal["trace", "trace-sampled", "ib", "ide"]
THRESHOLDS: dict[Statistic, float] = {"trace": 1.0, "trace-sampled": 1.0, "ib": -0.01, "ide": 1.0}
"""The published thresholds. ``trace`` is the expectation of ``trace-sampled`` and has less noise."""
INFORMATION_EXAMPLES = 2000  # 20 batches of 100: the spread of their mean is far below the two decimals that count


@dataclass(frozen=True)
class Reading:
    """The statistics of one short training with ``latents`` variables."""

    latents: int
    steps: int
    seed: int
    trace_mean: float
    """Tr Var M, of the posterior means."""
    trace_sample: float
    """Tr Var Z, of posterior samples."""
    trace_gap: float
    """Σ_j mean posterior variance: the difference of the traces without sampling noise."""
    reconstruction: float
    """Mean negative log-likelihood in nats."""
    kl: float
    explained: float
    """Explained share of the reconstruction loss: 0 for a collapsed model, 1 for a perfect one."""
    collapsed: bool
    """The reconstruction is not clearly better than that of a model that ignores its input."""
    active: int
    mixed: int
    passive: int
    seconds: float
    ide_mean: float | None = None
    """Intrinsic dimension of the means; None if it was not measured."""
    ide_sample: float | None = None
    bottleneck: BottleneckGap | None = None
    """H(z) and I(x; x̂), and whether the latter is saturated; None if they were not measured."""

    def gap(self, statistic: Statistic) -> float:
        """The value a search compares with its threshold."""
        if statistic == "trace":
            return self.trace_gap
        if statistic == "trace-sampled":
            return self.trace_sample - self.trace_mean
        if statistic == "ib" and self.bottleneck is not None:
            return self.bottleneck.gap
        if statistic == "ide" and self.ide_mean is not None and self.ide_sample is not None:
            return self.ide_sample - self.ide_mean
        raise ValueError(f"the statistic {statistic!r} was not measured: name it in the probe's statistics")


@dataclass(frozen=True)
class DimensionProbe:
    """Trains models that differ only in their number of latents, and measures them.

    ``config.model.latents`` is ignored. A reading uses up to ``examples`` observations: held-out ones first, then
    training ones if there are too few.
    """

    config: RunConfig
    examples: int = 10_000
    statistics: tuple[Statistic, ...] = ("trace",)
    """The statistics to measure. The traces are always measured; ``ib`` and ``ide`` take extra time."""
    guard: float = 0.1
    """A model whose explained share is smaller than this counts as collapsed."""

    def __post_init__(self) -> None:
        if self.examples < 2:
            raise ValueError(f"a probe needs at least 2 examples; got {self.examples}")
        if not 0 <= self.guard < 1:
            raise ValueError(f"the guard is a share in [0, 1); got {self.guard}")

    def __call__(
        self, latents: int, *, steps: int | None = None, seed: int | None = None, listeners: Listeners | None = None
    ) -> Reading:
        """Train with ``latents`` variables and measure; ``steps`` and ``seed`` replace those of the configuration."""
        config = self.at(latents, steps, seed)
        started = time.perf_counter()
        model = self.train(config, listeners)
        rep = self.represent(model, config)
        if rep.var is None or rep.sample is None:
            raise ValueError("the model has no posterior variance, hence no trace gap: use a variational objective")
        if rep.prior_var is not None:
            raise ValueError("the model learns its prior, so passive does not mean a variance of 1: use a VAE")
        terms = self.evaluate(model, config)
        explained = self.explained(model, terms["reconstruction"])
        types = variable_types(rep.var).counts
        ide = "ide" in self.statistics
        return Reading(
            latents=latents,
            steps=config.training.steps,
            seed=config.training.seed,
            trace_mean=float(rep.mean.var(axis=0, ddof=1, dtype=np.float64).sum()),
            trace_sample=float(rep.sample.var(axis=0, ddof=1, dtype=np.float64).sum()),
            trace_gap=trace_gap(var=rep.var, estimator="analytic"),
            reconstruction=terms["reconstruction"],
            kl=terms["kl"],
            explained=explained,
            collapsed=explained < self.guard,
            **types,
            ide_mean=intrinsic_dimension(rep.mean) if ide else None,
            ide_sample=intrinsic_dimension(rep.sample) if ide else None,
            bottleneck=self.bottleneck(model, rep) if "ib" in self.statistics else None,
            seconds=time.perf_counter() - started,
        )

    @property
    def model(self) -> AutoencoderConfig:
        if not isinstance(self.config.model, AutoencoderConfig):
            raise ValueError("only an autoencoder has a number of latents: use the model autoencoder")
        return self.config.model

    def at(self, latents: int, steps: int | None = None, seed: int | None = None) -> RunConfig:
        """The configuration of one training. It evaluates nothing on the way, so the training cannot stop early."""
        training = self.config.training
        training = replace(
            training,
            steps=training.steps if steps is None else steps,
            seed=training.seed if seed is None else seed,
            evaluate_every=0,
        )
        return replace(self.config, model=replace(self.model, latents=latents), training=training)

    def train(self, config: RunConfig, listeners: Listeners | None = None) -> Autoencoder:
        return train_in_memory(config, listeners)

    @cached_property
    def examined(self) -> ArrayWorld:
        """The observations that are measured: held-out ones first, in a random order."""
        world = self.config.world
        parts = self.config.split.parts(world)
        index = np.concatenate([parts.held_out, parts.train])[: self.examples]
        positions = world.factors_of(index) if world.factors else None
        return ArrayWorld(Arranged(world.observe(index)), positions, world.factors)

    def represent(self, model: Autoencoder, config: RunConfig) -> Representation:
        """The representation of the observations by a model from :meth:`train`."""
        return represent(model, self.examined, count=len(self.examined), seed=config.training.seed)

    def evaluate(self, model: Autoencoder, config: RunConfig) -> dict[str, float]:
        """Mean terms of the objective; ``kl`` is 0 if the objective has no divergence."""
        everything = np.arange(len(self.examined))
        state = build_state(model, config.objective, config.training, brief_of(config))
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            parts = Parts(everything[:1], everything)
            terms = evaluate(state, config.objective, self.examined, parts, config.training, config.training.steps)
        model.eval()
        return {"kl": 0.0, **terms}

    @torch.no_grad()
    def reconstructions(self, model: Autoencoder, codes: NDArray[np.float32]) -> NDArray[np.float32]:
        """Expected observations of codes, in the data's units and flattened."""
        device = next(model.parameters()).device
        batches = torch.from_numpy(codes).split(256)
        return torch.cat([model.generate(z.to(device)).flatten(1).float().cpu() for z in batches]).numpy()

    def bottleneck(self, model: Autoencoder, rep: Representation) -> BottleneckGap:
        """H(z) − I(x; x̂) with x̂ decoded from the sampled codes z."""
        assert rep.sample is not None
        codes = rep.sample[:INFORMATION_EXAMPLES]
        x = to_tensor(self.examined.observe(np.arange(len(codes)))).flatten(1).numpy()
        return bottleneck_gap(codes, x, self.reconstructions(model, codes))

    def explained(self, model: Autoencoder, reconstruction: float) -> float:
        """Position of a reconstruction loss between those of the best constant output (0) and a perfect one (1)."""
        collapsed, perfect = self.levels(model)
        return (collapsed - reconstruction) / (collapsed - perfect)

    def levels(self, model: Autoencoder) -> tuple[float, float]:
        """Reconstruction losses of a collapsed model and of a perfect one.

        The former is the entropy of the mean observation (Bernoulli) or the variance around it (Gaussian); the latter
        is not 0 for grey values or for densities.
        """
        mean_entropy, own_entropy, spread = self._levels
        if not isinstance(model.likelihood, Gaussian):
            return mean_entropy, own_entropy
        var = float(model.likelihood.var)
        perfect = 0.5 * model.dimensions * math.log(2 * math.pi * var)
        return perfect + spread / (2 * var), perfect

    @cached_property
    def _levels(self) -> tuple[float, float, float]:
        """Entropy of the mean observation, mean entropy of the observations, total variance."""
        count = min(HELD_OUT_EXAMPLES, len(self.examined))  # what the loss is evaluated on
        x = to_tensor(self.examined.observe(np.arange(count))).flatten(1).double()
        spread = float(x.var(0, correction=0).sum())
        if not spread > 0:
            raise ValueError("all observations are the same: there is no dimension to find")
        if self.model.likelihood == "gaussian":
            return 0.0, 0.0, spread
        if x.min() < 0 or x.max() > 1:
            raise ValueError(
                "a Bernoulli likelihood needs observations in [0, 1], and some are outside: use the Gaussian likelihood"
            )
        mean = x.mean(0, keepdim=True)
        entropy, own = (float(-(torch.xlogy(p, p) + torch.xlogy(1 - p, 1 - p)).sum(1).mean()) for p in (mean, x))
        return entropy, own, spread


def intrinsic_dimension(x: NDArray[Any], k: int = 20) -> float:
    """MLE over k neighbours, or over all others in a smaller sample."""
    return mle(x, k=min(k, len(x) - 1)).value


def data_dimension(world: World, examples: int = 10_000, k: int = 20, seed: int = 0) -> DimensionEstimate:
    """Intrinsic dimension of a world's distinct observations. FONDUE starts at this number, rounded."""
    observations = sample(world, examples, seed)[0]
    return mle(observations, k=min(k, len(observations) - 1))


@dataclass(frozen=True)
class DimensionSearch:
    """The chosen number of latents, with the search and the trainings behind it."""

    algorithm: str
    search: Search
    readings: tuple[Reading, ...]
    """One reading per training, in order."""

    @property
    def answer(self) -> int:
        return self.search.answer

    @property
    def trusted(self) -> bool:
        """Whether no model that decided the answer was still collapsed: neither the chosen one nor a larger one."""
        deciding = [r for r in self.readings if r.latents >= self.answer]
        return bool(deciding) and not any(r.collapsed for r in deciding)

    @property
    def saturated(self) -> bool:
        """Whether I(x; x̂) was uninformative in a reading, so that an answer by ``ib`` depends on the codes alone."""
        return any(r.bottleneck is not None and r.bottleneck.saturated for r in self.readings)

    @property
    def models(self) -> int:
        return len(self.readings)

    @property
    def steps(self) -> int:
        """Steps of each training."""
        return self.readings[0].steps if self.readings else 0

    @property
    def seconds(self) -> float:
        return sum(r.seconds for r in self.readings)


ALGORITHMS: dict[tuple[str, Statistic], str] = {
    ("fondue", "trace"): "FONDUE",
    ("fondue", "trace-sampled"): "FONDUE (sampled)",
    ("fondue", "ib"): "FONDUE_IB",
    ("fondue", "ide"): "FONDUE_IDE",
    ("binary", "trace"): "BS_FONDUE",
    ("binary", "trace-sampled"): "BS_FONDUE (sampled)",
    ("binary", "ib"): "IB",
    ("binary", "ide"): "BS_FONDUE_IDE",
}


def search_dimension(
    probe: Callable[[int], Reading],
    start: int,
    statistic: Statistic = "trace",
    threshold: float | None = None,
    cap: int = 200,
    method: Literal["fondue", "binary"] = "fondue",
    tell: Callable[[Reading, float, bool], None] = lambda reading, value, passed: None,
) -> DimensionSearch:
    """The largest number of latents whose statistic is at most the threshold (the published one, if not given).

    ``method="binary"`` bisects 1 to ``cap`` and needs no start. ``tell`` is called with each reading, its statistic and
    whether it passed.
    """
    limit = THRESHOLDS[statistic] if threshold is None else threshold
    readings: list[Reading] = []

    def value(n: int) -> float:
        reading = probe(n)
        readings.append(reading)
        gap = reading.gap(statistic)
        tell(reading, gap, gap <= limit)
        return gap

    search = fondue(value, start, limit, cap) if method == "fondue" else binary_search(value, 1, cap, limit)
    return DimensionSearch(ALGORITHMS[method, statistic], search, tuple(readings))


def type_count_dimension(
    probe: Callable[[int], Reading],
    start: int,
    cap: int = 200,
    tell: Callable[[Reading, float, bool], None] = lambda reading, value, passed: None,
) -> DimensionSearch:
    """One large model instead of a search: train with twice ``start`` latents and count those that are not passive.

    If none is passive, the model may be too small, and the number is doubled. The logged statistic is the number of
    passive variables. This is cheaper than FONDUE but lacks its guarantee (Spec 002, section 12.6).
    """
    if not 1 <= start <= cap:
        raise ValueError(f"counting types starts between 1 and the cap of {cap}; got start {start}")
    readings: list[Reading] = []
    log: list[Step] = []
    n = min(2 * start, cap)
    while True:
        reading = probe(n)
        readings.append(reading)
        log.append(Step(n, float(reading.passive), readings[-2].latents if log else 0, math.inf))
        tell(reading, float(reading.passive), not reading.passive)
        if reading.passive or n == cap:
            break
        n = min(2 * n, cap)
    search = Search(
        reading.active + reading.mixed, tuple(s.n for s in log), tuple(log), 0.0, capped=not reading.passive
    )
    return DimensionSearch("type count", search, tuple(readings))


@dataclass(frozen=True)
class StableDimension:
    """Answers at growing budgets of steps, and whether the last one can be trusted."""

    attempts: tuple[DimensionSearch, ...]
    stable: bool
    """Whether the last two answers are trusted and agree."""

    @property
    def answer(self) -> int:
        return self.attempts[-1].answer

    @property
    def last(self) -> DimensionSearch:
        return self.attempts[-1]

    @property
    def models(self) -> int:
        return sum(a.models for a in self.attempts)

    @property
    def seconds(self) -> float:
        return sum(a.seconds for a in self.attempts)


def stable_dimension(attempt: Callable[[int], DimensionSearch], budgets: Iterable[int]) -> StableDimension:
    """Search at growing budgets of steps until the answer stops changing, counting only answers that can be trusted.

    Models that have not started to use their latents give the same answer at any budget. An attempt whose deciding
    models are still collapsed therefore neither confirms an answer nor is confirmed (Spec 002, section 17.2).
    """
    attempts: list[DimensionSearch] = []
    for steps in budgets:
        attempts.append(attempt(steps))
        confirmed = len(attempts) > 1 and all(a.trusted for a in attempts[-2:])
        if confirmed and attempts[-1].answer == attempts[-2].answer:
            return StableDimension(tuple(attempts), stable=True)
    if not attempts:
        raise ValueError("a stable dimension needs at least one budget of steps; got none")
    return StableDimension(tuple(attempts), stable=False)


def doubling(first: int, most: int) -> list[int]:
    """Budgets from ``first`` on, each twice the one before, none above ``most``.

    >>> doubling(500, 3000), doubling(500, 300)
    ([500, 1000, 2000], [300])
    """
    if first < 1 or most < 1:
        raise ValueError(f"a budget is at least 1 step; got {first} and {most}")
    first = min(first, most)
    return [first * 2**k for k in range((most // first).bit_length())]


def with_setting(config: RunConfig, setting: str, value: float) -> RunConfig:
    """The same run with one setting of its objective changed; a VAE becomes a β-VAE when its β is set."""
    objective = config.objective
    if setting == "beta" and isinstance(objective, VAE):
        objective = BetaVAE(beta=1.0)
    settings = [f.name for f in fields(objective)]  # type: ignore[arg-type]
    if setting not in settings:
        raise ValueError(
            f"{type(objective).__name__} has no setting {setting!r}; it has {', '.join(settings) or 'none'}"
        )
    return replace(config, objective=replace(objective, **{setting: value}))  # type: ignore[type-var]


def largest_beta(probe: DimensionProbe, latents: int, statistic: Statistic = "trace", **search: float) -> BetaSearch:
    """The largest β at which all ``latents`` variables are used; ``search`` goes to :func:`fondue_over_beta`."""

    def value(beta: float) -> float:
        return replace(probe, config=with_setting(probe.config, "beta", beta))(latents).gap(statistic)

    return fondue_over_beta(value, **{"threshold": THRESHOLDS[statistic], **search})
