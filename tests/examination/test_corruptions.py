"""Classifiers under corruptions: one whose answers are known by hand, foreign ones, references, the document."""

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from torch import nn

from polariscope.examination.corruptions import Withstood, withstand
from polariscope.worlds.targets import Task
from polariscope.worlds.views.corruptions import SUITES, corrupt
from polariscope.worlds.world import ArrayWorld

GREYS = np.arange(0.05, 1, 0.1)
"""Ten greys, of which the last five are bright."""


def greys(copies: int = 3) -> ArrayWorld:
    """Plain pictures and whether they are bright."""
    values = np.repeat(GREYS, copies)
    pictures = np.broadcast_to(np.rint(255 * values)[:, None, None], (len(values), 12, 12)).astype(np.uint8)
    return ArrayWorld(pictures, (values > 0.5).astype(int))


def bright(x: torch.Tensor) -> torch.Tensor:
    """Whether a picture is brighter than one half: above 0 if it is."""
    return x.mean((1, 2, 3)) - 0.5


def dark(x: torch.Tensor) -> torch.Tensor:
    """Says that everything is dark."""
    return -torch.ones(len(x))


def noisy_world(classes: int = 8, count: int = 300, meanings: tuple[int, ...] | None = None) -> ArrayWorld:
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.arange(count) % classes)
    named = labels if meanings is None else np.array(meanings)[labels]
    return ArrayWorld(rng.integers(0, 256, (count, 12, 12, 3), dtype=np.uint8), named)


class Linear(nn.Module):
    """A foreign network with a state that training mode would change; doubles, so that no two scores are level."""

    def __init__(self, outputs: int, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.norm, self.last = nn.BatchNorm2d(3), nn.Linear(3 * 12 * 12, outputs)
        self.double()

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": x.sum(), "logits": self.last(self.norm(x).flatten(1))}


BRIGHTNESS = [0.9, 0.8, 0.7, 0.6, 0.5]
"""Every step of brightness takes one more of the five dark greys over one half; contrast takes none."""


@pytest.mark.spec("001b/A-23")
def test_a_judge_of_brightness_is_misled_by_brightness_and_not_by_contrast() -> None:
    result = withstand(bright, greys(), kinds=("brightness", "contrast"))
    assert result.clean == 1
    assert result.examples == 30
    assert result.severities == (1, 2, 3, 4, 5)
    np.testing.assert_allclose(result.top1.corrupted, [BRIGHTNESS, [1] * 5], rtol=1e-12)
    assert result.by_kind == pytest.approx({"brightness": 0.7, "contrast": 1.0})
    assert result.by_group == pytest.approx({"weather": 0.7, "digital": 1.0})
    assert (result.mean, result.without_noise) == pytest.approx((0.85, 0.85))
    assert result.top5 is None
    assert result.headline == (
        "bright: accuracy 85.0 % under 2 corruptions of imagenet-c, 100.0 % without, worst under brightness (70.0 %)"
    )


@pytest.mark.spec("001b/A-24")
def test_errors_are_those_of_the_reference_in_percent() -> None:
    result = withstand(bright, greys(), kinds=("brightness", "contrast"), reference=dark)
    # 'dark' is wrong on half of everything; 'bright' makes 0.1 to 0.5 errors under brightness, none under contrast.
    assert result.errors == pytest.approx({"brightness": 60.0, "contrast": 0.0})
    assert result.mce == pytest.approx(30.0)
    assert result.headline.endswith("its mCE is 30.0 relative to dark")
    assert [row["ce"] for row in result.records()] == pytest.approx([60.0, 0.0])
    assert [row["reference"] for row in result.records()] == [0.5, 0.5]


@pytest.mark.spec("001b/A-24")
def test_a_classifier_is_at_100_of_itself() -> None:
    model, world = Linear(8), noisy_world()
    kinds = ("gaussian", "contrast", "brightness")
    result = withstand(model, world, kinds=kinds, severities=(1, 5), count=60, reference=model)
    assert result.errors == pytest.approx(dict.fromkeys(kinds, 100.0))
    assert result.mce == pytest.approx(100.0)


def test_a_corruption_without_error_of_the_reference_has_no_error_relative_to_it() -> None:
    result = withstand(bright, greys(), kinds=("brightness", "contrast"), reference=bright)
    assert result.errors == pytest.approx({"brightness": 100.0})
    assert result.records()[1]["ce"] is None
    note = result.findings().notes[-1]
    assert "no error under contrast" in note
    perfect = withstand(bright, greys(), kinds=("contrast",), reference=bright)
    assert perfect.mce is None
    assert "no errors under any corruption" in perfect.findings().json()["undefined"]["mce"]


@pytest.mark.spec("001b/A-23", "001b/A-25")
def test_every_corruption_of_the_benchmark_is_shown_to_a_foreign_module() -> None:
    """Counted a second way: all examples at once, by what argmax and a sort say."""
    model, world = Linear(8), noisy_world()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    result = withstand(model, world, severities=(2, 4), seed=3, count=300)
    assert result.kinds == SUITES["imagenet-c"].benchmark
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    numbers = np.arange(300)
    images, labels = world.observe(numbers), world.factors_of(numbers)[:, 0]
    model.eval()
    assert result.top5 is not None
    for kind in ("shot", "pixelate"):
        for place, severity in enumerate((2, 4)):
            shown = corrupt(images, kind, severity, seed=3, index=numbers)
            scores = model(torch.from_numpy(shown).double() / 255)["logits"].detach().numpy()
            order = np.argsort(-scores, axis=1)
            row = result.kinds.index(kind)
            assert result.top1.corrupted[row, place] == pytest.approx((order[:, 0] == labels).mean())
            assert result.top5.corrupted[row, place] == pytest.approx((order[:, :5] == labels[:, None]).any(1).mean())
    assert (result.top5.corrupted >= result.top1.corrupted).all()
    assert result.top5.clean >= result.top1.clean
    assert (result.top5.corrupted > result.top1.corrupted).any()
    by_hand = [result.by_kind[kind] for kind in result.kinds if kind not in ("gaussian", "shot", "impulse")]
    assert result.without_noise == pytest.approx(np.mean(by_hand))


def test_the_interval_is_that_of_as_many_answers_as_examples() -> None:
    result = withstand(bright, greys(10), kinds=("brightness",), severities=(3,))
    expected = binomtest(70, 100).proportion_ci(method="wilson")
    assert result.interval == pytest.approx((expected.low, expected.high), abs=1e-6)


def test_an_output_stands_for_the_number_that_a_label_is() -> None:
    """Three classes of the ten that a network knows; the first three outputs would be others."""

    def counts(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.one_hot((x.mean((1, 2, 3)) * 10).floor().long(), 10).float()

    values = np.tile([0.35, 0.55, 0.75], 10)
    pictures = np.broadcast_to(np.rint(255 * values)[:, None, None], (30, 12, 12)).astype(np.uint8)
    world = ArrayWorld(pictures, (values * 10).astype(int))
    result = withstand(counts, world, kinds=("contrast",))
    assert result.clean == result.mean == 1
    assert "matched to its outputs by number" in result.findings().notes[0]


def test_what_noise_alone_leaves_is_not_said() -> None:
    result = withstand(bright, greys(), kinds=("gaussian", "gaussian"), severities=(5, 1, 1))
    assert result.kinds == ("gaussian",)
    assert result.severities == (1, 5)
    assert result.without_noise is None
    assert "without_noise" not in result.findings().json()["scores"]
    held_out = withstand(bright, greys(), kinds=("speckle", "brightness"), severities=(5,))
    assert held_out.by_kind["speckle"] > 0.5
    assert held_out.without_noise == held_out.by_kind["brightness"] == 0.5  # speckle is noise in a group of its own


def test_the_share_that_is_done_is_told() -> None:
    heard: list[float] = []
    withstand(bright, greys(), kinds=("contrast",), severities=(1,), tell=lambda name, share: heard.append(share))
    assert heard == [0.5, 1.0]


def document(**more) -> tuple[Withstood, dict]:
    result = withstand(bright, greys(), kinds=("brightness", "contrast"), **more)
    return result, {part.name: part for part in result.findings().parts}


@pytest.mark.spec("001b/A-26")
def test_panels_show_accuracy_over_severity_and_its_numbers_are_exported() -> None:
    result, parts = document(reference=dark)
    figure = parts["accuracies"].draw()
    assert [axes.get_title("left") for axes in figure.axes] == ["brightness", "contrast"]
    other, own = figure.axes[0].lines
    np.testing.assert_array_equal(own.get_xdata(), [0, 1, 2, 3, 4, 5])
    np.testing.assert_allclose(own.get_ydata(), [1.0, *BRIGHTNESS])
    np.testing.assert_allclose(other.get_ydata(), [0.5] * 6)
    np.testing.assert_allclose(figure.axes[1].lines[1].get_ydata(), [1.0] * 6)
    findings = result.findings()
    np.testing.assert_array_equal(findings.arrays["accuracy"], result.top1.corrupted)
    row = findings.json()["kinds"][0]
    assert [row[f"severity {s}"] for s in range(1, 6)] == pytest.approx(BRIGHTNESS)
    assert findings.json()["interval"] == result.interval


def test_one_severity_is_a_bar_chart() -> None:
    result, parts = document(severities=(2,), reference=dark)
    (axes,) = parts["accuracies"].draw().axes
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([0.8, 1.0])
    assert [column.title for column in parts["kinds"].shown] == ["Corruption", "Group", "Accuracy", "Reference", "CE"]
    assert result.suite == "imagenet-c"
    digits = withstand(bright, greys(), "mnist-c", ("stripe",))
    assert digits.severities == (1,)


def test_the_gallery_has_one_example_under_every_corruption() -> None:
    result, parts = document()
    figure = parts["gallery"].draw()
    names = [axes.get_title("left") for axes in figure.axes if axes.images]
    assert names == ["clean 100%", "brightness 70%", "contrast 100%"]
    assert result.gallery is not None
    assert result.gallery.shape == (3, 1, 12, 12)
    assert np.ptp(result.gallery[0]) == 0
    clean = int(result.gallery[0].flat[0])
    np.testing.assert_allclose(result.gallery[1], min(255, clean + round(0.3 * 255)), atol=1)


NAMES = {"kinds": ("contrast",)}


@pytest.mark.parametrize(
    ("subject", "world", "asked", "words"),
    [
        (bright, greys(), {"suite": "imagenet"}, "no suite 'imagenet' of corruptions: did you mean 'imagenet-c'"),
        (bright, greys(), {"kinds": ("contrats",)}, "no corruption 'contrats': did you mean 'contrast'"),
        (bright, greys(), {"kinds": ("zigzag",)}, "imagenet-c has no corruption 'zigzag'"),
        (bright, greys(), {"severities": (6,)}, "severity is 6.*from 1 to 5"),
        (bright, greys(), {"severities": (0,)}, "severity is 0"),
        (bright, greys(), {"suite": "mnist-c", "severities": (2,)}, "severity is 2.*the only one"),
        (bright, greys(), {"count": 0}, "at least 1 example"),
        (bright, ArrayWorld(np.zeros((4, 12, 12), np.uint8)), NAMES, "give data with labels"),
        (bright, ArrayWorld(np.zeros((4, 5)), [0, 1, 0, 1]), NAMES, r"have shape \(5,\): use a world of images"),
        (bright, Task(greys(), "label", "values"), NAMES, "this world has the number label"),
        (Linear(3), noisy_world(), NAMES, "has 3 classes, and the data has 8"),
        (Linear(6), noisy_world(3, 30, (1, 4, 9)), NAMES, "has 6 classes, and the data has 3"),
        (
            lambda x: x[:1].flatten(1),
            greys(),
            NAMES,
            r"returned shape \(1, 144\) for 30 observations",
        ),
        (lambda x: {"a": x}, greys(), NAMES, "no entry called logits"),
        (lambda x: bright(x) * torch.nan, greys(), NAMES, "diverged"),
        (nn.Linear(7, 2), greys(), NAMES, r"predict of Linear failed.*observations have shape \(1, 12, 12\)"),
    ],
)
def test_what_cannot_be_shown_or_counted_is_refused_in_a_sentence(subject, world, asked, words) -> None:
    with pytest.raises(ValueError, match=words):
        withstand(subject, world, **asked)


def test_one_probability_as_the_only_score_is_noted() -> None:
    """Read as the score of the second class against 0, it always decides for the second class."""
    pictures = np.repeat(np.linspace(60, 200, 30).astype(np.uint8), 144).reshape(30, 12, 12)
    world = ArrayWorld(pictures, (pictures[:, 0, 0] > 128).astype(int))

    def logit(x: torch.Tensor) -> torch.Tensor:
        return 20 * (x.mean((1, 2, 3)) - 0.5)

    for function, notes in ((logit, 0), (lambda x: logit(x).sigmoid(), 1)):
        result = withstand(function, world, kinds=("contrast",))
        assert sum("Return the logit" in note for note in result.findings().notes) == notes
        assert (result.clean == 1) is not bool(notes)


def test_predictions_that_differ_from_call_to_call_are_noted() -> None:
    torch.manual_seed(0)
    pictures = np.random.default_rng(0).integers(0, 256, (40, 12, 12)).astype(np.uint8)
    world = ArrayWorld(pictures, np.arange(40) % 2)
    linear, norm = nn.Linear(144, 2), nn.Sequential(nn.Linear(144, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)).train()

    def noisy(x: torch.Tensor) -> torch.Tensor:
        return linear(nn.functional.dropout(x.flatten(1), 0.5, training=True))

    def notes(function) -> str:
        return " ".join(withstand(function, world, kinds=("contrast",)).findings().notes)

    assert "are random in evaluation mode" in notes(noisy)
    assert "depends on the others in its batch" in notes(lambda x: norm(x.flatten(1)))
    assert "mode" not in notes(lambda x: linear(x.flatten(1)))
