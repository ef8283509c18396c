"""Silhouettes of people who walk by, drawn instead of downloaded: a stand-in for KITTI Masks.

Klindt, Schott, Sharma and others, Towards nonlinear disentanglement in natural data with temporal sparse coding (2021),
appendix D.5; Spec 001a, section 4.6. Steps of position and area have about the published law. They stay sparse over
many frames, because what is drawn from the law's wide range is how lively a whole sequence is: sums of steps that were
independent would tend to a normal density.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter
from scipy.special import polygamma, psi

from polariscope.registry import Settings
from polariscope.worlds.capacity import check_count
from polariscope.worlds.mask_sequences import FEWEST, Clips, Masks, MaskWorld, visible_runs
from polariscope.worlds.renderers.natural_increments import FACTORS, PUBLISHED
from polariscope.worlds.world import worlds

Floats = NDArray[np.float64]

LONGEST = 710
"""Frames of the longest published sequence."""
INERTIA = 0.6
"""Correlation of a step with the one before it."""
LIVELINESS = 0.5
"""Correlation of how lively a sequence is in x, y and area."""
WINDOW = 64
AREAS = (60.0, 900.0)
TYPICAL_AREA, AREA_SPREAD = 180.0, 0.5
"""Areas are log-normal about the middle of a sequence: the median, and the standard deviation of the logarithm."""
FILLED = 0.165
"""The area of a silhouette is about this share of its height's square."""
STRIDE, SWING = 0.7, 0.45
"""In heights what two steps take, and how far legs swing, the tangent of the angle."""


@worlds.register("masks")
@dataclass(frozen=True)
class Walkers(MaskWorld):
    """Silhouettes of walking people, frame by frame, in windows like those of KITTI Masks.

    Legs swing with the distance walked; position and size change by steps that are mostly small. A frame with fewer
    than ``fewest`` pixels in the window is dropped and ends the sequence, and sequences have at least two frames.
    Factors are the centre of mass and the area of the visible mask. The view ``frame-pairs`` makes pairs of it.

    >>> world = Walkers(sequences=5)
    >>> world.shape, [factor.name for factor in world.factors]
    ((1, 64, 64), ['y', 'x', 'area'])
    """

    examples: ClassVar[tuple[Settings, ...]] = ({"sequences": 8},)

    sequences: int = 200
    """Sequences that are drawn; the publication has 2,120."""
    length: float = 40.0
    """Mean number of frames of a sequence, before it may have left the window."""
    fewest: int = FEWEST
    """Smallest number of pixels in a frame, for a 64 x 64 window; scaled for other sizes."""
    size: int = WINDOW
    """Pixels a side; the publication has 64."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.sequences < 1 or not 2 <= self.length <= LONGEST:
            raise ValueError(
                f"masks need at least 1 sequence of 2 to {LONGEST} frames in the mean; got {self.sequences} of "
                f"{self.length}"
            )
        check_count(self.sequences, "masks", "sequences")
        if self.fewest < 1:
            raise ValueError(f"a mask has at least 1 pixel; got fewest={self.fewest}")
        if self.size < 8:
            raise ValueError(f"masks have at least 8 pixels a side; got {self.size}")

    @cached_property
    def clips(self) -> Clips:
        return Clips.of(self._seen())

    def _seen(self) -> Iterator[Masks]:
        rng = np.random.default_rng(self.seed)
        for _ in range(self.sequences):
            x, y, height, phase = walk(self.length, rng)
            finer = self.size / WINDOW
            masks = silhouettes(x * finer, y * finer, height * finer, phase, self.size)
            yield from (masks[run] for run in visible_runs(masks, math.ceil(self.fewest * finer**2)))


def liveliness(rng: np.random.Generator) -> Floats:
    """Standard deviations of the steps of x, y and area within one sequence.

    Log-normal, so that the logarithm of a step's size, normal times log-normal, has the mean and the variance that it
    has under the published law: ψ(1/α)/α + ln s and ψ'(1/α)/α².
    """
    fits = [PUBLISHED["kitti"][name]["generalised"] for name in FACTORS]
    inverse = 1 / np.array([fit.alpha for fit in fits])
    of_normal = (psi(0.5) + np.log(2)) / 2, polygamma(1, 0.5) / 4
    mean = np.log([fit.scale for fit in fits]) + inverse * psi(inverse) - of_normal[0]
    var = inverse**2 * polygamma(1, inverse) - of_normal[1]
    common, own = rng.standard_normal(), rng.standard_normal(3)
    normal = np.sqrt(LIVELINESS) * common + np.sqrt(1 - LIVELINESS) * own
    return np.asarray(np.exp(mean + np.sqrt(var) * normal))


def walk(length: float, rng: np.random.Generator) -> tuple[Floats, Floats, Floats, Floats]:
    """x and y of the middle, height and phase of the legs, in the frames of one sequence."""
    frames = min(2 + int(rng.exponential(length - 2)), LONGEST) if length > 2 else 2
    noise = rng.standard_normal((frames - 1, 3))
    noise[1:] *= np.sqrt(1 - INERTIA**2)
    steps = liveliness(rng) * lfilter([1.0], [1.0, -INERTIA], noise, axis=0)
    path = np.concatenate((np.zeros((1, 3)), steps.cumsum(0)))
    path -= (path.max(0) + path.min(0)) / 2
    middle = np.array([rng.uniform(6, WINDOW - 6), rng.uniform(26, WINDOW - 26), TYPICAL_AREA])
    middle[2] *= np.exp(AREA_SPREAD * rng.standard_normal())
    x, y, area = (path + middle).T
    height = np.sqrt(area.clip(*AREAS) / FILLED)
    walked = np.abs(np.diff(x, prepend=x[0])).cumsum()
    return x, y, height, 2 * np.pi * (rng.random() + walked / (STRIDE * height))


def silhouettes(x: Floats, y: Floats, height: Floats, phase: Floats, size: int = WINDOW) -> Masks:
    """Masks ``(n, size, size)`` of a head, a body and two legs; each part is a span in every row of pixels."""
    rows = (np.arange(size) - y[:, None]) / height[:, None]  # from the middle down, in heights
    columns = ((np.arange(size) - x[:, None]) / height[:, None])[:, None, :]
    masks = np.zeros((len(x), size, size), bool)

    def add(middle: Floats, half_width: Floats) -> None:
        """A part that has no pixels in rows where half of its width is below 0."""
        nonlocal masks
        masks |= np.abs(columns - middle[:, :, None]) <= half_width[:, :, None]

    def oval(middle: float, across: float, down: float) -> None:
        inside = 1 - ((rows - middle) / down) ** 2
        add(np.zeros_like(rows), np.where(inside >= 0, across * np.sqrt(inside.clip(0)), -1.0))

    oval(-0.41, 0.085, 0.09)
    oval(-0.15, 0.12, 0.22)
    swing = SWING * np.abs(np.sin(phase))[:, None]  # which leg is in front a silhouette does not tell
    for side in (-1, 1):
        below = rows - 0.02
        add(side * (swing * below + 0.03), np.where((below >= 0) & (rows <= 0.5), 0.05, -1.0))
    return masks
