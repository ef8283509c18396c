"""Distance to orthogonality against closed forms, brute force and the published integer program; the KL error."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from polariscope.examination.jacobians import decoder_grams, decoder_jacobians, decoder_orthogonality
from polariscope.measures.measure import Undefined
from polariscope.measures.orthogonality import (
    PolarisedKLError,
    distance_to_orthogonality,
    haar_distance,
    nearest_signed_permutation,
    nearest_signed_permutation_milp,
    orthogonality,
    orthogonality_of_grams,
    random_orientations,
)
from polariscope.nets.architecture import MLP
from polariscope.nets.autoencoder import Autoencoder, AutoencoderConfig
from polariscope.representation import Representation
from polariscope.theory.linear_vae import rotation_gap
from polariscope.theory.orthogonal_noise import hands_on_example, orthogonality_gap

seeds = st.integers(0, 2**32 - 1)


def turn(degrees: float) -> np.ndarray:
    angle = np.radians(degrees)
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def signed_permutation(d: int, rng: np.random.Generator) -> np.ndarray:
    return np.eye(d)[rng.permutation(d)] * rng.choice([-1.0, 1.0], d)


def nearly_aligned(count: int, d: int, noise: float, seed: int) -> np.ndarray:
    """Orthogonal matrices around signed permutations, some of which no greedy rule settles."""
    rng = np.random.default_rng(seed)
    base = np.stack([signed_permutation(d, rng) for _ in range(count)])
    return np.linalg.qr(base + noise * rng.normal(size=base.shape))[0]


@pytest.mark.spec("003/F3-012")
@pytest.mark.parametrize(
    ("degrees", "expected"), [(5, 0.123), (10, 0.247), (22.5, 0.552), (30, 0.732), (45, 1.082), (60, 0.732), (90, 0)]
)
def test_a_rotation_of_the_plane(degrees, expected):
    result = float(distance_to_orthogonality(turn(degrees)))
    to_axis = min(degrees, 90 - degrees)
    assert result == pytest.approx(2 * math.sqrt(2) * math.sin(math.radians(to_axis) / 2), abs=1e-12)
    assert result == pytest.approx(expected, abs=5e-4)


@pytest.mark.spec("003/F3-012")
def test_small_distances_keep_their_digits():
    assert float(distance_to_orthogonality(turn(1e-9))) == pytest.approx(math.sqrt(2) * math.radians(1e-9), rel=1e-6)


@pytest.mark.spec("003/F3-012", "003/F3-095")
def test_the_rotation_that_spoils_a_code_is_root_two_away():
    e = math.sqrt(6) / 4
    matrix = np.array([[0.75, 0.25, e], [0.25, 0.75, -e], [-e, e, 0.5]])
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(matrix) == pytest.approx(1)
    assert float(distance_to_orthogonality(matrix)) == pytest.approx(math.sqrt(2), abs=1e-12)


@pytest.mark.spec("003/F3-012")
@pytest.mark.parametrize("noise", [0.1, 0.4, 1.0, 10.0])
def test_the_matching_is_the_best_of_all(noise):
    d = 5
    matrices = nearly_aligned(60, d, noise, seed=1)
    orders = np.array(list(itertools.permutations(range(d))))
    best = np.abs(matrices)[:, np.arange(d), orders].sum(axis=2).max(axis=1)
    np.testing.assert_allclose(distance_to_orthogonality(matrices), np.sqrt(2 * d - 2 * best), atol=1e-7)


@pytest.mark.spec("003/F3-012")
def test_each_way_to_the_matching_is_taken_and_agrees_with_the_norm():
    matrices = nearly_aligned(400, 6, 0.5, seed=2)
    sizes = np.abs(matrices)
    by_row = np.array([len(set(m.argmax(1))) == 6 for m in sizes])
    by_column = np.array([len(set(m.argmax(0))) == 6 for m in sizes])
    assert by_row.any()
    assert (by_column & ~by_row).any()
    assert (~by_column & ~by_row).any()
    nearest = nearest_signed_permutation(matrices)
    np.testing.assert_array_equal(np.abs(nearest).sum(axis=1), 1)
    np.testing.assert_array_equal(np.abs(nearest).sum(axis=2), 1)
    distance = distance_to_orthogonality(matrices)
    np.testing.assert_allclose(np.linalg.norm(matrices - nearest, axis=(1, 2)), distance, atol=1e-12)
    # O12: the squared distance is 2d - 2 sum of the matched sizes
    np.testing.assert_allclose(12 - 2 * (sizes * np.abs(nearest)).sum(axis=(1, 2)), distance**2, atol=1e-9)


@pytest.mark.spec("003/F3-012")
@given(seed=seeds, d=st.integers(1, 7), outputs=st.integers(0, 4), scale=st.floats(1e-3, 1e3))
def test_what_must_not_change_the_distance(seed, d, outputs, scale):
    rng = np.random.default_rng(seed)
    jacobian = rng.normal(size=(d + outputs, d)) * np.linspace(1, 2, d)
    result = orthogonality(jacobian)
    left = random_orientations(1, d + outputs, rng)[0]
    for changed in (left @ jacobian, scale * jacobian, jacobian @ signed_permutation(d, rng)):
        if result.degenerate.any():
            continue
        assert orthogonality(changed).value == pytest.approx(result.value, abs=1e-6)
    assert 0 <= result.value <= math.sqrt(2 * d - 2) + 1e-12


@given(seed=seeds, d=st.integers(1, 7))
def test_signed_permutations_on_either_side_change_nothing(seed, d):
    rng = np.random.default_rng(seed)
    v = random_orientations(1, d, rng)[0]
    changed = signed_permutation(d, rng) @ v @ signed_permutation(d, rng)
    assert float(distance_to_orthogonality(changed)) == pytest.approx(float(distance_to_orthogonality(v)), abs=1e-12)
    assert float(distance_to_orthogonality(v.T)) == pytest.approx(float(distance_to_orthogonality(v)), abs=1e-12)


@pytest.mark.spec("003/F3-013")
@pytest.mark.parametrize("d", [2, 3, 5, 7])
def test_the_integer_program_finds_the_same_matching(d):
    matrices = np.concatenate([random_orientations(6, d, seed=d), nearly_aligned(4, d, 0.4, seed=d)])
    expected = np.stack([nearest_signed_permutation_milp(v) for v in matrices])
    np.testing.assert_array_equal(nearest_signed_permutation(matrices), expected)


@pytest.mark.spec("003/F3-012", "003/F3-024")
def test_the_hands_on_example():
    mixed, turned = hands_on_example()
    np.testing.assert_allclose(turned * math.sqrt(2), [[3, 5], [-4, -2], [6, 4]], atol=1e-12)
    first, second = orthogonality(mixed), orthogonality(turned)
    assert first.value == pytest.approx(0.119181, abs=5e-7)
    assert second.value == pytest.approx(0.971322, abs=5e-7)
    np.testing.assert_allclose(first.singular_values, [[7.09493, 1.63157]], atol=5e-6)
    np.testing.assert_allclose(second.singular_values, first.singular_values)
    assert first.gap()[0] == pytest.approx(0.0564, abs=5e-5)
    assert second.gap()[0] == pytest.approx(0.8167, abs=5e-5)
    _, _, vt = np.linalg.svd(mixed)
    best = orthogonality(mixed @ vt.T)
    assert best.value == pytest.approx(0, abs=1e-12)
    assert best.gap()[0] == pytest.approx(0, abs=1e-12)


@pytest.mark.spec("003/F3-014")
def test_columns_of_zeros_change_nothing():
    rng = np.random.default_rng(0)
    jacobians = rng.normal(size=(30, 12, 4))
    padded = np.zeros((30, 12, 6))
    padded[:, :, [0, 2, 3, 5]] = jacobians
    result, expected = orthogonality(padded), orthogonality(jacobians)
    np.testing.assert_allclose(result.distance, expected.distance, atol=1e-9)
    assert result.active.tolist() == [0, 2, 3, 5]
    assert not result.degenerate.any()
    np.testing.assert_allclose(result.gap(0.1), expected.gap(0.1))
    # asked for all the same, their arbitrary directions are called so
    assert orthogonality(padded, active=range(6)).degenerate.all()


@pytest.mark.spec("003/F3-014")
def test_an_active_mask_looks_at_those_latents_only():
    rng = np.random.default_rng(1)
    jacobians = rng.normal(size=(40, 9, 5))
    mask = np.array([True, False, True, True, False])
    result = orthogonality(jacobians, active=mask)
    np.testing.assert_allclose(result.distance, orthogonality(jacobians[:, :, mask]).distance, atol=1e-9)
    np.testing.assert_allclose(result.distance, orthogonality(jacobians, active=[0, 2, 3]).distance)
    assert result.samples == 40
    assert result.distance.shape == (40,)
    assert result.value == pytest.approx(result.distance.mean())
    np.testing.assert_allclose(result.quantiles([0, 0.5, 1]), np.quantile(result.distance, [0, 0.5, 1]))
    assert (result.distance > 0).all()


@pytest.mark.spec("003/F3-025")
@given(seed=seeds, d=st.integers(1, 6))
def test_orthogonal_columns_mean_distance_zero_if_they_differ_in_length(seed, d):
    rng = np.random.default_rng(seed)
    basis = random_orientations(1, d + 3, rng)[0][:, :d]
    lengths = rng.permutation(np.arange(1.0, d + 1))
    result = orthogonality(basis * lengths)
    assert not result.degenerate.any()
    assert result.value == pytest.approx(0, abs=1e-9)
    # each latent lies along the direction whose rank its length has
    np.testing.assert_array_equal(result.directions[0], np.argsort(np.argsort(-lengths)))
    if d > 1:
        bent = basis * lengths @ np.linalg.qr(np.eye(d) + 0.3 * rng.normal(size=(d, d)))[0]
        gram = bent.T @ bent
        if np.abs(gram - np.diag(np.diag(gram))).max() > 1e-2:
            assert orthogonality(bent).value > 1e-4


@pytest.mark.spec("003/F3-025", "003/F3-017")
def test_equal_lengths_are_flagged_and_the_gap_is_zero_all_the_same():
    basis = np.eye(6)[:, :3] @ random_orientations(1, 3, seed=4)[0]
    result = orthogonality(np.stack([basis, basis * [1, 2, 3]]))
    assert result.degenerate.tolist() == [True, False]
    assert result.degenerate_share == 0.5
    np.testing.assert_allclose(result.gap(), 0, atol=1e-12)


@pytest.mark.spec("003/F3-017")
@given(seed=seeds, d=st.integers(2, 5), noise_var=st.floats(1e-3, 10))
def test_the_gap_is_what_a_diagonal_posterior_loses(seed, d, noise_var):
    jacobians = np.random.default_rng(seed).normal(size=(4, 6, d))
    result = orthogonality(jacobians).gap(noise_var)
    np.testing.assert_allclose(result, [rotation_gap(j, noise_var) for j in jacobians], atol=1e-10)
    np.testing.assert_allclose(result, orthogonality_gap(jacobians, noise_var), atol=1e-10)
    assert (result <= orthogonality(jacobians).gap() + 1e-9).all()


@pytest.mark.spec("003/F3-015")
def test_random_orientations_of_the_plane_are_known_exactly():
    exact = haar_distance(2)
    assert (exact.mean, exact.std) == pytest.approx((0.548260, 0.313282), abs=5e-7)
    drawn = distance_to_orthogonality(random_orientations(20_000, 2, seed=0))
    assert drawn.mean() == pytest.approx(exact.mean, abs=4 * exact.std / math.sqrt(20_000))
    assert drawn.std() == pytest.approx(exact.std, abs=0.005)
    assert drawn.max() == pytest.approx(1.082392, abs=1e-4)
    assert drawn.max() <= 2 * math.sqrt(2) * math.sin(math.pi / 8) + 1e-12


@pytest.mark.spec("003/F3-015")
@pytest.mark.parametrize(
    ("d", "mean", "std"),
    [(3, 0.981, 0.262), (4, 1.328, 0.219), (5, 1.634, 0.193), (6, 1.913, 0.170), (8, 2.408, 0.140), (10, 2.849, 0.120)],
)
def test_random_orientations_in_more_dimensions(d, mean, std):
    result = haar_distance(d, draws=4000, seed=3)
    assert result.mean == pytest.approx(mean, abs=4 * std / math.sqrt(4000) + 5e-4)
    assert result.std == pytest.approx(std, rel=0.06)
    assert result.draws == 4000
    assert result == haar_distance(d, draws=4000, seed=3)


@pytest.mark.spec("003/F3-016")
def test_an_untrained_decoder_has_no_preferred_axes():
    """One code of each of many decoders: codes of one decoder are not independent draws."""
    distances = []
    for seed in range(60):
        torch.manual_seed(seed)
        model = Autoencoder(AutoencoderConfig(latents=5, architecture=MLP((8,), (24, 24), "tanh", "tanh")), (40,))
        distances.append(decoder_orthogonality(model.decode, torch.randn(1, 5)).value)
    reference = haar_distance(5, draws=4000)
    assert np.mean(distances) == pytest.approx(reference.mean, abs=3 * reference.std / math.sqrt(60))


def test_any_decoder_can_be_brought():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.Tanh(), torch.nn.Linear(16, 12))

    def decode(z):
        return net(z).reshape(-1, 3, 2, 2)

    z = torch.randn(7, 3)
    jacobians = decoder_jacobians(decode, z)
    result = decoder_orthogonality(decode, z, chunk=3)
    expected = orthogonality(jacobians)  # a tensor, with a gradient
    np.testing.assert_allclose(result.distance, expected.distance, atol=1e-5)
    grams = decoder_grams(decode, z, chunk=4)
    assert not grams.requires_grad
    assert grams.dtype == torch.float64
    torch.testing.assert_close(grams, (jacobians.mT @ jacobians).double(), atol=1e-5, rtol=1e-5)
    masked = decoder_orthogonality(decode, z, active=[0, 2])
    np.testing.assert_allclose(masked.distance, orthogonality(jacobians, active=[0, 2]).distance, atol=1e-5)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: distance_to_orthogonality(np.ones((2, 2))), "not orthogonal .* pass Jacobians"),
        (lambda: distance_to_orthogonality(np.ones((3, 2))), "shape \\(..., d, d\\)"),
        (lambda: distance_to_orthogonality(np.full((2, 2), np.nan)), "not orthogonal"),
        (lambda: nearest_signed_permutation_milp(np.ones((2, 3))), "one square matrix"),
        (lambda: orthogonality(np.ones(3)), "jacobians need shape"),
        (lambda: orthogonality(np.full((2, 3, 2), np.inf)), "NaN or infinity"),
        (lambda: orthogonality(np.zeros((2, 3, 2))), "no latent is active"),
        (lambda: orthogonality(np.ones((2, 3, 2)), active=[True]), "a mask of 2 latents"),
        (lambda: orthogonality(np.ones((2, 3, 2)), active=[2]), "a mask of 2 latents"),
        (lambda: orthogonality_of_grams(np.ones((2, 3, 2))), "grams need shape"),
        (lambda: orthogonality(np.eye(2)).gap(-1.0), "at least 0"),
        (lambda: haar_distance(3, draws=1), "at least 2"),
        (lambda: haar_distance(0), "at least 1"),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_nonsense_is_refused_in_a_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


# --- the KL error as a measure ---


def representation(var, spread, prior_mean=None) -> Representation:
    """Two examples with means of the given spread about 0."""
    mean = np.array([spread, np.negative(spread)], np.float32)
    return Representation(mean=mean, var=np.array([var, var], np.float32), prior_mean=prior_mean)


@pytest.mark.spec("003/F3-032")
def test_the_kl_error_at_the_linear_optimum():
    """Spec 003, O6: beta 0.01 on variances 1/3 and 1/12."""
    var = np.array([0.015, 0.06])
    assert PolarisedKLError().value(representation(var, np.sqrt(1 - var))) == pytest.approx(1.06942e-2, rel=1e-4)


def test_the_two_rules_for_latents_in_use():
    """A latent with variance .78 and means of deviation sqrt(.22) is in use by its variance, not by its means."""
    rep = representation([0.01, 0.78], np.sqrt([0.99, 0.22]))
    kl = -0.5 * np.log([0.01, 0.78])
    by_mean, by_variance = PolarisedKLError().value(rep), PolarisedKLError("variance").value(rep)
    assert by_mean == pytest.approx((0.5 * 0.01 + kl[1]) / kl.sum(), rel=1e-5)
    assert by_variance == pytest.approx(0.5 * (0.01 + 0.78) / kl.sum(), rel=1e-5)


def test_the_kl_error_has_no_value_without_a_kl_or_with_another_prior():
    with pytest.raises(Undefined, match="no KL"):
        PolarisedKLError().value(representation([1.0, 1.0], [0.0, 0.0]))
    with pytest.raises(Undefined, match="conditional"):
        PolarisedKLError().value(representation([0.1], [1.0], prior_mean=np.zeros((2, 1), np.float32)))
