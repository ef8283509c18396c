"""Statistics over seeds: the p-values and average ranks that the printed tables imply."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t as student_t

from polariscope.cli import main
from polariscope.lab import Store
from polariscope.measures.seeds import (
    Summary,
    compare,
    marks,
    permutation_test,
    ranks,
    relative_change,
    seed_table,
    summarise,
)

SPEC = Path(__file__).resolve().parents[2] / "docs" / "spec" / "001a-slowvae-and-indomain-generalization.md"


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
    """Mean, median, and both deviations of these scores are five different numbers, and so is the mean deviation."""
    s = summarise([1.0, 2.0, 4.0, 9.0, 10.0])
    assert (s.mean, s.median, s.ad, s.count) == (5.2, 4.0, 3.0, 5)
    assert s.sd == pytest.approx(np.sqrt(66.8 / 4))
    assert str(Summary(0.2345, 0.0511, 0, 0, 10)) == "0.234 (0.051)"
    assert s.text("median") == "4 (3)"
    assert summarise([1.0, 4.0]) == Summary(2.5, np.sqrt(4.5), 2.5, 1.5, 2)
    with pytest.raises(ValueError, match="at least 2 seeds"):
        summarise([1.0])


def printed_tables():
    """Tables 1 and 2 of the work from the specification: ``{score on a data set: {model: (mean, s.d.)}}``."""
    columns = {}
    text = SPEC.read_text()
    for title in ("### Table 1 ", "### Table 2 "):
        lines = [line for line in text.split(title)[1].split("###")[0].splitlines() if line.startswith("|")]
        heads, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        for model, *cells in rows:
            data = cells.pop(0) if heads[1] == "Data" else ""
            for score, cell in zip(heads[-len(cells) :], cells, strict=True):
                mean, sd = re.fullmatch(r"([\d.]+) \(([\d.]+)\)", cell).groups()
                columns.setdefault(f"{score} {data}".strip(), {})[model] = (float(mean), float(sd))
    return columns


@pytest.mark.spec("001a/ST-01")
def test_the_printed_tables_come_out_with_their_marks():
    """Held against Student's t of two means over ten seeds each, written out."""
    columns = printed_tables()
    assert len(columns) == 24
    table = seed_table(
        {m: {name: printed(*column[m]) for name, column in columns.items()} for m in ("PCL", "Ada-GVAE", "SlowVAE")}
    )
    critical = student_t.ppf(0.975, 18)
    for name, column in columns.items():
        order = sorted(column, key=lambda model: column[model][0])
        (a, sa), (b, sb), (c, sc) = (column[model] for model in order)
        low, high = ((b - a) / np.sqrt((sa**2 + sb**2) / 10), (c - b) / np.sqrt((sb**2 + sc**2) / 10))
        expected = dict.fromkeys(column, "")
        expected[order[0]] = "worst" if low > critical else ""
        expected[order[-1]] = "best" if high > critical else ""
        assert {model: table.marks[model][name] for model in column} == expected, name
    result = {m: [name for name in columns if table.marks[m][name] == "best"] for m in table.marks}
    assert {"MCC dSprites UNI", "DCI dSprites LAP", "KITTI 0.15 s"} <= set(result["SlowVAE"])  # Spec 001a, section 6
    assert "KITTI 0.05 s" not in result["SlowVAE"]
    text = table.markdown()
    assert "| SlowVAE | 87 (5.1) |" in text
    assert text.splitlines()[-1].endswith("| **79.6 (5.8)** |")
    assert re.search(r"^\| PCL .* 58.5 \(3.3\) ▼ \|$", text, re.MULTILINE)


@pytest.mark.spec("001a/ST-01")
def test_a_table_shows_means_or_medians_and_each_score_has_its_direction():
    scores = {
        "a": {"MIG": [0.1, 0.2, 0.9], "loss": [1.0, 1.1, 1.2], "rank": [1, 2, 3]},
        "b": {"MIG": [0.3, 0.3, 0.3], "loss": [5.0, 5.1, 5.2]},
    }
    table = seed_table(scores, {"MIG": True, "loss": False, "rank": None})
    assert table.scores == ("MIG", "loss", "rank")
    assert table.marks == {"a": {"MIG": "", "loss": "best", "rank": ""}, "b": {"MIG": "", "loss": "worst"}}
    assert table.markdown("mean").splitlines()[2:] == [
        "| a | 0.4 (0.44) | **1.1 (0.1)** | 2 (1) |",
        "| b | 0.3 (0) | 5.1 (0.1) ▼ | - |",
    ]
    assert "| a | 0.2 (0.1) |" in table.markdown("median")


@pytest.mark.spec("001a/ST-01")
def test_the_command_line_holds_settings_against_each_other_over_their_seeds(tmp_path, capsys):
    store = Store(tmp_path)
    scores = {1.0: [0.1, 0.2, 0.12], 4.0: [0.7, 0.9, 0.71], 16.0: [0.5]}
    for beta, values in scores.items():
        for seed, mig in enumerate(values):
            settings = {"world": {"name": "sprites"}, "objective": {"name": "beta-vae", "beta": beta}}
            run = store.create({**settings, "training": {"seed": seed}}, f"{beta} {seed}")
            run.update(status="done", result={"held_out_loss": 5.0, "measures": {"mig": mig}})
    again = store.create({**settings, "training": {"seed": 0}}, "the same seed again")
    again.update(status="done", result={"measures": {"mig": 0.5}})
    assert main(["runs", "--runs", str(tmp_path), "--over-seeds", "measures_mig", "--json"]) == 0
    shown = capsys.readouterr()
    assert "skipped: objective_beta 16.0 has 1 seed with" in shown.err
    low, high = json.loads(shown.out)
    assert (low["setting"], low["median"], low["mark"]) == ("objective_beta 1.0", 0.12, "worst")
    assert (high["count"], high["median"], high["mark"]) == (3, 0.71, "best")
    assert high["mean"] == pytest.approx(0.77)
    assert main(["runs", "--runs", str(tmp_path), "--over-seeds", "measures_mig", "held_out_loss"]) == 0
    text = capsys.readouterr().out
    assert "mean (s.d.)" in text
    assert "0.77 (0.11)" in text
    assert "median (a.d.)" in text
    assert "0.71 (0.01)" in text
    few = ["--where", "objective_beta > 10", "--over-seeds", "measures_mig"]
    assert main(["runs", "--runs", str(tmp_path), *few]) == 2
    assert "no setting has two seeds with measures_mig" in capsys.readouterr().err


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
