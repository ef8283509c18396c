import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from polariscope.worlds import World, worlds
from polariscope.worlds.renderers.digits import Digits


def plain(digit: int = 2, **values: float) -> np.ndarray:
    """Factors of an upright digit in the middle, but for the values named."""
    names = [factor.name for factor in Digits().factors]
    row = np.array([digit, 0, 0, 1, 1, 0, 0, 1.2], dtype=float)
    for name, value in values.items():
        row[names.index(name)] = value
    return row[None]


def image(digit: int = 2, size: int = 28, **values: float) -> np.ndarray:
    return Digits(size=size).render(plain(digit, **values))[0, 0] / 255.0


def centre(picture: np.ndarray) -> tuple[float, float]:
    y, x = np.indices(picture.shape)
    return float((x * picture).sum() / picture.sum()), float((y * picture).sum() / picture.sum())


def extent(picture: np.ndarray) -> tuple[int, int]:
    """Width and height of the ink."""
    return int((picture.max(0) > 0).sum()), int((picture.max(1) > 0).sum())


def test_it_is_a_world_by_name() -> None:
    world = worlds.build({"name": "digits", "count": 12, "size": 20})
    assert isinstance(world, World)
    assert len(world) == 12
    observations = world.observe(np.arange(12))
    assert observations.shape == (12, *world.shape) == (12, 1, 20, 20)
    assert observations.dtype == np.uint8
    assert world.factors_of([3]).shape == (1, len(world.factors))
    assert [f.name for f in world.factors if f.size] == ["digit"]


@pytest.mark.spec("001b/D-01")
def test_observation_depends_on_seed_and_number_alone() -> None:
    long, short = Digits(count=300, seed=3), Digits(count=40, seed=3)
    order = np.random.default_rng(0).permutation(300)
    everything = long.observe(np.arange(300))
    np.testing.assert_array_equal(long.observe(order), everything[order])
    np.testing.assert_array_equal(short.observe([7])[0], everything[7])
    np.testing.assert_array_equal(short.factors_of(np.arange(40)), long.factors_of(np.arange(40)))
    assert (Digits(count=40, seed=4).observe(np.arange(40)) != everything[:40]).any(axis=(1, 2, 3)).all()


@pytest.mark.spec("001b/D-01")
def test_near_binary_and_as_bright_as_the_pilot() -> None:
    x = Digits(count=2000).observe(np.arange(2000)) / 255.0
    assert 0.11 < x.mean() < 0.14
    assert 0.065 < ((x > 0.1) & (x < 0.9)).mean() < 0.095
    assert 8.4 < np.median(np.linalg.norm(x.reshape(len(x), -1), axis=1)) < 9.6
    assert x.max(axis=(1, 2, 3)).min() == 1.0


@pytest.mark.spec("001b/D-01")
def test_nearest_neighbour_tells_the_digits_apart() -> None:
    train, test = Digits(count=3000, seed=0), Digits(count=1000, seed=1)
    x, y = train.observe(np.arange(3000)).reshape(3000, -1) / 255.0, train.factors_of(np.arange(3000))[:, 0]
    classifier = KNeighborsClassifier(1).fit(x, y)
    accuracy = classifier.score(
        test.observe(np.arange(1000)).reshape(1000, -1) / 255.0, test.factors_of(np.arange(1000))[:, 0]
    )
    assert accuracy >= 0.95
    assert set(y) == set(range(10))


@pytest.mark.spec("001b/D-01")
def test_factors_follow_the_given_distributions() -> None:
    world = Digits(count=20_000, seed=5)
    values = dict(zip([f.name for f in world.factors], world.factors_of(np.arange(20_000)).T, strict=True))
    np.testing.assert_allclose(np.bincount(values["digit"].astype(int)) / 20_000, 0.1, atol=0.01)
    for name, sd in {"rotation": np.deg2rad(8), "shear": 0.15, "shift_x": 0.04, "shift_y": 0.04}.items():
        assert values[name].mean() == pytest.approx(0, abs=0.04 * sd)
        assert values[name].std() == pytest.approx(sd, rel=0.03)
    for name, (low, high) in {"scale_x": (0.75, 1.1), "scale_y": (0.75, 1.1), "thickness": (0.8, 1.7)}.items():
        assert low <= values[name].min() < values[name].max() <= high
        assert values[name].mean() == pytest.approx((low + high) / 2, rel=0.01)
    np.testing.assert_allclose(np.corrcoef(np.stack(list(values.values()))), np.eye(8), atol=0.03)


def test_rotation_turns_the_image_clockwise() -> None:
    np.testing.assert_allclose(image(5, rotation=np.pi / 2), np.rot90(image(5), -1), atol=2 / 255)


def test_shift_moves_the_centre() -> None:
    x, y = centre(image(3))
    moved_x, moved_y = centre(image(3, shift_x=0.1, shift_y=-0.05))  # 0.1 of a box of 20 pixels
    assert moved_x - x == pytest.approx(2, abs=0.01)
    assert moved_y - y == pytest.approx(-1, abs=0.01)


def test_scales_stretch_one_axis_each() -> None:
    width, height = extent(image(8, size=112))
    narrow = extent(image(8, size=112, scale_x=0.5))
    low = extent(image(8, size=112, scale_y=0.5))
    assert narrow[0] < 0.65 * width
    assert narrow[1] == height
    assert low[1] < 0.65 * height
    assert low[0] == width


def test_shear_leans_to_the_right_and_keeps_the_rows() -> None:
    upright, leaning = image(1), image(1, shear=0.4)
    assert centre(leaning[:10])[0] - centre(upright[:10])[0] > 2
    assert centre(leaning[18:])[0] - centre(upright[18:])[0] < -2
    assert extent(leaning)[1] == extent(upright)[1]


def test_thickness_is_half_the_width_of_the_pen() -> None:
    # The foot of the 1 is almost vertical, so the ink of a row is the width of the pen.
    for thickness in (0.8, 1.2, 1.7):
        assert image(1, thickness=thickness)[16].sum() == pytest.approx(2 * thickness, rel=0.02)


def test_a_larger_image_shows_the_same_digit() -> None:
    fine = image(6, size=112).reshape(28, 4, 28, 4).mean(axis=(1, 3))
    assert np.abs(fine - image(6)).mean() < 0.01


def test_ink_is_where_an_exact_distance_says() -> None:
    # The 7 starts with a straight bar from (22, 6) to (78, 6) hundredths: above it, the distance is the height.
    picture = image(7)
    bar = 4 + 20 * 0.06
    rows = np.arange(8) + 0.5
    np.testing.assert_allclose(picture[:5, 12], np.clip(1.2 + 0.5 - np.abs(rows[:5] - bar), 0, 1), atol=1 / 255)


def test_jitter_alone_is_style() -> None:
    world = Digits(count=50)
    drawn, clean = world.observe(np.arange(50)) / 255.0, world.render(world.factors_of(np.arange(50))) / 255.0
    change = np.abs(drawn - clean).mean(axis=(1, 2, 3))
    assert change.min() > 0
    assert change.max() < 0.08


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: Digits(count=0), "count is 0"),
        (lambda: Digits(size=4), "size is 4"),
        (lambda: Digits().render(np.zeros((2, 3))), r"shape \(n, 8\)"),
        (lambda: Digits().render(plain(11)), "whole numbers from 0 to 9"),
    ],
)
def test_what_cannot_be_drawn_is_refused(call, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()
