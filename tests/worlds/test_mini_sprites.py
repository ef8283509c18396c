"""The toy of the studies: small, distinct, and the same geometry as the sprite world."""

import numpy as np
import pytest

from polariscope.worlds.renderers.mini_sprites import MiniSprites
from polariscope.worlds.renderers.sprites import Sprites


@pytest.mark.spec("003/F3-050")
def test_no_two_images_coincide() -> None:
    world = MiniSprites()
    images = world.observe(np.arange(len(world))).reshape(len(world), -1)
    assert len(np.unique(images, axis=0)) == len(world) == 1296


@pytest.mark.spec("003/F3-050")
def test_x_and_y_move_images_alike() -> None:
    """Equal local variance of the two positions: the degeneracy that leaves the orientation of a code to chance."""
    world = MiniSprites()
    squares = world.grid.to_factors(np.arange(len(world)))
    inner = squares[(squares[:, 0] == 0) & (squares[:, 2] == 0) & (squares[:, 3] < 5) & (squares[:, 4] < 5)]
    images = world.render(inner).astype(float)
    along_x, along_y = (world.render(inner + step).astype(float) - images for step in np.eye(5, dtype=int)[3:])
    ratio = (along_x**2).sum() / (along_y**2).sum()
    assert ratio == pytest.approx(1, abs=0.02)


def test_it_is_the_sprite_world_averaged_down() -> None:
    world = MiniSprites()
    fine = Sprites(size=48).render_continuous(2, world.factors[1].values[1], world.factors[2].values[3], 0.2, 0.6)
    coarse = fine.reshape(12, 4, 12, 4).mean((1, 3))
    np.testing.assert_allclose(world.render([[2, 1, 3, 1, 3]])[0, 0], coarse, atol=0.5)


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one of scales; got 0"):
        MiniSprites(scales=0)
    with pytest.raises(ValueError, match="at least 4 pixels"):
        MiniSprites(size=2)
