"""Files of an earlier version (``fixtures/earlier``): its runs, checkpoints, documents, plug-in and TOML are read."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from polariscope import plugins
from polariscope.cli import commands, main
from polariscope.documents import load
from polariscope.examination.embedding import embed
from polariscope.findings import Findings
from polariscope.lab.run_documents import kept_findings
from polariscope.lab.store import Store
from polariscope.manipulation import load_bundle
from polariscope.measures.measure import measures
from polariscope.objectives.objective import objectives
from polariscope.report.page import page
from polariscope.representation import Representation
from polariscope.strict_json import json_text
from polariscope.studies.engine import judge_all
from polariscope.subjects import as_subject
from polariscope.training import load_model
from polariscope.training.config import RunConfig
from polariscope.training.run import config_of
from polariscope.worlds.renderers.digits import Digits
from polariscope.worlds.view import View
from polariscope.worlds.world import worlds

EARLIER = Path(__file__).parent / "fixtures" / "earlier"
DOCUMENTS = [str(file.parent.relative_to(EARLIER)) for file in sorted(EARLIER.rglob("findings.json"))]
NAMES = ["examined", "players", "toml", "classifier", "regressor", "plugged"]


@pytest.fixture
def earlier(tmp_path, monkeypatch) -> Path:
    """A copy of the files in the current folder, and nothing loaded that their plug-in registers."""
    shutil.copytree(EARLIER, tmp_path / "earlier")
    monkeypatch.chdir(tmp_path / "earlier")
    monkeypatch.setattr(plugins, "_FILES", {})
    for catalogue in (worlds, objectives, measures, commands):
        catalogue.names()
        monkeypatch.setattr(catalogue, "_entries", dict(catalogue._entries))
        monkeypatch.setattr(catalogue, "_about", dict(catalogue._about))
    return tmp_path / "earlier"


@pytest.fixture
def run(capsys):
    def call(*words: str) -> dict:
        code = main([*words, "--json"])
        captured = capsys.readouterr()
        assert code == 0, captured.err
        return json.loads(captured.out)

    return call


def test_the_files_are_small() -> None:
    assert sum(file.stat().st_size for file in EARLIER.rglob("*") if file.is_file()) < 500_000
    assert len(DOCUMENTS) == 9


def test_every_run_is_listed_and_its_model_loaded(earlier, run) -> None:
    store = Store(Path("runs"))
    assert len(store.runs()) == len(NAMES) + 1
    assert not store.problems
    assert {row["name"] for row in run("runs", "--columns", "name", "objective")} == {*NAMES, None}
    plugins.load_plugin("plugin.py")
    for name in NAMES:
        opened = store.open(name)
        assert sum(parameter.numel() for parameter in load_model(opened).parameters()) > 100
        assert opened.metrics()
        assert RunConfig.build(opened.config) == config_of(opened)
    assert store.open("examined").labels.note == "an old run"


@pytest.mark.parametrize("name", ["examined", "plugged"])
def test_a_checkpoint_gives_the_codes_that_were_stored_with_it(name, earlier, run) -> None:
    opened = Store(Path("runs")).open(name)
    (file,) = (opened.path / "representations").iterdir()
    before = Representation.load(file)
    answer = run("examine", name, "--plugin", "plugin.py", "--count", str(before.count), "--measures", "", "--fresh")
    (document,) = kept_findings(opened)
    assert document.kind == "examine"
    assert answer["examples"] == before.count

    after = embed(as_subject(opened), config_of(opened).world, count=before.count, seed=0)
    assert after.factors.tolist() == before.factors.tolist()
    assert np.allclose(after.mean, before.mean, atol=1e-5)
    assert np.allclose(after.var, before.var, atol=1e-5)


@pytest.mark.parametrize("name", ["examined", "players", "toml", "classifier"])
def test_a_training_goes_on(name, earlier, run) -> None:
    answer = run("train", "--resume", name, "--training.steps", "8")
    assert (answer["status"], answer["result"]["step"]) == ("done", 8)


def test_the_toml_file_says_what_it_said(earlier, run) -> None:
    answer = run("train", "--config", "run.toml", "--training.steps", "1")
    now, before = Store(Path("runs")).open(answer["id"]).config, Store(Path("runs")).open("toml").config
    now["training"]["steps"] = 4
    for section, settings in before.items():
        assert settings.items() <= now[section].items(), "settings may be added, and none is changed"


def test_a_digit_task_of_before_it_was_a_view_shows_the_same_images(earlier, run) -> None:
    """The expected numbers are those of the commit that wrote the file."""
    answer = run("train", "--config", "digit-task.toml", "--training.steps", "1")
    now = config_of(Store(Path("runs")).open(answer["id"])).world
    assert isinstance(now, View)
    assert (len(now), now.shape, now.of) == (60, (3, 14, 14), Digits(60, 14, 5))
    assert now.factors_of(np.arange(8))[:, 0].tolist() == [9, 7, 2, 0, 9, 6, 0, 3]
    assert now.observe(np.arange(40)).sum() == pytest.approx(2_943_325, rel=1e-4)
    assert worlds.build({"name": "digit-task", "seed": 3}).factors_of(np.arange(8))[:, 0].tolist() == [
        0,
        7,
        2,
        8,
        6,
        8,
        8,
        5,
    ]
    with pytest.raises(ValueError, match="has no setting 'count'"):
        worlds.build({"name": "digit-task", "of": "digits", "count": 60})


@pytest.mark.parametrize("folder", DOCUMENTS)
def test_every_document_is_read_and_shown(folder, earlier) -> None:
    answer = json.loads(Path(folder, "findings.json").read_text())

    for findings, before in zip(load(folder), answer if isinstance(answer, list) else [answer], strict=True):
        assert json.loads(json_text(findings.json())) == before
        assert findings.headline in page([findings]).replace("&#39;", "'")
        findings.save("again")
        assert json_text(Findings.load("again").json()) == json_text(findings.json())


def test_documents_find_their_places_when_another_is_made(earlier, run) -> None:
    opened = Store(Path("runs")).open("classifier")
    before = json.loads((opened.path / "findings.json").read_text())
    assert [(one.kind, one.headline) for one in kept_findings(opened)] == [("kernel", before["headline"])]
    run("corruptions", "classifier", "--suite", "mnist-c", "--kinds", "shot", "--severities", "1", "--count", "9")
    assert [one.kind for one in kept_findings(opened)] == ["corruptions", "kernel"]
    assert kept_findings(opened)[1].load()[0].arrays["scatter/final"].shape == (40, 2)
    assert [one["kind"] for one in run("runs", "findings", "classifier")["findings"]] == ["corruptions", "kernel"]
    assert [one["kind"] for one in run("runs", "findings", "regressor")["findings"]] == ["generalise"]


def test_a_plug_in_is_loaded_and_used(earlier, run) -> None:
    answer = run("examine", "plugged", "--plugin", "plugin.py", "--count", "40", "--measures", "old-sixth")
    assert answer["measures"] == {"old-sixth": 0.5}
    assert run("old-poem", "--plugin", "plugin.py")["poem"] == ["Roses are red,", "violets are blue."]
    assert "violets are blue." in Path("poem.html").read_text(encoding="utf-8")


def test_tables_and_bundles_are_read(earlier) -> None:
    outcomes, problems = judge_all(Path("results"))
    assert ([outcome.name for outcome in outcomes], problems) == (["similarity-limits"], [])
    assert len(outcomes[0].claims) > 0
    assert len(load_bundle("documents/manipulated").world) == 40
