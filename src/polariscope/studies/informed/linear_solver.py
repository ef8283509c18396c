"""Study: is a linearised network held back by its features, or by stochastic gradient descent?

Zero against the rest needs one output, so that the linearised network can be solved exactly. The exact solution always
fits the training data once there are enough parameters, but where there are just enough it is the worst of all: LeNet
itself has as many parameters as MNIST has images. Widths between none and one show the dip from both sides. (Spec 000,
sections 7.5 and 9.7.)
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from polariscope.kernels.empirical import tangent_kernel
from polariscope.kernels.linearised import Descent
from polariscope.kernels.machine import largest_rate
from polariscope.kernels.width_sweep import fit_twin
from polariscope.report.figures import LIGHT, styled
from polariscope.studies.informed.feature_demand import (
    LOOKS,
    STANDS_FOR,
    accuracies,
    digits,
    image_shape,
    listing,
    measured,
    pixel_scores,
)
from polariscope.studies.informed.published_widths import BINARY, BINARY_RATIOS, WIDTHS, layout
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies

TWINS = ("standard", "linearised", "solved")
TASKS = ("centred", "shifted")
PROBED = 100  # images by which the rate of descent is chosen
SOLVED_UP_TO = 5  # width factor; beyond it the Jacobian of 60,000 images takes more than a terabyte


@dataclass(frozen=True)
class Setting:
    """How much is done at a scale; exact solutions are cheap, so that they may have more seeds than descents.

    A rate of None is chosen for each linearisation.
    """

    widths: tuple[float, ...]
    solved_seeds: int
    seeds: int
    train: int
    test: int
    size: int
    batch: int
    epochs: int
    rates: tuple[float, float | None]


SETTINGS: dict[Scale, Setting] = {
    "smoke": Setting((0.1, 0.25, 0.6), 1, 1, 60, 60, 10, 20, 2, (0.05, None)),
    "laptop": Setting((0.1, 0.16, 0.2, 0.25, 0.3, 0.4, 0.6, 0.9), 5, 5, 800, 2000, 14, 32, 60, (0.05, None)),
    "paper": Setting(WIDTHS, 1, 1, 60_000, 10_000, 28, 32, 200, (0.01, 0.01)),
}


@studies.register("linear-solver")
@dataclass(frozen=True)
class LinearSolver(Study):
    """One output, three ways: the network, its linearisation by gradient descent, and the exact least squares."""

    title = "The linearised network solved exactly, across the interpolation threshold"
    source = "Samarin 2022, section 6.4.3, tables 6.1 and 6.2; the threshold is Spec 000, section 7.5"
    question = "Would a better optimiser rescue random features?"
    cost = {"smoke": "1 s", "laptop": "about 5 minutes", "paper": "months, and 700 GB of memory for width 5"}

    def jobs(self, scale: Scale) -> Sequence[Job]:
        setting = SETTINGS[scale]
        common = {key: asdict(setting)[key] for key in ("train", "test", "size", "batch", "epochs")}
        jobs: list[Job] = [common | {"task": task, "twin": "pixels"} for task in TASKS]
        for task, width in itertools.product(TASKS, setting.widths):
            at = common | {"task": task, "width": width}
            if width <= SOLVED_UP_TO:
                jobs += [at | {"twin": "solved", "seed": seed} for seed in range(setting.solved_seeds)]
            for seed, (twin, rate) in itertools.product(range(setting.seeds), zip(TWINS, setting.rates, strict=False)):
                jobs.append(at | {"twin": twin, "seed": seed, "rate": rate})
        return jobs

    def run(self, job: Job, bench: Bench) -> list[Row]:
        train, test = digits(job["task"], job["train"], job["test"], job["size"], "zero")
        if job["twin"] == "pixels":
            return [job | pixel_scores(train, test)]
        shape = image_shape(train[0])
        if job["twin"] == "solved":
            # At the threshold least squares is as badly conditioned as can be: in single precision the cut of small
            # singular values would regularise it, and so would squaring the condition by way of the kernel.
            wide_train, wide_test = ((x.double(), y) for x, y in (train, test))
            fit = fit_twin(
                lambda width, seed: scaled_lenet(width, shape, seed).double(),
                wide_train,
                wide_test,
                job["width"],
                job["seed"],
                "solved",
                Descent(),
                space="parameter",
                memory=2**40,
            )
            assert fit.solution is not None
            row = fit.record | {"rank_ratio": fit.solution.rank / job["train"]}
        else:
            rate = job["rate"] or stable_rate(
                tangent_kernel(scaled_lenet(job["width"], shape, job["seed"]), train[0][:PROBED], kind="trace")
            )
            how = Descent(rate, weight_decay=5e-5, batch=job["batch"], epochs=job["epochs"])
            fit = fit_twin(
                lambda width, seed: scaled_lenet(width, shape, seed),
                train,
                test,
                job["width"],
                job["seed"],
                job["twin"],
                how,
            )
            row = fit.record | {"rate": rate}
        rest = float((test[1] == 0).double().mean())
        return [job | row | {"ratio": fit.row.parameters / job["train"], "rest": rest}]

    def claims(self, table: Table, scale: Scale) -> list[Claim]:
        curves = {task: curve(table, task) for task in TASKS}
        worst = {task: min(found["solved"], key=found["solved"].__getitem__) for task, found in curves.items()}
        solved = {task: found["solved"] for task, found in curves.items()}
        trained = {task: curve(table, task, "train") for task in TASKS}
        published = {task: BINARY[STANDS_FOR[task]] for task in TASKS}
        widest = {task: max(row) for task, row in solved.items()}
        fitted = {task: trained[task]["solved"][ratio] for task, ratio in worst.items()}
        rank = {task: ranks(table, task) for task in TASKS}
        # Saying "rest" of every image is no achievement; descent has to be better to be called so.
        rest = {task: table.where(task=task).mean("rest") for task in TASKS}
        learned = [task for task in TASKS if curves[task]["linearised"][worst[task]] > rest[task] + 0.005]
        return [
            Claim(
                "With about as many parameters as images the exact solution fits every image and is at its worst",
                "at p/N = 0.99: train 100, test "
                + listing({data: rows["test solved"][1].mean for data, rows in BINARY.items()})
                + "; at p/N = 3.9: "
                + listing({data: rows["test solved"][2].mean for data, rows in BINARY.items()}),
                "; ".join(
                    f"{task}: worst {100 * solved[task][r]:.2f} (train {100 * fitted[task]:.2f}) at p/N = {r:.2f}, "
                    f"rank {rank[task][r]:.2f} N; widest {100 * solved[task][widest[task]]:.2f}"
                    for task, r in worst.items()
                ),
                all(at_threshold(solved[task], rank[task], both_sides=scale != "paper") for task in TASKS),
                ""
                if scale == "paper"
                else "the threshold is where the features have rank N: units of narrow networks are often dead, so "
                "that it takes p > N",
            ),
            Claim(
                "There, gradient descent does better, although it does not fit every image",
                "at p/N = 0.99, descended and solved, test: "
                + ", ".join(
                    f"{data} {rows['test linearised'][1].mean:g} and {rows['test solved'][1].mean:g}"
                    for data, rows in BINARY.items()
                ),
                "; ".join(
                    f"{task}: {100 * curves[task]['linearised'][r]:.2f} and {100 * solved[task][r]:.2f} "
                    f"(train {100 * trained[task]['linearised'][r]:.2f} and {100 * trained[task]['solved'][r]:.2f}; "
                    f'always "rest" {100 * rest[task]:.2f})'
                    for task, r in worst.items()
                ),
                all(
                    curves[task]["linearised"][r] > solved[task][r]
                    and trained[task]["linearised"][r] < trained[task]["solved"][r]
                    for task, r in worst.items()
                )
                if learned == list(TASKS) or scale == "paper"
                else None,
                ""
                if learned == list(TASKS)
                else 'descent was too short to learn more than "rest" on '
                + " and ".join(f"{task} digits" for task in TASKS if task not in learned),
            ),
            Claim(
                "Even solved exactly, random features do not reach the network on shifted digits",
                f"at p/N = 24.6: {published['shifted']['test solved'][5].mean:g} and "
                f"{published['shifted']['test standard'][5].mean:g}",
                f"{100 * solved['shifted'][widest['shifted']]:.2f} and "
                f"{100 * curves['shifted']['standard'][widest['shifted']]:.2f} at p/N = {widest['shifted']:.1f}",
                solved["shifted"][widest["shifted"]] < curves["shifted"]["standard"][widest["shifted"]],
            ),
            _catching_up(curves["centred"], scale),
        ]

    def beside(self, table: Table) -> list[Row]:
        """Tables 6.1 and 6.2, a column a number of parameters per image."""
        published = {
            data: {name: {round(BINARY_RATIOS[k], 2): cell for k, cell in row.items()} for name, row in rows.items()}
            for data, rows in BINARY.items()
        }
        here = {
            data: {
                name: {0 if k == 0 else round(ratios(table)[k], 2): cell for k, cell in row.items()}
                for name, row in rows.items()
            }
            for data, rows in measured(table).items()
        }
        return layout(published, here, "p/N = {:g}")

    @styled
    def figures(self, table: Table) -> dict[str, Figure]:
        figure = Figure(figsize=(6.6, 2.7), layout="constrained")
        for axes, task in zip(figure.subplots(1, 2, sharey=True), TASKS, strict=True):
            for twin in TWINS:
                row = curve(table, task)[twin]
                name, colour, marker = LOOKS[twin]
                values = [100 * value for value in row.values()]
                axes.plot(list(row), values, color=colour, marker=marker, markersize=4, label=name)
            axes.axvline(1, color=LIGHT["muted"], linewidth=1, linestyle=":")
            name, colour, _ = LOOKS["pixels"]
            pixels = 100 * table.where(task=task, twin="pixels").mean("test_accuracy")
            axes.axhline(pixels, color=colour, linewidth=1, linestyle="--", label=name)
            axes.set_xscale("log")
            axes.set_title(f"{task} digits")
            axes.set_xlabel("parameters per training image")
        figure.axes[0].set_ylabel("test accuracy (percent)")
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside right center")
        return {"threshold": figure}


def stable_rate(kernel: Tensor) -> float:
    """Half of the rate up to which a linear model with this kernel descends on the mean squared error.

    Its largest eigenvalue grows with the number of images and the rate does not, so that a few of them tell it.
    """
    return len(kernel) * largest_rate(kernel) / 4


def scaled_lenet(width: float, shape: tuple[int, ...], seed: int) -> nn.Sequential:
    """LeNet with one output and any positive width factor; for a whole one the network of :func:`lenet`."""
    if not width > 0:
        raise ValueError(f"the width factor is {width}; it needs to be positive")
    channels, height, across = shape
    first, second, third, fourth = (max(1, round(width * units)) for units in (6, 16, 120, 84))
    last = [((side - 2) // 2 - 2) // 2 for side in (height, across)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(channels, first, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(first, second, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(second * last[0] * last[1], third),
            nn.ReLU(),
            nn.Linear(third, fourth),
            nn.ReLU(),
            nn.Linear(fourth, 1),
        )


def ratios(table: Table) -> dict[float, float]:
    """Parameters per training image at each width."""
    return {width: rows.mean("ratio") for width, rows in table.by("width")}


def ranks(table: Table, task: str) -> dict[float, float]:
    """Rank of the features per training image, by parameters per training image."""
    rows = table.where(task=task, twin="solved")
    return {ratios(table)[width]: group.mean("rank_ratio") for width, group in rows.by("width")}


def at_threshold(accuracy: dict[float, float], rank: dict[float, float], both_sides: bool) -> bool:
    """Whether the worst accuracy is that of the first network whose features have full rank, or the one before it.

    With ``both_sides`` there must be better ones on either side of it.
    """
    widths = sorted(accuracy)
    worst = widths.index(min(widths, key=accuracy.__getitem__))
    first = next((i for i, width in enumerate(widths) if rank[width] > 0.999), len(widths))
    inside = 0 < worst < len(widths) - 1 if both_sides else worst < len(widths) - 1
    return inside and worst in (first - 1, first)


def curve(table: Table, task: str, split: str = "test") -> dict[str, dict[float, float]]:
    """Mean accuracy by twin and parameters per image."""
    at = ratios(table)
    found = accuracies(table, split)[task]
    return {twin: {at[width]: value for width, value in found[twin].items()} for twin in TWINS}


def _catching_up(centred: dict[str, dict[float, float]], scale: Scale) -> Claim:
    widest = max(centred["linearised"])
    linear, standard = (100 * centred[twin][widest] for twin in ("linearised", "standard"))
    return Claim(
        "Wide enough, the linearised network is as good as the network on centred digits",
        "at p/N = 3537: 99.89 and 99.88",
        f"{linear:.2f} and {standard:.2f} at p/N = {widest:.1f}",
        linear >= standard - 0.1 if scale == "paper" else None,
        "" if scale == "paper" else f"at p/N = {widest:.1f} the network is not wide enough to tell",
    )
