"""The solids: their symmetries on images and labels, their geometry by integral formulas, and no duplicates."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from polariscope.measures.intrinsic_dimension import mle
from polariscope.testing import check_world
from polariscope.worlds.renderers import solids
from polariscope.worlds.renderers.solids import APART, DARKEST, LIGHT, REACH, SMALLEST, SOLIDS, Solids, orientations
from polariscope.worlds.world import World, worlds

NAMES = list(SOLIDS)
ROUND = ("cone", "cylinder")


def symmetries(name, count, seed=0):
    """``count`` random rotations that leave an upright solid as it is."""
    rng = np.random.default_rng(seed)
    if name in ROUND:
        turn = Rotation.from_rotvec(np.outer(rng.uniform(-np.pi, np.pi, count), [0, 0, 1]))
        over = np.pi * rng.integers(0, 2, count) * (name == "cylinder")
        return turn * Rotation.from_rotvec(np.outer(over, [1, 0, 0]))
    group = Rotation.create_group({"tetrahedron": "T", "cube": "O", "icosahedron": "I"}[name])
    return group[rng.integers(0, len(group), count)]


def draw(name, count, seed=0):
    return np.full(count, NAMES.index(name)), Rotation.random(count, rng=np.random.default_rng(seed))


@pytest.mark.parametrize("name", NAMES)
def test_symmetric_rotations_give_the_same_image_and_the_same_label(name):
    world = Solids(count=1)
    kind, rotation = draw(name, 40)
    same = rotation * symmetries(name, 40)
    images = [world.render(kind, r.as_rotvec()).astype(int) for r in (rotation, same)]
    assert np.abs(images[0] - images[1]).max() <= 1
    labels = world.canonical(kind, rotation.as_rotvec())
    np.testing.assert_allclose(labels, world.canonical(kind, same.as_rotvec()), atol=1e-7)
    # A label is itself one of the rotations that look like this.
    assert np.abs(world.render(kind, labels).astype(int) - images[0]).max() <= 1
    np.testing.assert_allclose(world.canonical(kind, labels), labels, atol=1e-7)


@pytest.mark.parametrize(
    ("name", "turn"),
    [
        (
            "tetrahedron",
            Rotation.from_rotvec(np.pi / 2 * np.eye(3)),
        ),  # as symmetric as the cube about it, but for these
        ("cube", Rotation.from_rotvec([[0, 0, np.pi / 4], [np.pi / 4, 0, 0], [0, np.pi / 3, 0]])),
        ("icosahedron", Rotation.from_rotvec([[0, 0, np.pi / 5], [np.pi / 4, 0, 0], [0.1, 0.2, 0.3]])),
        ("cone", Rotation.from_rotvec([[np.pi, 0, 0], [0, np.pi, 0], [np.pi / 2, 0, 0]])),
        ("cylinder", Rotation.from_rotvec([[np.pi / 2, 0, 0], [0, np.pi / 2, 0], [0, np.pi / 4, 0]])),
    ],
)
def test_other_rotations_do_not(name, turn):
    world = Solids(count=1)
    kind, rotation = draw(name, 3)
    before, after = (world.render(kind, r.as_rotvec()).astype(int) for r in (rotation, rotation * turn))
    assert (np.abs(before - after).max(axis=(1, 2, 3)) > 20).all()
    labels = [world.canonical(kind, r.as_rotvec()) for r in (rotation, rotation * turn)]
    assert (np.linalg.norm(labels[0] - labels[1], axis=1) > 0.05).all()


@pytest.mark.parametrize(
    ("name", "largest"),  # degrees from which every orientation can be reached; 62.8 is that of cubic crystals
    [("tetrahedron", 90.0), ("cube", 62.7994), ("icosahedron", 44.4775), ("cone", 180.0), ("cylinder", 90.0)],
)
def test_labels_are_the_smallest_rotations(name, largest):
    kind, rotation = draw(name, 20_000)
    labels = Solids(count=1).canonical(kind, rotation.as_rotvec())
    degrees = np.degrees(np.linalg.norm(labels, axis=1))
    assert 0.97 * largest < degrees.max() <= largest + 1e-3
    assert (degrees <= np.degrees(rotation.magnitude()) + 1e-5).all()
    if name in ROUND:
        assert np.abs(labels[:, 2]).max() < 1e-12


def test_a_solid_upside_down_has_one_label():
    world = Solids(count=1)
    over = np.pi * np.stack([np.cos(np.arange(5)), np.sin(np.arange(5)), np.zeros(5)], axis=1)
    cone = world.canonical(np.full(5, 3), over)
    np.testing.assert_allclose(Rotation.from_rotvec(cone).apply([0, 0, 1]), np.tile([0, 0, -1], (5, 1)), atol=1e-12)
    exact = Rotation.from_quat([[1, 0, 0, 0], [0, 1, 0, 0]]).as_rotvec()
    np.testing.assert_allclose(world.canonical([3, 4], exact), [[np.pi, 0, 0], [0, 0, 0]], atol=1e-12)


@pytest.mark.parametrize(
    ("name", "surface"),
    [
        ("tetrahedron", np.sqrt(3) * 8 / 3),
        ("cube", 8.0),
        ("icosahedron", 5 * np.sqrt(3) / np.sin(2 * np.pi / 5) ** 2),
        ("cone", np.pi * np.sqrt(8) / 3 * (np.sqrt(8) / 3 + np.sqrt(24) / 3)),
        ("cylinder", 2 * np.pi * 0.6 * (0.6 + 1.6)),
    ],
)
def test_the_mean_shadow_of_a_convex_body_is_a_quarter_of_its_surface(name, surface):
    """Cauchy's formula, for bodies inscribed in the unit sphere."""
    line = np.linspace(-REACH, REACH, 120, dtype=np.float32)
    covered = SOLIDS[name].light(draw(name, 500)[1].as_matrix(), line) > 0
    assert covered.sum(axis=(1, 2)).mean() * (2 * REACH / 119) ** 2 == pytest.approx(surface / 4, rel=0.02)


def test_faces_shine_by_their_angle_to_the_light_and_parts_are_where_they_should_be():
    world = Solids(count=1)
    facing, turned, tipped = world.render([1, 1, 1], [[0, 0, 0], [0, np.pi / 4, 0], [np.pi / 4, 0, 0]])[:, 0]

    def grey(normal):
        return round(255 * (DARKEST + (1 - DARKEST) * (1 + np.dot(normal, LIGHT)) / 2))

    assert set(np.unique(facing[16:48, 16:48])) == {grey([0, 0, 1])}
    # Turned about y (up), the face on the left shows what was its left side, the one on the right its front.
    assert turned[32, 24] == grey([-np.sqrt(0.5), 0, np.sqrt(0.5)])
    assert turned[32, 40] == grey([np.sqrt(0.5), 0, np.sqrt(0.5)])
    assert tipped[24, 32] == grey([0, np.sqrt(0.5), np.sqrt(0.5)]), "turned about x, the top shows above"
    assert tipped[40, 32] == grey([0, -np.sqrt(0.5), np.sqrt(0.5)])
    cone, on_its_side = world.render([3, 3], [[-np.pi / 2, 0, 0], [0, np.pi / 2, 0]])[:, 0]
    assert (cone > 0).sum(axis=1)[5] < (cone > 0).sum(axis=1)[30], "tilted back about x, the tip points up"
    assert (on_its_side > 0).sum(axis=0)[58] < (on_its_side > 0).sum(axis=0)[30], "tilted about y, to the right"
    base = world.render([3], [[np.pi, 0, 0]])[0, 0]
    assert set(np.unique(base[24:40, 24:40])) == {grey([0, 0, 1])}


def test_a_face_seen_exactly_from_the_side_is_no_trouble_whatever_else_is_rendered():
    world = Solids(count=1, size=32)
    normal = SOLIDS["tetrahedron"].normals[0]
    upright = Rotation.align_vectors([[1.0, 0, 0]], [normal])[0]
    edge_on = (Rotation.from_rotvec(np.outer(np.linspace(0, 6, 40), [0, 0, 1])) * upright).as_rotvec()
    rotation = np.concatenate([edge_on, draw("tetrahedron", 40)[1].as_rotvec()])[
        np.random.default_rng(0).permutation(80)
    ]
    together = world.render(np.zeros(80, int), rotation)
    alone = np.concatenate([world.render([0], vector[None]) for vector in rotation])
    np.testing.assert_array_equal(together, alone)
    spun = world.render(np.zeros(2, int), edge_on[[0, 1]] + 1e-4)
    assert np.abs(spun.mean(axis=(1, 2, 3)) / world.render([0, 0], edge_on[:2]).mean(axis=(1, 2, 3)) - 1).max() < 0.01


@pytest.mark.spec("002/X02")
def test_there_are_no_duplicates_and_none_to_come():
    world = Solids(count=400, size=SMALLEST)
    images = world.observe(np.arange(2000)).reshape(2000, -1)
    assert len(np.unique(images, axis=0)) == 2000
    assert len(np.unique(world.factors_of(np.arange(2000)), axis=0)) == 2000
    # The nearest that two orientations may come: turned by APART about any axis that can be seen.
    rng = np.random.default_rng(0)
    kind = np.tile(np.arange(5), 50)
    rotation = Rotation.random(250, rng=rng)
    about = rng.standard_normal((250, 3))
    axis = rotation.apply([0, 0, 1]) * (kind > 2)[:, None]
    about -= np.sum(about * axis, axis=1, keepdims=True) * axis
    nudge = Rotation.from_rotvec(APART * about / np.linalg.norm(about, axis=1, keepdims=True))
    for size in (SMALLEST, 64):
        small = Solids(count=1, size=size)
        before, after = (small.render(kind, r.as_rotvec()) for r in (rotation, nudge * rotation))
        assert (before != after).any(axis=(1, 2, 3)).all()


@pytest.mark.spec("002/X02")
@pytest.mark.parametrize("name", NAMES)
def test_orientations_keep_apart_modulo_symmetry(name, monkeypatch):
    """With a distance so large that many draws are refused, against all pairs and all symmetries."""
    apart = np.radians(3 if name in ROUND else 5)
    monkeypatch.setattr(solids, "APART", apart)
    labels = orientations(SOLIDS[name], 300, seed=0)
    rotation = Rotation.from_rotvec(labels)
    if name in ROUND:
        axis = rotation.apply([0, 0, 1])
        cosine = axis @ axis.T
        angle = np.arccos(np.clip(np.abs(cosine) if name == "cylinder" else cosine, -1, 1))
    else:
        copies = (rotation * g for g in SOLIDS[name].symmetries)
        cosine = np.max([np.abs(rotation.as_quat() @ copy.as_quat().T) for copy in copies], axis=0)
        angle = 2 * np.arccos(np.minimum(cosine, 1))
    nearest = angle[~np.eye(300, dtype=bool)].min()
    assert 0.99 * apart < nearest < 1.5 * apart, "refused below it (chords are a little shorter), and not far above"
    np.testing.assert_array_equal(orientations(SOLIDS[name], 350, seed=0)[:300], labels)
    drawn = SOLIDS[name].canonical(Rotation.from_quat(np.random.default_rng(0).standard_normal((300, 4))))
    assert not np.array_equal(drawn.as_rotvec(), labels), "some draws were refused"


@pytest.mark.spec("002/X02")
def test_the_intrinsic_dimension_is_between_2_and_4():
    """Turns have 2 dimensions for bodies of revolution and 3 for the others. Estimates from 1,000 images lie above:
    edges make distances between images grow faster than angles where these exceed a pixel."""
    world = Solids(count=1000, size=32)
    images = world.observe(np.arange(len(world))).reshape(len(world), -1).astype(np.float32)
    estimates = {name: mle(images[kind::5], k=5).value for kind, name in enumerate(NAMES)}
    assert all(2 < estimates[name] < 3 for name in ROUND), estimates
    assert all(3 < estimates[name] < 4.5 for name in NAMES if name not in ROUND), estimates
    assert 3 < mle(images[:2000], k=5).value < 4


@pytest.mark.spec("002/X02")
def test_observations_are_a_function_of_seed_and_number():
    world = Solids(count=60)
    assert isinstance(world, World)
    check_world(world)
    check_world(Solids(count=30, size=32, seed=3))
    assert isinstance(worlds.build({"name": "solids", "count": 5}), Solids)
    numbers = np.array([0, 3, 119, 7])
    np.testing.assert_array_equal(Solids(count=200).observe(numbers), world.observe(numbers))
    assert not np.array_equal(Solids(count=60, seed=1).observe(numbers), world.observe(numbers))
    factors = world.factors_of(np.arange(300))
    np.testing.assert_array_equal(factors[:, 0], np.arange(300) % 5)
    np.testing.assert_allclose(world.canonical(factors[:, 0].astype(int), factors[:, 1:]), factors[:, 1:], atol=1e-7)
    np.testing.assert_array_equal(
        world.render(factors[:9, 0].astype(int), factors[:9, 1:]), world.observe(np.arange(9))
    )


def test_more_orientations_than_there_is_room_for_are_refused(monkeypatch):
    monkeypatch.setattr(solids, "APART", np.radians(20))
    with pytest.raises(ValueError, match="can be distinguished: ask for fewer than 100"):
        orientations(SOLIDS["cylinder"], 100, seed=0)


def test_orientations_are_uniform():
    """The axis of the cone is uniform on the sphere: coordinates have mean 0 and variance 1/3, and z is uniform."""
    axis = Rotation.from_rotvec(orientations(SOLIDS["cone"], 4000, seed=0)).apply([0, 0, 1])
    np.testing.assert_allclose(axis.T @ axis / 4000, np.eye(3) / 3, atol=0.02)
    assert np.abs(axis.mean(axis=0)).max() < 0.03
    np.testing.assert_allclose(np.histogram(axis[:, 2], 8, (-1, 1))[0] / 4000, 1 / 8, atol=0.02)


def test_what_cannot_be_rendered_is_said_in_a_sentence():
    for settings, sentence in [
        ({"count": 0}, "1 to 50000 distinguishable orientations"),
        ({"count": 50_001}, "1 to 50000 distinguishable orientations"),
        ({"size": 16}, "32 to 1024 pixels a side; got 16"),
        ({"seed": -1}, "seed of the solids is -1"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            Solids(**settings)
    world = Solids(count=2)
    with pytest.raises(ValueError, match="0 tetrahedron, 1 cube, .*; got int64"):
        world.render([5], [[0, 0, 0]])
    with pytest.raises(ValueError, match=r"vectors of shape \(2, 3\); got \(1, 3\)"):
        world.render([0, 1], [[0, 0, 0]])
    with pytest.raises(ValueError, match="finite vectors"):
        world.canonical([0], [[0, 0, np.nan]])
