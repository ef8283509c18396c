"""Every examination of a run has its own document; the run's page lists them; an old one is replaced whole."""

import os
import re

import numpy as np
import pytest

from polariscope import atomic
from polariscope.findings import Findings, Text
from polariscope.lab.run_documents import keep_findings, kept_findings, run_findings
from polariscope.lab.store import Run, Store


def findings(headline: str = "All is well.", **more) -> Findings:
    return Findings("mine", headline, [Text(name="why", title="Why", lines=[headline])], **more)


@pytest.fixture
def run(tmp_path) -> Run:
    return Store(tmp_path / "runs").create({"world": {"name": "sprites"}}, "test", run_id="one", status="done")


def test_documents_of_different_kinds_stand_side_by_side(run) -> None:
    first = keep_findings(findings(), "examine", run)
    second = keep_findings([findings("One."), findings("Two.")], "kernel", run, title="Both")
    assert first == run.path / "findings" / "examine" / "report.html"
    assert "<title>Both</title>" in second.read_text(encoding="utf-8")
    listed = kept_findings(run)
    assert [(one.kind, one.headline, one.page) for one in listed] == [
        ("examine", "All is well.", first), ("kernel", "One. Two.", second),
    ]  # fmt: skip
    assert [one.headline for one in listed[1].load()] == ["One.", "Two."]
    shown = (run.path / "report.html").read_text(encoding="utf-8")
    links = re.findall(r'<a href="([^#][^"]*)">', shown)
    assert links == ["findings/examine/report.html", "findings/kernel/report.html"]
    assert all((run.path / link).is_file() for link in links)
    assert "All is well." in shown
    assert run_findings(run).headline == "Run one, done: 2 examinations."


def test_an_older_document_of_the_same_kind_is_replaced_whole(run) -> None:
    keep_findings(findings("Old.", arrays={"codes": np.zeros(2)}), "examine", run)
    keep_findings(findings("New."), "examine", run)
    folder = run.path / "findings" / "examine"
    assert [one.headline for one in kept_findings(run)] == ["New."]
    assert sorted(os.listdir(folder)) == ["document.json", "findings.json", "report.html"], "no array of the old one"
    assert os.listdir(folder.parent) == ["examine"]


@pytest.mark.parametrize("exchange", [True, False])
def test_a_crash_at_any_act_leaves_the_old_document_or_the_new_one(run, monkeypatch, exchange) -> None:
    keep_findings(findings("Old."), "examine", run)
    if not exchange:
        monkeypatch.setattr(atomic, "_exchanged", lambda one, other: False)
    acts: list[str] = []
    monkeypatch.setattr(atomic, "fault", lambda act, path: acts.append(act))
    keep_findings(findings("Old."), "examine", run)

    class Crash(BaseException):
        pass

    for number in range(len(acts)):
        count = iter(range(len(acts) + 1))

        def fault(act, path, number=number, count=count) -> None:
            if next(count) == number:
                raise Crash

        monkeypatch.setattr(atomic, "fault", fault)
        with pytest.raises(Crash):
            keep_findings(findings("New."), "examine", run)
        monkeypatch.setattr(atomic, "fault", None)
        (one,) = kept_findings(run)
        assert one.load()[0].json() == findings(one.headline).json()
        assert one.page.is_file()
        assert one.headline in ("Old.", "New.")
        keep_findings(findings("Old."), "examine", run)
    keep_findings(findings("New."), "examine", run)
    assert [one.headline for one in kept_findings(run)] == ["New."]
    assert os.listdir(run.path / "findings") == ["examine"]


def test_a_place_that_was_named_is_taken_and_the_run_left_alone(run, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert keep_findings(findings(), "examine", run, tmp_path / "a.html") == tmp_path / "a.html"
    assert str(keep_findings(findings(), "examine")) == "examine.html"
    assert not (run.path / "findings").exists()
    assert not (run.path / "report.html").exists()
    with pytest.raises(ValueError, match="a name in small letters"):
        keep_findings(findings(), "../x", run)


@pytest.mark.parametrize(("facts", "kind"), [({"types": {"active": 1}}, "examine"), ({"verdict": "lazy"}, "kernel")])
def test_a_document_of_an_earlier_version_is_listed_and_finds_its_place(run, facts, kind) -> None:
    """It lay in the run folder itself, where the run's page is now."""
    findings("Old.", facts=facts).save(run.path)
    (run.path / "document.json").unlink()
    assert [(one.kind, one.headline, one.page) for one in kept_findings(run)] == [
        (kind, "Old.", run.path / "report.html")
    ]
    keep_findings(findings("New."), "corruptions", run)
    listed = {one.kind: one for one in kept_findings(run)}
    assert {kind: one.headline for kind, one in listed.items()} == {"corruptions": "New.", kind: "Old."}
    assert "Old." in listed[kind].page.read_text(encoding="utf-8")
    assert not (run.path / "findings.json").exists()
    assert "2 examinations" in (run.path / "report.html").read_text(encoding="utf-8")


def test_a_document_that_cannot_be_read_is_said_to_be_so(run) -> None:
    keep_findings(findings(), "examine", run)
    (run.path / "findings" / "examine" / "findings.json").write_text("{")
    keep_findings(findings(), "kernel", run)
    assert "cannot be read" in kept_findings(run)[0].headline
