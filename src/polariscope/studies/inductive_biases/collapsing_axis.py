"""A SlowVAE stops encoding an axis that is too short to be worth its divergence; a flow, which has no divergence to
minimise, does not (figures 6 and 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from polariscope.measures.mcc import mcc
from polariscope.nets.architecture import MLP, Architecture, Linear
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.nets.flows import LinearFlowConfig
from polariscope.objectives.slow_flow import SlowFlow
from polariscope.objectives.slow_vae import SlowVAE
from polariscope.representation import represent
from polariscope.studies.criteria import All, AtLeast, AtMost, Near, Rises
from polariscope.studies.kit import Panels, Scatter
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.theory.transitions import collapse_threshold, collapsed_std
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.run import load_model
from polariscope.worlds.points.sources import Sources

RATE, GAMMA = 6.0, 10.0
SQUARED = 0.5
"""Decoder variance at which the negative log-likelihood is the squared error."""
FITTED = (0.45, 0.6)
"""Lengths from which the threshold is extrapolated: closer to it a training hardly leaves the saddle it starts from."""
DEAD = 0.02
"""Reconstructed share of an axis below which the axis counts as not encoded."""


@dataclass(frozen=True)
class Setting:
    lengths: tuple[float, ...]
    ambient: tuple[int, ...]
    sources: int
    seeds: Sequence[int]
    pairs: int
    steps: int
    ambient_steps: int


SETTINGS: dict[Scale, Setting] = {
    "smoke": Setting(
        lengths=(0.2, 1.0), ambient=(4, 8), sources=4, seeds=range(1), pairs=500, steps=30, ambient_steps=20
    ),
    "laptop": Setting(
        lengths=(0.2, 0.3, 0.36, 0.46, 0.5, 0.55, 0.6, 0.8, 1.0), ambient=(20, 200, 2000), sources=20,
        seeds=range(5, 10), pairs=5000, steps=4000, ambient_steps=20_000,
    ),
    "paper": Setting(
        lengths=tuple(np.round(np.arange(0.1, 1.01, 0.02), 2).tolist()), ambient=(20, 200, 2000), sources=20,
        seeds=range(10), pairs=100_000, steps=50_000, ambient_steps=100_000,
    ),
}  # fmt: skip
"""The laptop setting was chosen on seeds 0 to 4."""
AXIS = "length of the shorter axis"
SLOW = {"model": "slow-vae"}
MODELS = {"slow-vae": "SlowVAE", "slow-flow": "SlowFlow"}
COLLAPSE, STD = (float(law(RATE, gamma=GAMMA)) for law in (collapse_threshold, collapsed_std))
"""The length at which an axis is given up, and the deviation of its latent from then on (Spec 001a, section 3.7)."""


@studies.register("collapsing-axis")
@dataclass(frozen=True)
class CollapsingAxis(Study):
    """What a linear SlowVAE and a linear SlowFlow keep of a short axis; SlowVAE over the size of the observations."""

    title = "When a SlowVAE stops encoding an axis"
    source = (
        "Klindt, Schott, Sharma et al., Towards nonlinear disentanglement in natural data with temporal sparse coding "
        "(2021), appendix B, figures 6 and 7"
    )
    question = (
        "How short may an axis of the data be before a SlowVAE stops encoding it, and does the same happen to a flow?"
    )
    cost = {"smoke": "3 s", "laptop": "an hour", "paper": "hours"}
    training_lengths = {scale: max(setting.steps, setting.ambient_steps) for scale, setting in SETTINGS.items()}
    drawn = {
        "axis": Panels(
            (
                Scatter("mcc", "length", "model", called="MCC", along=AXIS, mark=COLLAPSE, names=MODELS),
                Scatter("gain", "length", where=SLOW, called="reconstructed share", along=AXIS, mark=COLLAPSE),
            ),
            where={"part": "axis"},
        ),
        "ambient": Panels(
            (
                Scatter("mcc", "ambient", called="MCC", along="coordinates", log=True),
                Scatter("loss", "ambient", along="coordinates", log=True),
            ),
            where={"part": "ambient"},
        ),
    }

    def jobs(self, scale: Scale) -> Sequence[Job]:
        setting = SETTINGS[scale]
        axes: list[Job] = [
            {"part": "axis", "model": model, "length": length, "seed": seed, "scale": scale}
            for model in ("slow-vae", "slow-flow")
            for length in setting.lengths
            for seed in setting.seeds
        ]
        return axes + [
            {"part": "ambient", "ambient": ambient, "seed": seed, "scale": scale}
            for ambient in setting.ambient
            for seed in setting.seeds
        ]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        setting = SETTINGS[job["scale"]]
        common = {"count": setting.pairs, "coefficient": 1.0, "rate": RATE, "start": "normal", "seed": job["seed"]}
        if job["part"] == "axis":
            world = Sources(dimension=2, layers=0, scales=(1.0, job["length"]), **common)
            training = TrainingConfig(setting.steps, 256, 3e-2, schedule="linear", seed=job["seed"], evaluate_every=0)
            if job["model"] == "slow-flow":
                config = RunConfig(world, SlowFlow(RATE), LinearFlowConfig(), training)
            else:
                config = RunConfig(world, SlowVAE(GAMMA, RATE), _autoencoder(2, Linear(), "constant"), training)
        else:
            world = Sources(dimension=setting.sources, layers=2, ambient=job["ambient"], **common)
            # The loss of 2000 coordinates has rare large gradients, from which Adam takes long to recover.
            training = TrainingConfig(
                setting.ambient_steps,
                64,
                5e-3,
                schedule="linear",
                warmup=setting.ambient_steps // 40,
                clip=50,
                seed=job["seed"],
                evaluate_every=0,
            )
            architecture = MLP((100, 100), (100, 100))
            config = RunConfig(
                world, SlowVAE(GAMMA, RATE), _autoencoder(setting.sources, architecture, "diagonal"), training
            )
        run = bench.train(config)
        count, pictures = min(setting.pairs, 5000), job["part"] == "axis"
        codes = represent(load_model(run), world, count=count, reconstructions=pictures)
        assert codes.factors is not None
        assert codes.index is not None
        row = {key: value for key, value in job.items() if key != "scale"}
        row |= {"mcc": mcc(codes.mean, codes.factors).value, "loss": run.result["train_loss"]}
        if codes.var is not None and codes.reconstruction is not None:
            # How much of the shorter axis comes back, and the deviation of the latent that moves least.
            x, again = world.observe(codes.index)[:, 1], codes.reconstruction[:, 1]
            least = int(codes.mean.var(axis=0).argmin())
            row |= {"gain": float(x @ again / (x @ x)), "std": float(np.sqrt(codes.var[:, least].mean()))}
        return [row]

    def claims(self, scale: Scale) -> list[Claim]:
        return [
            Claim(
                "A SlowVAE stops encoding the shorter axis below a predicted length",
                f"figure 6: below 0.4; exactly {COLLAPSE:.4f} (Spec 001a, section 3.7)",
                Near("threshold", COLLAPSE, by=0.03, called="length at which none of it is reconstructed", digits=3),
            ),
            Claim(
                "The variable of an axis that is no longer encoded has the variance of the prior",
                f"figure 6: its standard deviation is {STD:.4f} (Spec 001a, 3.7)",
                Near("collapsed_std", STD, by=0.02, called="standard deviation", digits=3),
            ),
            Claim(
                "A SlowVAE finds both factors only if it encodes both axes",
                "figure 6",
                All(
                    AtLeast("mcc_of_kept", 0.95, called="MCC of models that keep both axes"),
                    AtMost("mcc_of_collapsed", 0.9, called="MCC of models that encode only one"),
                ),
            ),
            Claim(
                "A SlowFlow finds both factors at every length",
                "figure 6: MCC 1.00",
                AtLeast("mcc_of_flow", 0.995, of="every", called="MCC", digits=4),
            ),
            Claim(
                "The MCC of a SlowVAE grows with the dimension of the observations",
                "figure 7: for 20, 200 and 2000 coordinates, although the loss gets worse",
                Rises("mcc_ambient", "ambient", by=0.05, called="MCC"),
            ),
        ]

    def readings(self, table: Table) -> Table:
        slow = table.where(part="axis", **SLOW)
        rows: list[Row] = []
        for seed, own in slow.by("seed"):
            near = [row for row in own.rows if FITTED[0] <= row["length"] <= FITTED[1]]
            if len(near) > 1:  # what comes back falls linearly in 1/length, and is nothing at the threshold
                slope, level = np.polyfit([1 / row["length"] for row in near], [row["gain"] for row in near], 1)
                rows.append({"seed": seed, "threshold": float(-slope / level)})
        for row in slow.rows:
            kept, lost = {"mcc_of_kept": row["mcc"]}, {"mcc_of_collapsed": row["mcc"], "collapsed_std": row["std"]}
            rows.append({"seed": row["seed"]} | (lost if row["gain"] < DEAD else kept))
        for row in table.where(part="axis", model="slow-flow").rows:
            rows.append({"seed": row["seed"], "mcc_of_flow": row["mcc"]})
        for row in table.where(part="ambient").rows:
            rows.append({"seed": row["seed"], "ambient": row["ambient"], "mcc_ambient": row["mcc"]})
        return Table(rows)


def _autoencoder(latents: int, architecture: Architecture, posterior: str) -> AutoencoderConfig:
    return AutoencoderConfig(latents, architecture, posterior, "gaussian", SQUARED)  # type: ignore[arg-type]
