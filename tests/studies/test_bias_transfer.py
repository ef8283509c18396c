"""Biases and scenarios: what the committed tables say, computed a second time from their rows."""

import re

import numpy as np
import pytest
from scipy.stats import spearmanr, t

from polariscope.studies.inductive_biases import bias_transfer as study


def interval(values: np.ndarray) -> tuple[float, float]:
    """Student's 95 % interval of the mean."""
    half = t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean() - half), float(values.mean() + half)


@pytest.mark.spec("001b/A-16")
def test_replay_loses_no_point_over_twelve_generators(committed) -> None:
    """Pairs of the same seed, with noise of at most 5 on 28 x 28 pixels (3.5 on 20 x 20), which erases no digit."""
    result = committed("noise-replay")
    rows = result.table.rows
    assert {row["rounds"] for row in rows} == {12}
    assert {row["norm"] for row in rows} == {5 * 20 / 28 // 0.5 * 0.5}
    with_replay, without = ({row["seed"]: row["corrupted"] for row in rows if row["replay"] == which}
                            for which in ("with", "without"))  # fmt: skip
    assert sorted(with_replay) == sorted(without) == list(range(5))
    gains = np.array([with_replay[seed] - without[seed] for seed in range(5)])
    low, high = interval(gains)
    assert low >= -1
    harmless, helpful = result.claim("does no harm"), result.claim("earlier generators helps")
    assert harmless.measured == f"{gains.mean():.1f} [{low:.1f}, {high:.1f}]"
    assert (harmless.verdict, helpful.verdict) == ("weaker form held", "not held")
    assert gains.mean() < 2.2, "the published gain did not come out"


@pytest.mark.parametrize("replay", [True, False])
def test_every_generator_meets_the_classifier_equally_long(replay: bool) -> None:
    setting = study.SETTINGS["laptop"]
    objective, steps = study.adversarial_noise(setting, replay)
    assert objective.replay == replay
    assert steps == setting.rounds * (objective.alone + objective.refresh)
    assert setting.rounds >= 10


def made_up(gain: float) -> study.Table:
    """Two seeds of every bias; each gains where it was made for, and a combination loses ``gain`` there."""
    rows = []
    for bias in study.BIASES:
        level = dict.fromkeys(study.SCENARIOS, 50.0)
        for part in study.MADE_OF.get(bias, (bias,)):
            if part in study.OWN:
                level[study.OWN[part]] = 80.0 + (gain if bias in study.MADE_OF else 0)
        rows += [{"bias": bias, "seed": seed, **level} for seed in range(2)]
    return study.Table(rows)


@pytest.mark.parametrize(("gain", "label"), [(0.0, "orthogonal"), (10.0, "symbiotic"), (-20.0, "exclusive")])
def test_labels_are_read_off_the_measured_matrix(gain: float, label: str) -> None:
    table = made_up(gain)
    matrix = study.matrix_of(table)
    assert set(matrix.transfer.values()) == {"specific"}
    assert set(matrix.combinations.values()) == {label}
    assert list(matrix.combinations) == list(study.MADE_OF)
    readings = study.BiasTransfer().readings(table)
    changes = [row["gain least change against the parts"] for row in readings.rows if row.get("bias") in study.MADE_OF]
    assert changes == [gain] * 6


def test_scenarios_that_rank_seeds_alike_correlate() -> None:
    rows = [
        {"bias": "plain", "seed": seed} | {name: float(seed) for name in study.SCENARIOS} | {"L0": -float(seed)}
        for seed in range(5)
    ]
    ranks = study.seed_correlations(study.Table(rows))
    place = study.SCENARIOS.index("L0")
    assert np.allclose(np.delete(ranks[place], place), -1)
    assert ranks[0, 1] == pytest.approx(1)


def test_noises_and_the_benchmark_are_compared_over_five_seeds(committed) -> None:
    """The matrix of noises, and the rank correlation of the benchmark with what is outside of it, from the rows. Of the
    four held-out kinds grey digits have three, so that this does not prove 001b/A-40."""
    result = committed("noise-transfer")
    rows = result.table.rows
    assert sorted((row["trained"], row["seed"]) for row in rows) == sorted(
        (noise, seed) for noise in study.TRAINED_ON for seed in range(5)
    )
    gains = {
        noise: np.array(
            [
                min(row[other] - plain[other] for other in study.NOISES if other != noise)
                for row in rows
                for plain in rows
                if row["trained"] == noise and plain["trained"] == "nothing" and row["seed"] == plain["seed"]
            ]
        )
        for noise in study.NOISES
    }
    helps = all(interval(own)[0] >= 5 for own in gains.values())
    assert (result.claim("every other noise").verdict == "held") == helps
    shown = {row["trained with"]: row for row in study.NoiseTransfer().beside(result.table)}
    for noise in study.TRAINED_ON:
        for kind in study.NOISES:
            values = [row[kind] for row in rows if row["trained"] == noise]
            assert shown[noise][f"{kind}, %"].startswith(f"{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f}")
    assert len(study.BENCHMARK) == 15
    inside = [np.mean([row[kind] for kind in study.BENCHMARK]) for row in rows]
    outside = [np.mean([row[kind] for kind in study.HELD_OUT]) for row in rows]
    claim = result.claim("holds for corruptions outside")
    rho = float(spearmanr(inside, outside).statistic)
    measured = re.fullmatch(r"Spearman (-?[\d.]+) \[(-?[\d.]+), (-?[\d.]+)\] over 25 rows", claim.measured)
    assert measured, claim.measured
    assert float(measured[1]) == pytest.approx(rho, abs=0.006)
    assert float(measured[2]) < rho < float(measured[3])


@pytest.mark.spec("001b/C-10")
def test_robust_training_on_the_splits_of_one_domain_is_not_judged_of_networks_that_have_not_learned(committed) -> None:
    """Five seeds of three trainings on four splits. The gains are recomputed; the condition leaves them undecided."""
    study_result = committed("in-domain-robust-training")
    accuracies = {(row["training"], row["split"], row["seed"]): row["held-out"] for row in study_result.table.rows}
    splits = ("random", "composition", "interpolation", "extrapolation")
    trainings = ("plain", "gaussian noise", "adversarial")
    assert set(accuracies) == {(name, split, seed) for name in trainings for split in splits for seed in range(5)}
    learned = np.mean([accuracies["plain", "random", seed] for seed in range(5)]) >= 90
    assert not learned
    for training in trainings[1:]:
        for split in splits[1:]:
            gains = np.array([accuracies[training, split, s] - accuracies["plain", split, s] for s in range(5)])
            low, high = interval(gains)
            claim = study_result.claim(f"{training.capitalize()} training does not help on {split}")
            assert claim.measured == f"{gains.mean():.1f} [{low:.1f}, {high:.1f}]"
            assert claim.verdict == "undecided"
            assert "90" in claim.note


def test_combinations_are_labelled_from_trained_figures(committed) -> None:
    """Three of the four published combinations, five seeds each: stylised images are not among the scenarios, so that
    this does not prove 001b/C-08. The losses behind the labels are recomputed from the accuracies of the table."""
    result = committed("bias-transfer")
    rows = result.table.rows
    level = {}
    for bias in study.BIASES:
        own = [row for row in rows if row["bias"] == bias]
        assert len({row["seed"] for row in own}) >= 5, bias
        level[bias] = {name: np.mean([row[name] for row in own]) for name in study.SCENARIOS}
    labels = study.matrix_of(result.table).combinations
    assert len(labels) == len(study.MADE_OF) >= 3
    for combination, parts in study.MADE_OF.items():
        losses = [level[part][study.OWN[part]] - level[combination][study.OWN[part]] for part in parts]
        if labels[combination] == "orthogonal":
            assert max(losses) <= study.TOLERANCE
        elif labels[combination] == "exclusive":
            assert min(losses) > study.TOLERANCE
        else:
            assert labels[combination] == "partially exclusive"
            assert max(losses) > study.TOLERANCE
    assert labels["gaussian noise + pgd"] == "exclusive"
    assert level["gaussian noise + pgd"]["L∞"] < level["pgd"]["L∞"] - 20


@pytest.mark.spec("001b/C-09")
def test_seeds_of_equal_accuracy_differ_more_under_shifts(committed) -> None:
    """Ten seeds of the same training: their spread off the training data over their spread on it, and the ranks."""
    result = committed("bias-transfer")
    plain = [row for row in result.table.rows if row["bias"] == "plain"]
    assert len({row["seed"] for row in plain}) >= 10
    ranks = study.seed_correlations(result.table)
    for i, one in enumerate(study.SCENARIOS):
        for j, other in enumerate(study.SCENARIOS[:i]):
            rho = spearmanr([row[one] for row in plain], [row[other] for row in plain]).statistic
            assert ranks[i, j] == pytest.approx(rho, nan_ok=True)
    spread = {name: np.std([row[name] for row in plain], ddof=1) for name in study.SCENARIOS}
    claim = result.claim("differ on corrupted and attacked images")
    ratio = np.mean([spread[name] for name in study.SCENARIOS if name != "clean"]) / spread["clean"]
    assert float(claim.measured) == pytest.approx(ratio, abs=0.006)
    assert (claim.verdict == "held") == (ratio >= 2)


@pytest.mark.spec("001b/C-07")
def test_shifts_of_codes_correlate_with_divergence_and_disentanglement_as_the_claims_say(committed) -> None:
    """Rank correlations over five seeds and the models whose code has not collapsed."""
    result = committed("encoder-attacks")
    rows = [row for row in result.table.rows if row["kl"] >= 0.1]
    assert {row["seed"] for row in result.table.rows} == set(range(5))
    assert len(rows) < len(result.table.rows), "beta 8 collapsed"
    for words, column, other in (
        ("more robust to noise", "noise", "beta"),
        ("Codes of a lower divergence", "attack", "kl"),
        ("Disentangled codes", "attack", "dci"),
    ):
        claim = result.claim(words)
        shown = re.findall(r"Spearman (-?[\d.]+) \[", claim.measured)
        for name, text in zip(("beta-vae", "beta-tc-vae"), shown, strict=True):
            own = [row for row in rows if row["objective"] == name]
            rho = spearmanr([row[column] for row in own], [row[other] for row in own]).statistic
            assert float(text) == pytest.approx(rho, abs=0.006)
