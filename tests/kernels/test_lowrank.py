"""Low-rank kernels: exact with all landmarks, unbiased in random directions."""

import pytest
import torch
from torch import nn

from polariscope.kernels import KernelMachine, nystrom, rbf, sketch, tangent_kernel
from polariscope.kernels.machine import linear
from polariscope.kernels.regression import ridge_weights
from polariscope.nets.classifiers import lenet, mlp


@pytest.mark.spec("000/F010")
def test_nystrom_becomes_exact_with_more_landmarks():
    x = torch.randn(60, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    kernel = rbf(2.0)
    exact = kernel(x, None)
    errors = []
    for landmarks in (5, 20, 60):
        features = nystrom(kernel, x, landmarks, seed=1).features(x)
        rest = exact - features @ features.T
        assert torch.linalg.eigvalsh(rest)[0] > -1e-8  # what is left out is itself a kernel
        errors.append(float(rest.norm() / exact.norm()))
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-9


def test_nystrom_of_a_network_regresses_like_its_kernel():
    model = mlp(3, (40,), 1).double()
    x = torch.randn(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.sin(x.sum(1))

    def kernel(a, b):
        return tangent_kernel(model, a, b, kind="trace")

    features = nystrom(kernel, x, 50).features(x).numpy()
    result = features @ ridge_weights(features, y.numpy(), 0.1)
    expected = KernelMachine(kernel, 0.1, relative=False).fit(x, y).predict(x)
    torch.testing.assert_close(torch.from_numpy(result), expected, rtol=1e-6, atol=1e-6)


def test_sketch_estimates_the_full_kernel():
    model = lenet(shape=(1, 12, 12), outputs=2)
    x = torch.randn(5, 1, 12, 12, generator=torch.Generator().manual_seed(0))
    exact = tangent_kernel(model, x)

    def error(size: int) -> float:
        features = sketch(model, x, size, seed=2, directions=50)
        assert features.shape == (5, 2, size)
        return float((torch.einsum("ics,jds->ijcd", features, features) - exact).norm() / exact.norm())

    small, large = error(50), error(800)
    assert large < 0.12
    assert large < 0.5 * small


def test_sketches_of_parts_fit_together():
    model = mlp(3, (5,), 2)
    x = torch.randn(9, 3)
    whole = sketch(model, x, 30, seed=4, directions=7, inputs=4)
    torch.testing.assert_close(
        torch.cat([sketch(model, x[:2], 30, seed=4), sketch(model, x[2:], 30, seed=4)]).shape, whole.shape
    )
    torch.testing.assert_close(sketch(model, x[2:], 30, seed=4, directions=7), whole[2:])


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda: nystrom(linear, torch.ones(3, 2), 4), "needs to be 1 to 3"),
        (lambda: nystrom(lambda a, b: a @ a.T * torch.nan, torch.ones(3, 2), 2), "finite"),
        (lambda: sketch(nn.Linear(2, 1), torch.ones(3, 2), 0), "at least 1"),
        (lambda: sketch(nn.Linear(2, 1).requires_grad_(False), torch.ones(3, 2), 3), "requires gradients"),
    ],
)
def test_wrong_input_is_refused_in_a_sentence(wrong, sentence):
    with pytest.raises(ValueError, match=sentence):
        wrong()
