"""Latent Descent, verified attacks and distal images, on classifiers by synthesis."""

import numpy as np
import pytest
import torch

from polariscope.findings import Pictures
from polariscope.nets.model import Brief
from polariscope.robustness.attacks import NoGradient
from polariscope.robustness.attacks.attacked import Attacked
from polariscope.robustness.attacks.binarised import Binarised
from polariscope.robustness.attacks.deepfool import DeepFool
from polariscope.robustness.attacks.distal import distal
from polariscope.robustness.attacks.latent_descent import LatentDescent
from polariscope.robustness.attacks.verified import Verified
from polariscope.robustness.synthesis.binary import binarised
from polariscope.robustness.synthesis.calibration import settle
from polariscope.robustness.synthesis.graded_softmax import GradedSoftmax, calibrate
from polariscope.robustness.synthesis.inference import Search
from polariscope.robustness.synthesis.linear import LinearABS
from polariscope.robustness.synthesis.pursuit import Pursuit
from polariscope.robustness.synthesis.variational import ABSConfig, VariationalABS
from polariscope.testing.attacks import check_attack, curved, curved_examples
from polariscope.worlds.renderers.digits import Digits
from polariscope.worlds.world import to_tensor

FORMS = ("iterative", "segment")


def drawn(count: int = 600, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    world = Digits(count=count, size=16, seed=seed)
    numbers = np.arange(count)
    return to_tensor(world.observe(numbers)), torch.from_numpy(world.factors_of(numbers)[:, 0]).long()


@pytest.fixture(scope="module")
def fitted() -> tuple[LinearABS, torch.Tensor, torch.Tensor]:
    x, y = drawn()
    model = LinearABS.fit(x, y, latents=6, variance=0.1)
    held = drawn(seed=1)
    settle(model, held[0][300:], held[1][300:])
    return model, held[0][:12], held[1][:12]


def paper_bound(model: LinearABS, x: torch.Tensor, y: torch.Tensor) -> np.ndarray:
    """The corrected L2 bound of Spec 001b, section B5.1, for images that are classified correctly."""
    own, nearest = model.infer(x), model.infer(x, search=Search(divergence=0.0))
    rows = torch.arange(len(x))
    d = (2 * model.variance * nearest.losses).clamp(min=0).sqrt()
    r = (own.reconstructions[rows, y] - x).flatten(1).norm(dim=1)[:, None]
    room = (d.square() - 2 * model.variance * own.losses[rows, y][:, None]) / (2 * (d + r))
    return room.clamp(min=0).scatter(1, y[:, None], torch.inf).amin(1).numpy()


@pytest.mark.spec("001b/B-17")
@pytest.mark.spec("001b/B-18")
@pytest.mark.parametrize("form", FORMS)
def test_the_contract_of_attacks_is_kept(form: str) -> None:
    x, y = curved_examples()
    generator = torch.Generator().manual_seed(0)
    weights = 0.3 * torch.randn(4, 32, 2, generator=generator)
    model = LinearABS(weights, torch.rand(4, 32, generator=generator), (2, 4, 4))
    y = model(x).argmax(1)
    y[-1] = (y[-1] + 1) % 4
    check_attack(LatentDescent(form, step=0.05), model, x, y)


@pytest.mark.spec("001b/B-17")
@pytest.mark.spec("001b/B-18")
@pytest.mark.parametrize("form", FORMS)
def test_adversarials_are_further_away_than_the_bound(fitted, form: str) -> None:  # type: ignore[no-untyped-def]
    model, x, y = fitted
    result: Attacked = LatentDescent(form, step=0.03)(model, x, y, norm="l2")
    assert np.isfinite(result.distances).all()
    right = result.distances > 0
    assert right.sum() >= 8
    assert (model(result.adversarials).argmax(1) != y).all()
    bound = paper_bound(model, x, y)
    assert (result.distances[right] >= bound[right] - 1e-5).all()
    assert (bound[right] > 0).any()
    # No further away than the synthesis of the best wrong class itself.
    inference = model.infer(x)
    wrong = model.scores_of(inference.losses).scatter(1, y[:, None], -torch.inf).argmax(1)
    furthest = (inference.reconstructions[torch.arange(12), wrong].clamp(0, 1) - x).flatten(1).norm(dim=1).numpy()
    assert (result.distances <= furthest + 1e-4).all()


def test_a_target_is_reached(fitted) -> None:  # type: ignore[no-untyped-def]
    model, x, y = fitted
    targets = (y + 1) % 10
    result = LatentDescent("iterative", step=0.05)(model, x, y, norm="l2", targets=targets)
    reached = np.isfinite(result.distances)
    assert reached.any()
    assert (model(result.adversarials).argmax(1) == targets).numpy()[reached].all()


def test_on_a_binary_classifier_the_hidden_changes_are_undone(fitted) -> None:  # type: ignore[no-untyped-def]
    model, x, y = fitted
    binary = binarised(model, *drawn(200, seed=2))
    plain = LatentDescent("iterative", step=0.05)
    raw, shrunk = plain(binary, x, y, norm="l2"), Binarised(plain)(binary, x, y, norm="l2")
    assert np.isfinite(shrunk.distances).any()
    assert (shrunk.distances <= raw.distances + 1e-6).all()
    assert (shrunk.distances[raw.distances > 0] < raw.distances[raw.distances > 0]).any()


def network() -> VariationalABS:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = ABSConfig(latents=3, search=Search(40, steps=8, rate=0.1)).build(Brief((1, 15, 15), 2))
        with torch.no_grad():
            for weight in made.decoders.parameters():
                weight.mul_(2.0)
    return made.eval()


def test_pursued_codes_stay_near_those_of_a_full_search() -> None:
    model = network()
    x = torch.rand(4, 1, 15, 15, generator=torch.Generator().manual_seed(0))
    pursuit = Pursuit(model, 4, steps=5)
    rows = torch.arange(4)
    first = pursuit.infer(x, rows)
    assert (first.losses <= model.infer(x).losses + 1e-4).all()
    moved = (x + 0.02).clamp(0, 1)
    followed = pursuit.infer(moved, rows)
    full = model.infer(moved)
    assert float((followed.losses - full.losses).max()) < 1.0
    some = pursuit.infer(moved[2:], rows[2:])
    assert (some.losses <= followed.losses[2:] + 1e-4).all()


@pytest.mark.spec("001b/B-17")
def test_attacks_on_autoencoders_count_only_what_the_full_search_confirms() -> None:
    model = network()
    x = model.decode(torch.randn(3, 2, 3, generator=torch.Generator().manual_seed(1)))[:, 0].clamp(0, 1)
    y = model(x).argmax(1)
    for attack in (LatentDescent("iterative", step=0.25, bisections=3, inner=3), Verified(DeepFool(steps=3), steps=3)):
        result = attack(model, x, y, norm="l2")
        outcome = np.isfinite(result.distances) & (result.distances > 0)
        assert outcome.any()
        assert (model(result.adversarials).argmax(1) != y).numpy()[outcome].all()
        assert (result.queries >= 2).all()


@pytest.mark.parametrize("attack", [LatentDescent(), Verified()], ids=["latent-descent", "verified"])
def test_other_classifiers_are_refused_in_a_sentence(attack) -> None:  # type: ignore[no-untyped-def]
    x, y = curved_examples()
    with pytest.raises(ValueError, match="analysis by synthesis"):
        attack(curved, x, y, norm="l2")


@pytest.mark.spec("001b/B-35")
def test_distal_images_of_a_classifier_by_synthesis_are_near_the_data(fitted) -> None:  # type: ignore[no-untyped-def]
    """From noise, a linear classifier is sure of an image far from any digit. One by synthesis is only sure of what a
    class can make: its image is much nearer to the digits and has a smaller loss."""
    model, _, _ = fitted
    x, y = drawn()
    synthetic = distal(model, [1, 3, 8], (1, 16, 16), near=x)
    assert synthetic.reached.all()
    assert (model.probabilities(synthetic.images).argmax(1).numpy() == synthetic.labels).all()
    assert synthetic.confidences.min() >= 0.9
    linear = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(256, 10))
    features = x.flatten(1).double()
    gram = features.T @ features + 10.0 * torch.eye(256, dtype=torch.float64)
    with torch.no_grad():
        linear[1].weight.copy_(torch.linalg.solve(gram, features.T @ torch.nn.functional.one_hot(y).double()).T)
        linear[1].bias.zero_()
    softmax = calibrate(linear(x).detach(), y).softmax
    plain = distal(linear, [1, 3, 8], (1, 16, 16), near=x, softmax=softmax, rate=0.05)
    assert plain.reached.all()
    assert plain.distances is not None
    assert synthetic.distances is not None
    assert plain.distances.min() > 1.5 * synthetic.distances.max()
    assert model.infer(plain.images).losses.amin() > 2 * model.infer(synthetic.images).losses.amin(1).max()


def test_distal_images_of_a_classifier_that_returns_probabilities_reach_its_own_confidence() -> None:
    """A softmax of probabilities of ten classes would end at e / (e + 9) = .23."""
    torch.manual_seed(0)
    scores = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    with torch.no_grad():
        scores[1].weight.mul_(4)
    shape, settings = (1, 8, 8), {"rate": 0.3, "steps": 100}
    result = distal(torch.nn.Sequential(scores, torch.nn.Softmax(1)), [1, 7], shape, **settings)
    assert result.reached.all()
    own = scores(result.images).softmax(1)[torch.arange(2), torch.tensor([1, 7])]
    np.testing.assert_allclose(result.confidences, own.detach(), rtol=1e-5)


def test_distal_images_begin_as_noise_and_are_repeated_by_their_seed(fitted) -> None:  # type: ignore[no-untyped-def]
    model, _, _ = fitted
    once, again = (distal(model, [2, 5], (1, 16, 16), steps=3, seed=4) for _ in range(2))
    assert torch.equal(once.images, again.images)
    assert (once.steps == 3).all()
    alone = distal(model, [2], (1, 16, 16), steps=3, seed=4)
    torch.testing.assert_close(alone.images[0], once.images[0], rtol=0, atol=1e-5)
    (pictures,) = once.findings().of(Pictures)
    assert len(pictures.strips) == 2
    assert "0 of 2" in once.findings().headline


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: distal(m, [10], (1, 16, 16)), "labels are 0 to 9"),
        (lambda m: distal(m, [], (1, 16, 16)), "at least one label"),
        (lambda m: distal(m, [1], (1, 16, 16), rate=0.0), "positive rate"),
    ],
)
def test_distal_images_that_cannot_be_are_refused(fitted, call, words: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=words):
        call(fitted[0])


def test_distal_images_need_gradients(fitted) -> None:  # type: ignore[no-untyped-def]
    model, _, _ = fitted

    class Blind(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return model(x.detach())

    with pytest.raises(NoGradient, match="gives no gradient"):
        distal(Blind(), [1], (1, 16, 16), softmax=GradedSoftmax())
