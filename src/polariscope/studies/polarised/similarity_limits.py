"""Study: what CKA and Procrustes say of random features that are partly shared (Spec 002, section 10.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from matplotlib.figure import Figure

from polariscope.measures.similarity import cka, procrustes
from polariscope.report.figures import LIGHT, SUBJECTS, styled
from polariscope.studies.rows import plus_minus
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies

FEATURES = 50
SHARED = (40, 25, 0)
"""Features that B, C and D have in common with A."""
MEASURES: dict[str, Callable[..., float]] = {
    "cka": cka,
    "procrustes": procrustes,
    "debiased": partial(cka, debiased=True),
}
NAMES = {"cka": "CKA", "procrustes": "Procrustes", "debiased": "debiased CKA"}
TABLE = {
    50: {"cka": (0.902, 0.755, 0.510), "procrustes": (0.948, 0.876, 0.756)},
    90: {"cka": (0.875, 0.684, 0.364), "procrustes": (0.911, 0.784, 0.597)},
    250: {"cka": (0.838, 0.594, 0.165), "procrustes": (0.859, 0.669, 0.369)},
    490: {"cka": (0.820, 0.550, 0.091), "procrustes": (0.838, 0.616, 0.266)},
    970: {"cka": (0.811, 0.526, 0.050), "procrustes": (0.825, 0.579, 0.192)},
}
"""Spec 002, table 10.3: means of 5 seeds, by samples and measure, in the order of ``SHARED``."""
TOLERANCE = 0.03
SIZES: dict[Scale, tuple[int, ...]] = {
    "smoke": tuple(TABLE),
    "laptop": tuple(range(50, 1000, 40)),
    "paper": tuple(range(50, 1000, 40)),
}
SEEDS: dict[Scale, int] = {"smoke": 5, "laptop": 5, "paper": 50}


@studies.register("similarity-limits")
class SimilarityLimits(Study):
    """Uniform random features: B shares 40 of A's 50, C 25, D none; similarity against the number of samples."""

    title = "Limits of CKA and Procrustes"
    source = "Bonheme 2023, section 7.2.2, Fig. 7.1"
    question = "How many samples does it take before a similarity of representations can be believed?"
    cost = {"smoke": "a second", "laptop": "about 10 s", "paper": "about a minute"}

    def jobs(self, scale: Scale) -> Sequence[Job]:
        return [{"seed": seed, "sizes": list(SIZES[scale])} for seed in range(SEEDS[scale])]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        rows = []
        for samples in job["sizes"]:
            rng = np.random.default_rng((job["seed"], samples))
            a = rng.uniform(size=(samples, FEATURES))
            for shared in SHARED:
                b = np.hstack([a[:, :shared], rng.uniform(size=(samples, FEATURES - shared))])
                found = {name: measure(a, b) for name, measure in MEASURES.items()}
                rows.append({"seed": job["seed"], "samples": samples, "shared": shared} | found)
        return rows

    def claims(self, table: Table, scale: Scale) -> list[Claim]:
        fewest, most = min(TABLE), max(TABLE)
        apart = table.where(shared=0)
        margin = apart.column("procrustes") - apart.column("cka")
        population = {shared: abs(table.where(shared=shared, samples=most).mean("debiased") - shared / FEATURES)
                      for shared in SHARED}  # fmt: skip
        return [
            *(agreement(table, name) for name in ("cka", "procrustes")),
            Claim(
                "Procrustes overestimates the similarity of features that share nothing, more than CKA does",
                f"section 7.2.2 and Fig. 7.1c; at {fewest} samples .756 against .510 (Spec 002, table 10.3)",
                f"at {fewest} samples {spread(table, 'procrustes', 0, fewest)} against "
                f"{spread(table, 'cka', 0, fewest)}; smallest excess over all sizes {margin.min():.3f}",
                bool(margin.min() > 0),
            ),
            Claim(
                "CKA of unrelated features drops quickly with the number of samples, Procrustes slowly",
                f"section 7.2.2; p/(h+p) = {independent_cka(most):.3f} and (8/3π)√(p/h) = "
                f"{independent_procrustes(most):.3f} at h = {most} (Spec 002, section 10.3)",
                f"at {most} samples CKA {spread(table, 'cka', 0, most)}, Procrustes "
                f"{spread(table, 'procrustes', 0, most)}",
                abs(table.where(shared=0, samples=most).mean("cka") - independent_cka(most)) <= 0.01
                and abs(table.where(shared=0, samples=most).mean("procrustes") - independent_procrustes(most)) <= 0.01,
            ),
            Claim(
                "With the bias removed, CKA is the share of common features",
                "the population limits are .8, .5 and 0 (Spec 002, section 10.3)",
                "; ".join(f"{shared / FEATURES:g}: {spread(table, 'debiased', shared, most)}" for shared in SHARED)
                + f" at {most} samples",
                max(population.values()) <= 0.02,
                "the publication does not use the debiased form",
            ),
        ]

    def figures(self, table: Table) -> dict[str, Figure]:
        return {"similarity_by_samples": draw(table)}


def agreement(table: Table, name: str) -> Claim:
    """A column of table 10.3 beside the mean over our seeds."""
    rows = table.where(samples=max(TABLE))
    errors = {
        (samples, shared): abs(table.where(samples=samples, shared=shared).mean(name) - value)
        for samples, published in TABLE.items()
        for shared, value in zip(SHARED, published[name], strict=True)
    }
    samples, shared = max(errors, key=lambda cell: errors[cell])
    ends = ", ".join(
        f"{values[name][0]:.3f}/{values[name][1]:.3f}/{values[name][2]:.3f} at {h}"
        for h, values in TABLE.items()
        if h in (min(TABLE), max(TABLE))
    )
    return Claim(
        f"{NAMES[name]} of features that share 40, 25 and none of 50 is as tabulated, within {TOLERANCE}",
        f"{ends} samples (Spec 002, table 10.3, after Fig. 7.1)",
        "/".join(plus_minus(rows.where(shared=s).column(name), 3) for s in SHARED)
        + f" at {max(TABLE)}; largest error {errors[samples, shared]:.3f} ({shared} shared, {samples} samples)",
        max(errors.values()) <= TOLERANCE,
    )


def spread(table: Table, name: str, shared: int, samples: int) -> str:
    return plus_minus(table.where(shared=shared, samples=samples).column(name), 3)


def independent_cka(samples: int) -> float:
    """What linear CKA of independent isotropic features tends to: p / (h + p)."""
    return FEATURES / (samples + FEATURES)


def independent_procrustes(samples: int) -> float:
    """What Procrustes tends to for many more samples than features: (8 / 3π) √(p/h)."""
    return float(8 / (3 * np.pi) * np.sqrt(FEATURES / samples))


@styled
def draw(table: Table) -> Figure:
    figure = Figure(figsize=(8.2, 2.7), layout="constrained")
    panels = figure.subplots(1, len(SHARED), sharey=True)
    for axes, shared in zip(panels, SHARED, strict=True):
        sizes = np.array(table.distinct("samples"))
        for colour, (name, label) in zip(SUBJECTS, NAMES.items(), strict=False):
            groups = [table.where(shared=shared, samples=int(size)) for size in sizes]
            mean, sd = (np.array([getattr(group, of)(name) for group in groups]) for of in ("mean", "std"))
            axes.plot(sizes, mean, color=LIGHT[colour], marker="o", markersize=3, label=label)
            axes.fill_between(sizes, mean - sd, mean + sd, color=LIGHT[colour], alpha=0.2, linewidth=0)
        axes.axhline(shared / FEATURES, color=LIGHT["ink"], linewidth=1, linestyle="--", label="share in common")
        axes.set_title(f"{shared} of {FEATURES} features shared")
        axes.set_xlabel("samples")
    panels[0].set_ylabel("similarity")
    panels[0].legend()
    return figure
