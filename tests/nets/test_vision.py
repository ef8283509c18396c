"""The supervised models of the generalisation benchmark: their sizes, what they are blind to, and that they learn."""

import numpy as np
import pytest
import torch
from torch import nn

from polariscope.nets.model import Brief, models
from polariscope.nets.readout import Readout
from polariscope.nets.rotation_equivariant import RotationEquivariant, turned_filters
from polariscope.nets.shortcut_nets import DenseNet, ResNet
from polariscope.nets.vision import CNN, CoordConv, MLPRegressor, SetEncoder, SpatialTransformer, WithCoordinates

NAMES = ["mlp-regressor", "cnn", "coordconv", "set-encoder", "spatial-transformer", "rotation-equivariant"]
NAMES += ["resnet", "densenet"]
IMAGE_MODELS = NAMES[1:]
SMALLEST = [name for name in IMAGE_MODELS if name != "set-encoder"]


def built(config, *shape: int, outputs: int = 5, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return config.build(Brief(shape or (1, 32, 32), outputs))


def size(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def images(count: int, *shape: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).random((count, *shape), np.float32))


@pytest.mark.spec("001a/IG-14")
def test_published_sizes() -> None:
    assert size(built(MLPRegressor(), 1, 64, 64)) == 397_625
    cnn = built(CNN(), 1, 64, 64)
    assert size(cnn) == 379_077
    dense = [layer for layer in built(MLPRegressor(), 1, 64, 64) if isinstance(layer, nn.Linear)]
    assert [layer.out_features for layer in dense] == [90, 90, 90, 90, 45, 5]
    convolutions = [layer for layer in cnn.modules() if isinstance(layer, nn.Conv2d)]
    assert [layer.out_channels for layer in convolutions] == [32, 32, 64, 64, 256]
    deeper = built(CNN(extra_layers=3), 1, 64, 64)
    assert sum(isinstance(layer, nn.Conv2d | nn.Linear) for layer in deeper.modules()) == 9
    assert size(deeper) == 379_077 + 3 * (64 * 64 * 9 + 64)
    assert size(built(Readout(), 10)) == 3_925
    localiser = built(SpatialTransformer(), 1, 64, 64).encoder.straightened.localiser
    assert [layer.in_features for layer in localiser if isinstance(layer, nn.Linear)] == [90]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(1, 32, 32), (3, 64, 64)], ids=str)
def test_any_number_of_channels_and_pixels_gives_a_number_for_each_target(name, shape) -> None:
    network = built(models.get(name)(), *shape, outputs=7).eval()
    x = images(3, *shape)
    with torch.no_grad():
        together = network(x)
        assert together.shape == (3, 7)
        torch.testing.assert_close(network(x[1:2]), together[1:2], atol=1e-5, rtol=1e-4)


@pytest.mark.spec("001a/IG-19")
@pytest.mark.parametrize("name", NAMES)
def test_one_batch_is_learned_and_every_weight_with_it(name) -> None:
    network = built(models.get(name)(), 1, 16, 16, outputs=2)
    x = images(6, 1, 16, 16)
    # Brightness and which half is brighter: readable by each of them, also by one that is blind to places.
    target = torch.stack([torch.linspace(0, 1, 6), torch.tensor([0.0, 1, 0, 1, 1, 0])], 1)
    x = x * target[:, :1, None, None] + target[:, 1:, None, None] * (x > 0.7)
    before = {key: weight.detach().clone() for key, weight in network.named_parameters()}
    optimiser = torch.optim.Adam(network.parameters(), 5e-3)
    losses = []
    for _ in range(150):
        optimiser.zero_grad()
        loss = (network(x) - target).square().sum(1).mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
        if loss < 0.02:
            break
    assert losses[-1] < 0.1 < 0.2 < target.var(0, correction=0).sum()
    still = [key for key, weight in network.named_parameters() if torch.equal(weight, before[key])]
    assert not still, "every weight has moved"


@pytest.mark.spec("001a/IG-19")
def test_networks_with_shortcuts_are_small_and_have_them() -> None:
    for config, shape in ((ResNet(), (1, 32, 32)), (ResNet(blocks=2), (3, 64, 64)), (DenseNet(12, 4), (3, 64, 64))):
        assert size(built(config, *shape)) < 300_000
    block = built(ResNet()).encoder.stage1_1.eval()
    x = images(2, 16, 8, 8)
    nn.init.zeros_(block.change[-1].weight)
    torch.testing.assert_close(block(x), x, msg="what adds nothing is the identity")
    dense = built(DenseNet()).encoder.dense1_1.eval()
    assert torch.equal(dense(x)[:, :16], x)
    assert dense(x).shape[1] == 16 + 8


@pytest.mark.spec("001a/IG-15")
def test_coordinates_are_two_channels_from_minus_one_to_one() -> None:
    x = images(2, 3, 5, 9)
    placed = WithCoordinates(5, 9)(x)
    assert torch.equal(placed[:, :3], x)
    rows, columns = placed[:, 3], placed[:, 4]
    assert (placed[:, 3:].amin(), placed[:, 3:].amax()) == (-1, 1)
    torch.testing.assert_close(rows, torch.linspace(-1, 1, 5)[None, :, None].expand(2, 5, 9))
    torch.testing.assert_close(columns, torch.linspace(-1, 1, 9)[None, None, :].expand(2, 5, 9))


@pytest.mark.spec("001a/IG-15")
def test_coordconv_is_told_the_places() -> None:
    """Of a blank image its first layer makes a plane that rises along the coordinates, away from the edges."""
    network = built(CoordConv(), 1, 64, 64)
    first = network.encoder.conv1[0]
    with torch.no_grad():
        plane = first(network.encoder.coordinates(torch.zeros(1, 1, 64, 64)))[0, :, 1:-1, 1:-1]
    slopes = first.weight[:, 1:].sum((2, 3)) * 2 * 2 / 63  # two pixels on, and coordinates that cover two in 63 steps
    torch.testing.assert_close(plane.diff(dim=1)[:, 3, 3], slopes[:, 0], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(plane.diff(dim=2)[:, 3, 3], slopes[:, 1], atol=1e-5, rtol=1e-4)


@pytest.mark.spec("001a/IG-16")
def test_a_set_of_pixels_has_no_order_but_pixels_have_places() -> None:
    network = built(SetEncoder(), 3, 32, 32)
    x, order = images(4, 3, 32, 32), torch.from_numpy(np.random.default_rng(1).permutation(1024))
    encoder = network.encoder
    with torch.no_grad():
        pixels = encoder.pixels(x)
        assert pixels.shape == (4, 1024, 5)
        assert torch.equal(pixels[2, 32 * 7 + 9, :3], x[2, :, 7, 9])
        torch.testing.assert_close(pixels[2, 32 * 7 + 9, 3:], torch.tensor([7 / 31, 9 / 31]))
        features = encoder(x)
        torch.testing.assert_close(encoder.of_pixels(pixels[:, order]), features, atol=1e-6, rtol=1e-5)
        halves = torch.zeros(2, 3, 32, 32)
        halves[0, :, :16] = halves[1, :, 16:] = 1
        upper, lower = encoder(halves)  # the same values in other places
        assert (upper - lower).abs().max() > 0.01 * upper.abs().max()


@pytest.mark.spec("001a/IG-17")
@pytest.mark.parametrize("side", [12, 32])
def test_a_quarter_turn_of_the_image_turns_maps_and_moves_them_on_by_two_orientations(side) -> None:
    network = built(RotationEquivariant(), 2, side, side).double()
    x = images(3, 2, side, side).double()
    turned = x.rot90(1, (2, 3))
    with torch.no_grad():
        answers = [network(x), network(turned)]
        for block in list(network.encoder)[:-1]:
            x, turned = block(x), block(turned)
            by_orientation = x.unflatten(1, (-1, 8)).rot90(1, (3, 4)).roll(2, 2)
            assert by_orientation.std() > 1e-3
            torch.testing.assert_close(turned.unflatten(1, (-1, 8)), by_orientation, atol=1e-10, rtol=1e-10)
    torch.testing.assert_close(*answers, atol=1e-10, rtol=1e-10)


@pytest.mark.spec("001a/IG-17")
def test_eight_orientations_with_an_eighth_of_the_features_or_all_of_them() -> None:
    plain = [layer.out_channels for layer in built(CNN()).modules() if isinstance(layer, nn.Conv2d)]
    for big, share in ((False, 8), (True, 1)):
        network = built(RotationEquivariant(big))
        layers = [block[0] for block in list(network.encoder)[:-1]]
        assert [len(layer.weight) for layer in layers] == [channels // share for channels in plain]
        assert network.head.in_features == 256 // share
        assert layers[1].filters().shape[:2] == (8 * layers[1].weight.shape[0], 8 * layers[1].weight.shape[1])
    assert built(RotationEquivariant(pooled=False)).head.in_features == 256
    # Filters turn by 45 degrees from one orientation to the next: a bar along the rows becomes a diagonal one.
    bar = torch.zeros(5, 5)
    bar[2] = 1
    first, eighth, quarter, *_ = (turned_filters(5) @ bar.flatten()).unflatten(1, (5, 5))
    assert torch.equal(first, bar)
    assert torch.equal(quarter, bar.T)
    rising, falling = eighth.flip(0).diagonal().sum(), eighth.diagonal().sum()
    assert rising > 3
    assert rising > 2.5 * falling


@pytest.mark.spec("001a/IG-18")
@pytest.mark.parametrize("side", [32, 64])
def test_a_spatial_transformer_begins_as_its_cnn(side) -> None:
    network = built(SpatialTransformer(), 1, side, side)
    x = images(3, 1, side, side)
    with torch.no_grad():
        straightened = network.encoder.straightened(x)
        torch.testing.assert_close(straightened, x, atol=1e-5, rtol=0)
        torch.testing.assert_close(network(x), network.head(network.encoder.cnn(x)), atol=1e-4, rtol=1e-4)
        # It can do more than that: a map with a minus sign mirrors.
        network.encoder.straightened.affine.bias[0] = -1
        torch.testing.assert_close(network.encoder.straightened(x), x.flip(3), atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_points_are_refused(name) -> None:
    with pytest.raises(ValueError, match=rf"^{name} is for images, but the data has points of shape \(6,\): use mlp$"):
        built(models.get(name)(), 6)


@pytest.mark.parametrize("name", SMALLEST)
def test_images_that_are_too_small_are_refused(name) -> None:
    with pytest.raises(ValueError, match=f"^{name} needs images of at least 8 x 8 pixels, and these have 4 x 9"):
        built(models.get(name)(), 1, 4, 9)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (
            lambda: built(RotationEquivariant(), 1, 16, 32),
            "needs square images, and these have 16 x 32 pixels: use cnn",
        ),
        (lambda: built(CNN(), 1, 30, 30), "sides of at least 8 that divide by 4"),
        (lambda: built(CNN(), 1, 32, 32, outputs=0), "nothing to predict"),
        (lambda: CNN(-1), "extra_layers is -1"),
        (lambda: CoordConv(0), "channels is 0"),
        (lambda: ResNet(blocks=0), "blocks 0: both need"),
        (lambda: DenseNet(growth=0), "growth is 0"),
    ],
)
def test_settings_that_make_no_network_are_refused(wrong, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        wrong()
