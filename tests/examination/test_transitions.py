"""The examination of transitions: which factors move sparsely, in Python and on the command line."""

import json

import numpy as np
import pytest

from polariscope.cli import main
from polariscope.examination.transitions import TransitionExamination, examine_transitions
from polariscope.findings import Chart
from polariscope.measures.transition_statistics import transition_statistics
from polariscope.report.page import page
from polariscope.worlds.points.sources import Sources
from polariscope.worlds.renderers.masks import Walkers
from polariscope.worlds.renderers.squares import Squares
from polariscope.worlds.views.pairs import Pairs


def test_sparse_and_normal_steps_are_told_apart() -> None:
    common = {"count": 4000, "dimension": 2, "layers": 0, "coefficient": 1.0, "start": "normal"}
    sparse = examine_transitions(Sources(**common, alpha=1.0, rate=6.0))
    normal = examine_transitions(Sources(**common, alpha=2.0, rate=9.0))
    assert sparse.sparse == list(sparse.names)
    assert sparse.headline.startswith("All 2 factors move sparsely and independently: SlowVAE can identify them")
    assert normal.sparse == []
    assert "may mix them" in normal.headline
    assert [row["alpha"] for row in sparse.records()] == pytest.approx([1, 1], abs=0.1)
    assert [row["alpha"] for row in normal.records()] == pytest.approx([2, 2], abs=0.25)


def test_dependent_factors_are_not_promised_to_be_identified() -> None:
    rng = np.random.default_rng(0)
    common = rng.exponential(size=(3000, 1))  # when one factor moves far, the other does too
    changes = rng.laplace(size=(3000, 2)) * common
    result = TransitionExamination(transition_statistics(changes, ("x", "y")), changes, ("x", "y"))
    assert result.sparse == ["x", "y"]
    (pair,) = result.dependent
    assert pair.natural > 0.2
    assert result.headline.startswith("All 2 factors move sparsely, but not independently: x and y change together")
    assert f"rank correlation {pair.natural:.2f}" in result.headline
    assert "can identify" not in result.headline
    alone = TransitionExamination(transition_statistics(changes[:, :1], ("x",)), changes[:, :1], ("x",))
    assert alone.headline.startswith("x moves sparsely: ")
    normal = rng.normal(size=(3000, 2)) * (1 + 0.3 * common)
    mixed = np.column_stack([changes[:, 0], rng.normal(size=3000)])
    for table, words in ((normal, "x and y do not move sparsely"), (mixed, "x moves sparsely, y does not")):
        statistics = transition_statistics(table, ("x", "y"))
        assert TransitionExamination(statistics, table, ("x", "y")).headline.startswith(words)


def test_the_figures_show_the_alphas_and_correlations_of_the_tables() -> None:
    """Areas are whole numbers and do not change around 0: an estimator of the figure's own would differ."""
    result = examine_transitions(Walkers(sequences=20), gaps=(1, 4), seed=3)
    charts = {chart.name: chart.draw() for chart in result.findings().of(Chart)}
    shown = [axes.lines[0].get_label() for axes in charts["histograms"].axes]
    assert shown == [f"generalised, α = {row['alpha']:.2f}" for row in result.records()]
    at_one = {line.get_label(): line.get_ydata()[0] for line in charts["gaps"].axes[0].lines[: len(result.names)]}
    assert at_one == {row["factor"]: row["alpha"] for row in result.records()}
    pairs = result.statistics.dependence
    titles = [axes.get_title("left").rpartition(" ")[2] for axes in charts["planes"].axes]
    expected = [pair.natural for pair in pairs] + [pair.permuted for pair in pairs]
    assert [float(title) for title in titles] == pytest.approx(expected, abs=0.0051)


def test_categories_that_never_move_are_left_out_and_said() -> None:
    result = examine_transitions(Pairs(Squares(scales=1), "lap"), count=2000)
    assert result.names == ("x", "y")
    assert result.findings().notes == ["scale never changes here and was skipped."]


def test_the_document_has_every_figure_and_the_changes() -> None:
    findings = examine_transitions(Walkers(sequences=12), gaps=(1, 4)).findings()
    assert [chart.name for chart in findings.of(Chart)] == ["histograms", "planes", "gaps"]
    assert all(chart.draw().axes for chart in findings.of(Chart))
    assert findings.arrays["changes"].shape[1] == 3
    assert {gap["gap"] for gap in findings.json()["gaps"]} == {1, 4}


def test_a_video_of_ones_own_on_the_command_line(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    steps = np.random.default_rng(0).laplace(scale=0.8, size=(80, 2))
    at = np.clip(np.cumsum(steps, 0) + 10, 2, 22).astype(int)
    masks = np.zeros((80, 32, 32), np.uint8)
    for frame, (x, y) in zip(masks, at, strict=True):
        frame[y : y + 7, x : x + 7] = 1
    np.savez("walk.npz", masks=masks)
    assert main(["transitions", "walk.npz", "--world.size", "32", "--json", "--out", "found"]) == 0
    answer = json.loads(capsys.readouterr().out)
    exact = np.diff(at[:, 0])
    row = next(row for row in answer["fits"] if row["factor"] == "x")
    assert row["n"] == 79
    assert (tmp_path / "found" / "report.html").exists()
    assert (tmp_path / "found" / "findings.json").exists()
    assert abs(row["normal_scale"] - exact.std()) < 0.35  # changes of whole pixels are spread over theirs


@pytest.mark.parametrize(
    ("masks", "words"),
    [
        (np.ones((1, 32, 32)), "at least 2 frames"),
        (np.zeros((5, 32, 32)), "no two frames in a row show one"),
    ],
)
def test_videos_that_show_nothing_are_refused_in_a_sentence(tmp_path, capsys, masks, words) -> None:
    np.savez(tmp_path / "v.npz", masks=masks.astype(np.uint8))
    assert main(["transitions", str(tmp_path / "v.npz"), "--world.size", "32"]) == 2
    message = capsys.readouterr().err
    assert words in message
    assert message.count("\n") == 1


def test_a_world_without_time_is_refused(capsys) -> None:
    assert main(["transitions", "squares"]) == 2
    assert "has no changes in time" in capsys.readouterr().err


def test_the_page_is_small() -> None:
    """A path for each cell of the planes made 4.6 MB of it."""
    assert len(page([examine_transitions(Walkers(sequences=12)).findings()])) < 700_000
