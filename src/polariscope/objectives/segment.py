"""Segmentation: predict the class of every pixel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn import functional

from polariscope.nets.unet import UNetConfig, middle
from polariscope.objectives.objective import Batch, Terms, at_least, objectives
from polariscope.objectives.predict import Supervised

UNLABELLED = -1
"""The class of unlabelled pixels: no loss and no score counts them."""
BACKGROUND_WEIGHT = 0.01


@objectives.register("segment")
@dataclass(frozen=True)
class Segment(Supervised):
    """The class of every pixel, by cross-entropy, Dice or focal loss, averaged over the labelled pixels. Where the
    network predicts the middle of an image only, only the middle of the mask counts."""

    dense: ClassVar[bool] = True
    usual: ClassVar[type[Any] | None] = UNetConfig

    loss: Literal["cross-entropy", "dice", "focal"] = "cross-entropy"
    weights: tuple[float, ...] = ()
    """A weight for each class inside the sum over pixels; all 1 if none is given. The scores then estimate
    w_c · P(c | x): divide by the weights before you read them as probabilities."""
    gamma: float = 2.0
    """How strongly the focal loss turns to pixels that are predicted badly; 0 is the cross-entropy."""

    def __post_init__(self) -> None:
        at_least(self.gamma, 0, "gamma")
        if self.weights and not (min(self.weights) >= 0 and max(self.weights) > 0):
            raise ValueError(f"class weights must be at least 0 and not all 0; got {self.weights}")

    def __call__(self, model: nn.Module, batch: Batch, step: int) -> Terms:
        target = mask_of(batch)
        scores = model(batch.x)
        classes = scores.shape[1]
        if self.weights and len(self.weights) != classes:
            raise ValueError(f"got {len(self.weights)} class weights for {classes} classes: give one for each")
        target = middle(target, scores.shape[2], scores.shape[3])
        loss = self._loss(scores, target, target != UNLABELLED)
        wrong, counts = errors_of(scores.detach().argmax(1), target, classes)
        return Terms(loss, {self.loss.replace("-", "_"): loss, "error": wrong}, counts=counts)

    def _loss(self, scores: Tensor, target: Tensor, labelled: Tensor) -> Tensor:
        pixels = labelled.sum().clamp(min=1)
        weights = torch.tensor(self.weights or (1.0,) * scores.shape[1], device=scores.device, dtype=scores.dtype)
        if self.loss == "dice":
            shares = scores.softmax(1) * labelled[:, None]
            truth = (
                functional.one_hot(target.clamp(min=0), scores.shape[1]).movedim(-1, 1).to(shares) * labelled[:, None]
            )
            overlap, sizes = (shares * truth).sum((0, 2, 3)), (shares + truth).sum((0, 2, 3))
            return 1 - (weights * (2 * overlap + 1) / (sizes + 1)).sum() / weights.sum()
        log_shares = functional.log_softmax(scores, 1)
        if self.loss == "focal":
            log_shares = log_shares * (1 - log_shares.exp()) ** self.gamma
        total = functional.nll_loss(log_shares, target, weights, ignore_index=UNLABELLED, reduction="sum")
        return total / pixels

    def scores(self, counts: Mapping[str, Tensor]) -> dict[str, float]:
        """Accuracy, the IoU of each class that occurs, and their mean, over the whole held-out set."""
        confusion = counts["confusion"].double()
        hits = confusion.diag()
        union = confusion.sum(0) + confusion.sum(1) - hits
        ious = {f"iou_{c}": float(hits[c] / union[c]) for c in range(len(hits)) if union[c]}
        if not ious:
            return {}
        return {
            "accuracy": float(hits.sum() / confusion.sum()),
            "mean_iou": sum(ious.values()) / len(ious),
            **ious,
        }


def class_weights(frequencies: ArrayLike, background_weight: float = BACKGROUND_WEIGHT) -> tuple[float, ...]:
    """Weights of the classes but the background: 0.99 · (1 / f_c) / Σ (1 / f_k), which with that of the background add
    up to 1 (Samarin 2022, section 4.6.1; Spec 000, section 5.5).

    >>> [round(weight, 3) for weight in class_weights([0.1508, 0.1008, 0.3734, 0.3749])]
    [0.3, 0.449, 0.121, 0.121]
    """
    shares = torch.as_tensor(frequencies, dtype=torch.float64)
    if shares.ndim != 1 or not bool((shares > 0).all()):
        raise ValueError(f"every class needs a frequency above 0; got {shares.tolist()}")
    inverse = 1 / shares
    return tuple(((1 - background_weight) * inverse / inverse.sum()).tolist())


def mask_of(batch: Batch) -> Tensor:
    """The mask ``(n, height, width)`` of a batch; any other target is refused."""
    if batch.target is None or batch.target.ndim != 3:
        raise ValueError(
            "segmentation needs masks with a class for each pixel, but the target of this world is not a mask: use a "
            "world "
            "with masks, or classify"
        )
    return batch.target.long()


def errors_of(predicted: Tensor, target: Tensor, classes: int) -> tuple[Tensor, dict[str, Tensor]]:
    """The share of labelled pixels with a wrong class, and their confusion matrix as counts."""
    labelled = target != UNLABELLED
    wrong = (predicted != target)[labelled].float().mean() if labelled.any() else torch.zeros(())
    pairs = target[labelled] * classes + predicted[labelled]
    return wrong, {"confusion": torch.bincount(pairs, minlength=classes**2).reshape(classes, classes)}
