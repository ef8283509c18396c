"""A run says all that is needed to make it again, and made again it gives the same numbers."""

import json

import numpy as np
import pytest

from polariscope.lab import Store
from polariscope.measures.disentanglement import disentanglement
from polariscope.nets.architecture import MLP
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.representation import represent
from polariscope.training import RunConfig, TrainingConfig
from polariscope.training.run import load_model, train
from polariscope.worlds.renderers.mini_sprites import MiniSprites

ONCE = {"repeats": 0, "rotations": 0, "permutations": 0, "of_factors": False}
"""Scores without what they are compared with."""


@pytest.mark.spec("003/F3-093")
def test_a_run_is_made_again_from_its_own_record(tmp_path) -> None:
    model = AutoencoderConfig(3, MLP((16,), (16,)), likelihood="gaussian", variance=0.5)
    training = TrainingConfig(steps=20, seed=7, evaluate_every=0)
    first = train(RunConfig(MiniSprites(), BetaVAE(0.3), model, training), Store(tmp_path / "first"))

    record = json.loads((first.path / "run.json").read_text())
    config = record["config"]
    assert config["training"]["seed"] == 7
    assert config["model"]["likelihood"] == "gaussian"  # with the variance, the scale of the loss
    assert config["model"]["variance"] == 0.5
    assert config["objective"] == {"name": "beta-vae", "beta": 0.3}
    assert record["environment"]["torch"]

    again = train(RunConfig.build(config), Store(tmp_path / "again"))
    reports = []
    for run in (first, again):
        rep = represent(load_model(run), MiniSprites(), count=400)
        report = disentanglement(rep.mean, rep.factors, scores=("mig", "sap", "dci"), **ONCE)
        reports.append(report.summary())
    np.testing.assert_equal(reports[0], reports[1])
    assert reports[0]["protocol"]["probe"] == "boosting"  # estimators are named
    assert reports[0]["protocol"]["bins"] == 20
    assert first.result["train_loss"] == again.result["train_loss"]
