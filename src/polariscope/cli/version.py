"""``polariscope version``."""

from __future__ import annotations

from dataclasses import dataclass

from polariscope.cli import commands
from polariscope.cli.parsing import parse
from polariscope.lab.provenance import environment
from polariscope.strict_json import json_text


@dataclass(frozen=True)
class Options:
    """Print the versions of Polariscope and of the libraries it uses."""

    json: bool = False
    """Print JSON for machines."""


@commands.register("version", "print the versions of Polariscope and its libraries", group="start")
def main(arguments: list[str]) -> int:
    options = parse(Options, arguments, "version")
    versions = environment()
    print(json_text(versions) if options.json else "\n".join(f"{name} {version}" for name, version in versions.items()))
    return 0
