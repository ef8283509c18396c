"""``polariscope sweep``: train a grid, and rank its settings by any measure."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from polariscope.cli import commands
from polariscope.cli.configuration import parse_run
from polariscope.cli.parsing import flag, options_type, parse, take, take_first
from polariscope.cli.run_studies import StudyOptions, outcome_of
from polariscope.cli.study import FULL
from polariscope.report.terminal import answer
from polariscope.studies.own import OwnStudy, read_study
from polariscope.studies.ranking import rank

USAGE = """polariscope sweep WORLD [--grid SETTING=VALUE,VALUE ...] [--seeds N] [--measure NAME] [--by COLUMN] [options]
polariscope sweep FILE.toml [--by COLUMN] [options]"""
ABOUT = """Trains every combination of some settings with several seeds, or continues where it stopped, and ranks the
settings by a measure or a result of training, with a 95 % interval over the seeds. --grid objective.beta=1,4,16 names
a setting of 'polariscope train' and its values, and can be given several times. FILE.toml is a study of your own
('polariscope study')."""
SEEDS = ("seeds", flag(int, "Seeds of each setting, from 0."), 5)
MEASURE = ("measure", flag(tuple[str, ...], "Measures to compute for every run; * matches any letters."), ())
EXAMPLES = ("examples", flag(int, "Examples that measures are computed on."), 5000)
BY = ("by", flag(str, "Column to rank by: a measure, a type of variables such as active, or a result of training."), "")
HIGHEST = ("highest", flag(bool, "Rank the highest first."), False)
LOWEST = ("lowest", flag(bool, "Rank the lowest first."), False)
OWN = [BY, HIGHEST, LOWEST]


@commands.register("sweep", "train a grid of settings and rank them by any measure", group="training")
def main(arguments: list[str]) -> int:
    arguments = list(arguments)
    first = take_first(arguments)
    if first is not None and first.endswith(".toml"):
        study, name = read_study(Path(first))
        options = parse(options_type(OWN, f"{USAGE}\n\n{ABOUT}", StudyOptions), arguments, "sweep")
    else:
        study, name, options = _from_flags([] if first is None else [first], arguments)
    if options.highest and options.lowest:
        raise ValueError("--highest and --lowest are opposites: give one of them")
    path = options.out / name
    outcome = outcome_of(study, name, FULL, path, options)
    if outcome is None:
        return 0
    by = options.by or next(iter(study.measured()), "held_out_loss")
    higher = True if options.highest else False if options.lowest else None
    cells = list(dict.fromkeys(cell for job in study.jobs(FULL) for cell in job["cell"]))
    findings = rank(outcome.table, by, cells, higher).findings()
    answer(findings, findings.save(path / "ranking.html"), options.json)
    return 0


def _from_flags(words: list[str], arguments: list[str]) -> tuple[OwnStudy, str, Any]:
    """A study from the options of a training and ``--grid`` flags."""
    choices = {}
    while (text := take(arguments, "--grid")) is not None:
        setting, _, values = text.partition("=")
        if not setting or not values:
            raise ValueError(f"--grid names a setting and its values, --grid objective.beta=1,2,4; got {text!r}")
        choices[setting.replace("-", "_")] = [_value(word) for word in _split(values)]
    extra = [SEEDS, MEASURE, EXAMPLES, *OWN]
    config, options = parse_run([*words, *arguments], "sweep", extra, StudyOptions, ABOUT, USAGE)
    if options.seeds < 1:
        raise ValueError(f"a sweep needs at least one seed; got {options.seeds}")
    study = OwnStudy.sweep(config, choices, options.seeds, options.measure, options.examples)
    label = re.sub(r"[^a-z0-9]+", "-", config.label.lower()).strip("-")
    return study, f"sweep-{label}-{study.fingerprint()}", options


def _split(values: str) -> list[str]:
    """Words between commas; commas inside brackets do not separate."""
    return [word.strip() for word in re.split(r",(?![^\[(]*[\])])", values)]


def _value(word: str) -> Any:
    """A number, a truth value or a list as Python writes it; a word otherwise."""
    if word in ("true", "false"):
        return word == "true"
    try:
        value = ast.literal_eval(word)
    except (ValueError, SyntaxError):
        return word
    return list(value) if isinstance(value, tuple) else value
