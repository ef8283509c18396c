"""The motion of single neurons while no point is fitted: population averages in closed form, and their flow in time.

Before the onset the neurons of f = (1/h) Σ β √2 relu(ω·x/√d + b) do not interact, and each follows
dω/dt = β μ, db/dt = β μ_b, dβ/dt = ω·μ + b μ_b in units of τ = h √(d/2), where μ = ⟨y x 1[active]⟩ and
μ_b = √d ⟨y 1[active]⟩ over Gaussian data with the label of layers along e₁. A finite data set adds a fixed noise of
order 1/√p to the uninformative directions, which stops the alignment (Spec 004, sections 6.2 to 6.4).
The averages are closed forms at any alignment, by Owen's T function: only time is integrated numerically.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import solve_ivp
from scipy.special import ndtr, owens_t

from polariscope.theory.stripe import Layers, density

FloatArray = NDArray[np.float64]
TINY = 1e-100
"""Replaces zero where only the sign of a quotient matters."""


class Neurons(NamedTuple):
    """Weights ω ``(..., n, d)``, biases b ``(..., n)`` and output weights β ``(..., n)``."""

    weights: FloatArray
    biases: FloatArray
    outputs: FloatArray


class Averages(NamedTuple):
    """Population averages over the points that activate a neuron."""

    drift: FloatArray
    """μ = ⟨y x⟩ ``(n, d)``: μ₁ and the μ_i."""
    bias_drift: FloatArray
    """μ_b = √d ⟨y⟩ ``(n,)``."""
    var: FloatArray
    """⟨x_i²⟩ − μ_i² ``(n, d−1)``, the variance of y x_i in the uninformative directions."""


def population_averages(weights: ArrayLike, biases: ArrayLike, layers: Layers | None = None) -> Averages:
    """Averages of neurons with weights ``(n, d)`` and biases ``(n,)`` for the label of ``layers`` (a balanced stripe).

    >>> averages = population_averages([[1.0, 1e-6], [-1.0, 1e-6]], [-0.45 / 2**0.5, 0.45 / 2**0.5])
    >>> averages.drift[:, 0].round(3).tolist()  # C₁ on either side of ζ = 0.45
    [0.035, -0.402]
    """
    layers = layers or Layers()
    weights, biases = _checked(weights, biases)
    dimension = weights.shape[1]
    size = np.linalg.norm(weights, axis=1)
    aligned = weights[:, 0] / size  # the correlation of x₁ with the pre-activation
    across = np.maximum(np.linalg.norm(weights[:, 1:], axis=1) / size, TINY)
    reach = biases * math.sqrt(dimension) / size  # active where a standard normal exceeds −reach

    places, jumps = np.asarray(layers.interfaces), layers.jumps
    at = density(reach)
    beyond = ndtr(-(places + (aligned * reach)[:, None]) / across[:, None])  # P(x₁ > t | on the hyperplane)
    here = density(places) * ndtr((reach[:, None] + aligned[:, None] * places) / across[:, None])
    label_at = 1 + beyond @ jumps
    both = _quadrant(-places, reach[:, None], aligned[:, None], across[:, None])

    first = aligned * at * label_at + here @ jumps
    directions = weights[:, 1:] / size[:, None]
    rest = directions * (at * label_at)[:, None]
    second_moment = ndtr(reach)[:, None] - directions**2 * (reach * at)[:, None]
    return Averages(
        np.column_stack([first, rest]),
        math.sqrt(dimension) * (ndtr(reach) + both @ jumps),
        np.maximum(second_moment - rest**2, 0),
    )


def neuron_flow(
    start: Neurons,
    times: ArrayLike,
    layers: Layers | None = None,
    noise: ArrayLike | None = None,
    points: int | None = None,
) -> Neurons:
    """Neurons at rising ``times`` (in τ, from 0), with the times as a leading axis.

    ``noise`` is the noise of ``points`` points in the uninformative directions, ``(d−1,)`` or a row per neuron
    ``(n, d−1)``, in units of its standard deviation: √p S_⊥/√D at the attractor of a neuron, or a standard normal draw.
    Without it the flow is that of infinitely many points.

    >>> start = Neurons(np.array([[-1.0, 0.5]]), np.array([0.3]), np.array([1.2]))
    >>> end = neuron_flow(start, [0.0, 20.0])
    >>> float((-(2**0.5) * end.biases[-1, 0] / end.weights[-1, 0, 0]).round(2))  # the attractor C
    0.45
    """
    layers = layers or Layers()
    weights, biases = _checked(start.weights, start.biases)
    outputs = np.asarray(start.outputs, dtype=np.float64)
    times = np.asarray(times, dtype=np.float64)
    count, dimension = weights.shape
    if outputs.shape != (count,):
        raise ValueError(f"{count} neurons need {count} output weights; got shape {outputs.shape}")
    if times.ndim != 1 or not times.size or times[0] < 0 or (np.diff(times) < 0).any():
        raise ValueError("times need to be a rising list from 0 on")
    if (noise is None) != (points is None) or (points is not None and points < 1):
        raise ValueError("the noise of a data set and its number of points (at least 1) go together: pass both or none")
    kick = np.zeros((count, dimension - 1))
    if noise is not None and points is not None:
        kick = np.broadcast_to(np.asarray(noise, dtype=np.float64) / math.sqrt(points), kick.shape)

    def motion(_: float, state: FloatArray) -> FloatArray:
        rows = state.reshape(count, dimension + 2)
        weights, biases, outputs = rows[:, :dimension], rows[:, dimension], rows[:, dimension + 1]
        averages = population_averages(weights, biases, layers)
        drift = averages.drift
        drift[:, 1:] += np.sqrt(averages.var) * kick
        growth = (weights * drift).sum(1) + biases * averages.bias_drift
        return np.column_stack([outputs[:, None] * drift, outputs * averages.bias_drift, growth]).ravel()

    state = np.column_stack([weights, biases, outputs]).ravel()
    path = solve_ivp(motion, (0.0, max(float(times[-1]), TINY)), state, "DOP853", times, rtol=1e-8, atol=1e-10)
    if not path.success:
        raise ValueError(f"the flow of the neurons could not be integrated to the last time: {path.message}")
    rows = path.y.T.reshape(len(times), count, dimension + 2)
    return Neurons(rows[..., :dimension], rows[..., dimension], rows[..., dimension + 1])


def _checked(weights: ArrayLike, biases: ArrayLike) -> tuple[FloatArray, FloatArray]:
    weights, biases = np.asarray(weights, dtype=np.float64), np.asarray(biases, dtype=np.float64)
    if weights.ndim != 2 or weights.shape[1] < 2 or biases.shape != weights.shape[:1]:
        raise ValueError(
            f"neurons need weights (n, d) with d of at least 2 and biases (n,); got {weights.shape} and {biases.shape}"
        )
    if not weights.any(axis=1).all():
        raise ValueError("a neuron with all weights zero has no hyperplane; give every neuron a direction")
    return weights, biases


def _quadrant(h: FloatArray, k: FloatArray, correlation: FloatArray, across: FloatArray) -> FloatArray:
    """P(u < h, v < k) of standard normals with a correlation whose complement √(1 − ρ²) is ``across`` (Owen 1956)."""
    h, k = np.where(h == 0, TINY, h), np.where(k == 0, TINY, k)
    with np.errstate(over="ignore"):  # an infinite slope is right: Owen's T has the limit
        slope_h, slope_k = (k / h - correlation) / across, (h / k - correlation) / across
    apart = 0.5 * ((h < 0) != (k < 0))
    return np.asarray((ndtr(h) + ndtr(k)) / 2 - owens_t(h, slope_h) - owens_t(k, slope_k) - apart)
