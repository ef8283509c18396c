"""Mapping a large raster: time, share of the raw speed of the network, memory over sizes, workers, and vectorising.

Sides are 2,500, 5,000 and 10,000 pixels, or those given in ``POLARISCOPE_MAP_SIDES`` (``500,1000``). The network is the
U-Net of Samarin's dissertation (467,525 parameters), which mapped 26 square kilometres at half a metre in 12 minutes on
a Titan X, and said 30 days for 20,000 square kilometres. Each measurement has a process of its own. Its peak memory is
the most that was resident at once, and has two parts with peaks of their own: private memory (the network, its
activations, Python) and pages of mapped files (raster, map, libraries), which belong to the page cache of the system.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from polariscope.mapping.apply import MapSettings, map_raster
from polariscope.mapping.polygons import map_objects
from polariscope.mapping.rasters import ArrayRaster, Grid
from polariscope.nets.unet import UNet

BANDS, CLASSES, BACKGROUND, PIXEL, WINDOW = 6, 5, 4, 0.5, 512
KILOMETRES = 20_000
EVERY = 0.02
"""Seconds between two looks at the memory of a process."""
PUBLISHED = "12 minutes for 26 km² on a Titan X; 30 days for 20,000 km² at 0.25 m"


def network() -> UNet:
    torch.manual_seed(0)
    net = UNet(BANDS, CLASSES).eval()
    net.head.weight.data *= 20  # untrained, so that classes appear, in objects on a background
    net.head.bias.data[BACKGROUND] += 9
    return net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def raster(side: int, folder: Path) -> ArrayRaster:
    """Smooth noise in a file that is mapped, as a raster larger than memory would be."""
    path = folder / "raster.bin"
    if not path.exists():
        block = np.random.default_rng(0).integers(0, 256, (BANDS, 64, 64)).astype(np.float32)
        tile = np.kron(block, np.ones((1, 16, 16), np.float32)).astype(np.uint8)
        pixels = np.memmap(path, np.uint8, "w+", shape=(BANDS, side, side))
        for top in range(0, side, 1024):
            for left in range(0, side, 1024):
                part = pixels[:, top : top + 1024, left : left + 1024]
                part[:] = np.roll(tile, (top // 7, left // 5), (1, 2))[:, : part.shape[1], : part.shape[2]]
        pixels.flush()
    return ArrayRaster(np.memmap(path, np.uint8, "r", shape=(BANDS, side, side)), Grid.plain(PIXEL), None, str(path))


def raw_rate(repeats: int = 4) -> float:
    """Pixels a second of the network alone, on windows of the same size with the halo they are read with."""
    net = network()
    side = WINDOW + 2 * net.halo
    x = torch.rand(1, BANDS, side, side)
    with torch.no_grad():
        net(x)
        start = time.perf_counter()
        for _ in range(repeats):
            net(x)
    return repeats * WINDOW**2 / (time.perf_counter() - start)


@contextmanager
def memory_watched() -> Iterator[dict[str, float]]:
    """Peaks of the private memory of this process and of its pages of mapped files, in MB, while a block runs; they
    stay empty on systems without /proc. Processes that it starts are not watched."""
    peaks: dict[str, float] = {}
    status, ended = Path("/proc/self/status"), threading.Event()

    def look() -> None:
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        for name, key in (("private", "RssAnon"), ("mapped", "RssFile")):
            peaks[name] = max(peaks.get(name, 0.0), int(lines[key].split()[0]) / 1024)

    def watch() -> None:
        while not ended.wait(EVERY):
            look()

    if not status.exists():
        yield peaks
        return
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peaks
    finally:
        ended.set()
        watcher.join()
        look()


def measured(side: int, workers: int, what: str, folder: Path) -> dict[str, Any]:
    """One measurement, in the process that was started for it."""
    torch.set_num_threads(1)
    if what == "raw":
        return {"rate": raw_rate()}
    source = raster(side, folder)
    settings = MapSettings(BACKGROUND, 0.3, window=WINDOW)
    start = time.perf_counter()
    with memory_watched() as peaks:
        found = map_raster(network(), source, folder / f"map-{workers}", settings, workers=workers)
    seconds = time.perf_counter() - start
    if what == "map":
        own, others = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return {"seconds": seconds, "rate": side**2 / seconds, "megabytes": max(own, others) / 1024,
                "memory": peaks if workers == 1 else {}}  # fmt: skip
    start = time.perf_counter()
    count = sum(1 for _ in map_objects(found))
    return {"seconds": time.perf_counter() - start, "objects": count, "share": sum(
        found.sums.pixels[c] for c in range(CLASSES) if c != BACKGROUND) / side**2,
            "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}  # fmt: skip


def apart(side: int, workers: int, what: str, folder: Path) -> dict[str, Any]:
    words = [sys.executable, "-m", "benchmarks.mapping", str(side), str(workers), what, str(folder)]
    out = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    told: dict[str, Any] = json.loads(out.splitlines()[-1])
    return told


def days(kilometres: float, pixel: float, rate: float) -> float:
    """Days for an area in square kilometres at pixels a second."""
    return kilometres * 1e6 / pixel**2 / rate / 86400


def main() -> None:
    sides = [int(word) for word in os.environ.get("POLARISCOPE_MAP_SIDES", "2500,5000,10000").split(",")]
    console = Console()
    table = Table("pixels a side", "workers", "minutes", "Mpx/s", "of raw forward", "peak memory, MB", "private, MB",
                  "mapped files, MB", "km² an hour",
                  title=f"U-Net, {BANDS} bands, windows of {WINDOW} px, {PIXEL} m; published: {PUBLISHED}")  # fmt: skip
    with tempfile.TemporaryDirectory() as place:
        rate = 0.0
        for side in sides:
            folder = Path(place) / str(side)
            folder.mkdir()
            raster(side, folder)
            raw = apart(side, 1, "raw", folder)["rate"]  # beside each size: other loads change over minutes
            for workers in (1, 2) if side == sides[-1] else (1,):
                found = apart(side, workers, "map", folder)
                rate = found["rate"]
                console.print(f"{side:,} pixels a side, {workers} workers: {found['seconds']:.0f} s")
                table.add_row(f"{side:,}", f"{workers}", f"{found['seconds'] / 60:.1f}", f"{rate / 1e6:.3f}",
                              f"{rate / raw / workers:.0%}", f"{found['megabytes']:,.0f}",
                              *(f"{found['memory'][part]:,.0f}" if part in found["memory"] else "-"
                                for part in ("private", "mapped")),
                              f"{rate * PIXEL**2 / 1e6 * 3600:,.1f}")  # fmt: skip
        vector = apart(sides[-1], 1, "vectors", Path(place) / str(sides[-1]))
    console.print(table)
    console.print(f"vectorising {sides[-1]:,} px a side: {vector['seconds']:.1f} s, {vector['objects']:,} objects on "
                  f"{vector['share']:.0%} of the pixels, {vector['megabytes']:,.0f} MB")  # fmt: skip
    for pixel in (0.5, 0.25):
        console.print(f"{KILOMETRES:,} km² at {pixel} m at the last rate: {days(KILOMETRES, pixel, rate):,.1f} days")


if __name__ == "__main__":
    if len(sys.argv) == 5:
        print(json.dumps(measured(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))))
    else:
        main()
