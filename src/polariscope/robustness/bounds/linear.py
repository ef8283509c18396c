"""Certificates of classifiers by linear synthesis, whose inference is exact. (Spec 001b, section B5, oracles O-B1 to
O-B3.)"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from polariscope.robustness.bounds.flips import cheapest_flips, in_binarised_space
from polariscope.robustness.bounds.result import Bounds, combined
from polariscope.robustness.bounds.settings import BoundSettings
from polariscope.theory.certificates import LinearGenerators
from polariscope.theory.halfspaces import Norm


def linear_bounds(model: Any, x: Tensor, y: Tensor, norm: Norm, settings: BoundSettings) -> Bounds:
    """Certificates of a model with ``linear_generators()``, perhaps on binarised images."""
    generators: LinearGenerators = model.linear_generators()
    labels = y.cpu().numpy()
    if getattr(model, "binary", False):
        return _binary(generators, model, x, labels, norm)
    flat = x.flatten(1).double().cpu().numpy()
    right = generators.losses(flat).argmin(1) == labels
    return combined(norm, "certificate", _methods(generators, flat, labels, norm, settings.box, _channels(x)), right)


def _methods(
    generators: LinearGenerators, flat: NDArray[Any], labels: NDArray[Any], norm: Norm, box: bool, channels: int
) -> dict[str, NDArray[np.float64]]:
    methods = {}
    if norm in ("l2", "linf"):
        methods["separate"] = generators.separate(flat, labels, norm, box)
    if norm == "l1":
        # An L1 ball lies inside of the L2 ball of the same radius.
        methods["shared, from L2"] = generators.shared(flat, labels, "l2", box)
    else:
        methods["shared"] = generators.shared(flat, labels, norm, box, channels)
    if norm in ("l1", "l2"):
        methods["exact" if norm == "l2" else "exact, from L2"] = generators.exact_l2(flat, labels)
    return methods


def _binary(generators: LinearGenerators, model: Any, x: Tensor, labels: NDArray[Any], norm: Norm) -> Bounds:
    """Certified flips of the binarised image, and their size in the image."""
    flat = x.flatten(1).double().cpu().numpy()
    bits = model.binarised(x).flatten(1).double().cpu().numpy()
    right = generators.losses(bits).argmin(1) == labels
    flips = generators.shared(bits, labels, "l0", True, _channels(x))
    inner = {"shared, by flips": in_binarised_space(flips, norm)}
    if norm in ("l2", "linf"):
        inner["separate"] = generators.separate(bits, labels, norm, norm == "linf")
    return combined(
        norm,
        "certificate",
        {"cheapest flips": cheapest_flips(flat, flips, norm, channels=_channels(x))},
        right,
        binarised=combined(norm, "certificate", inner, right, space="binarised"),
    )


def _channels(x: Tensor) -> int:
    return x.shape[1] if x.ndim == 4 else 1
