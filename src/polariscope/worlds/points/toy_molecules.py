"""Made-up molecules with an exact property: random geometries of one formula, and their tight-binding gap.

A stand-in for real isomers where no file is at hand (Spec 000, section 9.3). Atoms are bonded at random within their
valences and placed one after the other, away from each other. The property is the gap between the occupied level and
the lowest empty one of a Hamiltonian with two electrons and one orbital for each heavy atom, whose couplings fall off
with the distance: a deterministic, continuous function of the geometry, and one that can be learned from it (a
Laplacian-kernel ridge regression leaves a quarter of the error of the mean).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.registry import Settings
from polariscope.worlds.capacity import check_count
from polariscope.worlds.molecules import Molecules, MoleculeWorld
from polariscope.worlds.numbered_draws import uniform
from polariscope.worlds.world import MadeAgain, worlds

Floats = NDArray[np.float64]
FORMULA = (6, 6, 6, 6, 8, 1, 1, 1, 1, 1, 1)
"""C4H6O."""
PROPERTY = "gap (kcal/mol)"
KCAL = 23.06
"""kcal/mol of an electronvolt."""
RADIUS = {1: 0.31, 6: 0.76, 8: 0.66}
"""Covalent radii in ångström."""
VALENCE = {1: 1, 6: 4, 8: 2}
LEVEL = {6: -8.0, 8: -11.0}
"""Energies of the orbitals in electronvolt; hydrogen has none here."""
COUPLING, DECAY = 2.5, 1.0
"""Coupling at the length of a bond in electronvolt, and the distance in ångström over which it falls by e."""
ABSENT = 1e3
"""The energy of a missing orbital: above all others."""
JITTER = 0.06
"""By how much bonds are longer or shorter, as a share."""
DIRECTIONS = 12
"""Directions that are tried for each atom; the one farthest from all other atoms is used."""


@worlds.register("toy-molecules")
@dataclass(frozen=True)
class ToyMolecules(MadeAgain, MoleculeWorld):
    """Random geometries of C4H6O in a bag of bonds of 66 numbers, and their tight-binding gap as the property.

    Molecule ``i`` depends on the seed and on ``i``. The last ``tested`` are held out.

    >>> world = ToyMolecules(count=50, tested=10)
    >>> world.shape, world.layout.bag_sizes["CH"], world.targets[0].name
    ((66,), 24, 'gap (kcal/mol)')
    """

    examples: ClassVar[tuple[Settings, ...]] = ({"count": 100, "tested": 10},)

    count: int = 2300
    tested: int = 300
    """How many molecules are held out, the last ones."""
    standardised: bool = True
    """Whether observations and the property have mean 0 and standard deviation 1 over the molecules trained on."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.tested < self.count:
            raise ValueError(f"the held-out molecules are {self.tested} of {self.count}: leave some to train on")
        check_count(self.count, type(self).__name__)

    @cached_property
    def molecules(self) -> Molecules:
        positions = grown(np.arange(self.count), self.seed)
        charges = np.tile(np.array(FORMULA, np.int64), (self.count, 1))
        return Molecules(charges, positions, {PROPERTY: gap(charges, positions)})

    @property
    def chosen_properties(self) -> tuple[str, ...]:
        return (PROPERTY,)

    @property
    def held_out(self) -> NDArray[np.int64] | None:
        return np.arange(self.count - self.tested, self.count)


def gap(charges: ArrayLike, positions: ArrayLike) -> Floats:
    """The tight-binding gap ``(n,)`` in kcal/mol of molecules of C, O and H: the two lowest levels of heavy atoms.

    >>> gap([[6, 6, 1]], [[[0, 0, 0], [1.52, 0, 0], [0, 1, 0]]]).round(3).tolist()  # twice the coupling of a bond
    [115.3]
    """
    z, r = np.asarray(charges), np.asarray(positions, dtype=np.float64)
    heavy = z > 1
    radius, level = np.zeros(z.shape), np.full(z.shape, ABSENT)
    for charge, value in LEVEL.items():
        radius[z == charge], level[z == charge] = RADIUS[charge], value
    apart = np.linalg.norm(r[:, :, None] - r[:, None], axis=-1)
    bond = radius[:, :, None] + radius[:, None]
    hamiltonian = np.where(heavy[:, :, None] & heavy[:, None], -COUPLING * np.exp(-(apart - bond) / DECAY), 0.0)
    atoms = np.arange(z.shape[1])
    hamiltonian[:, atoms, atoms] = level
    levels = np.linalg.eigvalsh(hamiltonian)
    return np.asarray(KCAL * (levels[:, 1] - levels[:, 0]))


def grown(index: NDArray[np.int64], seed: int) -> Floats:
    """Positions ``(n, 11, 3)`` of the molecules of these numbers, in ångström."""
    atoms = len(FORMULA)
    draws = uniform(seed, index, atoms * (2 + 2 * DIRECTIONS)).reshape(len(index), atoms, -1)
    free = np.tile([VALENCE[charge] for charge in FORMULA], (len(index), 1))
    radius = np.array([RADIUS[charge] for charge in FORMULA])
    positions = np.zeros((len(index), atoms, 3))
    everyone = np.arange(len(index))
    for atom in range(1, atoms):
        # A bond to one of the atoms that are there and have a free valence; heavy atoms come first, so one has.
        open_ends = free[:, :atom] > 0
        wanted = (draws[:, atom, 0] * open_ends.sum(axis=1)).astype(np.int64)
        parent = (np.cumsum(open_ends, axis=1) > wanted[:, None]).argmax(axis=1)
        free[everyone, parent] -= 1
        free[:, atom] -= 1
        length = (radius[parent] + radius[atom]) * (1 + JITTER * (2 * draws[:, atom, 1] - 1))
        ways = positions[everyone, parent][:, None] + length[:, None, None] * _directions(draws[:, atom, 2:])
        room = np.linalg.norm(ways[:, :, None] - positions[:, None, :atom], axis=-1).min(axis=-1)
        positions[:, atom] = ways[everyone, room.argmax(axis=1)]
    return positions


def _directions(draws: Floats) -> Floats:
    """Unit vectors ``(n, k, 3)`` from 2k uniform numbers each."""
    height, turn = 2 * draws[:, ::2] - 1, 2 * np.pi * draws[:, 1::2]
    across = np.sqrt(1 - height**2)
    return np.stack([across * np.cos(turn), across * np.sin(turn), height], axis=-1)
