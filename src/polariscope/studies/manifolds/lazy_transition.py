"""Study: from learning features to not learning them, by the output scale alone (Figure 11).

F = α (f − f₀) is trained at output scales α over 24 decades. The smaller α, the longer the weights must grow before
anything is fitted, by half of τ* an e-fold; from some α on they hardly move, and the network is the machine of its
kernel at the start. (Spec 004, sections 6.5, 7, E11, and 9.6.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch
from matplotlib.figure import Figure

from polariscope.kernels.frozen import NetKernel, learn_frozen
from polariscope.kernels.gradient_flow import Flow, train_flow
from polariscope.report.figures import LIGHT, styled
from polariscope.studies.manifolds.amplification import SOURCE, draw, leading, plain_ticks, start_of, world_of
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.theory.amplification import Sampled
from polariscope.theory.stripe import attractors

FEATURE, LAZY = 1e-6, 1e4
"""Output scales from which on outwards the regimes are reached."""
FROZEN = "frozen kernel"


@dataclass(frozen=True)
class Setting:
    alphas: tuple[float, ...]
    seeds: int
    dimension: int
    points: int
    width: int
    momentum: float
    steps: int
    test: int


PUBLISHED = (1e-16, 1e-14, 1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 0.1, 1.0, 10.0, 1e2, 1e4, 1e6, 1e8)
SETTINGS: dict[Scale, Setting] = {
    "smoke": Setting((1e-8, 1e-6, 1.0, 1e2, 1e4), 1, 5, 60, 40, 0.9, 300, 500),
    "laptop": Setting(PUBLISHED, 5, 10, 1000, 500, 0.9, 2500, 20_000),
    "paper": Setting(PUBLISHED, 5, 10, 1000, 10_000, 0.0, 200_000, 100_000),
}


@studies.register("lazy-transition")
@dataclass(frozen=True)
class LazyTransition(Study):
    """Test error, onset and amplification over the output scale, beside the kernel that never moves."""

    title = "From features to a frozen kernel"
    source = f"{SOURCE}, appendix B, figure 11"
    question = "At what output scale does a network stop learning features, and what does it lose?"
    cost = {"smoke": "2 s", "laptop": "about 5 minutes", "paper": "days"}

    def jobs(self, scale: Scale) -> Sequence[Job]:
        setting = SETTINGS[scale]
        keys = ("dimension", "points", "width", "momentum", "steps", "test")
        common = {"task": "stripe"} | {key: asdict(setting)[key] for key in keys}
        seeds = range(setting.seeds)
        scan = [common | {"learner": "network", "alpha": a, "seed": seed} for a in setting.alphas for seed in seeds]
        return scan + [common | {"learner": FROZEN, "seed": seed} for seed in seeds]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        world = world_of(job)
        (x, y), test = draw(world, job["points"], job["seed"], "train"), draw(world, job["test"], job["seed"], "test")
        net = start_of(job, torch.float64)  # weights grow to 1e8 at the smallest output scale
        if job["learner"] == FROZEN:
            return [job | {"error": learn_frozen(NetKernel(net), x, y).error(*test)}]
        # The onset of a lazy network is a matter of few steps, which therefore have to be small.
        flow = Flow(alpha=job["alpha"], early_change=0.1, momentum=job["momentum"], steps=job["steps"])
        done = train_flow(net, x, y, flow, informative=1, every=job["steps"])
        return [
            job
            | {
                "error": done.error(*test),
                "onset": done.t_star.time if done.t_star else None,
                "at_onset": done.t_star.amplification if done.t_star else None,
                "largest": done.largest.amplification if done.largest else None,
                "at_start": done.start.amplification,
                "slope": attractors(Sampled(x[:, 0], y), job["dimension"])[0].onset_slope,
                "active": done.active,
            }
        ]

    def claims(self, table: Table, scale: Scale) -> list[Claim]:
        scan = table.where(learner="network")
        few, many = _part(scan, 0, FEATURE), _part(scan, LAZY, np.inf)
        middle = {name: {a: g.mean(name) for a, g in scan.by("alpha")} for name in ("error", "onset", "largest")}
        frozen, feature, lazy = table.where(learner=FROZEN).mean("error"), few.mean("error"), many.mean("error")
        plateau = [middle["error"][a] for a in few.distinct("alpha")]
        slope, expected = onset_slope(scan), leading("stripe", scan.rows[0]["dimension"]).onset_slope
        large = {a: a * t for a, t in middle["onset"].items() if a >= 100}
        product = np.array(list(large.values()))
        moved = np.abs(many.column("largest") / many.column("at_start") - 1)
        onset = [few.where(alpha=a).mean("at_onset") for a in few.distinct("alpha")]
        return [
            Claim(
                "At large output scales the error is that of the frozen kernel",
                "figure 11: the dashed line",
                f"{lazy:.4f} from α = {LAZY:g} on, frozen kernel {frozen:.4f}",
                bool(abs(lazy - frozen) < max(0.01, 0.1 * frozen)),
            ),
            Claim(
                "At small output scales the error has a plateau, below that of the frozen kernel",
                "figure 11",
                ", ".join(f"{a:g}: {middle['error'][a]:.4f}" for a in few.distinct("alpha"))
                + f"; {frozen / feature:.1f} times below the frozen kernel",
                bool(max(plateau) < 1.5 * min(plateau) and max(plateau) < frozen),
            ),
            Claim(
                "For α to 0 the onset t* is logarithmic",
                f"t* ~ τ log(1/α); exactly {expected:.2f} τ an e-fold (Spec 004, section 6.5)",
                f"{slope:.2f} τ an e-fold up to α = {FEATURE:g}; theory of these data sets: {few.mean('slope'):.2f}",
                bool(abs(slope - expected) < 0.1),
            ),
            Claim(
                "For α to infinity the onset t* is as 1/α",
                "figure 11",
                "α t*/τ = " + ", ".join(f"{v:.2f} ({a:g})" for a, v in large.items()),
                bool(np.ptp(product) < 0.1 * product.mean()),
            ),
            Claim(
                "At large output scales nothing is compressed",
                "figure 11: Λ = 1",
                f"Λ_max = {many.mean('largest'):.3f}; it differs from its start by at most {moved.max():.1e}",
                bool(abs(many.mean("largest") - 1) < 0.03 + 1 / np.sqrt(scan.rows[0]["width"]) and moved.max() < 0.01),
            ),
            Claim(
                "At small output scales Λ* and Λ_max have a plateau",
                "figure 11",
                "Λ* "
                + ", ".join(f"{v:.1f}" for v in onset)
                + "; Λ_max "
                + ", ".join(f"{middle['largest'][a]:.1f}" for a in few.distinct("alpha")),
                bool(max(onset) < 1.3 * min(onset) and min(onset) > 3),
            ),
        ]

    def beside(self, table: Table) -> list[Row]:
        scan = table.where(learner="network")
        frozen = table.where(learner=FROZEN).mean("error")
        rows = [
            {
                "α": f"{alpha:g}",
                "test error": f"{group.mean('error'):.4f}",
                "t*/τ": f"{group.mean('onset'):.3g}",
                "Λ*": f"{group.mean('at_onset'):.2f}",
                "Λ_max": f"{group.mean('largest'):.2f}",
                "not fitted": f"{group.mean('active'):.0f}",
                "seeds": len(group),
            }
            for alpha, group in scan.by("alpha")
        ]
        blank = dict.fromkeys(rows[0], "-")
        return [*rows, blank | {"α": FROZEN, "test error": f"{frozen:.4f}"}]

    @styled
    def figures(self, table: Table) -> dict[str, Figure]:
        scan = table.where(learner="network")
        alphas = np.array(scan.distinct("alpha"))
        figure = Figure(figsize=(9.2, 2.8), layout="constrained")
        error, onset, factor = figure.subplots(1, 3)
        for axes, column, colour, label in (
            (error, "error", "first", "network"),
            (onset, "onset", "first", "network"),
            (factor, "at_onset", "first", "Λ*"),
            (factor, "largest", "second", "Λ_max"),
        ):
            means = np.array([group.mean(column) for _, group in scan.by("alpha")])
            spread = [group.std(column) for _, group in scan.by("alpha")]
            axes.errorbar(alphas, means, spread, color=LIGHT[colour], marker="o", markersize=3, label=label)
            axes.set(xscale="log", yscale="log", xlabel="output scale α")
            plain_ticks(axes, subs=(1.0,) if axes is onset else (1.0, 2.0, 5.0))
            axes.set_xticks([1e-16, 1e-8, 1.0, 1e8])
        error.axhline(table.where(learner=FROZEN).mean("error"), color=LIGHT["ink"], linestyle="--", label=FROZEN)
        error.set_title("test error")
        onset.set_title("onset t*/τ")
        factor.set_title("amplification")
        error.legend()
        factor.legend()
        return {"alpha-scan": figure}


def onset_slope(scan: Table) -> float:
    """Time, in τ, by which the onset is later for an output scale smaller by a factor e."""
    few = _part(scan, 0, FEATURE)
    onset = [group.mean("onset") for _, group in few.by("alpha")]
    return float(np.polyfit(-np.log(few.distinct("alpha")), onset, 1)[0])


def _part(scan: Table, low: float, high: float) -> Table:
    return Table([row for row in scan.rows if low <= row["alpha"] <= high])
