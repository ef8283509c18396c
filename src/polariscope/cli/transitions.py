"""``polariscope transitions``: do the factors of a video (or of pairs) change sparsely enough for SlowVAE?"""

from __future__ import annotations

from pathlib import Path

from polariscope.cli import commands
from polariscope.cli.configuration import parse_world
from polariscope.cli.parsing import JSON, OUT, flag, take_data
from polariscope.examination.transitions import examine_transitions
from polariscope.lab.run_documents import keep_findings
from polariscope.report.terminal import answer
from polariscope.worlds.views.sequences import Sequenced
from polariscope.worlds.world import worlds

HELP = """polariscope transitions DATA [options]

DATA is your own mask video (a folder with a folder of frames for each video, or an npz file with 'masks'), or a world
of sequences (masks) or of pairs (pairs, natural-sprites). Fits Laplace, normal and generalised normal densities to the
changes of its factors."""
EXTRA = [
    ("furthest", flag(int, "Largest distance in time between compared frames."), 1),
    ("gaps", flag(tuple[int, ...], "Distances in time at which the shape of the density is fitted again."), ()),
    ("count", flag(int, "Pairs to draw from a world of pairs."), 20_000),
    ("seed", flag(int, "Seed of the pairs, and of the permuted control."), 0),
    OUT,
    JSON,
]


@commands.register("transitions", "test whether the factors of a video change sparsely, as SlowVAE needs", group="data")
def main(arguments: list[str]) -> int:
    arguments = list(arguments)
    name = take_data(arguments)
    asked = "-h" in arguments or "--help" in arguments
    if name is None and not asked:
        raise ValueError("which data? 'polariscope transitions DATA': a mask video's folder or npz file, or a world")
    name = name or "masks"
    if name not in worlds.names():
        path = Path(name).expanduser()
        if not path.exists():
            worlds.get(name)  # says what was meant
        arguments = ["--world.path", str(path), *arguments]
        name = "video"
    world, options = parse_world(name, arguments, "transitions", EXTRA, HELP)
    if options.gaps and not isinstance(world, Sequenced):
        raise ValueError("--gaps are distances in time, and this world has pairs only: leave them out")
    transitions = examine_transitions(world, options.furthest, options.gaps, options.count, options.seed)
    settings = {"world": worlds.describe(world), "furthest": options.furthest, "gaps": list(options.gaps)}
    findings = transitions.findings(f"Transitions of {name}", settings)
    return answer(findings, keep_findings(findings, "transitions", out=options.out), options.json)
