"""Factors as properties: the six settings of sprites, their scaling and their mean models (Spec 000, O17)."""

import numpy as np
import pytest

from polariscope.measures.summed_error import binary_mean_model_error, mean_model_error, summed_absolute_error
from polariscope.worlds import ArrayWorld, Factor
from polariscope.worlds.renderers.mini_sprites import MiniSprites
from polariscope.worlds.renderers.sprites import Sprites
from polariscope.worlds.targets import target_values, targets_of
from polariscope.worlds.views.properties import SPRITE_SETTINGS, Properties, sprite_property

MEAN_MODELS = {"x": 8 / 31, "y": 8 / 31, "shape": 2 / 9, "scale": 0.15, "orientation": 2.5 / 9, "no shape": 0.943907}


@pytest.mark.spec("000/F074", "000/F076", "000/F077")
@pytest.mark.parametrize("setting", SPRITE_SETTINGS)
def test_the_settings_of_sprites_have_the_published_mean_models(setting) -> None:
    """O17: .258065 .258065 .222222 .15 .277778 .943907, which fixes the scaling of labels and the sum convention."""
    world = sprite_property(setting)
    assert len(world) == (184_320 if "orientation" in SPRITE_SETTINGS[setting] else 737_280)
    properties = world.target_of(np.arange(len(world)))
    assert properties.shape == (len(world), len(SPRITE_SETTINGS[setting]))
    assert mean_model_error(properties) == pytest.approx(MEAN_MODELS[setting], abs=1e-6)
    assert properties.max() == 1


@pytest.mark.spec("000/F074")
def test_labels_are_values_divided_by_the_largest() -> None:
    """k/31, {1,2,3}/3, the scale itself, and k/9 for the first quarter of the circle."""
    quarter = Sprites(unambiguous=True)
    world = Properties(quarter, "x,shape,scale,orientation")
    numbers = np.random.default_rng(0).integers(0, len(world), 500)
    shape, scale, orientation, x, _ = quarter.factors_of(numbers).T
    expected = np.column_stack([x / 31, (shape + 1) / 3, 0.5 + 0.1 * scale, orientation / 9])
    np.testing.assert_allclose(world.target_of(numbers), expected, atol=1e-6)
    assert orientation.max() == 9
    assert [target.name for target in targets_of(world)] == ["x", "shape", "scale", "orientation"]
    np.testing.assert_array_equal(target_values(world, numbers), world.target_of(numbers))
    np.testing.assert_array_equal(world.observe(numbers[:3]), quarter.observe(numbers[:3]))


def test_numbers_of_a_users_own_stay_as_they_are() -> None:
    gap = np.array([1.5, -2.25, 7.0])
    world = Properties(ArrayWorld(np.eye(3), gap, (Factor("gap", 0),)))
    assert world.target_of([0, 1, 2]).ravel().tolist() == gap.tolist()


def test_errors_are_summed_over_numbers() -> None:
    images = (np.random.default_rng(0).random((40, 3, 4)) < 0.3).astype(float)
    assert binary_mean_model_error(images.mean(0)) == pytest.approx(mean_model_error(images))
    assert summed_absolute_error(images, np.zeros_like(images)) == pytest.approx(images.sum((1, 2)).mean())


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: Properties(Sprites(), "orientation"), "'orientation' is periodic.*unambiguous"),
        (lambda: Properties(MiniSprites(), "shpae"), "did you mean 'shape'"),
        (lambda: Properties(ArrayWorld(np.eye(3))), "has no property: give data with a column"),
        (lambda: Properties(ArrayWorld(np.eye(3), np.ones(3), (Factor("gap", 0),))), "'gap' is 1 everywhere"),
        (lambda: Properties(ArrayWorld(np.eye(3), np.zeros(3, int), (Factor("gap", 1),))), "'gap' is constant"),
        (lambda: sprite_property("colour"), "no setting 'colour' of sprites"),
        (lambda: mean_model_error([1.0, 2.0]), "a row for each observation"),
        (lambda: mean_model_error([[np.nan]]), "finite numbers"),
        (lambda: summed_absolute_error([[1.0]], [[1.0, 2.0]]), "the same shape"),
        (lambda: binary_mean_model_error([2.0]), "between 0 and 1"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(call, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()


def test_a_property_that_is_not_a_number_is_refused_with_its_observation(monkeypatch) -> None:
    world = ArrayWorld(np.eye(3), np.array([1.0, 2.0, 3.0]), (Factor("gap", 0),))
    monkeypatch.setattr(ArrayWorld, "factors_of", lambda self, index: np.array([[1.0], [np.nan], [3.0]]))
    with pytest.raises(ValueError, match="'gap' needs finite numbers, and that of observation 1 is nan"):
        Properties(world)
