import json
from pathlib import Path

import numpy as np
import pytest
import torch

from polariscope.manipulation import Learned, LocalStructure, Noise, apply, load_bundle, save_bundle
from polariscope.manipulation.folding import shifted
from polariscope.nets.architecture import MLP
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.testing import check_world
from polariscope.training import TrainingConfig
from polariscope.worlds import worlds
from polariscope.worlds.points.synthetic import Plane
from polariscope.worlds.renderers.mini_sprites import MiniSprites

SPRITES = MiniSprites(scales=2, orientations=2, positions=4)
LEARNED = Learned(
    epsilon=0.2,
    restarts=2,
    steps=3,
    model=AutoencoderConfig(latents=3, architecture=MLP((8,), (8,))),
    training=TrainingConfig(steps=5),
)


@pytest.mark.spec("003/F3-100")
@pytest.mark.parametrize(
    ("world", "manipulation"), [(Plane(count=400), LocalStructure(0.35)), (SPRITES, Noise(0.1)), (SPRITES, LEARNED)]
)
def test_a_bundle_comes_back_as_it_was(world, manipulation, tmp_path: Path) -> None:
    done = apply(world, manipulation, "kind", seed=2)
    file = save_bundle(done, tmp_path / "out")
    bundle = load_bundle(tmp_path / "out")
    np.testing.assert_array_equal(bundle.world.observations, done.world.observations)
    np.testing.assert_array_equal(bundle.world.positions, done.world.positions)
    assert bundle.world.factors == world.factors
    check_world(bundle.world)
    as_file = worlds.build({"name": "file", "path": str(file)})  # like any other file
    np.testing.assert_array_equal(as_file.observe(np.arange(len(world))), done.world.observations)
    assert len(as_file.factors) == len(world.factors)
    assert [f.size for f in as_file.factors] == [f.size for f in world.factors]
    assert (bundle.manipulator is None) == (manipulation is not LEARNED)


@pytest.mark.spec("003/F3-100")
def test_the_weights_make_the_same_data_set_again(tmp_path: Path) -> None:
    done = apply(SPRITES, LEARNED, "learned", seed=2)
    save_bundle(done, tmp_path / "out")
    manipulator = load_bundle(tmp_path / "out").manipulator
    assert manipulator is not None
    index = np.arange(len(SPRITES))
    with torch.no_grad():
        change = manipulator(torch.from_numpy(SPRITES.factors_of(index))).numpy()
    np.testing.assert_array_equal(shifted(SPRITES.observe(index), change, 0.2), done.world.observations)


@pytest.mark.spec("003/F3-100")
def test_the_report_says_what_was_done_and_what_it_did(tmp_path: Path) -> None:
    done = apply(SPRITES, LEARNED, "learned", seed=2)
    save_bundle(done, tmp_path / "out")
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["max_norm"] == done.size.max_norm <= 0.2
    assert report["added_variance"] == done.size.added_variance > 0
    assert set(report["pca_score"]) == {"before", "after"}
    assert sorted(report["disentangled"] + report["entangled"]) == [0, 1]
    assert [row["seed"] for row in report["restarts"]] == [0, 1]
    assert report["settings"]["objective"] == {"name": "beta-vae", "beta": 4.0}
    assert report["settings"]["model"]["architecture"]["name"] == "mlp"
    assert set(report["factor_recovery"]) == {"shape", "scale", "orientation", "x", "y"}
    assert report["injective"] is True
    assert report["structure"]["after"]["local_angle"] >= 0


def test_full_and_broken_folders_are_refused(tmp_path: Path) -> None:
    done = apply(Plane(count=200), Noise(0.1), "noise")
    save_bundle(done, tmp_path / "out")
    with pytest.raises(ValueError, match="is not empty"):
        save_bundle(done, tmp_path / "out")
    with pytest.raises(ValueError, match=r"no report.json"):
        load_bundle(tmp_path)
    (tmp_path / "out" / "report.json").write_text("{")
    with pytest.raises(ValueError, match="damaged"):
        load_bundle(tmp_path / "out")
    (tmp_path / "out" / "report.json").write_text('{"format": "other"}')
    with pytest.raises(ValueError, match="not a manipulation report"):
        load_bundle(tmp_path / "out")
