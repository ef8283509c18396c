"""Maps as layers: read from the folder of a run that may be a stranger's."""

import json
import shutil

import numpy as np
import pytest

from polariscope.mapping.map_layers import HEAT, map_layers


@pytest.fixture
def maps(tmp_path):
    """A map without coordinates of 2 x 3 pixels, of three classes."""
    image = tmp_path / "image.npy"
    np.save(image, np.arange(18, dtype=np.uint8).reshape(3, 2, 3))
    folder = tmp_path / "maps" / "place_2010"
    folder.mkdir(parents=True)
    np.save(folder / "map.npy", np.array([[0, 1, 2], [2, 2, 255]], np.uint8))
    shares = np.zeros((3, 2, 3), np.uint8)
    shares[1] = [[0, 250, 125], [62, 0, 255]]
    np.save(folder / "probabilities.npy", shares)
    record = {"names": ["bare", "forest", "rest"], "background": 2, "year": 2010, "region": "place"}
    (folder / "map.json").write_text(json.dumps(record | {"image": str(image)}))
    return tmp_path / "maps"


def test_layers_are_those_of_the_map(maps):
    (one,) = map_layers(maps)
    assert (one.name, one.region, one.year, one.classes) == ("place_2010", "place", 2010, [0, 1])
    assert one.areas == ([1.0, 1.0, 3.0], "pixels")
    bare = one.class_picture(0)
    assert bare.shape == (2, 3, 4)
    assert (bare[..., 3] > 0).tolist() == [[True, False, False], [False, False, False]]
    assert tuple(bare[0, 0, :3]) == one.colour(0)
    heat = one.probability_picture(1)
    assert tuple(heat[0, 0, :3]) == tuple(HEAT[0])
    assert tuple(heat[0, 1, :3]) == tuple(HEAT[-1])
    assert tuple(heat[0, 2, :3]) == tuple(HEAT[2])
    assert heat[..., 3].tolist() == [[255, 255, 255], [255, 255, 0]]
    assert one.image_picture()[0, 1].tolist() == [1, 7, 13]
    with pytest.raises(ValueError, match="numbered 0 to 2; got 3"):
        one.class_picture(3)


def test_years_of_a_place_are_in_order_and_records_of_earlier_versions_are_read(maps):
    earlier = maps / "place_1999"
    shutil.copytree(maps / "place_2010", earlier)
    record = json.loads((earlier / "map.json").read_text()) | {"year": 1999, "names": ["bare", "background", "rest"]}
    del record["background"]
    (earlier / "map.json").write_text(json.dumps(record | {"image": "gone.tif"}))
    first, second = map_layers(maps)
    assert (first.year, second.year) == (1999, 2010)
    assert first.classes == [0, 2]
    with pytest.raises(ValueError, match="was moved or deleted"):
        first.image_picture()


def test_links_lead_nowhere_and_damaged_records_are_a_sentence(maps, tmp_path):
    (tmp_path / "away").symlink_to(maps)
    assert map_layers(tmp_path / "away") == []
    (maps / "linked").symlink_to(maps / "place_2010")
    assert len(map_layers(maps)) == 1
    (maps / "place_2010" / "map.json").write_text('{"names": 3}')
    with pytest.raises(ValueError, match="map.json"):
        map_layers(maps)
    assert map_layers(tmp_path / "none") == []
