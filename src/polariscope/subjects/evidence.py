"""Infer the roles of the elements of an unnamed tuple, from the model's behaviour, the names in its source, and the
values.

Three kinds of evidence, the stronger first:

1. *Measured.* Where a sample can be drawn again and again (the encoder returns one, the decoder receives one while the
   model runs forward, or the model has a ``reparameterize``), its spread shows whether the scale is a standard
   deviation, a variance or a logarithm of one.
2. *Named.* The return statement of the user's own source: ``return mu, log_var``.
3. *Values.* Negative numbers are neither variances nor standard deviations, and a posterior is hardly ever wider than
   the prior N(0, 1): mostly negative numbers beside a code are likely log-variances.

An undecided tuple is refused, with the flag that declares it.
"""

from __future__ import annotations

import ast
import inspect
import math
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

ROLES = ("mean", "logvar", "var", "logstd", "std", "sample", "-")
"""Roles of the places of a tuple; ``-`` is ignored."""
SCALES: dict[str, Callable[[Tensor], Tensor]] = {
    "logvar": torch.exp,
    "std": torch.square,
    "var": lambda scale: scale,
    "logstd": lambda scale: (2 * scale).exp(),
}
"""The variance from the value of a place, by its role."""
FITS = (0.7, 1.4)
"""Mean square of (sample - mean) / std between which the three belong together; it should be 1."""
CLEARLY = 10.0
"""Nats by which the best reading of the draws must be ahead of the next one."""
DRAWN = 4000
"""Numbers that the repeated draws of a sample should have together, within 8 and 64 repetitions."""
WIDER = (0.1, 0.05)
"""Log-variances beyond the first of these are wider than the prior; up to the second share of them may be."""
SAMPLERS = re.compile(r"_?(reparam\w*|sample_gauss\w*|sample_(z|latent)\w*|sampling)")
"""Methods by which models draw a sample from two tensors."""

Draws = Callable[[Sequence[Tensor]], Iterator[Tensor]]
"""Samples of the code that the model itself draws, given the tensors of a tuple."""


@dataclass(frozen=True)
class Reading:
    """The roles of the elements of a tuple, and the evidence for them."""

    roles: tuple[str, ...]
    why: str
    sure: bool = True

    @property
    def sentence(self) -> str:
        places = f"encode returns ({', '.join(self.roles)})"
        if self.sure:
            return f"{places}: {self.why}."
        return f"{places}, as is likely: {self.why}. If not, declare it with --returns (returns= in Python)."


def unnamed(output: Any) -> bool:
    """Whether an output is a tuple or list without names."""
    return isinstance(output, tuple | list) and not hasattr(output, "_asdict")


def read_places(
    output: Sequence[Any],
    seen: Sequence[int],
    *,
    again: Callable[[], Sequence[Any]] | None = None,
    draws: Sequence[Draws] = (),
    names: Sequence[str] = (),
) -> Reading:
    """The roles of the elements of an encoder's tuple; if the evidence is not enough, an error asks for a declaration.

    ``seen`` is the shape of the observations, ``again`` runs the encoder on them once more, ``draws`` are ways to
    observe samples that the model draws itself, ``names`` are the names of the places in the source.

    >>> read_places((torch.randn(64, 2), torch.full((64, 2), -3.0)), (64, 1, 8, 8)).roles
    ('mean', 'logvar')
    """
    kept = code_places(output, seen)
    reading: Reading | None = None
    shapes = {tuple(output[place].shape) for place in kept}
    if len(kept) == 1:
        reading = Reading(("mean",), "the others are not one vector for each example" if len(output) > 1 else "alone")
    elif len(kept) in (2, 3) and len(shapes) == 1:
        first = [_table(output[place]) for place in kept]
        answers = [] if again is None else _asked(again, _repeats(first))
        calls = [first, *([_table(answer[place]) for place in kept] for answer in answers)]
        named = tuple(names[place] for place in kept) if len(names) == len(output) else ()
        if len(kept) == 3 or len(_moving(calls)) == 1:
            reading = _by_own_samples(calls, named)
        else:
            tensors = [torch.as_tensor(output[place]) for place in kept]
            drawn = ([_table(sample) for sample in draw(tensors)] for draw in draws)
            measured = (_by_drawn(first, samples, named) for samples in drawn)
            reading = next(filter(None, measured), None) or _by_names(first, named) or _by_values(first)
    if reading is None:
        raise ValueError(undecided(output, kept))
    places = ["-"] * len(output)
    for place, role in zip(kept, reading.roles, strict=True):
        places[place] = role
    return Reading(tuple(places), reading.why, reading.sure)


def code_places(output: Sequence[Any], seen: Sequence[int]) -> list[int]:
    """The elements that may be codes: one row of floats for each example.

    Single numbers beside tensors are losses and log-determinants, whole numbers are indices, and what has the size of
    the observations is a reconstruction or the input again; each of them only if something else remains.
    """
    parts = {i: torch.as_tensor(p) for i, p in enumerate(output) if isinstance(p, Tensor | np.ndarray)}
    kept = [i for i, p in parts.items() if p.ndim and len(p) == seen[0]]
    for sets_aside in (
        lambda part: part.ndim == 1,
        lambda part: part[0].numel() == 1,
        lambda part: not part.is_floating_point(),
        lambda part: pictures(part, seen),
    ):
        kept = [i for i in kept if not sets_aside(parts[i])] or kept
    return kept


def pictures(part: Any, seen: Sequence[int]) -> bool:
    """Whether a tensor is as large as the observations, flattened or not."""
    if not isinstance(part, Tensor | np.ndarray) or not part.ndim:
        return False
    return len(part) == seen[0] and math.prod(part.shape) == math.prod(seen)


def undecided(output: Sequence[Any], kept: Sequence[int]) -> str:
    """The error message that asks for the roles of the elements of a tuple."""
    came = ", ".join(str(tuple(o.shape)) if isinstance(o, Tensor | np.ndarray) else type(o).__name__ for o in output)
    why, scale = "", "logvar"
    if len(kept) == 2 and bool((torch.as_tensor(output[kept[1]]) >= 0).all()):
        why, scale = " (the second has no negative number: a standard deviation, a variance, or neither)", "std"
    roles = ["-"] * len(output)
    alike = len({tuple(output[place].shape) for place in kept}) == 1
    usual = {2: ["mean", scale], 3: ["sample", "mean", "logvar"]}.get(len(kept) if alike else 1, ["mean"])
    for place, role in zip(kept or range(len(output)), usual, strict=False):
        roles[place] = role
    example = ",".join(roles)
    return (
        f"encode returned {len(output)} values ({came}) whose roles cannot be inferred{why}: declare them, for example "
        f"--returns {example}, in Python returns={example!r} (of {', '.join(ROLES)})"
    )


# Measured


def decoder_inputs(module: nn.Module, run: Callable[[], Any]) -> Draws:
    """The inputs of the sub-module ``decoder`` when the whole model runs forward: its own samples."""

    def draw(places: Sequence[Tensor]) -> Iterator[Tensor]:
        decoder = getattr(module, "decoder", None)
        if not isinstance(decoder, nn.Module):
            return
        caught: list[Tensor] = []

        def keep(module: nn.Module, inputs: tuple[Any, ...]) -> None:
            caught.extend(part for part in inputs[:1] if isinstance(part, Tensor))

        handle = decoder.register_forward_pre_hook(keep)
        try:
            for _ in _repeats(places):
                caught.clear()
                run()
                if len(caught) != 1 or caught[0].numel() != places[0].numel():
                    return
                yield caught[0]
        except Exception:  # noqa: BLE001 - a forward that wants more than observations may raise anything
            return
        finally:
            handle.remove()

    return draw


def own_sampler(module: nn.Module) -> Draws:
    """The result of the model's ``reparameterize`` for the two tensors, in training mode, since many models sample only
    there. Only the module itself is in training mode, not its sub-modules."""

    def draw(places: Sequence[Tensor]) -> Iterator[Tensor]:
        names = [name for name in dir(type(module)) if SAMPLERS.fullmatch(name)]
        for name in names:
            mode, module.training = module.training, True
            try:
                for _ in _repeats(places):
                    sample = getattr(module, name)(*places)
                    sample = sample[0] if isinstance(sample, tuple | list) else sample
                    if not isinstance(sample, Tensor) or sample.shape != places[0].shape:
                        break
                    yield sample
            except Exception:  # noqa: BLE001 - a method of that name may want other things and raise anything
                continue
            finally:
                module.training = mode
            return

    return draw


def _repeats(places: Sequence[Tensor]) -> range:
    return range(max(8, min(64, DRAWN // max(1, places[0].numel()))))


def _asked(again: Callable[[], Sequence[Any]], repeats: range) -> Iterator[Sequence[Any]]:
    """Further answers; one repetition is enough if the second is the first again."""
    before: Sequence[Any] | None = None
    for _ in repeats:
        answer = again()
        yield answer
        if before is not None and all(_same(a, b) for a, b in zip(before, answer, strict=True)):
            return
        before = answer


def _same(one: Any, other: Any) -> bool:
    if not isinstance(one, Tensor | np.ndarray):
        return True
    return torch.equal(torch.as_tensor(one), torch.as_tensor(other))


def _moving(calls: Sequence[Sequence[Tensor]]) -> list[int]:
    """The places that are not the same in every answer about the same observations."""
    return [i for i in range(len(calls[0])) if any(not torch.equal(calls[0][i], call[i]) for call in calls[1:])]


def _by_own_samples(calls: Sequence[Sequence[Tensor]], names: Sequence[str]) -> Reading | None:
    """The roles of places among which the encoder returns its own sample."""
    count, moving = len(calls[0]), _moving(calls)
    if count == 2:
        return _sample_and_mean(calls, moving[0])
    if not moving:
        return _sample_is_mean(calls[0], names)
    scored: dict[tuple[str, ...], float] = {}
    for sample, mean, scale in permutations(range(3)):
        if sample in moving:
            for role in SCALES:
                roles = [""] * 3
                roles[sample], roles[mean], roles[scale] = "sample", "mean", role
                scored[tuple(roles)] = _likelihood([(c[sample], c[mean], c[scale]) for c in calls], role)
    best = _clear(scored)
    return None if best is None else Reading(best, "the sample spreads around the mean as this role predicts")


def _sample_and_mean(calls: Sequence[Sequence[Tensor]], sample: int) -> Reading | None:
    """One value changes from call to call, and the other is its mean."""
    drawn = torch.stack([call[sample] for call in calls])
    error = drawn.var(0).clamp_min(1e-30) / len(drawn)
    off = float(((drawn.mean(0) - calls[0][1 - sample]).square() / error).mean())
    if not FITS[0] / 2 < off < 2 * FITS[1]:
        return None
    roles = ("sample", "mean") if sample == 0 else ("mean", "sample")
    return Reading(roles, "one changes from call to call, and the other is its average")


def _sample_is_mean(parts: Sequence[Tensor], names: Sequence[str]) -> Reading | None:
    """In evaluation mode many models return their mean as the sample: then two places are the same."""
    for roles, pair, scale in ((("sample", "mean"), (0, 1), 2), (("mean", "sample"), (0, 2), 1)):
        if torch.equal(parts[pair[0]], parts[pair[1]]):
            two = [parts[pair[0]], parts[scale]]
            reading = _by_names(two, ["mean", names[scale]] if names else ()) or _by_values(two)
            if reading is None:
                return None
            placed = [""] * 3
            placed[pair[0]], placed[pair[1]], placed[scale] = *roles, reading.roles[1]
            return Reading(tuple(placed), f"the sample is the mean itself, and {reading.why}", reading.sure)
    return None


def _by_drawn(parts: Sequence[Tensor], drawn: Sequence[Tensor], names: Sequence[str]) -> Reading | None:
    """The roles of two places by samples that the model drew from them."""
    if len(drawn) < 2 or torch.equal(drawn[0], drawn[1]):
        return None
    scored: dict[tuple[str, ...], float] = {}
    for role in SCALES:
        for mean, roles in ((0, ("mean", role)), (1, (role, "mean"))):
            scored[roles] = _likelihood([(sample, parts[mean], parts[1 - mean]) for sample in drawn], role)
    best = _clear(scored)
    if best is None:
        return None
    place = 1 - best.index("mean")
    if best[place].startswith("log") and not (parts[place] < 0).any():  # wider than the prior everywhere, against sense
        named = _by_names(parts, names)
        if named is None or named.roles != best:
            return None
    return Reading(best, "the samples that the model draws spread as this role predicts")


def _likelihood(draws: Sequence[tuple[Tensor, Tensor, Tensor]], role: str) -> float:
    """Log-likelihood of samples given mean and scale; -inf if the scale cannot be that, or does not fit the spread."""
    total, squares = 0.0, 0.0
    for sample, mean, scale in draws:
        if role in ("var", "std") and bool((scale <= 0).any()):
            return -math.inf
        var = SCALES[role](scale).clamp(1e-30, 1e30)
        square = (sample - mean).square() / var
        total -= 0.5 * float((square + var.log()).sum())
        squares += float(square.mean()) / len(draws)
    return total if FITS[0] < squares < FITS[1] else -math.inf


def _clear(scored: dict[tuple[str, ...], float]) -> tuple[str, ...] | None:
    """The most likely reading, if it is clearly ahead."""
    best, second = sorted(scored, key=lambda roles: -scored[roles])[:2]
    clear = math.isfinite(scored[best]) and scored[best] - scored[second] > CLEARLY
    return best if clear else None


# Named


def returned_names(function: Any, places: int) -> tuple[str, ...]:
    """The variable names in the tuple that a function returns, from its source code; empty if they cannot be read.

    >>> def encode(x):
    ...     return x.fc_mu(x), x.log_var
    >>> returned_names(encode, 2)
    ('fc_mu', 'log_var')
    """
    function = function.forward if isinstance(function, nn.Module) else function
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    except (OSError, TypeError, SyntaxError, ValueError):
        return ()
    returns = [node.value for node in ast.walk(tree) if isinstance(node, ast.Return)]
    names_returned = {tuple(map(_called, value.elts)) for value in returns if isinstance(value, ast.Tuple | ast.List)}
    names_returned = {names for names in names_returned if len(names) == places}
    return names_returned.pop() if len(names_returned) == 1 else ()


def _called(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        return _called(node.func)
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def role_of_name(name: str) -> str:
    """The role that a variable's name suggests, if any.

    >>> [role_of_name(name) for name in ("fc_mu", "z_log_var", "sigma", "logsigma2", "features")]
    ['mean', 'logvar', 'std', 'logvar', '']
    """
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    scale = re.search(r"(log|ln)?(sigma2|sigmasq\w*|var\w*|covariance|std\w*|sigma|scale|dev\w*)$", plain)
    if scale:
        squared = re.match(r"sigma2|sigmasq|var|cov", scale[2]) is not None
        return ("log" if scale[1] else "") + ("var" if squared else "std")
    return "mean" if re.search(r"(mu|mean|means|loc)\d*$", plain) else "logvar" if plain == "lv" else ""


def _by_names(parts: Sequence[Tensor], names: Sequence[str]) -> Reading | None:
    """The roles that the return statement names, if the values allow them."""
    roles = [role_of_name(name) for name in names]
    if len(roles) != 2 or sorted(role == "mean" for role in roles) != [False, True] or not all(roles):
        return None
    place = 1 - roles.index("mean")
    negative = bool((parts[place] < 0).any())
    why = f"so its return statement calls them ({', '.join(names)})"
    if roles[place] == "var" and negative:  # fc_var makes log-variances in much published code
        roles[place], why = "logvar", f"{why}, and no variance is negative"
    elif roles[place] == "std" and negative:
        return None
    sure = not why.endswith("negative") and (negative or not roles[place].startswith("log"))
    return Reading(tuple(roles), why, sure)


# Values


def _by_values(parts: Sequence[Tensor]) -> Reading | None:
    """(mean, logvar), if the second has the values of one."""
    scale = parts[1]
    wider = float((scale > WIDER[0]).double().mean())
    probabilities = torch.allclose(scale.exp().sum(1), torch.ones((), dtype=scale.dtype), atol=1e-4)
    if not (scale < 0).any() or wider > WIDER[1] or (probabilities and scale.shape[1] > 1):
        return None
    return Reading(("mean", "logvar"), "the second has the values of log-variances, negative or near 0", sure=False)


def _table(part: Any) -> Tensor:
    tensor = torch.as_tensor(part)
    return (tensor[:, None] if tensor.ndim == 1 else tensor.flatten(1)).double().cpu()
