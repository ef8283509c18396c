import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from polariscope.manipulation.folding import check_bound, fold, shifted


@pytest.mark.spec("003/F3-057")
def test_folding_reflects_at_both_ends() -> None:
    np.testing.assert_allclose(fold(np.array([1.1, -0.1, 0.4, 0, 1])), [0.9, 0.1, 0.4, 0, 1])
    torch.testing.assert_close(fold(torch.tensor([1.1, -0.1, 0.4])), torch.tensor([0.9, 0.1, 0.4]))


@pytest.mark.spec("003/F3-057")
@given(st.floats(0, 1), st.floats(-1, 1), st.floats(-1, 1))
def test_folding_moves_nothing_further_than_the_change(x: float, a: float, b: float) -> None:
    first, second = fold(np.array([x + a, x + b]))
    assert -1e-12 <= first <= 1 + 1e-12
    assert abs(first - x) <= abs(a) + 1e-12
    assert abs(first - second) <= abs(a - b) + 1e-12


@pytest.mark.spec("003/F3-057")
@given(st.integers(0, 255), st.floats(-1, 1), st.floats(0.01, 1))
def test_images_stay_within_the_bound_in_whole_grey_levels(level: int, share: float, epsilon: float) -> None:
    image = np.array([[level]], np.uint8)
    altered = shifted(image, np.array([[share * epsilon]]), epsilon)
    assert altered.dtype == np.uint8
    assert abs(int(altered[0, 0]) - level) <= 255 * epsilon + 1e-6
    wanted = 255 * float(fold(np.array(level / 255 + share * epsilon)))
    assert abs(int(altered[0, 0]) - wanted) <= 1.0


@pytest.mark.spec("003/F3-057")
def test_rounding_does_not_cross_the_bound() -> None:
    assert shifted(np.array([[100]], np.uint8), np.array([[0.0117]]), 0.0117).tolist() == [[102]]  # not 2.98 up to 3


def test_points_are_added_to_as_they_are() -> None:
    points = np.array([[3.0, -2.0]], np.float32)
    np.testing.assert_allclose(shifted(points, np.array([[0.5, -0.5]]), 0.5), [[3.5, -2.5]])


def test_bounds_that_make_no_sense_are_refused() -> None:
    check_bound(7.0, of_bytes=False)
    for epsilon, of_bytes in ((0.0, False), (float("nan"), False), (1.5, True), (0.001, True)):
        with pytest.raises(ValueError, match="epsilon is"):
            check_bound(epsilon, of_bytes)
