"""``polariscope kernel``: is this classifier lazy, or does it learn features?"""

from __future__ import annotations

import copy
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from polariscope.cli import commands
from polariscope.cli.configuration import parse_world
from polariscope.cli.named import is_source, opened_classifier, own_module
from polariscope.cli.parsing import asks_for_help, check_place, flag, options_type, parse, take_first
from polariscope.cli.progress import bars, shares
from polariscope.examination.classifier_training import save_networks, train_classifier
from polariscope.examination.diagnose import diagnose
from polariscope.examination.diagnosis import Diagnosis, Form
from polariscope.examination.labelled import Labelled, check_examples
from polariscope.lab.holding import hold
from polariscope.lab.run_documents import keep_findings
from polariscope.lab.store import Run, Store
from polariscope.nets.classifiers import Parametrisation
from polariscope.nets.model import Brief, Model, models
from polariscope.nets.predictors import AlexNet, LeNet, Perceptron
from polariscope.nets.scaled import Scaled, ScaledConfig, loss_scale
from polariscope.objectives.predict import Classify
from polariscope.registry import nearest
from polariscope.report.terminal import answer
from polariscope.subjects.weights import load_weights
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.run import config_of, load_model, network_of, train_once
from polariscope.worlds.splits import RandomSplit
from polariscope.worlds.targets import Task, class_names, target_values
from polariscope.worlds.world import World, sample_numbers, to_tensor, worlds

HELP = """polariscope kernel RUN [options], or polariscope kernel MODEL DATA [options]

Compares the tangent kernel of a classifier before and after training, with examples it was not trained on.

RUN was trained with --objective classify. MODEL is 'mlp', 'lenet' or 'alexnet', or FILE.py:NAME, a class or function of
yours that returns an nn.Module with outputs (n, C) or (n,) when called without arguments. DATA is a labelled world or a
file (npz with x and y, MNIST's IDX files, a folder of folders of images). Give the weights of before and after with
--initial and --final; without them the model is trained here, and DATA is divided into examples to train on, to compare
kernels on and to count errors on."""

BUILT_IN = ("mlp", "lenet", "alexnet")
STEPS = 1000


EXTRA = [
    ("initial", flag(Path | None, "safetensors file of the weights before training."), None),
    ("final", flag(Path | None, "safetensors file of the weights after training; DATA must be new to them."), None),
    ("train", flag(int | None, f"Train here for this many steps ({STEPS} if no --final is given)."), None),
    ("alpha", flag(float | None, "Train alpha (f - f0): large is lazy, small learns features."), None),
    ("learning_rate", flag(float, "Rate of gradient descent with momentum 0.9."), 0.05),
    ("batch_size", flag(int, "Examples per step."), 64),
    ("width", flag(int, "Width factor of a built-in model; of mlp, of its two layers of 128."), 1),
    ("parametrisation", flag(Parametrisation, "How a built-in model's weights are drawn and scaled."), "torch"),
    ("label", flag(str | None, "Factor that is the class; the first discrete one if not given."), None),
    ("parity", flag(bool, "Whether the class is even (0) or odd (1), instead of the class."), False),
    ("form", flag(Form, "With several outputs: the mean of their kernels, or the kernel of their sum."), "trace"),
    ("count", flag(int, "Examples to compare kernels on, and as many to train on."), 1000),
    ("test", flag(int, "Held-out examples to count errors on."), 1000),
    ("modes", flag(int, "Principal components to look at."), 10),
    ("ridge", flag(float | None, "Ridge over the kernel's mean diagonal; by leave-one-out if not given."), None),
    ("seed", flag(int, "Draws weights, examples and batches."), 0),
    ("runs", flag(Path, "Folder of the runs."), Path("runs")),
    ("out", flag(Path | None, "Folder of report, figures and figures as JSON; a new run's if not given."), None),
    ("json", flag(bool, "Print JSON for machines."), False),
]  # fmt: skip


@commands.register("kernel", "diagnose whether a classifier is lazy or learns features", group="examination")
def main(arguments: list[str]) -> int:
    arguments = list(arguments)
    name, place = take_first(arguments), take_first(arguments)
    asked = asks_for_help(arguments)
    if not asked and name is None:
        raise ValueError(f"which model? 'polariscope kernel MODEL DATA': {', '.join(BUILT_IN)}, FILE.py:NAME, or a run")
    if name is not None and name not in BUILT_IN and not is_source(name) and place is None:
        return _of_run(name, arguments)
    if not asked and place is None:
        raise ValueError("which data? 'polariscope kernel MODEL DATA': a labelled world's name, or a file's path")
    world, options = parse_world(place or "digits", arguments, "kernel", EXTRA, HELP)
    assert name is not None
    _check(options)
    _check_training(options)
    if name not in BUILT_IN and not is_source(name):
        raise ValueError(f"there is no model {name!r}: {nearest(name, [*BUILT_IN, 'FILE.py:NAME'])}")
    task = Task(world, options.label or "", "parity" if options.parity else "classes")
    if name in BUILT_IN and options.initial is None and options.final is None:
        return _diagnosed(_trained(name, task, options), options)
    train, fit, test = examples(task, options)
    check_examples(fit, test)
    initial, final, network = before_and_after(_model(name, task, options), train, name, options)
    settings = {"model": name, "data": worlds.describe(world)}
    settings |= {key: plain_value(getattr(options, key)) for key, _, _ in EXTRA if key not in ("json", "runs", "out")}
    folder, run = _folder(options, name, settings)
    found = _look(initial, final, fit, test, network, options)
    findings = found.findings(f"Kernels of {name}", settings, class_names(task))
    if options.final is None:  # what was trained here can be diagnosed again, or used
        save_networks(folder, initial=initial, final=final)
    if run is not None:
        run.update(status="done", result={"verdict": found.verdict, "cka": found.change.cka})
    return answer(findings, keep_findings(findings, "kernel", run, options.out), options.json)


def _of_run(name: str, arguments: list[str]) -> int:
    """Diagnose a run that was trained to classify, on data that it kept from training."""
    wanted = ("form", "count", "test", "modes", "ridge", "seed", "runs", "out", "json")
    options = parse(options_type([field for field in EXTRA if field[0] in wanted], HELP), arguments, "kernel")
    _check(options)
    return _diagnosed(opened_classifier(Store(options.runs), name), options)


def _diagnosed(run: Run, options: Any) -> int:
    config = config_of(run)
    fit, test = _kept(config, options)
    network, first = network_of(run), load_model(run, 0)
    before, after = (one.network if isinstance(one, Scaled) else one for one in (first, network))
    found = _look(before, after, fit, test, network, options)
    settings: dict[str, Any] = {"model": models.name_of(config.model), "run": run.id}
    settings["data"] = worlds.describe(config.world)
    settings |= {
        key: run.config["training"][key] for key in ("steps", "batch_size", "learning_rate", "optimiser", "seed")
    }
    settings |= {"alpha": getattr(config.model, "alpha", None), "form": options.form, "ridge": options.ridge}
    with hold(run.path):
        run.update(result={"verdict": found.verdict, "cka": found.change.cka})
    findings = found.findings(f"Kernels of {settings['model']}", settings, class_names(config.world))
    return answer(findings, keep_findings(findings, "kernel", run, options.out), options.json)


def _kept(config: RunConfig, options: Any) -> tuple[Labelled, Labelled]:
    """Examples that a run keeps from training: to compare kernels on, and to count errors on."""
    numbers = config.split.parts(config.world).held_out
    share = min(1.0, len(numbers) / (options.count + options.test))  # few are divided in the same proportions
    ends = np.cumsum([0, int(share * options.count), int(share * options.test)])
    fit, test = (_labelled(config.world, numbers[start:end]) for start, end in itertools.pairwise(ends))
    check_examples(fit, test)
    return fit, test


def _look(
    before: nn.Module, after: nn.Module, fit: Labelled, test: Labelled, network: nn.Module, options: Any
) -> Diagnosis:
    chosen = {"form": options.form, "modes": options.modes, "ridge": options.ridge, "seed": options.seed}
    with shares(quiet=options.json) as tell:
        return diagnose(
            before, after, fit, test, network=network, tell=lambda name, share: tell(f"kernel, {name}", share), **chosen
        )


def _trained(name: str, task: Task, options: Any) -> Run:
    """A run of a built-in model on as many examples as kernels are compared on; the rest is kept from training."""
    whole = 2 * options.count + options.test
    kept = max(1, round(len(task) * (1 - options.count / max(whole, len(task)))))
    training = TrainingConfig(
        options.train or STEPS,
        options.batch_size,
        options.learning_rate,
        "sgd",
        momentum=0.9,
        seed=options.seed,
        evaluate_every=0,
    )
    model = _config(name, options)
    scale = 1.0 if options.alpha is None else loss_scale(options.alpha)
    config = RunConfig(task, Classify(scale), model, training, RandomSplit(kept / len(task)))
    _kept(config, options)  # says at once if there will be too few
    with bars([f"training {name}"], training.steps, quiet=options.json) as (tell,):
        return train_once(config, options.runs, tell)  # the same command goes on with what was cut off


def _config(name: str, options: Any) -> Model:
    sizes = {"width": options.width, "parametrisation": options.parametrisation}
    model: Model = {"mlp": Perceptron, "lenet": LeNet, "alexnet": AlexNet}[name](**sizes)
    return model if options.alpha is None else ScaledConfig(model, options.alpha)


def _model(name: str, task: Task, options: Any) -> nn.Module:
    """The model of a name, or of a file of the user's, as the seed draws it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)
        if is_source(name):
            return own_module(name).float()  # kernels of half precision would be mostly rounding
        return _config(name, options).build(Brief(tuple(task.shape), task.targets[0].size))


def examples(task: Task, options: Any) -> tuple[Labelled, Labelled, Labelled]:
    """Examples to train on (none if weights are given), to compare kernels on and to test on, all different."""
    trained = options.count if options.final is None else 0
    wanted = trained + options.count + options.test
    share = min(1.0, len(task) / wanted)  # a small data set is divided in the same proportions
    ends = np.cumsum([0, *(int(share * size) for size in (trained, options.count, options.test))])
    # Sampling sorts by number, and worlds may be in the order of their classes: the parts are cut from a shuffle.
    numbers = sample_numbers(task, int(ends[-1]), options.seed)
    numbers = np.random.default_rng((options.seed, 1)).permutation(numbers)
    first, second, third = (_labelled(task, numbers[start:end]) for start, end in itertools.pairwise(ends))
    return first, second, third


def _labelled(world: World, numbers: NDArray[np.int64]) -> Labelled:
    x = to_tensor(world.observe(numbers)).clone(memory_format=torch.contiguous_format)
    return Labelled(x, torch.from_numpy(target_values(world, numbers)[:, 0].astype(np.int64)))


def before_and_after(
    model: nn.Module, data: Labelled, name: str, options: Any
) -> tuple[nn.Module, nn.Module, nn.Module]:
    """A model before training, after it, and what classifies: from files, or trained here."""
    if options.initial is not None:
        load_weights(model, options.initial)
    initial = copy.deepcopy(model).eval()
    if options.final is not None:
        load_weights(model, options.final)
        return initial, model.eval(), model.eval()
    steps = options.train or STEPS
    with bars([f"training {name}"], steps, quiet=options.json) as (tell,):
        network = train_classifier(
            model,
            data,
            steps,
            alpha=options.alpha,
            learning_rate=options.learning_rate,
            batch_size=options.batch_size,
            seed=options.seed,
            tell=tell,
        )
    return initial, model.eval(), network


def plain_value(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def _folder(options: Any, name: str, settings: dict[str, Any]) -> tuple[Path, Run | None]:
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        return options.out, None
    run = Store(options.runs).create(settings, f"kernel {Path(name).stem}", "kernel")
    return run.path, run


def _check_training(options: Any) -> None:
    if options.train is not None and options.train < 1:
        raise ValueError(f"--train is {options.train}: at least 1 step is needed")
    if options.final is not None and options.train is not None:
        raise ValueError("--final are the weights after training: leave --train out, or --final")
    if options.final is not None and options.initial is None:
        raise ValueError("--final needs --initial: the diagnosis is of what training changed")
    if options.final is not None and options.alpha is not None:
        raise ValueError("--alpha is for training here: with --final the network classifies as it is")
    if options.alpha is not None and not options.alpha > 0:
        raise ValueError(f"the output scale is {options.alpha}: it needs to be positive")


def _check(options: Any) -> None:
    if options.out is None:
        check_place(options.runs, "--runs")
    for name, least in (("count", 20), ("test", 1), ("width", 1), ("batch_size", 1), ("modes", 2)):
        value = getattr(options, name, least)  # a run has some of them already
        if value < least:
            raise ValueError(f"--{name.replace('_', '-')} is {value}: at least {least} is needed")
    if options.out is not None and (options.out.is_file() or options.out.suffix in (".html", ".png", ".svg")):
        raise ValueError(f"--out is a folder, for report, figures and weights, and {options.out} is a file")
