"""Shared parts of worlds of molecules: bag-of-bonds as observations, a property as the target, both standardised.

Statistics are those of the training molecules. Columns that never change there, as the self terms of isomers, become 0
(Spec 000, trap T5).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.worlds.bag_of_bonds import BagLayout, bag_of_bonds, layout_of
from polariscope.worlds.factors import Factor, numbered
from polariscope.worlds.targets import Target

Floats = NDArray[np.float64]
CONSTANT = 1e-9
"""Columns whose standard deviation is below this share of their largest number are constant up to rounding."""


@dataclass(frozen=True, eq=False)
class Molecules:
    """Molecules with their properties.

    ``charges`` ``(n, atoms)`` and ``positions`` ``(n, atoms, 3)`` are filled up with charge 0 where a molecule has
    fewer atoms; ``properties`` has a column ``(n,)`` for each name, and ``labels`` a word (a SMILES) for each molecule,
    if there are any. ``identities`` are words that are equal if and only if two molecules are the same (canonical
    SMILES), if they are known. ``words_of`` has a value of each column of the file that has no numbers.
    """

    charges: NDArray[np.int64]
    positions: Floats
    properties: dict[str, Floats]
    labels: tuple[str, ...] = ()
    identities: tuple[str, ...] = ()
    words_of: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.charges)

    def chosen(self, index: ArrayLike) -> Molecules:
        """Some of the molecules, by number."""
        numbers = numbered(index, len(self))
        properties = {name: values[numbers] for name, values in self.properties.items()}
        labels, identities = (
            tuple(words[number] for number in numbers) if words else () for words in (self.labels, self.identities)
        )
        return Molecules(self.charges[numbers], self.positions[numbers], properties, labels, identities, self.words_of)

    @property
    def words(self) -> tuple[str, ...]:
        """The words by which duplicates are found: identities if they are known, otherwise labels."""
        return self.identities or self.labels


@dataclass(frozen=True, eq=False)
class Scaling:
    """Numbers brought to mean 0 and standard deviation 1, and back; constant columns become 0."""

    mean: Floats
    deviation: Floats
    """1 for constant columns."""

    @classmethod
    def of(cls, rows: Floats) -> Scaling:
        """
        >>> scaling = Scaling.of(np.array([[1.0, 5.0], [3.0, 5.0]]))
        >>> scaling.scaled(np.array([[3.0, 5.0]])).tolist(), scaling.original(np.array([[1.0, 0.0]])).tolist()
        ([[1.0, 0.0]], [[3.0, 5.0]])
        """
        mean, deviation = rows.mean(axis=0), rows.std(axis=0)
        constant = deviation <= CONSTANT * np.abs(rows).max(axis=0)
        return cls(np.where(constant, rows[0], mean), np.where(constant, 1.0, deviation))

    def scaled(self, rows: ArrayLike) -> Floats:
        return np.asarray((np.asarray(rows, dtype=np.float64) - self.mean) / self.deviation)

    def original(self, rows: ArrayLike) -> Floats:
        return np.asarray(np.asarray(rows, dtype=np.float64) * self.deviation + self.mean)


class MoleculeWorld(ABC):
    """A world of molecules. A new one defines ``molecules``, ``chosen_properties`` and ``held_out``."""

    standardised: bool

    @property
    @abstractmethod
    def molecules(self) -> Molecules:
        """The molecules in the order of their numbers."""

    @property
    @abstractmethod
    def chosen_properties(self) -> tuple[str, ...]:
        """Names of the properties that are targets."""

    @property
    @abstractmethod
    def held_out(self) -> NDArray[np.int64] | None:
        """Numbers of the test molecules."""

    @cached_property
    def layout(self) -> BagLayout:
        """Meaning of the columns of an observation."""
        return layout_of(self.molecules.charges)

    @cached_property
    def bags(self) -> Floats:
        """Bag-of-bonds of all molecules, as they are."""
        bags = bag_of_bonds(self.molecules.charges, self.molecules.positions, self.layout)
        bags.flags.writeable = False
        return bags

    @cached_property
    def values(self) -> Floats:
        """The properties ``(n, k)`` of all molecules, in their own units."""
        values = np.stack([self.molecules.properties[name] for name in self.chosen_properties], axis=1)
        values.flags.writeable = False
        return values

    @cached_property
    def _trained(self) -> NDArray[np.bool_]:
        trained = np.ones(len(self), dtype=bool)
        if self.held_out is not None:
            trained[self.held_out] = False
        return trained

    @cached_property
    def scaling(self) -> tuple[Scaling, Scaling]:
        """That of observations and that of properties, from the molecules that are trained on."""
        if self.standardised:
            return Scaling.of(self.bags[self._trained]), Scaling.of(self.values[self._trained])
        return (Scaling(np.zeros(self.bags.shape[1]), np.ones(self.bags.shape[1])),
                Scaling(np.zeros(self.values.shape[1]), np.ones(self.values.shape[1])))  # fmt: skip

    @cached_property
    def _scaled(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        x, y = self.scaling
        return x.scaled(self.bags).astype(np.float32), y.scaled(self.values).astype(np.float32)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.layout.dimension,)

    @property
    def factors(self) -> tuple[Factor, ...]:
        return tuple(Factor(name, 0) for name in self.chosen_properties)

    @property
    def targets(self) -> tuple[Target, ...]:
        return tuple(Target(name, "number") for name in self.chosen_properties)

    def __len__(self) -> int:
        return len(self.molecules)

    def observe(self, index: ArrayLike) -> NDArray[Any]:
        return self._scaled[0][numbered(index, len(self))]

    def factors_of(self, index: ArrayLike) -> NDArray[Any]:
        return self.values[numbered(index, len(self))]

    def target_of(self, index: ArrayLike) -> NDArray[Any]:
        return self._scaled[1][numbered(index, len(self))]

    def original(self, observations: ArrayLike) -> Floats:
        """Bag-of-bonds of observations, generated ones among them, as they were before they were standardised."""
        return self.scaling[0].original(observations)

    def original_target(self, targets: ArrayLike) -> Floats:
        """Properties in their own units."""
        return self.scaling[1].original(targets)

    @property
    def property_names(self) -> tuple[str, ...]:
        return self.chosen_properties

    def shown_property(self, targets: ArrayLike) -> Floats:
        """The same as :meth:`original_target`."""
        return self.original_target(targets)

    def property_target(self, values: ArrayLike) -> Floats:
        """Targets of properties in their own units."""
        return self.scaling[1].scaled(values)


def check_property(name: str, values: ArrayLike, source: str, count: int) -> Floats:
    """A property of ``count`` molecules as numbers; what cannot be learned is refused in a sentence."""
    column = np.asarray(values)
    if column.shape != (count,):
        raise ValueError(
            f"{source}: expected one value of the property {name!r} for each of {count} molecules, but its shape is "
            f"{column.shape}"
        )
    if column.dtype.kind not in "iufb":
        raise ValueError(f"{source}: expected numbers as the property {name!r}, but they are {column.dtype}")
    numbers = column.astype(np.float64)
    if not np.isfinite(numbers).all():
        row = int(np.flatnonzero(~np.isfinite(numbers))[0])
        raise ValueError(f"{source}: expected finite numbers as the property {name!r}, but molecule {row} has none")
    if numbers.std() <= CONSTANT * np.abs(numbers).max():
        raise ValueError(
            f"{source}: expected a property that varies, but {name!r} is {numbers[0]:g} everywhere; name another"
        )
    return numbers


def check_trained(properties: Mapping[str, Floats], held_out: NDArray[np.int64], source: str) -> None:
    """Refuse a property that varies only in the held-out molecules: no model can learn it."""
    for name, values in properties.items():
        trained = np.delete(values, held_out)
        if len(trained) > 1 and trained.std() <= CONSTANT * np.abs(trained).max():
            raise ValueError(
                f"{source}: expected a property that varies in the molecules to train on, but {name!r} is "
                f"{trained[0]:g} in all {len(trained):,} of them; choose another seed or property"
            )


def check_apart(bags: Floats, labels: tuple[str, ...], held_out: NDArray[np.int64], source: str) -> None:
    """Refuse molecules that are both trained on and held out: the same bag of bonds, or the same label."""
    first = first_of_each(bags, labels)
    kept = np.zeros(len(bags), dtype=bool)
    kept[held_out] = True
    mixed = np.flatnonzero(kept != kept[first])
    if len(mixed):
        number = int(mixed[0])
        raise ValueError(
            f"{source}: expected different molecules to train on and to test on, but {number} is the same as "
            f'{int(first[number])}, which is on the other side; drop them with duplicates="drop" (--world.duplicates '
            "drop)"
        )


def first_of_each(bags: Floats, labels: tuple[str, ...] = ()) -> NDArray[np.int64]:
    """For each molecule the number of the first that is the same: by its bag of bonds, or by its label."""
    rows = np.ascontiguousarray(np.round(bags, 6)) + 0.0  # no -0.0
    keys = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1])))[:, 0]
    _, where, group = np.unique(keys, return_index=True, return_inverse=True)
    first = where[group]
    if labels and any(labels):
        names = np.array([label or f"\0{number}" for number, label in enumerate(labels)])
        _, where, group = np.unique(names, return_index=True, return_inverse=True)
        first = np.minimum(first, where[group])
    return first.astype(np.int64)
