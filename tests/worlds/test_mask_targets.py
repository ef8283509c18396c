"""Masks as targets: views move them with the pixels they lie on, or refuse; scores come from sums over the set."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from polariscope.nets.model import Brief
from polariscope.nets.predictors import LeNet
from polariscope.objectives.objective import Batch, Need, Objective, Player, Terms, players_of
from polariscope.objectives.predict import Classify
from polariscope.training import RunConfig, TrainingConfig
from polariscope.training.loop import Listeners
from polariscope.training.run import build_model, train_in_memory
from polariscope.worlds.factors import Factor
from polariscope.worlds.renderers.mini_sprites import MiniSprites
from polariscope.worlds.splits import RandomSplit, SplitPart
from polariscope.worlds.targets import UNLABELLED, Target, Task, target_values, targets_of
from polariscope.worlds.view import View
from polariscope.worlds.views.augmented import Augmented
from polariscope.worlds.views.corrupted import Corrupted
from polariscope.worlds.views.factor_codes import FactorCodes
from polariscope.worlds.world import World


@dataclass(frozen=True)
class Plots:
    """Images of bytes whose mask is the image itself in four classes: where one goes, the other has to go."""

    count: int = 50
    size: int = 12

    @property
    def shape(self) -> tuple[int, ...]:
        return (1, self.size, self.size)

    @property
    def factors(self) -> tuple[Factor, ...]:
        return ()

    def __len__(self) -> int:
        return self.count

    def observe(self, index: ArrayLike) -> NDArray[Any]:
        every = np.random.default_rng(0).integers(256, size=(self.count, *self.shape), dtype=np.uint8)
        return every[np.asarray(index, dtype=np.int64)]

    def factors_of(self, index: ArrayLike) -> NDArray[Any]:
        return np.zeros((np.size(index), 0))

    @property
    def targets(self) -> tuple[Target, ...]:
        return (Target("brightness", "mask", 4),)

    def target_of(self, index: ArrayLike) -> NDArray[Any]:
        return (self.observe(index)[:, 0] // 64).astype(np.int64)


MOVES = {"flip": "both", "shift": 3, "turn": 40.0, "shear": 20.0}


@pytest.mark.parametrize("fill", ["zero", "edge"])
def test_augmentation_moves_a_mask_with_its_pixels(fill: str) -> None:
    world = Augmented(Plots(), **MOVES, crop=9, fill=fill).drawn(seed=1, time=2)  # type: ignore[arg-type]
    numbers = np.arange(50)
    images, masks = world.observe(numbers)[:, 0], target_values(world, numbers)
    assert masks.shape == (50, 9, 9)
    labelled = masks != UNLABELLED
    np.testing.assert_array_equal(masks[labelled], images[labelled] // 64)
    assert labelled.all() == (fill == "edge")
    if fill == "zero":  # what moved in is black, and nobody knows its class
        assert (images[~labelled] == 0).all()
    still = target_values(Plots(), numbers)[:, 1:-2, 1:-2]
    assert (masks != still).any(axis=(1, 2)).mean() > 0.9


def test_changes_of_brightness_leave_a_mask_where_it_is() -> None:
    numbers = np.arange(50)
    truth = target_values(Plots(), numbers)
    for view in (
        Augmented(Plots(), brightness=0.5, noise=0.2, blur=1.0, erase=0.3).drawn(0, 1),
        Corrupted(Plots(), "gaussian", 3),
        SplitPart(Plots(), RandomSplit(0.2)),
    ):
        inner = view.there(np.arange(len(view)))
        np.testing.assert_array_equal(target_values(view, np.arange(len(view))), truth[inner])


def test_a_view_that_cannot_move_a_mask_refuses_it() -> None:
    @dataclass(frozen=True)
    class Negative(View):
        of: World

        def observe(self, index: ArrayLike) -> NDArray[Any]:
            return 255 - self.of.observe(self.there(index))

    with pytest.raises(ValueError, match="Negative changes observations and does not define how masks change"):
        target_values(Negative(Plots()), [0])
    with pytest.raises(ValueError, match="the corruption elastic moves pixels"):
        target_values(Corrupted(Plots(), "elastic", 1), [0])
    # One class of a whole image stays what it is, whatever happens to the pixels.
    task = Task(MiniSprites(), "shape")
    np.testing.assert_array_equal(target_values(Negative(task), [0, 700]), target_values(task, [0, 700]))
    assert target_values(FactorCodes(task), [700]).tolist() == target_values(task, [700]).tolist()


def test_targets_have_a_kind() -> None:
    assert [(one.kind, one.size) for one in targets_of(Augmented(Plots(), crop=8))] == [("mask", 4)]
    assert [(one.name, one.kind) for one in targets_of(Task(MiniSprites(), "shape,x", "values"))] == [
        ("shape", "number"),
        ("x", "number"),
    ]
    parity = Task(MiniSprites(), "shape", "parity")
    assert targets_of(parity)[0].names == ["even", "odd"]
    with pytest.raises(ValueError, match="a number has none"):
        Target("height", "number", 3)
    with pytest.raises(ValueError, match="2 labels"):
        Target("kind", "class", 3, ("a", "b"))


class PixelNet(nn.Module):
    """Scores of four classes from the brightness of each pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Conv2d(1, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(x)


@dataclass(frozen=True)
class PixelModel:
    def build(self, brief: Brief) -> nn.Module:
        assert brief.dense
        assert brief.outputs == 4
        return PixelNet()


@dataclass(frozen=True)
class Segment(Objective):
    """Cross-entropy of pixels; the IoU of the first class comes from its counts over the whole held-out set."""

    needs: ClassVar[tuple[Need, ...]] = ("target",)

    def default_model(self) -> PixelModel:
        return PixelModel()

    def __call__(self, model: nn.Module, batch: Batch, step: int) -> Terms:
        assert batch.target is not None
        scores = model(batch.x)
        loss = nn.functional.cross_entropy(scores, batch.target, ignore_index=UNLABELLED)
        mine, theirs = scores.argmax(1) == 0, batch.target == 0
        counts = {
            "both": (mine & theirs).sum(),
            "either": (mine | theirs).sum(),
            "examples": torch.tensor(len(batch.x)),
        }
        return Terms(loss, {"loss_of_pixels": loss}, counts=counts)

    def scores(self, counts: Any) -> dict[str, float]:
        return {"iou": float(counts["both"] / counts["either"]), "examples": float(counts["examples"])}


def test_scores_are_made_of_sums_over_every_held_out_example() -> None:
    events: list[Any] = []
    config = RunConfig(
        Augmented(Plots(), **MOVES),  # type: ignore[arg-type]
        Segment(),
        PixelModel(),  # type: ignore[arg-type]
        TrainingConfig(steps=40, batch_size=8, learning_rate=0.05, evaluate_every=40),
        RandomSplit(0.26),
    )
    model = train_in_memory(config, Listeners(metrics=events.append))
    (terms,) = (event.terms for event in events if event.split == "held_out")
    assert terms["examples"] == 13  # one whole batch of 8, and the 5 that are left
    kept = RandomSplit(0.26).parts(config.world).held_out
    with torch.no_grad():
        mine = model(torch.from_numpy(Plots().observe(kept)).float() / 255).argmax(1).numpy() == 0
    theirs = Plots().target_of(kept) == 0
    assert terms["iou"] == pytest.approx((mine & theirs).sum() / (mine | theirs).sum(), abs=1e-6)


def test_models_and_objectives_of_whole_images_refuse_masks() -> None:
    config = RunConfig(Plots(size=28), Classify(), LeNet())
    with pytest.raises(ValueError, match="lenet predicts one answer per image"):
        build_model(config)
    batch = Batch(torch.zeros(2, 1, 4, 4), 2, target=torch.zeros(2, 4, 4, dtype=torch.long), classes=(4,))
    with pytest.raises(ValueError, match="use an objective for masks"):
        Classify()(PixelNet(), batch, 0)


def test_plugins_of_the_first_version_still_work() -> None:
    class Old(Objective):
        def players(self, model: Any) -> dict[str, Player]:  # type: ignore[override]
            return {"judge": Player(nn.Linear(1, 1))}

        def __call__(self, model: Any, batch: Batch, step: int, judge: nn.Module) -> Terms:
            raise AssertionError

    assert list(players_of(Old(), PixelNet(), Brief(()))) == ["judge"]
    with pytest.warns(FutureWarning, match="Old names no default model"):
        assert type(Old().default_model()).__name__ == "AutoencoderConfig"
    from polariscope.objectives import objective
    from polariscope.objectives.autoencoding import forward

    assert objective.forward is forward
