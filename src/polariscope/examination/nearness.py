"""How near generated observations are to the training data: predictors are tested only where there is data."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polariscope.measures.judge import usual_scale

FAR = 0.95
"""A sample is far from the data if its nearest training example is further away than that of this share of held-out
examples."""
MANY_FAR = 0.25
"""From this share of far samples on, a sentence says that their predictions are doubtful."""


def neighbourhood(
    known: Tensor, held: Tensor, samples: Tensor
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.bool_]]:
    """The nearest training example of each sample, its distance on standardised columns, and whether this distance
    counts as far."""
    flat = known.flatten(1).double()
    # Centred, and in double precision: distances are differences of squares, which offsets would swallow.
    mean, scale = flat.mean(0), torch.from_numpy(usual_scale(flat.numpy()))
    scaled = (flat - mean) / scale

    def nearest(x: Tensor) -> tuple[Tensor, Tensor]:
        parts = x.flatten(1).double().split(1024)
        nearest = [torch.cdist((part - mean) / scale, scaled).min(1) for part in parts]
        return torch.cat([one.values for one in nearest]), torch.cat([one.indices for one in nearest])

    apart, numbers = nearest(samples)
    usual = torch.quantile(nearest(held)[0].double(), FAR)
    return numbers.numpy(), apart.double().numpy(), (apart > usual).numpy()
