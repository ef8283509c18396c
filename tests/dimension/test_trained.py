"""Dimension selection on real trainings: a linear VAE, whose answers are known, and the trap of short trainings."""

from dataclasses import asdict, replace
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
import torch

from polariscope.dimension.results import SCHEMA, dimension_findings, reading_row, result_rows
from polariscope.dimension.search import Search
from polariscope.dimension.trained import (
    DimensionProbe,
    DimensionSearch,
    Reading,
    StableDimension,
    data_dimension,
    intrinsic_dimension,
    largest_beta,
    search_dimension,
    stable_dimension,
    type_count_dimension,
    with_setting,
)
from polariscope.measures.renyi import bottleneck_gap
from polariscope.nets.architecture import MLP, Linear
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.objectives.autoencoder import AE
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.objectives.dip_vae import DIPVAE
from polariscope.objectives.vae import VAE
from polariscope.report.markdown import markdown
from polariscope.theory.linear_vae import solve, trace_gaps
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.worlds.points.synthetic import Gaussian
from polariscope.worlds.renderers.sprites import Sprites
from polariscope.worlds.splits import RandomSplit
from polariscope.worlds.world import ArrayWorld

SPECTRUM = (5.0, 3.0, 1.5, 0.8, 0.3, 0.1)
LINEAR = RunConfig(
    Gaussian(count=4000, spectrum=SPECTRUM, exact=True),
    VAE(),
    AutoencoderConfig(architecture=Linear(), posterior="constant", likelihood="gaussian", variance=0.5),
    TrainingConfig(steps=200, batch_size=512, learning_rate=0.08, schedule="linear"),
)
SPRITES = RunConfig(
    Sprites(size=16),
    VAE(),
    AutoencoderConfig(architecture=MLP((64,), (64,))),
    TrainingConfig(steps=300, batch_size=64, learning_rate=2e-3),
)


@cache
def linear(latents: int, beta: float = 1.0, seed: int = 0) -> Reading:
    """A trained linear VAE, read; trained once for the whole file."""
    return DimensionProbe(with_setting(LINEAR, "beta", beta), 2000)(latents, seed=seed)


def reading(latents: int, gap: float, steps: int = 100, explained: float = 0.7, **rest: object) -> Reading:
    """A reading without a training."""
    numbers = {"reconstruction": 10.0, "kl": 5.0, "active": latents, "mixed": 0, "passive": 0, "seconds": 1.5}
    return Reading(
        latents, steps, 0, 1.0, 1.0 + gap, gap, explained=explained, collapsed=explained < 0.1, **numbers | rest
    )  # type: ignore[arg-type]


def test_a_trained_linear_model_reads_as_its_closed_form() -> None:
    best = solve(SPECTRUM, 4, 0.5)
    result = linear(4, seed=2)
    assert result.trace_gap == pytest.approx(best.trace_gap, abs=0.12)
    assert result.trace_sample - result.trace_mean == pytest.approx(result.trace_gap, abs=0.12)
    assert result.trace_sample == pytest.approx(4, abs=0.3)  # the aggregate posterior is the prior
    assert result.kl == pytest.approx(best.rate, abs=0.15)
    assert result.explained == pytest.approx(1 - best.distortion / sum(SPECTRUM), abs=0.03)
    assert result.active + result.mixed + result.passive == 4
    assert not result.collapsed


@pytest.mark.spec("002/D07", "002/D15")
@pytest.mark.parametrize(("start", "seed"), [(2, 1), (6, 2)])
def test_trained_fondue_finds_what_theory_says_from_any_start(start: int, seed: int) -> None:
    result = search_dimension(lambda n: linear(n, seed=seed), start)
    assert result.answer == 3
    assert result.trusted
    assert result.models == len(result.search.visited) == len({r.latents for r in result.readings})
    gaps = trace_gaps(SPECTRUM, 6, 0.5)
    assert [r.trace_gap for r in result.readings] == pytest.approx(
        [gaps[r.latents - 1] for r in result.readings], abs=0.25
    )


@pytest.mark.spec("002/D16")
def test_stronger_regularisation_needs_fewer_trained_latents() -> None:
    for beta, answer in ((0.5, 4), (1.0, 3), (2.0, 2), (5.0, 1)):
        result = search_dimension(lambda n, b=beta: linear(n, b, seed=2), answer, cap=answer + 1)
        assert result.answer == answer
        assert not result.search.capped


@pytest.mark.spec("002/D16")
def test_moment_penalty_of_dip_does_not_ask_for_more_latents() -> None:
    """The linear optimum has Cov Z = I already, so λ_od changes nothing there."""
    dip = replace(LINEAR, objective=DIPVAE(kind="II", diagonal=1.0))
    answers = [
        search_dimension(DimensionProbe(with_setting(dip, "off_diagonal", value), 2000), 3, cap=4).answer
        for value in (0.5, 4.0)
    ]
    assert answers == [3, 3]


@pytest.mark.spec("002/D19")
def test_counting_types_agrees_with_fondue() -> None:
    counted = type_count_dimension(lambda n: linear(n, seed=2), 3)
    assert counted.search.visited == (6,)
    assert abs(counted.answer - search_dimension(lambda n: linear(n, seed=2), 6).answer) <= 2
    assert counted.answer == solve(SPECTRUM, 6, 0.5).active_count


def test_counting_types_doubles_until_a_variable_is_passive() -> None:
    def probe(n: int) -> Reading:
        return reading(n, 0.1, active=min(n, 9), mixed=min(max(n - 9, 0), 2), passive=max(n - 11, 0))

    result = type_count_dimension(probe, 3)
    assert (result.answer, result.search.visited, result.search.capped) == (11, (6, 12), False)
    short = type_count_dimension(probe, 3, cap=8)
    assert (short.answer, short.search.capped) == (8, True)
    with pytest.raises(ValueError, match="between 1 and the cap"):
        type_count_dimension(probe, 0)


def pilot(steps: int):
    """The pilot of Spec 002, section 17.2 (β = 1, start 4): 250 and 500 steps answer 1, later ones 3."""
    untrained = steps <= 500

    def probe(n: int) -> Reading:
        if untrained:  # all latents passive, reconstruction at the entropy of the mean image
            return reading(n, float(n), steps, explained=0.01, reconstruction=28.3)
        return reading(n, 0.1 * n + max(n - 3, 0), steps, explained=0.69, reconstruction=8.8)

    return search_dimension(probe, 4)


@pytest.mark.spec("002/D08")
def test_stability_does_not_fall_into_the_trap_of_untrained_models() -> None:
    budgets = [250, 500, 1000, 2000, 4000]
    answers = [pilot(steps).answer for steps in budgets]
    assert answers == [1, 1, 3, 3, 3]  # a rule that only compares answers would stop at 1 after two budgets
    result = stable_dimension(pilot, budgets)
    assert (result.answer, result.stable, result.last.steps) == (3, True, 2000)
    assert [a.trusted for a in result.attempts] == [False, False, True, True]


@pytest.mark.spec("002/D08")
def test_an_untrusted_answer_confirms_nothing() -> None:
    never = stable_dimension(pilot, [125, 250, 500])
    assert (never.stable, never.last.trusted) == (False, False)
    half = stable_dimension(
        lambda steps: pilot(steps) if steps < 1000 else search_dimension(lambda n: reading(n, n), 4), [500, 1000]
    )
    assert [a.answer for a in half.attempts] == [1, 1]
    assert not half.stable
    with pytest.raises(ValueError, match="at least one budget"):
        stable_dimension(pilot, [])


def test_a_rejection_by_a_collapsed_model_is_not_trusted() -> None:
    def probe(n: int) -> Reading:
        return reading(n, 0.1, explained=0.6) if n <= 3 else reading(n, float(n), explained=0.02)

    result = search_dimension(probe, 3)
    assert result.answer == 3
    assert not result.trusted
    assert not DimensionSearch("FONDUE", Search(0, (), (), 1.0, False), ()).trusted


@pytest.mark.spec("002/D08")
def test_the_guard_sees_a_real_model_before_and_after_it_learns() -> None:
    probe = DimensionProbe(SPRITES, 1500)
    early, late = probe(4, steps=30), probe(4)
    assert early.collapsed
    assert not late.collapsed
    assert late.explained > 0.2 > early.explained


def test_collapsed_and_perfect_levels() -> None:
    """A constant output reaches the entropy of the mean image, or the variance around the mean; never less."""
    probe = DimensionProbe(SPRITES, 500)
    config = probe.at(2)
    model = probe.train(probe.at(2, steps=1))
    x = torch.from_numpy(probe.examined.observations).flatten(1).double() / 255
    mean = x.mean(0).clamp(1e-12, 1 - 1e-12)
    collapsed, perfect = probe.levels(model)
    assert collapsed == pytest.approx(
        float(torch.nn.functional.binary_cross_entropy(mean.expand_as(x), x, reduction="sum")) / len(x)
    )
    assert 0 <= perfect < collapsed
    assert probe.explained(model, collapsed) == 0.0
    assert probe.explained(model, perfect) == 1.0
    assert config.training.evaluate_every == 0
    linear_probe = DimensionProbe(LINEAR, 4000)
    level = linear_probe.levels(linear_probe.train(linear_probe.at(1, steps=1)))
    assert level[0] - level[1] == pytest.approx(sum(SPECTRUM) / (2 * 0.5), rel=0.1)


@pytest.mark.spec("002/D10")
def test_ide_gap_counts_passive_variables() -> None:
    """Spec 002, section 12.4: three uniform active variables and p passive ones."""

    def gap(passive: int) -> float:
        rng = np.random.default_rng(passive)
        active = rng.uniform(size=(3000, 3)) * np.sqrt(12)
        mean = np.hstack([active, 1e-3 * rng.normal(size=(3000, passive))])
        sample = np.hstack([active + 0.01 * rng.normal(size=active.shape), rng.normal(size=(3000, passive))])
        return intrinsic_dimension(sample) - intrinsic_dimension(mean)

    gaps = [gap(p) for p in (0, 1, 2, 4)]
    assert gaps == pytest.approx([0.04, 0.98, 1.92, 3.66], abs=0.25)
    result = search_dimension(lambda n: reading(n, 0.0, ide_mean=0.0, ide_sample=gap(max(n - 3, 0))), 3, "ide", 1.2)
    assert (result.answer, result.algorithm) == (4, "FONDUE_IDE")


@pytest.mark.spec("002/D09", "002/D10")
def test_information_and_ide_of_a_trained_model() -> None:
    probe = DimensionProbe(LINEAR, 1500, ("ib", "ide"))
    result = probe(6, seed=2)
    assert result.ide_mean == pytest.approx(4, abs=0.7)  # four directions are used ...
    assert result.gap("ide") == pytest.approx(result.passive, abs=0.7)  # ... and the samples fill the others
    assert result.bottleneck is not None
    assert not result.bottleneck.saturated  # six dimensions are few
    assert result.gap("ib") == pytest.approx(result.bottleneck.entropy - result.bottleneck.information)
    assert (result.bottleneck.batch, result.bottleneck.batches) == (100, 15)
    assert reading_row(result)["saturated"] is False
    with pytest.raises(ValueError, match="'ib' was not measured"):
        linear(3).gap("ib")


@pytest.mark.spec("002/D09")
def test_saturated_information_is_reported_with_its_answer() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1000, 300))

    def probe(n: int) -> Reading:
        return reading(n, 0.0, bottleneck=bottleneck_gap(rng.normal(size=(1000, n)), x, x))

    result = search_dimension(probe, 4, "ib")
    assert result.saturated
    assert result.answer == pytest.approx(9, abs=1)  # whatever the data: here white noise of 300 dimensions
    assert (result.search.threshold, result.algorithm) == (-0.01, "FONDUE_IB")
    assert search_dimension(probe, 4, "ib", cap=60, method="binary").algorithm == "IB"


def test_the_same_seed_reads_the_same_and_leaves_the_callers_randomness_alone() -> None:
    probe = DimensionProbe(LINEAR, 500)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, second, other = (replace(probe(2, steps=20, seed=s), seconds=0.0) for s in (1, 1, 2))
    assert torch.equal(before, torch.get_rng_state())
    assert first == second
    assert first.trace_gap != other.trace_gap


def test_readings_prefer_held_out_observations() -> None:
    world = Gaussian(count=100)
    probe = DimensionProbe(replace(LINEAR, world=world, split=RandomSplit(0.2)), 30)
    parts = RandomSplit(0.2).parts(world)
    expected = world.observe(np.concatenate([parts.held_out, parts.train[:10]]))
    assert np.array_equal(probe.examined.observations, expected)


def test_largest_beta_of_trained_models() -> None:
    """n = 2 at γ = 0.5: the gap is 0.5 β (1/5 + 1/3), so β may grow to 3.75."""
    probe = DimensionProbe(LINEAR, 1000)
    result = largest_beta(probe, 2, low=2.0, high=8.0, precision=2.0)
    assert result.answer is not None
    assert 2.0 <= result.answer <= 4.2
    assert result.log[-1][0] == pytest.approx(4.0)


def test_start_comes_from_the_intrinsic_dimension() -> None:
    world = Gaussian(count=2000, spectrum=(1.0, 1.0, 1.0))
    assert round(data_dimension(world).value) == 3
    doubled = ArrayWorld(np.repeat(world.observe(range(1000)), 2, axis=0))
    assert data_dimension(doubled).duplicates == 1000


def test_what_cannot_be_probed_is_refused_in_a_sentence() -> None:
    with pytest.raises(ValueError, match="use a variational objective"):
        DimensionProbe(replace(LINEAR, objective=AE(), model=replace(LINEAR.model, posterior="auto")), 100)(2, steps=1)
    with pytest.raises(ValueError, match="needs observations in \\[0, 1\\]"):
        DimensionProbe(replace(LINEAR, model=replace(LINEAR.model, likelihood="bernoulli")), 100)(2, steps=1)
    constant = ArrayWorld(np.ones((50, 3)))
    with pytest.raises(ValueError, match="all observations are the same"):
        DimensionProbe(replace(LINEAR, world=constant), 50)(2, steps=1)
    with pytest.raises(ValueError, match="at least 2 examples"):
        DimensionProbe(LINEAR, 1)
    with pytest.raises(ValueError, match="share in"):
        DimensionProbe(LINEAR, guard=1.0)
    with pytest.raises(ValueError, match="no setting 'gamma'; it has beta"):
        with_setting(replace(LINEAR, objective=BetaVAE()), "gamma", 1.0)
    assert with_setting(LINEAR, "beta", 3.0).objective == BetaVAE(3.0)


@pytest.mark.spec("002/X05")
def test_results_come_as_rows_and_as_a_published_table() -> None:
    def run(answer: int, algorithm: str = "FONDUE") -> DimensionSearch:
        result = search_dimension(lambda n: reading(n, max(n - answer, 0) * 2.0), 4)
        return replace(result, algorithm=algorithm)

    rows = result_rows({"sprites": [run(10), run(12), run(11), run(9, "FONDUE_IDE")], "noise": [run(4)]})
    assert [tuple(row) for row in rows] == [SCHEMA] * 3
    first = rows[0]
    assert (first["algorithm"], first["dataset"], first["n_mean"], first["n_sd"]) == ("FONDUE", "sprites", 11.0, 1.0)
    models = [run(n).models for n in (10, 12, 11)]
    assert first["models"] == pytest.approx(np.mean(models))
    assert first["seconds_per_run"] == pytest.approx(1.5 * np.mean(models))
    assert (first["steps"], first["runs"], first["trusted"], rows[2]["n_sd"]) == (100, 3, 1.0, 0.0)
    assert pa.Table.from_pylist(rows).schema.names == list(SCHEMA)
    stable = [StableDimension((run(n),), stable=True) for n in (10, 12, 11)]
    lines = markdown(dimension_findings(stable, "sprites", 4)).splitlines()
    titles = lines.index("| algorithm | dataset | n (avg ± SD) | time/run | models | steps | trusted |")
    assert lines[titles + 2].startswith("| FONDUE | sprites | 11.0 ± 1.0 | ")
    assert set(asdict(reading(3, 0.5))) - {"bottleneck"} <= set(reading_row(reading(3, 0.5)))
