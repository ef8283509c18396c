"""The card: what it measures, that it goes on after an interruption, and that it says what was not run."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from polariscope.cli import main
from polariscope.examination.robustness import (
    LEARNED,
    median_interval,
    minimal_adversarials,
    noise_gallery,
    quantile_gallery,
    robustness,
)
from polariscope.findings import Chart
from polariscope.robustness import kept
from polariscope.robustness.distances import QUARTERS
from polariscope.worlds import ArrayWorld

SIDE = 8
SOURCE = (
    "import torch\n\n\nclass Net(torch.nn.Module):\n    def forward(self, x):\n"
    "        left, right = x[..., :4].flatten(1).sum(1), x[..., 4:].flatten(1).sum(1)\n"
    "        return torch.stack([left - right, right - left], 1)\n"
)


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
    assert [row["attack"] for row in json_form["attacks_l2"]] == [
        "ddn steps=50", "gaussian-noise repeats=3", "all attacks", "transfer", "lower bound",
    ]  # fmt: skip
    ran = json_form["attacks_l2"][:3]
    assert all(row["queries"] > 0 for row in ran), "queries in every row"
    assert json_form["attacks_l2"][3]["note"].startswith("not run: no substitute")
    assert {"gaussian_median", "uniform_median", "learned_median"} == set(json_form["noise"])
    assert {row["question"] for row in json_form["not_run"]} == {"corruptions"}
    names = [part.name for part in document.parts]
    assert names == [
        "summary", "sandwich", "attacks_l2", "distances", "adversarials_l2", "minimal_adversarials", "distal_images",
        "noise", "noise_gallery", "rejection_confidence", "rejection_risk", "not_run",
    ]  # fmt: skip
    opened = document.save(tmp_path)
    assert "Nearest adversarials, L2" in opened.read_text(encoding="utf-8")
    assert document.arrays["l2_adversarials"].shape == (6, 1, SIDE, SIDE)
    np.testing.assert_array_equal(document.arrays["l2_distances"], card.of("l2").best.distances)


def test_attacks_that_are_kept_are_not_run_again(
    data: ArrayWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"only": ("attacks",), "budget": "quick", "count": 8, "folder": tmp_path}
    first = robustness(Halves(), data, norms=("l2",), **settings)
    files = sorted(tmp_path.glob("[dg]*-l2-*"))
    assert [file.name.split("-l2")[0] for file in files] == ["ddn", "gaussian-noise"]

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
    assert any(name.startswith("estimated") for name in card.of("l2").results), "scores take the place of gradients"
    assert "distal images" in card.skipped
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
    source.write_text(SOURCE)
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


def test_several_thresholds_have_a_column_each_and_l0_is_told_both_ways(data: ArrayWorld) -> None:
    thresholds = {"linf": (0.05, 0.08), "l0": (9,)}
    card = robustness(Halves(), data, only=("attacks",), norms=("linf", "l0"), budget="quick", count=6,
                      thresholds=thresholds)  # fmt: skip
    told = card.findings().json()
    distances = card.of("linf").best.distances
    assert told["summary"]["linf_accuracy"] == (distances > 0.05).mean()
    assert told["summary"]["linf_accuracy_at_0.08"] == (distances > 0.08).mean()
    everything = next(row for row in told["attacks_linf"] if row["attack"] == "all attacks")
    assert everything["accuracy 0.05"] == (distances > 0.05).mean()
    counts = card.of("l0").best.distances
    assert told["summary"]["l0_accuracy"] == (counts > 9).mean()
    assert told["summary"]["l0_accuracy_fewer"] == (counts >= 9).mean()
    with pytest.raises(ValueError, match="positive sizes"):
        robustness(Halves(), data, only=("attacks",), norms=("l2",), thresholds={"l2": (0.0,)}, count=2)


@pytest.mark.spec("001b/B-33")
def test_galleries_show_images_of_their_quarter(data: ArrayWorld) -> None:
    """Every image of a strip has a distance in the quarter that the strip is named after."""
    card = robustness(Halves(), data, only=("attacks",), norms=("l2",), budget="quick", count=16)
    gallery = quantile_gallery(card, "l2")
    assert [strip.label for strip in gallery.strips] == list(QUARTERS)
    best = card.of("l2").best
    edges = np.quantile(best.distances, [0, 0.25, 0.5, 0.75, 1])
    for number, strip in enumerate(gallery.strips):
        images, adversarials = strip.images[0], strip.images[1]
        assert len(images) == 4
        assert strip.images.shape[:2] == (3, 4), "images, adversarials, changes"
        for image, adversarial in zip(images, adversarials, strict=True):
            (place,) = [i for i, x in enumerate(card.images) if np.array_equal((x * 255).round().byte().numpy(), image)]
            np.testing.assert_array_equal((best.adversarials[place] * 255).round().byte().numpy(), adversarial)
            assert edges[number] - 1e-9 <= best.distances[place] <= edges[number + 1] + 1e-9


@pytest.mark.spec("001b/B-34")
def test_one_image_of_each_class_stands_above_its_adversarials_for_each_model(data: ArrayWorld) -> None:
    class Shifted(Halves):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + torch.tensor([0.5, -0.5])

    settings = {"only": ("attacks",), "norms": ("l2",), "budget": "quick", "count": 8}
    cards = [robustness(model, data, **settings) for model in (Halves(), Shifted())]
    gallery = minimal_adversarials(cards, "l2")
    clean, first, second = gallery.strips
    assert clean.images.shape == (1, 2, 1, SIDE, SIDE), "a column for each class"
    assert clean.note == "0 1"
    for strip, card, model in ((first, cards[0], Halves()), (second, cards[1], Shifted())):
        shown = torch.from_numpy(strip.images[0]).float() / 255
        assert strip.note.startswith("1 0; distances "), "what the classifier decides for"
        places = [i for i, a in enumerate(card.of("l2").best.adversarials)
                  if any(torch.allclose(a, one, atol=0.003) for one in shown)]  # fmt: skip
        assert sorted(card.labels[places]) == [0, 1]
        assert (model(card.of("l2").best.adversarials[places]).argmax(1).numpy() != card.labels[places]).all()
    other = robustness(Halves(), data, **settings, seed=1)
    with pytest.raises(ValueError, match="same seed"):
        minimal_adversarials([cards[0], other], "l2")


@pytest.mark.spec("001b/A-35")
def test_the_gallery_of_noise_has_the_norms_of_what_was_added(data: ArrayWorld) -> None:
    card = robustness(Halves(), data, only=("noise",), budget="quick", count=6)
    gallery = noise_gallery(card.images, card.noise, sigmas=(0.1, 0.5))
    assert [strip.label for strip in gallery.strips] == [
        "clean", "Gaussian, σ 0.1", "Gaussian, σ 0.5", "gaussian, at ε*", "uniform, at ε*", "learned, at ε*",
    ]  # fmt: skip
    clean = gallery.strips[0].images.astype(float) / 255
    for strip in gallery.strips[1:]:
        norms = [float(word) for word in strip.note.removeprefix("norms ").split(", ")]
        shown = np.linalg.norm((strip.images / 255 - clean).reshape(4, -1), axis=1)
        np.testing.assert_allclose(norms, shown, atol=0.03 * SIDE, rtol=0.01)
    # E[norm] of N(0, 0.1²) on 64 pixels, none of them near its bounds
    assert abs(np.mean([float(w) for w in gallery.strips[1].note[6:].split(", ")]) - 0.8) < 0.15
    learned = card.noise[-1]
    reached = np.isfinite(learned.distances) & (learned.distances > 0)
    wrong = Halves()(learned.noisy).argmax(1).numpy() != card.labels
    assert (wrong == reached | (learned.distances == 0)).all(), "at ε* the image is misclassified"


@pytest.mark.spec("001b/A-19")
def test_learned_noise_is_that_of_new_generators(data: ArrayWorld) -> None:
    card = robustness(Halves(), data, only=("noise",), budget="quick", count=6)
    assert card.learned.seeds == (0, 1)
    assert LEARNED["standard"][0] == LEARNED["full"][0] == 4, "as published"
    told = card.findings().json()["noise"]
    if np.isfinite(card.learned.mean):
        assert told["learned_median"] == card.learned.mean


def test_a_random_classifier_is_attacked_as_its_mean_or_not_at_all(data: ArrayWorld) -> None:
    class Noisy(Halves):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x + 0.02 * torch.randn_like(x))

    settings = {"only": ("attacks", "noise"), "norms": ("l2",), "budget": "quick", "count": 4}
    card = robustness(Noisy(), data, **settings)
    assert card.norms == ()
    assert "--draws 20" in card.skipped["attacks"]
    assert "random outputs" in [warning.name for warning in card.warnings]
    card = robustness(Noisy(), data, **{**settings, "only": ("attacks",)}, draws=8)
    assert "random outputs" not in [warning.name for warning in card.warnings]
    gap = (Halves()(card.images) @ torch.tensor([1.0, -1.0])).abs().numpy() / 2
    found = card.of("l2").best.distances
    assert (found > 0.8 * gap / SIDE).all(), "the mean has its boundary where the plain classifier has it"
    assert (found < 1.5 * gap / SIDE).all()
    assert "mean over 8 draws" in card.notes[-1]


def test_an_attack_of_ones_own_and_a_substitute_are_rows_like_others(data: ArrayWorld) -> None:
    card = robustness(Halves(), data, only=("attacks",), norms=("linf", "l0"), budget="quick", count=4,
                      also=("mim",), substitute=Halves())  # fmt: skip
    rows = card.of("linf")
    assert {"mim", "transfer substitute=Halves pgd"} <= set(rows.results)
    assert rows.needs["mim"] == "gradient"
    assert card.of("l0").not_run["mim"] == "it works in l2 and linf"


def network() -> nn.Module:
    """The same question to layers with known bounds."""
    made = nn.Sequential(nn.Flatten(), nn.Linear(SIDE**2, 2, bias=False))
    sides = torch.where(torch.arange(SIDE) < SIDE // 2, 1.0, -1.0).repeat(SIDE)
    made[1].weight.data.copy_(torch.stack([sides, -sides]))
    return made


def test_attacks_and_bounds_enclose_the_distance(data: ArrayWorld) -> None:
    """The two lines of the sandwich: the bound of a linear network is its distance, and no attack is below it."""
    card = robustness(network(), data, only=("attacks", "bounds"), norms=("l2",), budget="quick", count=6)
    part = card.of("l2")
    gap = (Halves()(card.images) @ torch.tensor([1.0, -1.0])).abs().numpy() / 2
    np.testing.assert_allclose(part.lower, gap / SIDE, rtol=1e-4)
    assert (part.lower <= part.best.distances * (1 + 1e-5)).all()
    assert part.violations == 0
    (row,) = [row for row in card.records("l2") if row["attack"].startswith("certificate")]
    assert row["note"] == "lower bound; 0 violations by attacks"
    (chart,) = [one for one in card.findings().of(Chart) if one.name == "sandwich"]
    (axes,) = chart.draw().axes
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["after attacks", "certificate"]
    assert len(axes.collections) == 1, "the gap is shaded"


def test_bounds_that_were_kept_are_read_back(data: ArrayWorld, tmp_path: Path) -> None:
    settings = {"only": ("bounds",), "norms": ("l2",), "budget": "quick", "count": 5, "folder": tmp_path}
    first, again = (robustness(network(), data, **settings).of("l2").bounds for _ in range(2))
    assert [file.name.split("-")[0] for file in tmp_path.iterdir()] == ["bounds"]
    np.testing.assert_array_equal(first.lower, again.lower)
    assert (first.kind, first.method, first.notes, set(first.by_method)) == (
        again.kind, again.method, again.notes, set(again.by_method),
    )  # fmt: skip


def test_corruptions_alone_are_those_of_the_other_command(
    data: ArrayWorld, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(SOURCE)
    np.savez("data.npz", x=data.observe(np.arange(40)), y=data.factors_of(np.arange(40))[:, 0])
    told = []
    for words in (["robustness", "--only", "corruptions", "--corrupted", "20"], ["corruptions", "--count", "20"]):
        command, *rest = words
        assert main([command, "mine.py:Net", "data.npz", "--suite", "mnist-c", *rest, "--json"]) == 0
        told.append(json.loads(capsys.readouterr().out.splitlines()[-1]))
    assert told[0]["corruptions_kinds"] == told[1]["kinds"]
    assert {row["question"] for row in told[0]["not_run"]} == {"attacks", "noise", "bounds"}
