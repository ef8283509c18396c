"""Reading a code that was learned before, and beginning a task with what another one has learned."""

import json

import numpy as np
import pytest
import torch

from polariscope.cli import main
from polariscope.lab import Store
from polariscope.nets.architecture import MLP
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.nets.code_encoder import CodeEncoderConfig
from polariscope.nets.model import Brief
from polariscope.nets.predictors import LeNet
from polariscope.nets.readout import Readout
from polariscope.nets.vision import CNN
from polariscope.objectives.ada_vae import AdaGVAE
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.objectives.pcl import PCL
from polariscope.objectives.predict import Classify, Regress
from polariscope.objectives.slow_vae import SlowVAE
from polariscope.training import RunConfig, TrainingConfig, load_model, resume, train
from polariscope.training.config import Start
from polariscope.training.run import train_in_memory
from polariscope.training.start import warm
from polariscope.worlds.points.synthetic import Plane
from polariscope.worlds.renderers.mini_sprites import MiniSprites
from polariscope.worlds.splits import RandomSplit
from polariscope.worlds.targets import Task
from polariscope.worlds.views.factor_codes import FactorCodes
from polariscope.worlds.views.pairs import Pairs
from polariscope.worlds.world import to_tensor

SMALL = MLP((16,), (16,))
QUICK = TrainingConfig(6, 16, evaluate_every=0)
WHERE = Task(MiniSprites(), "all", "values")


@pytest.mark.spec("001a/IG-13")
@pytest.mark.parametrize("negative", [False, True], ids=["factors", "negative"])
def test_the_factors_themselves_are_read_without_loss(negative) -> None:
    world = Task(FactorCodes(MiniSprites(), negative=negative), "all", "values")
    training = TrainingConfig(600, 64, 5e-3, schedule="cosine", evaluate_every=0)
    split = RandomSplit(0.5)
    reader = train_in_memory(RunConfig(world, Regress(), Readout(), training, split))
    assert sum(p.numel() for p in reader.parameters()) == 3_925
    kept = split.parts(world).held_out
    with torch.no_grad():
        predictions = reader(to_tensor(world.observe(kept))).numpy()
    error = (predictions - world.target_of(kept)) ** 2
    score = 1 - error.mean(0) / world.target_of(np.arange(len(world))).var(0)
    assert score.mean() > 0.99


@pytest.mark.spec("001a/IG-13")
@pytest.mark.parametrize(
    ("objective", "model"),
    [
        (SlowVAE(), AutoencoderConfig(10, SMALL)),
        (BetaVAE(), AutoencoderConfig(10, SMALL)),
        (AdaGVAE(), AutoencoderConfig(10, SMALL)),
        (PCL(), CodeEncoderConfig(10, SMALL)),
    ],
    ids=["slow-vae", "beta-vae", "ada-vae", "pcl"],
)
def test_a_frozen_code_is_read_and_stays_what_it_was(objective, model, tmp_path) -> None:
    store = Store(tmp_path)
    learned = train(RunConfig(Pairs(MiniSprites()), objective, model, QUICK), store)
    start = warm(learned, freeze=("of",), into="of")
    reading = RunConfig(WHERE, Regress(), Readout(model), QUICK, start=start)
    run = train(reading, store)
    encoder, reader, drawn = load_model(learned), load_model(run), load_model(run, 0)
    assert all(torch.equal(weight, encoder.state_dict()[key]) for key, weight in reader.of.state_dict().items())
    assert sum(p.numel() for p in reader.readout.parameters()) == 3_925
    assert not any(map(torch.equal, reader.readout.parameters(), drawn.readout.parameters())), "the readout learns"
    x = to_tensor(WHERE.observe([3, 700]))
    with torch.no_grad():
        torch.testing.assert_close(reader(x), reader.readout(encoder.encode(x).mean))
        torch.testing.assert_close(reader.encode(x).mean, encoder.encode(x).mean)
    assert RunConfig.build(run.config) == reading
    assert resume(run).status == "done"


@pytest.mark.spec("001a/IG-13")
def test_on_the_command_line_the_model_of_the_run_is_what_is_read(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store(tmp_path / "runs")
    learned = train(RunConfig(MiniSprites(), BetaVAE(), AutoencoderConfig(4, SMALL), QUICK), store)
    task = "train task --world.of mini-sprites --world.factor x --world.form values --objective regress --json"
    words = f"{task} --training.steps 3 --model readout --model.from {learned.id} --start.freeze of"
    assert main(words.split()) == 0
    run = store.open(json.loads(capsys.readouterr().out)["id"])
    assert run.config["model"] == {"name": "readout", "of": learned.config["model"], "hidden": [40, 40, 40]}
    assert run.config["start"]["sha256"] == warm(learned).sha256
    assert run.config["start"]["into"] == "of"
    torch.testing.assert_close(load_model(run).of.state_dict(), load_model(learned).state_dict(), rtol=0, atol=0)
    # A run of a readout begins another one as it is.
    words = f"{task} --training.steps 3 --model readout --model.from {run.id} --start.freeze of"
    assert main(words.split()) == 0
    again = store.open(json.loads(capsys.readouterr().out)["id"])
    assert (again.config["model"], again.config["start"]["into"]) == (run.config["model"], "")
    torch.testing.assert_close(load_model(again, 0).state_dict(), load_model(run).state_dict(), rtol=0, atol=0)


def test_what_a_sibling_task_has_taught_is_tuned_whole_or_at_the_head_only(tmp_path) -> None:
    store = Store(tmp_path)
    sibling = train(RunConfig(Task(MiniSprites(), "shape"), Classify(), CNN(), QUICK), store)
    given = load_model(sibling).state_dict()
    for freeze in ((), ("encoder",)):
        start = warm(sibling, ("encoder",), freeze)
        run = train(RunConfig(WHERE, Regress(), CNN(), QUICK, start=start), store)
        first, after = load_model(run, 0).state_dict(), load_model(run).state_dict()
        trunk = [key for key in after if key.startswith("encoder.")]
        assert len(trunk) == 6
        assert all(torch.equal(first[key], given[key]) for key in trunk), "it begins where the sibling ended"
        assert all(torch.equal(after[key], given[key]) == bool(freeze) for key in trunk)
        assert not torch.equal(after["head.weight"], first["head.weight"])
        assert after["head.weight"].shape == (5, 256), "the last layer is a new one"
        recorded = run.config["start"]
        assert (recorded["run"], recorded["sha256"]) == (str(sibling.path), start.sha256)
        assert (recorded["parts"], recorded["freeze"]) == (["encoder"], list(freeze))
        assert run.status == "done"


def test_what_cannot_be_read_is_said(tmp_path) -> None:
    with pytest.raises(ValueError, match="needs the code of a model, but lenet does not encode: use autoencoder"):
        Readout(LeNet()).build(Brief((1, 12, 12), 3))
    with pytest.raises(ValueError, match="start.into needs another run"):
        Start(into="of")
    with pytest.raises(ValueError, match="the size is 4, and the world has 5 factors"):
        FactorCodes(MiniSprites(), size=4)
    with pytest.raises(ValueError, match="with known, discrete factors"):
        FactorCodes(Plane(count=10))
    learned = train(RunConfig(MiniSprites(), BetaVAE(), AutoencoderConfig(4, SMALL), QUICK), Store(tmp_path))
    with pytest.raises(ValueError, match="the model has no part 'off': did you mean 'of'"):
        wrong = RunConfig(
            WHERE, Regress(), Readout(AutoencoderConfig(4, SMALL)), QUICK, start=warm(learned, into="off")
        )
        train(wrong, Store(tmp_path))
