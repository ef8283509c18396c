"""Pictures of manipulations and of their effects: triptychs, latents against factors, traversals of latent planes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from numpy.typing import ArrayLike, NDArray
from torch import nn

from polariscope.examination.traversals import REACH, Coordinates, traverse, traverse_plane
from polariscope.manipulation.manipulation import Manipulated
from polariscope.report.figures import DIVERGING, LIGHT, image_grid, panels, styled
from polariscope.worlds.pictures import Limits, limits_of, pictured
from polariscope.worlds.world import sample

SHOWN = 2000  # points of a scatter


@styled
def triptych(manipulated: Manipulated, rows: int = 3, seed: int = 0) -> Figure:
    """Original, change and altered observation side by side, one example per row.

    The colours of the change run from −ε to ε. Points are drawn as curves over their coordinates.
    """
    _, _, index = sample(manipulated.original, rows, seed)
    panels = manipulated.original.observe(index), manipulated.change_of(index), manipulated.world.observe(index)
    images = len(manipulated.world.shape) == 3
    figure = Figure(figsize=(6.4, (2.0 if images else 1.3) * len(index) + 0.4), layout="constrained")
    grid = figure.subplots(len(index), 3, squeeze=False)
    shade: AxesImage | None = None
    limits = limits_of([panels[0]]) if images else (0.0, 1.0)
    for row, example in zip(grid, zip(*panels, strict=True), strict=True):
        for column, (axes, values) in enumerate(zip(row, example, strict=True)):
            if images:
                shade = _draw_image(axes, values, manipulated.epsilon if column == 1 else None, limits) or shade
            else:
                axes.plot(values, color=LIGHT["second" if column == 1 else "first"], marker="o", markersize=3)
                if column == 1:
                    axes.set_ylim(-1.05 * manipulated.epsilon, 1.05 * manipulated.epsilon)
    for axes, title in zip(grid[0], ("original", f"change, ±{manipulated.epsilon:g}", "altered"), strict=True):
        axes.set_title(title)
    if shade is not None:
        figure.colorbar(shade, ax=grid[:, 1], fraction=0.05, pad=0.02)
    return figure


def _draw_image(axes: Axes, values: NDArray[np.generic], bound: float | None, limits: Limits) -> AxesImage | None:
    """Draw one image. With a bound it is signed (the mean over its channels), and the drawn image is returned."""
    axes.set_axis_off()
    if bound is not None:
        return axes.imshow(values.astype(float).mean(axis=0), cmap=DIVERGING, vmin=-bound, vmax=bound)
    axes.imshow(np.moveaxis(pictured(values, limits), 0, -1), cmap="gray", vmin=0, vmax=255)
    return None


@styled
def latent_scatter(codes: ArrayLike, factors: ArrayLike, names: Sequence[str], seed: int = 0) -> Figure:
    """Every latent (rows) against every factor (columns): a disentangled code shows one clear curve per row."""
    z, v = np.asarray(codes), np.asarray(factors)
    if z.ndim != 2 or v.shape != (len(z), len(names)):
        raise ValueError(f"a scatter needs codes (n, d) and factors (n, {len(names)}); got {z.shape} and {v.shape}")
    shown = np.random.default_rng(seed).permutation(len(z))[:SHOWN]
    size = (0.8 + 1.5 * len(names), 0.5 + 1.2 * z.shape[1])
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(z.shape[1], len(names), squeeze=False, sharex="col", sharey="row")
    for i, row in enumerate(grid):
        for j, axes in enumerate(row):
            axes.scatter(v[shown, j], z[shown, i], s=2, alpha=0.4, color=LIGHT["active"], linewidths=0, rasterized=True)
        row[0].set_ylabel(f"z{i}")
    for axes, name in zip(grid[-1], names, strict=True):
        axes.set_xlabel(name)
    return figure


@styled
def traversal_rows(
    model: nn.Module,
    start: ArrayLike,
    latents: Sequence[int] | None = None,
    reach: float = REACH,
    steps: int = 9,
    names: Sequence[str] | None = None,
    limits: Limits = (0.0, 1.0),
) -> Figure:
    """One traversed latent per row, from −reach to reach around the start; ``limits`` are drawn black and white."""
    walked = traverse(model, start, latents, reach, steps)
    labels = names or [f"z{j}" for j in (latents if latents is not None else range(len(walked)))]
    figure = _picture(walked, limits)
    axes = figure.axes[0]
    height = axes.get_images()[0].get_array().shape[0] / len(walked)  # type: ignore[union-attr]
    axes.set_yticks((np.arange(len(walked)) + 0.5) * height, labels)
    axes.set_xlabel(f"−{reach:g} to {reach:g}")
    return figure


@styled
def traversal_plane(
    model: nn.Module,
    start: ArrayLike,
    latents: tuple[int, int],
    reach: float = REACH,
    steps: tuple[int, int] = (9, 9),
    coordinates: Coordinates = "cartesian",
    limits: Limits = (0.0, 1.0),
) -> Figure:
    """The plane of two latents as a table of images, along its axes or by radius (rows) and angle (columns)."""
    figure = _picture(traverse_plane(model, start, latents, reach, steps, coordinates), limits)
    axes = figure.axes[0]
    a, b = latents
    polar = coordinates == "polar"
    axes.set_xlabel("angle, 0 to 360 degrees" if polar else f"z{a}, −{reach:g} to {reach:g}")
    axes.set_ylabel(f"radius in z{a}, z{b}, 0 to {reach:g} (down)" if polar else f"z{b}, −{reach:g} to {reach:g}")
    return figure


def _picture(observations: NDArray[np.float32], limits: Limits) -> Figure:
    """Images ``(rows, columns, c, h, w)`` tiled on one pair of axes."""
    if observations.ndim != 5:
        raise ValueError(f"traversals are drawn as images; this model decodes points of shape {observations.shape[2:]}")
    tiles = image_grid(observations, limits=limits)
    rows, columns = observations.shape[:2]
    figure, (axes,) = panels(1, 0.8 + 0.6 * columns, 0.6 + 0.6 * rows)
    axes.imshow(np.asarray(tiles))
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(False)
    axes.spines[:].set_visible(False)
    return figure
