"""Walks along the parts of a code, when latents wake, beyond the trained square, and frontiers."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from polariscope.cli import main
from polariscope.examination.awakening import awakening
from polariscope.examination.extrapolation import check_extrapolation
from polariscope.examination.frontier import Audited, audit_frontier, frontier, raise_weight
from polariscope.examination.invariance import audit_invariance
from polariscope.examination.property_traversals import level_radius_error, traverse_property
from polariscope.findings import Chart
from polariscope.nets.architecture import MLP
from polariscope.nets.property_autoencoder import PropertyAutoencoderConfig
from polariscope.objectives.annealing import Annealing
from polariscope.objectives.conditional_invariance import ConditionalInvariance
from polariscope.objectives.stib import STIB
from polariscope.training import RunConfig, TrainingConfig, train
from polariscope.worlds.points.level_sets import LevelSets
from polariscope.worlds.renderers.mini_sprites import MiniSprites
from polariscope.worlds.views.properties import Properties

WORLD = LevelSets(count=900, tested=300, rotated=False, padding=0.0, noise=0.02)


class LevelSetModel(nn.Module):
    """The level and the angle of a point, and back; ``shrunk`` decodes a radius that is too small."""

    shrunk = 1.0

    def encode(self, x):
        square = x[:, :2].double().numpy()
        return torch.from_numpy(np.column_stack([WORLD.level_of(square), WORLD.angles_of(square)[:, 0]])).float()

    def decode(self, z):
        u, v = 2 * z[:, 0].clamp_min(0).sqrt() * z[:, 1].cos(), (2 * z[:, 0]).clamp_min(0).sqrt() * z[:, 1].sin()
        flat = self.shrunk * torch.stack([u + v, u - v], 1) / 2**0.5
        return torch.cat([flat, torch.zeros(len(z), 3)], 1)

    def tells(self, z0):
        return torch.cat([z0, torch.zeros(len(z0), 2)], 1)


def walked(model, **settings):
    return traverse_property(model, WORLD, property_latents=1, tells=model.tells, count=300, **settings)


@pytest.mark.spec("000/F069")
def test_walks_of_an_exact_model_draw_whole_ellipses_of_their_levels() -> None:
    result = walked(LevelSetModel(), levels=10, steps=60)
    assert result.along_z1.shape == (10, 1, 60, 5)
    gaps = np.diff(result.levels[:, 0])
    assert gaps == pytest.approx(gaps[0], abs=1e-5), "equidistant levels"
    assert result.radius_error == pytest.approx(0, abs=1e-4)
    assert result.level_error == pytest.approx(0, abs=1e-4)
    for level, walk in zip(result.levels[:, 0], result.along_z1[:, 0], strict=True):
        u, v = (walk[:, 0] + walk[:, 1]) / 2**0.5, (walk[:, 0] - walk[:, 1]) / 2**0.5
        phi = np.arctan2(v, u)
        radius = np.sqrt(level / (np.cos(phi) ** 2 / 4 + np.sin(phi) ** 2 / 2))
        assert np.hypot(u, v) == pytest.approx(radius, abs=1e-4), "r(phi) of the spec"
        assert np.histogram(phi, 8, (-np.pi, np.pi))[0].min() > 0, "the whole way round"
    shrunk = LevelSetModel()
    shrunk.shrunk = 0.8
    assert walked(shrunk).radius_error == pytest.approx(0.2, abs=1e-4)
    (chart,) = (part for part in result.parts() if isinstance(part, Chart))
    panel = chart.draw().axes[0]
    assert len(panel.lines) == 20, "ten level sets and ten walks"


def test_the_radius_error_is_that_of_the_formula_in_three_dimensions() -> None:
    world = LevelSets(dimension=3)
    around, down = np.linspace(0, 6, 40), np.linspace(0.1, 3, 40)
    points = world.level_set(0.7, around, down)
    assert level_radius_error(world, points, np.full(40, 0.7)) == pytest.approx(0, abs=1e-9)
    assert level_radius_error(world, 0.5 * points, np.full(40, 0.7)) == pytest.approx(0.5)


SPRITES = Properties(MiniSprites(), "x")


class SpriteModel(nn.Module):
    """x of a mini-sprite as Z0, the other factors as Z1; ``mixed`` lets Z0 change the scale as well."""

    mixed = False

    def __init__(self) -> None:
        super().__init__()
        images = SPRITES.observe(np.arange(len(SPRITES))).astype(np.float32).reshape(len(SPRITES), -1)
        self.images = torch.from_numpy(images / 255)

    def encode(self, x):
        numbers = torch.cdist(x.flatten(1), self.images).argmin(1).numpy()
        shape, scale, turn, across, down = SPRITES.of.grid.to_factors(numbers).T
        return torch.from_numpy(np.column_stack([across / 5, shape, scale, turn, down])).float()

    def decode(self, z):
        table = z.round().long().numpy()
        across = (5 * z[:, 0]).round().long().clamp(0, 5).numpy()
        scale = (np.clip(table[:, 2], 0, 2) + across // 3) % 3 if self.mixed else np.clip(table[:, 2], 0, 2)
        columns = [np.clip(table[:, 1], 0, 2), scale, np.clip(table[:, 3], 0, 3), across, np.clip(table[:, 4], 0, 5)]
        return self.images[SPRITES.of.grid.to_index(np.stack(columns, 1))].reshape(-1, 1, 12, 12)

    def tells(self, z0):
        return z0


@pytest.mark.spec("000/F078")
def test_a_walk_along_z0_changes_the_property_alone_and_z1_everything_else() -> None:
    model = SpriteModel()
    result = traverse_property(model, SPRITES, property_latents=1, tells=model.tells, levels=6, steps=8, count=400)
    changes = {change.factor: change for change in result.changes}
    assert changes["x"].asked
    assert changes["x"].z0 == pytest.approx(1.0), "from one end to the other"
    assert all(change.z0 == 0 for name, change in changes.items() if name != "x")
    assert changes["x"].z1 == 0
    assert all(change.z1 > 0.2 for name, change in changes.items() if name != "x")
    names = [part.name for part in result.parts()]
    assert names == ["factor-changes", "traversals"]
    strips = result.parts()[1].strips
    assert [strip.label for strip in strips] == ["Z0", "z1", "z2", "z3", "z4"]
    assert strips[0].images.shape == (1, 6, 1, 12, 12)
    mixing = SpriteModel()
    mixing.mixed = True
    mixed = traverse_property(mixing, SPRITES, property_latents=1, tells=model.tells, levels=6, steps=8, count=400)
    assert {change.factor: change.z0 for change in mixed.changes}["scale"] > 0.2


@pytest.mark.spec("000/F079")
def test_levels_are_checked_beyond_the_trained_square() -> None:
    """The exact model knows levels everywhere; one that clips its code at the corner of the square does not."""

    class Clipping(LevelSetModel):
        def encode(self, x):
            code = super().encode(x)
            code[:, 0] = code[:, 0].clamp_max(1.0)
            return code

    exact, clipped = (
        check_extrapolation(model, WORLD, property_latents=1, tells=model.tells, count=300, reaches=(1.0, 1.5, 2.0))
        for model in (LevelSetModel(), Clipping())
    )
    assert [(shell.inner, shell.outer) for shell in exact.shells] == [(0.0, 1.0), (1.0, 1.5), (1.5, 2.0)]
    for shell in exact.shells:
        assert shell.level_error == pytest.approx(0, abs=1e-5)
        assert shell.generated == pytest.approx(0, abs=1e-5)
    errors = [shell.level_error for shell in clipped.shells]
    assert errors[0] == pytest.approx(0, abs=1e-5)
    assert errors[1] < errors[2]
    assert errors[2] > 0.3
    assert clipped.shells[2].x_error > clipped.shells[0].x_error + 0.1
    assert len(clipped.findings().json()["shells"]) == 3
    with pytest.raises(ValueError, match="model of level-sets"):
        check_extrapolation(SpriteModel(), SPRITES, property_latents=1)
    with pytest.raises(ValueError, match="must be positive and increasing"):
        check_extrapolation(LevelSetModel(), WORLD, property_latents=1, reaches=(2.0, 1.0))


# Frontiers


def audits(model: str, offset: float, weights=((1.0, 0.10), (2.0, 0.20)), spread: float = 0.001, y: float = 0.25):
    return [
        Audited(model, weight, seed, x, y, offset + 0.1 * x + spread * seed)
        for weight, x in weights
        for seed in range(5)
    ]


@pytest.mark.spec("000/F110")
def test_models_are_compared_at_the_same_error_of_observations() -> None:
    """Theirs is better in its one row with twice the error, and worse where the errors are the same."""
    ours = audits("ours", 0.02, ((1.0, 0.05), (2.0, 0.10)))
    theirs = audits("theirs", 0.04, ((1.0, 0.08), (2.0, 0.20)))
    result = frontier(ours + theirs).matched("ours", "theirs")
    assert result is not None
    assert result.x_error == pytest.approx(0.08), "the smallest that both reach"
    assert result.deviation == pytest.approx(0.02 + 0.008 + 0.002)
    assert result.rival_deviation == pytest.approx(0.04 + 0.008 + 0.002)
    assert result.decided
    blurred = frontier(audits("ours", 0.02, spread=0.02) + audits("theirs", 0.03, spread=0.02))
    assert not blurred.matched("ours", "theirs").decided, "the intervals overlap"
    few = [row for row in ours + theirs if row.seed < 3]
    assert not frontier(few).matched("ours", "theirs").decided, "fewer than five seeds"
    apart = frontier(audits("ours", 0.02, ((1.0, 0.05),)) + audits("theirs", 0.04, ((1.0, 0.09),)))
    assert apart.matched("ours", "theirs") is None, "they never meet"
    assert "cannot be compared" in apart.headline
    unequal = frontier(audits("ours", 0.02) + audits("theirs", 0.04, y=0.33))
    assert unequal.matched("ours", "theirs") is None, "the error of the property differs"
    document = frontier(ours + theirs).findings()
    assert len(document.json()["points"]) == 4
    assert "better than theirs" in document.headline
    single = frontier(row for row in ours + theirs if not row.seed).records()
    assert [row["low"] for row in single] == [None] * 4, "one seed has no interval"
    assert all(row["low"] < row["deviation"] < row["high"] for row in frontier(few).records())


@pytest.mark.spec("000/F124")
def test_the_probe_of_z1_stands_beside_the_deviation_of_every_point() -> None:
    probed = [replace(row, leakage=0.1 * row.seed) for row in audits("ours", 0.02)]
    result = frontier(probed + audits("theirs", 0.04))
    assert [row["leakage"] for row in result.records()] == [pytest.approx(0.2)] * 2 + [None] * 2
    points = next(part for part in result.findings().parts if part.name == "points")
    assert "R² of the property from Z1" in {column.title for column in points.columns}


@pytest.mark.spec("000/F110")
def test_codes_that_do_not_encode_the_property_are_shown_and_never_compared() -> None:
    mute = [replace(row, tells_property=row.seed > 0) for row in audits("mute", 0.0)]
    result = frontier(audits("ours", 0.02) + mute)
    assert result.matched("ours", "mute") is None
    assert "cannot be compared" in result.headline
    document = result.findings()
    assert "does not encode the property: 1.0, 2.0." in document.notes[-1]
    assert [row["tells_property"] for row in result.records()] == [True, True, False, False]
    both = mute + [replace(row, model="other") for row in mute]
    assert frontier(both).headline == "No code encodes the property, so its invariance is meaningless"


@pytest.mark.spec("000/F110")
def test_models_are_not_compared_by_a_judge_that_predicts_nothing() -> None:
    """Its predictions hardly move with anything, so the difference between two models is no evidence."""
    rows = audits("ours", 0.02) + audits("theirs", 0.04)
    assert "better than theirs" in frontier(rows).headline
    result = frontier(rows, judged=False)
    assert result.matched("ours", "theirs") is None
    assert result.headline.startswith("The judge hardly predicts the property of real observations, so the models")


@pytest.mark.spec("000/F110")
def test_models_are_compared_where_their_errors_of_the_property_meet() -> None:
    """At the smallest common error of observations the property's errors differ; they meet at a larger one."""
    theirs = [replace(row, y_error=0.4 if row.setting == 1.0 else 0.25) for row in audits("theirs", 0.04)]
    result = frontier(audits("ours", 0.02) + theirs).matched("ours", "theirs")
    assert result is not None
    assert result.x_error == pytest.approx(0.20)


def test_runs_of_different_data_are_not_compared() -> None:
    worlds = ({"name": "level-sets", "dimension": 2, "count": 300}, {"name": "level-sets", "dimension": 3, "count": 30})
    runs = [SimpleNamespace(id=f"run {number}", config={"world": world}) for number, world in enumerate(worlds)]
    with pytest.raises(ValueError, match="must be the same, but its dimension is 2 for run 0 and 3 for run 1"):
        audit_frontier(runs)


def test_a_weak_adversary_is_named(tmp_path) -> None:
    model = PropertyAutoencoderConfig(5, 2, MLP((8,), (8,)), property_widths=(8,), decoder_input="code")
    objective = STIB(adversary_widths=(8,))
    config = RunConfig(LevelSets(count=400, tested=60), objective, model, TrainingConfig(4, 16, log_every=1, seed=100))
    run = train(config, tmp_path / "runs", quiet=True)
    (weak,) = [note for note in audit_invariance(run, judged_on=60).notes if "adversary was weak" in note]
    assert "% of the variance at the end of training" in weak
    notes = audit_frontier([run], judged_on=60).notes
    assert any(note.startswith(f"{run.id}: The adversary was weak") for note in notes)


@pytest.mark.spec("000/F110")
def test_the_weight_is_raised_until_the_errors_rise() -> None:
    tried = []

    def audit(weight: float) -> Audited:
        tried.append(weight)
        return Audited("ours", weight, 0, 0.1 * (1 + 0.03 * weight), 0.25, 0.1 / (1 + weight))

    curve, chosen = raise_weight(audit, [0, 1, 2, 4, 8], tolerance=0.1)
    assert tried == [0, 1, 2, 4], "4 costs 12 % of the error of observations, and 8 is not tried"
    assert [point.setting for point in curve] == tried
    assert chosen.setting == 2
    with pytest.raises(ValueError, match="must increase"):
        raise_weight(audit, [1, 1])


def test_the_signals_of_snapshots_stand_beside_the_theory(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    objective = ConditionalInvariance(Annealing.between(2, 100, 12, 12), copies=1)
    model = PropertyAutoencoderConfig(5, 2, MLP((8,), (8,)), property_widths=(8,))
    config = RunConfig(
        LevelSets(count=900, tested=100), objective, model, TrainingConfig(12, 32, snapshot_every=4, seed=100)
    )
    run = train(config, tmp_path / "runs", quiet=True)
    result = awakening(run, count=300)
    assert result is not None
    assert result.steps.tolist() == [4, 8, 12]
    assert result.lams == pytest.approx([objective.lam.at(step) for step in (4, 8, 12)])
    assert result.signals.shape == (3, 5)
    assert result.predicted["an observation's component"] == pytest.approx((3, 3), rel=0.25), "1/(2 · ½ · ⅓)"
    assert result.predicted["the property"][0] == pytest.approx(15.7, rel=0.8), (
        "1/(2 · 0.0319), by a judge of 300 points"
    )
    result.signals[:] = [[0.5, 2, 2, 0, 0], [2, 2, 0.5, 0, 0], [2, 2, 2, 0, 0]]
    assert result.woken == [result.lams[1], result.lams[0], result.lams[2], None, None]
    assert "The last latent becomes active 10 times earlier" in result.parts()[0].hint
    plain = RunConfig(LevelSets(count=900, tested=100), objective, model, TrainingConfig(2, 32))
    assert awakening(train(plain, tmp_path / "runs", quiet=True)) is None
    assert main(["invariance", run.id, "--count", "100", "--judged-on", "100", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {"woken", "deviations", "latents"} <= set(document)
    weaker = replace(objective, beta=1.0)
    other = RunConfig(
        LevelSets(count=900, tested=100), weaker, model, TrainingConfig(12, 32, snapshot_every=4, seed=101)
    )
    second = train(other, tmp_path / "runs", quiet=True)
    points = audit_frontier([run, second], count=100, judged_on=100).points
    assert [point.setting for point in points] == ["beta 5.0", "beta 1.0"]
    assert points[0].leakage == audit_invariance(run, count=100, judged_on=100).leakage
    words = ["--count", "100", "--judged-on", "100", "--out", "frontier.html"]
    assert main(["invariance", run.id, second.id, *words]) == 0
    assert "needs a second model" in " ".join(capsys.readouterr().out.split())
    assert "conditional-invariance" in (tmp_path / "frontier.html").read_text()
