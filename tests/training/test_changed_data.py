"""Data in files is known by its content: a run does not go on with other data in silence."""

import numpy as np
import pytest

from polariscope.lab import Store, provenance
from polariscope.lab.provenance import data_changes, data_record
from polariscope.nets.architecture import MLP
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.objectives.vae import VAE
from polariscope.training import RunConfig, TrainingConfig, resume, train
from polariscope.training.run import standing_id, train_once
from polariscope.worlds.readers.files import File


@pytest.fixture
def config(tmp_path) -> RunConfig:
    write(tmp_path / "data.npz", 0)
    training = TrainingConfig(steps=4, batch_size=4, evaluate_every=0, checkpoint_every=2)
    return RunConfig(File(str(tmp_path / "data.npz")), VAE(), AutoencoderConfig(2, MLP((4,), (4,))), training)


def write(file, seed: int, count: int = 40) -> None:
    np.savez(file, images=np.random.default_rng(seed).integers(0, 255, (count, 8, 8), dtype=np.uint8))


def test_a_run_does_not_go_on_with_other_data(config, tmp_path) -> None:
    run = train(config, Store(tmp_path / "runs"))
    (entry,) = run.record["data"]
    assert entry["path"] == str(tmp_path / "data.npz")
    assert entry["bytes"] == (tmp_path / "data.npz").stat().st_size
    run.update(status="interrupted")
    write(tmp_path / "data.npz", 1)  # of the same size and shape
    words = r"started with other data: .*data.npz has changed \(\d+ bytes with SHA-256 \w{12} then, .* now\)"
    with pytest.raises(ValueError, match=words):
        resume(run)
    assert run.status == "interrupted"
    assert resume(run, changed_data_ok=True).status == "done"
    run.update(status="interrupted")
    assert resume(run).status == "done", "that it was changed is known now"
    write(tmp_path / "data.npz", 0)
    run.update(status="interrupted")
    assert resume(run).status == "done", "and what it was before is as good"


def test_the_command_line_says_how_to_go_on_with_changed_data(config, tmp_path, monkeypatch, capsys) -> None:
    from polariscope.cli import main

    monkeypatch.chdir(tmp_path)
    run = train(config, Store(tmp_path / "runs"))
    run.update(status="interrupted")
    write(tmp_path / "data.npz", 1)
    assert main(["train", "--resume", run.id]) == 2
    assert "Start a new run, or continue with the changed data with --changed-data-ok" in capsys.readouterr().err
    assert main(["train", "--resume", run.id, "--changed-data-ok"]) == 0


def test_a_standing_run_of_other_data_is_another_one(config, tmp_path) -> None:
    first = train_once(config, tmp_path / "runs")
    before = first.checkpoint.read_bytes()
    assert train_once(config, tmp_path / "runs").id == first.id
    assert first.checkpoint.read_bytes() == before
    write(tmp_path / "data.npz", 1)
    assert standing_id(config) != first.id


def test_a_standing_run_is_what_its_name_says(config, tmp_path) -> None:
    store = Store(tmp_path / "runs")
    store.create({"world": {"name": "sprites"}}, "x", run_id=standing_id(config), status="done")
    with pytest.raises(ValueError, match="was made with settings that do not match its name"):
        train_once(config, store)


def test_samples_of_a_large_file_are_hashed_or_all_of_it_on_request(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(provenance, "BLOCK", 4)
    monkeypatch.setattr(provenance, "BLOCKS", 4)
    file = tmp_path / "large.bin"
    content = bytearray(100)
    file.write_bytes(content)
    paths = [str(file)]
    sampled, whole = data_record(paths), data_record(paths, whole=True)
    assert sampled[0]["sha256"] != whole[0]["sha256"]
    for position in (0, 3, 99):  # in the first and in the last sample
        changed = content.copy()
        changed[position] = 1
        file.write_bytes(changed)
        assert data_changes(paths, sampled), position
    changed = content.copy()
    changed[10] = 1  # between two samples
    file.write_bytes(changed)
    assert not data_changes(paths, sampled)
    assert data_changes(paths, whole)
    file.write_bytes(content + b"\0")
    assert data_changes(paths, sampled), "another size"


def test_a_folder_is_known_by_its_files(tmp_path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    for name in "ab":
        (folder / f"{name}.png").write_bytes(name.encode())
    recorded = data_record([str(folder)])
    assert recorded[0]["bytes"] == 2
    assert not data_changes([str(folder)], recorded)
    (folder / "a.png").write_bytes(b"x")
    assert data_changes([str(folder)], recorded)
    (folder / "a.png").write_bytes(b"a")
    (folder / "a.png").rename(folder / "c.png")
    assert data_changes([str(folder)], recorded)


@pytest.mark.parametrize("recorded", [[1], [{}], [{"path": 3}], [[]], [None]])
def test_a_record_of_nonsense_says_nothing(tmp_path, recorded) -> None:
    (tmp_path / "x").write_text("x")
    assert data_changes([str(tmp_path / "x")], recorded) == []
