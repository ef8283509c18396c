"""The committed tables: each says what made it, and the results page says what today's code makes of it."""

import re
from pathlib import Path

import pytest

from polariscope.studies import studies
from polariscope.studies.criteria import All
from polariscope.studies.engine import judge
from polariscope.studies.page import results_page
from polariscope.studies.study import VERDICTS, Judgement

DOCS = Path(__file__).resolve().parents[2] / "docs"
TABLES = sorted((DOCS / "results").glob("*/table.parquet"))
OVERNIGHT = [file for file in TABLES if file.parent.name.endswith("-overnight")]
"""Tables of few seeds with published data and architecture, which judge nothing."""
JUDGED = [file for file in TABLES if file not in OVERNIGHT]
SEEDLESS = {"linear-ivae": "optimisations from several starts", "similarity-limits": "samples of several sizes"}


@pytest.mark.parametrize("file", TABLES, ids=lambda file: file.parent.name)
def test_a_table_says_what_made_it(file: Path) -> None:
    outcome = judge(file)
    origin = outcome.origin
    scale = "overnight" if file in OVERNIGHT else "laptop"
    assert (origin.study, origin.scale) == (file.parent.name.removesuffix("-overnight"), scale)
    assert origin.study in studies.names()
    assert origin.seeds >= 5 or origin.study in SEEDLESS or file in OVERNIGHT
    assert origin.seconds > 0
    assert {"polariscope", "torch", "numpy", "processor", "cores", "code", "study"} <= origin.made.keys()
    assert file.stat().st_size < 800_000  # feature-demand keeps the features of its networks
    for claim in outcome.claims:
        assert claim.published, claim.text
        assert "nan" not in claim.measured.lower().split(), claim.measured


NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]\d+)?"
BOUND = re.compile(rf"(?!every )[^;]* is (at least|at most) ({NUMBER})( \([^)]*\))?")
MEASURED = re.compile(rf"(?:median )?{NUMBER} \[({NUMBER}), ({NUMBER})\]")


def by_its_words(claim: Judgement) -> str | None:
    """What the sentence of a plain bound makes of the interval that is shown; None of other claims, and at its edge."""
    asked, answer = BOUND.fullmatch(claim.tested), MEASURED.fullmatch(claim.measured)
    if asked is None or answer is None:
        return None
    bound, (low, high) = float(asked[2]), map(float, answer.groups())
    if min(abs(low - bound), abs(high - bound)) < 0.01 * max(abs(bound), 1):  # what is shown is rounded
        return None
    if low < bound < high:
        return "undecided"
    return "held" if (low > bound) == (asked[1] == "at least") else "not held"


@pytest.mark.parametrize("file", JUDGED, ids=lambda file: file.parent.name)
def test_no_verdict_disagrees_with_its_words(file: Path) -> None:
    outcome = judge(file)
    assert outcome.headline.startswith(f"{outcome.name} at laptop scale: ")
    for claim in outcome.claims:
        assert claim.verdict in VERDICTS, claim.text
        assert (claim.verdict == "undecided") == (claim.held is None)
        assert claim.finding.note or claim.held is not None, f"{claim.text} does not say why it is undecided"
        if claim.held is not None and not isinstance(claim.claim.criterion, All) and not claim.tested.count("for each"):
            assert "needed" not in claim.finding.note, claim.text
            assert "lies across" not in claim.finding.note, claim.text
        words = by_its_words(claim)
        if words is not None and claim.claim.provided is None and "are needed" not in claim.finding.note:
            assert claim.verdict.replace("weaker form held", "held") == words, claim.record()
        assert not re.search(r"\b1 seeds\b|\bTrue\b|\bFalse\b|\bnan\b", f"{claim.measured} {claim.note} {claim.tested}")
    for row in studies.get(outcome.name)().beside(outcome.table):
        assert not any(
            isinstance(cell, bool) or str(cell) in ("True", "False", "nan", "None") for cell in row.values()
        ), row


def test_the_words_of_some_claims_can_be_checked() -> None:
    assert sum(by_its_words(claim) is not None for file in JUDGED for claim in judge(file).claims) >= 5


def test_the_results_page_is_what_the_tables_say() -> None:
    """Verdict by verdict and word by word; digits may differ in the last place on another machine."""
    made = results_page([judge(file) for file in TABLES], Path("docs/results"))
    written = (DOCS / "results.md").read_text()
    hint = "'polariscope results docs/results --out docs/results.md' makes the page again"
    verdicts = rf" \| (?:{'|'.join(VERDICTS)}) \|"
    assert len(re.findall(verdicts, made)) > 100
    assert re.findall(verdicts, made) == re.findall(verdicts, written), hint
    assert re.sub(r"[-−]?\d+(\.\d+)?", "#", made) == re.sub(r"[-−]?\d+(\.\d+)?", "#", written), hint
