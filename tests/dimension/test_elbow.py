"""Elbow curves of trained models on data with three strong directions, and what is read from codes downstream."""

from dataclasses import replace

import numpy as np
import pytest

from polariscope.dimension.elbow import downstream_accuracy, elbow, elbow_curves, mean_curve
from polariscope.dimension.figures import elbow_figure, trace_curves
from polariscope.dimension.trained import DimensionSearch, search_dimension
from polariscope.measures.polarisation import polarised_sample
from polariscope.measures.renyi import spi
from polariscope.nets.architecture import Linear
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.objectives.autoencoder import AE
from polariscope.objectives.vae import VAE
from polariscope.representation import Representation
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.worlds.factors import Factor
from polariscope.worlds.points.synthetic import Gaussian
from polariscope.worlds.world import ArrayWorld

NS = (1, 2, 3, 5)


@pytest.fixture(scope="module")
def curves():
    """A VAE and an AE at four sizes; three directions carry the data, and the signs along them are its labels."""
    data = Gaussian(count=2000, spectrum=(4.0, 4.0, 4.0, 0.05, 0.05, 0.05))
    everything = range(len(data))
    signs = (data.factors_of(everything)[:, :3] > 0).astype(np.int64)
    labels = tuple(Factor(f"sign_{j}", 2, "categorical") for j in range(3))
    config = RunConfig(
        ArrayWorld(data.observe(everything), signs, labels),
        VAE(),
        AutoencoderConfig(architecture=Linear(), likelihood="gaussian", variance=0.2),
        TrainingConfig(steps=150, batch_size=256, learning_rate=0.08, schedule="linear"),
    )
    return elbow_curves(config, NS, kinds=(VAE(), AE()), kind="logistic", examples=1500)


@pytest.mark.spec("002/D12")
@pytest.mark.parametrize("objective", ["vae", "ae"])
def test_both_models_bend_where_the_directions_end(curves, objective: str) -> None:
    ns, losses = mean_curve(curves, objective, "reconstruction")
    assert tuple(ns) == NS
    assert elbow(ns, losses) == 3
    _, accuracy = mean_curve(curves, objective, "accuracy")
    assert elbow(ns, -accuracy) == 3
    assert accuracy[2] > 0.85 > accuracy[0] > 0.55
    assert all(point.chance == 0.5 for point in curves)


@pytest.mark.spec("002/D12")
def test_curves_are_drawn_with_the_selected_dimensions(curves) -> None:
    figure = elbow_figure(curves, {"FONDUE": 3})
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "reconstruction (nats)",
        "downstream accuracy",
        "SPI",
    ]
    for axes in figure.axes:
        labels = [line.get_label() for line in axes.get_lines()]
        assert labels == ["vae", "ae", "FONDUE"]
        assert list(axes.get_lines()[2].get_xdata()) == [3, 3]
        assert tuple(axes.get_lines()[0].get_xdata()) == NS


@pytest.mark.spec("002/D13")
def test_similarity_preservation_improves_up_to_the_elbow(curves) -> None:
    x = np.random.default_rng(0).normal(size=(50, 8))
    assert spi(x, x) == 0.0
    for objective in ("vae", "ae"):
        _, values = mean_curve(curves, objective, "spi")
        assert values[0] > values[1] > values[2]
        assert values[2] < 0.3 * values[0]


def test_elbow_is_the_deepest_point_below_the_chord() -> None:
    ns = np.array([1, 2, 4, 8, 16])
    losses = np.array([10.0, 6.0, 2.0, 1.0, 0.5])
    assert elbow(ns, losses) == 4
    assert elbow(ns, 1000 * losses - 7) == 4
    assert elbow(10 * ns, losses) == 40


@pytest.mark.parametrize(
    ("ns", "losses", "problem"),
    [
        ([1, 2], [2, 1], "at least 3 points"),
        ([1, 2, 3], [1, 1, 1], "does not fall"),
        ([1, 2, 3], [3, 2, 1], "below its chord"),
        ([1, 3, 2], [3, 2, 1], "ascending"),
        ([1, 2, 3], [3, np.nan, 1], "finite"),
    ],
)
def test_a_curve_without_an_elbow_is_refused(ns: list[int], losses: list[float], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        elbow(ns, losses)


def labelled(samples: int = 900) -> Representation:
    """Two used variables whose quadrant is one label; the other label is noise."""
    result = polarised_sample(active=2, passive=1, samples=samples)
    quadrant = (result.mean[:, 0] > 0) * 2 + (result.mean[:, 1] > 0)
    noise = np.random.default_rng(1).integers(0, 3, samples)
    factors = (Factor("quadrant", 4, "categorical"), Factor("noise", 3, "categorical"), Factor("size", 0))
    columns = np.stack([quadrant, noise, result.mean[:, 0]], axis=1)
    return Representation(result.mean.astype(np.float32), factors=columns, factor_info=factors)


@pytest.mark.spec("002/D18")
@pytest.mark.parametrize("kind", ["boosted_trees", "histogram_trees", "logistic"])
def test_labels_are_read_from_codes_above_chance(kind) -> None:
    result = downstream_accuracy(labelled(), kind)
    assert set(result.per_label) == {"quadrant", "noise"}  # what is continuous is no label
    assert result.per_label["quadrant"] > 0.9
    assert result.per_label["noise"] == pytest.approx(1 / 3, abs=0.1)
    assert result.accuracy == pytest.approx(np.mean(list(result.per_label.values())))
    assert result.chance == pytest.approx((1 / 4 + 1 / 3) / 2)
    assert (result.train, result.test) == (600, 300)


def test_downstream_needs_labels() -> None:
    with pytest.raises(ValueError, match="discrete factors"):
        downstream_accuracy(Representation(np.zeros((10, 2), np.float32)))
    one = replace(labelled(60), factors=np.zeros((60, 3)))
    with pytest.raises(ValueError, match="'quadrant' has only one value"):
        downstream_accuracy(one)
    with pytest.raises(ValueError, match="classifier is"):
        downstream_accuracy(labelled(60), "forest")  # type: ignore[arg-type]


def test_trace_curves_part_at_the_answer() -> None:
    from polariscope.dimension.trained import Reading

    def probe(n: int) -> Reading:
        used = min(n, 5)
        return Reading(n, 10, 0, 0.9 * used, float(n), n - 0.9 * used, 1.0, 1.0, 0.5, False, used, 0, n - used, 0.1)

    result: DimensionSearch = search_dimension(probe, 4)
    figure = trace_curves([result])
    traces, statistic = figure.axes
    assert list(traces.get_lines()[0].get_ydata()) == sorted(float(n) for n in result.search.visited)
    assert list(traces.get_lines()[2].get_xdata()) == [result.answer] * 2
    assert list(statistic.get_lines()[1].get_ydata()) == [1.0, 1.0]
