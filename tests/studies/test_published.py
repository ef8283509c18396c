"""The registry of published numbers against the tables of the specification, cell by cell, and beside our own."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from polariscope.studies import Table, studies
from polariscope.studies.published import (
    DEGENERATE,
    DISENTANGLEMENT,
    MANIPULATED,
    ORTHOGONALITY,
    POLARISED_SHARE,
)

SPEC = Path(__file__).resolve().parents[2] / "docs" / "spec" / "003-inner-workings-of-vaes.md"
DATA = {
    "dSprites": "dsprites",
    "fMNIST": "fmnist",
    "MNIST": "mnist",
    "Synth. Lin.": "square-linear",
    "Synth. Non-Lin.": "square-nonlinear",
}
MODELS = {
    "AE": "ae",
    "VAE": "vae",
    "β-VAE": "beta-vae",
    "β-VAE$_\\Sigma$": "full-beta-vae",
    "random decoder": "random",
    "FactorVAE": "factor-vae",
    "TC-VAE": "beta-tc-vae",
    "SlowVAE": "slow-vae",
    "PCL": "pcl",
    "weakly sup. GAN": "weakly supervised gan",
}
KINDS = [f"{data} {kind}" for data in ("dsprites", "shapes3d") for kind in ("original", "modified", "noise")]
Cells = dict[tuple[str, str], tuple[float, ...]]


def rows(after: str) -> Iterator[list[str]]:
    """Cells of the rows of the first table after some words of the specification, without its two head lines."""
    lines = SPEC.read_text().split(after, 1)[1].splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("|"))
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            return
        yield [cell.strip(" *") for cell in line.strip().strip("|").split("|")]


def numbers(cell: str) -> tuple[float, ...]:
    return tuple(float(word) for word in re.findall(r"\d*\.\d+", cell))


def cells(names: list[str], texts: list[str], row: str) -> Cells:
    """The cells of a row that are not empty."""
    found = {(row, name): numbers(text) for name, text in zip(names, texts, strict=True) if text != "–"}
    assert all(found.values()), texts
    return found


def printed() -> dict[str, Cells]:
    """Every table of published results in chapters 3 and 4: ``{table: {(row, column): numbers}}``."""
    found: dict[str, Cells] = {"share": {}, "DS": {}, "DtO": {}, "degenerate": {}}
    for data, *shares in rows("[S §3.3.2, T 3.2]"):
        found["share"] |= cells(["dependent", "ten"], shares, DATA[data])
    models = [MODELS[name] for name in ("β-VAE", "VAE", "AE", "β-VAE$_\\Sigma$", "random decoder")]
    data = ""
    for name, score, *values in rows("[S §3.3.3, T 3.3]"):
        data = name or data
        found[score] |= cells(models, values, DATA[data])
    for score, *values in rows("[S §3.3.4, F 3.5, T 3.4]"):
        found["degenerate"] |= cells(["1.0", "1.2", "1.5"], values, {"DS": "score", "DtO": "distance"}[score])
    for score, title in (
        ("mig", "**MIG (T 4.2)**"),
        ("dci", "**DCI (T 4.3)**"),
        ("factor-vae-score", "**FactorVAE score (T 4.4)**"),
        ("sap", "**SAP (T 4.5)**"),
    ):
        found[score] = {}
        for model, *values in rows(title):
            found[score] |= cells(KINDS, values, MODELS[model])
    return found


def registered() -> dict[str, Cells]:
    tables = {"share": POLARISED_SHARE, "DS": DISENTANGLEMENT, "DtO": ORTHOGONALITY, "degenerate": DEGENERATE}
    return {
        name: {
            (row, column): tuple(number for number in cell if number is not None)
            for row, line in table.items()
            for column, cell in line.items()
        }
        for name, table in (tables | MANIPULATED).items()
    }


@pytest.mark.spec("003/F3-081")
def test_every_published_number_is_that_of_the_specification() -> None:
    expected, found = printed(), registered()
    assert sum(len(cell) for table in expected.values() for cell in table.values()) == 348
    assert found.keys() == expected.keys()
    for name, table in expected.items():
        assert found[name] == table, name


@pytest.mark.spec("003/F3-081")
def test_published_and_measured_numbers_stand_side_by_side() -> None:
    study = studies.get("degenerate-squares")()
    ratios = (1.0, 1.2, 1.5, 2.0)
    trained = [{"route": "trained", "ratio": r, "score": 0.5 + r / 10, "distance": 0.1} for r in ratios for _ in "ab"]
    exact = [{"route": "exact", "ratio": r, "distance": 0.0} for r in ratios]
    table = Table(trained + exact)
    expected = printed()["degenerate"]
    lines = {row["ratio"]: row for row in study.beside(table)}
    assert list(lines) == ["1.0", "1.2", "1.5", "2.0"]
    for ratio in ("1.0", "1.2", "1.5"):
        assert numbers(str(lines[ratio]["DS published"])) == expected["score", ratio]
        assert numbers(str(lines[ratio]["DtO published"])) == expected["distance", ratio]
        assert lines[ratio]["DS here"] == f"{0.5 + float(ratio) / 10:.2f} ± 0.00 (n=2)"
    assert lines["2.0"]["DS published"] == "-", "a ratio of our own has no published number"
