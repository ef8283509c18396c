"""The cylinder: its radius, its balance and what its label ignores."""

import numpy as np
import pytest

from polariscope.testing import check_world
from polariscope.worlds.points.cylinder import Cylinder


@pytest.mark.parametrize(
    "settings", [{}, {"dimension": 7, "informative": 4, "compression": 2.0, "rotate": True}], ids=str
)
def test_cylinders_keep_the_contract(settings) -> None:
    check_world(Cylinder(count=500, **settings))


@pytest.mark.spec("004/F04")
@pytest.mark.parametrize(
    ("dimension", "informative", "radius"), [(3, 2, 1.17741), (5, 2, 1.17741), (4, 3, 1.5382), (9, 6, None)]
)
def test_the_radius_holds_half_of_the_points(dimension, informative, radius) -> None:
    world = Cylinder(dimension=dimension, informative=informative)
    if radius is not None:
        assert world.radius == pytest.approx(radius, abs=5e-5)
    x, y = world.sample(100_000, seed=3)
    assert x.shape == (100_000, dimension)
    assert x.dtype == np.float64
    assert y.mean() == pytest.approx(0, abs=4 / np.sqrt(1e5))
    np.testing.assert_array_equal(y > 0, (x[:, :informative] ** 2).sum(1) > world.radius**2)


@pytest.mark.spec("004/F04", "004/F05", "004/F06")
def test_the_label_survives_compression_and_rotation() -> None:
    world = Cylinder(dimension=5, informative=3, compression=10.0, rotate=True, seed=2)
    x, y = world.sample(20_000, seed=0)
    coordinates = x @ world.source.directions
    np.testing.assert_array_equal(y > 0, np.linalg.norm(coordinates[:, :3], axis=1) > world.radius)
    np.testing.assert_allclose(coordinates.var(0), [1, 1, 1, 0.01, 0.01], rtol=0.05)
    plain, labels = Cylinder(dimension=5, informative=3).sample(20_000, seed=0)
    np.testing.assert_array_equal(labels, y)
    np.testing.assert_allclose(coordinates[:, :3], plain[:, :3], atol=1e-12)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: Cylinder(count=0), "at least 1 point"),
        (lambda: Cylinder(informative=1), "informative directions"),
        (lambda: Cylinder(dimension=3, informative=3), "informative directions"),
        (lambda: Cylinder(compression=-1.0), "positive"),
    ],
)
def test_impossible_worlds_are_refused(call, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()
