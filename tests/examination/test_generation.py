"""Samples with a wanted property, on models whose truth is known, on runs, and through the command line."""

import json
import math

import numpy as np
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet
import pytest
import torch
from PIL import Image
from torch import nn

from polariscope.cli import main
from polariscope.examination.generated import SampleTable
from polariscope.examination.generation import _unreachable, generate_with_property
from polariscope.examination.nearness import neighbourhood
from polariscope.lab import Store
from polariscope.lab.run_documents import kept_findings
from polariscope.measures.conformal import conformal_radius, covered_share
from polariscope.measures.generated_sets import novelty, uniqueness
from polariscope.measures.judge import fit_judge
from polariscope.nets.architecture import MLP
from polariscope.nets.property_autoencoder import PropertyAutoencoderConfig
from polariscope.objectives.bottleneck import HybridDVIB
from polariscope.objectives.conditional_invariance import ConditionalInvariance, PropertyBetaVAE
from polariscope.objectives.stib import STIB
from polariscope.training import RunConfig, TrainingConfig, train
from polariscope.training.run import build_model
from polariscope.worlds.points.level_sets import LevelSets
from polariscope.worlds.points.toy_molecules import ToyMolecules
from polariscope.worlds.property_scale import PropertyScale, property_scale
from polariscope.worlds.renderers.mini_sprites import MiniSprites
from polariscope.worlds.targets import Task
from polariscope.worlds.views.properties import Properties
from polariscope.worlds.world import ArrayWorld

WORLD = LevelSets(count=1200, tested=400, rotated=False, padding=0.0, noise=0.02)
SMALL = PropertyAutoencoderConfig(5, 2, MLP((8,), (8,)), property_widths=(8,))


class LevelSetModel(nn.Module):
    """The level and the angle of a point, and back: the perfect model of ellipses."""

    def encode(self, x):
        square = x[:, :2].double().numpy()
        return torch.from_numpy(np.column_stack([WORLD.level_of(square), WORLD.angles_of(square)[:, 0]])).float()

    def decode(self, z):
        u, v = 2 * z[:, 0].clamp_min(0).sqrt() * z[:, 1].cos(), (2 * z[:, 0]).clamp_min(0).sqrt() * z[:, 1].sin()
        flat = torch.stack([u + v, u - v], 1) / 2**0.5
        return torch.cat([flat, torch.zeros(len(z), 3)], 1)

    def tells(self, z0):
        return torch.cat([z0, torch.zeros(len(z0), 2)], 1)


def generated(model=None, **settings):
    model = LevelSetModel() if model is None else model
    return generate_with_property(model, WORLD, property_latents=1, tells=model.tells, judged_on=400, **settings)


class Linear(nn.Module):
    """Points (a, b, b), whose property is a."""

    def encode(self, x):
        return x[:, :2]

    def decode(self, z):
        return torch.cat([z, z[:, 1:]], 1)

    def tells(self, z0):
        return z0


def linear_data():
    a, b = np.random.default_rng(1).uniform([20, -1], [40, 1], (200, 2)).T
    points = np.column_stack([a, b, b]).astype(np.float32)
    return own_data(points, points[:, :1], "a")


def own_data(observations, values, *names):
    return Properties(ArrayWorld(observations, values, names), ",".join(names))


def trained(tmp_path, world, objective, model, steps=3):
    return train(RunConfig(world, objective, model, TrainingConfig(steps, 32)), Store(tmp_path / "runs"), quiet=True)


# What comes out of a perfect model


def test_a_perfect_model_generates_the_level_set_that_was_asked_for() -> None:
    result = generated(wanted=0.3, count=300)
    assert len(result) == 300
    assert result.truth == pytest.approx(0.3, abs=5e-3), "the nearest Z0 of 400 examples"
    assert result.model == pytest.approx(result.truth, abs=1e-5)
    angle = WORLD.angles_of(result.observations[:, :2])[:, 0]
    assert np.histogram(angle, 6, (-math.pi, math.pi))[0].min() > 10, "everything else is drawn"
    assert "level 0.3" in result.headline
    assert not result.warnings


def test_intervals_have_the_coverage_that_was_asked_for_and_it_is_measured() -> None:
    """Split conformal: at least 0.8 of real examples in expectation; 200 of them, so within four standard errors."""
    for interval in ("judge", "model"):
        result = generated(wanted=0.3, count=100, coverage=0.8, interval=interval)
        assert result.coverage.real_count == 200
        assert result.coverage.real[0] == pytest.approx(0.8, abs=4 * math.sqrt(0.8 * 0.2 / 200) + 0.03)
        share = ((result.truth >= result.low) & (result.truth <= result.high)).mean()
        assert result.coverage.generated == (pytest.approx(share),)
        radius = (result.high - result.low) / 2
        assert np.ptp(radius) == pytest.approx(0, abs=1e-9)
    assert radius[0, 0] == pytest.approx(1.28 * WORLD.noise, rel=0.4), "the noise of the property is what is left"


def test_like_an_example_keeps_the_rest_or_the_property() -> None:
    number = 1000
    x = WORLD.observe([number])
    level, angle = WORLD.level_of(x[:, :2])[0], WORLD.angles_of(x[:, :2])[0, 0]
    kept = generated(wanted=0.5, like=number, count=50, spread=0.0)
    assert kept.truth == pytest.approx(0.5, abs=0.02)
    assert WORLD.angles_of(kept.observations[:, :2])[:, 0] == pytest.approx(angle, abs=1e-4)
    free = generated(like=number, count=50)
    assert free.wanted == pytest.approx(level, abs=1e-4)
    assert free.truth == pytest.approx(level, abs=0.02)
    assert np.std(WORLD.angles_of(free.observations[:, :2])) > 1


def test_values_outside_of_the_trained_range_are_warned_of() -> None:
    result = generated(wanted=7.0, count=20)
    (warning,) = result.warnings
    low, high = result.trained[0][0], result.trained[1][0]
    assert "7" in warning
    assert f"{high:.4g}" in warning
    assert 0 <= low < 0.05
    assert high == pytest.approx(1.0, abs=0.15), "the corner of the square has level 1"
    assert result.findings().json()["warnings"] == [warning]
    assert "is outside the training data (" in warning
    assert "and outside the model's predictions for training examples (" in warning
    assert "A requested value may be unreachable." in result.headline


def test_a_value_of_the_data_that_the_model_never_predicts_is_warned_of() -> None:
    """The model predicts one level only, so that any other is out of its reach, although the data has it."""

    class Constant(LevelSetModel):
        def tells(self, z0):
            return super().tells(0 * z0 + 0.25)

    (warning,) = generated(Constant(), wanted=0.5, count=20).warnings
    assert "outside the model's predictions for training examples (0.25 to 0.25)" in warning
    assert "outside the training data" not in warning
    assert generated(wanted=0.5, count=20).warnings == ()


def test_samples_far_from_the_data_are_marked() -> None:
    class Far(LevelSetModel):
        def decode(self, z):
            return 30 + super().decode(z)

    assert generated(Far(), wanted=0.3, count=20).far.all()
    assert generated(wanted=0.3, count=200).far.mean() < 0.3


def test_predictions_far_from_the_data_are_called_doubtful() -> None:
    """The judge never saw points like these, so what it predicts of them is no measurement."""
    data = linear_data()

    class Astray(Linear):
        def decode(self, z):
            return super().decode(z) + torch.tensor([0.0, 0.0, 40.0])

    astray = generate_with_property(Astray(), data, wanted=30.0, property_latents=1, tells=Linear().tells, count=20)
    doubt, apart = astray.doubts
    assert doubt.startswith("20 of 20 samples are far from the training data: no predictor was tested there")
    assert "the prediction of the judge can be wrong" in doubt
    assert "These predictions are doubtful, see the notes." in astray.headline
    assert "at least one of them is wrong" in apart
    assert astray.findings().json()["doubts"] == [doubt, apart]
    near = generate_with_property(Linear(), data, wanted=30.0, property_latents=1, tells=Linear().tells, count=20)
    assert near.doubts == ()
    assert "doubtful" not in near.headline


def test_a_model_that_the_judge_contradicts_is_called_wrong_or_the_judge_is() -> None:
    """The data has the property twice, and the model writes and reads only the second copy."""

    class Hides(nn.Module):
        def encode(self, x):
            return x[:, [2, 1]]

        def decode(self, z):
            return torch.stack([torch.full_like(z[:, 0], 30.0), z[:, 1], z[:, 0]], 1)

    points = np.array(linear_data().observe(np.arange(200)))
    points[:, 2] = points[:, 0]
    data = own_data(points, points[:, :1], "a")
    settings = {"property_latents": 1, "tells": Linear().tells, "count": 20}
    result = generate_with_property(Hides(), data, wanted=38.0, **settings)
    assert np.abs(result.model - 38).max() < 1, "the model reads the value that it wrote"
    assert "For 20 of 20 samples the model and the judge predict a so differently" in result.doubts[-1]
    assert "doubtful" in result.headline
    assert generate_with_property(Linear(), linear_data(), wanted=38.0, **settings).doubts == ()


def test_a_property_that_nobody_predicts_is_called_so() -> None:
    """The property is noise, so neither the code nor the judge has an error below that of predicting the mean."""
    x = linear_data().observe(np.arange(200))
    noise = np.random.default_rng(5).normal(30, 1, (200, 1)).astype(np.float32)
    result = generate_with_property(
        Linear(), own_data(x, noise, "noise"), wanted=30.0, property_latents=1,
        tells=Linear().tells, count=20, interval="judge",
    )  # fmt: skip
    assert [doubt.partition(" hardly ")[0] for doubt in result.doubts[:2]] == ["The code of the model", "The judge"]
    assert "predicting the mean has" in result.doubts[1]


def test_the_ends_of_a_range_are_inside_it() -> None:
    """0.1 in 32 bits is more than 0.1 in 64 bits, and the user names the latter."""
    scale = PropertyScale(("x",), ("",), np.asarray, np.asarray)
    ends = np.array([np.float64(np.float32(0.1))]), np.array([1.0])
    assert ends[0][0] > 0.1
    assert _unreachable({"x": 0.1}, scale, ends, ends) == []
    assert len(_unreachable({"x": 0.0999}, scale, ends, ends)) == 1


@pytest.mark.parametrize("offset", [0.0, 300.0, 1e4, 1e6])
def test_offsets_do_not_change_what_is_near(offset: float) -> None:
    """Of numbers like 10,000.3, squares in single precision have lost the distances."""
    generator = np.random.default_rng(0)
    known, held, samples = (torch.from_numpy(generator.normal(size=(n, 3))) for n in (500, 200, 100))
    apart = torch.cdist(samples, known, compute_mode="donot_use_mm_for_euclid_dist")
    numbers, distances, _ = neighbourhood(*((part + offset).double() for part in (known, held, samples)))
    assert (numbers == apart.argmin(1).numpy()).mean() > 0.9, "each column has a scale of its own"
    shifted = neighbourhood(*((part + offset).float() for part in (known, held, samples + 6)))
    assert shifted[2].all()
    near = neighbourhood(*((part + offset).float() for part in (known, held, samples)))
    assert near[2].mean() < 0.2
    np.testing.assert_allclose(near[1], distances, atol=0.2 if offset > 1e5 else 0.01)


def test_a_constant_column_of_large_numbers_decides_nothing() -> None:
    """A decoder misses a column that is 1000 everywhere by a tenth of a percent; that makes no sample far."""
    points = np.random.default_rng(0).normal(size=(500, 3)) * [1.0, 1.0, 0.0] + [0.0, 0.0, 1000.0]
    known, held = points[:400], points[400:]
    samples = held[:20] + np.array([0.0, 0.0, 1.0])
    _, _, far = neighbourhood(*(torch.from_numpy(part).float() for part in (known, held, samples)))
    assert far.mean() < 0.2
    judge = fit_judge(known, known[:, 0])
    np.testing.assert_allclose(judge(samples), judge(held[:20]), atol=0.05)


def test_pictures_have_one_scale_that_of_the_data(tmp_path) -> None:
    """A grey image stays grey, and images of floats are scaled by the range of the data, not each by its own."""
    rng = np.random.default_rng(0)
    places = rng.uniform(-2, 6, (200, 1)).astype(np.float32)
    images = np.broadcast_to(places[:, :, None, None], (200, 1, 4, 4)).copy()

    class Flat(nn.Module):
        def encode(self, x):
            return torch.cat([x.mean((1, 2, 3))[:, None], x[:, :, 0, 0]], 1)

        def decode(self, z):
            return z[:, :1, None, None].expand(-1, 1, 4, 4)

        def tells(self, z0):
            return z0

    world = own_data(images, places, "place")
    result = generate_with_property(Flat(), world, wanted=2.0, property_latents=1, tells=Flat().tells, count=3)
    low, high = result.limits
    assert -2 <= low < -1 < 5 < high <= 6
    result.save(tmp_path / "all")
    value = result.observations[0, 0, 0, 0]
    shown = np.asarray(Image.open(tmp_path / "all" / "pictures-00000.png"))[..., 0]
    assert (shown == round(255 * (value - low) / (high - low))).all()
    (part,) = [part for part in result.findings().parts if part.name == "pictures"]
    assert (part.limits, part.hint) == (
        (low, high),
        f"Pictures show numbers from {low:.4g} (black) to {high:.4g} (white).",
    )


def test_a_property_in_a_small_unit_is_not_shown_as_one_value() -> None:
    x = linear_data().observe(np.arange(200))
    values = (1e-12 * x[:, :2]).astype(np.float32)
    world = own_data(x, values, "a (m)", "b (m)")
    result = generate_with_property(Linear(), world, wanted="a=3e-11", property_latents=1, count=20)
    shown = result.findings().json()["properties"]
    assert shown[0]["wanted"] == "3e-11"
    low, _, high = shown[1]["wanted"].partition(" to ")
    assert float(low) < float(high)


def test_the_same_seed_gives_the_same_samples() -> None:
    first, again, other = (generated(wanted=0.3, count=20, seed=seed) for seed in (3, 3, 4))
    assert np.array_equal(first.observations, again.observations)
    assert not np.array_equal(first.observations, other.observations)
    more = generated(wanted=0.3, count=35, seed=3)
    assert np.ptp(more.high - more.low) == pytest.approx(0, abs=1e-9)
    assert (more.high - more.low)[0] == pytest.approx((first.high - first.low)[0]), "by the seed, not by the number"


def test_the_range_of_the_training_data_is_that_of_all_training_examples(tmp_path) -> None:
    """The judge sees a part of them; the largest property of all is no warning."""
    world = ToyMolecules(count=400, tested=80)
    run = trained(tmp_path, world, ConditionalInvariance(copies=1), PropertyAutoencoderConfig(
        4, 1, MLP((8,), (8,)), property_widths=(8,)))  # fmt: skip
    largest = world.values[:320, 0].max()
    result = generate_with_property(run, wanted=largest - 1e-3, count=4, judged_on=60, molecules=0)
    assert not any("outside the training data" in warning for warning in result.warnings)
    assert any("learned from 60 of the 320 training examples" in note for note in result.notes)
    assert "as the judge predicts" in result.headline
    beyond = generate_with_property(run, wanted=largest + 1, count=4, judged_on=60, molecules=0)
    assert f"to {largest:.4g} kcal/mol" in beyond.warnings[0]


def test_uniform_codes_stay_within_their_reach() -> None:
    result = generated(wanted=0.3, count=500, draw="uniform", reach=0.5)
    angles = WORLD.angles_of(WORLD.observe(np.arange(800))[:, :2])[:, 0]
    assert np.abs(result.codes - angles.mean()).max() < 0.5 * angles.std() * 1.2


# Models of ours, several properties, units


@pytest.mark.parametrize("objective", [ConditionalInvariance(copies=1), PropertyBetaVAE(), STIB()])
def test_every_objective_with_a_property_generates(tmp_path, objective) -> None:
    run = trained(tmp_path, LevelSets(count=900, tested=100), objective, SMALL)
    result = generate_with_property(run, wanted=0.3, count=10, judged_on=200)
    assert result.observations.shape == (10, 5)
    assert (result.wanted == 0.3).all()
    assert not any("all data of the run" in note for note in result.notes)


def test_the_wanted_property_itself_is_decoded() -> None:
    """A decoder that gets the property is given the target of exactly the value that was asked for."""
    world = LevelSets(count=900, tested=100)
    model = build_model(RunConfig(world, ConditionalInvariance(copies=1), SMALL, TrainingConfig(1)))
    seen = []
    decode = model.decode_property
    model.decode_property = lambda value, z1: seen.append(value) or decode(value, z1)
    generate_with_property(model, world, wanted=0.42, count=7, judged_on=200)
    assert torch.cat(seen).numpy() == pytest.approx(np.tile(world.embed_level(0.42), (7, 1)), abs=1e-6)


def test_a_decoder_of_the_code_takes_the_code_that_tells_the_nearest_property(tmp_path) -> None:
    model = PropertyAutoencoderConfig(5, 2, MLP((8,), (8,)), property_widths=(8,), decoder_input="code")
    run = trained(tmp_path, LevelSets(count=900, tested=100), HybridDVIB(), model)
    result = generate_with_property(run, wanted=0.3, count=5, judged_on=200)
    assert any("the nearest property" in note for note in result.notes)


def test_several_properties_and_those_that_are_not_named(tmp_path) -> None:
    world = Properties(MiniSprites(), "x,scale")
    run = trained(tmp_path, world, ConditionalInvariance(copies=1), PropertyAutoencoderConfig(
        6, 2, MLP((8,), (8,)), property_widths=(8,)))  # fmt: skip
    both = generate_with_property(run, wanted="x=0.2,scale=0.8", count=4, judged_on=200)
    assert both.wanted.tolist() == [[0.2, 0.8]] * 4
    one = generate_with_property(run, wanted={"scale": 0.8}, count=40, judged_on=200)
    assert (one.wanted[:, 1] == 0.8).all()
    assert np.ptp(one.wanted[:, 0]) > 0, "x is as the code tells of training examples"
    place = one.save(tmp_path / "out")
    assert place == tmp_path / "out" / "report.html"
    assert len(list((tmp_path / "out").glob("pictures-*.png"))) == 40
    page = place.read_text()
    assert "data:image/png" in page
    assert "<b>32 to 39</b>" in page, "rows of eight, enlarged"
    assert all(f"{word} {name}" in page for word in ("Wanted", "Judge") for name in ("x", "scale"))


def test_molecules_are_asked_for_in_their_unit(tmp_path) -> None:
    world = ToyMolecules(count=400, tested=80)
    run = trained(tmp_path, world, ConditionalInvariance(copies=1), PropertyAutoencoderConfig(
        4, 1, MLP((8,), (8,)), property_widths=(8,)))  # fmt: skip
    result = generate_with_property(run, wanted="100 kcal/mol", count=6, judged_on=200, molecules=0)
    assert result.scale.titles == ("gap (kcal/mol)",)
    values = world.values[:, 0]
    assert result.judge.mean() == pytest.approx(values.mean(), abs=3 * values.std()), "not in standard deviations"
    assert result.truth is None
    assert "unknown" in result.findings().of(type(result.findings().parts[1]))[0].hint


# Refusals


def asked(world, words):
    return property_scale(world).asked(words)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("", "no property is given"),
        ("high", "needs a number"),
        ("nan", "needs a number"),
        (float("nan"), "finite number"),
        ("0.1,0.2", "expected 1 value, for .*, but got 2 values"),
        ([0.1, 0.2], "has shape"),
        ("levle=0.3", "did you mean level|has no property"),
        ("0.3 m", "has no unit"),
        ("level=0.1,level=0.2", "twice"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_in_a_sentence(words, sentence) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        asked(LevelSets(count=20, tested=4), words)
    assert "\n" not in str(caught.value)


def test_a_wrong_unit_and_a_class_are_refused() -> None:
    with pytest.raises(ValueError, match="has the unit kcal/mol; got '5 eV'"):
        asked(ToyMolecules(count=40, tested=4), "5 eV")
    with pytest.raises(ValueError, match="is a class: use the view properties"):
        property_scale(Task(MiniSprites(), "shape"))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({}, "which property"),
        ({"wanted": 0.3, "count": 0}, "at least 1"),
        ({"wanted": 0.3, "like": 5000}, "no observation 5000"),
        ({"wanted": 0.3, "coverage": 1.0}, "between 0 and 1"),
        ({"wanted": 0.3, "coverage": 0.999}, "too few for intervals"),
        ({"wanted": 0.3, "reach": 0.0}, "reach must be positive"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        generated(**settings)


# Conformal intervals and sets


def test_the_conformal_radius_is_the_order_statistic_that_covers() -> None:
    """Over many splits the coverage of a new example is ⌈(n + 1)c⌉ / (n + 1) exactly."""
    generator = np.random.default_rng(0)
    errors = generator.exponential(size=(4000, 20))
    radii = np.array([conformal_radius(row[:19, None], 0.9)[0] for row in errors])
    assert (errors[:, 19] <= radii).mean() == pytest.approx(18 / 20, abs=4 * math.sqrt(0.9 * 0.1 / 4000))
    with pytest.raises(ValueError, match="between 0 and 1"):
        conformal_radius([[1.0]], 1.5)
    with pytest.raises(ValueError, match="finite"):
        conformal_radius([[np.nan]], 0.5)
    assert covered_share([[1.0], [3.0]], [[0.0]] * 2, [[2.0]] * 2).tolist() == [0.5]


def test_uniqueness_and_novelty_count_words() -> None:
    words = ["a"] * 500 + [str(number) for number in range(500)]
    assert uniqueness(words, 1000) == pytest.approx(501 / 1000)
    assert uniqueness(words, 10_000) is None
    assert novelty(words, {"a", "0"}) == pytest.approx(499 / 501)


# Through the command line


def test_generate_writes_tables_pictures_and_findings(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    run = trained(tmp_path, LevelSets(count=900, tested=100), ConditionalInvariance(copies=1), SMALL)
    assert main(["generate", run.id, "--property", "0.3", "--n", "25", "--judged-on", "200", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["count"] == 25
    assert document["settings"]["property"] == "0.3"
    folder = run.path / "findings" / "generate"
    table = parquet.read_table(folder / "samples.parquet")
    assert table.num_rows == 25
    assert {"level_wanted", "level_model", "level_judge", "level_true", "level_low", "level_high", "x_5"} <= set(
        table.column_names
    )
    assert arrow_csv.read_csv(folder / "samples.csv").num_rows == 25
    assert (folder / "arrays.safetensors").exists()
    (kept,) = kept_findings(run)
    assert kept.kind == "generate"
    again = kept.load()[0]
    assert {"properties", "coverage", "properties-chart", "level-sets", "samples"} <= {
        part.name for part in again.parts
    }
    assert len(again.of(SampleTable)[0].samples["level_true"]) == 25
    assert main(["generate", run.id, "--like", "3", "--n", "4", "--judged-on", "200", "--out", "some.csv"]) == 0
    assert arrow_csv.read_csv(tmp_path / "some.csv").num_rows == 4


def test_the_command_refuses_in_a_sentence(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    run = trained(tmp_path, LevelSets(count=900, tested=100), ConditionalInvariance(copies=1), SMALL)
    for words, sentence in (
        ([], "which model?"),
        ([run.id], "which property?"),
        ([run.id, "--property", "much"], "needs a number"),
        ([run.id, "--property", "0.3", "--data", "sprites"], "leave --data out"),
        (["model.py:make"], "which data?"),
    ):
        assert main(["generate", *words]) == 2
        assert sentence in capsys.readouterr().err
