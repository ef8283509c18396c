"""Walking silhouettes with more time between the two frames of a pair (table 2, figure 13)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from polariscope.measures.mcc import mcc
from polariscope.nets.architecture import Conv
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.objectives.objective import Objective
from polariscope.objectives.pm_vae import PMVAE
from polariscope.objectives.slow_vae import SlowVAE
from polariscope.representation import represent
from polariscope.studies.criteria import Beats, Rises
from polariscope.studies.kit import Restarts
from polariscope.studies.published import published
from polariscope.studies.rows import means
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.run import load_model
from polariscope.worlds.renderers.masks import Walkers
from polariscope.worlds.views.sequences import FramePairs

OBJECTIVES: dict[str, Objective] = {"slow-vae": SlowVAE(), "pm-vae": PMVAE()}
COLOURS = {"slow-vae": "first", "pm-vae": "third"}
LATENTS = 10


@dataclass(frozen=True)
class Setting:
    seeds: int
    rivals: int
    """Seeds of PM-VAE, on the frames that are furthest apart."""
    walkers: Walkers
    steps: int
    furthest: tuple[int, ...]
    learning_rate: float = 1e-3


SETTINGS: dict[Scale, Setting] = {
    "smoke": Setting(1, 1, Walkers(6, size=16), 5, (1, 3)),
    "laptop": Setting(8, 5, Walkers(200, size=32), 3000, (1, 5)),
    "paper": Setting(10, 10, Walkers(2120), 300_000, (1, 2, 3, 5, 10), 1e-4),
}


@studies.register("frames-apart")
@dataclass(frozen=True)
class FramesApart(Study):
    """MCC of SlowVAE on walkers over the largest distance of two frames, and of PM-VAE at the largest."""

    title = "Time between two frames"
    source = (
        "Klindt, Schott, Sharma et al., Towards nonlinear disentanglement in natural data with temporal sparse coding "
        "(2021), section 5, tables 2 and 15, figure 13"
    )
    question = "How far apart should the frames be that a SlowVAE is trained on?"
    cost = {"smoke": "3 s", "laptop": "84 minutes", "paper": "weeks"}
    training_lengths = {scale: setting.steps for scale, setting in SETTINGS.items()}
    drawn = {"mcc": Restarts("mcc", ("furthest", "model"), COLOURS, called="MCC", along="frames apart, at most")}

    def jobs(self, scale: Scale) -> Sequence[Job]:
        setting = SETTINGS[scale]
        seen = [("slow-vae", furthest, setting.seeds) for furthest in setting.furthest]
        return [
            {"model": model, "furthest": furthest, "seed": seed, "scale": scale}
            for model, furthest, seeds in [*seen, ("pm-vae", setting.furthest[-1], setting.rivals)]
            for seed in range(seeds)
        ]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        setting = SETTINGS[job["scale"]]
        world = FramePairs(setting.walkers, job["furthest"])
        training = TrainingConfig(setting.steps, 32, setting.learning_rate, seed=job["seed"], evaluate_every=0)
        run = bench.train(RunConfig(world, OBJECTIVES[job["model"]], AutoencoderConfig(LATENTS, Conv()), training))
        said = represent(load_model(run), world, count=10_000)
        assert said.factors is not None
        row = {name: job[name] for name in ("model", "furthest", "seed")}
        return [row | {"mcc": mcc(said.mean, said.factors).value}]

    def claims(self, scale: Scale) -> list[Claim]:
        far = {"furthest": SETTINGS[scale].furthest[-1]}
        slow, matched = {"model": "slow-vae"}, {"model": "pm-vae"}
        return [
            Claim(
                "More time between frames helps",
                "table 2: MCC 66.1 (4.5) at 0.05 s, 79.6 (5.8) at 0.15 s; figure 13",
                Rises("mcc", "furthest", by=0.03, slack=None, where=slow, called="MCC"),
            ),
            Claim(
                "Walkers need a sparse prior: matching posteriors performs worse",
                "table 15, KITTI at 0.15 s: 79.6 (SlowVAE) against 60.7 to 78.2 (PM-VAE)",
                Beats("mcc", slow | far, matched | far, by=0.02, called="MCC"),
            ),
        ]

    def beside(self, table: Table) -> list[Row]:
        scores = published("inductive_biases/slow-vae-mcc").rows["SlowVAE"]
        printed = {1: scores["KITTI 0.05 s"], 5: scores["KITTI 0.15 s"]}
        return [
            {"frames apart, at most": furthest, "model": model}
            | {"published MCC (percent)": str(printed.get(furthest, "-") if model == "slow-vae" else "-")}
            | means(own, {"MCC here": "mcc"}, 1, 100)
            for furthest, runs in table.by("furthest")
            for model, own in runs.by("model")
        ]
