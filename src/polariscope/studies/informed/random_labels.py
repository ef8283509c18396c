"""Study: which models can memorise random labels?

Labels are drawn at random, the same for the same image in every task. Nothing can be learned about test images, so what
a network reaches in training is memory. (Spec 000, sections 7.7 and 9.7.) Below paper scale there are so few images
that in the NTK parametrisation every linearisation would know them all; PyTorch's own parametrisation is used there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from polariscope.kernels.linearised import Descent
from polariscope.kernels.width_sweep import fit_twin
from polariscope.nets.classifiers import lenet
from polariscope.studies.criteria import AtLeast, AtMost, Beats
from polariscope.studies.informed.limits import KERNEL_NAMES, NTK, kernel_scores, rate_of_limit
from polariscope.studies.informed.published_widths import RANDOM_KERNELS, RANDOM_LABELS, WIDTHS
from polariscope.studies.informed.widths import (
    OverWidths,
    Sweep,
    accuracies,
    digits,
    image_shape,
    in_percent,
    layout,
    measured,
    over_widths,
    pixel_scores,
)
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies

TWINS = ("standard", "linearised", "last_layer")
NETWORK, LINEAR = {"twin": "standard"}, {"twin": "linearised"}
FULL = 0.99  # train accuracy of centred images beyond which there is no room to do better on shifted ones
# Without rates the setting is that of the study of infinite width, which finds its own.
SETTINGS: dict[Scale, Sweep] = {
    "smoke": Sweep(tasks=("centred", "shifted"), widths=(1, 2), seeds=1, train=60, test=60, size=10, batch=20, epochs=2,
                   rates=dict(zip(TWINS, (0.1, 0.15, 0.15), strict=True))),
    "laptop": Sweep(tasks=("centred", "shifted"), widths=(1, 2, 4), seeds=5, train=1000, test=2000, size=14, batch=32,
                    epochs=100, rates=dict(zip(TWINS, (0.05, 0.15, 0.15), strict=True))),
    "paper": Sweep(tasks=("centred", "shifted", "shifted-resized"), widths=WIDTHS, seeds=5, train=50_000, test=10_000,
                   size=28, batch=0, epochs=100_000, rates=dict.fromkeys(TWINS)),
}  # fmt: skip
KERNEL_IMAGES: dict[Scale, Job] = {
    "smoke": {"train": 10, "test": 20},
    "laptop": {"train": 200, "test": 500},
    "paper": {"train": 50_000, "test": 10_000},
}
"""Kernels see fewer images than networks below paper scale."""


@studies.register("random-labels")
@dataclass(frozen=True)
class RandomLabels(Study):
    """Networks, linearisations, last layers and kernels on labels that are drawn at random."""

    title = "Random labels: what can be memorised"
    source = "Samarin 2022, section 6.5.3, appendix B, tables B.9 to B.11"
    question = "Does having more parameters than data let a network, or its linearisation, fit anything?"
    cost = {"smoke": "1 s", "laptop": "about 6 minutes", "paper": "years"}
    drawn = {"memorised": OverWidths(split="train", twins=TWINS)}

    def jobs(self, scale: Scale) -> Sequence[Job]:
        sweep = SETTINGS[scale]
        kernels = [sweep.job(task, "kernels") | KERNEL_IMAGES[scale] for task in sweep.tasks]
        return [*kernels, *(sweep.job(task, "pixels") for task in sweep.tasks), *sweep.networks()]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        train, test = digits(job["task"], job["train"], job["test"], job["size"], "random")
        if job["twin"] == "kernels":
            return [job | row for row in kernel_scores(train, test)]
        if job["twin"] == "pixels":
            return [job | pixel_scores(train, test)]
        shape = image_shape(train[0])
        rate = rate_of_limit(train[0]) if job["rate"] is None else job["rate"]
        # Descent wavers between labels that contradict one another until its rate is lowered at last.
        how = Descent(rate, batch=job["batch"], epochs=job["epochs"], drop_every=job["epochs"] * 4 // 5)

        def build(width: int, seed: int) -> nn.Module:
            if job["rate"] is None:
                return lenet(width, shape, pooling="average", weights=NTK, seed=seed)
            return lenet(width, shape, seed=seed)

        fit = fit_twin(build, train, test, job["width"], job["seed"], job["twin"], how)
        return [job | fit.record | {"rate": rate}]

    def claims(self, scale: Scale) -> list[Claim]:
        def printed(twin: str) -> str:
            rows = {data: rows[f"train {twin}"] for data, rows in RANDOM_LABELS.items()}
            return "train accuracy: " + "; ".join(f"{data} {over_widths(row)}" for data, row in rows.items())

        enough, paper = {"enough": True}, scale == "paper"
        room = LINEAR if paper else LINEAR | {"room": True}
        shifted, centred = {"task": "shifted"}, {"task": "centred"}
        known = f"only where it knows less than {100 * FULL:g} percent of the labels of centred images"
        return [
            Claim(
                "On test images everything is at chance",
                "all entries between 9.45 and 10.22 percent (tables B.9 to B.11)",
                AtMost("errors", 4, of="every", called="distance from chance in standard errors", digits=1),
            ),
            Claim(
                "A network memorises all labels once it has more parameters than images times classes",
                printed("standard"),
                AtLeast("train_accuracy", 99.9, where=NETWORK | enough, each="network"),
            ),
            Claim(
                "Its linearisation with as many parameters, trained by gradient descent, does not memorise them",
                printed("linearised"),
                Beats("train_accuracy", NETWORK, LINEAR, by=0.5, where=enough, each="network"),
            ),
            Claim(
                "The linearisation memorises shifted images better than centred ones",
                "at every width, for instance 51.56 against 44.15 at ×2",
                Beats("train_accuracy", shifted, centred, by=1, where=room, each="width"),
                weaker="" if paper else known,
            ),
        ]

    def readings(self, table: Table) -> Table:
        """Distances from chance, which networks have parameters enough, and where labels are left to memorise."""
        centred = accuracies(table, "train")["centred"]["linearised"]
        room = [width for width, known in centred.items() if known < FULL]

        def labels(row: Row) -> Row:
            return {
                "errors": abs(row["test_accuracy"] - 10) / (30 / math.sqrt(row["test"])),
                "enough": (row.get("parameters") or 0) > 10 * row["train"],
                "room": row.get("width") in room,
            }

        return Table([row | labels(row) for row in in_percent(table)])

    def beside(self, table: Table) -> list[Row]:
        """Tables B.9 to B.11; kernels are in the last column."""
        published = {
            data: rows | {f"test {name}": {math.inf: f"{RANDOM_KERNELS[data][name]:.2f}"} for name in KERNEL_NAMES}
            for data, rows in RANDOM_LABELS.items()
        }
        return layout(published, measured(table))
