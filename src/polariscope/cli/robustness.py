"""``polariscope robustness``: how robust is this classifier?"""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

from polariscope.cli import commands
from polariscope.cli.configuration import parse_world
from polariscope.cli.named import ModelFlags, is_source, opened_classifier, own_subject, run_subject
from polariscope.cli.parsing import JSON, RUNS, asks_for_help, flag, options_type, parse, take_first
from polariscope.cli.progress import shares
from polariscope.examination.robustness import QUESTIONS, THRESHOLDS, robustness
from polariscope.examination.titles import run_title
from polariscope.lab.run_documents import keep_findings
from polariscope.lab.store import Run, Store
from polariscope.report.terminal import answer
from polariscope.robustness.attacks import NORMS
from polariscope.robustness.kept import weights_hash
from polariscope.robustness.suites import Budget
from polariscope.subjects import Subject
from polariscope.training.run import config_of
from polariscope.worlds.splits import SplitPart
from polariscope.worlds.targets import Targeted, Task
from polariscope.worlds.view import inside
from polariscope.worlds.world import World, worlds

HELP = """polariscope robustness RUN [options], or polariscope robustness FILE.py:NAME DATA [options]

Measures how robust a classifier is to corruptions, to noise, and to attacks in three norms, with lower bounds where
they are known and warnings where attacks cannot be trusted. 'polariscope corruptions' measures corruptions alone.

RUN was trained with --objective classify, and is tested on held-out images. FILE.py:NAME is your own classifier: an
nn.Module, a class or function without arguments that makes one, or a function from images to scores. DATA is a labelled
world, or a file of images with labels. Results of attacks are stored, so the command continues where it stopped."""
EXTRA = [
    ("only", flag(str, f"Questions to answer, separated by commas: {', '.join(QUESTIONS)}."), ",".join(QUESTIONS)),
    ("norms", flag(str, f"Norms of the attacks, separated by commas: {', '.join(NORMS)}."), "l2,linf,l0"),
    ("budget", flag(Budget, "How many attacks, and how long they take: quick seconds for a small network, full hours."),
     "standard"),
    ("l2", flag(tuple[float, ...], "L2 sizes at which accuracy is reported."), THRESHOLDS["l2"]),
    ("linf", flag(tuple[float, ...], "L-infinity sizes at which accuracy is reported."), THRESHOLDS["linf"]),
    ("l0", flag(tuple[float, ...], "Numbers of changed pixels at which accuracy is reported."), THRESHOLDS["l0"]),
    ("also", flag(str, "Further attacks by name, separated by commas, such as those of a --plugin."), ""),
    ("substitute", flag(str | None, "A classifier whose adversarials are tried on this one: a run, or FILE.py:NAME."),
     None),
    ("draws", flag(int, "Draws over which a random classifier is averaged; with 0 draws it is not attacked."), 0),
    ("suite", flag(str, "imagenet-c: corruptions of photographs; mnist-c: corruptions of digits."), "imagenet-c"),
    ("count", flag(int, "Images to attack."), 100),
    ("corrupted", flag(int, "Images to corrupt."), 1000),
    ("seed", flag(int, "Draws images, starting points and corruptions."), 0),
    RUNS,
    ("out", flag(Path | None, "A page (.html), the first figure alone (.png, .svg), or a folder for everything, "
            "with the adversarials; by default findings/robustness of the run, or robustness in this folder."), None),
    JSON,
]  # fmt: skip
OF_DATA = [
    ("weights", flag(Path | None, "Weights of your own module: safetensors, or a file of torch.save."), None),
    ("label", flag(str | None, "Factor to predict as the class; by default the first discrete one."), None),
]


@commands.register(
    "robustness",
    "measure how robust a classifier is to corruptions, noise and attacks, with bounds and warnings",
    group="examination",
    needs="class images",
)
def main(arguments: list[str]) -> int:
    arguments = list(arguments)
    name, place = take_first(arguments), take_first(arguments)
    helping = asks_for_help(arguments)
    if name is None and not helping:
        raise ValueError(
            "which classifier? 'polariscope robustness RUN', or 'polariscope robustness FILE.py:NAME DATA'"
        )
    if name is not None and not is_source(name):
        if place is not None:
            raise ValueError(f"a run is tested on its held-out images: leave {place} out, or name FILE.py:NAME")
        return _of_run(name, parse(options_type(EXTRA, HELP), arguments, "robustness"))
    if place is None and not helping:
        raise ValueError("which data? 'polariscope robustness FILE.py:NAME DATA': a labelled world or a file's path")
    world, options = parse_world(place or "digits", arguments, "robustness", [*EXTRA, *OF_DATA], HELP)
    assert name is not None
    task = world if options.label is None and inside(world, Targeted) else Task(world, options.label or "")
    subject = own_subject(name, ModelFlags(options.weights))
    described = worlds.describe(world)
    return _card(subject, task, options, {"model": name, "data": described}, Path("robustness") / "attacks")


def _of_run(name: str, options: Any) -> int:
    run = opened_classifier(Store(options.runs), name)
    config = config_of(run)
    subject = dataclasses.replace(run_subject(run), name=run_title(run))
    settings = {"run": run.id, "data": worlds.describe(config.world)}
    return _card(subject, SplitPart(config.world, config.split), options, settings, run.path / "attacks", run)


def _identity(subject: Subject, settings: dict[str, Any]) -> dict[str, Any]:
    """The key of stored results: weights, data and, for the user's own classifier, its source, because its computation
    may change while its weights do not."""
    identity = {"weights": weights_hash(subject), "data": settings["data"]}
    if ".py:" in settings.get("model", ""):
        file = Path(settings["model"].rpartition(":")[0])
        identity["source"] = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    return identity


def _substitute(options: Any) -> Subject | None:
    """The classifier that --substitute names."""
    if options.substitute is None:
        return None
    if is_source(options.substitute):
        return own_subject(options.substitute, ModelFlags())
    run = opened_classifier(Store(options.runs), options.substitute)
    return dataclasses.replace(run_subject(run), name=run_title(run))


def _card(
    subject: Subject, world: World, options: Any, settings: dict[str, Any], kept: Path, run: Run | None = None
) -> int:
    only = tuple(word.strip() for word in options.only.split(",") if word.strip())
    norms = tuple(word.strip() for word in options.norms.split(",") if word.strip())
    for norm in norms:
        if norm not in NORMS:
            raise ValueError(f"there is no norm {norm!r}: {', '.join(NORMS)}")
    if options.out is not None and not options.out.suffix:
        kept = options.out / "attacks"
    with shares(quiet=options.json) as tell:
        card = robustness(
            subject,
            world,
            only=only,
            norms=norms,
            budget=options.budget,
            thresholds={"l2": options.l2, "linf": options.linf, "l0": options.l0},
            also=tuple(word.strip() for word in options.also.split(",") if word.strip()),
            substitute=_substitute(options),
            draws=options.draws,
            suite=options.suite,
            count=options.count,
            corrupted=options.corrupted,
            seed=options.seed,
            folder=kept,
            identity=_identity(subject, settings),
            tell=tell,
        )
    names = ("only", "norms", "budget", "l2", "linf", "l0", "also", "substitute", "draws", "suite", "count",
             "corrupted", "seed")  # fmt: skip
    findings = card.findings(settings=settings | {key: getattr(options, key) for key in names})
    out = options.out or (Path("robustness") if run is None else None)
    return answer(findings, keep_findings(findings, "robustness", run, out), options.json)
