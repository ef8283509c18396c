"""Does confidence tell what a classifier should not answer about?"""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from polariscope.robustness.attacks.distal import distal
from polariscope.robustness.rejection import rejection, risk_coverage
from polariscope.robustness.synthesis.calibration import settle
from polariscope.robustness.synthesis.linear import LinearABS
from polariscope.worlds.renderers.digits import Digits
from polariscope.worlds.targets import Examples
from polariscope.worlds.views.corruptions import corrupt
from polariscope.worlds.world import to_tensor

SIZE = 16
KINDS = ("impulse", "stripe")


def drawn(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    world = Digits(count=count, size=SIZE, seed=seed)
    numbers = np.arange(count)
    return to_tensor(world.observe(numbers)), torch.from_numpy(world.factors_of(numbers)[:, 0]).long()


@pytest.mark.spec("001b/B-47")
def test_synthesis_with_a_gaussian_likelihood_rejects_what_a_plain_classifier_is_sure_of() -> None:
    """AUROC and risk over coverage on noise, distal images and corrupted digits, the same images for both."""
    x, y = drawn(600, 0)
    held, labels = drawn(200, 1)
    synthetic = LinearABS.fit(x, y, latents=6, variance=0.1)
    settle(synthetic, *drawn(300, 2))
    fitted = LogisticRegression(max_iter=200).fit(x.flatten(1).numpy(), y.numpy())
    plain = nn.Sequential(nn.Flatten(), nn.Linear(SIZE**2, 10))
    plain[1].weight.data.copy_(torch.from_numpy(fitted.coef_))
    plain[1].bias.data.copy_(torch.from_numpy(fitted.intercept_))
    pixels = (held * 255).round().byte().numpy()
    corrupted = to_tensor(np.concatenate([corrupt(pixels, kind, 1, suite="mnist-c") for kind in KINDS]))
    noise = torch.rand(200, 1, SIZE, SIZE, generator=torch.Generator().manual_seed(0))
    odd = distal(plain, list(range(10)), (1, SIZE, SIZE), steps=60, rate=0.1)
    assert odd.reached.all()
    others = {"noise": noise, "distal": odd.images, "mnist-c": Examples(corrupted, labels.repeat(2))}
    models = {"synthetic": synthetic, "plain": plain}
    outcome = {name: rejection(model, held, labels, others) for name, model in models.items()}
    own, other = outcome["synthetic"], outcome["plain"]
    assert own.kinds == ("probability", "evidence")
    assert other.kinds == ("probability",)
    for images in ("noise", "mnist-c"):
        assert own.auroc(images, "evidence") > 0.99
        assert own.auroc(images, "evidence") > other.auroc(images) + 0.02
    assert own.auroc("distal", "evidence") > 0.99, "what the plain classifier is sure of, no class explains"
    assert other.auroc("distal") < 0.6
    for result in outcome.values():
        coverage, risk = result.risk()
        assert coverage[-1] == 1.0
        assert len(risk) == 600, "clean and corrupted images have classes, noise has none"
        rights = np.concatenate([result.clean.right, result.others["mnist-c"].right])
        assert risk[-1] == pytest.approx(1 - rights.mean())
        assert risk[len(risk) // 3] < risk[-1], "what it is sure of is right more often"
    rows = own.findings().json()["confidence"]
    assert [row["images"] for row in rows] == ["clean", "noise", "distal", "mnist-c"]
    assert rows[1]["auroc evidence"] == own.auroc("noise", "evidence")


def test_auroc_and_risk_by_hand() -> None:
    scores = {1.0: [[5.0, 0.0]], 0.5: [[1.0, 0.0]], 0.0: [[0.0, 0.1]]}
    model = lambda x: torch.cat([torch.tensor(scores[float(v)]) for v in x[:, 0]])  # noqa: E731
    result = rejection(model, torch.tensor([[1.0], [0.5]]), [0, 1], {"odd": torch.tensor([[0.5], [0.0]])})
    assert result.auroc("odd") == 0.875, "of four pairs three are in order and one is a tie"
    coverage, risk = result.risk()
    assert coverage.tolist() == [0.5, 1.0]
    assert risk.tolist() == [0.0, 0.5]
    with pytest.raises(ValueError, match="for each image"):
        risk_coverage(np.ones(3), np.ones(2, bool))


def test_the_order_of_equal_confidences_does_not_count() -> None:
    """Votes tie: if clean images came first among them, the risk would be too low."""
    coverage, risk = risk_coverage(np.array([0.5, 0.5, 0.5, 0.5, 0.9]), np.array([True, True, False, False, True]))
    assert coverage.tolist() == [0.2, 0.4, 0.6, 0.8, 1.0]
    np.testing.assert_allclose(risk, [0, 0.25, 1 / 3, 3 / 8, 0.4])


def test_probabilities_are_not_taken_for_scores() -> None:
    """A softmax of probabilities would call nine in ten 69 %."""
    votes = lambda x: torch.stack([1 - x[:, 0], x[:, 0]], 1)  # noqa: E731
    result = rejection(votes, torch.tensor([[0.9], [0.2]]), [1, 0], {"odd": torch.tensor([[0.5]])})
    np.testing.assert_allclose(result.clean.confidence["probability"], [0.9, 0.8], rtol=1e-6)
    np.testing.assert_allclose(result.others["odd"].confidence["probability"], [0.5])
