"""One family of trainings with the published data, network, batch and rate, from which many figures are read.

Each member is trained once, for a share of the published steps, and keeps its snapshots. Figures 6.4 to 6.8, 8.9 and
8.10 are read from the trained members, figures 6.10, 6.11 and 8.11 from snapshots, figures 7.2 to 7.10 and C.1 from
pairs of members. No claim is judged, because members have fewer seeds than a verdict needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.figure import Figure

from polariscope.examination.compare import Activations, layer_activations
from polariscope.lab.store import Run
from polariscope.measures.intrinsic_dimension import mle, twonn
from polariscope.measures.neighbour_score import neighbour_score
from polariscope.measures.polarisation import trace_gap, variable_types
from polariscope.measures.similarity import Similarity, average_over_pairs
from polariscope.measures.truncation import compare_mean_sampled, subset_accuracies, track_correlations
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.nets.predictors import Encoder
from polariscope.objectives.beta_tc_vae import BetaTCVAE
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.objectives.dip_vae import DIPVAE
from polariscope.objectives.objective import Objective
from polariscope.objectives.predict import Classify
from polariscope.report.figures import heatmap
from polariscope.representation import represent
from polariscope.studies.inner_workings.alignment_tasks import decoder_distance, in_use
from polariscope.studies.kit import Curve, Panels, Restarts
from polariscope.studies.polarised.settings import PUBLISHED_STEPS, published_run, toy_run
from polariscope.studies.rows import plus_minus
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.theory.polarised_regime import kl_approximation_error
from polariscope.training.config import RunConfig
from polariscope.training.run import load_model
from polariscope.worlds.targets import Task

MEMBERS: dict[str, Objective] = {
    "beta 1": BetaVAE(1.0),
    "beta 4": BetaVAE(4.0),
    "beta 16": BetaVAE(16.0),
    "beta 8": BetaVAE(8.0),
    "beta-TC 6": BetaTCVAE(6.0),
    "DIP II 20": DIPVAE("II", 20.0, 20.0),
}
"""Autoencoders; the first three come first, so that a part of the family is of use."""
HEALTHY, COLLAPSED = "beta 1", "beta 16"
CLASSIFIER = "classifier"
FEWER_VARIABLES = ("all", "non-passive", "active")
READ = ("all", "active", "mixed", "passive", "active+mixed", "active+passive")
NEIGHBOURS = 20
CODES = 200
"""Codes at which the decoder's derivative is taken."""


@dataclass(frozen=True)
class Setting:
    seeds: int
    steps: int
    snapshots: int
    members: tuple[str, ...]
    examples: int
    """Images whose codes are measured."""
    compared: int
    """Images on which layers are compared."""
    probes: dict[str, int]


SETTINGS: dict[Scale, Setting] = {
    "smoke": Setting(2, 60, 3, (HEALTHY, COLLAPSED), 300, 100, {"train": 100, "test": 50, "strengths": 1, "folds": 2}),
    "overnight": Setting(3, 30_000, 20, tuple(MEMBERS), 15_000, 3000, {"strengths": 3, "folds": 3}),
    "paper": Setting(5, PUBLISHED_STEPS, 26, tuple(MEMBERS), 15_000, 5000, {}),
}
COMPARISONS: dict[str, tuple[str, str]] = {
    "seeds": (HEALTHY, HEALTHY),
    "early": (HEALTHY, HEALTHY),
    "collapsed": (HEALTHY, COLLAPSED),
    "DIP": (HEALTHY, "DIP II 20"),
    "TC": (HEALTHY, "beta-TC 6"),
    "classifier": (HEALTHY, CLASSIFIER),
}
"""Which members' layers are compared; "early" is the first snapshot with the trained model."""
PUBLISHED = {
    "seeds": "-",
    "early": "encoder similar to its final state, decoder later (figure 7.2)",
    "collapsed": "sampled layer like no layer of the healthy model (figure 7.3)",
    "DIP": "encoders near 1, but mean and variance (figures 7.5 to 7.7)",
    "TC": "encoders near 1, but mean and variance (figures 7.5 to 7.7)",
    "classifier": "trunk like the encoder, near 1 (figure C.1)",
}
TYPES = ("active", "mixed", "passive")
RUNS, LAYERS = {"part": "run"}, {"part": "layers"}


@studies.register("sprite-family")
@dataclass(frozen=True)
class SpriteFamily(Study):
    """Types, information, dimensions, orientation and layers of convolutional VAEs of dSprites."""

    title = "A family of convolutional VAEs of dSprites"
    source = (
        "Bonheme, The polarised regime of variational autoencoders (2023), figures 6.4-6.11, 7.2-7.10, 8.9-8.11 and C.1"
    )
    question = (
        "Do the published network and data show the polarised regime, layer by layer, after a tenth of the steps?"
    )
    cost = {"smoke": "10 s", "overnight": "about 27 core hours", "paper": "weeks"}
    scales = ("smoke", "overnight", "paper")
    training_lengths = {scale: setting.steps for scale, setting in SETTINGS.items()}
    drawn = {
        "types": Panels(
            tuple(Restarts(kind, "member", called=f"{kind} variables", tilt=30) for kind in TYPES),
            where=RUNS,
        ),
        "over-training": Curve("passive", "step", "member", where={"part": "snapshot"}, called="passive variables"),
        "layer-dimension": Curve(
            "dimension", "step", "layer", where={"part": "dimension"}, called="intrinsic dimension (TwoNN)"
        ),
    }  # fmt: skip

    def jobs(self, scale: Scale) -> Sequence[Job]:
        setting = SETTINGS[scale]
        main, others = setting.members[:3], setting.members[3:]

        def runs(members: Sequence[str]) -> list[Job]:
            return [
                {"scale": scale, "part": "run", "member": name, "seed": seed}
                for seed in range(setting.seeds)
                for name in members
            ]

        known = {*setting.members, CLASSIFIER} - ({CLASSIFIER} if scale == "smoke" else set())
        layers: list[Job] = [
            {"scale": scale, "part": "layers", "comparison": name, "seed": seed}
            for name, pair in COMPARISONS.items()
            if known.issuperset(pair)
            for seed in range(setting.seeds)
        ]
        return [*runs(main), *layers[: 3 * setting.seeds], *runs(others), *layers[3 * setting.seeds :]]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        setting = SETTINGS[job["scale"]]
        if job["part"] == "layers":
            return _compared(job, bench)
        config = config_of(job["member"], job["scale"], job["seed"])
        run = bench.train(config)
        place = {"member": job["member"], "seed": job["seed"]}
        rows = [{"part": "run"} | _measured(run, config, setting), *_over_training(run, config, setting)]
        if job["member"] == HEALTHY:
            rows += _dimensions(run, config, setting)
        return [place | row for row in rows]

    def claims(self, scale: Scale) -> list[Claim]:
        return []  # too few seeds for a verdict

    def beside(self, table: Table) -> list[Row]:
        """Long rows: what, of which member or comparison, published and here."""
        rows: list[Row] = []
        for title, (columns, published) in SHOWN.items():
            for name, own in table.where(**RUNS).by("member"):
                here = " / ".join(_mean(own, column) for column in columns)
                rows.append({"what": title, "of": name, "published": published, "here": here})
        for name, own in table.where(**LAYERS).by("comparison"):
            here = " / ".join(_mean(own, kind) for kind in KINDS)
            rows.append({"what": "CKA of " + ", ".join(KINDS), "of": name, "published": PUBLISHED[name], "here": here})
        return rows

    def figures(self, table: Table) -> dict[str, Figure]:
        maps = {}
        for name, own in table.where(**LAYERS).by("comparison"):
            values = np.mean([row["cka"] for row in own.rows], axis=0)
            maps[f"layers-{name}"] = heatmap(values, own.rows[0]["rows"], own.rows[0]["columns"])
        return super().figures(table) | maps


SHOWN: dict[str, tuple[tuple[str, ...], str]] = {
    "active, mixed, passive variables": (("active", "mixed", "passive"), "passive grow with beta (figure 6.5)"),
    "total correlation of means, samples": (
        ("tc_mean_all", "tc_sampled_all"), "means above samples once there are passive variables (figure 6.6)"),
    "mutual information of means, samples": (
        ("mi_mean_all", "mi_sampled_all"), "that of the samples falls (figure 6.6)"),
    "the same without passive variables": (
        ("mi_mean_non-passive", "mi_sampled_non-passive"), "alike (figure 6.7)"),
    "effective rank of means, samples": (
        ("erank_mean_all", "erank_sampled_all"), "about 10 less the passive, and about 10 (figure 6.6)"),
    "accuracy from all, active means": (
        ("accuracy_mean_all", "accuracy_mean_active"), "active a bit worse than all (figure 6.4)"),
    "intrinsic dimension of means, samples": (
        ("dimension_mean", "dimension_sampled"), "gap: mixed and passive variables (figure 8.10)"),
    "distance to orthogonality": (("orthogonality",), "-"),
    "Disentanglement Score": (("score",), "-"),
}  # fmt: skip
"""What is shown of each member: columns of its row, and what was published."""
KINDS = ("encoder", "latent", "decoder")
LATENT = ("mean", "variance", "sampled")


def config_of(member: str, scale: Scale, seed: int) -> RunConfig:
    """The training of a member; the classifier has the encoder of the others and predicts all factors."""
    setting = SETTINGS[scale]
    make = toy_run if scale == "smoke" else published_run
    every = setting.steps // setting.snapshots
    config = make(MEMBERS.get(member, BetaVAE(1.0)), seed, setting.steps, snapshot_every=every)
    if member != CLASSIFIER:
        return config
    assert isinstance(config.model, AutoencoderConfig)
    network = Encoder(config.model.architecture)
    return replace(config, world=Task(config.world, "all"), objective=Classify(), model=network)


def _measured(run: Run, config: RunConfig, setting: Setting) -> Row:
    """What is said of a trained model."""
    model = load_model(run)
    rep = represent(model, config.world, count=setting.examples, noise_seed=config.training.seed + 1)
    assert rep.var is not None
    assert rep.sample is not None
    assert rep.factors is not None
    types, used = variable_types(rep.var), in_use(rep)
    row: Row = {**types.counts, "share_of_published_steps": setting.steps / PUBLISHED_STEPS}
    row |= {"reconstruction": run.result["train_reconstruction"], "kl": run.result["train_kl"]}
    row["trace_gap"] = trace_gap(rep.mean, sample=rep.sample)
    for comparison in compare_mean_sampled(rep.mean, rep.sample, types, FEWER_VARIABLES):
        for score in ("tc", "mi", "erank") if comparison.subset == "all" else ("tc", "mi"):
            for side in ("mean", "sampled"):
                row[f"{score}_{side}_{comparison.subset}"] = getattr(comparison, f"{score}_{side}")
    for side, codes in (("mean", rep.mean), ("sampled", rep.sample)):
        row[f"dimension_{side}"] = mle(codes, NEIGHBOURS).value
        accuracies = subset_accuracies(codes, rep.factors, types, READ, **setting.probes)
        row |= {f"accuracy_{side}_{one.subset}": one.accuracy for one in accuracies}
    row["orthogonality"] = decoder_distance(model, rep.mean[:CODES], used) if used.sum() > 1 else None
    row["score"] = neighbour_score(np.where(used, rep.mean, 0), rep.factors).value if used.any() else None
    return row


def _over_training(run: Run, config: RunConfig, setting: Setting) -> list[Row]:
    """Types and the error of the polarised regime at every snapshot, and how far correlations of the means move."""
    rows, late = [], []
    for step in sorted(run.snapshots()):
        rep = represent(load_model(run, step), config.world, count=2000)
        assert rep.var is not None
        types = variable_types(rep.var)
        rows.append({"part": "snapshot", "step": step, **types.counts})
        rows[-1]["kl_error"] = kl_approximation_error(rep.mean, rep.var)
        if step >= setting.steps // 4:  # before, no variable has its type yet
            late.append(rep.mean)
    track = track_correlations(late)
    return rows + [
        {"part": "drift", "variable": variable, "type": label, "count": int(track.counts[variable])}
        for variable, label in enumerate(types.labels)
    ]


def _dimensions(run: Run, config: RunConfig, setting: Setting) -> list[Row]:
    """The intrinsic dimension of every layer at five snapshots."""
    steps = sorted(run.snapshots())
    places = sorted({steps[round(share * (len(steps) - 1))] for share in (0, 0.1, 0.25, 0.5, 1)})
    return [
        {"part": "dimension", "step": step, "layer": name}
        | {"dimension": twonn(values).value if np.ptp(values, axis=0).any() else None}
        for step in places
        for name, values in layer_activations(load_model(run, step), config.world, min(1000, setting.compared)).items()
    ]


def _compared(job: Job, bench: Bench) -> list[Row]:
    """CKA and Procrustes similarity of all layers of one model with those of others, averaged over their seeds."""
    scale, seed, comparison = job["scale"], job["seed"], job["comparison"]
    setting = SETTINGS[scale]
    first, second = COMPARISONS[comparison]

    def activations(member: str, seed: int, side: int, step: int | None = None) -> Activations:
        config = config_of(member, scale, seed)
        model, noise = load_model(bench.train(config), step), 1000 * side + seed + 1
        world = config_of(HEALTHY, scale, seed).world
        layers = layer_activations(model, world, setting.compared, noise_seed=noise)
        trunk = member == CLASSIFIER
        return {name: values for name, values in layers.items() if not trunk or name.startswith("encoder")}

    early = setting.steps // setting.snapshots if comparison == "early" else None
    seeds = [other for other in range(setting.seeds) if comparison != "seeds" or other != seed]
    one, others = activations(first, seed, 0), [activations(second, other, 1, early) for other in seeds]
    measures: tuple[Similarity, ...] = ("cka", "procrustes")
    both = {measure: average_over_pairs([one], others, measure) for measure in measures}
    matrix = both["cka"]
    row: Row = {"part": "layers", "comparison": comparison, "seed": seed}
    row |= {"rows": list(matrix.rows), "columns": list(matrix.columns)}
    row |= {measure: found.values.round(4).tolist() for measure, found in both.items()}
    same = [(i, matrix.columns.index(name)) for i, name in enumerate(matrix.rows) if name in matrix.columns]
    for kind in KINDS:
        cells = [matrix.values[at] for at in same if _kind(matrix.rows[at[0]]) == kind]
        row[kind] = float(np.mean(cells)) if cells else None
    return [row]


def _mean(rows: Table, column: str) -> str:
    values = rows.column(column)
    return plus_minus(values) if len(values) else "-"


def _kind(layer: str) -> str:
    return "latent" if layer in LATENT else layer.split(".")[0].split("_")[0].rstrip("0123456789 ")
