"""The smallest change of an image into a half-space, against solvers that know nothing of water-filling."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize

from polariscope.theory.halfspaces import nearest_in_halfspace, norm_from_l2

SEEDS = st.integers(0, 10_000)
ORDERS = {"l1": 1, "l2": 2, "linf": np.inf}


def problem(seed: int, count: int = 5) -> tuple[np.ndarray, float, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = np.where(rng.random(count) < 0.4, rng.integers(0, 2, count), rng.random(count))
    slope = np.where(rng.random(count) < 0.2, 0.0, rng.normal(size=count))
    return slope, float(rng.uniform(0.05, 1.5)), -x, 1 - x


def linear_program(slope, margin, low, high, norm) -> float:
    """Minimise Σ or max of |δ| as a linear program in (δ, s) with −s <= δ <= s."""
    n = len(slope)
    sizes = n if norm == "l1" else 1
    each = np.eye(n) if norm == "l1" else np.ones((n, 1))
    lines = np.block([[np.eye(n), -each], [-np.eye(n), -each], [-slope[None], np.zeros((1, sizes))]])
    result = linprog(
        np.r_[np.zeros(n), np.ones(sizes)],
        lines,
        np.r_[np.zeros(2 * n), -margin],
        bounds=[*zip(low, high, strict=True), *[(0, None)] * sizes],
    )
    return result.fun if result.status == 0 else np.inf


@pytest.mark.spec("001b/B-13", "001b/A-18")
@settings(max_examples=settings.default.max_examples // 4)
@given(SEEDS, st.sampled_from(["l1", "linf"]))
def test_linear_programs_agree(seed: int, norm: str) -> None:
    slope, margin, low, high = problem(seed)
    result = nearest_in_halfspace(slope, margin, norm, low, high)
    assert result.distance == pytest.approx(linear_program(slope, margin, low, high, norm), abs=1e-7)


@settings(max_examples=settings.default.max_examples // 4)
@given(SEEDS)
def test_a_quadratic_program_agrees(seed: int) -> None:
    slope, margin, low, high = problem(seed)
    result = nearest_in_halfspace(slope, margin, "l2", low, high)
    reach = np.maximum(slope * high, slope * low).sum()
    if reach <= margin:
        assert result.distance == (np.inf if reach < margin else pytest.approx(result.distance))
        return
    other = minimize(
        lambda d: d @ d,
        np.where(slope > 0, high, low),
        jac=lambda d: 2 * d,
        bounds=list(zip(low, high, strict=True)),
        constraints={"type": "ineq", "fun": lambda d: slope @ d - margin, "jac": lambda d: slope},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 300},
    )
    assert result.distance == pytest.approx(np.sqrt(other.fun), abs=1e-4)


@settings(max_examples=settings.default.max_examples // 4)
@given(SEEDS)
def test_no_fewer_pixels_reach_it(seed: int) -> None:
    slope, margin, low, high = problem(seed)
    gains = np.maximum(slope * high, slope * low)
    sizes = [len(c) for k in range(6) for c in itertools.combinations(range(5), k) if gains[list(c)].sum() >= margin]
    result = nearest_in_halfspace(slope, margin, "l0", low, high)
    assert result.distance == min(sizes, default=np.inf)
    assert (result.change != 0).sum() <= result.distance


@given(SEEDS, st.sampled_from(["l0", "l1", "l2", "linf"]))
def test_the_change_is_what_it_says(seed: int, norm: str) -> None:
    """It stays in the box, has the norm, and meets the margin, exactly where the norm is continuous."""
    slope, margin, low, high = problem(seed, count=12)
    distance, change = nearest_in_halfspace(slope, margin, norm, low, high)
    assert (change >= low - 1e-12).all()
    assert (change <= high + 1e-12).all()
    if not np.isfinite(distance):
        assert slope @ change < margin
        return
    size = np.count_nonzero(change) if norm == "l0" else np.linalg.norm(change, ORDERS[norm])
    assert size == pytest.approx(distance)
    if norm == "l0":
        assert slope @ change >= margin - 1e-9
    else:
        assert slope @ change == pytest.approx(margin)


@given(SEEDS)
def test_without_a_box_it_is_the_dual_norm(seed: int) -> None:
    slope, margin, _, _ = problem(seed)
    slope = slope + 0.01
    far = np.full(5, 1e6)
    for norm, order in (("l1", np.inf), ("l2", 2), ("linf", 1)):
        free = nearest_in_halfspace(slope, margin, norm)
        assert free.distance == pytest.approx(margin / np.linalg.norm(slope, order))
        assert slope @ free.change == pytest.approx(margin)
        assert nearest_in_halfspace(slope, margin, norm, -far, far).distance == pytest.approx(free.distance)


def test_the_channels_of_a_pixel_count_once() -> None:
    """Three pixels of two channels: the second contributes 0.5 + 0.6, more than any other."""
    slope, room = np.array([1.0, 0.5, 0.1, 0.0, 0.6, 0.1]), np.ones(6)
    result = nearest_in_halfspace(slope, 1.05, "l0", -room, room, channels=2)
    assert result.distance == 1
    assert result.change.tolist() == [0, 1, 0, 0, 1, 0]
    assert nearest_in_halfspace(slope, 1.05, "l0", -room, room).distance == 2
    assert norm_from_l2(1.3, room, "l0", channels=2) == 1


def test_batches_and_edge_cases() -> None:
    slope, low, high = np.ones((3, 2)), np.zeros((3, 2)), np.ones((3, 2))
    for norm, expected in (("l2", [0, 0.5**0.5, np.inf]), ("linf", [0, 0.5, np.inf]), ("l0", [0, 1, np.inf])):
        result = nearest_in_halfspace(slope, [-1.0, 1.0, 2.5], norm, low, high)
        assert result.distance.tolist() == pytest.approx(expected)
    with pytest.raises(ValueError, match="count of pixels needs bounds"):
        nearest_in_halfspace(slope, 1.0, "l0")
    with pytest.raises(ValueError, match="hold the change 0"):
        nearest_in_halfspace(slope, 1.0, "l2", low + 0.1, high)


@given(SEEDS, st.floats(0.01, 2.0))
def test_no_shorter_change_in_another_norm_is_as_long_in_l2(seed: int, length: float) -> None:
    rng = np.random.default_rng(seed)
    room = np.maximum(rng.random(8), 0.5)
    most = np.sqrt((room**2).sum())
    level, count = norm_from_l2(length, room, "linf"), norm_from_l2(length, room, "l0")
    if length > most:
        assert np.isinf(level)
        assert np.isinf(count)
        return
    assert np.sqrt((np.minimum(level, room) ** 2).sum()) == pytest.approx(length)
    largest = np.sort(room**2)[::-1]
    assert largest[: int(count)].sum() >= length**2 * (1 - 1e-9)
    assert largest[: int(count) - 1].sum() < length**2
    assert norm_from_l2(length, room, "l1") == length
