"""Attacks on an affine classifier, whose nearest adversarials are known in closed form (spec 001b, O-A6 and O-B7)."""

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from torch import nn

from polariscope.robustness.attacks.apgd import APGD
from polariscope.robustness.attacks.boundary import Boundary
from polariscope.robustness.attacks.carlini_wagner import CarliniWagner
from polariscope.robustness.attacks.ddn import DDN
from polariscope.robustness.attacks.deepfool import DeepFool
from polariscope.robustness.attacks.estimated import Estimated
from polariscope.robustness.attacks.fab import FAB
from polariscope.robustness.attacks.fast_gradient import FastGradient
from polariscope.robustness.attacks.gaussian_noise import GaussianNoise
from polariscope.robustness.attacks.mim import MIM
from polariscope.robustness.attacks.pgd import PGD
from polariscope.robustness.attacks.pointwise import Pointwise
from polariscope.robustness.attacks.salt_and_pepper import SaltAndPepper
from polariscope.robustness.attacks.sigma_zero import SigmaZero
from polariscope.robustness.attacks.square import Square
from polariscope.robustness.attacks.transfer import Transfer
from polariscope.testing.attacks import curved, curved_examples

PIXELS = 20


class Affine(nn.Module):
    """Two classes with a known plane between them, through the middle of the box, in double precision."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.layer = nn.Linear(PIXELS, 2).double()
        with torch.no_grad():
            self.layer.weight.copy_(torch.randn(2, PIXELS, generator=generator))
            self.layer.bias.copy_(-self.layer.weight.sum(1) / 2)

    def forward(self, x):
        return self.layer(x)

    @property
    def weight(self):
        return (self.layer.weight[1] - self.layer.weight[0]).detach().numpy()


MODEL = Affine()


def examples(count: int = 12, spread: float = 0.2):
    """Images around the middle of the box, and how far apart their scores are. With a small spread the nearest
    adversarials are inside of the box."""
    generator = torch.Generator().manual_seed(5)
    x = 0.5 + spread * (torch.rand(count, PIXELS, generator=generator, dtype=torch.float64) - 0.5)
    scores = MODEL(x).detach().numpy()
    return x, MODEL(x).argmax(1).detach(), scores[:, 1] - scores[:, 0]


def exact_distances(norm: str, spread: float = 0.2):
    """The distance to the plane without the box, and in L0 the number of largest |w| times room that reach it."""
    x, _, gap = examples(spread=spread)
    weight = MODEL.weight
    if norm == "l2":
        return np.abs(gap) / np.linalg.norm(weight)
    if norm == "linf":
        return np.abs(gap) / np.abs(weight).sum()
    return 1 + (gains(x.numpy(), gap).cumsum(1) < np.abs(gap)[:, None]).sum(1)


def gains(x, gap):
    """What moving a pixel to its bound gains, largest first."""
    rising = MODEL.weight * -np.sign(gap)[:, None]
    return -np.sort(-np.abs(rising) * np.where(rising > 0, 1 - x, x), axis=1)


def ratios(attack, norm, spread=0.2, **settings):
    x, y, _ = examples(spread=spread)
    return attack(MODEL, x, y, norm=norm, **settings).distances / exact_distances(norm, spread)


ROWS = [
    pytest.param(FastGradient(), "l2", 1e-6, marks=pytest.mark.spec("001b/B-22")),
    pytest.param(FastGradient(), "linf", 1e-6, marks=pytest.mark.spec("001b/B-22")),
    pytest.param(DeepFool(), "l2", 1e-4, marks=pytest.mark.spec("001b/B-25")),
    pytest.param(DeepFool(), "linf", 1e-4, marks=pytest.mark.spec("001b/B-25")),
    pytest.param(PGD(20), "l2", 0.1, marks=pytest.mark.spec("001b/B-23", "001b/A-27")),
    pytest.param(PGD(20), "linf", 0.02, marks=pytest.mark.spec("001b/B-23", "001b/A-27")),
    pytest.param(PGD(20, random_start=False), "l2", 0.01, marks=pytest.mark.spec("001b/B-23")),
    pytest.param(PGD(20, random_start=False), "linf", 0.01, marks=pytest.mark.spec("001b/B-23")),
    pytest.param(MIM(20), "linf", 0.01, marks=pytest.mark.spec("001b/B-24")),
    pytest.param(DDN(), "l2", 0.05, marks=pytest.mark.spec("001b/A-28")),
    pytest.param(CarliniWagner(5), "l2", 0.05),
    pytest.param(APGD(steps=20), "l2", 0.02, marks=pytest.mark.spec("001b/B-43")),
    pytest.param(APGD(steps=20), "linf", 0.01, marks=pytest.mark.spec("001b/B-43")),
    pytest.param(FAB(steps=20), "l2", 1e-4, marks=pytest.mark.spec("001b/B-43")),
    pytest.param(FAB(steps=20), "linf", 1e-4, marks=pytest.mark.spec("001b/B-43")),
    pytest.param(Square(steps=40), "linf", 0.3, marks=pytest.mark.spec("001b/B-43")),
    pytest.param(Boundary(1000), "l2", 0.2, marks=pytest.mark.spec("001b/B-20")),
    pytest.param(Estimated(DeepFool(), sizes=(0.3,)), "l2", 1e-4, marks=pytest.mark.spec("001b/B-27")),
    pytest.param(Transfer(MODEL, FastGradient()), "linf", 1e-6, marks=pytest.mark.spec("001b/B-26")),
]
"""An attack, its norm, and how far above the exact distance it may end, relative to it."""


@pytest.mark.parametrize(("attack", "norm", "tolerance"), ROWS, ids=lambda value: str(value)[:60])
def test_distances_are_those_of_the_closed_form(attack, norm, tolerance):
    ratio = ratios(attack, norm)
    assert (ratio >= 1 - 1e-9).all()
    assert (ratio <= 1 + tolerance).all()


@pytest.mark.parametrize(
    ("attack", "norm"),
    [(GaussianNoise(), "l2"), (GaussianNoise(), "linf"), (SaltAndPepper(), "l0"), (Square(steps=20), "l2")],
    ids=str,
)
def test_random_searches_are_never_nearer_than_the_closed_form(attack, norm):
    ratio = ratios(attack, norm)
    assert (ratio >= 1 - 1e-9).all()
    assert np.isfinite(ratio).all()


@pytest.mark.spec("001b/B-44")
@pytest.mark.parametrize("attack", [Pointwise(), SigmaZero()], ids=str)
def test_few_pixels_are_not_fewer_than_the_closed_form(attack):
    ratio = ratios(attack, "l0")
    assert (ratio >= 1).all()
    assert np.median(ratio) == 1


@pytest.mark.spec("001b/B-25")
@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("name", ["deepfool", "fab"])
def test_planes_are_reached_by_the_shortest_way_inside_of_the_box(name, norm):
    """δ_i = min(t |w_i|, room_i) in L2 and min(t, room_i) in L∞, for the t that reaches the plane."""
    attack = DeepFool(overshoot=1e-3) if name == "deepfool" else FAB(steps=20)
    x, y, _ = examples()
    x = 0.5 + 0.48 * (x - 0.5).sign()  # half of the pixels have no room
    y, gap = MODEL(x).argmax(1), (MODEL(x) @ torch.tensor([-1.0, 1.0]).double()).detach().numpy()
    rising = MODEL.weight * -np.sign(gap)[:, None]
    room = np.where(rising > 0, 1 - x.numpy(), x.numpy())
    pace = np.abs(rising) if norm == "l2" else np.ones_like(rising)
    exact = []
    for weight, speed, free, missing in zip(np.abs(rising), pace, room, np.abs(gap), strict=True):
        level = brentq(lambda t: weight @ np.minimum(t * speed, free) - missing, 0, 100, xtol=1e-13)  # noqa: B023
        exact.append(np.linalg.norm(np.minimum(level * speed, free), 2 if norm == "l2" else np.inf))
    free = np.abs(gap) / np.linalg.norm(MODEL.weight, 2 if norm == "l2" else 1)
    assert (np.array(exact) > 1.1 * free).all()  # the box is in the way
    result = attack(MODEL, x, y, norm=norm).distances
    assert (result >= np.array(exact) * (1 - 1e-9)).all()
    np.testing.assert_allclose(result, exact, rtol=0.01)


@pytest.mark.spec("001b/B-20")
def test_the_boundary_attack_comes_nearer_with_more_questions():
    few, more = (ratios(Boundary(steps), "l2") for steps in (20, 200))
    assert (more <= few).all()
    assert more.mean() < few.mean()


@pytest.mark.spec("001b/B-26")
@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_transfer_from_the_classifier_itself_is_the_white_box_line_search(norm):
    x, y, _ = examples()
    for white in (FastGradient(), DeepFool()):
        own, carried = (attack(MODEL, x, y, norm=norm) for attack in (white, Transfer(MODEL, white)))
        assert (carried.distances <= own.distances * (1 + 1e-6)).all()
        np.testing.assert_allclose(carried.distances, own.distances, rtol=1e-3)
        assert not carried.gradients.any()


def test_transfer_from_a_substitute_that_is_wrong_follows_its_gradient():
    class Shifted(nn.Module):
        """The same normal, and all images are in one class."""

        def __init__(self):
            super().__init__()
            self.model = MODEL

        def forward(self, x):
            return self.model(x) + torch.tensor([100.0, 0.0])

    x, y, _ = examples()
    wrong = y == 1
    assert wrong.any()
    result = Transfer(Shifted(), FastGradient())(MODEL, x[wrong], y[wrong], norm="l2").distances
    np.testing.assert_allclose(result, exact_distances("l2")[wrong.numpy()], rtol=1e-6)


@pytest.mark.spec("001b/B-24")
def test_mim_without_momentum_is_bim():
    x, y, _ = examples()
    plain, still = (attack(MODEL, x, y, norm="linf") for attack in (PGD(10, random_start=False), MIM(10, momentum=0)))
    assert (plain.distances == still.distances).all()
    x, y = curved_examples()
    plain, moved = (attack(curved, x, y, norm="linf") for attack in (PGD(5, random_start=False), MIM(5)))
    assert (plain.distances != moved.distances).any()


@pytest.mark.spec("001b/B-23")
@pytest.mark.spec("001b/A-27")
@pytest.mark.parametrize("attack", [PGD(20), APGD(steps=20), MIM(20), Square(steps=50)], ids=str)
def test_at_given_epsilons_success_is_that_of_the_closed_form(attack):
    """Within the largest epsilon, in the box, and successful exactly where the plane is within epsilon."""
    x, y, _ = examples()
    exact = exact_distances("linf")
    epsilons = [float(np.quantile(exact, q) * 1.05) for q in (0.3, 0.8)]
    result = attack(MODEL, x, y, norm="linf", epsilons=epsilons)
    change = (result.adversarials - x).abs().amax(1).numpy()
    assert (change <= epsilons[1] * (1 + 1e-5)).all()
    assert ((result.adversarials >= 0) & (result.adversarials <= 1)).all()
    possible = exact[:, None] <= epsilons
    assert not (result.success & ~possible).any()
    missed = possible & ~result.success
    assert not missed.any() if attack.needs == "gradient" else missed.mean() < 0.2
    assert result.accuracy(epsilons[1]) < result.accuracy(epsilons[0])


@pytest.mark.spec("001b/B-19")
def test_what_pointwise_leaves_is_needed_pixel_by_pixel():
    x, y, _ = examples()
    result = Pointwise(restarts=2)(MODEL, x, y, norm="l0")
    left = result.adversarials != x
    for pixel in range(PIXELS):
        reset = torch.where(torch.arange(PIXELS) == pixel, x, result.adversarials)
        right = MODEL(reset).argmax(1) == y
        assert right[left[:, pixel]].all()


@pytest.mark.spec("001b/B-19")
def test_more_restarts_need_fewer_pixels_and_l2_refines_their_values():
    x, y, _ = examples()
    one, ten = (Pointwise(restarts)(MODEL, x, y, norm="l0").distances for restarts in (1, 10))
    assert (ten <= one).all()
    assert ten.sum() < one.sum()
    coarse = Pointwise(2, passes=0)(MODEL, x, y, norm="l2").distances
    fine = Pointwise(2)(MODEL, x, y, norm="l2").distances
    assert (fine <= coarse).all()
    assert np.median(fine / coarse) < 0.95


@pytest.mark.spec("001b/B-21")
def test_noise_is_as_weak_as_on_its_line_possible():
    """Gaussian noise ends where its line crosses the plane; of salt and pepper one pixel less does not mislead."""
    x, y, _ = examples()
    result = GaussianNoise(1)(MODEL, x, y, norm="l2")
    shorter = x + (1 - 1e-5) * (result.adversarials - x)
    assert (MODEL(shorter).argmax(1) == y).all()
    count = SaltAndPepper(1)(MODEL, x, y, norm="l0")
    assert (count.distances >= exact_distances("l0")).all()
    assert (SaltAndPepper(4)(MODEL, x, y, norm="l0").distances <= count.distances).all()
