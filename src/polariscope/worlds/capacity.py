"""Checks that data and models fit into memory; if not, the error says what is too large."""

from __future__ import annotations

import math

from polariscope.memory import available_memory

WORKING_BYTES = 320
"""Bytes per pixel of a batch for training the default convolutional model, as measured from 64x64 to 512x512."""
NETWORK_BYTES = 512
"""Bytes per pixel of an image for its widest layers: weights, gradients, two averages."""
FEWEST = 8
"""Images in the smallest useful batch."""
MANY, DRAWN_BYTES = 10**6, 128
"""Number of observations that always fit, and bytes per observation for its number and factors."""
TRAINED_BYTES = 16
"""Bytes per weight in training."""
LARGE, MOST_PACKED = 2**30, 300
"""Data of more unpacked bytes and a higher compression ratio than these is refused; the ratio of dSprites is 120."""


def check_images(shape: tuple[int, ...], count: int, source: str, batch_size: int = FEWEST, advice: str = "") -> None:
    """Refuse images of which one batch does not fit into memory, before any memory is allocated."""
    if len(shape) != 3:
        return
    _, height, width = shape
    together = min(count, batch_size)
    a_pixel = together * WORKING_BYTES + NETWORK_BYTES
    needed = height * width * a_pixel
    free = available_memory()
    if needed <= free:
        return
    # Half of what is free, since others want some, too; a power of two suits convolutions.
    side = 2 ** max(3, math.floor(math.log2(math.sqrt(free / 2 / a_pixel))))
    whole = gigabytes(count * math.prod(shape))
    raise ValueError(
        f"{source}: images of {width}x{height} pixels are too large for this machine: a batch of {together} takes "
        f"about {gigabytes(needed)} in training (the set of {count:,} itself {whole}), and "
        f"{gigabytes(free)} are free; {advice.format(side=side) or f'{side}x{side} pixels would fit'}"
    )


def check_count(count: int, source: str, name: str = "count") -> None:
    """Refuse more observations than have room in free memory for their numbers and factors."""
    if count <= MANY:
        return
    free = available_memory()
    if count * DRAWN_BYTES > free:
        fewer = 10 ** max(0, math.floor(math.log10(free / 2 / DRAWN_BYTES)))
        raise ValueError(
            f"{source}: {name} is {count:,}, and their factors alone take about {gigabytes(count * DRAWN_BYTES)}, but "
            f"{gigabytes(free)} are free; {name}={fewer} (--world.{name} {fewer}) would fit"
        )


def check_weights(parameters: int, latents: int | None) -> None:
    """Refuse a network that does not fit into memory: its weights, their gradients, and two averages of these."""
    needed, free = TRAINED_BYTES * parameters, available_memory()
    if needed <= free:
        return
    advice = "take a smaller model (see --model.*)"
    if latents is not None:  # which are most of what is too large, so weights grow with them
        fewer = max(1, latents * free // (2 * needed))
        advice = f"latents={fewer} (--model.latents {fewer}) would fit"
    raise ValueError(
        f"the model has {parameters:,} weights, which take {gigabytes(needed)} in training, and {gigabytes(free)} are "
        f"free; {advice}"
    )


def check_unpacked(needed: int, source: str, packed: int | None = None) -> None:
    """Refuse to unpack data that does not fit into memory, or whose compression ratio is implausible."""
    free = available_memory()
    if packed is not None and needed > LARGE and needed > MOST_PACKED * packed:
        raise ValueError(
            f"{source}: expected data that was packed up to {MOST_PACKED} times, but {packed:,} bytes would unpack to "
            f"{gigabytes(needed)}; if this is intended, save it without compression (np.save, np.savez, plain IDX)"
        )
    if needed > free:
        raise ValueError(
            f"{source}: unpacking it takes {gigabytes(needed)}, and {gigabytes(free)} are free; save it without "
            "compression (np.save, np.savez, plain IDX), which is read in place"
        )


def gigabytes(count: int) -> str:
    """
    >>> gigabytes(3_400_000_000), gigabytes(20_000_000)
    ('3.4 GB', '0.02 GB')
    """
    return f"{count / 1e9:.{1 if count >= 1e8 else 2}f} GB"
