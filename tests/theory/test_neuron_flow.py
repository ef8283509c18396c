"""Population averages against data and quadrature; the flow of single neurons against neurons driven by data."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import erf
from scipy.stats import norm

from polariscope.theory.amplification import perpendicular_drift
from polariscope.theory.neuron_flow import Neurons, neuron_flow, population_averages
from polariscope.theory.stripe import Layers, attractors
from polariscope.worlds.points.stripes import Stripe


def random_neurons(count: int, dimension: int, seed: int) -> Neurons:
    generator = np.random.default_rng(seed)
    return Neurons(generator.standard_normal((count, dimension)), *generator.standard_normal((2, count)))


def driven_by_data(start: Neurons, x: np.ndarray, y: np.ndarray, time: float, step: float) -> list[Neurons]:
    """Neurons under gradient flow on the data while every point counts (midpoint rule), one entry a step."""
    d = x.shape[1]
    signed = np.column_stack([x, np.full(len(x), np.sqrt(d))]) * y[:, None] / len(x)

    def motion(w, b, beta):
        mean = (x @ w.T + np.sqrt(d) * b > 0).T.astype(float) @ signed
        return beta[:, None] * mean[:, :d], beta * mean[:, d], (w * mean[:, :d]).sum(1) + b * mean[:, d]

    path = [start]
    for _ in range(round(time / step)):
        half = [s + step / 2 * v for s, v in zip(path[-1], motion(*path[-1]), strict=True)]
        path.append(Neurons(*(s + step * v for s, v in zip(path[-1], motion(*half), strict=True))))
    return path


@pytest.mark.spec("004/F21")
@pytest.mark.parametrize("layers", [Layers(), Layers((-1.5, -0.6, 0.1, 0.9))], ids=repr)
def test_population_averages_agree_with_data(layers) -> None:
    weights, biases, _ = random_neurons(12, 3, seed=1)
    averages = population_averages(weights, biases, layers)
    count = 200_000
    x, y = Stripe(dimension=3, interfaces=layers.interfaces).sample(count, seed=2)
    active = x @ weights.T + np.sqrt(3) * biases > 0
    terms = x[:, None, :] * (y[:, None] * active)[..., None]
    deviation = np.abs(terms.mean(0) - averages.drift) / (terms.std(0) / np.sqrt(count))
    assert deviation.max() < 4
    assert (deviation < 3).mean() > 0.9
    bias_terms = np.sqrt(3) * y[:, None] * active
    np.testing.assert_allclose(bias_terms.mean(0), averages.bias_drift, atol=4 * np.sqrt(3 / count))
    np.testing.assert_allclose(terms[..., 1:].var(0), averages.var, atol=0.02)


def written_averages(w1: float, w2: float, b: float) -> tuple[float, float, float]:
    """μ₁, μ₂ and μ_b in the plane by quadrature of the integrals of spec 004, section 6.2."""
    size = np.hypot(w1, w2)
    centre, spread = -np.sqrt(2) * b * w1 / size**2, abs(w2) / size
    places = sorted(
        {-12.0, *Layers().interfaces, 12.0} | {np.clip(centre + k * spread, -12, 12) for k in (-9, -3, 0, 3, 9)}
    )

    def mean(f):
        terms = (quad(lambda x: float(Layers()(x)) * f(x), low, high, limit=200)[0] for low, high in pairwise(places))
        return sum(terms)

    def gate(x):
        return norm.pdf(x) * (1 + erf((b * np.sqrt(2) + w1 * x) / (np.sqrt(2) * abs(w2)))) / 2

    on_hyperplane = mean(lambda x: norm.pdf(x, centre, spread))
    return (
        mean(lambda x: x * gate(x)),
        w2 / size * norm.pdf(np.sqrt(2) * b / size) * on_hyperplane,
        np.sqrt(2) * mean(gate),
    )


@pytest.mark.spec("004/F21")
@pytest.mark.parametrize(
    ("w1", "w2", "b"),
    [(0.7, -1.1, 0.4), (-2.0, 0.3, -0.9), (1e-9, 1.0, 0.2), (0.0, -0.5, 0.3), (3.0, 0.01, 1.0), (1.0, 1.0, 0.0)],
)
def test_population_averages_agree_with_the_written_integrals(w1, w2, b) -> None:
    averages = population_averages([[w1, w2]], [b])
    result = (*averages.drift[0], averages.bias_drift[0])
    np.testing.assert_allclose(result, written_averages(w1, w2, b), atol=1e-7)


@pytest.mark.spec("004/F21", "004/F23")
@pytest.mark.parametrize("side", [1, -1])
def test_averages_of_aligned_neurons_are_those_of_half_lines(side) -> None:
    zeta = np.array([-1.1, -0.2, 0.5, 1.4])
    weights = np.column_stack([np.full(4, side), np.zeros(4), np.full(4, 1e-9)])
    averages = population_averages(weights, -side * zeta / np.sqrt(3))
    c_b, c_1 = Layers().half_line(zeta, side)
    np.testing.assert_allclose(averages.bias_drift, np.sqrt(3) * c_b, atol=1e-7)
    np.testing.assert_allclose(averages.drift[:, 0], c_1, atol=1e-7)
    np.testing.assert_allclose(averages.drift[:, 2], 1e-9 * Layers()(zeta) * norm.pdf(zeta), rtol=1e-6)
    np.testing.assert_allclose(averages.var, np.repeat(norm.cdf(-side * zeta)[:, None], 2, axis=1), atol=1e-9)


@pytest.fixture(scope="module")
def gathered():
    """Neurons driven by 10 000 points in the plane, the attractor each has reached (or −1), and the data."""
    x, y = Stripe(dimension=2).sample(10_000, seed=3)
    start = random_neurons(24, 2, seed=10)
    path = driven_by_data(start, x, y, time=18.0, step=0.1)
    weights, biases, _ = path[-1]
    z = -np.sqrt(2) * biases[:, None] * weights / (weights**2).sum(1, keepdims=True)
    reached = np.full(24, -1)
    for j, point in enumerate(attractors(Layers(), 2)):
        near = (np.abs(z - (point.position, 0)) < 0.1).all(1) & (np.sign(weights[:, 0]) == point.side)
        reached[near] = j
    return x, y, path, reached


@pytest.mark.spec("004/F22")
def test_neurons_follow_the_flow_with_the_noise_of_the_data(gathered) -> None:
    x, y, path, reached = gathered
    points = attractors(Layers(), 2)
    assert set(reached) == {-1, 0, 1, 2}
    arrived = reached >= 0
    noise = np.array([np.sqrt(len(x) / p.active) * perpendicular_drift(x, y, p) for p in points])[reached[arrived]]
    start = Neurons(*(part[arrived] for part in path[0]))
    predicted = neuron_flow(start, [18.0], noise=noise, points=len(x))
    for result, expected in zip(path[-1], predicted, strict=True):
        ratio = result[arrived] / expected[0]
        assert (ratio > 0).all()  # the sign is exact, also of the weight across, which is noise
        assert np.median(np.abs(ratio - 1)) < 0.1
        assert np.mean(np.abs(ratio - 1) < 0.25) > 0.9


@pytest.mark.spec("004/F25")
def test_neurons_grow_at_the_rate_of_their_attractor(gathered) -> None:
    _, _, path, reached = gathered
    rates = np.log(np.abs(path[-1].outputs / path[-21].outputs)) / 2.0
    for j, (point, tolerance) in enumerate(zip(attractors(Layers(), 2), (0.012, 0.015, 0.015), strict=True)):
        assert np.median(rates[reached == j]) == pytest.approx(point.growth_rate, abs=tolerance)
    largest = (path[-1].weights ** 2).sum(1)
    assert largest[reached == 0].sum() > 0.98 * largest.sum()


@pytest.mark.spec("004/F22")
def test_the_flow_saturates_where_the_closed_form_says() -> None:
    point = attractors(Layers(), 4)[0]
    noise, count = np.array([0.8, -1.5, 0.3]), 10_000
    start = Neurons(np.array([[-1.0, 0.2, 0.1, -0.3]]), np.array([0.1]), np.array([1.5]))
    for sign in (1, -1):
        end = neuron_flow(start, [0.0, 40.0], noise=sign * noise, points=count)
        assert end.weights.shape == (2, 1, 4)
        across = np.linalg.norm(end.weights[-1, 0, 1:]) / abs(end.weights[-1, 0, 0])
        assert 1 / across == pytest.approx(point.saturation * np.sqrt(count) / np.linalg.norm(noise), rel=0.03)
        # Here C₁ < 0 and ω₁ < 0, so β > 0 and the weights across end up along the noise.
        aligned = end.weights[-1, 0, 1:] @ noise / np.linalg.norm(end.weights[-1, 0, 1:]) / np.linalg.norm(noise)
        assert aligned * sign > 0.999


def test_the_flow_conserves_what_homogeneity_conserves() -> None:
    start = random_neurons(6, 3, seed=4)
    path = neuron_flow(start, np.linspace(0, 10, 5), noise=np.array([0.5, -1.0]), points=500)
    kept = path.outputs**2 - (path.weights**2).sum(-1) - path.biases**2
    np.testing.assert_allclose(kept - kept[0], 0, atol=1e-6 * (path.outputs**2).max())
    assert (path.outputs[-1] != path.outputs[0]).all()
    np.testing.assert_array_equal(path.weights[0], start.weights)


def test_without_noise_the_alignment_grows_at_the_written_rate() -> None:
    point = attractors(Layers(), 5)[0]
    start = Neurons(np.array([[-1.0, 0.1, 0.0, 0.0, 0.0]]), np.array([0.25]), np.array([1.2]))
    path = neuron_flow(start, [15.0, 17.0])
    ratio = np.abs(path.weights[:, 0, 0] / path.weights[:, 0, 1])
    assert np.log(ratio[1] / ratio[0]) / 2 == pytest.approx(point.amplification_rate, rel=1e-3)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: population_averages(np.ones((2, 1)), np.ones(2)), "at least 2"),
        (lambda: population_averages(np.ones((2, 3)), np.ones(3)), "biases"),
        (lambda: population_averages(np.zeros((1, 3)), np.ones(1)), "all weights zero"),
        (lambda: neuron_flow(random_neurons(2, 2, 0)._replace(outputs=np.ones(3)), [1.0]), "output weights"),
        (lambda: neuron_flow(random_neurons(2, 2, 0), [2.0, 1.0]), "rising"),
        (lambda: neuron_flow(random_neurons(2, 2, 0), [1.0], noise=np.ones(1)), "pass both"),
    ],
)
def test_impossible_questions_are_refused(call, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()
