"""How far codes move: against the closed form of linear encoders, and where the question has no answer."""

import numpy as np
import pytest
import torch

from polariscope.robustness.code_shift import code_shift


def middle(count: int = 40, pixels: int = 12) -> torch.Tensor:
    """Images far enough from the ends of the box that no perturbation is clipped."""
    return 0.4 + 0.2 * torch.rand(count, 1, 1, pixels, generator=torch.Generator().manual_seed(1))


def test_an_attack_moves_the_code_of_a_linear_encoder_by_its_largest_singular_value() -> None:
    """And noise by the root mean square of the singular values over the pixels."""
    x = middle()
    weight = torch.randn(3, 12, generator=torch.Generator().manual_seed(2))
    shift = code_shift(lambda images: images.flatten(1) @ weight.T, x, 0.1, steps=60)
    singular = np.linalg.svd(weight.numpy(), compute_uv=False)
    assert shift.attack * shift.apart == pytest.approx(0.1 * singular[0], rel=0.01)
    expected = 0.1 * np.sqrt((singular**2).sum() / 12)
    assert shift.noise * shift.apart == pytest.approx(expected, rel=0.15)
    codes = (x.flatten(1) @ weight.T).numpy()
    apart = np.linalg.norm(codes[:, None] - codes[None], axis=2).sum() / (40 * 39)
    assert shift.apart == pytest.approx(apart, rel=0.2)


def test_shifts_do_not_depend_on_the_scale_of_the_code_and_an_attack_is_no_weaker_than_noise() -> None:
    x = middle()

    def encode(images: torch.Tensor, scale: float) -> torch.Tensor:
        return scale * torch.tanh(3 * images.flatten(1)[:, :4])

    one, other = (code_shift(lambda images, s=s: encode(images, s), x, 0.3, seed=4) for s in (1.0, 50.0))
    assert one.attack == pytest.approx(other.attack, rel=1e-4)
    assert one.noise == pytest.approx(other.noise, rel=1e-4)
    assert one.attack > 1.5 * one.noise


def test_perturbed_images_stay_in_the_box_and_within_epsilon() -> None:
    x = torch.rand(10, 1, 2, 3, generator=torch.Generator().manual_seed(3)).round()
    seen: list[torch.Tensor] = []

    def encode(images: torch.Tensor) -> torch.Tensor:
        seen.append(images.detach().clone())
        return images.flatten(1)

    code_shift(encode, x, 0.5, steps=5)
    for images in seen:
        assert images.min() >= 0
        assert images.max() <= 1
        assert (images - x).flatten(1).norm(dim=1).max() <= 0.5 + 1e-5


@pytest.mark.parametrize(("count", "epsilon", "steps"), [(1, 1.0, 5), (4, 0.0, 5), (4, 1.0, 0)])
def test_what_cannot_be_asked_is_refused(count: int, epsilon: float, steps: int) -> None:
    with pytest.raises(ValueError, match="at least 2 images, 1 step and a positive epsilon"):
        code_shift(lambda images: images.flatten(1), middle(count), epsilon, steps=steps)


def test_codes_that_are_all_the_same_have_no_scale() -> None:
    with pytest.raises(ValueError, match="the same code"):
        code_shift(lambda images: 0 * images.flatten(1), middle(4), 1.0)
