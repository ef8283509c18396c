"""Examine a model: everything the house can say about one model on one world, as data.

This is the one call behind ``polariscope examine`` and the report. It works for a run of ours and for anything that
can be wrapped into a subject; where that decodes as well, it also shows reconstructions and traversals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from polariscope.jacobians import predicted_var
from polariscope.measures.factor_information import factor_information
from polariscope.measures.measure import Undefined, measures
from polariscope.measures.polarisation import VariableTypes, per_variable_kl, variable_types
from polariscope.representation import Representation, represent
from polariscope.subjects import Subject, as_subject
from polariscope.tabular import Tabular
from polariscope.worlds.given import Data, as_world
from polariscope.worlds.pictures import Limits, limits_of, picture_note
from polariscope.worlds.world import World, to_tensor

TRAVERSAL_STEPS = 9
TRAVERSAL_REACH = 2.5
AUDITED = 256
"""Examples at which the decoder's slope is taken."""


@dataclass(frozen=True)
class Variable:
    """One latent variable: what type it has, how much it moves, and which factor it tells about."""

    number: int
    type: str
    mean_var: float
    """Posterior variance, averaged over the examples: near 0 the variable is used, near 1 it is noise."""
    var_of_mean: float
    """Variance of the posterior mean over the examples."""
    kl: float | None
    """Divergence from the prior in nats, averaged over the examples."""
    factor: str | None
    """The factor this variable knows most about, if it knows anything."""
    information: float | None
    """How much of that factor's entropy it knows, from 0 to 1."""
    predicted_var: float | None = None
    """What the decoder's slope says the posterior variance should be, at the optimum of a beta-VAE."""


@dataclass(frozen=True)
class Value:
    """A measure's value, or the sentence that says why there is none."""

    name: str
    title: str
    value: float | None
    higher_is_better: bool | None
    problem: str | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Examination(Tabular):
    """The findings about one model."""

    representation: Representation
    variables: list[Variable]
    values: list[Value]
    factor_information: NDArray[np.float64] | None
    """Share of each factor's entropy that each latent knows, ``(latents, factors)``."""
    originals: NDArray[Any] | None = None
    """Example images, ``(n, c, h, w)``: bytes, or floats where the data has them."""
    reconstructions: NDArray[Any] | None = None
    traversals: NDArray[Any] | None = None
    """One latent moved at a time from an example, ``(latents, steps, c, h, w)``, in the order of ``variables``."""
    notes: list[str] = field(default_factory=list)

    @cached_property
    def limits(self) -> Limits | None:
        """The numbers that pictures show as black and white: the ends of the originals, where these are floats."""
        floats = self.originals is not None and self.originals.dtype != np.uint8
        return limits_of([self.originals]) if floats else None  # type: ignore[list-item]

    @property
    def counts(self) -> dict[str, int]:
        """How many variables are of each type."""
        types = [v.type for v in self.variables]
        return {kind: types.count(kind) for kind in ("active", "mixed", "passive")}

    @property
    def headline(self) -> str:
        rep = self.representation
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.counts.items())
        return f"{rep.latents} latent variables on {rep.count:,} examples: {kinds}"

    @property
    def measures(self) -> dict[str, float | None]:
        """Every measure's value by name; None where it is undefined (``values`` says why)."""
        return {v.name: v.value for v in self.values}

    def records(self) -> list[dict[str, Any]]:
        """A row for each latent variable, the most used first."""
        return [asdict(v) for v in self.variables]

    def summary(self) -> dict[str, Any]:
        """JSON-ready: the counts, the measures and the variables."""
        return {
            "examples": self.representation.count,
            "types": self.counts,
            "measures": self.measures,
            "undefined": {v.name: v.problem for v in self.values if v.problem},
            "variables": self.records(),
            "notes": self.notes,
        }


def examine(
    model: Any,
    data: Data,
    factors: ArrayLike | Tensor | None = None,
    *,
    count: int = 10_000,
    seed: int = 0,
    beta: float | None = None,
    measured: Sequence[str] | None = None,
) -> Examination:
    """Take a model apart on a world, or on whatever data there is, with (or without) its factors.

    The model is a :class:`~polariscope.subjects.Subject`, or whatever :func:`~polariscope.subjects.as_subject` can wrap
    into one; data is whatever :func:`~polariscope.worlds.given.as_world` takes. ``beta`` is the weight of the
    divergence with which one of our models was trained (1 for a VAE); if it is given, the posterior variances are
    audited against those the decoder's slope predicts. ``measured`` names the measures to take, all by default.

    >>> class Doubling(torch.nn.Module):
    ...     def encode(self, x):
    ...         return 2 * x, torch.full_like(x, -4.0)
    >>> points = np.random.default_rng(0).normal(size=(200, 3))
    >>> examine(Doubling(), points).counts
    {'active': 3, 'mixed': 0, 'passive': 0}
    """
    world = as_world(data, factors)
    subject = as_subject(model)
    representation = represent(subject, world, count=count, seed=seed)
    notes = [*representation.notes, *getattr(world, "assumed", ()), *_notes(representation)]
    table = None
    if representation.factors is not None:
        table = factor_information(representation.mean, representation.factors)
    predicted = None
    if beta is not None and hasattr(subject.module, "likelihood") and representation.var is not None:
        predicted = audit(subject, representation, beta)
        notes += _audit_notes(representation, predicted)
    variables = describe_variables(representation, table, predicted)
    values = [_value(name, representation) for name in (measures.names() if measured is None else measured)]
    pictures: dict[str, NDArray[Any]] = {}
    if len(world.shape) == 3 and subject.decodes is not None:
        subject, pictures = _pictures(subject, world, representation, [v.number for v in variables])
        notes += [note for note in subject.notes if note not in notes]
    found = Examination(representation, variables, values, table, notes=notes, **pictures)
    if pictures and (note := picture_note(world.shape, found.limits)):
        notes.append(note)
    return found


def types_of(representation: Representation) -> VariableTypes:
    """Types of the variables, against the model's own prior where it has one."""
    rep = representation
    if rep.var is None:
        raise ValueError("without posterior variances there are no variable types")
    if rep.prior_var is None:
        return variable_types(rep.var)
    return variable_types(rep.var, mean=rep.mean, prior_mean=rep.prior_mean, prior_var=rep.prior_var)


def audit(subject: Subject, representation: Representation, beta: float) -> NDArray[np.float32]:
    """Posterior variances ``(n, d)`` predicted by the slope of one of our decoders, at the first ``AUDITED`` means."""
    means = torch.from_numpy(representation.mean[:AUDITED]).to(subject.device)
    with subject.at_rest():
        return np.asarray(predicted_var(subject.module, means, beta).cpu().numpy())  # type: ignore[arg-type]


def _audit_notes(representation: Representation, predicted: NDArray[np.float32]) -> list[str]:
    assert representation.var is not None
    actual = representation.var[: len(predicted)]
    correlation = np.corrcoef(np.log(predicted).ravel(), np.log(actual).ravel())[0, 1]
    if not np.isfinite(correlation):
        return []
    figure = f"(correlation of their logarithms {correlation:.2f})"
    if correlation > 0.9:
        return [f"The encoder's variances are those the decoder's slope predicts {figure}, as at an optimum."]
    differ = f"The encoder's variances are not those the decoder's slope predicts {figure}"
    return [f"{differ}: training may not be at its optimum yet."]


def describe_variables(
    representation: Representation, table: NDArray[np.float64] | None, predicted: NDArray[np.float32] | None = None
) -> list[Variable]:
    """One row per latent variable, the most used first (by posterior variance, then by movement)."""
    rep = representation
    var_of_mean = rep.mean.var(axis=0)
    if rep.var is None:
        types = ["active"] * rep.latents
        mean_var, kl = np.zeros(rep.latents), None
    else:
        types = list(types_of(rep).labels)
        mean_var = rep.var.mean(axis=0)
        kl = per_variable_kl(rep.mean, rep.var, rep.prior_mean, rep.prior_var)
    order = np.lexsort((-var_of_mean, np.round(mean_var, 3)))
    rows = []
    for j in order:
        factor, information = None, None
        if table is not None and rep.factor_info:
            best = int(np.argmax(table[j]))
            factor, information = rep.factor_info[best].name, float(table[j, best])
        rows.append(
            Variable(
                number=int(j),
                type=types[j],
                mean_var=float(mean_var[j]),
                var_of_mean=float(var_of_mean[j]),
                kl=None if kl is None else float(kl[j]),
                factor=factor,
                information=information,
                predicted_var=None if predicted is None else float(predicted[:, j].mean()),
            )
        )
    return rows


def _value(name: str, representation: Representation) -> Value:
    measure = measures.get(name)()
    try:
        number, problem = measure.value(representation), None
    except Undefined as error:
        number, problem = None, str(error)
    return Value(name, measure.title, number, measure.higher_is_better, problem)


def _notes(representation: Representation) -> list[str]:
    """What a reader must know before trusting the numbers."""
    notes = []
    if representation.var is None:
        notes.append("The model gives no posterior variance: every variable counts as active, and nothing is sampled.")
    else:
        types = types_of(representation)
        if not len(types.active) and not len(types.mixed):
            notes.append("The posterior has collapsed: no latent variable carries information about the data.")
        elif len(types.passive):
            dropped = ", ".join(str(j) for j in types.passive)
            which = f"Variables {dropped} are" if len(types.passive) > 1 else f"Variable {dropped} is"
            notes.append(f"{which} passive: leave passive means out of whatever scales or correlates features.")
    if representation.count < 1000:
        notes.append(f"Only {representation.count} examples: measures that count pairs or bins are biased upwards.")
    return notes


def _pictures(
    subject: Subject, world: World, representation: Representation, order: list[int], examples: int = 12
) -> tuple[Subject, dict[str, NDArray[Any]]]:
    """Originals with their reconstructions, and traversals of every latent from the code of one example."""
    rep = representation
    assert rep.index is not None
    picked = np.linspace(0, rep.count - 1, examples).astype(int)
    originals = world.observe(rep.index[picked])
    factors = None if subject.prior is None or rep.factors is None else torch.from_numpy(rep.factors[picked])
    subject = subject.understood(to_tensor(originals), factors)
    means = torch.from_numpy(rep.mean[picked])
    # The example nearest to the middle of the codes stands for the data set.
    centre = means[(means - torch.from_numpy(rep.mean.mean(axis=0))).square().sum(1).argmin()]
    # A code moves as far as it does over the data: by its mean, and by its noise where it has some.
    spread = np.sqrt(rep.mean.var(axis=0) + (0 if rep.var is None else rep.var.mean(axis=0)))
    offsets = torch.linspace(-TRAVERSAL_REACH, TRAVERSAL_REACH, TRAVERSAL_STEPS)
    codes = centre.repeat(len(order), TRAVERSAL_STEPS, 1)
    for row, j in enumerate(order):
        codes[row, :, j] += offsets * float(spread[j])
    with subject.at_rest():
        shown = subject.generate(means, world.shape)
        walked = torch.cat([subject.generate(part, world.shape) for part in codes.flatten(0, 1).split(256)])
    return subject, {
        "originals": originals,
        "reconstructions": _like(originals, shown),
        "traversals": _like(originals, walked).reshape(*codes.shape[:2], *world.shape),
    }


def _like(originals: NDArray[Any], images: Tensor) -> NDArray[Any]:
    """What a decoder gives, in the form of the data: bytes, or floats as they are."""
    if originals.dtype == np.uint8:
        images = (images.clamp(0, 1) * 255).round().to(torch.uint8)
    return np.asarray(images.cpu().contiguous().numpy())
