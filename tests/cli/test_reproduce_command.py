"""``reproduce all``: one study that fails does not end the others, and is not forgotten."""

import json

import pytest

from polariscope.studies import Claim, Study, studies
from polariscope.studies.criteria import AtLeast


class Squares(Study):
    """One number, squared."""

    title = source = question = "Squares"
    cost = {"smoke": "nothing", "laptop": "nothing", "paper": "nothing"}

    def jobs(self, scale):
        return [{"number": 3}]

    def run(self, job, bench):
        return [{"number": job["number"], "seed": 0, "square": job["number"] ** 2}]

    def claims(self, scale):
        return [Claim("squares are positive", "page 3: yes", AtLeast("square", 0.5))]


class Broken(Squares):
    """Fails in a way that nobody thought of."""

    error: BaseException = RuntimeError("the cat\nis on the keyboard")

    def run(self, job, bench):
        raise self.error


@pytest.fixture
def three(monkeypatch) -> None:
    """Three studies, of which the one in the middle fails."""
    studies.names()  # find the real ones first
    monkeypatch.setattr(studies, "_entries", {"first": Squares, "middle": Broken, "third": Squares})


@pytest.mark.usefixtures("three", "one_process")
def test_one_study_that_fails_does_not_end_the_others(run, monkeypatch, tmp_path) -> None:
    code, out, err = run("reproduce", "all", "--scale", "smoke", "--json")
    assert code == 2
    assert [entry["study"] for entry in json.loads(out)["findings"]] == ["first", "third"]
    assert err.splitlines()[-1] == "error: middle: RuntimeError: the cat is on the keyboard"
    assert "third-smoke" in (tmp_path / "results" / "README.md").read_text()
    folder = tmp_path / "results" / "first-smoke"
    assert {"report.html", "findings.json", "README.md"} < {file.name for file in folder.iterdir()}
    assert "<code>polariscope reproduce all --scale smoke --json</code>" in (folder / "report.html").read_text()
    (claim,) = json.loads((folder / "findings.json").read_text())["claims"]
    assert (claim["text"], claim["verdict"]) == ("squares are positive", None), "smoke scale judges nothing"
    assert json.loads(out)["findings"][0]["claims"] == [claim]
    monkeypatch.setattr(Broken, "error", ArithmeticError("training diverged"))
    code, _, err = run("reproduce", "all", "--scale", "smoke")
    assert (code, err.splitlines()[-1]) == (3, "error: middle: training diverged")


@pytest.mark.usefixtures("three", "one_process")
def test_ctrl_c_ends_them_all(run, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(Broken, "error", KeyboardInterrupt())
    code, _, err = run("reproduce", "all", "--scale", "smoke")
    assert code == 130
    assert err.splitlines()[-1] == "interrupted; continue with: polariscope reproduce all --scale smoke"
    assert (tmp_path / "results" / "first-smoke").exists()
    assert not (tmp_path / "results" / "third-smoke").exists()


def test_one_study_is_one_document(run, monkeypatch, one_process, tmp_path) -> None:
    studies.names()
    monkeypatch.setattr(studies, "_entries", {"first": Squares})
    code, out, _ = run("reproduce", "first", "--scale", "smoke", "--json")
    page = tmp_path / "results" / "first-smoke" / "report.html"
    assert (code, tmp_path / json.loads(out).pop("report")) == (0, page)
    kept = json.loads(page.with_name("findings.json").read_text())
    assert json.loads(out) == {"report": json.loads(out)["report"], **kept}


def test_estimates_of_several_studies_are_one_list(run, monkeypatch) -> None:
    studies.names()
    monkeypatch.setattr(studies, "_entries", {"first": Squares, "second": Squares})
    code, out, _ = run("reproduce", "all", "--scale", "smoke", "--estimate", "--json")
    assert code == 0
    costs = json.loads(out)["findings"]
    assert [(entry["study"], entry["estimate"]["jobs"]) for entry in costs] == [("first", 1), ("second", 1)]
    code, out, _ = run("reproduce", "first", "--scale", "smoke", "--estimate", "--json")
    assert (code, json.loads(out)["estimate"]["open_jobs"]) == (0, 0)
