"""Folders of data files: MNIST is one world with its own split, of all others the file to give is named."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from polariscope import RunConfig
from polariscope.testing import check_world
from polariscope.worlds.readers.files import File, read
from polariscope.worlds.splits import OwnSplit, RandomSplit, SplitPart
from polariscope.worlds.views.augmented import Augmented
from polariscope.worlds.world import ArrayWorld

IMAGES = np.random.default_rng(0).integers(0, 256, (30, 5, 4), dtype=np.uint8)
LABELS = (np.arange(30) % 4).astype(np.uint8)
TRAIN, TEST = slice(0, 22), slice(22, 30)
NAMES = {"train": TRAIN, "t10k": TEST}


def write_idx(path: Path, array: np.ndarray) -> Path:
    content = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def write_mnist(folder: Path, suffix: str = "", dot: str = "-", test: str = "t10k") -> Path:
    for part, rows in (("train", TRAIN), (test, TEST)):
        write_idx(folder / f"{part}-images{dot}idx3-ubyte{suffix}", IMAGES[rows])
        write_idx(folder / f"{part}-labels{dot}idx1-ubyte{suffix}", LABELS[rows])
    (folder / "README.md").write_text("words about it")
    return folder


@pytest.mark.parametrize(("suffix", "dot", "test"), [("", "-", "t10k"), (".gz", "-", "t10k"), ("", ".", "test")])
def test_the_files_of_mnist_are_one_world_with_its_own_split(tmp_path, suffix, dot, test) -> None:
    world = read(write_mnist(tmp_path, suffix, dot, test))
    np.testing.assert_array_equal(world.observe(np.arange(30))[:, 0], IMAGES)
    np.testing.assert_array_equal(world.factors_of(np.arange(30))[:, 0], LABELS)
    np.testing.assert_array_equal(world.held_out, np.arange(22, 30))
    assert world.assumed[0].startswith(f"train-images{dot}idx3-ubyte{suffix} (22 images) and {test}-images")
    assert "unless another split is named (split=, --split)" in world.assumed[0]
    check_world(world)


def test_of_a_file_that_is_there_plain_and_packed_one_is_read(tmp_path) -> None:
    write_mnist(tmp_path)
    assert len(read(write_mnist(tmp_path, ".gz"))) == 30


def test_the_test_part_is_kept_by_default(tmp_path) -> None:
    world = File(str(write_mnist(tmp_path)))
    config = RunConfig(world)
    assert config.split == OwnSplit()
    parts = config.split.parts(world)
    assert sorted(parts.held_out) == list(range(22, 30))
    assert sorted(parts.train) == list(range(22))
    assert RunConfig.build(config.describe()).split == OwnSplit()
    assert RunConfig(world, split=RandomSplit(0.5)).split == RandomSplit(0.5)
    assert RunConfig(Augmented(world, flip="both")).split == OwnSplit(), "a view looks at what it looks at"
    assert RunConfig(ArrayWorld(IMAGES)).split == RandomSplit()


def test_the_test_part_is_found_through_views_that_number_anew(tmp_path) -> None:
    world = File(str(write_mnist(tmp_path)))
    half = SplitPart(world, RandomSplit(0.5), "train")
    parts = OwnSplit().parts(half)
    assert {int(half.there([number])[0]) for number in parts.held_out} == set(half.there(np.arange(15))) & set(
        range(22, 30)
    )
    with pytest.raises(ValueError, match="leaves 0 observations to train on"):
        OwnSplit().parts(SplitPart(world, OwnSplit()))
    for other in (ArrayWorld(IMAGES), File(str(tmp_path / "train-images-idx3-ubyte"))):
        with pytest.raises(ValueError, match=r"use another split \(split=RandomSplit\(\), --split random"):
            OwnSplit().parts(other)


def test_parts_that_do_not_belong_together_are_refused(tmp_path) -> None:
    write_mnist(tmp_path)
    write_idx(tmp_path / "t10k-images-idx3-ubyte", IMAGES[TEST, :4])
    with pytest.raises(ValueError, match=r"t10k-images.*expected images of shape \(5, 4\) .* but they are \(4, 4\)"):
        read(tmp_path)
    write_idx(tmp_path / "t10k-images-idx3-ubyte", IMAGES[TEST])
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(ValueError, match=r"t10k-images.*labels beside both files or neither"):
        read(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").unlink()
    assert read(tmp_path).factors == ()


def test_other_files_of_data_are_named(tmp_path) -> None:
    write_idx(tmp_path / "train-images-idx3-ubyte", IMAGES)
    write_idx(tmp_path / "train-labels-idx1-ubyte", LABELS)
    with pytest.raises(ValueError, match=r"holds 2 files of data; give one of them: \S+train-images-idx3-ubyte$"):
        read(tmp_path)
    raw = tmp_path / "above" / "raw"
    raw.mkdir(parents=True)
    write_mnist(raw)
    with pytest.raises(ValueError, match=r"give one of them: \S+raw/t10k-images-idx3-ubyte or \S+raw/train-images"):
        read(tmp_path / "above")
    archives = tmp_path / "archives"
    archives.mkdir()
    np.savez(archives / "a.npz", images=IMAGES)
    np.save(archives / "b.npy", IMAGES)
    (archives / "notes.gz").write_bytes(gzip.compress(b"words"))
    with pytest.raises(ValueError, match=r"holds 2 files of data; give one of them: \S+a\.npz or \S+b\.npy$"):
        read(archives)


@pytest.mark.parametrize("data", ["train-images-idx3-ubyte", "a.npz"])
def test_images_and_files_of_data_are_not_mixed(tmp_path, data) -> None:
    Image.fromarray(IMAGES[0]).save(tmp_path / "sample.png")
    assert len(read(tmp_path)) == 1
    if data == "a.npz":
        np.savez(tmp_path / data, images=IMAGES)
    else:
        write_mnist(tmp_path)
    with pytest.raises(ValueError, match=r"holds both, such as sample\.png and \S+; give the file \S+, or move") as no:
        read(tmp_path)
    assert "\n" not in str(no.value)


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_real_folders(real_data, name) -> None:
    world = File(str(real_data(name)))
    assert (len(world), world.shape, world.called) == (70_000, (1, 28, 28), name)
    labels = world.factors_of(np.arange(70_000))[:, 0]
    parts = RunConfig(world).split.parts(world)
    assert (len(parts.train), len(parts.held_out)) == (60_000, 10_000)
    assert np.bincount(labels[:60_000])[0] == {"mnist": 5923, "fashion_mnist": 6000}[name]
    assert np.bincount(labels[parts.held_out])[0] == {"mnist": 980, "fashion_mnist": 1000}[name]
