"""Checks of a subject on a few examples: one finite code per example, and the same code every time."""

from __future__ import annotations

import torch
from torch import Tensor

from polariscope.subjects.outputs import read_code
from polariscope.subjects.subject import Subject
from polariscope.user_code import UserCodeError

EXAMPLES = 32
SPREAD = 1e-2
"""Share of a variable's standard deviation by which two answers about one example may differ."""
ROUNDING = 1e-4
"""Share of the largest number by which they may differ in single precision."""


def broken_promises(subject: Subject, x: Tensor, u: Tensor | None = None) -> list[str]:
    """Violations of the rules for a subject after :meth:`~Subject.understood`, in sentences.

    The mean of an example's code must be finite, the same in every call, and independent of the other examples of its
    batch. A sample may be random. Three short passes on at most 32 examples.
    """
    if subject.codes is not None or subject.encodes is None:
        return []
    x, u = x[:EXAMPLES], None if u is None else u[:EXAMPLES]
    with subject.at_rest():
        torch.manual_seed(0)
        first, second = (_mean(subject, x, u) for _ in range(2))
        if not first.isfinite().all():
            return ["The model returns NaN or infinity on some examples."]
        allowed = _allowed(first, subject.dtype)
        if bool(((first - second).abs() > allowed).any()):
            return [
                f"The code is random in evaluation mode: two calls on the same example differ by up to "
                f"{_size(first, second)} standard deviations of the code. Is a dropout always on, a mask "
                "drawn at random, or a sample returned in place of the mean? This noise affects all results."
            ]
        return _alone(subject, x, u, first, allowed)


def unsteady_predictions(subject: Subject, x: Tensor) -> list[str]:
    """A sentence if the predictions for some examples differ from call to call, or with the other examples of their
    batch; the model is left as it was. Three short passes on at most 32 examples."""
    x = x[:EXAMPLES]
    with subject.at_rest():
        torch.manual_seed(0)
        first, second = (subject.predict(x).detach().reshape(len(x), -1).double().cpu() for _ in range(2))
        allowed = _allowed(first, subject.dtype)
        if bool(((first - second).abs() > allowed).any()):
            return [
                f"The predictions of {subject.name} are random in evaluation mode: two calls on the same examples "
                "differ. Is a dropout always on, or a batch normalisation of a function in training mode? This noise "
                "affects all results."
            ]
        few = -(-len(x) // 2)
        apart = subject.predict(x[:few]).detach().reshape(few, -1).double().cpu()
        if bool(((apart - first[:few]).abs() > allowed).any()):
            return [
                f"The prediction of {subject.name} for an example depends on the others in its batch: is a batch "
                "normalisation in training mode? Other batches would give other results."
            ]
    return []


def _alone(subject: Subject, x: Tensor, u: Tensor | None, together: Tensor, allowed: Tensor) -> list[str]:
    """How the code of an example changes if the example is alone in its batch."""
    if len(x) < 2:
        return []
    try:
        alone = _mean(subject, x[:1], None if u is None else u[:1])
    except (UserCodeError, ValueError, TypeError) as error:
        return [f"The model takes batches, but no single example: {error}."]
    if alone.shape[1] != together.shape[1]:
        return [f"The code has {together.shape[1]} variables in a batch and {alone.shape[1]} for one example alone."]
    if bool(((alone - together[:1]).abs() > allowed).any()):
        return [
            f"The code of an example depends on the others in its batch: alone it differs by up to "
            f"{_size(alone, together[:1], together)} standard deviations of the code. Is a batch normalisation in "
            "training mode? Other batches would give other results."
        ]
    return []


def _mean(subject: Subject, x: Tensor, u: Tensor | None) -> Tensor:
    mean = read_code(subject.raw_code(x, u), subject.roles)["mean"].double()
    if len(mean) != len(x):
        raise ValueError(f"it returns {len(mean)} codes for {len(x)} of them")
    return mean


def _allowed(means: Tensor, dtype: torch.dtype) -> Tensor:
    """How far apart two answers may be for each variable: a little of its spread, and rounding."""
    rounding = max(ROUNDING, 16 * torch.finfo(dtype).eps)
    return SPREAD * means.std(0, correction=0) + rounding * means.abs().max()


def _size(one: Tensor, other: Tensor, population: Tensor | None = None) -> str:
    spread = (one if population is None else population).std(0, correction=0)
    return f"{float((one - other).abs().max() / spread.max().clamp_min(1e-12)):.2g}"
