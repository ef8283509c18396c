"""What comes out of other people's ``encode`` and ``decode``: read by its names, or by its values if it has none."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polariscope.registry import nearest

# Names in use for the parts of a posterior, the more telling first.
MEANS = ("mean", "mu", "loc", "z_mean", "embedding", "pooler_output", "last_hidden_state", "latent", "code", "z")
VARIANCES = ("var", "variance")
LOG_VARIANCES = ("logvar", "log_var", "log_variance", "log_covariance", "z_logvar", "z_log_var")
DEVIATIONS = ("scale", "std", "stddev", "sigma")
SAMPLES = ("sample", "z")
IMAGES = ("reconstruction", "recon_x", "recon", "x_hat", "mean", "loc", "mu", "logits", "probs", "sample", "output")
ROLES = ("mean", "logvar", "var", "std", "sample", "-")
"""What a place of a tuple may hold; ``-`` is left out."""
AGREES = (0.7, 1.4)
"""Mean square of (sample - mean) / std over a batch, between which the three belong together; it should be 1."""

Code = dict[str, Tensor]
"""``mean`` and, where they are known, ``var`` and ``sample``: each ``(n, d)``."""


def read_code(output: Any, roles: Sequence[str] | None = None) -> Code:
    """Mean, variance and a sample from whatever ``encode`` returned.

    Understood are a tensor or an array (a deterministic code), a distribution, a mapping or an object with any of the
    usual names, and a tuple whose places have ``roles``.

    >>> sorted(read_code({"mu": torch.zeros(2, 3), "log_var": torch.zeros(2, 3)}))
    ['mean', 'sample', 'var']
    """
    if isinstance(output, Tensor | np.ndarray):
        return {"mean": _flat(output)}
    if isinstance(output, tuple | list) and not hasattr(output, "_asdict"):
        named: Mapping[str, Any] = dict(zip(roles or ("mean", "logvar"), output, strict=False))
    else:
        named = named_parts(output)
    name, mean = _first(named, MEANS)
    if mean is None:
        have = f" with {', '.join(named)}" if named else ""
        raise TypeError(
            f"encode returned a {type(output).__name__}{have}, in which no mean is to be found: return a tensor, "
            "(mean, logvar), or names such as mean and logvar"
        )
    if name == "last_hidden_state" and mean.ndim == 3:
        mean = mean.mean(1)  # one vector for each example, whatever the number of tokens
    var = _variance(named)
    if var is None or not var.any():
        return {"mean": _flat(mean)}
    draw = getattr(output, "sample", None)
    sample = draw() if callable(draw) else _first({k: v for k, v in named.items() if k != name}, SAMPLES)[1]
    code = {"mean": _flat(mean), "var": _flat(var)}
    if code["var"].shape != code["mean"].shape:
        raise ValueError(
            f"encode returned means of shape {tuple(mean.shape)} and variances of shape {tuple(var.shape)}: "
            "they need one variance for each mean"
        )
    code["sample"] = (
        _flat(sample) if sample is not None else code["mean"] + torch.randn_like(code["mean"]) * code["var"].sqrt()
    )
    return code


def roles_of(output: Sequence[Any], seen: Sequence[int]) -> tuple[str, ...]:
    """What the places of a tuple hold, or a sentence that asks for it. ``seen`` is the shape of the observations.

    Places with the size of the observations are reconstructions or the input again (unless all have it), and single
    numbers are losses: both are left out. Of what remains, two are (mean, logvar); three hold a sample too, and their
    order is told by which of the usual two fits: (sample - mean) / std must have mean square 1 (or the sample is the
    mean itself).
    """
    parts = [torch.as_tensor(p) if isinstance(p, Tensor | np.ndarray) else None for p in output]
    whole = [i for i, p in enumerate(parts) if p is not None and p.ndim >= 1]
    left = [i for i in whole if not _pictures(parts[i], seen)] or whole
    tensors = [t for i in left if (t := parts[i]) is not None and len(t) == seen[0]]
    shapes = [tuple(t.shape) for t in tensors]
    found: tuple[str, ...] | None = None
    if len(tensors) == len(left) and len(set(shapes)) == 1:
        if len(left) == 1:
            found = ("mean",)
        elif len(left) == 2:
            found = ("mean", "logvar")
        elif len(left) == 3:
            found = _triple(*(t.flatten(1).double() for t in tensors))
    if found is None:
        held = ", ".join(str(tuple(p.shape)) if isinstance(p, Tensor) else type(o).__name__
                         for p, o in zip(parts, output, strict=True))  # fmt: skip
        raise ValueError(
            f"encode returned {len(output)} things ({held}) that are not told apart by their values: "
            f"say which is which, for example --returns {_example(len(output))} (of {', '.join(ROLES)})"
        )
    places = ["-"] * len(output)
    for place, role in zip(left, found, strict=True):
        places[place] = role
    return tuple(places)


def holds_posterior(output: Any, seen: Sequence[int]) -> bool:
    """Whether mean and variance are in the output of a ``forward``: by their names, or beside a reconstruction."""
    if isinstance(output, tuple | list) and not hasattr(output, "_asdict"):
        try:
            roles = roles_of(output, seen)
        except ValueError:
            return False
        pictured = any(_pictures(part, seen) for part, role in zip(output, roles, strict=True) if role == "-")
        return pictured and "logvar" in roles
    named = {} if isinstance(output, Tensor | np.ndarray) else named_parts(output)
    return _first(named, MEANS)[1] is not None and _variance(named) is not None


def checked_roles(words: str) -> tuple[str, ...]:
    """``"sample,mean,logvar"`` as roles.

    >>> checked_roles("mean, std")
    ('mean', 'std')
    """
    roles = tuple(word.strip() for word in words.split(","))
    for role in roles:
        if role not in ROLES:
            raise ValueError(f"--returns has {role!r}: {nearest(role, ROLES)}")
    if "mean" not in roles:
        raise ValueError(f"--returns is {words!r}, and one of the places needs to be the mean")
    return roles


def read_image(output: Any, shape: tuple[int, ...] | None) -> Tensor:
    """The observations ``(n, *shape)`` in whatever ``decode`` returned; without a shape, the first tensor of it.

    What their values mean is not asked here.
    """
    if isinstance(output, Tensor | np.ndarray):
        candidates = [torch.as_tensor(output)]
    elif isinstance(output, tuple | list) and not hasattr(output, "_asdict"):
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
            return image.reshape(len(image), *shape)
    came = ", ".join(str(tuple(image.shape[1:])) for image in candidates) or type(output).__name__
    raise ValueError(f"decode returned {came} for an example, and the data have shape {shape}")


def named_parts(output: Any, names: Sequence[str] | None = None) -> dict[str, Tensor]:
    """The tensors of a mapping, a named tuple or an object, by name; methods and missing entries are left out."""
    wanted = names or (*MEANS, *VARIANCES, *LOG_VARIANCES, *DEVIATIONS, *SAMPLES)
    if hasattr(output, "_asdict"):
        output = output._asdict()
    if isinstance(output, Mapping):
        items = list(output.items())
    else:
        items = [(name, getattr(output, name)) for name in wanted if hasattr(output, name)]
    return {str(k): torch.as_tensor(v) for k, v in items if isinstance(v, Tensor | np.ndarray)}


def _variance(named: Mapping[str, Any]) -> Tensor | None:
    _, var = _first(named, VARIANCES)
    if var is not None:
        return var
    _, logvar = _first(named, LOG_VARIANCES)
    if logvar is not None:
        return logvar.exp()
    _, std = _first(named, DEVIATIONS)
    return None if std is None else std.square()


def _first(named: Mapping[str, Any], names: Sequence[str]) -> tuple[str, Tensor | None]:
    for name in names:
        if name in named and isinstance(named[name], Tensor | np.ndarray):
            return name, torch.as_tensor(named[name])
    return "", None


def _flat(part: Tensor | np.ndarray) -> Tensor:
    tensor = torch.as_tensor(part)
    return tensor[:, None] if tensor.ndim == 1 else tensor.flatten(1)


def _pictures(part: Any, seen: Sequence[int]) -> bool:
    """Whether something is as large as the observations, flattened or not."""
    if not isinstance(part, Tensor | np.ndarray) or not part.ndim:
        return False
    return len(part) == seen[0] and math.prod(part.shape) == math.prod(seen)


def _triple(a: Tensor, b: Tensor, c: Tensor) -> tuple[str, ...] | None:
    """The order of sample, mean and logvar in three tensors, if just one of the two usual orders fits."""
    fits = [
        order
        for order, (sample, mean, logvar) in {
            ("sample", "mean", "logvar"): (a, b, c),
            ("mean", "logvar", "sample"): (c, a, b),
        }.items()
        if torch.equal(sample, mean) or AGREES[0] < _square(sample, mean, logvar) < AGREES[1]
    ]
    return fits[0] if len(fits) == 1 else None


def _square(sample: Tensor, mean: Tensor, logvar: Tensor) -> float:
    return float(((sample - mean).square() * (-logvar).exp()).mean())


def _example(places: int) -> str:
    return {2: "mean,logvar", 3: "sample,mean,logvar"}.get(places, ",".join(["-"] * (places - 2) + ["mean", "logvar"]))
