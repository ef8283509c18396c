"""Readers on damaged files: a result, or a sentence that names the file, in little memory and time, without noise."""

import gzip
import io
import os
import struct
import zipfile
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from scipy.io import savemat

from polariscope.cli.parsing import read_toml
from polariscope.damaged_files import damages
from polariscope.lab import Store
from polariscope.nets.architecture import MLP
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.studies.rows import Table
from polariscope.studies.study import Origin
from polariscope.studies.tables import read_table, write_table
from polariscope.subjects.weights import read_weights
from polariscope.testing import check_reader
from polariscope.training import RunConfig, TrainingConfig, load_model, train
from polariscope.worlds import ArrayWorld
from polariscope.worlds.readers.files import read
from polariscope.worlds.readers.video import read_videos
from polariscope.worlds.renderers.mini_sprites import MiniSprites
from polariscope.worlds.splits import FileSplit

SOME, MANY = 24, 400
IMAGES = np.random.default_rng(0).integers(0, 256, (40, 12, 10), dtype=np.uint8)
LABELS = np.random.default_rng(1).integers(0, 4, 40).astype(np.uint8)


def look(path: Path) -> None:
    """Read what is there, also what is read late."""
    world = read(path)
    numbers = np.unique(np.linspace(0, len(world) - 1, 50).astype(np.int64))
    world.observe(numbers)
    world.factors_of(numbers)


def idx(path: Path, pack=bytes) -> None:
    header = bytes([0, 0, 8, 3]) + struct.pack(">3I", *IMAGES.shape)
    path.write_bytes(pack(header + IMAGES.tobytes()))


def hdf5(path: Path, **layout) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("part/images", data=IMAGES, **layout)
        file.create_dataset("part/labels", data=LABELS)
        file["images"], file["labels"] = IMAGES, LABELS


def mat73(path: Path) -> None:
    with h5py.File(path, "w", userblock_size=512) as file:
        file.create_dataset("images", data=IMAGES.T).attrs["MATLAB_class"] = np.bytes_("uint8")
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")


def folder(path: Path, suffix: str, **options) -> None:
    for number in range(2):
        (path / "ab"[number]).mkdir(parents=True)
        Image.fromarray(IMAGES[number]).resize((30, 36)).save(path / "ab"[number] / f"{number}.{suffix}", **options)


MAKERS = {
    "a.npy": lambda path: np.save(path, IMAGES),
    "stored.npz": lambda path: np.savez(path, images=IMAGES, labels=LABELS),
    "packed.npz": lambda path: np.savez_compressed(path, images=IMAGES, labels=LABELS, factor_names=np.array(["hue"])),
    "images-idx3-ubyte": idx,
    "images-idx3-ubyte.gz": lambda path: idx(path, gzip.compress),
    "plain.h5": hdf5,
    "packed.h5": lambda path: hdf5(path, chunks=(8, 12, 10), compression="gzip", shuffle=True, fletcher32=True),
    "plain.mat": lambda path: savemat(path, {"images": IMAGES, "labels": LABELS}),
    "packed.mat": lambda path: savemat(path, {"images": IMAGES, "labels": LABELS}, do_compression=True),
    "hdf5.mat": mat73,
    "png": lambda path: folder(path, "png"),
    "jpeg": lambda path: folder(path, "jpg"),
    "gif": lambda path: folder(path, "gif"),
    "bmp": lambda path: folder(path, "bmp"),
    "pgm": lambda path: folder(path, "pgm"),
    "webp": lambda path: folder(path, "webp"),
    "tiff": lambda path: folder(path, "tif"),
    "tiff-lzw": lambda path: folder(path, "tif", compression="tiff_lzw"),
    "tiff-deflate": lambda path: folder(path, "tif", compression="tiff_adobe_deflate"),
}
WEIGHTS = {"a.weight": torch.arange(12.0).reshape(3, 4), "a.bias": torch.ones(3), "b": torch.ones(5, dtype=torch.int64)}
OTHERS = {
    "a.safetensors": (lambda path: save_file(WEIGHTS, path), read_weights),
    "a.pt": (lambda path: torch.save(WEIGHTS, path), read_weights),
    "legacy.pt": (lambda path: torch.save(WEIGHTS, path, _use_new_zipfile_serialization=False), read_weights),
    "masks.npz": (
        lambda path: np.savez_compressed(path, masks=IMAGES, sequence=LABELS),
        lambda path: list(read_videos(path)),
    ),
}


TABLE = Table([{"seed": 1, "x": 0.5, "y": [1, 2]}] * 3)


def run_folder(path: Path) -> None:
    config = RunConfig(MiniSprites(), model=AutoencoderConfig(2, MLP((4,), (4,))), training=TrainingConfig(steps=2))
    train(config, Store(path.parent), run_id=path.name, quiet=True)


def open_run(path: Path) -> None:
    """What a look at a run of somebody else reads."""
    run = Store(path.parent).open(path.name)
    run.metrics()
    load_model(run)


OTHERS |= {
    "run": (run_folder, open_run),
    "table.parquet": (
        lambda path: write_table(
            path, Table([{"seed": 1, "x": 0.5, "y": [1, 2]}] * 3), Origin("toy", "smoke", 1, 2.0, {})
        ),
        read_table,
    ),
    "run.toml": (
        lambda path: path.write_text('[world]\nname = "mini-sprites"\n[training]\nsteps = 100\nlearning_rate = 1e-3\n'),
        lambda path: read_toml(str(path)),
    ),
}


@pytest.mark.parametrize("name", MAKERS)
def test_damaged_data_is_read_or_refused(tmp_path, name) -> None:
    MAKERS[name](tmp_path / name)
    check_reader(look, [tmp_path / name], count=SOME)


@pytest.mark.parametrize("name", OTHERS)
def test_other_damaged_files_are_read_or_refused(tmp_path, name) -> None:
    make, reader = OTHERS[name]
    make(tmp_path / name)
    check_reader(reader, [tmp_path / name], count=SOME)


@pytest.mark.deep
@pytest.mark.parametrize("name", [*MAKERS, *OTHERS])
def test_much_damaged_files_are_read_or_refused(tmp_path, name) -> None:
    make, reader = OTHERS.get(name) or (MAKERS[name], look)
    make(tmp_path / name)
    for seed in range(1, 4):
        check_reader(reader, [tmp_path / name], count=MANY, seed=seed)


def test_damages_come_again_and_differ(tmp_path) -> None:
    content = bytes(range(256)) * 4
    tried = [damage.content for damage in damages(content, 50, seed=3)]
    assert tried == [damage.content for damage in damages(content, 50, seed=3)]
    assert len(set(tried)) > 45
    assert sum(changed == content for changed in tried) <= 2


def _traceback(path: Path) -> None:
    if path.read_bytes() != IMAGES.tobytes():
        raise KeyError("node")


def _nameless(path: Path) -> None:
    if path.read_bytes() != IMAGES.tobytes():
        raise ValueError("it is damaged")


def _greedy(path: Path) -> None:
    if path.read_bytes() != IMAGES.tobytes():
        np.ones(2**33, np.uint8)  # more than a process that was large before has lying about


def _slow(path: Path) -> None:
    while path.read_bytes() != IMAGES.tobytes():
        pass


def _noisy(path: Path) -> None:
    if path.read_bytes() != IMAGES.tobytes():
        os.write(2, b"libfoo: bad magic")


def _deadly(path: Path) -> None:
    if path.read_bytes() != IMAGES.tobytes():
        os.abort()


@pytest.mark.parametrize(
    ("reader", "fault"),
    [
        (_traceback, r"raises KeyError \('node'\) in .*test_damaged_files"),
        (_nameless, "refuses it without naming the file in one line: it is damaged"),
        (_greedy, "raises MemoryError"),
        (_slow, "does not end within 1 s"),
        (_noisy, "writes 'libfoo: bad magic'"),
        (_deadly, "ends the process with SIGABRT"),
    ],
)
def test_a_reader_that_breaks_its_promise_is_caught_at_it(tmp_path, reader, fault) -> None:
    (tmp_path / "a.raw").write_bytes(IMAGES.tobytes())
    with pytest.raises(AssertionError, match=f"a.raw with .*the reader {fault}"):
        check_reader(reader, [tmp_path / "a.raw"], count=3, memory=2**27, seconds=1)


def refused(path: Path, **options) -> str:
    with pytest.raises(ValueError, match="expected|unpacking") as caught:
        read(path, **options)
    sentence = str(caught.value)
    assert path.name in sentence
    assert "\n" not in sentence
    return sentence


def test_pipes_devices_and_sockets_are_never_opened(tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe.npz")
    assert "it is a pipe" in refused(tmp_path / "pipe.npz")
    assert "it is a device" in refused(Path("/dev/zero"))
    (tmp_path / "images").mkdir()
    os.mkfifo(tmp_path / "images" / "pipe.png")
    with pytest.raises(ValueError, match=r"pipe\.png: expected a regular file"):
        read(tmp_path / "images")
    with pytest.raises(ValueError, match=r"pipe\.npz: expected a regular file"):
        list(read_videos(tmp_path / "pipe.npz"))


SECRET = b"a secret of this machine" * 20


def test_hdf5_shows_no_other_file(tmp_path) -> None:
    (tmp_path / "secret").write_bytes(SECRET)
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["images"] = IMAGES
    with h5py.File(tmp_path / "external.h5", "w") as file:
        file.create_dataset("images", (4, 10, 12), np.uint8, external=[(tmp_path / "secret", 0, 480)])
    assert f"'images' names the file '{tmp_path}/secret'" in refused(tmp_path / "external.h5")
    layout = h5py.VirtualLayout((40, 12, 10), np.uint8)
    layout[:] = h5py.VirtualSource(tmp_path / "other.h5", "images", (40, 12, 10))
    with h5py.File(tmp_path / "virtual.h5", "w") as file:
        file.create_virtual_dataset("images", layout)
    assert "'images' is virtual; other files are never read through it" in refused(tmp_path / "virtual.h5")
    with h5py.File(tmp_path / "link.h5", "w") as file:
        file["images"] = h5py.ExternalLink(tmp_path / "other.h5", "images")
    assert f"'images' is a link to '{tmp_path}/other.h5'" in refused(tmp_path / "link.h5")
    with h5py.File(tmp_path / "labels.h5", "w") as file:
        file["images"] = IMAGES
        file.create_dataset("labels", (40,), np.uint8, external=[(tmp_path / "secret", 0, 40)])
    assert "'labels' names the file" in refused(tmp_path / "labels.h5")


@pytest.mark.parametrize("layout", [{}, {"chunks": (64, 64, 64), "compression": "gzip"}], ids=["plain", "packed"])
def test_what_hdf5_never_stored_takes_no_memory(tmp_path, layout) -> None:
    """A file of some kilobytes declares 4 GB: a few rows are read, and all of them never."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("images", (2**20, 64, 64), np.uint8, **layout)
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["images"] = IMAGES
        file.create_dataset("labels", (2**32,), np.uint8)
    assert (tmp_path / "a.h5").stat().st_size < 10_000
    check_reader(look, [tmp_path / "a.h5"], count=0, memory=2**29)
    assert "the file stores next to nothing of the 4.3 GB" in refused(tmp_path / "b.h5")


def test_bombs_are_refused_before_they_are_unpacked(tmp_path, monkeypatch) -> None:
    header = bytes([0, 0, 8, 3]) + struct.pack(">3I", 2**20, 64, 64)
    (tmp_path / "a.gz").write_bytes(gzip.compress(header + bytes(2**22)) + bytes(2**22))
    assert "would unpack to 4.3 GB; if this is intended" in refused(tmp_path / "a.gz")
    monkeypatch.setattr("polariscope.worlds.capacity.LARGE", 2**20)
    np.savez_compressed(tmp_path / "b.npz", images=np.zeros((2**10, 64, 64), np.uint8))
    assert "would unpack to 0.00 GB" in refused(tmp_path / "b.npz")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    MAKERS["png"](tmp_path / "png")
    with pytest.raises(ValueError, match=r"expected a whole image, but reading it failed: Image size \(1080 pixels\)"):
        read(tmp_path / "png")


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({2**70}, 8)}}", "the data is too short for that"),
        ("{'descr': '|u1', 'fortran_order': False, 'shape': (-3, -8)}", "shape (-3, -8)"),
        (f"{{'descr': '|S0', 'fortran_order': False, 'shape': ({2**40},)}}", "shape (1099511627776,)"),
        ("{'descr': '|u1', 'fortran_order': False, 'shape': (3, ", "header"),
        ("{'descr': '|u1', 'fortran_order': False, 'shape': (3 8)}", "header"),
        ("{'descr': ('|u1', (2, 3", "header"),
        ("(" * 3000, "header"),
        ("\xff\x00", "header"),
    ],
    ids=["2^70", "negative", "nothing", "cut", "grammar", "brackets", "deep", "bytes"],
)
def test_strange_headers_of_npy_files(tmp_path, header, reason) -> None:
    words = header.encode("latin1") + b"\n"
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(words)) + words + bytes(24)
    (tmp_path / "a.npy").write_bytes(content)
    assert reason in refused(tmp_path / "a.npy").replace("Header", "header")
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("images.npy", content)
    assert "expected numbers in 'images'" in refused(tmp_path / "a.npz")


def test_archives_that_numpy_did_not_pack(tmp_path) -> None:
    array = io.BytesIO()
    np.save(array, IMAGES)
    for method in (zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2):
        with zipfile.ZipFile(tmp_path / "a.npz", "w", method) as archive:
            archive.writestr("images.npy", array.getvalue())
        assert "compressed in another way than NumPy does" in refused(tmp_path / "a.npz")
    with zipfile.ZipFile(tmp_path / "b.npz", "w") as archive:
        archive.writestr("images.npy", array.getvalue())
    content = bytearray((tmp_path / "b.npz").read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1  # the flag of encryption
    (tmp_path / "b.npz").write_bytes(content)
    assert "it is encrypted" in refused(tmp_path / "b.npz")


def test_a_single_number_is_no_column_of_labels(tmp_path) -> None:
    np.savez(tmp_path / "a.npz", images=IMAGES, labels=np.array(3))
    assert "expected numbers in 'labels', but reading it failed: it is a single number" in refused(tmp_path / "a.npz")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["images"], file["labels"] = IMAGES, 3
    assert "it is a single number" in refused(tmp_path / "a.h5")


def test_only_formats_of_images_are_decoded(tmp_path) -> None:
    """Pillow would hand an EPS file to Ghostscript, whatever it is called."""
    (tmp_path / "images").mkdir()
    Image.fromarray(IMAGES[0]).convert("RGB").save(tmp_path / "images" / "a.eps")
    (tmp_path / "images" / "a.eps").rename(tmp_path / "images" / "a.png")
    with pytest.raises(ValueError, match=r"a\.png: expected a whole image"):
        read(tmp_path / "images")


def test_libtiff_writes_nothing_by_itself(tmp_path, capfd) -> None:
    MAKERS["tiff-deflate"](tmp_path / "tiff")
    file = tmp_path / "tiff" / "a" / "0.tif"
    content = bytearray(file.read_bytes())
    content[20:60] = bytes(40)
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"0\.tif: expected a whole image"):
        look(tmp_path / "tiff")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("packed", [False, True])
def test_numbers_of_an_unknown_type_do_not_end_the_process(tmp_path, packed) -> None:
    """SciPy takes the type of numbers in a MATLAB file for a place in a table, wherever that leads."""
    savemat(tmp_path / "a.mat", {"images": IMAGES})
    content = bytearray((tmp_path / "a.mat").read_bytes())
    content[192:196] = bytes(4)
    if packed:
        element = zlib.compress(content[128:])
        content[128:] = struct.pack("<II", 15, len(element)) + element
    (tmp_path / "a.mat").write_bytes(content)
    assert "an array has numbers of the unknown type 0" in refused(tmp_path / "a.mat")


def test_a_split_is_read_from_no_pipe(tmp_path) -> None:
    for name in ("rows.npy", "rows.txt"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(ValueError, match="expected a regular file, but it is a pipe"):
            FileSplit(str(tmp_path / name)).parts(ArrayWorld(np.eye(4)))
