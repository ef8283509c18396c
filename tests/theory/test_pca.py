"""Principal components against their definition and scikit-learn."""

import numpy as np
import pytest
from sklearn.decomposition import PCA as Reference

from polariscope.theory.pca import pca


@pytest.fixture(scope="module")
def data():
    return np.random.default_rng(0).standard_normal((300, 6)) @ np.diag([5, 3, 2, 1, 0.5, 0.1]) + 7


@pytest.mark.spec("003/F3-001")
def test_components_match_scikit_learn_and_the_error_is_what_was_dropped(data) -> None:
    reference = Reference(n_components=3).fit(data)
    found = pca(data, 3)
    np.testing.assert_allclose(found.variances, reference.explained_variance_)
    np.testing.assert_allclose(np.abs(found.directions.T @ reference.components_.T), np.eye(3), atol=1e-9)
    error = ((data - found.decode(found.encode(data))) ** 2).sum() / (len(data) - 1)
    assert error == pytest.approx(found.dropped.sum())
    assert (np.diff([*found.variances, *found.dropped]) <= 0).all()


@pytest.mark.spec("003/F3-096")
def test_every_projection_of_a_square_has_the_same_variance() -> None:
    side = np.linspace(-1, 1, 201)
    square = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
    angles = np.linspace(0, np.pi, 60)
    variances = np.var(square @ np.stack([np.cos(angles), np.sin(angles)]), axis=0)
    np.testing.assert_allclose(variances, variances[0], rtol=1e-9)
    stretched = np.var(square @ np.diag([1.2, 1]) @ np.stack([np.cos(angles), np.sin(angles)]), axis=0)
    assert stretched.max() / stretched.min() == pytest.approx(1.44, rel=1e-2)


def test_more_columns_than_rows(data) -> None:
    wide = data[:4]
    found = pca(wide)
    np.testing.assert_allclose(found.decode(found.encode(wide)), wide, atol=1e-9)
    np.testing.assert_allclose(found.directions.T @ found.directions, np.eye(6), atol=1e-9)


@pytest.mark.parametrize(("x", "components"), [(np.zeros((1, 3)), 1), (np.zeros((5, 3)), 4), (np.zeros(5), 1)])
def test_bad_input_is_refused(x, components) -> None:
    with pytest.raises(ValueError, match="components"):
        pca(x, components)
