"""The studies of alignment: orthogonal decoders, squares, raising beta, data that entangles.

What trained models do is read from the committed tables. That each verdict follows its table is seen on tables with
changed columns, for which a smoke run gives the rows.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import kstest

from polariscope.jacobians import decoder_grams
from polariscope.manipulation.traversals import traverse
from polariscope.measures.orthogonality import haar_distance
from polariscope.nets.architecture import Linear
from polariscope.nets.autoencoder import Autoencoder, ModelConfig
from polariscope.studies import Table, studies
from polariscope.studies.beta_line import first_collapse
from polariscope.studies.degenerate_squares import _exact, projections
from polariscope.studies.engine import Outcome
from polariscope.studies.manipulated_data import _histogram, _two_modes, _violins
from polariscope.studies.orthogonal_decoders import _correlated, _scatter, _scatter_figure
from polariscope.studies.study import Claim, Row
from polariscope.theory.pca_vae import optimum
from polariscope.theory.polarised_regime import polarised_share, principal_order


@pytest.fixture
def committed(committed):
    """As everywhere, but a table that is still being made is waited for."""

    def read(name: str) -> Outcome:
        try:
            return committed(name)
        except ValueError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                pytest.skip(f"the laptop table of {name} is not there yet: polariscope reproduce {name}")
            raise

    return read


Change = Callable[[Row], Row]


def put(where: Row | None = None, **values) -> Change:
    """A change: values, or functions of the row, in the rows where other columns have given values."""

    def change(row: Row) -> Row:
        if not (where or {}).items() <= row.items():
            return row
        return row | {name: value(row) if callable(value) else value for name, value in values.items()}

    return change


def judged(found: Outcome, words: str, *changes: Change) -> Claim:
    """What a study says of its table with changed rows, at the scale where it speaks of everything."""
    rows = found.table.rows
    for change in changes:
        rows = [change(row) for row in rows]
    table = Table(rows)
    return replace(found, table=table, claims=studies.get(found.name)().claims(table, "laptop")).claim(words)


def cases(name: str, *rows: tuple) -> list:
    """Rows of a table of verdicts: words of a claim, what it has to say, and the changes that make it say so."""
    group = pytest.mark.xdist_group(name)
    return [pytest.param(name, words, held, changes, marks=group) for words, held, *changes in rows]


def turned(distance: float) -> Change:
    """Autoencoder and full covariance at this distance, with both latents in use."""
    return lambda row: put(distance=distance, active=2)(row) if row["model"] in ("ae", "full-beta-vae") else row


def scored(part: str, column: str, original, modified, noise) -> list[Change]:
    values = {"original": original, "modified": modified, "noise": noise}
    return [put({"part": part, "data": data}, **{column: value}) for data, value in values.items()]


STAGES = [put({"beta": beta}, active=active) for beta, active in ((0.05, 2), (0.2, 1), (1.0, 0))]
MIG = scored("sprites", "mig", 0.3, 0.1, 0.2)


def rank_of(row: Row) -> int:
    return row["rank"]


def stairs(*scores: float) -> list[Change]:
    return [put({"beta": beta}, score=score) for beta, score in zip((0.05, 0.2, 1.0), scores, strict=True)]


@pytest.mark.parametrize(
    ("name", "words", "held", "changes"),
    [
        *cases(
            "orthogonal-decoders",
            ("most orthogonal decoder", True, put({"model": "beta-vae"}, distance=0.49), turned(0.5)),
            ("most orthogonal decoder", False, put({"model": "beta-vae"}, distance=0.51), turned(0.5)),
            ("most orthogonal decoder", False, put({"model": "beta-vae"}, distance=0.51), turned(0.9),
             put({"model": "ae"}, distance=0.5)),
            ("most orthogonal decoder", None, put({"model": "beta-vae"}, distance=None), turned(0.5)),
            ("turned at random", True, turned(0.34)),  # 0.6 of 0.55
            ("turned at random", False, turned(0.32)),
            ("turned at random", None, turned(0.34), put({"model": "ae"}, active=1)),
            ("the more orthogonal the decoder", None),  # three models are too few
        ),
        *cases(
            "polarised-training",
            ("nearly all the time", True, put(share=91)),
            ("nearly all the time", False, put(share=99), put({"latents": "dependent"}, share=89)),
            ("At its end", True, put(last=0.029)),
            ("At its end", False, put(last=0.001), put({"latents": "ten"}, last=0.031)),
            ("takes longer", True, put({"latents": "dependent"}, share=91), put({"latents": "ten"}, share=80)),
            ("takes longer", False, put({"latents": "dependent"}, share=91), put({"latents": "ten"}, share=93)),
        ),
        *cases(
            "beta-line",
            ("die in stages", True, *STAGES),
            ("die in stages", False, *STAGES, put({"beta": 0.2}, active=2)),
            ("until one latent is dead", True, put(var=[0.1, 0.94]), put({"beta": 0.2}, var=[0.1, 0.96])),
            ("until one latent is dead", False, put(var=[0.1, 0.94]), put({"beta": 1.0}, var=[0.1, 0.96])),
            ("until one latent is dead", False, put(var=[0.1, 0.96])),  # already at a third of where it should
            ("until one latent is dead", False, put(var=[0.1, 0.94])),
            ("staircase", True, *stairs(0.81, 0.5, 0.14)),
            ("staircase", False, *stairs(0.79, 0.5, 0.14)),
            ("staircase", False, *stairs(0.81, 0.71, 0.14)),
            ("staircase", False, *stairs(0.81, 0.29, 0.14)),
            ("staircase", False, *stairs(0.81, 0.5, 0.16)),
        ),
        *cases(
            "manipulated-data",
            ("small local change", True, *scored("plane", "score", 0.9, 0.5, 0.71)),
            ("small local change", False, *scored("plane", "score", 0.9, 0.5, 0.69)),
            ("principal components", True, *scored("plane", "pca", 0.97, 0.93, 0.96)),
            ("principal components", False, *scored("plane", "pca", 0.97, 0.91, 0.96)),
            ("two modes", None),  # a single restart
            ("learned change lowers", True, *scored("sprites", "mig", 0.3, 0.1, 0.21)),
            ("learned change lowers", False, *scored("sprites", "mig", 0.3, 0.1, 0.19)),
            ("fall further", True, *scored("sprites", "mig", 0.3, 0.1, 0.11)),
            ("fall further", False, *scored("sprites", "mig", 0.3, 0.1, 0.09)),
            ("every factor falls", True, *scored("sprites", "mig_by_factor", [0.2] * 5, [0.1] * 5, None)),
            ("every factor falls", False, *scored("sprites", "mig_by_factor", [0.2] * 5, [0.1] * 4 + [0.21], None)),
            ("over-pruned", True, *MIG, put({"part": "sweep"}, mig=0.29, enough=True)),
            ("over-pruned", False, *MIG, put({"part": "sweep"}, mig=0.31, enough=True)),
            ("over-pruned", None, *MIG, put({"part": "sweep"}, mig=0.29, enough=False)),
            ("keeps the factors apart", True, put({"part": "sprites", "data": "modified"}, injective=True)),
            ("keeps the factors apart", False, put({"part": "sprites", "data": "modified"}, injective=False)),
        ),
        *cases(
            "eigenfaces",
            ("most precise latents", True, put({"part": "rooms"}, var=rank_of, slope=lambda row: -row["rank"])),
            ("most precise latents", False, put({"part": "rooms"}, var=rank_of, slope=rank_of)),
            ("eigenvectors of the data", True, put({"part": "linear"}, var=0.74, angle=19.0)),
            ("eigenvectors of the data", False, put({"part": "linear"}, var=0.74, angle=21.0)),
            ("eigenvectors of the data", None, put({"part": "linear"}, var=0.76, angle=21.0)),
            ("meaningful", True, put({"part": "rooms"}, information=lambda row: 0.21 if row["rank"] < 3 else 0.0)),
            ("meaningful", False, put({"part": "rooms"}, information=lambda row: 0.21 if row["rank"] < 2 else 0.0)),
        ),
    ],
)  # fmt: skip
def test_a_verdict_follows_its_table(outcome, name, words, held, changes) -> None:
    assert judged(outcome(name), words, *changes).held is held


@pytest.mark.parametrize(
    ("name", "words", "change"),
    [
        ("degenerate-squares", "restores the alignment", put({"route": "trained", "ratio": 2.0}, score=0.5)),
        ("degenerate-squares", "restores the alignment", put({"route": "trained", "ratio": 2.0}, distance=0.3)),
        ("degenerate-squares", "orientation of a square", put({"ratio": 1.0}, angle=lambda r: r.get("angle", 0) / 2)),
        ("degenerate-squares", "orientation of a square", put({"route": "exact", "ratio": 1.0}, distance=0.3)),
        ("degenerate-squares", "one best orientation", put({"ratio": 1.5, "seed": 3}, distance=2e-3)),
        ("degenerate-squares", "good pick", put({"ratio": 1.2}, distance=lambda row: 1 - row["distance"])),
        ("illustrations", "Axes of a linear VAE", put({"model": "vae", "seed": 3}, angle=1.1)),
        ("illustrations", "Axes of a linear autoencoder", put({"model": "ae"}, angle=lambda r: r.get("angle", 0) / 2)),
        ("illustrations", "locally orthogonal", put({"model": "ae"}, cosine=0.1)),
    ],
)
def test_a_claim_that_is_held_fails_on_another_table(committed, name, words, change) -> None:
    found = committed(name)
    assert found.origin.seeds >= 5
    assert found.claim(words).held
    assert judged(found, words, change).held is False


# --- orthogonal decoders ---------------------------------------------------------------------------------------------


# Proves 003/F3-065, 003/F3-003 and 003/F3-004 once the table of orthogonal-decoders is there.
@pytest.mark.parametrize(("name", "stands_for"), [("square-nonlinear", "Synth. Non-Lin."), ("blobs", "Gaussian blobs")])
def test_the_diagonal_posterior_has_the_most_orthogonal_decoder(committed, name, stands_for) -> None:
    """R4 and R5: the diagonal posterior aligns; autoencoders are turned at random, as far as Haar's rotations are."""
    found = committed("orthogonal-decoders")
    most = [claim for claim in found.claims if "most orthogonal" in claim.text and stands_for in claim.text]
    assert [claim.held for claim in most] == [True]
    final = found.table.where(share=1.0, task=name)
    diagonal, plain, full = (final.where(model=model) for model in ("beta-vae", "ae", "full-beta-vae"))
    assert [len(rows) for rows in (diagonal, plain, full)] == [5, 5, 5]
    assert diagonal.mean("distance") < min(plain.mean("distance"), full.mean("distance"))
    haar = haar_distance(2)
    assert abs(plain.mean("distance") - haar.mean) < 2 * haar.std / np.sqrt(5)
    if name == "blobs":
        assert diagonal.mean("score") > 0.87
        assert diagonal.mean("distance") < 0.14


@pytest.mark.xdist_group("orthogonal-decoders")
@pytest.mark.spec("003/F3-101")
def test_every_run_is_scored_at_three_stages_of_training(outcome) -> None:
    found = outcome("orthogonal-decoders")
    for model in ("beta-vae", "ae", "full-beta-vae"):
        rows = found.table.where(model=model)
        assert [(row["seed"], row["share"]) for row in rows.rows] == [(0, 0.2), (0, 0.6), (0, 1.0)]
    rows = [put({"model": "beta-vae"}, distance=lambda row: row["share"], score=0.5)(row) for row in found.table.rows]
    points = [part.get_offsets().tolist() for part in _scatter_figure(_scatter(Table(rows))).axes[0].collections]
    assert points == [[[0.2, 0.5]], [[0.6, 0.5]], [[1.0, 0.5]]]


@pytest.mark.parametrize(
    ("scores", "held"), [([9, 8, 7, 6, 5, 4], True), ([4, 5, 6, 7, 8, 9], False), ([8, 5, 9, 6, 7, 6.5], None)]
)
def test_distance_and_score_have_to_fall_and_rise_together_beyond_chance(scores, held) -> None:
    rows = [{"task": "dsprites", "distance": at / 10, "score": score / 10} for at, score in enumerate(scores)]
    found = _correlated(Table(rows))
    assert found.held is held
    assert bool(found.note) == (held is None)


# Proves 003/F3-033 together with the table of polarised-training, once it is there.
@pytest.mark.parametrize(
    ("errors", "share"), [([0.5, 0.02, 0.01, 0.01], 0.75), ([0.01, 0.5], 0.0), ([0.01, 0.029], 1.0), ([0.03], 0.0)]
)
def test_the_share_counts_from_the_last_time_the_error_was_large(errors, share) -> None:
    assert polarised_share(errors) == share


# --- squares ---------------------------------------------------------------------------------------------------------

R3 = {
    1.0: ((0.55, 0.22), (0.65, 0.31)),
    1.2: ((0.78, 0.21), (0.145, 0.148)),
    1.5: ((0.98, 0.01), (0.005, 0.003)),
    2.0: ((0.98, 0.01), (0.002, 0.001)),
}
"""Spec 003: score and distance (mean and spread of 5 seeds) by the ratio of the sides."""


def test_stretching_a_square_aligns_it_but_not_as_far_as_the_prototype_at_a_ratio_of_1_5(committed) -> None:
    """R3 is met within two standard errors at three of four ratios, so that this does not prove 003/F3-067."""
    found = committed("degenerate-squares")
    trained = found.table.where(route="trained")
    scores, distances = ([group.mean(name) for _, group in trained.by("ratio")] for name in ("score", "distance"))
    assert (np.diff(scores) > 0).all()
    assert (np.diff(distances) < 0).all()

    def met(ratio: float) -> bool:
        rows = trained.where(ratio=ratio)
        assert len(rows) == 5
        return all(
            abs(rows.mean(name) - mean) <= 2 * np.hypot(rows.std(name), spread) / np.sqrt(5)
            for name, (mean, spread) in zip(("score", "distance"), R3[ratio], strict=True)
        )

    assert {ratio: met(ratio) for ratio in R3} == {1.0: True, 1.2: True, 1.5: False, 2.0: True}


@pytest.mark.spec("003/F3-068")
def test_a_square_is_turned_at_random_and_a_rectangle_is_not(committed) -> None:
    found = committed("degenerate-squares")
    assert found.claim("orientation of a square is arbitrary").held
    assert found.claim("one best orientation").held
    angles = found.table.where(route="exact", ratio=1.0).column("angle")
    assert len(angles) == 40
    assert kstest(angles / 90, "uniform").pvalue > 0.05
    codes = studies.get("degenerate-squares")().figures(found.table)["codes"]
    scatters = [axes.collections[0].get_offsets() for axes in codes.axes]
    assert [len(points) for points in scatters] == [400] * 16, "four restarts of four ratios"
    now = {ratio: _exact(ratio, starts=3) for ratio in (1.0, 1.2)}
    assert np.ptp([row["angle"] for row in now[1.0]]) > 10
    assert max(row["distance"] for row in now[1.2]) < 1e-3


@pytest.mark.spec("003/F3-080")
def test_the_most_orthogonal_restart_is_a_good_pick_without_labels(committed) -> None:
    found = committed("degenerate-squares")
    rows = found.table.where(route="trained", ratio=1.2)
    assert len(rows) == 5
    picked = rows.column("score")[rows.column("distance").argmin()]
    assert picked >= np.median(rows.column("score"))
    assert found.claim("good pick").held


@pytest.mark.spec("003/F3-096")
def test_the_picture_of_projections_is_flat_for_a_square() -> None:
    (axes,) = projections().axes
    assert [line.get_label() for line in axes.lines] == ["1", "1.2", "1.5", "2"]
    for line in axes.lines:
        ratio, variance = float(line.get_label()), line.get_ydata()
        assert variance.min() == pytest.approx(1 / 12)
        assert variance.max() == pytest.approx(ratio**2 / 12)
        if ratio > 1:
            assert line.get_xdata()[variance.argmin()] == 90, "along the second side"


# --- beta, manipulated data, pictures --------------------------------------------------------------------------------


def test_no_dead_latent_no_collapse() -> None:
    assert first_collapse(Table([{"beta": 1.0, "var": [0.1, 0.2]}])) is None
    assert first_collapse(Table([{"beta": 1.0, "var": [0.1, 0.97]}, {"beta": 0.5, "var": [0.1, 0.99]}])) == 0.5


@pytest.mark.xdist_group("beta-line")
@pytest.mark.parametrize(("scores", "held"), [((5, 6, 4), True), ((6, 5, 4), False), ((4, 5, 6), False)])
def test_the_best_beta_of_the_other_tasks_lies_between_the_ends(outcome, scores, held) -> None:
    found = outcome("beta-line")
    rows = [row | {"task": "blobs"} for row in found.table.rows]
    for change in stairs(*scores):
        rows = [change(row) for row in rows]
    both = replace(found, table=Table(found.table.rows + rows))
    assert judged(both, "blobs: the best beta").held is held


@pytest.mark.parametrize(
    ("scores", "held", "sides"),
    [
        ((0.45, 0.89, 0.32, 0.36, 0.40), True, "0.32, 0.36, 0.40, 0.45 and 0.89"),
        ((0.38, 0.70, 0.71, 0.73, 0.83), False, "0.38 and 0.70, 0.71, 0.73, 0.83"),  # most still find the factors
        ((0.2, 0.35, 0.5, 0.65, 0.9), False, "0.20, 0.35, 0.50, 0.65 and 0.90"),  # spread out
    ],
)
def test_both_modes_of_the_restarts_are_listed(scores, held, sides) -> None:
    found = _two_modes(np.array(scores))
    assert found.held is held
    assert found.measured == f"on modified data: {sides}"


def test_the_histogram_of_restarts_shows_both_modes() -> None:
    rows = [{"model": "beta-vae", "mig": mig} for mig in (0.02, 0.03, 0.03, 0.01, 0.45)]
    (axes,) = _histogram(Table(rows)).axes
    heights = [bar.get_height() for bar in axes.patches]
    assert heights == [4, *[0] * 12, 1, 0]


def test_over_pruned_runs_are_hollow_and_no_part_of_the_violins() -> None:
    sweep = [
        {"factor": factor, "seed": seed, "mig": mig + seed / 100, "enough": enough}
        for factor, mig, enough in ((1.0, 0.1, True), (1.5, 0.15, True), (2.0, 0.6, False))
        for seed in range(3)
    ]
    (axes,) = _violins(Table(sweep)).axes
    bodies = [part for part in axes.collections if type(part).__name__ != "PathCollection"]
    dots = [part for part in axes.collections if part not in bodies]
    assert len(bodies) == 2
    full, hollow = dots[::2], dots[1::2]
    assert [len(part.get_offsets()) for part in full] == [3, 3, 0]
    assert [len(part.get_offsets()) for part in hollow] == [0, 0, 3]
    assert not hollow[2].get_facecolor().size


@pytest.mark.spec("003/F3-069")
def test_walks_of_a_solved_linear_vae_are_eigenvectors_in_the_order_of_precision() -> None:
    basis, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((6, 6)))
    spectrum = np.array([4.0, 2.0, 1.0, 0.5, 0.2, 0.1])
    best = optimum(basis * spectrum @ basis.T, latents=3, beta=0.1)
    shuffled = [2, 0, 1]
    model = Autoencoder(ModelConfig(3, Linear(), likelihood="gaussian"), (6,))
    with torch.no_grad():
        model.decoder.output[0].weight.copy_(torch.from_numpy(best.W[:, shuffled]))
    order = principal_order(best.var[None, shuffled])
    walks = traverse(model, np.zeros(3), order.tolist())
    directions = walks[:, -1] - walks[:, 0]
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    np.testing.assert_allclose(np.abs(directions @ basis[:, :3]), np.eye(3), atol=1e-5)
    slopes = decoder_grams(model.generate, torch.zeros(1, 3)).diagonal(dim1=1, dim2=2)[0]
    assert order.tolist() == torch.argsort(-slopes).tolist()


@pytest.mark.xdist_group("illustrations")
@pytest.mark.spec("003/F3-082", "003/F3-030")
def test_pictures_show_what_they_say(outcome, committed) -> None:
    """The flat axes are solved, not trained: they are as good at smoke scale. The bent ones are of trained models."""
    found = outcome("illustrations")
    for words in ("Axes of a linear VAE", "Axes of a linear autoencoder"):
        made = found.claim(words)
        assert made.held, made.measured
    pictures = {path.stem for path in found.path.glob("*.png")}
    assert pictures == {"kl-landscape", "flat-axes", "bent-axes", "rotate-scale-rotate", "same-area", "local-change"}
    bent = committed("illustrations").table.where(part="bent")
    assert len(bent) == 10
    assert max(bent.where(model="beta-vae").column("cosine")) < min(bent.where(model="ae").column("cosine"))
