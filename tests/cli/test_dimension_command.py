"""``polariscope dimension`` from the command line to the run folder."""

import json
from pathlib import Path

import pytest

from polariscope.cli import main
from polariscope.dimension import Watch, find_dimension
from polariscope.lab.store import Store
from polariscope.training import RunConfig

LINEAR = [
    *(
        "dimension",
        "gaussian",
        "--model.architecture",
        "linear",
        "--model.likelihood",
        "gaussian",
        "--model.variance",
        "0.5",
    ),
    *("--model.posterior", "constant", "--training.learning-rate", "0.08", "--training.schedule", "linear"),
    *("--training.batch-size", "512", "--world.count", "3000", "--examples", "1500"),
]


@pytest.mark.spec("002/D06", "002/X05")
def test_it_prints_the_search_and_keeps_figure_and_readings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*LINEAR, "--first", "4", "--budget", "150", "--training.steps", "400", "--runs", str(tmp_path)]
    assert main(words) == 0
    out = capsys.readouterr().out
    visits = [line.split()[2] for line in out.splitlines() if line.startswith("  n = ")]
    assert visits == ["4", "2", "3", "4", "2", "3"]  # at 150 and at 300 steps
    assert "too many" in out
    assert "guard: passed, and the answer no longer changes" in out
    assert "answer for seed 0: 3 latent variables" in out
    assert any(line.split()[:5] == ["FONDUE", "gaussian", "3", "(one", "run)"] for line in out.splitlines())
    (run,) = Store(tmp_path).runs()
    assert (run.status, run.record["kind"], run.result) == ("done", "dimension", {"dimension": 3.0, "models": 6})
    folder = run.path / "findings" / "dimension"
    assert "<svg" in (folder / "dimension.svg").read_text()
    assert f"report: {folder / 'report.html'}" in out
    record = json.loads((folder / "findings.json").read_text())
    assert record["settings"]["dimension"]["budget"] == 150
    assert [search["visited"] for search in record["searches"]] == [[4, 2, 3], [4, 2, 3]]
    assert [search["steps"] for search in record["searches"]] == [150, 300]


@pytest.mark.usefixtures("undrawn")
def test_json_with_seeds_and_a_start_from_the_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*LINEAR, "--budget", "20", "--once", "--seeds", "2", "--cap", "6", "--json", "--runs", str(tmp_path)]
    assert main([*words, "--statistic", "types"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["start"] == 5  # the spectrum's weakest direction hardly counts
    assert [search["visited"] for search in result["searches"]] == [[6], [6]]
    assert [search["readings"][0]["seed"] for search in result["searches"]] == [0, 1]
    assert result["table"][0]["algorithm"] == "type count"
    assert Path(result["report"]).exists()
    config = RunConfig.build({key: value for key, value in Store(tmp_path).open(result["run"]).config.items()
                              if key != "dimension"})  # fmt: skip
    heard = []
    watch = Watch()
    watch.answer = lambda seed, answer: heard.append((seed, answer.answer))
    asked = {"budget": 20, "once": True, "seeds": 2, "cap": 6, "examples": 1500, "statistic": "types", "watch": watch}
    same = find_dimension(config, **asked)
    assert [answer for _, answer in heard] == result["answers"], "in Python, too"
    assert same.findings().json()["searches"][0]["visited"] == (6,)
    with pytest.raises(ValueError, match="no statistic 'typs': did you mean 'types'"):
        find_dimension(config, statistic="typs")


@pytest.mark.spec("002/D08")
@pytest.mark.usefixtures("undrawn")
def test_an_untrained_answer_is_not_trusted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["dimension", "sprites", "--model.architecture", "mlp", "--model.architecture.encoder-widths", "8"]
    words += ["--model.architecture.decoder-widths", "8", "--world.size", "16", "--examples", "500", "--first", "2"]
    assert main([*words, "--budget", "5", "--training.steps", "10", "--cap", "4", "--runs", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "still collapsed" in out
    assert "guard: NOT trusted" in out
    assert "answer for seed 0: none that can be trusted" in out
    assert "No trusted number: " in out
    (run,) = Store(tmp_path).runs()
    assert run.result["dimension"] is None, "what is not trusted is not recorded as a result"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["dimension"], "which world?"),
        (["dimension", "gausian"], "did you mean 'gaussian'?"),
        ([*LINEAR, "--first", "0"], "--first is 0"),
        ([*LINEAR, "--first", "300"], "between 0 and its cap of 200"),
        ([*LINEAR, "--seeds", "0"], "--seeds is 0"),
        ([*LINEAR, "--statistic", "types", "--threshold", "1"], "has no threshold"),
        ([*LINEAR, "--statistic", "trails"], "trails"),
        ([*LINEAR, "--objective", "ae", "--model.posterior", "auto", "--first", "1", "--budget", "1"], "variational"),
    ],
)
def test_bad_words_are_one_sentence(
    words: list[str], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--runs", str(tmp_path)] if len(words) > 2 else words) == 2
    error = capsys.readouterr().err
    assert problem in error
    assert error.count("error:") == 1
    assert not list(tmp_path.iterdir())
