"""Training of analysis by synthesis: the evidence lower bound of every image by the autoencoder of its own class.

The weight of the divergence falls from 10 to 1 over the first 50 epochs. After the last step the graded softmax (and
for a binary classifier the factor of each class) is calibrated on images that were held out from training. (Schott et
al. 2019, appendix A.7; Spec 001b, section B4.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from polariscope.nets.model import Model
from polariscope.objectives.objective import Batch, Terms, at_least, objectives
from polariscope.objectives.predict import Supervised, target_of
from polariscope.robustness.rescale import within_box
from polariscope.robustness.synthesis.calibration import settle
from polariscope.robustness.synthesis.variational import ABSConfig, VariationalABS


@objectives.register("abs")
@dataclass(frozen=True)
class ABSTraining(Supervised):
    """Reconstruction plus a weight times the divergence, each image by the autoencoder of its class (ABS)."""

    kl_start: float = 10.0
    """Weight of the divergence at the beginning."""
    kl_end: float = 1.0
    """Weight of the divergence after the annealing."""
    anneal: float = 50.0
    """Epochs over which the weight falls, linearly."""
    reserved: int = 500
    """Training images that are held out to calibrate the softmax (at most a tenth of them)."""

    asks_for: ClassVar[tuple[str, ...]] = ("evidence", "infer")

    def __post_init__(self) -> None:
        at_least(self.kl_start, 0, "kl_start")
        at_least(self.kl_end, 0, "kl_end")
        at_least(self.anneal, 0, "anneal")
        at_least(self.reserved, 0, "reserved")

    def default_model(self) -> Model:
        return ABSConfig()

    @property
    def reserves(self) -> int:
        return self.reserved

    def weight_at(self, epochs: float) -> float:
        """The weight of the divergence after some epochs.

        >>> [ABSTraining().weight_at(epochs) for epochs in (0, 25, 50, 80)]
        [10.0, 5.5, 1.0, 1.0]
        """
        done = min(1.0, epochs / self.anneal) if self.anneal else 1.0
        return self.kl_start + (self.kl_end - self.kl_start) * done

    def __call__(self, model: VariationalABS, batch: Batch, step: int) -> Terms:
        labels = target_of(batch)[:, 0].long()
        if step == 0:
            within_box(batch.x)
        energies, divergences = model.evidence(batch.x, labels)
        reconstruction, kl = energies.mean(), divergences.mean()
        # Held-out data is always judged by the final weight, so that its curve compares.
        weight = self.kl_end if batch.evaluating else self.weight_at(step * len(batch.x) / batch.population)
        parts = {"reconstruction": reconstruction, "kl": kl}
        if batch.evaluating:
            wrong = model.encoder_scores(batch.x).argmax(1) != labels
            parts["encoder_error"] = wrong.float().mean()
        return Terms(reconstruction + weight * kl, parts)

    def settle(self, model: VariationalABS, batch: Batch | None) -> None:
        model.set_prior()
        if batch is not None:
            settle(model, batch.x, target_of(batch)[:, 0].long())
