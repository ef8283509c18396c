"""Bags of bonds back to geometries and molecules, and how that is reported when it does not work."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import pytest

from polariscope.cli import main
from polariscope.examination import generation
from polariscope.examination.generation import generate_with_property
from polariscope.examination.way_back import ReturnedMolecules, known_smiles, recover, returned, starting_geometries
from polariscope.nets.architecture import MLP
from polariscope.nets.property_autoencoder import PropertyAutoencoderConfig
from polariscope.objectives.conditional_invariance import ConditionalInvariance
from polariscope.training import RunConfig, TrainingConfig, train
from polariscope.worlds import chemistry
from polariscope.worlds.bag_geometry import bag_distances, fit_geometries, formula_charges
from polariscope.worlds.bag_of_bonds import bag_of_bonds, layout_of
from polariscope.worlds.readers.molecule_files import Isomers, MoleculeFile, read_molecules

needs_rdkit = pytest.mark.skipif(
    importlib.util.find_spec("rdkit") is None, reason="rdkit is not installed (pip install polariscope[chem])"
)
ISOMERS = Path(__file__).resolve().parents[3] / "shared" / "data" / "qm9" / "qm9_c7h10o2_geometries.npz"
needs_isomers = pytest.mark.skipif(not ISOMERS.exists(), reason="the real isomers of QM9 are not on this machine")
METHANOL = [6, 8, 1, 1, 1, 1]
PLACES = np.array(
    [[-0.047, 0.664, 0.0], [-0.047, -0.758, 0.0], [-1.093, 0.97, 0.0], [0.437, 1.071, 0.892], [0.437, 1.071, -0.892],
     [0.872, -1.058, 0.0]]
)  # fmt: skip


def test_bags_have_the_distances_of_their_molecules() -> None:
    bags = bag_of_bonds([METHANOL], PLACES[None])
    distances, possible = bag_distances(bags, layout_of([METHANOL]))
    assert possible.tolist() == [True]
    assert formula_charges(layout_of([METHANOL])).tolist() == METHANOL
    carbon_oxygen, carbon_hydrogen = distances[0, :1], distances[0, 1:5]
    assert carbon_oxygen[0] == pytest.approx(np.linalg.norm(PLACES[0] - PLACES[1]))
    assert carbon_hydrogen == pytest.approx(np.sort(np.linalg.norm(PLACES[2:] - PLACES[0], axis=1)))
    assert bag_distances(-bags, layout_of([METHANOL]))[1].tolist() == [False]


def test_a_disturbed_geometry_comes_back_from_its_bag() -> None:
    generator = np.random.default_rng(0)
    bags = np.repeat(bag_of_bonds([METHANOL], PLACES[None]), 5, axis=0)
    starts = PLACES + 0.1 * generator.normal(size=(5, 3, 6, 3))
    fitted = fit_geometries(bags, layout_of([METHANOL]), starts)
    assert fitted.misfit.max() < 1e-3, "the matching of nearly equal distances may stay wrong"
    again = bag_of_bonds(np.tile(METHANOL, (5, 1)), fitted.positions)
    assert again == pytest.approx(bags, rel=5e-3)


def test_bags_of_several_formulas_have_no_way_back() -> None:
    charges = [[6, 1, 1, 1, 1], [6, 8, 1, 1, 0]]
    with pytest.raises(ValueError, match="molecules of one formula"):
        formula_charges(layout_of(charges))
    with pytest.raises(ValueError, match="have 10 numbers"):
        bag_distances(np.zeros((1, 3)), layout_of([[8, 1, 1, 6]]))


@needs_rdkit
def test_bonds_are_found_and_what_is_no_molecule_is_none() -> None:
    methanol = chemistry.structure_of(METHANOL, PLACES)
    assert methanol is not None
    assert methanol.smiles == "CO"
    assert chemistry.structure_of(METHANOL, 3 * PLACES) is None, "atoms apart are no molecule"
    assert chemistry.structure_of([6, 1, 1], PLACES[[0, 2, 3]]) is None, "a radical"
    block = methanol.block("sample 1", {"gap": "3"})
    assert block.startswith("sample 1\n")
    assert block.endswith("$$$$\n")
    assert "V2000" in block
    assert chemistry.canonical_smiles("OC") == "CO"
    assert chemistry.canonical_smiles("nonsense(") is None
    assert chemistry.internal_diversity([methanol, methanol]) == 0
    assert chemistry.internal_diversity([methanol]) is None


def jittered(tmp_path: Path, count: int = 80) -> Path:
    """Methanol and its reflections with small changes: molecules that are all near each other."""
    generator = np.random.default_rng(1)
    places = PLACES + 0.02 * generator.normal(size=(count, 6, 3))
    path = tmp_path / "methanol.npz"
    np.savez(path, charges=np.tile(METHANOL, (count, 1)), positions=places, gap=generator.normal(size=count))
    return path


@needs_rdkit
def test_held_out_molecules_go_first_and_then_generated_ones(tmp_path) -> None:
    world = MoleculeFile(str(jittered(tmp_path)), share=0.25)
    held, trained = world.held_out, np.setdiff1d(np.arange(len(world)), world.held_out)
    recovery = recover(world, held, trained)
    assert (recovery.tried, recovery.bonded) == (20, 20)
    assert recovery.recovered >= 18, "neighbours are within reach"
    assert recovery.trusted
    back = returned(world, world.bags[held], trained, recovery)
    assert back.known == {"CO"}
    few = type(recovery)(20, 20, 20, 20, 2, 0.001)
    assert not returned(world, world.bags[held], trained, few).known, "not needed, as nothing is scored"
    scores = {row["score"]: row["value"] for row in back.scores()}
    assert float(scores["validity: share that was reconstructed"]) >= 0.9
    assert scores["novelty: not among those trained on"] == "0.000", "it is methanol again"
    assert scores["uniqueness at 1,000"].startswith("not applicable")
    assert starting_geometries(world, world.bags[held], trained).shape == (20, 4, 6, 3)


@needs_rdkit
def test_scores_are_not_applicable_where_held_out_molecules_do_not_come_back(tmp_path) -> None:
    world = MoleculeFile(str(jittered(tmp_path)), share=0.25)
    held, trained = world.held_out, np.setdiff1d(np.arange(len(world)), world.held_out)
    back = returned(world, world.bags[held], trained, recover(world, held, trained))
    lost = ReturnedMolecules(
        back.geometries, back.possible, back.structures,
        type(back.recovery)(20, 20, 0, 19, 0, 0.03), back.known,
    )  # fmt: skip
    assert {row["value"] for row in lost.scores()} == {"not applicable: 0 of 20 held-out molecules were recovered"}
    assert "Of 20 held-out molecules, 0 were recovered" in lost.parts()[0].hint


@needs_rdkit
def test_generated_molecules_are_written_as_xyz_and_sdf(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    model = PropertyAutoencoderConfig(4, 1, MLP((8,), (8,)), property_widths=(8,))
    config = RunConfig(
        MoleculeFile(str(jittered(tmp_path)), share=0.3), ConditionalInvariance(copies=1), model, TrainingConfig(3, 16)
    )
    run = train(config, tmp_path / "runs", quiet=True)
    assert main(["generate", run.id, "--property", "0.2", "--n", "12", "--molecules", "10", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert list(document)[list(document).index("recovery") + 1] == "molecules", "held-out molecules come first"
    folder = run.path / "findings" / "generate"
    geometries = read_molecules(folder / "geometries.xyz")
    assert len(geometries) == 10
    assert set(geometries.properties) >= {"sample", "misfit", "gap_wanted", "gap_low"}
    table = parquet.read_table(folder / "samples.parquet").to_pylist()
    back = [row for row in table if row["smiles"]]
    sdf = folder / "geometries.sdf"
    assert (sdf.read_text().count("$$$$") if sdf.exists() else 0) == len(back)


def test_without_rdkit_samples_stay_bags_and_the_document_says_so(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "rdkit", None)
    with pytest.raises(ModuleNotFoundError, match=r"needs rdkit: pip install polariscope\[chem\]"):
        chemistry.rdkit_modules("finding bonds")
    model = PropertyAutoencoderConfig(4, 1, MLP((8,), (8,)), property_widths=(8,))
    config = RunConfig(
        MoleculeFile(str(jittered(tmp_path)), share=0.3), ConditionalInvariance(copies=1), model, TrainingConfig(2, 16)
    )
    run = train(config, tmp_path / "runs", quiet=True)
    result = generate_with_property(run, wanted=0.2, count=4)
    assert result.returned is None
    assert any("pip install polariscope[chem]" in note for note in result.notes)
    with pytest.raises(ValueError, match="no geometries to be written as XYZ"):
        result.save(tmp_path / "samples.xyz")


@needs_rdkit
def test_novelty_is_against_all_molecules_trained_on(tmp_path) -> None:
    """The judge learns from a part of them, and the way back starts from all."""
    world = MoleculeFile(str(jittered(tmp_path)), share=0.3)
    model = PropertyAutoencoderConfig(4, 1, MLP((8,), (8,)), property_widths=(8,))
    run = train(
        RunConfig(world, ConditionalInvariance(copies=1), model, TrainingConfig(2, 16)), tmp_path / "runs", quiet=True
    )
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generation, "recover", lambda world, held, trained: seen.append(trained) or recover(
            world, held, trained))  # fmt: skip
        generate_with_property(run, wanted=0.2, count=3, judged_on=12, molecules=3)
    assert len(seen[0]) == 56


@needs_rdkit
def test_molecules_with_names_that_are_not_smiles_are_known_by_their_geometry(tmp_path) -> None:
    """Otherwise nothing was known, and every generated molecule counted as new."""
    path = jittered(tmp_path, 12)
    with np.load(path) as arrays:
        np.savez(path, **arrays, names=np.array([f"molecule {number}" for number in range(12)]))
    world = MoleculeFile(str(path), share=0.25)
    assert world.molecules.labels[0].startswith("molecule")
    assert known_smiles(world, np.arange(12)) == {"CO"}


@needs_rdkit
@needs_isomers
def test_the_bonds_of_real_isomers_are_right_and_the_way_back_is_measured() -> None:
    """From true geometries rdkit finds the stored SMILES; from bags the rate is whatever it is, and it is told."""
    world = Isomers(path=str(ISOMERS))
    held = world.held_out[:20]
    recovery = recover(world, held, np.setdiff1d(np.arange(len(world)), world.held_out)[:1500])
    assert recovery.bonded >= 19
    assert recovery.valid > recovery.recovered, "bonds can be found in wrong geometries"
    assert 0.005 < recovery.misfit < 0.06
