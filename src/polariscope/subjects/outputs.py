"""The outputs of foreign ``encode`` and ``decode`` methods, read by their names or by declared roles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polariscope.registry import nearest
from polariscope.subjects.evidence import ROLES, code_places, pictures, role_of_name, unnamed

# Names in use for the parts of a posterior, the more telling first.
POOLED = ("pooler_output", "image_embeds", "last_hidden_state")
"""Names of a code in the answers of Hugging Face's encoders."""
MEANS = ("mean", "mu", "loc", "z_mean", "embedding", *POOLED, "latents", "latent", "code", "z")
VARIANCES = ("var", "variance")
LOG_VARIANCES = ("logvar", "log_var", "log_variance", "log_covariance", "z_logvar", "z_log_var")
DEVIATIONS = ("scale", "std", "stddev", "sigma")
LOG_DEVIATIONS = ("logstd", "log_std", "log_scale")
SPREADS = ("var", "logvar", "std", "logstd")
SAMPLES = ("sample", "z")
IMAGES = ("reconstruction", "recon_x", "recon", "x_hat", "mean", "loc", "mu", "logits", "probs", "sample", "output")

Code = dict[str, Tensor]
"""``mean`` and, where they are known, ``var`` and ``sample``: each ``(n, d)``."""


def read_code(output: Any, roles: Sequence[str] | None = None) -> Code:
    """Mean, variance and a sample in the output of ``encode``, ``(n, d)`` each.

    Understood are a tensor or an array (a deterministic code), a distribution, a mapping or an object with any of the
    usual names (or one that holds such a one), and a tuple whose places have ``roles``.

    >>> sorted(read_code({"mu": torch.zeros(2, 3), "log_var": torch.zeros(2, 3)}))
    ['mean', 'sample', 'var']
    """
    return {name: _flat(part) for name, part in shaped_code(output, roles).items()}


def shaped_code(output: Any, roles: Sequence[str] | None = None) -> Code:
    """The output of :func:`read_code`, in its original shape."""
    if isinstance(output, Tensor | np.ndarray):
        return {"mean": torch.as_tensor(output)}
    if unnamed(output) and len(output) == 1 and roles is None:
        return shaped_code(output[0])
    named: Mapping[str, Any]
    if unnamed(output):
        named = dict(zip(roles or ("mean", "logvar"), output, strict=False))
    else:
        output, named = _named_code(output)
    name, mean = _first(named, MEANS)
    if mean is None:
        have = f" with {', '.join(named)}" if named else ""
        raise TypeError(
            f"encode returned a {type(output).__name__}{have}, which contains no mean: return a tensor, "
            "(mean, logvar), or names such as mean and logvar"
        )
    if name == "last_hidden_state" and mean.ndim == 3:
        mean = mean.mean(1)  # one vector for each example, whatever the number of tokens
    var = _variance(named)
    if var is None or not var.any():
        return {"mean": mean}
    if var.shape != mean.shape:
        raise ValueError(
            f"encode returned means of shape {tuple(mean.shape)} and variances of shape {tuple(var.shape)}: "
            "they need one variance for each mean"
        )
    draw = None if isinstance(output, Mapping) else getattr(output, "sample", None)
    sample = draw() if callable(draw) else _first({k: v for k, v in named.items() if k != name}, SAMPLES)[1]
    if sample is None:
        sample = mean + torch.randn_like(mean) * var.sqrt()
    return {"mean": mean, "var": var, "sample": sample}


def mean_and_var(output: Any, roles: Sequence[str] | None = None) -> tuple[Tensor, Tensor | None]:
    """Mean and, where there is one, variance in what ``encode`` returned, by names alone: no value is read, so that
    ``torch.export`` can record the computation."""
    if isinstance(output, Tensor):
        return output, None
    named = dict(zip(roles or ("mean",), output, strict=False)) if unnamed(output) else _named_code(output)[1]
    _, mean = _first(named, MEANS)
    if mean is None:
        raise ValueError(f"encode returned a {type(output).__name__} without an entry called mean")
    return mean, _variance(named)


def names_code(output: Any) -> bool:
    """Whether the names in the output of a ``forward`` show that it contains a code: a mean with a variance, or a name
    of Hugging Face's encoders."""
    if isinstance(output, Tensor | np.ndarray) or unnamed(output):
        return False
    _, named = _named_code(output)
    name, mean = _first(named, MEANS)
    return mean is not None and (name in POOLED or _variance(named) is not None)


def holds_posterior(output: Any, seen: Sequence[int]) -> bool:
    """Whether two or three tensors of one shape lie beside a reconstruction in the output of a ``forward``."""
    if not unnamed(output):
        return False
    kept = code_places(output, seen)
    others = [part for place, part in enumerate(output) if place not in kept]
    alike = len({tuple(output[place].shape) for place in kept}) == 1
    return len(kept) in (2, 3) and alike and any(pictures(part, seen) for part in others)


def checked_roles(words: str) -> tuple[str, ...]:
    """``"sample,mean,logvar"`` as roles.

    >>> checked_roles("mean, std")
    ('mean', 'std')
    """
    roles = tuple(word.strip() for word in words.split(","))
    for role in roles:
        if role not in ROLES:
            raise ValueError(f"--returns (returns= in Python) has {role!r}: {nearest(role, ROLES)}")
    if "mean" not in roles:
        raise ValueError(f"--returns (returns= in Python) is {words!r}, and one of the places needs to be the mean")
    return roles


def read_image(output: Any, shape: tuple[int, ...] | None) -> Tensor:
    """The observations ``(n, *shape)`` in the output of ``decode``; without a shape, its first tensor.

    The meaning of their values is not inferred here.
    """
    if isinstance(output, Tensor | np.ndarray):
        candidates = [torch.as_tensor(output)]
    elif unnamed(output):
        candidates = [torch.as_tensor(part) for part in output if isinstance(part, Tensor | np.ndarray)]
    else:
        named = named_parts(output, IMAGES)
        candidates = [named[name] for name in IMAGES if name in named]
    if shape is None and candidates:
        return candidates[0]
    shape = shape or ()
    size = int(np.prod(shape))
    for image in candidates:
        if image.ndim and image[0].numel() == size:
            last = (*shape[1:], shape[0]) if len(shape) == 3 else None
            if last is not None and tuple(image.shape[1:]) == last != shape:
                return image.permute(0, 3, 1, 2)
            return image.reshape(-1, *shape)
    came = ", ".join(str(tuple(image.shape[1:])) for image in candidates) or type(output).__name__
    raise ValueError(f"decode returned {came} for an example, but the data has shape {shape}")


def prediction_in(output: Any) -> Any:
    """The prediction among the outputs of a ``forward``: the one called logits, or the first of a tuple; None if there
    is neither."""
    if isinstance(output, tuple | list) and output and not hasattr(output, "logits"):
        return prediction_in(output[0])
    return output if isinstance(output, Tensor | np.ndarray) else named_parts(output, ("logits",)).get("logits")


def named_parts(output: Any, names: Sequence[str] | None = None) -> dict[str, Tensor]:
    """The tensors of a mapping, a named tuple or an object, by name; methods and missing entries are skipped."""
    wanted = names or (*MEANS, *VARIANCES, *LOG_VARIANCES, *DEVIATIONS, *LOG_DEVIATIONS, *SAMPLES)
    if not isinstance(output, Mapping) and hasattr(output, "_asdict"):
        output = output._asdict()
    if isinstance(output, Mapping):
        items = list(output.items())
    else:
        items = [(name, getattr(output, name)) for name in wanted if hasattr(output, name)]
    return {str(k): torch.as_tensor(v) for k, v in items if isinstance(v, Tensor | np.ndarray)}


def _named_code(output: Any) -> tuple[Any, dict[str, Tensor]]:
    """The part of an output that has a code, and its tensors by name: the output itself, or one thing that it holds."""
    named = _with_roles(named_parts(output))
    if _first(named, MEANS)[1] is None:
        for inner in _held(output):
            deeper = _with_roles(named_parts(inner))
            if _first(deeper, MEANS)[1] is not None:
                return inner, deeper
    return output, named


def _held(output: Any) -> Iterator[Any]:
    """The mappings and objects that lie in another one, such as the distribution in an answer."""
    values = (
        output.values() if isinstance(output, Mapping) else vars(output).values() if hasattr(output, "__dict__") else ()
    )
    return (v for v in values if v is not None and not isinstance(v, Tensor | np.ndarray | str | int | float | tuple))


def _variance(named: Mapping[str, Any]) -> Tensor | None:
    _, var = _first(named, VARIANCES)
    if var is not None:
        return var
    _, logvar = _first(named, LOG_VARIANCES)
    if logvar is not None:
        return logvar.exp()
    name, std = _first(named, DEVIATIONS)
    if std is not None:
        if not torch.compiler.is_compiling() and bool((std < 0).any()):
            raise ValueError(
                f"encode returned negative standard deviations ({name}): name them log_std, or logvar, if they are "
                "logarithms"
            )
        return std.square()
    _, logstd = _first(named, LOG_DEVIATIONS)
    return None if logstd is None else (2 * logstd).exp()


def _with_roles(named: dict[str, Tensor]) -> dict[str, Tensor]:
    """Parts of which none has a usual name for a mean or for a spread, by the role that their names suggest, such as
    ``z_mu`` and ``log_sigma``; a spread has the shape of the mean."""
    mean = _first(named, MEANS)[1]
    if mean is None:
        mean = next((part for name, part in named.items() if role_of_name(name) == "mean"), None)
        named = named if mean is None else {**named, "mean": mean}
    if mean is None or {*VARIANCES, *LOG_VARIANCES, *DEVIATIONS, *LOG_DEVIATIONS} & named.keys():
        return named
    roles = {
        role: part
        for name, part in named.items()
        if (role := role_of_name(name)) in SPREADS and getattr(part, "shape", None) == mean.shape
    }
    return {**named, **roles}


def _first(named: Mapping[str, Any], names: Sequence[str]) -> tuple[str, Tensor | None]:
    for name in names:
        if name in named and isinstance(named[name], Tensor | np.ndarray):
            return name, torch.as_tensor(named[name])
    return "", None


def _flat(part: Tensor | np.ndarray) -> Tensor:
    tensor = torch.as_tensor(part)
    return tensor[:, None] if tensor.ndim == 1 else tensor.flatten(1)
