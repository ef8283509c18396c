"""The command line: parse, call, print. Each command is one module with ``main(arguments) -> exit code``.

Exit codes: 0 done; 1 a study's claim did not hold; 2 bad input, said in one sentence; 3 training diverged;
130 interrupted with Ctrl-C; 141 whoever read our output had enough of it; 143 ended with SIGTERM, as schedulers do.
After 130 and 143 what a store holds is saved, and the last line is the command that goes on, or that starts again.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from polariscope import plugins
from polariscope.command import again, carrying_out
from polariscope.interrupts import terminated_as_interrupted
from polariscope.memory import available_memory, keep_freed_memory
from polariscope.printable import say, spell_out

COMMANDS = {
    "demo": "train two models on the sprite world, examine both, write a report",
    "worlds": "list the worlds, or show one as a contact sheet",
    "train": "train a model on a world or on your own data",
    "examine": "examine a trained model: latent variables, measures, traversals, in a report",
    "dimension": "find how many latent variables a model needs",
    "manipulate": "change a world slightly, with the same factors, to see what models rely on",
    "compare": "compare two models, layer by layer",
    "kernel": "diagnose whether a classifier is lazy or learns features",
    "generalise": "test a model on factor values and combinations it never saw",
    "corruptions": "measure how robust a classifier is to noise, blur, weather and other corruptions",
    "transitions": "test whether the factors of a video move sparsely enough for SlowVAE",
    "studies": "list the published experiments that can be reproduced",
    "reproduce": "run a published experiment and compare it with what was published",
    "results": "judge the tables of studies again and write one page about them",
    "runs": "list, filter and query runs; name, tag and annotate them; overlay their curves",
    "version": "print the version",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the ``polariscope`` command."""
    spell_out(sys.stdout)
    try:
        try:
            words = list(sys.argv[1:] if arguments is None else arguments)
            with carrying_out(words), terminated_as_interrupted() as terminated:
                code = _run(words)
            return 143 if terminated and code == 130 else code
        finally:
            sys.stdout.flush()  # here and not at the end of Python, where a closed pipe could no longer be met quietly
    except (BrokenPipeError, SystemExit) as stop:
        if not isinstance(stop, BrokenPipeError) and not isinstance(stop.__context__, BrokenPipeError):  # rich's way
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _run(arguments: list[str]) -> int:
    try:
        files = _plugins(arguments)
        if not arguments or arguments[0] in ("-h", "--help"):
            say(overview())
            return 0
        name, *rest = arguments
        if name not in COMMANDS:
            from polariscope.registry import nearest

            raise ValueError(f"there is no command {name!r}: {nearest(name, COMMANDS)}")
        for file in files:
            plugins.load_plugin(file)
        keep_freed_memory()  # here and in workers, which are processes of ours; a user's own are left alone
        module = importlib.import_module(f"polariscope.cli.{name}")
        code: int = module.main(rest)
        return code
    except KeyboardInterrupt as stop:
        say(str(stop) or f"interrupted; start again with: {again()}", file=sys.stderr)
        return 130
    except BrokenPipeError:
        raise
    except MemoryError as error:
        wanted = str(error) or "more was asked for"
        free = f"{available_memory() / 1e9:.1f} GB are free"
        say(
            f"error: there is not enough memory: {wanted}, and {free}; take less data or a smaller model",
            file=sys.stderr,
        )
        return 2
    except ArithmeticError as error:
        say(f"error: {error}", file=sys.stderr)
        return 3
    except Exception as error:
        said = plugins.blamed(error)
        if os.environ.get("POLARISCOPE_DEBUG") or not isinstance(said, ValueError | TypeError | OSError | ImportError):
            raise
        say(f"error: {said}", file=sys.stderr)
        return 2


def _plugins(arguments: list[str]) -> list[str]:
    """Take ``--plugin FILE``, which every command knows, away from the words, as often as it is there."""
    files: list[str] = []
    if any(word.split("=")[0] == "--plugin" for word in arguments):
        from polariscope.cli.parsing import take

        while (file := take(arguments, "--plugin")) is not None:
            files.append(file)
    return files


def overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {what}" for name, what in COMMANDS.items()]
    return "\n".join(
        [
            "usage: polariscope COMMAND [options]",
            "",
            "Train learned representations, take them apart, and put them under load.",
            "",
            *lines,
            "",
            "'--plugin FILE.py' (with any command, as often as needed) adds what that file registers.",
            "'polariscope COMMAND --help' lists the options of a command.",
            "Set POLARISCOPE_DEBUG=1 to see the traceback behind an error.",
        ]
    )
