"""Principal components against their definition and scikit-learn."""

import numpy as np
import pytest
from sklearn.decomposition import PCA as Reference

from polariscope.theory.pca import pca, projected_variance
from polariscope.worlds.points.synthetic import SquareLinear


@pytest.fixture(scope="module")
def data():
    return np.random.default_rng(0).standard_normal((300, 6)) @ np.diag([5, 3, 2, 1, 0.5, 0.1]) + 7


@pytest.mark.spec("003/F3-001")
def test_components_match_scikit_learn_and_the_error_is_what_was_dropped(data) -> None:
    reference = Reference(n_components=3).fit(data)
    result = pca(data, 3)
    np.testing.assert_allclose(result.variances, reference.explained_variance_)
    np.testing.assert_allclose(np.abs(result.directions.T @ reference.components_.T), np.eye(3), atol=1e-9)
    error = ((data - result.decode(result.encode(data))) ** 2).sum() / (len(data) - 1)
    assert error == pytest.approx(result.dropped.sum())
    assert (np.diff([*result.variances, *result.dropped]) <= 0).all()


@pytest.mark.spec("003/F3-096")
@pytest.mark.parametrize(("stretch", "flat"), [(1.0, True), (1.2, False), (2.0, False)])
def test_every_projection_of_a_square_has_the_same_variance(stretch: float, flat: bool) -> None:
    """The formula against points: a fine grid of them on the square, and its principal components."""
    side = (np.arange(200) + 0.5) / 200 - 0.5
    square = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2) * [stretch, 1]
    angles = np.linspace(0, np.pi, 61)
    along = np.stack([np.cos(angles), np.sin(angles)])
    variances = projected_variance(np.diag([stretch**2, 1]) / 12, along)
    np.testing.assert_allclose(variances, np.var(square @ along, axis=0), rtol=1e-4)
    assert variances.max() / variances.min() == pytest.approx(stretch**2)
    assert (np.ptp(variances) < 1e-12) == flat
    np.testing.assert_allclose(pca(square).variances, np.array([stretch**2, 1]) / 12, rtol=1e-4)


@pytest.mark.spec("003/F3-096")
def test_principal_axes_of_a_square_are_those_of_the_sample_and_of_a_rectangle_its_own() -> None:
    def angles(stretch: float) -> np.ndarray:
        """Of the first principal axis to the first side, for samples of their own."""
        result = []
        for seed in range(20):
            world = SquareLinear(count=4000, stretch=stretch, seed=seed)
            sides = world.matrix / np.linalg.norm(world.matrix, axis=0)
            first, second = np.abs(sides.T @ pca(world.observe(np.arange(4000)), 1).directions[:, 0])
            result.append(np.degrees(np.arctan2(second, first)))
        return np.array(result)

    assert np.ptp(angles(1.0)) > 60
    assert angles(1.2).max() < 10


def test_more_columns_than_rows(data) -> None:
    wide = data[:4]
    result = pca(wide)
    np.testing.assert_allclose(result.decode(result.encode(wide)), wide, atol=1e-9)
    np.testing.assert_allclose(result.directions.T @ result.directions, np.eye(6), atol=1e-9)


@pytest.mark.parametrize(("x", "components"), [(np.zeros((1, 3)), 1), (np.zeros((5, 3)), 4), (np.zeros(5), 1)])
def test_bad_input_is_refused(x, components) -> None:
    with pytest.raises(ValueError, match="components"):
        pca(x, components)
