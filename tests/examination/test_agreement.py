"""Choosing a model without labels: twins agree, a stranger does not, and what a model gave up does not count."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from polariscope.examination.agreement import rank_by_agreement
from polariscope.theory.transitions import collapsed_std

POINTS = np.stack(np.unravel_index(np.arange(3**7), (3,) * 7), axis=1).astype(np.float32) - 1
"""Seven coordinates without any correlation."""


class Linear(nn.Module):
    """A posterior of given spread around linear codes."""

    def __init__(self, weight: np.ndarray, std: np.ndarray | float = 0.1) -> None:
        super().__init__()
        self.weight = torch.from_numpy(np.asarray(weight, np.float32))
        self.logvar = 2 * torch.log(torch.as_tensor(std, dtype=torch.float32)).expand(len(weight))

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x @ self.weight.T, self.logvar.expand(len(x), -1)


def turned(seed: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(4, 4)))[0] @ np.eye(4, 7)


@pytest.mark.spec("001a/SV-14")
def test_signed_permuted_twins_agree_and_unrelated_models_do_not() -> None:
    one = np.diag([1.0, 2.0, 0.5, 1.5]) @ np.eye(4, 7)
    twins = [Linear(one), Linear(-one[[2, 0, 3, 1]]), Linear(one[::-1] * [[1], [-1], [1], [-1]])]
    assert rank_by_agreement(twins, POINTS).values == pytest.approx([1, 1, 1], abs=1e-5)

    strangers = [Linear(turned(seed)) for seed in (1, 2, 3)]
    assert rank_by_agreement(strangers, POINTS).values.max() < 0.6

    mixed = rank_by_agreement([strangers[0], *twins], POINTS)
    assert mixed.best in (1, 2, 3)
    assert mixed.values[1:].min() > 0.99 > 0.6 > mixed.values[0]


def test_a_latent_that_was_given_up_does_not_count() -> None:
    """Its mean is all but still; its deviation is SlowVAE's 0.229, which is far from the prior's."""
    s0 = float(collapsed_std(6.0))
    weights = [np.eye(7)[[0, 1, 2, 3, *others]] for others in ((4, 5), (6, 6))]
    small = np.array([[1.0]] * 4 + [[1e-3]] * 2)
    given_up = [Linear(small * weight, np.array([0.1] * 4 + [s0] * 2)) for weight in weights]
    result = rank_by_agreement(given_up, POINTS)
    assert [used.tolist() for used in result.informative] == [[True] * 4 + [False] * 2] * 2
    assert result.values == pytest.approx([1, 1], abs=1e-5)
    kept = rank_by_agreement([Linear(weight) for weight in weights], POINTS)
    assert kept.values == pytest.approx([8 / 12] * 2, abs=1e-5), "four of six correspond"


def test_models_without_a_spread_are_compared_by_all_that_moves() -> None:
    class Plain(Linear):
        def encode(self, x: Tensor) -> Tensor:
            return super().encode(x)[0]

    weight = np.vstack([np.eye(4, 7), np.zeros((1, 7))])
    result = rank_by_agreement([Plain(weight), Plain(-weight)], POINTS)
    assert result.informative[0].tolist() == [True] * 4 + [False]
    assert result.values == pytest.approx([1, 1], abs=1e-5)
    with pytest.raises(ValueError, match="at least 2; got 1"):
        rank_by_agreement([Plain(weight)], POINTS)
