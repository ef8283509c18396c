"""``runs``: what is damaged is said and skipped, what is asked cannot do harm, and whoever stops reading is let go."""

import json
import os
import platform
import stat
from pathlib import Path

import pytest
from filelock import FileLock

from polariscope.cli import main
from polariscope.lab import Run, Store, hold
from polariscope.lab.labels import label
from polariscope.lab.results import Basis, Examined, add

pytestmark = pytest.mark.usefixtures("queries_here")
CONFIG = {"world": {"name": "sprites"}, "objective": {"name": "vae"}, "training": {"seed": 1}}


@pytest.fixture
def store(tmp_path) -> Store:
    """Two runs that were never trained; the last one has damaged metrics."""
    store = Store(tmp_path / "runs")
    for word in ("good", "bad"):
        store.create(CONFIG, word).write_metrics([(1, "train", "loss", 2.0)])
    (store.open("latest").path / "metrics.parquet").write_bytes(b"junk")
    return store


def test_damage_is_said_on_standard_error_and_the_rest_is_shown(run, store) -> None:
    good, bad = store.runs()
    (store.root / "zzz").mkdir()
    (store.root / "zzz" / "run.json").write_text('{"schema": true}')
    code, out, err = run("runs", "--sql", "select run from metrics", "--json")
    assert (code, json.loads(out)) == (0, [{"run": good.id}])
    skipped = err.splitlines()
    assert [line.split(": ")[0] for line in skipped] == ["skipped", "skipped"]
    assert "zzz is not a run folder of this program" in skipped[0]
    assert f"the metrics of run {bad.id} cannot be read" in skipped[1]
    code, out, err = run("runs", "--columns", "id", "--json")
    assert (code, [row["id"] for row in json.loads(out)]) == (0, [good.id, bad.id])
    assert len(err.splitlines()) == 1
    code, out, err = run("examine", "latest", "--out", "x.html")  # it was never trained, but it was found
    assert code == 2
    assert err.startswith("skipped: zzz is not a run folder")
    assert err.splitlines()[1].endswith("no checkpoint to load: it is running at step 0")


@pytest.mark.parametrize(
    "words",
    [
        ["--where", "true; copy runs to 'out.csv'"],
        ["--where", "exists (select * from read_csv('secret.csv'))"],
        ["--sql", "copy runs to 'out.csv'"],
        ["--sql", "select * from 'secret.csv'"],
    ],
)
def test_questions_reach_no_file(run, store, tmp_path, words) -> None:
    (tmp_path / "secret.csv").write_text("password\nopen sesame\n")
    code, out, err = run("runs", *words)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert len(err.splitlines()) == 1
    assert "sesame" not in err
    assert not (tmp_path / "out.csv").exists()


def test_what_stands_in_a_record_is_shown_as_it_is(run, store) -> None:
    store.create({"world": {"name": "[/nonsense]"}, "objective": {"name": "\x1b[2Jgone"}}, "x")
    code, out, _ = run("runs", "--columns", "world", "objective")
    assert code == 0
    assert "[/nonsense]" in out
    assert "\x1b" not in out
    assert "x1b" in out
    assert run("runs", "--sql", 'select 1 as "[/red]"')[:2] == (0, " [/red] \n 1      \n")


def test_an_unknown_column_names_the_nearest(run, store) -> None:
    code, _, err = run("runs", "--columns", "id", "training_sed")
    assert code == 2
    assert "no run has a column 'training_sed': did you mean 'training_seed'?" in err
    code, out, _ = run("runs", "--columns", "training_seed", "held_out_loss", "--json")
    assert (code, json.loads(out)[0]) == (0, {"training_seed": 1, "held_out_loss": None})


@pytest.mark.parametrize(
    "words",
    [["runs"], ["runs", "--json"], ["studies"], ["runs", "--help"], ["--help"], ["runs", "--where", "no"]],
)
def test_whoever_reads_no_further_is_let_go_quietly(run, store, monkeypatch, words) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed, monkeypatch.context() as patch:
        patch.setattr("sys.stdout", closed)
        patch.setenv("COLUMNS", "300")  # room for every column, so that there is nothing to say about them
        if "no" in words:
            patch.setattr("sys.stderr", closed)
        assert main(words) == 141
    assert not run("version")[2]


def test_all_files_of_a_run_have_the_same_mode(run, small, tmp_path) -> None:
    before = os.umask(0o027)
    try:
        assert run("train", "sprites", *small, "--training.snapshot-every", "3")[0] == 0
        assert run("examine", "latest", "--count", "64")[0] == 0
    finally:
        os.umask(before)
    (result,) = Store(tmp_path / "runs").runs()
    files = [file for file in result.path.rglob("*") if file.is_file()]
    assert len(files) == 13
    assert {file.name: stat.S_IMODE(file.stat().st_mode) for file in files} == {file.name: 0o640 for file in files}


@pytest.mark.usefixtures("undrawn")
def test_a_run_that_may_not_be_written_is_examined_elsewhere(run, trained, tmp_path, monkeypatch) -> None:
    result = trained()

    def state() -> dict:
        return {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in (tmp_path / "runs").rglob("*")}

    before = state()
    code, out, err = run("examine", result.id, "--count", "64", "--out", "elsewhere/report.html", "--json")
    assert code == 0, err
    assert "<html" in (tmp_path / "elsewhere" / "report.html").read_text()
    assert state() == before, "not even a lock"
    monkeypatch.setattr("os.access", lambda path, mode: False)  # the mode of a folder does not bind the superuser
    code, out, err = run("examine", result.id)
    assert (code, out) == (2, "")
    assert "cannot be written to: give another place for the report with --out" in err
    assert state() == before


@pytest.mark.usefixtures("undrawn")
def test_a_run_in_use_is_examined_but_not_trained(run, trained, tmp_path) -> None:
    result = trained()
    result.update(status="interrupted")
    note = result.path.with_name(f".{result.id}.holder")
    with FileLock(result.path.with_name(f".{result.id}.lock")):  # a lock of its own, as another process has
        note.write_text(json.dumps({"pid": 4711, "host": "elsewhere", "since": "2026-01-01 00:00:00"}))
        code, out, err = run("train", "--resume", result.id)
        assert (code, out) == (2, "")
        assert err == (
            f"error: run {result.id} is in use by process 4711 on elsewhere since 2026-01-01 00:00:00: "
            "wait for it, or stop it first\n"
        )
        code, out, err = run("examine", result.id, "--count", "64", "--json")
        assert code == 0, err
        assert any("not recorded in run.json: run" in note for note in json.loads(out)["notes"])
        assert (result.path / "findings" / "examine" / "report.html").exists()
    code, out, _ = run("train", "--resume", result.id, "--json")
    assert (code, json.loads(out)["status"]) == (0, "done")


def examined(store: Store, name: str) -> dict[str, dict]:
    """The results of a run by the number of examples."""
    return {entry["on"]["count"]: entry for entry in store.open(name).record["examinations"]}


@pytest.mark.usefixtures("undrawn")
def test_a_partial_examination_adds_to_what_is_known(run, trained, tmp_path) -> None:
    store, result = Store(tmp_path / "runs"), trained()
    assert run("examine", result.id, "--count", "200", "--measures", "mig,sap")[0] == 0
    first = examined(store, result.id)[200]
    assert run("examine", result.id, "--count", "100", "--part", "held-out", "--measures", "mig")[0] == 0
    assert examined(store, result.id)[200] == first, "other examples leave it alone"
    assert examined(store, result.id)[100]["measures"].keys() == {"mig"}
    assert run("examine", result.id, "--count", "200", "--measures", "modularity")[0] == 0
    later = examined(store, result.id)[200]["measures"]
    assert later == first["measures"] | {"modularity": later["modularity"]}, "the same examples add to it"
    _, out, _ = run("runs", "--columns", "measures_mig", "measures_modularity", "examined_on", "--json")
    (row,) = json.loads(out)
    assert (row["measures_mig"], row["measures_modularity"]) == (first["measures"]["mig"], later["modularity"])
    assert row["examined_on"].startswith("200 examples, seed 0, version")
    sql = "select examples, part, value from results where measure = 'measures_mig' order by 1, 2"
    _, out, _ = run("runs", "--sql", sql, "--json")
    assert [(row["examples"], row["part"]) for row in json.loads(out)] == [
        (100, "held-out"),
        (200, "all"),
    ]


def results(store: Store, seed: int, counts: dict[int, float]) -> Run:
    """A run with a MIG on each of several numbers of examples."""
    result = store.create({**CONFIG, "training": {"seed": seed}}, f"seed {seed}")
    result.update(status="done", result={"held_out_loss": float(seed)})
    for count, mig in counts.items():
        add(result, Examined(Basis(count=count, version="1"), {"active": 2}, {"mig": mig}))
    return result


def test_figures_of_different_examples_are_never_averaged(run, tmp_path) -> None:
    store = Store(tmp_path / "runs")
    for seed in range(3):
        results(store, seed, {1296: 0.25 * seed})
    results(store, 3, {300: 0.9, 1296: 0.75})
    results(store, 4, {300: 0.5})
    code, out, err = run("runs", "--over-seeds", "measures_mig", "held_out_loss", "--json")
    assert code == 0
    assert "computed on 2 sets of examples: a table each" in err
    cells = {(cell["examined_on"], cell["column"]): cell for cell in json.loads(out)}
    few, many = "300 examples, seed 0, version 1", "1,296 examples, seed 0, version 1"
    assert {key: (cell["mean"], cell["count"]) for key, cell in cells.items()} == {
        (many, "measures_mig"): (0.375, 4),
        (few, "measures_mig"): (pytest.approx(0.7), 2),
        (None, "held_out_loss"): (2.0, 5),
    }
    assert f"on {many}" in run("runs", "--over-seeds", "measures_mig")[1]
    code, out, _ = run("runs", "--columns", "measures_mig", "--json")
    assert [(row["measures_mig"], row["examined_on"]) for row in json.loads(out)][-2:] == [(0.75, many), (0.5, few)]
    err = run("runs", "--sql", "select avg(measures_mig) from runs")[2]
    assert f"different examples (4 runs on {many}; 1 runs on {few}): group by examined_on" in err
    assert not run("runs", "--sql", "select examined_on, avg(measures_mig) from runs group by 1")[2]


def test_results_of_an_earlier_version_are_shown_and_kept_apart(run, tmp_path) -> None:
    store = Store(tmp_path / "runs")
    old = store.create(CONFIG, "old")
    old.update(status="done", result={"step": 6, "types": {"active": 3}, "measures": {"mig": 0.125}})
    _, out, _ = run("runs", "--columns", "types_active", "measures_mig", "examined_on", "--json")
    assert json.loads(out) == [
        {"types_active": 3, "measures_mig": 0.125, "examined_on": "unknown examples (noted by an earlier version)"}
    ]
    add(old, Examined(Basis(count=50, step=6, version="1"), {"active": 2}, {"mig": 0.5}))
    assert Run(old.path).result["measures"] == {"mig": 0.125}
    _, out, _ = run("runs", "--columns", "measures_mig", "--json")
    assert json.loads(out) == [{"measures_mig": 0.5}]


def test_results_of_weights_that_were_trained_further_are_not_shown_as_those_of_today(run, tmp_path) -> None:
    result = results(Store(tmp_path / "runs"), 0, {100: 0.5})
    assert json.loads(run("runs", "--columns", "measures_mig", "--json")[1]) == [{"measures_mig": 0.5}]
    result.update(result={"step": 12})
    code, _, err = run("runs", "--columns", "measures_mig", "--json")
    assert (code, "no run has a column 'measures_mig'" in err) == (2, True)
    assert len(json.loads(run("runs", "--sql", "select * from results", "--json")[1])) == 2


def test_tables_over_seeds_need_trainings(run, tmp_path) -> None:
    Store(tmp_path / "runs").create({"examples": 5}, "demo", kind="demo")
    code, out, err = run("runs", "--over-seeds", "step")
    assert (code, out) == (2, "")
    assert "none of the 1 runs is a training: 'polariscope train WORLD --seeds 5' makes some" in err


def test_ids_are_never_cut(run, store, monkeypatch) -> None:
    ids = [result.id for result in store.runs()]
    for width in ("80", "20"):
        monkeypatch.setenv("COLUMNS", width)
        for words in (
            [],
            ["--columns", "id", "created", "status"],
            ["--sql", "select id as run, id || id as x from runs"],
        ):
            code, out, _ = run("runs", *words)
            assert code == 0
            assert all(any(word == one for word in out.split()) for one in ids), (width, words)
    code, out, err = run("runs")
    assert out.split()[0] == "id"
    assert "held_out_loss" not in out
    assert "no room for status, data, objective" in err
    code, out, err = run("runs", "--wide")
    assert "held_out_loss" in out
    assert not err


def test_names_tags_and_notes(run, store) -> None:
    good, bad = store.runs()
    assert run("runs", "name", good.id, "baseline")[:2] == (0, f"{good.id}: name baseline\n")
    assert run("runs", "tag", "baseline", "paper", "figure-2")[0] == 0
    assert run("runs", "tag", "baseline", "paper", "old")[0] == 0
    assert run("runs", "tag", "baseline", "old", "--remove")[0] == 0
    assert run("runs", "note", "baseline", "the one\nof table 2")[0] == 0
    assert store.open("baseline").id == good.id
    code, out, _ = run("runs", "--tag", "paper", "--columns", "id", "name", "tags", "note", "--json")
    assert json.loads(out) == [
        {"id": good.id, "name": "baseline", "tags": ["paper", "figure-2"], "note": "the one\nof table 2"}
    ]
    code, out, _ = run("runs", "--where", "name = 'baseline' and 'paper' in tags", "--columns", "id", "--json")
    assert json.loads(out) == [{"id": good.id}]
    assert "paper, figure-2" in run("runs")[1]
    code, _, err = run("runs", "name", bad.id, "baseline")
    assert (code, err) == (2, f"error: run {good.id} is already called baseline: use another name, or rename that run "
                              "first\n")  # fmt: skip
    assert run("runs", "name", bad.id, good.id)[0] == 2
    assert run("runs", "name", bad.id, "latest")[0] == 2
    assert "cannot be the tag of a run" in run("runs", "tag", bad.id, "a b")[2]
    assert run("runs", "name", "baseline", "--remove")[0] == 0
    assert store.open(good.id).labels.name == ""
    assert "did you mean 'note'?" in run("runs", "notes", good.id, "x")[2]
    (good.path / "labels.json").write_text('{"name": 3}')
    code, out, err = run("runs", "--columns", "id", "name", "--json")
    assert (code, json.loads(out)[0]) == (0, {"id": good.id, "name": None})
    assert err.startswith(f"skipped: the labels of run {good.id} are damaged")


def test_a_training_that_was_killed_is_interrupted(run, store) -> None:
    good, bad = store.runs()
    with hold(bad.path):
        _, out, _ = run("runs", "--columns", "status", "--json")
        assert [row["status"] for row in json.loads(out)] == ["interrupted", "running"]
    note = good.path.with_name(f".{good.id}.holder")
    note.write_text(json.dumps({"pid": 2**22 + 1, "host": platform.node(), "since": "2026-01-01 00:00:00"}))
    (result,) = (one for one in store.runs() if one.id == good.id)
    assert (result.status, result.state) == ("running", "interrupted")


@pytest.mark.usefixtures("undrawn")
def test_curves_of_runs_lie_over_each_other(run, tmp_path) -> None:
    store = Store(tmp_path / "runs")
    for number in range(3):
        result = store.create(CONFIG, f"run {number}", run_id=f"run-{number}")
        result.write_metrics([(step, "train", "loss", 10.0 / (step + number)) for step in (1, 2, 3)])
    label(store, store.open("run-1"), name="second")
    code, out, err = run("runs", "curves", "--out", "curves.html", "--json")
    assert (code, json.loads(out)["runs"]) == (0, ["run-0", "run-1", "run-2"]), err
    page = (tmp_path / "curves.html").read_text()
    assert "second" in page
    assert "run-2" in page
    code, out, _ = run("runs", "curves", "second", "run-2", "--out", "two.html", "--json")
    assert json.loads(out)["runs"] == ["run-1", "run-2"]
    assert "run-0" not in (tmp_path / "two.html").read_text()
    code, _, err = run("runs", "curves", "--term", "los")
    assert (code, "no run has a curve of 'los': did you mean 'loss'?" in err) == (2, True)


def test_the_store_is_read_once(run, store, monkeypatch) -> None:
    read = []
    real = Store.folders
    monkeypatch.setattr(Store, "folders", lambda self: read.append(1) or real(self))
    for words in ([], ["--where", "training_seed = 1"], ["--sql", "select id from runs"]):
        read.clear()
        assert run("runs", *words)[0] == 0
        assert len(read) == 1


def test_infinity_is_valid_json(run, store) -> None:
    store.runs()[0].update(result={"loss": float("inf"), "kl": float("nan")})
    for words in (["--columns", "loss", "kl"], ["--sql", "select loss, kl from runs where loss > 1"]):
        code, out, _ = run("runs", *words, "--json")
        assert code == 0
        rows = json.loads(out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
        assert rows[0] == {"loss": "Infinity", "kl": "NaN"}


def test_a_run_is_labelled_and_extended_through_the_command_line(run, trained, tmp_path) -> None:
    result = trained("--name", "first", "--tag", "a", "b", "--note", "the first one")
    assert vars(result.labels) == {"name": "first", "tags": ("a", "b"), "note": "the first one"}
    code, out, err = run("train", "--resume", "first", "--training.steps", "9", "--json")
    assert (code, json.loads(out)["result"]["step"]) == (0, 9), err
    assert run("train", "--resume", "first", "--training.seed", "2")[2].startswith(
        "error: a run goes on with its own settings, of which only --training.steps can be changed; got --training.seed"
    )
    assert "needs a whole number; got 'many'" in run("train", "--resume", "first", "--training.steps", "many")[2]
    code, _, err = run("train", "sprites", "--name", "first")
    assert (code, len(Store(tmp_path / "runs").runs())) == (2, 1), "the name is looked at before anything is made"
    assert "is already called first" in err


def test_what_can_be_done_next_is_what_the_model_can_do(run, small, tmp_path) -> None:
    words = ["--objective", "classify", "--model", "lenet", "--world.size", "16", "--training.steps", "2"]
    code, out, err = run("train", "sprites", *words, "--training.batch-size", "4")
    assert code == 0, err
    (result,) = Store(tmp_path / "runs").runs()
    names = ("corruptions", "kernel", "robustness")
    following = " or ".join(f"polariscope {name} {result.id}" for name in names)
    assert out.splitlines()[-1] == f"next: {following}"
    code, _, err = run("examine", result.id)
    assert (code, err) == (
        2,
        f"error: the model of run {result.id} does not encode, so it cannot be examined; commands for this run: "
        f"{following}\n",
    )


@pytest.mark.usefixtures("undrawn")
def test_the_documents_about_a_run_are_listed(run, trained) -> None:
    result = trained()
    code, out, err = run("runs", "findings", result.id)
    assert (code, err) == (0, "")
    assert "0 examinations" in out
    assert run("examine", result.id, "--count", "64", "--measures", "")[0] == 0
    code, out, err = run("runs", "findings", result.id, "--json")
    listed = json.loads(out)
    assert listed["run"] == result.id
    assert listed["report"] == str(Path("runs", result.id, "report.html"))
    ((kind, page, headline),) = [(one["kind"], one["page"], one["headline"]) for one in listed["findings"]]
    assert (kind, page) == ("examine", "findings/examine/report.html")
    assert "latent variables on 64 examples" in headline
    assert headline.split(":")[0] in run("runs", "findings", result.id)[1]
    assert run("runs", "findings")[0] == 2
