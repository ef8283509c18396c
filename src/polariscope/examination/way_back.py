"""Reconstruct molecules from bags of bonds, and measure how far the reconstruction can be trusted.

A generated bag of bonds is not yet a molecule. The reconstruction has three steps: distances, which the bag has in
sorted order and without the atoms they belong to; a geometry with these distances, fitted from the geometries of the
nearest training molecules; and bonds, which rdkit finds in a geometry. Held-out molecules are reconstructed first, and
the share of them that is recovered is reported. rdkit can find bonds in a wrong geometry, so a valid molecule does not
show that the reconstruction worked.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polariscope.findings import Column, Part, Records
from polariscope.measures.generated_sets import novelty, uniqueness
from polariscope.worlds.bag_geometry import Geometries, bag_distances, fit_geometries, formula_charges
from polariscope.worlds.chemistry import Structure, canonical_smiles, internal_diversity, structure_of
from polariscope.worlds.molecules import MoleculeWorld

Floats = NDArray[np.float64]
MISFIT = 0.01
"""Largest root mean square relative error of the distances at which a geometry fits a bag."""
STARTS = 4
"""Number of nearest training molecules whose geometries are starting points."""
TRUSTED = 0.5
"""Share of held-out molecules that must be recovered before generated ones are scored."""


@dataclass(frozen=True, eq=False)
class Recovery:
    """The reconstruction of held-out molecules from their bags of bonds."""

    tried: int
    bonded: int
    """Molecules whose bonds rdkit found in the true geometry."""
    fitted: int
    """Molecules for which a geometry with the right distances was found."""
    valid: int
    """Molecules whose fitted geometry has the bonds of some molecule."""
    recovered: int
    """Molecules that were recovered: the result is the same molecule."""
    misfit: float
    """Median root mean square relative error of the distances."""

    @property
    def rate(self) -> float:
        return self.recovered / self.tried

    @property
    def trusted(self) -> bool:
        """Whether enough were recovered to score generated molecules."""
        return self.rate >= TRUSTED

    @property
    def sentence(self) -> str:
        return (
            f"Of {self.tried} held-out molecules, {self.recovered} were recovered from their bag of bonds; "
            f"{self.fitted} had a geometry with the right distances (median error {self.misfit:.1%}), and "
            f"{self.valid} had bonds of some molecule. From the true geometry, the bonds of {self.bonded} were right."
        )


@dataclass(frozen=True, eq=False)
class ReturnedMolecules:
    """Reconstructions of generated bags: a geometry for each of the first ones, and a molecule if one was found."""

    geometries: Geometries
    possible: NDArray[np.bool_]
    """Whether the entries of the bag are those of distances at all."""
    structures: tuple[Structure | None, ...]
    recovery: Recovery
    known: frozenset[str]
    """SMILES of all molecules that were trained on; empty if novelty is not applicable."""

    @property
    def back(self) -> NDArray[np.bool_]:
        """Which were reconstructed: a possible bag, a geometry with its distances, and the bonds of a molecule."""
        bonded = np.array([one is not None for one in self.structures], dtype=bool)
        return self.possible & (self.geometries.misfit <= MISFIT) & bonded

    @property
    def molecules(self) -> list[Structure]:
        """The reconstructed molecules."""
        return [one for one, back in zip(self.structures, self.back, strict=True) if back and one is not None]

    def scores(self) -> list[dict[str, Any]]:
        """Validity, uniqueness, novelty and diversity, or the reason why they are not applicable."""
        words = [one.smiles for one in self.molecules]
        count = len(self.structures)
        reason = ""
        if not self.recovery.trusted:
            reason = (
                f"not applicable: {self.recovery.recovered} of {self.recovery.tried} held-out molecules were recovered"
            )
        elif not words:
            reason = "not applicable: no generated molecule was reconstructed"
        rows: list[tuple[str, float | None, str]] = [
            ("validity: share that was reconstructed", len(words) / count if count else None, "no sample was tried"),
            ("uniqueness", uniqueness(words), "no molecule was reconstructed"),
            ("uniqueness at 1,000", uniqueness(words, 1000), f"{len(words)} molecules were reconstructed"),
            ("uniqueness at 10,000", uniqueness(words, 10_000), f"{len(words)} molecules were reconstructed"),
            ("novelty: not among those trained on", novelty(words, self.known), "no molecule was reconstructed"),
            ("internal diversity", internal_diversity(self.molecules), "fewer than two molecules were reconstructed"),
        ]
        return [
            {"score": name, "value": reason or (f"not applicable: {why}" if value is None else f"{value:.3f}")}
            for name, value, why in rows
        ]

    def parts(self) -> list[Part]:
        recovery = self.recovery
        return [
            Records(
                name="recovery",
                title="Reconstruction, tested on held-out molecules first",
                hint=recovery.sentence,
                rows=[
                    {"step": "bonds found in the true geometry", "share": recovery.bonded / recovery.tried},
                    {"step": "geometry with the right distances", "share": recovery.fitted / recovery.tried},
                    {"step": "bonds of some molecule", "share": recovery.valid / recovery.tried},
                    {"step": "the same molecule as before", "share": recovery.rate},
                ],
                columns=(Column("step", "Step"), Column("share", "Share of held-out molecules", "percent")),
            ),
            Records(
                name="molecules",
                title=f"Molecules among the first {len(self.structures)} samples",
                hint=f"{int(self.back.sum())} were reconstructed: their distances fit within {MISFIT:.0%}, and they "
                "have bonds. Scores of other samples would be scores of the reconstruction.",
                rows=self.scores(),
                columns=(Column("score", "Score"), Column("value", "Value")),
            ),
        ]


def recover(world: MoleculeWorld, numbers: NDArray[np.int64], trained: NDArray[np.int64]) -> Recovery:
    """Reconstruct molecules ``numbers`` from their bags, starting from the geometries of those ``trained`` on."""
    charges = formula_charges(world.layout)
    geometries = fit_geometries(
        world.bags[numbers], world.layout, starting_geometries(world, world.bags[numbers], trained)
    )
    truth = ordered_positions(world, numbers)
    bonded = valid = recovered = 0
    for place, number in enumerate(numbers):
        own = structure_of(charges, truth[place])
        label = canonical_smiles(world.molecules.labels[number]) if world.molecules.labels else None
        wanted = label or (own.smiles if own is not None else None)
        bonded += own is not None and own.smiles == wanted
        fitted = structure_of(charges, geometries.positions[place])
        valid += fitted is not None
        close = geometries.misfit[place] <= MISFIT
        recovered += bool(close and fitted is not None and fitted.smiles == wanted)
    close_ones = int((geometries.misfit <= MISFIT).sum())
    return Recovery(len(numbers), bonded, close_ones, valid, recovered, float(np.median(geometries.misfit)))


def returned(world: MoleculeWorld, bags: Floats, trained: NDArray[np.int64], recovery: Recovery) -> ReturnedMolecules:
    """Reconstruct molecules from generated bags ``(n, dimension)``."""
    charges = formula_charges(world.layout)
    geometries = fit_geometries(bags, world.layout, starting_geometries(world, bags, trained))
    _, possible = bag_distances(bags, world.layout)
    structures = tuple(structure_of(charges, positions) for positions in geometries.positions)
    result = ReturnedMolecules(geometries, possible, structures, recovery, frozenset())
    if not recovery.trusted or not result.back.any():  # no novelty will be asked for
        return result
    return replace(result, known=known_smiles(world, trained))


def known_smiles(world: MoleculeWorld, numbers: NDArray[np.int64]) -> frozenset[str]:
    """Canonical SMILES of molecules of a world, from their labels, or from their geometries if the labels are not
    SMILES."""
    labels = world.molecules.labels
    known = {int(number): canonical_smiles(labels[number]) if labels else None for number in numbers}
    nameless = np.array([number for number, smiles in known.items() if smiles is None], dtype=np.int64)
    charges = formula_charges(world.layout)
    places = ordered_positions(world, nameless) if len(nameless) else ()
    structures = (structure_of(charges, positions) for positions in places)
    return frozenset(smiles for smiles in known.values() if smiles) | {
        one.smiles for one in structures if one is not None
    }


def starting_geometries(world: MoleculeWorld, bags: Floats, trained: NDArray[np.int64]) -> Floats:
    """Geometries ``(n, STARTS, atoms, 3)`` of the training molecules whose distances are nearest to those of bags."""
    wanted, _ = bag_distances(bags, world.layout)
    there, _ = bag_distances(world.bags[trained], world.layout)
    logs, others = np.log(wanted), np.log(there)
    starts = min(STARTS, len(trained))
    nearest = np.empty((len(logs), starts), dtype=np.int64)
    for at in range(0, len(logs), 256):
        part = logs[at : at + 256]
        squares = np.square(part).sum(1)[:, None] - 2 * part @ others.T + np.square(others).sum(1)
        nearest[at : at + 256] = np.argsort(squares, axis=1)[:, :starts]
    positions = ordered_positions(world, trained[nearest.ravel()])
    return positions.reshape(len(logs), starts, *positions.shape[1:])


def ordered_positions(world: MoleculeWorld, numbers: NDArray[np.int64]) -> Floats:
    """Positions of molecules with their atoms in the order of the layout's elements."""
    rank = {charge: place for place, charge in enumerate(world.layout.elements)}
    charges = world.molecules.charges[numbers]
    places = np.vectorize(lambda charge: rank.get(int(charge), len(rank)), otypes=[np.int64])(charges)
    order = np.argsort(places, axis=1, kind="stable")[:, : len(formula_charges(world.layout))]
    return np.asarray(np.take_along_axis(world.molecules.positions[numbers], order[:, :, None], axis=1))
