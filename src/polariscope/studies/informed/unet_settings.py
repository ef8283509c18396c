"""Study: do batch normalisation, padding and attention change the maps of a U-Net?

The work says that batch normalisation had no effect and that padding has no influence on the results (Samarin 2022,
section 4.4.2, footnote 1, and section 4.6.1; Spec 000, row F120). All networks here learn from, and are tested on, the
same pixels: the middle of tiles that are large enough for valid convolutions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from polariscope.nets.unet import UNetConfig
from polariscope.studies.criteria import Alike, AtLeast
from polariscope.studies.informed.erosion import TAU, fitted, ground, hard, plain_floats, probabilities, scored
from polariscope.studies.kit import Restarts, in_order
from polariscope.studies.rows import leads
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.worlds.renderers.aerial import Aerial
from polariscope.worlds.targets import UNLABELLED
from polariscope.worlds.transfer_split import Transfer

SIDE, MARGIN = 88, 20
VARIANTS = {
    "same padding": {},
    "valid padding": {"padding": "valid"},
    "batch norm": {"batch_norm": True},
    "attention": {"attention": True},
}
SAME, GATED = {"variant": "same padding"}, {"variant": "attention"}
SETTINGS: dict[Scale, Job] = {
    "smoke": {"tiles": 4, "steps": 3, "batch": 2, "root": 2, "rate": 5e-3},
    "laptop": {"tiles": 40, "steps": 400, "batch": 4, "root": 8, "rate": 5e-3},
    "paper": {"tiles": 1292, "steps": 19_400, "batch": 20, "root": 32, "rate": 1e-3},
}
SEEDS: dict[Scale, int] = {"smoke": 1, "laptop": 5, "paper": 10}


@studies.register("unet-settings")
@dataclass(frozen=True)
class UNetSettings(Study):
    """The same U-Net with same and with valid padding, with batch normalisation, and with attention gates."""

    title = "Batch normalisation, padding and attention in a U-Net"
    source = "Samarin, Deep Learning Approaches to Informed Representation Learning (2022), sections 4.4.2 and 4.6.1"
    question = "Do batch normalisation, padding and attention gates change how well a U-Net maps?"
    cost = {"smoke": "5 s", "laptop": "about 13 minutes", "paper": "days"}
    drawn = {
        "average-precision": Restarts(
            "ranking", "variant", called="average precision of erosion", names=in_order(VARIANTS), from_zero=True
        )
    }

    def jobs(self, scale: Scale) -> Sequence[Job]:
        return [SETTINGS[scale] | {"seed": seed, "variant": name} for seed in range(SEEDS[scale]) for name in VARIANTS]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        world = Aerial(valleys=1, tiles=job["tiles"], size=SIDE, seed=job["seed"])
        parts = Transfer("spatio-temporal").parts(world)
        learned, tested = ground(world, parts.train), ground(world, np.sort(parts.held_out))
        inner = slice(MARGIN, SIDE - MARGIN)
        masks = np.full_like(learned.labels, UNLABELLED)  # the rim is seen, and not learned from
        masks[:, inner, inner] = learned.labels[:, inner, inner]
        model = UNetConfig(root=job["root"], dropout=0.0, **VARIANTS[job["variant"]])  # type: ignore[arg-type]
        training = {"steps": job["steps"], "batch_size": job["batch"], "learning_rate": job["rate"],
                    "schedule": "cosine"}  # fmt: skip
        network = fitted(bench, learned, job["seed"], training, model=model, masks=masks)
        shares = probabilities(network, tested.images)
        if shares.shape[2] == SIDE:
            shares = shares[:, :, inner, inner]
        truth = tested.truth[:, inner, inner]
        row = {"variant": job["variant"], **scored(hard(shares, TAU), truth), "ranking": ranking(shares, truth)}
        return [{"seed": job["seed"]} | plain_floats(row)]

    def claims(self, scale: Scale) -> list[Claim]:
        precision = "average precision of erosion"
        gates = "average precision less that without gates"
        normed, valid = {"variant": "batch norm"}, {"variant": "valid padding"}
        return [
            Claim(
                "Batch normalisation has no effect",
                "section 4.4.2, footnote 1, without figures",
                Alike("ranking", normed, SAME, by=0.05, called=precision),
            ),
            Claim(
                "Padding has no influence",
                "section 4.6.1, without figures",
                Alike("ranking", valid, SAME, by=0.05, called=precision),
            ),
            Claim(
                "With attention gates the network trains as well",
                "section 3.6, without figures",
                AtLeast("ranking_difference", -0.05, where=GATED, called=gates),
            ),
        ]

    def readings(self, table: Table) -> Table:
        gated, same = table.where(**GATED), table.where(**SAME)
        return Table(table.rows + [GATED | lead for lead in leads(gated, same, "ranking", "ranking_difference")])


def ranking(shares: np.ndarray, truth: np.ndarray) -> float:
    """Average precision of erosion against background over all thresholds: the area below precision over recall."""
    from sklearn.metrics import average_precision_score

    background = shares.shape[1] - 1
    return float(average_precision_score((truth != background).ravel(), 1 - shares[:, background].ravel()))
