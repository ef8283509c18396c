"""Things that hold registered things: the same in Python, TOML, JSON and flags."""

import pytest

from polariscope.cli.configuration import parse_run
from polariscope.nets.architecture import MLP
from polariscope.nets.predictors import Encoder
from polariscope.objectives.predict import Regress
from polariscope.training import RunConfig
from polariscope.worlds.renderers.mini_sprites import MiniSprites
from polariscope.worlds.splits import Extrapolation, RandomSplit, SplitPart
from polariscope.worlds.targets import Task

PYTHON = RunConfig(
    Task(SplitPart(MiniSprites(positions=5), RandomSplit(0.25), "train"), "x", "values"),
    Regress(),
    Encoder(MLP(encoder_widths=(8,))),
    split=Extrapolation({"x": (3, 4)}),
)
TOML = """
[world]
name = "task"
factor = "x"
form = "values"
[world.of]
name = "part"
side = "train"
of = { name = "mini-sprites", positions = 5 }
split = { name = "random", share = 0.25 }
[split]
name = "extrapolation"
values = { x = [3, 4] }
[objective]
name = "regress"
[model]
name = "encoder"
architecture = { name = "mlp", encoder_widths = [8] }
"""
FLAGS = """task --world.factor x --world.form values --world.of part --world.of.side train
    --world.of.of mini-sprites --world.of.of.positions 5 --world.of.split random --world.of.split.share 0.25
    --objective regress --model.architecture mlp --model.architecture.encoder-widths 8
    --split extrapolation"""


def test_flags_toml_and_json_build_what_python_does(tmp_path) -> None:
    (tmp_path / "run.toml").write_text(TOML)
    from_file, _ = parse_run(["--config", str(tmp_path / "run.toml")], "train", [])
    assert from_file == PYTHON
    assert RunConfig.build(PYTHON.describe()) == PYTHON


def test_flags_choose_at_every_level() -> None:
    config, _ = parse_run(FLAGS.split(), "train", [])
    assert config.world == PYTHON.world
    assert config.model == PYTHON.model
    assert config.objective == PYTHON.objective
    assert config.split == Extrapolation()


def test_a_flag_has_the_last_word_over_a_file(tmp_path) -> None:
    (tmp_path / "run.toml").write_text(TOML)
    words = ["--config", str(tmp_path / "run.toml"), "--world.of.of.positions", "6", "--split", "random"]
    config, _ = parse_run(words, "train", [])
    assert config.world.of.of.positions == 6
    assert config.world.of.side == "train", "settings of the file stay"
    assert config.split == RandomSplit()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["task", "--world.of", "sprits"], "did you mean 'sprites'"),
        (["task"], "of"),
        (["sprites", "--model", "lenett"], "did you mean 'lenet'"),
        (["sprites", "--split", "extrapolate"], "did you mean 'extrapolation'"),
        (["sprites", "--objective", "vae", "--model", "encoder"], "nothing to predict"),
    ],
)
def test_a_wrong_name_is_one_sentence(words, sentence) -> None:
    from polariscope.training.run import build_model

    with pytest.raises(ValueError, match=sentence):
        build_model(parse_run(words, "train", [])[0])
