"""Train a network to map: from a folder of images and labels to a run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from polariscope.findings import Column, Curves, Findings, Part, Records
from polariscope.grammar import counted
from polariscope.lab.store import Run, Store
from polariscope.mapping.tiles import MappedTiles, RasterTiles, tiles_inside
from polariscope.nets.normalised import NormalisedConfig
from polariscope.nets.unet import Padding, UNet, UNetConfig
from polariscope.objectives.segment import BACKGROUND_WEIGHT, Segment, class_weights
from polariscope.training.checkpoint import TrainingState
from polariscope.training.config import RunConfig, Start, TrainingConfig
from polariscope.training.loop import evaluate
from polariscope.training.progress import Tell
from polariscope.training.run import config_of, load_model, train_once
from polariscope.training.start import warm
from polariscope.worlds.splits import GroupSplit, Split
from polariscope.worlds.transfer_split import Transfer
from polariscope.worlds.views.augmented import Augmented
from polariscope.worlds.views.balanced import Balanced
from polariscope.worlds.world import World

HoldOut = Literal["places", "last-year", "both"]


@dataclass(frozen=True)
class MapTraining:
    """How a network is trained to map."""

    size: int = 128
    """Pixels a side of the tiles."""
    keep: Literal["all", "mapped"] = "all"
    """All tiles with a label, or only tiles with a class besides the background."""
    sampling: Literal["uniform", "balanced"] = "uniform"
    """Draw all tiles alike, or tiles of rare classes more often."""
    augment: bool = False
    """Flip tiles; the publication did not, because directions are informative on a slope."""
    hold_out: HoldOut = "places"
    """What is held out: a share of the places, the last year, or both."""
    share: float = 0.2
    """Share of the places that is held out."""
    weights: bool = False
    """Class weights by the published rule, 0.99 / frequency; maps undo them."""
    loss: Literal["cross-entropy", "dice", "focal"] = "cross-entropy"
    depth: int = 3
    root: int = 32
    padding: Padding = "same"
    dropout: float = 0.1
    attention: bool = False
    field: str = ""
    """The attribute of polygons that names their class."""
    pixel: float | None = None
    """Size of a pixel in metres, for images without coordinates."""


@dataclass(frozen=True, eq=False)
class TrainedMap:
    """A trained run, and the tiles it was trained on."""

    run: Run
    tiles: RasterTiles
    train: NDArray[np.int64]
    held_out: NDArray[np.int64]
    before: dict[str, float] | None = None
    """Scores of the run that it started from, on the held-out tiles of that run."""
    after: dict[str, float] | None = None
    """Scores of this run on the same tiles, which show what it has forgotten."""

    def findings(self) -> Findings:
        names = self.tiles.legend.names
        result = self.run.result
        scores = {key.removeprefix("held_out_"): value for key, value in result.items() if key.startswith("held_out_")}
        counts = {side: self.tiles.table.counts[numbers].sum(0)
                  for side, numbers in (("train", self.train), ("held_out", self.held_out))}  # fmt: skip
        rows = [
            {"class": name, "train": int(counts["train"][c]), "held_out": int(counts["held_out"][c]),
             "iou": scores.get(f"iou_{c}")}
            for c, name in enumerate(names)
        ]  # fmt: skip
        columns = [Column("class", "Class"), Column("train", "Training pixels", "%d"),
                   Column("held_out", "Held-out pixels", "%d"), Column("iou", "Held-out IoU", "%.3f")]  # fmt: skip
        parts: list[Part] = [Records(name="classes", title="Classes", rows=rows, columns=columns)]
        parts.append(Curves(name="training-curves", title="Training", metrics=self.run.metrics()))
        notes = [
            f"{len(self.train)} tiles of {self.tiles.size} pixels were trained on and {len(self.held_out)} held out, "
            "which lie elsewhere or in another year.",
            "Pixels are normalised by the mean and deviation of the training tiles, which are settings of the run.",
        ]
        if self.before is not None and self.after is not None:
            lines = [{"score": key, "before": self.before[key], "after": self.after[key],
                      "change": self.after[key] - self.before[key]}
                     for key in ("accuracy", "mean_iou") if key in self.before and key in self.after]  # fmt: skip
            parts.append(Records(
                name="forgetting", title="Forgetting", rows=lines,
                hint="Scores on the held-out tiles of the run that this one started from, before and after.",
                columns=[Column("score", "Score"), Column("before", "Before", "%.3f"), Column("after", "After", "%.3f"),
                         Column("change", "Change", "%+.3f")],
            ))  # fmt: skip
        mean = f"mean IoU {scores['mean_iou']:.3f}, accuracy {scores['accuracy']:.3f}" if "mean_iou" in scores else (
            "no labelled tile was held out"
        )  # fmt: skip
        headline = f"On held-out tiles: {mean}."
        facts = {"classes": list(names), "background": self.tiles.legend.background, "run": self.run.id,
                 "tiles": {"train": len(self.train), "held_out": len(self.held_out)}}  # fmt: skip
        return Findings(f"Map of {self.tiles.called}", headline, parts, notes, facts, settings=self.run.config)


def map_config(
    folder: Path | str, how: MapTraining, training: TrainingConfig, start: Run | None = None
) -> tuple[RunConfig, NDArray[np.int64], NDArray[np.int64]]:
    """The configuration of a training, with the numbers of the training and held-out tiles. With a ``start`` it starts
    from the weights of another run; weights of new bands start at zero."""
    margin = UNet(1, 1, how.depth, 1, how.padding).margin if how.padding == "valid" else 0
    stride = how.size - 2 * margin if margin else 0
    # A run goes on with its own classes, of which a new valley may lack some.
    classes = () if start is None else tiles_inside(config_of(start).world).legend.names
    place = str(Path(folder).expanduser().resolve())  # the same folder is the same training, wherever one stands
    tiles = RasterTiles(place, how.size, stride, field=how.field, pixel=how.pixel, classes=classes)
    if not tiles.legend.background:
        raise ValueError(
            f"{folder}: no class is the background, and a map needs one: name the class of everything else in "
            'classes.toml (background = "NAME")'
        )
    split = split_of(tiles, how)
    parts = split.parts(tiles)
    mean, sd = tiles.statistics(parts.train)
    begun, model = Start(), UNetConfig(how.depth, how.root, how.padding, how.dropout, attention=how.attention)
    white = 255.0 if tiles.rasters[0].dtype == np.uint8 else 1.0
    if start is not None:
        mean, sd, model, begun = _continued(start, tiles, mean, sd, white)
    tiles = replace(tiles, fill=tuple(mean.tolist()))
    weights: tuple[float, ...] = ()
    if how.weights:
        weights = weights_of(tiles, parts.train)
    world: World = tiles
    if how.augment:
        world = Augmented(world, flip="both")
    if how.sampling == "balanced":
        world = Balanced(world)
    network = NormalisedConfig(model, tuple((mean / white).tolist()), tuple((sd / white).tolist()))
    objective = Segment(loss=how.loss, weights=weights)
    return RunConfig(world, objective, network, training, split, begun), parts.train, parts.held_out


def split_of(tiles: RasterTiles, how: MapTraining) -> Split:
    if not 0 <= how.share < 1 or (how.share == 0 and how.hold_out != "places"):
        raise ValueError(f"--share is {how.share:g}: give a number between 0 and 1")
    split = _held_out_by(tiles, how)
    return MappedTiles(split) if how.keep == "mapped" else split


def _held_out_by(tiles: RasterTiles, how: MapTraining) -> Split:
    if how.hold_out == "places":
        return GroupSplit("place", how.share)
    if len(tiles.years) < 2:
        raise ValueError(
            f"--hold-out {how.hold_out} needs labelled images of at least 2 years, and {tiles.path} has "
            f"{len(tiles.years)}: put the year at the end of their names, or hold out places"
        )
    kind: Literal["temporal", "spatio-temporal"] = "temporal" if how.hold_out == "last-year" else "spatio-temporal"
    return Transfer(kind, "place", "year", how.share)


def weights_of(tiles: RasterTiles, train: NDArray[np.int64]) -> tuple[float, ...]:
    """Class weights by the published rule from the frequencies in the training tiles."""
    names, background = tiles.legend.names, tiles.legend.background
    if not background:
        raise ValueError("the rule for class weights gives the background 0.01, and these classes have no background")
    counts = tiles.table.counts[train].sum(0).astype(float)
    others = [c for c in range(len(names)) if names[c] != background]
    missing = [names[c] for c in others if not counts[c]]
    if missing:
        raise ValueError(f"class {missing[0]!r} does not occur in the training tiles, so it has no weight")
    rule = iter(class_weights(counts[others] / counts[others].sum()))
    return tuple(BACKGROUND_WEIGHT if name == background else next(rule) for name in names)


def _continued(
    start: Run, tiles: RasterTiles, mean: NDArray[np.float64], sd: NDArray[np.float64], white: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], UNetConfig, Start]:
    config = config_of(start)
    before = tiles_inside(config.world)
    if before.legend.names != tiles.legend.names:
        raise ValueError(
            f"run {start.id} has the classes {', '.join(before.legend.names)}, and {tiles.path} has "
            f"{', '.join(tiles.legend.names)}: name them alike in classes.toml"
        )
    if not isinstance(config.model, NormalisedConfig) or not isinstance(config.model.of, UNetConfig):
        raise ValueError(f"run {start.id} was not trained by polariscope map train")
    old = config.model
    own_white = 255.0 if before.rasters[0].dtype == np.uint8 else 1.0
    bands, fewer = len(mean), len(old.mean)
    if fewer > bands:
        raise ValueError(
            f"run {start.id} was trained on {counted(fewer, 'band')}, and {tiles.path} has {bands}: give them all"
        )
    # Bands that the run knows keep its statistics, else the same pixels would look different to it.
    known_mean, known_sd = np.array(old.mean) * own_white, np.array(old.sd) * own_white
    mean, sd = np.concatenate([known_mean, mean[fewer:]]), np.concatenate([known_sd, sd[fewer:]])
    return mean, sd, config.model.of, replace(warm(start), widen=bands > fewer)


def train_map(
    folder: Path | str,
    how: MapTraining,
    training: TrainingConfig,
    store: Store,
    *,
    start: Run | None = None,
    tell: Tell | None = None,
) -> TrainedMap:
    """Train the run of these settings, or resume it. If it is finished, the same call returns it."""
    config, train, held_out = map_config(folder, how, training, start)
    run = train_once(config, store, tell)
    tiles = tiles_inside(config.world)
    before = after = None
    if start is not None:
        before, after = (_scores_on(one, start) for one in (start, run))
    return TrainedMap(run, tiles, train, held_out, before, after)


def _scores_on(run: Run, other: Run) -> dict[str, float] | None:
    """Scores of a run on the held-out tiles of another; None where its bands are not those of the other."""
    config, own = config_of(other), config_of(run)
    if config.world.shape[0] != own.world.shape[0]:
        return None
    parts = config.split.parts(config.world)
    state = TrainingState(load_model(run))
    return evaluate(state, Segment(), config.world, parts, config.training, 0)
