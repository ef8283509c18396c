"""Study: maps where experts disagree: possible maps, side information, and uncertainty.

The image analysis of every year is an expert of its own, whose rules may be too strict for a class in an image. A
probabilistic U-Net draws possible maps; a U-Net that is told which rules were strict draws the map of that expert; and
Monte-Carlo dropout says where a map may be wrong. (Samarin 2022, sections 7.2 and 7.3.1; Spec 000, rows F099, F100 and
F121.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from polariscope.mapping.uncertainty import diversity, dropout_draws, energy_distance
from polariscope.nets.probabilistic_unet import ProbabilisticUNetConfig
from polariscope.nets.unet import UNetConfig
from polariscope.objectives.probabilistic_segment import ProbabilisticSegment
from polariscope.studies.criteria import AtLeast, Beats
from polariscope.studies.informed.erosion import (
    TAU,
    Ground,
    fitted,
    ground,
    hard,
    normalised,
    plain_floats,
    probabilities,
    scored,
)
from polariscope.studies.kit import Restarts, in_order
from polariscope.studies.rows import leads
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.worlds.renderers.aerial import BACKGROUND, CLASSES, Aerial
from polariscope.worlds.views.side_information import SideInformation

STRICT = ",".join(f"strict_{name}" for name in CLASSES[:BACKGROUND])
VARIANTS = ("plain", "probabilistic", "dropout", "side information")
PLAIN, DRAWN = ({"variant": variant} for variant in VARIANTS[:2])
MISSED = 0.3
DRAWS = 16
SETTINGS: dict[Scale, Job] = {
    "smoke": {"tiles": 4, "steps": 3, "batch": 2, "root": 2, "rate": 5e-3},
    "laptop": {"tiles": 64, "steps": 1000, "batch": 4, "root": 8, "rate": 5e-3},
    "paper": {"tiles": 1292, "steps": 19_400, "batch": 20, "root": 32, "rate": 1e-3},
}
SEEDS: dict[Scale, int] = {"smoke": 1, "laptop": 5, "paper": 10}


@studies.register("expert-maps")
@dataclass(frozen=True)
class ExpertMaps(Study):
    """Plain, probabilistic and dropout U-Nets, and one with side information, on labels of experts who disagree."""

    title = "Maps where experts disagree"
    source = "Samarin, Deep Learning Approaches to Informed Representation Learning (2022), sections 7.2 and 7.3.1"
    question = (
        "Can a network draw what experts disagree about, follow side information, and know where it may be wrong?"
    )
    cost = {"smoke": "10 s", "laptop": "about 20 minutes", "paper": "days"}
    drawn = {
        "energy-distance": Restarts(
            "energy_distance",
            "variant",
            called="energy distance from the experts",
            names=in_order(VARIANTS),
            from_zero=True,
        )
    }

    def jobs(self, scale: Scale) -> Sequence[Job]:
        return [SETTINGS[scale] | {"seed": seed, "variant": name} for seed in range(SEEDS[scale]) for name in VARIANTS]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        world = Aerial(valleys=1, tiles=job["tiles"], growth=0.0, labels="analysed", misses="classes", missed=MISSED,
                       seed=job["seed"])  # fmt: skip
        tile = world.factors_of(np.arange(len(world)))[:, 2]
        everything = ground(world)
        learned = everything.where(tile < job["tiles"] // 2)
        tested = everything.where((tile >= job["tiles"] // 2) & (everything.year == 0))
        experts = np.stack([everything.labels[(tile == t)] for t in tested.tile])  # (tiles, years, h, w)
        training = {"steps": job["steps"], "batch_size": job["batch"], "learning_rate": job["rate"],
                    "schedule": "cosine", "clip": 100.0}  # fmt: skip
        draw = {"plain": _plain, "probabilistic": _probabilistic, "dropout": _dropout, "side information": _told}
        row = draw[job["variant"]](bench, world, learned, tested, experts, job, training)
        return [{"seed": job["seed"], "variant": job["variant"]} | plain_floats(row)]

    def claims(self, scale: Scale) -> list[Claim]:
        told, dropout = {"variant": "side information"}, {"variant": "dropout"}
        shift = "share of a class's probability that is lost when the side information calls its rules strict"
        unsure = "mean entropy on wrong pixels over that on right ones"
        return [
            Claim(
                "Possible maps are distributed more like those of the experts than one map is",
                "section 7.2, proposed; no figures",
                Beats("energy_distance", DRAWN, PLAIN, by=0.02, higher=False),
            ),
            Claim(
                "The probabilistic U-Net maps as well as the plain one",
                "section 7.2, proposed; no figures",
                AtLeast("f1_difference", -0.02, where=DRAWN, called="F1 less that of the plain U-Net"),
            ),
            Claim(
                "Its possible maps differ",
                "section 7.2, proposed; no figures",
                AtLeast("diversity", 0.1, where=DRAWN, called="mean distance 1 - IoU of two possible maps"),
            ),
            Claim(
                "Side information shifts the map: a class that it calls missed is not drawn",
                "section 7.3.1, proposed; no figures",
                AtLeast("shift", 0.5, where=told, called=shift),
            ),
            Claim(
                "Monte-Carlo dropout is more uncertain where the map is wrong",
                "section 7.2, proposed; no figures",
                AtLeast("uncertainty_ratio", 2.0, where=dropout, called=unsure),
            ),
        ]

    def readings(self, table: Table) -> Table:
        known = Table([row for row in table.rows if row.get("f1") is not None])
        drawn, plain = known.where(**DRAWN), known.where(**PLAIN)
        return Table(table.rows + [DRAWN | lead for lead in leads(drawn, plain, "f1", "f1_difference")])


def _scores(shares: NDArray[Any], maps: NDArray[Any], experts: NDArray[Any]) -> Row:
    """F1 of the mean probabilities against every expert, and the energy distance of possible maps ``(draws, n, ...)``
    from theirs."""
    likely = hard(shares, TAU)
    f1 = [scored(likely, experts[:, year])["pixel_f1"] for year in range(experts.shape[1])]
    distances = [energy_distance(maps[:, n], experts[n], len(CLASSES), BACKGROUND) for n in range(len(experts))]
    spread = [diversity(maps[:, n], len(CLASSES), BACKGROUND) for n in range(len(experts))]
    theirs = [diversity(one, len(CLASSES), BACKGROUND) for one in experts]
    return {
        "f1": float(np.nanmean(f1)), "energy_distance": float(np.mean(distances)), "diversity": float(np.mean(spread)),
        "diversity_of_experts": float(np.mean(theirs)),
    }  # fmt: skip


def _plain(bench: Bench, world: Aerial, learned: Ground, tested: Ground, experts: NDArray[Any], job: Job,
           training: dict[str, Any]) -> Row:  # fmt: skip
    network = fitted(bench, learned, job["seed"], training, root=job["root"])
    shares = probabilities(network, tested.images)
    return _scores(shares, hard(shares, TAU)[None], experts)


def _probabilistic(bench: Bench, world: Aerial, learned: Ground, tested: Ground, experts: NDArray[Any], job: Job,
                   training: dict[str, Any]) -> Row:  # fmt: skip
    network = fitted(bench, learned, job["seed"], training, model=ProbabilisticUNetConfig(root=job["root"]),
                     objective=ProbabilisticSegment())  # fmt: skip
    shares = drawn_probabilities(network, learned, tested, job["seed"])
    return _scores(shares.mean(0), np.stack([hard(one, TAU) for one in shares]), experts)


def drawn_probabilities(network: nn.Module, learned: Ground, tested: Ground, seed: int) -> NDArray[np.float64]:
    """Probabilities ``(draws, n, classes, h, w)`` of possible maps."""
    mean, sd = (np.asarray(one, np.float32) for one in learned.statistics)
    x = torch.from_numpy(normalised(tested.images, mean, np.maximum(sd, 1e-3)))
    generator = torch.Generator().manual_seed(seed)
    parts = []
    with torch.no_grad():
        for start in range(0, len(x), 8):
            drawn = network.drawn(x[start : start + 8], DRAWS, generator)  # type: ignore[operator]
            parts.append(drawn.double().softmax(2).numpy())
    return np.concatenate(parts, axis=1)


def _dropout(bench: Bench, world: Aerial, learned: Ground, tested: Ground, experts: NDArray[Any], job: Job,
             training: dict[str, Any]) -> Row:  # fmt: skip
    model = UNetConfig(root=job["root"], dropout=0.1)
    network = fitted(bench, learned, job["seed"], training, model=model)
    found = dropout_draws(network, torch.from_numpy(tested.images).float() / 255, DRAWS, job["seed"])
    likely = hard(found.probabilities, TAU)
    wrong = likely != experts[:, 0]
    right = found.entropy[~wrong].mean()
    f1 = [scored(likely, experts[:, year])["pixel_f1"] for year in range(experts.shape[1])]
    known = [value for value in f1 if np.isfinite(value)]
    ratio = float(found.entropy[wrong].mean() / right) if wrong.any() else float("nan")
    return {"f1": float(np.mean(known)) if known else float("nan"), "uncertainty_ratio": ratio}


def _told(bench: Bench, world: Aerial, learned: Ground, tested: Ground, experts: NDArray[Any], job: Job,
          training: dict[str, Any]) -> Row:  # fmt: skip
    view = SideInformation(world, STRICT)
    first, later = (_numbers(world, part) for part in (learned, tested))
    network = fitted(bench, learned, job["seed"], training, root=job["root"], images=view.shown(learned.images, first))
    images = view.shown(tested.images, later)
    likely = hard(probabilities(network, images), TAU)
    row: Row = {"f1": scored(likely, tested.labels)["pixel_f1"]}
    shifts = []
    for kind in range(BACKGROUND):
        areas = []
        for strict in (0, 255):
            changed = images.copy()
            changed[:, tested.images.shape[1] :] = 0
            changed[:, tested.images.shape[1] + kind] = strict
            areas.append(float(probabilities(network, changed)[:, kind].sum()))
        shifts.append(1 - areas[1] / areas[0] if areas[0] else 0.0)
    return row | {"shift": float(np.mean(shifts)), **{f"shift_{CLASSES[c]}": shifts[c] for c in range(BACKGROUND)}}


def _numbers(world: Aerial, part: Ground) -> NDArray[np.int64]:
    return np.asarray(world.grid.to_index(np.column_stack([part.valley, part.year, part.tile])), np.int64)
