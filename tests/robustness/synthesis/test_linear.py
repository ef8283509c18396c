"""Linear analysis by synthesis, where everything is known: the oracle of inference, gradients and priors."""

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from polariscope.robustness.synthesis.calibration import settle
from polariscope.robustness.synthesis.inference import Search
from polariscope.robustness.synthesis.inversion import invert
from polariscope.robustness.synthesis.linear import LinearABS
from polariscope.subjects import as_subject


def drawn(classes: int = 3, pixels: int = 12, latents: int = 3, variance: float = 0.5, seed: int = 0) -> LinearABS:
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(classes, pixels, latents, generator=generator, dtype=torch.float64)
    means = torch.randn(classes, pixels, generator=generator, dtype=torch.float64)
    return LinearABS(weights, means, (pixels,), variance)


def points(count: int = 7, pixels: int = 12, seed: int = 1) -> torch.Tensor:
    return torch.randn(count, pixels, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.spec("001b/B-04")
def test_scores_and_codes_are_those_of_probabilistic_pca() -> None:
    model, x = drawn(), points()
    inference = model.infer(x)
    for number in range(model.classes):
        W, gap = model.weights[number], x - model.means[number]
        code = torch.linalg.solve(W.T @ W + 0.5 * torch.eye(3, dtype=torch.float64), W.T @ gap.T).T
        covariance = 0.5 * torch.eye(12, dtype=torch.float64) + W @ W.T
        score = -0.5 * (gap * torch.linalg.solve(covariance, gap.T).T).sum(1)
        torch.testing.assert_close(inference.codes[:, number], code, rtol=0, atol=1e-9)
        torch.testing.assert_close(model(x)[:, number], score, rtol=0, atol=1e-9)
        torch.testing.assert_close(inference.reconstructions[:, number], code @ W.T + model.means[number])


@pytest.mark.spec("001b/B-04")
def test_without_the_divergence_the_nearest_point_of_the_span_is_found() -> None:
    model, x = drawn(), points()
    inference = model.infer(x, search=Search(divergence=0.0))
    for number in range(model.classes):
        W, gap = model.weights[number].numpy(), (x - model.means[number]).numpy()
        residual = gap.T - W @ np.linalg.lstsq(W, gap.T, rcond=None)[0]
        np.testing.assert_allclose(inference.losses[:, number], (residual**2).sum(0), atol=1e-9)


@pytest.mark.spec("001b/B-03")
def test_the_search_reaches_the_closed_form() -> None:
    model, x = drawn(classes=2), points()
    exact = model.infer(x)
    for number in range(model.classes):
        W, mean = model.weights[number], model.means[number]

        def decode(z: torch.Tensor, W: torch.Tensor = W, mean: torch.Tensor = mean) -> torch.Tensor:
            return z @ W.T + mean

        near = invert(decode, x, 3, search=Search(candidates=2000, steps=50))
        exactly = invert(decode, x, 3, search=Search(candidates=2000, steps=400, rate=0.05))
        # The published budget comes within a hundredth of a nat, a longer search to the optimum.
        assert float((near.losses - exact.losses[:, number]).max()) < 0.05
        torch.testing.assert_close(exactly.losses, exact.losses[:, number], rtol=0, atol=1e-6)
        torch.testing.assert_close(exactly.codes, exact.codes[:, number], rtol=0, atol=1e-4)


@pytest.mark.spec("001b/B-05")
def test_the_envelope_gradient_is_that_of_finite_differences() -> None:
    model, x = drawn(), points(3)
    gradient = model.input_gradient(x)
    step = 1e-5 * torch.eye(12, dtype=torch.float64)
    up, down = (model((x[:, None] + sign * step).reshape(-1, 12)).reshape(3, 12, 3) for sign in (1, -1))
    torch.testing.assert_close(gradient, ((up - down) / 2e-5).transpose(1, 2), rtol=0, atol=1e-6)
    torch.testing.assert_close(gradient, (model.infer(x).reconstructions - x[:, None]) / 0.5)


def test_a_subject_gives_scores_with_gradients() -> None:
    model = drawn()
    x = points(3).requires_grad_()
    scores = as_subject(model).scores(x)
    (gradient,) = torch.autograd.grad(scores[:, 1].sum(), x)
    torch.testing.assert_close(gradient, model.input_gradient(x)[:, 1])


@pytest.mark.spec("001b/B-51")
def test_with_the_class_prior_it_is_the_classifier_of_bayes() -> None:
    """All axes are kept, so that the densities of the classes are plain Gaussians, which SciPy has as well."""
    generator = np.random.default_rng(0)
    y = generator.choice(3, 600, p=[0.7, 0.2, 0.1])
    mixing = generator.normal(size=(3, 4, 4)) * 1.5
    x = np.einsum("nij,nj->ni", mixing[y], generator.normal(size=(600, 4))) + y[:, None]
    smallest = min(np.linalg.eigvalsh(np.cov(x[y == c].T, bias=True)).min() for c in range(3))
    model = LinearABS.fit(
        torch.from_numpy(x), torch.from_numpy(y), latents=4, variance=0.9 * smallest, prior=True, exact=True
    )
    parts = [x[y == c] for c in range(3)]
    densities = [multivariate_normal(part.mean(0), np.cov(part.T, bias=True)) for part in parts]
    joint = np.stack([d.logpdf(x) + np.log(len(p) / 600) for d, p in zip(densities, parts, strict=True)], 1)
    ours = model(torch.from_numpy(x)).log_softmax(1).numpy()
    np.testing.assert_allclose(ours, joint - logsumexp(joint, axis=1, keepdims=True), rtol=1e-6, atol=1e-6)
    without = LinearABS.fit(torch.from_numpy(x), torch.from_numpy(y), latents=4, variance=0.9 * smallest, exact=True)
    difference = (model(torch.from_numpy(x)) - without(torch.from_numpy(x))).numpy()
    np.testing.assert_allclose(difference, np.tile(np.log(np.bincount(y) / 600), (600, 1)), atol=1e-9)


def test_prototypes_are_linear_decoders_without_latent_variables() -> None:
    means = torch.tensor([[0.0, 0.0], [4.0, 0.0]], dtype=torch.float64)
    model = LinearABS(torch.zeros(2, 2, 0, dtype=torch.float64), means, (2,))
    x = torch.tensor([[0.5, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(model(x), -torch.cdist(x, means).square())


def test_fit_finds_the_axes_that_made_the_data() -> None:
    generator = torch.Generator().manual_seed(3)
    truth = drawn(classes=2, pixels=6, latents=2)
    y = torch.arange(20_000) % 2
    z = torch.randn(20_000, 2, generator=generator, dtype=torch.float64)
    noise = torch.randn(20_000, 6, generator=generator, dtype=torch.float64) * 0.5**0.5
    x = torch.einsum("npl,nl->np", truth.weights[y], z) + truth.means[y] + noise
    fitted = LinearABS.fit(x, y, latents=2)
    for number in range(2):
        expected = truth.weights[number] @ truth.weights[number].T
        assert float((fitted.weights[number] @ fitted.weights[number].T - expected).abs().max()) < 0.2


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: drawn()(torch.zeros(2, 5)), "explains images of shape"),
        (lambda: drawn()(torch.full((2, 12), torch.nan)), "NaN or infinity"),
        (lambda: drawn()(torch.zeros(2, 12, dtype=torch.uint8)), "as floats"),
        (lambda: drawn().infer(points(), torch.zeros(2, 3, 3)), "codes to start from"),
        (lambda: LinearABS.fit(points(4), torch.tensor([0, 0, 0, 1])), "2 images of every class"),
        (lambda: LinearABS.fit(points(4), torch.zeros(3, dtype=torch.int64)), "a class for each"),
        (lambda: LinearABS(torch.zeros(2, 3, 1), torch.zeros(2, 4), (4,)), "need weights"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(call, words: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=words):
        call()


def test_probabilities_before_the_calibration_are_those_of_the_scores() -> None:
    """Divided by the number of pixels, the scores of 784 pixels had probabilities near one half."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(400) % 2
    x = 0.5 + 0.04 * y[:, None] + 0.1 * torch.randn(400, 784, generator=generator)
    model = LinearABS.fit(x[:300, None].unflatten(2, (28, 28)), y[:300])
    images = x[300:, None].unflatten(2, (28, 28))
    expected = model(images).softmax(1)
    torch.testing.assert_close(model.probabilities(images), expected)
    settle(model, x[:300, None].unflatten(2, (28, 28)), y[:300])
    assert not torch.allclose(model.probabilities(images), expected, atol=0.01)
