"""Parts of bodies against closed forms of what their shadows and heights are."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from polariscope.worlds.renderers.bodies import Canvas, beam, box, camera, ellipsoid, polygon, prism, pyramid

TURNS = Rotation.random(8, np.random.default_rng(3)).as_matrix()
AHEAD = (0.0, 0.0, 1.0)


def drawn(part, size=64, light=AHEAD):
    canvas = Canvas(len(part.centre), size, reach=1.5, light=light)
    canvas.draw(part, 1)
    return canvas


def covered(canvas):
    return (canvas.paint == 1).mean((1, 2)) * 9  # of a view of 3 x 3


def test_the_shadow_of_a_box_is_the_sum_of_those_of_its_faces():
    half = np.array([0.3, 0.5, 0.7])
    part = box(np.zeros((8, 3)), half).turned(TURNS)
    areas = 4 * half.prod() / half
    np.testing.assert_allclose(covered(drawn(part)), np.abs(TURNS[:, 2]) @ areas, rtol=0.02)


def test_the_shadow_of_an_ellipsoid_is_an_ellipse_of_known_area():
    radii = np.array([0.9, 0.3, 0.5])
    part = ellipsoid(np.zeros((8, 3)), radii).turned(TURNS)
    area = np.pi * np.sqrt((TURNS[:, 2] ** 2) @ (radii.prod() / radii) ** 2)
    canvas = drawn(part)
    np.testing.assert_allclose(covered(canvas), area, rtol=0.02)
    spread = TURNS @ np.diag(radii**2) @ TURNS.swapaxes(1, 2)  # of which a quarter is the covariance of the shadow
    for paint, expected in zip(canvas.paint, spread[:, 0, 1] / 4, strict=True):
        rows, columns = np.nonzero(paint)
        assert np.cov(canvas.line[columns], -canvas.line[rows])[0, 1] == pytest.approx(expected, abs=2e-3)


def test_prisms_and_pyramids_have_the_height_of_their_roof_everywhere():
    canvas = drawn(prism(polygon(6, 1.0, 1), -0.2, 0.4, along=2))
    assert np.unique(canvas.height[canvas.paint == 1]) == pytest.approx([0.4])
    assert covered(canvas) == pytest.approx(1.5 * np.sqrt(3), rel=0.01)
    for corners, base in ((4, 2.0), (32, 32 / 2 * np.sin(2 * np.pi / 32))):
        canvas = drawn(pyramid(corners, 1.0, 0.9, 1))
        volume = (canvas.height + 0.45)[canvas.paint == 1].sum() * (3 / len(canvas.line)) ** 2
        assert volume == pytest.approx(base * 0.9 / 3, rel=0.01)


def test_a_beam_reaches_from_point_to_point():
    start, end = np.array([[-0.5, -0.2, 0.1]]), np.array([[0.7, 0.4, 0.1]])
    canvas = drawn(beam(start, end, 0.2))
    assert covered(canvas) == pytest.approx(np.linalg.norm(end - start) * 0.2, rel=0.03)
    rows, columns = np.nonzero(canvas.paint[0])
    middle = canvas.line[columns].mean(), -canvas.line[rows].mean()
    np.testing.assert_allclose(middle, [0.1, 0.1], atol=0.01)


def test_light_falls_by_the_angle_between_surface_and_light():
    light = np.array([0.6, 0.0, 0.8])
    ball = drawn(ellipsoid(np.zeros((1, 3)), (1, 1, 1)), light=light)
    seen = ball.paint[0] == 1
    y, x = np.meshgrid(-ball.line, ball.line, indexing="ij")
    normal = np.stack([x, y, np.sqrt(np.maximum(1 - x**2 - y**2, 0))], -1)
    np.testing.assert_allclose(ball.bright[0][seen], (0.1 + 0.45 * (1 + normal @ light))[seen], atol=2e-3)
    lid = drawn(box(np.zeros((1, 3)), (1, 1, 1)), light=light)
    assert np.unique(lid.bright[0][lid.paint[0] == 1]) == pytest.approx([0.1 + 0.45 * 1.8])


def test_the_nearer_part_hides_the_other_in_whatever_order_they_come():
    near, far = ellipsoid(np.array([[0, 0, 0.5]]), (0.3, 0.3, 0.3)), box(np.zeros((1, 3)), (0.6, 0.6, 0.3))
    one, other = Canvas(1, 128, 1.5, AHEAD), Canvas(1, 128, 1.5, AHEAD)
    for canvas, order in ((one, (near, far)), (other, (far, near))):
        for part in order:
            canvas.draw(part, 1 if part is near else 2)
    np.testing.assert_array_equal(one.paint, other.paint)
    assert (one.paint == 1).sum() == pytest.approx((one.paint > 0).sum() * np.pi * 0.09 / 1.44, rel=0.03)


def test_a_part_may_hang_over_the_edge_and_belong_to_some_scenes_only():
    canvas = Canvas(3, 32, 1.5, AHEAD)
    canvas.draw(box(np.array([[1.5, 1.5, 0], [9, 0, 0]]), (0.5, 0.5, 0.5)), 1, number=[2, 0])
    np.testing.assert_allclose(covered(canvas), [0, 0, 0.25], atol=0.03)
    assert canvas.paint[2, :10, -10:].all()  # the upper right corner


def test_a_camera_turns_and_looks_down():
    turn = camera(np.radians([30]), np.radians([90]))[0]
    np.testing.assert_allclose(turn @ turn.T, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(turn @ (1, 0, 0), [0, 0.5, -np.sqrt(0.75)], atol=1e-12)  # ahead has turned away
    np.testing.assert_allclose(turn @ (0, 0, 1), [0, np.sqrt(0.75), 0.5], atol=1e-12)
