"""Stored results of attacks, block by block: an interrupted evaluation continues, and a further norm or attack repeats
nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save, save_file

from polariscope.atomic import atomic
from polariscope.lab.store import fingerprint
from polariscope.robustness.attacks import Attack, Attacked, Norm, attacks
from polariscope.strict_json import json_text
from polariscope.subjects import Subject, as_subject

Stored = tuple[dict[str, NDArray[Any]], dict[str, Any]]
"""Arrays by name, and further facts as JSON."""
ROWS = ("distances", "queries", "gradients", "zero_gradients", "by")


@dataclass(frozen=True)
class KeptAttacks:
    """A folder with a file for each attack, norm and block of images. ``identity`` identifies the weights and the data
    of the results."""

    folder: Path
    identity: dict[str, Any]

    def attacked(
        self,
        attack: Attack,
        subject: Any,
        x: torch.Tensor,
        y: torch.Tensor,
        numbers: NDArray[np.int64],
        *,
        norm: Norm,
        seed: int,
        epsilons: tuple[float, ...] = (),
    ) -> Attacked:
        """The result of an attack on a block of images: read if it is stored, otherwise computed and stored."""
        path = self.file(attack, x, y, numbers, norm=norm, seed=seed, epsilons=epsilons)
        kept = read_attacked(path)
        if kept is not None:
            return kept
        result = attack(subject, x, y, norm=norm, seed=seed, numbers=numbers, epsilons=epsilons or None)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_attacked(path, result)
        return result

    def file(
        self,
        attack: Attack,
        x: torch.Tensor,
        y: torch.Tensor,
        numbers: NDArray[np.int64],
        *,
        norm: Norm,
        seed: int,
        epsilons: tuple[float, ...] = (),
    ) -> Path:
        """Where the result of an attack on a block of images is stored."""
        key = {
            **self.identity,
            "attack": attacks.describe(attack),
            "norm": norm,
            "seed": seed,
            "numbers": np.asarray(numbers).tolist(),
            "examples": examples_hash(x, y),
        }
        if epsilons:
            key["epsilons"] = list(epsilons)
        if substitutes := [_identity(one, x, y) for one in _substitutes(attack)]:
            key["substitutes"] = substitutes
        return self.folder / f"{attacks.name_of(attack)}-{norm}-{fingerprint(key)}.safetensors"

    def kept(self, name: str, key: dict[str, Any], compute: Callable[[], Stored]) -> Stored:
        """Arrays and facts of another kind of measurement: read if they are stored, otherwise computed and stored."""
        path = self.folder / f"{name}-{fingerprint({**self.identity, 'measurement': name, **key})}.safetensors"
        if (stored := read_stored(path)) is not None:
            return stored
        stored = compute()
        self.folder.mkdir(parents=True, exist_ok=True)
        arrays, facts = stored
        tensors = {part: torch.from_numpy(np.array(value, order="C")) for part, value in arrays.items()}
        with atomic(path) as draft:
            save_file(tensors, draft, {"facts": json_text(facts)})
        return stored


def read_stored(path: Path) -> Stored | None:
    """Stored arrays and facts; None if there are none, or if their file is damaged."""
    if not path.exists():
        return None
    try:
        with safe_open(path, "pt") as file:
            facts = json.loads(file.metadata()["facts"])
            return {name: file.get_tensor(name).numpy() for name in file.keys()}, facts  # noqa: SIM118 - no mapping
    except (SafetensorError, KeyError, TypeError, ValueError, OSError):
        return None


def write_attacked(path: Path, result: Attacked) -> None:
    """Keep a result in a file."""
    with atomic(path) as draft:
        draft.write_bytes(attacked_bytes(result))


def attacked_bytes(result: Attacked) -> bytes:
    """The file of a result."""
    tensors = {name: torch.from_numpy(np.ascontiguousarray(getattr(result, name))) for name in ROWS}
    tensors["adversarials"] = result.adversarials.contiguous()
    about = {"attacks": result.attacks, "norm": result.norm, "epsilons": result.epsilons}
    content: bytes = save(tensors, {"attacked": json_text(about)})
    return content


def read_attacked(path: Path) -> Attacked | None:
    """A stored result; None if there is none, or if its file is damaged, so that it is computed again."""
    if not path.exists():
        return None
    try:
        with safe_open(path, "pt") as file:
            about = json.loads(file.metadata()["attacked"])
            rows = {name: file.get_tensor(name).numpy() for name in ROWS}
            adversarials = file.get_tensor("adversarials")
    except (SafetensorError, KeyError, TypeError, ValueError, OSError):
        return None
    return Attacked(
        tuple(about["attacks"]), about["norm"], adversarials, epsilons=tuple(about["epsilons"]), **rows
    )  # fmt: skip


def examples_hash(x: torch.Tensor, y: torch.Tensor) -> str:
    """A hash of images and their classes."""
    digest = hashlib.sha256(f"{tuple(x.shape)}{x.dtype}".encode())
    for values in (x, y):
        digest.update(values.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def weights_hash(subject: Subject) -> str:
    """The identity of a classifier: a hash of the layers of a module, of the names, shapes and values of its state, and
    of the numbers and words among its attributes; for anything other than a module, its name. The forward pass itself
    is not hashed."""
    if subject.module is None:
        return subject.name
    digest = hashlib.sha256(repr(subject.module).encode())
    for name, value in subject.module.state_dict().items():
        if isinstance(value, torch.Tensor):
            digest.update(f"{name}{tuple(value.shape)}{value.dtype}".encode())
            digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    for place, module in subject.module.named_modules():
        settings = {name: value for name, value in vars(module).items() if isinstance(value, int | float | str)}
        settings.pop("training", None)
        digest.update(f"{place}{sorted(settings.items())}".encode())
    return digest.hexdigest()[:16]


def _substitutes(attack: Any) -> Iterator[Any]:
    """The other classifiers that an attack, or one inside it, makes use of."""
    if is_dataclass(attack):
        for one in fields(attack):
            value = getattr(attack, one.name)
            if one.name == "substitute":
                yield value
            elif isinstance(value, Attack):
                yield from _substitutes(value)


def _identity(other: Any, x: torch.Tensor, y: torch.Tensor) -> str:
    """The identity of another classifier: its weights, or the scores of one that is no module."""
    subject = as_subject(other)
    if subject.module is not None:
        return weights_hash(subject)
    with subject.at_rest():
        return examples_hash(subject.scores(x), y)
