"""One call that takes a model apart: ours, or anybody's."""

import html
import re

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.stats import entropy
from sklearn.metrics import mutual_info_score
from torch import nn

from polariscope.examination.examine import _audit_notes, examine
from polariscope.findings import Pictures
from polariscope.measures.factor_information import factor_information
from polariscope.measures.information import discretise
from polariscope.measures.measure import meaning, measures
from polariscope.measures.mig import mig
from polariscope.measures.polarisation import variable_types
from polariscope.nets.architecture import Linear
from polariscope.nets.autoencoder import Autoencoder, AutoencoderConfig
from polariscope.nets.model import Brief
from polariscope.objectives import Batch
from polariscope.objectives.ivae import IVAE
from polariscope.objectives.slow_vae import SlowVAE
from polariscope.report.page import page
from polariscope.report.terminal import show
from polariscope.representation import Representation
from polariscope.theory.transitions import collapsed_std
from polariscope.worlds.points.sources import Sources
from polariscope.worlds.renderers.sprites import Sprites


class Own(nn.Module):
    """Somebody's model: reads two factors off the image, has a dead latent, and decodes with a sigmoid."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder = nn.Linear(3, 64)

    def encode(self, x):
        flat = x.flatten(1)
        column = x.sum((1, 2)) @ torch.arange(8.0) / flat.sum(1)
        row = x.sum((1, 3)) @ torch.arange(8.0) / flat.sum(1)
        mean = torch.stack([column - 3.5, torch.zeros_like(row), row - 3.5], 1)
        logvar = torch.tensor([-6.0, 0.0, -6.0]).expand_as(mean)
        return mean, logvar

    def decode(self, z):
        return self.decoder(z).sigmoid().reshape(-1, 1, 8, 8)


def dots() -> tuple[np.ndarray, np.ndarray]:
    """One white pixel an image, at every place of an 8x8 grid, many times over."""
    rows, columns = np.divmod(np.tile(np.arange(64), 20), 8)
    images = np.zeros((len(rows), 8, 8), np.uint8)
    images[np.arange(len(rows)), rows, columns] = 255
    return images, np.stack([columns, rows], 1)


def test_your_own_model_and_images_in_five_lines() -> None:
    images, factors = dots()
    result = examine(Own(), images, factors)
    assert result.counts == {"active": 2, "mixed": 0, "passive": 1}
    first, second, last = result.variables
    assert {(first.number, first.factor), (second.number, second.factor)} == {(0, "factor_0"), (2, "factor_1")}
    assert first.information == pytest.approx(1, abs=0.01)
    assert (last.number, last.type) == (1, "passive")
    assert last.mean_var == pytest.approx(1)
    assert last.kl == pytest.approx(0, abs=1e-6)
    assert result.reconstructions.shape == result.originals.shape
    assert result.traversals.shape == (3, 9, 1, 8, 8)
    assert any("Variable 1 is passive" in note for note in result.notes)
    assert not any("called active" in note for note in result.notes)


class GaveUp(Own):
    """As a SlowVAE gives up a variable: its posterior is the same for all, and narrower than N(0, 1)."""

    def encode(self, x):
        mean, logvar = super().encode(x)
        return mean, logvar + torch.tensor([0.0, -3.0, 0.0])


def test_a_variable_that_was_given_up_with_a_small_variance_is_said_to_be() -> None:
    images, factors = dots()
    result = examine(GaveUp(), images, factors)
    assert result.counts["active"] == 3  # by the published rule, which reads the variance alone
    (message,) = (note for note in result.notes if "called active" in note)
    assert message.startswith("Variable 1 is called active")


class InBetween(Own):
    """One variable whose variance is 0.1004 for all examples, one that is used for half of them, one passive."""

    def encode(self, x):
        mean, _ = super().encode(x)
        left = mean[:, 0] < 0
        steady, still = torch.full_like(mean[:, 0], 0.1004), torch.ones_like(mean[:, 0])
        return mean, torch.stack([steady, still, torch.where(left, 0.01, 1.0)], 1).log()


def test_variables_in_between_are_shown_by_what_they_do_and_counted_by_the_published_rule() -> None:
    result = examine(InBetween(), *dots(), measured=())
    shown = {variable.number: (variable.type, variable.kind, variable.detail) for variable in result.variables}
    assert shown == {
        0: ("mixed", "partly used", "about 0.10 for all"),
        1: ("passive", "passive", ""),
        2: ("mixed", "switching", "used for 50% of them"),
    }
    assert result.counts == {"active": 0, "mixed": 2, "passive": 1}
    assert result.headline.endswith("examples: 1 partly used, 1 switching, 1 passive")
    document = result.findings()
    assert document.json()["types"] == result.counts
    assert document.json()["kinds"] == {"active": 0, "partly used": 1, "switching": 1, "passive": 1}
    (strips,) = (part.strips for part in document.of(Pictures) if part.name == "traversals")
    assert [strip.type for strip in strips] == ["partly used", "switching", "passive"]
    text = page([document])
    assert '<span class="badge partly-used">partly used</span>' in text
    assert "used for 50% of them" in text


class Whispers(Own):
    """A passive variable whose mean moves a hundredth with the row, under noise of the prior's size."""

    def encode(self, x):
        mean, logvar = super().encode(x)
        return torch.stack([mean[:, 0], 0.01 * mean[:, 2], mean[:, 2]], 1), logvar


def test_a_passive_variable_tells_nothing_though_its_mean_moves_with_a_factor() -> None:
    images, factors = dots()
    result = examine(Whispers(), images, factors, measured=())
    assert factor_information(result.representation.mean, factors)[1, 1] > 0.9
    passive = result.variables[-1]
    assert (passive.number, passive.kind, passive.factor, passive.information) == (1, "passive", None, None)
    assert not result.factor_information[1].any()
    document = result.findings()
    assert [row["tells"] for row in document.json()["variables"]] == ["factor_0", "factor_1", "not above chance"]
    assert "not above chance" in page([document])


def test_noise_tells_nothing_of_a_label_however_few_the_examples() -> None:
    class Collapsed(nn.Module):
        def encode(self, x):
            mean, logvar = torch.zeros(2, len(x), 6)
            return mean, logvar

    rng = np.random.default_rng(0)
    result = examine(Collapsed(), rng.normal(size=(300, 3)), rng.integers(0, 10, 300), measured=["mig", "rate", "sap"])
    assert [variable.factor for variable in result.variables] == [None] * 6
    assert factor_information(result.representation.sample, result.representation.factors).max() > 0.1
    answer = result.findings().json()
    assert answer["within_chance"] == ["mig", "sap"]
    assert set(answer["chance"]) == {"mig", "sap"}
    assert set(answer["intervals"]) == {"mig", "rate", "sap"}
    assert answer["measures"] == result.measures
    assert all(isinstance(value, float) for value in answer["measures"].values())


def test_every_score_is_shown_with_its_interval_and_its_chance_level(capsys) -> None:
    result = examine(Own(), *dots(), measured=["mig", "rate"])
    gap, rate = result.values
    assert gap.interval[0] <= gap.value <= gap.interval[1]
    assert gap.chance == pytest.approx(0, abs=0.05)
    assert not gap.within_chance
    assert (rate.chance, rate.within_chance) == (None, False)
    document = result.findings()
    assert f"by chance {gap.chance:.3g}" in page([document])
    show(document)
    assert f"MIG: {gap.text()}" in " ".join(capsys.readouterr().out.split())


SCORES = ["beta-vae-score", "factor-vae-score", "mig", "mcc", "dci*", "modularity", "explicitness", "sap", "neighbour*"]


def test_every_score_says_which_of_its_published_variants_it_is(capsys) -> None:
    images, factors = dots()
    result = examine(Own(), images, factors, measured=[*SCORES, "rate"])
    *scores, rate = result.values
    assert len(scores) == 11
    for score in scores:
        assert score.interval[0] <= score.value <= score.interval[1], score.name
        assert re.search(r"\d+ (examples|votes|means)", score.protocol), score.name
    assert rate.protocol == ""
    by_name = {score.name: score.protocol for score in scores}
    count = result.representation.count
    assert by_name["mig"] == f"{count:,} examples, latents in 20 bins of equal width"
    assert by_name["dci"] == by_name["dci-completeness"]
    assert by_name["dci"].startswith("gradient boosting of 100 rounds, trained on ")
    assert "published: logistic regression" in by_name["explicitness"]
    document = result.findings()
    assert document.json()["protocols"] == by_name
    for shown in (page([document]), page([document, document]), document.parts[-1].text()):
        assert all(protocol[1:] in html.unescape(shown) for protocol in by_name.values())
    show(document)
    printed = " ".join(capsys.readouterr().out.split())
    assert all(protocol in printed for protocol in by_name.values())


def test_the_published_protocol_is_chosen_by_its_name() -> None:
    images, factors = dots()
    wanted = ["dci", "mcc", "explicitness", "factor-vae-score"]
    default, published = (
        {value.name: value for value in examine(Own(), images, factors, measured=wanted, protocol=protocol).values}
        for protocol in ("default", "published")
    )
    assert published["dci"].title == "DCI disentanglement (gbt)"
    assert published["dci"].protocol.startswith("gradient boosting of 100 rounds by scikit-learn, ")
    assert published["dci"].value == pytest.approx(default["dci"].value, abs=0.1)
    assert published["explicitness"].protocol.startswith("logistic regression, ")
    assert "published" not in published["mcc"].protocol + published["factor-vae-score"].protocol
    assert "published: 10,000 and 5,000" in default["factor-vae-score"].protocol
    with pytest.raises(ValueError, match="no protocol 'publised': did you mean 'published'"):
        examine(Own(), images, factors, measured=wanted, protocol="publised")


class Dials(Own):
    """Each latent lights a pixel of its own, and the three are known more and less precisely."""

    def encode(self, x):
        mean, _ = super().encode(x)
        return mean, torch.tensor([0.4, 0.01, 0.1]).log().expand_as(mean)

    def decode(self, z):
        image = torch.zeros(len(z), 64)
        image[:, :3] = z.sigmoid()
        return image.reshape(-1, 1, 8, 8)


@pytest.mark.spec("001a/VZ-03")
def test_traversals_come_sorted_by_mean_variance() -> None:
    images, factors = dots()
    result = examine(Dials(), images, factors)
    assert [v.number for v in result.variables] == [1, 2, 0]
    assert np.all(np.diff([v.mean_var for v in result.variables]) > 0)
    assert result.traversals.shape == (3, 9, 1, 8, 8)  # a row per latent, nine steps along it
    for variable, strip in zip(result.variables, result.traversals, strict=True):
        moved = np.ptp(strip.reshape(9, 64).astype(int), axis=0)
        assert np.flatnonzero(moved).tolist() == [variable.number]


def test_every_registered_measure_gives_a_value_or_a_reason() -> None:
    images, factors = dots()
    result = examine(Own(), images, factors)
    assert len(result.values) > 3
    for value in result.values:
        assert (value.value is None) == bool(value.problem), value
        assert value.value is None or np.isfinite(value.value)
    answer = result.findings().json()
    assert answer["types"]["active"] == 2
    assert len(answer["variables"]) == 3
    assert answer["measures"] == result.measures
    assert answer["undefined"] == {value.name: value.problem for value in result.values if value.problem}


def test_a_deterministic_code_without_a_decoder_is_examined_too() -> None:
    class Projection(nn.Module):
        def encode(self, x):
            return x[:, :2]

    points = np.random.default_rng(0).normal(size=(500, 3))
    result = examine(Projection(), points)
    assert result.counts["active"] == 2
    assert result.traversals is None
    assert result.factor_information is None
    assert "no posterior variance" in result.notes[0]


def test_a_collapsed_model_is_called_so() -> None:
    class Collapsed(nn.Module):
        def encode(self, x):
            mean, logvar = torch.zeros(2, len(x), 2)
            return mean, logvar

    result = examine(Collapsed(), np.random.default_rng(0).normal(size=(300, 3)))
    assert result.counts == {"active": 0, "mixed": 0, "passive": 2}
    assert any("collapsed" in note for note in result.notes)


def test_a_model_of_ours_on_a_rendered_world() -> None:
    torch.manual_seed(0)
    result = examine(Autoencoder(AutoencoderConfig(latents=4), (1, 16, 16)), Sprites(size=16), count=300)
    assert result.representation.count == 300
    assert result.factor_information.shape == (4, 5)
    assert result.traversals.dtype == np.uint8


def test_a_conditional_prior_is_what_variables_are_held_against() -> None:
    torch.manual_seed(0)
    world = Sprites(size=16)
    sizes = tuple(f.size for f in world.factors)
    result = examine(IVAE().build(AutoencoderConfig(latents=3), Brief(world.shape, factors=sizes)), world, count=300)
    rep = result.representation
    assert rep.prior_var is not None
    expected = variable_types(rep.var, mean=rep.mean, prior_mean=rep.prior_mean, prior_var=rep.prior_var)
    assert result.counts == expected.counts
    assert result.traversals.shape[0] == 3


@pytest.mark.parametrize(
    ("images", "sentence"),
    [
        (np.full((4, 8, 8), np.nan), "NaN or infinite"),
        (np.zeros((0, 8, 8)), "the data set is empty"),
        (np.zeros((4, 8, 8, 8, 8)), "observations need shape"),
    ],
)
def test_bad_images_are_refused(images, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        examine(Own(), images)


def test_images_of_the_wrong_shape_are_refused_by_our_models() -> None:
    model = Autoencoder(AutoencoderConfig(latents=4), (1, 16, 16))
    with pytest.raises(ValueError, match=r"takes observations of shape \(1, 16, 16\); got \(1, 8, 8\)"):
        examine(model, dots()[0])


@pytest.mark.parametrize(
    ("power", "words"), [(1.0, "agree with the decoder's slope"), (-1.0, "do not agree with the decoder")]
)
def test_the_audit_of_variances_says_what_it_found(power, words) -> None:
    predicted = np.random.default_rng(0).uniform(0.01, 1, (50, 2)).astype(np.float32)
    result = _audit_notes(Representation(np.zeros((50, 2), np.float32), predicted**power), predicted)
    assert words in result[0]


class Plain(nn.Module):
    """An encoder and nothing else: no variances, nothing sampled."""

    def encode(self, x):
        return x.flatten(1)[:, :3]


def needing(*needs: str) -> set[str]:
    return {name for name in measures.names() if set(needs) & set(measures.get(name).needs)}


def test_measures_are_chosen_by_what_the_model_gives() -> None:
    points = np.random.default_rng(0).normal(size=(300, 3))
    result = examine(Plain(), points)
    left_out = needing("var", "sample", "factors")
    assert needing("var", "sample")
    assert needing("factors")
    assert set(result.measures) == set(measures.names()) - left_out
    notes = [note for note in result.notes if note.startswith("Not measured without")]
    assert len(notes) == len({note.partition(":")[0] for note in notes}), "one note for each thing that is lacking"
    named = {name for note in notes for name in note.rstrip(".").partition(": ")[2].split(", ")}
    assert named == left_out
    with_factors = examine(Plain(), points, (points[:, 0] > 0).astype(int))
    assert set(with_factors.measures) == set(measures.names()) - needing("var", "sample")
    assert not any("without known factors" in note for note in with_factors.notes)
    assert not any("Not measured" in note for note in examine(Own(), *dots(), count=200).notes)


def test_a_measure_that_is_asked_for_says_why_it_has_no_value() -> None:
    result = examine(Plain(), np.random.default_rng(0).normal(size=(300, 3)), measured=["mig", "effective-rank"])
    gap, rank = result.values
    assert (gap.name, gap.value) == ("mig", None)
    assert "needs factors" in gap.problem
    assert rank.value is not None
    assert not any("Not measured" in note for note in result.notes)
    answer = result.findings().json()
    assert answer["measures"]["mig"] is None
    assert answer["undefined"] == {"mig": gap.problem}


def test_what_tells_about_a_factor_is_binned_as_the_scores_bin_it() -> None:
    """A continuous factor in 20 bins, an integer one by its values however many they are."""
    rng = np.random.default_rng(0)
    codes = rng.normal(size=(2000, 2))
    factors = np.column_stack([codes[:, 0] + rng.normal(size=2000), rng.integers(0, 40, 2000)])
    codes[:, 1] = factors[:, 1]
    result = factor_information(codes, factors)
    labels = np.column_stack([discretise(factors[:, :1])[:, 0], factors[:, 1].astype(int)])
    binned = discretise(codes)
    for j in range(2):
        for k in range(2):
            own = mutual_info_score(binned[:, j], labels[:, k]) / entropy(np.bincount(labels[:, k]))
            assert result[j, k] == pytest.approx(own, abs=1e-9)
    # Twenty bins of a code hold pairs of the forty values: they know all but one bit of each.
    assert result[1, 1] == pytest.approx(1 - np.log(2) / np.log(40), abs=0.01)
    # The scores read the same table.
    table = mig(codes, factors).table / [entropy(np.bincount(labels[:, k])) for k in range(2)]
    np.testing.assert_allclose(result, table, atol=1e-9)


def test_a_measure_means_the_first_line_of_its_docstring(monkeypatch) -> None:
    class Gap:
        """Gap of ``mean`` and :func:`sample`, in two
        lines.

        More that is not shown.
        """

    class Bare:
        pass

    Bare.__doc__ = "Bare(bins: int = 20)"
    known = {"gap": Gap, "bare": Bare}
    monkeypatch.setattr(measures, "names", lambda: sorted(known))
    monkeypatch.setattr(measures, "get", known.__getitem__)
    assert meaning("gap") == "Gap of mean and sample, in two lines."
    assert meaning("bare") == ""
    assert meaning("unknown") == ""


@pytest.mark.spec("001a/SV-11")
def test_a_latent_that_a_slow_vae_gave_up_shows_by_its_still_mean_and_its_own_deviation() -> None:
    """At the best deviation of a silent latent by the objective itself: neither a used one's nor the prior's 1."""
    world = Sources(1000, 2, 0, scales=(1.0, 0.2), coefficient=1.0, rate=6.0, start="normal")
    model = AutoencoderConfig(2, Linear(), "constant", "gaussian", 0.5).build(Brief(world.shape)).double()
    silent = 1
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        model.head.mean.weight[0, 0] = model.decoder.output[0].weight[0, 0] = 1.0  # the other carries the long axis
    index = np.arange(1000)
    x, other = (torch.from_numpy(seen).double() for seen in (world.observe(index), *world.others_of(index)))
    batch = Batch(x, population=1000, others=(other,))

    def loss(std: float) -> float:
        torch.manual_seed(0)
        with torch.no_grad():
            model.head.logvar[silent] = 2 * np.log(std)
            return float(SlowVAE()(model, batch, 0).loss)

    best = minimize_scalar(loss, bounds=(0.01, 3.0), method="bounded", options={"xatol": 1e-6})
    loss(best.x)
    result = {
        variable.number: variable for variable in examine(model.float(), world, count=1000, measured=()).variables
    }
    assert np.sqrt(result[silent].mean_var) == pytest.approx(0.22868, abs=1e-4)  # s0 of section 3.7
    assert float(collapsed_std(6.0)) == pytest.approx(0.22868, abs=1e-5)
    assert result[silent].var_of_mean == 0
    assert result[0].var_of_mean > 0.5
