"""Functions of rdkit for molecules: bonds from a geometry, SMILES, and the similarity of structures.

rdkit is an extra: ``pip install polariscope[chem]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.worlds.bag_of_bonds import SYMBOLS

Floats = NDArray[np.float64]
MOST_TRIES = 2000
"""Assignments of bond orders that are tried for one geometry."""
FAILURES = (ValueError, RuntimeError)
"""Exceptions of rdkit for a geometry that is not a molecule."""


@dataclass(frozen=True, eq=False)
class Structure:
    """A molecule as rdkit understood it."""

    molecule: Any

    @cached_property
    def smiles(self) -> str:
        """The canonical SMILES without hydrogens and without stereochemistry."""
        chemistry = rdkit_modules("writing SMILES")["chemistry"]
        plain = chemistry.RemoveHs(self.molecule)
        return str(chemistry.MolToSmiles(plain, isomericSmiles=False))

    def block(self, name: str = "", fields: dict[str, str] | None = None) -> str:
        """The molecule as an entry of an SDF file."""
        chemistry = rdkit_modules("writing SDF files")["chemistry"]
        text = str(chemistry.MolToMolBlock(self.molecule))
        data = "".join(f">  <{key}>\n{value}\n\n" for key, value in (fields or {}).items())
        return f"{name}{text[text.index(chr(10)) :]}{data}$$$$\n"


def rdkit_modules(purpose: str) -> dict[str, Any]:
    """rdkit's modules; if rdkit is missing, an error says how to install it."""
    try:
        from rdkit import Chem, DataStructs, rdBase
        from rdkit.Chem import rdDetermineBonds, rdFingerprintGenerator
    except ImportError as error:
        raise ModuleNotFoundError(f"{purpose} needs rdkit: pip install polariscope[chem]") from error
    return {
        "chemistry": Chem,
        "bonds": rdDetermineBonds,
        "fingerprints": rdFingerprintGenerator,
        "likeness": DataStructs,
        "logs": rdBase,
    }


def has_rdkit() -> bool:
    """Whether rdkit is installed."""
    try:
        rdkit_modules("this")
    except ModuleNotFoundError:
        return False
    return True


def structure_of(charges: ArrayLike, positions: ArrayLike) -> Structure | None:
    """The molecule of atoms with charges ``(atoms,)`` at positions ``(atoms, 3)``, by their distances (with rdkit's
    rdDetermineBonds); None if these atoms do not form one neutral molecule."""
    rdkit = rdkit_modules("finding the bonds of a geometry")
    chemistry = rdkit["chemistry"]
    editable = chemistry.RWMol()
    numbers = [int(charge) for charge in np.asarray(charges) if charge > 0]
    for number in numbers:
        editable.AddAtom(chemistry.Atom(number))
    conformer = chemistry.Conformer(len(numbers))
    for atom, place in enumerate(np.asarray(positions, dtype=np.float64)[: len(numbers)]):
        conformer.SetAtomPosition(atom, place.tolist())
    editable.AddConformer(conformer)
    with rdkit["logs"].BlockLogs():
        try:
            rdkit["bonds"].DetermineConnectivity(editable)
            if len(chemistry.GetMolFrags(editable)) != 1:
                return None
            rdkit["bonds"].DetermineBondOrders(editable, charge=0, maxIterations=MOST_TRIES)
            chemistry.SanitizeMol(editable)
        except FAILURES:
            return None
    molecule = editable.GetMol()
    if any(atom.GetFormalCharge() or atom.GetNumRadicalElectrons() for atom in molecule.GetAtoms()):
        return None
    return Structure(molecule)


def canonical_smiles(smiles: str) -> str | None:
    """A SMILES in the form of :attr:`Structure.smiles`; None where it cannot be read."""
    rdkit = rdkit_modules("reading SMILES")
    with rdkit["logs"].BlockLogs():
        molecule = rdkit["chemistry"].MolFromSmiles(smiles)
    return None if molecule is None else str(rdkit["chemistry"].MolToSmiles(molecule, isomericSmiles=False))


def internal_diversity(structures: Sequence[Structure], most: int = 1000) -> float | None:
    """1 minus the mean Tanimoto similarity of all pairs of the first ``most`` structures, by Morgan fingerprints of
    radius 2: 0 if all are the same, near 1 if they have nothing in common. None for fewer than two."""
    if len(structures) < 2:
        return None
    rdkit = rdkit_modules("comparing molecules")
    chemistry = rdkit["chemistry"]
    maker = rdkit["fingerprints"].GetMorganGenerator(radius=2, fpSize=2048)
    prints = [maker.GetFingerprint(chemistry.RemoveHs(one.molecule)) for one in structures[:most]]
    alike = [
        value
        for place in range(1, len(prints))
        for value in rdkit["likeness"].BulkTanimotoSimilarity(prints[place], prints[:place])
    ]
    return 1 - float(np.mean(alike))


def xyz_text(charges: Sequence[int], positions: Floats, comment: str = "") -> str:
    """A geometry as an entry of an XYZ file.

    >>> print(xyz_text([8, 1], np.array([[0.0, 0, 0], [0.96, 0, 0]]), "made up"), end="")
    2
    made up
    O 0.000000 0.000000 0.000000
    H 0.960000 0.000000 0.000000
    """
    atoms = [(SYMBOLS[int(charge) - 1], place) for charge, place in zip(charges, positions, strict=True) if charge > 0]
    lines = [f"{symbol} {x:.6f} {y:.6f} {z:.6f}" for symbol, (x, y, z) in atoms]
    return "\n".join([str(len(atoms)), " ".join(comment.split()), *lines]) + "\n"
