"""``polariscope sweep``: train a grid, and rank its settings by any measure."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from typing import Any

from polariscope import plugins
from polariscope.cli import commands
from polariscope.cli.configuration import parse_run
from polariscope.cli.parsing import JSON, flag, options_type, parse, take, take_first
from polariscope.cli.place import PLACE, place_of
from polariscope.cli.study import FULL, read_study
from polariscope.cli.study_progress import watched
from polariscope.report.page import as_toml
from polariscope.report.terminal import answer
from polariscope.studies.engine import run_study
from polariscope.studies.estimate import estimate
from polariscope.studies.own import OwnStudy
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
ESTIMATE = ("estimate", flag(bool, "Run only the first job, and print what all jobs would cost."), False)
OUT = ("out", flag(Path, "Folder of the results."), Path("results"))
OWN = [BY, HIGHEST, LOWEST, ESTIMATE, OUT, JSON, *PLACE]


@commands.register("sweep", "train a grid of settings and rank them by any measure", group="training")
def main(arguments: list[str]) -> int:
    command = shlex.join(["polariscope", "sweep", *arguments, *plugins.flags()])
    arguments = list(arguments)
    first = take_first(arguments)
    if first is not None and first.endswith(".toml"):
        study, name = read_study(Path(first))
        options = parse(options_type(OWN, f"{USAGE}\n\n{ABOUT}"), arguments, "sweep")
    else:
        study, name, options = _from_flags([] if first is None else [first], arguments)
    if options.highest and options.lowest:
        raise ValueError("--highest and --lowest are opposites: give one of them")
    place = place_of(options)
    path = options.out / name
    if options.estimate:
        answer(estimate(study, name, FULL, path, place).findings(), None, options.json)
        return 0
    try:
        with watched(name, study, FULL, options.json) as report:
            outcome = run_study(study, name, FULL, path, place, report)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted; continue with: {command}") from None
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
    config, options = parse_run(
        [*words, *arguments], "sweep", [SEEDS, MEASURE, EXAMPLES, *OWN], about=ABOUT, usage=USAGE
    )
    if options.seeds < 1:
        raise ValueError(f"a sweep needs at least one seed; got {options.seeds}")
    grid: dict[str, Any] = {"seeds": list(range(options.seeds))}
    described = config.describe()
    described = {section: {k: v for k, v in values.items() if v is not None} for section, values in described.items()}
    described["training"].pop("seed")
    if not described["start"].get("run"):
        described.pop("start")
    measure = {"measures": list(options.measure), "examples": options.examples}
    tables = {"title": f"Sweep of {config.label}", "base": described, "grid": grid | choices, "measure": measure}
    study = OwnStudy(as_toml(tables))
    study.check()
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
