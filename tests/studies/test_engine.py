"""The study engine: jobs are done once, what is done stays done, and the verdict is written for people and machines."""

import json
import pickle
import shutil
import sys
import types

import numpy as np
import pyarrow.parquet as pq
import pytest
from matplotlib.figure import Figure
from PIL import Image

from polariscope.cli import main
from polariscope.lab.executors import in_parallel
from polariscope.nets.architecture import MLP
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.objectives.vae import VAE
from polariscope.studies import Claim, Study, Table, reproduce, studies
from polariscope.studies.criteria import AtLeast, AtMost, Finding
from polariscope.studies.engine import judge, overview
from polariscope.studies.rows import plus_minus
from polariscope.studies.study import Judgement
from polariscope.studies.version import version_of
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.run import config_of
from polariscope.worlds.renderers.squares import Squares


class Toy(Study):
    """Squares of numbers, with a trap that can be set at one of them; paper scale has a square that is large."""

    title = "Squares"
    source = "Nobody 1900, section 1"
    question = "Are squares positive?"
    cost = {"smoke": "nothing", "laptop": "nothing", "paper": "nothing"}
    done: list[int] = []
    trap: dict[int, BaseException] = {}
    largest = 8

    def jobs(self, scale):
        numbers = (1,) if scale == "laptop" else (1, 2, 3)
        return [{"number": number, "seed": seed} for number in numbers for seed in range(2 if scale == "smoke" else 5)]

    def run(self, job, bench):
        self.done.append(job["number"])
        if job["number"] in self.trap:
            raise self.trap[job["number"]]
        extra = {"digits": [job["number"]] * 2} if job["number"] == 2 else {}
        return [job | {"square": job["number"] ** 2} | extra]

    def claims(self, scale):
        return [
            Claim("squares are positive", "all | of them (section 1)", AtLeast("square", 1, of="every", digits=0)),
            Claim("no square is large", "below 9", AtMost("square", self.largest, of="every", digits=0)),
            Claim("squares are infinite", "yes", AtLeast("infinity", 1)),
        ]

    def figures(self, table):
        figure = Figure(figsize=(1, 1))
        figure.subplots().plot(table.column("square"))
        return {"squares": figure}


@pytest.fixture
def toy(monkeypatch):
    studies.names()  # find the real ones first
    monkeypatch.setitem(studies._entries, "toy", Toy)
    monkeypatch.setattr(Toy, "done", [])
    monkeypatch.setattr(Toy, "trap", {})
    return Toy


def test_what_a_study_costs_has_trainings_in_it_that_were_done_before(toy, tmp_path, monkeypatch):
    """Two jobs look at one training; measured again, the study costs about what it did, and not twice as much."""

    def spent(path):
        return sum(json.loads(file.read_text())["seconds"] for file in (path / "jobs").glob("*.json"))

    def run(self, job, bench):
        training = TrainingConfig(600, 8, evaluate_every=0)
        trained = bench.train(RunConfig(Squares(), VAE(), AutoencoderConfig(2, MLP((8,), (8,))), training))
        assert bench.train(config_of(trained)).path == trained.path
        return [job | {"square": 1, "trained": 600 / trained.result["steps_per_second"]}]

    monkeypatch.setattr(toy, "run", run)
    first = reproduce("toy", "laptop", tmp_path, workers=1)
    trained = first.table.column("trained")[0]
    assert first.origin.seconds == pytest.approx(spent(first.path), abs=0.06), "nothing was there before"
    shutil.rmtree(first.path / "jobs")
    again = reproduce("toy", "laptop", tmp_path, workers=1)
    assert again.origin.seconds == pytest.approx(spent(again.path) + trained, abs=0.06)


def test_a_study_leaves_its_table_its_verdict_and_its_pictures(toy, tmp_path):
    outcome = reproduce("toy", "paper", tmp_path, workers=1)
    assert outcome.path == tmp_path / "toy-paper"
    assert outcome.table.column("square").tolist() == [1] * 5 + [4] * 5 + [9] * 5
    assert [claim.verdict for claim in outcome.claims] == ["held", "not held", "undecided"]
    assert not outcome.held
    assert outcome.origin.seconds >= 0
    assert outcome.origin.seeds == 5
    assert outcome.origin.made["study"] == version_of(Toy)
    assert outcome.origin.made["code"].startswith(("commit ", "package "))

    rows = pq.read_table(outcome.path / "table.parquet").to_pylist()
    assert [row["square"] for row in rows] == outcome.table.column("square").tolist()
    assert {row["digits"] for row in rows} == {None, "[2, 2]"}
    lines = (outcome.path / "table.csv").read_text().splitlines()
    assert lines[0].split(",")[:3] == ['"number"', '"seed"', '"square"']
    assert len(lines) == 16

    claims = json.loads((outcome.path / "findings.json").read_text())["claims"]
    assert [claim["verdict"] for claim in claims] == ["held", "not held", "undecided"]
    assert claims[0]["published"] == "all | of them (section 1)"

    text = (outcome.path / "README.md").read_text()
    assert text.startswith("# Squares\n")
    assert "Nobody 1900, section 1" in text
    asked = "every square is at least 1"
    row = f"| squares are positive | {asked} | all \\| of them (section 1) | smallest 1 of 15 | held | "
    assert row in text
    assert "| - | undecided | nothing was measured |" in text
    assert "![Squares](squares.png)" in text
    assert "polariscope reproduce toy --scale paper" in text
    with Image.open(outcome.path / "squares.png") as picture:
        assert min(picture.size) > 50
    assert not list(tmp_path.rglob("*.draft"))


def test_smoke_scale_judges_nothing(toy, tmp_path, capsys):
    """Nor does it where a study would: not in the table, on the page, in JSON, nor by the exit code."""
    outcome = reproduce("toy", "smoke", tmp_path, workers=1)
    judged = Toy().judge(outcome.table, "smoke")
    assert {claim.verdict for claim in judged} == {"undecided"}, "of two seeds"
    assert [claim.verdict for claim in outcome.claims] == [None] * 3
    assert [claim.held for claim in outcome.claims] == [None] * 3
    assert [claim.measured for claim in outcome.claims] == ["smallest 1 of 6", "largest 9 of 6", "-"]
    assert [claim.note for claim in outcome.claims] == ["", "", "nothing was measured"]
    assert outcome.headline == "toy: smoke scale only shows that the study runs, and judges nothing"
    assert judge(outcome.path / "table.parquet").claims == outcome.claims
    document = json.loads((outcome.path / "findings.json").read_text())
    assert [claim["verdict"] for claim in document["claims"]] == [None] * 3
    for page in ("README.md", "report.html"):
        text = (outcome.path / page).read_text()
        assert "only shows that the study runs, and judges nothing" in text
        assert not {"held", "undecided", "verdict"} & set(text.lower().replace("<", " ").replace(">", " ").split()), (
            page
        )
    assert "| [toy](toy-smoke/README.md) | smoke | 2 | - | - | - | - |" in overview(tmp_path)
    capsys.readouterr()
    assert main(["results", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["toy", "smoke", "2", "-", "-", "-", "-"]


def test_a_study_that_judges_by_itself_does_not_at_smoke_scale(toy, tmp_path, monkeypatch):
    """The engine sees to it, whatever a study of somebody else returns."""

    def judge_anyway(self, table, scale):
        return [Judgement(claim, Finding("very good", True)) for claim in self.claims(scale)]

    monkeypatch.setattr(toy, "judge", judge_anyway)
    assert [claim.verdict for claim in reproduce("toy", "smoke", tmp_path, workers=1).claims] == [None] * 3
    assert [claim.verdict for claim in reproduce("toy", "laptop", tmp_path, workers=1).claims] == ["held"] * 3


def test_undecided_claims_do_not_fail_a_study(toy, tmp_path):
    assert reproduce("toy", "laptop", tmp_path, workers=1).held


def test_a_finished_job_is_not_done_again(toy, tmp_path):
    first = reproduce("toy", "smoke", tmp_path, workers=1)
    assert toy.done == [1, 1, 2, 2, 3, 3]
    assert reproduce("toy", "smoke", tmp_path, workers=1).table == first.table
    assert len(toy.done) == 6
    next((first.path / "jobs").glob("*.json")).unlink()
    assert reproduce("toy", "smoke", tmp_path, workers=1).table == first.table
    assert len(toy.done) == 7


def test_a_table_is_judged_again_from_its_file_alone(toy, tmp_path):
    first = reproduce("toy", "paper", tmp_path, workers=1)
    again = judge(first.path / "table.parquet")
    assert again.table == first.table, "lists, missing values and whole numbers come back as they were"
    assert (again.claims, again.origin) == (first.claims, first.origin)
    toy.largest = 9
    try:
        assert judge(first.path / "table.parquet").claim("no square is large").held, "the code of today judges"
    finally:
        toy.largest = 8
    pq.write_table(pq.read_table(first.path / "table.parquet").replace_schema_metadata({}), tmp_path / "other.parquet")
    with pytest.raises(ValueError, match="does not say which study it is of"):
        judge(tmp_path / "other.parquet")


def test_rows_of_another_version_of_the_study_are_made_again(toy, tmp_path, monkeypatch):
    reproduce("toy", "smoke", tmp_path, workers=1)
    monkeypatch.setattr("polariscope.studies.study.version_of", lambda study: "another")
    reproduce("toy", "smoke", tmp_path, workers=1)
    assert len(toy.done) == 12


STUDY = """
from polariscope.kernels.written_room import kernel
from polariscope.studies.written_shared import LENGTH, draw, trained

SEEDS = 5


class A:
    'words'
    title = 'a title'
    steps = 10

    def jobs(self, scale):
        return range(SEEDS)

    def run(self, job, bench):
        return self.measured(trained(job, self.steps), kernel)

    def measured(self, model, kernel):
        return 1

    def claims(self, scale):
        return 2

    def figures(self, table):
        return draw(table, LENGTH)
"""
SHARED = """
LENGTH = 3
RATE = 0.1


def trained(job, steps):
    # a comment
    return job * steps * _rate()


def _rate():
    return RATE


def draw(table, length):
    return length
"""


def test_the_version_of_a_study_is_all_code_that_makes_its_rows(tmp_path, monkeypatch):
    def version(study=STUDY, shared=SHARED, room=None):
        modules = {
            "written": study,
            "polariscope.studies.written_shared": shared,
            "polariscope.kernels.written_room": "",
        }
        for number, (name, text) in enumerate(modules.items()):
            module = types.ModuleType(name)
            module.__file__ = str(tmp_path / f"{number}.py")
            (tmp_path / f"{number}.py").write_text(text)
            if room is not None:
                module.ROWS_VERSION = room
            monkeypatch.setitem(sys.modules, name, module)
        return version_of(type("A", (), {"__module__": "written"}))

    same = version()
    for before, after in (("'words'", "'other'"), ("'a title'", "'another'"), ("return 2", "return 3")):
        assert version(STUDY.replace(before, after)) == same
    for before, after in (("# a comment", "# another"), ("LENGTH = 3", "LENGTH = 4"), ("return length", "return 7")):
        assert version(shared=SHARED.replace(before, after)) == same
    for before, after in (("SEEDS = 5", "SEEDS = 6"), ("return 1", "return 4"), ("steps = 10", "steps = 11")):
        assert version(STUDY.replace(before, after)) != same, before
    for before, after in (("RATE = 0.1", "RATE = 0.2"), ("return RATE", "return 2 * RATE"), ("job * steps", "job")):
        assert version(shared=SHARED.replace(before, after)) != same, before
    assert version(room=1) != same
    assert version(room=2) != version(room=1), "a room says by a number that its rows have changed"


def test_rows_of_alignment_studies_know_their_shared_tasks():
    from polariscope.studies.inner_workings.orthogonal_decoders import OrthogonalDecoders
    from polariscope.studies.version import Reach

    reach = Reach()
    reach.visit_study(OrthogonalDecoders.__module__, "OrthogonalDecoders")
    shared = "polariscope.studies.inner_workings.alignment_tasks"
    assert {(shared, name) for name in ("task", "_SMALL", "alignment", "_training")} <= set(reach.definitions)
    assert not any(name in ("claims", "figures", "published") for _, name in reach.definitions)


def test_scales_do_not_share_results(toy, tmp_path):
    reproduce("toy", "smoke", tmp_path, workers=1)
    outcome = reproduce("toy", "laptop", tmp_path, workers=1)
    assert len(outcome.table) == 5
    assert len(toy.done) == 11


@pytest.mark.parametrize("stop", [ValueError("no square today"), KeyboardInterrupt()], ids=["failure", "interrupt"])
def test_a_study_that_was_cut_off_goes_on_where_it_stopped(toy, tmp_path, stop):
    toy.trap[2] = stop
    with pytest.raises(type(stop)):
        reproduce("toy", "smoke", tmp_path, workers=1)
    path = tmp_path / "toy-smoke"
    kept = [json.loads(file.read_text()) for file in (path / "jobs").iterdir()]
    assert [record["rows"][0]["square"] for record in kept] == [1, 1]
    assert not (path / "findings.json").exists()
    toy.trap.clear()
    toy.done.clear()
    outcome = reproduce("toy", "smoke", tmp_path, workers=1)
    assert toy.done == [2, 2, 3, 3]
    assert outcome.table.column("square").tolist() == [1, 1, 4, 4, 9, 9]


def test_what_a_job_tells_carries_its_own_number_also_after_resuming(toy, tmp_path, monkeypatch):
    def run(self, job, bench):
        bench.tell(job["number"])
        return [{"square": job["number"] ** 2}]

    monkeypatch.setattr(toy, "run", run)
    heard: list = []
    path = reproduce("toy", "smoke", tmp_path, 1, lambda number, what: heard.append((number, what))).path
    assert heard == [(job, what) for job, number in enumerate((1, 1, 2, 2, 3, 3)) for what in (number, None)]
    last = next(f for f in (path / "jobs").iterdir() if json.loads(f.read_text())["job"] == {"number": 3, "seed": 1})
    last.unlink()
    heard.clear()
    reproduce("toy", "smoke", tmp_path, 1, lambda number, what: heard.append((number, what)))
    assert sorted(heard[:5]) == [(job, None) for job in range(5)], "what is done already is told first"
    assert heard[5:] == [(5, 3), (5, None)]


def test_the_overview_counts_verdicts(toy, tmp_path):
    reproduce("toy", "paper", tmp_path, workers=1)
    reproduce("toy", "laptop", tmp_path, workers=1)
    (tmp_path / "elsewhere").mkdir()
    lines = overview(tmp_path).splitlines()
    assert "| study | scale | seeds | held | weaker form held | not held | undecided |" in lines
    assert "| [toy](toy-laptop/README.md) | laptop | 5 | 2 | 0 | 0 | 1 |" in lines
    assert "| [toy](toy-paper/README.md) | paper | 5 | 1 | 0 | 1 | 1 |" in lines
    assert len(lines) == 6
    (tmp_path / "elsewhere" / "table.parquet").write_text("junk")
    assert "elsewhere/table.parquet: expected the table of a study" in overview(tmp_path)


def test_one_page_is_made_from_tables_alone(toy, tmp_path, capsys):
    first = reproduce("toy", "laptop", tmp_path / "made", workers=1)
    kept = tmp_path / "kept" / "toy"
    kept.mkdir(parents=True)
    shutil.copy(first.path / "table.parquet", kept)
    (kept / "note.md").write_text("What a person has to say.\n")
    page = tmp_path / "results.md"
    assert main(["results", str(tmp_path / "kept"), "--out", str(page)]) == 0
    assert "toy" in capsys.readouterr().out
    text = page.read_text()
    assert "| toy | laptop | 5 | 2 | 0 | 0 | 1 |" in text
    assert "## Squares" in text
    assert "| no square is large | every square is at most 8 | below 9 | largest 1 of 5 | held | " in text
    assert "What a person has to say." in text
    assert "No table yet: " in text
    assert main(["results", str(tmp_path / "kept"), "--json"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)
    assert answer["seeds"] == 5
    assert answer["made"] == first.origin.made
    assert [claim["verdict"] for claim in answer["claims"]] == ["held", "held", "undecided"]
    assert main(["results", str(tmp_path / "nowhere")]) == 2
    assert "no table of a study" in capsys.readouterr().err


def test_an_unknown_study_is_a_sentence(tmp_path):
    with pytest.raises(ValueError, match="there is no study 'linear-vea': did you mean 'linear-vae'"):
        reproduce("linear-vea", "smoke", tmp_path, workers=1)
    assert not list(tmp_path.iterdir())


def test_table_methods():
    table = Table([{"a": 1, "x": 1.0}, {"a": 1, "x": 4.0, "y": None}, {"a": 2, "x": 7.0, "y": 3}])
    assert len(table) == 3
    assert table.where(a=1).mean("x") == 2.5
    assert table.where(a=1).std("x") == pytest.approx(3 / np.sqrt(2))
    assert table.where(a=2).std("x") == 0
    assert len(table.where(a=1, x=4.0)) == 1
    assert len(table.where(b=1)) == 0
    assert table.column("y").tolist() == [3]
    assert table.distinct("y") == [3]
    assert [(value, len(rows)) for value, rows in table.by("a")] == [(1, 2), (2, 1)]
    with pytest.raises(ValueError, match="no row has a z"):
        table.mean("z")


def test_seeds_are_reported_with_their_spread():
    assert plus_minus([0.5]) == "0.50 (n=1)"
    assert plus_minus(np.array([1.0, 3.0]), digits=1) == "2.0 ± 1.4 (n=2)"


def test_every_registered_study_says_what_it_is_and_what_it_will_do():
    for name in studies.names():
        study = studies.get(name)()
        assert all(isinstance(getattr(study, key), str) for key in ("title", "source", "question")), name
        for scale in study.scales:
            assert study.cost[scale], name
            jobs = list(study.jobs(scale))
            written = [json.dumps(job, sort_keys=True) for job in jobs]
            assert written, name
            assert len(set(written)) == len(written), f"{name} has a job twice"
            assert [json.loads(text) for text in written] == jobs, f"{name} has a job that JSON changes"


def test_reproduce_on_the_command_line(tmp_path, capsys, monkeypatch):
    """Jobs go to processes as bytes, and so they do here; that processes do them is seen with the executors."""
    asked = []

    def sent(work, jobs, workers, report):
        asked.append(workers)
        work, jobs = pickle.loads(pickle.dumps((work, jobs)))
        return in_parallel(work, jobs, 1, report)

    monkeypatch.setattr("polariscope.studies.engine.in_parallel", sent)
    words = ["reproduce", "similarity-limits", "--scale", "smoke", "--out", str(tmp_path / "results")]
    assert main([*words, "--workers", "2", "--json"]) == 0
    assert [place.workers for place in asked] == [2]
    answer = json.loads(capsys.readouterr().out)
    assert answer["study"] == "similarity-limits"
    assert {claim["verdict"] for claim in answer["claims"]} == {None}
    assert all(claim["published"] and claim["measured"] for claim in answer["claims"])
    text = (tmp_path / "results" / "README.md").read_text()
    assert "[similarity-limits](similarity-limits-smoke/README.md)" in text
    # A second time there is nothing left to do, and a person gets a table.
    assert main([*words, "--workers", "1"]) == 0
    out = capsys.readouterr().out
    assert all(claim["text"].split()[0] in out for claim in answer["claims"])
    assert "similarity-limits-smoke/report.html" in out


def test_exit_codes_of_reproduce(toy, tmp_path, capsys):
    words = ["reproduce", "toy", "--scale", "paper", "--out", str(tmp_path), "--workers", "1"]
    assert main(words) == 0
    assert "not held" in capsys.readouterr().out
    assert main([*words, "--strict"]) == 1
    capsys.readouterr()
    assert main(["reproduce", "toy", "--scale", "smoke", "--out", str(tmp_path / "none"), "--strict"]) == 2
    assert (
        "--strict asks for verdicts, but smoke scale only shows that the study runs, and judges nothing"
        in capsys.readouterr().err
    )
    assert not (tmp_path / "none").exists()
    assert main(["reproduce", "toy", "--scale", "laptop", "--out", str(tmp_path), "--workers", "1", "--strict"]) == 0
    capsys.readouterr()
    assert main(["reproduce", "tyo", "--out", str(tmp_path)]) == 2
    assert "there is no study 'tyo': did you mean 'toy'?" in capsys.readouterr().err
    assert main(["reproduce"]) == 2
    assert "which study?" in capsys.readouterr().err
    assert main(["reproduce", "toy", "--scale", "tiny"]) == 2
    assert "tiny" in capsys.readouterr().err
    toy.trap[1] = KeyboardInterrupt()
    assert main(["reproduce", "toy", "--scale", "smoke", "--out", str(tmp_path / "new"), "--workers", "1"]) == 130
    toy.trap[1] = ZeroDivisionError("training diverged")
    assert main(["reproduce", "toy", "--scale", "smoke", "--out", str(tmp_path / "new"), "--workers", "1"]) == 3


def test_studies_are_listed_on_the_command_line(toy, capsys):
    assert main(["studies", "--json"]) == 0
    listed = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert listed["toy"]["question"] == "Are squares positive?"
    assert {"linear-vae", "linear-ivae", "similarity-limits", "intrinsic-dimension"} <= set(listed)
    assert main(["studies"]) == 0
    assert "Nobody 1900" in capsys.readouterr().out


def test_a_study_shows_the_jobs_that_are_finished_and_names_the_others(toy, tmp_path, capsys):
    """Nothing is run, the table says what it lacks, and the study goes on from there."""
    with pytest.raises(ValueError, match="no job of toy is finished"):
        reproduce("toy", "smoke", tmp_path, workers=1, finished=True)
    toy.trap[3] = RuntimeError("stop here")
    with pytest.raises(RuntimeError):
        reproduce("toy", "smoke", tmp_path, workers=1)
    toy.done.clear()
    part = reproduce("toy", "smoke", tmp_path, workers=1, finished=True)
    assert toy.done == []
    assert [row["number"] for row in part.table.rows] == [1, 1, 2, 2]
    assert judge(part.path / "table.parquet").origin.not_run == [{"number": 3, "seed": seed} for seed in range(2)]
    assert "Not run: 2 of 6 jobs, about 0.0 core hours by the mean of the others." in part.findings().notes
    assert next(p for p in part.findings().parts if p.name == "not-run").rows == part.origin.not_run
    toy.trap.clear()
    whole = reproduce("toy", "smoke", tmp_path, workers=1)
    assert toy.done == [3, 3]
    assert not whole.origin.not_run
    assert "Not run" not in str(whole.findings().notes)


def test_a_scale_that_a_study_does_not_have_is_refused_and_all_skips_it(toy, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(studies, "names", lambda: ["toy"])
    with pytest.raises(ValueError, match="toy has no overnight scale: choose smoke or laptop or paper"):
        reproduce("toy", "overnight", tmp_path)
    assert main(["reproduce", "all", "--scale", "overnight", "--out", str(tmp_path)]) == 0
    assert toy.done == []
    monkeypatch.setattr(toy, "scales", ("smoke", "overnight"))
    outcome = reproduce("toy", "overnight", tmp_path, workers=1)
    assert [claim.verdict for claim in outcome.claims] == [None] * 3, "few seeds decide nothing"
    assert outcome.headline.endswith("its figures are shown beside the published ones, and judge nothing")
