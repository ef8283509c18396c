"""Study: does gradient descent find the closed form of the linear VAE (Spec 002, sections 5.5 and 5.7)?"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import nn

from polariscope.measures.polarisation import per_variable_kl, trace_gap, variable_types
from polariscope.nets.architecture import Linear
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.report.figures import LIGHT, panels, styled
from polariscope.representation import represent
from polariscope.studies.criteria import All, AtMost, Between, Near
from polariscope.studies.kit import Scatter
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.theory.linear_vae import LinearVAE, rate_distortion, rotation_gap, solve
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.run import load_model
from polariscope.worlds.points.synthetic import Gaussian
from polariscope.worlds.splits import RandomSplit

WORLD = Gaussian(exact=True)
GAMMA = 0.5
LATENTS = 5
BETAS = (0.1, 0.5, 1, 2, 4, 12)


@dataclass(frozen=True)
class Setting:
    betas: tuple[float, ...]
    seeds: int
    steps: int


SETTINGS: dict[Scale, Setting] = {
    "smoke": Setting(betas=(1, 2), seeds=1, steps=60),
    "laptop": Setting(betas=BETAS, seeds=5, steps=10_000),
    "paper": Setting(betas=BETAS, seeds=5, steps=20_000),
}


@studies.register("linear-vae")
class LinearVAEStudy(Study):
    """Linear β-VAEs trained on Gaussian data of known spectrum, compared with the optimum in closed form."""

    title = "The linear VAE: trained against solved"
    source = "Bonheme 2023, sections 4.2 and 4.3 (Fig. 4.1); the optimum over a data set is Spec 002, section 5.5"
    question = "Does training find which latents are used, how sharply, and at what rate and distortion theory says?"
    cost = {"smoke": "a second", "laptop": "about 4 minutes", "paper": "about 12 minutes"}
    drawn = {
        "rate_distortion": Scatter(
            "distortion",
            against="rate",
            by="beta",
            called="distortion (squared error)",
            along="rate (nats)",
            guides={"closed form": lambda rate: np.interp(rate, *curve())},
        )
    }

    def jobs(self, scale: Scale) -> Sequence[Job]:
        setting = SETTINGS[scale]
        return [
            {"beta": beta, "seed": seed, "steps": setting.steps}
            for beta in setting.betas
            for seed in range(setting.seeds)
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

    def claims(self, scale: Scale) -> list[Claim]:
        best = {beta: optimum(beta) for beta in SETTINGS[scale].betas}
        above = "the number whose eigenvalue exceeds θ"
        off_curve = "distance from the curve at the same rate, as a share of the data's variance,"
        place = "place of the slope between those of its two β, 0 and 1,"
        return [
            Claim(
                "Posterior variances are θ/λ for latents in use and 1 for the others, θ = βγ",
                "σ = 1/(Λ²/θ + 1) (4.15, 4.22) at Λ² = λ − θ (Spec 002, table 5.5); within 0.01",
                AtMost("sigma_error", 1e-2, of="every", called="largest error of a model's variances", digits=4),
            ),
            Claim(
                "Exactly the latents whose eigenvalue exceeds θ are in use; a large β uses none",
                "; ".join(f"β={beta:g}: {one.active_count}" for beta, one in best.items())
                + " in use (Spec 002, table 5.5)",
                Near("active", "active_expected", 0, of="every", called="number of latents in use", to=above, digits=0),
            ),
            Claim(
                "The trace gap Tr Var Z − Tr Var M is the sum of the posterior variances the closed form gives",
                "; ".join(f"β={beta:g}: {one.trace_gap:.3f}" for beta, one in best.items()) + " (Spec 002, table 5.5)",
                Near("trace_gap", "trace_gap_expected", by=0.03, of="every", to="the closed form", digits=3),
            ),
            Claim(
                "Trained models lie on one rate-distortion curve, reverse water-filling, whatever β",
                "different β move along one curve (section 4.3.1, Fig. 4.1)",
                AtMost("off_curve", 0.01, of="every", called=off_curve, digits=4),
            ),
            Claim(
                "Along the curve the distortion in nats falls by β for each nat of rate",
                "slope −β (section 4.3.2); between two β it lies between theirs",
                Between("place", 0, 1, of="every", each="betas", called=place),
            ),
            Claim(
                "The diagonal posterior makes the columns of the decoder orthogonal",
                "WᵀW is diagonal at the optimum (section 4.2.2)",
                All(
                    AtMost("cosine", 0.1, of="every", called="largest |cosine| of two latents in use", digits=3),
                    AtMost("rotation_gap", 0.01, of="every", called="loss in the objective (nats)", digits=4),
                ),
                note="the smaller β is, the weaker is the pull towards the axes, and the later they are reached",
            ),
        ]

    def readings(self, table: Table) -> Table:
        def off_curve(row: Row) -> float:
            return float(abs(row["distortion"] - row["distortion_of_curve"]) / sum(WORLD.spectrum))

        return Table([row | {"off_curve": off_curve(row)} for row in table.rows] + slopes(table))

    def figures(self, table: Table) -> dict[str, Figure]:
        return super().figures(table) | {"posterior_variances": draw_variances(table)}


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


def slopes(table: Table) -> list[Row]:
    """d(distortion / 2γ) / d rate between neighbouring β of each seed: 0 is the slope of the first, 1 the second's."""
    rows = []
    for seed, group in table.by("seed"):
        for (low, first), (high, second) in itertools.pairwise(group.by("beta")):
            fall = first.mean("distortion") - second.mean("distortion")
            slope = fall / (2 * GAMMA) / (first.mean("rate") - second.mean("rate"))
            place = (-slope - low) / (high - low)
            rows.append({"seed": seed, "betas": f"{low:g} to {high:g}", "slope": slope, "place": place})
    return rows


@styled
def draw_variances(table: Table) -> Figure:
    groups = list(table.by("beta"))
    figure, places = panels(len(groups), 1.5, 2.4, (1.0, 0.0), sharey=True)
    for axes, (beta, group) in zip(places, groups, strict=True):
        variances, at = group.column("sigma"), np.arange(LATENTS)
        best = optimum(beta)
        axes.bar(at, variances.mean(0), color=[LIGHT["active" if used else "passive"] for used in best.active])
        axes.scatter(at, best.var, color=LIGHT["ink"], marker="_", s=110, label="closed form")
        axes.set_title(f"β = {beta:g}")
        axes.set_xticks(at, [str(i + 1) for i in at])
        axes.grid(False, axis="x")
    figure.axes[0].set_ylabel("posterior variance")
    figure.supxlabel("latent, strongest first", fontsize=8.5, color=LIGHT["muted"])
    figure.axes[0].legend(loc="upper left")
    return figure
