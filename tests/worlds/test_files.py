import gzip
import struct
import sys
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image

from polariscope.worlds import World, worlds
from polariscope.worlds.readers.files import File, read
from polariscope.worlds.readers.idx import read_idx

IMAGES = np.random.default_rng(0).integers(0, 256, (12, 5, 4), dtype=np.uint8)
LABELS = np.array([3, 1, 0, 2, 1, 1, 0, 3, 2, 2, 0, 1], dtype=np.uint8)


def idx(array: np.ndarray, code: int = 8) -> bytes:
    return bytes([0, 0, code, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def write_npz(path: Path, **arrays: np.ndarray) -> Path:
    np.savez_compressed(path, **arrays)
    return path


def write_image(path: Path, pixels: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


def refusal(path: Path, **options: int) -> str:
    """The sentence with which a file is refused: one line that names the path."""
    with pytest.raises(ValueError, match=r"expected|size") as caught:
        read(path, **options)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert path.name in sentence
    return sentence


@pytest.mark.spec("001b/D-02")
@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("label_suffix", ["", ".gz"])
def test_idx_round_trip_with_labels_beside(tmp_path, suffix, label_suffix) -> None:
    pack = {"": bytes, ".gz": gzip.compress}
    path = write(tmp_path / f"train-images-idx3-ubyte{suffix}", pack[suffix](idx(IMAGES)))
    write(tmp_path / f"train-labels-idx1-ubyte{label_suffix}", pack[label_suffix](idx(LABELS)))
    world = read(path)
    assert isinstance(world, World)
    assert world.observations.dtype == np.uint8
    np.testing.assert_array_equal(world.observe(np.arange(12))[:, 0], IMAGES)
    np.testing.assert_array_equal(world.factors_of(np.arange(12))[:, 0], LABELS)
    assert [(f.name, f.size, f.kind, f.values) for f in world.factors] == [("label", 4, "categorical", ())]


@pytest.mark.spec("001b/D-02")
def test_idx_without_labels_has_no_factors(tmp_path) -> None:
    world = read(write(tmp_path / "train-images-idx3-ubyte", idx(IMAGES)))
    assert world.factors == ()
    assert world.factors_of([0, 1]).shape == (2, 0)


@pytest.mark.parametrize(("code", "dtype"), [(9, ">i1"), (11, ">i2"), (12, ">i4"), (13, ">f4"), (14, ">f8")])
def test_idx_of_other_numbers(tmp_path, code, dtype) -> None:
    array = np.arange(6).reshape(3, 2).astype(dtype)
    np.testing.assert_array_equal(read_idx(write(tmp_path / "points", idx(array, code))), array)


def test_a_large_idx_comes_in_blocks(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("polariscope.worlds.readers.numpy_files.BLOCK", 7)
    np.testing.assert_array_equal(read_idx(write(tmp_path / "a.gz", gzip.compress(idx(IMAGES)))), IMAGES)


@pytest.mark.spec("001b/D-02")
def test_real_mnist(real_data) -> None:
    world = read(real_data("mnist/t10k-images-idx3-ubyte.gz"))
    assert world.observations.shape == (10_000, 1, 28, 28)
    assert world.factors_of(np.arange(10))[:, 0].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    assert world.factors[0].size == 10
    assert world.observations.mean() / 255 == pytest.approx(0.1325, abs=5e-4)


@pytest.mark.spec("003/F3-052")
def test_real_dsprites(real_data) -> None:
    world = read(real_data("dsprites/dsprites_downsampled.npz"))
    assert world.observations.shape == (46_080, 1, 64, 64)
    assert set(np.unique(world.observe(np.arange(100)))) == {0, 255}
    assert [(f.name, f.size) for f in world.factors] == [
        ("shape", 3), ("scale", 6), ("orientation", 10), ("x", 16), ("y", 16),
    ]  # fmt: skip
    assert world.factors[1].values == pytest.approx(np.linspace(0.5, 1, 6))
    grid = np.ravel_multi_index(tuple(world.factors_of(np.arange(len(world))).T), (3, 6, 10, 16, 16))
    np.testing.assert_array_equal(grid, np.arange(46_080))
    # The factors belong to the images: a larger x puts the ink further to the right.
    ink = world.observations[::7, 0].sum(axis=1, dtype=np.int64)
    column = ink @ np.arange(64) / ink.sum(axis=1)
    assert np.corrcoef(column, world.positions[::7, 3])[0, 1] > 0.99


@pytest.mark.spec("003/F3-052")
def test_dsprites_as_published_drops_the_constant_colour(tmp_path) -> None:
    sizes = (1, 3, 2, 2, 2, 2)
    classes = np.stack(np.unravel_index(np.arange(48), sizes), axis=1)
    images = np.random.default_rng(1).integers(0, 2, (48, 64, 64), dtype=np.uint8)
    pickled = np.array({"not": "touched"}, dtype=object)
    path = write_npz(
        tmp_path / "d.npz", metadata=pickled, imgs=images, latents_classes=classes, latents_values=classes / 2
    )
    world = read(path)
    assert [f.name for f in world.factors] == ["shape", "scale", "orientation", "x", "y"]
    assert [f.kind for f in world.factors] == ["categorical", "ordinal", "periodic", "ordinal", "ordinal"]
    assert world.factors[0].values == (0, 0.5, 1)
    np.testing.assert_array_equal(world.factors_of(np.arange(48)), classes[:, 1:])
    np.testing.assert_array_equal(world.observations[:, 0], images * 255)


@pytest.mark.spec("003/F3-052")
def test_shapes3d_file(tmp_path) -> None:
    images = np.random.default_rng(2).integers(0, 256, (9, 64, 64, 3), dtype=np.uint8)
    labels = np.zeros((9, 6))
    labels[:, 2] = np.repeat([0.1, 0.2, 0.9], 3)
    labels[:, 5] = np.tile([-30.0, 0.0, 30.0], 3)
    with h5py.File(tmp_path / "3dshapes.h5", "w") as file:
        file["images"], file["labels"] = images, labels
    world = read(tmp_path / "3dshapes.h5")
    np.testing.assert_array_equal(world.observations, images.transpose(0, 3, 1, 2))
    assert [f.name for f in world.factors] == ["floor_hue", "wall_hue", "object_hue", "scale", "shape", "orientation"]
    assert world.factors[5].values == (-30, 0, 30)
    assert world.factors[2].kind == "periodic"
    np.testing.assert_array_equal(world.factors_of(np.arange(9))[:, [2, 5]], [[i // 3, i % 3] for i in range(9)])


def test_hdf5_with_groups(tmp_path) -> None:
    with h5py.File(tmp_path / "usps.h5", "w") as file:
        for group, part in (("train", slice(0, 8)), ("test/own", slice(8, 12))):
            file[f"{group}/data"], file[f"{group}/target"] = IMAGES[part], LABELS[part]
    sentence = refusal(tmp_path / "usps.h5")
    assert "but the file holds test/own/data (4, 5, 4), test/own/target (4,), train/data (8, 5, 4)" in sentence
    assert sentence.endswith("give as group (group=, --world.group) test/own or train")
    for group, part in (("train", slice(0, 8)), ("/test/own/", slice(8, 12))):
        world = File(str(tmp_path / "usps.h5"), group=group)
        np.testing.assert_array_equal(world.observe(np.arange(len(world)))[:, 0], IMAGES[part])
        meaning = np.unique(LABELS[part])
        np.testing.assert_array_equal(meaning[world.factors_of(np.arange(len(world)))[:, 0]], LABELS[part])
    with pytest.raises(ValueError, match="but the file holds test/own/data"):
        read(tmp_path / "usps.h5", group="nowhere")
    np.save(tmp_path / "a.npy", IMAGES)
    for path in (tmp_path / "a.npy", tmp_path):
        with pytest.raises(ValueError, match="group='train' names a group of an HDF5 file, and this is not one"):
            read(path, group="train")


def test_hdf5_without_h5py_names_the_extra(tmp_path, monkeypatch) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["images"] = IMAGES
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install polariscope\[hdf5\]"):
        read(tmp_path / "a.h5")


@pytest.mark.spec("001b/D-02")
@pytest.mark.parametrize(
    ("images", "labels"), [("images", "labels"), ("X", "y"), ("x_train", "y_train"), ("data", "targets")]
)
def test_npz_by_the_usual_names(tmp_path, images, labels) -> None:
    world = read(write_npz(tmp_path / "a.npz", **{labels: LABELS, images: IMAGES}))
    np.testing.assert_array_equal(world.observations[:, 0], IMAGES)
    np.testing.assert_array_equal(world.positions[:, 0], LABELS)


def test_npz_with_one_array_of_any_name_and_npy(tmp_path) -> None:
    points = np.random.default_rng(3).normal(size=(7, 3))
    np.save(tmp_path / "b.npy", points)
    for path in (write_npz(tmp_path / "a.npz", whatever=points), tmp_path / "b.npy"):
        np.testing.assert_allclose(read(path).observations, points, rtol=1e-6)


def test_factors_keep_what_they_mean(tmp_path) -> None:
    factors = np.stack([LABELS.astype(int) * 10 - 5, np.arange(12) % 2], axis=1)
    world = read(write_npz(tmp_path / "a.npz", images=IMAGES, factors=factors))
    assert [(f.name, f.size, f.values) for f in world.factors] == [
        ("factor_0", 4, (-5, 5, 15, 25)),
        ("factor_1", 2, ()),
    ]
    np.testing.assert_array_equal(world.positions[:, 0], LABELS)
    continuous = read(write_npz(tmp_path / "b.npz", images=IMAGES, factors=factors * 0.1))
    assert [f.size for f in continuous.factors] == [0, 0]
    words = read(write_npz(tmp_path / "c.npz", images=IMAGES, labels=np.array(["b", "a"] * 6)))
    assert words.positions[:, 0].tolist() == [1, 0] * 6


def test_boolean_images_use_the_full_range(tmp_path) -> None:
    np.save(tmp_path / "a.npy", IMAGES > 127)
    np.testing.assert_array_equal(read(tmp_path / "a.npy").observations[:, 0], (IMAGES > 127) * 255)


def test_folder_of_images_with_labels_from_sub_folders(tmp_path) -> None:
    for row, name in enumerate(["dog/2.png", "cat/1.png", "dog/1.BMP"]):
        write_image(tmp_path / name, IMAGES[row])
    write(tmp_path / "cat" / "notes.txt", b"no image")
    write(tmp_path / "cat" / ".hidden.png", b"no image")
    world = read(tmp_path)
    np.testing.assert_array_equal(world.observations[:, 0], IMAGES[[1, 2, 0]])
    assert world.positions[:, 0].tolist() == [0, 1, 1]
    assert world.factors[0].kind == "categorical"


def test_folder_without_sub_folders_and_with_colour(tmp_path) -> None:
    colour = np.random.default_rng(4).integers(0, 256, (5, 4, 3), dtype=np.uint8)
    write_image(tmp_path / "a.png", colour)
    write_image(tmp_path / "b.png", IMAGES[0])
    world = read(tmp_path)
    assert world.factors == ()
    np.testing.assert_array_equal(world.observations[0], colour.transpose(2, 0, 1))
    np.testing.assert_array_equal(world.observations[1], np.stack([IMAGES[0]] * 3))


def test_folder_resized(tmp_path) -> None:
    write_image(tmp_path / "a.png", np.full((10, 30), 80, np.uint8))
    write_image(tmp_path / "b.png", np.full((16, 16), 200, np.uint8))
    assert "30x10" in refusal(tmp_path)
    world = read(tmp_path, size=8)
    assert world.shape == (1, 8, 8)
    np.testing.assert_array_equal(world.observations[:, 0, 4, 4], [80, 200])
    assert "size is 0" in refusal(tmp_path, size=0)


def test_file_is_a_world_by_name_and_reads_late(tmp_path) -> None:
    world = worlds.build({"name": "file", "path": str(tmp_path / "late.npz")})
    assert isinstance(world, File)
    assert worlds.describe(world) == {
        "name": "file", "path": str(tmp_path / "late.npz"), "size": None, "kinds": {}, "white": None, "group": "",
            "floats": False, "key": "", "image_shape": [], "order": None,
    }  # fmt: skip
    with pytest.raises(FileNotFoundError, match=r"late\.npz"):
        world.observe([0])
    write_npz(tmp_path / "late.npz", images=IMAGES, labels=LABELS)
    assert isinstance(world, World)
    assert len(world) == 12
    assert world.shape == (1, 5, 4)
    assert world.factors[0].name == "label"
    np.testing.assert_array_equal(world.observe([2])[0, 0], IMAGES[2])
    assert world.factors_of([0]).tolist() == [[3]]
    (tmp_path / "late.npz").unlink()
    assert world.observe([1]).shape == (1, 1, 5, 4)


def test_file_resizes_a_folder(tmp_path) -> None:
    write_image(tmp_path / "a.png", IMAGES[0])
    assert File(str(tmp_path), size=6).shape == (1, 6, 6)
    np.save(tmp_path / "a.npy", IMAGES)


def test_a_missing_path_is_a_sentence(tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no file or folder .*absent\.npz.*never downloaded"):
        read(tmp_path / "absent.npz")


@pytest.mark.parametrize(
    ("content", "came"),
    [
        (b"", "it is empty"),
        (b"1.5,2.5\n3,4\n", "it is text: read a table of numbers with numpy.loadtxt"),
        (b"\0\0\x07\x03" + bytes(20), "00 00 07 03"),
        (b"\0\0\x08\x09" + bytes(40), "00 00 08 09"),
        (b"\0\0\x08", "00 00 08"),
        (b"\0\0\x08\x03\0\0", "too short"),
        (idx(IMAGES)[:-20], "too short"),
        (idx(IMAGES)[:16] + bytes(235), "only 235 came"),
        (idx(IMAGES) + b"x", "more came"),
        (b"\0\0\x08\x03" + b"\xff" * 12, "too short"),
        (gzip.compress(b"\0\0\x08\x03" + b"\xff" * 12, mtime=0), "too short"),
        (gzip.compress(idx(IMAGES), mtime=0)[:-30], "cut short or damaged"),
        (gzip.compress(idx(IMAGES), mtime=0)[:5], "cut short or damaged"),
        (gzip.compress(idx(IMAGES)[:-9], mtime=0), "only 231 came"),
        (gzip.compress(b"hello world", mtime=0), "68 65 6c 6c"),
        (idx(LABELS), "12 labels"),
        (idx(np.zeros((0, 5, 4), np.uint8)), "empty"),
        (b"PK\x03\x04 and then nothing", "zip"),
        (b"\x93NUMPY and then nothing", "reading it failed"),
        (b"\x89HDF\r\n\x1a\n and then nothing", "whole HDF5 file"),
    ],
)
def test_broken_files_are_refused_in_a_sentence(tmp_path, content, came) -> None:
    path = write(tmp_path / "broken", content)
    with pytest.raises(ValueError, match="broken") as caught:
        read(path)
    assert came in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_damage_inside_a_gzip_is_noticed(tmp_path) -> None:
    packed = bytearray(gzip.compress(idx(IMAGES)))
    packed[60] ^= 0xFF
    assert "cut short or damaged" in refusal(write(tmp_path / "a.gz", bytes(packed)))


def test_truncated_npz_and_npy(tmp_path) -> None:
    whole = write_npz(tmp_path / "a.npz", images=IMAGES).read_bytes()
    assert "whole npz file" in refusal(write(tmp_path / "b.npz", whole[:-40]))
    np.save(tmp_path / "a.npy", IMAGES)
    whole = (tmp_path / "a.npy").read_bytes()
    assert "whole npy file" in refusal(write(tmp_path / "b.npy", whole[:-40]))


def test_labels_that_do_not_fit(tmp_path) -> None:
    path = write(tmp_path / "t-images-idx3-ubyte", idx(IMAGES))
    write(tmp_path / "t-labels-idx1-ubyte", idx(LABELS[:-2]))
    sentence = refusal(path)
    assert "t-labels-idx1-ubyte: expected 12 labels" in sentence
    assert "(10,)" in sentence
    with pytest.raises(ValueError, match=r"one row per observation \(12\)"):
        read(write_npz(tmp_path / "a.npz", images=IMAGES, labels=LABELS[:-2]))


class Trap:
    """Leaves a mark if it is ever unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple:
        return Path.touch, (self.mark,)


def test_pickled_objects_are_never_loaded(tmp_path) -> None:
    mark = tmp_path / "mark"
    objects = np.array([Trap(mark)], dtype=object)
    np.save(tmp_path / "a.npy", objects, allow_pickle=True)
    assert "without pickled objects" in refusal(tmp_path / "a.npy")
    assert "expected numbers in 'images'" in refusal(write_npz(tmp_path / "a.npz", images=objects))
    assert "expected numbers in 'labels'" in refusal(write_npz(tmp_path / "b.npz", images=IMAGES, labels=objects))
    assert not mark.exists()


def test_foreign_archives(tmp_path) -> None:
    assert "but the file holds a, b" in refusal(write_npz(tmp_path / "a.npz", a=IMAGES, b=IMAGES))
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("images", "text")
    with pytest.raises(ValueError, match=r"b\.zip: expected numbers in 'images'"):
        read(tmp_path / "b.zip")
    with h5py.File(tmp_path / "c.h5", "w") as file:
        file.create_group("images")
    assert "but the file holds nothing" in refusal(tmp_path / "c.h5")
    wide = np.zeros((12, 2, 2), int)
    assert "of shape (12, 2, 2)" in refusal(write_npz(tmp_path / "d.npz", images=IMAGES, factors=wide))


def test_values_that_are_no_numbers(tmp_path) -> None:
    pixels = IMAGES / 255
    pixels[3, 1, 1] = np.nan
    np.save(tmp_path / "a.npy", pixels)
    with pytest.raises(ValueError, match=r"a\.npy: 1 values are NaN"):
        read(tmp_path / "a.npy")
    with pytest.raises(ValueError, match="factors contain NaN"):
        read(write_npz(tmp_path / "b.npz", images=IMAGES, factors=np.full((12, 2), np.nan)))
    with h5py.File(tmp_path / "c.h5", "w") as file:
        file["images"], file["labels"] = np.zeros((2, 64, 64, 3), np.uint8), np.full((2, 6), np.nan)
    with pytest.raises(ValueError, match=r"c\.h5: the factors contain NaN"):
        read(tmp_path / "c.h5")


def test_sprite_values_that_do_not_fit(tmp_path) -> None:
    classes = np.zeros((12, 5), int)
    path = write_npz(tmp_path / "a.npz", imgs=IMAGES, latents_classes=classes, latents_values=classes[:, :4] * 0.5)
    assert "expected latents_values of shape (12, 5), but it is (12, 4)" in refusal(path)


def test_folders_that_cannot_be_read(tmp_path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "holds none" in refusal(empty)
    mixed = write_image(tmp_path / "mixed" / "a.png", IMAGES[0]).parent
    write_image(mixed / "sub" / "b.png", IMAGES[1])
    assert "all images in sub-folders or none" in refusal(mixed)
    deep = write_image(tmp_path / "deep" / "a.png", IMAGES[0].astype(np.uint16) * 200).parent
    assert "expected 8-bit pixels" in refusal(deep)
    cut = write_image(tmp_path / "cut" / "a.png", np.repeat(IMAGES[0], 40, axis=0)).parent
    write(cut / "a.png", (cut / "a.png").read_bytes()[:-60])
    assert "expected a whole image" in refusal(cut)
    write(cut / "a.png", b"no image")
    assert "cannot identify image file" in refusal(cut)


def test_names_of_factors_are_read(tmp_path) -> None:
    path = tmp_path / "named.npz"
    factors = np.array([[0, 1], [1, 0], [1, 2]])
    np.savez(path, x=np.zeros((3, 4), np.float32), factors=factors, factor_names=np.array(["hue", "size"]))
    assert [factor.name for factor in read(path).factors] == ["hue", "size"]
    np.savez(path, x=np.zeros((3, 4), np.float32), factors=factors, factor_names=np.array(["hue"]))
    with pytest.raises(ValueError, match="expected 2 different factor_names"):
        read(path)


def test_images_of_any_file_are_resized(tmp_path) -> None:
    images = np.zeros((5, 28, 28), np.uint8)
    images[:, 7:21, 7:21] = 255
    np.savez(tmp_path / "x.npz", images=images, labels=np.arange(5))
    world = File(str(tmp_path / "x.npz"), size=56)
    assert (len(world), world.shape) == (5, (1, 56, 56))
    shown = world.observe([0])[0, 0]
    assert shown[28, 28] == 255
    assert shown[3, 3] == 0
    assert shown.mean() == pytest.approx(images.mean(), rel=0.02)
    assert File(str(tmp_path / "x.npz"), size=14).observe([4, 1]).shape == (2, 1, 14, 14)
    np.save(tmp_path / "points.npy", np.zeros((5, 3)))
    with pytest.raises(ValueError, match="resizes images, and this file holds points"):
        _ = File(str(tmp_path / "points.npy"), size=8).shape


def test_a_folder_says_what_its_images_do_not_show(tmp_path) -> None:
    """Without sub-folders only the order tells images apart, and by its letters img10 comes before img2."""
    for number in range(12):
        Image.fromarray(np.full((12, 12, 4), 9 * number, np.uint8)).save(tmp_path / f"img{number}.png")
    notes = " ".join(read(tmp_path).assumed)
    assert "img10.png comes before img2.png" in notes
    assert "transparency of images is not used" in notes
    (tmp_path / "padded").mkdir()
    for number in range(12):
        Image.fromarray(np.full((12, 12), 9 * number, np.uint8)).save(tmp_path / "padded" / f"img{number:02d}.png")
    assert not any("order" in note or "transparen" in note for note in read(tmp_path / "padded").assumed)
