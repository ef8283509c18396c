"""The studies of alignment at smoke scale: orthogonal decoders, squares, raising beta, data that entangles."""

import numpy as np
import pytest
import torch

from polariscope.jacobians import decoder_grams
from polariscope.manipulation.traversals import traverse
from polariscope.nets.architecture import Linear
from polariscope.nets.autoencoder import Autoencoder, ModelConfig
from polariscope.studies import Table
from polariscope.studies.beta_line import first_collapse
from polariscope.studies.degenerate_squares import projections
from polariscope.studies.engine import Outcome
from polariscope.theory.pca_vae import optimum
from polariscope.theory.polarised_regime import polarised_share, principal_order


def assert_written(outcome: Outcome) -> None:
    text = (outcome.path / "README.md").read_text()
    assert all(found.text in text for found in outcome.claims)
    assert list(outcome.path.glob("*.png"))


@pytest.mark.xdist_group("orthogonal-decoders")
@pytest.mark.spec("003/F3-065", "003/F3-003", "003/F3-004")
def test_the_diagonal_posterior_has_the_most_orthogonal_decoder(outcome) -> None:
    """Blobs of unequal ranges (R5): the diagonal posterior aligns, the point and the full one are turned at random."""
    found = outcome("orthogonal-decoders")
    most = found.claim("most orthogonal decoder")
    assert most.held, most.measured
    final = found.table.where(share=1.0)
    aligned = final.where(model="beta-vae").mean("distance")
    assert aligned < 0.35
    assert final.where(model="beta-vae").mean("score") > 0.7
    # A single turn is random, but not as near to zero as the aligned one.
    assert final.where(model="ae").mean("distance") > aligned
    assert final.where(model="full-beta-vae").mean("distance") > aligned
    assert "Published and measured" in (found.path / "README.md").read_text()
    assert_written(found)


@pytest.mark.xdist_group("orthogonal-decoders")
@pytest.mark.spec("003/F3-101")
def test_every_run_is_scored_at_three_stages_of_training(outcome) -> None:
    found = outcome("orthogonal-decoders")
    trained = Table([row for row in found.table.rows if row["model"] == "beta-vae"])
    assert len(trained) == len(trained.distinct("seed")) * 3
    assert trained.distinct("share") == [0.2, 0.6, 1.0]


@pytest.mark.xdist_group("orthogonal-decoders")
@pytest.mark.spec("003/F3-066")
def test_the_more_orthogonal_the_more_disentangled(outcome) -> None:
    """Three restarts of the beta-VAE, each at three stages of its training."""
    found = outcome("orthogonal-decoders")
    scatter = found.claim("the more orthogonal the decoder")
    assert "over 9 beta-VAEs" in scatter.measured
    assert scatter.held, scatter.measured
    assert (found.path / "distance-score.png").exists()


@pytest.mark.xdist_group("polarised-training")
@pytest.mark.spec("003/F3-064")
def test_training_is_polarised_nearly_all_the_time(outcome) -> None:
    """The linear task: 99.8 and 96.7 % were published for two and for ten latents, of far longer trainings."""
    found = outcome("polarised-training")
    assert found.table.where(latents="dependent").mean("share") > 90
    assert found.table.where(latents="ten").mean("share") > 90
    for words in ("nearly all the time", "At its end", "takes longer"):
        made = found.claim(words)
        assert made.held, made.measured
    assert_written(found)


@pytest.mark.spec("003/F3-033")
@pytest.mark.parametrize(
    ("errors", "share"), [([0.5, 0.02, 0.01, 0.01], 0.75), ([0.01, 0.5], 0.0), ([0.01, 0.029], 1.0), ([0.03], 0.0)]
)
def test_the_share_counts_from_the_last_time_the_error_was_large(errors, share) -> None:
    assert polarised_share(errors) == share


@pytest.mark.xdist_group("degenerate-squares")
@pytest.mark.spec("003/F3-067", "003/F3-068")
def test_a_square_is_turned_at_random_and_a_rectangle_is_not(outcome) -> None:
    found = outcome("degenerate-squares")
    for words in ("restores the alignment", "orientation of a square is arbitrary", "one best orientation"):
        made = found.claim(words)
        assert made.held, made.measured
    angles = found.table.where(route="exact", ratio=1.0).column("angle")
    assert np.ptp(angles) > 45
    assert_written(found)


@pytest.mark.xdist_group("degenerate-squares")
@pytest.mark.spec("003/F3-080")
def test_the_most_orthogonal_restart_is_a_good_pick_without_labels() -> None:
    from polariscope.studies.degenerate_squares import DegenerateSquares, _exact

    scores = {0: (0.9, 0.05), 1: (0.5, 0.6), 2: (0.7, 0.3)}
    rows = [
        {"route": "trained", "ratio": ratio, "seed": s, "score": score, "distance": distance}
        for ratio in (1.0, 1.2)
        for s, (score, distance) in scores.items()
    ]
    exact = [row for ratio in (1.0, 1.2) for row in _exact(ratio, 3)]
    made = [c for c in DegenerateSquares().claims(Table(rows + exact), "laptop") if "good pick" in c.text]
    assert made[0].held
    assert "picked 0.90, median 0.70" in made[0].measured
    worst = [row | {"distance": 1 - row["distance"]} for row in rows]
    made = [c for c in DegenerateSquares().claims(Table(worst + exact), "laptop") if "good pick" in c.text]
    assert made[0].held is False


@pytest.mark.xdist_group("beta-line")
@pytest.mark.spec("003/F3-035", "003/F3-036")
def test_latents_die_in_stages_as_beta_grows(outcome) -> None:
    """Three stairs of the linear task, each well inside its stage: both latents in use, one, none."""
    found = outcome("beta-line")
    for words in ("die in stages", "until one latent is dead", "staircase"):
        made = found.claim(words)
        assert made.held, made.measured
    stairs = [found.table.where(beta=beta) for beta in (0.05, 0.2, 1.0)]
    assert [stair.mean("active") for stair in stairs] == [2, 1, 0]
    assert 0.3 < stairs[1].mean("score") < 0.7
    assert stairs[2].mean("score") < 0.15
    assert_written(found)


def test_no_dead_latent_no_collapse() -> None:
    assert first_collapse(Table([{"beta": 1.0, "var": [0.1, 0.2]}])) is None
    assert first_collapse(Table([{"beta": 1.0, "var": [0.1, 0.97]}, {"beta": 0.5, "var": [0.1, 0.99]}])) == 0.5


@pytest.mark.xdist_group("manipulated-data")
@pytest.mark.spec("003/F3-070", "003/F3-078")
def test_a_local_change_entangles_where_as_much_noise_does_not(outcome) -> None:
    found = outcome("manipulated-data")
    entangled = found.claim("small local change")
    assert entangled.held, entangled.measured
    assert found.claim("principal components").held
    modes = found.claim("two modes")
    assert modes.measured.count(",") == len(found.table.distinct("seed")) - 1  # every restart is listed
    assert_written(found)


@pytest.mark.parametrize(("noise", "held"), [(0.28, True), (0.12, False)])
def test_a_change_is_not_blamed_for_what_noise_does_too(noise, held) -> None:
    from polariscope.studies.manipulated_data import KINDS, _sprite_claims

    base = {"part": "sprites", "model": "beta-vae", "mig_by_factor": [0.2], "factors": ["x"], "seed": 0}
    facts = {"added_variance": 0.1, "injective": True}
    rows = [base | facts | {"data": kind, "mig": value} for kind, value in zip(KINDS, (0.3, 0.1, noise), strict=True)]
    (made,) = [c for c in _sprite_claims(Table(rows)) if "as much noise does not" in c.text]
    assert made.held is held


@pytest.mark.spec("003/F3-077")
def test_over_pruned_runs_are_left_out_of_the_sweep() -> None:
    from polariscope.studies.manipulated_data import KINDS, _sprite_claims, _violins

    base = {"part": "sprites", "model": "beta-vae", "mig_by_factor": [0.2, 0.3], "factors": ["x", "y"]}
    rows = [
        base | {"data": kind, "mig": value, "seed": 0, "added_variance": 0.1, "injective": True}
        for kind, value in zip(KINDS, (0.3, 0.1, 0.28), strict=True)
    ]
    sweep = [
        {
            "part": "sweep",
            "model": "beta-vae",
            "factor": factor,
            "seed": seed,
            "mig": mig + seed / 100,
            "enough": enough,
        }
        for factor, mig, enough in ((1.0, 0.1, True), (1.5, 0.15, True), (2.0, 0.6, False))
        for seed in range(3)
    ]
    (made,) = [c for c in _sprite_claims(Table(rows + sweep)) if "over-pruned" in c.text]
    assert made.held
    assert "best mean MIG over 6 betas 0.16" in made.measured
    assert "3 of 9 runs over-pruned" in made.measured
    axes = _violins(Table(sweep)).axes[0]
    assert len(axes.collections) >= 2 * 3  # dots of kept and of pruned runs at each beta, and violins


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


@pytest.mark.xdist_group("eigenfaces")
def test_walks_of_a_trained_linear_vae_are_eigenvectors_too(outcome) -> None:
    found = outcome("eigenfaces")
    walks = found.claim("eigenvectors of the data")
    assert walks.held, walks.measured
    assert "over 3 latents in use" in walks.measured
    assert found.claim("meaningful").held is None, "a smoke run is too short to say"
    assert_written(found)


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


@pytest.mark.xdist_group("illustrations")
@pytest.mark.spec("003/F3-082", "003/F3-030")
def test_pictures_show_what_they_say(outcome) -> None:
    found = outcome("illustrations")
    for words in ("Axes of a linear VAE", "Axes of a linear autoencoder"):
        made = found.claim(words)
        assert made.held, made.measured
    pictures = {path.stem for path in found.path.glob("*.png")}
    assert pictures == {"kl-landscape", "flat-axes", "bent-axes", "rotate-scale-rotate", "same-area", "local-change"}
