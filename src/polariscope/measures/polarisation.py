"""Which latent variables are used: their types, the KL of each, and the trace gap.

A variational autoencoder uses a latent variable (small posterior variance: active), ignores it (the posterior is the
prior: passive), or uses it for some examples only (mixed). The functions here infer the type from the mean and variance
representations (Spec 002, sections 8 and 12.1; Bonheme 2023, sections 4.1, 6.3, 6.4 and 8.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.measures.information import FloatArray, as_array, observations
from polariscope.measures.measure import Measure, measures
from polariscope.representation import Representation
from polariscope.theory.gaussian import kl_per_variable

Label = Literal["active", "mixed", "passive"]
RefinedLabel = Literal["active", "passive", "mixed_switching", "partial"]
Kind = Literal["active", "partly used", "switching", "passive"]
Index = NDArray[np.intp]


def variances(var: ArrayLike, name: str = "var") -> FloatArray:
    """``var`` as (samples, variables) variances; negative values indicate a log-variance and are refused."""
    values = observations(var, name)
    if values.min() < 0:
        raise ValueError(
            f"{name} has negative values (least {values.min():.4g}), so it looks like a log-variance: pass its exp"
        )
    return values


@dataclass(frozen=True)
class VariableTypes:
    """The type of each latent variable: one of three published labels, of four refined labels, and of four kinds.

    A refined ``mixed_switching`` variable is active for some examples and passive for others; a ``partial`` one has an
    intermediate variance for all examples, which the published rule also calls mixed. Reports show the ``kinds``, see
    :func:`variable_types`.
    """

    labels: tuple[Label, ...]
    refined: tuple[RefinedLabel, ...]
    kinds: tuple[Kind, ...]
    used_share: FloatArray
    """Share of the examples that use each variable: its variance is nearer to 0 than to the prior's."""
    alpha: float
    samples: int

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def active(self) -> Index:
        return self.subset("active")

    @property
    def mixed(self) -> Index:
        return self.subset("mixed")

    @property
    def passive(self) -> Index:
        return self.subset("passive")

    @property
    def partial(self) -> Index:
        return np.flatnonzero(np.array(self.refined) == "partial")

    @property
    def switching(self) -> Index:
        return np.flatnonzero(np.array(self.refined) == "mixed_switching")

    @property
    def counts(self) -> dict[str, int]:
        """How many variables have each published label."""
        return {name: self.labels.count(name) for name in get_args(Label)}

    @property
    def kind_counts(self) -> dict[str, int]:
        """How many variables are of each kind."""
        return {name: self.kinds.count(name) for name in get_args(Kind)}

    def subset(self, name: str) -> Index:
        """Indices of ``"all"``, of ``"non-passive"``, or of types joined by a plus, as in ``"active+mixed"``."""
        if name == "all":
            return np.arange(len(self))
        wanted = {"active", "mixed"} if name == "non-passive" else set(name.split("+"))
        if not wanted <= {"active", "mixed", "passive"}:
            raise ValueError(
                f"there is no subset {name!r}: use 'all', 'non-passive', or active, mixed, passive joined by '+'"
            )
        return np.flatnonzero([label in wanted for label in self.labels])


def variable_types(
    var: ArrayLike,
    alpha: float = 0.1,
    mean: ArrayLike | None = None,
    prior_mean: ArrayLike | None = None,
    prior_var: ArrayLike | None = None,
) -> VariableTypes:
    """Label each variable from the variance representation S (samples, variables), that is exp(log-variance).

    Passive: |mean S_j − 1| ≤ α and Var S_j ≤ α. Active: mean S_j ≤ α and Var S_j ≤ α. Mixed: everything else.
    Bonheme 2023, section 6.4.1; Spec 002, section 8.3. The refined labels split mixed by Var S_j > α (switching) or
    not (partial).

    With a learned prior (iVAE), a passive variable need not have σ ≈ 1. Given ``prior_mean`` or ``prior_var`` (one per
    sample, or one for all), the rule uses the ratio σ/σ†, and a passive variable also needs E[(μ−μ†)²/σ†] ≤ α, so
    ``mean`` is required. Without a prior the labels do not depend on ``mean``.

    The published rule calls every variable mixed that is neither active nor passive. The publication means by mixed a
    variable that is active for some examples and passive for others (section 8.2). ``kinds`` follow that meaning:

    - active: as published.
    - switching: the variable is active (S ≤ α) for at least a share α of the examples, and passive (|S − 1| ≤ α) for at
      least as many; or its variances differ as much (Var S_j > α) and lie on both sides of ½.
    - passive: as published, if also E μ² ≤ α; or if the mean divergence from the prior is at most −½ log(1−α) nats
      (0.053 for α = 0.1), the cost of a constant variance of 1−α at its optimum. Without ``mean``, the published label.
    - partly used: all other variables.

    Known bias: a variable active on a share w of the examples counts as passive for w ≤ α and as active for w ≥ 1−α.

    >>> types = variable_types([[0.01, 1.0, 0.0, 0.5], [0.02, 0.99, 1.0, 0.5]])
    >>> types.labels
    ('active', 'passive', 'mixed', 'mixed')
    >>> types.refined[2:], types.counts
    (('mixed_switching', 'partial'), {'active': 1, 'mixed': 2, 'passive': 1})
    >>> types.kinds
    ('active', 'passive', 'switching', 'partly used')
    """
    if not 0 < alpha < 0.5:
        raise ValueError(f"alpha needs to lie between 0 and 0.5, or active and passive overlap; got {alpha}")
    ratio = variances(var)
    near_prior = np.ones(ratio.shape[1], dtype=bool)
    shift = None if mean is None else _like(mean, ratio, "mean")
    if prior_mean is not None or prior_var is not None:
        if shift is None:
            raise ValueError("with a prior the rule needs the mean representation too: pass mean=")
        shift = shift - (0.0 if prior_mean is None else _like(prior_mean, ratio, "prior_mean"))
        if prior_var is not None:
            prior = _like(prior_var, ratio, "prior_var")
            if prior.min() <= 0:
                raise ValueError(
                    f"prior_var needs positive variances (a log-variance? pass its exp); got {prior.min()}"
                )
            ratio, shift = ratio / prior, shift / np.sqrt(prior)
        near_prior = np.mean(shift**2, axis=0) <= alpha
    centre, steady = ratio.mean(axis=0), ratio.var(axis=0) <= alpha
    passive = steady & (np.abs(centre - 1) <= alpha) & near_prior
    active = steady & (centre <= alpha)
    labels = np.select([active, passive], ["active", "passive"], "mixed")
    refined = np.select([active, passive, steady], ["active", "passive", "partial"], "mixed_switching")
    used = (ratio < 0.5).mean(axis=0)
    both = np.minimum((ratio <= alpha).mean(axis=0), (np.abs(ratio - 1) <= alpha).mean(axis=0)) >= alpha
    switching = both | (~steady & (np.minimum(used, 1 - used) >= alpha))
    silent, idle = passive, np.zeros_like(passive)
    if shift is not None:
        silent = passive & (np.mean(shift**2, axis=0) <= alpha)
        idle = _costs(ratio, shift) <= -0.5 * np.log(1 - alpha)
    named: list[Kind] = ["active", "passive", "switching", "passive"]
    kinds = np.select([active, silent, switching, idle], named, "partly used")
    return VariableTypes(
        tuple(labels.tolist()), tuple(refined.tolist()), tuple(kinds.tolist()), used, alpha, len(ratio)
    )


def _costs(ratio: FloatArray, shift: FloatArray) -> FloatArray:
    """Mean divergence of each variable in nats, from variances and means in units of the prior's."""
    with np.errstate(divide="ignore"):
        return np.asarray(0.5 * (ratio + shift**2 - np.log(ratio) - 1).mean(axis=0))


def _like(x: ArrayLike, reference: FloatArray, name: str) -> FloatArray:
    """``x`` as one row per sample of ``reference``, or one row for all of them."""
    values = np.asarray(as_array(x), dtype=np.float64)
    if values.shape not in (reference.shape, reference.shape[1:], ()):
        raise ValueError(f"{name} needs shape {reference.shape} or {reference.shape[1:]}; got {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError(f"{name} has NaN or infinite values: remove those samples")
    return values


@dataclass(frozen=True)
class ExampleTypes:
    """Types for each example, as two (samples, variables) masks; if both are false, the variable is in between.

    The sets of a data set are published set operations on these: V_a = ∩ V_a(i), V_p = ∩ V_p(i), V_m = ∪ V_a(i) ∩ ∪
    V_p(i) (Bonheme 2023, definition 6.3.1; Spec 002, section 8.2).
    """

    active_at: NDArray[np.bool_]
    passive_at: NDArray[np.bool_]

    @property
    def active(self) -> Index:
        return np.flatnonzero(self.active_at.all(axis=0))

    @property
    def passive(self) -> Index:
        return np.flatnonzero(self.passive_at.all(axis=0))

    @property
    def mixed(self) -> Index:
        return np.flatnonzero(self.active_at.any(axis=0) & self.passive_at.any(axis=0))

    @property
    def active_share(self) -> FloatArray:
        """The share w_j of examples for which each variable is active."""
        return np.asarray(self.active_at.mean(axis=0))


def example_types(var: ArrayLike, mean: ArrayLike | None = None, alpha: float = 0.1) -> ExampleTypes:
    """A variable with variance σ is active if σ ≤ α, and passive if |σ − 1| ≤ α and (if the mean is given) μ² ≤ α.

    >>> example_types([[0.0, 1.0, 0.0], [0.0, 1.0, 1.0]]).mixed.tolist()
    [2]
    """
    if not 0 < alpha < 0.5:
        raise ValueError(f"alpha needs to lie between 0 and 0.5, or active and passive overlap; got {alpha}")
    values = variances(var)
    passive = np.abs(values - 1) <= alpha
    if mean is not None:
        passive &= _like(mean, values, "mean") ** 2 <= alpha
    return ExampleTypes(values <= alpha, passive)


def per_variable_kl(
    mean: ArrayLike, var: ArrayLike, prior_mean: ArrayLike | None = None, prior_var: ArrayLike | None = None
) -> FloatArray:
    """KL(q(z_j|x) ‖ p(z_j)) of each variable in nats, averaged over the samples; the prior is N(0, 1) unless given.

    ½ mean_i [((μ−μ†)²+σ)/σ† − log(σ/σ†) − 1]. Bonheme 2023, section 2.7; Spec 002, section 3.1.
    Range [0, ∞): 0 exactly for a passive variable (posterior = prior at every sample), larger the more information
    the variable carries. No bias beyond that of the mean over samples.

    >>> per_variable_kl([[2.0, 0.0], [-2.0, 0.0]], [[1.0, 1.0], [1.0, 1.0]]).tolist()
    [2.0, 0.0]
    """
    mean, var = observations(mean, "mean"), variances(var)
    if mean.shape != var.shape:
        raise ValueError(f"mean and var need the same shape; got {mean.shape} and {var.shape}")
    centre = 0.0 if prior_mean is None else _like(prior_mean, var, "prior_mean")
    width = 1.0 if prior_var is None else _like(prior_var, var, "prior_var")
    return np.asarray(kl_per_variable(mean, var, centre, width).mean(axis=0))


def decoder_sensitivity(jacobian: ArrayLike) -> FloatArray:
    """How strongly the decoder depends on each latent: the norm of its column, averaged over samples.

    ``jacobian`` is (outputs, latents), the weight of the first decoder layer, or (samples, outputs, latents).
    Mean_i ‖J_:j(x_i)‖. Range [0, ∞): a passive variable's column is pruned to 0 (Spec 002, sections 4.1 and 8.3).
    It depends on the scale of the latent, so compare it between latents of one model only.

    >>> decoder_sensitivity([[3.0, 0.0], [4.0, 0.0]]).tolist()
    [5.0, 0.0]
    """
    values = np.asarray(as_array(jacobian), dtype=np.float64)
    if values.ndim not in (2, 3):
        raise ValueError(f"jacobian needs shape (outputs, latents) or (samples, outputs, latents); got {values.shape}")
    norms = np.linalg.norm(values, axis=-2)
    return np.asarray(norms.mean(axis=0) if values.ndim == 3 else norms)


def trace_gap(
    mean: ArrayLike | None = None,
    var: ArrayLike | None = None,
    sample: ArrayLike | None = None,
    estimator: Literal["sampled", "analytic"] = "sampled",
) -> float:
    """Tr Var Z − Tr Var M: the variance that sampling adds, about the number of variables that are not active.

    ``"sampled"`` computes it from the mean and sampled representations, as published (Bonheme 2023, section 8.3.1);
    ``"analytic"`` computes its expectation Σ_j mean_i σ_j from the variance representation, without sampling noise
    (Spec 002, section 12.1).

    Range [0, ∞) up to noise: 0 if all variables are active, s with s passive variables, Σ(1−w) with mixed variables
    that are active for shares w of the examples, and the number of variables under full collapse. The sampled estimator
    is unbiased; its noise is of order √(variables/samples).

    >>> trace_gap(var=[[0.0, 1.0, 1.0], [0.0, 1.0, 0.0]], estimator="analytic")
    1.5
    >>> trace_gap(mean=[[1.0], [-1.0]], sample=[[2.0], [-2.0]])
    6.0
    """
    if estimator == "analytic":
        if var is None:
            raise ValueError("the analytic trace gap needs the variance representation: pass var=")
        return float(variances(var).mean(axis=0).sum())
    if estimator != "sampled":
        raise ValueError(f"estimator is 'sampled' or 'analytic'; got {estimator!r}")
    if mean is None or sample is None:
        raise ValueError("the sampled trace gap needs mean= and sample=; with var= use estimator='analytic'")
    mean, sample = observations(mean, "mean"), observations(sample, "sample")
    if mean.shape != sample.shape:
        raise ValueError(f"mean and sample need the same shape; got {mean.shape} and {sample.shape}")
    return float(sample.var(axis=0, ddof=1).sum() - mean.var(axis=0, ddof=1).sum())


@dataclass(frozen=True)
class PolarisedSample:
    """Mean, variance and sampled representations whose types are known: active ones first, then mixed, then passive."""

    mean: FloatArray
    var: FloatArray
    sample: FloatArray
    labels: tuple[Label, ...]


def polarised_sample(
    active: int,
    passive: int,
    correlation: float = 0.0,
    mixed: Sequence[float] = (),
    samples: int = 10_000,
    seed: int | np.random.Generator = 0,
    active_var: float = 1e-3,
    passive_scale: float = 1e-2,
    mixed_mean: float = 2.0,
    mixed_var: float = 0.25,
) -> PolarisedSample:
    """A synthetic representation in the polarised regime, to test measures on.

    Active means are standard normal. Passive means have the standard deviation ``passive_scale``; the j-th passive mean
    has the ``correlation`` ρ with the j-th active mean. This adds −(p/2) log(1−ρ²) to the total correlation of the
    means and almost nothing to that of the samples. Each entry of ``mixed`` is the share w of samples for which that
    variable is active, with mean N(``mixed_mean``, ``mixed_var``); for the others its mean is 0 and its variance 1.

    >>> polarised_sample(active=2, passive=1, mixed=[0.3], samples=100).labels
    ('active', 'active', 'mixed', 'passive')
    """
    if active < 0 or passive < 0 or active + passive + len(mixed) == 0:
        raise ValueError("a polarised sample needs at least one variable, and no negative number of variables")
    if not -1 < correlation < 1:
        raise ValueError(f"correlation needs to lie strictly between -1 and 1; got {correlation}")
    if correlation and passive > active:
        raise ValueError(f"each correlated passive variable needs its own active one; got {passive} and {active}")
    if any(not 0 <= share <= 1 for share in mixed):
        raise ValueError(f"mixed lists shares between 0 and 1; got {list(mixed)}")
    rng = np.random.default_rng(seed)
    used = rng.normal(size=(samples, active))
    unused = np.sqrt(1 - correlation**2) * rng.normal(size=(samples, passive))
    shared = min(active, passive)
    unused[:, :shared] += correlation * used[:, :shared]
    on = rng.random((samples, len(mixed))) < np.asarray(mixed, dtype=np.float64)
    switching = on * rng.normal(mixed_mean, np.sqrt(mixed_var), size=on.shape)
    mean = np.hstack([used, switching, passive_scale * unused])
    var = np.hstack([np.full(used.shape, active_var), np.where(on, active_var, 1.0), np.ones(unused.shape)])
    sizes: dict[Label, int] = {"active": active, "mixed": len(mixed), "passive": passive}
    labels = tuple(label for label, size in sizes.items() for _ in range(size))
    return PolarisedSample(mean, var, mean + np.sqrt(var) * rng.normal(size=mean.shape), labels)


@measures.register("trace-gap")
@dataclass(frozen=True)
class TraceGap(Measure):
    """Variance that sampling adds to the means: about the number of latents that are not used."""

    title = "Trace gap"
    needs = ("var",)
    invariant_to = ("permutation", "sign", "translation")

    def __call__(self, representation: Representation) -> float:
        return trace_gap(representation.mean, var=representation.var, estimator="analytic")


@measures.register("rate")
@dataclass(frozen=True)
class Rate(Measure):
    """Divergence of the posterior from the prior in nats, summed over latents: the rate of the code."""

    title = "Rate (nats)"
    needs = ("var",)
    invariant_to = ("permutation", "sign")

    def __call__(self, representation: Representation) -> float:
        rep = representation
        assert rep.var is not None
        return float(per_variable_kl(rep.mean, rep.var, prior_mean=rep.prior_mean, prior_var=rep.prior_var).sum())
