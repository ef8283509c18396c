"""Train a classifier for its diagnosis, optionally with an output scale, and save its weights before and after."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import save_file
from torch import nn

from polariscope.atomic import atomic
from polariscope.examination.labelled import check_labels, output_width
from polariscope.nets.scaled import Scaled, loss_scale
from polariscope.objectives.predict import Classify
from polariscope.training.config import TrainingConfig
from polariscope.training.loop import Listeners
from polariscope.training.run import Progress, Tell, train_module
from polariscope.worlds.splits import RandomSplit
from polariscope.worlds.targets import Examples


def train_classifier(
    network: nn.Module,
    data: Examples,
    steps: int,
    *,
    alpha: float | None = None,
    learning_rate: float = 0.05,
    batch_size: int = 64,
    seed: int = 0,
    tell: Tell | None = None,
) -> nn.Module:
    """Train ``network`` in place by gradient descent with momentum 0.9 on the cross-entropy; returns the classifier.

    With an output scale ``alpha`` the network learns through :class:`Scaled`, which is returned, and the loss is
    divided by α (by α² above 1), so that the outputs move alike at all scales. ``tell`` is called with the progress.
    """
    if not len(data):
        raise ValueError("there are no examples to train on")
    data = data.tensors()
    check_labels(data)
    output_width(network, data.x, data.classes[0])
    predictor = network if alpha is None else Scaled(network, alpha)
    objective = Classify(1.0 if alpha is None else loss_scale(alpha))
    config = TrainingConfig(
        steps, batch_size, learning_rate, "sgd", momentum=0.9, seed=seed, evaluate_every=0, log_every=steps
    )
    listeners = Listeners(step=lambda step, loss: tell(Progress(step, steps, float(loss)))) if tell else None
    return train_module(predictor, objective, data, config, RandomSplit(0.0), listeners).cpu()


def save_networks(folder: Path, **networks: nn.Module) -> None:
    """Save the weights of networks that were trained for a diagnosis, one file per network."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, module in networks.items():
        with atomic(folder / f"{name}.safetensors") as draft:
            save_file({key: value.contiguous() for key, value in module.state_dict().items()}, draft)
