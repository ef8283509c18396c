import numpy as np
import pytest

from polariscope.manipulation import LocalStructure, Noise, apply, manipulate
from polariscope.worlds import ArrayWorld
from polariscope.worlds.points.synthetic import Plane, SquareLinear
from polariscope.worlds.renderers.blobs import Blobs
from polariscope.worlds.renderers.mini_sprites import MiniSprites


@pytest.mark.spec("003/F3-056")
@pytest.mark.parametrize(("epsilon", "variance"), [(0.1, 3.3333e-3), (0.175, 1.02083e-2)])
def test_noise_has_a_third_of_the_squared_bound_as_variance(epsilon: float, variance: float) -> None:
    grey = ArrayWorld(
        np.full((2000, 1, 8, 8), 128, np.uint8) + np.arange(2, dtype=np.uint8).repeat(1000)[:, None, None, None],
        np.arange(2000),
    )
    done = apply(grey, Noise(epsilon), seed=1)
    assert done.size.mean_square / 64 == pytest.approx(variance, rel=0.02)
    assert done.size.max_norm <= epsilon + 1e-6
    change = done.change_of(np.arange(2000))
    assert abs(change.mean()) < 1e-3
    assert np.abs(np.corrcoef(change.reshape(2000, -1)[:, :10].T) - np.eye(10)).max() < 0.1


@pytest.mark.spec("003/F3-056")
def test_noise_is_fixed_by_the_number_of_the_observation() -> None:
    world = Blobs(count=5000)
    whole, again = (manipulate(world, "noise", epsilon=0.1, seed=4) for _ in range(2))
    np.testing.assert_array_equal(whole.observations, again.observations)
    short = manipulate(Blobs(count=4200), "noise", epsilon=0.1, seed=4)
    np.testing.assert_array_equal(short.observations, whole.observations[:4200])  # also beyond a block
    other = manipulate(world, "noise", epsilon=0.1, seed=5)
    assert (other.observations != whole.observations).any(axis=(1, 2, 3)).all()
    points = manipulate(Plane(count=5000), "noise", epsilon=0.1, seed=4).observations
    assert len(np.unique(points[:, 2:], axis=0)) == 5000  # no two observations, in whatever block, have the same noise


@pytest.mark.spec("003/F3-056")
def test_noise_of_equal_magnitude_on_the_same_coordinates() -> None:
    world = Plane(count=5000)
    local = apply(world, LocalStructure(0.35, 2.0), "local")
    control = apply(world, Noise.of_size(local.size), "noise")
    assert control.size.mean_square == pytest.approx(local.size.mean_square, rel=0.03)
    assert control.epsilon == pytest.approx(0.35 * np.sqrt(1.5))  # variance ε²/2 in each of two coordinates
    np.testing.assert_array_equal(control.world.observations[:, :2], world.observe(np.arange(5000))[:, :2])


def test_factors_and_order_stay() -> None:
    world = MiniSprites()
    altered = manipulate(world, "noise", epsilon=0.1)
    assert altered.factors == world.factors
    np.testing.assert_array_equal(altered.factors_of([7, 3]), world.factors_of([7, 3]))
    busy = manipulate(SquareLinear(count=100), "noise", epsilon=0.1)  # no idle coordinate: all are changed
    assert (busy.observations != SquareLinear(count=100).observe(np.arange(100))).all()


def test_what_cannot_be_manipulated_is_refused() -> None:
    with pytest.raises(ValueError, match="factors are known"):
        manipulate(ArrayWorld(np.eye(5)), "noise")
    with pytest.raises(ValueError, match="the same"):
        manipulate(ArrayWorld(np.ones((5, 2)), np.arange(5)), "noise")
    with pytest.raises(ValueError, match="did you mean 'noise'"):
        manipulate(Plane(count=10), "noize")
    with pytest.raises(ValueError, match="no setting 'epsilom'.*'epsilon'"):
        manipulate(Plane(count=10), "noise", epsilom=1)
    with pytest.raises(ValueError, match="at least 2 observations"):
        manipulate(Plane(count=10), "noise", count=1)
    assert len(manipulate(Plane(count=10), "noise", count=4)) == 4
