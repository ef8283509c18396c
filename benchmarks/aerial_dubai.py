"""A U-Net on real aerial images: 36 image and mask pairs of Dubai in four folds by tile, beside the majority class.

The data set (Humans in the Loop and the Mohammed Bin Rashid Space Centre) is not part of this project: give its folder
in ``POLARISCOPE_DUBAI``. Parts of one tile adjoin, so a whole tile is held out in each fold. Images are mapped at half
their resolution; unlabelled pixels do not count.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console
from rich.table import Table

from polariscope.mapping.apply import MapSettings, map_raster
from polariscope.mapping.rasters import ArrayRaster
from polariscope.nets.normalised import NormalisedConfig
from polariscope.nets.unet import UNetConfig
from polariscope.objectives.segment import Segment
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.run import train_in_memory
from polariscope.worlds.splits import RandomSplit
from polariscope.worlds.targets import MaskedImages
from polariscope.worlds.views.augmented import Augmented

COLOURS = {
    "building": 0x3C1098, "land": 0x8429F6, "road": 0x6EC1E4, "vegetation": 0xFEDD3A, "water": 0xE2A929,
}  # fmt: skip
NAMES = tuple(COLOURS)
SIDE = 128
STEPS = int(os.environ.get("POLARISCOPE_DUBAI_STEPS", "2500"))


def pair(image: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """An image ``(3, h, w)`` and its classes ``(h, w)``, -1 unlabelled, at half the resolution."""
    mask = image.parent.parent / "masks" / f"{image.stem}.png"
    with Image.open(image) as one:
        small = one.convert("RGB").resize((one.width // 2, one.height // 2), Image.Resampling.BOX)
        pixels = np.moveaxis(np.asarray(small), 2, 0).copy()
    with Image.open(mask) as one:
        colours = np.asarray(one.convert("RGB").resize(small.size, Image.Resampling.NEAREST)).astype(np.int64)
    code = (colours[..., 0] << 16) + (colours[..., 1] << 8) + colours[..., 2]
    classes = np.full(code.shape, -1, np.int64)
    for number, colour in enumerate(COLOURS.values()):
        classes[code == colour] = number
    return pixels, classes


def tiles(pairs: list[tuple[NDArray[np.uint8], NDArray[np.int64]]]) -> MaskedImages:
    """Squares that cover the images; those at the far edges overlap their neighbours."""
    images, masks = [], []
    for pixels, classes in pairs:
        height, width = classes.shape
        for top in {min(t, height - SIDE) for t in range(0, height, SIDE)}:
            for left in {min(c, width - SIDE) for c in range(0, width, SIDE)}:
                images.append(pixels[:, top : top + SIDE, left : left + SIDE])
                masks.append(classes[top : top + SIDE, left : left + SIDE])
    return MaskedImages(np.stack(images), np.stack(masks), NAMES)


def fold(folder: Path, held_out: str) -> dict[str, object]:
    """Train on the other tiles and count the pixels of this one ``(true, predicted)``."""
    files = {tile.name: sorted((tile / "images").glob("*.jpg")) for tile in sorted(folder.glob("Tile *"))}
    train = [pair(file) for name, several in files.items() if name != held_out for file in several]
    world = tiles(train)
    x = world.images.astype(np.float32) / 255
    seen = np.bincount(np.concatenate([m[m >= 0] for _, m in train]), minlength=len(NAMES))
    rarity = 1 / np.sqrt(seen / seen.sum())
    model = NormalisedConfig(UNetConfig(root=16, dropout=0.1, batch_norm=True), tuple(x.mean((0, 2, 3)).tolist()),
                             tuple(x.std((0, 2, 3)).tolist()))  # fmt: skip
    training = TrainingConfig(steps=STEPS, batch_size=4, learning_rate=2e-3, schedule="cosine", evaluate_every=0)
    network = train_in_memory(RunConfig(
        Augmented(world, flip="both"), Segment(weights=tuple((rarity / rarity.sum()).tolist())), model, training,
        RandomSplit(0),
    ))  # fmt: skip
    confusion = np.zeros((len(NAMES), len(NAMES)), np.int64)
    for file in files[held_out]:
        pixels, classes = pair(file)
        with tempfile.TemporaryDirectory() as place:
            found = map_raster(network, ArrayRaster(pixels), place, MapSettings(0, 0.5, window=256))
            mapped = np.asarray(found.probabilities).argmax(0)
        known = classes >= 0
        confusion += np.bincount(classes[known] * len(NAMES) + mapped[known], minlength=len(NAMES) ** 2).reshape(
            len(NAMES), -1
        )
    return {"tile": held_out, "confusion": confusion.tolist(), "majority": int(seen.argmax())}


def ious(confusion: NDArray[np.int64]) -> NDArray[np.float64]:
    hits = confusion.diagonal()
    return np.asarray(hits / np.maximum(confusion.sum(0) + confusion.sum(1) - hits, 1))


def main() -> None:
    place = os.environ.get("POLARISCOPE_DUBAI", "")
    if not place or not Path(place).is_dir():
        print("skipped: POLARISCOPE_DUBAI names no folder with the data set")
        return
    kept = Path(os.environ.get("POLARISCOPE_DUBAI_KEPT", tempfile.mkdtemp()))
    kept.mkdir(parents=True, exist_ok=True)
    folds = []
    for tile in sorted(path.name for path in Path(place).glob("Tile *")):
        file = kept / f"{tile} {STEPS}.json"
        if not file.exists():
            file.write_text(json.dumps(fold(Path(place), tile)))
        folds.append(json.loads(file.read_text()))
        print(f"{tile}: mean IoU {ious(np.array(folds[-1]['confusion'])).mean():.3f}", file=sys.stderr)
    table = Table("held-out tile", *NAMES, "mean IoU", "accuracy", "majority accuracy", "majority mean IoU")
    total, others = np.zeros((2, len(NAMES), len(NAMES)), np.int64)
    for one in folds:
        confusion = np.array(one["confusion"])
        guess = np.zeros_like(confusion)
        guess[:, one["majority"]] = confusion.sum(1)
        total, others = total + confusion, others + guess
        table.add_row(one["tile"], *_row(confusion, guess))
    table.add_row("all", *_row(total, others))
    Console(width=140).print(table)


def _row(confusion: NDArray[np.int64], guess: NDArray[np.int64]) -> list[str]:
    scores = ious(confusion)
    return [*(f"{score:.3f}" for score in scores), f"{scores.mean():.3f}",
            f"{np.trace(confusion) / confusion.sum():.3f}", f"{np.trace(guess) / guess.sum():.3f}",
            f"{ious(guess).mean():.3f}"]  # fmt: skip


if __name__ == "__main__":
    main()
