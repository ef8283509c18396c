"""The toy of the studies: small, distinct, and the same geometry as the sprite world."""

import numpy as np
import pytest

from polariscope.worlds.mini_sprites import MiniSprites
from polariscope.worlds.sprites import Sprites


def test_no_two_images_coincide() -> None:
    world = MiniSprites()
    images = world.observe(np.arange(len(world))).reshape(len(world), -1)
    assert len(np.unique(images, axis=0)) == len(world) == 1296


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
