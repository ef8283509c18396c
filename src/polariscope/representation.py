"""The outputs of a model for data: means, variances, samples and layer activations, with the factors.

They are computed once: every measure, figure and comparison starts from a :class:`Representation`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from torch import Tensor

from polariscope.atomic import atomic
from polariscope.memory import available_memory, freed_memory_kept
from polariscope.subjects import Subject
from polariscope.subjects.checks import broken_promises
from polariscope.subjects.doors import subject_and_world
from polariscope.subjects.layers import recorded
from polariscope.worlds.factors import Factor
from polariscope.worlds.given import Data
from polariscope.worlds.world import sample_numbers, to_tensor

Floats = NDArray[np.float32]
FORMAT = "polariscope-representation-1"
BATCH = 256
AT_ONCE = 2**28
"""Bytes of observations that are there together; beyond, they are observed batch by batch."""


_ARRAYS = ("mean", "var", "sample", "factors", "prior_mean", "prior_var", "reconstruction", "index")


@dataclass(frozen=True, eq=False, repr=False)
class Representation:
    """Arrays with one row per example: ``mean`` always, everything else where it is known.

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
    decoder_layers: tuple[str, ...] = ()
    """Those of the layers that only decoding reaches."""
    notes: tuple[str, ...] = ()
    """What had to be assumed about the model, in sentences."""

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

    def __repr__(self) -> str:
        known = ", ".join(name for name, value in self._arrays().items() if not name.startswith("layers/"))
        layers = f", {len(self.layers)} layers" if self.layers else ""
        return f"<Representation: {self.count:,} examples, {self.latents} latent variables ({known}{layers})>"

    @property
    def count(self) -> int:
        return int(self.mean.shape[0])

    @property
    def latents(self) -> int:
        return int(self.mean.shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self._arrays().values())

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
        words = {"decoder_layers": json.dumps(self.decoder_layers), "notes": json.dumps(self.notes)}
        with atomic(path) as draft:
            save_file(arrays, draft, {"format": FORMAT, "factors": json.dumps(factors), **words})

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
        decoder_layers, notes = (tuple(json.loads(metadata.get(name, "[]"))) for name in ("decoder_layers", "notes"))
        return cls(**arrays, factor_info=factors, layers=layers, decoder_layers=decoder_layers, notes=notes)

    def _arrays(self) -> dict[str, NDArray[Any]]:
        named = {name: getattr(self, name) for name in _ARRAYS}
        named |= {f"layers/{name}": array for name, array in self.layers.items()}
        return {name: array for name, array in named.items() if array is not None}


def represent(
    model: Any,
    data: Data | None = None,
    *,
    count: int = 10_000,
    layers: Sequence[str] = (),
    reconstructions: bool = False,
    seed: int = 0,
    noise_seed: int | None = None,
    batch_size: int | None = None,
) -> Representation:
    """The outputs of ``model`` for ``count`` different observations of ``data``.

    The model is a :class:`~polariscope.subjects.Subject`, or anything that :func:`~polariscope.subjects.as_subject` can
    wrap into one; data is anything that :func:`~polariscope.worlds.given.as_world` takes, by default the training data
    of the run. ``layers`` names sub-modules whose activations are stored (see
    :func:`~polariscope.subjects.layers.layer_names`); layers of the decoder are computed from samples. ``seed`` draws
    the examples, ``noise_seed`` (by default the same) the noise of the samples: to compare two models, use the same
    examples and different noise, because shared noise looks like similarity.
    """
    subject, world = subject_and_world(model, data)
    index = sample_numbers(world, count, seed)
    factors = world.factors_of(index)
    row = math.prod(world.shape)
    observations = world.observe(index) if len(index) * row <= AT_ONCE else None
    batch_size = batch_size or getattr(world, "batch_size", None) or BATCH  # a loader brings its own
    batch_size = max(1, min(batch_size, AT_ONCE // (4 * row)))
    if subject.prior is not None and not world.factors:
        raise ValueError("this model has a conditional prior and needs a world with factors")

    def batch(start: int) -> tuple[Tensor, Tensor | None]:
        part = slice(start, start + batch_size)
        x = to_tensor(world.observe(index[part]) if observations is None else observations[part])
        if subject.prior is None:
            return x, None
        return x, torch.from_numpy(np.ascontiguousarray(factors[part]))

    subject = subject.understood(*batch(0), decoder=reconstructions)
    broken = broken_promises(subject, *batch(0))
    columns: dict[str, list[Tensor]] = {}
    decoded: set[str] = set()
    with freed_memory_kept(), subject.at_rest(), _recorded(subject, layers) as caught:
        torch.manual_seed(seed if noise_seed is None else noise_seed)
        for start in range(0, len(index), batch_size):
            caught.clear()
            x, u = batch(start)
            code = subject.encode(x, u, torch.from_numpy(index[start : start + batch_size]), len(world))
            if layers and subject.decodes is not None and not all(name in caught for name in layers):
                encoded = set(caught)
                try:
                    subject.decode(code.get("sample", code["mean"]), world.shape)
                except (ValueError, TypeError) as error:  # it costs the decoder's layers only
                    subject = subject.without_decoder(error)
                    for name in caught.keys() - encoded:
                        del caught[name]
                decoded |= caught.keys() - encoded
            if reconstructions:
                code["reconstruction"] = subject.generate(code["mean"], world.shape)
            for name, value in code.items():
                columns.setdefault(name, []).append(value.float().cpu())
            for name, value in caught.items():
                columns.setdefault(f"layers/{name}", []).append(value)
            if not start:
                _check_memory(columns, len(index), len(x))
    arrays = {name: torch.cat(parts).numpy() for name, parts in columns.items()}
    kept = [name.removeprefix("layers/") for name in arrays if name.startswith("layers/")]
    return Representation(
        **{name: value for name, value in arrays.items() if not name.startswith("layers/")},
        factors=factors if world.factors else None,
        factor_info=world.factors,
        layers={name: arrays[f"layers/{name}"] for name in kept},
        decoder_layers=tuple(name for name in kept if name in decoded),
        index=index,
        notes=(*subject.notes, *broken),
    )


@contextmanager
def _recorded(subject: Subject, layers: Sequence[str]) -> Iterator[dict[str, Tensor]]:
    if not layers:
        yield {}
        return
    if subject.module is None:
        raise TypeError(f"{subject.name} is not a module, so it has no layers")
    with recorded(subject.module, layers) as caught:
        yield caught


def _check_memory(columns: dict[str, list[Tensor]], count: int, seen: int) -> None:
    """Refuse activations that would not fit before they are all there."""
    wanted = sum(part.nbytes for parts in columns.values() for part in parts) // max(1, seen) * count
    there = available_memory()
    if wanted > there:
        fits = int(0.8 * there / (wanted / count))
        raise ValueError(
            f"the layers of {count} examples need {wanted / 2**30:.1f} GiB and {there / 2**30:.1f} GiB are free: "
            f"take fewer layers, or --count {fits}"
        )
