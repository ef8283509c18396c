"""``polariscope generalise``: models of ours and of the user's, runs, the leaderboard, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from polariscope.cli import main

SOURCE = """
import torch
from torch import nn

def three():
    return nn.Sequential(nn.Flatten(), nn.Linear(256, 32), nn.ReLU(), nn.Linear(32, 3))

def two():
    return nn.Sequential(nn.Flatten(), nn.Linear(256, 2))
"""
SMALL = ["--world", "squares", "--world.positions", "10", "--count", "200", "--json"]


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(SOURCE, encoding="utf-8")
    return tmp_path


def told(capsys) -> dict:
    return json.loads(capsys.readouterr().out)


def test_a_module_of_ones_own_is_trained_on_every_split(place, capsys) -> None:
    assert main(["generalise", "mine.py:three", *SMALL, "--steps", "60", "--out", "page.html"]) == 0
    result = told(capsys)["findings"]
    assert [next(iter(one["leaderboard"])) for one in result] == [
        "random",
        "composition",
        "interpolation",
        "extrapolation",
    ]
    assert {row["name"] for row in result[3]["ranking"]} == {"three", "clip", "constant", "nearest"}
    page = (place / "page.html").read_text(encoding="utf-8")
    assert "three, extrapolation" in page
    assert not list(place.glob("runs/*/run.json"))  # what has no name has no folder


def test_a_registered_model_leaves_a_run_that_can_be_tested_again(place, capsys) -> None:
    asked = ["generalise", "mlp-regressor", *SMALL, "--steps", "8", "--splits", "extrapolation"]
    assert main([*asked, "--out", "a.html"]) == 0
    first = told(capsys)["findings"][0]
    (run,) = (file.parent for file in place.glob("runs/*/run.json"))
    record = json.loads((run / "run.json").read_text(encoding="utf-8"))
    assert record["config"]["split"]["name"] == "extrapolation"
    assert record["result"]["r2"] == pytest.approx(first["scores"]["test"])
    assert main(["generalise", run.name, "--count", "200", "--json"]) == 0
    again = told(capsys)
    assert again["findings"][0]["scores"]["test"] == pytest.approx(first["scores"]["test"])
    assert again["findings"][0]["title"] == "mlp-regressor on squares, extrapolation", "no id for a title"
    assert again["report"] == str(Path("runs", run.name, "findings", "generalise", "report.html"))
    assert Path(again["report"]).exists()
    assert not Path("generalise.html").exists()


@pytest.mark.usefixtures("undrawn")
def test_a_second_call_overwrites_no_page_and_every_block_has_its_heading(place, capsys) -> None:
    asked = ["generalise", "mine.py:three", *SMALL[:-1], "--steps", "2", "--splits", "random", "extrapolation"]
    reports = []
    for _ in range(2):
        assert main(asked) == 0
        lines = capsys.readouterr().out.splitlines()
        reports.append(Path(lines[-1].removeprefix("report: ")))
        for title in ("three, random", "three, extrapolation"):
            assert lines.count(title) == 1
        assert lines.count("Scores") == 2
    assert reports[0] != reports[1]
    assert all(report.exists() for report in reports)
    assert main(["generalise", "--leaderboard", "--world", "shapes3d", "--json"]) == 0
    assert told(capsys)["report"] is None


def test_a_module_that_is_trained_already_is_left_alone(place, capsys) -> None:
    names: dict = {}
    exec(SOURCE, names)
    model = names["three"]()
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    torch.save(model.state_dict(), place / "zero.pt")
    asked = ["generalise", "mine.py:three", *SMALL, "--splits", "random", "--weights", "zero.pt", "--out", "c.html"]
    assert main(asked) == 0
    (result,) = told(capsys)["findings"]
    # Always 0 where values are spread evenly from 0 to 1: R² = 1 - E[y²] / Var[y].
    grids = [np.linspace(0, 1, count) for count in (8, 10, 10)]
    expected = np.mean([1 - (grid**2).mean() / grid.var() for grid in grids])
    assert result["scores"]["test"] == pytest.approx(expected, abs=0.3)


def test_the_leaderboard_is_sorted_and_has_our_row(place, capsys) -> None:
    assert main(["generalise", "--leaderboard", "--world", "shapes3d", "--json", "--out", "d.html"]) == 0
    rows = told(capsys)["findings"][0]["leaderboard"]
    assert len(rows) == 17
    scores = [float(row["extrapolation"].split()[0]) for row in rows]
    assert scores == sorted(scores, reverse=True)
    assert np.isclose(scores[0], 67.8)


@pytest.mark.spec("001a/TX-03")
def test_several_models_show_what_their_biases_add_to_the_first(place, capsys) -> None:
    asked = ["generalise", "mine.py:three", "mlp-regressor", "coordconv", *SMALL, "--steps", "4", "--splits", "random"]
    asked += ["extrapolation", "--made-for", "mlp-regressor=extrapolation", "coordconv=random"]
    assert main([*asked, "--tolerance", "0", "--out", "biases.html"]) == 0
    (result,) = told(capsys)["findings"]
    rows = {row["model"]: row for row in result["matrix"]}
    assert list(rows) == ["three", "mlp-regressor", "coordconv"]
    plain = rows["three"]
    for name, own, other in (("mlp-regressor", "extrapolation", "random"), ("coordconv", "random", "extrapolation")):
        gained, besides = (rows[name][split] - plain[split] for split in (own, other))
        expected = "no gain" if gained <= 0 else "overfitting" if besides < 0 else "transferable"
        assert result["transfer"][name] == rows[name]["label"] == expected
    assert "What biases add" in (place / "biases.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (["mine.py:two", *SMALL, "--steps", "2"], "the targets need (n, 3)"),
        (["mine.py:three", *SMALL, "--splits", "sideways"], "no split 'sideways'"),
        (["--leaderboard", "--world", "squares"], "nothing was published"),
        (["nothing", *SMALL], "nothing"),
        ([], "which model?"),
        (["cnn", *SMALL, "--made-for", "cnn=random"], "name it first"),
        (["cnn", "coordconv", *SMALL, "--made-for", "coordconv=sideways"], "which is not tested"),
        (["cnn", "coordconv", *SMALL, "--made-for", "resnet=random"], "no model 'resnet'"),
        (["cnn", "coordconv", *SMALL, "--made-for", "coordconv"], "takes MODEL=WHAT"),
        (["cnn", "coordconv", *SMALL, "--combines", "coordconv=resnet+cnn"], "name the split"),
        (["cnn", "nothing", *SMALL], "not a registered model"),
        (["cnn", "cnn", *SMALL], "two models have the same name"),
    ],
)
def test_what_cannot_be_tested_is_refused_in_a_sentence(place, capsys, asked, words) -> None:
    assert main(["generalise", *asked]) == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert words in message
