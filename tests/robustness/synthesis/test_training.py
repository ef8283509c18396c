"""Class autoencoders as runs like any other: their networks, their objective, and what is settled after training."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from polariscope.nets.model import Brief
from polariscope.objectives.objective import Batch
from polariscope.robustness.synthesis.graded_softmax import calibrate
from polariscope.robustness.synthesis.inference import Search
from polariscope.robustness.synthesis.networks import ClassDecoder, class_encoder
from polariscope.robustness.synthesis.objective import ABSTraining
from polariscope.robustness.synthesis.trained import (
    abs_config,
    calibrated_as_published,
    trained_abs,
    trained_binary_abs,
)
from polariscope.robustness.synthesis.variational import ABSConfig, VariationalABS
from polariscope.subjects import as_subject
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.loop import Listeners, apart, build_state, fit
from polariscope.training.run import brief_of, build_model, load_model, resume, train
from polariscope.worlds.renderers.digits import Digits
from polariscope.worlds.splits import RandomSplit, SplitPart
from polariscope.worlds.targets import Task, target_values
from polariscope.worlds.world import to_tensor

QUICK = Search(candidates=40, steps=5, rate=0.1)


def config(steps: int = 8, count: int = 240, **settings) -> RunConfig:
    """A tiny run that tells even digits from odd ones."""
    objective = ABSTraining(anneal=4, reserved=20)
    training = TrainingConfig(steps, batch_size=20, seed=3, evaluate_every=0, log_every=2)
    world = Task(Digits(count=count, size=16), "digit", "parity")
    return RunConfig(world, objective, ABSConfig(latents=4, search=QUICK, **settings), training)


def batch(x: torch.Tensor, labels: torch.Tensor, classes: int, evaluating: bool = False) -> Batch:
    return Batch(x, len(x), target=labels[:, None], classes=(classes,), evaluating=evaluating)


@pytest.mark.spec("001b/B-02")
def test_the_networks_have_the_published_sizes() -> None:
    network = ABSConfig().build(Brief((1, 28, 28), 10))
    layers = (nn.Conv2d, nn.ConvTranspose2d)
    for autoencoders, parameters in ((network.encoders, 61_360), (network.decoders, 23_505)):
        assert len(autoencoders) == 10
        for one in autoencoders:
            sizes = [sum(p.numel() for p in layer.parameters()) for layer in one.modules() if isinstance(layer, layers)]
            assert sum(sizes) == parameters
    norms = [sum(p.numel() for p in m.parameters()) for m in network.modules() if isinstance(m, nn.BatchNorm2d)]
    assert sum(norms) == 10 * (256 + 128)


@pytest.mark.spec("001b/B-01")
def test_maps_have_the_published_sides() -> None:
    sides: list[int] = []

    def note(module: nn.Module, inputs: object, output: torch.Tensor) -> None:
        sides.append(output.shape[-1])

    encoder, decoder = class_encoder((1, 28, 28), 8), ClassDecoder((1, 28, 28), 8)
    for layer in [*encoder.modules(), *decoder.modules()]:
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
            layer.register_forward_hook(note)
    decoder(encoder(torch.zeros(2, 1, 28, 28))[:, :8])
    assert sides == [24, 11, 5, 1, 4, 11, 26, 28]


@pytest.mark.parametrize("shape", [(1, 15, 15), (3, 16, 19), (1, 17, 30), (2, 32, 32)])
def test_images_of_other_sizes_are_encoded_and_decoded(shape: tuple[int, ...]) -> None:
    codes = class_encoder(shape, 5)(torch.zeros(2, *shape))
    assert codes.shape == (2, 10)
    decoder = ClassDecoder(shape, 5)
    decoder(torch.randn(6, 5))  # moves the running statistics
    decoder.eval()
    z = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    assert decoder(z).shape == (3, *shape)
    torch.testing.assert_close(decoder.folded()(z), decoder(z), rtol=1e-4, atol=1e-5)


def test_images_that_are_too_small_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 15 x 15 pixels"):
        ABSConfig().build(Brief((1, 14, 28), 10))


@pytest.mark.spec("001b/B-01")
def test_every_image_is_seen_by_the_autoencoder_of_its_class_alone() -> None:
    network = ABSConfig(latents=3).build(Brief((1, 16, 16), 3))
    x = to_tensor(Digits(count=12, size=16).observe(np.arange(12)))
    labels = torch.tensor([0, 2] * 6)
    ABSTraining()(network, batch(x, labels, 3), 0).loss.backward()
    reached = {name.split(".")[1] for name, weight in network.named_parameters() if weight.grad is not None}
    assert reached == {"0", "2"}
    moved = [bool(decoder.deconv2[1].running_mean.abs().sum()) for decoder in network.decoders]
    assert moved == [True, False, True]
    # An image of another class in the batch changes nothing for the images of this one.
    network.eval()
    both, _ = _evidence(network, x, labels)
    alone, _ = _evidence(network, x[::2], labels[::2])
    torch.testing.assert_close(both[:6], alone)


def _evidence(network: VariationalABS, x: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return network.evidence(x, labels)


@pytest.mark.spec("001b/B-01")
def test_the_loss_is_the_squared_error_plus_the_weighted_divergence() -> None:
    network = ABSConfig(latents=3).build(Brief((1, 16, 16), 2)).eval()
    x = to_tensor(Digits(count=8, size=16).observe(np.arange(8)))
    labels = torch.tensor([0, 1] * 4)
    for step, weight in ((0, 10.0), (25, 5.5), (50, 1.0), (60, 1.0)):
        terms = ABSTraining()(network, batch(x, labels, 2), step)  # a batch is an epoch here
        parts = terms.parts
        torch.testing.assert_close(terms.loss, parts["reconstruction"] + weight * parts["kl"])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        energies, divergences = network.evidence(x, labels)
        torch.manual_seed(0)
        expected = []
        for number in range(2):
            posterior = network.posterior(number, x[number::2])
            image = network.decoders[number](posterior.sample()).sigmoid()
            expected.append((image - x[number::2]).flatten(1).square().sum(1))
            torch.testing.assert_close(divergences[4 * number : 4 * number + 4], posterior.kl())
    torch.testing.assert_close(energies, torch.cat(expected))
    assert "encoder_error" in ABSTraining()(network, batch(x, labels, 2, evaluating=True), 0).parts


@pytest.mark.spec("001b/B-01")
def test_training_raises_the_evidence_and_a_run_resumes_to_the_same_bits(tmp_path: Path) -> None:
    whole = train(config(), tmp_path / "whole", quiet=True)
    curve = [value for _, split, term, value in whole.metrics() if (split, term) == ("train", "reconstruction")]
    first, *_, last = curve
    assert last < 0.9 * first

    # What was settled after 4 steps disturbs nothing in the 4 that follow.
    begun = train(config(steps=4), tmp_path / "begun", quiet=True)
    settled = float(load_model(begun).alpha)
    resumed = resume(begun, steps=8, quiet=True)
    ours, theirs = load_model(whole).state_dict(), load_model(resumed).state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert 1.0 != float(ours["alpha"]) != settled
    assert float(ours["counts"].sum()) == 8 * 20


def test_reserved_images_are_never_trained_on() -> None:
    world = Digits(count=200, size=16)
    parts = RandomSplit().parts(world)
    smaller, reserved = apart(parts, 15)
    assert len(reserved) == 15
    assert not set(reserved) & (set(smaller.train) | set(smaller.held_out))
    assert set(reserved) | set(smaller.train) == set(parts.train)
    assert len(apart(parts, 500)[1]) == 18  # at most a tenth


def test_objectives_without_reserve_train_on_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    settled: list[Batch | None] = []

    class Watched(ABSTraining):
        def settle(self, model: VariationalABS, batch: Batch | None) -> None:
            assert not model.training
            settled.append(batch)

    for reserved, expected in ((0, None), (20, 20)):
        made = config(steps=1)
        objective = Watched(reserved=reserved)
        state = build_state(build_model(made), objective, made.training, brief_of(made))
        fit(state, objective, made.world, made.training, Listeners())
        assert (None if settled[-1] is None else len(settled[-1].x)) == expected
    assert state.model.training


@pytest.mark.spec("001b/B-51")
def test_the_class_prior_is_the_frequency_in_training() -> None:
    made = config(steps=2, prior="frequencies")
    state = build_state(build_model(made), made.objective, made.training, brief_of(made))
    fit(state, made.objective, made.world, made.training)
    network = state.model.eval()
    frequencies = network.counts / network.counts.sum()
    torch.testing.assert_close(network.offsets.double(), frequencies.log(), rtol=0, atol=1e-6)
    x = to_tensor(made.world.observe(np.arange(3)))
    torch.testing.assert_close(network(x) - network.offsets, -network.infer(x).losses)


def test_a_trained_run_is_a_subject_that_predicts_and_encodes(tmp_path: Path) -> None:
    run = train(config(steps=2), tmp_path, quiet=True)
    subject = as_subject(run)
    x = to_tensor(Digits(count=4, size=16).observe(np.arange(4)))
    with subject.at_rest():
        scores, code = subject.scores(x), subject.encode(x)
    assert scores.shape == (4, 2)
    assert code["mean"].shape == (4, 8)
    torch.testing.assert_close(scores, -load_model(run).infer(x).losses)


@pytest.mark.parametrize("factor", ["rotation", "all"])
def test_worlds_without_one_class_are_refused_in_a_sentence(factor: str) -> None:
    with pytest.raises(ValueError, match="for each class of one target"):
        build_model(RunConfig(Task(Digits(count=50, size=16), factor, "values"), ABSTraining()))


def test_a_class_with_one_image_waits_for_another_batch() -> None:
    network = ABSConfig(latents=3).build(Brief((1, 16, 16), 2))
    x = torch.rand(4, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    assert len(network.evidence(x, torch.tensor([0, 0, 0, 1]))[0]) == 3
    with pytest.raises(ValueError, match="no class with two"):
        network.evidence(x[:2], torch.tensor([0, 1]))
    assert len(network.eval().evidence(x[:2], torch.tensor([0, 1]))[0]) == 2


def test_data_outside_of_the_box_is_refused() -> None:
    network = ABSConfig(latents=3).build(Brief((1, 16, 16), 2))
    with pytest.raises(ValueError, match="0 to 1"):
        ABSTraining()(network, batch(3 * torch.ones(4, 1, 16, 16), torch.tensor([0, 1, 0, 1]), 2), 0)


@pytest.mark.spec("001b/B-08")
def test_runs_are_trained_once_and_a_binary_run_takes_their_decoders(tmp_path: Path) -> None:
    """The decoders are frozen and one step changes the encoders alone, which inference does not use; then the factors
    are searched and the softmax is calibrated for binarised images."""
    world = Task(Digits(count=120, size=16), "digit", "parity")
    settings = abs_config(
        world, epochs=0.5, anneal=0.2, batch_size=40, reserved=10, model=ABSConfig(latents=3, search=QUICK), seed=5
    )
    assert settings.training.steps == 2  # 120 images, 12 held out, 10 reserved: 98 to train on
    run = trained_abs(settings, tmp_path)
    assert trained_abs(settings, tmp_path).id == run.id
    binary = trained_binary_abs(run, tmp_path)
    assert trained_binary_abs(run, tmp_path).id == binary.id
    plain, made = load_model(run), load_model(binary)
    decoders, theirs = plain.decoders.state_dict(), made.decoders.state_dict()
    assert all(torch.equal(decoders[name], theirs[name]) for name in decoders)
    assert made.binary
    x = to_tensor(world.observe(np.arange(6)))
    losses = plain.infer((x >= 0.5).float()).losses
    torch.testing.assert_close(made(x), -made.gamma * losses, rtol=0, atol=1e-3)
    assert 0.96 <= float(made.gamma.min()) <= float(made.gamma.max()) <= 1.06
    held_out = SplitPart(world, settings.split, "held-out")
    x = to_tensor(held_out.observe(np.arange(len(held_out))))
    published = calibrated_as_published(run)
    labels = torch.from_numpy(target_values(held_out, np.arange(len(held_out)))[:, 0]).long()
    expected = calibrate(plain(x) / plain.pixels, labels).softmax
    assert float(published.alpha) == pytest.approx(expected.alpha, rel=1e-4)
    assert float(published.alpha) != pytest.approx(float(plain.alpha), rel=1e-3), "which reserved images decided"
    torch.testing.assert_close(published(x), plain(x))
