"""Contract checks of objectives."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from polariscope.nets.architecture import MLP, Conv
from polariscope.nets.model import Brief, Shape
from polariscope.objectives.objective import Batch, Objective, Terms, Turn, objectives, players_of
from polariscope.testing.promises import FACTOR_SIZES, rebuilt, require


def check_objective(
    objective: Objective,
    shape: Shape = (1, 16, 16),
    latents: int = 4,
    *,
    classes: tuple[int, ...] = FACTOR_SIZES,
    seed: int = 0,
) -> None:
    """An objective computes finite scalars from a batch, and each loss has gradients for every parameter of its own
    network; the same seed yields the same bits; the objective can be rebuilt from its description.

    The batch has observations of this ``shape`` and targets with these numbers of ``classes``.

    >>> from polariscope.objectives.vae import VAE
    >>> check_objective(VAE(), shape=(6,))
    """
    name = type(objective).__name__
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _model(objective, shape, latents, classes)
        players = {player: one.module for player, one in players_of(objective, model, Brief(shape)).items()}
        batch = _batch(objective, shape, classes)
        learning: set[str] = set()
        for turn in objective.turns():
            for step in (0, 10**9):  # before and after any schedule
                terms = _seeded(turn, model, batch, step, players, seed)
                _check_terms(name, terms, players)
                learning |= _check_gradients(name, terms, {"model": model, **players})
            _check_repeats(name, terms, _seeded(turn, model, batch, step, players, seed))
            with torch.no_grad():
                looked_at = replace(batch, evaluating=True)
                for what, term in _scalars(_seeded(turn, model, looked_at, step, players, seed)).items():
                    require(bool(term.isfinite()), f"{what} of {name} is {term} without gradients")
        idle = {"model", *players} - learning
        require(not idle, f"{name} has no loss for {', '.join(sorted(idle))} in any of its turns")
    require(rebuilt(objectives, objective) == objective, f"{name} rebuilt from its description is another one")


def _model(objective: Objective, shape: Shape, latents: int, sizes: tuple[int, ...]) -> nn.Module:
    """The objective's default model, in a small size."""
    images = len(shape) == 3
    usual = objective.default_model()
    small: dict[str, Any] = {"latents": latents, "architecture": Conv() if images else MLP((32,), (32,))}
    small |= {"likelihood": "bernoulli" if images else "gaussian"}
    known = {field.name for field in dataclasses.fields(usual)}  # type: ignore[arg-type]
    usual = replace(usual, **{key: value for key, value in small.items() if key in known})  # type: ignore[type-var]
    outputs = sum(sizes) if "target" in objective.needs else 0
    classes = () if not outputs else (outputs,) if objective.dense else sizes
    return objective.build(usual, Brief(shape, outputs, sizes, objective.posterior, objective.dense, classes))


def _batch(objective: Objective, shape: Shape, sizes: tuple[int, ...], count: int = 16) -> Batch:
    """A random batch with everything an objective may need."""
    factors = torch.stack([torch.randint(size, (count,)) for size in sizes], dim=1)
    x, other = torch.rand(2, count, *shape)
    if objective.dense:
        classes = sum(sizes)
        return Batch(x, 1000, factors, torch.randint(-1, classes, (count, *shape[1:])), (classes,), (other,))
    return Batch(x, 1000, factors, factors, sizes, (other,))


def _seeded(turn: Turn, model: nn.Module, batch: Batch, step: int, players: dict[str, nn.Module], seed: int) -> Terms:
    torch.manual_seed(seed)
    return turn(model, batch, step, **players)


def _check_terms(name: str, terms: Terms, players: dict[str, nn.Module]) -> None:
    taken = {"loss", *players} & set(terms.parts)
    require(not taken, f"{name} calls a part of its loss {taken}: the learning curve has these names already")
    strangers = terms.players.keys() - players.keys()
    require(not strangers, f"{name} has a loss for {', '.join(strangers)}, which is not one of its players")
    for what, term in _scalars(terms).items():
        require(term.ndim == 0, f"{what} of {name} has shape {tuple(term.shape)}: a term is one number per batch")
        require(bool(term.isfinite()), f"{what} of {name} is {term.item()} on ordinary data")


def _check_gradients(name: str, terms: Terms, players: dict[str, nn.Module]) -> set[str]:
    """Each loss has gradients for all trainable parameters of its player. Returns the players that have a loss."""
    losses = terms.players if terms.loss is None else {"model": terms.loss, **terms.players}
    for player, loss in losses.items():
        what = f"the loss of {name}" if player == "model" else f"the loss of {name} for its {player}"
        require(loss.requires_grad, f"{what} has no gradient at all")
        own = {n: p for n, p in players[player].named_parameters() if p.requires_grad}
        gradients = torch.autograd.grad(loss, list(own.values()), retain_graph=True, allow_unused=True)
        reached = {n for n, g in zip(own, gradients, strict=True) if g is not None and bool(g.any())}
        require(own.keys() <= reached, f"{what} has no gradient for {', '.join(sorted(own.keys() - reached))}")
    return set(losses)


def _check_repeats(name: str, first: Terms, second: Terms) -> None:
    a, b = _scalars(first), _scalars(second)
    require(a.keys() == b.keys(), f"{name} has the terms {list(a)} once and then {list(b)}")
    for what in a:
        require(bool(a[what] == b[what]), f"{what} of {name} is {a[what].item()}, then {b[what].item()}, for one seed")


def _scalars(terms: Terms) -> dict[str, Tensor]:
    return ({} if terms.loss is None else {"loss": terms.loss}) | terms.parts | terms.players
