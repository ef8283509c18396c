"""Weather and light: snow, frost, fog, liquids on the lens, and more light."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polariscope.worlds.views.corruptions.blur import streaked
from polariscope.worlds.views.corruptions.corruption import Draws, Images
from polariscope.worlds.views.corruptions.resampling import blurred, soft_noise, tents, through

LUMINANCE = np.array([0.299, 0.587, 0.114], np.float32)[:, None, None]
ICE = (0.86, 0.94, 1.0)
Colour = tuple[float, float, float]


def grey(images: Images) -> Images:
    """Luminance of coloured pictures; others, channel by channel, are grey already."""
    return (images * LUMINANCE).sum(1, keepdims=True) if images.shape[1] == 3 else images


def paint(colour: Colour, images: Images) -> NDArray[np.float32]:
    """A colour for pictures of three channels, and its luminance for others."""
    shade = np.array(colour, np.float32)[:, None, None]
    return shade if images.shape[1] == 3 else (shade * LUMINANCE).sum(0, keepdims=True)


def snow(
    images: Images,
    draws: Draws,
    scale: float,
    mean: float,
    sd: float,
    size: float,
    threshold: float,
    radius: int,
    streak: float,
    mix: float,
) -> Images:
    """Flakes in streaks from above, the same again upside down, over a picture that turns white.

    Flakes are ``size`` published pixels large, but at least one pixel, because smaller ones would not be seen.
    """
    sides, cell = images.shape[2:], max(1.0, size * scale)
    cells = [int(np.ceil((side - 1) / cell)) + 1 for side in sides]
    flakes = mean + np.float32(sd) * draws.normal("flakes", 1, *cells)
    enlarged = (tents(np.arange(side) / cell, 0, count) for side, count in zip(sides, cells, strict=True))
    flakes = through(flakes, *enlarged)
    flakes = np.where(flakes < threshold, np.float32(0), flakes).clip(0, 1)
    angles = np.pi / 4 * (2 * draws.uniform("angle", 1)[:, 0] - 1)
    fallen = streaked(flakes.swapaxes(2, 3), angles, radius, streak, scale).swapaxes(2, 3)
    white = np.maximum(images, grey(images) * 1.5 + 0.5)
    return np.float32(mix) * images + np.float32(1 - mix) * white + fallen + fallen[:, :, ::-1, ::-1]


def fog(images: Images, draws: Draws, scale: float, strength: float, decay: float) -> Images:
    """Clouds are added, and all is dimmed so that the brightest possible pixel is as bright as the brightest was."""
    brightest = images.max((1, 2, 3), keepdims=True)
    clouded = images + np.float32(strength) * plasma(images, draws, decay)
    return clouded * (brightest / (brightest + np.float32(strength)))


def frost(images: Images, draws: Draws, scale: float, picture: float, ice: float) -> Images:
    """Frost: ``picture`` times itself and ``ice`` times the ice.

    The published ice is six photographs. Here it is a fractal texture above a threshold, in fronds along the ridges of
    another one: it covers and dims as ice does, with other details.
    """
    covered = ((plasma(images, draws, 1.4, "cover") - 0.4) * 4).clip(0, 1)
    fronds = 1 - np.abs(2 * plasma(images, draws, 1.2, "fronds") - 1)
    texture = covered * (0.3 + 0.7 * fronds**2)
    return np.float32(picture) * images + np.float32(ice) * texture * paint(ICE, images)


def plasma(images: Images, draws: Draws, decay: float, what: str = "clouds") -> Images:
    """Fractal clouds from 0 to 1 ``(n, 1, height, width)`` by midpoints (diamond-square), on a torus.

    The published code multiplies its step with a number drawn up to that step: what is added therefore shrinks with the
    square of ``decay`` from level to level, as here.
    """
    side = 1 << int(np.ceil(np.log2(max(images.shape[2:]))))
    u = 2 * draws.uniform(what, side, side) - 1
    height = np.zeros_like(u)
    step, reach = side, np.float32(1)
    while step > 1:
        half = step // 2
        corners = height[:, ::step, ::step]
        sides = corners + np.roll(corners, -1, 1)
        middles = (slice(None), slice(half, None, step), slice(half, None, step))
        height[middles] = (sides + np.roll(sides, -1, 2)) / 4 + reach * u[middles]
        for axis, places in (
            (1, (slice(None), slice(None, None, step), slice(half, None, step))),
            (2, (slice(None), slice(half, None, step), slice(None, None, step))),
        ):
            # Two middles of squares on one axis, and two of their corners on the other.
            inner = height[middles] + np.roll(height[middles], 1, axis)
            height[places] = (inner + corners + np.roll(corners, -1, 3 - axis)) / 4 + reach * u[places]
        step, reach = half, reach / np.float32(decay**2)
    height -= height.min((1, 2), keepdims=True)
    height /= height.max((1, 2), keepdims=True)
    return height[:, None, : images.shape[2], : images.shape[3]]


def brightness(images: Images, draws: Draws, scale: float, more: float) -> Images:
    """Value in the sense of hue, saturation and value is raised; in pictures without colours each number is."""
    if images.shape[1] != 3:
        return images + np.float32(more)
    value = images.max(1, keepdims=True)
    brighter = (value + np.float32(more)).clip(0, 1)
    return np.where(value > 0, images * (brighter / np.where(value > 0, value, 1)), brighter)


def saturate(images: Images, draws: Draws, scale: float, factor: float, more: float) -> Images:
    """Saturation in the sense of hue, saturation and value is changed; grey has the hue of red, as is usual."""
    value, least = images.max(1, keepdims=True), images.min(1, keepdims=True)
    spread = value - least
    pale = spread == 0
    saturation = spread / np.where(value > 0, value, 1)
    wanted = (saturation * np.float32(factor) + np.float32(more)).clip(0, 1)
    red = np.array([0, 1, 1], np.float32)[:, None, None]
    distance = np.where(pale, red, (value - images) / np.where(pale, 1, spread))
    return value - value * wanted * distance


def water(
    images: Images, draws: Draws, scale: float, mean: float, sd: float, size: float, threshold: float, strength: float,
    colour: Colour,
) -> Images:  # fmt: skip
    """Drops that are lit from one side.

    In the published code their light comes from the distance to their rims, equalised; here from their heights.
    """
    drops = mean + np.float32(sd) * soft_noise(draws.normal("liquid", 1, *images.shape[2:]), size, scale)
    drops = np.where(drops < threshold, np.float32(0), drops)
    height = np.pad(blurred((drops > 0).astype(np.float32), 4, scale), ((0, 0), (0, 0), (1, 1), (1, 1)), mode="edge")
    lit = np.maximum(height[:, :, 2:, 2:] - height[:, :, :-2, :-2], 0)
    shine = drops * (0.3 * lit.max((1, 2, 3), keepdims=True) + lit)
    shine /= np.maximum(shine.max((1, 2, 3), keepdims=True), np.float32(1e-12))
    return images + np.float32(strength) * shine * paint(colour, images)


def mud(
    images: Images, draws: Draws, scale: float, mean: float, sd: float, size: float, threshold: float, soft: float,
    colour: Colour,
) -> Images:  # fmt: skip
    """Spots that cover what is behind them."""
    layer = mean + np.float32(sd) * soft_noise(draws.normal("liquid", 1, *images.shape[2:]), size, scale)
    spots = blurred((layer > threshold).astype(np.float32), soft, scale)
    spots = np.where(spots < 0.8, np.float32(0), spots)
    return images * (1 - spots) + spots * paint(colour, images)


def spatter(images: Images, draws: Draws, scale: float, wet: bool, *settings: object) -> Images:
    """Drops of water on the lens, or spots of mud."""
    return (water if wet else mud)(images, draws, scale, *settings)  # type: ignore[arg-type]
