"""Cartesian and polar codes: what restarts with a low score have learned instead (Figures 4.10 and 4.11).

Many beta-VAEs learn the same rooms from different starts. In a polar code a hue is the angle, and another factor the
radius, of two latents: scores that go axis by axis call it entangled. The detector compares the MIG of each pair of
latents with the MIG of its radius and angle (Spec 003, section E4.4).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from polariscope.manipulation.selection import extremes
from polariscope.measures.mig import mig, polar_mig
from polariscope.nets.architecture import Conv
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.report.figures import panels, styled
from polariscope.representation import represent
from polariscope.studies.criteria import All, AtLeast, AtMost, Correlates
from polariscope.studies.kit import Scatter
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.theory.polarised_regime import active_units
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.worlds.renderers.shapes3d import Shapes3D
from polariscope.worlds.splits import RandomSplit

RESTARTS = {"smoke": 4, "laptop": 20, "paper": 50}
SIZE = {"smoke": 16, "laptop": 16, "paper": 64}
STEPS = {"smoke": 5, "laptop": 3000, "paper": 300_000}
BETA = {"smoke": 2.0, "laptop": 2.0, "paper": 32.0}
"""An image of 16 pixels a side has a sixteenth of the pixels, and a sixteenth of the published weight."""
EXAMINED = {"smoke": 500, "laptop": 5000, "paper": 10_000}
ENDS = 4  # best and worst restarts that are looked at, as published
MARGIN = 0.2


@studies.register("polar-restarts")
class PolarRestarts(Study):
    """MIG of many restarts, and of the radius and angle of their pairs of latents."""

    title = "Polar codes of restarts with a low score"
    source = "Zietlow's dissertation (2022), section 4.3.6, figures 4.10 and 4.11"
    question = "Have restarts with a low score learned nothing, or another system of coordinates?"
    cost = {"smoke": "5 s", "laptop": "about 20 minutes", "paper": "weeks"}
    training_lengths = STEPS
    drawn = {"gain": Scatter("gain", "mig", called="gain of polar coordinates", along="MIG", guides={"margin": MARGIN})}

    def jobs(self, scale: Scale) -> Sequence[Job]:
        return [{"scale": scale, "seed": seed} for seed in range(RESTARTS[scale])]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        scale: Scale = job["scale"]
        rooms = Shapes3D(SIZE[scale])
        training = TrainingConfig(
            steps=STEPS[scale],
            learning_rate=1e-4 if scale == "paper" else 1e-3,
            seed=job["seed"],
            evaluate_every=0,
            log_every=max(1, STEPS[scale] // 20),
        )
        model = AutoencoderConfig(6, Conv(dense_decoder=True))
        trained = bench.fit(RunConfig(rooms, BetaVAE(BETA[scale]), model, training, RandomSplit(0.2)))
        rep = represent(trained, rooms, count=EXAMINED[scale])
        assert rep.var is not None
        assert rep.factors is not None
        coordinates = polar_mig(rep.mean, rep.factors, margin=MARGIN)
        gains = coordinates.polar - coordinates.cartesian
        best = int(gains.argmax())
        names = [factor.name for factor in rooms.factors]
        return [
            {
                "seed": job["seed"],
                "mig": mig(rep.mean, rep.factors).value,
                "active": int(active_units(rep.mean, rep.var).sum()),
                "gain": float(gains[best]),
                "polar_pairs": len(coordinates.polar_pairs),
                "pair": coordinates.pairs[best].tolist(),
                "of_factors": [names[j] for j in coordinates.factors[best]],
                "polar": float(coordinates.polar[best]),
                "cartesian": float(coordinates.cartesian[best]),
                "codes": rep.mean[:400, coordinates.pairs[best]].round(3).tolist(),
                "hues": rep.factors[:400, coordinates.factors[best]].astype(int).tolist(),
            }
        ]

    def claims(self, scale: Scale) -> list[Claim]:
        worst, best = (f"polar codes among the four restarts of {end} MIG" for end in ("lowest", "highest"))
        return [
            Claim(
                "The four worst restarts have a polar code, the four best have none",
                "figure 4.11: hue is the angle and orientation the radius in all of the worst; figure 4.10: the best "
                "have one factor on each axis",
                All(
                    AtLeast("polar_among_worst", ENDS, called=worst, digits=0),
                    AtMost("polar_among_best", 0, called=best, digits=0),
                ),
                provided=AtLeast("restarts", 20, called="number of restarts"),
            ),
            Claim(
                "The lower the MIG of a restart, the more polar coordinates raise it",
                "section 4.3.6: polar codes explain scores of two modes",
                Correlates("gain", "mig", -0.3, called="gain of polar coordinates"),
            ),
        ]

    def readings(self, table: Table) -> Table:
        polar = {f"polar_among_{end}": sum(row["polar_pairs"] > 0 for row in rows) for end, rows in _ends(table)}
        return Table([*table.rows, {"restarts": len(table), **polar}])

    def beside(self, table: Table) -> list[Row]:
        """The best and the worst restarts."""
        return [
            {
                "restart": f"{end} {rank}",
                "MIG": f"{row['mig']:.3f}",
                "most polar pair encodes": " and ".join(row["of_factors"]),
                "MIG of the pair along its axes": f"{row['cartesian']:.2f}",
                "along radius and angle": f"{row['polar']:.2f}",
            }
            for end, rows in _ends(table)
            for rank, row in enumerate(rows, start=1)
        ]

    def figures(self, table: Table) -> dict[str, Figure]:
        return super().figures(table) | {"codes": _codes(table)}


def _ends(table: Table) -> list[tuple[str, list[Row]]]:
    """The restarts of the highest and of the lowest MIG."""
    ends = extremes(table.column("mig"), min(ENDS, len(table) // 2))
    return [(end, [table.rows[n] for n in getattr(ends, end)]) for end in ("best", "worst")]


@styled
def _codes(table: Table) -> Figure:
    """The most polar pair of latents of the best and of the worst restarts, coloured by the factor of its angle."""
    shown = [(end, row) for end, rows in _ends(table) for row in rows]
    figure, places = panels(len(shown), 2.0, 2.1, across=len(shown) // 2)
    for axes, (end, row) in zip(places, shown, strict=True):
        codes, hues = np.array(row["codes"]), np.array(row["hues"])
        axes.scatter(codes[:, 0], codes[:, 1], c=hues[:, 0], cmap="hsv", s=5)
        axes.set_title(f"{end}: MIG {row['mig']:.2f}\ncolour: {row['of_factors'][0]}", fontsize=8)
        axes.set(xticks=[], yticks=[], aspect="equal")
    return figure
