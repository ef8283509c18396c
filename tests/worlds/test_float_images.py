"""Images whose numbers are no brightnesses keep them, in any number of channels, wherever they come from."""

import h5py
import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from polariscope.testing import check_world
from polariscope.worlds import ArrayWorld, as_world, observations
from polariscope.worlds.observations import Stored
from polariscope.worlds.readers.files import File, read
from polariscope.worlds.remembered import remember

LAND = np.random.default_rng(0).normal(100, 300, (12, 7, 10, 9)).astype(np.float32)
"""Seven layers of a map, of 10x9 pixels."""
FORMS = {
    "float32": LAND,
    "float64": LAND.astype(np.float64),
    "int16": np.rint(LAND).astype(np.int16),
    "bytes": np.random.default_rng(1).integers(0, 256, LAND.shape, dtype=np.uint8),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("held", [True, False], ids=["held", "in place"])
def test_numbers_and_channels_are_kept_from_memory_and_from_any_file(form, last, held, tmp_path, monkeypatch) -> None:
    expected = FORMS[form].astype(np.float32)
    array = np.moveaxis(FORMS[form], 1, -1) if last else FORMS[form]
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "a.npz", images=array)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["images"] = array
    if not held:
        monkeypatch.setattr(observations, "HELD", 100)
        monkeypatch.setattr(observations, "available_memory", lambda: 0)
    for data in (array, *(tmp_path / name for name in ("a.npy", "a.npz", "a.h5"))):
        world = ArrayWorld(data, floats=True) if isinstance(data, np.ndarray) else read(data, floats=True)
        result = world.observe([3, 0, 11])
        assert result.dtype == np.float32
        np.testing.assert_array_equal(result, expected[[3, 0, 11]])
        where = "last" if last else "first"
        assert f"7 channels are assumed to come {where}." in world.assumed[-1]
        if not held and data is not array:
            assert isinstance(world.observations, Stored), "large data stays where it is"
    check_world(world)


def test_the_door_takes_them_in_every_form(tmp_path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, LAND)
    labels = np.arange(12) % 3
    assert File(str(path), floats=True).shape == (7, 10, 9)
    for world in (
        as_world(LAND, labels, floats=True),
        as_world(torch.from_numpy(LAND), labels, floats=True),
        as_world(path, labels, floats=True),
        as_world(TensorDataset(torch.from_numpy(LAND), torch.from_numpy(labels)), floats=True),
    ):
        np.testing.assert_array_equal(world.observe([5]), LAND[[5]])
        assert world.factors_of([5]).tolist() == [[2]]
    np.testing.assert_array_equal(as_world(path, floats=True).observe([5]), LAND[[5]])
    with pytest.raises(ValueError, match="is a world: .* floats cannot be given again"):
        as_world(world, floats=True)


def test_negative_floats_are_kept_without_being_declared() -> None:
    for array in (LAND, np.moveaxis(LAND, 1, -1), LAND.astype(np.float64)):
        world = ArrayWorld(array)
        np.testing.assert_array_equal(world.observe([3, 0]), LAND[[3, 0]])
        assert "keep their numbers" in world.assumed[0]


def test_one_channel_and_points_are_what_they_were() -> None:
    grey = ArrayWorld(LAND[:, 0], floats=True)
    assert grey.shape == (1, 10, 9)
    assert grey.assumed == (f"Images keep their numbers, which go from {LAND[:, 0].min():g} to "
                            f"{LAND[:, 0].max():g}, in one channel.",)  # fmt: skip
    np.testing.assert_array_equal(ArrayWorld(LAND[:, 0, 0], floats=True).observe([2]), LAND[[2], 0, 0])


def test_what_the_shape_does_not_tell_is_said() -> None:
    world = ArrayWorld(np.zeros((3, 8, 8, 8)) + np.arange(8)[:, None, None], floats=True)
    assert world.observe([0])[0, :, 0, 0].tolist() == list(range(8))
    assert world.assumed[0].endswith("8 channels are assumed to come first, which their shape does not show.")


def test_images_are_resized_without_rounding(tmp_path) -> None:
    steps = np.broadcast_to(np.float32([-3.25, 812.6])[:, None, None, None], (2, 5, 8, 8))
    np.save(tmp_path / "a.npy", steps)
    resized = File(str(tmp_path / "a.npy"), size=4, floats=True)
    assert resized.shape == (5, 4, 4)
    np.testing.assert_allclose(resized.observe([0, 1]), steps[:, :, :4, :4], rtol=1e-6)


def test_data_in_memory_is_known_by_its_numbers() -> None:
    other = LAND.copy()
    other[4, 6, 2, 2] += 1
    record = remember(ArrayWorld(LAND, floats=True))
    assert record.observation == (7, 10, 9)
    assert record == remember(ArrayWorld(np.moveaxis(LAND, 1, -1), floats=True))
    with pytest.raises(ValueError, match="other data than the run was made with"):
        record.recall(ArrayWorld(other, floats=True))


def test_what_cannot_be_kept_is_refused(monkeypatch) -> None:
    with pytest.raises(ValueError, match=r"1 to 4 channels .* \(12, 7, 10, 9\); .*floats=True, --world.floats"):
        ArrayWorld(FORMS["bytes"])
    with pytest.raises(ValueError, match="declare them as floats"):
        ArrayWorld(FORMS["int16"])
    with pytest.raises(ValueError, match="so white has no meaning"):
        ArrayWorld(LAND, white=800.0, floats=True)
    with pytest.raises(ValueError, match="which single precision holds"):
        ArrayWorld(LAND.astype(np.float64) * 1e40, floats=True)
    for bad in (np.nan, np.inf):
        broken = LAND.copy()
        broken[5, 6, 0, 0] = bad
        with pytest.raises(ValueError, match="1 values are NaN or infinite"):
            ArrayWorld(broken, floats=True)
    monkeypatch.setattr(observations, "HELD", 100)
    monkeypatch.setattr(observations, "SAMPLED", 2)

    class Elsewhere(Stored):
        shape, dtype = LAND.shape, LAND.dtype

        def fetch(self, index):
            return broken[index]

    world = ArrayWorld(Elsewhere(), floats=True)  # which looks at the first and the last only
    with pytest.raises(ValueError, match="1 values are NaN or infinite"):
        world.observe([5])


@pytest.mark.parametrize("offset", [1e6, 1e8])
def test_points_whose_differences_would_be_rounded_away_are_refused(offset: float) -> None:
    """As float32, 2,000 different points had become 1,628."""
    points = np.random.default_rng(0).uniform(size=(2000, 3))
    points[:, 1] += offset
    with pytest.raises(ValueError, match="array, column 1: expected numbers that differ by more than single precision"):
        as_world(points)
    points[:, 1] = offset  # a constant loses nothing
    assert as_world(points).shape == (3,)
