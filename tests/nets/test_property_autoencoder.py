"""Sizes of the published networks of the conditional-invariance work (Spec 000, sections 6.6 to 6.8)."""

from dataclasses import replace

import pytest
import torch

from polariscope.nets.architecture import MLP
from polariscope.nets.model import Brief
from polariscope.nets.property_autoencoder import AS_PRINTED, PropertyAutoencoderConfig
from polariscope.nets.sprite_conv import SpriteConv


def sizes(config: PropertyAutoencoderConfig, brief: Brief) -> list[int]:
    """Parameters of the encoder with its head, of the decoder of observations, and of that of the property."""
    model = config.build(brief)
    parts = ([model.encoder, model.head], [model.decoder], [model.property_decoder])
    return [sum(p.numel() for part in several for p in part.parameters()) for several in parts]


@pytest.mark.spec("000/F075")
def test_the_networks_have_the_published_numbers_of_parameters() -> None:
    points = Brief((5,), 3, posterior="unit")
    assert sizes(AS_PRINTED, points) == [69_384, 69_381, 1_795]
    sprites = PropertyAutoencoderConfig(5, 1, SpriteConv(), property_widths=(1200, 1200, 4096), property_bounded=True)
    assert sizes(sprites, Brief((1, 64, 64), 1, posterior="unit")) == [120_517, 248_193, 6_366_993]
    molecules = PropertyAutoencoderConfig(
        17, 1, MLP((1024, 1024), (1024, 1024), decoder_activation="relu"), property_widths=(128, 128)
    )
    assert sizes(molecules, Brief((190,), 1, posterior="unit")) == [1_262_609, 1_262_782, 16_897]


def test_weights_are_kaiming_normal_or_glorot_uniform() -> None:
    torch.manual_seed(0)
    brief = Brief((5,), 3, posterior="unit")
    for layer in AS_PRINTED.build(brief).decoder.modules():
        if isinstance(layer, torch.nn.Linear):
            assert layer.weight.var().item() == pytest.approx(2 / layer.in_features, rel=0.2)
    layers = [m for m in replace(AS_PRINTED, weights="glorot").build(brief).modules() if isinstance(m, torch.nn.Linear)]
    assert len(layers) == 8, "those of encoder, code and both decoders"
    for layer in layers:
        limit = (6 / (layer.in_features + layer.out_features)) ** 0.5
        assert 0.95 * limit < layer.weight.abs().max().item() <= limit
        assert not layer.bias.any()


def test_the_sprite_architecture_takes_other_sides_and_refuses_odd_ones() -> None:
    config = PropertyAutoencoderConfig(5, 2, SpriteConv(16), property_widths=(4,))
    model = config.build(Brief((3, 32, 16), 2, posterior="unit"))
    x = torch.rand(2, 3, 32, 16)
    assert model.reconstruct(x).shape == x.shape
    assert model.predict_property(x).shape == (2, 2)
    assert model.decode_property(torch.rand(2, 2), torch.rand(2, 3)).shape == x.shape
    with pytest.raises(ValueError, match="sides that divide by 16"):
        config.build(Brief((1, 24, 32), 2))
    with pytest.raises(ValueError, match="observations of shape"):
        model.encode(x[:, :1])
