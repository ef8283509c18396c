"""Names, nearest names, and the round trip from objects to plain dictionaries."""

import importlib
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from polariscope import registry
from polariscope.nets.architecture import MLP
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.objectives import objectives
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.objectives.dip_vae import DIPVAE
from polariscope.registry import Place, Registry, from_plain, places
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
    things: Registry = Registry("thing")

    @things.register("a")
    @dataclass(frozen=True)
    class First:
        pass

    with pytest.raises(ValueError, match="two things are called 'a'"):

        @things.register("a")
        @dataclass(frozen=True)
        class Second:
            pass


def test_missing_fields_are_said() -> None:
    @dataclass(frozen=True)
    class Needs:
        size: int

    with pytest.raises(ValueError, match="thing needs size, which is not given"):
        from_plain(Needs, {}, "thing")


def test_a_name_that_is_taken_is_refused_where_a_stranger_registers_it(monkeypatch) -> None:
    """Not later, when our own module is imported and its name is taken."""
    monkeypatch.setattr(registry, "places", lambda: {"things": [Place("a", "polariscope.rooms.own", "")]})
    things: Registry = Registry("thing")
    with pytest.raises(ValueError, match="two things are called 'a': polariscope.rooms.own and "):
        things.register("a")(type("Stranger", (), {}))


def test_two_places_in_the_source_with_one_name_are_refused(monkeypatch) -> None:
    both = [Place("a", "polariscope.one", ""), Place("a", "polariscope.two", "")]
    monkeypatch.setattr(registry, "places", lambda: {"things": both})
    with pytest.raises(ValueError, match="two things are called 'a': polariscope.one and polariscope.two"):
        Registry("thing").names()


def test_registries_find_entries_in_every_room() -> None:
    """Every decorator in the source is found by its text, and what is found there is what the module registers."""
    decorators = re.compile(r"^ *@(\w+)\.register\(", re.MULTILINE)
    root = Path(registry.__file__).parent
    written = Counter(name for file in root.rglob("*.py") for name in decorators.findall(file.read_text("utf-8")))
    assert {name: len(result) for name, result in places().items()} == written
    for plural, result in places().items():
        for place in result:
            one = getattr(importlib.import_module(place.module), plural)
            assert one.plural == plural
            assert one.get(place.name).__module__ == place.module
    rooms = {place.module.split(".")[1] for place in places()["worlds"]}
    assert {"worlds", "manipulation"} <= rooms


def test_looking_up_one_name_imports_one_module() -> None:
    script = (
        "import sys; from polariscope.worlds.world import worlds; worlds.get('squares'); "
        "print(len(worlds.names()) > 20, 'polariscope.worlds.renderers.sprites' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert shown == "True False\n"


def test_entries_that_were_put_back_after_an_import_are_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As tests and plug-in loaders do: the module has registered, the entries are those of before."""
    names = worlds.names()
    before = {name: Place(name, worlds.get(name).__module__) for name in names}
    monkeypatch.setattr(worlds, "_entries", before)
    assert worlds.get("squares").__name__ == "Squares"
