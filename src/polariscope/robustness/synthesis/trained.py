"""Trained classifiers by synthesis, as runs: trained once for some data and settings, and loaded afterwards."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from polariscope.lab.store import Run, Store
from polariscope.robustness.synthesis.calibration import settle
from polariscope.robustness.synthesis.classifier import ABSClassifier
from polariscope.robustness.synthesis.objective import ABSTraining
from polariscope.robustness.synthesis.variational import ABSConfig
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.loop import apart
from polariscope.training.progress import Tell
from polariscope.training.run import config_of, load_model, train_once
from polariscope.training.start import warm
from polariscope.worlds.given import Data, as_world
from polariscope.worlds.splits import SplitPart, usual_split
from polariscope.worlds.targets import target_values
from polariscope.worlds.world import sample_numbers, to_tensor

BATCH = 240
RATE = 2e-3


def abs_config(
    data: Data,
    *,
    epochs: float = 8,
    anneal: float = 3,
    model: ABSConfig | None = None,
    batch_size: int = BATCH,
    learning_rate: float = RATE,
    reserved: int = 500,
    seed: int = 0,
) -> RunConfig:
    """The run of a classifier by synthesis on labelled images: a path, the name of a world, or a world.

    ``epochs`` counts passes over the images that are trained on; the weight of the divergence falls from 10 to 1 over
    the first ``anneal`` of them (50 in the published work). The learning rate falls to 0 along a cosine.
    """
    world = as_world(data)
    objective = ABSTraining(anneal=anneal, reserved=reserved)
    images = len(apart(usual_split(world).parts(world), reserved)[0].train)
    training = TrainingConfig(
        steps=max(1, math.ceil(epochs * images / batch_size)),
        batch_size=batch_size,
        learning_rate=learning_rate,
        schedule="cosine",
        seed=seed,
    )
    return RunConfig(world, objective, model or ABSConfig(), training)


def trained_abs(config: RunConfig, store: Store | Path | str = "runs", tell: Tell | None = None) -> Run:
    """The trained run of a configuration: from the store if it is there, resumed if it was cut off, or trained now."""
    return train_once(config, store, tell)


def trained_binary_abs(run: Run, store: Store | Path | str = "runs", tell: Tell | None = None) -> Run:
    """Binary ABS with the decoders of a run, as a run of its own.

    The decoders are frozen and training takes one step, which changes the encoders alone; inference does not use them.
    Only the factors of the classes and the softmax are new; they are calibrated on binarised images.
    """
    config = config_of(run)
    if not isinstance(config.model, ABSConfig):
        raise ValueError(f"Binary ABS is made from a run of the model abs, and {run.id} has another model")
    return train_once(
        replace(
            config,
            model=replace(config.model, binary=True),
            training=replace(config.training, steps=1, evaluate_every=0),
            start=warm(run, freeze=("decoders",)),
        ),
        store,
        tell,
    )


def calibrated_as_published(run: Run, count: int = 1000) -> ABSClassifier:
    """The classifier of a run, with its softmax (and for a binary classifier its factors) fitted on ``count`` held-out
    images, as published; the run itself is calibrated on images that were reserved from training.

    Its confidence on these images says nothing about its confidence on others.
    """
    config = config_of(run)
    part = SplitPart(config.world, config.split, "held-out")
    numbers = sample_numbers(part, count, config.training.seed)
    labels = torch.from_numpy(target_values(part, numbers)[:, 0].astype(np.int64))
    network: ABSClassifier = load_model(run)
    settle(network, to_tensor(part.observe(numbers)), labels)
    return network
