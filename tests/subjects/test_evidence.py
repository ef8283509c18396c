"""Values are evidence or they are not: what the places of a tuple hold is measured, named, likely, or asked for."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from polariscope import examine
from polariscope.representation import represent
from polariscope.subjects import as_subject
from polariscope.subjects.evidence import code_places, read_places, returned_names, role_of_name
from polariscope.subjects.outputs import read_code
from polariscope.user_code import load_source
from polariscope.worlds import ArrayWorld

FILE = Path(__file__).with_name("foreign.py")
VARIANCES = np.exp([-6, -6, 0])


def foreign(name: str):
    return load_source(f"{FILE}:{name}")


@pytest.mark.parametrize(
    ("name", "roles", "grounds"),
    [
        ("SampledDeviations", "mean, std", "the samples that the model draws spread as this role predicts."),
        ("SampledLogDeviations", "mean, logstd", "the samples that the model draws"),
        ("DecodedVariances", "mean, var", "the samples that the model draws"),
        ("NamedDeviations", "mean, std", "so its return statement calls them (mu, sigma)."),
        ("NamedVariances", "mean, logvar", "calls them (fc_mu, fc_var), and no variance is negative. If not, declare"),
        ("Pair", "mean, logvar", "the second has the values of log-variances, negative or near 0. If not, declare it"),
        ("SampleFirst", "sample, mean, logvar", "the sample spreads around the mean as this role predicts."),
        ("SampleLast", "mean, logvar, sample", "the sample spreads around the mean as this role predicts."),
        ("RestingSample", "sample, mean, logvar", "the sample is the mean itself, and the second has the values"),
    ],
)
def test_what_a_place_holds_is_settled_by_evidence_and_said(dots, name, roles, grounds) -> None:
    rep = represent(foreign(name), dots, count=256)
    (note,) = [note for note in rep.notes if note.startswith("encode returns")]
    assert note.startswith(f"encode returns ({roles})"), note
    assert grounds in note
    np.testing.assert_allclose(rep.mean[:, :2], rep.factors - 3.5, atol=1e-5)
    np.testing.assert_allclose(rep.var.mean(0), VARIANCES, rtol=1e-3)


@pytest.mark.parametrize(
    ("name", "asks"),
    [
        ("Deviations", "--returns mean,std, in Python returns='mean,std'"),
        ("TanhFeatures", "--returns mean,logvar, in Python returns='mean,logvar'"),
        ("LogProbabilities", "--returns mean,logvar"),
    ],
)
def test_what_no_evidence_decides_is_refused_with_the_flag(dots, name, asks) -> None:
    with pytest.raises(ValueError, match=asks):
        examine(foreign(name), dots, count=64)


def test_positive_numbers_are_said_to_be_no_logarithms(dots) -> None:
    with pytest.raises(ValueError, match="the second has no negative number: a standard deviation, a variance"):
        examine(foreign("Deviations"), dots, count=64)
    rep = represent(as_subject(foreign("Deviations"), returns="mean,std"), dots, count=64)
    np.testing.assert_allclose(rep.var.mean(0), VARIANCES, rtol=1e-5)


def test_a_sample_beside_its_mean_is_no_scale(dots) -> None:
    rep = represent(foreign("SampleAndMean"), dots, count=64)
    assert rep.var is None
    np.testing.assert_allclose(rep.mean[:, :2], rep.factors - 3.5, atol=1e-5)
    assert any("is its average" in note for note in rep.notes)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("count", [4, 12])
def test_a_few_examples_of_a_stochastic_model_are_asked_about_more_often(dots, seed, count) -> None:
    """A dozen numbers of one draw leave the order open one time in some; repeated draws do not."""
    torch.manual_seed(seed)
    x = torch.zeros(count, 1, 8, 8)
    x.view(count, 64)[torch.arange(count), torch.randint(64, (count,))] = 1
    model = foreign("SampleLast")
    with torch.no_grad():
        reading = read_places(model.encode(x), x.shape, again=lambda: model.encode(x))
    assert reading.roles == ("mean", "logvar", "sample")
    assert reading.sure


@pytest.mark.parametrize("scale", ["std", "var", "logvar", "logstd"])
def test_a_measured_spread_tells_every_scale_from_the_others(scale) -> None:
    torch.manual_seed(0)
    std = torch.rand(40, 3) * 0.5 + 0.1
    mean = torch.randn(40, 3)
    second = {"std": std, "var": std**2, "logvar": 2 * std.log(), "logstd": std.log()}[scale]

    def again():
        return second, mean, mean + std * torch.randn(40, 3)

    assert read_places(again(), (40, 9), again=again).roles == (scale, "mean", "sample")


def test_a_single_number_an_example_is_never_the_code_of_one_with_a_tensor() -> None:
    n = 5
    tensors = {
        "log-determinants": ((torch.randn(n, 4), torch.randn(n)), [0]),
        "a column of them": ((torch.randn(n, 1), torch.randn(n, 4)), [1]),
        "as large as the data": ((torch.randn(n, 2, 3), torch.randn(n)), [0]),
        "a loss": ((torch.tensor(3.0), torch.randn(n, 4)), [1]),
        "indices": ((torch.randn(n, 4), torch.ones(n, 4, dtype=torch.long)), [0]),
        "of another number": ((torch.randn(n, 4), torch.randn(n + 1, 4)), [0]),
        "a reconstruction": ((torch.randn(n, 6), torch.randn(n, 4)), [1]),
        "one latent variable": ((torch.randn(n, 1), torch.randn(n, 1)), [0, 1]),
    }
    for what, (output, places) in tensors.items():
        assert code_places(output, (n, 2, 3)) == places, what


def test_a_flow_is_examined_as_its_code_and_decodes(dots) -> None:
    result = examine(foreign("Flow"), dots, count=64, measured=[])
    assert result.representation.mean.shape == (64, 64)
    np.testing.assert_array_equal(result.reconstructions, result.originals)
    assert any(note.startswith("Taken as a flow: forward encodes and inverse decodes") for note in result.notes)
    points = ArrayWorld(np.random.default_rng(0).normal(size=(50, 2)))
    rep = represent(foreign("FlowOfPoints"), points, count=50)
    np.testing.assert_allclose(rep.mean, 3 * points.observe(rep.index), rtol=1e-6)
    assert rep.var is None


def test_names_of_a_return_statement() -> None:
    def encode(self, x):
        h = self.body(x)
        return [self.decode(h), x, self.fc_mu(h), h.log_var]

    class Encoder(nn.Module):
        def forward(self, x):
            if x is None:
                return None
            return x.loc, x.scale

    assert returned_names(encode, 4) == ("decode", "x", "fc_mu", "log_var")
    assert returned_names(encode, 3) == ()
    assert returned_names(Encoder(), 2) == ("loc", "scale")
    assert returned_names(len, 2) == ()


@pytest.mark.parametrize(
    ("name", "role"),
    [("mu", "mean"), ("z_mean", "mean"), ("loc", "mean"), ("logvar", "logvar"), ("log_var", "logvar"),
     ("q_logvar", "logvar"), ("lv", "logvar"), ("log_sigma_sq", "logvar"), ("log_std", "logstd"), ("sigma", "std"),
     ("scale", "std"), ("to_std", "std"), ("variance", "var"), ("fc_var", "var"), ("h", ""), ("logits", ""),
     ("features", ""), ("x", ""), ("catalogue", "")],
)  # fmt: skip
def test_names_speak_for_roles(name, role) -> None:
    assert role_of_name(name) == role


def test_a_mode_that_was_changed_to_draw_a_sample_is_restored(dots) -> None:
    for training in (True, False):
        model = foreign("SampledDeviations").train(training)
        represent(model, dots, count=16)
        assert model.training is training


def test_a_sampler_that_contradicts_the_values_is_not_believed(dots) -> None:
    """encode returns standard deviations, and reparameterize takes log-variances: an answer would be wrong in one way
    or the other."""

    class Contradicting(foreign("Deviations").__class__):
        def reparameterize(self, mu, logvar):
            return mu + torch.randn_like(mu) * (logvar / 2).exp()

    with pytest.raises(ValueError, match="--returns mean,std"):
        represent(Contradicting(), dots, count=64)


@pytest.mark.parametrize(
    ("names", "spread"),
    [
        (("mu", "log_sigma"), lambda s: s.log()),
        (("z_mu", "logsigma"), lambda s: s.log()),
        (("mu", "logVar"), lambda s: 2 * s.log()),
        (("mean", "log_sigma2"), lambda s: 2 * s.log()),
        (("mean", "lv"), lambda s: 2 * s.log()),
        (("z_mean", "z_std"), lambda s: s),
    ],
)
def test_names_of_spreads_are_read_by_their_words(names, spread) -> None:
    """They were dropped in silence, and the model was said to have no posterior variance."""
    mean, sd = torch.randn(5, 3), torch.rand(5, 3) + 0.1
    code = read_code({names[0]: mean, names[1]: spread(sd), "loss_scale": torch.tensor(2.0)})
    torch.testing.assert_close(code["mean"], mean)
    torch.testing.assert_close(code["var"], sd.square())


def test_a_negative_deviation_is_no_deviation() -> None:
    with pytest.raises(ValueError, match="negative standard deviations"):
        read_code({"mean": torch.zeros(2, 3), "std": torch.full((2, 3), -3.0)})
