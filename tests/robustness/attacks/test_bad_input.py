"""What attacks are given by mistake is refused in one sentence."""

import numpy as np
import pytest
import torch

from polariscope.robustness.attacks import NoGradient, attacks
from polariscope.robustness.attacks.apgd import APGD
from polariscope.robustness.attacks.boundary import Boundary
from polariscope.robustness.attacks.fast_gradient import FastGradient
from polariscope.robustness.attacks.gaussian_noise import GaussianNoise
from polariscope.testing.attacks import curved, curved_examples

X, Y = curved_examples()
ATTACK = FastGradient()


def attacked(attack=ATTACK, subject=curved, x=X, y=Y, norm="l2", **settings):
    return attack(subject, x, y, norm=norm, **settings)


def with_pixel(value):
    x = X.clone()
    x[1, 0, 0, 0] = value
    return x


REFUSED = {
    "NaN scores": ({"subject": lambda x: curved(x) * torch.nan}, ValueError, "NaN"),
    "label too large": ({"y": Y + 10}, ValueError, "4 classes, 0 to 3"),
    "words as labels": ({"y": ["cat", "dog"] * 3}, TypeError, "labels are whole numbers, one class each"),
    "negative label": ({"y": Y - 9}, ValueError, "4 classes, 0 to 3"),
    "float labels": ({"y": Y.float()}, TypeError, "whole numbers"),
    "bytes": ({"x": (255 * X).byte()}, TypeError, "255"),
    "outside of the box": ({"x": with_pixel(1.5)}, ValueError, "1.5"),
    "just outside of the box": ({"x": with_pixel(1 + 2e-7)}, ValueError, "to 1.00000024"),
    "NaN image": ({"x": with_pixel(torch.nan)}, ValueError, "NaN"),
    "no images": ({"x": X[:0], "y": Y[:0]}, ValueError, "at least one"),
    "a label too few": ({"y": Y[1:]}, ValueError, "class each"),
    "another norm": ({"norm": "l0"}, ValueError, "works in l2 and linf; got the norm 'l0'"),
    "an unknown norm": ({"norm": "l3"}, ValueError, "got the norm 'l3'"),
    "target is the true class": ({"targets": Y}, ValueError, "other than the true one; 6 of 6"),
    "target out of range": ({"targets": Y + 5}, ValueError, "targets do not fit"),
    "starts of another shape": ({"starts": X.flatten(1)}, ValueError, "shape of the images"),
    "starts outside of the box": ({"starts": X + 1}, ValueError, "starts do not fit"),
    "epsilon zero": ({"epsilons": [0.0, 1.0]}, ValueError, "positive"),
    "no batch": ({"batch_size": 0}, ValueError, "batch_size is 0: a batch has at least 1 image"),
    "numbers of other images": ({"numbers": [1, 2]}, ValueError, "6 images"),
    "DLR of two classes": (
        {"attack": APGD("dlr"), "subject": lambda x: curved(x)[:, :2], "y": torch.zeros_like(Y)},
        ValueError,
        "compares the 3 best scores, and the classifier has 2 classes: use the loss 'ce'",
    ),
    "targeted DLR of three classes": (
        {"attack": APGD("dlr", classes=2), "subject": lambda x: curved(x)[:, :3], "y": torch.zeros_like(Y)},
        ValueError,
        "compares the 4 best scores",
    ),
    "DLR of three classes with targets": (
        {"attack": APGD("dlr"), "subject": lambda x: curved(x)[:, :3], "y": 0 * Y, "targets": 0 * Y + 1},
        ValueError,
        "with a target, the difference of logits ratio compares the 4 best scores, and the classifier has 3 classes",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_bad_input_is_refused_in_a_sentence(what):
    given, kind, words = REFUSED[what]
    with pytest.raises(kind, match=words) as caught:
        attacked(**given)
    assert "\n" not in str(caught.value)


NOTHING = [
    {"name": "pgd", "steps": 0},
    {"name": "pgd", "restarts": 0},
    {"name": "mim", "step": -0.1},
    {"name": "apgd", "steps": 0},
    {"name": "fab", "classes": 0},
    {"name": "deepfool", "steps": -3},
    {"name": "ddn", "levels": 1},
    {"name": "carlini-wagner", "searches": 0},
    {"name": "boundary", "steps": 0},
    {"name": "pointwise", "restarts": 0},
    {"name": "square", "steps": 0},
    {"name": "sigma-zero", "sigma": 0.0},
    {"name": "salt-and-pepper", "repeats": 0},
    {"name": "gaussian-noise", "strongest": 0.0},
    {"name": "estimated", "sizes": []},
    {"name": "estimated", "samples": 0},
]


@pytest.mark.parametrize("settings", NOTHING, ids=lambda settings: " ".join(map(str, settings.values())))
def test_an_attack_that_could_find_nothing_is_refused(settings):
    """What it did not look for would count as robustness."""
    (setting,) = (name for name in settings if name != "name")
    with pytest.raises(ValueError, match=f"{setting} of .* (is|are) "):
        attacks.build(settings)


def test_one_epsilon_needs_no_list():
    alone, listed = attacked(epsilons=0.5), attacked(epsilons=[0.5])
    assert alone.success.tolist() == listed.success.tolist()
    assert alone.success.shape == (6, 1)


GRADIENTLESS = {
    "numpy": lambda x: torch.from_numpy(curved(torch.from_numpy(x.numpy())).numpy()),
    "detached": lambda x: curved(x.detach()),
    "unrelated": lambda x: curved(x.detach()) + torch.ones(len(x), 4, requires_grad=True),
}


@pytest.mark.parametrize("how", GRADIENTLESS)
def test_a_classifier_without_gradient_is_refused_by_an_error_of_its_own(how):
    subject = GRADIENTLESS[how]
    with pytest.raises(NoGradient, match="use an attack that needs only scores or decisions"):
        attacked(subject=subject)
    assert np.isfinite(attacked(GaussianNoise(3), subject).distances).any()


def test_one_output_scores_the_second_of_two_classes():
    grey = 0.25 + X / 2  # away from the bounds
    mean = grey.flatten(1).mean(1)
    result = attacked(subject=lambda x: x.flatten(1).mean(1) - 0.5, x=grey, y=(mean > 0.5).long())
    np.testing.assert_allclose(result.distances, (mean - 0.5).abs() * 32**0.5, rtol=1e-4)


def test_all_images_wrong_is_a_result_with_a_note():
    wrong = (curved(X).argmax(1) + 1) % 4
    result = attacked(y=wrong)
    assert (result.distances == 0).all()
    assert result.notes == ("All 6 images are misclassified without an attack, so every distance is 0.",)
    assert torch.equal(result.adversarials, X)
    assert (result.queries == 1).all()


def test_no_adversarial_to_start_from_is_a_result_with_a_note():
    stubborn = lambda x: torch.eye(4)[0].expand(len(x), 4)  # noqa: E731
    result = attacked(Boundary(), stubborn, y=torch.zeros_like(Y))
    assert np.isinf(result.distances).all()
    assert "No adversarial was found in L2 for 6 of 6 images" in result.notes[0]
    assert "starts=" in result.notes[0]


def test_zero_and_nan_gradients_are_counted_and_harmless():
    def nan_slope(x):
        flat = x.flatten(1)
        return curved(x) + (flat - flat).square().sum(1, keepdim=True).sqrt()

    flat = lambda x: 100 * (curved(x) / 100).round() + 0 * curved(x)  # noqa: E731 - its slope is 0
    for subject in (nan_slope, flat):
        y = subject(X).argmax(1)
        result = attacked(subject=subject, y=y)
        assert (result.zero_gradients == 1).all()
        assert np.isinf(result.distances).all()
        assert torch.equal(result.adversarials, X)
    assert (attacked().zero_gradients == 0).all()
