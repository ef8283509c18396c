"""Where studies find the isomers C7H10O2 of QM9, if they are at hand."""

from __future__ import annotations

import os
from pathlib import Path


def isomers_file() -> Path | None:
    """The file of the isomers' geometries under POLARISCOPE_DATA, if it is set and the file is there."""
    root = os.environ.get("POLARISCOPE_DATA")
    file = Path(root) / "qm9" / "qm9_c7h10o2_geometries.npz" if root else None
    return file if file is not None and file.is_file() else None
