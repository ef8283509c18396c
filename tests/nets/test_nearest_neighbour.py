"""The nearest neighbour as a network, against the one of scikit-learn, and as something that is trained."""

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier
from torch.nn import functional

from polariscope.nets.nearest_neighbour import NearestNeighbour
from polariscope.objectives.memorise import Memorise
from polariscope.objectives.objective import Batch
from polariscope.training import RunConfig, TrainingConfig
from polariscope.training.run import train_in_memory
from polariscope.worlds.targets import Examples


def filled(count: int = 40, capacity: int = 50) -> tuple[NearestNeighbour, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(count, 1, 4, 4, generator=generator), torch.arange(count) % 3
    model = NearestNeighbour((1, 4, 4), 3, capacity)
    model.remember(x, functional.one_hot(y, 3), 0)
    return model, x, y


@pytest.mark.spec("001b/B-10")
def test_scores_are_distances_and_decisions_those_of_scikit_learn() -> None:
    model, x, y = filled()
    other = torch.rand(30, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    scores = model(other)
    distances = torch.cdist(other.flatten(1), x.flatten(1))
    expected = torch.stack([-distances[:, y == c].amin(1) for c in range(3)], 1)
    torch.testing.assert_close(scores, expected, atol=1e-5, rtol=1e-5)
    reference = KNeighborsClassifier(1).fit(x.flatten(1).numpy(), y.numpy())
    np.testing.assert_array_equal(scores.argmax(1).numpy(), reference.predict(other.flatten(1).numpy()))


def test_gradients_point_away_from_the_nearest_example() -> None:
    model, x, y = filled()
    image = torch.rand(1, 1, 4, 4, requires_grad=True)
    model(image)[0, 1].backward()
    nearest = x[y == 1][(x[y == 1] - image.detach()).flatten(1).norm(dim=1).argmin()]
    gap = nearest - image.detach()[0]
    torch.testing.assert_close(image.grad[0], gap / gap.norm(), atol=1e-5, rtol=1e-5)
    exact = x[:1].clone().requires_grad_()
    model(exact)[0, 0].backward()
    assert exact.grad.isfinite().all(), "an example itself has no direction, and no NaN either"


def test_a_class_without_examples_is_furthest_and_an_empty_memory_answers() -> None:
    model = NearestNeighbour((1, 4, 4), 3, 10)
    x = torch.rand(5, 1, 4, 4)
    assert model(x).isfinite().all()
    model.remember(x[:2], functional.one_hot(torch.tensor([0, 1]), 3), 0)
    assert (model(x).argmin(1) == 2).all()
    assert model(x[:2]).argmax(1).tolist() == [0, 1]


def test_places_go_round_and_one_place_may_be_left_out() -> None:
    model, x, _ = filled(count=4, capacity=4)
    assert model.remember(x[:3], functional.one_hot(torch.zeros(3, dtype=torch.int64), 3), 7).tolist() == [3, 0, 1]
    rows, classes = model.examples()
    assert len(rows) == 4
    assert classes.sum() == 4
    own = model(x[:3], torch.tensor([3, 0, 1]))
    assert (own[:, 0] < 0).all(), "an example is not its own neighbour in training"
    assert model(x[:3])[:, 0].abs().max() < 1e-3
    with pytest.raises(ValueError, match="enlarge capacity"):
        model.remember(torch.rand(9, 1, 4, 4), torch.ones(9, 3), 0)


def test_one_pass_keeps_every_training_example_and_fits_a_scale() -> None:
    """Two clusters: each example is classified by the others, and a larger scale makes the loss smaller."""
    rng = np.random.default_rng(0)
    labels = np.arange(120) % 2
    points = (labels[:, None] + rng.normal(0, 0.1, (120, 5))).astype(np.float32)
    world = Examples(points, labels[:, None], (2,))
    objective = Memorise()
    config = RunConfig(world, objective, None, TrainingConfig(12, 9, learning_rate=0.1, evaluate_every=0))
    model = train_in_memory(config)
    rows, classes = model.examples()
    assert len(rows) == 108, "a tenth is held out"
    assert {tuple(row) for row in rows.tolist()} <= {tuple(row) for row in points.tolist()}
    assert len({tuple(row) for row in rows.tolist()}) == 108
    assert classes.sum(1).tolist() == [1] * 108
    assert model.log_scale > 0.3
    assert (model(torch.from_numpy(points)).argmax(1).numpy() == labels).all()


def test_a_step_that_is_repeated_changes_nothing_and_numbers_are_refused() -> None:
    model = NearestNeighbour((3,), 2, 8)
    batch = Batch(torch.rand(4, 3), 4, target=torch.tensor([[0], [1], [0], [1]]), classes=(2,))
    first = Memorise()(model, batch, 3)
    memory = model.memory.clone()
    again = Memorise()(model, batch, 3)
    assert torch.equal(memory, model.memory)
    assert first.loss == again.loss
    with pytest.raises(ValueError, match="is a number"):
        Memorise()(model, Batch(torch.rand(4, 3), 4, target=torch.rand(4, 1), classes=(0,)), 0)
