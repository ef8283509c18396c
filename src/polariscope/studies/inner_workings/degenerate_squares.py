"""A square has no preferred axes: equal variances leave a VAE's orientation to chance (Table 3.4, Figure 3.5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import kstest

from polariscope.measures.neighbour_score import neighbour_score
from polariscope.measures.orthogonality import distance_to_orthogonality, haar_distance
from polariscope.report.figures import LIGHT, SUBJECTS, panels, styled
from polariscope.representation import represent
from polariscope.studies.criteria import All, AtLeast, AtMost, Beats, Near, Rises
from polariscope.studies.inner_workings.alignment_tasks import Task, decoder_distance, settings_of, task
from polariscope.studies.published import published
from polariscope.studies.rows import plus_minus
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.theory.orthogonal_noise import rotation_penalty
from polariscope.theory.pca import projected_variance
from polariscope.theory.pca_vae import fit_linear_vae
from polariscope.training.run import load_model
from polariscope.worlds.points.synthetic import SquareLinear

RATIOS = (1.0, 1.2, 1.5, 2.0)
SEEDS = {"smoke": range(1), "laptop": range(5, 15), "paper": range(10)}
"""At laptop scale the seeds below 5 belong to an earlier table, made before the data were centred."""
STARTS = {"smoke": 3, "laptop": 40, "paper": 200}
STEPS = {"smoke": 40, "laptop": 16_000, "paper": 200_000}
SHOWN = 400  # points of each picture
PRINTED = published("inner_workings/degenerate-squares").rows


@studies.register("degenerate-squares")
class DegenerateSquares(Study):
    """The linear beta-VAE on stretched squares: trained by sampling, and solved exactly from many starts."""

    title = "Equal variances leave the orientation to chance"
    source = "Rolinek, Zietlow and Martius 2019; Zietlow's dissertation (2022), section 3.3.4, table 3.4, figure 3.5"
    question = "Does a VAE find independent factors, or directions of unequal variance?"
    cost = {"smoke": "a second", "laptop": "5 minutes", "paper": "hours"}
    training_lengths = STEPS

    def jobs(self, scale: Scale) -> Sequence[Job]:
        exact: list[Job] = [{"scale": scale, "route": "exact", "ratio": ratio} for ratio in RATIOS]
        return exact + [
            {"scale": scale, "route": "trained", "ratio": ratio, "seed": seed}
            for ratio in (RATIOS[::2] if scale == "smoke" else RATIOS)
            for seed in SEEDS[scale]
        ]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        if job["route"] == "exact":
            return _exact(job["ratio"], STARTS[job["scale"]])
        chosen = _task(job["scale"], job["ratio"])
        model = load_model(bench.train(chosen.config("beta-vae", job["seed"])))
        rep = represent(model, chosen.held_out, count=5000)
        assert rep.factors is not None
        score = neighbour_score(rep.mean, rep.factors).value
        codes = rep.mean[:SHOWN].round(3).tolist() if job["seed"] in SEEDS[job["scale"]][:4] else None
        distance = decoder_distance(model, rep.mean[:50])
        return [settings_of(job) | {"score": score, "distance": distance, "codes": codes}]

    def claims(self, scale: Scale) -> list[Claim]:
        trained, exact = {"route": "trained"}, {"route": "exact"}
        printed = {name: ", ".join(map(str, cells.values())) for name, cells in PRINTED.items()}
        haar = haar_distance(2)
        penalties = [float(rotation_penalty([r**2, 1.0], _turn(45))) for r in RATIOS]
        return [
            Claim(
                "Stretching the square restores the alignment",
                f"table 3.4: score {printed['score']}; distance {printed['distance']}",
                All(
                    Rises("score", "ratio", by=0.2, where=trained),
                    Rises("distance", "ratio", by=0.2, falls=True, where=trained),
                ),
            ),
            Claim(
                "A square stretched by half is aligned",
                f"table 3.4: score {PRINTED['score']['1.5']}; distance {PRINTED['distance']['1.5']}",
                All(
                    AtLeast("score", 0.9, where=trained | {"ratio": 1.5}, called="score at a ratio of 1.5"),
                    AtMost("distance", 0.1, where=trained | {"ratio": 1.5}, called="distance at it"),
                ),
            ),
            Claim(
                "The orientation of a square is arbitrary",
                f"figure 3.5: randomly rotated; distance of random rotations {haar.mean:.2f} ± {haar.std:.2f}",
                All(
                    AtLeast("p_uniform", 0.01, called="p of the angles of exact solutions being uniform"),
                    Near(
                        "distance",
                        haar.mean,
                        by=round(4 * haar.std / np.sqrt(STARTS[scale]), 3),  # standard errors
                        where=exact | {"ratio": 1.0},
                        to="that of random rotations",
                    ),
                ),
            ),
            Claim(
                "Any other rectangle has one best orientation",
                "distance 0 at the exact minimum (Spec 003, E3.4); a rotation by 45 degrees costs "
                + ", ".join(f"{p:.4f}" for p in penalties)
                + " nats at ratios 1, 1.2, 1.5, 2",
                AtMost(
                    "distance", 1e-3, of="every", where=exact | {"square": False}, called="distance (ratio above 1)"
                ),
            ),
            Claim(
                "Choosing the restart with the most orthogonal decoder works without labels",
                "section 1.3: its score is at least the median's",
                Beats("picked_score", {"pick": "most orthogonal"}, {"pick": "median"}, by=0.05, called="score"),
                provided=AtLeast("restarts", 3, called="number of restarts"),
            ),
        ]

    def readings(self, table: Table) -> Table:
        rows = [row | {"square": row["ratio"] == 1.0} for row in table.rows]
        angles = table.where(route="exact", ratio=1.0).column("angle")
        near = table.where(route="trained", ratio=1.2)
        uniform = float(kstest(angles / 90, "uniform").pvalue)
        rows += [{"p_uniform": uniform, "of_seeds": len(angles)}, {"restarts": len(near)}]
        if len(near):
            picked = min(near.rows, key=lambda row: float(row["distance"]))
            # A pick is one, of however many restarts it was made.
            rows += [
                {"pick": "most orthogonal", "picked_score": picked["score"], "of_seeds": 1},
                {"pick": "median", "picked_score": float(np.median(near.column("score"))), "of_seeds": len(near)},
            ]
        return Table(rows)

    def beside(self, table: Table) -> list[Row]:
        rows = []
        for ratio, group in table.where(route="trained").by("ratio"):
            name = f"{ratio:.1f}"
            rows.append(
                {
                    "ratio": name,
                    "DS published": PRINTED["score"].get(name, "-"),
                    "DS here": plus_minus(group.column("score")),
                    "DtO published": PRINTED["distance"].get(name, "-"),
                    "DtO here": plus_minus(group.column("distance")),
                    "exact minimum, distance of the axes from the factors": plus_minus(
                        table.where(route="exact", ratio=ratio).column("distance")
                    ),
                }
            )
        return rows

    @styled
    def figures(self, table: Table) -> dict[str, Figure]:
        """Codes of the first restarts, a row a ratio: squares turned at random, rectangles along the axes."""
        shown = table.where(route="trained")
        ratios = shown.distinct("ratio")
        columns = max(sum(row.get("codes") is not None for row in shown.where(ratio=r).rows) for r in ratios)
        figure = Figure(figsize=(0.6 + 1.6 * columns, 1.7 * len(ratios)), layout="constrained")
        grid = figure.subplots(len(ratios), columns, squeeze=False)
        for cells, ratio in zip(grid, ratios, strict=True):
            for axes, row in zip(cells, shown.where(ratio=ratio).rows, strict=False):
                codes = np.array(row["codes"])
                axes.scatter(*codes.T, s=2, color=LIGHT["active"])
                axes.set_aspect("equal", adjustable="datalim")
                axes.set(title=f"DtO {row['distance']:.2f}", xticks=[], yticks=[])
            cells[0].set_ylabel(f"ratio {ratio:g}")
        return {"codes": figure, "projections": projections()}


@styled
def projections() -> Figure:
    """Variance of the data along a line in their plane, over its angle: flat for a square, which PCA may turn too."""
    figure, (axes,) = panels(1, 4.4, 2.6)
    degrees = np.linspace(0, 180, 91)
    for ratio, colour in zip(RATIOS, SUBJECTS, strict=True):
        matrix = SquareLinear(stretch=ratio).matrix
        sides = matrix / np.linalg.norm(matrix, axis=0)
        lines = sides @ np.stack([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))])
        axes.plot(degrees, projected_variance(matrix @ matrix.T / 12, lines), color=LIGHT[colour], label=f"{ratio:g}")
    axes.set(xlabel="angle to the first side (degrees)", ylabel="variance of the projection")
    axes.set_xticks(range(0, 181, 45))
    axes.legend(title="ratio of sides")
    return figure


def _task(scale: Scale, ratio: float) -> Task:
    """A square of one ratio. Below paper scale by the recipe of Spec 003, R3: points around 0, and a learning rate that
    falls only in the second half; the printed settings of table 3.1 do not reach the published distances."""
    chosen = task("square-linear", scale).shortened(STEPS[scale])
    if scale == "paper":
        return replace(chosen, world=SquareLinear(stretch=ratio))
    training = replace(chosen.training, schedule="late-linear")
    return replace(chosen, world=SquareLinear(8000, stretch=ratio, centred=True), training=training)


def _exact(ratio: float, starts: int) -> list[Row]:
    """Minima of the analytic loss from random starts: the angle of each in the plane of the data, and its distance."""
    covariance = np.diag([ratio**2 / 12, 1 / 12, 0])
    rows: list[Row] = []
    for start in range(starts):
        decoder = fit_linear_vae(covariance, 2, 1e-3, seed=start).decoder
        first = decoder[:2, 0]
        turn = decoder[:2] / np.linalg.norm(decoder[:2], axis=0)
        # At a square all singular values are equal and V is arbitrary: what is turned is U, the axes in data space.
        distance = float(distance_to_orthogonality(turn.T))
        angle = float(np.degrees(np.arctan2(first[1], first[0])) % 90)
        rows.append({"route": "exact", "ratio": ratio, "seed": start, "angle": angle, "distance": distance})
    return rows


def _turn(degrees: float) -> np.ndarray:
    c, s = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    return np.array([[c, -s], [s, c]])
