"""How much each latent variable knows about each factor."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.measures.information import discrete_entropy, discretise, mutual_information
from polariscope.measures.score import as_labels


def factor_information(codes: ArrayLike, factors: ArrayLike, bins: int = 20) -> NDArray[np.float64]:
    """Share of each factor's entropy that each latent knows, ``I(z_j; v_k) / H(v_k)``, as ``(latents, factors)``.

    Codes are cut into ``bins`` equal-width bins between their extremes, and so are continuous factors, as for scores
    (:func:`~polariscope.measures.score.as_labels`). 0: the latent knows nothing of the factor; 1: it determines it. A
    factor that never changes has no entropy, and nothing can be known about it: its column is 0. The plug-in estimate
    is biased upwards by about (bins - 1)(values - 1) / 2n nats, so with few examples no entry is quite 0.

    >>> x = np.arange(400) % 4
    >>> factor_information(np.c_[x, np.arange(400) // 4 % 2], x[:, None]).round(2).tolist()
    [[1.0], [0.0]]
    """
    codes, factors = np.asarray(codes), np.asarray(factors)
    binned = discretise(codes, bins)
    labels = as_labels(factors, bins).values
    entropy = discrete_entropy(labels)
    known = np.asarray(mutual_information(binned, labels))
    return np.divide(known, entropy, out=np.zeros_like(known), where=entropy > 1e-12)
