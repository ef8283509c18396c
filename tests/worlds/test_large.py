"""Data larger than memory: read in place, or refused in a sentence before any memory is taken."""

import gzip
import multiprocessing
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

from polariscope import representation
from polariscope.cli import commands, main
from polariscope.lab.store import Store
from polariscope.memory import available_memory
from polariscope.objectives.vae import VAE
from polariscope.representation import represent
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.loop import Feed
from polariscope.training.run import train, train_in_memory
from polariscope.worlds import ArrayWorld, capacity, observations, worlds
from polariscope.worlds.capacity import check_images
from polariscope.worlds.given import as_world
from polariscope.worlds.readers import idx
from polariscope.worlds.readers.files import File, read
from polariscope.worlds.readers.hdf5 import Hdf5Rows
from polariscope.worlds.readers.image_folder import ImageRows

IMAGES = np.random.default_rng(0).integers(0, 256, (40, 6, 5), dtype=np.uint8)
SCATTERED = np.array([39, 0, 7, 7, 20, 1])


@pytest.fixture
def in_place(monkeypatch):
    """Everything counts as large."""
    monkeypatch.setattr(observations, "HELD", 100)


# Three gigabytes of file in a process that never grows by a tenth of it

SCRIPT = """
import sys
import numpy as np
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.memory import available_memory
from polariscope.objectives.vae import VAE
from polariscope.representation import represent
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.run import train_in_memory
from polariscope.worlds import ArrayWorld, observations
from polariscope.worlds.readers.files import File

def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))

def train(world):
    training = TrainingConfig(steps=4, batch_size=32, evaluate_every=4, threads=1)
    train_in_memory(RunConfig(world, VAE(), AutoencoderConfig(latents=2), training))

observations.available_memory = lambda: 2**30  # so that packed data is read in place, too
train(ArrayWorld(np.random.default_rng(0).integers(0, 256, (64, 3, 32, 32), np.uint8)))  # what torch takes for itself
before = peak()
for path in sys.argv[1:]:
    world = File(path)
    assert world.shape == (3, 32, 32) and len(world) == 2**20, (world.shape, len(world))
    for seed in range(5):
        batch = world.observe(np.random.default_rng(seed).integers(len(world), size=64))
        assert batch.shape == (64, 3, 32, 32)
    assert [int(image.max()) for image in world.observe([2**20 - 1, 0, 2**19])] == [255, 0, 255], path
    train(world)
    print(path, (peak() - before) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of its memory from /proc")
def test_three_gigabytes_are_observed_and_trained_on_in_a_tenth_of_it(tmp_path) -> None:
    shape = (2**20, 3, 32, 32)
    written = {2**20 - 1: 255, 2**19: 255}  # all else is zeros, which take no room on the disk
    array = np.lib.format.open_memmap(tmp_path / "large.npy", "w+", np.uint8, shape)
    with h5py.File(tmp_path / "plain.h5", "w") as plain, h5py.File(tmp_path / "packed.h5", "w") as packed:
        datasets = [
            array,
            plain.create_dataset("images", shape, np.uint8),
            packed.create_dataset("images", shape, np.uint8, chunks=(64, 3, 32, 32), compression="gzip"),
        ]
        for dataset in datasets:
            for row, value in written.items():
                dataset[row] = value
    paths = [str(tmp_path / name) for name in ("large.npy", "plain.h5", "packed.h5")]
    done = subprocess.run([sys.executable, "-c", SCRIPT, *paths], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    growth = [int(line.split()[-1]) for line in done.stdout.splitlines()]
    assert len(growth) == 3
    assert max(growth) < 300, f"MiB: {growth}"


# Each format in place


def test_stored_archives_are_mapped_and_packed_ones_unpacked_where_they_fit(tmp_path, in_place, monkeypatch) -> None:
    labels = np.arange(40) % 3
    np.savez(tmp_path / "stored.npz", images=IMAGES, labels=labels)
    np.savez(tmp_path / "fortran.npz", images=np.asfortranarray(IMAGES), labels=labels)
    np.savez_compressed(tmp_path / "packed.npz", images=IMAGES, labels=labels)
    for name in ("stored", "fortran", "packed"):
        world = read(tmp_path / f"{name}.npz")
        np.testing.assert_array_equal(world.observe(SCATTERED)[:, 0], IMAGES[SCATTERED])
        np.testing.assert_array_equal(world.factors_of(SCATTERED)[:, 0], labels[SCATTERED])
        rows = getattr(world.observations, "rows", world.observations)
        assert isinstance(rows, np.memmap) == (name != "packed")
    monkeypatch.setattr(capacity, "available_memory", lambda: 1000)
    assert len(read(tmp_path / "stored.npz")) == 40
    with pytest.raises(ValueError, match=r"packed\.npz: .*images.* unpacking it takes 0\.00 GB, .*np\.savez") as caught:
        read(tmp_path / "packed.npz")
    assert "\n" not in str(caught.value)


def test_a_mapped_archive_of_objects_is_refused(tmp_path, in_place) -> None:
    np.savez(tmp_path / "a.npz", images=np.array([{"no": "numbers"}] * 99, dtype=object))
    with pytest.raises(ValueError, match="expected numbers in 'images'"):
        read(tmp_path / "a.npz")


def test_plain_idx_is_mapped_and_gzip_unpacked_where_it_fits(tmp_path, in_place, monkeypatch) -> None:
    content = bytes([0, 0, 8, 3, 0, 0, 0, 40, 0, 0, 0, 6, 0, 0, 0, 5]) + IMAGES.tobytes()
    (tmp_path / "images").write_bytes(content)
    (tmp_path / "images.gz").write_bytes(gzip.compress(content))
    assert isinstance(idx.read_idx(tmp_path / "images"), np.memmap)
    for name in ("images", "images.gz"):
        np.testing.assert_array_equal(read(tmp_path / name).observe(SCATTERED)[:, 0], IMAGES[SCATTERED])
    monkeypatch.setattr(capacity, "available_memory", lambda: 1000)
    assert len(read(tmp_path / "images")) == 40
    with pytest.raises(ValueError, match=r"images\.gz: unpacking it takes"):
        read(tmp_path / "images.gz")


@pytest.mark.parametrize("layout", [{}, {"chunks": (7, 6, 5)}, {"chunks": (16, 2, 5), "compression": "gzip"}], ids=str)
def test_hdf5_rows_come_in_any_order_a_chunk_at_a_time(tmp_path, layout) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("images", data=IMAGES, **layout)
    rows = Hdf5Rows(tmp_path / "a.h5", "images")
    for index in (SCATTERED, np.arange(40), np.array([5]), np.array([], np.int64)):
        np.testing.assert_array_equal(rows[index], IMAGES[index])
    np.testing.assert_array_equal(rows[3:9], IMAGES[3:9])
    reads = []

    class Watched:
        def __getitem__(self, part: slice) -> np.ndarray:
            reads.append((int(part.start), int(part.stop)))
            return IMAGES[part]

    rows._opened = (os.getpid(), None, Watched())
    rows[SCATTERED]
    expected = {7: [(0, 2), (7, 8), (20, 21), (39, 40)], 16: [(0, 8), (20, 21), (39, 40)]}
    assert reads == expected.get(layout.get("chunks", [0])[0], [(0, 40)]), "one read a chunk, or of near neighbours"


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_opens_an_hdf5_file_anew(tmp_path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("images", data=IMAGES, chunks=(4, 6, 5))
    rows = Hdf5Rows(tmp_path / "a.h5", "images")
    inherited = rows._dataset()

    def look() -> None:
        theirs.send((rows[SCATTERED], rows._dataset() is inherited))

    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=look)
    child.start()
    assert ours.poll(60), "the child did not answer"
    observed, same = ours.recv()
    child.join()
    np.testing.assert_array_equal(observed, IMAGES[SCATTERED])
    assert not same, "two processes must not read through one handle"
    assert rows._dataset() is inherited
    np.testing.assert_array_equal(rows[SCATTERED], IMAGES[SCATTERED])


def test_worlds_are_sent_without_their_data(tmp_path, in_place, monkeypatch) -> None:
    monkeypatch.setattr(observations, "available_memory", lambda: 1000)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("images", data=np.tile(IMAGES, (50, 1, 1)), chunks=(4, 6, 5))
    world = File(str(tmp_path / "a.h5"), white=255.0)
    expected = world.observe(SCATTERED)
    for sent in (world, world.world, worlds.build(worlds.describe(world))):
        packed = pickle.dumps(sent)
        assert len(packed) < 20_000, "60 kB of images stay behind"
        np.testing.assert_array_equal(pickle.loads(packed).observe(SCATTERED), expected)
    monkeypatch.undo()
    held = File(str(tmp_path / "a.h5"))
    assert isinstance(held.world.observations, np.ndarray)
    assert len(pickle.dumps(held)) < 1000


# Folders of images


def save_images(folder: Path, images: np.ndarray) -> None:
    for number, image in enumerate(images):
        Image.fromarray(image).save(folder / f"{number:03d}.png")


def test_a_large_folder_is_decoded_as_it_is_asked_for(tmp_path, in_place, monkeypatch) -> None:
    save_images(tmp_path, IMAGES)
    decoded = []
    pixels = ImageRows._pixels
    monkeypatch.setattr(ImageRows, "_pixels", lambda self, image: decoded.append(image.filename) or pixels(self, image))
    monkeypatch.setattr(observations, "SAMPLED", 5)
    world = read(tmp_path)
    assert len(decoded) <= 5
    np.testing.assert_array_equal(world.observe(SCATTERED)[:, 0], IMAGES[SCATTERED])
    assert "(inferred from" in world.assumed[0]


def test_decoded_images_are_kept_up_to_a_size(tmp_path, monkeypatch) -> None:
    save_images(tmp_path, IMAGES[:10])
    decoded = []
    pixels = ImageRows._pixels
    monkeypatch.setattr(ImageRows, "_pixels", lambda self, image: decoded.append(image.filename) or pixels(self, image))
    rows = ImageRows(sorted(tmp_path.iterdir()), "L", (5, 6), kept=4 * 30)
    for _ in range(3):
        np.testing.assert_array_equal(rows[np.arange(10)][:, 0], IMAGES[:10])
    assert len(decoded) == 10 + 2 * 6, "four are kept, six are decoded every time"
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(rows))[[3]][0, 0], IMAGES[3])


def test_images_too_large_for_the_machine_are_refused_before_they_are_decoded(tmp_path, monkeypatch) -> None:
    save_images(tmp_path, np.zeros((3, 300, 200), np.uint8))
    monkeypatch.setattr(capacity, "available_memory", lambda: 20_000_000)
    monkeypatch.setattr(ImageRows, "_pixels", lambda self, image: pytest.fail("an image was decoded"))
    with pytest.raises(ValueError, match="too large for this machine") as caught:
        read(tmp_path)
    sentence = str(caught.value)
    # 60,000 pixels, 3 images of 320 bytes a pixel and a network of 512.
    for fact in (
        str(tmp_path),
        "200x300 pixels",
        "a batch of 3",
        "0.09 GB",
        "the set of 3",
        "0.02 GB are free",
        "--world.size 64",
    ):
        assert fact in sentence
    assert "\n" not in sentence
    monkeypatch.undo()
    monkeypatch.setattr(capacity, "available_memory", lambda: 20_000_000)
    assert read(tmp_path, size=64).shape == (1, 64, 64), "what the sentence advises is accepted"


def test_a_batch_of_images_is_weighed_by_its_size(monkeypatch) -> None:
    monkeypatch.setattr(capacity, "available_memory", lambda: 64 * 64 * (64 * 320 + 512))
    check_images((3, 64, 64), 1000, "set", batch_size=64)
    check_images((3, 256, 256), 1, "set", batch_size=64)
    check_images((10_000,), 10**9, "points", batch_size=10**6)
    with pytest.raises(ValueError, match=r"64x65 pixels .* a batch of 64 .* 32x32 pixels would fit"):
        check_images((3, 65, 64), 1000, "set", batch_size=64)


def test_training_on_too_large_images_is_refused_before_a_network_is_built(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(capacity, "available_memory", lambda: 10**8)
    world = worlds.build({"name": "sprites"})
    config = RunConfig(world, VAE(), training=TrainingConfig(steps=1, batch_size=256))
    monkeypatch.setattr(VAE, "build", lambda *_: pytest.fail("a network was built"))
    for train_it in (lambda: train(config, Store(tmp_path)), lambda: train_in_memory(config)):
        with pytest.raises(
            ValueError, match=r"a batch of 256 .*--world.size 16.* smaller batch_size .--training.batch"
        ):
            train_it()
    assert not any(tmp_path.iterdir())


def test_large_images_are_rendered_a_few_batches_at_a_time() -> None:
    asked = []

    class Large(ArrayWorld):
        def observe(self, index):
            asked.append(len(index))
            return super().observe(index)

    def most_at_once(side: int) -> int:
        world = Large(np.broadcast_to(np.uint8(200), (8, 3, side, side)))
        asked.clear()
        feed = Feed(world, np.arange(8), TrainingConfig(steps=20, batch_size=4))
        object.__setattr__(feed, "_kept", None)
        steps = list(feed.steps(0, 20))
        assert [step for step, _ in steps] == list(range(20))
        assert sum(asked) == 80
        return max(asked)

    assert most_at_once(8) == 16 * 4
    assert most_at_once(512) == 5 * 4, "as floats five batches of four take 63 MB"


def test_large_observations_are_represented_batch_by_batch(monkeypatch) -> None:
    asked, encoded = [], []

    class Watched(ArrayWorld):
        def observe(self, index):
            asked.append(len(index))
            return super().observe(index)

    class Means(torch.nn.Module):
        def encode(self, x):
            encoded.append(len(x))
            return x.flatten(1)[:, :3]

    world = Watched(IMAGES, np.arange(40) % 4)
    at_once = represent(Means(), world, count=30)
    assert max(asked) == 30
    asked.clear()
    monkeypatch.setattr(representation, "AT_ONCE", 4 * 7 * 30)
    in_batches = represent(Means(), world, count=30)
    assert max(asked) == 7, "seven images of 30 pixels as floats"
    np.testing.assert_array_equal(in_batches.mean, at_once.mean)
    np.testing.assert_array_equal(in_batches.factors, at_once.factors)
    encoded.clear()
    represent(Means(), as_world(DataLoader(TensorDataset(torch.from_numpy(IMAGES)), batch_size=5)), count=30)
    assert max(encoded) == 5, "the loader's batch size is kept"


def test_free_memory_is_what_the_system_has_or_the_container_allows(tmp_path) -> None:
    def write(name: str, text: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    write("proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:   4000 kB\n")
    assert available_memory(tmp_path) == 4_096_000
    write("proc/self/cgroup", "0::/jobs/mine\n")
    write("sys/fs/cgroup/jobs/mine/memory.max", "max\n")
    assert available_memory(tmp_path) == 4_096_000
    write("sys/fs/cgroup/jobs/memory.max", "3000000\n")
    write("sys/fs/cgroup/jobs/memory.current", "2500000\n")
    write("sys/fs/cgroup/jobs/memory.stat", "anon 1\nfile 700000\n")
    assert available_memory(tmp_path) == 3_000_000 - (2_500_000 - 700_000), "files in the cache give way"
    assert 0 < available_memory() <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.parametrize(
    "world",
    [
        {"name": "digits", "count": 10**12},
        {"name": "natural-sprites", "count": 10**12},
        {"name": "gaussian", "count": 10**12},
        {"name": "masks", "sequences": 10**12},
    ],
    ids=lambda world: world["name"],
)
def test_more_observations_than_fit_are_refused_with_what_would(world, monkeypatch) -> None:
    monkeypatch.setattr(capacity, "available_memory", lambda: 8 * 10**9)
    name = "sequences" if "sequences" in world else "count"
    with pytest.raises(ValueError, match=rf"128000.0 GB, but 8.0 GB are free; {name}=10000000 \(--world.{name} "):
        worlds.build(world)
    assert worlds.build({**world, name: 10**7}) is not None


def test_more_latents_than_fit_are_refused_with_what_would(monkeypatch, capsys, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(capacity, "available_memory", lambda: 8 * 10**9)
    words = ["train", "--world", "mini-sprites", "--training.steps", "1", "--model.latents"]
    assert main([*words, "1000000000"]) == 2
    sentence = capsys.readouterr().err
    assert "weights, which take" in sentence
    fewer = int(re.search(r"--model.latents (\d+)\) would fit", sentence)[1])
    assert 10**4 < fewer < 10**6
    assert not list(tmp_path.glob("runs/*/run.json"))


def test_what_does_not_fit_is_a_sentence(monkeypatch, capsys) -> None:
    def greedy(words):
        np.empty(2**57)

    commands.get("version")
    monkeypatch.setitem(commands._entries, "version", greedy)
    assert main(["version"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: not enough memory: Unable to allocate 1.00 EiB")
    assert error.count("\n") == 1
