"""Libraries nobody here wrote: spatial codes, named answers, estimators, and codes without a model."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.decomposition import NMF, PCA
from sklearn.linear_model import LogisticRegression
from sklearn.manifold import TSNE
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from torch import nn

from polariscope import compare, examine
from polariscope.cli import main
from polariscope.representation import represent
from polariscope.subjects import as_subject
from polariscope.testing import check_subject
from polariscope.user_code import UserCodeError, load_source

FILE = Path(__file__).with_name("foreign.py")


def foreign(name: str):
    return load_source(f"{FILE}:{name}")


@pytest.mark.parametrize(("name", "variance"), [("Spatial", False), ("Latent", True), ("Indices", False)])
def test_a_code_with_a_shape_goes_back_to_the_decoder_in_it(dots, name, variance) -> None:
    result = examine(foreign(name), dots, count=64, measured=[])
    rep = result.representation
    assert rep.mean.shape == (64, 16 if name == "Indices" else 64)
    assert (rep.var is not None) == variance
    if name != "Indices":
        np.testing.assert_array_equal(result.reconstructions, result.originals)
        assert result.traversals.shape == (64, 9, 1, 8, 8)


def test_a_decoder_that_takes_rows_gets_rows_of_a_code_with_a_shape(dots) -> None:
    class Rows(foreign("Plain").__class__):
        def encode(self, x):
            return super().encode(x)[:, :, None, None]

    result = examine(Rows(), dots, count=64, measured=[])
    assert np.square(result.reconstructions / 255 - result.originals / 255).mean() < 0.03


@pytest.mark.parametrize("name", ["BadDecoder", "Mismatched"])
def test_a_decoder_that_fails_costs_its_results_only(dots, dots_file, tmp_path, capsys, name) -> None:
    whole = examine(foreign(name), dots, count=64, measured=[])
    assert whole.reconstructions is None
    assert whole.variables
    assert sum(note.startswith("Nothing is decoded: decode of ") for note in whole.notes) == 1
    with pytest.raises(ValueError, match=f"decode of {name} failed"):
        represent(foreign(name), dots, count=16, reconstructions=True)
    rows = compare(foreign(name), foreign("Pair"), dots, count=64).rows
    assert "mean" in rows
    words = ["examine", f"{FILE}:{name}", "--data", str(dots_file), "--count", "64", "--measures", ""]
    assert main([*words, "--out", str(tmp_path / "report.html")]) == 0
    assert "Nothing is decoded" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("VisionTransformer", "The encoder is forward, because its output names a code"),
        ("Convolutions", "The encoder is forward, because its output names a code"),
        ("WithHead", "The encoder is vit, the model without its head"),
    ],
)
def test_forward_encodes_where_its_answer_names_a_code(dots, name, said) -> None:
    rep = represent(foreign(name), dots, count=64)
    shift = 7 if name == "Convolutions" else 0
    np.testing.assert_allclose(rep.mean[:, :2] - shift, rep.factors - 3.5, atol=1e-5)
    assert any(note.startswith(said) and "encode= in Python" in note for note in rep.notes)


def test_a_forward_that_fails_is_said_where_nothing_else_encodes(dots) -> None:
    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dense = nn.Linear(100, 3)

        def forward(self, x):
            return self.dense(x.flatten(1))

    with pytest.raises(ValueError, match=r"Wide does not encode: forward fails \(RuntimeError: mat1 and mat2"):
        represent(Wide(), dots, count=16)


def test_a_layer_may_answer_by_name(dots) -> None:
    rep = represent(as_subject(foreign("WithHead"), encode="vit"), dots, count=64)
    np.testing.assert_allclose(rep.mean[:, :2], rep.factors - 3.5, atol=1e-5)


def test_scikit_learn_transforms_and_transforms_back(dots) -> None:
    rows = (dots.observe(np.arange(64)) / 255).reshape(64, -1)
    pca = PCA(63).fit(rows)
    result = examine(pca, dots, count=64, measured=[])
    np.testing.assert_allclose(
        result.representation.mean,
        pca.transform((dots.observe(result.representation.index) / 255).reshape(64, -1)),
        atol=1e-5,
    )
    np.testing.assert_array_equal(result.reconstructions, result.originals)
    pipeline = make_pipeline(StandardScaler(with_std=False), PCA(5)).fit(rows)
    assert represent(pipeline, dots, count=64).mean.shape == (64, 5)
    for kind in (np.float32, np.float64):  # which insists on what it was fitted on
        assert represent(NMF(2, init="nndsvda", tol=1).fit(rows.astype(kind)), dots, count=64).mean.shape == (64, 2)


def test_an_estimator_fitted_on_bytes_is_not_given_brightnesses(dots) -> None:
    bytes_ = dots.observe(np.arange(64)).reshape(64, -1).astype(float)
    for estimator in (PCA(3), make_pipeline(StandardScaler(), PCA(3))):
        with pytest.raises(ValueError, match=r"fit it on images / 255, or give a function that scales"):
            examine(estimator.fit(bytes_), dots, count=64)
    with pytest.raises(TypeError, match="TSNE has no transform for new observations: give its codes as an array"):
        as_subject(TSNE())


def test_an_estimator_classifies_by_its_decision_function_or_its_probabilities() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.random((60, 1, 2, 2)), np.arange(60) % 3
    x[np.arange(60), 0, y // 2, y % 2] += 1
    rows, images = x.reshape(60, 4), torch.from_numpy(x)
    for estimator in (
        make_pipeline(StandardScaler(), LogisticRegression()),
        SVC(decision_function_shape="ovr"),
        KNeighborsClassifier(),
    ):
        scores = as_subject(estimator.fit(rows, y)).scores(images)
        np.testing.assert_array_equal(scores.argmax(1).numpy(), estimator.predict(rows))
    two = LogisticRegression().fit(rows, y > 0)
    np.testing.assert_array_equal(as_subject(two).scores(images).argmax(1).numpy(), two.predict(rows))
    for refused in (SVC(decision_function_shape="ovo").fit(rows, y), LogisticRegression()):
        with pytest.raises(TypeError, match="has no score for each class: fit it first"):
            as_subject(refused)


def test_batch_normalisation_that_stays_in_training_mode_is_named() -> None:
    class Stays(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layers.train()(x)

    with pytest.raises(UserCodeError, match="batch normalisation is in training mode even after eval"):
        as_subject(Stays()).scores(torch.rand(1, 1, 2, 2))


def test_codes_in_place_of_a_model_are_looked_up_by_number(dots) -> None:
    codes = np.random.default_rng(0).normal(size=(len(dots), 5)).astype(np.float32)
    rep = represent(codes, dots, count=50, seed=3)
    np.testing.assert_array_equal(rep.mean, codes[rep.index])
    assert len(set(rep.index.tolist())) == 50
    rep = represent({"mean": torch.from_numpy(codes), "std": torch.full((len(dots), 5), 0.5)}, dots, count=50)
    np.testing.assert_allclose(rep.var, 0.25)
    rep = represent(as_subject((codes, codes**2), returns="mean,var"), dots, count=50)
    np.testing.assert_allclose(rep.var, codes[rep.index] ** 2, rtol=1e-6)
    same = compare(codes, codes * 2, dots, count=50)
    assert same.latent["mean"] == pytest.approx(1, abs=1e-6)
    with pytest.raises(ValueError, match=r"there are 255 codes for 256 examples: they need one row for each example"):
        examine(codes[1:], dots)
    with pytest.raises(ValueError, match="codes must be numbers"):
        examine(np.array(["a"] * len(dots)), dots)


def test_codes_from_the_command_line(dots, dots_file, tmp_path, capsys) -> None:
    codes = dots.factors_of(np.arange(len(dots))).astype(np.float32) @ np.array([[1, 0, 1], [0, 2, 1]], np.float32)
    np.save(tmp_path / "codes.npy", codes)
    np.savez_compressed(tmp_path / "codes.npz", mean=codes, logvar=np.full_like(codes, -3))
    for name in ("codes.npy", "codes.npz"):
        words = ["examine", str(tmp_path / name), "--data", str(dots_file), "--measures", "mig", "--json"]
        assert main([*words, "--out", str(tmp_path / "report.html")]) == 0
        document = json.loads(capsys.readouterr().out)
        factor = {v["number"]: v["factor"] for v in document["variables"]}
        assert (factor[0], factor[1]) == ("factor_0", "factor_1")
    np.save(tmp_path / "few.npy", codes[:9])
    (tmp_path / "broken.npy").write_bytes(b"\x93NUMPY\x01\x00nothing")
    for name, sentence in {"few.npy": "there are 9 codes for 256", "broken.npy": "broken.npy cannot be read"}.items():
        assert main(["examine", str(tmp_path / name), "--data", str(dots_file)]) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert sentence in line


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("AlwaysDropping", "random in evaluation mode"),
        ("AlwaysNormalising", "depends on the others in its batch"),
        ("Squeezing", "takes batches, but no single example"),
    ],
)
def test_a_broken_promise_is_a_note_and_a_failed_check(dots, name, sentence) -> None:
    notes = examine(foreign(name), dots, count=64, measured=[]).notes
    assert sum(sentence in note for note in notes) == 1, notes
    assert any(sentence in note for note in compare(foreign(name), foreign("Pair"), dots, count=64).notes)
    with pytest.raises(AssertionError, match=sentence):
        check_subject(foreign(name), dots)


@pytest.mark.parametrize("name", ["Plain", "Pair", "SampleFirst", "Half", "Brain", "Touchy", "Latent", "function"])
def test_a_kept_promise_is_not_spoken_of(dots, name) -> None:
    check_subject(foreign(name), dots)
    notes = represent(foreign(name), dots, count=64).notes
    assert not any("evaluation mode" in note or "batch" in note for note in notes), notes


def test_check_subject_looks_at_numbers_and_at_the_decoder(dots) -> None:
    class Infinite(foreign("Plain").__class__):
        def encode(self, x):
            return super().encode(x) / 0

    with pytest.raises(AssertionError, match="NaN or infinity"):
        check_subject(Infinite(), dots)
    with pytest.raises(AssertionError, match="the decoder is broken"):
        check_subject(foreign("BadDecoder"), dots)
