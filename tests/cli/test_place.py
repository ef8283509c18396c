"""Where jobs run: the flags that commands with many jobs share."""

import sys

import pytest

from polariscope.lab import executors

STUDY = """
title = "Tiny runs"
[base.world]
name = "squares"
size = 8
[base.training]
steps = 2
[grid]
seeds = 2
"""


@pytest.mark.parametrize(
    "words",
    [
        ["train", "squares", "--training.steps", "2"],
        ["study", "mine.toml"],
        ["sweep", "mine.toml"],
        ["reproduce", "linear-vae", "--scale", "smoke"],
        ["generalise", "cnn", "--data", "squares", "--steps", "2"],
    ],
    ids=lambda words: words[0],
)
def test_without_ray_nothing_is_written(words, run, tmp_path, monkeypatch) -> None:
    (tmp_path / "mine.toml").write_text(STUDY)
    monkeypatch.setitem(sys.modules, "ray", None)
    code, _, err = run(*words, "--executor", "ray")
    assert (code, err) == (2, "error: --executor ray needs Ray: pip install 'polariscope[cluster]'\n")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]


def test_an_executor_of_a_plug_in_may_have_no_check(run, monkeypatch) -> None:
    class Nowhere:
        def __init__(self, place) -> None:
            raise ValueError("there is no room anywhere")

    monkeypatch.setitem(executors.executors._entries, "nowhere", Nowhere)
    code, _, err = run("train", "squares", "--training.steps", "2", "--executor", "nowhere")
    assert (code, err.splitlines()[-1]) == (2, "error: there is no room anywhere")
