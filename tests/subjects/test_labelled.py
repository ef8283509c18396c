"""Images with classes: what is taken, and what is refused in a sentence."""

import numpy as np
import pytest
import torch
from torch import nn

from polariscope.subjects import as_subject
from polariscope.subjects.labelled import labelled_examples

THREE = as_subject(nn.Sequential(nn.Flatten(), nn.Linear(4, 3)), name="three")
GREY = torch.full((2, 1, 2, 2), 0.5)


def test_examples_come_as_floats_with_whole_numbers() -> None:
    for labels in ([0, 2], np.array([[0], [2]], np.uint8), torch.tensor([0, 2], dtype=torch.int32)):
        x, y = labelled_examples(THREE, GREY.numpy(), labels)
        assert torch.equal(x, GREY)
        assert (y.dtype, y.tolist()) == (torch.int64, [0, 2])


def test_images_keep_precision_and_layout() -> None:
    """Noise is drawn in the order of the memory: another layout would be other noise."""
    images = torch.rand(2, 3, 4, 4, dtype=torch.float64).to(memory_format=torch.channels_last)
    x, _ = labelled_examples(as_subject(lambda at: at.mean((2, 3))), images, [0, 1])
    assert x.dtype == torch.float64
    assert x.is_contiguous(memory_format=torch.channels_last)


def test_another_box_may_be_given() -> None:
    x, _ = labelled_examples(THREE, 2 * GREY - 2, [0, 1], box=(-1, 1))
    assert float(x.min()) == -1
    with pytest.raises(ValueError, match=r"from -1 to 1, and these go from 1.5 to 1.5"):
        labelled_examples(THREE, 3 * GREY, [0, 1], box=(-1, 1))


@pytest.mark.parametrize(
    ("x", "y", "error", "sentence"),
    [
        (GREY, [0, 3], ValueError, "three scores 3 classes, 0 to 2, and the labels go from 0 to 3"),
        (GREY, [-1, 0], ValueError, "the labels go from -1 to 0"),
        (GREY, [0.0, 1.0], TypeError, "labels are whole numbers, one class each, and these are float64"),
        (GREY, [0], ValueError, "a class each"),
        (GREY[:0], np.zeros(0, int), ValueError, "at least one of them"),
        (torch.tensor(0.5), [0], ValueError, "expected images"),
        ((255 * GREY).byte(), [0, 1], TypeError, "these are uint8: bytes are brought there by images / 255"),
        ((255 * GREY).byte().numpy(), [0, 1], TypeError, "these are uint8"),
        (GREY * torch.tensor([1.0, np.nan])[:, None, None, None], [0, 1], ValueError, "1 of 2 images hold NaN"),
        (GREY + np.inf, [0, 1], ValueError, "2 of 2 images hold NaN or infinity"),
        (GREY - 1, [0, 1], ValueError, "pixels from 0 to 1, and these go from -0.5 to -0.5"),
        (3 * GREY, [0, 1], ValueError, "pixels from 0 to 1, and these go from 1.5 to 1.5"),
    ],
)  # fmt: skip
def test_bad_examples_are_refused(x: object, y: object, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        labelled_examples(THREE, x, y)


def test_a_classifier_that_gives_nan_is_refused() -> None:
    broken = as_subject(lambda x: x.flatten(1)[:, :3] / 0 * 0, name="broken")
    with pytest.raises(ValueError, match="broken returns NaN instead of a score for 2 of 2 observations"):
        broken.scores(GREY)
    with pytest.raises(ValueError, match="NaN"):
        labelled_examples(broken, GREY, [0, 1])


def test_one_observation_is_one() -> None:
    with pytest.raises(ValueError, match="no entry called logits for 1 observation: it needs"):
        as_subject(lambda x: {"out": x}, name="named").scores(GREY[:1])
    with pytest.raises(ValueError, match="for 1 of 1 observation: has"):
        as_subject(lambda x: x.flatten(1) * np.nan, name="broken").scores(GREY[:1])


def test_scores_that_are_whole_numbers_become_floats() -> None:
    """Votes: a classifier without gradient, which probes and attacks compare with infinity."""
    votes = as_subject(lambda x: (x.flatten(1)[:, :3] > 0.2).long(), name="votes")
    scores = votes.scores(torch.tensor([[0.1, 0.5, 0.1, 0.0]]).reshape(1, 1, 2, 2))
    assert scores.is_floating_point()
    assert scores.tolist() == [[0, 1, 0]]
