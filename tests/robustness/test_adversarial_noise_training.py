"""Adversarial noise training: who gets which noise, who learns when, and what of it comes back after a stop."""

import itertools
import os
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from polariscope.cli import main
from polariscope.lab import Store
from polariscope.nets.model import Brief
from polariscope.nets.predictors import LeNet
from polariscope.objectives.objective import Batch, Terms
from polariscope.objectives.predict import Classify
from polariscope.robustness.adversarial_noise_training import AdversarialNoiseTraining, usual_norm
from polariscope.training import RunConfig, TrainingConfig, resume, train
from polariscope.training import checkpoint as checkpoints
from polariscope.training.loop import Listeners, build_state, fit, rate_factor
from polariscope.training.run import brief_of, build_model
from polariscope.training.start import warm
from polariscope.worlds.renderers.mini_sprites import MiniSprites
from polariscope.worlds.targets import Examples

BRIEF = Brief((1, 8, 8), 2)

EARLY = {"alone": 2, "refresh": 3, "depth": 2}
"""A schedule that is seen in a few steps: alone at 0, 1, 5, 6, 10, 11, ..., anew at 5, 10, ..."""


class Looking(nn.Module):
    """A classifier into two by brightness that keeps what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen = x.detach()
        return self.weight * 20 * (x.flatten(1).mean(1) - 0.55)


def grey(count: int) -> Batch:
    return Batch(torch.full((count, 1, 8, 8), 0.4), count, target=torch.zeros(count, 1), classes=(2,))


def played(objective: AdversarialNoiseTraining, step: int, network: Looking) -> Terms:
    """A step of 70 images in which the current generator darkens, and earlier ones brighten."""
    torch.manual_seed(0)
    adversary = objective.players(network, BRIEF)["generator"].module
    for layer in adversary.current.layers:
        layer.weight.data.zero_()
    adversary.current.layers[-1].bias.data.fill_(50.0)
    adversary.memory[:] = adversary.current.in_a_row()
    adversary.current.layers[-1].bias.data.fill_(-50.0)
    return objective(network, grey(70), step, adversary)


def shifts(objective: AdversarialNoiseTraining, step: int) -> tuple[list[float], list[float]]:
    """Mean and norm of the change of each of the images."""
    network = Looking()
    played(objective, step, network)
    change = (network.seen - 0.4).flatten(1)
    return change.mean(1).tolist(), change.norm(dim=1).tolist()


@pytest.mark.spec("001b/A-12")
def test_half_clean_thirty_percent_current_twenty_percent_earlier() -> None:
    objective = AdversarialNoiseTraining(norm=1.6, alone=0, refresh=10)
    means, norms = shifts(objective, 13)
    assert np.sign(np.round(means, 3)).tolist() == [0] * 35 + [-1] * 21 + [1] * 14
    assert norms == pytest.approx([0] * 35 + [1.6] * 35, abs=1e-5)
    means, _ = shifts(objective, 3)
    assert np.sign(np.round(means, 3)).tolist() == [0] * 35 + [-1] * 35, "nothing is remembered yet"
    means, _ = shifts(replace(objective, replay=False), 13)
    assert np.sign(np.round(means, 3)).tolist() == [0] * 35 + [-1] * 35, "or is not to be"
    means, _ = shifts(replace(objective, alone=10), 25)
    assert np.sign(np.round(means, 3)).tolist() == [-1] * 70, "alone, the generator has the whole batch"


def test_each_side_has_the_loss_of_what_it_is_answerable_for() -> None:
    """The classifier's is that of the whole batch, the generator's that of its own noise, here far in the dark."""
    objective = AdversarialNoiseTraining(norm=1.6, alone=0, refresh=10)
    terms = played(objective, 13, Looking())
    clean, dark, light = nn.functional.softplus(20 * (torch.tensor([0.4, 0.2, 0.6]) - 0.55)).tolist()
    assert terms.players["generator"].item() == pytest.approx(-dark, rel=1e-3)
    assert terms.loss.item() == pytest.approx(0.5 * clean + 0.3 * dark + 0.2 * light, rel=1e-3)
    assert terms.parts["error"].item() == pytest.approx(0.2)


def test_the_usual_norm_is_that_of_noise_of_one_half() -> None:
    assert usual_norm(784) == pytest.approx(9.732, abs=1e-3)
    assert usual_norm(3 * 224 * 224) == pytest.approx(134.85, abs=0.01)
    _, norms = shifts(AdversarialNoiseTraining(), 150)
    assert max(norms) == pytest.approx(usual_norm(64), rel=1e-5)


def config(**objective) -> RunConfig:
    settings = {"batch_size": 8, "checkpoint_every": 100, "evaluate_every": 6, "log_every": 4, "seed": 3}
    game = AdversarialNoiseTraining(**EARLY | {"norm": 3.0, "generator_learning_rate": 1e-2} | objective)
    return RunConfig(MiniSprites(), game, LeNet(), TrainingConfig(17, **settings))


def copied(network: nn.Module) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in network.parameters()])


@pytest.mark.spec("001b/A-12", "001b/A-13")
def test_generators_are_kept_begin_anew_and_learn_alone() -> None:
    """The classifier moves in the other steps only, and the memory holds each generator as it was at its last step."""
    run = config()
    state = build_state(build_model(run), run.objective, run.training, brief_of(run))
    adversary = state.players["generator"]
    classifier, generator, fresh = [copied(state.model)], [], []

    def look(step: int, loss: torch.Tensor) -> None:
        classifier.append(copied(state.model))
        generator.append(adversary.current.in_a_row())
        fresh.append(next(iter(state.optimisers["generator"].state.values()))["step"].item())

    fit(state, run.objective, run.world, run.training, Listeners(step=look), run.split)
    rested = [torch.equal(a, b) for a, b in itertools.pairwise(classifier)]
    assert rested == [step % 5 < 2 for step in range(17)]
    assert fresh == [1 + step % 5 for step in range(17)], "its optimiser begins anew with it"
    assert all(not torch.equal(a, b) for a, b in itertools.pairwise(generator))
    kept = adversary.memory[adversary.memory.any(1)]
    assert len(kept) == 3
    assert all(torch.equal(row, generator[step]) for row, step in zip(kept, (4, 9, 14), strict=True))
    assert not torch.equal(kept[0], kept[1])


@pytest.mark.spec("001b/A-12")
def test_the_memory_is_a_ring_that_is_drawn_from_evenly() -> None:
    objective = AdversarialNoiseTraining(norm=1.6, memory=3, depth=1)
    adversary = objective.players(Looking(), BRIEF)["generator"].module
    for number in range(5):
        adversary.current.layers[0].bias.data.fill_(10.0 * (number + 1))
        adversary.begin_anew(number)
    assert sorted(adversary.memory[:, 1].tolist()) == [30, 40, 50], "the newest three"
    torch.manual_seed(0)
    drawn = [round(adversary.remembered_for(torch.zeros(2, 1, 8, 8), 5).mean().item() / 10) for _ in range(300)]
    assert [drawn.count(number) for number in (3, 4, 5)] == pytest.approx([100] * 3, abs=40)
    assert {round(adversary.remembered_for(torch.zeros(2, 1, 8, 8), 1).mean().item() / 10) for _ in range(20)} == {4}


@pytest.mark.spec("001b/A-12")
@pytest.mark.parametrize("stop", [4, 8])
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(tmp_path, monkeypatch, stop) -> None:
    """Stopped where a generator is about to be put away, and in the middle of a round."""
    monkeypatch.setattr("polariscope.training.run.TELL_EVERY", -1.0)  # every step is told
    whole = train(config(kernel=3), Store(tmp_path / "whole"))

    def press_ctrl_c(progress) -> None:
        if progress.step == stop:
            os.kill(os.getpid(), signal.SIGINT)

    store = Store(tmp_path / "stopped")
    with pytest.raises(KeyboardInterrupt):
        train(config(kernel=3), store, press_ctrl_c)
    (run,) = store.runs()
    assert stop <= checkpoints.read(run.checkpoint)[1]["step"] <= stop + 1
    resume(run)
    first, second = (checkpoints.read(one.checkpoint)[0] for one in (whole, run))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert first["player/generator/memory"].any(1).sum() == 3
    assert run.metrics() == whole.metrics()


def test_evaluation_changes_nothing_and_sees_the_mixture() -> None:
    objective = AdversarialNoiseTraining(norm=1.6, alone=5, refresh=5, depth=1)
    network = Looking()
    adversary = objective.players(network, BRIEF)["generator"].module
    before = {name: value.clone() for name, value in adversary.state_dict().items()}
    with torch.no_grad():
        objective(network, replace(grey(70), evaluating=True), 10, adversary)
    assert all(torch.equal(value, before[name]) for name, value in adversary.state_dict().items())
    assert (network.seen == 0.4).flatten(1).all(1).sum() == 35


def test_batch_statistics_rest_with_the_classifier() -> None:
    torch.manual_seed(0)
    objective = AdversarialNoiseTraining(alone=1, refresh=1)
    network = nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(64, 2)).train()
    adversary = objective.players(network, BRIEF)["generator"].module
    objective(network, grey(8), 0, adversary)
    assert network[0].num_batches_tracked == 0
    assert network[0].training
    objective(network, grey(8), 1, adversary)
    assert network[0].num_batches_tracked == 1


def test_a_generator_that_learns_alone_finds_the_worst_noise() -> None:
    """On a brightness the worst noise is a shift: 1.2 is enough to make it of 64 pixels, and Gaussian noise is not."""
    objective = AdversarialNoiseTraining(norm=1.3, alone=60, refresh=1, generator_learning_rate=1e-2)
    training = TrainingConfig(60, 8, evaluate_every=0, log_every=1)
    answer: list[float] = []
    listeners = Listeners(metrics=lambda event: answer.append(event.terms["error"]))
    world = Examples(np.full((32, 1, 8, 8), 0.4, np.float32), np.zeros((32, 1), int), (2,))
    fit(build_state(Looking(), objective, training, BRIEF), objective, world, training, listeners)
    assert answer[0] == 0
    assert answer[-1] == 1


@pytest.mark.spec("001b/A-14")
def test_correlated_noise_has_a_norm_of_its_own() -> None:
    torch.manual_seed(0)
    objective = AdversarialNoiseTraining(norm=0.9, kernel=3, alone=0)
    network = Looking()
    adversary = objective.players(network, BRIEF)["generator"].module
    assert sum(p.numel() for p in adversary.parameters()) == 4101
    for parameter in adversary.current.parameters():
        nn.init.constant_(parameter, 0.1)  # sums over neighbours
    objective(network, grey(400), 0, adversary)
    change = (network.seen[200:] - 0.4)[:, 0]
    assert change.flatten(1).norm(dim=1) == pytest.approx(torch.full((200,), 0.9), abs=1e-4)
    centred = change - change.mean()

    def correlation(apart: int) -> float:
        return ((centred[:, :, apart:] * centred[:, :, : 8 - apart]).mean() / centred.square().mean()).item()

    assert correlation(1) > 0.3
    assert abs(correlation(4)) < 0.1


@pytest.mark.spec("001b/A-38")
def test_fine_tuning_begins_with_a_run_and_drops_its_rate_once(tmp_path) -> None:
    """Its classifier rests in all of these steps, so that it ends with the weights it began with."""
    run = config(alone=17)
    trained = train(replace(run, objective=Classify(), training=replace(run.training, steps=2)), Store(tmp_path))
    dropping = replace(run.training, steps=5, optimiser="sgd", momentum=0.9, schedule="drop", drop_every=3)
    tuned = train(replace(run, training=dropping, start=warm(trained)), Store(tmp_path))
    first, second = (checkpoints.within(checkpoints.read(one.checkpoint)[0]) for one in (trained, tuned))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert [rate_factor(step, dropping) for step in range(5)] == pytest.approx([1, 1, 1, 0.1, 0.1])
    learning = replace(run, objective=replace(run.objective, alone=0), training=dropping, start=warm(trained))
    state = build_state(build_model(learning), learning.objective, dropping, brief_of(learning))
    fit(state, learning.objective, learning.world, dropping)
    assert state.optimisers["model"].param_groups[0]["lr"] == pytest.approx(dropping.learning_rate / 10)


@pytest.mark.parametrize("chosen", ["noise-training --objective.sd 0.08 0.5", "adversarial-noise-training"])
def test_through_the_command_line(tmp_path, chosen, capsys) -> None:
    words = f"train task --world.of mini-sprites --objective {chosen} --model lenet --training.steps 3".split()
    assert main([*words, "--training.batch-size", "8", "--runs", str(tmp_path), "--json"]) == 0
    (run,) = Store(tmp_path).runs()
    assert run.config["objective"]["name"] == chosen.split()[0]
    assert run.status == "done"


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="refresh is 0"):
        AdversarialNoiseTraining(refresh=0)
    with pytest.raises(ValueError, match="shape of the observations"):
        AdversarialNoiseTraining().players(nn.Linear(3, 2), Brief(()))
    objective = AdversarialNoiseTraining(alone=0)
    with pytest.raises(ValueError, match="at least 2"):
        objective(Looking(), grey(1), 0, objective.players(Looking(), BRIEF)["generator"].module)
