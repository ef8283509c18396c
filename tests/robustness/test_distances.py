"""Adversarial distances read as a whole: conventions, curves, distributions, quarters, and where curves cross."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from torch import nn

from polariscope.nets.binarised import Binarised as BinarisedNetwork
from polariscope.robustness.attacks import Attacked, accuracy_at, accuracy_curve, least
from polariscope.robustness.attacks.apgd import APGD
from polariscope.robustness.attacks.attacked import median_distance
from polariscope.robustness.attacks.binarised import Binarised, at_threshold
from polariscope.robustness.attacks.deepfool import DeepFool
from polariscope.robustness.attacks.fast_gradient import FastGradient
from polariscope.robustness.attacks.pgd import PGD
from polariscope.robustness.attacks.pointwise import Pointwise
from polariscope.robustness.distances import compare_curves, crossings, distribution, quarters

INF = np.inf
DISTANCES = arrays.arrays(
    np.float64, st.integers(1, 30), elements=st.one_of(st.just(0.0), st.just(INF), st.floats(0.01, 9.0))
)


def attacked(distances: list[float]) -> Attacked:
    n, zero = len(distances), np.zeros(len(distances), np.int64)
    return Attacked(("hand",), "l2", torch.zeros(n, 1), np.array(distances), zero + 1, zero, zero, zero)


@pytest.mark.spec("001b/B-30")
def test_zero_infinity_median_and_thresholds_by_hand() -> None:
    """Distance > epsilon counts as robust: the published choice for L0 12 is open, and this is the one taken."""
    result = attacked([0.0, 1.0, 2.0, INF, 12.0])
    assert result.median == 2.0
    assert attacked([0.0, 1.0, 3.0, INF]).median == 2.0
    assert attacked([1.0, INF, INF]).median == INF
    assert attacked([0.0, 0.0, INF]).median == 0.0
    assert [result.accuracy(e) for e in (0.0, 0.999, 1.0, 11.9, 12.0, 1e9)] == [0.8, 0.8, 0.6, 0.4, 0.2, 0.2]
    right, wrong = torch.tensor([[0.7, 0.2]]), torch.tensor([[0.2, 0.7]])
    model = nn.Linear(2, 2, bias=False)
    model.weight.data.copy_(torch.eye(2))
    outcome = PGD(5)(model, torch.cat([right, wrong]), [0, 0], norm="l2").distances
    assert outcome[1] == 0.0, "misclassified without an attack"
    assert outcome[0] > 0.35
    constant = lambda x: torch.eye(2)[:1].expand(len(x), 2) + 0 * x.sum()  # noqa: E731
    assert PGD(5)(constant, right, [0], norm="l2").distances[0] == INF, "no adversarial was found"


@pytest.mark.spec("001b/B-31")
@given(DISTANCES)
def test_identities_of_the_accuracy_distortion_curve(distances: np.ndarray) -> None:
    epsilons, accuracy = accuracy_curve(distances)
    assert epsilons[0] == 0
    assert accuracy[0] == (distances > 0).mean(), "at 0 it is the accuracy without an attack"
    assert (np.diff(accuracy) <= 0).all()
    assert accuracy_at(distances, epsilons).tolist() == accuracy.tolist(), (
        "right-continuous: the step is at its epsilon"
    )
    finite = np.where(np.isinf(distances), 9.0, distances)
    steps, heights = accuracy_curve(finite)
    area = (heights[:-1] * np.diff(steps)).sum() + 0.0
    assert area == pytest.approx(finite.mean(), abs=1e-9), "the area is the mean distance"
    median = median_distance(distances)
    if np.isfinite(median):
        assert accuracy_at(distances, [median])[0] <= 0.5, "it crosses one half at the median"
    if np.isfinite(median) and median > 0:
        assert accuracy_at(distances, [0.999 * median])[0] >= 0.5 - 0.5 / len(distances)
    both = least([attacked(distances.tolist()), attacked(distances[::-1].tolist())])
    assert both.median <= median
    assert (accuracy_at(both.distances, epsilons) <= accuracy).all()


@pytest.mark.spec("001b/B-32")
@given(DISTANCES, st.integers(1, 12))
def test_a_distribution_counts_every_image_once(distances: np.ndarray, bins: int) -> None:
    result = distribution(distances, bins)
    assert result.total == len(distances)
    assert (result.zero, result.infinite) == ((distances == 0).sum(), np.isinf(distances).sum())
    for low, high, count in zip(result.edges[:-1], result.edges[1:], result.counts, strict=True):
        assert count == ((distances > low) & (distances <= high)).sum()


@pytest.mark.spec("001b/B-33")
@given(DISTANCES)
def test_quarters_are_in_order_and_as_large_as_can_be(distances: np.ndarray) -> None:
    group = quarters(distances)
    known = np.isfinite(distances) & (distances > 0)
    assert ((group >= 0) == known).all()
    sizes = np.bincount(group[known], minlength=4)
    assert sizes.max() - sizes.min() <= 1
    for quarter in range(3):
        assert distances[group == quarter].max(initial=0) <= distances[group == quarter + 1].min(initial=INF)


class Affine(nn.Module):
    """Two classes with a plane between them: distances in L-infinity are |gap| / |w|_1."""

    def __init__(self, pixels: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(2)
        self.layer = nn.Linear(pixels, 2)
        self.layer.weight.data.copy_(torch.randn(2, pixels, generator=generator))
        self.layer.bias.data.copy_(-self.layer.weight.data.sum(1) / 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x.flatten(1))


def near_binary(count: int = 20, pixels: int = 24) -> torch.Tensor:
    """Black and white images of which a few pixels are grey."""
    generator = torch.Generator().manual_seed(1)
    return (torch.rand(count, pixels, generator=generator) > 0.5).float()


@pytest.mark.spec("001b/B-41")
def test_which_classifier_is_more_robust_depends_on_the_threshold() -> None:
    """A binarised network needs 0.5 where it needs anything, on images that are not all right; a plain one whose images
    are between 0.3 and 0.35 from the boundary leads at 0.3, and has nothing left at 0.35."""
    x = near_binary()
    model = Affine(24)
    labels = model(x).argmax(1)
    labels[:5] = 1 - labels[:5]
    binary = Binarised(FastGradient())(BinarisedNetwork(model), x, labels, norm="linf")
    assert set(np.round(binary.distances, 5)) == {0.0, 0.5}
    # The same plane, met from images that lie 0.32 away from it in L-infinity.
    normal = model.layer.weight.detach()[1] - model.layer.weight.detach()[0]
    grey = torch.full_like(x, 0.5) + 0.32 * normal.sign() * torch.where(torch.arange(20) % 2 == 0, 1.0, -1.0)[:, None]
    plain = PGD(20, random_start=False)(model, grey, model(grey).argmax(1), norm="linf")
    np.testing.assert_allclose(plain.distances, 0.32, rtol=0.01)
    both = compare_curves({"plain": plain.distances, "binarised": binary.distances}, (0.3, 0.35), "linf")
    assert both.ranking(0.3) == ["plain", "binarised"]
    assert both.ranking(0.35) == ["binarised", "plain"]
    ((_, _, at),) = both.changes()
    assert 0.3 < at < 0.35
    assert both.headline.startswith("The most robust classifier depends on the threshold in linf: plain at 0.3")
    rows = {row["classifier"]: row for row in both.findings().json()["classifiers"]}
    assert rows["plain"]["accuracy 0.3"] == 1.0
    assert rows["plain"]["accuracy 0.35"] == 0.0
    assert rows["binarised"]["accuracy 0.3"] == rows["binarised"]["accuracy 0.35"] == 0.75
    (axes,) = both.findings().parts[1].draw().axes
    assert len(axes.lines) == 4, "two curves and two thresholds"


@given(DISTANCES, DISTANCES)
def test_between_two_crossings_one_curve_leads(first: np.ndarray, second: np.ndarray) -> None:
    at = [0.0, *crossings(first, second), 10.0]
    for low, high in itertools.pairwise(at):
        inside = np.linspace(low, high, 50)[:-1]
        lead = np.sign(accuracy_at(first, inside) - accuracy_at(second, inside))
        assert len(set(lead) - {0.0}) <= 1


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: distribution(np.array([1.0, np.nan])), "1 NaN"),
        (lambda: quarters(np.array([-1.0])), "1 below 0"),
        (lambda: compare_curves({"a": np.ones(2)}, (1,)), "two or more classifiers"),
        (lambda: compare_curves({"a": np.ones(2), "b": np.ones(3)}, (1,)), "same images"),
        (lambda: compare_curves({"a": np.ones(2), "b": np.ones(2)}, (0,)), "positive"),
    ],
)
def test_what_is_no_distance_is_refused(call, words: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.spec("001b/B-28")
@pytest.mark.parametrize(("attack", "norm"), [(DeepFool(), "l2"), (DeepFool(), "linf"), (Pointwise(1), "l2")], ids=str)
def test_binarisation_leaves_the_decision_and_only_what_the_threshold_needs(attack, norm: str) -> None:  # type: ignore[no-untyped-def]
    """O-B8: the decision is that of the raw adversarial, a pixel changes by |x - 1/2| or not at all, no norm grows."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(10, 24, generator=generator)
    model = BinarisedNetwork(Affine(24))
    y = model(x).argmax(1)
    raw = attack(model, x, y, norm=norm).adversarials
    moved = at_threshold(raw, x)
    torch.testing.assert_close(model(moved), model(raw), rtol=0, atol=0)
    change = (moved - x).abs()
    price = (x - 0.5).abs()
    assert ((change == 0) | ((change - price).abs() <= 1e-7)).all()
    for order in (0, 1, 2, torch.inf):
        before, after = ((one - x).flatten(1).norm(p=order, dim=1) for one in (raw, moved))
        assert (after <= before + 1e-6).all()
    whole = Binarised(attack)(model, x, y, norm=norm)
    assert (whole.distances <= attack(model, x, y, norm=norm).distances + 1e-7).all()
    assert (model(whole.adversarials).argmax(1) != y).numpy()[np.isfinite(whole.distances)].all()


@pytest.mark.spec("001b/B-28")
def test_a_binarised_network_has_one_half_on_black_and_white_images() -> None:
    """However weak the network is."""
    x = near_binary()
    model = BinarisedNetwork(Affine(24))
    y = model(x).argmax(1)
    result = Binarised(FastGradient())(model, x, y, norm="linf")
    np.testing.assert_allclose(result.distances, 0.5, atol=1e-6)
    assert result.median == pytest.approx(0.5, abs=1e-6)


def exact(model: Affine, x: torch.Tensor, norm: str) -> np.ndarray:
    """The distance to the plane, where the box is not in the way."""
    normal = (model.layer.weight[1] - model.layer.weight[0]).detach().double()
    gap = (model(x)[:, 1] - model(x)[:, 0]).abs().detach().double()
    return (gap / normal.norm(p=2 if norm == "l2" else 1)).numpy()


@pytest.mark.spec("001b/B-23")
@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_bim_with_a_search_for_epsilon_finds_the_distance_of_a_plane(norm: str) -> None:
    model = Affine(24)
    x = 0.5 + 0.1 * (torch.rand(12, 24, generator=torch.Generator().manual_seed(4)) - 0.5)
    result = PGD(20, random_start=False)(model, x, model(x).argmax(1), norm=norm).distances
    truth = exact(model, x, norm)
    assert (result >= truth * (1 - 1e-4) - 1e-6).all()
    np.testing.assert_allclose(result, truth, rtol=0.01)


@pytest.mark.spec("001b/A-27")
def test_pgd_in_the_published_setting_succeeds_exactly_where_the_plane_is_within_epsilon() -> None:
    """100 steps of 0.01 within 0.1: the perturbation stays in the ball and in the box, and no other image falls."""
    model = Affine(24)
    x = torch.rand(40, 24, generator=torch.Generator().manual_seed(5))
    y = model(x).argmax(1)
    result = PGD(steps=100, step=0.1)(model, x, y, norm="linf", epsilons=[0.1])
    change = (result.adversarials - x).abs().amax(1)
    assert (change <= 0.1 * (1 + 1e-5)).all()
    assert ((result.adversarials >= 0) & (result.adversarials <= 1)).all()
    normal = (model.layer.weight[1] - model.layer.weight[0]).detach()
    rising = normal * torch.where(y == 0, 1.0, -1.0)[:, None]
    room = torch.where(rising > 0, 1 - x, x).clamp(max=0.1)
    gap = (model(x)[:, 1] - model(x)[:, 0]).abs().detach()
    reachable = ((rising.abs() * room).sum(1) > gap).numpy()
    assert 0.1 < reachable.mean() < 0.9
    assert (result.success[:, 0] == reachable).all()
    assert result.accuracy(0.1) == 1 - reachable.mean()
    stronger = APGD(steps=30)(model, x, y, norm="linf", epsilons=[0.1])
    assert (stronger.success >= result.success).all(), "automatic steps are never below plain ones"
