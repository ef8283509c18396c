"""The alpine world: deterministic, with known growth, classes where they belong, and labels that miss a known share."""

import numpy as np
import pytest

from polariscope.worlds.renderers.aerial import BACKGROUND, CLASSES, LANDSLIDE, MANAGEMENT, SHEET, TRAIL, Aerial


@pytest.fixture(scope="module")
def world() -> Aerial:
    return Aerial(valleys=2, tiles=48)


@pytest.fixture(scope="module")
def masks(world: Aerial) -> np.ndarray:
    return world.target_of(np.arange(len(world))).reshape(2, 5, 48, 48, 48)


@pytest.mark.spec("000/F041")
def test_a_tile_is_the_same_alone_and_among_others(world: Aerial) -> None:
    numbers = np.array([7, 300, 411])
    together = world.observe(numbers)
    assert (together[1] == world.observe([300])[0]).all()
    assert (world.target_of(numbers)[2] == world.target_of([411])[0]).all()
    assert (together != Aerial(valleys=2, tiles=48, seed=1).observe(numbers)).mean() > 0.5


@pytest.mark.spec("000/F041")
def test_erosion_grows_by_the_planted_share_and_never_leaves(masks: np.ndarray) -> None:
    eroded = masks != BACKGROUND
    assert (eroded[:, :-1] <= eroded[:, 1:]).all(), "sites come and stay"
    areas = eroded.sum(axis=(0, 2, 3, 4))
    assert 1.0 < areas[-1] / areas[0] - 1 < 1.6, "planted 1.33"
    shares = [(masks == kind).mean() for kind in range(len(CLASSES))]
    assert min(shares[:4]) > 0.002
    assert shares[BACKGROUND] > 0.7


@pytest.mark.spec("000/F041")
def test_classes_lie_where_they_belong(world: Aerial, masks: np.ndarray) -> None:
    scene = world.scene(world.grid.to_factors(np.arange(4 * 48, 5 * 48)))
    last = masks[0, -1]
    middle = np.median(scene.steepness, axis=(1, 2), keepdims=True)
    steep = (scene.steepness > middle)[last == LANDSLIDE].mean()
    assert steep > 0.7
    assert not (last[scene.elevation >= 0.4] == MANAGEMENT).any()
    # A trail follows the contour: heights along it vary less than across as large a patch of ground.
    trails = [m == TRAIL for m in last]
    spread = [np.std(h[t]) / np.std(h) for h, t in zip(scene.heights, trails, strict=True) if t.sum() > 15]
    assert np.median(spread) < 0.6


@pytest.mark.spec("000/F041")
def test_colours_tell_soil_from_grass_and_rocks_are_unlabelled(world: Aerial, masks: np.ndarray) -> None:
    numbers = np.arange(48)
    images, first = world.observe(numbers).astype(float), masks[0, 0]
    red_less_green = images[:, 0] - images[:, 1]
    assert red_less_green[first == LANDSLIDE].mean() > red_less_green[first == BACKGROUND].mean() + 20
    scene = world.scene(world.grid.to_factors(numbers))
    brightest = images[:, :3].max(axis=1)
    grey = (np.ptp(images[:, :3], axis=1) < 0.2 * brightest) & (brightest > 70) & (first == BACKGROUND)
    assert grey[scene.elevation > 0.6].mean() > 2 * grey[scene.elevation < 0.4].mean()


@pytest.mark.spec("000/F118")
def test_the_analysis_misses_the_planted_share_differently_every_year() -> None:
    """Measured on trails, whose rim it keeps: the share of pixels in two analyses of the same ground."""
    missed = 0.3
    settings = {"valleys": 1, "tiles": 160, "growth": 0.0, "missed": missed}
    truth = Aerial(**settings).target_of(np.arange(160))
    analysed = Aerial(**settings, labels="analysed")
    first, second = (analysed.target_of(np.arange(160) + 160 * year) for year in (0, 1))
    trails = truth == TRAIL
    assert (first[trails] != TRAIL).mean() == pytest.approx(missed, abs=0.05)
    both = ((first == TRAIL) & (second == TRAIL))[trails].mean()
    assert both == pytest.approx((1 - missed) ** 2, abs=0.06), "years are independent experts"
    assert (first == SHEET).sum() < (1 - missed + 0.1) * (truth == SHEET).sum(), "and it draws sheets too small"


@pytest.mark.spec("000/F040")
def test_areas_do_not_depend_on_the_resolution() -> None:
    coarse = Aerial(valleys=1, tiles=64, years=(2016,))
    fine = Aerial(valleys=1, tiles=64, years=(2016,), size=96, pixel=0.25)
    for kind in (LANDSLIDE, SHEET, TRAIL, MANAGEMENT):
        areas = [(w.target_of(np.arange(64)) == kind).sum() * w.pixel**2 for w in (coarse, fine)]
        assert areas[1] == pytest.approx(areas[0], rel=0.25)


def test_bad_settings_are_refused() -> None:
    for settings, words in (
        ({"size": 8}, "16 pixels a side"),
        ({"years": (2004, 2000)}, "the years must increase"),
        ({"missed": 2.0}, "from 0 to 1"),
    ):
        with pytest.raises(ValueError, match=words):
            Aerial(**settings)
