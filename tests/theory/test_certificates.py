"""Certificates of linear generators and prototypes: below what searches find, and equal to it where they say so."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import binomtest, norm

from polariscope.theory.certificates import LinearGenerators, neighbour_distances, separate_l2
from polariscope.theory.quadrics import Quadratics, dual_distance, quadric_distance
from polariscope.theory.smoothing import clopper_pearson, smoothed_radius

SEEDS = st.integers(0, 10_000)
FEW = settings.default.max_examples // 10


def drawn(seed: int, pixels: int = 6, latents: int = 2, classes: int = 3, plain: bool = True, count: int = 4):
    """Generators with near-binary images that they classify rightly."""
    rng = np.random.default_rng(seed)
    extra = {}
    if not plain:
        extra = {"scales": rng.uniform(0.95, 1.06, classes), "offsets": rng.normal(0, 0.05, classes)}
    weights, biases = rng.normal(0, 0.3, (classes, pixels, latents)), rng.beta(0.3, 0.3, (classes, pixels))
    generators = LinearGenerators(weights, biases, 0.5, **extra)
    x = np.clip(biases[rng.integers(0, classes, count)] + rng.normal(0, 0.1, (count, pixels)), 0, 1)
    return generators, x, generators.losses(x).argmin(1)


def loss(generators: LinearGenerators, x: np.ndarray, c: int) -> float:
    """By its definition: a least-squares problem in the code."""
    w, b, var = generators.weights[c], generators.biases[c], generators.var
    z = np.linalg.solve(w.T @ w + var * np.eye(w.shape[1]), w.T @ (x - b))
    return generators.scales[c] * (((w @ z + b - x) ** 2).sum() + var * (z**2).sum()) + generators.offsets[c]


@pytest.mark.spec("001b/B-04")
@settings(max_examples=FEW)
@given(SEEDS, st.booleans())
def test_losses_are_those_of_probabilistic_pca(seed: int, plain: bool) -> None:
    generators, x, _ = drawn(seed, plain=plain)
    expected = [[loss(generators, one, c) for c in range(3)] for one in x]
    np.testing.assert_allclose(generators.losses(x), expected, atol=1e-10)
    c, w, b = 1, generators.weights[1], generators.biases[1]
    covariance = 0.5 * np.eye(6) + w @ w.T
    mahalanobis = 0.5 * np.einsum("ni,ij,nj->n", x - b, np.linalg.inv(covariance), x - b)
    plain_loss = (generators.losses(x)[:, c] - generators.offsets[c]) / generators.scales[c]
    np.testing.assert_allclose(plain_loss, mahalanobis, atol=1e-10)  # −ℓ* · 2 var = −ℓ* for a variance of one half
    nearest = [np.linalg.lstsq(w, one - b, rcond=None)[0] for one in x]
    residual = [np.linalg.norm(w @ z + b - one) for z, one in zip(nearest, x, strict=True)]
    np.testing.assert_allclose(generators.least_distances(x)[:, c], residual, atol=1e-10)


@pytest.mark.spec("001b/B-10", "001b/B-11", "001b/B-13")
def test_prototypes_have_the_distances_of_the_hand_example() -> None:
    """On the segment both bounds are exact; beside it the published one is not."""
    prototypes = LinearGenerators(np.zeros((2, 5, 0)), np.array([[0.0] * 5, [4.0, 0, 0, 0, 0]]))
    x = np.array([[0.5, 0, 0, 0, 0], [0.5, 1, 0, 0, 0]])
    assert prototypes.separate(x, [0, 0], "l2") == pytest.approx([1.5, 1.26101], abs=1e-5)
    assert prototypes.shared(x, [0, 0], "l2") == pytest.approx([1.5, 1.5])
    assert prototypes.exact_l2(x, [0, 0]) == pytest.approx([1.5, 1.5])
    assert prototypes.shared(x, [0, 0], "linf") == pytest.approx([1.5, 1.5])
    own, other = np.linalg.norm(x, axis=1), np.linalg.norm(x - prototypes.biases[1], axis=1)
    assert neighbour_distances(own, other) == pytest.approx(prototypes.separate(x, [0, 0], "l2"))
    assert prototypes.separate(x, [1, 1], "l2").tolist() == [0, 0], "an image that is classified wrongly has no margin"


@pytest.mark.spec("001b/B-11")
def test_the_published_equation_is_mended() -> None:
    """Equation 8 is printed with d in place of d²; the mended bound is 0.5 (d − r) − k / (2 (d + r))."""
    r, k, d = 1.0, 0.3, 3.0
    assert separate_l2(r, k, d) == pytest.approx((d - r) / 2 - k / (2 * (d + r)))
    printed = (d - r**2 - k) / (2 * (d + r))
    assert separate_l2(r, k, d) > 4 * printed


@pytest.mark.spec("001b/B-15")
@given(
    st.floats(0.1, 2), st.floats(0, 1), st.floats(0.1, 4), st.floats(0.9, 1.1), st.floats(0.9, 1.1), st.floats(-1, 1)
)
def test_scaled_losses_cross_at_the_separate_bound(r, k, d, gy, gc, o) -> None:
    epsilon = float(separate_l2(r, k, d, gy, gc, o))

    def apart(at: float) -> float:
        return gc * max(0.0, d - at) ** 2 - gy * ((r + at) ** 2 + k) - o

    if apart(0.0) <= 0:
        assert epsilon == 0
    else:
        assert apart(epsilon) == pytest.approx(0, abs=1e-9)
        assert apart(0.999 * epsilon) > 0


@pytest.mark.spec("001b/B-12", "001b/B-13")
@settings(max_examples=FEW // 2)
@given(SEEDS, st.booleans())
def test_separate_is_below_shared_and_shared_below_exact(seed: int, plain: bool) -> None:
    generators, x, y = drawn(seed, plain=plain)
    l2, linf = (generators.shared(x, y, name) for name in ("l2", "linf"))
    assert (generators.separate(x, y, "l2") <= l2 + 1e-12).all()
    assert (l2 <= generators.exact_l2(x, y) + 1e-9).all()
    assert (generators.separate(x, y, "linf") <= linf + 1e-12).all()
    for name, free in (("l2", l2), ("linf", linf)):
        boxed = generators.shared(x, y, name, box=True)
        assert (boxed >= free * (1 - 1e-3)).all(), "a box takes changes away and adds none"
        assert (boxed >= generators.separate(x, y, name, box=True) - 1e-12).all()


def found_distance(generators: LinearGenerators, x: np.ndarray, y: int, box: bool) -> float:
    """The least L2 change that local searches find, with the true class free to change its code."""
    rng, best = np.random.default_rng(0), np.inf
    bounds = [(-v, 1 - v) for v in x] if box else [(-5, 5)] * len(x)
    for c in {0, 1, 2} - {int(y)}:
        for start in rng.normal(0, 0.5, (3, len(x))):
            search = minimize(
                lambda d: d @ d,
                np.clip(start, *np.array(bounds).T),
                jac=lambda d: 2 * d,
                bounds=bounds,
                constraints={
                    "type": "ineq",
                    "fun": lambda d, c=c: loss(generators, x + d, y) - loss(generators, x + d, c),
                },
                method="SLSQP",
            )
            if search.success:
                best = min(best, np.sqrt(search.fun))
    return best


@pytest.mark.spec("001b/B-11", "001b/B-13")
@pytest.mark.filterwarnings("ignore:Values in x were outside bounds:RuntimeWarning")  # of SciPy before 1.16
@settings(max_examples=2)
@given(SEEDS)
def test_the_exact_distance_is_what_a_search_finds(seed: int) -> None:
    generators, x, y = drawn(seed, plain=False, count=1)
    result = found_distance(generators, x[0], y[0], box=False)
    assert generators.exact_l2(x, y)[0] == pytest.approx(result, rel=1e-3)
    boxed = found_distance(generators, x[0], y[0], box=True)
    assert generators.shared(x, y, "l2", box=True)[0] <= boxed * (1 + 1e-6)


@pytest.mark.spec("001b/B-13")
@settings(max_examples=2)
@given(SEEDS)
def test_the_shared_bound_is_the_least_ratio_over_codes(seed: int) -> None:
    """The formula of B5.3 minimised over codes by a search that knows nothing of the dual."""
    generators, x, y = drawn(seed, count=1)
    x, y, var = x[0], int(y[0]), generators.var
    own = generators.syntheses(x[None])[0, y]
    base = loss(generators, x, y)

    def ratio(z: np.ndarray, c: int, order: float) -> float:
        made = generators.weights[c] @ z + generators.biases[c]
        return (var * z @ z + ((made - x) ** 2).sum() - base) / (2 * np.linalg.norm(made - own, order))

    starts = np.random.default_rng(0).normal(size=(3, 2))
    for name, order, least in (("l2", 2, 1 - 1e-4), ("linf", 1, 0.85)):
        result = min(
            minimize(ratio, start, (c, order), method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-10}).fun
            for c in {0, 1, 2} - {y}
            for start in starts
        )
        bound = generators.shared(x[None], [y], name)[0]
        assert least * result <= bound <= result * (1 + 1e-6)


@pytest.mark.spec("001b/B-13")
@settings(max_examples=5)
@given(SEEDS)
def test_linf_bounds_hold_at_every_corner(seed: int) -> None:
    """With a fixed code the difference of losses is convex, so the corners of a box of changes decide."""
    generators, x, y = drawn(seed, count=1)
    x, y = x[0], int(y[0])
    corners = np.array(list(itertools.product([-1, 1], repeat=6)))
    own = generators.syntheses(x[None])[0, y]
    code = loss(generators, x, y) - ((own - x) ** 2).sum()
    for box in (False, True):
        bound = generators.shared(x[None], [y], "linf", box=box)[0]
        change = corners * bound * (1 - 1e-6)
        if box:
            change = np.clip(change, -x, 1 - x)
        true = ((own - x - change) ** 2).sum(1) + code
        others = np.delete(generators.losses(x + change), y, 1).min(1)
        assert (true < others).all()
        assert (generators.losses(x + change).argmin(1) == y).all()


@pytest.mark.spec("001b/B-14")
@settings(max_examples=FEW)
@given(SEEDS)
def test_fewer_pixels_than_the_bound_change_nothing(seed: int) -> None:
    """All choices of fewer pixels, each at 0, 1 or its own value, keep the class; the bound is at least 1."""
    generators, x, y = drawn(seed, pixels=9, count=2)
    for one, label, bound in zip(x, y, generators.shared(x, y, "l0"), strict=True):
        assert bound >= 1
        few = int(min(bound - 1, 9))
        if few == 0:
            continue
        chosen = np.array(list(itertools.combinations(range(9), few)), int).reshape(-1, 1, few)
        values = np.array(list(itertools.product([0.0, 1.0], repeat=few)), float).reshape(1, -1, few)
        changed = np.broadcast_to(one, (chosen.shape[0], values.shape[1], 9)).copy()
        np.put_along_axis(changed, *np.broadcast_arrays(chosen, values), -1)
        assert (generators.losses(changed.reshape(-1, 9)).argmin(1) == label).all()


def test_a_wide_margin_takes_many_pixels() -> None:
    """Prototypes 12 pixels apart: an image on one of them changes sides with the sixth pixel."""
    prototypes = LinearGenerators(np.zeros((2, 20, 0)), np.stack([np.zeros(20), np.r_[np.ones(12), np.zeros(8)]]))
    assert prototypes.shared(np.zeros((1, 20)), [0], "l0").tolist() == [6]
    assert prototypes.shared(np.zeros((1, 20)), [0], "linf", box=True) == pytest.approx([0.5])


def test_a_quadric_that_bends_away_is_never_reached() -> None:
    away = quadric_distance(*(np.array(a) for a in (-1.0, [0.5], 0.0, [-1.0], -1.0)))
    assert np.isinf(away)
    touched = quadric_distance(*(np.array(a) for a in (-0.2, [0.5], 0.0, [-1.0], -1.0)))
    assert touched == pytest.approx((1 - np.sqrt(0.2)) / 2, abs=1e-6)  # −δ² + δ − 0.2 = 0


def test_multipliers_of_any_quality_give_a_bound() -> None:
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(1, 8, 2)))[0]
    quadratics = Quadratics(-np.ones((1, 3)), rng.normal(size=(1, 3, 8)), np.zeros((1, 3)), basis, np.full((1, 2), 0.9))
    rough, fine = (dual_distance(quadratics, "linf", rounds=rounds) for rounds in (0, 60))
    assert (rough <= fine).all()
    assert (rough > 0.5 * fine).all()
    along = np.matmul(quadratics.slope, basis)
    rest = (quadratics.slope**2).sum(-1) - (along**2).sum(-1)
    exact = quadric_distance(quadratics.constant, along, rest, np.full((1, 1, 2), 0.9), np.zeros((1, 3)))
    assert dual_distance(quadratics, "l2") == pytest.approx(exact, rel=1e-4)


def test_bad_input_is_refused_in_a_sentence() -> None:
    generators, x, y = drawn(0)
    with pytest.raises(ValueError, match="images of 6 pixels"):
        generators.shared(x[:, :4], y, "l2")
    with pytest.raises(ValueError, match="classes from 0 to 2"):
        generators.shared(x, y + 5, "l2")
    with pytest.raises(ValueError, match="use the shared bound"):
        generators.separate(x, y, "l0")
    with pytest.raises(ValueError, match="at least two classes"):
        LinearGenerators(np.zeros((1, 3, 1)), np.zeros((1, 3)))
    with pytest.raises(ValueError, match="positive scale"):
        LinearGenerators(np.zeros((2, 3, 1)), np.zeros((2, 3)), scales=np.array([1.0, -1.0]))


@pytest.mark.spec("001b/B-45")
@given(st.integers(1, 200), st.floats(0, 1), st.floats(0.001, 0.2))
def test_the_interval_is_that_of_clopper_and_pearson(draws: int, share: float, alpha: float) -> None:
    votes = round(share * draws)
    expected = binomtest(votes, draws, alternative="greater").proportion_ci(1 - alpha, "exact").low
    assert clopper_pearson(votes, draws, alpha) == pytest.approx(expected, abs=1e-9)


@pytest.mark.spec("001b/B-45")
def test_the_smoothed_radius_of_a_linear_classifier_is_its_distance() -> None:
    """A half-space at distance d keeps the share Φ(d / sd) of the votes."""
    for distance, sd in ((0.3, 0.5), (1.2, 0.25)):
        assert smoothed_radius(norm.cdf(distance / sd), sd) == pytest.approx(distance)
    assert smoothed_radius([0.5, 0.2], 1.0).tolist() == [0, 0]
    with pytest.raises(ValueError, match="between 0 and 1"):
        clopper_pearson(3, 10, 0.0)


def test_a_box_that_meets_a_generator_has_no_separate_bound() -> None:
    """The distance between them is 0, and the direction of rounding error is no plane: the bound was 0.35."""
    generators = LinearGenerators(np.array([[[-1.4], [0.1]], [[-0.4], [1.4]]]), np.array([[0.1, 0.2], [0.6, 0.6]]), 0.1)
    assert generators.losses([[0.93, 0.04]]).argmin(1) == 0
    assert generators.separate([[0.9, 0.0]], [1], "linf", True)[0] <= 0.04


def test_the_top_of_a_parabola_counts_as_a_change_of_a_pixel() -> None:
    """With unequal scales the difference of losses can be largest inside the box: the bound was infinite."""
    generators = LinearGenerators(np.zeros((2, 1, 0)), np.array([[0.0], [0.5]]), scales=np.array([1.0, 10.0]))
    assert generators.losses([[0.2], [0.5]]).argmin(1).tolist() == [0, 1]
    assert generators.shared([[0.2]], [0], "l0").tolist() == [1]


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_unequal_scales_give_a_number(norm: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        generators = LinearGenerators(np.zeros((2, 3, 1)), rng.uniform(0, 1, (2, 3)), 0.1, np.array([1.0, 2.0]))
        x = rng.uniform(0, 1, (2, 3))
        assert not np.isnan(generators.shared(x, generators.losses(x).argmin(1), norm, True)).any()
