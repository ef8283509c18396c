"""The graded softmax, its calibration, and the factors of Binary ABS."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from polariscope.robustness.synthesis.binary import binarised, search_gamma
from polariscope.robustness.synthesis.calibration import settle
from polariscope.robustness.synthesis.classifier import NO_ETA
from polariscope.robustness.synthesis.graded_softmax import GradedSoftmax, calibrate
from polariscope.robustness.synthesis.linear import LinearABS


def one_class(q: float, classes: int = 10) -> torch.Tensor:
    """Scores of which one alone has any evidence."""
    return torch.tensor([[math.log(q), *[-math.inf] * (classes - 1)]], dtype=torch.float64)


@pytest.mark.spec("001b/B-06")
@pytest.mark.parametrize(("ratio", "expected"), [(80.0, 0.9), (8.0, 0.5), (1e-12, 0.1), (1e12, 1.0)])
def test_confidence_by_the_ratio_of_evidence_to_eta(ratio: float, expected: float) -> None:
    eta = 3.9e-5
    p = GradedSoftmax(1.0, math.log(eta)).probabilities(one_class(ratio * eta))
    assert float(p[0, 0]) == pytest.approx(expected, abs=1e-9)
    assert float(p.sum()) == pytest.approx(1.0)


@pytest.mark.spec("001b/B-06")
@given(
    st.lists(st.lists(st.floats(-500, 50), min_size=3, max_size=3), min_size=1, max_size=5),
    st.floats(0.01, 100),
    st.floats(-300, 30),
)
def test_neither_alpha_nor_eta_changes_the_order_of_the_classes(rows: list, alpha: float, log_eta: float) -> None:
    scores = torch.tensor(rows, dtype=torch.float64)
    p = GradedSoftmax(alpha, log_eta).probabilities(scores)
    assert p.isfinite().all()
    torch.testing.assert_close(p.sum(1), torch.ones(len(rows), dtype=torch.float64))
    best = p.gather(1, scores.argmax(1, keepdim=True))
    assert (best >= p.amax(1, keepdim=True) - 1e-12).all()


@pytest.mark.spec("001b/B-06")
def test_without_evidence_it_is_uniform_and_without_eta_a_softmax() -> None:
    scores = torch.tensor([[-900.0, -800.0, -1000.0]], dtype=torch.float64)
    torch.testing.assert_close(
        GradedSoftmax(1.0, -10.0).probabilities(scores), torch.full((1, 3), 1 / 3, dtype=torch.float64)
    )
    torch.testing.assert_close(GradedSoftmax(0.3).probabilities(scores), (0.3 * scores).softmax(1))


def drawn_scores(count: int = 301, classes: int = 10, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores of which the right class has the best, mostly."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (count,), generator=generator)
    scores = -30 - 8 * torch.rand(count, classes, generator=generator)
    scores[torch.arange(count), labels] += 4 + 16 * torch.rand(count, generator=generator)
    return scores, labels


@pytest.mark.spec("001b/B-07")
@pytest.mark.parametrize("scale", [1.0, 1 / 784, 100.0])
def test_calibration_reaches_the_median_confidence(scale: float) -> None:
    scores, labels = drawn_scores()
    result = calibrate(scale * scores, labels)
    p = result.softmax.probabilities(scale * scores.double())
    assert float(np.median(p.amax(1))) == pytest.approx(0.9, abs=1e-3)
    assert result.reached
    assert torch.equal(p.argmax(1), scores.argmax(1))
    # Alpha has the least cross-entropy among its neighbours.
    losses = [
        float(torch.nn.functional.cross_entropy(factor * result.softmax.alpha * scale * scores.double(), labels))
        for factor in (0.98, 1.0, 1.02)
    ]
    assert losses[1] == min(losses)
    assert losses[1] == pytest.approx(result.cross_entropy, abs=1e-6)


def test_a_confidence_that_plain_softmax_does_not_reach_is_said() -> None:
    scores, labels = drawn_scores()
    wrong = (labels + torch.arange(len(labels)) % 7) % 10  # scores that say little about the labels
    result = calibrate(scores, wrong)
    assert not result.reached
    assert result.median < 0.9


@pytest.mark.spec("001b/B-08")
def test_gamma_is_searched_for_and_never_loses_accuracy() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(4, (800,), generator=generator)
    losses = 40 + 8 * torch.rand(800, 4, generator=generator)
    losses[torch.arange(800), labels] -= 4
    losses[:, 2] *= 1 / 1.04  # a class that explains everything a little too well
    gamma = search_gamma(losses, labels)
    before = float((losses.argmin(1) == labels).double().mean())
    after = float(((gamma * losses).argmin(1) == labels).double().mean())
    assert after > before + 0.01
    assert 0.96 <= float(gamma.min()) <= float(gamma.max()) <= 1.06
    assert float(gamma[2]) > max(float(gamma[number]) for number in (0, 1, 3))


@pytest.mark.spec("001b/B-08")
@given(st.integers(0, 10_000))
def test_gamma_of_any_losses_is_at_least_as_accurate_as_none(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    losses, labels = 30 * torch.rand(40, 3, generator=generator), torch.randint(3, (40,), generator=generator)
    offsets = torch.randn(3, generator=generator)
    gamma = search_gamma(losses, labels, offsets)
    gated, plain = (((offsets - g * losses).argmax(1) == labels).double().mean() for g in (gamma, torch.ones(3)))
    assert gated >= plain


@pytest.mark.spec("001b/B-08")
def test_binary_classifiers_explain_binarised_images_with_gradients_straight_through() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(60, 1, 4, 4, generator=generator)
    y = (x.flatten(1)[:, :8].mean(1) > x.flatten(1)[:, 8:].mean(1)).long()
    plain = LinearABS.fit(x, y, latents=2, variance=0.05)
    binary = binarised(plain, x, y)
    assert binary.binary
    assert not plain.binary
    assert torch.equal(plain.gamma, torch.ones(2))
    b = (x >= 0.5).float()
    torch.testing.assert_close(binary(x), -binary.gamma * plain.infer(b).losses)
    images = x[:3].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(binary(images)[:, 0].sum(), images)
    torch.testing.assert_close(gradient, binary.gamma[0] * plain.input_gradient(b[:3])[:, 0])
    # A constant in the loss would count with gamma: the losses have none.
    at_mean = plain.infer(plain.means.reshape(2, 1, 4, 4)).losses
    assert float(at_mean.diagonal().abs().max()) < 1e-5


@pytest.mark.spec("001b/B-07")
def test_a_classifier_is_calibrated_in_place() -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(90) % 3
    centres = torch.rand(3, 1, 4, 4, generator=generator)
    x = (centres[y] + 0.1 * torch.randn(90, 1, 4, 4, generator=generator)).clamp(0, 1)
    model = LinearABS.fit(x, y, latents=2, variance=0.01)
    assert float(model.log_eta) == pytest.approx(NO_ETA)
    torch.testing.assert_close(model.probabilities(x), model(x).softmax(1))
    result = settle(model, x, y)
    p = model.probabilities(x)
    assert float(np.median(p.amax(1))) == pytest.approx(0.9, abs=2e-3)
    assert model.softmax.alpha == pytest.approx(result.softmax.alpha)
    noise = torch.rand(5, 1, 4, 4, generator=generator)
    assert float(model.probabilities(noise).amax(1).max()) < 0.4
    assert result.accuracy == 1.0


@pytest.mark.parametrize(
    ("scores", "labels", "confidence", "words"),
    [
        (torch.zeros(3, 2), torch.zeros(2), 0.9, "a label for each"),
        (torch.full((3, 2), torch.nan), torch.zeros(3), 0.9, "NaN"),
        (torch.zeros(3, 2), torch.zeros(3), 0.4, "median confidence"),
    ],
)
def test_calibration_refuses_what_it_cannot_use(
    scores: torch.Tensor, labels: torch.Tensor, confidence: float, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        calibrate(scores, labels, confidence)
