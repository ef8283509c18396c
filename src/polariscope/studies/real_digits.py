"""Where studies find the digits of MNIST, if they are at hand."""

from __future__ import annotations

import os
from pathlib import Path


def mnist_folder() -> Path | None:
    """The folder of MNIST's files under POLARISCOPE_DATA, if it is set and they are there."""
    root = os.environ.get("POLARISCOPE_DATA")
    folder = Path(root) / "mnist" if root else None
    return folder if folder is not None and any(folder.glob("*images*idx3*.gz")) else None
