"""One function for the lower bounds of any classifier: it chooses a method by the capabilities of the classifier."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polariscope.robustness.bounds.intervals import Interval, NoRule
from polariscope.robustness.bounds.linear import linear_bounds
from polariscope.robustness.bounds.lipschitz import Steepness
from polariscope.robustness.bounds.neighbours import neighbour_bounds
from polariscope.robustness.bounds.propagation import interval_distances, lipschitz_distances, rounding_error
from polariscope.robustness.bounds.result import Bounds, NoBound, combined
from polariscope.robustness.bounds.settings import BoundSettings
from polariscope.robustness.bounds.smoothing import smoothing_bounds
from polariscope.robustness.bounds.synthesis import estimated_bounds
from polariscope.subjects import as_subject
from polariscope.subjects.labelled import labelled_examples
from polariscope.theory.halfspaces import Norm

NORMS: tuple[Norm, ...] = ("l0", "l1", "l2", "linf")
AT_ONCE = 2**22
"""Pixels, for each of ten classes, of the images whose bounds are computed together."""
LEAST = 16
FOLLOWED = 1e-3
"""Share by which the scores of a network that an interval follows may differ from its own."""
Method = Callable[[Any, Tensor, Tensor, Norm, BoundSettings], Bounds | NoBound]


def bounds(
    subject: Any,
    x: Any,
    y: Any,
    norm: Norm,
    settings: BoundSettings | None = None,
    *,
    tell: Callable[[int, int], None] = lambda done, of: None,
) -> Bounds | NoBound:
    """Lower bounds on the adversarial distances of a classifier on images ``x`` from 0 to 1 of the classes ``y``.

    The capabilities of the classifier choose the method:

    - a method ``certify(x, y, norm)`` of its own, which returns :class:`Bounds`;
    - ``votes``: randomised smoothing, a certificate at a confidence;
    - ``linear_generators``: linear synthesis and prototypes, a certificate;
    - ``examples``: nearest neighbours, a certificate;
    - ``infer`` and ``outputs``: synthesis by a search, an estimated bound;
    - a module made of functions with interval rules: interval bound propagation and Lipschitz constants, a certificate.

    For any other classifier no bound is known, and the result says so. ``tell`` is called with the numbers of finished
    and of all images.

    >>> import torch
    >>> layer = torch.nn.Linear(2, 2, bias=False)
    >>> _ = layer.weight.data.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    >>> found = bounds(layer, torch.tensor([[0.8, 0.4]]), [0], "l2")
    >>> found.kind, round(found.median, 4)
    ('certificate', 0.2828)
    """
    if norm not in NORMS:
        raise ValueError(f"bounds are known in the norms {', '.join(NORMS)}; got {norm!r}")
    subject = as_subject(subject)
    images, labels = labelled_examples(subject, x, y)
    model = subject.module if subject.module is not None else subject.predicts
    method = _method(model)
    if isinstance(method, str):
        return NoBound(norm, method)
    settings = settings or BoundSettings()
    done: list[Bounds] = []
    with subject.at_rest():
        block = max(LEAST, AT_ONCE // (10 * images[0].numel()))
        for some, of in zip(images.split(block), labels.split(block), strict=True):
            try:
                part = method(model, subject.prepared(some), of, norm, settings)
            except NoRule as error:
                return NoBound(norm, str(error))
            if isinstance(part, NoBound):
                return part
            done.append(part)
            tell(sum(map(len, done)), len(images))
    return joined_bounds(done)


def _method(model: Any) -> Method | str:
    """What gives bounds for a model, or why nothing does."""
    if callable(getattr(model, "certify", None)):
        return lambda model, x, y, norm, settings: model.certify(x, y, norm)
    if callable(getattr(model, "votes", None)) and hasattr(model, "sd"):
        return smoothing_bounds
    if callable(getattr(model, "linear_generators", None)):
        return linear_bounds
    if callable(getattr(model, "examples", None)):
        return neighbour_bounds
    if callable(getattr(model, "infer", None)) and callable(getattr(model, "outputs", None)):
        return estimated_bounds
    if isinstance(model, nn.Module):
        return network_bounds
    return "the classifier is not an nn.Module, so only its outputs are known"


def network_bounds(model: nn.Module, x: Tensor, y: Tensor, norm: Norm, settings: BoundSettings) -> Bounds | NoBound:
    """Interval bound propagation and Lipschitz constants, as far as the module's functions have rules for them."""
    if torch.finfo(x.dtype).eps > torch.finfo(torch.float32).eps:
        kind = str(x.dtype).removeprefix("torch.")
        return NoBound(
            norm, f"the network computes in {kind}, whose rounding is too coarse for a proof: give it in float32"
        )
    network = partial(_scores_of, model)
    plain = network(x)
    if not torch.equal(plain, network(x)):
        return NoBound(norm, "the answers are random, and a bound would be one of a single draw")
    rounding = rounding_error(model, x, _scores_of)
    methods: dict[str, NDArray[np.float64]] = {}
    reasons: list[str] = []
    attempts = {
        "interval bound propagation": (interval_distances, lambda: network(Interval(x, x)).centre),
        "cross-Lipschitz": (lipschitz_distances, lambda: network(Steepness(x)).value),
    }
    for name, (distances, followed) in attempts.items():
        try:
            if not torch.allclose(followed(), plain, FOLLOWED, FOLLOWED * float(plain.abs().max())):
                reasons.append(
                    f"{name}: the scores it follows are not those of the network, which may overwrite its own"
                )
                continue
            methods[name] = distances(network, x, y, norm, rounding)
        except (NoRule, ValueError, TypeError, AttributeError) as error:
            # A forward may do anything with what it is given.
            reasons.append(f"{name}: {error}")
    if not methods:
        return NoBound(norm, "; ".join(reasons))
    notes = tuple(f"Not all methods apply: {reason}." for reason in reasons)
    return combined(norm, "certificate", methods, np.ones(len(x), bool), notes=notes)  # what is wrong has 0 already


def _scores_of(model: nn.Module, x: Any) -> Any:
    """The class scores among the outputs of a network, as a subject reads them, for images or for an interval."""
    output = model(x)
    if isinstance(output, tuple | list) and output:
        return output[0]
    return output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", output)


def joined_bounds(parts: list[Bounds]) -> Bounds:
    """Bounds of several blocks of images as one."""
    first = parts[0]
    if len(parts) == 1:
        return first
    by_method = {
        name: np.concatenate([np.atleast_2d(part.by_method[name]) for part in parts], axis=1)
        for name in first.by_method
    }
    inner = [part.binarised for part in parts if part.binarised is not None]
    left = [part.abstained for part in parts if part.abstained is not None]
    lower = np.concatenate([part.lower for part in parts])
    wins = {name: (values.min(0) >= lower).sum() for name, values in by_method.items()}
    return Bounds(
        first.norm,
        first.kind,
        max(wins, key=lambda name: wins[name]) if wins else first.method,
        lower,
        by_method,
        first.seeds,
        first.confidence,
        np.concatenate(left) if left else None,
        first.space,
        joined_bounds(inner) if inner else None,
        tuple(dict.fromkeys(note for part in parts for note in part.notes)),
    )
