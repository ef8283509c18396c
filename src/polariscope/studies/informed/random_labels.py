"""Study: who can learn labels by heart that say nothing?

Labels are drawn at random, the same for the same image in every task. Nothing can be learned about test images, so what
a network reaches in training is memory. (Spec 000, sections 7.7 and 9.7.) Below paper scale there are so few images
that in the NTK parametrisation every linearisation would know them all; PyTorch's own parametrisation is used there.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from matplotlib.figure import Figure
from torch import nn

from polariscope.kernels.linearised import Descent
from polariscope.kernels.width_sweep import fit_twin
from polariscope.nets.classifiers import lenet
from polariscope.studies.informed.feature_demand import (
    accuracies,
    digits,
    draw_widths,
    image_shape,
    measured,
    over_widths,
    pixel_scores,
)
from polariscope.studies.informed.infinite_width import KERNEL_NAMES, NTK, kernel_scores, rate_of_limit
from polariscope.studies.informed.published_widths import RANDOM_KERNELS, RANDOM_LABELS, WIDTHS, layout
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies

TWINS = ("standard", "linearised", "last_layer")


@dataclass(frozen=True)
class Setting:
    """How much is done at a scale; kernels may see fewer images than networks.

    Without rates the setting is that of the study of infinite width, which finds its own.
    """

    tasks: tuple[str, ...]
    widths: tuple[int, ...]
    seeds: int
    train: int
    test: int
    size: int
    batch: int
    epochs: int
    rates: tuple[float | None, ...]
    kernel_train: int
    kernel_test: int


SETTINGS: dict[Scale, Setting] = {
    "smoke": Setting(("centred", "shifted"), (1, 2), 1, 60, 60, 10, 20, 2, (0.1, 0.15, 0.15), 10, 20),
    "laptop": Setting(("centred", "shifted"), (1, 2, 4), 5, 1000, 2000, 14, 32, 100, (0.05, 0.15, 0.15), 200, 500),
    "paper": Setting(
        ("centred", "shifted", "shifted-resized"),
        WIDTHS,
        5,
        50_000,
        10_000,
        28,
        0,
        100_000,
        (None, None, None),
        50_000,
        10_000,
    ),
}


@studies.register("random-labels")
@dataclass(frozen=True)
class RandomLabels(Study):
    """Networks, linearisations, last layers and kernels on labels that are drawn at random."""

    title = "Random labels: what can be memorised"
    source = "Samarin 2022, section 6.5.3, appendix B, tables B.9 to B.11"
    question = "Does having more parameters than data let a network, or its linearisation, fit anything?"
    cost = {"smoke": "1 s", "laptop": "about 6 minutes", "paper": "years"}

    def jobs(self, scale: Scale) -> Sequence[Job]:
        setting = SETTINGS[scale]
        numbers = asdict(setting)
        networks = {key: numbers[key] for key in ("train", "test", "size", "batch", "epochs")}
        kernels = {"train": setting.kernel_train, "test": setting.kernel_test, "size": setting.size}
        jobs: list[Job] = []
        for task in setting.tasks:
            jobs.append(kernels | {"task": task, "twin": "kernels"})
            jobs.append(networks | {"task": task, "twin": "pixels"})
            cells = itertools.product(setting.widths, range(setting.seeds), zip(TWINS, setting.rates, strict=True))
            for width, seed, (twin, rate) in cells:
                jobs.append(networks | {"task": task, "width": width, "seed": seed, "twin": twin, "rate": rate})
        return jobs

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

    def claims(self, table: Table, scale: Scale) -> list[Claim]:
        train, tasks = accuracies(table, "train"), table.distinct("task")
        rows = [row for row in table.rows if row["twin"] != "pixels"]
        off = max(rows, key=lambda row: abs(row["test_accuracy"] - 0.1) * math.sqrt(row["test"]))
        deviation = abs(off["test_accuracy"] - 0.1) / math.sqrt(0.09 / off["test"])
        enough = {
            task: sorted(
                {r["width"] for r in table.where(task=task, twin="standard").rows if r["parameters"] > 10 * r["train"]}
            )
            for task in tasks
        }
        wide = [(task, width) for task in tasks for width in enough[task]]
        line = {
            twin: {task: {k: 100 * value for k, value in train[task][twin].items()} for task in tasks} for twin in TWINS
        }
        centred, shifted = (line["linearised"][task] for task in ("centred", "shifted"))

        def shown(twin: str) -> str:
            return "; ".join(f"{task} {over_widths(line[twin][task])}" for task in tasks)

        def printed(twin: str) -> str:
            return "; ".join(
                f"{data} {over_widths({k: cell.mean for k, cell in table[f'train {twin}'].items()})}"
                for data, table in RANDOM_LABELS.items()
            )

        return [
            Claim(
                "On test images everything is at chance",
                "all entries between 9.45 and 10.22 percent (tables B.9 to B.11)",
                f"farthest from 10: {100 * off['test_accuracy']:.2f}, {off['twin']} on {off['task']} digits, "
                f"{deviation:.1f} standard errors of {off['test']} images, among {len(rows)} results",
                bool(deviation < 4),
            ),
            Claim(
                "A network memorises all labels once it has more parameters than images times classes",
                "train accuracy: " + printed("standard"),
                shown("standard")
                + "; more parameters from "
                + ", ".join(f"×{min(k)} ({task})" for task, k in enough.items() if k),
                bool(all(line["standard"][task][width] >= 99 for task, width in wide)) if wide else None,
                "" if wide else "no network here has that many parameters",
            ),
            Claim(
                "Its linearisation, trained by gradient descent, does not, although it has as many",
                "train accuracy: " + printed("linearised"),
                shown("linearised"),
                bool(all(line["linearised"][task][width] < line["standard"][task][width] for task, width in wide))
                if wide
                else None,
                "" if wide else "no network here has that many parameters",
            ),
            Claim(
                "The linearisation memorises shifted images better than centred ones",
                "at every width, for instance 51.56 against 44.15 at ×2",
                f"centred {over_widths(centred)}; shifted {over_widths(shifted)}",
                bool(all(shifted[width] > value for width, value in centred.items())),
            ),
        ]

    def beside(self, table: Table) -> list[Row]:
        """Tables B.9 to B.11; kernels are in the last column."""
        published = {
            data: rows | {f"test {name}": {math.inf: f"{RANDOM_KERNELS[data][name]:.2f}"} for name in KERNEL_NAMES}
            for data, rows in RANDOM_LABELS.items()
        }
        return layout(published, measured(table))

    def figures(self, table: Table) -> dict[str, Figure]:
        return {"memorised": draw_widths(Table([row for row in table.rows if row["twin"] in TWINS]), "train")}
