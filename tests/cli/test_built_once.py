"""One path from a configuration to a run: a command builds the configuration and the network once."""

import json
from collections import Counter

import pytest

from polariscope.lab import Store
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.nets.predictors import LeNet
from polariscope.training.config import RunConfig

CLASSIFIER = ["task", "--world.of", "digits", "--world.of.count", "300", "--world.of.size", "14"]
CLASSIFIER += [
    "--world.form",
    "parity",
    "--split.share",
    "0.5",
    "--objective",
    "classify",
    "--model",
    "lenet",
    "--training.steps",
    "4",
    "--training.batch-size",
    "8",
]


@pytest.fixture
def built(monkeypatch) -> Counter:
    """Counts what is built from here on, by kind."""
    counts: Counter[str] = Counter()
    parse = RunConfig.build.__func__  # type: ignore[attr-defined]

    def configuration(cls, *given):
        counts["configurations"] += 1
        return parse(cls, *given)

    monkeypatch.setattr(RunConfig, "build", classmethod(configuration))
    for model in (AutoencoderConfig, LeNet):

        def network(self, brief, build=model.build):
            counts["networks"] += 1
            return build(self, brief)

        monkeypatch.setattr(model, "build", network)
    return counts


def test_a_training_builds_once(run, small, built) -> None:
    code, out, err = run("train", "sprites", *small)
    assert code == 0, err
    assert "next: polariscope examine" in out, "which asks the network what it can do"
    assert built == {"configurations": 1, "networks": 1}


def test_resuming_builds_once(run, trained, built) -> None:
    name = trained().id
    built.clear()
    code, _, err = run("train", "--resume", name, "--training.steps", "9")
    assert code == 0, err
    assert built == {"configurations": 2, "networks": 1}, "the number of steps has changed, so it is another one"


def test_examining_a_run_builds_once(run, trained, built) -> None:
    name = trained().id
    built.clear()
    code, _, err = run("examine", name, "--count", "50", "--measures", "")
    assert code == 0, err
    assert built == {"configurations": 1, "networks": 1}


def test_comparing_builds_the_untrained_model_besides(run, trained, built) -> None:
    names = [trained("--training.seed", seed).id for seed in ("0", "1")]
    built.clear()
    code, _, err = run("compare", *names, "--count", "50")
    assert code == 0, err
    assert built == {"configurations": 2, "networks": 3}


@pytest.mark.parametrize(("command", "networks"), [("corruptions", 1), ("kernel", 2)])
def test_examinations_of_a_classifier_build_once(run, tmp_path, monkeypatch, built, command, networks) -> None:
    """The diagnosis of kernels is of two networks: that before training, and that after it."""
    monkeypatch.setattr("polariscope.findings.save", lambda *_, **__: tmp_path / "report.html")
    code, out, err = run("train", *CLASSIFIER, "--json")
    assert code == 0, err
    name = json.loads(out)["id"]
    built.clear()
    few = ["--severities", "1", "--kinds", "contrast"] if command == "corruptions" else ["--test", "15"]
    code, _, err = run(command, name, "--count", "60" if command == "kernel" else "15", *few)
    assert code == 0, err
    assert built == {"configurations": 1, "networks": networks}


def test_a_run_carries_its_configuration_until_it_changes(trained, tmp_path) -> None:
    from polariscope.training.run import config_of, extend, network_of

    run = trained()
    config, network = config_of(run), network_of(run)
    run.update(result={"seen": 1})
    assert config_of(run) is config
    assert network_of(run) is network
    assert config_of(Store(tmp_path / "runs").open(run.id)) == config, "another who opened it builds an equal one"
    extend(run, 9)
    assert config_of(run).training.steps == 9
    assert network_of(run) is not network
