"""Non-linear eigenfaces: traversals of the most precise latents, in the order of their precision (Figure 3.6).

The published faces are CelebA's. At paper scale they are read from the folder celeba under POLARISCOPE_DATA, or painted
ones stand in. A laptop trains on rendered rooms, whose factors are known, and on the 400 Olivetti faces if they are
there, with the eigenfaces of these faces beside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

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
from polariscope.studies.real_images import CELEBA, OLIVETTI, needed_data, olivetti, real_data
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.theory.polarised_regime import principal_order
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.run import load_model
from polariscope.worlds.readers.files import File
from polariscope.worlds.renderers.faces import Faces
from polariscope.worlds.renderers.shapes3d import Shapes3D
from polariscope.worlds.splits import Chosen, RandomSplit
from polariscope.worlds.world import World, sample

SEEDS = {"smoke": 1, "laptop": 5, "paper": 5}
STEPS = {"smoke": 10, "laptop": 3000, "paper": 50 * 162_079 // 64}
"""At paper scale 50 epochs over four fifths of CelebA."""
LINEAR_STEPS = {"smoke": 60, "laptop": 8000, "paper": 100_000}
FACES = {"smoke": "painted", "laptop": "olivetti", "paper": "celeba"}
LATENTS, BETA = 32, 4.0  # as published
SHOWN, AVERAGED = 5, 300  # latents to walk along, and codes whose mean the walks start from: as published
WALK = 7


@studies.register("eigenfaces")
class Eigenfaces(Study):
    """The latents of a beta-VAE as non-linear principal components, and those of a linear one as the linear ones."""

    title = "Non-linear eigenfaces"
    source = "Rolinek, Zietlow and Martius 2019; Zietlow's dissertation (2022), section 3.3.5, figure 3.6"
    question = "What are the non-linear principal components of a set of images?"
    cost = {"smoke": "3 s", "laptop": "12 minutes", "paper": "weeks"}
    training_lengths = {scale: max(STEPS[scale], LINEAR_STEPS[scale]) for scale in STEPS}

    def jobs(self, scale: Scale) -> Sequence[Job]:
        # Whether real faces are at hand is decided here, so that a table is of one kind of faces.
        data = FACES[scale]
        if scale == "paper" and real_data(CELEBA) is None:
            data = "painted"
        parts = {"faces": data, "rooms": "rooms", "linear": "rooms"}
        if scale == "paper":
            del parts["rooms"]
        if scale == "laptop" and real_data(OLIVETTI) is None:
            del parts["faces"]
        return [
            {"scale": scale, "part": part, "data": data, "seed": seed}
            for part, data in parts.items()
            for seed in range(SEEDS[scale])
        ]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        config = _config(job)
        model = load_model(bench.train(config)) if job["part"] == "rooms" else bench.fit(config)
        rep = represent(model, config.world, count=2000)
        assert rep.var is not None
        order = principal_order(rep.var)[:SHOWN]
        codes = torch.from_numpy(rep.mean[:AVERAGED])
        slopes = decoder_grams(model.generate, codes).diagonal(dim1=1, dim2=2).mean(0).sqrt().numpy()
        walks = traverse(model, rep.mean[:AVERAGED].mean(axis=0), order.tolist(), REACH, WALK)
        eigenvectors = _eigenvectors(config.world, model.dimensions)
        facts = zip(angles_between(walks, eigenvectors), map(bend, walks), strict=True)
        rows = [
            {
                "part": job["part"],
                "data": job["data"],
                "seed": job["seed"],
                "rank": rank,
                "latent": int(j),
                "var": float(rep.var[:, j].mean()),
                "slope": float(slopes[j]),
                "angle": angle,
                "bend": bent,
                # Pictures are drawn of one model, and would make a table of several too large to keep.
                "walk": _picture(walks[rank]) if job["seed"] == 0 else None,
            }
            for rank, (j, (angle, bent)) in enumerate(zip(order, facts, strict=True))
        ]
        if job["part"] == "faces" and job["seed"] == 0:
            rows += [
                {"part": "eigenfaces", "data": job["data"], "seed": 0, "rank": rank, "walk": _picture(walk)}
                for rank, walk in enumerate(_straight_walks(config.world, eigenvectors))
            ]
        if job["part"] != "rooms":
            return rows
        assert rep.factors is not None
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
                "Faces: an image depends most on the latents of the smallest variance",
                "variance s²/(|c|² + s²) of a column c of the Jacobian (Spec 003, section 2.5)",
                Correlates("var", "slope", -0.8, where={"part": "faces"}, called="variance"),
            ),
            Claim(
                "Traversals of a linear VAE follow the eigenvectors of the data, in order",
                "up to sign (Spec 003, E3.5)",
                AtMost(
                    "angle",
                    20,
                    of="every",
                    where={"part": "linear", "in_use": True},
                    called="angle (degrees) between a traversal and its eigenvector",
                    digits=1,
                ),
                note="eigenvectors of similar eigenvalues mix in a finite training",
            ),
            Claim(
                "The components are meaningful: each encodes a factor",
                "figure 3.6: azimuth, hair colour, gender on faces",
                AtLeast(
                    "tells",
                    1,
                    where={"part": "rooms"},
                    called="share of components with more than 0.2 of the information about a factor",
                ),
            ),
        ]

    def readings(self, table: Table) -> Table:
        return Table(
            [
                row | {"in_use": row["var"] < 0.75, "tells": (row.get("information") or 0.0) > 0.2}
                for row in table.rows
                if row["part"] != "eigenfaces"
            ]
        )

    def beside(self, table: Table) -> list[Row]:
        """The components of the first models: what those of rooms tell of, and how those of faces differ from the
        eigenfaces. On CelebA they were azimuth, hair colour and gender."""
        return [
            {
                "images": row["data"],
                "component": row["rank"] + 1,
                "variance": f"{row['var']:.3f}",
                "main factor": row.get("factor") or "-",
                "share of its information": f"{row['information']:.2f}" if row.get("factor") else "-",
                "angle to the eigenvector of this rank": f"{row['angle']:.0f} degrees",
                "share of its traversal off a straight line": f"{row['bend']:.3f}",
            }
            for part in ("rooms", "faces")
            for row in table.where(part=part, seed=0).rows
        ]

    @styled
    def figures(self, table: Table) -> dict[str, Figure]:
        drawn = {}
        for part in ("rooms", "linear", "faces", "eigenfaces"):
            rows = table.where(part=part, seed=0).rows
            if not rows:
                continue
            figure = Figure(figsize=(1.1 * WALK + 1.4, 1.15 * len(rows)), layout="constrained")
            for cells, row in zip(figure.subplots(len(rows), WALK, squeeze=False), rows, strict=True):
                for axes, image in zip(cells, np.array(row["walk"], dtype=np.uint8), strict=True):
                    axes.imshow(image.transpose(1, 2, 0) if len(image) == 3 else image[0], cmap="gray")
                    axes.set(xticks=[], yticks=[])
                known = row.get("latent") is not None
                label = f"z{row['latent']}\nvar {row['var']:.3f}" if known else f"eigenface {row['rank'] + 1}"
                cells[0].set_ylabel(label + (f"\n{row['factor']}" if row.get("factor") else ""), rotation=0, ha="right")
            drawn[f"walks-{part}"] = figure
        return drawn


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
    steps = STEPS[scale]
    training = TrainingConfig(
        steps=steps,
        batch_size=64,
        learning_rate=1e-3,
        seed=job["seed"],
        evaluate_every=0,
        checkpoint_every=min(steps, 5000),
    )
    if job["part"] == "rooms":
        return RunConfig(Shapes3D(size=16), BetaVAE(1.0), AutoencoderConfig(10, Conv()), training)
    model = AutoencoderConfig(LATENTS, Conv(dense_decoder=True))
    if job["data"] == "olivetti":
        # 400 faces: smaller batches, and a smaller beta, with which more than three latents are in use.
        return RunConfig(olivetti(), BetaVAE(1.0), model, replace(training, batch_size=16), RandomSplit(0.0))
    painted = Faces() if scale == "paper" else Faces(24, persons=20)
    faces: World = File(str(needed_data(CELEBA)), size=64) if job["data"] == "celeba" else painted
    published = replace(training, learning_rate=1e-4)
    return RunConfig(faces, BetaVAE(BETA), model, published, RandomSplit(0.2))


def _one_cube() -> Chosen:
    """One cube of every size from every side before two colours of wall: images whose variances lie well apart."""
    rooms = Shapes3D(size=16)
    varied = [(0,), (5, 6), (3,), range(8), (0,), range(15)]
    factors = np.stack(np.meshgrid(*varied, indexing="ij"), axis=-1).reshape(-1, len(varied))
    return Chosen(rooms, rooms.grid.to_index(factors))


def _eigenvectors(world: World, dimensions: int) -> np.ndarray:
    """The first eigenvectors of the covariance of (some of) a world, one a row."""
    x = sample(world, min(len(world), 2000))[0].reshape(-1, dimensions) / 255
    return np.linalg.svd(x - x.mean(axis=0), full_matrices=False)[2][:SHOWN]


def angles_between(walks: np.ndarray, eigenvectors: np.ndarray) -> list[float]:
    """Degrees between each walk's direction and the eigenvector of the same rank."""
    directions = (walks[:, -1] - walks[:, 0]).reshape(len(walks), -1)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True).clip(1e-12)
    cosines = np.abs((directions * eigenvectors[: len(walks)]).sum(axis=1))
    return np.degrees(np.arccos(cosines.clip(0, 1))).tolist()


def bend(walk: np.ndarray) -> float:
    """Share of the squared change along a walk that lies off the best straight line: 0 for a linear model.

    >>> round(bend(np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]])), 6)
    0.0
    >>> round(bend(np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]])), 6)
    0.25
    """
    points = walk.reshape(len(walk), -1)
    spread = np.linalg.svd(points - points.mean(axis=0), compute_uv=False) ** 2
    return float(1 - spread[0] / spread.sum().clip(1e-12))


def _straight_walks(world: World, eigenvectors: np.ndarray) -> np.ndarray:
    """Walks from the mean image along each eigenvector, as far as the latents walk: 2.5 standard deviations."""
    x = sample(world, min(len(world), 2000))[0].reshape(-1, eigenvectors.shape[1]) / 255
    mean = x.mean(axis=0)
    spread = ((x - mean) @ eigenvectors.T).std(axis=0)
    steps = np.linspace(-REACH, REACH, WALK)
    images = mean + steps[None, :, None] * spread[:, None, None] * eigenvectors[:, None]
    return images.reshape(len(eigenvectors), WALK, *world.shape)


def _picture(walk: np.ndarray) -> list[object]:
    pixels: list[object] = np.rint(255 * walk.clip(0, 1)).astype(int).tolist()
    return pixels
