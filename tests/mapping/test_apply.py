"""A raster is mapped exactly, in windows, by several processes, and after a kill."""

import errno
import json
import os
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from polariscope.mapping import apply
from polariscope.mapping.apply import MapSettings, RasterMap, map_raster
from polariscope.mapping.harden import harden
from polariscope.mapping.rasters import ArrayRaster, Grid, Stack, open_raster
from polariscope.mapping.windows import Stitched
from polariscope.nets.normalised import Normalised
from polariscope.nets.unet import UNet

SETTINGS = MapSettings(background=2, threshold=0.3, window=20)


def network(bands: int = 3) -> UNet:
    torch.manual_seed(0)
    net = UNet(bands, 3, 3, 2)
    net.head.weight.data *= 20  # so that classes differ
    return net


def raster(height: int = 70, width: int = 53, bands: int = 3) -> ArrayRaster:
    pixels = np.random.default_rng(0).integers(0, 256, (bands, height, width), dtype=np.uint8)
    return ArrayRaster(pixels, Grid.plain(0.5))


def contents(found: RasterMap) -> tuple[bytes, bytes]:
    return found.labels.tobytes(), found.probabilities.tobytes()


@pytest.mark.spec("000/F038")
def test_the_map_is_that_of_the_whole_raster_for_any_window(tmp_path: Path) -> None:
    whole = map_raster(network(), raster(), tmp_path / "whole", MapSettings(2, 0.3, window=1000))
    with torch.no_grad():
        x = torch.from_numpy(np.pad(raster().pixels, ((0, 0), (0, 2), (0, 3)), mode="symmetric")).float() / 255
        p = network().eval()(x[None])[0].double().softmax(0).numpy()[:, :70, :53]
    assert (whole.labels == harden(p, 0.3, 2)).all()
    for window in (8, 20, 33):
        tiled = map_raster(network(), raster(), tmp_path / str(window), MapSettings(2, 0.3, window=window))
        assert np.abs(tiled.probabilities.astype(int) - whole.probabilities.astype(int)).max() <= 1
        assert (tiled.labels != whole.labels).mean() < 1e-3, "a pixel on the threshold may round"
        np.testing.assert_allclose(tiled.sums.probability, whole.sums.probability, rtol=1e-6)
    hard, full = whole.areas()
    assert hard.sum() == pytest.approx(70 * 53 * 0.25)
    assert full.sum() == pytest.approx(70 * 53 * 0.25)


def test_two_workers_give_the_same_bytes(tmp_path: Path) -> None:
    one, two = (map_raster(network(), raster(), tmp_path / str(n), SETTINGS, workers=n) for n in (1, 2))
    assert contents(one) == contents(two)
    assert one.sums == two.sums


def test_work_goes_on_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed in the fourth window, after its pixels were written and before its line was, with half a line behind."""
    untouched = map_raster(network(), raster(), tmp_path / "untouched", SETTINGS)
    lines = 0
    add = apply.Journal.add

    def killed(self: apply.Journal, number: int, sums: apply.Sums) -> None:
        nonlocal lines
        lines += 1
        if lines == 4:
            with self.path.open("ab") as file:
                file.write(b'{"window": 3, "pix')
            raise KeyboardInterrupt
        add(self, number, sums)

    monkeypatch.setattr(apply.Journal, "add", killed)
    with pytest.raises(KeyboardInterrupt):
        map_raster(network(), raster(), tmp_path / "killed", SETTINGS)
    monkeypatch.undo()
    seen: list[int] = []
    resumed = map_raster(network(), raster(), tmp_path / "killed", SETTINGS, progress=lambda done, _: seen.append(done))
    assert seen[0] == 4, "three windows are not predicted again"
    assert contents(resumed) == contents(untouched)
    assert resumed.sums == untouched.sums
    assert all(json.loads(line) for line in (tmp_path / "killed" / "journal.jsonl").read_text().splitlines())


def test_another_map_in_the_folder_is_refused(tmp_path: Path) -> None:
    map_raster(network(), raster(), tmp_path, SETTINGS, made_with="a")
    map_raster(network(), raster(), tmp_path, SETTINGS, made_with="a")
    with pytest.raises(ValueError, match="holds another map"):
        map_raster(network(), raster(), tmp_path, SETTINGS, made_with="b")


def test_a_changed_file_is_mapped_again(tmp_path: Path) -> None:
    """Under the same path and with the same shape; also where the earlier work was cut off, or had another shape."""
    path, folder = tmp_path / "image.npy", tmp_path / "map"
    np.save(path, raster().pixels)
    before = contents(map_raster(network(), open_raster(path), folder, SETTINGS))
    np.save(path, 255 - raster().pixels)
    os.utime(path, ns=(1, 1))  # a clock that ticks too slowly to see the change
    after = contents(map_raster(network(), open_raster(path), folder, SETTINGS))
    assert after != before
    assert after == contents(map_raster(network(), open_raster(path), tmp_path / "new", SETTINGS))
    seen: list[int] = []
    map_raster(network(), open_raster(path), folder, SETTINGS, progress=lambda done, _: seen.append(done))
    assert seen == [], "what has not changed is not mapped again"
    np.save(path, raster(60, 60).pixels)
    assert map_raster(network(), open_raster(path), folder, SETTINGS).labels.shape == (60, 60)


def test_another_spelling_of_a_path_is_the_same_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "image.npy", raster().pixels)
    map_raster(network(), open_raster(tmp_path / "image.npy"), tmp_path / "map", SETTINGS)
    monkeypatch.chdir(tmp_path)
    seen: list[int] = []
    map_raster(network(), open_raster("image.npy"), "map", SETTINGS, progress=lambda done, _: seen.append(done))
    assert seen == []


def test_a_map_of_an_earlier_version_is_made_again(tmp_path: Path) -> None:
    """Its journal does not say in which state the file was."""
    path = tmp_path / "image.npy"
    np.save(path, raster().pixels)
    whole = contents(map_raster(network(), open_raster(path), tmp_path / "map", SETTINGS))
    earlier = {"made_with": "", "raster": str(path), "shape": (3, 70, 53), "settings": repr(SETTINGS)}
    lines = (tmp_path / "map" / "journal.jsonl").read_text().splitlines()
    lines[0] = json.dumps({"identity": apply.fingerprint(earlier), "windows": 12})
    (tmp_path / "map" / "journal.jsonl").write_text("\n".join(lines) + "\n")
    seen: list[int] = []
    again = map_raster(
        network(), open_raster(path), tmp_path / "map", SETTINGS, progress=lambda done, _: seen.append(done)
    )
    assert len(seen) == 12
    assert contents(again) == whole


def test_pixels_without_data_have_no_class_and_no_area(tmp_path: Path) -> None:
    pixels = raster().pixels.astype(np.float32) / 255
    pixels[:, :40, :30] = np.nan
    normalised = Normalised(network(), (0.5,), (0.25,))
    gaps = map_raster(normalised, ArrayRaster(pixels, Grid.plain(1.0)), tmp_path / "nan", SETTINGS)
    assert (gaps.labels[:40, :30] == 255).all()
    assert (gaps.labels[40:] < 3).all()
    assert gaps.sums.valid == 70 * 53 - 1200 == sum(gaps.sums.pixels)
    filled = np.where(np.isnan(pixels), np.float32(0.5), pixels)  # the mean of the training set stands for them
    other = map_raster(normalised, ArrayRaster(filled, Grid.plain(1.0)), tmp_path / "filled", SETTINGS)
    assert (gaps.labels[40:] == other.labels[40:]).all()


def test_weights_are_undone_before_the_threshold(tmp_path: Path) -> None:
    settings = MapSettings(2, 0.3, weights=(0.6, 0.39, 0.01), window=32)
    plain = map_raster(network(), raster(), tmp_path / "plain", SETTINGS)
    undone = map_raster(network(), raster(), tmp_path / "undone", settings)
    assert undone.sums.pixels[2] > plain.sums.pixels[2], "the background had the smallest weight"
    assert sum(undone.sums.probability) == pytest.approx(70 * 53)


@pytest.mark.spec("000/F115")
def test_layers_of_another_grid_are_aligned_by_coordinates() -> None:
    """A terrain of 2 m that begins 3 m west and 5 m north of the image: each image pixel has the cell it lies in."""
    image = ArrayRaster(np.zeros((1, 30, 40), np.float32), Grid(0.5, 1000.0, -0.5, 500.0))
    cells = np.arange(15 * 20, dtype=np.float32).reshape(1, 15, 20)
    stack = Stack([image, ArrayRaster(cells, Grid(2.0, 997.0, -2.0, 505.0))])
    whole = stack.read(0, 0, 30, 40)
    for row, column in ((0, 0), (7, 13), (29, 39)):
        north, east = 500 - 0.5 * (row + 0.5), 1000 + 0.5 * (column + 0.5)
        cell = cells[0, int((505 - north) // 2), int((east - 997) // 2)]
        assert whole[1, row, column] == cell
    np.testing.assert_array_equal(stack.read(5, 9, 11, 20), whole[:, 5:16, 9:29])
    short = Stack([image, ArrayRaster(cells[:, :5], Grid(2.0, 997.0, -2.0, 505.0))])
    assert np.isnan(short.read(0, 0, 30, 40)[1, 15:]).all(), "beyond its extent a layer has no data"
    with pytest.raises(ValueError, match="without coordinates they cannot be aligned"):
        Stack([image, ArrayRaster(cells)])


def test_a_foreign_network_says_how_far_it_looks(tmp_path: Path) -> None:
    torch.manual_seed(0)
    foreign = torch.nn.Conv2d(3, 3, 5, padding=2)
    with pytest.raises(ValueError, match="does not declare its halo"):
        map_raster(foreign, raster(), tmp_path, SETTINGS)
    first, second = (
        map_raster(Stitched(foreign, halo=2), raster(), tmp_path / str(n), MapSettings(2, 0.3, window=n))
        for n in (9, 64)
    )
    assert np.abs(first.probabilities.astype(int) - second.probabilities.astype(int)).max() <= 1


def test_bad_input_is_one_sentence(tmp_path: Path) -> None:
    sixteen = ArrayRaster(raster().pixels.astype(np.uint16))
    for bad, words in (
        (sixteen, "numbers of type uint16, whose scale is not known: convert it to bytes or floats"),
        (raster(bands=4), "has 4 bands, and the network was trained on 3"),
        (raster(bands=1), "has 1 band, and the network was trained on 3"),
        (raster(20, 20), "array has 20 x 20 pixels, and the network needs at least 32 x 32"),
    ):
        with pytest.raises(ValueError, match=words):
            map_raster(network(), bad, tmp_path / "bad", SETTINGS)
    with pytest.raises(ValueError, match="one for each of 3 classes"):
        map_raster(network(), raster(), tmp_path / "bad", MapSettings(2, (0.5, 0.5)))
    (tmp_path / "a.bmp").write_bytes(b"")
    with pytest.raises(ValueError, match="expected a GeoTIFF, an npy file or a picture"):
        open_raster(tmp_path / "a.bmp")
    np.save(tmp_path / "a.npy", np.zeros((2, 4, 5), np.float32))
    assert open_raster(tmp_path / "a.npy", pixel=0.25).shape == (2, 4, 5)


def test_a_full_disk_is_one_sentence_before_anything_is_predicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match=r"the disk is full: .*classes.bin needs 0.1 MB; free some space"):
        map_raster(network(), raster(), tmp_path, SETTINGS)
    monkeypatch.undo()
    assert not (tmp_path / "journal.jsonl").exists()
    map_raster(network(), raster(), tmp_path, SETTINGS)


def test_without_the_extra_a_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rasterio", None)
    (tmp_path / "a.tif").write_bytes(b"II*\0")
    with pytest.raises(ValueError, match=r"need the library rasterio, which is not installed: pip install"):
        open_raster(tmp_path / "a.tif")


def test_a_network_that_looks_at_the_whole_image_is_not_stitched(tmp_path: Path) -> None:
    from polariscope.nets.probabilistic_unet import ProbabilisticUNet

    with pytest.raises(ValueError, match="uses the whole image for each pixel"):
        map_raster(ProbabilisticUNet(3, 3, 2, 2), raster(), tmp_path, SETTINGS)


def test_infinite_numbers_are_refused_and_nan_is_no_data(tmp_path: Path) -> None:
    pixels = raster().pixels.astype(np.float32) / 255
    pixels[0, 5, 5] = np.inf
    with pytest.raises(ValueError, match="there are infinite numbers in rows 0 to"):
        map_raster(network(), ArrayRaster(pixels), tmp_path / "inf", SETTINGS)


@pytest.mark.spec("000/F116")
def test_the_benchmark_measures_rate_memory_and_vectors_of_a_raster(tmp_path: Path) -> None:
    """The figures of a 10,000 pixel raster are in docs/speed.md; here the measurement itself, on a small one."""
    benchmark = pytest.importorskip("benchmarks.mapping")
    result = benchmark.measured(96, 1, "map", tmp_path)
    assert result["rate"] == pytest.approx(96**2 / result["seconds"])
    assert result["megabytes"] > 50
    if Path("/proc/self/status").exists():
        assert set(result["memory"]) == {"private", "mapped"}
        assert all(10 < peak <= result["megabytes"] for peak in result["memory"].values())
    settings = MapSettings(benchmark.BACKGROUND, 0.3, window=benchmark.WINDOW)
    finished = map_raster(benchmark.network(), benchmark.raster(96, tmp_path), tmp_path / "map-1", settings)
    assert finished.sums.valid == sum(finished.sums.pixels) == 96**2, "the map that was timed is whole"
    vectors = benchmark.measured(96, 1, "vectors", tmp_path)
    assert vectors["objects"] > 0
    assert benchmark.days(20_000, 0.5, rate=1e6) == pytest.approx(20_000e6 / 0.25 / 1e6 / 86400)
    assert "12 minutes" in benchmark.PUBLISHED
    assert "30 days" in benchmark.PUBLISHED


def test_a_mapped_file_goes_to_workers_by_its_path(tmp_path: Path) -> None:
    """Otherwise every worker would hold the whole raster in its memory."""
    values = np.random.default_rng(0).integers(0, 256, (2, 200, 300)).astype(np.uint8)
    np.save(tmp_path / "raster.npy", values)
    mapped = np.load(tmp_path / "raster.npy", mmap_mode="r")
    for pixels in (mapped, mapped[:, 10:, ::2], values):
        whole = pixels is mapped
        sent = pickle.dumps(ArrayRaster(pixels, None, 7.0, "mine"))
        assert (len(sent) < 2000) == whole
        received = pickle.loads(sent)
        assert isinstance(received.pixels, np.memmap) == whole
        np.testing.assert_array_equal(received.pixels, pixels)
        assert (received.nodata, received.name) == (7.0, "mine")


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="pages of a mapped file are counted by Linux")
def test_the_pages_of_mapped_files_are_released_after_every_window(tmp_path: Path) -> None:
    """Otherwise the memory of a process grows with the raster. Numbers of pages that were released stay the same."""
    np.save(tmp_path / "raster.npy", raster(1500, 1000, 1).pixels)
    mapped = np.load(tmp_path / "raster.npy", mmap_mode="r")
    held: list[int] = []

    def resident(_done: int, _all: int) -> None:
        ours, kilobytes = False, 0
        for line in Path("/proc/self/smaps").read_text().splitlines():
            words = line.split()
            if "-" in words[0] and not words[0].endswith(":"):
                ours = str(tmp_path) in line
            elif words[0] == "Rss:" and ours:
                kilobytes += int(words[1])
        held.append(kilobytes)

    net = Stitched(torch.nn.Conv2d(1, 3, 1), halo=0, multiple=1)
    settings = MapSettings(2, 0.3, window=250)
    released = map_raster(net, ArrayRaster(mapped), tmp_path / "mapped", settings, progress=resident)
    assert len(held) == 24
    assert max(held) < 600, "the four files have 6 MB"
    assert contents(released) == contents(map_raster(net, ArrayRaster(np.array(mapped)), tmp_path / "copy", settings))
