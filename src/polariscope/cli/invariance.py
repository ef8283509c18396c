"""``polariscope invariance``: does a model keep a property when the rest of its code changes?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polariscope.cli import commands
from polariscope.cli.configuration import chosen_world, meant, with_world
from polariscope.cli.named import ModelFlags, is_source, opened, own_subject
from polariscope.cli.parsing import asks_for_help, parse, take_data, take_first
from polariscope.examination.frontier import audit_frontier
from polariscope.examination.invariance_document import invariance_document
from polariscope.examination.titles import run_title
from polariscope.lab.run_documents import keep_findings
from polariscope.lab.store import Store
from polariscope.report.terminal import answer

CHOSEN = ("property_latents", "count", "samples", "reach", "centred", "judged_on", "seed")
"""Options of an audit."""


@dataclass(frozen=True)
class Options(ModelFlags):
    """polariscope invariance RUN [RUN ...] [options], or polariscope invariance FILE.py:NAME DATA [options]

    Tests whether a property stays the same when the rest of the code is resampled. Several runs are compared at equal
    reconstruction errors, as frontiers with intervals over their seeds.

    RUN was trained with conditional-invariance, property-beta-vae or stib. Your own model must encode and decode, and
    needs --property-latents, the number of its first latents that encode the property; the property is the target of
    the data.
    """

    property_latents: int | None = None
    """Number of first latents that encode the property; a run records it."""
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
    """Seed of the examples and the codes."""
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
    name = take_first(arguments)
    own = name is not None and is_source(name)
    others = [] if own else list(iter(lambda: take_first(arguments), None))
    data = take_data(arguments)
    if name is None and not asks_for_help(arguments):
        raise ValueError("which model? 'polariscope invariance RUN', or '... invariance FILE.py:NAME DATA'")
    if own and data is None and not asks_for_help(arguments):
        raise ValueError("which data? 'polariscope invariance FILE.py:NAME DATA', a world with a property")
    if data is not None and not own:
        raise ValueError("a run is audited on the data it was trained on: leave --data out")
    kind = Options if data is None else with_world(Options, chosen_world(arguments, data))
    options: Any = parse(kind, arguments, "invariance")
    chosen = {key: getattr(options, key) for key in CHOSEN}
    if own:
        subject, world = own_subject(str(name), options), meant(options.world)
        findings = invariance_document(subject, world, title=str(name), **chosen)
        return answer(findings, keep_findings(findings, "invariance", None, options.out), options.json)
    runs = [opened(Store(options.runs), str(each)) for each in (name, *others)]
    if others:
        findings = audit_frontier(runs, **chosen).findings("Invariance of several runs", chosen)
        return answer(findings, keep_findings(findings, "frontier", None, options.out), options.json)
    findings = invariance_document(runs[0], title=run_title(runs[0]), **chosen)
    return answer(findings, keep_findings(findings, "invariance", runs[0], options.out), options.json)
