"""All disentanglement scores in one call, each with its interval, its chance level and the score of a perfect code.

A score means little by itself. The factors themselves, used as a code, do not always score 1; a randomly rotated code
does not always score 0 (the blind spot), nor does a code that is independent of the factors. Every score therefore
comes with the score of the factors used as a code, with the score of the codes after a random rotation (Spec 001a,
section 5; Spec 003, section 3), and with its chance level.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.findings import Column, Findings, Records
from polariscope.measures.chance import Chance, chance_of, interval_of_halves
from polariscope.measures.dci import COMPARABLE, DCIScores, Probe, dci
from polariscope.measures.information import FloatArray
from polariscope.measures.intervention import (
    FromSample,
    Source,
    beta_vae_score_from,
    factor_vae_score_from,
)
from polariscope.measures.mcc import mcc
from polariscope.measures.mig import mig
from polariscope.measures.modularity import Readout, explicitness, modularity
from polariscope.measures.neighbour_score import neighbour_score
from polariscope.measures.sap import sap
from polariscope.measures.score import TEST, TRAIN, Score, paired
from polariscope.registry import nearest
from polariscope.tabular import Tabular

TITLES = {
    "beta-vae-score": "BetaVAE score",
    "factor-vae-score": "FactorVAE score",
    "mig": "MIG",
    "mcc": "MCC",
    "dci": "DCI disentanglement",
    "completeness": "DCI completeness",
    "informativeness": "DCI informativeness",
    "modularity": "Modularity",
    "explicitness": "Explicitness",
    "sap": "SAP",
    "neighbour-score": "Disentanglement Score (kNN)",
}
PROBED = ("dci", "completeness", "informativeness")
"""Scores that depend so much on their probe that they are never shown without its name."""
COLUMNS = {
    "score": "Score",
    "value": "Value",
    "interval": "95 % interval",
    "of_factors": "Factors as codes",
    "rotated": "Rotated codes",
    "chance": "By chance",
    "note": "Note",
    "protocol": "Protocol",
}
"""Columns of the table beside the score: the score of the factors used as a code, and of randomly rotated codes."""
NUMBERS = ("value", "of_factors", "rotated", "chance")


@dataclass(frozen=True)
class Protocol:
    """Probes and sample sizes of all scores; ``PROTOCOLS`` holds those that have a name."""

    name: str
    probe: Probe
    """Probe of DCI."""
    readout: Readout
    """Classifier of explicitness."""
    padding: Literal["none", "noise"]
    """Padding of MCC."""
    votes: tuple[int, int]
    """Number of votes to train and to test the BetaVAE and FactorVAE scores."""
    samples: tuple[int, int] = (TRAIN, TEST)
    """Examples to train and to test the probes of DCI, SAP and explicitness; their sum for the neighbour score."""
    correlation_samples: int = 10_000
    information_samples: int = 100_000
    """Examples for MIG and modularity; their bias decreases with more examples."""
    bins: int = 20


PROTOCOLS = {
    "fast": Protocol("fast", probe="boosting", readout="discriminant", padding="none", votes=(2_000, 1_000)),
    "published": Protocol("published", probe="gbt", readout="logistic", padding="noise", votes=(TRAIN, TEST)),
}


@dataclass(frozen=True, eq=False)
class Entry:
    """One score with its context. ``interval``, ``of_factors``, ``rotated`` and ``chance`` are None if they were not
    requested or are undefined."""

    name: str
    title: str
    score: Score
    interval: tuple[float, float] | None = None
    of_factors: float | None = None
    """The score of the factors used as a code. For a linear probe it is not an upper bound: SAP separates values by
    thresholds, and a code that spreads the values further apart can score more than the factor itself."""
    rotated: float | None = None
    """Mean score of the codes after random rotations."""
    chance: Chance | None = None
    """The score of the codes with permuted factors."""

    @property
    def within_chance(self) -> bool:
        """Whether the score is within chance."""
        return self.chance is not None and self.chance.holds(self.value)

    @property
    def value(self) -> float:
        return self.score.value

    @property
    def key(self) -> str:
        """Its name in files, with the name of the probe if its scores are not comparable with published ones."""
        own = self.name in PROBED and self.score.settings["probe"] not in COMPARABLE
        return f"{self.name}-{self.score.settings['probe']}" if own else self.name


@dataclass(frozen=True, eq=False, repr=False)
class Report(Tabular):
    """All scores of one representation. ``report["mig"]`` is an :class:`Entry`; printing gives a table."""

    entries: Mapping[str, Entry]
    undefined: Mapping[str, str]
    """Undefined scores, with the reasons."""
    protocol: Protocol
    factor_names: tuple[str, ...]
    samples: int
    latents: int
    seed: int
    repeats: int
    rotations: int
    permutations: int = 0

    def __getitem__(self, name: str) -> Entry:
        if name in self.undefined:
            raise ValueError(f"{TITLES[name]} has no value here: {self.undefined[name]}")
        if name not in self.entries:
            raise ValueError(f"the report has no score {name!r}: {nearest(name, self.entries)}")
        return self.entries[name]

    def per_factor(self) -> dict[str, dict[str, float]]:
        """Each score's part for each factor by name."""
        return {
            entry.key: dict(zip(self.factor_names, entry.score.per_factor.tolist(), strict=True))
            for entry in self.entries.values()
        }

    def summary(self) -> dict[str, Any]:
        """JSON-ready: values, intervals, scores of the factors and after rotation, and the settings of all scores."""
        rows = {
            entry.key: {
                "title": entry.title,
                "value": entry.value,
                "interval": entry.interval,
                "of_factors": entry.of_factors,
                "rotated": entry.rotated,
                "chance": None if entry.chance is None else entry.chance.level,
                "within_chance": entry.within_chance,
                "per_factor": entry.score.per_factor.tolist(),
                "samples": entry.score.samples,
                "protocol": entry.score.protocol,
                "settings": {key: np.asarray(item).tolist() for key, item in entry.score.settings.items()},
            }
            for entry in self.entries.values()
        }
        facts = {"samples": self.samples, "latents": self.latents, "factors": list(self.factor_names)}
        facts |= {"seed": self.seed, "repeats": self.repeats, "rotations": self.rotations}
        facts["permutations"] = self.permutations
        return {"scores": rows, "undefined": dict(self.undefined), "protocol": asdict(self.protocol), **facts}

    @property
    def headline(self) -> str:
        sizes = f"{self.samples:,} samples, {self.latents} latents, {len(self.factor_names)} factors"
        return f"{sizes}; {self.protocol.name} protocol, seed {self.seed}"

    def records(self) -> list[dict[str, Any]]:
        """A row for each score; an undefined score has its reason."""
        rows = [
            {
                "score": e.title,
                "value": e.value,
                "interval": None if e.interval is None else f"{e.interval[0]:.3f} to {e.interval[1]:.3f}",
                "of_factors": e.of_factors,
                "rotated": e.rotated,
                "chance": None if e.chance is None else e.chance.level,
                "note": "no more than chance" if e.within_chance else "",
                "protocol": e.score.protocol,
            }
            for e in self.entries.values()
        ]
        empty = dict.fromkeys(COLUMNS)
        return rows + [
            empty | {"score": TITLES[name], "note": f"no value: {why}"} for name, why in self.undefined.items()
        ]

    def findings(self, title: str = "codes") -> Findings:
        columns = [Column(key, words, "%.3f" if key in NUMBERS else "") for key, words in COLUMNS.items()]
        table = Records(name="scores", title="Disentanglement scores", rows=self.records(), columns=columns)
        return Findings(title, f"{self.headline}.", [table], facts={"protocol": asdict(self.protocol)})

    def __str__(self) -> str:
        (table,) = self.findings().parts
        return "\n".join([*(table.markdown() or []), self.headline])


def disentanglement(
    codes: ArrayLike,
    factors: ArrayLike,
    protocol: Literal["fast", "published"] | Protocol = "fast",
    *,
    scores: Sequence[str] = tuple(TITLES),
    factor_names: Sequence[str] = (),
    categorical: Sequence[int] = (),
    source: Source | None = None,
    repeats: int = 10,
    rotations: int = 3,
    permutations: int = 5,
    of_factors: bool = True,
    seed: int = 0,
) -> Report:
    """Every score of ``codes`` (samples, latents) against ``factors`` (samples, factors), on plain arrays.

    ``"published"`` uses the probes and sample sizes of the publications, which takes minutes because of scikit-learn's
    gradient boosting. ``"fast"`` uses the same definitions with faster probes; each score describes the difference. DCI
    takes most of the time, once for each repeat, rotation and permutation: leave it out of ``scores`` if you do not
    need it, or choose a faster ``probe`` in a :class:`Protocol`. For MCC, the values of ``categorical`` factors are
    numbered in the order that gives the highest score. With a ``source``
    (:class:`~polariscope.measures.intervention.FromEncoder`) the BetaVAE and FactorVAE scores encode new examples
    instead of using those of the sample; ``of_factors``, rotations and intervals always use the sample.

    Intervals (95 %) come from ``repeats`` random halves of the samples, each with its own seed, and chance levels from
    ``permutations`` of the rows of the factors (:mod:`~polariscope.measures.chance`).

    >>> rng = np.random.default_rng(0)
    >>> factors = rng.integers(0, (3, 4, 5), size=(2000, 3))
    >>> report = disentanglement(factors, factors, scores=("mig", "mcc"), repeats=4)
    >>> round(report["mcc"].value, 6), round(report["mcc"].of_factors, 6), report["mig"].rotated < report["mig"].value
    (1.0, 1.0, True)
    """
    z, v = paired(codes, factors)
    settings = _protocol(protocol)
    for name in scores:
        if name not in TITLES:
            raise ValueError(f"there is no score {name!r}: {nearest(name, TITLES)}")
    if repeats < 0 or repeats == 1 or rotations < 0:
        raise ValueError(f"repeats is 0 (no intervals) or at least 2, rotations 0 or more; got {repeats}, {rotations}")
    if permutations < 0 or permutations == 1:
        raise ValueError(f"permutations is 0 (no chance levels) or at least 2; got {permutations}")
    names = tuple(factor_names) or tuple(f"factor_{k}" for k in range(v.shape[1]))
    if len(names) != v.shape[1]:
        raise ValueError(f"factor_names has {len(names)} names for {v.shape[1]} factors")
    rng = np.random.default_rng(seed)

    def values(z: FloatArray, v: NDArray[Any], seed: int) -> dict[str, float]:
        return {name: s.value for name, s in _all_scores(z, v, settings, scores, categorical, seed)[0].items()}

    computed, undefined = _all_scores(z, v, settings, scores, categorical, seed, source)
    halves = [rng.permutation(len(z))[: len(z) // 2] for _ in range(repeats)]
    repeated = [values(z[half], v[half], seed + 1 + i) for i, half in enumerate(halves) if _all_vary(v[half])]
    turned = [values(z @ random_rotation(z.shape[1], rng), v, seed) for _ in range(rotations)]
    perfect = values(perfect_code(v), v, seed) if of_factors else {}
    unrelated = [values(z, v[rng.permutation(len(v))], seed) for _ in range(permutations)]
    entries = {
        name: Entry(
            name,
            f"{TITLES[name]} ({settings.probe})" if name in PROBED else TITLES[name],
            score,
            interval_of_halves(score.value, [r[name] for r in repeated if name in r]),
            perfect.get(name),
            float(np.mean([t[name] for t in turned if name in t])) if turned else None,
            chance_of([u[name] for u in unrelated if name in u], looks=len(computed)),
        )
        for name, score in computed.items()
    }
    return Report(entries, undefined, settings, names, len(z), z.shape[1], seed, repeats, rotations, permutations)


def perfect_code(factors: ArrayLike) -> FloatArray:
    """The factors as codes: each standardised, so that no score prefers one for its scale.

    >>> perfect_code([[0, 5], [2, 5], [0, 7], [2, 7]]).tolist()
    [[-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0], [1.0, 1.0]]
    """
    v = np.asarray(factors, dtype=np.float64)
    return np.asarray((v - v.mean(axis=0)) / v.std(axis=0))


def random_rotation(size: int, seed: int | np.random.Generator = 0) -> FloatArray:
    """An orthogonal matrix drawn uniformly (Haar).

    >>> q = random_rotation(4)
    >>> np.allclose(q @ q.T, np.eye(4))
    True
    """
    q, r = np.linalg.qr(np.random.default_rng(seed).standard_normal((size, size)))
    return np.asarray(q * np.sign(np.diag(r)))


def _protocol(protocol: str | Protocol) -> Protocol:
    if isinstance(protocol, Protocol):
        return protocol
    if protocol not in PROTOCOLS:
        raise ValueError(f"there is no protocol {protocol!r}: {nearest(str(protocol), PROTOCOLS)}")
    return PROTOCOLS[protocol]


def _all_vary(factors: NDArray[Any]) -> bool:
    """Whether no factor is constant; in half of the samples the rare values of a factor can be missing."""
    return bool((factors != factors[0]).any(axis=0).all())


def _all_scores(
    z: FloatArray,
    v: NDArray[Any],
    protocol: Protocol,
    wanted: Sequence[str],
    categorical: Sequence[int],
    seed: int,
    source: Source | None = None,
) -> tuple[dict[str, Score], dict[str, str]]:
    """The requested scores, and the reasons for undefined ones."""
    train, test = protocol.samples
    shown, asked = protocol.votes

    def some(limit: int) -> tuple[FloatArray, NDArray[Any]]:
        if limit >= len(z):
            return z, v
        rows = np.random.default_rng(seed).choice(len(z), limit, replace=False)
        return z[rows], v[rows]

    @cache
    def parts() -> DCIScores:
        return dci(z, v, protocol.probe, seed, train, test)

    ways: dict[str, Callable[[], Score]] = {
        "beta-vae-score": lambda: beta_vae_score_from(source or FromSample(z, v), train=shown, test=asked, seed=seed),
        "factor-vae-score": lambda: factor_vae_score_from(
            source or FromSample(z, v), train=shown, test=asked, seed=seed
        ),
        "mig": lambda: mig(*some(protocol.information_samples), protocol.bins),
        "mcc": lambda: mcc(
            *some(protocol.correlation_samples), categorical=categorical, padding=protocol.padding, seed=seed
        ),
        "dci": lambda: parts().disentanglement,
        "completeness": lambda: parts().completeness,
        "informativeness": lambda: parts().informativeness,
        "modularity": lambda: modularity(*some(protocol.information_samples), protocol.bins),
        "explicitness": lambda: explicitness(z, v, protocol.readout, seed, protocol.bins, train, test),
        "sap": lambda: sap(z, v, seed=seed, train=train, test=test),
        "neighbour-score": lambda: neighbour_score(*some(train + test), seed=seed),
    }
    scores: dict[str, Score] = {}
    undefined: dict[str, str] = {}
    for name in wanted:
        try:
            scores[name] = ways[name]()
        except ValueError as error:
            undefined[name] = str(error)
    return scores, undefined
