"""``polariscope serve``: the explorer in a browser."""

from __future__ import annotations

import secrets
import sys
import webbrowser
from dataclasses import dataclass
from pathlib import Path

from polariscope.cli import commands
from polariscope.cli.parsing import parse
from polariscope.printable import say
from polariscope.strict_json import json_text


@dataclass(frozen=True)
class Options:
    """Open the explorer: a page over all runs, on which you explore, train, compare and attack their models.

    Only this machine can open the page. To open it from another machine, give --host and --token.
    """

    runs: Path = Path("runs")
    """Folder of the runs."""
    port: int = 8265
    """Port of the page; 0 takes a free port."""
    host: str = "127.0.0.1"
    """Address of the page. An address that other machines can reach needs a token."""
    token: str = ""
    """A secret of at least 16 letters that visitors need; 'auto' makes one. Anyone who has it can start trainings."""
    open: bool = False
    """Open the page in your browser."""
    json: bool = False
    """Print the address as JSON for machines."""


@commands.register("serve", "open the explorer: look into your runs in a browser", group="examination")
def main(arguments: list[str]) -> int:
    options = parse(Options, arguments, "serve")
    try:
        from polariscope.app.guard import check_binding
        from polariscope.app.server import explorer, listening, serve
    except ModuleNotFoundError as error:
        if error.name not in ("fastapi", "uvicorn", "starlette", "pydantic"):
            raise
        raise ImportError("the explorer needs the extra [app]: pip install 'polariscope[app]'") from error
    token = secrets.token_urlsafe(24) if options.token == "auto" else options.token
    check_binding(options.host, token)
    place = listening(options.host, options.port)
    port = place.getsockname()[1]
    shown = f"[{options.host}]" if ":" in options.host else options.host
    address = f"http://{shown}:{port}/{f'?token={token}' if token else ''}"

    def ready() -> None:
        if options.json:
            print(json_text({"address": address, "runs": str(options.runs)}))
        else:
            say(f"the explorer of {options.runs} is at {address} (Ctrl-C ends it)")
        sys.stdout.flush()
        if options.open:
            webbrowser.open(address)

    serve(explorer(options.runs, options.host, port, token), place, ready)
    return 0
