"""Beginning with the weights of another run, and parts that are not trained."""

import pytest
import torch
from torch import nn

from polariscope.lab import Store
from polariscope.nets.architecture import MLP
from polariscope.nets.predictors import Encoder
from polariscope.nets.shortcut_nets import DenseNet
from polariscope.objectives.predict import Classify, Regress
from polariscope.training import RunConfig, TrainingConfig, load_model, resume, train
from polariscope.training.config import Start
from polariscope.training.loop import build_state, fit
from polariscope.training.start import begin, warm
from polariscope.worlds.renderers.mini_sprites import MiniSprites
from polariscope.worlds.splits import RandomSplit
from polariscope.worlds.targets import Task

MODEL = Encoder(MLP((16,), (16,)))
QUICK = TrainingConfig(20, 16, evaluate_every=0)


@pytest.fixture(scope="module")
def sibling(tmp_path_factory):
    """A run that tells shapes."""
    config = RunConfig(Task(MiniSprites(), "shape"), Classify(), MODEL, QUICK)
    return train(config, Store(tmp_path_factory.mktemp("runs")))


def begun(sibling, store, **start):
    config = RunConfig(Task(MiniSprites(), "x,y", "values"), Regress(), MODEL, QUICK, start=warm(sibling, **start))
    return config, train(config, store)


def test_a_frozen_part_keeps_the_weights_it_was_given(sibling, tmp_path) -> None:
    config, run = begun(sibling, Store(tmp_path), parts=("encoder",), freeze=("encoder",))
    given, kept, drawn = load_model(sibling).state_dict(), load_model(run).state_dict(), load_model(run, 0).state_dict()
    assert len(config.start.sha256) == 64
    assert run.config["start"]["sha256"] == config.start.sha256
    for name, weight in kept.items():
        if name.startswith("encoder."):
            assert torch.equal(weight, given[name])
        else:
            assert not torch.equal(weight, drawn[name]), "the head learns"


class Settled(nn.Module):
    """A trunk with a memory of its batches and with dropout, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Flatten(), nn.Linear(144, 8), nn.BatchNorm1d(8), nn.Dropout(0.5))
        self.head = nn.Linear(8, 3)
        self.drops: list[bool] = []

    def forward(self, x):
        self.drops.append(self.trunk[3].training)
        return self.head(self.trunk(x))


@pytest.mark.parametrize("evaluate_every", [0, 1], ids=["trained only", "evaluated between steps"])
@pytest.mark.parametrize("frozen", [True, False])
def test_frozen_parts_rest_while_the_others_learn(frozen, evaluate_every) -> None:
    """Batch statistics neither move nor are they those of the batch, and nothing drops out; else all three happen."""
    world = Task(MiniSprites(), "shape")
    torch.manual_seed(0)
    network = Settled()
    begin(network, Start(freeze=("trunk",) if frozen else ()))
    before = {name: value.clone() for name, value in network.state_dict().items()}
    config = TrainingConfig(3, 16, evaluate_every=evaluate_every)
    fit(build_state(network, Classify(), config), Classify(), world, config, split=RandomSplit(0.02))
    after = network.state_dict()
    for name in ("trunk.1.weight", "trunk.2.running_mean", "trunk.2.running_var", "trunk.2.num_batches_tracked"):
        assert torch.equal(after[name], before[name]) == frozen, name
    assert not torch.equal(after["head.weight"], before["head.weight"])
    assert any(network.drops) != frozen
    assert [module.training for module in (network.trunk, network.head)] == [not frozen, True]


def test_a_frozen_densenet_keeps_its_batch_statistics(tmp_path) -> None:
    """The same with a registered model, as --start.freeze says it."""
    model, start = DenseNet(4, 1), Start(freeze=("encoder",))
    config = RunConfig(Task(MiniSprites(), "shape"), Classify(), model, TrainingConfig(2, 8), start=start)
    run = train(config, Store(tmp_path))
    first, last = load_model(run, 0).state_dict(), load_model(run).state_dict()
    assert sum("running_mean" in name for name in first) > 3
    assert all(torch.equal(first[name], last[name]) for name in first if name.startswith("encoder."))
    assert not torch.equal(first["head.weight"], last["head.weight"])


def test_without_freezing_it_only_begins_there(sibling, tmp_path) -> None:
    _, run = begun(sibling, Store(tmp_path), parts=("encoder",))
    given, at_first, after = (load_model(*which).encoder[1][0].weight for which in ((sibling,), (run, 0), (run,)))
    assert torch.equal(given, at_first)
    assert not torch.equal(given, after)


def test_a_stopped_run_goes_on_without_the_weights_it_began_with(sibling, tmp_path, monkeypatch) -> None:
    config, whole = begun(sibling, Store(tmp_path / "a"), parts=("encoder",), freeze=("encoder",))
    monkeypatch.setattr("polariscope.training.run.TELL_EVERY", -1.0)

    def stop(progress) -> None:
        if progress.step == 9:
            raise KeyboardInterrupt

    store = Store(tmp_path / "b")
    with pytest.raises(KeyboardInterrupt):
        train(config, store, stop, "victim")
    run = resume(store.open("victim"))
    for name, weight in load_model(whole).state_dict().items():
        assert torch.equal(weight, load_model(run).state_dict()[name])


def test_what_cannot_be_begun_with_is_said(sibling, tmp_path) -> None:
    store = Store(tmp_path)
    with pytest.raises(ValueError, match=r"head\..* has another shape .* \(encoder would match\)"):
        begun(sibling, store)
    with pytest.raises(ValueError, match="no part 'encodr': did you mean 'encoder'"):
        begun(sibling, store, parts=("encodr",))
    with pytest.raises(ValueError, match="every part of the model is frozen"):
        begun(sibling, store, parts=("encoder",), freeze=("encoder", "head"))
    with pytest.raises(ValueError, match="have changed since this run was configured"):
        config = RunConfig(MiniSprites(), Classify(), MODEL, QUICK, start=Start(str(sibling.path), "0" * 64))
        train(config, store)
    with pytest.raises(ValueError, match="name it with start.run"):
        Start(parts=("encoder",))
    assert not store.runs(), "nothing was left behind"
