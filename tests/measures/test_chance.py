"""What numbers would be by chance, held against computations written out by hand, and what is said to go beyond it."""

from itertools import permutations

import numpy as np
import pytest
from scipy.stats import entropy, spearmanr
from sklearn.metrics import mutual_info_score
from sklearn.svm import LinearSVC

from polariscope.examination.examine import measured_values
from polariscope.measures.chance import Trials, chance_of, interval_of_halves
from polariscope.measures.dci import DCI, dci
from polariscope.measures.disentanglement import disentanglement
from polariscope.measures.factor_information import factor_information, information_beyond_chance
from polariscope.measures.mcc import MCC
from polariscope.measures.measure import measures
from polariscope.measures.mig import MIG
from polariscope.measures.modularity import Modularity
from polariscope.measures.polarisation import Rate
from polariscope.measures.sap import SAP
from polariscope.measures.score import split
from polariscope.representation import Representation

SIZES = (2, 3, 5)
SCORES = [name for name in measures.names() if "factors" in measures.get(name).needs]


def noise(count: int, planted: bool = False, seed: int = 0) -> Representation:
    """Codes that have nothing to do with the factors, but for the first, which is one if ``planted``."""
    rng = np.random.default_rng(seed)
    factors = rng.integers(0, SIZES, size=(count, 3))
    mean = rng.normal(size=(count, 4))
    if planted:
        mean[:, 0] = factors[:, 2]
    return Representation(mean.astype(np.float32), np.full((count, 4), 0.1, np.float32), None, factors)


@pytest.mark.parametrize("count", [300, 10_000])
def test_noise_is_no_more_than_chance_by_any_score(count) -> None:
    values, _ = measured_values(noise(count), SCORES)
    assert len(values) == 11
    assert {value.name: value.within_chance for value in values} == dict.fromkeys(SCORES, True)
    for value in values:
        assert value.chance == pytest.approx(value.value, abs=0.1), value
        assert value.text().startswith("no more than chance: ")
    table = information_beyond_chance(noise(count).mean, noise(count).factors)
    assert not table.beyond.any()
    assert not table.adjusted.any()


@pytest.mark.parametrize("count", [300, 10_000])
def test_a_latent_that_is_a_factor_goes_beyond_chance(count) -> None:
    planted = noise(count, planted=True)
    values, _ = measured_values(planted, SCORES)
    beyond = {value.name for value in values if not value.within_chance}
    # Modularity judges noise like knowledge: one latent of four changes it by a tenth.
    assert beyond | {"modularity"} == set(SCORES)
    for value in values:
        assert value.interval is not None
        assert value.interval[0] <= value.value <= value.interval[1]
    table = information_beyond_chance(planted.mean, planted.factors)
    assert np.argwhere(table.beyond).tolist() == [[0, 2]]
    assert table.adjusted[0, 2] == pytest.approx(1)


def binned(codes: np.ndarray) -> np.ndarray:
    """Twenty equal widths between the extremes, column by column."""
    return np.stack([np.digitize(c, np.linspace(c.min(), c.max(), 21)[1:-1]) for c in codes.T], axis=1)


def informations(codes: np.ndarray, factors: np.ndarray) -> np.ndarray:
    return np.array([[mutual_info_score(z, v) for v in factors.T] for z in binned(codes).T])


def mig_by_hand(codes: np.ndarray, factors: np.ndarray) -> float:
    gaps = []
    for known, factor in zip(informations(codes, factors).T, factors.T, strict=True):
        first, second = sorted(known)[:-3:-1]
        gaps.append((first - second) / entropy(np.bincount(factor)))
    return float(np.mean(gaps))


def modularity_by_hand(codes: np.ndarray, factors: np.ndarray) -> float:
    parts = []
    for row in informations(codes, factors):
        best = max(row)
        others = sum(m**2 for m in row) - best**2
        parts.append(1 - others / (best**2 * (len(row) - 1)))
    return float(np.mean(parts))


def mcc_by_hand(codes: np.ndarray, factors: np.ndarray) -> float:
    table = np.array([[abs(spearmanr(z, v).statistic) for v in factors.T] for z in codes.T])
    choices = permutations(range(codes.shape[1]), factors.shape[1])
    return max(float(np.mean([table[j, k] for k, j in enumerate(chosen)])) for chosen in choices)


def sap_by_hand(codes: np.ndarray, factors: np.ndarray) -> float:
    rows, held = split(len(codes), 0)
    gaps = []
    for factor in factors.T:
        right = []
        for code in codes.T:
            machine = LinearSVC(C=0.01, class_weight="balanced", tol=1e-6, max_iter=10_000)
            right.append(machine.fit(code[rows, None], factor[rows]).score(code[held, None], factor[held]))
        first, second = sorted(right)[:-3:-1]
        gaps.append(first - second)
    return float(np.mean(gaps))


@pytest.mark.parametrize(
    ("measure", "by_hand", "tolerance"),
    [
        (MIG(), mig_by_hand, 1e-6),
        (Modularity(), modularity_by_hand, 1e-6),
        (MCC(), mcc_by_hand, 1e-6),
        (SAP(), sap_by_hand, 0.01),  # LIBLINEAR stops early, and an example at the border may fall on its other side
    ],
)
def test_the_chance_level_is_that_of_the_score_with_permuted_factors_written_out(measure, by_hand, tolerance) -> None:
    rep = noise(400, planted=True)
    rng = np.random.default_rng(7)  # as Trials draws: one order of the rows after another
    orders = [rng.permutation(400) for _ in range(measure.permutations)]
    values = [by_hand(rep.mean.astype(float), rep.factors[order]) for order in orders]
    chance = Trials.of(rep, 10, 0, seed=7).chance(measure)
    assert chance.permutations == measure.permutations
    assert chance.level == pytest.approx(np.mean(values), abs=tolerance)
    assert by_hand(rep.mean.astype(float), rep.factors) > chance.level + chance.reach or measure == Modularity()


def test_the_chance_of_an_entry_is_that_of_permuted_labels() -> None:
    rep = noise(300, planted=True)
    table = information_beyond_chance(rep.mean, rep.factors, permutations=40)
    np.testing.assert_array_equal(table.raw, factor_information(rep.mean, rep.factors))
    rng = np.random.default_rng(1)  # other permutations than those of the table: the means agree nevertheless
    entropies = [entropy(np.bincount(factor)) for factor in rep.factors.T]
    drawn = [informations(rep.mean, rep.factors[rng.permutation(300)]) / entropies for _ in range(40)]
    error = np.std(drawn, axis=0) * np.sqrt(2 / 40)
    assert np.all(abs(table.chance - np.mean(drawn, axis=0)) < 4.5 * error)
    assert table.adjusted[0, 2] == pytest.approx(1)


def test_rows_of_the_factors_are_permuted_together() -> None:
    rep = noise(200)
    together = Trials.of(rep, 3, 0).permuted
    assert len(together) == 3
    for one in together:
        assert one.mean is rep.mean
        assert not np.array_equal(one.factors, rep.factors)
        assert sorted(map(tuple, one.factors)) == sorted(map(tuple, rep.factors))


def test_fewer_permutations_reach_further_and_more_looks_too() -> None:
    few, many = chance_of([0.1, 0.2, 0.3]), chance_of([0.1, 0.2, 0.3] * 5)
    assert few.level == pytest.approx(many.level)
    assert few.reach > many.reach
    assert chance_of([0.1, 0.2, 0.3], looks=10).reach > few.reach
    assert chance_of([0.1]) is None


def test_chance_passes_for_more_as_rarely_as_it_says() -> None:
    rng = np.random.default_rng(0)
    drawn = rng.normal(size=(4000, 7))
    beyond = np.mean([not chance_of(row[1:]).holds(row[0]) for row in drawn])
    assert beyond == pytest.approx(0.05, abs=0.012)


def test_a_measure_that_is_better_low_or_neither_is_held_against_chance_from_its_side() -> None:
    chance = chance_of([0.4, 0.5, 0.6])
    low, high = chance.level - 2 * chance.reach, chance.level + 2 * chance.reach
    assert [chance.holds(low, better) for better in (True, False, None)] == [True, False, False]
    assert [chance.holds(high, better) for better in (True, False, None)] == [False, True, False]


def test_what_needs_no_factors_has_an_interval_and_no_chance_level() -> None:
    """The interval of a mean over examples is that of its standard error."""
    rng = np.random.default_rng(0)
    rep = Representation(rng.normal(size=(2000, 1)).astype(np.float32), np.ones((2000, 1), np.float32))
    trials = Trials.of(rep, 6, 200)
    assert trials.chance(Rate()) is None
    halves = [Rate().value(half) for half in trials.halves]
    low, high = interval_of_halves(Rate().value(rep), halves, 0, np.inf)
    standard_error = np.std(0.5 * rep.mean**2) / np.sqrt(2000)
    assert (high - low) / 2 == pytest.approx(1.97 * standard_error, rel=0.2)


def test_a_half_in_which_a_factor_never_varies_is_left_out() -> None:
    rep = noise(40)
    rare = rep.factors.copy()
    rare[:, 0] = np.arange(40) == 0
    halves = Trials.of(Representation(rep.mean, factors=rare), 0, 20).halves
    assert 0 < len(halves) < 20
    assert all(half.factors[:, 0].any() for half in halves)


def test_the_three_parts_of_dci_come_from_one_table(monkeypatch) -> None:
    calls = []

    def counted(*arguments, **settings):
        calls.append(settings)
        return dci(*arguments, **settings)

    monkeypatch.setattr("polariscope.measures.dci.dci", counted)
    rep = noise(200, planted=True)
    names = ("dci", "dci-completeness", "dci-informativeness")
    values = [measures.get(name)().value(rep) for name in names]
    assert len(calls) == 1
    scores = dci(rep.mean, rep.factors)
    assert values == [scores.part(p).value for p in ("disentanglement", "completeness", "informativeness")]
    assert DCI().quick().rounds < 100


def test_all_scores_at_once_come_with_their_chance_levels() -> None:
    rep = noise(600, planted=True)
    names = ("mig", "mcc", "sap", "explicitness")
    report = disentanglement(rep.mean, rep.factors, scores=names, repeats=4, rotations=0)
    assert [report[name].within_chance for name in names] == [False] * 4
    assert 0.45 < report["explicitness"].chance.level < 0.55
    nothing = disentanglement(noise(600).mean, rep.factors[::-1], scores=names, repeats=0, rotations=0)
    assert [nothing[name].within_chance for name in names] == [True] * 4
    assert str(nothing).count("no more than chance") == 4
    assert nothing.summary()["scores"]["mig"]["within_chance"] is True
    assert disentanglement(rep.mean, rep.factors, scores=("mig",), permutations=0)["mig"].chance is None
    with pytest.raises(ValueError, match="permutations is 0"):
        disentanglement(rep.mean, rep.factors, permutations=1)
