"""Classifiers by synthesis under attack: that nothing of the published table is left out in silence, and what the
committed table says."""

import numpy as np
import pytest
import torch

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
    shown = {row["attack"]: row for row in study.SynthesisAttacks().beside(result.table) if "drawn" in row["digits"]}
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
