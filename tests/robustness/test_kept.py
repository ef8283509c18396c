"""Which stored results are those of which classifier and which attack."""

from pathlib import Path

import numpy as np
import torch
from torch import nn

from polariscope.nets.smoothed import Smoothed
from polariscope.robustness.attacks.transfer import Transfer
from polariscope.robustness.attacks.verified import Verified
from polariscope.robustness.kept import KeptAttacks, weights_hash
from polariscope.subjects import as_subject


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 2))


def test_a_substitute_of_other_weights_has_results_of_its_own(tmp_path: Path) -> None:
    kept = KeptAttacks(tmp_path, {"model": "net"})
    x, y, numbers = torch.rand(3, 1, 2, 2), torch.zeros(3, dtype=torch.long), np.arange(3)

    def file(substitute: object, wrap: bool = False) -> Path:
        attack = Transfer(as_subject(substitute))
        return kept.file(Verified(attack) if wrap else attack, x, y, numbers, norm="l2", seed=0)

    first, second = network(0), network(1)
    assert file(first) == file(network(0))
    assert file(first) != file(second)
    assert file(first, wrap=True) != file(second, wrap=True)


def test_settings_of_a_classifier_are_part_of_its_identity() -> None:
    base = network(0)
    assert weights_hash(as_subject(Smoothed(base, 0.1, 20))) == weights_hash(as_subject(Smoothed(network(0), 0.1, 20)))
    assert weights_hash(as_subject(Smoothed(base, 0.1, 20))) != weights_hash(as_subject(Smoothed(base, 0.5, 20)))
    before = weights_hash(as_subject(base.train()))
    assert before == weights_hash(as_subject(base.eval()))
