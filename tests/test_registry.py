"""Names, nearest names, and the round trip from objects to plain dictionaries."""

import importlib
from dataclasses import dataclass

import pytest

from polariscope.nets.architecture import MLP
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.objectives import objectives
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.objectives.dip_vae import DIPVAE
from polariscope.registry import Registry, from_plain
from polariscope.training import RunConfig, TrainingConfig
from polariscope.worlds import worlds
from polariscope.worlds.points.synthetic import Gaussian
from polariscope.worlds.splits import RandomSplit


def test_unknown_names_offer_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"no world 'spirtes': did you mean 'sprites'\?"):
        worlds.get("spirtes")
    with pytest.raises(ValueError, match="no objective 'betavae'.*'beta-vae'"):
        objectives.get("betavae")


def test_names_match_patterns() -> None:
    assert {"beta-vae", "beta-tc-vae"} <= set(objectives.names("beta*"))


def test_a_thing_comes_back_from_its_description() -> None:
    for thing in (BetaVAE(beta=2.5), DIPVAE(kind="I", diagonal=3.0)):
        assert objectives.build(objectives.describe(thing)) == thing


def test_a_whole_configuration_comes_back() -> None:
    config = RunConfig(
        Gaussian(spectrum=(2.0, 1.0)),
        BetaVAE(beta=0.5),
        AutoencoderConfig(latents=3, architecture=MLP(encoder_widths=(8,), decoder_widths=()), likelihood="gaussian"),
        TrainingConfig(steps=7),
        RandomSplit(0.0),
    )
    assert RunConfig.build(config.describe()) == config


@pytest.mark.parametrize(
    ("description", "sentence"),
    [
        ({"world": {"name": "gaussian"}, "training": []}, r"section \[training\] needs settings by name; got \[\]"),
        ({"world": {"name": "gaussian"}, "objetive": {}}, "no section 'objetive': did you mean 'objective'"),
        ({"world": {"name": "sprites", "sise": 32}}, "world 'sprites' has no setting 'sise': did you mean 'size'"),
        ({"world": {"name": "sprites"}, "training": {"stepz": 3}}, "no setting 'stepz': did you mean 'steps'"),
        ({"world": {"name": "sprites"}, "training": {"steps": "many"}}, "steps needs int, got 'many'"),
        ({"world": {"name": "sprites"}, "training": {"steps": True}}, "steps needs int, got True"),
        ({"world": {"name": "sprites"}, "training": {"optimiser": "adm"}}, "did you mean 'adam'"),
        ({"world": {"name": "sprites"}, "model": {"latents": 0}}, "latent size is 0"),
        ({"world": {"name": "sprites"}, "objective": {"name": "beta-vae", "beta": -1}}, "beta is -1"),
        ({"world": {"name": "sprites"}, "model": {"architecture": {"name": "mlp", "encoder_widths": 5}}}, "a list"),
        ({"objective": {"name": "vae"}}, r"needs a \[world\] section"),
        ({"world": {}}, "needs a name"),
    ],
)
def test_bad_configurations_are_refused_in_a_sentence(description: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        RunConfig.build(description)


def test_integers_serve_as_floats() -> None:
    assert objectives.build({"name": "beta-vae", "beta": 2}) == BetaVAE(beta=2.0)


def test_two_things_of_one_name_are_refused() -> None:
    registry: Registry = Registry("thing", "polariscope.objectives")

    @registry.register("a")
    @dataclass(frozen=True)
    class First:
        pass

    with pytest.raises(ValueError, match="two things are called 'a'"):

        @registry.register("a")
        @dataclass(frozen=True)
        class Second:
            pass


def test_missing_fields_are_said() -> None:
    @dataclass(frozen=True)
    class Needs:
        size: int

    with pytest.raises(ValueError, match="thing needs size, which is not given"):
        from_plain(Needs, {}, "thing")


def test_a_name_that_is_taken_is_refused_where_a_stranger_registers_it(tmp_path, monkeypatch) -> None:
    """Not later, when the rooms are first looked through and our own module is in the way."""
    room = tmp_path / "room_of_things"
    room.mkdir()
    (room / "__init__.py").write_text(
        "from polariscope.registry import Registry\nthings = Registry('thing', 'room_of_things')\n"
    )
    (room / "own.py").write_text("from room_of_things import things\n@things.register('a')\nclass Own: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    things = importlib.import_module("room_of_things").things
    with pytest.raises(ValueError, match="two things are called 'a': room_of_things.own and "):
        things.register("a")(type("Stranger", (), {}))
