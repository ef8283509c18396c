"""Your own study, from a file: it runs, resumes and is judged like a published one, and says what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from polariscope.cli import main
from polariscope.lab.store import Store
from polariscope.studies import own
from polariscope.studies.board import board
from polariscope.studies.criteria import Flat, Rises
from polariscope.studies.engine import jobs_of, judge, run_study
from polariscope.studies.estimate import estimate
from polariscope.studies.own import OwnStudy
from polariscope.studies.ranking import rank
from polariscope.studies.rows import Table
from polariscope.studies.study import Bench

BASE = """
title = "Does a larger beta leave more variables passive?"

[base.world]
name = "mini-sprites"
[base.objective]
name = "beta-vae"
[base.model]
latents = 3
[base.model.architecture]
name = "mlp"
encoder_widths = [8]
decoder_widths = [8]
[base.training]
steps = 4
batch_size = 8
evaluate_every = 0

[grid]
seeds = {seeds}
objective.beta = [1, 4]
"""
MEASURE = """
[measure]
measures = ["effective-rank"]
examples = 60
"""
CLAIM = """
[[claims]]
finding = "The effective rank is at most the number of variables"
published = "a bound"
criterion = "at most"
column = "effective-rank"
bound = 3.001
of = "every"

[[claims]]
finding = "beta 4 is no worse in loss"
criterion = "not worse than"
column = "train_loss"
first = {beta = 4}
second = {beta = 1}
by = 1e9
higher = false
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> tuple[Path, Path]:
    """A file and the folder of its results."""
    folder = tmp_path_factory.mktemp("own")
    file = folder / "mine.toml"
    file.write_text(BASE.format(seeds=5) + MEASURE + CLAIM)
    assert main(["study", str(file), "--out", str(folder / "results"), "--workers", "1"]) == 0
    return file, folder / "results" / "mine"


def test_it_writes_table_page_and_verdicts_like_a_published_one(done) -> None:
    file, path = done
    outcome = judge(path / "table.parquet")
    assert [claim.verdict for claim in outcome.claims] == ["held", "held"]
    assert len(outcome.table) == 10
    assert outcome.table.distinct("beta") == [1, 4]
    assert outcome.table.distinct("seed") == [0, 1, 2, 3, 4]
    row = outcome.table.rows[0]
    assert row["steps"] == 4
    assert row["active"] + row["mixed"] + row["passive"] == 3
    assert 1 <= row["effective-rank"] <= 3.001
    assert (path / "study.toml").read_text() == file.read_text()
    page = (path / "report.html").read_text()
    assert "The effective rank is at most the number of variables" in page
    assert (path / "effective-rank-over-beta.png").exists(), "measured columns are drawn over the grid"
    assert "polariscope study mine.toml" in page


def test_what_is_done_is_not_done_again_and_a_new_value_only_adds(done, tmp_path, monkeypatch) -> None:
    file, path = done
    trained: list[float] = []
    real = own.OwnStudy.run
    monkeypatch.setattr(
        own.OwnStudy, "run", lambda self, job, bench: trained.append(job["cell"]["beta"]) or real(self, job, bench)
    )
    study = OwnStudy.read(file)
    run_study(study, "mine", "own", path, 1)
    assert trained == []
    more = OwnStudy(study.text.replace("[1, 4]", "[1, 4, 8]").replace("seeds = 5", "seeds = [0]"))
    outcome = run_study(more, "mine", "own", path, 1)
    assert trained == [8]
    assert len(outcome.table) == 3


def test_it_is_on_the_board_as_ones_own(done) -> None:
    _, path = done
    text = json.dumps(board([path.parent]).findings(figures=False).json())
    assert '"work": "own"' in text
    assert "as its file says" in text
    assert "polariscope study mine.toml" in text
    assert judge(path / "table.parquet").headline.startswith("mine: ")
    assert "own scale" not in text


def test_an_estimate_times_one_job_and_keeps_it(tmp_path) -> None:
    study = OwnStudy(BASE.format(seeds=3))
    first = estimate(study, "mine", "own", tmp_path, 2)
    assert (first.jobs, first.open_jobs) == (6, 5)
    assert first.seconds > 0
    starts = 2 * first.start
    assert first.core_hours == pytest.approx((5 * first.seconds + starts) / 3600), "a worker starts once"
    assert first.start > first.seconds, "a job of four steps is shorter than the start of its process"
    assert first.megabytes > 0
    assert estimate(study, "mine", "own", tmp_path, 2) == first, "a job that is done is not timed again"
    assert "5 of 6 jobs are left" in first.headline
    assert estimate(study, "mine", "own", tmp_path, 9).core_hours == pytest.approx(
        5 * (first.seconds + first.start) / 3600
    ), "no more workers than jobs start"


def test_an_estimate_leaves_out_the_first_job_of_a_worker_if_it_can(tmp_path) -> None:
    study = OwnStudy(BASE.format(seeds=3))
    estimate(study, "mine", "own", tmp_path, 1)
    tasks = jobs_of(study, "mine", "own", tmp_path)
    record = json.loads(tasks[0].file.read_text())
    assert record["first"] is False, "the estimate warms up before it times"
    tasks[0].file.write_text(json.dumps(record | {"seconds": 9.0, "first": True}))
    assert estimate(study, "mine", "own", tmp_path, 1).seconds == 9.0, "there is no other job to ask"
    tasks[1].file.write_text(json.dumps(record | {"seconds": 1.0}))
    assert estimate(study, "mine", "own", tmp_path, 1).seconds == 1.0


def test_smoke_shows_that_it_runs_and_judges_nothing(tmp_path, capsys) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        (BASE.format(seeds=7) + CLAIM.replace("effective-rank", "train_loss")).replace("steps = 4", "steps = 2")
    )
    assert main(["study", str(file), "--smoke", "--out", str(tmp_path), "--workers", "1"]) == 0
    outcome = judge(tmp_path / "mine-smoke" / "table.parquet")
    assert len(outcome.table) == 2
    assert {claim.verdict for claim in outcome.claims} == {None}
    assert main(["study", str(file), "--smoke", "--strict"]) == 2
    assert "--smoke judges nothing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('title = "', 'titel = "', "a study has no 'titel': did you mean 'title'"),
        ("objective.beta = [1, 4]", "objective.beta = 4", "a list of values for each setting"),
        ("objective.beta = [1, 4]", "objective.bata = [1, 4]", "has no setting 'bata'"),
        ("seeds = 5", "seeds = [0, 0]", "two jobs of the grid are the same"),
        ("seeds = 5", 'seeds = "many"', "a number of them or a list of whole numbers"),
        ('"effective-rank"]', '"effective-rink"]', "no measure 'effective-rink': did you mean 'effective-rank'"),
        ('criterion = "at most"', 'criterion = "at mist"', "did you mean 'at most'"),
        ("bound = 3.001", 'bound = "x"', "needs a number for bound; got 'x'"),
        ("bound = 3.001\n", "", "claim 1 (at most) needs bound"),
        ("bound = 3.001", "bond = 3.001", "claim 1 (at most) has no 'bond': did you mean 'bound'"),
        ("first = {beta = 4}", "first = {betta = 4}", "speaks of 'betta', no setting of the grid: did you mean 'beta'"),
        ('column = "effective-rank"', 'column = "mig"', "asks for 'mig', which is not measured"),
        ('column = "train_loss"', 'column = "held_out_loss"', "evaluate_every = 0 evaluates nothing on held-out data"),
        ("[base.world]", "[base.wrld]", "needs a configuration to start from"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_before_anything_is_trained(old, new, words, tmp_path, capsys) -> None:
    text = BASE.format(seeds=5) + MEASURE + CLAIM
    assert old in text
    file = tmp_path / "mine.toml"
    file.write_text(text.replace(old, new, 1))
    assert main(["study", str(file), "--out", str(tmp_path / "results")]) == 2
    assert words in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("column", "more"), [("train_penalty", ""), ("held_out_penalty", "evaluate_every = 2\n"), ("train_kll", "")]
)
def test_a_claim_about_what_the_training_lacks_is_refused_after_the_first_job(column, more, tmp_path, capsys) -> None:
    file = tmp_path / "mine.toml"
    text = BASE.format(seeds=3) + MEASURE + CLAIM.replace("train_loss", column)
    file.write_text(text.replace("evaluate_every = 0\n", more) if more else text)
    assert main(["study", str(file), "--out", str(tmp_path), "--workers", "1"]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert f"claim 2 asks for {column!r}, which this training does not have" in error
    assert "train_reconstruction" in error, "the columns that are there"
    assert len(list((tmp_path / "mine" / "runs").glob("[!.]*"))) == 1, "nothing more was trained"


def test_a_worker_trains_nothing_more_for_a_study_that_it_refused(tmp_path, monkeypatch) -> None:
    study = OwnStudy(BASE.format(seeds=3) + CLAIM.replace("effective-rank", "train_kll"))
    monkeypatch.setattr(own, "_REFUSED", {})
    monkeypatch.setattr(own.multiprocessing, "parent_process", lambda: "a driver")
    bench = Bench(Store(tmp_path), lambda point: None)
    for job in study.jobs("paper"):
        with pytest.raises(ValueError, match="claim 1 asks for 'train_kll'"):
            study.run(job, bench)
    assert len(Store(tmp_path).runs()) == 1


def test_a_column_that_only_some_objectives_have_can_be_claimed(tmp_path) -> None:
    text = BASE.format(seeds=1).replace("objective.beta = [1, 4]", 'objective = ["ae", "vae"]')
    claim = CLAIM.partition('[[claims]]\nfinding = "beta')[0].replace('"effective-rank"', '"train_kl"')
    outcome = run_study(OwnStudy(text + claim), "mine", "own", tmp_path / "any", 1)
    assert len(outcome.table) == 2
    lacking = claim + 'where = {objective = "ae"}\n'
    with pytest.raises(ValueError, match="asks for 'train_kl', which this training does not have"):
        run_study(OwnStudy(text + lacking), "mine", "own", tmp_path / "one", 1)


def test_a_claim_about_nothing_measured_says_why(done) -> None:
    _, path = done
    study = OwnStudy.read(path / "study.toml")
    table = judge(path / "table.parquet").table
    for old, new, words in (
        ("train_loss", "train_kll", "no row has a value of 'train_kll'; there are beta, "),
        ("{beta = 4}", "{beta = 3}", "no row has beta 3"),
    ):
        found = OwnStudy(study.text.replace(old, new)).judge(table, "own")[1]
        assert (found.measured, found.held) == ("-", None)
        assert found.note.startswith(f"nothing was measured: {words}")
        assert found.note.count("no row") == 1
    assert "nothing was measured" not in study.judge(table, "own")[1].note


def test_a_file_that_is_not_there_or_no_toml_is_refused(tmp_path, capsys) -> None:
    assert main(["study", str(tmp_path / "none.toml")]) == 2
    assert "cannot be read" in capsys.readouterr().err
    (tmp_path / "bad.toml").write_text("title = ")
    assert main(["study", str(tmp_path / "bad.toml")]) == 2
    assert "is not a TOML file" in capsys.readouterr().err


def test_whole_sections_and_several_grids_are_choices() -> None:
    text = (
        BASE.format(seeds=1).partition("[grid]")[0]
        + """
[[grid]]
seeds = 1
objective = ["vae", {name = "beta-vae", beta = 4}]
[[grid]]
seeds = [7]
training.steps = [2, 3]
"""
    )
    jobs = OwnStudy(text).jobs("paper")
    assert [job["cell"] for job in jobs] == [
        {"objective": "vae"},
        {"objective": "beta-vae beta 4"},
        {"steps": 2},
        {"steps": 3},
    ]
    assert jobs[-1]["config"]["training"] | {"seed": 7, "steps": 3} == jobs[-1]["config"]["training"]


def test_a_sweep_ranks_settings_with_intervals_over_seeds(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["sweep", "mini-sprites", "--objective", "beta-vae", "--model.architecture", "mlp", "--model.latents", "2"]
    words += ["--model.architecture.encoder-widths", "8", "--model.architecture.decoder-widths", "8"]
    words += ["--training.steps", "3", "--training.evaluate-every", "0", "--grid", "objective.beta=1,16"]
    words += ["--seeds", "2", "--by", "train_loss", "--workers", "1", "--json"]
    assert main(words) == 0
    rows = json.loads(capsys.readouterr().out)["ranking"]
    assert [row["rank"] for row in rows] == [1, 2]
    assert {row["beta"] for row in rows} == {1, 16}
    assert rows[0]["mean"] < rows[1]["mean"], "a loss is better low"
    assert all(row["low"] < row["mean"] < row["high"] and row["seeds"] == 2 for row in rows)
    assert main([*words[:-1], "--by", "kll"]) == 2
    assert "no run has a number called 'kll'" in capsys.readouterr().err
    assert main([*words[:-1], "--by", "steps"]) == 2
    assert "say --highest or --lowest" in capsys.readouterr().err


def test_a_ranking_says_which_settings_are_apart() -> None:
    rows = [
        {"beta": b, "seed": s, "mig": level + s / 100} for b, level in ((1, 0.1), (2, 0.5), (4, 0.51)) for s in range(5)
    ]
    ranking = rank(Table(rows), "mig", ["beta"])
    assert [(row["beta"], row["apart"]) for row in ranking.records()] == [(4, False), (2, False), (1, True)]
    assert "1 of the others cannot be distinguished from it" in ranking.headline
    low, high = ranking.records()[0]["low"], ranking.records()[0]["high"]
    assert (low, high) == (
        pytest.approx(0.53 - 2.776 * 0.015811 / 5**0.5, abs=1e-4),
        pytest.approx(0.53 + 0.01963, abs=1e-4),
    )


def test_runs_that_diverged_come_last_in_any_order() -> None:
    losses = {1: 0.9, 2: float("nan"), 4: 0.5}
    for order in ((1, 2, 4), (2, 4, 1), (4, 1, 2)):
        ranking = rank(
            Table([{"beta": b, "seed": s, "train_loss": losses[b] + s / 100} for b in order for s in range(5)]),
            "train_loss", ["beta"],
        )  # fmt: skip
        assert ranking.headline.startswith("beta 4 has the lowest train_loss")
        assert [row["beta"] for row in ranking.records()] == [4, 1, 2]
        assert any("1 setting with runs that diverged" in note for note in ranking.findings().notes)


def test_nothing_rises_over_words() -> None:
    """They have no order but that of their letters."""
    words = [{"activation": name, "hidden": hidden} for name in ("relu", "gelu") for hidden in ("[64]", "[128, 8]")]
    with pytest.raises(ValueError, match="an order of activation, and 'relu' is a word: compare two settings"):
        own._check_order(Rises("mcc", "activation", by=0.1), words)
    own._check_order(Rises("mcc", "hidden", by=0.1), words)
    own._check_order(Flat("mcc", "activation", by=0.1), words)


def test_a_job_is_done_again_if_its_data_changes(tmp_path) -> None:
    """The rows of overwritten data had been those of the data before."""
    data = tmp_path / "points.npz"
    rng = np.random.default_rng(0)
    np.savez(data, x=rng.uniform(size=(60, 4)))
    text = BASE.format(seeds=[0]).replace('name = "mini-sprites"', f'name = "file"\npath = "{data}"')
    study = OwnStudy(text.replace("[1, 4]", "[1]") + CLAIM[:0])
    first = run_study(study, "mine", "own", tmp_path / "out", 1).table.rows[0]["train_loss"]
    assert run_study(study, "mine", "own", tmp_path / "out", 1).table.rows[0]["train_loss"] == first
    np.savez(data, x=rng.uniform(size=(60, 4)) ** 8)
    again = run_study(study, "mine", "own", tmp_path / "out", 1).table.rows[0]["train_loss"]
    assert again != first
