"""Segmentation: unlabelled pixels, weights, the three losses, and scores from sums."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from polariscope.objectives.objective import Batch
from polariscope.objectives.segment import Segment, class_weights


class Given(nn.Module):
    """A network whose answer is given."""

    def __init__(self, scores: torch.Tensor) -> None:
        super().__init__()
        self.answer = nn.Parameter(scores)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.answer


def batch(target: torch.Tensor, classes: int = 3) -> Batch:
    return Batch(torch.zeros(len(target), 1, *target.shape[1:]), len(target), target=target, classes=(classes,))


@pytest.fixture
def scores() -> torch.Tensor:
    return torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))


def test_unlabelled_pixels_have_no_loss_and_no_score(scores: torch.Tensor) -> None:
    target = torch.randint(3, (2, 4, 4), generator=torch.Generator().manual_seed(1))
    target[0] = -1
    terms = Segment()(Given(scores), batch(target), 0)
    alone = functional.cross_entropy(scores[1:], target[1:])
    assert terms.loss.item() == pytest.approx(float(alone), rel=1e-6)
    assert int(terms.counts["confusion"].sum()) == 16
    nothing = Segment()(Given(scores), batch(torch.full((2, 4, 4), -1)), 0)
    assert nothing.loss.item() == 0
    assert Segment().scores(nothing.counts) == {}


@pytest.mark.spec("000/F037")
def test_weights_stand_inside_the_sum_over_pixels(scores: torch.Tensor) -> None:
    weights = (0.2, 0.3, 0.5)
    target = torch.randint(3, (2, 4, 4), generator=torch.Generator().manual_seed(1))
    loss = Segment(weights=weights)(Given(scores), batch(target), 0).loss
    log = scores.log_softmax(1)
    by_hand = -sum(
        weights[int(c)] * float(log[n, c, i, j]) for (n, i, j), c in zip(_places(target), target.flatten(), strict=True)
    )
    assert loss.item() == pytest.approx(by_hand / target.numel(), rel=1e-5)


@pytest.mark.spec("000/F037")
def test_the_rule_gives_the_published_weights() -> None:
    result = class_weights([0.1508, 0.1008, 0.3734, 0.3749])
    assert result == pytest.approx((0.2998, 0.4485, 0.1211, 0.1206), abs=2e-4)
    assert sum(result) + 0.01 == pytest.approx(1)
    with pytest.raises(ValueError, match="every class needs a frequency above 0"):
        class_weights([0.5, 0.0])


def test_focal_and_dice(scores: torch.Tensor) -> None:
    target = torch.randint(3, (2, 4, 4), generator=torch.Generator().manual_seed(1))
    plain = Segment()(Given(scores), batch(target), 0).loss
    focal = [Segment(loss="focal", gamma=g)(Given(scores), batch(target), 0).loss for g in (0.0, 2.0)]
    assert focal[0].item() == pytest.approx(plain.item(), rel=1e-6)
    assert focal[1].item() < plain.item()
    sure = functional.one_hot(target, 3).movedim(-1, 1).float() * 100
    assert Segment(loss="dice")(Given(sure), batch(target), 0).loss.item() == pytest.approx(0, abs=1e-6)
    assert Segment(loss="dice")(Given(-sure), batch(target), 0).loss.item() > 0.8


def test_scores_of_a_set_are_those_of_its_sums() -> None:
    """Two batches whose mean IoUs are 1 and 1/3: together their IoU is neither of them nor the mean."""
    first = functional.one_hot(torch.zeros(1, 2, 2, dtype=torch.long), 2).movedim(-1, 1).float()
    target = torch.zeros(1, 2, 2, dtype=torch.long)
    other = torch.tensor([[[0, 1], [1, 1]]])
    counts = [Segment()(Given(first), batch(t, 2), 0).counts["confusion"] for t in (target, other)]
    scores = Segment().scores({"confusion": counts[0] + counts[1]})
    assert scores["iou_0"] == pytest.approx(5 / 8)
    assert scores["iou_1"] == 0
    assert scores["mean_iou"] == pytest.approx(5 / 16)
    assert scores["accuracy"] == pytest.approx(5 / 8)


@pytest.mark.spec("000/F034")
def test_a_smaller_prediction_is_scored_in_the_middle(scores: torch.Tensor) -> None:
    target = torch.full((2, 8, 8), -1)
    target[:, 2:6, 2:6] = torch.randint(3, (2, 4, 4), generator=torch.Generator().manual_seed(1))
    terms = Segment()(Given(scores), batch(target), 0)
    assert terms.loss.item() == pytest.approx(float(functional.cross_entropy(scores, target[:, 2:6, 2:6])), rel=1e-6)


def test_bad_settings_are_refused(scores: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="2 class weights for 3 classes"):
        Segment(weights=(1, 1))(Given(scores), batch(torch.zeros(2, 4, 4, dtype=torch.long)), 0)
    with pytest.raises(ValueError, match="segmentation needs masks"):
        Segment()(Given(scores), Batch(torch.zeros(2, 1, 4, 4), 2, target=torch.zeros(2, 1), classes=(3,)), 0)


def _places(target: torch.Tensor) -> list[tuple[int, ...]]:
    return [tuple(int(i) for i in place) for place in torch.ones_like(target).nonzero()]
