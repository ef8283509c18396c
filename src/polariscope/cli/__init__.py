"""The command line: parse, call, print. A command is a registered function ``main(arguments) -> exit code``, or a
registered examination (:mod:`polariscope.examination.catalogue`).

Exit codes: 0 success; 1 a study's claim did not hold; 2 bad input, explained in one sentence; 3 training diverged; 130
interrupted with Ctrl-C; 141 the reader of the output stopped reading; 143 ended with SIGTERM, which schedulers send.
After 130 and 143 the state of trainings is saved, and the last line is the command that continues the work, or restarts
it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial

from polariscope import plugins
from polariscope.command import again, carrying_out
from polariscope.examination.catalogue import Command, examinations
from polariscope.examination.catalogue import commands as commands
from polariscope.interrupts import terminated_as_interrupted
from polariscope.memory import available_memory, keep_freed_memory
from polariscope.printable import say, spell_out

GROUPS = ("start", "data", "training", "examination", "publications")
"""Headings of the overview in their order; any other heading follows, and commands without one come last."""


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
        for file in _plugins(arguments):
            plugins.load_plugin(file)
        if not arguments or arguments[0] in ("-h", "--help"):
            say(overview())
            return 0
        name, *rest = arguments
        command = commands.get(name) if name in commands or name not in examinations else _examination(name)
        keep_freed_memory()  # here and in workers, which are processes of ours; a user's own are left alone
        return command(rest)
    except KeyboardInterrupt as stop:
        say(str(stop) or f"interrupted; start again with: {again()}", file=sys.stderr)
        return 130
    except BrokenPipeError:
        raise
    except MemoryError as error:
        wanted = str(error) or "the command needs more"
        free = f"{available_memory() / 1e9:.1f} GB are free"
        say(
            f"error: not enough memory: {wanted}, and {free}; use less data or a smaller model",
            file=sys.stderr,
        )
        return 2
    except ArithmeticError as error:
        say(f"error: {error}", file=sys.stderr)
        return 3
    except Exception as error:
        problem = plugins.blamed(error)
        if os.environ.get("POLARISCOPE_DEBUG") or not isinstance(
            problem, ValueError | TypeError | OSError | ImportError
        ):
            raise
        say(f"error: {problem}", file=sys.stderr)
        return 2


def _examination(name: str) -> Command:
    """The command of a registered examination."""
    from polariscope.cli.examination import main as examine

    return partial(examine, name)


def _plugins(arguments: list[str]) -> list[str]:
    """Remove every ``--plugin FILE``, which all commands accept, from the arguments."""
    files: list[str] = []
    if any(word.split("=")[0] == "--plugin" for word in arguments):
        from polariscope.cli.parsing import take

        while (file := take(arguments, "--plugin")) is not None:
            files.append(file)
    return files


def overview() -> str:
    """All commands with a line about each, by their groups."""
    known = [*commands.about(), *(one._replace(group=one.group or "examination") for one in examinations.about())]
    width = max(len(one.name) for one in known)
    others = sorted({one.group for one in known} - {*GROUPS, ""})
    lines: list[str] = []
    for group in (*GROUPS, *others, ""):
        if several := [f"  {one.name:<{width}}  {one.summary}" for one in known if one.group == group]:
            lines += [f"{group or 'other'}:", *several, ""]
    return "\n".join(
        [
            "usage: polariscope COMMAND [options]",
            "",
            "Train learned representations, take them apart, and put them under load.",
            "",
            *lines,
            "'--plugin FILE.py' (any command, any number of times) adds what that file registers.",
            "'polariscope COMMAND --help' lists the options of a command.",
            "Set POLARISCOPE_DEBUG=1 to see the traceback behind an error.",
        ]
    )
