"""Estimated bounds of synthesis by search: on linear decoders they are what the closed form says."""

import numpy as np
import pytest
import torch
from torch import Tensor

from polariscope.robustness.attacks.pgd import PGD
from polariscope.robustness.bounds import BoundSettings, bounds, confront
from polariscope.robustness.bounds.synthesis import estimated_bounds
from polariscope.robustness.synthesis.inference import Inference, Search, candidate_codes, descend
from polariscope.robustness.synthesis.likelihoods import BernoulliLikelihood
from polariscope.robustness.synthesis.linear import LinearABS
from polariscope.robustness.synthesis.variational import ABSConfig, VariationalABS

QUICK = BoundSettings(seeds=3, candidates=50, steps=20, rounds=5, descent=15)


class Searched(LinearABS):
    """Linear decoders whose codes are searched for: what a search finds can be held against the closed form."""

    linear_generators = None

    def search_codes(self, x: Tensor, start: Tensor | None, search: Search) -> Inference:
        codes = start
        if codes is None:
            drawn = candidate_codes(max(search.candidates, 1), self.latents, search.seed).to(x)
            outputs = self.outputs(drawn[:, None].expand(-1, self.classes, -1)).flatten(2)
            losses = torch.stack([self.likelihood.energy(outputs, one) for one in x.flatten(1)])
            losses = losses + 0.5 * search.divergence * drawn.square().sum(1)[:, None]
            codes = drawn[losses.argmin(1)]

        def energy(rows: Tensor, _: object) -> Tensor:
            shaped = rows.reshape(codes.shape)
            distance = self.likelihood.energy(self.outputs(shaped).flatten(2), x.flatten(1)[:, None])
            return (distance + 0.5 * search.divergence * shaped.square().sum(2)).flatten()

        result = descend(energy, codes.flatten(0, 1), search.steps, search.rate)
        best = result.codes.reshape(codes.shape)
        losses = result.values.reshape(codes.shape[:2])
        return Inference(best, self.outputs(best), losses, result.steps.reshape(codes.shape[:2]))


def toy(seed: int = 0, binary: bool = False) -> tuple[Searched, LinearABS, Tensor, Tensor]:
    """The same linear decoders with a search and with the closed form."""
    rng = np.random.default_rng(seed)
    means = torch.from_numpy(rng.beta(0.3, 0.3, (3, 9)))
    weights = torch.from_numpy(rng.normal(0, 0.3, (3, 9, 2)))
    searched, exact = (kind(weights, means, (1, 3, 3), binary=binary) for kind in (Searched, LinearABS))
    searched.search = Search(candidates=50, steps=30)
    x = (means[rng.integers(0, 3, 5)] + torch.from_numpy(rng.normal(0, 0.1, (5, 9)))).clamp(0, 1).reshape(5, 1, 3, 3)
    return searched, exact, x, exact(x).argmax(1)


@pytest.mark.spec("001b/B-11", "001b/B-12", "001b/B-13", "001b/B-16")
@pytest.mark.parametrize("norm", ["l2", "linf", "l0"])
def test_the_estimate_is_between_the_certificate_and_the_attack(norm: str) -> None:
    """The search finds codes at which the ratio is no smaller than its minimum, and no attack is below it."""
    searched, exact, x, y = toy()
    estimate, certificate = bounds(searched, x, y, norm, QUICK), bounds(exact, x, y, norm)
    assert estimate.kind == "estimated bound"
    assert "not proven" in estimate.headline
    shared, certified = estimate.by_method["shared"], certificate.by_method["shared"][0]
    assert shared.shape == (3, 5)
    assert (shared.min(0) >= certified * (1 - 1e-3)).all()
    if norm != "l0":
        assert shared.min(0) == pytest.approx(certified, rel=0.02 if norm == "l2" else 0.25)
        separate = estimate.by_method["separate"].min(0)
        assert separate == pytest.approx(certificate.by_method["separate"][0], rel=0.02, abs=2e-3)
        assert (separate <= shared.min(0) + 1e-3).all()
        attacked = PGD(steps=8)(exact, x, y, norm=norm)
        assert (shared.min(0) <= attacked.distances * (1 + 1e-3)).all()
    assert estimate.seeds == (0, 1, 2)
    assert estimate.sd_over_seeds("shared") == pytest.approx(shared.mean(1).std(ddof=1))
    rows = {row["method"]: row for row in estimate.findings().json()["methods"]}
    assert rows["shared"]["seeds"] == 3
    assert rows["shared"]["sd"] is not None


def test_more_rounds_never_raise_the_estimate() -> None:
    searched, _, x, y = toy(1)
    one, many = (
        estimated_bounds(searched, x, y, "l2", BoundSettings(seeds=1, candidates=50, steps=5, rounds=rounds))
        for rounds in (1, 6)
    )
    assert (many.by_method["shared"] <= one.by_method["shared"] + 1e-9).all()
    assert (many.by_method["shared"] < one.by_method["shared"] - 1e-3).any()


@pytest.mark.spec("001b/B-15")
def test_flips_of_a_binary_classifier_are_estimated_in_both_spaces() -> None:
    searched, exact, x, y = toy(2, binary=True)
    for model in (searched, exact):
        model.gamma.copy_(torch.tensor([1.0, 1.03, 0.97]))
    y = exact(x).argmax(1)
    estimate, certificate = bounds(searched, x, y, "l2", QUICK), bounds(exact, x, y, "l2")
    assert estimate.by_method.keys() == certificate.by_method.keys() == {"cheapest flips"}
    assert (estimate.lower >= certificate.lower - 1e-9).all()
    assert estimate.binarised.by_method["separate"].min(0) == pytest.approx(
        certificate.binarised.by_method["separate"][0], rel=0.02, abs=2e-3
    )
    assert (estimate.binarised.lower >= estimate.lower).all(), "a flip is a change of 1 there, and of at most 1 here"


def test_a_bernoulli_likelihood_has_a_shared_bound_only() -> None:
    """Its energies are affine in the image, too; squared distances are not what it speaks of."""
    searched, _, x, _ = toy(3)
    searched.likelihood = BernoulliLikelihood()
    y = searched(x).argmax(1)
    result = bounds(searched, x, y, "l2", QUICK)
    assert set(result.by_method) == {"shared"}
    attacked = PGD(steps=4)(searched, x[:2], y[:2], norm="l2")
    assert (result.lower[:2] <= attacked.distances * 1.01).all()


def test_class_autoencoders_have_an_estimated_bound() -> None:
    torch.manual_seed(0)
    config = ABSConfig(latents=2, search=Search(candidates=20, steps=3))
    model = VariationalABS(config, (1, 16, 16), classes=3).eval()
    x = torch.rand(4, 1, 16, 16)
    with torch.no_grad():
        y = model(x).argmax(1)
    settings = BoundSettings(seeds=2, candidates=20, steps=3, rounds=2, descent=2)
    result = bounds(model, x, y, "linf", settings)
    assert result.kind == "estimated bound"
    assert (result.lower >= 0).all()
    assert np.isfinite(result.lower).all()
    again = bounds(model, x, y, "linf", settings)
    np.testing.assert_array_equal(result.lower, again.lower)


class Forgetful(Searched):
    """A search that never finds the best code of class 2, unless it takes more than 100 steps."""

    def search_codes(self, x: Tensor, start: Tensor | None, search: Search) -> Inference:
        result = super().search_codes(x, start, search)
        if search.steps > 100:
            return result
        codes = result.codes.clone()
        codes[:, 2] += 3.0
        outputs = self.outputs(codes)
        losses = self.likelihood.energy(outputs.flatten(2), x.flatten(1)[:, None]) + 0.5 * codes.square().sum(2)
        return Inference(codes, outputs, losses, result.steps)


@pytest.mark.spec("001b/B-11")
def test_an_attack_below_an_estimate_is_counted_and_looked_at_again() -> None:
    """The search misses codes of one class, so its estimate is too large; ten times the budget finds them."""
    searched, exact, x, y = toy(0)
    forgetful = Forgetful(searched.weights, searched.means, (1, 3, 3))
    forgetful.search = searched.search
    settings = BoundSettings(seeds=1, candidates=50, steps=20, rounds=1)
    result = bounds(forgetful, x, y, "l2", settings)
    attacked = PGD(steps=8)(exact, x, y, norm="l2")
    met = confront(result, forgetful, x, y, attacked.adversarials, attacked.distances, settings)
    assert len(met.violated) > 0
    assert met.again is not None
    assert len(met.again) == len(met.violated)
    assert (met.again < result.lower[met.violated]).all()
    assert len(met.violated_again) < len(met.violated)
    document = met.findings()
    assert document.headline == (
        f"An attack is below the estimated bound on {len(met.violated)} of 5 images, "
        f"{len(met.violated_again)} at ten times the budget."
    )
    assert [row["image"] for row in document.json()["violations"]] == met.violated.tolist()
    assert document.json()["violations_again"] == len(met.violated_again)


def test_a_violated_certificate_is_called_a_bug_and_not_computed_again() -> None:
    _, exact, x, y = toy(0)
    result = bounds(exact, x, y, "l2")
    fine = confront(result, exact, x, y, x, result.lower * 1.5)
    assert len(fine.violated) == 0
    assert fine.findings().headline == "No attack is below the certificate in L2 on any of 5 images."
    assert fine.gap == pytest.approx(result.lower / 2)
    broken = confront(result, exact, x, y, x, np.where(np.arange(5) == 2, result.lower / 2, np.inf))
    assert broken.violated.tolist() == [2]
    assert broken.again is None
    assert "bug" in broken.findings().headline
    with pytest.raises(ValueError, match="a distance for each"):
        confront(result, exact, x, y, x, result.lower[:2])
