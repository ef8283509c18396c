"""Model selection without known factors: choose the model whose latents the other models also learn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polariscope.examination.embedding import embed
from polariscope.measures.information import FloatArray
from polariscope.measures.udr import UDR, Likeness, udr
from polariscope.representation import Representation
from polariscope.subjects.doors import subjects_and_world
from polariscope.worlds.given import Data


def rank_by_agreement(
    models: Sequence[Any],
    data: Data | None = None,
    *,
    count: int = 10_000,
    seed: int = 0,
    likeness: Likeness = "spearman",
) -> UDR:
    """The unsupervised disentanglement ranking of models on the same data; ``best`` is the index of the model to keep.

    Models are given as for :func:`~polariscope.examination.examine.examine`. Duan et al. 2020; Klindt et al. 2021,
    section 5.1, choose SlowVAE's weights so.

    >>> import torch
    >>> class Ordered(torch.nn.Module):
    ...     def __init__(self, *order):
    ...         super().__init__()
    ...         self.order = order
    ...     def encode(self, x):
    ...         return x[:, self.order], torch.full((len(x), len(self.order)), -4.0)
    >>> points = np.stack(np.unravel_index(np.arange(1000), (10, 10, 10)), axis=1).astype(np.float32)
    >>> rank_by_agreement([Ordered(0, 1, 2), Ordered(2, 0, 1)], points).values.round(3).tolist()
    [1.0, 1.0]
    """
    subjects, world = subjects_and_world(models, data)
    representations = [embed(subject, world, count=count, seed=seed) for subject in subjects]
    information = (
        None if any(one.var is None for one in representations) else [_information(one) for one in representations]
    )
    return udr([one.mean for one in representations], information, likeness)


def _information(representation: Representation) -> FloatArray:
    """Information of each latent about the data in nats, if all is Gaussian: ½ ln(1 + Var μ / E σ²).

    The published ranking skips latents near the prior. Unused latents of a SlowVAE are far from N(0, 1), so the
    variance of the mean decides here instead.
    """
    assert representation.var is not None
    return np.asarray(np.log1p(representation.mean.var(axis=0) / representation.var.mean(axis=0)) / 2, dtype=np.float64)
