"""MATLAB files, and rows of numbers that are images: what is an observation, and how its numbers run."""

import h5py
import numpy as np
import pytest
import torch
from scipy.io import loadmat, savemat
from torch.utils.data import TensorDataset

from polariscope.testing import check_world
from polariscope.worlds import as_world, observations
from polariscope.worlds.observations import Stored
from polariscope.worlds.readers import matlab
from polariscope.worlds.readers.files import File, read

IMAGES = np.random.default_rng(0).integers(0, 256, (9, 5, 4), dtype=np.uint8)
COLOURED = np.random.default_rng(1).integers(0, 256, (9, 3, 5, 4), dtype=np.uint8)
LABELS = np.arange(9) % 3
COLUMNS = IMAGES.transpose(2, 1, 0).reshape(20, 9)
"""A column for each image, which runs down the columns of it."""


def savemat_hdf5(path, arrays) -> None:
    """As MATLAB writes version 7.3: HDF5 behind a block of text, axes in reverse, the class as an attribute."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, array in arrays.items():
            dataset = file.create_dataset(name, data=np.asarray(array).T)
            dataset.attrs["MATLAB_class"] = np.bytes_({"uint8": "uint8", "int64": "int64"}[str(array.dtype)])
        file.create_dataset("#refs#/a", data=[1])
        text = file.create_dataset("note", data=np.array([[104], [105]], np.uint16))
        text.attrs["MATLAB_class"] = np.bytes_("char")
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(512, b" "))


WRITERS = {"5": savemat, "7.3": savemat_hdf5}
FORMS = {
    "columns": (
        COLUMNS,
        {"shape": (5, 4)},
        "The columns of 'faces' (20x9) are taken as observations, since",
    ),
    "rows": (COLUMNS.T, {"shape": (5, 4)}, "The rows of 'faces' (9x20) are taken as observations, since"),
    "images, last": (IMAGES.transpose(1, 2, 0), {}, "The parts along the last axis of 'faces' (5x4x9)"),
    "images, first": (IMAGES, {}, "The parts along the first axis of 'faces' (9x5x4)"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("version", WRITERS)
@pytest.mark.parametrize("held", [True, False], ids=["held", "in place"])
def test_images_come_out_upright_however_they_are_stored(tmp_path, monkeypatch, form, version, held) -> None:
    array, options, sentence = FORMS[form]
    WRITERS[version](tmp_path / "a.mat", {"faces": array})
    if not held:
        monkeypatch.setattr(observations, "HELD", 10)
        monkeypatch.setattr(observations, "available_memory", lambda: 10**6)
    world = read(tmp_path / "a.mat", **options)
    np.testing.assert_array_equal(world.observe([7, 0, 3])[:, 0], IMAGES[[7, 0, 3]])
    assert world.assumed[0].startswith(sentence)
    assert ("run down its columns" in world.assumed[1]) == bool(options)
    check_world(world)


@pytest.mark.parametrize("version", WRITERS)
def test_labels_tell_what_counts_the_observations(tmp_path, version) -> None:
    as_svhn = COLOURED.transpose(2, 3, 1, 0)
    WRITERS[version](tmp_path / "a.mat", {"X": as_svhn, "y": LABELS[:, None]})
    world = read(tmp_path / "a.mat")
    np.testing.assert_array_equal(world.observe([8, 1]), COLOURED[[8, 1]])
    assert world.factors_of(np.arange(9))[:, 0].tolist() == LABELS.tolist()
    WRITERS[version](tmp_path / "b.mat", {"data": COLUMNS, "label": LABELS[None]})
    points = read(tmp_path / "b.mat")
    np.testing.assert_array_equal(points.observe([4]), COLUMNS[:, [4]].T)
    assert "since there are 9 labels" in points.assumed[0]


def test_the_order_can_be_declared(tmp_path) -> None:
    savemat(tmp_path / "a.mat", {"data": IMAGES.reshape(9, 20).T})
    world = read(tmp_path / "a.mat", shape=(5, 4), order="rows")
    np.testing.assert_array_equal(world.observe([2])[0, 0], IMAGES[2])
    assert not any("run down" in sentence for sentence in world.assumed)
    colours = COLOURED.transpose(0, 1, 3, 2).reshape(9, 60)
    np.testing.assert_array_equal(as_world(colours, shape=(3, 5, 4), order="columns").observe([6]), COLOURED[[6]])


def test_an_array_is_named_where_its_name_does_not_tell(tmp_path) -> None:
    savemat(tmp_path / "a.mat", {"faces": IMAGES, "masks": IMAGES[::-1], "y": LABELS})
    np.savez(tmp_path / "a.npz", faces=IMAGES, masks=IMAGES[::-1], y=LABELS)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["part/faces"], file["part/masks"], file["part/y"] = IMAGES, IMAGES[::-1], LABELS
    for name, key in (("a.mat", "masks"), ("a.npz", "masks"), ("a.h5", "part/masks")):
        world = File(str(tmp_path / name), key=key)
        np.testing.assert_array_equal(world.observe([0])[0, 0], IMAGES[8])
        assert world.factors[0].size == 3
        with pytest.raises(ValueError, match=r"expected an array called images.*but the file holds .*faces.*masks"):
            read(tmp_path / name)
        with pytest.raises(ValueError, match=r"expected an array called nose, but the file holds .*faces.*masks"):
            read(tmp_path / name, key="nose")
    for name in ("a.mat", "a.npz"):
        with pytest.raises(ValueError, match=r"name the one with the observations \(key=, --world.key\)$"):
            read(tmp_path / name)
    np.save(tmp_path / "a.npy", IMAGES)
    with pytest.raises(ValueError, match="key='x' names an array of an npz, HDF5 or MATLAB file, and this is not one"):
        read(tmp_path / "a.npy", key="x")


def test_cells_structures_and_words_are_never_loaded(tmp_path, monkeypatch) -> None:
    objects = {"c": np.array([1, "a"], object), "s": {"a": 1}, "t": "words"}
    savemat(tmp_path / "a.mat", {"images": IMAGES, **objects})
    asked = []

    def noted(path, variable_names):
        asked.extend(variable_names)
        return loadmat(path, variable_names=variable_names)

    monkeypatch.setattr(matlab, "loadmat", noted)
    assert len(read(tmp_path / "a.mat")) == 9
    assert asked == ["images"]
    for key, kind in (("c", "cell"), ("s", "struct"), ("t", "char")):
        with pytest.raises(ValueError, match=f"expected numbers in '{key}', but it is of the class {kind}"):
            read(tmp_path / "a.mat", key=key)
    savemat(tmp_path / "b.mat", objects)
    with pytest.raises(ValueError, match=r"but the file holds c \(1, 2\) cell, s \(1, 1\) struct, t"):
        read(tmp_path / "b.mat")
    savemat_hdf5(tmp_path / "c.mat", {})
    with pytest.raises(ValueError, match=r"but the file holds note \(1, 2\) char"):
        read(tmp_path / "c.mat")


@pytest.mark.parametrize("packed", [False, True])
def test_damaged_files_are_a_sentence(tmp_path, packed) -> None:
    savemat(tmp_path / "a.mat", {"images": np.tile(IMAGES, (20, 1, 1))}, do_compression=packed)
    whole = (tmp_path / "a.mat").read_bytes()
    refused = 0
    for end in (8, 100, 128, 131, 140, 180, 200, len(whole) // 2, len(whole) - 1):
        (tmp_path / "cut.mat").write_bytes(whole[:end])
        try:
            read(tmp_path / "cut.mat")
        except ValueError as error:
            refused += "cut.mat" in str(error) and "\n" not in str(error)
    assert refused >= 8
    (tmp_path / "cut.mat").write_bytes(b"MATLAB 7.3 MAT-file".ljust(600, b" "))
    with pytest.raises(ValueError, match=r"cut\.mat: expected a whole MATLAB file"):
        read(tmp_path / "cut.mat")


ROWS = IMAGES.reshape(9, 20)


@pytest.mark.parametrize("held", [True, False], ids=["held", "in place"])
def test_rows_of_numbers_become_images(tmp_path, monkeypatch, held) -> None:
    np.savez(tmp_path / "a.npz", x=ROWS, y=LABELS)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"], file["y"] = ROWS / np.float32(255), LABELS
    if not held:
        monkeypatch.setattr(observations, "HELD", 10)
        monkeypatch.setattr(observations, "available_memory", lambda: 0)
    for shape in ((5, 4), (1, 5, 4)):
        for world in (
            as_world(ROWS, LABELS, shape=shape),
            as_world(torch.from_numpy(ROWS), LABELS, shape=shape),
            as_world(tmp_path / "a.npz", shape=shape),
            as_world(tmp_path / "a.h5", LABELS, shape=shape),
            File(str(tmp_path / "a.h5"), image_shape=shape),
        ):
            assert world.shape == (1, 5, 4)
            np.testing.assert_array_equal(world.observe([7, 2])[:, 0], IMAGES[[7, 2]])
            assert world.factors_of([7, 2]).tolist() == [[1], [2]]
    in_place = read(tmp_path / "a.h5", shape=(5, 4)).observations
    assert isinstance(in_place, Stored) == (not held)


def test_declared_channels_come_first_whatever_the_shape_looks_like() -> None:
    numbers = np.random.default_rng(0).normal(size=(6, 8 * 9 * 3)).astype(np.float32)
    world = as_world(numbers, shape=(8, 9, 3))
    np.testing.assert_array_equal(world.observe([4])[0], numbers[4].reshape(8, 9, 3))
    assert "which their shape does not show" not in world.assumed[0]
    np.testing.assert_array_equal(as_world(numbers, shape=(216,)).observe([4]), numbers[[4]])


def test_a_shape_that_does_not_fit_is_a_sentence(tmp_path) -> None:
    for data, shape, sentence in (
        (
            ROWS,
            (5, 5),
            r"expected a shape of 20 numbers, .* but 5x5 are 25; give another \(shape=, --world.shape",
        ),
        (IMAGES, (5, 4), "expected rows of numbers to give the shape 5x4, but observations already have the shape 5x4"),
        (ROWS, (1, 1, 5, 4), "expected a shape of an image"),
        (ROWS, (-5, -4), "expected a shape of an image"),
        (TensorDataset(torch.from_numpy(ROWS)), (5, 4), "TensorDataset: shape= is for arrays and files"),
        (as_world(ROWS), (5, 4), "ArrayWorld is a world: .* shape and floats cannot be given again"),
    ):
        with pytest.raises(ValueError, match=sentence):
            as_world(data, shape=shape)
    np.save(tmp_path / "a.npy", ROWS)
    with pytest.raises(
        ValueError, match="order='columns' is the order of rows that become images; give their shape too"
    ):
        read(tmp_path / "a.npy", order="columns")
    with pytest.raises(ValueError, match=r"points of shape \(20,\); .* give their shape too \(shape=, --world.shape"):
        read(tmp_path / "a.npy", size=8)
    assert read(tmp_path / "a.npy", size=8, shape=(5, 4)).shape == (1, 8, 8)


def test_real_usps(real_data) -> None:
    world = File(str(real_data("usps/usps.h5")), group="train", image_shape=(16, 16))
    assert (len(world), world.shape, world.factors[0].size) == (7291, (1, 16, 16), 10)
    with h5py.File(real_data("usps/usps.h5")) as file:
        first = file["train/data"][0].reshape(16, 16)
    np.testing.assert_allclose(world.observe([0])[0, 0] / 255, first, atol=1 / 500)


def test_real_faces_are_upright(real_data) -> None:
    world = read(real_data("olivetti/olivettifaces.mat"), shape=(64, 64))
    assert (len(world), world.shape) == (400, (1, 64, 64))
    mean = world.observe(np.arange(400))[:, 0].mean(0)
    mirrored, turned = (np.corrcoef(mean.ravel(), other.ravel())[0, 1] for other in (mean[:, ::-1], mean[::-1]))
    assert mirrored > 0.9 > turned, "the mean face is alike left and right, and not above and below"
