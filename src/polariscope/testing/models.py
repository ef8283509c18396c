"""Contract checks of models: a network for every kind of data that the model does not refuse."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from polariscope.nets.model import Brief, Model, models
from polariscope.subjects import as_subject
from polariscope.subjects.checks import ROUNDING, broken_promises
from polariscope.testing.promises import FACTOR_SIZES, is_registered, rebuilt, require

BRIEFS = (
    Brief((6,), 3),
    Brief((6,), 0, FACTOR_SIZES),
    Brief((1, 16, 16), 3, classes=(3,)),
    Brief((1, 16, 16), 0, FACTOR_SIZES),
    Brief((3, 16, 16), 4, dense=True, classes=(4,)),
    Brief((3, 12, 12), 4),
)
"""Points and images, with and without a target, for each image or for each pixel."""
LARGE = Brief((3, 64, 64), 4)
"""For models that refuse all other briefs because they need large images."""
EXAMPLES = 8


def check_model(model: Model, briefs: Iterable[Brief] = BRIEFS, *, seed: int = 0) -> None:
    """A model builds a network for at least one of the briefs, and refuses the others in a :class:`ValueError`.

    Its weights are finite and drawn from torch's random state. In evaluation mode the network returns finite outputs of
    the shape in the brief, the same for an example whatever else is in the batch, and leaves its own state unchanged;
    its weights, loaded into another network of the same model, yield the same outputs. Gradients of a prediction reach
    every parameter, except in parts that the network names in ``only_in_training``. The model can be rebuilt from its
    description.

    >>> from polariscope.nets.predictors import Perceptron
    >>> check_model(Perceptron())
    """
    name = type(model).__name__
    with torch.random.fork_rng(devices=[]):
        refusals = [_checked(name, model, brief, seed) for brief in briefs]
        if all(refusals):
            refusals.append(_checked(name, model, LARGE, seed))
    require(not all(refusals), f"{name} refuses every kind of data: {'; '.join(dict.fromkeys(refusals))}")
    if is_registered(models, model):
        require(rebuilt(models, model) == model, f"{name} rebuilt from its description is another one")


def _checked(name: str, model: Model, brief: Brief, seed: int) -> str:
    """Check the network for a brief; returns the error with which the model refuses it, or nothing."""
    try:
        network = _drawn(model, brief, seed)
    except ValueError as error:
        return str(error) or "without a message"
    other = _drawn(model, brief, seed + 1)
    _check_weights(name, network, _drawn(model, brief, seed), other)
    _check_answers(name, brief, network, other, seed)
    return ""


def _drawn(model: Model, brief: Brief, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    network = model.build(brief)
    require(isinstance(network, nn.Module), f"{type(model).__name__} builds a {type(network).__name__}, not a module")
    return network.eval()


def _check_weights(name: str, network: nn.Module, again: nn.Module, other: nn.Module) -> None:
    weights = network.state_dict()
    for key, values in weights.items():
        require(isinstance(values, Tensor), f"{key} of {name} is a {type(values).__name__}: a checkpoint has tensors")
        require(not values.is_floating_point() or bool(values.isfinite().all()), f"{key} of {name} is not finite")
    require(list(again.state_dict()) == list(weights), f"{name} builds networks with other parts each time")
    same = all(torch.equal(values, weights[key]) for key, values in again.state_dict().items())
    require(same, f"the weights of {name} differ for the same seed: draw them only with torch")
    if any(parameter.ndim and parameter.numel() for parameter in network.parameters()):  # a lone scale begins at 1
        differ = any(not torch.equal(values, weights[key]) for key, values in other.state_dict().items())
        require(differ, f"the weights of {name} are the same for every seed: nothing is drawn")


def _check_answers(name: str, brief: Brief, network: nn.Module, other: nn.Module, seed: int) -> None:
    torch.manual_seed(seed)
    x = torch.rand(EXAMPLES, *brief.observation)
    u = torch.stack([torch.randint(size, (EXAMPLES,)) for size in brief.factors], 1) if brief.factors else None
    before = {key: values.clone() for key, values in network.state_dict().items()}
    answers = _answers(name, brief, network, x, u)
    after = network.state_dict()
    kept = all(torch.equal(values, after[key]) for key, values in before.items())
    require(kept, f"{name} changes its own weights or buffers in evaluation mode")
    other.load_state_dict(before)
    for what, values in _answers(name, brief, other, x, u).items():
        same = torch.allclose(values, answers[what], rtol=ROUNDING, atol=ROUNDING)
        require(same, f"{name} returns another {what} after its weights were loaded: its checkpoint is incomplete")


def _answers(name: str, brief: Brief, network: nn.Module, x: Tensor, u: Tensor | None) -> dict[str, Tensor]:
    """The outputs of a network for examples: code and decoded observation, prediction, or both."""
    subject = as_subject(network, name=name)
    answers: dict[str, Tensor] = {}
    if subject.encodes is not None:
        inner = u if subject.prior is not None else None
        understood = subject.understood(x, inner)
        for sentence in broken_promises(understood, x, inner):
            raise AssertionError(f"{name}: {sentence}")
        with understood.at_rest():
            answers["code"] = understood.encode(x, inner)["mean"]
            if understood.decodes is not None:
                answers["decoded observation"] = understood.generate(answers["code"].float(), brief.observation)
    if brief.outputs and subject.decodes is None and type(network).forward is not nn.Module.forward:
        answers["prediction"] = _prediction(name, brief, network, x)
    require(bool(answers), f"{name} neither encodes nor predicts: define encode, or forward and a brief with outputs")
    for what, values in answers.items():
        require(bool(values.isfinite().all()), f"the {what} of {name} has NaN or infinity")
    return answers


def _prediction(name: str, brief: Brief, network: nn.Module, x: Tensor) -> Tensor:
    outputs: Any = network(x)
    expected = (len(x), brief.outputs, *(brief.observation[1:] if brief.dense else ()))
    require(isinstance(outputs, Tensor), f"{name} predicts a {type(outputs).__name__}: expected a tensor of {expected}")
    require(
        tuple(outputs.shape) == expected,
        f"{name} predicts numbers of shape {tuple(outputs.shape)} for {len(x)} examples: expected {expected}",
    )
    require(bool(outputs.isfinite().all()), f"the prediction of {name} has NaN or infinity")
    with torch.no_grad():
        alone = network(x[:1])
    allowed = ROUNDING * float(outputs.detach().abs().max()) + ROUNDING
    require(
        bool(((alone - outputs[:1]).abs() <= allowed).all()),
        f"the prediction of {name} for an example depends on the others in its batch",
    )
    parameters = {key: p for key, p in network.named_parameters() if p.requires_grad}
    gradients = torch.autograd.grad(outputs.square().sum(), list(parameters.values()), allow_unused=True)
    apart = tuple(f"{part}." for part in getattr(network, "only_in_training", ()))
    idle = [
        key
        for key, gradient in zip(parameters, gradients, strict=True)
        if gradient is None and not key.startswith(apart)
    ]
    require(not idle, f"no gradient of a prediction of {name} reaches {', '.join(idle)}")
    return outputs.detach()
