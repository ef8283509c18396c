"""The polarised regime and orthogonal decoders on the files of MNIST and Fashion-MNIST (Tables 3.2 and 3.3).

The files are read from the folders mnist and fashion_mnist under POLARISCOPE_DATA; without them drawn digits stand in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from polariscope.nets.architecture import MLP
from polariscope.nets.autoencoder import Autoencoder
from polariscope.representation import represent
from polariscope.studies.criteria import AtLeast, Beats
from polariscope.studies.inner_workings.alignment_tasks import EXAMINED, Task, decoder_distance, in_use, settings_of
from polariscope.studies.kit import Panels, Restarts, in_order
from polariscope.studies.published import published
from polariscope.studies.real_images import needed_data, real_data
from polariscope.studies.rows import means
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.theory.polarised_regime import kl_approximation_error, polarised_share
from polariscope.training.config import TrainingConfig
from polariscope.training.run import load_model
from polariscope.worlds.parity import digit_files
from polariscope.worlds.renderers.digits import Digits
from polariscope.worlds.world import World

FILES = ("mnist", "fashion_mnist")
PRINTED_AS = {"mnist": "mnist", "fashion_mnist": "fmnist"}
SEEDS = {"smoke": 1, "laptop": 5, "paper": 5}
STEPS = {"smoke": 40, "laptop": 8000}
EPOCHS = {"mnist": 400, "fashion_mnist": 500, "drawn": 400}
SNAPSHOTS = {"smoke": 4, "laptop": 50, "paper": 500}
MODELS = ("vae", "ae", "full-beta-vae")
LATENTS = {"dependent": 6, "ten": 10}
SHARE, DISTANCE = (published(f"inner_workings/{name}").rows for name in ("polarised-share", "orthogonality"))
TRAINED = 0.8  # share of the images; the two published tenths are held out together


def published_distance(row: Row) -> float | None:
    """The published mean distance of the model of a row on its images."""
    cell = DISTANCE.get(f"{PRINTED_AS.get(row['data'])} DtO", {}).get(row["model"])
    return cell.mean if cell else None


@studies.register("real-alignment")
class RealAlignment(Study):
    """Time in the polarised regime, and distance to orthogonality of three posteriors, on two sets of real images."""

    title = "Polarised and orthogonal on real images"
    source = "Rolinek, Zietlow and Martius 2019; Zietlow's dissertation (2022), sections 3.3.2-3.3.3, tables 3.2, 3.3"
    question = "Are VAEs of real images in the polarised regime, with more orthogonal decoders than autoencoders have?"
    cost = {"smoke": "2 s", "laptop": "an hour", "paper": "days"}
    training_lengths = STEPS | {"paper": max(EPOCHS.values()) * int(TRAINED * 70_000) // 128}
    drawn = {
        "distances": Panels(
            (
                Restarts(
                    "distance",
                    "model",
                    called="distance to orthogonality\n(line: published)",
                    names=in_order(MODELS),
                    colours=dict.fromkeys(MODELS, "active"),
                    line=published_distance,
                    tilt=25,
                    from_zero=True,
                ),
            ),
            each="data",
            where={"latents": "dependent"},
            height=3,
        )
    }

    def jobs(self, scale: Scale) -> Sequence[Job]:
        present = [name for name in FILES if real_data(name) is not None]
        sets = present if present and scale != "smoke" else ["drawn"]
        cells = [(model, "dependent") for model in MODELS] + [("vae", "ten")]
        return [
            {"scale": scale, "data": data, "model": model, "latents": latents, "seed": seed}
            for data in sets
            for model, latents in cells
            for seed in range(SEEDS[scale])
        ]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        chosen = _task(job["data"], job["scale"])
        followed = job["model"] == "vae"
        latents = LATENTS[job["latents"]]
        config = chosen.config(job["model"], job["seed"], latents, SNAPSHOTS[job["scale"]] if followed else 0)
        if not followed:
            return [settings_of(job) | _oriented(bench.fit(config), chosen)]
        run = bench.train(config)
        errors = []
        for step in sorted(run.snapshots()):
            rep = represent(load_model(run, step), chosen.held_out, count=1000)
            assert rep.var is not None
            errors.append(kl_approximation_error(rep.mean, rep.var))
        followed_facts = {
            "share": 100 * polarised_share(errors),
            "last": errors[-1],
            "errors": np.round(errors, 5).tolist(),
        }
        return [settings_of(job) | followed_facts | _oriented(load_model(run), chosen)]

    def claims(self, scale: Scale) -> list[Claim]:
        models = ("vae", "ae", "full-beta-vae")
        printed = "; ".join(
            f"{name} " + ", ".join(str(DISTANCE[f"{name} DtO"][model]) for model in models)
            for name in PRINTED_AS.values()
        )
        polarised = "% of the training in the polarised regime"
        few, many, vae = {"latents": "dependent"}, {"latents": "ten"}, {"model": "vae"}
        by_latents = f"{polarised}, by the number of latents"

        def more_orthogonal(words: str, other: str) -> Claim:
            distance = "distance to orthogonality"
            return Claim(
                f"The decoder of the VAE is more orthogonal than {words}",
                f"table 3.3 (VAE, autoencoder, full covariance): {printed}",
                Beats("distance", vae, {"model": other}, 0.1, higher=False, each="data", where=few, called=distance),
            )

        return [
            Claim(
                "Training is in the polarised regime nearly all the time",
                "table 3.2: 99.8 % of the time on both; more than 90 % in a shorter training (Spec 003, F3-064)",
                AtLeast("share", 90, of="median", each="data", where=few, called=polarised, digits=1),
            ),
            Claim(
                "Pruning more latents takes longer",
                "table 3.2: by 0.3 % (MNIST) and 2.1 % (Fashion-MNIST) of the training",
                Beats("share", few, many, by=0.3, each="data", where=vae, called=by_latents, digits=1),
            ),
            more_orthogonal("that of the autoencoder", "ae"),
            more_orthogonal("with a full covariance", "full-beta-vae"),
        ]

    def beside(self, table: Table) -> list[Row]:
        rows: list[Row] = []
        for data, own in table.by("data"):
            name = PRINTED_AS.get(data, "")
            for latents in LATENTS:
                cell = SHARE.get(name, {}).get(latents)
                what = {"what": f"% polarised, {latents} latents", "published": f"{cell.mean:.1f}" if cell else "-"}
                here = own.where(model="vae", latents=latents)
                rows.append({"data": data} | what | means(here, {"here": "share"}, 1))
            for model in MODELS:
                distance = DISTANCE.get(f"{name} DtO", {}).get(model, "-")
                what = {"what": f"distance to orthogonality, {model}", "published": str(distance)}
                here = own.where(model=model, latents="dependent")
                rows.append({"data": data} | what | means(here, {"here": "distance"}))
        return rows


def _oriented(model: Autoencoder, chosen: Task) -> Row:
    rep = represent(model, chosen.held_out, count=5000)
    used = in_use(rep)
    distance = decoder_distance(model, rep.mean[:EXAMINED], used) if used.sum() > 1 else None
    return {"distance": distance, "active": int(used.sum())}


def _task(data: str, scale: Scale) -> Task:
    """The published network on the images; at paper scale with AdaGrad for the published epochs, else with Adam."""
    world: World = Digits(2000 if scale == "smoke" else 20_000) if data == "drawn" else digit_files(needed_data(data))
    steps = EPOCHS[data] * int(TRAINED * len(world)) // 128 if scale == "paper" else STEPS[scale]
    training = TrainingConfig(
        steps=steps,
        batch_size=128,
        learning_rate=1e-3,
        schedule="linear",
        evaluate_every=0,
        log_every=max(1, steps // 20),
        checkpoint_every=steps,
    )
    if scale == "paper":
        training = replace(training, learning_rate=1e-2, optimiser="adagrad", schedule="constant")
    network = MLP((400,), (500, 500))
    return Task(world, LATENTS["dependent"], network, 1.0, training, bernoulli=True, kept=1 - TRAINED)
