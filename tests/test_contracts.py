"""Every registered world, objective and measure keeps its promises; one that breaks a promise is caught at it."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch

from polariscope.measures.measure import Measure, Undefined, measures
from polariscope.objectives import Terms, objectives
from polariscope.objectives.autoencoding import Autoencoding, forward
from polariscope.objectives.factor_vae import FactorVAE
from polariscope.objectives.objective import Player
from polariscope.objectives.vae import VAE
from polariscope.testing import check_measure, check_objective, check_world, synthetic_representation
from polariscope.worlds import ArrayWorld, Factor, FactorGrid, GridWorld, worlds


@pytest.mark.parametrize("description", [d for name in worlds.names() for d in worlds.examples(name)], ids=str)
def test_registered_worlds_keep_the_contract(description):
    check_world(worlds.build(description))


def test_worlds_of_files_and_arrays_keep_the_contract(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (30, 8, 8), dtype=np.uint8)
    np.save(tmp_path / "images.npy", images)
    check_world(worlds.build({"name": "file", "path": str(tmp_path / "images.npy")}))
    check_world(ArrayWorld(images, np.arange(30) % 3))


ONE_CLASS_OF_IMAGES = ("abs",)
"""Objectives of one target, of which every class needs images in the batch."""


@pytest.mark.parametrize("name", [name for name in objectives.names() if name not in ONE_CLASS_OF_IMAGES])
@pytest.mark.parametrize("shape", [(1, 16, 16), (3, 8, 8), (6,)], ids=str)
def test_registered_objectives_keep_the_contract(name, shape):
    if objectives.get(name).dense and len(shape) != 3:
        pytest.skip("a mask lives on the pixels of an image")
    check_objective(objectives.get(name)(), shape)


@pytest.mark.parametrize("name", ONE_CLASS_OF_IMAGES)
@pytest.mark.parametrize("shape", [(1, 16, 16), (3, 18, 15)], ids=str)
def test_objectives_of_classes_keep_the_contract(name, shape):
    check_objective(objectives.get(name)(), shape, classes=(3,))


@pytest.mark.parametrize("name", measures.names())
def test_registered_measures_keep_the_contract(name):
    check_measure(measures.get(name)())


# Worlds that break one promise each


class Bars(GridWorld):
    """A bar of 5 positions in 3 grey values: a world that keeps all promises."""

    grid = FactorGrid((Factor("x", 5), Factor("grey", 3)))
    shape = (1, 8, 8)

    def render(self, factors):
        factors = self.grid.check(factors)
        images = np.zeros((len(factors), *self.shape), np.uint8)
        images[np.arange(len(factors)), 0, :, factors[:, 0]] = (80 * (factors[:, 1:] + 1)).astype(np.uint8)
        return images


class FloatImages(Bars):
    def render(self, factors):
        return super().render(factors) / 255


class ChannelsLast(Bars):
    def render(self, factors):
        return np.moveaxis(super().render(factors), 1, -1)


class ZerosAndOnes(Bars):
    def render(self, factors):
        return super().render(factors) // 80 // 3


class Restless(Bars):
    """Draws its noise in the order it is asked, so that an observation depends on its neighbours."""

    def render(self, factors):
        images = super().render(factors)
        return images + np.random.default_rng(0).integers(0, 9, images.shape, dtype=np.uint8)


class Shared(Bars):
    """Hands out its own memory."""

    def __init__(self):
        self.memory = {}

    def observe(self, index):
        return self.memory.setdefault(np.asarray(index).tobytes(), super().observe(index))


class WrapsAround(Bars):
    def observe(self, index):
        return super().observe(np.asarray(index) % len(self))


class NegativeIsFirst(Bars):
    def observe(self, index):
        return super().observe(np.maximum(index, 0))


class NegativeIsLast(Bars):
    """As a plain look-up in an array has it."""

    def factors_of(self, index):
        return self.grid.to_factors(np.arange(len(self)))[np.asarray(index)]


class OneBased(Bars):
    def factors_of(self, index):
        return super().factors_of(index) + 1


class Scrambled(Bars):
    """Its factors are on the grid, but of another observation."""

    def factors_of(self, index):
        return super().factors_of(index) * np.array([1, 0])


class Mismatched(Bars):
    def observe(self, index):
        return super().observe(index)[:, :, ::-1, ::-1]


class Nameless:
    shape = (2,)

    def __len__(self):
        return 3


class Empty(Bars):
    def __len__(self):
        return 0


class NotANumber(Bars):
    shape = (2,)

    def render(self, factors):
        return np.full((len(factors), 2), np.nan, np.float32)


@pytest.mark.parametrize(
    ("world", "sentence"),
    [
        (FloatImages(), "images of float64: expected uint8"),
        (ChannelsLast(), "shape .* expected"),
        (ZerosAndOnes(), "brightest pixel of ZerosAndOnes is 1"),
        (Restless(), "other observations for the same numbers in another order"),
        (Shared(), "other observations .* after the last result was overwritten"),
        (WrapsAround(), "accepts 15, one more than its last number"),
        (NegativeIsFirst(), "observe of NegativeIsFirst accepts -1, which is no number of an observation"),
        (NegativeIsLast(), "factors_of of NegativeIsLast accepts -1, which is no number of an observation"),
        (OneBased(), "its positions are 0 to"),
        (Scrambled(), "do not map back to their numbers"),
        (Mismatched(), "render of Mismatched returns other images"),
        (Nameless(), "is not a world"),
        (Empty(), "is empty"),
        (NotANumber(), "NaN or infinity"),
    ],
    ids=lambda v: type(v).__name__ if not isinstance(v, str) else "",
)
def test_a_broken_world_is_caught(world, sentence):
    check_world(Bars())
    with pytest.raises(AssertionError, match=sentence):
        check_world(world)


def test_a_grid_that_numbers_fewer_observations_than_combinations_is_caught():
    class Fewer(Bars):
        def __len__(self):
            return 10

        def observe(self, index):
            if np.max(index) >= 10:
                raise ValueError("there are 10")
            return super().observe(index)

        def factors_of(self, index):
            self.observe(index)
            return super().factors_of(index)

    with pytest.raises(AssertionError, match="10 observations for 15 combinations"):
        check_world(Fewer())


# Objectives that break one promise each


@dataclass(frozen=True)
class Altered(Autoencoding):
    """A VAE to break."""

    def __call__(self, model, batch, step):
        return VAE()(model, batch, step)


class NoMean(Altered):
    def __call__(self, model, batch, step):
        terms = super().__call__(model, batch, step)
        return replace(terms, loss=terms.loss.expand(2))


class Infinite(Altered):
    def __call__(self, model, batch, step):
        terms = super().__call__(model, batch, step)
        return replace(terms, loss=terms.loss / 0)


class LateInfinite(Altered):
    """Fails only after its schedule has run for long."""

    def __call__(self, model, batch, step):
        terms = super().__call__(model, batch, step)
        return replace(terms, loss=terms.loss * (1e30**2 if step > 10**6 else 1))


class Headless(Altered):
    """Lets no gradient through the encoder, and pays no divergence."""

    def __call__(self, model, batch, step):
        z = model.encode(batch.x).sample().detach()
        return Terms(model.likelihood.nll(model.decode(z), batch.x).mean())


class Detached(Altered):
    def __call__(self, model, batch, step):
        return replace(super().__call__(model, batch, step), loss=torch.tensor(1.0))


class Unseeded(Altered):
    def __call__(self, model, batch, step):
        terms = super().__call__(model, batch, step)
        return replace(terms, loss=terms.loss + np.random.default_rng().random())


class TakenName(Altered):
    def __call__(self, model, batch, step):
        terms = super().__call__(model, batch, step)
        return replace(terms, parts={"loss": terms.loss})


class IdlePlayer(Altered):
    def players(self, model, brief):
        return {"critic": Player(torch.nn.Linear(model.latents, 2))}

    def __call__(self, model, batch, step, critic):
        return super().__call__(model, batch, step)


class Stranger(Altered):
    """A loss for a network that is not there."""

    def __call__(self, model, batch, step):
        terms = super().__call__(model, batch, step)
        return replace(terms, players={"critic": terms.loss})


class Blindfold(FactorVAE):
    """The discriminator's loss never reaches it."""

    def __call__(self, model, batch, step, discriminator):
        terms = super().__call__(model, batch, step, discriminator)
        return replace(terms, players={"discriminator": forward(model, batch).z.mean()})


@dataclass(frozen=True)
class Forgetful(Altered):
    """A setting that its description does not carry: the rebuilt objective is another one."""

    weight: float = 1.0

    def __post_init__(self):
        object.__setattr__(self, "weight", self.weight + 1)


@pytest.mark.parametrize(
    ("objective", "sentence"),
    [
        (NoMean(), r"loss of NoMean has shape \(2,\)"),
        (Infinite(), "loss of Infinite is inf"),
        (LateInfinite(), "loss of LateInfinite is inf"),
        (Headless(), "no gradient for .*encoder.conv1.0.weight.*head.weight"),
        (Detached(), "no gradient at all"),
        (Unseeded(), "then .* for one seed"),
        (TakenName(), "learning curve has these names"),
        (IdlePlayer(), "no loss for critic in any of its turns"),
        (Stranger(), "a loss for critic, which is not one of its players"),
        (Blindfold(width=8, depth=1), "for its discriminator has no gradient for .*0.weight"),
        (Forgetful(), "rebuilt from its description is another one"),
    ],
    ids=lambda v: type(v).__name__ if not isinstance(v, str) else "",
)
def test_a_broken_objective_is_caught(objective, sentence):
    check_objective(Altered())
    with pytest.raises(AssertionError, match=sentence):
        check_objective(objective)


def test_checking_an_objective_leaves_the_random_state_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    check_objective(VAE())
    assert torch.equal(torch.rand(3), expected)


# Measures: right ones, and ones that break one promise each


@dataclass(frozen=True)
class Spread(Measure):
    """log det of the correlation matrix of the codes, made positive: keeps all promises."""

    title: ClassVar[str] = "spread"
    invariant_to = ("permutation", "sign", "scale", "isotropic_scale", "translation")

    def __call__(self, representation):
        x = representation.mean.astype(np.float64)
        if not np.isfinite(x).all() or (x.std(0) == 0).any():
            raise Undefined("a latent is constant or not finite")
        return -np.linalg.slogdet(np.corrcoef(x.T))[1]


@dataclass(frozen=True)
class TotalVariance(Measure):
    """Var of means plus mean variance, over all latents: what a rotation and a translation leave alone."""

    title: ClassVar[str] = "total variance"
    needs = ("var", "sample")
    invariant_to = ("permutation", "sign", "rotation", "translation")

    def __call__(self, representation):
        return representation.mean.var(0).sum() + representation.var.mean(0).sum() + representation.sample.var(0).sum()


@pytest.mark.parametrize("measure", [Spread(), TotalVariance()], ids=lambda m: m.title)
def test_measures_that_keep_their_promises_pass(measure):
    check_measure(measure)
    check_measure(measure, synthetic_representation(seed=3))


class SpreadClaimsRotation(Spread):
    invariant_to = ("rotation",)


class TotalVarianceClaimsScale(TotalVariance):
    invariant_to = ("isotropic_scale",)


class FirstLatent(Spread):
    """Looks at the first latent only, and so at an order that means nothing."""

    invariant_to = ("permutation",)

    def __call__(self, representation):
        super().__call__(representation)
        return representation.mean[:, 0].std()


class Signed(Spread):
    invariant_to = ("sign",)
    low = -np.inf

    def __call__(self, representation):
        super().__call__(representation)
        return representation.mean.max()


class Uncentred(Spread):
    invariant_to = ("translation",)

    def __call__(self, representation):
        super().__call__(representation)
        return np.square(representation.mean.astype(np.float64)).sum()


class PerLatent(Uncentred):
    invariant_to = ("scale",)


class StandardDeviations(TotalVariance):
    """Reads variances as standard deviations: wrong under a scaling, where they go with the square."""

    invariant_to = ("isotropic_scale",)

    def __call__(self, representation):
        return representation.mean.std(0).sum() / representation.var.mean(0).sum()


class TooSmallRange(Spread):
    high = 0.01


class SkipsNaN(Spread):
    invariant_to = ()

    def __call__(self, representation):
        return np.nanmean(np.abs(representation.mean[1:]))


class DividesByZero(Spread):
    invariant_to = ()

    def __call__(self, representation):
        if not np.isfinite(representation.mean).all():
            raise ValueError("not finite")
        return 1 / float(representation.mean[:, 0].max() - representation.mean[:, 0].min())


class Undeclared(Spread):
    """Reads the variances without saying so."""

    def __call__(self, representation):
        return super().__call__(representation) + representation.var.mean()


class Random(Spread):
    def __call__(self, representation):
        return super().__call__(representation) * np.random.default_rng().random()


class NeverDefined(Spread):
    def __call__(self, representation):
        raise Undefined("it is always too early to say")


class Untitled(Spread):
    title = None


class UnknownChange(Spread):
    invariant_to = ("time",)


@pytest.mark.parametrize(
    ("measure", "sentence"),
    [
        (SpreadClaimsRotation(), "invariance to rotation, which changes it"),
        (TotalVarianceClaimsScale(), "invariance to isotropic_scale, which changes it"),
        (FirstLatent(), "invariance to permutation, which changes it"),
        (Signed(), "invariance to sign, which changes it"),
        (Uncentred(), "invariance to translation, which changes it"),
        (PerLatent(), "invariance to scale, which changes it"),
        (StandardDeviations(), "invariance to isotropic_scale, which changes it"),
        (TooSmallRange(), "declares the range 0 to 0.01"),
        (SkipsNaN(), "latents with NaN: it must refuse them"),
        (DividesByZero(), "fails on constant latents .*ZeroDivisionError"),
        (Undeclared(), r"fails on means and what it declares to need \(\(\)\)"),
        (Random(), "different values on the same representation"),
        (NeverDefined(), "no value on a healthy representation: it is always too early to say"),
        (Untitled(), "needs a title"),
        (UnknownChange(), "'time': expected one of"),
    ],
    ids=lambda v: type(v).__name__ if not isinstance(v, str) else "",
)
def test_a_broken_measure_is_caught(measure, sentence):
    with pytest.raises(AssertionError, match=sentence):
        check_measure(measure)


def test_the_synthetic_representation_is_what_a_trained_vae_shows():
    """Two latents follow one factor each, the last is noise, and samples have the variances that go with them."""
    rep = synthetic_representation()
    correlation = np.corrcoef(rep.mean.T, rep.factors.T)[:5, 5:]
    assert abs(correlation[0, 0]) > 0.9
    assert abs(correlation[1, 1]) > 0.9
    assert np.abs(correlation[4]).max() < 0.2
    residual = (rep.sample - rep.mean) / np.sqrt(rep.var)
    assert residual.std(0) == pytest.approx(1, abs=5 / np.sqrt(2 * rep.count))
