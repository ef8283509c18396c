"""Fixed points of the compressing regime: closed forms against quadrature and data, and the tables of spec 004."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import erf
from scipy.stats import norm

from polariscope.theory.amplification import median_amplification, saturation_time
from polariscope.theory.stripe import (
    FixedPoint,
    Layers,
    Radial,
    attractors,
    balanced_radius,
    balanced_stripe,
    fixed_points,
    intercept_drift,
    ring,
)

STRIPE = Layers()
MANY = Layers((-1.5, -0.6, 0.1, 0.9))
UNBALANCED = Layers((-0.3, 0.97688, 1.4))

# Spec 004, section 6.3: d, side, z*, C₁, C_b, y(z*), τ/τ*, τ/τ_⊥, D, c_d.
TABLE = [
    (2, 1, -1.22620, -0.17951, -0.11006, 1, 0.23760, -0.24897, 0.8899, 0.3897),
    (2, 1, 0.64664, 0.07148, -0.02311, -1, 0.07859, -0.35591, 0.2589, 0.7766),
    (2, -1, 0.45004, -0.40226, 0.09052, -1, 0.42213, -0.37833, 0.6737, 0.9293),
    (3, 1, -1.33551, -0.20409, -0.09085, 1, 0.25771, -0.20650, 0.9091, 0.3856),
    (3, 1, 0.66627, 0.07562, -0.01679, -1, 0.08102, -0.34236, 0.2526, 0.7862),
    (3, -1, 0.50823, -0.41217, 0.06982, -1, 0.42954, -0.36539, 0.6944, 0.9154),
    (5, 1, -1.48049, -0.23428, -0.06937, 1, 0.28098, -0.15992, 0.9306, 0.3811),
    (5, 1, 0.68483, 0.07960, -0.01090, -1, 0.08325, -0.33002, 0.2467, 0.7955),
    (5, -1, 0.57049, -0.42375, 0.04835, -1, 0.43732, -0.34989, 0.7158, 0.9016),
    (10, 1, -1.68701, -0.27148, -0.04580, 1, 0.30770, -0.10897, 0.9542, 0.3763),
    (10, 1, 0.70100, 0.08312, -0.00583, -1, 0.08514, -0.31961, 0.2417, 0.8038),
    (10, -1, 0.63281, -0.43622, 0.02760, -1, 0.44487, -0.33303, 0.7366, 0.8888),
    (20, 1, -1.90027, -0.30204, -0.02870, 1, 0.32818, -0.07126, 0.9713, 0.3730),
    (20, 1, 0.71002, 0.08510, -0.00302, -1, 0.08616, -0.31394, 0.2388, 0.8085),
    (20, -1, 0.67210, -0.44449, 0.01494, -1, 0.44948, -0.32186, 0.7492, 0.8812),
]


def integrated(label, zeta: float, side: int) -> tuple[float, float]:
    """C_b and C₁ by adaptive quadrature between the kinks."""
    low, high = (zeta, 12.0) if side > 0 else (-12.0, zeta)
    edges = [low, *[k for k in label.kinks if low < k < high], high]
    parts = [
        [quad(lambda x, n=n: x**n * float(label(x)) * norm.pdf(x), a, b, epsabs=1e-12)[0] for n in (0, 1)]
        for a, b in pairwise(edges)
    ]
    return tuple(np.sum(parts, axis=0))


@pytest.mark.spec("004/F02")
def test_the_balanced_stripe_holds_half_of_the_points() -> None:
    assert balanced_stripe(-0.3) == pytest.approx((-0.3, 1.1854923327), abs=1e-9)
    assert balanced_stripe(-0.6744897502)[1] == pytest.approx(0.6744897502)
    for x_min in (-3.0, -1.0, -0.01):
        low, high = balanced_stripe(x_min)
        assert norm.cdf(high) - norm.cdf(low) == pytest.approx(0.5, abs=1e-12)
        assert Layers((low, high)).mean == pytest.approx(0, abs=1e-12)


@pytest.mark.spec("004/F23")
@pytest.mark.parametrize("label", [STRIPE, MANY, UNBALANCED, Radial(2), Radial(3), Radial(6)], ids=repr)
@pytest.mark.parametrize("side", [1, -1])
def test_half_line_averages_agree_with_quadrature(label, side) -> None:
    zeta = np.array([-2.5, -1.3, -0.3, 0.0, 0.4, 1.1, 1.3, 3.0])
    result = np.transpose(label.half_line(zeta, side))
    expected = [integrated(label, z, side) for z in zeta]
    np.testing.assert_allclose(result, expected, atol=1e-7, rtol=0)


@pytest.mark.spec("004/F23")
def test_half_line_averages_of_the_stripe_are_the_written_ones() -> None:
    m, M = balanced_stripe()
    pdf, tail = norm.pdf, norm.sf
    assert Layers((-0.3, 1.18549)).correlation == pytest.approx(-0.3676236, abs=1e-7)  # the rounded stripe
    written = {
        -1.0: (tail(-1) - 1, pdf(-1) - 2 * (pdf(m) - pdf(M))),
        0.5: (2 * tail(M) - tail(0.5), 2 * pdf(M) - pdf(0.5)),
        2.0: (tail(2), pdf(2)),
    }
    for zeta, (c_b, c_1) in written.items():
        np.testing.assert_allclose(STRIPE.half_line(zeta, 1), (c_b, c_1), atol=1e-12)
        np.testing.assert_allclose(STRIPE.half_line(zeta, -1), (-c_b, STRIPE.correlation - c_1), atol=1e-12)
        for side in (1, -1):
            place = FixedPoint(5, side, zeta, float(STRIPE(zeta)), 0.0, 1.0)
            assert place.active == pytest.approx(tail(zeta) if side > 0 else 1 - tail(zeta))


def test_averages_keep_their_precision_far_out() -> None:
    for side in (1, -1):
        c_b, c_1 = STRIPE.half_line(side * 9.0, side)
        assert c_b == pytest.approx(norm.sf(9), rel=1e-12)
        assert c_1 == pytest.approx(side * norm.pdf(9), rel=1e-12)


@pytest.mark.spec("004/F24", "004/F25")
@pytest.mark.parametrize("dimension", [2, 3, 5, 10, 20])
def test_fixed_points_of_the_table(dimension) -> None:
    rows = [row for row in TABLE if row[0] == dimension]
    points = [p for p in fixed_points(STRIPE, dimension) if p.stable]
    assert len(points) == 3
    for point, (_, side, z, c_1, c_b, label, growth, perpendicular, active, saturation) in zip(
        points, rows, strict=True
    ):
        assert (point.side, point.label, point.amplifies) == (side, label, True)
        assert np.sign(point.c_1) * side * label == -1
        result = (point.position, point.c_1, point.c_b, point.growth_rate, point.perpendicular_rate)
        np.testing.assert_allclose(result, (z, c_1, c_b, growth, perpendicular), atol=2e-5)
        np.testing.assert_allclose((point.active, point.saturation), (active, saturation), atol=1e-4)


@pytest.mark.spec("004/F24")
def test_fixed_points_in_high_dimension() -> None:
    c, a, b = attractors(STRIPE, 10**7)
    merged = norm.isf(2 * norm.sf(balanced_stripe()[1]))
    assert merged == pytest.approx(0.7198, abs=1e-4)
    assert (b.position, c.position) == pytest.approx((merged, merged), abs=1e-4)
    assert a.position < -4
    assert c.growth_rate > a.growth_rate > b.growth_rate


@pytest.mark.spec("004/F24")
@pytest.mark.parametrize("label", [MANY, UNBALANCED, Layers((0.0,)), Layers((-0.2, -0.1, 0.0, 2.5, 2.6))], ids=repr)
@pytest.mark.parametrize("dimension", [2, 7])
def test_fixed_points_of_any_layers_are_all_zeros_and_their_stability_is_the_flow(label, dimension) -> None:
    points = fixed_points(label, dimension)
    assert points
    scan = np.linspace(-6, 6, 24_001) + 1e-5
    for side in (1, -1):
        # G from a cumulative sum over the density: an independent count of its zeros.
        x = (scan[:-1] + scan[1:]) / 2
        mass = np.diff(norm.cdf(scan)) * label(x)
        c_b, c_1 = np.cumsum(mass), np.cumsum(mass * x)
        if side > 0:
            c_b, c_1 = c_b[-1] - c_b, c_1[-1] - c_1
        drift = dimension * c_b + scan[1:] * c_1
        keep = np.abs(c_1) > 1e-6
        zeros = scan[1:-1][(np.diff(np.sign(drift)) != 0) & keep[1:]]
        own = np.array([p.position for p in points if p.side == side and abs(p.position) < 6 and abs(p.c_1) > 1e-6])
        np.testing.assert_allclose(own, zeros, atol=5e-3)
    for point in points:
        step = 1e-5
        before, at, after = intercept_drift(label, dimension, point.position + np.array([-step, 0, step]), point.side)
        assert at == pytest.approx(0, abs=1e-10)
        # dζ/dt = −(β/ω₁) G pulls back if it changes from positive to negative.
        velocity = -point.output_ratio * np.array([before, after])
        assert point.stable == (velocity[0] > 0 > velocity[1])
        escape = np.sqrt(2 * np.pi) * abs(point.c_1) > np.exp(-(point.position**2) / 2)
        assert point.amplifies == (np.sign(point.c_1) * point.side * point.label == -1 or escape)


def test_an_unbalanced_label_has_a_fixed_point_far_out() -> None:
    label = Layers((2.0,))
    far = max(fixed_points(label, 5), key=lambda p: abs(p.position))
    assert far.position == pytest.approx(-5 * label.mean / label.correlation)
    assert far.position > 40


@pytest.mark.spec("004/F25")
def test_time_scales_of_the_fastest_attractor() -> None:
    rates = [attractors(STRIPE, d)[0].amplification_rate for d in (2, 5, 10)]
    np.testing.assert_allclose(rates, [0.800, 0.787, 0.778], atol=6e-4)
    slopes = [attractors(STRIPE, d)[0].onset_slope for d in (5, 10)]
    np.testing.assert_allclose(slopes, [1.1433, 1.124], atol=1e-4)
    assert saturation_time(attractors(STRIPE, 5)[0], 1000) == pytest.approx(
        np.log(0.9016 * np.sqrt(1000)) / 0.787, rel=1e-3
    )


@pytest.mark.spec("004/F67")
def test_the_label_of_the_cylinder_along_a_direction() -> None:
    label = Radial(2)
    x = np.linspace(-1.5, 1.5, 31)
    inside = np.maximum(2 * np.log(2) - x**2, 0)
    np.testing.assert_allclose(label(x), 1 - 2 * erf(np.sqrt(inside / 2)), atol=1e-12)
    points = np.random.default_rng(0).standard_normal((200_000, 4))
    for informative in (2, 4):
        norms = np.linalg.norm(points[:, :informative], axis=1)
        y = np.where(norms > balanced_radius(informative), 1, -1)
        seen = points[:, 0] > 0.3
        averages = (y * seen).mean(), (y * seen * points[:, 0]).mean()
        np.testing.assert_allclose(Radial(informative).half_line(0.3, 1), averages, atol=4 / np.sqrt(200_000))


@pytest.mark.spec("004/F67")
@pytest.mark.parametrize("dimension", [3, 5, 10])
def test_the_cylinder_has_one_ring_of_fixed_points(dimension) -> None:
    point = ring(dimension)
    assert (point.position, point.stable, point.amplifies) == (0, True, True)
    result = (point.c_1, point.c_b, point.label, point.active, point.growth_rate, point.perpendicular_rate)
    np.testing.assert_allclose(result, (0.1666, 0, -0.522, 0.5, 0.1666, -0.2082), atol=1e-4)
    assert point.output_ratio > 0
    assert point.saturation == pytest.approx(0.530, abs=5e-4)
    assert point.onset_slope == pytest.approx(3.0, abs=5e-3)
    irrelevant = dimension - 2
    typical = median_amplification(point, 1, informative=2) * np.sqrt(norm_median_square(irrelevant) / irrelevant)
    assert typical == pytest.approx(0.375, abs=5e-4)
    both = fixed_points(Radial(2), dimension)
    assert [(p.side, p.c_1 * p.side) for p in both] == [
        (side, pytest.approx(point.c_1)) for side in (1, -1)
    ]  # ω and −ω of the same ring
    assert max(abs(p.position) for p in both) < 1e-9


def norm_median_square(dimension: int) -> float:
    """The median of a chi-squared variable."""
    return balanced_radius(dimension) ** 2


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: balanced_stripe(0.1), "below 0"),
        (lambda: balanced_radius(0), "at least 1"),
        (lambda: Layers(()), "rising list"),
        (lambda: Layers((1.0, 0.0)), "rising list"),
        (lambda: Layers((0.0, float("inf"))), "rising list"),
        (lambda: Radial(1), "at least 2"),
        (lambda: fixed_points(STRIPE, 0), "at least 1"),
        (lambda: ring(3, informative=3), "informative directions"),
    ],
)
def test_impossible_questions_are_refused(call, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()
