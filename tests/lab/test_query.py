"""A query sees the tables it is given, and nothing else of the machine, and has limits of time, memory and rows."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from polariscope.lab.query import Limits, select, where

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


@pytest.mark.usefixtures("queries_here")
@pytest.mark.parametrize("attempt", REFUSED)
def test_a_query_cannot_leave_its_tables(attempt, places) -> None:
    refused(lambda sql: select(sql, TABLES), REFUSED[attempt], places)


@pytest.mark.usefixtures("queries_here")
@pytest.mark.parametrize("attempt", CONDITIONS)
def test_a_condition_is_one_expression_about_the_table(attempt, places) -> None:
    refused(lambda text: where(text, TABLES, "runs", "loss"), CONDITIONS[attempt], places)


@pytest.mark.usefixtures("queries_here")
def test_a_sentence_says_what_may_be_asked(places) -> None:
    wide = {"runs": pa.table({"id": ["a"], **{f"training_setting_{number}": [number] for number in range(60)}})}
    for text in ("select trainin_setting_7 from runs", "select runs.trainin_setting_7 from runs"):
        sentence = refused(lambda sql: select(sql, wide), text, places)
        assert "there is no column 'trainin_setting_7': did you mean 'training_setting_7'" in sentence
        assert len(sentence) < 200
    assert "no table 'run': did you mean 'runs'?" in refused(lambda sql: select(sql, TABLES), "from run", places)
    sentence = refused(lambda sql: select(sql, TABLES), "select rums.id from runs", places)
    assert "no table 'rums': did you mean 'runs'?" in sentence
    assert "no function 'summ': did you mean 'sum'?" in refused(
        lambda sql: select(sql, TABLES), "select summ(loss) from runs", places
    )
    assert "not valid SQL" in refused(lambda text: where(text, TABLES, "runs", "loss"), "true; select 1", places)
    assert "can read only the tables runs" in refused(lambda sql: select(sql, TABLES), REFUSED["read a file"], places)
    assert "this one is COPY" in refused(lambda sql: select(sql, TABLES), REFUSED["write a file"], places)


@pytest.mark.usefixtures("queries_here")
def test_questions_are_answered() -> None:
    best = "with best as (select min(loss) as loss from runs) select id from runs join best using (loss)"
    assert select(best, TABLES) == [{"id": "b"}]
    assert select("from runs order by loss limit 1;", TABLES) == [{"id": "b", "loss": 1.0}]
    assert where("loss > 0 -- all of them", TABLES, "runs", "loss") == select("from runs order by loss", TABLES)
    assert where("id in (select id from runs where loss > 1)", TABLES, "runs", "loss") == [{"id": "a", "loss": 2.0}]


@pytest.mark.usefixtures("queries_here")
def test_columns_of_one_name_both_arrive() -> None:
    sql = "select a.id, b.id, a.loss from runs a join runs b on a.loss > b.loss"
    assert select(sql, TABLES) == [{"id": "a", "id_2": "b", "loss": 2.0}]


@pytest.mark.usefixtures("queries_here")
def test_answers_are_plain_values() -> None:
    sql = "select 1.5 as d, 10::hugeint as n, date '2026-01-02' as day, ['x'] as words, 'inf'::double as most"
    assert select(sql, TABLES) == [{"d": 1.5, "n": 10, "day": "2026-01-02", "words": ["x"], "most": float("inf")}]


@pytest.mark.usefixtures("queries_here")
def test_only_so_many_rows_are_given() -> None:
    assert len(select("from range(5)", TABLES, Limits(rows=5))) == 5
    with pytest.raises(ValueError, match="more than 4 rows: reduce them .* --max-rows"):
        select("from range(5)", TABLES, Limits(rows=4))
    with pytest.raises(ValueError, match="more than 1 rows"):
        where("true", TABLES, "runs", "loss", limits=Limits(rows=1))
    with pytest.raises(ValueError, match="limit of rows of a query is 0: it needs to be positive"):
        Limits(rows=0)


ENDLESS = "select sum(a.i * b.i) from range(10000000) a(i), range(10000000) b(i)"
GREEDY = "select list_sum(range(3000000000))"
"""DuckDB neither counts this memory nor lets itself be interrupted in it."""


def test_a_query_is_stopped_in_time() -> None:
    with pytest.raises(ValueError, match=r"stopped after 0.2 seconds: .* --max-seconds"):
        select(ENDLESS, TABLES, Limits(seconds=0.2))


def test_a_query_has_no_more_memory_than_it_may() -> None:
    with pytest.raises(ValueError, match="needs more memory than 64 MB: .* --max-megabytes"):
        select(GREEDY, TABLES, Limits(megabytes=64))
    with pytest.raises(ValueError, match="needs more memory than 64 MB"):
        select("select list(i) from range(100000000) t(i)", TABLES, Limits(megabytes=64))


@pytest.mark.parametrize(
    ("complaint", "error"), [("cannot allocate memory for thread-local data", ValueError), ("no", OSError)]
)
def test_a_process_that_gets_no_memory_to_begin_with_is_reported_as_such(
    tmp_path, monkeypatch, complaint, error
) -> None:
    (tmp_path / "process.py").write_text(f"import sys; sys.exit('{complaint}: ABORT')")
    monkeypatch.setattr("polariscope.lab.query.PROCESS", tmp_path / "process.py")
    with pytest.raises(error, match="needs more memory than 64 MB" if error is ValueError else "failed: no: ABORT"):
        select("select 1", TABLES, Limits(megabytes=64))


def test_ctrl_c_ends_a_query_and_its_process(tmp_path) -> None:
    (tmp_path / "runs" / "a").mkdir(parents=True)
    record = {"schema": 1, "kind": "train", "created": "2026", "status": "done", "config": {}, "result": {}}
    (tmp_path / "runs" / "a" / "run.json").write_text(json.dumps(record))
    words = [sys.executable, "-m", "polariscope", "runs", "--sql", ENDLESS]
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        if not children.exists():
            process.kill()
            pytest.skip("this system does not list the children of a process")
        while not (child := children.read_text().strip()):
            time.sleep(0.01)
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert process.stderr.read().startswith("interrupted; start again with: polariscope runs --sql")
        assert process.wait() == 130
    for _ in range(1000):  # one that was about to begin finds nobody to answer, and ends by itself
        if not os.path.exists(f"/proc/{child}"):
            return
        time.sleep(0.01)
    raise AssertionError(f"process {child} goes on")


@pytest.mark.usefixtures("queries_here")
def test_the_gates_are_closed_behind_one_another() -> None:
    """Any one of them would do for most attempts above; each is there for the day on which another is left open."""
    settings = {"enable_external_access": "false", "lock_configuration": "true", "python_enable_replacements": "false"}
    names = ", ".join(f"'{name}'" for name in [*settings, "temp_directory"])
    result = select(f"select name, value from duckdb_settings() where name in ({names})", TABLES)
    assert {row["name"]: row["value"] for row in result} == settings | {"temp_directory": ""}
