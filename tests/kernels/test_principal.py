"""Kernel PCA: identities, an independent implementation, and the stripe task on which a network compresses."""

import copy
import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.decomposition import KernelPCA as SklearnPCA
from torch import Tensor, nn

from polariscope.kernels.empirical import tangent_kernel
from polariscope.kernels.machine import rbf
from polariscope.kernels.principal import (
    centre,
    explained_by,
    kernel_change,
    kernel_distances,
    kernel_pca,
    separability,
    spectral_gaps,
    split_invariant,
    target_alignment,
    targets,
)
from polariscope.measures.intrinsic_dimension import mle_from_distances, twonn
from polariscope.measures.mutual_information import label_information
from polariscope.measures.similarity import cka
from polariscope.nets.classifiers import NTKLinear

DIMENSION = 10


def points(count: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((count, DIMENSION)))


def stripe(x: Tensor) -> Tensor:
    """The published stripe: +1 outside of −0.3 < x₁ < 1.18549."""
    return 1 - 2 * ((x[:, 0] > -0.3) & (x[:, 0] < 1.18549)).long()


class Root2ReLU(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return math.sqrt(2) * x.relu()


def mean_field(hidden: int, seed: int = 0) -> nn.Sequential:
    """f(x) = 1/h Σ β σ(ω·x/√d + b), all parameters standard normal (Spec 004, section 3.1)."""
    net = nn.Sequential(NTKLinear(DIMENSION, hidden, 1, 1), Root2ReLU(), NTKLinear(hidden, 1, 1 / hidden, 0))
    rng = torch.Generator().manual_seed(seed)
    for parameter in net.parameters():
        nn.init.normal_(parameter, generator=rng)
    return net


@dataclass(frozen=True)
class Trained:
    """A network before and after compression, and fresh examples with their kernels."""

    x: Tensor
    y: Tensor
    grams: dict[str, Tensor]
    final: nn.Module


@pytest.fixture(scope="module")
def trained() -> Trained:
    """The stripe, d = 10, p = 1000, trained by adaptive steps on the hinge loss at α = 1e-6 (Spec 004, section 9)."""
    hidden, alpha = 400, 1e-6
    net = mean_field(hidden).float()
    initial = copy.deepcopy(net)
    x = points(1000).float()
    y = stripe(x).float()
    with torch.no_grad():
        start = net(x)[:, 0]
    parameters = list(net.parameters())
    velocity = [torch.zeros_like(p) for p in parameters]
    unit = hidden * math.sqrt(DIMENSION / 2)
    step, fitting, last = 0.2 * unit, False, torch.zeros_like(start)
    for _ in range(400):
        outputs = alpha * (net(x)[:, 0] - start)
        moved = (outputs.detach() - last).abs().max()
        last = outputs.detach()
        fitting = fitting or bool((y * last > 1).float().mean() > 0.1)
        gradient = torch.autograd.grad((1 - y * outputs).relu().mean() / alpha, parameters)
        if moved > 0.2:
            step *= 0.7
        elif moved < 0.1:
            step = min(1.05 * step, math.inf if fitting else 0.2 * unit)
        with torch.no_grad():
            for p, v, g in zip(parameters, velocity, gradient, strict=True):
                v.mul_(0.97 if fitting else 0).add_(g, alpha=0.03 if fitting else 1)
                p.sub_(v, alpha=step)
    fresh = points(1000, seed=1).float()
    grams = {
        f"{kind} {when}": tangent_kernel(model, fresh, kind=kind)
        for when, model in (("initial", initial), ("final", net))
        for kind in ("trace", "last_layer")
    }
    return Trained(fresh, stripe(fresh), grams, net)


# --- identities ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("004/F48")
@pytest.mark.parametrize("center", [True, False])
def test_mercer_normalisation_and_reconstruction(center: bool) -> None:
    x = points(60)
    kernel = rbf(3.0)(x, None)
    pca = kernel_pca(kernel, center=center)
    reference = centre(kernel) if center else kernel
    torch.testing.assert_close(pca.reconstruct(), reference, atol=1e-12, rtol=0)
    torch.testing.assert_close(pca.functions.T @ pca.functions / 60, torch.eye(60).double(), atol=1e-12, rtol=0)
    values = torch.linalg.eigvalsh(reference).flip(0) / 60
    torch.testing.assert_close(pca.eigenvalues, values.clamp_min(0), atol=1e-13, rtol=0)
    assert pca.projections(stripe(x)).sum() == pytest.approx(1, abs=1e-12)
    assert pca.shares.sum() == pytest.approx(1)
    few = kernel_pca(kernel, 3, center=center)
    assert few.total == pytest.approx(pca.total)
    torch.testing.assert_close(few.functions, pca.functions[:, :3])


@pytest.mark.spec("004/F48")
def test_components_agree_with_scikit_learn() -> None:
    kernel = rbf(2.0)(points(40), None)
    pca = kernel_pca(kernel, 5)
    theirs = SklearnPCA(5, kernel="precomputed").fit_transform(kernel.numpy())
    ours = (pca.functions * pca.eigenvalues.sqrt()).numpy()
    np.testing.assert_allclose(np.abs(ours), np.abs(theirs), atol=1e-10)


def test_binary_labels_project_as_plus_and_minus_one() -> None:
    x = points(80)
    y = stripe(x)
    pca = kernel_pca(rbf(2.0)(x, None))
    published = ((pca.functions * y[:, None]).mean(0)) ** 2
    torch.testing.assert_close(pca.projections(y), published)
    kernel = centre(rbf(2.0)(x, None))
    published_alignment = (y.double() @ kernel @ y.double()) / (80 * torch.linalg.matrix_norm(kernel))
    assert target_alignment(kernel, y) == pytest.approx(published_alignment.item())
    names = {-1: 7, 1: 3}
    assert target_alignment(kernel, torch.tensor([names[int(i)] for i in y])) == pytest.approx(
        target_alignment(kernel, y)
    )


def test_many_classes_sum_to_one_and_their_own_kernel_aligns() -> None:
    y = torch.arange(90) % 3
    own = targets(y) @ targets(y).T
    assert target_alignment(own, y) == pytest.approx(1)
    pca = kernel_pca(own)
    assert pca.projections(y).sum() == pytest.approx(1)
    assert pca.projections(y)[:2].sum() == pytest.approx(1), "three balanced classes span two directions"
    assert pca.rank == 2


@pytest.mark.spec("004/F48")
def test_random_labels_have_one_over_p_in_each_mode() -> None:
    x = points(200)
    pca = kernel_pca(rbf(3.0)(x, None), center=False)
    rng = np.random.default_rng(0)
    mean = torch.stack(
        [pca.projections(torch.from_numpy(rng.permutation(200) % 2)) for _ in range(200)]
    ).mean(0)  # fmt: skip
    assert mean[1:20].mean() == pytest.approx(1 / 200, rel=0.15)


@given(st.integers(0, 2**31), st.floats(0.1, 10))
def test_change_is_blind_to_scale_where_it_should_be(seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((2, 12, 4))
    first, second = (torch.from_numpy(m @ m.T) for m in (a, b))
    change, scaled = kernel_change(first, second), kernel_change(first, scale * second)
    assert scaled.cka == pytest.approx(change.cka)
    assert scaled.alignment == pytest.approx(change.alignment)
    assert change.cka == pytest.approx(cka(a, b))
    own = kernel_change(first, scale * first)
    assert own.cka == pytest.approx(1)
    assert own.distance == pytest.approx(abs(scale - 1))


@pytest.mark.spec("004/F58")
def test_dimension_from_the_kernel_is_that_of_the_points() -> None:
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((1500, 3)))
    distances = kernel_distances(x @ x.T)
    torch.testing.assert_close(distances, torch.cdist(x, x), atol=1e-6, rtol=0)
    nearest = distances.sort(1).values[:, 1:3]
    assert mle_from_distances(nearest.numpy()) == pytest.approx(3, abs=0.3)
    assert mle_from_distances(nearest.numpy()) == pytest.approx(twonn(x).value, rel=0.1)


@pytest.mark.spec("004/F55")
def test_the_norm_is_that_of_the_definition() -> None:
    y = torch.tensor([0, 1] * 20)
    noise = points(40, 3)
    kernel = targets(y) @ targets(y).T + 0.1 * noise @ noise.T
    pca = kernel_pca(kernel)
    expected = (pca.projections(y) / (pca.shares + 0.5)).sum().item()
    assert pca.rkhs_norm(y, 0.5) == pytest.approx(expected)
    own = kernel_pca(targets(y) @ targets(y).T)
    assert own.rkhs_norm(y, 0) == pytest.approx(1), "the labels are the only function of their own kernel"
    assert own.rkhs_norm(y, 0.25) == pytest.approx(0.8)


# --- the compressed kernel -----------------------------------------------------------------------------------------


@pytest.mark.spec("004/F57")
def test_a_kernel_without_perpendicular_weights_splits_exactly() -> None:
    net = mean_field(60).double()

    def kernel(x1: Tensor, x2: Tensor | None = None) -> Tensor:
        return tangent_kernel(net, x1, x2, "trace")

    x = points(50)
    assert split_invariant(kernel, x, 1).residual > 0.05
    with torch.no_grad():
        net[0].weight[:, 1:] = 0
    result = split_invariant(kernel, x, 1)
    assert result.residual < 1e-13
    # Θ₂ is the second-layer part: 1/(h² d) Σ β² σ'(a) σ'(a').
    active = math.sqrt(2) * (net[0](x) > 0).double()
    beta = net[2].weight[0]
    expected = (active * beta**2) @ active.T / (60**2 * DIMENSION)
    torch.testing.assert_close(result.mixed, expected, atol=1e-15, rtol=1e-9)


@pytest.mark.spec("004/F57")
def test_the_linear_multiplet_splits(trained: Trained) -> None:
    before = kernel_pca(trained.grams["trace initial"])
    after = kernel_pca(trained.grams["trace final"])
    assert spectral_gaps(before.eigenvalues) == [DIMENSION]
    assert 1 in spectral_gaps(after.eigenvalues), "the informative mode leaves the multiplet of ten"
    # Modes that are functions of x₁ alone set aside, what remains comes in multiplets of d − 1.
    informative = explained_by(after.functions[:, :30], trained.x[:, 0]) > 0.5
    others = after.eigenvalues[:30][~informative]
    assert {DIMENSION - 1, 2 * (DIMENSION - 1)} <= set(spectral_gaps(others))


@pytest.mark.spec("004/F49", "004/F56")
def test_the_labels_move_into_the_first_mode(trained: Trained) -> None:
    before = kernel_pca(trained.grams["trace initial"]).projections(trained.y)
    after = kernel_pca(trained.grams["trace final"]).projections(trained.y)
    assert before[0] <= 0.05
    assert after[0] >= 0.15
    assert after[0] >= 3 * after[1:10].max()
    gain = target_alignment(trained.grams["trace final"], trained.y)
    gain /= target_alignment(trained.grams["trace initial"], trained.y)
    assert gain >= 3
    # The end of the fitting phase moves the second informative mode of the tangent kernel in and out of the first ten.
    for kind, factor in (("trace", 1.5), ("last_layer", 2)):
        sums = [
            kernel_pca(trained.grams[f"{kind} {when}"], center=False).projections(trained.y)[:10].sum()
            for when in ("initial", "final")
        ]
        assert sums[1] >= factor * sums[0]


@pytest.mark.spec("004/F52")
def test_the_first_mode_learns_about_the_label(trained: Trained) -> None:
    bits = {
        when: label_information(kernel_pca(trained.grams[f"trace {when}"], 1).functions[:, 0], trained.y)
        for when in ("initial", "final")
    }
    assert bits["initial"] == pytest.approx(0.07, abs=0.05)
    assert bits["final"] >= 0.6


@pytest.mark.spec("004/F53", "004/F54")
def test_the_scatter_separates_and_the_last_layer_becomes_a_curve(trained: Trained) -> None:
    def plane(name: str, center: bool = True) -> Tensor:
        return kernel_pca(trained.grams[name], 2, center).functions

    for center, least in ((True, 0.9), (False, 0.93)):  # the second centred mode is one of the uninformative multiplet
        assert separability(plane("trace initial", center), trained.y) < 0.58
        assert separability(plane("trace final", center), trained.y) >= least
    assert separability(plane("last_layer final"), trained.y) >= 0.97
    assert (explained_by(plane("last_layer final"), trained.x[:, 0]) >= 0.97).all()
    assert (explained_by(plane("last_layer initial"), trained.x[:, 0]) < 0.9).all()


@pytest.mark.spec("004/F55")
def test_training_lowers_the_regularised_norm(trained: Trained) -> None:
    before, after = (kernel_pca(trained.grams[f"trace {when}"], center=False) for when in ("initial", "final"))
    for ridge in (1e-2, 1e-3):
        assert after.rkhs_norm(trained.y, ridge) < before.rkhs_norm(trained.y, ridge)


# --- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: kernel_pca(torch.zeros(3, 3)), "no positive eigenvalue"),
        (lambda: kernel_pca(torch.ones(3, 2)), "square"),
        (lambda: kernel_pca(torch.eye(3), 4), "1 to 3"),
        (lambda: kernel_pca(torch.eye(3)).projections(torch.tensor([0, 1])), "as many labels"),
        (lambda: targets(torch.zeros(4)), "at least 2 classes"),
        (lambda: targets(torch.zeros(4, 1)), "shape"),
        (lambda: target_alignment(torch.eye(3), torch.tensor([0, 1])), "as many labels"),
        (lambda: kernel_change(torch.eye(3), torch.eye(2)), "the same shape"),
        (lambda: kernel_change(torch.ones(3, 3), torch.eye(3)), "cannot be compared"),
        (lambda: kernel_pca(torch.eye(3), 2).rkhs_norm(torch.tensor([0, 1, 1])), "all modes"),
        (lambda: kernel_pca(torch.eye(3)).rkhs_norm(torch.tensor([0, 1, 1]), -1.0), "non-negative"),
        (lambda: split_invariant(rbf(1.0), torch.zeros(3, 2), 2), "informative coordinates"),
        (lambda: separability(np.zeros((4, 2)), [0, 1]), "labels"),
        (lambda: explained_by(np.zeros((4, 2)), [0.0, 1.0]), "coordinates"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(call, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()


def test_a_kernel_of_the_labels_is_aligned_whatever_their_shares() -> None:
    labels = torch.tensor([0] * 9 + [1])
    signs = 2.0 * labels - 1
    assert target_alignment(torch.outer(signs, signs), labels) == pytest.approx(1)
