import numpy as np
import pytest
import torch

from polariscope.manipulation import local_global, local_global_of_decoder, manipulate, pca_score, preservation
from polariscope.manipulation.checks import collisions
from polariscope.worlds import ArrayWorld, Factor
from polariscope.worlds.points.synthetic import Gaussian, Plane
from polariscope.worlds.renderers.blobs import Blobs
from polariscope.worlds.renderers.mini_sprites import MiniSprites


@pytest.mark.spec("003/F3-062")
@pytest.mark.parametrize("kind", ["local", "noise"])
def test_a_small_change_leaves_the_factors_recoverable(kind: str) -> None:
    for world, epsilon in ((Plane(count=3000), 0.25), (Blobs(count=1500), 0.1)):
        result = preservation(world, manipulate(world, kind, epsilon=epsilon))
        assert min(result.before) > 0.98
        assert abs(result.largest_loss) < 0.02
        assert result.injective


@pytest.mark.spec("003/F3-062")
def test_a_change_that_hides_a_factor_is_found_out() -> None:
    world = Blobs(count=800)
    images = world.observe(np.arange(800))
    frozen = ArrayWorld(
        np.repeat(images.max(axis=3, keepdims=True), 16, axis=3), world.factors_of(np.arange(800)), world.factors
    )
    result = preservation(world, frozen)
    assert result.before[0] > 0.98
    assert result.after[0] < 0.5
    assert result.largest_loss > 0.5


@pytest.mark.spec("003/F3-062")
def test_observations_that_became_alike_are_counted() -> None:
    world = MiniSprites()
    images = world.observe(np.arange(len(world))).copy()
    images[7] = images[3]
    same = ArrayWorld(images, world.factors_of(np.arange(len(world))), world.factors)
    result = preservation(world, same)
    assert (result.collisions_before, result.collisions_after, result.injective) == (0, 2, False)
    assert collisions(np.zeros((4, 2)), np.zeros((4, 1))) == 0  # alike, and of the same factors


def test_worlds_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(ValueError, match="same observations"):
        preservation(Plane(count=100), Plane(count=99))


@pytest.mark.spec("003/F3-063")
def test_a_linear_world_has_one_structure() -> None:
    """Local and global metric agree, with eigenvalues that are the variances along the factors."""
    result = local_global(Plane(count=5000, ratio=0.5))
    np.testing.assert_allclose(result.local_variance, [1, 0.25], rtol=0.05)
    assert result.between < 1e-3
    assert result.local_distance < 1e-5
    turned = Gaussian(count=2000, spectrum=(4.0, 1.0))  # turned in the data, not in the factors
    assert local_global(turned).local_angle == pytest.approx(0, abs=1e-2)


@pytest.mark.spec("003/F3-063")
def test_mixed_factors_show_as_an_angle() -> None:
    w = np.random.default_rng(0).normal(size=(3000, 2)).astype(np.float32)
    x = w @ np.array([[1.0, 0.5], [1.0, -0.5]])  # the sum of the factors has twice the slope of the difference
    world = ArrayWorld(x, w, (Factor("a", 0), Factor("b", 0)))
    result = local_global(world)
    assert result.local_angle == pytest.approx(45, abs=1.5)
    assert result.global_angle == pytest.approx(45, abs=1.5)
    assert pca_score(world) < 0.2
    assert pca_score(Plane(count=3000)) > 0.9


def test_grids_are_compared_step_by_step() -> None:
    """x and y of the sprites move the image most, whatever the number of other values."""
    result = local_global(MiniSprites())
    assert np.abs(result.local[3:, 0]).max() > 0.6


@pytest.mark.spec("003/F3-063")
def test_a_decoder_is_compared_in_its_latents() -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(500, 2, generator=generator, dtype=torch.float64)

    def decode(z: torch.Tensor) -> torch.Tensor:
        wave = 2 * z.sum(1, keepdim=True)
        return torch.cat([z * torch.tensor([1, 0.8]), 0.35 * wave.sin(), 0.35 * wave.cos()], dim=1)

    result = local_global_of_decoder(decode, z)
    assert result.local_angle == pytest.approx(34.91, abs=0.01)  # exact: the metric is the same everywhere
    assert result.global_angle < 5
    with pytest.raises(ValueError, match="has none"):
        local_global(ArrayWorld(np.eye(4)))
