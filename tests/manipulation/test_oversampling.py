import numpy as np
import pytest

from polariscope.manipulation import balance, g_smote, smote
from polariscope.manipulation.oversampling import simplex_weights


@pytest.mark.spec("003/F3-086")
@pytest.mark.parametrize("k", [2, 3, 5])
def test_simplex_weights_are_uniform(k: int) -> None:
    weights = simplex_weights(200_000, k, seed=1)
    np.testing.assert_allclose(weights.sum(1), 1)
    np.testing.assert_allclose(weights.mean(0), 1 / k, atol=3e-3)
    np.testing.assert_allclose(weights.var(0), (k - 1) / (k**2 * (k + 1)), rtol=0.02)


def clusters() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    labels = np.repeat([0, 1], [90, 10])
    return generator.normal(size=(100, 2)) * 0.3 + 10 * labels[:, None], labels


@pytest.mark.spec("003/F3-086")
def test_new_codes_keep_to_their_label() -> None:
    codes, labels = clusters()
    for made, kinds in (smote(codes, labels, 50), g_smote(codes, labels, 50, k=3)):
        assert made.shape == (100, 2)
        np.testing.assert_array_equal(kinds, np.repeat([0, 1], 50))
        assert (np.abs(made - 10 * kinds[:, None]) < 3).all()  # nothing between the clusters
    _, kinds = g_smote(codes, np.where(labels, "rare", "common"), 2)
    assert kinds.tolist() == ["common", "common", "rare", "rare"]


@pytest.mark.spec("003/F3-086")
def test_two_corners_make_the_segment_to_the_nearest_neighbour() -> None:
    line = np.array([[0.0, 0.0], [1.0, 0.0], [5.0, 5.0], [5.0, 6.0]])
    made, _ = g_smote(line, np.zeros(4, int), 400, k=2, seed=3)
    low, high = made[made[:, 0] < 2], made[made[:, 0] > 2]
    assert len(low) + len(high) == 400
    assert (low[:, 1] == 0).all()
    assert 0 <= low[:, 0].min() < 0.05
    assert 0.95 < low[:, 0].max() <= 1
    np.testing.assert_allclose(high[:, 0], 5)
    assert high[:, 1].std() == pytest.approx(1 / np.sqrt(12), abs=0.04)


@pytest.mark.spec("003/F3-086")
def test_three_corners_lie_in_the_triangle_of_the_nearest() -> None:
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [50.0, 50.0], [51.0, 50.0], [50.0, 51.0]])
    made, _ = g_smote(corners, np.zeros(6, int), 2000, k=3, seed=1)
    near = made[made[:, 0] < 25]
    assert (near >= 0).all()
    assert (near.sum(1) <= 1 + 1e-12).all()
    np.testing.assert_allclose(near.mean(0), 1 / 3, atol=0.03)
    np.testing.assert_allclose(near.var(0), 1 / 18, rtol=0.15)


def test_smote_takes_one_of_several_neighbours() -> None:
    star = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.1], [-1.2, 0.0]])
    made, _ = smote(star, np.zeros(4, int), 500, pool=3)
    on_an_arm = np.isclose(np.abs(made).min(axis=1), 0)
    assert 0.3 < on_an_arm.mean() < 0.9  # from the middle along all arms, and between the arms' ends


@pytest.mark.spec("003/F3-086")
def test_balancing_fills_up_the_rare_labels() -> None:
    codes, labels = clusters()
    made, kinds = balance(codes, labels, seed=2)
    assert kinds.tolist() == [1] * 80
    again, _ = balance(codes, labels, seed=2)
    np.testing.assert_array_equal(made, again)
    assert len(balance(codes, np.arange(100) % 2)[0]) == 0


def test_too_few_examples_are_refused() -> None:
    with pytest.raises(ValueError, match="label 1 has 1 examples"):
        g_smote(np.eye(5), [0, 0, 0, 0, 1], 3)
    with pytest.raises(ValueError, match="k of at least 2"):
        g_smote(np.eye(5), [0] * 5, 3, k=1)
    with pytest.raises(ValueError, match="labels"):
        smote(np.eye(5), [0] * 4, 3)
