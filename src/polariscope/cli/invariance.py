"""``polariscope invariance``: does a model keep a property when the rest of its code changes?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polariscope.cli import commands
from polariscope.cli.configuration import chosen_world, meant, with_world
from polariscope.cli.named import ModelFlags, is_source, opened, own_subject
from polariscope.cli.parsing import asks_for_help, parse, take, take_first
from polariscope.examination.awakening import awakening
from polariscope.examination.frontier import audit_frontier
from polariscope.examination.invariance import audit_invariance
from polariscope.examination.property_traversals import traverse_property
from polariscope.examination.titles import run_title
from polariscope.lab.run_documents import keep_findings
from polariscope.lab.store import Run, Store
from polariscope.report.terminal import answer
from polariscope.worlds.world import worlds

CHOSEN = ("property_latents", "count", "samples", "reach", "centred", "judged_on", "seed")
"""Options of an audit."""


@dataclass(frozen=True)
class Options:
    """polariscope invariance RUN [RUN ...] [options], or polariscope invariance FILE.py:NAME --data WORLD [options]

    Tests whether a property stays the same when the rest of the code is drawn anew. Several runs are compared at equal
    reconstruction errors, as frontiers with intervals over their seeds.

    RUN was trained with conditional-invariance, property-beta-vae or stib. Your own model must encode and decode;
    --property-latents is the number of first latents that encode the property, which is the target of the data.
    """

    property_latents: int | None = None
    """Number of first latents that encode the property; a run records it."""
    weights: Path | None = None
    """Weights of your own module: safetensors, or a file of torch.save."""
    count: int = 2000
    """Number of held-out examples."""
    samples: int = 1
    """Observations to generate for each example."""
    reach: float = 1.0
    """Range of the drawn Z1, in standard deviations of its signal."""
    centred: bool = False
    """Draw Z1 around its mean; by default around 0, as published."""
    judged_on: int = 2000
    """Training examples for the judge and the probes."""
    seed: int = 0
    """Draws examples and codes."""
    runs: Path = Path("runs")
    """Folder of the runs."""
    out: Path | None = None
    """A page (.html), the first figure (.png, .svg), or a folder for everything; the run then keeps no document. By
    default the folder findings/invariance of the run, or the page invariance.html in the current folder."""
    json: bool = False
    """Print JSON for machines."""


@commands.register(
    "invariance",
    "test whether a model keeps a property when the rest of its code changes",
    group="examination",
    needs="property",
)
def main(arguments: list[str]) -> int:
    arguments = list(arguments)
    name, place = take_first(arguments), take(arguments, "--data")
    if name is None and not asks_for_help(arguments):
        raise ValueError("which model? 'polariscope invariance RUN', or '... invariance FILE.py:NAME --data WORLD'")
    if name is None or not is_source(name):
        if place is not None:
            raise ValueError("a run is audited on the data it was trained on: leave --data out")
        others = []
        while (other := take_first(arguments)) is not None:
            others.append(other)
        options: Any = parse(Options, arguments, "invariance")
        runs = [opened(Store(options.runs), str(each)) for each in (name, *others)]
        if others:
            return _compare(runs, options)
        return _answer(runs[0], None, run_title(runs[0]), runs[0], options)
    if place is None:
        raise ValueError("which data? 'polariscope invariance FILE.py:NAME --data WORLD', a world with a property")
    options = parse(with_world(Options, chosen_world(arguments, place)), arguments, "invariance")
    subject = own_subject(name, ModelFlags(options.weights))
    return _answer(subject, meant(options.world), name, None, options)


def _compare(runs: list[Run], options: Any) -> int:
    chosen = {key: getattr(options, key) for key in CHOSEN}
    findings = audit_frontier(runs, **chosen).findings("Invariance of several runs", chosen)
    return answer(findings, keep_findings(findings, "frontier", None, options.out), options.json)


def _answer(model: Any, world: Any, title: str, run: Run | None, options: Any) -> int:
    chosen = {key: getattr(options, key) for key in CHOSEN}
    audit = audit_invariance(model, world, **chosen)
    walked = {key: chosen[key] for key in ("property_latents", "count", "seed")}
    more = traverse_property(model, world, **walked).parts()
    woken = None if run is None else awakening(run)
    more += [] if woken is None else woken.parts()
    settings = chosen | ({} if world is None else {"data": worlds.describe(world)})
    findings = audit.findings(f"Invariance of {title}", settings, more)
    return answer(findings, keep_findings(findings, "invariance", run, options.out), options.json)
