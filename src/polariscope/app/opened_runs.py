"""Runs as the explorer shows them: their rows, their pages, and the models that are open."""

from __future__ import annotations

import base64
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from polariscope.app.batcher import Batcher
from polariscope.examination.compare import compare, encoder_layers
from polariscope.examination.embedding import run_shelf
from polariscope.examination.latent_space import LatentSpace, latent_space
from polariscope.examination.next_steps import abilities, next_commands, said_next
from polariscope.examination.property_sliders import PropertySliders, property_sliders
from polariscope.examination.titles import run_title
from polariscope.lab.listing import summary
from polariscope.lab.run_documents import kept_findings
from polariscope.lab.store import NAME, Run, Store
from polariscope.mapping.map_layers import FOLDER as MAPS
from polariscope.mapping.map_layers import MapLayers, map_layers
from polariscope.subjects import Subject, as_subject
from polariscope.training.run import architecture_of, config_of
from polariscope.worlds.pictures import limits_of, pictured
from polariscope.worlds.splits import Part
from polariscope.worlds.targets import Target, target_values, targets_of
from polariscope.worlds.world import World, sample_numbers

COLUMNS = (
    *("id", "name", "tags", "kind", "status", "data", "created", "objective", "model", "step", "held_out_loss"),
    *("train_loss", "training_steps", "training_seed", "measures_mig"),
)
"""Columns of the table of runs."""
EXAMPLES = 1500
"""Examples on the map."""
PROPERTY_EXAMPLES = 500
"""Training examples whose code, without the property, can be kept while the property moves."""
MOST_OPEN = 4
"""Models that are kept in memory."""
MOST_IMAGES = 400
"""Images in one answer."""
LARGEST_PICTURE = 1600
"""Pixels a side of a picture in a report."""
FARTHEST = 1e6
"""The largest number of a code that is decoded."""
T = TypeVar("T")


class NotHere(ValueError):
    """The requested object does not exist."""


@dataclass
class Classifier:
    """A classifier with the held-out images that it can be attacked on."""

    subject: Subject
    world: World
    target: Target
    numbers: NDArray[np.int64]
    labels: NDArray[np.int64]


@dataclass
class Opened:
    """The model of a run in memory, as it was at one moment of its training."""

    run: Run
    stamp: tuple[int, int]
    space: LatentSpace | None = None
    decode: Batcher | None = None
    classifier: Classifier | None = None
    sliders: PropertySliders | None = None
    limits: tuple[float, float] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


class OpenedRuns:
    """The runs of a store, a few of them open."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._opened: OrderedDict[str, Opened] = OrderedDict()
        self._lock = threading.Lock()
        self._compared: OrderedDict[tuple[Any, ...], dict[str, Any]] = OrderedDict()
        self._computing = threading.Lock()

    def run(self, run_id: str) -> Run:
        """A run by its whole id, and by nothing else: no path is made from the text that a browser sends."""
        if not NAME.fullmatch(run_id) or not (self.store.root / run_id / "run.json").is_file():
            raise NotHere("there is no run of that name here")
        run = Run(self.store.root / run_id)
        run.reload()
        return run

    def rows(self) -> tuple[list[dict[str, Any]], list[str]]:
        """One flat row per run, the newest first, and the problems of folders that are not runs."""
        listing = self.store.listing()
        rows = [_told(row) for row in listing.where(columns=COLUMNS)]
        return rows[::-1], list(listing.problems)

    def about(self, run_id: str) -> dict[str, Any]:
        """Everything about a run that costs no computing."""
        run = self.run(run_id)
        record = run.record
        facts: dict[str, Any] = {
            **_told(summary(run)),
            "updated": record["updated"],
            "config": record["config"],
            "environment": record["environment"],
            "result": record["result"],
            "note": run.labels.note,
            "documents": documents(run),
            "commands": [],
            "next": "",
            "problem": "",
            **dict.fromkeys(("encodes", "decodes", "classifies", "property"), False),
            "maps": any((run.path / MAPS).glob("*/map.json")),
        }
        if record["kind"] != "train":
            return facts
        try:
            config, network = config_of(run), architecture_of(run)
            subject = as_subject(network)
            facts["title"] = run_title(run)
            facts["encodes"] = subject.encodes is not None
            facts["decodes"] = subject.encodes is not None and subject.decodes is not None
            targets = targets_of(config.world) if "target" in config.objective.needs else ()
            facts["classifies"] = len(targets) == 1 and targets[0].kind == "class" and len(config.world.shape) == 3
            facts["property"] = "property" in abilities(config, network)
            facts["commands"] = next_commands(config, network)
            facts["next"] = said_next(run)
            facts["trained"] = run.checkpoint.exists()
        except (ValueError, TypeError, OSError, ImportError) as error:
            facts["problem"] = str(error)
        return facts

    def open(self, run_id: str) -> Opened:
        """The model of a run, loaded again when it has been trained further."""
        run = self.run(run_id)
        if not run.checkpoint.is_file():
            raise ValueError(f"run {run.id} has no checkpoint yet, so there is no trained model to show")
        about = run.checkpoint.stat()
        stamp = (about.st_mtime_ns, about.st_size)
        with self._lock:
            known = self._opened.get(run_id)
            if known is None or known.stamp != stamp:
                known = self._opened[run_id] = Opened(run, stamp)
            self._opened.move_to_end(run_id)
            while len(self._opened) > MOST_OPEN:
                self._opened.popitem(last=False)
            return known

    def space(self, run_id: str) -> Opened:
        """A run whose latent space has been computed."""
        opened = self.open(run_id)
        with opened.lock:
            if opened.space is None:
                with self._computing:
                    shelf = run_shelf(opened.run) if os.access(opened.run.path, os.W_OK) else None
                    space = latent_space(opened.run, count=EXAMPLES, shelf=shelf)
                assert space.representation.index is not None
                images = space.world.observe(space.representation.index[:64])
                opened.limits = None if images.dtype == np.uint8 or images.ndim < 4 else limits_of([images])
                opened.decode, opened.space = Batcher(space.decoded), space
        return opened

    def classifier(self, run_id: str) -> Opened:
        """A run that classifies, with held-out images."""
        opened = self.open(run_id)
        with opened.lock:
            if opened.classifier is None:
                config = config_of(opened.run)
                targets = targets_of(config.world) if "target" in config.objective.needs else ()
                if len(targets) != 1 or targets[0].kind != "class" or len(config.world.shape) != 3:
                    raise ValueError(f"run {run_id} does not classify images, so it cannot be attacked")
                world: World = Part(config.world, config.split)
                world = world if len(world) else config.world
                numbers = sample_numbers(world, 36)
                labels = target_values(world, numbers)[:, 0].astype(np.int64)
                opened.classifier = Classifier(as_subject(opened.run), world, targets[0], numbers, labels)
        return opened

    def sliders(self, run_id: str) -> Opened:
        """A run that generates with a property."""
        opened = self.open(run_id)
        with opened.lock:
            if opened.sliders is None:
                if "property" not in abilities(config_of(opened.run), architecture_of(opened.run)):
                    raise ValueError(f"run {run_id} has no part of its code for a property, so it cannot generate one")
                with self._computing:
                    opened.sliders = property_sliders(opened.run, count=PROPERTY_EXAMPLES)
                images = opened.sliders.world.observe(opened.sliders.numbers[:64])
                opened.limits = None if images.dtype == np.uint8 or images.ndim < 4 else limits_of([images])
        return opened

    def maps(self, run_id: str) -> list[MapLayers]:
        """The maps that a run has made."""
        maps = map_layers(self.run(run_id).path / MAPS)
        if not maps:
            raise NotHere(f"run {run_id} has no maps: 'polariscope map apply {run_id} IMAGE' makes them")
        return maps

    def computed(self, work: Callable[[], T]) -> T:
        """One long computation at a time: they would only slow each other down."""
        with self._computing:
            return work()

    def compared(self, first: str, second: str) -> dict[str, Any]:
        """Layer-by-layer similarity of two runs, computed once for as long as neither is trained further."""
        a, b = self.open(first), self.open(second)
        key = (first, a.stamp, second, b.stamp)
        if key not in self._compared:
            comparison = self.computed(lambda: compare(a.run, b.run, count=500))
            self._compared[key] = {
                "headline": comparison.headline,
                "verdict": comparison.verdict,
                "rows": list(comparison.rows),
                "columns": list(comparison.columns),
                "values": np.round(comparison.values, 4).tolist(),
                "latent": [encoder_layers(comparison.rows), encoder_layers(comparison.columns)],
                "notes": list(comparison.notes)[:12],
                "names": [run_title(a.run), run_title(b.run)],
            }
            while len(self._compared) > 20:
                self._compared.popitem(last=False)
        return self._compared[key]


def told_space(space: LatentSpace) -> dict[str, Any]:
    """The data of a latent space for the page, in JSON."""
    rep, spread = space.representation, space.spread
    assert rep.index is not None
    low, high = np.quantile(rep.mean, (0.005, 0.995), axis=0)
    variables = [
        {
            "number": v.number,
            "kind": v.kind,
            "type": v.type,
            "mean_var": v.mean_var,
            "var_of_mean": v.var_of_mean,
            "kl": v.kl,
            "factor": v.factor,
            "information": v.information,
            "detail": v.detail,
            "spread": float(spread[v.number]),
            "low": float(min(low[v.number], -2.5 * spread[v.number])),
            "high": float(max(high[v.number], 2.5 * spread[v.number])),
        }
        for v in space.variables
    ]
    info = space.factor_information
    return {
        "latents": rep.latents,
        "shape": list(space.world.shape),
        "decodes": space.subject.decodes is not None,
        "variables": variables,
        "factors": [{"name": f.name, "size": f.size, "kind": f.kind} for f in rep.factor_info],
        "information": None if info is None else np.round(info, 4).tolist(),
        "numbers": rep.index.tolist(),
        "codes": np.round(rep.mean.astype(float), 4).tolist(),
        "values": [] if rep.factors is None else np.asarray(rep.factors, float).round(5).tolist(),
        "plane": np.round(space.plane.astype(float), 4).tolist(),
        "explained": list(space.explained),
        "notes": list(dict.fromkeys([*rep.notes, *space.subject.notes])),
    }


def documents(run: Run) -> list[dict[str, Any]]:
    """The documents about a run."""
    return [
        {"kind": one.kind, "title": one.title, "headline": one.headline, "made": one.made}
        for one in kept_findings(run)
        if _lies_in(run, one.page)
    ]


def document(run: Run, kind: str) -> Path | None:
    """The page of one examination of a run, if it is a regular file that lies in the run's own folder."""
    return next((one.page for one in kept_findings(run) if one.kind == kind and _lies_in(run, one.page)), None)


def _lies_in(run: Run, file: Path) -> bool:
    home = os.path.realpath(run.path)
    return os.path.commonpath([os.path.realpath(file), home]) == home and file.is_file()


def told_maps(maps: Sequence[MapLayers]) -> list[dict[str, Any]]:
    """What the page needs to know of maps: classes with colours and areas, place and year."""
    rows = []
    for one in maps:
        areas, unit = one.areas
        classes = [
            {
                "number": n,
                "name": one.names[n],
                "colour": "#{:02x}{:02x}{:02x}".format(*one.colour(n)),
                "area": areas[n],
            }
            for n in one.classes
        ]
        size = {"height": one.shape[0], "width": one.shape[1]}
        about = {"name": one.name, "region": one.region, "year": one.year, "image": one.image is not None}
        rows.append({**about, **size, "unit": unit, "classes": classes})
    return rows


def page_with_pictures(page: Path) -> bytes:
    """A report with the pictures that lie beside it inside: it is shown in an origin of its own, which may load
    nothing."""

    def inside(match: re.Match[str]) -> str:
        file = page.parent / match[1]
        if file.is_symlink() or not file.is_file():
            return match[0]
        with Image.open(file) as image:
            image.thumbnail((LARGEST_PICTURE, LARGEST_PICTURE))
            draft = BytesIO()
            image.save(draft, "PNG")
        return f'src="data:image/png;base64,{base64.b64encode(draft.getvalue()).decode()}"'

    text = page.read_text(encoding="utf-8")
    return re.sub(r'(?<=<img )src="([\w-][\w.-]*\.png)"', inside, text).encode()


def as_png(images: NDArray[Any], limits: tuple[float, float] | None = None) -> bytes:
    """Images ``(n, c, h, w)`` side by side in one PNG."""
    if len(images) > MOST_IMAGES:
        raise ValueError(f"one answer has at most {MOST_IMAGES} images; got {len(images)}")
    shown = pictured(images, limits)
    count, channels, height, width = shown.shape
    strip = shown.transpose(2, 0, 3, 1).reshape(height, count * width, channels)
    image = Image.fromarray(np.ascontiguousarray(strip[..., 0] if channels == 1 else strip))
    file = BytesIO()
    image.save(file, "PNG", compress_level=1)
    return file.getvalue()


def checked_codes(codes: Sequence[Sequence[float]], latents: int) -> NDArray[np.float32]:
    """Codes from a browser as an array, or a sentence."""
    if not codes or len(codes) > MOST_IMAGES or any(len(code) != latents for code in codes):
        raise ValueError(f"expected 1 to {MOST_IMAGES} codes of {latents} numbers")
    array = np.asarray(codes, np.float64)
    if not (np.abs(array) <= FARTHEST).all():
        raise ValueError(f"the numbers of a code lie between -{FARTHEST:g} and {FARTHEST:g}")
    return array.astype(np.float32)


def own_threads() -> None:
    """One thread for the models of the explorer: small networks gain nothing from a second one."""
    torch.set_num_threads(1)


def _told(flat: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the table of runs."""
    row = {name: flat.get(name) for name in COLUMNS}
    return {**row, "steps": row.pop("training_steps"), "seed": row.pop("training_seed"), "mig": row.pop("measures_mig")}
