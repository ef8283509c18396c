"""The learned manipulation: bounded, one-dimensional, by the published schedule, and where theory says it goes."""

import copy

import numpy as np
import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from polariscope.manipulation import Learned, Manipulator, apply, learn_manipulator, manipulate, predicted_direction
from polariscope.manipulation import generator as module
from polariscope.manipulation.generator import draw, reconstruction, remove_trend
from polariscope.nets.architecture import MLP, Conv, Linear
from polariscope.nets.autoencoder import Autoencoder, AutoencoderConfig
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.training import TrainingConfig
from polariscope.worlds.points.synthetic import Plane
from polariscope.worlds.renderers.mini_sprites import MiniSprites

WORLD = Plane(count=4000)
SMALL = AutoencoderConfig(latents=2, architecture=MLP((8,), (8,)), likelihood="gaussian", variance=0.5)
TINY = {
    "restarts": 4,
    "steps": 6,
    "score": "neighbour-score",
    "architecture": MLP(decoder_widths=(8,)),
    "objective": BetaVAE(beta=0.1),
    "model": SMALL,
    "training": TrainingConfig(steps=20, evaluate_every=0),
}


def analytic(turn: float, var: list[float], seed: int = 0) -> tuple[Autoencoder, np.ndarray]:
    """A model whose frozen encoder gives the turned factors with this noise, and the noise pulled back to factors."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = AutoencoderConfig(latents=2, architecture=Linear(), likelihood="gaussian", variance=0.5)
        model = Autoencoder(config, WORLD.shape, "constant")
        model.decoder = MLP(decoder_widths=(32, 32)).decoder(2, WORLD.shape)
    angle = np.deg2rad(turn)
    rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    factors_of_x = np.eye(4)[:2] / [[1], [0.8]]
    with torch.no_grad():
        model.head.mean.weight.copy_(torch.from_numpy(rotation.T @ factors_of_x))
        model.head.mean.bias.zero_()
        model.head.logvar.copy_(torch.tensor(var).log())
    return model, rotation @ np.diag(var) @ rotation.T


def players(noise: float = 0.1) -> tuple[Autoencoder, Autoencoder, np.ndarray]:
    disentangled, first = analytic(0, [noise, noise / 0.64], 1)
    entangled, second = analytic(30, [0.5 * noise, 3 * noise], 2)
    return disentangled, entangled, predicted_direction(second, first)


@pytest.mark.spec("003/F3-058")
def test_the_predicted_direction_is_the_bottom_eigenvector() -> None:
    _, _, direction = players(1e-3)
    np.testing.assert_allclose(direction, [0.8070, 0.5905], atol=5e-5)
    # An entangled reference of equal noise can only make factors equal: the direction is an axis.
    np.testing.assert_allclose(predicted_direction(1e-3 * np.eye(2), np.diag([1e-3, 2e-3])), [0, 1], atol=1e-12)


@pytest.mark.spec("003/F3-058")
def test_the_game_is_won_along_the_predicted_direction() -> None:
    """With the best linear decoders, L_ent − L_dis of a target uᵀw is least at the predicted u (a scan over angles)."""
    disentangled, entangled, direction = players(1e-3)
    x = torch.from_numpy(WORLD.observe(np.arange(4000)))
    w = WORLD.factors_of(np.arange(4000)).astype(np.float64)
    turns = np.deg2rad(np.arange(0, 180, 0.5))
    scan = np.stack([np.cos(turns), np.sin(turns)])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        codes = [draw(model, x, samples=20).double().numpy() for model in (entangled, disentangled)]
    # What is left of a target uᵀw is uᵀ of what is left of w.
    left = [np.tile(w, (20, 1)) - z @ np.linalg.lstsq(z, np.tile(w, (20, 1)))[0] for z in codes]
    losses = [np.sum(scan * (r.T @ r @ scan), axis=0) for r in left]
    best = turns[np.argmin(losses[0] - losses[1])]
    assert abs(np.degrees(best) - np.degrees(np.arctan2(direction[1], direction[0]))) < 2


@pytest.mark.spec("003/F3-058")
def test_training_helps_the_entangled_model_and_turns_to_the_prediction() -> None:
    disentangled, entangled, direction = players()
    before = copy.deepcopy(disentangled.state_dict())
    settings = Learned(
        epsilon=0.5, steps=100, learning_rate=0.03, batch_size=64, architecture=MLP(decoder_widths=(16,))
    )
    manipulator, losses = learn_manipulator(WORLD, [disentangled], [entangled], settings, seed=0)
    start = learn_start(settings)
    error, at_start = (np.degrees(np.arccos(abs(d @ direction))) for d in (manipulator.direction, start))
    assert losses[-1][0] < losses[-1][1] - 0.05
    assert error < 12
    assert error < at_start
    for name, value in disentangled.state_dict().items():  # the models themselves are left alone
        assert torch.equal(value, before[name])
    change = manipulator(torch.from_numpy(WORLD.factors_of(np.arange(4000)))).detach()
    assert change.abs().max() <= 0.5


def learn_start(settings: Learned) -> np.ndarray:
    """Where the direction is before any update."""
    frozen = Learned(epsilon=0.5, steps=1, learning_rate=1e-12, architecture=settings.architecture)
    disentangled, entangled, _ = players()
    return learn_manipulator(WORLD, [disentangled], [entangled], frozen, seed=0)[0].direction


@pytest.mark.spec("003/F3-058")
def test_the_change_follows_one_scalar_and_stays_within_the_bound() -> None:
    world = MiniSprites()
    scale = np.zeros(5), np.ones(5)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        m = Manipulator(5, world.shape, 0.1, Conv(dense_decoder=True), scale)
    factors = torch.from_numpy(world.factors_of(np.arange(100)))
    with torch.no_grad():
        m.squeeze.weight *= 20
        assert m.squeeze.out_features == 1
        assert m(factors).shape == (100, 1, 12, 12)
        assert m(factors).abs().max() <= 0.1
        # Moving across the one direction changes nothing.
        u = m.squeeze.weight[0]
        across = torch.randn(5, generator=torch.Generator().manual_seed(1))
        across -= (across @ u) / (u @ u) * u
        torch.testing.assert_close(m(factors + across), m(factors), atol=1e-5, rtol=1e-4)
        assert (m(factors + u) - m(factors)).abs().max() > 1e-3
    widths = [
        layer.out_features
        for layer in Manipulator(5, (1, 64, 64), 0.1, Conv(True), scale).modules()
        if isinstance(layer, torch.nn.Linear)
    ]
    assert widths == [1, 256, 1024]


@pytest.mark.spec("003/F3-058")
def test_the_schedule_is_three_to_one_with_five_draws_and_frozen_encoders(monkeypatch: pytest.MonkeyPatch) -> None:
    updates: list[str] = []
    drawn: list[int] = []
    seen: list[torch.Tensor] = []
    original_draw = module.draw

    def note(optimiser, *_):
        updates.append("m" if any(p.shape == (1, 2) for p in optimiser.param_groups[0]["params"]) else "decoders")

    def note_draw(model, x, samples):
        drawn.append(samples)
        seen.append(x)
        assert not any(p.requires_grad for p in [*model.encoder.parameters(), *model.head.parameters()])
        return original_draw(model, x, samples)

    hook = register_optimizer_step_post_hook(note)
    monkeypatch.setattr(module, "draw", note_draw)
    disentangled, entangled, _ = players()
    learn_manipulator(WORLD, [disentangled], [entangled], Learned(steps=3, architecture=MLP(decoder_widths=(4,))))
    hook.remove()
    assert updates == ["decoders", "decoders", "decoders", "m"] * 3
    assert set(drawn) == {5}
    assert all((x[:, 2:] == 0).all() for x in seen)  # encoders see the original, whose last coordinates are idle
    z = original_draw(disentangled, torch.from_numpy(WORLD.observe(np.arange(10))), 5)
    assert z.shape == (50, 2)


@pytest.mark.spec("003/F3-059")
def test_an_ensemble_plays_with_the_mean_of_its_members() -> None:
    """4 + 4 models: the gradient that reaches the target is the mean of the pairs' gradients."""
    sides = [[analytic(turn, [0.1, 0.2], seed)[0] for seed in range(4)] for turn in (30, 0)]
    x = torch.from_numpy(WORLD.observe(np.arange(16)))
    target = (x + 0.1).requires_grad_()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        codes = [[draw(model, x, 5) for model in side] for side in sides]

    def losses(members: list[int]) -> torch.Tensor:
        ent, dis = (
            torch.stack([reconstruction(side[i], drawn[i], target) for i in members]).mean()
            for side, drawn in zip(sides, codes, strict=True)
        )
        return ent - dis

    whole = torch.autograd.grad(losses([0, 1, 2, 3]), target)[0]
    each = torch.stack([torch.autograd.grad(losses([i]), target)[0] for i in range(4)])
    torch.testing.assert_close(whole, each.mean(0))
    assert each.std(0).max() > 0
    settings = Learned(steps=2, pairs=4, restarts=8, architecture=MLP(decoder_widths=(4,)))
    _, history = learn_manipulator(WORLD, sides[1], sides[0], settings)
    assert len(history) == 2
    assert np.isfinite(history).all()


@pytest.mark.spec("003/F3-058")
def test_the_gradient_on_the_image_pulls_towards_the_entangled_reconstruction() -> None:
    """With squared error ∂(L_ent − L_dis)/∂x' = 2 (ȳ_dis − ȳ_ent)."""
    disentangled, entangled, _ = players()
    x = torch.from_numpy(WORLD.observe(np.arange(8)))
    target = x.clone().requires_grad_()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        codes = [draw(model, x, 5) for model in (entangled, disentangled)]
    loss = reconstruction(entangled, codes[0], target) - reconstruction(disentangled, codes[1], target)
    (result,) = torch.autograd.grad(loss, target)
    with torch.no_grad():
        ent, dis = (m.decode(z).reshape(5, 8, 4).mean(0) for m, z in zip((entangled, disentangled), codes, strict=True))
    torch.testing.assert_close(result * 8, 2 * (dis - ent), atol=1e-4, rtol=1e-3)


@pytest.mark.spec("003/F3-098")
def test_taking_the_trend_off_leaves_no_covariance_with_the_factors() -> None:
    factors = WORLD.factors_of(np.arange(4000))
    scale = np.zeros(2), np.ones(2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        m = Manipulator(2, (4,), 0.2, MLP(decoder_widths=(16,)), scale)

    def covariance() -> float:
        with torch.no_grad():
            change = m(torch.from_numpy(factors)).double().numpy()
        assert np.abs(change).max() <= 0.2 + 1e-6
        return float(np.abs(np.cov(factors.T, change.T)[:2, 2:]).max())

    assert covariance() > 1e-2
    remove_trend(m, factors)
    assert covariance() < 1e-6
    remove_trend(m, factors)  # once more changes nothing
    assert covariance() < 1e-6


def test_from_restarts_to_a_world() -> None:
    answer: list[str] = []
    world = Plane(count=300)
    learned = Learned(epsilon=0.3, **TINY)
    done = apply(world, learned, "learned", seed=3, tell=lambda name, p: answer.append(f"{name} {p.step}/{p.steps}"))
    assert answer[0] == "restart 1 of 4 1/20"
    assert answer[-1] == "manipulation 6/6"
    facts = done.fitted.facts
    scores = {row["seed"]: row["score"] for row in facts["restarts"]}
    assert facts["disentangled"] == [max(scores, key=scores.__getitem__)]
    assert facts["entangled"] == [min(scores, key=scores.__getitem__)]
    assert 0 < done.size.max_norm <= 0.3 + 1e-6
    again = manipulate(world, "learned", seed=3, epsilon=0.3, **TINY)
    np.testing.assert_array_equal(again.observations, done.world.observations)
    assert again.factors == world.factors


def test_images_are_folded_into_their_range() -> None:
    model = AutoencoderConfig(latents=3, architecture=MLP((8,), (8,)))
    settings = {**TINY, "model": model, "architecture": None, "score": "mig", "restarts": 2, "steps": 2}
    world = manipulate(MiniSprites(scales=1, orientations=2, positions=4), "learned", epsilon=0.1, **settings)
    assert world.observations.dtype == np.uint8
    original = MiniSprites(scales=1, orientations=2, positions=4).observe(np.arange(len(world)))
    change = world.observations.astype(int) - original
    assert 0 < np.abs(change).max() <= 25


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 8 restarts; got 6"):
        Learned(pairs=4, restarts=6)
    with pytest.raises(ValueError, match="steps is 0"):
        Learned(steps=0)
    with pytest.raises(ValueError, match="learning rate"):
        Learned(learning_rate=0)
    with pytest.raises(ValueError, match="at least one disentangled"):
        learn_manipulator(WORLD, [], [], Learned())
