"""The latent variables of a representation: the type of each, how much it varies, and the factor it encodes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polariscope.examination.examination import Variable
from polariscope.measures.factor_information import InformationBeyondChance
from polariscope.measures.polarisation import VariableTypes, per_variable_kl, variable_types
from polariscope.representation import Representation

ALIKE = 0.1
"""Largest range of the variances of 90 % of the examples that counts as the same for all."""


def types_of(representation: Representation) -> VariableTypes:
    """Types of the variables, relative to the model's own prior if it has one."""
    rep = representation
    if rep.var is None:
        raise ValueError("without posterior variances there are no variable types")
    if rep.prior_var is None:
        return variable_types(rep.var, mean=rep.mean)
    return variable_types(rep.var, mean=rep.mean, prior_mean=rep.prior_mean, prior_var=rep.prior_var)


def describe_variables(
    representation: Representation,
    table: InformationBeyondChance | None,
    predicted: NDArray[np.float32] | None = None,
) -> list[Variable]:
    """One row per latent variable, the most used first (by posterior variance, then by variance of the mean).

    A variable has a factor only if its information about it exceeds chance.
    """
    rep = representation
    var_of_mean = rep.mean.var(axis=0)
    types: VariableTypes | None = None
    mean_var, kl, details = np.zeros(rep.latents), None, [""] * rep.latents
    if rep.var is not None:
        types = types_of(rep)
        details = _details(rep.var, types)
        mean_var = rep.var.mean(axis=0)
        kl = per_variable_kl(rep.mean, rep.var, rep.prior_mean, rep.prior_var)
    known = None if table is None or not rep.factor_info else table.adjusted
    order = np.lexsort((-var_of_mean, np.round(mean_var, 3)))
    rows = []
    for j in order:
        factor, information = None, None
        if known is not None and known[j].any():
            best = int(np.argmax(known[j]))
            factor, information = rep.factor_info[best].name, float(known[j, best])
        rows.append(
            Variable(
                number=int(j),
                type="active" if types is None else types.labels[j],
                mean_var=float(mean_var[j]),
                var_of_mean=float(var_of_mean[j]),
                kl=None if kl is None else float(kl[j]),
                factor=factor,
                information=information,
                predicted_var=None if predicted is None else float(predicted[:, j].mean()),
                kind="active" if types is None else types.kinds[j],
                detail=details[j],
            )
        )
    return rows


def _details(var: NDArray[np.floating], types: VariableTypes) -> list[str]:
    """How the variances of variables between active and passive change over the examples."""
    low, high = np.quantile(var, (0.05, 0.95), axis=0)
    details = []
    for kind, share, least, most in zip(types.kinds, types.used_share, low, high, strict=True):
        if kind == "switching":
            details.append(f"used for {share:.0%} of them")
        elif kind == "partly used":
            alike = most - least <= ALIKE
            details.append(f"about {(least + most) / 2:.2f} for all" if alike else f"{least:.2f} to {most:.2f}")
        else:
            details.append("")
    return details
