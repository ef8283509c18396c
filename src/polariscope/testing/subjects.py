"""Contract checks of models under examination."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from polariscope.subjects import as_subject
from polariscope.subjects.checks import broken_promises
from polariscope.testing.promises import require
from polariscope.worlds.given import Data, as_world
from polariscope.worlds.world import sample_numbers, to_tensor


def check_subject(
    model: Any, data: Data, factors: ArrayLike | Tensor | None = None, *, count: int = 64, seed: int = 0
) -> None:
    """A model encodes each example in one finite code, in evaluation mode always the same one, whatever else is in the
    batch; if it decodes, its decoder takes these codes and returns finite observations.

    Model and data are whatever :func:`~polariscope.examination.examine.examine` takes; ``count`` examples are checked.
    A sample may be random, the mean may not.

    >>> check_subject(lambda x: 2 * x, np.eye(8))
    """
    world = as_world(data, factors)
    subject = as_subject(model)
    numbers = sample_numbers(world, count, seed)
    x = to_tensor(world.observe(numbers))
    u = None if subject.prior is None else torch.from_numpy(np.ascontiguousarray(world.factors_of(numbers)))
    subject = subject.understood(x, u)
    for sentence in broken_promises(subject, x, u):
        raise AssertionError(f"{subject.name}: {sentence}")
    require(not subject.undecodable, subject.undecodable)
    with subject.at_rest():
        code = subject.encode(x, u, torch.from_numpy(numbers), len(world))
        for part, values in code.items():
            require(bool(values.isfinite().all()), f"the {part} of {subject.name} has NaN or infinity")
        require(bool((code.get("var", code["mean"] * 0) >= 0).all()), f"a variance of {subject.name} is negative")
        if subject.decodes is not None:
            images = subject.generate(code["mean"].float(), tuple(world.shape))
            require(bool(images.isfinite().all()), f"decode of {subject.name} returns NaN or infinity")
