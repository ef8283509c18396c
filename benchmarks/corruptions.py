"""Images a second of every corruption: a batch at once beside one image at a time, and beside imagecorruptions.

The peer needs an older NumPy, so it gets a virtual environment of its own, made here without compilers. It takes one
image at a time. Two of its blurs call scikit-image with an argument that is gone, and get it translated.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.rendering import seconds
from polariscope.worlds.renderers.faces import Faces
from polariscope.worlds.views.corruptions import SUITES, corrupt

SIZE = 64
LOOPED = 32
"""Images that loops go through: their rate does not depend on how many there are."""
LARGE = 224
PART = 100
"""Large images that are rendered and corrupted at a time."""
PEER = Path(tempfile.gettempdir()) / "polariscope-imagecorruptions"
PACKAGES = ("numpy==1.26.4", "scipy==1.11.4", "scikit-image==0.21.0", "opencv-python-headless==4.10.0.84", "numba",
            "pillow")  # fmt: skip
PUBLISHED = {
    "gaussian": "gaussian_noise", "shot": "shot_noise", "impulse": "impulse_noise", "defocus": "defocus_blur",
    "glass": "glass_blur", "motion": "motion_blur", "zoom": "zoom_blur", "elastic": "elastic_transform",
    "jpeg": "jpeg_compression", "speckle": "speckle_noise", "gaussian-blur": "gaussian_blur",
}  # fmt: skip
"""Names of the peer, where they differ from ours."""
PEER_SCRIPT = """
import json, sys, time
import cv2, numpy as np
import imagecorruptions.corruptions as kinds
from imagecorruptions import corrupt
from skimage.filters import gaussian
def blurred(image, sigma, multichannel=False, **rest):
    return gaussian(image, sigma, channel_axis=-1 if multichannel else None, **rest)
kinds.gaussian = blurred
cv2.setNumThreads(1)
folder, severity, names = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
images = np.load(folder + "/images.npy")
answer = {}
for name in names:
    np.random.seed(0)
    corrupt(images[0], severity, name)
    start = time.process_time()
    worse = np.stack([corrupt(image, severity, name) for image in images])
    spent = time.process_time() - start
    change = (worse.astype(float) - images).reshape(len(images), -1)
    answer[name] = [len(images) / spent, float(np.sqrt((change ** 2).mean(1)).mean())]
print(json.dumps(answer))
"""


def at_once(console: Console, batch: int, seed: int) -> None:
    """Images a second at the middle severity, and how many times as fast as a loop that is."""
    world = Faces(size=SIZE)
    images = world.observe(np.random.default_rng(seed).integers(0, len(world), batch))
    table = Table("suite", "kind", "images/s", "one by one", "ratio", title=f"{batch} images of 3 x {SIZE} x {SIZE}")
    for suite in SUITES.values():
        for kind in suite.kinds.values():
            settings = {"severity": (kind.severities + 1) // 2, "suite": suite.name}

            def together(kind: str = kind.name, settings: dict = settings) -> None:
                corrupt(images, kind, **settings)

            def looped(kind: str = kind.name, settings: dict = settings) -> None:
                for i in range(LOOPED):
                    corrupt(images[i : i + 1], kind, **settings, index=[i])

            fast, slow = batch / seconds(together), LOOPED / seconds(looped)
            table.add_row(suite.name, kind.name, f"{fast:,.0f}", f"{slow:,.0f}", f"{fast / slow:.1f}x")
    console.print(table)


def installed(console: Console) -> bool:
    """Whether the peer is in an environment of its own; it is installed if it is not."""
    if (PEER / "ready").exists():
        return True
    console.print(f"Installing imagecorruptions into {PEER} ...")
    install = [str(PEER / "bin" / "python"), "-m", "pip", "install", "-q"]
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(PEER)],
        [*install, "--only-binary", ":all:", *PACKAGES],
        [*install, "--no-deps", "imagecorruptions==1.1.2"],
    ):
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            console.print(f"It cannot be installed here: {done.stderr.strip().splitlines()[-1]}")
            return False
    (PEER / "ready").touch()
    return True


def beside_the_peer(console: Console, count: int, seed: int, severity: int = 3) -> None:
    """Images a second of CPU time, and how far images move from the clean ones, on average over images."""
    world = Faces(size=LARGE)
    numbers = np.random.default_rng(seed).integers(0, len(world), count)
    names = list(SUITES["imagenet-c"].kinds)
    spent, change = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
    few = world.observe(numbers[:LOOPED])
    for start in range(0, count, PART):
        part = numbers[start : start + PART]
        images = world.observe(part)
        for name in names:
            began = time.process_time()
            worse = corrupt(images, name, severity, index=part)
            spent[name] += time.process_time() - began
            if start == 0:
                moved = (worse[:LOOPED].astype(float) - few).reshape(len(few), -1)
                change[name] = float(np.sqrt((moved**2).mean(1)).mean())
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/images.npy", np.ascontiguousarray(few.transpose(0, 2, 3, 1)))
        words = [str(PEER / "bin" / "python"), "-c", PEER_SCRIPT, folder, str(severity)]
        words += [PUBLISHED.get(name, name) for name in names]
        done = subprocess.run(words, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        theirs = json.loads(done.stdout.splitlines()[-1])
    table = Table("kind", "images/s", "peer", "ratio", "change of a pixel", "peer's")
    table.title = f"{count} images of 3 x {LARGE} x {LARGE}, severity {severity}; the peer takes {len(few)} of them"
    ratios = []
    for name in names:
        rate, (peer, peer_change) = count / spent[name], theirs[PUBLISHED.get(name, name)]
        ratios.append(rate / peer)
        table.add_row(name, f"{rate:,.0f}", f"{peer:,.0f}", f"{ratios[-1]:.2f}x", f"{change[name]:.1f}",
                      f"{peer_change:.1f}")  # fmt: skip
    console.print(table)
    console.print(f"median of the ratios {np.median(ratios):.2f}, lowest {min(ratios):.2f}, highest {max(ratios):.1f}")


def main(batch: int = 256, large: int = 1000, seed: int = 0) -> None:
    """Print both tables."""
    console = Console()
    at_once(console, batch, seed)
    if installed(console):
        beside_the_peer(console, large, seed)


if __name__ == "__main__":
    main()
