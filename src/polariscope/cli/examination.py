"""The command of a registered examination: its options are the keyword arguments of the function."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from typing import Any

from polariscope.cli.configuration import meant, with_world
from polariscope.cli.named import ModelFlags, named_model, own_subject
from polariscope.cli.parsing import JSON, OUT, RUNS, options_type, parse, plain_words
from polariscope.examination.catalogue import examinations
from polariscope.examination.run_subjects import run_subject, shown_data
from polariscope.findings import Findings
from polariscope.lab.run_documents import keep_findings
from polariscope.report.terminal import answer
from polariscope.worlds.world import worlds

HELP = """polariscope {name} RUN [DATA] [options], or polariscope {name} FILE.py:NAME DATA [options]

{about}

A run is examined on its held-out data, or on other DATA: the name of a world or the path of a file."""


def main(name: str, arguments: list[str]) -> int:
    """Run the examination of this name."""
    examination = examinations.get(name)
    arguments = list(arguments)
    model, run, _, default = named_model(name, arguments)
    asked = _keywords(examination)
    help_text = HELP.format(name=name, about=plain_words(examination.__doc__))
    kind = options_type([*asked, OUT, RUNS, JSON], help_text, ModelFlags)
    options: Any = parse(with_world(kind, default), arguments, name)
    world = meant(options.world)
    chosen = {key: getattr(options, key) for key, _, _ in asked}
    subject = own_subject(model, options) if run is None else run_subject(run)
    result = examination(subject, world if run is None else shown_data(run, world), **chosen)
    findings: Findings = result if isinstance(result, Findings) else result.findings()
    about = {"model" if run is None else "run": model if run is None else run.id, "data": worlds.describe(world)}
    findings = dataclasses.replace(findings, settings={**about, **chosen, **findings.settings})
    return answer(findings, keep_findings(findings, name, run, options.out), options.json)


def _keywords(examination: Any) -> list[tuple[str, Any, Any]]:
    """The options of an examination: name, type and default of its keyword arguments."""
    hints = typing.get_type_hints(examination, include_extras=True)
    parameters = inspect.signature(examination).parameters.values()
    return [(p.name, hints.get(p.name, str), p.default) for p in parameters if p.kind is p.KEYWORD_ONLY]
