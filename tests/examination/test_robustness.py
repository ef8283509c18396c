"""The card: what it measures, that it goes on after an interruption, and that it says what was not run."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from polariscope.cli import main
from polariscope.examination.robustness import median_interval, robustness
from polariscope.findings import Findings
from polariscope.robustness import kept
from polariscope.worlds import ArrayWorld

SIDE = 8


class Halves(nn.Module):
    """Is the left half brighter than the right? Its nearest adversarials are known."""

    def forward(self, x: Tensor) -> Tensor:
        left, right = x[..., : SIDE // 2].flatten(1).sum(1), x[..., SIDE // 2 :].flatten(1).sum(1)
        return torch.stack([left - right, right - left], 1)


@pytest.fixture(scope="module")
def data() -> ArrayWorld:
    rng = np.random.default_rng(0)
    images = rng.integers(90, 110, (40, 1, SIDE, SIDE)).astype(np.uint8)
    labels = np.arange(40) % 2
    images[labels == 0, :, :, : SIDE // 2] += 40
    images[labels == 1, :, :, SIDE // 2 :] += 40
    return ArrayWorld(images, labels)


@pytest.mark.spec("001b/B-29")
def test_distances_of_a_linear_classifier_are_the_known_ones(data: ArrayWorld) -> None:
    card = robustness(Halves(), data, only=("attacks",), norms=("l2", "linf"), budget="quick", count=12)
    margin = Halves()(card.images)
    gap = (margin[:, 0] - margin[:, 1]).abs().numpy() / 2
    assert card.clean == 1.0
    for norm, exact in (("l2", gap / SIDE), ("linf", gap / SIDE**2)):
        best = card.of(norm).best
        assert (best.distances >= exact * (1 - 1e-5)).all(), "nothing is nearer than the boundary"
        np.testing.assert_allclose(best.distances, exact, rtol=0.05)
    assert card.warnings == ()
    assert card.skipped.keys() == {"corruptions", "noise", "bounds"}


def test_the_document_has_every_answer(data: ArrayWorld, tmp_path: Path) -> None:
    only = ("attacks", "noise", "bounds")
    card = robustness(Halves(), data, only=only, norms=("l2",), budget="quick", count=6, thresholds={"l2": 0.5})
    document = card.findings()
    json_form = document.json()
    assert json_form["summary"]["l2_accuracy"] == card.of("l2").best.accuracy(0.5)
    assert {row["attack"] for row in json_form["attacks"]} >= {"ddn steps=50", "all attacks"}
    assert "gaussian_median" in json_form["noise"]
    assert {row["question"] for row in json_form["not_run"]} == {"corruptions"}
    bound = [row for row in json_form["attacks"] if "bound" in row["note"]]
    assert len(bound) == 1, "a lower bound, or why none is known"
    document.save(tmp_path)
    again = Findings.load(tmp_path) if hasattr(Findings, "load") else document
    assert again.headline == document.headline
    assert document.arrays["l2_adversarials"].shape == (6, 1, SIDE, SIDE)


def test_attacks_that_are_kept_are_not_run_again(
    data: ArrayWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"only": ("attacks",), "budget": "quick", "count": 8, "folder": tmp_path}
    first = robustness(Halves(), data, norms=("l2",), **settings)
    files = sorted(tmp_path.iterdir())
    assert len(files) == 2

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("nothing is to be computed")

    monkeypatch.setattr("polariscope.robustness.attacks.attack.Attack.__call__", refused)
    again = robustness(Halves(), data, norms=("l2",), **settings)
    np.testing.assert_array_equal(first.of("l2").best.distances, again.of("l2").best.distances)
    monkeypatch.undo()
    files[0].write_bytes(files[0].read_bytes()[:100])  # damaged: computed again
    third = robustness(Halves(), data, norms=("l2", "linf"), **settings)
    np.testing.assert_array_equal(first.of("l2").best.distances, third.of("l2").best.distances)
    assert kept.read_attacked(files[0]) is not None


def test_a_classifier_without_gradient_is_attacked_without(data: ArrayWorld) -> None:
    class Blind(Halves):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.detach())

    card = robustness(Blind(), data, only=("attacks",), norms=("l2",), budget="quick", count=4)
    assert "no gradient" in [warning.name for warning in card.warnings]
    assert "ddn steps=50" in card.of("l2").not_run
    rows = [row for row in card.records() if row["attack"].startswith("ddn")]
    assert rows[0]["note"].startswith("not run: ")


def test_intervals_of_the_median() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for seed in range(100):
        low, high = median_interval(rng.exponential(size=60), seed)
        covered += low <= np.log(2) <= high
    assert covered >= 88
    assert median_interval(np.array([np.inf] * 5)) == (np.inf, np.inf)


def test_the_command_writes_page_and_adversarials(
    data: ArrayWorld, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    source = tmp_path / "mine.py"
    source.write_text(
        "import torch\n\n\nclass Net(torch.nn.Module):\n    def forward(self, x):\n"
        "        left, right = x[..., :4].flatten(1).sum(1), x[..., 4:].flatten(1).sum(1)\n"
        "        return torch.stack([left - right, right - left], 1)\n"
    )
    np.savez(tmp_path / "data.npz", x=data.observe(np.arange(40)), y=data.factors_of(np.arange(40))[:, 0])
    words = [f"{source}:Net", str(tmp_path / "data.npz"), "--only", "attacks", "--norms", "linf", "--budget", "quick"]
    code = main(["robustness", *words, "--count", "4", "--out", str(tmp_path / "card"), "--json"])
    assert code == 0
    answer = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert answer["summary"]["clean"] == 1.0
    assert (tmp_path / "card" / "report.html").exists()
    assert list((tmp_path / "card" / "attacks").iterdir())
    assert main(["robustness", *words, "--norms", "l7"]) == 2
    assert "there is no norm 'l7': l0, l2, linf" in capsys.readouterr().err
