"""``polariscope map``: from images and labels to a map, areas in hectares and their trend."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from polariscope.cli import commands
from polariscope.cli.parsing import JSON, RUNS, asks_for_help, flag, options_type, parse, take_first
from polariscope.cli.progress import bars, shares
from polariscope.command import word_meant
from polariscope.findings import Findings
from polariscope.lab.run_documents import keep_findings
from polariscope.lab.store import Run, Store
from polariscope.mapping.evaluation import MapEvaluation
from polariscope.mapping.filters import ObjectFilter
from polariscope.mapping.scene_maps import MapHow, MapResult, map_scenes, read_how
from polariscope.mapping.scenes import SceneFiles, SceneFolder
from polariscope.mapping.training import MapTraining, TrainedMap, train_map
from polariscope.mapping.trends import map_trend
from polariscope.mapping.whole import WholeMap, evaluate_run, labelled_elsewhere, scenes_at
from polariscope.nets.unet import Padding
from polariscope.printable import say
from polariscope.report.terminal import answer
from polariscope.training.config import TrainingConfig

HELP = """usage: polariscope map ACTION [options]

Map classes in large images: from a folder of images and labels to a map, areas
in hectares and their trend.

  map all FOLDER                   train, map, evaluate, compute the trend; the
                                   same command continues where it stopped
  map train FOLDER                 train a network on the labelled images
  map apply RUN IMAGE|FOLDER ...   map images of any size
  map evaluate RUN [FOLDER]        scores on held-out labels (or on those of
                                   FOLDER), and corrected areas
  map trend RUN FOLDER             areas over the years, with intervals
  map example FOLDER               write a rendered valley to try this on

FOLDER has images/ (GeoTIFF, npy or pictures, named PLACE_YEAR), labels/
(polygons or rasters of the same names), and optionally layers/ (rasters for all
images; heights become slope and curvature), area.gpkg (an area of interest) and
classes.toml (names of the classes). Each action except example takes --json;
'polariscope map ACTION --help' lists the options of an action."""
OUT = ("out", flag(Path | None, "Folder for maps and page; by default maps/ and findings/ in the folder of the run."),
       None)  # fmt: skip
TRAINING = [
    ("size", flag(int, "Side of the training tiles in pixels."), 128),
    ("keep", flag(Literal["all", "mapped"], "Train on all labelled tiles, or only on tiles with a mapped class."),
     "all"),
    ("sampling", flag(Literal["uniform", "balanced"], "Draw all tiles alike, or tiles of rare classes more often."),
     "uniform"),
    ("augment", flag(bool, "Flip tiles at random."), False),
    ("hold_out", flag(Literal["places", "last-year", "both"], "Hold out places, the last year, or both."), "places"),
    ("share", flag(float, "Share of the places that is held out."), 0.2),
    ("weights", flag(bool, "Weight classes by inverse frequency, the background by 0.01; maps undo this."), False),
    ("loss", flag(Literal["cross-entropy", "dice", "focal"], "Loss to minimise."), "cross-entropy"),
    ("depth", flag(int, "Number of resolutions of the U-Net."), 3),
    ("root", flag(int, "Filters at the full resolution."), 32),
    ("padding", flag(Padding, "same predicts whole tiles, valid predicts their middle."), "same"),
    ("dropout", flag(float, "Dropout rate before every activation."), 0.1),
    ("attention", flag(bool, "Attention gates on the skip connections."), False),
    ("field", flag(str, "Attribute of polygons that names their class; by default Class, label or name."), ""),
    ("pixel", flag(float | None, "Side of a pixel in metres, for images without coordinates."), None),
    ("steps", flag(int, "Batches to train on."), 5000),
    ("batch_size", flag(int, "Tiles per batch."), 8),
    ("learning_rate", flag(float, "Learning rate of Adam."), 1e-3),
    ("drop_every", flag(int, "Steps after which the learning rate is divided by 10; 0 for never."), 0),
    ("seed", flag(int, "Seed of the weights and of the order of tiles."), 0),
]  # fmt: skip
MAPPING = [
    ("threshold", flag(tuple[float, ...], "Probability above which a pixel gets a class: one, or one for each class."),
     (0.5,)),
    ("undo_weights", flag(bool, "Undo the class weights of the training before the threshold."), True),
    ("least", flag(float, "Area of the smallest object in square metres."), 4.0),
    ("only", flag(tuple[str, ...], "Conditions for objects, each LAYER:LOW:HIGH, such as slope:15:90."), ()),
    ("formats", flag(tuple[str, ...], "File formats for objects: gpkg, shp, geojson."), ("gpkg",)),
    ("window", flag(int, "Side of the predicted windows in pixels; the map does not depend on it."), 512),
    ("workers", flag(int, "Processes."), 1),
]  # fmt: skip
AS_MAPPED = [
    (name, Annotated[get_args(kind)[0] | None, *get_args(kind)[1:]], None if name != "workers" else usual)
    for name, kind, usual in MAPPING
]
"""The same for commands that read maps: settings that are not given are those of the run's maps."""
LAYERS = [
    ("layers", flag(tuple[Path, ...], "Rasters to add to the images as further bands, as in training."), ()),
    ("area", flag(Path | None, "Vector file of the area of interest."), None),
    ("pixel", flag(float | None, "Side of a pixel in metres, for images without coordinates."), None),
]
EXAMPLE = "--steps 600 --root 8 --size 48 --batch-size 4 --learning-rate 0.01 --dropout 0 --sampling balanced"
"""Options with which a small network learns to map the example in half a minute."""
ACTIONS = ("all", "train", "apply", "evaluate", "trend", "example")


@commands.register(
    "map",
    "map classes in large images: train, apply, evaluate, trend; from GeoTIFFs to hectares",
    group="examination",
)
def main(arguments: list[str]) -> int:
    arguments = list(arguments)
    action = take_first(arguments)
    if action is None and asks_for_help(arguments):
        say(HELP)
        raise SystemExit(0)
    if action not in ACTIONS:
        problem = "which action?" if action is None else f"there is no action {action!r}:"
        raise ValueError(f"{problem} polariscope map {' | '.join(ACTIONS)}")
    return int({"all": _all, "train": _train, "apply": _apply, "evaluate": _evaluate, "trend": _trend,
                "example": _example}[action](arguments))  # fmt: skip


def _train(arguments: list[str]) -> int:
    folder = take_first(arguments)
    extra = [*TRAINING, ("start", flag(str | None, "A run to start from; new bands have weights of zero."), None),
             RUNS, OUT, JSON]  # fmt: skip
    words = _help(
        "train FOLDER", "Trains a U-Net on the labelled images of a folder. If killed, run it again to continue."
    )
    options = parse(options_type(extra, words), arguments, "map train")
    trained = _trained(_given(folder, "map train FOLDER"), options, options.start)
    return _answer(trained.findings(), trained.run, "map-train", options)


def _apply(arguments: list[str]) -> int:
    name = take_first(arguments)
    places = []
    while (place := take_first(arguments)) is not None:
        places.append(place)
    words = _help("apply RUN IMAGE|FOLDER ...", "Maps images of any size. If killed, run it again to continue.")
    options = parse(options_type([*MAPPING, *LAYERS, RUNS, OUT, JSON], words), arguments, "map apply")
    run = _run(name, options, "map apply RUN IMAGE")
    if not places:
        raise ValueError("which images? polariscope map apply RUN IMAGE or FOLDER")
    scenes = scenes_at(places, run, layers=options.layers, area=options.area, pixel=options.pixel)
    result = _mapped(run, scenes, options)
    return _answer(result.findings(), run, "map-apply", options)


def _evaluate(arguments: list[str]) -> int:
    name, folder = take_first(arguments), take_first(arguments)
    words = _help(
        "evaluate RUN [FOLDER]", "Scores the map on held-out tiles of the training data, or on all labels of FOLDER."
    )
    options = parse(options_type([*AS_MAPPED, RUNS, OUT, JSON], words), arguments, "map evaluate")
    run = _run(name, options, "map evaluate RUN")
    evaluation = _evaluated(run, options, tiles=None if folder is None else labelled_elsewhere(run, folder))
    return _answer(evaluation.findings(), run, "map-evaluate", options)


def _trend(arguments: list[str]) -> int:
    name, folder = take_first(arguments), take_first(arguments)
    words = _help("trend RUN FOLDER", "Computes areas over the years of the images in FOLDER, with intervals.")
    options = parse(options_type([*AS_MAPPED, RUNS, OUT, JSON], words), arguments, "map trend")
    run = _run(name, options, "map trend RUN FOLDER")
    result = _mapped(run, scenes_at([_given(folder, "map trend RUN FOLDER")], run), options)
    evaluation = _evaluated(run, options, also=result)
    trend = map_trend(result, evaluation, _maps(run, options))
    return _answer(trend.findings(_page(run, "map-trend", options)), run, "map-trend", options)


def _all(arguments: list[str]) -> int:
    folder = take_first(arguments)
    words = _help(
        "all FOLDER", "Trains, maps every image, evaluates and computes the trend. If killed, run it again to continue."
    )
    options = parse(options_type([*TRAINING, *MAPPING, RUNS, OUT, JSON], words), arguments, "map all")
    place = _given(folder, "map all FOLDER")
    trained = _trained(place, options, None)
    run = trained.run
    scenes = list(SceneFolder(Path(place), options.field, options.pixel).scenes)
    result = _mapped(run, scenes, options)
    whole = WholeMap.of(trained, result, _evaluated(run, options, also=result), _maps(run, options))
    return _answer(whole.findings(f"Map of {Path(place).name}", _page(run, "map", options)), run, "map", options)


def _example(arguments: list[str]) -> int:
    from polariscope.mapping.example import write_example
    from polariscope.worlds.renderers.aerial import Aerial

    folder = take_first(arguments)
    fields = [("tiles", flag(int, "Parts of the valley, four in a row."), 16),
              ("size", flag(int, "Side of a part in pixels."), 96),
              ("labelled", flag(int | None, "Number of years with labels; by default all."), None),
              ("seed", flag(int, "Seed of the valley."), 0)]  # fmt: skip
    words = _help("example FOLDER", "Writes a rendered alpine valley of five years as GeoTIFFs with polygons.")
    options = parse(options_type(fields, words), arguments, "map example")
    world = Aerial(valleys=1, tiles=options.tiles, size=options.size, labels="analysed", seed=options.seed)
    where = write_example(_given(folder, "map example FOLDER"), world, labelled=options.labelled)
    say(f"written: {where}; next: polariscope map all {where} {EXAMPLE}")
    return 0


def _help(usage: str, words: str) -> str:
    return f"polariscope map {usage} [options]\n\n{words}"


def _given(word: str | None, usage: str) -> str:
    if word is None:
        raise ValueError(f"an argument is missing: polariscope {usage}")
    return word


def _run(name: str | None, options: Any, usage: str) -> Run:
    run = Store(options.runs).open(_given(name, usage))
    word_meant(str(name), run.id)
    return run


def _trained(folder: str, options: Any, start: str | None) -> TrainedMap:
    how = MapTraining(**{field.name: getattr(options, field.name) for field in dataclasses.fields(MapTraining)})
    training = TrainingConfig(
        steps=options.steps, batch_size=options.batch_size, learning_rate=options.learning_rate, seed=options.seed,
        schedule="drop" if options.drop_every else "constant", drop_every=options.drop_every,
        checkpoint_every=min(500, options.steps), evaluate_every=max(1, options.steps // 10),
    )  # fmt: skip
    store = Store(options.runs)
    begun = None if start is None else store.open(start)
    with bars(["training"], options.steps, quiet=options.json) as (bar,):
        return train_map(folder, how, training, store, start=begun, tell=bar)


def _how(run: Run, options: Any) -> MapHow:
    """How to map: by the options, and for options that are not given as the maps of the run were made."""
    known = read_how(_maps(run, options)) or MapHow()
    chosen = {name: value for name, _, _ in MAPPING if name != "only" and (value := getattr(options, name)) is not None}
    if options.only is not None:
        chosen["filters"] = tuple(ObjectFilter.spelled(words) for words in options.only)
    return dataclasses.replace(known, **chosen)


def _maps(run: Run, options: Any) -> Path:
    return Path(options.out) / "maps" if options.out is not None else run.path / "maps"


def _page(run: Run, kind: str, options: Any) -> Path:
    return Path(options.out) if options.out is not None else run.path / "findings" / kind


def _mapped(run: Run, scenes: list[SceneFiles], options: Any) -> MapResult:
    with shares(quiet=options.json) as tell:
        return map_scenes(run, scenes, _maps(run, options), _how(run, options), tell)


def _evaluated(run: Run, options: Any, **asked: Any) -> MapEvaluation:
    with shares(quiet=options.json) as tell:
        return evaluate_run(run, _maps(run, options), _how(run, options), tell=tell, **asked)


def _answer(findings: Findings, run: Run, kind: str, options: Any) -> int:
    return answer(findings, keep_findings(findings, kind, run, options.out), options.json)
