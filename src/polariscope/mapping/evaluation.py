"""How good a map is, and which areas may be published: scores on labels that were held out, by blocks of ground."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.findings import Chart, Column, Findings, Part, Records
from polariscope.grammar import counted
from polariscope.lab.store import Run
from polariscope.mapping.areas import HECTARE, decimals
from polariscope.mapping.scene_maps import MapHow, MapResult, Tell, map_scenes
from polariscope.mapping.scores import Agreement, object_scores
from polariscope.mapping.tally import (
    LEVELS,
    AdjustedAreas,
    ChosenThresholds,
    ClassScores,
    Estimate,
    Tally,
    adjusted_areas,
    block_counts,
    block_draws,
    choose_thresholds,
    mapped_counts,
    pixel_table,
)
from polariscope.mapping.tiles import RasterTiles, tiles_inside
from polariscope.report.mapping_figures import draw_curves
from polariscope.training.run import config_of

FEW_BLOCKS = 10


@dataclass(frozen=True, eq=False)
class MapEvaluation:
    """Scores of a run on labelled ground that it was not trained on."""

    run: Run
    names: tuple[str, ...]
    threshold: tuple[float, ...]
    tally: Tally
    scores: list[ClassScores]
    objects: list[tuple[str, Agreement]]
    thresholds: ChosenThresholds
    """Chosen on one half of the blocks."""
    tuned: list[ClassScores]
    """Scores on the other half with thresholds of their own for the classes."""
    plain: list[ClassScores]
    """Scores on that other half with the threshold of the map."""
    majority: float
    """Accuracy of calling every pixel by the most frequent class."""
    accuracy: Estimate
    areas: dict[str, AdjustedAreas]
    """By scene."""
    errors: dict[str, NDArray[np.int64]]
    """The confusions of blocks by which a scene is corrected."""
    seed: int
    pooled: tuple[str, ...]
    """Scenes with fewer than ten labelled blocks of their own, which are corrected by the errors of all."""
    held_out: bool
    """Whether the blocks were held out of the run\'s own training data; else they are all of another folder."""
    mapped_alone: bool = False
    """Whether tiles with background alone were left out of the blocks."""

    def corrected(self, scene: str, pixels: ArrayLike, pixel_area: float) -> AdjustedAreas:
        """Corrected areas of a part of a scene, from the mapped pixels of each class there."""
        return adjusted_areas(self.errors[scene], pixels, pixel_area, self.names, seed=self.seed)

    def parts(self) -> list[Part]:
        def row(one: ClassScores) -> dict[str, Any]:
            return {
                "class": one.name, "precision": _shown(one.precision), "recall": _shown(one.recall),
                "f1": _shown(one.f1), "iou": _shown(one.iou), "pixels": one.pixels,
            }  # fmt: skip

        heading = [Column("class", "Class"), Column("precision", "Precision"), Column("recall", "Recall"),
                   Column("f1", "F1"), Column("iou", "IoU"), Column("pixels", "True pixels", "%d")]  # fmt: skip
        parts: list[Part] = [
            Records(name="pixel-scores", title="Scores by pixels", rows=[row(one) for one in self.scores],
                    columns=heading, hint="With 95 % intervals from blocks of ground drawn with replacement."),
            Records(
                name="object-scores", title="Scores by objects",
                hint="Objects that touch count as found with all of their area, which hides that objects are drawn too "
                "large: never compare these with scores by pixels. Objects are cut at the borders of blocks.",
                rows=[without_nan({"class": name, "precision": a.precision, "recall": a.recall, "f1": a.f1})
                      for name, a in self.objects],
                columns=[Column("class", "Class"), Column("precision", "Precision", "%.3f"),
                         Column("recall", "Recall", "%.3f"), Column("f1", "F1", "%.3f")],
            ),
        ]  # fmt: skip
        rows = [
            {"class": name, "threshold": self.thresholds.by_class[c].value, "low": self.thresholds.by_class[c].low,
             "high": self.thresholds.by_class[c].high,
             "f1": next(s for s in self.tuned if s.name == name).f1.value,
             "before": next(s for s in self.plain if s.name == name).f1.value}
            for c, name in enumerate(self.names) if c != self.tally.background
        ]  # fmt: skip
        both = (next(s for s in side if s.name == "all classes").f1.value for side in (self.tuned, self.plain))
        rows.append({"class": "one for all, by area", "threshold": self.thresholds.matching.value,
                     "low": self.thresholds.matching.low, "high": self.thresholds.matching.high,
                     **dict(zip(("f1", "before"), both, strict=True))})  # fmt: skip
        parts.append(Records(
            name="thresholds", title="Thresholds from labels", rows=[without_nan(one) for one in rows],
            hint="Chosen on one half of the blocks; F1 is measured on the other half, with these thresholds and with "
                 "that of the map. The range is from other draws of blocks.",
            columns=[Column("class", "Class"), Column("threshold", "Threshold", "%.2f"), Column("low", "From", "%.2f"),
                     Column("high", "To", "%.2f"), Column("f1", "F1 with it", "%.3f"),
                     Column("before", "F1 of the map", "%.3f")],
        ))  # fmt: skip
        lines = [
            {"scene": scene, "class": name, "mapped": areas.mapped[c] / HECTARE, "area": areas.area[c] / HECTARE,
             "low": areas.low[c] / HECTARE, "high": areas.high[c] / HECTARE}
            for scene, areas in self.areas.items() for c, name in enumerate(self.names)
        ]  # fmt: skip
        if lines:
            form = decimals(line[key] for line in lines for key in ("mapped", "area", "high"))
            parts.append(Records(
                name="adjusted-areas", title="Areas corrected for the errors of the map", rows=lines,
                hint="The stratified estimator of Olofsson et al. (2014): labelled blocks show which share of each "
                     "mapped class really belongs to each class. With 95 % intervals over blocks.",
                columns=[Column("scene", "Scene"), Column("class", "Class"), Column("mapped", "Mapped, ha", form),
                         Column("area", "Corrected, ha", form), Column("low", "From", form),
                         Column("high", "To", form)],
            ))  # fmt: skip
        parts.append(Chart(name="threshold-curves", title="Precision and recall over the threshold", draw=self._curves))
        return parts

    def _curves(self) -> Any:
        curves: dict[str, tuple[list[float], list[float]]] = {}
        for c in self.tally.others:
            sides = np.array([self._of_class(c, float(level)) for level in LEVELS[:-1]])
            curves[self.names[c]] = (sides[:, 0].tolist(), sides[:, 1].tolist())
        return draw_curves(LEVELS[:-1], curves, self.threshold[0])

    def _of_class(self, c: int, level: float) -> tuple[float, float]:
        confusion = self.tally.confusions(level).sum(0)
        hits, mapped, true = confusion[c, c], confusion[:, c].sum(), confusion[c].sum()
        return hits / mapped if mapped else np.nan, hits / true if true else np.nan

    @property
    def headline(self) -> str:
        overall = next(one for one in self.scores if one.name == "all classes")
        return (
            f"On {counted(self.tally.blocks, 'block')} of labelled ground: precision {_shown(overall.precision)}, "
            f"recall {_shown(overall.recall)}, IoU {_shown(overall.iou)} by pixels; accuracy "
            f"{self.accuracy.value:.3f}, and {self.majority:.3f} by the most frequent class alone."
        )

    @property
    def notes(self) -> list[str]:
        origin = (
            "The blocks are held-out tiles of the training data."
            if self.held_out
            else "The blocks are all labelled tiles of the given folder."
        )
        notes = [origin]
        if self.mapped_alone:
            notes.append(
                "Blocks of background alone were left out: precision and corrected areas can be too high for the whole "
                "map. Train again with --keep mapped, which now holds out blocks of both kinds, or give labelled "
                "ground of another folder."
            )
        if self.tally.blocks < FEW_BLOCKS:
            notes.append(f"{self.tally.blocks} blocks are few: the intervals are wide, and may still be too narrow.")
        if self.pooled:
            notes.append(
                f"{', '.join(self.pooled)}: corrected by the errors of all labelled scenes, for lack of {FEW_BLOCKS} "
                "labelled blocks of their own. Where the map is poor, this hides differences between years."
            )
        if unknown := self._with_scenes({scene: one.unknown for scene, one in self.areas.items()}):
            notes.append(f"Mapped areas of classes without a mapped pixel in any labelled block were not corrected: "
                         f"{unknown}.")  # fmt: skip
        if doubtful := self._with_scenes({scene: one.doubtful for scene, one in self.areas.items()}):
            notes.append(
                "Intervals of areas are too narrow for classes that the map misses in fewer than 5 labelled blocks, "
                f"because such a rare error may be missing from the labels: {doubtful}."
            )
        return notes

    def _with_scenes(self, named: Mapping[str, Sequence[str]]) -> str:
        """Classes that are named for a scene, with the scenes of each, which are left out where they are all."""
        scenes = {name: [scene for scene, names in named.items() if name in names] for name in self.names}
        return ", ".join(
            name if len(where) == len(named) else f"{name} ({', '.join(where)})"
            for name, where in scenes.items()
            if where
        )

    def findings(self) -> Findings:
        facts = {"run": self.run.id, "blocks": self.tally.blocks, "accuracy": self.accuracy.value,
                 "majority": self.majority, "threshold": list(self.threshold)}  # fmt: skip
        return Findings(f"Evaluation of {self.run.id}", self.headline, self.parts(), self.notes, facts,
                        settings={"run": self.run.id})  # fmt: skip


def without_nan(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of a table, in which numbers that are undefined are None."""
    return {k: None if isinstance(v, float) and not np.isfinite(v) else v for k, v in row.items()}


def _shown(one: Estimate) -> str:
    if not np.isfinite(one.value):
        return "undefined"
    interval = f" [{one.low:.3f}, {one.high:.3f}]" if np.isfinite(one.low) else ""
    return f"{one.value:.3f}{interval}"


def evaluate_map(run: Run, result: MapResult, tiles: RasterTiles | None = None, *, seed: int = 0) -> MapEvaluation:
    """Score maps by the labels of held-out tiles of the run\'s own data, or by those of other ``tiles``. The maps are
    those of scenes that have the labels; other maps get corrected areas, too."""
    own = tiles_inside(config_of(run).world)
    blocks = tiles or own
    numbers = np.arange(len(blocks)) if tiles is not None else _held_out(run)
    if tiles is not None and tiles.legend.names != own.legend.names:
        raise ValueError(
            f"run {run.id} maps {', '.join(own.legend.names)}, and the labels have {', '.join(tiles.legend.names)}: "
            "name them alike in classes.toml"
        )
    by_name = {one.scene.image.resolve(): one for one in result.maps}
    names, background = own.legend.names, own.legend.names.index(own.legend.background)
    counts: list[NDArray[np.int64]] = []
    of_map: list[NDArray[np.int64]] = []
    origins: list[str] = []
    objects: dict[int | None, list[Agreement]] = {c: [] for c in [*range(len(names)), None] if c != background}
    scenes = blocks.folder.labelled
    for n in numbers:
        one = by_name.get(scenes[int(blocks.table.scene[n])].image.resolve())
        if one is None:
            continue
        rows, columns, inner = blocks.own_ground(n)
        truth = blocks.target_of([n])[0][inner, inner]
        origins.append(one.scene.name)
        counts.append(block_counts(truth, np.asarray(one.map.probabilities[:, rows, columns]), len(names), background))
        mapped = np.asarray(one.map.labels[rows, columns]).astype(np.int64)
        of_map.append(mapped_counts(truth, mapped, len(names)))
        truth = np.where(mapped == 255, -1, truth)
        for c, several in objects.items():
            several.append(object_scores(np.where(mapped == 255, background, mapped), truth, background, of=c))
    if len(counts) < 2:
        raise ValueError(
            f"{len(counts)} labelled tiles are left to score the map on, and at least 2 are needed: hold out more "
            "(--share), or give a folder with labels"
        )
    tally = Tally(np.array(counts), background, names)
    how = result.how
    halves = np.random.default_rng(seed).permutation(tally.blocks)
    first, second = halves[: len(halves) // 2], halves[len(halves) // 2 :]
    chosen = choose_thresholds(tally.chosen(first), seed)
    confusions = np.array(of_map)
    total = confusions.sum(0)
    hits = np.trace(confusions, axis1=1, axis2=2).astype(float)
    accuracy = _ratio(hits, confusions.sum((1, 2)).astype(float), seed)
    errors, areas, pooled = {}, {}, []
    for one in result.maps:
        if one.map.grid is None or one.empty:
            continue
        # Errors differ from year to year: those of a scene are its own where it has blocks enough to know them.
        of_scene = np.array([name == one.scene.name for name in origins])
        enough = of_scene.sum() >= FEW_BLOCKS
        pooled += [] if enough else [one.scene.name]
        errors[one.scene.name] = known = confusions[of_scene] if enough else confusions
        areas[one.scene.name] = adjusted_areas(known, one.map.sums.pixels, one.map.grid.pixel_area, names, seed=seed)
    return MapEvaluation(
        run, names, how.threshold, tally, pixel_table(confusions, names, background, seed),
        [("all classes" if c is None else names[c], _summed(several)) for c, several in objects.items()],
        chosen, pixel_table(tally.chosen(second).confusions(chosen.values), names, background, seed),
        pixel_table(confusions[second], names, background, seed), float(total.sum(1).max() / total.sum()), accuracy,
        areas, errors, seed, tuple(pooled), tiles is None, blocks.keep == "mapped",
    )  # fmt: skip


def _held_out(run: Run) -> NDArray[np.int64]:
    config = config_of(run)
    return np.sort(config.split.parts(config.world).held_out)


def _summed(several: Sequence[Agreement]) -> Agreement:
    return Agreement(
        sum(one.hits for one in several), sum(one.false_positives for one in several),
        sum(one.misses for one in several),
    )  # fmt: skip


def _ratio(part: NDArray[np.float64], whole: NDArray[np.float64], seed: int) -> Estimate:
    weights = block_draws(len(part), seed)
    low, high = np.quantile((weights @ part) / (weights @ whole), [0.025, 0.975])
    return Estimate(float(part.sum() / whole.sum()), float(low), float(high))


def mapped_for(run: Run, tiles: RasterTiles, folder: Path, how: MapHow, tell: Tell | None = None) -> MapResult:
    """Maps of the labelled scenes of a folder, made now or read if they exist."""
    return map_scenes(run, tiles.folder.labelled, folder, how, tell)
