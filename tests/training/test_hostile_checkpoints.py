"""A run folder may come from anybody: its checkpoint is held against the model before any of it is copied."""

import json
import os
import shutil

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from polariscope.lab import Run, Store
from polariscope.objectives.factor_vae import FactorVAE
from polariscope.training import checkpoint as checkpoints
from polariscope.training import load_model, resume, train

FIRST = "optimiser/model/0/exp_avg"
OTHER = "optimiser/discriminator/1/exp_avg_sq"


def without(name):
    return lambda tensors, progress: tensors.pop(name)


def with_tensor(name, value):
    return lambda tensors, progress: tensors.update({name: value})


def changed(name, change):
    return lambda tensors, progress: tensors.update({name: change(tensors[name])})


def progress_of(**entries):
    return lambda tensors, progress: progress.update(entries)


def no_moments(tensors, progress) -> None:
    for name in [name for name in tensors if name.startswith("optimiser/model/")]:
        del tensors[name]


def no_moments_and_no_word_of_them(tensors, progress) -> None:
    no_moments(tensors, progress)
    del progress["learned"]


def no_moments_of_one(tensors, progress) -> None:
    for name in [name for name in tensors if name.startswith("optimiser/discriminator/1/")]:
        del tensors[name]


DAMAGED = {
    "moments of one float": (with_tensor(FIRST, torch.zeros(1)), rf"{FIRST} has shape \(1,\); \("),
    "moments of seven floats": (with_tensor(FIRST, torch.zeros(7)), rf"{FIRST} has shape \(7,\)"),
    "moments of doubles": (changed(FIRST, torch.Tensor.double), f"{FIRST} holds float64; float32 is expected"),
    "half the moments": (without(FIRST), f"{FIRST} is missing"),
    "a player's moments": (with_tensor(OTHER, torch.zeros(3)), rf"{OTHER} has shape \(3,\)"),
    "moments of nobody": (with_tensor("optimiser/model/99/exp_avg", torch.zeros(1)), "it has no optimiser/model/99"),
    "moments of another kind": (with_tensor("optimiser/model/0/sum", torch.zeros(1)), "no optimiser/model/0/sum"),
    "moments without a number": (with_tensor("optimiser/model/x", torch.zeros(1)), "it has no optimiser/model/x"),
    "a count of two": (with_tensor("optimiser/model/0/step", torch.ones(2)), r"step has shape \(2,\)"),
    "a count below zero": (with_tensor("optimiser/model/0/step", torch.tensor(-5.0)), "step is -5.0"),
    "no moments": (no_moments, r"optimiser/model/ has the state of 0 tensors; \d+ is expected"),
    "no moments and no word of them": (no_moments_and_no_word_of_them, "optimiser/model/ is missing"),
    "no moments of one weight": (no_moments_of_one, "optimiser/discriminator/ has the state of"),
    "whole numbers for weights": (
        lambda tensors, progress: tensors.update(
            {name: value.int() for name, value in tensors.items() if name == "model/head.weight"}
        ),
        "model/head.weight holds int32; float32 is expected",
    ),
    "no weight": (without("model/head.weight"), "model/head.weight is missing"),
    "a weight more": (with_tensor("model/tail", torch.zeros(1)), "it has no model/tail"),
    "a part more": (with_tensor("other/tail", torch.zeros(1)), "it has no other/tail"),
    "a weight that is not a number": (
        changed("model/head.weight", lambda weight: weight * float("nan")),
        "model/head.weight is not finite",
    ),
    "a step after the last": (progress_of(step=10**9), "step is 1000000000, and the run has 30"),
    "a step before the first": (progress_of(step=-1), "step is -1; a whole number from 0"),
    "half a step": (progress_of(step=1.5), "step is 1.5"),
    "true steps": (progress_of(step=True), "step is True"),
    "no best": (lambda tensors, progress: progress.pop("best"), "its progress lacks best"),
    "best in words": (progress_of(best="very"), "best is 'very'"),
    "best undefined": (progress_of(best=float("nan")), "best is nan"),
    "stale in words": (progress_of(stale=None), "stale is None"),
    "sums in a list": (progress_of(sums=[1]), "sums are not numbers by name"),
    "sums of nothing": (progress_of(sums={}, summed=3), "summed is 3, and there are sums of 0 terms"),
    "learned in words": (progress_of(learned={"model": "all"}), "learned are not whole numbers"),
    "escapes": (with_tensor("model/\x1b[2J", torch.zeros(1)), r"it has no model/ \[2J"),
}


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A finished run of two players."""
    return tmp_path_factory.mktemp("original")


@pytest.fixture
def run(original, small, tmp_path) -> Run:
    """A run of two players that is not done, as another may have sent it."""
    if not (original / "runs").exists():
        train(small(FactorVAE(width=4, depth=1)), Store(original / "runs"), run_id="victim")
    shutil.copytree(original / "runs", tmp_path / "runs")
    run = Store(tmp_path / "runs").open("victim")
    run.update(status="interrupted")
    return run


def rewrite(run: Run, damage) -> None:
    tensors, progress = checkpoints.read(run.checkpoint)
    damage(tensors, progress)
    save_file(tensors, run.checkpoint, {"format": checkpoints.FORMAT, "progress": json.dumps(progress)})


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_checkpoint_that_does_not_fit_is_refused_with_the_entry(run, damage) -> None:
    change, sentence = DAMAGED[damage]
    rewrite(run, change)
    with pytest.raises(ValueError, match=sentence) as refusal:
        resume(run)
    assert str(run.checkpoint) in str(refusal.value)
    assert str(refusal.value).isprintable()
    assert Store(run.path.parent).open("victim").status == "interrupted", "nothing was begun"


def test_the_undamaged_one_goes_on(run) -> None:
    rewrite(run, lambda tensors, progress: progress.pop("learned"))  # as an earlier version wrote it
    assert resume(run).status == "done"


@pytest.mark.parametrize("progress", ["[" * 100_000, "[]", "{", "1", ""])
def test_progress_that_is_none_is_said(run, progress) -> None:
    with safe_open(run.checkpoint, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    save_file(tensors, run.checkpoint, {"format": checkpoints.FORMAT, "progress": progress})
    for read in (resume, load_model):
        with pytest.raises(ValueError, match="is damaged and cannot be read"):
            read(run)


def test_a_pipe_for_a_checkpoint_keeps_nobody_waiting(run) -> None:
    run.checkpoint.unlink()
    os.mkfifo(run.checkpoint)
    with pytest.raises(ValueError, match="it is not a regular file"):
        resume(run)


def test_weights_alone_are_held_against_the_model_too(run) -> None:
    rewrite(run, DAMAGED["whole numbers for weights"][0])
    with pytest.raises(ValueError, match=r"model/head.weight holds int32"):
        load_model(run)
