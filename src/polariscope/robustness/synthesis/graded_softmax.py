"""The graded softmax: a softmax that becomes uniform where no class has any evidence, and how it is calibrated.

p_y = (exp(alpha l_y) + eta) / sum over c of (exp(alpha l_c) + eta). Unlike in a plain softmax, the scores count in
absolute terms: an image that no class explains gets 1/K for every class. (Schott et al. 2019, equation 4 and appendix
A.7; Spec 001b, section B3.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

CONFIDENCE = 0.9
"""Median confidence in the predicted class to which eta is calibrated."""
SMALLEST, LARGEST = 1e-6, 1e6
"""Range of alpha, relative to the spread of the scores."""
GOLDEN = (math.sqrt(5) - 1) / 2
FAR = 60.0
"""Distance of log eta from the scores beyond which eta has no effect, or dominates."""


@dataclass(frozen=True)
class GradedSoftmax:
    """Class probabilities of scores. Without eta it is the plain softmax of ``alpha`` times the scores.

    Eta is stored as its logarithm: scores of large images are large, and eta is too small for a float.

    >>> scores = torch.log(torch.tensor([[80.0] + [1e-30] * 9, [8.0] + [1e-30] * 9, [1e-30] * 10]).double())
    >>> GradedSoftmax(log_eta=0.0).probabilities(scores)[:, 0].numpy().round(6).tolist()  # q/eta = 80, 8 and 0
    [0.9, 0.5, 0.1]
    """

    alpha: float = 1.0
    log_eta: float = -math.inf

    def __post_init__(self) -> None:
        if not 0 < self.alpha < math.inf or not self.log_eta < math.inf:
            raise ValueError(f"alpha and eta need to be finite, and alpha positive; got {self}")

    @property
    def eta(self) -> float:
        return math.exp(self.log_eta)

    def log_probabilities(self, scores: Tensor) -> Tensor:
        """Logarithms of the class probabilities ``(n, K)``, without overflow for scores of any size."""
        evidence = self.alpha * scores
        return torch.logaddexp(evidence, evidence.new_tensor(self.log_eta)).log_softmax(1)

    def probabilities(self, scores: Tensor) -> Tensor:
        return self.log_probabilities(scores).exp()


@dataclass(frozen=True)
class Calibration:
    """A calibrated softmax and the data it was calibrated on."""

    softmax: GradedSoftmax
    median: float
    """Median probability of the predicted class, on the same data."""
    cross_entropy: float
    """Of the labels with alpha, before eta."""
    accuracy: float
    count: int
    """Examples."""

    @property
    def reached(self) -> bool:
        """Whether the wanted median was reached; if the plain softmax is less confident, no eta can reach it."""
        return self.softmax.log_eta > -math.inf


def calibrate(scores: Tensor, labels: Tensor, confidence: float = CONFIDENCE) -> Calibration:
    """Fit alpha to the smallest cross-entropy of the labels, then eta to a median confidence in the predicted class.

    Neither changes which class is predicted. Use scores of data that nothing was trained on (the publication used the
    test set).
    """
    scores = scores.detach().double().cpu()
    labels = torch.as_tensor(labels).cpu().long()
    if scores.ndim != 2 or labels.shape != scores.shape[:1] or len(labels) < 1:
        raise ValueError(
            f"calibration needs scores (n, classes) and a label for each; got {tuple(scores.shape)} and "
            f"{tuple(labels.shape)}"
        )
    if not scores.isfinite().all():
        raise ValueError("a score is NaN or infinite: no softmax can be calibrated on it")
    classes = scores.shape[1]
    if not 1 / classes < confidence < 1:
        raise ValueError(
            f"the median confidence is {confidence}: of {classes} classes it lies between 1/{classes} and 1"
        )
    alpha = _alpha(scores, labels)
    softmax = GradedSoftmax(alpha, _log_eta(alpha, scores, confidence))
    return Calibration(
        softmax,
        _median_confidence(softmax, scores),
        float(functional.cross_entropy(alpha * scores, labels)),
        float((scores.argmax(1) == labels).double().mean()),
        len(labels),
    )


def _alpha(scores: Tensor, labels: Tensor) -> float:
    """Golden-section search over the logarithm of alpha: the cross-entropy is convex in alpha."""
    spread = float((scores.amax(1) - scores.amin(1)).median())
    if not spread > 0:
        return 1.0

    def loss(logarithm: float) -> float:
        return float(functional.cross_entropy(math.exp(logarithm) * scores, labels))

    low, high = math.log(SMALLEST / spread), math.log(LARGEST / spread)
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_left, at_right = loss(left), loss(right)
    while high - low > 1e-7:
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - GOLDEN * (high - low)
            at_left = loss(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + GOLDEN * (high - low)
            at_right = loss(right)
    return math.exp((low + high) / 2)


def _log_eta(alpha: float, scores: Tensor, confidence: float) -> float:
    """Bisection: the median confidence falls with eta, from that of the plain softmax to 1/K."""
    if _median_confidence(GradedSoftmax(alpha), scores) <= confidence:
        return -math.inf
    best = alpha * scores.amax(1)
    low, high = float(best.min()) - FAR, float(best.max()) + FAR
    while high - low > 1e-9:
        middle = (low + high) / 2
        above = _median_confidence(GradedSoftmax(alpha, middle), scores) > confidence
        low, high = (middle, high) if above else (low, middle)
    return (low + high) / 2


def _median_confidence(softmax: GradedSoftmax, scores: Tensor) -> float:
    """Median probability of the predicted class."""
    return float(softmax.probabilities(scores).amax(1).quantile(0.5))
