"""Study: what CKA and Procrustes say of random features that are partly shared (Spec 002, section 10.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from polariscope.measures.similarity import cka, procrustes
from polariscope.studies.criteria import All, AtLeast, Near
from polariscope.studies.kit import Curve, Panels
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
    question = "How many samples does a reliable similarity of representations need?"
    cost = {"smoke": "a second", "laptop": "about 10 s", "paper": "about a minute"}
    drawn = {
        "similarity_by_samples": Panels(
            tuple(
                Curve(
                    tuple(NAMES),
                    "samples",
                    where={"shared": shared},
                    names=NAMES,
                    called="similarity",
                    title=f"{shared} of {FEATURES} features shared",
                    guides={"share in common": shared / FEATURES},
                )
                for shared in SHARED
            ),
            share_y=True,
        )
    }

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

    def claims(self, scale: Scale) -> list[Claim]:
        fewest, most = min(TABLE), max(TABLE)
        apart = {"shared": 0, "samples": most}
        limits = {"p/(h+p)": independent_cka(most), "(8/3π)√(p/h)": independent_procrustes(most)}
        common = "the share in common"
        over = "excess of Procrustes over CKA"
        debiased = f"debiased CKA at {most} samples"
        return [
            *(as_tabulated(name) for name in ("cka", "procrustes")),
            Claim(
                "Procrustes overestimates the similarity of features that share nothing, more than CKA does",
                f"section 7.2.2 and Fig. 7.1c; at {fewest} samples .756 against .510 (Spec 002, table 10.3)",
                AtLeast("excess", 0.1, of="every", where={"shared": 0}, called=over, digits=3),
            ),
            Claim(
                "CKA of unrelated features drops quickly with the number of samples, Procrustes slowly",
                f"section 7.2.2; {' and '.join(f'{law} = {limit:.3f}' for law, limit in limits.items())} "
                f"at h = {most} (Spec 002, section 10.3)",
                All(
                    *(
                        Near(name, limit, by=0.01, where=apart, called=f"{NAMES[name]} at {most}", to=law, digits=3)
                        for name, (law, limit) in zip(("cka", "procrustes"), limits.items(), strict=True)
                    )
                ),
            ),
            Claim(
                "With the bias removed, CKA is the share of common features",
                "the population limits are .8, .5 and 0 (Spec 002, section 10.3)",
                Near("debiased", "share", 0.02, where={"samples": most}, called=debiased, to=common, digits=3),
                note="the publication does not use the debiased form",
            ),
        ]

    def readings(self, table: Table) -> Table:
        return Table([row | _expected(row) for row in table.rows])


def as_tabulated(name: str) -> Claim:
    """A column of table 10.3."""
    ends = ", ".join(f"{'/'.join(f'{v:.3f}' for v in TABLE[h][name])} at {h}" for h in (min(TABLE), max(TABLE)))
    return Claim(
        f"{NAMES[name]} of features that share 40, 25 and none of 50 is as tabulated, within {TOLERANCE}",
        f"{ends} samples (Spec 002, table 10.3, after Fig. 7.1)",
        Near(name, f"{name}_tabulated", by=TOLERANCE, called=NAMES[name], to="the tabulated", digits=3),
    )


def _expected(row: Row) -> Row:
    """What the two similarities of a row should be, by how much they differ, and what they should tend to."""
    published = TABLE.get(row["samples"], {})
    tabulated: Row = {f"{name}_tabulated": values[SHARED.index(row["shared"])] for name, values in published.items()}
    return tabulated | {"excess": row["procrustes"] - row["cka"], "share": row["shared"] / FEATURES}


def independent_cka(samples: int) -> float:
    """What linear CKA of independent isotropic features tends to: p / (h + p)."""
    return FEATURES / (samples + FEATURES)


def independent_procrustes(samples: int) -> float:
    """What Procrustes tends to for many more samples than features: (8 / 3π) √(p/h)."""
    return float(8 / (3 * np.pi) * np.sqrt(FEATURES / samples))
