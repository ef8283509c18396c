"""``polariscope manipulate``: change a world a little, keep its factors, and write it to a folder to train on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from polariscope.cli import commands
from polariscope.cli.configuration import parse_run, parse_world
from polariscope.cli.parsing import asks_for_help, flag, take, take_first
from polariscope.cli.progress import bars
from polariscope.command import option_meant
from polariscope.manipulation.bundle import manipulation_findings, new_folder, report_on, save_bundle
from polariscope.manipulation.kinds import build
from polariscope.manipulation.manipulation import Tell, apply, manipulations
from polariscope.printable import say
from polariscope.report.terminal import show
from polariscope.strict_json import json_text
from polariscope.training.run import Progress
from polariscope.worlds.world import World, worlds

HELP = """polariscope manipulate WORLD [--kind local|noise|learned] [options]

Changes the observations of a world a little, keeps its factors, and writes the result to a folder to train on. WORLD is
a name ('polariscope worlds' lists them) or a file's path. The options below are those of the chosen kind and world;
--kind learned trains models, and takes every option of 'polariscope train' for them."""

EXTRA = [
    ("out", flag(Path, "New folder for the world, the report and the picture."), Path("manipulated")),
    ("epsilon", flag(float, "Largest change of any coordinate; for images a share of the grey range."), 0.1),
    ("seed", flag(int, "Seeds the manipulation itself."), 0),
    ("count", flag(int | None, "Observations to draw from the world; all of them if not given."), None),
    ("json", flag(bool, "Print the report as JSON for machines."), False),
]
SETTINGS: dict[str, list[tuple[str, Any, Any]]] = {
    "noise": [],
    "local": [
        ("frequency", flag(float, "How quickly the wave runs as the factors change."), 2.0),
        ("factors", flag(tuple[str, ...], "Factors whose sum it follows; all if not given."), ()),
        ("stripes", flag(int, "Periods of the wave across an image."), 4),
    ],
    "learned": [
        ("restarts", flag(int, "Models to train, of which the extremes are taken."), 10),
        ("pairs", flag(int, "Most and least disentangled models to play against each other."), 1),
        ("score", flag(str, "Measure that says how disentangled a model is."), "mig"),
        ("steps", flag(int, "Updates of the manipulation."), 5000),
        ("samples", flag(int, "Draws from each posterior."), 5),
        ("learning_rate", flag(float, "Of the manipulation and the decoders."), 1e-4),
        ("local_only", flag(bool, "Take the linear part off the change."), False),
    ],
}


@commands.register(
    "manipulate", "change a world slightly, with the same factors, to see what models rely on", group="data"
)
def main(arguments: list[str]) -> int:
    arguments = list(arguments)
    kind = take(arguments, "--kind") or "local"
    manipulations.get(kind)  # says which manipulation was meant
    world, options, more = _parsed(kind, arguments)
    names = ["epsilon", *(name for name, _, _ in SETTINGS[kind])]
    manipulation = build(kind, {name: getattr(options, name) for name in names} | more)
    folder = new_folder(options.out)
    option_meant("--out", f"{folder}-again")  # this one is taken then
    with _progress(options.json) as tell:
        manipulated = apply(world, manipulation, kind, seed=options.seed, count=options.count, tell=tell)
    report = report_on(manipulated)
    file = save_bundle(manipulated, folder, report)
    findings = manipulation_findings(manipulated, report)
    saved = findings.save(folder)
    if options.json:
        print(json_text({"world": str(file), "report": str(saved), **findings.json()}))
        return 0
    show(findings, saved)
    say(f"next: polariscope train {file}")
    return 0


def _parsed(kind: str, arguments: list[str]) -> tuple[World, Any, dict[str, Any]]:
    """The world, the options, and for a learned manipulation what its models are trained with."""
    extra = [*EXTRA, *SETTINGS[kind]]
    if kind == "learned":
        config, options = parse_run(arguments, "manipulate", extra)
        trained = {"objective": config.objective, "model": config.model, "training": config.training}
        return config.world, options, trained
    name = take_first(arguments) or take(arguments, "--world")
    if name is None:
        if not asks_for_help(arguments):
            raise ValueError(
                f"which world? 'polariscope manipulate WORLD': {', '.join(worlds.names())}, or a file's path"
            )
        name = "plane"
    world, options = parse_world(name, arguments, "manipulate", extra, HELP)
    return world, options, {}


@contextmanager
def _progress(quiet: bool) -> Iterator[Tell]:
    """One progress bar after the other, a new one whenever something else is being trained."""
    with ExitStack() as stack:
        shown: dict[str, Callable[[Progress], None]] = {}

        def tell(name: str, progress: Progress) -> None:
            if name not in shown:
                stack.close()
                shown.clear()
                shown[name] = stack.enter_context(bars([name], progress.steps, quiet))[0]
            shown[name](progress)

        yield tell
