import numpy as np
import pytest
import torch
from torch import Tensor, nn

from polariscope.examination.traversals import traverse, traverse_plane
from polariscope.manipulation import (
    LocalStructure,
    Noise,
    apply,
    latent_scatter,
    traversal_plane,
    traversal_rows,
    triptych,
)
from polariscope.nets.architecture import MLP
from polariscope.nets.autoencoder import Autoencoder, AutoencoderConfig
from polariscope.worlds.points.synthetic import Plane
from polariscope.worlds.renderers.mini_sprites import MiniSprites


class Shown(nn.Module):
    """Decodes to the code itself, so that a walk can be read off."""

    def generate(self, z: Tensor) -> Tensor:
        return z


START = np.array([0.5, -1.0, 2.0], np.float32)


@pytest.mark.spec("003/F3-079")
def test_a_walk_moves_one_latent_a_row_about_the_start() -> None:
    walked = traverse(Shown(), START, reach=2.5, steps=5)
    assert walked.shape == (3, 5, 3)
    for latent in range(3):
        moved = walked[latent] - START
        np.testing.assert_allclose(moved[:, latent], [-2.5, -1.25, 0, 1.25, 2.5])
        assert not np.delete(moved, latent, axis=1).any()
    np.testing.assert_array_equal(walked[:, 2], np.tile(START, (3, 1)))
    assert traverse(Shown(), START, latents=[2]).shape == (1, 9, 3)


@pytest.mark.spec("003/F3-079")
def test_the_middle_of_a_plane_is_the_decoded_start() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Autoencoder(AutoencoderConfig(latents=3, architecture=MLP((8,), (8,))), (1, 8, 8))
    table = traverse_plane(model, START, (0, 2), steps=(7, 5))
    assert table.shape == (7, 5, 1, 8, 8)
    with torch.no_grad():
        middle = model.generate(torch.from_numpy(START)[None])[0].numpy()
    np.testing.assert_allclose(table[3, 2], middle, atol=1e-6)
    assert np.abs(table[3, 2] - table[0, 0]).max() > 1e-4
    polar = traverse_plane(model, START, (0, 2), steps=(4, 6), coordinates="polar")
    np.testing.assert_allclose(polar[0], np.tile(middle, (6, 1, 1, 1)), atol=1e-6)


@pytest.mark.spec("003/F3-079")
def test_cartesian_and_polar_planes_go_where_they_say() -> None:
    straight = traverse_plane(Shown(), np.zeros(3), (0, 2), reach=2.0, steps=(3, 5))
    np.testing.assert_allclose(straight[1, :, 0], [-2, -1, 0, 1, 2])
    np.testing.assert_allclose(straight[:, 0, 2], [2, 0, -2])  # upwards, as in a graph
    assert not straight[..., 1].any()
    round_ = traverse_plane(Shown(), np.zeros(3), (0, 2), reach=2.0, steps=(3, 4), coordinates="polar")
    np.testing.assert_allclose(np.hypot(round_[..., 0], round_[..., 2]), [[0] * 4, [1] * 4, [2] * 4], atol=1e-6)
    np.testing.assert_allclose(round_[2, :, [0, 2]].T, [[2, 0], [0, 2], [-2, 0], [0, -2]], atol=1e-6)


def test_bad_walks_are_refused() -> None:
    for call, problem in (
        (lambda: traverse(Shown(), START, latents=[3]), "numbered 0 to 2"),
        (lambda: traverse(Shown(), START, steps=1), "at least 2 steps"),
        (lambda: traverse(Shown(), START[None]), "one code"),
        (lambda: traverse_plane(Shown(), START, (1, 1)), "two different latents"),
        (lambda: traverse_plane(Shown(), START, (0, 1), coordinates="round"), "'cartesian' or 'polar'"),  # type: ignore[arg-type]
        (lambda: traversal_rows(Shown(), START), "drawn as images"),
    ):
        with pytest.raises(ValueError, match=problem):
            call()


@pytest.mark.spec("003/F3-079")
def test_walks_are_drawn() -> None:
    model = Autoencoder(AutoencoderConfig(latents=3, architecture=MLP((8,), (8,))), (3, 8, 8))
    rows = traversal_rows(model, START, steps=5)
    assert [label.get_text() for label in rows.axes[0].get_yticklabels()] == ["z0", "z1", "z2"]
    assert rows.axes[0].get_images()[0].get_array().shape[:2] == (3 * 10 - 2, 5 * 10 - 2)
    plane = traversal_plane(model, START, (0, 2), steps=(4, 6), coordinates="polar")
    assert "angle" in plane.axes[0].get_xlabel()
    assert plane.axes[0].get_images()[0].get_array().shape[:2] == (4 * 10 - 2, 6 * 10 - 2)
    assert traversal_plane(model, START, (0, 2)).axes[0].get_xlabel().startswith("z0")


@pytest.mark.spec("003/F3-099")
def test_a_triptych_shows_original_change_and_altered() -> None:
    done = apply(MiniSprites(), Noise(0.1), "noise")
    figure = triptych(done, rows=2, seed=1)
    pictures = [axes.get_images()[0] for axes in figure.axes[:6]]
    for original, change, altered in (pictures[:3], pictures[3:]):
        assert change.get_clim() == (-0.1, 0.1)  # one scale for all
        shown = np.asarray(change.get_array())
        assert 0.05 < np.abs(shown).max() <= 0.1
        difference = np.asarray(altered.get_array()).astype(int) - np.asarray(original.get_array())
        np.testing.assert_allclose(shown, difference / 255, atol=1e-6)
    assert [axes.get_title(loc="left") for axes in figure.axes[:3]] == ["original", "change, ±0.1", "altered"]
    points = triptych(apply(Plane(count=50), LocalStructure(0.3), "local"))
    low, high = points.axes[1].get_ylim()
    assert -0.32 < low < -0.3 < 0.3 < high < 0.32


def test_latents_are_drawn_against_factors() -> None:
    w = np.random.default_rng(0).normal(size=(300, 2))
    figure = latent_scatter(w[:, [0, 1, 0]], w, ["a", "b"])
    assert len(figure.axes) == 6
    offsets = np.asarray(figure.axes[0].collections[0].get_offsets())
    np.testing.assert_allclose(offsets[:, 0], offsets[:, 1])
    assert [axes.get_xlabel() for axes in figure.axes[-2:]] == ["a", "b"]
    with pytest.raises(ValueError, match=r"factors \(n, 1\)"):
        latent_scatter(w, w, ["a"])
