"""``polariscope kernel``: is this classifier lazy, or does it learn features?"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from safetensors.torch import save_file
from torch import nn

from polariscope.atomic import atomic
from polariscope.cli.configuration import world_named
from polariscope.cli.named import is_source, own_module
from polariscope.cli.parsing import flag, options_type, parse, take_first
from polariscope.cli.progress import bars
from polariscope.examination.diagnose import Diagnosis, Form, Labelled, check_examples, diagnose, train_classifier
from polariscope.lab.store import Run, Store
from polariscope.nets.classifiers import Parametrisation, Weights, alexnet, lenet, mlp
from polariscope.registry import nearest
from polariscope.report.kernel_figures import figures_of, write_kernel_report
from polariscope.subjects.weights import load_weights
from polariscope.training.run import Progress
from polariscope.worlds.world import World, sample, to_tensor, worlds

HELP = """polariscope kernel MODEL DATA [options]

Compares the tangent kernel of a classifier before and after training, with examples it was not trained on.

MODEL is 'mlp', 'lenet' or 'alexnet', or FILE.py:NAME, a class or function of yours that returns an nn.Module with
outputs (n, C) or (n,) when called without arguments. DATA is a labelled world or a file (npz with x and y, MNIST's IDX
files, a folder of folders of images). Give the weights of before and after with --initial and --final; without them the
model is trained here, and DATA is divided into examples to train on, to compare kernels on and to count errors on."""

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


def main(arguments: list[str]) -> int:
    arguments = list(arguments)
    name, place = take_first(arguments), take_first(arguments)
    asked = "-h" in arguments or "--help" in arguments
    if not asked and name is None:
        raise ValueError(f"which model? 'polariscope kernel MODEL DATA': {', '.join(BUILT_IN)}, or FILE.py:NAME")
    if not asked and place is None:
        raise ValueError("which data? 'polariscope kernel MODEL DATA': a labelled world's name, or a file's path")
    default = worlds.build(world_named(place or "digits"))
    options = parse(options_type([("world", type(default), default), *EXTRA], HELP), arguments, "kernel")
    assert name is not None
    _check(options)
    train, fit, test, names = examples(options.world, options)
    check_examples(fit, test)
    model = classifier(name, tuple(fit.x.shape[1:]), len(names), options)
    initial, final, network = before_and_after(model, train, name, options)
    found = diagnose(
        initial,
        final,
        fit,
        test,
        network=network,
        form=options.form,
        modes=options.modes,
        ridge=options.ridge,
        seed=options.seed,
    )
    settings = {"model": name, "data": worlds.describe(options.world)}
    settings |= {key: plain_value(getattr(options, key)) for key, _, _ in EXTRA if key not in ("json", "runs", "out")}
    folder, run = _folder(options, name, settings)
    write(folder, found, settings, names)
    if options.final is None:  # what was trained here can be diagnosed again, or used
        for file, module in (("initial", initial), ("final", final)):
            with atomic(folder / f"{file}.safetensors") as draft:
                save_file({k: v.contiguous() for k, v in module.state_dict().items()}, draft)
    if run is not None:
        run.update(status="done", result={"verdict": found.verdict, "cka": found.change.cka})
    if options.json:
        print(json.dumps({"out": str(folder), "settings": settings, **found.summary()}))
    else:
        show(found, folder)
    return 0


def examples(world: World, options: Any) -> tuple[Labelled, Labelled, Labelled, list[str]]:
    """Examples to train on (none if weights are given), to compare kernels on and to test on, all different; and what
    the classes are called."""
    trained = options.count if options.final is None else 0
    wanted = trained + options.count + options.test
    share = min(1.0, len(world) / wanted)  # a small data set is divided in the same proportions
    sizes = [int(share * size) for size in (trained, options.count, options.test)]
    # Sampling sorts by number, and worlds may be in the order of their classes: the parts are cut from a shuffle.
    observations, factors, _ = sample(world, sum(sizes), options.seed)
    order = np.random.default_rng((options.seed, 1)).permutation(len(observations))
    names, classes = labels_of(world, factors, options.label, options.parity)
    x, y = to_tensor(observations[order]).clone(memory_format=torch.contiguous_format), torch.from_numpy(classes[order])
    ends = np.cumsum(sizes)
    parts = [Labelled(x[end - size : end], y[end - size : end]) for end, size in zip(ends, sizes, strict=True)]
    return parts[0], parts[1], parts[2], names


def labels_of(
    world: World, factors: NDArray[Any], label: str | None, parity: bool
) -> tuple[list[str], NDArray[np.int64]]:
    """Names of the classes, and the class of every example."""
    if not world.factors:
        raise ValueError("this data has no labels: give a world with factors, or a file with labels (an npz with y)")
    known = [factor.name for factor in world.factors]
    if label is not None and label not in known:
        raise ValueError(f"the data has no factor {label!r}: {nearest(label, known)}")
    whole = [bool(np.equal(column, np.round(column)).all()) for column in factors.T]
    discrete = [name for name, yes in zip(known, whole, strict=True) if yes]
    chosen = label or next(iter(discrete), None)
    if chosen is None or chosen not in discrete:
        raise ValueError(f"a class is a discrete factor; {chosen or 'every factor of this data'} is continuous")
    position = known.index(chosen)
    column = factors[:, position].astype(np.int64)
    meaning = world.factors[position].values
    if meaning and not parity:
        found = np.unique(column)
        return [f"{meaning[i]:g}" for i in found], np.searchsorted(found, column)
    if meaning:  # parity is that of what the label means, not of its position
        column = np.asarray(meaning)[column].astype(np.int64)
    if parity:
        column = column % 2
    found, classes = np.unique(column, return_inverse=True)
    return (["even", "odd"] if parity else [str(value) for value in found]), classes.astype(np.int64)


def classifier(name: str, shape: tuple[int, ...], classes: int, options: Any) -> nn.Module:
    """The model of a name, or of a file of the user's, as the seed draws it."""
    if is_source(name):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(options.seed)
            return own_module(name).float()  # kernels of half precision would be mostly rounding
    if name not in BUILT_IN:
        raise ValueError(f"there is no model {name!r}: {nearest(name, [*BUILT_IN, 'FILE.py:NAME'])}")
    weights = Weights(options.parametrisation)
    if name == "mlp":
        hidden = (128 * options.width,) * 2
        return mlp(int(np.prod(shape)), hidden, classes, weights, seed=options.seed)
    if len(shape) != 3:
        raise ValueError(f"{name} is for images, and the data has points of shape {shape}: use mlp")
    if name == "lenet":
        return lenet(options.width, (shape[0], shape[1], shape[2]), classes, weights=weights, seed=options.seed)
    return alexnet(options.width, shape[0], classes, weights, seed=options.seed)


def before_and_after(
    model: nn.Module, train: Labelled, name: str, options: Any
) -> tuple[nn.Module, nn.Module, nn.Module]:
    """The model before training, after it, and what classifies: from files, or trained here."""
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
            train,
            steps,
            alpha=options.alpha,
            learning_rate=options.learning_rate,
            batch_size=options.batch_size,
            seed=options.seed,
            tell=lambda step, loss: tell(Progress(step, steps, loss)),
        )
    return initial, model.eval(), network


def write(folder: Path, found: Diagnosis, settings: dict[str, Any], names: list[str]) -> None:
    """report.html, a PNG per figure, and kernel.json with every number and setting."""
    folder.mkdir(parents=True, exist_ok=True)
    summary = found.summary()
    scatters = {view.name: view.scatter for view in found.views}
    figures = figures_of(summary, scatters, np.asarray(names)[found.labels])
    for name, figure in figures.items():
        with atomic(folder / f"{name}.png") as draft:
            figure.savefig(draft, format="png", dpi=130)
    record = {"settings": settings, "class_names": names, **summary}
    record["scatter"] = {"labels": found.labels.tolist(), **{k: np.round(v, 5).tolist() for k, v in scatters.items()}}
    with atomic(folder / "kernel.json") as draft:
        draft.write_text(json.dumps(record, indent=1), encoding="utf-8")
    flat = {key: value for key, value in settings.items() if value is not None}
    write_kernel_report(folder / "report.html", f"Kernels of {settings['model']}", summary, figures, flat)


def show(found: Diagnosis, folder: Path) -> None:
    """The findings on the terminal."""
    console = Console(markup=False, emoji=False)
    table = Table(title="Kernels before and after training", title_justify="left", box=None)
    columns: dict[str, Callable[[Any], str]] = {
        "error": lambda v: f"{v.error:.1%}",
        "align": lambda v: f"{v.alignment:.3f}",
        "ω² 1": lambda v: f"{v.projections[0]:.3f}",
        f"ω² 1-{len(found.views[0].projections)}": lambda v: f"{v.captured:.3f}",
        "bits 1": lambda v: f"{v.information[0]:.2f}",
        "2-PC": lambda v: f"{v.separability:.1%}",
        "rank": lambda v: f"{v.effective_rank:.1f}",
        "dim.": lambda v: "" if v.dimension is None else f"{v.dimension:.1f}",
    }
    table.add_column("kernel", no_wrap=True)
    for title in columns:
        table.add_column(title, justify="right")
    for view in found.views:
        table.add_row(view.name, *(value(view) for value in columns.values()))
    console.print(table)
    console.print(
        "align: alignment with the labels; ω²: share of the labels in components; bits: what component 1 tells; 2-PC: "
        "accuracy of neighbours in components 1 and 2; rank: effective rank; dim.: intrinsic dimension",
        style="dim",
        highlight=False,
    )
    wrong = f"the network gets {found.network_error:.1%} of the held-out examples wrong"
    console.print(f"{wrong}; the most frequent class alone would get {found.chance:.1%} wrong", highlight=False)
    console.print(f"verdict: {found.verdict}", highlight=False, style="bold")
    for reason in found.reasons:
        console.print(f"  {reason}", highlight=False)
    for note in found.notes:
        console.print(f"note: {note}", highlight=False)
    console.print(f"report: {folder / 'report.html'}", highlight=False, soft_wrap=True)


def plain_value(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def _folder(options: Any, name: str, settings: dict[str, Any]) -> tuple[Path, Run | None]:
    if options.out is not None:
        return options.out, None
    run = Store(options.runs).create(settings, f"kernel {Path(name).stem}", "kernel")
    return run.path, run


def _check(options: Any) -> None:
    for name, least in (("count", 20), ("test", 1), ("width", 1), ("batch_size", 1), ("modes", 2)):
        value = getattr(options, name)
        if value < least:
            raise ValueError(f"--{name.replace('_', '-')} is {value}: at least {least} is needed")
    if options.train is not None and options.train < 1:
        raise ValueError(f"--train is {options.train}: at least 1 step is needed")
    if options.final is not None and options.train is not None:
        raise ValueError("--final are the weights after training: leave --train out, or --final")
    if options.final is not None and options.initial is None:
        raise ValueError("--final needs --initial: the diagnosis is of what training changed")
    if options.final is not None and options.alpha is not None:
        raise ValueError("--alpha is for training here: with --final the network classifies as it is")
    if options.out is not None and options.out.exists() and not options.out.is_dir():
        raise ValueError(f"--out is a folder, and {options.out} is a file")
