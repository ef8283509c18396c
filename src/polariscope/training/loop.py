"""The one training loop.

The batch, the noise and every other draw of step t are functions of (seed, t). A run is therefore its weights, its
optimisers and one integer: stop it anywhere, load the checkpoint, and it resumes to the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, Adam, Optimizer

from polariscope.memory import freed_memory_kept
from polariscope.nets.model import Brief
from polariscope.objectives.objective import Batch, Need, Objective, players_of
from polariscope.training.checkpoint import MODEL, TrainingState
from polariscope.training.config import TrainingConfig
from polariscope.worlds.splits import Parts, RandomSplit, Split, confined
from polariscope.worlds.targets import target_values, targets_of
from polariscope.worlds.view import Weighted, drawn, draws, inside, others_of
from polariscope.worlds.world import Batches, WeightedBatches, World, to_tensor

OPTIMISERS: dict[str, Callable[..., Optimizer]] = {"adam": Adam, "adagrad": Adagrad, "sgd": SGD}
HELD_OUT_EXAMPLES = 1024
BLOCK = 16
"""Number of steps whose batches are rendered together, if they are small enough."""
BLOCK_BYTES = 2**26
"""Largest size of the batches that are rendered together, as floats."""
KEPT_BYTES = 2**26
"""Size of the largest training set that is kept in memory after rendering."""
KEPT_AT_ONCE = 4096
WEIGHTS_STEP, PLAYERS_STEP, SETTLE_STEP = 2**32 - 1, 2**32 - 2, 2**32 - 3
"""Step numbers that no run reaches, so that these draws differ from those of every step."""


class Diverged(ArithmeticError):
    """The loss, or a weight, is infinite or not a number."""


@dataclass(frozen=True)
class Event:
    """A point of the learning curves: mean terms of the last steps, or of held-out data."""

    step: int
    split: str
    terms: dict[str, float]


@dataclass(frozen=True)
class Listeners:
    """Callbacks of the training loop: learning curves, checkpoints, snapshots, and each step for a progress bar."""

    metrics: Callable[[Event], None] = lambda event: None
    checkpoint: Callable[[TrainingState], None] = lambda state: None
    snapshot: Callable[[TrainingState], None] = lambda state: None
    step: Callable[[int, Tensor], None] = lambda step, loss: None
    """The loss is still on its device: to read it at every step would make the device wait."""


def import_optimisers() -> None:
    """Import now what the first training would import: the first step of an optimiser loads torch's compiler, which
    takes seconds."""
    weight = torch.zeros(1, requires_grad=True)
    weight.sum().backward()
    Adam([weight]).step()


def build_state(
    model: nn.Module, objective: Objective, config: TrainingConfig, brief: Brief | None = None
) -> TrainingState:
    """The model and the objective's other players on their device, each with its optimiser.

    ``brief`` describes the data that the model was built for; players that read data need it.
    """
    device = device_of(config)
    model.to(device)
    with _own_randomness():
        seed_step(config.seed, PLAYERS_STEP)
        players = players_of(objective, model, brief or Brief(()))
    optimisers = {MODEL: _optimiser(model, config)}
    for name, player in players.items():
        player.module.to(device)
        optimisers[name] = _optimiser(player.module, config, player.optimiser)
    return TrainingState(model, optimisers, {name: player.module for name, player in players.items()})


def _optimiser(module: nn.Module, config: TrainingConfig, own: Mapping[str, Any] | None = None) -> Optimizer:
    """An optimiser of a module's trainable parameters: the run's, or for a player with settings of its own, an Adam."""
    learning = [p for p in module.parameters() if p.requires_grad]
    if not learning:
        raise ValueError("nothing to train: every part of the model is frozen")
    if own is not None:
        return Adam([{"params": learning, "scheduled": False}], fused=True, **own)
    settings: dict[str, Any] = {"lr": config.learning_rate, "weight_decay": config.weight_decay, "fused": True}
    settings |= {"adam": {"eps": config.adam_epsilon}, "sgd": {"momentum": config.momentum}}.get(config.optimiser, {})
    return OPTIMISERS[config.optimiser]([{"params": learning, "scheduled": True}], **settings)


def fit(
    state: TrainingState,
    objective: Objective,
    world: World,
    config: TrainingConfig,
    listeners: Listeners | None = None,
    split: Split | None = None,
) -> TrainingState:
    """Train from ``state.step`` to ``config.steps`` (or an early stop). The state is changed in place."""
    if _stopped_early(state, config):  # the process ended after the last checkpoint but before the status was written
        return state
    listeners = listeners or Listeners()
    parts, reserved = apart((split or RandomSplit()).parts(world), objective.reserves)
    # The second observation of a pair must be a training observation, too.
    seen, index = world, parts.train
    if "other" in objective.needs:
        seen, index = confined(world, index), np.arange(len(index))
    feed = Feed(seen, index, config, objective.needs, turns=len(objective.turns()))
    model = state.model
    if config.compile:
        _compile(model)
    # On a CPU there is nothing to wait for; on other devices, reading the loss at every step would make them wait.
    patient = device_of(config).type != "cpu"
    with _threads(config.threads), _own_randomness(), freed_memory_kept():
        learn(state)
        for step, batches in feed.steps(state.step, config.steps):
            loss = _step(state, objective, batches, step, config)
            state.step = done = step + 1
            last = done == config.steps
            logged = done % config.log_every == 0 or last
            if not patient:
                _check(float(loss), step, config)
            if logged:
                means = state.take_means()
                _check(means["loss"], step, config)
                listeners.metrics(Event(done, "train", means))
            if config.evaluate_every and len(parts.held_out) and (done % config.evaluate_every == 0 or last):
                terms = evaluate(state, objective, world, parts, config, step)
                listeners.metrics(Event(done, "held_out", terms))
                improved = terms["loss"] < state.best
                state.best = min(state.best, terms["loss"])
                state.stale = 0 if improved else state.stale + 1
                last = last or _stopped_early(state, config)
            if last:
                _settle(state, objective, Feed(world, reserved, config, objective.needs, len(index)))
            if config.snapshot_every and done % config.snapshot_every == 0:
                listeners.snapshot(state)
            if done % config.checkpoint_every == 0 or last:
                listeners.checkpoint(state)
            listeners.step(done, loss)
            if last:
                break
    return state


def apart(parts: Parts, reserves: int) -> tuple[Parts, np.ndarray]:
    """Reserve observations of the training part for calibration after training: ``reserves``, at most a tenth of it,
    the same for every seed. Returns the remaining parts and the reserved observations.

    >>> parts, reserved = apart(Parts(np.arange(20), np.arange(20, 22)), reserves=500)
    >>> len(parts.train), parts.held_out.tolist(), reserved.tolist()
    (18, [20, 21], [2, 16])
    """
    train = parts.train
    kept = np.zeros(len(train), dtype=bool)
    kept[np.random.default_rng(len(train)).permutation(len(train))[: min(reserves, len(train) // 10)]] = True
    return Parts(train[~kept], parts.held_out), train[kept]


def _settle(state: TrainingState, objective: Objective, feed: Feed) -> None:
    """Let the objective finish the trained network (for example calibrate it)."""
    seed_step(feed.config.seed, SETTLE_STEP)
    state.model.eval()
    objective.settle(state.model, feed.whole() if len(feed.index) else None)
    learn(state)


def _stopped_early(state: TrainingState, config: TrainingConfig) -> bool:
    """Whether patience has run out. It depends only on the checkpoint, so that a resumed run stops at the same step."""
    return bool(config.patience and state.stale >= config.patience)


def _step(
    state: TrainingState, objective: Objective, batches: Sequence[Batch], step: int, config: TrainingConfig
) -> Tensor:
    """All turns of a step; returns the loss of the model."""
    shown: dict[str, Tensor] = {}
    for number, (turn, batch) in enumerate(zip(objective.turns(), batches, strict=True)):
        seed_step(config.seed, step * len(batches) + number)
        with _precision(config, batch.x.device):
            terms = turn(state.model, batch, step, **state.players)
        losses = terms.players if terms.loss is None or terms.rests else {MODEL: terms.loss, **terms.players}
        for player in terms.anew:
            state.optimisers[player].state.clear()
        for left, (player, loss) in zip(reversed(range(len(losses))), losses.items(), strict=True):
            optimiser = state.optimisers[player]
            optimiser.zero_grad(set_to_none=True)
            # Only into the player's own weights, whatever else the loss went through.
            loss.backward(inputs=optimiser.param_groups[0]["params"], retain_graph=left > 0)
        for player in losses:
            _learn(state.optimisers[player], step, config)
        shown |= terms.parts | {name: loss for name, loss in losses.items() if name != MODEL}
        if terms.loss is not None:
            shown["loss"] = terms.loss.detach() - terms.offset
    if "loss" not in shown:
        raise ValueError(f"no turn of {type(objective).__name__} has a loss for the model, so nothing would be trained")
    state.add(shown)
    return shown["loss"].detach()


def _learn(optimiser: Optimizer, step: int, config: TrainingConfig) -> None:
    group = optimiser.param_groups[0]
    if group["scheduled"]:  # a player with settings of its own keeps them
        group["lr"] = config.learning_rate * rate_factor(step, config)
        if config.clip:
            nn.utils.clip_grad_norm_(group["params"], config.clip)
    optimiser.step()


def learn(state: TrainingState) -> None:
    """Set training mode, except for frozen parts, whose batch statistics and dropout stay inactive."""
    everything = nn.ModuleList([state.model, *state.players.values()]).train()
    for module in everything.modules():
        weights = list(module.parameters())
        if weights and not any(weight.requires_grad for weight in weights):
            module.eval()


def _check(loss: float, step: int, config: TrainingConfig) -> None:
    if not math.isfinite(loss):
        raise Diverged(
            f"training diverged at step {step}: the loss is {loss}. "
            f"A smaller learning rate (now {config.learning_rate:g}) or --training.clip 1 often helps"
        )


def _compile(model: nn.Module) -> None:
    for method in ("encode", "decode") if hasattr(model, "encode") and hasattr(model, "decode") else ("forward",):
        setattr(model, method, torch.compile(getattr(model, method)))


@torch.no_grad()
def evaluate(
    state: TrainingState, objective: Objective, world: World, parts: Parts, config: TrainingConfig, step: int
) -> dict[str, float]:
    """Mean terms and scores on held-out data. Examples and noise are always the same, so that curves can be
    compared."""
    # The same population as in training, because some losses contain it in a constant.
    kept = parts.held_out[:HELD_OUT_EXAMPLES]
    feed = Feed(world, kept, config, objective.needs, population=len(parts.train), evaluating=True)
    means = TrainingState(state.model)
    counts: dict[str, Tensor] = {}
    nn.ModuleList([state.model, *state.players.values()]).eval()
    for number, batch in enumerate(feed.once()):
        seed_step(config.seed, number)
        shown: dict[str, Tensor] = {}
        for turn in objective.turns():
            terms = turn(state.model, batch, step, **state.players)
            shown |= terms.parts | terms.players
            if terms.loss is not None:
                shown["loss"] = terms.loss - terms.offset
            for name, count in terms.counts.items():
                counts[name] = counts[name] + count if name in counts else count
        if len(batch.x) == feed.order.size:  # means are of whole batches, counts of every example
            means.add(shown)
        if not counts and number + 1 == feed.order.epoch_steps:
            break
    learn(state)
    return means.take_means() | objective.scores(counts)


@dataclass(frozen=True)
class Feed:
    """Batches of a world on the training device.

    They are rendered in the training thread: a second thread would slow the networks more than it helps. A small world
    that is used more than once is rendered once and kept in memory, as bytes. Worlds whose observations change with
    time are drawn again for every block of steps; blocks always start at the same steps.
    """

    world: World
    index: np.ndarray
    config: TrainingConfig
    needs: tuple[Need, ...] = ("factors",)
    """What the objective needs besides observations."""
    population: int = 0
    """Size of the data set for the objective; 0 means the length of ``index``."""
    turns: int = 1
    """Number of batches of a step."""
    evaluating: bool = False
    """Whether the batches are for evaluation, not for training."""

    @cached_property
    def order(self) -> Batches | WeightedBatches:
        size = min(self.config.batch_size, len(self.index))
        weighted = None if self.evaluating else inside(self.world, Weighted, self.index)
        if weighted is not None:
            return WeightedBatches(len(self.index), size, self.config.seed, weighted[0].draw_weights(weighted[1]))
        return Batches(len(self.index), size, self.config.seed)

    def batch(self, number: int) -> Batch:
        return self.batches(number, 1)[0]

    def once(self) -> Iterator[Batch]:
        """Every example once: whole batches in order, then the rest in a smaller batch."""
        for number in range(self.order.epoch_steps):
            yield self.batch(number)
        seen = np.concatenate([self.order[number] for number in range(self.order.epoch_steps)])
        left = np.setdiff1d(np.arange(len(self.index)), seen)
        if len(left):
            yield self._on_device(self._render(self.index[left], self.world))

    def whole(self) -> Batch:
        """All examples in one batch."""
        return self._on_device(self._render(self.index, self.world))

    def batches(self, start: int, count: int, world: World | None = None) -> list[Batch]:
        """Consecutive batches, rendered in one call, which is faster than one at a time."""
        places = [self.order[number] for number in range(start, start + count)]
        ends = np.cumsum([len(p) for p in places])[:-1]
        together = np.concatenate(places)
        if self._kept is None:
            arrays = self._render(self.index[together], world or self.world)
        else:
            arrays = {name: part[together] for name, part in self._kept.items()}
        columns = {name: np.split(part, ends) for name, part in arrays.items()}
        return [self._on_device({name: parts[i] for name, parts in columns.items()}) for i in range(count)]

    def steps(self, start: int, stop: int) -> Iterator[tuple[int, list[Batch]]]:
        """Steps with their batches, rendered a block at a time."""
        floats = 4 * self.turns * self.order.size * math.prod(self.world.shape)
        together = max(1, min(BLOCK, BLOCK_BYTES // floats))
        changing = draws(self.world)
        for block in range(start // together, math.ceil(stop / together) if start < stop else 0):
            first, end = block * together, min((block + 1) * together, stop)
            world = drawn(self.world, self.config.seed, block) if changing else self.world
            # Draws belong to the whole block: a run that resumes in the middle of a block draws all of it again.
            begin = first if changing else max(first, start)
            batches = self.batches(begin * self.turns, (end - begin) * self.turns, world)
            for step in range(max(first, start), end):
                at = (step - begin) * self.turns
                yield step, batches[at : at + self.turns]

    @cached_property
    def _kept(self) -> dict[str, np.ndarray] | None:
        """The arrays of the whole index, if they are small and used more than once."""
        passes = self.config.steps * self.turns * self.config.batch_size / len(self.index)
        if passes < 2 or draws(self.world) or len(self.index) * self.world.observe(self.index[:1]).nbytes > KEPT_BYTES:
            return None
        blocks = range(0, len(self.index), KEPT_AT_ONCE)
        parts = [self._render(self.index[at : at + KEPT_AT_ONCE], self.world) for at in blocks]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _render(self, numbers: np.ndarray, world: World) -> dict[str, np.ndarray]:
        arrays = {"x": world.observe(numbers)}
        if "factors" in self.needs and world.factors:
            arrays["factors"] = world.factors_of(numbers)
        if "target" in self.needs:
            arrays["target"] = target_values(world, numbers)
        if "other" in self.needs:
            others = others_of(world, numbers)
            if others is None:
                raise ValueError(
                    "this objective learns from pairs, and the world has none: use the view pairs on a world with "
                    "factors, or the view frame-pairs on a video"
                )
            arrays |= {f"other{i}": part for i, part in enumerate(others)}
        return arrays

    def _on_device(self, arrays: dict[str, np.ndarray]) -> Batch:
        device = device_of(self.config)

        def tensor(name: str) -> Tensor | None:
            return torch.from_numpy(np.ascontiguousarray(arrays[name])).to(device) if name in arrays else None

        others = tuple(to_tensor(part, device) for name, part in arrays.items() if name.startswith("other"))
        x = to_tensor(arrays["x"], device)
        population = self.population or len(self.index)
        return Batch(x, population, tensor("factors"), tensor("target"), self._classes, others, self.evaluating)

    @cached_property
    def _classes(self) -> tuple[int, ...]:
        return tuple(target.size for target in targets_of(self.world)) if "target" in self.needs else ()


def rate_factor(step: int, config: TrainingConfig) -> float:
    """The factor of the learning rate at a step: the warm-up times the schedule."""
    warm = min(1.0, (step + 1) / config.warmup) if config.warmup else 1.0
    done = step / config.steps
    match config.schedule:
        case "constant":
            return warm
        case "linear":
            return warm * (1 - done)
        case "late-linear":
            return warm * min(1.0, 2 * (1 - done))
        case "cosine":
            return warm * 0.5 * (1 + math.cos(math.pi * done))
        case "drop":
            return warm * config.drop ** (step // config.drop_every)


def seed_step(seed: int, step: int) -> None:
    """Seed torch, so that all its further draws are a function of (seed, step)."""
    number = int(np.random.SeedSequence((seed, step)).generate_state(1, np.uint64)[0]) & (2**63 - 1)
    # Not torch.manual_seed: without a GPU it queues a call with a whole stack trace every time.
    torch.default_generator.manual_seed(number)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(number)


def device_of(config: TrainingConfig) -> torch.device:
    if config.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("--training.device is cuda, but no CUDA device is available: use --training.device cpu")
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
    """Restore the caller's random state at the end."""
    devices = range(torch.cuda.device_count())
    with torch.random.fork_rng(devices):
        yield
