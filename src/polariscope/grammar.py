"""Counts with nouns, ``1 seed``, ``2 seeds``, and names of data, for all sentences with numbers."""

from __future__ import annotations

import re
from pathlib import PurePath


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun; the plural is given where it is not the noun with an s.

    >>> counted(1, "seed"), counted(2, "seed"), counted(1200, "example"), counted(0, "study", "studies")
    ('1 seed', '2 seeds', '1,200 examples', '0 studies')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def listed(names: list[str]) -> str:
    """Names in a sentence.

    >>> listed(["x"]), listed(["x", "y"]), listed(["x", "y", "area"])
    ('x', 'x and y', 'x, y and area')
    """
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def data_name(path: str) -> str:
    """What data of the user's own is called: its file or folder, and of MNIST's files the folder and the part.

    >>> data_name("data/norm.npz"), data_name("data/mnist/"), data_name("mnist/train-images-idx3-ubyte.gz")
    ('norm', 'mnist', 'mnist-train')
    """
    place = PurePath(path)
    name = place.name.removesuffix(".gz")
    part = re.fullmatch(r"(.+?)[-_.]images[-_.]idx\d.*", name)
    if part:
        return "-".join(filter(None, [place.parent.name, part[1]]))
    return re.sub(r"(?<=.)\.(npz|npy|h5|hdf5|mat|idx\d?)$", "", name, flags=re.IGNORECASE) or "file"
