"""Labels of biases and of their combinations, and the matrix they are read off."""

import numpy as np
import pytest
import torch

from polariscope.examination.generalise import generalise
from polariscope.examination.transfer import (
    TransferMatrix,
    classify_combination,
    classify_transfer,
    on_part,
    transfer_matrix,
)
from polariscope.worlds.renderers.mini_sprites import MiniSprites
from polariscope.worlds.splits import Composition, Extrapolation


@pytest.mark.spec("001a/TX-01", "001b/C-01", "001b/C-02")
@pytest.mark.parametrize(
    ("gains", "label"),
    [
        ((0.30, 0.10, 0.20), "transferable"),
        ((0.30, 0.02, -0.04), "specific"),
        ((0.30, 0.20, -0.10), "overfitting"),
        ((0.30, -0.10, 0.00), "overfitting"),
        ((0.30, 0.20, 0.00), "partially transferable"),
        ((0.05, 0.20, 0.20), "no gain"),
        ((0.30, 0.05, -0.05), "specific"),  # at the tolerance is within it
    ],
)
def test_three_matrices_have_three_labels(gains, label) -> None:
    assert classify_transfer(dict(zip("xyz", gains, strict=True)), "x", tolerance=0.05) == label


@pytest.mark.spec("001a/TX-01")
def test_the_own_scenario_is_what_decides() -> None:
    gains = {"adversarial": 0.3, "corruptions": 0.0}
    assert classify_transfer(gains, "adversarial", 0.05) == "specific"
    assert classify_transfer(gains, "corruptions", 0.05) == "no gain"


@pytest.mark.spec("001a/TX-02", "001b/C-02")
@pytest.mark.parametrize(
    ("combined", "label"),
    [
        ((0.30, 0.20), "orthogonal"),
        ((0.33, 0.17), "orthogonal"),
        ((0.50, 0.20), "symbiotic"),
        ((0.50, 0.10), "partially exclusive"),
        ((0.20, 0.10), "exclusive"),
        ((-0.20, -0.10), "exclusive"),
    ],
)
def test_combinations_keep_add_or_lose_their_parts_gains(combined, label) -> None:
    parts = {"a": {"x": 0.30, "y": 0.0}, "b": {"x": 0.0, "y": 0.20}}
    together = dict(zip("xy", combined, strict=True))
    assert classify_combination(parts, together, {"a": "x", "b": "y"}, tolerance=0.05) == label


SCORES = np.array([[0.5, 0.5, 0.5], [0.9, 0.5, 0.5], [0.5, 0.8, 0.1], [0.9, 0.8, 0.5]])


def matrix() -> TransferMatrix:
    own, made_of = {"abs": "adversarial", "ant": "corruptions"}, {"both": ("abs", "ant")}
    scenarios = ("adversarial", "corruptions", "iid")
    return TransferMatrix(("plain", "abs", "ant", "both"), scenarios, SCORES, "plain", own, 0.05, made_of)


@pytest.mark.spec("001a/TX-03", "001b/C-01")
def test_every_model_is_scored_in_every_scenario() -> None:
    asked = []

    def scenario(column):
        def score(model):
            asked.append((model, column))
            return SCORES[model, column]

        return score

    names = matrix()
    result = transfer_matrix(
        {name: row for row, name in enumerate(names.models)},
        {name: scenario(column) for column, name in enumerate(names.scenarios)},
        "plain",
        names.own,
        tolerance=0.05,
        made_of=names.made_of,
    )
    assert sorted(asked) == [(row, column) for row in range(4) for column in range(3)]
    np.testing.assert_array_equal(result.scores, SCORES)
    assert result.transfer == {"abs": "specific", "ant": "overfitting"}
    assert result.combinations == {"both": "orthogonal"}
    assert result.gains["ant"] == pytest.approx({"adversarial": 0, "corruptions": 0.3, "iid": -0.4})


@pytest.mark.spec("001a/TX-03")
def test_the_matrix_is_a_table_with_its_labels() -> None:
    document = matrix().findings()
    answer = document.json()
    assert answer["matrix"][2] == {
        "model": "ant",
        "own": "corruptions",
        "label": "overfitting",
        "adversarial": 0.5,
        "corruptions": 0.8,
        "iid": 0.1,
    }
    assert [row["label"] for row in answer["matrix"]] == ["plain", "specific", "overfitting", "orthogonal"]
    assert document.headline == ("4 models in 3 scenarios: abs is specific, ant is overfitting, both is orthogonal.")
    figure = document.parts[1].draw()
    shown = {text.get_text() for text in figure.axes[0].texts}
    assert "-0.40" in shown


@pytest.mark.spec("001a/TX-03")
def test_parts_of_a_world_are_scenarios() -> None:
    world = MiniSprites()
    splits = {"composition": Composition(), "extrapolation": Extrapolation({"x": (5,)})}

    def half(x: torch.Tensor) -> torch.Tensor:
        return torch.full((len(x), 5), 0.5)

    def zero(x: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(x), 5)

    scenarios = {name: on_part(world, split, count=300) for name, split in splits.items()}
    result = transfer_matrix({"zero": zero, "half": half}, scenarios, "zero", {"half": "composition"})
    for row, model in enumerate((zero, half)):
        for column, split in enumerate(splits.values()):
            assert result.scores[row, column] == generalise(model, world, split, count=300).score


def test_what_does_not_fit_is_refused_in_a_sentence() -> None:
    with pytest.raises(ValueError, match="no gain is given for 'z'"):
        classify_transfer({"x": 1.0, "y": 1.0}, "z")
    with pytest.raises(ValueError, match="other than its own, 'x'"):
        classify_transfer({"x": 1.0}, "x")
    with pytest.raises(ValueError, match="the gain in 'y' is nan"):
        classify_transfer({"x": 1.0, "y": float("nan")}, "x")
    with pytest.raises(ValueError, match="at least 2 biases"):
        classify_combination({"a": {"x": 1.0}}, {"x": 1.0}, {"a": "x"})
    with pytest.raises(ValueError, match="which is not a scenario"):
        transfer_matrix({"a": 0}, {"iid": float}, "a", {"a": "idd"})
    with pytest.raises(ValueError, match="no model 'plane' in this matrix"):
        TransferMatrix(("plain",), ("x",), np.zeros((1, 1)), "plane", {})
    with pytest.raises(ValueError, match="has no scenario of its own"):
        TransferMatrix(("p", "a", "b"), ("x",), np.zeros((3, 1)), "p", {"a": "x"}, made_of={"b": ("a", "p")})
