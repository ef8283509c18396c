"""The family of convolutional VAEs: trained as published, for a share of the steps, and measured in one go."""

from __future__ import annotations

import numpy as np
import pytest

from polariscope.nets.architecture import Conv
from polariscope.studies.polarised.sprite_family import (
    CLASSIFIER,
    COLLAPSED,
    COMPARISONS,
    HEALTHY,
    MEMBERS,
    SETTINGS,
    SpriteFamily,
    config_of,
)
from polariscope.worlds.renderers.sprites import Sprites

pytestmark = pytest.mark.xdist_group("sprite-family")


def test_members_are_trained_as_published_but_for_the_steps() -> None:
    for name in (*MEMBERS, CLASSIFIER):
        config = config_of(name, "overnight", seed=2)
        world = config.world.of if name == CLASSIFIER else config.world
        assert world == Sprites(size=64)
        assert config.model.architecture == Conv(dense_decoder=True)
        training = config.training
        assert (training.batch_size, training.learning_rate, training.optimiser) == (64, 1e-4, "adam")
        assert (training.steps, training.seed) == (30_000, 2)
        assert len(range(training.snapshot_every, training.steps + 1, training.snapshot_every)) == 20
    assert SETTINGS["paper"].steps == 300_000


def test_the_members_that_decide_most_come_first() -> None:
    jobs = SpriteFamily().jobs("overnight")
    first = [job["member"] for job in jobs if job["part"] == "run"][:3]
    assert first == ["beta 1", "beta 4", "beta 16"]
    ready: set[str] = set()
    for job in jobs:
        if job["part"] == "run":
            ready.add(job["member"])
        elif job["comparison"] in ("seeds", "early", "collapsed"):
            assert {HEALTHY, COLLAPSED} <= ready, "read from trainings that are done by then"
    assert {job["comparison"] for job in jobs if job["part"] == "layers"} == set(COMPARISONS)


def test_a_small_family_has_all_its_parts(outcome) -> None:
    table = outcome("sprite-family").table
    assert outcome("sprite-family").claims == []
    page = (outcome("sprite-family").path / "README.md").read_text(encoding="utf-8")
    assert "judges nothing" in page
    assert "![" in page
    runs = table.where(part="run")
    assert len(runs) == 4
    for row in runs.rows:
        assert row["active"] + row["mixed"] + row["passive"] == 10
        assert row["dimension_sampled"] > 0
        assert 0 < row["accuracy_mean_all"] < 1
    assert {row["step"] for row in table.where(part="snapshot").rows} == {20, 40, 60}
    assert len(table.where(part="drift")) == 4 * 10
    assert {"input", "mean", "sampled"} <= set(table.where(part="dimension").distinct("layer"))
    assert set(table.where(part="dimension").distinct("member")) == {HEALTHY}


def test_layers_are_compared_with_other_seeds_and_not_with_themselves(outcome) -> None:
    layers = outcome("sprite-family").table.where(part="layers")
    seeds, early = (layers.where(comparison=name).rows for name in ("seeds", "early"))
    for row in (*seeds, *early):
        place = row["rows"].index("mean")
        assert np.shape(row["cka"]) == np.shape(row["procrustes"]) == (len(row["rows"]), len(row["columns"]))
        assert row["cka"][0][0] == pytest.approx(1), "the same images"
        assert row["cka"][place][place] < 0.999
    same = [row["cka"] for row in seeds]
    np.testing.assert_allclose(same[0], np.transpose(same[1]), atol=0.1)  # two seeds: one pair, with other noise


def test_figures_and_published_words_are_shown_of_every_part(outcome) -> None:
    table, study = outcome("sprite-family").table, SpriteFamily()
    figures = study.figures(table)
    assert {"types", "over-training", "layer-dimension"} < figures.keys()
    assert {"layers-seeds", "layers-early", "layers-collapsed"} < figures.keys()
    shown = study.beside(table)
    assert {tuple(row) for row in shown} == {("what", "of", "published", "here")}
    passive = next(row["here"] for row in shown if row["what"].startswith("active") and row["of"] == HEALTHY)
    counts = [table.where(part="run", member=HEALTHY).mean(kind) for kind in ("active", "mixed", "passive")]
    assert [float(part.split(" ")[0]) for part in passive.split(" / ")] == pytest.approx(counts, abs=0.005)
