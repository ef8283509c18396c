"""The committed tables: each says what made it, and the results page says what today's code makes of it."""

import re
from pathlib import Path

import pytest

from polariscope.studies import studies
from polariscope.studies.engine import judge
from polariscope.studies.page import results_page

DOCS = Path(__file__).resolve().parents[2] / "docs"
TABLES = sorted((DOCS / "results").glob("*/table.parquet"))
SEEDLESS = {"linear-ivae": "optimisations from several starts", "similarity-limits": "samples of several sizes"}


@pytest.mark.parametrize("file", TABLES, ids=lambda file: file.parent.name)
def test_a_table_says_what_made_it(file: Path) -> None:
    outcome = judge(file)
    origin = outcome.origin
    assert (origin.study, origin.scale) == (file.parent.name, "laptop")
    assert origin.study in studies.names()
    assert origin.seeds >= 5 or origin.study in SEEDLESS
    assert origin.seconds > 0
    assert {"polariscope", "torch", "numpy", "processor", "cores", "code", "study"} <= origin.made.keys()
    assert file.stat().st_size < 400_000
    for claim in outcome.claims:
        assert claim.published, claim.text
        assert "nan" not in claim.measured.lower().split(), claim.measured


def test_the_results_page_is_what_the_tables_say() -> None:
    """Verdict by verdict and word by word; digits may differ in the last place on another machine."""
    made = results_page([judge(file) for file in TABLES], Path("docs/results"))
    written = (DOCS / "results.md").read_text()
    hint = "'polariscope results docs/results --out docs/results.md' makes the page again"
    assert re.findall(r"\*\*(?:not )?(?:held|undecided)\*\*", made) == re.findall(
        r"\*\*(?:not )?(?:held|undecided)\*\*", written
    ), hint
    assert re.sub(r"[-−]?\d+(\.\d+)?", "#", made) == re.sub(r"[-−]?\d+(\.\d+)?", "#", written), hint
