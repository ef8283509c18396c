"""The argument in pictures: why a VAE's axes are principal axes (Figures 2.1 to 2.4, 3.1 to 3.3 and 4.1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from polariscope.examination.jacobians import decoder_jacobians
from polariscope.manipulation.local_structure import PlaneTheory
from polariscope.report.figures import LIGHT, panels, styled
from polariscope.representation import represent
from polariscope.studies.criteria import AtLeast, AtMost, Beats
from polariscope.studies.inner_workings.alignment_tasks import settings_of, task
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.theory.gaussian import kl_per_variable
from polariscope.theory.orthogonal_noise import hands_on_example, minimal_stochastic_loss
from polariscope.theory.pca_vae import fit_linear_vae, linear_autoencoder
from polariscope.training.run import load_model

STARTS = 12  # linear models from as many starts
SHOWN = 60  # points whose local axes are drawn
SEEDS = {"smoke": 1, "laptop": 5, "paper": 10}


@studies.register("illustrations")
class Illustrations(Study):
    """Axes of PCA, of autoencoders and of VAEs on the stretched square, flat and bent; the landscape of the KL."""

    title = "The argument in pictures"
    source = "Zietlow's dissertation (2022), figures 2.1-2.4, 3.1-3.3, 4.1"
    question = "What do the axes of a VAE look like beside those of PCA and of an autoencoder?"
    cost = {"smoke": "2 s", "laptop": "2 minutes", "paper": "hours"}

    def jobs(self, scale: Scale) -> Sequence[Job]:
        bent: list[Job] = [
            {"scale": scale, "part": "bent", "model": model, "seed": seed}
            for model in ("beta-vae", "ae")
            for seed in range(SEEDS[scale])
        ]
        return [*bent, {"scale": scale, "part": "flat"}]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        if job["part"] == "flat":
            return _flat_axes()
        chosen = task("square-nonlinear", job["scale"])
        model = load_model(bench.train(chosen.config(job["model"], job["seed"])))
        rep = represent(model, chosen.held_out, count=300)
        columns = decoder_jacobians(model.generate, torch.from_numpy(rep.mean)).detach().numpy()
        columns /= np.linalg.norm(columns, axis=1, keepdims=True).clip(1e-12)
        cosine = np.abs((columns[:, :, 0] * columns[:, :, 1]).sum(axis=1))
        assert rep.factors is not None
        drawn = {"codes": rep.mean[:SHOWN].round(4).tolist(), "factors": rep.factors[:SHOWN].round(4).tolist()}
        return [settings_of(job) | {"cosine": float(cosine.mean()), **drawn}]

    def claims(self, scale: Scale) -> list[Claim]:
        return [
            Claim(
                "Axes of a linear VAE are the principal ones",
                "figure 2.3",
                AtMost("angle", 1, of="every", where={"part": "flat", "model": "vae"}, called="angle (degrees)"),
            ),
            Claim(
                "Axes of a linear autoencoder are arbitrary",
                "figure 2.2",
                AtLeast("range", 20, called="range of the angles (degrees) of equally good solutions", digits=0),
            ),
            Claim(
                "Axes of a non-linear VAE are locally orthogonal, those of an autoencoder are not",
                "figure 2.3",
                Beats(
                    "cosine",
                    {"model": "beta-vae"},
                    {"model": "ae"},
                    by=0.1,
                    higher=False,
                    where={"part": "bent"},
                    called="mean |cosine| of the decoder's columns",
                ),
            ),
        ]

    def readings(self, table: Table) -> Table:
        angles = table.where(part="flat", model="ae").column("angle")
        return Table([*table.rows, {"range": float(np.ptp(angles)), "of_seeds": len(angles)}])

    def figures(self, table: Table) -> dict[str, Figure]:
        return {
            "kl-landscape": kl_landscape(),
            "flat-axes": _flat_figure(table.where(part="flat")),
            "bent-axes": _bent_figure(table.where(part="bent")),
            "rotate-scale-rotate": _svd_figure(),
            "same-area": _area_figure(),
            "local-change": _local_figure(),
        }


def _flat_axes() -> list[Row]:
    """First axis of solved linear models in the plane of the data, and its angle from the nearest principal one."""
    covariance = np.diag([1 / 3, 1 / 12, 0])
    generator = np.random.default_rng(0)
    rows: list[Row] = []
    for seed in range(STARTS):
        turned, _ = np.linalg.qr(generator.standard_normal((2, 2)))
        decoders = {
            "vae": fit_linear_vae(covariance, 2, 1e-2, seed=seed).decoder,
            "ae": linear_autoencoder(covariance, turned, np.sqrt([1 / 3, 1 / 12]))[0],
        }
        for model, decoder in decoders.items():
            axes = decoder[:2] / np.linalg.norm(decoder[:2], axis=0)
            from_first = np.degrees(np.arctan2(axes[1, 0], axes[0, 0])) % 90
            angle = float(min(from_first, 90 - from_first))
            rows.append({"part": "flat", "model": model, "seed": seed, "angle": angle, "axes": axes.round(6).tolist()})
    return rows


@styled
def kl_landscape() -> Figure:
    """The KL of one latent over mean and standard deviation; along μ² + σ² = 1 information comes in (Figure 3.3)."""
    figure, (axes,) = panels(1, 4.4, 3.2)
    mean, std = np.meshgrid(np.linspace(-2, 2, 161), np.linspace(0.05, 1.6, 161))
    levels = (0.02, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0)
    lines = axes.contour(mean, std, kl_per_variable(mean, std**2), levels, linewidths=0.9)
    axes.clabel(lines, fontsize=7)
    angle = np.linspace(0, np.pi / 2 - 0.05, 50)
    axes.plot(np.sin(angle), np.cos(angle), color=LIGHT["active"], linewidth=2, label="μ² + σ² = 1")
    axes.plot(0, 1, "o", color=LIGHT["ink"])
    axes.set(xlabel="mean μ", ylabel="standard deviation σ")
    axes.legend()
    return figure


@styled
def _flat_figure(flat: Table) -> Figure:
    """The data's plane with the axes of every solution."""
    figure = Figure(figsize=(6, 2.6), layout="constrained")
    cloud = np.random.default_rng(0).uniform(-1, 1, (250, 2)) * [2, 1]
    for axes, (model, title) in zip(
        figure.subplots(1, 2), (("vae", "linear VAE: PCA's axes"), ("ae", "linear autoencoder: any axes")), strict=True
    ):
        axes.scatter(*cloud.T, s=2, color=LIGHT["passive"])
        for row in flat.where(model=model).rows:
            _arrows(axes, np.zeros(2), np.array(row["axes"]).T * [[1.6], [0.9]])
        axes.set_title(title)
        _bare(axes)
    return figure


@styled
def _bent_figure(bent: Table) -> Figure:
    """Where the codes of the bent square lie: factors as colours."""
    figure = Figure(figsize=(6, 2.8), layout="constrained")
    models = [model for model in ("beta-vae", "ae") if len(bent.where(model=model))]
    for axes, model in zip(figure.subplots(1, len(models), squeeze=False)[0], models, strict=True):
        row = bent.where(model=model).rows[0]
        codes, factors = np.array(row["codes"]), np.array(row["factors"])
        axes.scatter(*codes.T, c=factors[:, 0], s=16, cmap="viridis")
        axes.set(title=f"{model}: |cosine| {row['cosine']:.2f}", xlabel="z₀", ylabel="z₁")
    return figure


@styled
def _svd_figure() -> Figure:
    """A matrix turns, stretches and turns again (Figure 2.4)."""
    matrix = np.array([[1.4, 0.6], [0.2, 0.9]])
    _, sizes, v = np.linalg.svd(matrix)
    circle = np.stack([np.cos(t := np.linspace(0, 2 * np.pi, 100)), np.sin(t)])
    stages = {"circle": np.eye(2), "Vᵀ": v, "ΣVᵀ": np.diag(sizes) @ v, "UΣVᵀ": matrix}
    figure = Figure(figsize=(7, 1.9), layout="constrained")
    for axes, (name, stage) in zip(figure.subplots(1, 4), stages.items(), strict=True):
        axes.plot(*(stage @ circle), color=LIGHT["passive"])
        _arrows(axes, np.zeros(2), stage.T)
        axes.set_title(name)
        _bare(axes, 1.8)
    return figure


@styled
def _area_figure() -> Figure:
    """Turning a decoder's latents keeps the area of its columns and changes what noise costs (Figure 3.2)."""
    figure = Figure(figsize=(6.4, 2.4), layout="constrained")
    for axes, (name, matrix) in zip(
        figure.subplots(1, 2), zip(("M₁", "M₂"), hands_on_example(), strict=True), strict=True
    ):
        basis, _ = np.linalg.qr(hands_on_example()[0])
        flat = basis.T @ matrix
        corners = np.array([np.zeros(2), flat[:, 0], flat.sum(axis=1), flat[:, 1], np.zeros(2)])
        axes.fill(*corners.T, color=LIGHT["passive"], alpha=0.3)
        _arrows(axes, np.zeros(2), flat.T)
        cost = float(minimal_stochastic_loss(matrix, 0.0))
        axes.set_title(f"{name}: area {abs(np.linalg.det(flat)):.2f}, noise {cost:.2f}")
        _bare(axes)
    return figure


@styled
def _local_figure() -> Figure:
    """A wave along the diagonal turns the local axes and leaves the global ones (Figure 4.1)."""
    theory = PlaneTheory(a=0.8, frequency=2.0, epsilon=0.35)
    figure = Figure(figsize=(6, 2.6), layout="constrained")
    w = np.random.default_rng(0).standard_normal((400, 2))
    for axes, (title, metric) in zip(
        figure.subplots(1, 2),
        (("original", np.diag([1, theory.a**2])), (f"changed: turned by {theory.angle:.0f}°", theory.metric)),
        strict=True,
    ):
        shade = np.sin(theory.frequency * w.sum(axis=1)) if "changed" in title else np.zeros(len(w))
        axes.scatter(*w.T, c=shade, s=5, cmap="coolwarm", vmin=-1, vmax=1)
        values, vectors = np.linalg.eigh(metric)
        _arrows(axes, np.zeros(2), (vectors * np.sqrt(values)).T[::-1])
        axes.set_title(title)
        _bare(axes, 2.5)
    return figure


def _arrows(axes: Axes, start: NDArray[np.float64], vectors: NDArray[np.float64]) -> None:
    for vector, colour in zip(vectors, (LIGHT["active"], LIGHT["mixed"]), strict=True):
        tip, foot = tuple(start + vector), tuple(start)
        axes.annotate("", tip, foot, arrowprops={"arrowstyle": "->", "color": colour, "linewidth": 1.5})
        axes.update_datalim([tip, foot])
    axes.autoscale_view()


def _bare(axes: Axes, reach: float | None = None) -> None:
    axes.set_aspect("equal")
    axes.set(xticks=[], yticks=[])
    if reach:
        axes.set(xlim=(-reach, reach), ylim=(-reach, reach))
