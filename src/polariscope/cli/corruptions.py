"""``polariscope corruptions``: how robust is a classifier to noise, blur, weather and other corruptions?"""

from __future__ import annotations

from pathlib import Path

from polariscope.cli import commands
from polariscope.cli.classifiers import other_classifier, parse_classifier
from polariscope.cli.parsing import JSON, OUT, RUNS, flag
from polariscope.cli.progress import shares
from polariscope.examination.corruptions import withstand, withstand_run
from polariscope.lab.run_documents import keep_findings
from polariscope.report.terminal import answer

HELP = """polariscope corruptions RUN [DATA] [options], or polariscope corruptions FILE.py:NAME DATA [options]

Measures the accuracy of a classifier under every corruption of a suite, and names the worst one.

RUN was trained with --objective classify, and is tested on its held-out images, or on DATA. FILE.py:NAME is your own
classifier: an nn.Module, a class or function without arguments that makes one, a function from images to scores, or a
fitted scikit-learn classifier. DATA is a labelled world, or a file of images with labels; --data DATA is the same.
Pixels go from 0 to 1, or are bytes: a network that needs normalised images normalises them itself. If --against names
another classifier, the result also has the corruption errors relative to that classifier, and their mean, the mCE."""
EXTRA = [
    ("suite", flag(str, "imagenet-c: corruptions of photographs; mnist-c: corruptions of digits."), "imagenet-c"),
    ("kinds", flag(tuple[str, ...], "Corruptions of the suite to measure; by default those of its benchmark."), ()),
    ("severities", flag(tuple[int, ...], "Severities, from 1 upwards; by default all."), ()),
    ("count", flag(int, "Number of examples."), 1000),
    ("against", flag(str | None, "A classifier to compare with: a run, or FILE.py:NAME."), None),
    ("against_weights", flag(Path | None, "Weights of --against, if it is your own module."), None),
    ("seed", flag(int, "Seed of the examples and the corruptions."), 0),
    RUNS,
    OUT,
    JSON,
]


@commands.register(
    "corruptions",
    "measure how robust a classifier is to noise, blur, weather and other corruptions",
    group="examination",
    needs="class images",
)
def main(arguments: list[str]) -> int:
    given = parse_classifier("corruptions", arguments, EXTRA, HELP)
    options = given.options
    chosen = {key: getattr(options, key) for key in ("suite", "kinds", "severities", "count", "seed")}
    reference = other_classifier(options.against, options.runs, options.against_weights, "against")
    with shares(quiet=options.json) as tell:
        if given.run is not None:
            result = withstand_run(given.run, given.data, reference=reference, tell=tell, **chosen)
        else:
            assert given.data is not None
            result = withstand(given.subject, given.data, reference=reference, tell=tell, **chosen)
    findings = result.findings(settings=given.settings | chosen | {"against": options.against})
    return answer(findings, keep_findings(findings, "corruptions", given.run, options.out), options.json)
