"""A configuration becomes a run folder: train, resume, load."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from polariscope.lab.holding import hold
from polariscope.lab.store import Row, Run, Store
from polariscope.nets.autoencoder import Autoencoder
from polariscope.training import checkpoint
from polariscope.training.checkpoint import TrainingState
from polariscope.training.config import RunConfig
from polariscope.training.loop import Diverged, Event, Listeners, build_state, fit, seed_step
from polariscope.worlds.capacity import check_images
from polariscope.worlds.given import Data

TELL_EVERY = 0.1  # seconds: a word to another process costs as much as a small step
WEIGHTS_STEP = 2**32 - 1  # a step no run reaches: the weights have a draw of their own


@dataclass(frozen=True)
class Progress:
    """How far a run is: what a progress bar shows."""

    step: int
    steps: int
    loss: float


Tell = Callable[[Progress], None]


def train(
    config: RunConfig, store: Store | Path | str = "runs", tell: Tell | None = None, run_id: str | None = None
) -> Run:
    """Train a configuration into a new folder of a store, or of the folder it lies in.

    The world may also be data in memory (see :class:`~polariscope.worlds.world.ArrayWorld`): the run then has its hash,
    and goes on when it is given again.
    """
    store = as_store(store)
    check_room(config)
    model = build_model(config)  # first, so that a configuration that cannot be built leaves no folder behind
    run_id = store.new_id(config.label) if run_id is None else run_id
    with hold(store.path_of(run_id)):
        run = store.create(config.describe(), config.label, run_id=run_id)
        return _drive(run, config, build_state(model, config.objective, config.training), [], tell)


def resume(
    run: Run | Path | str, tell: Tell | None = None, *, data: Data | None = None, store: Store | Path | str = "runs"
) -> Run:
    """Go on with a run that was stopped, from its last checkpoint to the same bits as if it had not been.

    ``run`` may be its id, a unique part of it, its folder, or ``"latest"``; ``data`` is what it was made with, if that
    was in memory.
    """
    run = run if isinstance(run, Run) else as_store(store).open(run)
    with hold(run.path):
        run.reload()  # whoever held it before may have finished it
        if run.status == "done":
            return run
        config = RunConfig.build(run.config, data)
        state = build_state(build_model(config), config.objective, config.training)
        rows: list[Row] = []
        if run.checkpoint.exists():
            checkpoint.load(state, run.checkpoint)
            rows = [row for row in run.metrics() if row[0] <= state.step]
        run.update(status="running")
        return _drive(run, config, state, rows, tell)


def train_in_memory(config: RunConfig, listeners: Listeners | None = None) -> Autoencoder:
    """The trained model of a configuration, ready to be examined, without a folder: also for worlds without a name."""
    check_room(config)
    state = build_state(build_model(config), config.objective, config.training)
    fit(state, config.objective, config.world, config.training, listeners)
    assert isinstance(state.model, Autoencoder)
    return state.model.eval()


def paced(tell: Tell, steps: int) -> Callable[[int, float], None]:
    """A listener that tells the last of ``steps``, and the others ten times a second."""
    told = 0.0

    def step(number: int, loss: float) -> None:
        nonlocal told
        if number == steps or time.monotonic() - told > TELL_EVERY:
            tell(Progress(number, steps, loss))
            told = time.monotonic()

    return step


def check_room(config: RunConfig) -> None:
    """Refuse images too large to be trained on here, before a network is built for them."""
    world = config.world
    source = getattr(world, "path", None) or type(world).__name__
    advice = "--world.size {side} (of a folder or a rendered world) or a smaller --training.batch-size would fit"
    check_images(world.shape, len(world), source, config.training.batch_size, advice)


def build_model(config: RunConfig) -> Autoencoder:
    """The untrained model of a configuration; weights are a function of the seed."""
    with torch.random.fork_rng(devices=[]):
        seed_step(config.training.seed, WEIGHTS_STEP)
        sizes = tuple(factor.size for factor in config.world.factors)
        return config.objective.build(config.model, config.world.shape, sizes)


def load_model(run: Run | Path | str, step: int | None = None, *, store: Store | Path | str = "runs") -> Autoencoder:
    """The trained model of a run, ready to be examined: the latest state, or the snapshot at a step.

    ``run`` may be its id, a unique part of it, its folder, or ``"latest"``.
    """
    run = run if isinstance(run, Run) else as_store(store).open(run)
    config = RunConfig.build(run.config)
    model = build_model(config)
    if step is None:
        path: Path | None = run.checkpoint
    else:
        path = run.snapshots().get(step)
        if path is None:
            raise ValueError(f"run {run.id} has no snapshot at step {step}; it has {sorted(run.snapshots())}")
    assert path is not None
    checkpoint.load(TrainingState(model), path)
    return model.to(memory_format=torch.channels_last).eval()  # type: ignore[call-overload]


def as_store(place: Store | Path | str) -> Store:
    """A store, or the one that lies in a folder."""
    return place if isinstance(place, Store) else Store(Path(place))


def _drive(run: Run, config: RunConfig, state: TrainingState, rows: list[Row], tell: Tell | None) -> Run:
    """Run the loop, keeping curves and state in the run folder, and leave a true status whatever happens."""
    started = time.monotonic()
    told = paced(tell or (lambda point: None), config.training.steps)
    begun_at = state.step

    def record(event: Event) -> None:
        rows.extend((event.step, event.split, term, value) for term, value in event.terms.items())

    def save(state: TrainingState) -> None:
        # Metrics first: rows beyond the checkpoint are dropped on resume, rows missing from it could not be made up.
        run.write_metrics(rows)
        checkpoint.save(state, run.checkpoint)

    def snapshot(state: TrainingState) -> None:
        checkpoint.save(state, run.snapshot(state.step), weights_only=True)

    def progress(step: int, loss: float) -> None:
        if interrupted.is_set():
            save(state)
            raise KeyboardInterrupt
        told(step, loss)

    listeners = Listeners(metrics=record, checkpoint=save, snapshot=snapshot, step=progress)
    try:
        with _interrupt_between_steps() as interrupted:
            fit(state, config.objective, config.world, config.training, listeners)
    except KeyboardInterrupt:
        run.update(status="interrupted", result={"step": state.step})
        raise
    except (Diverged, FloatingPointError) as error:
        run.update(status="diverged", result={"step": state.step})
        kept = f"; the last good checkpoint is kept in {run.path}" if run.checkpoint.exists() else ""
        raise Diverged(f"{error}{kept}") from error
    except BaseException:
        run.update(status="failed", result={"step": state.step})
        raise
    seconds = time.monotonic() - started
    result: dict[str, Any] = {"step": state.step, "steps_per_second": round((state.step - begun_at) / seconds, 2)}
    for split in ("train", "held_out"):
        last = max((step for step, s, _, _ in rows if s == split), default=None)
        result |= {f"{split}_{term}": value for step, s, term, value in rows if s == split and step == last}
    run.update(status="done", result=result)
    return run


@contextmanager
def _interrupt_between_steps() -> Iterator[threading.Event]:
    """Ctrl-C sets the event instead of raising in the middle of an update; a second Ctrl-C raises at once."""
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return

    def note(number: int, frame: FrameType | None) -> None:
        if interrupted.is_set():
            raise KeyboardInterrupt
        interrupted.set()

    before = signal.signal(signal.SIGINT, note)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)
