"""What columns of labels mean: one rule for arrays and files, and kinds that can be declared."""

import numpy as np
import pytest

from polariscope.measures.mcc import MCC
from polariscope.representation import Representation
from polariscope.worlds import ArrayWorld, Factor
from polariscope.worlds.labels import as_factors
from polariscope.worlds.readers.files import File, read

X = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
DIGITS = np.random.default_rng(1).integers(0, 4, 60)
PAIR = np.stack([DIGITS, np.arange(60) % 5], axis=1)


def facts(world) -> list[tuple]:
    return [(f.name, f.size, f.kind, f.values) for f in world.factors]


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (DIGITS, [("label", 4, "categorical", ())]),
        (DIGITS.astype(np.uint8), [("label", 4, "categorical", ())]),
        (DIGITS > 1, [("label", 2, "categorical", ())]),
        (DIGITS - 2, [("label", 4, "categorical", (-2, -1, 0, 1))]),
        (2 * (DIGITS % 2) - 1, [("label", 2, "categorical", (-1, 1))]),
        (np.array(["cat", "dog", "eel", "fox"])[DIGITS], [("label", 4, "categorical", ())]),
        (np.array([b"cat", b"dog", b"eel", b"fox"])[DIGITS], [("label", 4, "categorical", ())]),
        (np.arange(60) * 3, [("label", 60, "ordinal", tuple(range(0, 180, 3)))]),
        (DIGITS / 3, [("label", 0, "ordinal", ())]),
        (PAIR, [("factor_0", 4, "ordinal", ()), ("factor_1", 5, "ordinal", ())]),
        (PAIR * 0.5, [("factor_0", 0, "ordinal", ()), ("factor_1", 0, "ordinal", ())]),
    ],
)
def test_labels_mean_the_same_from_memory_and_from_a_file(table, expected, tmp_path) -> None:
    np.savez(tmp_path / "a.npz", x=X, labels=table)
    world, file = ArrayWorld(X, table), read(tmp_path / "a.npz")
    assert facts(world) == facts(file) == expected
    everything = np.arange(60)
    np.testing.assert_array_equal(world.factors_of(everything), file.factors_of(everything))
    if table.dtype.kind != "f":  # positions are in the order of the values
        column = table if table.ndim == 1 else table[:, 0]
        np.testing.assert_array_equal(world.positions[:, 0], np.unique(column, return_inverse=True)[1])
    assert "kinds of factors are inferred from their values" in " ".join(world.assumed)


def test_the_numbers_of_words_are_named() -> None:
    words = np.array(["dog", "cat", "owl"])[np.arange(60) % 3]
    world = ArrayWorld(X, words)
    assert world.factors_of([0, 1, 2])[:, 0].tolist() == [1, 0, 2]
    assert world.assumed[-1] == "Words are numbered in alphabetical order: label (cat 0, dog 1, owl 2)."
    many = ArrayWorld(X, np.array([f"class {number:02d}" for number in range(60)]))
    assert "class 04 4, ..., class 55 55" in many.assumed[-1]
    assert not any("alphabetical" in sentence for sentence in ArrayWorld(X, np.arange(60) % 3).assumed)


def test_one_mcc_for_an_array_and_its_file(tmp_path) -> None:
    # Categories whose numbers say nothing about the order in which the code has them.
    labels = np.array([2, 0, 1])[np.argsort(np.argsort(X[:, 0])) // 20]
    np.savez(tmp_path / "a.npz", x=X, labels=labels)

    def value(world) -> float:
        factors = world.factors_of(np.arange(60))
        return MCC().value(Representation(mean=X[:, :1], factors=factors, factor_info=world.factors))

    assert value(ArrayWorld(X, labels)) == value(read(tmp_path / "a.npz"))
    assert value(ArrayWorld(X, labels)) > 0.9
    assert value(ArrayWorld(X, labels, kinds={"label": "ordinal"})) < 0.6


def test_kinds_are_declared(tmp_path) -> None:
    np.savez(tmp_path / "a.npz", x=X, factors=PAIR, factor_names=np.array(["hue", "age"]))
    kinds = {"hue": "periodic", "age": "continuous"}
    for world in (ArrayWorld(X, PAIR, ("hue", "age"), kinds=kinds), File(str(tmp_path / "a.npz"), kinds=kinds)):
        assert facts(world) == [("hue", 4, "periodic", ()), ("age", 0, "ordinal", ())]
        np.testing.assert_array_equal(world.factors_of([7, 8]), PAIR[[7, 8]])
        assert not any("are inferred from their values" in sentence for sentence in world.assumed)
    # Floats that are grades, and a class among quantities.
    graded = ArrayWorld(X, PAIR / 2, kinds={"factor_0": "categorical"})
    assert facts(graded) == [("factor_0", 4, "categorical", (0, 0.5, 1, 1.5)), ("factor_1", 0, "ordinal", ())]
    assert "factor_1 as continuous" in graded.assumed[0]
    assert "factor_0" not in graded.assumed[0]


def test_names_may_be_plain_words() -> None:
    assert facts(ArrayWorld(X, PAIR, ("hue", "size")))[1] == ("size", 5, "ordinal", ())
    assert facts(ArrayWorld(X, DIGITS, "digit")) == [("digit", 4, "categorical", ())]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: ArrayWorld(X, PAIR, ("hue",)), "expected 2 different factor_names"),
        (lambda: ArrayWorld(X, PAIR, ("hue", "hue")), "expected 2 different factor_names"),
        (lambda: ArrayWorld(X, PAIR, (Factor("hue", 4), "size")), "all as names or all as Factors; got 'size'"),
        (lambda: ArrayWorld(X, PAIR, (Factor("hue", 4),)), "1 factor names for 2 columns"),
        (lambda: ArrayWorld(X, DIGITS - 1, (Factor("d", 4),)), "'d' has positions 0 to 3, but the column goes from -1"),
        (lambda: ArrayWorld(X, DIGITS, (Factor("d", 3),)), "'d' has positions 0 to 2, but the column goes from 0 to 3"),
        (lambda: ArrayWorld(X, DIGITS, (Factor("d", 4),), kinds={"d": "ordinal"}), "the factors already have kinds"),
        (lambda: ArrayWorld(X, None, ("hue",)), "their values are missing"),
        (lambda: ArrayWorld(X, PAIR, kinds={"factor_2": "ordinal"}), "there is no factor 'factor_2'"),
        (lambda: ArrayWorld(X, DIGITS, kinds={"label": "class"}), "the kind of label is 'class': .*categorical"),
        (lambda: ArrayWorld(X, ["a", "b"] * 30, kinds={"label": "continuous"}), "label, but they are words"),
        (lambda: ArrayWorld(X, [{}] * 60), "numbers or words, but they are object"),
        (lambda: ArrayWorld(X, np.array(["a", 1] * 30, object)), "numbers or words, but they are object"),
        (lambda: ArrayWorld(X, DIGITS[:5]), r"one row per observation \(60\); got \(5, 1\)"),
        (lambda: ArrayWorld(X, np.full(60, np.nan)), "the factors contain NaN"),
    ],
)  # fmt: skip
def test_labels_that_cannot_be_are_refused_in_a_sentence(make, sentence) -> None:
    with pytest.raises((ValueError, TypeError), match=sentence) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_words_in_objects_and_lists() -> None:
    words = np.array(["b", "a", "b"], dtype=object)
    for table in (words, list(words), [b"b", b"a", b"b"]):
        positions, factors, _ = as_factors(table)
        assert positions[:, 0].tolist() == [1, 0, 1]
        assert factors[0].kind == "categorical"


def test_no_world_has_an_observation_before_the_first(tmp_path) -> None:
    np.savez(tmp_path / "a.npz", x=X, labels=DIGITS)
    for world in (ArrayWorld(X, DIGITS), File(str(tmp_path / "a.npz"))):
        for call in (world.observe, world.factors_of):
            for number in (-1, 60):
                with pytest.raises(ValueError, match=f"there are 60 observations, 0 to 59; got {number}"):
                    call([0, number])
            with pytest.raises(TypeError, match="whole numbers from 0; got bool"):
                call(DIGITS > 1)
            with pytest.raises(TypeError, match="got float64"):
                call([0.5])
            assert len(call([])) == 0
