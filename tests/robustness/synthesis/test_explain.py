"""The explanation panel."""

import numpy as np
import pytest
import torch

from polariscope.examination.robustness import robustness
from polariscope.findings import Pictures
from polariscope.robustness.synthesis.explain import explain
from polariscope.robustness.synthesis.linear import LinearABS
from polariscope.subjects import as_subject
from polariscope.worlds.renderers.digits import Digits
from polariscope.worlds.targets import Task
from polariscope.worlds.world import to_tensor


def fitted() -> tuple[LinearABS, torch.Tensor, torch.Tensor]:
    world = Digits(count=300, size=16)
    x, y = to_tensor(world.observe(np.arange(300))), torch.from_numpy(world.factors_of(np.arange(300))[:, 0]).long()
    return LinearABS.fit(x, y, latents=4, variance=0.1), x, y


@pytest.mark.spec("001b/B-50")
def test_the_panel_shows_what_the_classifier_computes(tmp_path) -> None:
    model, x, y = fitted()
    explanation = explain(model, x[:4], y[:4])
    np.testing.assert_allclose(explanation.scores, as_subject(model).scores(x[:4]).numpy(), rtol=1e-6)
    np.testing.assert_allclose(explanation.probabilities, model.probabilities(x[:4]).numpy(), rtol=1e-5)
    np.testing.assert_array_equal(explanation.predicted, model(x[:4]).argmax(1))
    np.testing.assert_allclose(explanation.syntheses, model.decode(model.infer(x[:4]).codes).numpy(), atol=1e-5)
    findings = explanation.findings()
    (pictures,) = findings.of(Pictures)
    assert len(pictures.strips) == 4
    assert pictures.strips[0].images.shape == (1, 11, 1, 16, 16)
    np.testing.assert_array_equal(pictures.strips[2].images[0, 0], x[2])
    table = findings.json()["scores"]
    assert table[3]["7"] == pytest.approx(float(model(x[3:4])[0, 7]), rel=1e-5)
    answers = findings.json()["answers"]
    assert [row["label"] for row in answers] == [str(int(label)) for label in y[:4]]
    page = findings.save(tmp_path / "panel.html").read_text(encoding="utf-8")
    assert findings.headline in page
    assert "images best by their own class" in findings.headline


def test_classes_may_have_names() -> None:
    model, x, _ = fitted()
    words = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    row = explain(model, x[:1], names=words).findings().json()["answers"][0]
    assert row["predicted"] in words
    assert "label" not in row


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m, x: explain(torch.nn.Linear(2, 2), x), "analysis by synthesis"),
        (lambda m, x: explain(m, x, labels=[1]), "as many labels"),
        (lambda m, x: explain(m, x, names=["a"]), "as many names"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(call, words: str) -> None:  # type: ignore[no-untyped-def]
    model, x, _ = fitted()
    with pytest.raises(ValueError, match=words):
        call(model, x[:2])


def test_the_robustness_card_of_a_classifier_by_synthesis_has_the_panel() -> None:
    model, _, _ = fitted()
    card = robustness(model, Task(Digits(count=300, size=16), "digit"), only=("bounds",), norms=("l2",),
                      budget="quick", count=6)  # fmt: skip
    parts = {part.name: part for part in card.findings().parts}
    shown = parts["explanation_syntheses"]
    assert len(shown.strips) == 5
    expected = explain(model, card.images[:5], card.labels[:5])
    for strip, image, syntheses in zip(shown.strips, card.images, expected.syntheses, strict=False):
        np.testing.assert_array_equal(strip.images[0, 0], image)
        np.testing.assert_allclose(strip.images[0, 1:], syntheses, atol=1e-6)
    assert [row["predicted"] for row in parts["explanation_answers"].rows] == [str(c) for c in expected.predicted]
