"""Study: does gradient descent find the closed form of the linear VAE (Spec 002, sections 5.5 and 5.7)?"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import nn

from polariscope.measures.polarisation import per_variable_kl, trace_gap, variable_types
from polariscope.nets.architecture import Linear
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.report.figures import LIGHT, MARKERS, SUBJECTS, styled
from polariscope.representation import represent
from polariscope.studies.rows import plus_minus
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.theory.linear_vae import LinearVAE, rate_distortion, rotation_gap, solve
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.run import load_model
from polariscope.worlds.points import Gaussian
from polariscope.worlds.splits import RandomSplit

WORLD = Gaussian(exact=True)
GAMMA = 0.5
LATENTS = 5
BETAS = (0.1, 0.5, 1, 2, 4, 12)
TOLERANCE = 1e-2

SETTINGS: dict[Scale, dict[str, Any]] = {
    "smoke": {"betas": (1, 2), "seeds": 1, "steps": 60},
    "laptop": {"betas": BETAS, "seeds": 5, "steps": 10_000},
    "paper": {"betas": BETAS, "seeds": 5, "steps": 20_000},
}


@studies.register("linear-vae")
class LinearVAEStudy(Study):
    """Linear β-VAEs trained on Gaussian data of known spectrum, held against the optimum that can be written down."""

    title = "The linear VAE: trained against solved"
    source = "Bonheme 2023, sections 4.2 and 4.3 (Fig. 4.1); the optimum over a data set is Spec 002, section 5.5"
    question = "Does training find which latents are used, how sharply, and at what rate and distortion theory says?"
    cost = {"smoke": "a second", "laptop": "about 4 minutes", "paper": "about 12 minutes"}

    def jobs(self, scale: Scale) -> Sequence[Job]:
        settings = SETTINGS[scale]
        return [
            {"beta": beta, "seed": seed, "steps": settings["steps"]}
            for beta in settings["betas"]
            for seed in range(settings["seeds"])
        ]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        beta = job["beta"]
        model = load_model(bench.train(configuration(beta, job["seed"], job["steps"])))
        representation = represent(model, WORLD, count=len(WORLD))
        mean, var = representation.mean.astype(np.float64), representation.var
        assert var is not None
        x = WORLD.observe(np.arange(len(WORLD))).astype(np.float64)
        layer = model.decoder.get_submodule("output.0")
        assert isinstance(layer, nn.Linear)
        W, bias = (p.detach().double().numpy() for p in (layer.weight, layer.bias))
        best = optimum(beta)
        rate = float(per_variable_kl(mean, var).sum())
        # Over the posterior's noise the expectation is exact: no sample is drawn.
        squares = np.sum((x - mean @ W.T - bias) ** 2, axis=1).mean() + np.sum(var.mean(0) @ W.T**2)
        sigma = np.sort(var.mean(0))
        used = variable_types(var).subset("non-passive")
        return [
            job
            | {
                "sigma": sigma.tolist(),
                "sigma_error": float(np.abs(sigma - best.var).max()),
                "active": len(used),
                "active_expected": best.active_count,
                "trace_gap": trace_gap(var=var, estimator="analytic"),
                "trace_gap_expected": best.trace_gap,
                "rate": rate,
                "rate_expected": best.rate,
                "distortion": float(squares),
                "distortion_expected": best.distortion,
                "distortion_of_curve": distortion_at(rate),
                "cosine": largest_cosine(W[:, used]),
                "rotation_gap": rotation_gap(W, GAMMA, beta),
            }
        ]

    def claims(self, table: Table, scale: Scale) -> list[Claim]:
        betas = table.distinct("beta")
        worst = {beta: group.column("sigma_error").max() for beta, group in table.by("beta")}
        counts = {beta: group.distinct("active") for beta, group in table.by("beta")}
        expected = {beta: optimum(beta).active_count for beta in betas}
        gap = np.abs(table.column("trace_gap") - table.column("trace_gap_expected"))
        above = (table.column("distortion") - table.column("distortion_of_curve")) / sum(WORLD.spectrum)
        cosine = {beta: group.column("cosine").max() for beta, group in table.by("beta")}
        slopes, between = measured_slopes(table)
        return [
            Claim(
                "Posterior variances are θ/λ for latents in use and 1 for the others, θ = βγ",
                "σ = 1/(Λ²/θ + 1) (4.15, 4.22) at Λ² = λ − θ (Spec 002, table 5.5); within 0.01",
                "largest error " + listing(worst, ".4f") + f"; all runs {plus_minus(table.column('sigma_error'), 4)}",
                bool(max(worst.values()) <= TOLERANCE),
            ),
            Claim(
                "Exactly the latents whose eigenvalue exceeds θ are in use; a large β uses none",
                listing(expected, "d") + " in use (Spec 002, table 5.5)",
                "; ".join(f"β={beta:g}: {'/'.join(map(str, found))}" for beta, found in counts.items()),
                bool((table.column("active") == table.column("active_expected")).all()),
            ),
            Claim(
                "The trace gap Tr Var Z − Tr Var M is the sum of the posterior variances the closed form gives",
                listing({beta: optimum(beta).trace_gap for beta in betas}, ".3f") + " (Spec 002, table 5.5)",
                "; ".join(f"β={beta:g}: {plus_minus(group.column('trace_gap'), 3)}" for beta, group in table.by("beta"))
                + f"; largest error {gap.max():.4f}",
                bool(gap.max() <= 0.03),
            ),
            Claim(
                "Trained models lie on one rate-distortion curve, reverse water-filling, whatever β",
                "different β move along one curve (section 4.3.1, Fig. 4.1)",
                f"distortion off the curve at the same rate by {100 * np.abs(above).max():.2f} % of the data's "
                "variance at most",
                bool(np.abs(above).max() <= 0.01),
            ),
            Claim(
                "Along the curve the distortion in nats falls by β for each nat of rate",
                "slope −β (section 4.3.2); between two β it lies between theirs",
                "; ".join(f"β {low:g} to {high:g}: {slope:.2f}" for (low, high), slope in slopes.items()),
                between,
            ),
            Claim(
                "The diagonal posterior makes the columns of the decoder orthogonal",
                "WᵀW is diagonal at the optimum (section 4.2.2)",
                "largest |cosine| of two latents in use " + listing(cosine, ".3f") + "; the loss in the objective is "
                f"{table.column('rotation_gap').max():.4f} nats at most",
                bool(table.column("cosine").max() <= 0.1 and table.column("rotation_gap").max() <= 0.01),
                "the smaller β is, the weaker is the pull towards the axes, and the later they are reached",
            ),
        ]

    def figures(self, table: Table) -> dict[str, Figure]:
        return {"rate_distortion": draw_rate_distortion(table), "posterior_variances": draw_variances(table)}


def configuration(beta: float, seed: int, steps: int) -> RunConfig:
    """A linear β-VAE with one posterior variance a latent, trained on all points: their spectrum is exact."""
    model = AutoencoderConfig(LATENTS, Linear(), posterior="constant", likelihood="gaussian", variance=GAMMA)
    training = TrainingConfig(
        steps=steps,
        batch_size=512,
        learning_rate=0.05,
        schedule="cosine",
        seed=seed,
        evaluate_every=0,
        log_every=500,
        checkpoint_every=5_000,
    )
    return RunConfig(WORLD, BetaVAE(beta), model, training, RandomSplit(0.0))


def optimum(beta: float) -> LinearVAE:
    return solve(WORLD.spectrum, LATENTS, GAMMA, beta)


def curve(points: int = 400) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rates, rising, and distortions of the optimal curve, from all latents off to far more than any β here asks."""
    best = rate_distortion(WORLD.spectrum, LATENTS, GAMMA, np.geomspace(10, 0.01, points))
    return best.rate, best.distortion


def distortion_at(rate: float) -> float:
    return float(np.interp(rate, *curve(4_000)))


def largest_cosine(columns: NDArray[np.float64]) -> float:
    """Largest |cosine| between two columns; 0 if there are not two."""
    unit = columns / np.linalg.norm(columns, axis=0)
    return float(np.abs(np.triu(unit.T @ unit, 1)).max(initial=0.0))


def measured_slopes(table: Table) -> tuple[dict[tuple[float, float], float], bool]:
    """d(distortion / 2γ) / d rate between the means at neighbouring β, and whether all lie between the two −β."""
    betas = table.distinct("beta")
    rate, distortion = (
        np.array([group.mean(name) for _, group in table.by("beta")]) for name in ("rate", "distortion")
    )
    slopes = np.diff(distortion) / (2 * GAMMA) / np.diff(rate)
    pairs = list(itertools.pairwise(betas))
    between = all(-high <= slope <= -low for (low, high), slope in zip(pairs, slopes, strict=True))
    return dict(zip(pairs, slopes.tolist(), strict=True)), between


def listing(values: dict[float, Any], form: str) -> str:
    return "; ".join(f"β={beta:g}: {value:{form}}" for beta, value in values.items())


@styled
def draw_rate_distortion(table: Table) -> Figure:
    figure = Figure(figsize=(4.6, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.plot(*curve(), color=LIGHT["muted"], label="closed form", zorder=1)
    for number, (beta, group) in enumerate(table.by("beta")):
        axes.scatter(
            group.column("rate"),
            group.column("distortion"),
            color=LIGHT[SUBJECTS[number % len(SUBJECTS)]],
            marker=MARKERS[number % len(MARKERS)],
            s=26,
            edgecolor="white",
            linewidth=0.6,
            label=f"trained, β = {beta:g}",
            zorder=2,
        )
    axes.set_xlabel("rate (nats)")
    axes.set_ylabel("distortion (squared error)")
    axes.legend()
    return figure


@styled
def draw_variances(table: Table) -> Figure:
    groups = list(table.by("beta"))
    figure = Figure(figsize=(1.0 + 1.5 * len(groups), 2.4), layout="constrained")
    for axes, (beta, group) in zip(figure.subplots(1, len(groups), sharey=True, squeeze=False)[0], groups, strict=True):
        found, at = group.column("sigma"), np.arange(LATENTS)
        best = optimum(beta)
        axes.bar(at, found.mean(0), color=[LIGHT["active" if used else "passive"] for used in best.active])
        axes.scatter(at, best.var, color=LIGHT["ink"], marker="_", s=110, label="closed form")
        axes.set_title(f"β = {beta:g}")
        axes.set_xticks(at, [str(i + 1) for i in at])
        axes.grid(False, axis="x")
    figure.axes[0].set_ylabel("posterior variance")
    figure.supxlabel("latent, strongest first", fontsize=8.5, color=LIGHT["muted"])
    figure.axes[0].legend(loc="upper left")
    return figure
