"""The studies of a net's own kernel at smoke scale: the stripe's modes, and a deep net on even against odd digits."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from polariscope.studies import Table
from polariscope.studies.engine import Outcome
from polariscope.studies.image_parity import ImageParity, digits_of, mnist_folder, two_neighbour_dimension
from polariscope.studies.kernel_modes import MODES, PROTOTYPE, KernelModes
from polariscope.studies.study import Bench


def claim(claims, words: str):
    (found,) = [c for c in claims if words in c.text]
    return found


def assert_held(outcome: Outcome, *texts: str) -> None:
    for words in texts:
        made = claim(outcome.claims, words)
        assert made.held is True, made.measured


def assert_written(outcome: Outcome, pictures: set[str]) -> None:
    text = (outcome.path / "README.md").read_text()
    assert all(found.text in text for found in outcome.claims)
    assert "Published and measured" in text
    assert {path.stem for path in outcome.path.glob("*.png")} == pictures


def swapped(table: Table) -> Table:
    """The same table with before and after training exchanged."""
    other = {"start": "end", "end": "start"}
    return Table(
        [
            row | {"time": row["time"] if row["part"] == "net" else other.get(row["time"], row["time"])}
            for row in table.rows
        ]
    )


# --- the stripe ----------------------------------------------------------------------------------------------------


def medians(table: Table, name: str, part: str, time: str, centred: bool = True):
    rows = table.where(size=1000, part=part, time=time, centred=centred)
    assert len(rows) == 2
    return np.median(rows.column(name), axis=0)


@pytest.mark.xdist_group("kernel-modes")
@pytest.mark.spec("004/F49")
def test_the_labels_move_to_the_first_mode_of_the_stripe(outcome) -> None:
    found = outcome("kernel-modes")
    assert_held(found, "projection of the labels is on the first")
    before, after = (medians(found.table, "projections", "tangent", time) for time in ("start", "end"))
    assert len(after) == MODES == 10
    assert before[0] <= 0.05
    assert after[0] >= 0.15
    assert after[0] >= 3 * after[1:].max()
    assert medians(found.table, "projections", "last_layer", "end")[0] >= 0.15
    assert_written(found, {"projections", "information", "scatter", "alignment"})


@pytest.mark.xdist_group("kernel-modes")
@pytest.mark.spec("004/F52")
def test_the_first_mode_learns_about_the_label(outcome) -> None:
    found = outcome("kernel-modes")
    assert_held(found, "tells as little", "tells most of it", "to a lesser extent", "more examples")
    bits = {time: medians(found.table, "information", "tangent", time) for time in ("start", "t_star", "end")}
    assert bits["start"] == pytest.approx(0.07, abs=0.05)
    assert bits["t_star"][0] >= 0.5
    assert bits["end"][0] >= 0.6
    assert bits["end"][1:] == pytest.approx(0.13, abs=0.05), "components of the second kind, a little above the floor"


@pytest.mark.xdist_group("kernel-modes")
@pytest.mark.spec("004/F53", "004/F54")
def test_the_planes_separate_and_the_last_layer_is_a_curve(outcome) -> None:
    found = outcome("kernel-modes")
    assert_held(found, "In the plane", "lie on a curve")
    assert medians(found.table, "separability", "tangent", "start", centred=False) < 0.58
    assert medians(found.table, "separability", "last_layer", "start") < 0.7, "300 random units are not quite isotropic"
    assert medians(found.table, "separability", "tangent", "end", centred=False) >= 0.93
    assert medians(found.table, "separability", "last_layer", "end") >= 0.97
    assert (medians(found.table, "explained", "last_layer", "end") >= 0.97).all()
    assert (medians(found.table, "explained", "last_layer", "start") < 0.5).all()
    assert medians(found.table, "explained", "tangent", "end")[1] < 0.1, "the second centred mode ignores x₁"


@pytest.mark.xdist_group("kernel-modes")
@pytest.mark.spec("004/F56")
def test_the_kernel_aligns_over_training(outcome) -> None:
    found = outcome("kernel-modes")
    assert_held(found, "aligns with the labels", "by t*")
    before, onset, after = (medians(found.table, "alignment", "tangent", t) for t in ("start", "t_star", "end"))
    assert before < onset < after
    assert after >= 3 * before
    captured = [medians(found.table, "captured", "tangent", time, centred=False) for time in ("start", "end")]
    assert captured[1] >= 2 * captured[0]
    moments = [found.table.where(time=time, size=1000, seed=0).rows[0] for time in ("start", "t_star", "end")]
    assert moments[0]["clock"] == 0 < moments[1]["clock"] < moments[2]["clock"]
    assert 0.9 < moments[0]["amplification"] < 1.1 < 10 < moments[1]["amplification"]


@pytest.mark.xdist_group("kernel-modes")
def test_the_prototypes_table_lies_beside_and_claims_can_fail(outcome) -> None:
    found = outcome("kernel-modes")
    rows = KernelModes().beside(found.table)
    assert len(rows) == len(PROTOTYPE) == 7
    assert rows[2]["kernel"] == "NTK, final"
    assert rows[2]["ω² modes 1-4, prototype"] == "0.214 0.000 0.008 0.001"
    untrained = KernelModes().claims(swapped(found.table), "smoke")
    for words in ("tells as little", "tells most of it", "on the first", "aligns with", "In the plane", "on a curve"):
        assert claim(untrained, words).held is False


# --- images --------------------------------------------------------------------------------------------------------


def mean(table: Table, name: str, part: str, time: str, size: int = 300):
    return table.where(size=size, part=part, time=time).column(name).mean(axis=0)


@pytest.mark.xdist_group("image-parity")
@pytest.mark.spec("004/F61", "004/F40")
def test_five_learners_of_parity(outcome) -> None:
    found = outcome("image-parity")
    assert len(found.table) == 2 * 5
    assert_held(found, "better than with its initial one", "as good as the net", "last layer improves")
    net, start, end = (
        mean(found.table, "error", *at) for at in (("net", "end"), ("tangent", "start"), ("tangent", "end"))
    )
    assert end <= start
    assert end <= net + 0.01
    assert net < 0.12
    assert mean(found.table, "error", "last_layer", "end") <= 0.6 * mean(found.table, "error", "last_layer", "start")
    assert mean(found.table, "error", "net", "end") < mean(found.table, "error", "net", "end", 100)
    assert "drawn digits" in claim(found.claims, "as good as the net").measured
    assert claim(found.claims, "slightly better").held is None, "one seed does not decide it"
    assert_written(found, {"errors", "projections", "information", "scatter"})


@pytest.mark.xdist_group("image-parity")
@pytest.mark.spec("004/F62", "004/F58")
def test_the_kernel_of_a_deep_net_turns_to_the_labels(outcome) -> None:
    found = outcome("image-parity")
    assert_held(found, "after it the first tells most", "moves to the first", "sizable", "aligns", "In the plane")
    assert_held(found, "more dimensions than one")
    assert mean(found.table, "projections", "tangent", "start")[0] < 0.2
    assert mean(found.table, "projections", "tangent", "end")[0] >= 0.45
    assert mean(found.table, "information", "tangent", "start")[0] < 0.2
    assert mean(found.table, "information", "tangent", "end")[0] >= 0.45
    assert mean(found.table, "alignment", "tangent", "end") >= 3 * mean(found.table, "alignment", "tangent", "start")
    before, after = (mean(found.table, "dimension", "last_layer", time) for time in ("start", "end"))
    assert 2 < after < before


@pytest.mark.xdist_group("image-parity")
def test_claims_about_images_can_fail_and_need_several_nets(outcome) -> None:
    found = outcome("image-parity")
    untrained = ImageParity().claims(swapped(found.table), "smoke")
    for words in ("better than with its initial one", "last layer improves", "moves to the first", "aligns"):
        assert claim(untrained, words).held is False
    several = Table([row | {"seed": seed} for row in found.table.rows for seed in range(3)])
    assert claim(ImageParity().claims(several, "laptop"), "slightly better").held is not None


def test_real_digits_are_used_where_the_environment_names_them(monkeypatch, tmp_path: Path, real_data) -> None:
    monkeypatch.delenv("POLARISCOPE_DATA", raising=False)
    assert mnist_folder() is None
    assert {job["data"] for job in ImageParity().jobs("laptop")} == {"digits"}
    with pytest.raises(FileNotFoundError, match="set POLARISCOPE_DATA"):
        digits_of("mnist", 10, 10, 0, 14)
    monkeypatch.setenv("POLARISCOPE_DATA", str(tmp_path))
    assert mnist_folder() is None
    (tmp_path / "mnist").mkdir()
    for kind in ("images-idx3", "labels-idx1"):
        shutil.copy(real_data(f"mnist/t10k-{kind}-ubyte.gz"), tmp_path / "mnist")
    assert {job["data"] for job in ImageParity().jobs("smoke")} == {"mnist"}
    job = ImageParity().jobs("smoke")[0] | {"size": 40, "test": 50, "steps": 3}
    rows = ImageParity().run(job, Bench(None, print))
    assert {(row["data"], row["size"]) for row in rows} == {("mnist", 40)}
    assert len(rows) == 5


def test_the_longest_jobs_come_first() -> None:
    for study in (KernelModes(), ImageParity()):
        for scale in ("smoke", "laptop", "paper"):
            sizes = [job["size"] for job in study.jobs(scale)]
            assert sizes == sorted(sizes, reverse=True)


def test_two_neighbours_tell_the_dimension_and_twins_have_none() -> None:
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((800, 2)))
    assert two_neighbour_dimension(x @ x.T) == pytest.approx(2, abs=0.25)
    twins = x.repeat(2, 1)
    assert two_neighbour_dimension(twins @ twins.T) is None
