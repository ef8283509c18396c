"""Statistics over seeds: the p-values and average ranks that the printed tables imply."""

import numpy as np
import pytest

from polariscope.measures.seeds import (
    Summary,
    best_seed,
    compare,
    marks,
    permutation_test,
    ranks,
    relative_change,
    summarise,
)


def printed(mean, sd):
    return Summary(mean, sd, mean, 0.0, 10)


@pytest.mark.spec("001a/ST-01")
@pytest.mark.parametrize(
    ("first", "second", "p"),
    [
        ((79.6, 5.8), (67.6, 6.7), 4.5e-4),
        ((66.1, 4.5), (62.6, 7.5), 0.22),
        ((58.8, 8.9), (46.0, 4.8), 8.3e-4),
        ((65.4, 3.6), (52.0, 3.5), 1.1e-7),
        ((52.9, 4.2), (49.1, 4.0), 0.053),
        ((77.6, 4.1), (82.6, 2.2), 0.0032),
        ((69.7, 6.5), (76.2, 4.8), 0.020),
        ((8.5, 4.4), (11.7, 5.0), 0.146),
        ((49.9, 3.5), (52.6, 4.1), 0.131),
        ((17.6, 2.8), (18.9, 5.5), 0.514),
        ((89.8, 3.2), (88.1, 3.6), 0.279),
        ((1.8, 0.9), (4.4, 2.3), 0.0037),
    ],
)
def test_p_values_from_printed_means_and_deviations(first, second, p):
    assert compare(printed(*first), printed(*second))[1] == pytest.approx(p, rel=0.04)


@pytest.mark.spec("001a/ST-01")
def test_marks_name_the_significantly_best_and_worst():
    kitti = [printed(58.5, 3.3), printed(67.6, 6.7), printed(79.6, 5.8)]
    assert marks(kitti) == ["worst", "", "best"]
    assert marks([printed(52.6, 5.1), printed(62.6, 7.5), printed(66.1, 4.5)]) == ["worst", "", ""]
    assert marks(kitti, higher_is_better=False) == ["best", "", "worst"]
    assert marks(kitti[:1]) == [""]


@pytest.mark.spec("001a/ST-01", "003/F3-092")
def test_summaries():
    s = summarise([1.0, 2.0, 4.0, 9.0, 9.0])
    assert (s.mean, s.median, s.ad, s.count) == (5.0, 4.0, 3.0, 5)
    assert s.sd == pytest.approx(np.sqrt(14.5))
    assert str(Summary(0.2345, 0.0511, 0, 0, 10)) == "0.234 (0.051)"
    with pytest.raises(ValueError, match="at least 2 seeds"):
        summarise([1.0])


@pytest.mark.spec("003/F3-092")
def test_relative_changes_and_welch_of_the_modified_data_study():
    original = [0.60, 0.27, 0.58, 0.53, 0.44, 0.69]
    modified, noise = [0.09, 0.07, 0.24, 0.13, 0.47, 0.66], [0.66, 0.33, 0.60, 0.60, 0.40, 0.77]
    assert (100 * relative_change(original, modified)).round().tolist() == [-85, -74, -59, -75, 7, -4]
    assert (100 * relative_change(original, noise)).round().tolist() == [10, 22, 3, 13, -9, 12]
    assert compare(printed(0.60, 0.31), printed(0.09, 0.14), equal_var=False)[0] == pytest.approx(4.7, abs=0.06)
    assert compare(printed(0.27, 0.11), printed(0.20, 0.12), equal_var=False)[0] == pytest.approx(1.4, abs=0.06)
    with pytest.raises(ValueError, match="from 0 is undefined"):
        relative_change([0.0], [1.0])


CELLS = np.array(
    # PCL, Ada-GVAE, SlowVAE: dSprites UNI, dSprites LAP, natural discrete (7 scores each), then three MCC columns
    [
        [80.1, 88.0, 87.0], [62.1, 73.1, 75.2], [16.0, 17.3, 28.3], [41.6, 46.0, 58.8],
        [42.4, 32.3, 47.7], [99.7, 93.3, 86.9], [6.0, 6.6, 4.4],
        [99.9, 91.4, 100.0], [94.7, 83.0, 97.5], [19.2, 21.8, 29.5], [67.9, 56.9, 69.8],
        [52.0, 39.0, 65.4], [93.2, 87.6, 96.5], [8.1, 7.2, 8.1],
        [82.4, 83.4, 82.6], [68.3, 74.8, 76.2], [7.8, 14.5, 11.7], [50.2, 51.6, 52.6],
        [14.3, 21.8, 18.9], [88.9, 87.8, 88.1], [2.5, 5.3, 4.4],
        [51.7, 48.4, 49.1], [52.6, 62.6, 66.1], [58.5, 67.6, 79.6],
    ]
)  # fmt: skip


@pytest.mark.spec("001a/ST-02")
def test_average_ranks_and_permutation_tests_of_the_printed_tables():
    places = ranks(CELLS)
    assert places.mean(axis=0) == pytest.approx([2.396, 2.125, 1.479], abs=5e-4)
    assert (places[:, 2] <= 1.5).sum() == 15
    pcl, ada, slow = places.T
    assert permutation_test(slow, pcl) == pytest.approx(0.002, abs=0.001)
    assert permutation_test(slow, ada) == pytest.approx(0.028, abs=0.006)
    assert permutation_test(pcl, ada) == pytest.approx(0.38, abs=0.03)


def test_ranks_run_the_other_way_for_losses_and_the_test_is_exact_where_it_can_be():
    assert ranks([[3, 1, 2]], higher_is_better=False).tolist() == [[3, 1, 2]]
    assert permutation_test([1] * 4, [2] * 4, seed=1) == pytest.approx(2 / 16, abs=0.005)
    assert permutation_test([1, 2], [1, 2]) == 1
    with pytest.raises(ValueError, match="paired values"):
        permutation_test([], [])


def test_the_best_seed_has_the_highest_mean():
    assert best_seed([[0.1, 0.9], [0.7, 0.7], [0.2, 0.3]]) == 1
    with pytest.raises(ValueError, match=r"\(seeds, scores\)"):
        best_seed([0.1, 0.2])
