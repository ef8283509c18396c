"""Studies of robust training: what the committed tables say, computed a second time from their rows."""

import re

import numpy as np
import pytest
from scipy.stats import spearmanr, t

from polariscope.studies.inductive_biases import attack_training, bias_transfer, coloured_noises, stylised_noise
from polariscope.worlds.views.corruptions import SUITES


def interval(values: np.ndarray) -> tuple[float, float]:
    """Student's 95 % interval of the mean."""
    half = t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean() - half), float(values.mean() + half)


def made_up(shift: float) -> coloured_noises.Table:
    """Five seeds of each training; the held-out kinds rank the networks as the benchmark does, or against it."""
    rows = []
    for place, noise in enumerate(coloured_noises.TRAINED_ON):
        for seed in range(5):
            level = 50.0 + 2 * place + 0.1 * seed
            row = {"trained": noise, "seed": seed, "clean": 90.0}
            row |= dict.fromkeys(coloured_noises.BENCHMARK, level)
            rows.append(row | dict.fromkeys(coloured_noises.HELD_OUT, 50 + shift * (level - 50)))
    return coloured_noises.Table(rows)


@pytest.mark.parametrize("shift", [1.0, -1.0])
def test_kinds_that_rank_networks_alike_correlate(shift: float) -> None:
    table = made_up(shift)
    ranks = coloured_noises.kind_correlations(table)
    assert ranks.shape == (15, 4)
    np.testing.assert_allclose(ranks, shift)
    study = coloured_noises.ColouredNoises()
    verdicts = [claim.judge(study.readings(table)).held for claim in study.claims("laptop")[1:]]
    assert verdicts == [shift > 0] * 5


def test_a_kind_that_is_the_same_for_all_has_no_rank() -> None:
    table = made_up(0.0)
    assert (coloured_noises.kind_correlations(table) == 0).all()


@pytest.mark.spec("001b/A-40")
def test_noises_transfer_and_the_benchmark_is_compared_with_the_four_held_out_kinds(committed) -> None:
    """The matrix of four noises by five trainings, and the rank correlations over 25 networks with their intervals, by
    a jackknife over seeds that is written out here."""
    result = committed("coloured-noises")
    rows = result.table.rows
    trained = ("nothing", "gaussian", "shot", "impulse", "speckle")
    assert sorted((row["trained"], row["seed"]) for row in rows) == sorted((n, s) for n in trained for s in range(5))
    level = {
        noise: {kind: np.array([row[kind] for row in rows if row["trained"] == noise]) for kind in trained[1:]}
        for noise in trained
    }
    shown = {row["trained with"]: row for row in coloured_noises.ColouredNoises().beside(result.table)}
    for noise in trained:
        for kind in trained[1:]:
            values = level[noise][kind]
            assert shown[noise][f"{kind}, %"].startswith(f"{values.mean():.1f} ± {values.std(ddof=1):.1f}")
    by_key = {(row["trained"], row["seed"]): row for row in rows}
    least = {
        noise: np.array([
            min(by_key[noise, s][other] - by_key["nothing", s][other] for other in trained[1:] if other != noise)
            for s in range(5)
        ])
        for noise in trained[1:]
    }  # fmt: skip
    claim = result.claim("helps against every other noise")
    for values, text in zip(least.values(), claim.measured.split("; "), strict=True):
        assert text.startswith(f"{values.mean():.1f}")
    assert (claim.verdict == "held") == all(interval(values)[0] >= 5 for values in least.values())
    inside = list(SUITES["imagenet-c"].benchmark)
    outside = ["speckle", "gaussian-blur", "spatter", "saturate"]
    assert len(inside) == 15
    assert not set(inside) & set(outside)

    def rho(some: list[dict], kinds: list[str]) -> float:
        means = [[np.mean([row[kind] for kind in side]) for row in some] for side in (inside, kinds)]
        return float(spearmanr(*means).statistic)

    for words, kinds in (("the four corruptions", outside), *((f"holds for {kind}", [kind]) for kind in outside)):
        claim = result.claim(words)
        measured = re.fullmatch(r"Spearman (-?[\d.]+) \[(-?[\d.]+), (-?[\d.]+)\] over 25 rows", claim.measured)
        assert measured, claim.measured
        whole = rho(rows, kinds)
        without = np.array([rho([row for row in rows if row["seed"] != seed], kinds) for seed in range(5)])
        half = t.ppf(0.975, 4) * np.sqrt(4 / 5 * ((without - without.mean()) ** 2).sum())
        for text, value in zip(measured.groups(), (whole, max(whole - half, -1), min(whole + half, 1)), strict=True):
            assert float(text) == pytest.approx(value, abs=0.006)
        if whole < 0.5:
            assert claim.verdict == "not held"
        else:
            assert (claim.verdict == "held") == (whole - half > 0)
    ranks = coloured_noises.kind_correlations(result.table)
    for first, kind in enumerate(inside):
        for second, other in enumerate(outside):
            pair = spearmanr([row[kind] for row in rows], [row[other] for row in rows]).statistic
            assert ranks[first, second] == pytest.approx(pair, nan_ok=True)


@pytest.mark.spec("001b/C-08")
def test_four_combinations_are_labelled_from_trained_figures(committed) -> None:
    """Noise with stylised images, noise with attacks, binary input with noise, synthesis on noisy images: five seeds of
    each combination and of each part. The labels are made again from the accuracies, by the rule of the taxonomy: in
    the scenarios of the parts none loses (orthogonal), one gains besides (symbiotic), some lose (partially exclusive),
    or all lose (exclusive)."""
    labels = {}
    for name, module, combinations in (
        ("bias-transfer", bias_transfer, bias_transfer.MADE_OF),
        ("stylised-noise", stylised_noise, {stylised_noise.BOTH: (stylised_noise.NOISE, stylised_noise.STYLE)}),
    ):
        rows, own = committed(name).table.rows, module.OWN
        given = module.matrix_of(committed(name).table).combinations
        for combination, parts in combinations.items():
            changes = []
            for scenario in {own[part] for part in parts}:
                level = {bias: [row[scenario] for row in rows if row["bias"] == bias] for bias in (combination, *parts)}
                assert min(len(values) for values in level.values()) >= 5
                changes.append(np.mean(level[combination]) - max(np.mean(level[part]) for part in parts))
            losing = [change < -module.TOLERANCE for change in changes]
            if any(losing):
                label = "exclusive" if all(losing) else "partially exclusive"
            else:
                label = "symbiotic" if max(changes) > module.TOLERANCE else "orthogonal"
            assert given[combination] == label, combination
            labels[combination] = label
    assert len(labels) == 4
    result = committed("stylised-noise")
    by_key = {(row["bias"], row["seed"]): row for row in result.table.rows}
    assert set(by_key) == {(bias, seed) for bias in stylised_noise.BIASES for seed in range(5)}
    least = np.array([
        min(
            by_key[stylised_noise.BOTH, seed][scenario]
            - max(by_key[part, seed][scenario] for part in (stylised_noise.NOISE, stylised_noise.STYLE))
            for scenario in ("noises", "stylised")
        )
        for seed in range(5)
    ])  # fmt: skip
    low, high = interval(least)
    claim = result.claim("keeps the gain of each")
    assert claim.measured == f"{least.mean():.1f} [{low:.1f}, {high:.1f}]"
    verdict = "held" if low >= -5 else "not held" if high < -5 else "undecided"
    assert claim.verdict == verdict
    shown = {row["bias"]: row for row in stylised_noise.StylisedNoise().beside(result.table)}
    assert shown[stylised_noise.BOTH]["label here"] == labels[stylised_noise.BOTH]


@pytest.mark.spec("001b/A-29")
def test_training_against_attacks_helps_within_the_distance_of_the_training(committed) -> None:
    """Five seeds of one network, plain, trained by PGD within 0.3 in L∞, and by DDN within 1.5 of 28 pixels in L2:
    accuracy within the same distance, by the nearest adversarial of two attacks."""
    result = committed("attack-training")
    setting = attack_training.SETTINGS["laptop"]
    for training, norm, epsilon in (("pgd", "linf", 0.3), ("ddn", "l2", 1.07)):
        objective = attack_training.objective_of(training, setting)
        assert (objective.norm, objective.epsilon) == (norm, epsilon)
    level = {
        training: {column: np.array([row[column] for row in result.table.rows if row["training"] == training])
                   for column in ("clean", "linf", "l2", "l0", "seed")}
        for training in ("plain", "pgd", "ddn")
    }  # fmt: skip
    assert all(sorted(own["seed"]) == list(range(5)) for own in level.values())
    for training, column, least, words in (
        ("pgd", "linf", 30, "Training by PGD"),
        ("ddn", "l2", 20, "Training by DDN"),
    ):
        gain = level[training][column] - level["plain"][column]
        claim = result.claim(words)
        assert gain.mean() >= least
        assert interval(gain)[0] > 0
        assert claim.verdict == "held"
        assert claim.measured.startswith(f"{level[training][column].mean():.1f} [")
    pixels = result.claim("less robust in L0")
    assert pixels.measured.startswith(f"{level['plain']['l0'].mean():.1f} [")
    assert f"against {level['pgd']['l0'].mean():.1f}" in pixels.measured
