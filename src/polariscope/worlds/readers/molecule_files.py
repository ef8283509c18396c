"""Readers of molecules: XYZ, SDF and npz files with geometries, and tables of SMILES, whose geometries rdkit makes.

XYZ and SDF need no library. Properties are columns of a table, data fields of an SDF file, ``name=value`` in the
comment lines of an XYZ file, or arrays of an npz file. Nothing is downloaded or unpickled, and what cannot be read is
refused in one sentence with the file and the line.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from polariscope.foreign_files import check_regular, printable, reading
from polariscope.registry import Settings, nearest
from polariscope.worlds.bag_of_bonds import CHARGES, bag_of_bonds, checked_molecules
from polariscope.worlds.capacity import check_unpacked
from polariscope.worlds.molecules import (
    Molecules,
    MoleculeWorld,
    check_apart,
    check_property,
    check_trained,
    first_of_each,
)
from polariscope.worlds.readers.numpy_files import npz
from polariscope.worlds.world import MadeAgain, worlds

Floats = NDArray[np.float64]
HARTREE = 627.5095
"""kcal/mol of a Hartree."""
MOST_ATOMS = 2000
"""Atoms of a molecule; a bag of bonds grows with their square."""
PAIR = re.compile(r"([A-Za-z_][\w.-]*)\s*=\s*(?:\"([^\"]*)\"|(\S+?)(?=[,;]?(?:\s|$)|[,;][A-Za-z_]))")
"""``name=value``, also with a comma or semicolon between pairs; a comma between digits belongs to the value."""
ALMOST = re.compile(r"[-+]?[.,]?\d\S*(\s+\S+)?$")
"""A number as Python does not read it, or with a unit."""
CHARGE_KEYS = ("charges", "Z", "z", "atomic_numbers", "numbers")
POSITION_KEYS = ("positions_angstrom", "positions", "R", "coordinates", "xyz")
LABEL_KEYS = ("smiles", "names", "labels")


@worlds.register("molecules")
@dataclass(frozen=True)
class MoleculeFile(MadeAgain, MoleculeWorld):
    """Your own molecules with a property: an XYZ, SDF or npz file, or a CSV table (or .smi file) of SMILES.

    Molecules of several formulas share one bag of bonds, filled up with 0. A random share is held out, the same for the
    same seed. SMILES need rdkit (``pip install polariscope[chem]``), which makes a seeded geometry of each.
    """

    examples: ClassVar[tuple[Settings, ...]] = ()  # it needs a file of yours

    path: str = ""
    properties: str = ""
    """Names of the properties, separated by commas; not needed if there is only one."""
    table_path: str = ""
    """A CSV table with a row of properties for each molecule, in their order, if the file has none."""
    factor: float = 1.0
    """Factor of the properties, such as 627.5095 from Hartree to kcal/mol."""
    unit: str = ""
    """The unit that they then have, for tables."""
    share: float = 0.1
    """Share of the molecules that is held out."""
    trained: int = 0
    """Number of training molecules, if fewer than all; the others are skipped."""
    tested: int = 0
    """How many molecules are held out, instead of the share."""
    duplicates: Literal["refuse", "drop"] = "refuse"
    """What to do with duplicate molecules: refuse them if they are on both sides of the split, or keep the first of
    each."""
    standardised: bool = True
    """Whether observations and properties have mean 0 and standard deviation 1 over the molecules trained on."""
    seed: int = 0
    """Seed of the held-out molecules and of geometries made from SMILES."""

    def __post_init__(self) -> None:
        if not 0 <= self.share < 1:
            raise ValueError(f"the held-out share is {self.share}: it needs to be in [0, 1)")
        for name in ("trained", "tested"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}: the number of molecules must be at least 0")
        if not np.isfinite(self.factor) or self.factor == 0:
            raise ValueError(f"the factor of the property is {self.factor}: it needs to be finite and not 0")

    @cached_property
    def _read(self) -> tuple[Molecules, NDArray[np.int64], Floats]:
        """The molecules, which of them are held out, and the bags of all, which show that none is on both sides."""
        molecules = read_molecules(self.path, self.seed)
        if self.table_path:
            table = read_table(self.table_path)
            molecules = replace(molecules, properties=table.numbers(), words_of=_words(table.columns))
        source = self.table_path or self.path
        every = list(molecules.properties)
        fitting = [name for name in every if molecules.properties[name].shape == (len(molecules),)]
        known = every if self.properties or not fitting else fitting
        names = chosen_names(self.properties, known, source, molecules.words_of)
        columns = {
            self._called(name): self.factor * check_property(name, molecules.properties[name], source, len(molecules))
            for name in names
        }
        molecules = replace(molecules, properties=columns)
        if self.duplicates == "drop":
            kept = molecules.chosen(np.flatnonzero(_first(molecules) == np.arange(len(molecules))))
            if len(kept) < min(2, len(molecules)):
                raise ValueError(
                    f"{self.path}: expected at least 2 different molecules, but all {len(molecules)} are the same"
                )
            molecules = kept
        molecules, held_out = self._parted(molecules)
        check_trained(molecules.properties, held_out, source)
        with reading(self.path, "molecules whose atoms are apart"):
            bags = bag_of_bonds(molecules.charges, molecules.positions)
        check_apart(bags, molecules.words, held_out, self.path)
        return molecules, held_out, bags

    def _parted(self, molecules: Molecules) -> tuple[Molecules, NDArray[np.int64]]:
        tested = self.tested or round(self.share * len(molecules))
        trained = self.trained or len(molecules) - tested
        if trained < 1 or trained + tested > len(molecules):
            raise ValueError(
                f"{self.path}: expected at least {max(trained, 1) + tested} molecules, to train on {max(trained, 1)} "
                f"and to test on {tested}, but it has {len(molecules)}"
            )
        order = np.random.default_rng(self.seed).permutation(len(molecules))[: trained + tested]
        kept = np.sort(order)
        held_out = np.flatnonzero(np.isin(kept, order[trained:]))
        return molecules.chosen(kept), held_out

    def _called(self, name: str) -> str:
        return f"{name} ({self.unit})" if self.unit else name

    @property
    def called(self) -> str:
        """The name of the data, for tables and headlines."""
        return Path(self.path).stem

    @property
    def molecules(self) -> Molecules:
        return self._read[0]

    @property
    def chosen_properties(self) -> tuple[str, ...]:
        return tuple(self.molecules.properties)

    @property
    def held_out(self) -> NDArray[np.int64] | None:
        if not self.path:  # of settings whose path is still to come: whether there will be any
            return np.zeros(0, np.int64) if self.tested or self.share else None
        return self._read[1] if len(self._read[1]) else None

    @cached_property
    def bags(self) -> Floats:
        bags = self._read[2]
        bags.flags.writeable = False
        return bags


@worlds.register("isomers")
@dataclass(frozen=True)
class Isomers(MoleculeFile):
    """Isomers of one formula in an npz file, as in the published experiment: the band gap in kcal/mol, 5750 molecules
    to train on and 300 to test on.

    Made for the 6094 isomers C7H10O2 of QM9 (Ramakrishnan, Dral, Rupp and von Lilienfeld 2014), whose bag of bonds has
    190 numbers; any npz file with ``charges``, ``positions`` and properties fits.
    """

    properties: str = "gap_hartree"
    factor: float = HARTREE
    unit: str = "kcal/mol"
    trained: int = 5750
    tested: int = 300

    def _called(self, name: str) -> str:
        return super()._called(name.removesuffix("_hartree"))


def read_molecules(path: str | Path, seed: int = 0) -> Molecules:
    """The molecules in a file, whose format follows from its name: .xyz, .sdf (or .mol), .npz, .csv or .smi."""
    if not str(path):
        raise ValueError("molecules need a file: give its path, for instance with --world.path")
    path = Path(path).expanduser()
    if not path.exists():
        raise FileNotFoundError(f"there is no file {str(path)!r}; data is never downloaded, give its path")
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        kinds = ", ".join(_READERS)
        raise ValueError(f"{path}: expected a file of molecules ({kinds}), but its name ends in {path.suffix!r}")
    with reading(path, "a file of molecules"):
        molecules: Molecules = reader(path, seed)
    return molecules


def chosen_names(wanted: str, known: Sequence[str], source: str, words_of: Mapping[str, str]) -> list[str]:
    """The properties that are meant; the only one if none is named. ``words_of`` has a value of each column that is no
    property, because it has no numbers."""
    asked = {name.strip() for name in wanted.split(",")}
    if text := {name: word for name, word in words_of.items() if name in asked or (not known and ALMOST.match(word))}:
        name, word = next(iter(text.items()))
        raise ValueError(
            f"{source}: expected a number as the property {printable(name, 40)!r}, but it is {printable(word, 40)!r}; "
            "write numbers with a point and without a unit"
        )
    if not known:
        raise ValueError(f"{source}: expected a property of the molecules, but found none; give a table_path")
    if not wanted:
        if len(known) == 1:
            return list(known)
        listing = printable(", ".join(known))
        raise ValueError(f"{source}: expected one property, but there are {listing}; choose with properties")
    names = [name.strip() for name in wanted.split(",")]
    for name in names:
        if name not in known:
            raise ValueError(f"{source}: there is no property {name!r}: {printable(nearest(name, known, most=20))}")
    return names


# Tables


@dataclass(frozen=True, eq=False)
class TextTable:
    """The columns of a CSV file as words, by name, and the line of each row."""

    path: Path
    columns: dict[str, list[str]]
    lines: list[int]

    def numbers(self) -> dict[str, Floats]:
        """The columns that are numbers throughout; an empty field is not a number."""
        return _numbers(self.columns)


def read_table(path: str | Path) -> TextTable:
    """A CSV table with a header."""
    path = Path(path).expanduser()
    if not path.exists():
        raise FileNotFoundError(f"there is no file {str(path)!r} with the properties of molecules")
    with reading(path, "a table of values with a header, separated by commas"):
        rows = csv.reader(_lines(path), strict=True)
        try:
            return _text_table(path, rows)
        except csv.Error as error:
            raise ValueError(f"line {rows.line_num} cannot be read ({error})") from error


def _text_table(path: Path, rows: Any) -> TextTable:
    header = [name.strip() for name in next(rows, [])]
    if not header:
        raise ValueError("it is empty")
    if len(set(header)) < len(header) or not all(header):
        raise ValueError(f"its header needs a different name for each column; it is {header}")
    table: list[list[str]] = []
    lines: list[int] = []
    for row in rows:
        if not row:
            continue
        if len(row) != len(header):
            raise ValueError(f"line {rows.line_num} has {len(row)} fields where the header has {len(header)}")
        table.append([field.strip() for field in row])
        lines.append(rows.line_num)
    if not table:
        raise ValueError("it has no row below its header")
    return TextTable(path, {name: [row[i] for row in table] for i, name in enumerate(header)}, lines)


def _number(word: str) -> float | None:
    try:
        return None if "_" in word else float(word)  # Python would read 1_0 as 10
    except ValueError:
        return None


def _words(columns: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The first value of each column that has values, but no number."""
    return {
        name: next(word for word in words if word)
        for name, words in columns.items()
        if any(words) and all(_number(word) is None for word in words)
    }


# Files of geometries


def _read_npz(path: Path, seed: int) -> Molecules:
    with npz(path) as archive:
        arrays = {name: archive[name] for name in archive.names}
    charges, positions = (_named(arrays, keys, path) for keys in (CHARGE_KEYS, POSITION_KEYS))
    table, places = checked_molecules(charges, positions)
    _check_size(table.shape[1])
    labels = next((arrays[key] for key in LABEL_KEYS if key in arrays and arrays[key].shape == (len(table),)), None)
    columns = {
        name: array.astype(np.float64)
        for name, array in arrays.items()
        if name not in (*CHARGE_KEYS, *POSITION_KEYS) and array.ndim and array.dtype.kind in "iuf"
    }
    return Molecules(table, places, columns, () if labels is None else tuple(str(label) for label in labels))


def _named(arrays: Mapping[str, NDArray[Any]], keys: Sequence[str], path: Path) -> NDArray[Any]:
    for key in keys:
        if key in arrays:
            return arrays[key]
    raise ValueError(f"it has no array called {' or '.join(keys)}, but {printable(', '.join(arrays)) or 'nothing'}")


def _read_xyz(path: Path, seed: int) -> Molecules:
    """A number of atoms, a comment, and a line for each atom; as many molecules as there are."""
    lines = list(_lines(path))
    molecules: list[tuple[list[int], list[list[float]]]] = []
    comments: list[dict[str, str]] = []
    at = 0
    while at < len(lines):
        if not lines[at].strip():
            at += 1
            continue
        count = _count(lines[at], at + 1)
        if at + 2 + count > len(lines):
            raise ValueError(f"line {at + 1} announces {count} atoms, but the file ends before the last one")
        comment = lines[at + 1]
        comments.append(_pairs(comment, at + 2))
        places = _atom_columns(comments[-1].pop("Properties", ""), at + 2)
        atoms = [_atom(line, number, *places) for number, line in enumerate(lines[at + 2 : at + 2 + count], at + 3)]
        molecules.append(([charge for charge, _ in atoms], [place for _, place in atoms]))
        at += 2 + count
    return _padded(molecules, _columns(comments))


def _pairs(comment: str, number: int) -> dict[str, str]:
    """The values in a comment line, by name."""
    pairs: dict[str, str] = {}
    for name, quoted, plain in PAIR.findall(comment):
        value = quoted or plain
        if pairs.setdefault(name, value) != value:
            raise ValueError(f"line {number} has two values of {name!r}: {pairs[name]} and {value}")
    return pairs


def _count(line: str, number: int) -> int:
    try:
        count = int(line)
    except ValueError:
        raise ValueError(f"line {number} should be the number of atoms, but is {printable(line, 40)!r}") from None
    _check_size(count)
    if count < 1:
        raise ValueError(f"line {number} announces {count} atoms")
    return count


def _atom_columns(properties: str, number: int) -> tuple[int, int]:
    """The columns of the element and of x in an extended XYZ file, whose comment describes them, such as
    ``species:S:1:forces:R:3:pos:R:3``; by default the first and the second."""
    if not properties:
        return 0, 1
    words = properties.split(":")
    names, counts = words[::3], words[2::3]
    if len(words) % 3 or not all(count.isdigit() for count in counts) or not {"species", "pos"} <= set(names):
        raise ValueError(
            f"line {number} describes the columns of atoms as {printable(properties, 60)!r}; expected name:type:count "
            "for each, with species and pos among them"
        )
    first = dict(zip(names, np.cumsum([0, *map(int, counts)])[:-1].tolist(), strict=True))
    return first["species"], first["pos"]


def _atom(line: str, number: int, element: int = 0, x: int = 1) -> tuple[int, list[float]]:
    words = line.split()
    if len(words) < max(element + 1, x + 3):
        raise ValueError(
            f"line {number} has an atom without coordinates: {printable(line, 40)!r}; expected an element and x, y, z"
        )
    return _element(words[element], number), [_coordinate(word, number) for word in words[x : x + 3]]


def _element(word: str, number: int) -> int:
    if word.isascii() and word.isdigit() and 0 < int(word) <= len(CHARGES):
        return int(word)
    charge = CHARGES.get(word.capitalize())
    if charge is None:
        raise ValueError(f"line {number} has the unknown element {printable(word, 20)!r}")
    return charge


def _coordinate(word: str, number: int) -> float:
    value = _number(word.replace("*^", "e"))  # as the files of QM9 write small numbers
    if value is None or not np.isfinite(value):
        raise ValueError(f"line {number} has {printable(word, 20)!r} where a coordinate was expected")
    return value


def _read_sdf(path: Path, seed: int) -> Molecules:
    """Blocks of version V2000, each with its data fields, that end in ``$$$$``."""
    lines = list(_lines(path))
    molecules: list[tuple[list[int], list[list[float]]]] = []
    data: list[dict[str, str]] = []
    at = 0
    while at < len(lines):
        end = next((i for i in range(at, len(lines)) if lines[i].startswith("$$$$")), len(lines))
        block = lines[at:end]
        if any(line.strip() for line in block):
            molecules.append(_mol_block(block, at))
            data.append(_data_fields(block))
        at = end + 1
    return _padded(molecules, _columns(data))


def _mol_block(block: list[str], first: int) -> tuple[list[int], list[list[float]]]:
    if len(block) < 4 or "V3000" in block[3]:
        raise ValueError(f"the molecule at line {first + 1} is not a V2000 block")
    count = _count(block[3][:3], first + 4)
    if len(block) < 4 + count:
        raise ValueError(f"line {first + 4} announces {count} atoms, but its block ends before the last one")
    atoms = [_sdf_atom(line, number) for number, line in enumerate(block[4 : 4 + count], first + 5)]
    if count > 1 and not any(any(place) for _, place in atoms):
        raise ValueError(f"the molecule at line {first + 1} has atoms without coordinates: all of them are 0")
    if block[1][20:22] == "2D" or (block[1][20:22] != "3D" and _is_drawn(block, atoms)):
        raise ValueError(
            f"the molecule at line {first + 1} is drawn in 2-D, so its atoms have no coordinates in space: give "
            "3-D geometries, or a table of SMILES"
        )
    return [charge for charge, _ in atoms], [place for _, place in atoms]


def _is_drawn(block: list[str], atoms: list[tuple[int, list[float]]]) -> bool:
    """Whether a molecule lies in a plane as in a drawing: hydrogen is left out, or an atom has four bonds. Other flat
    molecules, such as benzene or water, exist."""
    if len(atoms) < 4 or any(place[2] for _, place in atoms):
        return False
    count = block[3][3:6].strip()
    bonds = block[4 + len(atoms) :][: int(count) if count.isdigit() else 0]
    ends = [end.strip() for line in bonds for end in (line[:3], line[3:6])]
    return not any(charge == 1 for charge, _ in atoms) or max(map(ends.count, ends), default=0) > 3


def _sdf_atom(line: str, number: int) -> tuple[int, list[float]]:
    """Fixed columns: three coordinates of ten characters, then the element."""
    if len(line) < 32:
        raise ValueError(f"line {number} has an atom without coordinates: {printable(line, 40)!r}")
    place = [_coordinate(line[at : at + 10].strip(), number) for at in (0, 10, 20)]
    return _element(line[31:34].strip(), number), place


def _data_fields(block: list[str]) -> dict[str, str]:
    """What follows a line such as ``>  <gap>``."""
    fields = {}
    for place, line in enumerate(block[:-1]):
        match = re.match(r">.*<([^<>]+)>", line)
        if match:
            fields[match.group(1).strip()] = block[place + 1].strip()
    return fields


def _columns(rows: list[dict[str, str]]) -> dict[str, list[str]]:
    """What the molecules have, by name; empty where one has none."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name, "") for row in rows] for name in names}


def _numbers(columns: Mapping[str, Sequence[str]]) -> dict[str, Floats]:
    """The columns that have numbers; NaN where a value is none."""
    numbers = {name: [_number(word) for word in words] for name, words in columns.items()}
    return {
        name: np.array([np.nan if value is None else value for value in values])
        for name, values in numbers.items()
        if any(value is not None for value in values)
    }


def _padded(molecules: list[tuple[list[int], list[list[float]]]], columns: Mapping[str, Sequence[str]]) -> Molecules:
    """Molecules of different sizes in one array, with charge 0 for what is missing."""
    if not molecules:
        raise ValueError("it contains no molecule")
    most = max(len(charges) for charges, _ in molecules)
    check_unpacked(len(molecules) * most * 32, "the atoms of all molecules")
    table = np.zeros((len(molecules), most), np.int64)
    places = np.zeros((len(molecules), most, 3))
    for row, (charges, positions) in enumerate(molecules):
        table[row, : len(charges)], places[row, : len(charges)] = charges, positions
    return Molecules(*checked_molecules(table, places), _numbers(columns), words_of=_words(columns))


def _check_size(atoms: int) -> None:
    if atoms > MOST_ATOMS:
        raise ValueError(f"a molecule of {atoms:,} atoms is too large for a bag of bonds; up to {MOST_ATOMS:,} fit")


def _first(molecules: Molecules) -> NDArray[np.int64]:
    return first_of_each(bag_of_bonds(molecules.charges, molecules.positions), molecules.words)


def _lines(path: Path) -> Iterator[str]:
    """The lines of a text file, without the mark that spreadsheets write at its beginning."""
    check_regular(path)
    check_unpacked(4 * path.stat().st_size, str(path))
    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            for line in file:
                if "\0" in line:
                    raise ValueError("it contains a zero byte, so it is not a text file")
                yield line.rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise ValueError("it is not encoded in UTF-8; save it in this encoding") from error


# SMILES


def _read_smiles_table(path: Path, seed: int) -> Molecules:
    table = read_table(path)
    column = next((name for name in table.columns if name.lower() in ("smiles", "smi")), None)
    if column is None:
        raise ValueError(f"it has no column called smiles, but {printable(', '.join(table.columns))}")
    molecules = conformers(path, table.columns[column], table.lines, seed)
    words_of = {name: word for name, word in _words(table.columns).items() if name != column}
    return replace(molecules, properties=table.numbers(), labels=tuple(table.columns[column]), words_of=words_of)


def _read_smiles_lines(path: Path, seed: int) -> Molecules:
    """A SMILES at the beginning of each line, perhaps with a name behind it."""
    words = [(line.split()[0], number) for number, line in enumerate(_lines(path), 1) if line.strip()]
    if not words:
        raise ValueError("it is empty")
    smiles, lines = (list(part) for part in zip(*words, strict=True))
    molecules = conformers(path, smiles, lines, seed)
    return replace(molecules, labels=tuple(smiles))


def conformers(path: Path, smiles: Sequence[str], lines: Sequence[int], seed: int) -> Molecules:
    """One geometry for each SMILES, with hydrogens, by rdkit's distance geometry and force field; the same for the same
    seed and version of rdkit."""
    chemistry, geometry, forces, logs = rdkit_for(path)
    molecules, identities = [], []
    with logs.BlockLogs():
        settings = geometry.ETKDGv3()
        settings.randomSeed = 1 + seed % (2**31 - 2)  # 0 and 1 are the same to its generator
        for words, line in zip(smiles, lines, strict=True):
            molecule = chemistry.MolFromSmiles(words)
            if molecule is None or not molecule.GetNumAtoms():
                raise ValueError(f"line {line} has the SMILES {printable(words, 60)!r}, which cannot be read")
            if not all(atom.GetAtomicNum() for atom in molecule.GetAtoms()):
                raise ValueError(
                    f"line {line} has the SMILES {printable(words, 60)!r}, which has the unknown element '*'"
                )
            parts = len(chemistry.GetMolFrags(molecule))
            if parts > 1:
                raise ValueError(
                    f"line {line} has the SMILES {printable(words, 60)!r}, which is {parts} molecules: give one, "
                    "without salts and solvents"
                )
            identities.append(str(chemistry.MolToSmiles(molecule)))
            molecule = chemistry.AddHs(molecule)
            _check_size(molecule.GetNumAtoms())
            settings.useRandomCoords = False
            if geometry.EmbedMolecule(molecule, settings) != 0:
                settings.useRandomCoords = True  # which finds geometries of crowded molecules, too
                if geometry.EmbedMolecule(molecule, settings) != 0:
                    raise ValueError(f"line {line} has the SMILES {printable(words, 60)!r}, which has no geometry")
            if forces.MMFFHasAllMoleculeParams(molecule):
                forces.MMFFOptimizeMolecule(molecule)
            charges = [atom.GetAtomicNum() for atom in molecule.GetAtoms()]
            molecules.append((charges, molecule.GetConformer().GetPositions().tolist()))
    return replace(_padded(molecules, {}), identities=tuple(identities))


def rdkit_for(path: Path) -> tuple[Any, Any, Any, Any]:
    """rdkit's modules for molecules, geometries, force fields and logs, or an error that says how to install it."""
    try:
        from rdkit import Chem, rdBase
        from rdkit.Chem import rdDistGeom, rdForceFieldHelpers
    except ImportError as error:
        raise ModuleNotFoundError(
            f"{path} holds SMILES, and making geometries of them needs rdkit: pip install polariscope[chem]"
        ) from error
    return Chem, rdDistGeom, rdForceFieldHelpers, rdBase


_READERS = {
    ".xyz": _read_xyz,
    ".sdf": _read_sdf,
    ".mol": _read_sdf,
    ".npz": _read_npz,
    ".csv": _read_smiles_table,
    ".smi": _read_smiles_lines,
}
