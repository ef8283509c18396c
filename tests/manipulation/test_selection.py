import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polariscope.manipulation import extremes, train_restarts
from polariscope.nets.architecture import MLP
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.training import RunConfig, TrainingConfig
from polariscope.worlds.points.synthetic import Plane


@pytest.mark.spec("003/F3-060")
@given(st.lists(st.floats(-1, 1), min_size=2, max_size=12), st.integers(1, 6))
def test_extremes_are_the_highest_and_the_lowest(scores: list[float], count: int) -> None:
    if 2 * count > len(scores):
        with pytest.raises(ValueError, match=f"at least {2 * count} models"):
            extremes(scores, count)
        return
    result = extremes(scores, count)
    assert len({*result.best, *result.worst}) == 2 * count
    values = np.array(scores)
    assert values[result.best[0]] == values.max()
    assert values[result.worst[0]] == values.min()
    np.testing.assert_array_equal(values[list(result.best)], np.sort(values)[::-1][:count])
    np.testing.assert_array_equal(values[list(result.worst)], np.sort(values)[:count])


def test_scores_without_a_value_are_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        extremes([0.1, float("nan")])


CONFIG = RunConfig(
    Plane(count=300),
    BetaVAE(beta=0.05),
    AutoencoderConfig(latents=2, architecture=MLP((8,), (8,)), likelihood="gaussian", variance=0.5),
    TrainingConfig(steps=15, seed=5, evaluate_every=0),
)


@pytest.mark.spec("003/F3-060")
def test_restarts_are_scored_by_any_measure_or_function() -> None:
    by_name = train_restarts(CONFIG, 3, "neighbour-score")
    assert [one.seed for one in by_name] == [5, 6, 7]
    assert len({one.score for one in by_name}) == 3
    assert all(len(one.mean_var) == 2 for one in by_name)
    by_function = train_restarts(CONFIG, 3, lambda rep: float(-rep.mean.var()))
    assert all(one.score < 0 for one in by_function)
    first, again = by_name[0].model.state_dict(), by_function[0].model.state_dict()
    assert all(np.array_equal(first[name], again[name]) for name in first)


@pytest.mark.spec("003/F3-060")
def test_a_measure_for_which_less_is_better_is_turned_round() -> None:
    from polariscope.measures.measure import measures

    lower = [name for name in measures.names() if measures.get(name).higher_is_better is False]
    assert lower
    (restart,) = train_restarts(CONFIG, 1, lower[0])
    from polariscope.representation import represent

    seen = represent(restart.model, CONFIG.world, count=5000, seed=5)
    assert restart.score == pytest.approx(-measures.get(lower[0])().value(seen))
    with pytest.raises(ValueError, match="did you mean 'mig'"):
        train_restarts(CONFIG, 1, "migg")
