"""The studies of the polarised regime at smoke scale: what the thesis found, found again on a toy in seconds."""

from pathlib import Path

import pytest

from polariscope.lab import Store
from polariscope.studies.engine import Outcome


def assert_written(outcome: Outcome) -> None:
    text = (outcome.path / "README.md").read_text()
    for found in outcome.claims:
        assert found.text in text
        assert found.published in text.replace("\\|", "|")
    assert (outcome.path / "table.parquet").stat().st_size > 0
    assert list(Path(outcome.path).glob("*.png"))


@pytest.mark.xdist_group("polarised-regime")
@pytest.mark.spec("002/V05")
def test_passive_variables_grow_with_beta(outcome) -> None:
    found = outcome("polarised-regime")
    passive = [group.mean("passive") for _, group in found.table.by("beta")]
    assert passive == sorted(passive)
    assert passive[-1] > passive[0]
    assert found.claim("number of passive variables grows").held
    assert_written(found)


@pytest.mark.xdist_group("polarised-regime")
def test_means_and_samples_differ_through_the_passive_variables(outcome) -> None:
    found = outcome("polarised-regime")
    assert found.claim("exceeds that of the samples").held
    assert found.claim("effective rank of the samples").held
    assert found.claim("trace gap is the sum").held
    assert found.claim("no better than chance").held


@pytest.mark.xdist_group("layer-similarity")
@pytest.mark.spec("002/S06", "002/S07", "002/S08", "002/S09")
def test_layers_compare_as_published(outcome) -> None:
    found = outcome("layer-similarity")
    assert found.claim("encoder settles before the decoder").held
    collapsed = found.claim("collapsed model")
    assert collapsed.held, collapsed.measured
    trunk = found.claim("classifier's trunk")
    assert trunk.held, trunk.measured
    assert found.claim("across objectives").held
    conserved = found.claim("same number of active variables")
    assert conserved.held, conserved.measured
    assert_written(found)


@pytest.mark.xdist_group("polarised-regime")
def test_passive_means_are_the_correlated_ones(outcome) -> None:
    found = outcome("snapshot-correlations")
    assert found.claim("most correlations above 0.2").held
    assert_written(found)


@pytest.mark.xdist_group("polarised-regime")
def test_the_annealed_vae_lands_on_its_capacity(outcome) -> None:
    found = outcome("annealed-capacity")
    assert found.claim("ends at the capacity").held
    assert_written(found)


@pytest.mark.xdist_group("layer-similarity")
def test_the_identifiable_vae_has_passive_variables_by_the_ratio_rule(outcome) -> None:
    found = outcome("identifiable-vae")
    assert found.claim("some variables are passive").held
    assert found.claim("constant near zero").held
    assert_written(found)


@pytest.mark.xdist_group("fondue")
def test_fondue_finds_what_theory_says(tmp_path, monkeypatch) -> None:
    """The linear part as it is; the toy's parts cut to a few steps, so that claims and figures have rows."""
    from polariscope.studies import fondue
    from polariscope.studies.study import Bench, Table

    monkeypatch.setitem(fondue.TOY_STEPS, "smoke", 60)
    monkeypatch.setattr(fondue, "ELBOW_TOY", (1, 2, 4))
    study = fondue.Fondue()
    jobs = study.jobs("smoke")
    assert {job["part"] for job in jobs} == {"linear", "toy", "beta", "elbow-toy"}
    bench = Bench(Store(tmp_path), lambda progress: None)
    table = Table([row for job in jobs for row in study.run(job, bench)])
    first = study.claims(table, "smoke")[0]
    assert first.held, first.measured
    assert [row["answer"] for row in table.where(part="linear").rows] == [6, 3]
    assert {"elbow-toy", "trace-curves", "search-paths"} == set(study.figures(table))
