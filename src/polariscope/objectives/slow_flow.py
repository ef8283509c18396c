"""SlowFlow: the exact likelihood of pairs whose causes change sparsely (Klindt et al. 2021, appendix B; Spec 001a,
section 3.2)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor

from polariscope.nets.flows import Flow, LinearFlowConfig
from polariscope.nets.model import PosteriorKind
from polariscope.objectives.objective import Batch, Need, Objective, Terms, at_least, objectives


@objectives.register("slow-flow")
@dataclass(frozen=True)
class SlowFlow(Objective):
    """-ln p of a pair (or sequence) in nats: codes start at N(0, I) and take Laplace steps, forward in time.

    The parts are the ``marginal`` of the first codes, the ``transition`` of all steps, and the ``volume``, which is the
    log-determinants at all moments; the loss is the sum of the first two minus the third. It has no weights to choose,
    and its optimum identifies the sources up to order and signs.
    """

    rate: float = 6.0
    """Rate λ of the steps: a larger rate keeps the codes closer together."""
    ar_coeff: float = 1.0
    """Expected share of a code that remains one step later."""
    alpha: float = 1.0
    """Shape of the steps, exp(-λ|u|^α): 1 is Laplace; 2 is normal, for which rotations cannot be identified."""

    posterior: ClassVar[PosteriorKind] = "point"
    needs: ClassVar[tuple[Need, ...]] = ("other",)
    asks_for: ClassVar[tuple[str, ...]] = ("encode", "invert", "transform")
    usual = LinearFlowConfig

    def __post_init__(self) -> None:
        at_least(self.rate, 1e-12, "rate")
        at_least(self.alpha, 1, "alpha")  # below, two equal codes have no gradient
        if not math.isfinite(self.ar_coeff):
            raise ValueError(f"ar_coeff is {self.ar_coeff}: it needs to be finite")

    def __call__(self, model: Flow, batch: Batch, step: int) -> Terms:
        moments = (batch.x, *(batch.others or (batch.other,)))  # which says what is missing
        z, log_det = model.transform(torch.cat(moments))
        codes = z.split(len(batch.x))
        marginal = (0.5 * (codes[0].square() + math.log(2 * math.pi))).sum(1).mean()
        steps = [self.step_nll(after - self.ar_coeff * before).sum(1).mean() for before, after in pairwise(codes)]
        transition, volume = torch.stack(steps).sum(), log_det.mean() * len(moments)
        parts = {"marginal": marginal, "transition": transition, "volume": volume}
        return Terms(marginal + transition - volume, parts)

    def step_nll(self, u: Tensor) -> Tensor:
        """-ln p(u) = λ|u|^α - ln(α λ^(1/α) / (2 Γ(1/α))) of each step.

        >>> round(float(SlowFlow(rate=6.0).step_nll(torch.tensor(0.0))), 6)  # -ln(6/2)
        -1.098612
        """
        constant = math.log(self.alpha / 2) + math.log(self.rate) / self.alpha - math.lgamma(1 / self.alpha)
        return self.rate * u.abs().pow(self.alpha) - constant
