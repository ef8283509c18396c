"""What sparse transitions reveal: the cost of a rotation and the steps of the proof, against quadrature and draws."""

from itertools import permutations, product

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import gennorm, ortho_group

from polariscope.theory.identifiability import (
    column_lengths,
    empirical_excess_nll,
    identifies,
    is_signed_permutation,
    log_density_curvature,
    proof_steps,
    rotation_excess_nll,
)
from polariscope.theory.transitions import sample, sample_sequences

# Spec 001a, section 2.2: degrees and excess NLL of Laplace transitions.
ROTATIONS = {5: 0.006413, 10: 0.021674, 15: 0.041241, 22.5: 0.071930, 30: 0.098076, 45: 0.121320}


def rotation(degrees: float) -> np.ndarray:
    c, s = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    return np.array([[c, -s], [s, c]])


def signed_permutations(dims: int):
    for order, signs in product(permutations(range(dims)), product((-1.0, 1.0), repeat=dims)):
        yield np.eye(dims)[list(order)] * signs


def near(draws: np.ndarray, errors: float = 5.0):
    """Whatever agrees with the mean of some draws up to some standard errors."""
    return pytest.approx(draws.mean(), abs=errors * draws.std() / np.sqrt(len(draws)))


@pytest.mark.spec("001a/TH-03")
@pytest.mark.parametrize("degrees", ROTATIONS)
def test_a_rotated_laplace_model_pays_the_closed_form(degrees: float) -> None:
    result = float(rotation_excess_nll(np.radians(degrees)))
    assert result == pytest.approx(ROTATIONS[degrees], abs=6e-7)
    # E|S| = (2/π) ∫ (1 − E cos tS)/t² dt, and E cos tX = 1/(1 + t²) for a Laplace X.
    c2, s2 = np.cos(np.radians(degrees)) ** 2, np.sin(np.radians(degrees)) ** 2

    def integrand(t: float) -> float:  # with the t² divided out by hand
        return (1 + c2 * s2 * t**2) / ((1 + c2 * t**2) * (1 + s2 * t**2))

    near_zero, beyond = (
        quad(integrand, *ends, epsabs=1e-14, epsrel=1e-13, limit=400)[0] for ends in ((0, 9), (9, np.inf))
    )
    assert result == pytest.approx(2 * (2 / np.pi * (near_zero + beyond) - 1), abs=1e-12)


@pytest.mark.spec("001a/TH-03")
def test_the_excess_is_measured_on_draws() -> None:
    u = sample(1.0, 6.0, (1_500_000, 2), seed=5)
    # The size 6‖u‖₁ has mean 2 and is independent of the direction: with its mean in its place the noise is half.
    size = 6 * np.abs(u).sum(axis=1)
    for degrees, expected in ROTATIONS.items():
        measured = empirical_excess_nll(u, rotation(degrees), 1.0, 6.0)
        assert expected == near(measured)
        assert (2 * measured / size).mean() == pytest.approx(expected, abs=1e-3)
    assert near(size) == 2.0


def test_the_excess_does_not_depend_on_the_rate() -> None:
    u = gennorm.rvs(0.5, size=(100, 3), random_state=0)
    q = ortho_group.rvs(3, random_state=0)
    slow = empirical_excess_nll(u, q, 0.5, 1.0)
    assert empirical_excess_nll(u / 36, q, 0.5, 6.0) == pytest.approx(slow)
    for matrix in signed_permutations(3):
        assert np.abs(empirical_excess_nll(u, matrix, 0.5)).max() < 1e-12


@pytest.mark.spec("001a/TH-03")
@pytest.mark.parametrize(("alpha", "expected"), [(0.5, 0.518), (0.7, 0.289), (1.0, 0.1213), (1.5, 0.0196), (2.0, 0.0)])
def test_the_sparser_the_transitions_the_dearer_the_rotation(alpha: float, expected: float) -> None:
    assert float(rotation_excess_nll(np.pi / 4, alpha)) == pytest.approx(expected, abs=1e-3)
    u = gennorm.rvs(alpha, size=(100_000, 2), random_state=2)
    for degrees in (20, 45):
        cost = (np.abs(u @ rotation(degrees).T) ** alpha).sum(axis=1) - (np.abs(u) ** alpha).sum(axis=1)
        off = float(rotation_excess_nll(np.radians(degrees), alpha)) - cost.mean()
        assert abs(off) < 5 * cost.std() / np.sqrt(len(cost)) + 1e-12


def test_a_tiny_rotation_costs_its_square_on_both_sides_of_a_right_angle() -> None:
    assert rotation_excess_nll([-1e-6, 1e-6]) == pytest.approx([1e-12, 1e-12], rel=1e-5, abs=0)


def test_the_integral_and_the_closed_form_meet_at_laplace() -> None:
    angles = np.linspace(-1, 7, 33)
    below, above = rotation_excess_nll(angles, 1 - 1e-6), rotation_excess_nll(angles, 1 + 1e-6)
    assert (below + above) / 2 == pytest.approx(rotation_excess_nll(angles), abs=1e-11)


@pytest.mark.parametrize("alpha", [0.3, 0.5, 1.0, 1.5, 3.0])
def test_right_angles_are_free_and_the_cost_is_symmetric(alpha: float) -> None:
    angles = np.radians(np.linspace(1, 44, 12))
    cost = rotation_excess_nll(angles, alpha)
    assert (np.diff(cost) > 0).all()
    for same in (-angles, np.pi / 2 - angles, angles + np.pi, angles - np.pi / 2):
        assert rotation_excess_nll(same, alpha) == pytest.approx(cost, abs=1e-12)
    assert rotation_excess_nll(np.arange(-4, 5) * np.pi / 2, alpha) == pytest.approx(np.zeros(9), abs=1e-12)


@pytest.mark.spec("001a/TH-05")
def test_gaussian_transitions_make_every_rotation_free() -> None:
    angles = np.linspace(0, 2 * np.pi, 73)
    assert np.abs(rotation_excess_nll(angles, 2.0)).max() < 1e-12
    # Not for want of looking: a little sparser or less sparse and it costs.
    assert rotation_excess_nll(np.pi / 4, [1.9, 2.1]).min() > 1e-4
    u = sample(2.0, 6.0, (1000, 2), seed=0)
    for degrees in (7, 30, 45):
        assert np.abs(empirical_excess_nll(u, rotation(degrees), 2.0, 6.0)).max() < 1e-12
        assert np.abs(empirical_excess_nll(u, rotation(degrees), 1.0, 6.0)).max() > 0.1


@pytest.mark.spec("001a/TH-04")
@pytest.mark.parametrize("alpha", [0.3, 0.5, 1.0, 1.5])
def test_signed_permutations_and_only_they_pass(alpha: float) -> None:
    noise = 1e-9 * np.random.default_rng(0).standard_normal((3, 3))
    for matrix in signed_permutations(3):
        assert is_signed_permutation(matrix, alpha)
        assert is_signed_permutation(matrix + noise, alpha)
    for dims in (2, 3, 8):
        for q in ortho_group.rvs(dims, size=20, random_state=dims):
            assert not is_signed_permutation(q, alpha)
            assert column_lengths(q, alpha).max() > 1
    assert not is_signed_permutation(rotation(1e-3), alpha)
    assert is_signed_permutation(rotation(1e-3), alpha, tolerance=1e-4)
    # Each half of the test matters: columns of unit length that are not orthogonal, and a scaled permutation.
    assert not is_signed_permutation([[1, 1], [0, 0]], alpha)
    assert not is_signed_permutation(2 * np.eye(2), alpha)


@pytest.mark.spec("001a/TH-04")
@pytest.mark.parametrize("tolerance", [1e-6, 1e-4, 1e-2])
@pytest.mark.parametrize("alpha", [0.3, 1.0, 1.5, 1.9])
def test_entries_count_as_zero_up_to_the_tolerance_and_no_further(alpha: float, tolerance: float) -> None:
    for share, passes in ((0.5, True), (0.97, True), (1.03, False), (1.9, False)):
        turned = rotation(np.degrees(np.arcsin(share * tolerance)))
        assert is_signed_permutation(turned, alpha, tolerance) == passes, share
        # The length of a column has the same freedom: (1 + e)² - 1 is about 2e, and twice the tolerance is allowed.
        scaled = np.diag([1.0, 1 + share * tolerance * (1 - tolerance)])
        assert is_signed_permutation(scaled, alpha, tolerance) == passes, share


@pytest.mark.spec("001a/TH-04")
def test_column_lengths_are_norms() -> None:
    assert column_lengths(rotation(45)) == pytest.approx([np.sqrt(2)] * 2)
    q = ortho_group.rvs(5, random_state=0)
    for alpha in (0.5, 1.0, 1.5, 2.0):
        assert column_lengths(q, alpha) == pytest.approx([np.linalg.norm(column, alpha) for column in q.T])


@pytest.mark.spec("001a/TH-07")
@pytest.mark.parametrize("alpha", [0.5, 1.0, 1.5])
def test_a_rotation_fails_only_the_step_of_distances(alpha: float) -> None:
    z, w = np.moveaxis(sample_sequences(50, 3, alpha, 1.0, seed=0).latents, 1, 0)
    for matrix in signed_permutations(3):
        kept = proof_steps(lambda v, m=matrix: v @ m.T, z, w, alpha)
        assert max(kept.two_norm, kept.alpha_distance) < 1e-9
        assert kept.log_volume < 1e-8
    q = ortho_group.rvs(3, random_state=1)
    rotated = proof_steps(lambda v: v @ q.T, z, w, alpha)
    assert rotated.two_norm < 1e-9
    assert rotated.log_volume < 1e-8
    assert rotated.alpha_distance > 0.1
    assert proof_steps(lambda v: v @ q.T, z, w, 2.0).alpha_distance < 1e-9


@pytest.mark.spec("001a/TH-07")
def test_each_step_is_failed_by_a_map_of_its_own() -> None:
    z, w = np.random.default_rng(0).standard_normal((2, 50, 2))

    def twist(v: np.ndarray) -> np.ndarray:  # the further out the more it turns: norms and areas stay
        radius = np.linalg.norm(v, axis=1)
        c, s = np.cos(radius), np.sin(radius)
        return np.stack((c * v[:, 0] - s * v[:, 1], s * v[:, 0] + c * v[:, 1]), axis=1)

    twisted = proof_steps(twist, z, w, 2.0)
    assert twisted.two_norm < 1e-12
    assert twisted.log_volume < 1e-8
    assert twisted.alpha_distance > 0.1  # and unlike a rotation not even Euclidean distances
    stretched = proof_steps(lambda v: v * [2.0, 0.5], z, w)
    assert stretched.log_volume < 1e-8
    assert stretched.two_norm > 0.1
    assert proof_steps(lambda v: 3 * v, z, w).log_volume == pytest.approx(np.log(9))
    shifted = proof_steps(lambda v: v + 1, z, w)
    assert shifted.alpha_distance < 1e-12
    assert shifted.two_norm > 0.1


@pytest.mark.spec("001a/TH-06")
@pytest.mark.parametrize("alpha", [0.3, 0.5, 0.99, 1.0, 1.01, 1.5, 1.99, 2.0, 3.0])
def test_the_theories_split_the_shapes(alpha: float) -> None:
    u, h = np.concatenate((np.linspace(-3, -0.2, 15), np.linspace(0.2, 3, 15))), 1e-4
    theirs = gennorm(alpha, scale=2 ** (-1 / alpha)).logpdf
    numeric = (theirs(u + h) - 2 * theirs(u) + theirs(u - h)) / h**2
    assert log_density_curvature(u, alpha, 2.0) == pytest.approx(numeric, rel=1e-3, abs=1e-5)
    assert identifies(alpha).contrastive == (numeric < -1e-3).all()
    assert identifies(alpha).sparse == (alpha < 2)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: empirical_excess_nll([[1.0, 2.0, 3.0]], np.eye(2)), r"rows of 2 latents.*\(1, 3\)"),
        (lambda: column_lengths(np.ones((2, 3))), r"square matrix.*\(2, 3\)"),
        (lambda: is_signed_permutation(np.eye(2), 2.0), "between 0 and 2"),
        (lambda: is_signed_permutation(np.eye(2), tolerance=0.0), "between 0 and 0.1; got 0.0"),
        (lambda: proof_steps(lambda z: z, np.ones((2, 2)), np.ones((3, 2))), "same shape"),
        (lambda: proof_steps(lambda z: z[:, :1], np.ones((2, 2)), np.ones((2, 2))), "latents of the same shape"),
        (lambda: log_density_curvature(0.0, 1.5, 1.0), "cusp at 0"),
    ],
)
def test_bad_input_is_one_sentence(call, match: str) -> None:
    with pytest.raises(ValueError, match=match) as caught:
        call()
    assert "\n" not in str(caught.value)
