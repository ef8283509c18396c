"""Studies from their jobs to their page in seconds, on trainings far too short for a verdict: none is asserted."""

import re

import numpy as np
import pytest
from PIL import Image

from polariscope.studies import reproduce, studies
from polariscope.studies.engine import judge
from polariscope.testing import check_study

ELSEWHERE = {
    "amplification",
    "feature-demand",
    "image-parity",
    "infinite-width",
    "kernel-modes",
    "lazy-transition",
    "learning-curves",
    "linear-solver",
    "neuron-dynamics",
    "random-labels",
    "sprite-family",
}
"""Studies whose smoke run is looked at in tests of their own."""


@pytest.mark.parametrize("name", studies.names())
def test_every_claim_can_come_out_both_ways(tmp_path, name):
    check_study(name, tmp_path, run=False)


NAMES = [name for name in studies.names() if name not in ELSEWHERE]


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in NAMES])
def test_a_study_goes_from_its_jobs_to_its_page(outcome, name):
    result = outcome(name)
    page = (result.path / "README.md").read_text(encoding="utf-8")
    assert result.claims
    for claim in result.claims:
        assert all(text.replace("|", r"\|") in page for text in (claim.text, claim.published, claim.measured))
        assert claim.published
        assert claim.measured
    assert not re.search(r"\bnan\b", page)
    pictures = re.findall(r"!\[.+\]\((.+)\.png\)", page)
    assert pictures
    assert {path.stem for path in result.path.glob("*.png")} == set(pictures)
    for picture in pictures:
        with Image.open(result.path / f"{picture}.png") as image:
            assert np.asarray(image.convert("L")).std() > 5, "something is on it"
    again = judge(result.path / "table.parquet")
    assert (again.claims, again.origin) == (result.claims, result.origin)


@pytest.mark.xdist_group("linear-vae")
def test_trained_runs_are_kept_and_found_again(outcome):
    result = outcome("linear-vae")
    runs = [record.parent for record in sorted((result.path / "runs").glob("*/run.json"))]
    assert len(runs) == 2
    before = [run.joinpath("checkpoint.safetensors").stat().st_mtime_ns for run in runs]
    for job in (result.path / "jobs").iterdir():
        job.unlink()
    again = reproduce("linear-vae", "smoke", result.path.parent, workers=1)
    assert again.table == result.table
    assert [run.joinpath("checkpoint.safetensors").stat().st_mtime_ns for run in runs] == before
