"""Noise of an exact norm within [0, 1]: cases by hand, random ones, gradients."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from polariscope.robustness.rescale import rescaled


def change(x: list[float], delta: list[float], norm: float) -> list[float]:
    at = torch.tensor([x], dtype=torch.float64)
    return (rescaled(at, torch.tensor([delta], dtype=torch.float64), norm) - at)[0].tolist()


@pytest.mark.spec("001b/A-09")
def test_cases_by_hand() -> None:
    assert change([0.5, 0.9], [1, 1], 0.3) == pytest.approx([math.sqrt(0.08), 0.1])
    assert change([0.5, 0.9], [1, 1], 0.1) == pytest.approx([math.sqrt(0.005)] * 2)
    assert change([0.5, 0.9], [1, 1], 0.51) == pytest.approx([0.5, 0.1])
    assert change([0.5, 0.9], [1, 1], 40.0) == pytest.approx([0.5, 0.1])
    assert change([0.2], [-1], 0.1) == pytest.approx([-0.1])
    assert change([0.5, 0.5], [0.0, 0.0], 0.1) == [0, 0], "without noise nothing happens"
    assert change([0.0, 0.5], [-1.0, 1.0], 0.2) == pytest.approx([0, 0.2]), "black pixels have no room below"


@pytest.mark.spec("001b/A-09")
@settings(max_examples=settings.default.max_examples // 5)
@given(st.integers(0, 2**31), st.floats(1e-3, 30), st.floats(1e-3, 1e3))
def test_the_norm_is_exact_up_to_the_whole_room(seed: int, norm: float, scale: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(3, 1, 28, 28, generator=generator, dtype=torch.float64)
    x[1] = x[1].round()  # black and white, half of whose pixels cannot move
    delta = torch.randn(x.shape, generator=generator, dtype=torch.float64)
    room = torch.where(delta >= 0, 1 - x, x).flatten(1).norm(dim=1)
    result = rescaled(x, delta, norm)
    assert result.min() >= 0
    assert result.max() <= 1
    assert (result - x).flatten(1).norm(dim=1) == pytest.approx(room.clamp(max=norm), abs=1e-6)
    assert rescaled(x, scale * delta, norm) == pytest.approx(result, abs=1e-9), "the length of the noise does not count"
    alone = torch.cat([rescaled(a, b, norm) for a, b in zip(x.split(1), delta.split(1), strict=True)])
    assert alone == pytest.approx(result, abs=1e-12)
    further = rescaled(x, delta, 1.1 * norm)
    assert ((further - x).abs() >= (result - x).abs() - 1e-12).all(), "a larger norm moves no pixel less"


@pytest.mark.spec("001b/A-09")
@pytest.mark.parametrize("norm", [0.2, 1.2, 9.0], ids=["free", "partly clipped", "saturated"])
def test_gradients_match_finite_differences(norm) -> None:
    torch.manual_seed(0)
    x = 0.2 + 0.6 * torch.rand(3, 8, dtype=torch.float64)
    delta = torch.randn(3, 8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda d: rescaled(x, d, norm), (delta,), eps=1e-7, atol=1e-5)
    at_bounds = (rescaled(x, delta, norm) % 1 == 0).float().mean()
    assert {0.2: at_bounds == 0, 1.2: 0 < at_bounds < 1, 9.0: at_bounds == 1}[norm]


def test_float32_images_of_full_size() -> None:
    torch.manual_seed(0)
    x, delta = torch.rand(2, 3, 224, 224), torch.randn(2, 3, 224, 224)
    for norm in (1.0, 135.0):
        assert (rescaled(x, delta, norm) - x).flatten(1).norm(dim=1) == pytest.approx(torch.full((2,), norm), rel=1e-4)


@pytest.mark.parametrize("norm", [0.85, 5.0], ids=["one pixel is left", "saturated"])
def test_pixels_without_noise_have_finite_gradients(norm) -> None:
    """Generators give some pixels no noise at all, which may be the last ones with room."""
    x = torch.tensor([[0.5, 0.3, 0.2]])
    delta = torch.tensor([[1.0, -0.7, 0.0]], requires_grad=True)
    (gradient,) = torch.autograd.grad(rescaled(x, delta, norm).square().sum(), delta)
    assert gradient.isfinite().all()


def test_what_is_no_image_is_refused() -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        rescaled(torch.tensor([[2.0]]), torch.ones(1, 1), 1)
    with pytest.raises(ValueError, match="positive"):
        rescaled(torch.tensor([[0.5]]), torch.ones(1, 1), 0)
