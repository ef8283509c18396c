"""``polariscope kernel``: is this classifier lazy, or does it learn features?"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from polariscope.cli import commands
from polariscope.cli.configuration import parse_world
from polariscope.cli.named import is_source, opened_classifier, own_module
from polariscope.cli.parsing import (
    JSON,
    OUT,
    RUNS,
    asks_for_help,
    check_place,
    flag,
    options_type,
    parse,
    take_data,
    take_first,
)
from polariscope.cli.progress import shares, training_then_shares
from polariscope.examination.diagnose_models import (
    BUILT_IN,
    KernelLook,
    KernelTraining,
    diagnose_model,
    diagnose_run,
    keep_networks,
    train_built_in,
)
from polariscope.lab.run_documents import keep_findings
from polariscope.lab.store import Run, Store
from polariscope.registry import nearest
from polariscope.report.terminal import answer
from polariscope.worlds.targets import Task

HELP = """polariscope kernel RUN [options], or polariscope kernel MODEL DATA [options]

Compares the tangent kernel of a classifier before and after training, on examples it was not trained on.

RUN was trained with --objective classify. MODEL is 'mlp', 'lenet' or 'alexnet', or FILE.py:NAME, your own class or
function that returns an nn.Module with outputs (n, C) or (n,) when called without arguments. DATA is a labelled world
or a file (npz with x and y, MNIST's IDX files, a folder of folders of images). Give the weights before and after
training with --initial and --final; without them the command trains the model, and divides DATA into examples for
training, for comparing kernels and for counting errors."""

EXTRA = [
    RUNS,
    OUT,
    JSON,
]  # fmt: skip
OF_DATA = [
    ("label", flag(str | None, "Factor to predict as the class; by default the first discrete one."), None),
    ("parity", flag(bool, "Predict whether the class is even (0) or odd (1), instead of the class."), False),
]


@dataclass(frozen=True)
class Settings(KernelLook, KernelTraining):
    """Settings of a model that the command trains, or whose weights are given."""

    def __post_init__(self) -> None:
        KernelTraining.__post_init__(self)
        KernelLook.__post_init__(self)


@commands.register(
    "kernel", "diagnose whether a classifier is lazy or learns features", group="examination", needs="class"
)
def main(arguments: list[str]) -> int:
    arguments = list(arguments)
    name, data = take_first(arguments), take_data(arguments)
    helping = asks_for_help(arguments)
    if not helping and name is None:
        raise ValueError(f"which model? 'polariscope kernel MODEL DATA': {', '.join(BUILT_IN)}, FILE.py:NAME, or a run")
    own, built_in = name is not None and is_source(name), name in BUILT_IN
    if name is not None and not own and not built_in and data is None:
        options: Any = parse(options_type(EXTRA, HELP, KernelLook), arguments, "kernel")
        run = opened_classifier(Store(options.runs), name)
        with shares(quiet=options.json) as tell:
            findings = diagnose_run(run, _of(KernelLook, options), tell=tell).findings()
        return answer(findings, keep_findings(findings, "kernel", run, options.out), options.json)
    if not helping and data is None:
        raise ValueError("which data? 'polariscope kernel MODEL DATA': a labelled world's name, or a file's path")
    world, options = parse_world(data or "digits", arguments, "kernel", [*OF_DATA, *EXTRA], HELP, Settings)
    if options.out is None:
        check_place(options.runs, "--runs")
    name = str(name)
    if not own and not built_in:
        raise ValueError(f"there is no model {name!r}: {nearest(name, [*BUILT_IN, 'FILE.py:NAME'])}")
    task = Task(world, options.label or "", "parity" if options.parity else "classes")
    look, training, store = _of(KernelLook, options), _of(KernelTraining, options), Store(options.runs)
    with training_then_shares(f"training {name}", training.steps, options.json) as (train_tell, tell):
        if built_in and training.initial is None and training.final is None:
            run = train_built_in(name, task, training, look, store, train_tell)
            kept: Run | None = run
            result = diagnose_run(run, look, tell=tell)
        else:
            make = partial(own_module, name) if own else None
            result, networks = diagnose_model(name, make, task, training, look, train_tell=train_tell, tell=tell)
            result, kept = keep_networks(result, networks, store, options.out)
    findings = result.findings()
    return answer(findings, keep_findings(findings, "kernel", kept, options.out), options.json)


def _of(kind: Any, options: Any) -> Any:
    """The settings of a kind among the options."""
    return kind(**{name: getattr(options, name) for name in kind.__dataclass_fields__})
