"""The studies of kernels: all of them from end to end at smoke scale; then the modes of a net's own kernel.

What the studies of the stripe's modes and of a deep net on even against odd digits find is read from their committed
tables.
"""

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from polariscope.studies import Table, studies
from polariscope.studies.engine import Outcome, judge
from polariscope.studies.manifolds.image_parity import (
    LEARNERS,
    ImageParity,
    digits_of,
    two_neighbour_dimension,
)
from polariscope.studies.manifolds.kernel_modes import PROTOTYPE, KernelModes
from polariscope.studies.manifolds.label_modes import MODES, read_modes
from polariscope.studies.real_digits import mnist_folder
from polariscope.studies.study import Bench, Row

PICTURES = {
    "kernel-modes": {"projections", "information", "scatter", "alignment"},
    "image-parity": {"errors", "projections", "information", "scatter"},
    "neuron-dynamics": {
        "single-neurons", "fixed-points", "trajectories", "decision", "loss", "arrows-stripe", "arrows-cylinder",
    },
    "amplification": {"scaling", "rise"},
    "learning-curves": {"learning-curves", "gain"},
    "lazy-transition": {"alpha-scan"},
    "feature-demand": {"accuracy-over-width", "similarity-across-widths"},
    "linear-solver": {"threshold"},
    "infinite-width": {"accuracy-over-width"},
    "random-labels": {"memorised"},
}  # fmt: skip


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in PICTURES])
def test_a_study_runs_from_end_to_end(outcome, name) -> None:
    """At this scale nothing is judged; but everything is done, drawn, written, and read again."""
    result = outcome(name)
    text = (result.path / "README.md").read_text()
    assert "## Published and measured" in text
    assert result.claims
    for claim in result.claims:
        assert claim.text in text
        assert claim.verdict is None
        assert claim.note or claim.measured != "-"
        assert claim.published
        assert claim.measured
        assert not re.search(r"\bnan\b", claim.published + claim.measured + claim.note)
    assert {path.stem for path in result.path.glob("*.png")} == PICTURES[name]
    for picture in PICTURES[name]:
        assert f"]({picture}.png)" in text
        with Image.open(result.path / f"{picture}.png") as image:
            assert (np.asarray(image.convert("L")) < 200).mean() > 0.005, "something is drawn"
    again = judge(result.path / "table.parquet")
    assert again.table == result.table
    assert again.claims == result.claims


def judged(found: Outcome, change: Callable[[Row], Row]) -> Outcome:
    """What the study says of the table with every row changed."""
    table = Table([change(row) for row in found.table.rows])
    return replace(found, table=table, claims=studies.get(found.name)().judge(table, found.scale))


def swapped(row: Row) -> Row:
    """Before and after training exchanged."""
    other = {"start": "end", "end": "start"}
    return row if row["part"] == "net" else row | {"time": other.get(row["time"], row["time"])}


# --- the stripe ----------------------------------------------------------------------------------------------------


def medians(table: Table, name: str, part: str, time: str, centred: bool = True):
    rows = table.where(size=1000, part=part, time=time, centred=centred)
    assert len(rows.distinct("seed")) >= 5
    return np.median(rows.column(name), axis=0)


@pytest.mark.spec("004/F49")
def test_the_labels_move_to_the_first_mode_of_the_stripe(committed) -> None:
    result = committed("kernel-modes")
    before, after = (medians(result.table, "projections", "tangent", time) for time in ("start", "end"))
    assert len(after) == MODES == 10
    assert before[0] <= 0.05
    assert after[0] >= 0.15
    assert after[0] >= 3 * after[1:].max()
    assert medians(result.table, "projections", "last_layer", "end")[0] >= 0.15
    assert result.claim("projection of the labels is on the first").held


@pytest.mark.spec("004/F52")
def test_the_first_mode_learns_about_the_label(committed) -> None:
    result = committed("kernel-modes")
    bits = {time: medians(result.table, "information", "tangent", time) for time in ("start", "t_star", "end")}
    assert bits["start"] == pytest.approx(0.07, abs=0.05)
    assert bits["t_star"][0] >= 0.5
    assert bits["end"][0] >= 0.6
    assert bits["end"][1:] == pytest.approx(0.13, abs=0.05), "components of the second kind, a little above the floor"
    for words in ("carries equally little", "carries most of the information", "to a lesser extent"):
        assert result.claim(words).held, words


@pytest.mark.spec("004/F53", "004/F54")
def test_the_planes_separate_and_the_last_layer_is_a_curve(committed) -> None:
    result = committed("kernel-modes")
    assert medians(result.table, "separability", "tangent", "start", centred=False) == pytest.approx(0.51, abs=0.05)
    assert medians(result.table, "separability", "tangent", "end", centred=False) >= 0.93
    assert medians(result.table, "separability", "last_layer", "end") >= 0.97
    assert (medians(result.table, "explained", "last_layer", "end") >= 0.97).all()
    assert (medians(result.table, "explained", "last_layer", "start") < 0.1).all()
    assert medians(result.table, "explained", "tangent", "end")[1] < 0.1, "the second centred mode ignores x₁"
    for words in ("In the plane", "lie on a curve"):
        assert result.claim(words).held, words


@pytest.mark.spec("004/F56")
def test_the_kernel_aligns_over_training(committed) -> None:
    result = committed("kernel-modes")
    before, onset, after = (medians(result.table, "alignment", "tangent", t) for t in ("start", "t_star", "end"))
    assert before < onset < after
    assert after >= 3 * before
    captured = [medians(result.table, "captured", "tangent", time, centred=False) for time in ("start", "end")]
    assert captured[1] >= 2 * captured[0]
    for words in ("aligns with the labels", "by t*"):
        assert result.claim(words).held, words
    for seed in result.table.distinct("seed"):
        moments = [result.table.where(time=time, size=1000, seed=seed).rows[0] for time in ("start", "t_star", "end")]
        assert moments[0]["clock"] == 0 < moments[1]["clock"] < moments[2]["clock"]
        assert 0.9 < moments[0]["amplification"] < 1.1 < 5 < moments[1]["amplification"]


@pytest.mark.parametrize(
    ("words", "change"),
    [
        *(
            (words, swapped)
            for words in (
                "carries equally little",
                "carries most of the information",
                "to a lesser extent",
                "on the first",
            )
        ),
        *((words, swapped) for words in ("aligns with", "In the plane", "on a curve")),
        ("by t*", lambda row: row | {"time": {"t_star": "start", "start": "t_star"}.get(row["time"], row["time"])}),
        ("more examples", lambda row: row | {"size": {100: 1000, 1000: 100}.get(row["size"], row["size"])}),
    ],
)
def test_claims_of_the_stripes_modes_can_fail(committed, words, change) -> None:
    result = committed("kernel-modes")
    assert result.claim(words).held is True
    assert judged(result, change).claim(words).held is False


def test_the_prototypes_table_lies_beside(committed) -> None:
    rows = KernelModes().beside(committed("kernel-modes").table)
    assert len(rows) == len(PROTOTYPE) == 7
    assert rows[2]["kernel"] == "NTK, final"
    assert rows[2]["ω² modes 1-4, prototype"] == "0.214 0.000 0.008 0.001"


def test_modes_are_read_one_by_one_and_beside_their_start() -> None:
    kernel = {"size": 9, "seed": 0, "part": "tangent", "centred": True, "error": 0.1}
    bits, shares = [0.1, 0.2, 0.3], [0.1, 0.02, 0.05]
    start = kernel | {"time": "start", "information": bits, "projections": shares, "alignment": 0.1, "captured": 0.2}
    end = start | {"time": "end", "information": bits[::-1], "alignment": 0.4, "captured": None, "error": 0.05}
    net = {"size": 9, "seed": 0, "part": "net", "time": "end", "error": 0.3}
    first, last, alone, *components = read_modes(Table([start, end, net])).rows
    assert (first["first_bits"], first["most_bits"]) == (0.1, 0.3)
    assert first["other_bits"] == pytest.approx(0.25)
    assert last["others_of_first_bits"] == pytest.approx(0.5)
    assert (last["first_share"], last["second_share"], last["later_share"]) == (0.1, 0.02, 0.05)
    assert last["runner_up"] == pytest.approx(0.5)
    assert last["alignment_of_start"] == pytest.approx(4)
    assert last["error_of_start"] == pytest.approx(0.5)
    assert "captured_of_start" not in last
    assert "error_of_start" not in alone
    assert [(row["time"], row["component"], row["bits"]) for row in components] == [
        *(("start", 1 + r, bits[r]) for r in range(3)),
        *(("end", 1 + r, bits[2 - r]) for r in range(3)),
    ]


# --- images --------------------------------------------------------------------------------------------------------


def mean(table: Table, name: str, part: str, time: str, size: int):
    rows = table.where(size=size, part=part, time=time)
    assert len(rows.distinct("seed")) >= 5
    return rows.column(name).mean(axis=0)


@pytest.mark.spec("004/F61")
def test_five_learners_of_parity(committed) -> None:
    result = committed("image-parity")
    sizes = result.table.distinct("size")
    error = {
        (part, time): np.array([mean(result.table, "error", part, time, size) for size in sizes])
        for part, time in LEARNERS
    }
    assert (error["tangent", "end"] <= error["tangent", "start"])[-1]
    assert (error["last_layer", "end"] <= error["last_layer", "start"]).all()
    assert (error["tangent", "end"] <= error["net", "end"] + 0.01).all()
    assert (error["last_layer", "end"] <= 0.6 * error["last_layer", "start"])[-1]
    assert {row["examples here"] for row in ImageParity().beside(result.table)} == {f"{p} MNIST" for p in sizes}


@pytest.mark.spec("004/F62")
def test_the_kernel_of_a_deep_net_turns_to_the_labels(committed) -> None:
    result = committed("image-parity")
    top = max(result.table.distinct("size"))
    before, after = (
        {name: mean(result.table, name, "tangent", time, top) for name in ("projections", "information", "alignment")}
        for time in ("start", "end")
    )
    assert before["projections"][0] < 0.2
    assert after["projections"][0] >= 0.45
    assert before["information"][0] < 0.2
    assert after["information"][0] >= 0.45
    assert after["alignment"] >= 3 * before["alignment"]
    dimension = [mean(result.table, "dimension", "last_layer", time, top) for time in ("start", "end")]
    assert 2 < dimension[1] < dimension[0]


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
    job = ImageParity().jobs("smoke")[0] | {"size": 20, "steps": 3}
    rows = ImageParity().run(job, Bench(None, print))
    assert {(row["data"], row["size"]) for row in rows} == {("mnist", 20)}
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
