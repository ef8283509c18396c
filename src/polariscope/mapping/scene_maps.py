"""Map scenes with a trained run: rasters, objects, areas and a picture for each; interrupted work continues."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polariscope.atomic import atomic
from polariscope.findings import Column, Findings, Part, Records
from polariscope.foreign_files import reading
from polariscope.grammar import counted
from polariscope.lab.store import Run, fingerprint
from polariscope.mapping.apply import WINDOW, MapSettings, RasterMap, map_raster
from polariscope.mapping.areas import HECTARE, decimals
from polariscope.mapping.exports import remove_objects, write_geotiff, write_npy, write_objects
from polariscope.mapping.filters import ObjectFilter, check_filters, kept, layer_bands
from polariscope.mapping.labels import unclipped
from polariscope.mapping.pictures import heat_part, map_part, write_heat_picture, write_map_picture
from polariscope.mapping.polygons import map_objects
from polariscope.mapping.rasters import Raster, band_types
from polariscope.mapping.scenes import SceneFiles, open_layer
from polariscope.mapping.tiles import RasterTiles, tiles_inside
from polariscope.objectives.segment import Segment
from polariscope.strict_json import json_text
from polariscope.training.run import config_of, load_model

VERSION = 2
FORMATS = ("gpkg", "shp", "geojson")
SETTINGS = "settings.json"
Tell = Callable[[str, float], None]


@dataclass(frozen=True)
class MapHow:
    """How scenes are mapped."""

    threshold: tuple[float, ...] = (0.5,)
    """Probability above which a pixel gets a class besides the background: one, or one for each class."""
    undo_weights: bool = True
    """Undo the class weights of the training before anything is read off the probabilities."""
    least: float = 4.0
    """Square metres of the smallest object."""
    filters: tuple[ObjectFilter, ...] = ()
    """Objects to keep."""
    formats: tuple[str, ...] = ("gpkg",)
    """Files of objects: gpkg, shp, geojson."""
    window: int = WINDOW
    workers: int = 1

    def __post_init__(self) -> None:
        unknown = [name for name in self.formats if name not in FORMATS]
        if unknown or not self.formats:
            given = ", ".join(self.formats) or "nothing"
            raise ValueError(f"objects are written as {', '.join(FORMATS[:-1])} or {FORMATS[-1]}; got {given}")
        if not self.threshold or self.workers < 1:
            raise ValueError("a map needs a threshold and at least one worker")
        if not 0 <= self.least < math.inf:
            raise ValueError(f"the smallest object has {self.least:g} square metres: give a number from 0 on (--least)")


@dataclass(frozen=True, eq=False)
class SceneMap:
    """A scene that has been mapped, with its files."""

    scene: SceneFiles
    map: RasterMap
    names: tuple[str, ...]
    folder: Path
    objects: int | None
    """None if there are no coordinates for objects."""
    object_areas: tuple[float, ...]
    """Square metres of each class in the objects that pass the filters."""

    @property
    def empty(self) -> bool:
        """Whether no pixel has data, so that areas of 0 say nothing."""
        return not self.map.sums.valid


@dataclass(frozen=True, eq=False)
class MapResult:
    """Maps of several scenes by one run."""

    run: Run
    maps: Sequence[SceneMap]
    how: MapHow

    def parts(self) -> list[Part]:
        """The table of areas, and pictures of each map and of its probabilities."""
        rows: list[dict[str, Any]] = []
        for one in self.maps:
            if one.empty:
                rows += [{"scene": one.scene.name, "class": name, "area": None, "full": None, "objects": None}
                         for name in one.names]  # fmt: skip
                continue
            hard, full = one.map.areas() if one.map.grid is not None else one.map.areas(1.0)
            unit = HECTARE if one.map.grid is not None else 1.0
            for c, name in enumerate(one.names):
                objects = one.object_areas[c] / unit if one.objects is not None else None
                rows.append({"scene": one.scene.name, "class": name, "area": hard[c] / unit, "full": full[c] / unit,
                             "objects": objects})  # fmt: skip
        placed = all(one.map.grid is not None for one in self.maps)
        unit_name = "ha" if placed else "pixels"
        form = decimals(row[key] for row in rows for key in ("area", "full", "objects")) if placed else "%.0f"
        columns = [
            Column("scene", "Scene"), Column("class", "Class"), Column("area", f"Mapped, {unit_name}", form),
            Column("full", f"By full probabilities, {unit_name}", form),
            Column("objects", f"In filtered objects, {unit_name}", form),
        ]  # fmt: skip
        parts: list[Part] = [Records(name="areas", title="Areas", rows=rows, columns=columns,
                                     hint="As mapped; errors of the map are not corrected here.")]  # fmt: skip
        for one in self.maps:
            picture = one.folder / "map.png"
            if picture.exists():
                parts.append(map_part(one.map, picture, one.names, one.scene.name))
            heat = one.folder / "probability.png"
            if heat.exists():
                parts.append(heat_part(one.map, heat, one.scene.name))
        return parts

    @property
    def notes(self) -> list[str]:
        """What a reader of the areas must know about the scenes."""
        empty = [one for one in self.maps if one.empty]
        notes = []
        if empty:
            where = " inside the area of interest" if any(one.scene.area is not None for one in empty) else ""
            notes.append(f"{_listed(empty)}: no pixel has data{where}, so there are no areas.")
        bare = [one for one in self.maps if not _has_objects(one.map)]
        if bare:
            notes.append(
                f"{_listed(bare)}: an image without coordinates has no objects as polygons; its map is map.npy and "
                "probabilities.npy."
            )
        return notes

    def findings(self) -> Findings:
        names = self.maps[0].names
        unit = "ha" if self.maps[0].map.grid is not None else "pixels"
        background = self.maps[0].map.settings.background
        total = sum(sum(area for c, area in enumerate(_areas(one)) if c != background) for one in self.maps)
        shown = total / HECTARE if unit == "ha" else total
        form = decimals([shown]) if unit == "ha" else "%.0f"
        size = f"{shown:,{form[1:]}} {unit} of {counted(len(names) - 1, 'class', 'classes')}"
        if all(one.empty for one in self.maps):
            size = "no pixel has data"
        headline = f"{counted(len(self.maps), 'scene')} mapped: {size}."
        notes = [
            f"The threshold is {', '.join(f'{t:g}' for t in self.how.threshold)}; windows of {self.how.window} pixels "
            "fit together exactly, and the map does not depend on them.",
            "polariscope map evaluate corrects areas for the errors of the map.",
            *self.notes,
        ]
        facts = {"run": self.run.id, "files": {one.scene.name: str(one.folder) for one in self.maps}}
        return Findings(f"Maps by {self.run.id}", headline, self.parts(), notes, facts,
                        settings={"run": self.run.id, "threshold": list(self.how.threshold),
                                  "undo_weights": self.how.undo_weights, "least": self.how.least})  # fmt: skip


def _listed(several: Sequence[SceneMap]) -> str:
    return ", ".join(one.scene.name for one in several)


def _areas(one: SceneMap) -> list[float]:
    return one.map.areas(None if one.map.grid is not None else 1.0)[0].tolist()


def relative(path: Path, folder: Path) -> str:
    """Where a file lies, seen from a folder."""
    return Path(*[".."] * _apart(path, folder), *path.resolve().parts[_shared(path, folder) :]).as_posix()


def _shared(path: Path, folder: Path) -> int:
    pairs = zip(path.resolve().parts, folder.resolve().parts, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(path.resolve().parts),
                                                                       len(folder.resolve().parts)))  # fmt: skip


def _apart(path: Path, folder: Path) -> int:
    return len(folder.resolve().parts) - _shared(path, folder)


def map_settings(run: Run, how: MapHow) -> tuple[RasterTiles, MapSettings]:
    """The tiles that a run was trained on, and how a raster is mapped as it was trained."""
    config = config_of(run)
    tiles = tiles_inside(config.world)
    names = tiles.legend.names
    if not tiles.legend.background:
        raise ValueError(
            f"run {run.id} has no background class, and a map needs one: name it in classes.toml and train again"
        )
    objective = config.objective
    weights = objective.weights if isinstance(objective, Segment) and how.undo_weights else ()
    threshold: float | tuple[float, ...] = how.threshold if len(how.threshold) > 1 else how.threshold[0]
    dtype = tiles.rasters[0].dtype
    white = None if dtype == np.uint8 or dtype.kind == "f" else 1.0
    background = names.index(tiles.legend.background)
    return tiles, MapSettings(background, threshold, weights, how.window, white)


def map_scenes(
    run: Run, scenes: Sequence[SceneFiles], folder: Path, how: MapHow, tell: Tell | None = None
) -> MapResult:
    """Map scenes into folders of their names. Finished work with the same settings is not repeated unless the files of
    the scene have changed, interrupted work continues, and a folder with another map is refused."""
    tiles, settings = map_settings(run, how)
    network = load_model(run)
    with run.checkpoint.open("rb") as file:
        made_with = hashlib.file_digest(file, "sha256").hexdigest()
    names = tiles.legend.names
    for scene in scenes:  # all of them before the first is mapped
        raster = scene.open()
        _check_like(raster, tiles)
        _check_objects(scene, raster, how)
    maps = []
    for scene in scenes:
        raster = scene.open()

        def progress(done: int, of: int, name: str = scene.name) -> None:
            if tell is not None:
                tell(name, done / of)

        place = folder / scene.name
        mapped = map_raster(network, raster, place, settings, made_with=made_with, workers=how.workers,
                           progress=progress)  # fmt: skip
        maps.append(_exported(scene, raster, mapped, names, place, how))
    with atomic(folder / SETTINGS) as draft:
        draft.write_text(json_text(dataclasses.asdict(how), indent=1) + "\n", encoding="utf-8")
    return MapResult(run, maps, how)


def read_how(folder: Path) -> MapHow | None:
    """How the maps in a folder were made; None if there are none."""
    file = folder / SETTINGS
    if not file.exists():
        return None
    with reading(file, "the settings of maps"):
        settings = json.loads(file.read_text(encoding="utf-8"))
        filters = tuple(ObjectFilter(**one) for one in settings.pop("filters"))
        settings |= {"threshold": tuple(settings["threshold"]), "formats": tuple(settings["formats"])}
        return MapHow(filters=filters, **settings)


def _check_like(raster: Raster, tiles: RasterTiles) -> None:
    first = tiles.rasters[0]
    if raster.shape[0] != first.shape[0]:
        raise ValueError(
            f"{raster.name} has {counted(raster.shape[0], 'band')}, and the run was trained on {first.shape[0]}: "
            "give the same bands and layers, in their order"
        )
    for (name, own), (_, trained_on) in zip(band_types(unclipped(raster)), band_types(unclipped(first)), strict=True):
        if own != trained_on:
            raise ValueError(
                f"{name} has numbers of type {own}, and the run was trained on {trained_on}: convert it to the numbers "
                "of the training images"
            )


def _check_objects(scene: SceneFiles, raster: Raster, how: MapHow) -> None:
    """Refuse objects that the image or its layers do not allow."""
    if not _has_objects(raster):
        if how.filters or how.formats != MapHow.formats:
            given = "--only" if how.filters else f"--formats {' '.join(how.formats)}"
            raise ValueError(
                f"{raster.name} has no coordinates, so its map has no objects as polygons: give a GeoTIFF, or leave "
                f"out {given}"
            )
        return
    check_filters(how.filters, layers_of(scene, raster))


def _has_objects(placed: Raster | RasterMap) -> bool:
    """Whether a map has objects as polygons: only where its image has coordinates."""
    return placed.grid is not None and bool(placed.grid.crs)


def layers_of(scene: SceneFiles, raster: Raster) -> dict[str, Any]:
    """Layers of a scene by name, whose means its objects get."""
    plain = unclipped(raster)
    return layer_bands(plain, [(path.stem, open_layer(path, plain.grid)) for path in scene.layers])


def _exported(
    scene: SceneFiles, raster: Raster, raster_map: RasterMap, names: tuple[str, ...], place: Path, how: MapHow
) -> SceneMap:
    """The files of a map; those that are there with these settings stay."""
    record = place / "map.json"
    wanted = fingerprint({"version": VERSION, "least": how.least, "filters": repr(how.filters),
                          "formats": sorted(how.formats)})  # fmt: skip
    recorded = json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}
    if recorded.get("map") == raster_map.made:
        if recorded.get("made") == wanted:
            return SceneMap(scene, raster_map, names, place, recorded["objects"], tuple(recorded["object_areas"]))
        raise ValueError(
            f"{place} holds a map whose objects were made with other settings: take another folder with --out, or "
            "remove it"
        )
    count: int | None = None
    areas = np.zeros(len(names))
    if _has_objects(raster_map):
        for name, shares in (("map.tif", False), ("probabilities.tif", True)):
            (place / name).unlink(missing_ok=True)  # of a work that was cut off before its record
            write_geotiff(raster_map, place / name, names, probabilities=shares)
        count = _write_objects(scene, raster, raster_map, names, place, how, areas)
    else:
        for name, shares in (("map.npy", False), ("probabilities.npy", True)):
            (place / name).unlink(missing_ok=True)
            write_npy(raster_map, place / name, probabilities=shares)
    write_map_picture(raster_map, raster, names, place / "map.png", scene.name)
    write_heat_picture(raster_map, raster, place / "probability.png", scene.name)
    with atomic(record) as draft:
        recorded = {"map": raster_map.made, "made": wanted, "objects": count, "object_areas": areas.tolist(),
                    "names": list(names), "background": raster_map.settings.background, "year": scene.year,
                    "region": scene.region, "image": str(scene.image)}  # fmt: skip
        draft.write_text(json_text(recorded, indent=1) + "\n", encoding="utf-8")
    return SceneMap(scene, raster_map, names, place, count, tuple(areas.tolist()))


def _write_objects(
    scene: SceneFiles, raster: Raster, raster_map: RasterMap, names: tuple[str, ...], place: Path, how: MapHow,
    areas: Any,
) -> int:  # fmt: skip
    layers = layers_of(scene, raster)
    grid = raster_map.grid
    assert grid is not None
    count = 0
    for number, suffix in enumerate(how.formats):
        remove_objects(place / f"objects.{suffix}")

        def counted_objects(first: bool = number == 0) -> Any:
            for one in kept(map_objects(raster_map, least=how.least, layers=layers), how.filters):
                if first:
                    areas[one.label] += one.area
                yield one

        count = write_objects(counted_objects(), place / f"objects.{suffix}", grid.crs, names, list(layers))
    return count
