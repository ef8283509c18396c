"""Object-based image analysis, fitted to every image separately: the baseline for maps (Spec 000, 5.3).

Pixels become segments of similar colour; segments have features (colour, texture, shape, terrain, and how they differ
from their neighbours); a random forest separates bare ground from the rest, trained on samples from the same image; a
decision tree assigns the class. The forest needs a high confidence, so the analysis is conservative.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

CELL = 5
"""Pixels a side of a segment at first."""
ROUNDS = 5
COMPACTNESS = 0.35
"""Weight of places beside colours, in units of a cell and of the image's own deviation of colours."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ImageAnalysis:
    """Settings of an analysis."""

    samples: int = 20
    """Segments of each class that an expert picks in the image, where it has as many."""
    sure: float = 0.7
    """Share of the forest's trees that have to call a segment bare."""
    pure: float = 0.7
    """Share of a segment that its class has to cover for an expert to pick it."""
    cell: int = CELL
    seed: int = 0


def analysed(
    images: ArrayLike, labels: ArrayLike, background: int, settings: ImageAnalysis | None = None
) -> NDArray[np.uint8]:
    """Classes ``(n, h, w)`` of the pixels of one image, given as tiles ``(n, bands, h, w)`` of numbers, the first three
    red, green and blue. ``labels`` are what an expert sees in it, from which samples are picked; -1 is unlabelled. Only
    samples are learned from, and only from this image."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.tree import DecisionTreeClassifier

    how = settings or ImageAnalysis()
    pixels, truth = np.asarray(images, float), np.asarray(labels)
    if pixels.ndim != 4 or pixels.shape[1] < 3 or truth.shape != (len(pixels), *pixels.shape[2:]):
        raise ValueError(
            f"expected tiles (n, bands, h, w) of at least 3 bands with labels (n, h, w); got {pixels.shape} and "
            f"{truth.shape}"
        )
    numbers, count = _numbered([segments(tile[:3], how.cell) for tile in pixels])
    features = segment_features(pixels, numbers, count)
    classes = int(truth.max(initial=background)) + 1
    covered = np.stack([np.bincount(numbers.ravel(), (truth == c).ravel(), count) for c in range(classes)], 1)
    shares = covered / np.bincount(numbers.ravel(), minlength=count)[:, None]
    rng = np.random.default_rng(how.seed)
    picked = {c: _some(np.flatnonzero(shares[:, c] > how.pure), how.samples, rng) for c in range(classes)}
    sampled = [c for c in picked if c != background and len(picked[c])]
    out = np.full(count, background, np.uint8)
    if not sampled or not len(picked[background]):
        return out[numbers]
    bare = np.concatenate([picked[c] for c in sampled])
    rest = _some(np.flatnonzero(shares[:, background] > how.pure), len(bare) * 2, rng)
    forest = RandomForestClassifier(100, min_samples_leaf=2, random_state=how.seed)
    forest.fit(features[np.concatenate([bare, rest])], np.repeat([1, 0], [len(bare), len(rest)]))
    sure = forest.predict_proba(features)[:, 1] >= how.sure
    tree = DecisionTreeClassifier(max_depth=5, min_samples_leaf=3, random_state=how.seed)
    tree.fit(features[bare], np.concatenate([np.full(len(picked[c]), c) for c in sampled]))
    if sure.any():
        out[sure] = tree.predict(features[sure])
    return out[numbers]


def segments(colours: ArrayLike, cell: int = CELL) -> NDArray[np.int64]:
    """A number from 0 on for each pixel of an image ``(bands, h, w)``: pixels of similar colour that lie close together
    (simple linear iterative clustering, Achanta et al. 2012).

    >>> halves = np.repeat([0.0, 1.0], 10)[None, None].repeat(10, 1)
    >>> numbers = segments(halves, 5)
    >>> numbers.shape, set(numbers[:, :10].ravel()) & set(numbers[:, 10:].ravel())
    ((10, 20), set())
    """
    values = np.asarray(colours, float)
    bands, height, width = values.shape
    deviation = max(float(values.std()), 1e-9)
    rows, columns = np.mgrid[:height, :width]
    weight = COMPACTNESS / cell
    points = np.concatenate([values.reshape(bands, -1) / deviation, weight * np.stack([rows.ravel(), columns.ravel()])])
    down, right = -(-height // cell), -(-width // cell)
    own_row, own_column = (rows // cell).ravel(), (columns // cell).ravel()
    mine = own_row * right + own_column
    for _ in range(ROUNDS):
        sizes = np.bincount(mine, minlength=down * right)
        centres = np.stack([np.bincount(mine, one, down * right) for one in points]) / np.maximum(sizes, 1)
        best, nearest = np.full(height * width, np.inf), mine
        for row in (-1, 0, 1):
            for column in (-1, 0, 1):
                other = (own_row + row) * right + own_column + column
                inside = (own_row + row >= 0) & (own_row + row < down) & (own_column + column >= 0)
                inside &= own_column + column < right
                other = np.where(inside, other, 0)
                distance = ((points - centres[:, other]) ** 2).sum(0)
                better = inside & (sizes[other] > 0) & (distance < best)
                best, nearest = np.where(better, distance, best), np.where(better, other, nearest)
        mine = nearest
    return np.asarray(np.unique(mine, return_inverse=True)[1].reshape(height, width), np.int64)


def segment_features(pixels: Floats, numbers: NDArray[np.int64], count: int) -> Floats:
    """Features of segments ``(count, k)``: means and deviations of the bands, excess green, size, elongation, and the
    difference of mean colours from the surroundings."""
    flat = numbers.ravel()
    size = np.maximum(np.bincount(flat, minlength=count), 1).astype(float)

    def mean(values: NDArray[Any]) -> Floats:
        return np.asarray(np.bincount(flat, values.ravel(), count) / size)

    red, green, blue = pixels[:, 0], pixels[:, 1], pixels[:, 2]
    bands = [pixels[:, band] for band in range(pixels.shape[1])] + [2 * green - red - blue]
    means = [mean(band) for band in bands]
    texture = [np.sqrt(np.maximum(mean(band**2) - m**2, 0)) for band, m in zip(bands, means, strict=True)]
    rows, columns = np.broadcast_arrays(np.arange(pixels.shape[2])[:, None], np.arange(pixels.shape[3]))
    places = [np.broadcast_to(one, numbers.shape).astype(float) for one in (rows, columns)]
    spread_rows, spread_columns = (mean(one**2) - mean(one) ** 2 for one in places)
    together = mean(places[0] * places[1]) - mean(places[0]) * mean(places[1])
    root = np.sqrt((spread_rows - spread_columns) ** 2 + 4 * together**2)
    total = spread_rows + spread_columns
    elongation = np.sqrt(np.maximum(total + root, 1e-9) / np.maximum(total - root, 1 / 12))
    context = [m - _around(m, numbers, count) for m in (means[0], means[1], means[2], means[-1])]
    return np.column_stack([*means, *texture, size, elongation, *context])


def _around(values: Floats, numbers: NDArray[np.int64], count: int) -> Floats:
    """The mean of neighbouring segments, each pair weighted by the pixels along which they touch."""
    total, length = np.zeros(count), np.zeros(count)
    for first, second in ((numbers[:, :-1], numbers[:, 1:]), (numbers[:, :, :-1], numbers[:, :, 1:])):
        touching = first != second
        a, b = first[touching], second[touching]
        total += np.bincount(a, values[b], count) + np.bincount(b, values[a], count)
        length += np.bincount(a, minlength=count) + np.bincount(b, minlength=count)
    return np.where(length > 0, total / np.maximum(length, 1), values)


def _numbered(several: list[NDArray[np.int64]]) -> tuple[NDArray[np.int64], int]:
    """Segments of several tiles, numbered on."""
    counts = np.array([one.max() + 1 for one in several])
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    return np.stack([one + start for one, start in zip(several, starts, strict=True)]), int(counts.sum())


def _some(numbers: NDArray[np.int64], most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    return numbers if len(numbers) <= most else np.sort(rng.choice(numbers, most, replace=False))
