"""Diagnose runs and models by their kernels, as ``polariscope kernel`` does: choose examples, train if needed."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from polariscope.documents import PICTURES
from polariscope.examination.classifier_training import save_networks, train_classifier
from polariscope.examination.corruptions import outputs_of
from polariscope.examination.diagnose import diagnose
from polariscope.examination.diagnosis import Diagnosis, Form
from polariscope.examination.labelled import check_examples, output_width
from polariscope.lab.holding import hold
from polariscope.lab.store import Run, Store
from polariscope.nets.classifiers import Parametrisation
from polariscope.nets.model import Brief, Model, models
from polariscope.nets.predictors import AlexNet, LeNet, Perceptron
from polariscope.nets.scaled import Scaled, ScaledConfig, loss_scale
from polariscope.objectives.predict import Classify
from polariscope.subjects.weights import load_weights
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.progress import TellShare
from polariscope.training.run import Tell, as_store, config_of, load_model, network_of, train_once
from polariscope.worlds.splits import RandomSplit
from polariscope.worlds.targets import Examples, Task, class_names
from polariscope.worlds.world import World, sample_numbers, worlds

BUILT_IN: dict[str, Any] = {"mlp": Perceptron, "lenet": LeNet, "alexnet": AlexNet}
STEPS = 1000
NOT_KEPT = "The weights before and after training are not kept: --out names a file; a folder would hold them."


def _silent(kernel: str, share: float) -> None:
    """A receiver that ignores the progress."""


def _check(settings: Any, **least: int) -> None:
    for name, lowest in least.items():
        value = getattr(settings, name)
        if value is not None and value < lowest:
            raise ValueError(f"--{name.replace('_', '-')} is {value}: at least {lowest} is needed")


@dataclass(frozen=True)
class KernelLook:
    """How kernels are compared."""

    form: Form = "trace"
    """With several outputs: the mean of their kernels, or the kernel of their sum."""
    count: int = 1000
    """Examples to compare kernels on, and as many to train on."""
    test: int = 1000
    """Held-out examples to count errors on."""
    modes: int = 10
    """Number of principal components."""
    ridge: float | None = None
    """Ridge relative to the kernel's mean diagonal; by default chosen by leave-one-out."""
    seed: int = 0
    """Seed of weights, examples and batches."""

    def __post_init__(self) -> None:
        _check(self, count=20, test=1, modes=2)


@dataclass(frozen=True)
class KernelTraining:
    """How a classifier is trained for its diagnosis, or the files of its weights."""

    initial: Path | None = None
    """safetensors file of the weights before training."""
    final: Path | None = None
    """safetensors file of the weights after training; DATA must be new to them."""
    train: int | None = None
    """Train for this many steps (1000 if no --final is given)."""
    alpha: float | None = None
    """Train alpha (f - f0): large is lazy, small learns features."""
    learning_rate: float = 0.05
    """Learning rate of gradient descent with momentum 0.9."""
    batch_size: int = 64
    """Examples per step."""
    width: int = 1
    """Width factor of a built-in model (for mlp, of its two layers of 128 units)."""
    parametrisation: Parametrisation = "torch"
    """How a built-in model's weights are drawn and scaled."""

    def __post_init__(self) -> None:
        _check(self, train=1, width=1, batch_size=1)
        if self.final is not None and self.train is not None:
            raise ValueError("--final gives the weights after training: leave out --train or --final")
        if self.final is not None and self.initial is None:
            raise ValueError("--final needs --initial: the diagnosis compares the weights before and after training")
        if self.final is not None and self.alpha is not None:
            raise ValueError("--alpha is for networks that this command trains: leave out --alpha or --final")
        if self.alpha is not None and not self.alpha > 0:
            raise ValueError(f"the output scale is {self.alpha}: it must be positive")

    @property
    def steps(self) -> int:
        return self.train or STEPS

    def model(self, name: str) -> Model:
        """The configuration of a built-in model."""
        model: Model = BUILT_IN[name](width=self.width, parametrisation=self.parametrisation)
        return model if self.alpha is None else ScaledConfig(model, self.alpha)


def diagnose_run(
    run: Run | Path | str,
    look: KernelLook | None = None,
    *,
    store: Store | Path | str = "runs",
    tell: TellShare = _silent,
) -> Diagnosis:
    """Diagnose a run that was trained to classify, on its held-out data; the run records the verdict."""
    look = look or KernelLook()
    run = run if isinstance(run, Run) else as_store(store).open(run)
    config = config_of(run)
    fit, test = _held_out(config, look)
    network = network_of(run)
    before, after = (one.network if isinstance(one, Scaled) else one for one in (load_model(run, 0), network))
    result = _diagnosed(before, after, fit, test, network, look, tell)
    with hold(run.path):
        run.update(result={"verdict": result.verdict, "cka": result.change.cka})
    trained = ("steps", "batch_size", "learning_rate", "optimiser", "seed")
    settings = {
        "model": models.name_of(config.model),
        "run": run.id,
        "data": worlds.describe(config.world),
        **{key: run.config["training"][key] for key in trained},
        "alpha": getattr(config.model, "alpha", None),
        "form": look.form,
        "ridge": look.ridge,
    }
    return replace(result, settings=settings, classes=class_names(config.world))


def train_built_in(
    name: str, task: Task, training: KernelTraining, look: KernelLook, store: Store | Path | str, tell: Tell | None
) -> Run:
    """A run of a built-in model on as many examples as kernels are compared on; the rest is held out. The same call
    continues an interrupted run."""
    whole = 2 * look.count + look.test
    held_out = max(1, round(len(task) * (1 - look.count / max(whole, len(task)))))
    config = RunConfig(
        task,
        Classify(1.0 if training.alpha is None else loss_scale(training.alpha)),
        training.model(name),
        TrainingConfig(
            training.steps,
            training.batch_size,
            training.learning_rate,
            "sgd",
            momentum=0.9,
            seed=look.seed,
            evaluate_every=0,
        ),
        RandomSplit(held_out / len(task)),
    )
    _held_out(config, look)  # says at once if there will be too few
    return train_once(config, as_store(store).root, tell)


def diagnose_model(
    name: str,
    make: Callable[[], nn.Module] | None,
    task: Task,
    training: KernelTraining,
    look: KernelLook,
    *,
    train_tell: Tell | None = None,
    tell: TellShare = _silent,
) -> tuple[Diagnosis, dict[str, nn.Module]]:
    """Diagnose the model that ``make`` makes, or a built-in model by its name: with given weights before and after
    training, or trained here on a part of the data. Also returns the networks before and after this training."""
    train, fit, test = _divided(task, look, trained=training.final is None)
    check_examples(fit, test)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(look.seed)
        brief = Brief(tuple(task.shape), task.targets[0].size)
        # Kernels of half precision would be mostly rounding.
        module = training.model(name).build(brief) if make is None else make().float()
    if training.initial is not None:
        load_weights(module, training.initial)
    initial, network = copy.deepcopy(module).eval(), module
    if training.final is not None:
        load_weights(module, training.final)
    else:
        network = train_classifier(
            module,
            train,
            training.steps,
            alpha=training.alpha,
            learning_rate=training.learning_rate,
            batch_size=training.batch_size,
            seed=look.seed,
            tell=train_tell,
        )
    shown, note = _in_order(network.eval(), name, task, fit) if training.final is not None else (network.eval(), "")
    result = _diagnosed(initial, module.eval(), fit, test, shown, look, tell)
    result = replace(result, notes=[*result.notes, note]) if note else result
    settings = {"model": name, "data": worlds.describe(task.of), **asdict(training), **asdict(look)}
    settings |= {"label": task.factor or None, "parity": task.form == "parity"}
    settings = {key: str(value) if isinstance(value, Path) else value for key, value in settings.items()}
    networks = {} if training.final is not None else {"initial": initial, "final": module}
    return replace(result, settings=settings, classes=class_names(task)), networks


def keep_networks(
    result: Diagnosis, networks: dict[str, nn.Module], store: Store, out: Path | None
) -> tuple[Diagnosis, Run | None]:
    """Keep the networks that were trained for a diagnosis: in a new run for it, or in the folder ``out``, and then no
    run is made. If ``out`` is a file, they are not kept, which a note says."""
    if out is None:
        run = store.create(result.settings, f"kernel {Path(result.settings['model']).stem}", "kernel", status="done")
        run.update(result={"verdict": result.verdict, "cka": result.change.cka})
        save_networks(run.path, **networks)
        return result, run
    if networks and out.suffix in (".html", *PICTURES):
        return replace(result, notes=[*result.notes, NOT_KEPT]), None
    if networks:
        save_networks(out, **networks)
    return result, None


def _in_order(network: nn.Module, name: str, task: Task, examples: Examples) -> tuple[Callable[[Tensor], Tensor], str]:
    """A network that was trained elsewhere, with its outputs for the classes of the data, and a note on how these are
    matched if there are two ways."""
    width = output_width(network, examples.x, task.targets[0].size)
    if width == 1:
        return network, ""
    meant, note = outputs_of(task.targets[0], width, name)
    places = torch.from_numpy(meant)
    return lambda x: network(x)[:, places], note


def _diagnosed(
    before: nn.Module,
    after: nn.Module,
    fit: Examples,
    test: Examples,
    network: Callable[[Tensor], Tensor],
    look: KernelLook,
    tell: TellShare,
) -> Diagnosis:
    chosen: dict[str, Any] = {key: getattr(look, key) for key in ("form", "modes", "ridge", "seed")}

    def heard(kernel: str, share: float) -> None:
        tell(f"kernel, {kernel}", share)

    return diagnose(before, after, fit, test, network=network, tell=heard, **chosen)


def _held_out(config: RunConfig, look: KernelLook) -> tuple[Examples, Examples]:
    """Held-out examples of a run: for comparing kernels, and for counting errors."""
    numbers = config.split.parts(config.world).held_out
    fit, test = _cut(config.world, numbers, (look.count, look.test))
    check_examples(fit, test)
    return fit, test


def _divided(task: Task, look: KernelLook, trained: bool) -> list[Examples]:
    """Disjoint examples for training (none if weights are given), for comparing kernels and for testing."""
    sizes = (look.count if trained else 0, look.count, look.test)
    # Sampling sorts by number, and worlds may be in the order of their classes: the parts are cut from a shuffle.
    share = min(1.0, len(task) / sum(sizes))
    numbers = sample_numbers(task, sum(int(share * size) for size in sizes), look.seed)
    return _cut(task, np.random.default_rng((look.seed, 1)).permutation(numbers), sizes, share)


def _cut(world: World, numbers: Any, sizes: Sequence[int], share: float | None = None) -> list[Examples]:
    """Parts of these sizes; if there are too few examples, they are divided in the same proportions."""
    share = min(1.0, len(numbers) / sum(sizes)) if share is None else share
    ends = np.cumsum([0, *(int(share * size) for size in sizes)])
    return [Examples.of(world, numbers[start:end]) for start, end in itertools.pairwise(ends)]
