"""Non-linear eigenfaces: traversals of the most precise latents, in the order of their precision (Figure 3.6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure

from polariscope.examination.jacobians import decoder_grams
from polariscope.examination.traversals import REACH, traverse
from polariscope.measures.factor_information import factor_information
from polariscope.nets.architecture import Conv, Linear
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.report.figures import styled
from polariscope.representation import represent
from polariscope.studies.criteria import AtLeast, AtMost, Correlates
from polariscope.studies.inner_workings.alignment_tasks import SQUARED
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.theory.polarised_regime import principal_order
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.run import load_model
from polariscope.worlds.renderers.shapes3d import Shapes3D
from polariscope.worlds.splits import Chosen, RandomSplit
from polariscope.worlds.world import sample

SEEDS = {"smoke": 1, "laptop": 5, "paper": 5}
STEPS = {"smoke": 10, "laptop": 5000, "paper": 300_000}
LINEAR_STEPS = {"smoke": 60, "laptop": 12_000, "paper": 100_000}
SHOWN, AVERAGED = 5, 300  # latents to walk along, and codes whose mean the walks start from: as published
WALK = 7


@studies.register("eigenfaces")
@dataclass(frozen=True)
class Eigenfaces(Study):
    """The latents of a beta-VAE as non-linear principal components, and those of a linear one as the linear ones."""

    title = "Non-linear eigenfaces"
    source = "Rolinek, Zietlow and Martius 2019; Zietlow's dissertation (2022), section 3.3.5, figure 3.6"
    question = "What are the non-linear principal components of a set of images?"
    cost = {"smoke": "3 s", "laptop": "about 50 minutes", "paper": "weeks"}
    training_lengths = {scale: max(STEPS[scale], LINEAR_STEPS[scale]) for scale in STEPS}

    def jobs(self, scale: Scale) -> Sequence[Job]:
        return [
            {"scale": scale, "part": part, "seed": seed} for part in ("rooms", "linear") for seed in range(SEEDS[scale])
        ]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        config = _config(job)
        model = bench.fit(config) if job["part"] == "linear" else load_model(bench.train(config))
        rep = represent(model, config.world, count=2000)
        assert rep.var is not None
        assert rep.factors is not None
        order = principal_order(rep.var)[:SHOWN]
        codes = torch.from_numpy(rep.mean[:AVERAGED])
        slopes = decoder_grams(model.generate, codes).diagonal(dim1=1, dim2=2).mean(0).sqrt().numpy()
        walks = traverse(model, rep.mean[:AVERAGED].mean(axis=0), order.tolist(), REACH, WALK)
        rows = [
            {
                "part": job["part"],
                "seed": job["seed"],
                "rank": rank,
                "latent": int(j),
                "var": float(rep.var[:, j].mean()),
                "slope": float(slopes[j]),
                # Pictures are drawn of one model, and would make a table of several too large to keep.
                "walk": np.rint(255 * walks[rank].clip(0, 1)).astype(int).tolist() if job["seed"] == 0 else None,
            }
            for rank, j in enumerate(order)
        ]
        if job["part"] == "linear":
            angles = _angles(walks, config, model.dimensions)
            return [row | {"angle": angle} for row, angle in zip(rows, angles, strict=True)]
        knows = factor_information(rep.mean[:, order], rep.factors)
        names = [factor.name for factor in rep.factor_info]
        best = [names[j] for j in knows.argmax(axis=1)]
        return [
            row | {"factor": name, "information": float(share)}
            for row, name, share in zip(rows, best, knows.max(axis=1), strict=True)
        ]

    def claims(self, scale: Scale) -> list[Claim]:
        return [
            Claim(
                "The most precise latents are those the image depends on most",
                "variance s²/(|c|² + s²) of a column c of the Jacobian (Spec 003, section 2.5)",
                Correlates("var", "slope", -0.8, where={"part": "rooms"}, called="variance"),
            ),
            Claim(
                "Walks of a linear VAE are the eigenvectors of the data, in order",
                "up to sign (Spec 003, E3.5)",
                AtMost(
                    "angle",
                    20,
                    of="every",
                    where={"part": "linear", "in_use": True},
                    called="angle (degrees) of a walk and its eigenvector",
                    digits=1,
                ),
                note="eigenvalues that lie close turn into each other in a finite training",
            ),
            Claim(
                "The components are meaningful: each encodes a factor",
                "figure 3.6: azimuth, hair colour, gender on faces",
                AtLeast(
                    "tells",
                    1,
                    where={"part": "rooms"},
                    called="share of components that know more than 0.2 of some factor",
                ),
            ),
        ]

    def readings(self, table: Table) -> Table:
        return Table(
            [row | {"in_use": row["var"] < 0.75, "tells": row.get("information", 0.0) > 0.2} for row in table.rows]
        )

    def beside(self, table: Table) -> list[Row]:
        """What the components of the first model tell of: on faces these were azimuth, hair colour and gender."""
        return [
            {
                "component": row["rank"] + 1,
                "variance": f"{row['var']:.3f}",
                "tells most of": row["factor"],
                "share of its information": f"{row['information']:.2f}",
            }
            for row in table.where(part="rooms", seed=0).rows
        ]

    @styled
    def figures(self, table: Table) -> dict[str, Figure]:
        figures = {}
        for part in ("rooms", "linear"):
            rows = table.where(part=part, seed=0).rows
            figure = Figure(figsize=(1.1 * WALK + 1.4, 1.15 * len(rows)), layout="constrained")
            for cells, row in zip(figure.subplots(len(rows), WALK, squeeze=False), rows, strict=True):
                for axes, image in zip(cells, np.array(row["walk"], dtype=np.uint8), strict=True):
                    axes.imshow(image.transpose(1, 2, 0) if len(image) == 3 else image[0], cmap="gray")
                    axes.set(xticks=[], yticks=[])
                label = f"z{row['latent']}\nvar {row['var']:.3f}"
                cells[0].set_ylabel(label + (f"\n{row['factor']}" if row.get("factor") else ""), rotation=0, ha="right")
            figures[f"walks-{part}"] = figure
        return figures


def _config(job: Job) -> RunConfig:
    scale: Scale = job["scale"]
    if job["part"] == "linear":
        linear = AutoencoderConfig(SHOWN, Linear(), posterior="constant", likelihood="gaussian", variance=SQUARED)
        training = TrainingConfig(
            steps=LINEAR_STEPS[scale],
            batch_size=128,
            learning_rate=1e-2,
            schedule="linear",
            seed=job["seed"],
            evaluate_every=0,
        )
        return RunConfig(_one_cube(), BetaVAE(1.0), linear, training, RandomSplit(0.0))
    steps, paper = STEPS[scale], scale == "paper"
    training = TrainingConfig(
        steps=steps,
        batch_size=64,
        learning_rate=1e-3,
        seed=job["seed"],
        evaluate_every=0,
        checkpoint_every=min(steps, 5000),
    )
    world = Shapes3D() if paper else Shapes3D(size=16)
    return RunConfig(world, BetaVAE(4.0 if paper else 1.0), AutoencoderConfig(10, Conv()), training)


def _one_cube() -> Chosen:
    """One cube of every size from every side before two colours of wall: images whose variances lie well apart."""
    rooms = Shapes3D(size=16)
    varied = [(0,), (5, 6), (3,), range(8), (0,), range(15)]
    factors = np.stack(np.meshgrid(*varied, indexing="ij"), axis=-1).reshape(-1, len(varied))
    return Chosen(rooms, rooms.grid.to_index(factors))


def _angles(walks: np.ndarray, config: RunConfig, dimensions: int) -> list[float]:
    """Degrees between each walk's direction and the eigenvector of the data with the same rank."""
    x = sample(config.world, len(config.world))[0].reshape(-1, dimensions) / 255
    _, vectors = np.linalg.eigh(np.cov(x.T))
    directions = (walks[:, -1] - walks[:, 0]).reshape(len(walks), -1)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True).clip(1e-12)
    cosines = np.abs((directions * vectors[:, ::-1].T[: len(walks)]).sum(axis=1))
    return np.degrees(np.arccos(cosines.clip(0, 1))).tolist()
