"""What a screen shows of images of any number of channels, in bytes or in floats."""

import numpy as np
import pytest

from polariscope.worlds.pictures import limits_of, picture_note, pictured


@pytest.mark.parametrize(("channels", "shown"), [(1, 1), (2, 1), (3, 3), (4, 3), (7, 3)])
def test_channels_that_are_shown(channels, shown) -> None:
    images = np.random.default_rng(0).integers(0, 256, (2, 5, channels, 4, 6), dtype=np.uint8)
    np.testing.assert_array_equal(pictured(images), images[:, :, :shown])
    note = picture_note(images.shape[2:])
    assert bool(note) == (channels not in (1, 3))
    assert not note or f"of {channels} channels" in note


def test_floats_go_from_black_to_white_over_what_is_shown() -> None:
    images = np.zeros((2, 7, 1, 2), np.float32)
    images[0, :3, 0, 0], images[1, :3, 0, 0], images[:, 3:] = -100, 400, 9999
    assert limits_of([images]) == (-100, 400)
    assert np.unique(pictured(images)).tolist() == [0, 51, 255], "0 lies a fifth of the way"
    assert np.unique(pictured(images, (0.0, 800.0))).tolist() == [0, 128], "what lies outside is cut off"
    assert pictured(np.full((1, 2, 2), 3.0)).tolist() == [[[0, 0], [0, 0]]]
    assert picture_note((7, 1, 2), (-100.0, 400.0)) == (
        "Pictures show the first 3 of 7 channels, numbers from -100 (black) to 400 (white)."
    )
