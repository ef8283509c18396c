"""A generator under supervision: it learns to draw each observation from its known factors (Spec 001a, IG-32)."""

from dataclasses import dataclass
from typing import ClassVar

from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.nets.factor_generator import FactorGenerator
from polariscope.nets.model import Brief, Model
from polariscope.objectives.objective import Batch, Need, Objective, Terms, objectives


@objectives.register("from-factors")
@dataclass(frozen=True)
class FromFactors(Objective):
    """R: the mean negative log-likelihood of an observation given its factors.

    The network is the decoder of an autoencoder, with the factors in place of the code: architecture and likelihood of
    the model apply, and it has no encoder.
    """

    needs: ClassVar[tuple[Need, ...]] = ("factors",)
    asks_for: ClassVar[tuple[str, ...]] = ("decode",)
    usual = AutoencoderConfig

    def build(self, model: Model, brief: Brief) -> FactorGenerator:
        if not isinstance(model, AutoencoderConfig):
            raise ValueError("from-factors trains the decoder of an autoencoder: use the model autoencoder")
        return FactorGenerator(model, brief.observation, brief.factors)

    def __call__(self, model: FactorGenerator, batch: Batch, step: int) -> Terms:
        if batch.factors is None:
            raise ValueError("from-factors needs the factors of each observation: use a world with factors")
        reconstruction = model.likelihood.nll(model.decode(batch.factors), batch.x).mean()
        return Terms(reconstruction, {"reconstruction": reconstruction})
