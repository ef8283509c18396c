"""Where the correlations of the means come from: passive variables drift while nothing holds them in place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from polariscope.measures.polarisation import variable_types
from polariscope.measures.truncation import track_correlations
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.representation import represent
from polariscope.studies.criteria import Beats
from polariscope.studies.kit import Paths, Restarts
from polariscope.studies.polarised.settings import run_at
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, studies
from polariscope.training.run import load_model

SEEDS = {"smoke": 1, "laptop": 5, "paper": 5}
STEPS = {"smoke": 60, "laptop": 8000, "paper": 300_000}
SNAPSHOTS = {"smoke": 6, "laptop": 80, "paper": 300}
LATENTS = {"smoke": 5, "laptop": 5, "paper": 10}
"""Of ten latents the toy prunes eight, and then all have as many correlations: most are those with a passive one."""
SHADES = {"active": "active", "mixed": "mixed", "passive": "passive"}
"""The colour of each type of variable."""


@studies.register("snapshot-correlations")
class SnapshotCorrelations(Study):
    """Correlations between mean variables at snapshots of one training."""

    title = "Correlations of the mean variables over training"
    source = "Bonheme, The polarised regime of variational autoencoders (2023), section 6.5, figures 6.10-6.11"
    question = "Which variables are correlated in the means, and is that learned or drift?"
    cost = {"smoke": "a second", "laptop": "a minute", "paper": "a week"}
    drawn = {
        "counts": Restarts("count", "type", colours=SHADES, called="correlations above 0.2"),
        "paths": Paths(
            "path",
            "steps",
            by="type",
            colours=SHADES,
            where={"seed": 0},
            called="correlation with the first active variable",
            along="step",
        ),
    }

    def jobs(self, scale: Scale) -> Sequence[Job]:
        # Beta 8 on dSprites leaves a few variables in use; on the toy beta 2 does.
        beta = 8.0 if scale == "paper" else 2.0
        return [{"scale": scale, "beta": beta, "seed": seed, "steps": STEPS[scale]} for seed in range(SEEDS[scale])]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        config = run_at(job["scale"], BetaVAE(job["beta"]), job["seed"], job["steps"], SNAPSHOTS[job["scale"]])
        assert isinstance(config.model, AutoencoderConfig)
        config = replace(config, model=replace(config.model, latents=LATENTS[job["scale"]]))
        run = bench.train(config)
        means = {
            step: represent(load_model(run, step), config.world, count=2000).mean
            for step in run.snapshots()
            if step >= config.training.steps // 4  # before, no variable has its type yet
        }
        final = represent(load_model(run), config.world, count=2000)
        assert final.var is not None
        types = variable_types(final.var)
        track = track_correlations(means.values())
        rows: list[Row] = []
        anchor = int(types.active[0]) if len(types.active) else int(np.argmax(final.mean.var(0)))
        for j, label in enumerate(types.labels):
            path = track.of(anchor)[:, j]
            rows.append(
                {
                    "seed": job["seed"],
                    "variable": j,
                    "type": label,
                    "count": int(track.counts[j]),
                    "anchor": anchor,
                    "steps": list(means),
                    "path": path.round(4).tolist(),
                    "movement": float(np.std(path)) if j != anchor else None,
                }
            )
        return rows

    def claims(self, scale: Scale) -> list[Claim]:
        passive, active = {"type": "passive"}, {"type": "active"}
        return [
            Claim(
                "Passive variables have the most correlations above 0.2 over training",
                "figure 6.10: variables 1, 4, 6 (passive) highest",
                Beats("count", passive, active, by=0.01, relative=True, called="correlations above 0.2", digits=0),
            ),
            Claim(
                "Correlations of an active variable vary strongly with passive variables and hardly with active ones",
                "figure 6.11",
                Beats("movement", passive, active, by=1, relative=True, called="spread over snapshots", digits=3),
            ),
        ]
