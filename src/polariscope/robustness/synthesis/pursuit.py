"""Inference for images that move a little at a time, as under an attack: each search starts where the last one ended.

A few steps from the codes of the position before cost a small part of a full search. Their losses may be a little too
high, so conclusions from them must be verified by a full search.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from polariscope.robustness.synthesis.classifier import ABSClassifier
from polariscope.robustness.synthesis.inference import Inference


class Pursuit:
    """The codes of ``count`` images on their way. The first position of an image is searched in full."""

    def __init__(self, classifier: ABSClassifier, count: int, steps: int = 10) -> None:
        self.classifier = classifier
        self.search = replace(classifier.search, steps=steps)
        self._codes = torch.zeros(count, classifier.classes, classifier.latents).to(classifier.gamma)
        self._known = torch.zeros(count, dtype=torch.bool, device=self._codes.device)

    def infer(self, x: Tensor, rows: Tensor) -> Inference:
        """The inference for the current positions ``x`` of the images with the numbers ``rows``."""
        new = ~self._known[rows]
        if new.any():
            self._codes[rows[new]] = self.classifier.infer(x[new]).codes
            self._known[rows] = True
        inference = self.classifier.infer(x, self._codes[rows], search=self.search)
        self._codes[rows] = inference.codes
        return inference
