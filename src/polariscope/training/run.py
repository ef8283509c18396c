"""From a configuration to a run folder: train, resume, load."""

from __future__ import annotations

import json
import math
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polariscope import plugins
from polariscope.atomic import is_full
from polariscope.foreign_files import printable
from polariscope.lab.holding import hold
from polariscope.lab.provenance import data_changes, data_record
from polariscope.lab.store import Row, Run, Store, fingerprint
from polariscope.nets.model import Brief, models
from polariscope.objectives.objective import Objective, objectives
from polariscope.registry import UnknownName
from polariscope.training import checkpoint
from polariscope.training.checkpoint import TrainingState
from polariscope.training.collapse import COLLAPSED, collapsed_since
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.loop import WEIGHTS_STEP, Diverged, Event, Listeners, build_state, fit, seed_step
from polariscope.training.progress import Progress, Tell, bars, watched
from polariscope.training.start import begin
from polariscope.training.trackers import tracked
from polariscope.worlds.capacity import check_images, check_weights
from polariscope.worlds.given import Data
from polariscope.worlds.observations import HELD
from polariscope.worlds.readers.data_files import data_files
from polariscope.worlds.splits import Split
from polariscope.worlds.targets import targets_of
from polariscope.worlds.world import World, to_tensor

FEW = 64
FEW_LATENTS = 4096
"""Networks with at most this many latents are built without a check of their memory; tens are usual."""
OVER_THE_RUN = ("linear", "late-linear", "cosine")
"""Schedules that depend on the number of steps of the whole run."""
TELL_EVERY = 0.1  # seconds: a message to another process costs as much as a small step
WRITE_CURVES_EVERY = 2.0
"""Seconds between two writes of the learning curves during a run, for its observers."""


def train(
    config: RunConfig,
    store: Store | Path | str = "runs",
    tell: Tell | None = None,
    run_id: str | None = None,
    *,
    quiet: bool = False,
    whole_hash: bool = False,
) -> Run:
    """Train a configuration into a new run folder of a store. ``store`` may be a path.

    ``tell`` is called with the progress; by default the progress is shown in a terminal or a notebook, unless
    ``quiet``. The world may also be data in memory (see :class:`~polariscope.worlds.world.ArrayWorld`): the run then
    records its hash, and resuming it needs the same data. The run also records the hash of data files: of samples of
    large files, or of all their bytes with ``whole_hash``.
    """
    state = ready(config)  # first, so that what cannot be trained leaves no folder behind
    return _begun(config, as_store(store), state, tell, run_id, quiet, whole_hash)


def _begun(
    config: RunConfig,
    store: Store,
    state: TrainingState,
    tell: Tell | None,
    run_id: str | None,
    quiet: bool = False,
    whole_hash: bool = False,
) -> Run:
    """Train a new run from its first state."""
    run_id = store.new_id(config.label) if run_id is None else run_id
    with hold(store.path_of(run_id)):
        run = create(config, store, run_id, whole_hash=whole_hash)
        with _shown(config, tell, quiet) as tell:
            return _drive(run, config, state, [], tell)


def create(
    config: RunConfig, store: Store, run_id: str | None = None, status: str = "running", whole_hash: bool = False
) -> Run:
    """Create the folder of a run, with its configuration and a record of its data."""
    description = config.describe()
    data = data_record(data_files(description), whole_hash)
    run = store.create(description, config.label, run_id=run_id, status=status, data=data)
    run.built["config"] = config
    return run


def train_once(config: RunConfig, store: Store | Path | str = "runs", tell: Tell | None = None) -> Run:
    """The trained run of a configuration: taken from the store, resumed if it was interrupted, or trained now.

    The configuration and its data determine the run's name. If several processes need the run, one of them trains it.
    """
    store = as_store(store)
    run_id = standing_id(config)
    path = store.path_of(run_id)
    state = None if path.exists() else ready(config)  # what cannot be trained leaves no store behind either
    with hold(path, wait=True):
        if not (path / "run.json").exists():
            return _begun(config, store, state or ready(config), tell, run_id)
        run = store.open(run_id)
        if run.config != json.loads(json.dumps(config.describe())):
            raise ValueError(f"the run {path} was made with settings that do not match its name: move it elsewhere")
        return resume(run, tell)


def standing_id(config: RunConfig) -> str:
    """The id of the run of :func:`train_once` for a configuration; it changes if the contents of its data files do."""
    described = config.describe()
    data = [entry["sha256"] for entry in data_record(data_files(described))]
    label = re.sub(r"[^A-Za-z0-9._-]+", "-", config.label)
    return f"{label}-{fingerprint(described | {'data': data} if data else described)}"


def resume(
    run: Run | Path | str,
    tell: Tell | None = None,
    *,
    steps: int | None = None,
    data: Data | None = None,
    store: Store | Path | str = "runs",
    quiet: bool = False,
    changed_data_ok: bool = False,
) -> Run:
    """Resume a run from its last checkpoint; the result has the same bits as an uninterrupted run.

    ``run`` may be its id, its name, a unique beginning or ending of its id, its folder, or ``"latest"``; ``data`` is
    its training data, if that was in memory. With ``steps`` a finished run continues, see :func:`extend`. Progress is
    shown as by :func:`train`. Changed data files are refused, unless ``changed_data_ok``: the run then mixes the old
    and the new data.
    """
    run = run if isinstance(run, Run) else as_store(store).open(run)
    with hold(run.path):
        run.reload()  # the process that held it before may have finished it
        if steps is not None:
            extend(run, steps)
        if run.status == "done":
            return run
        config = config_of(run, data)
        changes = changed_data(run)
        if changes and not changed_data_ok:
            raise ValueError(
                f"run {run.id} was started with other data: {'; '.join(changes)}. Start a new run, or "
                "continue with the changed data with --changed-data-ok (in Python changed_data_ok=True)"
            )
        begun = run.checkpoint.exists()
        state: TrainingState | None = run.built.pop("state", None)
        if begun or state is None:
            model = begin(build_model(config), config.start, weights=not begun)
            state = build_state(model, config.objective, config.training, brief_of(config))
        run.built["architecture"] = state.model
        rows: list[Row] = []
        if begun:
            checkpoint.load(state, run.checkpoint, config.training.steps)
            rows = _not_the_end([row for row in run.metrics() if row[0] <= state.step], state, config.training)
        loaded = [entry for entry in plugins.record() if entry not in run.plugins]
        now = data_record(data_files(run.config)) if changes else []
        run.update(status="running", plugins=run.record["plugins"] + loaded, data=run.record["data"] + now)
        with _shown(config, tell, quiet) as tell:
            return _drive(run, config, state, rows, tell)


def extend(run: Run, steps: int) -> None:
    """Change the number of steps of a run, so that :func:`resume` ends with the same weights as a run that had this
    number from the start. This is refused if such a run would not have had the current weights."""
    with hold(run.path):
        run.reload()
        training = replace(config_of(run).training, steps=steps)  # says what is wrong with the number
        before = int(run.config["training"].get("steps", TrainingConfig.steps))
        if steps == before:
            return
        reached = int(checkpoint.read(run.checkpoint)[1]["step"]) if run.checkpoint.exists() else 0
        if steps < reached:
            raise ValueError(f"run {run.id} is at step {reached:,} already and cannot be shortened to {steps:,}")
        if run.status == "done" and reached < before:
            raise ValueError(
                f"run {run.id} stopped early, at step {reached:,} of {before:,}, and would have stopped there with "
                f"{steps:,} steps as well: start a new run without --training.patience"
            )
        if reached and training.schedule in OVER_THE_RUN:
            raise ValueError(
                f"the learning rate of run {run.id} falls over all of its {before:,} steps (schedule "
                f"{training.schedule}), so {steps:,} steps would have had other rates from the start: train a new run, "
                "or start one from its weights (--model.from)"
            )
        settings = {**run.config, "training": {**run.config["training"], "steps": steps}}
        run.update(config=settings, status="interrupted" if reached else run.status)


def _not_the_end(rows: list[Row], state: TrainingState, training: TrainingConfig) -> list[Row]:
    """Undo what a run did only because a step was its last: a run with more steps would not have ended a mean of its
    curve there, nor evaluated."""
    step = state.step
    if step >= training.steps:
        return rows
    last = {term: value for at, split, term, value in rows if (at, split) == (step, "train")}
    if last and (count := step % training.log_every):
        state.sums, state.summed = {term: value * count for term, value in last.items()}, count
        rows = [row for row in rows if row[:2] != (step, "train")]
    if training.evaluate_every and step % training.evaluate_every:
        rows = [row for row in rows if row[:2] != (step, "held_out")]
        losses = [value for _, split, term, value in rows if (split, term) == ("held_out", "loss")]
        state.best = min(losses, default=math.inf)
        state.stale = len(losses) - 1 - losses.index(state.best) if losses else 0
    return rows


@contextmanager
def _shown(config: RunConfig, tell: Tell | None, quiet: bool) -> Iterator[Tell]:
    """The receiver of the progress: the given function, or a bar in the terminal or notebook."""
    if tell is not None:
        yield tell
        return
    with bars([config.label], config.training.steps, quiet=not watched(quiet)) as (bar,):
        yield bar


def changed_data(run: Run) -> list[str]:
    """One clause for each data file that has changed since the run was created."""
    return data_changes(data_files(run.config), run.record["data"])


def config_of(run: Run, data: Data | None = None) -> RunConfig:
    """The configuration of a run, built once and cached. If it has an unknown name, the error names the plug-ins of the
    run."""
    if data is None and "config" in run.built:
        known: RunConfig = run.built["config"]
        return known
    try:
        config = run.built["config"] = RunConfig.build(run.config, data)
        return config
    except UnknownName as error:
        made = plugins.missing(run.plugins)
        if not made:
            raise ValueError(f"the configuration of run {run.id} does not build: {printable(str(error))}") from error
        raise ValueError(f"{error.what}, and run {run.id} was made {made}") from error
    except (ValueError, TypeError, ArithmeticError, MemoryError) as error:  # a record may have been changed, or damaged
        raise ValueError(f"the configuration of run {run.id} does not build: {printable(str(error))}") from error


def train_in_memory(config: RunConfig, listeners: Listeners | None = None) -> Any:
    """Train a configuration without a run folder, and return the model in evaluation mode."""
    state = ready(config)
    return fit(state, config.objective, config.world, config.training, listeners, config.split).model.eval()


def train_module(
    module: nn.Module,
    objective: Objective,
    world: World,
    training: TrainingConfig,
    split: Split,
    listeners: Listeners | None = None,
) -> nn.Module:
    """Train any module in place, without a run folder, and return it in evaluation mode."""
    state = build_state(module, objective, training, Brief(tuple(world.shape)))
    trained: nn.Module = fit(state, objective, world, training, listeners, split).model.eval()
    return trained


def paced(tell: Tell, steps: int) -> Callable[[int, Tensor], None]:
    """A listener that reports the last of ``steps``, and the others at most ten times a second."""
    last_time = 0.0

    def step(number: int, loss: Tensor) -> None:
        nonlocal last_time
        if number == steps or time.monotonic() - last_time > TELL_EVERY:
            tell(Progress(number, steps, float(loss)))
            last_time = time.monotonic()

    return step


def ready(config: RunConfig) -> TrainingState:
    """The initial state of a run; an error for a configuration that cannot be trained."""
    check_targets(config)
    check_room(config)
    model = begin(build_model(config), config.start)
    state = build_state(model, config.objective, config.training, brief_of(config))
    check = getattr(getattr(state.model, "likelihood", None), "check", None)
    if check is not None:  # a likelihood may not fit the data
        for part in _looked_at(config.world):
            check(to_tensor(part))
    return state


def _looked_at(world: World) -> Iterator[NDArray[Any]]:
    """Observations to check a likelihood on: all of them if they are floats and fit into memory, because a single one
    may be out of range; a few if they are bytes."""
    first = world.observe(np.arange(min(FEW, len(world))))
    yield first
    if first.dtype != np.uint8 and len(world) * first[0].nbytes <= HELD:
        yield from (world.observe(np.arange(at, min(at + FEW, len(world)))) for at in range(FEW, len(world), FEW))


def check_targets(config: RunConfig) -> None:
    """Refuse to predict classes as if they were numbers."""
    classes = [target.name for target in targets_of(config.world) if target.size] if config.objective.numeric else []
    if classes:
        raise ValueError(
            f"{objectives.name_of(config.objective)} predicts numbers, but {' and '.join(classes)} of this data has "
            "classes: predict values from 0 to 1 with the view task (polariscope train task --world.of DATA "
            f"--world.factor {','.join(classes)} --world.form values), or classify"
        )


def check_room(config: RunConfig) -> None:
    """Refuse images or a network that are too large for this machine, before memory is allocated for them."""
    world = config.world
    source = getattr(world, "path", None) or type(world).__name__
    advice = "size={side} (--world.size {side}) or a smaller batch_size (--training.batch-size) would fit"
    check_images(world.shape, len(world), source, config.training.batch_size, advice)
    latents = getattr(config.model, "latents", None)
    if isinstance(latents, int) and latents > FEW_LATENTS:
        with torch.device("meta"):  # where weights have shapes and no memory
            network = build_model(config)
        check_weights(sum(weight.numel() for weight in network.parameters()), latents)


def brief_of(config: RunConfig) -> Brief:
    """The requirements on the model of a configuration: shapes, targets and posterior."""
    world, objective = config.world, config.objective
    targets = targets_of(world) if "target" in objective.needs else ()
    return Brief(
        tuple(world.shape),
        sum(target.size or 1 for target in targets),
        tuple(factor.size for factor in world.factors),
        objective.posterior,
        dense=any(target.kind == "mask" for target in targets),
        classes=tuple(target.size for target in targets),
    )


def build_model(config: RunConfig) -> Any:
    """The untrained network of a configuration; the seed determines its weights."""
    objective, brief = config.objective, brief_of(config)
    with torch.random.fork_rng(devices=[]):
        seed_step(config.training.seed, WEIGHTS_STEP)
        network = objective.build(config.model, brief)
    missing = [method for method in objective.asks_for if not callable(getattr(network, method, None))]
    if missing:
        able = models.name_of(objective.default_model())
        raise ValueError(
            f"the objective {objectives.name_of(objective)} needs a model that can {' and '.join(objective.asks_for)}, "
            f"and {models.name_of(config.model)} cannot {missing[0]}: use {able}"
        )
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def load_model(run: Run | Path | str, step: int | None = None, *, store: Store | Path | str = "runs") -> Any:
    """The trained network of a run, in evaluation mode: its latest state, or the snapshot at ``step``. Step 0 is the
    network before training.

    ``run`` may be its id, its name, a unique beginning or ending of its id, its folder, or ``"latest"``. Its methods
    depend on its model: an autoencoder encodes and decodes, a classifier returns scores.
    """
    run = run if isinstance(run, Run) else as_store(store).open(run)
    config = config_of(run)
    try:
        model = build_model(config)
    except (ValueError, TypeError, ArithmeticError, MemoryError, RuntimeError) as error:  # torch says all in the last
        raise ValueError(f"the network of run {run.id} does not build: {printable(str(error))}") from error
    if step == 0:
        model = begin(model, config.start)
    else:
        path = run.checkpoint if step is None else run.snapshots().get(step)
        if step is None and not run.checkpoint.exists():
            at = run.result.get("step", 0)
            raise ValueError(f"run {run.id} has no checkpoint to load: it is {run.status} at step {at}")
        if path is None:
            raise ValueError(f"run {run.id} has no snapshot at step {step}; it has {sorted(run.snapshots())}")
        checkpoint.load(TrainingState(model), path, config.training.steps)
    return model.eval()


def network_of(run: Run) -> Any:
    """The trained network of a run, loaded once and shared; it is loaded again after further training. To change the
    network, use :func:`load_model`, which returns a new copy."""
    about = run.checkpoint.stat() if run.checkpoint.exists() else None
    stamp = None if about is None else (about.st_mtime_ns, about.st_size)
    if "network" not in run.built or run.built["network"][0] != stamp:
        run.built["network"] = (stamp, load_model(run))
    return run.built["network"][1]


def architecture_of(run: Run) -> Any:
    """The network of a run with arbitrary weights, built once, to inspect its methods."""
    if "network" in run.built:
        return run.built["network"][1]
    if "architecture" not in run.built:
        run.built["architecture"] = build_model(config_of(run))
    return run.built["architecture"]


def as_store(place: Store | Path | str) -> Store:
    """The given store, or the store in a folder."""
    return place if isinstance(place, Store) else Store(Path(place))


def _drive(run: Run, config: RunConfig, state: TrainingState, rows: list[Row], tell: Tell) -> Run:
    """Run the loop with the trackers that the user chose; they end after the status of the run is written."""
    with tracked(run) as track:
        return _driven(run, config, state, rows, tell, track)


def _driven(
    run: Run, config: RunConfig, state: TrainingState, rows: list[Row], tell: Tell, track: Callable[[Event], None]
) -> Run:
    """Run the loop, save curves and state in the run folder, and record the correct status whatever happens."""
    started = time.monotonic()
    listener = paced(tell, config.training.steps)
    begun_at = state.step

    warned, written = collapsed_since(rows) is not None, started

    def record(event: Event) -> None:
        nonlocal warned, written
        rows.extend((event.step, event.split, term, value) for term, value in event.terms.items())
        if not warned and (since := collapsed_since(rows)) is not None:
            tell(Progress(event.step, config.training.steps, event.terms["loss"], COLLAPSED.format(step=since)))
            warned = True
        if time.monotonic() - written > WRITE_CURVES_EVERY:  # rows beyond the checkpoint are dropped on resume
            run.write_metrics(rows)
            written = time.monotonic()
        track(event)

    def save(state: TrainingState) -> None:
        # Metrics first: rows beyond the checkpoint are dropped on resume, missing rows could not be restored.
        run.write_metrics(rows)
        checkpoint.save(state, run.checkpoint)

    def snapshot(state: TrainingState) -> None:
        checkpoint.save(state, run.snapshot(state.step), weights_only=True)

    def progress(step: int, loss: Tensor) -> None:
        if interrupted.is_set():
            save(state)
            raise KeyboardInterrupt
        listener(step, loss)

    listeners = Listeners(metrics=record, checkpoint=save, snapshot=snapshot, step=progress)
    try:
        with _interrupt_between_steps() as interrupted:
            fit(state, config.objective, config.world, config.training, listeners, config.split)
    except KeyboardInterrupt:
        run.update(status="interrupted", result={"step": state.step})
        raise
    except (Diverged, FloatingPointError) as error:
        run.update(status="diverged", result={"step": state.step})
        kept = f"; the last good checkpoint is kept in {run.path}" if run.checkpoint.exists() else ""
        raise Diverged(f"{error}{kept}") from error
    except BaseException as error:
        # A full disk has no room even for the status. Nothing holds the run any more, so it counts as interrupted.
        with suppress(OSError) if is_full(error) else nullcontext():
            run.update(status="failed", result={"step": state.step})
        raise
    seconds = time.monotonic() - started
    result: dict[str, Any] = {"step": state.step, "steps_per_second": round((state.step - begun_at) / seconds, 2)}
    for split in ("train", "held_out"):
        last = max((step for step, s, _, _ in rows if s == split), default=None)
        result |= {f"{split}_{term}": value for step, s, term, value in rows if s == split and step == last}
    if (since := collapsed_since(rows)) is not None:
        result["collapsed_since"] = since
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
