"""Stitched predictions are those of the whole raster, for any window, padding, depth and size."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from polariscope.mapping.windows import predicted, read_mirrored, windows
from polariscope.nets.unet import UNet, with_channels

BANDS = 2


def network(depth: int = 3, padding: str = "same") -> UNet:
    torch.manual_seed(0)
    return UNet(BANDS, 3, depth, 2, padding).eval()


def stitched(net: UNet, raster: np.ndarray, size: int | None) -> np.ndarray:
    _, height, width = raster.shape
    out = np.full((3, height, width), np.nan)
    for window in windows(height, width, net, size):
        pixels = read_mirrored(lambda r, c, h, w: raster[:, r : r + h, c : c + w], window, height, width)
        part = out[:, slice(*window.rows), slice(*window.columns)]
        assert np.isnan(part).all(), "each pixel is predicted once"
        with torch.no_grad():
            part[:] = predicted(net, net, torch.from_numpy(pixels), window).numpy()
    assert not np.isnan(out).any(), "and none is left out"
    return out


@pytest.mark.spec("000/F038")
@settings(max_examples=25)
@given(
    st.integers(36, 71),
    st.integers(36, 71),
    st.integers(8, 50),
    st.sampled_from(["same", "valid"]),
    st.integers(1, 3),
)
def test_stitched_is_whole(height: int, width: int, size: int, padding: str, depth: int) -> None:
    raster = np.random.default_rng(0).random((BANDS, height, width)).astype(np.float32)
    net = network(depth, padding)
    np.testing.assert_allclose(stitched(net, raster, size), stitched(net, raster, None), atol=1e-6)


def test_a_halo_smaller_than_what_the_network_sees_would_be_noticed() -> None:
    raster = np.random.default_rng(0).random((BANDS, 64, 64)).astype(np.float32)
    net = network()
    net.head.weight.data *= 30  # the outermost pixels have little weight in a small random network
    whole = stitched(net, raster, None)

    class Narrow(UNet):
        halo = 16

    net.__class__ = Narrow
    assert np.abs(stitched(net, raster, 16) - whole).max() > 1e-6


@pytest.mark.spec("000/F109")
def test_a_shift_by_both_poolings_shifts_the_valid_prediction_exactly() -> None:
    net = network(padding="valid")
    x = torch.rand(1, BANDS, 80, 80)
    with torch.no_grad():
        first, second = net(x[:, :, :76, :76]), net(x[:, :, 4:, 4:])
    torch.testing.assert_close(first[:, :, 4:, 4:], second[:, :, :-4, :-4], atol=1e-6, rtol=0)
    assert not torch.allclose(first[:, :, 2:, 2:], net(x[:, :, 2:78, 2:78])[:, :, :-2, :-2], atol=1e-6)


@pytest.mark.spec("000/F114")
def test_a_channel_added_with_zero_weights_leaves_the_prediction() -> None:
    net = network()
    x = torch.rand(1, 3, 40, 40)
    with torch.no_grad():
        before = net(x[:, :BANDS])
        after = with_channels(net, 3)(x)
    torch.testing.assert_close(before, after, atol=1e-6, rtol=1e-6)
    assert net.down[0][0].weight.requires_grad


def test_rasters_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"the raster has 31 x 100 pixels, and the network needs at least 32 x 32"):
        windows(31, 100, network())
    with pytest.raises(ValueError, match=r"a window has 3 pixels a side: it needs at least 4"):
        windows(64, 64, network(), 3)
