"""New observations with a wanted property, and estimates of the property that they have.

A model whose code has a part for the property (Z0) and a part for everything else (Z1) decodes a wanted property with
any Z1. Each sample then has several estimates of the property: the model's own, which may be wrong in its favour; that
of an independent judge; and the true property, if the world can compute it. A conformal interval is calibrated on the
errors of the judge (or the model) on real held-out examples. Its coverage is measured on other real examples, and on
the samples if the truth is known: no theorem guarantees it there, because samples are not drawn from the data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polariscope.examination.generated import Coverage, Generated, Predictor
from polariscope.examination.invariance import (
    AT_ONCE,
    GATE,
    SplitCode,
    audited_numbers,
    decoded,
    encoded,
    own_notes,
    picture_limits,
    split_code,
    split_parts,
)
from polariscope.examination.nearness import MANY_FAR, neighbourhood
from polariscope.examination.way_back import ReturnedMolecules, recover, returned
from polariscope.grammar import counted
from polariscope.measures.conformal import conformal_radius, covered_share
from polariscope.measures.judge import fit_judge
from polariscope.subjects import Subject
from polariscope.subjects.doors import subject_and_world
from polariscope.worlds.chemistry import has_rdkit
from polariscope.worlds.given import Data
from polariscope.worlds.molecules import MoleculeWorld
from polariscope.worlds.points.level_sets import LevelSets
from polariscope.worlds.property_scale import PropertyScale, property_scale
from polariscope.worlds.splits import Split
from polariscope.worlds.targets import target_values
from polariscope.worlds.true_property import true_property
from polariscope.worlds.view import inside
from polariscope.worlds.world import World, to_tensor

Floats = NDArray[np.float64]
Draw = Literal["examples", "uniform"]
Asked = str | Mapping[str, float] | Sequence[float] | float
MANY_APART = 0.25
"""From this share of samples on, a sentence says that the model and the judge contradict each other."""
ROUNDING = 1e-6
"""Relative tolerance of the ends of a range: properties are stored in 32 bits."""
JUDGED_NUMBERS = 512
"""Size of an observation up to which the judge sees all its numbers."""
COMPONENTS = 64
"""Principal components that the judge sees of larger observations."""


@torch.no_grad()
def generate_with_property(
    model: Any,
    data: Data | None = None,
    *,
    wanted: Asked | None = None,
    like: int | None = None,
    count: int = 100,
    draw: Draw = "examples",
    reach: float = 1.0,
    spread: float = 0.1,
    interval: Predictor = "judge",
    coverage: float = 0.9,
    molecules: int = 100,
    property_latents: int | None = None,
    tells: Callable[[Tensor], Tensor] | None = None,
    split: Split | None = None,
    judged_on: int = 2000,
    seed: int = 0,
) -> Generated:
    """Generate ``count`` observations with a wanted property.

    ``wanted`` has a value for each property, in its own unit; properties that are not named take those of training
    examples. ``like`` is the number of an observation of the data. Together with ``wanted``, samples keep everything
    else of it: their Z1 lies within ``spread`` standard deviations of its own. Without ``wanted``, they have the
    property that its code encodes, and everything else is drawn. Z1 is drawn from the codes of training ``examples``,
    or ``uniform`` within ``reach`` standard deviations of its mean, as published.

    The ``interval`` surrounds the prediction of the independent judge, or of the model itself, with a nominal
    ``coverage``. For molecules of one formula, geometries and bonds are reconstructed from the first ``molecules``
    samples. Your own model must encode and decode; ``property_latents`` is the number of its first latents that encode
    the property, and ``tells`` maps them to the property.
    """
    _check(count, reach, spread, coverage, wanted, like)
    subject, world = subject_and_world(model, data)
    scale = property_scale(world)
    asked = {} if wanted is None else scale.asked(wanted)
    train, held = audited_numbers(subject, world, split, judged_on, 4 * judged_on, seed)
    every = np.sort(split_parts(subject, world, split).train)
    if like is not None and not 0 <= like < len(world):
        raise ValueError(f"there is no observation {like} in the data: numbers go from 0 to {len(world) - 1:,}")
    shown = np.asarray(world.observe(train))
    known = to_tensor(shown)
    subject = subject.understood(known[:64])
    if subject.decodes is None:
        raise TypeError(f"{subject.name} does not decode, so it cannot generate")
    generator = np.random.default_rng((seed, count))
    shape = tuple(world.shape)
    targets = target_values(world, train)
    with subject.at_rest():
        torch.manual_seed(seed)
        code = encoded(subject, known)["mean"]
        parts = split_code(subject, code, targets, property_latents, tells, seed)
        predictions = scale.shown(_array(parts.tells(code[:, : parts.latents])))
        origin = None
        if like is not None:
            origin = encoded(subject, to_tensor(world.observe(np.array([like]))))["mean"][0]
        values = _wanted_values(asked, scale, predictions, origin, parts, count, generator)
        z1 = _drawn(code[:, parts.latents :], origin, parts.latents, bool(asked), count, draw, reach, spread, generator)
        observations, by_neighbour = decoded_with(subject, parts, scale, values, z1, code, predictions, shape)
        own = scale.shown(_array(parts.tells(encoded(subject, observations)["mean"][:, : parts.latents])))
        x_held = to_tensor(world.observe(held))
        own_held = scale.shown(_array(parts.tells(encoded(subject, x_held)["mean"][:, : parts.latents])))
    y, y_held = scale.shown(targets), scale.shown(target_values(world, held))
    view = _reduced(known)
    judge = fit_judge(view(known), y, seed)
    judged, judged_held = judge(view(observations)), judge(view(x_held))
    predicted, predicted_held = (judged, judged_held) if interval == "judge" else (own, own_held)
    # By the seed alone: the interval of a sample does not depend on how many others are asked for.
    radius, real, tested = _calibrated(np.abs(predicted_held - y_held), coverage, np.random.default_rng(seed))
    truth = true_property(world, observations.numpy())
    shown_truth = None if truth is None else scale.shown(truth)
    low, high = predicted - radius, predicted + radius
    neighbours, distances, far = neighbourhood(known, x_held, observations)
    trained = predictions.min(axis=0), predictions.max(axis=0)
    whole = scale.shown(target_values(world, every)) if asked else y
    warnings = tuple(_unreachable(asked, scale, trained, (whole.min(axis=0), whole.max(axis=0))))
    errors = {"model": np.abs(own_held - y_held).mean(axis=0), "judge": np.abs(judged_held - y_held).mean(axis=0)}
    both = [conformal_radius(np.abs(predicted_ - y_held), coverage) for predicted_ in (own_held, judged_held)]
    doubts = [
        *_blind(errors, np.abs(y_held - y.mean(axis=0)).mean(axis=0), scale),
        *_distant(far, interval, truth),
        *_apart(np.abs(own - judged) > both[0] + both[1], scale),
    ]
    notes = [*parts.notes, *own_notes(subject)]
    if len(train) < len(every):
        notes.append(SOME.format(some=len(train), all=len(every)))
    if by_neighbour:
        notes.append(BY_NEIGHBOUR)
    if view(known).shape[1] < known[0].numel():
        notes.append(f"The judge sees {view(known).shape[1]} principal components of the observations.")
    inner = inside(world, MoleculeWorld, train)
    level = inside(world, LevelSets)
    back: ReturnedMolecules | None = None
    labels: tuple[str, ...] = ()
    if inner is not None:
        molecular, trained_on = inner
        labels = _labels(molecular, trained_on[neighbours])
        back, why = _way_back(molecular, observations, every, held, world, molecules)
        notes += [why] if why else []
    return Generated(
        scale=scale,
        observations=observations.numpy(),
        codes=z1.double().numpy(),
        wanted=values,
        model=own,
        judge=judged,
        truth=shown_truth,
        low=low,
        high=high,
        coverage=Coverage(
            coverage,
            tuple(real.tolist()),
            tested,
            None if shown_truth is None else tuple(covered_share(shown_truth, low, high).tolist()),
        ),
        predictor=interval,
        mean_error=errors[interval],
        trained=trained,
        neighbours=train[neighbours],
        distances=distances,
        far=far,
        warnings=warnings,
        doubts=tuple(doubts),
        limits=picture_limits(shown),
        notes=tuple(notes),
        labels=labels,
        level_sets=None if level is None else level[0],
        returned=back,
    )


SOME = (
    "The judge learned from {some:,} of the {all:,} training examples (--judged-on, judged_on in Python): codes are "
    "drawn from these, and the nearest example is searched among them."
)
BY_NEIGHBOUR = (
    "The decoder of this model sees Z0 but not the property, so each sample has the Z0 of the training example whose "
    "code predicts the nearest property."
)


def _check(count: int, reach: float, spread: float, coverage: float, wanted: Asked | None, like: int | None) -> None:
    if count < 1:
        raise ValueError(f"{count} samples were asked for: ask for at least 1")
    if wanted is None and like is None:
        raise ValueError(
            "which property? give a value (--property VALUE), or the number of an observation (--like NUMBER)"
        )
    if not reach > 0 or not spread >= 0:
        raise ValueError(f"reach must be positive and spread at least 0; got {reach} and {spread}")
    if not 0 < coverage < 1:
        raise ValueError(f"the coverage of the intervals is {coverage}: it must lie between 0 and 1")


def _wanted_values(
    asked: Mapping[str, float],
    scale: PropertyScale,
    predicted: Floats,
    origin: Tensor | None,
    parts: SplitCode,
    count: int,
    generator: np.random.Generator,
) -> Floats:
    """The properties ``(count, k)`` of the samples: the wanted ones, and the others from an example or from training
    data."""
    if origin is not None:
        own = scale.shown(_array(parts.tells(origin[None, : parts.latents])))
        values = np.repeat(own, count, axis=0)
    else:
        values = predicted[generator.integers(len(predicted), size=count)].copy()
    for name, value in asked.items():
        values[:, scale.names.index(name)] = value
    return values


def _drawn(
    z1: Tensor,
    origin: Tensor | None,
    latents: int,
    asked: bool,
    count: int,
    draw: Draw,
    reach: float,
    spread: float,
    generator: np.random.Generator,
) -> Tensor:
    """Z1 of the samples."""
    signal = z1.std(0)
    if origin is not None and asked:
        around = torch.from_numpy(generator.uniform(-1, 1, (count, z1.shape[1]))).float()
        return origin[latents:] + spread * signal * around
    if draw == "examples":
        return z1[torch.from_numpy(generator.integers(len(z1), size=count))]
    around = torch.from_numpy(generator.uniform(-1, 1, (count, z1.shape[1]))).float()
    return z1.mean(0) + reach * signal * around


def decoded_with(
    subject: Subject,
    parts: SplitCode,
    scale: PropertyScale,
    values: Floats,
    z1: Tensor,
    code: Tensor,
    predicted: Floats,
    shape: tuple[int, ...],
) -> tuple[Tensor, bool]:
    """Observations with these properties, and whether their Z0 is that of training examples."""
    module: Any = subject.module
    fed = getattr(getattr(module, "config", None), "decoder_input", None) == "property"
    if fed and hasattr(module, "decode_property") and parts.latents == getattr(module, "property_latents", None):
        asked = torch.from_numpy(scale.target(values)).to(subject.dtype)
        pairs = zip(asked.split(AT_ONCE), z1.split(AT_ONCE), strict=True)
        return torch.cat(
            [
                module.likelihood.expectation(module.decode_property(y.to(subject.device), z.to(subject.device))).cpu()
                for y, z in pairs
            ]
        ), False
    spread = np.where(predicted.std(axis=0) > 0, predicted.std(axis=0), 1.0)
    nearest = np.concatenate(
        [
            np.square((part[:, None] - predicted[None]) / spread).sum(axis=2).argmin(axis=1)
            for part in np.array_split(values, -(-len(values) // 512))
        ]
    )
    z0 = code[torch.from_numpy(nearest), : parts.latents]
    return decoded(subject, torch.cat([z0, z1], 1), shape), True


def _calibrated(errors: Floats, coverage: float, generator: np.random.Generator) -> tuple[Floats, Floats, int]:
    """The radius from one half of the held-out examples, and its coverage on the other half."""
    order = generator.permutation(len(errors))
    half = (len(errors) + 1) // 2
    radius = conformal_radius(errors[order[:half]], coverage)
    other = errors[order[half:]]
    if not np.isfinite(radius).all():
        raise ValueError(
            f"{half} held-out examples are too few for intervals of coverage {coverage:g}: hold out more, or choose "
            "a lower coverage"
        )
    return radius, covered_share(other, np.zeros_like(other), np.broadcast_to(radius, other.shape)), len(other)


def _reduced(known: Tensor) -> Callable[[Tensor], Floats]:
    """Observations as the judge sees them: as they are, or as principal components of the training examples."""
    flat = known.flatten(1)
    if flat.shape[1] <= JUDGED_NUMBERS:
        return lambda x: x.flatten(1).double().numpy()
    mean = flat.mean(0)
    _, _, directions = torch.svd_lowrank(flat - mean, q=min(COMPONENTS, *flat.shape), niter=4)
    return lambda x: ((x.flatten(1) - mean) @ directions).double().numpy()


def _unreachable(
    asked: Mapping[str, float],
    scale: PropertyScale,
    predicted: tuple[Floats, Floats],
    observed: tuple[Floats, Floats],
) -> list[str]:
    """A sentence for each requested value that is outside the training data or what the model predicts for it."""
    warnings = []
    for name, value in asked.items():
        place = scale.names.index(name)
        unit = f" {scale.units[place]}" if scale.units[place] else ""
        ranges = {"the training data": observed, "the model's predictions for training examples": predicted}
        tolerance = ROUNDING * np.maximum(np.abs(observed[0]), np.abs(observed[1]))
        outside = [
            f"{of} ({low[place]:.4g} to {high[place]:.4g}{unit})"
            for of, (low, high) in ranges.items()
            if not low[place] - tolerance[place] <= value <= high[place] + tolerance[place]
        ]
        if outside:
            where = " and outside ".join(outside)
            warnings.append(f"The requested {name}, {value:g}{unit}, is outside {where}: it may be unreachable.")
    return warnings


def _blind(errors: Mapping[str, Floats], mean_errors: Floats, scale: PropertyScale) -> list[str]:
    """A sentence for each property that the model or the judge hardly predicts from real held-out examples."""
    sentences = {
        "model": "The code of the model hardly encodes {name}: its error on held-out examples is {error:.3g}, and "
        "predicting the mean has {mean:.3g}. Samples need not have the wanted value.",
        "judge": "The judge hardly predicts {name}: its error on held-out examples is {error:.3g}, and predicting the "
        "mean has {mean:.3g}. Its predictions say little about the samples.",
    }
    return [
        sentences[who].format(name=name, error=error[place], mean=mean_errors[place])
        for who, error in errors.items()
        for place, name in enumerate(scale.names)
        if not error[place] < GATE * mean_errors[place]
    ]


def _distant(far: NDArray[np.bool_], interval: Predictor, truth: Any) -> list[str]:
    """A sentence if many samples are far from the training data, where no predictor was tested."""
    if far.mean() < MANY_FAR:
        return []
    known = "" if truth is None else "; their true property is computed without it"
    return [
        f"{int(far.sum()):,} of {counted(len(far), 'sample')} {'is' if far.sum() == 1 else 'are'} far from the "
        f"training data: no predictor was tested there, so the prediction of the {interval} can be wrong, and its "
        f"intervals need not contain the property{known}."
    ]


def _apart(apart: NDArray[np.bool_], scale: PropertyScale) -> list[str]:
    """A sentence for each property of which model and judge say different things of many samples."""
    return [
        f"For {int(own.sum()):,} of {counted(len(own), 'sample')} the model and the judge predict {name} so "
        "differently that their intervals do not overlap: at least one of them is wrong."
        for name, own in zip(scale.names, apart.T, strict=True)
        if own.mean() >= MANY_APART
    ]


def _labels(world: MoleculeWorld, numbers: NDArray[np.int64]) -> tuple[str, ...]:
    labels = world.molecules.labels
    return tuple(labels[number] for number in numbers) if labels else ()


def _way_back(
    world: MoleculeWorld,
    observations: Tensor,
    train: NDArray[np.int64],
    held: NDArray[np.int64],
    shown: World,
    most: int,
) -> tuple[ReturnedMolecules | None, str]:
    """The first samples as molecules, or the reason why there are none."""
    if most < 1:
        return None, ""
    if not has_rdkit():
        return None, "No sample was reconstructed as a molecule: this needs rdkit (pip install polariscope[chem])."
    there = inside(shown, MoleculeWorld, train), inside(shown, MoleculeWorld, held)
    assert there[0] is not None
    assert there[1] is not None
    bags = world.original(observations[:most].numpy())
    try:
        recovery = recover(world, there[1][1][:most], there[0][1])
    except ValueError as error:
        return None, f"No sample was reconstructed as a molecule: {error}."
    return returned(world, bags, there[0][1], recovery), ""


def _array(values: Any) -> Floats:
    predicted = values.detach().double().cpu().numpy() if isinstance(values, Tensor) else values
    return np.asarray(predicted, dtype=np.float64)
