"""Turns and players: who learns when, from which loss, and what of it comes back after a stop."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import nn

from polariscope.lab import Store
from polariscope.objectives.autoencoding import Autoencoding
from polariscope.objectives.objective import Batch, Objective, Player, Terms, objectives
from polariscope.training import RunConfig, TrainingConfig, resume, train
from polariscope.training import checkpoint as checkpoints
from polariscope.training.loop import Listeners, build_state, fit
from polariscope.worlds import ArrayWorld
from polariscope.worlds.renderers.mini_sprites import MiniSprites
from polariscope.worlds.splits import RandomSplit

WORLD = ArrayWorld(np.ones((8, 1), np.float32))


class Number(nn.Module):
    """One weight."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.tensor([value]))


@dataclass(frozen=True)
class Product(Objective):
    """Both players want the product a·b to fall: simultaneous steps and steps in turn end at different numbers."""

    alternate: bool = False

    def players(self, model, brief):
        return {"rival": Player(Number(3.0), {"lr": 0.1, "betas": (0.0, 0.0), "eps": 1e-12})}

    def turns(self):
        return (self.rival_only, self.model_only) if self.alternate else (self,)

    def __call__(self, model, batch: Batch, step: int, rival) -> Terms:
        product = (model.value * rival.value).sum()
        return Terms(product, {}, {"rival": product})

    def rival_only(self, model, batch, step, rival) -> Terms:
        return Terms(None, {}, {"rival": (model.value * rival.value.square()).sum()})

    def model_only(self, model, batch, step, rival) -> Terms:
        return Terms((model.value * rival.value).sum())


def after_one_step(objective: Objective) -> tuple[float, float]:
    config = TrainingConfig(1, 4, 0.5, "sgd", evaluate_every=0)
    state = build_state(Number(2.0), objective, config)
    fit(state, objective, WORLD, config, split=RandomSplit(0.0))
    return state.model.value.item(), state.players["rival"].value.item()


def test_all_losses_of_a_turn_are_computed_before_anyone_steps() -> None:
    """da = b = 3 and db = a = 2, both of the values before the step; the rival's Adam steps by its rate."""
    assert after_one_step(Product()) == pytest.approx((2 - 0.5 * 3, 3 - 0.1))


def test_players_that_alternate_see_what_the_other_did() -> None:
    a, b = after_one_step(Product(alternate=True))
    assert b == pytest.approx(2.9)
    assert a == pytest.approx(2 - 0.5 * 2.9)


def test_turns_have_batches_of_their_own() -> None:
    seen = []

    @dataclass(frozen=True)
    class Watching(Product):
        def rival_only(self, model, batch, step, rival):
            seen.append(batch.x[:, 0].tolist())
            return super().rival_only(model, batch, step, rival)

        def model_only(self, model, batch, step, rival):
            seen.append(batch.x[:, 0].tolist())
            return super().model_only(model, batch, step, rival)

    config = TrainingConfig(2, 2, 1e-3, "sgd", evaluate_every=0)
    world = ArrayWorld(np.arange(8, dtype=np.float32)[:, None])
    objective = Watching(alternate=True)
    fit(build_state(Number(2.0), objective, config), objective, world, config, split=RandomSplit(0.0))
    assert sorted(x for batch in seen for x in batch) == list(range(8)), (
        "two steps of two turns went once through the world"
    )


def test_turns_have_noise_of_their_own() -> None:
    """Noise that two turns shared, of one step or of neighbouring ones, would look like something they agree on."""

    def draws(seed: int) -> list[float]:
        seen = []

        @dataclass(frozen=True)
        class Drawing(Product):
            def rival_only(self, model, batch, step, rival):
                seen.append(torch.rand(()).item())
                return super().rival_only(model, batch, step, rival)

            def model_only(self, model, batch, step, rival):
                seen.append(torch.rand(()).item())
                return super().model_only(model, batch, step, rival)

        config = TrainingConfig(4, 2, 1e-3, "sgd", evaluate_every=0, seed=seed)
        objective = Drawing(alternate=True)
        fit(build_state(Number(2.0), objective, config), objective, WORLD, config, split=RandomSplit(0.0))
        return seen

    first, again, other = draws(0), draws(0), draws(1)
    assert first == again
    assert len(set(first + other)) == 4 * 2 * 2


@dataclass(frozen=True)
class Onlooker(Product):
    """Only the model has a loss; it goes through the other player, which is left alone."""

    def turns(self):
        return (self.model_only,)


def test_a_loss_moves_nobody_but_its_player() -> None:
    config = TrainingConfig(3, 4, 0.1, "sgd", evaluate_every=0)
    objective = Onlooker()
    state = build_state(Number(2.0), objective, config)
    fit(state, objective, WORLD, config, split=RandomSplit(0.0))
    rival = state.players["rival"].value
    assert (rival.item(), rival.grad) == (3.0, None)
    assert state.model.value.item() == pytest.approx(2 - 3 * 0.1 * 3)


@dataclass(frozen=True)
class Resting(Product):
    """In the first steps the model only watches; at step 2 the rival begins anew."""

    def __call__(self, model, batch: Batch, step: int, rival) -> Terms:
        terms = super().__call__(model, batch, step, rival)
        anew = ("rival",) if step == 2 else ()
        return Terms(terms.loss, {}, terms.players, rests=step < 2, anew=anew)

    def players(self, model, brief):
        return {"rival": Player(Number(3.0), {"lr": 0.1})}


def test_a_model_that_rests_tells_its_loss_and_stays() -> None:
    config = TrainingConfig(2, 4, 0.5, "sgd", evaluate_every=0, log_every=1)
    progress = []
    state = build_state(Number(2.0), Resting(), config)
    fit(
        state, Resting(), WORLD, config, Listeners(metrics=lambda event: progress.append(event.terms)), RandomSplit(0.0)
    )
    assert state.model.value.item() == 2.0
    assert [terms["loss"] for terms in progress] == pytest.approx([6.0, 5.8])
    assert state.players["rival"].value.item() == pytest.approx(2.8)
    fit(state, Resting(), WORLD, replace(config, steps=3), split=RandomSplit(0.0))
    assert state.model.value.item() == pytest.approx(2 - 0.5 * 2.8), "then it learns"


def test_the_optimiser_of_a_player_that_begins_anew_forgets() -> None:
    config = TrainingConfig(3, 4, 0.5, "sgd", evaluate_every=0)
    state = build_state(Number(2.0), Resting(), config)
    fit(state, Resting(), WORLD, config, split=RandomSplit(0.0))
    (moments,) = state.optimisers["rival"].state.values()
    assert moments["step"].item() == 1, "two steps before it are forgotten"
    assert moments["exp_avg"].item() == pytest.approx(0.1 * 2.0), "a tenth of the last gradient, and of no other"


@dataclass(frozen=True)
class Remembering(Autoencoding):
    """A critic with a memory: a ring of what the model said, which its loss looks back at."""

    def players(self, model, brief):
        critic = nn.Linear(model.latents, 1)
        critic.register_buffer("memory", torch.zeros(5, model.latents))
        critic.register_buffer("place", torch.zeros((), dtype=torch.int64))
        return {"critic": Player(critic)}

    def __call__(self, model, batch: Batch, step: int, critic) -> Terms:
        z = model.encode(batch.x).sample()
        if not batch.evaluating:
            critic.memory[critic.place % 5] = z.detach().mean(0)
            critic.place += 1
        seen = critic(critic.memory).square().mean()
        decoded = model.likelihood.nll(model.decode(z), batch.x).mean()
        return Terms(
            decoded + critic(z).mean(), {"reconstruction": decoded}, {"critic": seen + critic(z.detach()).mean()}
        )


def test_what_a_player_remembers_is_in_the_checkpoint(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(objectives._entries, "remembering", Remembering)  # for this test alone
    config = RunConfig(
        MiniSprites(), Remembering(), training=TrainingConfig(12, 8, checkpoint_every=5, evaluate_every=6)
    )
    whole = train(config, Store(tmp_path / "whole"))
    run = Store(tmp_path / "stopped").create(config.describe(), config.label)
    from polariscope.training.run import build_model

    state = build_state(build_model(config), config.objective, config.training)

    class Stop(BaseException):
        pass

    def save(state) -> None:
        checkpoints.save(state, run.checkpoint)
        raise Stop

    with pytest.raises(Stop):
        fit(state, config.objective, config.world, config.training, Listeners(checkpoint=save))
    assert resume(run).status == "done"
    first, second = (checkpoints.read(one.checkpoint)[0] for one in (whole, run))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert int(first["player/critic/place"]) == 12
    assert first["player/critic/memory"].abs().sum() > 0
