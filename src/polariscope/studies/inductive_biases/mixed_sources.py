"""Independent sources behind layers of mixing: what flows and contrastive learning recover of them (table 5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from polariscope.measures.mcc import mcc
from polariscope.nets.architecture import MLP
from polariscope.nets.code_encoder import CodeEncoderConfig
from polariscope.nets.flows import CouplingFlowConfig, LinearFlowConfig
from polariscope.nets.model import Model
from polariscope.objectives.objective import Objective
from polariscope.objectives.pcl import PCL
from polariscope.objectives.slow_flow import SlowFlow
from polariscope.representation import represent
from polariscope.studies.criteria import All, AtLeast, AtMost, Beats
from polariscope.studies.kit import Curve
from polariscope.studies.published import published
from polariscope.studies.rows import leads, plus_minus
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.run import load_model
from polariscope.worlds.points.sources import Sources

METHODS = {"slow-flow": "SlowFlow", "pcl": "PCL (MLP)", "pcl (flow)": "PCL (NF)"}
"""Our names of the published rows of non-linear mixing."""
RATE = 6.0
"""Of the steps of linearly mixed sources."""
UNIT = float(np.sqrt((1 - 0.7**2) / 2))
"""What brings the published sources, AR(1) with coefficient .7 and Laplace steps of rate 1, to unit variance."""


@dataclass(frozen=True)
class Setting:
    seeds: int
    dimensions: tuple[int, ...]
    pairs: int
    linear_steps: int
    sources: int
    layers: tuple[int, ...]
    count: int
    steps: int
    contrastive_steps: int
    blocks: int
    hidden: int


SETTINGS: dict[Scale, Setting] = {
    "smoke": Setting(
        seeds=1, dimensions=(2,), pairs=400, linear_steps=20, sources=4, layers=(1,), count=400, steps=10,
        contrastive_steps=10, blocks=2, hidden=8,
    ),
    "laptop": Setting(
        seeds=5, dimensions=(2, 5), pairs=20_000, linear_steps=1500, sources=5, layers=(1, 2, 3), count=2**15,
        steps=4000, contrastive_steps=8000, blocks=6, hidden=64,
    ),
    "paper": Setting(
        seeds=10, dimensions=(2, 5, 20), pairs=20_000, linear_steps=20_000, sources=20, layers=(1, 2, 3, 4, 5),
        count=2**20, steps=200_000, contrastive_steps=200_000, blocks=6, hidden=500,
    ),
}  # fmt: skip


@studies.register("mixed-sources")
@dataclass(frozen=True)
class MixedSources(Study):
    """Linear mixing by SlowFlow with sparse and with normal steps; non-linear mixing by SlowFlow and PCL."""

    title = "Sources behind layers of mixing"
    source = (
        "Klindt, Schott, Sharma et al., Towards nonlinear disentanglement in natural data with temporal sparse coding "
        "(2021), sections 3.2 and F.1.2, table 5"
    )
    question = "Can independent sources be recovered from their changes alone, and through how many layers of mixing?"
    cost = {"smoke": "3 s", "laptop": "30 minutes", "paper": "days"}
    training_lengths = {
        scale: max(setting.linear_steps, setting.steps, setting.contrastive_steps)
        for scale, setting in SETTINGS.items()
    }
    drawn = {
        "layers": Curve(
            "mcc", "layers", "method", where={"part": "mixed"}, called="MCC", along="layers of mixing", names=METHODS
        )
    }

    def jobs(self, scale: Scale) -> Sequence[Job]:
        setting = SETTINGS[scale]
        linear: list[Job] = [
            {"part": "linear", "steps_are": steps, "dimension": d, "seed": seed, "scale": scale}
            for steps in ("sparse", "normal")
            for d in setting.dimensions
            for seed in range(setting.seeds)
        ]
        return linear + [
            {"part": "mixed", "method": method, "layers": layers, "seed": seed, "scale": scale}
            for method in METHODS
            for layers in setting.layers
            for seed in range(setting.seeds)
        ]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        setting, seed = SETTINGS[job["scale"]], job["seed"]
        if job["part"] == "linear":
            alpha = 1.0 if job["steps_are"] == "sparse" else 2.0
            # A rate of 18 gives normal steps the variance of Laplace steps of rate 6.
            rate = RATE if alpha == 1 else RATE**2 / 4
            world = Sources(
                setting.pairs, job["dimension"], coefficient=1.0, alpha=alpha, rate=rate, start="normal", seed=seed
            )
            objective: Objective = SlowFlow(rate, alpha=alpha)
            model: Model = LinearFlowConfig()
            training = TrainingConfig(setting.linear_steps, 1024, 1e-2, schedule="linear", seed=seed, evaluate_every=0)
        else:
            objective, model = _method(job["method"], job["layers"], setting)
            flow = isinstance(model, CouplingFlowConfig)
            # A flow that keeps volumes cannot shrink the sources to the size its objective expects.
            scales = (UNIT,) * setting.sources if flow else ()
            world = Sources(setting.count, setting.sources, job["layers"], scales=scales, seed=seed)
            steps, rate = (setting.steps, 3e-3) if flow else (setting.contrastive_steps, 1e-2)
            training = TrainingConfig(steps, 256, rate, schedule="linear", seed=seed, evaluate_every=0)
        run = bench.train(RunConfig(world, objective, model, training))
        said = represent(load_model(run), world, count=10_000)
        assert said.factors is not None
        row = {key: value for key, value in job.items() if key != "scale"}
        return [row | {"mcc": mcc(said.mean, said.factors).value, "loss": run.result["train_loss"]}]

    def claims(self, scale: Scale) -> list[Claim]:
        printed = published("inductive_biases/slow-flow-mcc").rows
        deepest = SETTINGS[scale].layers[-1]
        slow, pcl, flow = ({"method": method, "layers": SETTINGS[scale].layers[0]} for method in METHODS)
        sparse, normal = ({"part": "linear", "steps_are": steps} for steps in ("sparse", "normal"))
        return [
            Claim(
                "A linear flow that expects sparse steps finds linearly mixed sources exactly",
                "MCC 1.00 (figure 6; Spec 001a, E1: 0.999 at least)",
                AtLeast("mcc", 0.999, of="every", where=sparse, called="MCC", digits=4),
            ),
            Claim(
                "With normal steps a linear flow recovers less: rotations cannot be distinguished",
                "section F.3; .73 to .995 by chance of the seed (Spec 001a, E1)",
                Beats("mcc", sparse, normal, by=0.03, called="MCC"),
            ),
            Claim(
                "Both SlowFlow and PCL recover sources behind one layer",
                f"table 5, L = 1: SlowFlow {printed['SlowFlow']['1']}, PCL {printed['PCL (MLP)']['1']}",
                All(
                    AtLeast("mcc", 0.9, where=slow, called="MCC of SlowFlow"),
                    AtLeast("mcc", 0.9, where=pcl, called="MCC of PCL"),
                ),
            ),
            Claim(
                "Behind more layers SlowFlow recovers the sources at least as well as PCL",
                "table 5: .982 against .950 behind three layers, .975 against .902 behind five",
                AtMost("lead_of_pcl", 0, called=f"lead of PCL behind {deepest} layers, in MCC", digits=3),
                note="with five sources both are close to 1, so neither can lead by much",
            ),
            Claim(
                "A flow is no better for PCL than an MLP",
                "table 5: .946 against .998 behind one layer",
                Beats("mcc", pcl, flow, by=0.01, called="MCC", digits=3),
            ),
        ]

    def readings(self, table: Table) -> Table:
        """The rows, and how far PCL is ahead of SlowFlow behind the most layers, seed by seed."""
        mixed = table.where(part="mixed")
        deepest = mixed.where(layers=max(mixed.distinct("layers"), default=0))
        pcl, slow = (deepest.where(method=method) for method in ("pcl", "slow-flow"))
        return Table(table.rows + leads(pcl, slow, "mcc", "lead_of_pcl"))

    def beside(self, table: Table) -> list[Row]:
        printed = published("inductive_biases/slow-flow-mcc").rows
        return [
            {"method": METHODS[method], "layers": layers}
            | {"published (20 sources)": str(printed[METHODS[method]].get(str(layers), "-"))}
            | {"here": plus_minus(group.column("mcc"), 3)}
            for method, runs in table.where(part="mixed").by("method")
            for layers, group in runs.by("layers")
        ]


def _method(name: str, layers: int, setting: Setting) -> tuple[Objective, Model]:
    """The published networks: a coupling flow, or an MLP with a hidden layer for each layer of mixing."""
    flow = CouplingFlowConfig(setting.blocks, (setting.hidden, setting.hidden))
    if name == "slow-flow":
        return SlowFlow(rate=1 / UNIT, ar_coeff=0.7), flow
    if name == "pcl (flow)":
        return PCL(), flow
    hidden = (100,) * layers
    return PCL(), CodeEncoderConfig(setting.sources, MLP(hidden, (), "leaky_relu"))
