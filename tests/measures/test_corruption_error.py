"""Accuracies by hand, and the published corruption errors from the published accuracies."""

import numpy as np
import pytest
import torch

from polariscope.measures import Undefined
from polariscope.measures.corruption_error import (
    corruption_error,
    group_means,
    mean_corruption_error,
    mean_without,
    top_accuracy,
)
from polariscope.studies.published import published

NOISE = ("gaussian", "shot", "impulse")
BLUR = ("defocus", "glass", "motion", "zoom")
WEATHER = ("snow", "frost", "fog", "brightness")
DIGITAL = ("contrast", "elastic", "pixelate", "jpeg")
KINDS = NOISE + BLUR + WEATHER + DIGITAL
GROUPS = {
    kind: group
    for group, kinds in (("noise", NOISE), ("blur", BLUR), ("weather", WEATHER), ("digital", DIGITAL))
    for kind in kinds
}


def table(name: str) -> dict[str, dict[str, float]]:
    """A published table: rows of the fifteen corruptions."""
    rows = published(f"inductive_biases/{name}").rows
    return {model: {kind: row[kind].mean for kind in KINDS} for model, row in rows.items()}


def alexnet() -> np.ndarray:
    return np.array([*table("alexnet-errors")["AlexNet"].values()])


def errors(row: dict[str, float]) -> np.ndarray:
    return 100 - np.array([row[kind] for kind in KINDS])


HAND = np.array(
    [
        [0.9, 0.0, 0.5, 0.4, 0.3, 0.2],  # label 0: first
        [0.1, 0.9, 0.8, 0.7, 0.6, 0.5],  # label 5: fifth
        [0.0, 0.9, 0.8, 0.7, 0.6, 0.5],  # label 0: last
        [0.3, 0.3, 0.3, 0.0, 0.0, 0.0],  # label 1: level with two, and second of them
    ]
)
LABELS = np.array([0, 5, 0, 1])


@pytest.mark.spec("001b/A-25")
@pytest.mark.parametrize(("k", "expected"), [(1, 0.25), (2, 0.5), (4, 0.5), (5, 0.75), (6, 1.0)])
def test_a_batch_by_hand(k: int, expected: float) -> None:
    assert top_accuracy(HAND, LABELS, k) == expected
    assert top_accuracy(torch.tensor(HAND), torch.tensor(LABELS), k) == expected


@pytest.mark.spec("001b/A-25")
def test_more_guesses_never_hit_less_and_one_guess_is_argmax() -> None:
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 4, (500, 8)).astype(float)  # many are equal
    labels = rng.integers(0, 8, 500)
    hits = [top_accuracy(scores, labels, k) for k in range(1, 9)]
    assert hits == sorted(hits)
    assert hits[0] == (scores.argmax(1) == labels).mean()
    assert hits[-1] == 1.0


@pytest.mark.parametrize(
    ("scores", "labels", "k", "words"),
    [
        (HAND, LABELS, 7, "from 1 to the number of classes, 6"),
        (HAND, LABELS, 0, "from 1 to"),
        (HAND, LABELS + 1, 1, "labels go from 1 to 6"),
        (HAND * np.nan, LABELS, 1, "diverged"),
        (HAND, LABELS[:2], 1, r"scores of shape \(4, 6\) and labels"),
        (HAND, LABELS * 0.5, 1, "a whole number for each sample"),
        (HAND[:0], LABELS[:0], 1, "accuracy needs scores"),
    ],
)
def test_what_has_no_accuracy_is_refused(scores, labels, k, words) -> None:
    with pytest.raises(ValueError, match=words):
        top_accuracy(scores, labels, k)


@pytest.mark.spec("001b/A-24")
def test_every_published_corruption_error_follows_from_the_accuracy() -> None:
    ours, theirs = table("corruptions-imagenet-kinds"), table("corruptions-imagenet-errors")
    assert set(ours) == set(theirs)
    for model, row in theirs.items():
        result = corruption_error(errors(ours[model]), alexnet())
        np.testing.assert_allclose(result, [row[kind] for kind in KINDS], atol=1.4)
    means = {
        model: row["mCE"].mean for model, row in published("inductive_biases/corruptions-imagenet-errors").rows.items()
    }
    assert {model: mean_corruption_error(errors(row), alexnet()) for model, row in ours.items()} == pytest.approx(
        means, abs=0.7
    )


@pytest.mark.spec("001b/A-24")
def test_resnet_has_an_error_of_76_7_and_alexnet_of_100() -> None:
    rows = table("corruptions-adversarial-kinds")
    result = corruption_error(errors(rows["Vanilla RN50"]), alexnet())
    expected = [79.8, 81.6, 82.6, 74.8, 88.6, 78.0, 79.9, 77.9, 74.9, 66.2, 56.7, 71.4, 84.8, 76.9, 76.8]
    np.testing.assert_allclose(result, expected, atol=0.051)
    assert mean_corruption_error(errors(rows["Vanilla RN50"]), alexnet()) == pytest.approx(76.7, abs=0.05)
    np.testing.assert_allclose(errors(rows["Vanilla AlexNet"]), alexnet(), atol=0.07)
    np.testing.assert_array_equal(corruption_error(alexnet(), alexnet()), 100)
    assert mean_corruption_error(alexnet(), alexnet()) == 100


@pytest.mark.spec("001b/A-24")
def test_severities_are_added_before_they_are_divided() -> None:
    own, other = [[0.1, 0.6], [0.2, 0.2]], [[0.4, 0.6], [0.1, 0.3]]
    np.testing.assert_allclose(corruption_error(own, other), [70, 100])  # means of ratios would be 62.5 and 133.3
    assert mean_corruption_error(own, other) == pytest.approx(85)


@pytest.mark.spec("001b/A-23")
def test_means_without_noise_are_the_published_ones() -> None:
    rows = table("corruptions-adversarial-kinds").values()
    result = [mean_without(row, GROUPS) for row in rows]
    np.testing.assert_allclose(result, [42.28, 31.98, 47.88, 35.93, 23.91, 23.13], atol=0.005)
    printed = published("inductive_biases/corruptions-adversarial").rows.values()
    np.testing.assert_allclose(result, [row["without noise"].mean for row in printed], atol=0.051)


@pytest.mark.spec("001b/A-23")
def test_group_means_add_up_to_the_whole() -> None:
    row = table("corruptions-adversarial-kinds")["Vanilla RN50"]
    result = group_means(row, GROUPS)
    assert list(result) == ["noise", "blur", "weather", "digital"]
    assert result["noise"] == pytest.approx((29.3 + 27.0 + 23.8) / 3)
    assert result["blur"] == pytest.approx((38.7 + 26.8 + 38.7 + 36.2) / 4)
    whole = 3 * result["noise"] + 4 * (result["blur"] + result["weather"] + result["digital"])
    assert whole / 15 == pytest.approx(39.2, abs=0.05)


def test_what_is_not_defined_says_so() -> None:
    with pytest.raises(Undefined, match=r"no error under corruptions \[1\]"):
        corruption_error([[0.1], [0.1]], [[0.2], [0.0]])
    with pytest.raises(Undefined, match="nothing is left"):
        mean_without({"shot": 0.5}, GROUPS)
    with pytest.raises(ValueError, match="same corruptions and severities"):
        corruption_error([[0.1], [0.1]], [[0.2]])
    for wrong in ([[-0.1]], [[np.nan]], [], [[[0.1]]]):
        with pytest.raises(ValueError, match="finite and not negative"):
            corruption_error(wrong, [[0.2]])
    for mean in (group_means, mean_without):
        with pytest.raises(ValueError, match="did you mean 'shot'"):
            mean({"shott": 0.5}, GROUPS)
