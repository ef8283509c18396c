"""Layer by layer: seeds of one model, early and late, healthy and collapsed, two objectives, and a classifier."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from polariscope.examination.compare import Activations, encoder_layers, layer_activations
from polariscope.measures.information import effective_rank
from polariscope.measures.intrinsic_dimension import twonn
from polariscope.measures.polarisation import variable_types
from polariscope.measures.similarity import SimilarityMatrix, average_over_pairs, cka
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.nets.predictors import Encoder
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.objectives.dip_vae import DIPVAE
from polariscope.objectives.objective import Objective
from polariscope.objectives.predict import Classify
from polariscope.report.figures import heatmap
from polariscope.representation import represent
from polariscope.studies.criteria import All, AtLeast, AtMost, Beats
from polariscope.studies.kit import Curve, Panels
from polariscope.studies.polarised.alike_means import NEAR_ONE, as_many_active, pair_of
from polariscope.studies.polarised.settings import run_at
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.training.config import RunConfig
from polariscope.training.run import load_model, train_in_memory
from polariscope.worlds.targets import Task

SEEDS = {"smoke": 2, "laptop": 5, "paper": 5}
STEPS = {"smoke": 40, "laptop": 6000, "paper": 300_000}
SNAPSHOTS = {"smoke": 4, "laptop": 12, "paper": 26}
EXAMPLES = {"smoke": 200, "laptop": 3000, "paper": 5000}
LATENT = ("mean", "variance", "sampled")
COMPARISONS = ("seeds", "early", "collapsed", "objectives", "classifier")


@studies.register("layer-similarity")
class LayerSimilarity(Study):
    """CKA heatmaps of all layers, averaged over all pairs of seeds."""

    title = "How similar are the layers of two models?"
    source = "Bonheme, The polarised regime of variational autoencoders (2023), section 7.4, figures 7.2-7.10, C.1"
    question = "Which layers agree between seeds, over training, under collapse, and across objectives?"
    cost = {"smoke": "3 s", "laptop": "6 minutes", "paper": "months"}
    training_lengths = STEPS
    drawn = {
        "layer-dimension": Panels(
            (Curve("dimension", "step", by="layer", called="intrinsic dimension (TwoNN)"),),
            where={"comparison": "dimension", "seed": 0},
            width=5,
        )
    }

    def jobs(self, scale: Scale) -> Sequence[Job]:
        return [{"scale": scale, "comparison": name} for name in COMPARISONS]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        scale: Scale = job["scale"]
        healthy = [_config(scale, BetaVAE(1.0), seed) for seed in range(SEEDS[scale])]
        a = [_activations(bench, config, scale, side=0) for config in healthy]
        rows: list[Row] = []
        match job["comparison"]:
            case "seeds":
                b, first, second = a, "a seed", "the other seeds"
                rows += _pairs(bench, healthy)
            case "early":
                early = max(1, SNAPSHOTS[scale] // 4)
                step = healthy[0].training.snapshot_every * early
                b = [_activations(bench, config, scale, side=1, step=step) for config in healthy]
                first, second = "final", f"step {step}"
                rows += [row for config in healthy for row in _dimensions(bench, config)]
            case "collapsed":
                strong = 8.0 if scale == "paper" else 16.0
                configs = [_config(scale, BetaVAE(strong), seed) for seed in range(SEEDS[scale])]
                b = [_activations(bench, config, scale, side=1) for config in configs]
                first, second = "beta 1", f"beta {strong:g}"
            case "objectives":
                configs = [_config(scale, DIPVAE("II", 1.0, 1.0), seed) for seed in range(SEEDS[scale])]
                b = [_activations(bench, config, scale, side=1) for config in configs]
                first, second = "VAE", "DIP-VAE II"
            case _:
                b = [_classifier(config, EXAMPLES[scale]) for config in healthy]
                first, second = "VAE", "classifier"
        same = job["comparison"] == "seeds"
        for seed, own in enumerate(a):
            found = average_over_pairs(
                [own], [other for number, other in enumerate(b) if not (same and number == seed)]
            )
            rows.append(_row(job["comparison"], seed, first, second, found))
        return rows

    def claims(self, scale: Scale) -> list[Claim]:
        def of(comparison: str) -> Row:
            return {"comparison": comparison}

        def encoder(comparison: str) -> AtLeast:
            return AtLeast("encoder", NEAR_ONE, where=of(comparison), called="CKA of the encoder's layers")

        over_decoder = "early against final, CKA of the encoder's layers above that of the decoder's"
        sides = {"with": "the encoder"}, {"with": "latent layers"}
        over_latent = "CKA of the encoder's layers above that of the latent ones"
        return [
            Claim(
                "Encoders of different seeds agree",
                "not in the work by itself: the cells of its heatmaps are means over 25 pairs of seeds (equation 7.9), "
                "and those of encoders are near 1",
                encoder("seeds"),
            ),
            Claim(
                "The encoder settles before the decoder",
                "figure 7.2: encoder similar after the first snapshot, decoder later; no less (Spec 002, S06)",
                AtLeast("encoder_over_decoder", 0, where=of("early"), called=over_decoder),
            ),
            Claim(
                "The sampled layer of a collapsed model is similar to no layer of a healthy one",
                "figure 7.3: very low CKA",
                AtMost("sampled", 0.05, where=of("collapsed"), called="largest CKA with it", digits=3),
            ),
            Claim(
                "Encoders agree across objectives, latent layers less",
                "figure 7.4: encoders highly similar, latent layers depend on the data",
                All(
                    encoder("objectives"),
                    AtLeast("encoder_over_latent", 0.1, where=of("objectives"), called=over_latent),
                ),
            ),
            Claim(
                "A classifier's trunk is more similar to the encoder than to the latent layers",
                "figure C.1; in the mean over the layers (Spec 002, S08)",
                Beats("level", *sides, by=0.1, where=of("classifier"), called="mean CKA with the trunk"),
                note="the mean was added after the table had been seen",
            ),
            Claim(
                "Each layer of the trunk is more similar to the same layer of the encoder than to any latent layer",
                "figure C.1: in all cells",
                Beats("cell", *sides, by=0.05, each="trunk_layer", called="CKA with it"),
            ),
            Claim(
                "A classifier's trunk is nearly the same as the encoder",
                "figure C.1: CKA near 1",
                encoder("classifier"),
            ),
            as_many_active(),
            Claim(
                "The intrinsic dimension of the layers hardly changes after the first quarter of the training",
                "figure 8.11: little change after epoch 1",
                AtMost("change", 0.25, each="layer", called="relative change"),
            ),
        ]

    def readings(self, table: Table) -> Table:
        """A row for each heatmap, for each pair of models of different seeds, and for each layer over training."""
        shown = [row for row in table.rows if "values" in row]
        heatmaps = [level for row in shown for level in _levels(row)]
        cells = [cell for row in shown if row["comparison"] == "classifier" for cell in _of_trunk(row)]
        # Snapshots of one pair of runs are no more than that pair.
        found = [row for row in table.where(comparison="pair").rows if row["seed"] != row["other_seed"]]
        pairs = [pair_of(row, row["cka"], row["active"]) for row in found]
        layers = [
            {"seed": seed, "layer": name, "change": _late_change(own)}
            for name, layer in table.where(comparison="dimension").by("layer")
            for seed, own in layer.by("seed")
            if name != "input"  # which no training changes
        ]
        return Table(heatmaps + cells + pairs + layers)

    def figures(self, table: Table) -> dict[str, Figure]:
        figures = {}
        for comparison in COMPARISONS:
            several = [row for row in table.where(comparison=comparison).rows if "values" in row]
            row = several[0]
            lines = ([encoder_layers(tuple(row["rows"]))], [encoder_layers(tuple(row["columns"]))])
            title = f"CKA\nrows: {row['first']}\ncolumns: {row['second']}"
            values = np.mean([one["values"] for one in several], axis=0).tolist()
            figures[comparison] = heatmap(values, row["rows"], row["columns"], title, low=0, high=1, separators=lines)
        return figures | super().figures(table)


def _levels(row: Row) -> list[Row]:
    """Mean CKA of encoder, decoder and latent layers with their like; those a trunk does not have meet all of it."""
    columns, cells = row["columns"], _cells(row)
    trunk = [name for name in columns if name.startswith("encoder")]
    kinds = {kind: [a for a in row["rows"] if a.startswith(kind)] for kind in ("encoder", "decoder")}
    kinds["latent"] = list(LATENT)
    levels = {
        kind: float(np.mean([cells[a, b] for a in layers for b in ([a] if a in columns else trunk)]))
        for kind, layers in kinds.items()
    }
    place = {"comparison": row["comparison"], "seed": row["seed"]}
    whole = {
        **levels,
        "encoder_over_decoder": levels["encoder"] - levels["decoder"],
        "encoder_over_latent": levels["encoder"] - levels["latent"],
        "sampled": max((value for (_, b), value in cells.items() if b == "sampled"), default=None),
    }
    names = {"encoder": "the encoder", "latent": "latent layers"}
    return [place | whole, *(place | {"with": name, "level": levels[kind]} for kind, name in names.items())]


def _of_trunk(row: Row) -> Iterator[Row]:
    """CKA of each layer of a trunk with the same layer of the encoder, and the largest with a latent layer."""
    cells = _cells(row)
    for name in row["columns"]:
        place = {"seed": row["seed"], "trunk_layer": name}
        yield place | {"with": "the encoder", "cell": cells[name, name]}
        yield place | {"with": "latent layers", "cell": max(cells[one, name] for one in LATENT)}


def _cells(row: Row) -> dict[tuple[str, str], float]:
    lines = zip(row["rows"], row["values"], strict=True)
    return {(a, b): value for a, line in lines for b, value in zip(row["columns"], line, strict=True)}


def _config(scale: Scale, objective: Objective, seed: int) -> RunConfig:
    return run_at(scale, objective, seed, STEPS[scale], SNAPSHOTS[scale])


def _activations(bench: Bench, config: RunConfig, scale: Scale, side: int, step: int | None = None) -> Activations:
    """Layers of a trained model on the study's fixed examples, with noise that no other model shares."""
    model = load_model(bench.train(config), step)
    noise = 1000 * side + config.training.seed + 1
    return layer_activations(model, config.world, EXAMPLES[scale], noise_seed=noise)


def _pairs(bench: Bench, configs: Sequence[RunConfig]) -> list[Row]:
    """Every two of the final models and their late snapshots: do the means agree, and are as many variables active?

    Two of one seed are among them, which says how soon the number is fixed, but nothing about different models.
    """
    models = []
    for config in configs:
        run = bench.train(config)
        late = config.training.snapshot_every * (len(run.snapshots()) - 2)
        for step in (late, None):
            rep = represent(load_model(run, step), config.world, count=2000)
            assert rep.var is not None
            active = variable_types(rep.var).counts["active"]
            models.append((config.training.seed, rep.mean, active, effective_rank(rep.mean)))
    return [
        {
            "comparison": "pair",
            "seed": seed,
            "other_seed": other_seed,
            "cka": cka(mean, other_mean),
            "active": [active, other_active],
            "erank": [erank, other_erank],
        }
        for (seed, mean, active, erank), (other_seed, other_mean, other_active, other_erank) in itertools.combinations(
            models, 2
        )
    ]


def _dimensions(bench: Bench, config: RunConfig) -> list[Row]:
    """Intrinsic dimension of every layer at every snapshot of one training."""
    run = bench.train(config)
    rows: list[Row] = []
    for step in sorted(run.snapshots()):
        for name, values in layer_activations(load_model(run, step), config.world, 1000).items():
            found = twonn(values).value if np.ptp(values, axis=0).any() else None
            place = {"comparison": "dimension", "seed": config.training.seed, "step": step, "layer": name}
            rows.append(place | {"dimension": found})
    return rows


def _late_change(layer: Table) -> float:
    """Relative change of a layer's dimension from the first quarter of its snapshots to the last."""
    values = layer.column("dimension")
    return float(abs(values[-1] - values[len(values) // 4]) / values[-1])


def _row(comparison: str, seed: int, first: str, second: str, found: SimilarityMatrix) -> Row:
    """A heatmap of one model with each of several others, whose seeds are averaged over."""
    table: dict[str, Any] = {"rows": list(found.rows), "columns": list(found.columns)}
    return {
        "comparison": comparison,
        "seed": seed,
        "first": first,
        "second": second,
        **table,
        "values": found.values.round(4).tolist(),
    }


def _classifier(config: RunConfig, examples: int) -> Activations:
    """The encoder's trunk trained to tell the factors, and its activations on the same examples."""
    assert isinstance(config.model, AutoencoderConfig)
    everything = Task(config.world, "all")
    trunk = RunConfig(everything, Classify(), Encoder(config.model.architecture), config.training, config.split)
    found = layer_activations(train_in_memory(trunk), config.world, examples)
    return {name: values for name, values in found.items() if name.startswith("encoder")}
