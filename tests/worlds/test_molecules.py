"""Bag-of-bonds, made-up molecules, real isomers, and readers of a user's own (Spec 000, sections 6.7 and 9.3)."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from polariscope.cli import main
from polariscope.cli.configuration import parse_run
from polariscope.testing import check_reader, check_world
from polariscope.worlds.bag_of_bonds import CHARGES, BagLayout, bag_of_bonds, layout_of
from polariscope.worlds.molecules import Scaling, check_apart, first_of_each
from polariscope.worlds.points.toy_molecules import FORMULA, ToyMolecules, gap, grown
from polariscope.worlds.readers.data_files import data_files
from polariscope.worlds.readers.molecule_files import Isomers, MoleculeFile, read_molecules, read_table
from polariscope.worlds.splits import OwnSplit, usual_split
from polariscope.worlds.world import worlds

ISOMER = [6] * 7 + [8] * 2 + [1] * 10
needs_rdkit = pytest.mark.skipif(
    importlib.util.find_spec("rdkit") is None, reason="rdkit is not installed (pip install polariscope[chem])"
)


def some(count: int, charges=ISOMER, seed: int = 0):
    """Random molecules of one formula."""
    return np.tile(charges, (count, 1)), np.random.default_rng(seed).normal(scale=3, size=(count, len(charges), 3))


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def xyz(count: int = 12, extra: str = "") -> str:
    """Molecules of two formulas with a property in their comment lines."""
    rng = np.random.default_rng(3)
    blocks = []
    for number in range(count):
        symbols = ["C", "O", "H", "H"] if number % 2 else ["C", "H", "H", "H", "H"]
        places = rng.normal(size=(len(symbols), 3))
        atoms = [f"{s} {x:.5f} {y:.5f} {z:.5f}{extra}" for s, (x, y, z) in zip(symbols, places, strict=True)]
        blocks.append(f"{len(symbols)}\nname={number} gap={number / 7:.4f} \n" + "\n".join(atoms))
    return "\n".join(blocks) + "\n"


def sdf(count: int = 5, dimension: str = "3D") -> str:
    rng = np.random.default_rng(4)
    blocks = []
    for number in range(count):
        places = rng.normal(size=(3, 3))
        atoms = [f"{x:10.4f}{y:10.4f}{z:10.4f} {s:<3} 0  0" for s, (x, y, z) in zip("COH", places, strict=True)]
        head = f"molecule {number}\n     made up        {dimension}\n\n  3  2  0  0  0  0            999 V2000\n"
        bonds = "  1  2  1  0\n  2  3  1  0\nM  END\n"
        blocks.append(head + "\n".join(atoms) + "\n" + bonds + f">  <gap>\n{number * 1.5}\n\n$$$$\n")
    return "".join(blocks)


# The descriptor


@pytest.mark.spec("000/F071")
def test_the_isomers_have_190_numbers_in_bags_of_the_printed_sizes() -> None:
    """O18: 21 + 14 + 70 + 1 + 20 + 45 = 171, and 19 self terms of 36.858, 73.517 and 0.5."""
    layout = layout_of([ISOMER])
    assert layout.bag_sizes == {"CC": 21, "CO": 14, "CH": 70, "OO": 1, "OH": 20, "HH": 45}
    assert (sum(layout.pair_sizes), layout.dimension, len(set(layout.names))) == (171, 190, 190)
    bags = bag_of_bonds(*some(3))
    assert bags.shape == (3, 190)
    assert bags[0, 171:].tolist() == pytest.approx([36.858] * 7 + [73.517] * 2 + [0.5] * 10, abs=1e-3)


@pytest.mark.spec("000/F071")
def test_a_bag_does_not_change_when_atoms_are_renumbered_or_the_molecule_is_moved() -> None:
    charges, positions = some(20)
    bags = bag_of_bonds(charges, positions)
    order = np.random.default_rng(1).permuted(np.tile(np.arange(19), (20, 1)), axis=1)
    moved = positions @ Rotation.random(rng=0).as_matrix().T * [1, 1, -1] + 5.0  # a mirror image has the same bag
    again = bag_of_bonds(np.take_along_axis(charges, order, 1), np.take_along_axis(moved, order[..., None], 1))
    np.testing.assert_allclose(again, bags, rtol=1e-9)
    positions[0, 0] += 0.1
    assert not np.allclose(bag_of_bonds(charges, positions)[0], bags[0])


@pytest.mark.spec("000/F071")
def test_entries_are_coulomb_terms_in_falling_order() -> None:
    """Against a plain loop over pairs of atoms."""
    charges, positions = some(4, [1, 6, 8, 1, 6, 1])
    bags = bag_of_bonds(charges, positions)
    for bag, z, r in zip(bags, charges, positions, strict=True):
        expected = []
        for first, second in ((6, 6), (6, 8), (6, 1), (8, 8), (8, 1), (1, 1)):
            pairs = [(i, j) for i in range(6) for j in range(i) if sorted((z[i], z[j])) == sorted((first, second))]
            expected += sorted((first * second / np.linalg.norm(r[i] - r[j]) for i, j in pairs), reverse=True)
        np.testing.assert_allclose(bag[: len(expected)], expected)


def test_molecules_of_several_formulas_share_a_padded_layout() -> None:
    water, methane = [8, 1, 1, 0, 0], [6, 1, 1, 1, 1]
    positions = np.random.default_rng(0).normal(size=(2, 5, 3))
    layout = layout_of([water, methane])
    assert layout.bag_sizes == {"CC": 0, "CO": 0, "CH": 4, "OO": 0, "OH": 2, "HH": 6}
    bags = bag_of_bonds([water, methane], positions, layout)
    alone = bag_of_bonds([water[:3]], positions[:1, :3])
    np.testing.assert_allclose(bags[0][bags[0] != 0], alone[0])
    names = np.array(layout.names)
    assert names[bags[0] != 0].tolist() == ["OH 1", "OH 2", "HH 1", "O 1", "H 1", "H 2"]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: bag_of_bonds([[6, 1]], np.zeros((1, 2, 3))), "atoms 1 and 2 of molecule 0 are at the same place"),
        (lambda: bag_of_bonds([[6, 200]], np.ones((1, 2, 3))), "atom 2 of molecule 0 has the charge 200"),
        (lambda: bag_of_bonds([[0, 0]], np.ones((1, 2, 3))), "molecule 0 has no atoms"),
        (lambda: bag_of_bonds([[6.5]], np.ones((1, 1, 3))), "whole numbers; got float64"),
        (lambda: bag_of_bonds([[6, 1]], [[[0, 0, 0], [np.nan, 0, 0]]]), "atom 2 of molecule 0 has no coordinates"),
        (lambda: bag_of_bonds([[6, 1]], np.ones((1, 3, 3))), r"positions need shape \(1, 2, 3\)"),
        (
            lambda: bag_of_bonds([[7, 1]], np.eye(3)[None, :2], layout_of([[6, 1]])),
            "element N is not in the layout .C, H",
        ),
        (lambda: bag_of_bonds([[6, 6, 1]], np.eye(3)[None], layout_of([[6, 1]])), "molecule 0 has more atoms"),
        (lambda: layout_of([6, 1]), "a row of atoms for each molecule"),
    ],
)
def test_molecules_that_make_no_sense_are_refused(call, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()


# Made-up molecules


@pytest.mark.spec("000/F072")
def test_made_up_molecules_are_a_function_of_seed_and_number() -> None:
    world = ToyMolecules(count=40, tested=10)
    np.testing.assert_array_equal(grown(np.array([7]), 0)[0], world.molecules.positions[7])
    np.testing.assert_array_equal(ToyMolecules(count=20, tested=5).bags, world.bags[:20])
    assert not np.allclose(ToyMolecules(count=40, tested=10, seed=1).bags, world.bags)
    assert world.shape == (66,)
    check_world(world)


@pytest.mark.spec("000/F072")
def test_the_atoms_of_made_up_molecules_are_bonded_and_apart() -> None:
    """Every atom is bonded; no two are closer than a short bond; the property is that of the geometry."""
    positions = grown(np.arange(300), 0)
    charges = np.tile(FORMULA, (300, 1))
    apart = np.linalg.norm(positions[:, :, None] - positions[:, None], axis=-1) + 9 * np.eye(11)
    assert apart.min() > 0.8
    nearest = apart.min(axis=2)
    assert (nearest[:, charges[0] == 1] < 1.2).all(), "a hydrogen is bonded"
    assert (nearest < 1.7).all()
    energies = gap(charges, positions)
    turned = positions @ Rotation.random(rng=1).as_matrix().T
    np.testing.assert_allclose(gap(charges, turned), energies)
    nudged = positions + 1e-6 * np.random.default_rng(0).normal(size=positions.shape)
    assert np.abs(gap(charges, nudged) - energies).max() < 1e-2, "continuous"
    assert energies.std() > 10


def test_observations_and_properties_are_standardised_over_what_is_trained_on() -> None:
    world = ToyMolecules(count=500, tested=100)
    train = usual_split(world).parts(world).train
    assert sorted(train) == list(range(400))
    x, y = world.observe(train), world.target_of(train)
    varying = world.bags[:400].std(0) > 1e-6
    np.testing.assert_allclose(x[:, varying].std(0), 1, rtol=1e-4)
    assert not x[:, ~varying].any(), "constant self terms become 0 (trap T5)"
    assert (~varying).sum() == 11
    assert y.mean() == pytest.approx(0, abs=1e-5)
    np.testing.assert_allclose(world.original(world.observe([450])), world.bags[[450]], rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(world.original_target(world.target_of([450])), world.factors_of([450]), rtol=1e-5)
    raw = ToyMolecules(count=500, tested=100, standardised=False)
    np.testing.assert_allclose(raw.observe([3]), world.bags[[3]].astype(np.float32))


def test_a_constant_column_has_no_division_by_zero() -> None:
    scaling = Scaling.of(np.array([[36.858, 1.0], [36.858, 2.0]]))
    assert scaling.scaled([[36.858, 2.0]]).tolist() == [[0.0, 1.0]]


def test_a_property_in_a_small_unit_is_not_constant(tmp_path) -> None:
    """Gaps in joule are about 1e-18; relative to their size they vary as much as in electronvolt."""
    written(tmp_path / "a.xyz", "".join(f"2\ngap={1e-19 * (3 + k)}\nC 0 0 0\nO {1 + k / 9} 0 0\n" for k in range(8)))
    targets = MoleculeFile(str(tmp_path / "a.xyz"), share=0.25).target_of(np.arange(8))
    assert np.ptp(targets) > 2
    written(tmp_path / "b.xyz", "".join(f"1\ngap={0.1 + k * 1e-17}\nC 0 0 0\n" for k in range(8)))
    with pytest.raises(ValueError, match=r"'gap' is 0\.1 everywhere"):
        MoleculeFile(str(tmp_path / "b.xyz"), share=0.25).target_of([0])


def test_a_property_that_varies_only_where_it_is_held_out_is_refused(tmp_path) -> None:
    path = written(tmp_path / "a.xyz", "".join(f"2\ngap={k == 3}\nC 0 0 0\nO {1 + k / 9} 0 0\n" for k in range(8)))
    path.write_text(path.read_text().replace("True", "2").replace("False", "1"))
    seeds = [seed for seed in range(40) if 3 in np.random.default_rng(seed).permutation(8)[6:]]
    with pytest.raises(ValueError, match=r"varies in the molecules to train on, but 'gap' is 1 in all 6 of them"):
        MoleculeFile(str(path), share=0.25, seed=seeds[0]).observe([0])
    other = next(seed for seed in range(40) if seed not in seeds)
    assert len(MoleculeFile(str(path), share=0.25, seed=other)) == 8


# The real isomers


@pytest.mark.spec("000/F071", "000/F073")
def test_the_real_isomers_come_with_the_published_split(real_data) -> None:
    world = Isomers(str(real_data("qm9/qm9_c7h10o2_geometries.npz")))
    assert (len(world), world.shape, len(world.held_out)) == (6050, (190,), 300)
    assert len(usual_split(world).parts(world).train) == 5750
    assert world.targets[0].name == "gap (kcal/mol)"
    x = world.observe(np.arange(6050))
    assert np.isfinite(x).all()
    assert (x.std(0) > 0).sum() == 171
    gaps = world.factors_of(world.held_out)
    trained = np.setdiff1d(np.arange(6050), world.held_out)
    mean = world.factors_of(trained).mean()
    assert np.abs(gaps - mean).mean() == pytest.approx(24.4, abs=1.5), "the mean model of the spec, on other molecules"
    assert first_of_each(world.bags).tolist() == list(range(6050))
    assert not set(np.array(world.molecules.labels)[world.held_out]) & set(np.array(world.molecules.labels)[trained])


# Files of a user's own


def test_an_xyz_file_of_several_formulas_is_a_world(tmp_path) -> None:
    path = written(tmp_path / "mixed.xyz", xyz())
    world = MoleculeFile(str(path), properties="gap", factor=2.0, unit="eV", share=0.25)
    assert (len(world), len(world.held_out)) == (12, 3)
    assert world.targets[0].name == "gap (eV)"
    np.testing.assert_allclose(world.factors_of([0, 5, 11])[:, 0], 2 * np.array([0, 5, 11]).round() / 7, atol=1e-3)
    assert world.layout.bag_sizes["HH"] == 6
    check_world(world)
    check_world(worlds.build({"name": "molecules", "path": str(path), "properties": "gap,name", "seed": 3}))


def test_the_command_line_chooses_the_split_that_the_file_brings(tmp_path) -> None:
    path = written(tmp_path / "mixed.xyz", xyz())
    words = ["molecules", "--world.path", str(path), "--world.properties", "gap", "--objective", "dvib"]
    config, _ = parse_run(words, "train", [])
    assert isinstance(config.split, OwnSplit)
    assert len(config.split.parts(config.world).held_out) == 1


def test_an_sdf_file_brings_its_data_fields(tmp_path) -> None:
    result = read_molecules(written(tmp_path / "a.sdf", sdf()))
    assert result.properties["gap"].tolist() == [0.0, 1.5, 3.0, 4.5, 6.0]
    assert result.charges.tolist() == [[6, 8, 1]] * 5
    assert result.positions[0, 0].tolist() == np.random.default_rng(4).normal(size=(3, 3)).round(4)[0].tolist()
    check_world(MoleculeFile(str(tmp_path / "a.sdf"), share=0.2))


def test_properties_may_stand_in_a_table_of_their_own(tmp_path) -> None:
    path = written(tmp_path / "a.xyz", xyz(4))
    table = written(tmp_path / "properties.csv", "dipole,note\n1.5,a\n2.5,b\n0.5,\n4.0,d\n")
    world = MoleculeFile(str(path), table_path=str(table), share=0.0)
    assert world.factors_of([0, 1, 2, 3]).ravel().tolist() == [1.5, 2.5, 0.5, 4.0]
    assert world.held_out is None
    assert data_files(worlds.describe(world)) == [str(path), str(table)], "both belong to the data of a run"
    short = written(tmp_path / "short.csv", "dipole\n1.5\n2.5\n")
    with pytest.raises(ValueError, match=r"short.csv: expected one value of .*'dipole' for each of 4 molecules"):
        len(MoleculeFile(str(path), table_path=str(short)))


def test_an_npz_file_may_name_its_arrays_as_is_usual(tmp_path) -> None:
    charges, positions = some(9, [6, 1, 1])
    np.savez(tmp_path / "a.npz", Z=charges, R=positions, energy=np.arange(9.0), note=np.zeros((9, 2)))
    world = MoleculeFile(str(tmp_path / "a.npz"), trained=5, tested=2)
    assert (len(world), len(world.held_out), world.chosen_properties) == (7, 2, ("energy",))


BAD_XYZ = {
    "unknown element": ("2\n\nC 0 0 0\nXx 1 0 0\n", "line 4 has the unknown element 'Xx'"),
    "no coordinates": ("2\n\nC 0 0 0\nH\n", "line 4 has an atom without coordinates: 'H'"),
    "no number": ("2\n\nC 0 0 0\nH 1 x 0\n", "line 4 has 'x' where a coordinate was expected"),
    "infinite": ("1\n\nC inf 0 0\n", "line 3 has 'inf' where a coordinate"),
    "too short": ("3\n\nC 0 0 0\n", "line 1 announces 3 atoms, but the file ends before"),
    "no count": ("C\n\n", "line 1 should be the number of atoms, but is 'C'"),
    "empty": ("\n\n", "it contains no molecule"),
    "same place": ("2\ngap=1\nC 0 0 0\nC 0 0 0\n2\ngap=2\nC 0 0 0\nC 1 0 0\n", "atoms 1 and 2 of molecule 0"),
    "NaN": ("1\ngap=nan\nC 0 0 0\n1\ngap=2\nC 0 0 0\n", "expected finite numbers as the property 'gap'"),
    "constant": ("1\ngap=2\nC 0 0 0\n1\ngap=2\nC 0 0 0\n", "'gap' is 2 everywhere"),
    "missing": ("1\ngap=2\nC 0 0 0\n1\n\nC 0 0 0\n", "but molecule 1 has none"),
    "several": ("1\na=2 b=1\nC 0 0 0\n1\na=3 b=4\nC 0 0 0\n", "expected one property, but there are a, b"),
    "no number, but a cell": ('1\nLattice="1 0 0 0 1 0 0 0 1" pbc="F F F"\nC 0 0 0\n', "but found none; give a"),
    "none": ("1\n\nC 0 0 0\n", "expected a property of the molecules, but found none"),
    "far too large": ("99999\n\n", "a molecule of 99,999 atoms is too large"),
    "two values": ("1\na=2 a=3\nC 0 0 0\n", "line 2 has two values of 'a': 2 and 3"),
    "a unit": (
        '1\ngap="2 eV"\nC 0 0 0\n',
        "number as the property 'gap', but it is '2 eV'; write numbers with a",
    ),
    "a comma": ("1\ngap=2,5\nC 0 0 0\n", "a number as the property 'gap', but it is '2,5'"),
    "underscores": ("1\ngap=2_5\nC 0 0 0\n", "a number as the property 'gap', but it is '2_5'"),
    "a digit of another script": ("1\ngap=1\n² 0 0 0\n", "line 3 has the unknown element '²'"),
    "too few": ("1\ngap=1\nC 0 0 0\n1\ngap=2\nH 0 0 0\n", "expected at least 3 molecules"),
}


@pytest.mark.parametrize(("text", "sentence"), BAD_XYZ.values(), ids=BAD_XYZ.keys())
def test_a_file_that_is_wrong_is_refused_with_its_line(tmp_path, text, sentence) -> None:
    path = written(tmp_path / "bad.xyz", text)
    with pytest.raises(ValueError, match=sentence) as refused:
        MoleculeFile(str(path), tested=1 if "at least" not in sentence else 2).observe([0])
    assert str(refused.value).startswith(f"{path}: ")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("a.sdf", sdf(2, "2D"), "line 1 is drawn in 2-D, so its atoms have no coordinates in space"),
        ("a.sdf", sdf(1).replace("-", "0").translate(str.maketrans("123456789", "000000000")), "V2000|atoms"),
        ("a.sdf", "a\nb\n", "not a V2000 block"),
        ("a.pdb", "ATOM", "its name ends in '.pdb'"),
        ("a.csv", "a,b\n1,2\n", "no column called smiles"),
        ("a.csv", "smiles,smiles\nC,C\n", "a different name for each column"),
        ("a.csv", "smiles,gap\nC\n", "line 2 has 1 fields where the header has 2"),
        ("a.csv", "", "it is empty"),
    ],
)
def test_other_files_that_are_wrong_are_refused(tmp_path, name, text, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        read_molecules(written(tmp_path / name, text))


def test_an_extended_file_says_which_columns_are_positions(tmp_path) -> None:
    comment = "Properties=species:S:1:forces:R:3:tags:I:1:pos:R:3 gap=2.5"
    text = f"2\n{comment}\nO 9 9 9 1 0 0 0.1\nH 8 8 8 2 0 0.75 -0.5\n"
    molecules = read_molecules(written(tmp_path / "a.xyz", text))
    assert molecules.positions[0].tolist() == [[0, 0, 0.1], [0, 0.75, -0.5]]
    assert molecules.properties["gap"].tolist() == [2.5]
    for wrong in ("species:S:1", "species:S:1:pos:R", "pos:R:3:forces:R:3"):
        with pytest.raises(ValueError, match="line 2 describes the columns of atoms as"):
            read_molecules(written(tmp_path / "b.xyz", text.replace("species:S:1:forces:R:3:tags:I:1:pos:R:3", wrong)))
    with pytest.raises(ValueError, match="line 3 has an atom without coordinates"):
        read_molecules(written(tmp_path / "c.xyz", f"1\n{comment}\nO 9 9 9 1 0 0\n"))


def flat(elements: str, bonds: list[tuple[int, int]], dimension: str = "  ") -> str:
    places = np.random.default_rng(0).normal(size=(len(elements), 2))
    atoms = [f"{x:10.4f}{y:10.4f}{0:10.4f} {s:<3} 0  0" for s, (x, y) in zip(elements, places, strict=True)]
    head = f"flat\n     made up        {dimension}\n\n{len(atoms):3d}{len(bonds):3d}  0  0  0  0            999 V2000\n"
    lines = [*atoms, *(f"{a:3d}{b:3d}  1  0" for a, b in bonds), "M  END", "$$$$"]
    return head + "\n".join(lines) + "\n"


def test_a_drawing_without_the_word_2d_is_no_geometry(tmp_path) -> None:
    isobutane, star = [(1, 2), (1, 3), (1, 4)], [(1, end) for end in range(2, 6)]
    for drawn in (flat("CCCC", isobutane), flat("CHHHH", star)):
        with pytest.raises(ValueError, match="line 1 is drawn in 2-D"):
            read_molecules(written(tmp_path / "a.sdf", drawn))
    formaldehyde, carbon_dioxide = flat("COHH", isobutane), flat("COO", isobutane[:2])
    for real in (formaldehyde, carbon_dioxide, flat("CCFFFF", isobutane, "3D")):
        assert len(read_molecules(written(tmp_path / "a.sdf", real))) == 1


def test_pairs_in_a_comment_may_have_commas_between_them(tmp_path) -> None:
    """The comma made the first value a word, and the other property was learned instead, without a word."""
    for comma in (", ", ",", "; ", ";", " "):
        text = "".join(f"2\nenergy=-{k}.5{comma}dipole=2{k}\nC 0 0 0\nO {1 + k / 10} 0 0\n" for k in range(4))
        path = written(tmp_path / "a.xyz", text)
        with pytest.raises(ValueError, match="expected one property, but there are energy, dipole; choose with prop"):
            MoleculeFile(str(path)).observe([0])
        energies = MoleculeFile(str(path), properties="energy", share=0.25).values[:, 0]
        assert energies.tolist() == [-0.5, -1.5, -2.5, -3.5]


def test_a_named_column_of_words_is_refused_with_a_value(tmp_path) -> None:
    path = written(tmp_path / "a.xyz", "".join(f"1\ncharge={k} gap={k},5\nC 0 0 0\n" for k in range(3)))
    with pytest.raises(ValueError, match="expected a number as the property 'gap', but it is '0,5'"):
        MoleculeFile(str(path), properties="gap").observe([0])


def test_settings_and_missing_files_are_refused(tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match="never downloaded"):
        read_molecules(tmp_path / "none.xyz")
    with pytest.raises(FileNotFoundError, match="with the properties of molecules"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(ValueError, match="give its path"):
        read_molecules("")
    for settings, sentence in (
        ({"share": 1.0}, "held-out share is 1.0"),
        ({"tested": -1}, "tested is -1"),
        ({"factor": 0.0}, "factor of the property is 0.0"),
    ):
        with pytest.raises(ValueError, match=sentence):
            MoleculeFile("a.xyz", **settings)
    with pytest.raises(ValueError, match="leave some to train on"):
        ToyMolecules(count=5, tested=5)


def test_the_same_molecule_on_both_sides_of_the_split_is_refused(tmp_path) -> None:
    path = written(tmp_path / "twice.xyz", xyz(6) + xyz(6).replace("gap=", "gap=1"))
    with pytest.raises(ValueError, match=r"twice.xyz: expected different molecules .*duplicates=\"drop\""):
        MoleculeFile(str(path), properties="gap", share=0.5).observe([0])
    kept = MoleculeFile(str(path), properties="gap", share=0.5, duplicates="drop")
    assert len(kept) == 6
    check_apart(kept.bags, (), kept.held_out, "here")
    with pytest.raises(ValueError, match="1 is the same as 0"):
        check_apart(np.eye(3), ("CO", "CO", "C"), np.array([1]), "here")
    twins = 3 * "2\ngap=1\nC 0 0 0\nO 1 0 0\n" + "2\ngap=2\nC 0 0 0\nO 1 0 0\n"
    alike = written(tmp_path / "alike.xyz", twins)
    with pytest.raises(ValueError, match="at least 2 different molecules, but all 4 are the same"):
        MoleculeFile(str(alike), duplicates="drop").observe([0])


def test_a_property_of_the_wrong_shape_is_refused_with_its_shape(tmp_path) -> None:
    path = tmp_path / "pairs.npz"
    places = np.random.default_rng(0).normal(size=(8, 3, 3))
    arrays = {"charges": np.tile([6, 8, 1], (8, 1)), "positions": places, "gap": np.zeros((8, 2))}
    np.savez(path, **arrays)
    for named in ("gap", ""):
        with pytest.raises(ValueError, match=r"one value of the property 'gap' for each of 8 .* its shape is \(8, 2\)"):
            MoleculeFile(str(path), properties=named).observe([0])
    np.savez(path, **arrays, dipole=np.arange(8.0))
    assert MoleculeFile(str(path)).chosen_properties == ("dipole",), "the only one that fits need not be named"


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        ("unknown.xyz", "line 3 has the unknown element 'Xx'"),
        ("bare.xyz", "line 3 has an atom without coordinates: 'C'"),
        ("constant.xyz", "'gap' is 1 everywhere"),
        ("nan.xyz", "finite numbers as the property 'gap', but molecule 1 has none"),
        ("twice.xyz", "is the same as 2, which is on the other side"),
        ("shape.npz", "its shape is (6, 2)"),
        ("short.npz", "its shape is (5,)"),
    ],
)
def test_the_command_line_refuses_molecules_in_one_sentence(tmp_path, monkeypatch, capsys, file, sentence) -> None:
    monkeypatch.chdir(tmp_path)
    arrays = {"charges": np.tile([6, 8], (6, 1)), "positions": np.random.default_rng(0).normal(size=(6, 2, 3))}
    np.savez("shape.npz", **arrays, gap=np.zeros((6, 2)))
    np.savez("short.npz", **arrays, gap=np.arange(5.0))
    pair = "2\ngap={}\nC 0 0 0\nO {} 0 0\n"
    for name, text in {
        "unknown.xyz": pair.format(1, 1).replace("C ", "Xx "),
        "bare.xyz": pair.format(1, 1).replace("C 0 0 0", "C"),
        "constant.xyz": "".join(pair.format(1, 1 + length) for length in range(6)),
        "nan.xyz": "".join(pair.format("nan" if length == 1 else length, 1 + length) for length in range(6)),
        "twice.xyz": "".join(pair.format(number, 1 + number // 2) for number in range(12)),
    }.items():
        written(tmp_path / name, text)
    words = ["--objective", "conditional-invariance", "--training.steps", "1", "--world.share", "0.5"]
    assert main(["train", "molecules", "--world.path", file, *words]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert not (tmp_path / "runs").exists(), "nothing is left behind"


# SMILES


def test_smiles_without_rdkit_say_what_to_install(tmp_path, monkeypatch, capsys) -> None:
    import sys

    for name in ("rdkit", "rdkit.Chem"):
        monkeypatch.setitem(sys.modules, name, None)
    path = written(tmp_path / "a.csv", "smiles,gap\nCCO,1\nCO,2\n")
    with pytest.raises(ModuleNotFoundError, match=r"needs rdkit: pip install polariscope\[chem\]"):
        read_molecules(path)
    monkeypatch.chdir(tmp_path)
    assert main(["train", "molecules", "--world.path", "a.csv", "--objective", "conditional-invariance"]) == 2
    error = capsys.readouterr().err
    assert error.endswith("needs rdkit: pip install polariscope[chem]\n")
    assert error.count("\n") == 1


@needs_rdkit
def test_smiles_become_seeded_geometries(tmp_path) -> None:
    path = written(tmp_path / "a.csv", "name,smiles,gap\nethanol,CCO,1.5\nmethanol,CO,2.5\nphenol,c1ccccc1O,0.5\n")
    first, again, other = (read_molecules(path, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.positions, again.positions)
    assert not np.allclose(first.positions, other.positions)
    assert sorted(first.charges[0][first.charges[0] > 0].tolist()) == [1] * 6 + [6, 6, 8]
    assert first.labels == ("CCO", "CO", "c1ccccc1O")
    assert first.properties["gap"].tolist() == [1.5, 2.5, 0.5]
    check_world(MoleculeFile(str(path), share=0.34))
    lines = written(tmp_path / "a.smi", "CCO ethanol\n\nCO methanol\n")
    np.testing.assert_array_equal(read_molecules(lines).positions[0], first.positions[0][:9])


@needs_rdkit
def test_a_smiles_that_cannot_be_read_is_refused_with_its_line(tmp_path, capfd) -> None:
    path = written(tmp_path / "a.csv", "smiles,gap\nCCO,1\nC1CC(,2\n")
    with pytest.raises(ValueError, match=r"line 3 has the SMILES 'C1CC\(', which cannot be read"):
        read_molecules(path)
    assert capfd.readouterr().err == "", "rdkit itself says nothing"
    assert main(["train", "molecules", "--world.path", str(path), "--objective", "conditional-invariance"]) == 2
    error = capfd.readouterr().err
    assert "line 3" in error
    assert error.count("\n") == 1


@needs_rdkit
@pytest.mark.parametrize(
    ("smiles", "sentence"),
    [
        ("CO.[Na+]", r"line 3 has the SMILES 'CO\.\[Na\+\]', which is 2 molecules: give one, without salts"),
        ("CC*", r"line 3 has the SMILES 'CC\*', which has the unknown element '\*'"),
    ],
)
def test_a_smiles_without_one_geometry_is_refused_with_its_line(tmp_path, smiles, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        read_molecules(written(tmp_path / "a.csv", f"smiles,gap\nCO,1\n{smiles},2\n"))


@needs_rdkit
def test_one_molecule_with_two_smiles_is_found_on_both_sides_of_the_split(tmp_path) -> None:
    path = written(tmp_path / "a.csv", "smiles,gap\n" + "".join(f"{s},{k}\n" for k, s in enumerate(("CCO", "OCC"))))
    with pytest.raises(ValueError, match="1 is the same as 0, which is on the other side"):
        MoleculeFile(str(path), share=0.5).observe([0])
    more = written(tmp_path / "b.csv", "smiles,gap\nCCO,1\nOCC,2\nC(O)C,3\nCO,4\n")
    kept = MoleculeFile(str(more), share=0.5, duplicates="drop")
    assert sorted(kept.molecules.labels) == ["CCO", "CO"]


@needs_rdkit
def test_a_table_as_spreadsheets_save_it_is_read_and_another_encoding_is_refused(tmp_path) -> None:
    text = "smiles,gap\nCO,1\nCCO,2\n"
    (tmp_path / "a.csv").write_bytes(text.encode("utf-8-sig"))
    assert read_molecules(tmp_path / "a.csv").labels == ("CO", "CCO")
    (tmp_path / "b.csv").write_bytes((text + "é,3\n").encode("latin-1"))
    with pytest.raises(ValueError, match="it is not encoded in UTF-8; save it in this encoding"):
        read_molecules(tmp_path / "b.csv")


# Damaged files


def look(path: Path) -> None:
    properties = "gap" if path.suffix in (".xyz", ".sdf") else "energy"
    world = MoleculeFile(str(path), properties=properties, share=0.2)
    world.observe(np.arange(len(world)))


def smiles(path: Path) -> None:
    read_molecules(path)


def test_readers_of_molecules_keep_the_contract(tmp_path) -> None:
    charges, positions = some(9, [6, 1, 1])
    np.savez(tmp_path / "a.npz", charges=charges, positions=positions, energy=np.arange(9.0))
    written(tmp_path / "a.xyz", xyz())
    written(tmp_path / "a.sdf", sdf())
    check_reader(look, [tmp_path / name for name in ("a.npz", "a.xyz", "a.sdf")])
    table = written(tmp_path / "a.csv", "gap,dipole\n" + "\n".join(f"{i},{i / 3:.3f}" for i in range(30)) + "\n")
    check_reader(lambda path: read_table(path).numbers(), [table])


@needs_rdkit
def test_the_reader_of_smiles_keeps_the_contract(tmp_path) -> None:
    table = written(tmp_path / "b.csv", "smiles,gap\n" + "\n".join(f"{'C' * (i + 1)}O,{i}" for i in range(6)) + "\n")
    check_reader(smiles, [table], count=20, memory=2**31)


def test_the_layout_is_plain_data() -> None:
    layout = layout_of([[6, 8, 1, 1]])
    assert layout == BagLayout(layout.elements, layout.pair_sizes, layout.atom_sizes)
    assert CHARGES["C"] == 6
    assert CHARGES["Og"] == 118
