"""Help is for people who use a thing: plain words, no markup, no examples for Python, and every name there is."""

import ast
import dataclasses
import inspect
import itertools
import re
import textwrap

import pytest

from polariscope.cli import commands, main
from polariscope.cli.configuration import CHOSEN, _as_flags, meant
from polariscope.cli.parsing import plain_words, wrapped
from polariscope.cli.worlds import describe
from polariscope.nets.architecture import Architecture
from polariscope.nets.model import models
from polariscope.objectives.objective import objectives
from polariscope.registry import registry_of
from polariscope.training.config import Start, TrainingConfig
from polariscope.worlds.splits import splits
from polariscope.worlds.world import worlds

REGISTRIES = [worlds, objectives, models, splits, registry_of(Architecture)]
MARKUP = re.compile(r"``|:\w+:`|>>>|\b[Ss]pec \d|\*\*\w")
"""Of reStructuredText, doctests and references to the specification."""


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def helped(capsys, *words: str) -> str:
    with pytest.raises(SystemExit) as stop:
        main([*words, "--help"])
    assert stop.value.code in (0, None)
    return capsys.readouterr().out


@pytest.mark.parametrize("command", [[name] for name in commands.names()] + [["worlds", "show"]], ids=" ".join)
def test_every_command_tells_its_options_without_markup(command, capsys) -> None:
    text = helped(capsys, *command)
    assert text.startswith(f"usage: polariscope {' '.join(command)}")
    assert "--json" in text
    assert not MARKUP.search(text), MARKUP.search(text)
    assert max(len(line) for line in text.splitlines()) <= 80


@pytest.mark.parametrize(
    ("command", "does"),
    [
        ("train", "Trains a model on a world"),
        ("dimension", "Finds how many latent variables"),
        ("manipulate --kind learned", "Changes the observations"),
        ("sweep", "--grid objective.beta=1,4,16 names a setting"),
    ],
)
def test_commands_with_the_options_of_a_training_say_what_they_do(command, does, capsys) -> None:
    assert does in " ".join(helped(capsys, *command.split()).split())


def test_train_names_every_world_objective_model_and_split(capsys) -> None:
    lines = helped(capsys, "train").splitlines()
    for section, registry in CHOSEN.items():
        heading = next(i for i, line in enumerate(lines) if line.startswith(f"{registry.kind}s ("))
        block = list(itertools.takewhile(str.strip, lines[heading + 1 :]))
        if section == "world":
            assert "".join(block).replace(" ", "").split(",") == registry.names()
        else:
            answer = dict(line.split(maxsplit=1) for line in block if not line.startswith("  ("))
            assert list(answer) == registry.names()
            assert min(map(len, answer.values())) > 10


def about_settings(kind: type) -> list[str]:
    """What stands below the fields of a dataclass in its source: the help of its flags."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0].body
    return [
        after.value.value
        for field, after in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(after, ast.Expr)
        and isinstance(after.value, ast.Constant)
        and isinstance(after.value.value, str)
    ]


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.kind)
def test_everything_that_can_be_chosen_is_told_without_markup(registry) -> None:
    """A thing by its docstring, and its settings by theirs, as the help of train shows them when it is chosen."""
    for name in registry.names():
        kind = registry.get(name)
        settings = [f.name for f in dataclasses.fields(kind) if f.init]
        bases = [base for base in kind.__mro__ if dataclasses.is_dataclass(base)]
        for words in (plain_words(kind.__doc__, settings), *(w for base in bases for w in about_settings(base))):
            assert not MARKUP.search(words), (name, words)


def test_a_chosen_thing_is_told_in_the_help_of_train(capsys) -> None:
    text = helped(capsys, "train", "squares", "--objective", "slow-vae", "--model", "digit-net", "--split", "group")
    for shown in ("Anti-aliased squares in 8 sizes", "--objective.gamma", "--model.channels", "--split.factor"):
        assert shown in text
    assert not MARKUP.search(text)


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.kind)
def test_a_line_about_each_thing_is_plain_words(registry) -> None:
    for name in registry.names():
        words = plain_words(registry.get(name).__doc__)
        assert words
        assert not MARKUP.search(words)
        assert "`" not in words
        assert "  " not in words
        assert not re.search(r"\(\s*\)|[,;]\s*(\.(?!\.)|\))|\s\.$", words), words
    assert describe("blobs")["about"].endswith("over unequal ranges.")


def test_markup_examples_and_references_are_left_out() -> None:
    doc = """Bars of ``count`` :class:`~polariscope.worlds.world.World` (Klindt et al. 2021; Spec 001a, section 8.5).

    How it is done, Spec 002, sections 1.2 and 3.

    ``count`` is **how many**; Spec 003, section 5.5.

    >>> Bars(count=3)
    """
    assert plain_words(doc) == "Bars of count World."
    assert plain_words(doc, ["count"]) == "Bars of count World.\n\ncount is how many."
    assert plain_words(None) == ""


def test_prose_is_broken_between_words_and_boxes_are_not() -> None:
    prose, box = "word " * 30, "│" + "x" * 100 + "│"
    assert wrapped(f"{prose}\n{box}").splitlines()[-1] == box
    assert all(len(line) <= 80 for line in wrapped(prose).splitlines())
    assert wrapped(prose).split() == prose.split()


def test_what_was_turned_into_flags_is_itself_again() -> None:
    for thing in (TrainingConfig(steps=3), Start(freeze=("a",)), worlds.build("mini-sprites"), objectives.build("vae")):
        kind, value = _as_flags(thing)
        assert kind is not type(thing)
        assert meant(value) == thing
        assert type(meant(value)) is type(thing)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("train sprites --training.steps x", "--training.steps needs a whole number, got 'x' ('"),
        ("manipulate plane --epsilon x", "--epsilon needs a number, got 'x' ('"),
        ("train sprites --training.steps", "--training.steps needs a value ('"),
        ("train sprites --training.steps -3", "training steps is -3: it needs to be at least 1 ('"),
        ("train sprites --world.variant blue", "--world.variant is 'blue': it needs to be one of 'plain', 'colour',"),
        ("train sprites --objective.beta 3", "this objective has no setting beta: --objective NAME chooses another"),
        ("train sprites digits", "'digits' is one argument too many. ('"),
        ("train sprites --trainig.steps 3", "there is no option --trainig.steps. Did you mean --training.steps?"),
        ("worlds sprites", "'polariscope worlds show NAME' draws one: got 'sprites'"),
    ],
)
def test_a_mistake_is_told_in_a_sentence_that_says_what_to_do(words, sentence, capsys) -> None:
    assert main(words.split()) == 2
    answer = capsys.readouterr().err
    assert sentence in answer
    assert answer.startswith("error: ")
    assert answer.count("\n") == 1
