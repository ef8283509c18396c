"""Calibration of a trained classifier by synthesis: its graded softmax, and the class factors of a binary one."""

from __future__ import annotations

import torch
from torch import Tensor

from polariscope.robustness.synthesis.binary import search_gamma
from polariscope.robustness.synthesis.classifier import NO_ETA, ABSClassifier
from polariscope.robustness.synthesis.graded_softmax import CONFIDENCE, Calibration, calibrate


def settle(classifier: ABSClassifier, x: Tensor, y: Tensor, confidence: float = CONFIDENCE) -> Calibration:
    """Calibrate a classifier on images ``x`` of classes ``y``, in place: gamma if it is binary, then alpha and eta.

    Use images that nothing was trained on. The published constants were fitted on the test set: use that to reproduce
    them.
    """
    losses = classifier.infer(x).losses
    with torch.no_grad():
        if classifier.binary:
            classifier.gamma.copy_(search_gamma(losses, y, classifier.offsets))
        result = calibrate(classifier.scores_of(losses) / classifier.pixels, y, confidence)
        classifier.alpha.fill_(result.softmax.alpha)
        classifier.log_eta.fill_(max(result.softmax.log_eta, NO_ETA))
    return result
