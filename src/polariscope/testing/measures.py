"""Contract checks of measures, and a synthetic representation to run them on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from polariscope.measures.measure import Invariance, Measure, Undefined, measures
from polariscope.representation import Representation
from polariscope.testing.promises import FACTOR_SIZES, rebuilt, require
from polariscope.worlds.factors import Factor, FactorGrid

GRAIN = 2.0**-18
"""Synthetic latents are multiples of this, so that shifts and scalings by powers of two are exact in float32."""
TOLERANCE = 1e-4
"""Relative tolerance for values that must not change: a rotation in float32 rounds."""

Latents = Callable[[NDArray[np.float32]], NDArray[Any]]


def check_measure(measure: Measure, representation: Representation | None = None, *, seed: int = 0) -> None:
    """A measure computes a value in its declared range from the arrays it declares to need; its declared invariances do
    not change the value. It refuses NaN, and raises :class:`Undefined` where it has no value.

    Changes of the latent space apply to mean, variance and sample alike. A rotation keeps variances on the axes only
    where they are equal, so for rotations each example's variances are averaged first.

    The default is :func:`synthetic_representation`.
    """
    name = type(measure).__name__
    require(isinstance(getattr(measure, "title", None), str), f"{name} needs a title for tables")
    healthy = synthetic_representation(seed) if representation is None else representation
    value = _defined(measure, healthy, "a healthy representation")
    require(
        _defined(measure, healthy, "the same representation again") == value,
        f"{name} returns different values on the same representation: everything random takes a seed",
    )
    _defined(measure, _only_what_is_needed(measure, healthy), f"means and what it declares to need ({measure.needs})")
    for change in measure.invariant_to:
        require(change in get_args(Invariance), f"{name} declares {change!r}: expected one of {get_args(Invariance)}")
        base = _isotropic(healthy, seed) if change == "rotation" else healthy
        before = _defined(measure, base, "a healthy representation")
        after = _defined(measure, _changed(base, change, seed), f"a representation after a {change} of its latents")
        require(
            math.isclose(before, after, rel_tol=TOLERANCE, abs_tol=TOLERANCE * 1e-2),
            f"{name} declares invariance to {change}, which changes it from {before:.8g} to {after:.8g}",
        )
    _check_nan(measure, healthy)
    _value(measure, _mapped(healthy, np.ones_like), "constant latents")
    _value(measure, _mapped(healthy, _first_made_constant), "one constant latent")
    require(rebuilt(measures, measure) == measure, f"{name} rebuilt from its description is another one")


def synthetic_representation(seed: int = 0) -> Representation:
    """480 examples of three factors, encoded as by a trained model: two latents that encode one factor each, one that
    mixes two, one in use on half of the examples, and one that is noise.

    >>> synthetic_representation().mean.shape
    (480, 5)
    """
    generator = np.random.default_rng(seed)
    shapes, columns, rows = FACTOR_SIZES
    grid = FactorGrid((Factor("shape", shapes, "categorical"), Factor("x", columns), Factor("y", rows)))
    factors = np.tile(grid.to_factors(np.arange(len(grid))), (8, 1))
    a, b, c = ((factors - factors.mean(0)) / factors.std(0)).T
    used = factors[:, 0] % 2 == 0
    mean = np.stack([a, b, 0.8 * c + 0.6 * a, used * b, np.zeros(480)], axis=1)
    mean += generator.normal(scale=[0.1, 0.15, 0.1, 0.05, 0.02], size=mean.shape)
    var = np.stack(
        [np.full(480, 0.02), np.full(480, 0.05), np.full(480, 0.03), np.where(used, 0.04, 1), np.ones(480)], 1
    )
    var *= generator.uniform(0.95, 1, size=var.shape)
    sample = mean + np.sqrt(var) * generator.standard_normal(mean.shape)
    return Representation(
        mean=_grained(mean),
        var=var.astype(np.float32),
        sample=_grained(sample),
        factors=factors,
        factor_info=grid.factors,
    )


def _value(measure: Measure, representation: Representation, what: str) -> float | None:
    """The measure's value, checked to be in its range, or None where the measure is undefined."""
    name = type(measure).__name__
    try:
        value = measure.value(representation)
    except Undefined:
        return None
    except Exception as error:
        raise AssertionError(f"{name} fails on {what} ({error!r}): expected a value or Undefined") from error
    slack = TOLERANCE * max(1.0, abs(value))
    require(
        measure.low - slack <= value <= measure.high + slack,
        f"{name} is {value:.6g} on {what}: it declares the range {measure.low:g} to {measure.high:g}",
    )
    return value


def _defined(measure: Measure, representation: Representation, what: str) -> float:
    value = _value(measure, representation, what)
    if value is None:
        try:
            measure.value(representation)
        except Undefined as reason:
            raise AssertionError(f"{type(measure).__name__} has no value on {what}: {reason}") from reason
        raise AssertionError(f"{type(measure).__name__} has a value on {what} only sometimes")
    return value


def _check_nan(measure: Measure, healthy: Representation) -> None:
    poisoned = _mapped(healthy, np.copy)
    for array in (poisoned.mean, poisoned.var, poisoned.sample, poisoned.prior_mean, poisoned.prior_var):
        if array is not None:
            array[0] = np.nan  # in place, since a representation refuses to be built with it
    value = _value(measure, poisoned, "latents with NaN")
    require(value is None, f"{type(measure).__name__} is {value} on latents with NaN: it must refuse them")


def _only_what_is_needed(measure: Measure, healthy: Representation) -> Representation:
    spared = {name: None for name in ("var", "sample", "factors") if name not in measure.needs}
    bare = replace(healthy, **spared, layers={}, prior_mean=None, prior_var=None, index=None)  # type: ignore[arg-type]
    return bare if "factors" in measure.needs else replace(bare, factor_info=())


def _mapped(representation: Representation, points: Latents, variances: Latents | None = None) -> Representation:
    """The representation with functions applied to all its points in latent space and to its variances."""

    def through(function: Latents, array: NDArray[np.float32] | None) -> NDArray[np.float32] | None:
        return None if array is None else function(array).astype(np.float32)

    variances = variances or points
    return replace(
        representation,
        mean=points(representation.mean).astype(np.float32),
        sample=through(points, representation.sample),
        prior_mean=through(points, representation.prior_mean),
        var=through(variances, representation.var),
        prior_var=through(variances, representation.prior_var),
    )


def _changed(representation: Representation, change: Invariance, seed: int) -> Representation:
    """The representation with its latents z mapped to z A + b, hence its variances to var (A∘A)."""
    generator = np.random.default_rng(seed)
    size = representation.latents
    latent = np.arange(size)
    matrix: NDArray[Any] = np.eye(size)
    shift: NDArray[Any] = np.zeros(size)
    if change == "permutation":
        order = generator.permutation(size)
        matrix = matrix[:, order if (order != latent).any() else order[::-1]]
    elif change == "sign":
        matrix = np.diag(np.where(latent % 2 == 0, -1.0, 1.0))
    elif change == "scale":
        matrix = np.diag(2.0 ** (latent % 4 - 1))
    elif change == "isotropic_scale":
        matrix = 4 * matrix
    elif change == "rotation":
        matrix = np.linalg.qr(generator.standard_normal((size, size)))[0]
    else:
        shift = 1.0 + latent % 3
    return _mapped(representation, lambda z: z @ matrix + shift, lambda var: var @ matrix**2)


def _isotropic(representation: Representation, seed: int) -> Representation:
    """The same means, with variances that a rotation leaves on the axes and samples drawn with these variances."""
    averaged = _mapped(representation, np.copy, lambda var: np.broadcast_to(var.mean(1, keepdims=True), var.shape))
    if averaged.var is None or averaged.sample is None:
        return averaged
    noise = np.random.default_rng(seed).standard_normal(averaged.sample.shape)
    return replace(averaged, sample=_grained(averaged.mean + np.sqrt(averaged.var) * noise))


def _first_made_constant(array: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.where(np.arange(array.shape[1]) == 0, np.float32(1), array)


def _grained(values: NDArray[Any]) -> NDArray[np.float32]:
    return (np.rint(values / GRAIN) * GRAIN).astype(np.float32)
