"""The probabilities that a classifier gives its classes."""

from __future__ import annotations

from torch import Tensor

from polariscope.robustness.synthesis.classifier import ABSClassifier
from polariscope.robustness.synthesis.graded_softmax import GradedSoftmax
from polariscope.subjects import Subject
from polariscope.subjects.labelled import are_probabilities


def log_probabilities(subject: Subject, scores: Tensor, softmax: GradedSoftmax | None = None) -> Tensor:
    """Logarithms of the probabilities of all classes, in double precision.

    They come from a graded ``softmax`` if one is given; else from the calibrated softmax of a classifier by synthesis,
    from the scores themselves if these are probabilities, and from the plain softmax of any other.
    """
    scores = scores.double()
    if softmax is None and isinstance(subject.module, ABSClassifier):
        return subject.module.log_probabilities(scores)
    if softmax is None and are_probabilities(scores):
        return scores.log()
    return (softmax or GradedSoftmax()).log_probabilities(scores)
