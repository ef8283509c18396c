"""The neighbour search on several threads: the same neighbours, and torch's settings as they were."""

import numpy as np
import torch

from polariscope.measures import neighbours
from polariscope.measures.neighbours import nearest_neighbours


def test_threads_share_the_search_and_change_nothing(monkeypatch) -> None:
    monkeypatch.setattr(neighbours, "_PRODUCT_NUMBERS", 20_000)  # many blocks
    points = np.random.default_rng(0).normal(size=(500, 6)).astype(np.float32)
    points[7] = points[3]
    results, before = [], torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            results.append(nearest_neighbours(points, 4))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    for alone, shared in (
        [(r.distances, r.indices) for r in results],
        [(r.rows, np.array(r.duplicates)) for r in results],
    ):
        np.testing.assert_array_equal(alone[0], shared[0])
        np.testing.assert_array_equal(alone[1], shared[1])
    assert results[0].duplicates == 1
