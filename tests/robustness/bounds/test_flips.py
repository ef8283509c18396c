"""What flips of binarised pixels cost in the image."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polariscope.robustness.bounds.flips import cheapest_flips, in_binarised_space


@pytest.mark.spec("001b/B-15")
@given(st.integers(0, 5000), st.integers(0, 6))
def test_no_choice_of_flips_is_cheaper(seed: int, count: int) -> None:
    x = np.random.default_rng(seed).random(5)
    price = np.abs(x - 0.5)
    for norm, order in (("l1", 1), ("l2", 2), ("linf", np.inf)):
        choices = [
            np.linalg.norm(price[list(c)], order) for c in itertools.combinations(range(5), count) if c or not count
        ]
        result = cheapest_flips(x[None], [count], norm)[0]
        assert result == pytest.approx(min(choices, default=np.inf) if count else 0.0)
    assert cheapest_flips(x[None], [count], "l0")[0] == count


def test_a_pixel_of_several_channels_is_crossed_by_its_cheapest() -> None:
    x = np.array([[0.4, 0.0, 0.9, 0.45]])  # two pixels of two channels: (0.4, 0.9) and (0.0, 0.45)
    assert cheapest_flips(x, [2], "linf", channels=2) == pytest.approx([0.1])
    assert cheapest_flips(x, [1], "linf", channels=2) == pytest.approx([0.05])


def test_norms_in_binarised_space() -> None:
    counts = np.array([0.0, 1.0, 9.0])
    assert in_binarised_space(counts, "l2").tolist() == [0, 1, 3]
    assert in_binarised_space(counts, "linf").tolist() == [0, 1, 1]
    assert in_binarised_space(counts, "l0").tolist() == [0, 1, 9]
