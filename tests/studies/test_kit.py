"""The study kit: grids, declared figures, medians, a published table beside ours, and "not worse than"."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

from polariscope.report.study_figures import over_seeds
from polariscope.studies.criteria import NotWorse
from polariscope.studies.kit import Beside, Curve, Matrix, Panels, Paths, Restarts, Scatter, grid, medians
from polariscope.studies.rows import Table, rank_correlations

ROWS = [
    {"model": m, "beta": b, "seed": s, "mcc": 0.1 * b + s, "kl": 2.0 * b}
    for m in ("a", "b")
    for b in (1, 2, 4)
    for s in range(3)
]


def test_a_grid_has_every_combination_once() -> None:
    jobs = grid(model=("a", "b"), beta=[1, 2], seed=range(3), scale="laptop")
    assert len(jobs) == len({tuple(job.items()) for job in jobs}) == 12
    assert jobs[0] == {"model": "a", "beta": 1, "seed": 0, "scale": "laptop"}
    assert grid() == [{}]


def test_medians_are_taken_over_seeds_first() -> None:
    table = medians(Table(ROWS), ["mcc", "none"], by=["model", "beta"])
    assert len(table) == 6
    assert table.where(model="b", beta=4).rows == [{"model": "b", "beta": 4, "of_seeds": 3, "mcc": pytest.approx(1.4)}]


def test_a_curve_shows_the_median_of_every_point() -> None:
    figure = Curve("mcc", over="beta", by="model").draw(Table(ROWS))
    assert figure is not None
    lines = [
        line
        for line in figure.axes[0].get_lines()
        if len(line.get_xdata()) == 3 and line.get_marker() not in ("|", "_")
    ]
    assert any(np.allclose(line.get_ydata(), [1.1, 1.2, 1.4]) for line in lines)
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["a", "b"]


def test_no_two_of_twelve_lines_look_alike() -> None:
    rows = [{"x": x, "layer": layer, "y": float(layer)} for x in (1, 2) for layer in range(12)]
    figure = Curve("y", over="x", by="layer").draw(Table(rows))
    assert figure is not None
    lines = [line for line in figure.axes[0].get_lines() if line.get_marker() not in ("|", "_")]
    assert len({(line.get_color(), line.get_marker()) for line in lines}) == len(lines) == 12


def test_unequal_numbers_of_seeds_have_each_their_own_median() -> None:
    rows = [{"beta": 1, "seed": s, "mcc": v} for s, v in enumerate((1.0, 2.0, 3.0, 4.0, 5.0))]
    rows += [{"beta": 2, "seed": s, "mcc": v} for s, v in enumerate((0.0, 10.0))]
    figure = Curve("mcc", over="beta").draw(Table(rows))
    assert figure is not None
    (line,) = [line for line in figure.axes[0].get_lines() if line.get_marker() not in ("|", "_")]
    assert np.allclose(line.get_ydata(), [3.0, 5.0])


def test_a_place_without_a_value_is_a_gap() -> None:
    axes = Figure().subplots()
    over_seeds(axes, [1, 2, 3, 4], [[1.0, 3.0, np.nan], [np.nan] * 2, [4.0], []])
    assert np.allclose(axes.get_lines()[0].get_ydata(), [2.0, np.nan, 4.0, np.nan], equal_nan=True)


def test_a_matrix_writes_the_means_into_its_cells() -> None:
    figure = Matrix("kl", rows="model", columns="beta", digits=1).draw(Table(ROWS))
    assert figure is not None
    assert [text.get_text() for text in figure.axes[0].texts] == ["2.0", "4.0", "8.0"] * 2


def test_dots_of_restarts_and_of_a_scatter_are_the_rows() -> None:
    dots = Restarts("mcc", by="model", where={"beta": 1}).draw(Table(ROWS))
    assert dots is not None
    assert [len(points.get_offsets()) for points in dots.axes[0].collections] == [3, 3]
    scatter = Scatter("mcc", "kl").draw(Table(ROWS))
    assert scatter is not None
    assert len(scatter.axes[0].collections[0].get_offsets()) == len(ROWS)


def test_names_give_words_and_order() -> None:
    names = {"b": "second model", "a": "first model"}
    figure = Curve("mcc", over="beta", by="model", names=names, along="strength", mark=2.0).draw(Table(ROWS))
    assert figure is not None
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["second model", "first model"]
    assert axes.get_xlabel() == "strength"
    assert [line.get_xdata()[0] for line in axes.get_lines() if line.get_linestyle() == "--"] == [2.0]
    shades = Matrix("kl", rows="model", columns="beta", names=names).draw(Table(ROWS))
    assert shades is not None
    assert [tick.get_text() for tick in shades.axes[0].get_yticklabels()] == ["second model", "first model"]


def test_restarts_by_two_columns_have_the_colours_of_the_last() -> None:
    figure = Restarts("mcc", ("beta", "model"), {"a": "first", "b": "third"}, where={"seed": 0}).draw(Table(ROWS))
    assert figure is not None
    (axes,) = figure.axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == [f"{b}\n{m}" for b in (1, 2, 4) for m in "ab"]
    colours = [tuple(points.get_facecolor()[0]) for points in axes.collections]
    assert len(set(colours)) == 2
    assert colours[0] == colours[2] == colours[4]


def test_values_of_another_column_stand_beside_each_other_within_a_group() -> None:
    figure = Restarts("mcc", "beta", {"a": "first", "b": "third"}, within="model", tilt=30).draw(Table(ROWS))
    assert figure is not None
    (axes,) = figure.axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "2", "4"]
    drawn = [points for points in axes.collections if len(points.get_offsets())]
    assert [round(points.get_offsets()[0][0], 2) for points in drawn] == [-0.18, 0.18, 0.82, 1.18, 1.82, 2.18]
    assert len({tuple(points.get_facecolor()[0]) for points in drawn}) == 2
    (legend,) = figure.legends
    assert (legend.get_title().get_text(), [text.get_text() for text in legend.get_texts()]) == ("model", ["a", "b"])


def test_panels_stand_side_by_side_and_share_a_legend() -> None:
    panels = (
        Curve("mcc", "beta", "model", where={"seed": 0}, from_zero=True),
        Scatter("kl", "beta", "model", log=True),
    )
    figure = Panels(panels, where={"model": "a"}).draw(Table(ROWS))
    assert figure is not None
    left, right = figure.axes
    assert [len(points.get_offsets()) for points in right.collections] == [9], "rows of one model, of every seed"
    assert (left.get_ylim()[0], right.get_xscale()) == (0.0, "log")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a"]


def test_several_columns_have_a_line_each_beside_what_is_known_of_them() -> None:
    names = {"kl": "divergence", "mcc": "MCC"}
    guides = {"twice beta": lambda beta: 2 * beta, "half": 0.5}
    figure = Curve(("kl", "mcc"), over="beta", names=names, guides=guides, log_y=True).draw(Table(ROWS))
    assert figure is not None
    (axes,) = figure.axes
    assert {text.get_text() for text in axes.get_legend().get_texts()} == {"divergence", "MCC", "twice beta", "half"}
    lines = {line.get_label(): line for line in axes.get_lines()}
    assert np.allclose(lines["twice beta"].get_ydata(), 2 * lines["twice beta"].get_xdata())
    assert set(lines["half"].get_ydata()) == {0.5}
    assert (lines["half"].get_xdata()[[0, -1]].tolist(), axes.get_yscale()) == ([1.0, 4.0], "log")


def test_a_curve_shows_predicted_slopes_and_dashes_what_is_predicted() -> None:
    rows = [{"p": p, "seed": s, "task": t, "error": 1 / p} for p in (1, 2, 4) for s in (0, 1) for t in "ab"]
    curve = Curve("error", "p", by="task", log=True, log_y=True, dashed=("b",), power=lambda row: -1.0)
    figure = curve.draw(Table(rows))
    assert figure is not None
    (axes,) = figure.axes
    laws = [line for line in axes.get_lines() if line.get_zorder() == 1]
    assert [line.get_ydata().tolist() for line in laws] == [pytest.approx([1, 0.5, 0.25])] * 2
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["predicted slope", "a", "b"]
    styles = [container.lines[0].get_linestyle() for container in axes.containers]
    assert styles == ["-", "--"]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "2", "4"]


def test_paths_are_a_line_for_each_row_with_a_dot() -> None:
    rows = [{"kind": kind, "step": [0, 2], "loss": [4.0, 2.0 * n], "onset": 1} for n, kind in enumerate("aab")]
    figure = Paths("loss", "step", by="kind", dot="onset").draw(Table([*rows, {"kind": "c", "loss": None}]))
    assert figure is not None
    (axes,) = figure.axes
    lines, dots = axes.get_lines()[::2], axes.get_lines()[1::2]
    assert [line.get_label() for line in lines if not line.get_label().startswith("_")] == ["a", "b"]
    assert lines[0].get_color() == lines[1].get_color() != lines[2].get_color()
    assert [dot.get_ydata()[0] for dot in dots] == [2.0, 3.0, 4.0]


def test_panels_for_each_value_stand_below_each_other() -> None:
    lined = Restarts("mcc", by="model", line=lambda row: 10.0 * row["beta"])
    figure = Panels((Scatter("kl", "seed"), lined), each="beta", width=2.0, share_y=True).draw(Table(ROWS))
    assert figure is not None
    assert [axes.get_ylabel() for axes in figure.axes] == ["kl", "", "", "mcc", "", ""]
    assert len({axes.get_ylim() for axes in figure.axes}) == 2
    assert [axes.get_title("left") for axes in figure.axes] == ["1", "2", "4"] * 2
    assert [len(axes.collections[0].get_offsets()) for axes in figure.axes] == [6] * 3 + [3] * 3
    assert [axes.get_lines()[0].get_ydata()[0] for axes in figure.axes[3:]] == [10.0, 20.0, 40.0]
    assert figure.get_size_inches()[0] == pytest.approx(0.6 + 3 * 2.0)
    below = Panels((lined,), each="beta", width=2.0, across=1).draw(Table(ROWS))
    assert below is not None
    assert below.get_size_inches()[0] == pytest.approx(0.6 + 2.0)


@pytest.mark.parametrize(
    "figure",
    [
        Curve("no", "beta"),
        Restarts("no", "model"),
        Matrix("no", "model", "beta"),
        Scatter("no", "kl"),
        Panels((Curve("no", "beta"), Scatter("no", "kl"))),
    ],
)
def test_a_figure_of_a_column_that_is_not_there_is_left_out(figure) -> None:
    assert figure.draw(Table(ROWS)) is None


def test_published_and_measured_stand_side_by_side() -> None:
    table = Table([{"data": "digits", "seed": s, "accuracy": 99.0 + s} for s in range(2)])
    rows = Beside("informed/kernels", by="data", columns={"accuracy": "nngp"}, names={"digits": "mnist"}).rows(table)
    assert rows == [{"data": "digits", "nngp, published": "99.40", "nngp, measured": "99.50 ± 0.71 (n=2)"}]


@pytest.mark.parametrize(
    ("behind", "spread", "held"), [(0.0, 0.001, True), (0.01, 0.001, True), (0.05, 0.001, False), (0.019, 0.02, None)]
)
def test_not_worse_than_asks_for_the_whole_interval(behind, spread, held) -> None:
    noise = np.linspace(-1, 1, 5)
    rows = [{"seed": s, "model": "b", "mcc": 0.5} for s in range(5)]
    rows += [{"seed": s, "model": "a", "mcc": 0.5 - behind + spread * noise[s]} for s in range(5)]
    finding = NotWorse("mcc", {"model": "a"}, {"model": "b"}, by=0.02).judge(Table(rows))
    assert finding.held is held
    lower = NotWorse("mcc", {"model": "b"}, {"model": "a"}, by=0.02, higher=False).judge(Table(rows))
    assert lower.held is held, "where lower is better the sides change"
    sentence = NotWorse("mcc", {"model": "a"}, {"model": "b"}, by=0.02).sentence
    assert sentence == "mcc: a is at most 0.02 below b"


def test_medians_are_of_the_seeds_that_have_the_column() -> None:
    rows = [{"beta": 1, "seed": seed} | ({"kl": 1.0 * seed} if seed < 2 else {}) for seed in range(5)]
    assert medians(Table(rows), ["kl"], by=["beta"]).rows == [{"beta": 1, "of_seeds": 2, "kl": 0.5}]


def test_rank_correlations_are_of_rows_that_have_both() -> None:
    rows = [{"a": k, "b": 2 * k} for k in range(6)]
    del rows[0]["a"], rows[5]["b"]
    assert rank_correlations(Table(rows), ["a"], ["b"]) == pytest.approx(1)
