"""A folder of scenes: images of places and years, with labels and further layers.

``images/`` has the images, whose names end in a year if there are several years (``urseren_2016.tif``); ``labels/`` has
a file of the same name for each labelled image; ``layers/`` has rasters that become further bands of every image, and a
layer called ``heights``, ``dtm`` or ``dem`` becomes slope, direction and curvature; ``area.gpkg`` is an area of
interest; ``classes.toml`` names the classes. Only ``images/`` is required.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from polariscope.mapping.labels import (
    BACKGROUND,
    VECTORS,
    Clipped,
    Labels,
    Legend,
    legend_of,
    open_labels,
    read_legend,
)
from polariscope.mapping.rasters import GEOTIFF, PICTURES, Grid, Raster, Stack, TerrainLayers, open_beside, open_raster

RASTERS = (*GEOTIFF, ".npy", *PICTURES)
HEIGHTS = ("heights", "dtm", "dem")
YEAR = re.compile(r"^(?P<region>.*?)[-_ ]?(?P<year>(?:19|20)\d\d)$")


@dataclass(frozen=True)
class SceneFiles:
    """One image with what belongs to it."""

    image: Path
    region: str
    year: int | None
    labels: Path | None = None
    layers: tuple[Path, ...] = ()
    area: Path | None = None
    pixel: float | None = None
    """Size of a pixel in metres, for images without coordinates."""

    @property
    def name(self) -> str:
        return self.image.stem

    def open(self) -> Raster:
        """The image with its layers, and within its area."""
        image = open_raster(self.image, self.pixel)
        layers = [open_layer(path, image.grid) for path in self.layers]
        stack: Raster = Stack([image, *layers]) if layers else image
        return stack if self.area is None else Clipped(stack, self.area)

    def open_labels(self, raster: Raster, legend: Legend) -> Labels:
        if self.labels is None:
            raise ValueError(f"{self.image}: no labels; put them into labels/ under the same name")
        return open_labels(self.labels, raster, legend)


@dataclass(frozen=True)
class SceneFolder:
    """All scenes of a folder."""

    path: Path
    field: str = ""
    """The attribute of polygons that names their class."""
    pixel: float | None = None
    classes: tuple[str, ...] = ()
    """Names of the classes in their order; by default those of the labels."""

    @cached_property
    def scenes(self) -> tuple[SceneFiles, ...]:
        images = _files(self.path / "images", RASTERS)
        if not images:
            raise ValueError(
                f"{self.path}: expected a folder with images/ and labels/, and there is no image in "
                f"{self.path / 'images'}"
            )
        labels = {file.stem: file for file in _files(self.path / "labels", (*VECTORS, *RASTERS))}
        layers = tuple(_files(self.path / "layers", GEOTIFF))
        area = next((self.path / f"area{suffix}" for suffix in VECTORS if (self.path / f"area{suffix}").exists()), None)
        unused = sorted(set(labels) - {image.stem for image in images})
        if unused:
            raise ValueError(f"{labels[unused[0]]}: there is no image of this name in {self.path / 'images'}")
        return tuple(scene_of(image, labels.get(image.stem), layers, area, self.pixel) for image in images)

    @property
    def labelled(self) -> tuple[SceneFiles, ...]:
        scenes = tuple(scene for scene in self.scenes if scene.labels is not None)
        if not scenes:
            raise ValueError(f"{self.path / 'labels'}: there is no label file with the name of an image")
        return scenes

    @cached_property
    def legend(self) -> Legend:
        own = self.path / "classes.toml"
        if own.exists():
            return read_legend(own)
        if self.classes:
            codes = {name: number for number, name in enumerate(self.classes)}
            return Legend(self.classes, codes, BACKGROUND if BACKGROUND in codes else "", self.field)
        return legend_of([scene.labels for scene in self.labelled if scene.labels is not None], self.field)


def scene_of(
    image: Path,
    labels: Path | None = None,
    layers: Sequence[Path] = (),
    area: Path | None = None,
    pixel: float | None = None,
) -> SceneFiles:
    """A scene whose name contains its region and its year."""
    dated = YEAR.match(image.stem)
    region, year = (dated["region"] or "scene", int(dated["year"])) if dated else (image.stem, None)
    return SceneFiles(image, region, year, labels, tuple(layers), area, pixel)


def open_layer(path: Path, grid: Grid | None = None) -> Raster:
    """A layer of an image with this grid; heights become slope, direction and curvature."""
    raster = open_beside(path, grid)
    return TerrainLayers(raster) if is_heights(path) else raster


def is_heights(path: Path) -> bool:
    """Whether a layer has heights: by the first word of its name.

    >>> [is_heights(Path(name)) for name in ("dem.tif", "DTM_2m.tif", "heights2016.tif", "demography.tif")]
    [True, True, True, False]
    """
    return re.split(r"[^a-z]", path.stem.lower())[0] in HEIGHTS


def _files(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in suffixes and not p.name.startswith("."))
