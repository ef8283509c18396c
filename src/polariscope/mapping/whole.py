"""From a run to its maps, their evaluation and their trend, and the one document of all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from polariscope.findings import Findings
from polariscope.lab.store import Run
from polariscope.mapping.evaluation import MapEvaluation, Tell, evaluate_map, mapped_for
from polariscope.mapping.labels import Clipped
from polariscope.mapping.scene_maps import MapHow, MapResult
from polariscope.mapping.scenes import SceneFiles, SceneFolder, scene_of
from polariscope.mapping.tiles import RasterTiles, tiles_inside
from polariscope.mapping.training import TrainedMap
from polariscope.mapping.trends import MapTrend, map_trend
from polariscope.training.run import config_of


def scenes_at(
    places: Iterable[Path | str],
    run: Run,
    *,
    layers: Sequence[Path] = (),
    area: Path | None = None,
    pixel: float | None = None,
) -> list[SceneFiles]:
    """Images and folders of images as scenes to map with a run; folders are read as the training folder was."""
    own = tiles_inside(config_of(run).world)
    scenes: list[SceneFiles] = []
    for place in map(Path, places):
        if place.is_dir():
            if layers or area is not None:
                given = "--layers" if layers else "--area"
                raise ValueError(
                    f"{given} is for single images, and {place} is a folder, which has its own: put layers into "
                    f"{place / 'layers'} and the area of interest beside them as area.gpkg"
                )
            scenes += SceneFolder(place, own.field, pixel or own.pixel).scenes
        else:
            scene = scene_of(place, None, layers, area, pixel)
            opened = scene.open()
            if isinstance(opened, Clipped):
                opened.check_overlap()
            scenes.append(scene)
    return scenes


def labelled_elsewhere(run: Run, folder: Path | str) -> RasterTiles:
    """All labels of another folder, with the classes of a run."""
    own = tiles_inside(config_of(run).world)
    return replace(own, path=str(folder), keep="all", classes=own.legend.names)


def evaluate_run(
    run: Run,
    maps: Path,
    how: MapHow,
    *,
    tiles: RasterTiles | None = None,
    also: MapResult | None = None,
    tell: Tell | None = None,
) -> MapEvaluation:
    """Map the labelled images of a run (or of other ``tiles``) and score the maps; images that were mapped before
    count in the areas ``also``."""
    labelled = mapped_for(run, tiles or tiles_inside(config_of(run).world), maps, how, tell)
    known = {one.scene.image.resolve() for one in labelled.maps}
    more = [one for one in (also.maps if also else ()) if one.scene.image.resolve() not in known]
    return evaluate_map(run, replace(labelled, maps=[*labelled.maps, *more]), tiles)


@dataclass(frozen=True, eq=False)
class WholeMap:
    """A training, its maps, their evaluation and, where images of several years are mapped, their trend."""

    trained: TrainedMap
    result: MapResult
    evaluation: MapEvaluation
    maps: Path
    trend: MapTrend | None
    lack: str = ""
    """Why there is no trend."""

    @classmethod
    def of(cls, trained: TrainedMap, result: MapResult, evaluation: MapEvaluation, maps: Path) -> WholeMap:
        """With the trend, if it can be computed."""
        try:
            return cls(trained, result, evaluation, maps, map_trend(result, evaluation, maps))
        except ValueError as error:
            return cls(trained, result, evaluation, maps, None, f"No trend was computed: {error}.")

    def findings(self, title: str, page: Path) -> Findings:
        """One document; ``page`` is the folder that it will be in, for its links to maps."""
        trend, run, training = self.trend, self.trained.run, self.trained.findings()
        parts = [*(trend.parts(page) if trend else []), *self.result.parts(), *self.evaluation.parts(), *training.parts]
        notes = [*(trend.notes if trend else [self.lack]), *self.result.notes, *self.evaluation.notes, *training.notes]
        headline = f"{trend.headline if trend else ''} {self.evaluation.headline}".strip()
        facts = {"run": run.id, "maps": str(self.maps)}
        return Findings(title, headline, parts, notes, facts, settings=run.config)
