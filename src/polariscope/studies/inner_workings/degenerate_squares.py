"""A square has no preferred axes: equal variances leave a VAE's orientation to chance (Table 3.4, Figure 3.5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import kstest

from polariscope.measures.neighbour_score import neighbour_score
from polariscope.measures.orthogonality import distance_to_orthogonality, haar_distance
from polariscope.report.figures import LIGHT, SUBJECTS, styled
from polariscope.representation import represent
from polariscope.studies.inner_workings.alignment_tasks import decoder_distance, task
from polariscope.studies.published import DEGENERATE
from polariscope.studies.rows import plus_minus
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.theory.orthogonal_noise import rotation_penalty
from polariscope.theory.pca import projected_variance
from polariscope.theory.pca_vae import fit_linear_vae
from polariscope.training.run import load_model
from polariscope.worlds.points import SquareLinear
from polariscope.worlds.splits import Part

RATIOS = (1.0, 1.2, 1.5, 2.0)
SEEDS = {"smoke": 1, "laptop": 5, "paper": 10}
STARTS = {"smoke": 3, "laptop": 40, "paper": 200}
STEPS = {"smoke": 40, "laptop": 16_000, "paper": 200_000}
SHOWN = 400  # points of each picture


@studies.register("degenerate-squares")
@dataclass(frozen=True)
class DegenerateSquares(Study):
    """The linear beta-VAE on stretched squares: trained by sampling, and solved exactly from many starts."""

    title = "Equal variances leave the orientation to chance"
    source = "Rolinek, Zietlow and Martius 2019; Zietlow's dissertation (2022), section 3.3.4, table 3.4, figure 3.5"
    question = "Does a VAE find independent factors, or directions of unequal variance?"
    cost = {"smoke": "a second", "laptop": "5 minutes", "paper": "hours"}

    def jobs(self, scale: Scale) -> Sequence[Job]:
        exact: list[Job] = [{"scale": scale, "route": "exact", "ratio": ratio} for ratio in RATIOS]
        return exact + [
            {"scale": scale, "route": "trained", "ratio": ratio, "seed": seed}
            for ratio in (RATIOS[::2] if scale == "smoke" else RATIOS)
            for seed in range(SEEDS[scale])
        ]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        if job["route"] == "exact":
            return _exact(job["ratio"], STARTS[job["scale"]])
        chosen = task("square-linear", job["scale"])
        chosen = replace(chosen, world=SquareLinear(8000, stretch=job["ratio"])).shortened(STEPS[job["scale"]])
        run = bench.train(chosen.config("beta-vae", job["seed"]))
        model = load_model(run)
        held_out: Part = chosen.held_out
        rep = represent(model, held_out, count=5000)
        assert rep.factors is not None
        score = neighbour_score(rep.mean, rep.factors).value
        codes = rep.mean[:SHOWN].round(3).tolist() if job["seed"] < 4 else None
        settings = {key: value for key, value in job.items() if key != "scale"}
        return [settings | {"score": score, "distance": decoder_distance(model, rep.mean[:50]), "codes": codes}]

    def claims(self, table: Table, scale: Scale) -> list[Claim]:
        trained, exact = table.where(route="trained"), table.where(route="exact")
        scores = [group.mean("score") for _, group in trained.by("ratio")]
        distances = [group.mean("distance") for _, group in trained.by("ratio")]
        square = exact.where(ratio=1.0)
        uniform = float(kstest(square.column("angle") / 90, "uniform").pvalue)
        haar = haar_distance(2)
        penalties = [float(rotation_penalty([r**2, 1.0], _turn(45))) for r in RATIOS]
        stretched = Table([row for row in exact.rows if row["ratio"] > 1])
        claims = [
            Claim(
                "Stretching the square restores the alignment",
                "table 3.4: score "
                + ", ".join(f"{DEGENERATE['score'][r]}" for r in ("1.0", "1.2", "1.5"))
                + "; distance "
                + ", ".join(f"{DEGENERATE['distance'][r]}" for r in ("1.0", "1.2", "1.5")),
                f"score {', '.join(f'{s:.2f}' for s in scores)}; distance {', '.join(f'{d:.2f}' for d in distances)}",
                scores[-1] > scores[0] and distances[-1] < distances[0],
            ),
            Claim(
                "The orientation of a square is arbitrary",
                f"figure 3.5: randomly turned; distance of random turns {haar.mean:.2f} ± {haar.std:.2f}",
                f"{len(square)} exact solutions: distance {plus_minus(square.column('distance'))}; their angles are "
                f"uniform with p = {uniform:.2f}",
                bool(uniform > 0.01 and abs(square.mean("distance") - haar.mean) < 4 * haar.std / np.sqrt(len(square))),
            ),
            Claim(
                "Any other square has one best orientation",
                "distance 0 at the exact minimum (Spec 003, E3.4); a turn of 45 degrees costs "
                + ", ".join(f"{p:.4f}" for p in penalties)
                + " nats at ratios 1, 1.2, 1.5, 2",
                f"largest distance {stretched.column('distance').max():.1e} over {len(stretched)} exact solutions",
                bool(stretched.column("distance").max() < 1e-3),
            ),
        ]
        near = trained.where(ratio=1.2)
        if len(near) >= 3:
            picked = min(near.rows, key=lambda row: row["distance"])
            middle = float(np.median(near.column("score")))
            claims.append(
                Claim(
                    "Without labels, the restart with the most orthogonal decoder is a good pick",
                    "section 1.3: its score is at least the median's",
                    f"picked {picked['score']:.2f}, median {middle:.2f} (ratio 1.2, {len(near)} restarts)",
                    picked["score"] >= middle,
                )
            )
        return claims

    def beside(self, table: Table) -> list[Row]:
        rows = []
        for ratio, group in table.where(route="trained").by("ratio"):
            name = f"{ratio:.1f}"
            rows.append(
                {
                    "ratio": name,
                    "DS published": DEGENERATE["score"].get(name, "-"),
                    "DS here": plus_minus(group.column("score")),
                    "DtO published": DEGENERATE["distance"].get(name, "-"),
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
                axes.set_title(f"DtO {row['distance']:.2f}")
                axes.set(xticks=[], yticks=[])
            cells[0].set_ylabel(f"ratio {ratio:g}")
        return {"codes": figure, "projections": projections()}


@styled
def projections() -> Figure:
    """Variance of the data along a line in their plane, over its angle: flat for a square, which PCA may turn too."""
    figure = Figure(figsize=(4.4, 2.6), layout="constrained")
    axes = figure.subplots()
    degrees = np.linspace(0, 180, 91)
    for ratio, colour in zip(RATIOS, SUBJECTS, strict=True):
        matrix = SquareLinear(stretch=ratio).matrix
        sides = matrix / np.linalg.norm(matrix, axis=0)
        lines = sides @ np.stack([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))])
        axes.plot(degrees, projected_variance(matrix @ matrix.T / 12, lines), color=LIGHT[colour], label=f"{ratio:g}")
    axes.set_xlabel("angle to the first side (degrees)")
    axes.set_ylabel("variance of the projection")
    axes.set_xticks(range(0, 181, 45))
    axes.legend(title="ratio of sides")
    return figure


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
