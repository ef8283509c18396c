"""Study: how fast the test error falls with the data, with and without learned features (Figures 2 and 7).

A kernel that does not move pays for all directions, a network that shrinks those the labels ignore for few of them. If
that is all there is to it, a kernel on data shrunk by the same Λ* must do as well, and so must the kernel the network
ends with. (Spec 004, sections 6.1, 7, E2 and E7, and 9.1.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch
from matplotlib.figure import Figure

from polariscope.kernels.flow_nets import MeanFieldNet
from polariscope.kernels.frozen import INFINITE_WIDTH, NetKernel, learn_frozen
from polariscope.kernels.learning_curves import LearningCurve
from polariscope.report.figures import LIGHT, styled
from polariscope.studies.manifolds.amplification import (
    ALPHA,
    SOURCE,
    curve,
    draw,
    exponent_claim,
    groups,
    interval,
    log_log,
    share_legend,
    start_of,
    trained,
    within,
    world_of,
)
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.theory.learning_exponents import compression_exponent, feature_exponent, lazy_exponent
from polariscope.worlds.stripes import compress

LEARNERS = {
    "feature": "network",
    "lazy": "lazy kernel, infinite width",
    "start": "lazy kernel, the network's width",
    "compressed": "the same on compressed data",
    "end": "kernel of the trained network",
}
INFORMATIVE = {"stripe": 1, "cylinder": 2}
FACTORS = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Setting:
    """How much is done at a scale; ``steps`` of the flow include those before t*, ``kernel_steps`` are a kernel's."""

    groups: tuple[tuple[str, int], ...]
    sizes: tuple[int, ...]
    cylinder_sizes: tuple[int, ...]
    seeds: int
    cylinder_seeds: int
    width: int
    momentum: float
    steps: int
    kernel_steps: int
    test: int
    gain_points: int


SETTINGS: dict[Scale, Setting] = {
    "smoke": Setting(
        groups=(("stripe", 5), ("cylinder", 3)),
        sizes=(200, 400),
        cylinder_sizes=(100,),
        seeds=1,
        cylinder_seeds=1,
        width=40,
        momentum=0.97,
        steps=480,
        kernel_steps=50,
        test=500,
        gain_points=60,
    ),
    "laptop": Setting(
        groups=(("stripe", 5), ("stripe", 10), ("cylinder", 3)),
        sizes=(128, 256, 512, 1024, 2048),
        cylinder_sizes=(128, 256, 512, 1024, 2048),
        seeds=7,
        cylinder_seeds=9,
        width=600,
        momentum=0.97,
        steps=2500,
        kernel_steps=40_000,
        test=20_000,
        gain_points=512,
    ),
    "paper": Setting(
        groups=(("stripe", 5), ("stripe", 10), ("cylinder", 3)),
        sizes=(128, 256, 512, 1024, 2048, 4096),
        cylinder_sizes=(128, 256, 512, 1024, 2048, 4096),
        seeds=20,
        cylinder_seeds=9,
        width=10_000,
        momentum=0.0,
        steps=500_000,
        kernel_steps=1_000_000,
        test=100_000,
        gain_points=512,
    ),
}


@studies.register("learning-curves")
@dataclass(frozen=True)
class LearningCurves(Study):
    """Networks and frozen kernels over the number of points, and a kernel over how far its data are compressed."""

    title = "What learned features are worth"
    source = f"{SOURCE}, sections 3.1 and 4, figures 2 and 7"
    question = "Does a network that learns features need fewer examples, and is it because it compresses?"
    cost = {"smoke": "2 s", "laptop": "10 minutes", "paper": "weeks"}

    def jobs(self, scale: Scale) -> Sequence[Job]:
        setting = SETTINGS[scale]
        keys = ("width", "momentum", "steps", "kernel_steps", "test")
        common = {"part": "curve", "alpha": ALPHA} | {key: asdict(setting)[key] for key in keys}
        curves: list[Job] = []
        gains: list[Job] = []
        for task, dimension in setting.groups:
            cylinder = task == "cylinder"
            seeds = setting.cylinder_seeds if cylinder else setting.seeds
            here = {"task": task, "dimension": dimension}
            curves += [
                common | here | {"points": points, "seed": seed}
                for points in (setting.cylinder_sizes if cylinder else setting.sizes)
                for seed in range(seeds)
            ]
            gains += [
                {"part": "gain"} | here | {"points": setting.gain_points, "seed": seed, "test": setting.test}
                for seed in range(seeds)
            ]
        return [*sorted(curves, key=lambda job: -job["points"]), *gains]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        return _gain(job) if job["part"] == "gain" else [job | _errors(job)]

    def claims(self, table: Table, scale: Scale) -> list[Claim]:
        claims: list[Claim] = []
        for task, dimension, rows in groups(table.where(part="curve")):
            claims += [*_curve_claims(task, dimension, rows)]
        for task, dimension, rows in groups(table.where(part="gain")):
            claims.append(_gain_claim(task, dimension, rows))
        return claims

    def beside(self, table: Table) -> list[Row]:
        rows = []
        for task, dimension, group in groups(table.where(part="curve")):
            predicted = predicted_exponents(task, dimension)
            for learner, words in LEARNERS.items():
                found = curve(group, learner)
                errors = ", ".join(f"{p}: {e:.4f}" for p, e in zip(found.sizes, found.medians, strict=True))
                law = interval(found.power_law(200)) if (found.sizes >= 200).sum() > 1 else "-"
                published = f"{predicted[learner]:.3f}" if learner in predicted else "-"
                rows.append(
                    {
                        "task": f"{task}, d = {dimension}",
                        "learner": words,
                        "exponent published": published,
                        "exponent here, p ≥ 200": law,
                        "median test error by p": errors,
                        "seeds": found.values.shape[1],
                    }
                )
        return rows

    @styled
    def figures(self, table: Table) -> dict[str, Figure]:
        return {"learning-curves": _curve_figure(table.where(part="curve")), "gain": _gain_figure(table)}


def predicted_exponents(task: str, dimension: int) -> dict[str, float]:
    """Exponents of the error, negative as it falls; compressed by Λ ~ √p the kernel has that of the network."""
    feature, lazy = -feature_exponent(dimension, INFORMATIVE[task]), -lazy_exponent(dimension)
    return {"feature": feature, "lazy": lazy, "start": lazy, "compressed": feature}


def _errors(job: Job) -> Row:
    """Test errors of all learners; the trained network's kernel learns from points that did not train it."""
    world, count, seed = world_of(job), job["points"], job["seed"]
    (x, y), fresh = draw(world, count, seed, "train"), draw(world, count, seed, "fresh")
    test = draw(world, job["test"], seed, "test")
    done = trained(job)
    start, end = NetKernel(start_of(job, torch.float64)), NetKernel(MeanFieldNet(done.end.state.double()))
    most = job["kernel_steps"]
    row: Row = {
        "feature": done.error(*test),
        "lazy": learn_frozen(INFINITE_WIDTH.ntk, x, y, steps=most).error(*test),
        "start": learn_frozen(start, x, y, steps=most).error(*test),
        "end": learn_frozen(end, *fresh, steps=most).error(*test),
        "compressed": None,
        "at_onset": None,
        "at_end": done.end.amplification,
        "active": done.active,
        "steps_taken": done.steps,
    }
    if done.t_star is not None:
        factor, kept = done.t_star.amplification, world.source.informative
        learner = learn_frozen(start, compress(x, kept, factor), y, steps=most)
        row |= {"compressed": learner.error(compress(test[0], kept, factor), test[1]), "at_onset": factor}
    return row


def _gain(job: Job) -> list[Row]:
    """The lazy kernel on one data set, compressed ever more."""
    world = world_of(job)
    (x, y), test = draw(world, job["points"], job["seed"], "train"), draw(world, job["test"], job["seed"], "test")
    kept = world.source.informative
    return [
        job
        | {
            "factor": factor,
            "error": learn_frozen(INFINITE_WIDTH.ntk, compress(x, kept, factor), y).error(
                compress(test[0], kept, factor), test[1]
            ),
        }
        for factor in FACTORS
    ]


def _curve_claims(task: str, dimension: int, rows: Table) -> Iterator[Claim]:
    name = f"{task}, d = {dimension}"
    figure = "figure 2" if task == "stripe" else "figure 7"
    found = {learner: curve(rows, learner) for learner in LEARNERS}
    sizes, median = found["feature"].sizes, {learner: c.medians for learner, c in found.items()}
    predicted = predicted_exponents(task, dimension)
    lazy, feature = predicted["lazy"], predicted["feature"]
    large = sizes >= (215 if task == "cylinder" else 128)  # a curved interface gains less, and later
    yield Claim(
        f"A network that learns features beats the lazy kernel ({name})",
        f"{figure}: at every number of points",
        f"error over the network's, infinite width: {_ratios(sizes, median['lazy'] / median['feature'])}; "
        f"the network's width: {_ratios(sizes, median['start'] / median['feature'])}",
        bool((median["feature"] < median["lazy"])[large].all()) if large.any() else None,
        "" if large.any() else "the network's lead begins at more points than there are here",
    )
    yield exponent_claim(f"Lazy: β = d/(3d − 2) ({name})", f"{figure}, slope", found["lazy"], lazy, feature)
    formula = "(2d − 1)/(3d − 2)" if task == "stripe" else "(d + d⊥/2)/(3d − 2)"
    yield exponent_claim(f"Feature: β = {formula} ({name})", f"{figure}, slope", found["feature"], feature, lazy)
    # The two learn from the same points, so that the exponent of their ratio is surer than the difference of exponents.
    shared = min(found["feature"].values.shape[1], found["lazy"].values.shape[1])
    ratio = LearningCurve(sizes, found["feature"].values[:, :shared] / found["lazy"].values[:, :shared])
    text = f"The lead of the network grows with the number of points ({name})"
    yield exponent_claim(text, f"{figure}, slope of the ratio of errors", ratio, feature - lazy, 0.0)
    big = sizes >= 215
    if task == "stripe":
        same = median["compressed"] / median["feature"]
        yield Claim(
            f"The lazy kernel on data compressed by Λ* learns like the network ({name})",
            f"{figure}: closely",
            "error over the network's: " + _ratios(sizes, same),
            bool(((same > 0.5) & (same < 1.8))[big].all()),
        )
        better = median["end"] / median["start"]
        yield Claim(
            f"The kernel of the trained network is much better than that at its start ({name})",
            f"{figure}: as good as the network",
            f"error over that at the start: {_ratios(sizes, better)}; over the network's: "
            + _ratios(sizes, median["end"] / median["feature"]),
            bool((better[big] <= 0.5).all()),
        )
        last = median["end"][-1] / median["feature"][-1]
        yield Claim(
            f"At the largest number of points it is even better than the network ({name})",
            figure,
            f"error over the network's at {sizes[-1]} points: {last:.2f}",
            bool(last < 1),
            "" if last < 1 else "it is better the larger Λ at the end: training to the last point lowers Λ (Spec 9.1)",
        )


def _gain_claim(task: str, dimension: int, rows: Table) -> Claim:
    law = curve(rows, "error", over="factor").power_law()
    predicted = -compression_exponent(dimension, INFORMATIVE[task])
    held, note = within(law, predicted, 0.0)
    seeds = len(rows.distinct("seed"))
    return Claim(
        f"Compressing the data by Λ multiplies the lazy kernel's error by a power of Λ ({task}, d = {dimension})",
        f"{'section 3.1' if task == 'stripe' else 'section 4'}: {predicted:.3f}",
        f"{interval(law)} from Λ = {FACTORS[0]} to {FACTORS[-1]}, {rows.rows[0]['points']} points, {seeds} seeds",
        held,
        note,
    )


def _ratios(sizes: Sequence[int] | np.ndarray, ratios: np.ndarray) -> str:
    return ", ".join(f"{size}: {ratio:.2f}" for size, ratio in zip(sizes, ratios, strict=True))


def _curve_figure(table: Table) -> Figure:
    """A panel a task, with lines of the predicted slopes through the middle of what they predict."""
    panels = list(groups(table))
    figure = Figure(figsize=(0.6 + 3.0 * len(panels), 3.8), layout="constrained")
    for axes, (task, dimension, rows) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        found = {learner: curve(rows, learner) for learner in LEARNERS}
        log_log(axes, {words: found[learner] for learner, words in LEARNERS.items()})
        predicted = predicted_exponents(task, dimension)
        for learner, style in (("feature", "--"), ("lazy", ":")):
            line = found[learner].guide(predicted[learner])
            label = f"slope predicted, {'network' if learner == 'feature' else 'lazy'}"
            axes.plot(found[learner].sizes, line(found[learner].sizes), style, color=LIGHT["muted"], label=label)
        axes.set(title=f"{task}, d = {dimension}", xlabel="points p")
    figure.axes[0].set_ylabel("test error")
    share_legend(figure)
    return figure


def _gain_figure(table: Table) -> Figure:
    figure = Figure(figsize=(3.6, 2.8), layout="constrained")
    axes = figure.subplots()
    found = {f"{task}, d = {d}": curve(rows, "error", "factor") for task, d, rows in groups(table.where(part="gain"))}
    log_log(axes, found)
    for task, dimension, rows in groups(table.where(part="gain")):
        line = curve(rows, "error", "factor").guide(-compression_exponent(dimension, INFORMATIVE[task]))
        axes.plot(FACTORS, line(FACTORS), "--", color=LIGHT["muted"], linewidth=1)
    axes.set(xlabel="compression Λ", ylabel="test error of the lazy kernel")
    axes.legend()
    return figure
