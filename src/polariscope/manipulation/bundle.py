"""A manipulated world in a folder: the data, the weights that made it, and its report.

``world.npz`` trains like any other file; ``manipulator.safetensors`` holds the learned change, if there is one;
``report.json`` records how the change was made, how large it is, and what it left unchanged. The report is written
last, so a folder without one is a bundle that was never finished.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from polariscope.atomic import atomic
from polariscope.findings import Chart, Column, Findings, Records
from polariscope.manipulation.checks import local_global, pca_score, preservation
from polariscope.manipulation.figures import triptych
from polariscope.manipulation.generator import Manipulator
from polariscope.manipulation.manipulation import Manipulated
from polariscope.nets.architecture import architectures
from polariscope.worlds.factors import Factor
from polariscope.worlds.observations import Arranged
from polariscope.worlds.readers.files import read
from polariscope.worlds.world import ArrayWorld, World

FORMAT = "polariscope-manipulation-1"
LOST = 0.05
"""A factor counts as lost if its recovery falls by more than this."""
WORLD, WEIGHTS, REPORT = "world.npz", "manipulator.safetensors", "report.json"


@dataclass(frozen=True, eq=False)
class Bundle:
    """A saved manipulation."""

    world: ArrayWorld
    report: dict[str, Any]
    manipulator: Manipulator | None
    """The learned change, ready to be applied to factors; None if it was made by hand."""


def report_on(manipulated: Manipulated, examples: int = 5000) -> dict[str, Any]:
    """JSON-ready: how the manipulation was made, its size, which properties it preserved and which it changed."""
    before, after = manipulated.original, manipulated.world
    kept = preservation(before, after, examples)
    return {
        "format": FORMAT,
        "kind": manipulated.kind,
        "settings": manipulated.settings,
        "seed": manipulated.seed,
        "observations": len(after),
        "shape": list(after.shape),
        "floats": len(after.shape) == 3 and after.observe([0]).dtype != np.uint8,
        "factors": [{"name": f.name, "size": f.size, "kind": f.kind, "values": f.values} for f in after.factors],
        "epsilon": manipulated.epsilon,
        **asdict(manipulated.size),
        "pca_score": {"before": _score(before, examples), "after": _score(after, examples)},
        "factor_recovery": {
            name: {"before": b, "after": a} for name, b, a in zip(kept.names, kept.before, kept.after, strict=True)
        },
        "injective": kept.injective,
        "collisions": {"before": kept.collisions_before, "after": kept.collisions_after},
        "structure": {"before": local_global(before).describe(), "after": local_global(after).describe()},
        **manipulated.fitted.facts,
    }


def manipulation_findings(manipulated: Manipulated, report: Mapping[str, Any]) -> Findings:
    """The document of a manipulation: its size, and which properties it preserved and changed."""
    before, after = (report["structure"][time] for time in ("before", "after"))
    size = manipulated.size
    rows = [{"what": f"factor {name}, recoverable share", **one} for name, one in report["factor_recovery"].items()]
    rows.append({"what": "disentanglement of principal components", **report["pca_score"]})
    for kind in ("local", "global"):
        angles = {"before": before[f"{kind}_angle"], "after": after[f"{kind}_angle"]}
        rows.append({"what": f"angle of the leading direction to a factor, {kind} (degrees)", **angles})
    notes = [] if report["injective"] else ["Some observations became equal and can no longer be distinguished."]
    if "entangled_loss" in report:
        losses = f"entangled {report['entangled_loss']:.4g}, disentangled {report['disentangled_loss']:.4g}"
        notes.append(f"Reconstruction loss in the last tenth of the training of the change: {losses}.")
    return Findings(
        f"{manipulated.kind} manipulation",
        f"{manipulated.kind} manipulation of {report['observations']} observations: largest change {size.max_norm:.4g} "
        f"(bound {manipulated.epsilon:g}), added variance {size.added_variance:.1%}{_lost(report)}.",
        [
            Records(
                name="kept",
                title="Properties preserved and changed",
                rows=rows,
                columns=[Column("what", ""), Column("before", "before", "%.3f"), Column("after", "after", "%.3f")],
            ),
            Chart(name="triptych", title="Original, change and altered data", draw=lambda: triptych(manipulated)),
        ],
        notes,
        {key: value for key, value in report.items() if key not in ("settings", "factors")},
        settings=report["settings"],
    )


def _lost(report: Mapping[str, Any]) -> str:
    """The factors that can no longer be recovered after the manipulation."""
    falls = {name: one for name, one in report["factor_recovery"].items() if one["before"] - one["after"] > LOST}
    changes = [f"{name} from {one['before']:.2f} to {one['after']:.2f}" for name, one in falls.items()]
    if changes:
        return f"; factors were partly lost: {', '.join(changes)}"
    return "" if report["injective"] else "; some observations became equal, so factors were lost"


def save_bundle(manipulated: Manipulated, folder: Path | str, report: Mapping[str, Any] | None = None) -> Path:
    """Write a manipulated world with its weights and report to a new folder; returns the path of the world's file."""
    folder = new_folder(folder)
    report = dict(report) if report is not None else report_on(manipulated)
    folder.mkdir(parents=True, exist_ok=True)
    world = manipulated.world
    key = "images" if len(world.shape) == 3 else "x"
    with atomic(folder / WORLD) as draft, draft.open("wb") as file:
        names = np.array([factor.name for factor in world.factors])
        arrays = {key: world.observations, "factors": world.positions, "factor_names": names}
        np.savez_compressed(file, **arrays)
    if manipulated.fitted.weights:
        weights = {name: value.detach().cpu().contiguous() for name, value in manipulated.fitted.weights.items()}
        with atomic(folder / WEIGHTS) as draft:
            save_file(weights, draft, {"format": FORMAT})
    with atomic(folder / REPORT) as draft:
        draft.write_text(json.dumps(report, indent=1), encoding="utf-8")
    return folder / WORLD


def new_folder(folder: Path | str) -> Path:
    """The path of a folder that does not exist yet or is empty; anything else is refused."""
    folder = Path(folder).expanduser()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} is not empty: give a new folder to write the manipulated world to")
    return folder


def load_bundle(folder: Path | str) -> Bundle:
    """Read what :func:`save_bundle` wrote. The world has the original's factors with their kinds and values."""
    folder = Path(folder).expanduser()
    try:
        report = json.loads((folder / REPORT).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ValueError(f"{folder} is not a manipulation bundle: it has no {REPORT}") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{folder / REPORT} is damaged and cannot be read ({error})") from error
    if not isinstance(report, dict) or report.get("format") != FORMAT:
        raise ValueError(f"{folder / REPORT} is not a manipulation report of this program")
    stored = read(folder / WORLD, floats=report.get("floats", False))
    factors = tuple(Factor(**{**f, "values": tuple(f["values"])}) for f in report["factors"])
    # The reader numbers the values that occur; the positions themselves are in the file.
    with np.load(folder / WORLD, allow_pickle=False) as arrays:
        world = ArrayWorld(Arranged(stored.observations), arrays["factors"], factors, source=str(folder))
    return Bundle(world, report, _manipulator(folder / WEIGHTS, report, world) if "architecture" in report else None)


def _manipulator(path: Path, report: Mapping[str, Any], world: World) -> Manipulator:
    nothing = np.zeros(len(world.factors)), np.ones(len(world.factors))
    architecture = architectures.build(report["architecture"])
    manipulator = Manipulator(len(world.factors), world.shape, report["epsilon"], architecture, nothing)
    try:
        manipulator.load_state_dict(load_file(path))
    except (FileNotFoundError, SafetensorError, RuntimeError) as error:
        raise ValueError(f"the weights {path} are missing, damaged or of another manipulation") from error
    return manipulator.eval()


def _score(world: World, examples: int) -> float | None:
    """The score of principal components; None if it has no value (a factor may not vary among few examples)."""
    try:
        return pca_score(world, examples)
    except ValueError:
        return None
