"""The trend of mapped areas: years of one region, class by class, with intervals, and what changed where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polariscope.findings import Chart, Column, Findings, Part, Records
from polariscope.lab.store import Run
from polariscope.mapping.areas import HECTARE, decimals
from polariscope.mapping.change import Change, CommonGround, change_of, common_ground, write_change
from polariscope.mapping.evaluation import MapEvaluation, without_nan
from polariscope.mapping.scene_maps import MapResult, SceneMap, relative
from polariscope.mapping.trend import Trend, trend
from polariscope.report.mapping_figures import draw_areas, draw_increases

ALL = "all classes"
ALIKE = 0.01
"""Share by which the ground of years may differ where it cannot be compared pixel by pixel."""


@dataclass(frozen=True, eq=False)
class RegionTrend:
    """Areas of one region over its years: hectares ``(years, classes and all of them)``."""

    region: str
    years: tuple[int, ...]
    names: tuple[str, ...]
    """Classes besides the background, and all of them together."""
    mapped: NDArray[np.float64]
    full: NDArray[np.float64]
    corrected: NDArray[np.float64] | None
    low: NDArray[np.float64] | None
    high: NDArray[np.float64] | None
    lines: Mapping[str, Trend]
    """By class, of the corrected areas where there are any, else of the mapped ones."""
    change: Change | None
    change_file: Path | None
    problem: str = ""
    """The reason why there is no change raster."""
    ground: str = ""
    """Which ground the areas are of, where not every year has data on all of it."""
    whole: bool = True
    """Whether the areas of all years are of the same ground."""


@dataclass(frozen=True, eq=False)
class MapTrend:
    """Trends of all regions that were mapped in at least two years."""

    run: Run
    regions: Sequence[RegionTrend]
    left_out: tuple[str, ...] = ()
    """Scenes in which no pixel has data."""

    def parts(self, page: Path) -> list[Part]:
        parts: list[Part] = []
        rows: list[dict[str, Any]] = []
        lines: list[dict[str, Any]] = []
        for one in self.regions:
            for t, year in enumerate(one.years):
                for c, name in enumerate(one.names):
                    row = {"region": one.region, "year": year, "class": name, "mapped": one.mapped[t, c],
                           "full": one.full[t, c]}  # fmt: skip
                    if one.corrected is not None and one.low is not None and one.high is not None:
                        row |= {"area": one.corrected[t, c], "low": one.low[t, c], "high": one.high[t, c]}
                    rows.append(row)
            for name, line in one.lines.items():
                low, high = line.extremes
                lines.append({
                    "region": one.region, "class": name, "slope": line.slope, "slope_low": line.interval[0],
                    "slope_high": line.interval[1], "increase": line.relative_increase,
                    "low": line.bootstrap[0], "high": line.bootstrap[1], "flattest": low, "steepest": high,
                })  # fmt: skip
        form = decimals(row.get(key) for row in rows for key in ("mapped", "full", "area", "high"))
        rate = decimals(line["slope"] for line in lines)
        parts.append(Records(
            name="areas-by-year", title="Areas by year, in hectares", rows=rows,
            hint="Corrected areas have 95 % intervals over labelled blocks.",
            columns=[Column("region", "Region"), Column("year", "Year", "%d"), Column("class", "Class"),
                     Column("mapped", "Mapped", form), Column("full", "By full probabilities", form),
                     Column("area", "Corrected", form), Column("low", "From", form), Column("high", "To", form)],
        ))  # fmt: skip
        parts.append(Records(
            name="trend", title="Trend", rows=[without_nan(line) for line in lines],
            hint="A line by least squares. The slope has a 95 % interval by Student\'s t; the relative increase from "
            "the first to the last year has a bootstrapped 95 % interval, and the two published extreme lines.",
            columns=[Column("region", "Region"), Column("class", "Class"), Column("slope", "ha per year", rate),
                     Column("slope_low", "From", rate), Column("slope_high", "To", rate),
                     Column("increase", "Increase", "percent"), Column("low", "From", "percent"),
                     Column("high", "To", "percent"), Column("flattest", "Flattest line", "percent", aside=True),
                     Column("steepest", "Steepest line", "percent", aside=True)],
        ))  # fmt: skip
        for one in self.regions:
            parts.append(Chart(name=f"areas-{one.region}", title=f"Areas of {one.region}", draw=_areas_figure(one)))
            parts.append(Chart(name=f"increases-{one.region}", title=f"Relative increase of {one.region}",
                               draw=_increase_figure(one)))  # fmt: skip
            if one.change is not None:
                changes = [
                    {"class": name, "stable": one.change.stable[c] / HECTARE, "gain": one.change.gain[c] / HECTARE,
                     "loss": one.change.loss[c] / HECTARE}
                    for c, name in enumerate(one.change.names) if name in one.names
                ]  # fmt: skip
                where = f" The raster is {relative(one.change_file, page)}." if one.change_file is not None else ""
                parts.append(Records(
                    name=f"change-{one.region}",
                    title=f"Change of {one.region} from {one.years[0]} to {one.years[-1]}, in hectares", rows=changes,
                    hint=f"As mapped: errors of the two maps add to gain and loss.{where}",
                    columns=[Column("class", "Class"), Column("stable", "Stable", form),
                             Column("gain", "Gain", form), Column("loss", "Loss", form)],
                ))  # fmt: skip
        return parts

    @property
    def headline(self) -> str:
        sentences: dict[str, list[str]] = {}
        for one in self.regions:
            line = one.lines[ALL]
            low, high = line.bootstrap
            interval = f" [{100 * low:.0f}, {100 * high:.0f}]" if np.isfinite(low) else ""
            grown = line.relative_increase
            size = "its increase is undefined" if not np.isfinite(grown) else f"{100 * grown:+.0f} %{interval}"
            kind = "Mapped area" if one.corrected is None else "Corrected area"
            doubt = "" if one.whole else " (of different ground, see the notes)"
            sentences.setdefault(kind, []).append(f"{one.region}, {one.years[0]} to {one.years[-1]}: {size}{doubt}")
        return " ".join(f"{kind}: {'; '.join(several)}." for kind, several in sentences.items())

    @property
    def notes(self) -> list[str]:
        notes = [f"{name} is left out of the trend: no pixel has data." for name in self.left_out]
        for one in self.regions:
            if one.ground:
                notes.append(one.ground)
            if len(one.years) < 3:
                notes.append(f"{one.region} was mapped in two years: a line through two points has no error.")
            if one.corrected is None:
                notes.append(
                    f"Areas of {one.region} are as mapped: without labels their errors are not known "
                    "(polariscope map evaluate)."
                )
            if one.problem:
                notes.append(f"{one.region} has no change raster: {one.problem}.")
        return notes

    def findings(self, page: Path) -> Findings:
        facts = {"run": self.run.id, "regions": [one.region for one in self.regions]}
        return Findings(f"Trend by {self.run.id}", self.headline, self.parts(page), self.notes, facts,
                        settings={"run": self.run.id})  # fmt: skip


def map_trend(result: MapResult, evaluation: MapEvaluation | None = None, folder: Path | None = None) -> MapTrend:
    """Trends of the regions in maps of several years; change rasters go to ``folder``."""
    by_region: dict[str, dict[int, SceneMap]] = {}
    for one in result.maps:
        if one.scene.year is not None and one.map.grid is not None and not one.empty:
            by_region.setdefault(one.scene.region, {})[one.scene.year] = one
    several = {region: dict(sorted(maps.items())) for region, maps in by_region.items() if len(maps) > 1}
    if not several:
        raise ValueError(
            "a trend needs maps of the same region in at least two years, with coordinates: end the names of images "
            "in their year (valley_2016.tif)"
        )
    regions = [_region(region, maps, evaluation, folder) for region, maps in several.items()]
    return MapTrend(result.run, regions, tuple(one.scene.name for one in result.maps if one.empty))


def _region(
    region: str, maps: Mapping[int, SceneMap], evaluation: MapEvaluation | None, folder: Path | None
) -> RegionTrend:
    years = tuple(maps)
    first, last = maps[years[0]], maps[years[-1]]
    background = first.map.settings.background
    kinds = [c for c in range(len(first.names)) if c != background]
    names = (*(first.names[c] for c in kinds), ALL)

    def table(values: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
        rows = np.array([np.asarray(one)[kinds] for one in values]) / HECTARE
        return np.column_stack([rows, rows.sum(1)])

    shared, ground = _shared(region, maps)
    assert first.map.grid is not None
    pixel = first.map.grid.pixel_area
    if shared is None:
        mapped, full = (table([one.map.areas()[side] for one in maps.values()]) for side in (0, 1))
    else:
        mapped, full = table(list(shared.pixels * pixel)), table(list(shared.probability * pixel))
    corrected = low = high = None
    if evaluation is not None:
        estimates = [evaluation.areas[one.scene.name] for one in maps.values()]
        if shared is not None:
            there = zip(maps.values(), shared.pixels, strict=True)
            estimates = [evaluation.corrected(one.scene.name, pixels, pixel) for one, pixels in there]
        corrected = table([one.area for one in estimates])
        # Of all classes together: the background is what is left, so its interval is theirs.
        whole = np.array([one.area.sum() for one in estimates]) / HECTARE
        low, high = (table([getattr(one, side) for one in estimates]) for side in ("low", "high"))
        low[:, -1] = np.maximum(whole - [one.high[background] / HECTARE for one in estimates], 0)
        high[:, -1] = np.maximum(whole - [one.low[background] / HECTARE for one in estimates], 0)
    used = mapped if corrected is None else corrected
    lines = {name: trend(years, used[:, c]) for c, name in enumerate(names)}
    change = file = None
    problem = ""
    try:
        change = change_of(first.map, last.map, first.names)
        if folder is not None and first.map.grid is not None and first.map.grid.crs:
            file = write_change(first.map, last.map, folder / f"change-{region}.tif")
    except ValueError as error:
        problem = str(error)
    return RegionTrend(
        region, years, names, mapped, full, corrected, low, high, lines, change, file, problem, ground,
        shared is not None or not ground,
    )  # fmt: skip


def _shared(region: str, maps: Mapping[int, SceneMap]) -> tuple[CommonGround | None, str]:
    """The ground that has data in all years, if some year lacks data somewhere, and a sentence about it."""
    several = [one.map for one in maps.values()]
    if all(one.sums.valid == one.shape[0] * one.shape[1] == several[0].sums.valid for one in several):
        return None, ""
    covered = [one.sums.valid * one.grid.pixel_area / HECTARE for one in several if one.grid is not None]
    listed = ", ".join(f"{year}: {area:.4g} ha" for year, area in zip(maps, covered, strict=True))
    try:
        shared = common_ground(several)
    except ValueError:
        if max(covered) - min(covered) <= ALIKE * max(covered):
            return None, ""
        return None, (
            f"The images of {region} cover different ground ({listed}) and have other pixels, so part of the trend is "
            "that of the ground: warp them to one grid."
        )
    if not shared.valid:
        return (
            None,
            f"No ground of {region} has data in every year ({listed}), so part of the trend is that of the ground.",
        )
    if all(one.sums.valid == shared.valid for one in several):
        return None, ""
    area = shared.valid * several[0].grid.pixel_area / HECTARE  # type: ignore[union-attr]
    return (
        shared,
        f"Areas and trend of {region} are those of the {area:.4g} ha that have data in every year ({listed}).",
    )


def _areas_figure(one: RegionTrend) -> Any:
    def draw() -> Any:
        panels, bands = {}, {}
        for c, name in enumerate(one.names):
            sources = {"mapped": one.mapped[:, c], "full probabilities": one.full[:, c]}
            if one.corrected is not None and one.low is not None and one.high is not None:
                sources = {"corrected": one.corrected[:, c], **sources}
                bands[name] = (one.low[:, c], one.high[:, c])
            panels[name] = sources
        return draw_areas(one.years, panels, bands)

    return draw


def _increase_figure(one: RegionTrend) -> Any:
    def draw() -> Any:
        values = {name: [line.relative_increase] for name, line in one.lines.items()}
        return draw_increases(values, {name: line.bootstrap for name, line in one.lines.items()})

    return draw
