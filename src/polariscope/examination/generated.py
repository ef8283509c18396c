"""Generated samples with their predicted and true properties: as a table, as a document, and as files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet
from numpy.typing import NDArray

from polariscope.atomic import atomic
from polariscope.examination.way_back import ReturnedMolecules
from polariscope.findings import Chart, Column, Findings, Part, Pictures, Records, Strip, Value, Values
from polariscope.grammar import counted
from polariscope.report.figures import image_grid
from polariscope.report.generation_figures import level_plot, property_histograms
from polariscope.tabular import Tabular
from polariscope.worlds.chemistry import xyz_text
from polariscope.worlds.pictures import Limits, picture_note
from polariscope.worlds.points.level_sets import LevelSets
from polariscope.worlds.property_scale import PropertyScale

Floats = NDArray[np.float64]
Predictor = Literal["judge", "model"]
LISTED = 12
"""Samples that a document lists."""
SHOWN = 64
"""Pictures of samples that a document shows."""
ROW = 8
"""Pictures per row."""
COLUMNS = 64
"""Size up to which each number of an observation has its own column in the table of samples."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SampleTable(Records):
    """The first samples on the page, and all of them in files beside it: .csv and .parquet."""

    samples: Mapping[str, Any]
    """A column of values for each name."""

    def arrow(self) -> pa.Table:
        return pa.table({name: pa.array(column) for name, column in self.samples.items()})

    def files(self) -> Mapping[str, Callable[[Path], object]]:
        return {
            ".csv": lambda path: arrow_csv.write_csv(self.arrow(), path),
            ".parquet": lambda path: parquet.write_table(self.arrow(), path),
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class SamplePictures(Pictures):
    """Pictures of samples on the page, and each in a file beside it."""

    def files(self) -> Mapping[str, Callable[[Path], object]]:
        images = [image for strip in self.strips for row in strip.images for image in row]
        return {f"-{number:05d}.png": partial(self._write, image) for number, image in enumerate(images)}

    def _write(self, image: NDArray[Any], path: Path) -> None:
        image_grid(image[None, None], limits=self.limits).save(path, format="PNG")


@dataclass(frozen=True, kw_only=True, eq=False)
class TextFiles(Part):
    """Files beside the page, by their suffixes, with a description."""

    contents: Mapping[str, str]
    lines: Sequence[str] = ()

    def text(self) -> str:
        return "\n".join(self.lines)

    def files(self) -> Mapping[str, Callable[[Path], object]]:
        return {ending: partial(self._write, text) for ending, text in self.contents.items()}

    @staticmethod
    def _write(text: str, path: Path) -> None:
        path.write_text(text, encoding="utf-8")


@dataclass(frozen=True)
class Coverage:
    """Measured coverage of the intervals."""

    wanted: float
    real: tuple[float, ...]
    """Coverage on held-out examples that were not used for calibration, for each property."""
    real_count: int
    generated: tuple[float, ...] | None
    """Coverage on the samples, by their true property; None if it cannot be computed."""


@dataclass(frozen=True, eq=False, repr=False)
class Generated(Tabular):
    """Samples ``(n, *shape)`` with their properties ``(n, k)`` by the model, the judge and the truth, in the unit of
    the property."""

    scale: PropertyScale
    observations: NDArray[Any]
    codes: Floats
    """Z1 of each sample."""
    wanted: Floats
    model: Floats
    """The property that the model predicts for each sample from its code."""
    judge: Floats
    truth: Floats | None
    low: Floats
    high: Floats
    """Ends of the interval of each sample's property."""
    coverage: Coverage
    predictor: Predictor
    mean_error: Floats
    """Mean absolute error of the predictor on held-out examples, for each property."""
    trained: tuple[Floats, Floats]
    """Smallest and largest value of each property that the model predicts for training examples."""
    neighbours: NDArray[np.int64]
    """Number of the nearest to each sample among the training examples that the judge learned from."""
    distances: Floats
    far: NDArray[np.bool_]
    warnings: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    """Sentences on why predictions of the samples are not reliable."""
    notes: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    """A word for each sample's neighbour, such as a SMILES."""
    level_sets: LevelSets | None = None
    returned: ReturnedMolecules | None = None
    limits: Limits = (0.0, 1.0)
    """The numbers that pictures show as black and white."""

    def __len__(self) -> int:
        return len(self.observations)

    @property
    def opinion(self) -> Floats:
        """The most reliable property: the truth if it is known, otherwise the prediction that the intervals
        surround."""
        if self.truth is not None:
            return self.truth
        return self.judge if self.predictor == "judge" else self.model

    @property
    def deviations(self) -> Floats:
        """Mean distance of that property from the wanted one, for each property."""
        return np.asarray(np.abs(self.opinion - self.wanted).mean(axis=0))

    @property
    def headline(self) -> str:
        who = "by their true property"
        if self.truth is None:
            who = "as the judge predicts" if self.predictor == "judge" else "as the model itself predicts"
        parts = []
        for place, (name, unit) in enumerate(zip(self.scale.names, self.scale.units, strict=True)):
            asked = self.wanted[:, place]
            value = _range_text(asked)
            unit = f" {unit}" if unit else ""
            mean = self.opinion[:, place].mean()
            parts.append(f"{name} {value}{unit} (mean {mean:.4g}, off by {self.deviations[place]:.3g} on average)")
        outside = " A requested value may be unreachable." if self.warnings else ""
        doubtful = " These predictions are doubtful, see the notes." if self.doubts and self.truth is None else ""
        return f"{counted(len(self), 'sample')} requested with {'; '.join(parts)}, {who}.{outside}{doubtful}"

    def records(self) -> list[dict[str, Any]]:
        """A row for each sample."""
        columns = self.columns()
        return [
            dict(zip(columns, row, strict=True)) for row in zip(*(c.tolist() for c in columns.values()), strict=True)
        ]

    def columns(self) -> dict[str, NDArray[Any]]:
        """The table of samples, column by column."""
        table: dict[str, NDArray[Any]] = {"sample": np.arange(len(self))}
        for place, name in enumerate(self.scale.names):
            opinions = {"wanted": self.wanted, "model": self.model, "judge": self.judge, "true": self.truth,
                        "low": self.low, "high": self.high}  # fmt: skip
            table |= {f"{name}_{who}": values[:, place] for who, values in opinions.items() if values is not None}
        table |= {"far": self.far, "neighbour": self.neighbours, "distance": self.distances}
        if self.labels:
            table["neighbour_label"] = np.array(self.labels)
        if self.returned is not None:
            pending = len(self) - len(self.returned.structures)
            words = [None if one is None else one.smiles for one in self.returned.structures]
            back = self.returned.back
            table["smiles"] = np.array(
                [word if came else None for word, came in zip(words, back, strict=True)] + [None] * pending,
                dtype=object,
            )
        flat = self.observations.reshape(len(self), -1)
        if flat.shape[1] <= COLUMNS:
            table |= {f"x_{place + 1}": flat[:, place] for place in range(flat.shape[1])}
        return table

    def to_arrow(self) -> pa.Table:
        return pa.table({name: pa.array(column.tolist() if column.dtype == object else column)
                         for name, column in self.columns().items()})  # fmt: skip

    @property
    def pictured(self) -> bool:
        """Whether samples are images."""
        return self.observations.ndim == 4

    def findings(self, title: str = "Generated samples", settings: Mapping[str, Any] | None = None) -> Findings:
        kind = "the judge" if self.predictor == "judge" else "the model"
        level = f"{self.coverage.wanted:.0%}"
        rows = [self._summary(place) for place in range(len(self.scale.names))]
        parts: list[Part] = [
            Records(
                name="properties",
                title="Wanted and generated",
                hint=f"Means over the samples, with the mean distance from the wanted value. The interval is that of "
                f"{kind}, whose error on held-out examples is in the last column.",
                rows=rows,
                columns=(
                    Column("property", "Property"),
                    Column("wanted", "Wanted"),
                    Column("truth", "True"),
                    Column("judge", "Judge"),
                    Column("model", "The model itself"),
                    Column("radius", "Interval ±", "%.4g"),
                    Column("holds", "Intervals with the wanted value", "percent"),
                    Column("error", "Error on real data", "%.4g", aside=True),
                ),
            ),
            Values(
                name="coverage",
                title=f"Coverage of the {level} intervals",
                hint=self._coverage_hint,
                entries=self._coverages(),
            ),
            Chart(
                name="properties-chart",
                title="The property of the samples",
                draw=lambda: property_histograms(self.scale.titles, self.wanted, self._opinions(), self.low, self.high),
            ),
        ]
        if self.level_sets is not None:
            points = self.level_sets.unembed(self.observations)
            parts.append(
                Chart(
                    name="level-sets",
                    title="Samples on the level sets",
                    draw=lambda: level_plot(self.level_sets, points, np.unique(self.wanted[:, 0])),
                )
            )
        if self.pictured:
            shown = self.observations[:SHOWN].astype(np.float32)
            lines = {at: shown[at : at + ROW] for at in range(0, len(shown), ROW)}
            strips = [
                Strip(line[None], label=f"{at} to {at + len(line) - 1}", says="samples") for at, line in lines.items()
            ]
            hint = picture_note(shown.shape[1:], None if self.limits == (0.0, 1.0) else self.limits)
            parts.append(SamplePictures(name="pictures", title="Samples", strips=strips, hint=hint, limits=self.limits))
        if self.returned is not None:
            parts += self.returned.parts()
            files = {".xyz": ("the geometry that was fitted to each sample, with its misfit", self.xyz())}
            if self.returned.back.any():
                files[".sdf"] = ("the samples that were reconstructed as molecules, with their bonds", self.sdf())
            parts.append(
                TextFiles(
                    name="geometries",
                    title="Files",
                    contents={ending: text for ending, (_, text) in files.items()},
                    lines=[f"geometries{ending}: {words}" for ending, (words, _) in files.items()],
                )
            )
        parts.append(self._listed())
        facts = {
            "count": len(self),
            "far": float(self.far.mean()),
            "warnings": list(self.warnings),
            "doubts": list(self.doubts),
            "trained_range": {
                name: [float(self.trained[0][place]), float(self.trained[1][place])]
                for place, name in enumerate(self.scale.names)
            },
        }
        arrays = {"observations": self.observations, "codes": self.codes}
        if self.returned is not None:
            arrays["positions"] = self.returned.geometries.positions
        return Findings(
            title, self.headline, parts, (*self.warnings, *self.doubts, *self.notes), facts, arrays, settings or {}
        )

    def save(
        self, place: Path | str, title: str = "Generated samples", settings: Mapping[str, Any] | None = None
    ) -> Path:
        """Write the samples, and return the file to open.

        A path that ends in .csv or .parquet gets the table alone, one in .xyz or .sdf the molecules alone, one in
        .html, .png or .svg the page or the first figure. Any other path is a folder for all files: the page,
        findings.json, samples.csv and samples.parquet, the observations (arrays.safetensors), pictures, geometries.xyz
        and .sdf.
        """
        path = Path(place)
        if path.suffix not in (".csv", ".parquet", ".xyz", ".sdf"):
            return self.findings(title, settings).save(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic(path) as draft:
            if path.suffix == ".csv":
                arrow_csv.write_csv(self.to_arrow(), draft)
            elif path.suffix == ".parquet":
                parquet.write_table(self.to_arrow(), draft)
            else:
                draft.write_text(self.xyz() if path.suffix == ".xyz" else self.sdf(), encoding="utf-8")
        return path

    def xyz(self) -> str:
        """The geometries that were fitted to samples, as an XYZ file."""
        geometries = self._molecules("XYZ").geometries
        charges = geometries.charges.tolist()
        return "".join(
            xyz_text(charges, place, f"sample={number} misfit={misfit:.5f} {self._properties_text(number)}")
            for number, (place, misfit) in enumerate(zip(geometries.positions, geometries.misfit, strict=True))
        )

    def sdf(self) -> str:
        """The samples that were reconstructed as molecules, as an SDF file."""
        back = self._molecules("SDF")
        return "".join(
            one.block(f"sample {number}", {"smiles": one.smiles, **dict(self._values(number))})
            for number, (one, came) in enumerate(zip(back.structures, back.back, strict=True))
            if came and one is not None
        )

    def _molecules(self, kind: str) -> ReturnedMolecules:
        if self.returned is None:
            raise ValueError(
                f"these samples have no geometries to be written as {kind}: they are not molecules of one formula, "
                "or no geometry was fitted (that needs rdkit, pip install polariscope[chem], and molecules above 0)"
            )
        return self.returned

    def _values(self, number: int) -> list[tuple[str, str]]:
        names = self.scale.names
        return [
            *((f"{name}_wanted", f"{self.wanted[number, place]:.6g}") for place, name in enumerate(names)),
            *((f"{name}_judge", f"{self.judge[number, place]:.6g}") for place, name in enumerate(names)),
            *((f"{name}_low", f"{self.low[number, place]:.6g}") for place, name in enumerate(names)),
            *((f"{name}_high", f"{self.high[number, place]:.6g}") for place, name in enumerate(names)),
        ]

    def _properties_text(self, number: int) -> str:
        return " ".join(f"{key.replace(' ', '_')}={value}" for key, value in self._values(number))

    def _opinions(self) -> dict[str, Floats]:
        own = {"judge": self.judge, "the model itself": self.model}
        return own if self.truth is None else {"truth": self.truth, **own}

    def _summary(self, place: int) -> dict[str, Any]:
        wanted = self.wanted[:, place]

        def text(values: Floats | None) -> str | None:
            if values is None:
                return None
            return f"{values[:, place].mean():.4g} (off {np.abs(values[:, place] - wanted).mean():.3g})"

        radius = (self.high - self.low)[:, place].mean() / 2
        return {
            "property": self.scale.titles[place],
            "wanted": _range_text(wanted),
            "truth": text(self.truth),
            "judge": text(self.judge),
            "model": text(self.model),
            "radius": float(radius),
            "holds": float(((wanted >= self.low[:, place]) & (wanted <= self.high[:, place])).mean()),
            "error": float(self.mean_error[place]),
        }

    @property
    def _coverage_hint(self) -> str:
        if self.coverage.generated is None:
            return "On the samples themselves it is unknown: their true property cannot be computed here."
        return "On the samples it is the coverage of the true property, which has no noise, so it may be higher."

    def _coverages(self) -> list[Value]:
        entries = []
        for place, name in enumerate(self.scale.names):
            of = f" of {name}" if len(self.scale.names) > 1 else ""
            entries.append(
                Value(
                    f"real_{name}",
                    f"On {self.coverage.real_count:,} other held-out examples{of}",
                    self.coverage.real[place],
                )
            )
            if self.coverage.generated is not None:
                entries.append(Value(f"generated_{name}", f"On the samples{of}", self.coverage.generated[place]))
        entries.append(Value("far", "Share of samples far from the training data", float(self.far.mean()), False))
        return entries

    def _listed(self) -> Records:
        names, words = self.scale.names, {"wanted": "Wanted", "true": "True", "judge": "Judge"}
        if several := len(names) > 1:
            own = [Column(f"{name}_{key}", f"{word} {name}", "%.4g") for name in names for key, word in words.items()]
        else:
            words |= {"wanted": f"Wanted {names[0]}", "model": "Model", "low": "From", "high": "To"}
            own = [Column(f"{names[0]}_{key}", word, "%.4g") for key, word in words.items()]
        columns = [
            Column("sample", "No.", "%d"),
            *own,
            Column("far", "Far from the data"),
            Column("neighbour", "Nearest example", "%d"),
            Column("neighbour_label", "which is"),
        ]
        table = self.to_arrow()
        rows = table.slice(0, LISTED).to_pylist()
        samples = {name: table.column(name).to_pylist() for name in table.column_names}
        return SampleTable(
            name="samples", title=f"The first {len(rows)} samples", rows=rows, columns=columns, samples=samples,
            hint="The model's predictions and the intervals are in samples.csv." if several else "",
        )  # fmt: skip


def _range_text(values: Floats) -> str:
    """One value if all are the same up to rounding, otherwise the smallest and the largest."""
    low, high = values.min(), values.max()
    return f"{low:.4g}" if high - low <= 1e-9 * np.abs(values).max() else f"{low:.3g} to {high:.3g}"
