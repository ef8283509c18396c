"""How much each latent variable knows about each factor."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.measures.information import discrete_entropy, discretise, mutual_information


def factor_information(codes: ArrayLike, factors: ArrayLike, bins: int = 20) -> NDArray[np.float64]:
    """Share of each factor's entropy that each latent knows, ``I(z_j; v_k) / H(v_k)``, as ``(latents, factors)``.

    Codes are cut into ``bins`` equal-width bins between their extremes, and so are factors with more than ``bins``
    different values that are not whole numbers. 0: the latent knows nothing of the factor; 1: it determines it. A
    factor that never changes has no entropy, and nothing can be known about it: its column is 0. The plug-in estimate
    is biased upwards by about (bins - 1)(values - 1) / 2n nats, so with few examples no entry is quite 0.

    >>> x = np.arange(400) % 4
    >>> factor_information(np.c_[x, np.arange(400) // 4 % 2], x[:, None]).round(2).tolist()
    [[1.0], [0.0]]
    """
    codes, factors = np.asarray(codes), np.asarray(factors)
    binned = discretise(codes, bins)
    labels = np.column_stack([_labels(column, bins) for column in factors.T])
    entropy = discrete_entropy(labels)
    known = np.asarray(mutual_information(binned, labels))
    return np.divide(known, entropy, out=np.zeros_like(known), where=entropy > 1e-12)


def _labels(column: NDArray[np.generic], bins: int) -> NDArray[np.int64]:
    values, positions = np.unique(column, return_inverse=True)
    whole = np.issubdtype(column.dtype, np.integer) or bool(np.all(values == np.rint(values)))
    if whole or len(values) <= bins:
        return positions.astype(np.int64)
    return discretise(column[:, None].astype(np.float64), bins)[:, 0]
