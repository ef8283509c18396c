"""Study: the linear identifiable VAE, its closed forms compared with plain optimisation (Spec 002, section 7.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from polariscope.studies.criteria import All, AtLeast, AtMost
from polariscope.studies.kit import Scatter
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.theory.linear_ivae import (
    LinearIVAE,
    both_learned_objective,
    objective,
    optimal_prior_var,
    optimal_var,
    scalar_solution,
    solve,
)

Floats = NDArray[np.float64]

TRIPLES = {
    (2.0, 1.0, 0.1): (0.45, 0.0225, 0.225),
    (1.0, 3.0, 0.5): (2.8333, 0.47222, 8.5),
    (0.7, -2.0, 1.0): (-2.142857, 1.530612, 6.122449),
}
"""Spec 002, section 7.2: (decoder weight, x, γ) and the optimal (mean, variance, prior variance)."""
INPUTS, LATENTS, USEFUL = 6, 5, 3
GROUPS, MEMBERS = 2, 8
GAMMA = 0.1  # of the random decoders
WEIGHT, THRESHOLD = 1.5, 1.0  # decoder and γ of the one-latent model whose u have different energies
FLOOR = -18.0  # logarithm at which a prior variance that falls to 0 comes to rest
IN_USE = 1e-3  # a latent is in use if the prior lets it add more than this share of γ to the output

SETTINGS: dict[Scale, dict[str, int]] = {
    "smoke": {"models": 1, "starts": 1, "points": 4},
    "laptop": {"models": 30, "starts": 5, "points": 40},
    "paper": {"models": 200, "starts": 10, "points": 100},
}


@studies.register("linear-ivae")
class LinearIVAEStudy(Study):
    """What a learned conditional prior does to the polarised regime, in a model that has closed forms."""

    title = "The linear identifiable VAE: the prior decides what is relevant"
    source = "Bonheme 2023, section 5.2; closed forms in Spec 002, section 7.2"
    question = "Which latents stay in use when the prior's variance is learned, and what if its mean is learned too?"
    cost = {"smoke": "2 s", "laptop": "about a minute", "paper": "about 10 minutes"}
    drawn = {
        "relevance": Scatter(
            "prior_var",
            against="energy",
            by="in_use",
            colours={True: "active", False: "passive"},
            names={True: "active, found", False: "passive, found"},
            where={"part": "threshold"},
            called="prior variance",
            along="E[x²|u] (dashes: γ)",
            mark=THRESHOLD,
            guides={"closed form": lambda energy: np.maximum(energy - THRESHOLD, 0) / WEIGHT**2},
        )
    }

    def jobs(self, scale: Scale) -> Sequence[Job]:
        settings = SETTINGS[scale]
        models = [{"part": "decoder", "seed": seed, "starts": settings["starts"]} for seed in range(settings["models"])]
        threshold = {"part": "threshold", "points": settings["points"]}
        return [{"part": "triples"}, threshold, {"part": "copies"}, {"part": "both"}, *models]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        return [{"part": job["part"]} | row for row in PARTS[job["part"]](job)]

    def claims(self, scale: Scale) -> list[Claim]:
        return [
            Claim(
                "Optimising the objective with one input and one latent gives the closed form",
                "; ".join(f"μ {m:g}, Σ {v:g}, Σ† {p:g}" for m, v, p in TRIPLES.values()) + " (Spec 002, section 7.2)",
                no_more("error", 1e-3, "triples", "relative error"),
            ),
            Claim(
                "The prior prunes as automatic relevance determination does: in use exactly where E[x²|u] > γ",
                "w²Σ† = max(E[x²|u] − γ, 0), one prior for all x of a u (Spec 002, section 7.2)",
                All(
                    AtMost("wrong_side", 0, where={"part": "threshold"}, called="share of the u on the wrong side"),
                    no_more("error", 1e-3, "threshold", "error of the prior variance"),
                ),
            ),
            Claim(
                "Of codes with the same reconstruction the one with fewer active variables is strictly better",
                "k active and n − k passive at the optimum (Theorem 5.2.2)",
                All(
                    at_least("cost", 0.1, "copies", "cost of a further copy of a latent that shares its work (nats)"),
                    no_more("residual", 1e-12, "copies", "error of the reconstruction"),
                ),
            ),
            Claim(
                "Posterior and prior that are each optimal given the other are an optimum of the objective",
                "conditions (5.12) to (5.14)",
                no_more("gain_from_fixed_point", 1e-5, "decoder", "gain of optimisation from there (nats)"),
                note="the objective has several optima, and the fixed point need not be the best of them",
            ),
            Claim(
                "Latents that do not help the reconstruction are passive: μ ≈ 0 and Σ ≈ Σ†, with values other than 1",
                f"Proposition 5.2.2 and Theorem 5.2.2; here {LATENTS - USEFUL} of {LATENTS} latents",
                All(
                    no_more("spurious", 0, "decoder", "number of them in use"),
                    no_more("passive_mean", 1e-2, "decoder", "|μ| of the passive"),
                    no_more("passive_prior_var", 1e-2, "decoder", "Σ† of the passive"),
                    no_more("passive_ratio", 1e-2, "decoder", "|Σ/Σ† − 1| of the passive"),
                ),
            ),
            Claim(
                "With mean and variance of the prior both learned there is no optimum",
                "Theorem 5.2.1: it would need W = 0 or γ → ∞",
                at_least("rise", 1, "both", "rise of the objective at a tenfold cut of both variances (nats)"),
            ),
        ]

    def readings(self, table: Table) -> Table:
        """Which u are on the wrong side, and what each step of a path costs or gains."""
        relevance, copied, learned = (table.where(part=part) for part in ("threshold", "copies", "both"))
        wrong = relevance.column("in_use") != relevance.column("expected")
        derived = {
            ("threshold", "wrong_side"): wrong.tolist(),
            ("copies", "cost"): (-np.diff(copied.column("elbo"))).tolist(),
            ("both", "rise"): np.diff(learned.column("elbo")).tolist(),
        }
        rows = [{"part": part, name: value} for (part, name), values in derived.items() for value in values]
        return Table(table.rows + rows)


def no_more(column: str, bound: float, part: str, called: str) -> AtMost:
    return AtMost(column, bound, of="every", where={"part": part}, called=called)


def at_least(column: str, bound: float, part: str, called: str) -> AtLeast:
    return AtLeast(column, bound, of="every", where={"part": part}, called=called)


def triples(job: Job) -> list[Row]:
    """The scalar cases of the table, by optimisation; the error is the larger of theory's and of optimisation's."""
    rows = []
    for (w, x, gamma), published in TRIPLES.items():
        found = optimise(Problem(np.array([[w]]), np.array([[x]]), gamma, np.zeros(1, np.int64)), seed=0)
        values = np.array([found.mean.item(), found.var.item(), found.prior_var.item()])
        closed = scalar_solution(w, x, gamma)
        exact = np.array([closed.mean, closed.var, closed.prior_var], dtype=float)
        error = max(np.abs(values / exact - 1).max(), np.abs(exact / published - 1).max())
        named = dict(zip(("mean", "var", "prior_var"), values.tolist(), strict=True))
        rows.append({"w": w, "x": x, "gamma": gamma, "error": float(error)} | named)
    return rows


def threshold(job: Job) -> list[Row]:
    """One latent and many u with a few x each: the prior variance of a u against the second moment of its x."""
    w, gamma, half = WEIGHT, THRESHOLD, job["points"] // 2
    # The threshold itself is left out: there all small prior variances are nearly as good.
    energy = np.concatenate([np.linspace(0.1, 0.9, half), np.linspace(1.1, 4.0, half)])
    x = np.random.default_rng(0).normal(size=(len(energy), MEMBERS))
    x *= np.sqrt(energy / np.mean(x**2, axis=1))[:, None]
    group = np.repeat(np.arange(len(energy)), MEMBERS)
    found = optimise(Problem(np.array([[w]]), x.reshape(-1, 1), gamma, group), seed=0).prior_var[::MEMBERS, 0]
    exact = np.maximum(energy - gamma, 0) / w**2
    columns = {
        "energy": energy,
        "prior_var": found,
        "exact": exact,
        "error": np.abs(found - exact),
        "in_use": w**2 * found > IN_USE * gamma,
        "expected": energy > gamma,
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*(c.tolist() for c in columns.values()), strict=True)]


def copies(job: Job) -> list[Row]:
    """One direction decoded by 1 to 4 equal latents that share the work: the same reconstruction of the mean."""
    direction, gamma, code = np.array([[1.0], [2.0], [-1.0]]), 0.1, 1.5
    rows = []
    for count in range(1, 5):
        W, mean = np.tile(direction, count), np.full((1, count), code / count)
        var = optimal_var(mean, np.linalg.norm(W, axis=0), gamma)
        elbo = objective(code * direction.T, W, gamma, mean, var, prior_var=optimal_prior_var(mean, var))
        residual = float(np.abs(code * direction.T - mean @ W.T).max())
        rows.append({"copies": count, "elbo": elbo.item(), "residual": residual})
    return rows


def both(job: Job) -> list[Row]:
    """The objective along the way out: the prior copies the posterior, whose variance falls with the decoder's."""
    W, mean = np.random.default_rng(0).normal(size=(INPUTS, LATENTS)), np.ones((1, LATENTS))
    return [
        {"var": var, "elbo": both_learned_objective(mean @ W.T, W, var, mean, np.full(LATENTS, var)).item()}
        for var in 10.0 ** -np.arange(8)
    ]


def decoder(job: Job) -> list[Row]:
    """A random decoder whose last latents point where the data never go: fixed point and optimisation side by side."""
    rng = np.random.default_rng(job["seed"])
    basis = np.linalg.qr(rng.normal(size=(INPUTS, INPUTS)))[0]
    useful = basis[:, :USEFUL] @ rng.normal(size=(USEFUL, USEFUL))
    useless = basis[:, USEFUL:] @ rng.normal(size=(INPUTS - USEFUL, LATENTS - USEFUL))
    W = np.hstack([useful, useless])
    group = np.repeat(np.arange(GROUPS), MEMBERS)
    problem = Problem(W, rng.normal(size=(len(group), USEFUL)) @ useful.T, GAMMA, group)
    fixed = solve(W, problem.x, GAMMA, groups=group)
    level = problem.elbo(fixed)
    gain = problem.elbo(optimise(problem, start=fixed)) - level
    rows = []
    for start in range(job["starts"]):
        found = optimise(problem, seed=start)
        passive = ~problem.in_use(found)
        rows.append(
            {
                "seed": job["seed"],
                "start": start,
                "gain_from_fixed_point": gain,
                "gain_from_random_start": problem.elbo(found) - level,
                "spurious": int((~passive)[::MEMBERS, USEFUL:].sum()),
                "passive_mean": float(np.abs(found.mean[passive]).max()),
                "passive_prior_var": float(found.prior_var[passive].max()),
                "passive_ratio": float(np.abs(found.var / found.prior_var - 1)[passive].max()),
            }
        )
    return rows


PARTS: dict[str, Callable[[Job], list[Row]]] = {
    "triples": triples,
    "threshold": threshold,
    "copies": copies,
    "both": both,
    "decoder": decoder,
}


@dataclass(frozen=True, eq=False)
class Problem:
    """A decoder and data, with the u of each row numbered from 0."""

    W: Floats
    x: Floats
    gamma: float
    group: NDArray[np.int64]

    def elbo(self, solution: LinearIVAE) -> float:
        """The objective, averaged over the rows."""
        s = solution
        return float(objective(self.x, self.W, self.gamma, s.mean, s.var, prior_var=s.prior_var).mean())

    def in_use(self, solution: LinearIVAE) -> NDArray[np.bool_]:
        return np.asarray(solution.prior_var * np.sum(self.W**2, axis=0) > IN_USE * self.gamma)


def optimise(problem: Problem, seed: int = 0, start: LinearIVAE | None = None) -> LinearIVAE:
    """The best posterior and prior by L-BFGS on the objective itself: no stationarity condition is made use of.

    Means and variances are searched in units of the prior's, in which a latent that turns passive does not stall.
    """
    rows, latents, groups = len(problem.x), problem.W.shape[1], int(problem.group.max()) + 1
    sizes = [rows * latents, rows * latents, groups * latents]
    W, x, group = (torch.from_numpy(a) for a in (problem.W, problem.x, problem.group))

    def unpack(flat: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        shift, log_ratio, log_prior = (part.view(-1, latents) for part in flat.split(sizes))
        prior = log_prior.exp()[group]
        return shift * prior.sqrt(), log_ratio.exp() * prior, prior

    def loss(flat: Floats) -> tuple[float, Floats]:
        parameters = torch.tensor(flat, requires_grad=True)
        mean, var, prior = unpack(parameters)
        error = (x - mean @ W.T).square().sum() + (var @ W.square().sum(0)).sum()
        value = error / (2 * problem.gamma) + kl_divergence(Normal(mean, var.sqrt()), Normal(0.0, prior.sqrt())).sum()
        value.backward()
        assert parameters.grad is not None
        return value.item(), parameters.grad.numpy()

    if start is None:
        first = np.concatenate([np.random.default_rng(seed).normal(size=sizes[0]), np.zeros(sizes[1] + sizes[2])])
    else:
        _, one_a_group = np.unique(problem.group, return_index=True)
        parts = (start.mean / np.sqrt(start.prior_var), np.log(start.var / start.prior_var))
        first = np.concatenate([*map(np.ravel, parts), np.log(start.prior_var[one_a_group]).ravel()])
        first[-sizes[2] :] = np.maximum(first[-sizes[2] :], FLOOR)
    bounds = [(None, None)] * (sizes[0] + sizes[1]) + [(FLOOR, None)] * sizes[2]
    options = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-15, "gtol": 1e-8, "maxcor": 30}
    best = minimize(loss, first, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    mean, var, prior = (part.numpy() for part in unpack(torch.from_numpy(best.x)))
    found = LinearIVAE(mean, var, prior, np.zeros(mean.shape, bool))
    return LinearIVAE(mean, var, prior, problem.in_use(found))
