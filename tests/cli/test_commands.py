"""The command line as a user types it: outputs, files, exit codes, one sentence for each mistake."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from polariscope.cli import commands

QUICK = ["--model.architecture", "mlp"]
QUICK += ["--model.architecture.encoder-widths", "16", "--model.architecture.decoder-widths", "16"]
SMALL = ["--world.size", "16", "--model.latents", "3", "--training.steps", "6", "--training.batch-size", "8", *QUICK]


def train(run, *more: str) -> dict:
    code, out, err = run("train", "sprites", *SMALL, *more, "--json")
    assert code == 0, err
    return json.loads(out)


def test_overview_and_help(run) -> None:
    code, out, _ = run()
    assert code == 0
    for name in commands.names():
        assert name in out
    for name in commands.names():
        with pytest.raises(SystemExit) as stop:
            run(name, "--help")
        assert stop.value.code == 0


def test_help_shows_the_flags_of_the_chosen_objective(run, capsys) -> None:
    with pytest.raises(SystemExit):
        run("train", "sprites", "--objective", "annealed-vae", "--help")
    out = capsys.readouterr().out
    assert "--objective.capacity" in out
    assert "--world.variant" in out
    assert "--training.steps" in out


def test_python_dash_m_and_version() -> None:
    done = subprocess.run([sys.executable, "-m", "polariscope", "version", "--json"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "torch" in json.loads(done.stdout)


def test_worlds_are_listed(run) -> None:
    code, out, _ = run("worlds", "--json")
    listed = {row["name"]: row for row in json.loads(out)}
    assert code == 0
    assert listed["sprites"]["observations"] == 737_280
    assert listed["shapes3d"]["shape"] == [3, 64, 64]
    assert "sprites" in run("worlds")[1]


def test_a_contact_sheet_shows_the_world(run, tmp_path) -> None:
    code, out, _ = run("worlds", "show", "sprites", "--rows", "2", "--columns", "3", "--out", "sheet.png")
    assert code == 0
    assert "6 of 737,280" in out
    sheet = np.asarray(Image.open(tmp_path / "sheet.png"))
    assert sheet.shape == (2 * 66, 3 * 66)
    assert (sheet == 255).any()


def test_train_examine_runs(run, tmp_path) -> None:
    trained = train(run, "--objective", "beta-vae", "--objective.beta", "2.5")
    assert trained["status"] == "done"
    config = json.loads((Path(trained["path"]) / "run.json").read_text())["config"]
    assert config["objective"] == {"name": "beta-vae", "beta": 2.5}
    code, out, err = run("examine", trained["id"], "--count", "200", "--json")
    assert code == 0, err
    result = json.loads(out)
    assert sum(result["types"].values()) == 3
    assert "<html" in Path(result["report"]).read_text()
    code, out, _ = run("runs", "--json", "--where", "objective_beta > 2", "--columns", "id", "objective_beta")
    assert json.loads(out) == [{"id": trained["id"], "objective_beta": 2.5}]
    assert json.loads(run("runs", "--json", "--where", "objective_beta > 3")[1]) == []
    assert trained["id"].split("-")[-1] in run("runs")[1]
    code, out, _ = run("runs", "--json", "--sql", "select count(*) as n from metrics where term = 'kl'")
    assert json.loads(out)[0]["n"] > 0


@pytest.mark.usefixtures("undrawn")
def test_fewer_latents_than_factors_of_pairs_are_said_before_training_and_after(run) -> None:
    small = ["--world.of", "mini-sprites", "--model.latents", "2", "--training.steps", "2", *QUICK]
    code, out, _ = run("train", "pairs", "--objective", "slow-vae", *small)
    assert code == 0
    assert "note: 2 latents cannot encode 5 factors one each: the MCC is at most 0.40" in out
    code, out, _ = run("examine", "latest", "--count", "200")
    assert "2 latents cannot encode 5 factors" in " ".join(out.split())
    _, out, _ = run("train", "mini-sprites", "--model.latents", "2", "--training.steps", "2", *QUICK)
    assert "cannot hold" not in out, "a plain VAE promises no latent to each factor"


@pytest.mark.usefixtures("one_process")
def test_several_seeds_name_their_best(run) -> None:
    result = train(run, "--seeds", "2", "--training.seed", "3", "--split.share", "0.01")
    losses = {each["id"]: each["result"]["held_out_loss"] for each in result["runs"]}
    assert len(losses) == 2
    assert result["best"] == min(losses, key=losses.__getitem__)
    code, out, _ = run("train", "sprites", *SMALL, "--seeds", "2")
    assert code == 0
    first, second, following = out.splitlines()
    assert first.startswith("seed 0")
    assert second.startswith("seed 1")
    (best,) = [line for line in (first, second) if "(best)" in line]
    assert following == f"next: polariscope examine {best.split(': ')[1]}"
    code, out, err = run("train", "sprites", *SMALL, "--seeds", "0")
    assert (code, out) == (2, "")
    assert "at least one seed" in err


def test_a_toml_file_overridden_by_flags(run, tmp_path) -> None:
    (tmp_path / "run.toml").write_text(
        textwrap.dedent("""
            [world]
            name = "sprites"
            size = 16
            [objective]
            name = "beta-vae"
            beta = 8
            [model]
            latents = 3
            architecture = { name = "mlp", encoder_widths = [8], decoder_widths = [8] }
            [training]
            steps = 4
            batch_size = 8
        """)
    )
    code, out, err = run("train", "--config", "run.toml", "--objective.beta", "3", "--json")
    assert code == 0, err
    config = json.loads((Path(json.loads(out)["path"]) / "run.json").read_text())["config"]
    assert config["objective"]["beta"] == 3
    assert config["world"]["size"] == 16
    assert config["training"]["steps"] == 4


def test_training_on_a_file_of_yours(run, tmp_path) -> None:
    np.save(tmp_path / "mine.npy", np.random.default_rng(0).integers(0, 256, (40, 16, 16), dtype=np.uint8))
    words = ["--model.latents", "3", "--training.steps", "4", "--training.batch-size", "8", *QUICK]
    code, out, err = run("train", "mine.npy", *words, "--json")
    assert code == 0, err
    assert json.loads(out)["status"] == "done"


def test_a_model_of_yours_from_the_command_line(run, tmp_path) -> None:
    (tmp_path / "mine.py").write_text(
        textwrap.dedent("""
            import torch
            class Halves(torch.nn.Module):
                def encode(self, x):
                    flat = x.flatten(1)
                    mean = torch.stack([flat[:, :32].sum(1), flat[:, 32:].sum(1)], 1)
                    return mean, torch.full_like(mean, -5.0)
        """)
    )
    images = np.random.default_rng(0).integers(0, 256, (60, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "images.npz", images=images)
    code, out, err = run("examine", "mine.py:Halves", "--data", "images.npz", "--out", "out.html", "--json")
    assert code == 0, err
    assert json.loads(out)["types"] == {"active": 2, "mixed": 0, "passive": 0}
    assert (tmp_path / "out.html").exists()


def test_resume_from_the_command_line(run) -> None:
    trained = train(run)
    code, out, _ = run("train", "--resume", trained["id"], "--json")
    assert code == 0
    assert json.loads(out)["result"] == trained["result"]


MISTAKES = {
    "unknown command": (["tran"], "no command 'tran': did you mean 'train'"),
    "unknown world": (["train", "spirtes"], "did you mean 'sprites'"),
    "missing file": (["train", "nothing.npz"], "there is no file nothing.npz"),
    "no world": (["train"], "which world?"),
    "pairs of nothing": (["train", "pairs"], "world 'pairs' is a view of another world: name it with --world.of"),
    "pairs of pairs of nothing": (["transitions", "pairs", "--world.of", "pairs"], "name it with --world.of.of"),
    "file without a path": (["train", "file"], "world 'file' needs path, which is not given"),
    "unknown objective": (["train", "sprites", "--objective", "betavae"], "did you mean 'beta-vae'"),
    "unknown architecture": (["train", "sprites", "--model.architecture", "cov"], "did you mean 'conv'"),
    "unknown flag": (["train", "sprites", "--training.stepz", "3"], "Did you mean --training.steps?"),
    "no number": (["train", "sprites", "--training.steps", "many"], "needs a whole number, got 'many'"),
    "negative beta": (["train", "sprites", "--objective", "beta-vae", "--objective.beta", "-1"], "beta is -1"),
    "latent size 0": (["train", "sprites", "--model.latents", "0"], "latent size is 0"),
    "points for conv": (["train", "gaussian"], "conv architecture needs images (channels, height, width)"),
    "unknown run": (["examine", "nothing"], "there is no run 'nothing'"),
    "a class as a number": (["train", "mini-sprites", "--objective", "regress"], "regress predicts numbers"),
    "nothing to examine": (["examine"], "which model?"),
    "no data": (["examine", "mine.py:Model"], "which data?"),
    "bad sql": (["runs", "--where", "nonsense = 1"], "the query failed"),
    "no config": (["train", "--config", "none.toml"], "there is no configuration file none.toml"),
    "unknown study": (["reproduce", "nothing"], "there is no study 'nothing'"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence_and_exit_code_2(run, mistake) -> None:
    words, sentence = MISTAKES[mistake]
    if mistake == "bad sql":
        train(run)
    code, _, err = run(*words)
    assert code == 2
    assert sentence in err
    assert err.startswith("error: ")
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "write", "sentence"),
    [
        ("nan.npy", lambda p: np.save(p, np.full((4, 8, 8), np.nan)), "NaN or infinite"),
        ("empty.npy", lambda p: np.save(p, np.zeros((0, 8, 8), np.uint8)), "empty"),
        ("cube.npy", lambda p: np.save(p, np.zeros((2, 2, 8, 8, 8), np.uint8)), "observations need shape"),
        ("text.npz", lambda p: p.write_text("hello"), "text.npz"),
    ],
)
def test_bad_files_are_one_sentence_and_exit_code_2(run, tmp_path, name, write, sentence) -> None:
    write(tmp_path / name)
    code, _, err = run("train", name, *QUICK)
    assert code == 2
    assert sentence in err
    assert len(err.strip().splitlines()) == 1


def test_corrupt_runs_are_one_sentence_and_exit_code_2(run, tmp_path) -> None:
    trained = train(run)
    path = Path(trained["path"])
    checkpoint = (path / "checkpoint.safetensors").read_bytes()
    (path / "checkpoint.safetensors").write_bytes(checkpoint[:200])
    code, _, err = run("examine", trained["id"])
    assert (code, "damaged" in err) == (2, True)
    (path / "run.json").write_text("{")
    code, _, err = run("examine", trained["id"])
    assert (code, "damaged" in err) == (2, True)
    code, _, err = run("runs")
    assert code == 0
    assert "skipped: the run folder" in err
    assert path.exists()


def test_an_unwritable_folder_is_one_sentence_and_exit_code_2(run, tmp_path) -> None:
    (tmp_path / "file").write_text("in the way")
    code, _, err = run("train", "sprites", *SMALL, "--runs", "file/runs")
    assert code == 2
    assert "cannot write to the run folder" in err


def test_a_toml_file_with_an_unknown_key_names_the_nearest(run, tmp_path) -> None:
    (tmp_path / "bad.toml").write_text('[world]\nname = "sprites"\n[training]\nlerning_rate = 1\n')
    code, _, err = run("train", "--config", "bad.toml")
    assert code == 2
    assert "did you mean 'learning_rate'" in err
    (tmp_path / "worse.toml").write_text("[world")
    assert "not valid TOML" in run("train", "--config", "worse.toml")[2]


def test_divergence_has_its_own_exit_code(run) -> None:
    code, _, err = run("train", "sprites", *SMALL, "--training.learning-rate", "1e30", "--training.steps", "30")
    assert code == 3
    assert "training diverged at step" in err
