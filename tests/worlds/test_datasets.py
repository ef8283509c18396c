"""Torch data sets and loaders are data; so is everything else that comes to the door."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from polariscope.testing import check_world
from polariscope.worlds import ArrayWorld, World, observations
from polariscope.worlds.given import as_world
from polariscope.worlds.readers.datasets import dataset_world
from polariscope.worlds.readers.files import File

IMAGES = np.random.default_rng(0).integers(0, 256, (30, 8, 8), dtype=np.uint8)
LABELS = np.random.default_rng(1).integers(0, 3, 30)
EVERY = np.arange(30)


class Items(Dataset):
    """A list of items that counts how often each is looked at."""

    def __init__(self, items: list) -> None:
        self.items, self.looks = items, np.zeros(len(items), int)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, number: int):
        self.looks[number] += 1
        return self.items[number]


FORMS = {
    "arrays": lambda x, y: (x, y),
    "float tensors": lambda x, y: (torch.from_numpy(x)[None] / 255, int(y)),
    "images": lambda x, y: (Image.fromarray(x), torch.tensor(y)),
    "lists": lambda x, y: [x, np.array([y])],
    "mappings": lambda x, y: {"Label": y, "path": "somewhere", "image": x},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("held", [True, False], ids=["held", "in place"])
def test_items_become_observations_with_labels(form, held, monkeypatch) -> None:
    if not held:
        monkeypatch.setattr(observations, "HELD", 100)
    dataset = Items([FORMS[form](x, y) for x, y in zip(IMAGES, LABELS, strict=True)])
    world = as_world(dataset)
    assert isinstance(world, World)
    dataset.looks[:] = 0
    np.testing.assert_array_equal(world.observe([7, 29, 7])[:, 0], IMAGES[[7, 29, 7]])
    assert np.flatnonzero(dataset.looks).tolist() == ([] if held else [7, 29])
    np.testing.assert_array_equal(world.factors_of(EVERY)[:, 0], LABELS)
    assert [(f.name, f.size, f.kind) for f in world.factors] == [("label", 3, "categorical")]
    check_world(world)


def test_items_without_labels() -> None:
    for items in (list(IMAGES), [(x,) for x in IMAGES], [{"x": x} for x in IMAGES]):
        world = as_world(Items(items))
        assert world.factors == ()
        np.testing.assert_array_equal(world.observe(EVERY)[:, 0], IMAGES)


def test_labels_of_all_kinds_follow_the_one_rule() -> None:
    def factors(labels: list) -> list[tuple]:
        world = as_world(Items(list(zip(IMAGES, labels, strict=True))))
        return [(f.name, f.size, f.kind) for f in world.factors]

    assert factors([["cat", "dog"][y % 2] for y in LABELS]) == [("label", 2, "categorical")]
    assert factors([float(y) for y in LABELS]) == [("label", 0, "ordinal")]
    rows = [torch.tensor([y, y % 2]) for y in LABELS]
    assert factors(rows) == [("factor_0", 3, "ordinal"), ("factor_1", 2, "ordinal")]
    world = as_world(Items(list(zip(IMAGES, rows, strict=True))), kinds={"factor_1": "categorical"})
    assert world.factors[1].kind == "categorical"
    given = as_world(Items(list(IMAGES)), LABELS)
    np.testing.assert_array_equal(given.factors_of(EVERY)[:, 0], LABELS)


def test_targets_spare_a_look_at_every_item(monkeypatch) -> None:
    monkeypatch.setattr(observations, "HELD", 100)
    dataset = Items(list(zip(IMAGES, LABELS.tolist(), strict=True)))
    dataset.targets = LABELS.tolist()
    world = dataset_world(dataset)
    # The eight that are probed, and those whose numbers tell which is white.
    monkeypatch.setattr(observations, "SAMPLED", 2)
    dataset.looks[:] = 0
    part = dataset_world(Subset(dataset, [20, 3, 11, 5, 7, 9, 1, 0, 2, 4, 6, 8]))
    assert not dataset.looks[12:20].any()
    np.testing.assert_array_equal(world.factors_of(EVERY)[:, 0], LABELS)
    np.testing.assert_array_equal(part.factors_of([0, 1, 2])[:, 0], LABELS[[20, 3, 11]])
    np.testing.assert_array_equal(part.observe([2, 0])[:, 0], IMAGES[[11, 20]])
    dataset.targets = [2 - y for y in LABELS.tolist()]  # as a target transform leaves them behind
    np.testing.assert_array_equal(dataset_world(dataset).factors_of(EVERY)[:, 0], LABELS)


def test_a_loader_gives_its_data_set_and_its_batch_size() -> None:
    dataset = TensorDataset(torch.from_numpy(IMAGES), torch.from_numpy(LABELS))
    world = as_world(DataLoader(dataset, batch_size=7, shuffle=True))
    assert world.batch_size == 7
    np.testing.assert_array_equal(world.observe(EVERY)[:, 0], IMAGES)
    np.testing.assert_array_equal(world.factors_of(EVERY)[:, 0], LABELS)
    assert not any("collate_fn" in sentence for sentence in world.assumed)
    own = as_world(DataLoader(dataset, batch_size=7, collate_fn=lambda items: items))
    assert "without the loader's own collate_fn" in own.assumed[0]


class Flipped(Items):
    """Items turned about with even odds, as augmentation does."""

    odds = np.random.default_rng(0)

    def __getitem__(self, number: int):
        item = super().__getitem__(number)
        return item[::-1].copy() if self.odds.random() < 0.5 else item


class Stream(IterableDataset):
    def __iter__(self):
        return iter(IMAGES)


class CountedStream(Stream):
    def __len__(self) -> int:
        return len(IMAGES)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Flipped(list(IMAGES)), "item .* changes from call to call; give .* without its random"),
        (lambda: Stream(), "numbered items, but it is a stream"),
        (lambda: DataLoader(CountedStream()), "numbered items, but it is a stream"),
        (lambda: Items([]), "the data set is empty"),
        (lambda: Items([IMAGES[0], IMAGES[1][:5]]), r"item 0 has \(8, 8\) and item 1 has \(5, 8\); resize"),
        (lambda: Items([IMAGES[0], IMAGES[1] / 255]), "item 0 is uint8 and item 1 is float64; convert them"),
        (lambda: Items(["a.png", "b.png"]), "tensors, arrays or images, but one is str"),
        (lambda: Items([(IMAGES[0], 1, 2)] * 2), "one has 3 parts"),
        (lambda: Items([{"picture": IMAGES[0]}] * 2), "but one holds picture"),
        (lambda: Items([(IMAGES[0], IMAGES[0])] * 2), r"words or rows of them, but one is uint8 of shape \(8, 8\)"),
        (lambda: Items([(IMAGES[0], {"a": 1})] * 2), "rows of them, but one is dict"),
        (lambda: Items([(IMAGES[0], [1]), (IMAGES[0], [1, 2])]), "their number varies"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_data_sets_that_cannot_be_worlds_are_refused_in_a_sentence(make, sentence) -> None:
    with pytest.raises((ValueError, TypeError), match=sentence) as caught:
        as_world(make())
    assert "\n" not in str(caught.value)


# The door


def test_whatever_people_have_becomes_a_world(tmp_path) -> None:
    np.savez(tmp_path / "a.npz", images=IMAGES, labels=LABELS)
    np.save(tmp_path / "b.npy", IMAGES)
    tensor = torch.from_numpy(IMAGES)
    for world in (
        as_world(IMAGES, LABELS),
        as_world(tensor, torch.from_numpy(LABELS)),
        as_world(IMAGES.tolist(), LABELS.tolist()),
        as_world(TensorDataset(tensor, torch.from_numpy(LABELS))),
        as_world(tmp_path / "a.npz"),
        as_world(str(tmp_path / "b.npy"), LABELS),
    ):
        np.testing.assert_array_equal(world.observe(EVERY)[:, 0], IMAGES)
        np.testing.assert_array_equal(world.factors_of(EVERY)[:, 0], LABELS)
        assert world.factors[0].kind == "categorical"
    assert isinstance(as_world(tmp_path / "a.npz"), File)
    world = ArrayWorld(IMAGES)
    assert as_world(world) is world
    assert len(as_world("mini-sprites")) > 1000
    assert as_world(IMAGES, LABELS, kinds={"label": "ordinal"}).factors[0].kind == "ordinal"
    assert as_world(tmp_path / "a.npz", kinds={"label": "ordinal"}).factors[0].kind == "ordinal"
    assert as_world(np.full((2, 3, 3), 8), white=16).observe([0]).max() == 128


def test_what_is_no_data_is_refused_in_a_sentence(tmp_path) -> None:
    for thing in ({"a": 1}, object(), None, print):
        with pytest.raises(TypeError, match=f"a data set, a loader or a path; got a {type(thing).__name__}"):
            as_world(thing)
    with pytest.raises(ValueError, match="ArrayWorld is a world: its factors"):
        as_world(ArrayWorld(IMAGES), LABELS)
    with pytest.raises(FileNotFoundError, match="there is no file or folder"):
        len(as_world(tmp_path / "absent.npy"))
