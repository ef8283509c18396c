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
from polariscope.studies.criteria import All, AtLeast, AtMost, Flat, Near
from polariscope.studies.kit import Panels
from polariscope.studies.manifolds.power_laws import log_log
from polariscope.studies.manifolds.stripe_nets import SOURCE, draw, leading, quotient, start_of, world_of
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.theory.amplification import Sampled
from polariscope.theory.stripe import attractors

FEATURE, LAZY, INVERSE = 1e-6, 1e4, 1e2
"""Output scales up to which features are learned, from which on they are not, and from which on t* is as 1/α."""
FROZEN = "frozen kernel"
ALONG = "output scale α"


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
    "smoke": Setting(
        alphas=(1e-8, 1e-6, 1.0, 1e2, 1e4), seeds=1, dimension=5, points=60, width=40, momentum=0.9, steps=300, test=500
    ),
    "laptop": Setting(
        alphas=PUBLISHED, seeds=5, dimension=10, points=1000, width=500, momentum=0.9, steps=2500, test=20_000
    ),
    "paper": Setting(
        alphas=PUBLISHED, seeds=5, dimension=10, points=1000, width=10_000, momentum=0.0, steps=200_000, test=100_000
    ),
}


@studies.register("lazy-transition")
class LazyTransition(Study):
    """Test error, onset and amplification over the output scale, beside the frozen kernel."""

    title = "From features to a frozen kernel"
    source = f"{SOURCE}, appendix B, figure 11"
    question = "At what output scale does a network stop learning features, and what does it lose?"
    cost = {"smoke": "2 s", "laptop": "about 5 minutes", "paper": "days"}
    drawn = {
        "alpha-scan": Panels(
            (
                log_log(
                    ("error", "frozen"),
                    "alpha",
                    names={"error": "network", "frozen": FROZEN},
                    dashed=("frozen",),
                    called="test error",
                    along=ALONG,
                ),
                log_log("onset", "alpha", called="onset t*/τ", along=ALONG),
                log_log("at_onset", "alpha", called="amplification Λ* at the onset", along=ALONG),
                log_log("largest", "alpha", called="largest amplification Λ_max", along=ALONG),
            ),
            where={"learner": "network"},
        )
    }

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

    def claims(self, scale: Scale) -> list[Claim]:
        feature, lazy = {"regime": "feature"}, {"regime": "lazy"}
        expected = leading("stripe", SETTINGS[scale].dimension).onset_slope
        of_frozen = "error over the frozen kernel's"
        return [
            Claim(
                "At large output scales the error is that of the frozen kernel",
                "figure 11: the dashed line",
                Near("of_frozen", 1, by=0.1, where=lazy, called=of_frozen),
            ),
            Claim(
                "At small output scales the error has a plateau, below that of the frozen kernel",
                "figure 11",
                All(
                    Flat("error", "alpha", by=0.3, relative=True, where=feature, called="test error", digits=4),
                    AtMost("of_frozen", 0.5, where=feature, called=of_frozen),
                ),
            ),
            Claim(
                "As α goes to 0 the onset t* grows logarithmically",
                f"t* ~ τ log(1/α); exactly {expected:.2f} τ an e-fold (Spec 004, section 6.5)",
                Near("onset_slope", expected, by=0.1, called="delay of t* by an e-fold of α, in τ,", to="theory's"),
            ),
            Claim(
                "As α goes to infinity the onset t* falls as 1/α",
                "figure 11",
                Flat("product", "alpha", by=0.1, relative=True, called="α t*/τ"),
            ),
            Claim(
                "At large output scales nothing is compressed",
                "figure 11: Λ = 1",
                All(
                    Near("largest", 1, by=0.03, where=lazy, called="Λ_max", digits=3),
                    AtMost("moved", 0.01, of="every", where=lazy, called="change of Λ as a share of its start"),
                ),
            ),
            Claim(
                "At small output scales Λ* and Λ_max have a plateau",
                "figure 11",
                All(
                    Flat("at_onset", "alpha", by=0.3, relative=True, where=feature, called="Λ*", digits=1),
                    Flat("largest", "alpha", by=0.3, relative=True, where=feature, called="Λ_max", digits=1),
                    AtLeast("grown", 3, of="every", where=feature, called="Λ* over its start", digits=1),
                ),
            ),
        ]

    def readings(self, table: Table) -> Table:
        frozen = {row["seed"]: row["error"] for row in table.where(learner=FROZEN).rows}
        scan = [row | _beside(row, frozen[row["seed"]]) for row in table.where(learner="network").rows]
        slopes = [
            {"seed": seed, "onset_slope": onset_slope(rows)}
            for seed, rows in Table(scan).where(regime="feature").by("seed")
        ]
        return Table(scan + slopes)

    def beside(self, table: Table) -> list[Row]:
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
            for alpha, group in table.where(learner="network").by("alpha")
        ]
        return [*rows, dict.fromkeys(rows[0], "-") | {"α": FROZEN, "test error": f"{frozen:.4f}"}]

    def figures(self, table: Table) -> dict[str, Figure]:
        return super().figures(self.readings(table))


def onset_slope(rows: Table) -> float | None:
    """Time, in τ, by which the onset is later for an output scale smaller by a factor e; None without onsets."""
    known = [row for row in rows.rows if row.get("onset") is not None]
    if len(known) < 2:
        return None
    return float(np.polyfit([-np.log(row["alpha"]) for row in known], [row["onset"] for row in known], 1)[0])


def _beside(row: Row, frozen: float) -> Row:
    """A network beside the kernel that never moved, and beside its own start."""
    alpha, largest = row["alpha"], quotient(row, "largest", "at_start")
    return {
        "regime": "feature" if alpha <= FEATURE else "lazy" if alpha >= LAZY else "between",
        "frozen": frozen,
        "of_frozen": quotient(row | {"frozen": frozen}, "error", "frozen"),
        "moved": None if largest is None else abs(largest - 1),
        "grown": quotient(row, "at_onset", "at_start"),
        "product": alpha * row["onset"] if alpha >= INVERSE and row.get("onset") is not None else None,
    }
