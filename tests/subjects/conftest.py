"""Data that every foreign model of these tests can encode."""

from pathlib import Path

import numpy as np
import pytest

from polariscope.worlds import ArrayWorld


@pytest.fixture(scope="session")
def dots() -> ArrayWorld:
    """One white pixel an image, at every place of an 8x8 grid, four times over."""
    rows, columns = np.divmod(np.tile(np.arange(64), 4), 8)
    images = np.zeros((len(rows), 8, 8), np.uint8)
    images[np.arange(len(rows)), rows, columns] = 255
    return ArrayWorld(images, np.stack([columns, rows], 1))


@pytest.fixture(scope="session")
def dots_file(dots, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("data") / "dots.npz"
    np.savez(path, images=dots.observe(np.arange(len(dots))), factors=dots.factors_of(np.arange(len(dots))))
    return path
