import numpy as np
import pytest

from polariscope.worlds import worlds
from polariscope.worlds.points.synthetic import Plane, SquareLinear, SquareNonlinear
from polariscope.worlds.renderers.blobs import Blobs


@pytest.mark.spec("003/F3-053")
def test_centres_follow_the_factors_over_unequal_ranges() -> None:
    world = worlds.build({"name": "blobs"})
    assert len(world) == 3200
    assert world.shape == (1, 16, 16)
    images = world.observe(np.arange(500))[:, 0].astype(np.float64)
    w = world.factors_of(np.arange(500))
    assert -1 <= w.min() < -0.95
    assert 0.95 < w.max() <= 1
    inside = np.abs(w[:, 0]) < 0.3  # the blob is then whole but for its outermost tail
    pixel = np.arange(16)
    x = (images.sum(1) @ pixel / images.sum((1, 2)))[inside]
    y = (images.sum(2) @ pixel / images.sum((1, 2)))[inside]
    np.testing.assert_allclose(x, 7.5 + 5.0 * w[inside, 0], atol=0.1)
    np.testing.assert_allclose(y, 7.5 + 2.5 * w[inside, 1], atol=0.1)


@pytest.mark.spec("003/F3-053")
@pytest.mark.parametrize("reach", [(5.0, 2.5), (3.5, 3.5)])
def test_local_variance_is_what_the_reaches_say(reach: tuple[float, float]) -> None:
    """∫ |∂x/∂c|² of a Gaussian blob is π/2 whatever its width; equal reaches are interchangeable (R5, R6)."""
    world = Blobs(count=1, reach=reach, size=32)
    step = 1e-4
    middle = np.zeros((1, 2))
    slopes = [
        (world.brightness(middle + d) - world.brightness(middle - d)).ravel() / (2 * step) for d in step * np.eye(2)
    ]
    metric = np.array(slopes) @ np.array(slopes).T
    np.testing.assert_allclose(metric, np.diag(np.square(reach)) * np.pi / 2, atol=1e-3)


def test_blobs_repeat_and_refuse_nonsense() -> None:
    np.testing.assert_array_equal(Blobs(count=20, seed=1).observe([3]), Blobs(count=40, seed=1).observe([3]))
    with pytest.raises(ValueError, match="width > 0"):
        Blobs(width=0)


LAWS = [SquareLinear, SquareNonlinear, Plane, Blobs]


@pytest.mark.spec("003/F3-094")
@pytest.mark.parametrize("kind", LAWS)
def test_both_laws_have_the_same_mean_and_variance(kind: type) -> None:
    uniform, gaussian = (
        kind(count=20_000, law=law, seed=2).factors_of(np.arange(20_000)) for law in ("uniform", "gaussian")
    )
    np.testing.assert_allclose(gaussian.mean(0), uniform.mean(0), atol=0.03)
    np.testing.assert_allclose(gaussian.var(0), uniform.var(0), rtol=0.05)
    with pytest.raises(ValueError, match="'uniform' or 'gaussian'"):
        kind(law="cauchy").observe([0])


@pytest.mark.spec("003/F3-094")
def test_uniform_factors_prefer_their_axes_and_gaussian_ones_do_not() -> None:
    """Marginals of a rotated code: uniform ones change with the angle, Gaussian ones have the same law at every one."""

    def kurtosis(law: str, turn: float) -> float:
        w = Plane(count=100_000, law=law, seed=1).factors_of(np.arange(100_000)).astype(np.float64)
        z = w @ [np.cos(turn), np.sin(turn)]
        return float(np.mean(((z - z.mean()) / z.std()) ** 4) - 3)

    assert kurtosis("uniform", 0) == pytest.approx(-1.2, abs=0.02)
    assert kurtosis("uniform", np.pi / 4) == pytest.approx(-0.6, abs=0.03)
    assert kurtosis("gaussian", 0) == pytest.approx(0, abs=0.06)
    assert kurtosis("gaussian", np.pi / 4) == pytest.approx(0, abs=0.06)


def test_the_plane_is_its_factors_and_idle_coordinates() -> None:
    world = Plane(count=50, ratio=0.5, idle=3)
    x, w = world.observe(np.arange(50)), world.factors_of(np.arange(50))
    np.testing.assert_allclose(x[:, :2], w * [1, 0.5], rtol=1e-6)
    assert x.shape == (50, 5)
    assert not x[:, 2:].any()
    with pytest.raises(ValueError, match="idle >= 0"):
        Plane(idle=-1)
