"""Noise generators: their sizes, what they are at first, and which pixels may know of each other."""

import pytest
import torch

from polariscope.nets.noise_generator import NoiseGenerator


def size(generator: NoiseGenerator) -> int:
    return sum(p.numel() for p in generator.parameters())


@pytest.mark.spec("001b/A-06", "001b/A-07", "001b/A-08")
def test_sizes_are_the_published_ones() -> None:
    depths = range(1, 6)
    assert [size(NoiseGenerator(3, depth=d)) for d in depths] == [12, 143, 563, 983, 1403]
    assert [size(NoiseGenerator(1, depth=d)) for d in depths] == [2, 61, 481, 901, 1321]
    assert [size(NoiseGenerator(channels, kernel=3)) for channels in (3, 1)] == [4183, 4101]


def trained(kernel: int) -> NoiseGenerator:
    """A generator as training may leave it: far from its start, with neighbours that are added up."""
    generator = NoiseGenerator(1, kernel)
    for parameter in generator.parameters():
        torch.nn.init.uniform_(parameter, 0, 0.2)
    return generator


def lag_correlations(noise: torch.Tensor) -> dict[tuple[int, int], float]:
    """Correlation of one channel's pixels with those some rows and columns further."""
    apart = [(r, c) for r in range(5) for c in range(5) if (r, c) != (0, 0)]
    centred = (noise - noise.mean()) / noise.std()
    rows, columns = noise.shape[2:]
    return {(r, c): (centred[..., r:, c:] * centred[..., : rows - r, : columns - c]).mean().item() for r, c in apart}


@pytest.mark.spec("001b/A-06", "001b/A-07")
@pytest.mark.parametrize("kernel", [1, 3])
@torch.no_grad()
def test_a_new_generator_gives_gaussian_noise(kernel) -> None:
    torch.manual_seed(0)
    generator = NoiseGenerator(2, kernel)
    z = torch.randn(50, 2, 20 + 2 * generator.border, 20 + 2 * generator.border)
    noise = generator(z)
    assert noise.shape == (50, 2, 20, 20)
    inner = z if kernel == 1 else z[..., 1:-1, 1:-1]
    assert torch.corrcoef(torch.stack([noise.flatten(), inner.flatten()]))[0, 1] > 0.999
    assert noise.std() == pytest.approx(1, abs=0.02)
    assert ((noise - noise.mean()) / noise.std()).pow(4).mean() == pytest.approx(3, abs=0.15)
    assert max(map(abs, lag_correlations(noise).values())) < 0.02


@pytest.mark.spec("001b/A-06", "001b/A-07")
@pytest.mark.parametrize(("kernel", "reach"), [(1, 0), (3, 2)])
@torch.no_grad()
def test_pixels_know_of_each_other_up_to_their_lag(kernel, reach) -> None:
    torch.manual_seed(1)
    generator = trained(kernel)
    result = lag_correlations(generator.noise_for(torch.zeros(200, 1, 24, 24)))
    near = {lag for lag in result if max(lag) <= reach}
    assert max(abs(value) for lag, value in result.items() if lag not in near) < 0.015
    if near:
        assert min(result[lag] for lag in near) > 0.03
        assert result[0, 1] > 0.3


@pytest.mark.spec("001b/A-06", "001b/A-07")
@pytest.mark.parametrize("kernel", [1, 3])
@torch.no_grad()
def test_a_pixel_of_z_moves_its_own_patch_only(kernel) -> None:
    torch.manual_seed(2)
    generator = NoiseGenerator(3, kernel)
    for parameter in generator.parameters():
        torch.nn.init.normal_(parameter, std=0.6)
    border = generator.border
    z = torch.randn(1, 3, 9 + 2 * border, 9 + 2 * border)
    moved = z.clone()
    moved[0, 1, 4 + border, 5 + border] += 1
    changed = (generator(moved) != generator(z))[0].any(0)
    rows, columns = changed.nonzero(as_tuple=True)
    assert (rows.min(), rows.max()) == (4 - border, 4 + border)
    assert (columns.min(), columns.max()) == (5 - border, 5 + border)


def test_noise_of_points_and_wrong_shapes() -> None:
    assert NoiseGenerator(1, 3).noise_for(torch.zeros(4, 6)).shape == (4, 6)
    with pytest.raises(ValueError, match="noise of 1 channels"):
        NoiseGenerator(1).noise_for(torch.zeros(4, 3, 8, 8))
    with pytest.raises(ValueError, match="kernel of 1 or 3"):
        NoiseGenerator(1, 2)


@torch.no_grad()
def test_noise_by_the_weights_of_another() -> None:
    """A generator that is kept in one row makes the noise that it made itself."""
    torch.manual_seed(0)
    one, other, x = trained(3), trained(3), torch.zeros(2, 1, 5, 5)
    torch.manual_seed(1)
    own = one.noise_for(x)
    torch.manual_seed(1)
    assert torch.equal(other.noise_for(x, one.in_a_row()), own)
