"""The deterministic autoencoder: reconstruction and nothing else."""

from dataclasses import dataclass
from typing import ClassVar

from polariscope.nets.autoencoder import Autoencoder
from polariscope.nets.model import PosteriorKind
from polariscope.objectives.autoencoding import Autoencoding, forward
from polariscope.objectives.objective import Batch, Terms, objectives


@objectives.register("ae")
@dataclass(frozen=True)
class AE(Autoencoding):
    """R: the mean negative log-likelihood of the code's reconstruction."""

    posterior: ClassVar[PosteriorKind] = "point"

    def __call__(self, model: Autoencoder, batch: Batch, step: int) -> Terms:
        p = forward(model, batch)
        return Terms(p.reconstruction, {"reconstruction": p.reconstruction})
