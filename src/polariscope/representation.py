"""What a model says about data: means, variances, samples, layer activations, next to the factors that caused it.

Embed once, measure everything: every measure, figure and comparison starts from a :class:`Representation`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from torch import Tensor, nn

from polariscope.atomic import atomic
from polariscope.memory import keep_freed_memory
from polariscope.worlds.factors import Factor
from polariscope.worlds.world import World, to_tensor
from polariscope.worlds.world import sample as sample_world

Floats = NDArray[np.float32]
FORMAT = "polariscope-representation-1"


_ARRAYS = ("mean", "var", "sample", "factors", "prior_mean", "prior_var", "reconstruction", "index")


@dataclass(frozen=True, eq=False)
class Representation:
    """Arrays with one row an example: ``mean`` always, everything else where it is known.

    >>> rep = Representation(mean=np.zeros((4, 3), np.float32))
    >>> rep.select([0, 2]).mean.shape
    (4, 2)
    """

    mean: Floats
    var: Floats | None = None
    """Posterior variances: neither standard deviations nor logarithms."""
    sample: Floats | None = None
    """One draw from the posterior an example."""
    factors: NDArray[Any] | None = None
    factor_info: tuple[Factor, ...] = ()
    layers: Mapping[str, Floats] = field(default_factory=dict)
    """Activations by layer name, flattened to ``(n, features)``."""
    prior_mean: Floats | None = None
    """Means of a conditional prior, where the model has one."""
    prior_var: Floats | None = None
    reconstruction: Floats | None = None
    """Expected observations of the means, in the data's units and shape."""
    index: NDArray[np.int64] | None = None
    """Numbers of the examples in their world."""

    def __post_init__(self) -> None:
        if self.mean.ndim != 2:
            raise ValueError(f"a representation needs means of shape (n, d); got {self.mean.shape}")
        for name, array in self._arrays().items():
            if len(array) != len(self.mean):
                raise ValueError(f"{name} has {len(array)} rows, the means have {len(self.mean)}")
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise ValueError(f"{name} contains NaN or infinity: the model is broken, or the data is")
        if self.var is not None and (self.var < 0).any():
            raise ValueError("a variance is negative: pass variances, not log-variances")

    @property
    def count(self) -> int:
        return int(self.mean.shape[0])

    @property
    def latents(self) -> int:
        return int(self.mean.shape[1])

    def select(self, variables: ArrayLike) -> Representation:
        """The same examples with some of the latent variables only."""
        keep = np.asarray(variables, dtype=np.int64)

        def columns(array: Floats | None) -> Floats | None:
            return None if array is None else array[:, keep]

        return replace(
            self,
            mean=self.mean[:, keep],
            var=columns(self.var),
            sample=columns(self.sample),
            prior_mean=columns(self.prior_mean),
            prior_var=columns(self.prior_var),
        )

    def save(self, path: Path | str) -> None:
        """Write everything to one safetensors file."""
        factors = [{"name": f.name, "size": f.size, "kind": f.kind, "values": f.values} for f in self.factor_info]
        arrays = {name: np.ascontiguousarray(array) for name, array in self._arrays().items()}
        with atomic(path) as draft:
            save_file(arrays, draft, {"format": FORMAT, "factors": json.dumps(factors)})

    @classmethod
    def load(cls, path: Path | str) -> Representation:
        """Read a file that :meth:`save` wrote."""
        try:
            with safe_open(path, framework="numpy") as file:
                metadata = file.metadata() or {}
                if metadata.get("format") != FORMAT:
                    raise ValueError(f"{path} is not a representation of this program")
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except FileNotFoundError as error:
            raise ValueError(f"there is no representation {path}") from error
        except SafetensorError as error:
            raise ValueError(f"the representation {path} is damaged and cannot be read ({error})") from error
        factors = tuple(Factor(**{**f, "values": tuple(f["values"])}) for f in json.loads(metadata["factors"]))
        layers = {n.removeprefix("layers/"): arrays.pop(n) for n in list(arrays) if n.startswith("layers/")}
        return cls(**arrays, factor_info=factors, layers=layers)

    def _arrays(self) -> dict[str, NDArray[Any]]:
        named = {name: getattr(self, name) for name in _ARRAYS}
        named |= {f"layers/{name}": array for name, array in self.layers.items()}
        return {name: array for name, array in named.items() if array is not None}


@torch.no_grad()
def represent(
    model: nn.Module,
    world: World,
    *,
    count: int = 10_000,
    layers: Sequence[str] = (),
    reconstructions: bool = False,
    seed: int = 0,
    noise_seed: int | None = None,
    batch_size: int = 256,
) -> Representation:
    """What ``model`` says about ``count`` different observations of ``world``.

    The model is any module with ``encode(x)``; what may come out of it is told at :func:`read_posterior`. ``layers``
    names sub-modules whose activations are kept (see :func:`layer_names`); those of the decoder are made from samples.
    ``seed`` draws the examples, ``noise_seed`` (the same, if not given) the noise of the samples: give two models that
    are to be compared the same examples and different noise, or the noise itself will look like a likeness.
    """
    encode: Callable[..., Any] | None = getattr(model, "encode", None)
    if not callable(encode):
        raise TypeError(f"{type(model).__name__} has no encode method: a model to examine needs encode(x)")
    keep_freed_memory()
    observations, factors, index = sample_world(world, count, seed)
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    columns: dict[str, list[Tensor]] = {}
    conditional = callable(getattr(model, "prior", None))
    if conditional and not world.factors:
        raise ValueError("this model has a conditional prior and needs a world with factors")
    decoded = any(name.startswith("decoder") for name in layers)
    generate = generator(model) if reconstructions else None
    was_training = model.training
    model.eval()
    with activations(model, layers) as caught, torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed if noise_seed is None else noise_seed)
        for start in range(0, len(observations), batch_size):
            x = to_tensor(observations[start : start + batch_size], device)
            if conditional:
                u = torch.from_numpy(np.ascontiguousarray(factors[start : start + batch_size])).to(device)
                posterior = read_posterior(encode(x, u)) | read_prior(model.prior(u))  # type: ignore[operator]
            else:
                posterior = read_posterior(encode(x))
            if decoded:
                model.decode(posterior.get("sample", posterior["mean"]))  # type: ignore[operator]
            if generate is not None:
                posterior["reconstruction"] = generate(posterior["mean"])
            for name, value in posterior.items():
                columns.setdefault(name, []).append(value.float().cpu())
            for name in layers:
                columns.setdefault(f"layers/{name}", []).append(caught[name].flatten(1).float().cpu())
    model.train(was_training)
    arrays = {name: torch.cat(parts).numpy() for name, parts in columns.items()}
    return Representation(
        **{name: value for name, value in arrays.items() if not name.startswith("layers/")},
        factors=factors if world.factors else None,
        factor_info=world.factors,
        layers={name: arrays[f"layers/{name}"] for name in layers},
        index=index,
    )


def read_posterior(output: Any) -> dict[str, Tensor]:
    """Mean, variance and a sample from whatever an ``encode`` method returns.

    Understood are: a tensor (a deterministic code), a pair (mean, log-variance), a mapping with ``mean`` and ``var``
    or ``logvar``, and objects with those attributes (``torch.distributions`` and our own posteriors among them).
    """
    if isinstance(output, Tensor):
        return {"mean": output.flatten(1)}
    if isinstance(output, tuple | list):
        if len(output) < 2 or not all(isinstance(part, Tensor) for part in output[:2]):
            raise TypeError("encode returned a tuple that is not (mean, log-variance)")
        mean, logvar = output[0].flatten(1), output[1].flatten(1)
        return _with_sample(mean, logvar.exp())
    found = output if isinstance(output, Mapping) else {n: getattr(output, n) for n in _NAMES if hasattr(output, n)}
    mean = found.get("mean")
    if not isinstance(mean, Tensor):
        raise TypeError(f"encode returned a {type(output).__name__} without a mean; return a tensor, or (mean, logvar)")
    var, logvar = found.get("var", found.get("variance")), found.get("logvar")
    if not isinstance(var, Tensor) and isinstance(logvar, Tensor):
        var = logvar.exp()
    if not isinstance(var, Tensor) or not var.any():
        return {"mean": mean.flatten(1)}
    draw = getattr(output, "sample", None)
    if callable(draw):
        return {"mean": mean.flatten(1), "var": var.flatten(1), "sample": draw().flatten(1)}
    return _with_sample(mean.flatten(1), var.flatten(1))


def read_prior(prior: Any) -> dict[str, Tensor]:
    """Mean and variance of a conditional prior, under the names a representation has for them."""
    return {f"prior_{name}": value for name, value in read_posterior(prior).items() if name != "sample"}


_NAMES = ("mean", "var", "variance", "logvar")


def _with_sample(mean: Tensor, var: Tensor) -> dict[str, Tensor]:
    return {"mean": mean, "var": var, "sample": mean + torch.randn_like(mean) * var.sqrt()}


def generator(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """Latents to observations in the data's units: ``generate`` where the model has it, else ``decode``, whose output
    is taken as logits if it leaves [0, 1]."""
    if callable(getattr(model, "generate", None)):
        return model.generate  # type: ignore[return-value]
    if not callable(getattr(model, "decode", None)):
        raise TypeError(f"{type(model).__name__} has no decode method, so it cannot reconstruct")

    def decode(z: Tensor) -> Tensor:
        output: Tensor = model.decode(z)  # type: ignore[operator]
        return output if output.min() >= 0 and output.max() <= 1 else output.sigmoid()

    return decode


def layer_names(model: nn.Module) -> list[str]:
    """Names of the layers whose activations are worth comparing: direct children of ``encoder`` and ``decoder`` where
    the model has them, else every leaf module."""
    parts = [part for part in ("encoder", "decoder") if isinstance(getattr(model, part, None), nn.Module)]
    if parts:
        return [f"{part}.{name}" for part in parts for name, _ in getattr(model, part).named_children()]
    return [name for name, module in model.named_modules() if name and not list(module.children())]


@contextmanager
def activations(model: nn.Module, layers: Sequence[str]) -> Iterator[dict[str, Tensor]]:
    """A dictionary that holds the latest output of each named layer while the block lasts; no hook outlives it."""
    modules = dict(model.named_modules())
    missing = [name for name in layers if name not in modules]
    if missing:
        raise ValueError(f"the model has no layer {missing[0]!r}; it has {', '.join(layer_names(model))}")
    caught: dict[str, Tensor] = {}

    def keep(name: str) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            if not isinstance(output, Tensor):
                raise TypeError(f"layer {name!r} returns a {type(output).__name__}, not a tensor")
            caught[name] = output.detach()

        return hook

    handles = [modules[name].register_forward_hook(keep(name)) for name in layers]
    try:
        yield caught
    finally:
        for handle in handles:
            handle.remove()
