"""The norm of clipped Gaussian noise: the published figures, quadrature, and the way back."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm as normal

from polariscope.theory.clipped_noise import (
    clipped_moment,
    clipped_norm,
    even_clipped_moment,
    even_clipped_norm,
    even_sd_of_norm,
    sd_of_norm,
)

IMAGENET, MNIST = 3 * 224 * 224, 784
SDS = (0.08, 0.12, 0.18, 0.26, 0.38, 0.5, 0.6, 0.7, 0.8, 1.0)
EVEN = (29.69, 43.48, 62.79, 85.80, 113.97, 134.85, 147.82, 157.85, 165.73, 177.18)
BLACK = (1.584, 2.376, 3.564, 5.147, 7.465, 9.498, 10.877, 11.991, 12.890, 14.223)


@pytest.mark.spec("001b/A-01")
def test_norms_of_the_published_standard_deviations() -> None:
    for sd, even, black in zip(SDS, EVEN, BLACK, strict=True):
        assert even_clipped_norm(IMAGENET, sd) == pytest.approx(even, abs=0.006)
        assert clipped_norm(np.zeros(MNIST), sd) == pytest.approx(black, abs=0.0006)
        assert clipped_norm(np.ones(MNIST), sd) == pytest.approx(black, abs=0.0006)
    assert clipped_moment([0, 0.25, 0.5, 1], 0.5) == pytest.approx([0.115067, 0.120449, 0.129015, 0.115067], abs=6e-7)


def test_what_a_norm_stands_for() -> None:
    """135 is noise of 0.5 on evenly spread pixels, and so is 10 on black ones: the same statement in two data sets."""
    for norm, sd in {39.0: 0.107, 70.0: 0.204, 136.7: 0.513, 135.0: 0.5}.items():
        assert even_sd_of_norm(norm, IMAGENET) == pytest.approx(sd, abs=1.1e-3)
    assert sd_of_norm(10, np.zeros(MNIST)) == pytest.approx(0.534, abs=1e-3)


@pytest.mark.parametrize("sd", [0.03, 0.3, 3.0])
def test_moments_are_the_integrals(sd) -> None:
    def direct(x: float) -> float:
        def change(n: float) -> float:
            return (np.clip(x + sd * n, 0, 1) - x) ** 2 * normal.pdf(n)

        bends = sorted(np.clip([-x / sd, (1 - x) / sd], -12, 12))
        return quad(change, -12, 12, points=bends, limit=200)[0]

    for x in (0.0, 0.1, 0.6):
        assert clipped_moment(x, sd) == pytest.approx(direct(x), rel=1e-7)
    mean = quad(lambda x: float(clipped_moment(x, sd)), 0, 1, points=[0.01, 0.1, 0.9, 0.99])[0]
    assert even_clipped_moment(sd) == pytest.approx(mean, rel=1e-7)


def test_there_and_back() -> None:
    pixels = np.random.default_rng(0).random(50)
    for sd in (0.01, 0.2, 5.0):
        assert sd_of_norm(clipped_norm(pixels, sd), pixels) == pytest.approx(sd, rel=1e-6)
        assert even_sd_of_norm(even_clipped_norm(50, sd), 50) == pytest.approx(sd, rel=1e-6)


def test_what_has_no_norm_is_refused() -> None:
    with pytest.raises(ValueError, match="between 0 and 19.79"):
        sd_of_norm(20, np.zeros(MNIST))
    with pytest.raises(ValueError, match="divide bytes by 255"):
        clipped_moment([0, 255], 0.5)
    with pytest.raises(ValueError, match="needs to be positive"):
        even_clipped_moment(0)
