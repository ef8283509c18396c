"""The invariance audit on models whose truth is known: an exact one, a forger, one that tells nothing, and a run."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from polariscope.cli import main
from polariscope.examination.invariance import audit_invariance
from polariscope.examination.invariance_document import invariance_document
from polariscope.lab import Store
from polariscope.measures.judge import explained, fit_judge
from polariscope.nets.architecture import MLP
from polariscope.nets.property_autoencoder import PropertyAutoencoderConfig
from polariscope.objectives.bottleneck import HybridDVIB
from polariscope.objectives.conditional_invariance import ConditionalInvariance
from polariscope.training import RunConfig, TrainingConfig, train
from polariscope.worlds.points.level_sets import LevelSets
from polariscope.worlds.points.toy_molecules import ToyMolecules
from polariscope.worlds.renderers.mini_sprites import MiniSprites
from polariscope.worlds.splits import OwnSplit
from polariscope.worlds.views.properties import Properties
from polariscope.worlds.world import ArrayWorld

WORLD = LevelSets(count=900, tested=200, rotated=False, padding=0.0, noise=0.02)


class LevelSetModel(nn.Module):
    """The level and the angle of a point, and back: the perfect model of ellipses."""

    def encode(self, x):
        square = x[:, :2].double().numpy()
        level, angle = WORLD.level_of(square), WORLD.angles_of(square)[:, 0]
        return torch.from_numpy(np.column_stack([level, angle])).float()

    def decode(self, z):
        u, v = 2 * z[:, 0].clamp_min(0).sqrt() * z[:, 1].cos(), (2 * z[:, 0]).clamp_min(0).sqrt() * z[:, 1].sin()
        flat = torch.stack([u + v, u - v], 1) / 2**0.5
        return torch.cat([flat, torch.zeros(len(z), 3)], 1)

    def tells(self, z0):
        return torch.cat([z0, torch.zeros(len(z0), 2)], 1)


class Forger(LevelSetModel):
    """Its points have any level, and the wanted one in a coordinate that nobody looks at."""

    def encode(self, x):
        code = super().encode(x)
        code[:, 0] = torch.where(x[:, 4] > 5e-4, 1e3 * x[:, 4] - 1, code[:, 0])
        return code

    def decode(self, z):
        free = torch.cat([(0.25 + 0.24 * torch.sin(7 * z[:, 1:])).abs(), z[:, 1:]], 1)
        x = super().decode(free)
        x[:, 4] = 1e-3 * (1 + z[:, 0])
        return x


class Mute(LevelSetModel):
    """Tells the same of every point."""

    def tells(self, z0):
        return torch.cat([0 * z0 + 0.25, torch.zeros(len(z0), 2)], 1)


def audited(model, **settings):
    return audit_invariance(model, WORLD, property_latents=1, tells=model.tells, judged_on=400, **settings)


@pytest.mark.spec("000/F063", "000/F064")
def test_an_exact_decoder_of_level_sets_keeps_the_property() -> None:
    result = audited(LevelSetModel(), samples=2)
    assert (result.count, result.samples, result.x_error) == (200, 2, pytest.approx(0, abs=1e-5))
    assert result.of("model").generated == pytest.approx(0, abs=1e-5)
    assert result.of("truth").generated == pytest.approx(0, abs=1e-5)
    assert result.tells_property
    assert not result.hidden
    assert "keeps the property" in result.headline


@pytest.mark.spec("000/F063", "000/F064")
def test_deviations_are_summed_over_numbers_and_averaged_over_examples() -> None:
    """A decoder of levels 1.2 times too high: the property moves by 0.2 times the mean level, by every measure."""

    class High(LevelSetModel):
        def decode(self, z):
            return super().decode(z * torch.tensor([1.2, 1.0]))

    held = WORLD.held_out
    levels = WORLD.level_of(WORLD.factors_of(held))
    result = audited(High(), samples=3)
    for opinion in ("model", "truth"):
        assert result.of(opinion).generated == pytest.approx(0.2 * levels.mean(), rel=1e-4)
    x, again = WORLD.observe(held), 1.2**0.5 * WORLD.observe(held)
    assert result.x_error == pytest.approx(np.abs(again - x).sum(1).mean(), rel=1e-4)
    y = WORLD.target_of(held)
    assert result.y_error == pytest.approx(np.abs(y - np.column_stack([levels, 0 * levels, 0 * levels])).sum(1).mean())
    assert result.mean_y_error == pytest.approx(np.abs(y - y.mean(0)).sum(1).mean())


@pytest.mark.spec("000/F064")
def test_a_property_in_invisible_detail_is_named_as_hidden() -> None:
    """Trap T1: the published metric is 0, and the true property is anywhere."""
    result = audited(Forger())
    assert result.of("model").generated < 1e-3, "the model fools itself"
    assert result.of("truth").generated > 0.1
    assert result.of("truth").real < 1e-3
    assert result.hidden
    assert "hides the property" in result.headline
    assert result.findings().json()["hidden"] is True


@pytest.mark.spec("000/F063")
def test_a_code_that_does_not_tell_the_property_is_gated() -> None:
    result = audited(Mute())
    assert result.of("model").generated == 0, "perfect by the published metric"
    assert result.of("model").excess == 1, "0 is no more than 0"
    assert result.y_error >= 0.9 * result.mean_y_error
    assert "does not encode the property" in result.headline
    assert not result.hidden


@pytest.mark.spec("000/F124")
def test_the_property_is_looked_for_in_z1() -> None:
    """A second latent that copies the level beside the angle leaks it; the angle alone does not."""

    class Leaking(LevelSetModel):
        def encode(self, x):
            code = super().encode(x)
            return torch.cat([code, code[:, :1]], 1)

        def decode(self, z):
            return super().decode(z[:, :2])

    clean, leaking = audited(LevelSetModel()), audited(Leaking())
    assert clean.leakage < 0.3
    assert leaking.leakage > 0.9
    assert leaking.ceiling > 0.9
    assert "Z1 also predicts the property" in leaking.headline


@pytest.mark.spec("000/F062")
def test_selected_latents_have_more_signal_than_noise() -> None:
    config = RunConfig(
        LevelSets(count=600, tested=100),
        ConditionalInvariance(copies=1),
        PropertyAutoencoderConfig(5, 2, MLP((8,), (8,)), property_widths=(8,)),
        TrainingConfig(2, 32),
    )
    from polariscope.training.run import train_in_memory

    model = train_in_memory(config)
    with torch.no_grad():
        model.head.weight.mul_(torch.tensor([50.0, 0, 0, 50, 0])[:, None])
    result = audit_invariance(model, config.world, judged_on=200)
    assert result.noise.tolist() == [1.0] * 5
    assert result.selected.tolist() == [True, False, False, True, False]
    assert result.selected_counts == (1, 1)
    assert [row["part"] for row in result.records()] == ["Z0", "Z0", "Z1", "Z1", "Z1"]
    (chart,) = (part for part in result.findings().parts if part.name == "signals")
    assert len(chart.draw().axes[0].patches) == 10


def test_a_judge_that_predicts_nothing_gives_no_verdict() -> None:
    """The model reads the parity of a bit pattern, which kernel regression cannot learn: that the judge sees the same
    error everywhere does not show that the property is kept."""
    bits = np.random.default_rng(0).integers(0, 2, (400, 24)).astype(np.float32)
    parity = bits.sum(1, keepdims=True) % 2

    class Parity(nn.Module):
        def encode(self, x):
            return torch.cat([x.sum(1, keepdim=True) % 2, x[:, 1:]], 1)

        def decode(self, z):
            return torch.cat([z[:, :1], z[:, 1:]], 1)  # Z1 decides the parity, whatever Z0 is

    world = Properties(ArrayWorld(bits + 0.001, parity + 0.001 * bits[:, :1], ("parity",)))
    model = Parity()
    result = audit_invariance(model, world, property_latents=1, tells=lambda z0: z0, count=200)
    assert result.tells_property
    assert result.judge_error > 0.9 * result.mean_y_error
    assert not result.judged
    assert not result.lost
    assert "Whether the model keeps the property is unknown" in result.headline
    assert result.findings().json()["judged"] is False
    assert not result.leaks, "what the probe finds is below chance, and so is what the judge finds"


def test_sums_over_unequal_properties_are_named() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3)).astype(np.float32)

    class Copy(nn.Module):
        def encode(self, x):
            return x

        def decode(self, z):
            return z

    values = x[:, :2] * np.array([1.0, 500.0], np.float32)
    result = audit_invariance(
        Copy(), Properties(ArrayWorld(x, values, ("size (m)", "mass (g)")), "size (m),mass (g)"), property_latents=2
    )
    assert result.unit == "", "a sum of metres and grams has no unit"
    assert any("mass (g) is spread" in note and "mainly about mass (g)" in note for note in result.notes)
    alike = audit_invariance(Copy(), Properties(ArrayWorld(x, x[:, :1], ("size (m)",))), property_latents=1)
    assert alike.unit == "m"
    assert not any("is spread" in note for note in alike.notes)


def test_generated_observations_far_from_the_data_are_counted() -> None:
    """Z1 of the data lies near 50, and is drawn around 0, as published: no such point was ever seen."""
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.normal(size=300), rng.normal(50, 1, 300)]).astype(np.float32)

    class Copy(nn.Module):
        def encode(self, x):
            return x

        def decode(self, z):
            return z

    world = Properties(ArrayWorld(x, x[:, :1], ("a",)))
    published, centred = (
        audit_invariance(Copy(), world, property_latents=1, centred=centred) for centred in (False, True)
    )
    assert published.far == 1.0
    assert any(note.startswith("100% of the generated observations are far") for note in published.notes)
    assert centred.far < 0.25
    assert not any("are far" in note for note in centred.notes)


def test_a_model_without_a_property_head_gets_a_fitted_one() -> None:
    result = audit_invariance(LevelSetModel(), WORLD, property_latents=1, judged_on=400)
    assert any("a judge was fitted to Z0" in note for note in result.notes)
    assert result.tells_property


def test_molecules_are_judged_in_their_own_unit() -> None:
    world = ToyMolecules(count=300, tested=60)
    model = PropertyAutoencoderConfig(4, 1, MLP((8,), (8,)), property_widths=(8,))
    config = RunConfig(world, ConditionalInvariance(copies=1), model, TrainingConfig(2, 32))
    from polariscope.training.run import train_in_memory

    result = audit_invariance(train_in_memory(config), world, judged_on=200)
    assert result.unit == "kcal/mol"
    assert result.mean_y_error > 10
    assert result.judge_error < result.mean_y_error
    assert result.of("truth") is None
    assert any("cannot be computed" in note for note in result.notes)


def test_the_judge_learns_and_refuses_what_it_cannot() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (300, 3))
    y = x[:, :1] ** 2 + x[:, 1:2]
    judge = fit_judge(x[:200], y[:200])
    assert explained(judge(x[200:]), y[200:]) > 0.9
    np.testing.assert_array_equal(judge(x[200:]), fit_judge(x[:200], y[:200])(x[200:]))
    for call, sentence in (
        (lambda: fit_judge(x, y[:5]), "a row of properties for each of 300"),
        (lambda: fit_judge(x[:4], y[:4]), "at least 8 examples"),
        (lambda: fit_judge(x * np.nan, y), "finite numbers"),
        (lambda: judge(x[:, :2]), "observations of 3 numbers; got 2"),
        (lambda: explained([[1.0]], [[1.0]]), "a truth that varies"),
    ):
        with pytest.raises(ValueError, match=sentence):
            call()


def test_what_cannot_be_audited_is_refused() -> None:
    with pytest.raises(ValueError, match="targets that are numbers"):
        audit_invariance(LevelSetModel(), MiniSprites())
    with pytest.raises(ValueError, match=r"encode the property .property_latents.: 1 to 1; got None"):
        audit_invariance(LevelSetModel(), WORLD)
    with pytest.raises(ValueError, match="at least 8 examples"):
        audit_invariance(LevelSetModel(), WORLD, count=1)
    x = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    flat = ArrayWorld(x, np.r_[x[:30, 0], np.zeros(10, np.float32)], ("a",), held_out=np.arange(30, 40))
    with pytest.raises(ValueError, match="the same in all 10 held-out examples, so nothing can be measured"):
        audit_invariance(LevelSetModel(), Properties(flat), property_latents=1, split=OwnSplit())
    with pytest.raises(ValueError, match="8 held-out ones, but the split has 36 and 4: hold out more"):
        audit_invariance(LevelSetModel(), LevelSets(count=40, tested=4), property_latents=1)
    hybrid = HybridDVIB().default_model()
    config = RunConfig(WORLD, HybridDVIB(), hybrid, TrainingConfig(1, 8))
    from polariscope.training.run import train_in_memory

    with pytest.raises(ValueError, match="no Z1 to resample"):
        audit_invariance(train_in_memory(config), WORLD)


def test_a_run_is_audited_on_the_command_line(tmp_path, capsys) -> None:
    config = RunConfig(
        LevelSets(count=400, tested=60),
        ConditionalInvariance(copies=1),
        PropertyAutoencoderConfig(4, 1, MLP((8,), (8,)), property_widths=(8,)),
        TrainingConfig(3, 16),
    )
    run = train(config, Store(tmp_path / "runs"), quiet=True)
    words = ["invariance", run.id, "--runs", str(tmp_path / "runs"), "--judged-on", "100", "--json"]
    assert main(words) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["count"] == 60
    assert (run.path / "findings" / "invariance" / "report.html").exists()
    assert {row["opinion"].split()[1] for row in answer["deviations"]} == {"model", "true", "independent"}
    again = invariance_document(run, judged_on=100).json()
    assert again["deviations"] == answer["deviations"], "in Python, too"
    for flag in ("--data", "--world"):
        assert main([*words, flag, "level-sets"]) == 2
        assert "leave --data out" in capsys.readouterr().err


OWN = """
import torch


class Own(torch.nn.Module):
    def encode(self, x):
        self.spare = x.shape[1] - 2
        return x[:, :2].float()

    def decode(self, z):
        return torch.cat([z, torch.zeros(len(z), self.spare)], 1)
"""


def test_data_of_your_own_model_is_named_as_in_every_command(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(OWN)
    size = ["--world.count", "300", "--world.tested", "60", "--judged-on", "80", "--property-latents", "1", "--json"]
    answer = []
    for way in (["level-sets"], ["--data", "level-sets"], ["--world", "level-sets"]):
        assert main(["invariance", "mine.py:Own", *way, *size]) == 0
        answer.append(json.loads(capsys.readouterr().out))
    assert answer[0]["settings"]["data"]["name"] == "level-sets"
    assert answer[0]["deviations"] == answer[1]["deviations"] == answer[2]["deviations"]
    assert main(["invariance", "mine.py:Own", "level-sets", *size, "--output", "logits"]) == 0
    logits = json.loads(capsys.readouterr().out)
    assert logits["errors"] != json.loads(json.dumps(answer[0]["errors"])), (
        "the note about the output names this option"
    )
    assert main(["invariance", "mine.py:Own"]) == 2
    assert "which data?" in capsys.readouterr().err
