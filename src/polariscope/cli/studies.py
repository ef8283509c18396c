"""``polariscope studies``."""

from __future__ import annotations

from dataclasses import dataclass

from polariscope.cli import commands
from polariscope.cli.parsing import parse
from polariscope.console import Terminal
from polariscope.strict_json import json_text
from polariscope.studies import studies


@dataclass(frozen=True)
class Options:
    """List the published experiments that can be reproduced."""

    json: bool = False
    """Print JSON for machines."""


@commands.register("studies", "list the published experiments that can be reproduced", group="publications")
def main(arguments: list[str]) -> int:
    options = parse(Options, arguments, "studies")
    entries = [(name, studies.get(name)) for name in studies.names()]
    if options.json:
        keys = ("title", "source", "question", "cost")
        print(json_text([{"name": name} | {key: getattr(kind, key) for key in keys} for name, kind in entries]))
        return 0
    console = Terminal(highlight=False)
    for name, kind in entries:
        console.print(f"[bold]{name}[/bold]  {kind.title}")
        console.print(f"  {kind.question}")
        console.print(f"  [dim]{kind.source}; {', '.join(f'{k} {v}' for k, v in kind.cost.items())}[/dim]\n")
    console.print("run one with 'polariscope reproduce NAME --scale smoke|laptop|paper'")
    return 0
