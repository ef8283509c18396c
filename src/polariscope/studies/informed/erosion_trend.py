"""Study: soil erosion in one valley over the years, and whether its trend depends on the threshold.

A U-Net learns from the labels of an image analysis in one part of a valley and in the early years, and maps the other
part, the last year, and both (Samarin 2022, sections 4.4 and 4.5; Spec 000, sections 5.6 to 5.9). The scenes are
rendered, so the true areas are known.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from polariscope.mapping.areas import HECTARE
from polariscope.mapping.image_analysis import analysed
from polariscope.mapping.trend import trend
from polariscope.report.mapping_figures import draw_areas
from polariscope.studies.criteria import AtLeast, AtMost, Beats, Between, Rises
from polariscope.studies.informed.erosion import (
    CLASS_TAUS,
    PUBLISHED_TAUS,
    TAU,
    fitted,
    ground,
    hard,
    percent,
    plain_floats,
    probabilities,
    scored,
)
from polariscope.studies.kit import Restarts, in_order
from polariscope.studies.rows import difference
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.worlds.renderers.aerial import BACKGROUND, CLASSES, Aerial
from polariscope.worlds.transfer_split import Kind, Transfer

SETTINGS: dict[Scale, Job] = {
    "smoke": {"tiles": 4, "steps": 4, "batch": 4, "root": 2, "rate": 5e-3, "schedule": "cosine"},
    "laptop": {"tiles": 96, "steps": 1500, "batch": 4, "root": 8, "rate": 5e-3, "schedule": "cosine"},
    "paper": {"tiles": 1900, "steps": 20_000, "batch": 20, "root": 32, "rate": 1e-3, "schedule": "constant"},
}
SEEDS: dict[Scale, int] = {"smoke": 1, "laptop": 5, "paper": 10}
KINDS: tuple[Kind, ...] = ("spatial", "temporal", "spatio-temporal")
PUBLISHED = {"tau 0.3": "201 %", "image analysis": "167 %", "truth": "-"}
TAUS = {f"tau {tau:g}": tau for tau in PUBLISHED_TAUS}
THRESHOLDS = tuple(TAUS)
SHOWN = (*THRESHOLDS, "full", "labels", "truth")
SOURCES = (*THRESHOLDS, "full", "class taus", "image analysis", "labels", "truth")
TOTAL = {"what": "trend", "class": "all"}


@studies.register("erosion-trend")
@dataclass(frozen=True)
class ErosionTrend(Study):
    """A U-Net maps erosion in another part of a valley and in a later year; areas and trends over thresholds."""

    title = "Erosion in one valley: maps, areas and trends"
    source = "Samarin, Deep Learning Approaches to Informed Representation Learning (2022), sections 4.4 and 4.5"
    question = "Does a map of another place and a later year agree with its labels, and does the trend depend on the "\
        "threshold?"  # fmt: skip
    cost = {"smoke": "2 s", "laptop": "about 8 minutes", "paper": "days"}
    drawn = {
        "increases": Restarts(
            "increase", "source", where=TOTAL, called="relative increase of the area", names=in_order(SOURCES), tilt=35
        )
    }

    def jobs(self, scale: Scale) -> Sequence[Job]:
        return [SETTINGS[scale] | {"seed": seed} for seed in range(SEEDS[scale])]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        world = Aerial(valleys=1, tiles=job["tiles"], seed=job["seed"])
        everything = ground(world)
        parts = {kind: Transfer(kind).parts(world) for kind in KINDS}
        learned = everything.where(np.isin(np.arange(len(world)), parts["spatial"].train))
        training = {
            "steps": job["steps"], "batch_size": job["batch"], "learning_rate": job["rate"],
            "schedule": job["schedule"],
        }  # fmt: skip
        network = fitted(bench, learned, job["seed"], training, root=job["root"])
        shares = probabilities(network, everything.images)
        baseline = np.concatenate([
            analysed(everything.images[everything.year == year] / 255.0, everything.truth[everything.year == year],
                     BACKGROUND) for year in range(len(world.years))
        ])  # fmt: skip
        rows: list[Row] = []
        for kind in KINDS:
            kept = np.sort(parts[kind].held_out)
            for source, maps in (("U-Net", hard(shares[kept], TAU)), ("image analysis", baseline[kept])):
                for name, reference in (("labels", everything.labels), ("truth", everything.truth)):
                    scores = scored(maps, reference[kept])
                    rows.append({"what": "scores", "split": kind, "source": source, "against": name, **scores})
        tested = np.isin(everything.tile, np.unique(everything.tile[parts["spatio-temporal"].held_out]))
        pixels = _sources(shares[tested], everything.labels[tested], everything.truth[tested], baseline[tested])
        rows += _areas(world, everything.year[tested], pixels)
        return [{"seed": job["seed"]} | plain_floats(row) for row in rows]

    def claims(self, scale: Scale) -> list[Claim]:
        mine = {"what": "scores", "split": "spatio-temporal", "against": "labels", "source": "U-Net"}
        taus, full = {"what": "over thresholds"}, TOTAL | {"source": "full"}
        analysis = {"what": "scores", "source": "image analysis", "against": "truth", "split": "spatio-temporal"}
        own_taus, one_tau = {"source": "class taus"}, {"source": "tau 0.3"}
        away = "largest distance of an increase from their mean, in its own errors"
        apart = "mean distance of the line from that of the labels, as a share"
        return [
            Claim(
                "Recall by objects at a threshold of 0.3 in another place and year",
                "recall 84 %, precision 73 %, F1 78 % (table 4.2)",
                AtLeast("object_recall", 0.84, where=mine),
            ),
            Claim(
                "F1 by objects at a threshold of 0.3 in another place and year",
                "F1 78 % (table 4.2)",
                AtLeast("object_f1", 0.78, where=mine),
            ),
            Claim(
                "A lower threshold gives larger areas",
                "figures 4.7 and 4.10",
                Rises("area", "tau", by=0.0, falls=True, where=TOTAL | {"thresholded": True}),
            ),
            Claim(
                "The absolute area depends strongly on the threshold",
                "figure 4.11: by a factor of two and more from 0.2 to 0.8",
                AtLeast("area_ratio", 2.0, where=taus),
            ),
            Claim(
                "The relative increase does not depend on the threshold, within the errors of the fits",
                "figure 4.11, thresholds 0.2, 0.3, 0.5 and 0.8",
                AtMost("distance", 1.0, of="every", where=taus, called=away),
            ),
            Claim(
                "The area by full probabilities is near that of the labels",
                "figure 4.10: threshold 0.3 and full probabilities agree with the labels",
                Between("area_over_labels", 1 / 1.5, 1.5, where=full),
            ),
            Claim(
                "The area by full probabilities is near the true one",
                "not published: the true areas of the work are not known; its labels are conservative",
                Between("area_over_truth", 1 / 1.5, 1.5, where=full),
            ),
            Claim(
                "Thresholds of their own for the classes bring the trend nearer to that of the labels",
                "figure 4.12: the lines almost coincide",
                Beats("line_distance", own_taus, one_tau, by=0.0, higher=False, where=TOTAL, called=apart),
            ),
            Claim(
                "An image analysis that is fitted to each image is conservative: its recall is below its precision",
                "section 4.3.2: known to under-segment",
                AtLeast("caution", 0.05, where=analysis, called="precision less recall by pixels"),
            ),
            Claim(
                "That image analysis beats chance",
                "overall accuracy 85.4 % by experts (section 4.3.2)",
                AtLeast("lift", 3.0, where={"what": "chance"}, called="precision over that of random pixels"),
            ),
            Claim(
                "Scores by objects are more lenient than scores by pixels",
                "73 % against 20 % precision in tables 4.2 and 4.4",
                AtLeast("leniency", 0.0, of="every", where=mine, called="F1 by objects less F1 by pixels"),
            ),
        ]

    def readings(self, table: Table) -> Table:
        """The rows, with differences of scores, and what thresholds do to areas and increases."""
        rows: list[Row] = [
            row
            | {
                "caution": difference(row, "pixel_precision", "pixel_recall"),
                "leniency": difference(row, "object_f1", "pixel_f1"),
                "thresholded": row["source"] in THRESHOLDS,
                "tau": TAUS.get(row["source"]),
            }
            for row in table.rows
        ]
        for seed, own in table.by("seed"):
            rows.append({"what": "over thresholds", "seed": seed} | over_thresholds(own.rows))
            rows.append({"what": "chance", "seed": seed} | _lift(own))
        return Table(rows)

    def beside(self, table: Table) -> list[Row]:
        """Table 4.2, and the relative increases of the total area."""
        rows: list[Row] = []
        for source, kind in itertools.product(("U-Net", "image analysis"), KINDS):
            of = table.where(what="scores", split=kind, source=source, against="labels")
            published = "84 / 73 / 78 %" if (source, kind) == ("U-Net", "spatio-temporal") else "-"
            scores = " / ".join(percent(of.column(f"object_{score}")) for score in ("recall", "precision", "f1"))
            quantity = f"objects, recall / precision / F1: {source}, {kind}"
            rows.append({"quantity": quantity, "published": published, "measured": f"{scores} %"})
        for source in SOURCES:
            of = table.where(source=source, **TOTAL)
            quantity = f"relative increase of the total: {source}"
            measured = f"{percent(of.column('increase'))} %"
            rows.append({"quantity": quantity, "published": PUBLISHED.get(source, "-"), "measured": measured})
        return rows

    def figures(self, table: Table) -> dict[str, Figure]:
        years, kinds = list(Aerial().years), CLASSES[:BACKGROUND]
        trends = table.where(what="trend")

        def areas(kind: str) -> dict[str, list[float]]:
            own = {source: trends.where(source=source, **{"class": kind}) for source in SHOWN}
            return {source: [rows.mean(f"area_{year}") / HECTARE for year in years] for source, rows in own.items()}

        return super().figures(table) | {
            "areas": draw_areas(years, {"all": areas("all")}),
            "areas-by-class": draw_areas(years, {kind: areas(kind) for kind in kinds}),
        }


def _sources(
    shares: NDArray[Any], labels: NDArray[Any], truth: NDArray[Any], baseline: NDArray[Any]
) -> dict[str, NDArray[np.float64]]:
    """Pixels of each class ``(tiles, classes)`` by every way to map them."""
    count = len(CLASSES)

    def counted(maps: NDArray[Any]) -> NDArray[np.float64]:
        return np.stack([(maps == c).sum((1, 2)) for c in range(count)], 1).astype(float)

    class_taus = [CLASS_TAUS[name] for name in CLASSES]
    return {
        **{f"tau {tau:g}": counted(hard(shares, tau)) for tau in PUBLISHED_TAUS},
        "full": shares.sum((2, 3)),
        "class taus": counted(hard(shares, class_taus)),
        "image analysis": counted(baseline),
        "labels": counted(labels),
        "truth": counted(truth),
    }


def _areas(world: Aerial, year: NDArray[Any], sources: dict[str, NDArray[np.float64]]) -> list[Row]:
    rows: list[Row] = []
    years = np.asarray(world.years, float)
    area = world.pixel**2
    lines: dict[tuple[str, str], Any] = {}
    for source, pixels in sources.items():
        for kind in ("all", *CLASSES[:BACKGROUND]):
            column = pixels[:, :BACKGROUND].sum(1) if kind == "all" else pixels[:, CLASSES.index(kind)]
            areas = np.array([column[year == y].sum() for y in range(len(years))]) * area
            line = trend(years, areas)
            lines[source, kind] = line
            low, high = line.extremes
            rows.append({
                "what": "trend", "source": source, "class": kind, "area": float(areas.mean()),
                "increase": line.relative_increase, "increase_error": (high - low) / 2, "slope": line.slope,
                "ground": float(pixels[year == 0].sum() * area),
                **{f"area_{y:.0f}": float(a) for y, a in zip(years, areas, strict=True)},
            })  # fmt: skip
    for row in rows:
        line, labels = lines[row["source"], row["class"]], lines["labels", row["class"]]
        truth = lines["truth", row["class"]].areas.mean()
        row["area_over_truth"] = row["area"] / truth if truth else float("nan")
        row["area_over_labels"] = row["area"] / labels.areas.mean() if labels.areas.any() else float("nan")
        size = float(np.mean(labels.at(years)))
        row["line_distance"] = float(np.abs(line.at(years) - labels.at(years)).mean()) / size if size else float("nan")
    return rows


def over_thresholds(rows: Sequence[Row]) -> Row:
    """How much areas differ between thresholds, and how far increases lie from their mean in their own errors."""
    own = [r for r in rows if r["what"] == "trend" and r["class"] == "all" and r["source"] in THRESHOLDS]
    areas = [r["area"] for r in own]
    increases, errors = [r["increase"] for r in own], [r["increase_error"] for r in own]
    ratio = max(areas) / min(areas) if areas and min(areas) > 0 else None
    if not own or None in increases or None in errors:
        return {"area_ratio": ratio, "distance": None}
    middle = float(np.mean(increases))
    away = [abs(i - middle) / e for i, e in zip(increases, errors, strict=True) if e]
    return {"area_ratio": ratio, "distance": max(away) if away else None}


def _lift(table: Table) -> Row:
    """Precision of the image analysis by pixels over the share of eroded pixels."""
    (score,) = table.where(what="scores", source="image analysis", split="spatio-temporal", against="truth").rows
    truth = table.where(source="truth", **TOTAL).rows[0]
    last = max(int(key[5:]) for key in truth if key.startswith(("area_1", "area_2")))
    share = truth[f"area_{last}"] / truth["ground"] if truth.get("ground") else None
    return {"lift": None if not share or score["pixel_precision"] is None else score["pixel_precision"] / share}
