"""Contract checks of attacks: they stay in the box, report the size of their change, and find images that mislead the
classifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polariscope.robustness.attacks.attack import Attack, attacks
from polariscope.robustness.attacks.attacked import Attacked, joined
from polariscope.robustness.attacks.geometry import Norm, length
from polariscope.subjects import as_subject
from polariscope.testing.promises import require

CLASSES, SHAPE = 4, (2, 4, 4)


def check_attack(
    attack: Attack,
    subject: Any = None,
    x: Any = None,
    y: Any = None,
    *,
    norms: Sequence[Norm] | None = None,
    seed: int = 0,
) -> None:
    """An attack stays in the box, reports the norm of its change, and finds images that mislead the classifier; it is
    never worse than its start, reaches a target, and returns the same result for any batch size and any division of the
    images into calls.

    Without a classifier the attack runs on one with four classes and images of two channels.

    >>> from polariscope.robustness.attacks.fast_gradient import FastGradient
    >>> check_attack(FastGradient())
    """
    if subject is None:
        subject, x, y = curved, *curved_examples()
    name = type(attack).__name__
    x, y = torch.as_tensor(x), torch.as_tensor(y)
    for norm in norms or attack.norms:
        where = f"{name} in {norm}"
        result = attack(subject, x, y, norm=norm, seed=seed)
        _check_result(where, subject, result, x, y)
        adversarial = (result.distances > 0) & np.isfinite(result.distances)
        require(bool(adversarial.any()), f"{where} found no adversarial image")
        require(attack.needs == "gradient" or not result.gradients.any(), f"{where} uses gradients but declares none")
        _check_repeats(where, attack, subject, result, x, y, seed)
        _check_starts(where, attack, subject, result, x, y, seed)
        _check_epsilons(where, attack, subject, result, x, y, seed)
        _check_targets(where, attack, subject, result, x, y, seed)
    if attacks.knows(attack):
        described = attacks.describe(attack)
        again = attacks.describe(attacks.build(described))
        require(again == described, f"{name} rebuilt from its description is another attack")


def curved(x: Tensor) -> Tensor:
    """Scores by distances to a prototype of each class, and waves on top. No row depends on others, to the last bit."""
    flat = x.flatten(1).double()
    number = torch.arange(flat.shape[1], dtype=torch.float64)
    prototypes = 0.5 + 0.35 * torch.sin(number * (1.7 + torch.arange(CLASSES)[:, None]))
    change = flat[:, None] - prototypes
    return -4 * change.square().sum(2) + 0.3 * torch.sin(3 * change.sum(2))


def curved_examples(count: int = 6) -> tuple[Tensor, Tensor]:
    """Images for :func:`curved`; the label of the last one is wrong."""
    pixels = torch.sin(torch.arange(count * 32, dtype=torch.float64) ** 2).reshape(count, *SHAPE)
    x = (0.5 + 0.45 * pixels).float()
    y = curved(x).argmax(1)
    y[-1] = (y[-1] + 1) % CLASSES
    return x, y


def _decided(subject: Any, x: Tensor) -> Tensor:
    subject = as_subject(subject)
    with subject.at_rest():
        decided: Tensor = subject.scores(x).argmax(1).cpu()
    return decided


def _check_result(where: str, subject: Any, result: Attacked, x: Tensor, y: Tensor, goal: Tensor | None = None) -> None:
    images = result.adversarials
    require(images.shape == x.shape, f"{where} returned images of shape {tuple(images.shape)} for {tuple(x.shape)}")
    require(bool(((images >= 0) & (images <= 1)).all()), f"{where} left the box [0, 1]")
    channels = x.shape[1] if x.ndim == 4 else 1
    change = length((images.to(x.dtype) - x).flatten(1), result.norm, channels).numpy()
    misled = np.isfinite(result.distances)
    require(
        np.allclose(change[misled], result.distances[misled], rtol=1e-6, atol=1e-7),
        f"{where} reports distances other than the norms of its changes",
    )
    decided, clean = _decided(subject, images), _decided(subject, x)
    adversarial = (decided != y if goal is None else decided == goal).numpy()
    require(bool(adversarial[misled].all()), f"{where} reports images that the classifier does not misclassify")
    easy = (clean != y if goal is None else clean == goal).numpy()
    require(bool(((result.distances == 0) == easy).all()), f"{where}: distance 0 means misclassified without an attack")
    require(bool((result.queries >= 1).all()), f"{where} counts no query for some images")


def _check_repeats(where: str, attack: Attack, subject: Any, whole: Attacked, x: Tensor, y: Tensor, seed: int) -> None:
    """Some of the images now and the rest later, in batches of another size."""
    numbers = torch.arange(len(x))
    some = len(x) // 3
    parts = [
        attack(subject, x[rows], y[rows], norm=whole.norm, seed=seed, numbers=numbers[rows], batch_size=len(x) - some)
        for rows in (slice(some), slice(some, None))
    ]
    again = joined(parts)
    same = np.allclose(again.distances, whole.distances, rtol=1e-5, atol=1e-6)
    require(same, f"{where} returns other distances in other batches: draw by the number of an image")
    require(bool((again.queries == whole.queries).all()), f"{where} counts other queries in other batches")


def _check_starts(where: str, attack: Attack, subject: Any, alone: Attacked, x: Tensor, y: Tensor, seed: int) -> None:
    limit = [_typical(alone)]
    result = attack(subject, x, y, norm=alone.norm, seed=seed + 1, starts=alone.adversarials, epsilons=limit)
    _check_result(f"{where} from given starts", subject, result, x, y)
    require(not (result.distances > alone.distances).any(), f"{where} ends further away than it started")


def _check_epsilons(where: str, attack: Attack, subject: Any, free: Attacked, x: Tensor, y: Tensor, seed: int) -> None:
    epsilons = (_typical(free) / 2, 2 * _typical(free))
    result = attack(subject, x, y, norm=free.norm, seed=seed, epsilons=epsilons)
    _check_result(f"{where} at epsilons", subject, result, x, y)
    require(result.success.shape == (len(x), 2), f"{where} at 2 epsilons has success of shape {result.success.shape}")
    require(bool(result.success[:, 1].any()), f"{where} finds nothing at twice the typical distance")


def _typical(result: Attacked) -> float:
    return float(np.median(result.distances[(result.distances > 0) & np.isfinite(result.distances)]))


def _check_targets(where: str, attack: Attack, subject: Any, free: Attacked, x: Tensor, y: Tensor, seed: int) -> None:
    with torch.no_grad():
        scores = as_subject(subject).scores(x).cpu()
    targets = scores.scatter(1, y[:, None], -torch.inf).argmax(1)
    limit = [4 * _typical(free)]
    result = attack(subject, x, y, norm=free.norm, seed=seed, targets=targets, epsilons=limit)
    _check_result(f"{where} with targets", subject, result, x, y, targets)
    require(bool(np.isfinite(result.distances).any()), f"{where} reaches no target")
