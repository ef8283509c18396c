import numpy as np
import pytest

from polariscope.manipulation import LocalStructure, PlaneTheory, apply, local_global, manipulate, pca_score
from polariscope.theory.orthogonal_noise import gram_gap
from polariscope.worlds.points.synthetic import Plane
from polariscope.worlds.renderers.blobs import Blobs
from polariscope.worlds.renderers.mini_sprites import MiniSprites

ROWS = [
    (0.8, 3.0, 0.25, 36.13, 0.038, 0.0922),
    (0.8, 2.0, 0.35, 34.91, 0.075, 0.0769),
    (0.7, 4.0, 0.25, 37.85, 0.042, None),
]


@pytest.mark.spec("003/F3-061")
@pytest.mark.parametrize(("a", "k", "epsilon", "angle", "added", "gap"), ROWS)
def test_the_closed_forms_are_the_tabulated_ones(a, k, epsilon, angle, added, gap) -> None:
    theory = PlaneTheory(a, k, epsilon)
    assert theory.angle == pytest.approx(angle, abs=0.005)
    assert theory.added_variance == pytest.approx(added, abs=5e-4)
    leading = np.linalg.eigh(theory.metric)[1][:, -1]
    assert np.degrees(np.arctan(leading[1] / leading[0])) == pytest.approx(theory.angle, abs=1e-9)
    assert theory.gap == pytest.approx(float(gram_gap(theory.metric)), abs=1e-12)
    if gap is not None:
        assert theory.gap == pytest.approx(gap, abs=5e-5)


@pytest.mark.spec("003/F3-061")
@pytest.mark.parametrize(("a", "k", "epsilon", "angle", "added", "gap"), ROWS)
def test_the_plane_is_changed_as_written(a, k, epsilon, angle, added, gap) -> None:
    world = Plane(count=20_000, ratio=a, seed=1)
    done = apply(world, LocalStructure(epsilon, k), "local")
    x, w = done.world.observations.astype(np.float64), world.factors_of(np.arange(20_000)).astype(np.float64)
    standard = (w - w.mean(0)) / w.std(0)
    wave = np.stack([np.sin(k * standard.sum(1)), np.cos(k * standard.sum(1))], axis=1)
    np.testing.assert_allclose(x[:, 2:], epsilon * wave, atol=2e-5)
    np.testing.assert_array_equal(x[:, :2], world.observe(np.arange(20_000))[:, :2])
    assert done.size.max_norm == pytest.approx(epsilon, abs=1e-6)
    assert done.size.mean_square == pytest.approx(epsilon**2, rel=1e-5)
    assert done.size.added_variance == pytest.approx(added, abs=3e-3)
    covariance = np.cov(standard[:, 0], x[:, 2])[0, 1]
    assert covariance == pytest.approx(PlaneTheory(a, k, epsilon).covariance, abs=4 * epsilon / np.sqrt(20_000))


@pytest.mark.spec("003/F3-063", "003/F3-061")
@pytest.mark.parametrize(("a", "k", "epsilon", "angle", "added", "gap"), ROWS)
def test_local_structure_turns_and_global_structure_does_not(a, k, epsilon, angle, added, gap) -> None:
    world = Plane(count=20_000, ratio=a)
    altered = manipulate(world, "local", epsilon=epsilon, frequency=k)
    before, after = local_global(world), local_global(altered)
    assert (before.local_angle, before.global_angle) == (pytest.approx(0, abs=0.01), pytest.approx(0, abs=0.01))
    assert after.local_angle == pytest.approx(angle, abs=1.5)
    assert after.global_angle < 0.2
    assert after.between == pytest.approx(angle, abs=1.5)
    assert pca_score(altered) == pytest.approx(pca_score(world), abs=0.01)
    assert pca_score(altered) > 0.9


def test_images_get_a_running_grating() -> None:
    world = Blobs(count=1500, reach=(3.0, 2.5), size=16, law="gaussian")
    done = apply(world, LocalStructure(0.1, 3.0), "local")
    assert done.size.coordinates == 256
    assert done.size.max_norm <= 0.1 + 1e-6
    assert local_global(done.world).local_angle > local_global(world).local_angle + 5
    some = apply(MiniSprites(), LocalStructure(0.1, 2.0, ("x",)), "local")
    change = some.change_of(np.arange(len(some.world)))
    x = some.world.factors_of(np.arange(len(some.world)))[:, 3]
    plain_background = MiniSprites().observe(np.arange(1296)).reshape(1296, -1) == 0
    corner = plain_background[:, 0]
    for value in range(6):  # the change of a pixel that is black throughout depends on x alone
        assert len(np.unique(change[corner & (x == value), 0, 0, 0])) == 1


def test_bad_waves_are_refused() -> None:
    with pytest.raises(ValueError, match="frequency > 0"):
        LocalStructure(frequency=0)
    with pytest.raises(ValueError, match="no factor 'w_3'.*w_0"):
        manipulate(Plane(count=10), "local", factors=("w_3",))


@pytest.mark.spec("003/F3-061")
def test_the_cheapest_diagonal_code_is_turned_by_the_local_angle() -> None:
    """What a VAE pays for a code that is turned by an angle is least at the local angle, and at 0 on the original."""
    turns = np.deg2rad(np.arange(0, 90, 0.05))
    rotation = np.stack([np.cos(turns), -np.sin(turns), np.sin(turns), np.cos(turns)], axis=1).reshape(-1, 2, 2)
    noise = 0.005 * np.eye(2)  # beta / 2
    theory = PlaneTheory(0.8, 2.0, 0.35)
    for metric, angle in ((theory.metric, theory.angle), (np.diag([1, 0.64]), 0.0)):
        cost = gram_gap(rotation.swapaxes(1, 2) @ metric @ rotation + noise)
        assert np.degrees(turns[np.argmin(cost)]) % 90 == pytest.approx(angle, abs=0.05)
