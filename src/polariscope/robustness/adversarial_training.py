"""Classifiers that are trained on adversarial images: each batch is attacked before the classifier learns from it.

The images of a batch are moved within a distance epsilon to where the loss of the current classifier is high. That is
done by projected gradient ascent (Madry et al. 2018, Towards deep learning models resistant to adversarial attacks), or
by any registered attack, such as ``ddn`` (Rony et al. 2019, Decoupling direction and norm). While an attack runs, the
classifier is in evaluation mode: batch statistics neither change nor depend on the other images. It then learns in
training mode from the attacked images. (Spec 001b, sections B4 and A11.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from polariscope.objectives.objective import Batch, Terms, at_least, objectives
from polariscope.objectives.predict import Supervised, classification, target_of
from polariscope.robustness.attacks.attack import Attack
from polariscope.robustness.attacks.geometry import clipped, steepest
from polariscope.robustness.noise_training import composition
from polariscope.robustness.rescale import within_box
from polariscope.subjects import as_subject


@objectives.register("adversarial-training")
@dataclass(frozen=True)
class AdversarialTraining(Supervised):
    """Cross-entropy of the classes on images that are attacked first."""

    norm: Literal["l2", "linf"] = "linf"
    epsilon: float = 0.3
    """Largest norm of a perturbation."""
    steps: int = 40
    """Steps of the gradient ascent."""
    step: float = 0.01
    """Length of a step."""
    random_start: bool = True
    """Start the ascent at a random point within epsilon instead of at the image."""
    share: float = 1.0
    """Share of the images that are attacked; the others stay clean."""
    ramp: int = 0
    """Steps over which epsilon grows from 0: with large perturbations from the start, the classifier may learn
    nothing."""
    attack: Attack | None = None
    """An attack in place of the ascent. Its images are the nearest adversarials that it finds, within epsilon."""

    def __post_init__(self) -> None:
        at_least(self.epsilon, 0, "epsilon")
        at_least(self.steps, 1, "steps")
        at_least(self.step, 0, "step")
        at_least(self.ramp, 0, "ramp")
        if not 0 < self.share <= 1:
            raise ValueError(f"the share of attacked images is {self.share}: it needs to be above 0 and at most 1")
        if self.attack is not None and self.norm not in self.attack.norms:
            raise ValueError(f"this attack works in {' and '.join(self.attack.norms)}; got the norm {self.norm}")

    def radius_at(self, step: int) -> float:
        """Epsilon at a step.

        >>> [AdversarialTraining(epsilon=0.3, ramp=3).radius_at(step) for step in (0, 2, 9)]
        [0.09999999999999999, 0.3, 0.3]
        """
        return self.epsilon * min(1.0, (step + 1) / self.ramp) if self.ramp else self.epsilon

    def __call__(self, model: nn.Module, batch: Batch, step: int) -> Terms:
        target = target_of(batch)
        # Held-out data is always attacked with the whole epsilon, so that its curve compares.
        radius = self.epsilon if batch.evaluating else self.radius_at(step)
        clean, _ = composition(len(batch.x), (1 - self.share, self.share))
        clean = min(clean, len(batch.x) - 1)
        moved = self.perturbed(model, batch.x[clean:], target[clean:], batch.classes, radius)
        loss, wrong = classification(model(torch.cat([batch.x[:clean], moved])), target, batch.classes)
        parts = {"cross_entropy": loss, "error": wrong}
        if batch.evaluating:
            parts["clean_error"] = classification(model(batch.x), target, batch.classes)[1]
        return Terms(loss, parts)

    def perturbed(self, model: nn.Module, x: Tensor, target: Tensor, classes: tuple[int, ...], radius: float) -> Tensor:
        """Adversarial images for a network, which is left as it is."""
        within_box(x)
        if not radius:
            return x
        if self.attack is not None:
            return self._attacked(self.attack, model, x, target, radius)
        flat, reach = x.detach().flatten(1), x.new_full((len(x),), radius)
        points = clipped(flat + radius * _noise(flat, self.norm), flat, reach, self.norm) if self.random_start else flat
        with as_subject(model).at_rest(gradients=True):
            for _ in range(self.steps):
                points = points.detach().requires_grad_()
                loss, _ = classification(model(points.reshape(x.shape)), target, classes)
                (gradient,) = torch.autograd.grad(loss, points)
                step = self.step * steepest(gradient, self.norm)
                points = clipped(points.detach() + step, flat, reach, self.norm)
        return points.detach().reshape(x.shape)

    def _attacked(self, attack: Attack, model: nn.Module, x: Tensor, target: Tensor, radius: float) -> Tensor:
        if target.shape[1] != 1:
            raise ValueError(
                f"an attack is on one class for each image, and this world has {target.shape[1]} targets: choose one "
                "with a task, or train without attack, by gradient ascent"
            )
        seed = int(torch.randint(2**31, ()))  # from the draws of this step
        attacked = attack(model, x.detach(), target[:, 0].long(), norm=self.norm, epsilons=(radius,), seed=seed)
        flat = x.detach().flatten(1)
        moved = clipped(attacked.adversarials.to(x).flatten(1), flat, x.new_full((len(x),), radius), self.norm)
        return moved.reshape(x.shape)


def _noise(flat: Tensor, norm: Literal["l2", "linf"]) -> Tensor:
    """Points drawn evenly from the unit ball."""
    if norm == "linf":
        return 2 * torch.rand_like(flat) - 1
    size = torch.rand_like(flat[:, :1]) ** (1 / flat.shape[1])
    return size * steepest(torch.randn_like(flat), "l2")
