"""The one training loop.

The batch, the noise and every other draw of step t are functions of (seed, t). A run is therefore its weights,
its optimisers and one integer: stop it anywhere, load the checkpoint, and it goes on to the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import nn
from torch.optim import SGD, Adagrad, Adam, Optimizer

from polariscope.memory import keep_freed_memory
from polariscope.nets.autoencoder import Autoencoder
from polariscope.objectives.objective import Batch, Objective, Terms
from polariscope.training.checkpoint import TrainingState
from polariscope.training.config import TrainingConfig
from polariscope.worlds.world import Batches, World, to_tensor

OPTIMISERS: dict[str, Callable[..., Optimizer]] = {"adam": Adam, "adagrad": Adagrad, "sgd": SGD}
HELD_OUT_EXAMPLES = 1024
BLOCK = 16
"""Steps whose batches are rendered together, as far as they are small."""
BLOCK_BYTES = 2**26
"""Floats of batches that are there together."""
KEPT_BYTES = 2**26
"""Up to this size a training set is kept once rendered."""
KEPT_AT_ONCE = 4096


class Diverged(ArithmeticError):
    """The loss, or a weight, is infinite or not a number."""


@dataclass(frozen=True)
class Event:
    """Something worth telling about a run: mean terms of the last steps, or of held-out data."""

    step: int
    split: str
    terms: dict[str, float]


@dataclass(frozen=True)
class Listeners:
    """What the loop tells the outside: curves, moments to save the state, and each step for a progress bar."""

    metrics: Callable[[Event], None] = lambda event: None
    checkpoint: Callable[[TrainingState], None] = lambda state: None
    snapshot: Callable[[TrainingState], None] = lambda state: None
    step: Callable[[int, float], None] = lambda step, loss: None


def build_state(model: Autoencoder, objective: Objective, config: TrainingConfig) -> TrainingState:
    """The model on its device with optimisers for it and, if the objective has one, for its adversary."""
    model.to(device_of(config)).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    main = [p for name, p in model.named_parameters() if not name.startswith("adversary.")]
    own = {"eps": config.adam_epsilon} if config.optimiser == "adam" else {}
    optimisers = {"main": OPTIMISERS[config.optimiser](main, lr=config.learning_rate, fused=True, **own)}
    if model.adversary is not None:
        optimisers["adversary"] = Adam(model.adversary.parameters(), fused=True, **objective.adversary_optimiser())  # type: ignore[arg-type]
    return TrainingState(model, optimisers)


def fit(
    state: TrainingState,
    objective: Objective,
    world: World,
    config: TrainingConfig,
    listeners: Listeners | None = None,
) -> TrainingState:
    """Train from ``state.step`` to ``config.steps`` (or an early stop). The state is changed in place."""
    listeners = listeners or Listeners()
    keep_freed_memory()
    trained, held_out = split(len(world), config.held_out)
    feed = Feed(world, trained, config)
    model = state.model
    assert isinstance(model, Autoencoder)
    if config.compile:
        model.encode, model.decode = torch.compile(model.encode), torch.compile(model.decode)  # type: ignore[method-assign]
    with _threads(config.threads), _own_randomness():
        for step, batch in feed.steps(state.step, config.steps):
            seed_step(config.seed, step)
            terms = _step(state, objective, batch, step, config)
            loss = _add(state, terms)
            if not math.isfinite(loss):
                raise Diverged(
                    f"training diverged at step {step}: the loss is {loss}. "
                    f"A smaller learning rate (now {config.learning_rate:g}) or --training.clip 1 often helps"
                )
            state.step = done = step + 1
            last = done == config.steps
            if done % config.log_every == 0 or last:
                listeners.metrics(Event(done, "train", _take_means(state)))
            if config.evaluate_every and len(held_out) and (done % config.evaluate_every == 0 or last):
                terms_held_out = evaluate(model, objective, world, held_out, config, step)
                listeners.metrics(Event(done, "held_out", terms_held_out))
                improved = terms_held_out["loss"] < state.best
                state.best = min(state.best, terms_held_out["loss"])
                state.stale = 0 if improved else state.stale + 1
                last = last or bool(config.patience and state.stale >= config.patience)
            if config.snapshot_every and done % config.snapshot_every == 0:
                listeners.snapshot(state)
            if done % config.checkpoint_every == 0 or last:
                listeners.checkpoint(state)
            listeners.step(done, loss)
            if last:
                break
    return state


def _step(state: TrainingState, objective: Objective, batch: Batch, step: int, config: TrainingConfig) -> Terms:
    """One update of the model, and of its adversary if it has one."""
    main = state.optimisers["main"]
    for group in main.param_groups:
        group["lr"] = config.learning_rate * rate_factor(step, config)
    with _precision(config, batch.x.device):
        terms = objective(state.model, batch, step)  # type: ignore[arg-type]
    main.zero_grad(set_to_none=True)
    terms.loss.backward()
    if config.clip:
        nn.utils.clip_grad_norm_(main.param_groups[0]["params"], config.clip)
    main.step()
    if terms.adversary is not None:
        adversary = state.optimisers["adversary"]
        adversary.zero_grad(set_to_none=True)
        terms.adversary.backward()
        adversary.step()
    return terms


@torch.no_grad()
def evaluate(
    model: Autoencoder, objective: Objective, world: World, held_out: np.ndarray, config: TrainingConfig, step: int
) -> dict[str, float]:
    """Mean terms on held-out data: always the same examples and the same noise, so that curves compare."""
    # The same population as in training: some objectives have it in a constant of their loss.
    feed = Feed(world, held_out[:HELD_OUT_EXAMPLES], config, max(1, len(world) - len(held_out)))
    means = TrainingState(model)
    model.eval()
    for number in range(feed.order.epoch_steps):
        seed_step(config.seed, number)
        _add(means, objective(model, feed.batch(number), step))
    model.train()
    return _take_means(means)


@dataclass(frozen=True)
class Feed:
    """Batches of a world on the training device.

    They are rendered in the training thread: a second one takes time from the networks' threads, and costs more than
    it hides. A small world that comes round more than once is rendered once and kept, as bytes.
    """

    world: World
    index: np.ndarray
    config: TrainingConfig
    population: int = 0
    """Size of the set the objective is told of; 0 says that of ``index``."""

    @cached_property
    def order(self) -> Batches:
        return Batches(len(self.index), min(self.config.batch_size, len(self.index)), self.config.seed)

    def batch(self, step: int) -> Batch:
        return self.batches(step, 1)[0]

    def batches(self, start: int, count: int) -> list[Batch]:
        """Batches of some steps in a row, rendered in one call: cheaper than one at a time."""
        places = [self.order[step] for step in range(start, start + count)]
        ends = np.cumsum([len(p) for p in places])[:-1]
        together = np.concatenate(places)
        found = self._render(self.index[together]) if self._kept is None else [part[together] for part in self._kept]
        images, factors = (np.split(part, ends) for part in found)
        return [self._on_device(x, f) for x, f in zip(images, factors, strict=True)]

    @cached_property
    def _kept(self) -> list[np.ndarray] | None:
        """Observations and factors of the whole index, if they are few and looked at more than once."""
        passes = self.config.steps * self.config.batch_size / len(self.index)
        if passes < 2 or len(self.index) * self.world.observe(self.index[:1]).nbytes > KEPT_BYTES:
            return None
        parts = [self._render(self.index[at : at + KEPT_AT_ONCE]) for at in range(0, len(self.index), KEPT_AT_ONCE)]
        return [np.concatenate(column) for column in zip(*parts, strict=True)]

    def _render(self, numbers: np.ndarray) -> list[np.ndarray]:
        return [self.world.observe(numbers), self.world.factors_of(numbers)]

    def _on_device(self, observations: np.ndarray, factors: np.ndarray) -> Batch:
        x = to_tensor(observations, device_of(self.config))
        population = self.population or len(self.index)
        if not self.world.factors:
            return Batch(x, population)
        return Batch(x, population, torch.from_numpy(np.ascontiguousarray(factors)).to(x.device))

    def steps(self, start: int, stop: int) -> Iterator[tuple[int, Batch]]:
        """Steps with their batches, rendered a block at a time."""
        together = max(1, min(BLOCK, BLOCK_BYTES // (4 * self.order.size * math.prod(self.world.shape))))
        for first in range(start, stop, together):
            yield from enumerate(self.batches(first, min(together, stop - first)), first)


def split(count: int, held_out: float) -> tuple[np.ndarray, np.ndarray]:
    """Numbers to train on, and numbers kept for evaluation. The same for every seed, so that runs compare."""
    order = np.random.default_rng(count).permutation(count)
    kept = min(round(count * held_out), count - 1)
    return order[kept:], order[:kept]


def rate_factor(step: int, config: TrainingConfig) -> float:
    """What the learning rate is multiplied by at a step: warm-up times schedule."""
    warm = min(1.0, (step + 1) / config.warmup) if config.warmup else 1.0
    done = step / config.steps
    fall = {"constant": 1.0, "linear": 1 - done, "cosine": 0.5 * (1 + math.cos(math.pi * done))}
    return warm * fall[config.schedule]


def seed_step(seed: int, step: int) -> None:
    """Make everything torch draws from here on a function of (seed, step)."""
    number = int(np.random.SeedSequence((seed, step)).generate_state(1, np.uint64)[0]) & (2**63 - 1)
    # Not torch.manual_seed: without a GPU it queues a call with a whole stack trace every time.
    torch.default_generator.manual_seed(number)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(number)


def device_of(config: TrainingConfig) -> torch.device:
    if config.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("the device cuda was asked for, but no CUDA device is available: use --training.device cpu")
    return torch.device(config.device)


def _precision(config: TrainingConfig, device: torch.device) -> AbstractContextManager[object]:
    return torch.autocast(device.type, torch.bfloat16) if config.precision == "bfloat16" else nullcontext()


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _own_randomness() -> Iterator[None]:
    """Leave the caller's random state as it was."""
    devices = range(torch.cuda.device_count())
    with torch.random.fork_rng(devices):
        yield


def _add(state: TrainingState, terms: Terms) -> float:
    """Add a step's terms to the running sums; returns its loss."""
    parts = {"loss": terms.loss, **terms.parts}
    if terms.adversary is not None:
        parts["adversary"] = terms.adversary
    values = torch.stack([v.detach().float().reshape(()) for v in parts.values()]).tolist()
    for name, value in zip(parts, values, strict=True):
        state.sums[name] = state.sums.get(name, 0.0) + value
    state.summed += 1
    return float(values[0])


def _take_means(state: TrainingState) -> dict[str, float]:
    """Mean terms since they were last taken."""
    means = {name: total / state.summed for name, total in state.sums.items()}
    state.sums, state.summed = {}, 0
    return means
