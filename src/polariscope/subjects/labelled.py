"""Labelled images, checked once for all users of a classifier: attacks, noise, certificates."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from polariscope.subjects.subject import Subject


def labelled_examples(subject: Subject, x: Any, y: Any, box: tuple[float, float] = (0.0, 1.0)) -> tuple[Tensor, Tensor]:
    """Images ``(n, ...)`` as floats and their classes ``(n,)`` as whole numbers, on the device of the classifier.

    Images keep their precision and memory format. Refused in a sentence: no images, bytes, NaN or infinity, pixels
    outside of the ``box``; labels that are not one whole number for each image, or that the classifier has no score
    for.

    >>> from polariscope.subjects import as_subject
    >>> bright = as_subject(lambda x: x.mean(1) - 0.5)
    >>> x, y = labelled_examples(bright, np.array([[0.2, 0.4], [0.9, 0.8]]), [[0], [1]])
    >>> x.dtype, y.tolist()
    (torch.float64, [0, 1])
    """
    images = x if isinstance(x, Tensor) else _numbers(x, "images are floats")
    if not images.is_floating_point():
        raise TypeError(
            f"images are floats from {box[0]:g} to {box[1]:g}, and these are {_kind(images)}: bytes are brought there "
            "by images / 255"
        )
    labels = y if isinstance(y, Tensor) else _numbers(y, "labels are whole numbers, one class each")
    labels = labels.squeeze(-1) if labels.ndim == 2 else labels
    if images.ndim < 2 or labels.shape != images.shape[:1] or not len(labels):
        raise ValueError(
            "expected images (n, ...) with a class each, and at least one of them; got images of shape "
            f"{tuple(images.shape)} and classes of shape {tuple(labels.shape)}"
        )
    if labels.is_floating_point() or labels.is_complex():
        raise TypeError(f"labels are whole numbers, one class each, and these are {_kind(labels)}")
    _check_pixels(images, box)
    images, labels = images.to(subject.device), labels.to(subject.device, torch.int64)
    with subject.at_rest():
        classes = subject.scores(images[:1]).shape[1]
    least, most = int(labels.min()), int(labels.max())
    if least < 0 or most >= classes:
        raise ValueError(
            f"{subject.name} scores {classes} classes, 0 to {classes - 1}, and the labels go from {least} to {most}"
        )
    return images, labels


ONE_PROBABILITY = (
    "The only output is from 0 to 1 for every image: as the score of the second class against 0 it decides for the "
    "second class always."
)
RETURN_LOGIT = "Return the logit, the number before the sigmoid, or a score for each class."


def is_one_probability(scores: Tensor) -> bool:
    """Whether two classes are scored by one probability: 0 for the first, as a single output is read.

    >>> is_one_probability(torch.tensor([[0.0, 0.2]])), is_one_probability(torch.tensor([[0.0, -1.2]]))
    (True, False)
    """
    only = scores[:, -1]
    zero = scores.shape[1] == 2 and not scores[:, 0].any()
    return zero and bool(((only >= 0) & (only <= 1)).all() and only.any())


def are_probabilities(scores: Tensor) -> bool:
    """Whether the scores of every image are probabilities: none negative, with a sum of 1.

    >>> are_probabilities(torch.tensor([[0.2, 0.8]])), are_probabilities(torch.tensor([[0.2, 1.8]]))
    (True, False)
    """
    sums = scores.double().sum(1)
    return bool((scores >= 0).all()) and bool(((sums - 1).abs() < 1e-4).all())


def _check_pixels(images: Tensor, box: tuple[float, float]) -> None:
    low, high = (end.item() for end in images.aminmax())
    if not np.isfinite((low, high)).all():
        count = int((~images.isfinite()).flatten(1).any(1).sum())
        raise ValueError(f"{count} of {len(images)} images hold NaN or infinity: leave them out, or repair them")
    if low < box[0] or high > box[1]:
        raise ValueError(
            f"images have pixels from {box[0]:g} to {box[1]:g}, and these go from {low:.9g} to {high:.9g}: bring them "
            f"to [{box[0]:g}, {box[1]:g}], and let the network normalise them itself"
        )


def _numbers(values: Any, what: str) -> Tensor:
    array = np.ascontiguousarray(values)
    if array.dtype.kind not in "biufc":
        raise TypeError(f"{what}, and these are of the type {array.dtype}")
    return torch.from_numpy(array)


def _kind(values: Tensor) -> str:
    return str(values.dtype).removeprefix("torch.")
