"""Figures: each holds the numbers it was given, and leaves the user's settings alone."""

from dataclasses import replace

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.stats import pearsonr

from polariscope.measures.polarisation import polarised_sample, variable_types
from polariscope.report import figures
from polariscope.studies import Table
from polariscope.studies.polarised.polarised_regime import PolarisedRegime


def test_learning_curves_hold_the_rows_of_their_term(made_metrics):
    figure = figures.learning_curves({"a": made_metrics(), "b": made_metrics(1)}, ["kl"])
    lines = figure.axes[0].get_lines()
    assert len(lines) == 4
    for line, (seed, split) in zip(lines, [(0, "train"), (0, "held_out"), (1, "train"), (1, "held_out")], strict=True):
        expected = [(step, value) for step, s, term, value in made_metrics(seed) if (s, term) == (split, "kl")]
        assert np.array_equal(line.get_xydata(), expected)
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert labels == ["a, training", "a, held-out", "b, training", "b, held-out"]


def test_learning_curves_are_logarithmic_where_the_loss_falls_far_and_leave_out_what_is_no_number(made_metrics):
    def scale(*values):
        rows = [(step, "train", "loss", value) for step, value in enumerate(values)]
        return figures.learning_curves({"m": rows}).axes[0].get_yscale()

    assert scale(600.0, 40.0, 30.0) == "log"
    assert scale(1.0, 5.0, 9.0) == "linear"
    assert scale(60.0, 40.0, 30.0) == "linear"
    assert scale(600.0, -1.0, 30.0) == "linear"
    assert scale(float("nan"), float("inf"), 3.0) == "linear"
    assert figures.terms_of([made_metrics(), [(1, "train", "adversary", 0.0)]]) == [
        "loss",
        "reconstruction",
        "kl",
        "adversary",
    ]


@pytest.mark.spec("002/V04")
def test_type_histograms_have_the_moments_of_the_data(found):
    chosen = [found.variables[0], found.variables[3], found.variables[4]]
    figure = figures.variable_histograms(found.representation, chosen, bins=400)
    grid = np.reshape(figure.axes, (3, 3))
    for row, variable in zip(grid, chosen, strict=True):
        for axes, name in zip(row, ("mean", "var", "sample"), strict=True):
            density, edges, _ = axes.patches[0].get_data()
            centres, mass = (edges[1:] + edges[:-1]) / 2, density * np.diff(edges)
            values = getattr(found.representation, name)[:, variable.number]
            assert mass.sum() == pytest.approx(1)
            assert mass @ centres == pytest.approx(values.mean(), abs=0.01)
            assert mass @ centres**2 - (mass @ centres) ** 2 == pytest.approx(values.var(), abs=0.02)
            assert (
                matplotlib.colors.to_hex(axes.patches[0].get_facecolor()) == figures.LIGHT[figures.KINDS[variable.kind]]
            )
        assert row[0].get_ylabel() == f"z{variable.number} · {variable.kind}"
    # The same axis for all types: a passive mean is narrow beside an active one.
    assert len({axes.get_xlim() for axes in grid[:, 0]}) == 1


def test_histograms_show_a_conditional_prior_where_there_is_one(found):
    rep = found.representation
    rep = replace(rep, prior_mean=np.full_like(rep.mean, 5.0), prior_var=np.full_like(rep.mean, 3.0))
    mean, var, sample = figures.variable_histograms(rep, found.variables[:1]).axes
    for axes, expected in ((mean, 5.0), (var, 3.0)):
        density, edges, _ = axes.patches[1].get_data()
        peak = density.argmax()
        assert edges[peak] <= expected <= edges[peak + 1]
    assert len(sample.patches) == 1
    assert not sample.get_lines()


def test_factor_matrix_puts_the_numbers_in_the_order_of_the_variables(found):
    figure = figures.factor_matrix(
        found.factor_information, found.variables, [f.name for f in found.representation.factor_info]
    )
    axes = figure.axes[0]
    order = [v.number for v in found.variables]
    assert [t.get_text() for t in axes.texts] == [f"{v:.2f}" for v in found.factor_information[order].ravel()]
    assert np.array_equal(axes.collections[0].get_array(), found.factor_information[order])
    assert [t.get_text() for t in axes.get_yticklabels()][:2] == ["z1 · active", "z0 · active"]
    assert axes.collections[0].get_clim() == (0, 1)


@pytest.mark.spec("002/M07")
def test_correlation_heatmap_shows_the_correlations_with_passive_rows_marked():
    """The picture of the study: passive means follow active ones, active means follow none (Figure 6.9)."""
    drawn = polarised_sample(active=4, passive=3, correlation=0.8, mixed=[0.5], samples=5000)
    order = [7, 0, 5, 1, 4, 2, 6, 3]  # so that neither types nor pairs lie in a row
    mean, types = drawn.mean[:, order], variable_types(drawn.var[:, order])
    study = PolarisedRegime()
    rows = [{"beta": beta, "seed": 0, **types.counts} | study._correlations(mean, types) for beta in (1.0, 4.0)]
    figure = study.figures(Table(rows))["correlations"]
    axes = figure.axes[0]
    shown = axes.collections[0].get_array()
    for i, j in np.ndindex(8, 8):
        assert shown[i, j] == pytest.approx(pearsonr(mean[:, i], mean[:, j]).statistic, abs=6e-4)
    assert np.argwhere(np.abs(np.triu(shown, 1)) > 0.5).tolist() == [[0, 5], [1, 2], [3, 6]]
    assert axes.collections[0].get_clim() == (-1, 1)
    labels = {text.get_text(): text.get_color() for text in axes.get_yticklabels()}
    assert list(labels) == [f"{j} {drawn.labels[k]}" for j, k in enumerate(order)]
    marked = [name for name, colour in labels.items() if colour == figures.LIGHT["muted"]]
    assert marked == ["0 passive", "2 passive", "6 passive"]
    assert axes.texts[5].get_text() == f"{pearsonr(mean[:, 0], mean[:, 5]).statistic:.2f}"


def test_heatmap_is_signed_about_zero_marks_borders_and_leaves_holes_empty():
    values = np.array([[1.0, -0.4], [np.nan, 0.2]])
    figure = figures.heatmap(values, ["a", "b"], ["c", "d"], "Correlations", signed=True, separators=([1], [1]))
    axes = figure.axes[0]
    assert axes.collections[0].get_clim() == (-1, 1)
    assert [t.get_text() for t in axes.texts] == ["1.00", "-0.40", "0.20"]
    assert len(axes.get_lines()) == 2
    assert axes.get_title(loc="left") == "Correlations"
    neutral = figures.DIVERGING(0.5)[:3]
    assert max(neutral) - min(neutral) < 0.02
    large = figures.heatmap(np.eye(60), [str(i) for i in range(60)], [str(i) for i in range(60)])
    assert not large.axes[0].texts
    assert len(figures.as_svg(large)) < 200_000
    with pytest.raises(ValueError, match="2 rows and 1 columns"):
        figures.heatmap(values, ["a", "b"], ["c"])


def test_bars_of_types_stack_to_the_number_of_variables():
    counts = [{"active": 3, "mixed": 1, "passive": 6}, {"active": 2, "passive": 8}]
    figure = figures.types_by_strength([1, 4], counts, {"TC of means": [0.1, 0.4], "TC of samples": [0.1, 0.1]})
    bars, lines = figure.axes
    heights = np.reshape([bar.get_height() for bar in bars.patches], (3, 2))
    assert heights.tolist() == [[3, 2], [1, 0], [6, 8]]
    assert [bar.get_y() + bar.get_height() for bar in bars.patches[-2:]] == [10, 10]
    assert lines.get_lines()[0].get_ydata().tolist() == [0.1, 0.4]
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["active", "mixed", "passive", "TC of means", "TC of samples"]
    with pytest.raises(ValueError, match="3 strengths"):
        figures.types_by_strength([1, 2, 3], counts)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_image_grid_tiles_in_reading_order(channels):
    images = np.random.default_rng(0).integers(0, 256, (2, 3, channels, 4, 5), np.uint8)
    whole = np.asarray(figures.image_grid(images, enlarge=3, gap=2))
    assert whole.shape == ((2 * 4 + 2) * 3, (3 * 5 + 4) * 3, 4)
    small = whole[1::3, 1::3]
    tile = small[6:10, 7:12]
    for channel in range(3):
        assert (tile[..., channel] == images[1, 1, 0 if channels < 3 else channel]).all()
    assert (tile[..., 3] == 255).all()
    assert (small[4:6, :, 3] == 0).all()
    with pytest.raises(ValueError, match="uint8"):
        figures.image_grid(images.astype(int))


def test_figures_leave_the_users_settings_alone(made_metrics):
    before = dict(matplotlib.rcParams)
    figure = figures.learning_curves({"m": made_metrics()})
    assert isinstance(figure, Figure)
    figures.as_svg(figure)
    assert dict(matplotlib.rcParams) == before


def test_colours_of_text_and_types_can_be_told_from_the_page():
    """WCAG: text needs a contrast of 4.5, marks one of 3, on the card they lie on, light and dark."""

    def luminance(colour):
        channels = np.array(matplotlib.colors.to_rgb(colour))
        linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
        return linear @ (0.2126, 0.7152, 0.0722)

    for shade, card in ((0, "#ffffff"), (1, "#171f27")):
        for name, pair in figures.PALETTE.items():
            if name == "line":
                continue
            bright, dark = sorted((luminance(pair[shade]), luminance(card)), reverse=True)
            least = 4.5 if name in ("ink", "muted") else 2.9
            assert (bright + 0.05) / (dark + 0.05) >= least, name
