"""A query sees the tables it is given, and nothing else of the machine."""

from pathlib import Path

import pyarrow as pa
import pytest

from polariscope.lab.query import select, where

TABLES = {"runs": pa.table({"id": ["a", "b"], "loss": [2.0, 1.0]})}
VARIABLE = pa.table({"secret": [1]})

REFUSED = {
    "read a file": "select * from read_csv('{secret}')",
    "read a file by its name": "select * from '{secret}'",
    "read bytes": "select * from read_blob('{secret}')",
    "read a folder": "select * from glob('{folder}/*')",
    "read in an inner query": "select (select count(*) from read_text('{secret}')) from runs",
    "read through a query in text": "select * from query('select * from read_csv(''{secret}'')')",
    "look at a variable": "select * from VARIABLE",
    "write a file": "copy runs to '{folder}/out.csv'",
    "write after a query": "select 1; copy runs to '{folder}/out.csv'",
    "write in a string of statements": "; ;copy runs to '{folder}/out.csv'",
    "attach": "attach '{folder}/out.db' as out",
    "export": "export database '{folder}/out'",
    "install": "install httpfs",
    "load": "load httpfs",
    "open the gates": "set enable_external_access = true",
    "open the gates first": "set enable_external_access = true; select * from read_csv('{secret}')",
    "pragma": "pragma version",
    "change": "create table t as select 1",
    "drop": "drop view runs",
    "two questions": "select 1; select 2",
    "no question": "-- nothing",
    "no SQL": "selct 1",
}
CONDITIONS = {
    "a second statement": "true; copy runs to '{folder}/out.csv'",
    "a closed bracket": "true) or (true",
    "a closed bracket and a statement": "true); copy runs to '{folder}/out.csv'; select (1",
    "a union": "true) union all select * from read_csv('{secret}') where (true",
    "an open comment": "true /*",
    "an order": "true order by 1",
    "two expressions": "true, false",
    "nothing": "",
    "a file": "exists (select * from read_csv('{secret}'))",
    "a variable": "exists (select * from VARIABLE)",
    "an unknown column": "size > 1",
}


@pytest.fixture
def places(tmp_path) -> dict[str, str]:
    secret = tmp_path / "secret.csv"
    secret.write_text("password\nopen sesame\n")
    return {"folder": str(tmp_path), "secret": str(secret)}


def refused(ask, text: str, places: dict[str, str]) -> str:
    before = sorted(Path(places["folder"]).rglob("*"))
    with pytest.raises(ValueError, match="quer") as refusal:
        ask(text.format(**places))
    assert sorted(Path(places["folder"]).rglob("*")) == before
    sentence = str(refusal.value)
    assert "\n" not in sentence
    assert "sesame" not in sentence
    return sentence


@pytest.mark.parametrize("attempt", REFUSED)
def test_a_query_cannot_leave_its_tables(attempt, places) -> None:
    refused(lambda sql: select(sql, TABLES), REFUSED[attempt], places)


@pytest.mark.parametrize("attempt", CONDITIONS)
def test_a_condition_is_one_expression_about_the_table(attempt, places) -> None:
    refused(lambda text: where(text, TABLES, "runs", "loss"), CONDITIONS[attempt], places)


def test_a_sentence_says_what_may_be_asked(places) -> None:
    assert "columns of runs: id, loss" in refused(lambda sql: select(sql, TABLES), "select size from runs", places)
    assert "one SQL expression" in refused(lambda text: where(text, TABLES, "runs", "loss"), "true; select 1", places)
    assert "sees runs and nothing else" in refused(lambda sql: select(sql, TABLES), REFUSED["read a file"], places)
    assert "this one is COPY" in refused(lambda sql: select(sql, TABLES), REFUSED["write a file"], places)


def test_questions_are_answered() -> None:
    best = "with best as (select min(loss) as loss from runs) select id from runs join best using (loss)"
    assert select(best, TABLES) == [{"id": "b"}]
    assert select("from runs order by loss limit 1;", TABLES) == [{"id": "b", "loss": 1.0}]
    assert where("loss > 0 -- all of them", TABLES, "runs", "loss") == select("from runs order by loss", TABLES)
    assert where("id in (select id from runs where loss > 1)", TABLES, "runs", "loss") == [{"id": "a", "loss": 2.0}]


def test_the_gates_are_closed_behind_one_another() -> None:
    """Any one of them would do for most attempts above; each is there for the day on which another is left open."""
    settings = {"enable_external_access": "false", "lock_configuration": "true", "python_enable_replacements": "false"}
    names = ", ".join(f"'{name}'" for name in [*settings, "temp_directory"])
    found = select(f"select name, value from duckdb_settings() where name in ({names})", TABLES)
    assert {row["name"]: row["value"] for row in found} == settings | {"temp_directory": ""}
