"""Study: the linear identifiable VAE, its fixed point held against plain optimisation (Spec 002, section 7.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor
from torch.distributions import Independent, Normal, kl_divergence

from polariscope.report.figures import LIGHT, styled
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, plus_minus, studies
from polariscope.theory.linear_ivae import both_learned_objective, objective, scalar_solution, solve

Floats = NDArray[np.float64]

TRIPLES = (
    (2.0, 1.0, 0.1, (0.45, 0.0225, 0.225)),
    (1.0, 3.0, 0.5, (2.8333, 0.47222, 8.5)),
    (0.7, -2.0, 1.0, (-2.142857, 1.530612, 6.122449)),
)
"""Spec 002, section 7.2: decoder weight, x, γ and the optimal mean, variance and prior variance."""
INPUTS, LATENTS, USEFUL = 8, 6, 3
FLOOR = -18.0  # logarithm at which variances that fall to 0 come to rest
IN_USE = 1e-3  # share of γ that the prior lets a latent add to the output, above which it counts as in use

SETTINGS: dict[Scale, dict[str, int]] = {
    "smoke": {"models": 2, "examples": 4, "points": 12},
    "laptop": {"models": 20, "examples": 16, "points": 40},
    "paper": {"models": 100, "examples": 32, "points": 80},
}


@studies.register("linear-ivae")
class LinearIVAEStudy(Study):
    """What a learned conditional prior does to the polarised regime, in a model where it can be worked out."""

    title = "The linear identifiable VAE: relevance decided by the prior"
    source = "Bonheme 2023, section 5.2 and appendix A; closed forms in Spec 002, section 7.2"
    question = "Which latents stay in use when the variance of the prior is learned, and what happens if its mean is too?"
    cost = {"smoke": "about 5 s", "laptop": "about a minute", "paper": "about 10 minutes"}

    def jobs(self, scale: Scale) -> Sequence[Job]:
        settings = SETTINGS[scale]
        rest = [{"part": "model", "seed": seed, "examples": settings["examples"]} for seed in range(settings["models"])]
        return [{"part": "triples"}, {"part": "threshold", "points": settings["points"]}, {"part": "collapse"}, *rest]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        rows = {"triples": triples, "threshold": threshold, "collapse": collapse, "model": random_model}[job["part"]]
        return [{"part": job["part"]} | row for row in rows(job)]

    def claims(self, table: Table, scale: Scale) -> list[Claim]:
        scalar, relevance, collapsing, models = (
            table.where(part=part) for part in ("triples", "threshold", "collapse", "model")
        )
        rising = np.diff(collapsing.column("elbo"))
        wrong = int((relevance.column("in_use") != relevance.column("expected")).sum())
        return [
            Claim(
                "Optimising the objective of one input and one latent gives the closed form",
                "; ".join(f"μ, Σ, Σ† = {m:g}, {v:g}, {p:g}" for *_, (m, v, p) in TRIPLES) + " (Spec 002, section 7.2)",
                "; ".join(f"{r['mean']:.4f}, {r['var']:.5f}, {r['prior_var']:.4f}" for r in scalar.rows)
                + f"; largest relative error {scalar.column('error').max():.1e}",
                bool(scalar.column("error").max() <= 1e-3),
            ),
            Claim(
                "The prior prunes as automatic relevance determination does: in use exactly where E[x²|u] > γ",
                "Σ†w² = max(E[x²|u] − γ, 0), shared by all x of one u (Spec 002, section 7.2)",
                f"{wrong} of {len(relevance)} values of u on the wrong side; prior variance off by "
                f"{relevance.column('error').max():.1e} at most",
                bool(wrong == 0 and relevance.column("error").max() <= 1e-3),
            ),
            Claim(
                "The fixed point of the four stationarity conditions is the optimum",
                "conditions (5.4) to (5.14), section 5.2.2",
                f"free optimisation ends {plus_minus(models.column('advantage'), 6)} nats an example above it over "
                f"{len(models)} random decoders (largest {models.column('advantage').max():.1e})",
                bool(models.column("advantage").max() <= 1e-3),
            ),
            Claim(
                f"Of {LATENTS} latents of which {USEFUL} help the reconstruction, the others are passive",
                f"k = {USEFUL} in use, n − k = {LATENTS - USEFUL} passive (Theorem 5.2.2)",
                f"fixed point {spread_of(models, 'useful_only')}, free optimisation {spread_of(models, 'found')} in use",
                bool(
                    (models.column("useful_only") <= USEFUL).all()
                    and (models.column("spurious") == 0).all()
                    and (models.column("found_spurious") == 0).all()
                ),
            ),
            Claim(
                "Active: Σ ≪ 1 and Σ† ≈ μ². Passive: μ ≈ 0 and Σ ≈ Σ†, though neither is 1",
                "Propositions 5.2.1 and 5.2.2",
                f"passive: largest |μ| {models.column('passive_mean').max():.1e}, |Σ/Σ† − 1| "
                f"{models.column('passive_ratio').max():.1e}, largest Σ† {models.column('passive_prior').max():.1e}; "
                f"active: Σ† = μ² + Σ within {models.column('prior_error').max():.1e}",
                bool(
                    max(models.column(c).max() for c in ("passive_mean", "passive_ratio", "passive_prior")) <= 1e-3
                    and models.column("prior_error").max() <= 1e-6
                ),
            ),
            Claim(
                "With mean and variance of the prior both learned there is no optimum",
                "Theorem 5.2.1",
                f"the objective rises at each of {len(rising)} tenfold cuts of the posterior variance, from "
                f"{collapsing.column('elbo')[0]:.2f} to {collapsing.column('elbo')[-1]:.2f} nats, with a divergence of "
                f"{collapsing.column('kl').max():.1g}",
                bool((rising > 0).all() and collapsing.column("kl").max() <= 1e-12),
            ),
        ]

    def figures(self, table: Table) -> dict[str, Figure]:
        return {"relevance": draw_relevance(table.where(part="threshold"))}


def triples(job: Job) -> list[Row]:
    """The published scalar cases, each by free optimisation."""
    rows = []
    for w, x, gamma, expected in TRIPLES:
        found = optimise(np.array([[w]]), np.array([[x]]), gamma, np.zeros(1, np.int64))
        closed = scalar_solution(w, x, gamma)
        got = np.array([found.mean.item(), found.var.item(), found.prior_var.item()])
        exact = np.array([closed.mean, closed.var, closed.prior_var], dtype=float)
        error = max(np.abs(got / exact - 1).max(), np.abs(exact / np.array(expected) - 1).max())
        rows.append({"w": w, "x": x, "gamma": gamma, "error": float(error)} | dict(zip(FIELDS, got.tolist(), strict=True)))
    return rows


FIELDS = ("mean", "var", "prior_var")


def threshold(job: Job) -> list[Row]:
    """One latent, many u with five x each: the prior variance of a u against the second moment of its x."""
    w, gamma, members = 1.5, 1.0, 5
    rng = np.random.default_rng(0)
    # Not evenly spaced, so that no u lies on the threshold itself, where all prior variances are equally good.
    energy = np.concatenate([np.linspace(0.1, 0.9, job["points"] // 2), np.linspace(1.1, 4.0, job["points"] // 2)])
    x = rng.normal(size=(len(energy), members))
    x *= np.sqrt(energy / np.mean(x**2, axis=1))[:, None]
    group = np.repeat(np.arange(len(energy)), members)
    found = optimise(np.array([[w]]), x.reshape(-1, 1), gamma, group)
    prior = found.prior_var[::members, 0]
    exact = np.maximum(energy - gamma, 0) / w**2
    return [
        {
            "energy": float(e),
            "prior_var": float(p),
            "exact": float(t),
            "error": float(abs(p - t)),
            "in_use": bool(p * w**2 > IN_USE * gamma),
            "expected": bool(e > gamma),
        }
        for e, p, t in zip(energy, prior, exact, strict=True)
    ]


def random_model(job: Job) -> list[Row]:
    """A random decoder whose last latents point where the data never go: fixed point and free optimum side by side."""
    rng = np.random.default_rng(job["seed"])
    gamma = 0.1
    basis = np.linalg.qr(rng.normal(size=(INPUTS, INPUTS)))[0]
    # Columns within each half are oblique; the second half is orthogonal to all data.
    useful = basis[:, :USEFUL] @ rng.normal(size=(USEFUL, USEFUL))
    useless = basis[:, USEFUL:] @ rng.normal(size=(INPUTS - USEFUL, LATENTS - USEFUL))
    W = np.hstack([useful, useless])
    x = rng.normal(scale=3.0, size=(job["examples"], USEFUL)) @ useful.T
    rows = []
    each = np.arange(len(x))
    fixed = solve(W, x, gamma)
    free = optimise(W, x, gamma, each, start=rng)
    strength = np.sum(W**2, axis=0) / gamma
    fixed_elbo, free_elbo = (
        objective(x, W, gamma, s.mean, s.var, 0.0, s.prior_var) for s in (fixed, free)
    )
    found = free.prior_var * strength > IN_USE
    passive = ~found
    for i in each:
        rows.append(
            {
                "seed": job["seed"],
                "example": int(i),
                "advantage": float(free_elbo[i] - fixed_elbo[i]),
                "useful_only": int(fixed.active[i].sum()),
                "spurious": int(fixed.active[i, USEFUL:].sum()),
                "found": int(found[i].sum()),
                "found_spurious": int(found[i, USEFUL:].sum()),
                "passive_mean": float(np.abs(free.mean[i][passive[i]]).max(initial=0.0)),
                "passive_ratio": float(np.abs(free.var[i] / free.prior_var[i] - 1)[passive[i]].max(initial=0.0)),
                "passive_prior": float(free.prior_var[i][passive[i]].max(initial=0.0)),
                "prior_error": float(np.abs(fixed.prior_var[i] - fixed.var[i] - fixed.mean[i] ** 2)[fixed.active[i]].max(initial=0)),
            }
        )
    return rows
