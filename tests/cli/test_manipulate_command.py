"""``polariscope manipulate`` from the command line to a world that trains."""

import json
from pathlib import Path

import pytest

from polariscope.cli import main

SMALL = [
    "--model.architecture",
    "mlp",
    "--model.architecture.encoder-widths",
    "8",
    "--model.architecture.decoder-widths",
    "8",
]
SMALL += ["--model.latents", "2", "--training.steps", "6", "--training.batch-size", "16"]
LEARNED = ["manipulate", "plane", "--kind", "learned", "--world.count", "300", "--model.likelihood", "gaussian", *SMALL]
LEARNED += ["--objective", "beta-vae", "--restarts", "2", "--steps", "3", "--epsilon", "0.3"]


@pytest.mark.spec("003/F3-100")
def test_the_world_it_writes_trains_like_any_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "local"
    words = ["manipulate", "mini-sprites", "--kind", "local", "--epsilon", "0.1", "--out", str(out)]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "largest change 0.09804 (bound 0.1)" in printed
    assert "became equal" not in printed
    answer = json.loads((out / "findings.json").read_text())
    assert answer["injective"]
    assert answer["kept"][-2]["before"] == answer["structure"]["before"]["local_angle"]
    assert "largest change 0.09804 (bound 0.1)" in (out / "report.html").read_text()
    assert f"next: polariscope train {out / 'world.npz'}" in printed
    assert (out / "triptych.png").read_bytes().startswith(b"\x89PNG")
    assert not (out / "manipulator.safetensors").exists()
    runs = ["--runs", str(tmp_path / "runs"), "--json"]
    assert main(["train", "--world", str(out / "world.npz"), *SMALL, *runs]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "done"


@pytest.mark.usefixtures("undrawn")
def test_noise_of_a_part_of_the_world_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "manipulate",
        "sprites",
        "--kind",
        "noise",
        "--world.size",
        "16",
        "--count",
        "500",
        "--seed",
        "3",
        "--json",
    ]
    assert main([*words, "--out", str(tmp_path / "noise")]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["observations"], result["shape"], result["kind"], result["seed"]) == (500, [1, 16, 16], "noise", 3)
    assert result["max_norm"] <= 0.1
    assert result["mean_square"] == pytest.approx(256 * 0.1**2 / 3, rel=0.05)
    assert Path(result["world"]).exists()


@pytest.mark.spec("003/F3-058", "003/F3-100")
@pytest.mark.usefixtures("undrawn")
def test_learned_between_restarts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*LEARNED, "--out", str(tmp_path / "learned")]) == 0
    captured = capsys.readouterr()
    assert "restart 1 of 2: step 6 of 6" in captured.err
    assert "manipulation: step 3 of 3" in captured.err
    printed = " ".join(captured.out.split())
    assert "Reconstruction loss in the last tenth of the training of the change: entangled" in printed
    report = json.loads((tmp_path / "learned" / "report.json").read_text())
    assert sorted(report["disentangled"] + report["entangled"]) == [0, 1]
    assert (tmp_path / "learned" / "manipulator.safetensors").exists()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["manipulate"], "which world?"),
        (["manipulate", "plain"], "did you mean 'plane'?"),
        (["manipulate", "plane", "--kind", "locale"], "did you mean 'local'?"),
        (["manipulate", "plane", "--epsilon", "-1"], "epsilon is -1.0"),
        (["manipulate", "mini-sprites", "--epsilon", "2"], "share of the grey range"),
        (["manipulate", "plane", "--factors", "w_9"], "no factor 'w_9'"),
        (["manipulate", "plane", "--kind", "noise", "--frequency", "2"], "--frequency"),
        (["manipulate", "plane", "--count", "1"], "at least 2 observations"),
        ([*LEARNED, "--pairs", "2"], "at least 4 restarts"),
        ([*LEARNED, "--score", "migg"], "did you mean 'mig'?"),
    ],
)
def test_bad_words_are_one_sentence(
    words: list[str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    error = capsys.readouterr().err
    assert problem in error
    assert error.count("error:") == 1
    assert not list(tmp_path.iterdir())


def test_a_full_folder_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    assert main(["manipulate", "plane", "--out", str(tmp_path)]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]
