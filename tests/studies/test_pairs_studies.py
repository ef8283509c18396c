"""The studies of pairs and of generalisation: what their committed tables show, as it is and changed.

A claim that does not come out here is asserted so too, without the mark of a row.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from torch import nn

from polariscope.nets.model import Brief
from polariscope.objectives.pcl import PCL
from polariscope.studies import Table, studies
from polariscope.studies.engine import Outcome
from polariscope.studies.inductive_biases.collapsing_axis import CollapsingAxis
from polariscope.studies.inductive_biases.frames_apart import SETTINGS
from polariscope.studies.inductive_biases.in_domain import MODELS, OFTEN, SPLITS, InDomain
from polariscope.studies.inductive_biases.mixed_sources import SETTINGS as MIXED
from polariscope.studies.inductive_biases.mixed_sources import _method
from polariscope.studies.inductive_biases.natural_pairs import NaturalPairs
from polariscope.studies.inductive_biases.sparse_pairs import EXPERIMENT
from polariscope.studies.study import Judgement, Row
from polariscope.theory.transitions import fit
from polariscope.worlds.views.sequences import transitions


def judged(found: Outcome, words: str, change: Callable[[Row], Row]) -> Judgement:
    """A claim on the table with every row changed."""
    rows = [change(row) for row in found.table.rows]
    return replace(found, claims=studies.get(found.name)().judge(Table(rows), found.scale)).claim(words)


def put(where: Row, **values: object) -> Callable[[Row], Row]:
    """A change: values in the rows where other columns have given values."""
    return lambda row: row | values if where.items() <= row.items() else row


def effect(found: Outcome, first: Row, second: Row, column: str = "mcc") -> NDArray[np.float64]:
    """By how much the rows of one kind are above those of another, for each seed that both have."""
    one, other = ({r["seed"]: r[column] for r in found.table.where(**which).rows} for which in (first, second))
    return np.array([one[seed] - other[seed] for seed in one if seed in other])


def interval_of(values: NDArray[np.float64]) -> tuple[float, float]:
    low, high = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    return float(low), float(high)


# --- sparse pairs ----------------------------------------------------------------------------------------------------

SLOW = {"model": "slow-vae", "pairs": "lap"}


@pytest.mark.spec("001a/BL-06")
def test_on_squares_slow_vae_is_ahead_of_every_model_that_expects_no_sparse_steps(committed) -> None:
    """Spec 001a, E3: first of six. It asks for .95, which is the mean but not surely, and for a lead of 0.1, which over
    PM-VAE (10) is .095: neither is held, and EX-03 not proven."""
    result = committed("sparse-pairs")
    values = result.table.where(**SLOW).column("mcc")
    assert len(values) == 10
    assert values.mean() > 0.95
    assert values.mean() < 0.95 + 0.01
    assert result.claim("SlowVAE finds the factors").verdict == "undecided"
    least = dict.fromkeys(EXPERIMENT[1:], 0.1) | {"pm-vae (10)": 0.09}
    for rival, by in least.items():
        ahead = effect(result, SLOW, SLOW | {"model": rival})
        assert len(ahead) == 10, rival
        assert ahead.mean() > by, rival
        assert interval_of(ahead)[0] > 0, rival
    claim = result.claim("without a prior of sparse steps")
    assert claim.verdict == "not held"
    assert claim.note == "pm-vae (10): the effect is 0.095, of at least 0.1"


def test_two_of_ten_restarts_on_squares_stay_turned(committed) -> None:
    values = np.sort(committed("sparse-pairs").table.where(**SLOW).column("mcc"))
    assert values[1] < 0.91 < 0.96 < values[2]


def test_the_order_of_models_is_not_the_published_one_everywhere(committed) -> None:
    result = committed("sparse-pairs")
    for rival in ("ada-gvae", "pcl"):
        assert interval_of(effect(result, SLOW, SLOW | {"model": rival}))[0] < 0, rival
    for words in ("models of pairs", "at any weight", "also disentangles"):
        assert result.claim(words).verdict == "not held", words
    matched = [result.table.where(model=f"pm-vae ({gamma})").mean("mcc") for gamma in (1, 2, 4, 8, 10, 16)]
    assert max(matched) < result.table.where(**SLOW).mean("mcc"), "no weight of PM-VAE is above it"
    assert matched == sorted(matched), "larger weights help"


def test_pairs_that_change_anywhere_are_no_harder_here(committed) -> None:
    """Published on dSprites: 69.8 percent on LAP, 58.8 on UNI."""
    result = committed("sparse-pairs")
    assert result.claim("in which all factors may change").verdict == "not held"
    assert result.table.where(model="slow-vae", pairs="uni").column("mcc").min() > 0.98
    assert result.table.where(model="pcl", pairs="uni").column("mcc").max() < 0.8


@pytest.mark.spec("001a/EX-04")
def test_pairs_in_which_nothing_changes_do_no_harm(committed) -> None:
    result = committed("sparse-pairs")
    assert result.claim("without a change do no harm").verdict == "undecided", "five seeds tell it to .05, not to .03"
    difference = effect(result, SLOW, SLOW | {"pairs": "lap-nc"})
    low, high = interval_of(difference)
    assert len(difference) >= 5
    assert low < 0 < high, "no seed tells them apart"
    assert abs(difference.mean()) < 0.03


@pytest.mark.parametrize(
    ("words", "held", "changes"),
    [
        ("SlowVAE finds the factors", True, [put(SLOW, mcc=0.951)]),
        ("SlowVAE finds the factors", False, [put(SLOW, mcc=0.949)]),
        ("at any weight", True, [put(SLOW | {"seed": 1}, mcc=0.984)]),  # without the restart that was stuck most
        ("without a prior of sparse steps", True, [put(SLOW | {"seed": 1}, mcc=0.984)]),
        ("without a prior of sparse steps", False, [put({"model": "slow-vae (gamma 1)"}, mcc=0.92)]),
        ("models of pairs", True, [put({"pairs": "lap", "model": "ada-gvae"}, mcc=0.8), put(SLOW, mcc=0.999)]),
        ("models of pairs", None, [put(SLOW, mcc=0.999)]),  # Ada-GVAE scatters too much
        ("models of pairs", False, [put(SLOW | {"seed": 1}, mcc=0.984)]),  # PCL is as good
        ("in which all factors may change", True, [put({"model": "slow-vae", "pairs": "uni"}, mcc=0.8)]),
        ("without a change do no harm", False, [put({"pairs": "lap-nc"}, mcc=0.85)]),
        ("without a change do no harm", None, [put({"pairs": "lap-nc"}, mcc=0.9)]),
        ("without a change do no harm", None, [put({"pairs": "lap-nc"}, mcc=None)]),
        ("also disentangles", True, [put(SLOW, dci=0.9)]),
    ],
)
def test_verdicts_on_sparse_pairs_follow_the_table(committed, words, held, changes) -> None:
    def change(row: Row) -> Row:
        for each in changes:
            row = each(row)
        return row

    assert judged(committed("sparse-pairs"), words, change).held is held


def test_on_sprites_sparse_pairs_tell_slow_vae_more_than_others_and_than_other_pairs(committed) -> None:
    """Spec 001a, E5: SlowVAE above a beta-VAE in MCC, DCI and MIG, and LAP above UNI; then the order of table 1."""
    result = committed("sprite-pairs")
    for column in ("mcc", "dci", "mig"):
        ahead = effect(result, SLOW, SLOW | {"model": "beta-vae (1)"}, column)
        assert len(ahead) == 5
        assert ahead.mean() > 0.05, column
        assert interval_of(ahead)[0] > 0, column
    assert result.claim("does not look at pairs").held
    more = effect(result, SLOW, SLOW | {"pairs": "uni"})
    assert more.mean() > 0.02
    assert interval_of(more)[0] > 0
    assert result.claim("in which all factors may change").held
    means = [result.table.where(pairs="lap", model=model).mean("mcc") for model in ORDER]
    assert means == sorted(means, reverse=True)
    assert means[0] - means[1] < 0.02, "PCL is as good, and was published 0.019 behind"
    assert result.claim("do not expect sparse changes").verdict == "not held"


@pytest.mark.spec("001a/EX-03")
def test_five_models_learned_from_sparse_and_from_other_pairs_of_sprites(committed) -> None:
    """All ten cells with five seeds each. E5 is held on LAP, where SlowVAE is above a beta-VAE in three scores, and LAP
    above UNI; on UNI SlowVAE is surely above PM-VAE only. E3, on squares, asks for a lead of 0.1 and is not held."""
    lap, uni = committed("sprite-pairs"), committed("uniform-pairs")
    cells = {
        (pairs, model): next(
            table.where(pairs=pairs, model=model)
            for table in (lap.table, uni.table)
            if len(table.where(pairs=pairs, model=model))
        )
        for pairs in ("lap", "uni")
        for model in ORDER
    }
    assert all(len(cell.distinct("seed")) == len(cell) == 5 for cell in cells.values())
    assert lap.claim("does not look at pairs").held
    assert lap.claim("in which all factors may change").held
    slow = {"model": "slow-vae", "pairs": "uni"}
    for rival, words, verdict in (
        ("beta-vae (1)", "more than a beta-VAE", "undecided"),
        ("pm-vae (10)", "more than a Gaussian match", "held"),
    ):
        ahead = effect(uni, slow, slow | {"model": rival})
        assert len(ahead) == 5
        assert ahead.mean() > 0.05, rival
        assert (interval_of(ahead)[0] > 0) == (verdict == "held"), rival
        assert uni.claim(words).verdict == verdict
    more = effect(uni, SLOW, slow)
    assert 0.02 < more.mean() < 0.05
    assert uni.claim("Sparse pairs are more informative").verdict == "undecided"
    assert committed("sparse-pairs").claim("without a prior of sparse steps").verdict == "not held"


ORDER = ("slow-vae", "pcl", "ada-gvae", "pm-vae (10)", "beta-vae (1)")
"""Of table 1 and 14 on dSprites, by MCC: 69.8, 67.9, 56.9 and 49.2 percent; a beta-VAE is not in them."""


@pytest.mark.parametrize(
    ("words", "held", "change"),
    [
        ("does not look at pairs", False, put({"model": "beta-vae (1)"}, mig=0.15)),
        ("do not expect sparse changes", True, put(SLOW, mcc=0.7)),
        ("do not expect sparse changes", False, put({"model": "ada-gvae"}, mcc=0.4)),
        ("in which all factors may change", False, put({"pairs": "uni"}, mcc=0.6)),
    ],
)
def test_verdicts_on_pairs_of_sprites_follow_the_table(committed, words, held, change) -> None:
    assert judged(committed("sprite-pairs"), words, change).held is held


@pytest.mark.spec("001a/EX-08")
def test_no_weight_of_a_gaussian_match_finds_or_disentangles_as_much_on_sprites(committed) -> None:
    """Table 14: all below SlowVAE; of six weights from 1 to 16 four."""
    result = committed("gaussian-matches")
    for gamma in (1, 4, 10, 16):
        for column in ("mcc", "dci"):
            ahead = effect(result, SLOW, {"model": f"pm-vae ({gamma})"}, column)
            assert len(ahead) == 5
            assert ahead.mean() > 0.05, (gamma, column)
            assert interval_of(ahead)[0] > 0, (gamma, column)
    assert result.claim("No weight of a Gaussian match finds").held
    assert result.claim("match disentangles as much").held


@pytest.mark.parametrize(
    ("words", "change"),
    [
        ("No weight of a Gaussian match finds", put({"model": "pm-vae (4)"}, mcc=0.56)),
        ("match disentangles as much", put({"model": "pm-vae (16)"}, dci=0.15)),
    ],
)
def test_one_weight_that_does_as_well_is_enough_to_say_no(committed, words, change) -> None:
    assert judged(committed("gaussian-matches"), words, change).held is False


# --- an axis that is too short ---------------------------------------------------------------------------------------


@pytest.mark.spec("001a/EX-01")
def test_a_slow_vae_gives_up_an_axis_below_the_threshold_of_theory_and_a_flow_does_not(committed) -> None:
    result = committed("collapsing-axis")
    claim = result.claim("below a predicted length")
    assert claim.held
    readings = CollapsingAxis().readings(result.table)
    assert readings.mean("threshold") == pytest.approx(0.39537, abs=0.03)  # oracle O11
    assert len(readings.column("threshold")) >= 5
    slow, flow = (result.table.where(part="axis", model=model) for model in ("slow-vae", "slow-flow"))
    for length, runs in slow.by("length"):
        kept, score = runs.column("gain"), runs.column("mcc")
        assert (kept < 0.01).all() if length < 0.395 else (kept > 0.05).all(), length
        assert np.median(score) < 0.9 if length < 0.395 else score.min() > 0.95, length
    assert flow.column("mcc").min() > 0.995


def test_a_variable_that_hardly_moves_can_still_correlate_with_the_axis_it_no_longer_encodes(committed) -> None:
    """MCC does not depend on scale: in one of five restarts it stays high, so that the claim is undecided."""
    result = committed("collapsing-axis")
    lost = [row for row in result.table.where(**AXIS).rows if row["gain"] < 0.01]
    means = {seed: np.mean([row["mcc"] for row in lost if row["seed"] == seed]) for seed in range(5, 10)}
    assert [seed for seed, mean in means.items() if mean > 0.9] == [6]
    assert result.claim("encodes both axes").verdict == "undecided"


def test_what_comes_back_of_a_kept_axis_is_what_theory_says(committed) -> None:
    """Spec 001a, section 3.7: 0.218 of an axis of half, 0.527 of one of eight tenths."""
    slow = committed("collapsing-axis").table.where(part="axis", model="slow-vae")
    for length, share in {0.5: 0.218, 0.8: 0.527}.items():
        assert slow.where(length=length).mean("gain") == pytest.approx(share, abs=0.02)


def test_kept_axes_are_both_found_and_a_flow_finds_them_at_every_length(committed) -> None:
    """Figure 6."""
    result = committed("collapsing-axis")
    for words in ("that is no longer encoded has", "A SlowFlow finds both"):
        assert result.claim(words).held, words
    assert len(result.table.where(part="axis", model="slow-flow")) == 45


@pytest.mark.spec("001a/EX-02")
def test_the_more_coordinates_the_more_a_slow_vae_finds(committed) -> None:
    """Figure 7: over 20, 200 and 2000 coordinates of 20 sources MCC grows, while the loss gets worse."""
    result = committed("collapsing-axis")
    few, some, many = ({"ambient": size} for size in (20, 200, 2000))
    for more in (some, many):
        gain = effect(result, more, few)
        assert len(gain) == 5
        assert gain.mean() > 0.3, more
        assert interval_of(gain)[0] > 0, more
    last = effect(result, many, some)
    assert last.mean() > 0.04
    assert interval_of(last)[0] < 0, "the last step is one of the means"
    for more, fewer in ((some, few), (many, some)):
        assert effect(result, more, fewer, "loss").min() > 0, "the loss grows in every restart"
    assert result.claim("grows with the dimension").held
    assert judged(result, "grows with the dimension", put(many, mcc=0.7)).verdict == "not held", "a step back"


AXIS = {"part": "axis", "model": "slow-vae"}


def farther(factor: float) -> Callable[[Row], Row]:
    """A change: all axes are longer by a factor."""
    return lambda row: row | {"length": factor * row["length"]} if AXIS.items() <= row.items() else row


@pytest.mark.parametrize(
    ("words", "held", "change"),
    [
        ("below a predicted length", True, farther(1.02)),
        ("below a predicted length", False, farther(1.15)),
        ("below a predicted length", False, farther(0.85)),
        ("below a predicted length", None, put(AXIS, length=0.2)),
        ("that is no longer encoded has", False, put(AXIS, std=0.26)),
        ("that is no longer encoded has", None, put(AXIS, gain=0.5)),
        ("encodes both axes", False, put(AXIS | {"length": 0.8}, mcc=0.6)),
        ("encodes both axes", False, put(AXIS, mcc=0.96)),  # those that gave one up find as much
        ("A SlowFlow finds both", False, put({"model": "slow-flow", "length": 0.2, "seed": 9}, mcc=0.99)),
    ],
)
def test_verdicts_on_axes_follow_the_table(committed, words, held, change) -> None:
    assert judged(committed("collapsing-axis"), words, change).held is held


# --- pairs that change as in natural videos --------------------------------------------------------------------------


def natural(natural: float, permuted: float | None, matched: float = 0.4) -> Table:
    """MCC of five restarts on natural and permuted sprites, that scatter far more than they differ."""
    levels = {("slow-vae", "natural"): natural, ("slow-vae", "permuted"): permuted, ("pm-vae", "natural"): matched}
    return Table(
        [
            {"model": model, "steps": steps, "seed": seed, "mcc": level + seed / 10}
            for (model, steps), level in levels.items()
            if level is not None
            for seed in range(5)
        ]
    )


@pytest.mark.parametrize(
    ("table", "words", "held"),
    [
        (natural(0.5, 0.54), "no measurable loss", True),
        (natural(0.5, 0.3), "no measurable loss", True),
        (natural(0.5, 0.56), "no measurable loss", False),
        (natural(0.5, None), "no measurable loss", None),
        (natural(0.5, 0.5, matched=0.36), "sparse prior", True),
        (natural(0.5, 0.5, matched=0.37), "sparse prior", False),
    ],
)
def test_what_permuting_adds_is_counted_seed_by_seed(table, words, held) -> None:
    (result,) = (claim for claim in NaturalPairs().judge(table, "laptop") if words in claim.text)
    assert result.held is held


@pytest.mark.spec("001a/EX-06")
def test_natural_dependence_costs_something_and_a_gaussian_match_finds_less(committed) -> None:
    """Spec 001a, E7: no significant loss from factors that move together, which is not so on these five seeds, and a
    lower PM-VAE."""
    result = committed("natural-pairs")
    slow = {"model": "slow-vae"}
    loss = effect(result, slow | {"steps": "permuted"}, slow | {"steps": "natural"})
    assert len(loss) == 5
    assert loss.min() > 0.03
    assert interval_of(loss)[0] > 0
    claim = result.claim("no measurable loss")
    assert claim.verdict == "undecided", "whether the loss is more than .05"
    assert claim.measured == "{:.3f} [{:.3f}, {:.3f}]".format(loss.mean(), *interval_of(loss))
    ahead = effect(result, slow | {"steps": "natural"}, {"model": "pm-vae"})
    assert len(ahead) == 5
    assert ahead.mean() > 0.02
    assert interval_of(ahead)[0] > 0
    claim = result.claim("sparse prior")
    assert (claim.verdict, claim.note) == ("not held", "the effect is 0.041, of at least 0.139"), "less than published"
    assert judged(result, "sparse prior", put({"model": "pm-vae"}, mcc=0.3)).verdict == "held"


@pytest.mark.spec("001a/EX-07")
def test_of_walkers_slow_vae_finds_more_the_more_time_is_between_frames(committed) -> None:
    """Spec 001a, E8: more MCC at five frames than at one (published .80 and .66), and sparse steps at both."""
    walkers = SETTINGS["laptop"].walkers
    for furthest in (1, 5):
        assert all(fit(steps).alpha < 1 for steps in transitions(walkers, furthest)[:, :2].T), furthest
    result = committed("frames-apart")
    slow, matched = ({"model": model} for model in ("slow-vae", "pm-vae"))
    for furthest, printed in {1: 0.661, 5: 0.796}.items():
        assert result.table.where(**slow, furthest=furthest).mean("mcc") == pytest.approx(printed, abs=0.05)
    more = effect(result, slow | {"furthest": 5}, slow | {"furthest": 1})
    assert len(more) == 8
    assert more.mean() > 0.05
    assert interval_of(more)[0] > 0
    assert result.claim("More time").held
    assert interval_of(effect(result, slow | {"furthest": 5}, matched))[0] > 0
    assert result.claim("sparse prior").held
    assert judged(result, "More time", put(slow | {"furthest": 1}, mcc=0.8)).held is False
    assert judged(result, "sparse prior", put(matched, mcc=0.75)).held is False


# --- sources behind mixing -------------------------------------------------------------------------------------------


@pytest.mark.spec("001a/SF-01")
def test_a_linear_flow_finds_sources_that_move_sparsely_and_only_those(committed) -> None:
    """Spec 001a, E1: 0.999 at least in 2 and 5 dimensions; with normal steps it depends on the seed."""
    result = committed("mixed-sources")
    sparse, normal = (result.table.where(part="linear", steps_are=steps) for steps in ("sparse", "normal"))
    assert sparse.distinct("dimension") == [2, 5]
    assert len(sparse.distinct("seed")) >= 5
    assert sparse.column("mcc").min() >= 0.999
    assert normal.column("mcc").min() < 0.8 < 0.9 < normal.column("mcc").max()
    for words in ("finds linearly mixed sources exactly", "With normal steps"):
        assert result.claim(words).held, words
    one = {"steps_are": "sparse", "dimension": 5, "seed": 3}
    assert judged(result, "finds linearly mixed", put(one, mcc=0.9985)).held is False
    assert judged(result, "With normal steps", put({"steps_are": "normal"}, mcc=0.98)).held is False


@pytest.mark.spec("001a/EX-05")
def test_sources_behind_layers_of_mixing_are_found_but_slow_flow_is_behind_pcl(committed) -> None:
    """Spec 001a, E6: above 0.9 behind one layer for both; SlowFlow no less than PCL at three, which is not held.

    Of five sources PCL finds more than it was published to find of twenty: it is .011 ahead, in every restart.
    """
    result = committed("mixed-sources")
    mixed = result.table.where(part="mixed")
    for method in ("slow-flow", "pcl"):
        values = mixed.where(method=method, layers=1).column("mcc")
        assert len(values) >= 5
        assert values.min() > 0.99, method
    for layers, printed in {1: 0.997, 2: 0.987, 3: 0.982}.items():  # table 5
        assert mixed.where(method="slow-flow", layers=layers).mean("mcc") == pytest.approx(printed, abs=0.01)
    assert result.claim("behind one layer").held
    claim = result.claim("at least as well as PCL")
    assert claim.verdict == "not held"
    lead = effect(result, {"method": "pcl", "layers": 3}, {"method": "slow-flow", "layers": 3})
    assert len(lead) == 5
    assert lead.min() > 0
    assert claim.measured == "{:.3f} [{:.3f}, {:.3f}]".format(lead.mean(), *interval_of(lead))
    deep = {"method": "slow-flow", "layers": 3}
    assert judged(result, "at least as well as PCL", put(deep, mcc=0.999)).held is True
    assert judged(result, "behind one layer", put({"method": "pcl", "layers": 1}, mcc=0.89)).held is False
    assert judged(result, "behind one layer", put({"method": "pcl", "layers": 1, "seed": 0}, mcc=0.5)).held is None


@pytest.mark.spec("001a/BL-07")
@pytest.mark.parametrize("scale", ["laptop", "paper"])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_pcl_has_a_hidden_layer_of_100_units_for_each_layer_of_mixing(scale, layers) -> None:
    """Section F.1.2: as many hidden layers as layers of mixing, of 100 units each, by default at every scale."""
    objective, config = _method("pcl", layers, MIXED[scale])
    assert isinstance(objective, PCL)
    sources = MIXED[scale].sources
    encoder = config.build(Brief((sources,)))
    linear = [module for module in encoder.modules() if isinstance(module, nn.Linear)]
    assert [(module.in_features, module.out_features) for module in linear[:layers]] == [
        (sources if layer == 0 else 100, 100) for layer in range(layers)
    ]
    assert {module.out_features for module in linear[layers:]} == {sources}, "and then the code"


# --- in-domain generalisation ----------------------------------------------------------------------------------------

SCORES = {"random": 0.95, "composition": 0.5, "interpolation": 0.9, "extrapolation": 0.6}


def trained(model: str, world: str = "sprites", seeds: int = 5, **scores: float) -> list[Row]:
    """Rows of a model that is good within the range of its training, and fails at the new factor outside of it."""
    return [
        {"world": world, "model": model, "split": split, "seed": seed, "r2": score + seed / 1000}
        | {"clip": 0.87, "r2_new": 0.2, "r2_others": 0.8, "drawn_to_the_mean": 0.6}
        for split, score in (SCORES | scores).items()
        for seed in range(seeds)
    ]


def generalised(*rows: list[Row]) -> dict[str, Judgement]:
    """Verdicts by the first words of their claims, for the usual networks with some of other rows."""
    usual = {
        "mlp": trained("mlp", composition=0.1),
        "cnn": trained("cnn"),
        "coordconv": trained("coordconv", composition=0.9),
        "resnet": trained("resnet"),
        "slow-vae + readout": trained("slow-vae + readout", extrapolation=0.55),
        "cnn (transfer)": trained("cnn (transfer)"),
        "cnn (transfer, head only)": trained("cnn (transfer, head only)", random=0.6),
    } | {own[0]["model"]: own for own in rows}
    table = Table([row for own in usual.values() for row in own])
    return {claim.text.split()[0]: claim for claim in InDomain().judge(table, "laptop")}


def test_networks_that_generalise_as_published_meet_every_claim() -> None:
    assert {words: claim.held for words, claim in generalised().items()} == dict.fromkeys(
        ("Every", "Extrapolation", "Only", "No", "Predictions", "Coordinates", "Disentangled", "Fine-tuning"), True
    )


@pytest.mark.parametrize(
    ("words", "held", "rows"),
    [
        ("Every", False, trained("resnet", extrapolation=0.9)),
        ("Every", True, trained("slow-vae + readout", seeds=1, extrapolation=0.94)),  # what is trained once is left out
        ("Extrapolation", False, trained("mlp", interpolation=0.62, composition=0.1)),
        ("Only", False, [row | {"r2_new": 0.7} for row in trained("cnn")]),
        ("No", False, trained("resnet", extrapolation=0.88)),
        ("Predictions", False, [row | {"drawn_to_the_mean": 0.4} for row in trained("cnn")]),
        ("Coordinates", False, trained("coordconv", composition=0.52)),
        ("Coordinates", False, trained("mlp", composition=0.48)),
        ("Coordinates", None, trained("mlp", random=0.6, composition=0.1)),
        ("Coordinates", True, trained("resnet", random=0.6)),
        ("Disentangled", False, trained("slow-vae + readout", extrapolation=0.66)),
        ("Disentangled", True, trained("slow-vae + readout", extrapolation=0.64)),
        ("Disentangled", None, trained("slow-vae + readout", seeds=1, extrapolation=0.64)),
        ("Fine-tuning", False, trained("cnn (transfer, head only)", random=0.94)),
        ("Fine-tuning", None, trained("cnn (transfer, head only)", seeds=1, random=0.6)),
    ],
)
def test_verdicts_on_generalisation_follow_the_table(words, held, rows) -> None:
    assert generalised(rows)[words].held is held


def test_every_network_fails_outside_of_its_range_and_only_at_the_new_factor(committed) -> None:
    result = committed("in-domain")
    for words in (
        "far worse",
        "harder than interpolation",
        "the new factor",
        "clipped to the training range",
        "pulled towards the training mean",
    ):
        assert result.claim(words).verdict == "weaker form held", words
        assert "the other models have one" in result.claim(words).note
    for world in ("sprites", "shapes3d"):
        for model in ("mlp", "cnn", "coordconv", "resnet"):
            which = {"world": world, "model": model}
            loss = effect(result, which | {"split": "random"}, which | {"split": "extrapolation"}, "r2")
            assert len(loss) >= 5
            assert interval_of(loss)[0] > 0.2, which
            beyond = result.table.where(split="extrapolation", **which)
            assert beyond.mean("r2_others") - beyond.mean("r2_new") > 0.25, which
            assert beyond.column("r2").max() < beyond.mean("clip"), which
    clip = [result.table.where(split="extrapolation", world=world).mean("clip") for world in ("sprites", "shapes3d")]
    assert clip == pytest.approx([0.8669, 0.9156], abs=2e-3)  # oracle O19, on a sample


def test_one_restart_each_of_the_head_alone_and_of_all_of_a_network_decides_nothing(committed) -> None:
    """001a/IG-20 takes five of each."""
    result = committed("in-domain")
    claim = result.claim("Fine-tuning only the head")
    assert claim.held is None
    assert "sprites: 1 seed of all, 1 of head: five of each are needed" in claim.note
    for world in ("sprites", "shapes3d"):
        for split in ("random", "extrapolation"):
            whole, head = (
                result.table.where(world=world, split=split, model=f"cnn (transfer{how})").mean("r2")
                for how in ("", ", head only")
            )
            assert whole - head > 0.1, (world, split)


@pytest.mark.spec("001a/IG-20")
@pytest.mark.parametrize("split", ["random", "extrapolation"])
def test_tuning_the_head_alone_is_worse_than_tuning_all_of_a_network_that_learned_a_sibling_task(
    committed, split
) -> None:
    result = committed("transfer-heads")
    for world in ("sprites", "shapes3d"):
        whole, head = ({"world": world, "split": split, "tuned": tuned} for tuned in ("all", "head"))
        ahead = effect(result, whole, head, "r2")
        assert len(ahead) == 5, world
        assert ahead.mean() > 0.02, world
        assert interval_of(ahead)[0] > 0, world
    assert result.claim(f"Fine-tuning only the head is worse than fine-tuning the whole network ({split} split)").held


def test_every_model_was_tested_on_every_split_of_both_worlds(committed) -> None:
    result = committed("in-domain")
    for world, runs in result.table.by("world"):
        assert set(runs.distinct("model")) == set(MODELS), world
        for model, own in runs.by("model"):
            seeds = {split: len(group.rows) for split, group in own.by("split")}
            assert seeds == dict.fromkeys(SPLITS, 5 if model in OFTEN else 1), (world, model)
            assert own.where(split="extrapolation").mean("r2") < own.where(split="random").mean("r2"), (world, model)


def test_coordinates_do_not_help_with_new_combinations_here(committed) -> None:
    """Spec 001a, E14 asks for CoordConv far above the CNN, and that above the MLP: only the second comes out."""
    result = committed("in-domain")
    claim = result.claim("Coordinates help")
    assert claim.verdict == "undecided", "CoordConv knows .71 of the random split, and perhaps less than .7"
    sprites = {"world": "sprites", "split": "composition"}
    mlp, cnn, coordconv = (result.table.where(model=model, **sprites) for model in ("mlp", "cnn", "coordconv"))
    assert mlp.column("r2").max() < cnn.column("r2").min()
    assert abs(coordconv.mean("r2") - cnn.mean("r2")) < 0.05
    assert result.table.where(world="sprites", model="coordconv", split="random").mean("r2") > 0.7
    learned = put({"model": "coordconv", "split": "random"}, r2=0.75)
    assert judged(result, "Coordinates help", learned).held is False
    better = put({"model": "coordconv", "split": "composition"}, r2=0.5)
    assert judged(result, "Coordinates help", lambda row: better(learned(row))).held


@pytest.mark.parametrize(
    ("words", "held", "change"),
    [
        ("far worse", False, put({"model": "cnn", "split": "extrapolation", "world": "sprites"}, r2=0.74)),
        ("harder than interpolation", False, put({"model": "mlp", "split": "interpolation"}, r2=0.2)),
        ("the new factor", False, put({"model": "resnet", "world": "sprites"}, r2_new=0.75)),
        ("clipped to the training range", False, put({"model": "resnet", "split": "extrapolation"}, r2=0.93)),
        ("pulled towards the training mean", False, put({"model": "cnn", "world": "sprites"}, drawn_to_the_mean=0.45)),
        ("no better than supervised", None, put({"model": "slow-vae + readout", "split": "extrapolation"}, r2=0.8)),
    ],
)
def test_verdicts_on_the_table_of_generalisation_follow_it(committed, words, held, change) -> None:
    assert judged(committed("in-domain"), words, change).held is held


# --- generators on the splits ----------------------------------------------------------------------------------------


@pytest.mark.spec("001a/IG-32")
@pytest.mark.parametrize("split", ["composition", "interpolation", "extrapolation"])
def test_generators_draw_held_out_images_of_other_domains_and_those_of_a_random_split(committed, split) -> None:
    """Both networks with five seeds a cell; the verdict is made again from the rows: half as much error again."""
    result = committed("factor-generators")
    learned, worse = [], []
    for network in ("mlp", "conv"):
        of = {"network": network}
        random = result.table.where(split="random", **of).column("error")
        assert len(random) == len(result.table.where(split=split, **of)) == 5
        low, high = interval_of(random)
        learned.append(True if high <= 0.25 else False if low > 0.25 else None)
        more = effect(result, of | {"split": split}, of | {"split": "random"}, "error") / random.mean()
        assert len(more) == 5
        worse.append(False if more.mean() < 0.5 else True if interval_of(more)[0] > 0 else None)
    claim = result.claim(f"{split.capitalize()}: held-out images")
    expected = False if False in worse else None if None in worse else True
    assert claim.held is (expected if learned == [True, True] else None)
