"""Every registered model keeps its promises; one that breaks a promise is caught at it."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

from polariscope.nets.model import Brief, models, predicts
from polariscope.testing import check_model


@pytest.mark.parametrize("description", [d for name in models.names() for d in models.examples(name)], ids=str)
def test_registered_models_keep_the_contract(description) -> None:
    check_model(models.build(description))


class Net(nn.Module):
    """A dense layer, the sound basis of the networks below."""

    def __init__(self, brief: Brief) -> None:
        super().__init__()
        self.dense = nn.Linear(int(np.prod(brief.observation)), predicts(brief, "net"))

    def forward(self, x):
        return self.dense(x.flatten(1))


@dataclass(frozen=True)
class Sound:
    network: type = Net

    def build(self, brief: Brief) -> nn.Module:
        return self.network(brief)


class Unseeded(Net):
    def __init__(self, brief):
        super().__init__(brief)
        self.dense.weight.data += torch.from_numpy(np.random.default_rng().normal(size=self.dense.weight.shape)).float()


class Constant(Net):
    def __init__(self, brief):
        super().__init__(brief)
        for parameter in self.parameters():
            nn.init.ones_(parameter)


class Poisoned(Net):
    def __init__(self, brief):
        super().__init__(brief)
        self.dense.bias.data[0] = torch.nan


class Transposed(Net):
    def forward(self, x):
        return super().forward(x).T


class Several(Net):
    def forward(self, x):
        return super().forward(x), x


class AcrossTheBatch(Net):
    def forward(self, x):
        return super().forward(x) - x.mean()


class Counting(Net):
    """Counts its calls in evaluation mode, too."""

    def __init__(self, brief):
        super().__init__(brief)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return super().forward(x)


class Forgetful(Net):
    """Part of what it answers with is in no checkpoint."""

    def __init__(self, brief):
        super().__init__(brief)
        self.hidden = torch.randn(self.dense.out_features)

    def forward(self, x):
        return super().forward(x) + self.hidden


class Idle(Net):
    def __init__(self, brief):
        super().__init__(brief)
        self.unused = nn.Linear(2, 2)


class Overflowing(Net):
    def forward(self, x):
        return super().forward(x) / 0


class Random(nn.Module):
    """A code that is drawn anew each time."""

    def __init__(self, brief):
        super().__init__()
        self.encoder_layer = nn.Linear(int(np.prod(brief.observation)), 2)

    def encode(self, x):
        code = self.encoder_layer(x.flatten(1))
        return code + torch.randn_like(code)


class Refusing(Net):
    def __init__(self, brief):
        raise ValueError("never that")


class Mute(nn.Module):
    def __init__(self, brief):
        if brief.outputs:
            raise ValueError("only without outputs")
        super().__init__()
        self.dense = nn.Linear(2, 2)


@pytest.mark.parametrize(
    ("network", "sentence"),
    [
        (Unseeded, "differ for the same seed: draw them only with torch"),
        (Constant, "the same for every seed"),
        (Poisoned, "dense.bias of Sound is not finite"),
        (Transposed, r"numbers of shape \(3, 8\) for 8 examples: expected \(8, 3\)"),
        (Several, "predicts a tuple: expected a tensor"),
        (AcrossTheBatch, "depends on the others in its batch"),
        (Counting, "changes its own weights or buffers in evaluation mode"),
        (Forgetful, "returns another prediction after its weights were loaded"),
        (Idle, "no gradient of a prediction of Sound reaches unused.weight, unused.bias"),
        (Overflowing, "prediction of Sound has NaN or infinity"),
        (Random, "The code is random in evaluation mode"),
        (Refusing, "refuses every kind of data: never that"),
        (Mute, "neither encodes nor predicts"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_broken_model_is_caught(network, sentence) -> None:
    check_model(Sound())
    with pytest.raises(AssertionError, match=sentence):
        check_model(Sound(network))


def test_checking_a_model_leaves_the_random_state_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    check_model(Sound())
    assert torch.equal(torch.rand(3), expected)
