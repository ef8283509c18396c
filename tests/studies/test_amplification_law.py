"""How the largest amplification grows with the data, from the committed table: a short run of few seeds cannot tell.

Twelve seeds of 200 to 800 points give slopes from 0.33 to 0.61 by groups of four.
"""

import pytest

from polariscope.studies.manifolds.power_laws import ASYMPTOTIC, curve


@pytest.mark.spec("004/F19")
@pytest.mark.parametrize("dimension", [5, 10])
def test_the_largest_amplification_has_the_published_slope(committed, dimension) -> None:
    """Between 0.4 and 0.75 over the number of points, and never below the amplification at the onset (Figure 5)."""
    rows = committed("amplification").table.where(part="scaling", task="stripe", dimension=dimension)
    assert len(rows.distinct("seed")) >= 8
    assert max(rows.distinct("points")) >= 10 * min(rows.distinct("points"))
    assert 0.4 < curve(rows, "largest").power_law(ASYMPTOTIC).exponent < 0.75
    assert (rows.column("largest") >= rows.column("at_onset")).all()
