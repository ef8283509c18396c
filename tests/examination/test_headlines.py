"""Headlines say no more than their numbers: a model that has learned nothing is not judged as if it had."""

import numpy as np
import pytest
import torch

from polariscope.examination.corruptions import withstand
from polariscope.examination.diagnose import diagnose
from polariscope.manipulation.bundle import manipulation_findings, report_on
from polariscope.manipulation.kinds import build
from polariscope.manipulation.manipulation import apply
from polariscope.nets.classifiers import mlp
from polariscope.worlds import ArrayWorld
from polariscope.worlds.points.synthetic import Plane
from polariscope.worlds.renderers.digits import Digits
from polariscope.worlds.targets import Examples


def test_a_classifier_that_knows_nothing_is_not_called_robust() -> None:
    def constant(x: torch.Tensor) -> torch.Tensor:
        return torch.eye(10)[torch.zeros(len(x), dtype=torch.long)]

    result = withstand(constant, Digits(), "mnist-c", ["shot", "fog"], count=200)
    assert result.clean == result.mean, "no corruption makes it worse"
    assert not result.learned
    assert "has not learned its task" in result.headline
    assert "worst under" not in result.headline
    (scores,) = (part for part in result.findings().parts if part.name == "scores")
    assert scores.entries[0].within_chance
    assert scores.entries[0].chance == result.chance


def test_few_examples_show_neither_that_a_classifier_has_learned_nor_that_it_has_not() -> None:
    images = np.full((4, 1, 8, 8), 60, np.uint8)
    images[1::2] = 190

    def bright(x: torch.Tensor) -> torch.Tensor:
        return x.mean((1, 2, 3)) - 0.5

    two = withstand(bright, ArrayWorld(images, np.arange(4) % 2), "mnist-c", ["shot"])
    assert (two.clean, two.chance) == (1.0, 0.5)
    assert "4 examples do not show that it has learned its task" in two.headline
    one = withstand(bright, ArrayWorld(images[1::2], np.ones(2, int)), "mnist-c", ["shot"])
    assert (one.clean, one.chance) == (1.0, 1.0)
    assert "learned its task" not in one.headline, "always predicting the only class is right, too"


def test_a_lazy_kernel_of_an_untrained_network_is_no_finding() -> None:
    torch.manual_seed(0)
    net = mlp(4, (8,), 2)
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((200, 4))).float()
    labels = (x[:, 0] > 0).long()
    result = diagnose(net, net, Examples(x, labels), Examples(x, labels.flip(0)), modes=3)
    assert result.verdict == "lazy"
    assert not result.learned
    assert result.findings().headline.startswith("Verdict: lazy, but the network has not learned its task: its error")

    def right(inputs: torch.Tensor) -> torch.Tensor:
        return torch.stack([-inputs[:, 0], inputs[:, 0]], 1)

    learned = diagnose(net, net, Examples(x, labels), Examples(x, labels), network=right, modes=3)
    assert learned.findings().headline == "Verdict: lazy."


@pytest.mark.parametrize(("after", "words"), [(0.4, "factors were partly lost"), (0.98, "added variance")])
def test_a_manipulation_that_loses_factors_says_so(after, words) -> None:
    manipulated = apply(Plane(count=300), build("noise", {"epsilon": 0.1}), "noise", seed=0)
    report = report_on(manipulated)
    name = next(iter(report["factor_recovery"]))
    report["factor_recovery"][name] = {"before": 1.0, "after": after}
    headline = manipulation_findings(manipulated, report).headline
    assert words in headline
    assert (f"{name} from 1.00 to {after:.2f}" in headline) == (after < 0.9)
