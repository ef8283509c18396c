"""``polariscope robustness``: how robust is this classifier?"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polariscope.cli import commands
from polariscope.cli.classifiers import other_classifier, parse_classifier
from polariscope.cli.named import ModelFlags, own_subject
from polariscope.cli.parsing import JSON, RUNS, flag
from polariscope.cli.place import PlaceOptions, place_of
from polariscope.cli.progress import shares
from polariscope.examination.robustness import (
    QUESTIONS,
    THRESHOLDS,
    classifier_identity,
    robustness,
    robustness_run,
)
from polariscope.lab.run_documents import keep_findings
from polariscope.report.terminal import answer
from polariscope.robustness.attacks import NORMS
from polariscope.robustness.suites import Budget
from polariscope.subjects import Subject
from polariscope.worlds.world import World

HELP = """polariscope robustness RUN [DATA] [options], or polariscope robustness FILE.py:NAME DATA [options]

Measures how robust a classifier is to corruptions, to noise, and to attacks in three norms, with lower bounds where
they are known and warnings where attacks cannot be trusted. 'polariscope corruptions' measures corruptions alone.

RUN was trained with --objective classify, and is tested on held-out images, or on DATA. FILE.py:NAME is your own
classifier: an nn.Module, a class or function without arguments that makes one, a function from images to scores, or a
fitted scikit-learn classifier. DATA is a labelled world, or a file of images with labels; --data DATA is the same.
Pixels go from 0 to 1, or are bytes: a network that needs normalised images normalises them itself.
Results of attacks are stored, so the command continues where it stopped. With --workers 4, or on a cluster, attacks run
in parallel, each on 50 images at a time."""
EXTRA = [
    ("only", flag(str, f"Questions to answer, separated by commas: {', '.join(QUESTIONS)}."), ",".join(QUESTIONS)),
    ("norms", flag(str, f"Norms of the attacks, separated by commas: {', '.join(NORMS)}."), "l2,linf,l0"),
    ("budget", flag(Budget, "How many attacks, and how long they take: quick seconds for a small network, full hours."),
     "standard"),
    ("l2", flag(tuple[float, ...], "L2 sizes at which accuracy is reported."), THRESHOLDS["l2"]),
    ("linf", flag(tuple[float, ...], "L-infinity sizes at which accuracy is reported."), THRESHOLDS["linf"]),
    ("l0", flag(tuple[float, ...], "Numbers of changed pixels at which accuracy is reported."), THRESHOLDS["l0"]),
    ("also", flag(str, "Further attacks by name, separated by commas, such as those of a --plugin."), ""),
    ("substitute", flag(str | None, "A classifier whose adversarials are tried on this one: a run, or FILE.py:NAME."),
     None),
    ("draws", flag(int, "Draws over which a random classifier is averaged; with 0 draws it is not attacked."), 0),
    ("suite", flag(str, "imagenet-c: corruptions of photographs; mnist-c: corruptions of digits."), "imagenet-c"),
    ("count", flag(int, "Images to attack."), 100),
    ("corrupted", flag(int, "Images to corrupt."), 1000),
    ("seed", flag(int, "Seed of the images, starting points and corruptions."), 0),
    RUNS,
    ("out", flag(Path | None, "A page (.html), the first figure alone (.png, .svg), or a folder for everything, "
            "with the adversarials; by default findings/robustness of the run, or robustness in this folder."), None),
    JSON,
]  # fmt: skip
ASKED = ("budget", "draws", "suite", "count", "corrupted", "seed")
"""Options that are passed on as they are."""


@commands.register(
    "robustness",
    "measure how robust a classifier is to corruptions, noise and attacks, with bounds and warnings",
    group="examination",
    needs="class images",
)
def main(arguments: list[str]) -> int:
    given = parse_classifier("robustness", arguments, EXTRA, HELP, PlaceOptions)
    options = given.options
    asked: dict[str, Any] = {key: getattr(options, key) for key in ASKED}
    asked |= {key: _listed(getattr(options, key)) for key in ("only", "norms", "also")}
    asked["thresholds"] = {norm: getattr(options, norm) for norm in THRESHOLDS}
    asked["substitute"] = other_classifier(options.substitute, options.runs, option="substitute")
    asked["workers"] = place_of(options)
    out = options.out if options.out is not None and not options.out.suffix else None
    folder = None if out is None else out / "attacks"
    with shares(quiet=options.json) as tell:
        if given.run is not None:
            card = robustness_run(given.run, given.data, folder=folder, tell=tell, **asked)
        else:
            assert given.subject is not None
            identity = classifier_identity(given.subject, given.settings["data"], given.source)
            folder = folder or Path("robustness") / "attacks"
            assert given.data is not None
            weights = None if options.weights is None else options.weights.absolute()
            make = OwnMaker(os.path.abspath(given.settings["model"]), weights, given.data)
            card = robustness(
                given.subject, given.data, folder=folder, identity=identity, tell=tell, make=make, **asked
            )
    names = [name for name, _, _ in EXTRA if name not in ("runs", "out", "json")]
    findings = card.findings(settings=given.settings | {name: getattr(options, name) for name in names})
    out = options.out or (Path("robustness") if given.run is None else None)
    return answer(findings, keep_findings(findings, "robustness", given.run, out), options.json)


@dataclass(frozen=True)
class OwnMaker:
    """Your own classifier, which every machine has under the same path, with the data it is tested on."""

    reference: str
    weights: Path | None
    data: World

    def __call__(self) -> tuple[Subject, World]:
        return own_subject(self.reference, ModelFlags(self.weights)), self.data

    def luggage(self) -> None:
        return None


def _listed(words: str) -> tuple[str, ...]:
    """Words that were separated by commas."""
    return tuple(word.strip() for word in words.split(",") if word.strip())
