"""The card: what it measures, that it goes on after an interruption, and that it says what was not run."""

import json
import os
import signal
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

import polariscope.atomic
from polariscope.cli import main
from polariscope.examination.robustness import (
    LEARNED,
    median_interval,
    minimal_adversarials,
    noise_gallery,
    quantile_gallery,
    robustness,
)
from polariscope.examination.robustness_card import LearnedDistances
from polariscope.findings import Chart
from polariscope.robustness import kept
from polariscope.robustness.attacks import Attack, Trial
from polariscope.robustness.attacks.apgd import APGD
from polariscope.robustness.attacks.pgd import PGD
from polariscope.robustness.distances import QUARTERS
from polariscope.robustness.noise_distance import NoiseDistances
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
        "ddn steps=50", "gaussian-noise repeats=3", "all attacks",
    ]  # fmt: skip
    assert [row["bound"] for row in json_form["bounds"]] == ["no bound is known"]
    assert all(row["queries"] > 0 for row in json_form["attacks_l2"]), "queries in every row"
    assert {"gaussian_median", "uniform_median", "learned_median"} == set(json_form["noise"])
    left_out = "L2: fast-gradient, deepfool, carlini-wagner, fab, apgd, square, pointwise, boundary"
    reasons = {row["question"]: row["reason"] for row in json_form["not_run"]}
    assert reasons.keys() == {"corruptions", left_out, "L2: transfer"}
    assert reasons[left_out] == "not in the budget quick (--budget full)"
    names = [part.name for part in document.parts]
    assert names == [
        "summary", "sandwich", "attacks_l2", "bounds", "distances", "adversarials_l2", "minimal_adversarials",
        "distal_images",
        "noise", "noise_gallery", "rejection_confidence", "rejection_risk", "not_run",
    ]  # fmt: skip
    opened = document.save(tmp_path)
    assert "Nearest adversarials, L2" in opened.read_text(encoding="utf-8")
    assert document.arrays["l2_adversarials"].shape == (6, 1, SIDE, SIDE)
    np.testing.assert_array_equal(document.arrays["l2_distances"], card.of("l2").best.distances)


@pytest.mark.parametrize(
    ("shift", "outputs", "note"),
    [
        (0, 2, None),
        (10, 2, "The classes 10 to 11 of the data are matched to the 2 outputs of Net in this order."),
        (1, 3, "Net has 3 classes; the 2 classes of the data are matched to its outputs by number."),
    ],
)
def test_the_card_tells_how_classes_are_matched_to_outputs(data: ArrayWorld, shift: int, outputs: int, note) -> None:
    class Net(Halves):
        def forward(self, x: Tensor) -> Tensor:
            scores = super().forward(x)
            return scores if outputs == 2 else torch.cat([scores[:, :1] * 0 - 99, scores], 1)

    images = data.observe(np.arange(len(data)))
    labelled = ArrayWorld(images, np.arange(len(data)) % 2 + shift)
    card = robustness(Net(), labelled, only=("attacks",), norms=("linf",), budget="quick", count=4)
    assert card.clean == 1.0
    assert [one for one in card.findings().notes if "matched" in one] == ([note] if note else [])


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


def test_results_of_another_classifier_of_the_same_name_are_not_read(data: ArrayWorld, tmp_path: Path) -> None:
    """Weights differ, or the scores of a function, which has no weights."""

    def scaled(factor: float) -> nn.Module:
        net = nn.Sequential(nn.Flatten(), nn.Linear(SIDE**2, 2))
        with torch.no_grad():
            net[1].weight.copy_(Halves()(torch.eye(SIDE**2).reshape(-1, 1, SIDE, SIDE)).T)
            net[1].bias.copy_(torch.tensor([factor, -factor]))
        return net

    settings = {"only": ("attacks",), "norms": ("linf",), "budget": "quick", "count": 4, "folder": tmp_path}
    for kind in (lambda net: net, lambda net: lambda x: net(x)):
        first, second = (robustness(kind(scaled(bias)), data, **settings).of("linf").best for bias in (0.0, 1.0))
        assert (first.distances != second.distances).all()


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
    assert median_interval(np.array([np.inf] * 6)) == (np.inf, np.inf)
    assert median_interval(np.full(5, 2.0)) == (0.0, np.inf), "five images have no interval of 95 %"


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
    assert "there is no norm 'l7': known: l0, l2, linf" in capsys.readouterr().err


def test_several_thresholds_have_a_column_each_and_l0_is_told_both_ways(data: ArrayWorld) -> None:
    thresholds = {"linf": (0.05, 0.08), "l0": (9,)}
    card = robustness(Halves(), data, only=("attacks",), norms=("linf", "l0"), budget="quick", count=6,
                      thresholds=thresholds)  # fmt: skip
    answer = card.findings().json()
    distances = card.of("linf").best.distances
    assert answer["summary"]["linf_accuracy"] == (distances > 0.05).mean()
    assert answer["summary"]["linf_accuracy_at_0.08"] == (distances > 0.08).mean()
    everything = next(row for row in answer["attacks_linf"] if row["attack"] == "all attacks")
    assert everything["accuracy 0.05"] == (distances > 0.05).mean()
    counts = card.of("l0").best.distances
    assert answer["summary"]["l0_accuracy"] == (counts > 9).mean()
    assert answer["summary"]["l0_accuracy_fewer"] == (counts >= 9).mean()
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
    answer = card.findings().json()["noise"]
    if np.isfinite(card.learned.mean):
        assert answer["learned_median"] == card.learned.mean


def test_a_random_classifier_is_attacked_as_its_mean_or_not_at_all(data: ArrayWorld) -> None:
    class Noisy(Halves):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x + 0.02 * torch.randn_like(x))

    settings = {"only": ("attacks", "noise"), "norms": ("l2",), "budget": "quick", "count": 4}
    card = robustness(Noisy(), data, **settings)
    assert card.norms == ()
    assert "--draws 20" in card.skipped["attacks"]
    assert "random outputs" in [warning.name for warning in card.warnings]
    card = robustness(Noisy(), data, **{**settings, "only": ("attacks",)}, draws=4)
    assert "random outputs" not in [warning.name for warning in card.warnings]
    gap = (Halves()(card.images) @ torch.tensor([1.0, -1.0])).abs().numpy() / 2
    result = card.of("l2").best.distances
    assert (result > 0.8 * gap / SIDE).all(), "the mean has its boundary where the plain classifier has it"
    assert (result < 1.5 * gap / SIDE).all()
    assert "mean over 4 draws" in card.notes[-1]


def test_adversarials_of_a_random_classifier_are_moved_until_new_draws_confirm_them(data: ArrayWorld) -> None:
    """On the boundary of the mean that was attacked, every other image is right by chance."""

    class Noisy(Halves):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x + 0.1 * torch.randn_like(x))

    settings = {"only": ("attacks",), "norms": ("l2",), "budget": "quick", "count": 8}
    card = robustness(Noisy(), data, **settings, draws=4)
    result = card.of("l2").best
    assert np.isfinite(result.distances).all()
    np.testing.assert_allclose((result.adversarials - card.images).flatten(1).norm(dim=1), result.distances, rtol=1e-5)
    assert not {"batch dependence", "unbounded attack fails"} & {warning.name for warning in card.warnings}
    plain = robustness(Halves(), data, **settings, draws=4)
    alone = robustness(Halves(), data, **settings)
    assert plain.of("l2").best.distances.tolist() == alone.of("l2").best.distances.tolist()
    assert plain.notes[-1].endswith("are not random, so it was attacked as it is, without draws.")
    assert plain.notes[:-1] == data.assumed, "what was assumed about the data is on the card"


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
    (row,) = card.findings().json()["bounds"]
    assert (row["bound"], row["violations"], row["accuracy"]) == ("certificate", 0, "0% at 1.5")
    (chart,) = [one for one in card.findings().of(Chart) if one.name == "sandwich"]
    figure = chart.draw()
    (axes,), (legend,) = figure.axes, figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["after attacks", "lower bound"]
    assert axes.get_title("left") == "L2, certificate"
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
    answer = []
    asked = (
        ["robustness", "mine.py:Net", "--data", "data.npz", "--only", "corruptions", "--corrupted", "20"],
        ["robustness", "mine.py:Net", "--world", "data.npz", "--only", "corruptions", "--corrupted", "20"],
        ["corruptions", "mine.py:Net", "data.npz", "--count", "20"],
    )
    for words in asked:
        assert main([*words, "--suite", "mnist-c", "--json"]) == 0
        answer.append(json.loads(capsys.readouterr().out.splitlines()[-1]))
    assert answer[0]["corruptions_kinds"] == answer[1]["corruptions_kinds"] == answer[2]["kinds"]
    assert {row["question"] for row in answer[0]["not_run"]} == {"attacks", "noise", "bounds"}


def test_a_command_that_was_killed_goes_on_with_what_it_had(
    data: ArrayWorld, faults: Any, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kill -9 while the third of four results is being written: the two that are whole are read, and the answer is that
    of a command that nobody disturbed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("polariscope.examination.robustness.BLOCK", 4)
    (tmp_path / "mine.py").write_text(SOURCE)
    np.savez("data.npz", x=data.observe(np.arange(40)), y=data.factors_of(np.arange(40))[:, 0])
    words = ["robustness", "mine.py:Net", "data.npz", "--only", "attacks", "--norms", "l2", "--budget", "quick",
             "--count", "8", "--json"]  # fmt: skip

    def killed() -> None:
        written = []

        def fault(act: str, path: Path) -> None:
            written.extend([path] * (act == "written" and "-l2-" in path.name))
            if len(written) == 3:
                os.truncate(path, path.stat().st_size // 2)
                os.kill(os.getpid(), signal.SIGKILL)

        polariscope.atomic.fault = fault
        main([*words, "--out", "card"])

    assert faults.fork(killed) == -signal.SIGKILL
    assert len(list((tmp_path / "card" / "attacks").glob("ddn-l2-*.safetensors"))) == 2
    asked = []
    original = Attack.__call__

    def counted(self: Attack, *given: object, **settings: object) -> object:
        asked.append(type(self).__name__)
        return original(self, *given, **settings)

    monkeypatch.setattr(Attack, "__call__", counted)
    assert main([*words, "--out", "card"]) == 0
    resumed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert asked.count("DDN") == 0
    assert asked.count("GaussianNoise") == 2
    assert main([*words, "--out", "fresh"]) == 0
    whole = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert asked.count("DDN") == 2
    for answer in (resumed, whole):
        del answer["settings"], answer["command"], answer["report"]
    assert resumed == whole
    asked.clear()
    assert main([*words, "--out", "card", "--norms", "l2,linf", "--also", "deepfool"]) == 0
    assert not {"DDN", "GaussianNoise"} & set(asked), "a further norm or attack does not repeat the first"
    assert {"DeepFool", "FastGradient"} <= set(asked)


PLUGIN = '''
from dataclasses import dataclass
from typing import ClassVar

from polariscope.robustness.attacks import Attack, attacks
from polariscope.robustness.attacks.line_search import search_line


@attacks.register("card-grey")
@dataclass(frozen=True)
class ToGrey(Attack):
    """Less and less contrast."""

    needs: ClassVar = "decision"
    norms: ClassVar = ("l2",)

    def run(self, trial):
        search_line(trial, trial.rows, 0.2 - trial.x, trial.distance.new_full((len(trial.x),), 3.0))
'''
WRONG_MODELS = {
    "NaN scores": ("x.flatten(1)[:, :2] * float('nan')", "NaN"),
    "three rows": ("x.flatten(1)[:1, :2]", "a row for each"),
}


@pytest.fixture
def command(data: ArrayWorld, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """``command(model expression, images, labels, *words)``: exit code, JSON answer (if any), standard error."""
    monkeypatch.chdir(tmp_path)

    def call(model: str, x: np.ndarray, y: np.ndarray, *words: str) -> tuple[int, dict, str]:
        source = f"import torch\n\n\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return {model}\n"
        (tmp_path / "mine.py").write_text(source)
        np.savez("data.npz", x=x, y=y)
        usual = ["--only", "attacks", "--norms", "l2", "--budget", "quick", "--count", "4", "--out", "card", "--json"]
        code = main(["robustness", "mine.py:Net", "data.npz", *usual, *words])
        captured = capsys.readouterr()
        return code, json.loads(captured.out.splitlines()[-1]) if code == 0 else {}, captured.err

    return call


def labelled(data: ArrayWorld) -> tuple[np.ndarray, np.ndarray]:
    return data.observe(np.arange(40)), data.factors_of(np.arange(40))[:, 0].astype(np.int64)


HALVES = "torch.stack([x[..., :4].sum((1, 2, 3)), x[..., 4:].sum((1, 2, 3))], 1)"


@pytest.mark.parametrize("what", ["NaN scores", "three rows"])
def test_models_that_are_no_classifiers_are_refused_in_a_sentence(command, data: ArrayWorld, what: str) -> None:  # type: ignore[no-untyped-def]
    expression, words = WRONG_MODELS[what]
    code, _, error = command(expression, *labelled(data))
    assert code == 2
    assert words in error
    assert len(error.strip().splitlines()) == 1


def test_data_that_does_not_fit_is_refused_in_a_sentence(command, data: ArrayWorld) -> None:  # type: ignore[no-untyped-def]
    x, y = labelled(data)
    floats = x.astype(np.float32) / 255
    broken = floats.copy()
    broken[3, 0, 0, 0] = np.nan
    for images, labels, words in (
        (x, y + np.arange(40) % 3, "has 2 classes"),
        (3 * floats, y, "pixels from 0 to 1"),
        (broken, y, "NaN"),
    ):
        code, _, error = command(HALVES, images, labels)
        assert code == 2, error
        assert words in error
        assert len(error.strip().splitlines()) == 1


def test_what_can_be_attacked_is_and_the_card_says_how(command, data: ArrayWorld) -> None:  # type: ignore[no-untyped-def]
    """One output, no gradient, all images wrong, and floats in place of bytes are no mistakes."""
    x, y = labelled(data)
    code, answer, error = command("x[..., :4].sum((1, 2, 3)) - x[..., 4:].sum((1, 2, 3))", x, 1 - y)
    assert (code, answer["clean"]) == (0, 1.0), error
    code, answer, _ = command(HALVES.replace("x[", "x.detach()["), x.astype(np.float32) / 255, y)
    assert code == 0
    assert "no gradient" in [row["name"] for row in answer["warnings"]]
    assert "L2: ddn steps=50" in [row["question"] for row in answer["not_run"]]
    assert answer["attacks_l2"][-2]["attack"].startswith("estimated fast-gradient"), (
        "scores take the place of gradients"
    )
    code, answer, error = command(f"({HALVES} > 30).long()", x, y)
    assert code == 0, error
    assert "no gradient" in [row["name"] for row in answer["warnings"]], "votes are scores, without a gradient"
    code, answer, _ = command(HALVES, x, 1 - y)
    assert code == 0
    assert answer["summary"]["l2_median"] == 0.0
    assert "All 4 images are misclassified without an attack, so every distance is 0." in answer["notes"]


def test_a_classifier_that_leaves_torch_is_attacked_by_scores_and_decisions(command, data: ArrayWorld) -> None:  # type: ignore[no-untyped-def]
    """NumPy refuses images with gradients, and numbers beside the scores may have gradients of their own."""
    for model in (
        f"torch.from_numpy((lambda x: {HALVES})(x).numpy())",
        f"{HALVES.replace('x[', 'x.detach()[')} + torch.zeros(2, requires_grad=True)",
    ):
        code, answer, error = command(model, *labelled(data), "--only", "attacks,noise")
        assert code == 0, error
        assert "no gradient" in [row["name"] for row in answer["warnings"]]
        assert "estimated fast-gradient" in answer["attacks_l2"][-2]["attack"]
        reasons = {row["question"]: row["reason"] for row in answer["not_run"]}
        assert reasons["learned noise"] == "noise generators learn from gradients, and Net gives none"
        assert reasons["distal images"] == "noise is changed along gradients, and Net gives none"
        assert "gives no gradient of its scores" in reasons["L2: ddn steps=50"]
        assert answer["noise"]["gaussian_median"] is not None


def test_colour_images_have_every_answer(command, data: ArrayWorld) -> None:  # type: ignore[no-untyped-def]
    """A file keeps channels last, so that the images of the card are views with strides of their own."""
    x, y = labelled(data)
    words = ("--only", "attacks,noise")
    code, answer, error = command(HALVES, np.repeat(x.transpose(0, 2, 3, 1), 3, axis=3), y, *words)
    assert code == 0, error
    assert {"gaussian_median", "uniform_median", "learned_median"} == set(answer["noise"])
    gap = 0.5 * abs(x[..., :4] / 255 - x[..., 4:] / 255).mean() * np.sqrt(3 * SIDE * SIDE)
    assert answer["summary"]["l2_median"] == pytest.approx(gap, rel=0.2), "three channels are one perturbation"


def test_a_fitted_estimator_is_a_classifier(data: ArrayWorld) -> None:
    """A linear one has no adversarial nearer than its own boundary."""
    x, y = labelled(data)
    rows = x.reshape(len(x), -1) / 255
    linear = LogisticRegression().fit(rows, y)
    card = robustness(linear, data, only=("attacks", "noise"), norms=("l2",), budget="quick", count=6)
    exact = np.abs(linear.decision_function(card.images.flatten(1).numpy())) / np.linalg.norm(linear.coef_)
    assert card.clean == 1.0
    assert (card.of("l2").best.distances >= exact * (1 - 1e-5)).all()
    assert [warning.name for warning in card.warnings] == ["no gradient"]
    forest = RandomForestClassifier(5, random_state=0).fit(rows, y)
    names = [warning.name for warning in robustness(forest, data, only=("attacks",), norms=("l0",), budget="quick",
                                                    count=2).warnings]  # fmt: skip
    assert names == ["probabilities", "no gradient"]


def test_options_that_do_not_fit_are_refused_in_a_sentence(command, data: ArrayWorld) -> None:  # type: ignore[no-untyped-def]
    x, y = labelled(data)
    for words, message in (
        (["--norms", "l7"], "there is no norm 'l7'"),
        (["--only", "everything"], "there is no question 'everything'"),
        (["--count", "0"], "count is 0: at least 1 image is attacked"),
        (["--corrupted", "0"], "corrupted is 0: at least 1 image is corrupted"),
        (["--seed", "-1"], "seed is -1: a seed is a whole number from 0 on"),
        (["--draws", "1"], "draws is 1: a mean takes at least 2 draws"),
        (["--also", "ddm"], "ddn"),
        (["--l2", "-1"], "positive sizes"),
        (["--l2", "nan"], "positive sizes"),
        (["--norms", "l0", "--l0", "0.05"], "L0 sizes are numbers of changed pixels, such as 12; got 0.05"),
        (["--out", "card.pdf"], "no .pdf file is written"),
        (["--norms", ""], "no norm is given"),
        (["--only", ""], "no question is given"),
        (["--suite", "cifar-c"], "mnist-c"),
    ):
        code, _, error = command(HALVES, x, y, *words)
        assert code == 2, words
        assert message in error, error
    small = x[:, :, :2, :2]
    code, answer, error = command("x.flatten(1)[:, :2]", small, y, "--only", "corruptions", "--corrupted", "4")
    assert code == 0, error
    (row,) = [row for row in answer["not_run"] if row["question"] == "corruptions"]
    assert "at least 8x8 pixels, and these are (4, 1, 2, 2)" in row["reason"]


def test_dlr_of_two_classes_is_a_row_that_was_not_run(command, data: ArrayWorld) -> None:  # type: ignore[no-untyped-def]
    card = robustness(network(), data, only=("attacks",), norms=("linf",), budget="quick", count=2,
                      also=(APGD("dlr", steps=2),))  # fmt: skip
    (name,) = [name for name in card.of("linf").not_run if name.startswith("apgd")]
    assert "compares the 3 best scores, and the classifier has 2 classes" in card.of("linf").not_run[name]


def test_an_attack_of_a_plug_in_file_is_on_the_command_line(command, data: ArrayWorld, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "grey.py").write_text(PLUGIN)
    code, answer, error = command(HALVES, *labelled(data), "--also", "card-grey", "--plugin", str(tmp_path / "grey.py"))
    assert code == 0, error
    (row,) = [row for row in answer["attacks_l2"] if row["attack"] == "card-grey"]
    assert row["needs"] == "decision"
    assert row["queries"] > 1


def test_an_accuracy_that_is_not_above_chance_is_flagged(data: ArrayWorld) -> None:
    """Classes in another order, such as words in that of the alphabet: every distance is 0, which says nothing."""
    images, labels = labelled(data)
    card = robustness(Halves(), ArrayWorld(images, 1 - labels), only=("bounds",), norms="l2", count=40)
    assert (card.clean, card.chance, card.above_chance) == (0.0, 0.5, False)
    document = card.findings()
    assert "This is not clearly above chance, so robustness cannot be judged." in document.headline
    assert any("always predicting the most frequent class has 50%" in note for note in document.notes)
    assert document.parts[0].entries[0].within_chance
    card = robustness(Halves(), data, only=("bounds",), norms="l2", count=40)
    assert card.above_chance
    assert "chance" not in card.findings().headline
    one = robustness(Halves(), ArrayWorld(images[:1], labels[:1]), only="attacks", norms="l2", budget="quick")
    assert (one.clean, one.chance, one.above_chance) == (1.0, 1.0, True), "one class cannot show anything"
    assert one.findings().parts[0].entries[1].interval is None, "nor has one image an interval"


class Standardised(Halves):
    """Divides by the spread of the pixels, which a flat image has not."""

    def forward(self, x: Tensor) -> Tensor:
        spread = torch.where(x.flatten(1).std(1) > 0.15, torch.nan, 1.0)
        return super().forward(x) * spread[:, None]


def test_nan_for_changed_images_only_is_told_from_nan_for_the_images(data: ArrayWorld) -> None:
    with pytest.raises(ValueError, match="for images that were changed, and not for the 4 images as they are"):
        robustness(Standardised(), data, only="noise", count=4, budget="quick")


def test_stored_results_of_code_that_has_changed_are_refused(data: ArrayWorld, tmp_path: Path) -> None:
    """The weights of a module are its identity, and its forward may be in any file."""

    class Net(Halves):
        sign = 1

        def forward(self, x: Tensor) -> Tensor:
            return self.sign * super().forward(x) + (self.sign < 0) * torch.tensor([0.0, 9.0])

    settings = {"only": "attacks", "norms": "linf", "budget": "quick", "count": 8, "folder": tmp_path}
    first = robustness(Net(), data, **settings)
    again = robustness(Net(), data, **settings)
    assert (again.of("linf").best.distances == first.of("linf").best.distances).all()
    Net.sign = -1
    with pytest.raises(ValueError, match="are not those of Net: it contradicts them on .*: remove that folder"):
        robustness(Net(), data, **settings)


def test_learned_noise_that_misleads_less_than_gaussian_noise_is_flagged(data: ArrayWorld) -> None:
    card = robustness(Halves(), data, only="bounds", norms="l2", budget="quick", count=6)
    card = replace(card, noise=(NoiseDistances(np.full(6, 2.0), "gaussian", 0, 0),), images=None)
    weak, strong = (replace(card, learned=LearnedDistances((0, 1), (1, 1), np.full(2, by))) for by in (2.5, 1.5))
    told = ["trained too little" in " ".join(one.findings().notes) for one in (weak, strong)]
    assert told == [True, False]


def test_sizes_in_bytes_and_unknown_norms_are_refused(command, data: ArrayWorld) -> None:  # type: ignore[no-untyped-def]
    code, _, error = command(HALVES, *labelled(data), "--norms", "linf", "--linf", "8")
    assert code == 2
    assert "as pixels go from 0 to 1; got 8: divide bytes by 255, here 8 / 255 = 0.03137" in error
    with pytest.raises(ValueError, match="L∞ sizes are at most 1"):
        PGD(steps=1)(Halves(), data.observe([0]) / 255.0, [0], norm="linf", epsilons=8)
    with pytest.raises(ValueError, match="there is no norm 'l1'"):
        robustness(Halves(), data, thresholds={"l1": 3.0})


def test_a_classifier_that_returns_the_class_is_asked_for_scores(command, data: ArrayWorld) -> None:  # type: ignore[no-untyped-def]
    x, _ = labelled(data)
    code, _, error = command("x.sum((1, 2, 3)).long() % 4", x, np.arange(40) % 4)
    assert code == 2
    assert "let it return a score for each class, not the number of the predicted one" in error


def test_notes_on_missing_adversarials_fit_the_question(data: ArrayWorld) -> None:
    x, y = torch.from_numpy(data.observe([0, 1]) / 255.0), [0, 1]
    within = PGD(steps=1)(Halves(), x, y, norm="linf", epsilons=[1e-4, 2e-4])
    assert within.notes == ("No adversarial was found within L∞ 0.0002 for 2 of 2 images.",)
    card = robustness(lambda x: Halves()(x).detach() + 9 * torch.eye(2)[0] - 9 * torch.eye(2)[1], data, count=2,
                      only="attacks", norms="l2", budget="quick")  # fmt: skip
    assert not any("starts=" in note for note in card.findings().notes), "the card has no starts"


def test_an_attack_that_leaves_the_box_is_refused(data: ArrayWorld) -> None:
    @dataclass(frozen=True)
    class Outside(Attack):
        needs: ClassVar = "decision"
        norms: ClassVar = ("l0",)

        def run(self, trial: Trial) -> None:
            trial.reached(torch.cat([trial.x[:, :-1], 0 * trial.x[:, -1:] + 99], 1))

    x, y = torch.from_numpy(data.observe([0]) / 255.0), [0]
    with pytest.raises(ValueError, match=r"Outside returned an adversarial with pixels from 0\.\d+ to 99: .* clamp"):
        Outside()(Halves(), x, y, norm="l0")


def test_bounds_alone_do_not_show_a_curve_after_attacks(data: ArrayWorld) -> None:
    def labels(only: tuple[str, ...]) -> list[str]:
        card = robustness(network(), data, only=only, norms="l2", budget="quick", count=2)
        (chart,) = (part for part in card.findings().parts if part.name == "sandwich")
        assert isinstance(chart, Chart)
        return [text.get_text() for text in chart.draw().legends[0].get_texts()]

    assert labels(("bounds",)) == ["no attack ran", "lower bound"]
    assert labels(("bounds", "attacks")) == ["after attacks", "lower bound"]
