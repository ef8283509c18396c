"""``polariscope worlds``: list them, or show one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.padding import Padding

from polariscope.cli import commands
from polariscope.cli.configuration import parse_world
from polariscope.cli.parsing import JSON, asks_for_help, flag, parse, plain_words, take_first
from polariscope.console import Terminal
from polariscope.printable import say
from polariscope.registry import required
from polariscope.report.contact_sheet import save_contact_sheet
from polariscope.strict_json import json_text
from polariscope.worlds.world import World, worlds


@dataclass(frozen=True)
class ListOptions:
    """List the worlds. 'polariscope worlds show NAME' draws a contact sheet of a world or of your own file."""

    json: bool = False
    """Print JSON for machines."""


SHOW = [
    ("out", flag(Path, "File of the contact sheet."), Path("world.png")),
    ("rows", flag(int, "Rows of images."), 6),
    ("columns", flag(int, "Images in each row."), 10),
    ("seed", flag(int, "Seed of the shown images."), 0),
    JSON,
]


SHOW_HELP = """polariscope worlds show NAME [options]

Draws a contact sheet of a world and describes its content. NAME is the name of a world, or the path of a file or a
folder of images. The world options below belong to the named world."""


@commands.register("worlds", "list the worlds, or show one as a contact sheet", group="data")
def main(arguments: list[str]) -> int:
    if arguments and arguments[0] == "show":
        return show(arguments[1:])
    if arguments and not arguments[0].startswith("-"):
        raise ValueError(
            f"'polariscope worlds' lists the worlds, and 'polariscope worlds show NAME' draws one: got {arguments[0]!r}"
        )
    options = parse(ListOptions, arguments, "worlds")
    own_data = {name for name in worlds.names() if getattr(worlds.get(name), "examples", None) == ()}
    rows = [describe(name) for name in worlds.names() if name not in own_data]
    if options.json:
        print(json_text(rows))
        return 0
    console = Terminal(highlight=False)
    others = []
    for row in rows:
        if row["shape"] is None:
            others.append(row)
            continue
        shape = "x".join(map(str, row["shape"]))
        console.print(f"[bold]{row['name']}[/bold]  {row['observations']:,} observations of {shape}")
        console.print(Padding(row["about"], (0, 0, 0, 2)), markup=False)
        console.print(Padding(f"[dim]{', '.join(row['factors']) or 'no factors'}[/dim]", (0, 0, 1, 2)))
    console.print("Views of another world, which --world.of names, and worlds whose settings have no defaults:")
    for row in others:
        console.print(f"[bold]{row['name']}[/bold]  {row['about']}")
    console.print("A path can replace the name: of an IDX, npz, npy, HDF5 or MATLAB file, or a folder of images.")
    return 0


def describe(name: str) -> dict[str, Any]:
    """One row of the list: a world with its default settings."""
    kind = worlds.get(name)
    about = plain_words(kind.__doc__)
    if required(kind):  # nothing without a world to look at
        return {"name": name, "observations": None, "shape": None, "factors": [], "about": about}
    world = kind()
    factors = [f"{f.name} {f.size}" if f.size else f.name for f in world.factors]
    return {"name": name, "observations": len(world), "shape": world.shape, "factors": factors, "about": about}


def show(arguments: list[str]) -> int:
    name = take_first(arguments) or ("sprites" if asks_for_help(arguments) else None)
    if name is None:
        raise ValueError(f"which world? 'polariscope worlds show NAME': {', '.join(worlds.names())}, or a file's path")
    world, options = parse_world(name, arguments, "worlds show", SHOW, SHOW_HELP)
    drawn = len(world.shape) == 3
    facts = look_of(world)
    if drawn:
        note = save_contact_sheet(options.out, world, options.rows, options.columns, options.seed)
        facts["notes"] = [note] if note else []
    if options.json:
        print(json_text({"out": str(options.out) if drawn else None, **facts}))
        return 0
    shape = "x".join(map(str, world.shape))
    say(f"observations of {shape}; {', '.join(facts['factors']) or 'no factors'}")
    for sentence in [*facts["assumed"], *facts.get("notes", [])]:
        say(f"note: {sentence}")
    shown = min(options.rows * options.columns, len(world))
    drawing = f"{shown} of {len(world):,} observations of {name} in {options.out}"
    say(drawing if drawn else f"{len(world):,} points without images: nothing to draw")
    return 0


def look_of(world: World) -> dict[str, Any]:
    """JSON-ready: the content of a world, and what was assumed about it if it comes from a file."""
    factors = [f"{f.name} ({f'{f.size} values, {f.kind}' if f.size else 'continuous'})" for f in world.factors]
    assumed = list(getattr(world, "assumed", ()))
    return {"shape": world.shape, "observations": len(world), "factors": factors, "assumed": assumed}
