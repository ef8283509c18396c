"""Classifiers by synthesis under attack: that nothing of the published table is left out in silence, and what the
committed table says."""

import numpy as np
import pytest
import torch
from scipy.stats import t as student

from polariscope.robustness.attacks import Attacked
from polariscope.studies.inductive_biases import synthesis_attacks as study
from polariscope.studies.published import published


def attacked(distances: list[float]) -> Attacked:
    count = len(distances)
    zeros = np.zeros(count, np.int64)
    return Attacked(("x",), "l2", torch.zeros(count, 1), np.array(distances), zeros + 3, zeros, zeros, zeros)


@pytest.mark.xdist_group("synthesis-attacks")
def test_every_row_of_the_published_table_is_measured_or_said_not_to_be_run(outcome) -> None:
    """For classifiers of each kind: a network, one with exact inference, and one by search."""
    result = outcome("synthesis-attacks")
    printed = published("inductive_biases/attacks-synthesis").rows
    for classifier, norm in (("linear abs", "L2"), ("binary cnn", "L∞"), ("binary abs", "L0")):
        rows = result.table.where(classifier=classifier, norm=norm)
        named = [row["attack"] for row in rows.rows if row["part"] != "bound"]
        assert sorted(named) == sorted(attack for attack in printed if norm in attack)
        for row in rows.where(part="attack").rows:
            assert (row.get("accuracy") is None) == row["note"].startswith("not run: "), row
            assert row["note"].startswith("not run") or row["queries"] >= 1
    shown = {row["attack"]: row for row in study.SynthesisAttacks().beside(result.table) if "rendered" in row["digits"]}
    assert shown["L∞ BIM w/ GE"]["binary cnn"] == "not run"
    assert shown["L∞ BIM w/ GE"]["cnn"] == "-"
    assert "%" in shown["All L0"]["binary abs"]


def test_attacks_on_the_first_images_count_for_these() -> None:
    whole, some = attacked([3.0, 2.0, 1.0]), attacked([1.0, np.inf])
    nearest = study._nearest([whole, some], 3)
    assert nearest.distances.tolist() == [1.0, 2.0, 1.0]
    assert nearest.queries.tolist() == [6, 6, 3]


def test_thresholds_are_the_published_ones_at_the_published_size() -> None:
    paper, laptop = (study.Stand("drawn", scale, 0, None) for scale in ("paper", "laptop"))
    assert [paper.threshold(norm) for norm in study.NORMS] == [1.5, 0.3, 12]
    assert [laptop.threshold(norm) for norm in study.NORMS] == [1.07, 0.3, 6]


def test_every_adversarial_of_a_classifier_by_search_is_verified_in_full(monkeypatch) -> None:
    """Also the attacks on a binary one, whose images end at its threshold."""
    monkeypatch.setattr(study.Stand, "run_of", lambda self, name: type("Run", (), {"path": "cnn"}))
    stand = study.Stand("drawn", "paper", 0, None)
    for norm in study.NORMS:
        for attack in stand.attacks("abs", norm).values():
            assert isinstance(attack, study.Verified | study.LatentDescent)
        for attack in stand.attacks("binary abs", norm).values():
            assert isinstance(attack, study.Binarised)
            assert isinstance(attack.of, study.Verified | study.LatentDescent)
    assert "L2 Latent Descent" not in stand.attacks("cnn", "L2")
    assert stand.attacks("cnn", "L2")["L2 Transfer"] == "it is the substitute"


@pytest.mark.spec("001b/B-39")
def test_codes_of_two_eight_and_thirty_two_latents_are_compared(committed) -> None:
    """Five trainings of each size: accuracy and median L2 distance, recomputed from the rows of the attacks."""
    result = committed("code-sizes")
    whole = {(row["latents"], row["seed"]): row for row in result.table.rows if row["part"] == "all"}
    assert set(whole) == {(latents, seed) for latents in (2, 8, 32) for seed in range(5)}
    for (latents, seed), row in whole.items():
        attacks = [own for own in result.table.rows
                   if own["part"] == "attack" and (own["latents"], own["seed"]) == (latents, seed)]  # fmt: skip
        assert len(attacks) >= 2
        assert row["median"] <= min(own["median"] for own in attacks) + 1e-9, "the best attack of each image counts"
    clean = {latents: np.mean([whole[latents, seed]["clean"] for seed in range(5)]) for latents in (2, 8, 32)}
    assert result.claim("too few to classify").verdict == "held"
    assert clean[8] >= clean[2] + 1
    distance = {latents: np.mean([whole[latents, seed]["median"] for seed in range(5)]) for latents in (8, 32)}
    claim = result.claim("less robust than 8")
    assert claim.verdict == "undecided"
    assert claim.measured.startswith(f"{distance[8]:.2f} [")
    assert f"against {distance[32]:.2f} [" in claim.measured


def interval(values: np.ndarray) -> tuple[float, float]:
    """Student's 95 % interval of the mean."""
    half = student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean() - half), float(values.mean() + half)


@pytest.mark.spec("001b/B-40")
def test_training_against_linf_attacks_does_not_cost_pixels_on_drawn_digits(committed) -> None:
    """Spec 001b, B8: 4.0 pixels mislead the PGD-trained network and 9.0 the CNN. Spec 001b, E1: without the full
    training, report. Here five trainings of each take more pixels, not fewer: the claim is not held, with the
    published medians beside ours."""
    result = committed("synthesis-attacks")
    pixels: dict[str, np.ndarray] = {}
    for classifier in ("cnn", "pgd-trained"):
        rows = [row for row in result.table.rows if row["classifier"] == classifier and row.get("norm") == "L0"]
        whole = {row["seed"]: row for row in rows if row["part"] == "all"}
        assert sorted(whole) == list(range(5))
        for seed, row in whole.items():
            attacks = [own for own in rows if own["part"] == "attack" and own["seed"] == seed]
            assert {own["attack"] for own in attacks} == {"L0 Salt&Pepper", "L0 Pointwise 10x"}
            assert row["median"] <= min(own["median"] for own in attacks)
        pixels[classifier] = np.array([whole[seed]["median"] for seed in range(5)])
    less = pixels["cnn"] - pixels["pgd-trained"]
    assert interval(less)[1] < 0, "the published order did not come out"
    claim = result.claim("less robust in L0")
    assert claim.verdict == "not held"
    low, high = interval(pixels["cnn"])
    assert claim.measured.startswith(f"{pixels['cnn'].mean():.2f} [{low:.2f}, {high:.2f}] against ")
    assert f"against {pixels['pgd-trained'].mean():.2f} [" in claim.measured
    printed = published("inductive_biases/attacks-synthesis").rows["All L0"]
    assert (printed["Madry median"].mean, printed["CNN median"].mean) == (4.0, 9.0)
    shown = [row for row in study.SynthesisAttacks().beside(result.table) if row["attack"] == "All L0"]
    assert [row["pgd-trained"].split()[0] for row in shown] == ["4", f"{pixels['pgd-trained'].mean():.2f}"]


@pytest.mark.spec("001b/C-03")
def test_analysis_by_synthesis_is_unsure_of_more_images_when_they_are_corrupted(committed) -> None:
    """Five trainings: accuracy and confidence on clean images and under each of 15 corruptions. The share of images
    with a confidence of at most 0.2 rises. The fall of the median confidence is undecided: ten clean images have a
    wide median."""
    result = committed("synthesis-attacks")
    rows = [row for row in result.table.rows if row["classifier"] == "abs" and "confidence" in row]
    kinds = list(study.SUITES[study.SUITE].benchmark)
    assert len(kinds) == 15
    clean, corrupted = {}, {}
    for seed in range(5):
        own = {row["attack"]: row for row in rows if row["seed"] == seed}
        assert sorted(own) == sorted(["clean", "all corruptions", *kinds])
        for key in ("accuracy", "unsure"):
            assert own["all corruptions"][key] == pytest.approx(np.mean([own[kind][key] for kind in kinds]))
        clean[seed], corrupted[seed] = own["clean"], own["all corruptions"]
    rise = np.array([corrupted[seed]["unsure"] - clean[seed]["unsure"] for seed in range(5)])
    assert interval(rise)[0] > 0
    assert rise.mean() >= 20
    fall = np.array([clean[seed]["confidence"] - corrupted[seed]["confidence"] for seed in range(5)])
    assert (fall > -0.01).all(), "in no training is it surer of corrupted images"
    claim = result.claim("unsure of corrupted images")
    levels = [np.mean([one[seed]["confidence"] for seed in range(5)]) for one in (clean, corrupted)]
    assert claim.measured.startswith(f"{levels[0]:.2f} [")
    assert f"against {levels[1]:.2f} [" in claim.measured
    assert claim.verdict == "undecided"
