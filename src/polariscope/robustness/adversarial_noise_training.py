"""Adversarial noise training: a classifier and a noise generator that learn against each other.

The generator is a player of its own. At intervals it is stored in a memory, and a new generator starts, which first
learns alone; a part of each batch gets the noise of a stored generator, so that the classifier stays robust to it.
(Rusak et al. 2020, section 3.2; Spec 001b, section A6.)
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn

from polariscope.nets.model import Brief
from polariscope.nets.noise_generator import Kernel, NoiseGenerator
from polariscope.objectives.objective import Batch, Player, Terms, at_least, objectives
from polariscope.objectives.predict import Supervised, classification, target_of
from polariscope.robustness.noise_training import composition
from polariscope.robustness.rescale import rescaled
from polariscope.subjects import as_subject
from polariscope.theory.clipped_noise import even_clipped_norm

SHARES = (0.5, 0.3, 0.2)
"""Of a batch: clean, with noise of the current generator, with noise of one from the memory."""
USUAL_SD = 0.5


@objectives.register("adversarial-noise-training")
@dataclass(frozen=True)
class AdversarialNoiseTraining(Supervised):
    """Cross-entropy of the classes on batches that are half clean, 30 % with the noise of a generator that learns to
    raise it, and 20 % with the noise of an earlier one.

    Steps come in rounds: for ``alone`` steps a new generator learns while the classifier is fixed; for the next
    ``refresh`` steps both learn.
    """

    norm: float = 0.0
    """Norm of the noise after clipping; 0 takes that of Gaussian noise of standard deviation 0.5 on evenly spread
    pixels (9.7 for 28 x 28, 135 for 3 x 224 x 224)."""
    kernel: Kernel = 1
    """Size of the generator's convolutions: 1 makes independent noise; with 3, use a norm about half as large."""
    depth: int = 4
    width: int = 20
    refresh: int = 300
    """Steps of the classifier with one generator."""
    alone: int = 100
    """Steps that a new generator learns alone before."""
    replay: bool = True
    """Whether earlier generators are stored and used; without replay, the current generator takes their share."""
    memory: int = 256
    """Generators to keep; then the newest takes the place of the oldest."""
    generator_learning_rate: float = 1e-4

    def __post_init__(self) -> None:
        at_least(self.norm, 0, "norm")
        at_least(self.refresh, 1, "refresh")
        at_least(self.alone, 0, "alone")
        at_least(self.memory, 1, "memory")
        at_least(self.generator_learning_rate, 1e-12, "generator_learning_rate")

    def players(self, model: nn.Module, brief: Brief) -> dict[str, Player]:
        shape = brief.observation
        if not shape:
            raise ValueError("a noise generator is made for the shape of the observations: give build_state the brief")
        generator = NoiseGenerator(shape[0] if len(shape) == 3 else 1, self.kernel, self.depth, self.width)
        return {"generator": Player(Adversary(generator, self.memory), {"lr": self.generator_learning_rate})}

    def __call__(self, model: nn.Module, batch: Batch, step: int, generator: Adversary) -> Terms:
        rounds, place = divmod(step, self.alone + self.refresh)
        # An evaluation changes nothing, and always sees the same mixture.
        alone, anew = (place < self.alone, place == 0 and rounds > 0) if not batch.evaluating else (False, False)
        if anew:
            generator.begin_anew(rounds - 1)
        clean, current, earlier = (0, len(batch.x), 0) if alone else self.composed(len(batch.x))
        if not (self.replay and rounds):
            current, earlier = current + earlier, 0
        if not current:
            raise ValueError("a batch of one image has no room for noise beside clean images: take at least 2")
        x, noisy, replayed = batch.x.split([clean, current, earlier])
        norm = self.norm or usual_norm(batch.x[0].numel())
        seen = [
            x if alone else self.undisturbed(x, len(batch.x)),
            rescaled(noisy, generator.current.noise_for(noisy), norm),
        ]
        if earlier:
            seen.append(rescaled(replayed, generator.remembered_for(replayed, rounds), norm))
        with as_subject(model).at_rest(gradients=True) if alone else nullcontext():
            outputs = model(torch.cat(seen))
        target, hit = target_of(batch), slice(clean, clean + current)
        loss, wrong = classification(outputs, target, batch.classes)
        misled, _ = classification(outputs[hit], target[hit], batch.classes)
        parts = {"cross_entropy": loss, "error": wrong}
        return Terms(loss, parts, {"generator": -misled}, rests=alone, anew=("generator",) if anew else ())

    def composed(self, count: int) -> tuple[int, int, int]:
        """Of a batch: images without noise, with noise of the current generator, and with noise of an earlier one."""
        without, current, earlier = composition(count, SHARES)
        return without, current, earlier

    def undisturbed(self, x: Tensor, count: int) -> Tensor:
        """The images without noise as the classifier sees them, of a batch of ``count``."""
        return x


class Adversary(nn.Module):
    """The current generator, and the weights of earlier generators, one row each."""

    memory: Tensor

    def __init__(self, generator: NoiseGenerator, memory: int) -> None:
        super().__init__()
        self.current = generator
        self.register_buffer("memory", torch.zeros(memory, len(generator.in_a_row())))

    @torch.no_grad()
    def begin_anew(self, number: int) -> None:
        """Store the current generator under this number, and start a new one."""
        self.memory[number % len(self.memory)] = self.current.in_a_row()
        self.current.begin_anew()

    def remembered_for(self, x: Tensor, kept: int) -> Tensor:
        """Noise of one generator out of all that are in the memory, the same one for the whole batch."""
        row = torch.randint(min(kept, len(self.memory)), ())
        return self.current.noise_for(x, self.memory[row])


@cache
def usual_norm(pixels: int) -> float:
    """The norm of noise of the usual standard deviation."""
    return even_clipped_norm(pixels, USUAL_SD)
