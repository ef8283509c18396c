"""Whether an evaluation by attacks can be trusted: signs that attacks failed although the classifier is not robust.

A gradient attack on a classifier that hides its gradients finds no adversarials, which looks like robustness (Athalye
et al. 2018; Carlini et al. 2019, On evaluating adversarial robustness). Two kinds of signs are tested: the outputs of
the classifier (:func:`probe`), and the comparison of attacks (:func:`compare_attacks`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polariscope.robustness.attacks import Attacked, NoGradient, attacks
from polariscope.robustness.attacks.trial import needing_gradients
from polariscope.subjects import Subject
from polariscope.subjects.labelled import ONE_PROBABILITY, RETURN_LOGIT, are_probabilities, is_one_probability
from polariscope.user_code import UserCodeError

PROBED = 16
"""Images that the classifier is probed with."""
SAME = 1e-5
"""Relative difference of two scores up to which they are the same up to rounding."""
ZERO_SHARE = 0.2
"""Share of gradients that may be zero; a few come from images that are classified with full confidence."""
SMALL, LARGE = 1e-3, 1e-1
"""Steps of two finite differences."""
AGREEMENT = 0.5
"""Correlation of gradients with finite differences below which gradients do not predict how the scores change."""
CLIMBING = ("fast-gradient", "pgd", "mim", "ddn")
"""Attacks whose loss is the cross-entropy."""
BETTER = 0.9
"""An attack beats another on an image if its distance is below this share of the other's."""
SHARE_BEATEN = 0.25
"""Share of the images on which weaker attacks may beat stronger ones by chance."""


@dataclass(frozen=True)
class Warning:
    """One reason not to trust an evaluation."""

    name: str
    """The problem, in a word or two."""
    evidence: str
    """The measurement, in a sentence."""
    advice: str
    """Advice."""


def probe(subject: Subject, x: Tensor, y: Tensor, *, seed: int = 0) -> list[Warning]:
    """Warnings from how a classifier answers: random scores, scores that depend on the batch, probabilities in place of
    logits, steps in place of slopes, gradients that are zero or point elsewhere, an optimisation inside."""
    x, y = x[:PROBED], y[:PROBED]
    warnings: list[Warning] = []
    with subject.at_rest():
        first, second = subject.scores(x), subject.scores(x)
        random = _differ(first, second)
        if random:
            warnings.append(
                Warning(
                    "random outputs",
                    f"The same images get different scores in a second call (difference {_gap(first, second):.3g}).",
                    "Attack the mean over many draws (expectation over transformation), or fix the randomness: a "
                    "dropout may be on in evaluation mode.",
                )
            )
        elif _differ(first[:1], subject.scores(x[:1])):
            warnings.append(
                Warning(
                    "batch dependence",
                    "The scores of an image depend on the other images of its batch.",
                    "Put the classifier into evaluation mode: batch normalisation may still be in training mode.",
                )
            )
        probabilities = are_probabilities(first)
        if is_one_probability(first):
            warnings.append(Warning("probabilities", ONE_PROBABILITY, RETURN_LOGIT))
        if probabilities:
            warnings.append(
                Warning(
                    "probabilities",
                    "The scores of every image add up to 1: they are probabilities, whose gradients vanish where the "
                    "classifier is confident.",
                    "Return logits, the numbers before the softmax.",
                )
            )
    if _optimises(subject, x):
        warnings.append(
            Warning(
                "optimisation at inference",
                "The classifier optimises something by gradients to answer.",
                "Attack it with an attack made for it, and verify adversarials with its full inference.",
            )
        )
    if not random:
        warnings += _slopes(subject, x, y, seed)
    return warnings


def is_random(warnings: Sequence[Warning]) -> bool:
    """Whether a classifier has random outputs."""
    return any(warning.name == "random outputs" for warning in warnings)


def has_gradient(warnings: Sequence[Warning]) -> bool:
    """Whether a classifier has gradients."""
    return not any(warning.name == "no gradient" for warning in warnings)


def _slopes(subject: Subject, x: Tensor, y: Tensor, seed: int) -> list[Warning]:
    """Warnings from gradients beside finite differences along random directions."""
    missing = Warning(
        "no gradient",
        "The classifier gives no gradient with respect to its input.",
        "Only attacks that need scores or decisions apply; their distances are upper bounds, and loose.",
    )
    with subject.at_rest(gradients=True):
        point = x.clone().requires_grad_()
        try:
            with needing_gradients(subject):
                margin = _margin(subject.scores(point), y)
        except NoGradient:
            return [missing]
        if not margin.requires_grad:
            return [missing]
        (gradient,) = torch.autograd.grad(margin.sum(), point, allow_unused=True)
    if gradient is None:
        return [missing]
    generator = torch.Generator().manual_seed(seed)
    direction = torch.randn(x.shape, generator=generator).to(x).sign()
    changes = {}
    with subject.at_rest():
        for size in (SMALL, LARGE):
            ahead, behind = ((x + sign * size * direction).clamp(0, 1) for sign in (1, -1))
            changes[size] = _margin(subject.scores(ahead), y) - _margin(subject.scores(behind), y)
            if size == SMALL:
                expected = (gradient * (ahead - behind)).flatten(1).sum(1)
    flat = gradient.flatten(1).abs().amax(1) == 0
    still = changes[SMALL] == 0
    moves = changes[LARGE] != 0
    warnings = []
    if bool((still & moves).float().mean() > ZERO_SHARE):
        warnings.append(
            Warning(
                "steps",
                f"The scores of {float((still & moves).float().mean()):.0%} of the images do not change with a small "
                f"change of the pixels ({SMALL}), and do with a large one ({LARGE}): inputs or scores are rounded.",
                "Attack with a differentiable substitute for the rounding (straight-through), or with decision "
                "attacks.",
            )
        )
    elif float(flat.float().mean()) > ZERO_SHARE:
        warnings.append(
            Warning(
                "zero gradients",
                f"The gradient of {float(flat.float().mean()):.0%} of the images is exactly zero.",
                "The scores saturate, or the gradient is blocked: attack the logits, or use decision attacks.",
            )
        )
    elif (agreement := _correlation(expected, changes[SMALL])) < AGREEMENT:
        warnings.append(
            Warning(
                "misleading gradients",
                f"Gradients do not predict how scores change (correlation {agreement:.2f} with finite differences).",
                "The gradient is shattered or replaced: use score and decision attacks, and transfer.",
            )
        )
    return warnings


def compare_attacks(
    results: Mapping[str, Attacked], needs: Mapping[str, str] | None = None, *, boundless: bool = True
) -> list[Warning]:
    """Warnings from attacks in one norm, by name: attacks with less access win, or attacks without a limit fail.

    ``needs`` is the access of each attack to the classifier: gradient, score or decision; by default its name decides.
    ``boundless`` means that the attacks searched for the nearest adversarial at any distance.
    """
    kinds: dict[str, list[Attacked]] = {"gradient": [], "score": [], "decision": [], "transfer": []}
    for name, result in results.items():
        base = name.split(" ")[0]
        kind = "transfer" if base == "transfer" else (needs or {}).get(name) or _needs(base)
        kinds[kind].append(result)
    warnings = []
    white = _nearest(kinds["gradient"])
    for kind, words in (("transfer", "Transferred"), ("score", "Score-based"), ("decision", "Decision-based")):
        other = _nearest(kinds[kind])
        if white is None or other is None:
            continue
        attacked = white > 0
        beaten = float((other[attacked] < BETTER * white[attacked]).mean()) if attacked.any() else 0.0
        if beaten > SHARE_BEATEN:
            warnings.append(
                Warning(
                    f"{'transfer' if kind == 'transfer' else 'black box'} beats white box",
                    f"{words} attacks find nearer adversarials than gradient attacks on {beaten:.0%} of the images.",
                    "The gradients are masked: the distances of gradient attacks are poor evidence of robustness.",
                )
            )
    if boundless and white is not None:
        failed = float(np.isinf(white).mean())
        if failed > 0:
            warnings.append(
                Warning(
                    "unbounded attack fails",
                    f"Gradient attacks without a limit find no adversarial for {failed:.0%} of the images, although "
                    "any image can be turned into one of another class.",
                    "Unless the classifier gives every image the same class, the attack fails: use more steps, "
                    "restarts, or attacks of another kind.",
                )
            )
    return warnings


def more_steps_do_worse(few: Attacked, many: Attacked, steps: tuple[int, int]) -> list[Warning]:
    """A warning if the same attack succeeds less often within its epsilons with more steps."""
    first, second = few.success.mean(), many.success.mean()
    if second >= first - 0.02:
        return []
    return [
        Warning(
            "more steps do worse",
            f"The attack succeeds on {first:.0%} of the images in {steps[0]} steps and on {second:.0%} in {steps[1]}.",
            "The loss that the attack climbs is not what decides the class: attack another loss.",
        )
    ]


def zero_gradient_warnings(results: Mapping[str, Attacked]) -> list[Warning]:
    """A warning if attacks on the cross-entropy met many zero or undefined gradients. Attacks with other losses meet
    zeros at every adversarial, where the loss is already maximal."""
    climbing = [result for name, result in results.items() if name.split(" ")[0] in CLIMBING]
    spent = sum(int(result.gradients.sum()) for result in climbing)
    zero = sum(int(result.zero_gradients.sum()) for result in climbing)
    if not spent or zero <= ZERO_SHARE * spent:
        return []
    return [
        Warning(
            "zero gradients",
            f"{zero / spent:.0%} of the gradients in attacks were zero, NaN or infinite.",
            "These attacks could not search: trust decision attacks and bounds instead.",
        )
    ]


def _needs(name: str) -> str:
    declared = attacks.get(name).needs if name in attacks.names() else "decision"
    return declared if isinstance(declared, str) else "gradient"  # an attack that holds another needs what that needs


def _nearest(results: list[Attacked]) -> Any:
    return np.min([result.distances for result in results], axis=0) if results else None


def _optimises(subject: Subject, x: Tensor) -> bool:
    """Whether the classifier differentiates to answer: it can where gradients are off, and cannot where torch forbids
    them altogether."""
    if callable(getattr(subject.module, "infer", None)):
        return True
    with subject.at_rest():
        try:
            with torch.inference_mode():
                subject.scores(x[:1].clone())
        except UserCodeError:
            return True
    return False


def _differ(first: Tensor, second: Tensor) -> bool:
    return _gap(first, second) > SAME * max(1.0, float(first.abs().max()))


def _gap(first: Tensor, second: Tensor) -> float:
    return float((first - second).abs().max())


def _margin(scores: Tensor, y: Tensor) -> Tensor:
    """By how much the score of the true class exceeds the best other one."""
    own = scores.gather(1, y[:, None])[:, 0]
    others = scores.scatter(1, y[:, None], -torch.inf).amax(1)
    return own - others


def _correlation(first: Tensor, second: Tensor) -> float:
    a, b = first.double() - first.double().mean(), second.double() - second.double().mean()
    scale = float(a.norm() * b.norm())
    return float((a * b).sum()) / scale if scale > 0 else 1.0
