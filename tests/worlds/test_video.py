"""Mask videos of one's own: a disc moves as far as it was moved, and whatever is no video is refused in a sentence."""

import pickle

import numpy as np
import pytest
from PIL import Image

from polariscope.testing import check_world
from polariscope.worlds.readers.video import Video, read_videos, windowed
from polariscope.worlds.views.sequences import FramePairs, transitions
from polariscope.worlds.world import worlds


def discs(places, shape=(64, 64), radius=6, value=255) -> np.ndarray:
    """Frames with a disc at each place (y, x)."""
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    return np.stack([(np.hypot(rows - y, columns - x) <= radius) * np.uint8(value) for y, x in places])


def save(frames, folder) -> None:
    folder.mkdir(parents=True)
    for number, frame in enumerate(frames):
        Image.fromarray(frame).save(folder / f"{number:03}.png")


STEPS = [(20, 10), (20, 12), (23, 17), (22, 17)]


@pytest.mark.spec("001a/DS-18")
def test_a_moving_disc_gives_its_exact_steps(tmp_path) -> None:
    save(discs(STEPS), tmp_path / "videos" / "one")
    save(discs([(30, 40), (30, 39)]), tmp_path / "videos" / "two")
    world = Video(str(tmp_path / "videos"))
    area = (discs([(20, 20)])[0] > 0).sum()
    np.testing.assert_allclose(
        world.factors_of(range(6)), [[y, x, area] for y, x in [*STEPS, (30, 40), (30, 39)]], rtol=1e-6
    )
    # Within the first and within the second video, and not from one to the other.
    expected = [[0, 2, 0], [3, 5, 0], [-1, 0, 0], [0, -1, 0]]
    np.testing.assert_allclose(transitions(world), expected, atol=1e-5)
    np.testing.assert_allclose(transitions(world, 2, 2), [[3, 7, 0], [2, 5, 0]], atol=1e-5)
    assert len(transitions(world, 3)) == 4 + 2 + 1


@pytest.mark.spec("001a/DS-18")
def test_frames_are_brought_to_the_size_and_cut_into_windows(tmp_path) -> None:
    # 256 x 128 in windows of 64: half the steps. Three windows start at 0, 32 and 64 of 128 columns.
    places = [(64, 40), (64, 44), (70, 44)]
    np.savez(tmp_path / "wide.npz", masks=discs(places, (128, 256), radius=20))
    world = Video(str(tmp_path / "wide.npz"), windows=3)
    assert world.shape == (1, 64, 64)
    assert len(world) == 3, "the disc is whole in the first window, and not in the others"
    np.testing.assert_allclose(transitions(world), [[0, 2, 0], [3, 0, 0]], atol=1e-5)
    with pytest.raises(ValueError, match="no two frames in a row"):  # a single window is the middle, where it is not
        len(Video(str(tmp_path / "wide.npz"), fewest=1))
    upright = windowed(np.ones((1, 256, 128)) * np.arange(256)[:, None] >= 100, 64, 3)
    assert [int(window.any((0, 2)).sum()) for window in upright] == [64 - 50, 64 - 18, 64]
    for window in windowed(np.random.default_rng(0).random((2, 90, 170)) > 0.5, 30, 2):
        assert window.shape == (2, 30, 30)


@pytest.mark.spec("001a/DS-18")
def test_frames_that_show_too_little_tear_a_video_apart(tmp_path) -> None:
    frames = discs([(20, 10), (20, 12), (20, 14), (20, 16), (20, 19)])
    frames[2] = 0
    np.savez(tmp_path / "torn.npz", masks=frames)
    world = Video(str(tmp_path / "torn.npz"))
    assert world.last_of(range(4)).tolist() == [1, 1, 3, 3]
    np.testing.assert_allclose(transitions(world)[:, 1], [2, 3], atol=1e-5)


def test_archives_hold_videos_in_several_ways(tmp_path) -> None:
    a, b = discs(STEPS), discs([(30, 40), (30, 39)])
    ways = {
        "sequence": {"masks": np.concatenate((a, b)), "sequence": np.array([1, 1, 1, 1, 2, 2])},
        "mixed": {"masks": np.concatenate((a, b))[[0, 4, 1, 2, 5, 3]], "sequence": np.array([1, 2, 1, 1, 2, 1])},
        "several": {"first": a / 255, "second": b.astype(bool)},
    }
    seen = []
    for name, arrays in ways.items():
        np.savez(tmp_path / f"{name}.npz", **arrays)
        seen.append(transitions(Video(str(tmp_path / f"{name}.npz"))))
    assert len(seen[0]) == 4
    for other in seen[1:]:
        np.testing.assert_array_equal(other, seen[0])


def test_numbers_and_colours_are_objects_if_they_are_said_to_be(tmp_path) -> None:
    one, two = discs(STEPS, value=1), discs([(50, 50), (50, 49), (50, 48), (50, 47)], value=2)
    save(one + two, tmp_path / "numbers")
    save(np.stack((one * 255, one * 0, two * 100), axis=-1), tmp_path / "colours")
    for kind in ("numbers", "colours"):
        world = Video(str(tmp_path / kind), numbered=True)
        moves = transitions(world)
        np.testing.assert_allclose(np.sort(moves[:, 1]), [-1, -1, -1, 0, 2, 5], atol=1e-5)
        assert len(Video(str(tmp_path / kind))) == 4, "else they are one"
    shown = np.full((2, 64, 64, 4), 255, np.uint8)
    shown[..., :3] = discs(STEPS[:2])[..., None]
    save(shown, tmp_path / "opaque")
    np.testing.assert_allclose(transitions(Video(str(tmp_path / "opaque")))[0], [0, 2, 0], atol=1e-5)


def test_a_video_is_a_world_to_train_on(tmp_path) -> None:
    np.savez(tmp_path / "disc.npz", masks=discs(STEPS))
    world = worlds.build({"name": "frame-pairs", "of": {"name": "video", "path": str(tmp_path / "disc.npz")}})
    assert isinstance(world, FramePairs)
    check_world(world)
    check_world(world.of)
    np.testing.assert_array_equal(world.others_of([0, 1])[0], world.of.observe([1, 2]))
    assert "clips" not in vars(pickle.loads(pickle.dumps(world.of)))
    assert [factor.name for factor in world.factors] == ["y", "x", "area"]


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"masks": discs(STEPS[:1])}, "masks: expected a video of at least 2 frames, but it has 1"),
        ({"masks": discs(STEPS), "sequence": np.array([0, 0, 0, 1])}, "sequence 1: expected a video of at least 2"),
        ({"masks": np.zeros((5, 64, 64))}, "no two frames in a row show one of 30 pixels or more at 64x64; lower"),
        ({"masks": discs(STEPS, radius=2)}, "no two frames in a row show one of 30 pixels"),
        ({}, "expected an array called masks, or one for each video, but the file holds none"),
        ({"masks": np.zeros((4, 64, 64, 3))}, r"'masks' is float64 of shape \(4, 64, 64, 3\)"),
        ({"masks": np.array(["a", "b"])}, "expected masks"),
        ({"masks": np.array([None, 3])}, "pickled objects, which are never loaded"),
        ({"masks": discs(STEPS), "sequence": np.zeros(3)}, r"the video of each of 4 masks, but it is \(3,\)"),
        ({"masks": discs(STEPS, (50, 80))}, "at least 64 pixels a side, but they are 80x50; give a smaller size"),
    ],
)
def test_what_is_no_video_is_one_sentence(tmp_path, arrays, sentence) -> None:
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(ValueError, match=sentence) as caught:
        len(Video(str(tmp_path / "bad.npz")))
    assert "\n" not in str(caught.value)
    assert "bad.npz" in str(caught.value)


def test_what_is_no_folder_of_frames_is_one_sentence(tmp_path) -> None:
    (tmp_path / "empty").mkdir()
    save([*discs(STEPS[:2]), *discs(STEPS[:1], (64, 70))], tmp_path / "mixed")
    save(discs(STEPS[:1]), tmp_path / "single" / "clip")
    (tmp_path / "text.npz").write_text("no archive")
    np.save(tmp_path / "lone.npy", discs(STEPS))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "0.png").write_bytes(b"\x89PNG")
    for name, sentence in {
        "empty": "there is no image in it",
        "mixed": "002.png: expected 64x64 pixels like 000.png, but it has 70x64; the frames of a video have one size",
        "single": "clip: expected a video of at least 2 frames, but it has 1",
        "text.npz": "expected a whole npz file",
        "lone.npy": "expected a whole npz file",
        "broken": "expected a whole image",
    }.items():
        with pytest.raises(ValueError, match=sentence) as caught:
            len(Video(str(tmp_path / name)))
        assert "\n" not in str(caught.value)
    with pytest.raises(FileNotFoundError, match="never downloaded"):
        len(Video(str(tmp_path / "absent")))
    with pytest.raises(ValueError, match="give its path"):
        len(Video())
    for name in ("size", "windows", "fewest"):
        with pytest.raises(ValueError, match=f"{name} of a video is 0"):
            Video("anywhere", **{name: 0})


def test_frames_are_in_the_order_of_their_numbers_and_palettes_are_colours(tmp_path) -> None:
    """A square that moves by a pixel; in a palette with white first, black had been the object."""
    for kind in ("grey", "palette"):
        folder = tmp_path / kind
        folder.mkdir()
        for number in range(12):
            frame = np.zeros((32, 32), np.uint8)
            frame[8:16, 4 + number : 12 + number] = 255
            image = Image.fromarray(frame)
            if kind == "palette":
                image = Image.fromarray((frame == 0).astype(np.uint8))
                image.putpalette([255, 255, 255, 0, 0, 0])
            image.save(folder / f"{number}.png")
        ((_, frames),) = read_videos(folder)
        masks = frames != 0
        assert masks.sum((1, 2)).tolist() == [64] * 12
        assert [int(np.flatnonzero(mask.any(0))[0]) for mask in masks] == list(range(4, 16))
