"""The diagnosis: lazy and feature training must come out as what they are, for any network that classifies."""

import copy
import json

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from polariscope.examination.classifier_training import train_classifier
from polariscope.examination.diagnose import diagnose
from polariscope.examination.diagnosis import Diagnosis
from polariscope.kernels.machine import RIDGES, leave_one_out_ridge, rbf, solve
from polariscope.kernels.principal import targets
from polariscope.nets.classifiers import Weights, lenet, mlp
from polariscope.nets.scaled import Scaled
from polariscope.worlds.renderers.digits import Digits
from polariscope.worlds.targets import Examples
from polariscope.worlds.world import to_tensor


def stripe(count: int, seed: int, dimension: int = 5) -> Examples:
    x = torch.from_numpy(np.random.default_rng(seed).standard_normal((count, dimension))).float()
    return Examples(x, 1 - ((x[:, 0] > -0.3) & (x[:, 0] < 1.18549)).long())


def trained(alpha: float) -> Diagnosis:
    net = mlp(5, (50,), 1, Weights("ntk", 2.0, 1.0))
    initial = copy.deepcopy(net)
    network = train_classifier(net, stripe(200, 0), 300, alpha=alpha, learning_rate=0.5, batch_size=200)
    return diagnose(initial, net, stripe(200, 1), stripe(500, 2), network=network)


@pytest.fixture(scope="module")
def feature() -> Diagnosis:
    return trained(alpha=0.01)


@pytest.fixture(scope="module")
def lazy() -> Diagnosis:
    return trained(alpha=1000.0)


@pytest.mark.spec("004/F63", "004/F34")
def test_the_output_scale_decides_the_verdict(feature: Diagnosis, lazy: Diagnosis) -> None:
    assert lazy.verdict == "lazy"
    assert lazy.change.distance < 0.05
    assert 1 - lazy.change.alignment < 1e-3
    assert feature.verdict == "learns features"
    assert 1 - feature.change.cka > 0.1
    before, after = feature.view("initial"), feature.view("final")
    assert after.alignment > 2 * before.alignment
    assert after.captured > before.captured
    assert after.projections[0] > 0.15 > before.projections[0]
    assert after.information[0] > before.information[0] + 0.2
    assert after.separability > before.separability + 0.1
    assert after.rkhs_norm < before.rkhs_norm
    assert "turned far" in feature.reasons[0]
    assert "hardly turned" in lazy.reasons[0]


@pytest.mark.spec("004/F63", "004/F39", "004/F40")
def test_the_kernel_of_the_end_learns_better_from_fresh_examples(feature: Diagnosis, lazy: Diagnosis) -> None:
    assert feature.view("final").error <= 0.5 * feature.view("initial").error
    assert feature.view("last layer, final").error <= 0.5 * feature.view("last layer, initial").error
    # A lazy network is the kernel machine of its initial kernel, which hardly changes.
    assert lazy.view("final").error == pytest.approx(lazy.view("initial").error, abs=0.01)
    assert feature.network_error < lazy.view("initial").error


@pytest.mark.spec("004/F63")
def test_a_convolutional_network_with_several_outputs() -> None:
    world = Digits(count=600, size=14)
    x = to_tensor(world.observe(range(600))).contiguous()
    y = torch.from_numpy(world.factors_of(range(600))[:, 0]).long()
    parts = [Examples(x[i : i + 200], y[i : i + 200]) for i in (0, 200, 400)]
    net = lenet(shape=(1, 14, 14))
    initial = copy.deepcopy(net)
    train_classifier(net, parts[0], 120)
    for form in ("trace", "pseudo"):
        result = diagnose(initial, net, parts[1], parts[2], form=form)
        assert result.verdict == "learns features"
        assert [view.name for view in result.views] == [
            "initial", "final", "last layer, initial", "last layer, final",
        ]  # fmt: skip
        assert result.network_error < 0.4 < result.chance
        assert result.view("last layer, final").error < result.view("last layer, initial").error
    answer = json.loads(json.dumps(result.findings().json()))
    assert answer["kernel_form"] == "pseudo"
    assert [row["name"] for row in answer["kernels"]] == [view.name for view in result.views]
    assert len(answer["kernels"][1]["projections"]) == 10
    assert answer["examples"] == {"kernel": 200, "held_out": 200}


class Squeezed(nn.Module):
    """One output an input without a second axis, dropout on the way, and no dense layer at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.dropout = nn.Linear(5, 20), nn.Dropout(0.5)
        self.readout = nn.Parameter(torch.linspace(-1, 1, 20))

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.hidden(x).relu()) @ self.readout


def test_outputs_without_an_axis_and_models_left_as_they_were() -> None:
    torch.manual_seed(0)
    initial = Squeezed().train()
    final = copy.deepcopy(initial)
    network = train_classifier(final, stripe(300, 0), 30, learning_rate=0.01)
    assert network is final
    initial.train()
    result = diagnose(initial, final, stripe(150, 1), stripe(150, 2))
    assert initial.training, "the caller's network keeps its mode"
    assert [view.name for view in result.views] == ["initial", "final"]
    assert any("No last-layer kernel" in note for note in result.notes)
    assert any("Only 150 examples" in note for note in result.notes)
    with torch.no_grad():
        wrong = (final(stripe(150, 2).x) > 0).long() != stripe(150, 2).y
    assert result.network_error == pytest.approx(wrong.double().mean().item())


def test_training_is_the_same_for_the_same_seed_and_leaves_the_random_state_alone() -> None:
    state = torch.random.get_rng_state()
    nets = [mlp(5, (8,), 2) for _ in range(2)]
    losses: list[tuple[int, float]] = []
    for net in nets:
        train_classifier(net, stripe(100, 0), 5, seed=3, tell=lambda at: losses.append((at.step, at.loss)))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert losses[:5] == losses[5:]
    assert [step for step, _ in losses[:5]] == [1, 2, 3, 4, 5]
    for a, b in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.spec("004/F08")
def test_a_scaled_network_starts_at_zero_and_grows_with_its_scale() -> None:
    net = mlp(5, (8,), 2)
    data = stripe(20, 0)
    scaled = Scaled(net, 30.0)
    assert not scaled(data.x).any()
    with torch.no_grad():
        net.output.bias += 1.0
    torch.testing.assert_close(scaled(data.x), torch.full((20, 2), 30.0))


def test_the_ridge_is_the_one_that_leaving_one_out_finds() -> None:
    data = stripe(40, 0)
    gram, y = rbf(1.0)(data.x, None), targets(data.y)
    others = torch.arange(40)

    def squares(ridge: float) -> float:
        total = 0.0
        for i in range(40):
            rest = others != i
            added = ridge * gram.diagonal().mean().item()
            dual = solve(gram[rest][:, rest], y[rest], added).dual
            total += (gram[i, rest] @ dual - y[i]).square().sum().item()
        return total

    assert leave_one_out_ridge(gram, y) == min(RIDGES, key=squares)


def test_a_kernel_that_turns_away_from_the_labels_is_no_feature_learning() -> None:
    net, other = mlp(5, (30,), 2, seed=0), mlp(5, (30,), 2, seed=0)
    with torch.no_grad():
        other.dense1.weight[:, 0] = 0  # blind to what the label depends on
        other.dense1.weight[:, 1] *= 10
    result = diagnose(net, other, stripe(300, 1), stripe(300, 2))
    assert 1 - result.change.cka > 0.1
    assert result.verdict == "in between"
    assert "not towards the labels" in result.reasons[0]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"final": mlp(5, (9,), 2)}, "the same architecture"),
        ({"fit": Examples(torch.zeros(12, 5), torch.zeros(12, dtype=torch.long))}, "at least 2 classes"),
        ({"fit": Examples(torch.zeros(60, 5), torch.arange(60) % 3)}, "2 outputs for 3 classes"),
        ({"fit": Examples(torch.zeros(60, 4), torch.arange(60) % 2)}, "the observations have shape"),
        ({"test": Examples(torch.zeros(3, 5), torch.tensor([0, 1, 2]))}, "class 2 is among the held-out"),
        ({"test": Examples(torch.zeros(0, 5), torch.zeros(0, dtype=torch.long))}, "no held-out examples"),
        ({"form": "full"}, "'trace' or 'pseudo'"),
        ({"modes": 1}, "at least 2 components"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(change: dict, sentence: str) -> None:
    settings = {"fit": stripe(60, 1), "test": stripe(60, 2)} | change
    final = settings.pop("final", mlp(5, (8,), 2))
    with pytest.raises(ValueError, match=sentence):
        diagnose(mlp(5, (8,), 2), final, settings.pop("fit"), settings.pop("test"), **settings)


def test_a_collapsed_network_is_named() -> None:
    dead = mlp(5, (8,), 2)
    with torch.no_grad():
        dead.dense1.bias.fill_(-1e3)
    with pytest.raises(ValueError, match="the final kernel is the same for all examples"):
        diagnose(mlp(5, (8,), 2), dead, stripe(60, 1), stripe(60, 2))


def test_labels_and_training_settings_are_checked() -> None:
    with pytest.raises(TypeError, match="whole numbers"):
        diagnose(mlp(1, (8,), 2), mlp(1, (8,), 2), *[Examples(torch.zeros(2, 1), torch.zeros(2))] * 2)
    with pytest.raises(TypeError, match="whole numbers"):
        train_classifier(mlp(1, (8,), 2), Examples(torch.zeros(2, 1), torch.zeros(2, 2, dtype=torch.long)), 1)
    with pytest.raises(ValueError, match="same length; got 2 and 3"):
        Examples(torch.zeros(2, 1), torch.zeros(3, dtype=torch.long))
    with pytest.raises(ValueError, match="counted from 0"):
        Examples(torch.zeros(2, 1), torch.tensor([-1, 1]))
    with pytest.raises(ValueError, match="steps is 0"):
        train_classifier(mlp(5, (8,), 2), stripe(20, 0), 0)
    with pytest.raises(ValueError, match="output scale"):
        train_classifier(mlp(5, (8,), 2), stripe(20, 0), 1, alpha=-1.0)
    with pytest.raises(ArithmeticError, match="diverged"):
        train_classifier(mlp(5, (8,), 2), stripe(64, 0), 200, learning_rate=1e20)
