"""What raw numbers mean: one rule for arrays and files, which says what it assumed."""

import re
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from polariscope.testing import check_world
from polariscope.worlds import ArrayWorld, observations
from polariscope.worlds.observations import Converted, Stored
from polariscope.worlds.readers.files import read
from polariscope.worlds.world import to_tensor

PICTURES = np.random.default_rng(0).integers(0, 256, (12, 5, 4), dtype=np.uint8)
DARK = PICTURES > 127
FORMS = {
    "bytes": (PICTURES, PICTURES, 255),
    "true and false": (DARK, DARK * 255, 1),
    "0 and 1": (DARK.astype(np.uint8), DARK * 255, 1),
    "0 and 1 in wide integers": (DARK.astype(np.int64), DARK * 255, 1),
    "0 and 1 in floats": (DARK.astype(np.float32), DARK * 255, 1),
    "fractions": (PICTURES / 255, PICTURES, 1),
    "fractions a hair above 1": (np.float32(PICTURES / 255) * np.float32(1.0000002), PICTURES, 1),
    "fractions a hair outside": (PICTURES / 255 * 1.012 - 0.006, None, 1),
    "floats of bytes": (PICTURES.astype(np.float64), PICTURES, 255),
    "wide integers": (PICTURES.astype(np.int32), PICTURES, 255),
}


def saved(array: np.ndarray, folder: Path) -> list[Path]:
    """The array in every kind of file that holds arrays."""
    np.save(folder / "a.npy", array)
    np.savez(folder / "a.npz", images=array)
    np.savez_compressed(folder / "b.npz", images=array)
    with h5py.File(folder / "a.h5", "w") as file:
        file["images"] = array
    return [folder / name for name in ("a.npy", "a.npz", "b.npz", "a.h5")]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("held", [True, False], ids=["held", "in place"])
def test_the_same_numbers_mean_the_same_from_memory_and_from_any_file(form, held, tmp_path, monkeypatch) -> None:
    array, expected, white = FORMS[form]
    if not held:
        monkeypatch.setattr(observations, "HELD", 100)
    expected = np.clip(np.rint(255 * array), 0, 255) if expected is None else expected
    everything = np.arange(12)
    for data in (array, torch.from_numpy(array), *saved(array, tmp_path)):
        world = read(data) if isinstance(data, Path) else ArrayWorld(data)
        np.testing.assert_array_equal(world.observe(everything)[:, 0], expected, err_msg=str(data)[:80])
        assert f"{white} is taken as white" in world.assumed[0]
    check_world(ArrayWorld(array))


def test_what_was_assumed_is_said() -> None:
    assert ArrayWorld(DARK).assumed == ("Pixels go from 0 to 1: 1 is taken as white.",)
    assert ArrayWorld(PICTURES.astype(float)).assumed == ("Pixels go from 0 to 255: 255 is taken as white.",)
    assert ArrayWorld(PICTURES / 254.9).assumed == (
        "Pixels go from 0 to 1.00039: 1 is taken as white, and what lies outside is cut off. They are rounded to 256 "
        "steps.",
    )
    assert ArrayWorld(PICTURES.astype(float) / 16).assumed == (
        "Images keep their numbers, which go from 0 to 15.9375, in one channel; if they are brightnesses, give the "
        "number of white (white=, --world.white).",
    )
    assert ArrayWorld(PICTURES / 127.5 - 1).assumed[0].endswith("if they are brightnesses, bring them to 0..1 first.")
    assert ArrayWorld(np.zeros((2, 4, 9, 3), np.uint8)).assumed[1] == (
        "Images of shape 4x9x3 are taken to have their channels first."
    )
    assert ArrayWorld(np.zeros((2, 3))).assumed == ()


def test_white_can_be_declared(tmp_path) -> None:
    sixteen = np.arange(17).reshape(1, 17, 1).repeat(2, axis=0)
    world = ArrayWorld(sixteen, white=16)
    np.testing.assert_array_equal(world.observations[0, 0, :, 0], np.rint(np.arange(17) * 255 / 16))
    assert world.assumed == ()
    np.save(tmp_path / "deep.npy", np.array([[[0, 65535], [32768, 1]]], np.uint16))
    np.testing.assert_array_equal(read(tmp_path / "deep.npy", white=65535).observations[0, 0], [[0, 255], [128, 0]])
    dark = np.array([[[0, 1], [1, 0]]], np.uint8)
    np.testing.assert_array_equal(ArrayWorld(dark, white=255).observations[0, 0], dark[0])
    for white in (0, -1, np.inf, np.nan):
        with pytest.raises(ValueError, match="it must be the value of a white pixel, above 0"):
            ArrayWorld(dark, white=white)
    with pytest.raises(ValueError, match="expected pixels from 0 to 10, but they go from 0 to 16; scale them"):
        ArrayWorld(sixteen, white=10)


@pytest.mark.parametrize(
    ("array", "sentence"),
    [
        (PICTURES.astype(int) - 1, "but they go from -1 to 254"),
        (PICTURES.astype(np.uint16) * 257, "but they go from 0 to 65535; scale them, or give as white"),
        (PICTURES.astype(int) + 1, "but they go from 1 to 256"),
    ],
)
def test_numbers_that_are_no_pixels_are_refused(array, sentence, tmp_path) -> None:
    array[0, 0, :2] = array.min(), array.max()
    for data in (array, *saved(array, tmp_path)):
        with pytest.raises(ValueError, match=sentence):
            read(data) if isinstance(data, Path) else ArrayWorld(data)


IMAGENET = np.float32([0.485, 0.456, 0.406])[:, None, None], np.float32([0.229, 0.224, 0.225])[:, None, None]
OTHER_NUMBERS = {
    "MNIST standardised": (PICTURES / 255 - 0.1307) / 0.3081,
    "ImageNet standardised": (np.stack([PICTURES] * 3, axis=1) / np.float32(255) - IMAGENET[0]) / IMAGENET[1],
    "tanh": PICTURES / 127.5 - 1,
    "up to 16 in floats": np.floor(PICTURES / 15.9),
    "up to 16 in integers": (PICTURES / 15.9).astype(np.int64),
    "up to 2.64": PICTURES * (2.64 / 255),
    "one value of 1.5": np.where(np.arange(PICTURES.size).reshape(PICTURES.shape) == 7, 1.5, PICTURES / 255),
    "one value of 200": np.where(np.arange(PICTURES.size).reshape(PICTURES.shape) == 7, 200, PICTURES / 255),
    "metres": PICTURES * 10.5,
    "nearly black": PICTURES * 1e-5,
    "nearly grey": 0.5 + PICTURES * 1e-5,
}


@pytest.mark.parametrize("form", OTHER_NUMBERS)
def test_images_of_other_numbers_than_brightnesses_keep_them(form, tmp_path) -> None:
    array = OTHER_NUMBERS[form]
    expected = (array if array.ndim == 4 else array[:, None]).astype(np.float32)
    for data in (array, torch.from_numpy(array), *saved(array, tmp_path)):
        world = read(data) if isinstance(data, Path) else ArrayWorld(data)
        np.testing.assert_array_equal(to_tensor(world.observe(np.arange(12))).numpy(), expected)
        assert "keep their numbers" in world.assumed[0]
    check_world(ArrayWorld(array))


WHITE_SAID = re.compile(r"go from .*: ([\d.]+) is taken as white")


@given(
    scale=st.floats(-4, 5).map(lambda power: 10**power),
    offset=st.one_of(st.just(0.0), st.floats(-3, 3), st.floats(-1e9, 1e9)),
    dtype=st.sampled_from(["f2", "f4", "f8", "u1", "u2", "i2", "i8", "?"]),
    outlier=st.one_of(st.none(), st.floats(-1e3, 1e3)),
    seed=st.integers(0, 9),
)
@example(scale=1 / 0.3081, offset=-0.1307 / 0.3081, dtype="f4", outlier=None, seed=0)
@example(scale=1.0, offset=0.0, dtype="f4", outlier=1.5, seed=0)
@example(scale=1.0, offset=0.0, dtype="f8", outlier=254.6, seed=0)
@example(scale=255.0, offset=0.0, dtype="u1", outlier=None, seed=0)
@example(scale=16.0, offset=0.0, dtype="i8", outlier=None, seed=0)
def test_what_reaches_a_model_is_what_was_given_or_it_is_refused(scale, offset, dtype, outlier, seed) -> None:
    exact = np.random.default_rng(seed).random((6, 8, 8)) * scale + offset
    exact[3, 4, 4] = exact[3, 4, 4] if outlier is None else outlier
    with np.errstate(all="ignore"):
        came = exact.astype(dtype)
    refused = ""
    try:
        world = ArrayWorld(came)
    except ValueError as error:
        refused = str(error)
    if refused:
        assert re.search("scale them, or give as white|NaN or infinite|subtract their mean first", refused)
        return
    message = WHITE_SAID.search(world.assumed[0])
    white = float(message[1]) if message else 1.0
    kept = came.astype(np.float64)
    reached = to_tensor(world.observe(np.arange(6)))[:, 0].double().numpy() * white
    apart = np.abs(reached - kept)
    if message is None:
        assert "keep their numbers" in world.assumed[0]
    else:
        assert apart.max() <= 0.011 * white, "at most a hair is cut off, and a step rounded away"
    spread = np.abs(kept - kept.mean()).mean()
    assert apart.mean() <= 0.021 * spread + 1e-6 * abs(kept).max()


def test_a_white_that_would_leave_nothing_of_the_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="expected pixels that 256 steps from 0 to 255 can hold, .* from 0 to 1; give"):
        ArrayWorld(PICTURES / 255, white=255)
    np.testing.assert_array_equal(ArrayWorld(PICTURES / 15.9375, white=16).observe([2])[0, 0], PICTURES[2])


def test_numbers_that_single_precision_would_make_equal_are_refused() -> None:
    with pytest.raises(ValueError, match=r"from 1000000000 to 1000000001; subtract their mean first"):
        ArrayWorld(1e9 + PICTURES / 255)
    assert ArrayWorld(np.full((3, 4, 4), 1e9 + 0.25)).observe([0]).dtype == np.float32


def test_tensors_of_any_kind_are_data() -> None:
    points = torch.tensor([[1.5, -2.0], [0.0, 4.0]], requires_grad=True)
    for tensor in (points, points.bfloat16(), points.half(), points.double()):
        np.testing.assert_array_equal(ArrayWorld(tensor).observe([1, 0]), [[0, 4], [1.5, -2]])


def test_images_need_not_be_square(tmp_path) -> None:
    wide = np.random.default_rng(1).integers(0, 256, (3, 6, 20, 3), dtype=np.uint8)
    world = ArrayWorld(wide)
    assert world.shape == (3, 6, 20)
    np.testing.assert_array_equal(world.observe([2])[0], wide[2].transpose(2, 0, 1))
    for number, image in enumerate(wide):
        Image.fromarray(image).save(tmp_path / f"{number}.png")
    folder = read(tmp_path)
    assert folder.shape == (3, 6, 20)
    np.testing.assert_array_equal(folder.observe([2])[0], wide[2].transpose(2, 0, 1))
    assert read(tmp_path, size=8).shape == (3, 8, 8)


# Data that is read in place


class Counted(Stored):
    """Rows that count how often each is fetched."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.shape, self.dtype = array, array.shape, array.dtype
        self.fetched = np.zeros(len(array), int)

    def fetch(self, index: np.ndarray) -> np.ndarray:
        np.add.at(self.fetched, index, 1)
        return self.array[index]


def test_few_rows_tell_what_large_data_means(monkeypatch) -> None:
    monkeypatch.setattr(observations, "HELD", 1000)
    rows = Counted(np.tile(DARK, (500, 1, 1)).astype(np.uint8))
    world = ArrayWorld(rows)
    assert isinstance(world.observations, Converted)
    looked_at = int((rows.fetched > 0).sum())
    assert 100 < looked_at <= 256
    assert world.assumed == (
        f"Pixels go from 0 to 1: 1 is taken as white (inferred from {looked_at} of 6,000 images).",
    )
    rows.fetched[:] = 0
    np.testing.assert_array_equal(world.observe([5, 5999, 5])[:, 0], DARK[[5, 11, 5]] * 255)
    assert np.flatnonzero(rows.fetched).tolist() == [5, 5999]
    again = ArrayWorld(Counted(rows.array))
    assert again.assumed == world.assumed, "the same rows tell every time"


def test_rows_nobody_looked_at_are_checked_when_they_come(monkeypatch) -> None:
    monkeypatch.setattr(observations, "HELD", 1000)
    monkeypatch.setattr(observations, "SAMPLED", 2)
    for array, sentence in (
        (np.tile(DARK, (50, 1, 1)).astype(np.uint8), "expected pixels from 0 to 1, but they go from 0 to 7"),
        (np.ones((600, 3), np.float32), "1 values are NaN or infinite"),
        (np.ones((600, 3, 3)), "1 values are NaN or infinite"),
    ):
        array[300].flat[0] = 7 if array.dtype == np.uint8 else np.nan
        world = ArrayWorld(Counted(array), source="rows")
        assert len(world.observe([0, 299, 301])) == 3
        with pytest.raises(ValueError, match=sentence):
            world.observe([299, 300])


def test_packed_rows_are_held_where_there_is_room(monkeypatch) -> None:
    monkeypatch.setattr(observations, "HELD", 100)
    for free, held in ((10 * PICTURES.nbytes, True), (PICTURES.nbytes, False)):
        monkeypatch.setattr(observations, "available_memory", lambda free=free: free)
        rows = Counted(PICTURES)
        rows.packed = True
        world = ArrayWorld(rows)
        rows.fetched[:] = 0
        np.testing.assert_array_equal(world.observe([3])[0, 0], PICTURES[3])
        assert (rows.fetched.sum() == 0) == held
