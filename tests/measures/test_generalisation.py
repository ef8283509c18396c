"""Scores outside of the training's range: the closed forms of the benchmark's own reference predictors."""

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from polariscope.measures import Undefined
from polariscope.measures.dci import dci
from polariscope.measures.generalisation import (
    attribute,
    ceiling,
    correlation,
    mean_ratio,
    prediction_similarity,
    r_squared,
    reference_predictions,
    same_look,
)
from polariscope.worlds.renderers.arm3d import Arm3D
from polariscope.worlds.renderers.faces import Faces
from polariscope.worlds.renderers.shapes3d import Shapes3D
from polariscope.worlds.renderers.sprites import Sprites
from polariscope.worlds.splits import Chosen, Composition, Extrapolation, Interpolation, one_ood
from polariscope.worlds.targets import Task

SPEC = Path(__file__).resolve().parents[2] / "docs" / "spec" / "001a-slowvae-and-indomain-generalization.md"


WORLDS = {
    "dSprites": (Sprites(), "shape"),
    "dSprites [0,90)": (Sprites(unambiguous=True), "shape"),
    "Shapes3D": (Shapes3D(), "shape"),
    "MPI3D": (Arm3D(), "object_shape", "object_size"),
    "CelebGlow": (Faces(), "person"),
}
"""With their factors that are not split along."""
SPLITS = {"interpolation": Interpolation(), "extrapolation": Extrapolation(), "composition": Composition()}


@cache
def world_of(data):
    """The observations whose factors that are not split along are all first or all last: such a factor scores 0 of the
    constant and 1 of the others whatever values it has, and a part is quicker."""
    world, *aside = WORLDS[data]
    table = world.factors_of(np.arange(len(world)))
    columns = [(table[:, c], f.size - 1) for c, f in enumerate(world.factors) if f.name in aside]
    ends = [np.all([column == end for column, end in some], axis=0) for some in ([(c, 0) for c, _ in columns], columns)]
    return Chosen(world, np.flatnonzero(ends[0] | ends[1]))


@cache
def everything(data):
    """Targets of the whole world."""
    world = world_of(data)
    return Task(world, "all", "values").target_of(np.arange(len(world)))


@cache
def variance(data):
    return everything(data).var(0, dtype=np.float64)


@cache
def whole(data, split):
    """Targets of the training and test part."""
    parts = SPLITS[split].parts(world_of(data))
    return everything(data)[parts.train], everything(data)[parts.held_out]


def published() -> list[tuple[str, str, tuple[float | None, ...]]]:
    """O19 of the specification."""
    table = SPEC.read_text(encoding="utf-8").partition("O19 reference predictors")[2].partition("Reading:")[0]
    result = []
    for row in re.findall(r"^\| (.*) \|$", table, re.MULTILINE):
        data, split, *cells = (cell.strip(" *|") for cell in row.split(" |"))
        if split in SPLITS:
            numbers = [float(cell.replace("−", "-")) if cell else None for cell in cells]
            result.append((data, split, tuple(numbers)))
    return result


def test_the_specification_has_twelve_rows_of_references() -> None:
    assert len(published()) == 12
    assert sum(number is not None for _, _, numbers in published() for number in numbers) == 12 * 2 + 6


@pytest.mark.spec("001a/IG-07")
@pytest.mark.spec("001a/IG-08")
@pytest.mark.parametrize(("data", "split", "numbers"), published(), ids=str)
def test_reference_predictors_score_as_published(data, split, numbers) -> None:
    train, test = whole(data, split)
    references = reference_predictions(train, test)
    assert list(references) == ["constant", "clip", "nearest"]
    for predictions, number in zip(references.values(), numbers, strict=False):
        if number is not None:
            assert r_squared(predictions, test, variance(data)).mean() == pytest.approx(number, abs=5.1e-5)


@pytest.mark.spec("001a/IG-06")
def test_targets_are_brought_to_the_whole_range_not_to_that_of_the_training() -> None:
    train, test = whole("dSprites", "extrapolation")
    assert train[:, 3].max() == pytest.approx(24 / 31)
    assert test[:, 3].max() == 1.0
    np.testing.assert_array_equal(test.min(0), 0)
    np.testing.assert_array_equal(np.maximum(train.max(0), test.max(0)), 1)


# O20: training mean and clip, by the new factor.
OUT = {
    "dSprites": {"scale": (-2.171, 0.143), "orientation": (-2.041, 0.809), "x": (-2.050, 0.765), "y": (-2.050, 0.765)},
    "Shapes3D": {
        **dict.fromkeys(("floor_hue", "wall_hue", "object_hue"), (-2.061, 0.697)),
        "scale": (-2.095, 0.524),
        "orientation": (-2.049, 0.750),
    },
    "MPI3D": {
        "object_colour": (-2.086, 0.657),
        **dict.fromkeys(("camera_height", "background_colour"), (-2.375, -0.500)),
        **dict.fromkeys(("horizontal_axis", "vertical_axis"), (-2.011, 0.944)),
    },
    "CelebGlow": dict.fromkeys(("smile", "blond", "age"), (-2.171, 0.143)),
}


@cache
def one_out(data):
    result = one_ood(world_of(data), Extrapolation())
    targets = everything(data)[result.numbers]
    return targets, result.factor, reference_predictions(whole(data, "extrapolation")[0], targets)


@pytest.mark.spec("001a/IG-07")
@pytest.mark.spec("001a/IG-09")
@pytest.mark.spec("001a/IG-26")
@pytest.mark.parametrize("data", OUT)
def test_who_is_to_blame_where_one_factor_is_new(data) -> None:
    targets, out, predictions = one_out(data)
    names = [factor.name for factor in world_of(data).factors]
    for which, predictor in enumerate(("constant", "clip")):
        result = attribute(predictions[predictor], targets, out, variance(data))
        scores_by_name = {names[c]: score for c, score in zip(result.new, result.out_of_distribution, strict=True)}
        assert scores_by_name == pytest.approx({name: both[which] for name, both in OUT[data].items()}, abs=5.1e-4)
    np.testing.assert_allclose(result.in_distribution, 1, atol=1e-12)  # clip is exact where the training was
    assert sum(result.samples) == len(out)
    # The table has each new factor's error in its own column and no other.
    wrong = result.table < 1 - 1e-9
    np.testing.assert_array_equal(wrong, np.arange(len(names)) == np.array(result.new)[:, None])


@pytest.mark.spec("001a/IG-10")
def test_the_clip_predictor_is_drawn_to_the_mean_as_published() -> None:
    targets, out, predictions = one_out("dSprites")
    mean = whole("dSprites", "extrapolation")[0].mean(0, dtype=np.float64)
    for column, ratios in ((1, [0.600, 0.429]), (3, [0.923, 0.857, 0.800, 0.750, 0.706, 0.667, 0.632])):
        rows = out == column
        r = mean_ratio(predictions["clip"][rows], targets[rows], out[rows], mean)
        assert np.unique(r.round(4)) == pytest.approx(sorted(ratios), abs=5.1e-4)
    np.testing.assert_allclose(mean_ratio(targets, targets, out, mean), 1)
    np.testing.assert_allclose(mean_ratio(predictions["constant"], targets, out, mean), 0, atol=1e-6)
    targets, out, predictions = one_out("MPI3D")
    mean = whole("MPI3D", "extrapolation")[0].mean(0, dtype=np.float64)
    r = mean_ratio(predictions["clip"][out == 3], targets[out == 3], out[out == 3], mean)
    assert r == pytest.approx(np.full(len(r), 1 / 3), abs=1e-5)  # height 2


@pytest.mark.spec("001a/IG-10")
def test_a_value_at_the_mean_has_no_ratio() -> None:
    """As height and background of MPI3D have, where the middle of three values is kept."""
    y, out = np.array([[0.5, 0.0], [0.5, 0.0], [1.0, 0.0]]), np.array([0, 0, 0])
    assert mean_ratio(y, y, out, [0.5, 0.0]).tolist() == [1.0]
    with pytest.raises(Undefined, match="differs from its training mean"):
        mean_ratio(y[:2], y[:2], out[:2], [0.5, 0.0])


@pytest.mark.spec("001a/IG-11")
def test_similarity_is_symmetric_and_never_with_itself() -> None:
    rng = np.random.default_rng(0)
    y, out = rng.random((200, 3)), rng.integers(-1, 3, 200)
    models = {"a": [rng.normal(size=y.shape) for _ in range(3)], "b": [rng.normal(size=y.shape)], "c": [-y, 5 - 2 * y]}
    result = prediction_similarity(models, y, out)
    assert result.rows == result.columns == ("a", "b", "c", "truth")
    np.testing.assert_allclose(result.values, result.values.T, equal_nan=True)
    assert result.values[2, 3] == pytest.approx(-1)  # whatever the scale
    assert result.values[2, 2] == pytest.approx(1)
    assert np.isnan(result.values[[1, 3], [1, 3]]).all()  # one run alone is compared with nothing

    def rho(first, second):  # a second way: factor by factor with NumPy's own
        rows = [(first[out == c, c], second[out == c, c]) for c in range(3)]
        return np.mean([np.corrcoef(*pair)[0, 1] for pair in rows])

    runs = models["a"]
    own = [rho(runs[i], runs[j]) for i in range(3) for j in range(3) if i != j]
    assert result.values[0, 0] == pytest.approx(np.mean(own))
    assert result.values[0, 1] == pytest.approx(np.mean([rho(run, models["b"][0]) for run in runs]))
    assert result.values[0, 3] == pytest.approx(np.mean([rho(run, y) for run in runs]))


@pytest.mark.spec("001a/IG-11")
def test_what_is_constant_is_left_out_of_the_similarity_and_said() -> None:
    y = np.random.default_rng(1).random((40, 2))
    out = np.arange(40) % 2
    flat = y.copy()
    flat[:, 0] = 0.5  # as a predictor does that stops at the end of what it saw
    result = prediction_similarity({"flat": [flat], "other": [y + 1]}, y, out)
    assert result.values[0, 1] == pytest.approx(1)
    assert result.notes == ("flat is constant in factor 0 where it is new, so ρ is undefined",)
    assert result.headline.endswith("at most 1.00"), "a model with one run is not compared with itself"


@pytest.mark.spec("001a/IG-12")
def test_disentanglement_goes_with_the_readout_in_a_toy_sweep() -> None:
    """Codes from the factors themselves to a noisy mixture of them; a linear readout of the training part."""
    rng = np.random.default_rng(0)
    factors = rng.integers(0, (5, 6, 8), (1500, 3))
    y = factors / (4, 5, 7)
    train = (factors < (4, 5, 6)).all(1)  # to extrapolate
    mixture, noise = rng.normal(size=(3, 3)), rng.normal(size=y.shape)
    scores, readouts = [], []
    for share in np.linspace(0, 1, 8):
        codes = (1 - share) * y + share * (y @ mixture + 0.5 * noise)
        scores.append(dci(codes[train], factors[train], "tree").disentanglement.value)
        inputs = np.column_stack([codes, np.ones(len(codes))])
        weights = np.linalg.lstsq(inputs[train], y[train], rcond=None)[0]
        readouts.append(r_squared(inputs[~train] @ weights, y[~train], y.var(0)).mean())
    result = correlation(scores, readouts)
    assert result.models == 8
    assert result.pearson > 0.63  # as published over all of its models
    assert result.spearman > 0.67
    assert result.spearman_p < 0.05
    worse = correlation(scores, np.negative(readouts))
    assert (worse.pearson, worse.spearman) == pytest.approx((-result.pearson, -result.spearman))
    with pytest.raises(Undefined, match="the same for all models"):
        correlation(scores, np.ones(8))


@pytest.mark.spec("001a/IG-27")
def test_the_orientation_of_sprites_can_be_told_no_better_than_their_symmetry_allows() -> None:
    """Turns of 2πk/40: a square looks the same after 10, an ellipse after 20. Looks are those of the images."""
    shape, turn = np.divmod(np.arange(120), 40)
    looks = same_look(Sprites(size=32).render_continuous(shape, 1.0, 2 * np.pi * turn / 40, 0.4, 0.6))
    assert [len(np.unique(looks[shape == s])) for s in range(3)] == [10, 20, 40]
    best = ceiling(np.column_stack([shape, turn]), looks)
    assert best == pytest.approx([1, 1 - 75 / 133.25])
    assert best[1] == pytest.approx(0.43715, abs=5e-6)
    assert np.append(best, [1, 1, 1]).mean() == pytest.approx(0.88743, abs=5e-6)  # scale, x and y are unambiguous
    quarter = turn < 10
    assert ceiling(np.column_stack([shape, turn])[quarter], looks[quarter]) == pytest.approx([1, 1])


@pytest.mark.spec("001a/IG-27")
def test_no_predictor_of_the_image_is_above_the_ceiling() -> None:
    rng = np.random.default_rng(2)
    y, looks = rng.random((300, 2)), rng.integers(0, 9, 300)
    best = ceiling(y, looks)
    for _ in range(20):
        table = rng.random((9, 2))
        assert (r_squared(table[looks], y, y.var(0)) <= best + 1e-12).all()


def test_negative_scores_are_averaged_as_they_are() -> None:
    y = np.array([[0.0, 0.0], [1.0, 1.0]])
    assert r_squared(np.column_stack([y[:, 0], 1 - y[:, 1]]), y, y.var(0)).tolist() == [1.0, -3.0]


def test_bad_input_is_refused_in_a_sentence() -> None:
    y = np.random.default_rng(0).random((4, 2))
    for predictions, words in ((y[:, :1], r"same shape .* got \(4, 1\) and \(4, 2\)"), (y * np.nan, "diverged")):
        with pytest.raises(ValueError, match=words):
            r_squared(predictions, y, [1, 1])
    with pytest.raises(ValueError, match="positive variance for each of 2 factors"):
        r_squared(y, y, [1, 0])
    with pytest.raises(ValueError, match="column of the new factor, below 2"):
        attribute(y, y, [0, 1, 2, 0], [1, 1])
    with pytest.raises(Undefined, match="compositions and random splits have none"):
        attribute(y, y, [-1, -1, -1, -1], [1, 1])
    with pytest.raises(ValueError, match="is the name of the targets"):
        prediction_similarity({"truth": [y]}, y, [0, 0, 0, 0])
