"""The information of each latent variable about each factor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.measures.chance import chance_of_each
from polariscope.measures.information import discrete_entropy, discretise, mutual_information
from polariscope.measures.score import as_labels

LEVEL = 0.01
"""Probability that any entry of a table exceeds chance by accident."""


def factor_information(codes: ArrayLike, factors: ArrayLike, bins: int = 20) -> NDArray[np.float64]:
    """Share of each factor's entropy that each latent explains, ``I(z_j; v_k) / H(v_k)``, as ``(latents, factors)``.

    Codes are cut into ``bins`` equal-width bins between their extremes, and so are continuous factors, as for scores
    (:func:`~polariscope.measures.score.as_labels`). 0: the latent has no information about the factor; 1: it determines
    the factor. A constant factor has no entropy: its column is 0. The plug-in estimate is biased upwards by about
    (bins - 1)(values - 1) / 2n nats, so with few examples no entry is exactly 0.

    >>> x = np.arange(400) % 4
    >>> factor_information(np.c_[x, np.arange(400) // 4 % 2], x[:, None]).round(2).tolist()
    [[1.0], [0.0]]
    """
    codes, factors = np.asarray(codes), np.asarray(factors)
    return _shares(discretise(codes, bins), as_labels(factors, bins).values)


def _shares(binned: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    entropy = discrete_entropy(labels)
    known = np.asarray(mutual_information(binned, labels))
    return np.divide(known, entropy, out=np.zeros_like(known), where=entropy > 1e-12)


@dataclass(frozen=True, eq=False)
class InformationBeyondChance:
    """Tables ``(latents, factors)`` of the information of latents about factors, and of its chance level."""

    raw: NDArray[np.float64]
    """:func:`factor_information`."""
    chance: NDArray[np.float64]
    """Its mean with permuted factors."""
    beyond: NDArray[np.bool_]
    """Entries that exceed chance; a table of chance values has such an entry with probability 0.01."""
    permutations: int
    samples: int

    @property
    def adjusted(self) -> NDArray[np.float64]:
        """Explained share of the entropy beyond chance, (raw − chance) / (1 − chance); 0 for entries within chance.

        1 stays 1 and chance becomes 0, as in the adjusted mutual information of Vinh, Epps and Bailey (2010).
        """
        room = 1 - self.chance
        share = np.divide(self.raw - self.chance, room, out=np.zeros_like(self.raw), where=room > 1e-12)
        return np.where(self.beyond, np.clip(share, 0.0, 1.0), 0.0)


def information_beyond_chance(
    codes: ArrayLike, factors: ArrayLike, bins: int = 20, permutations: int = 20, seed: int = 0
) -> InformationBeyondChance:
    """:func:`factor_information` beside its chance level, from permutations of the rows of all factors together.

    An entry exceeds chance if it is beyond the reach of :func:`~polariscope.measures.chance.chance_of`, which accounts
    for the number of entries. With 300 examples, noise seems to explain 7 to 14 % of a factor with ten values: that is
    its chance level. Only information beyond it is attributed to a latent.

    >>> rng = np.random.default_rng(0)
    >>> factor = rng.integers(0, 8, 300)
    >>> table = information_beyond_chance(np.c_[factor, rng.normal(size=300)], factor[:, None])
    >>> table.beyond.tolist(), table.adjusted.round(6).tolist(), bool(table.raw[1, 0] > 0.05)
    ([[True], [False]], [[1.0], [0.0]], True)
    """
    if permutations < 2:
        raise ValueError(f"a chance level needs at least 2 permutations; got {permutations}")
    codes, factors = np.asarray(codes), np.asarray(factors)
    binned, labels = discretise(codes, bins), as_labels(factors, bins).values
    rng = np.random.default_rng(seed)
    raw = _shares(binned, labels)
    permuted = np.stack([_shares(binned, labels[rng.permutation(len(labels))]) for _ in range(permutations)])
    # Information of unrelated labels is about χ², whose cube root is about normal (Wilson and Hilferty 1931).
    level, reach = chance_of_each(np.cbrt(permuted), looks=raw.size, level=LEVEL)
    # Twenty permutations estimate a standard deviation to about a fifth; the mean over all latents is more precise.
    beyond = np.cbrt(raw) > level + np.maximum(reach, np.sqrt(np.mean(reach**2, axis=0)))
    return InformationBeyondChance(raw, permuted.mean(axis=0), beyond, permutations, len(codes))
