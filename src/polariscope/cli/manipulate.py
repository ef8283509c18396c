"""``polariscope manipulate``: change a world a little, keep its factors, and write it to a folder to train on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import tyro

from polariscope.cli import commands
from polariscope.cli.configuration import parse_run, parse_world
from polariscope.cli.parsing import JSON, asks_for_help, flag, take, take_data
from polariscope.cli.progress import bars
from polariscope.command import option_meant
from polariscope.manipulation.bundle import manipulation_findings, new_folder, report_on, save_bundle
from polariscope.manipulation.kinds import build
from polariscope.manipulation.manipulation import apply, manipulations
from polariscope.printable import say
from polariscope.registry import held
from polariscope.report.terminal import answer
from polariscope.training.progress import TellNamed
from polariscope.training.run import Progress
from polariscope.worlds.world import World, worlds

USAGE = "polariscope manipulate WORLD [--kind {kinds}] [options]"
ABOUT = """Changes the observations of a world a little, keeps its factors, and writes the result to a folder to train
on."""
OPTIONS = """WORLD is a name ('polariscope worlds' lists them) or a file's path. The options below belong to the
chosen kind and world; --kind learned trains models, and takes every option of 'polariscope train' for them."""

EXTRA = [
    ("out", flag(Path, "New folder for the world, the report and the picture."), Path("manipulated")),
    ("seed", flag(int, "Seed of the manipulation."), 0),
    ("count", flag(int | None, "Observations to draw from the world; by default all."), None),
    JSON,
]
TRAINED = ("objective", "model", "training")
"""Settings of a manipulation that trains models; the options of 'polariscope train' give them."""


@commands.register(
    "manipulate", "change a world slightly, with the same factors, to see what models rely on", group="data"
)
def main(arguments: list[str]) -> int:
    arguments = list(arguments)
    kind = take(arguments, "--kind") or "local"
    world, options, settings = _parsed(manipulations.get(kind), arguments)
    folder = new_folder(options.out)
    option_meant("--out", f"{folder}-again")  # this one is taken then
    with _progress(options.json) as tell:
        manipulated = apply(world, build(kind, settings), kind, seed=options.seed, count=options.count, tell=tell)
    report = report_on(manipulated)
    file = save_bundle(manipulated, folder, report)
    findings = manipulation_findings(manipulated, report)
    answer(findings, findings.save(folder), options.json, world=str(file))
    if not options.json:
        say(f"next: polariscope train {file}")
    return 0


def _parsed(kind: Any, arguments: list[str]) -> tuple[World, Any, dict[str, Any]]:
    """The world, the options, and the settings of the manipulation: plain settings are options, and settings of models
    that it trains are the options of a training. Its other parts have no option."""
    fields = [field.name for field in dataclasses.fields(kind) if field.init]
    hidden = [name for name in held(kind) if name not in TRAINED]
    plain = [name for name in fields if name not in (*hidden, *TRAINED)]
    extra = [*EXTRA, *((name, Annotated[Any, tyro.conf.Suppress], None) for name in hidden)]
    hints = get_type_hints(kind)
    words = [f for f in dataclasses.fields(kind) if type(f.default) is str and str in get_args(hints[f.name])]
    extra += [(field.name, str, field.default) for field in words]  # of words or functions, the command line has words
    usage = USAGE.format(kinds="|".join(manipulations.names()))
    if getattr(kind, "trains", False):
        config, options = parse_run(arguments, "manipulate", extra, kind, ABOUT, usage)
        more = {name: getattr(config, name) for name in TRAINED if name in fields}
        return config.world, options, {name: getattr(options, name) for name in plain} | more
    name = take_data(arguments)
    if name is None:
        if not asks_for_help(arguments):
            raise ValueError(
                f"which world? 'polariscope manipulate WORLD': {', '.join(worlds.names())}, or a file's path"
            )
        name = "plane"
    world, options = parse_world(name, arguments, "manipulate", extra, f"{usage}\n\n{ABOUT}\n\n{OPTIONS}", kind)
    return world, options, {name: getattr(options, name) for name in plain}


@contextmanager
def _progress(quiet: bool) -> Iterator[TellNamed]:
    """One progress bar after the other: a new one for each training."""
    with ExitStack() as stack:
        shown: dict[str, Callable[[Progress], None]] = {}

        def tell(name: str, progress: Progress) -> None:
            if name not in shown:
                stack.close()
                shown.clear()
                shown[name] = stack.enter_context(bars([name], progress.steps, quiet))[0]
            shown[name](progress)

        yield tell
