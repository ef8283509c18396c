"""The searches against published visit lists, counts of trainings, and the closed form of the linear VAE."""

import math

import pytest

from polariscope.dimension.search import Search, binary_search, fondue, fondue_over_beta
from polariscope.measures.renyi import gaussian_code_entropy, truncate
from polariscope.theory.linear_vae import solve, trace_gaps

SPECTRUM = (5.0, 3.0, 1.5, 0.8, 0.3, 0.1)


def threshold_at(largest: int):
    """A statistic that passes up to ``largest``."""
    return lambda n: 0.5 if n <= largest else 1.5


@pytest.mark.spec("002/D06")
@pytest.mark.parametrize(
    ("start", "answer", "visited"),
    [
        (4, 19, (4, 8, 16, 32, 24, 20, 18, 19)),
        (11, 11, (11, 22, 16, 13, 12)),
        (11, 10, (11, 5, 10)),
        (22, 33, (22, 44, 33, 38, 35, 34)),
        (22, 22, (22, 44, 33, 27, 24, 23)),
    ],
)
def test_fondue_visits_what_the_published_algorithm_visits(start: int, answer: int, visited: tuple[int, ...]) -> None:
    result = fondue(threshold_at(answer), start)
    assert (result.answer, result.visited) == (answer, visited)


@pytest.mark.spec("002/D06")
@pytest.mark.parametrize(
    ("start", "answer", "models"),
    [(22, 32, 7), (4, 26, 8), (22, 49, 8), (4, 10, 6), (11, 6, 5), (4, 7, 4), (4, 8, 6)],
)
def test_fondue_trains_as_many_models_as_published(start: int, answer: int, models: int) -> None:
    assert len(fondue(threshold_at(answer), start).visited) == models


SIMULATED = {
    5: (7, 7, 8, 9, 6, 6),
    19: (3, 6, 7, 6, 6, 6),
    22: (6, 5, 7, 6, 4, 5),
    39: (4, 7, 8, 7, 7, 7),
    74: (8, 8, 8, 8, 7, 7),
    94: (9, 8, 9, 9, 6, 8),
    116: (9, 9, 8, 8, 8, 8),
    145: (8, 8, 8, 8, 8, 8),
    180: (9, 8, 10, 9, 7, 8),
    182: (9, 8, 10, 9, 7, 8),
}


@pytest.mark.spec("002/D06")
@pytest.mark.parametrize("start", SIMULATED)
def test_models_trained_from_random_starts(start: int) -> None:
    """Spec 002, section 13: for answers 18, 19 (Symsol), 32, 33 (CelebA) and 10, 11 (dSprites)."""
    counts = tuple(len(fondue(threshold_at(n), start).visited) for n in (18, 19, 32, 33, 10, 11))
    assert counts == SIMULATED[start]


@pytest.mark.spec("002/D06")
def test_fondue_finds_every_answer_from_every_start() -> None:
    """From 3 on at most 16 models are trained; starts of 1 and 2 have one and two more doublings to make."""
    most: dict[int, int] = {}
    for start in range(1, 201):
        for answer in range(300):
            result = fondue(threshold_at(answer), start)
            assert result.answer == answer
            assert not result.capped
            most[start] = max(most.get(start, 0), len(result.visited))
    assert (most.pop(1), most.pop(2), max(most.values())) == (18, 17, 16)


def test_every_n_is_asked_for_once_and_as_an_integer() -> None:
    asked = []

    def statistic(n: int) -> float:
        asked.append(n)
        return n - 9.5

    result = fondue(statistic, 3)
    assert asked == list(result.visited)
    assert all(type(n) is int for n in asked)
    assert len(result.log) > len(asked)  # looks at what is known are logged, not trained again


def test_the_log_tells_bounds_and_values() -> None:
    log = fondue(threshold_at(3), 2).log
    assert [(s.n, s.value, s.lower, s.upper) for s in log] == [
        (2, 0.5, 0, math.inf),
        (4, 1.5, 2, math.inf),
        (3, 0.5, 2, 4),
        (4, 1.5, 3, 4),
    ]


@pytest.mark.spec("002/D06")
def test_edges_of_fondue() -> None:
    assert fondue(threshold_at(5), 0) == Search(0, (), (), 1.0, False)
    assert fondue(threshold_at(0), 7).answer == 0
    assert 0 not in fondue(threshold_at(0), 7).visited
    capped = fondue(lambda n: 0.0, 3, cap=20)
    assert (capped.answer, capped.visited, capped.capped) == (20, (3, 6, 12, 20), True)
    at_cap = fondue(threshold_at(19), 3, cap=20)
    assert (at_cap.answer, at_cap.capped) == (19, False)
    assert fondue(lambda n: 1.0, 1, threshold=1.0, cap=4).answer == 4  # equality passes


@pytest.mark.parametrize("start", [1, 2, 5, 13, 40])
def test_a_statistic_that_is_not_monotone_still_ends(start: int) -> None:
    result = fondue(lambda n: 2.0 if n % 3 == 0 else 0.0, start, cap=100)
    assert len(result.visited) <= 16
    assert result.answer == 0 or result.answer % 3 != 0


def test_bad_searches_are_refused() -> None:
    with pytest.raises(ValueError, match="between 0 and its cap of 10"):
        fondue(threshold_at(3), 11, cap=10)
    with pytest.raises(TypeError):
        fondue(threshold_at(3), 2.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at 2 latents is NaN"):
        fondue(lambda n: math.nan, 2)
    with pytest.raises(ValueError, match="1 <= low < high"):
        binary_search(threshold_at(3), 5, 5)


@pytest.mark.spec("002/D07")
@pytest.mark.parametrize(("theta", "answer"), [(0.5, 3), (0.05, 6)])
@pytest.mark.parametrize("start", [1, 3, 6, 12])
def test_fondue_on_the_closed_form_linear_model(theta: float, answer: int, start: int) -> None:
    gaps = trace_gaps(SPECTRUM, 24, gamma=theta)
    assert fondue(lambda n: gaps[n - 1], start).answer == answer


@pytest.mark.spec("002/D16")
def test_a_stronger_prior_never_asks_for_more_latents_in_closed_form() -> None:
    betas = (0.1, 0.25, 0.5, 1, 2, 4, 8, 16)
    answers = [fondue(lambda n, b=beta: trace_gaps(SPECTRUM, 12, 0.5, b)[n - 1], 3).answer for beta in betas]
    assert answers == sorted(answers, reverse=True)
    assert (answers[0], answers[-1]) == (6, 1)  # full collapse leaves a gap of exactly 1 at n = 1, which t = 1 admits


@pytest.mark.spec("002/D11")
@pytest.mark.parametrize(("answer", "models"), [(19, 8), (11, 8), (32, 8), (23, 8), (15, 7), (18, 7)])
def test_binary_search_trains_seven_or_eight_models(answer: int, models: int) -> None:
    result = binary_search(threshold_at(answer))
    assert (result.answer, len(result.visited), result.capped) == (answer, models, False)


@pytest.mark.spec("002/D11")
def test_binary_search_never_looks_at_its_upper_end() -> None:
    result = binary_search(lambda n: 0.0)
    assert (result.answer, result.capped) == (199, True)
    assert 200 not in result.visited
    assert binary_search(threshold_at(0)).answer == 0
    assert [binary_search(threshold_at(n)).answer for n in range(200)] == list(range(200))


@pytest.mark.spec("002/D09")
@pytest.mark.parametrize("start", [1, 4, 11, 22])
def test_information_bottleneck_answers_nine_for_white_codes_when_saturated(start: int) -> None:
    """With I(x; x̂) stuck at log2(100) the answer says nothing about the data (Spec 002, section 12.3)."""
    saturated = truncate(math.log2(100))

    def gap(n: int) -> float:
        return round(truncate(gaussian_code_entropy(n)) - saturated, 2)

    assert fondue(gap, start, threshold=-0.01).answer == 9
    assert binary_search(gap, threshold=-0.01).answer == 9


def test_largest_beta_in_closed_form() -> None:
    """With n = 5 all active the gap is βγ Σ 1/λ, so it is 1 at β = 1/(γ Σ 1/λ)."""
    exact = 1 / (0.5 * sum(1 / value for value in SPECTRUM[:5]))
    result = fondue_over_beta(lambda beta: solve(SPECTRUM, 5, 0.5, beta).trace_gap, precision=1.001)
    assert result.answer is not None
    assert exact / 1.001 < result.answer <= exact
    assert all((value <= 1) == (beta <= exact) for beta, value in result.log)


@pytest.mark.spec("002/D20")
def test_largest_beta_of_four_latents_is_that_of_the_table() -> None:
    """Spectrum of Spec 002, section 5.5, with γ = 0.5 and n = 4: β* = 0.8163. One latent less allows a larger β."""
    answers = {}
    for latents in (3, 4):
        search = fondue_over_beta(lambda beta, n=latents: solve(SPECTRUM, n, 0.5, beta).trace_gap, precision=1.00001)
        answers[latents] = search.answer
    assert answers[4] == pytest.approx(0.8163, abs=5e-5)
    assert answers[3] == pytest.approx(1 / (0.5 * 1.2), rel=1e-4)


def test_edges_of_the_search_over_beta() -> None:
    assert fondue_over_beta(lambda beta: 2.0).answer is None
    everything = fondue_over_beta(lambda beta: 0.0, high=8.0)
    assert (everything.answer, everything.capped) == (8.0, True)
    with pytest.raises(ValueError, match="0 < low < high"):
        fondue_over_beta(lambda beta: 0.0, low=2.0, high=1.0)
    with pytest.raises(ValueError, match="NaN"):
        fondue_over_beta(lambda beta: math.nan)
