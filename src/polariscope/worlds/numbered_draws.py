"""Random numbers of observations: functions of a seed and an observation number alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def random_words(seed: int, index: NDArray[np.int64], count: int) -> NDArray[np.uint64]:
    """``count`` uniform 64-bit numbers for each observation number."""
    key = mix(counters(np.array([seed % 2**64], np.uint64), 1))[0]
    keys = mix(counters(mix(index.astype(np.uint64) ^ key), 1))[:, 0]
    return mix(counters(keys, count))


def uniform(seed: int, index: NDArray[np.int64], count: int) -> NDArray[np.float64]:
    """``count`` numbers from [0, 1) for each observation number.

    >>> alone, among_others = uniform(3, np.array([5]), 2), uniform(3, np.arange(9), 2)
    >>> bool((alone[0] == among_others[5]).all())
    True
    """
    return (random_words(seed, index, count) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def mix(counter: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64 (Steele, Lea and Flood 2014), in place: neighbouring counters become unrelated 64-bit numbers."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        counter ^= counter >> np.uint64(shift)
        counter *= np.uint64(factor)
    counter ^= counter >> np.uint64(31)
    return counter


def counters(start: NDArray[np.uint64], count: int) -> NDArray[np.uint64]:
    """``count`` counters after each start, in the stride that SplitMix64 wants."""
    return start[:, None] + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
