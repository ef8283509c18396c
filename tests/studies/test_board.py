"""The claims board: all that is judged is on it, and nothing else."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from polariscope.cli import main
from polariscope.findings import Place
from polariscope.studies.board import NOT_STATED, ROOM, board, share, table_hash, work_of
from polariscope.studies.engine import judge_all
from polariscope.studies.study import studies
from polariscope.studies.tables import read_table, write_table

DOCS = Path(__file__).parents[2] / "docs"
SMALL = ("linear-ivae", "similarity-limits", "frames-apart")
ARTICLE = re.compile(
    r'<article class="([^"]*)" id="[^"]*" data-study="([^"]*)" data-scale="([^"]*)" '
    r'data-table="([^"]*)">(.*?)</article>',
    re.S,
)
CLAIM = re.compile(r'<div class="claim v-([a-z-]+)">.*?<p>(.*?)</p>', re.S)


def on_page(text: str) -> dict[str, tuple[str, str, list[tuple[str, str]]]]:
    """Classes, hash of the table, and verdict and text of every claim, by the name of the committed folder."""
    return {
        study + (f"-{scale}" if scale == "overnight" else ""): (
            classes,
            table,
            [(verdict, unescape(words)) for verdict, words in CLAIM.findall(body)],
        )
        for classes, study, scale, table, body in ARTICLE.findall(text)
    }


@pytest.fixture
def results(tmp_path) -> Path:
    for name in SMALL:
        shutil.copytree(DOCS / "results" / name, tmp_path / "results" / name)
    return tmp_path / "results"


def test_every_claim_of_every_table_is_on_the_page_with_its_verdict(results, tmp_path, capsys) -> None:
    assert main(["board", str(results), "--out", str(tmp_path / "board.html")]) == 0
    assert "claims of 2 works" in capsys.readouterr().out
    text = (tmp_path / "board.html").read_text()
    shown = on_page(text)
    outcomes, _ = judge_all(results)
    assert {outcome.name for outcome in outcomes} == shown.keys() == set(SMALL)
    for outcome in outcomes:
        classes, table, claims = shown[outcome.name]
        assert claims == [(str(c.verdict).replace(" ", "-"), c.text) for c in outcome.claims]
        assert table == table_hash(outcome.path / "table.parquet")
        assert {f"has-{verdict}" for verdict, _ in claims} == {c for c in classes.split() if c.startswith("has-")}
        for claim in outcome.claims:
            for words in (claim.published, claim.measured, claim.tested):
                assert words in unescape(text)
        study = studies.get(outcome.name)()
        for words in (
            study.source.rstrip("."),
            study.question,
            share(study, "laptop"),
            f"{outcome.origin.seeds} seeds",
        ):
            assert words in unescape(text)
    assert "<script" not in text
    assert "http://" not in text.replace("http://www.w3.org", "")
    figures = sum(len(studies.get(o.name)().figures(o.table)) for o in outcomes)
    assert text.count("data:image/webp;base64,") == figures
    for name in studies.names():
        assert f">{name}<" in re.sub(r"\s+", "", text), "every study has its line, with a table or without"


def test_a_table_of_few_seeds_is_shown_beside_the_published_one_with_what_was_not_run(results) -> None:
    """At overnight scale nothing is judged; jobs without rows are listed with what they would cost."""
    table, origin = read_table(DOCS / "results/sprite-properties/table.parquet")
    study = studies.get("sprite-properties")()
    missing = list(study.jobs("overnight"))[:1]
    (results / "sprite-properties-overnight").mkdir()
    overnight = replace(origin, scale="overnight", seconds=3600.0, not_run=missing)
    write_table(results / "sprite-properties-overnight/table.parquet", table, overnight)
    result = board([results])
    assert {row["verdict"] for row in result.records() if row["scale"] == "overnight"} == {None}
    findings = result.findings(figures=False)
    claims, not_run = (part for part in findings.parts if part.name in ("claims", "not-run"))
    (entry,) = [entry for entry in claims.entries if entry.scale == "overnight"]
    assert entry.beside == study.beside(table)
    page = unescape(claims.html(Place("board", "k")))
    assert all(f"<td>{cell}</td>" in page for cell in entry.beside[0].values())
    rows = {(row["study"], row["scale"]): row for row in not_run.rows}
    done = len(study.jobs("overnight")) - 1
    assert rows["sprite-properties", "overnight"]["cost"] == f"about {1 / done:.1f} core hours"
    assert rows["synthesis-attacks", "overnight"]["jobs"] == len(studies.get("synthesis-attacks")().jobs("overnight"))
    assert rows["linear-vae", "laptop"]["cost"] == studies.get("linear-vae")().cost["laptop"]
    assert not {(name, "laptop") for name in SMALL} & rows.keys()


def test_a_filter_hides_what_is_of_another_work_or_verdict(results) -> None:
    findings = board([results]).findings(figures=False)
    (part,) = [part for part in findings.parts if part.name == "claims"]
    page = part.html(Place("board", "k"))
    for work in ("polarised", "inductive-biases"):
        assert f"#k-w-{work}:checked) article:not(.w-{work}) {{ display: none; }}" in page
        assert f'id="k-w-{work}"' in page
    for verdict in {claim["verdict"].replace(" ", "-") for claim in findings.json()["claims"]}:
        assert f"#k-v-{verdict}:checked) :is(article:not(.has-{verdict}), .claim:not(.v-{verdict}))" in page


def test_shares_come_from_the_settings_of_the_study() -> None:
    assert (
        share(studies.get("frames-apart")(), "laptop")
        == "3,000 of 300,000 published steps in the longest training (1 %)"
    )
    assert share(studies.get("frames-apart")(), "paper") == "the published settings"
    assert share(studies.get("similarity-limits")(), "paper") == "the published settings"
    assert share(studies.get("polarised-training")(), "laptop").startswith("32,000 of 230,400")
    assert share(studies.get("noise-replay")(), "laptop").startswith("600 of 120,000")
    known = [name for name in studies.names() if "laptop" in studies.get(name).scales]
    silent = [name for name in known if share(studies.get(name)(), "laptop") == NOT_STATED]
    assert silent == [
        "code-sizes",
        "fondue",
        "illustrations",
        "intrinsic-dimension",
        "linear-ivae",
        "molecule-properties",
        "relevant-directions",
        "similarity-limits",
        "synthesis-attacks",
    ]


def test_the_share_of_trainings_of_several_lengths_is_that_of_the_longest() -> None:
    study = studies.get("amplification")()
    lengths = {job["steps"] for job in study.jobs("laptop") if "steps" in job}
    assert len(lengths) > 1
    assert share(study, "laptop").startswith(f"{max(lengths):,} of ")
    for name, longest in {"collapsing-axis": "20,000 of 100,000", "mixed-sources": "8,000 of 200,000"}.items():
        assert share(studies.get(name)(), "laptop").startswith(longest)


def test_a_study_belongs_to_the_work_of_its_package() -> None:
    assert work_of(studies.get("fondue")) == "polarised"
    outside = type("Mine", (studies.get("fondue"),), {"__module__": "mine"})
    assert work_of(outside) == "own"
    assert studies.get("fondue").__module__.startswith(ROOM)


def test_a_folder_without_tables_and_one_that_is_not_there_are_refused(tmp_path, capsys) -> None:
    assert main(["board", str(tmp_path)]) == 2
    assert "no table of a study" in capsys.readouterr().err
    assert main(["board", str(tmp_path / "none")]) == 2
    assert "no folder" in capsys.readouterr().err


def test_a_damaged_table_is_named_and_the_others_are_shown(results) -> None:
    (results / SMALL[0] / "table.parquet").write_bytes(b"no")
    result = board([results])
    assert len(result.outcomes) == 2
    assert len(result.problems) == 1
    assert SMALL[0] in result.findings(figures=False).notes[-1]


def test_the_committed_board_says_what_the_committed_tables_say() -> None:
    """Of the tables it was made from; 'polariscope board docs/results --out docs/board.html' makes it again."""
    file = DOCS / "board.html"
    assert file.stat().st_size < 1_000_000
    shown = on_page(file.read_text())
    same = [n for n, (_, table, _) in shown.items() if table_hash(DOCS / "results" / n / "table.parquet") == table]
    assert len(same) > len(shown) / 2, "most tables are newer than the board: make it again"
    outcomes = {outcome.path.name: outcome for outcome in judge_all(DOCS / "results")[0]}
    for name in same:
        claims = [(str(c.verdict).replace(" ", "-"), c.text) for c in outcomes[name].claims]
        assert shown[name][2] == claims, f"{name}: make the board again"


@pytest.mark.deep
def test_the_committed_board_has_every_committed_table() -> None:
    shown = on_page((DOCS / "board.html").read_text())
    tables = {file.parent.name: table_hash(file) for file in (DOCS / "results").glob("*/table.parquet")}
    assert {name: table for name, (_, table, _) in shown.items()} == tables


def test_json_has_a_row_for_each_claim(results, capsys, tmp_path) -> None:
    assert main(["board", str(results), "--out", str(tmp_path / "b.html"), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["claims"]
    assert len(rows) == sum(len(outcome.claims) for outcome in judge_all(results)[0])
    assert {"work", "study", "tested", "published", "measured", "verdict", "share", "cost"} <= rows[0].keys()
