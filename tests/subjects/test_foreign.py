"""Anybody's model, through Python and through the command line: every convention comes to the same code."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from polariscope import examine
from polariscope.cli import main
from polariscope.examination.compare import compare
from polariscope.representation import represent
from polariscope.subjects import as_subject
from polariscope.user_code import load_source
from polariscope.worlds import ArrayWorld

FILE = Path(__file__).with_name("foreign.py")
# name in foreign.py, options, whether there is a posterior variance, whether it decodes
KINDS = [
    ("Plain", {}, False, True),
    ("Pair", {}, True, True),
    ("ListOfTwo", {}, True, True),
    ("SampleFirst", {}, True, True),
    ("SampleLast", {}, True, True),
    ("Named", {}, True, True),
    ("Distribution", {}, True, True),
    ("Independent", {}, True, True),
    ("Mapping", {}, True, True),
    ("Attributes", {}, True, True),
    ("Transformer", {}, False, True),
    ("Tokens", {}, False, True),
    ("Arrays", {}, False, True),
    ("ForwardOnly", {"encode": "forward"}, True, False),
    ("Classifier", {"encode": "features"}, False, False),
    ("Classifier", {"encode": "features.1"}, False, False),
    ("Parts", {}, True, True),
    ("Unbound", {}, True, True),
    ("ForwardByName", {}, True, True),
    ("Half", {}, True, True),
    ("Brain", {}, True, True),
    ("Double", {}, True, True),
    ("Logits", {}, True, True),
    ("Symmetric", {}, True, True),
    ("Gaussian", {}, True, True),
    ("Nested", {}, True, True),
    ("function", {}, False, False),
    ("compiled", {}, True, True),
]
IDS = [f"{name} {' '.join(options.values())}".strip() for name, options, *_ in KINDS]


def foreign(name: str):
    return load_source(f"{FILE}:{name}")


@pytest.mark.parametrize(("name", "options", "variance", "decodes"), KINDS, ids=IDS)
def test_every_convention_comes_to_the_same_code(dots, name, options, variance, decodes) -> None:
    subject = as_subject(foreign(name), **options)
    rep = represent(subject, dots, count=256, reconstructions=decodes)
    tolerance = 0.02 if name in ("Half", "Brain") else 1e-5
    np.testing.assert_allclose(rep.mean[:, :2], rep.factors - 3.5, atol=tolerance)
    assert np.ptp(rep.mean[:, 2]) == 0
    if variance:
        np.testing.assert_allclose(rep.var.mean(0), np.exp([-6, -6, 0]), rtol=0.02)
        noise = (rep.sample - rep.mean) / np.sqrt(rep.var)
        assert noise.std() == pytest.approx(1, abs=0.25 if name == "Named" else 0.1) or name == "Named"
    else:
        assert rep.var is None
    if decodes:
        truth = dots.observe(rep.index) / 255
        assert np.square(rep.reconstruction - truth).mean() < 0.03, "a soft dot at the right place, whatever the output"
        assert rep.reconstruction.shape == (256, 1, 8, 8)


@pytest.mark.parametrize(("name", "options", "variance", "decodes"), KINDS, ids=IDS)
def test_every_convention_from_the_command_line(dots_file, tmp_path, capsys, name, options, variance, decodes) -> None:
    torch.manual_seed(0)  # outputs are told apart by values, which some draws of a sample leave open
    flags = [word for key, value in options.items() for word in (f"--{key}", value)]
    words = ["examine", f"{FILE}:{name}", "--data", str(dots_file), *flags, "--count", "128", "--json"]
    assert main([*words, "--measures", "mig", "--out", str(tmp_path / "report.html")]) == 0
    result = json.loads(capsys.readouterr().out)
    assert len(result["variables"]) == 3
    assert {v["factor"] for v in result["variables"] if v["var_of_mean"] > 0.1} == {"factor_0", "factor_1"}
    assert result["types"]["passive"] == int(variance)
    assert (tmp_path / "report.html").exists()


def test_what_the_decoder_gives_is_told_by_the_data_and_said(dots) -> None:
    for name, words in {
        "Logits": "read as logits",
        "Symmetric": "read as values in [-1, 1]",
        "Gaussian": "read as values in the data's units",
    }.items():
        notes = examine(foreign(name), dots, count=64).notes
        assert any(words in note for note in notes), notes
    declared = examine(as_subject(foreign("Gaussian"), output="logits"), dots, count=64)
    assert not any("was read as" in note for note in declared.notes)


class Saying(nn.Module):
    """Decodes to the same two pixels, whatever the code."""

    def __init__(self, *pixels: float) -> None:
        super().__init__()
        self.pixels = torch.tensor(pixels)

    def encode(self, x):
        return x

    def decode(self, z):
        return self.pixels.expand(len(z), 2)


@pytest.mark.parametrize(
    ("says", "truth", "meaning"),
    [
        # Half way between 0.5 and the 0.6225 of its logistic is 0.5612: a little beyond, logits are nearer.
        ((0.5, 0.5), (0.5618, 0.5618), "values"),  # by 3.7 %, which tells nothing
        ((0.5, 0.5), (0.5650, 0.5650), "logits"),  # by 28 %
        # What leaves [0, 1] is no brightness, so that 0.6 % are enough: 1.02 is as far from 0.8775 as its logistic.
        ((0.5, 1.02), (0.5618, 0.87749), "logits"),
    ],
)
def test_a_tie_between_meanings_goes_to_values_if_they_can_be_brightnesses(says, truth, meaning) -> None:
    x = torch.tensor(truth).expand(5, 2)
    assert as_subject(Saying(*says)).understood(x).meaning == meaning


def test_traversals_start_at_an_example_and_go_as_far_as_the_code_does() -> None:
    """A code that lives at 100: walks around zero would show nothing at all."""

    class Shifted(foreign("Pair").__class__):
        def encode(self, x):
            mean, logvar = super().encode(x)
            return mean + 100, logvar

        def decode(self, z):
            return super().decode(z - 100)

    rows, columns = np.divmod(np.tile(np.arange(64), 4), 8)
    images = np.zeros((len(rows), 8, 8), np.uint8)
    images[np.arange(len(rows)), rows, columns] = 255
    result = examine(Shifted(), images)
    walk = {v.number: strip for v, strip in zip(result.variables, result.traversals, strict=True)}
    brightest = [int(frame.argmax()) % 8 for frame in walk[0][2:7]]
    assert brightest == sorted(brightest), "the dot moves along its row"
    assert walk[0].max() > 200
    assert len(set(brightest)) >= 3


def test_the_model_is_left_exactly_as_it_came(dots) -> None:
    model = foreign("Touchy").train()
    model.norm.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    examine(model, dots, count=64)
    assert torch.equal(torch.rand(1), expected), "the random state too"
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert [module.training for module in model.modules()] == modes
    assert [p.requires_grad for p in model.parameters()] == [False, True, True]
    assert not any(module._forward_hooks for module in model.modules())
    broken = foreign("Broken").train()
    with pytest.raises(ValueError, match="no such thing"):
        examine(broken, dots)
    assert broken.training, "also if encode raises"


def test_what_user_code_raises_is_one_sentence_with_its_line(dots_file, capsys) -> None:
    assert main(["examine", f"{FILE}:Broken", "--data", str(dots_file)]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    number = next(i for i, text in enumerate(FILE.read_text().splitlines(), 1) if "no such thing" in text)
    assert f"{FILE}:{number}" in line
    assert "KeyError: 'no such thing'" in line


def test_the_traceback_is_there_for_those_who_ask(dots_file, monkeypatch) -> None:
    monkeypatch.setenv("POLARISCOPE_DEBUG", "1")
    with pytest.raises(ValueError, match="no such thing") as caught:
        main(["examine", f"{FILE}:Broken", "--data", str(dots_file)])
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("name", "flags", "sentence"),
    [
        ("Flat784", [], "the observations have shape (1, 8, 8)"),
        ("Odd", [], "declare them, for example --returns mean,-,-, in Python returns="),
        ("Classifier", [], "name the encoder with --encode NAME (a method, forward, or a layer: features, head, "),
        ("Classifier", ["--encode", "featurs"], "has no method and no layer 'featurs'"),
        ("NeedsArguments", [], "needs arguments (latents): write a function without arguments"),
        ("Missing", [], "has no 'Missing'; it has "),
        ("Pair", ["--returns", "mean,lgvar"], "has 'lgvar': did you mean 'logvar'?"),
        ("Pair", ["--returns", "sample,logvar"], "needs to be the mean"),
    ],
)
def test_what_does_not_fit_is_a_sentence(dots_file, capsys, name, flags, sentence) -> None:
    assert main(["examine", f"{FILE}:{name}", "--data", str(dots_file), *flags]) == 2
    error = capsys.readouterr().err
    assert sentence in error, error
    assert len(error.strip().splitlines()) == 1


def test_a_size_that_does_not_fit_says_how_to_resize(dots_file, capsys) -> None:
    main(["examine", f"{FILE}:Flat784", "--data", str(dots_file)])
    assert "--world.size" in capsys.readouterr().err


def test_a_declared_order_is_taken_as_declared(dots) -> None:
    class Deviation(nn.Module):
        def encode(self, x):
            return x.flatten(1)[:, :2] * 0 + 0.5, x.flatten(1)[:, :2]

    rep = represent(as_subject(Deviation(), returns="std,mean"), dots, count=32)
    np.testing.assert_allclose(rep.var, 0.25)


def test_a_collapsed_triple_is_asked_about(dots) -> None:
    """Sample, mean and logvar of the prior itself fit in either order."""

    class Collapsed(nn.Module):
        def encode(self, x):
            zero = torch.zeros(len(x), 3)
            return torch.randn(len(x), 3), zero, zero.clone()

    with pytest.raises(ValueError, match="--returns sample,mean,logvar"):
        represent(Collapsed(), dots, count=64)
    assert represent(as_subject(Collapsed(), returns="sample,mean,logvar"), dots, count=64).var.mean() == 1


def test_two_foreign_modules_layer_by_layer(dots) -> None:
    first, second = foreign("Sequential"), foreign("Sequential").__class__(seed=1)
    same = compare(first, first, dots, count=64)
    assert same.rows == ("input", "rows", "dense", "act", "dense (2)", "act (2)", "head", "mean")
    np.testing.assert_allclose(np.diag(same.values), 1, atol=1e-5)
    # An activation in place must not reach back into the layer before it.
    assert same.values[same.rows.index("dense"), same.rows.index("act")] < 0.999
    other = compare(first, second, dots, count=64)
    assert np.diag(other.values)[1:].max() < 1 - 1e-4


def test_compare_from_the_command_line(dots_file, tmp_path, capsys) -> None:
    words = ["compare", f"{FILE}:Pair", f"{FILE}:Sequential", "--data", str(dots_file), "--count", "64", "--json"]
    assert main([*words, "--out", str(tmp_path / "c.png")]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["columns"][1] == "rows"
    assert (tmp_path / "c.png").exists()


def test_a_code_as_large_as_the_data_is_a_code() -> None:
    class Doubling(nn.Module):
        def encode(self, x):
            return 2 * x, torch.full_like(x, -4.0)

    points = ArrayWorld(np.random.default_rng(0).normal(size=(50, 3)))
    rep = represent(Doubling(), points, count=50)
    np.testing.assert_allclose(rep.mean, 2 * points.observe(rep.index), rtol=1e-6)
    np.testing.assert_allclose(rep.var, np.exp(-4), rtol=1e-5)


def test_grey_images_through_convolutions_that_are_flattened_by_view(dots) -> None:
    """The published case: with one channel, strides can say channels last although the tensor counts as contiguous."""

    class Convolutional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.dense = nn.Conv2d(1, 6, 4, 2, 1), nn.Linear(96, 3)

        def encode(self, x):
            return self.dense(torch.relu(self.conv(x)).view(x.size(0), -1))

    assert represent(Convolutional(), dots, count=32).mean.shape == (32, 3)


def test_forward_encodes_only_where_it_gives_a_posterior_and_nothing_was_declared(dots) -> None:
    result = examine(foreign("Unbound"), dots, count=64)
    assert any(n.startswith("The encoder is forward, because it returns a mean with a variance") for n in result.notes)
    declared = represent(as_subject(foreign("Unbound"), encode="encoder"), dots, count=64)
    assert declared.mean.shape == (64, 6)
    assert represent(foreign("Features"), dots, count=64).mean.shape == (64, 6)


def test_layers_of_a_decoder_that_forward_runs_come_after_the_code(dots) -> None:
    class Split(foreign("Unbound").__class__):
        def __init__(self) -> None:
            super().__init__()
            self.encoder.wide = nn.Linear(6, 6)
            self.decoder.first = nn.Linear(3, 3)
            self.encoder.register_forward_hook(lambda module, inputs, output: module.wide(output))
            self.decoder.register_forward_pre_hook(lambda module, inputs: module.first(inputs[0]))

    rows = compare(Split(), Split(), dots, count=64).rows
    assert rows[-1] == "decoder.first"
    assert rows.index("encoder.wide") < rows.index("mean") < rows.index("decoder.first")


def test_a_wrong_number_of_channels_is_said_as_that(dots) -> None:
    class Colour(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def encode(self, x):
            return self.conv(x)

    with pytest.raises(ValueError, match="made for another number of channels than 1$"):
        represent(Colour(), dots, count=32)


def test_a_code_without_variance_has_no_columns_for_it_and_a_long_one_is_cut(dots_file, tmp_path, capsys) -> None:
    source = tmp_path / "wide.py"
    source.write_text("def pixels(x):\n    return x.flatten(1)\n")
    words = ["--data", str(dots_file), "--count", "64", "--measures", "", "--out", str(tmp_path / "report.html")]
    assert main(["examine", f"{source}:pixels", *words]) == 0
    out = capsys.readouterr().out
    header = next(line for line in out.splitlines() if "no." in line)
    assert header.split() == ["no.", "Type", "mean", "var", "factor"]  # nothing beyond chance has a share
    assert "and 34 more" in out
    page = (tmp_path / "report.html").read_text()
    assert "on 64 examples" in page
    assert "examined on the data “dots”" in page


def test_compare_resizes_images_as_its_sentence_says(dots_file, tmp_path, capsys) -> None:
    source = tmp_path / "sixteen.py"
    source.write_text(
        "from torch import nn\n"
        "class Net(nn.Sequential):\n"
        "    def __init__(self):\n"
        "        super().__init__(nn.Flatten(), nn.Linear(256, 4))\n"
    )
    words = ["compare", f"{source}:Net", f"{source}:Net", "--data", str(dots_file), "--count", "64"]
    assert main([*words, "--out", str(tmp_path / "c.png")]) == 2
    assert "--world.size resizes them" in capsys.readouterr().err
    assert main([*words, "--world.size", "16", "--out", str(tmp_path / "c.png")]) == 0
