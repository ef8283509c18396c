"""Every verdict follows its table, and comes out both ways: near each limit, on the one side and on the other.

A smoke run gives the rows, of which each case overwrites what the claim looks at, so that no training decides anything;
they are repeated for five seeds, as fewer decide nothing.
Studies whose laptop table is committed are judged on that, as it is and changed.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from polariscope.studies import Table, studies
from polariscope.studies.engine import Outcome
from polariscope.studies.polarised.fondue import BETAS, LAMBDAS, STARTS
from polariscope.studies.study import Judgement, Row

Rows = list[Row]
Change = Callable[[Rows], Rows]


def put(where: Row | None = None, **values) -> Change:
    """A change: values, or functions of the row, in the rows where other columns have given values."""

    def new(row: Row) -> Row:
        return row | {name: value(row) if callable(value) else value for name, value in values.items()}

    return lambda rows: [new(row) if (where or {}).items() <= row.items() else row for row in rows]


def by(column: str, of: str, values: dict) -> Change:
    """A change: a column by the value of another."""
    return lambda rows: [row | {column: values[row[of]]} if row.get(of) in values else row for row in rows]


def also(where: Row, **values) -> Change:
    """A change: the rows where other columns have given values once more, with these."""
    return lambda rows: rows + [row | values for row in rows if where.items() <= row.items()]


def repeated(rows: Rows) -> Rows:
    """The rows of the first seed for each of five; exact rows, and tables that have five seeds, as they are."""
    seeds = Table(rows).distinct("seed")
    if not seeds or len(seeds) >= 5:
        return rows
    exact = [row for row in rows if row.get("seed") is None]
    return exact + [row | {"seed": seed} for seed in range(5) for row in rows if row.get("seed") == seeds[0]]


def judged(found: Outcome, words: str, *changes: Change) -> Judgement:
    rows = repeated(found.table.rows)
    for change in changes:
        rows = change(rows)
    return replace(found, claims=studies.get(found.name)().judge(Table(rows), "laptop")).claim(words)


def cases(name: str, *rows: tuple) -> list:
    """Words of a claim, what it has to say, and the changes of the table that make it say so."""
    group = pytest.mark.xdist_group(name)
    return [pytest.param(name, words, held, changes, marks=group) for words, held, *changes in rows]


@pytest.fixture
def check(outcome):
    def follow(name: str, words: str, held: bool | None, changes: list[Change]) -> None:
        assert judged(outcome(name), words, *changes).held is held

    return follow


# --- alignment -------------------------------------------------------------------------------------------------------


def distances(diagonal: float | None, plain: float | None, full: float | None) -> Change:
    """By model, with both latents in use everywhere."""
    change = by("distance", "model", {"beta-vae": diagonal, "ae": plain, "full-beta-vae": full})
    return lambda rows: put(active=2)(change(rows))


def shares(dependent: float, ten: float) -> Change:
    return by("share", "latents", {"dependent": dependent, "ten": ten})


def another_task(dependent: float, ten: float) -> list[Change]:
    first = {"task": "square-linear"}
    return [
        also(first | {"latents": latents}, task="blobs", share=share)
        for latents, share in {"dependent": dependent, "ten": ten}.items()
    ]


def dead_from(beta: float) -> list[Change]:
    """The variance of a latent near 1 at the middle of three betas, which is this one."""
    return [stairs("var", [0.1, 0.94], [0.1, 0.96], [0.9, 0.99]), put({"beta": 0.2}, beta=beta)]


def slopes(*of_ranks: int, part: str = "rooms") -> Change:
    return put({"part": part}, var=lambda row: row["rank"], slope=lambda row: of_ranks[row["rank"]])


def stairs(column: str, *values) -> Change:
    return by(column, "beta", dict(zip((0.05, 0.2, 1.0), values, strict=True)))


@pytest.mark.parametrize(
    ("name", "words", "held", "changes"),
    [
        *cases(
            "orthogonal-decoders",
            ("Gaussian blobs", True, distances(0.39, 0.5, 0.5)),
            ("Gaussian blobs", False, distances(0.41, 0.5, 0.5)),  # by less than 0.1
            ("Gaussian blobs", False, distances(0.51, 0.5, 0.9)),
            ("Gaussian blobs", False, distances(0.51, 0.9, 0.5)),
            ("Gaussian blobs", None, distances(None, 0.5, 0.5)),
            ("Gaussian blobs", None, distances(0.1, 0.5, None)),
            ("random orientations", True, distances(0.1, 0.34, 0.34)),  # six tenths of 0.55
            ("random orientations", False, distances(0.1, 0.32, 0.32)),
            ("random orientations", True, distances(0.1, 0.76, 0.76)),
            ("random orientations", False, distances(0.1, 0.78, 0.78)),
            ("random orientations", None, distances(0.1, None, None)),
            ("the more orthogonal the decoder", None, distances(0.1, 0.5, 0.5)),  # without sprites
        ),
        *cases(
            "polarised-training",
            ("nearly all the time", True, shares(97.9, 50)),
            ("nearly all the time", False, shares(97.7, 99)),
            ("nearly all the time", False, shares(97.9, 50), *another_task(97.7, 50)),
            ("At the end of training", True, put(last=0.029)),
            ("At the end of training", False, put(last=0.001), put({"latents": "ten"}, last=0.031)),
            ("takes longer", True, shares(91, 90.6)),
            ("takes longer", False, shares(91, 90.8)),
            ("takes longer", False, shares(91, 91)),
            ("takes longer", False, shares(91, 93)),
            ("takes longer", False, shares(91, 80), *another_task(90, 91)),  # on one of two tasks only
        ),
        *cases(
            "beta-line",
            ("passive in stages", True, stairs("active", 2, 1, 0)),
            ("passive in stages", False, stairs("active", 2, 2, 0)),
            ("until one latent is dead", True, *dead_from(0.084)),  # half of 1/6
            ("until one latent is dead", False, *dead_from(0.082)),
            ("until one latent is dead", True, *dead_from(0.33)),
            ("until one latent is dead", False, *dead_from(0.34)),
            ("until one latent is dead", False, put(var=[0.1, 0.94])),
            ("falls in steps", True, stairs("score", 0.81, 0.69, 0.14)),
            ("falls in steps", True, stairs("score", 0.81, 0.31, 0.14)),
            ("falls in steps", False, stairs("score", 0.79, 0.5, 0.14)),
            ("falls in steps", False, stairs("score", 0.81, 0.71, 0.14)),
            ("falls in steps", False, stairs("score", 0.81, 0.29, 0.14)),
            ("falls in steps", False, stairs("score", 0.81, 0.5, 0.16)),
            ("blobs: the best beta", True, stairs("score", 0.5, 0.6, 0.4), also({}, task="blobs")),
            ("blobs: the best beta", False, stairs("score", 0.58, 0.6, 0.4), also({}, task="blobs")),  # by too little
            ("blobs: the best beta", False, stairs("score", 0.6, 0.5, 0.4), also({}, task="blobs")),
            ("blobs: the best beta", False, stairs("score", 0.4, 0.5, 0.6), also({}, task="blobs")),
        ),
        *cases(
            "eigenfaces",
            ("most precise latents", True, slopes(4, 3, 1, 2, 0)),  # Spearman -0.9
            ("most precise latents", False, slopes(2, 4, 3, 1, 0)),  # Spearman -0.7
            ("Faces: an image", True, slopes(4, 3, 1, 2, 0, part="faces")),
            ("Faces: an image", False, slopes(2, 4, 3, 1, 0, part="faces")),
            ("eigenvectors of the data", True, put({"part": "linear"}, var=0.74, angle=19.0)),
            ("eigenvectors of the data", False, put({"part": "linear"}, var=0.74, angle=21.0)),
            ("eigenvectors of the data", None, put({"part": "linear"}, var=0.76, angle=21.0)),
            ("meaningful", True, put({"part": "rooms"}, information=0.21)),
            ("meaningful", False, put({"part": "rooms"}, information=lambda r: 0.21 if r["rank"] < 4 else 0.19)),
        ),
    ],
)  # fmt: skip
def test_alignment(check, name, words, held, changes) -> None:
    check(name, words, held, changes)


def scored(part: str, column: str, original, modified, noise) -> Change:
    change = by(column, "data", {"original": original, "modified": modified, "noise": noise})
    return lambda rows: [change([row])[0] if row["part"] == part else row for row in rows]


def falling(modified: list[float], before: list[float] | None = None) -> Change:
    return scored("sprites", "mig_by_factor", before or [0.2] * 5, modified, [0.2] * 5)


def changed(**values) -> Change:
    return put({"part": "sprites", "data": "modified"}, **values)


def swept(score: float, enough: bool) -> Change:
    """A sweep beside an original score of 0.3."""
    plane, sweep = scored("plane", "score", 0.3, 0.1, 0.2), put({"part": "sweep"}, score=score, enough=enough)
    return lambda rows: sweep(plane(rows))


@pytest.mark.parametrize(
    ("name", "words", "held", "changes"),
    cases(
        "manipulated-data",
        ("small local change", True, scored("plane", "score", 0.9, 0.6, 0.81)),
        ("small local change", False, scored("plane", "score", 0.9, 0.5, 0.79)),  # noise does too
        ("small local change", False, scored("plane", "score", 0.9, 0.7, 0.84)),  # not much further
        ("principal components", True, scored("plane", "pca", 0.97, 0.93, 0.96)),
        ("principal components", False, scored("plane", "pca", 0.97, 0.91, 0.96)),
        ("two modes", False, put({"part": "plane"}, score=lambda row: 0.5 + row["seed"] / 10)),
        ("two modes", True, put({"part": "plane"}, score=lambda row: 0.9 if row["seed"] == 4 else 0.5)),
        ("learned change lowers", True, scored("sprites", "mig", 0.3, 0.15, 0.21)),
        ("learned change lowers", False, scored("sprites", "mig", 0.3, 0.1, 0.19)),
        ("learned change lowers", False, scored("sprites", "mig", 0.3, 0.2, 0.24)),
        ("falls further", True, scored("sprites", "mig", 0.3, 0.1, 0.14)),
        ("falls further", False, scored("sprites", "mig", 0.3, 0.1, 0.12)),  # by less than a tenth of it
        ("falls further", False, scored("sprites", "mig", 0.3, 0.1, 0.09)),
        ("falls further", False, scored("sprites", "mig", 0.3, 0.1, 0.14),
         also({"part": "sprites"}, model="factor-vae", mig=0.2)),
        ("every factor falls", True, falling([0.1] * 5)),
        ("every factor falls", False, falling([0.1, 0.1, 0.2, 0.1, 0.1])),
        ("every factor falls", False, falling([0.1, 0.1, 0.21, 0.1, 0.1])),
        ("every factor falls", None, falling([0.01] * 5, before=[0.2, 0.2, 0.04, 0.2, 0.2])),
        ("over-pruned", True, swept(0.24, enough=True)),
        ("over-pruned", False, swept(0.26, enough=True)),
        ("over-pruned", True, swept(0.24, enough=True), also({"part": "sweep"}, score=0.31, enough=False)),
        ("over-pruned", None, swept(0.24, enough=False)),
        ("keeps the factors apart", True, changed(injective=True, added_variance=0.09)),
        ("keeps the factors apart", False, changed(injective=False, added_variance=0.09)),
        ("keeps the factors apart", False, changed(injective=True, added_variance=0.11)),
    ),
)  # fmt: skip
def test_manipulated_data(check, name, words, held, changes) -> None:
    check(name, words, held, changes)


# --- the polarised regime --------------------------------------------------------------------------------------------


def pruned(*passive: float) -> list[Change]:
    """Passive variables by beta, of which the last is added to those of the smoke run."""
    betas = (0.25, 4.0, 16.0)
    return [also({"beta": 4.0}, beta=16.0), by("passive", "beta", dict(zip(betas, passive, strict=True)))]


def correlation(of: str, mean: float, sampled: float) -> Change:
    return put(mixed=3, passive=2, **{f"tc_mean_{of}": mean, f"tc_sampled_{of}": sampled})


def effects(others: float) -> Change:
    """Of the first variable 2, and of the others a share of it."""
    return put(effect=lambda row: 2.0 if row["variable"] == 0 else 2 * others)


@pytest.mark.parametrize(
    ("name", "words", "held", "changes"),
    [
        *cases(
            "polarised-regime",
            ("passive variables grows", True, *pruned(3, 5, 4.7)),
            ("passive variables grows", False, *pruned(3, 5, 4.6)),
            ("passive variables grows", False, *pruned(3, 3, 3)),
            ("exceeds that of the samples", False, correlation("all", 0.49, 0.5)),
            ("exceeds that of the samples", None, correlation("all", 0.51, 0.5), put(passive=0)),
            ("means and samples agree", True, correlation("non-passive", 0.34, 0.1)),
            ("means and samples agree", False, correlation("non-passive", 0.36, 0.1)),
            ("means and samples agree", False, correlation("non-passive", 0.1, 0.36)),
            ("means and samples agree", None, correlation("non-passive", 0.34, 0.1), put(passive=0)),
            ("rank of the means", True, put(mixed=3, passive=7, erank_mean_all=3.9)),
            ("rank of the means", False, put(mixed=3, passive=7, erank_mean_all=4.1)),
            ("rank of the means", False, put(mixed=3, passive=7, erank_mean_all=1.9)),
            ("rank of the means", None, put(active=0, mixed=0, passive=10, erank_mean_all=4.1)),
            ("rank of the samples", True, put(erank_sampled_all=9.41)),
            ("rank of the samples", False, put(erank_sampled_all=9.9), put({"beta": 4.0}, erank_sampled_all=9.39)),
            ("trace gap is the sum", True, put(trace_gap_sampled=1.24, trace_gap_analytic=1.0)),
            ("trace gap is the sum", False, put(trace_gap_sampled=1.26, trace_gap_analytic=1.0)),
            ("no better than chance", True, put(accuracy_sampled_passive=0.24, accuracy_sampled_random=0.2)),
            ("no better than chance", False, put(accuracy_sampled_passive=0.26, accuracy_sampled_random=0.2)),
            ("no better than chance", None, put(accuracy_sampled_passive=None)),
        ),
        *cases(
            "annealed-capacity",
            ("ends at the capacity", True, put(kl=lambda row: row["capacity"] + 0.49)),
            ("ends at the capacity", False, put(kl=lambda row: row["capacity"] - 0.51)),
            ("almost independent", True, by("passive", "capacity", {2.0: 6, 6.0: 3})),
            ("almost independent", False, by("passive", "capacity", {2.0: 7, 6.0: 3})),
            ("almost independent", False, by("passive", "capacity", {2.0: 3, 6.0: 2})),
            ("rises with the capacity", True, by("tc_mean", "capacity", {2.0: 1.0, 6.0: 1.1})),
            ("rises with the capacity", False, by("tc_mean", "capacity", {2.0: 1.1, 6.0: 1.0})),
            ("rises with the capacity", None, by("tc_mean", "capacity", {2.0: 1.1, 6.0: None})),
        ),
        *cases(
            "identifiable-vae",
            ("some variables are passive", True, put(type="active"), put({"variable": 3}, type="passive")),
            ("some variables are passive", False, put(type="active")),
            ("constant near zero", True, put(type="passive", var_of_mean=0.18, prior_var=2.0)),
            ("constant near zero", False, put(type="passive", var_of_mean=0.22, prior_var=2.0)),
            ("constant near zero", None, put(type="active")),
            ("follows the posterior's", True, put(type="active", kl=0.11, match=0.91)),
            ("follows the posterior's", False, put(type="active", kl=0.11, match=0.89)),
            ("follows the posterior's", None, put(type="active", kl=0.09, match=0.89)),
            ("follows the posterior's", None, put(type="passive", kl=0.11, match=0.89)),
            ("does not use passive", True, put(type="passive"), put({"variable": 0}, type="active"), effects(0.09)),
            ("does not use passive", False, put(type="passive"), put({"variable": 0}, type="active"), effects(0.11)),
            ("does not use passive", None, put(type="active"), effects(0.09)),
            ("With a learned prior mean", True, put(type="passive"), effects(0.09)),
            ("With a learned prior mean", False, put(type="passive"), effects(0.11)),
            ("With a learned prior mean", False, put(type="active"), effects(0.09)),
        ),
    ],
)
def test_polarised_regime(check, name, words, held, changes) -> None:
    check(name, words, held, changes)


def alike(comparison: str, encoder: float, decoder: float, latent: float) -> Change:
    """Every cell of a comparison by what its row is a layer of."""

    def level(layer: str) -> float:
        return encoder if layer.startswith("encoder") else decoder if layer.startswith("decoder") else latent

    def values(row: Row) -> list[list[float]]:
        return [[level(layer)] * len(row["columns"]) for layer in row["rows"]]

    return put({"comparison": comparison}, values=values)


def pairs(cka: float, active: list[int], apart: int = 5) -> Change:
    """Five pairs of runs, whose seeds differ by ``apart``."""
    return put({"comparison": "pair"}, cka=cka, active=active, other_seed=lambda row: row["seed"] + apart)


def dimensions(late: float) -> Change:
    """Of every layer 5 at the end of four snapshots, and before something else."""
    return by("dimension", "step", {10: 50.0, 20: late, 30: 50.0, 40: 5.0})


@pytest.mark.parametrize(
    ("name", "words", "held", "changes"),
    cases(
        "layer-similarity",
        ("different seeds agree", True, alike("seeds", 0.91, 0.1, 0.1)),
        ("different seeds agree", False, alike("seeds", 0.89, 0.9, 0.9)),
        ("encoder settles before", True, alike("early", 0.51, 0.5, 0.9)),
        ("encoder settles before", False, alike("early", 0.49, 0.5, 0.1)),
        ("collapsed model", True, alike("collapsed", 0.049, 0.049, 0.049)),
        ("collapsed model", False, alike("collapsed", 0.0, 0.051, 0.0)),
        ("across objectives", True, alike("objectives", 0.91, 0.1, 0.8)),
        ("across objectives", False, alike("objectives", 0.89, 0.1, 0.5)),
        ("across objectives", False, alike("objectives", 0.91, 0.1, 0.82)),
        ("trunk is more similar to the encoder", True, alike("classifier", 0.61, 0.9, 0.5)),
        ("trunk is more similar to the encoder", False, alike("classifier", 0.59, 0.1, 0.5)),
        ("layer of the trunk", True, alike("classifier", 0.56, 0.9, 0.5)),
        ("layer of the trunk", False, alike("classifier", 0.54, 0.1, 0.5)),
        ("trunk is nearly the same", True, alike("classifier", 0.91, 0.9, 0.5)),
        ("trunk is nearly the same", False, alike("classifier", 0.89, 0.9, 0.5)),
        ("same number of active", True, pairs(0.91, [3, 3])),
        ("same number of active", False, pairs(0.91, [3, 4])),
        ("same number of active", None, pairs(0.89, [3, 4])),
        (
            "same number of active",
            None,
            pairs(0.91, [3, 3]),
            put({"comparison": "pair"}, seed=0, other_seed=1),
        ),  # of one pair of runs
        ("same number of active", None, pairs(0.91, [3, 4], apart=0)),  # snapshots of one model
        ("hardly changes", True, dimensions(6.2)),
        ("hardly changes", True, dimensions(3.8)),
        ("hardly changes", False, dimensions(6.3)),
    ),
)
def test_layer_similarity(check, name, words, held, changes) -> None:
    check(name, words, held, changes)


# --- FONDUE ----------------------------------------------------------------------------------------------------------


def bent(objective: str, knee: int) -> Change:
    """A curve of reconstruction over 1, 2 and 4 latents with its elbow at 2, or (0) with none."""
    fall = {1: 10.0, 2: 2.0 if knee else 10.0, 4: 1.0 if knee else 10.0}
    change = by("reconstruction", "latents", fall)
    return lambda rows: [change([row])[0] if row.get("objective") == objective else row for row in rows]


def answers(part: str, **values) -> Change:
    return put({"part": part}, **values)


LINEAR = {0.1: 6, 1.0: 3}


@pytest.mark.parametrize(
    ("name", "words", "held", "changes"),
    cases(
        "fondue",
        ("predicted number", True, answers("linear", answer=lambda row: LINEAR[row["beta"]])),
        ("predicted number", False, answers("linear", answer=lambda row: LINEAR[row["beta"]] + (row["beta"] == 1))),
        ("A larger beta", True, answers("beta", answer=lambda row: 4 - (row["beta"] > 1))),
        ("A larger beta", False, answers("beta", answer=4)),
        ("A larger beta", False, answers("beta", answer=lambda row: 4 + (row["beta"] > 1))),
        ("fully trained VAEs", True, answers("toy", answer=4), bent("vae", 2)),
        ("fully trained VAEs", False, answers("toy", answer=5), bent("vae", 2)),
        ("fully trained VAEs", None, answers("toy", answer=4), bent("vae", 0)),
        ("deterministic autoencoders", True, answers("toy", answer=4), bent("ae", 2)),
        ("deterministic autoencoders", False, answers("toy", answer=5), bent("ae", 2)),
        ("deterministic autoencoders", None, answers("toy", answer=4), bent("ae", 0)),
    ),
)
def test_fondue(check, name, words, held, changes) -> None:
    check(name, words, held, changes)


TOY = {"part": "toy", "answer": 3, "saturated": False}
CURVE = {"part": "elbow-sprites", "objective": "vae", "accuracy": None, "chance": None, "spi": 0.0, "seconds": 1.0}
LARGER = [
    *(TOY | {"algorithm": name} for name in ("FONDUE", "FONDUE_IDE", "BS_FONDUE")),
    TOY | {"algorithm": "FONDUE_IB", "answer": 6},
    *({"part": "start", "start": start, "answer": 3} for start in STARTS),
    *({"part": "lambda", "lambda": strength, "answer": 3 - (strength > 1)} for strength in LAMBDAS),
    *({"part": "random-decoder", "dimension": d, "answer": d} for d in (3, 8, 20)),
    {"part": "sprites", "answer": 9, "trusted": True, "steps": 2500},
    *(CURVE | {"latents": n, "seed": 0, "reconstruction": r} for n, r in ((3, 90.0), (8, 20.0), (18, 10.0))),
]
"""What the searches of the larger scales could have answered, such that everything holds."""


@pytest.mark.parametrize(
    ("words", "held", "changes"),
    [
        ("on dSprites with the conv", True, []),
        ("on dSprites with the conv", False, [answers("sprites", answer=8)]),
        ("on dSprites with the conv", False, [answers("sprites", answer=13)]),
        ("on dSprites with the conv", None, [answers("sprites", trusted=False)]),
        ("trained conv VAEs", True, [answers("sprites", answer=6)]),
        ("trained conv VAEs", False, [answers("sprites", answer=11)]),
        ("The starting point of the search", True, [put({"start": 25}, answer=4)]),
        ("The starting point of the search", False, [put({"start": 25}, answer=5)]),
        ("A larger lambda", True, []),
        ("A larger lambda", False, [put({"lambda": 4.0}, answer=4)]),
        ("A larger lambda", False, [answers("lambda", answer=3)]),
        ("Binary search", True, [put({"algorithm": "BS_FONDUE"}, answer=4)]),
        ("Binary search", False, [put({"algorithm": "BS_FONDUE"}, answer=5)]),
        ("Binary search", False, [put({"algorithm": "BS_FONDUE"}, answer=1)]),
        ("The IB variant", True, [put({"algorithm": "FONDUE_IDE"}, answer=5)]),
        ("The IB variant", False, [put({"algorithm": "FONDUE_IDE"}, answer=6)]),
        ("The IB variant", False, [put({"algorithm": "FONDUE_IB"}, answer=3)]),
        ("On random decoders", True, []),
        ("On random decoders", False, [put({"dimension": 20}, answer=7)]),
    ],
)
@pytest.mark.xdist_group("fondue")
def test_fondue_at_its_larger_scales(outcome, words, held, changes) -> None:
    result = outcome("fondue")
    rows = [row for row in result.table.rows if row["part"] != "toy"] + LARGER
    assert judged(replace(result, table=Table(rows)), words, *changes).held is held


def test_fondue_has_the_settings_these_cases_speak_of() -> None:
    assert (BETAS[1::3], LAMBDAS[-1], STARTS[-1]) == ((0.5, 4.0), 4.0, 25)


# --- committed tables ------------------------------------------------------------------------------------------------


def squares(distance: float, **where) -> Change:
    return put({"route": "exact", **where}, distance=distance)


def excess_of(excess: Callable[[Row], float]) -> Change:
    return put(tc_mean_all=lambda row: row.get("tc_sampled_all", 0.0) + excess(row))


def angles(share: float, **where) -> Change:
    return put(where, angle=lambda row: share * row.get("angle", 0))


@pytest.mark.parametrize(
    ("name", "words", "held", "change"),
    [
        ("degenerate-squares", "orientation of a square", False, angles(0.5, ratio=1.0)),
        ("degenerate-squares", "orientation of a square", False, squares(0.34, ratio=1.0)),  # 0.55 less four errors
        ("degenerate-squares", "orientation of a square", True, squares(0.36, ratio=1.0)),
        ("degenerate-squares", "orientation of a square", True, squares(0.74, ratio=1.0)),
        ("degenerate-squares", "orientation of a square", False, squares(0.76, ratio=1.0)),
        ("degenerate-squares", "one best orientation", False, squares(1.1e-3, ratio=1.5, seed=3)),
        ("degenerate-squares", "one best orientation", True, squares(0.9e-3, ratio=1.5, seed=3)),
        ("illustrations", "Axes of a linear VAE", False, put({"model": "vae", "seed": 3}, angle=1.1)),
        ("illustrations", "Axes of a linear VAE", True, put({"model": "vae", "seed": 3}, angle=0.9)),
        ("illustrations", "Axes of a linear autoencoder", False, angles(0.7, model="ae")),  # of 15 to 42 degrees
        ("illustrations", "Axes of a linear autoencoder", True, angles(0.9, model="ae")),
        ("illustrations", "locally orthogonal", False, put({"model": "ae"}, cosine=0.1)),
        ("polarised-regime", "exceeds that", True, excess_of(lambda row: row["passive"] / 10)),
        ("polarised-regime", "exceeds that", False, excess_of(lambda row: row["passive"] - 5)),  # below 0 at 4 passive
        ("polarised-regime", "exceeds that", False, excess_of(lambda row: 10 - row["passive"])),
    ],
)
def test_a_claim_of_a_committed_table(committed, name, words, held, change) -> None:
    result = committed(name)
    assert result.origin.seeds >= 5
    assert result.claim(words).held
    assert judged(result, words, change).held is held


@pytest.mark.parametrize(
    ("words", "held", "changes"),
    [
        ("restores the alignment", True, [put({"route": "trained", "ratio": 1.0}, distance=0.5)]),
        ("restores the alignment", False, [put({"route": "trained", "ratio": 2.0}, score=0.5)]),
        ("restores the alignment", False, [put({"route": "trained", "ratio": 2.0}, distance=0.3)]),
        ("stretched by half", True, [put({"route": "trained", "ratio": 1.5}, score=0.91, distance=0.09)]),
        ("stretched by half", False, [put({"route": "trained", "ratio": 1.5}, score=0.89, distance=0.09)]),
        ("stretched by half", False, [put({"route": "trained", "ratio": 1.5}, score=0.91, distance=0.11)]),
    ],
)
def test_stretching_a_square(committed, words, held, changes) -> None:
    """Of the five restarts there are, the distance falls by 0.25 [-0.15, 0.65], which decides nothing."""
    assert judged(committed("degenerate-squares"), words, *changes).held is held


@pytest.mark.parametrize(("factor", "held"), [(1.0, True), (0.82, None), (0.7, False)])
def test_counts_that_differ_less_than_seeds_do_decide_nothing(committed, factor, held) -> None:
    """Passive variables have 138 correlations on average, active ones 111."""
    result = committed("snapshot-correlations")
    change = put({"type": "passive"}, count=lambda row: factor * row["count"])
    claim = judged(result, "most correlations above 0.2", change)
    assert claim.held is held
    assert bool(claim.note) == (held is None)


def test_what_three_seeds_have_decides_nothing(committed) -> None:
    """A single active variable has no correlation with another active one; here in two of the five trainings."""
    result = committed("snapshot-correlations")
    claim = judged(result, "vary strongly", *(put({"type": "active", "seed": seed}, movement=None) for seed in (0, 1)))
    assert (claim.held, claim.note) == (None, "5 seeds of passive, 3 of active: five of each are needed")


def test_a_pick_is_one_observation(committed) -> None:
    claim = committed("degenerate-squares").claim("works without labels")
    assert (claim.held, claim.note) == (None, "1 seed of most orthogonal, 10 of median: five of each are needed")


def test_without_active_variables_correlations_have_nobody_to_be_of(committed) -> None:
    result = committed("snapshot-correlations")
    for words in ("most correlations above 0.2", "vary strongly"):
        assert judged(result, words, put(type="passive")).held is None
