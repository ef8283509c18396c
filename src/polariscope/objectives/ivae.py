"""The identifiable VAE (Khemakhem et al. 2020): the evidence lower bound under a prior that depends on the factors.

A latent is passive here when its posterior is its *prior*, which need not be N(0, 1): classify the types by the ratio
of the variances (:func:`polariscope.measures.polarisation.variable_types` with ``prior_var``). Spec 002, section 7.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from polariscope.nets.autoencoder import Autoencoder, AutoencoderConfig
from polariscope.nets.conditional import ConditionalAutoencoder, PriorMean
from polariscope.nets.model import Brief, Model
from polariscope.nets.posterior import Diagonal
from polariscope.objectives.autoencoding import Autoencoding
from polariscope.objectives.objective import Batch, Need, Terms, at_least, objectives


@objectives.register("ivae")
@dataclass(frozen=True)
class IVAE(Autoencoding):
    """R + β KL(q(z|x, u) ‖ p(z|u)), with all factors of the world as u.

    With both moments of the prior learned and factors that determine the observation, the prior can copy the
    posterior: the divergence then prunes nothing, and the bound has no maximum in the linear case.
    """

    prior_mean: PriorMean = "zero"
    """Mean of the prior: fixed at zero, which keeps the latents identifiable, or learned like its variance."""
    beta: float = 1.0
    """Weight of the divergence."""

    needs: ClassVar[tuple[Need, ...]] = ("factors",)

    def __post_init__(self) -> None:
        at_least(self.beta, 0, "beta")
        if self.prior_mean not in ("zero", "learned"):
            raise ValueError(f"prior_mean is 'zero' or 'learned'; got {self.prior_mean!r}")

    def build(self, model: Model, brief: Brief) -> ConditionalAutoencoder:
        if not isinstance(model, AutoencoderConfig):
            raise ValueError(
                "the ivae objective gives an autoencoder a prior that depends on the factors: use the model autoencoder"
            )
        return ConditionalAutoencoder(model, brief.observation, brief.factors, self.prior_mean, brief.posterior)

    def __call__(self, model: Autoencoder, batch: Batch, step: int) -> Terms:
        if not isinstance(model, ConditionalAutoencoder):
            raise TypeError(f"the ivae objective trains the model its build method makes; got a {type(model).__name__}")
        if batch.factors is None:
            raise ValueError("the ivae objective needs the factors of each observation: use a world with factors")
        posterior = model.encode(batch.x, batch.factors)
        assert isinstance(posterior, Diagonal)
        reconstruction = model.likelihood.nll(model.decode(posterior.sample()), batch.x).mean()
        kl = divergence(posterior, model.prior(batch.factors)).mean()
        return Terms(reconstruction + self.beta * kl, {"reconstruction": reconstruction, "kl": kl})


def divergence(q: Diagonal, p: Diagonal) -> Tensor:
    """KL(q ‖ p) in nats, one number per example; through the log-ratio, as passive variances shrink together."""
    ratio = q.logvar - p.logvar
    return 0.5 * (ratio.exp() + (q.mean - p.mean).square() * (-p.logvar).exp() - ratio - 1).sum(1)
