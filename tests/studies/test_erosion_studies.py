"""The studies of erosion maps: what they find is read from their committed tables."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import t

from polariscope.mapping.trend import trend
from polariscope.studies import Table, studies
from polariscope.studies.informed.erosion import PUBLISHED_TAUS
from polariscope.studies.informed.erosion_trend import THRESHOLDS, over_thresholds
from polariscope.studies.informed.erosion_valleys import CELLS, THEIRS
from polariscope.worlds.renderers.aerial import YEARS

NAMES = ("erosion-trend", "erosion-valleys", "unet-settings", "expert-maps")


def claimed(found, change, words):
    """What a study says of its table with every row changed."""
    table = Table([change(row) for row in found.table.rows])
    return replace(found, claims=studies.get(found.name)().judge(table, found.scale)).claim(words)


@pytest.mark.parametrize("name", NAMES)
def test_every_claim_has_five_seeds_and_a_figure(committed, name):
    result = committed(name)
    assert len(result.table.distinct("seed")) >= 5
    for claim in result.claims:
        assert claim.verdict is not None
        assert claim.measured != "-", claim.text


@pytest.mark.spec("000/F051")
def test_increases_over_thresholds_are_recomputed_from_areas(committed):
    """The experiment of figure 4.11: four thresholds, five seeds, absolute areas and relative increases."""
    result = committed("erosion-trend")
    trends = [row for row in result.table.rows if row["what"] == "trend" and row["class"] == "all"]
    for seed in result.table.distinct("seed"):
        own = {row["source"]: row for row in trends if row["seed"] == seed}
        assert set(THRESHOLDS) == {f"tau {tau:g}" for tau in PUBLISHED_TAUS} <= set(own)
        for source in THRESHOLDS:
            areas = [own[source][f"area_{year}"] for year in YEARS]
            slope, start = np.polyfit(np.array(YEARS) - YEARS[0], areas, 1)
            if own[source]["increase"] is not None:
                assert own[source]["increase"] == pytest.approx(slope * (YEARS[-1] - YEARS[0]) / start, rel=1e-6)
                assert trend(YEARS, areas).relative_increase == pytest.approx(own[source]["increase"])
        areas = [own[source]["area"] for source in THRESHOLDS]
        assert areas == sorted(areas, reverse=True), "a higher threshold never maps more"
        answer = over_thresholds([row for row in result.table.rows if row["seed"] == seed])
        if answer["area_ratio"] is not None:
            assert answer["area_ratio"] == pytest.approx(areas[0] / areas[-1])
    assert result.claim("The absolute area depends strongly").verdict in ("held", "not held")
    assert result.claim("The relative increase does not depend").measured


@pytest.mark.spec("000/F053")
def test_the_factorial_of_valleys_weights_and_filter_is_there_with_ten_reruns(committed):
    result = committed("erosion-valleys")
    cells = {cell: {row["seed"] for row in result.table.rows
                    if (row["valleys"], row["weights"], row["filter"]) == cell} for cell in CELLS}  # fmt: skip
    assert all(len(seeds) >= 5 for seeds in cells.values())
    assert len(cells[THEIRS]) == 10
    beside = studies.get("erosion-valleys")().beside(result.table)
    assert any("±" in row["4 valleys + weights + filter"] for row in beside)
    rows = {weights: [row for row in result.table.rows if row["test"] == "new valley"
                      and (row["valleys"], row["weights"], row["filter"]) == (4, weights, True)]
            for weights in (False, True)}  # fmt: skip
    recall = {weights: np.mean([row["pixel_recall"] for row in several]) for weights, several in rows.items()}
    assert recall[True] > recall[False], "the weighting effect"
    assert result.claim("Class weights raise recall").verdict is not None


def interval(values):
    """Student's 95 % interval of the mean."""
    half = t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return np.mean(values) - half, np.mean(values) + half


def of_seeds(result, variant, column):
    return np.array([row[column] for row in sorted(result.table.where(variant=variant).rows, key=lambda r: r["seed"])])


@pytest.mark.spec("000/F099")
def test_possible_maps_are_nearer_to_the_experts_than_one_map(committed):
    """The energy distance is lower over all seeds. F1 is not known to be as high: five seeds spread too far."""
    result = committed("expert-maps")
    plain, drawn = (of_seeds(result, variant, "energy_distance") for variant in ("plain", "probabilistic"))
    low, _ = interval(plain - drawn)
    assert low > 0
    assert of_seeds(result, "probabilistic", "diversity").min() > 0 == of_seeds(result, "plain", "diversity").max()
    assert result.claim("Possible maps are distributed").held is True
    assert claimed(result, lambda row: row | {"energy_distance": 1.0}, "Possible maps").held is not True
    low, high = interval(of_seeds(result, "probabilistic", "f1") - of_seeds(result, "plain", "f1"))
    claim = result.claim("The probabilistic U-Net maps as well")
    assert low < -0.02 < high
    assert (claim.verdict, claim.measured) == ("undecided", f"{(low + high) / 2:.2f} [{low:.2f}, {high:.2f}]")
    assert claimed(result, lambda row: row | {"f1": 0.5}, "The probabilistic U-Net maps as well").held is True


@pytest.mark.spec("000/F100")
def test_side_information_shifts_the_map(committed):
    """The probability of a class falls in every training, by more than half on average but not surely by half."""
    result = committed("expert-maps")
    shifts = of_seeds(result, "side information", "shift")
    low, high = interval(shifts)
    assert shifts.min() > 0
    assert 0 < low < 0.5 < high
    assert result.claim("Side information shifts the map").verdict == "undecided"
    assert claimed(result, lambda row: row | {"shift": 0.0}, "Side information").held is False


@pytest.mark.spec("000/F121")
def test_dropout_is_more_uncertain_on_errors(committed):
    result = committed("expert-maps")
    assert interval(of_seeds(result, "dropout", "uncertainty_ratio"))[0] > 2
    assert result.claim("Monte-Carlo dropout").held is True
    assert claimed(result, lambda row: row | {"uncertainty_ratio": 1.0}, "Monte-Carlo").held is False


@pytest.mark.spec("000/F120")
def test_batch_norm_and_padding_were_compared(committed):
    """Five paired seeds: padding makes no difference; whether batch norm does, they leave open."""
    result = committed("unet-settings")
    same, valid, normalised = (
        of_seeds(result, variant, "ranking") for variant in ("same padding", "valid padding", "batch norm")
    )
    assert len(same) == len(valid) == len(normalised) == 5
    no_padding, no_norm = (result.claim(words) for words in ("Padding has no influence", "Batch normalisation has no"))
    assert (no_padding.verdict, no_norm.verdict) == ("held", "undecided")
    low, high = interval(same)
    assert f"{same.mean():.2f} [{low:.2f}, {high:.2f}]" in no_padding.measured
    assert abs((valid - same).mean()) < abs((normalised - same).mean())
    worse = claimed(result, lambda row: row | {"ranking": 0.9 if row["variant"] == "batch norm" else 0.2}, "Batch norm")
    assert worse.held is False
